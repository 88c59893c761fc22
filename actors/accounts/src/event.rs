//! Times in which nodes were out of service, and what clusters had (sacctmgr(1), events). How they follow from the saved states of
//! nodes in the controller's log is decided here.

use crate::{filter::is_listed, usage::secs_in};
use garrick_events::records::node::{DownCause, SavedNode};
use garrick_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Reason of the events of clusters, as Slurm has it.
pub const REGISTERED: &str = "Cluster Registered TRES";

/// Reason of the events of clusters whose controller is not there (slurmdbd.conf(5), `TrackSlurmctldDown`).
pub const DISCONNECTED: &str = "slurmctld disconnect";

/// One event: a time in which a node was out of service, or in which a cluster had that much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventRow {
    /// Cluster.
    pub cluster: String,
    /// Node; `None`: an event of the cluster.
    pub node: Option<String>,
    /// Beginning.
    pub start: Timestamp,
    /// End; `None`: it goes on.
    pub end: Option<Timestamp>,
    /// State of the node as it is shown (`DOWN*`, `DRAIN`). Empty in events of clusters.
    pub state: String,
    /// The node is down, too, where it is shown as drained.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// Why.
    pub reason: String,
    /// Who: uid and name.
    pub user: Option<(u32, String)>,
    /// Nodes of the cluster, as a host list, in its events.
    pub nodes: String,
    /// Amounts by the name of a TRES that the node or the cluster had.
    pub tres: BTreeMap<String, u64>,
}

impl EventRow {
    /// Is it about what a cluster had?
    pub fn is_registration(&self) -> bool {
        self.node.is_none() && self.reason == REGISTERED
    }

    /// Is it about a cluster whose controller was not there?
    pub fn is_disconnect(&self) -> bool {
        self.node.is_none() && self.reason == DISCONNECTED
    }

    /// Seconds of it in a window. What goes on ends `now`.
    pub fn secs_in(&self, window: (Timestamp, Timestamp), now: Timestamp) -> u64 {
        secs_in((self.start, self.end.unwrap_or(now)), window)
    }
}

/// Why a node is out of service, from a time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Since when, with that reason.
    pub since: Timestamp,
    /// As it is shown.
    pub state: &'static str,
    /// It is down, whether it is drained or not.
    pub down: bool,
    /// Reason.
    pub reason: String,
    /// Who: uid and name.
    pub user: Option<(u32, String)>,
}

impl Outage {
    /// The outage of a node with that saved state, if there is one.
    pub fn of(saved: &SavedNode) -> Option<Self> {
        let service = saved.service.filter(|service| service.out)?;
        let silent = saved.down == Some(DownCause::Silence);
        let state = match (saved.drain, saved.fail, silent) {
            (true, _, true) => "DRAIN*",
            (true, _, false) => "DRAIN",
            (false, true, true) => "FAIL*",
            (false, true, false) => "FAIL",
            (false, false, true) => "DOWN*",
            (false, false, false) => "DOWN",
        };
        let reason = saved.reason.as_ref();
        Some(Self {
            // A new reason begins later than the outage.
            since: reason.map_or(service.since, |reason| reason.at.max(service.since)),
            state,
            down: saved.down.is_some(),
            reason: reason.map_or_else(String::new, |reason| reason.text.clone()),
            user: reason.map(|reason| (reason.uid, reason.user.clone())),
        })
    }

    fn is(&self, open: &EventRow) -> bool {
        (self.state, &self.reason, &self.user) == (open.state.as_str(), &open.reason, &open.user)
    }
}

/// What the saved state of a node means for its event that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Following {
    /// It says nothing new.
    Same,
    /// The one that went on ended at that time, and this one follows.
    Change(Timestamp, Option<Outage>),
}

/// What follows from the saved state of a node with that event that goes on.
pub fn follow(open: Option<&EventRow>, saved: &SavedNode) -> Following {
    match (open, Outage::of(saved)) {
        (None, None) => Following::Same,
        (Some(open), Some(outage)) if outage.is(open) => Following::Same,
        (_, Some(outage)) => Following::Change(outage.since, Some(outage)),
        (Some(open), None) => Following::Change(saved.service.map_or(open.start, |service| service.since), None),
    }
}

/// Which events are asked for. An empty list leaves none out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventQuestion {
    /// Clusters.
    pub clusters: Vec<String>,
    /// Nodes, one by one.
    pub nodes: Vec<String>,
    /// Those that went on then or later.
    pub start: Option<Timestamp>,
    /// Those that began before then.
    pub end: Option<Timestamp>,
    /// Only those that go on.
    pub open: bool,
    /// No events of clusters.
    pub of_nodes: bool,
    /// No events of nodes.
    pub of_clusters: bool,
}

