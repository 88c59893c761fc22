//! Commands and the controller. A node's local door passes these on to the controller over its QUIC link together with
//! the peer credentials it read from the kernel ([`Caller`]); the controller's own door reads them itself.
//! Each request is answered by exactly one reply, except [`CommandRequest::Watch`] and [`CommandRequest::Trace`] with
//! `follow`, which are answered by a stream of replies ended by [`CommandReply::End`].

use crate::{
    bounded,
    config::{LogChange, LogLevel},
    crontab::CrontabChange,
    ids::{ArrayTask, JobId, RequestId, Sluid},
    job_query::JobQuery,
    mail::{Mail, MailTypes},
    messages::{
        priority::{JobPriority, PriorityWeights},
        records::RecordsPlace,
        request_change::RequestChange,
        shares::SharesBoard,
        statistics::{AccountingQueue, Statistics},
        stepd::StepsOrder,
    },
    outlook::Outlook,
    refusal::Refusal,
    reservation::{Reservation, ReservationChange},
    spec::{JobSpec, Sharing},
    step_selector::StepsSelector,
    time::{TimeLimit, Timestamp},
    topology::NamedTopology,
    trigger::{Trigger, TriggerRequest, TriggerSelector},
    view::{AfterReboot, AllocatedNode, JobView, LicenseView, NodeView, PartitionView, StepView},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Most components that are read of a heterogeneous job: more than any may have, which is told in words.
const MOST_SPECS: usize = 1024;

/// Who asks, from the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process.
    pub pid: u32,
    /// Node or host whose daemon vouches for it.
    pub host: String,
}

impl Caller {
    /// In place of one who is not believed: a user who owns nothing (Linux: `nobody`).
    #[must_use]
    pub fn as_nobody(self) -> Self {
        const NOBODY: u32 = 65534;
        Self { uid: NOBODY, gid: NOBODY, ..self }
    }
}

