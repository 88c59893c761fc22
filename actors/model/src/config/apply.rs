//! Values of the keys that stand alone, read into [`Config`].

use super::{
    dynamic::MOST_NODES,
    settings::{
        config::{Config, ControllerHost, EnforcePartLimits, PropagateLimits, PropagatePriority, ReturnToService},
        debug_flags::DebugFlags,
        health::HealthStates,
        job_defaults::JobDefaults,
        partition::OverTime,
        scheduling,
    },
    syntax::{
        report::SettingError,
        values::{self, ExitCodes, LogLevel, MemoryPer, Parameters, PortRange, SelectParameters, SelectUnit, Value},
    },
};
use crate::spec_text::licenses::{Licenses, LicensesError};
use std::path::PathBuf;

/// Greatest `MaxJobId` (`slurm.conf(5)`): the upper bits are kept for job arrays of federations.
const JOB_ID_LIMIT: u32 = 67_108_863;
/// Greatest `MaxArraySize` (`slurm.conf(5)`).
const ARRAY_LIMIT: u32 = 4_000_001;
/// Greatest number of seconds of Slurm's 16-bit times.
const SECS_LIMIT: u32 = 65_533;

const LIMITS: &[&str] = &[
    "ALL", "NONE", "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NICE", "NOFILE", "NPROC", "RSS", "RTPRIO", "STACK",
];

/// Sets a key by its usual spelling. `None`: not a key that is read here. Inside, as [`super::PartitionConfig::set`].
pub(super) fn set(config: &mut Config, key: &str, value: &str) -> Option<Value<Option<SettingError>>> {
    Some(try_set(config, key, value).transpose()?.map(|Effect(note)| note))
}

/// What there is to say about a value that was accepted.
struct Effect(Option<SettingError>);

const FULL: Option<Effect> = Some(Effect(None));

fn note(cause: String, suggestion: &str) -> Option<Effect> {
    Some(Effect(Some(SettingError::new(cause).suggest(suggestion))))
}

