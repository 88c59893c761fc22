//! Variables that stand for options, one table for each command, as its manual page lists them.

/// How an input variable is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Its text is the option's argument.
    Argument,
    /// Sets an option without argument when it is empty, `yes` or a number other than 0.
    Flag,
}

/// A variable that stands for an option of a command. Command line options go ahead of it; for `sbatch` it goes ahead of
/// the script's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Variable.
    pub variable: &'static str,
    /// Long option without dashes.
    pub option: &'static str,
    /// How it is read.
    pub kind: InputKind,
}

impl Input {
    /// Does the flag's text set it?
    pub fn flag_set(text: &str) -> bool {
        text.is_empty() || text.eq_ignore_ascii_case("yes") || text.parse::<i64>().is_ok_and(|n| n != 0)
    }
}

const fn argument(variable: &'static str, option: &'static str) -> Input {
    Input { variable, option, kind: InputKind::Argument }
}
const fn flag(variable: &'static str, option: &'static str) -> Input {
    Input { variable, option, kind: InputKind::Flag }
}

/// Variables of `sbatch`.
pub const SBATCH: &[Input] = &[
    argument("SBATCH_ACCOUNT", "account"),
    argument("SBATCH_ACCTG_FREQ", "acctg-freq"),
    argument("SBATCH_ARRAY_INX", "array"),
    argument("SBATCH_BATCH", "batch"),
    argument("SBATCH_CLUSTERS", "clusters"),
    argument("SBATCH_CONSTRAINT", "constraint"),
    argument("SBATCH_CONTAINER", "container"),
    argument("SBATCH_CORE_SPEC", "core-spec"),
    argument("SBATCH_CPUS_PER_GPU", "cpus-per-gpu"),
    flag("SBATCH_DEBUG", "verbose"),
    argument("SBATCH_DELAY_BOOT", "delay-boot"),
    argument("SBATCH_DISTRIBUTION", "distribution"),
    argument("SBATCH_ERROR", "error"),
    argument("SBATCH_EXCLUSIVE", "exclusive"),
    argument("SBATCH_EXPORT", "export"),
    flag("SBATCH_GET_USER_ENV", "get-user-env"),
    argument("SBATCH_GPU_BIND", "gpu-bind"),
    argument("SBATCH_GPU_FREQ", "gpu-freq"),
    argument("SBATCH_GPUS", "gpus"),
    argument("SBATCH_GPUS_PER_NODE", "gpus-per-node"),
    argument("SBATCH_GPUS_PER_TASK", "gpus-per-task"),
    argument("SBATCH_GRES", "gres"),
    argument("SBATCH_GRES_FLAGS", "gres-flags"),
    argument("SBATCH_HINT", "hint"),
    argument("SLURM_HINT", "hint"),
    flag("SBATCH_IGNORE_PBS", "ignore-pbs"),
    argument("SBATCH_INPUT", "input"),
    argument("SBATCH_JOB_NAME", "job-name"),
    argument("SBATCH_MEM_BIND", "mem-bind"),
    argument("SBATCH_MEM_PER_CPU", "mem-per-cpu"),
    argument("SBATCH_MEM_PER_GPU", "mem-per-gpu"),
    argument("SBATCH_MEM_PER_NODE", "mem"),
    argument("SBATCH_NETWORK", "network"),
    flag("SBATCH_NO_KILL", "no-kill"),
    flag("SBATCH_NO_REQUEUE", "no-requeue"),
    argument("SBATCH_OPEN_MODE", "open-mode"),
    argument("SBATCH_OUTPUT", "output"),
    flag("SBATCH_OVERCOMMIT", "overcommit"),
    argument("SBATCH_PARTITION", "partition"),
    argument("SBATCH_PROFILE", "profile"),
    argument("SBATCH_QOS", "qos"),
    argument("SBATCH_REQ_SWITCH", "switches"),
    argument("SBATCH_REQUEUE", "requeue"),
    argument("SBATCH_RESERVATION", "reservation"),
    argument("SBATCH_SEGMENT_SIZE", "segment"),
    argument("SBATCH_SIGNAL", "signal"),
    flag("SBATCH_SPREAD_JOB", "spread-job"),
    argument("SBATCH_THREAD_SPEC", "thread-spec"),
    argument("SBATCH_THREADS_PER_CORE", "threads-per-core"),
    argument("SBATCH_TIMELIMIT", "time"),
    flag("SBATCH_USE_MIN_NODES", "use-min-nodes"),
    flag("SBATCH_WAIT", "wait"),
    argument("SBATCH_WAIT_ALL_NODES", "wait-all-nodes"),
    argument("SBATCH_WAIT4SWITCH", "switches-wait"),
    argument("SBATCH_WCKEY", "wckey"),
    argument("SBATCH_CONTAINER_ID", "container-id"),
    argument("SBATCH_TRES_BIND", "tres-bind"),
    argument("SBATCH_TRES_PER_TASK", "tres-per-task"),
];

