//! What is recorded of a run's steps. The daemon of the run's batch host reads it from the run's own journal, while the job
//! runs and after it, and neither the controller nor the step manager has a part in it.

use crate::{
    ids::{ArrayTask, JobId, Sluid, StepKey},
    refusal::Refusal,
    spec::{EnvEntry, StepSpec},
    state::{ExitStatus, JobState, Reason, StepState},
    step_selector::WhichSteps,
    time::{TimeLimit, Timestamp},
    usage::TaskUsage,
    view::StepCounts,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// A run whose steps are recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRun {
    /// Job.
    pub job: JobId,
    /// Run.
    pub sluid: Sluid,
    /// The batch host, whose daemon has the records.
    pub node: String,
    /// Owner.
    pub uid: u32,
    /// Owner's name.
    pub user: String,
    /// The job's name.
    pub name: String,
    /// The job's working directory.
    pub work_dir: String,
    /// The task of a job array that it is.
    pub array: Option<ArrayTask>,
    /// Its nodes, in the job's order.
    pub nodes: Vec<String>,
    /// Its CPUs on all of them.
    pub cpus: u32,
    /// Its partition.
    #[serde(default)]
    pub partition: String,
    /// When the run began.
    pub start: Timestamp,
    /// When its records were closed; `None`: it is not over.
    #[serde(default)]
    pub end: Option<Timestamp>,
}

/// Which steps are wanted, and how much of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedRecords {
    /// These; all when there are none.
    pub which: Vec<WhichSteps>,
    /// In one of these states; in any when there are none.
    pub states: Vec<StepState>,
    /// Earlier tries as well.
    pub tries: bool,
    /// Commands and files of output.
    pub texts: bool,
    /// Before the steps of a batch what it is made of, so that they can be run again.
    pub batches: bool,
    /// Of specs of a batch that share their environment it is told with the first alone: an empty one is that of the spec told
    /// before of the same batch.
    #[serde(default)]
    pub share_environments: bool,
}

/// What a command asks of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordsRequest {
    /// The records of a run, please. Answered by `Run`, then what is wanted, then `Over`; or by `Refused`.
    Read {
        /// Job; [`JobId::OF_A_RUN`]: whosever run it is.
        job: JobId,
        /// This run of it; else the newest that is recorded there.
        run: Option<Sluid>,
        /// With [`JobId::OF_A_RUN`] and no run: this task of a job array.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<ArrayTask>,
        /// What of it.
        wanted: WantedRecords,
    },
    /// The same, and then what will become of its steps: told are steps that are over, not those that run or wait. Answered by
    /// `Run`, what is wanted so far, and `SoFar`; or by `Refused`.
    Follow {
        /// Job, as of `Read`.
        job: JobId,
        /// Run.
        run: Option<Sluid>,
        /// Task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<ArrayTask>,
        /// What of it.
        wanted: WantedRecords,
    },
    /// After `SoFar`: what has been recorded since. Answered by what is wanted of that, and `SoFar`.
    More,
}

/// Names that a request may have: each is compared with every step.
const MOST_NAMES: usize = 1000;

impl WantedRecords {
    /// Not more than a daemon compares with every step.
    pub fn is_bounded(&self) -> bool {
        let ranges: usize = self.which.iter().map(WhichSteps::ranges).sum();
        self.states.len() <= MOST_NAMES && ranges <= MOST_NAMES
    }
}

/// What steps that were handed over together have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedOrigin {
    /// Name.
    pub name: String,
    /// Program and arguments, unless each step has its own.
    pub argv: Vec<ByteBuf>,
    /// The command line that handed them over.
    pub submit_line: String,
    /// Tasks of each.
    pub tasks: u32,
    /// Limit of each.
    pub time_limit: TimeLimit,
    /// Host and pid of the `srun`.
    #[serde(default)]
    pub srun: Option<(String, u32)>,
    /// First number of their batch and index of their spec in it; none of steps that an `srun` stayed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<(u32, u32)>,
    /// They were run again for steps of that job, handed over from this number on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_of: Option<(JobId, u32)>,
}

