//! What `scontrol show config` prints: every key in Slurm's order, with defaults.

use super::{
    settings::{
        config::{Config, EnforcePartLimits, PropagateLimits, ReturnToService},
        partition::OverTime,
    },
    syntax::values::{ExitCodes, MemoryPer, Parameters},
};
use crate::time::Timestamp;
use jiff::tz::TimeZone;
use std::path::Path;

/// What the configuration does not know and the controller does.
#[derive(Clone, Copy, Debug)]
pub struct ShowFacts<'a> {
    /// Start of the controller.
    pub boot_time: Timestamp,
    /// Id that the next job gets.
    pub next_job_id: u32,
    /// Number of `SlurmUser`, if there is such a user.
    pub slurm_uid: Option<u32>,
    /// Number of `SlurmdUser`.
    pub slurmd_uid: Option<u32>,
    /// Slurm's version that Garrick answers to, `26.05.3`.
    pub version: &'a str,
    /// Zone for times.
    pub zone: &'a TimeZone,
}

const NULL: &str = "(null)";

/// Keys in the order of `scontrol show config`, and what stands there unless set.
const ROWS: &[(&str, &str)] = &[
    ("AccountingStorageBackupHost", NULL),
    ("AccountingStorageEnforce", "none"),
    ("AccountingStorageHost", "localhost"),
    ("AccountingStorageExternalHost", NULL),
    ("AccountingStorageParameters", NULL),
    ("AccountingStoragePort", "0"),
    ("AccountingStorageTRES", "cpu,mem,energy,node,billing,fs/disk,vmem,pages"),
    ("AccountingStorageType", NULL),
    ("AccountingStoreFlags", NULL),
    ("AcctGatherEnergyType", NULL),
    ("AcctGatherFilesystemType", NULL),
    ("AcctGatherInterconnectType", NULL),
    ("AcctGatherNodeFreq", "0 sec"),
    ("AcctGatherProfileType", NULL),
    ("AllowSpecResourcesUsage", ""),
    ("AuthAltTypes", NULL),
    ("AuthAltParameters", NULL),
    ("AuthInfo", NULL),
    ("AuthType", "auth/munge"),
    ("BatchStartTimeout", ""),
    ("BcastExclude", "/lib,/usr/lib,/lib64,/usr/lib64"),
    ("BcastParameters", NULL),
    ("BOOT_TIME", ""),
    ("BurstBufferType", NULL),
    ("CertgenParameters", NULL),
    ("CertgenType", NULL),
    ("CertmgrParameters", NULL),
    ("CertmgrType", NULL),
    ("CliFilterParameters", NULL),
    ("CliFilterPlugins", NULL),
    ("ClusterName", ""),
    ("CommunicationParameters", NULL),
    ("CompleteWait", ""),
    ("CpuFreqDef", "Unknown"),
    ("CpuFreqGovernors", "OnDemand,Performance,UserSpace"),
    ("CredType", "auth/munge"),
    ("DataParserParameters", NULL),
    ("DebugFlags", NULL),
    ("DefMem", ""),
    ("DependencyParameters", NULL),
    ("DisableRootJobs", ""),
    ("EioTimeout", "60"),
    ("EnforcePartLimits", ""),
    ("Epilog", ""),
    ("EpilogMsgTime", "2000 usec"),
    ("EpilogSlurmctld", NULL),
    ("EpilogTimeout", ""),
    ("FairShareDampeningFactor", "1"),
    ("FederationParameters", NULL),
    ("FirstJobId", ""),
    ("GetEnvTimeout", "2 sec"),
    ("GpuFreqDef", NULL),
    ("GroupUpdateForce", "1"),
    ("GroupUpdateTime", "600 sec"),
    ("HASH_VAL", "Match"),
    ("HashPlugin", "hash/k12"),
    ("HealthCheckInterval", "0 sec"),
    ("HealthCheckNodeState", "ANY"),
    ("HealthCheckProgram", NULL),
    ("HttpParserType", "http_parser/libhttp_parser"),
    ("InactiveLimit", "0 sec"),
    ("InteractiveStepOptions", "--interactive --preserve-env --pty $SHELL"),
    ("JobAcctGatherFrequency", "30"),
    ("JobAcctGatherType", NULL),
    ("JobAcctGatherParams", NULL),
    ("JobCompHost", "localhost"),
    ("JobCompLoc", NULL),
    ("JobCompParams", NULL),
    ("JobCompPort", "0"),
    ("JobCompType", NULL),
    ("JobCompUser", "root"),
    ("JobDefaults", ""),
    ("JobFileAppend", ""),
    ("JobRequeue", ""),
    ("JobSubmitPlugins", NULL),
    ("KillOnBadExit", ""),
    ("KillWait", ""),
    ("LaunchParameters", NULL),
    ("Licenses", ""),
    ("LogTimeFormat", "iso8601_ms"),
    ("MailDomain", NULL),
    ("MailProg", "/bin/mail"),
    ("MaxArraySize", ""),
    ("MaxBatchRequeue", ""),
    ("MaxDBDMsgs", "20024"),
    ("MaxJobCount", ""),
    ("MaxJobId", ""),
    ("MaxMem", ""),
    ("MaxNodeCount", ""),
    ("MaxStepCount", ""),
    ("MaxTasksPerNode", ""),
    ("MCSPlugin", NULL),
    ("MCSParameters", NULL),
    ("MessageTimeout", ""),
    ("MetricsType", NULL),
    ("MinJobAge", ""),
    ("MpiDefault", "none"),
    ("MpiParams", NULL),
    ("MULTIPLE_SLURMD", "Yes"),
    ("NamespaceType", NULL),
    ("NEXT_JOB_ID", ""),
    ("NodeFeaturesPlugins", NULL),
    ("OverTimeLimit", ""),
    ("PluginDir", NULL),
    ("PlugStackConfig", NULL),
    ("PreemptMode", "OFF"),
    ("PreemptParameters", NULL),
    ("PreemptType", NULL),
    ("PreemptExemptTime", "00:00:00"),
    ("PrEpParameters", NULL),
    ("PrEpPlugins", "prep/script"),
    ("PriorityParameters", NULL),
    ("PrioritySiteFactorParameters", NULL),
    ("PrioritySiteFactorPlugin", NULL),
    ("PriorityDecayHalfLife", "7-00:00:00"),
    ("PriorityCalcPeriod", ""),
    ("PriorityFavorSmall", ""),
    ("PriorityFlags", ""),
    ("PriorityMaxAge", ""),
    ("PriorityUsageResetPeriod", "NONE"),
    ("PriorityType", ""),
    ("PriorityWeightAge", ""),
    ("PriorityWeightAssoc", ""),
    ("PriorityWeightFairShare", ""),
    ("PriorityWeightJobSize", ""),
    ("PriorityWeightPartition", ""),
    ("PriorityWeightQOS", ""),
    ("PriorityWeightTRES", ""),
    ("PrivateData", "none"),
    ("ProctrackType", "proctrack/cgroup"),
    ("Prolog", ""),
    ("PrologSlurmctld", NULL),
    ("PrologTimeout", ""),
    ("PrologFlags", NULL),
    ("PropagatePrioProcess", "0"),
    ("PropagateResourceLimits", ""),
    ("PropagateResourceLimitsExcept", ""),
    ("RebootProgram", NULL),
    ("ReconfigFlags", ""),
    ("RequeueExit", ""),
    ("RequeueExitHold", ""),
    ("ResumeFailProgram", NULL),
    ("ResumeProgram", NULL),
    ("ResumeRate", "300 nodes/min"),
    ("ResumeTimeout", "60 sec"),
    ("ResvEpilog", NULL),
    ("ResvOverRun", ""),
    ("ResvProlog", NULL),
    ("ReturnToService", ""),
    ("SchedulerParameters", ""),
    ("SchedulerTimeSlice", ""),
    ("SchedulerType", ""),
    ("ScronParameters", NULL),
    ("SelectType", ""),
    ("SelectTypeParameters", ""),
    ("SlurmUser", ""),
    ("SlurmctldAddr", ""),
    ("SlurmctldDebug", ""),
    ("SlurmctldHost", ""),
    ("SlurmctldLogFile", ""),
    ("SlurmctldPort", ""),
    ("SlurmctldSyslogDebug", ""),
    ("SlurmctldPrimaryOffProg", NULL),
    ("SlurmctldPrimaryOnProg", NULL),
    ("SlurmctldTimeout", "120 sec"),
    ("SlurmctldParameters", ""),
    ("SlurmdDebug", ""),
    ("SlurmdLogFile", ""),
    ("SlurmdParameters", ""),
    ("SlurmdPidFile", ""),
    ("SlurmdPort", ""),
    ("SlurmdSpoolDir", ""),
    ("SlurmdSyslogDebug", ""),
    ("SlurmdTimeout", ""),
    ("SlurmdUser", ""),
    ("SlurmSchedLogFile", NULL),
    ("SlurmSchedLogLevel", "0"),
    ("SlurmctldPidFile", ""),
    ("SLURM_CONF", ""),
    ("SLURM_VERSION", ""),
    ("SrunEpilog", NULL),
    ("SrunPortRange", "0-0"),
    ("SrunProlog", NULL),
    ("StateSaveLocation", ""),
    ("SuspendExcNodes", NULL),
    ("SuspendExcParts", NULL),
    ("SuspendExcStates", NULL),
    ("SuspendProgram", NULL),
    ("SuspendRate", "60 nodes/min"),
    ("SuspendTime", "INFINITE"),
    ("SuspendTimeout", "30 sec"),
    ("SwitchParameters", NULL),
    ("SwitchType", NULL),
    ("TaskEpilog", NULL),
    ("TaskPlugin", "task/affinity"),
    ("TaskPluginParam", "(null type)"),
    ("TaskProlog", NULL),
    ("TCPTimeout", "2 sec"),
    ("TLSParameters", NULL),
    ("TLSType", NULL),
    ("TmpFS", ""),
    ("TopologyParam", ""),
    ("TopologyPlugin", ""),
    ("TrackWCKey", "No"),
    ("TreeWidth", "16"),
    ("UnkillableStepProgram", ""),
    ("UnkillableStepTimeout", ""),
    ("UrlParserType", "url_parser/libhttp_parser"),
    ("UsePAM", "No"),
    ("VSizeFactor", "0 percent"),
    ("WaitTime", ""),
    ("X11Parameters", NULL),
];

