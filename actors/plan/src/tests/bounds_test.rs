//! What each of the further bounds does to a plan.
#![allow(clippy::unwrap_used)]

use super::plan_test::{NOW, wide};
use crate::{
    fixtures::{cluster, partition},
    plan::{Plan, plan, plan_until},
    policy::policy,
    rules::bounds::Quota,
    snapshot::{
        bounds::{Bounds, HetPriority, soften},
        facts::{Backfill, ClusterView},
        reservations::Reservations,
    },
};
use garrick_model::{
    config,
    ids::JobId,
    reservation::{AccessList, Reservation, ReservationFlag},
    spec::JobSpec,
    state::{JobState, Reason},
    testing::{array, hold, job, node, spec},
    time::{TimeLimit, Timestamp},
    view::{Allocation, JobView, NodeView},
};
use std::{cell::Cell, path::Path, sync::Arc, time::Duration};

fn with(mut view: ClusterView, bounds: Bounds) -> ClusterView {
    view.policy.bounds = Some(Arc::new(bounds));
    view
}

fn started(plan: &Plan) -> Vec<u32> {
    plan.starts.iter().map(|start| start.job.0).collect()
}

fn expected(plan: &Plan) -> Vec<u32> {
    plan.expected.iter().map(|(job, _)| job.0).collect()
}

fn reason(plan: &Plan, id: u32) -> Reason {
    plan.reasons.iter().find(|(job, _)| *job == JobId(id)).map_or(Reason::None, |(_, reason)| reason.clone())
}

/// Both nodes half taken for an hour: job 1 wants both whole, and those behind it are short.
fn crowd(behind: Vec<JobView>) -> ClusterView {
    let full = || vec![hold(90, 0..4, 0, Some(103_600))];
    let nodes = (0..2).map(|n| NodeView { holds: full(), ..node(n, 4) }).collect();
    let first = job(1, JobSpec { tasks: Some(16), ..wide(2) });
    cluster(nodes, std::iter::once(first).chain(behind).collect())
}

fn short() -> JobSpec {
    JobSpec { time_limit: Some(TimeLimit::Secs(60)), ..spec() }
}

fn of(id: u32, uid: u32, account: &str) -> JobView {
    JobView { uid, ..job(id, JobSpec { account: Some(account.to_owned()), ..short() }) }
}

#[test]
fn so_many_jobs_of_a_user_an_account_or_a_partition_are_tried_behind_others() {
    let behind = || vec![of(2, 1001, "a"), of(3, 1001, "a"), of(4, 1001, "b"), of(5, 1002, "a")];
    assert_eq!(started(&plan(&crowd(behind()), NOW)), [2, 3, 4, 5]);
    let bounded = |bounds: Bounds| plan(&with(crowd(behind()), bounds), NOW);
    let by_user = bounded(Bounds { of_user: Some(2), ..Bounds::default() });
    assert_eq!(started(&by_user), [2, 3, 5]);
    assert_eq!(reason(&by_user, 4), Reason::Priority);
    assert_eq!(started(&bounded(Bounds { of_association: Some(1), ..Bounds::default() })), [2, 4, 5]);
    assert_eq!(started(&bounded(Bounds { of_partition: Some(3), ..Bounds::default() })), [2, 3, 4]);
    let view = |bounds| {
        let mut view = with(crowd(behind()), bounds);
        view.partitions.push(partition("other", 0..2));
        for job in &mut view.pending {
            if job.id == JobId(4) {
                *job = Arc::new(JobView { partitions: vec!["other".to_owned()], ..(**job).clone() });
            }
        }
        view
    };
    let by_both = plan(&view(Bounds { of_user_in_partition: Some(1), ..Bounds::default() }), NOW);
    assert_eq!(started(&by_both), [2, 4, 5]);
}

