//! The fields of `sacct`, with Slurm's names and widths (as `sacct --helpformat` and the heading of 26.05.3 have them), and what
//! stands in each. What accounting does not keep stays empty.

use super::{
    Window,
    choice::Flag,
    entry::Entry,
    units::{Unit, Units, cpu_time, elapsed},
    usage::{self, Part, Sum},
};
use crate::{
    clock::Clock,
    field_table::{self, Kind},
};
use garrick_accounts::{
    row::JobRow,
    step::StepRecord,
    tres::{CPU, MEM, NODE, Tres},
};
use garrick_model::{
    cpu_freq::{CpuFreq, Frequency},
    hostlist,
    ids::Sluid,
    patterns::{PatternFacts, default_output, fill, in_folder},
    spec::Distribution,
    time::{TimeLimit, Timestamp, UNKNOWN},
    usage::Metric,
};

/// The id of a user by name, where this host knows one.
pub type LocalUid = dyn Fn(&str) -> Option<u32>;

/// How lines are written.
#[derive(Clone, Copy)]
pub struct Setting<'s> {
    /// The reader's clock; now is when the service answered.
    pub clock: &'s Clock,
    /// Units of memory.
    pub units: Units,
    /// Times are cut to this window.
    pub truncate: Option<Window>,
    /// Most characters of a list of tasks.
    pub task_list: Option<usize>,
    /// Patterns in names of files are filled in.
    pub expand: bool,
    /// Ids of users as this host knows them.
    pub uid: Option<&'s LocalUid>,
}

/// What stands in a field of a line.
pub type Shown = fn(&Entry<'_>, &Setting<'_>) -> String;
/// A field.
pub type Field = field_table::Field<Shown>;
/// A column.
pub type Column = field_table::Column<Shown>;

/// Shown unasked.
pub const USUAL: &str = "jobid,jobname,partition,account,alloccpus,state,exitcode";
/// With `--brief`.
pub const BRIEF: &str = "jobid,state,exitcode";
/// With `--long`.
pub const LONG: &str = "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,\
    averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,state,exitcode,\
    avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,\
    avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,alloctres,tresusageinave,tresusageinmax,\
    tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode,tresusageinmintask,tresusageintot,tresusageoutmax,\
    tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave,tresusageouttot";

/// Reads a list of fields.
///
/// # Errors
/// The first that there is not.
pub fn columns(format: &str) -> Result<Vec<Column>, String> {
    field_table::columns(FIELDS, format)
}

const fn text(name: &'static str, width: usize, value: Shown) -> Field {
    Field { name, width, left: false, kind: Kind::Text, value }
}

const fn number(name: &'static str, width: usize, value: Shown) -> Field {
    Field { kind: Kind::Number, ..text(name, width, value) }
}

const fn date(name: &'static str, value: Shown) -> Field {
    Field { kind: Kind::Date, ..text(name, 19, value) }
}

const fn left(name: &'static str, width: usize, value: Shown) -> Field {
    Field { left: true, ..text(name, width, value) }
}

/// A field of which accounting keeps nothing.
const fn not_kept(name: &'static str, width: usize) -> Field {
    text(name, width, |_, _| String::new())
}

/// Of jobs only.
fn of_job(entry: &Entry<'_>, value: impl FnOnce(&JobRow) -> String) -> String {
    if entry.step().is_some() { String::new() } else { value(entry.row) }
}

/// Of steps only.
fn of_step(entry: &Entry<'_>, value: impl FnOnce(&StepRecord) -> String) -> String {
    entry.step().map(value).unwrap_or_default()
}

fn given(text: &Option<String>) -> String {
    text.clone().unwrap_or_default()
}

fn allocated<'e>(entry: &Entry<'e>) -> &'e Tres {
    entry.step().map_or(&entry.row.allocated, |step| &step.allocated)
}

/// Asked for: of a step what it has.
fn requested<'e>(entry: &Entry<'e>) -> &'e Tres {
    entry.step().map_or(&entry.row.requested, |step| &step.allocated)
}

fn alloc_tres(entry: &Entry<'_>, set: &Setting<'_>) -> String {
    let of_job = || entry.row.allocated_with_energy();
    entry.step().map_or_else(|| set.units.tres(&of_job()), |step| set.units.tres(&step.allocated))
}

fn count(tres: &Tres, name: &str) -> String {
    tres.count(name).to_string()
}

/// CPUs that are reckoned with: those that it has, or asked for as long as it waits.
fn cpus(entry: &Entry<'_>) -> u64 {
    allocated(entry).count(CPU)
}

