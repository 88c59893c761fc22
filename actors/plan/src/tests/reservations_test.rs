//! Reservations in whole plans.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::cluster,
    plan::{Plan, plan, probe::would_start},
    snapshot::{
        bounds::Bounds,
        facts::{Backfill, ClusterView},
        preempt::PreemptRules,
        reservations::Reservations,
    },
};
use garrick_model::{
    config::{PreemptMode, PreemptType},
    ids::{JobId, NodeIndex},
    node_shape::NodeShare,
    reservation::{AccessList, Floating, Reservation, ReservationFlag},
    resources::CpuSet,
    spec::{JobSpec, NodeCount, Sharing, SignalWarning},
    spec_text::licenses::Licenses,
    state::{JobState, Reason},
    testing::{hold, job, node, spec},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, Allocation, JobView},
};
use jiff::tz::TimeZone;
use proptest::prelude::*;
use std::{sync::Arc, time::Duration};

const NOW: Timestamp = Timestamp::from_secs(100_000);

fn at(secs: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(secs))
}

fn reserved(
    name: &str,
    user: &str,
    nodes: &[u32],
    (from, until): (u64, u64),
    flags: &[ReservationFlag],
) -> Reservation {
    Reservation {
        name: name.to_owned(),
        start: at(from),
        end: at(until),
        nodes: nodes.iter().map(|n| format!("n{n}")).collect(),
        users: AccessList::parse(user).unwrap(),
        flags: flags.iter().copied().collect(),
        ..Reservation::default()
    }
}

fn snapshot(nodes: u32, jobs: Vec<JobView>, list: Vec<Reservation>) -> ClusterView {
    let mut view = cluster((0..nodes).map(|n| node(n, 4)).collect(), jobs);
    reserve(&mut view, list);
    view
}

fn reserve(view: &mut ClusterView, mut list: Vec<Reservation>) {
    list.sort_by(|a, b| a.name.cmp(&b.name));
    let shown: Vec<Arc<Reservation>> = list.into_iter().map(Arc::new).collect();
    view.reservations = Reservations::new(&shown, &view.nodes, vec![0], NOW, &TimeZone::UTC);
}

fn of(id: u32, user: &str, spec: JobSpec) -> JobView {
    let uid = if user == "alice" { 1001 } else { 1002 };
    JobView { user: user.to_owned(), uid, ..job(id, spec) }
}

fn asking(names: &[&str], nodes: u32, secs: u64) -> JobSpec {
    JobSpec {
        reservations: names.iter().map(|n| (*n).to_owned()).collect(),
        nodes: Some(NodeCount { min: nodes, max: None }),
        sharing: Sharing::Exclusive,
        time_limit: Some(TimeLimit::Secs(secs)),
        ..spec()
    }
}

/// Job, first node, reservation.
fn started(plan: &Plan) -> Vec<(u32, &str, Option<&str>)> {
    plan.starts.iter().map(|s| (s.job.0, s.nodes[0].name.as_str(), s.reservation.as_deref())).collect()
}

fn reason(plan: &Plan, job: u32) -> String {
    match plan.reasons.iter().find(|(id, _)| id.0 == job) {
        Some((_, Reason::Other(text))) => text.clone(),
        Some((_, reason)) => format!("{reason:?}"),
        None => String::new(),
    }
}

const MAY_BE_RESERVED: &str = "ReqNodeNotAvail, May be reserved for other job";

#[test]
fn others_keep_off_and_those_it_is_for_go_in() {
    let list = || vec![reserved("class", "bob", &[0, 1], (0, 4000), &[])];
    let jobs = vec![
        of(1, "alice", asking(&[], 2, 600)),
        of(2, "alice", asking(&["class"], 1, 600)),
        of(3, "bob", asking(&["class"], 1, 600)),
        of(4, "bob", asking(&[], 1, 600)),
        of(5, "bob", asking(&["gone"], 1, 600)),
        of(6, "bob", asking(&["class"], 1, 5000)),
    ];
    let view = snapshot(3, jobs, list());
    let made = plan(&view, NOW);
    assert_eq!(started(&made), [(3, "n0", Some("class")), (4, "n2", None)]);
    assert_eq!(reason(&made, 1), MAY_BE_RESERVED);
    assert_eq!((reason(&made, 2), reason(&made, 5)), ("Reservation".into(), "ReservationDeleted".into()));
    assert!(made.expected.iter().any(|(job, when)| (job.0, *when) == (1, at(4000))));
    assert_eq!(made.expected.iter().find(|(job, _)| job.0 == 6), None, "longer than the reservation");
}

