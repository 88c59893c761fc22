//! The values of all options after script lines, environment and command line were combined, before they are checked against each
//! other. [`job_spec`](super::job_spec) and [`step_spec`](super::step_spec) turn them into a job or step.

use super::minibatch::{Again, EachOption, ListFormat};
use garrick_model::{
    batch::{FailBound, RetryOn, StepCgroup},
    gpu_freq::GpuFreq,
    gres::{GpuBind, GresBinding, GresCount},
    ids::JobId,
    mail::Mail,
    messages::command::JobSelector,
    node_sizes::NodeSizes,
    profile::Profiling,
    refusal::Refusal,
    resources::{MemoryMib, MemoryRequest},
    spec::{
        ArraySpec, CpuBind, Dependencies, Distribution, Mpi, NodeCount, OpenMode, Sharing, SignalWarning, TaskScripts,
        TopologyRequest, WithinNode,
    },
    time::{TimeLimit, Timestamp},
};
use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    time::Duration,
};

/// Where an option came from; a later source goes over an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A default that a filter of the site sets.
    Filter,
    /// An `#SBATCH` or `#SRUN` line.
    Script,
    /// An environment variable.
    Environment,
    /// The command line.
    CommandLine,
}

/// A value and where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    /// Value.
    pub value: T,
    /// Source.
    pub source: Source,
}

/// An option with the argument it was given.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Its long name.
    pub name: &'static str,
    /// Its argument, if there was one.
    pub value: Option<&'a OsStr>,
    /// From where.
    pub source: Source,
    /// The environment variable that it stands in.
    pub variable: Option<&'static str>,
    /// The time from which `now+1hour` counts.
    pub now: Timestamp,
}

impl<'a> Given<'a> {
    /// The argument as text; `""` when there was none.
    pub fn text(&self) -> Result<&'a str, OptionError> {
        self.value.map_or(Ok(""), |v| v.to_str().ok_or_else(|| self.invalid()))
    }

    /// The argument, to be kept.
    pub fn string(&self) -> Result<Option<String>, OptionError> {
        self.text().map(|t| Some(t.to_owned()))
    }

    /// A whole number of at least `least`.
    pub fn number(&self, least: u32) -> Result<u32, OptionError> {
        self.number_in(self.text()?, least, &format!("--{}", self.name))
    }

    /// "Invalid numeric value "x" for --ntasks."
    pub fn no_number(&self) -> OptionError {
        let text = self.value.map(OsStr::to_string_lossy).unwrap_or_default();
        OptionError::Declined(format!("Invalid numeric value \"{text}\" for --{}.", self.name))
    }

    /// A part of the argument, called `what`, as a whole number of at least `least`.
    pub fn number_in(&self, text: &str, least: u32, what: &str) -> Result<u32, OptionError> {
        let error = || OptionError::Declined(format!("Invalid numeric value \"{text}\" for {what}."));
        let number: i64 = text.trim().parse().map_err(|_| error())?;
        // Slurm's own numbers have a sign.
        if number > i64::from(i32::MAX) {
            return Err(OptionError::Declined(format!("Numeric argument ({text}) too large for {what}.")));
        }
        u32::try_from(number).ok().filter(|n| *n >= least).ok_or_else(error)
    }

    /// What a parser made of the argument, or the error that it is malformed.
    pub fn checked<T>(&self, value: Option<T>) -> Result<T, OptionError> {
        value.ok_or_else(|| self.invalid())
    }

    /// A value, remembered with its source.
    pub fn sourced<T>(&self, value: T) -> Option<Sourced<T>> {
        Some(Sourced { value, source: self.source })
    }

    /// "Invalid --time specification".
    pub const fn invalid(&self) -> OptionError {
        OptionError::Invalid { name: self.name }
    }

    /// A value of the option that is known but not built.
    pub fn not_supported(&self) -> OptionError {
        let value = self.value.map(|v| format!("={}", v.to_string_lossy())).unwrap_or_default();
        OptionError::NotSupported(format!("--{}{value}", self.name))
    }
}

