//! How the effects of the owner of steps are carried out in the controller.

use super::{
    actor::{Came, OwnerMsg, Shell},
    env::Env,
};
use crate::{
    messages::steps::{StepsAsk, StepsInput, StepsTimer},
    owner::Out,
    steps::{core::StepsCore, effects::StepsErrand},
};
use garrick_model::{messages::command::CommandReply, refusal::Refusal, time::Timestamp};
use garrick_runtime::TimerKey;
use std::{convert::Infallible, time::Duration};

/// Messages of the owner of steps.
pub type StepsMsg = OwnerMsg<StepsCore>;

impl Shell for StepsCore {
    type Ask = StepsAsk;
    type Gift = Infallible;
    type Hands = ();

    const SAVES: bool = false;

    fn name(input: &StepsInput) -> &'static str {
        match input {
            StepsInput::Asked { .. } => "Ask",
            StepsInput::Reported { .. } => "StepReport",
            StepsInput::Listed { .. } => "Steps",
            StepsInput::Found { .. } => "Records",
            StepsInput::NodeGone(_) => "NodeGone",
            StepsInput::Known(_) => "Known",
            StepsInput::Late(_) => "QueryTimeout",
        }
    }

    fn ask_name(ask: &StepsAsk) -> &'static str {
        match ask {
            StepsAsk::List { .. } => "ListSteps",
            StepsAsk::Find { .. } => "FindRecords",
        }
    }

    fn key(StepsTimer(query): StepsTimer) -> TimerKey {
        ("query", query).into()
    }

    fn asked(request: u64, ask: StepsAsk) -> StepsInput {
        StepsInput::Asked { request, ask }
    }

    fn begin(&mut self, (): &mut (), _: &Env, _: Timestamp, _: &mut Out<Self>) {}

    fn hand(&self, (): &mut (), gift: Infallible) {
        match gift {}
    }

    fn run(&self, (): &mut (), env: &Env, errand: StepsErrand) -> Came<StepsInput> {
        let StepsErrand::WhichAreKnown(jobs) = errand;
        Came::Input(StepsInput::Known(jobs.into_iter().filter(|job| env.committed.has_job(*job)).collect()))
    }

    fn publish(&self, (): &mut (), _: &Env, shown: Infallible) {
        match shown {}
    }

    fn try_again(after: Duration) -> CommandReply {
        CommandReply::Refused(Refusal::RetryAfter { after })
    }

    fn label(&self) -> String {
        "steps".to_owned()
    }
}