/// Variables of `salloc`.
pub const SALLOC: &[Input] = &[
    argument("SALLOC_ACCOUNT", "account"),
    argument("SALLOC_ACCTG_FREQ", "acctg-freq"),
    flag("SALLOC_BELL", "bell"),
    argument("SALLOC_BURST_BUFFER", "bb"),
    argument("SALLOC_CLUSTERS", "clusters"),
    argument("SALLOC_CONSTRAINT", "constraint"),
    argument("SALLOC_CONTAINER", "container"),
    argument("SALLOC_CORE_SPEC", "core-spec"),
    argument("SALLOC_CPUS_PER_GPU", "cpus-per-gpu"),
    flag("SALLOC_DEBUG", "verbose"),
    argument("SALLOC_DELAY_BOOT", "delay-boot"),
    argument("SALLOC_EXCLUSIVE", "exclusive"),
    argument("SALLOC_GPU_BIND", "gpu-bind"),
    argument("SALLOC_GPU_FREQ", "gpu-freq"),
    argument("SALLOC_GPUS", "gpus"),
    argument("SALLOC_GPUS_PER_NODE", "gpus-per-node"),
    argument("SALLOC_GPUS_PER_TASK", "gpus-per-task"),
    argument("SALLOC_GRES", "gres"),
    argument("SALLOC_GRES_FLAGS", "gres-flags"),
    argument("SALLOC_HINT", "hint"),
    argument("SLURM_HINT", "hint"),
    argument("SALLOC_IMMEDIATE", "immediate"),
    argument("SALLOC_KILL_CMD", "kill-command"),
    argument("SALLOC_MEM_BIND", "mem-bind"),
    argument("SALLOC_MEM_PER_CPU", "mem-per-cpu"),
    argument("SALLOC_MEM_PER_GPU", "mem-per-gpu"),
    argument("SALLOC_MEM_PER_NODE", "mem"),
    argument("SALLOC_NETWORK", "network"),
    flag("SALLOC_NO_BELL", "no-bell"),
    flag("SALLOC_NO_KILL", "no-kill"),
    flag("SALLOC_OVERCOMMIT", "overcommit"),
    argument("SALLOC_PARTITION", "partition"),
    argument("SALLOC_PROFILE", "profile"),
    argument("SALLOC_QOS", "qos"),
    argument("SALLOC_REQ_SWITCH", "switches"),
    argument("SALLOC_RESERVATION", "reservation"),
    argument("SALLOC_SIGNAL", "signal"),
    flag("SALLOC_SPREAD_JOB", "spread-job"),
    argument("SALLOC_THREAD_SPEC", "thread-spec"),
    argument("SALLOC_THREADS_PER_CORE", "threads-per-core"),
    argument("SALLOC_TIMELIMIT", "time"),
    flag("SALLOC_USE_MIN_NODES", "use-min-nodes"),
    argument("SALLOC_WAIT_ALL_NODES", "wait-all-nodes"),
    argument("SALLOC_WAIT4SWITCH", "switches-wait"),
    argument("SALLOC_WCKEY", "wckey"),
    argument("SALLOC_CONTAINER_ID", "container-id"),
    argument("SALLOC_TRES_BIND", "tres-bind"),
    argument("SALLOC_TRES_PER_TASK", "tres-per-task"),
];

