//! How the effects of the owner of crontabs are carried out in the controller. Its actor is at `/crontab`.

use super::{
    actor::{Came, OwnerMsg, Shell},
    env::Env,
};
use crate::{
    crontab::core::{CrontabErrand, CrontabsCore},
    messages::crontab::{CrontabInput, InstallCrontab},
    owner::{Out, Owner},
};
use garrick_events::records::job::{JobRecord, Phase};
use garrick_model::{ids::JobId, refusal::Refusal, time::Timestamp};
use garrick_runtime::TimerKey;
use std::{convert::Infallible, time::Duration};

/// Messages of the owner of crontabs.
pub type CrontabMsg = OwnerMsg<CrontabsCore>;

/// Jobs that belong to crontabs by their own records, and are not over.
fn living(env: &Env) -> Vec<(u32, JobId)> {
    let lives = |record: &JobRecord| record.schedule().is_some() && !matches!(record.phase, Phase::Over(..));
    let owner = |record: &JobRecord| lives(record).then_some(record.owner.uid);
    let jobs = env.committed.jobs().into_iter();
    jobs.filter_map(|job| Some((env.committed.look(job, owner).flatten()?, job))).collect()
}

impl Shell for CrontabsCore {
    type Ask = InstallCrontab;
    type Gift = Infallible;
    type Hands = ();

    fn name(input: &CrontabInput) -> &'static str {
        match input {
            CrontabInput::Begun => "Begun",
            CrontabInput::Asked { .. } => "Ask",
            CrontabInput::Over { .. } => "Over",
            CrontabInput::Seen { .. } => "Seen",
        }
    }

    fn ask_name(_: &InstallCrontab) -> &'static str {
        "Install"
    }

    fn key(timer: Infallible) -> TimerKey {
        match timer {}
    }

    fn asked(request: u64, ask: InstallCrontab) -> CrontabInput {
        CrontabInput::Asked { request, ask }
    }

    fn begin(&mut self, (): &mut (), env: &Env, now: Timestamp, out: &mut Out<Self>) {
        self.handle(now, &mut env.ids.clone(), CrontabInput::Begun, out);
    }

    fn hand(&self, (): &mut (), gift: Infallible) {
        match gift {}
    }

    fn run(&self, (): &mut (), env: &Env, errand: CrontabErrand) -> Came<CrontabInput> {
        match errand {
            CrontabErrand::Look => Came::Input(CrontabInput::Seen { living: living(env) }),
        }
    }

    fn publish(&self, (): &mut (), _: &Env, shown: Infallible) {
        match shown {}
    }

    fn try_again(after: Duration) -> Result<(), Refusal> {
        Err(Refusal::RetryAfter { after })
    }

    fn label(&self) -> String {
        "crontab".to_owned()
    }
}
