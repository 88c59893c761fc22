//! When plans are made, whose answers are awaited, and what is told: the scheduler's core.

#![allow(clippy::unwrap_used)]

use crate::{
    job::fixtures::CountingIds,
    messages::{job::JobInput, letter::Letter},
    owner::{Effect, Owner},
    scheduler::{
        core::SchedulerCore,
        messages::{SchedulerEffect, SchedulerErrand, SchedulerInput, SchedulerTimer, Seen, Snapshot},
    },
};
use garrick_model::{
    config::{self, Config, EnforceWord},
    entities::{
        association::AssocId,
        limits::{Amounts, Count, TresLimit},
        used::{Flow, Used},
    },
    ids::{JobId, NodeIndex},
    messages::command::CommandReply,
    node_shape::NodeShare,
    resources::CpuSet,
    state::{JobState, Reason},
    testing::{entities, hold, job, node, spec},
    time::Timestamp,
    view::{Accrual, AllocatedNode, Allocation, JobView, NodeView},
};
use garrick_plan::{
    fixtures::cluster,
    plan::kept::{Kept, planning::Planning},
    snapshot::{
        accounting::{Accounting, AccountingTable, PastUsage},
        bounds::Bounds,
        facts::{ClusterView, Policy},
    },
};
use std::{cell::Cell, path::Path, sync::Arc, time::Duration};

const NOW: Timestamp = Timestamp::from_secs(100_000);

/// Boards that stand still but for what a test changes, and a clock that goes on with each look.
struct Stage {
    core: SchedulerCore,
    clock: Cell<Duration>,
    step: Duration,
    reservations: u64,
    shown: Vec<Arc<JobView>>,
    running: Vec<Arc<JobView>>,
    config: Arc<Config>,
    now: Timestamp,
    kept: Option<Kept>,
}

impl Stage {
    fn new(policy: Policy) -> Self {
        let config =
            Arc::new(read("ClusterName=c\nSlurmctldHost=h\nNodeName=n0 CPUs=4\nPartitionName=debug Nodes=n0\n"));
        Self {
            core: SchedulerCore::new(policy),
            clock: Cell::new(Duration::ZERO),
            step: Duration::from_micros(1),
            reservations: 0,
            shown: Vec::new(),
            running: Vec::new(),
            config,
            now: NOW,
            kept: None,
        }
    }

    fn tell(&mut self, input: SchedulerInput) -> Vec<SchedulerEffect> {
        let mut out = Vec::new();
        self.core.handle(self.now, &mut CountingIds { job: 1, sluid: 1 }, input, &mut out);
        out
    }

    /// The timer of a pass goes off, and these are the boards.
    fn pass(&mut self, view: ClusterView) -> Vec<SchedulerEffect> {
        let asked = self.tell(SchedulerInput::Timer(SchedulerTimer::Pass));
        assert!(matches!(asked[..], [Effect::Do(SchedulerErrand::Look)]));
        self.show(view, 0)
    }

    /// All that is said, with the plan made at once.
    fn show(&mut self, view: ClusterView, reservations: u64) -> Vec<SchedulerEffect> {
        let (mut said, planning) = self.begin(view, reservations);
        said.extend(self.end(planning));
        said
    }

    /// What is said before a plan is made, and from what it is to be made.
    fn begin(&mut self, view: ClusterView, reservations: u64) -> (Vec<SchedulerEffect>, Planning) {
        let snapshot = Snapshot {
            seen: Seen { reservations, ..Seen::default() },
            began: self.clock.get(),
            jobs: view.pending.iter().chain(&self.running).cloned().collect(),
            view,
            partitions: Vec::new(),
            config: Arc::clone(&self.config),
            fair: Arc::default(),
        };
        let mut said = self.tell(SchedulerInput::Snapshot(Box::new(snapshot)));
        let Some(Effect::Do(SchedulerErrand::Plan(planning))) = said.pop() else { panic!("no plan: {said:?}") };
        (said, *planning)
    }

