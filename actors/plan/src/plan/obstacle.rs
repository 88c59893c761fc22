//! What stands in the way of a job that has room reserved: what ends when its time comes. Called by [`crate::plan`] for
//! each room that it reserves, so that the answer is there when somebody asks.

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

/// Who stands in the way of somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Who or what.
    pub by: Blocker,
    /// The node, by place; none for licenses.
    pub node: Option<usize>,
    /// When that is expected to be out of the way.
    pub until: Timestamp,
}

/// What is planned to end when on which node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends(FxHashMap<(usize, Timestamp), JobId>);

impl Ends {
    /// A job is planned to leave these nodes then.
    pub fn note(&mut self, job: JobId, nodes: impl Iterator<Item = usize>, until: Timestamp) {
        self.0.extend(nodes.map(|node| ((node, until), job)));
    }

    /// What ends at `at` on the first of the nodes that have no room before.
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

/// Room reserved for a job, and what is in the way until then.
#[derive(Clone, Debug)]
pub struct Waits {
    /// The room.
    pub room: Reservation,
    /// What is in the way.
    pub obstacle: Option<Obstacle>,
    /// When that was planned.
    pub planned: Timestamp,
}

impl Waits {
    /// In words, with the names of nodes and partitions by their places.
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
