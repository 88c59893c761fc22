//! Tests of [`super`].
#![allow(clippy::unwrap_used)]

use super::*;
use crate::stepmgr::{
    builders::{exact, run, step},
    shape::{Asker, JobShape, shape_of},
};
use garrick_model::{
    gres::{GPU, GresRequest},
    resources::{MemoryMib, MemoryRequest},
    spec::{JobKind, NodeCount, StepSpec},
};
use std::sync::Arc;

struct Job {
    shape: JobShape,
    pool: Pool,
}

fn job(cpus: &[u32]) -> Job {
    job_with(cpus, &[], false)
}

fn job_with(cpus: &[u32], task_nodes: &[&str], packs: bool) -> Job {
    let mut facts = run(JobKind::Batch, cpus);
    Arc::make_mut(&mut facts.spec).layout.task_nodes = task_nodes.iter().map(|name| (*name).to_owned()).collect();
    let mut pool = Pool::new(&facts.nodes);
    for slot in 0..cpus.len() as u32 {
        pool.set_usage(slot, NodeUse::Ready);
    }
    Job { shape: JobShape::new(&facts, packs, 512), pool }
}

impl Job {
    fn shape(&self, spec: &StepSpec) -> StepShape {
        shape_of(spec, &self.shape, Asker::Attended).unwrap()
    }
    fn place(&self, spec: &StepSpec) -> Option<Placement> {
        place(&self.shape(spec), &self.pool, Against::Free { kept: &BTreeSet::new() })
    }
    fn take(&mut self, spec: &StepSpec) {
        let placement = self.place(spec).expect("fits");
        self.pool.take(&placement.claims);
    }
}

fn summary(placement: &Placement) -> Vec<(u32, String, Vec<u32>)> {
    placement.nodes.iter().map(|n| (n.slot, n.cpus.to_string(), n.ranks.clone())).collect()
}

fn nodes(min: u32) -> Option<NodeCount> {
    Some(NodeCount { min, max: Some(min) })
}

#[test]
fn a_default_step_takes_its_nodes_whole_and_waits_for_them() {
    let mut job = job(&[4]);
    let default = step("a");
    assert_eq!(summary(&job.place(&default).unwrap()), [(0, "0-3".into(), vec![0])]);
    job.take(&exact("b", 1));
    assert_eq!(job.place(&default), None);
}

#[test]
fn an_exact_step_takes_what_it_asks_for_and_others_run_beside_it() {
    let mut job = job(&[4]);
    let two = exact("a", 2);
    assert_eq!(summary(&job.place(&two).unwrap()), [(0, "0-1".into(), vec![0, 1])]);
    job.take(&two);
    assert_eq!(summary(&job.place(&two).unwrap()), [(0, "2-3".into(), vec![0, 1])]);
    job.take(&two);
    assert_eq!(job.place(&exact("b", 1)), None);
}

#[test]
fn naming_cpus_per_task_implies_exact() {
    let job = job(&[4]);
    let spec = StepSpec { cpus_per_task: Some(3), ..step("a") };
    assert_eq!(summary(&job.place(&spec).unwrap()), [(0, "0-2".into(), vec![0])]);
}

#[test]
fn an_overlapping_step_needs_nothing_free_and_holds_nothing() {
    let mut job = job(&[2]);
    job.take(&step("a"));
    let placement = job.place(&StepSpec { sharing: StepSharing::Overlap, ..step("b") }).unwrap();
    assert_eq!(summary(&placement), [(0, "0-1".into(), vec![0])]);
    assert_eq!(placement.claims, []);
}

// srun(1): "consider an allocation of three nodes each with two cpus. A four-task block distribution request will
// distribute those tasks to the nodes with tasks one and two on the first node, task three on the second node, and task
// four on the third node."
#[test]
fn consecutive_tasks_of_a_block_share_a_node() {
    let job = job(&[2, 2, 2]);
    let spec = StepSpec { nodes: nodes(3), tasks: Some(4), ..step("a") };
    let ranks: Vec<Vec<u32>> = job.place(&spec).unwrap().nodes.into_iter().map(|n| n.ranks).collect();
    assert_eq!(ranks, [vec![0, 1], vec![2], vec![3]]);
}

// slurm.conf(5), CR_Pack_Nodes: ten tasks on two nodes of eight CPUs.
#[test]
fn blocks_are_of_one_size_unless_they_are_packed() {
    let laid = |job: &Job, distribution| {
        let spec = StepSpec { nodes: nodes(2), tasks: Some(10), distribution, ..step("a") };
        job.place(&spec).unwrap().nodes.iter().map(|n| n.ranks.len()).collect::<Vec<_>>()
    };
    let job = job(&[8, 8]);
    assert_eq!(laid(&job, Distribution::Block), [5, 5]);
    assert_eq!(laid(&job, Distribution::BlockPack), [8, 2]);
    let job = job_with(&[8, 8], &[], true);
    assert_eq!(laid(&job, Distribution::Block), [8, 2]);
    assert_eq!(laid(&job, Distribution::BlockNoPack), [5, 5]);
}

