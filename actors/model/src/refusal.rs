//! Why a request was declined, as data. One table in `tools/` turns these into Slurm's wording and exit codes.

use crate::ids::JobId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A declined request. [`std::fmt::Display`] gives Slurm's sentence (`Invalid job id specified`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// No such job (or no longer known).
    #[error("Invalid job id specified")]
    InvalidJobId,
    /// The caller may not do that.
    #[error("Access/permission denied")]
    AccessDenied,
    /// A token that does not hold: it is of another key, has run out, or its user is not known.
    #[error("Protocol authentication error")]
    NotAuthenticated,
    /// There are no tokens on this cluster (`AuthAltTypes`).
    #[error("Required plugin type not loaded or initialized")]
    NoTokens,
    /// A daemon on a host that is not trusted spoke for root or SlurmUser.
    #[error("Access/permission denied")]
    HostNotTrusted {
        /// The host.
        host: String,
    },
    /// No such partition.
    #[error("Invalid partition name specified")]
    InvalidPartition(String),
    /// None was named, and none is the default.
    #[error("No partition specified or system default partition")]
    NoPartition,
    /// No such node.
    #[error("Invalid node name specified")]
    InvalidNode(String),
    /// No node or set of nodes could ever satisfy it. The detail is printed on its own line before.
    #[error("Requested node configuration is not available")]
    NodeConfigUnavailable {
        /// For example `Memory specification can not be satisfied`.
        detail: Option<String>,
    },
    /// More CPUs than its partition has, where partitions' limits are enforced.
    #[error("More processors requested than permitted")]
    TooManyCpus,
    /// `--nodes`/`--ntasks` contradict each other or are zero.
    #[error("Node count specification invalid")]
    BadNodeCount,
    /// Above the partition's MaxTime with EnforcePartLimits.
    #[error("Requested time limit is invalid (missing or exceeds some limit)")]
    InvalidTimeLimit,
    /// Malformed or impossible dependency.
    #[error("Job dependency problem")]
    Dependency,
    /// Malformed array specification or above MaxArraySize.
    #[error("Invalid job array specification")]
    InvalidArray,
    /// `-C` names a feature that no node has, or is malformed.
    #[error("Invalid feature specification")]
    InvalidFeature(String),
    /// The MCS label is none that the job may have, or it has to have one and there is none.
    #[error("Invalid mcs_label specified")]
    InvalidMcsLabel(Option<String>),
    /// `-L` names a license that is not there, or more than there are, or is malformed.
    #[error("Invalid license specification")]
    InvalidLicense(String),
    /// `--gres` names what is not in GresTypes, or is malformed or contradicts itself.
    #[error("Invalid generic resource (gres) specification")]
    InvalidGres(String),
    /// A trackable resource that is none, or cannot be asked for so.
    #[error("Invalid Trackable RESource (TRES) specification")]
    InvalidTres,
    /// No script, or not a script.
    #[error("Batch script is invalid: {0}")]
    InvalidScript(String),
    /// The partition is DOWN or INACTIVE and cannot be submitted to.
    #[error("Required partition not available (inactive or drain)")]
    PartitionUnavailable,
    /// Nodes that it needs are down, drained or reserved, with no end in sight.
    #[error("Required node not available (down, drained or reserved)")]
    NodesUnavailable,
    /// The user's groups are not allowed in the partition.
    #[error("User's group not permitted to use this partition")]
    GroupNotPermitted,
    /// The partition does not take jobs of that account.
    #[error("Invalid account or account/partition combination specified")]
    InvalidAccount(Option<String>),
    /// A limit of its association or QOS does not allow it, or as many jobs.
    #[error("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)")]
    AccountingPolicy,
    /// The user has no such workload characterization key.
    #[error("Invalid wckey specification")]
    InvalidWcKey(Option<String>),
    /// The partition does not take jobs with that QOS.
    #[error("Invalid qos specification")]
    InvalidQos(Option<String>),
    /// The job is over.
    #[error("Job/step already completing or completed")]
    AlreadyDone,
    /// The job is pending, so has no steps or manager.
    #[error("Job is pending execution")]
    JobPending,
    /// The job is no longer pending.
    #[error("Job is no longer pending execution")]
    JobNotPending,
    /// A change of a running job, of one that waits.
    #[error("Job is not running")]
    JobNotRunning,
    /// Of a heterogeneous job that waits, or to be requeued, only the whole is meant.
    #[error("Only allowed on the whole heterogeneous job, by the id of its leader")]
    NotWholeHetJob,
    /// Requeue is off for this job.
    #[error("Requested operation is presently disabled")]
    Disabled,
    /// `--requeue=expedite` where the site did not enable it.
    #[error(
        "Requested operation not supported on this system: expedited requeue is not enabled \
         (SlurmctldParameters=enable_expedited_requeue)"
    )]
    ExpediteDisabled,
    /// `--nice` below 0 by somebody who is no administrator.
    #[error("Invalid --nice value")]
    InvalidNice,
    /// The job is held.
    #[error("Job is in held state, pending scheduler release")]
    JobHeld,
    /// Unknown step.
    #[error("Job step {0} not found")]
    InvalidStep(String),
    /// A step array where one step is to be named.
    #[error("Job step {array} is a step array: name one of its tasks, for example {task}")]
    StepArray {
        /// What was named.
        array: String,
        /// One of its tasks.
        task: String,
    },
    /// A step asks for more than its job has.
    #[error("Requested node configuration is not available")]
    StepImpossible {
        /// What is too much.
        detail: String,
    },
    /// The job had as many steps as it may have (`MaxStepCount`).
    #[error("Step limit reached for this job")]
    StepLimit,
    /// `--immediate` and no room.
    #[error("Requested nodes are busy")]
    Busy,
    /// A queue is full: try again.
    #[error("Resource temporarily unavailable, retry after {} ms", after.as_millis())]
    RetryAfter {
        /// When to try again.
        after: Duration,
    },
    /// A limit that is named is reached: try again when there is less.
    #[error("Resource temporarily unavailable: {limit}")]
    Full {
        /// Which limit, and how much there is.
        limit: String,
        /// When to try again.
        after: Duration,
    },
    /// The controller cannot be reached from the daemon that was asked.
    #[error("Unable to contact slurm controller (connect failure)")]
    ControllerUnreachable,
    /// The node or step manager that was asked for cannot be reached.
    #[error("Unable to contact {0}: {1}")]
    Unreachable(String, String),
    /// A field of an update is unknown or malformed.
    #[error("{0}")]
    InvalidUpdate(String),
    /// The request is understood but not built yet.
    #[error("{0} is not supported yet")]
    NotSupported(String),
    /// A failure on our side: disk full, journal closed, an actor that died.
    #[error("{0}")]
    Internal(String),
    /// No such reservation.
    #[error("Requested reservation is invalid")]
    InvalidReservation(String),
    /// A reservation that the job's owner or account may not use.
    #[error("Access denied to requested reservation")]
    ReservationAccess(String),
    /// A reservation whose name is taken.
    #[error("Duplicate reservation name")]
    ReservationExists(String),
    /// A reservation to be deleted in which jobs are, or that they wait for.
    #[error("Requested reservation is in use")]
    ReservationBusy(String),
    /// A user who is not there.
    #[error("Invalid user id")]
    InvalidUser(String),
    /// A group that is not there.
    #[error("Invalid group id")]
    InvalidGroup(String),
    /// A time of a reservation that is over, or an end that is not after the begin.
    #[error("Invalid time specified")]
    InvalidTime,
    /// A job that would wait for itself, by way of others or not.
    #[error("Circular job dependency")]
    CircularDependency,
    /// `--test-only` of a job whose dependencies are fulfilled at an unknown time.
    #[error("Job dependency problem: it waits for job {0}, and when that is over is not known")]
    DependencyOpen(JobId),
    /// The same, of its own name (`--dependency=singleton`).
    #[error("Job dependency problem: it waits for jobs of its name, and when they are over is not known")]
    SingletonOpen,
    /// The site's own checks (`JobSubmitPlugins`) do not want it: with this number of [`slurm_error`](crate::slurm_error).
    #[error("{}", crate::slurm_error::text(*number).unwrap_or("Unspecified error"))]
    BySite {
        /// Of the error.
        number: i32,
        /// What the checks have to say, a line each, before.
        said: Vec<String>,
    },
    /// The site's own checks had something to say, and then it was refused for another reason.
    #[error("{refusal}")]
    Said {
        /// A line each.
        lines: Vec<String>,
        /// The reason.
        refusal: Box<Refusal>,
    },
    /// A job of a crontab, which changes with its crontab only.
    #[error("Cannot modify scrontab jobs through scontrol")]
    CronJob,
    /// A job of a crontab is to be cancelled, and the site asks for `scancel --cron` (`ScronParameters=explicit_scancel`).
    #[error("Cannot cancel scrontab jobs without --cron flag.")]
    CronNotConfirmed,
    /// The same trigger is set already.
    #[error("Duplicate event trigger")]
    TriggerExists,
    /// No trigger is meant.
    #[error("No such process")]
    NoTrigger,
    /// A request or a text in it is larger than the cluster takes: what, how large, and how large it may be.
    #[error("{0}")]
    TooLarge(String),
}

impl Refusal {
    /// This, after what the site's own checks have to say.
    #[must_use]
    pub fn after(self, lines: Vec<String>) -> Self {
        if lines.is_empty() { self } else { Self::Said { lines, refusal: Box::new(self) } }
    }
}