/// What a command asks. "Repeatable" means: safe to send again after a lost reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CommandRequest {
    /// Is the controller there? Repeatable. Answer: `Pong`.
    Ping,
    /// Submit a job; a repeat with the same id gets the first answer. Answer: `Submitted`.
    SubmitJob {
        /// Identity of this submission.
        request: RequestId,
        /// The job.
        spec: Box<JobSpec>,
    },
    /// Submit a heterogeneous job: all of it or nothing. A repeat with the same id gets the first answer. Answer:
    /// `Submitted`, with the leader.
    SubmitHetJob {
        /// Identity of this submission.
        request: RequestId,
        /// Its components, the leader first.
        #[serde(deserialize_with = "bounded::list::<_, _, MOST_SPECS>")]
        specs: Vec<JobSpec>,
    },
    /// Would it start, when, where? Answer: `WouldStart`.
    TestJob {
        /// The job.
        spec: Box<JobSpec>,
    },
    /// The same of a heterogeneous job: when all of it could. Answer: `WouldStart`, with the leader's id, and the CPUs, nodes
    /// and partitions of all components.
    TestHetJob {
        /// Its components, the leader first.
        #[serde(deserialize_with = "bounded::list::<_, _, MOST_SPECS>")]
        specs: Vec<JobSpec>,
    },
    /// Answer once the job has come that far (or is over): `Job`. Repeatable.
    WaitJob {
        /// Job.
        job: JobId,
        /// How far.
        until: JobMilestone,
    },
    /// A stream of the job's views, one per change, ended when it is over. Repeatable.
    Watch {
        /// Job.
        job: JobId,
    },
    /// All jobs, or the named ones. Repeatable. Answer: `Jobs`.
    ListJobs {
        /// Only these (an array's id means its record and its tasks); empty: all.
        jobs: Vec<JobSelector>,
        /// And of those these.
        #[serde(default)]
        which: JobQuery,
        /// Only those with greater ids: the next page of a long answer.
        #[serde(default)]
        after: Option<JobId>,
        /// At most so many, and word of whether there are more. `None`: all, if a frame holds them.
        #[serde(default)]
        most: Option<u32>,
        /// Not those that are in hidden partitions only.
        #[serde(default)]
        hide: bool,
    },
    /// Repeatable. Answer: `Nodes`.
    ListNodes,
    /// Repeatable. Answer: `Partitions`.
    ListPartitions,
    /// Repeatable. Answer: `Licenses`.
    ListLicenses,
    /// Repeatable. Answer: `Topologies`.
    ListTopologies,
    /// Steps of running jobs (asked of their step managers through the node agents). Repeatable. Answer: `Steps`.
    ListSteps {
        /// Only of this job.
        job: Option<JobId>,
        /// Also those that are over, as far as they are remembered.
        #[serde(default)]
        ended: bool,
    },
    /// How many messages the actors of the controller's process handled. Repeatable. Answer: `MessageCounts`.
    CountMessages {
        /// Actor path prefixes as for `Trace`; empty: all.
        prefixes: Vec<String>,
    },
    /// What the controller counts of its own work (`sdiag`). Repeatable. Answer: `Statistics`.
    ShowStatistics,
    /// Those counters begin anew. For administrators. Repeatable. Answer: `Done`.
    ResetStatistics,
    /// The factors behind the priorities of jobs that wait. Repeatable. Answer: `Priorities`.
    ListPriorities,
    /// Shares and usage of associations (`sshare`). Repeatable. Answer: `Shares`.
    ListShares,
    /// The same with QOS and users (`scontrol show assoc_mgr`). Repeatable. Answer: `Shares`.
    ShowAssociations,
    /// Effective configuration as `Key = Value` pairs. Repeatable. Answer: `Config`.
    ShowConfig,
    /// The script of a job. Repeatable. Answer: `Script`.
    ShowScript {
        /// Job.
        job: JobId,
    },
    /// Where a job's step manager is. Repeatable. Answer: `StepManager`.
    LocateStepManager {
        /// Job.
        job: JobId,
    },
    /// Where the records of a job's steps are, also of one that the controller has forgotten: then nodes are asked. Repeatable.
    /// Answer: `RecordPlaces`.
    FindRecords {
        /// Job.
        job: JobId,
        /// This run of it; else the newest.
        run: Option<Sluid>,
        /// With [`JobId::OF_A_RUN`] and no run: this task of a job array.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<ArrayTask>,
    },
    /// To a node's agent, at its own door: does that run go on here? A command whose step manager is away asks that, and waits as
    /// long as it does. Repeatable, needs no controller. Answer: `Run`.
    AskRun {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
    },
    /// Cancel or signal. Repeatable. Answer: `PerJob`.
    Cancel(CancelRequest),
    /// Hold, release, requeue. Repeatable. Answer: `PerJob`.
    ControlJob {
        /// Jobs.
        jobs: Vec<JobSelector>,
        /// What.
        action: JobAction,
    },
    /// Change a job. Repeatable. Answer: `PerJob`.
    UpdateJob {
        /// Jobs.
        jobs: Vec<JobSelector>,
        /// Fields.
        change: Box<JobChange>,
    },
    /// Have a running job's step manager do that: for its user and administrators. Answer: `Done` once it is passed on.
    OrderSteps {
        /// Job.
        job: JobSelector,
        /// What.
        order: StepsOrder,
    },
    /// Change nodes. Repeatable. Answer: `Done`.
    UpdateNode {
        /// Node names, expanded.
        nodes: Vec<String>,
        /// Fields.
        change: NodeChange,
    },
    /// Change a partition. Repeatable. Answer: `Done`.
    UpdatePartition {
        /// Name.
        partition: String,
        /// `Key=Value` pairs as written in `slurm.conf`.
        fields: Vec<(String, String)>,
    },
    /// Make a partition that `slurm.conf` does not have. Answer: `Done`.
    CreatePartition {
        /// Name.
        partition: String,
        /// `Key=Value` pairs as written in `slurm.conf`.
        fields: Vec<(String, String)>,
    },
    /// Forget a partition that no job needs, until `slurm.conf` is read again if that has it. Answer: `Done`.
    DeletePartition {
        /// Name.
        partition: String,
    },
    /// Make nodes that `slurm.conf` does not have. Answer: `Done`.
    CreateNodes {
        /// Names, host list form.
        names: String,
        /// What would follow on their `NodeName` line.
        line: String,
    },
    /// Forget nodes that came at run time. Those that may not go stay. Answer: `Done`.
    DeleteNodes {
        /// Names, or the one word ALL.
        nodes: Vec<String>,
    },
    /// Read `slurm.conf` again. Repeatable. Answer: `Done`.
    Reconfigure,
    /// How much the controller logs, until it reads `slurm.conf` again. Repeatable. Answer: `Done`.
    SetLogLevel(LogLevel),
    /// Change how the controller's log, or those of these nodes' daemons, are kept, until they read `slurm.conf` again. For
    /// administrators. Repeatable. Answer: `Done` once the nodes that have a link are told; a refusal names those that have none.
    ChangeLog {
        /// How.
        change: LogChange,
        /// Node names, expanded; none: the controller.
        nodes: Vec<String>,
    },
    /// End the controller, and the node daemons too unless told otherwise. Answer: `Done` before it ends.
    Shutdown {
        /// The controller only (`scontrol shutdown slurmctld` ... see the command).
        controller_only: bool,
    },
    /// The certificates that the cluster's authority issued. For administrators. Repeatable. Answer: `Certs`.
    ListCerts,
    /// Revoke the certificates of nodes, and take the nodes down. For administrators. Answer: `Done`.
    RevokeCerts {
        /// Nodes.
        nodes: Vec<String>,
    },
    /// Have connected nodes ask for new certificates. For administrators. Answer: `Done` once they are told.
    RenewCerts {
        /// Nodes; none: all of them, and the controller.
        nodes: Vec<String>,
    },
    /// Replace the cluster's authority by a new one: begin, or look again whether the next step can be taken. For administrators.
    /// Answer: `Done`; `Certs` tells how far it is.
    RotateAuthority {
        /// Take the next step now: nodes that are behind are left behind, and have to join again.
        leave_behind: bool,
    },
    /// Make a one-time token for a node to join with. Answer: `Token`.
    CreateJoinToken {
        /// Seconds until it expires.
        lifetime_secs: u64,
        /// The only node that may use it; `None`: any.
        #[serde(default)]
        node: Option<String>,
    },
    /// Trace records of some actors from every process they live in. Answer: a stream of `TraceRecords`, then `End`.
    Trace {
        /// Actor path prefixes, for example `/job/5609`, `/node/n1`, `/scheduler`.
        prefixes: Vec<String>,
        /// Keep sending.
        follow: bool,
    },
    /// Make a token with which commands act as a user (`scontrol token`): for the caller, and for others where an administrator asks.
    /// Answer: `Token`.
    MakeUserToken {
        /// The user's name; `None`: the caller.
        user: Option<String>,
        /// Seconds until it expires.
        lifespan_secs: u32,
    },
    /// What follows is asked by the user whom a token names (`SLURM_JWT`). The controller's process verifies it, and serves the
    /// request as that user's. Answer: that of the request.
    WithToken {
        /// The token.
        token: String,
        /// The request.
        request: Box<CommandRequest>,
    },
    /// The allocation's owner (`salloc`, `srun`) says that it is done. Repeatable. Answer: `Done`.
    FinishAllocation {
        /// Job.
        job: JobId,
        /// Exit status to record.
        exit: crate::state::ExitStatus,
    },
    /// The processes of the daemon that was asked, for `garrick status`. Answer: `Daemons`.
    ListDaemons,
    /// All reservations. Repeatable. Answer: `Reservations`.
    ListReservations,
    /// Host list functions (`feature{gpu}`, `switch{s1}`) replaced by the nodes that they name now. Repeatable. Answer:
    /// `NodesNamed`.
    NameNodes(Vec<String>),
    /// What keeps a job waiting for room. Repeatable. Answer: `Outlook`.
    Explain {
        /// Job, or the record of an array.
        job: JobId,
    },
    /// Make a reservation. Answer: `ReservationCreated`.
    CreateReservation(Box<ReservationChange>),
    /// Change a reservation. Repeatable. Answer: `Done`.
    UpdateReservation(Box<ReservationChange>),
    /// All triggers. Repeatable. Answer: `Triggers`.
    ListTriggers,
    /// Set a trigger: for SlurmUser only. Answer: `Done`.
    SetTrigger(Box<TriggerRequest>),
    /// Remove triggers: for root and who set them. Answer: `Done`.
    ClearTriggers(TriggerSelector),
    /// The crontab of a user: for that user and administrators. Repeatable. Answer: `Crontab`.
    ShowCrontab {
        /// Whose.
        uid: u32,
    },
    /// Replace the crontab of a user, and its jobs: all of it or nothing. For that user and administrators; a repeat with the same
    /// id gets the first answer. Answer: `CrontabInstalled` or `CrontabWrong`.
    InstallCrontab(Box<CrontabChange>),
    /// End a reservation. Answer: `Done`.
    DeleteReservation {
        /// Name.
        name: String,
    },
}

