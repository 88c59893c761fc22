//! The real scheduler: it reads the published views, and its plans take time.

use super::{
    mutation::Mutation,
    world::{BEGIN, Happening, Place, World},
};
use garrick_actors::{
    messages::{job::JobInput, letter::Letter},
    owner::{Owner, Stage, perform},
    scheduler::{
        core::SchedulerCore,
        gather::{self, People, Shown},
        messages::{SchedulerErrand, SchedulerInput, SchedulerShown, SchedulerTimer, Seen, Snapshot},
    },
};
use garrick_model::{messages::command::CommandReply, state::PartitionState, time::Timestamp, view::NodeView};
use garrick_plan::{
    plan::kept::{
        Kept,
        planning::{Planning, Way, anybody_waits},
    },
    policy::policy,
    rules::{fair::FairShares, priority},
    snapshot::{accounting::Accounting, facts::Policy, qos::QosTable},
};
use jiff::tz::TimeZone;
use std::{cell::Cell, collections::VecDeque, sync::Arc, time::Duration};

/// The scheduler, and what is around it.
pub(super) struct Scheduler {
    pub(super) core: SchedulerCore,
    /// Generations of what is shown.
    pub(super) shown: Seen,
    /// A change from there on is told.
    watched: Option<Seen>,
    /// What there was to be seen when it looked last.
    look: Option<Look>,
    /// The last plan, where it may be repaired.
    kept: Option<Kept>,
    /// A plan is being made from this.
    making: Option<Box<Planning>>,
    /// What others calculate priorities by.
    pub(super) rules: Option<Arc<priority::Rules>>,
    qos: Arc<QosTable>,
    fair: Arc<FairShares>,
}

impl Scheduler {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            core: SchedulerCore::new(policy),
            shown: Seen::default(),
            watched: None,
            look: None,
            kept: None,
            making: None,
            rules: None,
            qos: Arc::default(),
            fair: Arc::default(),
        }
    }
}

/// What there was to be seen.
pub(super) struct Look {
    /// By the controller's clock.
    pub(super) as_of: Timestamp,
    /// By the clock that nobody sets.
    began: Duration,
    pub(super) nodes: Vec<Arc<NodeView>>,
    /// With their names.
    pub(super) partitions: Vec<(String, PartitionState)>,
    /// Somebody waits who may start.
    pub(super) waits: bool,
}

/// Nobody is an administrator or in a group.
struct Anybody;

impl People for Anybody {
    fn administrators(&self) -> Vec<u32> {
        Vec::new()
    }

    fn groups(&self, _: u32) -> Vec<String> {
        Vec::new()
    }
}

impl World {
    /// A clock that nobody sets.
    pub(super) fn passed(&self) -> Duration {
        self.now.since(BEGIN)
    }

    /// Another one, which has planned nothing yet; what the last one was about to do is lost with it.
    pub(super) fn start_scheduler(&mut self) {
        let (policy, shown) = (policy(&self.config), self.scheduler.shown);
        self.scheduler = Scheduler { shown, ..Scheduler::new(policy) };
        self.timers.retain(|key, _| !key.starts_with("scheduler"));
        self.forget_proposals();
        self.tell_scheduler(SchedulerInput::Started);
    }

    /// Something is shown anew.
    pub(super) fn is_shown(&mut self, board: fn(&mut Seen) -> &mut u64) {
        *board(&mut self.scheduler.shown) += 1;
        self.look_out();
    }

    fn look_out(&mut self) {
        if self.scheduler.watched.take_if(|seen| *seen != self.scheduler.shown).is_some() {
            self.send(Place::Boards, Happening::Changed);
        }
    }

    pub(super) fn tell_scheduler(&mut self, input: SchedulerInput) {
        if self.fails_over_it(1) {
            self.ledger.counts.add("scheduler failed");
            return self.start_scheduler();
        }
        self.scheduler_turns(input);
    }

    /// A turn, and those of what comes of its errands at once.
    fn scheduler_turns(&mut self, input: SchedulerInput) {
        let mut again = VecDeque::from([input]);
        while let Some(input) = again.pop_front() {
            let planned = matches!(input, SchedulerInput::Planned { .. });
            let (mut out, clock) = (Vec::new(), self.clock());
            self.scheduler.core.handle(clock, &mut self.ids, input, &mut out);
            if let Some(look) = self.scheduler.look.take_if(|_| planned) {
                self.as_scheduler_says(&mut out);
                self.against_proposals(&look, &out);
            }
            perform(out, &mut SchedulerStage(self, &mut again));
        }
    }

