//! Partitions as configured, and the one place where their `Key=Value` pairs are read: from `slurm.conf` and from
//! `scontrol update PartitionName=`.

use super::{billing::BillingWeights, job_defaults::JobDefaults, keys, preempt, row::Class};
use crate::{
    config::syntax::{
        report::{SettingError, dropped, not_yet},
        values::{self, MemoryPer, SelectParameters, Value},
    },
    hostlist::HostList,
    state::PartitionState,
    time::TimeLimit,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A partition as configured, or as updated since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionConfig {
    /// Name.
    pub name: String,
    /// `Nodes`, as written: node names, names of node sets, or `ALL`.
    pub nodes_text: String,
    /// Members, in configuration order.
    pub nodes: HostList,
    /// Node sets (and `ALL`) named in `Nodes`, shown as `NodeSets=`.
    pub node_sets: Vec<String>,
    /// `Default`: for jobs that name no partition.
    pub default: bool,
    /// `State`.
    pub state: PartitionState,
    /// `MaxTime`, default UNLIMITED.
    pub max_time: TimeLimit,
    /// `DefaultTime`; `None`: MaxTime.
    pub default_time: Option<TimeLimit>,
    /// `MinNodes`, default 0.
    pub min_nodes: u32,
    /// `MaxNodes`; `None`: no limit.
    pub max_nodes: Option<u32>,
    /// `MaxCPUsPerNode`: CPUs that this partition's jobs may use together on a node; `None`: no limit.
    pub max_cpus_per_node: Option<u32>,
    /// `MaxCPUsPerSocket`; `None`: no limit.
    pub max_cpus_per_socket: Option<u32>,
    /// `DefMemPerNode`, `DefMemPerCPU`; `None`: the cluster's.
    pub def_memory: Option<MemoryPer>,
    /// `MaxMemPerNode`, `MaxMemPerCPU`; `None`: the cluster's.
    pub max_memory: Option<MemoryPer>,
    /// `OverSubscribe`.
    pub over_subscribe: OverSubscribe,
    /// `ExclusiveUser`: nodes are shared by jobs of one user only.
    pub exclusive_user: bool,
    /// `ExclusiveTopo`
    pub exclusive_topo: bool,
    /// `PriorityTier`, default 1: jobs of a higher tier are considered first.
    pub priority_tier: u16,
    /// `PriorityJobFactor`, default 1.
    pub priority_job_factor: u16,
    /// `AllowGroups`; `None`: all.
    pub allow_groups: Option<Vec<String>>,
    /// `AllowAccounts`; `None`: all.
    pub allow_accounts: Option<Vec<String>>,
    /// `AllowQos`; `None`: all.
    pub allow_qos: Option<Vec<String>>,
    /// `DenyAccounts`
    pub deny_accounts: Vec<String>,
    /// `DenyQos`
    pub deny_qos: Vec<String>,
    /// `AllocNodes`: hosts from which jobs may come, host list form; `None`: all.
    pub alloc_nodes: Option<String>,
    /// `Hidden`: not shown unless asked for.
    pub hidden: bool,
    /// `RootOnly`: only root may submit (for others).
    pub root_only: bool,
    /// `DisableRootJobs`; `None`: the cluster's.
    pub disable_root_jobs: Option<bool>,
    /// `LLN`: least loaded nodes first.
    pub least_loaded: bool,
    /// `GraceTime`, seconds, default 0.
    pub grace_secs: u32,
    /// `PreemptMode`, in Slurm's words; `None`: the cluster's.
    pub preempt_mode: Option<String>,
    /// `OverTimeLimit`, minutes beyond a job's limit; `None`: the cluster's.
    pub over_time_limit: Option<OverTime>,
    /// `QOS`
    pub qos: Option<String>,
    /// `ReqResv`
    pub require_reservation: bool,
    /// `SelectTypeParameters`; `None`: the cluster's.
    pub select: Option<SelectParameters>,
    /// `TRESBillingWeights`, as written.
    pub billing_weights: Option<String>,
    /// `Alternate`
    pub alternate: Option<String>,
    /// `CpuBind`
    pub cpu_bind: Option<String>,
    /// `DefCpuPerGPU`, `DefMemPerGPU`, as `JobDefaults=` shows them; [`Self::job_defaults`] has the numbers.
    pub job_defaults: Vec<String>,
    /// `PowerDownOnIdle`
    pub power_down_on_idle: bool,
    /// `SuspendTime`, as written.
    pub suspend_time: Option<String>,
    /// `SuspendTimeout`, as written.
    pub suspend_timeout: Option<String>,
    /// `ResumeTimeout`, as written.
    pub resume_timeout: Option<String>,
    /// `Topology`
    pub topology: Option<String>,
}

impl Default for PartitionConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            nodes_text: String::new(),
            nodes: HostList::new(),
            node_sets: Vec::new(),
            default: false,
            state: PartitionState::Up,
            max_time: TimeLimit::Unlimited,
            default_time: None,
            min_nodes: 0,
            max_nodes: None,
            max_cpus_per_node: None,
            max_cpus_per_socket: None,
            def_memory: None,
            max_memory: None,
            over_subscribe: OverSubscribe::No,
            exclusive_user: false,
            exclusive_topo: false,
            priority_tier: 1,
            priority_job_factor: 1,
            allow_groups: None,
            allow_accounts: None,
            allow_qos: None,
            deny_accounts: Vec::new(),
            deny_qos: Vec::new(),
            alloc_nodes: None,
            hidden: false,
            root_only: false,
            disable_root_jobs: None,
            least_loaded: false,
            grace_secs: 0,
            preempt_mode: None,
            over_time_limit: None,
            qos: None,
            require_reservation: false,
            select: None,
            billing_weights: None,
            alternate: None,
            cpu_bind: None,
            job_defaults: Vec::new(),
            power_down_on_idle: false,
            suspend_time: None,
            suspend_timeout: None,
            resume_timeout: None,
            topology: None,
        }
    }
}

