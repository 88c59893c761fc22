//! `scontrol show reservation`.

use super::{Record, or_null};
use crate::clock::Clock;
use garrick_model::{
    hostlist,
    reservation::Reservation,
    time::{Timestamp, long_duration},
};

/// The record of a reservation as it is at that time.
pub fn record(reservation: &Reservation, at: Timestamp, clock: &Clock) -> Record {
    let Reservation { name, start, end, nodes, partition, features, users, accounts, cores, comment, .. } = reservation;
    let Reservation { groups, qos, partitions, licenses, .. } = reservation;
    let mut r = Record::default();
    r.line(format!(
        "ReservationName={name} StartTime={} EndTime={} Duration={}",
        clock.at(*start),
        clock.at(*end),
        long_duration(end.since(*start).as_secs())
    ));
    let flags = reservation.flag_words();
    r.line(format!(
        "Nodes={} NodeCnt={} CoreCnt={cores} Features={} PartitionName={} Flags={}",
        or_null(Some(&hostlist::fold(nodes))),
        nodes.len(),
        or_null(features.as_deref()),
        or_null(partition.as_deref()),
        flags.join(",")
    ));
    for (node, cores) in reservation.parts() {
        r.line(format!("  NodeName={node} CoreIDs={cores}"));
    }
    r.line(format!("TRES={}", tres(reservation)));
    let state = if reservation.is_active(at) { "ACTIVE" } else { "INACTIVE" };
    r.line(format!(
        "Users={} Groups={} Accounts={} Licenses={} State={state} BurstBuffer=(null)",
        or_null(Some(&users.to_string())),
        or_null(Some(&groups.join(","))),
        or_null(Some(&accounts.to_string())),
        or_null(Some(&licenses.to_string()))
    ));
    let delay = reservation.max_start_delay_secs.map(long_duration);
    r.line(format!("MaxStartDelay={}", or_null(delay.as_deref())));
    let further: Vec<String> = [("AllowedPartitions", partitions), ("QOS", qos)]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(key, list)| format!("{key}={list}"))
        .collect();
    if !further.is_empty() {
        r.line(further.join(" "));
    }
    r.line_if("Comment", comment.as_deref());
    r
}

/// What it reserves, as TRES.
pub fn tres(reservation: &Reservation) -> String {
    let cpus = (reservation.cpus > 0).then(|| format!("cpu={}", reservation.cpus));
    let licenses = reservation.licenses.0.iter().map(|l| format!("license/{}={}", l.name, l.count));
    let parts: Vec<String> = cpus.into_iter().chain(licenses).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::records::Lines;
    use garrick_model::reservation::{AccessList, ReservationFlag};
    use jiff::tz::TimeZone;

    #[test]
    fn a_reservation_is_shown_as_slurm_shows_it() {
        let one = Reservation {
            name: "root_3".into(),
            start: Timestamp::from_secs(1_795_255_200),
            end: Timestamp::from_secs(1_795_262_400),
            nodes: vec!["n1".into(), "n2".into()],
            users: AccessList::parse("root").unwrap(),
            flags: [ReservationFlag::SpecNodes, ReservationFlag::Maint].into(),
            cores: 8,
            cpus: 16,
            ..Reservation::default()
        };
        let clock = Clock { zone: TimeZone::UTC, now: one.start, format: None };
        let mut out = Vec::new();
        record(&one, one.start, &clock).write(&mut out, Lines::Many).unwrap();
        let want = "ReservationName=root_3 StartTime=2026-11-21T10:00:00 EndTime=2026-11-21T12:00:00 Duration=02:00:00\n   \
            Nodes=n[1-2] NodeCnt=2 CoreCnt=8 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES\n   \
            TRES=cpu=16\n   \
            Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null)\n   \
            MaxStartDelay=(null)\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    #[test]
    fn cores_are_shown_node_by_node() {
        let one = Reservation {
            name: "test".into(),
            start: Timestamp::from_secs(1_795_255_200),
            end: Timestamp::from_secs(1_795_255_260),
            nodes: vec!["node01".into(), "node02".into()],
            core_ids: [("node01".to_owned(), "0-5".parse().unwrap()), ("node02".to_owned(), "0,4-5".parse().unwrap())]
                .into(),
            users: AccessList::parse("user1").unwrap(),
            cores: 9,
            cpus: 18,
            ..Reservation::default()
        };
        let clock = Clock { zone: TimeZone::UTC, now: one.start, format: None };
        let mut out = Vec::new();
        record(&one, one.start, &clock).write(&mut out, Lines::Many).unwrap();
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = out.lines().skip(1).take(4).collect();
        let nodes = "   Nodes=node[01-02] NodeCnt=2 CoreCnt=9 Features=(null) PartitionName=(null) Flags=";
        let cores = ["     NodeName=node01 CoreIDs=0-5", "     NodeName=node02 CoreIDs=0,4-5"];
        assert_eq!(lines, [nodes, cores[0], cores[1], "   TRES=cpu=18"]);
    }

    #[test]
    fn licenses_and_who_else_may_use_it_are_shown() {
        let one = Reservation {
            name: "lic".into(),
            start: Timestamp::from_secs(1_795_255_200),
            end: Timestamp::from_secs(1_795_262_400),
            groups: vec!["staff".into()],
            licenses: "abc:2,xyz:1".parse().unwrap(),
            partitions: AccessList::parse("debug").unwrap(),
            purge_secs: Some(60),
            max_start_delay_secs: Some(90_060),
            flags: [ReservationFlag::AnyNodes, ReservationFlag::PurgeComp].into(),
            ..Reservation::default()
        };
        let clock = Clock { zone: TimeZone::UTC, now: one.start, format: None };
        let mut out = Vec::new();
        record(&one, Timestamp(0), &clock).write(&mut out, Lines::One).unwrap();
        let want = "ReservationName=lic StartTime=2026-11-21T10:00:00 EndTime=2026-11-21T12:00:00 Duration=02:00:00 \
            Nodes=(null) NodeCnt=0 CoreCnt=0 Features=(null) PartitionName=(null) Flags=ANY_NODES,PURGE_COMP=00:01:00 \
            TRES=license/abc=2,license/xyz=1 \
            Users=(null) Groups=staff Accounts=(null) Licenses=abc:2,xyz:1 State=INACTIVE BurstBuffer=(null) \
            MaxStartDelay=1-01:01:00 AllowedPartitions=debug\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}
