//! The fields of `squeue`: their letters (`-o`), names (`-O`) and headings. What a row shows in them is in `cells`.

/// What a column shows of a job or a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `JOBID` with array task or range, `STEPID` for steps.
    Id,
    /// Number of the job alone.
    RawId,
    /// Id that `sbatch` printed for an array.
    ArrayJobId,
    /// Task of an array, or range of tasks.
    ArrayTaskId,
    /// Leader of a heterogeneous job.
    HetJobId,
    /// Component of a heterogeneous job.
    HetJobOffset,
    /// Run identity.
    Sluid,
    /// Partition.
    Partition,
    /// Job or step name.
    Name,
    /// User's name.
    User,
    /// User's number.
    Uid,
    /// Group's name.
    Group,
    /// Group's number.
    Gid,
    /// `RUNNING`.
    State,
    /// `R`.
    StateCompact,
    /// Why it waits.
    Reason,
    /// Nodes, or why there are none.
    NodesOrReason,
    /// Nodes.
    NodeList,
    /// Nodes planned for a pending job.
    SchedNodes,
    /// Reservation that it runs in or asked for.
    Reservation,
    /// Licenses asked for.
    Licenses,
    /// Licenses that it was given.
    LicensesAlloc,
    /// Switches asked for.
    ReqSwitch,
    /// How long to wait for them.
    Wait4Switch,
    /// Nodes asked for.
    ReqNodes,
    /// Nodes refused.
    ExcNodes,
    /// Host of the batch script.
    BatchHost,
    /// Host that submitted.
    AllocNode,
    /// Host and session that submitted.
    AllocSid,
    /// Node count.
    NodeCount,
    /// Most nodes.
    MaxNodes,
    /// CPU count.
    Cpus,
    /// Most CPUs.
    MaxCpus,
    /// Task count.
    Tasks,
    /// CPUs per task.
    CpusPerTask,
    /// Tasks per node.
    TasksPerNode,
    /// Fewest CPUs on a node.
    MinCpus,
    /// Generic resources on each node; those of a step.
    TresPerNode,
    /// Generic resources on all nodes together.
    TresPerJob,
    /// Generic resources for each task.
    TresPerTask,
    /// Generic resources for each socket.
    TresPerSocket,
    /// CPUs that go with each GPU.
    CpusPerTres,
    /// Memory that goes with each GPU.
    MemPerTres,
    /// Least memory.
    MinMemory,
    /// Least temporary disk.
    MinTmpDisk,
    /// Time used.
    TimeUsed,
    /// Time left.
    TimeLeft,
    /// Limit.
    TimeLimit,
    /// Least limit.
    TimeMin,
    /// Seconds between submission and start.
    PendingTime,
    /// Submission.
    SubmitTime,
    /// Eligible since.
    EligibleTime,
    /// `PreemptTime`
    PreemptTime,
    /// Start, or expected start.
    StartTime,
    /// End, or expected end.
    EndTime,
    /// Deadline.
    Deadline,
    /// Last look of the scheduler.
    LastSchedEval,
    /// Priority as a number.
    Priority,
    /// Priority between 0 and 1.
    PriorityFloat,
    /// Nice.
    Nice,
    /// Account.
    Account,
    /// QOS.
    Qos,
    /// Wckey.
    Wckey,
    /// Comment.
    Comment,
    /// Administrator's comment.
    AdminComment,
    /// Why its last run could not be started.
    SystemComment,
    /// Dependencies left.
    Dependency,
    /// Features asked for.
    Features,
    /// MCS label.
    McsLabel,
    /// Features preferred.
    Prefer,
    /// Most tasks on a socket.
    TasksPerSocket,
    /// Most tasks on a core.
    TasksPerCore,
    /// `YES`, `NO`, `OK`, `USER`.
    OverSubscribe,
    /// Contiguous nodes asked for.
    Contiguous,
    /// Batch job or not.
    BatchFlag,
    /// Script or command.
    Command,
    /// Working directory.
    WorkDir,
    /// Output file.
    Stdout,
    /// Error file.
    Stderr,
    /// Input file.
    Stdin,
    /// Exit code.
    ExitCode,
    /// Highest exit code of any step.
    DerivedExitCode,
    /// Times requeued.
    RestartCount,
    /// May be requeued.
    Requeue,
    /// Allocated or requested TRES.
    Tres,
    /// Sockets, cores and threads asked for.
    Sct,
    /// Cores or threads left to the system.
    CoreSpec,
    /// Command line of the submission.
    SubmitLine,
    /// What nothing here has: always this word.
    Constant(&'static str),
}

