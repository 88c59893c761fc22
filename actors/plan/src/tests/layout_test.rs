//! Rules of sockets, cores and threads, and of how tasks go over nodes.
#![allow(clippy::unwrap_used)]

use super::plan_test::NOW;
use crate::{
    fixtures::cluster,
    plan::{plan, probe::Feasibility},
    snapshot::facts::{AllocationUnit, ClusterView},
};
use garrick_model::{
    spec::{CpuOrder, Distribution, JobSpec, LayoutRequest, NodeCount, Sharing, WithinNode},
    testing::{hold, job, node, spec},
    view::NodeView,
};

/// A node of two sockets of two cores of two threads each: CPUs 0-3 and 4-7.
fn two_sockets(index: u32) -> NodeView {
    let mut node = node(index, 4);
    (node.shape.sockets, node.shape.cores_per_socket) = (2, 2);
    node
}

fn tasks(tasks: u32, layout: LayoutRequest) -> JobSpec {
    JobSpec { tasks: Some(tasks), layout, ..spec() }
}

fn some() -> LayoutRequest {
    LayoutRequest::default()
}

/// Nodes, CPUs and tasks of the only start; empty: there is none.
fn placed(view: &ClusterView) -> Vec<(String, String, u32)> {
    let plan = plan(view, NOW);
    let nodes = plan.starts.iter().flat_map(|start| &start.nodes);
    nodes.map(|n| (n.name.clone(), n.share.cpus.to_string(), n.share.tasks)).collect()
}

fn on(nodes: Vec<NodeView>, spec: JobSpec) -> Vec<(String, String, u32)> {
    placed(&cluster(nodes, vec![job(1, spec)]))
}

fn one(cpus: &str, tasks: u32) -> Vec<(String, String, u32)> {
    vec![("n0".to_owned(), cpus.to_owned(), tasks)]
}

#[test]
fn nodes_have_the_sockets_cores_and_threads_that_are_asked_for() {
    let nodes = || vec![node(0, 4), two_sockets(1)];
    let name = |layout: LayoutRequest| on(nodes(), tasks(1, layout)).first().map(|n| n.0.clone());
    assert_eq!(name(LayoutRequest { sockets_per_node: Some(2), ..some() }).as_deref(), Some("n1"));
    assert_eq!(name(LayoutRequest { cores_per_socket: Some(4), ..some() }).as_deref(), Some("n0"));
    assert_eq!(name(LayoutRequest { threads_per_core: Some(2), ..some() }).as_deref(), Some("n0"));
    let three = LayoutRequest { threads_per_core: Some(3), ..some() };
    let check = Feasibility::new(cluster(nodes(), Vec::new())).check(&job(1, tasks(1, three)));
    assert!(check.is_err());
}

#[test]
fn one_thread_of_a_core_leaves_the_other_unused() {
    let single = LayoutRequest { threads_per_core: Some(1), ..some() };
    assert_eq!(on(vec![node(0, 4)], tasks(3, single.clone())), one("0-5", 3));
    assert_eq!(on(vec![node(0, 4)], tasks(5, single.clone())), []);
    let two = JobSpec { cpus_per_task: Some(2), ..tasks(2, single) };
    assert_eq!(on(vec![node(0, 4)], two), one("0-7", 2));
}

#[test]
fn tasks_on_a_core_are_bounded() {
    let at_most = |most| LayoutRequest { tasks_per_core: Some(most), ..some() };
    assert_eq!(on(vec![node(0, 4)], tasks(4, at_most(1))), one("0-7", 4));
    assert_eq!(on(vec![node(0, 4)], tasks(5, at_most(1))), []);
    assert_eq!(on(vec![node(0, 4)], tasks(4, at_most(2))), one("0-3", 4));
    let three = JobSpec { cpus_per_task: Some(3), ..tasks(2, at_most(1)) };
    assert_eq!(on(vec![node(0, 4)], three), one("0-7", 2));
}

