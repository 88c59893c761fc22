//! Cores that only jobs with a GPU get (`RestrictedCoresPerGPU`), in whole plans.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::cluster,
    plan::{Plan, plan, probe::Feasibility},
    snapshot::facts::{Backfill, ClusterView},
};
use garrick_model::{
    gres::{DevicePlace, GPU, GresBinding, GresCount, GresEntry, GresRequest, GresShare, devices_in},
    ids::JobId,
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{JobSpec, NodeCount, Sharing},
    state::Reason,
    testing::{hold, job, node, spec},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, JobView, NodeHold, NodeView},
};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_secs(100_000);

/// A node of eight cores of two threads with GPUs, each with so many cores of its own.
fn machine(index: u32, gpus: u32, cores: u32) -> NodeView {
    let mut node = node(index, 8);
    let near = DevicePlace { cpus: (0..16).collect(), ..DevicePlace::default() };
    node.shape.gres = vec![GresEntry {
        name: GPU.into(),
        kind: None,
        count: gpus.into(),
        no_consume: false,
        devices: true,
        places: vec![near; gpus as usize],
        shards: Vec::new(),
    }];
    let each = cores * 2;
    node.shape.gpu_cpus =
        if cores == 0 { Vec::new() } else { (0..gpus).map(|gpu| (gpu * each..(gpu + 1) * each).collect()).collect() };
    node
}

fn gpus(count: u64) -> Vec<GresCount> {
    vec![GresCount { name: GPU.into(), kind: None, count }]
}

fn small(tasks: u32, cpus: u32, gres: GresRequest) -> JobSpec {
    let memory = MemoryRequest::PerNode(MemoryMib(10));
    JobSpec { tasks: Some(tasks), cpus_per_task: Some(cpus), memory, gres, ..spec() }
}

fn without(tasks: u32) -> JobSpec {
    small(tasks, 1, GresRequest::default())
}

fn per_node(tasks: u32, cpus: u32, count: u64) -> JobSpec {
    small(tasks, cpus, GresRequest { per_node: gpus(count), ..GresRequest::default() })
}

fn in_all(tasks: u32, cpus: u32, count: u64) -> JobSpec {
    small(tasks, cpus, GresRequest { total: gpus(count), ..GresRequest::default() })
}

fn jobs(specs: Vec<JobSpec>) -> Vec<JobView> {
    specs.into_iter().zip(1..).map(|(spec, id)| job(id, spec)).collect()
}

fn given(plan: &Plan) -> Vec<(u32, String)> {
    let of = |nodes: &[AllocatedNode]| {
        let text = nodes.iter().map(|n| format!("{}={}", n.name, n.share.cpus));
        text.collect::<Vec<_>>().join(" ")
    };
    plan.starts.iter().map(|s| (s.job.0, of(&s.nodes))).collect()
}

fn planned(nodes: Vec<NodeView>, specs: Vec<JobSpec>) -> Plan {
    plan(&cluster(nodes, jobs(specs)), NOW)
}

#[test]
fn jobs_without_a_gpu_leave_its_cores_to_those_with_one() {
    let plan_of = planned(vec![machine(0, 4, 1)], vec![without(8), without(1), per_node(2, 1, 1), per_node(1, 4, 2)]);
    let want = [(1, "n0=8-15"), (3, "n0=0-1"), (4, "n0=2-5")];
    assert_eq!(given(&plan_of), want.map(|(id, text)| (id, text.to_owned())));
    assert_eq!(plan_of.reasons, [(JobId(2), Reason::Resources)]);
}

#[test]
fn more_than_comes_with_its_gpus_is_taken_of_what_is_for_all() {
    let plan_of = planned(vec![machine(0, 4, 1)], vec![per_node(1, 6, 1), per_node(1, 6, 1), without(1)]);
    let want = [(1, "n0=0-1,8-11"), (2, "n0=2-3,12-15")];
    assert_eq!(given(&plan_of), want.map(|(id, text)| (id, text.to_owned())));
    let plan_of = planned(vec![machine(0, 4, 1)], vec![per_node(1, 14, 1)]);
    assert_eq!(given(&plan_of), []);
}

#[test]
fn where_all_cores_come_with_gpus_jobs_have_as_many_as_their_gpus_bring() {
    let nodes = || vec![machine(0, 4, 2), machine(1, 4, 2)];
    let of = |specs| given(&planned(nodes(), specs));
    assert_eq!(of(vec![in_all(1, 8, 2)]), [(1, "n0=0-7".to_owned())]);
    let wide = JobSpec { nodes: Some(NodeCount { min: 2, max: Some(2) }), ..in_all(8, 4, 8) };
    assert_eq!(of(vec![wide]), [(1, "n0=0-15 n1=0-15".to_owned())]);
    let strict = GresRequest { total: gpus(2), binding: Some(GresBinding::Enforce), ..GresRequest::default() };
    assert_eq!(of(vec![small(1, 8, strict)]), [(1, "n0=0-7".to_owned())]);
    let any = GresRequest { per_node: gpus(1), binding: Some(GresBinding::Disable), ..GresRequest::default() };
    assert_eq!(of(vec![small(1, 4, any)]), [(1, "n0=0-3".to_owned())]);
    let tasks = GresRequest { per_task: gpus(1), ..GresRequest::default() };
    assert_eq!(of(vec![small(6, 4, tasks)]), [(1, "n0=0-15 n1=0-7".to_owned())]);
    let mut feasibility = Feasibility::new(cluster(nodes(), Vec::new()));
    assert!(feasibility.check(&job(1, without(1))).is_err());
    assert!(feasibility.check(&job(1, per_node(1, 5, 1))).is_err());
    assert!(feasibility.check(&job(1, in_all(1, 16, 4))).is_ok());
}