/// One entry of the tables: field, `-o` letter, `-O` names, heading.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Field.
    pub field: Field,
    /// Letter of `-o`, if it has one.
    pub letter: Option<char>,
    /// Names of `-O` in lower case.
    pub names: &'static [&'static str],
    /// Heading.
    pub title: &'static str,
}

const fn entry(field: Field, letter: char, names: &'static [&'static str], title: &'static str) -> Entry {
    Entry { field, letter: Some(letter), names, title }
}

const fn named(field: Field, names: &'static [&'static str], title: &'static str) -> Entry {
    Entry { field, letter: None, names, title }
}

const NA: Field = Field::Constant("N/A");
const NULL: Field = Field::Constant("(null)");

/// Fields of jobs.
pub const JOB: &[Entry] = &[
    entry(Field::Account, 'a', &["account"], "ACCOUNT"),
    entry(Field::RawId, 'A', &["jobid"], "JOBID"),
    entry(Field::BatchHost, 'B', &["batchhost"], "EXEC_HOST"),
    entry(Field::MinCpus, 'c', &["mincpus"], "MIN_CPUS"),
    entry(Field::Cpus, 'C', &["numcpus"], "CPUS"),
    entry(Field::MinTmpDisk, 'd', &["mintmpdisk"], "MIN_TMP_DISK"),
    entry(Field::NodeCount, 'D', &["numnodes"], "NODES"),
    entry(Field::EndTime, 'e', &["endtime"], "END_TIME"),
    entry(Field::Dependency, 'E', &["dependency"], "DEPENDENCY"),
    entry(Field::Features, 'f', &["feature"], "FEATURES"),
    entry(Field::ArrayJobId, 'F', &["arrayjobid"], "ARRAY_JOB_ID"),
    entry(Field::Group, 'g', &["groupname"], "GROUP"),
    entry(Field::Gid, 'G', &["groupid"], "GROUP"),
    entry(Field::OverSubscribe, 'h', &["oversubscribe"], "OVER_SUBSCRIBE"),
    entry(Field::Constant("*"), 'H', &["sockets"], "SOCKETS_PER_NODE"),
    entry(Field::Id, 'i', &["jobarrayid"], "JOBID"),
    entry(Field::Constant("*"), 'I', &["cores"], "CORES_PER_SOCKET"),
    entry(Field::Name, 'j', &["name", "jobname"], "NAME"),
    entry(Field::Constant("*"), 'J', &["threads"], "THREADS_PER_CORE"),
    entry(Field::Comment, 'k', &["comment"], "COMMENT"),
    entry(Field::ArrayTaskId, 'K', &["arraytaskid"], "ARRAY_TASK_ID"),
    entry(Field::TimeLimit, 'l', &["timelimit"], "TIME_LIMIT"),
    entry(Field::TimeLeft, 'L', &["timeleft"], "TIME_LEFT"),
    entry(Field::MinMemory, 'm', &["minmemory"], "MIN_MEMORY"),
    entry(Field::TimeUsed, 'M', &["timeused"], "TIME"),
    entry(Field::ReqNodes, 'n', &["reqnodes"], "REQ_NODES"),
    entry(Field::NodeList, 'N', &["nodelist"], "NODELIST"),
    entry(Field::Command, 'o', &["command"], "COMMAND"),
    entry(Field::Contiguous, 'O', &["contiguous"], "CONTIGUOUS"),
    entry(Field::PriorityFloat, 'p', &["priority"], "PRIORITY"),
    entry(Field::Partition, 'P', &["partition"], "PARTITION"),
    entry(Field::Qos, 'q', &["qos"], "QOS"),
    entry(Field::Priority, 'Q', &["prioritylong"], "PRIORITY"),
    entry(Field::Reason, 'r', &["reason"], "REASON"),
    entry(Field::NodesOrReason, 'R', &["reasonlist"], "NODELIST(REASON)"),
    entry(Field::Sluid, 's', &["sluid"], "SLUID"),
    entry(Field::StartTime, 'S', &["starttime"], "START_TIME"),
    entry(Field::StateCompact, 't', &["statecompact"], "ST"),
    entry(Field::State, 'T', &["state"], "STATE"),
    entry(Field::User, 'u', &["username"], "USER"),
    entry(Field::Uid, 'U', &["userid"], "USER"),
    entry(Field::Reservation, 'v', &["reservation"], "RESERVATION"),
    entry(Field::SubmitTime, 'V', &["submittime"], "SUBMIT_TIME"),
    entry(Field::Wckey, 'w', &["wckey"], "WCKEY"),
    entry(Field::Licenses, 'W', &["licenses"], "LICENSES"),
    entry(Field::ExcNodes, 'x', &["excnodes"], "EXC_NODES"),
    entry(Field::CoreSpec, 'X', &["corespec"], "CORE_SPEC"),
    entry(Field::Nice, 'y', &["nice"], "NICE"),
    entry(Field::SchedNodes, 'Y', &["schednodes"], "SCHEDNODES"),
    entry(Field::Sct, 'z', &["sct"], "S:C:T"),
    entry(Field::WorkDir, 'Z', &["workdir"], "WORK_DIR"),
    named(Field::EligibleTime, &["accruetime"], "ACCRUE_TIME"),
    named(Field::AdminComment, &["admin_comment", "admincomment"], "ADMIN_COMMENT"),
    named(Field::AllocNode, &["allocnodes"], "ALLOC_NODES"),
    named(Field::AllocSid, &["allocsid"], "ALLOC_SID"),
    named(Field::Constant("0"), &["associd"], "ASSOC_ID"),
    named(Field::BatchFlag, &["batchflag"], "BATCH_FLAG"),
    named(NA, &["boardspernode"], "BOARDS_PER_NODE"),
    named(NULL, &["burstbuffer"], "BURST_BUFFER"),
    named(NULL, &["burstbufferstate"], "BURST_BUFFER_STATE"),
    named(NA, &["cluster"], "CLUSTER"),
    named(NULL, &["clusterfeature"], "CLUSTER_FEATURES"),
    named(NA, &["container", "containerid"], "CONTAINER"),
    named(NA, &["cpufreq"], "CPU_FREQ"),
    named(Field::CpusPerTask, &["cpus-per-task"], "CPUS_PER_TASK"),
    named(Field::CpusPerTres, &["cpus-per-tres"], "CPUS_PER_TRES"),
    named(Field::Deadline, &["deadline"], "DEADLINE"),
    named(NA, &["delayboot"], "DELAY_BOOT"),
    named(Field::DerivedExitCode, &["derivedec"], "DERIVED_EC"),
    named(Field::EligibleTime, &["eligibletime"], "ELIGIBLE_TIME"),
    named(Field::ExitCode, &["exit_code", "exitcode"], "EXIT_CODE"),
    named(Field::HetJobId, &["hetjobid"], "HET_JOB_ID"),
    named(NA, &["hetjobidset"], "HET_JOB_ID_SET"),
    named(Field::HetJobOffset, &["hetjoboffset"], "HET_JOB_OFFSET"),
    named(Field::LastSchedEval, &["lastschedeval"], "LAST_SCHED_EVAL"),
    named(Field::LicensesAlloc, &["licensesalloc"], "LICENSES_ALLOC"),
    named(Field::MaxCpus, &["maxcpus"], "MAX_CPUS"),
    named(Field::MaxNodes, &["maxnodes"], "MAX_NODES"),
    named(Field::McsLabel, &["mcslabel"], "MCSLABEL"),
    named(Field::MemPerTres, &["mem-per-tres"], "MEM_PER_TRES"),
    named(Field::TimeMin, &["mintime"], "MIN_TIME"),
    named(NULL, &["network"], "NETWORK"),
    named(Field::NodeList, &["nodes"], "NODES"),
    named(NA, &["ntperboard"], "NTASKS_PER_BOARD"),
    named(Field::TasksPerCore, &["ntpercore"], "NTASKS_PER_CORE"),
    named(Field::TasksPerNode, &["ntpernode"], "NTASKS_PER_NODE"),
    named(Field::TasksPerSocket, &["ntpersocket"], "NTASKS_PER_SOCKET"),
    named(Field::Tasks, &["numtasks"], "TASKS"),
    named(NA, &["origin", "originraw"], "ORIGIN"),
    named(Field::PendingTime, &["pendingtime"], "PENDING_TIME"),
    named(Field::PreemptTime, &["preempttime"], "PREEMPT_TIME"),
    named(Field::Prefer, &["prefer"], "PREFER"),
    named(NA, &["profile"], "PROFILE"),
    named(Field::Constant("0"), &["reboot"], "REBOOT"),
    named(Field::ReqSwitch, &["reqswitch"], "REQ_SWITCH"),
    named(Field::Requeue, &["requeue"], "REQUEUE"),
    named(NA, &["resizetime"], "RESIZE_TIME"),
    named(Field::RestartCount, &["restartcnt"], "RESTART_COUNT"),
    named(NA, &["selectjobinfo"], "SELECT_JOBINFO"),
    named(NA, &["siblingsactive", "siblingsactiveraw", "siblingsviable", "siblingsviableraw"], "SIBLINGS"),
    named(Field::Stderr, &["stderr"], "STDERR"),
    named(Field::Stdin, &["stdin"], "STDIN"),
    named(Field::Stdout, &["stdout"], "STDOUT"),
    named(Field::SubmitLine, &["submitline"], "SUBMIT_LINE"),
    named(Field::SystemComment, &["system_comment"], "SYSTEM_COMMENT"),
    named(Field::Tres, &["tres-alloc", "tres"], "TRES_ALLOC"),
    named(NA, &["tres-bind"], "TRES_BIND"),
    named(NA, &["tres-freq"], "TRES_FREQ"),
    named(Field::TresPerJob, &["tres-per-job"], "TRES_PER_JOB"),
    entry(Field::TresPerNode, 'b', &["tres-per-node", "gres"], "TRES_PER_NODE"),
    named(Field::TresPerSocket, &["tres-per-socket"], "TRES_PER_SOCKET"),
    named(Field::TresPerTask, &["tres-per-task"], "TRES_PER_TASK"),
    named(Field::Wait4Switch, &["wait4switch"], "WAIT4SWITCH"),
];

