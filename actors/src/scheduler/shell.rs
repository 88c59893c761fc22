//! The scheduler's actor: wakes when boards change, plans, and sends the parts of the plan to the jobs' owners. The next
//! pass waits until every proposal of the last one was answered, so that boards show what was taken.

use super::{
    bounds::{self, Bounds, Quota},
    caps::CpuCaps,
    facts::{AllocationUnit, Backfill, ClusterView, PartitionFacts, PartitionSharing, Policy, node_places},
    kept::{Kept, plan_to_keep},
    licenses::LicenseFacts,
    obstacle::{Obstacle, Waits},
    plan::{Plan, plan, plan_until},
    preempt::{PreemptRules, Yielding},
    priority,
    reservations::Reservations,
    resume,
    turns::{self, Turns},
};
use crate::{
    controller::{env::Env, ports::ReplySink},
    job::messages::JobInput,
    topology::Topologies,
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    config::{Config, McsSelect, OverSubscribe, PreemptWords, SelectUnit},
    ids::JobId,
    messages::command::CommandReply,
    spec::CpuOrder,
    spec_text::licenses::Licenses,
    state::Reason,
    time::{Timestamp, system_zone},
    view::{JobView, NodeView, PartitionView},
};
use garrick_runtime::{Actor, Context, Message};
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// Longest pause, after long passes, unless the site says that it is at least longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A timer for what is further ahead is set again.
const LONGEST_TIMER: Duration = Duration::from_secs(3600);
/// Default of `sched_interval`, as in Slurm's slurm.conf(5).
const SCHED_INTERVAL: Duration = Duration::from_secs(60);
/// Where a new plan takes as long as this, plans are repaired between new ones.
const REPAIR_FROM: Duration = Duration::from_millis(20);
/// Proposals unanswered for this long are counted as refused.
const PATIENCE: Duration = Duration::from_secs(5);
/// Expected starts are told again when they moved by at least this much.
const EXPECTED_STEP: Duration = Duration::from_secs(60);
/// Most jobs that are told a new priority after a pass; the next pass goes on. The plan itself knows all of them.
const MOST_RANKED: usize = 10_000;

/// Default of `bf_resolution`, as in Slurm's slurm.conf(5).
const BF_RESOLUTION: Duration = Duration::from_secs(60);

/// How long a job waits at most while shorter ones are tried before it, unless `bf_patience` (minutes) says otherwise.
const BF_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Messages of the scheduler.
pub enum SchedulerMsg {
    /// A board changed.
    Changed,
    /// It is time for a pass.
    Pass,
    /// A job's owner answered a proposal. Answers to passes before the last do not count.
    Outcome {
        /// Pass.
        pass: u64,
        /// It starts.
        accepted: bool,
    },
    /// Too long without all answers.
    Impatient,
    /// From the front: new rules.
    Policy(Box<Policy>),
    /// From the front: somebody asks what keeps a job waiting. The answer comes between passes.
    Explain {
        /// Job.
        job: JobId,
        /// Who asks.
        replies: Box<dyn ReplySink>,
    },
}

impl Message for SchedulerMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Changed => "Changed",
            Self::Pass => "Pass",
            Self::Outcome { .. } => "Outcome",
            Self::Impatient => "Impatient",
            Self::Policy(_) => "Policy",
            Self::Explain { .. } => "Explain",
        }
    }
}

/// Rules of priority with what they were made of.
struct Ranking {
    rules: Arc<priority::Rules>,
    config: Arc<Config>,
    partitions: u64,
    nodes: usize,
}

/// Nodes and names of partitions, by their places in a picture.
type Names = (Vec<Arc<NodeView>>, Vec<String>);

/// The scheduler, at `/scheduler`.
pub struct SchedulerActor {
    env: Arc<Env>,
    policy: Policy,
    pass: u64,
    outstanding: usize,
    /// Generations of the boards before they were last read.
    seen: (u64, u64, u64, u64),
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
    /// When the last plan was made anew, and how long that took.
    anew: Option<(Instant, Duration)>,
    /// What was started of what may be started in an interval.
    quota: Quota,
}

