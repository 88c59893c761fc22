//! The text of a row of `squeue` in each field.

use super::fields::Field;
use crate::{
    amounts::{self, Amounts as _},
    clock::Clock,
    job_rows::JobRow,
    step_lines::StepLine,
    words,
};
use garrick_model::{
    ids::JobId,
    node_shape::SpecCores,
    resources::MemoryRequest,
    spec::{JobKind, Sharing},
    state::{Reason, StepState},
    time::{long_duration, short_duration},
    view::JobView,
};
use std::collections::BTreeMap;

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
}

fn or_na(text: Option<String>) -> String {
    text.unwrap_or_else(|| "N/A".to_owned())
}

/// A job's value in a field.
pub fn job(row: &JobRow, field: Field, setting: &Setting<'_>) -> String {
    let job = &*row.job;
    let spec = &*job.spec;
    let clock = setting.clock;
    match field {
        Field::Id => row.id_text(setting.task_list),
        Field::RawId => job.id.to_string(),
        Field::ArrayJobId => row.array_job().to_string(),
        Field::ArrayTaskId => or_na(row.task_text(setting.task_list)),
        Field::HetJobId => or_na(spec.het.map(|h| h.0.to_string())),
        Field::HetJobOffset => or_na(spec.het.map(|h| h.1.to_string())),
        Field::Sluid => job.sluid.to_string(),
        Field::Partition => row.partition.clone().unwrap_or_else(|| partition(job)),
        Field::Name => spec.name.clone(),
        Field::User => job.user.clone(),
        Field::Uid => job.uid.to_string(),
        Field::Group => job.group.clone(),
        Field::Gid => job.gid.to_string(),
        Field::State => words::job_state(job.state).to_owned(),
        Field::StateCompact => words::job_state_compact(job.state).to_owned(),
        Field::Reason => words::reason(&job.reason).into_owned(),
        Field::NodesOrReason => words::nodes_or_reason(job, amounts::node_list(job)),
        Field::NodeList => amounts::node_list(job),
        Field::SchedNodes => words::cell_or_null(setting.sched_nodes.get(&job.id).map(String::as_str)),
        Field::ReqNodes => amounts::fold(&spec.nodelist),
        Field::ExcNodes => amounts::fold(&spec.exclude),
        Field::BatchHost => or_na(amounts::batch_host(job).map(str::to_owned)),
        Field::AllocNode => spec.submit_host.clone(),
        Field::AllocSid => format!("{}:{}", spec.submit_host, spec.alloc_sid),
        Field::NodeCount => job.node_count().to_string(),
        Field::MaxNodes => job.max_nodes.to_string(),
        Field::Cpus => job.cpu_count().to_string(),
        Field::MaxCpus => "0".to_owned(),
        Field::Tasks => job.tasks.to_string(),
        Field::CpusPerTask => job.cpus_per_task.to_string(),
        Field::TasksPerNode => or_na(spec.tasks_per_node.map(|n| n.to_string())),
        Field::MinCpus => min_cpus(job).to_string(),
        Field::TresPerNode => or_na(amounts::tres_per_node(job)),
        Field::TresPerJob => or_na(amounts::tres_per_job(job)),
        Field::TresPerSocket => or_na(amounts::tres_per_socket(job)),
        Field::TresPerTask => or_na(amounts::tres_per_task(job)),
        Field::CpusPerTres => or_na(amounts::cpus_per_tres(job)),
        Field::MemPerTres => or_na(amounts::mem_per_tres(job)),
        Field::MinMemory => memory(job.memory),
        Field::MinTmpDisk => spec.tmp_disk_mib.to_string(),
        Field::TimeUsed => short_duration(job.run_secs(clock.now)),
        Field::TimeLeft => time_left(job, clock),
        Field::TimeLimit => job.time_limit.squeue_text(),
        Field::TimeMin => or_na(spec.time_min.map(|l| l.squeue_text())),
        Field::PendingTime => pending_secs(job, clock).to_string(),
        Field::SubmitTime => clock.at(job.submit_time),
        Field::PreemptTime => clock.at_or(job.preempt_times().map(|times| times.at), "N/A"),
        Field::EligibleTime => clock.at_or(job.eligible_time, "Unknown"),
        Field::StartTime => clock.at_or(job.start_time, "N/A"),
        Field::EndTime => clock.at_or(job.end_time, "N/A"),
        Field::Deadline => clock.at_or(spec.deadline, "N/A"),
        Field::LastSchedEval => clock.at_or(job.last_sched_eval, "N/A"),
        Field::Priority => job.priority.to_string(),
        Field::PriorityFloat => format!("{:.14}", f64::from(job.priority) / f64::from(u32::MAX)),
        Field::Nice => spec.nice.to_string(),
        Field::Account => words::cell_or_null(spec.account.as_deref()),
        Field::Qos => words::cell_or_null(spec.qos.as_deref()),
        Field::Wckey => words::cell_or_null(spec.wckey.as_deref()),
        Field::Comment => words::cell_or_null(spec.comment.as_deref()),
        Field::AdminComment => words::cell_or_null(job.admin_comment.as_deref()),
        Field::SystemComment => words::cell_or_null(job.system_comment.as_deref()),
        Field::Dependency => amounts::dependencies(job),
        Field::Features => words::cell_or_null(spec.constraint.as_deref()),
        Field::Reservation => words::cell_or_null(amounts::reservation(job).as_deref()),
        Field::Licenses => words::cell_or_null(spec.licenses.as_deref()),
        Field::LicensesAlloc => words::cell_or_null(amounts::licenses(job).as_deref()),
        Field::ReqSwitch => spec.topology.switches.unwrap_or(0).to_string(),
        Field::Wait4Switch => {
            let secs = spec.topology.switches_wait_secs.filter(|_| spec.topology.switches.is_some());
            secs.map_or_else(|| "0".to_owned(), long_duration)
        }
        Field::OverSubscribe => sharing(job.sharing).to_owned(),
        Field::Contiguous => u8::from(spec.contiguous).to_string(),
        Field::BatchFlag => u8::from(spec.kind == JobKind::Batch).to_string(),
        Field::Command => words::cell_or_null(spec.command.as_deref()),
        Field::WorkDir => spec.work_dir.clone(),
        Field::Stdout => job.stdout_path.clone().unwrap_or_default(),
        Field::Stderr => job.stderr_path.clone().or_else(|| job.stdout_path.clone()).unwrap_or_default(),
        Field::Stdin => job.stdin_path.clone().unwrap_or_default(),
        Field::ExitCode => words::exit(job.exit),
        Field::DerivedExitCode => words::exit(job.derived_exit),
        Field::RestartCount => job.restarts.to_string(),
        Field::Requeue => u8::from(job.requeue).to_string(),
        Field::Tres => amounts::job_tres(job),
        Field::CoreSpec => match spec.layout.left_to_system {
            None => "N/A".to_owned(),
            Some(SpecCores::Cores(count) | SpecCores::Threads(count)) => count.to_string(),
        },
        Field::Sct => {
            let layout = &spec.layout;
            let counts = [layout.sockets_per_node, layout.cores_per_socket, layout.threads_per_core];
            counts.map(amounts::or_any).join(":")
        }
        Field::TasksPerSocket => spec.layout.tasks_per_socket.map_or_else(|| "N/A".to_owned(), |n| n.to_string()),
        Field::TasksPerCore => spec.layout.tasks_per_core.map_or_else(|| "N/A".to_owned(), |n| n.to_string()),
        Field::McsLabel => spec.mcs_label.clone().unwrap_or_else(|| "N/A".to_owned()),
        Field::Prefer => words::cell_or_null(spec.prefer.as_deref()),
        Field::SubmitLine => words::cell_or_null(Some(&spec.submit_line)),
        Field::Constant(word) => word.to_owned(),
    }
}

