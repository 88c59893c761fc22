//! The site's own checks of submissions.

use super::admission::Submitter;
use crate::messages::job::Authority;
use garrick_model::{refusal::Refusal, spec::JobSpec};

/// The site's own checks of requests, before they are judged (`job_submit` plugins). The result is judged as if the user had
/// requested it. It must not block, and is called again for a request that is judged again.
pub trait JobSubmit: Send + Sync + 'static {
    /// A job is submitted, or only tested; each component of a heterogeneous job by itself. May change the request, or refuse it.
    /// Returns messages for the user, a line each.
    fn submit(&self, _by: &Submitter<'_>, _spec: &mut JobSpec) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }

    /// `by` changes a waiting job, his own or another's, from `current` to `patched`. May change or refuse it, except for script,
    /// arguments and environment, which stay as they are.
    fn modify(&self, _by: Authority, _current: &JobSpec, _patched: &mut JobSpec) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }
}

/// A site without checks of its own.
#[derive(Clone, Copy, Debug)]
pub struct NoJobSubmit;

impl JobSubmit for NoJobSubmit {}
