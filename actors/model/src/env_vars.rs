//! Every environment variable that Garrick reads or writes, in one list. Those that only stand for options of commands
//! (`SBATCH_PARTITION`, `SQUEUE_FORMAT`) are in [`inputs`].

pub mod inputs;
pub mod outputs;

use crate::spec::SiteOfSrun;

/// Makes a constant of each variable, and the list of all with what is said of them.
macro_rules! variables {
    ($($(#[doc = $doc:literal])+ $(#[allow($lint:ident)])? pub const $name:ident: &str = $text:literal;)+) => {
        $($(#[doc = $doc])+ $(#[allow($lint)])? pub const $name: &str = $text;)+

        /// Every variable of this module, each with the lines that say what it is.
        pub const DESCRIBED: &[(&str, &[&str])] = &[$(($text, &[$($doc),+])),+];
    };
}

variables! {
/// Path of `slurm.conf`.
pub const SLURM_CONF: &str = "SLURM_CONF";
/// Where `scontrol write config` writes to, with the date behind it.
pub const SLURM_CONF_OUT: &str = "SLURM_CONF_OUT";
/// A token (`scontrol token`): commands act as its user.
pub const SLURM_JWT: &str = "SLURM_JWT";
/// Home of an embedded cluster.
pub const GARRICK_HOME: &str = "GARRICK_HOME";
/// What the light `srun` had begun, for the whole command that it becomes; never in a task.
pub const GARRICK_LIGHT: &str = "GARRICK_LIGHT";
/// `whole`: `srun` is the whole command from its start.
pub const GARRICK_SRUN: &str = "GARRICK_SRUN";
/// `SrunProlog` of the site, for each `srun` in a job: set in every task where the site has one.
pub const GARRICK_SRUN_PROLOG: &str = "GARRICK_SRUN_PROLOG";
/// `SrunEpilog` of the site, as above.
pub const GARRICK_SRUN_EPILOG: &str = "GARRICK_SRUN_EPILOG";
/// The site has `CliFilterPlugins`, which `slurm.conf` names: set in every task where it has.
pub const GARRICK_CLI_FILTER: &str = "GARRICK_CLI_FILTER";
/// `CpuFreqDef` and `CpuFreqGovernors` of the site, for each `srun` in a job: set in every task where they are not the usual ones.
pub const GARRICK_CPU_FREQ: &str = "GARRICK_CPU_FREQ";
/// For tests of a node: the folder that stands for `/sys/devices/system/cpu` where frequencies of CPUs are set.
pub const GARRICK_CPU_FOLDER: &str = "GARRICK_CPU_FOLDER";
/// For tests of a node: the folder that stands for `/sys/class/powercap` where energy is counted.
pub const GARRICK_POWERCAP_FOLDER: &str = "GARRICK_POWERCAP_FOLDER";
/// For tests of a node: the folder that stands for `/sys/class/hwmon` where power is shown.
pub const GARRICK_HWMON_FOLDER: &str = "GARRICK_HWMON_FOLDER";
/// `--mpi` of each `srun`: set in every task where the site has `MpiDefault`.
pub const SLURM_MPI_TYPE: &str = "SLURM_MPI_TYPE";
/// Door of the job's step manager or of the shepherd that relays to it, on this host: set in every task.
pub const GARRICK_STEPD_DOOR: &str = "GARRICK_STEPD_DOOR";
/// Whose door that is, where `SLURM_JOB_ID` names another job: in other components of a heterogeneous job than its leader.
pub const GARRICK_STEPD_JOB: &str = "GARRICK_STEPD_JOB";
/// Node name of the batch host, where the job's step manager is: set in every task and for the command of `salloc`.
pub const SLURM_STEPMGR: &str = "SLURM_STEPMGR";
/// QUIC address (`host:port`) of that node's agent, through which commands on other hosts reach the step manager: set for
/// the command of `salloc`.
pub const GARRICK_STEPMGR_ADDRESS: &str = "GARRICK_STEPMGR_ADDRESS";
/// The user's home folder.
pub const HOME: &str = "HOME";
/// Where the user keeps programs' state, instead of `~/.local/state`.
pub const XDG_STATE_HOME: &str = "XDG_STATE_HOME";

// Variables that every command reads.
/// Same as `--clusters`; other clusters are not supported yet.
pub const SLURM_CLUSTERS: &str = "SLURM_CLUSTERS";
/// Form of times printed by commands: `standard`, `relative` or a format of `strftime`.
pub const SLURM_TIME_FORMAT: &str = "SLURM_TIME_FORMAT";
/// Most characters of a job array's indices that `squeue` and `scontrol` print; default 64, 0 for all.
pub const SLURM_BITSTR_LEN: &str = "SLURM_BITSTR_LEN";
/// Exit code of `srun`, `sbatch` and `salloc` for errors of Slurm instead of 1.
pub const SLURM_EXIT_ERROR: &str = "SLURM_EXIT_ERROR";
/// Exit code when `--immediate` cannot be met.
pub const SLURM_EXIT_IMMEDIATE: &str = "SLURM_EXIT_IMMEDIATE";
/// Mask for files that a job makes; output too: the mask at submission.
pub const SLURM_UMASK: &str = "SLURM_UMASK";
/// `DebugFlags` of a daemon, in place of those in `slurm.conf`; commands ignore it.
pub const SLURM_DEBUG_FLAGS: &str = "SLURM_DEBUG_FLAGS";
/// Name of the user.
pub const USER: &str = "USER";
/// The user's shell, for `salloc` without a command.
pub const SHELL: &str = "SHELL";
/// Where commands look for programs and scripts.
pub const PATH: &str = "PATH";
/// Zone of the times that commands print.
pub const TZ: &str = "TZ";
/// Working directory with its symbolic links, where it is right.
pub const PWD: &str = "PWD";
/// Folder for temporary files, set in every task unless the user set it.
pub const TMPDIR: &str = "TMPDIR";

// Set for the job: batch script, tasks, and the command of `salloc`.
/// Job id.
pub const SLURM_JOB_ID: &str = "SLURM_JOB_ID";
/// Same as SLURM_JOB_ID.
pub const SLURM_JOBID: &str = "SLURM_JOBID";
/// Name of the job; input of `salloc`/`srun` for `--job-name`.
pub const SLURM_JOB_NAME: &str = "SLURM_JOB_NAME";
/// Name of the job's owner.
pub const SLURM_JOB_USER: &str = "SLURM_JOB_USER";
/// Number of the job's owner.
pub const SLURM_JOB_UID: &str = "SLURM_JOB_UID";
/// Group of the job.
pub const SLURM_JOB_GID: &str = "SLURM_JOB_GID";
/// Account.
pub const SLURM_JOB_ACCOUNT: &str = "SLURM_JOB_ACCOUNT";
/// Partition in which the job runs.
pub const SLURM_JOB_PARTITION: &str = "SLURM_JOB_PARTITION";
/// QOS.
pub const SLURM_JOB_QOS: &str = "SLURM_JOB_QOS";
/// Reservation.
pub const SLURM_JOB_RESERVATION: &str = "SLURM_JOB_RESERVATION";
/// Comment, for prologs and epilogs.
pub const SLURM_JOB_COMMENT: &str = "SLURM_JOB_COMMENT";
/// Nodes of the job, as a host list.
pub const SLURM_JOB_NODELIST: &str = "SLURM_JOB_NODELIST";
/// Same as SLURM_JOB_NODELIST.
pub const SLURM_NODELIST: &str = "SLURM_NODELIST";
/// Number of the job's nodes.
pub const SLURM_JOB_NUM_NODES: &str = "SLURM_JOB_NUM_NODES";
/// Same as SLURM_JOB_NUM_NODES; in a step the step's.
pub const SLURM_NNODES: &str = "SLURM_NNODES";
/// CPUs of the job on each node, `72(x2),36`.
pub const SLURM_JOB_CPUS_PER_NODE: &str = "SLURM_JOB_CPUS_PER_NODE";
/// Start of this run, seconds since the epoch.
pub const SLURM_JOB_START_TIME: &str = "SLURM_JOB_START_TIME";
/// When the limit ends this run, seconds since the epoch.
pub const SLURM_JOB_END_TIME: &str = "SLURM_JOB_END_TIME";
/// `--dependency` as given.
pub const SLURM_JOB_DEPENDENCY: &str = "SLURM_JOB_DEPENDENCY";
/// `YES` for whole nodes, else `NO`.
pub const SLURM_JOB_EXCLUSIVE: &str = "SLURM_JOB_EXCLUSIVE";
/// `YES` where the job shares its resources, else `NO`.
pub const SLURM_JOB_OVERSUBSCRIBE: &str = "SLURM_JOB_OVERSUBSCRIBE";
/// Identity of this run of the job.
pub const SLURM_JOB_SLUID: &str = "SLURM_JOB_SLUID";
/// `--extra` as given.
pub const SLURM_JOB_EXTRA: &str = "SLURM_JOB_EXTRA";
/// Licenses of the job.
pub const SLURM_JOB_LICENSES: &str = "SLURM_JOB_LICENSES";
/// Highest exit code of the job's steps, for epilogs.
pub const SLURM_JOB_DERIVED_EC: &str = "SLURM_JOB_DERIVED_EC";
/// Exit status of the job as `wait(2)` has it, for epilogs.
pub const SLURM_JOB_EXIT_CODE: &str = "SLURM_JOB_EXIT_CODE";
/// `code:signal` of the job, for epilogs.
pub const SLURM_JOB_EXIT_CODE2: &str = "SLURM_JOB_EXIT_CODE2";
/// Error file, for prologs and epilogs.
pub const SLURM_JOB_STDERR: &str = "SLURM_JOB_STDERR";
/// Input file, for prologs and epilogs.
pub const SLURM_JOB_STDIN: &str = "SLURM_JOB_STDIN";
/// Output file, for prologs and epilogs.
pub const SLURM_JOB_STDOUT: &str = "SLURM_JOB_STDOUT";
/// Working directory, for prologs and epilogs.
pub const SLURM_JOB_WORK_DIR: &str = "SLURM_JOB_WORK_DIR";
/// Features that the job asked for, for prologs and epilogs.
pub const SLURM_JOB_CONSTRAINTS: &str = "SLURM_JOB_CONSTRAINTS";
/// Restarts of the job, for prologs and epilogs.
pub const SLURM_JOB_RESTART_COUNT: &str = "SLURM_JOB_RESTART_COUNT";
/// Times the job was requeued; set only when it was.
pub const SLURM_RESTART_COUNT: &str = "SLURM_RESTART_COUNT";
/// Name of the cluster.
pub const SLURM_CLUSTER_NAME: &str = "SLURM_CLUSTER_NAME";
/// Folder in which the job was submitted.
pub const SLURM_SUBMIT_DIR: &str = "SLURM_SUBMIT_DIR";
/// Host on which the job was submitted.
pub const SLURM_SUBMIT_HOST: &str = "SLURM_SUBMIT_HOST";
/// Id of the job array.
pub const SLURM_ARRAY_JOB_ID: &str = "SLURM_ARRAY_JOB_ID";
/// Index of the array task.
pub const SLURM_ARRAY_TASK_ID: &str = "SLURM_ARRAY_TASK_ID";
/// Tasks in the array.
pub const SLURM_ARRAY_TASK_COUNT: &str = "SLURM_ARRAY_TASK_COUNT";
/// Smallest index.
pub const SLURM_ARRAY_TASK_MIN: &str = "SLURM_ARRAY_TASK_MIN";
/// Greatest index.
pub const SLURM_ARRAY_TASK_MAX: &str = "SLURM_ARRAY_TASK_MAX";
/// Step between indices.
pub const SLURM_ARRAY_TASK_STEP: &str = "SLURM_ARRAY_TASK_STEP";
/// Components of a heterogeneous job.
pub const SLURM_HET_SIZE: &str = "SLURM_HET_SIZE";
/// Tasks of the job or step; also an input of `srun`.
pub const SLURM_NTASKS: &str = "SLURM_NTASKS";
/// Same as SLURM_NTASKS.
pub const SLURM_NPROCS: &str = "SLURM_NPROCS";
/// `--ntasks-per-node`, when given.
pub const SLURM_NTASKS_PER_NODE: &str = "SLURM_NTASKS_PER_NODE";
/// `--ntasks-per-core`, when given.
pub const SLURM_NTASKS_PER_CORE: &str = "SLURM_NTASKS_PER_CORE";
/// `--ntasks-per-socket`, when given.
pub const SLURM_NTASKS_PER_SOCKET: &str = "SLURM_NTASKS_PER_SOCKET";
/// `--cpus-per-task`, when given.
pub const SLURM_CPUS_PER_TASK: &str = "SLURM_CPUS_PER_TASK";
/// `--tres-per-task`; `cpu=N` when `--cpus-per-task` was given.
pub const SLURM_TRES_PER_TASK: &str = "SLURM_TRES_PER_TASK";
/// `--gpu-bind`, when given; also an input of `srun`.
pub const SLURM_GPU_BIND: &str = "SLURM_GPU_BIND";
/// `--threads-per-core`, when given.
pub const SLURM_THREADS_PER_CORE: &str = "SLURM_THREADS_PER_CORE";
/// `--mem` in MiB, when given or by default.
pub const SLURM_MEM_PER_NODE: &str = "SLURM_MEM_PER_NODE";
/// `--mem-per-cpu` in MiB, when given or by default.
pub const SLURM_MEM_PER_CPU: &str = "SLURM_MEM_PER_CPU";
/// Tasks on each node, `2(x3),1`.
pub const SLURM_TASKS_PER_NODE: &str = "SLURM_TASKS_PER_NODE";
/// Size of a plane, with `--distribution=plane`; input where the option names none.
pub const SLURM_DIST_PLANESIZE: &str = "SLURM_DIST_PLANESIZE";
/// A file with the node of each task: input, `--distribution=arbitrary`.
pub const SLURM_HOSTFILE: &str = "SLURM_HOSTFILE";
/// `--distribution`, when given.
pub const SLURM_DISTRIBUTION: &str = "SLURM_DISTRIBUTION";
/// 1 with `--overcommit`.
pub const SLURM_OVERCOMMIT: &str = "SLURM_OVERCOMMIT";
/// `--export` as given; also an input of `srun`.
pub const SLURM_EXPORT_ENV: &str = "SLURM_EXPORT_ENV";
/// Nice value at submission.
pub const SLURM_PRIO_PROCESS: &str = "SLURM_PRIO_PROCESS";
/// 1 when one task's running out of memory ends the whole step.
pub const SLURM_OOM_KILL_STEP: &str = "SLURM_OOM_KILL_STEP";
/// Which script a prolog or epilog is: `prolog_slurmd`, `epilog_slurmd`, ...
pub const SLURM_SCRIPT_CONTEXT: &str = "SLURM_SCRIPT_CONTEXT";
/// `--wckey`, for prologs and epilogs.
pub const SLURM_WCKEY: &str = "SLURM_WCKEY";

// Set for every task.
/// Number of the step; -5 in the batch script (see `StepNum::slurm_number`).
pub const SLURM_STEP_ID: &str = "SLURM_STEP_ID";
/// Same as SLURM_STEP_ID.
pub const SLURM_STEPID: &str = "SLURM_STEPID";
/// In a task of a step array (`srun --array`): number of the step, which its tasks share.
pub const SLURM_STEP_ARRAY_ID: &str = "SLURM_STEP_ARRAY_ID";
/// In a task of a step array: its index.
pub const SLURM_STEP_ARRAY_TASK_ID: &str = "SLURM_STEP_ARRAY_TASK_ID";
/// In a task of a step array: how many tasks the array has.
pub const SLURM_STEP_ARRAY_TASK_COUNT: &str = "SLURM_STEP_ARRAY_TASK_COUNT";
/// In a task of a step array: smallest index.
pub const SLURM_STEP_ARRAY_TASK_MIN: &str = "SLURM_STEP_ARRAY_TASK_MIN";
/// In a task of a step array: greatest index.
pub const SLURM_STEP_ARRAY_TASK_MAX: &str = "SLURM_STEP_ARRAY_TASK_MAX";
/// In a task of a step array: step between indices.
pub const SLURM_STEP_ARRAY_TASK_STEP: &str = "SLURM_STEP_ARRAY_TASK_STEP";
/// In a step that is tried again (`srun --retries`): tries before this one.
pub const GARRICK_STEP_RETRY: &str = "GARRICK_STEP_RETRY";
/// Nodes of the step, as a host list.
pub const SLURM_STEP_NODELIST: &str = "SLURM_STEP_NODELIST";
/// Number of the step's nodes.
pub const SLURM_STEP_NUM_NODES: &str = "SLURM_STEP_NUM_NODES";
/// Tasks of the step.
pub const SLURM_STEP_NUM_TASKS: &str = "SLURM_STEP_NUM_TASKS";
/// Tasks of the step on each node.
pub const SLURM_STEP_TASKS_PER_NODE: &str = "SLURM_STEP_TASKS_PER_NODE";
/// `--hint` of the job.
pub const SLURM_HINT: &str = "SLURM_HINT";
/// How much `srun` says: 3, and as much more or less as it was told.
pub const SRUN_DEBUG: &str = "SRUN_DEBUG";
/// How much the step's daemon says to `srun`: 2, errors alone.
pub const SLURMD_DEBUG: &str = "SLURMD_DEBUG";
/// Name of the owner's group.
pub const SLURM_JOB_GROUP: &str = "SLURM_JOB_GROUP";
/// The same port as [`SLURM_SRUN_COMM_PORT`].
pub const SLURM_STEP_LAUNCHER_PORT: &str = "SLURM_STEP_LAUNCHER_PORT";
/// Address of the host that `srun` runs on.
pub const SLURM_LAUNCH_NODE_IPADDR: &str = "SLURM_LAUNCH_NODE_IPADDR";
/// Address of the host that `srun` runs on.
pub const SLURM_SRUN_COMM_HOST: &str = "SLURM_SRUN_COMM_HOST";
/// Port of `srun`; 0, since it has none.
pub const SLURM_SRUN_COMM_PORT: &str = "SLURM_SRUN_COMM_PORT";
/// Rank of the task in its step.
pub const SLURM_PROCID: &str = "SLURM_PROCID";
/// Number of the task on its node.
pub const SLURM_LOCALID: &str = "SLURM_LOCALID";
/// Number of the node in the step.
pub const SLURM_NODEID: &str = "SLURM_NODEID";
/// Ranks of the step's tasks on this node, `0,1`.
pub const SLURM_GTIDS: &str = "SLURM_GTIDS";
/// Process id of the task.
pub const SLURM_TASK_PID: &str = "SLURM_TASK_PID";
/// CPUs of the step (in the batch script: of the job) on this node.
pub const SLURM_CPUS_ON_NODE: &str = "SLURM_CPUS_ON_NODE";
/// `--cpu-bind` in effect; also an input of `srun`.
pub const SLURM_CPU_BIND: &str = "SLURM_CPU_BIND";
/// Kind of the CPU binding.
pub const SLURM_CPU_BIND_TYPE: &str = "SLURM_CPU_BIND_TYPE";
/// Masks or CPUs of the binding.
pub const SLURM_CPU_BIND_LIST: &str = "SLURM_CPU_BIND_LIST";
/// `quiet` or `verbose`.
pub const SLURM_CPU_BIND_VERBOSE: &str = "SLURM_CPU_BIND_VERBOSE";
/// Name of the node.
pub const SLURMD_NODENAME: &str = "SLURMD_NODENAME";
/// Path of switches to the node; its name without a topology.
pub const SLURM_TOPOLOGY_ADDR: &str = "SLURM_TOPOLOGY_ADDR";
/// What the parts of that path are: `node`.
pub const SLURM_TOPOLOGY_ADDR_PATTERN: &str = "SLURM_TOPOLOGY_ADDR_PATTERN";
/// Level of messages of the launcher; input of `srun` for `--verbose`.
pub const SLURM_DEBUG: &str = "SLURM_DEBUG";

// What MPI launchers read to find out that they run below Slurm.
/// `slurm`, for MPICH's mpiexec.
pub const HYDRA_BOOTSTRAP: &str = "HYDRA_BOOTSTRAP";
/// `--external-launcher`.
pub const HYDRA_LAUNCHER_EXTRA_ARGS: &str = "HYDRA_LAUNCHER_EXTRA_ARGS";
/// `slurm`, for Intel MPI's mpiexec.
pub const I_MPI_HYDRA_BOOTSTRAP: &str = "I_MPI_HYDRA_BOOTSTRAP";
/// `--external-launcher`.
pub const I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS: &str = "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS";
/// `--external-launcher`, for Open MPI.
#[allow(non_upper_case_globals)]
pub const OMPI_MCA_plm_slurm_args: &str = "OMPI_MCA_plm_slurm_args";
/// `--external-launcher`, for PRRTE.
#[allow(non_upper_case_globals)]
pub const PRTE_MCA_plm_slurm_args: &str = "PRTE_MCA_plm_slurm_args";
}

/// What is told of each component of a heterogeneous job, where it is set for it: with `_HET_GROUP_` and the component's
/// offset behind the name.
pub const PER_HET_GROUP: &[&str] = &[
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    SLURM_GPU_BIND,
    "SLURM_JOBID",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_QOS",
    "SLURM_JOB_RESERVATION",
    "SLURM_JOB_SLUID",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NNODES",
    "SLURM_NODELIST",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    SLURM_TRES_PER_TASK,
];

/// What tells each `srun` in a job about the site: nothing where there is nothing to know.
pub fn of_srun(site: &SiteOfSrun) -> Vec<(&'static str, String)> {
    let named = [(GARRICK_SRUN_PROLOG, &site.prolog), (GARRICK_SRUN_EPILOG, &site.epilog)];
    let named = named.into_iter().filter_map(|(name, program)| Some((name, program.clone()?)));
    let filters = site.filters_options.then(|| (GARRICK_CLI_FILTER, "yes".to_owned()));
    let mut told: Vec<_> = named.chain(filters).collect();
    // The light one runs no programs.
    if !told.is_empty() {
        told.push((GARRICK_SRUN, "whole".to_owned()));
    }
    if !site.frequencies.are_usual() {
        told.push((GARRICK_CPU_FREQ, site.frequencies.to_string()));
    }
    if !site.mpi.is_none() {
        told.push((SLURM_MPI_TYPE, site.mpi.name().to_owned()));
    }
    told
}
