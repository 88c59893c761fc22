//! Partitions as configured, and the one place where their `Key=Value` pairs are read: from `slurm.conf` and from
//! `scontrol update PartitionName=`.

use super::{
    billing::BillingWeights,
    job_defaults::JobDefaults,
    kinds::{Kind, Limit, NULL, OneOf, Own, Text, YesNo, number, or_null, set_memory, shown_memory},
    power::Span,
    preempt,
    row::{self, Row, Show, key, settings_with_rows, with_defaults},
};
use crate::{
    config::syntax::{
        report::SettingError,
        values::{self, MemoryPer, SelectParameters, Value},
    },
    hostlist::HostList,
    state::PartitionState,
    time::TimeLimit,
};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::LazyLock};

settings_with_rows! {
    /// A partition as configured, or as updated since. Its defaults are those of the table of keys.
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
        /// `MaxTime`.
        pub max_time: TimeLimit,
        /// `DefaultTime`; `None`: MaxTime.
        pub default_time: Option<TimeLimit>,
        /// `MinNodes`
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
        /// `PriorityTier`: jobs of a higher tier are considered first.
        pub priority_tier: u16,
        /// `PriorityJobFactor`
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
        /// `AllocNodes`: hosts from which jobs may be submitted, host list form; `None`: all.
        pub alloc_nodes: Option<String>,
        /// `Hidden`: not shown unless asked for.
        pub hidden: bool,
        /// `RootOnly`: only root may submit (for others).
        pub root_only: bool,
        /// `DisableRootJobs`; `None`: the cluster's.
        pub disable_root_jobs: Option<bool>,
        /// `LLN`: least loaded nodes first.
        pub least_loaded: bool,
        /// `GraceTime`, seconds.
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
        /// `SuspendTime`; `None`: the cluster's.
        pub suspend_time: Option<Span>,
        /// `SuspendTimeout`; `None`: the cluster's.
        pub suspend_timeout: Option<Span>,
        /// `ResumeTimeout`; `None`: the cluster's.
        pub resume_timeout: Option<Span>,
        /// `Topology`
        pub topology: Option<String>,
    }
}

const YES_NO: YesNo = YesNo("NO", "YES");
const OVER_SUBSCRIBE: Own<OverSubscribe> = Own(OverSubscribe::parse, OverSubscribe::to_string);
const STATE: OneOf<PartitionState> = OneOf(&[
    ("UP", PartitionState::Up),
    ("DOWN", PartitionState::Down),
    ("DRAIN", PartitionState::Drain),
    ("INACTIVE", PartitionState::Inactive),
]);
/// More than any partition has.
const MANY: u32 = u32::MAX - 3;

type Key = Row<PartitionConfig>;

