//! The site's own word on what is submitted.

use super::admission::Submitter;
use crate::messages::job::Authority;
use garrick_model::{refusal::Refusal, spec::JobSpec};

/// The site's own word on requests, before they are judged (`job_submit` plugins). What it leaves is judged as if its user had
/// asked for it. It must not block, and it is asked again about a request that is judged again.
pub trait JobSubmit: Send + Sync + 'static {
    /// A job is submitted, or asked about; each component of a heterogeneous job by itself. May change what is asked for, or
    /// refuse it. Answers what is to be said to the user, a line each.
    fn submit(&self, _by: &Submitter<'_>, _spec: &mut JobSpec) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }

    /// A job that waits is changed by `by`, whose job it may be or not, from `current` to `patched`. The same, but for its
    /// script, arguments and environment: those stay as they are.
    fn modify(&self, _by: Authority, _current: &JobSpec, _patched: &mut JobSpec) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }
}

/// A site without a word of its own.
#[derive(Clone, Copy, Debug)]
pub struct NoJobSubmit;

impl JobSubmit for NoJobSubmit {}
