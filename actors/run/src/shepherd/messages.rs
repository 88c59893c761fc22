//! The shepherd's inputs, with their senders, and its effects. The manager's messages keep their order, and so do the launcher's;
//! there is no order between the two, nor for answers of the node's own parts.

use crate::pmi::Asked;
use garrick_model::{
    cpu_freq::CpuFreq,
    gpu_freq::GpuFreq,
    ids::StepId,
    messages::{
        launcher::{FromLauncher, TaskHeld, TaskOver, ToLauncher},
        shepherd::{ShepherdToStepMgr, StepMgrToShepherd, StepNodeShare, Stream},
    },
    profile::SeriesSet,
    usage::{TaskSample, TaskUsage},
};
use garrick_runtime::Message;
use serde_bytes::ByteBuf;
use std::time::Duration;

/// A descriptor to pass to the launcher with a message. Our end, if there is one, is kept under the task's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassedFd {
    /// Read end of a new pipe; we write to the other (`Write`).
    Input {
        /// Task.
        token: u64,
    },
    /// Write end of a new pipe; we read from the other (`Read`).
    Output {
        /// Task.
        token: u64,
        /// Which stream.
        stream: Stream,
    },
    /// Slave of a new pseudo terminal; its master is read as standard output and written as standard input.
    Terminal {
        /// Task.
        token: u64,
        /// Rows.
        rows: u16,
        /// Columns.
        cols: u16,
    },
    /// A descriptor that the step's `srun` handed over. This process neither reads, writes nor waits on it.
    Handed {
        /// Step.
        step: StepId,
        /// 0, 1 or 2.
        fd: u8,
    },
    /// One end of a new socket; requests come from the other (`Pmi`).
    Pmi {
        /// Task.
        token: u64,
    },
    /// The open `cgroup.procs` files of the step's own cgroup: one descriptor, or one for each hierarchy (v1). Always last.
    Cgroup {
        /// Step.
        step: StepId,
    },
}

/// A running task that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookedAt {
    /// Task.
    pub token: u64,
    /// Its step.
    pub step: StepId,
    /// Its rank there.
    pub rank: u32,
    /// Its first process; `None`: the launcher has not told it.
    pub pid: Option<u32>,
    /// What is seen goes into the step's time series.
    pub recorded: bool,
}

/// Timers of the shepherd: one of each, whatever the number of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShepherdTimer {
    /// Streams of ended tasks that are still open are closed.
    Linger,
    /// KillWait of steps that were told to end is over.
    Kill,
    /// Everything was killed: tasks whose end was not reported are reported as killed.
    LastEnds,
    /// The launcher was told to finish and has not ended.
    Leave,
    /// Epilogs of tasks run for too long.
    Epilog,
    /// It is time to look at what running tasks use.
    Look,
    /// Samples of the node are due, for time series.
    Series,
}

impl ShepherdTimer {
    /// Name for the runtime's timers.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Linger => "linger",
            Self::Kill => "kill",
            Self::LastEnds => "last-ends",
            Self::Leave => "leave",
            Self::Epilog => "epilog",
            Self::Look => "look",
            Self::Series => "series",
        }
    }
}

/// The shepherd's inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum ShepherdInput {
    /// A new launcher runs and takes messages. Nothing of an earlier one is left.
    LauncherUp {
        /// It is the first launcher of this run.
        first: bool,
    },
    /// A launcher that outlived its `stepd` takes messages.
    Adopted {
        /// Its running tasks.
        tasks: Vec<TaskHeld>,
        /// Its ended tasks, oldest first.
        ended: Vec<TaskOver>,
        /// It knows every task of the run.
        complete: bool,
    },
    /// The launcher ended, or could not be started.
    LauncherDown {
        /// Description.
        detail: String,
        /// The kernel killed it, or a process beside it, for lack of memory.
        for_memory: bool,
    },
    /// From the launcher.
    Launcher(FromLauncher),
    /// From the step manager. `EndJob` also from the node's agent.
    Manager(StepMgrToShepherd),
    /// The connection to the step manager is gone. The run ends here.
    ManagerLost,
    /// Answer to `Prepare`: the script's path, if there was one.
    Prepared {
        /// Step.
        step: StepId,
        /// The script's path, or the failure, in words for the user.
        result: Result<Option<String>, String>,
    },
    /// Answer to `Sample`.
    Sampled {
        /// Step.
        step: StepId,
        /// Correlation.
        query: u64,
        /// Its tasks.
        tasks: Vec<TaskSample>,
    },
    /// Answer to `Look`.
    Looked {
        /// Tasks, and what each uses.
        seen: Vec<(u64, TaskSample)>,
    },
    /// Answer to `ReadMeter`.
    MeterRead {
        /// Task.
        token: u64,
        /// What the node used since the meter of the task's step was started, joules.
        joules: u64,
    },
    /// Answer to `Read`: at least one byte; empty at the end of the stream or after an error.
    Data {
        /// Task.
        token: u64,
        /// The stream; a terminal's is standard output.
        stream: Stream,
        /// Bytes.
        data: ByteBuf,
    },
    /// Answer to `Write`: all was written, or (false) the task reads no more.
    Written {
        /// Task.
        token: u64,
        /// All was written.
        taken: bool,
    },
    /// A task asks for something over PMI. It asks for nothing more before it has its answer.
    Pmi {
        /// Task.
        token: u64,
        /// What.
        asked: Asked,
    },
    /// Answer to `AskOom`.
    Oom {
        /// Task.
        token: u64,
        /// The cgroup counted an out-of-memory kill.
        killed: bool,
    },
    /// Answer to `Sweep`: no process is left in the step's cgroup, which is removed.
    Swept {
        /// Step.
        step: StepId,
    },
    /// Answer to `SweepJob`: no process of the job is left.
    JobSwept,
    /// A timer ran out.
    Timer(ShepherdTimer),
}

