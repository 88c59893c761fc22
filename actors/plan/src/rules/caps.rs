//! CPUs that jobs of a partition have together of a node (`MaxCPUsPerNode`, `MaxCPUsPerSocket`): what is reserved for others
//! of the partition counts while a run lasts.

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

/// What it reads.
pub(crate) const READS: Reads = Reads {
    at_site: |view| view.partitions.iter().all(|partition| partition.caps == CpuCaps::NONE),
    ..Reads::only("caps", |_| &[Fact::Partitions])
};

/// What is reserved meanwhile for others of the partition, by node.
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
