//! What `garrick run` says about a job on standard error: on a terminal one line that is drawn again and again, with bars
//! ([`crate::waiting::wait_bar`]), else a line now and then. Counts of steps come from the job's step manager.

use super::wait_bar::Standing;
use garrick_asking::cluster::{self, Cluster};
use garrick_frame::{DoorClient, LinkKind, TunnelTo};
use garrick_model::{
    messages::{
        command::{CommandReply, CommandRequest},
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    state::JobState,
    time::{Timestamp, short_duration},
    view::{JobView, StepCounts},
};
use garrick_render::words;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// Least time between two progress messages.
const PROGRESS_MS: u32 = 200;
/// Pause before a step manager that had nothing left to do is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// Least time between two lines where standard error is no terminal.
const QUIET_PAUSE: Duration = Duration::from_secs(5);

/// A conversation with a job's step manager about its steps.
pub struct Steps {
    door: Option<DoorClient>,
    not_before: Instant,
    /// What was heard last.
    pub standing: Standing,
}

impl Steps {
    /// Not connected yet.
    pub fn new(now: Instant) -> Self {
        Self { door: None, not_before: now, standing: Standing::default() }
    }

    /// Takes what has come, and asks where nothing is asked. Failures only mean that there is nothing new: the job may
    /// not have started yet, or be over.
    pub fn look(&mut self, cluster: &Cluster, job: &JobView, now: Instant) {
        if self.door.is_none() && now >= self.not_before && job.state == JobState::Running {
            self.not_before = now + ASK_AGAIN;
            self.door = ask(cluster, job);
        }
        loop {
            let Some(door) = &mut self.door else { return };
            match door.try_next::<StepMgrToCommand>() {
                Ok(None) => return,
                Ok(Some(StepMgrToCommand::Progress(counts))) => self.standing = counts.into(),
                Ok(Some(StepMgrToCommand::Groups { counts, groups, left_out, rest })) => {
                    self.standing = Standing { counts, groups, left_out, rest };
                }
                Ok(Some(StepMgrToCommand::Drained { counts, .. })) => {
                    self.standing = counts.into();
                    self.door = None;
                }
                Ok(Some(_)) | Err(_) => self.door = None,
            }
        }
    }
}

impl Steps {
    /// The counts of a job that is over: the step manager may have gone before it could tell its last, the controller has
    /// what it reported.
    pub fn at_the_end(&self, job: &JobView) -> StepCounts {
        let (reported, heard) = (job.steps.counts, self.standing.counts);
        if reported.done + reported.failed >= heard.done + heard.failed { reported } else { heard }
    }
}

fn ask(cluster: &Cluster, job: &JobView) -> Option<DoorClient> {
    let CommandReply::StepManager(place) =
        cluster.ask("garrick", &CommandRequest::LocateStepManager { job: job.id }).ok()?
    else {
        return None;
    };
    let door = Path::new(&place.door);
    let mut client = if cluster::is_here(door).unwrap_or(false) {
        let greeting = cluster::greeting("garrick");
        DoorClient::connect(door, LinkKind::CommandToStepMgr, &greeting, Some(cluster::ANSWER_TIMEOUT)).ok()?
    } else {
        let to = TunnelTo { address: place.address, node: place.node, job: job.id.0 };
        cluster.connect_through(LinkKind::CommandToStepMgr, "garrick", to).ok()?
    };
    let (steps, progress_ms) = (Vec::new(), PROGRESS_MS);
    client.send(&CommandToStepMgr::Wait { steps, any: false, progress_ms, groups: true, stay: false }).ok()?;
    Some(client)
}

/// The line about a job.
pub fn line(job: &JobView, counts: StepCounts, now: Timestamp) -> String {
    let mut text = format!("job {} {}", job.id, words::job_state(job.state));
    if job.state.waits() {
        text.push_str(&format!(" ({})", words::reason(&job.reason)));
    }
    let since = job.start_time.filter(|_| !job.state.waits()).unwrap_or(job.submit_time);
    let until = if job.state.is_live() { now } else { job.end_time.unwrap_or(now) };
    text.push_str(&format!(" {}", short_duration(until.since(since).as_secs())));
    if counts != StepCounts::default() {
        text.push_str(&format!("  steps: {}", words::step_counts(&counts)));
    }
    text
}

/// The line where there is no terminal: now and then, and if it changed.
#[derive(Debug)]
pub struct Ticker {
    shown: String,
    last: Instant,
}

impl Ticker {
    /// Nothing said yet. A job that is soon over gets its last line only.
    pub const fn new(now: Instant) -> Self {
        Self { shown: String::new(), last: now }
    }

    /// What to write so that this line is known.
    pub fn show(&mut self, line: &str, now: Instant) -> String {
        if line == self.shown || now.duration_since(self.last) < QUIET_PAUSE {
            return String::new();
        }
        self.shown = line.to_owned();
        self.last = now;
        format!("{line}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gets_a_line_now_and_then() {
        let now = Instant::now();
        let mut ticker = Ticker::new(now);
        assert_eq!(ticker.show("a", now), "");
        assert_eq!(ticker.show("b", now + QUIET_PAUSE), "b\n");
        assert_eq!(ticker.show("c", now + QUIET_PAUSE), "");
        assert_eq!(ticker.show("d", now + 2 * QUIET_PAUSE), "d\n");
        assert_eq!(ticker.show("d", now + 4 * QUIET_PAUSE), "");
    }
}
