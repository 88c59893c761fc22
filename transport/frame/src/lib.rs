//! The format of messages on every link, and the blocking side of the local door. Deliberately small: commands link this crate
//! and nothing heavier, so there is no async runtime and no TLS here.
//!
//! | module | what it is |
//! |---|---|
//! | [`hello`] | the first frame of a connection: link kind, version range, answer; [`Traced`] around every message |
//! | [`limits`] | how large a frame may be, by class |
//! | [`codec`] | length-prefixed MessagePack frames with named fields: [`encode`], [`Decoder`] |
//! | [`door`] | [`DoorClient`]: a command's connection to a daemon's Unix socket |
//! | [`light`] | messages of the light `srun` at a `stepd`'s door |
//! | [`line`] | a line each way with a program of the site |
//! | [`fds`] | [`FdChannel`]: frames with file descriptors, between `stepd` and its launcher |
//! | [`rights`] | one `sendmsg` or `recvmsg` with descriptors |

pub mod codec;
pub mod door;
pub mod fds;
pub mod hello;
pub mod light;
pub mod limits;
pub mod line;
pub mod rights;

pub use codec::{Decoder, FrameError, decode_body, decode_untrusted, encode};
pub use door::{DoorClient, DoorError, DoorReader, DoorWriter, PeerCred};
pub use fds::{FdChannel, FdError, recv_with_fds, send_with_fds};
pub use hello::{Accompanied, Hello, HelloReply, LinkKind, PROTOCOL, Traced, TracedRef, TunnelTo, VersionRange};