#[test]
fn tasks_on_a_socket_are_bounded_and_get_cpus_of_each() {
    let at_most = |most| LayoutRequest { tasks_per_socket: Some(most), ..some() };
    let cpus = |spec: JobSpec, nodes: Vec<NodeView>| {
        let mut view = cluster(nodes, vec![job(1, spec)]);
        view.policy.unit = AllocationUnit::Cpu;
        placed(&view)
    };
    assert_eq!(cpus(tasks(4, at_most(2)), vec![two_sockets(0)]), one("0-1,4-5", 4));
    assert_eq!(cpus(tasks(5, at_most(2)), vec![two_sockets(0)]), []);
    let mut busy = two_sockets(0);
    busy.holds.push(hold(90, 0..3, 0, None));
    assert_eq!(cpus(tasks(3, at_most(2)), vec![busy.clone()]), one("3-5", 3));
    assert_eq!(cpus(tasks(4, at_most(2)), vec![busy]), []);
}

#[test]
fn memory_bound_tasks_get_a_core_of_each_socket() {
    let bound = LayoutRequest { one_core_per_socket: true, threads_per_core: Some(1), ..some() };
    assert_eq!(on(vec![two_sockets(0)], tasks(2, bound.clone())), one("0-1,4-5", 2));
    assert_eq!(on(vec![two_sockets(0)], tasks(3, bound)), []);
}

#[test]
fn overcommitted_tasks_have_the_cpus_of_one() {
    let overcommit = LayoutRequest { overcommit: true, ..some() };
    assert_eq!(on(vec![node(0, 2)], tasks(40, overcommit.clone())), one("0-1", 40));
    let wide = JobSpec { nodes: Some(NodeCount { min: 2, max: None }), ..tasks(40, overcommit.clone()) };
    assert_eq!(on(vec![node(0, 2), node(1, 2)], wide).len(), 2);
    let large = JobSpec { cpus_per_task: Some(5), ..tasks(2, overcommit) };
    assert_eq!(on(vec![node(0, 2)], large), []);
}

#[test]
fn a_job_is_spread_over_as_many_nodes_as_it_may_have() {
    let nodes = || (0..4).map(|n| node(n, 4)).collect::<Vec<_>>();
    let spread = LayoutRequest { spread: true, ..some() };
    let counts = |spec: JobSpec| on(nodes(), spec).iter().map(|n| n.2).collect::<Vec<_>>();
    assert_eq!(counts(tasks(6, LayoutRequest::default())), [6]);
    assert_eq!(counts(tasks(6, spread.clone())), [2, 2, 1, 1]);
    let three = JobSpec { nodes: Some(NodeCount { min: 1, max: Some(3) }), ..tasks(7, spread) };
    assert_eq!(counts(three), [3, 2, 2]);
}

#[test]
fn of_a_range_the_fewest_nodes_are_taken_where_that_is_asked_for() {
    let nodes = || (0..4).map(|n| node(n, 4)).collect::<Vec<_>>();
    let range = |layout| JobSpec { nodes: Some(NodeCount { min: 2, max: Some(4) }), layout, ..spec() };
    assert_eq!(on(nodes(), range(some())).len(), 4);
    assert_eq!(on(nodes(), range(LayoutRequest { fewest_nodes: true, ..some() })).len(), 2);
}

#[test]
fn cyclic_tasks_go_over_the_nodes_in_turn() {
    let nodes = || vec![node(0, 4), node(1, 4)];
    let four = |distribution| JobSpec {
        nodes: Some(NodeCount { min: 2, max: None }),
        ..tasks(4, LayoutRequest { distribution, ..some() })
    };
    let counts = |spec: JobSpec| on(nodes(), spec).iter().map(|n| n.2).collect::<Vec<_>>();
    assert_eq!(counts(four(None)), [3, 1]);
    assert_eq!(counts(four(Some(Distribution::Block))), [3, 1]);
    assert_eq!(counts(four(Some(Distribution::Cyclic))), [2, 2]);
    assert_eq!(counts(four(Some(Distribution::Plane(2)))), [2, 2]);
}

// slurm.conf(5), CR_Pack_Nodes: ten tasks on two whole nodes of eight CPUs.
#[test]
fn tasks_of_whole_nodes_go_evenly_over_them_unless_they_are_packed() {
    let counts = |distribution, tasks_, site| {
        let spec = JobSpec {
            nodes: Some(NodeCount { min: 2, max: None }),
            sharing: Sharing::Exclusive,
            ..tasks(tasks_, LayoutRequest { distribution, ..some() })
        };
        let mut view = cluster(vec![node(0, 2), node(1, 4)], vec![job(1, spec)]);
        view.policy.pack_nodes = site;
        placed(&view).iter().map(|n| n.2).collect::<Vec<_>>()
    };
    assert_eq!(counts(None, 7, false), [4, 3]);
    assert_eq!(counts(Some(Distribution::Block), 7, false), [4, 3]);
    assert_eq!(counts(None, 11, false), [4, 7], "as many as it has CPUs");
    assert_eq!(counts(None, 5, true), [4, 1]);
    assert_eq!(counts(Some(Distribution::BlockPack), 5, false), [4, 1]);
    assert_eq!(counts(Some(Distribution::BlockNoPack), 5, true), [3, 2]);
}

