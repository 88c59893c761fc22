//! `scontrol notify`: lines for the commands that watch a job.

use garrick_model::ids::JobId;
use std::sync::Arc;
use tokio::sync::broadcast::{self, Receiver, error::RecvError};

/// Lines that wait for a slow command; it misses older ones.
const MOST: usize = 256;

/// A line about a job.
type Notice = (JobId, Arc<str>);

/// Where lines come from.
#[derive(Clone, Debug)]
pub struct Notices(broadcast::Sender<Notice>);

impl Default for Notices {
    fn default() -> Self {
        Self(broadcast::channel(MOST).0)
    }
}

impl Notices {
    /// Tells all that watch the job.
    pub fn send(&self, job: JobId, text: String) {
        // Nobody may be watching.
        let _ = self.0.send((job, text.into()));
    }

    /// From here on.
    pub fn listen(&self, job: JobId) -> Listener {
        Listener { job, lines: self.0.subscribe() }
    }
}

/// What is said of one job.
#[derive(Debug)]
pub struct Listener {
    job: JobId,
    lines: Receiver<Notice>,
}

impl Listener {
    /// The next line. Waits for ever if there is none. No line is lost when the future is dropped.
    pub async fn next(&mut self) -> Arc<str> {
        loop {
            match self.lines.recv().await {
                Ok((job, text)) if job == self.job => return text,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}