/// `OverSubscribe`. Numbers are jobs per resource, 4 unless given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OverSubscribe {
    /// `NO`: jobs get resources of their own.
    #[default]
    No,
    /// `EXCLUSIVE`: jobs get whole nodes.
    Exclusive,
    /// `YES:n`: jobs that ask for it share.
    Yes(u16),
    /// `FORCE:n`: all jobs share.
    Force(u16),
}

const SHARES_DEFAULT: u16 = 4;

impl OverSubscribe {
    fn parse(text: &str) -> Value<Self> {
        let (word, count) = text.split_once(':').map_or((text, None), |(word, count)| (word, Some(count)));
        let shares = count.map_or(Ok(SHARES_DEFAULT), |count| values::number(count, 1, 32_767))?;
        match (values::choice(word, &["NO", "YES", "FORCE", "EXCLUSIVE"])?, count) {
            ("YES", _) => Ok(Self::Yes(shares)),
            ("FORCE", _) => Ok(Self::Force(shares)),
            (_, Some(_)) => Err(SettingError::new(format!("\"{text}\": only YES and FORCE take a number"))),
            ("EXCLUSIVE", None) => Ok(Self::Exclusive),
            _ => Ok(Self::No),
        }
    }
}

impl fmt::Display for OverSubscribe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No => f.pad("NO"),
            Self::Exclusive => f.pad("EXCLUSIVE"),
            Self::Yes(n) => f.pad(&format!("YES:{n}")),
            Self::Force(n) => f.pad(&format!("FORCE:{n}")),
        }
    }
}

/// `OverTimeLimit`: how long a job may outlive its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OverTime {
    /// This many minutes.
    Minutes(u32),
    /// For ever.
    Unlimited,
}

impl Default for OverTime {
    fn default() -> Self {
        Self::Minutes(0)
    }
}

impl OverTime {
    pub(in crate::config) fn parse(text: &str) -> Value<Self> {
        let minutes = values::number_or_unlimited(text, 0, 65_533)?;
        Ok(minutes.map_or(Self::Unlimited, Self::Minutes))
    }

