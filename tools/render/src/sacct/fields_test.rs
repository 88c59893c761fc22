//! Against what sacct of Slurm 26.05.3 printed for the same jobs.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    field_table::Setting as Table,
    sacct::{choice::tests::choice, efficiency::Efficiency},
    testing::accounting::{at, job, job_12, step, tres, waiting, with_steps},
};
use garrick_accounts::{messages::JobWithSteps, row::Suspension, step::StepRecord};
use garrick_model::{
    ids::{ArrayTask, JobId},
    state::{ExitStatus, JobState, StepState},
    time::Timestamp,
    usage::TaskUsage,
};
use jiff::tz::TimeZone;

fn clock() -> Clock {
    Clock { zone: TimeZone::UTC, now: at(187), format: None }
}

fn set(clock: &Clock) -> Setting<'_> {
    Setting { clock, units: Units::Short, truncate: None, task_list: Some(64), expand: false, uid: None }
}

/// The lines of these jobs under a format.
fn lines(jobs: Vec<JobWithSteps>, format: &str, table: &Table, set: &Setting<'_>) -> String {
    let choice = choice();
    let columns = columns(format).unwrap();
    let mut out = Vec::new();
    if *table == Table::Columns {
        table.heading(&mut out, &columns).unwrap();
    }
    for job in &choice.rows(jobs) {
        for entry in choice.entries(job) {
            table.row(&mut out, &columns, |shown| shown(&entry, set)).unwrap();
        }
    }
    String::from_utf8(out).unwrap()
}

fn listed(jobs: Vec<JobWithSteps>, format: &str) -> String {
    let clock = clock();
    lines(jobs, format, &Table::Columns, &set(&clock))
}

/// `value;value;...` of a field, a line each.
fn values(jobs: Vec<JobWithSteps>, field: &str) -> String {
    let clock = clock();
    lines(jobs, field, &Table::Parsable2("|".into()), &set(&clock)).strip_suffix('\n').unwrap().replace('\n', ";")
}

#[test]
fn the_usual_listing_is_slurms() {
    assert_eq!(
        listed(vec![job_12()], USUAL),
        "\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode 
------------ ---------- ---------- ---------- ---------- ---------- -------- 
12                steps       main    physics          4  COMPLETED      0:0 
12.batch          batch               physics          4  COMPLETED      0:0 
12.extern        extern               physics          4  COMPLETED      0:0 
12.0                one               physics          4  COMPLETED      0:0 
12.1                two               physics          4  COMPLETED      0:0 
12.2                bad               physics          4     FAILED      7:0 
12.3                 p2               physics          1     FAILED      5:0 
12.4                 p1               physics          1  COMPLETED      0:0 
"
    );
}

#[test]
fn steps_have_their_times_tasks_and_exit_codes() {
    let format = "jobid,jobname,state,exitcode,derivedexitcode,ntasks,nnodes,alloccpus,elapsed,start,end";
    let text = listed(vec![job_12()], format);
    let lines: Vec<&str> = text.lines().collect();
    for (at, want) in [
        (
            2,
            "12                steps  COMPLETED      0:0             7:0                 1          4   00:00:08 2026-11-23T08:45:38 2026-11-23T08:45:46 ",
        ),
        (
            3,
            "12.batch          batch  COMPLETED      0:0                        1        1          4   00:00:08 2026-11-23T08:45:38 2026-11-23T08:45:46 ",
        ),
        (
            6,
            "12.1                two  COMPLETED      0:0                        2        1          4   00:00:02 2026-11-23T08:45:39 2026-11-23T08:45:41 ",
        ),
        (
            8,
            "12.3                 p2     FAILED      5:0                        1        1          1   00:00:03 2026-11-23T08:45:41 2026-11-23T08:45:44 ",
        ),
    ] {
        assert_eq!(lines[at], want);
    }
}

#[test]
fn memory_is_in_the_unit_that_is_asked_for() {
    let clock = clock();
    let with = |units| {
        let set = Setting { units, ..set(&clock) };
        let text = lines(vec![job_12()], "jobid,maxrss,reqmem,alloctres", &Table::Parsable2("|".into()), &set);
        text.lines()
            .filter(|line| line.starts_with("12|") || line.starts_with("12.batch"))
            .collect::<Vec<_>>()
            .join(";")
    };
    let unit = |letter| Units::In(Unit::read(letter).unwrap());
    let tail = "billing=4,cpu=4,mem=400M,node=1;12.batch|33292K||cpu=4,mem=400M,node=1";
    assert_eq!(with(Units::Short), format!("12||400M|{tail}"));
    assert_eq!(with(Units::Plain), format!("12||400M|{tail}").replace("33292K", "34091008"));
    assert_eq!(with(unit("M")), format!("12||400M|{tail}").replace("33292K", "32.51M"));
    assert_eq!(
        with(unit("G")),
        format!("12||0.39G|{tail}").replace("mem=400M", "mem=0.39G").replace("33292K", "0.03G")
    );
}

