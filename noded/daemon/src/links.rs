//! What links of all daemons share.

use garrick_frame::Traced;
use garrick_model::{ids::JobId, messages::command::Caller};
use garrick_runtime::TraceContext;
use garrick_transport::DoorConn;
use serde::{Deserialize, Serialize};

/// A message with the trace of whoever is being handled right now.
pub fn traced<T>(msg: T) -> Traced<T> {
    let cx = TraceContext::current();
    Traced { trace: cx.trace, cause: cx.cause, msg }
}

/// First frame of a conversation that goes on with another daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayHeader {
    /// Whose step manager.
    pub job: JobId,
    /// Who asks, vouched for by the relaying daemon.
    pub caller: Caller,
}

/// Who is at the other end of a door, from the kernel; `host` vouches for it.
pub fn caller_of(conn: &DoorConn, host: &str) -> Caller {
    Caller {
        uid: conn.peer.uid,
        gid: conn.peer.gid,
        pid: u32::try_from(conn.peer.pid).unwrap_or(0),
        host: host.to_owned(),
    }
}
