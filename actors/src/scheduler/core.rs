//! What the scheduler remembers between plans: when the next one is made and whether the last one is repaired instead, whose
//! answers are awaited, how many may start in an interval, what priorities are calculated by, and who is told what. Time, and
//! the boards as they are by then, are arguments.
//!
//! The next pass waits until every proposal of the last one was answered, so that boards show what was taken.

use super::{
    bounds::Quota,
    facts::{ClusterView, Policy},
    kept::{Kept, plan_to_keep},
    obstacle::{Obstacle, Waits},
    plan::{Plan, plan, plan_until},
    priority, resume,
    turns::{self, Turns},
};
use crate::job::messages::JobInput;
use garrick_model::{
    config::Config,
    ids::JobId,
    outlook::Outlook,
    state::Reason,
    time::Timestamp,
    view::{JobView, NodeView, PartitionView},
};
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Longest pause, after long passes, unless the site says that it is at least longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A timer for what is further ahead is set again.
const LONGEST_TIMER: Duration = Duration::from_secs(3600);
/// Where a new plan takes as long as this, plans are repaired between new ones.
const REPAIR_FROM: Duration = Duration::from_millis(20);
/// Proposals unanswered for this long are counted as refused.
const PATIENCE: Duration = Duration::from_secs(5);
/// Expected starts are told again when they moved by at least this much.
const EXPECTED_STEP: Duration = Duration::from_secs(60);
/// Most jobs that are told a new priority after a pass; the next pass goes on. The plan itself knows all of them.
const MOST_RANKED: usize = 10_000;

/// Generations of the boards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Jobs.
    pub jobs: u64,
    /// Nodes.
    pub nodes: u64,
    /// Partitions.
    pub partitions: u64,
    /// Reservations.
    pub reservations: u64,
}

/// The boards at one time.
pub struct Picture {
    /// Generations before anything was read.
    pub seen: Seen,
    /// When reading began, by [`Meanwhile::clock`].
    pub began: Duration,
    /// What a plan is made from.
    pub view: ClusterView,
    /// All jobs that are shown.
    pub jobs: Vec<Arc<JobView>>,
    /// All partitions.
    pub partitions: Vec<Arc<PartitionView>>,
    /// Configuration.
    pub config: Arc<Config>,
}

/// What goes on while a plan is made.
pub trait Meanwhile {
    /// A job as it is shown by now.
    fn job(&self, job: JobId) -> Option<Arc<JobView>>;
    /// The generation of the board of reservations by now.
    fn reservations(&self) -> u64;
    /// A clock that is never set, from any beginning.
    fn clock(&self) -> Duration;
}

/// Timers, each set once at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SchedulerTimer {
    /// Something changed.
    Pass,
    /// The site's interval.
    Interval,
    /// Answers are missing.
    Patience,
    /// The plan that is kept says when, or is to be made anew.
    Kept,
    /// Somebody starts who waits for nothing else than time.
    Again,
}

impl SchedulerTimer {
    /// Its key in an actor.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Interval => "interval",
            Self::Patience => "patience",
            Self::Kept => "kept",
            Self::Again => "again",
        }
    }
}

/// What the scheduler is told.
pub enum SchedulerInput {
    /// It lives.
    Started,
    /// A board is further than [`SchedulerEffect::Watch`] said.
    Changed,
    /// A timer went off.
    Timer(SchedulerTimer),
    /// What [`SchedulerEffect::Look`] asked for.
    Picture(Box<Picture>),
    /// A job's owner answered a proposal. Answers to passes before the last do not count.
    Outcome {
        /// Pass.
        pass: u64,
        /// It starts.
        accepted: bool,
    },
    /// New rules.
    Policy(Box<Policy>),
}

impl SchedulerInput {
    /// Its name in traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Started => "Started",
            Self::Changed => "Changed",
            Self::Timer(SchedulerTimer::Patience) => "Impatient",
            Self::Timer(_) => "Pass",
            Self::Picture(_) => "Picture",
            Self::Outcome { .. } => "Outcome",
            Self::Policy(_) => "Policy",
        }
    }
}

/// What shall happen.
pub enum SchedulerEffect {
    /// Read the boards and say so.
    Look,
    /// Tell when a board is further than this.
    Watch(Seen),
    /// Tell a job's owner.
    ToJob(JobId, JobInput),
    /// Set a timer, in place of the one that was set.
    SetTimer(SchedulerTimer, Duration),
    /// Take a timer back.
    ClearTimer(SchedulerTimer),
    /// What others calculate priorities by, too. `None`: nobody calculates any.
    Rules(Option<Arc<priority::Rules>>),
}

/// Takes effects as they come, in the order in which they must happen: what comes before a plan is not to wait for it.
pub type Sink<'a> = &'a mut dyn FnMut(SchedulerEffect);