impl CommandRequest {
    /// The named jobs, in one answer.
    pub fn list_jobs(jobs: Vec<JobSelector>) -> Self {
        Self::ListJobs { jobs, which: JobQuery::default(), after: None, most: None, hide: false }
    }

    /// Jobs that are such, in one answer.
    pub const fn list_such_jobs(which: JobQuery) -> Self {
        Self::ListJobs { jobs: Vec::new(), which, after: None, most: None, hide: false }
    }

    /// What in it names jobs by their runs: each run, and where its job's id goes.
    pub fn runs_named(&mut self) -> Vec<(Sluid, &mut JobId)> {
        let (jobs, steps): (&mut [JobSelector], &mut [StepsSelector]) = match self {
            Self::ListJobs { jobs, .. } | Self::ControlJob { jobs, .. } | Self::UpdateJob { jobs, .. } => {
                (jobs, &mut [])
            }
            Self::OrderSteps { job, .. } => (std::slice::from_mut(job), &mut []),
            Self::Cancel(cancel) => (&mut cancel.jobs, &mut cancel.steps),
            _ => return Vec::new(),
        };
        let jobs = jobs.iter_mut().filter_map(|named| Some((named.run?, &mut named.job)));
        jobs.chain(steps.iter_mut().filter_map(|named| Some((named.run?, &mut named.job)))).collect()
    }

