//! How a shepherd gets its launcher: if that of an earlier `stepd` of the run is alive, it is adopted; otherwise a new one is
//! started, after everything that another had started is killed.

use super::{
    launcher_link::{LauncherGone, LauncherLink},
    shepherd_port::ShepherdPlace,
};
use crate::{
    handed::TaskFd,
    launcher::{self, LauncherAhead, LauncherHandle, LauncherSpec},
};
use garrick_kernel::{
    cgroup::{CgroupError, Entry},
    proc_tree::{self, Process, ProcessTable},
    reap::ended,
    signals,
};
use garrick_model::{
    ids::StepId,
    messages::launcher::{FromLauncher, TaskHeld, TaskOver, ToLauncher},
};
use garrick_run::shepherd::{ShepherdInput, ShepherdMsg};
use garrick_runtime::{Address, Lane, TraceContext};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashMap},
    fs::File,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    rc::Rc,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;

/// How long tasks are killed one by one, so that their launcher can tell of their ends, before it goes with them: no
/// longer than killing goes on at all.
const GENTLE_LIMIT: Duration = Duration::from_secs(5);
/// How long a launcher may take to say what it has.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// How long a launcher may take from its birth until it listens, and how often that is looked for.
const BIRTH_LIMIT: Duration = Duration::from_secs(5);
const BIRTH_PAUSE: Duration = Duration::from_millis(10);
/// Tasks and ends that a launcher may speak of. Thousands run on the largest nodes; the rest would be made up.
const MOST_HELD: usize = 1 << 18;

/// A launcher at work, as seen from here.
pub struct Launcher {
    /// To it.
    pub link: LauncherLink,
    /// Its process.
    pub pid: u32,
}

/// Hands an input to the shepherd.
pub fn tell(shepherd: &Address<ShepherdMsg>, cx: TraceContext, input: ShepherdInput) {
    if let Err(e) = shepherd.deliver(cx, Lane::Control, ShepherdMsg(input)) {
        tracing::error!(error = %e, "the shepherd does not take messages");
    }
}

/// Gets a launcher. `first`: this process had none before. The answer goes to the shepherd.
pub async fn obtain(
    place: ShepherdPlace,
    first: bool,
    shepherd: Address<ShepherdMsg>,
    found: Rc<RefCell<Option<Launcher>>>,
    kills: KillsSeen,
) {
    let former = found.borrow_mut().take().map(|launcher| launcher.pid);
    let mut clean = first && !place.restarted;
    if first && place.restarted {
        match adopt(&place, &shepherd, &kills).await {
            Ok(Adopted { launcher, what, later }) => {
                tracing::info!(launcher = launcher.pid, "a launcher of a former stepd was taken over");
                *found.borrow_mut() = Some(launcher);
                tell(&shepherd, TraceContext::root(), what);
                // From now on its messages go to the shepherd at once.
                for message in later.take().into_iter().flatten() {
                    tell(&shepherd, TraceContext::root(), ShepherdInput::Launcher(message));
                }
                return;
            }
            Err(NotAdopted::NeverThere) => {
                tracing::info!("the former stepd had not started a launcher yet");
                clean = true;
            }
            Err(NotAdopted::Lost(e)) => {
                tracing::warn!(error = e, "the launcher of the former stepd cannot be taken over");
            }
        }
    }
    if !clean {
        let swept = place.clone();
        let left = tokio::task::spawn_blocking(move || sweep_everything(&swept, former)).await.unwrap_or_default();
        if !left.is_empty() {
            tracing::error!("processes of a former launcher cannot be killed: {left:?}");
        }
    }
    let input = match start(&place, clean, &shepherd, &kills) {
        Ok(launcher) => {
            *found.borrow_mut() = Some(launcher);
            ShepherdInput::LauncherUp { first: clean }
        }
        Err(detail) => ShepherdInput::LauncherDown { detail, for_memory: false },
    };
    tell(&shepherd, TraceContext::root(), input);
}

/// How the run's launcher is started. `first`: nothing was killed in its cgroup yet.
fn spec(place: &ShepherdPlace, first: bool) -> Result<LauncherSpec<'_>, String> {
    let mut spec = LauncherSpec::new(place.user.clone());
    if let Some(cgroup) = &place.cgroup {
        let main = cgroup.main();
        // All earlier processes were killed.
        let entry = if first { main.entry() } else { main.entries().map(Entry::from) };
        let Entry { folder, files } = entry.map_err(|e| e.to_string())?;
        (spec.into_cgroup, spec.cgroup_procs) = (folder, files);
    }
    spec.listen_at = Some(&place.launcher_socket);
    spec.successor = !first;
    Ok(spec)
}

