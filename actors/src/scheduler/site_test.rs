//! What keys of `slurm.conf` change in plans and priorities, from the text of the file on.
#![allow(clippy::unwrap_used)]

use crate::partition::core::PartitionCore;
use garrick_model::{
    config::{self, Config},
    spec::{JobSpec, NodeCount, Sharing},
    testing::{hold, job, node, spec},
    time::Timestamp,
    view::{JobView, NodeHold, NodeView, PartitionView},
};
use garrick_plan::{
    plan::{Plan, plan, probe::Feasibility},
    policy::{partition_facts, policy},
    rules::priority::{Rules, Standing},
    snapshot::facts::ClusterView,
};
use std::{path::Path, sync::Arc, time::Duration};

const NOW: Timestamp = Timestamp::from_secs(100_000);

/// Four nodes below two leaf switches; another topology has them the other way round.
const TOPOLOGIES: &str = "---
- topology: pairs
  cluster_default: true
  tree:
    switches:
      - switch: a
        nodes: n[0-1]
      - switch: b
        nodes: n[2-3]
      - switch: top
        children: a,b
- topology: across
  tree:
    switches:
      - switch: even
        nodes: n0,n2
      - switch: odd
        nodes: n1,n3
      - switch: all
        children: even,odd
";

fn site(lines: &str) -> Config {
    site_in(TOPOLOGIES, lines)
}

fn site_in(topologies: &str, lines: &str) -> Config {
    let text = format!("ClusterName=c\nSlurmctldHost=h\nNodeName=n[0-3] CPUs=16\n{lines}\n");
    let files = [("/e/slurm.conf", text.as_str()), ("/e/topology.yaml", topologies)];
    let (config, report) = config::read_files(Path::new("/e/slurm.conf"), &files);
    config.unwrap_or_else(|| panic!("{report}"))
}

fn partitions(config: &Config) -> Vec<Arc<PartitionView>> {
    let view = |name: &str| PartitionCore::new(config, name, Default::default()).unwrap().view();
    config.partitions.iter().map(|p| Arc::new(view(&p.name))).collect()
}

/// Its four nodes, each of two sockets of four cores of two threads.
fn nodes() -> Vec<Arc<NodeView>> {
    let machine = |index| {
        let mut node = node(index, 8);
        (node.shape.sockets, node.shape.cores_per_socket) = (2, 4);
        Arc::new(node)
    };
    (0..4).map(machine).collect()
}

fn view(config: &Config, jobs: Vec<JobView>) -> ClusterView {
    let facts = partitions(config).iter().map(|p| partition_facts(p, 4)).collect();
    let jobs: Vec<Arc<JobView>> = jobs.into_iter().map(Arc::new).collect();
    ClusterView::new(policy(config), &jobs, &nodes(), facts)
}

fn wide(nodes: u32, partition: &str) -> JobSpec {
    let nodes = Some(NodeCount { min: nodes, max: Some(nodes) });
    JobSpec { nodes, sharing: Sharing::Exclusive, partitions: vec![partition.to_owned()], ..spec() }
}

fn given(plan: &Plan) -> Vec<Vec<&str>> {
    plan.starts.iter().map(|start| start.nodes.iter().map(|node| node.name.as_str()).collect()).collect()
}

#[test]
fn a_partition_takes_so_many_cpus_of_a_socket() {
    for (key, most) in [("", 16), ("MaxCPUsPerSocket=2", 4), ("MaxCPUsPerSocket=4", 8)] {
        let view = view(&site(&format!("PartitionName=p Nodes=ALL {key}")), Vec::new());
        let could = |tasks| {
            let shared = JobSpec { sharing: Sharing::Default, tasks: Some(tasks), ..wide(1, "p") };
            Feasibility::new(view.clone()).check(&job(1, shared)).is_ok()
        };
        assert!(could(most) && !could(most + 1), "{key}");
    }
}

