//! The fields of `squeue`: a row each, with its letter (`-o`), names (`-O`) and heading, what a job or step shows in it, and by
//! what rows are sorted.

use crate::{
    amounts::{self, Amounts as _},
    clock::Clock,
    job_rows::JobRow,
    step_lines::StepLine,
    words::{self, cell_or_null as null},
};
use garrick_model::{
    ids::JobId,
    node_shape::SpecCores,
    patterns,
    resources::MemoryRequest,
    spec::{JobKind, JobSpec, Sharing},
    state::{Reason, StepState},
    time::{Timestamp, short_duration},
    view::{JobView, StepView},
};
use std::{cmp::Ordering, collections::BTreeMap, fmt, time::Duration};

/// What rendering needs beside the rows.
pub struct Setting<'a> {
    /// Times.
    pub clock: &'a Clock,
    /// A user's name by number, for steps.
    pub user: &'a dyn Fn(u32) -> String,
    /// Most characters of an array's task list (`SLURM_BITSTR_LEN`), `None` for all.
    pub task_list: Option<usize>,
    /// Where jobs that wait are to start.
    pub sched_nodes: &'a BTreeMap<JobId, String>,
    /// The cluster's name.
    pub cluster: &'a str,
    /// Patterns in names of files are replaced.
    pub expand: bool,
    /// Memory is shown in the greatest unit that it is a whole number of, not in the one that it was asked for in.
    pub convert: bool,
}

/// A job to show.
pub struct JobCell<'a> {
    row: &'a JobRow,
    job: &'a JobView,
    spec: &'a JobSpec,
    setting: &'a Setting<'a>,
    clock: &'a Clock,
}

/// A step to show.
pub struct StepCell<'a> {
    line: &'a StepLine<'a>,
    step: &'a StepView,
    job: Option<&'a JobView>,
    setting: &'a Setting<'a>,
    clock: &'a Clock,
}

/// What stands in a column.
#[derive(Clone, Copy)]
enum Shown {
    Job(fn(&JobCell<'_>) -> String),
    Step(fn(&StepCell<'_>) -> String),
    /// What nothing here has: always this word.
    Always(&'static str),
}

/// How rows are sorted by a column.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// By what they show.
    Text,
    /// By the priority of jobs, where asked for after the tier of their partitions.
    Priority,
    Jobs(fn(&JobRow, &JobRow) -> Ordering),
    Steps(fn(&StepLine<'_>, &StepLine<'_>) -> Ordering),
}

/// A field.
pub struct Entry {
    /// Letter of `-o`, if it has one.
    pub letter: Option<char>,
    /// Names of `-O` in lower case.
    pub names: &'static [&'static str],
    /// Heading.
    pub title: &'static str,
    shown: Shown,
    pub(super) order: Order,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title)
    }
}

impl Entry {
    const fn new(names: &'static [&'static str], title: &'static str, shown: Shown) -> Self {
        Self { letter: None, names, title, shown, order: Order::Text }
    }
    const fn letter(self, letter: char) -> Self {
        Self { letter: Some(letter), ..self }
    }
    const fn by(self, order: fn(&JobRow, &JobRow) -> Ordering) -> Self {
        Self { order: Order::Jobs(order), ..self }
    }
    const fn by_priority(self) -> Self {
        Self { order: Order::Priority, ..self }
    }
    const fn by_step(self, order: fn(&StepLine<'_>, &StepLine<'_>) -> Ordering) -> Self {
        Self { order: Order::Steps(order), ..self }
    }

    /// What a job shows.
    pub fn of_job(&self, row: &JobRow, setting: &Setting<'_>) -> String {
        match self.shown {
            Shown::Job(shown) => {
                shown(&JobCell { row, job: &row.job, spec: &row.job.spec, setting, clock: setting.clock })
            }
            Shown::Step(_) => String::new(),
            Shown::Always(word) => word.to_owned(),
        }
    }