    fn end(&mut self, planning: Planning) -> Vec<SchedulerEffect> {
        let clock = || {
            self.clock.set(self.clock.get() + self.step);
            self.clock.get()
        };
        let made = planning.make(&mut self.kept, &clock, &|job| self.shown.iter().find(|view| view.id == job).cloned());
        self.tell(SchedulerInput::Planned { made: Box::new(made), reservations: self.reservations })
    }

    fn later(&mut self, after: Duration) {
        self.now = self.now.plus(after);
        self.clock.set(self.clock.get() + after);
    }
}

fn read(text: &str) -> Config {
    config::read_text(Path::new("slurm.conf"), text).0.unwrap()
}

fn started(effects: &[SchedulerEffect]) -> Vec<(u32, u64)> {
    let start = |effect: &SchedulerEffect| match effect {
        Effect::Tell(Letter::Job(job, JobInput::Start(start))) => Some((job.0, start.pass)),
        _ => None,
    };
    effects.iter().filter_map(start).collect()
}

fn sets(effects: &[SchedulerEffect], timer: SchedulerTimer) -> Option<Timestamp> {
    effects.iter().find_map(|effect| match effect {
        Effect::SetTimer { timer: set, at } if *set == timer => Some(*at),
        _ => None,
    })
}

fn watches(effects: &[SchedulerEffect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Do(SchedulerErrand::Watch(_))))
}

fn two_jobs() -> ClusterView {
    cluster(vec![node(0, 4)], vec![job(1, spec()), job(2, spec())])
}

#[test]
fn the_next_pass_waits_for_all_answers_to_the_last() {
    let mut stage = Stage::new(Policy::default());
    assert!(sets(&stage.tell(SchedulerInput::Started), SchedulerTimer::Pass).is_some());
    let made = stage.pass(two_jobs());
    assert_eq!(started(&made), [(1, 1), (2, 1)]);
    assert!(sets(&made, SchedulerTimer::Patience).is_some() && !watches(&made));
    // Whatever happens: nobody looks.
    assert!(stage.tell(SchedulerInput::Timer(SchedulerTimer::Interval)).is_empty());
    assert!(stage.tell(SchedulerInput::Outcome { pass: 0, accepted: true }).is_empty(), "an earlier pass");
    assert!(stage.tell(SchedulerInput::Outcome { pass: 1, accepted: false }).is_empty());
    let answered = stage.tell(SchedulerInput::Outcome { pass: 1, accepted: true });
    assert!(matches!(answered[0], Effect::ClearTimer(SchedulerTimer::Patience)) && watches(&answered));
    assert!(stage.tell(SchedulerInput::Outcome { pass: 1, accepted: true }).is_empty(), "one too many");
    // A change is looked at soon.
    assert!(sets(&stage.tell(SchedulerInput::Changed), SchedulerTimer::Pass).is_some());
    assert_eq!(started(&stage.pass(two_jobs())), [(1, 2), (2, 2)]);
}

/// Something may come while a plan is made, however long that takes.
#[test]
fn a_look_that_is_due_while_a_plan_is_made_comes_after_it() {
    let mut stage = Stage::new(Policy::default());
    stage.tell(SchedulerInput::Timer(SchedulerTimer::Pass));
    let busy = NodeView { holds: vec![hold(90, 0..8, 0, None)], ..node(0, 4) };
    let (said, planning) = stage.begin(cluster(vec![busy], vec![job(1, spec())]), 0);
    assert!(sets(&said, SchedulerTimer::Interval).is_some(), "before the plan is made");
    stage.later(Duration::from_secs(40));
    assert!(stage.tell(SchedulerInput::Timer(SchedulerTimer::Interval)).is_empty(), "one plan at a time");
    let policy = SchedulerInput::Policy(Box::default());
    assert!(sets(&stage.tell(policy), SchedulerTimer::Pass).is_some());
    let answered = stage.tell(SchedulerInput::Explain { request: 3, job: JobId(1), names_jobs: true });
    assert!(matches!(answered[..], [Effect::Answer { request: 3, answer: CommandReply::Outlook(None) }]));
    let made = stage.end(planning);
    assert_eq!(sets(&made, SchedulerTimer::Pass), Some(stage.now.plus(Duration::from_secs(1))), "it took long");
    assert_eq!(started(&stage.pass(two_jobs())), [(1, 2), (2, 2)]);
}

