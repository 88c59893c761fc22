//! What the owner of reservations accepts.

use garrick_model::{refusal::Refusal, reservation::ReservationChange};
use garrick_runtime::{Message, ReplyTo};

/// Messages of the owner of reservations, from the front but for `Journaled` and `Tick`. Replies leave when what they say
/// is on disk.
pub enum ReservationMsg {
    /// A new one. The reply is its name.
    Create {
        /// Name of who asks.
        by: String,
        /// What is asked for.
        change: Box<ReservationChange>,
        /// Answer.
        reply: ReplyTo<Result<String, Refusal>>,
    },
    /// A change of one. May be delivered twice.
    Update {
        /// What changes.
        change: Box<ReservationChange>,
        /// Answer.
        reply: ReplyTo<Result<String, Refusal>>,
    },
    /// The end of one.
    Delete {
        /// Name.
        name: String,
        /// Answer.
        reply: ReplyTo<Result<String, Refusal>>,
    },
    /// One of them begins or ends now.
    Tick,
    /// The journal answered.
    Journaled {
        /// Batch.
        batch: u64,
        /// Outcome.
        result: Result<(), String>,
    },
}

impl Message for ReservationMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "Create",
            Self::Update { .. } => "Update",
            Self::Delete { .. } => "Delete",
            Self::Tick => "Tick",
            Self::Journaled { .. } => "Journaled",
        }
    }
}
