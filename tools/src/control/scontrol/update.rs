//! `scontrol update`: parses `Key=Value` words into a change of a job, of nodes or of a partition. An unknown key is refused with
//! a suggestion, and then nothing is changed.

use super::{Session, assign, full_word, jobs, reservations, row, too_few, update_request};
use crate::{options::getopt, query::choices};
use garrick_model::{
    config::PartitionConfig,
    date, hostlist,
    messages::command::{CommandRequest, JobChange, JobSelector, NodeChange, NodeStateChange},
    resources::{MemoryMib, MemoryRequest},
    spec::{Dependencies, NodeCount},
    time::{TimeLimit, Timestamp, parse_duration_secs, system_zone},
};
use jiff::tz::TimeZone;

/// How a value is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Set,
    Add,
    Subtract,
}

/// One word.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    key: String,
    operator: Operator,
    value: String,
}

/// What is changed.
#[derive(Debug, PartialEq)]
pub(crate) enum Update {
    Job(Vec<JobSelector>, Box<JobChange>),
    Node(Vec<String>, NodeChange),
    Partition(String, Vec<(String, String)>),
}

/// A word that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UpdateError {
    #[error("Invalid input: {0}\nRequest aborted")]
    NoPair(String),
    #[error("Update of this parameter is not supported: {word}{hint}\nRequest aborted")]
    UnknownKey { word: String, hint: String },
    #[error("Invalid {key} value: {value}{why}")]
    Value { key: &'static str, value: String, why: String },
    #[error("{key} value out of range (+/- {most}). Value ignored")]
    Range { key: &'static str, most: i64 },
    #[error("No valid entity in update command\nInput line must include \"NodeName\", \"PartitionName\" or \"JobId\"")]
    NoEntity,
    #[error("{0} is not supported yet")]
    NotSupported(String),
    #[error("You must specify a reason when {0} a node. Request denied")]
    ReasonMissing(&'static str),
    #[error("No changes specified")]
    Nothing,
}

pub(super) fn wrong(key: &'static str, value: &str, why: impl std::fmt::Display) -> UpdateError {
    let why = why.to_string();
    let why = if why.is_empty() { why } else { format!(" ({why})") };
    UpdateError::Value { key, value: value.to_owned(), why }
}

fn pairs(words: &[String]) -> Result<Vec<Pair>, UpdateError> {
    words
        .iter()
        .map(|word| {
            // The one key that means something without a value.
            let pair = if word.eq_ignore_ascii_case("nice") { Some((word.as_str(), "")) } else { word.split_once('=') };
            let (key, value) = pair.ok_or_else(|| UpdateError::NoPair(word.clone()))?;
            let (key, operator) = match (key.strip_suffix('+'), key.strip_suffix('-')) {
                (Some(key), _) => (key, Operator::Add),
                (_, Some(key)) => (key, Operator::Subtract),
                _ => (key, Operator::Set),
            };
            Ok(Pair { key: key.to_owned(), operator, value: value.to_owned() })
        })
        .collect()
}

/// Runs `update`.
pub fn run(session: &mut Session, words: &[String]) -> i32 {
    if words.is_empty() {
        return too_few(session, "update");
    }
    let of_reservation = |word: &String| {
        word.split_once('=').is_some_and(|(key, _)| {
            ["reservationname", "reservation", "res"].iter().any(|name| key.eq_ignore_ascii_case(name))
        })
    };
    let of_job = |word: &String| {
        word.split_once('=').is_some_and(|(key, _)| ["jobid", "job"].iter().any(|name| key.eq_ignore_ascii_case(name)))
    };
    if words.iter().any(of_reservation) && !words.iter().any(of_job) {
        return reservations::update(session, words);
    }
    let update = match parse(words, Timestamp::now(), &system_zone()) {
        Ok(update) => update,
        Err(error) => return session.plain_error(error),
    };
    let (request, named) = match update {
        Update::Job(mut jobs, change) => {
            if let Err(code) = jobs::known(session, &mut jobs) {
                return code;
            }
            (CommandRequest::UpdateJob { jobs: jobs.clone(), change }, Some(jobs))
        }
        Update::Node(nodes, change) => (CommandRequest::UpdateNode { nodes, change }, None),
        Update::Partition(partition, fields) => (CommandRequest::UpdatePartition { partition, fields }, None),
    };
    let answer = session.cluster().and_then(|c| c.ask(&request));
    if let (CommandRequest::UpdatePartition { partition, .. }, Ok(_)) = (&request, &answer)
        && !session.manner.quiet
    {
        session.console.line(format_args!(
            "partition {partition} stays so until slurmctld is started again (longer with slurmctld -R): what is to last \
             belongs into slurm.conf"
        ));
    }
    match (named, answer) {
        (Some(jobs), answer) => jobs::tell(session, answer, &jobs, None),
        (None, Ok(_)) => 0,
        (None, Err(error)) => session.failed("slurm_update", &error),
    }
}

/// What `KEY=VALUE` words ask for.
pub(crate) fn parse(words: &[String], now: Timestamp, zone: &TimeZone) -> Result<Update, UpdateError> {
    read(&pairs(words)?, now, zone)
}

fn read(pairs: &[Pair], now: Timestamp, zone: &TimeZone) -> Result<Update, UpdateError> {
    let value_of = |keys: &[&str]| {
        pairs.iter().find(|p| keys.iter().any(|k| p.key.eq_ignore_ascii_case(k))).map(|p| p.value.as_str())
    };
    let rest = |keys: &[&str]| -> Vec<&Pair> {
        pairs.iter().filter(|p| !keys.iter().any(|k| p.key.eq_ignore_ascii_case(k))).collect()
    };
    if let Some(nodes) = value_of(&["NodeName", "Node", "Nodes"]) {
        let names = hostlist::expand(nodes).map_err(|e| wrong("NodeName", nodes, e))?;
        return Ok(Update::Node(names, node_change(&rest(&["NodeName", "Node", "Nodes"]))?));
    }
    if let Some(partition) = value_of(&["PartitionName"]) {
        return partition_change(partition, &rest(&["PartitionName"]));
    }
    if let Some(ids) = value_of(&["JobId", "Job", "JobID"]) {
        let jobs = choices::jobs(ids).map_err(|e| wrong("JobId", ids, e))?;
        return Ok(Update::Job(jobs, Box::new(job_change(&rest(&["JobId", "Job"]), now, zone)?)));
    }
    for entity in ["StepId", "FrontendName", "SuspendExcNodes", "SuspendExcParts"] {
        if value_of(&[entity]).is_some() {
            return Err(UpdateError::NotSupported(format!("scontrol update {entity}=")));
        }
    }
    Err(UpdateError::NoEntity)
}

const JOB_KEYS: &[&str] = &[
    "account",
    "admincomment",
    "arraytaskthrottle",
    "comment",
    "consolidatesegments",
    "contiguous",
    "corespec",
    "cpuspertask",
    "deadline",
    "delayboot",
    "dependency",
    "eligibletime",
    "excnodelist",
    "extra",
    "features",
    "jobname",
    "licenses",
    "mcslabel",
    "mincpusnode",
    "minmemorycpu",
    "minmemorynode",
    "mintmpdisknode",
    "name",
    "nice",
    "numnodes",
    "numtasks",
    "partition",
    "prefer",
    "priority",
    "qos",
    "reqcores",
    "reqnodelist",
    "reqnodes",
    "reqprocs",
    "reqsockets",
    "reqthreads",
    "requeue",
    "reservationname",
    "segmentsize",
    "sitefactor",
    "spreadsegments",
    "starttime",
    "stderr",
    "stdin",
    "stdout",
    "switches",
    "taskspernode",
    "threadspec",
    "timelimit",
    "timemin",
    "wait-for-switch",
    "wckey",
    "workdir",
];

fn unknown(pair: &Pair, known: &[&str]) -> UpdateError {
    let hint = getopt::nearest(&pair.key.to_ascii_lowercase(), known.iter().copied())
        .map(|k| format!(" (did you mean {k}?)"))
        .unwrap_or_default();
    UpdateError::UnknownKey { word: format!("{}={}", pair.key, pair.value), hint }
}

pub(super) fn number<N: std::str::FromStr>(key: &'static str, value: &str) -> Result<N, UpdateError> {
    value.parse().map_err(|_| wrong(key, value, ""))
}

/// Nice and site factor: as far as Slurm documents them.
fn adjustment(key: &'static str, value: &str) -> Result<i32, UpdateError> {
    const MOST: i64 = 2_147_483_645;
    match number::<i64>(key, value)? {
        n if (-MOST..=MOST).contains(&n) => i32::try_from(n).map_err(|_| wrong(key, value, "")),
        _ => Err(UpdateError::Range { key, most: MOST }),
    }
}

fn job_change(pairs: &[&Pair], now: Timestamp, zone: &TimeZone) -> Result<JobChange, UpdateError> {
    if pairs.is_empty() {
        return Err(UpdateError::Nothing);
    }
    let mut change = JobChange::default();
    for pair in pairs {
        let value = pair.value.as_str();
        let key = full_word(&pair.key, JOB_KEYS).ok_or_else(|| unknown(pair, JOB_KEYS))?;
        if pair.operator != Operator::Set && key != "timelimit" {
            return Err(unknown(pair, JOB_KEYS));
        }
        match key {
            "account" => change.account = Some(value.to_owned()),
            "admincomment" => change.admin_comment = Some(value.to_owned()),
            "arraytaskthrottle" => change.array_limit = Some(number("ArrayTaskThrottle", value)?),
            "comment" => change.comment = Some(value.to_owned()),
            "extra" => change.extra = Some(value.to_owned()),
            "dependency" => change.dependencies = Some(dependencies(value)?),
            "starttime" | "eligibletime" => {
                let name = if key == "starttime" { "StartTime" } else { "EligibleTime" };
                let at = date::parse_date(value, now, zone).map_err(|e| wrong(name, value, e))?;
                change.begin = Some(at);
            }
            "excnodelist" => change.exclude = Some(names("ExcNodeList", value)?),
            "reqnodelist" => change.nodelist = Some(names("ReqNodeList", value)?),
            "features" => change.constraint = Some(value.to_owned()),
            "prefer" => change.prefer = Some(value.to_owned()),
            "licenses" => change.licenses = Some(value.to_owned()),
            "mcslabel" => change.mcs_label = Some(value.to_owned()),
            "jobname" | "name" => change.name = Some(value.to_owned()),
            "minmemorynode" => change.memory = Some(MemoryRequest::PerNode(memory("MinMemoryNode", value)?)),
            "minmemorycpu" => change.memory = Some(MemoryRequest::PerCpu(memory("MinMemoryCPU", value)?)),
            "nice" => {
                change.nice = Some(if value.is_empty() { 100 } else { adjustment("Nice", value)? });
            }
            "numnodes" | "reqnodes" => {
                change.node_sizes = value.parse().map_err(|_| wrong("NumNodes", value, ""))?;
                change.nodes = Some(change.node_sizes.bounds().map_or_else(|| node_count(value), Ok)?);
            }
            "numtasks" | "reqprocs" => change.tasks = Some(number("NumTasks", value)?),
            "partition" => change.partitions = Some(choices::words(value)),
            "timemin" => {
                let least: TimeLimit = value.parse().map_err(|_| wrong("TimeMin", value, ""))?;
                change.time_min = Some(least);
            }
            "priority" => change.priority = Some(number("Priority", value)?),
            "sitefactor" => change.site_factor = Some(adjustment("SiteFactor", value)?),
            "reservationname" => change.reservations = Some(choices::words(value)),
            "segmentsize" => change.segment = Some(number("SegmentSize", value)?),
            "switches" => {
                let (count, time) = value.split_once('@').map_or((value, None), |(count, time)| (count, Some(time)));
                let secs = time.map(parse_duration_secs).transpose().map_err(|e| wrong("Switches", value, e))?;
                change.switches = Some((number("Switches", count)?, secs.flatten()));
            }
            "requeue" => change.requeue = Some(number::<u8>("Requeue", value)? != 0),
            "timelimit" => time_limit(&mut change, pair)?,
            _ => update_request::read(&mut change.request, (key, value), now, zone)?,
        }
    }
    Ok(change)
}

fn time_limit(change: &mut JobChange, pair: &Pair) -> Result<(), UpdateError> {
    let value = pair.value.as_str();
    // `+5` and `-5` as the value mean the same as `+=5` and `-=5`.
    let (operator, text) = match (pair.operator, value.strip_prefix('+'), value.strip_prefix('-')) {
        (Operator::Set, Some(text), _) => (Operator::Add, text),
        (Operator::Set, None, Some(text)) if value != "-1" => (Operator::Subtract, text),
        (operator, ..) => (operator, value),
    };
    if operator == Operator::Set {
        change.time_limit = Some(text.parse::<TimeLimit>().map_err(|e| wrong("TimeLimit", value, e))?);
        return Ok(());
    }
    let secs = parse_duration_secs(text)
        .ok()
        .flatten()
        .and_then(|s| i64::try_from(s).ok())
        .ok_or_else(|| wrong("TimeLimit", value, ""))?;
    change.time_limit_delta_secs = Some(if operator == Operator::Add { secs } else { -secs });
    Ok(())
}

fn dependencies(value: &str) -> Result<Dependencies, UpdateError> {
    if value.is_empty() || value == "0" {
        return Ok(Dependencies::default());
    }
    value.parse().map_err(|e| wrong("Dependency", value, e))
}

fn names(key: &'static str, value: &str) -> Result<Vec<String>, UpdateError> {
    if value.is_empty() {
        return Ok(Vec::new());
    }
    hostlist::expand(value).map_err(|e| wrong(key, value, e))
}

pub(super) fn memory(key: &'static str, value: &str) -> Result<MemoryMib, UpdateError> {
    value.parse().map_err(|e| wrong(key, value, e))
}

fn node_count(value: &str) -> Result<NodeCount, UpdateError> {
    let (min, max) = match value.split_once('-') {
        Some((min, max)) => (number("NumNodes", min)?, Some(number("NumNodes", max)?)),
        None => (number("NumNodes", value)?, None),
    };
    if min == 0 || max.is_some_and(|m| m < min) {
        return Err(wrong("NumNodes", value, ""));
    }
    Ok(NodeCount { min, max })
}

/// A key of a node, and what it changes.
type NodeKey = (&'static str, fn(&mut NodeChange, &str) -> Result<(), UpdateError>);

/// Keys of nodes; the beginning of one will do.
const NODE_KEYS: &[NodeKey] = &[
    ("activefeatures", features),
    ("availablefeatures", features),
    ("comment", |change, value| assign(&mut change.comment, Ok(value.to_owned()))),
    ("extra", |change, value| assign(&mut change.extra, Ok(value.to_owned()))),
    ("features", features),
    ("reason", |change, value| assign(&mut change.reason, Ok(value.to_owned()))),
    ("state", |change, value| assign(&mut change.state, node_state(value))),
    ("topology", |change, value| assign(&mut change.topology, Ok(value.to_owned()))),
    ("weight", |change, value| assign(&mut change.weight, number("Weight", value))),
];
const NODE_STATES: &[&str] = &["drain", "undrain", "down", "resume", "idle", "fail"];

fn features(change: &mut NodeChange, value: &str) -> Result<(), UpdateError> {
    assign(&mut change.features, Ok(choices::words(value)))
}

fn node_change(pairs: &[&Pair]) -> Result<NodeChange, UpdateError> {
    if pairs.is_empty() {
        return Err(UpdateError::Nothing);
    }
    let names = || NODE_KEYS.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let mut change = NodeChange::default();
    for pair in pairs {
        let known = row(&pair.key, NODE_KEYS, |(name, _)| name);
        let (_, change_it) = known.ok_or_else(|| unknown(pair, &names()))?;
        change_it(&mut change, &pair.value)?;
    }
    let no_reason = change.reason.as_ref().is_none_or(|r| r.trim().is_empty());
    match change.state {
        Some(NodeStateChange::Drain) if no_reason => Err(UpdateError::ReasonMissing("DRAINING")),
        Some(NodeStateChange::Down) if no_reason => Err(UpdateError::ReasonMissing("DOWNING")),
        Some(NodeStateChange::Fail) if no_reason => Err(UpdateError::ReasonMissing("FAILING")),
        _ => Ok(change),
    }
}

fn node_state(value: &str) -> Result<NodeStateChange, UpdateError> {
    let lower = value.to_ascii_lowercase();
    Ok(match lower.as_str() {
        "drain" | "drained" | "draining" => NodeStateChange::Drain,
        "undrain" => NodeStateChange::Undrain,
        "down" => NodeStateChange::Down,
        "resume" | "idle" => NodeStateChange::Resume,
        "fail" => NodeStateChange::Fail,
        "future" | "power_up" | "power_down" | "power_down_asap" | "power_down_force" | "noresp" | "resp"
        | "cancel_reboot" => {
            return Err(UpdateError::NotSupported(format!("State={}", lower.to_ascii_uppercase())));
        }
        _ => {
            let valid = NODE_STATES.iter().map(|s| s.to_ascii_uppercase()).collect::<Vec<_>>().join(" ");
            return Err(wrong("State", value, format_args!("valid states are {valid}")));
        }
    })
}

fn partition_change(partition: &str, pairs: &[&Pair]) -> Result<Update, UpdateError> {
    if pairs.is_empty() {
        return Err(UpdateError::Nothing);
    }
    let mut keys: Vec<String> = PartitionConfig::update_keys().map(str::to_ascii_lowercase).collect();
    keys.sort_unstable();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let fields = pairs
        .iter()
        .map(|pair| {
            let known = keys.contains(&pair.key.to_ascii_lowercase().as_str());
            if known && pair.operator == Operator::Set {
                Ok((pair.key.clone(), pair.value.clone()))
            } else {
                Err(unknown(pair, &keys))
            }
        })
        .collect::<Result<_, _>>()?;
    Ok(Update::Partition(partition.to_owned(), fields))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::{ids::JobId, messages::request_change::RequestChange, node_shape::SpecCores};

    fn read_words(words: &[&str]) -> Result<Update, UpdateError> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        read(&pairs(&words)?, Timestamp::from_secs(1_795_255_251), &TimeZone::UTC)
    }

    #[test]
    fn job_fields_are_read_with_their_units() {
        let Update::Job(jobs, change) =
            read_words(&["jobid=5,6", "TimeLimit=10", "nice=-5", "Partition=a,b", "minmemorynode=2G"]).unwrap()
        else {
            panic!("a job update");
        };
        assert_eq!(jobs.iter().map(|j| j.job).collect::<Vec<_>>(), [JobId(5), JobId(6)]);
        assert_eq!(change.time_limit, Some(TimeLimit::Secs(600)));
        assert_eq!(change.nice, Some(-5));
        assert_eq!(change.partitions, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(change.memory, Some(MemoryRequest::PerNode(MemoryMib(2048))));
    }

    #[test]
    fn the_request_of_a_job_is_read_word_by_word() {
        let change = |words: &[&str]| match read_words(&[&["JobId=5"], words].concat()).unwrap() {
            Update::Job(_, change) => *change,
            other => panic!("{other:?}"),
        };
        let sizes = change(&["NumNodes=1-15:4"]);
        assert_eq!((sizes.nodes, sizes.node_sizes.to_string()), (sizes.node_sizes.bounds(), "1-15:4".to_owned()));
        assert!(change(&["NumNodes=2-4"]).node_sizes.is_empty());
        let words =
            ["CoreSpec=2", "CPUsPerTask=3", "Contiguous=yes", "DelayBoot=5", "MinCPUsNode=4", "StdErr=", "QOS=high"];
        let expected = RequestChange {
            left_to_system: Some(SpecCores::Cores(2)),
            cpus_per_task: Some(3),
            contiguous: Some(true),
            delay_boot_secs: Some(300),
            min_cpus_per_node: Some(4),
            stderr: Some(String::new()),
            qos: Some("high".to_owned()),
            ..RequestChange::default()
        };
        assert_eq!(change(&words).request, expected);
        assert_eq!(change(&["ThreadSpec=1"]).request.left_to_system, Some(SpecCores::Threads(1)));
        assert_eq!(change(&["ReqProcs=6"]).tasks, Some(6));
        for wrong in ["WorkDir=here", "Contiguous=perhaps", "CoreSpec=x", "DelayBoot=UNLIMITED", "NumNodes=1,"] {
            assert!(matches!(read_words(&["JobId=5", wrong]), Err(UpdateError::Value { .. })), "{wrong}");
        }
    }

    #[test]
    fn the_least_limit_is_read_as_limits_are() {
        let least = |word: &str| {
            read_words(&["JobId=5", word]).map(|update| match update {
                Update::Job(_, change) => change.time_min,
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(least("TimeMin=10").unwrap(), Some(TimeLimit::Secs(600)));
        assert!(least("TimeMin=soon").unwrap_err().to_string().contains("Invalid TimeMin value: soon"));
    }

    #[test]
    fn a_job_moves_to_a_reservation_or_out_of_it() {
        let reservations = |word: &str| match read_words(&["JobId=5", word]).unwrap() {
            Update::Job(_, change) => change.reservations,
            other => panic!("{other:?}"),
        };
        assert_eq!(reservations("ReservationName=a,b"), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(reservations("Reservation="), Some(vec![]));
    }

    #[test]
    fn time_limit_can_grow_and_shrink() {
        let delta = |word: &str| match read_words(&["JobId=5", word]).unwrap() {
            Update::Job(_, change) => change.time_limit_delta_secs,
            other => panic!("{other:?}"),
        };
        assert_eq!(delta("TimeLimit+=30"), Some(1800));
        assert_eq!(delta("TimeLimit-=1:00"), Some(-60));
        assert_eq!(delta("TimeLimit=+5"), Some(300));
    }

    #[test]
    fn unknown_keys_are_refused_with_a_suggestion() {
        assert_eq!(
            read_words(&["JobId=5", "TimeLimt=3"]).unwrap_err().to_string(),
            "Update of this parameter is not supported: TimeLimt=3 (did you mean timelimit?)\nRequest aborted"
        );
        assert!(read_words(&["PartitionName=debug", "MaxTiem=3"]).unwrap_err().to_string().contains("maxtime"));
        assert_eq!(read_words(&["foo"]).unwrap_err(), UpdateError::NoPair("foo".to_owned()));
        assert_eq!(read_words(&["foo=1"]).unwrap_err(), UpdateError::NoEntity);
    }

    #[test]
    fn draining_a_node_needs_a_reason() {
        assert_eq!(read_words(&["nodename=n1", "state=drain"]).unwrap_err(), UpdateError::ReasonMissing("DRAINING"));
        let change = NodeChange {
            state: Some(NodeStateChange::Drain),
            reason: Some("bad fan".to_owned()),
            ..NodeChange::default()
        };
        assert_eq!(
            read_words(&["nodename=n[1-2]", "state=DRAIN", "reason=bad fan"]).unwrap(),
            Update::Node(vec!["n1".to_owned(), "n2".to_owned()], change)
        );
        assert!(read_words(&["nodename=n1", "state=resume"]).is_ok());
        let change = JobChange { prefer: Some("fast".to_owned()), ..JobChange::default() };
        assert!(matches!(read_words(&["jobid=5", "prefer=fast"]).unwrap(), Update::Job(_, made) if *made == change));
    }
}
