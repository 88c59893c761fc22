//! `garrick down`: ends the embedded cluster with every job in it and leaves no process and no door behind. The daemons are asked
//! first; remaining processes are ended by pid if they certainly belong to the cluster.

use super::{
    SiteError,
    home::Home,
    processes::{self, Process},
    up,
};
use crate::{
    options::table::Arg,
    output::{self, Console},
    query::arguments::{self, Outcome, Table, option},
};
use garrick_asking::cluster::{Cluster, ClusterError};
use garrick_model::{
    job_query::JobQuery,
    messages::command::{CancelRequest, CommandReply, CommandRequest, JobSelector},
};
use nix::sys::signal::Signal;
use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

pub(crate) static TABLE: Table = Table {
    program: "garrick down",
    purpose: "End the cluster under GARRICK_HOME and every job in it.",
    operands: "",
    words: &[],
    options: &[option("quiet", Some('q'), Arg::None, "no output if there was no error")],
    misuse: 1,
};

/// Longest time for daemons and jobs to end when asked.
const ASKED: Duration = Duration::from_secs(15);
/// Longest time after SIGTERM, before SIGKILL.
const TERMINATED: Duration = Duration::from_secs(3);
/// Longest time for the kernel to end what got SIGKILL.
const KILLED: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Runs `garrick down`.
pub fn main(args: &[OsString], console: &Console) -> Result<i32, SiteError> {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return Ok(code),
    };
    if let Some(word) = arguments.words().first() {
        return Err(SiteError::Usage(format!("down takes no argument '{word}'")));
    }
    let home = Home::from_env()?;
    let ended = end(&home)?;
    if arguments.has("quiet") {
        return Ok(0);
    }
    let text = match ended {
        0 => format!("nothing runs in {}", home.root().display()),
        _ => format!("the cluster in {} is down", home.root().display()),
    };
    Ok(output::finish(console, output::print_line(text), 0))
}

/// Ends everything of that cluster. Returns how many daemon processes there were.
pub fn end(home: &Home) -> Result<usize, SiteError> {
    if !home.root().exists() {
        return Ok(0);
    }
    let _lock = up::lock(home)?;
    let mut daemons = known(home)?;
    let cluster = Cluster::find(Some(&home.conf())).ok();
    let folders = cluster.as_ref().map(|c| run_folders(c, home)).unwrap_or_default();
    let count = daemons.len();
    let mut tasks = processes::of_jobs(&daemons, &folders);
    if let Some(cluster) = &cluster {
        match ask(cluster) {
            Ok(()) => {
                wait_until_gone(&daemons, ASKED);
            }
            // No daemon answers: it is ended by its pid.
            Err(ClusterError::NoDaemon { .. } | ClusterError::Door(_) | ClusterError::Refused(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Whatever was started meanwhile, or survived.
    daemons.extend(
        processes::find(home).into_iter().filter(|f| !daemons.iter().any(|d| d.pid == f.pid)).collect::<Vec<_>>(),
    );
    tasks.extend(processes::of_jobs(&daemons, &folders));
    by_signal(&daemons, &tasks)?;
    // One that was only just started when its parent died shows itself later, and so does a task of a job that had only just
    // begun.
    loop {
        let late = processes::find(home);
        let tasks = processes::of_jobs(&late, &folders);
        if late.is_empty() && tasks.is_empty() {
            break;
        }
        by_signal(&late, &tasks)?;
    }
    for folder in folders {
        remove_doors(&folder);
        // The cluster's folder among others of its kind; one that holds something else stays.
        if folder != home.run() {
            drop(fs::remove_dir(&folder));
        }
    }
    processes::forget(home)?;
    Ok(count)
}

/// The processes that were started, and those found.
pub fn known(home: &Home) -> Result<Vec<Process>, SiteError> {
    let mut list: Vec<Process> = processes::load(home)?.into_iter().filter(Process::is_alive).collect();
    for found in processes::find(home) {
        if !list.iter().any(|p| p.pid == found.pid) {
            list.push(found);
        }
    }
    Ok(list)
}

/// Where this cluster's doors can be; all of these folders are its own.
fn run_folders(cluster: &Cluster, home: &Home) -> Vec<PathBuf> {
    cluster.run_dirs(home.root())
}

/// Cancels what runs, then asks the controller to end itself and every node daemon.
fn ask(cluster: &Cluster) -> Result<(), ClusterError> {
    let mut daemon = cluster.connect("garrick")?;
    if let CommandReply::Jobs { jobs, .. } = daemon.ask(&CommandRequest::list_such_jobs(JobQuery::live()))? {
        let running: Vec<JobSelector> = jobs
            .iter()
            .filter(|j| j.allocation.is_some() && j.state.is_live())
            .map(|j| JobSelector { job: j.id, tasks: None, het: None, run: None })
            .collect();
        if !running.is_empty() {
            daemon.ask(&CommandRequest::Cancel(CancelRequest { jobs: running, ..CancelRequest::default() }))?;
        }
    }
    daemon.ask(&CommandRequest::Shutdown { controller_only: false })?;
    Ok(())
}

/// Whether all of them end within that time.
fn wait_until_gone(processes: &[Process], limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if !processes.iter().any(Process::is_alive) {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(LOOK_AGAIN);
    }
}

fn by_signal(daemons: &[Process], tasks: &[Process]) -> Result<(), SiteError> {
    daemons.iter().for_each(|p| p.signal(Signal::SIGTERM));
    let gone = wait_until_gone(daemons, TERMINATED);
    if !gone {
        daemons.iter().for_each(|p| p.signal(Signal::SIGKILL));
    }
    tasks.iter().for_each(|p| p.signal(Signal::SIGKILL));
    let all: Vec<Process> = daemons.iter().chain(tasks).cloned().collect();
    if wait_until_gone(&all, KILLED) {
        return Ok(());
    }
    let left: Vec<String> = all.iter().filter(|p| p.is_alive()).map(|p| p.pid.to_string()).collect();
    Err(SiteError::Other(format!("these processes do not end, not even by SIGKILL: {}", left.join(" "))))
}

/// Removes what the daemons left in their run folder; it belongs to this cluster alone.
fn remove_doors(folder: &std::path::Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let note = path.file_name().is_some_and(|name| name == garrick_model::doors::CONF);
        if note || path.extension().is_some_and(|e| e == "sock" || e == "pid") {
            drop(fs::remove_file(path));
        }
    }
    // Fails while something else is in it, which then is not ours.
    drop(fs::remove_dir(folder));
}
