//! `garrick run`: submits a script, passes its output on, shows the progress of its steps, and ends with its exit code. The
//! cluster is started if none runs, and ended again if it was started.

use super::{SiteError, conf::Shape, down, follow::Followed, home::Home, up};
use crate::{
    output::{self, Console},
    waiting::{
        progress::{self, Steps, Ticker},
        wait_bar::WaitBar,
    },
};
use garrick_asking::{
    cluster::{Cluster, ClusterError, Daemon},
    signals::Signals,
};
use garrick_model::{
    env_vars::SLURM_CONF,
    ids::JobId,
    messages::command::{CancelRequest, CommandReply, CommandRequest, JobSelector},
    refusal::Refusal,
    spec::OpenMode,
    state::JobState,
    time::Timestamp,
    view::JobView,
};
use garrick_render::words;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal as _},
    os::fd::AsFd as _,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

const HELP: &str = "\
Usage: garrick run [--keep] [SBATCH OPTIONS] SCRIPT [ARGUMENTS]
Submit a batch script, show its output and how its steps get on, and exit with its exit code. Starts the cluster of this
machine if none runs, and ends it afterwards.

      --keep                    leave a cluster that was started running
      --help                    show this help

Every option of sbatch may stand before the script.
";

/// Exit code of a command that Ctrl-C ended, as in a shell.
const INTERRUPTED: i32 = 130;
/// Pause between two looks at the output files. Milliseconds.
const LOOK_MS: u16 = 100;
/// How far a file's time may lag behind the clock.
const FILE_CLOCK_MS: i64 = 50;

/// Runs `garrick run`.
pub fn main(args: &[OsString], console: &Console) -> Result<i32, SiteError> {
    let mut keep = false;
    let mut args = args;
    // Ours come first; everything from the first other word on is sbatch's.
    while let Some((first, rest)) = args.split_first() {
        match first.to_str() {
            Some("--keep") => keep = true,
            Some("--help" | "--usage") => {
                return Ok(output::finish(console, output::stdout(|out| out.write_all(HELP.as_bytes())), 0));
            }
            _ => break,
        }
        args = rest;
    }
    if args.is_empty() {
        return Err(SiteError::Usage("run needs a script".to_owned()));
    }
    // From here on, so that an impatient Ctrl-C does not leave a half-started cluster behind.
    let signals = Signals::block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])
        .map_err(|e| SiteError::Other(format!("cannot watch for signals: {e}")))?;
    let place = find_or_start(console)?;
    let ended = match signals.next() {
        None => stay_with(&place.cluster, args, console, &signals),
        Some(_) => Ok(INTERRUPTED),
    };
    let down = match &place.started {
        Some(home) if !keep => down::end(home).map(|_| ()),
        _ => Ok(()),
    };
    ended.and_then(|code| down.map(|()| code))
}

/// The cluster that the script goes to.
struct Place {
    cluster: Cluster,
    /// Set when it was started here.
    started: Option<Home>,
}

fn find_or_start(console: &Console) -> Result<Place, SiteError> {
    let named = env::var_os(SLURM_CONF).is_some_and(|v| !v.is_empty());
    let found = Cluster::find(None);
    match found {
        Ok(cluster) if answers(&cluster) => return Ok(Place { cluster, started: None }),
        // A cluster that was named outright is the one that is meant: starting another would surprise.
        Ok(cluster) if named => {
            return Err(cluster
                .ask("garrick", &CommandRequest::Ping)
                .err()
                .map_or_else(|| SiteError::Cluster("the cluster does not answer".to_owned()), SiteError::from));
        }
        Err(error) if named => return Err(error.into()),
        _ => {}
    }
    let home = Home::from_env()?;
    if home.conf().exists() {
        let cluster = Cluster::find(Some(&home.conf()))?;
        if answers(&cluster) {
            return Ok(Place { cluster, started: None });
        }
    }
    let up = up::ensure(&home, &Shape::default())?;
    up.messages.lines().for_each(|line| console.line(line));
    Ok(Place { cluster: Cluster::find(Some(&home.conf()))?, started: Some(home) })
}

fn answers(cluster: &Cluster) -> bool {
    matches!(cluster.ask("garrick", &CommandRequest::Ping), Ok(CommandReply::Pong { .. }))
}