impl EventQuestion {
    /// Is it asked for?
    pub fn takes(&self, row: &EventRow) -> bool {
        let of_kind = if row.node.is_some() { !self.of_clusters } else { !self.of_nodes && self.nodes.is_empty() };
        of_kind
            && is_listed(&self.clusters, &row.cluster)
            && row.node.as_ref().is_none_or(|node| is_listed(&self.nodes, node))
            && self.end.is_none_or(|end| row.start < end)
            && row.end.is_none_or(|over| !self.open && self.start.is_none_or(|start| over >= start))
    }

    /// For what came from elsewhere: are its lists no longer than those of other questions?
    pub fn is_sound(&self) -> bool {
        self.clusters.len().max(self.nodes.len()) <= crate::filter::MOST_LISTED
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_events::records::node::SavedService;
    use garrick_model::view::NodeReason;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn out(down: Option<DownCause>, drain: bool, reason: (&str, i64), since: i64) -> SavedNode {
        let (text, when) = reason;
        let reason = NodeReason { text: text.to_owned(), uid: 0, user: "root".to_owned(), at: at(when) };
        let service = Some(SavedService { out: true, since: at(since) });
        SavedNode { down, drain, reason: Some(reason), service, ..SavedNode::default() }
    }

    fn row(saved: &SavedNode) -> EventRow {
        let Outage { since, state, down, reason, user } = Outage::of(saved).unwrap();
        let node = Some("n1".to_owned());
        EventRow { node, start: since, state: state.to_owned(), down, reason, user, ..EventRow::default() }
    }

    #[test]
    fn states_are_those_that_slurm_shows() {
        let state = |down, drain| Outage::of(&out(down, drain, ("x", 1), 1)).unwrap().state;
        assert_eq!(state(Some(DownCause::Silence), false), "DOWN*");
        assert_eq!(state(Some(DownCause::Admin), false), "DOWN");
        assert_eq!((state(None, true), state(Some(DownCause::Silence), true)), ("DRAIN", "DRAIN*"));
        let down = |down, drain| Outage::of(&out(down, drain, ("x", 1), 1)).unwrap().down;
        assert_eq!((down(None, true), down(Some(DownCause::Admin), true)), (false, true));
    }

    #[test]
    fn an_event_goes_on_until_something_else_is_so() {
        let silent = out(Some(DownCause::Silence), false, ("Not responding", 10), 10);
        let open = row(&silent);
        assert_eq!(follow(Some(&open), &silent), Following::Same);
        // What is no part of it.
        let comment = SavedNode { comment: Some("c".to_owned()), ..silent };
        assert_eq!(follow(Some(&open), &comment), Following::Same);
        let other = out(Some(DownCause::Admin), false, ("fans", 20), 10);
        let Following::Change(ends, Some(next)) = follow(Some(&open), &other) else { panic!("it is another event") };
        assert_eq!((ends, next.since, next.reason.as_str()), (at(20), at(20), "fans"));
        let back = SavedNode { service: Some(SavedService { out: false, since: at(30) }), ..SavedNode::default() };
        assert_eq!(follow(Some(&open), &back), Following::Change(at(30), None));
        assert_eq!(follow(None, &back), Following::Same);
    }

    #[test]
    fn a_node_that_drains_is_in_service_until_its_last_job_ends() {
        let drains = SavedNode { service: None, ..out(None, true, ("fans", 5), 9) };
        assert_eq!((Outage::of(&drains), follow(None, &drains)), (None, Following::Same));
        assert_eq!(Outage::of(&out(None, true, ("fans", 5), 9)).unwrap().since, at(9));
    }

    #[test]
    fn questions_are_about_a_window() {
        let mut event = row(&out(None, true, ("fans", 100), 100));
        let asks =
            |start, end| EventQuestion { start: Some(at(start)), end: Some(at(end)), ..EventQuestion::default() };
        assert!(asks(200, 300).takes(&event) && !asks(50, 100).takes(&event));
        event.end = Some(at(150));
        assert!(asks(150, 300).takes(&event) && !asks(151, 300).takes(&event));
        assert!(!EventQuestion { open: true, ..EventQuestion::default() }.takes(&event));
        assert!(!EventQuestion { nodes: vec!["n2".to_owned()], ..EventQuestion::default() }.takes(&event));
        assert!(!EventQuestion { of_clusters: true, ..EventQuestion::default() }.takes(&event));
        assert_eq!(event.secs_in((at(120), at(400)), at(500)), 30);
        assert_eq!((event.secs_in((at(0), at(90)), at(500)), event.secs_in((at(150), at(400)), at(500))), (0, 0));
    }
}
