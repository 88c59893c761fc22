//! CPUs that jobs of a partition may have together on a node (`MaxCPUsPerNode`, `MaxCPUsPerSocket`). What is reserved for other
//! jobs of the partition during the run counts too.

use crate::{
    room::promises::Promises,
    snapshot::{
        caps::CpuCaps,
        changes::{Fact, Reads},
        request::Request,
    },
};
use fixedbitset::FixedBitSet;
use garrick_model::time::Timestamp;
use std::collections::BTreeMap;

/// What the rule reads.
pub(crate) const READS: Reads = Reads {
    at_site: |view| view.partitions.iter().all(|partition| partition.caps == CpuCaps::NONE),
    ..Reads::only("caps", |_| &[Fact::Partitions])
};

/// What is reserved for other jobs of the partition during the run, by node.
pub(crate) fn promised(
    promises: &Promises,
    request: &Request,
    candidates: &FixedBitSet,
    window: (Timestamp, Timestamp),
) -> BTreeMap<usize, u32> {
    if !request.caps.count(request.usage) {
        return BTreeMap::new();
    }
    promises.within(request.partition, candidates, window)
}
