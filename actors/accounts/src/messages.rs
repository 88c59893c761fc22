//! Messages between the controller, the service of accounting, and commands.
//!
//! The controller connects to the service, says [`Feed::Hello`], and gets [`Kept::Welcome`]. If the service has nothing of this log,
//! the controller says where it begins ([`Feed::Begin`]): at the oldest event that was kept for accounting. Then come the events
//! after that ([`Feed::Batch`]). The service stores each batch and its position in one transaction and answers [`Kept::Stored`]: so
//! every event counts once, whatever is killed.
//!
//! Events of jobs that were submitted before the log's beginning do not say what these jobs are. So when the service has all events
//! up to some position, the controller once sends all jobs as of that position ([`Feed::Snapshot`]).

use crate::{
    change::{Applied, Change, ChangeRefusal, Transaction},
    event::{EventQuestion, EventRow},
    filter::JobFilter,
    parts::EntitiesPart,
    records::{RecordsReply, RecordsRequest},
    reservation::{ReservationQuestion, ReservationRow},
    row::JobRow,
    step::StepRecord,
    usage::{UsageKey, UsageQuestion, UsageRow},
};
use garrick_events::{event::ControllerEvent, progress::Position, records::job::JobRecord};
use garrick_model::{
    ids::{Sluid, StepKey},
    messages::command::Caller,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

/// Identity of a controller's log: random, new where the positions of another log mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogId(pub u64, pub u64);

/// What a cluster has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// Address and port of its controller.
    pub control: Option<(String, u16)>,
    /// Its nodes, as a host list.
    pub nodes: String,
    /// Amounts by the name of a TRES (`cpu`, `mem` in MiB, `node`, `gres/gpu`, `license/matlab`).
    pub tres: BTreeMap<String, u64>,
}

/// Controller to service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Feed {
    /// First on a connection. Answered by [`Kept::Welcome`] or [`Kept::Refused`].
    Hello {
        /// `ClusterName`.
        cluster: String,
        /// Its log.
        log: LogId,
        /// What the cluster has. With it, the controller is sent [`Kept::Entities`].
        #[serde(default)]
        inventory: Option<Inventory>,
    },
    /// What the cluster has now. Not answered.
    Inventory(Inventory),
    /// What is stored of this log begins after that position. Answered by [`Kept::Stored`].
    Begin(Position),
    /// A part of all jobs as of the position that is stored. Parts follow each other. The last one is answered by [`Kept::Stored`].
    Snapshot {
        /// The position.
        position: Position,
        /// Jobs.
        jobs: Vec<JobRecord>,
        /// It is the last part.
        last: bool,
    },
    /// Events of jobs, their steps, nodes and reservations, in order. Answered by [`Kept::Stored`].
    Batch {
        /// Position after which they come: the last that is stored.
        after: Position,
        /// Position of the last event of the log that is in it or was left out as accounting does not need it.
        upto: Position,
        /// Events.
        events: Vec<ControllerEvent>,
        /// What the nodes have that the events are about: amounts by the name of a TRES.
        #[serde(default)]
        nodes: BTreeMap<String, BTreeMap<String, u64>>,
        /// No jobs are recorded any more (`AccountingStorageEnforce=nojobs`): only what becomes of those that are is.
        #[serde(default)]
        no_new_jobs: bool,
        /// Names of all reservations that there are, where some of the log was left out: others have been deleted.
        #[serde(default)]
        reservations: Option<Vec<String>>,
    },
}

/// Service to controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kept {
    /// It knows the cluster's log up to a position.
    Welcome {
        /// The position; `None`: it knows nothing of this log.
        stored: Option<Position>,
        /// It has had all jobs that were there before the log's beginning.
        whole: bool,
    },
    /// Everything up to there is stored and survives any crash.
    Stored(Position),
    /// A part of the entities of the controller's cluster, whenever they changed and once after the greeting. Not an answer.
    Entities(EntitiesPart),
    /// It does not take it; the connection ends.
    Refused(String),
    /// It cannot use its database now; the connection ends. An earlier controller takes it for a connection that broke.
    NoDatabase(String),
    /// It works on what it was sent last, which takes a while. The answer follows.
    Working,
}

