//! Classes of traffic. On a QUIC connection each has a stream of its own in each direction, with its own limits, so that a
//! stalled class does not delay the others; bulk data has separate streams. At a door, control messages overtake others.

use garrick_frame::limits;
use std::time::Duration;

/// A connection over which nothing was heard for this long is lost.
pub const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Heartbeat, lease, cancel, kill: small, and never behind anything else.
    Control,
    /// Requests, replies, reports.
    Request,
    /// Trace records.
    Trace,
}

impl Class {
    /// All of them, the most urgent first. The order in which they are opened, announced and read.
    pub const ALL: [Self; 3] = [Self::Control, Self::Request, Self::Trace];

    /// Largest frame in bytes.
    pub const fn frame_limit(self) -> usize {
        match self {
            Self::Control => limits::CONTROL,
            Self::Request => limits::REQUEST,
            Self::Trace => limits::TRACE,
        }
    }

    /// Bytes that may wait in the sender's queue. A sender that finds it full waits, or is told so. At least one frame of
    /// the largest size; worst case of memory for a peer that does not read.
    pub const fn queue_bytes(self) -> usize {
        match self {
            Self::Control => 4 * limits::CONTROL,
            Self::Request => limits::REQUEST,
            Self::Trace => limits::TRACE,
        }
    }

    /// Priority of its QUIC stream; bulk streams have 0.
    pub(crate) const fn priority(self) -> i32 {
        match self {
            Self::Control => 30,
            Self::Request => 20,
            Self::Trace => 10,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Control => "control",
            Self::Request => "request",
            Self::Trace => "trace",
        })
    }
}