    /// Minutes; `None`: for ever.
    pub fn minutes(self) -> Option<u64> {
        match self {
            Self::Minutes(minutes) => Some(minutes.into()),
            Self::Unlimited => None,
        }
    }
}

impl PartitionConfig {
    /// A partition with Slurm's defaults.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets a field from a `Key=Value` pair of `slurm.conf` or of an update. `Ok(Some(..))`: accepted, but without (full)
    /// effect, and why. `Nodes` only changes [`Self::nodes_text`]: resolve it with the cluster's nodes afterwards
    /// ([`crate::config::Config::resolve_nodes`]).
    pub fn set(&mut self, key: &str, value: &str) -> Result<Option<SettingError>, SettingError> {
        let Some(known) = keys::find(keys::PARTITION, key) else {
            let wrong = SettingError::new(format!("unknown key {key}"));
            return Err(match keys::meant(keys::PARTITION, key) {
                Some(name) => wrong.suggest(format!("did you mean {name}?")),
                None => wrong,
            });
        };
        let yes_no = values::yes_no;
        let limit = |text: &str| values::number_or_unlimited(text, 0, u32::MAX - 3);
        let secs = |text: &str| values::number_or_unlimited(text, 0, 65_533u32).map(|_| Some(text.to_owned()));
        match known.name {
            "PartitionName" => {}
            "AllocNodes" => self.alloc_nodes = host_text(value)?,
            "AllowAccounts" => self.allow_accounts = values::list_or_all(value),
            "AllowGroups" => self.allow_groups = values::list_or_all(value),
            "AllowQos" => self.allow_qos = values::list_or_all(value),
            "Alternate" => self.alternate = values::optional(value),
            "CpuBind" => self.cpu_bind = values::optional(value),
            "Default" => self.default = yes_no(value)?,
            "DefaultTime" => self.default_time = default_time(value)?,
            "DefCpuPerGPU" | "DefMemPerGPU" => {
                let mut defaults = self.job_defaults();
                defaults.set(known.name, value)?;
                self.job_defaults = defaults.words();
            }
            "JobDefaults" => self.job_defaults = JobDefaults::parse(value)?.words(),
            "DefMemPerCPU" => self.def_memory = values::memory_limit(value)?.map(MemoryPer::Cpu),
            "DefMemPerNode" => self.def_memory = values::memory_limit(value)?.map(MemoryPer::Node),
            "DenyAccounts" => self.deny_accounts = values::list_or_none(value),
            "DenyQos" => self.deny_qos = values::list_or_none(value),
            "DisableRootJobs" => self.disable_root_jobs = Some(yes_no(value)?),
            "ExclusiveTopo" => self.exclusive_topo = yes_no(value)?,
            "ExclusiveUser" => self.exclusive_user = yes_no(value)?,
            "GraceTime" => self.grace_secs = grace(value)?,
            "Hidden" => self.hidden = yes_no(value)?,
            "LLN" => self.least_loaded = yes_no(value)?,
            "MaxCPUsPerNode" => self.max_cpus_per_node = limit(value)?.filter(|&n| n > 0),
            "MaxCPUsPerSocket" => self.max_cpus_per_socket = limit(value)?.filter(|&n| n > 0),
            "MaxMemPerCPU" => self.max_memory = values::memory_limit(value)?.map(MemoryPer::Cpu),
            "MaxMemPerNode" => self.max_memory = values::memory_limit(value)?.map(MemoryPer::Node),
            "MaxNodes" => self.max_nodes = limit(value)?,
            "MaxTime" => self.max_time = values::time_limit(value)?,
            "MinNodes" => self.min_nodes = values::number(value, 0, u32::MAX - 3)?,
            "Nodes" => self.nodes_text = nodes_text(value),
            "OverSubscribe" | "Shared" => self.over_subscribe = OverSubscribe::parse(value)?,
            "OverTimeLimit" => {
                self.over_time_limit = values::optional(value).map(|v| OverTime::parse(&v)).transpose()?
            }
            "PowerDownOnIdle" => self.power_down_on_idle = yes_no(value)?,
            "PreemptMode" => {
                let (_, words) = preempt::mode(value)?;
                self.preempt_mode = Some(words);
            }
            "PriorityJobFactor" => self.priority_job_factor = values::number(value, 0, 65_533)?,
            "PriorityTier" => self.priority_tier = values::number(value, 0, 65_533)?,
            "QOS" => self.qos = values::optional(value).filter(|q| q != "N/A"),
            "ReqResv" => self.require_reservation = yes_no(value)?,
            "RootOnly" => self.root_only = yes_no(value)?,
            "SelectTypeParameters" => {
                self.select = values::optional(value).map(|v| SelectParameters::parse(&v)).transpose()?;
            }
            "State" => self.state = state(value)?,
            "ResumeTimeout" => self.resume_timeout = secs(value)?,
            "SuspendTime" => self.suspend_time = secs(value)?,
            "SuspendTimeout" => self.suspend_timeout = secs(value)?,
            "Topology" => self.topology = values::optional(value),
            "TRESBillingWeights" => {
                self.billing_weights = values::optional(value);
                self.billing_weights.as_deref().map(BillingWeights::parse).transpose()?;
            }
            _ => {}
        }
        Ok(match known.class {
            Class::NotYet if self.has_no_effect(known.name) => None,
            Class::NotYet => Some(not_yet(known.name)),
            Class::Dropped => Some(dropped(known.name)),
            Class::Honoured | Class::OwnWay | Class::Fact => None,
        })
    }

