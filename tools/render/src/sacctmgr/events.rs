//! `sacctmgr list event`: when nodes were out of service, and what clusters had (sacctmgr(1), events).

use super::{
    condition::{Key, More, Request},
    kind::{begins, find_named},
};
use crate::{
    clock::Clock,
    field_table::{self, text as field},
};
use garrick_accounts::{
    event::{EventQuestion, EventRow},
    tres::CPU,
};
use garrick_model::{
    hostlist,
    time::{Timestamp, UNKNOWN, long_duration},
};

/// What stands in a field.
pub type Shown = fn(&EventRow, &Clock) -> String;
/// A column.
pub type Column = field_table::Column<Shown>;
type Field = field_table::Field<Shown>;

/// Fields under the names by which they are asked for. The beginning of one will do, of five letters at least.
static FIELDS: [(&str, Field); 15] = [
    ("cluster", field("Cluster", 10, |row, _| row.cluster.clone())),
    ("clusternodes", Field { left: true, ..field("Cluster Nodes", 20, |row, _| row.nodes.clone()) }),
    (
        "duration",
        field("Duration", 13, |row, clock| {
            let end = row.end.unwrap_or(clock.now);
            long_duration(u64::try_from(end.secs() - row.start.secs()).unwrap_or(0))
        }),
    ),
    ("end", field("TimeEnd", 19, end)),
    ("event", field("Event", 7, |row, _| if row.node.is_some() { "Node" } else { "Cluster" }.to_owned())),
    ("eventraw", field("EventRaw", 8, |row, _| if row.node.is_some() { "2" } else { "1" }.to_owned())),
    ("nodename", Field { left: true, ..field("NodeName", 15, |row, _| row.node.clone().unwrap_or_default()) }),
    ("reason", field("Reason", 30, |row, _| row.reason.clone())),
    ("start", field("TimeStart", 19, |row, clock| clock.at(row.start))),
    ("state", field("State", 6, |row, _| row.state.clone())),
    ("stateraw", field("StateRaw", 8, |row, _| state_number(row).to_string())),
    ("timeend", field("TimeEnd", 19, end)),
    ("timestart", field("TimeStart", 19, |row, clock| clock.at(row.start))),
    (
        "tres",
        field("TRES", 20, |row, _| super::amounts::tres(row.tres.iter().map(|(name, count)| (name.as_str(), *count)))),
    ),
    (
        "user",
        field("User", 10, |row, _| row.user.as_ref().map_or_else(String::new, |(uid, name)| format!("{name}({uid})"))),
    ),
];

/// The number of a node's state: 1 is down, 2 idle, and 512 and 2048 are added where it is drained or FAIL, and where it does not respond.
/// 0 in events of clusters. All seen in `sacctmgr list event` of Slurm 22.05.8.
fn state_number(row: &EventRow) -> u32 {
    const DOWN: u32 = 1;
    const IDLE: u32 = 2;
    const DRAIN: u32 = 1 << 9;
    const NO_RESPOND: u32 = 1 << 11;
    let silent = row.state.ends_with('*');
    let state = match row.state.trim_end_matches('*') {
        _ if row.node.is_none() => return 0,
        "DRAIN" | "FAIL" if silent || row.down => DOWN | DRAIN,
        "DRAIN" | "FAIL" => IDLE | DRAIN,
        _ => DOWN,
    };
    if silent { state | NO_RESPOND } else { state }
}

fn end(row: &EventRow, clock: &Clock) -> String {
    clock.at_or(row.end, UNKNOWN)
}

/// The columns that are asked for, or the usual ones.
///
/// # Errors
/// The first field that there is not.
pub fn columns(format: Option<&str>) -> Result<Vec<Column>, String> {
    let find = |name: &str| find_named(FIELDS.iter(), name, 5);
    field_table::chosen(format.unwrap_or("cluster,nodename,start,end,state,reason,user"), find)
}

