//! Rules of planning, and properties over random clusters and queues.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::{cluster, partition},
    plan::{
        Plan,
        obstacle::Obstacle,
        plan,
        probe::{Feasibility, Infeasible, would_start},
    },
    snapshot::{
        facts::{AllocationUnit, Backfill, ClusterView, PartitionSharing, Policy},
        request::{Label, NodeUse, Owner},
    },
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    config::PartitionConfig,
    ids::{ArrayTask, JobId},
    outlook::Blocker,
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{JobSpec, NodeCount, Sharing},
    state::{JobState, NodeBase, PartitionState, Reason},
    testing::{array, hold, job, node, spec},
    time::{TimeLimit, Timestamp},
    view::{JobView, NodeHold, NodeView},
};
use proptest::prelude::*;
use std::sync::Arc;

pub(crate) const NOW: Timestamp = Timestamp::from_secs(100_000);

fn nodes_of(plan: &Plan, id: u32) -> Vec<String> {
    plan.starts.iter().filter(|s| s.job == JobId(id)).flat_map(|s| s.nodes.iter().map(|n| n.name.clone())).collect()
}

fn reason(plan: &Plan, id: u32) -> Reason {
    plan.reasons.iter().find(|(job, _)| *job == JobId(id)).map_or(Reason::None, |(_, r)| r.clone())
}

pub(crate) fn wide(nodes: u32) -> JobSpec {
    JobSpec { nodes: Some(NodeCount { min: nodes, max: None }), ..spec() }
}

#[test]
fn all_threads_of_a_core_go_together() {
    let view = cluster(vec![node(0, 4)], vec![job(1, JobSpec { tasks: Some(3), ..spec() })]);
    let share = plan(&view, NOW).starts[0].nodes[0].share.clone();
    assert_eq!(share.cpus, CpuSet::from(0..4));
    assert_eq!((share.memory, share.tasks), (Some(MemoryMib(100)), 3));
}

#[test]
fn single_cpus_are_given_when_the_site_says_so() {
    let mut view = cluster(vec![node(0, 4)], vec![job(1, JobSpec { tasks: Some(3), ..spec() })]);
    view.policy.unit = AllocationUnit::Cpu;
    assert_eq!(plan(&view, NOW).starts[0].nodes[0].share.cpus, CpuSet::from(0..3));
}

#[test]
fn first_nodes_are_filled_and_every_node_keeps_a_task() {
    let four_on_two = JobSpec { tasks: Some(4), ..wide(2) };
    let mut view = cluster(vec![node(0, 8), node(1, 8)], vec![job(1, four_on_two)]);
    view.policy.unit = AllocationUnit::Cpu;
    let shares: Vec<String> = plan(&view, NOW).starts[0].nodes.iter().map(|n| n.share.cpus.to_string()).collect();
    assert_eq!(shares, ["0-2", "0"]);
}

#[test]
fn lower_weight_goes_first_then_the_tightest_node() {
    let mut nodes = vec![node(0, 4), node(1, 4), node(2, 2), node(3, 4)];
    nodes[0].weight = 5;
    nodes[1].holds.push(hold(90, 0..2, 0, None));
    let view = cluster(nodes, vec![job(1, spec()), job(2, JobSpec { tasks: Some(6), ..spec() })]);
    let plan = plan(&view, NOW);
    assert_eq!(nodes_of(&plan, 1), ["n2"]);
    assert_eq!(nodes_of(&plan, 2), ["n1"]);
}

#[test]
fn higher_priority_goes_first_and_what_is_behind_waits() {
    let mut late = job(3, spec());
    late.priority = 9_000_000;
    let long = JobSpec { time_limit: Some(TimeLimit::Secs(7200)), ..spec() };
    let mut nodes = vec![node(0, 1)];
    nodes[0].memory_to(1000);
    let view = cluster(nodes, vec![job(1, long.clone()), job(2, long), late]);
    let plan = plan(&view, NOW);
    assert_eq!(nodes_of(&plan, 3), ["n0"]);
    assert_eq!(reason(&plan, 1), Reason::Resources);
    assert_eq!(reason(&plan, 2), Reason::Priority);
    let after = |secs| NOW.plus(std::time::Duration::from_secs(secs));
    assert_eq!(plan.expected, [(JobId(1), after(3600)), (JobId(2), after(10_800))]);
}

trait MemoryTo {
    fn memory_to(&mut self, mib: u64);
}
impl MemoryTo for NodeView {
    fn memory_to(&mut self, mib: u64) {
        self.shape.memory = MemoryMib(mib);
    }
}

#[test]
fn backfill_starts_only_what_does_not_delay_the_blocked_job() {
    let mut nodes = vec![node(0, 1), node(1, 1)];
    nodes[0].holds.push(hold(90, 0..2, 0, Some(NOW.secs() + 600)));
    let short = JobSpec { time_limit: Some(TimeLimit::Secs(600)), ..spec() };
    let long = JobSpec { time_limit: Some(TimeLimit::Secs(601)), ..spec() };
    let view = cluster(nodes.clone(), vec![job(1, wide(2)), job(2, long.clone()), job(3, short.clone())]);
    let plan_of = plan(&view, NOW);
    assert_eq!(reason(&plan_of, 1), Reason::Resources);
    assert_eq!(reason(&plan_of, 2), Reason::Priority);
    assert_eq!(nodes_of(&plan_of, 3), ["n1"]);
    let mut strict = cluster(nodes, vec![job(1, wide(2)), job(2, long), job(3, short)]);
    strict.policy.backfill = Backfill::Off;
    assert!(plan(&strict, NOW).starts.is_empty());
}