/// Jobs 3, 9_1 and 14 of the transcript of every field.
fn three() -> Vec<JobWithSteps> {
    let third =
        JobRow { state: JobState::Failed, exit: ExitStatus { code: 0, signal: Some(9) }, ..job(3, "sig9", 4, 4) };
    let killed = StepState::Cancelled;
    let used = TaskUsage { user_us: 1_000, system_us: 2_000, max_rss_kib: 0, ..TaskUsage::default() };
    let batch = StepRecord { state: killed, exit: third.exit, usage: used, ..step(&third, "batch", "batch") };
    let third = with_steps(third.clone(), [step(&third, "extern", "extern"), batch]);
    let task = JobRow { array_task: Some(ArrayTask { array_job: JobId(9), index: 1 }), ..job(18, "arr", 9, 11) };
    let task = with_steps(task.clone(), [step(&task, "batch", "batch")]);
    let fourteen = JobRow {
        submit: at(4),
        eligible: Some(at(4)),
        requested: tres("billing=1,cpu=1,gres/gpu=1,license/matlab=2,mem=100,node=1"),
        licenses: Some("matlab:2".into()),
        ..job(14, "lic", 15, 18)
    };
    vec![with_steps(fourteen, []), third, task]
}

#[test]
fn every_field_has_slurms_form() {
    for (field, want) in [
        ("JobID", "3;3.batch;3.extern;9_1;9_1.batch;14"),
        ("JobIDRaw", "3;3.batch;3.extern;18;18.batch;14"),
        ("State", "FAILED;CANCELLED;COMPLETED;COMPLETED;COMPLETED;COMPLETED"),
        ("ExitCode", "0:9;0:9;0:0;0:0;0:0;0:0"),
        ("DerivedExitCode", "0:0;;;0:0;;0:0"),
        ("Account", "physics;physics;physics;physics;physics;physics"),
        (
            "AllocTRES",
            "billing=1,cpu=1,mem=100M,node=1;cpu=1,mem=100M,node=1;cpu=1,mem=100M,node=1;billing=1,cpu=1,mem=100M,node=1;cpu=1,mem=100M,node=1;billing=1,cpu=1,mem=100M,node=1",
        ),
        (
            "ReqTRES",
            "billing=1,cpu=1,mem=100M,node=1;;;billing=1,cpu=1,mem=100M,node=1;;billing=1,cpu=1,gres/gpu=1,license/matlab=2,mem=100M,node=1",
        ),
        ("CPUTime", "00:00:00;00:00:00;00:00:00;00:00:02;00:00:02;00:00:03"),
        ("CPUTimeRAW", "0;0;0;2;2;3"),
        (
            "Eligible",
            "2026-11-23T08:45:38;2026-11-23T08:45:42;2026-11-23T08:45:42;2026-11-23T08:45:38;2026-11-23T08:45:47;2026-11-23T08:45:42",
        ),
        (
            "Submit",
            "2026-11-23T08:45:38;2026-11-23T08:45:42;2026-11-23T08:45:42;2026-11-23T08:45:38;2026-11-23T08:45:47;2026-11-23T08:45:42",
        ),
        (
            "Start",
            "2026-11-23T08:45:42;2026-11-23T08:45:42;2026-11-23T08:45:42;2026-11-23T08:45:47;2026-11-23T08:45:47;2026-11-23T08:45:53",
        ),
        ("Elapsed", "00:00:00;00:00:00;00:00:00;00:00:02;00:00:02;00:00:03"),
        ("Planned", "00:00:04;;;00:00:09;;00:00:11"),
        ("PlannedCPURAW", "4;;;9;;11"),
        ("Licenses", ";;;;;matlab:2"),
        ("NTasks", ";1;1;;1;"),
        ("NodeList", "n1;n1;n1;n1;n1;n1"),
        ("Partition", "main;;;main;;main"),
        ("QOS", "normal;;;normal;;normal"),
        ("Reason", "None;;;None;;None"),
        ("ReqCPUFreq", "Unknown;0;0;Unknown;0;Unknown"),
        ("ReqMem", "100M;;;100M;;100M"),
        ("Restarts", "0;;;0;;0"),
        ("StdIn", "/dev/null;;;/dev/null;;/dev/null"),
        ("StdOut", "/dev/null;;;/dev/null;;/dev/null"),
        ("StdErr", ";;;;;"),
        ("SystemCPU", "00:00.002;00:00.002;00:00:00;00:00:00;00:00:00;00:00:00"),
        ("TotalCPU", "00:00.003;00:00.003;00:00:00;00:00:00;00:00:00;00:00:00"),
        ("Suspended", "00:00:00;00:00:00;00:00:00;00:00:00;00:00:00;00:00:00"),
        ("Timelimit", "00:10:00;;;00:10:00;;00:10:00"),
        ("TimelimitRaw", "10;;;10;;10"),
        ("UID", "3001;;;3001;;3001"),
        ("User", "alice;;;alice;;alice"),
        ("WorkDir", "/home/alice;;;/home/alice;;/home/alice"),
        ("Flags", "SchedMain,StartReceived;;;SchedMain,StartReceived;;SchedMain,StartReceived"),
        ("ConsumedEnergy", "0;0;0;0;0;0"),
        ("Layout", ";Unknown;Unknown;;Unknown;"),
        ("QOSREQ", ";;;;;"),
        ("Exclusive", "NO;;;NO;;NO"),
        ("OverSubscribe", "NO;;;NO;;NO"),
    ] {
        assert_eq!(values(three(), field), want, "{field}");
    }
}