/// Keys that Slurm shows with `priority/multifactor` alone.
fn of_multifactor(name: &str) -> bool {
    name.starts_with("PriorityWeight")
        || matches!(
            name,
            "PriorityDecayHalfLife"
                | "PriorityCalcPeriod"
                | "PriorityFavorSmall"
                | "PriorityFlags"
                | "PriorityMaxAge"
                | "PriorityUsageResetPeriod"
        )
}

/// Is this the value that the key has anyhow? Then there is nothing to warn of.
pub(super) fn is_default(key: &str, value: &str) -> bool {
    let nothing = value.is_empty() || value == NULL || value == "0" || value.eq_ignore_ascii_case("no");
    if nothing || value.eq_ignore_ascii_case("none") || value.to_ascii_lowercase().ends_with("/none") {
        return true;
    }
    let default = ROWS.iter().find(|(name, _)| *name == key).map_or("", |(_, default)| *default);
    // "16 sec" is what 16 is shown as.
    let number = default.split(' ').next().filter(|word| word.parse::<u64>().is_ok());
    value.eq_ignore_ascii_case(default) || number == Some(value)
}

/// All keys with their values.
pub fn show_config(config: &Config, facts: &ShowFacts<'_>) -> Vec<(String, String)> {
    let mut pairs = Vec::with_capacity(ROWS.len() + 8);
    for &(name, default) in ROWS {
        match name {
            "DefMem" => pairs.push(memory("Def", config.def_memory)),
            "MaxMem" => pairs.push(memory("Max", config.max_memory)),
            "SlurmctldHost" => {
                for (n, controller) in config.controllers.iter().enumerate() {
                    let address = controller.address.as_ref().map(|a| format!("({a})")).unwrap_or_default();
                    pairs.push((format!("SlurmctldHost[{n}]"), format!("{}{address}", controller.name)));
                }
            }
            name if of_multifactor(name) && !config.multifactor() => {}
            "Prolog" | "Epilog" if !config.several(name).is_empty() => {
                for (n, path) in config.several(name).iter().enumerate() {
                    pairs.push((format!("{name}[{n}]"), path.clone()));
                }
            }
            _ => {
                let value = typed(config, facts, name).unwrap_or_else(|| written(config, name, default));
                pairs.push((name.to_owned(), value));
            }
        }
    }
    pairs
}