/// Keys on a `PartitionName` line.
#[rustfmt::skip]
pub(in crate::config) static PARTITION: &[Key] = &[
    Key::honoured("PartitionName", "", |_, _| Ok(None), "its name; `DEFAULT` sets defaults for the lines below it")
        .shown(Show::Value(|p| p.name.clone())).file_only(),
    Key::honoured("AllocNodes", "", |p, text| set(&mut p.alloc_nodes, host_text(text)), "hosts from which jobs may be submitted")
        .shown(Show::Value(|p| Text("ALL").show(&p.alloc_nodes))),
    key!("AllowGroups", "", allow_groups: Own(names, shown_names), "groups whose users may submit jobs"),
    Key::honoured("AllowAccounts", "", |p, text| set(&mut p.allow_accounts, names(text)),
        "accounts that its jobs may have")
        .shown(Show::Lines(|p| vec![shown_either("Accounts", &p.allow_accounts, &p.deny_accounts)])),
    Key::honoured("AllowQos", "", |p, text| set(&mut p.allow_qos, names(text)), "QOS that its jobs may have")
        .shown(Show::Lines(|p| vec![shown_either("Qos", &p.allow_qos, &p.deny_qos)])),
    key!("Alternate", "", alternate: Text(NULL), "the partition that gets new jobs while this one is closed")
        .shown_if(|p| p.alternate.is_some()),
    Key::honoured("CpuBind", "", |p, text| set(&mut p.cpu_bind, Text(NULL).read(text)), "")
        .without_effect(|_| true).file_only(),
    key!("Default", "no", default: YES_NO, "jobs that name no partition go here"),
    key!("DefaultTime", "NONE", default_time: Own(default_time, shown_default_time),
        "the time limit of jobs that request none; `NONE`: `MaxTime`"),
    Key::honoured("DefCpuPerGPU", "", |p, text| p.set_job_default("DefCpuPerGPU", text),
        "CPUs for each GPU of a job that requests none").file_only(),
    Key::honoured("DefMemPerGPU", "", |p, text| p.set_job_default("DefMemPerGPU", text),
        "memory for each GPU of a job that requests none, MiB").file_only(),
    key!("JobDefaults", "", job_defaults: Own(|text| Ok(JobDefaults::parse(text)?.words()), |words| or_null(&words.join(","))),
        "`DefCpuPerGPU` and `DefMemPerGPU` in one"),
    Key::honoured("DefMemPerCPU", "", |p, text| set_memory(&mut p.def_memory, MemoryPer::Cpu, text),
        "memory for each CPU of a job that requests none; unless set, the cluster's").excludes("DefMemPerNode"),
    Key::honoured("DefMemPerNode", "", |p, text| set_memory(&mut p.def_memory, MemoryPer::Node, text),
        "memory on each node of a job that requests none; unless set, the cluster's").excludes("DefMemPerCPU"),
    Key::fact("DefMem", Show::Lines(|p| vec![shown_memory("Def", p.def_memory)])),
    Key::honoured("DenyAccounts", "", |p, text| set(&mut p.deny_accounts, Ok(values::list_or_none(text))),
        "accounts that its jobs may not have"),
    Key::honoured("DenyQos", "", |p, text| set(&mut p.deny_qos, Ok(values::list_or_none(text))),
        "QOS that its jobs may not have"),
    key!("DisableRootJobs", "", disable_root_jobs: Own(|text| values::yes_no(text).map(Some), shown_root),
        "root may not submit jobs; unless set, the cluster's"),
    Key::honoured("ExclusiveTopo", "no", |p, text| set(&mut p.exclusive_topo, YES_NO.read(text)),
        "jobs get units of the topology exclusively"),
    Key::honoured("ExclusiveUser", "no", |p, text| set(&mut p.exclusive_user, YES_NO.read(text)),
        "nodes are shared by jobs of one user only"),
    Key::honoured("Exclusive", "", |p, text| p.set_exclusive(text),
        "to whom nodes are kept: `NO`, `NODE` (a job), `USER`, `TOPO` (a unit of the topology)")
        .shown(Show::Value(|p| p.exclusive().to_owned())),
    key!("GraceTime", "0", grace_secs: Own(grace, u32::to_string), "time that a preempted job has before it is ended, seconds"),
    key!("Hidden", "no", hidden: YES_NO, "commands show it only on request"),
    key!("LLN", "no", least_loaded: YES_NO, "least loaded nodes first"),
    key!("MaxCPUsPerNode", "UNLIMITED", max_cpus_per_node: Own(cpu_limit, shown_limit),
        "CPUs that all its jobs may use together on a node"),
    key!("MaxCPUsPerSocket", "UNLIMITED", max_cpus_per_socket: Own(cpu_limit, shown_limit),
        "CPUs that all its jobs may use together on a socket"),
    Key::honoured("MaxMemPerCPU", "", |p, text| set_memory(&mut p.max_memory, MemoryPer::Cpu, text),
        "largest memory for each CPU of a job; unless set, the cluster's").excludes("MaxMemPerNode"),
    Key::honoured("MaxMemPerNode", "", |p, text| set_memory(&mut p.max_memory, MemoryPer::Node, text),
        "largest memory of a job on each node; unless set, the cluster's").excludes("MaxMemPerCPU"),
    Key::fact("MaxMem", Show::Lines(|p| vec![shown_memory("Max", p.max_memory)])),
    key!("MaxNodes", "UNLIMITED", max_nodes: Limit(0, MANY, "UNLIMITED"), "largest number of nodes of a job"),
    key!("MaxTime", "UNLIMITED", max_time: Own(values::time_limit, |limit| limit.scontrol_text()),
        "longest time limit of a job"),
    key!("MinNodes", "0", min_nodes: number(0, MANY), "smallest number of nodes of a job"),
    Key::fact("NodeSets", Show::Value(|p| p.node_sets.join(","))).shown_if(|p| !p.node_sets.is_empty()),
    Key::honoured("Nodes", "", |p, text| set(&mut p.nodes_text, Ok(nodes_text(text))),
        "its nodes, by their names or those of node sets, or `ALL`"),
    Key::honoured("OverSubscribe", "NO", |p, text| set(&mut p.over_subscribe, OVER_SUBSCRIBE.read(text)),
        "whether jobs share resources, and how many jobs may")
        .shown(Show::Value(|p| p.shared().to_string())),
    Key::honoured("Shared", "", |p, text| set(&mut p.over_subscribe, OVER_SUBSCRIBE.read(text)),
        "an older name of `OverSubscribe`"),
    key!("OverTimeLimit", "", over_time_limit: Own(over_time, shown_over_time),
        "how long jobs may exceed their time limits, minutes; unless set, the cluster's"),
    Key::honoured("PowerDownOnIdle", "", |p, text| set(&mut p.power_down_on_idle, YES_NO.read(text)),
        "nodes that had a job of it are powered down when they are empty")
        .shown(Show::Value(|p| YES_NO.show(&p.power_down_on_idle))),
    key!("PreemptMode", "", preempt_mode: Own(|text| Ok(Some(preempt::mode(text)?.1)), |mode| Text("OFF").show(mode)),
        "how its jobs are preempted; unless set, the cluster's"),
    Key::dropped("Priority"),
    key!("PriorityJobFactor", "1", priority_job_factor: number(0, 65_533), "the factor that `PriorityWeightPartition` multiplies"),
    key!("PriorityTier", "1", priority_tier: number(0, 65_533), "jobs of a higher tier are considered first, and may preempt others"),
    Key::honoured("QOS", "", |p, text| set(&mut p.qos, Ok(values::optional(text).filter(|qos| qos != "N/A"))),
        "the QOS whose limits hold for its jobs, where `AccountingStorageEnforce` has `limits`")
        .shown(Show::Lines(|p| vec![("QoS".to_owned(), Text("N/A").show(&p.qos))])),
    key!("ReqResv", "no", require_reservation: YES_NO, "only jobs in reservations may use it"),
    Key::honoured("ResumeTimeout", "", |p, text| set(&mut p.resume_timeout, Span::parse(text).map(Some)),
        "how long its nodes may take to come; unless set, the cluster's")
        .shown(Show::Value(|p| own_span(p.resume_timeout))).file_only(),
    key!("RootOnly", "no", root_only: YES_NO, "only root may submit jobs, for other users"),
    // Said once the cluster's own is known, where it is another.
    Key::honoured("SelectTypeParameters", "", |p, text| set(&mut p.select, select(text)), "")
        .without_effect(|_| false)
        .shown(Show::Value(|p| p.select.as_ref().map_or("NONE", |select| &select.text).to_owned())).file_only(),
    key!("State", "UP", state: STATE, "whether jobs are accepted, and start"),
    Key::honoured("SuspendTime", "", |p, text| set(&mut p.suspend_time, Span::parse_long(text).map(Some)),
        "after how long its idle nodes are powered down; unless set, the cluster's")
        .shown(Show::Value(|p| own_span(p.suspend_time))).file_only(),
    Key::honoured("SuspendTimeout", "", |p, text| set(&mut p.suspend_timeout, Span::parse(text).map(Some)),
        "how long powering its nodes down takes; unless set, the cluster's")
        .shown(Show::Value(|p| own_span(p.suspend_timeout))).file_only(),
    key!("Topology", "", topology: Text(NULL), "the topology of its nodes, of `topology.yaml`"),
    key!("TRESBillingWeights", "", billing_weights: Own(billing_weights, |text| Text(NULL).show(text)),
        "weights for billing a job's CPUs, memory, nodes and other resources").shown_if(|p| p.billing_weights.is_some()),
];

