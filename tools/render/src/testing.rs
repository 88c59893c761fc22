//! Views for tests: the cluster of the transcripts, two nodes of 16 CPUs in one partition, with the job 503 on both. Times
//! are its own, and the zone is UTC.

use crate::{clock::Clock, json::Meta};
use garrick_model::{
    config::PartitionConfig,
    ids::{ArrayTask, JobId, Sluid, StepId, StepNum},
    node_shape::{NodeShape, NodeShare},
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{JobKind, JobSpec},
    state::{JobState, NodeFlags, Reason},
    testing,
    time::{TimeLimit, Timestamp},
    view::{
        AllocatedNode, Allocation, JobView, NodeFacts, NodeHold, NodeLoad, NodeReason, NodeView, PartitionView,
        StepView,
    },
};
use jiff::tz::TimeZone;
use std::sync::Arc;

/// 2026-11-21T10:00:51, when job 503 was submitted and started.
pub const START: i64 = 1_795_255_251;

/// So many seconds later.
pub fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(START + secs)
}

/// The reader's clock, so many seconds after the start.
pub fn clock(secs: i64) -> Clock {
    Clock { zone: TimeZone::UTC, now: at(secs), format: None }
}

/// A document that alice asked for.
pub fn meta() -> Meta {
    Meta {
        cluster: "peer".to_owned(),
        command: vec!["squeue".to_owned()],
        form: crate::json::Form::default(),
        user: "alice".to_owned(),
        group: "users".to_owned(),
    }
}

/// A specification with nothing asked for.
pub fn job_spec() -> JobSpec {
    JobSpec {
        kind: JobKind::Allocation,
        name: "demo".to_owned(),
        memory: MemoryRequest::Default,
        time_limit: None,
        work_dir: "/home/alice".to_owned(),
        script: None,
        umask: 0,
        submit_host: String::new(),
        alloc_sid: 0,
        submit_line: String::new(),
        command: None,
        ..testing::spec()
    }
}

/// A job of alice's on n1 (4 CPUs) and n2 (2 CPUs).
pub fn job_view(id: u32, state: JobState) -> JobView {
    let share = |cpus: u32| NodeShare {
        cpus: CpuSet::from(0..cpus),
        memory: Some(MemoryMib(100)),
        tasks: cpus / 2,
        gres: Vec::new(),
    };
    let nodes = vec![testing::allocated("n1", 0, share(4)), testing::allocated("n2", 1, share(2))];
    let allocation = Allocation { nodes, partition: "debug".to_owned(), ..Allocation::default() };
    JobView {
        sluid: Sluid(1),
        state,
        priority: 1,
        time_limit: TimeLimit::Secs(600),
        submit_time: Timestamp::from_secs(1000),
        start_time: Some(Timestamp::from_secs(1001)),
        end_time: Some(Timestamp::from_secs(1601)),
        allocation: Some(Arc::new(allocation)),
        cpus_per_task: 2,
        tasks: 3,
        min_nodes: 2,
        max_nodes: 2,
        cpus: 6,
        ..testing::job(id, job_spec())
    }
}

fn share(cpus: std::ops::Range<u32>) -> NodeShare {
    NodeShare { cpus: CpuSet::from_iter(cpus), memory: None, tasks: 0, gres: Vec::new() }
}

/// A running job of alice's on some nodes.
pub fn job(id: u32, nodes: &[(&str, u32)]) -> JobView {
    let nodes: Vec<AllocatedNode> =
        nodes.iter().zip(0..).map(|((name, cpus), index)| testing::allocated(name, index, share(0..*cpus))).collect();
    let count = u32::try_from(nodes.len()).expect("a few nodes");
    JobView {
        spec: Arc::new(JobSpec { kind: JobKind::Batch, name: "demo".to_owned(), ..job_spec() }),
        submit_time: at(0),
        eligible_time: Some(at(0)),
        start_time: Some(at(0)),
        end_time: Some(at(600)),
        last_sched_eval: Some(at(0)),
        allocation: Some(Arc::new(Allocation {
            nodes,
            partition: "debug".to_owned(),
            exclusive: false,
            ..Allocation::default()
        })),
        cpus_per_task: 1,
        tasks: 1,
        min_nodes: count,
        max_nodes: count,
        cpus: 1,
        ..job_view(id, JobState::Running)
    }
}

