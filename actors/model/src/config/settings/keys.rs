//! Every key that `slurm.conf(5)` documents up to 26.05, older ones included, and what Garrick makes of it. The one table
//! that decides between silence, a warning and an error.

use super::row::Class;
use crate::config::syntax::nearest::nearest;

use Class::{Honoured, NotYet};

/// A key in its usual spelling.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The spelling of `slurm.conf(5)`.
    pub name: &'static str,
    /// What becomes of it.
    pub class: Class,
}

const fn key(class: Class, name: &'static str) -> Key {
    Key { name, class }
}

/// Keys on a `NodeName` line.
pub const NODE: &[Key] = &[
    key(Honoured, "NodeName"),
    key(NotYet, "BcastAddr"),
    key(Honoured, "Boards"),
    key(Honoured, "CoreSpecCount"),
    key(Honoured, "CoresPerSocket"),
    key(NotYet, "CpuBind"),
    key(Honoured, "CPUs"),
    key(Honoured, "CpuSpecList"),
    key(Honoured, "Feature"),
    key(Honoured, "Features"),
    key(Honoured, "Gres"),
    key(Honoured, "MemSpecLimit"),
    key(Honoured, "NodeAddr"),
    key(Honoured, "NodeHostname"),
    key(NotYet, "Parameters"),
    key(Honoured, "Port"),
    key(Honoured, "Procs"),
    key(Honoured, "RealMemory"),
    key(Honoured, "Reason"),
    key(Honoured, "RestrictedCoresPerGPU"),
    key(Honoured, "Sockets"),
    key(Honoured, "SocketsPerBoard"),
    key(Honoured, "State"),
    key(Honoured, "ThreadsPerCore"),
    key(Honoured, "TmpDisk"),
    key(Honoured, "Topology"),
    key(NotYet, "TRESWeights"),
    key(Honoured, "Weight"),
];

/// The key of a table, in any case.
pub fn find(table: &'static [Key], name: &str) -> Option<&'static Key> {
    table.iter().find(|k| k.name.eq_ignore_ascii_case(name))
}

/// The key of a table that was probably meant.
pub fn meant(table: &'static [Key], name: &str) -> Option<&'static str> {
    let words: Vec<&'static str> = table.iter().map(|k| k.name).collect();
    nearest(name, &words)
}

#[cfg(test)]
#[path = "keys_test.rs"]
mod effects;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_key_is_listed_twice() {
        for table in [NODE] {
            let names: BTreeSet<String> = table.iter().map(|k| k.name.to_ascii_lowercase()).collect();
            assert_eq!(names.len(), table.len());
        }
    }
}