    /// The errand is over: the plan that was begun is made, of what was to be seen then.
    pub(super) fn planned(&mut self) {
        if let Some(planned) = self.scheduler.making.take().and_then(|planning| self.make(*planning)) {
            self.scheduler_turns(planned);
        }
    }

    fn make(&mut self, planning: Planning) -> Option<SchedulerInput> {
        let (began, by_now) = (self.scheduler.look.as_ref()?.began, self.passed());
        let looks = Cell::new(false);
        let clock = || if looks.replace(true) { by_now } else { began };
        let made = planning.make(&mut self.scheduler.kept, &clock, &|job| self.shown_jobs.get(&job).cloned());
        match made.way {
            Way::Idle => {}
            Way::Repaired => self.ledger.counts.add("plan repaired"),
            Way::Anew { .. } => self.ledger.counts.add("plan made"),
        }
        Some(SchedulerInput::Planned { made: Box::new(made), reservations: self.scheduler.shown.reservations })
    }

    /// What is shown of nodes may be older than what their owners have.
    fn snapshot(&mut self) -> Snapshot {
        let stale = !self.is_calm() && self.random.one_in_thousand(200);
        let mut seen = self.scheduler.shown;
        seen.nodes = seen.nodes.saturating_sub(u64::from(stale));
        let jobs: Vec<_> = self.shown_jobs.values().cloned().collect();
        let nodes = if stale { &self.earlier_nodes } else { &self.shown_nodes };
        let nodes: Vec<_> = nodes.values().cloned().collect();
        let shown = Shown {
            jobs: &jobs,
            job: &|job| self.shown_jobs.get(&job).cloned(),
            nodes: &nodes,
            partitions: &self.partitions,
            reservations: &if self.has(Mutation::ReservationsAreForgotten) {
                Vec::new()
            } else {
                self.shown_reservations.list()
            },
            licenses: self.licenses.clone(),
            qos: Arc::clone(&self.scheduler.qos),
            accounting: if self.has(Mutation::LimitsOfAccountingAreForgotten) {
                Accounting::default()
            } else {
                self.accounting()
            },
            zone: &TimeZone::UTC,
        };
        let began = self.passed();
        let view = gather::cluster_view(self.scheduler.core.policy().clone(), &shown, &Anybody, self.clock());
        let (partitions, config) = (self.partitions.clone(), Arc::clone(&self.config));
        Snapshot { seen, began, view, jobs, partitions, config, fair: Arc::clone(&self.scheduler.fair) }
    }
}

/// What the scheduler's verbs come to in the world, and what it is told next.
struct SchedulerStage<'w>(&'w mut World, &'w mut VecDeque<SchedulerInput>);

impl Stage<SchedulerCore> for SchedulerStage<'_> {
    fn tell(&mut self, letter: Letter) {
        if matches!(letter, Letter::Job(_, JobInput::Turn(_))) {
            self.0.ledger.counts.add("turn");
        }
        self.0.post(Place::Scheduler, letter);
    }

    fn run(&mut self, errand: SchedulerErrand) {
        let Self(world, again) = self;
        match errand {
            SchedulerErrand::Look => {
                world.against_priorities();
                world.against_accruals();
                let mut snapshot = Box::new(world.snapshot());
                world.scheduler.look = Some(Look {
                    as_of: world.clock(),
                    began: snapshot.began,
                    nodes: snapshot.view.nodes.clone(),
                    partitions: world.partitions.iter().map(|p| (p.config.name.clone(), p.state)).collect(),
                    waits: anybody_waits(&snapshot.view),
                });
                world.as_scheduler_sees(&mut snapshot.view);
                again.push_back(SchedulerInput::Snapshot(snapshot));
            }
            SchedulerErrand::Watch(seen) => {
                world.scheduler.watched = Some(seen);
                world.look_out();
            }
            SchedulerErrand::Plan(planning) => {
                let most = if world.is_calm() { 0 } else { world.mix.plan_ms };
                if most == 0 {
                    again.extend(world.make(*planning));
                } else {
                    world.scheduler.making = Some(planning);
                    let took = Duration::from_millis(world.random.between(most / 2, most).into());
                    world.set_timer(world.now.plus(took), Happening::Planned);
                }
            }
        }
    }

    fn set_timer(&mut self, timer: SchedulerTimer, at: Timestamp) {
        self.0.set_clock_timer(at, Happening::Scheduler(timer));
    }

    fn clear_timer(&mut self, timer: SchedulerTimer) {
        self.0.clear_timer(&Happening::Scheduler(timer));
    }

    fn publish(&mut self, rules: SchedulerShown) {
        self.0.scheduler.rules = rules;
    }

    fn answer(&mut self, _: u64, _: CommandReply) {}

    fn stop(&mut self) {}
}