#[test]
fn so_many_start_of_those_behind_others_and_so_many_of_the_rest() {
    let behind = || vec![job(2, short()), job(3, short()), job(4, short())];
    let two = plan(&with(crowd(behind()), Bounds { backfilled: Some(2), ..Bounds::default() }), NOW);
    assert_eq!((started(&two), two.truncated, two.in_order, two.backfilled), (vec![2, 3], false, 0, 2));
    let others = plan(&with(crowd(behind()), Bounds { in_order: Some(1), ..Bounds::default() }), NOW);
    assert_eq!(started(&others), [2, 3, 4]);
    let free = cluster(vec![node(0, 4)], (1..=3).map(|id| job(id, spec())).collect());
    let one = plan(&with(free.clone(), Bounds { in_order: Some(1), ..Bounds::default() }), NOW);
    assert_eq!((started(&one), one.truncated, one.in_order, one.backfilled), (vec![1], false, 1, 0));
    let backfilled = plan(&with(free, Bounds { backfilled: Some(1), ..Bounds::default() }), NOW);
    assert_eq!((started(&backfilled), backfilled.truncated), (vec![1, 2, 3], false));
    let tasks = JobSpec { array: Some(array(0, 9, None)), ..spec() };
    let some = cluster(vec![node(0, 4)], vec![job(1, tasks)]);
    let some = plan(&with(some, Bounds { in_order: Some(2), ..Bounds::default() }), NOW);
    assert_eq!(some.starts.iter().map(|s| s.array_index).collect::<Vec<_>>(), [Some(0), Some(1)]);
}

#[test]
fn plans_of_an_interval_share_what_may_start() {
    let bounds = Arc::new(Bounds { in_order: Some(3), backfilled: Some(1), ..Bounds::default() });
    let minute = Duration::from_secs(60);
    let mut quota = Quota::default();
    let left = |quota: &mut Quota, secs: u64| {
        let left = quota.left(&bounds, NOW.plus(Duration::from_secs(secs)), minute);
        (left.in_order, left.backfilled)
    };
    assert_eq!(left(&mut quota, 0), (Some(3), Some(1)));
    quota.spend((2, 1));
    assert_eq!(left(&mut quota, 30), (Some(1), Some(0)));
    quota.spend((1, 0));
    assert_eq!(left(&mut quota, 59), (Some(0), Some(0)));
    assert_eq!(left(&mut quota, 60), (Some(3), Some(1)));
}

#[test]
fn without_backfilling_so_many_jobs_of_a_partition_are_looked_at() {
    let mut view = cluster(vec![node(0, 4)], (1..=3).map(|id| job(id, spec())).collect());
    view.policy.backfill = Backfill::Off;
    let two = plan(&with(view, Bounds { in_partition: Some(2), ..Bounds::default() }), NOW);
    assert_eq!((started(&two), reason(&two, 3)), (vec![1, 2], Reason::Priority));
}

#[test]
fn a_job_that_a_reservation_draws_counts_once_in_its_partition() {
    let busy = NodeView { holds: vec![hold(90, 0..8, 0, Some(103_600))], ..node(1, 4) };
    let mut view = cluster(vec![node(0, 4), busy], vec![job(1, wide(1)), job(2, spec())]);
    let drawing = Reservation {
        name: "drawing".to_owned(),
        start: NOW,
        end: NOW.plus(Duration::from_secs(86_400)),
        nodes: vec!["n1".to_owned()],
        users: AccessList::parse(&view.pending[0].user).unwrap(),
        flags: [ReservationFlag::Magnetic].into_iter().collect(),
        ..Reservation::default()
    };
    view.policy.backfill = Backfill::Off;
    view.reservations = Reservations::new(&[Arc::new(drawing)], &view.nodes, Vec::new(), NOW, &jiff::tz::TimeZone::UTC);
    let first =
        |most| started(&plan(&with(view.clone(), Bounds { in_partition: Some(most), ..Bounds::default() }), NOW));
    assert_eq!((first(1), first(2)), (vec![1], vec![1, 2]));
}