/// A job that waits.
pub fn waiting(id: u32, reason: Reason) -> JobView {
    JobView {
        state: JobState::Pending,
        reason,
        allocation: None,
        start_time: None,
        end_time: None,
        min_nodes: 1,
        ..job(id, &[])
    }
}

/// A job that is over.
pub fn over(id: u32, state: JobState, nodes: &[(&str, u32)]) -> JobView {
    JobView { state, ..job(id, nodes) }
}

/// That job as a task of the array 504.
pub fn task(index: u32, view: JobView) -> JobView {
    let spec = JobSpec { name: "arr.sh".to_owned(), ..(*view.spec).clone() };
    JobView { array_task: Some(ArrayTask { array_job: JobId(504), index }), spec: Arc::new(spec), ..view }
}

/// Job 503 of the transcripts.
pub fn job_503() -> JobView {
    let spec = JobSpec {
        kind: JobKind::Batch,
        name: "demo".to_owned(),
        comment: Some("a comment".to_owned()),
        extra: None,
        work_dir: "/home/alice/demo".to_owned(),
        submit_host: "localhost".to_owned(),
        alloc_sid: 1398,
        submit_line: "sbatch job.sh".to_owned(),
        command: Some("/home/alice/demo/job.sh".to_owned()),
        ..job_spec()
    };
    JobView {
        sluid: "sFSNM7YRTC8Q00".parse().unwrap_or(Sluid(0)),
        spec: Arc::new(spec),
        tasks: 4,
        cpus: 4,
        memory: MemoryRequest::Default,
        stdin_path: Some("/dev/null".to_owned()),
        stdout_path: Some("/home/alice/demo/demo-503.out".to_owned()),
        ..job(503, &[("n1", 3), ("n2", 1)])
    }
}

/// A node of the transcripts.
pub fn node(index: u32) -> NodeView {
    let shape = NodeShape { memory: MemoryMib(1), ..testing::shape(16, 1, 1) };
    NodeView {
        name: format!("n{}", index + 1),
        generation: 1,
        shape: shape.clone(),
        address: "127.0.0.1".to_owned(),
        hostname: "host1".to_owned(),
        port: u16::try_from(37001 + index).expect("a port"),
        registration: Some(Arc::new(NodeFacts {
            os: "Linux 6.18.44-fc-v669 #1 SMP PREEMPT_DYNAMIC @0".to_owned(),
            version: "26.05.3".to_owned(),
            boot_time: at(-7172),
            agent_start: at(-5786),
            ..testing::facts("host1", shape)
        })),
        load: NodeLoad { load_hundredths: 271, free_memory: Some(MemoryMib(21974)) },
        last_busy: Some(at(-44)),
        ..testing::node(index, 16)
    }
}

/// What a job holds of a node.
pub fn hold(cpus: std::ops::Range<u32>) -> NodeHold {
    NodeHold { sluid: Sluid(1), uid: 1001, share: share(cpus), ..testing::hold(503, 0..0, 0, None) }
}

/// Drained, with a reason.
pub fn drained(node: NodeView, text: &str) -> NodeView {
    let reason = NodeReason { text: text.to_owned(), uid: 1001, user: "alice".to_owned(), at: at(10 * 60 + 26) };
    NodeView { flags: NodeFlags { drain: true, ..node.flags }, reason: Some(reason), ..node }
}

/// A partition of the first `count` nodes.
pub fn partition(name: &str, count: u32) -> PartitionView {
    let config = PartitionConfig { default: true, node_sets: vec!["ALL".to_owned()], ..PartitionConfig::named(name) };
    testing::partition(config, count)
}

/// A running step of job 503.
pub fn step(step: StepNum, name: &str, nodelist: &str) -> StepView {
    StepView {
        name: name.to_owned(),
        nodelist: nodelist.to_owned(),
        start_time: Some(at(0)),
        ..testing::step(StepId::new(JobId(503), step))
    }
}
