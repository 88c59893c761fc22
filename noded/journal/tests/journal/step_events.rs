//! What is in a step manager's sample.

use garrick_events::steps::{
    batch::{StoredBatch, StoredMembers},
    end::{StepEnd, StepResult},
    event::{Motion, Place, StepEvent},
};
use garrick_model::{
    batch::{
        CommandList, FailBound, FailLimit, RetryOn, RetryPolicy, StepCgroup, StepDependencies, StepDependency,
        StepDependencyKind,
    },
    ids::{JobId, RequestId, StepId, StepKey, StepNum},
    resources::{MemoryMib, MemoryRequest},
    spec::{
        ArraySpec, CpuBind, Distribution, MultiProg, NodeCount, OpenMode, ResourceLimit, StdinTo, StepSharing,
        StepSpec, StreamTarget,
    },
    state::{ExitStatus, JobState, Reason, StepState},
    step_selector::WhichSteps,
    time::{TimeLimit, Timestamp},
    usage::{StepUsage, TaskUsage},
    view::StepOrigin,
};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// Every event. A new one goes here, into [`name`], and into the sample of the version that it comes with.
pub const NAMES: [&str; 15] = [
    "Accepted",
    "Started",
    "Retried",
    "Ended",
    "Withdrawn",
    "Ending",
    "TimeLimit",
    "StepLimit",
    "Moved",
    "Reported",
    "Restarted",
    "NodeLost",
    "ShepherdUp",
    "LaunchFailed",
    "CancelAsked",
];

pub fn name(event: &StepEvent) -> &'static str {
    match event {
        StepEvent::Accepted { .. } => "Accepted",
        StepEvent::Started { .. } => "Started",
        StepEvent::Retried { .. } => "Retried",
        StepEvent::Ended { .. } => "Ended",
        StepEvent::Withdrawn { .. } => "Withdrawn",
        StepEvent::Ending { .. } => "Ending",
        StepEvent::TimeLimit(_) => "TimeLimit",
        StepEvent::StepLimit { .. } => "StepLimit",
        StepEvent::Moved(_) => "Moved",
        StepEvent::Reported { .. } => "Reported",
        StepEvent::Restarted => "Restarted",
        StepEvent::NodeLost { .. } => "NodeLost",
        StepEvent::ShepherdUp { .. } => "ShepherdUp",
        StepEvent::LaunchFailed { .. } => "LaunchFailed",
        StepEvent::CancelAsked { .. } => "CancelAsked",
    }
}

fn at(secs: i64) -> Timestamp {
    Timestamp(1_795_255_251_528 + 1000 * secs)
}

fn bytes(text: &str) -> ByteBuf {
    ByteBuf::from(text.as_bytes().to_vec())
}

fn tasks(ranges: &[(u32, u32, u32)]) -> ArraySpec {
    ArraySpec { ranges: ranges.to_vec(), limit: None }
}

