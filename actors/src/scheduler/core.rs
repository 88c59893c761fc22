//! The scheduler's state between plans: when the next plan is made or the kept one repaired, which answers are missing, how many
//! jobs may start in an interval, the rules of priorities, and what is sent to jobs. It is an owner like the others, but saves
//! nothing.
//!
//! A pass reads the views, makes a plan of them ([`garrick_plan::plan::kept::planning`]), and sends the results. Passes do not
//! overlap, and the next one waits until every proposal of the last one was answered, so that views include what was taken.

use crate::{
    messages::{job::JobInput, letter::Letter},
    owner::{Effect, FreshIds, Out, Owner},
    scheduler::{
        messages::{SchedulerErrand, SchedulerInput, SchedulerShown, SchedulerTimer, Seen, Snapshot},
        statistics::{Pass, PassStatistics},
    },
};
use garrick_model::{
    config::{Config, EnforceWord},
    ids::JobId,
    messages::command::CommandReply,
    outlook::Outlook,
    time::{Timestamp, micros},
    view::{JobView, NodeView},
};
use garrick_plan::{
    plan::{
        Plan,
        kept::planning::{Considered, Made, Outline, Planning, Way, anybody_waits},
        obstacle::{Obstacle, Waits},
    },
    proposals::StartProposal,
    rules::{
        accrual::{Accruals, Decision},
        bounds::Quota,
        minutes::{Minutes, minutes},
        priority,
        turns::{self, Turns},
    },
    snapshot::facts::{ClusterView, Policy},
};
use rustc_hash::FxHashMap;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Longest pause after long passes, unless the site sets a longer minimum.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A timer further ahead is set again when this has passed.
const LONGEST_TIMER: Duration = Duration::from_secs(3600);
/// If a new plan takes this long, plans are repaired between new ones.
const REPAIR_FROM: Duration = Duration::from_millis(20);
/// Proposals unanswered for this long are not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// And are given up after this. Until then such a start counts against limits.
const GIVEN_UP: Duration = Duration::from_secs(10);
/// Most jobs that are sent a new priority after a pass; the next pass continues. The plan itself uses all new priorities.
const MOST_RANKED: usize = 10_000;
/// The same of jobs that are told since when they gain priority by age: each saves that.
const MOST_ACCRUING: usize = 10_000;

/// Rules of priority and their inputs.
struct Ranking {
    rules: Arc<priority::Rules>,
    config: Arc<Config>,
    partitions: u64,
    nodes: usize,
}

/// Nodes and names of partitions, by index in a snapshot.
type Names = (Vec<Arc<NodeView>>, Vec<String>);

/// A pass in progress.
enum Course {
    /// The views are being read.
    Looking,
    /// A plan is being made.
    Planning(Box<Making>),
}

/// Results that are sent together with the plan that is being made.
struct Making {
    /// The time for which it is made.
    now: Timestamp,
    /// When its snapshot was begun, on the monotonic clock.
    began: Duration,
    /// New priorities.
    ranked: Vec<(JobId, u32)>,
    /// Since when jobs gain priority by age.
    accruals: Vec<Decision>,
    turns: Turns,
    names: Names,
    /// Jobs that wait and may start.
    queue: usize,
}

/// The scheduler.
pub struct SchedulerCore {
    policy: Policy,
    pass: u64,
    course: Option<Course>,
    /// A pass became due during another one.
    due: bool,
    outstanding: usize,
    seen: Seen,
    /// A wait for changes is in progress.
    watching: bool,
    /// The last pass stopped at its limit.
    truncated: bool,
    /// The rules of priorities, if they are calculated, and their inputs.
    ranking: Option<Ranking>,
    /// Which jobs gain priority by age.
    accruals: Accruals,
    last_pass: Duration,
    /// Starts that were proposed, where there are limits: in the last pass, and in earlier ones that were not waited for.
    proposed: Vec<StartProposal>,
    late: Vec<StartProposal>,
    /// The kept plan, if plans are repaired.
    kept: Option<Outline>,
    /// When it is made anew because a repair left something out.
    stale_until: Option<Timestamp>,
    /// What jobs with reserved resources wait for.
    waits: FxHashMap<JobId, Waits>,
    /// Nodes and partitions by their index in it.
    names: Names,
    /// The next start of a job that waits for blocks that are already broken up.
    again: Option<Timestamp>,
    /// When the last plan was made anew, on the monotonic clock, and how long it took.
    anew: Option<(Duration, Duration)>,
    /// Starts in the current interval.
    quota: Quota,
    /// What is counted of passes.
    counted: PassStatistics,
}