fn try_set(config: &mut Config, key: &str, value: &str) -> Value<Option<Effect>> {
    let secs = |text: &str| values::number(text, 0, SECS_LIMIT);
    let text = || values::optional(value);
    match key {
        "AccountingStorageType" => {
            return Ok(only_known(value, "accounting_storage/", &["none"], "nothing is recorded"));
        }
        "AllowSpecResourcesUsage" => config.allow_spec_resources = values::yes_no(value)?,
        "BatchStartTimeout" => config.batch_start_timeout_secs = secs(value)?,
        "ClusterName" => config.cluster_name = cluster_name(value)?,
        "CompleteWait" => config.complete_wait_secs = secs(value)?,
        "ControlMachine" => {
            config.controllers.insert(0, controller(value)?);
            return Ok(note("ControlMachine is an older name".to_owned(), "write SlurmctldHost=NAME(ADDRESS)"));
        }
        "ControlAddr" => {
            let primary = config.controllers.first_mut();
            let primary = primary.ok_or_else(|| SettingError::new("there is no ControlMachine above it"))?;
            primary.address = text();
            return Ok(note("ControlAddr is an older name".to_owned(), "write SlurmctldHost=NAME(ADDRESS)"));
        }
        "DebugFlags" => {
            let (flags, not_yet) = DebugFlags::parse(value)?;
            config.debug_flags = flags;
            if !not_yet.is_empty() {
                return Ok(note(format!("{} is not supported yet", not_yet.join(", ")), "the rest counts"));
            }
        }
        "DefCpuPerGPU" | "DefMemPerGPU" => config.job_defaults.set(key, value)?,
        "DefMemPerCPU" => config.def_memory = values::memory_limit(value)?.map(MemoryPer::Cpu),
        "DefMemPerNode" => config.def_memory = values::memory_limit(value)?.map(MemoryPer::Node),
        "DependencyParameters" => config.dependency_parameters = Parameters::parse(value),
        "DisableRootJobs" => config.disable_root_jobs = values::yes_no(value)?,
        "EnforcePartLimits" => config.enforce_part_limits = enforce(value)?,
        "Epilog" => config.epilog.extend(text()),
        "EpilogTimeout" => config.epilog_timeout_secs = values::number_or_unlimited(value, 0, SECS_LIMIT)?,
        "FirstJobId" => config.first_job_id = values::number(value, 1, JOB_ID_LIMIT)?,
        "GresTypes" => config.gres.types = values::optional(value).map(|text| values::list(&text)).unwrap_or_default(),
        "JobCompType" => return Ok(only_known(value, "jobcomp/", &["none"], "nothing is recorded")),
        "JobDefaults" => config.job_defaults = JobDefaults::parse(value)?,
        "JobFileAppend" => config.job_file_append = values::yes_no(value)?,
        "JobRequeue" => config.job_requeue = values::yes_no(value)?,
        "KillOnBadExit" => config.kill_on_bad_exit = values::yes_no(value)?,
        "KillWait" => config.kill_wait_secs = secs(value)?,
        "Licenses" => {
            config.licenses = licenses(value)?;
            if values::list(value).len() > config.licenses.0.len() {
                return Ok(note("a license is given more than once".to_owned(), "its counts are added up"));
            }
        }
        "MaxArraySize" => config.max_array_size = values::number(value, 0, ARRAY_LIMIT)?,
        "MaxBatchRequeue" => config.max_batch_requeue = values::number(value, 0, u32::MAX)?,
        "MaxJobCount" => config.max_job_count = values::number(value, 1, 200_000_000)?,
        "MaxJobId" => config.max_job_id = values::number(value, 1, JOB_ID_LIMIT)?,
        "MaxMemPerCPU" => config.max_memory = values::memory_limit(value)?.map(MemoryPer::Cpu),
        "MaxMemPerNode" => config.max_memory = values::memory_limit(value)?.map(MemoryPer::Node),
        "MaxNodeCount" => config.max_node_count = Some(values::number(value, 1, MOST_NODES)?),
        "MaxStepCount" => config.max_step_count = Some(values::number(value, 1, u32::MAX)?),
        "MaxTasksPerNode" => config.max_tasks_per_node = values::number(value, 1, 65_533)?,
        "MCSPlugin" => config.mcs.set_plugin(value)?,
        "MCSParameters" => {
            let without = config.mcs.set_parameters(value)?;
            let instead = "users see jobs and nodes of all labels";
            return Ok(without.and_then(|word| note(format!("{word} is not supported yet"), instead)));
        }
        "MessageTimeout" => config.message_timeout_secs = values::number(value, 1, SECS_LIMIT)?,
        "MinJobAge" => config.min_job_age_secs = values::number(value, 0, u32::MAX)?,
        "OverTimeLimit" => config.over_time_limit = OverTime::parse(value)?,
        "ResvOverRun" => config.resv_over_run = OverTime::parse(value)?,
        "PriorityType" => {
            config.priority_type = format!("priority/{}", plugin(value, "priority/", &["basic", "multifactor"])?);
        }
        "HealthCheckInterval" => config.health.interval_secs = values::number(value, 0, SECS_LIMIT)?,
        "HealthCheckNodeState" => config.health.states = HealthStates::parse(value)?,
        "HealthCheckProgram" => config.health.program = text().map(PathBuf::from),
        "Prolog" => config.prolog.extend(text()),
        "PrologEpilogTimeout" => {
            let limit = values::number_or_unlimited(value, 0, 65_534)?.filter(|&n| n <= SECS_LIMIT);
            (config.prolog_timeout_secs, config.epilog_timeout_secs) = (limit, limit);
        }
        "PrologTimeout" => config.prolog_timeout_secs = values::number_or_unlimited(value, 0, SECS_LIMIT)?,
        "PropagatePrioProcess" => {
            config.propagate_priority = match values::number(value, 0, 2)? {
                0_u8 => PropagatePriority::No,
                1 => PropagatePriority::AsAsked,
                _ => PropagatePriority::BelowDaemon,
            };
        }
        "PropagateResourceLimits" => config.propagate_limits = limits(value, false)?,
        "PropagateResourceLimitsExcept" => config.propagate_limits = limits(value, true)?,
        "ReconfigFlags" => config.reconfig_flags = Parameters::parse(value),
        "RequeueExit" => config.requeue_exit = ExitCodes::parse(value)?,
        "RequeueExitHold" => config.requeue_exit_hold = ExitCodes::parse(value)?,
        "ReturnToService" => config.return_to_service = return_to_service(value)?,
        "SchedulerParameters" => {
            let (parameters, note) = scheduling::parameters(value)?;
            config.scheduler_parameters = parameters;
            return Ok(Some(Effect(note)));
        }
        "SchedulerType" => {
            config.scheduler_type = format!("sched/{}", plugin(value, "sched/", &["backfill", "builtin"])?);
        }
        "SelectType" => return select_type(config, value),
        "SelectTypeParameters" => {
            config.select = SelectParameters::parse(value)?;
            return Ok(Some(Effect(config.select.not_yet())));
        }
        "SlurmctldAddr" => config.slurmctld_addr = text(),
        "SlurmctldSyslogDebug" => config.slurmctld_syslog_debug = Some(LogLevel::parse(value)?),
        "SlurmdSyslogDebug" => config.slurmd_syslog_debug = Some(LogLevel::parse(value)?),
        "SlurmctldDebug" => config.slurmctld_debug = LogLevel::parse(value)?,
        "SlurmctldHost" => {
            config.controllers.push(controller(value)?);
            if let [first, .., second] = &config.controllers[..] {
                let what = format!("a second controller is not supported yet: {} takes nothing over", second.name);
                return Ok(note(what, &format!("{} alone is the controller", first.name)));
            }
        }
        "SlurmctldLogFile" => config.slurmctld_log_file = text(),
        "SlurmctldParameters" => config.slurmctld_parameters = Parameters::parse(value),
        "SlurmctldPidFile" => config.slurmctld_pid_file = path(value)?,
        "SlurmctldPort" => config.slurmctld_port = PortRange::parse(value)?,
        "SlurmdDebug" => config.slurmd_debug = LogLevel::parse(value)?,
        "SlurmdLogFile" => config.slurmd_log_file = text(),
        "SlurmdParameters" => config.slurmd_parameters = slurmd_parameters(value)?,
        "SlurmdPidFile" => config.slurmd_pid_file = path(value)?,
        "SlurmdPort" => config.slurmd_port = values::number(value, 1, u16::MAX)?,
        "SlurmdSpoolDir" => config.slurmd_spool_dir = path(value)?,
        "SlurmdTimeout" => config.slurmd_timeout_secs = secs(value)?,
        "SlurmdUser" => config.slurmd_user = user(value)?,
        "SlurmUser" => config.slurm_user = user(value)?,
        "StateSaveLocation" => config.state_save_location = PathBuf::from(path(value)?),
        "TmpFS" => config.tmp_fs = path(value)?,
        "TopologyParam" => return topology_param(config, value),
        "TopologyPlugin" => {
            let known = ["default", "flat", "none", "tree", "block", "ring", "torus3d"];
            config.topology_type = format!("topology/{}", plugin(value, "topology/", &known)?);
        }
        "UnkillableStepProgram" => {
            config.unkillable_step_program = text().map(|text| path(&text)).transpose()?.map(PathBuf::from)
        }
        "UnkillableStepTimeout" => config.unkillable_step_timeout_secs = secs(value)?,
        "WaitTime" => config.wait_time_secs = secs(value)?,
        _ => {
            let preempt = config.preempt.set(key, value)?;
            return match preempt {
                Some(note) => Ok(Some(Effect(note))),
                None => Ok(config.priority.set(key, value)?.map(Effect)),
            };
        }
    }
    Ok(FULL)
}

