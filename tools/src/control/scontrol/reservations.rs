//! `scontrol create reservation`, `update ReservationName=...`, `delete ReservationName=...` and `show reservation`.

use super::{
    Session, assign, full_word,
    keys::{Given, Key, KeyError, Pair, find, hint, key, not_yet, signed},
};
use garrick_asking::contact;
use garrick_model::{
    messages::command::{CommandReply, CommandRequest},
    reservation::{AccessList, CoresWanted, NodesWanted, ReservationChange, ReservationFlag},
    spec_text::licenses::Licenses,
    time::{Timestamp, system_zone},
};
use garrick_render::{
    clock::Clock,
    json::{self, Meta},
    records,
};
use jiff::tz::TimeZone;

/// Keys in the order of the alphabet; the beginning of one will do.
#[rustfmt::skip]
static KEYS: &[Key<ReservationChange>] = &[
    signed("accounts", |c, given| one_of_three(&mut c.accounts, &mut c.accounts_more, &mut c.accounts_less, given)),
    key("allowedpartitions", |c, given| assign(&mut c.partitions, people(given))),
    not_yet("burstbuffer"),
    key("comment", |c, given| assign(&mut c.comment, given.text())),
    key("corecnt", |c, given| assign(&mut c.cores, counts(given, given.value).map(CoresWanted::Cores))),
    signed("duration", duration),
    key("endtime", |c, given| assign(&mut c.end, given.time())),
    key("features", |c, given| assign(&mut c.features, given.text())),
    signed("flags", flags),
    key("groups", |c, given| assign(&mut c.groups, Ok(parts(given.value).map(str::to_owned).collect()))),
    key("licenses", |c, given| assign(&mut c.licenses, licenses(given, given.value))),
    key("maxstartdelay", |c, given| {
        let secs = given.secs(given.value)?.ok_or_else(|| given.wrong("a length; 0 for none"))?;
        assign(&mut c.max_start_delay_secs, Ok(secs.div_ceil(60) * 60))
    }),
    signed("nodecnt", node_count),
    signed("nodes", nodes),
    key("partitionname", |c, given| assign(&mut c.partition, given.text())),
    key("qos", |c, given| assign(&mut c.qos, people(given))),
    key("reservationname", name),
    key("skip", |c, _| { c.skip = true; Ok(()) }),
    key("starttime", |c, given| assign(&mut c.start, given.time())),
    key("tres", tres),
    not_yet("trespernode"),
    signed("users", |c, given| one_of_three(&mut c.users, &mut c.users_more, &mut c.users_less, given)),
    not_yet("watts"),
];

/// Runs `create`: reservations only.
pub fn create(session: &mut Session, words: &[String]) -> i32 {
    let Some((entity, rest)) = words.split_first() else { return super::too_few(session, "create") };
    let (name, _) = entity.split_once('=').unwrap_or((entity, ""));
    let words = match full_word(name, &["reservationname", "reservation"]) {
        Some("reservationname") => words,
        Some("reservation") if !entity.contains('=') => rest,
        // `create reservation=x` is short for the key.
        Some("reservation") => words,
        _ => return super::too_few(session, "create"),
    };
    let request = match read(words, Timestamp::now(), &system_zone()).map_err(|error| none_created(error, words)) {
        Ok(change) => match lacks(&change) {
            None => CommandRequest::CreateReservation(Box::new(change)),
            Some(what) => {
                session.console.error(format_args!("{what}  No reservation created."));
                return 1;
            }
        },
        Err(error) => return session.plain_error(error),
    };
    let answer = session.cluster().and_then(|c| match c.ask(&request)? {
        CommandReply::ReservationCreated(name) => Ok(name),
        other => Err(c.unexpected(&other)),
    });
    match answer {
        Ok(name) => session.print(|out| writeln!(out, "Reservation created: {name}")),
        Err(error) => session.denied("Error creating the reservation: ", &error, super::NOT_THEIRS),
    }
}

/// What a new reservation cannot be without, told before anybody is asked.
fn lacks(change: &ReservationChange) -> Option<&'static str> {
    let spares_nodes = change.licenses.is_some() && change.set.contains(&ReservationFlag::AnyNodes);
    match change {
        ReservationChange { start: None, .. } => Some("A start time must be given."),
        ReservationChange { nodes: None, cores: None, .. } if !spares_nodes => {
            Some("CoreCnt, Nodes, NodeCnt, TRES or Watts must be specified.")
        }
        _ => None,
    }
}

