//! Advance reservations: nodes kept for some users or accounts from one time until another. What is saved of one, sent in
//! answers and shown is the same record.

use crate::{resources::CpuSet, spec_text::licenses::Licenses, time::Timestamp};
use jiff::{ToSpan, civil::Weekday, tz::TimeZone};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
    time::Duration,
};

/// A flag of a reservation, in the order in which records show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReservationFlag {
    /// `MAINT`: for maintenance. May overlap others, and holds against all of them.
    Maint,
    /// `OVERLAP`: may have nodes that others have.
    Overlap,
    /// `IGNORE_JOBS`: jobs that run on its nodes are no obstacle.
    IgnoreJobs,
    /// `HOURLY`: again each hour.
    Hourly,
    /// `DAILY`: again each day.
    Daily,
    /// `WEEKDAY`: again each day from Monday to Friday.
    Weekday,
    /// `WEEKEND`: again each Saturday and Sunday.
    Weekend,
    /// `WEEKLY`: again each week.
    Weekly,
    /// `FLEX`: its jobs may begin before, end after, and use other nodes.
    Flex,
    /// `MAGNETIC`: draws jobs that may use it, although they did not ask.
    Magnetic,
    /// `SPEC_NODES`: its nodes were named.
    SpecNodes,
    /// `ALL_NODES`: all nodes.
    AllNodes,
    /// `ANY_NODES`: reserves licenses only; its jobs run on any nodes.
    AnyNodes,
    /// `STATIC_ALLOC`, `STATIC`: its nodes stay those that were chosen.
    Static,
    /// `PART_NODES`: all nodes of its partition, also as that changes.
    PartNodes,
    /// `FIRST_CORES`: of cores of its nodes, the lowest ones and no others.
    FirstCores,
    /// `TIME_FLOAT`: begins at the same distance from now as long as it has not begun.
    TimeFloat,
    /// `FORCE_START`: one that comes again may have begun before it was made.
    ForceStart,
    /// `REPLACE`: nodes that are out of service or have jobs make way for idle ones.
    Replace,
    /// `REPLACE_DOWN`: nodes that are out of service make way for idle ones.
    ReplaceDown,
    /// `PURGE_COMP`: is removed when it was not used for some time.
    PurgeComp,
    /// `NO_HOLD_JOBS_AFTER`: jobs that wait for it when it ends wait without it.
    NoHoldJobsAfter,
    /// `USER_DELETE`: users who may use it may delete it.
    UserDelete,
}

/// Flags and their names.
const FLAGS: [(ReservationFlag, &str); 23] = [
    (ReservationFlag::Maint, "MAINT"),
    (ReservationFlag::Overlap, "OVERLAP"),
    (ReservationFlag::IgnoreJobs, "IGNORE_JOBS"),
    (ReservationFlag::Hourly, "HOURLY"),
    (ReservationFlag::Daily, "DAILY"),
    (ReservationFlag::Weekday, "WEEKDAY"),
    (ReservationFlag::Weekend, "WEEKEND"),
    (ReservationFlag::Weekly, "WEEKLY"),
    (ReservationFlag::Flex, "FLEX"),
    (ReservationFlag::Magnetic, "MAGNETIC"),
    (ReservationFlag::SpecNodes, "SPEC_NODES"),
    (ReservationFlag::AllNodes, "ALL_NODES"),
    (ReservationFlag::AnyNodes, "ANY_NODES"),
    (ReservationFlag::Static, "STATIC"),
    (ReservationFlag::PartNodes, "PART_NODES"),
    (ReservationFlag::FirstCores, "FIRST_CORES"),
    (ReservationFlag::TimeFloat, "TIME_FLOAT"),
    (ReservationFlag::ForceStart, "FORCE_START"),
    (ReservationFlag::Replace, "REPLACE"),
    (ReservationFlag::ReplaceDown, "REPLACE_DOWN"),
    (ReservationFlag::PurgeComp, "PURGE_COMP"),
    (ReservationFlag::NoHoldJobsAfter, "NO_HOLD_JOBS_AFTER_END"),
    (ReservationFlag::UserDelete, "USER_DELETE"),
];