/// The shepherd's effects.
#[derive(Clone, Debug, PartialEq)]
pub enum ShepherdEffect {
    /// To the step manager.
    ToManager(ShepherdToStepMgr),
    /// To the launcher, with these descriptors, which are created and passed in order.
    ToLauncher {
        /// Message.
        message: ToLauncher,
        /// Descriptors.
        passed: Vec<PassedFd>,
    },
    /// Get a launcher: that of an earlier `stepd` of the run, if it is alive, or else a new one after everything of the run's
    /// tasks is killed. Answered by `Adopted`, `LauncherUp` or `LauncherDown`.
    StartLauncher,
    /// Before a step's first task: write its script where the user can read and execute it, and make its cgroup. Answered by
    /// `Prepared`.
    Prepare {
        /// Step.
        step: StepId,
        /// Text of the script.
        script: Option<ByteBuf>,
        /// Limits of a cgroup of its own.
        cgroup: Option<StepNodeShare>,
    },
    /// Before a step's first task: set the frequency of these CPUs of the machine for it, as far as that can be done. Not answered.
    SetFrequency {
        /// Step.
        step: StepId,
        /// CPUs of the machine.
        cpus: Vec<u32>,
        /// What.
        asked: CpuFreq,
    },
    /// Before a step's first task: set the clocks of these GPUs of the machine for it, as far as that can be done. Not answered.
    SetGpuClocks {
        /// Step.
        step: StepId,
        /// Numbers of their files (`/dev/nvidia2`).
        gpus: Vec<u32>,
        /// What.
        asked: GpuFreq,
    },
    /// Its GPUs have again what they had. Not answered.
    PutGpuClocksBack {
        /// Step.
        step: StepId,
    },
    /// Its CPUs have again what they had. Not answered.
    PutFrequencyBack {
        /// Step.
        step: StepId,
    },
    /// Read once from a task's stream when there is data; at most one read of a stream is requested at a time.
    Read {
        /// Task.
        token: u64,
        /// Which stream.
        stream: Stream,
    },
    /// Write all of this to a task's input; one at a time.
    Write {
        /// Task.
        token: u64,
        /// Bytes.
        data: ByteBuf,
    },
    /// End of a task's input.
    CloseInput {
        /// Task.
        token: u64,
    },
    /// Close all our ends of a task's streams. Answers in flight may still come.
    Close {
        /// Task.
        token: u64,
    },
    /// New size of a task's terminal.
    Resize {
        /// Task.
        token: u64,
        /// Rows.
        rows: u16,
        /// Columns.
        cols: u16,
    },
    /// An answer over PMI.
    PmiAnswer {
        /// Task.
        token: u64,
        /// Bytes.
        data: Vec<u8>,
    },
    /// What do these tasks use? Answered by `Sampled`.
    Sample {
        /// Step.
        step: StepId,
        /// Correlation.
        query: u64,
        /// Rank and first process of each; `None`: the launcher has not told it.
        tasks: Vec<(u32, Option<u32>)>,
    },
    /// What do these tasks use, of which the kernel tells not everything at their end? Answered by `Looked`.
    Look {
        /// Tasks.
        tasks: Vec<LookedAt>,
    },
    /// Before a step's first task: from here on, the energy of the node is the step's too. Not answered.
    StartMeter {
        /// Step.
        step: StepId,
    },
    /// After a step's last task here: how much energy was that? Answered by `MeterRead`.
    ReadMeter {
        /// Task.
        token: u64,
        /// Its step.
        step: StepId,
    },
    /// Add a sample of the node to the step's time series. The first one is what later ones are compared with. Not answered.
    Record {
        /// Step.
        step: StepId,
        /// Which; never those of tasks.
        series: SeriesSet,
        /// Its last task here has ended.
        last: bool,
    },
    /// A task of which a time series is recorded has ended. Not answered.
    RecordEnd {
        /// Step.
        step: StepId,
        /// Its rank there.
        rank: u32,
        /// What it used.
        usage: TaskUsage,
    },
    /// Did the cgroup (the step's own, or the job's) count an out-of-memory kill? Answered by `Oom`.
    AskOom {
        /// Task.
        token: u64,
        /// Step with a cgroup of its own.
        step: Option<StepId>,
    },
    /// SIGKILL to what is left of these tasks' process groups: only to the job's processes, since the numbers come from the
    /// launcher. Not answered.
    KillGroups {
        /// Process groups (the tasks' first pids).
        pids: Vec<u32>,
    },
    /// A signal to every process of the run's tasks here, whatever groups and sessions they made, but not to the launcher. A
    /// later signal replaces one that is in progress. Not answered.
    SignalRun {
        /// Number.
        signal: i32,
    },
    /// Kill everything in a step's own cgroup and remove it. Answered by `Swept`.
    Sweep {
        /// Step.
        step: StepId,
    },
    /// Kill everything of the job here, including children that became daemons, until only the launcher is left, which reports
    /// the ends; if necessary it is killed too. Answered by `JobSwept`, which counts only while the job ends.
    SweepJob,
    /// Set a timer, replacing one of the same name.
    SetTimer {
        /// Which.
        timer: ShepherdTimer,
        /// From now.
        after: Duration,
    },
    /// Tell an operator.
    Log {
        /// Text.
        text: String,
    },
    /// Nothing of the job is left here (`Gone` was sent). A `stepd` without a step manager reports it to its agent.
    Finished,
}

