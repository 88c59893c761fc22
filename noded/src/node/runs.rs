//! Starts, watches and cleans up the `stepd`s of runs.

use super::{records::Retention, site_scripts::Current, spool::Spool, unkillable, user_env};
use crate::scripts::{self, ScriptFailure};
use garrick_agent::{Leftover, PrepareFailure, RunKey};
use garrick_daemon::run::{
    folder::launcher_socket,
    orders::{StepdOrders, StepdSettings},
};
use garrick_kernel::{
    cgroup::{CgroupError, Entry, JobCgroup, Tracking},
    gpu::Nvml,
    gpu_freq::KeptClocks,
    lock::LifeLock,
    proc_tree::{self, ProcessTable},
    spawn::{self, Session, SpawnSpec, Spawned, cstring},
};
use garrick_model::{
    doors,
    messages::node::{JobCredential, JobLaunch},
    node_shape::NodeShape,
    site_program::{Moment, SiteProgram, variable},
};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// What every run of this node needs.
#[derive(Debug)]
pub struct RunWorld {
    /// Node name.
    pub node: String,
    /// Spool.
    pub spool: Spool,
    /// How processes are tracked.
    pub tracking: Tracking,
    /// Processes can be started in new cgroups: found out for the first run.
    pub births: Arc<OnceLock<bool>>,
    /// Its settings.
    pub settings: StepdSettings,
    /// OverTimeLimit in each partition, minutes; `None`: unlimited.
    pub over_time: BTreeMap<String, Option<u64>>,
    /// This node's door.
    pub agent_door: PathBuf,
    /// The site's programs.
    pub scripts: Current,
    /// BatchStartTimeout: how long a login may take whose environment a job is to have.
    pub login_limit: Duration,
    /// `PrologFlags=Serial`: who holds it may run a prolog or epilog.
    pub one_script: Option<tokio::sync::Mutex<()>>,
    /// Log file of the `stepd`s; `None`: standard error as inherited.
    pub log: Option<PathBuf>,
    /// UnkillableStepTimeout: how long a sweep goes on.
    pub sweep_limit: Duration,
    /// How long records of steps stay.
    pub retention: Retention,
    /// The daemon ends and takes its runs with it: none is started again.
    pub closing: Arc<AtomicBool>,
    /// What the controller says that this node counts as.
    pub counts_as: Arc<Mutex<Option<NodeShape>>>,
}

/// The variables of prolog and epilog (slurm.conf(5), prolog_epilog).
fn script_environment(node: &str, credential: &JobCredential, name: &str) -> Vec<(String, String)> {
    let nodes: Vec<String> = credential.nodes.iter().map(|n| n.name.clone()).collect();
    let pair = |k: &str, v: String| (k.to_owned(), v);
    vec![
        pair("SLURM_JOB_ID", credential.job.0.to_string()),
        pair("SLURM_JOBID", credential.job.0.to_string()),
        pair("SLURM_JOB_SLUID", credential.sluid.to_string()),
        pair("SLURM_JOB_UID", credential.uid.to_string()),
        pair("SLURM_UID", credential.uid.to_string()),
        pair("SLURM_JOB_GID", credential.gid.to_string()),
        pair("SLURM_JOB_USER", credential.user.clone()),
        pair("SLURM_JOB_NAME", name.to_owned()),
        pair("SLURM_JOB_PARTITION", credential.partition.clone()),
        pair("SLURM_JOB_NODELIST", garrick_model::hostlist::fold(&nodes)),
        pair("SLURM_CLUSTER_NAME", credential.cluster.clone()),
        pair("SLURMD_NODENAME", node.to_owned()),
    ]
}

impl RunWorld {
    fn cgroup(&self, run: RunKey) -> Option<Result<JobCgroup, CgroupError>> {
        self.tracking.cgroups().map(|c| c.job(run.job.0, &run.sluid.to_string()))
    }

    /// Path of the door of a run's `stepd`.
    pub fn door(&self, run: RunKey) -> PathBuf {
        doors::of_stepd(&self.settings.doors, run.job, &self.node, run.sluid)
    }