/// Variables of `srun`.
pub const SRUN: &[Input] = &[
    argument("SLURM_ACCOUNT", "account"),
    argument("SLURM_ACCTG_FREQ", "acctg-freq"),
    argument("SLURM_BCAST", "bcast"),
    argument("SLURM_BCAST_EXCLUDE", "bcast-exclude"),
    argument("SLURM_BURST_BUFFER", "bb"),
    argument("SLURM_COMPRESS", "compress"),
    argument("SLURM_CONSTRAINT", "constraint"),
    argument("SLURM_CORE_SPEC", "core-spec"),
    argument("SLURM_CPU_BIND", "cpu-bind"),
    argument("SLURM_CPU_FREQ_REQ", "cpu-freq"),
    argument("SLURM_CPUS_PER_GPU", "cpus-per-gpu"),
    argument("SRUN_CPUS_PER_TASK", "cpus-per-task"),
    flag("SLURM_DEBUG", "verbose"),
    argument("SLURM_DELAY_BOOT", "delay-boot"),
    argument("SLURM_DEPENDENCY", "dependency"),
    flag("SLURM_DISABLE_STATUS", "disable-status"),
    argument("SLURM_DISTRIBUTION", "distribution"),
    argument("SLURM_EPILOG", "epilog"),
    flag("SLURM_EXACT", "exact"),
    argument("SLURM_EXCLUSIVE", "exclusive"),
    argument("SLURM_EXPORT_ENV", "export"),
    argument("SLURM_GPU_BIND", "gpu-bind"),
    argument("SLURM_GPU_FREQ", "gpu-freq"),
    argument("SLURM_GPUS", "gpus"),
    argument("SLURM_GPUS_PER_NODE", "gpus-per-node"),
    argument("SLURM_GPUS_PER_TASK", "gpus-per-task"),
    argument("SLURM_GRES", "gres"),
    argument("SLURM_GRES_FLAGS", "gres-flags"),
    argument("SLURM_HINT", "hint"),
    argument("SLURM_IMMEDIATE", "immediate"),
    argument("SLURM_JOB_ID", "jobid"),
    argument("SLURM_JOB_SLUID", "jobid"),
    argument("SLURM_JOB_NAME", "job-name"),
    argument("SLURM_JOB_NUM_NODES", "nodes"),
    argument("SLURM_KILL_BAD_EXIT", "kill-on-bad-exit"),
    flag("SLURM_LABELIO", "label"),
    argument("SLURM_MEM_BIND", "mem-bind"),
    argument("SLURM_MEM_PER_CPU", "mem-per-cpu"),
    argument("SLURM_MEM_PER_GPU", "mem-per-gpu"),
    argument("SLURM_MEM_PER_NODE", "mem"),
    argument(super::SLURM_MPI_TYPE, "mpi"),
    argument("SLURM_NETWORK", "network"),
    argument("SLURM_NNODES", "nodes"),
    flag("SLURM_NO_KILL", "no-kill"),
    argument("SLURM_NPROCS", "ntasks"),
    argument("SLURM_NTASKS", "ntasks"),
    argument("SLURM_NTASKS_PER_CORE", "ntasks-per-core"),
    argument("SLURM_NTASKS_PER_GPU", "ntasks-per-gpu"),
    argument("SLURM_NTASKS_PER_NODE", "ntasks-per-node"),
    argument("SLURM_NTASKS_PER_SOCKET", "ntasks-per-socket"),
    argument("SLURM_OPEN_MODE", "open-mode"),
    flag("SLURM_OVERCOMMIT", "overcommit"),
    flag("SLURM_OVERLAP", "overlap"),
    argument("SLURM_PARTITION", "partition"),
    argument("SLURM_PROFILE", "profile"),
    argument("SLURM_PROLOG", "prolog"),
    argument("SLURM_QOS", "qos"),
    argument("SLURM_REMOTE_CWD", "chdir"),
    argument("SLURM_REQ_SWITCH", "switches"),
    argument("SLURM_RESERVATION", "reservation"),
    argument("SLURM_RESV_PORTS", "resv-ports"),
    argument("SLURM_SEND_LIBS", "send-libs"),
    argument("SLURM_SIGNAL", "signal"),
    flag("SLURM_SPREAD_JOB", "spread-job"),
    argument("SLURM_STDERRMODE", "error"),
    argument("SLURM_STDINMODE", "input"),
    argument("SLURM_STDOUTMODE", "output"),
    argument("SLURM_STEP_GRES", "gres"),
    argument("SLURM_TASK_EPILOG", "task-epilog"),
    argument("SLURM_TASK_PROLOG", "task-prolog"),
    argument("SLURM_THREAD_SPEC", "thread-spec"),
    argument("SLURM_THREADS", "threads"),
    argument("SLURM_THREADS_PER_CORE", "threads-per-core"),
    argument("SLURM_TIMELIMIT", "time"),
    flag("SLURM_UNBUFFEREDIO", "unbuffered"),
    flag("SLURM_USE_MIN_NODES", "use-min-nodes"),
    argument("SLURM_WAIT", "wait"),
    argument("SLURM_WAIT4SWITCH", "switches-wait"),
    argument("SLURM_WCKEY", "wckey"),
    argument("SLURM_WORKING_DIR", "chdir"),
    argument("SRUN_CONTAINER", "container"),
    argument("SRUN_EXPORT_ENV", "export"),
    argument("SRUN_CONTAINER_ID", "container-id"),
    argument("SRUN_OUTPUT_PACK", "output-pack"),
    argument("SRUN_RETRIES", "retries"),
    argument("SRUN_RETRY_DELAY", "retry-delay"),
    argument("SRUN_RETRY_ON", "retry-on"),
    argument("SRUN_STEP_CGROUP", "step-cgroup"),
    argument("SRUN_STEP_PRIORITY", "step-priority"),
    argument("SLURM_TRES_BIND", "tres-bind"),
    argument("SLURM_TRES_PER_TASK", "tres-per-task"),
];