/// A step in which everything is said that can be.
fn spec() -> StepSpec {
    let on = |kind, steps| StepDependency { kind, steps };
    StepSpec {
        gres: Default::default(),
        inherited_gres: Default::default(),
        het: None,
        again_of: None,
        unasked_output: false,
        task_scripts: Default::default(),
        mpi: Default::default(),
        preserve_env: false,
        cpu_freq: None,
        gpu_freq: None,
        sample_secs: None,
        profiling: Default::default(),
        wait_for_children: false,
        oom_kill_step: None,
        sent: None,
        name: "map".into(),
        nodes: Some(NodeCount { min: 1, max: Some(2) }),
        tasks: Some(2),
        tasks_per_node: Some(1),
        cpus_per_task: Some(2),
        memory: MemoryRequest::PerNode(MemoryMib(100)),
        nodelist: vec!["n1".into()],
        exclude: vec!["n9".into()],
        relative: Some(1),
        distribution: Distribution::Cyclic,
        within: Default::default(),
        overcommit: false,
        task_nodes: Vec::new(),
        sharing: StepSharing::Exact,
        cpu_bind: CpuBind::Map(vec![0, 2]),
        says_cpu_bind: false,
        time_limit: Some(TimeLimit::Secs(60)),
        immediate: true,
        argv: vec![bytes("./map"), ByteBuf::from(b"\xff".to_vec())],
        multi_prog: vec![MultiProg { tasks: vec![(0, 1)], argv: vec![bytes("echo"), bytes("%t")] }],
        script: Some(bytes("#!/bin/sh\n")),
        work_dir: Some("/tmp".into()),
        environment: vec![bytes("A=1")],
        stdin: StreamTarget::File("in-%t".into()),
        stdin_to: StdinTo::Task(1),
        stdout: StreamTarget::Pack,
        stderr: StreamTarget::SameAsStdout,
        open_mode: OpenMode::Truncate,
        pty: Some((24, 80)),
        kill_on_bad_exit: true,
        wait_secs: Some(10),
        umask: Some(0o077),
        process_nice: 0,
        rlimits: vec![ResourceLimit { resource: 7, soft: None }],
        srun: Some(("login1".into(), 4711)),
        submit_line: "srun --async ./map".into(),
        dependency: Some(StepDependencies {
            any: true,
            on: vec![
                on(StepDependencyKind::After, WhichSteps::All),
                on(StepDependencyKind::AfterAny, WhichSteps::Special(StepNum::Extern)),
                on(StepDependencyKind::AfterOk, WhichSteps::Numbers(tasks(&[(0, 1, 1)]))),
                on(StepDependencyKind::AfterNotOk, WhichSteps::Tasks { step: 1, tasks: tasks(&[(0, 4, 2)]) }),
                on(StepDependencyKind::AfterCorr, WhichSteps::Numbers(tasks(&[(2, 2, 1)]))),
            ],
        }),
        priority: -3,
        retry: Some(RetryPolicy {
            count: 2,
            delay_secs: 5,
            on: vec![
                RetryOn::Codes(1, 9),
                RetryOn::Signal(9),
                RetryOn::NodeFail,
                RetryOn::Timeout,
                RetryOn::OutOfMemory,
            ],
        }),
        step_cgroup: StepCgroup::Always,
        fail_limit: None,
        output_pack: Some("out-%j.pack".into()),
        tell_starts: true,
    }
}

fn named(name: &str) -> Arc<StepSpec> {
    Arc::new(StepSpec { name: name.into(), argv: vec![bytes(name)], ..StepSpec::default() })
}

fn accepted(first: u32, specs: Vec<Arc<StepSpec>>, members: StoredMembers) -> StepEvent {
    let batch = Arc::new(StoredBatch::new(specs, members));
    StepEvent::Accepted { request: RequestId(u64::MAX, u64::from(first)), first, batch, at: at(i64::from(first)) }
}

fn started(step: StepKey, attempt: u32) -> StepEvent {
    let place = |slot, held: bool| Place {
        slot,
        cpus: "0-1,4".parse().unwrap(),
        memory: held.then_some(100),
        gres: Vec::new(),
        ranks: vec![slot],
        held,
    };
    let places = vec![place(0, true), place(1, false)];
    StepEvent::Started { step, attempt, at: at(10), places, origin: None, after: None, request: None }
}

fn ended(key: StepKey, state: StepState, exit: ExitStatus, ended: Option<StepEnd>) -> StepEvent {
    let usage = TaskUsage { user_us: 12, system_us: 34, max_rss_kib: 56, ..TaskUsage::default() };
    let step = StepId::of(JobId(11), key);
    StepEvent::Ended { result: StepResult { step, state, exit, ended, usage, spread: None, detail: None }, at: at(20) }
}

const OK: ExitStatus = ExitStatus::SUCCESS;

