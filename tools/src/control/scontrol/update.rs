//! `scontrol update`: parses `Key=Value` words into a change of a job, of nodes or of a partition. An unknown key is refused with
//! a suggestion, and then nothing is changed.

use super::{
    NOT_THEIRS, Session, assign, daemons, full_word,
    job_keys::JOB_KEYS,
    jobs,
    keys::{Given, Key, KeyError, Pair, find, hint, signed, wrong},
    reservations, steps,
};
use crate::query::choices;
use garrick_asking::contact::{self, Asked};
use garrick_model::{
    config::{PartitionConfig, SettingError},
    hostlist,
    messages::command::{CommandRequest, JobChange, JobSelector, NodeChange, NodePlace, NodeStateChange, ResumeAfter},
    time::{Timestamp, system_zone},
};
use jiff::tz::TimeZone;

/// What is changed.
#[derive(Debug, PartialEq)]
pub(crate) enum Update {
    Job(Vec<JobSelector>, Box<JobChange>),
    /// All jobs of that name that are not over.
    JobsNamed(String, Box<JobChange>),
    Node(Vec<String>, NodeChange),
    Partition(String, Vec<(String, String)>),
}

/// Runs `update`.
pub fn run(session: &mut Session, words: &[String]) -> i32 {
    if words.is_empty() {
        return session.plain_error("too few arguments for update keyword");
    }
    let words = &joined(words);
    let names = |keys: &[&str]| words.iter().any(|word| Pair::split(word, "").is_some_and(|pair| pair.is(keys)));
    if names(&RESERVATION) && !names(&JOB) {
        return reservations::update(session, words);
    }
    if names(&STEP) {
        return steps::update(session, words);
    }
    if let [word] = &words[..]
        && let Some(pair) = Pair::split(word, "").filter(|pair| pair.is(&["SlurmctldDebug"]))
    {
        return daemons::set_debug(session, &[pair.value.to_owned()]);
    }
    let update = match parse(words, Timestamp::now(), &system_zone()) {
        Ok(update) => update,
        Err(error) => return session.wrong(&error),
    };
    let (request, named) = match update {
        Update::JobsNamed(name, change) => match jobs::of_name(session, &name) {
            Ok(jobs) if jobs.is_empty() => {
                session.console.error(format_args!("No jobs with name '{name}'"));
                return 1;
            }
            Ok(jobs) => (CommandRequest::UpdateJob { jobs: jobs.clone(), change }, Some(jobs)),
            Err(code) => return code,
        },
        Update::Job(mut jobs, change) => {
            if let Err(code) = jobs::known(session, &mut jobs) {
                return code;
            }
            (CommandRequest::UpdateJob { jobs: jobs.clone(), change }, Some(jobs))
        }
        Update::Node(nodes, change) => return update_nodes(session, nodes, change),
        Update::Partition(partition, fields) => (CommandRequest::UpdatePartition { partition, fields }, None),
    };
    let answer = session.cluster().and_then(|c| c.ask(&request));
    if let (CommandRequest::UpdatePartition { partition, .. }, Ok(_)) = (&request, &answer) {
        session.console.verbose(format_args!(
            "partition {partition} stays so until slurmctld is started again (longer with slurmctld -R): what is to last \
             belongs into slurm.conf"
        ));
    }
    match (named, answer) {
        (Some(jobs), answer) => jobs::tell(session, answer, &jobs, jobs::Told::AsOwner),
        (None, Ok(_)) => 0,
        (None, Err(error)) => session.denied("slurm_update error: ", &error, NOT_THEIRS),
    }
}

/// The key that has no value.
const RESET: &str = "ResetAccrueTime";

/// `job 12` is `job=12`, as Slurm reads it; of other entities it is not.
fn joined(words: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::with_capacity(words.len());
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        let is_key = [&JOB[..], &JOB_NAME].concat().iter().any(|key| word.eq_ignore_ascii_case(key));
        match rest.next_if(|_| is_key) {
            Some(value) => all.push(format!("{word}={value}")),
            None if word.eq_ignore_ascii_case(RESET) => all.push(format!("{RESET}=")),
            None => all.push(word.clone()),
        }
    }
    all
}

