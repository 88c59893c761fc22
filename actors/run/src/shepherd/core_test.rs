//! Tests of one node's part, effects compared whole.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    pmi::{Asked, Request},
    shepherd::{messages::PassedFd, task_scripts::EPILOG_LIMIT},
    stepmgr::builders::bytes,
};
use garrick_model::{
    cpu_freq::CpuFreq,
    gpu_freq::GpuFreq,
    gres::GresShare,
    ids::StepNum,
    messages::{
        launch_failure::LaunchFailure,
        launcher::{ENDS_KEPT, FdSource, FileMode, SpawnTask, TaskHeld, TaskLabel, TaskOver, TaskSetting},
        shepherd::{
            LaunchRef, OUTPUT_FRAME_COST, OUTPUT_WINDOW, SignalReach, StepLaunch, StepNodeShare, StepStart, TaskEnd,
            TaskFound, TaskLaunch,
        },
    },
    profile::Profiling,
    sampling::Periods,
    signal::SIGKILL,
    spec::{CpuBind, CpuOrder, Mpi, OpenMode, StdinTo, StreamTarget, TaskScripts},
    state::ExitStatus,
    usage::TaskUsage,
};
use serde_bytes::ByteBuf;
use std::{collections::BTreeSet, sync::Arc};

const NOW: Timestamp = Timestamp::from_secs(1_795_255_260);

struct Rig {
    core: ShepherdCore,
    now: Timestamp,
}

impl Rig {
    fn new() -> Self {
        let config = ShepherdConfig {
            cpu_map: vec![10, 11, 12, 13],
            cgroups: true,
            ..ShepherdConfig::new(JobId(502), "n1", "/run/j502.sock", CpuSet::from(0..4))
        };
        let mut rig = Self { core: ShepherdCore::new(config), now: NOW };
        assert_eq!(rig.tell(ShepherdInput::LauncherUp { first: true }), []);
        rig
    }

    fn tell(&mut self, input: ShepherdInput) -> Vec<ShepherdEffect> {
        let mut out = Vec::new();
        self.core.handle(self.now, input, &mut out);
        out
    }

    fn manager(&mut self, message: StepMgrToShepherd) -> Vec<ShepherdEffect> {
        self.tell(ShepherdInput::Manager(message))
    }

    fn launch(&mut self, change: impl FnOnce(&mut StepLaunch, &mut StepNodeShare), ranks: u32) -> Vec<ShepherdEffect> {
        let (mut launch, mut share) = (launch(), share());
        launch.total_tasks = ranks;
        change(&mut launch, &mut share);
        self.manager(StepMgrToShepherd::Launch(Box::new(start(Arc::new(launch), share, ranks))))
    }

    /// What it says of tasks, and whether those are all.
    fn listed(&mut self) -> (Vec<TaskFound>, bool) {
        match &self.manager(StepMgrToShepherd::ListTasks)[..] {
            [ShepherdEffect::ToManager(ShepherdToStepMgr::Tasks { tasks, complete })] => (tasks.clone(), *complete),
            other => panic!("{other:?}"),
        }
    }

    fn spawned(&mut self, token: u64) -> Vec<ShepherdEffect> {
        self.tell(ShepherdInput::Launcher(FromLauncher::Spawned { token, pid: 100 + token as u32 }))
    }

    fn exited(&mut self, token: u64, code: u8) -> Vec<ShepherdEffect> {
        self.ends(token, ended(token, ExitStatus { code, signal: None }, false))
    }

    /// A task's end, where the kernel killed nothing for memory.
    fn ends(&mut self, token: u64, end: ShepherdInput) -> Vec<ShepherdEffect> {
        let mut effects = self.tell(end);
        let before = effects.len();
        effects.retain(|effect| !matches!(effect, ShepherdEffect::AskOom { .. }));
        if effects.len() < before {
            effects.extend(self.tell(ShepherdInput::Oom { token, killed: false }));
        }
        effects
    }
}

fn ended(token: u64, status: ExitStatus, survivors: bool) -> ShepherdInput {
    let (pid, usage) = (100 + token as u32, TaskUsage::default());
    ShepherdInput::Launcher(FromLauncher::Exited { token, pid, status, usage, survivors })
}

fn not_started(token: u64, stage: &str, subject: &str, errno: i32) -> ShepherdInput {
    let failure = LaunchFailure::new(stage, subject, errno);
    ShepherdInput::Launcher(FromLauncher::SpawnFailed { token, failure })
}

fn start(launch: Arc<StepLaunch>, share: StepNodeShare, ranks: u32) -> StepStart {
    StepStart {
        step: step(),
        attempt: 0,
        launch: LaunchRef::Whole(launch),
        env: Arc::new(vec![bytes("SLURM_STEP_ID=3")]),
        own_env: vec![bytes("SLURM_STEP_ARRAY_TASK_ID=7")],
        share,
        tasks: (0..ranks).map(task).collect(),
        after: None,
        mapping: None,
    }
}

const fn label(rank: u32) -> TaskLabel {
    let profiling =
        Profiling { series: None, periods: Periods { task: None, energy: None, network: None, filesystem: None } };
    TaskLabel { step: step(), attempt: 0, rank, own_cgroup: false, epilog: false, profiling }
}

fn found(rank: u32, end: Option<ExitStatus>) -> TaskFound {
    let end = end.map(|status| TaskEnd { status, usage: TaskUsage::default(), oom: false });
    TaskFound { step: step(), attempt: 0, rank, end }
}

const fn step() -> StepId {
    StepId::new(JobId(502), StepNum::Number(3))
}

fn launch() -> StepLaunch {
    StepLaunch {
        name: "hostname".into(),
        job_name: "demo".into(),
        user: "alice".into(),
        array_task: None,
        environment: Arc::new(vec![bytes("PATH=/usr/bin")]),
        work_dir: "/home/alice".into(),
        stdin: StreamTarget::Null,
        stdin_to: StdinTo::All,
        stdout: StreamTarget::Null,
        stderr: StreamTarget::Null,
        open_mode: OpenMode::Truncate,
        pty: None,
        umask: 0o022,
        process_nice: 0,
        rlimits: Vec::new(),
        cpu_bind: CpuBind::Default,
        says_cpu_bind: false,
        within: Default::default(),
        gpu_bind: Default::default(),
        cpus_per_task: 1,
        total_tasks: 1,
        script: None,
        batch: false,
        output_pack: None,
        unattended: false,
        or_shell: false,
        unasked_output: false,
        task_scripts: TaskScripts::default(),
        mpi: Default::default(),
        program_named_by_node: false,
        cpu_freq: None,
        gpu_freq: None,
        sample_secs: None,
        profiling: Default::default(),
        over_with: Default::default(),
    }
}

fn share() -> StepNodeShare {
    StepNodeShare {
        node_id: 0,
        cpus: CpuSet::from(0..4),
        memory_mib: None,
        gres: Vec::new(),
        own_cgroup: false,
        env: Arc::new(vec![bytes("SLURM_NODEID=0")]),
    }
}

fn task(rank: u32) -> TaskLaunch {
    let argv = Arc::new(vec![bytes("hostname")]);
    TaskLaunch { rank, local_id: rank, argv, extra_env: vec![bytes(&format!("SLURM_PROCID={rank}"))] }
}

fn spawns(effects: &[ShepherdEffect]) -> Vec<&SpawnTask> {
    effects
        .iter()
        .filter_map(|e| match e {
            ShepherdEffect::ToLauncher { message: ToLauncher::Spawn(task), .. } => Some(task.as_ref()),
            _ => None,
        })
        .collect()
}

fn to_launcher(message: ToLauncher) -> ShepherdEffect {
    ShepherdEffect::ToLauncher { message, passed: Vec::new() }
}

fn leave() -> ShepherdEffect {
    ShepherdEffect::SetTimer { timer: ShepherdTimer::Leave, after: Duration::from_secs(10) }
}

