//! Messages to a job's owner, and its answers.

use super::{
    het::HetMessage,
    names::report_name,
    node::{Grant, ReserveRefusal},
};
use garrick_events::records::job::{JobRecord, Resolved, TaskOutcome};
use garrick_model::{
    config::{BilledTerms, BillingWeights, ExitCodes},
    ids::{JobId, Sluid},
    messages::{
        command::{JobChange, JobMilestone, StepManagerPlace},
        node::{AgentReport, JobCredential, RequeuePolicy, SignalScope},
    },
    refusal::Refusal,
    spec::JobSpec,
    state::{ExitStatus, Reason},
    time::Timestamp,
    view::{Accrual, JobView},
};
use garrick_plan::{
    proposals::{PreemptProposal, ResumeProposal, StartProposal, TurnProposal},
    snapshot::accounting::AccountingTable,
};
use jiff::tz::TimeZone;
use serde_bytes::ByteBuf;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Settings for every job of the site; replaced when the configuration changes.
#[derive(Clone, Debug, PartialEq)]
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
    /// A batch job that was requeued this often without a request is held the next time (`MaxBatchRequeue`).
    pub max_batch_requeue: u32,
    /// A job whose prolog failed is held (not with `SchedulerParameters=nohold_on_prolog_fail`).
    pub hold_on_prolog_fail: bool,
    /// A batch job whose prolog failed is requeued whatever it asked for (`PrologFlags=ForceRequeueOnFail`).
    pub requeue_on_prolog_fail: bool,
    /// A batch job whose nodes could not be powered up is requeued, also if it is not to be
    /// (`SchedulerParameters=requeue_on_resume_failure`).
    pub requeue_on_resume_failure: bool,
    /// `--requeue=expedite` is allowed.
    pub expedite: bool,
    /// Jobs whose dependencies can never be fulfilled are ended (`DependencyParameters=kill_invalid_depend`).
    pub kill_invalid_depend: bool,
    /// Priorities are calculated (`priority/multifactor`).
    pub multifactor: bool,
    /// A preempted run gets the signal of `--signal` (`PreemptParameters=send_user_signal`).
    pub send_user_signal: bool,
    /// `RequeueExit`.
    pub requeue_exit: ExitCodes,
    /// `RequeueExitHold`.
    pub requeue_exit_hold: ExitCodes,
    /// How long a batch host may take to report that a launch succeeded or failed, including the prolog.
    pub launch_limit: Duration,
    /// `TRESBillingWeights` by partition.
    pub billing: BTreeMap<String, BillingWeights>,
    /// Which terms of these are added up (`PriorityFlags`).
    pub billed_terms: BilledTerms,
    /// How long a credential is valid for starting a run.
    pub credential_lifetime: Duration,
    /// The programs of the site that the controller runs for jobs.
    pub programs: JobPrograms,
    /// The zone by which crontabs are read: that of the controller, as scrontab(1) says.
    pub zone: TimeZone,
    /// A follower does accounting: results of steps are saved before their manager may forget them.
    pub keeps_step_records: bool,
    /// What accounting knows: to whom runs are charged.
    pub accounts: Arc<AccountingTable>,
    /// `QOS` by partition, in lower case.
    pub partition_qos: BTreeMap<String, String>,
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
            requeue_on_prolog_fail: false,
            requeue_on_resume_failure: false,
            expedite: false,
            kill_invalid_depend: false,
            multifactor: false,
            send_user_signal: false,
            requeue_exit: ExitCodes::default(),
            requeue_exit_hold: ExitCodes::default(),
            launch_limit: Duration::from_secs(600),
            billing: BTreeMap::new(),
            billed_terms: BilledTerms::All,
            credential_lifetime: JobCredential::LIFETIME,
            programs: JobPrograms::default(),
            zone: TimeZone::UTC,
            keeps_step_records: false,
            accounts: Arc::default(),
            partition_qos: BTreeMap::new(),
        }
    }
}

/// The programs of the site that the controller runs for jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobPrograms {
    /// `MailProg`.
    pub mail: String,
    /// `MailDomain`.
    pub mail_domain: Option<String>,
    /// `PrologSlurmctld`: run before a job is launched.
    pub prolog: Vec<String>,
    /// `PrologTimeout`, for each of them.
    pub prolog_limit: Option<Duration>,
    /// `EpilogSlurmctld`: run when a job's work is over.
    pub epilog: Vec<String>,
    /// `EpilogTimeout`, for each of them.
    pub epilog_limit: Option<Duration>,
}

/// A program of the site that the controller runs for a run, and waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// `PrologSlurmctld`.
    Prolog,
    /// `EpilogSlurmctld`.
    Epilog,
}

/// The authority of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    /// User.
    pub uid: u32,
    /// Root or SlurmUser.
    pub admin: bool,
}

