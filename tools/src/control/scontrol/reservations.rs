//! `scontrol create reservation`, `update ReservationName=...`, `delete ReservationName=...` and `show reservation`.

use super::{Session, full_word, too_few};
use crate::{
    options::getopt,
    query::asking,
    render::{clock::Clock, json, records},
};
use garrick_model::{
    date,
    messages::command::{CommandReply, CommandRequest},
    reservation::{AccessList, CoresWanted, NodesWanted, ReservationChange, ReservationFlag},
    spec_text::licenses::Licenses,
    time::{Timestamp, parse_duration_secs, system_zone},
};
use jiff::tz::TimeZone;

/// A word that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WordError {
    #[error("Unknown parameter {word}{hint}")]
    Unknown { word: String, hint: String },
    #[error("Invalid {key} value: {value} ({why})")]
    Value { key: &'static str, value: String, why: String },
    #[error("{0}")]
    Flag(#[from] garrick_model::reservation::FlagError),
    #[error("{0} is not supported yet")]
    NotSupported(String),
    #[error("ReservationName must be given")]
    NoName,
}

const KEYS: &[&str] = &[
    "accounts",
    "allowedpartitions",
    "comment",
    "corecnt",
    "duration",
    "endtime",
    "features",
    "flags",
    "groups",
    "licenses",
    "maxstartdelay",
    "nodecnt",
    "nodes",
    "partitionname",
    "qos",
    "reservationname",
    "skip",
    "starttime",
    "tres",
    "users",
];

/// Keys that Slurm has and Garrick has not yet.
const NOT_YET: &[&str] = &["burstbuffer", "trespernode", "watts"];

/// Runs `create`: reservations only.
pub fn create(session: &mut Session, words: &[String]) -> i32 {
    let Some((entity, rest)) = words.split_first() else { return too_few(session, "create") };
    let (name, _) = entity.split_once('=').unwrap_or((entity, ""));
    let words = match full_word(name, &["reservationname", "partitionname", "partition", "reservation"]) {
        Some("reservationname") => words,
        Some("reservation") if !entity.contains('=') => rest,
        // `create reservation=x` is short for the key.
        Some("reservation") => words,
        Some(_) => return session.not_supported("scontrol create partition"),
        None => {
            return session
                .plain_error(format_args!("Invalid entity to create: {name} (nodename and reservation are known)"));
        }
    };
    let request = match read(words, Timestamp::now(), &system_zone()) {
        Ok(change) => CommandRequest::CreateReservation(Box::new(change)),
        Err(error) => return session.plain_error(error),
    };
    let answer = session.cluster().and_then(|c| match c.ask(&request)? {
        CommandReply::ReservationCreated(name) => Ok(name),
        other => Err(c.unexpected(&other)),
    });
    match answer {
        Ok(name) => session.print(|out| writeln!(out, "Reservation created: {name}")),
        Err(error) => failed(session, "creating", &error),
    }
}

/// Runs `update ReservationName=...`.
pub fn update(session: &mut Session, words: &[String]) -> i32 {
    let change = read(words, Timestamp::now(), &system_zone());
    let request = match change.and_then(|c| if c.name.is_some() { Ok(c) } else { Err(WordError::NoName) }) {
        Ok(change) => CommandRequest::UpdateReservation(Box::new(change)),
        Err(error) => return session.plain_error(error),
    };
    match session.cluster().and_then(|c| c.ask(&request)) {
        Ok(_) => session.print(|out| writeln!(out, "Reservation updated.")),
        Err(error) => failed(session, "updating", &error),
    }
}

/// Runs `delete`: reservations only.
pub fn delete(session: &mut Session, words: &[String]) -> i32 {
    let (key, name) = match words {
        [] => return too_few(session, "delete"),
        [word] => word.split_once('=').unwrap_or((word, "")),
        [entity, name] if !entity.contains('=') => (entity.as_str(), name.as_str()),
        _ => return super::too_many(session, "delete"),
    };
    match full_word(key, &["reservationname", "reservation", "partitionname"]) {
        Some("partitionname") => return session.not_supported("scontrol delete PartitionName="),
        Some(_) if !name.is_empty() => {}
        _ => {
            return session.plain_error("Invalid entity to delete: name one as ReservationName=NAME or NodeName=NAMES");
        }
    }
    match session.cluster().and_then(|c| c.ask(&CommandRequest::DeleteReservation { name: name.to_owned() })) {
        Ok(_) => 0,
        Err(error) => session.failed("slurm_delete_reservation", &error),
    }
}

/// Runs `show reservation [name]`.
pub fn show(session: &mut Session, name: Option<&str>) -> i32 {
    let answer = session.cluster().and_then(asking::reservations);
    let (mut shown, at) = match answer {
        Ok(answer) => answer,
        Err(error) => return session.failed("slurm_load_reservations", &error),
    };
    shown.retain(|reservation| name.is_none_or(|name| reservation.name == name));
    if let (Some(name), true) = (name, shown.is_empty()) {
        return session.plain_error(format_args!("Reservation {name} not found"));
    }
    if session.manner.json {
        let meta = json::Meta::new(&session.cluster_name());
        return session.print(|out| json::write(out, &json::reservations(&shown, at, &meta)));
    }
    let (clock, manner) = (Clock::system(), session.manner);
    session.print(|out| {
        if shown.is_empty() && !manner.quiet {
            writeln!(out, "No reservations in the system")?;
        }
        shown.iter().try_for_each(|r| records::reservation::record(r, at, &clock).write(out, manner.lines))
    })
}

fn failed(session: &Session, doing: &str, error: &asking::AskError) -> i32 {
    asking::hints(error, &session.console);
    session.plain_error(format_args!("Error {doing} the reservation: {error}"))
}

pub(crate) fn read(words: &[String], now: Timestamp, zone: &TimeZone) -> Result<ReservationChange, WordError> {
    let mut change = ReservationChange::default();
    for word in words {
        let unknown = |key: &str| WordError::Unknown {
            word: word.clone(),
            hint: getopt::nearest(&key.to_ascii_lowercase(), KEYS.iter().copied())
                .map(|k| format!(" (did you mean {k}=?)"))
                .unwrap_or_default(),
        };
        let pair = if word.eq_ignore_ascii_case("skip") { Some((word.as_str(), "")) } else { word.split_once('=') };
        let (key, value) = pair.ok_or_else(|| unknown(word))?;
        let value = value.trim_matches('"');
        let (key, sign) = match (key.strip_suffix('+'), key.strip_suffix('-')) {
            (Some(key), _) => (key, Some('+')),
            (_, Some(key)) => (key, Some('-')),
            _ => (key, None),
        };
        let lower = key.to_ascii_lowercase();
        let names = [KEYS, NOT_YET].concat();
        let full = match lower.as_str() {
            "partition" => "partitionname",
            "reservation" => "reservationname",
            "node" => "nodes",
            // Slurm names these in the singular too.
            "user" => "users",
            "account" => "accounts",
            "group" => "groups",
            "license" => "licenses",
            other => full_word(other, &names).ok_or_else(|| unknown(key))?,
        };
        if NOT_YET.contains(&full) {
            return Err(WordError::NotSupported(format!("{key}= of a reservation")));
        }
        let signed = ["flags", "users", "accounts", "nodes", "nodecnt", "duration"];
        if sign.is_some() && !signed.contains(&full) {
            return Err(WordError::NotSupported(format!("{key}{}= of a reservation", sign.unwrap_or_default())));
        }
        set(&mut change, full, value, sign, now, zone)?;
    }
    Ok(change)
}

const CORES: &str = "one number above 0, or one for each node with commas between";

fn counts(text: &str) -> Option<Vec<u32>> {
    text.split(',').map(|word| word.parse().ok().filter(|count| *count > 0)).collect()
}

fn set(
    change: &mut ReservationChange,
    key: &'static str,
    value: &str,
    sign: Option<char>,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<(), WordError> {
    let wrong = |why: String| WordError::Value { key, value: value.to_owned(), why };
    let time = || date::parse_date(value, now, zone).map_err(|e| wrong(e.to_string()));
    let people = || AccessList::parse(value).ok_or_else(|| wrong("names, or names with - before each".to_owned()));
    let nodes = || garrick_model::hostlist::expand(value).map_err(|e| wrong(e.to_string()));
    let licenses = |text: &str| -> Result<Licenses, WordError> {
        if text.is_empty() { Ok(Licenses::default()) } else { text.parse().map_err(|_| wrong("licenses".to_owned())) }
    };
    match key {
        "reservationname" if value.is_empty() || value.contains([',', ' ']) => {
            return Err(wrong("a name without commas and blanks".to_owned()));
        }
        "reservationname" => change.name = Some(value.to_owned()),
        "starttime" => change.start = Some(time()?),
        "endtime" => change.end = Some(time()?),
        "duration" if sign.is_some() => {
            let secs = parse_duration_secs(value).map_err(|e| wrong(e.to_string()))?;
            let secs = secs.and_then(|secs| i64::try_from(secs).ok()).ok_or_else(|| wrong("a length".to_owned()))?;
            change.duration_delta_secs = Some(if sign == Some('-') { -secs } else { secs });
        }
        "duration" => {
            // Slurm counts UNLIMITED as a year too.
            let secs = parse_duration_secs(value).map_err(|e| wrong(e.to_string()))?;
            change.duration_secs = Some(secs.unwrap_or(365 * 86_400));
        }
        "maxstartdelay" => {
            let secs = parse_duration_secs(value).map_err(|e| wrong(e.to_string()))?;
            let secs = secs.ok_or_else(|| wrong("a length; 0 for none".to_owned()))?;
            change.max_start_delay_secs = Some(secs.div_ceil(60) * 60);
        }
        "nodes" if value.eq_ignore_ascii_case("all") => change.nodes = Some(NodesWanted::All),
        "nodes" => {
            change.nodes = Some(match sign {
                None => NodesWanted::Named(nodes()?),
                Some('+') => NodesWanted::With(nodes()?),
                Some(_) => NodesWanted::Without(nodes()?),
            });
        }
        "nodecnt" => {
            let count = value.parse().map_err(|_| wrong("one number of nodes".to_owned()))?;
            change.nodes = Some(match sign {
                None => NodesWanted::Count(count),
                Some('+') => NodesWanted::More(count),
                Some(_) => NodesWanted::Fewer(count),
            });
        }
        "corecnt" => change.cores = Some(CoresWanted::Cores(counts(value).ok_or_else(|| wrong(CORES.to_owned()))?)),
        "partitionname" => change.partition = Some(value.to_owned()),
        "features" => change.features = Some(value.to_owned()),
        "users" | "accounts" => {
            let slot = match (key, sign) {
                ("users", None) => &mut change.users,
                ("users", Some('+')) => &mut change.users_more,
                ("users", _) => &mut change.users_less,
                (_, None) => &mut change.accounts,
                (_, Some('+')) => &mut change.accounts_more,
                _ => &mut change.accounts_less,
            };
            *slot = Some(people()?);
        }
        "groups" => change.groups = Some(value.split(',').filter(|w| !w.is_empty()).map(str::to_owned).collect()),
        "qos" => change.qos = Some(people()?),
        "allowedpartitions" => change.partitions = Some(people()?),
        "licenses" => change.licenses = Some(licenses(value)?),
        "skip" => change.skip = true,
        "tres" => {
            // The same in other words.
            let (mut kept, mut cpus) = (Vec::new(), Vec::new());
            for part in value.split(',').filter(|w| !w.is_empty()) {
                // As with CoreCnt, one number for each node.
                let (name, count) = match part.split_once('=') {
                    None if !cpus.is_empty() => ("cpu", part),
                    pair => pair.ok_or_else(|| wrong(format!("{part} has no number")))?,
                };
                match name.split_once('/').map_or((name, None), |(kind, name)| (kind, Some(name))) {
                    ("node", None) => {
                        let count = count.parse().map_err(|_| wrong("one number of nodes".to_owned()))?;
                        change.nodes = Some(NodesWanted::Count(count));
                    }
                    ("license", Some(name)) => kept.push(format!("{name}:{count}")),
                    ("cpu", None) => cpus.extend(counts(count).ok_or_else(|| wrong(CORES.to_owned()))?),
                    ("bb", _) => {
                        return Err(WordError::NotSupported(format!("TRES={name}= of a reservation")));
                    }
                    _ => return Err(wrong(format!("{name} cannot be reserved"))),
                }
            }
            if !cpus.is_empty() {
                change.cores = Some(CoresWanted::Cpus(cpus));
            }
            if !kept.is_empty() {
                change.licenses = Some(licenses(&kept.join(","))?);
            }
        }
        "comment" => change.comment = Some(value.to_owned()),
        _ => {
            for word in value.split(',').filter(|w| !w.is_empty()) {
                let (word, minus) = match (word.strip_prefix('-'), word.strip_prefix('+')) {
                    (Some(word), _) => (word, true),
                    (_, Some(word)) => (word, false),
                    _ => (word, sign == Some('-')),
                };
                let (word, time) = word.split_once('=').map_or((word, None), |(word, time)| (word, Some(time)));
                let flag: ReservationFlag = word.parse()?;
                match time {
                    None => {}
                    Some(time) if flag == ReservationFlag::PurgeComp => {
                        let secs = parse_duration_secs(time).map_err(|e| wrong(e.to_string()))?;
                        change.purge_secs = Some(secs.ok_or_else(|| wrong("a length".to_owned()))?);
                    }
                    Some(_) => return Err(wrong(format!("{flag} has no value"))),
                }
                if minus {
                    change.clear.insert(flag)
                } else {
                    change.set.insert(flag)
                };
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000_000);

    fn read_line(line: &str) -> Result<ReservationChange, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        read(&words, NOW, &TimeZone::UTC).map_err(|e| e.to_string())
    }

    #[test]
    fn words_are_read() {
        let line = "StartTime=now+1hour Duration=2:00:00 Users=alice,bob NodeCnt=2 Flags=maint,ignore_jobs part=debug";
        let change = read_line(line).unwrap();
        assert_eq!(change.start, Some(Timestamp::from_secs(1_003_600)));
        assert_eq!((change.duration_secs, change.nodes), (Some(7200), Some(NodesWanted::Count(2))));
        assert_eq!(change.set, [ReservationFlag::Maint, ReservationFlag::IgnoreJobs].into());
        assert_eq!(change.partition.as_deref(), Some("debug"));
        let change = read_line("res=a Nodes=n[1-2] flags-=maint flags+=overlap").unwrap();
        assert_eq!(change.nodes, Some(NodesWanted::Named(vec!["n1".into(), "n2".into()])));
        assert_eq!((change.clear.len(), change.set.len(), change.name.as_deref()), (1, 1, Some("a")));
    }

    #[test]
    fn words_of_changes_and_of_licenses_are_read() {
        let change =
            read_line("res=a Users+=a,b Accounts-=c Nodes+=n[3-4] Duration-=10 Groups=x,y QOS=-low skip").unwrap();
        assert_eq!((change.users_more, change.users_less), (AccessList::parse("a,b"), None));
        assert_eq!(change.accounts_less, AccessList::parse("c"));
        assert_eq!(change.nodes, Some(NodesWanted::With(vec!["n3".into(), "n4".into()])));
        assert_eq!((change.duration_delta_secs, change.skip), (Some(-600), true));
        assert_eq!((change.groups.unwrap().len(), change.qos), (2, AccessList::parse("-low")));
        let change =
            read_line("TRES=node=3,license/abc=2 AllowedPartitions=p Flags=PURGE_COMP=10:00,ANY_NODES").unwrap();
        assert_eq!(change.nodes, Some(NodesWanted::Count(3)));
        assert_eq!(change.licenses.unwrap().to_string(), "abc:2");
        assert_eq!((change.purge_secs, change.set.len()), (Some(600), 2));
        assert_eq!(read_line("NodeCnt-=2").unwrap().nodes, Some(NodesWanted::Fewer(2)));
        assert_eq!(read_line("Licenses=abc:3,xyz").unwrap().licenses.unwrap().to_string(), "abc:3,xyz:1");
    }

    #[test]
    fn delays_are_whole_minutes() {
        let delay = |line: &str| read_line(line).unwrap().max_start_delay_secs;
        assert_eq!((delay("MaxStartDelay=5"), delay("MaxStartDelay=1:01")), (Some(300), Some(120)));
        assert_eq!((delay("MaxStartDelay=0"), delay("Comment=x")), (Some(0), None));
    }

    #[test]
    fn cores_are_read() {
        let cores = |line: &str| read_line(line).unwrap().cores;
        assert_eq!(cores("Nodes=n[1-2] CoreCnt=2,4"), Some(CoresWanted::Cores(vec![2, 4])));
        assert_eq!(cores("TRES=cpu=24,node=4"), Some(CoresWanted::Cpus(vec![24])));
        let change = read_line("TRES=cpu=8,4,node=2,license/abc=1").unwrap();
        assert_eq!((change.cores, change.nodes), (Some(CoresWanted::Cpus(vec![8, 4])), Some(NodesWanted::Count(2))));
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        for (line, says) in [
            ("CoreCnt=0", "Invalid corecnt value: 0"),
            ("CoreCnt=4,x", "Invalid corecnt value: 4,x"),
            ("Flags=GRES_PER_NODE", "Flags=GRES_PER_NODE is not supported yet"),
            ("MaxStartDelay=long", "Invalid maxstartdelay value: long"),
            ("MaxStartDelay=UNLIMITED", "Invalid maxstartdelay value: UNLIMITED"),
            ("TRES=bb/cray=4", "TRES=bb/cray= of a reservation is not supported yet"),
            ("TRES=cpu=many", "Invalid tres value: cpu=many"),
            ("TRES=gres/gpu=4", "Invalid tres value: gres/gpu=4"),
            ("Flags=MAINT=4", "Invalid flags value: MAINT=4"),
            ("Flags=MAINTAIN", "Error parsing flags MAINTAIN: not a flag"),
            ("StarTime=now", "Unknown parameter StarTime=now (did you mean starttime=?)"),
            ("StartTime=soon", "Invalid starttime value: soon"),
            ("NodeCnt=x", "Invalid nodecnt value: x"),
            ("Users=a,-b", "Invalid users value: a,-b"),
            ("QOS+=a", "QOS+= of a reservation is not supported yet"),
        ] {
            let said = read_line(line).unwrap_err();
            assert!(said.starts_with(says), "{line}: {said}");
        }
    }
}