    /// What the controller says that this node counts as.
    pub fn counts_as(&self) -> MutexGuard<'_, Option<NodeShape>> {
        self.counts_as.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Folder, prolog, cgroup, process.
    pub async fn prepare(
        &self,
        run: RunKey,
        mut launch: JobLaunch,
        credential: JobCredential,
        manager: Option<String>,
    ) -> Result<(u32, OwnedFd), PrepareFailure> {
        if launch.spec.user_env && manager.is_none() {
            let login = user_env::of_login(credential.uid, self.login_limit).await;
            let login = login.map_err(|e| PrepareFailure::Start(e.to_string()))?;
            let spec = Arc::make_mut(&mut launch.spec);
            user_env::lay_under(Arc::make_mut(&mut spec.environment), login);
        }
        let environment = script_environment(&self.node, &credential, &launch.spec.name);
        let mut settings = self.settings.clone();
        if let Some(minutes) = self.over_time.get(&credential.partition) {
            settings.over_time_minutes = *minutes;
        }
        let scripts = self.scripts.get();
        (settings.task_scripts, settings.of_srun) = (scripts.task.clone(), scripts.of_srun.clone());
        if let Some(shape) = self.counts_as().clone() {
            let gres = std::mem::take(&mut settings.shape.gres);
            settings.shape = NodeShape { gres, ..shape };
        }
        settings.cgroups = self.tracking.cgroups().cloned();
        let orders = StepdOrders {
            launch,
            credential,
            node: self.node.clone(),
            manager,
            agent_door: self.agent_door.clone(),
            door: self.door(run),
            identity: self.spool.identity(),
            settings,
            boot: self.spool.boot.clone(),
        };
        self.spool.create_run(run, &orders).map_err(|e| PrepareFailure::Start(e.to_string()))?;
        self.run_script(Moment::Prolog, environment).await.map_err(|e| {
            match e.is_of_input() {
                // The job's fault: the node stays in service for others.
                true => PrepareFailure::Start(e.to_string()),
                false => PrepareFailure::Prolog(e.to_string()),
            }
        })?;
        self.start(run).map_err(PrepareFailure::Start)
    }

    fn start(&self, run: RunKey) -> Result<(u32, OwnedFd), String> {
        let folder = self.spool.run(run);
        StepdOrders::confirm(&folder).map_err(|e| e.to_string())?;
        let started = match self.spool.take_life(run) {
            Ok(Some(life)) => self.start_stepd(run, &life),
            // Its orders are that one's.
            Ok(None) => return Err("a stepd of this run lives already".into()),
            Err(e) => Err(e.to_string()),
        };
        // A run that is reported as not started is not to be taken up by the next agent, should this one die now.
        started.map_err(|why| match StepdOrders::withdraw(&folder) {
            Ok(()) => why,
            Err(e) => format!("{why}; {e}"),
        })
    }

    /// The `stepd` of a run that had one before. One that lives after all (its start was broken off by the end of an agent)
    /// is the run's.
    pub fn restart(&self, run: RunKey) -> Result<(u32, OwnedFd), String> {
        if self.closing.load(Ordering::Acquire) {
            return Err("this daemon is ending".into());
        }
        // What is wrong with them is better said here than by a process that ends at once.
        StepdOrders::load(&self.spool.run(run)).map_err(|e| e.to_string())?;
        if let Some(life) = self.spool.take_life(run).map_err(|e| e.to_string())? {
            return self.start_stepd(run, &life);
        }
        let pid = self.spool.living_stepd(run).ok_or("one lives, and has not said yet which process it is")?;
        let pidfd = proc_tree::open(pid).map_err(|e| format!("process {pid}: {e}"))?;
        Ok((pid, pidfd))
    }

    /// Where a run's step manager is reached from now on, for its shepherd here.
    pub fn note_manager(&self, run: RunKey, manager: String) -> Result<(), String> {
        let folder = self.spool.run(run);
        let orders = StepdOrders::load(&folder).map_err(|e| e.to_string())?;
        if orders.manager.as_ref().is_none_or(|known| *known == manager) {
            return Ok(());
        }
        StepdOrders { manager: Some(manager), ..orders }.save(&folder).map_err(|e| e.to_string())
    }

