//! The node's spool folder: one folder for each run, which is the record that the run was here.
//!
//! ```text
//! SlurmdSpoolDir/identity/         this node's certificate and key
//!               /credential.key    key that credentials are checked with
//!               /over              runs that are over here, and until when their credentials are good
//!               /runs/SLUID/orders what its stepd was told
//!                          /life   locked for as long as a stepd of it lives
//!                          /stepd  process id and start time of its stepd, written by that itself: the next one takes over
//!                          /port   UDP port of the step manager, and the key of its endpoint's resets
//!                          /steps  the step manager's journal
//!                          /clean  its processes are gone, and the controller knows how it ended
//!               /ended             records of runs that were here: see `node::records`
//! ```
//!
//! A folder without orders was being made when the agent died; nothing was started from it.

use garrick_agent::{FoundRun, RunKey, StepdState};
use garrick_daemon::run::{
    folder,
    orders::{OrdersError, StepdOrders},
};
use garrick_kernel::{
    files::{self, FileError},
    inventory,
    lock::LifeLock,
};
use garrick_model::{ids::JobId, messages::node::RequeuePolicy, time::Timestamp};
use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// The spool folder of a node.
#[derive(Clone, Debug)]
pub struct Spool {
    root: PathBuf,
    /// This boot of the machine; `None`: the system does not say.
    pub boot: Option<String>,
    /// `JobRequeue`, for runs of which the controller did not say whether they may be started again.
    pub requeue: bool,
}

/// Runs that are over: job, SLUID, and milliseconds since 1970, a line each.
const OVER: &str = "over";

fn over_line(run: RunKey, until: Timestamp) -> String {
    format!("{} {} {}\n", run.job, run.sluid, until.0)
}

/// Runs with their orders, and why others cannot be read.
pub type RecordedRuns = (Vec<(FoundRun, StepdOrders)>, Vec<String>);