/// Addresses, host names, and ids and types of instances are one for each node, or one for all of them.
fn each_with_its_own(nodes: &[String], change: &NodeChange) -> Result<Vec<CommandRequest>, KeyError> {
    let of_each = |list: &Option<String>, key| -> Result<Vec<Option<String>>, KeyError> {
        let Some(list) = list else { return Ok(vec![None; nodes.len()]) };
        let names = hostlist::expand(list).map_err(|e| wrong(key, list, e))?;
        match &names[..] {
            [one] => Ok(vec![Some(one.clone()); nodes.len()]),
            names if names.len() == nodes.len() => Ok(names.iter().cloned().map(Some).collect()),
            _ => Err(wrong(key, list, format!("{} for {} nodes", names.len(), nodes.len()))),
        }
    };
    let place = change.place.clone().unwrap_or_default();
    let addresses = of_each(&place.address, "NodeAddr")?;
    let hostnames = of_each(&place.hostname, "NodeHostname")?;
    let of_instances = |text: &Option<String>, key| match text {
        Some(one) if !one.contains([',', '[']) => Ok(vec![Some(one.clone()); nodes.len()]),
        list => of_each(list, key),
    };
    let ids = of_instances(&place.instance_id, "InstanceId")?;
    let kinds = of_instances(&place.instance_type, "InstanceType")?;
    let places = addresses.into_iter().zip(hostnames).zip(ids.into_iter().zip(kinds));
    let one = |(node, ((address, hostname), (instance_id, instance_type))): (&String, _)| CommandRequest::UpdateNode {
        nodes: vec![node.clone()],
        change: NodeChange {
            place: Some(Box::new(NodePlace { address, hostname, instance_id, instance_type })),
            ..change.clone()
        },
    };
    Ok(nodes.iter().zip(places).map(one).collect())
}

/// Changes nodes.
fn update_nodes(session: &mut Session, nodes: Vec<String>, change: NodeChange) -> i32 {
    let named = match all_or_named(session, nodes) {
        Ok(nodes) => nodes,
        Err(error) => return session.denied("slurm_update error: ", &error, NOT_THEIRS),
    };
    let requests = match &change.place {
        None => vec![CommandRequest::UpdateNode { nodes: named, change }],
        Some(_) => match each_with_its_own(&named, &change) {
            Ok(requests) => requests,
            Err(error) => return session.wrong(&error),
        },
    };
    for request in requests {
        if let Err(error) = session.cluster().and_then(|c| c.ask(&request)) {
            return session.denied("slurm_update error: ", &error, NOT_THEIRS);
        }
    }
    0
}

/// The word ALL alone means every node.
pub(super) fn all_or_named(session: &mut Session, nodes: Vec<String>) -> Asked<Vec<String>> {
    if !matches!(&nodes[..], [one] if one.eq_ignore_ascii_case("all")) {
        return Ok(nodes);
    }
    Ok(contact::nodes(session.cluster()?)?.iter().map(|node| node.name.clone()).collect())
}

/// What `KEY=VALUE` words ask for.
pub(crate) fn parse(words: &[String], now: Timestamp, zone: &TimeZone) -> Result<Update, KeyError> {
    let pairs = words.iter().map(|word| Pair::split(word, "nice").ok_or_else(|| KeyError::NoPair(word.clone())));
    let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
    let entity = |keys: &[&str]| pairs.iter().find(|pair| pair.is(keys)).map(|pair| pair.value);
    let rest = |keys: &[&str]| match pairs.iter().copied().filter(|pair| !pair.is(keys)).collect::<Vec<_>>() {
        none if none.is_empty() => Err(KeyError::Nothing),
        rest => Ok(rest),
    };
    if let Some(ids) = entity(&JOB) {
        let jobs = choices::jobs(ids).map_err(|_| KeyError::JobId(ids.to_owned()))?;
        let change = changed(JOB_KEYS, &rest(&JOB)?, now, zone)?;
        return Ok(Update::Job(jobs, Box::new(change)));
    }
    if let Some(partition) = entity(&PARTITION) {
        return Ok(Update::Partition(partition.to_owned(), partition_fields(&rest(&PARTITION)?)?));
    }
    if let Some(nodes) = entity(&NODE) {
        let names = hostlist::expand(nodes).map_err(|e| wrong("NodeName", nodes, e))?;
        return Ok(Update::Node(names, node_change(&rest(&NODE)?, now, zone)?));
    }
    if let Some(name) = entity(&JOB_NAME) {
        let change = changed(JOB_KEYS, &rest(&JOB_NAME)?, now, zone)?;
        return Ok(Update::JobsNamed(name.to_owned(), Box::new(change)));
    }
    match ["SuspendExcNodes", "SuspendExcParts", "SuspendExcStates"].iter().find(|e| entity(&[e]).is_some()) {
        Some(entity) => Err(KeyError::NotSupported(format!("scontrol update {entity}="))),
        None => Err(KeyError::NoEntity),
    }
}