// A job may name the nodes of its tasks; steps that name none of their own are on those.
#[test]
fn steps_of_an_arbitrary_job_are_on_the_nodes_of_its_list() {
    let job = job_with(&[2, 2, 2], &["n3", "n1", "n3"], false);
    let ranks = |spec: StepSpec| -> Vec<(u32, Vec<u32>)> {
        let placed = job.place(&StepSpec { distribution: Distribution::Arbitrary, ..spec }).unwrap();
        placed.nodes.into_iter().map(|n| (n.slot, n.ranks)).collect()
    };
    assert_eq!(ranks(StepSpec { tasks: None, ..step("a") }), [(0, vec![1]), (2, vec![0, 2])]);
    assert_eq!(ranks(StepSpec { tasks: Some(1), ..step("a") }), [(2, vec![0])]);
    let more = StepSpec { tasks: Some(4), nodes: nodes(3), ..step("a") };
    assert_eq!(ranks(more), [(0, vec![0, 1]), (1, vec![2]), (2, vec![3])], "as block");
    assert_eq!(ranks(StepSpec { tasks: None, nodes: nodes(1), ..step("a") }), [(2, vec![0])], "the list's first node");
    assert_eq!(ranks(StepSpec { tasks: None, nodes: nodes(2), ..step("a") }), [(0, vec![1]), (2, vec![0, 2])]);
    let own = StepSpec { nodelist: vec!["n2".into()], tasks: Some(2), ..step("a") };
    assert_eq!(ranks(own), [(1, vec![0, 1])]);
}

#[test]
fn cyclic_goes_round_the_nodes() {
    let job = job(&[2, 2, 2]);
    let spec = StepSpec { nodes: nodes(3), tasks: Some(5), distribution: Distribution::Cyclic, ..step("a") };
    let ranks: Vec<Vec<u32>> = job.place(&spec).unwrap().nodes.into_iter().map(|n| n.ranks).collect();
    assert_eq!(ranks, [vec![0, 3], vec![1, 4], vec![2]]);
}

#[test]
fn overcommitted_tasks_share_the_cpus_that_there_are() {
    let mut job = job(&[2]);
    let many = StepSpec { tasks: Some(5), overcommit: true, ..step("a") };
    assert_eq!(summary(&job.place(&many).unwrap()), [(0, "0-1".into(), vec![0, 1, 2, 3, 4])]);
    assert!(job.place(&StepSpec { overcommit: false, ..many.clone() }).is_none());
    job.take(&exact("b", 1));
    let beside = StepSpec { sharing: StepSharing::Exact, ..many };
    assert_eq!(summary(&job.place(&beside).unwrap()), [(0, "1".into(), vec![0, 1, 2, 3, 4])]);
    job.take(&exact("c", 1));
    assert!(job.place(&beside).is_none(), "one CPU it needs");
}

#[test]
fn blocks_that_are_not_packed_are_of_one_size() {
    let job = job(&[4, 4]);
    let spec = StepSpec { nodes: nodes(2), tasks: Some(5), distribution: Distribution::BlockNoPack, ..step("a") };
    let ranks: Vec<Vec<u32>> = job.place(&spec).unwrap().nodes.into_iter().map(|n| n.ranks).collect();
    assert_eq!(ranks, [vec![0, 1, 2], vec![3, 4]]);
}

// srun(1): a plane has as many tasks on each node as cyclic, and ranks in blocks.
#[test]
fn a_plane_goes_round_the_nodes_in_blocks() {
    let job = job(&[4, 4]);
    let spec = StepSpec { nodes: nodes(2), tasks: Some(7), distribution: Distribution::Plane(2), ..step("a") };
    let ranks: Vec<Vec<u32>> = job.place(&spec).unwrap().nodes.into_iter().map(|n| n.ranks).collect();
    assert_eq!(ranks, [vec![0, 1, 4, 5], vec![2, 3, 6]]);
}

#[test]
fn a_list_says_the_node_of_each_task() {
    let job = job(&[2, 2, 2]);
    let listed = |names: &[&str], tasks| StepSpec {
        nodes: nodes(3),
        tasks,
        distribution: Distribution::Arbitrary,
        task_nodes: names.iter().map(|n| (*n).to_owned()).collect(),
        ..step("a")
    };
    let ranks = |spec: &StepSpec| -> Vec<(u32, Vec<u32>)> {
        job.place(spec).unwrap().nodes.into_iter().map(|n| (n.slot, n.ranks)).collect()
    };
    assert_eq!(ranks(&listed(&["n3", "n1", "n3"], None)), [(0, vec![1]), (2, vec![0, 2])]);
    assert_eq!(ranks(&listed(&["n3", "n1", "n3"], Some(2))), [(0, vec![1]), (2, vec![0])]);
    assert!(job.place(&listed(&["n2", "n2", "n2"], None)).is_none(), "more than its CPUs");
}

