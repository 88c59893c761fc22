//! What the shepherd wants done, done: launcher, task descriptors, cgroups, scripts, kills.

use crate::{
    kernel::{
        cgroup::{Group, JobCgroup, MemoryLimit, Swap},
        files,
        proc_tree::{self, ProcessTable},
        pty::{self, WindowSize},
        spawn::Identity,
        topology::CpuMap,
    },
    launcher::{self, LauncherSpec},
    node::runs::ended,
    stepd::{
        launcher_link::LauncherLink,
        streams::{ReadNow, Streams, read_later, write_all},
    },
};
use garrick_actors::shepherd::{PassedFd, ShepherdEffect, ShepherdInput, ShepherdMsg, shell::ShepherdPort};
use garrick_model::{
    ids::StepId,
    messages::{
        launcher::ToLauncher,
        shepherd::{ShepherdToStepMgr, StepNodeShare},
    },
};
use garrick_runtime::{Address, Lane, TraceContext};
use serde_bytes::ByteBuf;
use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

/// How long killing goes on before the rest is given up and named.
const SWEEP_LIMIT: Duration = Duration::from_secs(60);

/// What a shepherd's world consists of.
#[derive(Clone)]
pub struct ShepherdPlace {
    /// Owner, with groups; `None`: this process's own user.
    pub user: Option<Identity>,
    /// Uid and gid of the owner, for files.
    pub owner: (u32, u32),
    /// The run's folder.
    pub folder: PathBuf,
    /// The job's cgroup, where there are cgroups.
    pub cgroup: Option<JobCgroup>,
    /// The node's CPUs.
    pub cpus: CpuMap,
    /// Marks in the environment of everything of the run.
    pub marks: [String; 2],
}

/// Where messages to the step manager go.
pub type ToManager = Rc<dyn Fn(ShepherdToStepMgr)>;

/// The world of a shepherd. Lives on its thread.
pub struct ShepherdWorld {
    place: ShepherdPlace,
    shepherd: Address<ShepherdMsg>,
    to_manager: ToManager,
    finished: Box<dyn FnMut()>,
    launcher: Option<LauncherLink>,
    launcher_pid: Option<u32>,
    streams: Streams,
    steps: HashMap<StepId, Group>,
    ooms_seen: HashMap<Option<StepId>, u64>,
}

impl ShepherdWorld {
    /// `finished` is called when nothing of the job is left here.
    pub fn new(
        place: ShepherdPlace,
        shepherd: Address<ShepherdMsg>,
        to_manager: ToManager,
        finished: Box<dyn FnMut()>,
    ) -> Self {
        Self {
            place,
            shepherd,
            to_manager,
            finished,
            launcher: None,
            launcher_pid: None,
            streams: Streams::default(),
            steps: HashMap::new(),
            ooms_seen: HashMap::new(),
        }
    }

    fn tell(shepherd: &Address<ShepherdMsg>, cx: TraceContext, input: ShepherdInput) {
        if let Err(e) = shepherd.deliver(cx, Lane::Control, ShepherdMsg(input)) {
            tracing::error!(error = %e, "the shepherd does not take messages");
        }
    }

    fn later(&self, work: impl Future<Output = ShepherdInput> + 'static) {
        let (shepherd, cx) = (self.shepherd.clone(), TraceContext::current());
        actix_rt::spawn(async move {
            let input = work.await;
            Self::tell(&shepherd, cx, input);
        });
    }

    fn now(&self, input: ShepherdInput) {
        Self::tell(&self.shepherd, TraceContext::current(), input);
    }

    fn start_launcher(&mut self) {
        let outcome = self.try_start_launcher();
        self.now(match outcome {
            Ok(()) => ShepherdInput::LauncherUp,
            Err(detail) => ShepherdInput::LauncherDown { detail },
        });
    }

    fn try_start_launcher(&mut self) -> Result<(), String> {
        let mut spec = LauncherSpec::new(self.place.user.clone());
        if let Some(cgroup) = &self.place.cgroup {
            spec.cgroup_procs = cgroup.main().entries().map_err(|e| e.to_string())?;
        }
        let handle = launcher::start(spec).map_err(|e| e.to_string())?;
        let (shepherd, pid) = (self.shepherd.clone(), handle.pid);
        let deliver = move |message| Self::tell(&shepherd, TraceContext::root(), ShepherdInput::Launcher(message));
        let shepherd = self.shepherd.clone();
        let pidfd = handle.pidfd;
        let ended = move |gone: crate::stepd::launcher_link::LauncherGone| {
            actix_rt::spawn(async move {
                let how = ended(pidfd).await;
                let detail = format!("{gone}; its process ended with {how}");
                Self::tell(&shepherd, TraceContext::root(), ShepherdInput::LauncherDown { detail });
            });
        };
        let link = LauncherLink::start(handle.channel, deliver, ended).map_err(|e| e.to_string())?;
        (self.launcher, self.launcher_pid) = (Some(link), Some(pid));
        Ok(())
    }

