#![allow(clippy::unwrap_used)]
use super::{
    jobs, nodes,
    own::{self, Actors, Handled, Own, ProcessUse},
    scheduler,
};
use crate::testing::{hold, job_view, partition, waiting};
use garrick_model::{
    config::PartitionConfig,
    gres::{GresEntry, GresShare},
    messages::statistics::{AccountingQueue, Cycles, Exits, PassCounts, RequestCount, Statistics},
    node_shape::NodeShape,
    resources::{CpuSet, MemoryMib},
    spec::JobSpec,
    state::{JobState, NodeFlags, Reason},
    testing,
    time::Timestamp,
    view::{JobView, NodeLoad, NodeView, PartitionView, StepCounts},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

/// The cluster of the transcripts: three nodes of 4 CPUs and 2000 MiB, two GPUs on the first.
fn node(index: u32) -> NodeView {
    let gpus = GresEntry {
        name: "gpu".to_owned(),
        kind: Some("tesla".to_owned()),
        count: 2,
        no_consume: false,
        devices: true,
        places: Vec::new(),
        shards: Vec::new(),
    };
    let gres = if index == 0 { vec![gpus] } else { Vec::new() };
    let shape = NodeShape { memory: MemoryMib(2000), gres, ..testing::shape(1, 4, 1) };
    let load = NodeLoad { free_memory: Some(MemoryMib(21010)), ..NodeLoad::default() };
    NodeView { name: format!("n{}", index + 1), shape, load, ..testing::node(index, 4) }
}

fn cluster() -> (Vec<Arc<NodeView>>, Vec<Arc<PartitionView>>) {
    let nodes = (0..3).map(|index| Arc::new(node(index))).collect();
    let short = PartitionView {
        nodes: partition("short", 3).nodes[1..].to_vec(),
        ..testing::partition(PartitionConfig::named("short"), 3)
    };
    (nodes, vec![Arc::new(partition("main", 3)), Arc::new(short)])
}

/// The samples of a text, by name and labels.
fn samples(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap()).collect()
}

#[test]
fn an_idle_cluster_is_told_as_slurm_tells_it() {
    let (nodes, partitions) = cluster();
    let off = HashSet::new();
    assert_eq!(jobs::all(&[], &off), include_str!("../expected/metrics_jobs.txt"));
    assert_eq!(nodes::all(&nodes), include_str!("../expected/metrics_nodes.txt"));
    let expected = include_str!("../expected/metrics_partitions.txt");
    assert_eq!(nodes::of_each_partition(&partitions, &nodes, &[]), expected);
    assert_eq!(jobs::by_user_and_account(&[], &off), "");
}

#[test]
fn the_scheduler_is_told_as_slurm_tells_it() {
    let at = Timestamp::from_secs(1_795_423_134);
    let cycles = Cycles { count: 1, last_micros: 29, max_micros: 29, sum_micros: 29 };
    let exits = Exits { end_of_queue: 1, ..Exits::default() };
    let counted = Statistics {
        at,
        since: Timestamp::from_secs(1_795_423_088),
        clock_micros: 29,
        passes: PassCounts { cycles, exits, ..PassCounts::default() },
        ..Statistics::default()
    };
    let states = "slurm_sdiag_job_states_ts ";
    let expected = include_str!("../expected/metrics_scheduler.txt")
        .replace(&format!("{states}1795423118"), &format!("{states}1795423134"));
    assert_eq!(scheduler::scheduler(&counted), expected);
}

fn run(id: u32, user: &str, account: Option<&str>) -> JobView {
    let job = job_view(id, JobState::Running);
    let spec = JobSpec { account: account.map(str::to_owned), ..(*job.spec).clone() };
    let mut allocation = (**job.allocation.as_ref().unwrap()).clone();
    allocation.partition = "main".to_owned();
    let gpu = GresShare { name: "gpu".to_owned(), kind: None, count: 1, devices: CpuSet::from(0..1) };
    allocation.nodes[0].share.gres.push(gpu);
    JobView { user: user.to_owned(), spec: Arc::new(spec), allocation: Some(Arc::new(allocation)), ..job }
}

/// Of alice: one runs, an array of three waits, one failed and is being cleaned. Of bob: one is suspended, one is held.
fn busy() -> Vec<Arc<JobView>> {
    let wait = |id, user: &str, reason, priority| JobView {
        user: user.to_owned(),
        priority,
        partitions: vec!["main".to_owned(), "short".to_owned()],
        tasks: 4,
        max_nodes: 9,
        ..waiting(id, reason)
    };
    let array = JobView { array_pending: Some(testing::array(0, 2, None)), ..wait(2, "alice", Reason::Priority, 5) };
    let failed =
        JobView { state: JobState::Completing, ending: Some(JobState::Failed), ..run(3, "alice", Some("physics")) };
    let suspended = JobView { state: JobState::Suspended, ..run(4, "bob", None) };
    let held = JobView { min_nodes: 7, tasks: 7, ..wait(5, "bob", Reason::JobHeldUser, 0) };
    [run(1, "alice", Some("physics")), array, failed, suspended, held].map(Arc::new).into()
}