/// Other names of flags.
const ALSO: [(ReservationFlag, &str); 2] =
    [(ReservationFlag::Static, "STATIC_ALLOC"), (ReservationFlag::NoHoldJobsAfter, "NO_HOLD_JOBS_AFTER")];

/// Time for which a reservation with `PURGE_COMP` may be idle where none is given.
pub const PURGE_SECS: u64 = 300;

/// Flags that Slurm has and that are not built yet.
const NOT_YET: [&str; 2] = ["GRES_PER_NODE", "LICENSE_ONLY"];

/// The flags that say when a reservation comes again. A reservation has one of them at most.
pub const RECURRING: [ReservationFlag; 5] = [
    ReservationFlag::Hourly,
    ReservationFlag::Daily,
    ReservationFlag::Weekday,
    ReservationFlag::Weekend,
    ReservationFlag::Weekly,
];

/// Text that is no flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// Slurm has it.
    #[error("Flags={0} is not supported yet")]
    NotSupported(String),
    /// Nobody has it.
    #[error("Error parsing flags {0}: not a flag of reservations (flags are {known})", known = FLAGS.map(|(_, name)| name).join(", "))]
    Unknown(String),
}

impl FromStr for ReservationFlag {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<Self, FlagError> {
        let upper = text.to_ascii_uppercase();
        if let Some((flag, _)) = FLAGS.iter().chain(&ALSO).find(|(_, name)| *name == upper) {
            return Ok(*flag);
        }
        let name = upper.split_once('=').map_or(upper.as_str(), |(name, _)| name);
        if NOT_YET.contains(&name) {
            return Err(FlagError::NotSupported(upper));
        }
        Err(FlagError::Unknown(text.to_owned()))
    }
}

impl fmt::Display for ReservationFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FLAGS.iter().find(|(flag, _)| flag == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

/// Who may use it, by name: those, or all but those.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccessList {
    /// All but those (`Users=-alice`).
    pub deny: bool,
    /// Names.
    pub names: Vec<String>,
}

impl AccessList {
    /// From `a,b` or `-a,-b`. Both in one list mean nothing.
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(',').filter(|w| !w.is_empty()).collect();
        let denied = words.iter().filter(|w| w.starts_with('-')).count();
        if denied != 0 && denied != words.len() {
            return None;
        }
        let names: Vec<String> = words.iter().map(|w| w.trim_start_matches('-').to_owned()).collect();
        if names.iter().any(String::is_empty) {
            return None;
        }
        Some(Self { deny: denied > 0, names })
    }

    /// With those of the other list too, or `None` where one of them allows and the other denies.
    #[must_use]
    pub fn with(&self, more: &Self) -> Option<Self> {
        let names = self.names.iter().chain(more.names.iter().filter(|name| !self.names.contains(name)));
        (self.is_empty() || self.deny == more.deny).then(|| Self { deny: more.deny, names: names.cloned().collect() })
    }

    /// Without those of the other list; `None` as with [`Self::with`], or where one of them is not there.
    #[must_use]
    pub fn without(&self, less: &Self) -> Option<Self> {
        let known = self.deny == less.deny && less.names.iter().all(|name| self.names.contains(name));
        let names = self.names.iter().filter(|name| !less.names.contains(name));
        known.then(|| Self { deny: self.deny, names: names.cloned().collect() })
    }

    /// No name is in it.
    pub const fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// May one of that name?
    fn takes(&self, name: Option<&str>) -> bool {
        let named = name.is_some_and(|name| self.names.iter().any(|n| n == name));
        self.is_empty() || named != self.deny
    }
}

impl fmt::Display for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.deny { "-" } else { "" };
        let names: Vec<String> = self.names.iter().map(|name| format!("{sign}{name}")).collect();
        f.write_str(&names.join(","))
    }
}

