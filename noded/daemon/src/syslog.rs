//! The system's log: lines as datagrams to the socket where syslog daemons and the journal of systemd listen.
//!
//! The format is that of RFC 3164 without time and host, which the receiver adds (as syslog(3) does on Linux).

use super::logging::Fields;
use std::{
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Where the system's log listens.
pub const SOCKET: &str = "/dev/log";

/// `LOG_DAEMON` of syslog(3), as Slurm's daemons use it.
const FACILITY: u8 = 3;

/// A layer that sends events to the system's log. What nobody takes is dropped: a daemon does not wait for its log.
pub struct Syslog {
    path: PathBuf,
    /// `slurmctld[123]`
    tag: String,
    socket: Option<UnixDatagram>,
}

impl Syslog {
    /// To the socket at `path`, as the program `name`.
    pub fn new(path: &Path, name: &str) -> Self {
        let socket = UnixDatagram::unbound().and_then(|socket| socket.set_nonblocking(true).map(|()| socket)).ok();
        Self { path: path.to_owned(), tag: format!("{name}[{}]", std::process::id()), socket }
    }
}

/// Severities of RFC 3164.
const fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

impl<S: Subscriber> Layer<S> for Syslog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(socket) = &self.socket else { return };
        let level = *event.metadata().level();
        let mut text = format!("<{}>{}: {}:", FACILITY * 8 + severity(level), self.tag, super::logging::word(level));
        event.record(&mut Fields(&mut text));
        // Addressed each time: the daemon at the other end may be another by now.
        let _ = socket.send_to(text.as_bytes(), &self.path);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_kernel::scratch::Scratch;
    use tracing_subscriber::{filter::LevelFilter, layer::SubscriberExt as _};

    #[test]
    fn lines_carry_facility_severity_program_and_text_and_those_below_the_level_are_not_sent() {
        let dir = Scratch::new("syslog");
        let path = dir.join("log");
        let receiver = UnixDatagram::bind(&path).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let layer = Syslog::new(&path, "slurmctld").with_filter(LevelFilter::WARN);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::info!("not this");
            tracing::error!(job_id = 5, "it failed");
        });
        let mut buffer = [0; 256];
        let length = receiver.recv(&mut buffer).unwrap();
        let expected = format!("<27>slurmctld[{}]: error: it failed job_id=5", std::process::id());
        assert_eq!(std::str::from_utf8(&buffer[..length]).unwrap(), expected);
        assert_eq!(receiver.recv(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}