/// Rules of priority with what they were made of.
struct Ranking {
    rules: Arc<priority::Rules>,
    config: Arc<Config>,
    partitions: u64,
    nodes: usize,
}

/// Nodes and names of partitions, by their places in a picture.
type Names = (Vec<Arc<NodeView>>, Vec<String>);

/// The scheduler.
pub struct SchedulerCore {
    policy: Policy,
    pass: u64,
    outstanding: usize,
    seen: Seen,
    /// A wait for changes is under way.
    watching: bool,
    /// The last pass stopped at its limit.
    truncated: bool,
    /// What priorities are calculated by, while that is so, and what it was made of.
    ranking: Option<Ranking>,
    last_pass: Duration,
    /// The last plan, where it is repaired.
    kept: Option<Kept>,
    /// What keeps those waiting who have room reserved.
    waits: FxHashMap<JobId, Waits>,
    /// Nodes and partitions by their places in it.
    names: Names,
    /// When somebody starts who waits for broken blocks.
    again: Option<Timestamp>,
    /// When the last plan was made anew, by the clock that is never set, and how long that took.
    anew: Option<(Duration, Duration)>,
    /// What was started of what may be started in an interval.
    quota: Quota,
}

impl SchedulerCore {
    /// A scheduler that has planned nothing yet.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            pass: 0,
            outstanding: 0,
            seen: Seen::default(),
            watching: false,
            truncated: false,
            ranking: None,
            last_pass: Duration::ZERO,
            kept: None,
            waits: FxHashMap::default(),
            names: (Vec::new(), Vec::new()),
            again: None,
            anew: None,
            quota: Quota::default(),
        }
    }

    /// The rules that plans are made by.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// When the last plan was made that is not the repair of another, by [`Meanwhile::clock`].
    pub fn planned_anew(&self) -> Option<Duration> {
        self.anew.map(|(at, _)| at)
    }

    /// What keeps a job waiting that has room reserved, by the last plan.
    pub fn outlook(&self, job: JobId) -> Option<Outlook> {
        let (nodes, partitions) = &self.names;
        self.waits.get(&job).map(|waits| waits.outlook(nodes, partitions))
    }

    /// One input, at a time.
    pub fn handle(&mut self, now: Timestamp, meanwhile: &dyn Meanwhile, input: SchedulerInput, out: Sink<'_>) {
        match input {
            SchedulerInput::Started => self.soon(out),
            SchedulerInput::Changed => {
                self.watching = false;
                self.soon(out);
            }
            SchedulerInput::Policy(policy) => {
                self.policy = *policy;
                self.soon(out);
            }
            SchedulerInput::Timer(SchedulerTimer::Patience) => {
                if self.outstanding > 0 {
                    tracing::warn!(pass = self.pass, unanswered = self.outstanding, "sched.proposals_unanswered");
                    self.outstanding = 0;
                    self.after_pass(now, meanwhile, out);
                }
            }
            SchedulerInput::Timer(_) => {
                if self.outstanding == 0 {
                    out(SchedulerEffect::Look);
                }
            }
            SchedulerInput::Picture(picture) => self.make_pass(now, meanwhile, *picture, out),
            SchedulerInput::Outcome { pass, accepted } => {
                if pass == self.pass && self.outstanding > 0 {
                    tracing::trace!(pass, accepted, "sched.outcome");
                    self.outstanding -= 1;
                    if self.outstanding == 0 {
                        self.after_pass(now, meanwhile, out);
                    }
                }
            }
        }
    }

    fn watch(&mut self, out: Sink<'_>) {
        if !self.watching {
            self.watching = true;
            out(SchedulerEffect::Watch(self.seen));
        }
    }

    fn soon(&self, out: Sink<'_>) {
        let pause = (self.last_pass / 2).min(LONGEST_PAUSE).max(self.policy.least_pause);
        out(SchedulerEffect::SetTimer(SchedulerTimer::Pass, pause));
    }

    fn make_pass(&mut self, now: Timestamp, meanwhile: &dyn Meanwhile, picture: Picture, out: Sink<'_>) {
        if self.outstanding > 0 {
            return;
        }
        let entered = meanwhile.clock();
        if let Some(interval) = self.policy.interval {
            out(SchedulerEffect::SetTimer(SchedulerTimer::Interval, interval));
        }
        let began = picture.began;
        self.seen = picture.seen;
        let (view, ranked) = self.rank(picture, now, out);
        let turns = turns::turns(&view, now);
        let made = self.plan(view, now, meanwhile);
        // What was reserved meanwhile is not in it.
        let made = if meanwhile.reservations() == self.seen.reservations {
            self.quota.spend((made.in_order, made.backfilled));
            made
        } else {
            self.kept = None;
            Plan { truncated: true, ..Plan::default() }
        };
        self.last_pass = meanwhile.clock().saturating_sub(began);
        tracing::debug!(
            starts = made.starts.len(),
            waiting = made.reasons.len(),
            micros = u64::try_from(self.last_pass.as_micros()).unwrap_or(u64::MAX),
            "sched.pass"
        );
        let started: BTreeSet<JobId> = made.starts.iter().map(|start| start.job).collect();
        self.send(made, turns, meanwhile, out);
        // A job that starts keeps the priority that it shows.
        let mut told = ranked.into_iter().filter(|(job, _)| !started.contains(job));
        for (job, priority) in told.by_ref().take(MOST_RANKED) {
            out(SchedulerEffect::ToJob(job, JobInput::Priority(priority)));
        }
        self.truncated |= told.next().is_some();
        if self.outstanding == 0 {
            let now = now.plus(meanwhile.clock().saturating_sub(entered));
            self.after_pass(now, meanwhile, out);
        } else {
            out(SchedulerEffect::SetTimer(SchedulerTimer::Patience, PATIENCE));
        }
    }

    /// Calculates the priorities of jobs that wait and puts them into the picture. Answers those that differ from what the
    /// jobs show.
    fn rank(&mut self, picture: Picture, now: Timestamp, out: Sink<'_>) -> (ClusterView, Vec<(JobId, u32)>) {
        let Picture { mut view, jobs, partitions, config, .. } = picture;
        if !config.multifactor() {
            if self.ranking.take().is_some() {
                out(SchedulerEffect::Rules(None));
            }
            return (view, Vec::new());
        }
        let fresh = self.ranking.as_ref().is_some_and(|known| {
            !known.rules.is_due(now)
                && Arc::ptr_eq(&known.config, &config)
                && Arc::ptr_eq(&known.rules.qos, &view.qos)
                && known.partitions == self.seen.partitions
                && known.nodes == view.nodes.len()
        });
        if !fresh {
            let rules = priority::Rules::new(&config.priority, &partitions, &view.nodes, now);
            let rules = Arc::new(rules.with_qos(Arc::clone(&view.qos)));
            out(SchedulerEffect::Rules(Some(Arc::clone(&rules))));
            let (partitions, nodes) = (self.seen.partitions, view.nodes.len());
            self.ranking = Some(Ranking { rules, config, partitions, nodes });
        }
        let Some(Ranking { rules, .. }) = &self.ranking else { return (view, Vec::new()) };
        let mut ranked = Vec::new();
        for job in &mut view.pending {
            if let Some(priority) = priority::news(rules, job, rules.standing(job)) {
                ranked.push((job.id, priority));
                *job = Arc::new(JobView { priority, ..(**job).clone() });
            }
        }
        if rules.settings.flags.calculate_running {
            let running = jobs.iter().filter(|job| !job.state.waits());
            ranked.extend(
                running.filter_map(|job| {
                    priority::news(rules, job, rules.standing(job)).map(|priority| (job.id, priority))
                }),
            );
        }
        (view, ranked)
    }

    /// Makes a plan, or repairs the last one where a new one takes long and is not due.
    fn plan(&mut self, view: ClusterView, now: Timestamp, meanwhile: &dyn Meanwhile) -> Plan {
        // Heartbeats change boards too: without anyone waiting there is nothing to plan.
        if view.pending.iter().all(|job| !job.eligible) {
            self.kept = None;
            self.waits.clear();
            let resumptions = resume::resumptions(&view, now, &Plan::default(), std::iter::empty());
            return Plan { resumptions, ..Plan::default() };
        }
        let names = (view.nodes.clone(), view.partitions.iter().map(|p| p.name.clone()).collect());
        let clock = meanwhile.clock();
        let kept = self.kept.take().filter(|kept| !self.wait_anew(kept, clock).is_zero());
        let view = match kept {
            Some(kept) => match kept.repair(view, now) {
                Ok((mut made, kept)) => {
                    tracing::debug!(stale = kept.is_stale(), "sched.repaired");
                    self.note_waits(names, &mut made, now);
                    self.kept = Some(kept);
                    return made;
                }
                Err(view) => *view,
            },
            None => view,
        };
        let view = self.within_quota(view, now);
        self.waits.clear();
        let began = meanwhile.clock();
        let took = || meanwhile.clock().saturating_sub(began);
        let long = self.anew.is_some_and(|(_, took)| took >= REPAIR_FROM);
        let mut made = match &view.policy.bounds {
            Some(bounds) => {
                let most = bounds.plan_time;
                let late = || most.is_some_and(|most| took() >= most);
                let made = plan_until(&view, now, Some(&late));
                if made.left_out > 0 {
                    tracing::warn!(left_out = made.left_out, "sched.plan_ran_out_of_time");
                }
                made
            }
            None if long => {
                let (made, kept) = plan_to_keep(view, now);
                self.kept = kept.ok();
                made
            }
            None => plan(&view, now),
        };
        self.note_waits(names, &mut made, now);
        self.anew = Some((began, took()));
        made
    }

    /// Bounds of starts are those of an interval, however many plans are made in it.
    fn within_quota(&mut self, mut view: ClusterView, now: Timestamp) -> ClusterView {
        if let (Some(bounds), Some(interval)) = (&view.policy.bounds, self.policy.interval) {
            view.policy.bounds = Some(self.quota.left(bounds, now, interval));
        }
        view
    }

    fn note_waits(&mut self, names: Names, made: &mut Plan, now: Timestamp) {
        self.names = names;
        for start in made.starts.iter().filter(|start| start.array_index.is_none()) {
            self.waits.remove(&start.job);
        }
        let mut obstacles: FxHashMap<JobId, Obstacle> = made.obstacles.drain(..).rev().collect();
        let mut last = None;
        for room in made.reservations.drain(..) {
            // Further tasks of an array come later.
            if last.replace((room.job, room.partition)) == Some((room.job, room.partition)) {
                continue;
            }
            let obstacle = obstacles.remove(&room.job);
            self.waits.insert(room.job, Waits { room, obstacle, planned: now });
        }
    }

    /// How long until a new plan is due: sooner where a repair left something out, but never so that most of the time goes
    /// there.
    fn wait_anew(&self, kept: &Kept, clock: Duration) -> Duration {
        let Some((at, took)) = self.anew else { return Duration::ZERO };
        let wait = if kept.is_stale() { took * 2 } else { self.interval().max(took * 2) };
        wait.saturating_sub(clock.saturating_sub(at))
    }

    fn send(&mut self, made: Plan, turns: Turns, meanwhile: &dyn Meanwhile, out: Sink<'_>) {
        self.pass += 1;
        self.truncated = made.truncated;
        self.again = made.again.into_iter().chain(turns.again).min();
        let proposals = made.starts.len() + made.preemptions.len() + made.resumptions.len();
        self.outstanding = proposals + turns.proposals.len();
        let mut tell = |job, input| out(SchedulerEffect::ToJob(job, input));
        for mut one in turns.proposals {
            one.pass = self.pass;
            tell(one.job, JobInput::Turn(one));
        }
        for mut one in made.resumptions {
            one.pass = self.pass;
            tell(one.job, JobInput::GoOn(Box::new(one)));
        }
        for mut preemption in made.preemptions {
            preemption.pass = self.pass;
            tell(preemption.job, JobInput::Preempt(Box::new(preemption)));
        }
        for mut start in made.starts {
            start.pass = self.pass;
            tell(start.job, JobInput::Start(Box::new(start)));
        }
        let mut expected: BTreeMap<JobId, Timestamp> = BTreeMap::new();
        for (job, at) in made.expected {
            expected.entry(job).and_modify(|known| *known = at.min(*known)).or_insert(at);
        }
        for (job, reason) in made.reasons {
            let expected = expected.get(&job).copied();
            if meanwhile.job(job).is_none_or(|view| is_news(&view, &reason, expected)) {
                tell(job, JobInput::Considered { reason, expected });
            }
        }
    }

    /// How often plans are made anew where nothing asks for one sooner.
    fn interval(&self) -> Duration {
        self.policy.interval.unwrap_or(LONGEST_TIMER)
    }

    fn soonest(&self, after: Duration) -> Duration {
        after.min(self.interval()).max(self.policy.least_pause)
    }

    fn after_pass(&mut self, now: Timestamp, meanwhile: &dyn Meanwhile, out: Sink<'_>) {
        out(SchedulerEffect::ClearTimer(SchedulerTimer::Patience));
        if let Some(kept) = &self.kept {
            let start = kept.next_start().map_or(LONGEST_TIMER, |at| at.since(now));
            let anew = if kept.is_stale() { self.wait_anew(kept, meanwhile.clock()) } else { self.interval() };
            out(SchedulerEffect::SetTimer(SchedulerTimer::Kept, self.soonest(start.min(anew))));
        }
        if let Some(at) = self.again {
            out(SchedulerEffect::SetTimer(SchedulerTimer::Again, self.soonest(at.since(now))));
        }
        if self.truncated {
            self.soon(out);
        } else {
            self.watch(out);
        }
    }
}

fn is_news(view: &JobView, reason: &Reason, expected: Option<Timestamp>) -> bool {
    let moved = match (view.start_time, expected) {
        (None, None) => false,
        (Some(shown), Some(new)) => shown.since(new).max(new.since(shown)) >= EXPECTED_STEP,
        _ => true,
    };
    view.reason != *reason || moved
}