    /// It changes nothing, and its answer is open to all users.
    pub const fn only_asks(&self) -> bool {
        match self {
            Self::Ping
            | Self::TestJob { .. }
            | Self::TestHetJob { .. }
            | Self::WaitJob { .. }
            | Self::Watch { .. }
            | Self::ListJobs { .. }
            | Self::ListNodes
            | Self::ListPartitions
            | Self::ListLicenses
            | Self::ListTopologies
            | Self::ListSteps { .. }
            | Self::CountMessages { .. }
            | Self::ShowStatistics
            | Self::ListPriorities
            | Self::ListShares
            | Self::ShowAssociations
            | Self::ShowConfig
            | Self::ShowScript { .. }
            | Self::ShowCrontab { .. }
            | Self::ListTriggers
            | Self::LocateStepManager { .. }
            | Self::FindRecords { .. }
            | Self::AskRun { .. }
            | Self::Trace { .. }
            | Self::ListDaemons
            | Self::ListReservations
            | Self::NameNodes(_)
            | Self::Explain { .. } => true,
            Self::SetLogLevel(_)
            | Self::ResetStatistics
            | Self::ChangeLog { .. }
            | Self::ListCerts
            | Self::RevokeCerts { .. }
            | Self::RenewCerts { .. }
            | Self::RotateAuthority { .. } => false,
            Self::SubmitJob { .. }
            | Self::SubmitHetJob { .. }
            | Self::Cancel(_)
            | Self::ControlJob { .. }
            | Self::UpdateJob { .. }
            | Self::OrderSteps { .. }
            | Self::UpdateNode { .. }
            | Self::UpdatePartition { .. }
            | Self::CreatePartition { .. }
            | Self::DeletePartition { .. }
            | Self::CreateNodes { .. }
            | Self::DeleteNodes { .. }
            | Self::Reconfigure
            | Self::Shutdown { .. }
            | Self::CreateJoinToken { .. }
            | Self::MakeUserToken { .. }
            | Self::WithToken { .. }
            | Self::FinishAllocation { .. }
            | Self::CreateReservation(_)
            | Self::UpdateReservation(_)
            | Self::InstallCrontab(_)
            | Self::SetTrigger(_)
            | Self::ClearTriggers(_)
            | Self::DeleteReservation { .. } => false,
        }
    }
}

/// How far a job is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobMilestone {
    /// Its prologs are done and its step manager serves.
    Started,
    /// It is over (COMPLETED, FAILED, ...; not COMPLETING).
    Ended,
}

/// A job, all of an array, or tasks of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSelector {
    /// Job or array id.
    pub job: JobId,
    /// Only these tasks, inclusive ranges.
    #[serde(default)]
    pub tasks: Option<Vec<(u32, u32, u32)>>,
    /// Only the component with this offset, where it is the leader of a heterogeneous job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub het: Option<u32>,
    /// Only this run of it. Where it is all that names the job, that is [`JobId::OF_A_RUN`] until the controller has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Sluid>,
}

/// `scancel`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CancelRequest {
    /// Jobs named.
    pub jobs: Vec<JobSelector>,
    /// Steps named; these go to the step managers.
    pub steps: Vec<StepsSelector>,
    /// Of the steps only those that wait (`--state=PENDING`).
    pub pending_steps_only: bool,
    /// Filters when no job is named (all that are given must hold).
    pub filter: JobFilter,
    /// Send this signal instead of ending the job.
    pub signal: Option<i32>,
    /// `-b`: to the batch shell only.
    pub batch: bool,
    /// `-f`: to the batch shell and all steps.
    pub full: bool,
    /// `-c`: also jobs of crontabs, where the site wants that to be said.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cron: bool,
}

/// Which jobs, by what they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobFilter {
    /// `-u`, as uid.
    pub uid: Option<u32>,
    /// `-n`.
    pub name: Option<String>,
    /// `-p`.
    pub partition: Option<String>,
    /// `-A`.
    pub account: Option<String>,
    /// `-t`.
    pub state: Option<crate::state::JobState>,
    /// `-w`, any of these nodes.
    pub nodes: Vec<String>,
}

