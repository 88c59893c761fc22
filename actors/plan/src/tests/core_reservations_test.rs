//! Reservations of cores in whole plans.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::cluster,
    plan::{Plan, plan},
    snapshot::{
        facts::{AllocationUnit, Backfill, ClusterView},
        reservations::Reservations,
    },
};
use garrick_model::{
    ids::JobId,
    reservation::{AccessList, Reservation, ReservationFlag},
    resources::CpuSet,
    spec::{JobSpec, NodeCount, Sharing},
    state::{JobState, Reason},
    testing::{hold, job, node, spec},
    time::{TimeLimit, Timestamp},
    view::{JobView, NodeView},
};
use jiff::tz::TimeZone;
use proptest::prelude::*;
use std::{sync::Arc, time::Duration};

const NOW: Timestamp = Timestamp::from_secs(100_000);

fn at(secs: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(secs))
}

/// Of nodes of four cores with two CPUs each.
fn reserved(name: &str, cores: &[(u32, &str)], (from, until): (u64, u64), flags: &[ReservationFlag]) -> Reservation {
    Reservation {
        name: name.to_owned(),
        start: at(from),
        end: at(until),
        nodes: cores.iter().map(|(node, _)| format!("n{node}")).collect(),
        core_ids: cores
            .iter()
            .filter(|(_, cores)| !cores.is_empty())
            .map(|(node, cores)| (format!("n{node}"), cores.parse().unwrap()))
            .collect(),
        users: AccessList::parse("bob").unwrap(),
        flags: flags.iter().copied().collect(),
        ..Reservation::default()
    }
}

fn snapshot(nodes: Vec<NodeView>, jobs: Vec<JobView>, list: Vec<Reservation>) -> ClusterView {
    let mut view = cluster(nodes, jobs);
    let shown: Vec<Arc<Reservation>> = list.into_iter().map(Arc::new).collect();
    view.reservations = Reservations::new(&shown, &view.nodes, vec![0], NOW, &TimeZone::UTC);
    view
}

fn asking(id: u32, name: Option<&str>, tasks: u32, secs: u64) -> JobView {
    let spec = JobSpec {
        reservations: name.into_iter().map(str::to_owned).collect(),
        tasks: Some(tasks),
        time_limit: Some(TimeLimit::Secs(secs)),
        ..spec()
    };
    JobView { user: "bob".to_owned(), uid: 1002, ..job(id, spec) }
}

/// Job, node, CPUs.
fn started(plan: &Plan) -> Vec<(u32, String, String)> {
    let nodes = plan.starts.iter().flat_map(|s| s.nodes.iter().map(move |node| (s.job.0, node)));
    nodes.map(|(job, node)| (job, node.name.clone(), node.share.cpus.to_string())).collect()
}

fn expected(plan: &Plan, job: u32) -> Option<Timestamp> {
    plan.expected.iter().find(|(id, _)| id.0 == job).map(|(_, at)| *at)
}

fn start(job: u32, node: &str, cpus: &str) -> (u32, String, String) {
    (job, node.to_owned(), cpus.to_owned())
}

#[test]
fn others_have_the_other_cores_and_those_it_is_for_have_these() {
    let list = || vec![reserved("two", &[(0, "0-1")], (0, 4000), &[])];
    let jobs = vec![
        asking(1, None, 4, 600),
        asking(2, Some("two"), 4, 600),
        asking(3, None, 1, 600),
        asking(4, Some("two"), 1, 600),
    ];
    let made = plan(&snapshot(vec![node(0, 4)], jobs, list()), NOW);
    assert_eq!(started(&made), [start(1, "n0", "4-7"), start(2, "n0", "0-3")]);
    assert_eq!((expected(&made, 3), expected(&made, 4)), (Some(at(600)), Some(at(600))));
    // Nobody gets more than is his.
    let jobs = vec![asking(1, None, 5, 600), asking(2, Some("two"), 5, 600)];
    let made = plan(&snapshot(vec![node(0, 4)], jobs, list()), NOW);
    assert_eq!(started(&made), []);
    let may_be_reserved = Reason::Other("ReqNodeNotAvail, May be reserved for other job".to_owned());
    assert_eq!(made.reasons, [(JobId(1), may_be_reserved), (JobId(2), Reason::BadConstraints)]);
    assert_eq!((expected(&made, 1), expected(&made, 2)), (Some(at(4000)), None));
    // Alone on a node is nobody of whose node a part is reserved.
    let mut alone = asking(1, None, 1, 600);
    (alone.sharing, alone.spec) = (Sharing::Exclusive, Arc::new(JobSpec { sharing: Sharing::Exclusive, ..spec() }));
    let made = plan(&snapshot(vec![node(0, 4)], vec![alone], list()), NOW);
    assert_eq!((started(&made), expected(&made, 1)), (vec![], Some(at(4000))));
}