static DEFAULTS: LazyLock<PartitionConfig> = LazyLock::new(|| with_defaults(PARTITION, PartitionConfig::blank()));

impl Default for PartitionConfig {
    fn default() -> Self {
        DEFAULTS.clone()
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

    /// `TRESBillingWeights`, whose text was checked when it was set.
    pub fn weights(&self) -> Option<BillingWeights> {
        BillingWeights::parse(self.billing_weights.as_deref()?).ok()
    }

    /// Sets a field from a `Key=Value` pair of `slurm.conf` or of an update. `Ok(Some(..))`: accepted, but without (full)
    /// effect, and why. `Nodes` only changes [`Self::nodes_text`]: resolve it with the cluster's nodes afterwards
    /// ([`crate::config::Config::resolve_nodes`]).
    pub fn set(&mut self, key: &str, value: &str) -> Result<Option<SettingError>, SettingError> {
        row::find(PARTITION, key).ok_or_else(|| row::unknown(PARTITION, &[], key))?.set(self, value)
    }

    /// A key as `scontrol show partition` has it, `MaxNodes=4`; `None`: there is nothing to show of it.
    pub fn shown(&self, key: &str) -> Option<String> {
        PARTITION.iter().find(|row| row.name == key)?.words(self)
    }

    /// Keys that `scontrol update` takes.
    pub fn update_keys() -> impl Iterator<Item = &'static str> {
        row::keys(PARTITION).filter(|row| !row.file_only).map(|row| row.name)
    }