/// Energy of a node is that of the batch script and of the step in it: a job has it once.
#[test]
fn what_steps_used_is_told_with_its_task_and_node() {
    let row = job(24, "susp", 15, 22);
    let used = |joules| TaskUsage {
        user_us: 1_000,
        max_rss_kib: 11_308,
        max_vm_kib: 625_188,
        read: 27_109,
        written: 4513,
        energy_joules: joules,
        ..TaskUsage::default()
    };
    let steps = [
        StepRecord { usage: used(90), ..step(&row, "batch", "batch") },
        step(&row, "extern", "extern"),
        StepRecord { usage: used(50), ..step(&row, "0", "sleep") },
    ];
    let such = || vec![with_steps(row.clone(), steps.clone())];
    let all = "cpu=00:00:00,energy=50,fs/disk=27109,mem=11308K,pages=0,vmem=625188K";
    let most = format!(";{};;{all}", all.replace("energy=50", "energy=90"));
    for (field, want) in [
        ("ConsumedEnergy", "90;90;0;50"),
        ("MaxVMSize", ";625188K;;625188K"),
        ("MaxVMSizeNode", ";n1;;n1"),
        ("MinCPUTask", ";0;;0"),
        ("AveDiskRead", ";0.03M;;0.03M"),
        ("MaxDiskWrite", ";0.00M;;0.00M"),
        ("MaxPages", ";0;;0"),
        ("TRESUsageOutTot", ";energy=0,fs/disk=4513;energy=0;energy=0,fs/disk=4513"),
        ("TRESUsageOutMinTask", ";fs/disk=0;;fs/disk=0"),
        ("TRESUsageInMax", &*most),
    ] {
        assert_eq!(values(such(), field), want, "{field}");
    }
}

#[test]
fn jobs_that_wait_or_never_ran_have_no_times() {
    let pending = waiting(28, "held");
    let cancelled =
        JobRow { state: JobState::Cancelled, cancelled_by: Some(3001), end: Some(at(5)), ..waiting(7, "cancelme") };
    let jobs = || vec![with_steps(cancelled.clone(), []), with_steps(pending.clone(), [])];
    let format = "jobid,state,start,end,elapsed,alloccpus,alloctres,nodelist,nnodes";
    assert_eq!(
        values(jobs(), format),
        "7|CANCELLED by 3001|None|2026-11-23T08:45:43|00:00:00|0||None assigned|1;\
         28|PENDING|Unknown|Unknown|00:00:00|0||None assigned|1"
    );
    assert!(
        listed(jobs(), USUAL)
            .contains("\n7              cancelme       main    physics          0 CANCELLED+      0:0 \n")
    );
    assert_eq!(values(jobs(), "planned"), "00:00:05;00:03:07");
}