/// Fields of steps.
pub const STEP: &[Entry] = &[
    entry(Field::Tasks, 'A', &["numtasks"], "TASKS"),
    entry(Field::TresPerNode, 'b', &["tres-per-step"], "TRES_PER_NODE"),
    entry(Field::Cpus, 'C', &["numcpus"], "CPUS"),
    entry(Field::NodeCount, 'D', &["numnodes"], "NODES"),
    entry(Field::Id, 'i', &["stepid"], "STEPID"),
    entry(Field::Name, 'j', &["stepname", "name"], "NAME"),
    entry(Field::TimeLimit, 'l', &["timelimit"], "TIME_LIMIT"),
    entry(Field::TimeLeft, 'L', &["timeleft"], "TIME_LEFT"),
    entry(Field::TimeUsed, 'M', &["timeused"], "TIME"),
    entry(Field::NodeList, 'N', &["nodes", "nodelist"], "NODELIST"),
    entry(Field::Partition, 'P', &["partition"], "PARTITION"),
    entry(Field::Reason, 'r', &["reason"], "REASON"),
    entry(Field::NodesOrReason, 'R', &["reasonlist"], "NODELIST(REASON)"),
    entry(Field::StartTime, 'S', &["starttime"], "START_TIME"),
    entry(Field::State, 'T', &["stepstate", "state"], "STATE"),
    entry(Field::User, 'u', &["username"], "USER"),
    entry(Field::Uid, 'U', &["userid"], "USER"),
    named(Field::RawId, &["jobid"], "JOBID"),
    named(Field::ArrayJobId, &["arrayjobid"], "ARRAY_JOB_ID"),
    named(Field::ArrayTaskId, &["arraytaskid"], "ARRAY_TASK_ID"),
    named(NA, &["container", "containerid"], "CONTAINER"),
    named(NA, &["cpufreq"], "CPU_FREQ"),
    named(NULL, &["network"], "NETWORK"),
    named(NULL, &["resvport"], "RESV_PORTS"),
    named(Field::ExitCode, &["exit_code", "exitcode"], "EXIT_CODE"),
    named(Field::EndTime, &["endtime"], "END_TIME"),
    named(Field::SubmitLine, &["submitline"], "SUBMIT_LINE"),
    named(Field::Priority, &["priority", "prioritylong"], "PRIORITY"),
    named(Field::Dependency, &["dependency"], "DEPENDENCY"),
    named(Field::RestartCount, &["restartcnt"], "RESTART_COUNT"),
];

/// The entry with that letter.
pub fn by_letter(table: &'static [Entry], letter: char) -> Option<&'static Entry> {
    table.iter().find(|e| e.letter == Some(letter))
}

/// The entry with that name, given in lower case.
pub fn by_name(table: &'static [Entry], name: &str) -> Option<&'static Entry> {
    table.iter().find(|e| e.names.contains(&name))
}

/// `%all`: every field with a letter, in letter order as Slurm lists them, separated by bars.
pub fn all(table: &'static [Entry]) -> String {
    table.iter().filter_map(|e| e.letter).map(|l| format!("%{l}")).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_names_are_unique() {
        for table in [JOB, STEP] {
            let mut letters: Vec<_> = table.iter().filter_map(|e| e.letter).collect();
            let mut names: Vec<_> = table.iter().flat_map(|e| e.names).collect();
            let (l, n) = (letters.len(), names.len());
            letters.sort_unstable();
            letters.dedup();
            names.sort_unstable();
            names.dedup();
            assert_eq!((letters.len(), names.len()), (l, n));
        }
    }
}