#[test]
fn who_does_not_answer_is_not_waited_for_for_ever() {
    let mut stage = Stage::new(Policy::default());
    stage.pass(two_jobs());
    let over = stage.tell(SchedulerInput::Timer(SchedulerTimer::Patience));
    assert!(watches(&over));
    assert!(stage.tell(SchedulerInput::Outcome { pass: 1, accepted: true }).is_empty(), "it comes too late");
    assert_eq!(started(&stage.pass(two_jobs())).len(), 2);
}

#[test]
fn a_start_that_is_not_waited_for_counts_against_limits_until_it_is_given_up() {
    let mut known = entities();
    known.associations.get_mut(&AssocId(3)).unwrap().limits.counts.insert(Count::GrpJobs, 1);
    let enforce = read(
        "ClusterName=c\nSlurmctldHost=h\nAccountingStorageEnforce=limits\nNodeName=n0 CPUs=4\nPartitionName=debug Nodes=n0\n",
    )
    .enforce;
    let two_of_an_account = || {
        let of_alice = |id| JobView { association: Some(AssocId(4)), ..job(id, spec()) };
        let mut view = cluster(vec![node(0, 4)], vec![of_alice(1), of_alice(2)]);
        let table = Arc::new(AccountingTable::new(&known, "test"));
        view.accounting = Accounting { enforce: enforce.clone(), table, ..Accounting::default() };
        view
    };
    let mut stage = Stage::new(Policy { enforce: enforce.clone(), ..Policy::default() });
    assert_eq!(started(&stage.pass(two_of_an_account())), [(1, 1)]);
    stage.tell(SchedulerInput::Timer(SchedulerTimer::Patience));
    stage.later(Duration::from_secs(5));
    assert_eq!(started(&stage.pass(two_of_an_account())), [], "it may still come about");
    stage.later(Duration::from_secs(6));
    assert_eq!(started(&stage.pass(two_of_an_account())).len(), 1);
}

#[test]
fn a_run_is_ended_when_its_minutes_are_used_up() {
    let mut known = entities();
    let ten = Amounts::from([("cpu".to_owned(), 10)]);
    known.associations.get_mut(&AssocId(3)).unwrap().limits.tres.insert(TresLimit::GrpTresMins, ten);
    let table = Arc::new(AccountingTable::new(&known, "test"));
    let view = |used_secs: f64| {
        let mut view = cluster(vec![node(0, 4)], vec![]);
        let cpu = |amount| Used { tres: [("cpu".to_owned(), amount)].into(), wall_secs: 0.0 };
        let flow = Flow { used: cpu(used_secs), rate: cpu(2.0), half_life_secs: 0 };
        let past = PastUsage { associations: [(AssocId(3), flow)].into(), ..PastUsage::default() };
        let enforce = [EnforceWord::Limits].into_iter().collect();
        view.accounting =
            Accounting { enforce, table: Arc::clone(&table), past: Arc::new(past), ..Accounting::default() };
        view
    };
    let mut stage = Stage::new(Policy::default());
    let share = NodeShare { cpus: CpuSet::from(0..2), memory: None, tasks: 1, gres: Vec::new() };
    let nodes = vec![AllocatedNode { name: "n0".to_owned(), index: NodeIndex(0), share }];
    let allocation = Allocation { nodes, partition: "debug".to_owned(), ..Allocation::default() };
    let run = JobView {
        state: JobState::Running,
        start_time: Some(NOW),
        association: Some(AssocId(4)),
        allocation: Some(Arc::new(allocation)),
        ..job(7, spec())
    };
    let sluid = run.sluid;
    stage.running = vec![Arc::new(run)];
    let told = |said: &[SchedulerEffect]| {
        let over = |effect: &SchedulerEffect| match effect {
            Effect::Tell(Letter::Job(job, JobInput::OverLimit { sluid, reason })) => {
                Some((*job, *sluid, reason.text().into_owned()))
            }
            _ => None,
        };
        said.iter().find_map(over)
    };
    let said = stage.pass(view(540.0));
    let at = sets(&said, SchedulerTimer::Minutes).unwrap();
    assert_eq!((told(&said), at.since(NOW).as_secs()), (None, 29));
    stage.later(Duration::from_secs(30));
    let said = stage.pass(view(600.0));
    assert_eq!(told(&said), Some((JobId(7), sluid, "AssocGrpCPUMinutesLimit".to_owned())));
    assert_eq!(sets(&said, SchedulerTimer::Minutes), None);
}

