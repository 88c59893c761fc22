//! Controller and node agent. The agent connects, registers, and reports; what it must not lose ([`AgentReport`]) carries
//! a sequence number and is sent again until acknowledged. Everything about a job names its run ([`Sluid`]), so that a
//! late report cannot touch a newer run.

use super::{
    command::{Caller, CommandReply, CommandRequest, TraceLine},
    stepd::StepsOrder,
};
use crate::{
    config::LogChange,
    ids::{ArrayTask, JobId, Sluid},
    node_shape::NodeShape,
    packed_steps::PackedSteps,
    refusal::Refusal,
    spec::JobSpec,
    state::{ExitStatus, JobState, Reason},
    step_selector::WhichSteps,
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, NodeFacts, NodeLoad, StepView},
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::{sync::Arc, time::Duration};

/// What the controller signs for a run of a job. Checked by every agent and `stepd`, from whomever it comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCredential {
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
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Owner's name.
    pub user: String,
    /// Nodes in order, the batch host first, with what the job has on each.
    pub nodes: Vec<AllocatedNode>,
    /// QUIC address (`host:port`) of each node's agent, in the same order.
    pub addresses: Vec<String>,
    /// Partition.
    pub partition: String,
    /// Controller's epoch at signing.
    pub epoch: u64,
    /// Not valid for a new start after this.
    pub expires: Timestamp,
}

impl JobCredential {
    /// This long after it was made a credential has expired.
    pub const LIFETIME: Duration = Duration::from_secs(24 * 3600);
}

/// A credential in the exact bytes that were signed (ed25519).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedCredential {
    /// Encoded [`JobCredential`].
    pub payload: ByteBuf,
    /// 64 bytes.
    pub signature: ByteBuf,
    /// Which signing key.
    pub key_id: String,
}

/// Whether another run of the job may follow one that was lost with its node, on its own account or with the leader of its
/// heterogeneous job. The controller decides, and nodes go by what it said: an agent that is cut off ends what may be started
/// elsewhere, and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequeuePolicy {
    /// It may.
    pub allowed: bool,
    /// How often that was changed since the run was launched: what is said with a lower number is older.
    pub revision: u32,
}

/// Everything a batch host needs to run a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLaunch {
    /// Proof.
    pub credential: SignedCredential,
    /// The job, script and environment included.
    pub spec: Arc<JobSpec>,
    /// Effective limit at the start.
    pub time_limit: TimeLimit,
    /// Start of this run.
    pub start_time: Timestamp,
    /// Times it was requeued before.
    pub restarts: u32,
    /// Tasks with defaults filled in.
    pub tasks: u32,
    /// CPUs per task with defaults filled in.
    pub cpus_per_task: u32,
    /// Number, first, last and step of the array this task belongs to.
    #[serde(default)]
    pub array: Option<ArrayFacts>,
    /// Switches above each node of the credential, in its order; empty without a tree topology.
    #[serde(default)]
    pub switches: Vec<SwitchPath>,
    /// The other components of a heterogeneous job, for the one that runs its script.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub het: Vec<HetComponent>,
    /// May the run be started again elsewhere? `None`: a controller of an earlier version, which did not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<RequeuePolicy>,
}

impl JobLaunch {
    /// May the run be started again elsewhere? Where its controller did not say, what it may do at most: a run that goes on
    /// beside another is worse than one that ended when its node was cut off. `default` is `JobRequeue`.
    pub fn requeue_policy(&self, default: bool) -> RequeuePolicy {
        self.requeue.unwrap_or_else(|| RequeuePolicy { allowed: self.spec.may_be_requeued(default), revision: 0 })
    }
}