/// Mailbox of the shepherd's actor.
#[derive(Debug)]
pub struct ShepherdMsg(pub ShepherdInput);

impl Message for ShepherdMsg {
    fn name(&self) -> &'static str {
        match &self.0 {
            ShepherdInput::LauncherUp { .. } => "LauncherUp",
            ShepherdInput::Adopted { .. } => "Adopted",
            ShepherdInput::LauncherDown { .. } => "LauncherDown",
            ShepherdInput::Launcher(FromLauncher::Spawned { .. }) => "Spawned",
            ShepherdInput::Launcher(FromLauncher::SpawnFailed { .. }) => "SpawnFailed",
            ShepherdInput::Launcher(FromLauncher::Exited { .. }) => "Exited",
            ShepherdInput::Launcher(FromLauncher::Survivors { .. }) => "Survivors",
            ShepherdInput::Launcher(FromLauncher::NotStarted { .. }) => "NotStarted",
            ShepherdInput::Launcher(FromLauncher::Held { .. }) => "Held",
            ShepherdInput::Launcher(FromLauncher::PackFailed { .. }) => "PackFailed",
            ShepherdInput::Manager(message) => manager_message_name(message),
            ShepherdInput::ManagerLost => "ManagerLost",
            ShepherdInput::Prepared { .. } => "Prepared",
            ShepherdInput::Data { .. } => "Data",
            ShepherdInput::Written { .. } => "Written",
            ShepherdInput::Pmi { .. } => "Pmi",
            ShepherdInput::Oom { .. } => "Oom",
            ShepherdInput::Swept { .. } => "Swept",
            ShepherdInput::JobSwept => "JobSwept",
            ShepherdInput::Sampled { .. } => "Sampled",
            ShepherdInput::Looked { .. } => "Looked",
            ShepherdInput::MeterRead { .. } => "MeterRead",
            ShepherdInput::Timer(_) => "Timer",
        }
    }
}

/// Name of a step manager's message, for traces.
pub const fn manager_message_name(message: &StepMgrToShepherd) -> &'static str {
    match message {
        StepMgrToShepherd::Welcome => "Welcome",
        StepMgrToShepherd::Keep { .. } => "Keep",
        StepMgrToShepherd::Launch(_) => "Launch",
        StepMgrToShepherd::Stdin { .. } => "Stdin",
        StepMgrToShepherd::Signal { .. } => "Signal",
        StepMgrToShepherd::Terminate { .. } => "Terminate",
        StepMgrToShepherd::Kill { .. } => "Kill",
        StepMgrToShepherd::Resize { .. } => "Resize",
        StepMgrToShepherd::EndJob => "EndJob",
        StepMgrToShepherd::Credit { .. } => "Credit",
        StepMgrToShepherd::Note { .. } => "Note",
        StepMgrToShepherd::Sample { .. } => "Sample",
        StepMgrToShepherd::PmiFenced { .. } => "PmiFenced",
        StepMgrToShepherd::ListTasks => "ListTasks",
    }
}
