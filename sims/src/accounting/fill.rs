//! Events of many jobs, stored in batches as the service stores what a controller sends: every row is one that it made itself.

use super::{Amounts, since};
use crate::minibatch::{
    figures::{Findings, Goal},
    inside::Fallible,
};
use garrick_accountant::store::Store;
use garrick_accounts::messages::{Inventory, LogId};
use garrick_events::{
    event::ControllerEvent,
    progress::Position,
    records::{
        job::{Afterwards, End, Owner},
        job_event::JobEvent,
    },
    testing::{ended_row, record, run},
};
use garrick_model::{
    ids::{JobId, NodeIndex, Sluid, StepKey},
    node_shape::NodeShare,
    resources::{CpuSet, MemoryMib},
    spec::JobSpec,
    spec_text::licenses::Licenses,
    state::{ExitStatus, JobState, Reason},
    time::{TimeLimit, Timestamp},
    usage::TaskUsage,
    view::{AllocatedNode, Allocation, StepOrigin, StepRow, StepRows},
};
use std::time::Instant;

/// Jobs of one batch: about as many events as a controller sends at a time.
const BATCH: u32 = 250;
/// Users.
pub const USERS: u32 = 100;
/// Their first number.
const FIRST_USER: u32 = 1_000;
/// When the first job started: not at a full second, so that nothing falls on the end of a window.
pub const BEGIN: i64 = 1_700_000_000_500;
/// How long a job runs, and how long it waited, milliseconds.
pub const RAN: i64 = 60_000;
/// See [`RAN`].
pub const WAITED: i64 = 5_000;
/// CPUs of a job, of a node, and nodes.
const CPUS: u32 = 4;
const NODES: u32 = 500;
/// The log of the controller that these events are said to be of.
pub const LOG: LogId = LogId(1, 1);

/// Whose job it is. Those of one in the middle are this process's user's: commands ask for users that there are.
pub fn user_of(job: u32) -> u32 {
    match job % USERS {
        middle if middle == USERS / 2 => nix::unistd::geteuid().as_raw(),
        other => FIRST_USER + other,
    }
}

/// When a job starts.
pub fn start_of(job: u32, amounts: Amounts) -> i64 {
    BEGIN + i64::from(job) * amounts.pace()
}

/// What the cluster has.
fn inventory() -> Inventory {
    let tres = [("cpu", CPUS * NODES), ("mem", 16_000 * NODES), ("node", NODES)];
    let tres = tres.map(|(name, count)| (name.to_owned(), u64::from(count))).into_iter().collect();
    Inventory { control: None, nodes: format!("n[0-{}]", NODES - 1), tres }
}

/// Stores the jobs, and tells at which rates. Records a second.
pub async fn fill(store: &Store, cluster: &str, amounts: Amounts, findings: &mut Findings) -> Fallible<f64> {
    let came = Timestamp(BEGIN - 86_400_000);
    store.register_at(cluster, &inventory(), came).await?;
    let (of, _) = store.follow(cluster, LOG).await?;
    store.note_inventory(&of, &inventory(), came).await?;
    store.begin(&of, Position(0)).await?;
    let (mut at, mut position, mut seconds) = (1, 0, 0.0);
    while at <= amounts.jobs {
        let last = at.saturating_add(BATCH - 1).min(amounts.jobs);
        let events: Vec<ControllerEvent> = (at..=last).flat_map(|id| job(id, amounts)).collect();
        let upto = position + events.len() as u64;
        let began = Instant::now();
        store.keep(&of, Position(position), Position(upto), events).await?;
        seconds += since(began);
        (position, at) = (upto, last + 1);
    }
    let steps = u64::from(amounts.jobs) * u64::from(amounts.steps);
    findings.pace("jobs stored", amounts.jobs.into(), seconds, None);
    if steps > 0 {
        findings.pace("steps stored in that time", steps, seconds, None);
    }
    let share = seconds / (super::as_f64(amounts.jobs.into()) / 1_000.0);
    findings.amount("of the time, for 1,000 jobs with their steps a second", share, "", Some(Goal::AtMost(1.0)));
    Ok(super::as_f64(amounts.records()) / seconds)
}