fn gone() -> ShepherdEffect {
    ShepherdEffect::ToManager(ShepherdToStepMgr::StepGone { step: step() })
}

fn exit(rank: u32, code: u8) -> ShepherdEffect {
    exit_of(rank, ExitStatus { code, signal: None }, false)
}

/// With which nothing of the step is left.
fn last_exit(rank: u32, code: u8) -> ShepherdEffect {
    exit_of(rank, ExitStatus { code, signal: None }, true)
}

fn exit_of(rank: u32, status: ExitStatus, gone: bool) -> ShepherdEffect {
    let end = TaskEnd { status, usage: TaskUsage::default(), oom: false };
    ShepherdEffect::ToManager(ShepherdToStepMgr::TaskExited { step: step(), rank, end, gone })
}

fn environment(id: u32, over: Option<u32>, entry: &str) -> ShepherdEffect {
    to_launcher(ToLauncher::SetEnvironment { id, over, entries: Arc::new(vec![bytes(entry)]) })
}

#[test]
fn a_task_is_spawned_with_what_it_shares_sent_once() {
    let mut rig = Rig::new();
    // Nobody knows which CPUs its own are.
    rig.core.config.cpu_map.clear();
    let first = rig.launch(|_, _| {}, 1);
    let setting =
        TaskSetting { environment: 4, work_dir: "/home/alice".into(), umask: 0o022, nice: None, rlimits: Vec::new() };
    let spawn = ToLauncher::Spawn(Box::new(SpawnTask {
        extra_env: vec![bytes("SLURM_STEP_ARRAY_TASK_ID=7"), bytes("SLURM_PROCID=0")],
        ..SpawnTask::bare(1, label(0), Arc::new(vec![bytes("hostname")]), 1)
    }));
    assert_eq!(
        first,
        [
            environment(1, None, "PATH=/usr/bin"),
            environment(2, Some(1), "GARRICK_STEPD_DOOR=/run/j502.sock"),
            environment(3, Some(2), "SLURM_STEP_ID=3"),
            environment(4, Some(3), "SLURM_NODEID=0"),
            to_launcher(ToLauncher::SetSetting { id: 1, setting }),
            to_launcher(spawn),
        ]
    );
    assert_eq!(
        rig.spawned(1),
        [ShepherdEffect::ToManager(ShepherdToStepMgr::TaskStarted { step: step(), rank: 0, pid: 101 })]
    );
    assert_eq!(rig.exited(1, 7), [last_exit(0, 7)]);
    let second = rig.launch(|_, _| {}, 1);
    assert_eq!((second.len(), spawns(&second)[0].setting), (1, 1));
}

#[test]
fn of_an_unattended_task_only_the_end_is_told() {
    let mut rig = Rig::new();
    let launched = rig.launch(|l, _| l.unattended = true, 2);
    assert!(spawns(&launched).iter().all(|task| task.quiet));
    assert_eq!(rig.exited(2, 0), [exit(1, 0)]);
    assert_eq!(rig.exited(1, 3), [last_exit(0, 3)]);
    // Output that is relayed has to be read from the start.
    let relayed = rig.launch(|l, _| (l.unattended, l.stdout) = (true, StreamTarget::Relay), 1);
    assert!(!spawns(&relayed)[0].quiet);
}

#[test]
fn what_the_launcher_could_not_kill_of_a_group_is_killed_at_the_end_of_the_step() {
    let mut rig = Rig::new();
    rig.launch(|_, _| {}, 2);
    rig.spawned(1);
    rig.spawned(2);
    let status = ExitStatus { code: 0, signal: None };
    assert_eq!(rig.ends(1, ended(1, status, true)), [exit(0, 0)]);
    assert_eq!(rig.exited(2, 0), [ShepherdEffect::KillGroups { pids: vec![101] }, last_exit(1, 0)]);
}

#[test]
fn an_end_is_told_after_the_output_that_was_relayed() {
    let mut rig = Rig::new();
    let launched = rig.launch(|l, _| l.stdout = StreamTarget::Relay, 1);
    let ShepherdEffect::ToLauncher { passed, .. } = launched.last().unwrap() else { panic!() };
    assert_eq!(*passed, [PassedFd::Output { token: 1, stream: Stream::Stdout }]);
    let read = ShepherdEffect::Read { token: 1, stream: Stream::Stdout };
    assert_eq!(rig.spawned(1)[0], read);
    assert_eq!(
        rig.exited(1, 0),
        [ShepherdEffect::SetTimer { timer: ShepherdTimer::Linger, after: Duration::from_secs(2) }]
    );
    let data = |text: &str| ShepherdInput::Data { token: 1, stream: Stream::Stdout, data: bytes(text) };
    let output = |text: &str| {
        ShepherdEffect::ToManager(ShepherdToStepMgr::Output {
            step: step(),
            rank: 0,
            stream: Stream::Stdout,
            data: bytes(text),
        })
    };
    assert_eq!(rig.tell(data("hi\n")), [output("hi\n"), read]);
    assert_eq!(rig.tell(data("")), [output(""), last_exit(0, 0)]);
}

#[test]
fn a_child_that_keeps_the_pipe_open_holds_the_end_up_for_two_seconds_only() {
    let mut rig = Rig::new();
    rig.launch(|l, _| l.stdout = StreamTarget::Relay, 1);
    rig.spawned(1);
    rig.exited(1, 0);
    rig.now = NOW.plus(Duration::from_secs(1));
    let wait = ShepherdEffect::SetTimer { timer: ShepherdTimer::Linger, after: Duration::from_secs(1) };
    assert_eq!(rig.tell(ShepherdInput::Timer(ShepherdTimer::Linger)), [wait]);
    rig.now = NOW.plus(Duration::from_secs(2));
    assert_eq!(
        rig.tell(ShepherdInput::Timer(ShepherdTimer::Linger)),
        [ShepherdEffect::Close { token: 1 }, last_exit(0, 0)]
    );
}

#[test]
fn reading_stops_when_the_window_is_used_up_and_goes_on_with_credit() {
    let mut rig = Rig::new();
    rig.launch(|l, _| l.stdout = StreamTarget::Relay, 1);
    rig.spawned(1);
    let piece = 64 * 1024;
    let mut sent = 0;
    loop {
        let data = ByteBuf::from(vec![b'x'; piece]);
        let effects = rig.tell(ShepherdInput::Data { token: 1, stream: Stream::Stdout, data });
        sent += piece as u64 + OUTPUT_FRAME_COST;
        if !effects.iter().any(|e| matches!(e, ShepherdEffect::Read { .. })) {
            break;
        }
    }
    assert!((OUTPUT_WINDOW..OUTPUT_WINDOW + piece as u64 + OUTPUT_FRAME_COST).contains(&sent));
    // A paused stream is not given up: its bytes are still in the pipe.
    rig.exited(1, 0);
    rig.now = NOW.plus(Duration::from_secs(2));
    let waits = rig.tell(ShepherdInput::Timer(ShepherdTimer::Linger));
    assert_eq!(waits, [ShepherdEffect::SetTimer { timer: ShepherdTimer::Linger, after: Duration::from_secs(2) }]);
    let credit = StepMgrToShepherd::Credit { step: step(), bytes: sent };
    assert_eq!(rig.manager(credit), [ShepherdEffect::Read { token: 1, stream: Stream::Stdout }]);
}