/// Keys that name what is updated.
const NODE: [&str; 3] = ["NodeName", "Node", "Nodes"];
const PARTITION: [&str; 1] = ["PartitionName"];
const JOB: [&str; 2] = ["JobId", "Job"];
/// Of jobs, where none is named by its id.
const JOB_NAME: [&str; 2] = ["JobName", "Name"];
const STEP: [&str; 1] = ["StepId"];
const RESERVATION: [&str; 3] = ["ReservationName", "Reservation", "Res"];

/// The change that these words of a record come to.
fn changed<C: Default>(
    table: &'static [Key<C>],
    pairs: &[Pair<'_>],
    now: Timestamp,
    zone: &TimeZone,
) -> Result<C, KeyError> {
    let mut change = C::default();
    for pair in pairs {
        let known = find(pair.key, table).filter(|known| known.signed || pair.sign.is_none());
        let Some((known, read)) = known.and_then(|known| Some((known, known.read?))) else {
            return Err(unknown(*pair, table.iter().map(|row| row.name)));
        };
        read(&mut change, &known.given(*pair, now, zone))?;
    }
    Ok(change)
}

fn unknown<'k>(pair: Pair<'_>, known: impl Iterator<Item = &'k str>) -> KeyError {
    KeyError::UnknownKey { word: format!("{}={}", pair.key, pair.value), hint: hint(pair.key, known) }
}

/// Keys of nodes; the beginning of one will do. A sign before `=` is overlooked.
static NODE_KEYS: &[Key<NodeChange>] = &[
    signed("ActiveFeatures", |c, given| assign(&mut c.features, given.words())),
    signed("AvailableFeatures", |c, given| assign(&mut c.features, given.words())),
    signed("Comment", |c, given| assign(&mut c.comment, given.text())),
    signed("Extra", |c, given| assign(&mut c.extra, given.text())),
    signed("Features", |c, given| assign(&mut c.features, given.words())),
    signed("InstanceId", |c, given| assign(&mut c.place.get_or_insert_default().instance_id, given.text())),
    signed("InstanceType", |c, given| assign(&mut c.place.get_or_insert_default().instance_type, given.text())),
    signed("NodeAddr", |c, given| assign(&mut c.place.get_or_insert_default().address, given.text())),
    signed("NodeHostName", |c, given| assign(&mut c.place.get_or_insert_default().hostname, given.text())),
    signed("Reason", |c, given| assign(&mut c.reason, given.text())),
    signed("ResumeAfter", |c, given| {
        let wrong = |_| KeyError::NodeValue { key: "ResumeAfter", word: format!("ResumeAfter={}", given.value) };
        let after = match given.value {
            "-1" => Ok(ResumeAfter::Never),
            secs => secs.parse().map(ResumeAfter::Secs).map_err(wrong),
        };
        assign(&mut c.resume_after, after)
    }),
    signed("State", |c, given| assign(&mut c.state, node_state(given))),
    signed("Topology", |c, given| assign(&mut c.topology, given.text())),
    signed("Weight", |c, given| {
        let wrong = |_| KeyError::NodeValue { key: "Weight", word: format!("weight={}", given.value) };
        assign(&mut c.weight, given.parsed().map_err(wrong))
    }),
];
/// As Slurm lists them. The others are known to it and not there yet, and told so.
const NODE_STATES: &str = "DRAIN FAIL RESUME POWER_DOWN POWER_UP UNDRAIN";