/// How reports describe an attended step.
fn origin() -> StepOrigin {
    StepOrigin {
        name: "attended".into(),
        uid: 1000,
        partition: "debug".into(),
        tasks: 2,
        time_limit: TimeLimit::Unlimited,
        srun: Some(("n1".into(), 42)),
        submit_line: "srun hostname".into(),
        priority: 1,
        cpu_freq: None,
        layout: None,
    }
}

/// What is in the sample of version 1: a batch of each kind, steps that start, are tried again, end in every way or never
/// start, and what else happens to a run.
pub fn version_1() -> Vec<StepEvent> {
    let key = StepKey::number;
    let mut attended = started(key(6), 0);
    if let StepEvent::Started { origin: said, after, .. } = &mut attended {
        *said = Some(Arc::new(origin()));
        *after = Some(key(0));
    }
    let mut list = CommandList::default();
    list.push(["echo", "one"], 0);
    list.push(["echo", "two"], 0);
    list.push(["true"], 1);
    let array = Arc::new(ArraySpec { ranges: vec![(0, 9, 1), (20, 30, 5)], limit: Some(4) });
    let mut events = vec![
        started(StepKey::BATCH, 0),
        accepted(0, vec![Arc::new(spec()), named("second")], StoredMembers::Each),
        accepted(2, vec![named("task")], StoredMembers::Array(array)),
        accepted(3, vec![named("echo"), named("true")], StoredMembers::Commands(Arc::new(list))),
        started(key(0), 0),
        attended,
        started(StepKey::task(2, 7), 0),
        StepEvent::Retried { step: StepKey::task(2, 7), attempt: 1, after: at(15), ended: None, at: None },
        started(StepKey::task(2, 7), 1),
        ended(StepKey::task(2, 7), StepState::Completed, OK, None),
        StepEvent::TimeLimit(TimeLimit::Secs(7200)),
        ended(key(0), StepState::Failed, ExitStatus { code: 3, signal: None }, Some(StepEnd::BadExit)),
    ];
    let ends = [
        (1, StepState::Cancelled, StepEnd::Cancelled),
        (3, StepState::Cancelled, StepEnd::ClientGone),
        (4, StepState::Timeout, StepEnd::TimeLimit),
        (5, StepState::NodeFail, StepEnd::NodeLost { node: "n2".into() }),
        (7, StepState::OutOfMemory, StepEnd::Job(JobState::OutOfMemory)),
    ];
    events.extend(ends.map(|(number, state, why)| {
        let exit = ExitStatus { code: 0, signal: Some(15) };
        ended(key(number), state, exit, Some(why))
    }));
    let tasks = [
        StepEnd::BatchOver,
        StepEnd::WaitOver,
        StepEnd::ManagerRestarted,
        StepEnd::InputOverrun,
        StepEnd::ExitUnknown,
        StepEnd::DependencyNeverSatisfied,
    ];
    events.extend(tasks.into_iter().enumerate().map(|(task, why)| {
        let members = vec![(task as u32, task as u32)];
        StepEvent::Withdrawn { first: 2, members, state: StepState::Cancelled, cause: why, at: at(30) }
    }));
    let members = vec![(6, 6), (8, 9), (20, 30)];
    events.extend([
        StepEvent::Withdrawn { first: 2, members, state: StepState::Cancelled, cause: StepEnd::BatchOver, at: at(31) },
        StepEvent::Reported { ends: 3 },
        StepEvent::Restarted,
        StepEvent::Ending {
            state: JobState::Failed,
            reason: Reason::NonZeroExitCode,
            exit: ExitStatus { code: 3, signal: None },
        },
        ended(StepKey::BATCH, StepState::Completed, OK, None),
    ]);
    events
}

/// What came later: a run that is stopped and goes on.
pub fn moved() -> Vec<StepEvent> {
    [Motion::Still, Motion::Resumed, Motion::Still].map(StepEvent::Moved).to_vec()
}