    /// What jobs get with each GPU.
    pub fn job_defaults(&self) -> JobDefaults {
        JobDefaults::parse(&self.job_defaults.join(",")).unwrap_or_default()
    }

    /// May jobs of that account run here? Where nobody says which account a job has, it is in none. As in Slurm,
    /// `DenyAccounts` does not count beside `AllowAccounts`.
    pub fn allows_account(&self, account: Option<&str>) -> bool {
        allows(&self.allow_accounts, &self.deny_accounts, account)
    }

    /// May jobs with that QOS run here?
    pub fn allows_qos(&self, qos: Option<&str>) -> bool {
        allows(&self.allow_qos, &self.deny_qos, qos)
    }

    /// Does it matter here which account or QOS a job has?
    pub const fn is_choosy(&self) -> bool {
        self.allow_accounts.is_some()
            || self.allow_qos.is_some()
            || !self.deny_accounts.is_empty()
            || !self.deny_qos.is_empty()
    }

    /// Settings that are not honoured but were given the value that they have anyhow: nothing to warn of.
    fn has_no_effect(&self, key: &str) -> bool {
        match key {
            "PowerDownOnIdle" => !self.power_down_on_idle,
            "QOS" => self.qos.is_none(),
            // Said once the cluster's own is known, where it is another.
            "SelectTypeParameters" => true,
            _ => false,
        }
    }
}

/// Names of accounts and QOS are the same in any case.
fn allows(allowed: &Option<Vec<String>>, denied: &[String], name: Option<&str>) -> bool {
    let among = |list: &[String]| name.is_some_and(|name| list.iter().any(|one| one.eq_ignore_ascii_case(name)));
    match allowed {
        Some(allowed) => among(allowed),
        None => !among(denied),
    }
}

/// `ALL` and blanks around names taken care of.
fn nodes_text(text: &str) -> String {
    if text.eq_ignore_ascii_case("all") { "ALL".to_owned() } else { values::optional(text).unwrap_or_default() }
}

fn host_text(text: &str) -> Value<Option<String>> {
    if text.is_empty() || text.eq_ignore_ascii_case("all") {
        return Ok(None);
    }
    let list: HostList = text.parse().map_err(|e: crate::hostlist::HostListError| SettingError::new(e.to_string()))?;
    Ok(Some(list.to_string()))
}