#[test]
fn output_files_are_truncated_once_and_shared_by_the_tasks_of_a_step() {
    let mut rig = Rig::new();
    let change = |l: &mut StepLaunch, _: &mut StepNodeShare| {
        l.stdout = StreamTarget::File("out.%j.%s".into());
        l.stderr = StreamTarget::SameAsStdout;
    };
    let file = |path: &str, mode| FdSource::File { path: path.into(), mode };
    let launched = rig.launch(change, 2);
    let modes: Vec<_> = spawns(&launched).iter().map(|s| s.stdio[1].clone()).collect();
    let path = "/home/alice/out.502.3";
    assert_eq!(modes, [file(path, FileMode::Truncate), file(path, FileMode::Append)]);
    assert_eq!(spawns(&launched)[0].stdio[2], FdSource::SameAsStdout);

    let mut other = Rig::new();
    let launched = other.launch(
        |l, s| {
            change(l, s);
            s.node_id = 1;
        },
        1,
    );
    assert_eq!(spawns(&launched)[0].stdio[1], file(path, FileMode::Append));

    let mut third = Rig::new();
    let launched = third.launch(|l, _| l.stdout = StreamTarget::File("/tmp/%x-%u-%N-%t".into()), 2);
    let files: Vec<_> = spawns(&launched).iter().map(|s| s.stdio[1].clone()).collect();
    assert_eq!(
        files,
        [file("/tmp/demo-alice-n1-0", FileMode::Truncate), file("/tmp/demo-alice-n1-1", FileMode::Truncate)]
    );
}

#[test]
fn a_program_that_cannot_be_executed_ends_with_the_errno() {
    for (errno, code, text) in [(2, 2, "No such file or directory"), (13, 13, "Permission denied")] {
        let mut rig = Rig::new();
        rig.launch(|l, _| l.stderr = StreamTarget::File("/tmp/err".into()), 1);
        assert_eq!(
            rig.tell(not_started(1, "execve", "/x", errno)),
            [
                ShepherdEffect::Close { token: 1 },
                to_launcher(ToLauncher::AppendText {
                    path: "/tmp/err".into(),
                    text: bytes(&format!("slurmstepd: error: execve(): /x: {text}\n")),
                }),
                ShepherdEffect::ToManager(ShepherdToStepMgr::TaskFailed {
                    step: step(),
                    rank: 0,
                    message: format!("[2026-11-21T10:01:00.000] error: execve(): /x: {text}"),
                    status: ExitStatus { code, signal: None },
                    unknown: false,
                    untried: false,
                }),
                gone(),
            ]
        );
        let status = ExitStatus { code, signal: None };
        assert_eq!(rig.listed(), (vec![found(0, Some(status))], true));
    }
}

#[test]
fn what_is_started_while_the_run_stands_still_is_stopped_until_that_is_over() {
    let mut rig = Rig::new();
    let whole =
        |signal| StepMgrToShepherd::Signal { step: step(), signal, reach: SignalReach::Groups, whole_run: true };
    let signal = |signal| to_launcher(ToLauncher::Signal { token: 1, signal, group: true });
    assert_eq!(rig.manager(whole(19)), [ShepherdEffect::SignalRun { signal: 19 }]);
    let launched = rig.launch(|_, _| {}, 1);
    assert_eq!((spawns(&launched).len(), launched.last()), (1, Some(&signal(19))));
    rig.spawned(1);
    assert_eq!(rig.manager(whole(18)), [signal(18), ShepherdEffect::SignalRun { signal: 18 }]);
    // Those that ran before and later ones need no word of their own.
    rig.manager(whole(19));
    assert_eq!(rig.manager(whole(18)), [ShepherdEffect::SignalRun { signal: 18 }]);
}

#[test]
fn terminating_a_step_is_sigterm_and_after_kill_wait_sigkill() {
    let mut rig = Rig::new();
    rig.launch(|_, _| {}, 1);
    rig.spawned(1);
    let signal = |signal| to_launcher(ToLauncher::Signal { token: 1, signal, group: true });
    assert_eq!(
        rig.manager(StepMgrToShepherd::Terminate { step: step() }),
        [
            signal(18),
            signal(15),
            ShepherdEffect::SetTimer { timer: ShepherdTimer::Kill, after: Duration::from_secs(30) },
        ]
    );
    assert_eq!(rig.manager(StepMgrToShepherd::Terminate { step: step() }), []);
    rig.now = NOW.plus(Duration::from_secs(30));
    assert_eq!(rig.tell(ShepherdInput::Timer(ShepherdTimer::Kill)), [signal(9)]);
    let leader = StepMgrToShepherd::Signal { step: step(), signal: 10, reach: SignalReach::Leaders, whole_run: false };
    assert_eq!(rig.manager(leader), [to_launcher(ToLauncher::Signal { token: 1, signal: 10, group: false })]);
}

#[test]
fn tasks_of_a_launcher_that_was_killed_for_memory_were_out_of_memory() {
    let mut rig = Rig::new();
    rig.launch(|_, _| {}, 1);
    rig.spawned(1);
    let effects = rig.tell(ShepherdInput::LauncherDown { detail: "killed by signal 9".into(), for_memory: true });
    let status = ExitStatus { code: 0, signal: Some(9) };
    let end = TaskEnd { status, usage: TaskUsage::default(), oom: true };
    let exited = ShepherdToStepMgr::TaskExited { step: step(), rank: 0, end, gone: false };
    assert_eq!(effects[2], ShepherdEffect::ToManager(exited), "{effects:?}");
    assert!(effects.contains(&ShepherdEffect::StartLauncher));
}

#[test]
fn a_dead_launcher_ends_its_tasks_as_unknown_and_runs_nothing_again() {
    let mut rig = Rig::new();
    rig.launch(|_, _| {}, 1);
    rig.spawned(1);
    let effects = rig.tell(ShepherdInput::LauncherDown { detail: "killed by signal 9".into(), for_memory: false });
    assert_eq!(
        effects,
        [
            ShepherdEffect::Log { text: "launcher of job 502: killed by signal 9".into() },
            ShepherdEffect::Close { token: 1 },
            ShepherdEffect::ToManager(ShepherdToStepMgr::TaskFailed {
                step: step(),
                rank: 0,
                message:
                    "[2026-11-21T10:01:00.000] error: launcher on n1 ended (killed by signal 9): exit status unknown"
                        .into(),
                status: ExitStatus { code: 1, signal: None },
                unknown: true,
                untried: false,
            }),
            ShepherdEffect::StartLauncher,
            gone(),
        ]
    );
    assert_eq!(rig.listed(), (Vec::new(), false));
    // The next step waits for the new launcher, which knows no environment.
    assert_eq!(rig.launch(|_, _| {}, 1), []);
    let effects = rig.tell(ShepherdInput::LauncherUp { first: true });
    assert!(matches!(effects[0], ShepherdEffect::ToLauncher { message: ToLauncher::SetEnvironment { .. }, .. }));
    assert_eq!(spawns(&effects).len(), 1);
}

#[test]
fn the_end_of_the_job_kills_everything_and_accounts_for_every_task() {
    let mut rig = Rig::new();
    rig.launch(|_, _| {}, 2);
    rig.spawned(1);
    rig.spawned(2);
    let signal = |token| to_launcher(ToLauncher::Signal { token, signal: 9, group: true });
    assert_eq!(rig.manager(StepMgrToShepherd::EndJob), [signal(1), signal(2), ShepherdEffect::SweepJob]);
    assert_eq!(rig.manager(StepMgrToShepherd::EndJob), []);
    let killed = ExitStatus { code: 0, signal: Some(9) };
    rig.tell(ended(1, killed, false));
    let wait = ShepherdEffect::SetTimer { timer: ShepherdTimer::LastEnds, after: Duration::from_secs(2) };
    assert_eq!(rig.tell(ShepherdInput::JobSwept), [wait]);
    // The second end did not come; it is made up.
    assert_eq!(
        rig.tell(ShepherdInput::Timer(ShepherdTimer::LastEnds)),
        [ShepherdEffect::Close { token: 2 }, exit_of(1, killed, true), to_launcher(ToLauncher::Finish), leave(),]
    );
    // Nothing is said to be gone before the launcher has written what it held.
    assert_eq!(
        rig.tell(ShepherdInput::LauncherDown { detail: "exit code 0".into(), for_memory: false }),
        [ShepherdEffect::ToManager(ShepherdToStepMgr::Gone), ShepherdEffect::Finished]
    );
    assert_eq!(rig.core.phase(), ShepherdPhase::Gone);
}

