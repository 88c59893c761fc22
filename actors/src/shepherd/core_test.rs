//! Tests of one node's part, effects compared whole.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{shepherd::messages::PassedFd, stepmgr::builders::bytes};
use garrick_model::{
    ids::StepNum,
    messages::{
        launcher::{FdSource, FileMode, SpawnTask, TaskUsage},
        shepherd::{OUTPUT_FRAME_COST, OUTPUT_WINDOW, SignalReach, StepLaunch, StepNodeShare, TaskLaunch},
    },
    spec::{CpuBind, OpenMode, StdinTo, StreamTarget},
    state::ExitStatus,
};
use std::sync::Arc;

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
        assert_eq!(rig.tell(ShepherdInput::LauncherUp), []);
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
        let tasks = (0..ranks).map(task).collect();
        self.manager(StepMgrToShepherd::Launch { step: Arc::new(launch), share, tasks })
    }

    fn spawned(&mut self, token: u64) -> Vec<ShepherdEffect> {
        self.tell(ShepherdInput::Launcher(FromLauncher::Spawned { token, pid: 100 + token as u32 }))
    }

    fn exited(&mut self, token: u64, code: u8) -> Vec<ShepherdEffect> {
        let status = ExitStatus { code, signal: None };
        self.tell(ShepherdInput::Launcher(FromLauncher::Exited { token, status, usage: TaskUsage::default() }))
    }
}

fn step() -> StepId {
    StepId::new(JobId(502), StepNum::Number(3))
}

fn launch() -> StepLaunch {
    StepLaunch {
        step: step(),
        name: "hostname".into(),
        job_name: "demo".into(),
        user: "alice".into(),
        array_task: None,
        environment: Arc::new(vec![bytes("PATH=/usr/bin")]),
        step_env: vec![bytes("SLURM_STEP_ID=3")],
        work_dir: "/home/alice".into(),
        stdin: StreamTarget::Null,
        stdin_to: StdinTo::All,
        stdout: StreamTarget::Null,
        stderr: StreamTarget::Null,
        open_mode: OpenMode::Truncate,
        pty: None,
        umask: 0o022,
        rlimits: Vec::new(),
        cpu_bind: CpuBind::Default,
        cpus_per_task: 1,
        total_tasks: 1,
        script: None,
        batch: false,
    }
}

fn share() -> StepNodeShare {
    StepNodeShare {
        node_id: 0,
        cpus: CpuSet::from(0..4),
        memory_mib: None,
        own_cgroup: false,
        env: vec![bytes("SLURM_NODEID=0")],
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

fn gone() -> ShepherdEffect {
    ShepherdEffect::ToManager(ShepherdToStepMgr::StepGone { step: step() })
}

fn exit(rank: u32, code: u8) -> ShepherdEffect {
    ShepherdEffect::ToManager(ShepherdToStepMgr::TaskExited {
        step: step(),
        rank,
        status: ExitStatus { code, signal: None },
        usage: TaskUsage::default(),
        oom: false,
    })
}

#[test]
fn a_task_is_spawned_with_its_environment_sent_once() {
    let mut rig = Rig::new();
    let first = rig.launch(|_, _| {}, 1);
    let environment = ToLauncher::SetEnvironment {
        id: 1,
        entries: vec![bytes("PATH=/usr/bin"), bytes("GARRICK_STEPD_DOOR=/run/j502.sock")],
    };
    let spawn = ToLauncher::Spawn(Box::new(SpawnTask {
        token: 1,
        argv: vec![bytes("hostname")],
        environment: 1,
        extra_env: vec![bytes("SLURM_STEP_ID=3"), bytes("SLURM_NODEID=0"), bytes("SLURM_PROCID=0")],
        work_dir: "/home/alice".into(),
        stdio: [FdSource::Null, FdSource::Null, FdSource::Null],
        pty: false,
        umask: 0o022,
        rlimits: Vec::new(),
        affinity: Vec::new(),
        cgroups: None,
    }));
    assert_eq!(first, [to_launcher(environment), to_launcher(spawn)]);
    assert_eq!(
        rig.spawned(1),
        [ShepherdEffect::ToManager(ShepherdToStepMgr::TaskStarted { step: step(), rank: 0, pid: 101 })]
    );
    assert_eq!(rig.exited(1, 7), [exit(0, 7), ShepherdEffect::KillGroups { pids: vec![101] }, gone()]);
    let second = rig.launch(|_, _| {}, 1);
    assert_eq!((second.len(), spawns(&second)[0].environment), (1, 1));
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
    assert_eq!(rig.tell(data("")), [output(""), exit(0, 0), ShepherdEffect::KillGroups { pids: vec![101] }, gone()]);
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
        [ShepherdEffect::Close { token: 1 }, exit(0, 0), ShepherdEffect::KillGroups { pids: vec![101] }, gone()]
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
fn a_lost_working_directory_is_replaced_by_tmp_with_slurms_words() {
    let mut rig = Rig::new();
    rig.launch(|l, _| l.stderr = StreamTarget::Relay, 1);
    let failed = FromLauncher::SpawnFailed { token: 1, stage: "chdir".into(), subject: "/home/alice".into(), errno: 2 };
    let effects = rig.tell(ShepherdInput::Launcher(failed));
    assert_eq!(effects[0], ShepherdEffect::Close { token: 1 });
    assert_eq!((spawns(&effects)[0].work_dir.as_str(), spawns(&effects)[0].token), ("/tmp", 2));
    assert_eq!(
        effects.last(),
        Some(&ShepherdEffect::ToManager(ShepherdToStepMgr::Output {
            step: step(),
            rank: 0,
            stream: Stream::Stderr,
            data: bytes(
                "slurmstepd: error: couldn't chdir to `/home/alice': No such file or directory: going to /tmp instead\n"
            ),
        }))
    );
}

#[test]
fn a_program_that_cannot_be_executed_ends_with_the_errno() {
    for (errno, code, text) in [(2, 2, "No such file or directory"), (13, 13, "Permission denied")] {
        let mut rig = Rig::new();
        rig.launch(|l, _| l.stderr = StreamTarget::File("/tmp/err".into()), 1);
        let failed = FromLauncher::SpawnFailed { token: 1, stage: "execve".into(), subject: "/x".into(), errno };
        assert_eq!(
            rig.tell(ShepherdInput::Launcher(failed)),
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
                }),
                gone(),
            ]
        );
    }
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
    let leader = StepMgrToShepherd::Signal { step: step(), signal: 10, reach: SignalReach::Leaders };
    assert_eq!(rig.manager(leader), [to_launcher(ToLauncher::Signal { token: 1, signal: 10, group: false })]);
}