#[test]
fn a_job_that_would_run_into_a_reservation_does_not_start_there() {
    let list = vec![reserved("soon", "bob", &[0], (1000, 4000), &[])];
    let jobs = vec![
        of(1, "alice", asking(&[], 1, 1001)),
        of(2, "alice", asking(&[], 1, 1000)),
        of(3, "bob", asking(&["soon"], 1, 3000)),
    ];
    let view = snapshot(1, jobs, list);
    let made = plan(&view, NOW);
    assert_eq!(started(&made), [(2, "n0", None)]);
    assert_eq!((reason(&made, 1), reason(&made, 3)), (MAY_BE_RESERVED.into(), "Reservation".into()));
    let expected: Vec<(u32, Timestamp)> = made.expected.iter().map(|(job, when)| (job.0, *when)).collect();
    assert_eq!(expected, [(1, at(4000)), (3, at(1000))]);
    let asked = would_start(&view, &of(9, "alice", asking(&[], 1, 2000)), NOW).unwrap();
    assert!(asked.at >= at(4000));
}

fn warned(id: u32, user: &str, secs: u64, before_secs: u32) -> JobView {
    let signal = Some(SignalWarning { signal: 10, before_secs, batch_only: false, overlaps: true });
    of(id, user, JobSpec { signal, ..asking(&[], 1, secs) })
}

fn delayed(secs: u64, flags: &[ReservationFlag]) -> Reservation {
    let max_start_delay_secs = Some(secs);
    Reservation { max_start_delay_secs, ..reserved("class", "bob", &[0], (1000, 4000), flags) }
}

#[test]
fn jobs_that_leave_soon_enough_when_told_may_be_in_the_way_of_a_reservation() {
    let starts = |reservation: Reservation, guests: bool| {
        let jobs =
            vec![of(1, "alice", asking(&[], 1, 2000)), warned(2, "alice", 2000, 61), warned(3, "alice", 2000, 60)];
        let mut view = snapshot(1, jobs, vec![reservation]);
        view.reservations.guests = guests;
        started(&plan(&view, NOW)).into_iter().map(|(job, ..)| job).collect::<Vec<_>>()
    };
    assert_eq!(starts(delayed(60, &[]), true), [3]);
    assert_eq!(starts(delayed(120, &[]), true), [2]);
    // Where nobody is preempted nobody would leave, and maintenance waits for nobody.
    assert_eq!(starts(delayed(60, &[]), false), [] as [u32; 0]);
    assert_eq!(starts(delayed(60, &[ReservationFlag::Maint]), true), [] as [u32; 0]);
}

#[test]
fn jobs_of_a_reservation_have_guests_leave_and_nobody_else() {
    let named = |guest: bool, asks: &[&str], now: Timestamp| {
        let mut runs = warned(50, "alice", 9000, 60);
        let signal = runs.spec.signal.map(|signal| SignalWarning { overlaps: guest, ..signal });
        runs.spec = Arc::new(JobSpec { signal, ..(*runs.spec).clone() });
        let share = NodeShare { cpus: CpuSet::from(0..8), ..NodeShare::default() };
        let nodes = vec![AllocatedNode { name: "n0".into(), index: NodeIndex(0), share }];
        let allocation = Some(Arc::new(Allocation { nodes, partition: "debug".into(), ..Allocation::default() }));
        let runs = JobView { state: JobState::Running, eligible: false, allocation, start_time: Some(NOW), ..runs };
        let mut there = node(0, 4);
        there.holds.push(hold(50, 0..8, 0, Some(at(9000).secs())));
        let jobs = vec![Arc::new(runs), Arc::new(of(1, "bob", asking(asks, 1, 600)))];
        let made = cluster(vec![there], Vec::new());
        let mut policy = made.policy;
        policy.preempt = PreemptRules { kind: PreemptType::PartitionPrio, ..PreemptRules::default() };
        let mut view = ClusterView::new(policy, &jobs, &made.nodes, made.partitions);
        reserve(&mut view, vec![delayed(60, &[])]);
        view.reservations.guests = true;
        let made = plan(&view, now);
        made.preemptions.iter().map(|one| (one.job.0, one.mode, one.grace.as_secs())).collect::<Vec<_>>()
    };
    let begun = at(1000);
    assert_eq!(named(true, &["class"], begun), [(50, PreemptMode::Requeue, 60)]);
    assert_eq!(named(true, &["class"], NOW), [], "it has not begun");
    assert_eq!(named(false, &["class"], begun), []);
    assert_eq!(named(true, &[], begun), []);
}