/// Of a time that is none, which key it was of.
fn none_created(error: KeyError, words: &[String]) -> String {
    let KeyError::Time { at, value, .. } = error else { return error.to_string() };
    let of = |key: &str| {
        let word = words.iter().find(|word| word.to_ascii_lowercase().starts_with(key) && word.ends_with(&value));
        word.map_or(value.as_str(), String::as_str)
    };
    let (what, word) =
        if words.iter().any(|word| word.to_ascii_lowercase().starts_with("end") && word.ends_with(&value)) {
            ("end", of("end"))
        } else {
            ("start", of("start"))
        };
    format!(
        "Invalid time specification (pos={at}): {value}\nscontrol: error: Invalid {what} time {word}.  No reservation created."
    )
}

/// Runs `update ReservationName=...`.
pub fn update(session: &mut Session, words: &[String]) -> i32 {
    let change = read(words, Timestamp::now(), &system_zone());
    let request = match change.and_then(|c| if c.name.is_some() { Ok(c) } else { Err(KeyError::NoName) }) {
        Ok(change) => CommandRequest::UpdateReservation(Box::new(change)),
        Err(error) => return session.plain_error(error),
    };
    match session.cluster().and_then(|c| c.ask(&request)) {
        Ok(_) => session.print(|out| writeln!(out, "Reservation updated.")),
        Err(error) => session.denied("slurm_update error: ", &error, super::NOT_THEIRS),
    }
}

/// Runs `delete ReservationName=...`; `word` is how it was asked for.
pub fn delete(session: &mut Session, word: &str, name: &str) -> i32 {
    match session.cluster().and_then(|c| c.ask(&CommandRequest::DeleteReservation { name: name.to_owned() })) {
        Ok(_) => 0,
        Err(error) => session.denied(&format!("delete_reservation {word}: "), &error, super::NOT_THEIRS),
    }
}

/// Runs `show reservation [name]`.
pub fn show(session: &mut Session, name: Option<&str>) -> i32 {
    let answer = session.cluster().and_then(contact::reservations);
    let (mut shown, at) = match answer {
        Ok(answer) => answer,
        Err(error) => return session.failed("slurm_load_reservations", &error),
    };
    shown.retain(|reservation| name.is_none_or(|name| reservation.name == name));
    if let (Some(name), true, None) = (name, shown.is_empty(), session.manner.form) {
        return session.not_found(format_args!("Reservation {name} not found"));
    }
    let (clock, none) = (Clock::system(), Some("No reservations in the system"));
    let document = |meta: &Meta| json::reservations(&shown, at, meta);
    session.list(&shown, none, document, |reservation| records::reservation::record(reservation, at, &clock))
}

pub(crate) fn read(words: &[String], now: Timestamp, zone: &TimeZone) -> Result<ReservationChange, KeyError> {
    let mut change = ReservationChange::default();
    for word in words {
        let unknown = |key: &str| {
            let known = KEYS.iter().filter(|row| row.read.is_some()).map(|row| row.name);
            KeyError::UnknownParameter { word: word.clone(), hint: hint(key, known) }
        };
        let mut pair = Pair::split(word, "skip").ok_or_else(|| unknown(word))?;
        pair.value = pair.value.trim_matches('"');
        let key = pair.key;
        // Slurm names it in the singular too.
        let full = if key.eq_ignore_ascii_case("node") { "nodes" } else { key };
        let known = find(full, KEYS).ok_or_else(|| unknown(key))?;
        match (known.read, pair.sign) {
            (None, _) => return Err(KeyError::NotSupported(format!("{key}= of a reservation"))),
            (_, Some(sign)) if !known.signed => {
                return Err(KeyError::NotSupported(format!("{key}{sign}= of a reservation")));
            }
            (Some(read), _) => read(&mut change, &known.given(pair, now, zone))?,
        }
    }
    Ok(change)
}

fn people(given: &Given<'_>) -> Result<AccessList, KeyError> {
    AccessList::parse(given.value).ok_or_else(|| given.wrong("names, or names with - before each"))
}

fn licenses(given: &Given<'_>, text: &str) -> Result<Licenses, KeyError> {
    if text.is_empty() { Ok(Licenses::default()) } else { text.parse().map_err(|_| given.wrong("licenses")) }
}

fn one_count(given: &Given<'_>, text: &str) -> Result<u32, KeyError> {
    text.parse().map_err(|_| given.wrong("one number of nodes"))
}

fn counts(given: &Given<'_>, text: &str) -> Result<Vec<u32>, KeyError> {
    let counts = text.split(',').map(|word| word.parse().ok().filter(|count| *count > 0)).collect::<Option<_>>();
    counts.ok_or_else(|| given.wrong("one number above 0, or one for each node with commas between"))
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|part| !part.is_empty())
}

/// `=`, `+=` or `-=`.
fn one_of_three(
    all: &mut Option<AccessList>,
    more: &mut Option<AccessList>,
    less: &mut Option<AccessList>,
    given: &Given<'_>,
) -> Result<(), KeyError> {
    let field = match given.sign {
        None => all,
        Some('+') => more,
        Some(_) => less,
    };
    assign(field, people(given))
}