/// Submits by this program's own `sbatch`. Its messages go to standard error, the id comes back.
fn submit(cluster: &Cluster, args: &[OsString]) -> Result<Result<JobId, i32>, SiteError> {
    let own = env::current_exe().map_err(|e| SiteError::Other(format!("cannot find this program: {e}")))?;
    let output = Command::new(&own)
        .arg("sbatch")
        .arg("--parsable")
        .args(args)
        .env(SLURM_CONF, cluster.conf())
        .env("PATH", path_with_commands(cluster))
        .stderr(Stdio::inherit())
        .stdin(Stdio::inherit())
        .output()
        .map_err(SiteError::file("cannot run", &own))?;
    if !output.status.success() {
        return Ok(Err(output.status.code().unwrap_or(1)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let id = text.trim().split(';').next().unwrap_or_default();
    match id.parse() {
        Ok(id) => Ok(Ok(id)),
        // `--help` and the like print and succeed without a job.
        Err(_) => {
            drop(output::stdout(|out| out.write_all(&output.stdout)));
            Ok(Err(0))
        }
    }
}

/// The search path with the cluster's own commands in front: the job's script calls them by name.
fn path_with_commands(cluster: &Cluster) -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    // `etc/slurm.conf` has `bin` beside its folder in an embedded cluster as in an installation.
    let Some(bin) = cluster.conf().parent().and_then(Path::parent).map(|root| root.join("bin")) else { return path };
    if !bin.join("srun").exists() {
        return path;
    }
    let folders = std::iter::once(bin).chain(env::split_paths(&path));
    env::join_paths(folders).unwrap_or(path.clone())
}

fn stay_with(cluster: &Cluster, args: &[OsString], console: &Console, signals: &Signals) -> Result<i32, SiteError> {
    match submit(cluster, args)? {
        Ok(id) => Stay::new(cluster, id, console).until_over(signals),
        Err(code) => Ok(code),
    }
}

/// One job that is stayed with.
struct Stay<'a> {
    cluster: &'a Cluster,
    console: &'a Console,
    id: JobId,
    view: Option<Arc<JobView>>,
    /// Sizes of the output files when the job was first seen.
    before: Option<[u64; 2]>,
    files: Vec<(Followed, Target)>,
    display: Display,
    steps: Steps,
    interrupted: u32,
}

/// How standard error shows how far it is.
enum Display {
    Terminal(Box<WaitBar>),
    Plain(Ticker),
}

impl Display {
    /// Has something written with nothing in its way.
    fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match self {
            Self::Terminal(bars) => bars.aside(write),
            Self::Plain(_) => write(),
        }
    }
}

/// Where a followed file goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Stdout,
    Stderr,
}

impl<'a> Stay<'a> {
    fn new(cluster: &'a Cluster, id: JobId, console: &'a Console) -> Self {
        let display = match io::stderr().is_terminal() {
            true => Display::Terminal(Box::new(WaitBar::new(id))),
            false => Display::Plain(Ticker::new(Instant::now())),
        };
        Self {
            cluster,
            console,
            id,
            view: None,
            before: None,
            files: Vec::new(),
            display,
            steps: Steps::new(Instant::now()),
            interrupted: 0,
        }
    }

    fn watch(&self) -> Result<Daemon, ClusterError> {
        let mut daemon = self.cluster.connect("garrick")?;
        daemon.send(&CommandRequest::Watch { job: self.id })?;
        Ok(daemon)
    }

    fn until_over(&mut self, signals: &Signals) -> Result<i32, SiteError> {
        let mut watched = Some(self.watch()?);
        loop {
            let fds_ready = {
                let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
                if let Some(daemon) = &watched {
                    fds.push(PollFd::new(daemon.as_fd(), PollFlags::POLLIN));
                }
                poll(&mut fds, PollTimeout::from(LOOK_MS)).is_ok()
            };
            while fds_ready && let Some(signal) = signals.next() {
                self.interrupt(signal)?;
            }
            let mut over = false;
            while !over && let Some(daemon) = &mut watched {
                match daemon.try_next() {
                    Ok(None) => break,
                    Ok(Some(CommandReply::Job(view))) => self.saw(view),
                    Ok(Some(CommandReply::End)) => over = true,
                    Ok(Some(_)) => {}
                    Err(ClusterError::Refused(Refusal::RetryAfter { .. })) => watched = None,
                    Err(error @ ClusterError::Refused(_)) => return Err(error.into()),
                    // The controller went away; the job goes on, and so do we.
                    Err(_) => watched = None,
                }
            }
            if watched.is_none() {
                watched = self.watch().ok();
            }
            self.pass_output_on()?;
            if over || self.view.as_ref().is_some_and(|v| !v.state.is_live()) {
                return self.over();
            }
            self.show();
        }
    }