    fn start_stepd(&self, run: RunKey, life: &LifeLock) -> Result<(u32, OwnedFd), String> {
        let mut entry = Entry::default();
        if let Some(cgroups) = self.tracking.cgroups() {
            let cgroup = cgroups.create_job(run.job.0, &run.sluid.to_string()).map_err(|e| e.to_string())?;
            let births = *self.births.get_or_init(|| cgroups.lets_be_born());
            let mgr = cgroup.mgr();
            entry = if births { mgr.entry() } else { mgr.entries().map(Entry::from) }.map_err(|e| e.to_string())?;
        }
        let Spawned { pid, pidfd } = self.spawn(&self.spool.run(run), &entry, life).map_err(|e| e.to_string())?;
        Ok((pid, pidfd))
    }

    fn spawn(&self, folder: &Path, entry: &Entry, life: &LifeLock) -> std::io::Result<Spawned> {
        let text = |p: &Path| cstring(p.as_os_str().as_bytes());
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let log = match &self.log {
            Some(path) => File::options().create(true).append(true).open(path)?,
            None => File::from(std::io::stderr().as_fd().try_clone_to_owned()?),
        };
        let mut env = vec![Cow::Owned(cstring("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")?)];
        // Libraries of drivers and of MPI may be in places of the site.
        for name in ["TZ", "GARRICK_LOG", "RUST_BACKTRACE", "LANG", "LD_LIBRARY_PATH"] {
            if let Some(value) = std::env::var_os(name) {
                let mut entry = format!("{name}=").into_bytes();
                entry.extend_from_slice(value.as_bytes());
                env.push(Cow::Owned(cstring(entry)?));
            }
        }
        spawn::spawn(&SpawnSpec {
            programs: vec![text(&self.settings.stepd)?],
            argv: vec![Cow::Owned(c"stepd".to_owned()), Cow::Owned(c"run".to_owned()), Cow::Owned(text(folder)?)],
            env,
            work_dir: Some(c"/".to_owned()),
            stdio: [Some(null.as_fd()), Some(log.as_fd()), Some(log.as_fd())],
            // Only the child holds it, to its end: its children get only the descriptors that are named.
            passed: vec![life.as_fd()],
            session: Session::OwnSession,
            umask: Some(0o022),
            cgroup_procs: entry.files.iter().map(AsFd::as_fd).collect(),
            into_cgroup: entry.folder.as_ref().map(AsFd::as_fd),
            ..SpawnSpec::default()
        })
        .map_err(|e| std::io::Error::other(e.to_string()))
    }

    /// The site's programs as the file names them now are run from here on.
    pub fn read_scripts_again(&self) {
        self.scripts.read_again(&self.settings.conf);
    }

