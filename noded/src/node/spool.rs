//! The node's spool folder: one folder a run, which is the record that the run was here.
//!
//! ```text
//! SlurmdSpoolDir/identity/         this node's certificate and key
//!               /credential.key    key that credentials are checked with
//!               /runs/SLUID/orders what its stepd was told
//!                          /stepd  process id and start time of its stepd
//!                          /steps  the step manager's journal
//!                          /clean  its processes are gone
//! ```

use crate::{
    kernel::{
        files::{self, FileError},
        proc_tree,
    },
    stepd::orders::{OrdersError, StepdOrders},
};
use garrick_actors::node_agent::{FoundRun, RunKey, StepdState};
use std::path::{Path, PathBuf};

/// The spool folder of a node.
#[derive(Clone, Debug)]
pub struct Spool {
    root: PathBuf,
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
        std::fs::create_dir_all(root).map_err(|cause| SpoolError::List { path: root.to_owned(), cause })?;
        let runs = root.join("runs");
        if !runs.is_dir() {
            files::create_folder(&runs, 0o755)?;
        }
        Ok(Self { root: root.to_owned() })
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

    /// Makes a run's folder with its orders.
    pub fn create_run(&self, run: RunKey, orders: &StepdOrders) -> Result<PathBuf, SpoolError> {
        let folder = self.run(run);
        if !folder.is_dir() {
            files::create_folder(&folder, 0o711)?;
        }
        orders.save(&folder)?;
        Ok(folder)
    }

    /// Notes which process a run's `stepd` is.
    pub fn note_stepd(&self, run: RunKey, pid: u32) -> Result<(), SpoolError> {
        let start = proc_tree::start_time(pid).unwrap_or(0);
        Ok(files::write_atomically(&self.run(run).join("stepd"), format!("{pid} {start}\n").as_bytes(), 0o644)?)
    }

    /// The run's `stepd`, if that very process still lives.
    pub fn living_stepd(&self, run: RunKey) -> Option<u32> {
        let text = std::fs::read_to_string(self.run(run).join("stepd")).ok()?;
        let (pid, start) = text.trim().split_once(' ')?;
        let (pid, start): (u32, u64) = (pid.parse().ok()?, start.parse().ok()?);
        (proc_tree::start_time(pid) == Some(start)).then_some(pid)
    }

    /// Notes that no process of a run is left.
    pub fn mark_clean(&self, run: RunKey) -> Result<(), SpoolError> {
        Ok(files::write_atomically(&self.run(run).join("clean"), b"", 0o644)?)
    }

    /// Removes a run's folder.
    pub fn remove_run(&self, run: RunKey) -> Result<(), SpoolError> {
        Ok(files::remove_folder(&self.run(run))?)
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
                    let stepd = if let Some(pid) = self.living_stepd(run) {
                        StepdState::Alive { pid }
                    } else if folder.join("clean").exists() {
                        StepdState::Clean
                    } else {
                        StepdState::Dead
                    };
                    found.push((
                        FoundRun {
                            run,
                            batch_host: orders.manager.is_none(),
                            uid: orders.credential.uid,
                            stepd,
                            door: orders.door.to_string_lossy().into_owned(),
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