/// `scontrol hold`, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobAction {
    /// By an administrator when root or SlurmUser asks, else by the user.
    Hold,
    /// `uhold`.
    UserHold,
    /// Release.
    Release,
    /// Back to the queue; a running one is ended first.
    Requeue,
    /// As above and held.
    RequeueHold,
    /// As above, in the state SPECIAL_EXIT.
    RequeueSpecialExit,
    /// Stop all processes.
    Suspend,
    /// Continue them.
    Resume,
    /// To the frontend of their user's queue, in this order.
    Top,
}

/// `scontrol update JobId=...`: only what is `Some` changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobChange {
    /// TimeLimit, absolute.
    pub time_limit: Option<TimeLimit>,
    /// `TimeLimit+=`/`-=`, seconds.
    pub time_limit_delta_secs: Option<i64>,
    /// Partition.
    pub partitions: Option<Vec<String>>,
    /// Priority.
    pub priority: Option<u32>,
    /// Nice.
    pub nice: Option<i32>,
    /// Name.
    pub name: Option<String>,
    /// Comment.
    pub comment: Option<String>,
    /// AdminComment.
    pub admin_comment: Option<String>,
    /// Extra; empty: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    /// NumNodes.
    pub nodes: Option<crate::spec::NodeCount>,
    /// NumNodes with a list or a step, beside their least and most in [`Self::nodes`].
    #[serde(skip_serializing_if = "crate::node_sizes::NodeSizes::is_empty")]
    pub node_sizes: crate::node_sizes::NodeSizes,
    /// NumTasks.
    pub tasks: Option<u32>,
    /// MinMemoryNode / MinMemoryCPU.
    pub memory: Option<crate::resources::MemoryRequest>,
    /// Features.
    pub constraint: Option<String>,
    /// Prefer; empty for none.
    pub prefer: Option<String>,
    /// Licenses.
    pub licenses: Option<String>,
    /// StartTime / EligibleTime.
    pub begin: Option<Timestamp>,
    /// Dependency.
    pub dependencies: Option<crate::spec::Dependencies>,
    /// ReqNodeList.
    pub nodelist: Option<Vec<String>>,
    /// ExcNodeList.
    pub exclude: Option<Vec<String>>,
    /// Requeue.
    pub requeue: Option<bool>,
    /// ArrayTaskThrottle; 0 for none.
    pub array_limit: Option<u32>,
    /// Account.
    pub account: Option<String>,
    /// SiteFactor.
    pub site_factor: Option<i32>,
    /// ResetAccrueTime: it gains priority by age from now on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reset_accrue_time: bool,
    /// Switches: how many, 0 for none, and for how many seconds at most.
    pub switches: Option<(u32, Option<u64>)>,
    /// SegmentSize; 0 for none.
    pub segment: Option<u32>,
    /// ReservationName: one or more; empty for none.
    pub reservations: Option<Vec<String>>,
    /// TimeMin.
    pub time_min: Option<TimeLimit>,
    /// Whatever else of the request changes.
    #[serde(skip_serializing_if = "RequestChange::is_default")]
    pub request: RequestChange,
    /// MCSLabel; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcs_label: Option<String>,
    /// MailType.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail_types: Option<MailTypes>,
    /// MailUser; empty for the job's own user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail_user: Option<String>,
    /// EndTime, of a job that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    /// How the job shares nodes with that label: the controller's to say, a command's word is passed over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
}

impl JobChange {
    /// The QOS of a job that asked for this, once it is changed.
    pub fn qos_of<'s>(&'s self, spec: &'s JobSpec) -> Option<&'s str> {
        self.request.qos.as_deref().map_or(spec.qos.as_deref(), |qos| Some(qos).filter(|qos| !qos.is_empty()))
    }

