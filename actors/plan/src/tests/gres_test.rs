//! Generic resources in whole plans.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::cluster,
    plan::{Plan, plan, probe::Feasibility},
    snapshot::facts::{Backfill, ClusterView},
};
use garrick_model::{
    gres::{DevicePlace, GPU, GresAmounts, GresBinding, GresCount, GresEntry, GresPool, GresRequest, SHARD, list},
    ids::JobId,
    resources::MemoryMib,
    spec::{CpuOrder, JobSpec, NodeCount, Sharing},
    state::Reason,
    testing::{hold, job, node, spec},
    time::{TimeLimit, Timestamp},
    view::{JobView, NodeHold, NodeView},
};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_secs(100_000);

fn entry(kind: Option<&str>, count: u64) -> GresEntry {
    GresEntry {
        name: GPU.into(),
        kind: kind.map(Into::into),
        count,
        no_consume: false,
        devices: true,
        places: Vec::new(),
        shards: Vec::new(),
    }
}

fn with_gpus(index: u32, entries: Vec<GresEntry>) -> NodeView {
    let mut node = node(index, 8);
    node.shape.gres = entries;
    node
}

fn gpus(kind: Option<&str>, count: u64) -> Vec<GresCount> {
    vec![GresCount { name: GPU.into(), kind: kind.map(Into::into), count }]
}

fn asks(gres: GresRequest) -> JobSpec {
    JobSpec { gres, ..spec() }
}

fn on_node(kind: Option<&str>, count: u64) -> JobSpec {
    asks(GresRequest { per_node: gpus(kind, count), ..GresRequest::default() })
}

fn held(job: u32, cpus: std::ops::Range<u32>, node: &NodeView, count: u64, end: Option<i64>) -> NodeHold {
    let pool = GresPool::all(&node.shape.gres);
    let mut hold = hold(job, cpus, 10, end);
    hold.share.gres = pool.choose(&node.shape.gres, &gpus(None, count), None).unwrap();
    hold
}

fn given(plan: &Plan) -> Vec<(u32, String)> {
    let of = |nodes: &[garrick_model::view::AllocatedNode]| {
        nodes.iter().map(|n| format!("{}={}", n.name, list(&n.share.gres))).collect::<Vec<_>>().join(" ")
    };
    plan.starts.iter().map(|s| (s.job.0, of(&s.nodes))).collect()
}

fn jobs(specs: Vec<JobSpec>) -> Vec<JobView> {
    specs.into_iter().zip(1..).map(|(spec, id)| job(id, spec)).collect()
}

#[test]
fn each_job_gets_devices_of_its_own_and_the_next_one_waits_for_resources() {
    let nodes = vec![with_gpus(0, vec![entry(Some("h100"), 4)])];
    let specs = vec![on_node(None, 2), on_node(Some("h100"), 1), on_node(None, 2), spec()];
    let plan_of = plan(&cluster(nodes, jobs(specs)), NOW);
    let want = [(1, "n0=gpu:h100:2(IDX:0-1)"), (2, "n0=gpu:h100:1(IDX:2)"), (4, "n0=")];
    assert_eq!(given(&plan_of), want.map(|(id, text)| (id, text.to_owned())));
    assert_eq!(plan_of.reasons, [(JobId(3), Reason::Resources)]);
    assert_eq!(plan_of.reservations.len(), 1);
}

#[test]
fn tasks_bring_their_gpus_over_several_nodes() {
    let nodes = vec![with_gpus(0, vec![entry(None, 2)]), node(1, 8), with_gpus(2, vec![entry(None, 4)])];
    let per_task = GresRequest { per_task: gpus(None, 1), ..GresRequest::default() };
    let specs = vec![JobSpec { tasks: Some(5), ..asks(per_task) }];
    let plan_of = plan(&cluster(nodes, jobs(specs)), NOW);
    assert_eq!(given(&plan_of), [(1, "n0=gpu:2(IDX:0-1) n2=gpu:3(IDX:0-2)".to_owned())]);
}