#[test]
fn jobs_are_counted_by_state_partition_user_and_account() {
    let text = jobs::all(&busy(), &HashSet::new());
    let all = samples(&text);
    for (name, value) in [
        ("", "7"),
        ("_pending", "4"),
        ("_hold", "1"),
        ("_running", "1"),
        ("_suspended", "1"),
        ("_failed", "1"),
        ("_completing", "1"),
        ("_finished", "1"),
        ("_started", "3"),
        ("_cpus_alloc", "12"),
        ("_memory_alloc", "400"),
        ("_gpus_alloc", "2"),
        ("_nodes_alloc", "2"),
    ] {
        assert_eq!(all[format!("slurm_jobs{name}").as_str()], value, "{name}");
    }
    let text = jobs::by_user_and_account(&busy(), &HashSet::new());
    let each = samples(&text);
    assert_eq!(each["slurm_user_jobs{username=\"alice\"}"], "5");
    assert_eq!(each["slurm_user_jobs_suspended{username=\"bob\"}"], "1");
    assert_eq!(each["slurm_account_jobs_running{account=\"physics\"}"], "1");
    assert_eq!(each["slurm_account_jobs"], "5", "those without an account");
    let (nodes, partitions) = cluster();
    let text = nodes::of_each_partition(&partitions, &nodes, &busy());
    let each = samples(&text);
    assert_eq!(each["slurm_partition_jobs{partition=\"main\"}"], "5", "records that are not over");
    assert_eq!(each["slurm_partition_jobs_pending{partition=\"short\"}"], "4");
    assert_eq!(each["slurm_partition_jobs_min_job_nodes{partition=\"main\"}"], "7");
    assert_eq!(each["slurm_partition_jobs_min_job_nodes_nohold{partition=\"main\"}"], "1");
    assert_eq!(each["slurm_partition_jobs_max_job_nodes_nohold{partition=\"main\"}"], "4", "no more than tasks");
}

#[test]
fn nodes_are_counted_by_what_they_are_and_have() {
    let (mut nodes, partitions) = cluster();
    Arc::make_mut(&mut nodes[0]).holds = vec![hold(0..3)];
    Arc::make_mut(&mut nodes[0]).holds[0].share.memory = Some(MemoryMib(300));
    Arc::make_mut(&mut nodes[2]).flags = NodeFlags { drain: true, not_responding: true, ..NodeFlags::default() };
    let text = nodes::all(&nodes);
    let all = samples(&text);
    assert_eq!(all["slurm_node_cpus_alloc{node=\"n1\"}"], "3");
    assert_eq!(all["slurm_node_cpus_idle{node=\"n1\"}"], "1");
    assert_eq!(all["slurm_node_memory_alloc_bytes{node=\"n1\"}"], "300");
    for (name, value) in [("mixed", "1"), ("idle", "2"), ("drain", "1"), ("drained", "1"), ("noresp", "1")] {
        assert_eq!(all[format!("slurm_nodes_{name}").as_str()], value, "{name}");
    }
    let text = nodes::of_each_partition(&partitions, &nodes, &[]);
    let each = samples(&text);
    assert_eq!(each["slurm_partition_nodes_cpus_idle{partition=\"main\"}"], "9");
    assert_eq!(each["slurm_partition_nodes_drained{partition=\"short\"}"], "1");
}

#[test]
fn what_waits_for_accounting_is_told() {
    let at = Timestamp::from_secs(1_000);
    let accounting = AccountingQueue { events: 7, stored: 3, away_since: Some(Timestamp::from_secs(940)) };
    let requests = vec![RequestCount { request: "ListJobs".to_owned(), count: 2, micros: 1_500_000 }];
    let counted = Statistics { at, accounting, requests, ..Statistics::default() };
    let (queued, handling) = (Duration::from_micros(2_500_000), Duration::from_micros(30));
    let messages = [Handled { actors: "/job", message: "Start", count: 4, queued, handling }];
    let actors = [Actors { kind: "/job".to_owned(), count: 3, waiting: 9, most_waiting: 5, restarts: 1 }];
    let process = ProcessUse { cpu: Duration::from_millis(1_500), started: Some(at), ..ProcessUse::default() };
    let steps = StepCounts::default();
    let text = own::page(&Own {
        counted: &counted,
        steps: &steps,
        messages: &messages,
        actors: &actors,
        process: &process,
        version: "0.1",
    });
    let all = samples(&text);
    assert_eq!(all["garrick_accounting_queue_events"], "7");
    assert_eq!(all["garrick_accounting_away_seconds"], "60");
    assert_eq!(all["garrick_request_seconds_total{request=\"ListJobs\"}"], "1.500000");
    let of_start = |name: &str| all[format!("garrick_{name}_total{{actors=\"/job\",message=\"Start\"}}").as_str()];
    assert_eq!(of_start("messages_handled"), "4");
    assert_eq!(of_start("message_queue_seconds"), "2.500000");
    assert_eq!(of_start("message_handling_seconds"), "0.000030");
    assert_eq!(all["garrick_mailbox_messages{actors=\"/job\"}"], "9");
    assert_eq!(all["garrick_actor_restarts_total{actors=\"/job\"}"], "1");
    assert_eq!(all["process_cpu_seconds_total"], "1.500000");
    assert_eq!(all["process_start_time_seconds"], "1000");
}