fn node_count(entry: &Entry<'_>) -> String {
    match allocated(entry).count(NODE) {
        0 => count(&entry.row.requested, NODE),
        nodes => nodes.to_string(),
    }
}

fn nodes(entry: &Entry<'_>) -> String {
    let nodes = entry.step().map_or(&entry.row.nodes, |step| &step.nodes);
    if nodes.is_empty() { "None assigned".to_owned() } else { nodes.clone() }
}

fn secs(entry: &Entry<'_>, set: &Setting<'_>) -> u64 {
    entry.span(set.clock.now, set.truncate).secs
}

fn cpu_secs(entry: &Entry<'_>, set: &Setting<'_>) -> u64 {
    secs(entry, set).saturating_mul(cpus(entry))
}

/// How long it waited from the time when it could have started, seconds.
pub fn planned_secs(row: &JobRow, now: Timestamp) -> u64 {
    let Some(eligible) = row.eligible else { return 0 };
    let until = row.start.or(row.end).unwrap_or(now);
    u64::try_from(until.secs().saturating_sub(eligible.secs())).unwrap_or(0)
}

fn start(entry: &Entry<'_>, set: &Setting<'_>) -> String {
    let span = entry.span(set.clock.now, set.truncate);
    // What ended without a start has none; of what waits it is not known.
    let absent = if span.end.is_some() { "None" } else { UNKNOWN };
    set.clock.at_or(span.start, absent)
}

/// When a step was made is when it started.
fn at(entry: &Entry<'_>, set: &Setting<'_>, of_job: Option<Timestamp>) -> String {
    set.clock.at_or(entry.step().map_or(of_job, |step| step.start), UNKNOWN)
}

fn limit(limit: TimeLimit) -> String {
    match limit {
        TimeLimit::Unlimited => "UNLIMITED".to_owned(),
        TimeLimit::Secs(secs) => elapsed(secs),
    }
}

fn limit_minutes(limit: TimeLimit) -> String {
    match limit {
        TimeLimit::Unlimited => "UNLIMITED".to_owned(),
        TimeLimit::Secs(secs) => (secs / 60).to_string(),
    }
}

fn memory(entry: &Entry<'_>, set: &Setting<'_>) -> String {
    of_job(entry, |row| match row.requested.count(MEM) {
        0 => "0".to_owned(),
        mib => set.units.amount(mib, Unit::MIB),
    })
}

/// Greatest peak of the tasks of a step, if it was measured: in records of earlier versions it is there without its task.
fn peak(entry: &Entry<'_>, set: &Setting<'_>) -> String {
    of_step(entry, |step| match step.usage.max_rss_kib {
        0 => String::new(),
        kib => set.units.amount(kib.saturating_mul(1024), Unit::BYTE),
    })
}

/// Energy of a step, or of all steps of a job that are shown, joules.
fn joules(entry: &Entry<'_>) -> String {
    entry.used.energy_joules.to_string()
}

/// `--cpu-freq` of a job, or of a step.
fn cpu_freq(entry: &Entry<'_>) -> Option<CpuFreq> {
    entry.step().map_or(entry.row.cpu_freq, |step| step.cpu_freq)
}

/// What is said of frequencies that nobody asked for.
fn unasked(entry: &Entry<'_>) -> String {
    if entry.is_special() { "0" } else { UNKNOWN }.to_owned()
}

/// A frequency that is asked for.
fn frequency(entry: &Entry<'_>, set: &Setting<'_>, of: impl Fn(&CpuFreq) -> Option<Frequency>) -> String {
    match cpu_freq(entry).as_ref().and_then(of) {
        None => unasked(entry),
        Some(Frequency::Khz(khz)) => set.units.khz(khz.into()),
        Some(named) => named.to_string(),
    }
}

fn governor(entry: &Entry<'_>, _: &Setting<'_>) -> String {
    cpu_freq(entry).map_or_else(|| unasked(entry), |asked| asked.governor().name().to_owned())
}

/// The distribution of the tasks of a step. As srun(1) has it, tasks that are not more than nodes go round them by default.
fn layout(step: &StepRecord) -> &'static str {
    match step.layout {
        None => UNKNOWN,
        Some(Distribution::Block) if u64::from(step.tasks) <= step.allocated.count(NODE) => "Cyclic",
        Some(Distribution::Block | Distribution::BlockNoPack | Distribution::BlockPack) => "Block",
        Some(Distribution::Cyclic) => "Cyclic",
        Some(Distribution::Plane(_)) => "Plane",
        Some(Distribution::Arbitrary) => "Arbitrary",
    }
}