    /// What a step shows.
    pub fn of_step(&self, line: &StepLine<'_>, setting: &Setting<'_>) -> String {
        match self.shown {
            Shown::Step(shown) => {
                shown(&StepCell { line, step: line.view, job: line.job, setting, clock: setting.clock })
            }
            Shown::Job(_) => String::new(),
            Shown::Always(word) => word.to_owned(),
        }
    }

    /// It shows where room is reserved for jobs that wait.
    pub fn needs_outlook(&self) -> bool {
        self.names.contains(&"schednodes")
    }
}

const fn job(names: &'static [&'static str], title: &'static str, shown: fn(&JobCell<'_>) -> String) -> Entry {
    Entry::new(names, title, Shown::Job(shown))
}

const fn step(names: &'static [&'static str], title: &'static str, shown: fn(&StepCell<'_>) -> String) -> Entry {
    Entry::new(names, title, Shown::Step(shown))
}

const fn always(names: &'static [&'static str], title: &'static str, word: &'static str) -> Entry {
    Entry::new(names, title, Shown::Always(word))
}

/// Fields of jobs.
#[rustfmt::skip]
pub static JOB: &[Entry] = &[
    job(&["account"], "ACCOUNT", |c| null(c.spec.account.as_deref())).letter('a'),
    job(&["jobid"], "JOBID", |c| c.job.id.to_string()).letter('A').by(|a, b| a.job.id.cmp(&b.job.id)),
    job(&["batchhost"], "EXEC_HOST", |c| amounts::batch_host(c.job).unwrap_or("n/a").to_owned()).letter('B'),
    job(&["mincpus"], "MIN_CPUS", |c| min_cpus(c.job).to_string()).letter('c'),
    job(&["numcpus"], "CPUS", |c| c.job.cpu_count().to_string()).letter('C').by(|a, b| a.job.cpus.cmp(&b.job.cpus)),
    job(&["mintmpdisk"], "MIN_TMP_DISK", |c| c.spec.tmp_disk_mib.to_string()).letter('d'),
    job(&["numnodes"], "NODES", |c| c.job.node_count().to_string()).letter('D').by(|a, b| a.job.min_nodes.cmp(&b.job.min_nodes)),
    job(&["endtime"], "END_TIME", |c| end_text(c.job, c.clock)).letter('e').by(|a, b| end(a).cmp(&end(b))),
    job(&["dependency"], "DEPENDENCY", |c| amounts::dependencies(c.job)).letter('E'),
    job(&["feature"], "FEATURES", |c| null(c.spec.constraint.as_deref())).letter('f'),
    job(&["arrayjobid"], "ARRAY_JOB_ID", |c| c.row.array_job().to_string()).letter('F').by(by_id),
    job(&["groupname"], "GROUP", |c| c.job.group.clone()).letter('g'),
    job(&["groupid"], "GROUP", |c| c.job.gid.to_string()).letter('G').by(|a, b| a.job.gid.cmp(&b.job.gid)),
    job(&["oversubscribe"], "OVER_SUBSCRIBE", |c| sharing(c).to_owned()).letter('h'),
    always(&["sockets"], "SOCKETS_PER_NODE", "*").letter('H'),
    job(&["jobarrayid"], "JOBID", |c| c.row.id_text(c.setting.task_list)).letter('i').by(by_id),
    always(&["cores"], "CORES_PER_SOCKET", "*").letter('I'),
    job(&["name", "jobname"], "NAME", |c| c.spec.name.clone()).letter('j'),
    always(&["threads"], "THREADS_PER_CORE", "*").letter('J'),
    job(&["comment"], "COMMENT", |c| null(c.spec.comment.as_deref())).letter('k'),
    job(&["arraytaskid"], "ARRAY_TASK_ID", |c| or_na(c.row.task_text(c.setting.task_list))).letter('K'),
    job(&["timelimit"], "TIME_LIMIT", |c| c.job.time_limit.squeue_text()).letter('l').by(|a, b| limit(a).cmp(&limit(b))),
    job(&["timeleft"], "TIME_LEFT", |c| time_left(c.job, c.clock)).letter('L').by(|a, b| end(a).cmp(&end(b))),
    job(&["minmemory"], "MIN_MEMORY", |c| memory(c.job.memory, c.setting.convert)).letter('m'),
    job(&["timeused"], "TIME", |c| short_duration(c.job.run_secs(c.clock.now))).letter('M').by(|a, b| start(b).cmp(&start(a))),
    job(&["reqnodes"], "REQ_NODES", |c| amounts::fold(&c.spec.nodelist)).letter('n'),
    job(&["nodelist"], "NODELIST", |c| amounts::node_list(c.job)).letter('N'),
    job(&["command"], "COMMAND", |c| null(c.spec.command.as_deref())).letter('o'),
    job(&["contiguous"], "CONTIGUOUS", |c| u8::from(c.spec.contiguous).to_string()).letter('O'),
    job(&["priority"], "PRIORITY", |c| format!("{:.14}", f64::from(c.job.priority) / f64::from(u32::MAX))).letter('p').by_priority(),
    job(&["partition"], "PARTITION", |c| c.row.partition.clone().unwrap_or_else(|| partition(c.job))).letter('P'),
    job(&["qos"], "QOS", |c| null(c.spec.qos.as_deref())).letter('q'),
    job(&["prioritylong"], "PRIORITY", |c| c.job.priority.to_string()).letter('Q').by_priority(),
    job(&["reason"], "REASON", |c| words::reason(&c.job.reason).into_owned()).letter('r'),
    job(&["reasonlist"], "NODELIST(REASON)", |c| words::nodes_or_reason(c.job, amounts::node_list(c.job))).letter('R'),
    job(&["sluid"], "SLUID", |c| c.job.sluid.to_string()).letter('s'),
    job(&["starttime"], "START_TIME", |c| c.clock.at_or(c.job.start_time, "N/A")).letter('S').by(|a, b| start(a).cmp(&start(b))),
    job(&["statecompact"], "ST", |c| words::job_state_compact(c.job.state).to_owned()).letter('t'),
    job(&["state"], "STATE", |c| words::job_state(c.job.state).to_owned()).letter('T'),
    job(&["username"], "USER", |c| c.job.user.clone()).letter('u'),
    job(&["userid"], "UID", |c| c.job.uid.to_string()).letter('U').by(|a, b| a.job.uid.cmp(&b.job.uid)),
    job(&["reservation"], "RESERVATION", |c| null(amounts::reservation(c.job).as_deref())).letter('v'),
    job(&["submittime"], "SUBMIT_TIME", |c| c.clock.at(c.job.submit_time)).letter('V').by(|a, b| a.job.submit_time.cmp(&b.job.submit_time)),
    job(&["wckey"], "WCKEY", |c| null(c.spec.wckey.as_deref())).letter('w'),
    job(&["licenses"], "LICENSES", |c| null(c.spec.licenses.as_deref())).letter('W'),
    job(&["excnodes"], "EXC_NODES", |c| amounts::fold(&c.spec.exclude)).letter('x'),
    job(&["corespec"], "CORE_SPEC", |c| core_spec(c.spec)).letter('X'),
    job(&["nice"], "NICE", |c| c.spec.nice.to_string()).letter('y').by(|a, b| a.job.spec.nice.cmp(&b.job.spec.nice)),
    job(&["schednodes"], "SCHEDNODES", |c| null(c.setting.sched_nodes.get(&c.job.id).map(String::as_str))).letter('Y'),
    job(&["sct"], "S:C:T", |c| sockets_cores_threads(c.spec)).letter('z'),
    job(&["workdir"], "WORK_DIR", |c| c.spec.work_dir.clone()).letter('Z'),
    job(&["accruetime"], "ACCRUE_TIME", |c| c.clock.at_or(c.job.accrue_time(), "N/A")),
    job(&["admin_comment", "admincomment"], "ADMIN_COMMENT", |c| null(c.job.admin_comment.as_deref())),
    job(&["allocnodes"], "ALLOC_NODES", |c| c.spec.submit_host.clone()),
    job(&["allocsid"], "ALLOC_SID", |c| c.spec.alloc_sid.to_string()),
    always(&["associd"], "ASSOC_ID", "0"),
    job(&["batchflag"], "BATCH_FLAG", |c| u8::from(c.spec.kind == JobKind::Batch).to_string()),
    always(&["boardspernode"], "BOARDS_PER_NODE", "0"),
    always(&["burstbuffer"], "BURST_BUFFER", "(null)"),
    always(&["burstbufferstate"], "BURST_BUFFER_STATE", "(null)"),
    job(&["cluster"], "CLUSTER", |c| c.setting.cluster.to_owned()),
    always(&["clusterfeature"], "CLUSTER_FEATURES", "(null)"),
    always(&["container"], "CONTAINER", "(null)"),
    always(&["containerid"], "CONTAINERID", "(null)"),
    job(&["cronjob"], "CRON_JOB", |c| if c.job.recurs { "Yes" } else { "No" }.to_owned()),
    job(&["cpus-per-task"], "CPUS_PER_TASK", |c| c.job.cpus_per_task.to_string()),
    job(&["cpus-per-tres"], "CPUS_PER_TRES", |c| or_na(amounts::cpus_per_tres(c.job))),
    job(&["deadline"], "DEADLINE", |c| c.clock.at_or(c.spec.deadline, "N/A")),
    job(&["delayboot"], "DELAY_BOOT", |c| short_duration(c.spec.delay_boot_secs.unwrap_or(0))),
    job(&["derivedec"], "DERIVED_EC", |c| words::exit(c.job.derived_exit)),
    job(&["eligibletime"], "ELIGIBLE_TIME", |c| c.clock.at_or(c.job.eligible_time, "N/A")),
    job(&["exit_code", "exitcode"], "EXIT_CODE", |c| words::exit(c.job.exit)),
    job(&["hetjobid"], "HET_JOB_ID", |c| or_na(c.spec.het.map(|h| h.0.to_string()))),
    job(&["hetjobidset"], "HET_JOB_ID_SET", |c| or_na(amounts::het_ids(c.job))),
    job(&["hetjoboffset"], "HET_JOB_OFFSET", |c| or_na(c.spec.het.map(|h| h.1.to_string()))),
    job(&["lastschedeval"], "LAST_SCHED_EVAL", |c| c.clock.at_or(Some(last_look(c.job)), "N/A")),
    job(&["licensesalloc"], "LICENSES_ALLOC", |c| null(amounts::licenses(c.job).as_deref())),
    job(&["maxcpus"], "MAX_CPUS", |c| c.job.cpu_count().to_string()),
    job(&["maxnodes"], "MAX_NODES", |c| c.job.max_nodes.to_string()),
    job(&["mcslabel"], "MCSLABEL", |c| null(c.spec.mcs_label.as_deref())),
    job(&["mem-per-tres"], "MEM_PER_TRES", |c| or_na(amounts::mem_per_tres(c.job))),
    job(&["mintime"], "TIME_MIN", |c| c.spec.time_min.map_or_else(|| short_duration(0), |l| l.squeue_text())),
    always(&["network"], "NETWORK", "(null)"),
    always(&["ntperboard"], "NTASKS_PER_BOARD", "0"),
    job(&["ntpercore"], "NTASKS_PER_CORE", |c| or_na(c.spec.layout.tasks_per_core.map(|n| n.to_string()))),
    job(&["ntpernode"], "NTASKS_PER_NODE", |c| c.spec.tasks_per_node.unwrap_or(0).to_string()),
    job(&["ntpersocket"], "NTASKS_PER_SOCKET", |c| or_na(c.spec.layout.tasks_per_socket.map(|n| n.to_string()))),
    job(&["numtasks"], "TASKS", |c| c.job.tasks.to_string()),
    always(&["origin"], "ORIGIN", "NA"),
    always(&["originraw"], "ORIGIN_RAW", "NA"),
    job(&["pendingtime"], "PENDING_TIME", |c| pending_secs(c.job, c.clock).to_string()),
    job(&["preempttime"], "PREEMPT_TIME", |c| c.clock.at_or(c.job.preempt_times().map(|times| times.at), "N/A")),
    job(&["prefer"], "PREFER", |c| null(c.spec.prefer.as_deref())),
    job(&["profile"], "PROFILE", |c| {
        c.spec.profiling.series.map_or_else(|| "NotSet".to_owned(), |series| series.to_string())
    }),
    job(&["reboot"], "REBOOT", |c| u8::from(c.spec.reboot).to_string()),
    job(&["reqswitch"], "REQ_SWITCH", |c| c.spec.topology.switches.unwrap_or(0).to_string()),
    job(&["requeue"], "REQUEUE", |c| u8::from(c.job.requeue).to_string()),
    always(&["resizetime"], "RESIZE_TIME", "N/A"),
    job(&["restartcnt"], "RESTART_COUNT", |c| c.job.restarts.to_string()),
    job(&["segmentsize"], "SEGMENT_SIZE", |c| or_na(c.spec.topology.segment.map(|size| size.to_string()))),
    always(&["siblingsactive"], "ACTIVE_SIBLINGS", "NA"),
    always(&["siblingsactiveraw"], "ACTIVE_SIBLINGS_RAW", "NA"),
    always(&["siblingsviable"], "VIABLE_SIBLINGS", "NA"),
    // As Slurm writes it.
    always(&["siblingsviableraw"], "VIALBLE_SIBLINGS_RAW", "NA"),
    always(&["sperboard"], "SOCKETS_PER_BOARD", "0"),
    job(&["stderr"], "STDERR", |c| null(c.file(&c.spec.stderr, &c.job.stderr_path))),
    job(&["stdin"], "STDIN", |c| c.file(&c.spec.stdin, &c.job.stdin_path).unwrap_or("/dev/null").to_owned()),
    job(&["stdout"], "STDOUT", |c| c.file(&c.spec.stdout, &c.job.stdout_path).unwrap_or_else(|| default_output(c.row)).to_owned()),
    job(&["submitline"], "SUBMIT_LINE", |c| null(Some(&c.spec.submit_line))),
    job(&["system_comment"], "SYSTEM_COMMENT", |c| null(c.job.system_comment.as_deref())),
    job(&["tres-alloc", "tres"], "TRES_ALLOC", |c| amounts::job_tres(c.job)),
    always(&["tres-bind"], "TRES_BIND", "N/A"),
    always(&["tres-freq"], "TRES_FREQ", "N/A"),
    job(&["tres-per-job"], "TRES_PER_JOB", |c| or_na(amounts::tres_per_job(c.job))),
    job(&["tres-per-node", "gres"], "TRES_PER_NODE", |c| or_na(amounts::tres_per_node(c.job))).letter('b'),
    job(&["tres-per-socket"], "TRES_PER_SOCKET", |c| or_na(amounts::tres_per_socket(c.job))),
    job(&["tres-per-task"], "TRES_PER_TASK", |c| or_na(amounts::tres_per_task(c.job))),
    job(&["wait4switch"], "WAIT4SWITCH", |c| wait_for_switch(c.spec)),
];