#[test]
fn the_young_and_the_unimportant_have_nobody_wait_for_them() {
    let long = || JobSpec { time_limit: Some(TimeLimit::Secs(7200)), ..spec() };
    let view = |bounds| with(crowd(vec![job(2, long())]), bounds);
    let usual = plan(&view(Bounds::default()), NOW);
    assert_eq!((started(&usual), expected(&usual)), (vec![], vec![1, 2]));
    // Job 1 was submitted at second 1.
    let age = |secs| Bounds { min_age: Duration::from_secs(secs), ..Bounds::default() };
    let young = plan(&view(age(100_000)), NOW);
    assert_eq!((started(&young), expected(&young), reason(&young, 1)), (vec![2], vec![], Reason::Resources));
    assert_eq!(expected(&plan(&view(age(90_000)), NOW)), [1, 2]);
    let priority = |least| Bounds { min_priority: least, ..Bounds::default() };
    assert_eq!(started(&plan(&view(priority(1_000_000)), NOW)), [2]);
    assert_eq!(expected(&plan(&view(priority(999_998)), NOW)), [1, 2]);
}

#[test]
fn a_job_has_room_reserved_in_one_of_its_partitions() {
    let partitions = || vec!["debug".to_owned(), "other".to_owned()];
    let view = |bounds| {
        let nodes = (0..2).map(|n| NodeView { holds: vec![hold(90, 0..8, 0, Some(103_600))], ..node(n, 4) }).collect();
        let mut view = with(cluster(nodes, vec![job(1, JobSpec { partitions: partitions(), ..spec() })]), bounds);
        view.partitions = vec![partition("debug", 0..1), partition("other", 0..2)];
        view.partitions[0].nodes.grow(2);
        view
    };
    let where_to = |plan: &Plan| plan.reservations.iter().map(|room| room.partition).collect::<Vec<_>>();
    assert_eq!(where_to(&plan(&view(Bounds::default()), NOW)), [0, 1]);
    assert_eq!(where_to(&plan(&view(Bounds { one_per_job: true, ..Bounds::default() }), NOW)), [0]);
}

#[test]
fn tasks_of_an_array_have_room_reserved() {
    let tasks = || JobSpec { array: Some(array(0, 9, None)), ..spec() };
    let view = |most| {
        let holds = vec![hold(90, 0..8, 0, Some(103_600))];
        let view = cluster(vec![NodeView { holds, ..node(0, 4) }], vec![job(1, tasks())]);
        with(view, Bounds { array_tasks: most, ..Bounds::default() })
    };
    let count = |most| plan(&view(most), NOW).reservations.len();
    assert_eq!([count(None), count(Some(0)), count(Some(3)), count(Some(1000))], [1, 0, 3, 10]);
}

#[test]
fn a_plan_that_runs_out_of_time_says_how_many_it_left_out() {
    let view = cluster(vec![node(0, 8)], (1..=5).map(|id| job(id, spec())).collect());
    let looks = Cell::new(0);
    let late = || {
        looks.set(looks.get() + 1);
        looks.get() > 2
    };
    let cut = plan_until(&view, NOW, Some(&late));
    assert_eq!((started(&cut), cut.left_out, cut.truncated), (vec![1, 2], 3, false));
    let whole = plan_until(&view, NOW, Some(&|| false));
    assert_eq!((whole.starts.len(), whole.left_out), (5, 0));
}