/// And one that lost nodes.
pub fn lost() -> Vec<StepEvent> {
    [1, 3].map(|slot| StepEvent::NodeLost { slot }).to_vec()
}

/// And one whose shepherds came.
pub fn shepherds() -> Vec<StepEvent> {
    [1, 2].map(|slot| StepEvent::ShepherdUp { slot }).to_vec()
}

/// And one whose command's request is known, and whose script could not be tried.
/// What is written for the records of steps alone.
pub fn for_records() -> Vec<StepEvent> {
    let task = StepKey::task(2, 7);
    let StepEvent::Ended { result, at: when } =
        ended(task, StepState::Failed, ExitStatus { code: 3, signal: None }, None)
    else {
        unreachable!("a step that ended")
    };
    vec![
        started(task, 0),
        StepEvent::Retried { step: task, attempt: 1, after: at(15), ended: Some(Box::new(result)), at: Some(when) },
        StepEvent::CancelAsked { steps: WhichSteps::one(task), by: 1001 },
    ]
}

/// And one with what two tasks used, on two nodes.
pub fn used() -> Vec<StepEvent> {
    let mut over = ended(StepKey::number(0), StepState::Completed, OK, None);
    if let StepEvent::Ended { result, .. } = &mut over {
        let task = |user_us, read| TaskUsage {
            user_us,
            system_us: 3,
            max_rss_kib: 700,
            rss_is_bound: false,
            max_vm_kib: 2920,
            pages: 1,
            read,
            written: 1 << 40,
            energy_joules: 12,
            gpu_memory_kib: 4096,
            gpu_percent: 90,
            frequency_khz: 0,
        };
        let mut used = StepUsage::new(2);
        used.add(0, 0, task(5, 6977));
        used.add(1, 1, task(9, 7));
        (result.usage, result.spread) = used.finish();
    }
    vec![over]
}

/// And one with a step that was given another limit.
pub fn limits() -> Vec<StepEvent> {
    let step = StepKey::number(3);
    let origin = Arc::new(StepOrigin { time_limit: TimeLimit::Secs(300), ..origin() });
    vec![started(step, 0), StepEvent::StepLimit { step, origin }]
}

pub fn launches() -> Vec<StepEvent> {
    let mut attended = started(StepKey::number(3), 0);
    if let StepEvent::Started { request, .. } = &mut attended {
        *request = Some(RequestId(7, 9));
    }
    vec![attended, StepEvent::LaunchFailed { detail: "No space left on device".into() }]
}

/// And one whose step's program was not there.
pub fn details() -> Vec<StepEvent> {
    let mut over = ended(StepKey::number(0), StepState::Failed, ExitStatus { code: 2, signal: None }, None);
    if let StepEvent::Ended { result, .. } = &mut over {
        result.detail = Some("execve(): nosuch: No such file or directory".into());
    }
    vec![over]
}

/// And one with a list whose commands say where they come from, and that was given up.
pub fn given_up() -> Vec<StepEvent> {
    let mut list = CommandList::default();
    for line in [2, 3, 7] {
        list.push(["./simulate".to_owned(), line.to_string()], 0);
        list.set_line(line);
        list.set_values(&format!("seed={line}"));
    }
    list.set_name("last");
    list.set_environment("A=1 2\0B=\0");
    let fail_limit = Some(FailLimit { group: RequestId(3, 4), most: FailBound::Steps(1), kill: true });
    let spec = StepSpec { name: "simulate".into(), fail_limit, ..StepSpec::default() };
    let members = vec![(1, 2)];
    vec![
        accepted(0, vec![Arc::new(spec)], StoredMembers::Commands(Arc::new(list))),
        started(StepKey::number(0), 0),
        ended(StepKey::number(0), StepState::Failed, ExitStatus { code: 3, signal: None }, None),
        StepEvent::Withdrawn {
            first: 0,
            members,
            state: StepState::Cancelled,
            cause: StepEnd::TooManyFailed,
            at: at(21),
        },
    ]
}