#[test]
fn a_dead_launcher_ends_its_tasks_as_unknown_and_runs_nothing_again() {
    let mut rig = Rig::new();
    rig.launch(|_, _| {}, 1);
    rig.spawned(1);
    let effects = rig.tell(ShepherdInput::LauncherDown { detail: "killed by signal 9".into() });
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
            }),
            ShepherdEffect::KillGroups { pids: vec![101] },
            ShepherdEffect::StartLauncher,
            gone(),
        ]
    );
    // The next step waits for the new launcher, which knows no environment.
    assert_eq!(rig.launch(|_, _| {}, 1), []);
    let effects = rig.tell(ShepherdInput::LauncherUp);
    assert!(matches!(effects[0], ShepherdEffect::ToLauncher { message: ToLauncher::SetEnvironment { .. }, .. }));
    assert_eq!(spawns(&effects).len(), 1);
}

#[test]
fn the_end_of_the_job_kills_everything_and_accounts_for_every_task() {
    let mut rig = Rig::new();
    rig.launch(|_, _| {}, 2);
    rig.spawned(1);
    rig.spawned(2);
    assert_eq!(rig.manager(StepMgrToShepherd::EndJob), [ShepherdEffect::SweepJob]);
    assert_eq!(rig.manager(StepMgrToShepherd::EndJob), []);
    let killed = ExitStatus { code: 0, signal: Some(9) };
    let usage = TaskUsage::default();
    rig.tell(ShepherdInput::Launcher(FromLauncher::Exited { token: 1, status: killed, usage }));
    let wait = ShepherdEffect::SetTimer { timer: ShepherdTimer::LastEnds, after: Duration::from_secs(2) };
    assert_eq!(rig.tell(ShepherdInput::JobSwept), [wait]);
    // The launcher went with the sweep; the second end is made up, without a process group to kill.
    let exited = |rank| {
        ShepherdEffect::ToManager(ShepherdToStepMgr::TaskExited {
            step: step(),
            rank,
            status: killed,
            usage,
            oom: false,
        })
    };
    assert_eq!(
        rig.tell(ShepherdInput::Timer(ShepherdTimer::LastEnds)),
        [
            ShepherdEffect::Close { token: 2 },
            exited(1),
            ShepherdEffect::KillGroups { pids: vec![101] },
            gone(),
            to_launcher(ToLauncher::Finish),
            ShepherdEffect::ToManager(ShepherdToStepMgr::Gone),
            ShepherdEffect::Finished,
        ]
    );
    assert_eq!(rig.core.phase(), ShepherdPhase::Gone);
}

#[test]
fn a_shepherd_without_its_manager_ends_what_it_has() {
    let mut rig = Rig::new();
    rig.launch(|_, _| {}, 1);
    rig.spawned(1);
    assert_eq!(rig.tell(ShepherdInput::ManagerLost), [ShepherdEffect::SweepJob]);
    rig.exited(1, 0);
    let effects = rig.tell(ShepherdInput::JobSwept);
    assert_eq!(effects, [to_launcher(ToLauncher::Finish), ShepherdEffect::Finished]);
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
    let usage = TaskUsage::default();
    let effects = rig.tell(ShepherdInput::Launcher(FromLauncher::Exited { token: 1, status, usage }));
    assert_eq!(effects, [ShepherdEffect::AskOom { token: 1, step: Some(step()) }]);
    let exited = ShepherdToStepMgr::TaskExited { step: step(), rank: 0, status, usage, oom: true };
    assert_eq!(
        rig.tell(ShepherdInput::Oom { token: 1, killed: true }),
        [ShepherdEffect::ToManager(exited), ShepherdEffect::Sweep { step: step() }]
    );
    assert_eq!(rig.tell(ShepherdInput::Swept { step: step() }), [gone()]);
}

#[test]
fn a_step_that_is_ended_while_there_is_no_launcher_is_not_run_later() {
    let mut rig = Rig::new();
    rig.tell(ShepherdInput::LauncherDown { detail: "gone".into() });
    assert_eq!(rig.launch(|_, _| {}, 1), []);
    let effects = rig.manager(StepMgrToShepherd::Terminate { step: step() });
    assert!(matches!(effects[0], ShepherdEffect::ToManager(ShepherdToStepMgr::TaskFailed { rank: 0, .. })));
    assert_eq!(effects[1..], [gone()]);
    assert_eq!(rig.tell(ShepherdInput::LauncherUp), []);
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