/// The run's first launcher, before it is needed: see [`launcher::start_ahead`]. `None`: it is started when it is.
pub fn start_ahead(place: &ShepherdPlace) -> Option<LauncherAhead> {
    let started = spec(place, true).and_then(|spec| launcher::start_ahead(spec).map_err(|e| e.to_string()));
    started.inspect_err(|e| tracing::debug!(error = e, "no launcher ahead of time")).ok()
}

fn start(
    place: &ShepherdPlace,
    first: bool,
    shepherd: &Address<ShepherdMsg>,
    kills: &KillsSeen,
) -> Result<Launcher, String> {
    let ahead = place.ahead.lock().unwrap_or_else(PoisonError::into_inner).take().filter(|_| first);
    let ready = ahead.map(LauncherAhead::ready).transpose().unwrap_or_else(|e| {
        tracing::info!(error = %e, "a launcher is started by executing it");
        None
    });
    let handle = match ready {
        Some(handle) => handle,
        None => launcher::start(spec(place, first)?).map_err(|e| e.to_string())?,
    };
    let (told, pid) = (shepherd.clone(), handle.pid);
    let deliver = move |message| tell(&told, TraceContext::root(), ShepherdInput::Launcher(message));
    let link =
        LauncherLink::start(handle.channel, deliver, when_gone(handle.pidfd, shepherd.clone(), kills.of_job(place)));
    let link = link.map_err(|e| e.to_string())?;
    match File::open(Path::new(proc_tree::PROC).join(pid.to_string()).join("io")) {
        Ok(io) => link.send(ToLauncher::Count, vec![TaskFd::Own(io.into())]),
        // Not root's business to show: what tasks read and write is known from looks at them alone.
        Err(error) => tracing::debug!(%error, "what tasks read and write is not counted at their ends"),
    }
    Ok(Launcher { link, pid })
}

/// Kills for memory that were counted already, by step; none for those of the tasks that share the job's cgroup.
#[derive(Clone, Debug, Default)]
pub struct KillsSeen(Rc<RefCell<HashMap<Option<StepId>, u64>>>);

impl KillsSeen {
    /// True when a cgroup has counted more of them than when it was last asked.
    pub fn are_more(&self, step: Option<StepId>, count: Result<Option<u64>, CgroupError>) -> bool {
        let count = count.unwrap_or_else(|e| {
            tracing::warn!(error = %e, "kills for memory cannot be counted");
            None
        });
        let Some(count) = count else { return false };
        count > self.0.borrow_mut().insert(step, count).unwrap_or(0)
    }

    /// Asks the job's own cgroup, where the launcher is too.
    fn of_job(&self, place: &ShepherdPlace) -> impl FnOnce() -> bool + use<> {
        let (seen, cgroup) = (self.clone(), place.cgroup.clone());
        move || cgroup.is_some_and(|job| seen.are_more(None, job.main().own_oom_kills()))
    }

    /// That step is over.
    pub fn forget(&self, step: StepId) {
        self.0.borrow_mut().remove(&Some(step));
    }
}

/// What it said it has so far.
#[derive(Default)]
struct Gathered {
    tasks: Vec<TaskHeld>,
    ended: Vec<TaskOver>,
}

/// A launcher that was taken over.
struct Adopted {
    launcher: Launcher,
    /// What it has.
    what: ShepherdInput,
    /// What it said after that, which the shepherd must not hear before: an end of a task that it does not know is no end.
    /// `None`: it may hear everything.
    later: Rc<RefCell<Option<Vec<FromLauncher>>>>,
}

/// Why there is no launcher to take over.
enum NotAdopted {
    /// None was ever started: no task was.
    NeverThere,
    /// There was one.
    Lost(String),
}

impl From<String> for NotAdopted {
    fn from(why: String) -> Self {
        Self::Lost(why)
    }
}

/// Connects to a launcher. One that was only just started does not listen yet: it is waited for while it lives, since it has
/// the first orders before it.
async fn connect(place: &ShepherdPlace) -> Result<LauncherHandle, NotAdopted> {
    let until = tokio::time::Instant::now() + BIRTH_LIMIT;
    loop {
        match launcher::adopt(&place.launcher_socket, place.owner.0) {
            Ok(handle) => return Ok(handle),
            Err(e) if e.is_none_there() => return Err(NotAdopted::NeverThere),
            Err(e) if e.is_nobody_listening() && tokio::time::Instant::now() < until && is_being_born(place) => {
                tokio::time::sleep(BIRTH_PAUSE).await;
            }
            Err(e) => return Err(NotAdopted::Lost(e.to_string())),
        }
    }
}