#[test]
fn arrays_and_het_jobs_have_slurms_ids() {
    let array = JobRow { waiting: Some("1,3,5-9%2".parse().unwrap()), ..waiting(225, "arrp") };
    let component = JobRow { het: Some((JobId(10), 1)), ..job(11, "het", 0, 1) };
    let jobs = || vec![with_steps(component.clone(), [step(&component, "0", "sleep")]), with_steps(array.clone(), [])];
    assert_eq!(values(jobs(), "jobid,jobidraw"), "10+1|11;10+1.0|11.0;225_[1,3,5-9%2]|225");
    assert!(listed(jobs(), "jobid").ends_with("225_[1,3,5-+ \n"));
    let clock = clock();
    let short = Setting { task_list: Some(3), ..set(&clock) };
    assert!(lines(jobs(), "jobid%30", &Table::Columns, &short).ends_with("225_[1,...] \n"));
    let mut each = choice();
    each.tasks = true;
    let row = with_steps(array, []);
    let ids: Vec<String> = each.entries(&row).iter().map(|entry| entry.id(None)).collect();
    assert_eq!(ids, ["225_1", "225_3", "225_5", "225_6", "225_7", "225_8", "225_9"]);
}

#[test]
fn suspended_time_is_not_elapsed_time() {
    let row = JobRow { suspended_ms: 3_000, ..job(24, "susp", 15, 25) };
    let format = "elapsed,suspended,cputime";
    assert_eq!(
        values(vec![with_steps(row.clone(), [step(&row, "batch", "batch")])], format),
        "00:00:07|00:00:03|00:00:07;00:00:07|00:00:03|00:00:07"
    );
    // A step since before the suspension, and one that began after it.
    let from = at(20).0;
    let suspensions = vec![Suspension { from: Timestamp(from - 3_000), until: Timestamp(from), ms: 3_000 }];
    let row = JobRow { suspensions, ..row };
    let later = StepRecord { start: Some(at(21)), ..step(&row, "1", "late") };
    assert_eq!(
        values(vec![with_steps(row.clone(), [step(&row, "0", "sleep"), later.clone()])], "elapsed,suspended"),
        "00:00:07|00:00:03;00:00:07|00:00:03;00:00:04|00:00:00"
    );
    let stands = JobRow { end: None, state: JobState::Suspended, suspended_since: Some(at(24)), ..row.clone() };
    let runs = StepRecord { state: StepState::Running, end: None, ..later };
    assert_eq!(values(vec![with_steps(stands, [runs])], "state"), "SUSPENDED;SUSPENDED");
    let stands = JobRow { end: None, state: JobState::Suspended, suspended_since: Some(at(180)), ..row };
    assert_eq!(values(vec![with_steps(stands, [])], format), "00:02:42|00:00:10|00:02:42");
}

#[test]
fn times_are_cut_to_the_window() {
    let clock = clock();
    let window = Window { start: at(22), end: at(82) };
    let set = Setting { truncate: Some(window), ..set(&clock) };
    let jobs = vec![
        with_steps(job(5, "tlimit", 9, 90), []),
        with_steps(job(24, "susp", 15, 25), []),
        with_steps(waiting(28, "held"), []),
        with_steps(job(27, "short", 24, 24), []),
    ];
    assert_eq!(
        lines(jobs, "jobid,start,end,elapsed", &Table::Parsable2("|".into()), &set),
        "5|2026-11-23T08:46:00|2026-11-23T08:47:00|00:01:00\n\
         24|2026-11-23T08:46:00|2026-11-23T08:46:03|00:00:03\n\
         27|2026-11-23T08:46:02|2026-11-23T08:46:02|00:00:00\n\
         28|2026-11-23T08:47:00|2026-11-23T08:47:00|00:00:00\n"
    );
}

#[test]
fn a_requeued_run_is_told_apart() {
    let run = JobRow { state: JobState::Cancelled, requeued: true, cancelled_by: Some(0), ..job(25, "rq", 21, 23) };
    let preempted = JobRow { state: JobState::Preempted, requeued: true, ..job(30, "victim1", 63, 66) };
    assert_eq!(values(vec![with_steps(run, []), with_steps(preempted, [])], "state"), "REQUEUED;PREEMPTED");
}

#[test]
fn files_are_shown_with_their_patterns_or_without() {
    let row = JobRow {
        stdout: None,
        array_task: Some(ArrayTask { array_job: JobId(9), index: 4 }),
        stderr: Some("e/%j-%t-%N".into()),
        ..job(18, "arr", 0, 1)
    };
    let clock = clock();
    let jobs = || vec![with_steps(row.clone(), [])];
    let table = Table::Parsable2("|".into());
    assert_eq!(
        lines(jobs(), "stdout,stderr", &table, &set(&clock)),
        "/home/alice/slurm-%A_%a.out|/home/alice/e/%j-%t-%N\n"
    );
    let expand = Setting { expand: true, ..set(&clock) };
    assert_eq!(lines(jobs(), "stdout,stderr", &table, &expand), "/home/alice/slurm-9_4.out|/home/alice/e/18-0-n1\n");
}

