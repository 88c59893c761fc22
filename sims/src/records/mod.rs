//! The cost of durability: how fast the controller accepts jobs, compared with the rate at which this disk syncs at all and with
//! the same controller on a disk in memory; and how soon a controller that was killed answers for all of them.
//!
//! The controller is real, without nodes: jobs wait in its queue. Jobs are what `sbatch` makes of a small script in a usual
//! environment, requested over the controller's door by several clients at a time.

mod controller;
mod crowd;
mod floor;
mod planning;
mod priorities;
mod queries;

pub use crowd::{ask, crowd};
pub use planning::planning;
pub use priorities::priorities;
pub use queries::queries;

use crate::minibatch::figures::Findings;
use controller::Controller;
use garrick_frame::{DoorClient, LinkKind};
use garrick_model::{
    ids::RequestId,
    messages::command::{CommandReply, CommandRequest},
    spec::JobSpec,
};
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// Requests under way at a time, by as many threads as there are users at their terminals.
const AT_ONCE: usize = 256;
const THREADS: usize = 4;
/// No request takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A disk in memory, for the rate without durability.
const MEMORY: &str = "/dev/shm";

/// Why nothing was measured.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn client(door: &Path) -> Fallible<DoorClient> {
    Ok(DoorClient::connect(door, LinkKind::CommandToDaemon, "garrick-records", Some(PATIENCE))?)
}

fn submission_of(spec: JobSpec) -> CommandRequest {
    CommandRequest::SubmitJob { request: RequestId::random(), spec: Box::new(spec) }
}

/// Submits `count` jobs with `window` requests under way. Returns the seconds that it took until the last was accepted.
fn submit(door: &Path, spec: &JobSpec, count: usize, window: usize) -> Fallible<f64> {
    let mut client = client(door)?;
    let began = Instant::now();
    let (mut sent, mut accepted) = (0, 0);
    while accepted < count {
        while sent < count && sent - accepted < window {
            client.send(&submission_of(spec.clone()))?;
            sent += 1;
        }
        match client.recv::<CommandReply>()? {
            CommandReply::Submitted { .. } => accepted += 1,
            other => return Err(format!("a job was not accepted: {other:?}").into()),
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

/// The same by several at a time.
fn submit_together(door: &Path, spec: &JobSpec, count: usize) -> Fallible<f64> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let each = count / THREADS;
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(move || submit(door, spec, each, AT_ONCE / THREADS).map_err(|e| e.to_string())))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let outcome = thread.join().map_err(|_| "a thread that submits panicked".to_owned())?;
            outcome.map(drop)
        })
    })?;
    Ok(began.elapsed().as_secs_f64())
}

/// Rates of submission.
pub fn rates(jobs: usize) -> Fallible<Findings> {
    let mut found = Findings::default();
    let serial = (jobs / 10).max(1);
    let memory = Controller::up(Some(Path::new(MEMORY)))?;
    let disk = Controller::up(None)?;
    // What one job is in the journal.
    let bytes = disk.record_bytes()?;
    let (mut syncs, mut one, mut many, mut one_fast, mut many_fast) = (0.0, 0.0, 0.0, 0.0, 0.0);
    // In turns, so that what else this machine does meets all of them.
    let rounds = 5;
    for _ in 0..rounds {
        syncs += floor::syncs_per_second(disk.home(), bytes)?;
        one += serial as f64 / rounds as f64 / submit(disk.door(), disk.spec(), serial / rounds, 1)?;
        one_fast += serial as f64 / rounds as f64 / submit(memory.door(), memory.spec(), serial / rounds, 1)?;
        many += jobs as f64 / rounds as f64 / submit_together(disk.door(), disk.spec(), jobs / rounds)?;
        many_fast += jobs as f64 / rounds as f64 / submit_together(memory.door(), memory.spec(), jobs / rounds)?;
    }
    let rounds = rounds as f64;
    let (syncs, one, many) = (syncs / rounds, one / rounds, many / rounds);
    let (one_fast, many_fast) = (one_fast / rounds, many_fast / rounds);
    found.table(
        format!("Submissions a second ({bytes} bytes a job in the journal, {AT_ONCE} at a time)"),
        &["", "durable", "disk in memory", "durable / memory", "durable / raw fdatasync"],
        vec![
            vec![
                "one after the other".to_owned(),
                format!("{one:.0}"),
                format!("{one_fast:.0}"),
                format!("{:.2}", one / one_fast),
                format!("{:.2}", one / syncs),
            ],
            vec![
                "together".to_owned(),
                format!("{many:.0}"),
                format!("{many_fast:.0}"),
                format!("{:.2}", many / many_fast),
                format!("{:.2}", many / syncs),
            ],
        ],
    );
    found.note(format!(
        "floor: {syncs:.0} writes of {bytes} bytes with an fdatasync each, a second, one after the other"
    ));
    disk.down()?;
    memory.down()?;
    Ok(found)
}

/// A controller killed with so many jobs in its queue, and started again.
pub fn restart(jobs: usize) -> Fallible<Findings> {
    let mut found = Findings::default();
    let mut controller = Controller::up(None)?;
    let took = submit_together(controller.door(), controller.spec(), jobs)?;
    found.note(format!("{jobs} jobs submitted in {took:.1} s"));
    let memory = controller.memory_mib()?;
    controller.kill()?;
    let (read, bytes) = floor::read_journal(&controller.state())?;
    let began = Instant::now();
    controller.start()?;
    let answers = began.elapsed().as_secs_f64();
    let listed = controller.count_jobs()?;
    let lists = began.elapsed().as_secs_f64();
    // The one that `sbatch` submitted is among them.
    if listed <= jobs / THREADS * THREADS {
        return Err(format!("{listed} jobs after the restart").into());
    }
    let rows = [
        ("until it answers", answers),
        ("until it has listed all jobs", lists),
        ("floor: the journal read and decoded", read),
    ];
    found.table(
        format!("Restart of a controller killed with {listed} jobs ({:.1} MiB of journal)", bytes as f64 / 1048576.0),
        &["", "seconds", "of the floor"],
        rows.iter().map(|(what, s)| vec![(*what).to_owned(), format!("{s:.2}"), format!("{:.2}", s / read)]).collect(),
    );
    found.amount("memory before it was killed", memory, "MiB", None);
    found.amount("memory after the restart", controller.memory_mib()?, "MiB", None);
    found.amount("peak of that", controller.peak_memory_mib()?, "MiB", None);
    controller.down()?;
    Ok(found)
}