impl Owner for SchedulerCore {
    type Input = SchedulerInput;
    type Timer = SchedulerTimer;
    type Shown = SchedulerShown;
    type Answer = CommandReply;
    type Errand = SchedulerErrand;

    fn handle(&mut self, now: Timestamp, _: &mut dyn FreshIds, input: SchedulerInput, out: &mut Out<Self>) {
        match input {
            SchedulerInput::Started => self.soon(now, out),
            SchedulerInput::Changed => {
                self.watching = false;
                self.soon(now, out);
            }
            SchedulerInput::Policy(policy) => {
                self.policy = *policy;
                self.soon(now, out);
            }
            SchedulerInput::Timer(SchedulerTimer::Patience) => {
                if self.outstanding > 0 {
                    tracing::warn!(pass = self.pass, unanswered = self.outstanding, "sched.proposals_unanswered");
                    self.outstanding = 0;
                    self.late.append(&mut self.proposed);
                    self.after_pass(now, out);
                }
            }
            SchedulerInput::Timer(_) => self.look(out),
            SchedulerInput::Snapshot(snapshot) => self.begin_pass(now, *snapshot, out),
            SchedulerInput::Planned { made, reservations } => self.end_pass(now, *made, reservations, out),
            SchedulerInput::Outcome { pass, accepted } => {
                if pass == self.pass && self.outstanding > 0 {
                    tracing::trace!(pass, accepted, "sched.outcome");
                    self.outstanding -= 1;
                    if self.outstanding == 0 {
                        self.after_pass(now, out);
                    }
                }
            }
            SchedulerInput::Explain { request, job, names_jobs } => {
                let outlook = self.outlook(job).map(|outlook| if names_jobs { outlook } else { outlook.anonymous() });
                let answer = CommandReply::Outlook(outlook.map(Box::new));
                out.push(Effect::Answer { request, answer });
            }
            SchedulerInput::Statistics { request, mut counted } => {
                self.counted.of_today(now);
                self.counted.fill(&mut counted);
                out.push(Effect::Answer { request, answer: CommandReply::Statistics(counted) });
            }
            SchedulerInput::ResetStatistics { request } => {
                self.counted.reset(now);
                out.push(Effect::Answer { request, answer: CommandReply::Done });
            }
        }
    }

    fn timer(timer: SchedulerTimer) -> SchedulerInput {
        SchedulerInput::Timer(timer)
    }
}

fn set(timer: SchedulerTimer, at: Timestamp, out: &mut Out<SchedulerCore>) {
    out.push(Effect::SetTimer { timer, at });
}

fn tell(job: JobId, input: JobInput, out: &mut Out<SchedulerCore>) {
    out.push(Effect::Tell(Letter::Job(job, input)));
}