/// What the leader of a heterogeneous job learns of another component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HetComponent {
    /// Its job.
    pub job: JobId,
    /// Its run.
    pub sluid: Sluid,
    /// What it asked for; without script and environment.
    pub spec: Arc<JobSpec>,
    /// Its nodes.
    pub nodes: Vec<AllocatedNode>,
    /// Its partition.
    pub partition: String,
    /// Tasks with defaults filled in.
    pub tasks: u32,
    /// CPUs per task with defaults filled in.
    pub cpus_per_task: u32,
}

/// Where a node is in a tree of switches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchPath {
    /// Names from the top switch down to the leaf, with dots between them.
    pub names: String,
    /// `SLURM_TOPOLOGY_ADDR_PATTERN`: what each component is, the node at the end.
    pub pattern: String,
}

/// What array tasks learn of their array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayFacts {
    /// Tasks in the array.
    pub count: u32,
    /// Smallest index.
    pub min: u32,
    /// Largest index.
    pub max: u32,
    /// Step between the first two indices (1 for lists).
    pub step: u32,
}

/// Controller to node agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ControllerToNode {
    /// First message: registration accepted.
    Welcome {
        /// Grows with every start of the controller.
        epoch: u64,
        /// Key to check credentials with (ed25519 public key, 32 bytes) and its id.
        credential_key: ByteBuf,
        /// Its id.
        key_id: String,
        /// Runs the controller believes to be on this node; the agent ends all others.
        runs: Vec<(JobId, Sluid)>,
        /// Nodes that came at run time, to be asked whether they have the controller.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        neighbours: Vec<Neighbour>,
        /// What the node counts as, whatever its machine has (`config_overrides`), but for GRES.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<Box<NodeShape>>,
    },
    /// Registration declined; the agent logs it and tries again later.
    Declined(Refusal),
    /// Start a job's step manager here. Repeatable by run.
    StartJob(Box<JobLaunch>),
    /// End a run. Sent to the batch host's agent, and to all nodes of the run once the batch host is lost. Repeatable.
    EndJob {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// State and reason to record.
        state: JobState,
        /// Why.
        reason: Reason,
        /// Nodes of the run that are lost: nothing is to be awaited from there.
        #[serde(default)]
        lost: Vec<String>,
    },
    /// Signal a run's processes.
    SignalJob {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Signal number.
        signal: i32,
        /// To whom.
        to: SignalScope,
    },
    /// A new time limit, from the run's start.
    SetTimeLimit {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Limit.
        limit: TimeLimit,
    },
    /// The allocation's owner is done.
    FinishAllocation {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Exit status to record.
        exit: ExitStatus,
    },
    /// It changed whether the run may be started again elsewhere. Sent to all nodes of the run; answered by
    /// [`AgentReport::RequeueSet`] once it is on the node's disk. Repeatable.
    SetRequeue {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// From now on.
        policy: RequeuePolicy,
    },
    /// Answered by `Heartbeat` at once.
    Ping {
        /// Counter.
        n: u64,
        /// As in `Welcome`, when they are others now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        neighbours: Option<Vec<Neighbour>>,
    },
    /// Reports up to this sequence number are safe on the controller's disk.
    AckReports {
        /// Sequence number.
        upto: u64,
    },
    /// Steps of these jobs, please (all here when empty). Answered by `Steps`.
    ListSteps {
        /// Correlation.
        query: u64,
        /// Jobs.
        jobs: Vec<JobId>,
    },
    /// Which runs of a job are recorded there? Answered by `Records`.
    FindRecords {
        /// Correlation.
        query: u64,
        /// Job; [`JobId::OF_A_RUN`]: whosever run it is.
        job: JobId,
        /// This run of it.
        #[serde(default)]
        run: Option<Sluid>,
        /// With [`JobId::OF_A_RUN`] and no run: this task of a job array.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<ArrayTask>,
    },
    /// Cancel or signal steps through their step manager.
    SignalSteps {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Steps.
        steps: WhichSteps,
        /// Only those of them that wait.
        #[serde(default)]
        pending_only: bool,
        /// Signal; `None`: end them.
        signal: Option<i32>,
        /// Who asked, by uid.
        #[serde(default)]
        by: Option<u32>,
    },
    /// For a run's step manager. Sent to the batch host's agent.
    OrderSteps {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// What.
        order: StepsOrder,
    },
    /// Trace records, please. Answered by `Trace`, repeatedly with `follow` until `StopTrace`.
    Trace {
        /// Correlation.
        query: u64,
        /// Actor path prefixes.
        prefixes: Vec<String>,
        /// Keep sending.
        follow: bool,
    },
    /// End of interest.
    StopTrace {
        /// Correlation.
        query: u64,
    },
    /// Answer to a command that came through this node's door.
    CommandReply {
        /// Correlation, chosen by the agent.
        query: u64,
        /// Answer.
        reply: CommandReply,
    },
    /// Revoked certificates: a signed list (PEM) that replaces the last one; `None`: none is revoked.
    Revoked {
        /// The list.
        list: Option<String>,
    },
    /// Ask for a new certificate. Answered by `Renew`.
    RenewCertificate,
    /// Answer to `Renew`.
    Certificate {
        /// Certificate, PEM.
        certificate: String,
        /// Authorities to trust, PEM.
        authorities: Vec<String>,
    },
    /// `slurm.conf` changed: read it again.
    Reconfigure,
    /// Keep the log so, until `slurm.conf` is read again. Repeatable.
    ChangeLog(LogChange),
    /// Reboot the machine (`RebootProgram`). Sent once.
    Reboot,
    /// End this daemon. Jobs go on unless it says so.
    Shutdown,
}