/// An option that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The argument is malformed.
    #[error("Invalid --{name} specification")]
    Invalid {
        /// Long name.
        name: &'static str,
    },
    /// Slurm has it, Garrick not yet.
    #[error("{0} is not supported yet")]
    NotSupported(String),
    /// Something else about what was typed.
    #[error("{0}")]
    Text(String),
    /// The same, where Slurm ends with 1: a number that is none, for one.
    #[error("{0}")]
    Declined(String),
    /// The same, called fatal.
    #[error("{0}")]
    Fatal(String),
    /// With a line before it that says more of what is wrong.
    #[error("{error}")]
    After {
        /// That line.
        line: FirstLine,
        /// What follows from it.
        error: Box<OptionError>,
    },
    /// What the controller would decline, seen early. Reported as its refusal would be.
    #[error("{0}")]
    Refused(Refusal),
    /// A file that an option names cannot be read.
    #[error("{what} {path}: {cause}")]
    File {
        /// What was tried.
        what: &'static str,
        /// Path.
        path: String,
        /// Why not.
        cause: String,
    },
}

/// A line before an error of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstLine {
    /// An error as others.
    Error(String),
    /// Without the command's name.
    Bare(String),
}

impl OptionError {
    /// With an error before it.
    pub fn after(self, line: String) -> Self {
        Self::After { line: FirstLine::Error(line), error: Box::new(self) }
    }

    /// Slurm ends with 255 for what it cannot parse, with 1 for what it parses but declines.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Invalid { .. } | Self::Text(_) => 255,
            Self::NotSupported(_) | Self::Refused(_) | Self::File { .. } | Self::Declined(_) | Self::Fatal(_) => 1,
            Self::After { error, .. } => error.exit_code(),
        }
    }
}

/// What memory options say, for [`Typed::choose`].
pub const MEMORY: &str = "memory";
/// How many CPUs a task has.
pub const CPUS_OF_TASK: &str = "CPUs of a task";
/// Who else may be on the nodes.
pub const SHARING: &str = "sharing";

/// A text to print instead of doing anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// `--help`
    Full,
    /// `--usage`
    Usage,
    /// `-V`
    Version,
    /// `--mpi=list`
    MpiList,
    /// `--hint=help`
    Hint,
    /// `--cpu-bind=help`
    CpuBind,
    /// `--gres=help`
    Gres,
}

/// What was typed about generic resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedGres {
    /// `--gres`; none inside: `none`
    pub per_node: Option<Sourced<Option<Vec<GresCount>>>>,
    /// `--gpus-per-node`
    pub gpus_per_node: Option<Sourced<Vec<GresCount>>>,
    /// `-G`
    pub gpus: Option<Sourced<Vec<GresCount>>>,
    /// `--gpus-per-task`
    pub gpus_per_task: Option<Sourced<Vec<GresCount>>>,
    /// `--gpus-per-socket`
    pub gpus_per_socket: Option<Sourced<Vec<GresCount>>>,
    /// `--gres-flags`
    pub binding: Option<Sourced<GresBinding>>,
    /// `--tres-per-task`
    pub tres_per_task: Option<Sourced<Vec<GresCount>>>,
    /// `--cpus-per-gpu`
    pub cpus_per_gpu: Option<Sourced<u32>>,
    /// `--mem-per-gpu`
    pub mem_per_gpu: Option<Sourced<MemoryMib>>,
    /// `--ntasks-per-gpu`
    pub ntasks_per_gpu: Option<Sourced<u32>>,
    /// `--gpu-bind`
    pub gpu_bind: Option<GpuBind>,
}

/// `--hint`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// `compute_bound`: all cores of a socket, one thread of each.
    ComputeBound,
    /// `memory_bound`: one core of a socket, one thread of it.
    MemoryBound,
    /// `multithread`: all threads.
    Multithread,
    /// `nomultithread`: one thread of each core.
    NoMultithread,
}

impl Hint {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ComputeBound, Self::MemoryBound, Self::Multithread, Self::NoMultithread];

    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ComputeBound => "compute_bound",
            Self::MemoryBound => "memory_bound",
            Self::Multithread => "multithread",
            Self::NoMultithread => "nomultithread",
        }
    }
}