#[test]
fn a_number_for_all_nodes_is_shared_out_among_them() {
    let nodes = || vec![with_gpus(0, vec![entry(None, 3)]), with_gpus(1, vec![entry(None, 4)])];
    let total = |count| GresRequest { total: gpus(None, count), ..GresRequest::default() };
    let wide = |count, nodes: (u32, u32)| JobSpec {
        nodes: Some(NodeCount { min: nodes.0, max: Some(nodes.1) }),
        ..asks(total(count))
    };
    let plan_of = plan(&cluster(nodes(), jobs(vec![wide(6, (1, 6))])), NOW);
    assert_eq!(given(&plan_of), [(1, "n0=gpu:3(IDX:0-2) n1=gpu:3(IDX:0-2)".to_owned())]);
    let plan_of = plan(&cluster(nodes(), jobs(vec![wide(4, (1, 1))])), NOW);
    assert_eq!(given(&plan_of), [(1, "n1=gpu:4(IDX:0-3)".to_owned())]);
    assert_eq!(given(&plan(&cluster(nodes(), jobs(vec![wide(8, (1, 8))])), NOW)), []);
    let mut feasibility = Feasibility::new(cluster(nodes(), Vec::new()));
    assert!(feasibility.check(&job(1, wide(8, (1, 8)))).is_err());
    assert!(feasibility.check(&job(1, wide(7, (1, 8)))).is_ok());
    assert!(feasibility.check(&job(1, on_node(Some("h100"), 1))).is_err());
}

#[test]
fn several_types_are_shared_out_each_and_every_node_has_some_of_each() {
    let mixed = |a100, h100| vec![entry(Some("a100"), a100), entry(Some("h100"), h100)];
    let nodes = || vec![with_gpus(0, mixed(0, 4)), with_gpus(1, mixed(2, 1)), with_gpus(2, mixed(1, 3))];
    let wants = |h100, a100| {
        let total = [gpus(Some("h100"), h100), gpus(Some("a100"), a100)].concat();
        let nodes = Some(NodeCount { min: 1, max: Some(3) });
        JobSpec { nodes, ..asks(GresRequest { total, ..GresRequest::default() }) }
    };
    let of = |spec| given(&plan(&cluster(nodes(), jobs(vec![spec])), NOW));
    assert_eq!(of(wants(2, 1)), [(1, "n2=gpu:a100:1(IDX:0),gpu:h100:2(IDX:1-2)".to_owned())]);
    let both = "n1=gpu:a100:2(IDX:0-1),gpu:h100:1(IDX:2) n2=gpu:a100:1(IDX:0),gpu:h100:3(IDX:1-3)";
    assert_eq!(of(wants(4, 3)), [(1, both.to_owned())]);
    // What only a node without the other type has is of no use.
    assert_eq!(of(wants(5, 1)), []);
    let mut feasibility = Feasibility::new(cluster(nodes(), Vec::new()));
    assert!(feasibility.check(&job(1, wants(4, 3))).is_ok());
    assert!(feasibility.check(&job(1, wants(5, 1))).is_err());
}

/// With so many shards of each of its GPUs.
fn with_shards(index: u32, shards: Vec<u64>) -> NodeView {
    let gpus = entry(None, shards.len() as u64);
    let shard = GresEntry { name: SHARD.into(), count: shards.iter().sum(), devices: false, shards, ..entry(None, 0) };
    with_gpus(index, vec![gpus, shard])
}

fn shards(count: u64) -> JobSpec {
    let per_node = vec![GresCount { name: SHARD.into(), kind: None, count }];
    asks(GresRequest { per_node, ..GresRequest::default() })
}