fn name(change: &mut ReservationChange, given: &Given<'_>) -> Result<(), KeyError> {
    if given.value.is_empty() || given.value.contains([',', ' ']) {
        return Err(given.wrong("a name without commas and blanks"));
    }
    assign(&mut change.name, given.text())
}

fn duration(change: &mut ReservationChange, given: &Given<'_>) -> Result<(), KeyError> {
    let secs = given.secs(given.value)?;
    let Some(sign) = given.sign else {
        // Slurm counts UNLIMITED as a year too.
        return assign(&mut change.duration_secs, Ok(secs.unwrap_or(365 * 86_400)));
    };
    let secs = secs.and_then(|secs| i64::try_from(secs).ok()).ok_or_else(|| given.wrong("a length"))?;
    assign(&mut change.duration_delta_secs, Ok(if sign == '-' { -secs } else { secs }))
}

fn nodes(change: &mut ReservationChange, given: &Given<'_>) -> Result<(), KeyError> {
    if given.value.eq_ignore_ascii_case("all") {
        return assign(&mut change.nodes, Ok(NodesWanted::All));
    }
    let nodes = garrick_model::hostlist::expand(given.value).map_err(|e| given.wrong(e))?;
    change.nodes = Some(match given.sign {
        None => NodesWanted::Named(nodes),
        Some('+') => NodesWanted::With(nodes),
        Some(_) => NodesWanted::Without(nodes),
    });
    Ok(())
}

fn node_count(change: &mut ReservationChange, given: &Given<'_>) -> Result<(), KeyError> {
    let count = one_count(given, given.value)?;
    change.nodes = Some(match given.sign {
        None => NodesWanted::Count(count),
        Some('+') => NodesWanted::More(count),
        Some(_) => NodesWanted::Fewer(count),
    });
    Ok(())
}

/// Nodes, licenses and CPUs in other words.
fn tres(change: &mut ReservationChange, given: &Given<'_>) -> Result<(), KeyError> {
    let (mut kept, mut cpus) = (Vec::new(), Vec::new());
    for part in parts(given.value) {
        // As with CoreCnt, one number for each node.
        let (name, count) = match part.split_once('=') {
            None if !cpus.is_empty() => ("cpu", part),
            pair => pair.ok_or_else(|| given.wrong(format_args!("{part} has no number")))?,
        };
        match name.split_once('/').map_or((name, None), |(kind, name)| (kind, Some(name))) {
            ("node", None) => change.nodes = Some(NodesWanted::Count(one_count(given, count)?)),
            ("license", Some(name)) => kept.push(format!("{name}:{count}")),
            ("cpu", None) => cpus.extend(counts(given, count)?),
            ("bb", _) => return Err(KeyError::NotSupported(format!("TRES={name}= of a reservation"))),
            _ => return Err(given.wrong(format_args!("{name} cannot be reserved"))),
        }
    }
    if !cpus.is_empty() {
        change.cores = Some(CoresWanted::Cpus(cpus));
    }
    if !kept.is_empty() {
        change.licenses = Some(licenses(given, &kept.join(","))?);
    }
    Ok(())
}

fn flags(change: &mut ReservationChange, given: &Given<'_>) -> Result<(), KeyError> {
    for word in parts(given.value) {
        let (word, minus) = match (word.strip_prefix('-'), word.strip_prefix('+')) {
            (Some(word), _) => (word, true),
            (_, Some(word)) => (word, false),
            _ => (word, given.sign == Some('-')),
        };
        let (word, time) = word.split_once('=').map_or((word, None), |(word, time)| (word, Some(time)));
        let flag: ReservationFlag = word.parse()?;
        match time {
            None => {}
            Some(time) if flag == ReservationFlag::PurgeComp => {
                let secs = given.secs(time)?.ok_or_else(|| given.wrong("a length"))?;
                change.purge_secs = Some(secs);
            }
            Some(_) => return Err(given.wrong(format_args!("{flag} has no value"))),
        }
        if minus {
            change.clear.insert(flag)
        } else {
            change.set.insert(flag)
        };
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
    fn no_key_is_in_two_rows() {
        assert!(KEYS.is_sorted_by(|one, next| one.name < next.name));
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
            ("StarTime=now", "Unknown parameter StarTime=now"),
            ("StartTime=soon", "Invalid time specification (pos=0): soon"),
            ("NodeCnt=x", "Invalid nodecnt value: x"),
            ("Users=a,-b", "Invalid users value: a,-b"),
            ("QOS+=a", "QOS+= of a reservation is not supported yet"),
        ] {
            let said = read_line(line).unwrap_err();
            let said = said.trim_start_matches("scontrol: error: ");
            assert!(said.starts_with(says), "{line}: {said}");
        }
    }
}