    /// What a job asks for that asked for this and has that limit now, once it is changed. How the job's priority and what
    /// an administrator notes beside it change is not in a specification.
    #[must_use]
    pub fn patch(&self, spec: &JobSpec, limit: TimeLimit) -> JobSpec {
        let mut spec = spec.clone();
        let own = &mut spec;
        if self.names_limit(limit) {
            own.time_limit = Some(self.limit_after(limit));
        }
        set_some(&mut own.time_min, self.time_min);
        set(&mut own.partitions, self.partitions.as_ref());
        // Priority 0 is how Slurm says "hold".
        if self.priority.is_some_and(|priority| priority > 0) {
            own.nice = 0;
        }
        set(&mut own.nice, self.nice.as_ref());
        set(&mut own.name, self.name.as_ref());
        set_some(&mut own.comment, self.comment.clone());
        set_text(&mut own.extra, self.extra.as_ref());
        if self.nodes.is_some() {
            own.nodes = self.nodes;
            own.node_sizes.clone_from(&self.node_sizes);
        }
        set_some(&mut own.tasks, self.tasks);
        self.request.apply(own);
        // With fewer tasks than nodes there is nothing to choose.
        if own.nodes.zip(own.tasks).is_some_and(|(nodes, tasks)| tasks < nodes.min) {
            own.node_sizes = crate::node_sizes::NodeSizes::default();
        }
        // The list was about those tasks and nodes.
        if self.nodes.is_some()
            || self.tasks.is_some()
            || self.nodelist.is_some()
            || self.request.tasks_per_node.is_some()
        {
            own.layout.task_nodes.clear();
        }
        set(&mut own.memory, self.memory.as_ref());
        if let Some((most, wait_secs)) = self.switches {
            own.topology.switches = Some(most).filter(|most| *most > 0);
            // `wait-for-switch` may say it too.
            own.topology.switches_wait_secs = wait_secs.or(self.request.switches_wait_secs);
        }
        if let Some(size) = self.segment {
            own.topology.segment = Some(size).filter(|size| *size > 0);
        }
        set(&mut own.reservations, self.reservations.as_ref());
        set_text(&mut own.constraint, self.constraint.as_ref());
        set_text(&mut own.prefer, self.prefer.as_ref());
        set_text(&mut own.licenses, self.licenses.as_ref());
        set_some(&mut own.begin, self.begin);
        set(&mut own.dependencies, self.dependencies.as_ref());
        set(&mut own.nodelist, self.nodelist.as_ref());
        set(&mut own.exclude, self.exclude.as_ref());
        set_some(&mut own.requeue, self.requeue);
        if let (Some(limit), Some(array)) = (self.array_limit, &mut own.array) {
            array.limit = Some(limit).filter(|limit| *limit > 0);
        }
        set_some(&mut own.account, self.account.clone());
        set_text(&mut own.mcs_label, self.mcs_label.as_ref());
        self.patch_mail(&mut own.mail);
        spec
    }

    /// Changes what a job says of mail.
    pub fn patch_mail(&self, mail: &mut Mail) {
        set(&mut mail.types, self.mail_types.as_ref());
        set_some(&mut mail.user, self.mail_user.clone());
    }

    /// Does it name a limit for a job that has this one?
    pub const fn names_limit(&self, now: TimeLimit) -> bool {
        self.time_limit.is_some() || self.time_limit_delta_secs.is_some() && matches!(now, TimeLimit::Secs(_))
    }

    /// Is it about nothing that admission decides: what it made of the request stays as it is?
    pub fn is_aside(&self) -> bool {
        let rest = Self {
            priority: None,
            nice: None,
            site_factor: None,
            reset_accrue_time: false,
            name: None,
            comment: None,
            admin_comment: None,
            array_limit: None,
            mail_types: None,
            mail_user: None,
            ..self.clone()
        };
        rest == Self::default()
    }

    /// The limit of a job that had this one, once it is changed.
    pub fn limit_after(&self, before: TimeLimit) -> TimeLimit {
        match (self.time_limit.unwrap_or(before), self.time_limit_delta_secs) {
            (TimeLimit::Secs(secs), Some(delta)) => TimeLimit::Secs(secs.saturating_add_signed(delta)),
            (named, _) => named,
        }
    }
}

fn set<T: Clone>(place: &mut T, change: Option<&T>) {
    if let Some(value) = change {
        place.clone_from(value);
    }
}

fn set_some<T>(place: &mut Option<T>, change: Option<T>) {
    if change.is_some() {
        *place = change;
    }
}

/// An empty text is none.
fn set_text(place: &mut Option<String>, change: Option<&String>) {
    if let Some(text) = change {
        *place = Some(text.clone()).filter(|text| !text.is_empty());
    }
}

/// `scontrol update NodeName=...`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeChange {
    /// State.
    pub state: Option<NodeStateChange>,
    /// Reason.
    pub reason: Option<String>,
    /// Weight.
    pub weight: Option<u32>,
    /// ActiveFeatures.
    pub features: Option<Vec<String>>,
    /// Comment.
    pub comment: Option<String>,
    /// Extra; empty: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    /// Topology, of nodes that came at run time: empty takes them out of all.
    #[serde(default)]
    pub topology: Option<String>,
    /// NodeAddr and NodeHostname.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Box<NodePlace>>,
    /// `scontrol reboot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<RebootOrder>,
    /// ResumeAfter, with DOWN or DRAIN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_after: Option<ResumeAfter>,
}

/// When a node that goes out of service is back in it without anybody's asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResumeAfter {
    /// After so many seconds.
    Secs(u32),
    /// Never; -1.
    Never,
}