#[test]
fn jobs_share_a_gpu_by_its_shards_and_no_gpu_is_given_both_ways() {
    let of = |specs: Vec<JobSpec>| given(&plan(&cluster(vec![with_shards(0, vec![4, 4])], jobs(specs)), NOW));
    let text = |id: u32, text: &str| (id, format!("n0={text}"));
    let shared = of(vec![shards(3), shards(2), shards(1), on_node(None, 1), shards(2)]);
    let want =
        [text(1, "shard:3(IDX:0)"), text(2, "shard:2(IDX:1)"), text(3, "shard:1(IDX:0)"), text(5, "shard:2(IDX:1)")];
    assert_eq!(shared, want, "no GPU is left whole for the fourth");
    let whole = of(vec![on_node(None, 1), shards(4), on_node(None, 1), shards(1)]);
    assert_eq!(whole, [text(1, "gpu:1(IDX:0)"), text(2, "shard:4(IDX:1)")]);
    let mut feasibility = Feasibility::new(cluster(vec![with_shards(0, vec![4, 4])], Vec::new()));
    assert!(feasibility.check(&job(1, shards(4))).is_ok());
    assert!(feasibility.check(&job(1, shards(5))).is_err(), "they come from one GPU");
}

/// A node of two sockets of four CPUs, with GPUs 0 and 1 near to the first and 2 and 3 near to the second.
fn two_sockets(index: u32) -> NodeView {
    let mut node = with_gpus(index, vec![entry(None, 4)]);
    (node.shape.sockets, node.shape.cores_per_socket, node.shape.threads_per_core) = (2, 4, 1);
    let near = |cpus: std::ops::Range<u32>| DevicePlace { cpus: cpus.into(), links: Vec::new() };
    node.shape.gres[0].places = vec![near(0..4), near(0..4), near(4..8), near(4..8)];
    node
}

fn shares(plan: &Plan) -> Vec<(u32, String, String)> {
    let of = |start: &crate::proposals::StartProposal| {
        let share = &start.nodes[0].share;
        (start.job.0, share.cpus.to_string(), list(&share.gres))
    };
    plan.starts.iter().map(of).collect()
}

fn wants(count: u64, cpus: u32, binding: Option<GresBinding>) -> JobSpec {
    let gres = GresRequest { per_node: gpus(None, count), binding, ..GresRequest::default() };
    JobSpec { tasks: Some(cpus), ..asks(gres) }
}

#[test]
fn gpus_go_with_cpus_near_to_them() {
    let of = |specs: Vec<JobSpec>| {
        let mut view = cluster(vec![two_sockets(0)], jobs(specs));
        view.policy.over_sockets = CpuOrder::Block;
        shares(&plan(&view, NOW))
    };
    let text = |id: u32, cpus: &str, gpus: &str| (id, cpus.to_owned(), gpus.to_owned());
    // The second job finds a socket with two GPUs, not the lowest CPUs and GPUs.
    let two = of(vec![wants(1, 1, None), wants(2, 2, None), wants(1, 3, None)]);
    let want = [text(1, "0", "gpu:1(IDX:0)"), text(2, "4-5", "gpu:2(IDX:2-3)"), text(3, "1-3", "gpu:1(IDX:1)")];
    assert_eq!(two, want);
    let any = of(vec![wants(1, 1, None), wants(2, 2, Some(GresBinding::Disable))]);
    assert_eq!(any[1], text(2, "1-2", "gpu:2(IDX:1-2)"));
    // CPUs that are not near are given only where that is not a must.
    assert_eq!(of(vec![wants(1, 6, None)]), [text(1, "0-5", "gpu:1(IDX:0)")]);
    assert_eq!(of(vec![wants(1, 6, Some(GresBinding::Enforce))]), []);
    assert_eq!(of(vec![wants(3, 6, Some(GresBinding::Enforce))]), [text(1, "0-5", "gpu:3(IDX:0-2)")]);
    // Nor do free GPUs stay free since all CPUs near to them are taken.
    let plain = JobSpec { tasks: Some(4), ..spec() };
    let far = of(vec![plain, wants(1, 1, None), wants(1, 1, None), wants(1, 1, None)]);
    assert_eq!(far[1..], [text(2, "4", "gpu:1(IDX:2)"), text(3, "5", "gpu:1(IDX:3)"), text(4, "6", "gpu:1(IDX:0)")]);
    let mut feasibility = Feasibility::new(cluster(vec![two_sockets(0)], Vec::new()));
    assert!(feasibility.check(&job(1, wants(1, 6, Some(GresBinding::Enforce)))).is_err());
    assert!(feasibility.check(&job(1, wants(1, 4, Some(GresBinding::Enforce)))).is_ok());
}