/// The window that is asked for: from the beginning of yesterday until now unless it is named.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Beginning.
    pub start: Option<Timestamp>,
    /// End.
    pub end: Option<Timestamp>,
}

/// What the service is asked. `usual`: the beginning of a window where none is named; `here`: the cluster where none is named.
///
/// # Errors
/// A list of nodes that is none.
pub fn question(
    request: &Request,
    window: Window,
    usual: Timestamp,
    here: &str,
) -> Result<EventQuestion, hostlist::HostListError> {
    let values = |key: Key| request.conditions.get(&key).cloned().unwrap_or_default();
    let begins_with = |key: Key, word: &str| values(key).iter().any(|typed| begins(word, typed, 1));
    // Who asks for states is told which nodes are in them now.
    let only_open = begins_with(Key::CondFlags, "open");
    let open = only_open || (request.asks(Key::States) && window.start.is_none());
    let start = window.start.or_else(|| (!open && !request.has(More::AllTime)).then_some(usual));
    let of_nodes = only_open || request.asks(Key::States) || request.asks(Key::User);
    Ok(EventQuestion {
        clusters: clusters(request, here),
        nodes: nodes(request)?,
        start,
        end: window.end,
        open,
        of_nodes: of_nodes || (begins_with(Key::Event, "node") && !begins_with(Key::Event, "cluster")),
        of_clusters: begins_with(Key::Event, "cluster") && !begins_with(Key::Event, "node"),
    })
}

/// Nodes that are asked for, one by one. Empty: all.
pub(super) fn nodes(request: &Request) -> Result<Vec<String>, hostlist::HostListError> {
    let nodes = request.conditions.get(&Key::Nodes).map(|lists| lists.join(",")).filter(|nodes| !nodes.is_empty());
    nodes.map_or(Ok(Vec::new()), |nodes| hostlist::expand(&nodes))
}

/// Clusters that are asked for. Empty: all.
pub fn clusters(request: &Request, here: &str) -> Vec<String> {
    match (request.has(More::AllClusters), request.conditions.get(&Key::Cluster)) {
        (true, _) => Vec::new(),
        (false, Some(named)) => named.clone(),
        (false, None) => vec![here.to_owned()],
    }
}