#[test]
fn a_shepherd_without_its_manager_ends_what_it_has() {
    let mut rig = Rig::new();
    rig.launch(|_, _| {}, 1);
    rig.spawned(1);
    let signal = to_launcher(ToLauncher::Signal { token: 1, signal: 9, group: true });
    assert_eq!(rig.tell(ShepherdInput::ManagerLost), [signal, ShepherdEffect::SweepJob]);
    rig.exited(1, 0);
    assert_eq!(rig.tell(ShepherdInput::JobSwept), [to_launcher(ToLauncher::Finish), leave()]);
    // A launcher that does not end is not waited for any longer.
    assert_eq!(rig.tell(ShepherdInput::Timer(ShepherdTimer::Leave)), [ShepherdEffect::Finished]);
}

#[test]
fn steps_that_use_part_of_the_node_are_bound_to_it() {
    let bound = |bind: CpuBind, cpus: std::ops::Range<u32>, ranks| {
        let mut rig = Rig::new();
        let launched = rig.launch(
            |l, s| {
                l.cpu_bind = bind;
                s.cpus = CpuSet::from(cpus);
            },
            ranks,
        );
        spawns(&launched).iter().map(|s| s.affinity.clone()).collect::<Vec<_>>()
    };
    assert_eq!(bound(CpuBind::Default, 0..4, 1), [Vec::<u32>::new()]);
    assert_eq!(bound(CpuBind::Default, 1..3, 1), [vec![11, 12]]);
    assert_eq!(bound(CpuBind::Cores, 1..3, 2), [vec![11], vec![12]]);
    assert_eq!(bound(CpuBind::None, 1..3, 1), [Vec::<u32>::new()]);
    assert_eq!(bound(CpuBind::Map(vec![7, 5]), 1..3, 2), [vec![7], vec![5]]);
}

#[test]
fn tasks_and_users_are_told_what_they_are_bound_to() {
    let told = |bind: CpuBind, verbose: bool, cpus: std::ops::Range<u32>| {
        let mut rig = Rig::new();
        let change = |l: &mut StepLaunch, s: &mut StepNodeShare| {
            (l.cpu_bind, l.says_cpu_bind) = (bind, verbose);
            s.cpus = CpuSet::from(cpus);
        };
        let launched = rig.launch(change, 2);
        let spawned = spawns(&launched);
        let text = |bytes: &ByteBuf| String::from_utf8(bytes.to_vec()).unwrap();
        let of_binding = |task: &SpawnTask| {
            let all = task.extra_env.iter().map(text).filter(|entry| entry.starts_with("SLURM_CPU_BIND"));
            all.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of_binding(spawned[0]), of_binding(spawned[1]), "all tasks of a node are told the same");
        let says = |task: &SpawnTask| task.says.as_ref().map(|says| says.each_ref().map(text).join("7"));
        let says: Vec<String> = spawned.iter().filter_map(|task| says(task)).collect();
        (of_binding(spawned[0]), says.join(""))
    };
    let variables = |verbosity: &str, kind: &str, list: &str| {
        format!(
            "SLURM_CPU_BIND={verbosity},{kind}{list} SLURM_CPU_BIND_LIST={list} SLURM_CPU_BIND_TYPE={kind} \
             SLURM_CPU_BIND_VERBOSE={verbosity}"
        )
    };
    let line = |kind: &str, task: u32, mask: &str| {
        format!("cpu-bind={kind} - n1, task {task:>2} {task:>2} [7]: mask {mask}\n")
    };
    let both = |kind: &str, first: &str, second: &str| line(kind, 0, first) + &line(kind, 1, second);
    let cores = told(CpuBind::Cores, true, 1..3);
    assert_eq!(cores, (variables("verbose", "mask_cpu:", "0x800,0x1000"), both("MASK", "0x800 set", "0x1000 set")));
    let whole = told(CpuBind::Default, false, 0..4);
    assert_eq!(whole, (variables("quiet", "mask_cpu:", "0x3c00,0x3c00"), String::new()), "the job's CPUs");
    let none = told(CpuBind::None, true, 0..4);
    assert_eq!(none, (variables("verbose", "none", ""), both("NONE", "0x0", "0x0")));
    let map = told(CpuBind::Map(vec![1, 0]), true, 0..4);
    assert_eq!(map, (variables("verbose", "map_cpu:", "1,0"), both("MAP ", "0x2 set", "0x1 set")));
}

#[test]
fn ten_thousand_tasks_are_laid_on_a_node_of_many_cpus() {
    const CPUS: u32 = 512;
    for order in [CpuOrder::Block, CpuOrder::Cyclic, CpuOrder::Fcyclic] {
        let mut rig = Rig::new();
        rig.core.config.cpu_map = (0..CPUS).collect();
        let shape = &mut rig.core.config.shape;
        (shape.cpus, shape.sockets, shape.cores_per_socket, shape.threads_per_core) = (CPUS, 2, 128, 2);
        let launched = rig.launch(
            |l, s| {
                l.cpu_bind = CpuBind::Threads;
                l.within.sockets = Some(order);
                s.cpus = CpuSet::from(0..CPUS);
            },
            10_000,
        );
        let bound: Vec<Vec<u32>> = spawns(&launched).iter().map(|spawn| spawn.affinity.clone()).collect();
        assert_eq!(bound.len(), 10_000);
        let (own, others) = bound.split_at(CPUS as usize);
        let (second, last) = if order == CpuOrder::Block { (1, 511) } else { (256, 511) };
        assert_eq!([&own[0], &own[1], &own[511]], [&vec![0], &vec![second], &vec![last]], "{order:?}");
        let each: BTreeSet<u32> = own.iter().flatten().copied().collect();
        assert_eq!(each.len(), own.len(), "{order:?}");
        assert!(others.iter().all(|all| all.len() == CPUS as usize), "{order:?}");
    }
}

/// Examples 10 to 13 of Slurm's page on CPU management, on CPUs 10 to 17 of a machine with two sockets of four cores.
#[test]
fn tasks_are_bound_to_cores_and_sockets_as_they_are_laid_on_them() {
    let bound = |bind: CpuBind, over: Option<CpuOrder>, cpus: &str, (tasks, each): (u32, u32)| {
        let mut rig = Rig::new();
        rig.core.config.cpu_map = (10..18).collect();
        rig.core.config.shape =
            NodeShape { cpus: 8, sockets: 2, cores_per_socket: 4, threads_per_core: 1, ..NodeShape::default() };
        let launched = rig.launch(
            |l, s| {
                (l.cpu_bind, l.cpus_per_task) = (bind, each);
                l.within.sockets = over;
                s.cpus = cpus.parse().unwrap();
            },
            tasks,
        );
        let spawned = spawns(&launched);
        let of_tasks = spawned.iter().map(|s| s.affinity.iter().copied().collect::<CpuSet>().to_string());
        of_tasks.collect::<Vec<String>>().join(" ")
    };
    let six = ("0-2,4-6", (6, 1));
    assert_eq!(bound(CpuBind::Cores, None, six.0, six.1), "10 14 11 15 12 16");
    assert_eq!(bound(CpuBind::Sockets, None, six.0, six.1), ["10-12", "14-16"].repeat(3).join(" "));
    let two = ("0-5", (2, 3));
    assert_eq!(bound(CpuBind::Sockets, Some(CpuOrder::Block), two.0, two.1), "10-13 10-15");
    assert_eq!(bound(CpuBind::Threads, Some(CpuOrder::Block), two.0, two.1), "10-12 13-15");
    // Who says how tasks go over sockets has them bound, if there is a CPU for each.
    assert_eq!(bound(CpuBind::Default, Some(CpuOrder::Block), two.0, two.1), "10-12 13-15");
    assert_eq!(bound(CpuBind::Default, Some(CpuOrder::Block), two.0, (1, 3)), "10-15");
    assert_eq!(bound(CpuBind::None, Some(CpuOrder::Block), two.0, two.1), " ");
}