impl Config {
    fn several(&self, name: &str) -> &[String] {
        if name == "Prolog" { &self.prolog } else { &self.epilog }
    }
}

/// As written, with the unit that the default shows.
fn written(config: &Config, name: &str, default: &str) -> String {
    match config.other.get(name) {
        Some(value) if value.is_empty() => NULL.to_owned(),
        Some(value) => match default.split_once(' ') {
            Some((_, unit)) if value.bytes().all(|b| b.is_ascii_digit()) => format!("{value} {unit}"),
            _ => value.clone(),
        },
        None => default.to_owned(),
    }
}

fn memory(what: &str, amount: Option<MemoryPer>) -> (String, String) {
    match amount {
        None => (format!("{what}MemPerNode"), "UNLIMITED".to_owned()),
        Some(MemoryPer::Node(m)) => (format!("{what}MemPerNode"), m.0.to_string()),
        Some(MemoryPer::Cpu(m)) => (format!("{what}MemPerCPU"), m.0.to_string()),
    }
}

fn over_time(limit: OverTime) -> String {
    match limit {
        OverTime::Minutes(n) => format!("{n} min"),
        OverTime::Unlimited => "UNLIMITED".to_owned(),
    }
}

fn secs(n: u32) -> String {
    format!("{n} sec")
}