/// Options of `TopologyParam` that are acted on.
const TOPOLOGY_PARAM: &[&str] = &["BlockAsNodeRank", "SwitchAsNodeRank", "TopoOptional"];
/// Options that Slurm has besides.
const TOPOLOGY_PARAM_NOT_YET: &[&str] = &["Dragonfly", "RoutePart", "RouteTree", "TopoMaxSizeUnroll"];

fn topology_param(config: &mut Config, value: &str) -> Value<Option<Effect>> {
    let mut known: Vec<&'static str> = TOPOLOGY_PARAM.to_vec();
    known.extend(TOPOLOGY_PARAM_NOT_YET);
    let mut not_yet = Vec::new();
    let mut taken = Vec::new();
    for word in values::list(value) {
        let name = values::choice(word.split('=').next().unwrap_or(&word), &known)?;
        if TOPOLOGY_PARAM.contains(&name) {
            taken.push(name.to_owned());
        } else {
            not_yet.push(name);
            taken.push(word);
        }
    }
    config.topology_param = Parameters(taken);
    if not_yet.is_empty() {
        return Ok(FULL);
    }
    Ok(note(format!("{} is not supported yet", not_yet.join(", ")), "the rest counts"))
}

/// The name of a plugin, with or without its kind before it, of those that there are.
fn plugin(value: &str, kind: &str, known: &[&'static str]) -> Value<&'static str> {
    let lower = value.to_ascii_lowercase();
    values::choice(lower.strip_prefix(kind).unwrap_or(&lower), known)
}

/// Plugins that Garrick has under the same name; others are noted.
fn only_known(value: &str, kind: &str, known: &[&str], instead: &str) -> Option<Effect> {
    let lower = value.to_ascii_lowercase();
    let name = lower.strip_prefix(kind).unwrap_or(&lower);
    if known.contains(&name) {
        return FULL;
    }
    note(format!("{value} is not supported yet"), instead)
}

fn select_type(config: &mut Config, value: &str) -> Value<Option<Effect>> {
    let words = ["select/cons_tres", "select/cons_res", "select/linear", "select/cray_aries"];
    config.select_type = values::choice(value, &words)?.to_owned();
    match config.select_type.as_str() {
        "select/linear" => {
            config.select.unit = SelectUnit::Node;
            Ok(FULL)
        }
        "select/cray_aries" => Ok(note(format!("{value} is not supported"), "select/cons_tres is used")),
        _ => Ok(FULL),
    }
}

fn cluster_name(text: &str) -> Value<String> {
    let fits = !text.is_empty() && text.len() <= 40 && !text.contains([' ', '/', ',', '%']);
    if fits {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(SettingError::new(format!(
            "\"{text}\" is not a name of 1 to 40 characters without blanks, commas and slashes"
        )))
    }
}

/// `host` or `host(address)`.
fn controller(text: &str) -> Value<ControllerHost> {
    let wrong =
        || SettingError::new(format!("\"{text}\" is not a host")).suggest("NAME or NAME(ADDRESS), one on each line");
    let (name, address) = match text.split_once('(') {
        Some((name, rest)) => (name, Some(rest.strip_suffix(')').ok_or_else(wrong)?)),
        None => (text, None),
    };
    if name.is_empty() || address == Some("") || text.contains([',', ' ', '/']) {
        return Err(wrong());
    }
    Ok(ControllerHost { name: name.to_owned(), address: address.map(str::to_owned) })
}

fn user(text: &str) -> Value<String> {
    if text.is_empty() || text.contains([' ', ':', '/']) {
        return Err(SettingError::new(format!("\"{text}\" is not a user's name or number")));
    }
    // `scontrol show config` writes it as name(number).
    Ok(text.split_once('(').map_or(text, |(name, _)| name).to_owned())
}

fn path(text: &str) -> Value<String> {
    if text.starts_with('/') {
        Ok(text.to_owned())
    } else {
        Err(SettingError::new(format!("\"{text}\" is not an absolute path")).suggest("begin it with a slash"))
    }
}

fn enforce(text: &str) -> Value<EnforcePartLimits> {
    Ok(match values::choice(text, &["NO", "YES", "ALL", "ANY"])? {
        "NO" => EnforcePartLimits::No,
        "ANY" => EnforcePartLimits::Any,
        _ => EnforcePartLimits::All,
    })
}

fn licenses(text: &str) -> Value<Licenses> {
    let Some(text) = values::optional(text) else { return Ok(Licenses::default()) };
    text.parse().map_err(|e: LicensesError| SettingError::new(e.to_string()).suggest("NAME:COUNT,NAME:COUNT"))
}

fn return_to_service(text: &str) -> Value<ReturnToService> {
    Ok(match values::number(text, 0, 2u8)? {
        0 => ReturnToService::Never,
        1 => ReturnToService::NonResponding,
        _ => ReturnToService::Always,
    })
}

fn limits(text: &str, except: bool) -> Value<PropagateLimits> {
    let names: Vec<String> = values::list(text)
        .iter()
        .map(|word| values::choice(word.strip_prefix("RLIMIT_").unwrap_or(word), LIMITS).map(str::to_owned))
        .collect::<Value<Vec<_>>>()?;
    let has = |word: &str| names.iter().any(|n| n == word);
    Ok(match (except, has("ALL"), has("NONE")) {
        (false, true, _) | (true, _, true) => PropagateLimits::All,
        (false, _, true) | (true, true, _) => PropagateLimits::None,
        (false, false, false) => PropagateLimits::Only(names),
        (true, false, false) => PropagateLimits::Except(names),
    })
}

/// Words, of which two of our own are numbers: how long records of steps stay.
fn slurmd_parameters(value: &str) -> Value<Parameters> {
    let parameters = Parameters::parse(value);
    for name in ["step_records_days", "step_records_mib"] {
        if let Some(number) = parameters.value(name) {
            values::number(number, 0, u32::MAX)?;
        }
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::keys::{Class, GLOBAL};

    /// Weights of what only accounting knows: kept for `sprio -w`, and warned of where they are not 0.
    const KEPT: [&str; 3] = ["PriorityWeightAssoc", "PriorityWeightFairshare", "PriorityWeightQOS"];

    #[test]
    fn exactly_the_honoured_keys_are_read() {
        for key in GLOBAL {
            let read = set(&mut Config::default(), key.name, "1");
            if KEPT.contains(&key.name) {
                assert!(matches!(read, Some(Ok(Some(_)))) && key.class == Class::NotYet, "{}", key.name);
                assert_eq!(set(&mut Config::default(), key.name, "0"), Some(Ok(None)), "{}", key.name);
            } else {
                assert_eq!(read.is_some(), key.class == Class::Honoured, "{}", key.name);
            }
        }
    }

    #[test]
    fn limits_travel_as_told() {
        assert_eq!(limits("ALL", false), Ok(PropagateLimits::All));
        assert_eq!(limits("NONE", false), Ok(PropagateLimits::None));
        assert_eq!(limits("ALL", true), Ok(PropagateLimits::None));
        assert_eq!(
            limits("nofile,RLIMIT_CORE", false),
            Ok(PropagateLimits::Only(vec!["NOFILE".into(), "CORE".into()]))
        );
        assert!(limits("NOFILES", false).is_err());
    }

    #[test]
    fn controllers_have_names_and_addresses() {
        let read = |text: &str| controller(text).map(|c| (c.name, c.address));
        assert_eq!(read("a"), Ok(("a".to_owned(), None)));
        assert_eq!(read("a(10.0.0.1)"), Ok(("a".to_owned(), Some("10.0.0.1".to_owned()))));
        for text in ["", "a(", "a()", "a,b", "(x)", "a(b)c"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
