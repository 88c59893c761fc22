//! Runs the programs of the site, for both roles: those around jobs on a node, and the controller's own. They run as the daemon's
//! user, one after the other, each in a process group of its own, never by a shell.

use garrick_model::site_program::{Moment, SiteProgram};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use std::{
    collections::VecDeque,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    task::JoinHandle,
};

/// A program of the site that failed.
#[derive(Debug, thiserror::Error)]
pub enum ScriptFailure {
    /// The setting names no program.
    #[error(transparent)]
    Pattern(#[from] ScriptPatternError),
    /// It could not be started.
    #[error("{} {path} could not be started: {cause}", moment.key())]
    Start {
        /// When.
        moment: Moment,
        /// Program.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// It ended with other than 0.
    #[error("{} {path} failed with {how}; its last output: {output:?}", moment.key())]
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
    #[error("{} {path} did not end within {} s and was killed", moment.key(), limit.as_secs())]
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

/// A setting that names no program.
#[derive(Debug, thiserror::Error)]
#[error("{pattern}: {what}; a program of the site must be an absolute path or a pattern in an absolute folder")]
pub struct ScriptPatternError {
    /// The setting.
    pub pattern: String,
    /// What is wrong with it.
    pub what: String,
}

/// The programs that settings name: paths, or patterns as `/etc/slurm/prolog.d/*`, whose matches run in reverse order of their
/// names (prolog_epilog.html). A pattern without matches is fine; a plain path is checked when it runs.
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
        found.sort_by(|one, other| other.cmp(one));
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

/// Runs its programs in order; the first failure ends the row. Who drops the future ends the program and its children.
pub async fn run(program: &SiteProgram) -> Result<(), ScriptFailure> {
    for path in resolve(&program.programs)? {
        run_one(program, &path).await?;
    }
    Ok(())
}

/// Bytes of a program's output that are kept, the last ones.
const KEPT_OUTPUT: usize = 4096;

/// What it started may hold its output open after its end: that is not waited for.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Where no variable says otherwise: programs of the site find the system's commands.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

async fn run_one(program: &SiteProgram, path: &Path) -> Result<(), ScriptFailure> {
    let moment = program.moment;
    let not_started = |cause| ScriptFailure::Start { moment, path: path.to_owned(), cause };
    let mut child = command(program, path).spawn().map_err(not_started)?;
    let group = Group::of(&child);
    let said = Said::of(&mut child);
    let ended = match program.limit {
        Some(limit) => match tokio::time::timeout(limit, child.wait()).await {
            Ok(ended) => ended,
            Err(_) => return Err(ScriptFailure::TimedOut { moment, path: path.to_owned(), limit }),
        },
        None => child.wait().await,
    };
    // Its number may be another's from now on.
    group.has_ended();
    let (status, output) = (ended.map_err(not_started)?, said.last_words().await);
    if !status.success() {
        return Err(ScriptFailure::Ended { moment, path: path.to_owned(), how: how(status), output });
    }
    if !output.is_empty() {
        tracing::debug!(program = %path.display(), output, "a program of the site said");
    }
    Ok(())
}

fn command(program: &SiteProgram, path: &Path) -> Command {
    let mut command = Command::new(path);
    command.args(&program.arguments).env_clear().env("PATH", PATH);
    if let Some(context) = program.moment.context() {
        command.env("SLURM_SCRIPT_CONTEXT", context);
    }
    command
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".into(),
    }
}

/// A program's process group: killed where the program is given up.
pub(crate) struct Group(Option<Pid>);

impl Group {
    pub(crate) fn of(child: &Child) -> Self {
        Self(child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw))
    }

    fn has_ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended in this moment.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// The end of what a program says on both of its outputs, read as it says it.
struct Said {
    kept: Arc<Mutex<VecDeque<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Said {
    fn of(child: &mut Child) -> Self {
        let kept: Arc<Mutex<VecDeque<u8>>> = Arc::default();
        let out = child.stdout.take().map(|out| tokio::spawn(keep_end(out, Arc::clone(&kept))));
        let err = child.stderr.take().map(|err| tokio::spawn(keep_end(err, Arc::clone(&kept))));
        Self { kept, readers: out.into_iter().chain(err).collect() }
    }

    async fn last_words(mut self) -> String {
        for reader in &mut self.readers {
            // What is still open then is somebody else's.
            let _ = tokio::time::timeout(LAST_WORDS, reader).await;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(kept.make_contiguous()).trim().to_owned()
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        self.readers.iter().for_each(JoinHandle::abort);
    }
}

async fn keep_end(mut from: impl AsyncRead + Unpin, kept: Arc<Mutex<VecDeque<u8>>>) {
    let mut bytes = [0; 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&bytes[..count]);
        let surplus = kept.len().saturating_sub(KEPT_OUTPUT);
        kept.drain(..surplus);
    }
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

    fn at(moment: Moment, program: &Path) -> SiteProgram {
        let programs = vec![program.display().to_string()];
        SiteProgram { moment, programs, arguments: Vec::new(), environment: Vec::new(), limit: None }
    }

    #[tokio::test]
    async fn programs_see_their_variables_their_arguments_and_their_moment() {
        let ok = script(
            "ok",
            "#!/bin/sh\n[ \"$SLURM_JOB_ID\" = 7 ] && [ \"$SLURM_SCRIPT_CONTEXT\" = prolog_slurmd ] && [ \"$2\" = 'a b;c' ]\n",
        );
        let environment = vec![("SLURM_JOB_ID".to_owned(), "7".to_owned())];
        let arguments = vec!["-s".to_owned(), "a b;c".to_owned()];
        run(&SiteProgram { environment, arguments, ..at(Moment::Prolog, &ok) }).await.unwrap();
        let none = script("none", "#!/bin/sh\n[ -z \"${SLURM_SCRIPT_CONTEXT+x}\" ]\n");
        run(&at(Moment::Mail, &none)).await.unwrap();
    }

    #[tokio::test]
    async fn a_failure_names_the_program_its_code_and_its_words() {
        let bad = script("bad", "#!/bin/sh\necho no scratch disk >&2\nexit 3\n");
        let e = run(&at(Moment::Epilog, &bad)).await.unwrap_err().to_string();
        assert!(
            e.contains("Epilog ") && e.contains("bad failed with exit code 3") && e.contains("no scratch disk"),
            "{e}"
        );
    }

    #[tokio::test]
    async fn of_much_output_the_end_is_kept_and_what_goes_on_behind_is_not_waited_for() {
        let much = script("much", "#!/bin/sh\nseq 100000\nsleep 1000 &\necho the end\nexit 1\n");
        let ScriptFailure::Ended { output, .. } = run(&at(Moment::Epilog, &much)).await.unwrap_err() else {
            panic!("it ended")
        };
        assert!(output.len() <= KEPT_OUTPUT && output.ends_with("100000\nthe end"), "{output}");
    }

    #[tokio::test]
    async fn programs_of_a_folder_run_in_reverse_order_and_the_first_failure_ends_the_row() {
        let told = script("told", "");
        let dir = told.with_file_name("many.d");
        std::fs::create_dir_all(&dir).unwrap();
        for (name, code) in [("10", 0), ("9", 0), ("A", 4), ("b", 0), ("c", 0)] {
            let text = format!("#!/bin/sh\necho {name} >> {}\nexit {code}\n", told.display());
            garrick_kernel::scratch::put_program(&dir.join(name), &text);
        }
        let failure = run(&at(Moment::PrologSlurmctld, &dir.join("*"))).await.unwrap_err().to_string();
        assert!(failure.contains("many.d/A failed with exit code 4"), "{failure}");
        assert_eq!(std::fs::read_to_string(&told).unwrap(), "c\nb\nA\n");
        run(&at(Moment::PrologSlurmctld, &dir.join("none-*"))).await.unwrap();
        let relative = run(&at(Moment::PrologSlurmctld, Path::new("prolog"))).await.unwrap_err().to_string();
        assert!(relative.contains("not an absolute path"), "{relative}");
    }

    #[tokio::test]
    async fn what_cannot_be_given_to_a_program_is_not_the_programs_failure() {
        let ok = script("given", "#!/bin/sh\nexit 0\n");
        let named = |text: &str| vec![("SLURM_JOB_NAME".to_owned(), text.to_owned())];
        for text in ["x".repeat(200_000), "a\0b".to_owned()] {
            let e = run(&SiteProgram { environment: named(&text), ..at(Moment::Prolog, &ok) }).await.unwrap_err();
            assert!(e.is_of_input(), "{e}");
            let environment = named(for_environment(&text));
            run(&SiteProgram { environment, ..at(Moment::Epilog, &ok) }).await.unwrap();
        }
        let missing = run(&at(Moment::Prolog, Path::new("/no/such/program"))).await.unwrap_err();
        assert!(!missing.is_of_input(), "{missing}");
        assert_eq!(for_environment("job of alice"), "job of alice");
    }

    #[tokio::test]
    async fn one_that_hangs_is_killed_at_the_limit_with_what_it_started() {
        let slow = script("slow", "#!/bin/sh\nsleep 1000 &\necho $! > \"$1\"\nwait\n");
        let told = slow.with_file_name("child");
        let arguments = vec![told.display().to_string()];
        let limit = Some(Duration::from_millis(500));
        let e = run(&SiteProgram { limit, arguments, ..at(Moment::Epilog, &slow) }).await.unwrap_err();
        assert!(matches!(e, ScriptFailure::TimedOut { .. }), "{e}");
        let child: i32 = std::fs::read_to_string(&told).unwrap().trim().parse().unwrap();
        // Whoever reaps it here: it is a zombie or gone.
        let state = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        while state().split(") ").nth(1).is_some_and(|rest| !rest.starts_with('Z')) {
            tokio::task::yield_now().await;
        }
    }
}
