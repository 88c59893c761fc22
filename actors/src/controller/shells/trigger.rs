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
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How long a program may run (strigger(1)).
const LIMIT: Duration = Duration::from_secs(5 * 60);

/// Messages of the owner of triggers.
pub type TriggerMsg = OwnerMsg<TriggersCore>;

/// What happened since it was taken last.
#[derive(Debug, Default)]
pub struct Marks(Mutex<Happened>);

#[derive(Debug, Default)]
struct Happened {
    /// By node.
    nodes: BTreeMap<String, BTreeSet<TriggerEvent>>,
    /// Events of controllers, of the service of accounting and of its database.
    others: BTreeSet<TriggerEvent>,
}

impl Marks {
    fn lock(&self) -> MutexGuard<'_, Happened> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node shows itself anew.
    pub fn note(&self, before: &NodeView, after: &NodeView) {
        let events = marks::between(before, after);
        if !events.is_empty() {
            self.lock().nodes.entry(after.name.clone()).or_default().extend(events);
        }
    }

    /// Something else happened.
    pub fn note_event(&self, event: TriggerEvent) {
        self.lock().others.insert(event);
    }

    fn take(&self) -> Happened {
        std::mem::take(&mut *self.lock())
    }
}

fn seen(env: &Env, jobs: BTreeSet<JobId>, owners: BTreeSet<u32>, before: u32) -> Seen {
    let nodes = env.boards.nodes.list();
    let view = |job: JobId| Some((job, env.boards.jobs.get(&job)?));
    let happened = env.marks.take();
    Seen {
        nodes: happened.nodes,
        others: happened.others,
        idle: nodes.iter().filter(|node| marks::is_idle(node)).map(|node| node.name.clone()).collect(),
        jobs: jobs.into_iter().filter_map(view).collect(),
        configurations: env.configurations(),
        unknown: owners.into_iter().filter(|uid| !env.ports.users.is_known(*uid)).collect(),
        before: Some(before),
    }
}

/// Runs a program as another user, with that user's groups (util-linux). A controller that does not run as root may not.
const SETPRIV: &str = "/usr/bin/setpriv";

/// The words before a program that make it run as the user who set its trigger; none where the controller runs as that user.
/// `None`: there is no such user.
fn become_owner(env: &Env, uid: u32) -> Option<Vec<String>> {
    let owner = env.ports.users.user(uid)?;
    let own = &env.config().slurm_user;
    if owner.name == *own || uid.to_string() == *own {
        return Some(Vec::new());
    }
    let ids = [format!("--reuid={uid}"), format!("--regid={}", owner.gid)];
    let rest = ["--init-groups", "--"].map(str::to_owned);
    Some([SETPRIV.to_owned()].into_iter().chain(ids).chain(rest).collect())
}

impl Shell for TriggersCore {
    type Ask = TriggerAsk;
    type Gift = Infallible;
    type Hands = ();

    fn name(input: &TriggerInput) -> &'static str {
        match input {
            TriggerInput::Begun => "Begun",
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
        self.handle(now, &mut env.ids.clone(), TriggerInput::Begun, out);
    }

    fn hand(&self, (): &mut (), gift: Infallible) {
        match gift {}
    }

    fn run(&self, (): &mut (), env: &Env, errand: TriggerErrand) -> Came<TriggerInput> {
        match errand {
            TriggerErrand::Look { jobs, owners, before } => {
                Came::Input(TriggerInput::Seen(Box::new(seen(env, jobs, owners, before))))
            }
            TriggerErrand::Run { uid, program: line, argument } => {
                // What comes of it is in the log.
                let Some(before) = become_owner(env, uid) else {
                    tracing::error!(uid, program = line, "trigger.owner_unknown: its program does not run");
                    return Came::Nothing;
                };
                let words = before.into_iter().chain(line.split_ascii_whitespace().map(str::to_owned));
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