#[test]
fn a_plan_that_a_new_reservation_is_not_in_is_thrown_away() {
    let mut stage = Stage::new(Policy::default());
    stage.reservations = 1;
    let made = stage.pass(two_jobs());
    assert_eq!(started(&made), []);
    assert!(sets(&made, SchedulerTimer::Pass).is_some(), "it looks again");
    assert_eq!(started(&stage.show(two_jobs(), 1)).len(), 2);
}

#[test]
fn a_reason_is_told_until_it_is_shown() {
    let busy = || NodeView { holds: vec![hold(90, 0..8, 0, None)], ..node(0, 4) };
    let view = || cluster(vec![busy()], vec![job(1, spec())]);
    let told = |made: &[SchedulerEffect]| {
        let reason = |effect: &SchedulerEffect| match effect {
            Effect::Tell(Letter::Job(JobId(1), JobInput::Considered { reason, .. })) => Some(reason.clone()),
            _ => None,
        };
        made.iter().find_map(reason)
    };
    let mut stage = Stage::new(Policy::default());
    let first = told(&stage.pass(view())).unwrap();
    assert_eq!(first, Reason::Resources);
    stage.shown = vec![Arc::new(JobView { reason: first, ..job(1, spec()) })];
    assert_eq!(told(&stage.pass(view())), None);
}

#[test]
fn a_plan_that_takes_long_is_repaired_until_a_new_one_is_due() {
    let busy = || NodeView { holds: vec![hold(90, 0..8, 0, Some(103_600))], ..node(0, 4) };
    let view = |jobs: std::ops::RangeInclusive<u32>| cluster(vec![busy()], jobs.map(|id| job(id, spec())).collect());
    let interval = Duration::from_secs(30);
    for (step, repairs) in [(Duration::from_millis(30), true), (Duration::from_micros(30), false)] {
        let mut stage = Stage::new(Policy { interval: Some(interval), ..Policy::default() });
        stage.step = step;
        let planned = |stage: &Stage, id| stage.core.outlook(JobId(id)).map(|outlook| outlook.planned);
        stage.pass(view(1..=1));
        stage.later(Duration::from_secs(1));
        let kept = stage.pass(view(1..=1));
        assert_eq!(sets(&kept, SchedulerTimer::Kept).is_some(), repairs, "{step:?}");
        let first = stage.now;
        assert_eq!(planned(&stage, 1), Some(first));
        stage.later(Duration::from_secs(1));
        stage.pass(view(1..=2));
        assert_eq!(planned(&stage, 1), Some(if repairs { first } else { stage.now }), "{step:?}");
        assert_eq!(planned(&stage, 2), Some(stage.now));
        stage.later(interval);
        stage.pass(view(1..=2));
        assert_eq!(planned(&stage, 1), Some(stage.now), "a new one is due");
    }
}

#[test]
fn bounds_of_starts_hold_for_all_plans_of_an_interval() {
    let bounds = Arc::new(Bounds { in_order: Some(1), ..Bounds::default() });
    let interval = Duration::from_secs(60);
    let policy = Policy { interval: Some(interval), bounds: Some(bounds), ..Policy::default() };
    let mut stage = Stage::new(policy.clone());
    let view = || ClusterView { policy: policy.clone(), ..two_jobs() };
    assert_eq!(started(&stage.pass(view())), [(1, 1)]);
    stage.tell(SchedulerInput::Outcome { pass: 1, accepted: true });
    stage.later(Duration::from_secs(30));
    assert_eq!(started(&stage.pass(view())), []);
    stage.later(Duration::from_secs(30));
    assert_eq!(started(&stage.pass(view())).len(), 1);
}

