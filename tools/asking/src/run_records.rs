//! Finds a run's records: the controller says which node has them, and a daemon of this host passes the question on. If the
//! controller does not answer, the daemon of this host may have them itself.

use crate::{
    Asker,
    cluster::{self, Answer, Cluster, ClusterError},
    patience,
    search::{NoWay, Until},
    signals::Signals,
};
use garrick_frame::{DoorClient, LinkKind, TunnelTo};
use garrick_model::{
    ids::{ArrayTask, JobId, Sluid},
    messages::{
        command::{CommandReply, CommandRequest, JobSelector},
        records::{
            RecordedBatch, RecordedOrigin, RecordedRun, RecordedStep, RecordsReply, RecordsRequest, WantedRecords,
        },
    },
    refusal::Refusal,
    state::{JobState, Reason},
    step_selector::StepsSelector,
    view::StepCounts,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

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
pub fn by_number(cluster: &Cluster, asker: &dyn Asker, named: &StepsSelector) -> Vec<StepsSelector> {
    // Nothing ends it before its time.
    by_number_until(cluster, asker, named, Until::default()).unwrap_or_else(|_| vec![named.clone()])
}

/// The same until a signal comes, which is the only error.
pub fn by_number_until(
    cluster: &Cluster,
    asker: &dyn Asker,
    named: &StepsSelector,
    until: Until<'_>,
) -> Result<Vec<StepsSelector>, NoWay> {
    if named.run.is_some() {
        return Ok(vec![named.clone()]);
    }
    let tasks = named.task.map(|task| vec![(task, task, 1)]);
    let selector = JobSelector { job: named.job, tasks, het: named.het, run: None };
    match patience::ask_until(cluster, asker, &CommandRequest::list_jobs(vec![selector]), until) {
        Ok(CommandReply::Jobs { jobs, .. }) if !jobs.is_empty() => {
            let of = |job: JobId| StepsSelector { job, task: None, het: None, run: None, which: named.which.clone() };
            Ok(jobs.iter().map(|job| of(job.id)).collect())
        }
        Err(end @ (NoWay::Interrupted(_) | NoWay::TimeUp)) => Err(end),
        _ => Ok(vec![named.clone()]),
    }
}

/// Reads the records of the named steps' run; `take` gets them as they come and says whether it wants more.
pub fn read(
    cluster: &Cluster,
    asker: &dyn Asker,
    named: &StepsSelector,
    wanted: WantedRecords,
    take: &mut dyn FnMut(Part) -> bool,
) -> Answer<Over> {
    let request = |Sought { job, run, task }| RecordsRequest::Read { job, run, task, wanted: wanted.clone() };
    match ask(cluster, asker, named, &request, None, take).map_err(NoWay::into_error)?.1 {
        Heard::Over(over) => Ok(over),
        Heard::SoFar(..) | Heard::Stopped | Heard::Signal(_) => Ok(Over { ending: None, missing: Vec::new() }),
    }
}

/// How a question about records was answered.
#[derive(Debug)]
pub enum Heard {
    /// All of them came.
    Over(Over),
    /// All so far, and what is damaged of them.
    SoFar(StepCounts, Option<String>),
    /// No more were wanted.
    Stopped,
    /// This signal came.
    Signal(i32),
}

/// Whose records are looked for.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// Job; [`JobId::OF_A_RUN`] where a run or a task is named.
    pub job: JobId,
    /// Run.
    pub run: Option<Sluid>,
    /// Task of a job array.
    pub task: Option<ArrayTask>,
}