#[test]
fn all_formats_name_fields() {
    assert_eq!((FIELDS.len(), columns(LONG).unwrap().len()), (123, 54));
    assert_eq!(columns(BRIEF).unwrap().len(), 3);
    let mut out = Vec::new();
    field_table::help_format(&mut out, FIELDS).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.starts_with("Account             AdminComment        AllocCPUS           AllocNodes         \n"),
        "{text}"
    );
    assert!(text.ends_with("WCKey               WCKeyID             WorkDir            \n"), "{text}");
    // Every value is one line, of whatever is shown.
    assert_eq!(listed(vec![job_12()], "all").lines().count(), 10);
    assert!(Efficiency::of(&job_12(), at(0)).ran());
}

#[test]
fn numbers_and_requests_of_a_job_are_told() {
    use garrick_accounts::row::RowIds;
    use garrick_model::{
        cpu_freq::{CpuFreq, Frequency, Governor},
        entities::association::AssocId,
        ids::Sluid,
        spec::{Distribution, Sharing},
        state::Reason,
    };
    let row = JobRow {
        association: Some(AssocId(16)),
        ids: RowIds { qos: Some(1), wckey: Some(4), reservation: Some(7) },
        default_qos: false,
        first_run: Some(Sluid(13_134_335_027_115_551_744)),
        backfilled: true,
        waited_for: Reason::Dependency,
        sharing: Sharing::User,
        cpu_freq: Some(CpuFreq::Fixed(Frequency::High)),
        ..job(14, "lic", 15, 18)
    };
    let range = CpuFreq::Range(Frequency::Khz(1_200_000), Frequency::Khz(2_440_000), Governor::OnDemand);
    let block = StepRecord { layout: Some(Distribution::Block), tasks: 4, ..step(&row, "0", "a") };
    let used = TaskUsage { frequency_khz: 4 * 2_440_000, ..TaskUsage::default() };
    let block = StepRecord { usage: used, ..block };
    let one = StepRecord { layout: Some(Distribution::Block), cpu_freq: Some(range), ..step(&row, "1", "b") };
    let such = || vec![with_steps(row.clone(), [step(&row, "batch", "batch"), block.clone(), one.clone()])];
    for (field, want) in [
        ("AssocID", "16;16;16;16"),
        ("QOSRAW", "1;;;"),
        ("WCKeyID", "4;;;"),
        ("ReservationId", "7;;;"),
        ("QOSREQ", "normal;;;"),
        ("Exclusive", "USER;;;"),
        ("Reason", "Dependency;;;"),
        ("Flags", "SchedBackfill,StartReceived;;;"),
        ("ReqCPUFreqMin", "Unknown;0;Unknown;1.20M"),
        ("ReqCPUFreqMax", "High;0;Unknown;2.44M"),
        ("ReqCPUFreqGov", "UserSpace;0;Unknown;OnDemand"),
        ("Layout", ";Unknown;Block;Cyclic"),
        ("AveCPUFreq", ";0;2.44M;0"),
    ] {
        assert_eq!(values(such(), field), want, "{field}");
    }
    assert!(values(such(), "OriginalSLUID").starts_with(&Sluid(13_134_335_027_115_551_744).to_string()));
    let chosen = |choice: &crate::sacct::choice::Choice| choice.rows(such()).len();
    let mut of = choice();
    of.associations = vec!["16".into()];
    of.reasons = vec!["dependency".into()];
    of.flags = vec![Flag::SchedBackfill];
    assert_eq!(chosen(&of), 1);
    of.associations = vec!["15".into(), "x".into()];
    assert_eq!(chosen(&of), 0);
}

#[test]
fn energy_of_a_run_is_among_what_it_had() {
    let mut row = job(24, "susp", 15, 22);
    row.energy.add(garrick_model::ids::StepNum::Batch, 90);
    row.energy.add(garrick_model::ids::StepNum::Number(0), 50);
    let jobs = vec![with_steps(row.clone(), [step(&row, "0", "sleep")])];
    assert_eq!(values(jobs, "alloctres"), "billing=1,cpu=1,energy=90,mem=100M,node=1;cpu=1,mem=100M,node=1");
}
