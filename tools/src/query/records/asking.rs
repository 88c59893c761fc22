//! The way to a run's records: the controller says which node has them, a daemon of this host passes the question on. Where
//! the controller does not answer, the daemon of this host may have them itself.

use crate::{
    cluster::{Answer, Cluster, ClusterError},
    output::Console,
    submit::patience,
};
use garrick_frame::{DoorClient, LinkKind, TunnelTo};
use garrick_model::{
    ids::JobId,
    messages::{
        command::{CommandReply, CommandRequest, JobSelector},
        records::{
            RecordedBatch, RecordedOrigin, RecordedRun, RecordedStep, RecordsReply, RecordsRequest, WantedRecords,
        },
    },
    refusal::Refusal,
    state::{JobState, Reason},
    step_selector::StepsSelector,
};
use std::time::Duration;

/// Reading many records takes a daemon a while before the first comes.
const PATIENCE: Duration = Duration::from_secs(120);

/// What comes of a run's records, in this order.
pub enum Part {
    /// Which run.
    Run(RecordedRun),
    /// What steps are made of that follow.
    Batch(Box<RecordedBatch>),
    /// Steps.
    Steps(Vec<RecordedOrigin>, Vec<RecordedStep>),
}

/// How the reading ended.
#[derive(Debug)]
pub struct Over {
    /// What the run came to an end with, once it was told to end.
    pub ending: Option<(JobState, Reason)>,
    /// What is missing.
    pub missing: Vec<String>,
}

/// The jobs that are named, by their own numbers: of an array all its tasks, of a heterogeneous job all its components. One that
/// the controller does not know stays as it is.
pub fn by_number(cluster: &Cluster, console: &Console, named: &StepsSelector) -> Vec<StepsSelector> {
    if named.run.is_some() {
        return vec![named.clone()];
    }
    let tasks = named.task.map(|task| vec![(task, task, 1)]);
    let selector = JobSelector { job: named.job, tasks, het: named.het, run: None };
    match patience::ask(cluster, console, &CommandRequest::list_jobs(vec![selector])) {
        Ok(CommandReply::Jobs { jobs, .. }) if !jobs.is_empty() => {
            let of = |job: JobId| StepsSelector { job, task: None, het: None, run: None, which: named.which.clone() };
            jobs.iter().map(|job| of(job.id)).collect()
        }
        _ => vec![named.clone()],
    }
}

/// Reads the records of the named steps' run; `take` gets them as they come and says whether it wants more.
pub fn read(
    cluster: &Cluster,
    console: &Console,
    named: &StepsSelector,
    wanted: WantedRecords,
    take: &mut dyn FnMut(Part) -> bool,
) -> Answer<Over> {
    // A run is found by itself; a task or a component that the controller has forgotten is not.
    let (job, run) = match named.run {
        Some(run) => (JobId::OF_A_RUN, Some(run)),
        None if named.task.is_some() || named.het.is_some() => match &by_number(cluster, console, named)[..] {
            [one] if one.task.is_none() && one.het.is_none() => (one.job, None),
            _ => return Err(Refusal::InvalidJobId.into()),
        },
        None => (named.job, None),
    };
    let asked = patience::ask(cluster, console, &CommandRequest::FindRecords { job, run });
    let (places, missing) = match asked {
        Ok(CommandReply::RecordPlaces { places, missing }) => (places, missing),
        Ok(_) => return Err(ClusterError::Unexpected("asked for records")),
        Err(error) if error.is_passing() => {
            let request = RecordsRequest::Read { job, run, wanted };
            return match here(cluster, console, &request, take) {
                Ok(over) => {
                    console.warning(format_args!("{error}: these are the records of this host alone"));
                    Ok(over)
                }
                Err(_) => Err(error),
            };
        }
        Err(error) => return Err(error),
    };
    let Some(place) = places.into_iter().next() else {
        if missing.is_empty() {
            return Err(Refusal::InvalidJobId.into());
        }
        let nodes = missing.join(", ");
        return Err(Refusal::Unreachable(nodes, "they may have the records, and do not answer".to_owned()).into());
    };
    let job = place.job;
    let to = TunnelTo { address: place.address, node: place.node, job: job.0 };
    let door = cluster.connect_through(LinkKind::CommandToRecords, console.program(), to)?;
    converse(door, &RecordsRequest::Read { job, run: Some(place.sluid), wanted }, take)
}

/// The daemons of this host alone.
fn here(
    cluster: &Cluster,
    console: &Console,
    request: &RecordsRequest,
    take: &mut dyn FnMut(Part) -> bool,
) -> Answer<Over> {
    let mut outcome = Err(Refusal::InvalidJobId.into());
    for door in cluster.connect_to_nodes(LinkKind::CommandToRecords, console.program()) {
        outcome = converse(door, request, take);
        if !matches!(&outcome, Err(error) if error.refusal() == Some(&Refusal::InvalidJobId)) {
            break;
        }
    }
    outcome
}

fn converse(mut door: DoorClient, request: &RecordsRequest, take: &mut dyn FnMut(Part) -> bool) -> Answer<Over> {
    door.set_timeout(Some(PATIENCE))?;
    door.send(request)?;
    let stopped = Over { ending: None, missing: Vec::new() };
    loop {
        let part = match door.recv::<RecordsReply>()? {
            RecordsReply::Refused(refusal) => return Err(refusal.into()),
            RecordsReply::Run(run) => Part::Run(run),
            RecordsReply::Batch(batch) => Part::Batch(batch),
            RecordsReply::Steps { origins, steps } => Part::Steps(origins, steps),
            RecordsReply::Over { ending, damage } => return Ok(Over { ending, missing: damage.into_iter().collect() }),
        };
        if !take(part) {
            return Ok(stopped);
        }
    }
}