#[test]
fn cpus_and_memory_that_are_reserved_for_the_system_go_to_no_job() {
    let reserved = || {
        let mut node = node(0, 4);
        node.shape.reserved_cpus = (6..8).collect();
        node.shape.reserved_memory = garrick_model::resources::MemoryMib(300);
        node
    };
    assert_eq!(on(vec![reserved()], tasks(6, some())), one("0-5", 6));
    assert_eq!(on(vec![reserved()], tasks(7, some())), []);
    let whole = JobSpec { sharing: Sharing::Exclusive, ..spec() };
    assert_eq!(on(vec![reserved()], whole)[0].1, "0-5");
    let mem = |mib| JobSpec {
        memory: garrick_model::resources::MemoryRequest::PerNode(garrick_model::resources::MemoryMib(mib)),
        ..spec()
    };
    assert_eq!(on(vec![reserved()], mem(700)).len(), 1);
    assert_eq!(on(vec![reserved()], mem(701)), []);
    let check = Feasibility::new(cluster(vec![reserved()], Vec::new())).check(&job(1, mem(701)));
    assert!(check.is_err());
    // In what is planned for later too: the lowest CPUs are not always those that are free.
    let mut low = node(0, 4);
    low.shape.reserved_cpus = (0..2).collect();
    low.holds.push(hold(90, 2..4, 0, Some(NOW.0 / 1000 + 600)));
    let view = cluster(vec![low], vec![job(1, tasks(6, some()))]);
    let plan = plan(&view, NOW);
    assert_eq!(plan.expected.len(), 1);
    assert!(plan.starts.is_empty());
}

/// Two sockets of four cores of one thread, as in the examples of Slurm's page on CPU management: CPUs 0-3 and 4-7.
fn two_fours(index: u32) -> NodeView {
    let mut node = node(index, 4);
    (node.shape.sockets, node.shape.cores_per_socket, node.shape.threads_per_core) = (2, 4, 1);
    node
}

fn within(order: CpuOrder) -> LayoutRequest {
    LayoutRequest { within: WithinNode { sockets: Some(order), cores: None }, ..some() }
}

#[test]
fn cpus_are_from_the_sockets_in_turn_unless_block_is_asked_for() {
    let cpus = |spec: JobSpec| on(vec![two_fours(0)], spec)[0].1.clone();
    assert_eq!(cpus(tasks(6, some())), "0-2,4-6");
    assert_eq!(cpus(tasks(6, within(CpuOrder::Block))), "0-5");
    assert_eq!(cpus(tasks(8, some())), "0-7");
    let of_three = |tasks_, layout| JobSpec { cpus_per_task: Some(3), ..tasks(tasks_, layout) };
    assert_eq!(cpus(of_three(1, some())), "0-2", "a task is on one socket");
    assert_eq!(cpus(of_three(1, within(CpuOrder::Fcyclic))), "0-1,4");
    assert_eq!(cpus(of_three(2, some())), "0-2,4-6");
    let of_six = JobSpec { cpus_per_task: Some(6), ..tasks(1, some()) };
    assert_eq!(cpus(of_six), "0-2,4-6", "no socket has room for it");
}

#[test]
fn what_others_have_of_a_socket_is_passed_over() {
    let mut node = two_fours(0);
    node.holds.push(hold(9, 0..3, 1, None));
    let placed = on(vec![node], tasks(3, some()));
    assert_eq!(placed, one("3-5", 3));
}

