//! An allocation for `salloc` or `srun` while it is waited for: what each change of the job means, and the messages about it.
//! Plain and synchronous; [`allocation_wait`](super::allocation_wait) watches the job and passes the changes.

use garrick_model::{
    hostlist,
    ids::JobId,
    site_program::Moment,
    state::{JobState, Reason},
    view::JobView,
};
use std::sync::Arc;

/// Whose words are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// `salloc`
    Salloc,
    /// `srun`
    Srun,
}

/// What the cause of a job's end begins with where that program of the site failed.
const CONTROLLERS_PROLOG: &str = Moment::PrologSlurmctld.key();

/// How far an allocation is.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// Go on watching.
    Waiting,
    /// Nodes are given, but not ready.
    Granted,
    /// Ready.
    Ready(Arc<JobView>),
    /// It is over before it was ready.
    Over,
}

/// An allocation that is waited for.
#[derive(Debug)]
pub struct Allocation {
    job: JobId,
    speaker: Speaker,
    immediate: bool,
    said_queued: bool,
    granted: bool,
}

impl Allocation {
    /// After the job was submitted. `immediate`: it is not going to wait in the queue.
    pub const fn new(job: JobId, speaker: Speaker, immediate: bool) -> Self {
        Self { job, speaker, immediate, said_queued: false, granted: false }
    }

    /// The job.
    pub const fn job(&self) -> JobId {
        self.job
    }

    /// Nodes were given.
    pub const fn is_granted(&self) -> bool {
        self.granted
    }

    /// The job looks like this now. Lines to say are added to `say`.
    pub fn view(&mut self, view: &Arc<JobView>, say: &mut Vec<String>) -> Progress {
        match view.state {
            state if state.waits() => {
                // A job that the scheduler has not looked at yet has no reason; most start at that first look.
                if view.reason != Reason::None {
                    self.queued(Some(&view.reason), say);
                }
                Progress::Waiting
            }
            JobState::Configuring => {
                self.grant(say);
                Progress::Granted
            }
            JobState::Running | JobState::Suspended => {
                self.grant(say);
                if self.speaker == Speaker::Salloc {
                    say.push(format!("Nodes {} are ready for job", hostlist::fold(nodes(view))));
                }
                Progress::Ready(Arc::clone(view))
            }
            _ => {
                let unprepared = view.system_comment.as_ref().is_some_and(|c| c.starts_with(CONTROLLERS_PROLOG));
                if unprepared {
                    say.push(format!("{CONTROLLERS_PROLOG} failed, job killed"));
                }
                if !unprepared || self.speaker == Speaker::Salloc {
                    self.over(view.state == JobState::Timeout, say);
                }
                Progress::Over
            }
        }
    }

    /// It still has not started after the time in which most do.
    pub fn still_waiting(&mut self, say: &mut Vec<String>) {
        if !self.granted {
            self.queued(None, say);
        } else if self.speaker == Speaker::Salloc {
            say.push("Waiting for resource configuration".to_owned());
        }
    }

    /// The allocation is over.
    pub fn over(&self, timed_out: bool, say: &mut Vec<String>) {
        let job = self.job;
        match self.speaker {
            Speaker::Salloc if timed_out => {
                say.push(format!("Job {job} has exceeded its time limit and its allocation has been revoked."));
            }
            Speaker::Salloc => say.push(format!("Job allocation {job} has been revoked.")),
            Speaker::Srun => {
                say.push(format!("Force Terminated JobId={job}"));
                say.push(format!("Job allocation {job} has been revoked"));
            }
        }
    }

    fn queued(&mut self, reason: Option<&Reason>, say: &mut Vec<String>) {
        if self.said_queued || self.immediate {
            return;
        }
        self.said_queued = true;
        say.extend(reason.and_then(unavailable).map(str::to_owned));
        if self.speaker == Speaker::Salloc {
            say.push(format!("Pending job allocation {}", self.job));
        }
        say.push(format!("job {} queued and waiting for resources", self.job));
    }

    fn grant(&mut self, say: &mut Vec<String>) {
        if self.granted {
            return;
        }
        self.granted = true;
        if self.said_queued {
            say.push(format!("job {} has been allocated resources", self.job));
        }
        if self.speaker == Speaker::Salloc {
            say.push(format!("Granted job allocation {}", self.job));
        }
    }
}

/// What is said about a job that waits for more than other jobs to end.
fn unavailable(reason: &Reason) -> Option<&'static str> {
    match reason {
        Reason::PartitionNodeLimit
        | Reason::PartitionConfig
        | Reason::PartitionTimeLimit
        | Reason::AccountNotAllowed
        | Reason::QosNotAllowed => Some("Requested partition configuration not available now"),
        Reason::PartitionDown | Reason::PartitionInactive => {
            Some("Required partition not available (inactive or drain)")
        }
        reason if reason.is_unavailable_nodes() => Some("Required node not available (down, drained or reserved)"),
        _ => None,
    }
}

/// Names of the nodes of a job.
pub fn nodes(view: &JobView) -> Vec<&str> {
    view.allocation.iter().flat_map(|a| &a.nodes).map(|n| n.name.as_str()).collect()
}

#[cfg(test)]
#[path = "allocation_test.rs"]
mod tests;
