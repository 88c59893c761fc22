//! The scheduler as it ships: what is shown here is what it looks at, and its plans take time.

use super::{
    mutation::Mutation,
    world::{BEGIN, Happening, Place, World},
};
use garrick_actors::{
    job::messages::JobInput,
    scheduler::{
        core::{Meanwhile, Picture, SchedulerCore, SchedulerEffect, SchedulerInput, Seen},
        facts::{ClusterView, Policy},
        picture::{self, People, Shown},
        priority,
        qos::QosTable,
    },
};
use garrick_model::{
    ids::JobId,
    time::Timestamp,
    view::{JobView, NodeView, PartitionState},
};
use jiff::tz::TimeZone;
use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// The scheduler, and what is around it.
pub(super) struct Scheduler {
    pub(super) core: SchedulerCore,
    /// Generations of what is shown.
    pub(super) shown: Seen,
    /// A change from there on is told.
    watched: Option<Seen>,
    /// A plan is being made from this.
    making: Option<(Box<Picture>, Look)>,
    /// What the scheduler is told when that is done.
    waiting: VecDeque<SchedulerInput>,
    /// What others calculate priorities by.
    pub(super) rules: Option<Arc<priority::Rules>>,
    qos: Arc<QosTable>,
}

impl Scheduler {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            core: SchedulerCore::new(policy),
            shown: Seen::default(),
            watched: None,
            making: None,
            waiting: VecDeque::new(),
            rules: None,
            qos: Arc::default(),
        }
    }
}

/// What there was to be seen.
pub(super) struct Look {
    /// By the controller's clock.
    pub(super) as_of: Timestamp,
    pub(super) nodes: Vec<Arc<NodeView>>,
    /// With their names.
    pub(super) partitions: Vec<(String, PartitionState)>,
    /// Somebody waits who may start.
    pub(super) waits: bool,
}

/// What is shown by now, and a clock that goes on with each look while a plan is made.
struct Live<'a> {
    jobs: &'a BTreeMap<JobId, Arc<JobView>>,
    reservations: u64,
    began: Duration,
    took: Duration,
    looks: Cell<u32>,
}

/// In so many looks at the clock a plan takes all its time.
const LOOKS: u32 = 4;