impl SchedulerCore {
    /// A scheduler without a plan.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            pass: 0,
            course: None,
            due: false,
            outstanding: 0,
            seen: Seen::default(),
            watching: false,
            truncated: false,
            ranking: None,
            accruals: Accruals::default(),
            last_pass: Duration::ZERO,
            proposed: Vec::new(),
            late: Vec::new(),
            kept: None,
            stale_until: None,
            waits: FxHashMap::default(),
            names: (Vec::new(), Vec::new()),
            again: None,
            anew: None,
            quota: Quota::default(),
            counted: PassStatistics::default(),
        }
    }

    /// The policy of plans.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What a job with reserved resources waits for, according to the last plan.
    pub fn outlook(&self, job: JobId) -> Option<Outlook> {
        let (nodes, partitions) = &self.names;
        self.waits.get(&job).map(|waits| waits.outlook(nodes, partitions))
    }

    fn watch(&mut self, out: &mut Out<Self>) {
        if !self.watching {
            self.watching = true;
            out.push(Effect::Do(SchedulerErrand::Watch(self.seen)));
        }
    }

    fn soon(&self, now: Timestamp, out: &mut Out<Self>) {
        let pause = (self.last_pass / 2).min(LONGEST_PAUSE).max(self.policy.least_pause);
        set(SchedulerTimer::Pass, now.plus(pause), out);
    }

    fn look(&mut self, out: &mut Out<Self>) {
        if self.course.is_some() {
            self.due = true;
        } else if self.outstanding == 0 {
            self.course = Some(Course::Looking);
            out.push(Effect::Do(SchedulerErrand::Look));
        }
    }

    /// Starts making a plan.
    fn begin_pass(&mut self, now: Timestamp, mut snapshot: Snapshot, out: &mut Out<Self>) {
        if self.outstanding > 0 || matches!(self.course, Some(Course::Planning(_))) {
            return;
        }
        if let Some(interval) = self.policy.interval {
            set(SchedulerTimer::Interval, now.plus(interval), out);
        }
        let began = snapshot.began;
        self.seen = snapshot.seen;
        self.end_over_limits(&snapshot, now, out);
        let accruals = self.accrue(&mut snapshot, now);
        let (mut view, ranked) = self.rank(snapshot, now, out);
        self.late.retain(|start| now <= start.answer_by);
        view.count_starts(&self.late);
        let turns = turns::turns(&view, now);
        let names = (view.nodes.clone(), view.partitions.iter().map(|p| p.name.clone()).collect());
        let queue = view.pending.len();
        let view = if anybody_waits(&view) { self.within_quota(view, now) } else { view };
        // A new plan that takes long to make is kept.
        let keeps = self.anew.is_some_and(|(_, took)| took >= REPAIR_FROM);
        let repairs = self.kept.take().is_some_and(|kept| !self.wait_anew(kept, began).is_zero());
        self.course = Some(Course::Planning(Box::new(Making { now, began, ranked, accruals, turns, names, queue })));
        out.push(Effect::Do(SchedulerErrand::Plan(Box::new(Planning { view, now, repairs, keeps }))));
    }

    /// Sends the results.
    fn end_pass(&mut self, now: Timestamp, made: Made, reservations: u64, out: &mut Out<Self>) {
        let Some(Course::Planning(making)) = self.course.take() else { return };
        let Making { now: planned, began, ranked, accruals, turns, names, queue } = *making;
        let Made { mut plan, mut considered, way, kept, at } = made;
        self.kept = kept;
        let (took, outdated) = (at.saturating_sub(began), reservations != self.seen.reservations);
        self.counted.pass(now, &Pass { plan: &plan, way, took, queue, outdated });
        self.note_waits(names, &mut plan, way, planned);
        // Changes of reservations since then are not in it.
        if !outdated {
            self.quota.spend((plan.in_order, plan.backfilled));
        } else {
            self.kept = None;
            (plan, considered) = (Plan { truncated: true, ..Plan::default() }, Vec::new());
        }
        let stale = self.kept.filter(|kept| kept.stale);
        self.stale_until = stale.map(|kept| now.plus(self.wait_anew(kept, at)));
        self.last_pass = took;
        tracing::debug!(
            starts = plan.starts.len(),
            waiting = considered.len(),
            micros = micros(self.last_pass),
            "sched.pass"
        );
        let started: BTreeSet<JobId> = plan.starts.iter().map(|start| start.job).collect();
        self.send(now, plan, considered, turns, out);
        let mut accruals = accruals.into_iter().filter(|decision| !started.contains(&decision.job));
        for Decision { job, accrual, reset, tasks } in accruals.by_ref().take(MOST_ACCRUING) {
            tell(job, JobInput::Accrues { accrual, reset, tasks }, out);
        }
        self.truncated |= accruals.next().is_some();
        // A job that starts keeps the priority that it shows.
        let mut told = ranked.into_iter().filter(|(job, _)| !started.contains(job));
        for (job, priority) in told.by_ref().take(MOST_RANKED) {
            tell(job, JobInput::Priority(priority), out);
        }
        self.truncated |= told.next().is_some();
        if self.outstanding == 0 {
            self.after_pass(now, out);
        } else {
            set(SchedulerTimer::Patience, now.plus(PATIENCE), out);
        }
    }

    /// Has jobs ended that have reached a limit of minutes. Those that were told already take no notice.
    fn end_over_limits(&self, snapshot: &Snapshot, now: Timestamp, out: &mut Out<Self>) {
        let Minutes { over, next } = minutes(&snapshot.view, &snapshot.jobs, now);
        for (job, sluid, reason) in over {
            tracing::info!(job_id = job.0, reason = %reason.text(), "sched.minutes_used_up");
            tell(job, JobInput::OverLimit { sluid, reason }, out);
        }
        if let Some(at) = next {
            set(SchedulerTimer::Minutes, at.max(now.plus(self.policy.least_pause)), out);
        }
    }

    /// Decides which jobs gain priority by age, where priorities have that term and there are limits on it.
    fn accrue(&mut self, snapshot: &mut Snapshot, now: Timestamp) -> Vec<Decision> {
        if !snapshot.config.multifactor() || snapshot.config.priority.flags.accrue_always {
            self.accruals = Accruals::default();
            return Vec::new();
        }
        self.accruals.decide(&mut snapshot.view, now)
    }

    /// Calculates the priorities of waiting jobs and sets them in the snapshot. Returns those that differ from what the jobs
    /// show.
    fn rank(&mut self, snapshot: Snapshot, now: Timestamp, out: &mut Out<Self>) -> (ClusterView, Vec<(JobId, u32)>) {
        let Snapshot { mut view, jobs, partitions, config, fair, .. } = snapshot;
        if !config.multifactor() {
            if self.ranking.take().is_some() {
                out.push(Effect::Publish(None));
            }
            return (view, Vec::new());
        }
        let fresh = self.ranking.as_ref().is_some_and(|known| {
            !known.rules.is_due(now)
                && Arc::ptr_eq(&known.config, &config)
                && Arc::ptr_eq(&known.rules.qos, &view.qos)
                && Arc::ptr_eq(&known.rules.fair, &fair)
                && known.rules.licenses == view.licenses.totals
                && known.partitions == self.seen.partitions
                && known.nodes == view.nodes.len()
        });
        if !fresh {
            let rules = priority::Rules::new(&config.priority, &partitions, &view.nodes, now);
            let rules = rules.with_qos(Arc::clone(&view.qos)).with_fair(fair);
            let rules = Arc::new(rules.with_licenses(view.licenses.totals.clone()));
            out.push(Effect::Publish(Some(Arc::clone(&rules))));
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

    /// Bounds of starts apply to an interval, however many plans are made in it.
    fn within_quota(&mut self, mut view: ClusterView, now: Timestamp) -> ClusterView {
        if let (Some(bounds), Some(interval)) = (&view.policy.bounds, self.policy.interval) {
            view.policy.bounds = Some(self.quota.left(bounds, now, interval));
        }
        view
    }

    fn note_waits(&mut self, names: Names, made: &mut Plan, way: Way, planned: Timestamp) {
        self.names = names;
        match way {
            Way::Idle => self.waits.clear(),
            Way::Repaired => {}
            Way::Anew { began, took } => {
                self.waits.clear();
                self.anew = Some((began, took));
            }
        }
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
            self.waits.insert(room.job, Waits { room, obstacle, planned });
        }
    }

    /// How long until a new plan is due: sooner if a repair left something out, but never so often that most of the time is spent
    /// on it.
    fn wait_anew(&self, kept: Outline, clock: Duration) -> Duration {
        let Some((at, took)) = self.anew else { return Duration::ZERO };
        let wait = if kept.stale { took * 2 } else { self.interval().max(took * 2) };
        wait.saturating_sub(clock.saturating_sub(at))
    }

    fn send(&mut self, now: Timestamp, made: Plan, considered: Vec<Considered>, turns: Turns, out: &mut Out<Self>) {
        self.pass += 1;
        self.truncated = made.truncated;
        self.again = made.again.into_iter().chain(turns.again).min();
        let proposals = made.starts.len() + made.preemptions.len() + made.resumptions.len();
        self.outstanding = proposals + turns.proposals.len();
        for mut one in turns.proposals {
            one.pass = self.pass;
            tell(one.job, JobInput::Turn(one), out);
        }
        for mut one in made.resumptions {
            one.pass = self.pass;
            tell(one.job, JobInput::GoOn(Box::new(one)), out);
        }
        for mut preemption in made.preemptions {
            preemption.pass = self.pass;
            tell(preemption.job, JobInput::Preempt(Box::new(preemption)), out);
        }
        self.proposed.clear();
        for mut start in made.starts {
            start.pass = self.pass;
            start.answer_by = now.plus(GIVEN_UP);
            start.others.iter_mut().for_each(|other| other.answer_by = start.answer_by);
            if self.policy.enforce.has(EnforceWord::Limits) {
                self.proposed.push(start.clone());
            }
            tell(start.job, JobInput::Start(Box::new(start)), out);
        }
        for Considered { job, reason, expected } in considered {
            tell(job, JobInput::Considered { reason, expected }, out);
        }
    }

    /// How often plans are made anew if nothing requires one sooner.
    fn interval(&self) -> Duration {
        self.policy.interval.unwrap_or(LONGEST_TIMER)
    }

    fn soonest(&self, after: Duration) -> Duration {
        after.min(self.interval()).max(self.policy.least_pause)
    }

    fn after_pass(&mut self, now: Timestamp, out: &mut Out<Self>) {
        out.push(Effect::ClearTimer(SchedulerTimer::Patience));
        if let Some(kept) = self.kept {
            let start = kept.next_start.map_or(LONGEST_TIMER, |at| at.since(now));
            let anew = self.stale_until.map_or_else(|| self.interval(), |at| at.since(now));
            set(SchedulerTimer::Kept, now.plus(self.soonest(start.min(anew))), out);
        }
        if let Some(at) = self.again {
            set(SchedulerTimer::Again, now.plus(self.soonest(at.since(now))), out);
        }
        let due = std::mem::take(&mut self.due);
        if self.truncated || due {
            self.soon(now, out);
        } else {
            self.watch(out);
        }
    }
}
