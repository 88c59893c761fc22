//! A daemon under supervision: what ends is started again after a while, as systemd would.

use super::site::{Host, append};
use crate::minibatch::cluster::ClusterError;
use garrick_simulator::random::Random;
use std::{
    path::PathBuf,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

/// Pause before a restart, milliseconds.
const RESTART_MS: (u32, u32) = (50, 1_500);

/// One daemon of a host.
#[derive(Debug)]
pub struct Daemon {
    program: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
    restart_at: Option<Instant>,
    /// Ends that this program did not cause.
    pub ended_by_itself: u32,
    killed: bool,
}

impl Daemon {
    /// Not started yet.
    pub const fn new(program: PathBuf, args: Vec<String>, log: PathBuf) -> Self {
        Self { program, args, log, child: None, restart_at: None, ended_by_itself: 0, killed: false }
    }

    /// Starts it.
    pub fn start(&mut self, host: &Host) -> Result<(), ClusterError> {
        let (out, err) = (append(&self.log)?, append(&self.log)?);
        let mut c = host.command(&self.program);
        c.args(&self.args).stdout(out).stderr(err).stdin(Stdio::null()).env("GARRICK_LOG", "info");
        let program = self.program.to_string_lossy().into_owned();
        self.child = Some(c.spawn().map_err(|cause| ClusterError::Run { program, cause })?);
        (self.restart_at, self.killed) = (None, false);
        Ok(())
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.killed = true;
        if let Some(child) = &mut self.child {
            // Gone already is as good.
            let _ = child.kill();
        }
    }

    /// Notices an end, and starts what is to be started again.
    pub fn supervise(&mut self, host: &Host, random: &mut Random, now: Instant) -> Result<(), ClusterError> {
        if self.has_ended() {
            self.ended_by_itself += u32::from(!self.killed);
            let pause = u64::from(random.between(RESTART_MS.0, RESTART_MS.1));
            self.restart_at = Some(now + Duration::from_millis(pause));
        }
        if self.restart_at.is_some_and(|at| at <= now) {
            self.start(host)?;
        }
        Ok(())
    }

    /// True once after it ended.
    pub fn has_ended(&mut self) -> bool {
        let ended = self.child.as_mut().is_some_and(|c| !matches!(c.try_wait(), Ok(None)));
        if ended {
            self.child = None;
        }
        ended
    }
}