/// The spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// A file or folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// A run's orders.
    #[error(transparent)]
    Orders(#[from] OrdersError),
    /// The list of runs.
    #[error("cannot list {}: {cause}", path.display())]
    List {
        /// Folder.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
}

impl Spool {
    /// Makes the folders that are missing.
    pub fn open(root: &Path) -> Result<Self, SpoolError> {
        if !root.is_dir() {
            files::keep_folder(root, 0o755)?;
        }
        let runs = root.join("runs");
        // Jobs' users pass, on the way to their scripts, and list nothing.
        let mut corrected = u32::from(files::keep_folder(&runs, 0o711)?);
        for run in std::fs::read_dir(&runs).into_iter().flatten().flatten() {
            corrected += close_run(&run.path())?;
        }
        for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with("launcher-")) {
                // A copy of `stepd` that an earlier version made. A launcher that runs from it has it open.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        if corrected > 0 {
            tracing::warn!(spool = %root.display(), corrected, "others could read what jobs have in the spool: closed");
        }
        Ok(Self { root: root.to_owned(), boot: inventory::boot_id(Path::new("/")).ok(), requeue: true })
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of what CPUs had whose frequency steps have set.
    pub fn frequencies(&self) -> PathBuf {
        self.root.join("cpu_frequencies")
    }

    /// Folder of what GPUs had whose clocks steps have set.
    pub fn gpu_clocks(&self) -> PathBuf {
        self.root.join("gpu_clocks")
    }

    /// Folder of this node's identity.
    pub fn identity(&self) -> PathBuf {
        self.root.join("identity")
    }

    /// File of the key that credentials are checked with.
    pub fn credential_key(&self) -> PathBuf {
        self.root.join("credential.key")
    }

    /// Folder of a run.
    pub fn run(&self, run: RunKey) -> PathBuf {
        self.root.join("runs").join(run.sluid.to_string())
    }

    /// Makes a run's folder with a draft of its orders.
    pub fn create_run(&self, run: RunKey, orders: &StepdOrders) -> Result<PathBuf, SpoolError> {
        let folder = self.run(run);
        files::keep_folder(&folder, 0o711)?;
        orders.draft(&folder)?;
        Ok(folder)
    }

    /// Takes the lock that a run's `stepd` holds all its life; `None` while one lives.
    pub fn take_life(&self, run: RunKey) -> Result<Option<LifeLock>, SpoolError> {
        Ok(LifeLock::take(&self.run(run).join(folder::LIFE))?)
    }

    /// The run's `stepd`, if that very process still lives and has noted its number.
    pub fn living_stepd(&self, run: RunKey) -> Option<u32> {
        folder::noted(&self.run(run))?.living()
    }

    /// Removes the folders of runs that were being made when the agent died. To be called before any other is made.
    pub fn remove_unfinished(&self) -> Result<(), SpoolError> {
        let path = self.root.join("runs");
        let list = |cause| SpoolError::List { path: path.clone(), cause };
        for entry in std::fs::read_dir(&path).map_err(list)? {
            let folder = entry.map_err(list)?.path();
            if !folder.join(StepdOrders::FILE).exists() && !LifeLock::is_held(&folder.join(folder::LIFE))? {
                tracing::info!(folder = %folder.display(), "removing what is left of a start that was broken off");
                files::remove_folder(&folder)?;
            }
        }
        Ok(())
    }

    /// How far a run's `stepd` is.
    fn stepd_state(&self, folder: &Path, orders: &StepdOrders) -> StepdState {
        let pid = folder::noted(folder).and_then(|n| n.living());
        // A lock that cannot be asked for is taken for held: two step managers of one run are worse than none.
        if pid.is_some() || LifeLock::is_held(&folder.join(folder::LIFE)).unwrap_or(true) {
            return StepdState::Alive { pid, clean: folder.join("clean").exists() };
        }
        if folder.join("clean").exists() {
            return StepdState::Clean;
        }
        let boots = orders.boot.as_ref().zip(self.boot.as_ref());
        if boots.is_some_and(|(then, now)| then != now) { StepdState::Rebooted } else { StepdState::Dead }
    }

    /// Notes that no process of a run is left.
    pub fn mark_clean(&self, run: RunKey) -> Result<(), SpoolError> {
        let folder = self.run(run);
        Ok(files::mark(&folder.join("clean"), &folder.join(folder::LIFE))?)
    }

    /// Notes what the controller said last of starting the run again elsewhere: for the next agent, and for shepherds that are
    /// started later.
    pub fn note_requeue(&self, run: RunKey, policy: RequeuePolicy) -> Result<(), SpoolError> {
        let folder = self.run(run);
        let mut orders = StepdOrders::load(&folder)?;
        orders.launch.requeue = Some(policy);
        Ok(orders.save(&folder)?)
    }

    /// Is there any run here?
    pub fn has_runs(&self) -> bool {
        std::fs::read_dir(self.root.join("runs")).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Removes a run's folder, its orders first: what is left of it when this breaks off is no run.
    pub fn remove_run(&self, run: RunKey) -> Result<(), SpoolError> {
        let folder = self.run(run);
        StepdOrders::forget(&folder)?;
        Ok(files::remove_folder(&folder)?)
    }

    /// Remembers that a run is over here. A crash of the machine may forget the last ones.
    pub fn note_over(&self, run: RunKey, until: Timestamp) -> Result<(), FileError> {
        let path = self.root.join(OVER);
        let write = || {
            let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
            file.write_all(over_line(run, until).as_bytes())
        };
        write().map_err(|cause| FileError { operation: "append to", path: path.clone(), cause })
    }

    /// The runs that are over, and until when that matters. What does not matter `now` is forgotten.
    pub fn over(&self, now: Timestamp) -> Result<Vec<(RunKey, Timestamp)>, FileError> {
        let path = self.root.join(OVER);
        let Some(bytes) = files::read_if_there(&path)? else { return Ok(Vec::new()) };
        let parsed = |line: &str| {
            let mut words = line.split(' ');
            let run = RunKey { job: JobId(words.next()?.parse().ok()?), sluid: words.next()?.parse().ok()? };
            Some((run, Timestamp(words.next()?.parse().ok()?)))
        };
        // A line that was cut off in a crash is none.
        let mut over: Vec<(RunKey, Timestamp)> = String::from_utf8_lossy(&bytes).lines().filter_map(parsed).collect();
        over.retain(|(_, until)| *until > now);
        let text: String = over.iter().map(|(run, until)| over_line(*run, *until)).collect();
        files::replace(&path, text.as_bytes(), 0o600)?;
        Ok(over)
    }

    /// The runs that are recorded, and what cannot be read (which is left where it is).
    pub fn runs(&self) -> Result<RecordedRuns, SpoolError> {
        let path = self.root.join("runs");
        let list = |cause| SpoolError::List { path: path.clone(), cause };
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(&path).map_err(list)? {
            let folder = entry.map_err(list)?.path();
            match StepdOrders::load(&folder) {
                Ok(orders) => {
                    let run = RunKey { job: orders.credential.job, sluid: orders.credential.sluid };
                    let stepd = self.stepd_state(&folder, &orders);
                    found.push((
                        FoundRun {
                            run,
                            batch_host: orders.manager.is_none(),
                            uid: orders.credential.uid,
                            stepd,
                            door: orders.door.to_string_lossy().into_owned(),
                            requeue: orders.launch.requeue_policy(self.requeue),
                        },
                        orders,
                    ));
                }
                Err(e) => unreadable.push(e.to_string()),
            }
        }
        found.sort_by_key(|(run, _)| run.run);
        Ok((found, unreadable))
    }
}

/// Closes the files of a run's folder, as an older version left them. The folder of scripts is the job's user's.
fn close_run(folder: &Path) -> Result<u32, FileError> {
    let mut corrected = u32::from(files::keep_folder(folder, 0o711)?);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            corrected += u32::from(files::keep_private(&entry.path())?);
        }
    }
    Ok(corrected)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::ids::{JobId, Sluid};

    fn orders(root: &Path) -> StepdOrders {
        let form = serde_json::json!({
            "launch": {
                "credential": {"payload": [], "signature": [], "key_id": ""},
                "spec": {"kind": "Batch", "name": "j", "work_dir": "/"},
                "time_limit": "Unlimited", "start_time": 0, "restarts": 0, "tasks": 1, "cpus_per_task": 1
            },
            "credential": {
                "cluster": "c", "job": 7, "sluid": 1, "uid": 1, "gid": 1, "groups": [], "user": "u", "nodes": [],
                "addresses": [], "partition": "p", "epoch": 1, "expires": 0
            },
            "node": "n1", "manager": null, "agent_door": root, "door": root, "identity": root,
            "settings": {
                "kill_wait_secs": 30, "over_time_minutes": null, "wait_secs": 0, "kill_on_bad_exit": false,
                "append_files": false, "conf": root, "cluster_id": "c", "first_cpu": 0, "doors": root, "verbosity": 0,
                "shape": {
                    "cpus": 1, "boards": 1, "sockets": 1, "cores_per_socket": 1, "threads_per_core": 1, "memory": 1,
                    "tmp_disk_mib": 0
                }
            }
        });
        serde_json::from_value(form).unwrap()
    }

    #[test]
    fn orders_of_an_earlier_version_give_up_what_cannot_be_killed_after_a_minute() {
        let mut settings = orders(Path::new("/")).settings;
        assert_eq!(settings.sweep_limit().as_secs(), 60);
        settings.unkillable_secs = 180;
        assert_eq!(settings.sweep_limit().as_secs(), 180);
    }

    #[test]
    fn runs_that_are_over_are_remembered_as_long_as_it_matters() {
        let scratch = garrick_kernel::scratch::Scratch::new("spool-over");
        let spool = Spool::open(scratch.path()).unwrap();
        let run = |job: u32| RunKey { job: JobId(job), sluid: Sluid(u64::from(job) << 20) };
        assert_eq!(spool.over(Timestamp(0)).unwrap(), []);
        for (job, until) in [(7, 100), (8, 200)] {
            spool.note_over(run(job), Timestamp(until)).unwrap();
        }
        assert_eq!(spool.over(Timestamp(50)).unwrap(), [(run(7), Timestamp(100)), (run(8), Timestamp(200))]);
        assert_eq!(spool.over(Timestamp(100)).unwrap(), [(run(8), Timestamp(200))]);
        spool.note_over(run(9), Timestamp(300)).unwrap();
        let path = scratch.join("over");
        std::fs::write(&path, [std::fs::read(&path).unwrap(), b"10 cut".to_vec()].concat()).unwrap();
        assert_eq!(spool.over(Timestamp(100)).unwrap(), [(run(8), Timestamp(200)), (run(9), Timestamp(300))]);
    }

    /// Orders of a controller of an earlier version, which said nothing; then what a later one says.
    #[test]
    fn the_next_agent_knows_what_was_said_last_of_another_run() {
        let root = std::env::temp_dir().join(format!("garrick-spool-requeue-{}", std::process::id()));
        let mut spool = Spool::open(&root).unwrap();
        let run = RunKey { job: JobId(7), sluid: Sluid(1) };
        let folder = spool.create_run(run, &orders(&root)).unwrap();
        let policy = RequeuePolicy { allowed: false, revision: 2 };
        assert!(spool.note_requeue(run, policy).is_err(), "its prolog runs: there are no orders yet");
        StepdOrders::confirm(&folder).unwrap();
        let known = |spool: &Spool| spool.runs().unwrap().0[0].0.requeue;
        for requeue in [true, false] {
            spool.requeue = requeue;
            assert_eq!(known(&spool), RequeuePolicy { allowed: requeue, revision: 0 }, "by JobRequeue");
        }
        spool.note_requeue(run, policy).unwrap();
        spool.requeue = true;
        assert_eq!(known(&spool), policy);
        assert_eq!(StepdOrders::load(&folder).unwrap().launch.requeue, Some(policy), "also for those that it starts");
        std::fs::remove_dir_all(&root).unwrap();
    }

    /// The start of a `stepd` failed and was reported; the next agent must not start it after all.
    #[test]
    fn a_run_whose_start_failed_is_not_taken_up_by_the_next_agent() {
        let root = std::env::temp_dir().join(format!("garrick-spool-{}", std::process::id()));
        let spool = Spool::open(&root).unwrap();
        let folder = spool.run(RunKey { job: JobId(7), sluid: Sluid(1) });
        files::create_folder(&folder, 0o711).unwrap();
        std::fs::write(folder.join("orders.draft"), b"orders").unwrap();
        StepdOrders::confirm(&folder).unwrap();
        spool.remove_unfinished().unwrap();
        assert!(folder.join(StepdOrders::FILE).exists(), "what was confirmed stays");
        StepdOrders::withdraw(&folder).unwrap();
        assert_eq!(std::fs::read(folder.join("orders.draft")).unwrap(), b"orders", "the epilog reads it");
        assert!(spool.runs().unwrap().0.is_empty());
        spool.remove_unfinished().unwrap();
        assert!(!folder.exists());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