#[test]
fn a_job_that_needs_nodes_out_of_service_holds_nobody_back() {
    let mut nodes = vec![node(0, 1), node(1, 1)];
    nodes[1].flags.drain = true;
    let named = JobSpec { nodelist: vec!["n1".to_owned()], ..spec() };
    let view = cluster(nodes, vec![job(1, wide(2)), job(2, named), job(3, wide(3)), job(4, spec())]);
    let plan = plan(&view, NOW);
    assert_eq!(reason(&plan, 1), Reason::NodesUnavailable);
    assert_eq!(reason(&plan, 2), Reason::Other("ReqNodeNotAvail, UnavailableNodes:n1".to_owned()));
    assert_eq!(reason(&plan, 3), Reason::PartitionNodeLimit);
    assert_eq!(nodes_of(&plan, 4), ["n0"]);
}

/// It is not refused: the partition may get more nodes.
#[test]
fn a_job_of_more_cpus_than_its_partition_has_waits_for_its_configuration() {
    let mut view = cluster(vec![node(0, 4), node(1, 4)], vec![]);
    view.partitions.push(partition("one", 0..1));
    let of = |id, partition: &str, tasks| {
        let spec = JobSpec { partitions: vec![partition.to_owned()], tasks: Some(tasks), ..spec() };
        JobView { cpus: tasks, ..job(id, spec) }
    };
    for one in [of(1, "debug", 17), of(2, "one", 9), of(3, "debug", 16)] {
        view.pending.push(Arc::new(one));
    }
    let feasibility = Feasibility::new(view.clone());
    assert_eq!([1, 2, 3].map(|id| feasibility.exceeds(&view.pending[id - 1])), [true, true, false]);
    let plan = plan(&view, NOW);
    assert_eq!([1, 2].map(|id| reason(&plan, id)), [Reason::PartitionConfig, Reason::PartitionConfig]);
    assert_eq!(nodes_of(&plan, 3), ["n0", "n1"]);
}

#[test]
fn partition_state_and_limits_are_reasons() {
    let mut view = cluster(vec![node(0, 4)], vec![]);
    view.partitions[0].max_time = TimeLimit::Secs(60);
    let mut down = partition("down", 0..1);
    down.state = PartitionState::Down;
    let mut inactive = partition("inactive", 0..1);
    inactive.state = PartitionState::Inactive;
    let mut small = partition("small", 0..1);
    small.max_nodes = Some(1);
    view.partitions.extend([down, inactive, small]);
    let on = |p: &str, s: JobSpec| JobSpec { partitions: vec![p.to_owned()], ..s };
    for (id, spec) in [
        (1, spec()),
        (2, on("down", spec())),
        (3, on("inactive", spec())),
        (4, on("small", wide(2))),
        (5, on("debug", spec())),
    ] {
        view.pending.push(Arc::new(job(id, spec)));
    }
    let plan = plan(&view, NOW);
    let reasons: Vec<Reason> = (1..=4).map(|id| reason(&plan, id)).collect();
    assert_eq!(
        reasons,
        [Reason::PartitionTimeLimit, Reason::PartitionDown, Reason::PartitionInactive, Reason::PartitionNodeLimit]
    );
}

#[test]
fn partitions_take_jobs_of_some_accounts_and_qos_only() {
    let takes = |fields: &[(&str, &str)]| {
        let mut config = PartitionConfig::named("p");
        fields.iter().for_each(|(key, value)| assert_eq!(config.set(key, value), Ok(None)));
        Some(Arc::new(config))
    };
    let mut view = cluster(vec![node(0, 8)], vec![]);
    view.partitions[0].takes = takes(&[("AllowAccounts", "physics"), ("DenyQos", "low")]);
    view.partitions.push(partition("open", 0..1));
    let of = |account: &str, qos: &str, partitions: &[&str]| JobSpec {
        account: Some(account.to_owned()).filter(|a| !a.is_empty()),
        qos: Some(qos.to_owned()).filter(|q| !q.is_empty()),
        partitions: partitions.iter().map(|p| (*p).to_owned()).collect(),
        ..spec()
    };
    let mut root = job(6, of("physics", "low", &["debug"]));
    root.uid = 0;
    view.pending = vec![
        Arc::new(job(1, of("chemistry", "", &["debug"]))),
        Arc::new(job(2, of("physics", "low", &["debug"]))),
        Arc::new(job(3, of("", "", &["debug"]))),
        Arc::new(job(4, of("Physics", "", &["debug"]))),
        Arc::new(job(5, of("chemistry", "", &["debug", "open"]))),
        Arc::new(root),
    ];
    let plan = plan(&view, NOW);
    let started: Vec<(u32, &str)> = plan.starts.iter().map(|s| (s.job.0, s.partition.as_str())).collect();
    assert_eq!(started, [(4, "debug"), (5, "open"), (6, "debug")]);
    let reasons: Vec<Reason> = (1..=3).map(|id| reason(&plan, id)).collect();
    assert_eq!(reasons, [Reason::AccountNotAllowed, Reason::QosNotAllowed, Reason::AccountNotAllowed]);
}

