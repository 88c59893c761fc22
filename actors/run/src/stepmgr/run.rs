//! The facts of one run of a job, which its `stepd` gets from the signed credential and the launch, and the site's settings for
//! the step manager. They do not change during the run, except for the time limit.

use garrick_model::{
    ids::{JobId, Sluid},
    messages::node::{ArrayFacts, HetComponent, JobCredential, JobLaunch, SwitchPath},
    spec::{JobKind, JobSpec},
    time::{TimeLimit, Timestamp},
    view::AllocatedNode,
};
use jiff::tz::TimeZone;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Facts of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFacts {
    /// Cluster.
    pub cluster: String,
    /// Job.
    pub job: JobId,
    /// Run.
    pub sluid: Sluid,
    /// Owner.
    pub uid: u32,
    /// Owner's group.
    pub gid: u32,
    /// Owner's name.
    pub user: String,
    /// Name of that group, from the group database of the batch host.
    pub group: Option<String>,
    /// Owner's home folder, from the user database of the batch host.
    pub home: Option<String>,
    /// Owner's login shell.
    pub shell: Option<String>,
    /// The job's request.
    pub spec: Arc<JobSpec>,
    /// The allocation; the first node is the batch host.
    pub nodes: Vec<AllocatedNode>,
    /// Agents' addresses, `host:port`, in the same order.
    pub addresses: Vec<String>,
    /// Partition.
    pub partition: String,
    /// Limit at the start.
    pub time_limit: TimeLimit,
    /// Start of the run.
    pub start_time: Timestamp,
    /// Earlier runs of the job.
    pub restarts: u32,
    /// Tasks, with defaults filled in.
    pub tasks: u32,
    /// CPUs per task, with defaults filled in.
    pub cpus_per_task: u32,
    /// Set for array tasks.
    pub array: Option<ArrayFacts>,
    /// Switches above each node, in the order of [`Self::nodes`]; empty without a tree topology.
    pub switches: Vec<SwitchPath>,
    /// The other components of a heterogeneous job, if this is the one that runs its script.
    pub het: Vec<HetComponent>,
    /// Path of `slurm.conf`, for `SLURM_CONF`.
    pub conf_path: Option<String>,
    /// Local time, for notices.
    pub zone: TimeZone,
}

impl RunFacts {
    /// From what the batch host's agent handed over; `credential` must have been verified.
    pub fn new(launch: &JobLaunch, credential: &JobCredential) -> Self {
        Self {
            cluster: credential.cluster.clone(),
            job: credential.job,
            sluid: credential.sluid,
            uid: credential.uid,
            gid: credential.gid,
            user: credential.user.clone(),
            group: None,
            home: None,
            shell: None,
            spec: launch.spec.clone(),
            nodes: credential.nodes.clone(),
            addresses: credential.addresses.clone(),
            partition: credential.partition.clone(),
            time_limit: launch.time_limit,
            start_time: launch.start_time,
            restarts: launch.restarts,
            tasks: launch.tasks,
            cpus_per_task: launch.cpus_per_task,
            array: launch.array,
            switches: launch.switches.clone(),
            het: launch.het.clone(),
            conf_path: None,
            zone: TimeZone::UTC,
        }
    }

    /// True for a batch job.
    pub fn is_batch(&self) -> bool {
        self.spec.kind == JobKind::Batch
    }

    /// Node names in order.
    pub fn node_names(&self) -> Vec<String> {
        self.nodes.iter().map(|n| n.name.clone()).collect()
    }

    /// Index of each node by its name.
    pub fn slots_by_name(&self) -> BTreeMap<String, u32> {
        self.nodes.iter().zip(0..).map(|(n, slot)| (n.name.clone(), slot)).collect()
    }
}

/// Settings of the site and limits of the step manager. Each has a default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepMgrConfig {
    /// `KillWait`: from SIGTERM to SIGKILL. Default 30 s.
    pub kill_wait: Duration,
    /// `OverTimeLimit`: grace after the time limit; `None`: unlimited. Default 0.
    pub over_time_limit: Option<Duration>,
    /// Steps whose commands may wait with them; above it requests get "retry after". Default 100,000; each costs about two
    /// kilobytes, besides its command.
    pub attended_limit: usize,
    /// Minibatch steps that may wait; above it requests get "retry after". Default 10,000,000. A waiting step costs the bytes of
    /// its command and four more; a task of a step array costs a bit or two.
    pub queue_limit: u64,
    /// Bytes of waiting commands that are held; above it requests get "retry after". Default 1 GiB.
    pub queue_bytes: u64,
    /// A waiting minibatch step counts like a blocking `srun` that came this much later, which limits how long newer `srun`s go
    /// ahead of it. Default 60 s.
    pub minibatch_age: Duration,
    /// How many steps may start ahead of the first one that does not fit before nodes are kept free for it. Default 64.
    pub max_bypass: u32,
    /// How many more for each CPU that it requests: with steps of equal length, emptying its nodes then costs a few hundredths of
    /// the time. Default 16.
    pub bypass_per_cpu: u32,
    /// Most short steps that are handed to their node behind a running one; 0: none. Default 8.
    pub line_length: usize,
    /// The time over which the ends of a row's steps are counted to find their run time. Default 50 ms.
    pub pace_window: Duration,
    /// How many waiting steps are considered behind the first one that does not fit. Default 64.
    pub lookahead: usize,
    /// Users besides root that may act for others and on any job (`SlurmUser`).
    pub trusted_uids: Vec<u32>,
    /// How long step changes are collected before they are reported. Default 500 ms.
    pub report_delay: Duration,
    /// An earlier process served this run: its tasks are searched before anything is started. Default no.
    pub restarted: bool,
    /// `JobFileAppend=1`: output files are appended to unless `--open-mode` says otherwise.
    pub append_files: bool,
    /// `MaxTasksPerNode`: most tasks of a step on a node. Default 512.
    pub max_tasks_per_node: u32,
    /// `MaxStepCount`: most steps of the job in all, a step array counted once. Default no limit.
    pub max_step_count: Option<u32>,
    /// `CR_Pack_Nodes`: a step fills a node before the next unless it says otherwise. Default no.
    pub pack_nodes: bool,
    /// `PrologFlags=DeferBatch`: the batch script starts when all nodes are there. Default no.
    pub defer_batch: bool,
    /// At the end of the run, how long to wait for other nodes to be clean before this one is reported clean alone.
    /// Default 60 s.
    pub others_wait: Duration,
}

impl Default for StepMgrConfig {
    fn default() -> Self {
        Self {
            kill_wait: Duration::from_secs(30),
            over_time_limit: Some(Duration::ZERO),
            attended_limit: 100_000,
            queue_limit: 10_000_000,
            queue_bytes: 1 << 30,
            minibatch_age: Duration::from_secs(60),
            max_bypass: 64,
            bypass_per_cpu: 16,
            line_length: 8,
            pace_window: Duration::from_millis(50),
            lookahead: 64,
            trusted_uids: Vec::new(),
            report_delay: Duration::from_millis(500),
            restarted: false,
            append_files: false,
            max_tasks_per_node: 512,
            max_step_count: None,
            pack_nodes: false,
            defer_batch: false,
            others_wait: Duration::from_secs(60),
        }
    }
}