/// Tasks of an array, as inclusive ranges with a step; `None`: all.
pub type TaskChoice = Option<Vec<(u32, u32, u32)>>;

/// A change of a waiting job, as judged by admission.
#[derive(Clone, Debug, PartialEq)]
pub struct Revise {
    /// The requested change. The owner decides whether it is permitted, and what happens to priority and hold. It applies if the
    /// job does not wait any more.
    pub change: JobChange,
    /// The job's request when this was judged.
    pub from: Arc<JobSpec>,
    /// That request with defaults filled in.
    pub resolved_from: Resolved,
    /// The new request.
    pub spec: JobSpec,
    /// The new request with defaults filled in.
    pub resolved: Resolved,
}

impl Revise {
    /// Was it made from this record as it is, or from the record of this task's array?
    pub fn is_of(&self, record: &JobRecord) -> bool {
        let same = || JobSpec { array_task: self.from.array_task, ..(*record.spec).clone() } == *self.from;
        self.resolved_from == record.resolved && (Arc::ptr_eq(&self.from, &record.spec) || same())
    }
}

/// Answer to a [`Revise`] made from an outdated request: it has to be judged again. It is sent when the changes in between are on
/// disk.
pub const CHANGED_MEANWHILE: Refusal = Refusal::RetryAfter { after: Duration::from_millis(100) };

/// Commands of users and administrators. Each may be repeated.
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
    /// Change fields. For a waiting job: fields that admission does not judge ([`JobChange::is_aside`]).
    Update(Box<JobChange>),
    /// Change what it asks for while it waits.
    Revise(Box<Revise>),
    /// The owner of the allocation has finished.
    FinishAllocation {
        /// Exit status to record.
        exit: ExitStatus,
    },
}

/// The state of a job for the jobs that depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFact {
    /// Which job.
    pub job: JobId,
    /// Its first start, or its end without one.
    pub started: Option<Timestamp>,
    /// Set if it is over. For an array: if all of it is over; `Ok` if every task was.
    pub over: Option<TaskOutcome>,
    /// Some task of the array has failed already.
    pub some_failed: bool,
    /// Start and end of an array's tasks.
    pub tasks: BTreeMap<u32, (Option<Timestamp>, Option<TaskOutcome>)>,
    /// Its exit status, if it is over and no array.
    pub exit: Option<ExitStatus>,
    /// From an array to one of its tasks: the task's end is noted. Nothing else is set then.
    pub noted: bool,
}

/// Named timers of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobTimer {
    /// Begin time or a dependency's delay.
    Eligible,
    /// `--deadline`.
    Deadline,
    /// Its reservation has ended.
    Leave,
    /// `--immediate`.
    Immediate,
    /// A node has not answered a reservation.
    Commit,
    /// The launch was not reported.
    Launch,
    /// The batch host does not know the run; late reports are waited for.
    Missing,
    /// Nodes that were not released are told again.
    CleanUp,
    /// MinJobAge is over.
    Purge,
    /// The grace of a preempted run is over: it ends, or is suspended now.
    Preempt,
    /// It asks about other jobs again.
    News,
    /// So much of its time is over that its user is told.
    Mail,
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
            Self::Mail => "mail",
        }
    }
}

