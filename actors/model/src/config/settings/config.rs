//! The configuration as it is meant: typed, with units and defaults. Keys that only name a Slurm component or are not
//! honoured yet stay as text, for `scontrol show config`.

use super::{
    auth::AuthSettings,
    cli_filter::CliFilter,
    completion::CompletionSettings,
    debug_flags::DebugFlags,
    enforce::Enforce,
    gathering::GatheringSettings,
    gres::GresConfig,
    health::HealthCheck,
    hres::Hres,
    job_defaults::JobDefaults,
    job_submit::JobSubmitPlugin,
    mcs::Mcs,
    metrics::MetricsSettings,
    node::NodeConfig,
    partition::{OverTime, PartitionConfig},
    power::PowerSettings,
    preempt::PreemptSettings,
    priority::PrioritySettings,
    private::PrivateData,
    prolog_flags::PrologFlags,
    row::settings_with_rows,
    store_flags::StoreFlags,
    tracked::TrackedTres,
};
use crate::{
    config::syntax::{
        report::{Place, SettingError},
        values::{ExitCodes, LogLevel, MemoryPer, Parameters, PortRange, SelectParameters},
    },
    cpu_freq::FrequencyRules,
    hostlist::HostList,
    ids::NodeIndex,
    spec::{Mpi, SiteOfSrun, TaskNice},
    spec_text::licenses::Licenses,
    topology::NamedTopology,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::Arc,
};

/// Default of `DbdPort` and of `AccountingStoragePort` (slurmdbd.conf(5)).
pub const ACCOUNTING_PORT: u16 = 6819;

/// Events that may wait for the service of accounting where the site does not say.
const QUEUED_FOR_ACCOUNTING: u64 = 10_000_000;

/// A `SlurmctldHost`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerHost {
    /// Host name.
    pub name: String,
    /// Name or address to connect to, from the brackets; `None`: the host name.
    pub address: Option<String>,
}

impl ControllerHost {
    /// Where to connect to.
    pub fn target(&self) -> &str {
        self.address.as_deref().unwrap_or(&self.name)
    }
}

/// `ReturnToService`: when a DOWN node that registers comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReturnToService {
    /// 0: only by an administrator.
    #[default]
    Never,
    /// 1: when it was DOWN for not responding.
    NonResponding,
    /// 2: whatever the reason.
    Always,
}

/// `EnforcePartLimits`: what happens at submission to a job beyond its partitions' limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnforcePartLimits {
    /// `NO`: it is accepted and waits.
    #[default]
    No,
    /// `ANY`: it must fit one of its partitions.
    Any,
    /// `ALL`: it must fit all of its partitions.
    All,
}

/// `PropagateResourceLimits` and `PropagateResourceLimitsExcept`: names such as `NOFILE`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PropagateLimits {
    /// All limits (default).
    #[default]
    All,
    /// None.
    None,
    /// These.
    Only(Vec<String>),
    /// All but these.
    Except(Vec<String>),
}

/// `PropagatePrioProcess`: the nice value of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PropagatePriority {
    /// The daemon's (0, default).
    #[default]
    No,
    /// That of the command that asks for them, and none before the daemon's but root's (1).
    AsAsked,
    /// The same, and nicer than the daemon's (2).
    BelowDaemon,
}

impl PropagatePriority {
    /// For tasks that were asked for by a command with that nice value.
    pub fn of(self, value: i32) -> Option<TaskNice> {
        (self != Self::No).then_some(TaskNice { value, below_daemon: self == Self::BelowDaemon })
    }
}

impl PropagateLimits {
    /// Does the limit with this name (without `RLIMIT_`) travel?
    pub fn includes(&self, name: &str) -> bool {
        let listed = |names: &[String]| names.iter().any(|n| n.eq_ignore_ascii_case(name));
        match self {
            Self::All => true,
            Self::None => false,
            Self::Only(names) => listed(names),
            Self::Except(names) => !listed(names),
        }
    }
}

/// A `NodeSet` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSet {
    /// Name.
    pub name: String,
    /// `Nodes=`
    pub nodes: HostList,
    /// `Feature=`: all nodes with this feature.
    pub feature: Option<String>,
    /// Where the line is.
    pub place: Place,
}