#[test]
fn whoever_has_the_node_has_all_its_cores() {
    let alone = JobSpec { sharing: Sharing::Exclusive, ..without(16) };
    assert_eq!(given(&planned(vec![machine(0, 4, 2)], vec![alone])), [(1, "n0=0-15".to_owned())]);
}

#[test]
fn what_is_planned_for_later_counts_cores_with_their_gpus() {
    let mut node = machine(0, 2, 2);
    node.holds.push(busy(&node, 2, 8, 600));
    // The first waits for both GPUs; what is for all stays free for others until then, and as long as they like.
    let long = JobSpec { time_limit: Some(TimeLimit::Secs(9000)), ..without(8) };
    let plan_of = planned(vec![node.clone()], vec![per_node(1, 8, 2), long]);
    assert_eq!(given(&plan_of), [(2, "n0=8-15".to_owned())]);
    assert_eq!(plan_of.reservations.len(), 1);
    assert_eq!((plan_of.reservations[0].nodes[0].1.cpus, plan_of.reservations[0].nodes[0].1.with_gpus), (0, 8));
}

/// Somebody who has so many GPUs with what comes with them, and of the rest what is missing.
fn busy(node: &NodeView, count: u32, cpus: u32, secs: i64) -> NodeHold {
    let devices: CpuSet = (0..count).collect();
    let all = node.shape.job_cpus_with(&devices);
    let mut hold = hold(9000 + node.index.0, 0..0, 10, Some(NOW.secs() + secs));
    hold.share.cpus = all.take(cpus);
    hold.share.gres = vec![GresShare { name: GPU.into(), kind: None, count: count.into(), devices }];
    hold
}

/// Recounts who has which CPUs now, and how many are taken whenever something begins.
fn wrong(view: &ClusterView, plan: &Plan) -> Option<String> {
    for (place, node) in view.nodes.iter().enumerate() {
        let mut held = CpuSet::new();
        let shares = plan.starts.iter().flat_map(|s| s.nodes.iter().map(move |n| (s.job, n)));
        let shares = shares.filter(|(_, n)| n.index == node.index).map(|(job, n)| (job, &n.share));
        for (job, share) in node.holds.iter().map(|hold| (hold.job, &hold.share)).chain(shares) {
            if !share.cpus.is_disjoint(&held) {
                return Some(format!("{}: {} given twice", node.name, share.cpus.intersection(&held)));
            }
            held.add(&share.cpus);
            let own = devices_in(&share.gres, GPU);
            if !share.cpus.is_subset(&node.shape.job_cpus_with(&own)) {
                return Some(format!("job {job:?} has {} with GPUs {own}", share.cpus));
            }
        }
        let later = || plan.reservations.iter().filter(|r| r.nodes.iter().any(|(n, _)| *n == place));
        for at in later().map(|r| r.from) {
            let there = later().filter(|r| r.from <= at && r.until > at).flat_map(|r| &r.nodes);
            let taken: u32 = there.filter(|(n, _)| *n == place).map(|(_, what)| what.cpus).sum();
            let limit = node.shape.common_cpu_count();
            let whole =
                later().flat_map(|r| &r.nodes).any(|(_, a)| a.usage == crate::snapshot::request::NodeUse::Whole);
            if !whole && taken > limit {
                return Some(format!("{}: {taken} of {limit} CPUs at {at:?}", node.name));
            }
        }
    }
    None
}

fn any_job() -> impl Strategy<Value = JobSpec> {
    (1u32..5, 1u32..7, 0u64..4, 0u8..6, 1u64..90, 0u8..10).prop_map(|(tasks, cpus, count, form, minutes, sharing)| {
        let mut spec = match form {
            0 => small(tasks, cpus, GresRequest { per_task: gpus(count), ..GresRequest::default() }),
            1 => in_all(tasks, cpus, count),
            2 => JobSpec { nodes: Some(NodeCount { min: 2, max: Some(3) }), ..in_all(tasks + 1, cpus, count + 2) },
            3 => per_node(tasks, cpus, count),
            4 => {
                let binding = Some(GresBinding::Enforce);
                small(tasks, cpus, GresRequest { total: gpus(count), binding, ..GresRequest::default() })
            }
            _ => small(tasks, cpus, GresRequest::default()),
        };
        spec.time_limit = Some(TimeLimit::Secs(minutes * 60));
        spec.sharing = match sharing {
            0 => Sharing::Exclusive,
            1 => Sharing::User,
            _ => Sharing::Default,
        };
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_job_without_the_gpu_has_one_of_its_cores(
        machines in prop::collection::vec((0u32..5, 0u32..3, prop::option::of((0u32..4, 1u32..16, 1i64..60))), 1..5),
        specs in prop::collection::vec(any_job(), 1..14),
        backfill in prop_oneof![Just(Backfill::Off), Just(Backfill::First(1)), Just(Backfill::Conservative)],
    ) {
        let nodes = machines.into_iter().zip(0..).map(|((count, cores, held), index)| {
            let mut node = machine(index, count, cores);
            if let Some((gpus, cpus, minutes)) = held {
                node.holds.push(busy(&node, gpus.min(count), cpus, minutes * 60));
            }
            node
        });
        let mut view = cluster(nodes.collect(), jobs(specs));
        view.policy.backfill = backfill;
        let plan_of = plan(&view, NOW);
        prop_assert_eq!(wrong(&view, &plan_of), None);
        for start in &plan_of.starts {
            let job = view.pending.iter().find(|j| j.id == start.job).unwrap();
            for share in start.nodes.iter().map(|n| &n.share) {
                prop_assert!(share.cpus.len() >= share.tasks * job.cpus_per_task.max(1));
            }
        }
    }
}