/// Asks the daemon that has the records of the named steps' run. The door can be used for further questions.
pub fn ask(
    cluster: &Cluster,
    asker: &dyn Asker,
    named: &StepsSelector,
    request: &dyn Fn(Sought) -> RecordsRequest,
    signals: Option<&Signals>,
    take: &mut dyn FnMut(Part) -> bool,
) -> Result<(DoorClient, Heard), NoWay> {
    let until = Until { signals, deadline: None };
    let of_job = |job| Sought { job, run: None, task: None };
    // A run is found by itself, and so is a task; a component that the controller has forgotten is not.
    let sought = match named.run {
        Some(run) => Sought { run: Some(run), ..of_job(JobId::OF_A_RUN) },
        None if named.task.is_some() || named.het.is_some() => {
            match &by_number_until(cluster, asker, named, until)?[..] {
                [one] if one.task.is_none() && one.het.is_none() => of_job(one.job),
                _ if named.array_task().is_some() => Sought { task: named.array_task(), ..of_job(JobId::OF_A_RUN) },
                _ => return Err(ClusterError::from(Refusal::InvalidJobId).into()),
            }
        }
        None => of_job(named.job),
    };
    let Sought { job, run, task } = sought;
    let asked = patience::ask_until(cluster, asker, &CommandRequest::FindRecords { job, run, task }, until);
    let (places, missing) = match asked {
        Ok(CommandReply::RecordPlaces { places, missing }) => (places, missing),
        Ok(_) => return Err(ClusterError::Unexpected("asked for records").into()),
        Err(NoWay::Failed(error)) if error.is_passing() => {
            return match here(cluster, asker, &request(sought), signals, take) {
                Ok(heard) => {
                    asker.warning(&format_args!("{error}: these are the records of this host alone"));
                    Ok(heard)
                }
                Err(end @ (NoWay::Interrupted(_) | NoWay::TimeUp)) => Err(end),
                Err(_) => Err(error.into()),
            };
        }
        Err(no_way) => return Err(no_way),
    };
    let Some(place) = places.into_iter().next() else {
        if missing.is_empty() {
            return Err(ClusterError::from(Refusal::InvalidJobId).into());
        }
        let nodes = missing.join(", ");
        let refusal = Refusal::Unreachable(nodes, "they may have the records, and do not answer".to_owned());
        return Err(ClusterError::from(refusal).into());
    };
    let job = place.job;
    let to = TunnelTo { address: place.address, node: place.node, job: job.0 };
    let (whom, program) = (cluster.clone(), asker.program().to_owned());
    let mut door = until.apart(move || whom.connect_through(LinkKind::CommandToRecords, &program, to))??;
    let heard = converse(&mut door, &request(Sought { run: Some(place.sluid), ..of_job(job) }), signals, take)?;
    Ok((door, heard))
}

/// The daemons of this host alone.
fn here(
    cluster: &Cluster,
    asker: &dyn Asker,
    request: &RecordsRequest,
    signals: Option<&Signals>,
    take: &mut dyn FnMut(Part) -> bool,
) -> Result<(DoorClient, Heard), NoWay> {
    let until = Until { signals, deadline: None };
    let mut outcome = Err(Refusal::InvalidJobId.into());
    for door in cluster.doors_of_nodes() {
        let (program, trusted) = (asker.program().to_owned(), cluster.trusted().to_vec());
        let open = move || cluster::connect_at(&door, LinkKind::CommandToRecords, &program, &trusted);
        let Some(mut door) = until.apart(open)? else { continue };
        outcome = converse(&mut door, request, signals, take).map(|heard| (door, heard));
        if !matches!(&outcome, Err(error) if error.refusal() == Some(&Refusal::InvalidJobId)) {
            break;
        }
    }
    Ok(outcome?)
}

/// Asks at a door, and hears the answer to its end.
pub fn converse(
    door: &mut DoorClient,
    request: &RecordsRequest,
    signals: Option<&Signals>,
    take: &mut dyn FnMut(Part) -> bool,
) -> Answer<Heard> {
    door.set_timeout(Some(PATIENCE))?;
    door.send(request)?;
    loop {
        let reply = match signals {
            None => door.recv()?,
            Some(signals) => match next(door, signals)? {
                Ok(reply) => reply,
                Err(signal) => return Ok(Heard::Signal(signal)),
            },
        };
        let part = match reply {
            RecordsReply::Refused(refusal) => return Err(refusal.into()),
            RecordsReply::Run(run) => Part::Run(run),
            RecordsReply::Batch(batch) => Part::Batch(batch),
            RecordsReply::Steps { origins, steps } => Part::Steps(origins, steps),
            RecordsReply::SoFar { counts, damage } => return Ok(Heard::SoFar(counts, damage)),
            RecordsReply::Over { ending, damage } => {
                return Ok(Heard::Over(Over { ending, missing: damage.into_iter().collect() }));
            }
        };
        if !take(part) {
            return Ok(Heard::Stopped);
        }
    }
}

/// The next message, or the signal that comes before it.
fn next(door: &mut DoorClient, signals: &Signals) -> Answer<Result<RecordsReply, i32>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(reply) = door.try_next()? {
            return Ok(Ok(reply));
        }
        if let Some(signal) = signals.next() {
            return Ok(Err(signal));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // In the words of one that did not answer.
            door.set_timeout(Some(Duration::from_millis(1)))?;
            return Ok(Ok(door.recv()?));
        }
        let mut fds = [PollFd::new(door.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        // Whatever woke it, both are looked at.
        let _ = poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
    }
}