#[test]
fn a_job_that_would_run_into_reserved_cores_has_others_or_waits() {
    let list = || vec![reserved("soon", &[(0, "0-1")], (1000, 4000), &[])];
    let jobs = vec![asking(1, None, 4, 2000), asking(2, None, 4, 1000), asking(3, None, 1, 2000)];
    let made = plan(&snapshot(vec![node(0, 4)], jobs, list()), NOW);
    assert_eq!(started(&made), [start(1, "n0", "4-7"), start(2, "n0", "0-3")]);
    assert_eq!(expected(&made, 3), Some(at(2000)));
    let made = plan(&snapshot(vec![node(0, 4)], vec![asking(1, None, 6, 1001)], list()), NOW);
    assert_eq!((started(&made), expected(&made, 1)), (vec![], Some(at(4000))));
    let made = plan(&snapshot(vec![node(0, 4)], vec![asking(1, Some("soon"), 4, 1000)], list()), NOW);
    assert_eq!((started(&made), expected(&made, 1)), (vec![], Some(at(1000))));
}

#[test]
fn room_is_the_same_cpus_all_the_time() {
    // Four CPUs are free at any time, but not the same ones before the other job ends.
    let mut busy = node(0, 4);
    busy.holds.push(hold(9, 4..8, 100, Some(NOW.secs() + 900)));
    let list = vec![reserved("soon", &[(0, "0-1")], (1200, 4000), &[])];
    let jobs = vec![asking(1, None, 4, 2000), asking(2, None, 2, 1200), asking(3, None, 4, 2000)];
    let made = plan(&snapshot(vec![busy], jobs, list), NOW);
    assert_eq!(started(&made), [start(2, "n0", "0-1")]);
    assert_eq!((expected(&made, 1), expected(&made, 3)), (Some(at(900)), Some(at(2900))));
    assert_eq!(made.reservations[0].nodes[0].1.named, Some("4-7".parse().unwrap()));
}

#[test]
fn flags_say_whose_cores_are_shared() {
    use ReservationFlag::{Flex, Maint, Overlap};
    let both = |flag: &[ReservationFlag]| {
        vec![reserved("a", &[(0, "0-1")], (0, 4000), &[]), reserved("b", &[(0, "1-2")], (0, 4000), flag)]
    };
    let jobs = || vec![asking(1, Some("a"), 4, 600)];
    assert_eq!(started(&plan(&snapshot(vec![node(0, 4)], jobs(), both(&[Overlap])), NOW)), [start(1, "n0", "0-3")]);
    let made = plan(&snapshot(vec![node(0, 4)], jobs(), both(&[Maint])), NOW);
    assert_eq!((started(&made), made.reasons.len()), (vec![], 1));
    // Its jobs may have what nobody else has too.
    let flex = || reserved("a", &[(0, "0")], (500, 4000), &[Flex]);
    assert_eq!(started(&plan(&snapshot(vec![node(0, 4)], jobs(), vec![flex()]), NOW)), [start(1, "n0", "0-3")]);
    // Found by random snapshots: what it shares with one that has the whole node is its own cores.
    let all = reserved("b", &[(0, "")], (0, 4000), &[Overlap]);
    assert_eq!(started(&plan(&snapshot(vec![node(0, 4)], jobs(), vec![flex(), all]), NOW)), []);
}

#[test]
fn whole_sockets_are_others_as_soon_as_a_core_is() {
    let list = vec![reserved("one", &[(0, "0")], (0, 4000), &[])];
    let mut sockets = node(0, 4);
    (sockets.shape.sockets, sockets.shape.cores_per_socket) = (2, 2);
    let mut view = snapshot(vec![sockets], vec![asking(1, None, 1, 600), asking(2, None, 1, 600)], list);
    view.policy.unit = AllocationUnit::Socket;
    let made = plan(&view, NOW);
    assert_eq!((started(&made), expected(&made, 2)), (vec![start(1, "n0", "4-7")], Some(at(600))));
}