/// A reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reservation {
    /// Name.
    pub name: String,
    /// Begin, or that of the next time.
    pub start: Timestamp,
    /// End of the same time.
    pub end: Timestamp,
    /// Its nodes, in configuration order.
    pub nodes: Vec<String>,
    /// Of one of cores: which cores of each of its nodes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub core_ids: BTreeMap<String, CpuSet>,
    /// `PartitionName`.
    pub partition: Option<String>,
    /// `Features`.
    pub features: Option<String>,
    /// `Users`.
    pub users: AccessList,
    /// `Accounts`.
    pub accounts: AccessList,
    /// `Groups`: of the system. Not together with users.
    pub groups: Vec<String>,
    /// `QOS`.
    pub qos: AccessList,
    /// `AllowedPartitions`.
    pub partitions: AccessList,
    /// `Licenses`: kept for its jobs.
    pub licenses: Licenses,
    /// Of one with `PURGE_COMP`: for so many seconds it may be idle.
    pub purge_secs: Option<u64>,
    /// `MaxStartDelay`, seconds: for so long jobs that ask to be warned as early may be in the way of its jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_start_delay_secs: Option<u64>,
    /// Of one with `TIME_FLOAT`: how it goes with the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floating: Option<Floating>,
    /// `Flags`.
    pub flags: BTreeSet<ReservationFlag>,
    /// Cores that it has.
    pub cores: u32,
    /// CPUs that it has.
    pub cpus: u32,
    /// `Comment`.
    pub comment: Option<String>,
    /// Of one at a site with `ResvProlog` or `ResvEpilog`: its present time was seen to begin.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
}

/// How far from now a reservation begins, at any time: it keeps long jobs off, and no job runs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floating {
    /// It begins so many seconds from now.
    pub begins_secs: u64,
    /// It lasts so many seconds; `None`: until its end, which stays.
    pub lasts_secs: Option<u64>,
}

/// Someone who wants to use a reservation.
#[derive(Clone, Copy, Debug)]
pub struct Applicant<'a> {
    /// Root and SlurmUser may use all.
    pub admin: bool,
    /// User.
    pub user: &'a str,
    /// Account of the job.
    pub account: Option<&'a str>,
    /// QOS of the job.
    pub qos: Option<&'a str>,
    /// Partition of the job; `None` where that does not matter.
    pub partition: Option<&'a str>,
    /// Groups of the user; `None`: those were looked at before.
    pub groups: Option<&'a [&'a str]>,
}

impl Reservation {
    /// Does it have that flag?
    pub fn has(&self, flag: ReservationFlag) -> bool {
        self.flags.contains(&flag)
    }

