//! Durable state of a node beyond its configuration: what administrators and the controller decided about it. The jobs on a node
//! are not saved here but in the jobs' own records.

use garrick_model::{
    ids::Sluid,
    state::{NodePower, PowerRequest},
    time::Timestamp,
    view::{AfterReboot, NodeReason},
};
use serde::{Deserialize, Serialize};

/// Why a node is DOWN. This decides whether it may come back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DownCause {
    /// An administrator, or the configuration file, said so.
    Admin,
    /// It did not respond.
    Silence,
    /// It was rebooted without a request.
    Reboot,
    /// It was powered up and did not come in time.
    Resume,
}

/// Whether a node is on, and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPower {
    /// Whether it is on.
    pub state: NodePower,
    /// Since when.
    pub since: Timestamp,
    /// What that is to become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<PowerRequest>,
}

/// Whether a node can be used at all, and since when: accounts are kept of it (sacctmgr(1), events).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedService {
    /// It is DOWN, or DRAIN or FAIL and has no jobs any more.
    pub out: bool,
    /// Since when it is so, or out of service in that way.
    pub since: Timestamp,
}

/// The saved part of a node. An event contains all of it, so that the last one is valid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedNode {
    /// DOWN.
    #[serde(default)]
    pub down: Option<DownCause>,
    /// DRAIN.
    #[serde(default)]
    pub drain: bool,
    /// FAIL.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail: bool,
    /// Reason.
    #[serde(default)]
    pub reason: Option<NodeReason>,
    /// Weight set by an administrator.
    #[serde(default)]
    pub weight: Option<u32>,
    /// Active features set by an administrator.
    #[serde(default)]
    pub features: Option<Vec<String>>,
    /// Comment.
    #[serde(default)]
    pub comment: Option<String>,
    /// The node's `Extra` data, with which `--extra` of jobs is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    /// Boot id of the machine at its last registration.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// What was wrong with its last registration: the node's reason is removed when that is no longer so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// Whether it is on. `None`: as it was configured, and nothing has happened since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<SavedPower>,
    /// `NodeAddr` that an administrator set, or from which a cloud node registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// `NodeHostname` that an administrator set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// It is to be rebooted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<Reboot>,
    /// The last run that it was rebooted for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebooted_for: Option<Sluid>,
    /// `ResumeAfter`: when it is back in service without anybody's asking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_at: Option<Timestamp>,
    /// `InstanceId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// `InstanceType`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Whether it is out of service. `None`: it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<SavedService>,
}

impl SavedNode {
    /// Does it get nothing new, as an administrator wants?
    pub const fn is_held_back(&self) -> bool {
        self.drain || self.fail
    }

    /// Is it out of service, as far as that was recorded?
    pub fn is_out(&self) -> bool {
        self.service.is_some_and(|service| service.out)
    }
}

/// A reboot that an administrator or a job asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reboot {
    /// Nothing new starts there before: the node is drained for it.
    #[serde(default)]
    pub asap: bool,
    /// What follows; `None`: it is in service, unless it was drained otherwise.
    #[serde(default)]
    pub next: Option<AfterReboot>,
    /// When the node was told to; until then it waits for the ends of its jobs.
    #[serde(default)]
    pub issued: Option<Timestamp>,
    /// The run that it is done for (`--reboot`), which begins when the node is back; `None`: an administrator asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Sluid>,
}