    /// Kills everything of a run and removes its cgroups; gives back what is left. Blocks.
    pub fn sweep(&self, run: RunKey) -> Option<Leftover> {
        let left = self.kill_everything(run);
        self.put_clocks_back(run);
        // No other process may find its launcher any more; a launcher without a `stepd` learns from this that the run is over. A
        // `stepd` that was killed could not remove its own door.
        let door = self.door(run);
        for socket in [launcher_socket(&door), door] {
            if let Err(e) = std::fs::remove_file(&socket)
                && e.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(job_id = run.job.0, error = %e, "removing {}", socket.display());
            }
        }
        left
    }

    /// What a `stepd` that was killed could not do for the GPUs whose clocks it had set.
    fn put_clocks_back(&self, run: RunKey) {
        let (kept, owner) = (KeptClocks::new(&self.settings.kept_gpu_clocks), format!("{}.", run.sluid));
        if let Err(error) = kept.put_back(Nvml::load, &owner) {
            tracing::error!(job_id = run.job.0, "clocks of GPUs: {error}");
        }
    }

    fn kill_everything(&self, run: RunKey) -> Option<Leftover> {
        match self.cgroup(run) {
            Some(Ok(cgroup)) => unkillable::left_in(run, cgroup.clean_up(self.sweep_limit), || cgroup.all().pids()),
            Some(Err(e)) => Some(Leftover::Unknown(e.to_string())),
            None => self.sweep_marked(run),
        }
    }

    /// Reboots the machine, as far as the site has a program for that. It has no limit: it may wait for the end of this process.
    pub async fn reboot(&self) {
        let scripts = self.scripts.get();
        let Some(program) = &scripts.reboot else {
            tracing::error!("this node is to be rebooted, and has no RebootProgram");
            return;
        };
        let programs = vec![program.to_string_lossy().into_owned()];
        let environment = vec![variable("SLURM_NODE_NAME", &self.node)];
        let (moment, arguments) = (Moment::Reboot, Vec::new());
        tracing::info!(program = %program.display(), "rebooting");
        if let Err(error) = scripts::run(&SiteProgram { moment, programs, arguments, environment, limit: None }).await {
            tracing::error!(%error, "the machine was not rebooted");
        }
    }

    /// Runs the site's program for what a sweep left. Its failure is logged, and has no other effect.
    pub async fn run_unkillable(&self, run: RunKey) {
        let scripts = self.scripts.get();
        let Some(program) = &scripts.unkillable else { return };
        match unkillable::run(program, run, &self.node, &self.settings.conf).await {
            Ok(()) => tracing::info!(job_id = run.job.0, program = %program.display(), "UnkillableStepProgram ran"),
            Err(e) => tracing::warn!(job_id = run.job.0, error = %e, "UnkillableStepProgram failed"),
        }
    }

    /// Without cgroups: whatever carries the run's mark in its environment, its `stepd` and its launcher, which are known by
    /// their arguments, and all that is below these.
    fn sweep_marked(&self, run: RunKey) -> Option<Leftover> {
        let marks = [format!("SLURM_JOB_ID={}", run.job.0), format!("SLURM_JOB_SLUID={}", run.sluid)];
        let marks: Vec<&[u8]> = marks.iter().map(|m| m.as_bytes()).collect();
        let names = [self.spool.run(run).into_os_string(), launcher_socket(&self.door(run)).into_os_string()];
        let names: Vec<&[u8]> = names.iter().map(|n| n.as_bytes()).collect();
        let find = || {
            let table = ProcessTable::scan(Path::new("/proc"))?;
            let mut found = table.marked(&marks);
            for own in table.with_argument(&names) {
                found.push(own);
                found.extend(table.descendants(own.pid));
            }
            found.sort_unstable_by_key(|p| p.pid);
            found.dedup_by_key(|p| p.pid);
            found.retain(|p| !p.is_dead());
            Ok(found)
        };
        match proc_tree::kill_until_gone(find, self.sweep_limit) {
            Ok(left) if left.is_empty() => None,
            Ok(left) => Some(Leftover::Processes(left.iter().map(|p| p.pid).collect())),
            Err(e) => Some(Leftover::Unknown(format!("looking for them: {e}"))),
        }
    }

    /// The epilog of a run; none where its prolog was not begun.
    pub async fn epilog(&self, run: RunKey) -> Result<(), String> {
        if self.scripts.get().epilog.is_empty() {
            return Ok(());
        }
        let Some(orders) = StepdOrders::begun(&self.spool.run(run)).map_err(|e| e.to_string())? else { return Ok(()) };
        let name = scripts::for_environment(&orders.launch.spec.name);
        let environment = script_environment(&self.node, &orders.credential, name);
        self.run_script(Moment::Epilog, environment).await.map_err(|e| e.to_string())
    }

    /// Runs prologs or epilogs.
    async fn run_script(&self, moment: Moment, environment: Vec<(String, String)>) -> Result<(), ScriptFailure> {
        let _turn = match &self.one_script {
            Some(one) => Some(one.lock().await),
            None => None,
        };
        let scripts = self.scripts.get();
        let (programs, limit) = match moment {
            Moment::Epilog => (&scripts.epilog, scripts.epilog_limit),
            _ => (&scripts.prolog, scripts.prolog_limit),
        };
        let programs = programs.clone();
        scripts::run(&SiteProgram { moment, programs, arguments: Vec::new(), environment, limit }).await
    }
}