/// The inputs of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum JobInput {
    /// The scheduler proposes a start.
    Start(Box<StartProposal>),
    /// The scheduler proposes that its run is preempted by another job.
    Preempt(Box<PreemptProposal>),
    /// The scheduler proposes that its run, suspended for another job, is resumed.
    GoOn(Box<ResumeProposal>),
    /// Gang scheduling: the scheduler proposes that its run is stopped until its turn comes, or that its turn has come.
    Turn(TurnProposal),
    /// A node's owner answered a run that wants its CPUs back.
    Unparked {
        /// The attempt.
        attempt: u64,
        /// Node.
        node: String,
        /// It has them.
        granted: bool,
    },
    /// The scheduler considered the job and does not start it.
    Considered {
        /// Why.
        reason: Reason,
        /// Expected start.
        expected: Option<Timestamp>,
    },
    /// The scheduler calculated its priority.
    Priority(u32),
    /// The scheduler decided since when it gains priority by age.
    Accrues {
        /// Since when.
        accrual: Accrual,
        /// The reset by hand that the decision knows of, as the job shows it. After another one it does not hold.
        reset: Option<Timestamp>,
        /// Of an array: this is for so many of its waiting tasks, which become jobs of their own. `None`: for all.
        tasks: Option<u32>,
    },
    /// A node's owner answered.
    Reserved {
        /// The attempt.
        attempt: u64,
        /// Node.
        node: String,
        /// The grant, or the refusal.
        result: Result<Grant, ReserveRefusal>,
    },
    /// An agent registered that does not have the run: a node that was powered up for it is ready now.
    NodeReady {
        /// Node.
        node: String,
        /// Run.
        sluid: Sluid,
        /// QUIC address of the agent.
        address: String,
    },
    /// The account of licenses answered.
    LicensesReserved {
        /// The attempt.
        attempt: u64,
        /// The job has them.
        granted: bool,
    },
    /// An agent reported about a run.
    Report {
        /// Node.
        node: String,
        /// Number for the acknowledgement.
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
        /// The policy that it uses when it is cut off; `None`: it is of an earlier version.
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
    /// Another job needs to know this one's state, now and on every change; or an array's task that is over asks whether its end
    /// is noted.
    Subscribe {
        /// The other job.
        by: JobId,
    },
    /// From an array's record to itself: it tells those who asked for news. By then it has heard of what else its tasks told.
    TellWatchers,
    /// State of a job that this one depends on, or of its array; `None`: that job is unknown.
    Fact {
        /// The other job.
        job: JobId,
        /// Its state.
        fact: Option<Arc<JobFact>>,
    },
    /// Earlier jobs of the same name and user that are not over, for `singleton`.
    Siblings {
        /// The jobs.
        jobs: Vec<JobId>,
    },
    /// Answer when it has reached a milestone.
    Wait {
        /// Request.
        request: u64,
        /// The milestone.
        until: JobMilestone,
    },
    /// Its reservation has ended: the run ends then at the latest. From the owner of reservations.
    LeaveBy(Timestamp),
    /// It has reached a limit of minutes of accounting: that run ends. From the scheduler, which may say so again.
    OverLimit {
        /// Run.
        sluid: Sluid,
        /// Which limit.
        reason: Reason,
    },
    /// These reservations are over: it waits for them no longer. From the owner of reservations.
    ReservationsGone(BTreeSet<String>),
    /// It does not belong to a crontab any more. From the owner of crontabs.
    LeaveCrontab,
    /// Answer with its script.
    Script {
        /// Request.
        request: u64,
    },
    /// Answer with the address of its step manager, once it is ready or never will be.
    Locate {
        /// Request.
        request: u64,
    },
    /// A timer ran out.
    Timer(JobTimer),
    /// The site's settings changed.
    Site(Arc<JobSite>),
    /// A program of the site that the controller ran for a run has ended.
    ScriptEnded {
        /// Run.
        sluid: Sluid,
        /// Which.
        script: Script,
        /// What was wrong.
        result: Result<(), String>,
    },
    /// From another component of the same heterogeneous job.
    Het {
        /// Which.
        from: JobId,
        /// What.
        message: Box<HetMessage>,
    },
}

/// A job's answers to requests.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAnswer {
    /// To a command; also to any request if this controller is not the leader.
    Done(Result<(), Refusal>),
    /// It has reached the milestone.
    Reached(Arc<JobView>),
    /// Its script.
    Script(Option<ByteBuf>),
    /// The address of its step manager.
    Place(Result<StepManagerPlace, Refusal>),
}

/// The frontend's questions to a job's owner. Answers are sent when what they promise is on disk; all may be asked twice.
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
    /// Answer when it has reached a milestone: [`JobAnswer::Reached`].
    Wait(JobMilestone),
    /// Its script: [`JobAnswer::Script`].
    Script,
    /// The address of its step manager, once it is ready: [`JobAnswer::Place`].
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
            Self::Accrues { .. } => "Accrues",
            Self::GoOn(_) => "GoOn",
            Self::Turn(_) => "Turn",
            Self::Unparked { .. } => "Unparked",
            Self::Reserved { .. } => "Reserved",
            Self::LicensesReserved { .. } => "LicensesReserved",
            Self::Report { report, .. } => report_name(report),
            Self::NodeReady { .. } => "NodeReady",
            Self::RunHeld { .. } => "RunHeld",
            Self::RunMissing { .. } => "RunMissing",
            Self::NodeLost { .. } => "NodeLost",
            Self::Command { .. } => "Command",
            Self::Subscribe { .. } => "Subscribe",
            Self::TellWatchers => "TellWatchers",
            Self::Fact { .. } => "Fact",
            Self::Siblings { .. } => "Siblings",
            Self::Wait { .. } => "Wait",
            Self::LeaveBy(_) => "LeaveBy",
            Self::OverLimit { .. } => "OverLimit",
            Self::ReservationsGone(_) => "ReservationsGone",
            Self::LeaveCrontab => "LeaveCrontab",
            Self::Script { .. } => "Script",
            Self::Locate { .. } => "Locate",
            Self::Timer(_) => "Timer",
            Self::Site(_) => "Site",
            Self::ScriptEnded { .. } => "ScriptEnded",
        }
    }
}