/// What was typed about sending the program to the nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedBcast {
    /// `--bcast`: its argument, empty where there was none; `None`: it is not sent
    pub dest: Option<String>,
    /// `--bcast-exclude`
    pub exclude: Option<String>,
    /// `--compress`, with its argument where there was one
    pub compress: Option<Option<String>>,
    /// `--send-libs`
    pub send_libs: Option<bool>,
}

/// What was typed about sockets, cores, threads and how tasks go over them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedLayout {
    /// `--sockets-per-node`
    pub sockets_per_node: Option<Sourced<u32>>,
    /// `--cores-per-socket`
    pub cores_per_socket: Option<Sourced<u32>>,
    /// `--threads-per-core`
    pub threads_per_core: Option<Sourced<u32>>,
    /// `--ntasks-per-socket`
    pub tasks_per_socket: Option<Sourced<u32>>,
    /// `--ntasks-per-core`
    pub tasks_per_core: Option<Sourced<u32>>,
    /// `--core-spec`
    pub core_spec: Option<Sourced<u32>>,
    /// `--thread-spec`
    pub thread_spec: Option<Sourced<u32>>,
    /// Threads that `-B S:C:T` asks for on each node.
    pub threads_of_node: Option<u32>,
    /// `--hint`
    pub hint: Option<Sourced<Hint>>,
    /// `-O`
    pub overcommit: bool,
    /// `--spread-job`
    pub spread: bool,
    /// `--use-min-nodes`
    pub fewest_nodes: bool,
}