fn default_time(text: &str) -> Value<Option<TimeLimit>> {
    if text.eq_ignore_ascii_case("none") || text.eq_ignore_ascii_case("default") {
        return Ok(None);
    }
    values::time_limit(text).map(Some)
}

/// Seconds, or one of the forms of a time limit.
fn grace(text: &str) -> Value<u32> {
    if text.contains([':', '-']) {
        let secs = crate::time::parse_duration_secs(text).ok().flatten().and_then(|s| u32::try_from(s).ok());
        return secs.ok_or_else(|| SettingError::new(format!("\"{text}\" is not a time")));
    }
    values::number(text, 0, u32::MAX - 3)
}

fn state(text: &str) -> Value<PartitionState> {
    Ok(match values::choice(text, &["UP", "DOWN", "DRAIN", "INACTIVE"])? {
        "UP" => PartitionState::Up,
        "DOWN" => PartitionState::Down,
        "DRAIN" => PartitionState::Drain,
        _ => PartitionState::Inactive,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_key_of_the_table_can_be_set_to_something() {
        for key in keys::PARTITION {
            let value = match key.name {
                "State" => "UP",
                "OverSubscribe" | "Shared" => "FORCE:2",
                "SelectTypeParameters" => "CR_Core",
                "PreemptMode" => "REQUEUE",
                "TRESBillingWeights" => "CPU=1",
                "JobDefaults" => "DefCpuPerGPU=4",
                "Nodes" | "AllocNodes" => "n[1-2]",
                _ => "1",
            };
            let mut partition = PartitionConfig::named("p");
            let said = partition.set(key.name, value).unwrap_or_else(|e| panic!("{}: {e}", key.name));
            if key.class == Class::Honoured && key.name != "PartitionName" {
                assert_eq!(said, None, "{}", key.name);
            }
        }
    }

    #[test]
    fn accounts_and_qos_are_allowed_or_denied() {
        let mut p = PartitionConfig::named("p");
        assert!(p.allows_account(None) && p.allows_account(Some("physics")) && !p.is_choosy());
        assert_eq!(p.set("DenyAccounts", "chemistry"), Ok(None));
        assert!(p.is_choosy() && p.allows_account(None));
        assert!(p.allows_account(Some("physics")) && !p.allows_account(Some("Chemistry")));
        assert_eq!(p.set("AllowAccounts", "physics,chemistry"), Ok(None));
        assert!(p.allows_account(Some("chemistry")) && !p.allows_account(None) && !p.allows_account(Some("maths")));
        assert_eq!((p.set("AllowAccounts", "ALL"), p.set("DenyAccounts", "")), (Ok(None), Ok(None)));
        assert!(p.allows_account(Some("chemistry")) && !p.is_choosy());
        assert_eq!(p.set("DenyQos", "low"), Ok(None));
        assert!(!p.allows_qos(Some("low")) && p.allows_qos(Some("high")));
        assert_eq!(p.set("AllowQos", "high"), Ok(None));
        assert!(!p.allows_qos(None) && p.allows_qos(Some("high")) && !p.allows_qos(Some("normal")));
    }

    #[test]
    fn updates_use_the_same_words_as_the_file() {
        let mut p = PartitionConfig::named("p");
        assert_eq!(p.set("maxtime", "1-0"), Ok(None));
        assert_eq!(p.set("OVERSUBSCRIBE", "force"), Ok(None));
        assert_eq!(p.max_time.scontrol_text(), "1-00:00:00");
        assert_eq!(p.over_subscribe.to_string(), "FORCE:4");
        assert_eq!(p.set("Stat", "UP").unwrap_err().to_string(), "unknown key Stat (did you mean State?)");
        let says = p.set("State", "UPP").unwrap_err().to_string();
        assert_eq!(says, "\"UPP\" is not one of UP, DOWN, DRAIN, INACTIVE (did you mean UP?)");
        assert_eq!(p.set("QOS", "N/A"), Ok(None));
        assert!(p.set("QOS", "high").unwrap().is_some());
        assert!(p.set("OverSubscribe", "NO:3").is_err());
    }
}