/// `scontrol reboot`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RebootOrder {
    /// `ASAP`: nothing new starts there before.
    pub asap: bool,
    /// `nextstate=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<AfterReboot>,
}

/// Where a node is; `None`: as before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodePlace {
    /// NodeAddr.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// NodeHostname.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// InstanceId; empty: none, here and below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// InstanceType.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
}

/// `State=` of a node update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeStateChange {
    /// DRAIN
    Drain,
    /// UNDRAIN
    Undrain,
    /// DOWN
    Down,
    /// RESUME, IDLE
    Resume,
    /// FAIL (as DRAIN, with that word)
    Fail,
    /// POWER_UP
    PowerUp,
    /// POWER_DOWN: when it is empty.
    PowerDown,
    /// POWER_DOWN_ASAP: it is drained first.
    PowerDownAsap,
    /// POWER_DOWN_FORCE: its jobs end.
    PowerDownForce,
    /// CANCEL_REBOOT, `scontrol cancel_reboot`
    CancelReboot,
}

/// A trace record as it travels: see the runtime's promises for its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceLine {
    /// Process: `controller`, `node/n1`, `stepd/5609/n1`.
    pub process: String,
    /// Order within the process.
    pub seq: u64,
    /// Wall-clock microseconds since the Unix epoch at which handling began.
    pub at_us: i64,
    /// Trace id: shared by everything one cause set off.
    pub trace: u64,
    /// Message id.
    pub id: u64,
    /// Id of the message that caused this one; 0 for none.
    pub cause: u64,
    /// Actor's path.
    pub actor: String,
    /// Message's name.
    pub message: String,
    /// Time in the mailbox, microseconds.
    pub queue_us: u64,
    /// Handling time, microseconds.
    pub handle_us: u64,
    /// `ok`, `panic: ...`, `dropped`.
    pub outcome: String,
}

/// How many messages of one name an actor handled since its process started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCount {
    /// Actor's path; `/job/*` stands for all children of `/job` that have ended.
    pub actor: String,
    /// Message's name.
    pub message: String,
    /// How many.
    pub handled: u64,
}

/// Answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CommandReply {
    /// To `Ping`.
    Pong {
        /// Controller's host.
        host: String,
        /// Program version.
        version: String,
        /// What waits for accounting.
        #[serde(default)]
        accounting: AccountingQueue,
    },
    /// To `SubmitJob`.
    Submitted {
        /// New job.
        job: JobId,
        /// Things said to the user, one line each.
        warnings: Vec<String>,
    },
    /// An answer, and what the site's own checks (`JobSubmitPlugins`) have to say before it.
    Said {
        /// A line each.
        lines: Vec<String>,
        /// The answer itself.
        reply: Box<CommandReply>,
    },
    /// To `TestJob` and `TestHetJob`.
    WouldStart {
        /// Id it would get.
        job: JobId,
        /// When.
        at: Timestamp,
        /// CPUs.
        cpus: u32,
        /// Nodes, host list form.
        nodes: String,
        /// Partition.
        partition: String,
    },
    /// To `WaitJob`, and the items of `Watch`.
    Job(Arc<JobView>),
    /// An item of `Watch`: `scontrol notify`.
    Notice(String),
    /// To `ListJobs`.
    Jobs {
        /// In id order.
        jobs: Vec<Arc<JobView>>,
        /// Time of the snapshot.
        at: Timestamp,
        /// There are more than were asked for, with greater ids.
        #[serde(default)]
        more: bool,
    },
    /// To `ListNodes`.
    Nodes {
        /// In configuration order.
        nodes: Vec<Arc<NodeView>>,
        /// Time of the snapshot.
        at: Timestamp,
    },
    /// To `ListPartitions`, with node views since states are derived from both.
    Partitions {
        /// In configuration order.
        partitions: Vec<Arc<PartitionView>>,
        /// Nodes by index.
        nodes: Vec<Arc<NodeView>>,
        /// Time of the snapshot.
        at: Timestamp,
        /// Names of those that are not shown to the caller unasked: hidden ones, and those not for his groups.
        #[serde(default)]
        hidden: Vec<String>,
        /// The states of nodes are not for the caller, and left out of the nodes' views (`PrivateData=nodes`).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        nodes_private: bool,
    },
    /// To `ListSteps`.
    Steps {
        /// Steps.
        steps: Vec<StepView>,
        /// Managers that did not answer.
        missing: Vec<String>,
        /// Lines that are not there because the list is too long; naming one job shortens it.
        #[serde(default)]
        left_out: u64,
    },
    /// To `ShowStatistics`.
    Statistics(Box<Statistics>),
    /// To `ListPriorities`.
    Priorities {
        /// `PriorityType`; only `priority/multifactor` has factors.
        kind: String,
        /// Weights.
        weights: PriorityWeights,
        /// A job for each of its partitions, in id order.
        jobs: Vec<JobPriority>,
    },
    /// To `ListShares` and `ShowAssociations`.
    Shares(Box<SharesBoard>),
    /// To `ListLicenses`, in name order.
    Licenses {
        /// Licenses.
        licenses: Vec<LicenseView>,
        /// Time of the snapshot.
        at: Timestamp,
    },
    /// To `ListTopologies`: as configured, the default first. Empty: all nodes are equally near.
    Topologies {
        /// Topologies.
        topologies: Vec<NamedTopology>,
    },
    /// To `ShowConfig`.
    Config {
        /// Pairs in Slurm's order.
        pairs: Vec<(String, String)>,
        /// Time of the snapshot.
        at: Timestamp,
    },
    /// To `ShowScript`.
    Script(serde_bytes::ByteBuf),
    /// To `LocateStepManager`.
    StepManager(StepManagerPlace),
    /// To `FindRecords`, the newest run first.
    RecordPlaces {
        /// Where.
        places: Vec<RecordsPlace>,
        /// Nodes that did not answer.
        missing: Vec<String>,
    },
    /// One entry per job that was named or matched: the job and what came of it.
    PerJob(Vec<(JobSelector, Result<(), Refusal>)>),
    /// Done.
    Done,
    /// To `CreateJoinToken` and `MakeUserToken`.
    Token(String),
    /// To `ListCerts`.
    Certs {
        /// By role and name, the oldest first.
        certs: Vec<CertView>,
        /// When the authority's own certificate ends.
        authority: Timestamp,
        /// It is being replaced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rotation: Option<RotationView>,
    },
    /// Items of `Trace`.
    TraceRecords(Vec<TraceLine>),
    /// To `CountMessages`, sorted by actor and message.
    MessageCounts(Vec<MessageCount>),
    /// To `ListDaemons`.
    Daemons(Vec<DaemonInfo>),
    /// End of a stream.
    End,
    /// Declined.
    Refused(Refusal),
    /// To `ListReservations`, in name order.
    Reservations {
        /// Reservations.
        reservations: Vec<Arc<Reservation>>,
        /// Time of the snapshot.
        at: Timestamp,
    },
    /// To `CreateReservation`: its name.
    ReservationCreated(String),
    /// To `NameNodes`: names of nodes.
    NodesNamed(Vec<String>),
    /// To `Explain`; `None`: the last plan reserved no room for it.
    Outlook(Option<Box<Outlook>>),
    /// To `AskRun`.
    Run(RunStanding),
    /// To `ListTriggers`, by number.
    Triggers(Vec<Trigger>),
    /// To `ShowCrontab`: its text; `None`: there is none.
    Crontab(Option<serde_bytes::ByteBuf>),
    /// To `InstallCrontab`: things said to the user, one line each.
    CrontabInstalled {
        /// Lines.
        warnings: Vec<String>,
    },
    /// To `InstallCrontab`: nothing was changed, since the job of an entry is declined.
    CrontabWrong {
        /// Which entry, from 0.
        entry: u32,
        /// Why.
        refusal: Refusal,
    },
}

/// A certificate of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertView {
    /// `controller`, `node`, `client`.
    pub role: String,
    /// Whose.
    pub name: String,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// When it was made.
    pub issued: Timestamp,
    /// When it ends.
    pub expires: Timestamp,
    /// When it was revoked.
    pub revoked: Option<Timestamp>,
}

/// How far the replacement of the cluster's authority is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotationView {
    /// The new one issues certificates, and the old one is still trusted; else it is only made known.
    pub issuing: bool,
    /// Nodes that the next step waits for.
    pub missing: Vec<String>,
}

/// What a node's agent knows of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunStanding {
    /// It goes on: its `stepd` is there, or begins.
    Here,
    /// Its `stepd` died and is started again.
    StartsAgain,
    /// Its `stepd` died too often, or did not end the run in time: what is left is killed.
    GivenUp,
    /// It ended, or never was here.
    Over,
}

/// Where to reach a job's step manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepManagerPlace {
    /// Job.
    pub job: JobId,
    /// Batch host's node name.
    pub node: String,
    /// Its door, for processes on that host.
    pub door: String,
    /// Its node agent's QUIC address, for a relay from another host.
    pub address: String,
    /// The allocation.
    pub nodes: Vec<AllocatedNode>,
}

/// A process of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonInfo {
    /// `controller`, `node`, `stepd`.
    pub role: String,
    /// Name.
    pub name: String,
    /// Process id on its host.
    pub pid: u32,
    /// Address.
    pub address: String,
}
