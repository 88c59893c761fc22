//! What keeps a job waiting, as the last plan has it: what stands first in its way, what would move that, and when.

use crate::{ids::JobId, time::Timestamp};
use serde::{Deserialize, Serialize};

/// What stands in a job's way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blocker {
    /// A job that has room the job needs; its end would move it.
    Running(JobId),
    /// A job that goes before it and has the room reserved; its end would, once it has run.
    Ahead(JobId),
    /// An advance reservation that ends then.
    Reservation(String),
    /// Licenses that others have until then.
    Licenses(String),
    /// Its own wish for nodes of no more leaf switches than these: from then on it takes any.
    Switches(u32),
}

/// What keeps a job waiting for room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlook {
    /// Job, or the record of an array.
    pub job: JobId,
    /// Partition in which it is to start.
    pub partition: String,
    /// When room is reserved for it.
    pub start: Timestamp,
    /// Where, folded: `n[1-4]`.
    pub nodes: String,
    /// What is in the way until then. `None`: it is not known what ends then.
    pub blocker: Option<Blocker>,
    /// The node on which that stands in its way; none for licenses.
    pub node: Option<String>,
    /// When that is expected to be out of the way.
    pub until: Timestamp,
    /// When the plan was made.
    pub planned: Timestamp,
}

impl Outlook {
    /// Without the names of other jobs.
    #[must_use]
    pub fn anonymous(self) -> Self {
        let blocker = self.blocker.filter(|blocker| !matches!(blocker, Blocker::Running(_) | Blocker::Ahead(_)));
        Self { blocker, ..self }
    }
}
