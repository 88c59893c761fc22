//! `scontrol show job`.

use super::{Record, or_null};
use crate::{
    amounts::{self, Amounts as _},
    clock::Clock,
    words,
};
use garrick_model::{
    node_shape::SpecCores,
    resources::MemoryRequest,
    spec::{JobKind, Sharing},
    state::JobState,
    time::{TimeLimit, long_duration},
    view::JobView,
};

/// How much is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// The usual.
    #[default]
    Plain,
    /// `-d`: run identity, derived exit code, what the step manager reported, and what is allocated on each node.
    Detailed,
}

/// The record of a job.
pub fn record(job: &JobView, clock: &Clock, detail: Detail) -> Record {
    let mut r = Record::default();
    identity(&mut r, job, detail);
    state(&mut r, job, detail);
    times(&mut r, job, clock);
    placement(&mut r, job, detail);
    sizes(&mut r, job, detail);
    requirements(&mut r, job);
    texts(&mut r, job);
    r.line_if("CpusPerTres", amounts::cpus_per_tres(job).as_deref());
    r.line_if("MemPerTres", amounts::mem_per_tres(job).as_deref());
    r.line_if("TresPerJob", amounts::tres_per_job(job).as_deref());
    r.line_if("TresPerNode", amounts::tres_per_node(job).as_deref());
    r.line_if("TresPerSocket", amounts::tres_per_socket(job).as_deref());
    r.line_if("TresPerTask", amounts::tres_per_task(job).as_deref());
    if let Some(asked) = job.spec.cpu_freq {
        r.line(asked.record());
    }
    r.line_if("OOMKillStep", job.spec.oom_kill_step.map(|kills| if kills { "1" } else { "0" }));
    let mail = &job.spec.mail;
    if !mail.types.is_empty() {
        r.line(format!("MailUser={} MailType={}", mail.user.as_deref().unwrap_or(&job.user), mail.types));
    }
    r
}

fn identity(r: &mut Record, job: &JobView, detail: Detail) {
    let spec = &*job.spec;
    r.line(format!("JobId={}{} JobName={}", job.id, array_keys(job), spec.name));
    r.line_if("HetJobIdSet", amounts::het_ids(job).as_deref());
    if detail == Detail::Detailed {
        r.line(format!("SLUID={}", job.sluid));
    }
    let label = spec.mcs_label.as_deref().unwrap_or("N/A");
    r.line(format!("UserId={}({}) GroupId={}({}) MCS_label={label}", job.user, job.uid, job.group, job.gid));
    r.line(format!(
        "Priority={} Nice={} Account={} QOS={}{}",
        job.priority,
        spec.nice,
        or_null(spec.account.as_deref()),
        or_null(spec.qos.as_deref()),
        spec.wckey.as_ref().map(|key| format!(" WCKey={key}")).unwrap_or_default()
    ));
}

fn state(r: &mut Record, job: &JobView, detail: Detail) {
    r.line(format!(
        "JobState={} Reason={} Dependency={}",
        words::job_state(job.state),
        words::reason(&job.reason).replace(' ', "_"),
        amounts::dependencies(job)
    ));
    r.line(format!(
        "Requeue={} Restarts={} BatchFlag={} Reboot={} ExitCode={}",
        u8::from(job.requeue),
        job.restart_count(),
        u8::from(job.spec.kind == JobKind::Batch),
        u8::from(job.spec.reboot),
        words::exit(job.exit)
    ));
    if detail == Detail::Detailed {
        r.line(format!("DerivedExitCode={}", words::exit(job.derived_exit)));
    }
}

/// Where it may run and runs, and its steps there.
fn placement(r: &mut Record, job: &JobView, detail: Detail) {
    let spec = &*job.spec;
    let pending = job.state.waits();
    let partition = job.allocation.as_ref().map_or_else(|| job.partitions.join(","), |a| a.partition.clone());
    r.line(format!("Partition={partition} AllocNode:Sid={}:{}", spec.submit_host, spec.alloc_sid));
    r.line(format!(
        "ReqNodeList={} ExcNodeList={}",
        or_null(Some(&amounts::fold(&spec.nodelist))),
        or_null(Some(&amounts::fold(&spec.exclude)))
    ));
    r.line(format!("NodeList={}", if pending { String::new() } else { amounts::node_list(job) }));
    if !pending {
        r.line_if("BatchHost", amounts::batch_host(job));
    }
    r.line("StepMgrEnabled=Yes");
    if spec.expedite {
        r.line("ExpeditedRequeue=Yes");
    }
    if detail == Detail::Detailed {
        let tally = job.steps;
        r.line(format!(
            "StepsQueued={} StepsRunning={} StepsDone={} StepsFailed={} StepsUnreported={} StepsDropped={}",
            tally.counts.queued,
            tally.counts.running,
            tally.counts.done,
            tally.counts.failed,
            tally.unreported,
            tally.dropped
        ));
    }
}

