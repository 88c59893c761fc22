//! All free room that a plan under way goes by: now and later, on nodes and of licenses. What is taken of one is taken of all.

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
    reservations::Eyes,
};
use garrick_model::{node_shape::NodeShare, time::Timestamp, view::AllocatedNode};

/// It.
#[derive(Clone)]
pub(crate) struct Space<'a> {
    view: &'a ClusterView,
    now: Timestamp,
    /// Room now, to the single CPU.
    pub machine: Machine<'a>,
    /// Room from now on, in amounts, as those see it who look now.
    pub horizon: Horizon,
    futures: Futures,
    /// Licenses from now on.
    pub licenses: LicensePlan,
    /// Bounds of searches in the horizon that are known already.
    pub limits: Limits,
    /// If nobody had anything; built when first needed.
    pub idle: Option<Machine<'a>>,
    /// If all nodes were in service besides; built when first needed.
    pub ideal: Option<Machine<'a>>,
    /// What starts of this plan have.
    pub planned: Vec<PlannedHold>,
    /// What partitions with limits of CPUs have.
    pub promises: Promises,
}

impl<'a> Space<'a> {
    /// From that on.
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

    /// From now on it is looked at with these eyes.
    pub fn look(&mut self, eyes: Eyes) {
        self.look_at_nodes(eyes);
        self.licenses.look(eyes);
    }

    /// The same for nodes only.
    pub fn look_at_nodes(&mut self, eyes: Eyes) {
        self.futures.look(&mut self.horizon, eyes, self.view, self.now);
    }

    /// Somebody has that from then until then.
    pub fn hold(&mut self, nodes: Vec<(usize, Amount)>, from: Timestamp, until: Timestamp) {
        self.futures.hold(&mut self.horizon, self.view, nodes, (from, until));
    }

    fn take(&mut self, hold: PlannedHold) {
        self.machine.take_planned(&hold);
        self.promises.take(&hold);
        self.planned.push(hold);
    }

    /// From now until `end` nobody else gets these nodes, nor what is closed to others with them.
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

    /// What nodes given to a request come to in amounts.
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
