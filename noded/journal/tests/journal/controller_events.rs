//! What is in a controller's sample.

use crate::step_events;
use garrick_events::{
    beside::Piece,
    event::{ControllerEvent, Following},
    progress::Position,
    records::{
        charge::Charge,
        job::{
            Afterwards, ArrayRecord, ChosenQos, EarlierHold, End, Ending, HeldBy, JobRecord, Owner, Phase, PreemptMark,
            Resolved, Run, TaskMark, TaskOutcome, Unfenced, Yielded,
        },
        job_event::{JobEvent, Revision},
        node::{DownCause, Reboot, SavedNode, SavedPower, SavedService},
        partition::SavedPartition,
    },
    steps::event::StepEvent,
    usage::{Amount, Meter, UsageEvent, UsageRules, Who},
};
use garrick_model::{
    config::{DynamicNode, PartitionChange, Whereabouts},
    cpu_freq::{CpuFreq, Frequency, Governor},
    crontab::{Crontab, CrontabJob},
    entities::association::AssocId,
    gres::GresCount,
    ids::{ArrayTask, JobId, NodeIndex, RequestId, Sluid, StepKey},
    mail::Mail,
    messages::{command::JobChange, node::RequeuePolicy},
    node_shape::NodeShare,
    packed_steps::{PackedSteps, StepTally},
    reservation::{AccessList, Reservation, ReservationFlag},
    resources::{MemoryMib, MemoryRequest},
    spec::{
        ArraySpec, Dependencies, Dependency, DependencyKind, Distribution, JobKind, JobSpec, NodeCount, OpenMode,
        ResourceLimit, Sharing, SignalWarning,
    },
    state::{ExitStatus, JobState, NodePower, PowerRequest, Reason, StepState},
    time::{TimeLimit, Timestamp},
    trigger::{Due, Trigger, TriggerAbout, TriggerEvent, TriggerRequest},
    usage::TaskUsage,
    view::{
        Accrual, AfterReboot, AllocatedNode, Allocation, NodeReason, PreemptTimes, PriorityTerms, StepCounts,
        StepOrigin, StepRow, StepRows,
    },
};
use serde_bytes::ByteBuf;
use std::{collections::BTreeMap, sync::Arc};

/// Every event. A new one goes here, into [`name`], and into the sample of the version that it comes with.
pub const NAMES: [&str; 55] = [
    "usage",
    "Prepared",
    "EpilogEnded",
    "Submitted",
    "Held",
    "Released",
    "Updated",
    "DependenciesLeft",
    "Eligible",
    "NotEligible",
    "Accrues",
    "AccrualReset",
    "TaskSplit",
    "BecameTask",
    "TaskNews",
    "Allocated",
    "Started",
    "LimitChanged",
    "Suspended",
    "Resumed",
    "Ending",
    "Ended",
    "StepsCounted",
    "NodeReleased",
    "NodeKept",
    "NodesLost",
    "EarlierReleased",
    "NotExpedited",
    "Requeued",
    "Purged",
    "Preempted",
    "Stopped",
    "Continued",
    "RequeueSet",
    "Unfenced",
    "Fenced",
    "NodeBooted",
    "a node",
    "a partition",
    "a controller",
    "used ids",
    "several in one",
    "a reservation",
    "a node of no file",
    "SubmittedLike",
    "a part",
    "a position",
    "a follower",
    "records of steps",
    "a piece beside the log",
    "Revised",
    "LeftCrontab",
    "a crontab",
    "a trigger",
    "a change of partitions",
];

pub fn name(event: &ControllerEvent) -> &'static str {
    match event {
        ControllerEvent::Job { event, .. } => event.name(),
        ControllerEvent::Node { .. } => "a node",
        ControllerEvent::Partition { .. } => "a partition",
        ControllerEvent::Started { .. } => "a controller",
        ControllerEvent::Used { .. } => "used ids",
        ControllerEvent::Together(_) => "several in one",
        ControllerEvent::Reservation { .. } => "a reservation",
        ControllerEvent::DynamicNode { .. } => "a node of no file",
        ControllerEvent::Part { .. } => "a part",
        ControllerEvent::Base { .. } => "a position",
        ControllerEvent::Follower { .. } => "a follower",
        ControllerEvent::Steps { .. } => "records of steps",
        ControllerEvent::Beside { .. } => "a piece beside the log",
        ControllerEvent::Usage(_) => "usage",
        ControllerEvent::Crontab { .. } => "a crontab",
        ControllerEvent::Trigger { .. } => "a trigger",
        ControllerEvent::PartitionChange { .. } => "a change of partitions",
    }
}

pub fn at(secs: i64) -> Timestamp {
    Timestamp(1_795_255_251_528 + 1000 * secs)
}

fn bytes(text: &str) -> ByteBuf {
    ByteBuf::from(text.as_bytes().to_vec())
}

fn sluid(n: u64) -> Sluid {
    Sluid((1_795_255_251_528 << 20) + n)
}

/// A job in which everything is said that can be.
fn spec() -> JobSpec {
    JobSpec {
        kind: JobKind::Batch,
        name: "train \"it\"\n".into(),
        account: Some("physics".into()),
        qos: Some("normal".into()),
        comment: Some("first try".into()),
        extra: None,
        user_env: false,
        cpu_freq: None,
        gpu_freq: None,
        sample_secs: None,
        profiling: Default::default(),
        oom_kill_step: None,
        wckey: Some("key".into()),
        partitions: vec!["debug".into(), "long".into()],
        nodes: Some(NodeCount { min: 2, max: Some(4) }),
        node_sizes: Default::default(),
        delay_boot_secs: None,
        tasks: Some(8),
        tasks_per_node: Some(4),
        cpus_per_task: Some(2),
        min_cpus_per_node: Some(1),
        memory: MemoryRequest::PerCpu(MemoryMib(500)),
        tmp_disk_mib: 100,
        time_limit: Some(TimeLimit::Secs(600)),
        time_min: Some(TimeLimit::Secs(60)),
        constraint: Some("gpu&fast".into()),
        prefer: None,
        batch_features: None,
        reboot: false,
        licenses: None,
        reservations: Vec::new(),
        gres: Default::default(),
        nodelist: vec!["n1".into()],
        exclude: vec!["n9".into()],
        sharing: Sharing::Exclusive,
        mcs_label: None,
        contiguous: true,
        topology: Default::default(),
        layout: Default::default(),
        array: None,
        dependencies: dependencies(),
        begin: Some(at(-60)),
        deadline: Some(at(86_400)),
        hold: true,
        priority: Some(77),
        nice: -5,
        requeue: Some(true),
        expedite: false,
        no_kill: true,
        kill_on_invalid_dep: None,
        immediate_secs: Some(30),
        work_dir: "/home/alice".into(),
        stdin: Some("/dev/null".into()),
        stdout: Some("out-%j".into()),
        stderr: Some("err-%j".into()),
        open_mode: OpenMode::Append,
        environment: Arc::new(vec![bytes("A=1"), ByteBuf::from(b"B=\xff\x00".to_vec())]),
        script: Some(Arc::new(bytes("#!/bin/sh\nsrun hostname\n"))),
        argv: vec![bytes("one"), bytes("two words")],
        umask: 0o022,
        process_nice: 0,
        rlimits: vec![ResourceLimit { resource: 7, soft: Some(1024) }, ResourceLimit { resource: 3, soft: None }],
        signal: Some(SignalWarning { signal: 10, before_secs: 60, batch_only: true, overlaps: false }),
        submit_host: "login1".into(),
        alloc_sid: 4711,
        submit_line: "sbatch job.sh one 'two words'".into(),
        command: Some("/home/alice/job.sh".into()),
        het: Some((JobId(11), 0)),
        het_size: 0,
        array_task: None,
        cron: None,
        mail: Default::default(),
    }
}