    fn to_launcher(&mut self, message: ToLauncher, passed: &[PassedFd]) {
        let mut fds = Vec::with_capacity(passed.len());
        for one in passed {
            if let Err(e) = self.make(one, &mut fds) {
                tracing::error!(error = %e, "descriptors for a task");
                if let ToLauncher::Spawn(task) = &message {
                    let errno = e.raw_os_error().unwrap_or(libc::EIO);
                    let failed = garrick_model::messages::launcher::FromLauncher::SpawnFailed {
                        token: task.token,
                        stage: "pipe".into(),
                        subject: "its descriptors".into(),
                        errno,
                    };
                    self.now(ShepherdInput::Launcher(failed));
                }
                return;
            }
        }
        if let Some(link) = &self.launcher {
            link.send(message, fds);
        }
    }

    fn make(&mut self, one: &PassedFd, fds: &mut Vec<OwnedFd>) -> std::io::Result<()> {
        match one {
            PassedFd::Input { token } => fds.push(self.streams.input(*token)?),
            PassedFd::Output { token, stream } => fds.push(self.streams.output(*token, *stream)?),
            PassedFd::Terminal { token, rows, cols } => {
                let size = WindowSize { rows: *rows, cols: *cols };
                let owner = self.place.user.as_ref().map(|u| u.uid);
                let pair = pty::open(size, owner).map_err(|e| e.cause)?;
                self.streams.terminal(*token, pair.master)?;
                fds.push(pair.terminal);
            }
            PassedFd::Cgroup { step } => {
                if let Some(group) = self.steps.get(step) {
                    fds.extend(group.entries().map_err(|e| std::io::Error::other(e.to_string()))?);
                }
            }
        }
        Ok(())
    }

    fn prepare(
        &mut self,
        step: StepId,
        script: Option<ByteBuf>,
        share: Option<StepNodeShare>,
    ) -> Result<Option<String>, String> {
        if let (Some(share), Some(job)) = (share, &self.place.cgroup) {
            let group = job.create_step(&step_name(step)).map_err(|e| e.to_string())?;
            group.set_cpus(&self.place.cpus.machine_cpus(share.cpus.iter())).map_err(|e| e.to_string())?;
            if let Some(mib) = share.memory_mib {
                let limit = MemoryLimit { bytes: mib << 20, swap: Swap::Within };
                group.set_memory(limit).map_err(|e| e.to_string())?;
            }
            self.steps.insert(step, group);
        }
        let Some(text) = script else { return Ok(None) };
        let folder = self.place.folder.join("scripts");
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o711))
            .map_err(|e| format!("{}: {e}", folder.display()))?;
        let own = folder.join(step_name(step));
        std::fs::create_dir_all(&own).map_err(|e| format!("{}: {e}", own.display()))?;
        let path = own.join("slurm_script");
        files::write_atomically(&path, &text, 0o500).map_err(|e| e.to_string())?;
        let (uid, gid) = self.place.owner;
        files::give_to(&path, uid, gid).map_err(|e| e.to_string())?;
        Ok(Some(path.to_string_lossy().into_owned()))
    }

    /// True when the cgroup counted more kills than when it was last asked.
    fn oom(&mut self, step: Option<StepId>) -> bool {
        let group = match step.and_then(|s| self.steps.get(&s)) {
            Some(group) => group.clone(),
            None => match &self.place.cgroup {
                Some(job) => job.tasks(),
                None => return false,
            },
        };
        let count = group.oom_kills().ok().flatten().unwrap_or(0);
        count > self.ooms_seen.insert(step, count).unwrap_or(0)
    }

    fn sweep_step(&mut self, step: StepId) {
        let Some(group) = self.steps.remove(&step) else { return self.now(ShepherdInput::Swept { step }) };
        self.later(async move {
            let swept = tokio::task::spawn_blocking(move || {
                let left = group.kill_until_empty(SWEEP_LIMIT)?;
                if left.is_empty() { group.remove_within(SWEEP_LIMIT) } else { Ok(()) }
            });
            if let Ok(Err(e)) = swept.await {
                tracing::warn!(step_id = %step, error = %e, "removing a step's cgroup");
            }
            ShepherdInput::Swept { step }
        });
    }

    fn sweep_job(&self) {
        let place = self.place.clone();
        let launcher = self.launcher_pid;
        self.later(async move {
            let swept = tokio::task::spawn_blocking(move || sweep_everything(&place, launcher)).await;
            if let Ok(left) = swept
                && !left.is_empty()
            {
                tracing::error!("processes cannot be killed: {left:?}");
            }
            ShepherdInput::JobSwept
        });
    }
}