#[test]
fn jobs_that_are_drawn_have_room_reserved_there_where_the_site_says_so() {
    let rooms = |bounds: Option<Bounds>| {
        let pull = reserved("pull", "bob", &[1], (0, 9000), &[ReservationFlag::Magnetic]);
        let mut view = snapshot(2, vec![of(1, "bob", asking(&[], 1, 600))], vec![pull]);
        for node in &mut view.nodes {
            Arc::make_mut(node).holds.push(hold(90, 0..8, 0, Some(103_600)));
        }
        view.policy.bounds = bounds.map(Arc::new);
        let made = plan(&view, NOW);
        made.reservations.iter().map(|room| room.nodes[0].0).collect::<Vec<_>>()
    };
    assert_eq!(rooms(None), [0]);
    let magnetic = Bounds { magnetic: true, ..Bounds::default() };
    assert_eq!(rooms(Some(magnetic.clone())), [1, 0]);
    assert_eq!(rooms(Some(Bounds { one_per_job: true, ..magnetic })), [1]);
}

#[test]
fn flags_say_who_goes_where() {
    use ReservationFlag::{Flex, Magnetic, Maint, Overlap};
    // It draws those that it is for.
    let draws = vec![reserved("pull", "bob", &[1], (0, 4000), &[Magnetic])];
    let jobs = || {
        vec![of(1, "bob", asking(&[], 1, 600)), of(2, "bob", asking(&[], 1, 600)), of(3, "alice", asking(&[], 1, 600))]
    };
    let made = plan(&snapshot(2, jobs(), draws), NOW);
    assert_eq!(started(&made), [(1, "n1", Some("pull")), (2, "n0", None)]);
    // Its jobs begin before, and elsewhere.
    let flex = vec![reserved("flex", "bob", &[0], (500, 600), &[Flex])];
    let jobs = vec![of(1, "bob", asking(&["flex"], 2, 9000)), of(2, "alice", asking(&[], 1, 9000))];
    assert_eq!(started(&plan(&snapshot(2, jobs, flex), NOW)), [(1, "n0", Some("flex"))]);
    // Maintenance holds against all; overlapping ones share.
    let both =
        |flag| vec![reserved("a", "bob", &[0], (0, 4000), &[]), reserved("b", "alice", &[0], (0, 4000), &[flag])];
    let inside = || vec![of(1, "bob", asking(&["a"], 1, 600))];
    assert_eq!(started(&plan(&snapshot(1, inside(), both(Maint)), NOW)), []);
    assert_eq!(started(&plan(&snapshot(1, inside(), both(Overlap)), NOW)), [(1, "n0", Some("a"))]);
}

#[test]
fn expedited_jobs_keep_off_too() {
    let mut urgent = of(1, "alice", asking(&[], 1, 600));
    urgent.state = JobState::Expediting;
    let list = vec![reserved("class", "bob", &[0], (300, 4000), &[])];
    assert_eq!(started(&plan(&snapshot(2, vec![urgent.clone()], list.clone()), NOW)), [(1, "n1", None)]);
    assert_eq!(started(&plan(&snapshot(1, vec![urgent], list), NOW)), []);
}

#[test]
fn who_waits_for_a_reservation_holds_back_nobody_else() {
    let list = vec![reserved("class", "bob", &[0], (0, 4000), &[])];
    let jobs = vec![of(1, "alice", asking(&[], 2, 600)), of(2, "alice", asking(&[], 1, 600))];
    let mut view = snapshot(2, jobs, list);
    view.policy.backfill = Backfill::Off;
    assert_eq!(started(&plan(&view, NOW)), [(2, "n1", None)]);
}

/// Wants one node, and licenses.
fn licensed(name: &[&str], licenses: &str, secs: u64) -> JobSpec {
    JobSpec { licenses: Some(licenses.to_owned()), ..asking(name, 1, secs) }
}