/// What happens to a job that runs as it should.
pub fn job(id: u32, amounts: Amounts) -> Vec<ControllerEvent> {
    job_at(id, start_of(id, amounts), amounts.steps)
}

/// The same of one that starts then.
pub fn job_at(id: u32, start: i64, steps: u32) -> Vec<ControllerEvent> {
    let uid = user_of(id);
    let user = format!("user{}", id % USERS);
    let submit_line = format!("sbatch --account=physics -n4 job{id}.sh");
    let account = Some(format!("physics{}", id % 10));
    let work_dir = format!("/home/{user}");
    let spec = JobSpec { name: format!("job{id}"), submit_line, account, work_dir, ..JobSpec::default() };
    // Numbers of tests are small.
    let mut record = record(id % 1_000_000, spec);
    (record.id, record.sluid) = (JobId(id), Sluid(id.into()));
    record.owner = Owner { uid, user, ..record.owner };
    (record.resolved.tasks, record.resolved.cpus) = (CPUS, CPUS);
    record.submit_time = Timestamp(start - WAITED);
    record.eligible_time = Some(Timestamp(start - WAITED));
    let share = NodeShare { cpus: CpuSet::from(0..4), memory: Some(MemoryMib(4_000)), ..NodeShare::default() };
    let allocation = Allocation {
        nodes: vec![AllocatedNode { name: format!("n{}", id % NODES), index: NodeIndex(id % NODES), share }],
        partition: "main".into(),
        exclusive: false,
        licenses: Licenses::default(),
        reservation: None,
    };
    let event = |event| ControllerEvent::Job { job: JobId(id), event: Box::new(event) };
    let mut all = vec![
        event(JobEvent::Submitted(Box::new(record))),
        event(JobEvent::Allocated(Box::new(run(allocation, Timestamp(start))))),
    ];
    if steps > 0 {
        let sluid = Sluid(id.into());
        all.push(ControllerEvent::Steps { job: JobId(id), sluid, steps: report(id, start, uid, steps).into() });
    }
    let exit = ExitStatus::SUCCESS;
    let (state, at) = (JobState::Completed, Timestamp(start + RAN));
    let (reason, then) = (Reason::None, Afterwards::Over);
    all.push(event(JobEvent::Ended(End {
        state,
        reason,
        exit,
        derived: exit,
        at,
        then,
        cause: None,
        by: None,
        sluid: None,
    })));
    all
}

/// The batch script and numbered steps.
#[allow(clippy::needless_update, reason = "what is recorded of steps grows")]
fn report(id: u32, start: i64, uid: u32, steps: u32) -> StepRows {
    let origin = |name: &str, tasks, submit_line: String| StepOrigin {
        name: name.into(),
        uid,
        partition: "main".into(),
        tasks,
        time_limit: TimeLimit::Unlimited,
        srun: None,
        submit_line,
        priority: 0,
        cpu_freq: None,
        layout: None,
    };
    let origins = vec![origin("batch", 1, String::new()), origin("work", 4, format!("srun -n4 work --part {id}"))];
    let row = |at: u32| {
        let key = at.checked_sub(1).map_or(StepKey::BATCH, StepKey::number);
        let (began, ended) = (start + i64::from(at) * 10, start + RAN - 10);
        StepRow {
            origin: u32::from(at > 0),
            start_time: Some(Timestamp(began)),
            end_time: Some(Timestamp(ended)),
            cpus: CPUS,
            memory: MemoryMib(0),
            gres: Vec::new(),
            nodelist: format!("n{}", id % NODES),
            usage: TaskUsage {
                user_us: u64::from(id % 60) * 1_000_000 + u64::from(at),
                system_us: 1_000 * u64::from(at + 1),
                max_rss_kib: 20_000 + u64::from(id % 1_000),
                ..TaskUsage::default()
            },
            ..ended_row(key)
        }
    };
    StepRows { origins, rows: (0..steps).map(row).collect(), ..StepRows::default() }
}
