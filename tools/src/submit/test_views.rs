//! Job views for tests.

use garrick_model::{
    ids::{JobId, NodeIndex, Sluid},
    node_shape::NodeShare,
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{JobKind, JobSpec, Sharing},
    state::{ExitStatus, JobState, Reason},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, Allocation, JobView},
};
use std::sync::Arc;

/// A specification with nothing asked for.
pub fn job_spec() -> JobSpec {
    let submitter = crate::options::job_spec::Submitter { work_dir: "/home/alice".into(), ..Default::default() };
    let work = crate::options::job_spec::Work {
        kind: JobKind::Allocation,
        default_name: "demo".to_owned(),
        argv: Vec::new(),
        script: None,
        command: None,
    };
    crate::options::job_spec::build(&crate::options::typed::Typed::default(), submitter, work)
        .expect("nothing asked for is well-formed")
        .spec
}

/// A job of alice's on n1 (4 CPUs) and n2 (2 CPUs).
pub fn job_view(id: u32, state: JobState) -> JobView {
    let node = |name: &str, index, cpus: u32| AllocatedNode {
        name: name.to_owned(),
        index: NodeIndex(index),
        share: NodeShare {
            cpus: CpuSet::from(0..cpus),
            memory: Some(MemoryMib(100)),
            tasks: cpus / 2,
            gres: Vec::new(),
        },
    };
    let nodes = vec![node("n1", 0, 4), node("n2", 1, 2)];
    JobView {
        id: JobId(id),
        generation: 1,
        sluid: Sluid(1),
        spec: Arc::new(job_spec()),
        uid: 1001,
        gid: 1001,
        user: "alice".to_owned(),
        group: "alice".to_owned(),
        state,
        ending: None,
        reason: Reason::None,
        array_pending: None,
        array_task: None,
        array_running: 0,
        priority: 1,
        dependencies: Default::default(),
        eligible: true,
        partitions: vec!["debug".to_owned()],
        time_limit: TimeLimit::Secs(600),
        submit_time: Timestamp::from_secs(1000),
        eligible_time: None,
        start_time: Some(Timestamp::from_secs(1001)),
        end_time: Some(Timestamp::from_secs(1601)),
        last_sched_eval: None,
        allocation: Some(Arc::new(Allocation {
            nodes,
            partition: "debug".to_owned(),
            exclusive: false,
            ..Allocation::default()
        })),
        completing_nodes: Vec::new(),
        exit: ExitStatus::SUCCESS,
        derived_exit: ExitStatus::SUCCESS,
        restarts: 0,
        requeue: true,
        cpus_per_task: 2,
        tasks: 3,
        min_nodes: 2,
        max_nodes: 2,
        cpus: 6,
        memory: MemoryRequest::Default,
        sharing: Sharing::Default,
        stdout_path: None,
        stderr_path: None,
        stdin_path: None,
        admin_comment: None,
        system_comment: None,
        terms: garrick_model::view::PriorityTerms::default(),
        preempted: None,
        leave_by: None,
        suspended: None,
        billing: None,
        steps: garrick_model::packed_steps::StepTally::default(),
    }
}