/// What `--helpformat` lists, in its order (seen in 26.05.3).
pub const HELP_FORMAT: &str = "aFKBokOIXEexfGgiAWcmdjyNCDhPpQqrRnvYzsHSTtVJLlMUuwZ";

/// Fields of steps.
#[rustfmt::skip]
pub static STEP: &[Entry] = &[
    step(&["numtasks"], "TASKS", |c| c.step.tasks.to_string()).letter('A'),
    step(&["tres-per-step"], "TRES_PER_NODE", |c| or_na(amounts::step_gres(&c.step.gres))).letter('b'),
    step(&["numcpus"], "CPUS", |c| c.step.cpus.to_string()).letter('C'),
    step(&["numnodes"], "NODES", |c| c.step.nodes.to_string()).letter('D'),
    step(&["stepid"], "STEPID", |c| c.line.id_text(c.setting.task_list)).letter('i').by_step(|a, b| a.first().cmp(&b.first())),
    step(&["stepname", "name"], "NAME", |c| c.step.name.clone()).letter('j'),
    step(&["timelimit"], "TIME_LIMIT", |c| c.step.time_limit.squeue_text()).letter('l'),
    step(&["timeleft"], "TIME_LEFT", |c| c.time_left()).letter('L'),
    step(&["timeused"], "TIME", |c| short_duration(c.used())).letter('M').by_step(|a, b| b.view.start_time.cmp(&a.view.start_time)),
    step(&["nodes", "nodelist"], "NODELIST", |c| nodes_of_step(c.step)).letter('N'),
    step(&["partition"], "PARTITION", |c| c.step.partition.clone()).letter('P'),
    step(&["reason"], "REASON", |c| words::reason(&c.step.reason).into_owned()).letter('r'),
    step(&["reasonlist"], "NODELIST(REASON)", |c| nodes_of_step(c.step)).letter('R'),
    step(&["starttime"], "START_TIME", |c| c.clock.at_or(c.step.start_time, "N/A")).letter('S'),
    step(&["stepstate", "state"], "STATE", |c| words::step_state(c.step.state).to_owned()).letter('T'),
    step(&["username"], "USER", |c| (c.setting.user)(c.step.uid)).letter('u'),
    step(&["userid"], "UID", |c| c.step.uid.to_string()).letter('U'),
    step(&["jobid"], "JOBID", |c| c.step.id.job.to_string()),
    step(&["arrayjobid"], "ARRAY_JOB_ID", |c| c.job.and_then(|j| j.array_task).map_or(c.step.id.job, |t| t.array_job).to_string()),
    step(&["arraytaskid"], "ARRAY_TASK_ID", |c| or_na(c.job.and_then(|j| j.array_task).map(|t| t.index.to_string()))),
    always(&["container"], "CONTAINER", "(null)"),
    always(&["containerid"], "CONTAINERID", "(null)"),
    always(&["cpufreq"], "CPU_FREQ", "N/A"),
    always(&["network"], "NETWORK", "(null)"),
    step(&["exit_code", "exitcode"], "EXIT_CODE", |c| words::exit(c.step.exit)),
    step(&["endtime"], "END_TIME", |c| c.clock.at_or(c.step.end_time, "N/A")),
    step(&["submitline"], "SUBMIT_LINE", |c| null(Some(&c.step.submit_line))),
    step(&["priority", "prioritylong"], "PRIORITY", |c| c.step.priority.to_string()),
    step(&["dependency"], "DEPENDENCY", |c| null(Some(&c.step.dependency))),
    step(&["restartcnt"], "RESTART_COUNT", |c| c.step.attempt.to_string()),
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

fn or_na(text: Option<String>) -> String {
    text.unwrap_or_else(|| "N/A".to_owned())
}

fn by_id(a: &JobRow, b: &JobRow) -> Ordering {
    (a.array_job(), a.first_index()).cmp(&(b.array_job(), b.first_index()))
}

fn start(row: &JobRow) -> Timestamp {
    row.job.start_time.unwrap_or_default()
}

fn end(row: &JobRow) -> Timestamp {
    row.job.end_time.unwrap_or_default()
}

/// Where no end is known: that of a job that starts then, or that there will be none (seen in 26.05.3).
fn end_text(job: &JobView, clock: &Clock) -> String {
    match (job.end_time, job.start_time, job.time_limit.duration()) {
        (Some(end), ..) => clock.at(end),
        (None, None, _) => "N/A".to_owned(),
        (None, Some(_), None) => "NONE".to_owned(),
        (None, Some(start), Some(limit)) => clock.at(start.plus(limit)),
    }
}

fn limit(row: &JobRow) -> u64 {
    row.job.time_limit.duration().map_or(u64::MAX, |d| d.as_secs())
}

fn core_spec(spec: &JobSpec) -> String {
    let count = |(SpecCores::Cores(count) | SpecCores::Threads(count))| count.to_string();
    or_na(spec.layout.left_to_system.map(count))
}

fn sockets_cores_threads(spec: &JobSpec) -> String {
    let layout = &spec.layout;
    [layout.sockets_per_node, layout.cores_per_socket, layout.threads_per_core].map(amounts::or_any).join(":")
}

fn wait_for_switch(spec: &JobSpec) -> String {
    let secs = spec.topology.switches_wait_secs.filter(|_| spec.topology.switches.is_some());
    short_duration(secs.unwrap_or(0))
}

impl JobCell<'_> {
    /// A file as it was named, or as it is.
    fn file<'a>(&self, named: &'a Option<String>, is: &'a Option<String>) -> Option<&'a str> {
        if self.setting.expand { is.as_deref() } else { named.as_deref() }
    }
}

