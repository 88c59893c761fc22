//! `MaxCPUsPerNode` and `MaxCPUsPerSocket`, in whole plans.
#![allow(clippy::unwrap_used)]

use super::{
    caps::CpuCaps,
    facts::{Backfill, ClusterView, PartitionSharing},
    fixtures::{cluster, hold, job, node, partition, spec},
    plan::{Plan, plan},
    probe::Feasibility,
};
use garrick_model::{
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{JobSpec, Sharing},
    time::{TimeLimit, Timestamp},
    view::NodeView,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: Timestamp = Timestamp::from_secs(100_000);

/// Two sockets of four cores of two threads.
fn machine(index: u32) -> NodeView {
    let mut node = node(index, 8);
    (node.shape.sockets, node.shape.cores_per_socket) = (2, 4);
    node
}

fn small(tasks: u32, partition: &str) -> JobSpec {
    let memory = MemoryRequest::PerNode(MemoryMib(10));
    JobSpec { tasks: Some(tasks), memory, partitions: vec![partition.to_owned()], ..spec() }
}

/// Partitions `cpu`, with limits, and `gpu`, without, over all nodes.
fn shared_nodes(nodes: Vec<NodeView>, specs: Vec<JobSpec>, caps: CpuCaps) -> ClusterView {
    let count = nodes.len();
    let mut view = cluster(nodes, specs.into_iter().zip(1..).map(|(spec, id)| job(id, spec)).collect());
    view.partitions = vec![partition("cpu", 0..count), partition("gpu", 0..count)];
    view.partitions[0].caps = caps;
    view
}

fn given(view: &ClusterView) -> Vec<(u32, String)> {
    let plan = plan(view, NOW);
    let cpus = |s: &super::plan::StartProposal| {
        s.nodes.iter().map(|n| format!("{}={}", n.name, n.share.cpus)).collect::<Vec<_>>().join(" ")
    };
    plan.starts.iter().map(|s| (s.job.0, cpus(s))).collect()
}

const SIX: CpuCaps = CpuCaps { per_node: Some(6), per_socket: None };
const FOUR_A_SOCKET: CpuCaps = CpuCaps { per_node: None, per_socket: Some(4) };

#[test]
fn jobs_of_a_partition_share_its_part_of_a_node() {
    let specs = || vec![small(4, "cpu"), small(4, "cpu"), small(2, "cpu"), small(10, "gpu")];
    let view = shared_nodes(vec![machine(0)], specs(), SIX);
    let on_n0 = |id: u32, cpus: &str| (id, format!("n0={cpus}"));
    assert_eq!(given(&view), [on_n0(1, "0-3"), on_n0(3, "4-5"), on_n0(4, "6-15")]);
    // What others of the partition have there already counts too, and only that.
    let mut busy = machine(0);
    busy.holds.push(hold(90, 0..4, 10, Some(NOW.secs() + 600)));
    busy.holds[0].partition = Some("cpu".to_owned());
    assert_eq!(given(&shared_nodes(vec![busy.clone()], specs(), SIX)), [on_n0(3, "4-5"), on_n0(4, "6-15")]);
    busy.holds[0].partition = Some("gpu".to_owned());
    let last = given(&shared_nodes(vec![busy.clone()], specs(), SIX));
    assert_eq!(last, [on_n0(1, "4-7"), on_n0(3, "8-9")]);
}

#[test]
fn a_socket_gives_a_partition_so_many() {
    let on_n0 = |id: u32, cpus: &str| (id, format!("n0={cpus}"));
    let specs = vec![small(6, "cpu"), small(4, "cpu"), small(2, "cpu"), small(8, "gpu")];
    let view = shared_nodes(vec![machine(0)], specs, FOUR_A_SOCKET);
    assert_eq!(given(&view), [on_n0(1, "0-3,8-9"), on_n0(3, "10-11"), on_n0(4, "4-7,12-15")]);
    let view = shared_nodes(vec![machine(0)], Vec::new(), FOUR_A_SOCKET);
    let could = |tasks| Feasibility::new(view.clone()).check(&job(1, small(tasks, "cpu"))).is_ok();
    assert!(could(8) && !could(9));
}

#[test]
fn room_for_later_is_looked_for_within_the_limit() {
    let mut busy = machine(0);
    busy.holds.push(hold(90, 0..4, 10, Some(NOW.secs() + 600)));
    busy.holds[0].partition = Some("cpu".to_owned());
    let view = shared_nodes(vec![busy], vec![small(4, "cpu")], SIX);
    let plan = plan(&view, NOW);
    assert!(plan.starts.is_empty());
    let from: Vec<_> = plan.reservations.iter().map(|r| r.from.secs()).collect();
    assert_eq!(from, [NOW.secs() + 600]);
}

/// Who has more than he may.
fn wrong(view: &ClusterView, plan: &Plan) -> Option<String> {
    for node in &view.nodes {
        let mut by_partition: BTreeMap<&str, CpuSet> = BTreeMap::new();
        for hold in &node.holds {
            by_partition.entry(hold.partition.as_deref().unwrap()).or_default().add(&hold.share.cpus);
        }
        for start in &plan.starts {
            for share in start.nodes.iter().filter(|n| n.index == node.index).map(|n| &n.share) {
                if start.usage.sharing() != Sharing::Exclusive {
                    by_partition.entry(&start.partition).or_default().add(&share.cpus);
                }
                let job = view.pending.iter().find(|job| job.id == start.job).unwrap();
                if share.cpus.len() < share.tasks * job.cpus_per_task {
                    return Some(format!("job {:?} has only {}", job.id, share.cpus));
                }
            }
        }
        for (name, cpus) in by_partition {
            let caps = view.partition(name).unwrap().1.caps;
            if !caps.allow(&node.shape, &cpus) {
                return Some(format!("{}: {name} has {cpus} of {caps:?}", node.name));
            }
        }
    }
    None
}

fn any_job() -> impl Strategy<Value = JobSpec> {
    (1u32..8, 1u32..4, 0u8..8, 1u64..90, any::<bool>()).prop_map(|(tasks, cpus, form, minutes, limited)| {
        let sharing = match form {
            0 => Sharing::Exclusive,
            1 => Sharing::User,
            2 | 3 => Sharing::Oversubscribe,
            _ => Sharing::Default,
        };
        let time_limit = Some(TimeLimit::Secs(minutes * 60));
        let cpus_per_task = Some(cpus);
        JobSpec { sharing, time_limit, cpus_per_task, ..small(tasks, if limited { "cpu" } else { "gpu" }) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_partition_has_more_than_its_part(
        machines in prop::collection::vec(prop::option::of((1u32..5, any::<bool>(), 1i64..60)), 1..4),
        specs in prop::collection::vec(any_job(), 1..14),
        per_node in prop::option::of(4u32..12),
        per_socket in prop::option::of(4u32..7),
        shares in any::<bool>(),
        backfill in prop_oneof![Just(Backfill::Off), Just(Backfill::First(1)), Just(Backfill::Conservative)],
    ) {
        let nodes = machines.into_iter().zip(0..).map(|(held, index)| {
            let mut node = machine(index);
            if let Some((cpus, limited, minutes)) = held {
                let mut hold = hold(9000 + index, 0..cpus, 10, Some(NOW.secs() + minutes * 60));
                hold.partition = Some(if limited { "cpu" } else { "gpu" }.to_owned());
                node.holds.push(hold);
            }
            node
        });
        let mut view = shared_nodes(nodes.collect(), specs, CpuCaps { per_node, per_socket });
        view.policy.backfill = backfill;
        if shares {
            view.partitions[0].sharing = PartitionSharing::Yes(2);
        }
        let plan_of = plan(&view, NOW);
        prop_assert_eq!(wrong(&view, &plan_of), None);
    }
}