#[test]
fn a_step_with_limits_of_its_own_gets_a_cgroup_first_and_is_swept_at_its_end() {
    let mut rig = Rig::new();
    let own = |_: &mut StepLaunch, s: &mut StepNodeShare| {
        s.own_cgroup = true;
        s.memory_mib = Some(100);
    };
    let share = StepNodeShare { own_cgroup: true, memory_mib: Some(100), ..share() };
    let prepare = ShepherdEffect::Prepare { step: step(), script: None, cgroup: Some(share) };
    assert_eq!(rig.launch(own, 1), [prepare]);
    let effects = rig.tell(ShepherdInput::Prepared { step: step(), result: Ok(None) });
    assert_eq!(spawns(&effects)[0].cgroups, Some(0));
    let ShepherdEffect::ToLauncher { passed, .. } = effects.last().unwrap() else { panic!() };
    assert_eq!(*passed, [PassedFd::Cgroup { step: step() }]);
    rig.spawned(1);
    let status = ExitStatus { code: 0, signal: Some(9) };
    let effects = rig.tell(ended(1, status, false));
    assert_eq!(effects, [ShepherdEffect::AskOom { token: 1, step: Some(step()) }]);
    let end = TaskEnd { status, usage: TaskUsage::default(), oom: true };
    let exited = ShepherdToStepMgr::TaskExited { step: step(), rank: 0, end, gone: false };
    assert_eq!(
        rig.tell(ShepherdInput::Oom { token: 1, killed: true }),
        [ShepherdEffect::ToManager(exited), ShepherdEffect::Sweep { step: step() }]
    );
    assert_eq!(rig.tell(ShepherdInput::Swept { step: step() }), [gone()]);
}

// The shell that the task is may end as it likes after the kernel killed what it had started.
#[test]
fn whatever_a_task_ends_with_something_of_it_may_have_been_killed_for_memory() {
    for (code, launch) in [(137, 0), (1, 0), (0, 0), (0, 1)] {
        let mut rig = Rig::new();
        // The batch script has nobody who attends to it.
        rig.launch(|l, _| (l.batch, l.unattended) = (launch == 1, launch == 1), 1);
        rig.spawned(1);
        let status = ExitStatus { code, signal: None };
        assert_eq!(rig.tell(ended(1, status, false)), [ShepherdEffect::AskOom { token: 1, step: None }]);
        let end = TaskEnd { status, usage: TaskUsage::default(), oom: true };
        let exited = ShepherdToStepMgr::TaskExited { step: step(), rank: 0, end, gone: true };
        let told = rig.tell(ShepherdInput::Oom { token: 1, killed: true });
        assert_eq!(told, [ShepherdEffect::ToManager(exited)]);
    }
    // Of the many that are not waited for, it is not asked.
    let mut rig = Rig::new();
    rig.launch(|l, _| l.unattended = true, 1);
    let effects = rig.tell(ended(1, ExitStatus { code: 0, signal: None }, false));
    assert_eq!(effects, [last_exit(0, 0)]);
}

#[test]
fn a_step_that_is_ended_while_there_is_no_launcher_is_not_run_later() {
    let mut rig = Rig::new();
    rig.tell(ShepherdInput::LauncherDown { detail: "gone".into(), for_memory: false });
    assert_eq!(rig.launch(|_, _| {}, 1), []);
    let effects = rig.manager(StepMgrToShepherd::Terminate { step: step() });
    assert!(matches!(effects[0], ShepherdEffect::ToManager(ShepherdToStepMgr::TaskFailed { rank: 0, .. })));
    assert_eq!(effects[1..], [gone()]);
    assert_eq!(rig.tell(ShepherdInput::LauncherUp { first: true }), []);
}

// A step ended while its script was being written had tasks that were never spawned; it must not be left over.
#[test]
fn a_step_that_is_ended_while_it_is_prepared_is_over_at_once() {
    let mut rig = Rig::new();
    rig.launch(|l, _| l.script = Some(bytes("#!/bin/sh\n")), 1);
    rig.manager(StepMgrToShepherd::Terminate { step: step() });
    let effects = rig.tell(ShepherdInput::Prepared { step: step(), result: Ok(Some("/spool/x".into())) });
    assert!(matches!(effects[0], ShepherdEffect::ToManager(ShepherdToStepMgr::TaskFailed { rank: 0, .. })));
    assert_eq!(effects[1], gone());
}

#[test]
fn tasks_of_an_array_share_their_script() {
    let mut rig = Rig::new();
    let script = |l: &mut StepLaunch, _: &mut StepNodeShare| l.script = Some(bytes("#!/bin/sh\n"));
    rig.launch(script, 1);
    let first = rig.tell(ShepherdInput::Prepared { step: step(), result: Ok(Some("/spool/script".into())) });
    assert_eq!(spawns(&first)[0].argv, Arc::new(vec![bytes("/spool/script")]));
    rig.spawned(1);
    rig.exited(1, 0);
    let second = rig.launch(script, 1);
    assert_eq!(spawns(&second)[0].argv, Arc::new(vec![bytes("/spool/script")]));
    let other = rig.tell(ShepherdInput::Launcher(FromLauncher::Spawned { token: 2, pid: 102 }));
    assert_eq!(other.len(), 1);
    rig.exited(2, 0);
    let another = rig.launch(|l, _| l.script = Some(bytes("#!/bin/bash\n")), 1);
    assert!(matches!(&another[..], [ShepherdEffect::Prepare { script: Some(_), .. }]));
}

/// It had said that it is done to a step manager that died just then, and waits for its agent to let it go.
#[test]
fn a_shepherd_that_is_done_says_so_to_the_next_step_manager_with_all_that_it_knows() {
    let done = |rig: &mut Rig| rig.manager(StepMgrToShepherd::ListTasks);
    let listed = |tasks: Vec<TaskFound>, complete: bool| {
        [ShepherdToStepMgr::Tasks { tasks, complete }, ShepherdToStepMgr::Gone].map(ShepherdEffect::ToManager)
    };
    let mut rig = Rig::new();
    rig.launch(|_, _| {}, 1);
    rig.spawned(1);
    rig.exited(1, 3);
    rig.manager(StepMgrToShepherd::EndJob);
    rig.tell(ShepherdInput::JobSwept);
    rig.tell(ShepherdInput::LauncherDown { detail: "exit code 0".into(), for_memory: false });
    assert_eq!(rig.core.phase(), ShepherdPhase::Gone);
    let ended = found(0, Some(ExitStatus { code: 3, signal: None }));
    assert_eq!(done(&mut rig), listed(vec![ended], true));
    // It was ended before it had found its launcher, and knows nothing.
    let mut rig = restarted();
    rig.manager(StepMgrToShepherd::EndJob);
    rig.tell(ShepherdInput::JobSwept);
    assert_eq!(rig.core.phase(), ShepherdPhase::Gone);
    assert_eq!(done(&mut rig), listed(Vec::new(), false));
}

fn held(token: u64, rank: u32, own_cgroup: bool) -> TaskHeld {
    let label = TaskLabel { own_cgroup, ..label(rank) };
    TaskHeld { token, pid: 100 + token as u32, label, error_path: Some("/home/alice/err".into()) }
}

fn over(token: u64, rank: u32, own_cgroup: bool) -> TaskOver {
    let label = TaskLabel { own_cgroup, step: StepId::new(JobId(502), StepNum::Number(2)), ..label(rank) };
    TaskOver { token, label, status: ExitStatus { code: 4, signal: None }, usage: TaskUsage::default() }
}

