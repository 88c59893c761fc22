//! What a job with reserved resources waits for: what ends when its time comes. [`crate::plan`] finds it for each reservation, so
//! that the answer is there when somebody asks.

use crate::{
    room::{horizon::Horizon, node::free::Amount, reserved::Reservation},
    snapshot::facts::ClusterView,
};
use garrick_model::{
    hostlist,
    ids::JobId,
    outlook::{Blocker, Outlook},
    time::Timestamp,
    view::NodeView,
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What a job waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The job or other cause.
    pub by: Blocker,
    /// The node, by index; none for licenses.
    pub node: Option<usize>,
    /// When that is expected to end.
    pub until: Timestamp,
}

/// Which job is planned to end on which node, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends(FxHashMap<(usize, Timestamp), JobId>);

impl Ends {
    /// Notes that a job is planned to leave these nodes then.
    pub fn note(&mut self, job: JobId, nodes: impl Iterator<Item = usize>, until: Timestamp) {
        self.0.extend(nodes.map(|node| ((node, until), job)));
    }

    /// What ends at `at` on the first of the nodes that has no resources before.
    pub fn obstacle(
        &self,
        view: &ClusterView,
        horizon: &Horizon,
        nodes: &[(usize, Amount)],
        at: Timestamp,
    ) -> Option<Obstacle> {
        let (node, _) = nodes.iter().find(|(node, what)| !horizon.covers(*node, what, Timestamp(at.0 - 1)))?;
        let running = view.nodes[*node].holds.iter().find_map(|hold| {
            let end = hold.expected_end.filter(|end| horizon.round(*end) == at)?;
            Some((Blocker::Running(hold.job), end))
        });
        let ahead = || Some((Blocker::Ahead(*self.0.get(&(*node, at))?), at));
        let reserved = || {
            let ends = |r: &&crate::snapshot::reservations::ReservationFacts| {
                r.nodes.contains(*node) && r.times.iter().any(|(_, end)| horizon.round(*end) == at)
            };
            let found = view.reservations.list.iter().find(ends)?;
            Some((Blocker::Reservation(found.reservation.name.clone()), at))
        };
        let (by, until) = running.or_else(ahead).or_else(reserved)?;
        Some(Obstacle { by, node: Some(*node), until })
    }
}

/// Resources reserved for a job, and what it waits for until then.
#[derive(Clone, Debug)]
pub struct Waits {
    /// The resources.
    pub room: Reservation,
    /// What it waits for.
    pub obstacle: Option<Obstacle>,
    /// When that was planned.
    pub planned: Timestamp,
}

impl Waits {
    /// The same for display, with names of nodes and partitions in place of indices.
    pub fn outlook(&self, nodes: &[Arc<NodeView>], partitions: &[String]) -> Outlook {
        let name = |place: usize| nodes.get(place).map_or("", |node| node.name.as_str());
        let obstacle = self.obstacle.as_ref();
        Outlook {
            job: self.room.job,
            partition: partitions.get(self.room.partition).cloned().unwrap_or_default(),
            start: self.room.from,
            nodes: hostlist::fold_sorted(self.room.nodes.iter().map(|(place, _)| name(*place))),
            blocker: obstacle.map(|o| o.by.clone()),
            node: obstacle.and_then(|o| o.node).map(|place| name(place).to_owned()),
            until: obstacle.map_or(self.room.from, |o| o.until),
            planned: self.planned,
        }
    }
}