/// Some process was started as the launcher of this run.
fn is_being_born(place: &ShepherdPlace) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let socket = place.launcher_socket.as_os_str().as_bytes();
    ProcessTable::scan(Path::new(proc_tree::PROC)).is_ok_and(|table| !table.with_argument(&[socket]).is_empty())
}

/// Connects to the launcher that a former `stepd` left behind, and hears what it has.
async fn adopt(
    place: &ShepherdPlace,
    shepherd: &Address<ShepherdMsg>,
    kills: &KillsSeen,
) -> Result<Adopted, NotAdopted> {
    let LauncherHandle { channel, pid, pidfd } = connect(place).await?;
    let (answer, answered) = oneshot::channel();
    let asking = Rc::new(RefCell::new(Some(answer)));
    let mut gathered = Gathered::default();
    let (told, waiting) = (shepherd.clone(), Rc::clone(&asking));
    let later = Rc::new(RefCell::new(Some(Vec::new())));
    let held_back = Rc::clone(&later);
    let deliver = move |message| match message {
        FromLauncher::Held { tasks, ended, first, more } => {
            gathered.tasks.extend(tasks);
            gathered.ended.extend(ended);
            let enough = gathered.tasks.len() + gathered.ended.len() > MOST_HELD;
            if enough || !more {
                // Without an answer, the waiting caller learns that there will be none.
                let answer = waiting.borrow_mut().take().filter(|_| !enough);
                let Gathered { tasks, ended } = std::mem::take(&mut gathered);
                answer.map(|answer| answer.send(ShepherdInput::Adopted { tasks, ended, complete: first }));
            }
        }
        message => match held_back.borrow_mut().as_mut() {
            Some(later) => later.push(message),
            None => tell(&told, TraceContext::root(), ShepherdInput::Launcher(message)),
        },
    };
    let kept = pidfd.try_clone().map_err(|e| e.to_string())?;
    let (adopted, closed) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let ended = {
        let (adopted, closed) = (Rc::clone(&adopted), Rc::clone(&closed));
        let late = when_gone(pidfd, shepherd.clone(), kills.of_job(place));
        move |reason: LauncherGone| {
            closed.set(true);
            if adopted.get() {
                late(reason);
            } else {
                asking.borrow_mut().take();
            }
        }
    };
    let link = LauncherLink::start(channel, deliver, ended).map_err(|e| e.to_string())?;
    link.send(ToLauncher::Adopt, Vec::new());
    match tokio::time::timeout(ANSWER_LIMIT, answered).await {
        Ok(Ok(what)) if !closed.get() => {
            adopted.set(true);
            Ok(Adopted { launcher: Launcher { link, pid }, what, later })
        }
        _ => {
            // Whatever it is, it is not of use any more.
            let _ = signals::send(kept.as_fd(), libc::SIGKILL);
            Err(NotAdopted::Lost("it does not say what it has".into()))
        }
    }
}

/// Handles a launcher whose socket closed: one that is not ending by itself could only wait for another `stepd`.
fn when_gone(
    pidfd: OwnedFd,
    shepherd: Address<ShepherdMsg>,
    killed_for_memory: impl FnOnce() -> bool + 'static,
) -> impl FnOnce(LauncherGone) {
    move |gone| {
        actix_rt::spawn(async move {
            // Ended already is as well.
            let _ = signals::send(pidfd.as_fd(), libc::SIGKILL);
            let how = ended(pidfd).await;
            let detail = format!("{gone}; its process ended with {how}");
            let for_memory = killed_for_memory();
            tell(&shepherd, TraceContext::root(), ShepherdInput::LauncherDown { detail, for_memory });
        });
    }
}

/// The processes of the run's tasks, without `launcher`.
fn processes(place: &ShepherdPlace, launcher: Option<u32>) -> std::io::Result<Vec<Process>> {
    let mut found = match &place.cgroup {
        Some(cgroup) => {
            let pids = cgroup.tasks().pids().map_err(|e| std::io::Error::other(e.to_string()))?;
            pids.into_iter().filter_map(|pid| Process::read(Path::new(proc_tree::PROC), pid)).collect()
        }
        None => {
            let table = ProcessTable::scan(Path::new(proc_tree::PROC))?;
            let marks: Vec<&[u8]> = place.marks.iter().map(|m| m.as_bytes()).collect();
            let mut found = table.marked(&marks);
            // This process is a subreaper, and so is the launcher: whatever was daemonised hangs below one of them.
            for own in [Some(std::process::id()), launcher].into_iter().flatten() {
                found.extend(table.descendants(own));
            }
            found.sort_unstable_by_key(|p| p.pid);
            found.dedup_by_key(|p| p.pid);
            found
        }
    };
    found.retain(|p| p.pid != std::process::id() && Some(p.pid) != launcher);
    Ok(found)
}

