//! What is said to a job's owner, and what it answers.

use super::{het::HetMessage, names::report_name, node::ReserveRefusal};
use garrick_events::records::job::{JobRecord, Resolved, TaskOutcome};
use garrick_model::{
    config::{BillingWeights, ExitCodes},
    ids::{JobId, Sluid},
    messages::{
        command::{JobChange, JobMilestone, StepManagerPlace},
        node::{AgentReport, JobCredential, RequeuePolicy, SignalScope},
    },
    refusal::Refusal,
    spec::JobSpec,
    state::{ExitStatus, Reason},
    time::Timestamp,
    view::JobView,
};
use garrick_plan::proposals::{PreemptProposal, ResumeProposal, StartProposal, TurnProposal};
use serde_bytes::ByteBuf;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// What holds for every job of the site; replaced when the configuration changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSite {
    /// Cluster's name, for credentials.
    pub cluster: String,
    /// Grows with every start of the controller.
    pub epoch: u64,
    /// `MinJobAge`: how long a job that is over is remembered; `None`: for ever.
    pub min_job_age: Option<Duration>,
    /// How long a requeued job waits before it may start again, so that nodes can be cleaned
    /// (`SchedulerParameters=requeue_delay`).
    pub requeue_delay: Duration,
    /// A batch job that was requeued so often without anybody's asking is held the next time (`MaxBatchRequeue`).
    pub max_batch_requeue: u32,
    /// A job whose prolog failed is held (not with `SchedulerParameters=nohold_on_prolog_fail`).
    pub hold_on_prolog_fail: bool,
    /// `--requeue=expedite` is allowed.
    pub expedite: bool,
    /// Jobs whose dependencies never can be fulfilled are ended (`DependencyParameters=kill_invalid_depend`).
    pub kill_invalid_depend: bool,
    /// Priorities are calculated (`priority/multifactor`).
    pub multifactor: bool,
    /// A run that has to give way gets the signal of `--signal` (`PreemptParameters=send_user_signal`).
    pub send_user_signal: bool,
    /// `RequeueExit`.
    pub requeue_exit: ExitCodes,
    /// `RequeueExitHold`.
    pub requeue_exit_hold: ExitCodes,
    /// How long a batch host may take to say that a launch succeeded or failed, prolog included.
    pub launch_limit: Duration,
    /// `TRESBillingWeights` by partition.
    pub billing: BTreeMap<String, BillingWeights>,
    /// Of what nodes give only the greatest is billed (`PriorityFlags=MAX_TRES`).
    pub bill_greatest: bool,
    /// How long a credential may be used to start a run.
    pub credential_lifetime: Duration,
    /// Somebody follows the log for accounting: what steps came to is saved before their manager may forget it.
    pub keeps_step_records: bool,
}

impl Default for JobSite {
    fn default() -> Self {
        Self {
            cluster: "cluster".to_owned(),
            epoch: 1,
            min_job_age: Some(Duration::from_secs(300)),
            requeue_delay: Duration::from_secs(120),
            max_batch_requeue: 5,
            hold_on_prolog_fail: true,
            expedite: false,
            kill_invalid_depend: false,
            multifactor: false,
            send_user_signal: false,
            requeue_exit: ExitCodes::default(),
            requeue_exit_hold: ExitCodes::default(),
            launch_limit: Duration::from_secs(600),
            billing: BTreeMap::new(),
            bill_greatest: false,
            credential_lifetime: JobCredential::LIFETIME,
            keeps_step_records: false,
        }
    }
}

/// On whose authority a command acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    /// User.
    pub uid: u32,
    /// Root or SlurmUser.
    pub admin: bool,
}

/// Tasks of an array, as inclusive ranges with a step; `None`: all.
pub type TaskChoice = Option<Vec<(u32, u32, u32)>>;

/// A change of a job that waits, as admission judged it.
#[derive(Clone, Debug, PartialEq)]
pub struct Revise {
    /// What was asked for: who may do that, and what becomes of priority and hold, is its owner's to say. It is what happens
    /// where the job does not wait any more.
    pub change: JobChange,
    /// What the job asked for when this was made.
    pub from: Arc<JobSpec>,
    /// What that came to.
    pub resolved_from: Resolved,
    /// What it asks for then.
    pub spec: JobSpec,
    /// What that comes to.
    pub resolved: Resolved,
}

impl Revise {
    /// Was it made of this record as it is, or of that of the array that this is a task of?
    pub fn is_of(&self, record: &JobRecord) -> bool {
        let same = || JobSpec { array_task: self.from.array_task, ..(*record.spec).clone() } == *self.from;
        self.resolved_from == record.resolved && (Arc::ptr_eq(&self.from, &record.spec) || same())
    }
}