/// Command, comments and files.
fn texts(r: &mut Record, job: &JobView) {
    let spec = &*job.spec;
    r.line(format!("Command={}", or_null(spec.command.as_deref())));
    if !spec.submit_line.is_empty() || spec.cron.is_some() {
        r.line(format!("SubmitLine={}", or_null(Some(spec.submit_line.as_str()).filter(|line| !line.is_empty()))));
    }
    r.line(format!("WorkDir={}", spec.work_dir));
    r.line_if("AdminComment", job.admin_comment.as_deref());
    r.line_if("SystemComment", job.system_comment.as_deref());
    r.line_if("Comment", spec.comment.as_deref());
    r.line_if("Extra", spec.extra.as_deref());
    if spec.kind == JobKind::Batch {
        r.line(format!("StdErr={}", job.stderr_path.as_deref().unwrap_or("")));
        r.line(format!("StdIn={}", job.stdin_path.as_deref().unwrap_or("/dev/null")));
        r.line(format!("StdOut={}", job.stdout_path.as_deref().unwrap_or("")));
    }
}

/// `ArrayJobId=504 ArrayTaskId=3-20%2 ArrayTaskThrottle=2`, or the component of a heterogeneous job.
fn array_keys(job: &JobView) -> String {
    match (&job.array_pending, job.array_task) {
        (Some(waiting), None) => {
            let throttle = waiting.limit.map(|n| format!(" ArrayTaskThrottle={n}")).unwrap_or_default();
            format!(" ArrayJobId={} ArrayTaskId={waiting}{throttle}", job.id)
        }
        (_, Some(task)) => format!(" ArrayJobId={} ArrayTaskId={}", task.array_job, task.index),
        (None, None) => {
            job.spec.het.map(|(leader, offset)| format!(" HetJobId={leader} HetJobOffset={offset}")).unwrap_or_default()
        }
    }
}

fn times(r: &mut Record, job: &JobView, clock: &Clock) {
    let spec = &*job.spec;
    let minimum = spec.time_min.map_or_else(|| "N/A".to_owned(), TimeLimit::scontrol_text);
    r.line(format!(
        "RunTime={} TimeLimit={} TimeMin={minimum}",
        long_duration(job.run_secs(clock.now)),
        job.time_limit.scontrol_text()
    ));
    let eligible = clock.at_or(job.eligible_time, "Unknown");
    r.line(format!("SubmitTime={} EligibleTime={eligible}", clock.at(job.submit_time)));
    r.line(format!("AccrueTime={}", clock.at_or(job.accrue_time(), "Unknown")));
    r.line(format!(
        "StartTime={} EndTime={} Deadline={}",
        clock.at_or(job.start_time.or(spec.begin.filter(|_| job.state.waits())), "Unknown"),
        clock.at_or(job.end_time.filter(|_| !job.runs_again), "Unknown"),
        clock.at_or(spec.deadline, "N/A")
    ));
    if let Some(schedule) = &spec.cron {
        r.line(format!("{}CrontabSpec=\"{schedule}\"", if job.recurs { "CronJob=Yes " } else { "" }));
    }
    if let Some(times) = job.preempt_times() {
        r.line(format!("PreemptEligibleTime={} PreemptTime={}", clock.at(times.eligible), clock.at(times.at)));
    }
    let ran = if job.state == JobState::Suspended { job.run_secs(clock.now) } else { 0 };
    r.line(format!(
        "SuspendTime={} SecsPreSuspend={ran} LastSchedEval={} Scheduler=Backfill",
        clock.at_or(job.suspended.map(|times| times.at), "None"),
        clock.at_or(job.last_sched_eval, "Unknown")
    ));
}