/// A shepherd of a `stepd` that was started again.
fn restarted() -> Rig {
    let config =
        ShepherdConfig { cgroups: true, ..ShepherdConfig::new(JobId(502), "n1", "/run/j502.sock", CpuSet::from(0..4)) };
    Rig { core: ShepherdCore::new(config), now: NOW }
}

#[test]
fn tasks_of_a_former_stepd_are_taken_on_and_listed_once_they_are_known() {
    let mut rig = restarted();
    assert_eq!(rig.manager(StepMgrToShepherd::ListTasks), []);
    let adopted = ShepherdInput::Adopted {
        tasks: vec![held(7, 0, false), held(9, 1, false)],
        ended: vec![over(8, 0, false)],
        complete: true,
    };
    let two = TaskFound {
        step: StepId::new(JobId(502), StepNum::Number(2)),
        ..found(0, Some(ExitStatus { code: 4, signal: None }))
    };
    let tasks = vec![found(0, None), found(1, None), two];
    let list = ShepherdToStepMgr::Tasks { tasks, complete: true };
    assert_eq!(rig.tell(adopted), [ShepherdEffect::ToManager(list)]);
    let signal = |token| to_launcher(ToLauncher::Signal { token, signal: 10, group: true });
    let message = StepMgrToShepherd::Signal { step: step(), signal: 10, reach: SignalReach::Groups, whole_run: false };
    assert_eq!(rig.manager(message), [signal(7), signal(9)]);
    let note = StepMgrToShepherd::Note { step: step(), text: "time".into() };
    let line = ToLauncher::AppendText { path: "/home/alice/err".into(), text: bytes("time\n") };
    assert_eq!(rig.manager(note), [to_launcher(line)]);
    assert_eq!(rig.exited(9, 5), [exit(1, 5)]);
    assert_eq!(rig.exited(7, 0), [last_exit(0, 0)]);
    // New tasks get numbers that none of the launcher's has.
    assert_eq!(spawns(&rig.launch(|_, _| {}, 1))[0].token, 10);
}

#[test]
fn cgroups_of_adopted_steps_are_swept_when_they_end_and_those_of_ended_ones_at_once() {
    let mut rig = restarted();
    let two = StepId::new(JobId(502), StepNum::Number(2));
    let tasks = vec![held(7, 0, true)];
    let adopted = ShepherdInput::Adopted { tasks, ended: vec![over(8, 0, true), over(6, 1, true)], complete: true };
    assert_eq!(rig.tell(adopted), [ShepherdEffect::Sweep { step: two }]);
    assert_eq!(rig.tell(ShepherdInput::Swept { step: two }), []);
    assert_eq!(rig.exited(7, 0), [exit(0, 0), ShepherdEffect::Sweep { step: step() }]);
    assert_eq!(rig.tell(ShepherdInput::Swept { step: step() }), [gone()]);
}

#[test]
fn a_launcher_that_is_gone_leaves_nothing_to_list_and_says_so() {
    let mut rig = restarted();
    rig.tell(ShepherdInput::LauncherUp { first: false });
    assert_eq!(rig.listed(), (Vec::new(), false));
}

#[test]
fn a_step_manager_that_comes_back_hears_of_what_runs_and_of_the_latest_ends() {
    let mut rig = Rig::new();
    for token in 1..=ENDS_KEPT as u64 + 1 {
        rig.launch(|l, _| l.unattended = true, 1);
        rig.exited(token, (token % 200) as u8);
    }
    rig.launch(|_, _| {}, 2);
    let (tasks, complete) = rig.listed();
    assert!(complete);
    assert_eq!(tasks[..2], [found(0, None), found(1, None)]);
    assert_eq!(tasks.len(), 2 + ENDS_KEPT);
    assert_eq!(tasks[2], found(0, Some(ExitStatus { code: 2, signal: None })));
}

#[test]
fn a_job_without_a_launcher_still_answers_what_is_known() {
    let mut rig = restarted();
    rig.manager(StepMgrToShepherd::ListTasks);
    for _ in 0..=LAUNCHER_RESTARTS {
        let effects = rig.tell(ShepherdInput::LauncherDown { detail: "no".into(), for_memory: false });
        let answered = effects.iter().any(|e| matches!(e, ShepherdEffect::ToManager(ShepherdToStepMgr::Tasks { .. })));
        assert_eq!(answered, !effects.contains(&ShepherdEffect::StartLauncher));
    }
    assert_eq!(rig.listed(), (Vec::new(), false));
}

#[test]
fn an_output_pack_is_one_file_on_each_node() {
    let pack = |pattern: &str, nodes: usize| {
        let mut rig = Rig::new();
        rig.core.config.job_nodes = nodes;
        let launched = rig.launch(
            |l, _| {
                l.output_pack = Some(pattern.into());
                (l.stdout, l.stderr) = (StreamTarget::Pack, StreamTarget::Pack);
            },
            1,
        );
        let task = spawns(&launched)[0];
        assert_eq!(task.stdio, [FdSource::Null, FdSource::Pack, FdSource::Pack]);
        task.pack.clone().unwrap()
    };
    assert_eq!(pack("out-%j.pack", 1), "/home/alice/out-502.pack");
    assert_eq!(pack("out-%j.pack", 2), "/home/alice/out-502.pack.n1");
    assert_eq!(pack("/data/%N/out.pack", 2), "/data/n1/out.pack");
    assert_eq!(pack("out\\%N.pack", 2), "/home/alice/out%N.pack.n1");
    // Without a pack to go to, and without a wish to, nothing is packed.
    let mut rig = Rig::new();
    let launched = rig.launch(|l, _| l.stdout = StreamTarget::Pack, 1);
    assert_eq!((&spawns(&launched)[0].stdio[1], &spawns(&launched)[0].pack), (&FdSource::Null, &None));
    let mut rig = Rig::new();
    assert_eq!(spawns(&rig.launch(|l, _| l.output_pack = Some("x".into()), 1))[0].pack, None);
}

#[test]
fn a_pack_that_fails_is_told_to_the_operator_and_in_the_jobs_own_file() {
    let mut rig = Rig::new();
    let batch = |l: &mut StepLaunch, _: &mut StepNodeShare| {
        l.batch = true;
        l.stderr = StreamTarget::File("/home/alice/slurm.out".into());
    };
    rig.launch(batch, 1);
    let failed = FromLauncher::PackFailed { label: label(0), message: "cannot write /data/out: No space left".into() };
    let text = "output pack of step 502.3, task 0: cannot write /data/out: No space left";
    let line = bytes(&format!("slurmstepd: error: {text}\n"));
    assert_eq!(
        rig.tell(ShepherdInput::Launcher(failed)),
        [
            to_launcher(ToLauncher::AppendText { path: "/home/alice/slurm.out".into(), text: line }),
            ShepherdEffect::Log { text: text.into() },
        ]
    );
}

/// On other nodes of a shared file system the same file may be written.
#[test]
fn an_output_file_that_nobody_asked_for_may_go_where_all_tasks_are_on_this_node() {
    let asked = |unasked: bool, total: u32| {
        let mut rig = Rig::new();
        let change = |launch: &mut StepLaunch, _: &mut StepNodeShare| {
            launch.stdout = StreamTarget::File("slurm-%J.out".to_owned());
            (launch.unasked_output, launch.total_tasks) = (unasked, total);
        };
        let effects = rig.launch(change, 2);
        spawns(&effects).iter().map(|task| task.unasked_output).collect::<Vec<_>>()
    };
    assert_eq!(asked(true, 2), [true, true]);
    assert_eq!(asked(true, 3), [false, false]);
    assert_eq!(asked(false, 2), [false, false]);
}

fn scripts(prolog: &str, epilog: &str) -> TaskScripts {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    TaskScripts { prolog: given(prolog), epilog: given(epilog) }
}