    /// Of one of cores: nodes in configuration order, and which cores of each.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &CpuSet)> {
        self.nodes.iter().filter_map(|name| Some((name.as_str(), self.core_ids.get(name)?)))
    }

    /// Does it hold now?
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.floating.is_none() && self.start <= now && now < self.end
    }

    /// Is this time of it over?
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.end <= now && self.floating.is_none_or(|floating| floating.lasts_secs.is_none())
    }

    /// May jobs of them run in it? Of all that is given, everything must fit.
    pub fn admits(&self, who: Applicant<'_>) -> bool {
        let in_group = |groups: &[&str]| self.groups.iter().any(|name| groups.contains(&name.as_str()));
        let partition = who.partition.is_none() || self.partitions.takes(who.partition);
        let group = self.groups.is_empty() || who.groups.is_none_or(in_group);
        let named = self.users.takes(Some(who.user)) && self.accounts.takes(who.account) && self.qos.takes(who.qos);
        partition && (who.admin || (group && named))
    }

    /// Is anybody named who may use it?
    pub const fn is_for_somebody(&self) -> bool {
        let lists = self.users.is_empty() && self.accounts.is_empty() && self.qos.is_empty();
        !(lists && self.partitions.is_empty() && self.groups.is_empty())
    }

    /// Flags as records show them.
    pub fn flag_words(&self) -> Vec<String> {
        let word = |flag: &ReservationFlag| match (flag, self.purge_secs) {
            (ReservationFlag::PurgeComp, Some(secs)) => format!("{flag}={}", crate::time::long_duration(secs)),
            _ => flag.to_string(),
        };
        self.flags.iter().map(word).collect()
    }

    /// Does it come again?
    pub fn recurs(&self) -> bool {
        RECURRING.iter().any(|flag| self.has(*flag))
    }

    /// The same at the next time that it comes; `None`: it does not, or times end. Days are those of the zone, so that it
    /// begins at the same time of day when clocks change.
    #[must_use]
    pub fn next(&self, zone: &TimeZone) -> Option<Self> {
        let flag = RECURRING.into_iter().find(|flag| self.has(*flag))?;
        let length = self.end.since(self.start);
        let mut at = jiff::Timestamp::from_millisecond(self.start.0).ok()?.to_zoned(zone.clone());
        loop {
            at = match flag {
                ReservationFlag::Hourly => at.checked_add(1.hour()),
                ReservationFlag::Weekly => at.checked_add(1.week()),
                _ => at.checked_add(1.day()),
            }
            .ok()?;
            let weekend = matches!(at.weekday(), Weekday::Saturday | Weekday::Sunday);
            match flag {
                ReservationFlag::Weekday if weekend => {}
                ReservationFlag::Weekend if !weekend => {}
                _ => break,
            }
        }
        let start = Timestamp(at.timestamp().as_millisecond());
        Some(Self { start, end: start.plus(length), begun: false, ..self.clone() })
    }

    /// The same as it is at that time: moved on to the first time that is not over. `None`: it is over for good.
    #[must_use]
    pub fn as_of(&self, now: Timestamp, zone: &TimeZone) -> Option<Self> {
        let mut at = self.clone();
        if let Some(Floating { begins_secs, lasts_secs }) = self.floating.filter(|_| !self.is_over(now)) {
            let start = now.plus(Duration::from_secs(begins_secs));
            at.end = lasts_secs.map_or(self.end, |secs| start.plus(Duration::from_secs(secs)));
            at.start = start.min(at.end);
            return Some(at);
        }
        while at.end <= now {
            at = at.next(zone)?;
        }
        Some(at)
    }

    /// Begin and end of its next `most` times from `now` on.
    pub fn times(&self, now: Timestamp, most: usize, zone: &TimeZone) -> Vec<(Timestamp, Timestamp)> {
        let first = self.as_of(now, zone);
        std::iter::successors(first, |r| r.next(zone)).take(most).map(|r| (r.start, r.end)).collect()
    }
}

/// `Nodes=` or `NodeCnt=` of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodesWanted {
    /// These.
    Named(Vec<String>),
    /// All there are, or all of the partition.
    All,
    /// So many that are free.
    Count(u32),
    /// Those that it has, and these.
    With(Vec<String>),
    /// Those that it has, but these.
    Without(Vec<String>),
    /// So many more than it has.
    More(u32),
    /// So many fewer than it has.
    Fewer(u32),
}

/// `CoreCnt=` of a change, or `cpu=` of its `TRES=`: in all, or one number for each node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoresWanted {
    /// Cores.
    Cores(Vec<u32>),
    /// CPUs: whole cores with as many at least.
    Cpus(Vec<u32>),
}