/// Answer to a [`Revise`] that was made of what the job does not ask for any more: it is to be judged again. It leaves when
/// what came between is on disk.
pub const CHANGED_MEANWHILE: Refusal = Refusal::RetryAfter { after: Duration::from_millis(100) };

/// What users and administrators do to a job. Every one may be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum JobCommand {
    /// End it.
    Cancel,
    /// Send a signal.
    Signal {
        /// Number.
        signal: i32,
        /// To whom.
        to: SignalScope,
    },
    /// Hold; by an administrator where `admin`.
    Hold {
        /// As an administrator.
        admin: bool,
    },
    /// Release.
    Release,
    /// Back to the queue.
    Requeue {
        /// And held there.
        hold: bool,
    },
    /// Back to the queue, held there in the state SPECIAL_EXIT.
    RequeueSpecialExit,
    /// Stop its processes.
    Suspend,
    /// Continue them.
    Resume,
    /// Change fields: of a job that waits, such as admission has no say in ([`JobChange::is_aside`]).
    Update(Box<JobChange>),
    /// Change what it asks for while it waits.
    Revise(Box<Revise>),
    /// The allocation's owner is done.
    FinishAllocation {
        /// Exit status to record.
        exit: ExitStatus,
    },
}

/// How far a job is, for those who depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFact {
    /// Which job.
    pub job: JobId,
    /// Its first start, or its end without one.
    pub started: Option<Timestamp>,
    /// Over, and how. For an array: all of it, and `Ok` when every task was.
    pub over: Option<TaskOutcome>,
    /// Some task of the array failed already.
    pub some_failed: bool,
    /// Marks of an array's tasks.
    pub tasks: BTreeMap<u32, (Option<Timestamp>, Option<TaskOutcome>)>,
    /// Said by an array to a task of it: the task's end is noted. Nothing else is said then.
    pub noted: bool,
}

/// Named timers of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobTimer {
    /// Begin time or a dependency's delay.
    Eligible,
    /// `--deadline`.
    Deadline,
    /// The time of its reservation is over.
    Leave,
    /// `--immediate`.
    Immediate,
    /// A node has not answered a reservation.
    Commit,
    /// Nothing was heard of a launch.
    Launch,
    /// The batch host does not know the run; what it may still have to say is waited for.
    Missing,
    /// Nodes that were not released are asked again.
    CleanUp,
    /// MinJobAge is over.
    Purge,
    /// The grace of a preempted run is over: it ends, or stands still from now on.
    Preempt,
    /// What it needs to know of other jobs is asked for again.
    News,
}

impl JobTimer {
    /// Key for the runtime.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Eligible => "eligible",
            Self::Deadline => "deadline",
            Self::Leave => "leave",
            Self::Immediate => "immediate",
            Self::Commit => "commit",
            Self::Launch => "launch",
            Self::Missing => "missing",
            Self::CleanUp => "clean-up",
            Self::Purge => "purge",
            Self::Preempt => "preempt",
            Self::News => "news",
        }
    }
}

