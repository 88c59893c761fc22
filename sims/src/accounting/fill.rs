//! Events of many jobs, stored in batches as the service stores what a controller sends.

use super::{Amounts, since};
use crate::minibatch::{
    figures::{Findings, Goal},
    inside::Fallible,
};
use garrick_accountant::store::Store;
use garrick_accounts::messages::LogId;
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
    view::{AllocatedNode, Allocation, StepOrigin, StepRow, StepRows},
};
use std::time::Instant;

/// Jobs of one batch: about as many events as a controller sends at a time.
const BATCH: u32 = 250;
/// Between two starts, milliseconds: 10 million jobs are 116 days.
pub const PACE: i64 = 1_000;
/// Users.
pub const USERS: u32 = 100;
/// When the first job started.
pub const BEGIN: i64 = 1_700_000_000_000;

/// Stores the jobs, and tells at which rates.
pub async fn fill(store: &Store, amounts: Amounts, findings: &mut Findings) -> Fallible<()> {
    let (of, _) = store.follow("c", LogId(1, 1)).await?;
    store.begin(&of, Position(0)).await?;
    let (mut at, mut position, mut seconds) = (1, 0, 0.0);
    while at <= amounts.jobs {
        let last = at.saturating_add(BATCH - 1).min(amounts.jobs);
        let events: Vec<ControllerEvent> = (at..=last).flat_map(|id| job(id, amounts.steps)).collect();
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
    findings.amount("of one core, for 1,000 jobs with their steps a second", share, "", Some(Goal::AtMost(1.0)));
    Ok(())
}

/// What happens to a job that runs as it should.
fn job(id: u32, steps: u32) -> Vec<ControllerEvent> {
    let start = BEGIN + i64::from(id) * PACE;
    let uid = 1000 + id % USERS;
    let user = format!("user{}", id % USERS);
    let submit_line = format!("sbatch --account=physics -n4 job{id}.sh");
    let spec = JobSpec { name: format!("job{id}"), submit_line, ..JobSpec::default() };
    let mut record = record(id, spec);
    record.owner = Owner { uid, user, ..record.owner };
    record.submit_time = Timestamp(start - 5_000);
    let share = NodeShare { cpus: CpuSet::from(0..4), memory: Some(MemoryMib(4_000)), ..NodeShare::default() };
    let allocation = Allocation {
        nodes: vec![AllocatedNode { name: format!("n{}", id % 500), index: NodeIndex(id % 500), share }],
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
        all.push(ControllerEvent::Steps { job: JobId(id), sluid, steps: report(start, uid, steps).into() });
    }
    let exit = ExitStatus::SUCCESS;
    let (state, at) = (JobState::Completed, Timestamp(start + 60_000));
    let (reason, then) = (Reason::None, Afterwards::Over);
    all.push(event(JobEvent::Ended(End { state, reason, exit, derived: exit, at, then, cause: None, by: None })));
    all
}

fn report(start: i64, uid: u32, steps: u32) -> StepRows {
    let origin = StepOrigin {
        name: "work".into(),
        uid,
        partition: "main".into(),
        tasks: 4,
        time_limit: TimeLimit::Unlimited,
        srun: None,
        submit_line: "srun work".into(),
        priority: 0,
    };
    let (began, ended) = (Some(Timestamp(start)), Some(Timestamp(start + 50_000)));
    let row = |number| StepRow { start_time: began, end_time: ended, cpus: 4, ..ended_row(StepKey::number(number)) };
    StepRows { origins: vec![origin], rows: (0..steps).map(row).collect(), ..StepRows::default() }
}
