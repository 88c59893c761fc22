//! `salloc`: gets an allocation, runs a command (or the user's shell) with it, and gives it back.

use super::{
    allocation::{Allocation, Speaker},
    allocation_wait::{self, Seen, Waited, Watch},
    command_process::{CommandProcess, Outcome},
    het,
    job_variables::{self, Surroundings},
    sbatch,
    startup::{self, Startup},
    submitter,
};
use crate::{
    options::{
        export::For,
        job_spec::Work,
        origin,
        table::Command,
        typed::{OptionError, Typed},
    },
    output::{self, Console},
};
use garrick_asking::{
    accounts::User,
    cluster::{Cluster, is_here},
    manager,
    signals::{Origin, Signals},
};
use garrick_model::{
    config::Config,
    env_vars::{self, outputs::MPI_LAUNCHERS},
    ids::JobId,
    refusal::Refusal,
    spec::JobKind,
    state::JobState,
    view::JobView,
};
use nix::sys::signal::Signal;
use std::{borrow::Cow, env, ffi::OsString, os::unix::ffi::OsStringExt as _, path::Path, time::Duration};

/// Signals that `salloc` deals with while its command runs.
const SIGNALS: &[Signal] = &[
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGHUP,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCHLD,
    Signal::SIGTTOU,
];

/// Runs `salloc`; `args` are without the program's name. Returns the exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    run(&args).unwrap_or_else(|code| code)
}

fn run(args: &[OsString]) -> Result<i32, i32> {
    let mut startup = Startup::begin(Command::Salloc, args)?;
    let typed = startup.typed(&[])?;
    let console = &startup.console;
    let wrong = |error: OptionError| startup::tell_option(Command::Salloc, console, &error);
    let cluster = startup.cluster(&typed)?;
    let command = match startup.operands() {
        [] => default_command(cluster.config()),
        command => command.to_vec(),
    };
    startup::tell_ignored(&typed, &cluster, console);
    let submitter = submitter::look(Command::Salloc, args, &typed, For::Job, Some(cluster.config())).map_err(wrong)?;
    let (work_dir, host) = (submitter.work_dir.clone(), submitter.host.clone());
    let default_name = if typed.no_shell { "no-shell" } else { "interactive" }.to_owned();
    let shown = command.first().map(|program| program.to_string_lossy().into_owned());
    let work = Work { kind: JobKind::Allocation, default_name, argv: command.clone(), script: None, command: shown };
    let specs = het::specs(&startup, &typed, &[], submitter, work)?;
    if typed.test_only {
        return Ok(sbatch::test_only(Command::Salloc, &cluster, console, specs));
    }
    // From here on a signal must not end this process without giving the allocation back.
    let signals = Signals::block(SIGNALS).map_err(|error| {
        console.error(format_args!("Unable to take signals: {error}"));
        1
    })?;
    let job = het::submit(&startup, &cluster, specs)?;
    console.verbose(format_args!("JobId={job} returned by the controller"));

    let mut allocation = Allocation::new(job, Speaker::Salloc, typed.immediate_secs.is_some());
    let mut watch = Watch::open(&cluster, console, job);
    let immediate = typed.immediate_secs.map(|secs| Duration::from_secs(u64::from(secs)));
    let view = match allocation_wait::wait(&mut watch, &mut allocation, &signals, immediate) {
        Waited::Ready(view) => view,
        Waited::Over => return Ok(startup::exit_code(1)),
        Waited::Interrupted => {
            console.error("Interrupted by signal. Allocation request rescinded.");
            return Ok(startup::exit_code(1));
        }
        Waited::Busy => {
            console.error(format_args!("Job submit/allocate failed: {}", Refusal::Busy));
            return Ok(startup::immediate_code());
        }
    };
    if typed.bell {
        output::stderr(b"\x07");
    }
    if typed.no_shell {
        return Ok(0);
    }
    startup.tell_filters(job, None);
    let mut set = variables(&cluster, console, &view, &work_dir, &host);
    let site = env_vars::of_srun(&cluster.config().of_srun());
    set.extend(site.into_iter().chain(origin::hint(&typed)).map(|(name, value)| (Cow::Borrowed(name), value)));
    let missing = MPI_LAUNCHERS.into_iter().filter(|(name, _)| env::var_os(name).is_none());
    set.extend(missing.map(|(name, value)| (Cow::Borrowed(name), value.to_owned())));
    if startup.other_components() > 0 {
        set.extend(het_variables(&cluster, console, &view, &work_dir, &host)?);
    }
    if let Some(dir) = &typed.chdir
        && let Err(error) = env::set_current_dir(dir)
    {
        console.error(format_args!("chdir {dir}: {error}"));
    }
    Ok(run_command(&cluster, console, &typed, job, &command, &set, &signals, watch))
}

/// Those about all components of a heterogeneous job.
fn het_variables(
    cluster: &Cluster,
    console: &Console,
    leader: &JobView,
    work_dir: &Path,
    host: &str,
) -> Result<Vec<(Cow<'static, str>, String)>, i32> {
    let components = het::views(cluster, console, leader.id).map_err(|error| {
        let code = startup::tell_cluster(Command::Salloc, console, &error);
        relinquish(cluster, console, leader.id, 1);
        code
    })?;
    let around = Surroundings {
        cluster: cluster.name(),
        conf: cluster.conf(),
        work_dir,
        host,
        manager: None,
        manager_is_here: false,
    };
    Ok(job_variables::of_components(&components, &around))
}