    /// A new view of the job: its output files are known once it has started.
    fn saw(&mut self, view: Arc<JobView>) {
        let size = |path: &str| std::fs::metadata(path).map_or(0, |m| m.len());
        let paths = [view.stdout_path.as_deref(), view.stderr_path.as_deref()];
        let before = *self.before.get_or_insert_with(|| paths.map(|p| p.map_or(0, size)));
        if let (true, Some(start)) = (self.files.is_empty() && !view.state.waits(), view.start_time) {
            // File times come from a clock that ticks more coarsely than ours.
            let millis = u64::try_from(start.0.saturating_sub(FILE_CLOCK_MS)).unwrap_or(0);
            let since = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
            let follow = |path: &str, skip| match view.spec.open_mode {
                OpenMode::Append => Followed::appended(path, skip),
                OpenMode::Default | OpenMode::Truncate => Followed::made(path, since),
            };
            if let Some(path) = paths[0] {
                self.files.push((follow(path, before[0]), Target::Stdout));
            }
            if let Some(path) = paths[1].filter(|p| Some(*p) != paths[0]) {
                self.files.push((follow(path, before[1]), Target::Stderr));
            }
        }
        self.view = Some(view);
    }

    fn show(&mut self) {
        if let Some(view) = self.view.clone() {
            self.steps.look(self.cluster, &view, Instant::now());
            self.draw();
        }
    }

    fn draw(&mut self) {
        let Some(view) = &self.view else { return };
        let line = progress::line(view, self.steps.standing.counts, Timestamp::now());
        match &mut self.display {
            Display::Terminal(bars) => bars.draw(line, &self.steps.standing),
            Display::Plain(ticker) => output::stderr(ticker.show(&line, Instant::now()).as_bytes()),
        }
    }

    fn pass_output_on(&mut self) -> Result<(), SiteError> {
        for (file, target) in &mut self.files {
            let mut new = Vec::new();
            // A file that cannot be read (a node without our file system) leaves the job as it is.
            if file.pass_on(&mut new).unwrap_or(0) == 0 {
                continue;
            }
            let written = self.display.aside(|| match target {
                Target::Stderr => {
                    output::stderr(&new);
                    Ok(())
                }
                Target::Stdout => output::stdout_as_is(|out| out.write_all(&new)),
            });
            match written {
                Ok(()) => {}
                // A reader that went away takes no more; the job's end still matters.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) => return Err(SiteError::Other(format!("standard output: {error}"))),
            }
        }
        Ok(())
    }

    /// Ctrl-C: the first cancels the job, a later one kills it.
    fn interrupt(&mut self, signal: i32) -> Result<(), SiteError> {
        self.interrupted += 1;
        let job = JobSelector { job: self.id, tasks: None, het: None, run: None };
        let again = self.interrupted > 1;
        let cancel = CancelRequest {
            jobs: vec![job],
            signal: again.then_some(libc::SIGKILL),
            full: again,
            ..CancelRequest::default()
        };
        let how = if again { "killing" } else { "cancelling" };
        self.display.aside(|| self.console.line(format_args!("signal {signal}: {how} job {}", self.id)));
        match self.cluster.ask("garrick", &CommandRequest::Cancel(cancel)) {
            // One that is already over ends the loop by itself.
            Ok(_) | Err(ClusterError::Refused(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn over(&mut self) -> Result<i32, SiteError> {
        self.pass_output_on()?;
        let Some(view) = &self.view else {
            return Err(SiteError::Cluster(format!("job {} is gone", self.id)));
        };
        self.steps.look(self.cluster, view, Instant::now());
        let line = progress::line(view, self.steps.at_the_end(view), Timestamp::now());
        let reason = match view.state {
            JobState::Completed => String::new(),
            _ => format!(" ({}, exit code {})", words::reason(&view.reason), words::exit(view.exit)),
        };
        let cause = view.system_comment.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
        let code = exit_code(view, self.interrupted > 0);
        // The bars go, and this line stays.
        self.display = Display::Plain(Ticker::new(Instant::now()));
        output::stderr(format!("{line}{reason}{cause}\n").as_bytes());
        Ok(code)
    }
}

/// The job's own exit code; one that ended badly without one gives 1, one that was interrupted the shell's.
fn exit_code(view: &JobView, interrupted: bool) -> i32 {
    match (view.state, view.exit.shell_code()) {
        (JobState::Completed, code) => code,
        (_, _) if interrupted => INTERRUPTED,
        (_, 0) => 1,
        (_, code) => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::state::ExitStatus;
    use garrick_render::testing as views;

    #[test]
    fn exit_code_is_the_jobs_own() {
        let ended = |state, code, signal| JobView { exit: ExitStatus { code, signal }, ..views::over(5, state, &[]) };
        assert_eq!(exit_code(&ended(JobState::Completed, 0, None), false), 0);
        assert_eq!(exit_code(&ended(JobState::Failed, 3, None), false), 3);
        assert_eq!(exit_code(&ended(JobState::Failed, 0, Some(9)), false), 137);
        assert_eq!(exit_code(&ended(JobState::NodeFail, 0, None), false), 1);
        assert_eq!(exit_code(&ended(JobState::Cancelled, 0, Some(15)), true), INTERRUPTED);
    }
}
