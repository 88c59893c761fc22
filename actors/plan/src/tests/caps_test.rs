//! `MaxCPUsPerNode` and `MaxCPUsPerSocket`, in whole plans.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::{cluster, partition},
    plan::{Plan, plan, probe::Feasibility},
    room::{node::free::Amount, promises::Promises},
    snapshot::{
        caps::CpuCaps,
        facts::{Backfill, ClusterView, PartitionSharing},
        request::{NodeUse, Owner},
    },
};
use garrick_model::{
    node_shape::NodeShare,
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{CpuOrder, JobSpec, NodeCount, Sharing},
    testing::{hold, job, node, spec},
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
    // CPUs in their order.
    view.policy.over_sockets = CpuOrder::Block;
    view
}

fn given(view: &ClusterView) -> Vec<(u32, String)> {
    let plan = plan(view, NOW);
    let cpus = |s: &crate::proposals::StartProposal| {
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

/// slurm.conf(5): no more than that is available to jobs of the partition.
#[test]
fn with_a_node_to_itself_a_job_asks_for_no_more_and_is_given_all_of_it() {
    let alone = |tasks| JobSpec { sharing: Sharing::Exclusive, ..small(tasks, "cpu") };
    for caps in [SIX, FOUR_A_SOCKET] {
        let most = caps.most(&machine(0).shape);
        let view = shared_nodes(vec![machine(0)], vec![alone(most)], caps);
        assert_eq!(given(&view), [(1, "n0=0-15".to_owned())]);
        let could = |tasks| Feasibility::new(view.clone()).check(&job(1, alone(tasks))).is_ok();
        assert!(could(most) && !could(most + 1));
    }
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

proptest! {
    #[test]
    fn what_is_promised_is_the_most_at_any_time(
        held in prop::collection::vec((1i64..30, 1u32..5), 0..6),
        reserved in prop::collection::vec((0i64..30, 1i64..20, 1u32..5), 0..8),
        (from, length) in (0i64..30, 1i64..20),
    ) {
        let at = |secs: i64| Timestamp::from_secs(100_000 + secs);
        let mut busy = machine(1);
        for ((end, cpus), id) in held.iter().zip(90..) {
            let mut one = hold(id, 0..*cpus, 1, Some(100_000 + end));
            one.partition = Some("cpu".to_owned());
            busy.holds.push(one);
        }
        let view = shared_nodes(vec![machine(0), busy], Vec::new(), SIX);
        let mut promises = Promises::of(&view);
        for (begin, secs, cpus) in &reserved {
            let share = NodeShare { cpus: CpuSet::from(0..*cpus), memory: None, tasks: 1, gres: Vec::new() };
            let what = Amount::of_share(&machine(1).shape, &share, NodeUse::Cpus, Owner::ANYBODY);
            promises.reserve(0, &[(1, what.clone())], (at(*begin), at(begin + secs)));
            promises.reserve(1, &[(1, what)], (at(*begin), at(begin + secs)));
        }
        let has = |t: i64| held.iter().filter(|(end, _)| *end > t).map(|(_, cpus)| cpus).sum::<u32>();
        let will = |t: i64| reserved.iter().filter(|(b, n, _)| (*b..b + n).contains(&t)).map(|(_, _, c)| c).sum::<u32>();
        let most = (from..from + length).map(|t| has(t) + will(t)).max().unwrap().saturating_sub(has(from));
        let window = (at(from), at(from + length));
        let told = promises.within(0, &view.partitions[0].nodes, window);
        prop_assert_eq!(told.get(&1).copied().unwrap_or(0), most);
        prop_assert!(!told.contains_key(&0));
        prop_assert!(promises.within(1, &view.partitions[1].nodes, window).is_empty());
    }
}

#[test]
fn a_large_job_has_room_reserved_however_much_changes_before() {
    let busy = |index: u32| {
        let mut node = machine(index);
        node.holds.push(hold(900 + index, 0..16, 10, Some(NOW.secs() + 60 * (i64::from(index) + 1))));
        node.holds[0].partition = Some("gpu".to_owned());
        node
    };
    let wide = JobSpec { nodes: Some(NodeCount { min: 250, max: None }), ..small(250, "cpu") };
    let view = shared_nodes((0..250).map(busy).collect(), vec![wide], SIX);
    let from: Vec<_> = plan(&view, NOW).reservations.iter().map(|r| r.from.secs() - NOW.secs()).collect();
    assert_eq!(from.len(), 1);
    assert!((250 * 60..=251 * 60).contains(&from[0]), "{from:?}");
}

#[test]
fn where_too_many_times_would_be_tried_amounts_do() {
    let busy = |index: u32| {
        let mut node = machine(index);
        let minute = |n: u32| Some(NOW.secs() + 60 * i64::from(n));
        node.holds.push(hold(900 + index, 0..4, 10, minute(300)));
        node.holds.push(hold(1900 + index, 4..6, 10, minute(index + 1)));
        node.holds[0].partition = Some("cpu".to_owned());
        node.holds[1].partition = Some("gpu".to_owned());
        node
    };
    let on_one = JobSpec { nodes: Some(NodeCount { min: 1, max: Some(1) }), ..small(4, "cpu") };
    let view = shared_nodes((0..250).map(busy).collect(), vec![on_one], SIX);
    let plan = plan(&view, NOW);
    assert!(plan.starts.is_empty());
    assert_eq!(plan.reservations.len(), 1);
}

#[test]
fn however_many_wait_for_their_part_those_with_named_nodes_have_room_reserved() {
    let short = |spec: JobSpec| JobSpec { time_limit: Some(TimeLimit::Secs(600)), ..spec };
    let mut specs = vec![short(small(2, "cpu")); 250];
    specs.push(short(JobSpec { nodelist: vec!["n1".to_owned()], ..small(1, "gpu") }));
    let busy = |index| NodeView { holds: vec![hold(900, 0..16, 0, Some(NOW.secs() + 600))], ..machine(index) };
    let view = shared_nodes(vec![busy(0), busy(1)], specs, SIX);
    let reserved: Vec<u32> = plan(&view, NOW).reservations.iter().map(|r| r.job.0).collect();
    assert_eq!(reserved, (1..=251).collect::<Vec<_>>());
}