#[test]
fn jobs_are_near_each_other_in_the_topology_of_their_partition() {
    let config = site("PartitionName=p Nodes=ALL\nPartitionName=q Nodes=ALL Topology=across");
    for (partition, near) in [("p", ["n0", "n1"]), ("q", ["n0", "n2"])] {
        let made = plan(&view(&config, vec![job(1, wide(2, partition))]), NOW);
        assert_eq!(given(&made), [near], "{partition}");
    }
}

#[test]
fn jobs_of_a_partition_have_their_switches_to_themselves() {
    for (key, second) in [("NO", ["n1"]), ("YES", ["n2"])] {
        let config = site(&format!("PartitionName=p Nodes=ALL ExclusiveTopo={key}"));
        let made = plan(&view(&config, vec![job(1, wide(1, "p")), job(2, wide(1, "p"))]), NOW);
        assert_eq!(given(&made), [["n0"], second], "{key}");
    }
}

#[test]
fn the_site_says_whom_its_topology_binds_and_whether_it_orders_nodes() {
    let lines = |key: &str| format!("TopologyParam={key}\nPartitionName=p Nodes=ALL");
    let beside_another = |key: &str| {
        let mut view = view(&site(&lines(key)), vec![job(1, wide(2, "p"))]);
        let other = NodeHold { sharing: Sharing::Exclusive, ..hold(90, 0..16, 0, Some(NOW.secs() + 600)) };
        Arc::make_mut(&mut view.nodes[0]).holds.push(other);
        given(&plan(&view, NOW)).concat().join(",")
    };
    assert_eq!(beside_another(""), "n2,n3");
    assert_eq!(beside_another("TopoOptional"), "n1,n2");

    let across = &TOPOLOGIES[TOPOLOGIES.find("- topology: across").unwrap()..];
    let in_order = |key: &str| {
        let config = site_in(across, &lines(key));
        given(&plan(&view(&config, vec![job(1, wide(4, "p"))]), NOW)).concat().join(",")
    };
    assert_eq!(in_order(""), "n0,n1,n2,n3");
    assert_eq!(in_order("SwitchAsNodeRank"), "n0,n2,n1,n3");
}

#[test]
fn weights_and_the_time_that_counts_are_those_of_the_site() {
    let waited = JobView {
        eligible_time: Some(Timestamp(NOW.0 - 1_800_000)),
        submit_time: Timestamp(NOW.0 - 1_800_000),
        ..job(1, JobSpec { tasks: Some(16), ..wide(1, "p") })
    };
    let number = |lines: &str, partition: &str| {
        let lines = format!(
            "PriorityType=priority/multifactor\n{lines}PartitionName=p Nodes=ALL PriorityJobFactor=10\n\
             PartitionName=q Nodes=ALL PriorityJobFactor=40"
        );
        let config = site(&lines);
        let rules = Rules::new(&config.priority, &partitions(&config), &nodes(), NOW);
        rules.priority(&JobView { partitions: vec![partition.to_owned()], ..waited.clone() }, Standing::default())
    };
    // Half an hour of the hour that counts, and of seven days.
    assert_eq!(number("PriorityWeightAge=336000\nPriorityMaxAge=60\n", "p"), 168_000);
    assert_eq!(number("PriorityWeightAge=336000\n", "p"), 1000);
    assert_eq!(
        (number("PriorityWeightPartition=1000\n", "p"), number("PriorityWeightPartition=1000\n", "q")),
        (250, 1000)
    );
    // 16 of 64 CPUs.
    assert_eq!(number("PriorityWeightTRES=CPU=1000\n", "p"), 250);
}

#[test]
fn priorities_are_calculated_again_after_the_period_of_the_site() {
    for (lines, secs) in [("", 300), ("PriorityCalcPeriod=2\n", 120)] {
        let config = site(&format!("{lines}PartitionName=p Nodes=ALL"));
        let rules = Rules::new(&config.priority, &partitions(&config), &nodes(), NOW);
        assert!(!rules.is_due(NOW.plus(Duration::from_secs(secs - 1))), "{lines}");
        assert!(rules.is_due(NOW.plus(Duration::from_secs(secs))), "{lines}");
        assert!(rules.is_due(Timestamp(NOW.0 - 1)), "a clock that was set back is a reason, too");
    }
}
