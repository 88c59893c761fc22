//! Records with good defaults, as submission makes them, so that a test shows only what matters.

use crate::records::job::{Afterwards, ArrayRecord, End, HeldBy, JobRecord, Owner, Phase, Resolved, Run, indices_of};
use garrick_model::{
    ids::{JobId, Sluid, StepKey},
    packed_steps::StepTally,
    spec::JobSpec,
    state::{ExitStatus, JobState, Reason, StepState},
    testing::job,
    time::{TimeLimit, Timestamp},
    usage::TaskUsage,
    view::{Allocation, PriorityTerms, StepRow},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The end of a job that was cancelled before it started.
pub fn cancelled() -> End {
    let (state, reason, exit) = (JobState::Cancelled, Reason::None, ExitStatus::SUCCESS);
    End {
        state,
        reason,
        exit,
        derived: exit,
        at: Timestamp(1),
        then: Afterwards::Over,
        cause: None,
        by: None,
        sluid: None,
    }
}

/// A step of one CPU that is over.
pub fn ended_row(key: StepKey) -> StepRow {
    StepRow {
        key,
        origin: 0,
        state: StepState::Completed,
        nodelist: "n0".into(),
        nodes: 1,
        cpus: 1,
        memory: Default::default(),
        gres: Vec::new(),
        start_time: Some(Timestamp(1)),
        end_time: Some(Timestamp(2)),
        exit: ExitStatus::SUCCESS,
        attempt: 0,
        usage: TaskUsage::default(),
        spread: None,
        all_of: None,
        reason: Default::default(),
    }
}

/// A record as submission makes it.
pub fn record(id: u32, spec: JobSpec) -> JobRecord {
    let view = job(id, spec.clone());
    JobRecord {
        id: JobId(id),
        sluid: Sluid(u64::from(id)),
        request: None,
        owner: Owner { uid: 1001, gid: 1001, user: "alice".to_owned(), group: "alice".to_owned(), groups: vec![1001] },
        resolved: Resolved {
            partitions: view.partitions,
            time_limit: view.time_limit,
            tasks: view.tasks,
            cpus_per_task: view.cpus_per_task,
            min_nodes: view.min_nodes,
            max_nodes: view.max_nodes,
            cpus: view.cpus,
            memory: view.memory,
            sharing: view.sharing,
            requeue: spec.requeue.unwrap_or(true),
            association: None,
            billing: None,
            default_qos: false,
        },
        submit_time: Timestamp::from_secs(1000),
        priority: 1_000_000 - id,
        terms: PriorityTerms::default(),
        hold: spec.hold.then_some(HeldBy::User),
        begin: spec.begin,
        dependencies: spec.dependencies.clone(),
        dependency_failed: false,
        eligible_time: None,
        array: spec.array.as_ref().map(|a| ArrayRecord {
            pending: indices_of(&a.ranges),
            limit: a.limit,
            tasks: BTreeMap::new(),
        }),
        array_task: None,
        restarts: 0,
        requeues_unasked: 0,
        left_crontab: false,
        admin_comment: None,
        steps: StepTally::default(),
        earlier: Vec::new(),
        unfenced: Vec::new(),
        expediting: None,
        last_exit: None,
        first_run: None,
        last_cause: None,
        phase: Phase::Pending,
        spec: Arc::new(spec),
    }
}

/// A run that has this allocation from then on, for a minute at most.
pub fn run(allocation: Allocation, at: Timestamp) -> Run {
    Run {
        addresses: allocation.nodes.iter().map(|node| node.name.clone()).collect(),
        allocation: Arc::new(allocation),
        start: at,
        time_limit: TimeLimit::Secs(60),
        started: None,
        door: String::new(),
        released: BTreeSet::new(),
        ending: None,
        kept: BTreeSet::new(),
        lost: BTreeSet::new(),
        epilog_failed: false,
        after_failure: None,
        continued: false,
        preempted: None,
        leave_by: None,
        suspended: None,
        parts: Vec::new(),
        booting: BTreeSet::new(),
        requeue: None,
        awaits_prolog: false,
        awaits_epilog: false,
        charge: None,
        sluid: None,
        backfilled: false,
        waited_for: Default::default(),
        chosen_qos: None,
    }
}