settings_with_rows! {
    /// A configuration, checked. Its defaults are those of the table of keys.
    #[derive(Clone, Debug)]
    pub struct Config {
        /// The main file.
        pub path: PathBuf,
        /// `ClusterName`.
        pub cluster_name: String,
        /// `AccountingStorageType=accounting_storage/slurmdbd`: the service of accounting is fed.
        pub accounting: bool,
        /// `AccountingStorageHost`.
        pub accounting_host: String,
        /// `AccountingStorageBackupHost`.
        pub accounting_backup: Option<String>,
        /// `AccountingStoragePort`; 0: [`ACCOUNTING_PORT`].
        pub accounting_port: u16,
        /// `MaxDBDMsgs`; `None`: [`Config::most_for_accounting`] has a default.
        pub max_dbd_msgs: Option<u32>,
        /// `AccountingStorageEnforce`.
        pub enforce: Enforce,
        /// `TrackWCKey`.
        pub track_wckey: bool,
        /// `SlurmctldHost` lines, the primary controller first.
        pub controllers: Vec<ControllerHost>,
        /// `SlurmctldAddr`: one address for all controllers.
        pub slurmctld_addr: Option<String>,
        /// `SlurmctldPort`.
        pub slurmctld_port: PortRange,
        /// `SlurmdPort`.
        pub slurmd_port: u16,
        /// `SlurmUser`.
        pub slurm_user: String,
        /// `SlurmdUser`.
        pub slurmd_user: String,
        /// `StateSaveLocation`.
        pub state_save_location: PathBuf,
        /// `SlurmdSpoolDir` with `%n` and `%h`.
        pub slurmd_spool_dir: String,
        /// `SlurmctldPidFile`.
        pub slurmctld_pid_file: String,
        /// `SlurmdPidFile` with `%n` and `%h`.
        pub slurmd_pid_file: String,
        /// `SlurmctldLogFile`; `None`: the system's log.
        pub slurmctld_log_file: Option<String>,
        /// `SlurmdLogFile` with `%n` and `%h`; `None`: the system's log.
        pub slurmd_log_file: Option<String>,
        /// `DebugFlags` of all daemons.
        pub debug_flags: DebugFlags,
        /// `SlurmctldDebug`.
        pub slurmctld_debug: LogLevel,
        /// `SlurmdDebug`.
        pub slurmd_debug: LogLevel,
        /// `SlurmctldSyslogDebug`; `None`: what `SlurmctldDebug` says where there is no other log, else nothing.
        pub slurmctld_syslog_debug: Option<LogLevel>,
        /// `SlurmdSyslogDebug`; `None`: as for the controller.
        pub slurmd_syslog_debug: Option<LogLevel>,
        /// `SlurmSchedLogFile`.
        pub sched_log_file: Option<String>,
        /// `SlurmSchedLogLevel`.
        pub sched_log_level: u32,
        /// `SlurmctldPrimaryOnProg`.
        pub primary_on: Option<PathBuf>,
        /// `SlurmctldPrimaryOffProg`.
        pub primary_off: Option<PathBuf>,
        /// `SlurmctldParameters`.
        pub slurmctld_parameters: Parameters,
        /// `SlurmdParameters`.
        pub slurmd_parameters: Parameters,
        /// `TmpFS` with `%n` and `%h`.
        pub tmp_fs: String,

        /// `FirstJobId`.
        pub first_job_id: u32,
        /// `MaxJobId`: after it ids start again at FirstJobId.
        pub max_job_id: u32,
        /// `MaxJobCount`: largest number of jobs that the controller keeps.
        pub max_job_count: u32,
        /// `MaxArraySize`: one above the greatest index.
        pub max_array_size: u32,
        /// `MaxStepCount`: steps of a job. Slurm has 40,000 where nothing is said; here such a job may have any number.
        pub max_step_count: Option<u32>,
        /// `MaxTasksPerNode`.
        pub max_tasks_per_node: u32,
        /// `MaxBatchRequeue`: how often a batch job is requeued without anybody's asking before it is held.
        pub max_batch_requeue: u32,
        /// `MinJobAge`, seconds that a finished job stays known; 0 keeps it for ever.
        pub min_job_age_secs: u32,
        /// `JobRequeue`.
        pub job_requeue: bool,
        /// `CliFilterPlugins`, in order.
        pub cli_filters: Vec<CliFilter>,
        /// `CliFilterParameters=cli_filter_lua_path=`.
        pub cli_filter_lua: Option<PathBuf>,
        /// `JobSubmitPlugins`, in order.
        pub job_submit: Vec<JobSubmitPlugin>,
        /// `CpuFreqDef` and `CpuFreqGovernors`.
        pub frequencies: FrequencyRules,
        /// `MpiDefault`.
        pub mpi_default: Mpi,
        /// `Licenses`: how many there are of each.
        pub licenses: Licenses,
        /// What `resources.yaml` says; none where the reader did not ask for it (see [`crate::config::read`]).
        pub hres: Arc<Hres>,
        /// `GresTypes`, and what `gres.conf` and `cgroup.conf` say of generic resources.
        pub gres: GresConfig,
        /// `RequeueExit`: exit codes of batch scripts that requeue the job.
        pub requeue_exit: ExitCodes,
        /// `RequeueExitHold`: as above, and the job is held in the state SPECIAL_EXIT.
        pub requeue_exit_hold: ExitCodes,
        /// `JobFileAppend`.
        pub job_file_append: bool,
        /// `DefCpuPerGPU`, `DefMemPerGPU`.
        pub job_defaults: JobDefaults,
        /// `AllowSpecResourcesUsage`: jobs say how many cores are left to the system.
        pub allow_spec_resources: bool,
        /// `DisableRootJobs`.
        pub disable_root_jobs: bool,
        /// `EnforcePartLimits`.
        pub enforce_part_limits: EnforcePartLimits,

        /// `CompleteWait`, seconds for which nothing starts after a job ended whose nodes are being cleaned.
        pub complete_wait_secs: u32,
        /// `KillWait`, seconds between SIGTERM and SIGKILL.
        pub kill_wait_secs: u32,
        /// `OverTimeLimit`, minutes.
        pub over_time_limit: OverTime,
        /// `ResvOverRun`: how long jobs may run after the end of their reservation, minutes.
        pub resv_over_run: OverTime,
        /// `ResvProlog`: run by the controller when a reservation begins.
        pub resv_prolog: Option<PathBuf>,
        /// `ResvEpilog`: run by the controller when one ends.
        pub resv_epilog: Option<PathBuf>,
        /// `WaitTime`, seconds until a step is ended after its first task; 0: never.
        pub wait_time_secs: u32,
        /// `KillOnBadExit`.
        pub kill_on_bad_exit: bool,
        /// `BatchStartTimeout`, seconds.
        pub batch_start_timeout_secs: u32,
        /// `BcastExclude`: folders whose shared objects are not sent with a program.
        pub bcast_exclude: Parameters,
        /// `BcastParameters`.
        pub bcast_parameters: Parameters,
        /// `MessageTimeout`, seconds.
        pub message_timeout_secs: u32,
        /// `SlurmdTimeout`, seconds of silence until a node is DOWN; 0: never.
        pub slurmd_timeout_secs: u32,
        /// `UnkillableStepProgram`: run where processes of a job are left after that.
        pub unkillable_step_program: Option<PathBuf>,
        /// `TaskProlog`: runs as the job's user before each task.
        pub task_prolog: Option<PathBuf>,
        /// `TaskEpilog`: runs as the job's user after each task.
        pub task_epilog: Option<PathBuf>,
        /// `UnkillableStepTimeout`, seconds.
        pub unkillable_step_timeout_secs: u32,
        /// `ReturnToService`.
        pub return_to_service: ReturnToService,

        /// `Prolog` lines: paths or patterns (`/etc/slurm/prolog.d/*`), in order.
        pub prolog: Vec<String>,
        /// `Epilog` lines, as above.
        pub epilog: Vec<String>,
        /// `PrologTimeout` (or `PrologEpilogTimeout`), seconds; `None`: no limit.
        pub prolog_timeout_secs: Option<u32>,
        /// `EpilogTimeout` (or `PrologEpilogTimeout`), seconds; `None`: no limit.
        pub epilog_timeout_secs: Option<u32>,
        /// `PrologFlags`.
        pub prolog_flags: PrologFlags,
        /// `PrologSlurmctld` lines, as `Prolog`: run by the controller before a job is launched.
        pub prolog_slurmctld: Vec<String>,
        /// `EpilogSlurmctld` lines: run by the controller when a job's work is over.
        pub epilog_slurmctld: Vec<String>,
        /// `RebootProgram`.
        pub reboot_program: Option<PathBuf>,
        /// `SrunProlog`: run by `srun` before its step.
        pub srun_prolog: Option<PathBuf>,
        /// `SrunEpilog`: run by `srun` after its step.
        pub srun_epilog: Option<PathBuf>,
        /// `MailProg`.
        pub mail_prog: PathBuf,
        /// `MailDomain`: of addresses that name none.
        pub mail_domain: Option<String>,
        /// `HealthCheckProgram` and its relatives.
        pub health: HealthCheck,
        /// `PropagatePrioProcess`.
        pub propagate_priority: PropagatePriority,
        /// `PropagateResourceLimits`.
        pub propagate_limits: PropagateLimits,

        /// `SelectType`.
        pub select_type: String,
        /// `SelectTypeParameters`, default CR_Core_Memory; `select/linear` gives whole nodes.
        pub select: SelectParameters,
        /// `DefMemPerNode`, `DefMemPerCPU`; `None`: all of the node.
        pub def_memory: Option<MemoryPer>,
        /// `MaxMemPerNode`, `MaxMemPerCPU`; `None`: no limit.
        pub max_memory: Option<MemoryPer>,
        /// `MaxNodeCount`; `None`: as many as the file has.
        pub max_node_count: Option<u32>,
        /// `TopologyPlugin`, as written in lower case. `topology.yaml` goes before it.
        pub topology_type: String,
        /// `LaunchParameters`.
        pub launch_parameters: Parameters,
        /// `InteractiveStepOptions`: words for a shell, after `srun`.
        pub interactive_step_options: Option<String>,
        /// `TopologyParam`.
        pub topology_param: Parameters,
        /// What `topology.yaml` or `topology.conf` says; empty where all nodes are equally near, and where the reader did not
        /// ask for it (see [`crate::config::read`]).
        pub topologies: Vec<NamedTopology>,
        /// `SchedulerType`.
        pub scheduler_type: String,
        /// `SchedulerParameters`.
        pub scheduler_parameters: Parameters,
        /// `PriorityType`, as written.
        pub priority_type: String,
        /// `MCSPlugin` and `MCSParameters`: labels of jobs.
        pub mcs: Mcs,
        /// `JobCompType` and what belongs to it.
        pub completion: CompletionSettings,
        /// `JobAcctGatherFrequency` and `AcctGatherEnergyType`: how it is measured what tasks use.
        pub gathering: GatheringSettings,
        /// `AuthAltTypes` and `AuthAltParameters`: tokens of users.
        pub auth: AuthSettings,
        /// `MetricsType` and its relatives: who reads metrics over HTTP.
        pub metrics: MetricsSettings,
        /// `PrivateData`: what ordinary users may not see of others.
        pub private_data: PrivateData,
        /// `AccountingStoreFlags`: what accounting keeps of jobs besides their rows.
        pub store_flags: StoreFlags,
        /// `AccountingStorageTRES`.
        pub tracked: TrackedTres,
        /// `PreemptType`, `PreemptMode` and what belongs to them.
        pub preempt: PreemptSettings,
        /// `ResumeProgram` and its relatives.
        pub power: PowerSettings,
        /// `PriorityWeight...` and what else `priority/multifactor` goes by.
        pub priority: PrioritySettings,
        /// `DependencyParameters`.
        pub dependency_parameters: Parameters,
        /// `ScronParameters`.
        pub scron_parameters: Parameters,
        /// `ReconfigFlags`.
        pub reconfig_flags: Parameters,

        /// Nodes in configuration order; [`NodeIndex`] counts here.
        pub nodes: Vec<NodeConfig>,
        /// Node sets.
        pub node_sets: Vec<NodeSet>,
        /// Partitions in configuration order.
        pub partitions: Vec<PartitionConfig>,
        /// Of what is written in `slurm.conf` and what it includes, whatever its comments and blanks: two daemons with the same
        /// have read the same.
        pub hash: u32,
        /// All other keys that were written, in their usual spelling.
        pub other: BTreeMap<&'static str, String>,
        pub(in crate::config) by_name: HashMap<String, NodeIndex>,
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub(in crate::config) fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl Config {
    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&NodeConfig> {
        self.by_name.get(name).and_then(|i| self.node_at(*i))
    }
    /// A node by its place.
    pub fn node_at(&self, index: NodeIndex) -> Option<&NodeConfig> {
        // Only where nodes came at run time, the index may be another than the place.
        let place = self.nodes.get(index.0 as usize).filter(|node| node.index == index);
        place.or_else(|| self.nodes.get(self.nodes.binary_search_by_key(&index, |node| node.index).ok()?))
    }
    /// Nodes on the machine with this host name (full, or up to its first dot): what a daemon started without `-N` may be.
    pub fn nodes_on_host<'a>(&'a self, hostname: &'a str) -> impl Iterator<Item = &'a NodeConfig> + 'a {
        let short = hostname.split('.').next().unwrap_or(hostname);
        self.nodes.iter().filter(move |node| node.hostname == hostname || node.hostname == short)
    }
    /// A partition by its name.
    pub fn partition(&self, name: &str) -> Option<&PartitionConfig> {
        self.partitions.iter().find(|p| p.name == name)
    }
    /// How long jobs of a partition may outlive their limits: the partition's own `OverTimeLimit`, else the cluster's.
    pub fn over_time_limit_in(&self, partition: &str) -> OverTime {
        self.partition(partition).and_then(|p| p.over_time_limit).unwrap_or(self.over_time_limit)
    }
    /// The partition for jobs that name none.
    pub fn default_partition(&self) -> Option<&PartitionConfig> {
        self.partitions.iter().find(|p| p.default)
    }
    /// `host:port` of each controller, the primary first: where node daemons connect to.
    pub fn controller_targets(&self) -> Vec<String> {
        let port = self.slurmctld_port.first;
        match &self.slurmctld_addr {
            Some(address) => vec![host_and_port(address, port)],
            None => self.controllers.iter().map(|c| host_and_port(c.target(), port)).collect(),
        }
    }
    /// `--requeue=expedite` is allowed: `SlurmctldParameters=enable_expedited_requeue`, or the same word in `SchedulerParameters`.
    pub fn expedited_requeue(&self) -> bool {
        const WORD: &str = "enable_expedited_requeue";
        self.slurmctld_parameters.has(WORD) || self.scheduler_parameters.has(WORD)
    }
    /// May a daemon on that host speak for root and SlurmUser? `SlurmctldParameters=admin_hosts=login1;adm[1-2]` names the hosts
    /// (`ALL`: each of them). Others speak for ordinary users only; the controller's own host needs no naming.
    pub fn admin_host(&self, host: &str) -> bool {
        let named = self.slurmctld_parameters.value("admin_hosts").unwrap_or_default();
        named.split(';').any(|some| {
            let expanded = crate::hostlist::expand(some).unwrap_or_default();
            some.eq_ignore_ascii_case("all") || expanded.iter().any(|name| name == host)
        })
    }
    /// Hosts of the service of accounting, in the order in which they are tried, and `host:port` of each.
    pub fn accounting_places(&self) -> Vec<(&str, String)> {
        let port = if self.accounting_port == 0 { ACCOUNTING_PORT } else { self.accounting_port };
        let hosts = std::iter::once(&self.accounting_host).chain(&self.accounting_backup);
        hosts.map(|host| (host.as_str(), host_and_port(host, port))).collect()
    }

    /// Events that may wait for the service of accounting. They wait on disk, some hundred bytes each, so there may be more of them
    /// than Slurm keeps in memory where `MaxDBDMsgs` does not say.
    pub fn most_for_accounting(&self) -> u64 {
        self.max_dbd_msgs.map_or(QUEUED_FOR_ACCOUNTING, Into::into)
    }

    /// `SlurmctldParameters=max_dbd_msg_action=exit`: the controller ends where more would have to wait. Else the oldest are given up.
    pub fn ends_when_accounting_is_full(&self) -> bool {
        self.slurmctld_parameters.value("max_dbd_msg_action").is_some_and(|action| action.eq_ignore_ascii_case("exit"))
    }

    /// Where changes and refusals are kept (`SlurmctldParameters=audit_log=PATH`; `none`: nowhere). Default: `audit.log` in
    /// StateSaveLocation.
    pub fn audit_log(&self) -> Option<PathBuf> {
        match self.slurmctld_parameters.value("audit_log") {
            Some(word) if word.eq_ignore_ascii_case("none") => None,
            Some(path) => Some(PathBuf::from(path)),
            None => Some(self.state_save_location.join("audit.log")),
        }
    }
    /// What each `srun` in a job has to know.
    pub fn of_srun(&self) -> SiteOfSrun {
        let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
        SiteOfSrun {
            prolog: text(&self.srun_prolog),
            epilog: text(&self.srun_epilog),
            filters_options: !self.cli_filters.is_empty(),
            mpi: self.mpi_default,
            frequencies: self.frequencies.clone(),
        }
    }
    /// Priorities are computed from several factors (`PriorityType=priority/multifactor`).
    pub fn multifactor(&self) -> bool {
        self.priority_type.strip_prefix("priority/").unwrap_or(&self.priority_type) == "multifactor"
    }
    /// Jobs that ask for nothing special are backfilled.
    pub fn backfill(&self) -> bool {
        self.scheduler_type == "sched/backfill"
    }
    /// Nodes may claim more than their machine has (`SlurmdParameters=config_overrides`).
    pub fn config_overrides(&self) -> bool {
        self.slurmd_parameters.has("config_overrides")
    }

    /// Members of a `Nodes=` text: node names, node sets or `ALL`, each once, in configuration order; with them the sets
    /// that were named.
    pub fn members(&self, text: &str) -> Result<(Vec<NodeIndex>, Vec<String>), SettingError> {
        let named: HostList =
            text.parse().map_err(|e: crate::hostlist::HostListError| SettingError::new(e.to_string()))?;
        let mut member = vec![false; self.node_places()];
        let mut sets = Vec::new();
        let mut mark = |index: NodeIndex| {
            if let Some(there) = member.get_mut(index.0 as usize) {
                *there = true;
            }
        };
        let mut missing = HostList::new();
        for name in named.iter() {
            if name.eq_ignore_ascii_case("all") {
                self.nodes.iter().for_each(|node| mark(node.index));
                sets.push("ALL".to_owned());
            } else if let Some(&index) = self.by_name.get(&name) {
                mark(index);
            } else if let Some(nodes) = self.hosts_of_function(&name, &|feature| self.nodes_with_feature(feature))? {
                nodes.iter().filter_map(|n| self.by_name.get(&n)).for_each(|&index| mark(index));
            } else if let Some(set) = self.node_sets.iter().find(|s| s.name == name) {
                set.nodes.iter().filter_map(|n| self.by_name.get(&n)).for_each(|&index| mark(index));
                let with_feature =
                    self.nodes.iter().filter(|n| set.feature.as_ref().is_some_and(|f| n.settings.features.contains(f)));
                with_feature.for_each(|node| mark(node.index));
                sets.push(name);
            } else {
                missing.push(&name);
            }
        }
        if !missing.is_empty() {
            let cause = format!("no node or node set is called {missing}");
            return Err(SettingError::new(cause).suggest("every node needs a NodeName line"));
        }
        let members = self.nodes.iter().map(|n| n.index).filter(|i| member.get(i.0 as usize) == Some(&true)).collect();
        Ok((members, sets))
    }

    /// `Alternate=` must name a partition.
    pub fn check_alternate(&self, partition: &PartitionConfig) -> Result<(), SettingError> {
        match &partition.alternate {
            Some(name) if self.partition(name).is_none() => {
                Err(SettingError::new(format!("Alternate={name}: no partition is called so")))
            }
            _ => Ok(()),
        }
    }

    /// Fills in [`PartitionConfig::nodes`] and its node sets from its `Nodes=` text.
    pub fn resolve_nodes(&self, partition: &mut PartitionConfig) -> Result<Vec<NodeIndex>, SettingError> {
        let (members, sets) = self.members(&partition.nodes_text)?;
        partition.nodes = members.iter().filter_map(|&i| self.node_at(i)).map(|node| node.name.as_str()).collect();
        partition.node_sets = sets;
        Ok(members)
    }
}