/// What may happen to a job.
#[derive(Clone, Debug, PartialEq)]
pub enum JobInput {
    /// The scheduler proposes a start.
    Start(Box<StartProposal>),
    /// The scheduler proposes that its run gives way to another job.
    Preempt(Box<PreemptProposal>),
    /// The scheduler proposes that its run, suspended for another job, goes on.
    GoOn(Box<ResumeProposal>),
    /// The scheduler proposes that its run stands still until its turn comes on CPUs that it shares, or that it is its turn.
    Turn(TurnProposal),
    /// A node's owner answered a run that wants its CPUs back.
    Unparked {
        /// Which attempt.
        attempt: u64,
        /// Node.
        node: String,
        /// It has them.
        granted: bool,
    },
    /// The scheduler looked and does not start it.
    Considered {
        /// Why.
        reason: Reason,
        /// Expected start.
        expected: Option<Timestamp>,
    },
    /// The scheduler calculated its priority.
    Priority(u32),
    /// A node's owner answered.
    Reserved {
        /// Which attempt.
        attempt: u64,
        /// Node.
        node: String,
        /// The agent's address, or why not.
        result: Result<String, ReserveRefusal>,
    },
    /// The account of licenses answered.
    LicensesReserved {
        /// Which attempt.
        attempt: u64,
        /// The job has them.
        granted: bool,
    },
    /// An agent reported about a run.
    Report {
        /// Node.
        node: String,
        /// To acknowledge with.
        seq: u64,
        /// Report.
        report: Box<AgentReport>,
    },
    /// An agent registered and holds the run.
    RunHeld {
        /// Node.
        node: String,
        /// Run.
        sluid: Sluid,
        /// What it goes by when it is cut off; `None`: it is of an earlier version.
        requeue: Option<RequeuePolicy>,
    },
    /// An agent registered and does not know the run.
    RunMissing {
        /// Node.
        node: String,
        /// Run.
        sluid: Sluid,
    },
    /// The node went down.
    NodeLost {
        /// Node.
        node: String,
        /// Run.
        sluid: Sluid,
    },
    /// A command. Answered by [`JobAnswer::Done`].
    Command {
        /// Request.
        request: u64,
        /// Who.
        by: Authority,
        /// Tasks of an array.
        tasks: TaskChoice,
        /// What.
        command: JobCommand,
    },
    /// Another job wants to know how far this one is, now and on every change; or a task of this array that is over,
    /// whether its end is noted.
    Subscribe {
        /// Who.
        by: JobId,
    },
    /// A job that this one depends on, or its array; `None`: it is not known any more.
    Fact {
        /// Which.
        job: JobId,
        /// How far.
        fact: Option<Arc<JobFact>>,
    },
    /// Earlier jobs of the same name and user that are not over, for `singleton`.
    Siblings {
        /// Which.
        jobs: Vec<JobId>,
    },
    /// Answer when it has come that far.
    Wait {
        /// Request.
        request: u64,
        /// How far.
        until: JobMilestone,
    },
    /// The time of the reservation that it runs in is over: it ends then at the latest. Said by the owner of reservations.
    LeaveBy(Timestamp),
    /// These reservations are over: it waits for them no longer. Said by the owner of reservations.
    ReservationsGone(BTreeSet<String>),
    /// Answer with its script.
    Script {
        /// Request.
        request: u64,
    },
    /// Answer where its step manager is, once one serves or none will.
    Locate {
        /// Request.
        request: u64,
    },
    /// A timer ran out.
    Timer(JobTimer),
    /// The site's settings changed.
    Site(Arc<JobSite>),
    /// From another component of the same heterogeneous job.
    Het {
        /// Which.
        from: JobId,
        /// What.
        message: Box<HetMessage>,
    },
}

/// What a job answers requests with.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAnswer {
    /// To a command; to anything, where this controller does not lead.
    Done(Result<(), Refusal>),
    /// It has come as far as was waited for.
    Reached(Arc<JobView>),
    /// Its script.
    Script(Option<ByteBuf>),
    /// Where its step manager is.
    Place(Result<StepManagerPlace, Refusal>),
}

/// What the frontend asks a job's owner. Answers leave when what they promise is on disk; all may be asked twice.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAsk {
    /// A user's command: [`JobAnswer::Done`].
    Command {
        /// Who.
        by: Authority,
        /// Tasks of an array.
        tasks: TaskChoice,
        /// What.
        command: JobCommand,
    },
    /// Answer when it has come that far: [`JobAnswer::Reached`].
    Wait(JobMilestone),
    /// Its script: [`JobAnswer::Script`].
    Script,
    /// Where its step manager is, once one serves: [`JobAnswer::Place`].
    Locate,
}

impl JobInput {
    /// Its name in traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Start(_) => "Start",
            Self::Preempt(_) => "Preempt",
            Self::Het { message, .. } => message.name(),
            Self::Considered { .. } => "Considered",
            Self::Priority(_) => "Priority",
            Self::GoOn(_) => "GoOn",
            Self::Turn(_) => "Turn",
            Self::Unparked { .. } => "Unparked",
            Self::Reserved { .. } => "Reserved",
            Self::LicensesReserved { .. } => "LicensesReserved",
            Self::Report { report, .. } => report_name(report),
            Self::RunHeld { .. } => "RunHeld",
            Self::RunMissing { .. } => "RunMissing",
            Self::NodeLost { .. } => "NodeLost",
            Self::Command { .. } => "Command",
            Self::Subscribe { .. } => "Subscribe",
            Self::Fact { .. } => "Fact",
            Self::Siblings { .. } => "Siblings",
            Self::Wait { .. } => "Wait",
            Self::LeaveBy(_) => "LeaveBy",
            Self::ReservationsGone(_) => "ReservationsGone",
            Self::Script { .. } => "Script",
            Self::Locate { .. } => "Locate",
            Self::Timer(_) => "Timer",
            Self::Site(_) => "Site",
        }
    }
}