impl StepCell<'_> {
    /// Seconds that it has run.
    fn used(&self) -> u64 {
        let until = self.step.end_time.unwrap_or(self.clock.now);
        self.step.start_time.map_or(0, |start| until.since(start).as_secs())
    }

    fn time_left(&self) -> String {
        let left = |limit: Duration| short_duration(limit.as_secs().saturating_sub(self.used()));
        self.step.time_limit.duration().map_or_else(|| "UNLIMITED".to_owned(), left)
    }
}

/// Its nodes, or why there are none.
fn nodes_of_step(step: &StepView) -> String {
    if step.state == StepState::Pending || step.nodelist.is_empty() && step.reason != Reason::None {
        return format!("({})", words::reason(&step.reason));
    }
    step.nodelist.clone()
}

fn partition(job: &JobView) -> String {
    job.allocation.as_ref().map_or_else(|| job.partitions.join(","), |a| a.partition.clone())
}

fn min_cpus(job: &JobView) -> u32 {
    job.spec.min_cpus_per_node.unwrap_or(1).max(job.cpus_per_task)
}

/// `500M`, `2G`, 0 for nothing asked or all.
fn memory(request: MemoryRequest, convert: bool) -> String {
    match request {
        MemoryRequest::Default | MemoryRequest::All => "0".to_owned(),
        MemoryRequest::PerNode(m) | MemoryRequest::PerCpu(m) if convert => amounts::memory(m),
        MemoryRequest::PerNode(m) | MemoryRequest::PerCpu(m) => format!("{}M", m.0),
    }
}