fn dependencies() -> Dependencies {
    let on = |kind, job, array_index| Dependency { kind, job, array_index, failed: false };
    Dependencies {
        any: true,
        list: vec![
            on(DependencyKind::After { minutes: 5 }, Some(JobId(3)), None),
            on(DependencyKind::AfterAny, Some(JobId(4)), None),
            on(DependencyKind::AfterOk, Some(JobId(5)), Some(2)),
            on(DependencyKind::AfterNotOk, Some(JobId(6)), None),
            on(DependencyKind::Singleton, None, None),
        ],
    }
}

/// A job in which nothing is said that need not be.
fn plain_spec() -> JobSpec {
    JobSpec {
        name: "plain".into(),
        account: None,
        qos: None,
        comment: None,
        extra: None,
        wckey: None,
        partitions: Vec::new(),
        nodes: None,
        tasks: None,
        tasks_per_node: None,
        cpus_per_task: None,
        min_cpus_per_node: None,
        memory: MemoryRequest::Default,
        tmp_disk_mib: 0,
        time_limit: None,
        time_min: None,
        constraint: None,
        nodelist: Vec::new(),
        exclude: Vec::new(),
        sharing: Sharing::Default,
        mcs_label: None,
        contiguous: false,
        topology: Default::default(),
        dependencies: Dependencies::default(),
        begin: None,
        deadline: None,
        hold: false,
        priority: None,
        nice: 0,
        requeue: None,
        expedite: false,
        no_kill: false,
        kill_on_invalid_dep: None,
        immediate_secs: None,
        work_dir: "/".into(),
        stdin: None,
        stdout: None,
        stderr: None,
        open_mode: OpenMode::Default,
        environment: Arc::default(),
        script: None,
        argv: Vec::new(),
        umask: 0,
        process_nice: 0,
        rlimits: Vec::new(),
        signal: None,
        submit_host: String::new(),
        alloc_sid: 0,
        submit_line: String::new(),
        command: None,
        het: None,
        het_size: 0,
        kind: JobKind::Allocation,
        ..spec()
    }
}

fn record(id: u32, spec: JobSpec) -> JobRecord {
    JobRecord {
        id: JobId(id),
        sluid: sluid(u64::from(id)),
        request: Some(RequestId(1, u64::from(id))),
        spec: Arc::new(spec),
        owner: Owner { uid: 1000, gid: 100, user: "alice".into(), group: "users".into(), groups: vec![100, 4, 27] },
        resolved: Resolved {
            partitions: vec!["debug".into()],
            time_limit: TimeLimit::Secs(600),
            tasks: 8,
            cpus_per_task: 2,
            min_nodes: 2,
            max_nodes: 4,
            cpus: 16,
            memory: MemoryRequest::PerNode(MemoryMib(4000)),
            sharing: Sharing::Default,
            requeue: true,
            association: None,
            billing: None,
            default_qos: false,
        },
        submit_time: at(0),
        priority: 4_294_901_760,
        terms: PriorityTerms::default(),
        hold: None,
        begin: None,
        dependencies: Dependencies::default(),
        dependency_failed: false,
        eligible_time: None,
        array: None,
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
    }
}

