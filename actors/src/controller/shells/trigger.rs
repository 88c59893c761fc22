//! How the effects of the owner of triggers are carried out in the controller. Its actor is at `/trigger`.

use super::{
    actor::{Came, OwnerMsg, Shell},
    env::Env,
};
use crate::{
    owner::{Out, Owner},
    trigger::{
        core::{Seen, TriggerAsk, TriggerErrand, TriggerInput, TriggerTimer, TriggersCore},
        marks,
    },
};
use garrick_model::{
    ids::JobId,
    refusal::Refusal,
    site_program::{Moment, SiteProgram},
    time::Timestamp,
    trigger::TriggerEvent,
    view::NodeView,
};
use garrick_runtime::{ReplyTo, TimerKey};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How long a program may run (strigger(1)).
const LIMIT: Duration = Duration::from_secs(5 * 60);

/// Messages of the owner of triggers.
pub type TriggerMsg = OwnerMsg<TriggersCore>;

/// What happened to nodes since it was taken last, by node.
#[derive(Debug, Default)]
pub struct NodeMarks(Mutex<BTreeMap<String, BTreeSet<TriggerEvent>>>, AtomicBool);

impl NodeMarks {
    /// A node shows itself anew.
    pub fn note(&self, before: &NodeView, after: &NodeView) {
        let events = marks::between(before, after);
        if !events.is_empty() {
            let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            marks.entry(after.name.clone()).or_default().extend(events);
        }
    }

    /// True for the first life of the owner of triggers in this process.
    fn is_first_life(&self) -> bool {
        !self.1.swap(true, Ordering::Relaxed)
    }

    fn take(&self) -> BTreeMap<String, BTreeSet<TriggerEvent>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn seen(env: &Env, jobs: BTreeSet<JobId>) -> Seen {
    let nodes = env.boards.nodes.list();
    let view = |job: JobId| Some((job, env.boards.jobs.get(&job)?));
    Seen {
        nodes: env.node_marks.take(),
        idle: nodes.iter().filter(|node| marks::is_idle(node)).map(|node| node.name.clone()).collect(),
        jobs: jobs.into_iter().filter_map(view).collect(),
        configurations: env.configurations(),
    }
}

impl Shell for TriggersCore {
    type Ask = TriggerAsk;
    type Gift = Infallible;
    type Hands = ();

    fn name(input: &TriggerInput) -> &'static str {
        match input {
            TriggerInput::Begun { .. } => "Begun",
            TriggerInput::Asked { .. } => "Ask",
            TriggerInput::Tick => "Tick",
            TriggerInput::Seen(_) => "Seen",
        }
    }

    fn ask_name(ask: &TriggerAsk) -> &'static str {
        match ask {
            TriggerAsk::Set { .. } => "Set",
            TriggerAsk::Clear { .. } => "Clear",
        }
    }

    fn key(_: TriggerTimer) -> TimerKey {
        "tick".into()
    }

    fn asked(request: u64, ask: TriggerAsk) -> TriggerInput {
        TriggerInput::Asked { request, ask }
    }

    fn begin(&mut self, (): &mut (), env: &Env, now: Timestamp, out: &mut Out<Self>) {
        let restarted = env.job_site().epoch > 1 && env.node_marks.is_first_life();
        self.handle(now, &mut env.ids.clone(), TriggerInput::Begun { restarted }, out);
    }

    fn hand(&self, (): &mut (), gift: Infallible) {
        match gift {}
    }

    fn run(&self, (): &mut (), env: &Env, errand: TriggerErrand) -> Came<TriggerInput> {
        match errand {
            TriggerErrand::Look { jobs } => Came::Input(TriggerInput::Seen(Box::new(seen(env, jobs)))),
            TriggerErrand::Run { program: line, argument } => {
                // What comes of it is in the log.
                let words = line.split_ascii_whitespace().map(str::to_owned);
                let program = SiteProgram::of_words(Moment::Trigger, words, argument, Some(LIMIT));
                env.ports.programs.run(program, ReplyTo::calling(drop));
                Came::Nothing
            }
        }
    }

    fn publish(&self, (): &mut (), _: &Env, shown: Infallible) {
        match shown {}
    }

    fn try_again(after: Duration) -> Result<(), Refusal> {
        Err(Refusal::RetryAfter { after })
    }

    fn label(&self) -> String {
        "trigger".to_owned()
    }
}