fn keeping(name: &str, licenses: &str, times: (u64, u64), flags: &[ReservationFlag]) -> Reservation {
    Reservation { licenses: licenses.parse().unwrap(), ..reserved(name, "bob", &[], times, flags) }
}

fn with_licenses(mut view: ClusterView, totals: &str) -> ClusterView {
    let totals: Licenses = totals.parse().unwrap();
    view.licenses.totals = totals.0.into_iter().map(|l| (l.name, l.count)).collect();
    view
}

#[test]
fn reserved_licenses_are_for_jobs_of_the_reservation() {
    let list = || vec![keeping("lic", "abc:2", (1000, 4000), &[ReservationFlag::AnyNodes])];
    let jobs = vec![
        of(1, "alice", licensed(&[], "abc:3", 1001)),
        of(2, "alice", licensed(&[], "abc:2", 2000)),
        of(3, "alice", licensed(&[], "abc:2", 1000)),
        of(4, "bob", licensed(&["lic"], "abc:2", 600)),
    ];
    let made = plan(&with_licenses(snapshot(4, jobs, list()), "abc:4"), NOW);
    assert_eq!(started(&made), [(2, "n0", None), (3, "n1", None)]);
    assert_eq!((reason(&made, 1), reason(&made, 4)), ("Licenses".into(), "Licenses".into()));
    let expected: Vec<(u32, Timestamp)> = made.expected.iter().map(|(job, when)| (job.0, *when)).collect();
    assert_eq!(expected, [(1, at(4000)), (4, at(1000))]);
    // Its jobs have what it keeps, and others what is left, whoever has them.
    let list = vec![keeping("lic", "abc:2", (0, 4000), &[ReservationFlag::AnyNodes])];
    let jobs = vec![
        of(1, "bob", licensed(&["lic"], "abc:1", 600)),
        of(2, "alice", licensed(&[], "abc:3", 600)),
        of(3, "alice", licensed(&[], "abc:2", 500)),
        of(4, "bob", licensed(&["lic"], "abc:1", 600)),
        of(5, "bob", licensed(&["lic"], "abc:1", 600)),
    ];
    let mut view = with_licenses(snapshot(5, jobs, list), "abc:5");
    view.licenses.held = vec![(JobId(90), "abc".parse().unwrap(), Some(at(500)))];
    assert_eq!(started(&plan(&view, NOW)), [(1, "n0", Some("lic")), (3, "n1", None), (4, "n2", Some("lic"))]);
    // The one that has one already has it in the reservation.
    view.licenses.inside = [(JobId(90), "lic".to_owned())].into();
    assert_eq!(started(&plan(&view, NOW)), [(1, "n0", Some("lic")), (2, "n1", None)]);
}

#[test]
fn partitions_and_qos_say_who_may_use_one() {
    let only = |text: &str| Reservation {
        partitions: AccessList::parse(text).unwrap(),
        ..reserved("class", "bob", &[0], (0, 4000), &[])
    };
    let jobs = || vec![of(1, "bob", asking(&["class"], 1, 600))];
    let name = snapshot(1, jobs(), vec![]).partitions[0].name.clone();
    assert_eq!(started(&plan(&snapshot(1, jobs(), vec![only(&name)]), NOW)), [(1, "n0", Some("class"))]);
    assert_eq!(started(&plan(&snapshot(1, jobs(), vec![only(&format!("-{name}"))]), NOW)), []);
    let high = Reservation { qos: AccessList::parse("high").unwrap(), ..only("") };
    assert_eq!(started(&plan(&snapshot(1, jobs(), vec![high]), NOW)), []);
}

#[test]
fn one_that_goes_with_the_time_keeps_long_jobs_off_and_nobody_runs_in_it() {
    let floating = Some(Floating { begins_secs: 3600, lasts_secs: Some(6000) });
    let float = Reservation { floating, ..reserved("float", "bob", &[0], (3600, 9600), &[ReservationFlag::TimeFloat]) };
    let jobs = vec![
        of(1, "alice", asking(&[], 1, 3601)),
        of(2, "bob", asking(&["float"], 1, 60)),
        of(3, "alice", asking(&[], 1, 3600)),
    ];
    let view = snapshot(1, jobs, vec![float]);
    let made = plan(&view, NOW);
    assert_eq!((started(&made), reason(&made, 2)), (vec![(3, "n0", None)], "Reservation".into()));
    let later = Reservations::new(
        &[Arc::clone(&view.reservations.list[0].reservation)],
        &view.nodes,
        vec![],
        at(9000),
        &TimeZone::UTC,
    );
    assert_eq!(later.list[0].times, [(at(12_600), at(18_600))]);
}