fn run(nodes: &[&str]) -> Run {
    let node = |(index, name): (usize, &&str)| AllocatedNode {
        name: (*name).to_owned(),
        index: NodeIndex(index as u32),
        share: NodeShare { cpus: "0-3,6".parse().unwrap(), memory: Some(MemoryMib(4000)), tasks: 4, gres: Vec::new() },
    };
    let allocation = Allocation {
        nodes: nodes.iter().enumerate().map(node).collect(),
        partition: "debug".into(),
        exclusive: true,
        licenses: Default::default(),
        reservation: None,
    };
    Run {
        allocation: Arc::new(allocation),
        addresses: vec!["127.0.0.1:7001".into(), "[::1]:7002".into()],
        start: at(5),
        time_limit: TimeLimit::Unlimited,
        started: None,
        door: String::new(),
        released: [].into(),
        ending: None,
        kept: [].into(),
        lost: [].into(),
        epilog_failed: false,
        after_failure: None,
        continued: false,
        preempted: None,
        leave_by: None,
        suspended: None,
        parts: Vec::new(),
        booting: [].into(),
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

fn end(state: JobState, reason: Reason, code: u8, then: Afterwards) -> End {
    let exit = ExitStatus { code, signal: None };
    End {
        state,
        reason,
        exit,
        derived: ExitStatus { code: 0, signal: Some(9) },
        at: at(50),
        then,
        cause: None,
        by: None,
        sluid: None,
    }
}

const TALLY: StepTally = StepTally {
    counts: StepCounts { queued: 1, running: 2, done: 300, failed: 4, cancelled: 0 },
    unreported: 5,
    dropped: 6,
    number: 0,
};

fn change() -> JobChange {
    JobChange {
        time_limit: Some(TimeLimit::Secs(1200)),
        time_limit_delta_secs: Some(-60),
        partitions: Some(vec!["long".into()]),
        priority: Some(9),
        nice: Some(3),
        name: Some("renamed".into()),
        comment: Some("second try".into()),
        extra: None,
        admin_comment: Some("noted".into()),
        nodes: Some(NodeCount { min: 2, max: None }),
        node_sizes: Default::default(),
        request: Default::default(),
        tasks: Some(6),
        memory: Some(MemoryRequest::All),
        constraint: Some(String::new()),
        licenses: None,
        begin: Some(at(3)),
        dependencies: Some(dependencies()),
        nodelist: Some(vec!["n2".into()]),
        exclude: Some(Vec::new()),
        requeue: Some(false),
        array_limit: Some(0),
        account: Some("biology".into()),
        site_factor: None,
        reset_accrue_time: false,
        switches: None,
        segment: None,
        reservations: None,
        prefer: None,
        time_min: None,
        mcs_label: None,
        mail_types: None,
        mail_user: None,
        sharing: None,
        end_time: None,
    }
}

/// What is in the sample of version 1: a run that is requeued, an array, a job that is forgotten, jobs as a compacted
/// journal has them, and what is saved of nodes and partitions.
pub fn version_1() -> Vec<ControllerEvent> {
    let mut events = vec![ControllerEvent::Started { epoch: 3 }];
    let mut job = |id: u32, list: Vec<JobEvent>| {
        let event = |event| ControllerEvent::Job { job: JobId(id), event: Box::new(event) };
        events.extend(list.into_iter().map(event));
    };
    let submitted = |record| JobEvent::Submitted(Box::new(record));
    let held = JobRecord {
        hold: Some(HeldBy::User),
        begin: Some(at(-60)),
        dependencies: dependencies(),
        ..record(11, spec())
    };
    let requeue = Afterwards::Requeue { hold: Some(HeldBy::LaunchFailure), delay: true };
    job(
        11,
        vec![
            submitted(held),
            JobEvent::Held(HeldBy::Admin),
            JobEvent::Released { priority: 88 },
            JobEvent::Updated(Box::new(change())),
            JobEvent::DependenciesLeft { left: Dependencies::default(), failed: true },
            JobEvent::Eligible { at: at(4) },
            JobEvent::Allocated(Box::new(run(&["n1", "n2"]))),
            JobEvent::Started { at: at(6), door: "/run/garrick/n1".into() },
            JobEvent::LimitChanged(TimeLimit::Secs(1800)),
            JobEvent::Suspended,
            JobEvent::Resumed,
            JobEvent::Ending(Ending {
                state: JobState::NodeFail,
                reason: Reason::Other("n2 is gone".into()),
                then: requeue,
                by: Some(0),
                at: None,
                unasked: false,
            }),
            JobEvent::Ended(end(JobState::NodeFail, Reason::RaisedSignal(9), 1, requeue)),
            JobEvent::StepsCounted(TALLY),
            JobEvent::NodeReleased { node: "n1".into(), epilog_failed: false },
            JobEvent::NodeReleased { node: "n2".into(), epilog_failed: false },
            JobEvent::Requeued {
                sluid: sluid(99),
                hold: Some(HeldBy::LaunchFailure),
                begin: Some(at(170)),
                expedited: false,
                at: None,
            },
        ],
    );
    let tasks = ArrayRecord { pending: [1, 3, 5, 9].into(), limit: Some(2), tasks: [].into() };
    job(
        12,
        vec![
            submitted(JobRecord {
                array: Some(tasks),
                ..record(
                    12,
                    JobSpec {
                        array: Some(ArraySpec { ranges: vec![(1, 5, 2), (9, 9, 1)], limit: Some(2) }),
                        ..plain_spec()
                    },
                )
            }),
            JobEvent::TaskSplit { index: 1, job: JobId(13) },
            JobEvent::TaskNews { index: 1, started: Some(at(20)), over: None, exit: None },
            JobEvent::TaskNews { index: 1, started: None, over: Some(TaskOutcome::NotOk), exit: None },
            JobEvent::BecameTask { index: 3 },
        ],
    );
    let over = end(JobState::Cancelled, Reason::None, 0, Afterwards::Over);
    job(13, vec![submitted(record(13, plain_spec())), JobEvent::Ended(over.clone()), JobEvent::Purged]);
    let marks = [(4, TaskMark { job: JobId(20), started: Some(at(1)), over: Some(TaskOutcome::Ok), exit: None })];
    let task = ArrayTask { array_job: JobId(21), index: 7 };
    let left = Run {
        started: Some(at(7)),
        door: "/run/garrick/n1".into(),
        released: ["n1".to_owned()].into(),
        ending: Some(Ending {
            state: JobState::Timeout,
            reason: Reason::TimeLimit,
            then: Afterwards::Over,
            by: None,
            at: None,
            unasked: false,
        }),
        ..run(&["n1", "n2"])
    };
    job(
        21,
        vec![submitted(JobRecord {
            request: None,
            eligible_time: Some(at(2)),
            dependency_failed: true,
            array: Some(ArrayRecord { pending: [].into(), limit: None, tasks: marks.into() }),
            array_task: Some(task),
            restarts: 2,
            admin_comment: Some("as compacted".into()),
            steps: TALLY,
            phase: Phase::Completing(left.clone(), end(JobState::Timeout, Reason::TimeLimit, 0, Afterwards::Over)),
            ..record(21, JobSpec { array_task: Some(task), ..plain_spec() })
        })],
    );
    for phase in [
        Phase::Starting(run(&["n1"])),
        Phase::Running(left.clone()),
        Phase::Suspended(left.clone()),
        Phase::Over(Some(left), over.clone()),
        Phase::Over(None, over),
    ] {
        job(22, vec![submitted(JobRecord { phase, ..record(22, plain_spec()) })]);
    }
    let reason = NodeReason { text: "disk \"sda\"".into(), uid: 0, user: "root".into(), at: at(30) };
    let saved = SavedNode {
        reboot: None,
        rebooted_for: None,
        down: Some(DownCause::Admin),
        drain: true,
        fail: false,
        reason: Some(reason),
        weight: Some(10),
        features: Some(vec!["gpu".into(), "fast".into()]),
        comment: Some("in repair".into()),
        extra: None,
        boot_id: None,
        invalid: None,
        power: None,
        address: None,
        hostname: None,
        resume_at: None,
        instance_id: None,
        instance_type: None,
        service: None,
    };
    let silent = SavedNode { down: Some(DownCause::Silence), ..SavedNode::default() };
    events.push(ControllerEvent::Node { node: "n2".into(), saved: Box::new(saved) });
    events.push(ControllerEvent::Node { node: "n3".into(), saved: Box::new(silent) });
    events.push(ControllerEvent::Node { node: "n4".into(), saved: Box::default() });
    let fields = [("maxtime", "2:00:00"), ("state", "DRAIN")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    let saved = SavedPartition { fields: fields.into() };
    events.push(ControllerEvent::Partition { partition: "debug".into(), saved: Box::new(saved) });
    events.push(ControllerEvent::Used { job: JobId(22), sluid: sluid(99), submissions: 5 });
    let mut saved = SavedPartition::default();
    saved.fields.insert("state".to_owned(), "UP".to_owned());
    events.push(ControllerEvent::Together(vec![
        ControllerEvent::Partition { partition: "long".into(), saved: Box::new(saved) },
        ControllerEvent::Node { node: "n4".into(), saved: Box::default() },
    ]));
    events
}

/// Those of version 1 as the controller of epoch 3 appended them, then what that of epoch 4 began with, what the former
/// appended late, and one more of the latter; with their writers' epochs.
pub fn version_2() -> Vec<(u64, ControllerEvent)> {
    let events = version_1();
    let late = events[1].clone();
    let begun = ControllerEvent::Started { epoch: 4 };
    let mut written: Vec<_> = events.into_iter().map(|event| (3, event)).collect();
    written.extend([(4, begun.clone()), (3, late), (4, begun)]);
    written
}

/// What came to version 1 later: a run that fails with one node given up and another kept for the next run, and a job as
/// a compacted journal has it while it waits ahead of all others.
pub fn expedited() -> Vec<ControllerEvent> {
    let mut events = vec![ControllerEvent::Started { epoch: 4 }];
    let mut job = |id: u32, list: Vec<JobEvent>| {
        let event = |event| ControllerEvent::Job { job: JobId(id), event: Box::new(event) };
        events.extend(list.into_iter().map(event));
    };
    let spec = || JobSpec { expedite: true, ..plain_spec() };
    let (requeued, failed) = (Afterwards::ExpediteIfEpilogFails, Afterwards::Expedite);
    let kept = |node: &str| EarlierHold {
        sluid: sluid(31),
        node: run(&[node]).allocation.nodes[0].clone(),
        partition: "debug".into(),
        exclusive: true,
        kept: true,
        parked: false,
    };
    job(
        31,
        vec![
            JobEvent::Submitted(Box::new(record(31, spec()))),
            JobEvent::Allocated(Box::new(run(&["n1", "n2", "n3"]))),
            JobEvent::NodesLost { nodes: vec!["n3".into()] },
            JobEvent::Ended(end(JobState::NodeFail, Reason::NodeDown, 0, failed)),
            JobEvent::NodeKept { node: "n1".into() },
            JobEvent::NodeReleased { node: "n2".into(), epilog_failed: true },
            JobEvent::Requeued { sluid: sluid(32), hold: None, begin: None, expedited: true, at: None },
            JobEvent::EarlierReleased { sluid: record(31, spec()).sluid, node: "n1".into() },
            JobEvent::NotExpedited,
            JobEvent::Held(HeldBy::SpecialExit),
        ],
    );
    let ended = Run { kept: ["n1".to_owned()].into(), after_failure: Some(at(5)), ..run(&["n1", "n2"]) };
    for phase in [Phase::Pending, Phase::Completing(ended, end(JobState::Failed, Reason::NonZeroExitCode, 3, requeued))]
    {
        let earlier = vec![kept("n1")];
        let record = JobRecord { earlier, expediting: Some(at(9)), phase, ..record(33, spec()) };
        job(33, vec![JobEvent::Submitted(Box::new(record))]);
    }
    events
}

/// Reservations, which came to version 1 later: made, used by a job, changed and ended.
pub fn reservations() -> Vec<ControllerEvent> {
    let reservation = Reservation {
        name: "maint_1".into(),
        start: at(100),
        end: at(4000),
        nodes: vec!["n1".into(), "n2".into()],
        partition: Some("debug".into()),
        features: Some("fast".into()),
        users: AccessList { deny: false, names: vec!["alice".into()] },
        accounts: AccessList { deny: true, names: vec!["physics".into()] },
        flags: [ReservationFlag::Maint, ReservationFlag::Daily, ReservationFlag::SpecNodes].into(),
        cores: 8,
        cpus: 16,
        comment: Some("new fans".into()),
        ..Reservation::default()
    };
    let saved = |reservation: &Reservation| ControllerEvent::Reservation {
        reservation: reservation.name.clone(),
        saved: Some(Box::new(reservation.clone())),
        at: None,
    };
    let other = Reservation { name: "class".into(), flags: [].into(), ..reservation.clone() };
    let job = |event| ControllerEvent::Job { job: JobId(41), event: Box::new(event) };
    let spec = JobSpec { reservations: vec!["maint_1".into(), "class".into()], ..plain_spec() };
    let mut inside = run(&["n1"]);
    Arc::make_mut(&mut inside.allocation).reservation = Some("class".into());
    vec![
        saved(&reservation),
        saved(&other),
        job(JobEvent::Submitted(Box::new(record(41, spec)))),
        job(JobEvent::Allocated(Box::new(inside))),
        saved(&Reservation { end: at(8000), ..reservation.clone() }),
        ControllerEvent::Reservation { reservation: "class".into(), saved: None, at: None },
    ]
}

/// What came to version 1 after that: a run that gives way to another job.
pub fn preempted() -> Vec<ControllerEvent> {
    let event = |event| ControllerEvent::Job { job: JobId(41), event: Box::new(event) };
    let times = PreemptTimes { eligible: at(6), at: at(40), ends: at(70) };
    let then = Afterwards::Requeue { hold: None, delay: true };
    vec![
        event(JobEvent::Submitted(Box::new(record(41, plain_spec())))),
        event(JobEvent::Allocated(Box::new(run(&["n1"])))),
        event(JobEvent::Started { at: at(6), door: "/run/garrick/n1".into() }),
        event(JobEvent::Preempted(PreemptMark { times, then, by: JobId(42) })),
    ]
}

/// What came to version 1 later: runs that leave when their reservation is over.
pub fn leaving() -> Vec<ControllerEvent> {
    let event = |event| ControllerEvent::Job { job: JobId(41), event: Box::new(event) };
    vec![
        event(JobEvent::Submitted(Box::new(record(41, plain_spec())))),
        event(JobEvent::Allocated(Box::new(run(&["n1"])))),
        event(JobEvent::Started { at: at(6), door: "/run/garrick/n1".into() }),
        event(JobEvent::LeaveBy(at(500))),
    ]
}

/// What came to version 2 later: programs of the site around a run, mail, exits of an array's tasks, and a reboot.
pub fn site_programs() -> Vec<ControllerEvent> {
    let event = |job, event| ControllerEvent::Job { job: JobId(job), event: Box::new(event) };
    let mail =
        Mail { types: "BEGIN,END,TIME_LIMIT_80".parse().unwrap_or_default(), user: Some("a@example.org".into()) };
    let awaits = Run { awaits_prolog: true, awaits_epilog: true, ..run(&["n1"]) };
    let tasks = ArrayRecord { pending: [1, 2].into(), limit: None, tasks: [].into() };
    let array = ArraySpec { ranges: vec![(1, 2, 1)], limit: None };
    let head = JobRecord { array: Some(tasks), ..record(72, JobSpec { array: Some(array), ..plain_spec() }) };
    let exit = Some(ExitStatus { code: 3, signal: None });
    let change = JobChange { mail_types: "FAIL".parse().ok(), mail_user: Some("b".into()), ..JobChange::default() };
    let reboot = Reboot { asap: true, next: Some(AfterReboot::Undrain), issued: Some(at(9)), run: None };
    let saved = SavedNode { down: Some(DownCause::Admin), drain: true, reboot: Some(reboot), ..SavedNode::default() };
    vec![
        event(71, JobEvent::Submitted(Box::new(record(71, JobSpec { mail, ..plain_spec() })))),
        event(71, JobEvent::Allocated(Box::new(awaits))),
        event(71, JobEvent::Prepared),
        event(71, JobEvent::Started { at: at(6), door: "/run/garrick/n1".into() }),
        event(71, JobEvent::Updated(Box::new(change))),
        event(71, JobEvent::Ended(end(JobState::Completed, Reason::None, 0, Afterwards::Over))),
        event(71, JobEvent::NodeReleased { node: "n1".into(), epilog_failed: false }),
        event(71, JobEvent::EpilogEnded),
        event(72, JobEvent::Submitted(Box::new(head))),
        event(72, JobEvent::TaskSplit { index: 1, job: JobId(73) }),
        event(72, JobEvent::TaskNews { index: 1, started: Some(at(20)), over: Some(TaskOutcome::NotOk), exit }),
        ControllerEvent::Node { node: "n1".into(), saved: Box::new(saved) },
    ]
}

/// What came to version 2 later: a job that names several QOS, runs with one of them, and waits with all of them again.
pub fn several_qos() -> Vec<ControllerEvent> {
    let event = |event| ControllerEvent::Job { job: JobId(81), event: Box::new(event) };
    let spec = JobSpec { qos: Some("high,normal".into()), ..plain_spec() };
    let chosen_qos = Some(ChosenQos { qos: "normal".into(), of: "high,normal".into() });
    let then = Afterwards::Requeue { hold: None, delay: false };
    vec![
        event(JobEvent::Submitted(Box::new(record(81, spec)))),
        event(JobEvent::Allocated(Box::new(Run { chosen_qos, ..run(&["n1"]) }))),
        event(JobEvent::Started { at: at(6), door: "/run/garrick/n1".into() }),
        event(JobEvent::Ended(end(JobState::Cancelled, Reason::None, 0, then))),
        event(JobEvent::NodeReleased { node: "n1".into(), epilog_failed: false }),
        event(JobEvent::Requeued { sluid: Sluid(1 << 40), hold: None, begin: None, expedited: false, at: Some(at(9)) }),
    ]
}

/// What came to version 1 after that: runs that are suspended for another job, or by an administrator, and go on.
pub fn suspended() -> Vec<ControllerEvent> {
    let event = |event| ControllerEvent::Job { job: JobId(41), event: Box::new(event) };
    let times = PreemptTimes { eligible: at(6), at: at(40), ends: at(42) };
    let yielded = Some(Yielded { times, by: JobId(42), until: at(400) });
    let stopped = |at, by_admin, yielded| event(JobEvent::Stopped { at, by_admin, yielded, waits_turn: false });
    vec![
        event(JobEvent::Submitted(Box::new(record(41, plain_spec())))),
        event(JobEvent::Allocated(Box::new(run(&["n1"])))),
        event(JobEvent::Started { at: at(6), door: "/run/garrick/n1".into() }),
        stopped(at(40), false, yielded.clone()),
        event(JobEvent::Continued { at: at(90) }),
        stopped(at(95), true, None),
        stopped(at(99), true, yielded),
    ]
}

/// What came to version 1 after that: a run of which its nodes are told later that another may follow, two that were given up and
/// had not heard, and numbered tallies; and such a job as a compacted journal has it.
pub fn fencing() -> Vec<ControllerEvent> {
    let event = |job, event| ControllerEvent::Job { job: JobId(job), event: Box::new(event) };
    let launched = Run { requeue: Some(RequeuePolicy { allowed: false, revision: 0 }), ..run(&["n1", "n2", "n3"]) };
    let then = Afterwards::Requeue { hold: None, delay: true };
    let gone = |node: &str| event(51, JobEvent::NodeReleased { node: node.into(), epilog_failed: false });
    let unfenced = |node: &str| event(51, JobEvent::Unfenced { node: node.into(), ends_when_cut_off: false });
    let tally = StepTally { number: (1 << 32) + 7, ..TALLY };
    let waits = JobRecord {
        unfenced: vec![Unfenced { sluid: sluid(50), node: "n2".into(), ends_when_cut_off: false }],
        steps: tally,
        ..record(52, plain_spec())
    };
    vec![
        event(51, JobEvent::Submitted(Box::new(record(51, plain_spec())))),
        event(51, JobEvent::Allocated(Box::new(launched))),
        event(51, JobEvent::RequeueSet(RequeuePolicy { allowed: true, revision: 1 })),
        unfenced("n2"),
        gone("n2"),
        event(51, JobEvent::Ended(end(JobState::NodeFail, Reason::NodeDown, 0, then))),
        event(51, JobEvent::StepsCounted(tally)),
        unfenced("n3"),
        gone("n3"),
        gone("n1"),
        event(51, JobEvent::Requeued { sluid: sluid(53), hold: None, begin: None, expedited: false, at: None }),
        event(51, JobEvent::Fenced { sluid: record(51, plain_spec()).sluid, node: "n2".into() }),
        event(52, JobEvent::Submitted(Box::new(waits))),
    ]
}

/// What came to version 1 after that: tasks that have what does their work with their array, and parts of what is too long for
/// one record, of which the first time the last is missing.
pub fn tasks() -> Vec<ControllerEvent> {
    let event = |job, event| ControllerEvent::Job { job: JobId(job), event: Box::new(event) };
    let array = ArraySpec { ranges: vec![(1, 4, 1)], limit: None };
    let work = JobSpec { environment: Arc::new(vec![bytes("A=1")]), argv: vec![bytes("one")], ..plain_spec() };
    let spec = JobSpec { array: Some(array), script: Some(Arc::new(bytes("#!/bin/sh\n"))), ..work };
    let tasks = ArrayRecord { pending: [1, 2, 3, 4].into(), limit: None, tasks: BTreeMap::new() };
    let head = JobRecord { array: Some(tasks), ..record(61, spec.clone()) };
    let split = |index: u32| {
        let task = ArrayTask { array_job: JobId(61), index };
        let spec = JobSpec { array_task: Some(task), ..spec.clone() };
        let own = JobRecord { array_task: Some(task), ..record(61 + index, spec) };
        let mark = JobEvent::TaskSplit { index, job: own.id };
        (event(own.id.0, JobEvent::task_submitted(&own, JobId(61))), event(61, mark))
    };
    let part = |first, last, events| ControllerEvent::Part { first, last, events };
    let (one, one_mark) = split(1);
    let (two, two_mark) = split(2);
    let (three, three_mark) = split(3);
    vec![
        event(61, JobEvent::Submitted(Box::new(head))),
        part(true, false, vec![two.clone()]),
        ControllerEvent::Started { epoch: 2 },
        part(true, false, vec![one, one_mark]),
        part(false, true, vec![two, two_mark]),
        three,
        three_mark,
    ]
}

/// What came to version 2: a job with an association of accounting.
pub fn associated() -> Vec<ControllerEvent> {
    let spec = JobSpec { account: Some("physics".into()), qos: Some("normal".into()), ..plain_spec() };
    let mut job = record(75, spec);
    job.resolved.association = Some(AssocId(17));
    vec![ControllerEvent::Job { job: JobId(75), event: Box::new(JobEvent::Submitted(Box::new(job))) }]
}

/// What came to version 2: a job that gains priority by age when there is room for it among others, and one that waits for that.
pub fn accruing() -> Vec<ControllerEvent> {
    let event = |job, event| ControllerEvent::Job { job: JobId(job), event: Box::new(event) };
    let mut waits = record(76, plain_spec());
    waits.terms.accrual = Accrual::Waits;
    let mut gains = record(77, plain_spec());
    gains.terms.accrual = Accrual::Since(at(5));
    vec![
        event(76, JobEvent::Submitted(Box::new(waits))),
        event(76, JobEvent::Accrues(Accrual::Since(at(9)))),
        event(77, JobEvent::Submitted(Box::new(gains))),
        event(77, JobEvent::Accrues(Accrual::Eligible)),
        event(77, JobEvent::Accrues(Accrual::Waits)),
    ]
}

/// What came to version 2: a job that is not eligible any more and one whose age is reset by hand, and a run that was submitted with its requeue.
pub fn submitted_again() -> Vec<ControllerEvent> {
    let event = |job, event| ControllerEvent::Job { job: JobId(job), event: Box::new(event) };
    let then = Afterwards::Requeue { hold: None, delay: false };
    vec![
        event(78, JobEvent::Submitted(Box::new(record(78, plain_spec())))),
        event(78, JobEvent::Eligible { at: at(2) }),
        event(78, JobEvent::Held(HeldBy::User)),
        event(78, JobEvent::NotEligible),
        event(78, JobEvent::Released { priority: 5 }),
        event(78, JobEvent::Eligible { at: at(4) }),
        event(78, JobEvent::AccrualReset { at: at(5) }),
        event(79, JobEvent::Submitted(Box::new(record(79, plain_spec())))),
        event(79, JobEvent::Allocated(Box::new(run(&["n1"])))),
        event(79, JobEvent::Ended(end(JobState::NodeFail, Reason::NodeDown, 0, then))),
        event(79, JobEvent::NodeReleased { node: "n1".into(), epilog_failed: false }),
        event(79, JobEvent::Requeued { sluid: sluid(80), hold: None, begin: None, expedited: false, at: Some(at(70)) }),
    ]
}

/// What came to version 2: an array that asks for something else while it waits, and so does one of its tasks.
pub fn revised() -> Vec<ControllerEvent> {
    let event = |job, event| ControllerEvent::Job { job: JobId(job), event: Box::new(event) };
    let array = |limit| ArraySpec { ranges: vec![(1, 4, 1)], limit };
    let work = JobSpec { environment: Arc::new(vec![bytes("A=1")]), argv: vec![bytes("one")], ..plain_spec() };
    let full_spec = spec;
    let spec = JobSpec { array: Some(array(None)), script: Some(Arc::new(bytes("#!/bin/sh\n"))), ..work };
    let tasks = ArrayRecord { pending: [1, 2, 3, 4].into(), limit: None, tasks: BTreeMap::new() };
    let head = JobRecord { array: Some(tasks), ..record(71, spec) };
    let resolved = Resolved {
        partitions: vec!["long".into(), "debug".into()],
        time_limit: TimeLimit::Unlimited,
        tasks: 3,
        cpus_per_task: 5,
        min_nodes: 2,
        max_nodes: 6,
        cpus: 15,
        memory: MemoryRequest::PerCpu(MemoryMib(70)),
        sharing: Sharing::User,
        requeue: false,
        association: None,
        billing: None,
        default_qos: false,
    };
    let revision = Revision {
        spec: JobSpec {
            script: None,
            environment: Arc::default(),
            argv: Vec::new(),
            array: Some(array(Some(2))),
            het: None,
            ..full_spec()
        },
        resolved,
        priority: 77,
        terms: PriorityTerms { fixed: true, site: -5, ..PriorityTerms::default() },
        begin: Some(at(90)),
        dependencies: dependencies(),
        dependency_failed: true,
        array_limit: Some(2),
        admin_comment: Some("seen".into()),
    };
    let task = ArrayTask { array_job: JobId(71), index: 1 };
    let of_task = JobSpec { array_task: Some(task), ..revision.spec.clone() };
    let own = JobRecord { array_task: Some(task), resolved: revision.resolved.clone(), ..record(72, of_task.clone()) };
    let plain = Revision {
        spec: JobSpec { name: "task".into(), ..of_task },
        terms: PriorityTerms::default(),
        begin: None,
        dependencies: Dependencies::default(),
        dependency_failed: false,
        array_limit: None,
        admin_comment: None,
        ..revision.clone()
    };
    vec![
        event(71, JobEvent::Submitted(Box::new(head))),
        event(71, JobEvent::Revised(Box::new(revision))),
        event(72, JobEvent::task_submitted(&own, JobId(71))),
        event(71, JobEvent::TaskSplit { index: 1, job: JobId(72) }),
        event(72, JobEvent::Revised(Box::new(plain))),
    ]
}

/// What came to version 1 after that: nodes that are not of the configuration file.
pub fn dynamic_nodes() -> Vec<ControllerEvent> {
    let saved = |node: DynamicNode| {
        let name = node.name.clone();
        ControllerEvent::DynamicNode { node: name, saved: Some(Box::new(node)), of_file: false }
    };
    let plain = |name: &str, slot| DynamicNode {
        name: name.into(),
        line: "CPUs=4 RealMemory=5000 Feature=f1 Topology=topo1:s1".into(),
        slot,
        ..DynamicNode::default()
    };
    let whereabouts = Whereabouts { hostname: "host1".into(), address: "10.0.0.9".into(), port: 7001 };
    let down = SavedNode { down: Some(DownCause::Admin), ..SavedNode::default() };
    vec![
        saved(plain("d1", 0)),
        saved(DynamicNode { created: true, topology: Some("topo2:b1".into()), ..plain("d2", 1) }),
        saved(DynamicNode { whereabouts: Some(whereabouts), ..plain("d1", 0) }),
        ControllerEvent::Node { node: "d3".into(), saved: Box::new(down) },
        saved(plain("d3", 2)),
        ControllerEvent::DynamicNode { node: "d3".into(), saved: None, of_file: false },
    ]
}

/// What came to version 2 after that: partitions that are created and deleted at run time. Updates of one are over with it.
pub fn partition_changes() -> Vec<ControllerEvent> {
    let changed = |partition: &str, saved: Option<PartitionChange>| ControllerEvent::PartitionChange {
        partition: partition.into(),
        saved: saved.map(Box::new),
    };
    let fields = vec![("Nodes".to_owned(), "n1".to_owned()), ("MaxTime".to_owned(), "5".to_owned())];
    let updated = |partition: &str| ControllerEvent::Partition {
        partition: partition.into(),
        saved: Box::new(SavedPartition { fields: [("state".to_owned(), "DOWN".to_owned())].into() }),
    };
    vec![
        changed("new", Some(PartitionChange::Created { fields, place: 0 })),
        updated("new"),
        updated("debug"),
        changed("debug", Some(PartitionChange::Deleted)),
        changed("other", Some(PartitionChange::Created { fields: Vec::new(), place: 1 })),
        changed("other", None),
    ]
}

/// What came to version 2 later: a job whose nodes are rebooted before it begins, and what it asks of its batch host and its GPUs.
pub fn rebooted() -> Vec<ControllerEvent> {
    let event = |event| ControllerEvent::Job { job: JobId(71), event: Box::new(event) };
    let node = |saved| ControllerEvent::Node { node: "n1".into(), saved: Box::new(saved) };
    let spec = JobSpec {
        constraint: Some("fast|slow".into()),
        batch_features: Some("fast".into()),
        reboot: true,
        gpu_freq: "highm1,memory=900,verbose".parse().ok(),
        ..plain_spec()
    };
    let reboot = |issued| Some(Reboot { asap: false, next: None, issued, run: Some(sluid(71)) });
    vec![
        event(JobEvent::Submitted(Box::new(record(71, spec)))),
        event(JobEvent::Allocated(Box::new(Run { booting: ["n1".to_owned()].into(), ..run(&["n1"]) }))),
        node(SavedNode { reboot: reboot(None), ..SavedNode::default() }),
        node(SavedNode { reboot: reboot(Some(at(9))), ..SavedNode::default() }),
        node(SavedNode { rebooted_for: Some(sluid(71)), ..SavedNode::default() }),
        event(JobEvent::NodeBooted { node: "n1".into(), address: "n1:6818".into(), at: at(40) }),
    ]
}

/// What came to version 2 later: since when a node is out of service, and when a reservation was saved.
pub fn outages() -> Vec<ControllerEvent> {
    let at = Timestamp::from_secs(2_000_000_000);
    let node = |drain, out| ControllerEvent::Node {
        node: "n1".into(),
        saved: Box::new(SavedNode { drain, service: Some(SavedService { out, since: at }), ..SavedNode::default() }),
    };
    let reservation = |saved| ControllerEvent::Reservation { reservation: "class".into(), saved, at: Some(at) };
    let saved = Reservation { name: "class".into(), start: at, nodes: vec!["n1".into()], ..Reservation::default() };
    vec![node(true, true), reservation(Some(Box::new(saved))), node(false, false), reservation(None)]
}

/// What came to version 2 later: which run began or ended.
pub fn numbered_runs() -> Vec<ControllerEvent> {
    let event = |event| ControllerEvent::Job { job: JobId(83), event: Box::new(event) };
    let begun = Run { sluid: Some(sluid(83)), ..run(&["n1"]) };
    let over = End { sluid: Some(sluid(83)), ..end(JobState::Completed, Reason::None, 0, Afterwards::Over) };
    vec![
        event(JobEvent::Submitted(Box::new(record(83, plain_spec())))),
        event(JobEvent::Allocated(Box::new(begun))),
        event(JobEvent::Started { at: at(6), door: "/run/garrick/n1".into() }),
        event(JobEvent::Ended(over)),
    ]
}

/// What came to version 2 later: until when it was asked for that usage is set to 0.
pub fn zeroed() -> Vec<ControllerEvent> {
    let usage = |event| ControllerEvent::Usage(Box::new(event));
    let (at, ahead) = (Timestamp::from_secs(2_000_000_000), Timestamp::from_secs(2_000_000_300));
    let who = |user: &str| Who { account: "physics".into(), user: user.into(), partition: None };
    let meter = |zeroed| Meter { as_of: at, since: Timestamp(3), zeroed, ..Meter::default() };
    vec![
        usage(UsageEvent::Begin(UsageRules::default())),
        usage(UsageEvent::User(who("alice"), meter(None))),
        usage(UsageEvent::User(who("bob"), meter(Some(ahead)))),
        usage(UsageEvent::Reset { at, users: vec![who("alice")], qos: Vec::new(), asked: Some(ahead) }),
    ]
}

/// What came to version 2 later: to whom a run is charged, and what was used.
pub fn usage() -> Vec<ControllerEvent> {
    let usage = |event| ControllerEvent::Usage(Box::new(event));
    let at = Timestamp::from_secs(2_000_000_000);
    let who = |user: &str, partition: Option<&str>| Who {
        account: "physics".into(),
        user: user.into(),
        partition: partition.map(str::to_owned),
    };
    let rules =
        UsageRules { half_life_secs: 604_800, next_reset: Some(at), no_decay: ["free \"of\"".to_owned()].into() };
    let charge = Charge {
        who: Some(who("alice", Some("main"))),
        qos: ["high".to_owned(), "normal".to_owned()].into(),
        billing: 7,
        factor_millionths: 1_500_000,
    };
    let nobody = Charge { who: None, qos: [].into(), billing: 0, factor_millionths: 0 };
    let charged = |charge| JobEvent::Allocated(Box::new(Run { charge: Some(Arc::new(charge)), ..run(&["n1"]) }));
    let job = |job, event| ControllerEvent::Job { job: JobId(job), event: Box::new(event) };
    let submitted = |id: u32| job(id, JobEvent::Submitted(Box::new(record(id, JobSpec::default()))));
    let amount = |value, rate| Amount { value, rate };
    let meter = Meter {
        as_of: at,
        since: Timestamp(3),
        zeroed: None,
        running: 2,
        tres: [("cpu".to_owned(), amount(0.5, 3.25)), ("billing".to_owned(), amount(1e15, 0.0))].into(),
        wall: amount(7.0, 2.0),
    };
    vec![
        usage(UsageEvent::Rules { at, rules: rules.clone() }),
        submitted(81),
        submitted(82),
        job(81, charged(charge)),
        job(82, charged(nobody)),
        usage(UsageEvent::Reset {
            at,
            users: vec![who("alice", Some("main"))],
            qos: vec!["normal".into()],
            asked: None,
        }),
        usage(UsageEvent::Begin(rules)),
        usage(UsageEvent::User(who("bob", None), meter.clone())),
        usage(UsageEvent::Qos("high".into(), meter)),
    ]
}

/// What came to version 2 later: positions, and who follows. A snapshot of two events that stand for forty.
pub fn followers() -> Vec<ControllerEvent> {
    let follower = |name: &str, is| ControllerEvent::Follower { name: name.into(), is };
    let node = |name: &str| ControllerEvent::Node { node: name.into(), saved: Box::default() };
    vec![
        ControllerEvent::Base {
            position: Position(40),
            events: 2,
            followers: [("accounting".to_owned(), Position(12)), ("web \"page\"".to_owned(), Position(40))].into(),
        },
        ControllerEvent::Started { epoch: 6 },
        node("n1"),
        node("n2"),
        follower("accounting", Following::Acknowledged(Position(41))),
        follower("replay", Following::Registered),
        ControllerEvent::Together(vec![node("n3"), node("n4")]),
        ControllerEvent::Part { first: true, last: false, events: vec![node("n5")] },
        ControllerEvent::Part { first: false, last: true, events: vec![node("n6"), node("n7")] },
        follower("web \"page\"", Following::Gone),
        // Of a write that was cut short.
        ControllerEvent::Part { first: true, last: false, events: vec![node("n8")] },
        ControllerEvent::Started { epoch: 7 },
    ]
}

/// What came after that: records of steps.
pub fn step_records() -> Vec<ControllerEvent> {
    vec![submitted(71), steps(71, step_row())]
}

/// And of what several tasks used.
pub fn step_usage() -> Vec<ControllerEvent> {
    let StepEvent::Ended { result, .. } = step_events::used().remove(0) else { unreachable!("a step that ended") };
    vec![submitted(71), steps(71, StepRow { usage: result.usage, spread: result.spread, ..step_row() })]
}

/// And of what accounting keeps of runs and steps besides.
pub fn accounted() -> Vec<ControllerEvent> {
    let job = |event| ControllerEvent::Job { job: JobId(71), event: Box::new(event) };
    let mut submitted = record(71, plain_spec());
    (submitted.resolved.billing, submitted.resolved.default_qos) = (Some(12), true);
    submitted.first_run = Some(sluid(3));
    let started = Run { backfilled: true, waited_for: Reason::Dependency, ..run(&["n1"]) };
    let gpus = |kind: &str| GresCount { name: "gpu".into(), kind: Some(kind.into()), count: 2 };
    let row = StepRow { memory: MemoryMib(300), gres: vec![gpus("h100"), gpus("a100")], ..step_row() };
    let origin = StepOrigin {
        cpu_freq: Some(CpuFreq::Range(Frequency::Khz(1_200_000), Frequency::High, Governor::OnDemand)),
        layout: Some(Distribution::Plane(2)),
        ..step_origin()
    };
    let rows = StepRows { origins: vec![origin], rows: vec![row], ..StepRows::default() };
    vec![
        job(JobEvent::Submitted(Box::new(submitted))),
        job(JobEvent::Allocated(Box::new(started))),
        ControllerEvent::Steps { job: JobId(71), sluid: sluid(71), steps: PackedSteps::pack(&rows) },
    ]
}

fn submitted(job: u32) -> ControllerEvent {
    let event = Box::new(JobEvent::Submitted(Box::new(record(job, plain_spec()))));
    ControllerEvent::Job { job: JobId(job), event }
}

fn step_row() -> StepRow {
    StepRow {
        key: StepKey::task(3, 8),
        origin: 0,
        state: StepState::Failed,
        nodelist: "n[1-2]".into(),
        nodes: 2,
        cpus: 4,
        memory: MemoryMib(0),
        gres: Vec::new(),
        start_time: Some(at(10)),
        end_time: Some(at(12)),
        exit: ExitStatus { code: 4, signal: None },
        attempt: 1,
        usage: TaskUsage::default(),
        spread: None,
        all_of: None,
        reason: Default::default(),
    }
}

fn step_origin() -> StepOrigin {
    StepOrigin {
        name: "count \"it\"".into(),
        uid: 1001,
        partition: "debug".into(),
        tasks: 1,
        time_limit: TimeLimit::Unlimited,
        srun: None,
        submit_line: "srun --async --array=0-9 count".into(),
        priority: 0,
        cpu_freq: None,
        layout: None,
    }
}

fn steps(job: u32, row: StepRow) -> ControllerEvent {
    let rows = StepRows { origins: vec![step_origin()], rows: vec![row], ..StepRows::default() };
    ControllerEvent::Steps { job: JobId(job), sluid: sluid(job.into()), steps: PackedSteps::pack(&rows) }
}

/// What came after that: pieces beside the log, by name and version. In a snapshot, and later.
pub fn beside() -> Vec<ControllerEvent> {
    let piece = |digit: &str, bytes| Some(Piece { digest: digit.repeat(64), bytes });
    let event = |name: &str, piece| ControllerEvent::Beside { name: name.into(), piece };
    vec![
        ControllerEvent::Base { position: Position(12), events: 4, followers: Default::default() },
        ControllerEvent::Started { epoch: 3 },
        event("ca/ca.pem", piece("a", 1024)),
        event("credential.key", piece("0", 65)),
        ControllerEvent::Used { job: JobId(7), sluid: sluid(7), submissions: 7 },
        ControllerEvent::Started { epoch: 4 },
        ControllerEvent::Together(vec![
            event("ca/previous.pem", piece("a", 1024)),
            event("ca/ca.pem", piece("b", 1026)),
            event("ca/next.pem", None),
        ]),
        event("ca/previous.pem", None),
    ]
}

/// What came after that: nodes that are powered down and up, and runs that wait for them.
pub fn powered() -> Vec<ControllerEvent> {
    let event = |event| ControllerEvent::Job { job: JobId(81), event: Box::new(event) };
    let node = |node: &str, saved| ControllerEvent::Node { node: node.into(), saved: Box::new(saved) };
    let power = |state, since, request| Some(SavedPower { state, since: at(since), request });
    let waits = Run { booting: ["n1".to_owned(), "n2".to_owned()].into(), ..run(&["n1", "n2", "n3"]) };
    let coming = power(NodePower::PoweringUp, 6, None);
    vec![
        event(JobEvent::Submitted(Box::new(record(81, plain_spec())))),
        event(JobEvent::Allocated(Box::new(waits))),
        node("n1", SavedNode { power: coming, address: Some("10.0.0.7".into()), ..SavedNode::default() }),
        event(JobEvent::NodeBooted { node: "n1".into(), address: "10.0.0.7:6818".into(), at: at(40) }),
        node(
            "n2",
            SavedNode {
                power: power(NodePower::On, 60, Some(PowerRequest::Down)),
                down: Some(DownCause::Resume),
                hostname: Some("host2".into()),
                ..SavedNode::default()
            },
        ),
        node("n4", SavedNode { power: power(NodePower::PoweringDown, 61, None), ..SavedNode::default() }),
        node(
            "n5",
            SavedNode { power: power(NodePower::PoweredDown, 62, Some(PowerRequest::Up)), ..SavedNode::default() },
        ),
    ]
}

/// What came to version 2 after that: crontabs and their jobs, and triggers.
pub fn crontabs_and_triggers() -> Vec<ControllerEvent> {
    let event = |job, event| ControllerEvent::Job { job: JobId(job), event: Box::new(event) };
    let due = |schedule: &str| JobSpec { cron: Some(schedule.parse().unwrap()), ..plain_spec() };
    let entry = |job, lines| CrontabJob { job: JobId(job), lines };
    let crontab = |text: &str, jobs| Crontab { text: bytes(text), jobs };
    let saved = |uid, saved: Option<Crontab>| ControllerEvent::Crontab { uid, saved: saved.map(Box::new) };
    let recurs = End { then: Afterwards::Recur, ..end(JobState::Failed, Reason::NonZeroExitCode, 3, Afterwards::Over) };
    let trigger = |id, about, due| Trigger {
        id,
        uid: 1001,
        request: TriggerRequest {
            events: [TriggerEvent::Down, TriggerEvent::Fini].into(),
            about,
            offset_secs: -60,
            program: "/bin/echo a".into(),
            permanent: true,
        },
        due,
    };
    let set = |trigger: u32, saved: Option<Trigger>| ControllerEvent::Trigger { trigger, saved: saved.map(Box::new) };
    let nodes = TriggerAbout::Nodes(vec!["n1".into(), "n2".into()]);
    let next = Due { at: at(90), argument: "n[1-2]".into() };
    vec![
        event(81, JobEvent::Submitted(Box::new(record(81, due("0,30 8-17 * * 1-5"))))),
        event(82, JobEvent::Submitted(Box::new(record(82, due("@daily"))))),
        saved(
            1001,
            Some(crontab("#SCRON -t 1\n0,30 8-17 * * 1-5 a\n@daily b\n", vec![entry(81, (1, 2)), entry(82, (3, 3))])),
        ),
        saved(1002, Some(crontab("# nothing\n", Vec::new()))),
        event(81, JobEvent::Allocated(Box::new(run(&["n1"])))),
        event(81, JobEvent::Started { at: at(6), door: "/run/garrick/n1".into() }),
        event(81, JobEvent::Ended(recurs)),
        event(81, JobEvent::NodeReleased { node: "n1".into(), epilog_failed: false }),
        event(
            81,
            JobEvent::Requeued { sluid: sluid(82), hold: None, begin: Some(at(1800)), expedited: false, at: None },
        ),
        event(82, JobEvent::LeftCrontab),
        saved(1001, Some(crontab("#SCRON -t 1\n0,30 8-17 * * 1-5 a\n#DISABLED: @daily b\n", vec![entry(81, (1, 2))]))),
        saved(1002, None),
        set(1, Some(trigger(1, nodes.clone(), None))),
        set(2, Some(trigger(2, TriggerAbout::Job(JobId(81)), None))),
        set(3, Some(trigger(3, TriggerAbout::Controller, None))),
        set(1, Some(trigger(1, nodes, Some(next)))),
        set(3, None),
    ]
}

/// What came to version 2 after that: nodes that are FAIL, and triggers for controllers and accounting.
pub fn failing_and_triggers() -> Vec<ControllerEvent> {
    use TriggerEvent::{
        AccountingFull, BackupFailed, BackupInControl, BackupResumed, BurstBuffer, DatabaseFailed, DatabaseResumed,
        Fail, PrimaryFailed, PrimaryInControl, SlurmdbdFailed, SlurmdbdResumed,
    };
    let node = |saved| ControllerEvent::Node { node: "n1".into(), saved: Box::new(saved) };
    let trigger = |id, about, events: &[TriggerEvent]| {
        let events = events.iter().copied().collect();
        let (offset_secs, program, permanent) = (0, "/bin/echo a".into(), false);
        let request = TriggerRequest { events, about, offset_secs, program, permanent };
        ControllerEvent::Trigger { trigger: id, saved: Some(Box::new(Trigger { id, uid: 1001, request, due: None })) }
    };
    vec![
        node(SavedNode { fail: true, ..SavedNode::default() }),
        trigger(1, TriggerAbout::Nodes(Vec::new()), &[Fail]),
        trigger(2, TriggerAbout::Controller, &[PrimaryFailed, PrimaryInControl, BackupFailed, BackupResumed]),
        trigger(3, TriggerAbout::Controller, &[BackupInControl, AccountingFull, SlurmdbdFailed, SlurmdbdResumed]),
        trigger(4, TriggerAbout::Controller, &[DatabaseFailed, DatabaseResumed, BurstBuffer]),
    ]
}