#[test]
fn components_of_a_heterogeneous_job_go_by_one_priority() {
    let component = |id: u32, offset: u32, priority: u32| {
        let het = Some((JobId(2), offset));
        JobView { priority, ..job(id, JobSpec { het, het_size: 2, tasks: Some(4), ..spec() }) }
    };
    let view = |kind| {
        let other = JobView { priority: 50, ..job(1, JobSpec { tasks: Some(8), ..spec() }) };
        let view = cluster(vec![node(0, 4)], vec![other, component(2, 0, 10), component(3, 1, 100)]);
        with(view, Bounds { het_priority: kind, ..Bounds::default() })
    };
    let first = |kind| started(&plan(&view(kind), NOW));
    assert_eq!(
        [first(None), first(Some(HetPriority::Least)), first(Some(HetPriority::Most))],
        [vec![1], vec![1], vec![2]]
    );
    assert_eq!(first(Some(HetPriority::Mean)), [2]);
}

#[test]
fn soft_limits_are_what_is_planned_with() {
    let soft = Bounds { soft_limits: true, ..Bounds::default() };
    let minutes = |n: u64| Some(TimeLimit::Secs(n * 60));
    // It fits before job 1 if it ends at its soft limit.
    let hour = JobSpec { time_limit: minutes(120), time_min: minutes(30), ..spec() };
    let lowered = plan(&crowd(vec![job(2, hour.clone())]), NOW);
    assert_eq!((started(&lowered), lowered.starts[0].time_limit), (vec![2], TimeLimit::Secs(3600)));
    let made = plan(&with(crowd(vec![job(2, hour.clone())]), soft.clone()), NOW);
    assert_eq!((started(&made), made.starts[0].time_limit), (vec![2], TimeLimit::Secs(7200)));
    // One that asks for the same and has no such limit is another matter.
    let firm = JobSpec { time_limit: minutes(120), ..spec() };
    let beside = plan(&with(crowd(vec![job(2, firm), job(3, hour.clone())]), soft.clone()), NOW);
    assert_eq!(started(&beside), [3]);
    // Who runs is taken to end then too, unless that is over.
    let runs = |since: i64| {
        let start_time = Some(Timestamp::from_secs(since));
        Arc::new(JobView { state: JobState::Running, start_time, ..job(90, hour.clone()) })
    };
    let end = |since: i64| {
        let mut view = with(crowd(Vec::new()), soft.clone());
        soften(&mut view, &[runs(since)], NOW);
        view.nodes[0].holds[0].expected_end.unwrap()
    };
    assert_eq!([end(99_000), end(98_000)], [100_800, 103_600].map(Timestamp::from_secs));
}

#[test]
fn reservations_close_their_nodes_to_the_hard_limit() {
    let minutes = |n: u64| Some(TimeLimit::Secs(n * 60));
    let made = |time_min, begins: u64| {
        let asks = JobSpec { time_limit: minutes(120), time_min, ..spec() };
        let bounds = Bounds { soft_limits: true, ..Bounds::default() };
        let mut view = with(cluster(vec![node(0, 4)], vec![job(1, asks)]), bounds);
        let start = NOW.plus(Duration::from_secs(begins * 60));
        let kept = Arc::new(Reservation {
            name: "kept".to_owned(),
            start,
            end: start.plus(Duration::from_secs(3600)),
            nodes: vec!["n0".to_owned()],
            ..Reservation::default()
        });
        view.reservations = Reservations::new(&[kept], &view.nodes, Vec::new(), NOW, &jiff::tz::TimeZone::UTC);
        let plan = plan(&view, NOW);
        (started(&plan), plan.reservations.iter().map(|r| r.from.since(NOW).as_secs() / 60).collect::<Vec<_>>())
    };
    assert_eq!(made(minutes(30), 180).0, [1]);
    let (started, from) = made(minutes(30), 60);
    assert_eq!((started, from.len()), (vec![], 1));
    assert!((120..=121).contains(&from[0]), "{from:?}");
}