#[test]
fn groups_count_as_they_are_when_the_reservation_is_used() {
    let chem = |flags| Reservation { groups: vec!["chem".into()], ..reserved("chem", "", &[0], (0, 4000), flags) };
    let is_in = |view: &mut ClusterView, groups: &[(u32, &str)]| {
        view.reservations.groups = groups.iter().map(|(uid, group)| (*uid, vec![(*group).to_owned()])).collect();
    };
    let asks = || vec![of(1, "alice", asking(&["chem"], 1, 600)), of(2, "bob", asking(&["chem"], 1, 600))];
    let mut view = snapshot(2, asks(), vec![chem(&[])]);
    assert!(view.pending.iter().all(|job| view.reservations.ask_for_groups(job)));
    is_in(&mut view, &[(1001, "users"), (1002, "chem")]);
    let made = plan(&view, NOW);
    assert_eq!((started(&made), reason(&made, 1)), (vec![(2, "n0", Some("chem"))], "Reservation".into()));
    // It draws members and nobody else.
    let mut view = snapshot(
        2,
        vec![of(1, "alice", asking(&[], 1, 600)), of(2, "bob", asking(&[], 1, 600))],
        vec![chem(&[ReservationFlag::Magnetic])],
    );
    assert!(view.pending.iter().all(|job| view.reservations.ask_for_groups(job)));
    is_in(&mut view, &[(1002, "chem")]);
    assert_eq!(started(&plan(&view, NOW)), [(1, "n1", None), (2, "n0", Some("chem"))]);
}

fn any_flags() -> impl Strategy<Value = Vec<ReservationFlag>> {
    use ReservationFlag::{Daily, Flex, Hourly, Magnetic, Maint, Overlap};
    prop::collection::vec(prop::sample::select(vec![Maint, Overlap, Flex, Magnetic, Daily, Hourly]), 0..3)
}

fn any_reservation() -> impl Strategy<Value = (Vec<u32>, u64, u64, bool, Vec<ReservationFlag>)> {
    let nodes = prop::collection::vec(0u32..4, 1..4);
    (nodes, 0u64..3000, 60u64..3000, any::<bool>(), any_flags())
}

/// User, reservation asked for, nodes, whole nodes, limit, expedited.
type Wish = (bool, Option<usize>, u32, bool, u64, bool);

fn any_job() -> impl Strategy<Value = Wish> {
    (any::<bool>(), prop::option::of(0usize..3), 1u32..3, any::<bool>(), 60u64..6000, prop::bool::weighted(0.1))
}

fn name_of(number: usize) -> String {
    format!("r{number}")
}

/// May a job in `own` be on that node from then until then, as far as `other` is concerned? Said anew here.
fn lets_in(other: &Reservation, own: Option<&Reservation>, node: &str, from: Timestamp, until: Timestamp) -> bool {
    let times = other.times(NOW, 20, &TimeZone::UTC);
    let apart = times.iter().all(|(start, end)| until <= *start || *end <= from);
    if apart || !other.nodes.iter().any(|n| n == node) {
        return true;
    }
    own.is_some_and(|own| {
        let maintenance = |r: &Reservation| r.has(ReservationFlag::Maint);
        let overlaps = |r: &Reservation| r.has(ReservationFlag::Overlap);
        let shared = maintenance(own) || (!maintenance(other) && (overlaps(own) || overlaps(other)));
        own.name == other.name || (shared && own.nodes.iter().any(|n| n == node))
    })
}