impl RecordedOrigin {
    /// Of steps of which no more than a name is known.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            argv: Vec::new(),
            submit_line: String::new(),
            tasks: 1,
            time_limit: TimeLimit::Unlimited,
            srun: None,
            batch: None,
            again_of: None,
        }
    }
}

/// One step, or one of its tries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedStep {
    /// Which.
    pub key: StepKey,
    /// It stands for all of these, which never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_of: Option<WhichSteps>,
    /// Index of its origin among those of the message.
    pub origin: u32,
    /// State. Of an earlier try that in which the try ended.
    pub state: StepState,
    /// Tries before this one.
    #[serde(default)]
    pub attempt: u32,
    /// Another try followed.
    #[serde(default)]
    pub again: bool,
    /// Indices of its nodes among the run's.
    #[serde(default)]
    pub slots: Vec<u32>,
    /// CPUs on all of them.
    #[serde(default)]
    pub cpus: u32,
    /// When it was handed over; not of steps that an `srun` stayed with.
    #[serde(default)]
    pub queued: Option<Timestamp>,
    /// Start of this try.
    #[serde(default)]
    pub start: Option<Timestamp>,
    /// Its end.
    #[serde(default)]
    pub end: Option<Timestamp>,
    /// Exit status.
    pub exit: ExitStatus,
    /// What its tasks used.
    #[serde(default)]
    pub usage: TaskUsage,
    /// Why it ended as it did, where exit status and state do not say it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The same in the word that other commands show, where there is one.
    #[serde(default, skip_serializing_if = "Reason::is_none")]
    pub word: Reason,
    /// Number of the line in its list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Its own program and arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<ByteBuf>,
    /// Its parameters, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub values: String,
    /// A name of its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub own_name: String,
    /// Variables of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<EnvEntry>,
    /// Number of the step of a list that it is run again for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_number: Option<u32>,
    /// Where its standard output is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

impl RecordedStep {
    /// Time from its start to its end, or to `now` while it runs; milliseconds.
    pub fn elapsed_ms(&self, now: Timestamp) -> Option<u64> {
        let start = self.start?;
        u64::try_from(self.end.unwrap_or(now).0.saturating_sub(start.0)).ok()
    }
}

/// What steps of a batch are made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedBatch {
    /// The batch's first number.
    pub first: u32,
    /// It is an array.
    pub array: bool,
    /// So many of its tasks run at a time.
    #[serde(default)]
    pub limit: Option<u32>,
    /// Index of the spec.
    pub spec: u32,
    /// What was asked for, the environment included.
    pub made_of: Arc<StepSpec>,
}

/// What the daemon says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordsReply {
    /// Nothing of it is told.
    Refused(Refusal),
    /// First: which run it is.
    Run(RecordedRun),
    /// A batch of which steps follow.
    Batch(Box<RecordedBatch>),
    /// Steps: those that are over in the order of their ends, then those that run, then those that wait.
    Steps {
        /// What they have in common.
        origins: Vec<RecordedOrigin>,
        /// They.
        steps: Vec<RecordedStep>,
    },
    /// Answer to `Follow` and `More`: nothing more is recorded now.
    SoFar {
        /// Of all steps with a number, whether they are wanted or not.
        counts: StepCounts,
        /// What is wrong with the records: what stands behind it is not read.
        damage: Option<String>,
    },
    /// Nothing follows.
    Over {
        /// State and reason that the run came to an end with, once it was told to end.
        ending: Option<(JobState, Reason)>,
        /// What is wrong with the records: what stands behind it is missing.
        damage: Option<String>,
    },
}

/// Where a run's records are, as the controller knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsPlace {
    /// Job.
    pub job: JobId,
    /// Run.
    pub sluid: Sluid,
    /// Node.
    pub node: String,
    /// Address of its agent, `host:port`; empty where the controller does not know it.
    pub address: String,
}