fn any_flags() -> impl Strategy<Value = Vec<ReservationFlag>> {
    use ReservationFlag::{Daily, Flex, Magnetic, Maint, Overlap};
    prop::collection::vec(prop::sample::select(vec![Maint, Overlap, Flex, Magnetic, Daily]), 0..2)
}

/// Cores of each of three nodes, or the whole node; begin, length, flags.
type Kept = (Vec<Option<(u32, u32)>>, bool, u64, u64, Vec<ReservationFlag>);

fn any_reservation() -> impl Strategy<Value = Kept> {
    let cores = prop::collection::vec(prop::option::weighted(0.7, (0u32..4, 1u32..4)), 3);
    (cores, prop::bool::weighted(0.8), 0u64..3000, 60u64..3000, any_flags())
}

/// Reservation asked for, tasks, nodes, sharing, limit, expedited.
type Wish = (Option<usize>, u32, u32, Sharing, u64, bool);

fn any_job() -> impl Strategy<Value = Wish> {
    let sharing = prop::sample::select(vec![
        Sharing::Default,
        Sharing::Default,
        Sharing::Default,
        Sharing::Exclusive,
        Sharing::User,
        Sharing::Oversubscribe,
    ]);
    (prop::option::of(0usize..3), 1u32..9, 1u32..3, sharing, 60u64..6000, prop::bool::weighted(0.05))
}

/// Who has what when.
#[derive(Debug)]
struct Held {
    job: JobId,
    node: String,
    cpus: CpuSet,
    from: Timestamp,
    until: Timestamp,
}

fn cpus_of(cores: &CpuSet) -> CpuSet {
    cores.iter().flat_map(|core| [2 * core, 2 * core + 1]).collect()
}

/// CPUs of that node that are the reservation's.
fn own_cpus(reservation: &Reservation, node: &str) -> CpuSet {
    match reservation.core_ids.get(node) {
        Some(cores) => cpus_of(cores),
        None if reservation.nodes.iter().any(|n| n == node) => (0..8).collect(),
        None => CpuSet::new(),
    }
}