fn flag(set: bool) -> String {
    u8::from(set).to_string()
}

fn text(value: Option<&str>) -> String {
    value.filter(|v| !v.is_empty()).unwrap_or(NULL).to_owned()
}

fn words(parameters: &Parameters) -> String {
    text(Some(&parameters.to_string()))
}

fn codes(codes: &ExitCodes) -> String {
    text(Some(&codes.to_string()))
}

fn user(name: &str, uid: Option<u32>) -> String {
    uid.map_or_else(|| name.to_owned(), |uid| format!("{name}({uid})"))
}

/// Slurm shows no limit of these as its largest 16-bit number.
fn timeout(limit: Option<u32>) -> String {
    limit.map_or_else(|| "65534".to_owned(), |n| n.to_string())
}

fn limits(limits: &PropagateLimits, except: bool) -> String {
    match (limits, except) {
        (PropagateLimits::All, false) => "ALL".to_owned(),
        (PropagateLimits::None, false) => "NONE".to_owned(),
        (PropagateLimits::Only(names), false) | (PropagateLimits::Except(names), true) => names.join(","),
        _ => NULL.to_owned(),
    }
}

fn program(path: Option<&Path>) -> String {
    path.map_or(NULL.to_owned(), |path| path.display().to_string())
}

/// Keys that are kept typed, and those that only the controller knows.
fn typed(c: &Config, facts: &ShowFacts<'_>, name: &str) -> Option<String> {
    Some(match name {
        "BOOT_TIME" => facts.boot_time.text(facts.zone),
        "NEXT_JOB_ID" => facts.next_job_id.to_string(),
        "SLURM_CONF" => c.path.display().to_string(),
        "SLURM_VERSION" => facts.version.to_owned(),
        "AllowSpecResourcesUsage" => if c.allow_spec_resources { "Yes" } else { "No" }.to_owned(),
        "JobDefaults" => text(Some(&c.job_defaults.to_string())),
        "BatchStartTimeout" => secs(c.batch_start_timeout_secs),
        "ClusterName" => c.cluster_name.clone(),
        "DependencyParameters" => words(&c.dependency_parameters),
        "DisableRootJobs" => if c.disable_root_jobs { "Yes" } else { "No" }.to_owned(),
        "EnforcePartLimits" => match c.enforce_part_limits {
            EnforcePartLimits::No => "NO",
            EnforcePartLimits::Any => "ANY",
            EnforcePartLimits::All => "ALL",
        }
        .to_owned(),
        "Prolog" | "Epilog" => NULL.to_owned(),
        "HealthCheckInterval" => format!("{} sec", c.health.interval_secs),
        "HealthCheckNodeState" => c.health.states.to_string(),
        "HealthCheckProgram" => program(c.health.program.as_deref()),
        "EpilogTimeout" => timeout(c.epilog_timeout_secs),
        "PrologTimeout" => timeout(c.prolog_timeout_secs),
        "FirstJobId" => c.first_job_id.to_string(),
        "JobFileAppend" => flag(c.job_file_append),
        "JobRequeue" => flag(c.job_requeue),
        "KillOnBadExit" => flag(c.kill_on_bad_exit),
        "GresTypes" if c.gres.types.is_empty() => NULL.to_owned(),
        "GresTypes" => c.gres.types.join(","),
        "Licenses" => {
            if c.licenses.is_empty() {
                NULL.to_owned()
            } else {
                c.licenses.to_string()
            }
        }
        "CompleteWait" => secs(c.complete_wait_secs),
        "KillWait" => secs(c.kill_wait_secs),
        "MaxArraySize" => c.max_array_size.to_string(),
        "MaxJobCount" => c.max_job_count.to_string(),
        "MaxJobId" => c.max_job_id.to_string(),
        "MaxNodeCount" => c.most_nodes().to_string(),
        "MaxStepCount" => c.max_step_count.map_or_else(|| "UNLIMITED".to_owned(), |most| most.to_string()),
        "MaxTasksPerNode" => c.max_tasks_per_node.to_string(),
        "MessageTimeout" => secs(c.message_timeout_secs),
        "MaxBatchRequeue" => c.max_batch_requeue.to_string(),
        "MinJobAge" => secs(c.min_job_age_secs),
        "OverTimeLimit" => over_time(c.over_time_limit),
        "ResvOverRun" => over_time(c.resv_over_run),
        "PriorityType" => c.priority_type.clone(),
        "PropagatePrioProcess" => (c.propagate_priority as u8).to_string(),
        "PropagateResourceLimits" => limits(&c.propagate_limits, false),
        "PropagateResourceLimitsExcept" => limits(&c.propagate_limits, true),
        "ReconfigFlags" => words(&c.reconfig_flags),
        "RequeueExit" => codes(&c.requeue_exit),
        "RequeueExitHold" => codes(&c.requeue_exit_hold),
        "ReturnToService" => match c.return_to_service {
            ReturnToService::Never => "0",
            ReturnToService::NonResponding => "1",
            ReturnToService::Always => "2",
        }
        .to_owned(),
        "SchedulerParameters" => words(&c.scheduler_parameters),
        "SchedulerType" => c.scheduler_type.clone(),
        "SelectType" => c.select_type.clone(),
        "SelectTypeParameters" => c.select.text.clone(),
        "SlurmUser" => user(&c.slurm_user, facts.slurm_uid),
        "SlurmdUser" => user(&c.slurmd_user, facts.slurmd_uid),
        "SlurmctldAddr" => text(c.slurmctld_addr.as_deref()),
        "DebugFlags" => text(Some(&c.debug_flags.to_string())),
        "SlurmctldDebug" => c.slurmctld_debug.name().to_owned(),
        "SlurmctldSyslogDebug" => c.slurmctld_syslog_debug.map_or(NULL, |level| level.name()).to_owned(),
        "SlurmdSyslogDebug" => c.slurmd_syslog_debug.map_or(NULL, |level| level.name()).to_owned(),
        "SlurmctldLogFile" => text(c.slurmctld_log_file.as_deref()),
        "SlurmctldPort" => c.slurmctld_port.to_string(),
        "SlurmctldParameters" => words(&c.slurmctld_parameters),
        "SlurmdDebug" => c.slurmd_debug.name().to_owned(),
        "SlurmdLogFile" => text(c.slurmd_log_file.as_deref()),
        "SlurmdParameters" => words(&c.slurmd_parameters),
        "SlurmdPidFile" => c.slurmd_pid_file.clone(),
        "SlurmdPort" => c.slurmd_port.to_string(),
        "SlurmdSpoolDir" => c.slurmd_spool_dir.clone(),
        "SlurmdTimeout" => secs(c.slurmd_timeout_secs),
        "SlurmctldPidFile" => c.slurmctld_pid_file.clone(),
        "StateSaveLocation" => c.state_save_location.display().to_string(),
        "TmpFS" => c.tmp_fs.clone(),
        "TopologyParam" => words(&c.topology_param),
        "TopologyPlugin" => format!("topology/{}", c.topology_plugin()),
        "UnkillableStepProgram" => program(c.unkillable_step_program.as_deref()),
        "UnkillableStepTimeout" => secs(c.unkillable_step_timeout_secs),
        "WaitTime" => secs(c.wait_time_secs),
        name => return c.preempt.shown(name).or_else(|| c.priority.shown(name)),
    })
}