/// First frame of a command's conversation that a controller passes on to a service on another host; then come
/// [`AccountsRequest`]s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOn {
    /// Who asks.
    pub caller: Caller,
    /// His name on the controller's host: the number has to be of the same user on the service's, where that knows it.
    pub user: Option<String>,
    /// A host vouches for him that the site does not trust with more than ordinary users
    /// ([`AccountsRequest::OnBehalfOfOrdinary`]).
    pub ordinary: bool,
}

/// A question to the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AccountsRequest {
    /// First from a daemon that speaks for a command: only root, `SlurmUser` and the service's own user are believed. Not answered.
    OnBehalfOf(Caller),
    /// The same, where a host vouches for him that the site does not trust with more than ordinary users: levels and coordinators
    /// of `sacctmgr` do not count.
    OnBehalfOfOrdinary(Caller),
    /// Is it there? Answered by [`AccountsReply::Here`].
    Ping,
    /// Its configuration. Answered by [`AccountsReply::Config`].
    Config,
    /// Rows of jobs, by job and run. Answered by [`AccountsReply::Jobs`].
    Jobs {
        /// Which.
        filter: Box<JobFilter>,
        /// With their steps.
        steps: bool,
        /// Where the last answer ended.
        after: Option<PageEnd>,
    },
    /// All entities that the user may see. Answered by [`AccountsReply::Entities`] in parts.
    Entities,
    /// Changes entities. Answered by [`AccountsReply::Changed`] or [`AccountsReply::NotChanged`].
    Change {
        /// What.
        change: Box<Change>,
        /// Only if the entities are still of this version: the user decided on what he was shown of it.
        version: Option<u64>,
        /// Only say what would be done.
        only_try: bool,
    },
    /// What was changed by whom, newest last. Answered by [`AccountsReply::Transactions`].
    Transactions {
        /// From then on.
        since: Option<Timestamp>,
        /// Until then.
        until: Option<Timestamp>,
    },
    /// What was used in a window of time, by whom. Answered by [`AccountsReply::Usage`].
    Usage {
        /// What.
        question: Box<UsageQuestion>,
        /// The last line of the last answer.
        after: Option<Box<UsageKey>>,
    },
    /// When nodes were out of service, and what clusters had. Answered by [`AccountsReply::Events`].
    Events {
        /// Which.
        question: Box<EventQuestion>,
        /// Where the last answer ended.
        after: Option<i64>,
    },
    /// What is kept of reservations. Answered by [`AccountsReply::Reservations`].
    Reservations {
        /// Which.
        question: Box<ReservationQuestion>,
        /// Where the last answer ended.
        after: Option<i64>,
    },
    /// Batch script of a run (`AccountingStoreFlags=job_script`). Answered by [`AccountsReply::Text`].
    Script(Sluid),
    /// Environment of a run (`AccountingStoreFlags=job_env`). Answered by [`AccountsReply::Text`].
    Environment(Sluid),
    /// Changes records of jobs. Answered by [`AccountsReply::Records`].
    Records(RecordsRequest),
    /// How long questions took so far. Answered by [`AccountsReply::Statistics`].
    Statistics,
    /// Something that the service itself is to do. Answered by [`AccountsReply::Done`].
    Order(ServiceOrder),
}

/// What the service itself can be told to do. May come twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceOrder {
    /// Read its configuration again (`sacctmgr reconfigure`).
    Reconfigure,
    /// End (`sacctmgr shutdown`).
    Shutdown,
    /// Begin to count anew how long questions take (`sacctmgr clear stats`).
    ClearStatistics,
}

/// What the service has done since it started (`sacctmgr show stats`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// When it started.
    pub since: Timestamp,
    /// By the name of a kind of question or message.
    pub kinds: BTreeMap<String, Took>,
    /// By uid.
    pub users: BTreeMap<u32, Took>,
}

/// Users that are counted by themselves.
const MOST_USERS: usize = 10_000;

/// How often something was done, and how long that took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Took {
    /// How often.
    pub count: u64,
    /// Microseconds, together.
    pub micros: u64,
}

impl Statistics {
    /// Notes one more.
    pub fn note(&mut self, kind: &str, uid: u32, micros: u64) {
        if !self.kinds.contains_key(kind) {
            self.kinds.insert(kind.to_owned(), Took::default());
        }
        // Hosts say for whom they ask: no more users than a cluster has.
        let is_counted = self.users.len() < MOST_USERS || self.users.contains_key(&uid);
        let of_user = is_counted.then(|| self.users.entry(uid).or_default());
        for took in self.kinds.get_mut(kind).into_iter().chain(of_user) {
            took.count = took.count.saturating_add(1);
            took.micros = took.micros.saturating_add(micros);
        }
    }
}