/// A step's value in a field.
pub fn step(line: &StepLine<'_>, field: Field, setting: &Setting<'_>) -> String {
    let StepLine { view: step, job, .. } = line;
    let clock = setting.clock;
    let used = step.start_time.map_or(0, |start| step.end_time.unwrap_or(clock.now).since(start).as_secs());
    match field {
        Field::Id => line.id_text(setting.task_list),
        Field::RawId => step.id.job.to_string(),
        Field::ArrayJobId => job.and_then(|j| j.array_task).map_or(step.id.job, |t| t.array_job).to_string(),
        Field::ArrayTaskId => or_na(job.and_then(|j| j.array_task).map(|t| t.index.to_string())),
        Field::Partition => step.partition.clone(),
        Field::Name => step.name.clone(),
        Field::User => (setting.user)(step.uid),
        Field::Uid => step.uid.to_string(),
        Field::State => words::step_state(step.state).to_owned(),
        Field::Reason => words::reason(&step.reason).into_owned(),
        Field::NodeList | Field::NodesOrReason
            if step.state == StepState::Pending || step.nodelist.is_empty() && step.reason != Reason::None =>
        {
            format!("({})", words::reason(&step.reason))
        }
        Field::NodeList | Field::NodesOrReason => step.nodelist.clone(),
        Field::TresPerNode => or_na(amounts::step_gres(&step.gres)),
        Field::NodeCount => step.nodes.to_string(),
        Field::Cpus => step.cpus.to_string(),
        Field::Tasks => step.tasks.to_string(),
        Field::Priority => step.priority.to_string(),
        Field::Dependency => words::cell_or_null(Some(&step.dependency)),
        Field::RestartCount => step.attempt.to_string(),
        Field::TimeUsed => short_duration(used),
        Field::TimeLimit => step.time_limit.squeue_text(),
        Field::TimeLeft => step
            .time_limit
            .duration()
            .map_or_else(|| "UNLIMITED".to_owned(), |d| short_duration(d.as_secs().saturating_sub(used))),
        Field::StartTime => clock.at_or(step.start_time, "N/A"),
        Field::EndTime => clock.at_or(step.end_time, "N/A"),
        Field::ExitCode => words::exit(step.exit),
        Field::SubmitLine => words::cell_or_null(Some(&step.submit_line)),
        Field::Constant(word) => word.to_owned(),
        _ => "N/A".to_owned(),
    }
}

fn partition(job: &JobView) -> String {
    job.allocation.as_ref().map_or_else(|| job.partitions.join(","), |a| a.partition.clone())
}

fn min_cpus(job: &JobView) -> u32 {
    job.spec.min_cpus_per_node.unwrap_or(1).max(job.cpus_per_task)
}

/// `500M`, `2G`, 0 for nothing asked or all.
fn memory(request: MemoryRequest) -> String {
    match request {
        MemoryRequest::Default | MemoryRequest::All => "0".to_owned(),
        MemoryRequest::PerNode(m) | MemoryRequest::PerCpu(m) => amounts::memory(m),
    }
}

fn sharing(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Default => "OK",
        Sharing::Exclusive => "NO",
        Sharing::User => "USER",
        Sharing::Mcs => "MCS",
        Sharing::Oversubscribe => "YES",
    }
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