fn node_change(pairs: &[Pair<'_>], now: Timestamp, zone: &TimeZone) -> Result<NodeChange, KeyError> {
    let change = changed(NODE_KEYS, pairs, now, zone)?;
    let no_reason = change.reason.as_ref().is_none_or(|r| r.trim().is_empty());
    match change.state {
        Some(NodeStateChange::Drain | NodeStateChange::Down | NodeStateChange::Fail) if no_reason => {
            Err(KeyError::ReasonMissing)
        }
        Some(NodeStateChange::Drain | NodeStateChange::Down | NodeStateChange::Fail) => Ok(change),
        _ if change.resume_after.is_some() => Err(KeyError::ResumeWithout),
        _ => Ok(change),
    }
}

fn node_state(given: &Given<'_>) -> Result<NodeStateChange, KeyError> {
    let lower = given.value.to_ascii_lowercase();
    Ok(match lower.as_str() {
        "drain" | "drained" | "draining" => NodeStateChange::Drain,
        "undrain" => NodeStateChange::Undrain,
        "down" => NodeStateChange::Down,
        "resume" | "idle" => NodeStateChange::Resume,
        "fail" => NodeStateChange::Fail,
        "power_up" => NodeStateChange::PowerUp,
        "power_down" => NodeStateChange::PowerDown,
        "power_down_asap" => NodeStateChange::PowerDownAsap,
        "power_down_force" => NodeStateChange::PowerDownForce,
        "cancel_reboot" => NodeStateChange::CancelReboot,
        "future" | "noresp" | "resp" => {
            return Err(KeyError::NotSupported(format!("State={}", lower.to_ascii_uppercase())));
        }
        _ => return Err(KeyError::NodeState(format!("state={}", given.value), NODE_STATES)),
    })
}

/// Keys of partitions are those of `slurm.conf`: the controller reads their values.
pub(super) fn partition_fields(pairs: &[Pair<'_>]) -> Result<Vec<(String, String)>, KeyError> {
    let known: Vec<&'static str> = PartitionConfig::update_keys().collect();
    let field = |pair: &Pair<'_>| {
        let key = full_word(pair.key, &known).filter(|key| pair.sign.is_none() || *key == "Nodes");
        let key = key.ok_or_else(|| KeyError::PartitionKey(format!("{}={}", pair.key, pair.value)))?;
        let value = pair.value_with_sign();
        // Nodes are known to the controller.
        if key != "Nodes" {
            PartitionConfig::default().set(key, &value).map_err(|why| partition_value(key, *pair, &why))?;
        }
        // An older key in place of these two.
        Ok(match key {
            "Priority" => vec![("PriorityJobFactor".to_owned(), value.clone()), ("PriorityTier".to_owned(), value)],
            _ => vec![(key.to_owned(), value)],
        })
    };
    Ok(pairs.iter().map(field).collect::<Result<Vec<_>, KeyError>>()?.concat())
}

/// What is said of a value that a partition's key cannot have. `why` is the reader's own word.
fn partition_value(name: &str, pair: Pair<'_>, why: &SettingError) -> KeyError {
    let word = format!("{}={}", pair.key, pair.value);
    let acceptable = match name {
        "State" => Some("UP, DOWN, DRAIN and INACTIVE"),
        "OverSubscribe" => Some("NO, EXCLUSIVE, YES:#, and FORCE:#"),
        "Exclusive" => Some("NO, NODE, USER, TOPO"),
        "Default" | "DisableRootJobs" | "ExclusiveTopo" | "ExclusiveUser" | "Hidden" | "LLN" | "PowerDownOnIdle"
        | "ReqResv" | "RootOnly" => Some("YES and NO"),
        _ => None,
    };
    let text = match (name, acceptable) {
        (_, Some(values)) => {
            format!("scontrol: error: Invalid input: {word}\nscontrol: error: Acceptable {name} values are {values}")
        }
        ("MaxTime" | "DefaultTime", _) => format!("scontrol: error: Invalid input {word}"),
        ("PreemptMode", _) => format!("scontrol: error: Invalid input: {word}"),
        ("JobDefaults", _) => "slurm_update error: Invalid JobDefaults specification".to_owned(),
        ("MaxNodes", _) => format!("scontrol: error: Invalid numeric value \"{}\" for MaxNodes.", pair.value),
        _ => format!("scontrol: error: Invalid {name} value: {}", pair.value),
    };
    KeyError::PartitionValue { text, why: why.to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::{
        ids::JobId,
        messages::request_change::RequestChange,
        node_shape::SpecCores,
        resources::{MemoryMib, MemoryRequest},
        time::TimeLimit,
    };

    fn read_words(words: &[&str]) -> Result<Update, KeyError> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        parse(&words, Timestamp::from_secs(1_795_255_251), &TimeZone::UTC)
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
        for wrong in ["WorkDir=here", "Contiguous=perhaps", "CoreSpec=x", "NumNodes=1,"] {
            assert!(matches!(read_words(&["JobId=5", wrong]), Err(KeyError::Value { .. })), "{wrong}");
        }
        for (key, wrong) in
            [("DelayBoot", "DelayBoot=UNLIMITED"), ("TimeLimit", "TimeLimit=x"), ("TimeLimit", "TimeLimit=+x")]
        {
            assert_eq!(read_words(&["JobId=5", wrong]), Err(KeyError::Unnamed(key)), "{wrong}");
        }
    }

    #[test]
    fn jobs_are_named_by_their_ids_before_all_else() {
        assert!(matches!(read_words(&["JobName=a", "nice=3"]).unwrap(), Update::JobsNamed(name, _) if name == "a"));
        assert!(matches!(read_words(&["jobid=5", "JobName=a"]).unwrap(), Update::Job(..)));
        let both = read_words(&["jobid=5", "nodename=n1", "nice=1"]).unwrap_err();
        assert!(both.to_string().starts_with("Update of this parameter is not supported: nodename=n1"), "{both}");
        assert_eq!(read_words(&["jobid=x", "nice=1"]).unwrap_err(), KeyError::JobId("x".to_owned()));
        assert!(matches!(
            read_words(&["partitionname=p", "nodes=n1"]),
            Ok(Update::Partition(..)) | Err(KeyError::PartitionKey(_))
        ));
    }

    #[test]
    fn values_of_partitions_are_refused_in_slurms_words() {
        let said = |word: &str| read_words(&["PartitionName=debug", word]).unwrap_err().to_string();
        let two = |word: &str, values: &str| {
            format!("scontrol: error: Invalid input: {word}\nscontrol: error: Acceptable {values}")
        };
        assert_eq!(said("state=x"), two("state=x", "State values are UP, DOWN, DRAIN and INACTIVE"));
        assert_eq!(said("hidden=x"), two("hidden=x", "Hidden values are YES and NO"));
        assert_eq!(said("maxtime=x"), "scontrol: error: Invalid input maxtime=x");
        assert_eq!(said("maxnodes=x"), "scontrol: error: Invalid numeric value \"x\" for MaxNodes.");
        assert_eq!(said("gracetime=x"), "scontrol: error: Invalid GraceTime value: x");
        assert!(read_words(&["PartitionName=debug", "state=up"]).is_ok());
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
        let error = read_words(&["JobId=5", "TimeLimt=3"]).unwrap_err();
        assert_eq!(error.to_string(), "Update of this parameter is not supported: TimeLimt=3\nRequest aborted");
        assert_eq!(error.hint(), Some("did you mean TimeLimit=?"));
        assert_eq!(
            read_words(&["PartitionName=debug", "MaxTiem=3"]).unwrap_err(),
            KeyError::PartitionKey("MaxTiem=3".to_owned())
        );
        assert_eq!(read_words(&["foo"]).unwrap_err(), KeyError::NoPair("foo".to_owned()));
        assert_eq!(read_words(&["foo=1"]).unwrap_err(), KeyError::NoEntity);
    }

    #[test]
    fn draining_a_node_needs_a_reason() {
        assert_eq!(read_words(&["nodename=n1", "state=drain"]).unwrap_err(), KeyError::ReasonMissing);
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
