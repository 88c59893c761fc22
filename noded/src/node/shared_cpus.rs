//! CPUs of a machine that runs several nodes. The nodes of `slurm.conf` get consecutive CPUs, in its order. Dynamic nodes do not
//! know each other, so each writes the CPUs that it took into a file beside its door, which stays locked as long as it lives. A
//! node that comes again gets the CPUs that it had, if no other node took them meanwhile: its jobs may still run on them.

use crate::daemon::place::Cluster;
use garrick_kernel::{
    files::{self, FileError},
    lock::LifeLock,
};
use garrick_model::config::NodeConfig;
use nix::fcntl::{Flock, FlockArg};
use std::{fs, ops::Range, os::unix::fs::OpenOptionsExt, path::Path};

/// How the files begin; the node's name follows.
const CLAIM: &str = "cpus.";
/// Held while a node chooses its CPUs.
const TURN: &str = "cpus-turn";

/// The CPUs that a node has, for as long as this lives.
#[derive(Debug)]
pub struct OwnCpus {
    /// Its first one.
    pub first: u32,
    _claim: Option<LifeLock>,
}

/// Finds a node's CPUs on a machine of that name with so many.
pub fn own(cluster: &Cluster, node: &NodeConfig, host: &str, cpus: u32) -> OwnCpus {
    let here = if node.dynamic { host } else { &node.hostname };
    let before = cluster.config.nodes.iter().take_while(|other| other.index != node.index);
    let first = before.filter(|other| other.hostname == here).map(|other| other.settings.shape.cpus).sum();
    if !node.dynamic {
        return OwnCpus { first, _claim: None };
    }
    claim(&cluster.doors, &node.name, node.settings.shape.cpus, first..cpus).unwrap_or_else(|error| {
        tracing::warn!(%error, "other nodes on this machine may take the same CPUs");
        OwnCpus { first, _claim: None }
    })
}

/// Takes so many CPUs out of these that no living node has.
fn claim(folder: &Path, node: &str, wanted: u32, among: Range<u32>) -> Result<OwnCpus, FileError> {
    let failed = |operation, path: &Path| {
        let path = path.to_owned();
        move |cause| FileError { operation, path, cause }
    };
    let turn = folder.join(TURN);
    // Others cannot open it, and so not keep it.
    let opened = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&turn);
    let file = opened.map_err(failed("open", &turn))?;
    let _turn = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| failed("lock", &turn)(e.into()))?;
    let path = folder.join(format!("{CLAIM}{node}"));
    let lock = LifeLock::take(&path)?;
    let before = read(&path)?;
    let (mut living, mut gone) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
        let other = entry.map_err(failed("read", folder))?.path();
        let is_claim = other.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(CLAIM));
        if let Some(range) = if is_claim && other != path { read(&other)? } else { None } {
            if LifeLock::is_held(&other)? { living.push(range) } else { gone.push(range) }
        }
    }
    let first = place(wanted, among, before, &living, &gone);
    // In place: the lock is on this very file.
    fs::write(&path, format!("{first} {wanted}\n")).map_err(failed("write", &path))?;
    Ok(OwnCpus { first, _claim: lock })
}

/// What a file says; nothing where it is not a claim.
fn read(path: &Path) -> Result<Option<Range<u32>>, FileError> {
    let Some(bytes) = files::read_if_there(path)? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let numbers: Vec<u32> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Ok(match numbers[..] {
        [first, count] => Some(first..first.saturating_add(count)),
        _ => None,
    })
}

/// The first of so many CPUs, in order of preference: where they were, where no node's are, where no living node's are, after all
/// others (with more CPUs than exist, this wraps around to those of others).
fn place(
    wanted: u32,
    among: Range<u32>,
    before: Option<Range<u32>>,
    living: &[Range<u32>],
    gone: &[Range<u32>],
) -> u32 {
    let free = |first: u32, taken: &[&[Range<u32>]]| {
        let end = first.saturating_add(wanted);
        let apart = |other: &Range<u32>| end <= other.start || other.end <= first;
        first >= among.start && end <= among.end && taken.iter().flat_map(|list| list.iter()).all(apart)
    };
    if let Some(before) = before.filter(|before| before.end - before.start == wanted && free(before.start, &[living])) {
        return before.start;
    }
    let all: Vec<&Range<u32>> = living.iter().chain(gone).collect();
    let mut starts: Vec<u32> = std::iter::once(among.start).chain(all.iter().map(|range| range.end)).collect();
    starts.sort_unstable();
    let after = living.iter().map(|range| range.end).max().unwrap_or(among.start).max(among.start);
    let beside_all = starts.iter().copied().find(|first| free(*first, &[living, gone]));
    beside_all.or_else(|| starts.iter().copied().find(|first| free(*first, &[living]))).unwrap_or(after)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
    use super::*;
    use garrick_kernel::scratch::Scratch;

    #[test]
    fn nodes_lie_beside_each_other_as_long_as_there_is_room() {
        assert_eq!(place(4, 4..16, None, &[], &[]), 4);
        assert_eq!(place(4, 4..16, None, &[4..8, 12..16], &[]), 8);
        // CPUs that no node had are preferred to those of a node that may return.
        assert_eq!(place(4, 0..16, None, &[4..8], &[0..4]), 8);
        assert_eq!(place(4, 0..8, None, &[4..8], &[0..4]), 0);
        // Where it was, unless that is taken or of another size.
        assert_eq!(place(4, 0..16, Some(8..12), &[0..4], &[]), 8);
        assert_eq!(place(4, 0..16, Some(8..12), &[8..10], &[]), 0);
        assert_eq!(place(2, 0..16, Some(8..12), &[], &[]), 0);
        // No room: behind the others, round and round.
        assert_eq!(place(4, 0..6, None, &[0..4], &[]), 4);
        assert_eq!(place(9, 4..8, None, &[], &[]), 4);
    }

    #[test]
    fn what_a_living_node_has_nobody_else_gets() {
        let dir = Scratch::new("shared-cpus");
        let first = |node: &str| claim(dir.path(), node, 2, 0..8).unwrap();
        let (d1, d2) = (first("d1"), first("d2"));
        assert_eq!((d1.first, d2.first), (0, 2));
        drop(d1);
        // It may come again.
        let d3 = first("d3");
        assert_eq!(d3.first, 4);
        assert_eq!(first("d1").first, 0);
        assert_eq!((d2.first, d3.first), (2, 4));
    }
}
