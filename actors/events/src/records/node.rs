//! What lasts of a node beyond its configuration: what administrators and the controller decided about it. Which jobs
//! hold what is not saved here; the jobs' own records say that.

use garrick_model::view::NodeReason;
use serde::{Deserialize, Serialize};

/// Why a node is DOWN: decides whether it may come back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DownCause {
    /// An administrator, or the configuration file, said so.
    Admin,
    /// It did not respond.
    Silence,
    /// It was started anew without anybody asking for that.
    Reboot,
}

/// The saved part of a node. An event is the whole of it, so that the last one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedNode {
    /// DOWN.
    #[serde(default)]
    pub down: Option<DownCause>,
    /// DRAIN.
    #[serde(default)]
    pub drain: bool,
    /// Why.
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
    /// What it says of itself to jobs with `--extra`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    /// The boot of the machine at its last registration.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// What was wrong with its last registration: the reason goes when that is no longer so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
}