    fn set_job_default(&mut self, name: &str, text: &str) -> Value<Option<SettingError>> {
        let mut defaults = self.job_defaults();
        defaults.set(name, text)?;
        self.job_defaults = defaults.words();
        Ok(None)
    }

    /// One of its modes in place of all others (slurm.conf(5)).
    fn set_exclusive(&mut self, text: &str) -> Value<Option<SettingError>> {
        let mode = values::choice(text, &["NO", "NONE", "NODE", "USER", "TOPO"])?;
        (self.exclusive_user, self.exclusive_topo) = (mode == "USER", mode == "TOPO");
        match (mode, self.over_subscribe) {
            ("NODE", _) => self.over_subscribe = OverSubscribe::Exclusive,
            (_, OverSubscribe::Exclusive) => self.over_subscribe = OverSubscribe::No,
            _ => {}
        }
        Ok(None)
    }

    /// Whom nodes are kept to, in Slurm's word.
    pub const fn exclusive(&self) -> &'static str {
        match (self.exclusive_user, self.exclusive_topo, self.over_subscribe) {
            (true, ..) => "USER",
            (false, true, _) => "TOPO",
            (false, false, OverSubscribe::Exclusive) => "NODE",
            (false, false, _) => "NO",
        }
    }

    /// `OverSubscribe` as it is shown: that jobs get whole nodes is told by [`Self::exclusive`].
    pub const fn shared(&self) -> OverSubscribe {
        match self.over_subscribe {
            OverSubscribe::Exclusive => OverSubscribe::No,
            other => other,
        }
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

fn set<T>(field: &mut T, value: Value<T>) -> Value<Option<SettingError>> {
    *field = value?;
    Ok(None)
}

fn names(text: &str) -> Value<Option<Vec<String>>> {
    Ok(values::list_or_all(text))
}

fn shown_names(names: &Option<Vec<String>>) -> String {
    names.as_ref().map_or_else(|| "ALL".to_owned(), |names| names.join(","))
}

/// `AllowQos=ALL`, or `DenyQos=...` where some are kept out.
fn shown_either(what: &str, allowed: &Option<Vec<String>>, denied: &[String]) -> (String, String) {
    match allowed {
        None if !denied.is_empty() => (format!("Deny{what}"), denied.join(",")),
        _ => (format!("Allow{what}"), shown_names(allowed)),
    }
}

fn shown_default_time(limit: &Option<TimeLimit>) -> String {
    limit.map_or_else(|| "NONE".to_owned(), TimeLimit::scontrol_text)
}

fn shown_root(disabled: &Option<bool>) -> String {
    YES_NO.show(&disabled.unwrap_or(false))
}

/// 0 is no limit.
fn cpu_limit(text: &str) -> Value<Option<u32>> {
    Ok(values::number_or_unlimited(text, 0, MANY)?.filter(|&n| n > 0))
}

fn shown_limit(limit: &Option<u32>) -> String {
    limit.map_or_else(|| "UNLIMITED".to_owned(), |n| n.to_string())
}

fn over_time(text: &str) -> Value<Option<OverTime>> {
    values::optional(text).map(|text| OverTime::parse(&text)).transpose()
}

fn shown_over_time(limit: &Option<OverTime>) -> String {
    match limit {
        None => "NONE".to_owned(),
        Some(OverTime::Minutes(n)) => n.to_string(),
        Some(OverTime::Unlimited) => "UNLIMITED".to_owned(),
    }
}

/// As `scontrol show partition` has it.
fn own_span(span: Option<Span>) -> String {
    span.map_or_else(|| "GLOBAL".to_owned(), |span| span.to_string())
}

fn select(text: &str) -> Value<Option<SelectParameters>> {
    values::optional(text).map(|text| SelectParameters::parse(&text)).transpose()
}

fn billing_weights(text: &str) -> Value<Option<String>> {
    let text = values::optional(text);
    text.as_deref().map(BillingWeights::parse).transpose()?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{super::row::Class, *};

    #[test]
    fn every_key_of_the_table_can_be_set_to_something() {
        for key in row::keys(PARTITION) {
            let value = match key.name {
                "State" => "UP",
                "OverSubscribe" | "Shared" => "FORCE:2",
                "SelectTypeParameters" => "CR_Core",
                "PreemptMode" => "REQUEUE",
                "Exclusive" => "NODE",
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
        assert_eq!(p.set("QOS", "high"), Ok(None));
        assert!(p.set("OverSubscribe", "NO:3").is_err());
    }
}