#[test]
fn a_task_that_is_not_started_after_another_leaves_cpu_frequencies_as_they_were() {
    let mut rig = Rig::new();
    let asked = CpuFreq::Governed(Governor::Performance);
    let launch = Arc::new(StepLaunch { cpu_freq: Some(asked), ..launch() });
    let first = StepId::new(JobId(502), StepNum::Number(2));
    let before = StepStart { step: first, ..start(Arc::clone(&launch), share(), 1) };
    rig.manager(StepMgrToShepherd::Launch(Box::new(before)));
    let behind = StepStart { after: Some(first), ..start(launch, share(), 1) };
    let out = rig.manager(StepMgrToShepherd::Launch(Box::new(behind)));
    let set = ShepherdEffect::SetFrequency { step: step(), cpus: vec![10, 11, 12, 13], asked };
    assert!(out.contains(&set), "{out:?}");
    let out = rig.tell(ShepherdInput::Launcher(FromLauncher::NotStarted { token: 2 }));
    assert!(out.contains(&ShepherdEffect::PutFrequencyBack { step: step() }), "{out:?}");
    assert!(!out.contains(&ShepherdEffect::PutFrequencyBack { step: first }), "the other one goes on");
}

#[test]
fn clocks_of_gpus_are_set_for_a_step_that_has_some_and_put_back_after_it() {
    let asked: GpuFreq = "medium".parse().unwrap();
    let of = |name: &str, gpus: &str| {
        let mut rig = Rig::new();
        // File=/dev/nvidia[2-5]
        rig.core.config.gpu_minors = vec![(0, 2), (1, 3), (2, 4), (3, 5)];
        let launch = Arc::new(StepLaunch { gpu_freq: Some(asked), ..launch() });
        let devices: CpuSet = if gpus.is_empty() { CpuSet::default() } else { gpus.parse().unwrap() };
        let gres = vec![GresShare { name: name.into(), kind: None, count: devices.len().into(), devices }];
        let share = || StepNodeShare { gres: gres.clone(), ..share() };
        let first = StepId::new(JobId(502), StepNum::Number(2));
        rig.manager(StepMgrToShepherd::Launch(Box::new(StepStart {
            step: first,
            ..start(Arc::clone(&launch), share(), 1)
        })));
        let behind = StepStart { after: Some(first), ..start(launch, share(), 1) };
        let mut out = rig.manager(StepMgrToShepherd::Launch(Box::new(behind)));
        out.extend(rig.tell(ShepherdInput::Launcher(FromLauncher::NotStarted { token: 2 })));
        out.retain(|e| matches!(e, ShepherdEffect::SetGpuClocks { .. } | ShepherdEffect::PutGpuClocksBack { .. }));
        out
    };
    let set = ShepherdEffect::SetGpuClocks { step: step(), gpus: vec![3, 5], asked };
    assert_eq!(of("gpu", "1,3"), [set, ShepherdEffect::PutGpuClocksBack { step: step() }]);
    assert_eq!(of("gpu", ""), []);
    assert_eq!(of("gpu", "7"), [], "no file of it is known");
    assert_eq!(of("shard", "1,3"), [], "others have shards of them too");
}

/// The programs that the launcher is told to spawn, with their tokens.
fn programs(effects: &[ShepherdEffect]) -> Vec<(u64, String)> {
    let words = |task: &SpawnTask| {
        task.argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ")
    };
    spawns(effects).into_iter().map(|task| (task.token, words(task))).collect()
}

fn reports_an_end(effects: &[ShepherdEffect]) -> bool {
    effects.iter().any(|effect| {
        matches!(effect, ShepherdEffect::ToManager(ShepherdToStepMgr::TaskExited { end, .. }) if end.status.code == 3)
    })
}

#[test]
fn prologs_come_before_a_task_and_epilogs_after_it_those_of_the_site_outside() {
    let mut rig = Rig::new();
    rig.core.config.task_scripts = scripts("/site/before", "/site/after");
    rig.core.config.stepd = "/sbin/stepd".into();
    let started = rig.launch(|launch, _| launch.task_scripts = scripts("/own/before", "/own/after"), 1);
    let begun = "/sbin/stepd task --site-prolog /site/before --prolog /own/before -- hostname".to_owned();
    assert_eq!(programs(&started), [(1, begun)]);
    rig.spawned(1);
    let first = rig.exited(1, 3);
    assert_eq!(programs(&first), [(2, "/own/after".to_owned())]);
    assert!(!reports_an_end(&first), "{first:?}");
    let second = rig.exited(2, 9);
    assert_eq!(programs(&second), [(3, "/site/after".to_owned())]);
    assert!(second.iter().any(|effect| matches!(effect, ShepherdEffect::Log { .. })), "an epilog's failure is logged");
    let over = rig.tell(not_started(3, "execve", "/site/after", 2));
    let oom = rig.tell(ShepherdInput::Oom { token: 1, killed: false });
    assert!(reports_an_end(&over) || reports_an_end(&oom), "the task's own end is reported: {over:?} {oom:?}");
}

#[test]
fn an_epilog_that_does_not_end_is_killed_and_the_end_of_a_job_does_not_wait_for_it() {
    let mut rig = Rig::new();
    rig.core.config.task_scripts = scripts("", "/site/after");
    assert_eq!(programs(&rig.launch(|_, _| {}, 2)).iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 2]);
    rig.spawned(1);
    rig.spawned(2);
    let first = rig.exited(1, 3);
    let timer = ShepherdEffect::SetTimer { timer: ShepherdTimer::Epilog, after: EPILOG_LIMIT };
    assert!(first.contains(&timer), "{first:?}");
    rig.now = NOW.plus(Duration::from_secs(2));
    rig.exited(2, 3);
    rig.now = NOW.plus(EPILOG_LIMIT);
    let late = rig.tell(ShepherdInput::Timer(ShepherdTimer::Epilog));
    let kill = |token| ToLauncher::Signal { token, signal: SIGKILL, group: true };
    let killed = |effects: &[ShepherdEffect], token| {
        effects.contains(&ShepherdEffect::ToLauncher { message: kill(token), passed: Vec::new() })
    };
    assert!(killed(&late, 3) && !killed(&late, 4), "{late:?}");
    let over = rig.tell(ended(3, ExitStatus { code: 0, signal: Some(9) }, false));
    let oom = rig.tell(ShepherdInput::Oom { token: 1, killed: false });
    assert!(reports_an_end(&over) || reports_an_end(&oom), "{over:?} {oom:?}");
    // The other epilog still runs.
    rig.manager(StepMgrToShepherd::EndJob);
    rig.tell(ShepherdInput::JobSwept);
    assert!(reports_an_end(&rig.tell(ShepherdInput::Timer(ShepherdTimer::LastEnds))));
}

/// What a task asks for, and the answers that go out, by task.
fn asks(rig: &mut Rig, token: u64, request: Request) -> Vec<(u64, String)> {
    answers(&rig.tell(pmi(token, request, None)))
}

/// Such a request, about the task of that rank.
fn pmi(token: u64, request: Request, rank: Option<u32>) -> ShepherdInput {
    ShepherdInput::Pmi { token, asked: Asked { request, thread: None, rank } }
}

