//! Cores that jobs leave to the system (`--core-spec`, `--thread-spec`), in whole plans.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::cluster,
    plan::{Plan, plan, probe::Feasibility},
    snapshot::facts::{Backfill, ClusterView},
};
use garrick_model::{
    node_shape::SpecCores,
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{JobSpec, LayoutRequest, Sharing},
    testing::{hold, job, node, spec},
    time::{TimeLimit, Timestamp},
    view::NodeView,
};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_secs(100_000);

/// Two sockets of four cores of two threads; so many cores are set aside.
fn machine(index: u32, reserved: u32) -> NodeView {
    let mut node = node(index, 8);
    (node.shape.sockets, node.shape.cores_per_socket) = (2, 4);
    let cores = node.shape.cores_to_set_aside().take(reserved as usize);
    node.shape.reserved_cpus = cores.flat_map(|core| node.shape.cpus_of_core(core)).collect();
    node
}

/// As admission leaves it.
fn leaving(left: SpecCores, tasks: u32) -> JobSpec {
    let layout = LayoutRequest { left_to_system: Some(left), ..LayoutRequest::default() };
    let memory = MemoryRequest::PerNode(MemoryMib(10));
    JobSpec { tasks: Some(tasks), sharing: Sharing::Exclusive, layout, memory, ..spec() }
}

fn small(tasks: u32) -> JobSpec {
    JobSpec { tasks: Some(tasks), memory: MemoryRequest::PerNode(MemoryMib(10)), ..spec() }
}

fn cpus(view: &ClusterView) -> Vec<String> {
    plan(view, NOW).starts.iter().flat_map(|s| &s.nodes).map(|n| n.share.cpus.to_string()).collect()
}

fn given(node: NodeView, spec: JobSpec) -> Vec<String> {
    cpus(&cluster(vec![node], vec![job(1, spec)]))
}

#[test]
fn memory_per_cpu_is_that_of_the_cpus_it_has() {
    let (mut large, per_cpu) = (machine(0, 0), MemoryRequest::PerCpu(MemoryMib(100)));
    large.shape.memory = MemoryMib(1400);
    let asks = |left| JobSpec { memory: per_cpu, ..leaving(SpecCores::Cores(left), 1) };
    assert_eq!(given(large.clone(), asks(1)), ["0-13"]);
    assert!(given(large.clone(), asks(0)).is_empty());
    large.shape.memory = MemoryMib(1399);
    assert!(given(large, asks(1)).is_empty());
}

#[test]
fn a_job_has_the_whole_node_less_what_it_leaves() {
    assert_eq!(given(machine(0, 2), leaving(SpecCores::Cores(1), 1)), ["0-13"]);
    assert_eq!(given(machine(0, 2), leaving(SpecCores::Cores(2), 1)), ["0-5,8-13"]);
    assert_eq!(given(machine(0, 2), leaving(SpecCores::Cores(3), 1)), ["0-5,8-11"]);
    assert_eq!(given(machine(0, 0), leaving(SpecCores::Cores(1), 1)), ["0-13"]);
    assert_eq!(given(machine(0, 2), leaving(SpecCores::Cores(0), 16)), ["0-15"]);
    assert_eq!(given(machine(0, 0), leaving(SpecCores::Threads(3), 1)), ["0-6,8-13"]);
    // Of a list the lowest stay (the example of core_spec.html).
    let mut listed = machine(0, 0);
    listed.shape.reserved_cpus = (0..4).collect();
    assert_eq!(given(listed, leaving(SpecCores::Cores(1), 1)), ["2-15"]);
}

#[test]
fn it_counts_on_what_it_will_have() {
    let could = |reserved, left, tasks| {
        let view = cluster(vec![machine(0, reserved)], Vec::new());
        Feasibility::new(view).check(&job(1, leaving(left, tasks))).is_ok()
    };
    assert!(could(2, SpecCores::Cores(1), 14) && !could(2, SpecCores::Cores(1), 15));
    assert!(could(0, SpecCores::Cores(7), 2) && !could(0, SpecCores::Cores(8), 1));
    assert!(could(0, SpecCores::Threads(15), 1) && !could(0, SpecCores::Threads(16), 1));
    // Also for later.
    let mut busy = machine(0, 4);
    busy.holds.push(hold(90, 0..2, 10, Some(NOW.secs() + 600)));
    let view = cluster(vec![busy], vec![job(1, leaving(SpecCores::Cores(0), 16)), job(2, small(2))]);
    let plan_of = plan(&view, NOW);
    assert!(plan_of.starts.is_empty(), "an hour's job would be in the way");
    assert_eq!(plan_of.reservations.first().map(|r| (r.job.0, r.nodes[0].1.cpus)), Some((1, 16)));
}

/// What is given twice, or to somebody whom it is not for.
fn wrong(view: &ClusterView, plan: &Plan) -> Option<String> {
    for node in &view.nodes {
        let mut held: CpuSet = CpuSet::new();
        let starts = plan.starts.iter().flat_map(|s| s.nodes.iter().map(move |n| (s.job, n)));
        let here = starts.filter(|(_, n)| n.index == node.index);
        let shares: Vec<_> =
            here.map(|(id, n)| (view.pending.iter().find(|job| job.id == id), n.share.cpus.clone())).collect();
        let before = node.holds.iter().map(|hold| (None, hold.share.cpus.clone()));
        let count = shares.len() + node.holds.len();
        for (job, cpus) in before.chain(shares) {
            if !cpus.is_disjoint(&held) {
                return Some(format!("{}: {} given twice", node.name, cpus.intersection(&held)));
            }
            held.add(&cpus);
            let left = job.and_then(|job| job.spec.layout.left_to_system);
            let may = left.map_or_else(|| node.shape.job_cpus(), |left| node.shape.job_cpus_but(left));
            if !cpus.is_subset(&may) || (left.is_some() && (cpus != may || count > 1)) {
                return Some(format!("{}: {cpus} of {may} for {left:?} among {count}", node.name));
            }
        }
    }
    None
}

fn any_job() -> impl Strategy<Value = JobSpec> {
    (1u32..20, 0u8..8, 0u32..9, 1u64..90).prop_map(|(tasks, form, left, minutes)| {
        let spec = match form {
            0 | 1 => leaving(SpecCores::Cores(left), tasks),
            2 => leaving(SpecCores::Threads(left), tasks),
            3 => JobSpec { sharing: Sharing::Exclusive, ..small(tasks) },
            _ => small(tasks),
        };
        JobSpec { time_limit: Some(TimeLimit::Secs(minutes * 60)), ..spec }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_core_is_given_twice_or_against_its_purpose(
        machines in prop::collection::vec((0u32..5, prop::option::of((1u32..6, 1i64..60))), 1..5),
        specs in prop::collection::vec(any_job(), 1..14),
        backfill in prop_oneof![Just(Backfill::Off), Just(Backfill::First(1)), Just(Backfill::Conservative)],
    ) {
        let nodes = machines.into_iter().zip(0..).map(|((reserved, held), index)| {
            let mut node = machine(index, reserved);
            if let Some((cpus, minutes)) = held {
                let mut hold = hold(9000 + index, 0..0, 10, Some(NOW.secs() + minutes * 60));
                hold.share.cpus = node.shape.job_cpus().take(cpus);
                node.holds.push(hold);
            }
            node
        });
        let mut view = cluster(nodes.collect(), specs.into_iter().zip(1..).map(|(spec, id)| job(id, spec)).collect());
        view.policy.backfill = backfill;
        let plan_of = plan(&view, NOW);
        prop_assert_eq!(wrong(&view, &plan_of), None);
    }
}