/// What was typed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Typed {
    /// `--help`, `--usage`, `-V`, `--mpi=list`
    pub help: Option<Help>,
    /// Things to say once about options that do nothing here.
    pub notices: Vec<&'static str>,
    /// Of options that say the same thing in different ways, those that were given: what they say, and by which option.
    pub chosen: Vec<(&'static str, Sourced<&'static str>)>,
    /// `--conf`
    pub conf: Option<PathBuf>,
    /// `-Q`
    pub quiet: bool,
    /// Number of `-v`.
    pub verbose: u8,

    /// `-J`
    pub job_name: Option<String>,
    /// `-A`
    pub account: Option<String>,
    /// `-q`
    pub qos: Option<String>,
    /// `--comment`
    pub comment: Option<String>,
    /// `--mail-type`, `--mail-user`.
    pub mail: Mail,
    /// `--wckey`
    pub wckey: Option<String>,
    /// `-p`
    pub partitions: Vec<String>,

    /// `-N`
    pub nodes: Option<Sourced<NodeCount>>,
    /// `-N` with a list or a step
    pub node_sizes: NodeSizes,
    /// `-n`
    pub ntasks: Option<Sourced<u32>>,
    /// `--ntasks-per-node`
    pub ntasks_per_node: Option<Sourced<u32>>,
    /// `-c`
    pub cpus_per_task: Option<u32>,
    /// `--mincpus`
    pub mincpus: Option<u32>,
    /// `--mem`, `--mem-per-cpu`: the last one
    pub memory: Option<Sourced<MemoryRequest>>,
    /// `--tmp`
    pub tmp_disk_mib: u64,

    /// `-C`
    pub constraint: Option<String>,
    /// `--prefer`
    pub prefer: Option<String>,
    /// `--batch`
    pub batch_features: Option<String>,
    /// `--reboot`
    pub reboot: bool,
    /// `--delay-boot`
    pub delay_boot_secs: Option<u64>,
    /// `-L`
    pub licenses: Option<String>,
    /// `--resources`
    pub resources: Option<String>,
    /// `--reservation`
    pub reservations: Vec<String>,
    /// `--extra`
    pub extra: Option<String>,
    /// `--gres`, `--gpus` and their relatives
    pub gres: TypedGres,
    /// `-w`, as typed
    pub nodelist: Option<String>,
    /// `-F`, a file
    pub nodefile: Option<String>,
    /// SLURM_HOSTFILE, a file
    pub hostfile: Option<String>,
    /// `-x`, as typed
    pub exclude: Option<String>,
    /// `--exclusive`, `--oversubscribe`
    pub sharing: Sharing,
    /// `--mcs-label`
    pub mcs_label: Option<String>,
    /// `--contiguous`
    pub contiguous: bool,
    /// `--switches`, `--segment` and its relatives, `--exclusive=topo`
    pub topology: TopologyRequest,
    /// `-B` and its relatives, `--hint`, `-O`, `--spread-job`, `--use-min-nodes`
    pub layout: TypedLayout,
    /// `-m`
    pub distribution: Option<Distribution>,
    /// The same within a node.
    pub within: WithinNode,
    /// `--cpu-bind`
    pub cpu_bind: CpuBind,
    /// `--cpu-bind=verbose`
    pub says_cpu_bind: bool,
    /// `-r`
    pub relative: Option<u32>,
    /// `--exact`
    pub exact: bool,
    /// `--overlap`, `--external-launcher`
    pub overlap: bool,

    /// `-t`
    pub time_limit: Option<TimeLimit>,
    /// `--time-min`
    pub time_min: Option<TimeLimit>,
    /// `-b`
    pub begin: Option<Timestamp>,
    /// `--deadline`
    pub deadline: Option<Timestamp>,
    /// `-H`
    pub hold: bool,
    /// `--priority`
    pub priority: Option<u32>,
    /// `--nice`
    pub nice: i32,
    /// `-d`
    pub dependencies: Option<Dependencies>,
    /// `-a`
    pub array: Option<ArraySpec>,
    /// `-I`, seconds
    pub immediate_secs: Option<u32>,
    /// `--requeue`, `--no-requeue`
    pub requeue: Option<bool>,
    /// `--requeue=expedite`
    pub expedite: bool,
    /// `-k`
    pub no_kill: bool,
    /// `--kill-on-invalid-dep`
    pub kill_on_invalid_dep: Option<bool>,
    /// `--signal`
    pub signal: Option<SignalWarning>,

    /// `-i`
    pub input: Option<String>,
    /// `-o`
    pub output: Option<String>,
    /// `-e`
    pub error: Option<String>,
    /// `--open-mode`
    pub open_mode: OpenMode,
    /// `-D`
    pub chdir: Option<String>,
    /// `--export`, as typed
    pub export: Option<String>,
    /// `--get-user-env`
    pub user_env: bool,
    /// `--export-file`, as typed
    pub export_file: Option<String>,
    /// `--propagate`, as typed
    pub propagate: Option<String>,
    /// `-l`
    pub label: bool,
    /// `-u`
    pub unbuffered: bool,
    /// `--pty`
    pub pty: bool,

    /// `-M`: the names
    pub clusters: Vec<String>,
    /// `--parsable`
    pub parsable: bool,
    /// `sbatch -W`
    pub wait: bool,
    /// `--test-only`
    pub test_only: bool,
    /// `--wrap`
    pub wrap: Option<OsString>,
    /// `--uid`, as typed
    pub uid: Option<String>,
    /// `--gid`, as typed
    pub gid: Option<String>,
    /// `--no-shell`
    pub no_shell: bool,
    /// `salloc -K`: the signal to send
    pub kill_command: Option<i32>,
    /// `--bell`
    pub bell: bool,

    /// `--het-group`
    pub het_group: Option<String>,
    /// Leader of the heterogeneous job of whose components one was named.
    pub het_leader: Option<JobId>,
    /// `--jobid`, where it names a job by a run, or as an element of an array.
    pub job_named: Option<Sourced<JobSelector>>,
    /// `--jobid`
    pub jobid: Option<Sourced<JobId>>,
    /// `srun --async`
    pub asynchronous: bool,
    /// `srun --batch`
    pub batch: bool,
    /// `--multi-prog`
    pub multi_prog: bool,
    /// `srun --prolog`
    pub prolog: Option<OsString>,
    /// `srun --epilog`
    pub epilog: Option<OsString>,
    /// `srun --bcast` and what belongs to it
    pub bcast: TypedBcast,
    /// `--task-prolog` and `--task-epilog`
    pub task_scripts: TaskScripts,
    /// `--mpi`
    pub mpi: Option<Mpi>,
    /// `--ignore-signals`
    pub ignored_signals: Vec<i32>,
    /// `--preserve-env`
    pub preserve_env: bool,
    /// `--cpu-freq`, as typed: the site has a say in what it means
    pub cpu_freq: Option<String>,
    /// `--gpu-freq`
    pub gpu_freq: Option<GpuFreq>,
    /// `--acctg-freq`: seconds between looks at what tasks use
    pub sample_secs: Option<u32>,
    /// `--profile`, and `--acctg-freq` of what is not tasks
    pub profiling: Profiling,
    /// `--oom-kill-step`
    pub oom_kill_step: Option<bool>,
    /// `--whole`
    pub whole: bool,
    /// `srun -K`
    pub kill_on_bad_exit: Option<bool>,
    /// `--wait-for-children`
    pub wait_for_children: bool,
    /// `srun -W`, seconds; 0: without end
    pub wait_secs: Option<u32>,
    /// `-X`
    pub disable_status: bool,
    /// `--quit-on-interrupt`
    pub quit_on_interrupt: bool,

    /// `srun --from-file`
    pub from_file: Option<OsString>,
    /// `--graph`
    pub graph: Option<OsString>,
    /// `--resume-from`: the jobs
    pub resume_from: Option<String>,
    /// `srun --rerun-failed` and `--resume`: which steps of what
    pub again: Option<(Again, String)>,
    /// `--label` in a line of a list
    pub line_label: Option<String>,
    /// `srun --format`
    pub list_format: Option<ListFormat>,
    /// `srun --each` and `--each-csv`, in their order
    pub each: Vec<EachOption>,
    /// `srun --zip`
    pub zip: bool,
    /// `srun -d`, as typed: about jobs when `srun` makes its own, else about steps
    pub dependency: Option<Sourced<String>>,
    /// `--step-priority`
    pub step_priority: i32,
    /// `--retries`
    pub retries: Option<u32>,
    /// `--retry-delay`, seconds
    pub retry_delay_secs: u32,
    /// `--retry-on`
    pub retry_on: Vec<RetryOn>,
    /// `--max-fails`, and whether steps that run are ended too
    pub max_fails: Option<(FailBound, bool)>,
    /// `--output-pack`, a pattern
    pub output_pack: Option<String>,
    /// `--step-cgroup`
    pub step_cgroup: StepCgroup,

    /// `swait --timeout`
    pub timeout: Option<Duration>,
    /// `swait --step`, as typed
    pub steps: Option<String>,
    /// `swait --any`
    pub any: bool,
    /// `swait --exit-status`
    pub exit_status: bool,
}