#[test]
fn an_exact_step_uses_the_fewest_nodes_and_a_default_one_spreads() {
    let job = job(&[4, 4]);
    assert_eq!(job.place(&exact("a", 2)).unwrap().nodes.len(), 1);
    assert_eq!(job.place(&StepSpec { tasks: Some(2), ..step("a") }).unwrap().nodes.len(), 2);
    assert_eq!(job.place(&exact("a", 6)).unwrap().nodes.len(), 2);
}

#[test]
fn tasks_per_node_bounds_each_node() {
    let job = job(&[4, 4, 4]);
    let spec = StepSpec { tasks: None, tasks_per_node: Some(2), nodes: nodes(3), ..step("a") };
    let counts: Vec<usize> = job.place(&spec).unwrap().nodes.iter().map(|n| n.ranks.len()).collect();
    assert_eq!(counts, [2, 2, 2]);
    let spec = StepSpec { tasks_per_node: Some(1), ..exact("a", 3) };
    assert_eq!(job.place(&spec).unwrap().nodes.len(), 3);
}

#[test]
fn relative_nodelist_and_exclude_choose_nodes() {
    let job = job(&[2, 2, 2]);
    let slots = |spec: &StepSpec| -> Vec<u32> { job.place(spec).unwrap().nodes.iter().map(|n| n.slot).collect() };
    assert_eq!(slots(&StepSpec { nodes: nodes(1), relative: Some(2), ..step("a") }), [2]);
    assert_eq!(slots(&StepSpec { nodelist: vec!["n2".into()], ..step("a") }), [1]);
    assert_eq!(slots(&StepSpec { tasks: Some(2), exclude: vec!["n1".into()], ..step("a") }), [1, 2]);
    assert_eq!(slots(&StepSpec { nodes: nodes(2), tasks: Some(2), nodelist: vec!["n3".into()], ..step("a") }), [0, 2]);
}

#[test]
fn one_node_steps_look_for_a_node_with_room() {
    let mut job = job(&[2, 4]);
    job.take(&exact("a", 1));
    let spec = StepSpec { nodes: nodes(1), ..exact("b", 3) };
    assert_eq!(summary(&job.place(&spec).unwrap()), [(1, "0-2".into(), vec![0, 1, 2])]);
}

#[test]
fn memory_is_shared_by_cpus_unless_named() {
    let mut job = job(&[4]);
    let placement = job.place(&exact("a", 1)).unwrap();
    assert_eq!(placement.nodes[0].memory, Some(1000));
    let half = StepSpec { memory: MemoryRequest::PerNode(MemoryMib(3500)), ..exact("b", 1) };
    job.take(&half);
    assert_eq!(job.place(&exact("c", 1)), None);
    let little = StepSpec { memory: MemoryRequest::PerCpu(MemoryMib(250)), ..exact("d", 2) };
    assert_eq!(job.place(&little).unwrap().claims[0].memory, 500);
}

#[test]
fn a_step_of_all_tasks_is_laid_out_as_its_job_was() {
    let mut facts = run(JobKind::Batch, &[16, 16]);
    facts.nodes[0].share.tasks = 2;
    facts.nodes[1].share.tasks = 2;
    let mut pool = Pool::new(&facts.nodes);
    pool.set_usage(0, NodeUse::Ready);
    pool.set_usage(1, NodeUse::Ready);
    let shape =
        shape_of(&StepSpec { tasks: Some(4), ..step("a") }, &JobShape::new(&facts, false, 512), Asker::Attended)
            .unwrap();
    let placement = place(&shape, &pool, Against::Free { kept: &BTreeSet::new() }).unwrap();
    let ranks: Vec<Vec<u32>> = placement.nodes.into_iter().map(|n| n.ranks).collect();
    assert_eq!(ranks, [vec![0, 1], vec![2, 3]]);
}

