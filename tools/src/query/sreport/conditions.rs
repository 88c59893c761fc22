//! What is asked for behind the name of a report: `start=`, `accounts=`, `tree` and so on.

use crate::query::choices;
use garrick_accounts::filter::{JobFilter, NamedJob};
use garrick_asking::accounts::gid_of;
use garrick_model::{date, hostlist, ids::JobId, time::Timestamp};
use garrick_render::{
    sacctmgr::kind::begins,
    sreport::{
        Report, Window,
        sizes::{self, Grouping},
        usage,
    },
};
use jiff::{ToSpan as _, Zoned, tz::TimeZone};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// From when to when, by whole hours.
    pub window: Window,
    lists: Vec<(Key, Vec<String>)>,
    format: Option<String>,
    grouping: Option<Grouping>,
    top: usize,
    flags: Vec<Flag>,
}

/// Lists of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Accounts,
    Clusters,
    Gids,
    Jobs,
    Names,
    Nodes,
    Partitions,
    Users,
    Wckeys,
}

const LISTS: [(&str, Key); 10] = [
    ("accounts", Key::Accounts),
    ("clusters", Key::Clusters),
    ("gid", Key::Gids),
    ("jobs", Key::Jobs),
    ("names", Key::Names),
    ("nodes", Key::Nodes),
    ("partitions", Key::Partitions),
    ("users", Key::Users),
    ("logins", Key::Users),
    ("wckeys", Key::Wckeys),
];

/// Words without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flag {
    AllClusters,
    AcctAsParent,
    FlatView,
    Group,
    PrintJobCount,
    Tree,
    Nothing,
}

const FLAGS: [(&str, usize, Flag); 8] = [
    ("All_Clusters", 2, Flag::AllClusters),
    ("AcctAsParent", 3, Flag::AcctAsParent),
    ("FlatView", 2, Flag::FlatView),
    ("Group", 2, Flag::Group),
    ("PrintJobCount", 2, Flag::PrintJobCount),
    ("Tree", 2, Flag::Tree),
    ("where", 5, Flag::Nothing),
    ("set", 3, Flag::Nothing),
];

/// Words that cannot be used. The report is printed nevertheless.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// There is no such condition.
    #[error(" Unknown condition: {0}\nUse keyword set to modify value")]
    Unknown(String),
    /// No time.
    #[error("Invalid time specification (pos={place}): {text}")]
    Time {
        /// Where it is wrong.
        place: usize,
        /// As typed.
        text: String,
    },
}