impl AccountsRequest {
    /// The name of its kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::OnBehalfOf(_) | Self::OnBehalfOfOrdinary(_) => "OnBehalfOf",
            Self::Ping => "Ping",
            Self::Config => "Config",
            Self::Jobs { .. } => "Jobs",
            Self::Entities => "Entities",
            Self::Change { .. } => "Change",
            Self::Transactions { .. } => "Transactions",
            Self::Usage { .. } => "Usage",
            Self::Events { .. } => "Events",
            Self::Reservations { .. } => "Reservations",
            Self::Script(_) => "Script",
            Self::Environment(_) => "Environment",
            Self::Records(RecordsRequest::Modify { .. }) => "ModifyJobs",
            Self::Records(RecordsRequest::Repair { .. }) => "RepairJobs",
            Self::Records(RecordsRequest::Purge(_)) => "ArchiveDump",
            Self::Records(RecordsRequest::Load { .. }) => "ArchiveLoad",
            Self::Statistics => "Statistics",
            Self::Order(_) => "Order",
        }
    }
}

/// Where an answer ended. Given back as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageEnd {
    /// Cluster of the last row.
    pub cluster: String,
    /// Its job.
    pub job: u32,
    /// Its run.
    pub sluid: Sluid,
    /// Its last step, where more are to come: the next answer begins with the same row.
    #[serde(default)]
    pub step: Option<StepKey>,
}

/// A run with its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobWithSteps {
    /// The run.
    pub row: JobRow,
    /// Its steps: batch, extern and interactive first, then by number. After a [`PageEnd::step`], only the rest.
    pub steps: Vec<StepRecord>,
}

/// An answer of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AccountsReply {
    /// It is there.
    Here {
        /// Its version.
        version: String,
        /// Its host.
        host: String,
        /// It is that of `DbdBackupHost`.
        #[serde(default)]
        backup: bool,
    },
    /// Names and values, as `sacctmgr show config` prints them.
    Config(Vec<(String, String)>),
    /// Rows.
    Jobs {
        /// Rows, at most some hundred KiB.
        jobs: Vec<JobWithSteps>,
        /// Set when there is more.
        next: Option<PageEnd>,
        /// When it was answered, by the service's clock: for elapsed times of jobs that run.
        at: Timestamp,
    },
    /// Entities.
    Entities(EntitiesPart),
    /// It was changed, or would be.
    Changed {
        /// What was done.
        applied: Applied,
        /// The version of the entities that it was applied to.
        version: u64,
    },
    /// It was not changed.
    NotChanged(ChangeRefusal),
    /// The order is carried out.
    Done,
    /// What was used.
    Usage {
        /// Lines, ordered by whose it is; at most some thousand.
        rows: Vec<UsageRow>,
        /// There is more.
        more: bool,
        /// When it was answered, by the service's clock. The next part is asked for with an end that is not later.
        at: Timestamp,
    },
    /// Events, as they began; at most some hundred.
    Events {
        /// Rows.
        rows: Vec<EventRow>,
        /// Set when there may be more.
        next: Option<i64>,
    },
    /// Reservations, as they were made; at most some hundred.
    Reservations {
        /// Rows.
        rows: Vec<ReservationRow>,
        /// Set when there may be more.
        next: Option<i64>,
    },
    /// Transactions.
    Transactions(Vec<Transaction>),
    /// A script or an environment; `None`: nothing is kept of that run.
    Text(Option<ByteBuf>),
    /// What was done with records.
    Records(RecordsReply),
    /// How long questions took.
    Statistics(Box<Statistics>),
    /// It was not answered.
    Refused(AccountsRefusal),
    /// It is worked on, which takes a while. The answer follows.
    Working,
}

/// Why a question was not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccountsRefusal {
    /// There is no accounting here: `AccountingStorageType` is none.
    Off,
    /// The service cannot be reached now.
    Away(String),
    /// The user may not.
    Denied,
    /// Too many questions at a time.
    Busy,
    /// The question is wrong.
    Invalid(String),
    /// The database failed.
    Failed(String),
}