impl Typed {
    /// Keeps a notice, once.
    pub fn notice(&mut self, text: &'static str) {
        if !self.notices.contains(&text) {
            self.notices.push(text);
        }
    }

    /// Keeps that this option says it. Two options that say the same differently exclude each other in one place; in the
    /// environment both may stand for what a job has.
    pub fn choose(&mut self, what: &'static str, given: &Given<'_>) -> Result<(), OptionError> {
        let clashes = |other: &Sourced<&str>| other.source == given.source && other.value != given.name;
        let other = self.chosen.iter().find(|(known, other)| *known == what && clashes(other));
        if let Some((_, other)) = other.filter(|_| given.source != Source::Environment) {
            let both = match what {
                MEMORY => "--mem, --mem-per-cpu, and --mem-per-gpu".to_owned(),
                _ => format!("--{} and --{}", other.value, given.name),
            };
            let text = format!("{both} are mutually exclusive.");
            return Err(if what == MEMORY { OptionError::Fatal(text) } else { OptionError::Text(text) });
        }
        self.chosen.push((what, Sourced { value: given.name, source: given.source }));
        Ok(())
    }

    /// The last place where another option than that one says it.
    pub fn said_otherwise(&self, what: &'static str, than: &str) -> Option<Source> {
        let others = self.chosen.iter().filter(|(known, by)| *known == what && by.value != than);
        others.map(|(_, by)| by.source).max()
    }
}