/// Does a row meet the conditions that the service does not know?
pub fn takes(request: &Request, row: &EventRow) -> bool {
    let numbers = |key: Key| request.conditions.get(&key).and_then(|values| values.last()?.parse::<u64>().ok());
    let cpus = row.tres.get(CPU).copied().unwrap_or(0);
    // `down` is also a node that does not respond.
    let state = row.state.trim_end_matches('*');
    let word = |typed: &String| {
        begins(state, typed.trim_end_matches('*'), 1) || (state == "DRAIN" && begins("drained", typed, 5))
    };
    let states = request.conditions.get(&Key::States);
    let user = |typed: &String| row.user.as_ref().is_some_and(|(uid, name)| name == typed || typed.parse() == Ok(*uid));
    states.is_none_or(|states| states.iter().any(word))
        && request.takes(Key::Reason, &row.reason)
        && request.conditions.get(&Key::User).is_none_or(|users| users.iter().any(user))
        && numbers(Key::MinCpus).is_none_or(|least| cpus >= least)
        && numbers(Key::MaxCpus).is_none_or(|most| cpus <= most)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{field_table::Setting, sacctmgr::kind::Kind};
    use jiff::tz::TimeZone;

    const AT: i64 = 1_795_423_731;

    fn silent() -> EventRow {
        EventRow {
            cluster: "cluster".to_owned(),
            node: Some("n3".to_owned()),
            start: Timestamp::from_secs(AT),
            state: "DOWN*".to_owned(),
            reason: "Not responding".to_owned(),
            user: Some((3000, "slurm".to_owned())),
            tres: [("cpu".to_owned(), 4), ("mem".to_owned(), 2000)].into(),
            ..EventRow::default()
        }
    }

    fn shown(format: Option<&str>, rows: &[EventRow]) -> String {
        let columns = columns(format).unwrap();
        let clock = Clock { zone: TimeZone::UTC, now: Timestamp::from_secs(AT + 90), format: None };
        let mut out = Vec::new();
        Setting::Columns.heading(&mut out, &columns).unwrap();
        for row in rows {
            Setting::Columns.row(&mut out, &columns, |shown| shown(row, &clock)).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    /// As sacctmgr of Slurm 26.05.3 printed it.
    #[test]
    fn the_table_is_slurms() {
        let registered = EventRow {
            cluster: "cluster".to_owned(),
            start: Timestamp::from_secs(1_795_423_088),
            reason: garrick_accounts::event::REGISTERED.to_owned(),
            ..EventRow::default()
        };
        assert_eq!(
            shown(None, &[registered, silent()]),
            "   Cluster NodeName                  TimeStart             TimeEnd  State                         Reason       User \n\
             ---------- --------------- ------------------- ------------------- ------ ------------------------------ ---------- \n   \
             cluster                 2026-11-23T08:38:08             Unknown               Cluster Registered TRES            \n   \
             cluster n3              2026-11-23T08:48:51             Unknown  DOWN*                 Not responding slurm(300+ \n"
        );
        assert!(columns(Some("node")).is_err() && columns(Some("noden")).is_ok());
        let raw = |state: &str| shown(Some("eventraw,stateraw"), &[EventRow { state: state.to_owned(), ..silent() }]);
        let numbers =
            ["DOWN", "DOWN*", "DRAIN", "DRAIN*"].map(|state| raw(state).lines().last().unwrap().trim().to_owned());
        // As sacctmgr of Slurm 22.05.8 printed them.
        assert_eq!(numbers, ["2        1", "2     2049", "2      514", "2     2561"]);
        let both = EventRow { state: "DRAIN".to_owned(), down: true, ..silent() };
        assert!(shown(Some("stateraw"), &[both]).contains(" 513 "));
        let others = shown(Some("event,duration,tres,clusterno"), &[silent()]);
        assert_eq!(others.lines().last().unwrap().trim(), "Node      00:01:30      cpu=4,mem=2000M");
    }

    #[test]
    fn conditions_are_met() {
        let takes = |words: &[&str]| takes(&Request::read(Kind::Event, words).unwrap(), &silent());
        assert!(takes(&["reason='Not responding'", "states=down", "user=slurm", "mincpus=4", "maxcpus=4"]));
        assert!(takes(&["user=3000"]) && takes(&["state=down*"]));
        for other in ["reason=fans", "states=drain", "user=root", "mincpus=5", "maxcpus=3"] {
            assert!(!takes(&[other]), "{other}");
        }
    }

    #[test]
    fn the_window_begins_yesterday_unless_states_or_all_time_are_asked_for() {
        let usual = Timestamp::from_secs(5);
        let none = Window { start: None, end: None };
        let question = |words: &[&str], window| {
            question(&Request::read(Kind::Event, words).unwrap(), window, usual, "here").unwrap()
        };
        let plain = question(&[], none);
        assert_eq!((plain.start, plain.open, plain.clusters), (Some(usual), false, vec!["here".to_owned()]));
        let states = question(&["states=down"], none);
        assert!(states.open && states.start.is_none() && states.of_nodes);
        let since = question(&["states=down"], Window { start: Some(usual), end: None });
        assert!(!since.open && since.start == Some(usual));
        let all = question(&["all_time", "all_clusters", "event=cluster"], none);
        assert!(all.start.is_none() && all.clusters.is_empty() && all.of_clusters && !all.of_nodes);
        assert_eq!(question(&["nodes=n[1-2]", "condflags=open"], none).nodes, ["n1", "n2"]);
    }
}