fn answers(effects: &[ShepherdEffect]) -> Vec<(u64, String)> {
    let of = |effect: &ShepherdEffect| match effect {
        ShepherdEffect::PmiAnswer { token, data } => Some((*token, String::from_utf8_lossy(data).trim().to_owned())),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

fn mpi_rig(ranks: u32) -> (Rig, Vec<ShepherdEffect>) {
    rig_with(Mpi::Pmi2, ranks)
}

fn rig_with(mpi: Mpi, ranks: u32) -> (Rig, Vec<ShepherdEffect>) {
    let mut rig = Rig::new();
    let started = rig.launch(|launch, _| launch.mpi = mpi, ranks);
    for token in 1..=u64::from(ranks) {
        rig.spawned(token);
    }
    (rig, started)
}

#[test]
fn tasks_of_an_mpi_program_have_a_socket_and_are_told_who_they_are() {
    let (_, started) = mpi_rig(2);
    let passed: Vec<_> = started
        .iter()
        .filter_map(|effect| match effect {
            ShepherdEffect::ToLauncher { message: ToLauncher::Spawn(task), passed } => {
                Some(passed[usize::from(task.third.unwrap())].clone())
            }
            _ => None,
        })
        .collect();
    assert_eq!(passed, [PassedFd::Pmi { token: 1 }, PassedFd::Pmi { token: 2 }]);
    let spawned = spawns(&started);
    let has = |at: usize, entry: &str| spawned[at].extra_env.contains(&bytes(entry));
    assert!(has(1, "PMI_FD=3") && has(1, "PMI_RANK=1") && has(1, "PMI_SIZE=2") && has(1, "PMI_JOBID=502.3"));
    let mut plain = Rig::new();
    assert!(spawns(&plain.launch(|_, _| {}, 1)).iter().all(|task| task.third.is_none()));
}

#[test]
fn what_a_task_tells_is_known_on_its_node_at_once_and_elsewhere_after_a_fence() {
    let (mut rig, _) = mpi_rig(2);
    for token in [1, 2] {
        let init = asks(&mut rig, token, Request::Init(1));
        assert_eq!(init, [(token, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1".to_owned())]);
    }
    asks(&mut rig, 1, Request::Put("a".into(), "1".into()));
    let known = asks(&mut rig, 2, Request::Get("a".into()));
    assert_eq!(known, [(2, "cmd=get_result rc=0 value=1".to_owned())]);
    let unknown = asks(&mut rig, 2, Request::Get("b".into()));
    assert_eq!(unknown, [(2, "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned())]);
    assert_eq!(asks(&mut rig, 1, Request::Fence), []);
    let last = rig.tell(pmi(2, Request::Fence, None));
    let puts = vec![("a".to_owned(), "1".to_owned())];
    let told = ShepherdEffect::ToManager(ShepherdToStepMgr::PmiFence { step: step(), fence: 0, puts });
    assert_eq!(last, std::slice::from_ref(&told));
    // A step manager that is new is told again.
    assert!(rig.manager(StepMgrToShepherd::ListTasks).contains(&told));
    let others = Arc::new(vec![("b".to_owned(), "2".to_owned())]);
    let opened = rig.manager(StepMgrToShepherd::PmiFenced { step: step(), fence: 0, puts: Arc::clone(&others) });
    assert_eq!(answers(&opened), [(1, "cmd=barrier_out rc=0".to_owned()), (2, "cmd=barrier_out rc=0".to_owned())]);
    let known = asks(&mut rig, 1, Request::Get("b".into()));
    assert_eq!(known, [(1, "cmd=get_result rc=0 value=2".to_owned())]);
    assert_eq!(answers(&rig.manager(StepMgrToShepherd::PmiFenced { step: step(), fence: 0, puts: others })), []);
}

#[test]
fn a_fact_of_the_node_is_waited_for_and_too_long_values_are_declined() {
    let (mut rig, _) = mpi_rig(2);
    asks(&mut rig, 1, Request::Init(2));
    asks(&mut rig, 2, Request::Init(2));
    assert_eq!(asks(&mut rig, 1, Request::NodeAttr("shm".into(), true)), []);
    let told = asks(&mut rig, 2, Request::PutNodeAttr("shm".into(), "/x".into()));
    assert_eq!(told.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 2]);
    assert!(told[0].1.ends_with("cmd=info-getnodeattr-response;found=TRUE;value=/x;rc=0;"), "{told:?}");
    let long = asks(&mut rig, 1, Request::Put("k".into(), "x".repeat(5000)));
    assert!(long[0].1.contains("rc=-1"), "{long:?}");
    let other = asks(&mut rig, 1, Request::Other("spawn".into()));
    assert!(other[0].1.contains("spawn is not supported"), "{other:?}");
}

#[test]
fn a_task_that_ends_within_its_mpi_program_ends_the_step_and_one_that_finished_does_not() {
    let aborts = |effects: &[ShepherdEffect]| aborted(effects) == Some(0);
    let (mut rig, _) = mpi_rig(2);
    asks(&mut rig, 1, Request::Init(1));
    assert!(aborts(&rig.exited(1, 0)));
    let (mut rig, _) = mpi_rig(2);
    asks(&mut rig, 1, Request::Init(1));
    assert_eq!(asks(&mut rig, 1, Request::Finalize), [(1, "cmd=finalize_ack rc=0".to_owned())]);
    assert!(!aborts(&rig.exited(1, 0)));
    let (mut rig, _) = mpi_rig(2);
    assert!(!aborts(&rig.exited(1, 0)), "it is no MPI program");
    for bad in [Request::Abort("x".into()), Request::Malformed("y".into())] {
        let (mut rig, _) = mpi_rig(2);
        asks(&mut rig, 1, Request::Init(1));
        assert!(aborts(&rig.tell(pmi(1, bad, None))));
    }
}

/// The rank that the step is said to be aborted by.
fn aborted(effects: &[ShepherdEffect]) -> Option<u32> {
    effects.iter().find_map(|effect| match effect {
        ShepherdEffect::ToManager(ShepherdToStepMgr::PmiAbort { rank, .. }) => Some(*rank),
        _ => None,
    })
}

#[test]
fn a_pmix_server_speaks_for_all_tasks_of_its_node_also_when_its_own_is_over() {
    let (mut rig, started) = rig_with(Mpi::Pmix, 2);
    let words: Vec<_> =
        spawns(&started)[0].argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    assert_eq!(words[1..4], ["task", "--pmix", "--"]);
    asks(&mut rig, 1, Request::Init(2));
    // It alone comes to a fence.
    let told = ShepherdToStepMgr::PmiFence { step: step(), fence: 0, puts: Vec::new() };
    assert_eq!(rig.tell(pmi(1, Request::Fence, None)), [ShepherdEffect::ToManager(told)]);
    rig.manager(StepMgrToShepherd::PmiFenced { step: step(), fence: 0, puts: Arc::default() });
    for rank in [0, 1] {
        assert_eq!(answers(&rig.tell(pmi(1, Request::Begin, Some(rank)))).len(), 1);
    }
    rig.tell(pmi(1, Request::Finalize, Some(0)));
    let closes = |effects: &[ShepherdEffect]| {
        let closed = effects.iter().filter(|effect| matches!(effect, ShepherdEffect::Close { .. }));
        closed.count()
    };
    let over = rig.exited(1, 0);
    assert_eq!((aborted(&over), closes(&over)), (None, 0));
    let answer = answers(&rig.tell(pmi(1, Request::Finalize, Some(1))));
    assert!(answer[0].0 == 1 && answer[0].1.ends_with("cmd=finalize-response;rc=0;"), "{answer:?}");
    let over = rig.exited(2, 0);
    assert_eq!((aborted(&over), closes(&over)), (None, 2));
    // A task that breaks off, and one that wants the step to end.
    let (mut rig, _) = rig_with(Mpi::Pmix, 2);
    asks(&mut rig, 1, Request::Init(2));
    rig.tell(pmi(1, Request::Begin, Some(1)));
    assert_eq!(aborted(&rig.tell(pmi(1, Request::Abort("x".into()), Some(1)))), Some(1));
    assert_eq!(aborted(&rig.exited(2, 3)), Some(1));
    // Who speaks PMI speaks for itself.
    let (mut rig, _) = mpi_rig(2);
    asks(&mut rig, 1, Request::Init(2));
    assert_eq!(aborted(&rig.tell(pmi(1, Request::Abort("x".into()), Some(1)))), Some(0));
}

#[path = "series_test.rs"]
mod series_tests;

#[path = "looks_test.rs"]
mod looks;
