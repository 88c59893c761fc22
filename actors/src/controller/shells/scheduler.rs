//! How the scheduler's effects are carried out in the controller: its actor reads the views for its
//! [core](crate::scheduler::core) and has plans made, without delaying others.

use super::{
    actor::{Came, OwnerMsg, Shell},
    env::{Boards, Env},
    fair,
};
use crate::{
    owner::{Out, Owner},
    scheduler::{
        core::SchedulerCore,
        gather::{self, People, Shown},
        messages::{SchedulerAsk, SchedulerErrand, SchedulerInput, SchedulerShown, SchedulerTimer, Seen, Snapshot},
    },
};
use garrick_model::{
    messages::command::CommandReply,
    refusal::Refusal,
    time::{Timestamp, system_zone},
    view::JobView,
};
use garrick_plan::{
    plan::kept::Kept,
    snapshot::facts::{ClusterView, Policy},
};
use garrick_runtime::TimerKey;
use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

/// Messages of the scheduler, at `/scheduler`.
pub type SchedulerMsg = OwnerMsg<SchedulerCore>;

/// The state of the scheduler's shell.
pub struct SchedulerHands {
    /// Start of its monotonic clock.
    began: Instant,
    /// The last plan, if it can be repaired.
    kept: Option<Kept>,
}

impl Default for SchedulerHands {
    fn default() -> Self {
        Self { began: Instant::now(), kept: None }
    }
}

impl Shell for SchedulerCore {
    type Ask = SchedulerAsk;
    type Gift = Infallible;
    type Hands = SchedulerHands;

    const SAVES: bool = false;

    fn name(input: &SchedulerInput) -> &'static str {
        input.name()
    }

    fn ask_name(ask: &SchedulerAsk) -> &'static str {
        match ask {
            SchedulerAsk::Explain { .. } => "Explain",
            SchedulerAsk::Statistics(_) => "Statistics",
            SchedulerAsk::ResetStatistics => "ResetStatistics",
        }
    }

    fn key(timer: SchedulerTimer) -> TimerKey {
        timer.key().into()
    }

    fn asked(request: u64, ask: SchedulerAsk) -> SchedulerInput {
        match ask {
            SchedulerAsk::Explain { job, names_jobs } => SchedulerInput::Explain { request, job, names_jobs },
            SchedulerAsk::Statistics(counted) => SchedulerInput::Statistics { request, counted },
            SchedulerAsk::ResetStatistics => SchedulerInput::ResetStatistics { request },
        }
    }

    fn begin(&mut self, _: &mut SchedulerHands, env: &Env, now: Timestamp, out: &mut Out<Self>) {
        self.handle(now, &mut env.ids.clone(), SchedulerInput::Started, out);
    }

    fn hand(&self, _: &mut SchedulerHands, gift: Infallible) {
        match gift {}
    }

    fn run(&self, hands: &mut SchedulerHands, env: &Env, errand: SchedulerErrand) -> Came<SchedulerInput> {
        let SchedulerHands { began, kept } = hands;
        let clock = || began.elapsed();
        match errand {
            SchedulerErrand::Look => {
                Came::Input(SchedulerInput::Snapshot(Box::new(snapshot(self.policy().clone(), env, clock()))))
            }
            SchedulerErrand::Watch(seen) => {
                let accounting = Env::accounting_changed(env.accounting_boards(), seen.accounting);
                Came::Later(Box::pin(changed(env.boards.clone(), accounting, seen)))
            }
            SchedulerErrand::Plan(planning) => {
                let made = Box::new(planning.make(kept, &clock, &|job| env.boards.jobs.get(&job)));
                Came::Input(SchedulerInput::Planned { made, reservations: env.boards.reservations.generation() })
            }
        }
    }

    fn publish(&self, _: &mut SchedulerHands, env: &Env, rules: SchedulerShown) {
        env.set_priority_rules(rules);
    }

    fn try_again(after: Duration) -> CommandReply {
        CommandReply::Refused(Refusal::RetryAfter { after })
    }

    fn label(&self) -> String {
        "scheduler".to_owned()
    }
}

async fn changed(boards: Boards, accounting: impl Future<Output = ()>, seen: Seen) -> Option<SchedulerInput> {
    tokio::select! {
        _ = boards.jobs.changed(seen.jobs) => {}
        _ = boards.nodes.changed(seen.nodes) => {}
        _ = boards.partitions.changed(seen.partitions) => {}
        _ = boards.reservations.changed(seen.reservations) => {}
        () = accounting => {}
    }
    Some(SchedulerInput::Changed)
}

impl People for Env {
    fn administrators(&self) -> Vec<u32> {
        self.ports.host.administrators()
    }

    fn groups(&self, uid: u32) -> Vec<String> {
        let groups = self.ports.users.user(uid).map(|user| user.groups).unwrap_or_default();
        groups.into_iter().map(|(_, name)| name).collect()
    }
}

fn snapshot(policy: Policy, env: &Env, began: Duration) -> Snapshot {
    let boards = &env.boards;
    let fair = fair::calculated(env, Timestamp::now());
    let seen = Seen {
        jobs: boards.jobs.generation(),
        nodes: boards.nodes.generation(),
        partitions: boards.partitions.generation(),
        reservations: boards.reservations.generation(),
        accounting: env.accounting_generations(),
    };
    let jobs = boards.jobs.live();
    let view = view_of(policy, env, &jobs);
    let (partitions, config) = (boards.partitions.list(), env.config());
    Snapshot { seen, began, view, jobs, partitions, config, fair }
}

/// The views as a plan's snapshot.
pub fn cluster_view(policy: Policy, env: &Env) -> ClusterView {
    view_of(policy, env, &env.boards.jobs.live())
}

fn view_of(policy: Policy, env: &Env, jobs: &[Arc<JobView>]) -> ClusterView {
    let licenses = env.licenses.lock().clone();
    let now = Timestamp::now();
    let shown = Shown {
        jobs,
        job: &|job| env.boards.jobs.get(&job),
        nodes: &env.boards.nodes.list(),
        partitions: &env.boards.partitions.list(),
        licenses,
        qos: env.qos(),
        accounting: fair::with_past(env, now),
        reservations: &env.boards.reservations.list(),
        zone: &system_zone(),
    };
    gather::cluster_view(policy, &shown, env, now)
}
