//! All free resources for a plan in progress: now and later, on nodes and of licenses. What is taken from one is taken from all.

use super::{
    horizon::{Horizon, Limits},
    licenses::LicensePlan,
    machine::{Machine, PlannedHold},
    node::free::Amount,
    promises::Promises,
    reservations::Futures,
    topology::rest_of_units,
};
use crate::snapshot::{
    facts::ClusterView,
    request::{NodeUse, Request},
    reservations::Viewer,
};
use garrick_model::{node_shape::NodeShare, time::Timestamp, view::AllocatedNode};

/// All free resources.
#[derive(Clone)]
pub(crate) struct Space<'a> {
    view: &'a ClusterView,
    now: Timestamp,
    /// Now, by single CPU.
    pub machine: Machine<'a>,
    /// From now on, in amounts, in the current view of reservations.
    pub horizon: Horizon,
    futures: Futures,
    /// Licenses from now on.
    pub licenses: LicensePlan,
    /// Bounds of searches in the horizon that are known already.
    pub limits: Limits,
    /// An empty cluster; built when it is first needed.
    pub idle: Option<Machine<'a>>,
    /// The same with all nodes in service; built when it is first needed.
    pub ideal: Option<Machine<'a>>,
    /// Resources of this plan's starts.
    pub planned: Vec<PlannedHold>,
    /// What jobs of partitions with CPU limits hold.
    pub promises: Promises,
}

impl<'a> Space<'a> {
    /// From this state.
    pub fn on(view: &'a ClusterView, now: Timestamp, machine: Machine<'a>, horizon: Horizon) -> Self {
        Self {
            view,
            now,
            machine,
            horizon,
            futures: Futures::default(),
            licenses: LicensePlan::among(&view.licenses, &view.reservations, now),
            limits: Limits::default(),
            idle: None,
            ideal: None,
            planned: Vec::new(),
            promises: Promises::of(view),
        }
    }

    /// Sets the current view of reservations.
    pub fn look(&mut self, viewer: Viewer) {
        self.look_at_nodes(viewer);
        self.licenses.look(viewer);
    }

    /// The same for nodes only.
    pub(crate) fn look_at_nodes(&mut self, viewer: Viewer) {
        self.futures.look(&mut self.horizon, viewer, self.view, self.now);
    }

    /// Holds amounts of nodes between these times.
    pub fn hold(&mut self, nodes: Vec<(usize, Amount)>, from: Timestamp, until: Timestamp) {
        self.futures.hold(&mut self.horizon, self.view, nodes, (from, until));
    }

    fn take(&mut self, hold: PlannedHold) {
        self.machine.take_planned(&hold);
        self.promises.take(&hold);
        self.planned.push(hold);
    }

    /// Takes these nodes from now until `end`, with all that is closed to others because of them.
    pub fn occupy(&mut self, request: &Request, nodes: &[AllocatedNode], end: Timestamp) {
        let of = |node, share, usage| {
            let Request { owner, partition, .. } = *request;
            PlannedHold { node, share, usage, owner, partition, end }
        };
        for node in nodes {
            self.take(of(node.index.0 as usize, node.share.clone(), request.usage));
        }
        let closed = rest_of_units(self.view, request, nodes.iter().map(|node| node.index.0 as usize));
        for (node, closing) in &closed {
            self.take(of(*node, NodeShare::default(), closing.usage));
        }
        self.hold(closed, self.now, end);
        self.hold(self.amounts(nodes, request), self.now, end);
    }

    /// The amounts of nodes given to a request.
    pub fn amounts(&self, nodes: &[AllocatedNode], request: &Request) -> Vec<(usize, Amount)> {
        let amount = |node: &AllocatedNode| {
            let place = node.index.0 as usize;
            let of_share = Amount::of_share(&self.view.nodes[place].shape, &node.share, request.usage, request.owner);
            let parted = self.view.reservations.is_parted(place) && request.usage != NodeUse::Whole;
            let own = || node.share.cpus.difference(&self.view.nodes[place].shape.restricted_cpus());
            (place, Amount { named: parted.then(own), ..of_share })
        };
        nodes.iter().map(amount).collect()
    }
}