#[test]
fn the_site_may_fill_sockets_one_after_the_other() {
    let mut view = cluster(vec![two_fours(0), two_fours(1)], vec![job(1, tasks(12, some()))]);
    view.policy.over_sockets = CpuOrder::Block;
    let (first, second) = (("n0".to_owned(), "0-7".to_owned(), 8), ("n1".to_owned(), "0-3".to_owned(), 4));
    assert_eq!(placed(&view), [first.clone(), second]);
    let job = job(1, tasks(12, within(CpuOrder::Cyclic)));
    let mut view = cluster(vec![two_fours(0), two_fours(1)], vec![job]);
    view.policy.over_sockets = CpuOrder::Block;
    assert_eq!(placed(&view), [first, ("n1".to_owned(), "0-1,4-5".to_owned(), 4)]);
}

#[test]
fn cores_are_not_torn_apart_going_round_the_sockets() {
    let cpus = |threads: u32, layout| on(vec![two_sockets(0)], tasks(threads, layout))[0].1.clone();
    assert_eq!(cpus(4, some()), "0-1,4-5");
    assert_eq!(cpus(6, some()), "0-5");
    let three = JobSpec { cpus_per_task: Some(3), ..tasks(2, some()) };
    assert_eq!(on(vec![two_sockets(0)], three)[0].1, "0-5");
}

fn arbitrary(list: &[&str]) -> JobSpec {
    let list: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
    let mut nodelist = list.clone();
    nodelist.sort_unstable();
    nodelist.dedup();
    let nodes = u32::try_from(nodelist.len()).unwrap();
    let count = NodeCount { min: nodes, max: Some(nodes) };
    let layout = LayoutRequest { distribution: Some(Distribution::Arbitrary), task_nodes: list.clone(), ..some() };
    JobSpec { nodes: Some(count), nodelist, ..tasks(u32::try_from(list.len()).unwrap(), layout) }
}

#[test]
fn a_list_says_how_many_tasks_each_node_has() {
    let nodes = || vec![two_fours(0), two_fours(1), two_fours(2)];
    let counts =
        |spec: JobSpec| on(nodes(), spec).into_iter().map(|(node, _, tasks)| (node, tasks)).collect::<Vec<_>>();
    let of = |list: &[(&str, u32)]| list.iter().map(|(name, tasks)| ((*name).to_owned(), *tasks)).collect::<Vec<_>>();
    assert_eq!(counts(arbitrary(&["n2", "n0", "n2", "n2"])), of(&[("n0", 1), ("n2", 3)]));
    assert_eq!(counts(arbitrary(&["n1", "n0", "n0"])), of(&[("n0", 2), ("n1", 1)]));
    // More than a node has room for.
    assert_eq!(counts(JobSpec { cpus_per_task: Some(4), ..arbitrary(&["n1", "n1", "n0", "n1"]) }), []);
    assert_eq!(
        counts(JobSpec { cpus_per_task: Some(4), ..arbitrary(&["n1", "n1", "n0"]) }),
        of(&[("n0", 1), ("n1", 2)])
    );
    // A list that is not about those tasks says nothing.
    assert_eq!(counts(JobSpec { tasks: Some(3), ..arbitrary(&["n0", "n2", "n2", "n2"]) }), of(&[("n0", 2), ("n2", 1)]));
}

#[test]
fn an_arbitrary_job_waits_for_room_on_the_nodes_of_its_list() {
    let mut busy = two_fours(1);
    busy.holds.push(hold(9, 0..7, 1, None));
    let nodes = vec![two_fours(0), busy];
    assert_eq!(on(nodes.clone(), arbitrary(&["n1", "n0", "n1"])), []);
    assert_eq!(on(nodes, arbitrary(&["n1", "n0", "n0"])).len(), 2);
}

#[test]
fn the_site_may_give_each_task_cores_of_its_own() {
    let mut view = cluster(vec![node(0, 4)], vec![job(1, tasks(2, some()))]);
    assert_eq!(placed(&view), one("0-1", 2), "a task for each thread");
    view.policy.one_task_per_core = true;
    assert_eq!(placed(&view), one("0-3", 2));
}

#[test]
fn the_site_may_have_jobs_go_to_the_nodes_with_the_most_free() {
    let mut busy = node(0, 4);
    busy.holds.push(hold(9, 0..4, 1, None));
    let mut view = cluster(vec![busy, node(1, 4)], vec![job(1, tasks(1, some()))]);
    assert_eq!(placed(&view)[0].0, "n0", "as tight as possible");
    view.policy.least_loaded = true;
    assert_eq!(placed(&view)[0].0, "n1");
}