fn sharing(cell: &JobCell<'_>) -> &'static str {
    // Until it has nodes, what was asked for.
    let sharing = if cell.job.state.waits() { cell.spec.sharing } else { cell.job.sharing };
    if sharing == Sharing::Oversubscribe { "YES" } else { "NO" }
}

/// When the scheduler last looked at it: not after it was submitted, if it was held since.
fn last_look(job: &JobView) -> Timestamp {
    job.last_sched_eval.or(job.start_time.filter(|_| !job.state.waits())).unwrap_or(job.submit_time)
}

/// What `sbatch` has where no file was named.
fn default_output(row: &JobRow) -> &'static str {
    patterns::default_output(row.job.array_task.is_some() || row.job.array_pending.is_some())
}

fn time_left(job: &JobView, clock: &Clock) -> String {
    match job.time_limit.duration() {
        None => "UNLIMITED".to_owned(),
        Some(limit) if job.state.waits() => short_duration(limit.as_secs()),
        Some(limit) => match limit.as_secs().checked_sub(job.run_secs(clock.now)) {
            Some(left) => short_duration(left),
            None => "INVALID".to_owned(),
        },
    }
}

fn pending_secs(job: &JobView, clock: &Clock) -> u64 {
    let until = if job.state.waits() { clock.now } else { job.start_time.unwrap_or(clock.now) };
    until.since(job.submit_time).as_secs()
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
