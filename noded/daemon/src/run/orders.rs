//! What an agent passes to a `stepd` that it starts: one file in the run's folder, so that the `stepd` needs neither the
//! configuration nor the controller, and can be started again from it.

use garrick_kernel::{cgroup::Cgroups, cpu_freq::SYS_CPUS, energy::EnergyPlace};
use garrick_model::{
    config::{DebugFlags, GpuVariables, GresDevice, LogLevel, PropagatePriority},
    cpu_freq::Governor,
    messages::node::{JobCredential, JobLaunch},
    profile::ProfileSettings,
    spec::{SiteOfSrun, TaskScripts},
};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Settings of the site that matter inside a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepdSettings {
    /// KillWait: seconds between SIGTERM and SIGKILL.
    pub kill_wait_secs: u64,
    /// UnkillableStepTimeout: seconds for which what is left of a step or job is killed again and again; of an earlier version
    /// Slurm's default.
    #[serde(default = "earlier_unkillable_secs")]
    pub unkillable_secs: u64,
    /// OverTimeLimit of cluster or partition, minutes; `None`: unlimited.
    pub over_time_minutes: Option<u64>,
    /// WaitTime: seconds a step's other tasks get after its first ended; 0: for ever.
    pub wait_secs: u32,
    /// KillOnBadExit.
    pub kill_on_bad_exit: bool,
    /// PropagatePrioProcess.
    #[serde(default)]
    pub priority: PropagatePriority,
    /// JobFileAppend.
    pub append_files: bool,
    /// `CR_Pack_Nodes`: steps fill a node before the next.
    #[serde(default)]
    pub pack_nodes: bool,
    /// `PrologFlags=DeferBatch`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub defer_batch: bool,
    /// MaxTasksPerNode; of an earlier version nothing.
    #[serde(default)]
    pub max_tasks_per_node: Option<u32>,
    /// MaxStepCount; `None`: no limit.
    #[serde(default)]
    pub max_step_count: Option<u32>,
    /// `TaskProlog` and `TaskEpilog`.
    #[serde(default, skip_serializing_if = "TaskScripts::is_none")]
    pub task_scripts: TaskScripts,
    /// `CpuFreqDef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<Governor>,
    /// Where the kernel shows CPUs.
    #[serde(default = "sys_cpus")]
    pub cpu_folder: PathBuf,
    /// `JobAcctGatherFrequency`: seconds between looks at running tasks; 0: never, also of an earlier version.
    #[serde(default)]
    pub look_every_secs: u32,
    /// Where the kernel shows counters of energy; `None`: it is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub powercap_folder: Option<PathBuf>,
    /// Where the kernel shows the power of the machine, where that is to be read instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hwmon_folder: Option<PathBuf>,
    /// How time series of steps are recorded; `None`: none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileSettings>,
    /// Where is kept what CPUs had whose frequency steps on this node have set; of an earlier version nothing.
    #[serde(default)]
    pub kept_frequencies: PathBuf,
    /// The same of GPUs.
    #[serde(default)]
    pub kept_gpu_clocks: PathBuf,
    /// What each `srun` has to know of the site.
    #[serde(default, rename = "srun_scripts", skip_serializing_if = "SiteOfSrun::is_none")]
    pub of_srun: SiteOfSrun,
    /// Path of the program `stepd`; of an earlier version nothing.
    #[serde(default)]
    pub stepd: PathBuf,
    /// Path of `slurm.conf`, for `SLURM_CONF` of the tasks.
    pub conf: PathBuf,
    /// `GARRICK_HOME` of an embedded cluster, for the tasks.
    #[serde(default)]
    pub home: Option<PathBuf>,
    /// Cluster id, which names cgroup and door folders.
    pub cluster_id: String,
    /// CPUs this node claims to have (with config_overrides maybe more than there are), its sockets and threads.
    pub shape: garrick_model::node_shape::NodeShape,
    /// First CPU of the machine for this node's CPU 0, where several nodes share one machine.
    pub first_cpu: u32,
    /// The run folder of doors.
    pub doors: PathBuf,
    /// `SlurmUser`, who may act on every job.
    #[serde(default)]
    pub slurm_uid: Option<u32>,
    /// Devices of this node that jobs are given one by one.
    #[serde(default)]
    pub devices: Vec<GresDevice>,
    /// Which variables tell programs of their GPUs.
    #[serde(default)]
    pub gpu_variables: GpuVariables,
    /// ConstrainDevices: a job can open the devices that it was given and no others.
    #[serde(default)]
    pub constrain_devices: bool,
    /// The node's cgroups, as its agent found them; `None`: there are none, or they are to be looked for.
    #[serde(default)]
    pub cgroups: Option<Cgroups>,
    /// Verbosity of the log, for what [`Self::log`] does not say.
    pub verbosity: u8,
    /// Its log.
    #[serde(default)]
    pub log: StepdLog,
}

const fn earlier_unkillable_secs() -> u64 {
    60
}

fn sys_cpus() -> PathBuf {
    SYS_CPUS.into()
}