/// What is asked for by `scontrol create reservation` and `scontrol update reservation`: only what is there changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReservationChange {
    /// `ReservationName`; a new one without gets a name.
    pub name: Option<String>,
    /// `StartTime`.
    pub start: Option<Timestamp>,
    /// `EndTime`.
    pub end: Option<Timestamp>,
    /// `Duration`, seconds.
    pub duration_secs: Option<u64>,
    /// `Duration+=` and `Duration-=`, seconds.
    pub duration_delta_secs: Option<i64>,
    /// `Skip`: on to the next time of one that comes again.
    pub skip: bool,
    /// `Nodes`, `NodeCnt`.
    pub nodes: Option<NodesWanted>,
    /// `CoreCnt`, or CPUs of `TRES`.
    pub cores: Option<CoresWanted>,
    /// `PartitionName`.
    pub partition: Option<String>,
    /// `Features`.
    pub features: Option<String>,
    /// `Users`.
    pub users: Option<AccessList>,
    /// `Accounts`.
    pub accounts: Option<AccessList>,
    /// `Users+=`.
    pub users_more: Option<AccessList>,
    /// `Users-=`.
    pub users_less: Option<AccessList>,
    /// `Accounts+=`.
    pub accounts_more: Option<AccessList>,
    /// `Accounts-=`.
    pub accounts_less: Option<AccessList>,
    /// `Groups`.
    pub groups: Option<Vec<String>>,
    /// `QOS`.
    pub qos: Option<AccessList>,
    /// `AllowedPartitions`.
    pub partitions: Option<AccessList>,
    /// `Licenses`.
    pub licenses: Option<Licenses>,
    /// Time of `PURGE_COMP`, seconds.
    pub purge_secs: Option<u64>,
    /// `MaxStartDelay`, seconds; 0: none.
    pub max_start_delay_secs: Option<u64>,
    /// Flags that are set.
    pub set: BTreeSet<ReservationFlag>,
    /// Flags that are cleared.
    pub clear: BTreeSet<ReservationFlag>,
    /// `Comment`.
    pub comment: Option<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn resv(start: &str, flag: ReservationFlag) -> Reservation {
        let start = crate::date::parse_date(start, Timestamp(0), &TimeZone::UTC).unwrap();
        let end = start.plus(Duration::from_secs(3600));
        Reservation { start, end, flags: [flag].into(), ..Reservation::default() }
    }

    #[test]
    fn flags_are_read_in_slurms_words() {
        assert_eq!("maint".parse(), Ok(ReservationFlag::Maint));
        assert!(matches!("GRES_PER_NODE".parse::<ReservationFlag>(), Err(FlagError::NotSupported(_))));
        assert_eq!("static_alloc".parse(), Ok(ReservationFlag::Static));
        assert_eq!("NO_HOLD_JOBS_AFTER".parse(), Ok(ReservationFlag::NoHoldJobsAfter));
        assert!("MAINTENANCE".parse::<ReservationFlag>().unwrap_err().to_string().contains("IGNORE_JOBS"));
        for (flag, name) in FLAGS {
            assert_eq!((flag.to_string().as_str(), name.parse()), (name, Ok(flag)));
        }
    }

    #[test]
    fn lists_allow_or_deny() {
        let allow = AccessList::parse("alice,bob").unwrap();
        assert!(allow.takes(Some("bob")) && !allow.takes(Some("eve")) && !allow.takes(None));
        let deny = AccessList::parse("-alice,-bob").unwrap();
        assert!(!deny.takes(Some("bob")) && deny.takes(Some("eve")) && deny.takes(None));
        assert_eq!((allow.to_string().as_str(), deny.to_string().as_str()), ("alice,bob", "-alice,-bob"));
        assert_eq!(AccessList::parse("alice,-bob"), None);
        assert_eq!((AccessList::parse("-"), AccessList::parse("-alice,--")), (None, None));
    }

    #[test]
    fn both_users_and_accounts_must_fit() {
        let one = Reservation {
            users: AccessList::parse("alice").unwrap(),
            accounts: AccessList::parse("chem").unwrap(),
            ..Reservation::default()
        };
        let who = |user, account| Applicant {
            admin: false,
            user,
            account,
            qos: None,
            partition: Some("debug"),
            groups: Some(&["users"]),
        };
        assert!(one.admits(who("alice", Some("chem"))));
        assert!(!one.admits(who("alice", None)) && !one.admits(who("bob", Some("chem"))));
        assert!(one.admits(Applicant { admin: true, ..who("root", None) }));
        let list = |text| AccessList::parse(text).unwrap();
        let other = Reservation { qos: list("high"), partitions: list("-debug"), ..Reservation::default() };
        let high = Applicant { qos: Some("high"), partition: Some("big"), ..who("bob", None) };
        assert!(other.admits(high) && !other.admits(Applicant { qos: None, ..high }));
        assert!(!other.admits(Applicant { partition: Some("debug"), admin: true, ..high }));
        let grouped = Reservation { groups: vec!["users".into()], ..Reservation::default() };
        assert!(grouped.admits(high) && !grouped.admits(Applicant { groups: Some(&["staff"]), ..high }));
        assert!(grouped.is_for_somebody() && !Reservation::default().is_for_somebody());
    }

    #[test]
    fn names_are_added_and_removed() {
        let list = |text| AccessList::parse(text).unwrap();
        assert_eq!(list("a,b").with(&list("b,c")), Some(list("a,b,c")));
        assert_eq!((list("a,b").without(&list("a")), list("a").without(&list("b"))), (Some(list("b")), None));
        assert_eq!((list("-a").with(&list("b")), list("-a").with(&list("-b"))), (None, Some(list("-a,-b"))));
        assert_eq!(AccessList::default().with(&list("-b")), Some(list("-b")));
    }

    #[test]
    fn a_record_of_before_reads_with_defaults() {
        let old = serde_json::json!({"name": "a", "start": 1, "end": 2, "nodes": ["n1"], "flags": ["Maint"]});
        let read: Reservation = serde_json::from_value(old).unwrap();
        assert_eq!((read.purge_secs, read.licenses.is_empty(), read.groups.len()), (None, true, 0));
        assert_eq!(read.flag_words(), ["MAINT"]);
        let purged =
            Reservation { purge_secs: Some(300), flags: [ReservationFlag::PurgeComp].into(), ..Reservation::default() };
        assert_eq!(purged.flag_words(), ["PURGE_COMP=00:05:00"]);
    }

    #[test]
    fn recurring_ones_come_again() {
        let zone = TimeZone::UTC;
        let next = |start: &str, flag| resv(start, flag).next(&zone).map(|r| r.start.text(&zone));
        // A Friday.
        let friday = "2026-11-20T10:00:00";
        assert_eq!(next(friday, ReservationFlag::Hourly).unwrap(), "2026-11-20T11:00:00");
        assert_eq!(next(friday, ReservationFlag::Daily).unwrap(), "2026-11-21T10:00:00");
        assert_eq!(next(friday, ReservationFlag::Weekday).unwrap(), "2026-11-23T10:00:00");
        assert_eq!(next(friday, ReservationFlag::Weekend).unwrap(), "2026-11-21T10:00:00");
        assert_eq!(next(friday, ReservationFlag::Weekly).unwrap(), "2026-11-27T10:00:00");
        assert_eq!(next(friday, ReservationFlag::Maint), None);
        let daily = resv(friday, ReservationFlag::Daily);
        let later = daily.as_of(daily.end, &zone).unwrap();
        assert_eq!(later.start.text(&zone), "2026-11-21T10:00:00");
        assert_eq!(daily.times(daily.start, 3, &zone).len(), 3);
    }

    #[test]
    fn the_time_of_day_stays_when_clocks_change() {
        let zone = TimeZone::get("Europe/Zurich").unwrap_or(TimeZone::UTC);
        let start = crate::date::parse_date("2027-03-27T10:00:00", Timestamp(0), &zone).unwrap();
        let daily = Reservation { start, end: start, flags: [ReservationFlag::Daily].into(), ..Reservation::default() };
        assert_eq!(daily.next(&zone).unwrap().start.text(&zone), "2027-03-28T10:00:00");
    }
}
