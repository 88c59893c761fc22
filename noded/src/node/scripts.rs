//! The site's programs that a node runs around jobs: Prolog before a job's first process, Epilog after its last.
//! They run as the daemon's user, one after the other, each in a process group of its own.

use std::{os::unix::process::ExitStatusExt, path::PathBuf, process::Stdio, time::Duration};
use tokio::process::Command;

/// Which moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the job's first process on this node.
    Prolog,
    /// After its last.
    Epilog,
    /// From time to time.
    HealthCheck,
    /// When processes of a job cannot be killed.
    UnkillableStep,
}

impl Moment {
    /// `prolog_slurmd`, `epilog_slurmd` and so on: the value of `SLURM_SCRIPT_CONTEXT`.
    pub const fn context(self) -> &'static str {
        match self {
            Self::Prolog => "prolog_slurmd",
            Self::Epilog => "epilog_slurmd",
            Self::HealthCheck => "health_check_slurmd",
            Self::UnkillableStep => "unkillable_step_slurmd",
        }
    }
}

/// A program of the site that failed.
#[derive(Debug, thiserror::Error)]
pub enum ScriptFailure {
    /// It could not be started.
    #[error("{moment:?} {path} could not be started: {cause}")]
    Start {
        /// When.
        moment: Moment,
        /// Program.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// It ended with other than 0.
    #[error("{moment:?} {path} failed with {how}; its last output: {output:?}")]
    Ended {
        /// When.
        moment: Moment,
        /// Program.
        path: PathBuf,
        /// Exit code or signal.
        how: String,
        /// End of what it printed.
        output: String,
    },
    /// It took longer than PrologEpilogTimeout, or than what holds for its moment.
    #[error("{moment:?} {path} did not end within {} s and was killed", limit.as_secs())]
    TimedOut {
        /// When.
        moment: Moment,
        /// Program.
        path: PathBuf,
        /// The limit.
        limit: Duration,
    },
}

impl ScriptFailure {
    /// It could not be started because of what it was to be given: a variable of its environment is too long or has a zero
    /// byte. Nothing is wrong with the program or the node.
    pub fn is_of_input(&self) -> bool {
        let Self::Start { cause, .. } = self else { return false };
        cause.raw_os_error() == Some(libc::E2BIG)
            // What the standard library says of a zero byte; the kernel's EINVAL has a number.
            || cause.kind() == std::io::ErrorKind::InvalidInput && cause.raw_os_error().is_none()
    }
}

/// A `Prolog` or `Epilog` setting that names no program.
#[derive(Debug, thiserror::Error)]
#[error("{pattern}: {what}; a Prolog or Epilog must be an absolute path or a pattern in an absolute folder")]
pub struct ScriptPatternError {
    /// The setting.
    pub pattern: String,
    /// What is wrong with it.
    pub what: String,
}

/// The programs that settings name: paths, or patterns as `/etc/slurm/prolog.d/*`, whose matches run in the order of
/// their names. A pattern without matches is fine; a plain path is checked when it runs.
pub fn resolve(settings: &[String]) -> Result<Vec<PathBuf>, ScriptPatternError> {
    let mut programs = Vec::new();
    for setting in settings {
        let fail = |what: String| ScriptPatternError { pattern: setting.clone(), what };
        if !setting.starts_with('/') {
            return Err(fail("not an absolute path".into()));
        }
        if !setting.contains(['*', '?', '[']) {
            programs.push(PathBuf::from(setting));
            continue;
        }
        let matches = glob::glob(setting).map_err(|e| fail(e.to_string()))?;
        let mut found: Vec<PathBuf> = matches.flatten().filter(|p| p.is_file()).collect();
        found.sort();
        programs.extend(found);
    }
    Ok(programs)
}

/// Bytes of a text in a program's environment; a variable holds 128 KiB (`MAX_ARG_STRLEN`, execve(2)), all of them together
/// a quarter of the stack.
const MOST_OF_TEXT: usize = 4096;

/// As much of a text as a program can be given: for the Epilog, which has to run whatever the job is called.
pub fn for_environment(text: &str) -> &str {
    let text = text.split('\0').next().unwrap_or_default();
    &text[..text.floor_char_boundary(MOST_OF_TEXT)]
}

/// Runs `programs` in order; the first failure ends the row.
pub async fn run(
    moment: Moment,
    programs: &[PathBuf],
    environment: &[(String, String)],
    limit: Option<Duration>,
) -> Result<(), ScriptFailure> {
    for path in programs {
        run_one(moment, path, environment, limit).await?;
    }
    Ok(())
}

async fn run_one(
    moment: Moment,
    path: &PathBuf,
    environment: &[(String, String)],
    limit: Option<Duration>,
) -> Result<(), ScriptFailure> {
    let child = Command::new(path)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("SLURM_SCRIPT_CONTEXT", moment.context())
        .envs(environment.iter().map(|(k, v)| (k, v)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|cause| ScriptFailure::Start { moment, path: path.clone(), cause })?;
    let group = child.id();
    let waited = match limit {
        Some(limit) => match tokio::time::timeout(limit, child.wait_with_output()).await {
            Ok(w) => w,
            Err(_) => {
                if let Some(pid) = group.and_then(|p| i32::try_from(p).ok()) {
                    let _ =
                        nix::sys::signal::killpg(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
                }
                return Err(ScriptFailure::TimedOut { moment, path: path.clone(), limit });
            }
        },
        None => child.wait_with_output().await,
    };
    let output = waited.map_err(|cause| ScriptFailure::Start { moment, path: path.clone(), cause })?;
    if output.status.success() {
        return Ok(());
    }
    let how = match (output.status.code(), output.status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".into(),
    };
    let mut text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stdout));
    let tail: String = text.chars().rev().take(400).collect::<Vec<_>>().into_iter().rev().collect();
    Err(ScriptFailure::Ended { moment, path: path.clone(), how, output: tail.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn script(name: &str, text: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("garrick-scripts-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join(name);
        garrick_kernel::scratch::put_program(&path, text);
        path
    }

    #[tokio::test]
    async fn programs_see_the_jobs_variables_and_their_moment() {
        let ok =
            script("ok", "#!/bin/sh\n[ \"$SLURM_JOB_ID\" = 7 ] && [ \"$SLURM_SCRIPT_CONTEXT\" = prolog_slurmd ]\n");
        run(Moment::Prolog, &[ok], &[("SLURM_JOB_ID".into(), "7".into())], None).await.unwrap();
    }

    #[tokio::test]
    async fn a_failure_names_the_program_its_code_and_its_words() {
        let bad = script("bad", "#!/bin/sh\necho no scratch disk >&2\nexit 3\n");
        let e = run(Moment::Epilog, &[bad], &[], None).await.unwrap_err().to_string();
        assert!(e.contains("bad failed with exit code 3") && e.contains("no scratch disk"), "{e}");
    }

    #[tokio::test]
    async fn what_cannot_be_given_to_a_program_is_not_the_programs_failure() {
        let ok = script("given", "#!/bin/sh\nexit 0\n");
        for text in ["x".repeat(200_000), "a\0b".to_owned()] {
            let environment = [("SLURM_JOB_NAME".to_owned(), text.clone())];
            let e = run(Moment::Prolog, std::slice::from_ref(&ok), &environment, None).await.unwrap_err();
            assert!(e.is_of_input(), "{e}");
            let passed = [("SLURM_JOB_NAME".to_owned(), for_environment(&text).to_owned())];
            run(Moment::Epilog, std::slice::from_ref(&ok), &passed, None).await.unwrap();
        }
        let missing = run(Moment::Prolog, &[PathBuf::from("/no/such/program")], &[], None).await.unwrap_err();
        assert!(!missing.is_of_input(), "{missing}");
        assert_eq!(for_environment("job of alice"), "job of alice");
    }

    #[tokio::test]
    async fn one_that_hangs_is_killed_at_the_limit() {
        let slow = script("slow", "#!/bin/sh\nsleep 1000\n");
        let e = run(Moment::Epilog, &[slow], &[], Some(Duration::from_millis(50))).await.unwrap_err();
        assert!(matches!(e, ScriptFailure::TimedOut { .. }), "{e}");
    }
}