#[test]
fn who_may_gain_priority_by_age_is_told_and_counts_for_the_order_at_once() {
    let mut stage = Stage::new(Policy::default());
    stage.config = Arc::new(read(
        "ClusterName=c\nSlurmctldHost=h\nNodeName=n0 CPUs=4\nPartitionName=debug Nodes=n0\nPriorityType=priority/multifactor\n\
         PriorityWeightAge=1000000\nPriorityMaxAge=0-1\n",
    ));
    let mut all = entities();
    all.associations.get_mut(&AssocId(4)).unwrap().limits.counts.insert(Count::MaxJobsAccrue, 1);
    let view = |now: Timestamp| {
        let busy = NodeView { holds: vec![hold(90, 0..8, 0, None)], ..node(0, 4) };
        // The first to come is the first to be eligible.
        let job = |id: u32| JobView {
            association: Some(AssocId(4)),
            eligible_time: Some(Timestamp(now.0 - 1_200_000 + i64::from(id) * 1000)),
            ..job(id, spec())
        };
        let mut view = cluster(vec![busy], (1..=2).map(job).collect());
        view.accounting = Accounting {
            enforce: [EnforceWord::Limits].into_iter().collect(),
            table: Arc::new(AccountingTable::new(&all, "test")),
            ..Accounting::default()
        };
        view
    };
    let told = |made: &[SchedulerEffect]| -> Vec<(u32, Accrual)> {
        let one = |effect: &SchedulerEffect| match effect {
            Effect::Tell(Letter::Job(job, JobInput::Accrues { accrual, tasks: None, .. })) => Some((job.0, *accrual)),
            _ => None,
        };
        made.iter().filter_map(one).collect()
    };
    let priorities = |made: &[SchedulerEffect]| -> Vec<(u32, u32)> {
        let one = |effect: &SchedulerEffect| match effect {
            Effect::Tell(Letter::Job(job, JobInput::Priority(priority))) => Some((job.0, *priority)),
            _ => None,
        };
        made.iter().filter_map(one).collect()
    };
    let made = stage.pass(view(stage.now));
    assert_eq!(told(&made), [], "a new scheduler waits at first");
    stage.later(Duration::from_secs(10));
    let now = stage.now;
    let made = stage.pass(view(now));
    assert_eq!(told(&made), [(1, Accrual::Since(Timestamp(now.0 - 1_199_000))), (2, Accrual::Waits)]);
    let given = priorities(&made);
    assert!(matches!(given[..], [(1, more), (2, 1)] if more > 300_000), "{given:?}");
}

#[test]
fn new_priorities_are_told_to_those_who_do_not_start() {
    let busy = NodeView { holds: vec![hold(90, 0..6, 0, None)], ..node(0, 4) };
    let mut stage = Stage::new(Policy::default());
    stage.config = Arc::new(read(
        "ClusterName=c\nSlurmctldHost=h\nNodeName=n0 CPUs=4\nPartitionName=debug Nodes=n0\nPriorityType=priority/multifactor\n\
         PriorityWeightAge=1000\nPriorityWeightJobSize=1000\n",
    ));
    let made = stage.pass(cluster(vec![busy], (1..=3).map(|id| job(id, spec())).collect()));
    assert!(made.iter().any(|effect| matches!(effect, Effect::Publish(Some(_)))));
    let told = |effect: &SchedulerEffect| match effect {
        Effect::Tell(Letter::Job(job, JobInput::Priority(_))) => Some(job.0),
        _ => None,
    };
    let (started, told): (Vec<u32>, Vec<u32>) =
        (started(&made).into_iter().map(|(job, _)| job).collect(), made.iter().filter_map(told).collect());
    assert_eq!((started.len(), told.len()), (1, 2));
    assert!(!told.contains(&started[0]));
    // Nobody calculates any more.
    stage.tell(SchedulerInput::Timer(SchedulerTimer::Patience));
    stage.config = Arc::new(read(
        "ClusterName=c\nSlurmctldHost=h\nNodeName=n0 CPUs=4\nPartitionName=debug Nodes=n0\nPriorityType=priority/basic\n",
    ));
    assert!(stage.pass(two_jobs()).iter().any(|effect| matches!(effect, Effect::Publish(None))));
}