/// How much it asked for, and has.
fn sizes(r: &mut Record, job: &JobView, detail: Detail) {
    let spec = &*job.spec;
    let nodes = match spec.nodes {
        Some(_) if job.state.waits() && !spec.node_sizes.is_empty() => spec.node_sizes.to_string(),
        Some(count) if job.state.waits() => {
            format!("{}-{}", job.node_count(), count.max.unwrap_or(count.min).max(job.node_count()))
        }
        // As many as there are tasks, where no number of nodes is named.
        None if job.state.waits() => format!("{}-{}", job.node_count(), job.tasks.max(job.node_count())),
        _ => job.node_count().to_string(),
    };
    r.line(format!(
        "NumNodes={nodes} NumCPUs={} NumTasks={} CPUs/Task={} ReqB:S:C:T=0:{}:{}:{}",
        job.cpu_count(),
        job.tasks,
        job.cpus_per_task,
        spec.layout.sockets_per_node.unwrap_or(0),
        amounts::or_any(spec.layout.cores_per_socket),
        amounts::or_any(spec.layout.threads_per_core)
    ));
    r.line(format!("ReqTRES={}", amounts::requested_tres(job)));
    r.line(format!("AllocTRES={}", or_null(Some(&amounts::allocated_tres(job)))));
    r.line(format!(
        "Socks/Node={} NtasksPerN:B:S:C={}:0:{}:{} {}",
        amounts::or_any(spec.layout.sockets_per_node),
        spec.tasks_per_node.unwrap_or(0),
        amounts::or_any(spec.layout.tasks_per_socket),
        amounts::or_any(spec.layout.tasks_per_core),
        match spec.layout.left_to_system {
            Some(SpecCores::Threads(count)) => format!("ThreadSpec={count}"),
            Some(SpecCores::Cores(count)) => format!("CoreSpec={count}"),
            None => "CoreSpec=*".to_owned(),
        }
    ));
    if detail == Detail::Detailed {
        r.line(format!("JOB_GRES={}", or_null(amounts::allocated_gres(job).as_deref())));
        for line in amounts::shares_by_node(job) {
            r.line(format!("  {line}"));
        }
    }
}

/// What nodes have to have, and how they are shared.
fn requirements(r: &mut Record, job: &JobView) {
    let spec = &*job.spec;
    let memory = match job.memory {
        MemoryRequest::PerCpu(m) => format!("MinMemoryCPU={}", amounts::memory(m)),
        MemoryRequest::PerNode(m) => format!("MinMemoryNode={}", amounts::memory(m)),
        MemoryRequest::Default | MemoryRequest::All => "MinMemoryNode=0".to_owned(),
    };
    r.line(format!(
        "MinCPUsNode={} {memory} MinTmpDiskNode={}",
        spec.min_cpus_per_node.unwrap_or(1).max(job.cpus_per_task),
        spec.tmp_disk_mib
    ));
    let prefer = spec.prefer.as_deref().map_or_else(String::new, |prefer| format!("Prefer={prefer} "));
    let delay = long_duration(spec.delay_boot_secs.unwrap_or(0));
    r.line(format!("Features={} {prefer}DelayBoot={delay}", or_null(spec.constraint.as_deref())));
    r.line_if("Reservation", amounts::reservation(job).as_deref());
    // What was asked for, until it has nodes of which the partition says whether they are shared.
    let asks = job.state.waits() && spec.sharing == Sharing::Oversubscribe;
    let sharing = if asks { Sharing::Oversubscribe } else { job.sharing };
    let (shared, exclusive) = sharing.words(spec.topology.exclusive);
    r.line(format!(
        "OverSubscribe={shared} Exclusive={exclusive} Contiguous={} Licenses={} LicensesAlloc={} Network=(null)",
        u8::from(spec.contiguous),
        or_null(spec.licenses.as_deref()),
        or_null(amounts::licenses(job).as_deref())
    ));
    if let Some(most) = spec.topology.switches {
        let wait = spec.topology.switches_wait_secs.map_or_else(String::new, |s| format!("@{}", long_duration(s)));
        r.line(format!("ReqSwitch={most}{wait}"));
    }
    if let Some(size) = spec.topology.segment {
        r.line(format!("SegmentSize={size}"));
    }
}