#[test]
fn sockets_may_be_asked_for_gpus_of_their_own() {
    let per_socket = |count, sockets| {
        let gres = GresRequest { per_socket: gpus(None, count), sockets: Some(sockets), ..GresRequest::default() };
        JobSpec { tasks: Some(2), ..asks(gres) }
    };
    let of = |specs: Vec<JobSpec>| shares(&plan(&cluster(vec![two_sockets(0)], jobs(specs)), NOW));
    assert_eq!(of(vec![per_socket(1, 2)]), [(1, "0,4".to_owned(), "gpu:2(IDX:0,2)".to_owned())]);
    assert_eq!(of(vec![per_socket(2, 1)]), [(1, "0-1".to_owned(), "gpu:2(IDX:0-1)".to_owned())]);
    assert_eq!(of(vec![wants(1, 1, None), per_socket(2, 2)]).len(), 1, "one of the sockets has only one left");
    let mut feasibility = Feasibility::new(cluster(vec![two_sockets(0)], Vec::new()));
    assert!(feasibility.check(&job(1, per_socket(3, 1))).is_err());
}

#[test]
fn cpus_and_memory_may_go_with_gpus() {
    let request = GresRequest {
        total: gpus(None, 2),
        cpus_per_gpu: Some(4),
        mem_per_gpu: Some(MemoryMib(300)),
        ..GresRequest::default()
    };
    let spec = JobSpec { memory: Default::default(), ..asks(request) };
    let plan_of = plan(&cluster(vec![with_gpus(0, vec![entry(None, 2)])], jobs(vec![spec])), NOW);
    let share = &plan_of.starts[0].nodes[0].share;
    assert_eq!((share.cpus.len(), share.memory), (8, Some(MemoryMib(600))));
}

#[test]
fn whoever_has_a_node_alone_has_its_gpus() {
    let spec = JobSpec { sharing: Sharing::Exclusive, ..spec() };
    let plan_of = plan(&cluster(vec![with_gpus(0, vec![entry(None, 2)])], jobs(vec![spec])), NOW);
    assert_eq!(given(&plan_of), [(1, "n0=gpu:2(IDX:0-1)".to_owned())]);
}

#[test]
fn a_type_that_is_kept_for_others_is_not_given_to_who_named_none() {
    let mut node = with_gpus(0, vec![entry(Some("a100"), 2), entry(Some("h100"), 1)]);
    // One of the a100 is busy for ten minutes; the job that waits for two of them has both after that.
    node.holds.push(held(90, 0..2, &node, 1, Some(NOW.secs() + 600)));
    let plan_of = plan(&cluster(vec![node], jobs(vec![on_node(Some("a100"), 2), on_node(None, 1)])), NOW);
    assert_eq!(given(&plan_of), [(2, "n0=gpu:h100:1(IDX:2)".to_owned())]);
}

/// Recounts devices now, and amounts whenever something begins.
fn overbooked(view: &ClusterView, plan: &Plan) -> Option<String> {
    let never = Timestamp(i64::MAX);
    for (place, node) in view.nodes.iter().enumerate() {
        let entries = &node.shape.gres;
        let mut pool = GresPool::all(entries);
        let mut taken: Vec<(Timestamp, Timestamp, GresAmounts)> = Vec::new();
        for hold in &node.holds {
            pool.take(entries, &hold.share.gres);
            taken.push((NOW, hold.expected_end.unwrap_or(never), GresAmounts::held(entries, &hold.share.gres)));
        }
        for start in &plan.starts {
            for share in start.nodes.iter().filter(|n| n.index == node.index).map(|n| &n.share) {
                if !pool.has(entries, &share.gres) {
                    return Some(format!("{}: {} is not free", node.name, list(&share.gres)));
                }
                pool.take(entries, &share.gres);
                let until = start.time_limit.duration().map_or(never, |d| NOW.plus(d));
                taken.push((NOW, until, GresAmounts::held(entries, &share.gres)));
            }
        }
        for reservation in &plan.reservations {
            for (_, amount) in reservation.nodes.iter().filter(|(n, _)| *n == place) {
                taken.push((reservation.from, reservation.until, amount.gres.clone()));
            }
        }
        for (at, ..) in &taken {
            let there = taken.iter().filter(|(from, until, _)| from <= at && until > at);
            let mut free = GresAmounts::all(entries);
            for (.., amount) in there {
                if !free.covers(amount) {
                    return Some(format!("{} at {at:?}: {amount:?} of {free:?}", node.name));
                }
                free = free.less(amount);
            }
        }
    }
    None
}

