//! How large one frame may be, in bytes of its body (the 4-byte length is not counted). Chosen here: large enough for
//! the largest honest message of the class, small enough that a bad peer cannot hold much memory.

/// Control frames: heartbeats, kill, lease, hello. Small, so that one never waits long behind another.
pub const CONTROL: usize = 64 << 10;
/// Requests and replies: a job with its script and environment, or a page of views.
pub const REQUEST: usize = 16 << 20;
/// Headers and pieces on bulk streams.
pub const BULK: usize = 1 << 20;
/// Batches of trace records.
pub const TRACE: usize = 1 << 20;
/// Anything at a local door.
pub const DOOR: usize = 16 << 20;
/// Messages between `stepd` and its launcher (an environment is the largest).
pub const LAUNCHER: usize = 4 << 20;
/// The first frame of a connection, before anything is known of the peer.
pub const HELLO: usize = 4 << 10;