impl SchedulerActor {
    /// A scheduler.
    pub fn new(env: Arc<Env>, policy: Policy) -> Self {
        Self {
            env,
            policy,
            pass: 0,
            outstanding: 0,
            seen: (0, 0, 0, 0),
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

    fn watch(&mut self, cx: &mut Context<Self>) {
        if self.watching {
            return;
        }
        self.watching = true;
        let boards = self.env.boards.clone();
        let (jobs, nodes, partitions, reservations) = self.seen;
        let changed = async move {
            tokio::select! {
                _ = boards.jobs.changed(jobs) => {}
                _ = boards.nodes.changed(nodes) => {}
                _ = boards.partitions.changed(partitions) => {}
                _ = boards.reservations.changed(reservations) => {}
            }
        };
        cx.pipe(changed, |()| SchedulerMsg::Changed);
    }

    fn soon(&self, cx: &mut Context<Self>) {
        let pause = (self.last_pass / 2).min(LONGEST_PAUSE).max(self.policy.least_pause);
        cx.set_timer("pass", pause, SchedulerMsg::Pass);
    }

    fn make_pass(&mut self, cx: &mut Context<Self>) {
        if self.outstanding > 0 {
            return;
        }
        if let Some(interval) = self.policy.interval {
            cx.set_timer("interval", interval, SchedulerMsg::Pass);
        }
        let began = Instant::now();
        let boards = &self.env.boards;
        self.seen = (
            boards.jobs.generation(),
            boards.nodes.generation(),
            boards.partitions.generation(),
            boards.reservations.generation(),
        );
        let mut view = cluster_view(self.policy.clone(), &self.env);
        let now = Timestamp::now();
        let ranked = self.rank(&mut view, now);
        let turns = turns::turns(&view, now);
        let made = self.plan(view, now);
        // What was reserved meanwhile is not in it.
        let stale = self.env.boards.reservations.generation() != self.seen.3;
        let made = if stale {
            self.kept = None;
            Plan { truncated: true, ..Plan::default() }
        } else {
            self.quota.spend((made.in_order, made.backfilled));
            made
        };
        self.last_pass = began.elapsed();
        tracing::debug!(
            starts = made.starts.len(),
            waiting = made.reasons.len(),
            micros = u64::try_from(self.last_pass.as_micros()).unwrap_or(u64::MAX),
            "sched.pass"
        );
        let started: BTreeSet<JobId> = made.starts.iter().map(|start| start.job).collect();
        self.send(cx, made, turns);
        // A job that starts keeps the priority that it shows.
        let mut told = ranked.into_iter().filter(|(job, _)| !started.contains(job));
        for (job, priority) in told.by_ref().take(MOST_RANKED) {
            self.env.tell_job(cx, job, JobInput::Priority(priority));
        }
        self.truncated |= told.next().is_some();
        if self.outstanding == 0 {
            self.after_pass(cx);
        } else {
            cx.set_timer("patience", PATIENCE, SchedulerMsg::Impatient);
        }
    }

    /// Calculates the priorities of jobs that wait and puts them into the picture. Answers those that differ from what the
    /// jobs show.
    fn rank(&mut self, view: &mut ClusterView, now: Timestamp) -> Vec<(JobId, u32)> {
        let config = self.env.config();
        if !config.multifactor() {
            if self.ranking.take().is_some() {
                self.env.set_priority_rules(None);
            }
            return Vec::new();
        }
        let fresh = self.ranking.as_ref().is_some_and(|known| {
            !known.rules.is_due(now)
                && Arc::ptr_eq(&known.config, &config)
                && Arc::ptr_eq(&known.rules.qos, &view.qos)
                && known.partitions == self.seen.2
                && known.nodes == view.nodes.len()
        });
        if !fresh {
            let partitions = self.env.boards.partitions.list();
            let rules = priority::Rules::new(&config.priority, &partitions, &view.nodes, now);
            let rules = Arc::new(rules.with_qos(Arc::clone(&view.qos)));
            self.env.set_priority_rules(Some(Arc::clone(&rules)));
            self.ranking = Some(Ranking { rules, config, partitions: self.seen.2, nodes: view.nodes.len() });
        }
        let Some(Ranking { rules, .. }) = &self.ranking else { return Vec::new() };
        let mut ranked = Vec::new();
        for job in &mut view.pending {
            if let Some(priority) = priority::news(rules, job, rules.standing(job)) {
                ranked.push((job.id, priority));
                *job = Arc::new(JobView { priority, ..(**job).clone() });
            }
        }
        if rules.settings.flags.calculate_running {
            let running = self.env.boards.jobs.list().into_iter().filter(|job| !job.state.waits());
            ranked.extend(running.filter_map(|job| {
                priority::news(rules, &job, rules.standing(&job)).map(|priority| (job.id, priority))
            }));
        }
        ranked
    }

    /// Makes a plan, or repairs the last one where a new one takes long and is not due.
    fn plan(&mut self, view: ClusterView, now: Timestamp) -> Plan {
        // Heartbeats change boards too: without anyone waiting there is nothing to plan.
        if view.pending.iter().all(|job| !job.eligible) {
            self.kept = None;
            self.waits.clear();
            let resumptions = resume::resumptions(&view, now, &Plan::default(), std::iter::empty());
            return Plan { resumptions, ..Plan::default() };
        }
        let names = (view.nodes.clone(), view.partitions.iter().map(|p| p.name.clone()).collect());
        let kept = self.kept.take().filter(|kept| !self.wait_anew(kept).is_zero());
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
        let began = Instant::now();
        let long = self.anew.is_some_and(|(_, took)| took >= REPAIR_FROM);
        let mut made = match &view.policy.bounds {
            Some(bounds) => {
                let most = bounds.plan_time;
                let late = || most.is_some_and(|most| began.elapsed() >= most);
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
        self.anew = Some((began, began.elapsed()));
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
    fn wait_anew(&self, kept: &Kept) -> Duration {
        let Some((at, took)) = self.anew else { return Duration::ZERO };
        let wait = if kept.is_stale() { took * 2 } else { self.interval().max(took * 2) };
        wait.saturating_sub(at.elapsed())
    }

    fn send(&mut self, cx: &mut Context<Self>, made: Plan, turns: Turns) {
        self.pass += 1;
        self.truncated = made.truncated;
        self.again = made.again.into_iter().chain(turns.again).min();
        let proposals = made.starts.len() + made.preemptions.len() + made.resumptions.len();
        self.outstanding = proposals + turns.proposals.len();
        for mut one in turns.proposals {
            one.pass = self.pass;
            self.env.tell_job(cx, one.job, JobInput::Turn(one));
        }
        for mut one in made.resumptions {
            one.pass = self.pass;
            self.env.tell_job(cx, one.job, JobInput::GoOn(Box::new(one)));
        }
        for mut preemption in made.preemptions {
            preemption.pass = self.pass;
            self.env.tell_job(cx, preemption.job, JobInput::Preempt(Box::new(preemption)));
        }
        for mut start in made.starts {
            start.pass = self.pass;
            self.env.tell_job(cx, start.job, JobInput::Start(Box::new(start)));
        }
        let mut expected: BTreeMap<JobId, Timestamp> = BTreeMap::new();
        for (job, at) in made.expected {
            expected.entry(job).and_modify(|known| *known = at.min(*known)).or_insert(at);
        }
        for (job, reason) in made.reasons {
            let expected = expected.get(&job).copied();
            if self.env.boards.jobs.get(&job).is_none_or(|view| is_news(&view, &reason, expected)) {
                self.env.tell_job(cx, job, JobInput::Considered { reason, expected });
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

    fn after_pass(&mut self, cx: &mut Context<Self>) {
        cx.clear_timer("patience");
        if let Some(kept) = &self.kept {
            let now = Timestamp::now();
            let start = kept.next_start().map_or(LONGEST_TIMER, |at| at.since(now));
            let anew = if kept.is_stale() { self.wait_anew(kept) } else { self.interval() };
            cx.set_timer("kept", self.soonest(start.min(anew)), SchedulerMsg::Pass);
        }
        if let Some(at) = self.again {
            cx.set_timer("again", self.soonest(at.since(Timestamp::now())), SchedulerMsg::Pass);
        }
        if self.truncated {
            self.soon(cx);
        } else {
            self.watch(cx);
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

impl Actor for SchedulerActor {
    type Msg = SchedulerMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        self.soon(cx);
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: SchedulerMsg) {
        match message {
            SchedulerMsg::Changed => {
                self.watching = false;
                self.soon(cx);
            }
            SchedulerMsg::Pass => self.make_pass(cx),
            SchedulerMsg::Outcome { pass, accepted } => {
                if pass == self.pass && self.outstanding > 0 {
                    tracing::trace!(pass, accepted, "sched.outcome");
                    self.outstanding -= 1;
                    if self.outstanding == 0 {
                        self.after_pass(cx);
                    }
                }
            }
            SchedulerMsg::Impatient => {
                if self.outstanding > 0 {
                    tracing::warn!(pass = self.pass, unanswered = self.outstanding, "sched.proposals_unanswered");
                    self.outstanding = 0;
                    self.after_pass(cx);
                }
            }
            SchedulerMsg::Explain { job, mut replies } => {
                let (nodes, partitions) = &self.names;
                let outlook = self.waits.get(&job).map(|waits| Box::new(waits.outlook(nodes, partitions)));
                replies.send(CommandReply::Outlook(outlook));
            }
            SchedulerMsg::Policy(policy) => {
                self.policy = *policy;
                self.soon(cx);
            }
        }
    }
}

/// The boards as a plan's picture.
pub fn cluster_view(policy: Policy, env: &Env) -> ClusterView {
    let nodes = env.boards.nodes.list();
    let places = node_places(&nodes);
    let partitions = env.boards.partitions.list().iter().map(|p| partition_facts(p, places)).collect();
    let jobs = env.boards.jobs.list();
    let mut view = ClusterView::new(policy, &jobs, &nodes, partitions);
    bounds::soften(&mut view, &jobs, Timestamp::now());
    view.licenses = license_facts(env);
    view.qos = env.qos();
    let shown = env.boards.reservations.list();
    if !shown.is_empty() {
        let (administrators, zone) = (env.ports.host.administrators(), system_zone());
        let mut reservations = Reservations::new(&shown, &view.nodes, administrators, Timestamp::now(), &zone);
        let concerned = view.pending.iter().filter(|job| job.eligible && reservations.ask_for_groups(job));
        let users: BTreeSet<u32> = concerned.map(|job| job.uid).collect();
        let groups = |uid| env.ports.users.user(uid).map(|user| user.groups).unwrap_or_default();
        let names = |uid| groups(uid).into_iter().map(|(_, name)| name).collect();
        reservations.groups = users.into_iter().map(|uid| (uid, names(uid))).collect();
        reservations.guests = view.policy.preempt.is_on();
        view.reservations = reservations;
    }
    view
}

/// Who has licenses is the office's to say; how long, the jobs'.
fn license_facts(env: &Env) -> LicenseFacts {
    let (totals, held, hres) = {
        let account = env.licenses.lock();
        let held: Vec<(JobId, Licenses)> = account.holds().map(|(job, licenses)| (job, licenses.clone())).collect();
        (account.totals().clone(), held, Arc::clone(account.hres()))
    };
    let end = |job| env.boards.jobs.get(&job).and_then(|view| view.end_time);
    let reserved = env.boards.reservations.list().iter().any(|r| !r.licenses.is_empty());
    let inside = |job: JobId| Some((job, env.boards.jobs.get(&job)?.allocation.as_ref()?.reservation.clone()?));
    let inside = held.iter().filter(|_| reserved).filter_map(|(job, _)| inside(*job)).collect();
    let held = held.into_iter().map(|(job, licenses)| (job, licenses, end(job))).collect();
    LicenseFacts { totals, inside, held, hres }
}

/// A partition as scheduling sees it, among that many nodes.
pub fn partition_facts(view: &PartitionView, nodes: usize) -> PartitionFacts {
    let config = &view.config;
    let words = config.preempt_mode.as_deref().map(PreemptWords::of).unwrap_or_default();
    let mut members = FixedBitSet::with_capacity(nodes);
    for index in view.nodes.iter().map(|n| n.0 as usize).filter(|i| *i < nodes) {
        members.insert(index);
    }
    PartitionFacts {
        name: config.name.clone(),
        state: view.state,
        tier: u32::from(config.priority_tier),
        nodes: members,
        default_time: config.default_time,
        max_time: config.max_time,
        min_nodes: config.min_nodes,
        max_nodes: config.max_nodes,
        caps: CpuCaps { per_node: config.max_cpus_per_node, per_socket: config.max_cpus_per_socket },
        def_memory: config.def_memory,
        max_memory: config.max_memory,
        sharing: match config.over_subscribe {
            OverSubscribe::No => PartitionSharing::No,
            OverSubscribe::Exclusive => PartitionSharing::Exclusive,
            OverSubscribe::Yes(most) => PartitionSharing::Yes(u32::from(most)),
            OverSubscribe::Force(most) => PartitionSharing::Force(u32::from(most)),
        },
        exclusive_user: config.exclusive_user,
        least_loaded: config.least_loaded,
        topology: config.topology.clone(),
        exclusive_topo: config.exclusive_topo,
        yielding: Yielding {
            mode: words.mode,
            within: words.within,
            by_priority: words.by_priority,
            grace: Duration::from_secs(u64::from(config.grace_secs)),
        },
        takes: config.is_choosy().then(|| Arc::clone(config)),
    }
}

/// The site's rules, from its configuration.
pub fn policy(config: &Config) -> Policy {
    let number = |name: &str| config.scheduler_parameters.value(name).and_then(|text| text.parse::<usize>().ok());
    let seconds = |name: &str, unit: u64| Some(Duration::from_secs(number(name)? as u64 * unit));
    let default = Policy::default();
    let is_off = |name: &str| config.scheduler_parameters.value(name) == Some("-1");
    let backfill_off = is_off("bf_interval");
    let interval = |name: &str, unless: Duration| (!is_off(name)).then(|| seconds(name, 1).unwrap_or(unless));
    Policy {
        unit: match config.select.unit {
            SelectUnit::Cpu => AllocationUnit::Cpu,
            SelectUnit::Core => AllocationUnit::Core,
            SelectUnit::Socket => AllocationUnit::Socket,
            SelectUnit::Node => AllocationUnit::Node,
        },
        memory: config.select.memory,
        def_memory: config.def_memory,
        max_memory: config.max_memory,
        one_task_per_core: config.select.one_task_per_core,
        over_sockets: if config.select.block_cores { CpuOrder::Block } else { CpuOrder::Cyclic },
        pack_nodes: config.select.pack_nodes,
        least_loaded: config.select.least_loaded,
        backfill: match config.scheduler_parameters.value("bf_algorithm") {
            _ if !config.backfill() || backfill_off => Backfill::Off,
            Some("easy") => {
                Backfill::First(number("bf_reservations").map_or(1, |n| u32::try_from(n).unwrap_or(u32::MAX)))
            }
            _ => match number("bf_job_part_count_reserve").and_then(|n| u32::try_from(n).ok()) {
                Some(most) if most > 0 => Backfill::First(most),
                _ => Backfill::Conservative,
            },
        },
        shortest_first: (config.scheduler_parameters.value("bf_order") == Some("shortest"))
            .then(|| seconds("bf_patience", 60).unwrap_or(BF_PATIENCE)),
        resolution: seconds("bf_resolution", 1).filter(|d| !d.is_zero()).unwrap_or(BF_RESOLUTION),
        backfill_window: seconds("bf_window", 60).unwrap_or(default.backfill_window),
        backfill_depth: number("bf_max_job_test").unwrap_or(default.backfill_depth),
        max_starts: default.max_starts,
        topologies: Arc::new(Topologies::new(config)),
        switch_wait: seconds("max_switch_wait", 1).unwrap_or(default.switch_wait),
        topology_patience: seconds("topology_patience", 1),
        preempt: PreemptRules {
            kind: config.preempt.kind,
            mode: config.preempt.mode.mode.unwrap_or_default(),
            within: config.preempt.mode.within,
            by_priority: config.preempt.mode.by_priority,
            exempt_from: config.preempt.exempt_from(),
            exempt: Duration::from_secs(config.preempt.exempt_secs),
            youngest_first: config.preempt.youngest_first(),
            suspend_grace: Duration::from_secs(config.preempt.suspend_grace_secs()),
            reclaim_licenses: config.preempt.reclaims_licenses(),
            reorders: config.preempt.reorders(),
            strict_order: config.preempt.is_strict_order(),
            by_label: config.mcs.select == McsSelect::Always,
            time_slice: (config.preempt.is_gang())
                .then(|| Duration::from_secs(u64::from(config.preempt.time_slice_secs()))),
        },
        serial_at_end: config.scheduler_parameters.has("pack_serial_at_end"),
        extra_constraints: config.scheduler_parameters.has("extra_constraints"),
        bounds: Bounds::of(config),
        interval: if config.backfill() && !backfill_off {
            interval("bf_interval", default.interval.unwrap_or(SCHED_INTERVAL))
        } else {
            interval("sched_interval", SCHED_INTERVAL)
        },
        least_pause: number("sched_min_interval")
            .map_or(default.least_pause, |micros| Duration::from_micros(micros as u64).max(default.least_pause)),
    }
}