/// Variables of `squeue`.
pub const SQUEUE: &[Input] = &[
    argument("SQUEUE_ACCOUNT", "account"),
    flag("SQUEUE_ALL", "all"),
    flag("SQUEUE_ARRAY", "array"),
    argument("SQUEUE_NAMES", "name"),
    flag("SQUEUE_FEDERATION", "federation"),
    argument("SQUEUE_FORMAT", "format"),
    argument("SQUEUE_LICENSES", "license"),
    flag("SQUEUE_LOCAL", "local"),
    argument("SQUEUE_PARTITION", "partition"),
    flag("SQUEUE_PRIORITY", "priority"),
    argument("SQUEUE_QOS", "qos"),
    flag("SQUEUE_SIBLING", "sibling"),
    argument("SQUEUE_SORT", "sort"),
    argument("SQUEUE_STATES", "states"),
    argument("SQUEUE_USERS", "users"),
    argument("SQUEUE_FORMAT2", "Format"),
];

/// Variables of `sinfo`.
pub const SINFO: &[Input] = &[
    flag("SINFO_ALL", "all"),
    flag("SINFO_FEDERATION", "federation"),
    argument("SINFO_FORMAT", "format"),
    flag("SINFO_LOCAL", "local"),
    argument("SINFO_PARTITION", "partition"),
    argument("SINFO_SORT", "sort"),
];

/// Variables of `sacct`.
pub const SACCT: &[Input] =
    &[flag("SACCT_FEDERATION", "federation"), argument("SACCT_FORMAT", "format"), flag("SACCT_LOCAL", "local")];

/// Variables of `sreport`.
pub const SREPORT: &[Input] = &[
    argument("SREPORT_CLUSTER", "cluster"),
    flag("SREPORT_FEDERATION", "federation"),
    flag("SREPORT_LOCAL", "local"),
    argument("SREPORT_TRES", "tres"),
];

/// Variables of `scancel`.
pub const SCANCEL: &[Input] = &[
    argument("SCANCEL_ACCOUNT", "account"),
    flag("SCANCEL_BATCH", "batch"),
    flag("SCANCEL_CTLD", "ctld"),
    flag("SCANCEL_FULL", "full"),
    flag("SCANCEL_HURRY", "hurry"),
    flag("SCANCEL_INTERACTIVE", "interactive"),
    argument("SCANCEL_NAME", "name"),
    argument("SCANCEL_PARTITION", "partition"),
    argument("SCANCEL_QOS", "qos"),
    argument("SCANCEL_STATE", "state"),
    argument("SCANCEL_USER", "user"),
    flag("SCANCEL_VERBOSE", "verbose"),
    argument("SCANCEL_WCKEY", "wckey"),
];

/// Variables of `scontrol`.
pub const SCONTROL: &[Input] = &[
    flag("SCONTROL_ALL", "all"),
    flag("SCONTROL_FEDERATION", "federation"),
    flag("SCONTROL_FUTURE", "future"),
    flag("SCONTROL_LOCAL", "local"),
    flag("SCONTROL_SIBLING", "sibling"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_variable_stands_for_two_options_of_a_command() {
        for table in [SBATCH, SALLOC, SRUN, SQUEUE, SINFO, SACCT, SREPORT, SCANCEL, SCONTROL] {
            let names: BTreeSet<&str> = table.iter().map(|input| input.variable).collect();
            assert_eq!(names.len(), table.len());
        }
    }

    #[test]
    fn flags_are_set_by_nothing_yes_or_a_number() {
        for (text, set) in
            [("", true), ("yes", true), ("1", true), ("-1", true), ("0", false), ("no", false), ("x", false)]
        {
            assert_eq!(Input::flag_set(text), set, "{text}");
        }
    }
}