/// Another node, and where its daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Name.
    pub name: String,
    /// Address and port.
    pub address: String,
}

/// Whom a job signal reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignalScope {
    /// All steps but the batch shell (`scancel -s`).
    Steps,
    /// The batch shell only (`-b`).
    BatchShell,
    /// The batch shell's whole step and all steps (`-f`).
    Full,
}

/// A report that must arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AgentReport {
    /// The step manager serves and the batch script runs (or the allocation is ready).
    JobStarted {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Step manager's door on its host.
        door: String,
    },
    /// The work of the run is over (its processes are gone on the batch host).
    JobEnded {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Terminal state.
        state: JobState,
        /// Reason.
        reason: Reason,
        /// Exit status.
        exit: ExitStatus,
        /// Highest of its steps.
        derived: ExitStatus,
        /// When.
        at: Timestamp,
        /// Nodes that the step manager had given up.
        #[serde(default)]
        lost: Vec<String>,
        /// Why its script could not be started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
    /// This node is done with the run, epilog included.
    NodeReleased {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// The epilog's failure, which drains the node.
        epilog_failed: Option<String>,
        /// What of the run may be left after all, which drains the node, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unkillable: Option<String>,
    },
    /// The run could not be started here.
    JobLaunchFailed {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Reason for users.
        reason: Reason,
        /// Details for the log.
        detail: String,
        /// Requeue and hold the job, drain the node (prolog failure).
        drain_node: bool,
    },
    /// Steps that started or ended since the last report, in batches.
    Steps {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Changes, newest state of each step.
        steps: PackedSteps,
    },
    /// The node goes by that from now on, also after a restart of its daemon.
    RequeueSet {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// What it was told.
        policy: RequeuePolicy,
    },
}

impl AgentReport {
    /// The job that it is about.
    pub const fn job(&self) -> JobId {
        match self {
            Self::JobStarted { job, .. }
            | Self::JobEnded { job, .. }
            | Self::NodeReleased { job, .. }
            | Self::JobLaunchFailed { job, .. }
            | Self::Steps { job, .. }
            | Self::RequeueSet { job, .. } => *job,
        }
    }
}