fn any_gres() -> impl Strategy<Value = JobSpec> {
    let kind = prop_oneof![3 => Just(None), 1 => Just(Some("a100")), 1 => Just(Some("h100"))];
    (kind, 0u64..4, 0u8..7, prop::option::of(1u32..5), 1u64..90, 0u8..10).prop_map(
        |(kind, count, form, tasks, minutes, sharing)| {
            let list = gpus(kind, count);
            let gres = match form {
                0 => GresRequest { per_task: list, ..GresRequest::default() },
                1 => GresRequest { total: list, cpus_per_gpu: Some(2), ..GresRequest::default() },
                2 => GresRequest {
                    total: [gpus(Some("a100"), count), gpus(Some("h100"), 1)].concat(),
                    ..GresRequest::default()
                },
                5 | 6 => shards(count).gres,
                _ => GresRequest { per_node: list, ..GresRequest::default() },
            };
            let nodes = (form == 1 || form == 2).then_some(NodeCount { min: 1, max: Some(3) });
            let sharing = if sharing == 0 { Sharing::Exclusive } else { Sharing::Default };
            let memory = garrick_model::resources::MemoryRequest::PerNode(MemoryMib(50));
            JobSpec { tasks, nodes, memory, sharing, time_limit: Some(TimeLimit::Secs(minutes * 60)), ..asks(gres) }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_gives_a_device_twice_now_or_later(
        machines in prop::collection::vec((0u64..3, 0u64..3, prop::option::of((1u64..4, 1i64..60)), 0u64..4), 1..6),
        specs in prop::collection::vec(any_gres(), 1..16),
        backfill in prop_oneof![Just(Backfill::Off), Just(Backfill::First(1)), Just(Backfill::Conservative)],
    ) {
        let nodes = machines.into_iter().zip(0..).map(|((a100, h100, busy, each), index)| {
            let mut node = with_gpus(index, vec![entry(Some("a100"), a100), entry(Some("h100"), h100)]);
            if each > 0 && a100 + h100 > 0 {
                // One of the GPUs has none.
                let of = vec![0].into_iter().chain(std::iter::repeat_n(each, (a100 + h100) as usize - 1)).collect();
                node.shape.gres.push(with_shards(index, of).shape.gres.remove(1));
            }
            if let Some((count, minutes)) = busy {
                let count = count.min(a100 + h100);
                node.holds.push(held(9000 + index, 0..2, &node, count, Some(NOW.secs() + minutes * 60)));
            }
            node
        });
        let mut view = cluster(nodes.collect(), jobs(specs));
        view.policy.backfill = backfill;
        let plan_of = plan(&view, NOW);
        prop_assert_eq!(overbooked(&view, &plan_of), None);
        for start in &plan_of.starts {
            let job = view.pending.iter().find(|j| j.id == start.job).unwrap();
            let gres = &job.spec.gres;
            let of_gpu = start.nodes.iter().flat_map(|n| &n.share.gres).filter(|share| share.name == GPU);
            let all: u64 = of_gpu.map(|share| share.count).sum();
            let tasks: u32 = start.nodes.iter().map(|n| n.share.tasks).sum();
            prop_assert!(all >= gres.totals().sum());
            if job.spec.tasks.is_some() {
                prop_assert!(all >= GresRequest::gpus(&gres.per_task) * u64::from(tasks));
            }
            prop_assert!(all >= GresRequest::gpus(&gres.per_node) * start.nodes.len() as u64);
        }
    }
}