/// Does that keep off what is not the job's? Said anew here.
fn keeps_off(held: &Held, own: Option<&Reservation>, list: &[Reservation]) -> Result<(), String> {
    let meets = |r: &Reservation| {
        r.times(NOW, 20, &TimeZone::UTC).iter().any(|(start, end)| held.from < *end && *start < held.until)
    };
    for other in list.iter().filter(|r| own.is_none_or(|own| own.name != r.name) && meets(r)) {
        let maintenance = |r: &Reservation| r.has(ReservationFlag::Maint);
        let overlaps = |r: &Reservation| r.has(ReservationFlag::Overlap);
        let mut theirs = own_cpus(other, &held.node);
        if let Some(own) = own
            && (maintenance(own) || (!maintenance(other) && (overlaps(own) || overlaps(other))))
        {
            theirs.subtract(&own_cpus(own, &held.node));
        }
        if !theirs.is_disjoint(&held.cpus) {
            return Err(format!("{} has CPUs of {}: {held:?}", held.job, other.name));
        }
    }
    let Some(own) = own.filter(|own| !own.has(ReservationFlag::Flex)) else { return Ok(()) };
    let inside =
        own.times(NOW, 64, &TimeZone::UTC).iter().any(|(start, end)| *start <= held.from && held.until <= *end);
    if inside && held.cpus.is_subset(&own_cpus(own, &held.node)) {
        Ok(())
    } else {
        Err(format!("{held:?} is outside of {}", own.name))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// On nodes of which a part is reserved no CPU is promised twice at any time, nobody is promised CPUs of others'
    /// reservations, and nobody in a reservation others than its own.
    #[test]
    fn nothing_overbooks_with_cores_reserved(
        list in prop::collection::vec(any_reservation(), 1..4),
        wishes in prop::collection::vec(any_job(), 1..14),
        busy in prop::collection::vec((0u32..3, 0u32..4, 1u32..4, 1i64..2000), 0..4),
        backfill in prop::sample::select(vec![Backfill::Conservative, Backfill::First(1), Backfill::Off]),
        unit in prop::sample::select(vec![AllocationUnit::Core, AllocationUnit::Cpu, AllocationUnit::Socket]),
        sockets in 1u32..3,
    ) {
        let list: Vec<Reservation> = list.iter().zip(0..).map(|((cores, by_core, from, length, flags), number)| {
            let places = cores.iter().zip(0u32..).filter_map(|(cores, node)| Some(((*cores)?, node)));
            let of_node = |((first, count), node): ((u32, u32), u32)| {
                let cores: CpuSet = (first..(first + count).min(4)).collect();
                (node, if *by_core { cores.to_string() } else { String::new() })
            };
            let cores: Vec<(u32, String)> = places.map(of_node).collect();
            let cores: Vec<(u32, &str)> = cores.iter().map(|(node, cores)| (*node, cores.as_str())).collect();
            reserved(&format!("r{number}"), &cores, (*from, from + length), flags)
        }).collect();
        let jobs: Vec<JobView> = wishes.into_iter().zip(1..).map(|((asked, tasks, nodes, sharing, secs, urgent), id)| {
            let name = asked.map(|number| format!("r{number}"));
            let mut job = asking(id, name.as_deref(), tasks.max(nodes), secs);
            let nodes = Some(NodeCount { min: nodes, max: None });
            let spec = JobSpec { sharing, nodes, ..(*job.spec).clone() };
            job = JobView { user: job.user, uid: job.uid, ..garrick_model::testing::job(id, spec) };
            if urgent {
                job.state = JobState::Expediting;
            }
            job
        }).collect();
        let mut nodes: Vec<NodeView> = (0..3).map(|n| node(n, 4)).collect();
        for node in &mut nodes {
            (node.shape.sockets, node.shape.cores_per_socket) = (sockets, 4 / sockets);
        }
        for (number, (place, first, count, end)) in (900..).zip(busy) {
            let cpus = 2 * first..2 * (first + count).min(4);
            let holds = &mut nodes[place as usize].holds;
            if holds.iter().all(|h| h.share.cpus.is_disjoint(&cpus.clone().into())) {
                holds.push(hold(number, cpus, 100, Some(NOW.secs() + end)));
            }
        }
        let mut view = snapshot(nodes, jobs.clone(), list.clone());
        (view.policy.backfill, view.policy.unit) = (backfill, unit);
        let made = plan(&view, NOW);

        let find = |name: &str| list.iter().find(|r| r.name == name);
        let parted = |place: usize| view.reservations.is_parted(place);
        let mut held: Vec<Held> = Vec::new();
        for (place, node) in view.nodes.iter().enumerate().filter(|(place, _)| parted(*place)) {
            held.extend(node.holds.iter().map(|h| {
                let (cpus, until) = (h.share.cpus.clone(), h.expected_end.unwrap());
                Held { job: h.job, node: view.nodes[place].name.clone(), cpus, from: NOW, until }
            }));
        }
        for start in &made.starts {
            let job = jobs.iter().find(|job| job.id == start.job).unwrap();
            let until = NOW.plus(job.time_limit.duration().unwrap());
            let own = start.reservation.as_deref().map(|name| find(name).unwrap());
            for node in &start.nodes {
                let cpus = node.share.cpus.clone();
                let one = Held { job: job.id, node: node.name.clone(), cpus, from: NOW, until };
                prop_assert_eq!(keeps_off(&one, own, &list), Ok(()));
                if parted(node.index.0 as usize) {
                    held.push(one);
                }
            }
        }
        let urgent = jobs.iter().any(|job| job.state == JobState::Expediting);
        for kept in made.reservations.iter().filter(|_| !urgent) {
            let job = jobs.iter().find(|job| job.id == kept.job).unwrap();
            let own = job.spec.reservations.first().map(|name| find(name).unwrap());
            for (place, what) in kept.nodes.iter().filter(|(place, _)| parted(*place)) {
                let node = view.nodes[*place].name.clone();
                let cpus = what.named.clone().unwrap_or_else(|| (0..8).collect());
                prop_assert!(cpus.len() >= what.cpus);
                let one = Held { job: job.id, node, cpus, from: kept.from, until: kept.until };
                prop_assert_eq!(keeps_off(&one, own, &list), Ok(()));
                held.push(one);
            }
        }
        for (number, one) in held.iter().enumerate() {
            for other in &held[..number] {
                let together = one.node == other.node && one.from < other.until && other.from < one.until;
                prop_assert!(!together || one.cpus.is_disjoint(&other.cpus), "{} and {}: {one:?}, {other:?}", one.job, other.job);
            }
        }
    }
}