/// Kills all of the user's processes of the run, daemonised ones too. The launcher goes with them.
fn sweep_everything(place: &ShepherdPlace, launcher: Option<u32>) -> Vec<u32> {
    if let Some(cgroup) = &place.cgroup {
        return cgroup.tasks().kill_until_empty(SWEEP_LIMIT).unwrap_or_else(|e| {
            tracing::error!(error = %e, "killing what is left of the job");
            Vec::new()
        });
    }
    let marks: Vec<&[u8]> = place.marks.iter().map(|m| m.as_bytes()).collect();
    let own = std::process::id();
    let find = || {
        let table = ProcessTable::scan(Path::new("/proc"))?;
        let mut found = table.marked(&marks);
        // This process is a subreaper, and so is the launcher: whatever was daemonised hangs below one of them.
        found.extend(table.descendants(own));
        found.sort_unstable_by_key(|p| p.pid);
        found.dedup_by_key(|p| p.pid);
        found.retain(|p| p.pid != own && Some(p.pid) != launcher);
        Ok(found)
    };
    match proc_tree::kill_until_gone(find, SWEEP_LIMIT) {
        Ok(left) => left.iter().map(|p| p.pid).collect(),
        Err(e) => {
            tracing::error!(error = %e, "looking for processes of the job");
            Vec::new()
        }
    }
}

fn step_name(step: StepId) -> String {
    step.step.to_string()
}

impl ShepherdPort for ShepherdWorld {
    fn perform(&mut self, effect: ShepherdEffect) {
        match effect {
            ShepherdEffect::ToManager(message) => (self.to_manager)(message),
            ShepherdEffect::ToLauncher { message, passed } => self.to_launcher(message, &passed),
            ShepherdEffect::StartLauncher => self.start_launcher(),
            ShepherdEffect::Prepare { step, script, cgroup } => {
                let result = self.prepare(step, script, cgroup);
                self.now(ShepherdInput::Prepared { step, result });
            }
            ShepherdEffect::Read { token, stream } => match self.streams.read(token, stream) {
                ReadNow::Done(data) => self.now(ShepherdInput::Data { token, stream, data: ByteBuf::from(data) }),
                ReadNow::Later(watch) => self.later(async move {
                    let data = ByteBuf::from(read_later(watch).await);
                    ShepherdInput::Data { token, stream, data }
                }),
            },
            ShepherdEffect::Write { token, data } => match self.streams.input_of(token) {
                Some(watch) => self.later(async move {
                    let taken = write_all(watch, &data).await;
                    ShepherdInput::Written { token, taken }
                }),
                None => self.now(ShepherdInput::Written { token, taken: false }),
            },
            ShepherdEffect::CloseInput { token } => self.streams.close_input(token),
            ShepherdEffect::Close { token } => self.streams.close(token),
            ShepherdEffect::Resize { token, rows, cols } => {
                if let Some(terminal) = self.streams.terminal_of(token)
                    && let Err(e) =
                        pty::set_size(std::os::fd::AsFd::as_fd(terminal.get_ref()), WindowSize { rows, cols })
                {
                    tracing::debug!(error = %e, "resizing a terminal");
                }
            }
            ShepherdEffect::AskOom { token, step } => {
                let killed = self.oom(step);
                self.now(ShepherdInput::Oom { token, killed });
            }
            ShepherdEffect::KillGroups { pids } => {
                for pid in pids.iter().filter_map(|p| i32::try_from(*p).ok()) {
                    // Gone already is what is wanted.
                    let _ =
                        nix::sys::signal::killpg(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
                }
            }
            ShepherdEffect::Sweep { step } => self.sweep_step(step),
            ShepherdEffect::SweepJob => self.sweep_job(),
            ShepherdEffect::Finished => (self.finished)(),
            // The shell keeps timers and the log.
            ShepherdEffect::SetTimer { .. } | ShepherdEffect::Log { .. } => {}
        }
    }
}