#[test]
fn a_job_takes_the_first_of_its_partitions_that_can_start_it() {
    let mut view = cluster(vec![node(0, 1), node(1, 1)], vec![]);
    view.partitions = vec![partition("a", 0..1), partition("b", 1..2)];
    view.partitions[1].nodes.grow(2);
    view.partitions[0].state = PartitionState::Down;
    let both = JobSpec { partitions: vec!["a".to_owned(), "b".to_owned()], ..spec() };
    view.pending.push(Arc::new(job(1, both)));
    let plan = plan(&view, NOW);
    assert_eq!(plan.starts[0].partition, "b");
    assert!(plan.reasons.is_empty());
}

#[test]
fn higher_tier_goes_before_higher_priority() {
    let mut view = cluster(vec![node(0, 1)], vec![]);
    let mut urgent = partition("urgent", 0..1);
    urgent.tier = 10;
    view.partitions.push(urgent);
    view.pending.push(Arc::new(job(1, spec())));
    view.pending.push(Arc::new(job(2, JobSpec { partitions: vec!["urgent".to_owned()], ..spec() })));
    let plan = plan(&view, NOW);
    assert_eq!(nodes_of(&plan, 2), ["n0"]);
    assert!(nodes_of(&plan, 1).is_empty());
}

#[test]
fn array_starts_as_many_tasks_as_fit_under_its_limit() {
    let limited = JobSpec { array: Some(array(1, 20, Some(2))), ..spec() };
    let view = cluster(vec![node(0, 8)], vec![job(1, limited.clone())]);
    let plan_of = plan(&view, NOW);
    assert_eq!(plan_of.starts.iter().map(|s| s.array_index).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert_eq!(reason(&plan_of, 1), Reason::JobArrayTaskLimit);
    let mut running = job(2, spec());
    running.state = JobState::Running;
    running.array_task = Some(ArrayTask { array_job: JobId(1), index: 99 });
    let jobs = [Arc::new(job(1, limited)), Arc::new(running)];
    let view = ClusterView::new(Policy::default(), &jobs, &view.nodes, view.partitions.clone());
    assert_eq!(plan(&view, NOW).starts.len(), 1);
    let free = JobSpec { array: Some(array(1, 20, None)), ..spec() };
    let plan_of = plan(&cluster(vec![node(0, 8)], vec![job(1, free)]), NOW);
    assert_eq!(plan_of.starts.len(), 8);
    assert_eq!(reason(&plan_of, 1), Reason::Resources);
}

/// Found by the random runs: the record's waiting tasks and those split off kept each other under the limit for ever.
#[test]
fn tasks_split_off_go_before_those_of_the_record() {
    let limited = JobSpec { array: Some(array(3, 20, Some(1))), ..spec() };
    let mut task = job(5001, JobSpec { array: Some(array(1, 20, Some(1))), ..spec() });
    task.array_pending = None;
    task.array_task = Some(ArrayTask { array_job: JobId(1), index: 2 });
    let record = job(1, limited);
    (task.priority, task.submit_time) = (record.priority, record.submit_time);
    let plan = plan(&cluster(vec![node(0, 8)], vec![record, task]), NOW);
    assert_eq!(plan.starts.iter().map(|s| s.job.0).collect::<Vec<_>>(), [5001]);
    assert_eq!(reason(&plan, 1), Reason::JobArrayTaskLimit);
}

#[test]
fn exclusive_takes_a_whole_idle_node_and_user_keeps_others_out() {
    let mut nodes = vec![node(0, 4), node(1, 4)];
    nodes[0].holds.push(hold(90, 0..2, 0, Some(NOW.secs() + 60)));
    let exclusive = JobSpec { sharing: Sharing::Exclusive, ..spec() };
    let view = cluster(nodes.clone(), vec![job(1, exclusive)]);
    let start = plan(&view, NOW).starts[0].clone();
    assert_eq!((start.usage, start.nodes[0].name.as_str()), (NodeUse::Whole, "n1"));
    assert_eq!(start.nodes[0].share.cpus, CpuSet::from(0..8));
    nodes[1].holds.push(hold(91, 0..2, 0, None));
    nodes[1].holds[0].sharing = Sharing::User;
    let mine = JobSpec { sharing: Sharing::User, ..spec() };
    let view = cluster(nodes, vec![job(1, mine), job(2, JobSpec { nodelist: vec!["n1".to_owned()], ..spec() })]);
    assert!(plan(&view, NOW).starts.is_empty());
}

#[test]
fn a_node_is_kept_to_the_label_of_a_job() {
    let labelled = |label: Option<&str>, sharing| JobSpec { mcs_label: label.map(str::to_owned), sharing, ..spec() };
    let kept = |label: &str| NodeHold {
        sharing: Sharing::Mcs,
        mcs_label: Some(label.to_owned()),
        ..hold(90, 0..2, 0, Some(NOW.secs() + 60))
    };
    let mut nodes = vec![node(0, 4)];
    nodes[0].holds.push(kept("red"));
    let started = |nodes: &[NodeView], spec: JobSpec| {
        let plan = plan(&cluster(nodes.to_vec(), vec![job(1, spec)]), NOW);
        plan.starts.first().map(|start| start.usage)
    };
    for (label, sharing, comes) in [
        (Some("red"), Sharing::Mcs, Some(NodeUse::Label)),
        (Some("red"), Sharing::Default, Some(NodeUse::Cpus)),
        (Some("blue"), Sharing::Mcs, None),
        (Some("blue"), Sharing::Default, None),
        (None, Sharing::Default, None),
        (Some("red"), Sharing::Exclusive, None),
    ] {
        assert_eq!(started(&nodes, labelled(label, sharing)), comes, "{label:?} {sharing:?}");
    }
    // Who is there already keeps a job out that wants the node for its label.
    nodes[0].holds[0].sharing = Sharing::Default;
    assert_eq!(started(&nodes, labelled(Some("blue"), Sharing::Mcs)), None);
    assert_eq!(started(&nodes, labelled(Some("blue"), Sharing::Default)), Some(NodeUse::Cpus));
    assert_eq!(started(&nodes, labelled(Some("red"), Sharing::Mcs)), Some(NodeUse::Label));
}

#[test]
fn labels_are_kept_apart_where_jobs_are_put_together_or_to_users() {
    let mut view = cluster(vec![node(0, 4)], (1..=3).map(|id| job(id, spec())).collect());
    let spec = |label: &str| JobSpec { mcs_label: Some(label.to_owned()), sharing: Sharing::Mcs, ..spec() };
    view.pending = [(1, "red"), (2, "blue"), (3, "red")].map(|(id, label)| Arc::new(job(id, spec(label)))).into();
    view.partitions[0].sharing = PartitionSharing::Force(4);
    let usages = |view: &ClusterView| -> Vec<(u32, NodeUse)> {
        plan(view, NOW).starts.iter().map(|start| (start.job.0, start.usage)).collect()
    };
    assert_eq!(usages(&view), [(1, NodeUse::Label), (3, NodeUse::Label)]);
    view.partitions[0].sharing = PartitionSharing::No;
    view.partitions[0].exclusive_user = true;
    assert_eq!(usages(&view), [(1, NodeUse::Whole)]);
}

#[test]
fn forced_oversubscription_stacks_jobs_up_to_the_limit() {
    let mut view = cluster(vec![node(0, 1)], (1..=4).map(|id| job(id, spec())).collect());
    view.partitions[0].sharing = PartitionSharing::Force(3);
    let plan = plan(&view, NOW);
    assert_eq!(plan.starts.len(), 3);
    assert_eq!(plan.starts[0].usage, NodeUse::Oversubscribe(3));
}

#[test]
fn features_and_exclusions_bound_the_choice() {
    let mut nodes: Vec<NodeView> = (0..4).map(|i| node(i, 1)).collect();
    nodes[1].features = vec!["gpu".to_owned()];
    nodes[3].features = vec!["gpu".to_owned(), "big".to_owned()];
    let gpu = JobSpec { constraint: Some("gpu&big|none".to_owned()), ..spec() };
    let not = JobSpec { exclude: vec!["n0".to_owned(), "n1".to_owned()], ..spec() };
    let no_node = JobSpec { constraint: Some("nosuch".to_owned()), ..spec() };
    let plan = plan(&cluster(nodes, vec![job(1, gpu), job(2, not), job(3, no_node)]), NOW);
    assert_eq!(nodes_of(&plan, 1), ["n3"]);
    assert_eq!(nodes_of(&plan, 2), ["n2"]);
    assert_eq!(reason(&plan, 3), Reason::BadConstraints);
}

#[test]
fn the_first_node_is_one_with_the_features_for_the_batch_script() {
    let mut nodes: Vec<NodeView> = (0..4).map(|i| node(i, 1)).collect();
    (nodes[2].features, nodes[3].features) = (vec!["fast".to_owned(), "big".to_owned()], vec!["fast".to_owned()]);
    let first = |wanted: &str| {
        let job = job(1, JobSpec { batch_features: Some(wanted.to_owned()), ..wide(4) });
        let plan = plan(&cluster(nodes.clone(), vec![job]), NOW);
        let at = |node: &garrick_model::view::AllocatedNode| u64::from(node.index.0);
        let start = &plan.starts[0];
        assert_eq!(start.generations.len(), 4);
        start.nodes.iter().map(at).collect::<Vec<_>>()
    };
    assert_eq!(first("fast"), [2, 0, 1, 3]);
    assert_eq!(first("fast&big"), [2, 0, 1, 3]);
    assert_eq!(first("big&nosuch|fast"), [2, 0, 1, 3]);
    assert_eq!(first("nosuch"), [0, 1, 2, 3], "none has them");
}

#[test]
fn contiguous_nodes_are_neighbours() {
    let mut nodes: Vec<NodeView> = (0..5).map(|i| node(i, 1)).collect();
    nodes[1].flags.drain = true;
    let view = cluster(nodes, vec![job(1, JobSpec { contiguous: true, ..wide(3) })]);
    assert_eq!(nodes_of(&plan(&view, NOW), 1), ["n2", "n3", "n4"]);
}

#[test]
fn a_range_of_nodes_takes_as_many_as_are_free() {
    let mut nodes: Vec<NodeView> = (0..5).map(|i| node(i, 1)).collect();
    nodes[1].flags.drain = true;
    let ranged = JobSpec { nodes: Some(NodeCount { min: 2, max: Some(8) }), ..spec() };
    assert_eq!(nodes_of(&plan(&cluster(nodes, vec![job(1, ranged)]), NOW), 1).len(), 4);
}

#[test]
fn a_maximum_of_nodes_finds_the_wide_ones() {
    let mut nodes: Vec<NodeView> = (0..4).map(|i| node(i, 1)).collect();
    nodes.push(node(4, 8));
    nodes[4].weight = 9;
    let one = JobSpec { tasks: Some(10), nodes: Some(NodeCount { min: 1, max: None }), ..spec() };
    assert_eq!(nodes_of(&plan(&cluster(nodes, vec![job(1, one)]), NOW), 1), ["n4"]);
}

#[test]
fn feasibility_names_what_is_too_much() {
    let mut ask = Feasibility::new(cluster(vec![node(0, 4), node(1, 4)], vec![]));
    assert_eq!(ask.check(&job(1, spec())), Ok(()));
    let memory = JobSpec { memory: MemoryRequest::PerNode(MemoryMib(5000)), ..spec() };
    assert_eq!(ask.check(&job(1, memory)), Err(Infeasible::Memory));
    assert_eq!(ask.check(&job(1, JobSpec { cpus_per_task: Some(9), ..spec() })), Err(Infeasible::Cpus));
    assert_eq!(ask.check(&job(1, JobSpec { tasks: Some(17), ..spec() })), Err(Infeasible::Nodes));
    assert_eq!(ask.check(&job(1, wide(3))), Ok(()));
    let nowhere = JobSpec { nodelist: vec!["nosuch".to_owned()], ..spec() };
    assert_eq!(ask.check(&job(1, nowhere)), Err(Infeasible::Nodes));
}

#[test]
fn would_start_names_the_time_that_running_jobs_leave() {
    let mut nodes = vec![node(0, 1)];
    nodes[0].holds.push(hold(90, 0..2, 0, Some(NOW.secs() + 600)));
    let answer = would_start(&cluster(nodes, vec![]), &job(1, spec()), NOW).unwrap();
    assert_eq!((answer.at.secs(), answer.nodes[0].name.as_str()), (NOW.secs() + 600, "n0"));
}

#[test]
fn a_plan_names_what_is_in_the_way() {
    let mut nodes = vec![node(0, 1), node(1, 1), node(2, 1)];
    nodes[1].holds.push(hold(90, 0..2, 0, Some(NOW.secs() + 600)));
    nodes[2].holds.push(hold(91, 0..2, 0, Some(NOW.secs() + 300)));
    // The first waits for the one that runs longest; the second for the first.
    let made = plan(&cluster(nodes, vec![job(1, wide(3)), job(2, wide(1))]), NOW);
    let of = |id: u32| made.obstacles.iter().find(|(job, _)| *job == JobId(id)).map(|(_, o)| o.clone()).unwrap();
    let end = |secs: i64| Timestamp::from_secs(NOW.secs() + secs);
    assert_eq!(of(1), Obstacle { by: Blocker::Running(JobId(90)), node: Some(1), until: end(600) });
    assert_eq!(of(2), Obstacle { by: Blocker::Ahead(JobId(1)), node: Some(0), until: end(4200) });
}

#[test]
fn would_start_stands_in_the_queue() {
    let mut nodes = vec![node(0, 1), node(1, 1)];
    nodes[0].holds.push(hold(90, 0..2, 0, Some(NOW.secs() + 600)));
    let mut view = cluster(nodes, (1..=4).map(|id| job(id, wide(2))).collect());
    // Four that take both nodes for an hour each, of which the policy looks at one, and at no more than a day.
    view.policy.backfill_depth = 1;
    let ahead = |jobs: i64| NOW.secs() + 600 + jobs * 3600;
    let asked = |view: &ClusterView| would_start(view, &job(5, wide(2)), NOW).map(|answer| answer.at.secs());
    assert_eq!(asked(&view), Some(ahead(2)));
    view.policy.backfill_depth = 500;
    for backfill in [Backfill::Conservative, Backfill::First(1), Backfill::Off] {
        view.policy.backfill = backfill;
        assert_eq!(asked(&view), Some(ahead(4)));
    }
    // Who is beyond the window goes before it all the same.
    view.policy.backfill_window = std::time::Duration::from_secs(4000);
    assert_eq!(asked(&view), Some(ahead(4)));
    let answer = would_start(&view, &job(5, wide(2)), NOW).unwrap();
    assert_eq!(answer.nodes.iter().map(|n| n.share.cpus.len()).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn would_start_promises_no_place_ahead_of_others_where_nobody_gets_one() {
    let mut nodes = vec![node(0, 1), node(1, 1)];
    nodes[0].holds.push(hold(90, 0..2, 0, Some(NOW.secs() + 600)));
    let mut view = cluster(nodes, vec![job(1, wide(2))]);
    // It would be over before the first has both nodes.
    let brief = job(5, JobSpec { time_limit: Some(TimeLimit::Secs(60)), ..wide(1) });
    let asked = |view: &ClusterView| would_start(view, &brief, NOW).map(|answer| answer.at.secs() - NOW.secs());
    assert_eq!(asked(&view), Some(0));
    view.policy.backfill = Backfill::Off;
    assert_eq!(asked(&view), Some(600 + 3600));
}

/// Recounts every node from scratch: what it held before and what the plan gives away.
pub(crate) fn overbooked(view: &ClusterView, plan: &Plan) -> Option<String> {
    for node in &view.nodes {
        let mut cpus = CpuSet::new();
        let mut memory = 0;
        let mut holders = 0;
        let mut whole = 0;
        let held = node.holds.iter().map(|h| (&h.share, h.sharing == Sharing::Exclusive));
        let all = plan.starts.iter().flat_map(|start| std::iter::once(start).chain(&start.others));
        let given = all.flat_map(|s| {
            s.nodes.iter().filter(|n| n.index == node.index).map(|n| (&n.share, s.usage == NodeUse::Whole))
        });
        for (share, exclusive) in held.chain(given) {
            if !cpus.is_disjoint(&share.cpus) {
                return Some(format!("{}: CPUs {} given twice", node.name, cpus.intersection(&share.cpus)));
            }
            cpus.add(&share.cpus);
            memory += share.memory.map_or(0, |m| m.0);
            holders += 1;
            whole += u32::from(exclusive);
        }
        if let Some(wrong) = intruder(view, plan, node) {
            return Some(wrong);
        }
        if !cpus.is_subset(&node.shape.all_cpus()) || memory > node.shape.memory.0 || (whole > 0 && holders > 1) {
            return Some(format!("{}: {cpus} {memory} MiB, {holders} holders, {whole} exclusive", node.name));
        }
    }
    None
}

/// Who comes, or is, to a node that somebody keeps to his user or his MCS label.
fn intruder(view: &ClusterView, plan: &Plan, node: &NodeView) -> Option<String> {
    let label = |label: &Option<String>| label.clone().unwrap_or_default();
    let mut there: Vec<(Sharing, u32, String)> =
        node.holds.iter().map(|hold| (hold.sharing, hold.uid, label(&hold.mcs_label))).collect();
    for start in plan.starts.iter().flat_map(|start| std::iter::once(start).chain(&start.others)) {
        if start.nodes.iter().any(|given| given.index == node.index) {
            let job = view.pending.iter().find(|job| job.id == start.job).unwrap();
            there.push((start.usage.sharing(), job.uid, label(&job.spec.mcs_label)));
        }
    }
    let apart = |(sharing, uid, label): &(Sharing, u32, String)| match sharing {
        Sharing::User => there.iter().any(|other| other.1 != *uid),
        Sharing::Mcs => there.iter().any(|other| other.2 != *label),
        _ => false,
    };
    let keeper = there.iter().find(|one| apart(one))?;
    Some(format!("{}: {keeper:?} among {there:?}", node.name))
}

/// Recounts every node at every time at which something begins: what running jobs hold until their end, what starts now,
/// and what is reserved.
pub(crate) fn overbooked_later(view: &ClusterView, plan: &Plan, now: Timestamp) -> Option<String> {
    struct Taken {
        node: usize,
        from: Timestamp,
        until: Timestamp,
        cpus: u32,
        memory: u64,
        usage: NodeUse,
        owner: Owner,
    }
    let mut taken: Vec<Taken> = Vec::new();
    let matters = view.matters();
    let never = Timestamp(i64::MAX);
    for (place, node) in view.nodes.iter().enumerate() {
        taken.extend(node.holds.iter().map(|h| Taken {
            node: place,
            from: now,
            until: h.expected_end.unwrap_or(never),
            cpus: h.share.cpus.len(),
            memory: h.share.memory.map_or(0, |m| m.0),
            usage: match h.sharing {
                Sharing::Exclusive => NodeUse::Whole,
                Sharing::User => NodeUse::User,
                Sharing::Mcs => NodeUse::Label,
                Sharing::Default | Sharing::Oversubscribe => NodeUse::Cpus,
            },
            owner: Owner::of(h).where_matters(matters),
        }));
    }
    for start in plan.starts.iter().flat_map(|start| std::iter::once(start).chain(&start.others)) {
        let until = start.time_limit.duration().map_or(never, |d| now.plus(d));
        let job = view.pending.iter().find(|job| job.id == start.job).unwrap();
        let label = Label::of(job.spec.mcs_label.as_deref());
        taken.extend(start.nodes.iter().map(|n| Taken {
            node: n.index.0 as usize,
            from: now,
            until,
            cpus: n.share.cpus.len(),
            memory: n.share.memory.map_or(0, |m| m.0),
            usage: start.usage,
            owner: Owner { user: job.uid, label }.where_matters(matters),
        }));
    }
    for reservation in &plan.reservations {
        taken.extend(reservation.nodes.iter().map(|(node, amount)| Taken {
            node: *node,
            from: reservation.from,
            until: reservation.until,
            cpus: amount.cpus,
            memory: amount.memory,
            usage: amount.usage,
            owner: amount.owner,
        }));
    }
    for at in &taken {
        let shape = &view.nodes[at.node].shape;
        let there: Vec<&Taken> =
            taken.iter().filter(|t| t.node == at.node && t.from <= at.from && t.until > at.from).collect();
        let cpus: u32 = there.iter().map(|t| t.cpus).sum();
        let memory: u64 = there.iter().map(|t| t.memory).sum();
        let apart = there.iter().any(|t| match t.usage {
            NodeUse::Whole => there.len() > 1,
            NodeUse::User => there.iter().any(|other| other.owner.user != t.owner.user),
            NodeUse::Label => there.iter().any(|other| other.owner.label != t.owner.label),
            NodeUse::Cpus | NodeUse::Oversubscribe(_) => false,
        });
        if cpus > shape.cpus || memory > shape.memory.0 || apart {
            return Some(format!(
                "node {} at {:?}: {cpus} CPUs, {memory} MiB, {} holders, apart: {apart}",
                at.node,
                at.from,
                there.len()
            ));
        }
    }
    None
}

pub(crate) fn any_spec() -> impl Strategy<Value = JobSpec> {
    let shape = (1u32..5, 0u32..4, prop::option::of(1u32..12), prop::option::of(1u32..4), prop::option::of(1u32..5));
    let rest = (0u64..900, 0u8..4, prop::option::of(1u64..100), 0u8..8, any::<bool>());
    (shape, rest).prop_map(|((min, more, tasks, each, cpus), (memory, kind, limit, sharing, contiguous))| JobSpec {
        nodes: (kind != 0).then_some(NodeCount { min, max: Some(min + more) }),
        tasks,
        tasks_per_node: each,
        cpus_per_task: cpus,
        memory: match kind {
            0 => MemoryRequest::PerCpu(MemoryMib(memory / 10)),
            1 => MemoryRequest::All,
            _ => MemoryRequest::PerNode(MemoryMib(memory)),
        },
        time_limit: limit.map(|m| TimeLimit::Secs(m * 60)),
        sharing: match sharing {
            0 => Sharing::Exclusive,
            1 => Sharing::User,
            2 => Sharing::Mcs,
            _ => Sharing::Default,
        },
        mcs_label: ["red", "blue"].get(memory as usize % 3).map(|label| (*label).to_owned()),
        contiguous,
        array: (sharing == 7).then(|| array(1, 5, None)),
        ..spec()
    })
}

pub(crate) fn any_node() -> impl Strategy<Value = (u32, u32, bool, bool)> {
    (1u32..6, 1u32..3, prop::bool::weighted(0.1), prop::bool::weighted(0.3))
}

/// Nodes with so many cores, of such a weight, drained or not, with another job there or not, which keeps some of them to its
/// label.
pub(crate) fn nodes_of_kind(machines: &[(u32, u32, bool, bool)]) -> Vec<NodeView> {
    let of = |(&(cores, weight, drain, busy), index): (&(u32, u32, bool, bool), u32)| {
        let mut node = node(index, cores);
        node.weight = weight;
        node.flags.drain = drain;
        if busy {
            let mut other = hold(9000 + index, 0..2, 300, Some(NOW.secs() + 500));
            other.mcs_label = (index % 2 == 0).then(|| "red".to_owned());
            if index % 4 == 0 {
                other.sharing = Sharing::Mcs;
            }
            node.holds.push(other);
        }
        node
    };
    machines.iter().zip(0..).map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_overbooks(
        machines in prop::collection::vec(any_node(), 1..12),
        specs in prop::collection::vec(any_spec(), 1..25),
        backfill in prop_oneof![Just(Backfill::Off), (1u32..4).prop_map(Backfill::First), Just(Backfill::Conservative)],
        per_cpu in any::<bool>(),
    ) {
        let jobs: Vec<JobView> = specs.into_iter().zip(1..).map(|(spec, id)| job(id, spec)).collect();
        let mut view = cluster(nodes_of_kind(&machines), jobs.clone());
        view.policy.backfill = backfill;
        view.policy.unit = if per_cpu { AllocationUnit::Cpu } else { AllocationUnit::Core };
        let plan_of = plan(&view, NOW);
        prop_assert_eq!(overbooked(&view, &plan_of), None);
        prop_assert_eq!(overbooked_later(&view, &plan_of, NOW), None);
        // With nobody behind it, a job would have the same place.
        if backfill == Backfill::Conservative {
            for last in 1..jobs.len() {
                let mut without = view.clone();
                without.pending.truncate(last);
                // Whether labels and users are told apart at all depends on all jobs: where they are not, other nodes may be the
                // first among equals.
                if without.matters() != view.matters() {
                    continue;
                }
                let known = |job: JobId| job.0 as usize <= last;
                let place = |plan: &Plan| -> Vec<_> {
                    let starts = plan.starts.iter().filter(|s| known(s.job)).map(|s| (s.job, NOW, s.nodes.len()));
                    let later = plan.reservations.iter().filter(|r| known(r.job)).map(|r| (r.job, r.from, r.nodes.len()));
                    starts.chain(later).collect()
                };
                prop_assert_eq!(place(&plan_of), place(&plan(&without, NOW)));
            }
        }
        // The same snapshot gives the same plan.
        prop_assert_eq!(&plan_of, &plan(&view, NOW));
        for start in &plan_of.starts {
            let job = jobs.iter().find(|j| j.id == start.job).unwrap();
            prop_assert!(start.nodes.iter().all(|n| !view.nodes[n.index.0 as usize].flags.drain));
            let count = u32::try_from(start.nodes.len()).unwrap();
            prop_assert!(count >= job.min_nodes && count <= job.max_nodes.max(job.min_nodes));
            if job.spec.tasks.is_some() {
                let tasks: u32 = start.nodes.iter().map(|n| n.share.tasks).sum();
                prop_assert_eq!(tasks, job.tasks);
            }
            for node in &start.nodes {
                let tasks = node.share.tasks;
                prop_assert!(node.share.cpus.len() >= tasks * job.cpus_per_task);
                prop_assert!(job.spec.tasks_per_node.is_none_or(|most| tasks <= most));
            }
        }
        // Everything pending has a start or a reason.
        for job in &jobs {
            prop_assert!(plan_of.starts.iter().any(|s| s.job == job.id) || plan_of.reasons.iter().any(|(j, _)| *j == job.id));
        }
    }
}

#[test]
fn ten_thousand_nodes_and_jobs_plan_in_one_pass() {
    let mut nodes: Vec<NodeView> = (0..10_000).map(|i| node(i, 8)).collect();
    for (i, node) in nodes.iter_mut().enumerate() {
        let kind = ["a", "b", "c"][i % 3];
        node.features = vec![kind.to_owned()];
        node.holds.push(hold(50_000, 0..u32::try_from(i % 16).unwrap(), 10, Some(NOW.secs() + i as i64)));
    }
    let jobs: Vec<JobView> = (1..=10_000)
        .map(|id| {
            let spec = match id % 4 {
                0 => wide(1 + id % 64),
                1 => JobSpec { tasks: Some(1 + id % 32), ..spec() },
                2 => JobSpec { constraint: Some("a|b".to_owned()), ..spec() },
                _ => JobSpec { cpus_per_task: Some(4), ..spec() },
            };
            job(id, spec)
        })
        .collect();
    let mut view = cluster(nodes, jobs);
    view.policy.max_starts = usize::MAX;
    let began = std::time::Instant::now();
    let plan = plan(&view, NOW);
    eprintln!("planned {} starts, {} reasons in {:?}", plan.starts.len(), plan.reasons.len(), began.elapsed());
    assert!(plan.starts.len() > 2_000);
    let mut all = FixedBitSet::with_capacity(10_000);
    all.extend(plan.starts.iter().flat_map(|s| s.nodes.iter().map(|n| n.index.0 as usize)));
    assert!(all.count_ones(..) > 5_000);
    assert_eq!(overbooked_quick(&view, &plan), None);
}

/// [`overbooked`] walks all starts for every node; this one walks once, for the large case.
fn overbooked_quick(view: &ClusterView, plan: &Plan) -> Option<String> {
    let mut free: Vec<CpuSet> = view
        .nodes
        .iter()
        .map(|n| {
            let mut free = n.shape.all_cpus();
            for hold in &n.holds {
                free.subtract(&hold.share.cpus);
            }
            free
        })
        .collect();
    for start in &plan.starts {
        for node in &start.nodes {
            let free = &mut free[node.index.0 as usize];
            if !node.share.cpus.is_subset(free) {
                return Some(format!("{}: {} of {}", node.name, node.share.cpus, free));
            }
            free.subtract(&node.share.cpus);
        }
    }
    None
}

fn expediting(id: u32, spec: JobSpec) -> JobView {
    JobView { state: JobState::Expediting, ..job(id, spec) }
}

fn kept(for_job: u32, cpus: std::ops::Range<u32>) -> NodeHold {
    NodeHold { kept: true, uid: 1001, ..hold(for_job, cpus, 100, None) }
}

fn starts(plan: &Plan) -> Vec<(u32, Vec<String>)> {
    plan.starts.iter().map(|s| (s.job.0, s.nodes.iter().map(|n| n.name.clone()).collect())).collect()
}

#[test]
fn an_expedited_job_goes_before_all_others_onto_its_kept_nodes_and_a_spare_one() {
    let alone = |n| JobSpec { sharing: Sharing::Exclusive, ..wide(n) };
    let mut nodes: Vec<_> = (0..4).map(|i| node(i, 2)).collect();
    nodes[2].holds.push(kept(9, 0..4));
    nodes[1].base = NodeBase::Down;
    // The other is older and of higher priority.
    let view = cluster(nodes, vec![job(1, alone(2)), expediting(9, alone(2))]);
    let plan = plan(&view, NOW);
    assert_eq!(starts(&plan), [(9, vec!["n0".to_owned(), "n2".to_owned()])]);
    assert_eq!(plan.reasons, [(JobId(1), Reason::Resources)]);
}

#[test]
fn what_is_kept_is_taken_to_all_others_while_the_job_waits() {
    let alone = |n| JobSpec { sharing: Sharing::Exclusive, ..wide(n) };
    let mut nodes: Vec<_> = (0..3).map(|i| node(i, 2)).collect();
    nodes[0].holds.push(kept(9, 0..4));
    nodes[1].holds.push(hold(5, 0..4, 100, Some(105_000)));
    nodes[2].base = NodeBase::Down;
    let view = cluster(nodes, vec![job(1, alone(1)), expediting(9, alone(2))]);
    let plan = plan(&view, NOW);
    assert_eq!(starts(&plan), []);
    assert!(plan.reasons.contains(&(JobId(9), Reason::Resources)), "{:?}", plan.reasons);
    let expected = [(JobId(9), Timestamp::from_secs(105_000)), (JobId(1), Timestamp::from_secs(108_600))];
    assert_eq!(plan.expected, expected);
}