#[test]
fn what_a_job_never_has_is_refused_with_what_is_too_much() {
    let job = job(&[2, 2]);
    let refused = |spec: &StepSpec| feasible(&job.shape(spec), &job.pool).unwrap_err();
    assert_eq!(
        refused(&StepSpec { tasks: Some(5), ..step("a") }),
        impossible("More processors requested than permitted: 5 of 4".into())
    );
    assert_eq!(
        refused(&StepSpec { nodes: nodes(3), tasks: Some(3), ..step("a") }),
        impossible("3 nodes asked for, the job has 2".into())
    );
    assert_eq!(
        refused(&StepSpec { memory: MemoryRequest::PerNode(MemoryMib(9999)), ..exact("a", 1) }),
        impossible("Memory required by task is not available".into())
    );
    assert!(shape_of(&StepSpec { nodelist: vec!["x".into()], ..step("a") }, &job.shape, Asker::Attended).is_err());
}

#[test]
fn kept_nodes_are_not_used_by_others() {
    let job = job(&[2, 2]);
    let kept = BTreeSet::from([0]);
    let placement = place(&job.shape(&exact("a", 1)), &job.pool, Against::Free { kept: &kept }).unwrap();
    assert_eq!(placement.nodes[0].slot, 1);
}

/// A job with so many GPUs on each node, numbered from 2.
fn gpu_job(cpus: &[u32], gpus: u32) -> Job {
    let mut facts = run(JobKind::Batch, cpus);
    for node in &mut facts.nodes {
        let devices = CpuSet::from(2..2 + gpus);
        node.share.gres = vec![GresShare { name: GPU.into(), kind: Some("h100".into()), count: gpus.into(), devices }];
    }
    let mut pool = Pool::new(&facts.nodes);
    for slot in 0..cpus.len() as u32 {
        pool.set_usage(slot, NodeUse::Ready);
    }
    Job { shape: JobShape::new(&facts, false, 512), pool }
}

fn gpus(count: u64) -> Vec<GresCount> {
    vec![GresCount { name: GPU.into(), kind: None, count }]
}

fn given(placement: &Placement) -> Vec<String> {
    placement.nodes.iter().map(|n| gres::list(&n.gres)).collect()
}

#[test]
fn a_step_that_is_waited_for_gets_all_of_the_jobs_gpus_and_a_queued_one_what_it_names() {
    let mut job = gpu_job(&[4], 2);
    let plain = exact("a", 1);
    assert_eq!(given(&job.place(&plain).unwrap()), ["gpu:h100:2(IDX:2-3)"]);
    let queued = shape_of(&plain, &job.shape, Asker::Queue).unwrap();
    assert_eq!(given(&place(&queued, &job.pool, Against::Whole).unwrap()), [""]);
    job.take(&plain);
    assert_eq!(job.place(&plain), None);
    assert!(place(&queued, &job.pool, Against::Free { kept: &BTreeSet::new() }).is_some());
    let none = StepSpec { gres: GresRequest { none: true, ..GresRequest::default() }, ..exact("b", 1) };
    assert_eq!(given(&job.place(&none).unwrap()), [""]);
}

#[test]
fn steps_share_the_jobs_gpus_out_and_no_gpu_is_given_twice() {
    let one = StepSpec { gres: GresRequest { per_node: gpus(1), ..GresRequest::default() }, ..exact("a", 1) };
    let mut job = gpu_job(&[8], 2);
    assert_eq!(given(&job.place(&one).unwrap()), ["gpu:h100:1(IDX:2)"]);
    job.take(&one);
    assert_eq!(given(&job.place(&one).unwrap()), ["gpu:h100:1(IDX:3)"]);
    job.take(&one);
    assert_eq!(job.place(&one), None);
    let over = StepSpec { sharing: StepSharing::Overlap, ..one };
    assert_eq!(given(&job.place(&over).unwrap()), ["gpu:h100:1(IDX:2)"], "what overlaps needs nothing free");
}

#[test]
fn gpus_of_tasks_and_of_all_nodes_decide_where_tasks_go() {
    let job = gpu_job(&[8, 8], 2);
    let each = StepSpec { gres: GresRequest { per_task: gpus(1), ..GresRequest::default() }, ..exact("a", 3) };
    assert_eq!(given(&job.place(&each).unwrap()), ["gpu:h100:2(IDX:2-3)", "gpu:h100:1(IDX:2)"]);
    let total = StepSpec { gres: GresRequest { total: gpus(4), ..GresRequest::default() }, ..exact("a", 2) };
    assert_eq!(given(&job.place(&total).unwrap()), ["gpu:h100:2(IDX:2-3)"; 2]);
    let many = StepSpec { gres: GresRequest { total: gpus(5), ..GresRequest::default() }, ..exact("a", 2) };
    assert!(matches!(feasible(&job.shape(&many), &job.pool), Err(Refusal::InvalidGres(_))));
    let inherited = GresRequest { per_task: gpus(1), ..GresRequest::default() };
    let own = StepSpec { inherited_gres: inherited, ..exact("a", 1) };
    assert_eq!(given(&job.place(&own).unwrap()), ["gpu:h100:1(IDX:2)"]);
}