impl StepdSettings {
    /// Where the energy of the machine is read; `None`: it is not measured.
    pub fn energy_place(&self) -> Option<EnergyPlace> {
        let power = || self.hwmon_folder.clone().map(EnergyPlace::Power);
        self.powercap_folder.clone().map(EnergyPlace::Counters).or_else(power)
    }

    /// How long killing goes on before the rest is given up and named.
    pub fn sweep_limit(&self) -> Duration {
        Duration::from_secs(self.unkillable_secs.max(1))
    }
}

/// The log of a `stepd`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepdLog {
    /// The file, looked for at each line since it may be moved away; `None`: standard error.
    pub file: Option<PathBuf>,
    /// How much.
    pub level: Option<LogLevel>,
    /// Topics of which it logs more.
    #[serde(default)]
    pub flags: DebugFlags,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepdOrders {
    /// The launch order, proof included.
    pub launch: JobLaunch,
    /// What the proof says, checked by the agent.
    pub credential: JobCredential,
    /// This node's name.
    pub node: String,
    /// Only a shepherd is wanted: address of its step manager's `stepd`.
    pub manager: Option<String>,
    /// The agent's door.
    pub agent_door: PathBuf,
    /// This `stepd`'s own door.
    pub door: PathBuf,
    /// Folder with the node's identity.
    pub identity: PathBuf,
    /// Settings.
    pub settings: StepdSettings,
    /// Boot of the machine in which the run began: nothing of it survives the next.
    #[serde(default)]
    pub boot: Option<String>,
}

/// An orders file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OrdersError {
    /// Reading or writing failed.
    #[error(transparent)]
    File(#[from] garrick_kernel::files::FileError),
    /// It is not there.
    #[error("{} is not there", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be decoded.
    #[error("{} is not an orders file of this version: {cause}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
}

impl StepdOrders {
    /// Name of the file in a run's folder.
    pub const FILE: &'static str = "orders";

    /// Name of it until the prolog has run: nothing is started from it, and the epilog reads it.
    const DRAFT: &'static str = "orders.draft";

    /// Writes the file into a run's folder.
    pub fn save(&self, folder: &Path) -> Result<(), OrdersError> {
        let path = folder.join(Self::FILE);
        let bytes = self.encoded(&path)?;
        Ok(garrick_kernel::files::write_atomically(&path, &bytes, 0o600)?)
    }

    /// Writes it, not to be followed before [`Self::confirm`]: where there is no room, that is known before the prolog. After a crash
    /// of the machine before that nobody looks for it.
    pub fn draft(&self, folder: &Path) -> Result<(), OrdersError> {
        let path = folder.join(Self::DRAFT);
        let bytes = self.encoded(&path)?;
        Ok(garrick_kernel::files::replace_for_good(&path, &bytes, 0o600)?)
    }

    /// From now on the run is to be here.
    pub fn confirm(folder: &Path) -> Result<(), OrdersError> {
        let path = folder.join(Self::FILE);
        std::fs::rename(folder.join(Self::DRAFT), &path).map_err(|cause| garrick_kernel::files::FileError {
            operation: "rename the draft of",
            path,
            cause,
        })?;
        Ok(garrick_kernel::files::sync_folder(folder)?)
    }

    /// It is not: nothing was started from them, and nothing will be, whoever looks here next.
    pub fn withdraw(folder: &Path) -> Result<(), OrdersError> {
        let path = folder.join(Self::DRAFT);
        std::fs::rename(folder.join(Self::FILE), &path).map_err(|cause| garrick_kernel::files::FileError {
            operation: "rename the orders to",
            path,
            cause,
        })?;
        Ok(garrick_kernel::files::sync_folder(folder)?)
    }

    /// What is left in the folder is no run's any more.
    pub fn forget(folder: &Path) -> Result<(), OrdersError> {
        let path = folder.join(Self::FILE);
        match std::fs::remove_file(&path) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                Err(garrick_kernel::files::FileError { operation: "remove", path, cause }.into())
            }
            _ => Ok(()),
        }
    }

    fn encoded(&self, path: &Path) -> Result<Vec<u8>, OrdersError> {
        rmp_serde::to_vec_named(self).map_err(|e| OrdersError::Form { path: path.to_owned(), cause: e.to_string() })
    }

    /// Reads it back.
    pub fn load(folder: &Path) -> Result<Self, OrdersError> {
        Self::read(folder.join(Self::FILE))
    }

    /// What a prolog began with, whether it got through or not; `None` where none was begun.
    pub fn begun(folder: &Path) -> Result<Option<Self>, OrdersError> {
        for name in [Self::FILE, Self::DRAFT] {
            match Self::read(folder.join(name)) {
                Err(OrdersError::Missing { .. }) => {}
                read => return read.map(Some),
            }
        }
        Ok(None)
    }

    fn read(path: PathBuf) -> Result<Self, OrdersError> {
        let bytes =
            garrick_kernel::files::read_if_there(&path)?.ok_or_else(|| OrdersError::Missing { path: path.clone() })?;
        garrick_frame::decode_body(&bytes).map_err(|e| OrdersError::Form { path, cause: e.to_string() })
    }
}
