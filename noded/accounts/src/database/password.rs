//! A password that a program of the site prints (slurm.conf(5), `JobCompPassScript`). It is asked for each connection: it may be one
//! that holds for some minutes only.

use garrick_model::config::storage::Password;
use std::{
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::{process::Command, time::timeout};

/// A program that takes longer is killed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where it finds the system's commands.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why there is no password.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PasswordError {
    #[error("{} cannot be started: {cause}", script.display())]
    Start { script: PathBuf, cause: io::Error },
    /// What it says may have the password in it.
    #[error("{} failed with {status}", script.display())]
    Ended { script: PathBuf, status: ExitStatus },
    #[error("{} did not end within {} s and was killed", script.display(), PATIENCE.as_secs())]
    TimedOut { script: PathBuf },
    #[error("{} prints no password: one line of text is expected", script.display())]
    Nothing { script: PathBuf },
}

/// The program, and what it printed last.
pub(crate) struct PasswordScript {
    script: PathBuf,
    told: Mutex<Option<Password>>,
}

impl PasswordScript {
    pub(crate) fn new(script: PathBuf) -> Self {
        Self { script, told: Mutex::default() }
    }

    /// Runs it, as this process's user and without its environment.
    pub(crate) async fn ask(&self) -> Result<(), PasswordError> {
        let script = || self.script.clone();
        let mut command = Command::new(&self.script);
        command.env_clear().env("PATH", PATH).current_dir("/").process_group(0).kill_on_drop(true);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let ended =
            timeout(PATIENCE, command.output()).await.map_err(|_| PasswordError::TimedOut { script: script() })?;
        let ended = ended.map_err(|cause| PasswordError::Start { script: script(), cause })?;
        if !ended.status.success() {
            return Err(PasswordError::Ended { script: script(), status: ended.status });
        }
        let text = str::from_utf8(&ended.stdout).ok().and_then(|text| text.lines().next());
        let line = text.filter(|line| !line.is_empty()).ok_or_else(|| PasswordError::Nothing { script: script() })?;
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(Password::new(line));
        Ok(())
    }

    /// What it printed last.
    pub(crate) fn told(&self) -> Option<Password> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