impl ConditionError {
    /// Does the command fail for it?
    pub const fn fails(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

/// So many users are shown unasked.
const TOP: usize = 10;

impl Asked {
    /// Reads the words. What is wrong is left out, and told.
    pub fn read(words: &[String], now: Timestamp, zone: &TimeZone, wrong: &mut Vec<ConditionError>) -> Self {
        let (mut start, mut end) = (None, None);
        let mut asked = Self {
            window: Window { start: now, end: now },
            lists: Vec::new(),
            format: None,
            grouping: None,
            top: TOP,
            flags: Vec::new(),
        };
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let is_time = word.contains('=') && (begins("start", name, 1) || begins("end", name, 1));
            if is_time {
                match date::parse_past(value, now, zone) {
                    Ok(at) if begins("start", name, 1) => start = Some(at),
                    Ok(at) => end = Some(at),
                    Err(_) => {
                        let place = date::wrong_in_past(value);
                        wrong.push(ConditionError::Time { place, text: value.to_owned() });
                    }
                }
            } else if asked.take(word).is_none() {
                wrong.push(ConditionError::Unknown(word.clone()));
            }
        }
        asked.window = window(start, end, now, zone);
        asked
    }

    fn take(&mut self, word: &str) -> Option<()> {
        let Some((name, value)) = word.split_once('=') else {
            let (_, _, flag) = FLAGS.iter().find(|(known, letters, _)| begins(known, word, *letters))?;
            self.flags.push(*flag);
            return Some(());
        };
        let plain = value.trim_matches(['"', '\'']);
        if begins("format", name, 1) {
            self.format = Some(plain.to_owned());
        } else if begins("grouping", name, 2) {
            self.grouping = Some(Grouping::read(plain)?);
        } else if begins("topcount", name, 2) {
            self.top = plain.parse().ok()?;
        } else {
            let (_, key) = LISTS.iter().find(|(known, _)| begins(known, name, 1))?;
            self.lists.push((*key, choices::words(plain)));
        }
        Some(())
    }

    fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    fn list(&self, key: Key) -> Vec<String> {
        self.lists.iter().filter(|(known, _)| *known == key).flat_map(|(_, values)| values.clone()).collect()
    }

    /// Clusters that are named. Empty: all.
    pub fn clusters(&self) -> Option<Vec<String>> {
        let named = self.list(Key::Clusters);
        if self.has(Flag::AllClusters) { Some(Vec::new()) } else { (!named.is_empty()).then_some(named) }
    }

    /// What holds for the jobs that count, beyond their accounts, users and WCKeys.
    pub fn such(&self) -> JobFilter {
        let groups = self.list(Key::Gids).iter().filter_map(|group| gid(group)).collect();
        let jobs =
            self.list(Key::Jobs).iter().filter_map(|job| job.parse().ok()).map(JobId).map(NamedJob::job).collect();
        JobFilter { groups, jobs, nodes: self.nodes(), partitions: self.list(Key::Partitions), ..JobFilter::default() }
    }

    /// `nodes=`, one by one.
    pub fn nodes(&self) -> Vec<String> {
        let nodes = self.list(Key::Nodes).join(",");
        if nodes.is_empty() { Vec::new() } else { hostlist::expand(&nodes).unwrap_or_default() }
    }

    /// `names=` of reservations.
    pub fn names(&self) -> Vec<String> {
        self.list(Key::Names)
    }

    /// `format=`
    pub fn format(&self) -> Option<&str> {
        self.format.as_deref()
    }

    /// `tree`
    pub fn tree(&self) -> bool {
        self.has(Flag::Tree)
    }

    /// `PrintJobCount`
    pub fn counts(&self) -> bool {
        self.has(Flag::PrintJobCount)
    }

    /// `TopCount=`
    pub const fn top(&self) -> usize {
        self.top
    }

    /// For reports of usage.
    pub fn usage(&self) -> usage::Choice {
        usage::Choice {
            accounts: self.lower(Key::Accounts),
            users: self.lower(Key::Users),
            wckeys: self.list(Key::Wckeys),
            tree: self.tree(),
            group: self.has(Flag::Group),
            top: self.top,
        }
    }

    /// For reports of sizes.
    pub fn sizes(&self) -> sizes::Choice {
        sizes::Choice {
            grouping: self.grouping.clone().unwrap_or_default(),
            counts: self.counts(),
            flat: self.has(Flag::FlatView),
            parents: self.has(Flag::AcctAsParent),
            accounts: self.lower(Key::Accounts),
            wckeys: self.list(Key::Wckeys),
            users: self.lower(Key::Users),
        }
    }

    /// The first condition that narrows nothing in that report: it is refused, so that nobody takes all for what he asked for. Which
    /// report has which is in sreport(1); Garrick has some of those of other reports besides.
    pub fn refused(&self, report: Report) -> Option<ConditionError> {
        use Key::{Accounts, Clusters, Gids, Jobs, Names, Nodes, Partitions, Users, Wckeys};
        let known: &[Key] = match report {
            Report::Cluster => &[Clusters],
            Report::Reservation => &[Clusters, Names, Nodes],
            Report::AccountByUser | Report::UserByAccount | Report::TopUsage => {
                &[Accounts, Clusters, Gids, Jobs, Nodes, Partitions, Users]
            }
            Report::AccountByQos => &[Accounts, Clusters, Gids, Jobs, Nodes, Partitions],
            Report::UserByWckey | Report::WckeyByUser => &[Clusters, Gids, Jobs, Nodes, Partitions, Users, Wckeys],
            Report::SizesByAccount | Report::SizesByAccountAndWckey | Report::SizesByWckey => {
                &[Accounts, Clusters, Gids, Jobs, Nodes, Partitions, Users, Wckeys]
            }
        };
        let (key, values) = self.lists.iter().find(|(key, _)| !known.contains(key))?;
        let name = LISTS.iter().find(|(_, of)| of == key).map_or("", |(name, _)| name);
        Some(ConditionError::Unknown(format!("{name}={}", values.join(","))))
    }

    /// Accounts and users have no capitals.
    fn lower(&self, key: Key) -> Vec<String> {
        self.list(key).iter().map(|name| name.to_ascii_lowercase()).collect()
    }
}

fn gid(group: &str) -> Option<u32> {
    group.parse().ok().or_else(|| gid_of(group))
}

/// The window, by whole hours: of yesterday unless it is given. The end is rounded up, and at least an hour behind the start.
fn window(start: Option<Timestamp>, end: Option<Timestamp>, now: Timestamp, zone: &TimeZone) -> Window {
    let zoned = |at: Timestamp| jiff::Timestamp::from_millisecond(at.0).map(|at| at.to_zoned(zone.clone()));
    let found = || -> Result<Window, jiff::Error> {
        let hour = |at: &Zoned| at.with().minute(0).second(0).subsec_nanosecond(0).build();
        let next = |at: &Zoned| hour(at)?.checked_add(1.hour());
        let today = zoned(now)?.start_of_day()?;
        let start = match start {
            Some(at) => hour(&zoned(at)?)?,
            None => today.checked_sub(1.day())?,
        };
        let end = match end {
            None => next(&today)?,
            Some(at) => {
                let at = zoned(at)?;
                if hour(&at)? == at { at } else { next(&at)? }
            }
        };
        let end = if end <= start { next(&start)? } else { end };
        let of = |at: &Zoned| Timestamp(at.timestamp().as_millisecond());
        Ok(Window { start: of(&start), end: of(&end) })
    };
    found().unwrap_or(Window { start: now, end: now })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// 2026-11-23T09:02:04 UTC.
    const NOW: Timestamp = Timestamp(1_795_424_524_000);

    fn read(words: &str) -> (Asked, Vec<ConditionError>) {
        let words: Vec<String> = words.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let mut wrong = Vec::new();
        (Asked::read(&words, NOW, &TimeZone::UTC, &mut wrong), wrong)
    }

    fn windowed(words: &str) -> String {
        let Window { start, end } = read(words).0.window;
        format!("{} - {}", start.text(&TimeZone::UTC), Timestamp(end.0 - 1000).text(&TimeZone::UTC))
    }

    /// As sreport of Slurm 26.05.3 had them.
    #[test]
    fn windows_are_of_whole_hours() {
        assert_eq!(windowed("start=00:00 end=now"), "2026-11-23T00:00:00 - 2026-11-23T09:59:59");
        assert_eq!(
            windowed("start=2026-11-23T08:00 end=2026-11-23T09:00"),
            "2026-11-23T08:00:00 - 2026-11-23T08:59:59"
        );
        assert_eq!(windowed("start=08:30 end=08:45"), "2026-11-23T08:00:00 - 2026-11-23T08:59:59");
        assert_eq!(windowed(""), "2026-11-22T00:00:00 - 2026-11-23T00:59:59");
        assert_eq!(windowed("start=09:00 end=08:00"), "2026-11-23T09:00:00 - 2026-11-23T09:59:59");
        assert_eq!(windowed("start=now-3days end=now-2days"), "2026-11-20T09:00:00 - 2026-11-21T09:59:59");
    }

    #[test]
    fn what_is_wrong_is_told_and_left_out() {
        let (_, wrong) = read("start=bogus");
        assert_eq!(wrong[0].to_string(), "Invalid time specification (pos=0): bogus");
        assert!(!wrong[0].fails());
        let (_, wrong) = read("tree bogus=1");
        assert_eq!(wrong[0].to_string(), " Unknown condition: bogus=1\nUse keyword set to modify value");
        assert!(wrong[0].fails() && wrong.len() == 1);
    }

    #[test]
    fn a_condition_that_narrows_nothing_is_refused() {
        let refused = |report, words: &str| read(words).0.refused(report).map(|error| error.to_string());
        let of = |word: &str| Some(format!(" Unknown condition: {word}\nUse keyword set to modify value"));
        assert_eq!(refused(Report::Cluster, "users=alice clusters=c"), of("users=alice"));
        assert_eq!(refused(Report::Cluster, "logins=alice,bob"), of("users=alice,bob"));
        assert_eq!(refused(Report::Reservation, "names=r nodes=n1"), None);
        assert_eq!(refused(Report::Reservation, "accounts=chem"), of("accounts=chem"));
        assert_eq!(refused(Report::AccountByQos, "users=alice"), of("users=alice"));
        assert_eq!(refused(Report::AccountByUser, "users=alice accounts=chem gid=5"), None);
        assert_eq!(refused(Report::UserByAccount, "wckeys=w"), of("wckeys=w"));
        assert_eq!(refused(Report::WckeyByUser, "wckeys=w users=alice"), None);
        assert_eq!(refused(Report::SizesByWckey, "wckeys=w users=alice nodes=n1 jobs=3 partitions=p"), None);
        assert_eq!(refused(Report::SizesByAccount, "names=r"), of("names=r"));
        assert_eq!(read("users=Alice").0.sizes().users, ["alice"]);
    }

    #[test]
    fn words_narrow_the_report() {
        let (asked, wrong) = read("accounts=Physics,chem users=alice wckeys=w tree Group topcount=3 format=login,used");
        assert_eq!(wrong, []);
        let usage = asked.usage();
        assert_eq!(
            (usage.accounts, usage.users),
            (vec!["physics".to_owned(), "chem".to_owned()], vec!["alice".to_owned()])
        );
        assert!(usage.tree && usage.group && usage.top == 3);
        assert_eq!(asked.format(), Some("login,used"));
        let (asked, wrong) =
            read("grouping=1,2 FlatView PrintJobCount nodes=n[1-2] partitions=main jobs=7 gid=5 clusters=c");
        assert_eq!(wrong, []);
        let such = asked.such();
        assert_eq!((such.nodes, such.groups, such.jobs.len()), (vec!["n1".to_owned(), "n2".to_owned()], vec![5], 1));
        assert_eq!(asked.sizes().grouping, Grouping::Bounds(vec![1, 2]));
        assert!(asked.sizes().flat && asked.counts());
        assert_eq!(asked.clusters(), Some(vec!["c".to_owned()]));
        assert_eq!(read("AcctAsParent all_clusters").0.clusters(), Some(vec![]));
    }
}