fn number_of(number: Option<impl ToString>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// Is it shared, and with whom not.
pub(super) fn shared(row: &JobRow) -> (&'static str, &'static str) {
    row.sharing.words(row.topology_exclusive)
}

/// The QOS that it named.
pub(super) fn qos_asked(row: &JobRow) -> &str {
    let named = row.qos_asked.as_ref().or(row.qos.as_ref()).filter(|_| !row.default_qos);
    named.map_or("", String::as_str)
}

/// The first run of its job.
pub(super) fn first_run(row: &JobRow) -> Sluid {
    row.first_run.unwrap_or(row.sluid)
}

fn partition(row: &JobRow) -> String {
    row.partition.clone().unwrap_or_else(|| row.partitions.join(","))
}

fn uid(row: &JobRow, set: &Setting<'_>) -> String {
    set.uid.and_then(|known| known(&row.user)).unwrap_or(row.uid).to_string()
}

/// Where a stream of a job goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard input.
    In,
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// The file of a stream, as a path: with its patterns, or the first of the files that they stand for.
pub fn stream(row: &JobRow, which: Stream, expand: bool) -> String {
    let usual = match which {
        Stream::In => "/dev/null",
        Stream::Out => default_output(row.array_task.is_some() || row.waiting.is_some()),
        Stream::Err => "",
    };
    let named = match which {
        Stream::In => &row.stdin,
        Stream::Out => &row.stdout,
        Stream::Err => &row.stderr,
    };
    let pattern = named.clone().or_else(|| row.batch.then(|| usual.to_owned())).unwrap_or_default();
    if pattern.is_empty() {
        return pattern;
    }
    let pattern = in_folder(pattern, &row.work_dir);
    if !expand {
        return pattern;
    }
    let first = hostlist::expand(&row.nodes).unwrap_or_default().into_iter().next();
    let facts = PatternFacts {
        job: row.job,
        array_task: row.array_task,
        step: Some(garrick_model::ids::StepKey::BATCH),
        node: first.as_deref(),
        node_id: Some(0),
        task: Some(0),
        user: &row.user,
        job_name: &row.name,
    };
    fill(&pattern, &facts)
}

fn flags(row: &JobRow) -> String {
    Flag::of(row).iter().map(|flag| flag.word()).collect::<Vec<_>>().join(",")
}

/// A field of one figure of steps.
macro_rules! one {
    ($name:literal, $width:literal, $metric:ident, $sum:ident, $part:ident) => {
        text($name, $width, |entry, set| {
            of_step(entry, |step| usage::field(step, Metric::$metric, Sum::$sum, Part::$part, set.units))
        })
    };
}

/// A field of several.
macro_rules! all {
    ($name:literal, $width:literal, $metrics:ident, $sum:ident, $part:ident) => {
        text($name, $width, |entry, set| {
            of_step(entry, |step| usage::list(step, usage::$metrics, Sum::$sum, Part::$part, set.units))
        })
    };
}

/// Every field, in the order of `--helpformat`.
#[rustfmt::skip]
pub static FIELDS: &[Field] = &[
    text("Account", 10, |e, _| given(&e.row.account)),
    text("AdminComment", 15, |e, _| of_job(e, |row| given(&row.admin_comment))),
    number("AllocCPUS", 10, |e, _| count(allocated(e), CPU)),
    number("AllocNodes", 10, |e, _| count(allocated(e), NODE)),
    text("AllocTRES", 10, alloc_tres),
    text("AssocID", 7, |e, _| number_of(e.row.association.map(|id| id.0))),
    one!("AveCPU", 10, Cpu, Average, Value),
    text("AveCPUFreq", 10, |e, set| {
        of_step(e, |step| set.units.khz(step.usage.frequency_khz.checked_div(step.tasks.into()).unwrap_or(0)))
    }),
    one!("AveDiskRead", 14, Read, Average, Value),
    one!("AveDiskWrite", 14, Written, Average, Value),
    one!("AvePages", 10, Pages, Average, Value),
    one!("AveRSS", 10, Rss, Average, Value),
    one!("AveVMSize", 10, Vm, Average, Value),
    not_kept("BlockID", 16),
    text("Cluster", 10, |e, _| e.row.cluster.clone()),
    text("Comment", 14, |e, _| of_job(e, |row| given(&row.comment))),
    text("Constraints", 19, |e, _| of_job(e, |row| given(&row.constraint))),
    text("ConsumedEnergy", 14, |e, _| joules(e)),
    text("ConsumedEnergyRaw", 17, |e, _| joules(e)),
    not_kept("Container", 19),
    number("CPUTime", 10, |e, set| elapsed(cpu_secs(e, set))),
    number("CPUTimeRAW", 10, |e, set| cpu_secs(e, set).to_string()),
    left("DBIndex", 21, |e, _| e.row.sluid.0.to_string()),
    text("DerivedExitCode", 15, |e, _| of_job(e, |row| row.derived.to_string())),
    number("Elapsed", 10, |e, set| elapsed(secs(e, set))),
    number("ElapsedRaw", 10, |e, set| secs(e, set).to_string()),
    date("Eligible", |e, set| at(e, set, e.row.eligible)),
    date("End", |e, set| set.clock.at_or(e.span(set.clock.now, set.truncate).end, UNKNOWN)),
    text("Exclusive", 14, |e, _| of_job(e, |row| shared(row).1.to_owned())),
    text("ExitCode", 8, |e, _| match e.step() {
        Some(step) if step.unreported => String::new(),
        step => step.map_or(e.row.exit, |step| step.exit).to_string(),
    }),
    text("Extra", 14, |e, _| of_job(e, |row| given(&row.extra))),
    text("FailedNode", 8, |e, _| of_job(e, |row| given(&row.failed_node))),
    text("Flags", 19, |e, _| of_job(e, flags)),
    number("GID", 6, |e, _| of_job(e, |row| row.gid.to_string())),
    text("Group", 9, |e, _| of_job(e, |row| row.group.clone())),
    left("JobID", 12, |e, set| e.id(set.task_list)),
    left("JobIDRaw", 12, |e, _| e.raw_id()),
    text("JobName", 10, |e, _| e.step().map_or(&e.row.name, |step| &step.name).clone()),
    text("Layout", 9, |e, _| of_step(e, |step| layout(step).to_owned())),
    text("Licenses", 10, |e, _| of_job(e, |row| given(&row.licenses))),
    one!("MaxDiskRead", 12, Read, Greatest, Value),
    one!("MaxDiskReadNode", 15, Read, Greatest, Node),
    one!("MaxDiskReadTask", 15, Read, Greatest, Task),
    one!("MaxDiskWrite", 12, Written, Greatest, Value),
    one!("MaxDiskWriteNode", 16, Written, Greatest, Node),
    one!("MaxDiskWriteTask", 16, Written, Greatest, Task),
    one!("MaxPages", 8, Pages, Greatest, Value),
    one!("MaxPagesNode", 12, Pages, Greatest, Node),
    one!("MaxPagesTask", 14, Pages, Greatest, Task),
    text("MaxRSS", 10, peak),
    one!("MaxRSSNode", 10, Rss, Greatest, Node),
    one!("MaxRSSTask", 10, Rss, Greatest, Task),
    one!("MaxVMSize", 10, Vm, Greatest, Value),
    one!("MaxVMSizeNode", 14, Vm, Greatest, Node),
    one!("MaxVMSizeTask", 14, Vm, Greatest, Task),
    text("McsLabel", 12, |e, _| of_job(e, |row| given(&row.mcs_label))),
    one!("MinCPU", 10, Cpu, Least, Value),
    one!("MinCPUNode", 10, Cpu, Least, Node),
    one!("MinCPUTask", 10, Cpu, Least, Task),
    number("NCPUS", 10, |e, _| count(allocated(e), CPU)),
    number("NNodes", 8, |e, _| node_count(e)),
    text("NodeList", 15, |e, _| nodes(e)),
    number("NTasks", 8, |e, _| of_step(e, |step| step.tasks.to_string())),
    text("OriginalSLUID", 14, |e, _| first_run(e.row).to_string()),
    text("OverSubscribe", 14, |e, _| of_job(e, |row| shared(row).0.to_owned())),
    text("Partition", 10, |e, _| of_job(e, partition)),
    number("Planned", 10, |e, set| of_job(e, |row| elapsed(planned_secs(row, set.clock.now)))),
    number("PlannedCPU", 10, |e, set| of_job(e, |row| elapsed(planned_cpu_secs(row, set.clock.now)))),
    number("PlannedCPURAW", 13, |e, set| of_job(e, |row| planned_cpu_secs(row, set.clock.now).to_string())),
    number("Priority", 10, |e, _| of_job(e, |row| row.priority.to_string())),
    text("QOS", 10, |e, _| of_job(e, |row| given(&row.qos))),
    text("QOSRAW", 6, |e, _| of_job(e, |row| number_of(row.ids.qos))),
    text("QOSREQ", 10, |e, _| of_job(e, |row| qos_asked(row).to_owned())),
    text("Reason", 22, |e, _| of_job(e, |row| row.waited_for.text().into_owned())),
    text("ReqCPUFreq", 10, |e, set| frequency(e, set, |asked| asked.greatest())),
    text("ReqCPUFreqGov", 13, governor),
    text("ReqCPUFreqMax", 13, |e, set| frequency(e, set, |asked| asked.greatest())),
    text("ReqCPUFreqMin", 13, |e, set| frequency(e, set, |asked| asked.least())),
    number("ReqCPUS", 8, |e, _| count(requested(e), CPU)),
    text("ReqMem", 10, memory),
    number("ReqNodes", 8, |e, _| count(requested(e), NODE)),
    text("ReqTRES", 10, |e, set| of_job(e, |row| set.units.tres(&row.requested))),
    text("Reservation", 20, |e, _| of_job(e, |row| given(&row.reservation))),
    text("ReservationId", 8, |e, _| of_job(e, |row| number_of(row.ids.reservation))),
    text("ReqReservation", 20, |e, _| of_job(e, |row| row.requested_reservations.join(","))),
    number("Restarts", 8, |e, _| of_job(e, |row| row.restarts.to_string())),
    text("SegmentSize", 11, |e, _| of_job(e, |row| number_of(row.segment))),
    text("SLUID", 14, |e, _| e.row.sluid.to_string()),
    date("Start", start),
    text("State", 10, |e, _| e.state()),
    text("StdErr", 20, |e, set| of_job(e, |row| stream(row, Stream::Err, set.expand))),
    text("StdIn", 20, |e, set| of_job(e, |row| stream(row, Stream::In, set.expand))),
    text("StdOut", 20, |e, set| of_job(e, |row| stream(row, Stream::Out, set.expand))),
    date("Submit", |e, set| at(e, set, Some(e.row.submit))),
    text("SubmitLine", 20, |e, _| e.step().map_or(&e.row.submit_line, |step| &step.submit_line).clone()),
    number("Suspended", 10, |e, set| elapsed(e.suspended_secs(set.clock.now))),
    text("SystemComment", 15, |e, _| of_job(e, |row| given(&row.system_comment))),
    text("SystemCPU", 10, |e, _| cpu_time(e.used.system_us)),
    text("Timelimit", 10, |e, _| of_job(e, |row| limit(row.time_limit))),
    text("TimelimitRaw", 10, |e, _| of_job(e, |row| limit_minutes(row.time_limit))),
    text("TotalCPU", 10, |e, _| cpu_time(e.used.cpu_us())),
    all!("TRESUsageInAve", 14, IN, Average, Value),
    all!("TRESUsageInMax", 14, IN, Greatest, Value),
    all!("TRESUsageInMaxNode", 18, IN, Greatest, Node),
    all!("TRESUsageInMaxTask", 18, IN, Greatest, Task),
    all!("TRESUsageInMin", 14, IN, Least, Value),
    all!("TRESUsageInMinNode", 18, IN, Least, Node),
    all!("TRESUsageInMinTask", 18, IN, Least, Task),
    all!("TRESUsageInTot", 14, IN, Total, Value),
    all!("TRESUsageOutAve", 15, OUT, Average, Value),
    all!("TRESUsageOutMax", 15, OUT, Greatest, Value),
    all!("TRESUsageOutMaxNode", 19, OUT, Greatest, Node),
    all!("TRESUsageOutMaxTask", 19, OUT, Greatest, Task),
    all!("TRESUsageOutMin", 15, OUT, Least, Value),
    all!("TRESUsageOutMinNode", 19, OUT, Least, Node),
    all!("TRESUsageOutMinTask", 19, OUT, Least, Task),
    all!("TRESUsageOutTot", 15, OUT, Total, Value),
    number("UID", 6, |e, set| of_job(e, |row| uid(row, set))),
    text("User", 9, |e, _| of_job(e, |row| row.user.clone())),
    text("UserCPU", 10, |e, _| cpu_time(e.used.user_us)),
    text("WCKey", 10, |e, _| of_job(e, |row| given(&row.wckey))),
    text("WCKeyID", 10, |e, _| of_job(e, |row| number_of(row.ids.wckey))),
    text("WorkDir", 20, |e, _| of_job(e, |row| row.work_dir.clone())),
];

fn planned_cpu_secs(row: &JobRow, now: Timestamp) -> u64 {
    planned_secs(row, now).saturating_mul(row.requested.count(CPU))
}

#[cfg(test)]
#[path = "fields_test.rs"]
mod tests;