#[test]
fn nothing_starts_while_nodes_of_a_job_that_just_ended_are_cleaned() {
    let ended = |end: i64| {
        let allocation = Allocation { partition: "debug".to_owned(), ..Allocation::default() };
        let end_time = Some(Timestamp::from_secs(end));
        JobView { state: JobState::Completing, end_time, allocation: Some(Arc::new(allocation)), ..job(9, spec()) }
    };
    let made = |end: i64, nearby: bool| {
        let jobs = vec![job(1, spec()), job(2, JobSpec { partitions: vec!["far".to_owned()], ..spec() }), ended(end)];
        let jobs: Vec<Arc<JobView>> = jobs.into_iter().map(Arc::new).collect();
        let nodes = vec![Arc::new(node(0, 4)), Arc::new(node(1, 4))];
        let mut partitions = vec![partition("debug", 0..1), partition("far", 1..2)];
        partitions[0].nodes.grow(2);
        let wait = Duration::from_secs(32);
        let bounds = Bounds { complete_wait: wait, complete_wait_nearby: nearby, ..Bounds::default() };
        let policy = crate::snapshot::facts::Policy { bounds: Some(Arc::new(bounds)), ..Default::default() };
        plan(&ClusterView::new(policy, &jobs, &nodes, partitions), NOW)
    };
    let frozen = made(99_990, false);
    assert_eq!((started(&frozen), reason(&frozen, 1)), (vec![], Reason::Resources));
    assert_eq!(frozen.again, Some(Timestamp::from_secs(100_022)));
    assert_eq!(started(&made(99_990, true)), [2]);
    assert_eq!(started(&made(99_960, false)), [1, 2]);
}

#[test]
fn serial_jobs_go_to_the_end() {
    let view = |at_end| {
        let nodes = vec![NodeView { holds: vec![hold(90, 0..2, 0, None)], ..node(0, 4) }, node(1, 4), node(2, 4)];
        let mut view = cluster(nodes, vec![job(1, spec()), job(2, JobSpec { tasks: Some(2), ..spec() })]);
        view.policy.serial_at_end = at_end;
        view
    };
    let nodes = |plan: &Plan| plan.starts.iter().map(|s| s.nodes[0].name.clone()).collect::<Vec<_>>();
    assert_eq!(nodes(&plan(&view(false), NOW)), ["n0", "n0"]);
    assert_eq!(nodes(&plan(&view(true), NOW)), ["n2", "n0"]);
}

#[test]
fn the_configuration_says_which_bounds_there_are() {
    let read = |parameters: &str| {
        let text = format!(
            "ClusterName=c\nSlurmctldHost=a\nNodeName=n0\nPartitionName=p Nodes=ALL\nSchedulerParameters={parameters}\n"
        );
        let (config, report) = config::read_text(Path::new("/e/slurm.conf"), &text);
        policy(&config.unwrap_or_else(|| panic!("{report}")))
    };
    let plain = read("bf_max_job_test=10,defer");
    assert_eq!((plain.bounds, plain.interval), (None, Some(Duration::from_secs(30))));
    let set = read("bf_max_job_user=5,bf_min_prio_reserve=7,bf_max_job_part=0,bf_interval=60,bf_hetjob_prio=avg");
    let bounds =
        Bounds { of_user: Some(5), min_priority: 7, het_priority: Some(HetPriority::Mean), ..Bounds::default() };
    assert_eq!((set.bounds.as_deref(), set.interval), (Some(&bounds), Some(Duration::from_secs(60))));
    let in_order = read("bf_interval=-1,sched_interval=600,sched_min_interval=2000000");
    assert_eq!((in_order.backfill, in_order.interval), (Backfill::Off, Some(Duration::from_secs(600))));
    assert_eq!(in_order.least_pause, Duration::from_secs(2));
    assert_eq!(read("bf_interval=-1,sched_interval=-1").interval, None);
    assert_eq!(read("bf_job_part_count_reserve=4").backfill, Backfill::First(4));
    assert!(read("pack_serial_at_end").serial_at_end);
    assert_eq!(read("bf_max_time=5").bounds.unwrap().plan_time, Some(Duration::from_secs(5)));
    assert_eq!(read("max_sched_time=5").bounds, None);
}
