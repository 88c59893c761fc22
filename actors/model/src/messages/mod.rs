//! One enum per direction of each link. Between hosts they travel over QUIC, on a host over the local door; the frames
//! are the same. Grow these by new variants and by new fields with `#[serde(default)]`, behind the negotiated version.
//!
//! | link | directions |
//! |---|---|
//! | command to daemon (controller's or node's door) | [`command::CommandRequest`], [`command::CommandReply`] |
//! | command to step manager (`stepd`'s door) | [`step::CommandToStepMgr`], [`step::StepMgrToCommand`] |
//! | command to the daemon that keeps records of steps (a node's door) | [`records::RecordsRequest`], [`records::RecordsReply`] |
//! | controller and node agent | [`node::ControllerToNode`], [`node::NodeToController`] |
//! | node agent and its `stepd` | [`stepd::NodeToStepd`], [`stepd::StepdToNode`] |
//! | step manager and shepherd | [`shepherd::StepMgrToShepherd`], [`shepherd::ShepherdToStepMgr`]; between hosts inside [`shepherd_link::LinkFrame`] |
//! | two `stepd`s of a run, a `stepd` and its writers of files | [`files::FileTree`], [`files::FilePart`], [`files::FileReport`], [`files::WriterSays`] |
//! | shepherd and launcher | [`launcher::ToLauncher`], [`launcher::FromLauncher`] |

pub mod command;
pub mod files;
pub mod launch_failure;
pub mod launcher;
pub mod node;
pub mod priority;
pub mod records;
pub mod request_change;
pub mod shares;
pub mod shepherd;
pub mod shepherd_link;
pub mod statistics;
pub mod step;
pub mod stepd;

use serde::Serialize;
use std::io::{self, Write};

/// Counts what is written to it.
struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that a message takes where it is sent or saved. Of one that cannot be encoded, those before what is wrong with it.
pub fn encoded_bytes<T: Serialize + ?Sized>(message: &T) -> usize {
    let mut count = Count(0);
    // What cannot be encoded is found out where it is.
    let _ = rmp_serde::encode::write_named(&mut count, message);
    count.0
}