/// A run that an agent holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRun {
    /// Job.
    pub job: JobId,
    /// Run.
    pub sluid: Sluid,
    /// Its step manager is here.
    pub batch_host: bool,
    /// Step manager's or shepherd's door.
    pub door: String,
    /// What the agent goes by when it is cut off, and the next one of the node. `None`: an agent of an earlier version, which
    /// cannot be told of changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<RequeuePolicy>,
}

/// A run that an agent let go of, which the controller may not have heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasedRun {
    /// Job.
    pub job: JobId,
    /// Run.
    pub sluid: Sluid,
    /// Number of the report that says so, and how the epilog went. It follows the registration.
    pub seq: u64,
}

/// What a node says of itself that comes at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joining {
    /// What would follow `NodeName=` in `slurm.conf`.
    pub line: String,
    /// Port that it listens on.
    pub port: u16,
}

/// Node agent to controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeToController {
    /// First message on every connection.
    Register {
        /// Node name.
        node: String,
        /// What it found.
        facts: Box<NodeFacts>,
        /// Runs it holds.
        runs: Vec<HeldRun>,
        /// Runs that it let go of, as a report says that is not acknowledged.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        released: Vec<ReleasedRun>,
        /// Random, new for each start of the agent.
        incarnation: u64,
        /// Load.
        load: NodeLoad,
        /// Of a node that `slurm.conf` need not have: what it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        joining: Option<Box<Joining>>,
    },
    /// Alive; also the answer to `Ping`.
    Heartbeat {
        /// Echo of the ping, 0 when unasked.
        n: u64,
        /// Load.
        load: NodeLoad,
    },
    /// Must arrive; acknowledged by `AckReports`.
    Report {
        /// Grows by one; starts at 1 for each incarnation.
        seq: u64,
        /// Report.
        report: AgentReport,
    },
    /// Answer to `ListSteps`.
    Steps {
        /// Correlation.
        query: u64,
        /// Steps.
        steps: Vec<StepView>,
        /// Managers that did not answer.
        missing: Vec<String>,
        /// Lines that are not there because the list is too long.
        #[serde(default)]
        left_out: u64,
    },
    /// Answer to `FindRecords`.
    Records {
        /// Correlation.
        query: u64,
        /// Runs of that job whose records are there.
        runs: Vec<Sluid>,
    },
    /// Answer to `Trace`.
    Trace {
        /// Correlation.
        query: u64,
        /// Records.
        records: Vec<TraceLine>,
        /// No more will come.
        last: bool,
    },
    /// A command at this node's door.
    Command {
        /// Correlation, chosen by the agent.
        query: u64,
        /// Who.
        caller: Caller,
        /// What.
        request: Box<CommandRequest>,
    },
    /// A certificate for this node's new key, please: a request (PKCS #10, DER) signed with that key.
    Renew {
        /// The request.
        request: ByteBuf,
    },
    /// What this node's identity is: said at the begin of each connection, and after each change. Fingerprints of authorities'
    /// certificates (SHA-256, hexadecimal).
    Holds {
        /// The authority that made its certificate.
        issuer: Option<String>,
        /// Those that it trusts.
        trusted: Vec<String>,
    },
    /// The command went away; no more replies are wanted.
    CommandGone {
        /// Correlation.
        query: u64,
    },
}

/// Step manager (in its `stepd`) to the node agent of another node of its job: the only request on that link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StepMgrToAgent {
    /// Start a shepherd for this run, which will connect to `manager`.
    StartShepherd {
        /// As on the batch host, script left out.
        launch: Box<JobLaunch>,
        /// QUIC address of the step manager's `stepd`.
        manager: String,
        /// The run had one there: an agent that does not know the run refuses.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// From another node's agent: are you connected to the controller?
    AskController,
}

/// Its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AgentToStepMgr {
    /// Prolog done, `stepd` started.
    Started,
    /// Not started.
    Failed(Refusal),
    /// To `AskController`.
    Controller {
        /// The controller has welcomed this node, and the connection is there.
        connected: bool,
    },
}