/// May a job in `own` be there then, as far as its own reservation is concerned?
fn is_inside(own: &Reservation, node: &str, from: Timestamp, until: Timestamp) -> bool {
    let times = own.times(NOW, 64, &TimeZone::UTC);
    own.has(ReservationFlag::Flex)
        || (own.nodes.iter().any(|n| n == node) && times.iter().any(|(start, end)| *start <= from && until <= *end))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Nobody is planned onto nodes that are reserved for others at any of their times, nobody in a reservation outside of
    /// it, and no CPU is promised twice.
    #[test]
    fn reserved_nodes_are_for_whom_they_are_reserved(
        list in prop::collection::vec(any_reservation(), 0..3),
        wishes in prop::collection::vec(any_job(), 1..12),
        busy in prop::collection::vec((0u32..4, 1i64..2000), 0..3),
        backfill in prop::sample::select(vec![Backfill::Conservative, Backfill::First(1), Backfill::Off]),
    ) {
        let list: Vec<Reservation> = list.into_iter().enumerate().map(|(number, (mut nodes, from, length, alice, flags))| {
            nodes.sort_unstable();
            nodes.dedup();
            let user = if alice { "alice" } else { "bob" };
            reserved(&name_of(number), user, &nodes, (from, from + length), &flags)
        }).collect();
        let jobs: Vec<JobView> = wishes.into_iter().zip(1..).map(|((alice, asked, nodes, whole, secs, urgent), id)| {
            let names: Vec<String> = asked.into_iter().map(name_of).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let sharing = if whole { Sharing::Exclusive } else { Sharing::Default };
            let spec = JobSpec { sharing, ..asking(&names, nodes, secs) };
            let mut job = of(id, if alice { "alice" } else { "bob" }, spec);
            if urgent {
                job.state = JobState::Expediting;
            }
            job
        }).collect();
        let mut nodes: Vec<_> = (0..4).map(|n| node(n, 4)).collect();
        for (number, (place, end)) in (900..).zip(&busy) {
            if nodes[*place as usize].holds.is_empty() {
                nodes[*place as usize].holds.push(hold(number, 0..4, 100, Some(NOW.secs() + end)));
            }
        }
        let mut view = cluster(nodes, jobs.clone());
        view.policy.backfill = backfill;
        reserve(&mut view, list.clone());
        let made = plan(&view, NOW);

        let by_id = |id: JobId| jobs.iter().find(|job| job.id == id).unwrap();
        let find = |name: &str| list.iter().find(|r| r.name == name);
        // Job, node, CPUs, from, until.
        let mut held: Vec<(JobId, String, u32, Timestamp, Timestamp)> = Vec::new();
        for node in &view.nodes {
            held.extend(node.holds.iter().map(|h| (h.job, node.name.clone(), h.share.cpus.len(), NOW, h.expected_end.unwrap())));
        }
        for start in &made.starts {
            let job = by_id(start.job);
            let until = NOW.plus(job.time_limit.duration().unwrap());
            let own = start.reservation.as_deref().map(|name| find(name).unwrap());
            if let Some(own) = own {
                let named = job.spec.reservations.contains(&own.name);
                prop_assert!(named || (job.spec.reservations.is_empty() && own.has(ReservationFlag::Magnetic)));
                prop_assert!(own.users.names.contains(&job.user));
            } else {
                prop_assert!(job.spec.reservations.is_empty());
            }
            for node in &start.nodes {
                prop_assert!(own.is_none_or(|own| is_inside(own, &node.name, NOW, until)), "{} outside", job.id);
                for other in &list {
                    prop_assert!(lets_in(other, own, &node.name, NOW, until), "{} in {}", job.id, other.name);
                }
                held.push((job.id, node.name.clone(), node.share.cpus.len(), NOW, until));
            }
        }
        for kept in &made.reservations {
            let job = by_id(kept.job);
            let own = job.spec.reservations.first().map(|name| find(name).unwrap());
            for (place, amount) in &kept.nodes {
                let name = &view.nodes[*place].name;
                // Those that are expedited have nodes kept for them, and are looked at when they start.
                if job.state != JobState::Expediting {
                    prop_assert!(own.is_none_or(|own| is_inside(own, name, kept.from, kept.until)));
                    for other in &list {
                        prop_assert!(lets_in(other, own, name, kept.from, kept.until), "{} in {}", job.id, other.name);
                    }
                    held.push((job.id, name.clone(), amount.cpus, kept.from, kept.until));
                }
            }
        }
        if jobs.iter().all(|job| job.state != JobState::Expediting) {
            for (_, node, _, moment, _) in &held {
                let there = held.iter().filter(|(_, n, _, from, until)| n == node && from <= moment && moment < until);
                let used: u32 = there.map(|(_, _, cpus, ..)| cpus).sum();
                prop_assert!(used <= 8, "{node} has {used} at {}", moment.0);
            }
        }
    }
}
