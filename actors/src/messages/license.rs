//! Messages to the owner of licenses.

use garrick_model::{ids::JobId, spec_text::licenses::Licenses};

/// Inputs of the owner of licenses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LicenseInput {
    /// A job's owner asks for licenses: all of these or none. Answered by
    /// [`JobInput::LicensesReserved`](crate::messages::job::JobInput::LicensesReserved).
    Reserve {
        /// Job.
        job: JobId,
        /// The job's attempt.
        attempt: u64,
        /// All of these.
        licenses: Licenses,
    },
    /// The job returns what it holds.
    Release {
        /// Job.
        job: JobId,
        /// Only what was reserved in this attempt.
        attempt: Option<u64>,
    },
}