/// Variables for the command. Where the step manager is, is asked once here, so that steps need the controller no more.
fn variables(
    cluster: &Cluster,
    console: &Console,
    view: &JobView,
    work_dir: &Path,
    host: &str,
) -> Vec<(Cow<'static, str>, String)> {
    let place = manager::locate(cluster, console, view.id);
    if let Err(error) = &place {
        console.verbose(format_args!("step manager not located: {error}"));
    }
    let place = place.ok();
    let around = Surroundings {
        cluster: cluster.name(),
        conf: cluster.conf(),
        work_dir,
        host,
        manager: place.as_ref(),
        manager_is_here: place.as_ref().is_some_and(|p| is_here(Path::new(&p.door)).unwrap_or(false)),
    };
    job_variables::variables(view, &around).into_iter().map(|(name, value)| (Cow::Borrowed(name), value)).collect()
}

#[expect(clippy::too_many_arguments, reason = "the parts of one session, each used once, here")]
fn run_command(
    cluster: &Cluster,
    console: &Console,
    typed: &Typed,
    job: JobId,
    command: &[OsString],
    set: &[(Cow<'static, str>, String)],
    signals: &Signals,
    mut watch: Watch<'_>,
) -> i32 {
    let set: Vec<(&str, String)> = set.iter().map(|(name, value)| (name.as_ref(), value.clone())).collect();
    let process = match CommandProcess::start(command, &set, &job_variables::to_remove()) {
        Ok(process) => process,
        Err(error) => {
            let name = command[0].to_string_lossy();
            console.error(format_args!("_fork_command: Unable to find command \"{name}\""));
            console.hint(format_args!("error: {name}: {error}"));
            relinquish(cluster, console, job, 1);
            return startup::exit_code(1);
        }
    };
    watch.be_silent();
    let mut revoked = false;
    let code = loop {
        pass_on(signals, &process);
        if let Some(code) = ended(&process) {
            break code;
        }
        while let Some(seen) = watch.look() {
            if let Seen::Notice(text) = &seen {
                console.info(text);
            }
            if !revoked && let Some(timed_out) = revoked_by(&seen) {
                revoked = true;
                let mut say = Vec::new();
                Allocation::new(job, Speaker::Salloc, false).over(timed_out, &mut say);
                say.iter().for_each(|line| console.info(line));
                let hang_up = if process.is_interactive() { libc::SIGHUP } else { libc::SIGTERM };
                process.signal(typed.kill_command.unwrap_or(hang_up));
                process.signal(libc::SIGCONT);
            }
        }
        // Once revoked, only the command's end is waited for.
        let (fd, at) = if revoked { (None, None) } else { (watch.fd(), watch.look_at()) };
        allocation_wait::poll_for(signals, fd, at);
    };
    process.take_terminal();
    if !revoked {
        relinquish(cluster, console, job, code);
    }
    code
}

/// Signals go to the command, unless it got them itself.
fn pass_on(signals: &Signals, process: &CommandProcess) {
    while let Some((signal, origin)) = signals.next_with_origin() {
        match signal {
            libc::SIGCHLD | libc::SIGTTOU => {}
            // From the keyboard the command got it too.
            libc::SIGINT | libc::SIGQUIT if origin == Origin::Terminal => {}
            signal => process.signal(signal),
        }
    }
}

/// The command's exit code once it has ended; stops with a command that is stopped at the terminal.
fn ended(process: &CommandProcess) -> Option<i32> {
    match process.look() {
        Outcome::Ended(code) => return Some(code),
        Outcome::Stopped if process.is_interactive() => {
            process.take_terminal();
            // The shell around goes on; when it continues this process, the command continues.
            let _ = nix::sys::signal::raise(Signal::SIGSTOP);
            process.resume();
        }
        Outcome::Running | Outcome::Stopped => {}
    }
    None
}

/// Whether the allocation is over, and then whether its time was up.
fn revoked_by(seen: &Seen) -> Option<bool> {
    match seen {
        Seen::View(view) => {
            sbatch::is_over(view).then(|| view.state == JobState::Timeout || view.ending == Some(JobState::Timeout))
        }
        Seen::Notice(_) => None,
        Seen::Gone => Some(false),
    }
}

fn relinquish(cluster: &Cluster, console: &Console, job: JobId, code: i32) {
    console.info(format_args!("Relinquishing job allocation {job}"));
    allocation_wait::finish(cluster, console, job, code);
}

/// What runs where no command was given: the user's shell here, or the interactive step of the site (slurm.conf(5),
/// `InteractiveStepOptions`), whose options are words for a shell.
fn default_command(config: &Config) -> Vec<OsString> {
    if !config.launch_parameters.has("use_interactive_step") {
        return vec![user_shell()];
    }
    let options = config.interactive_step_options.as_deref().unwrap_or_default();
    ["/bin/sh".into(), "-c".into(), format!("exec srun {options}").into()].into()
}

/// The user's shell: as the system knows it, else `$SHELL`, else the one that is always there.
fn user_shell() -> OsString {
    let known = User::by_uid(nix::unistd::getuid().as_raw()).map(|user| OsString::from(user.shell));
    known
        .filter(|shell| !shell.is_empty())
        .or_else(|| env::var_os("SHELL"))
        .unwrap_or_else(|| OsString::from_vec(b"/bin/sh".to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_shell_is_a_path() {
        assert!(Path::new(&user_shell()).is_absolute());
    }
}