impl Meanwhile for Live<'_> {
    fn job(&self, job: JobId) -> Option<Arc<JobView>> {
        self.jobs.get(&job).cloned()
    }

    fn reservations(&self) -> u64 {
        self.reservations
    }

    fn clock(&self) -> Duration {
        let looks = self.looks.replace(self.looks.get().saturating_add(1)).min(LOOKS);
        self.began + self.took * looks / LOOKS
    }
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
    fn live(&self, began: Duration, took: Duration) -> Live<'_> {
        let reservations = self.scheduler.shown.reservations;
        Live { jobs: &self.shown_jobs, reservations, began, took, looks: Cell::new(0) }
    }

    /// A clock that nobody sets.
    fn passed(&self) -> Duration {
        self.now.since(BEGIN)
    }

    /// Another one, which has planned nothing yet; what the last one was about to do is lost with it.
    pub(super) fn start_scheduler(&mut self) {
        let (policy, shown) = (self.scheduler.core.policy().clone(), self.scheduler.shown);
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

    /// It hears of what comes while it makes a plan when that is made.
    pub(super) fn tell_scheduler(&mut self, input: SchedulerInput) {
        if self.scheduler.making.is_some() {
            return self.scheduler.waiting.push_back(input);
        }
        if self.fails_over_it(1) {
            self.ledger.counts.add("scheduler failed");
            return self.start_scheduler();
        }
        let mut out = Vec::new();
        let live = Live {
            jobs: &self.shown_jobs,
            reservations: self.scheduler.shown.reservations,
            began: self.passed(),
            took: Duration::ZERO,
            looks: Cell::new(0),
        };
        let clock = self.clock();
        self.scheduler.core.handle(clock, &live, input, &mut |effect| out.push(effect));
        self.scheduler_does(out);
    }

    fn scheduler_does(&mut self, out: Vec<SchedulerEffect>) {
        for effect in out {
            match effect {
                SchedulerEffect::Look => self.look(),
                SchedulerEffect::Watch(seen) => {
                    self.scheduler.watched = Some(seen);
                    self.look_out();
                }
                SchedulerEffect::ToJob(job, input) => {
                    if matches!(input, JobInput::Turn(_)) {
                        self.ledger.counts.add("turn");
                    }
                    self.send(Place::Scheduler, Happening::Job(job, input));
                }
                SchedulerEffect::SetTimer(timer, after) => {
                    self.set_timer(self.now.plus(after), Happening::Scheduler(timer));
                }
                SchedulerEffect::ClearTimer(timer) => self.clear_timer(&Happening::Scheduler(timer)),
                SchedulerEffect::Rules(rules) => self.scheduler.rules = rules,
            }
        }
    }

    /// Begins a plan.
    fn look(&mut self) {
        self.against_priorities();
        let picture = Box::new(self.picture());
        let (nodes, waits) = (picture.view.nodes.clone(), picture.view.pending.iter().any(|job| job.eligible));
        let partitions = self.partitions.iter().map(|p| (p.config.name.clone(), p.state)).collect();
        self.scheduler.making = Some((picture, Look { as_of: self.clock(), nodes, partitions, waits }));
        let most = if self.is_calm() { 0 } else { self.mix.plan_ms };
        if most == 0 {
            return self.planned();
        }
        let took = self.random.between(most / 2, most);
        self.after(u64::from(took), Happening::Planned);
    }

    /// A plan is made: what came of it happens, and then what came meanwhile.
    pub(super) fn planned(&mut self) {
        let Some((mut picture, look)) = self.scheduler.making.take() else { return };
        let (began, anew) = (picture.began, self.scheduler.core.planned_anew());
        let mut out = Vec::new();
        self.as_scheduler_sees(&mut picture.view);
        let live = Live {
            jobs: &self.shown_jobs,
            reservations: self.scheduler.shown.reservations,
            began,
            took: self.passed().saturating_sub(began),
            looks: Cell::new(0),
        };
        let input = SchedulerInput::Picture(picture);
        self.scheduler.core.handle(look.as_of, &live, input, &mut |effect| out.push(effect));
        if look.waits {
            let repaired = self.scheduler.core.planned_anew() == anew;
            self.ledger.counts.add(if repaired { "plan repaired" } else { "plan made" });
        }
        self.as_scheduler_says(&mut out);
        self.against_proposals(&look, &out);
        self.scheduler_does(out);
        while self.scheduler.making.is_none()
            && let Some(input) = self.scheduler.waiting.pop_front()
        {
            self.tell_scheduler(input);
        }
    }

    /// What is shown of nodes may be older than what their owners have.
    fn picture(&mut self) -> Picture {
        let stale = !self.is_calm() && self.random.one_in_thousand(200);
        let mut seen = self.scheduler.shown;
        seen.nodes = seen.nodes.saturating_sub(u64::from(stale));
        let jobs: Vec<_> = self.shown_jobs.values().cloned().collect();
        let shown = Shown {
            jobs: &jobs,
            nodes: if stale { &self.earlier_nodes } else { &self.shown_nodes },
            partitions: &self.partitions,
            reservations: &if self.has(Mutation::ReservationsAreForgotten) {
                Vec::new()
            } else {
                self.shown_reservations.list()
            },
            licenses: self.licenses.clone(),
            qos: Arc::clone(&self.scheduler.qos),
            zone: &TimeZone::UTC,
        };
        let began = self.passed();
        let policy = self.scheduler.core.policy().clone();
        let live = self.live(began, Duration::ZERO);
        let view: ClusterView = picture::cluster_view(policy, &shown, &Anybody, &live, self.clock());
        Picture { seen, began, view, jobs, partitions: self.partitions.clone(), config: Arc::clone(&self.config) }
    }
}