/// Kills all of the user's processes of the run, daemonised ones too, but not the launcher: it tells of the ends, and writes
/// what it holds. If that cannot be done, it goes with them. Gives back what is left.
pub fn sweep_tasks(place: &ShepherdPlace, launcher: Option<u32>) -> Vec<u32> {
    let living = || processes(place, launcher).map(|found| found.into_iter().filter(|p| !p.is_dead()).collect());
    let nothing = matches!(&living(), Ok::<Vec<Process>, _>(found) if found.is_empty());
    // Without a cgroup a process could hide, so the search is repeated.
    if nothing && place.cgroup.is_some() {
        return Vec::new();
    }
    match proc_tree::kill_until_gone(living, GENTLE_LIMIT.min(place.sweep_limit)) {
        Ok(left) if left.is_empty() => Vec::new(),
        Ok(_) => sweep_everything(place, launcher),
        Err(e) => {
            tracing::error!(error = %e, "looking for processes of the job");
            sweep_everything(place, launcher)
        }
    }
}

/// Kills all of the user's processes of the run, where there are cgroups the launcher too. Gives back what is left.
pub fn sweep_everything(place: &ShepherdPlace, launcher: Option<u32>) -> Vec<u32> {
    let swept = match &place.cgroup {
        Some(cgroup) => cgroup.tasks().kill_until_empty(place.sweep_limit).map_err(|e| e.to_string()),
        None => proc_tree::kill_until_gone(|| processes(place, launcher), place.sweep_limit)
            .map(|left| left.iter().map(|p| p.pid).collect())
            .map_err(|e| e.to_string()),
    };
    swept.unwrap_or_else(|e| {
        tracing::error!(error = e, "killing what is left of the job");
        Vec::new()
    })
}

/// Signals of which the latest counts.
#[derive(Default)]
pub struct RunSignals {
    sent: AtomicU64,
    turn: Mutex<()>,
}

impl RunSignals {
    /// The number of one more, which takes the place of those before.
    pub fn next(&self) -> u64 {
        self.sent.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn is_latest(&self, number: u64) -> bool {
        self.sent.load(Ordering::Relaxed) == number
    }
}

/// A signal to all of the user's processes of the run but the launcher, once each, unless there is a later one than this
/// `number` of `signals`.
pub fn signal_run(place: &ShepherdPlace, launcher: u32, signal: i32, signals: &RunSignals, number: u64) {
    // What was forked by a process before that one was reached is met by the next look.
    const LOOKS: u32 = 5;
    let _turn = signals.turn.lock().unwrap_or_else(PoisonError::into_inner);
    let mut reached: BTreeSet<(u32, u64)> = BTreeSet::new();
    for look in 0..LOOKS {
        let found = match processes(place, Some(launcher)) {
            Ok(found) => found,
            Err(e) => return tracing::error!(error = %e, signal, "looking for processes of the job"),
        };
        let fresh = |p: &Process| !p.is_dead() && !reached.contains(&(p.pid, p.start_time));
        let found: Vec<Process> = found.into_iter().filter(fresh).collect();
        if found.is_empty() && look > 0 {
            return;
        }
        for process in found {
            if !signals.is_latest(number) {
                return;
            }
            if let Err(e) = proc_tree::signal(&process, signal) {
                tracing::warn!(error = %e, signal, pid = process.pid, "signalling a process of the job");
            }
            reached.insert((process.pid, process.start_time));
        }
    }
}

/// SIGKILL to what is left of process groups that the launcher named, if it belongs to this run.
pub fn kill_groups(place: &ShepherdPlace, launcher: Option<u32>, groups: &[u32]) {
    let groups: BTreeSet<u32> = groups.iter().copied().collect();
    match processes(place, launcher) {
        Ok(found) => {
            for process in found.iter().filter(|p| groups.contains(&p.pgrp) && !p.is_dead()) {
                // Gone already is what is wanted.
                let _ = proc_tree::signal(process, libc::SIGKILL);
            }
        }
        Err(e) => tracing::error!(error = %e, "looking for what is left of tasks"),
    }
}
