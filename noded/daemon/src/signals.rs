//! How the daemons handle signals, as Slurm's manual pages say (slurmctld(8), slurmd(8), slurmstepd(8)).
//!
//! Signals that are not for a daemon get a handler that does nothing, not `SIG_IGN`, which child processes would inherit.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal means to a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// An end in order.
    End,
    /// The configuration is read again, and the log opened anew.
    Reconfigure,
    /// The log level is read again, and the log opened anew: what logrotate's recipe sends.
    ReopenLog,
    /// Nothing.
    Nothing,
    /// What the kernel does by default: it cannot be caught, is harmless, or says that the program is broken.
    Kernel,
}

/// What a signal means to `slurmctld` and `slurmd`.
pub fn meaning(number: i32) -> Meaning {
    match number {
        libc::SIGTERM | libc::SIGINT => Meaning::End,
        libc::SIGHUP => Meaning::Reconfigure,
        libc::SIGUSR2 => Meaning::ReopenLog,
        libc::SIGKILL | libc::SIGSTOP => Meaning::Kernel,
        // Faults, and SIGABRT, which both pages have write a core file.
        libc::SIGABRT | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGSEGV | libc::SIGSYS | libc::SIGTRAP => {
            Meaning::Kernel
        }
        // Without effect by default; the first is the runtime's.
        libc::SIGCHLD | libc::SIGCONT | libc::SIGURG | libc::SIGWINCH => Meaning::Kernel,
        // The C library's own, below SIGRTMIN.
        32 | 33 => Meaning::Kernel,
        _ => Meaning::Nothing,
    }
}

/// The numbers of all signals.
pub fn all() -> impl Iterator<Item = i32> {
    1..=libc::SIGRTMAX()
}

/// Signals could not be caught.
#[derive(Debug, thiserror::Error)]
#[error("catching signal {number}: {cause}")]
pub struct SignalError {
    /// Which.
    pub number: i32,
    /// The system's words.
    pub cause: std::io::Error,
}

fn hook(number: i32) -> Result<Signal, SignalError> {
    signal(SignalKind::from_raw(number)).map_err(|cause| SignalError { number, cause })
}

/// The signals of a daemon. Made as early as may be: from then on none of them ends it unasked.
pub struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
    usr2: Signal,
}

impl Signals {
    /// Catches them. Only inside the runtime.
    pub fn catch() -> Result<Self, SignalError> {
        for number in all().filter(|number| meaning(*number) == Meaning::Nothing) {
            // The handler stays when the stream goes.
            drop(hook(number)?);
        }
        Ok(Self {
            term: hook(libc::SIGTERM)?,
            int: hook(libc::SIGINT)?,
            hup: hook(libc::SIGHUP)?,
            usr2: hook(libc::SIGUSR2)?,
        })
    }

    /// What the next one means.
    pub async fn next(&mut self) -> Meaning {
        tokio::select! {
            _ = self.term.recv() => Meaning::End,
            _ = self.int.recv() => Meaning::End,
            _ = self.hup.recv() => Meaning::Reconfigure,
            _ = self.usr2.recv() => Meaning::ReopenLog,
        }
    }
}

/// Of a `stepd` a signal asks nothing: it ends with its job. Only inside the runtime.
pub fn catch_for_stepd() -> Result<(), SignalError> {
    for number in all().filter(|number| meaning(*number) != Meaning::Kernel) {
        drop(hook(number)?);
    }
    Ok(())
}
