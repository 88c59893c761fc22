//! The most CPUs that all jobs of a partition together may have of a node (`MaxCPUsPerNode`, `MaxCPUsPerSocket`). No job may
//! request more than that on a node, even with exclusive use. A job with exclusive use that stays within it is given the whole
//! node.

use super::request::NodeUse;
use garrick_model::{node_shape::NodeShape, resources::CpuSet};

/// Most CPUs of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuCaps {
    /// On all its sockets together.
    pub per_node: Option<u32>,
    /// On each socket.
    pub per_socket: Option<u32>,
}

impl CpuCaps {
    /// No limits.
    pub const NONE: Self = Self { per_node: None, per_socket: None };

    /// Do other jobs of the partition matter to a request of this kind?
    pub fn count(self, usage: NodeUse) -> bool {
        self != Self::NONE && usage != NodeUse::Whole
    }

    /// The limits that apply to a request of this kind.
    pub fn of(self, usage: NodeUse) -> Self {
        if self.count(usage) { self } else { Self::NONE }
    }

    /// The most on an idle node.
    pub fn most(self, shape: &NodeShape) -> u32 {
        let by_socket = self.per_socket.map_or(u32::MAX, |most| most.saturating_mul(shape.sockets.max(1)));
        self.per_node.unwrap_or(u32::MAX).min(by_socket)
    }

    /// How many more CPUs the partition may have, beyond those it holds and those reserved for it.
    pub fn left(self, shape: &NodeShape, held: &CpuSet, promised: u32) -> u32 {
        self.most(shape).saturating_sub(held.len().saturating_add(promised))
    }

    /// May the partition have these CPUs?
    pub fn allow(self, shape: &NodeShape, cpus: &CpuSet) -> bool {
        let by_socket =
            |most: u32| shape.sockets_cpus().all(|socket| cpus.intersection(&CpuSet::from(socket)).len() <= most);
        self.per_node.is_none_or(|most| cpus.len() <= most) && self.per_socket.is_none_or(by_socket)
    }

    /// CPUs of `free` that the partition may add on each socket: whole units, and those of `first` before others.
    pub(crate) fn by_socket(
        self,
        (shape, unit): (&NodeShape, u32),
        held: &CpuSet,
        free: &CpuSet,
        first: &CpuSet,
    ) -> CpuSet {
        let Some(most) = self.per_socket else { return free.clone() };
        let mut all = CpuSet::new();
        for socket in shape.sockets_cpus() {
            let socket = CpuSet::from(socket);
            let here = free.intersection(&socket);
            let left = most.saturating_sub(held.intersection(&socket).len());
            let left = left - left % unit.max(1);
            let own = here.intersection(first).take(left);
            all.add(&here.difference(&own).take(left - own.len()));
            all.add(&own);
        }
        all
    }
}
