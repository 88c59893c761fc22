//! Partitions that administrators create and delete at run time: what is kept of each change, and the configuration with all of
//! them. `slurm.conf` has the others.

use super::{
    settings::{config::Config, partition::PartitionConfig},
    syntax::{report::SettingError, values::Value},
};
use crate::{hostlist::HostList, ids::NodeIndex};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What an administrator did to the list of partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartitionChange {
    /// The partition was created: it is not of `slurm.conf`.
    Created {
        /// `Key=Value` pairs, as on its line.
        fields: Vec<(String, String)>,
        /// Its place among those that were created.
        place: u32,
    },
    /// A partition of `slurm.conf` was deleted: it is back when the file is read again (scontrol(1)).
    Deleted,
}

/// `MinNodes` of a partition that is created and names none, as in Slurm: in `slurm.conf` it is 0.
const MIN_NODES: u32 = 1;

impl Config {
    /// A partition as it would be created.
    ///
    /// # Errors
    /// A key or a value that is none, or a node that is not there.
    pub fn new_partition(&self, name: &str, fields: &[(String, String)]) -> Value<PartitionConfig> {
        let mut partition = PartitionConfig { min_nodes: MIN_NODES, ..PartitionConfig::named(name) };
        for (key, value) in fields {
            match key.eq_ignore_ascii_case("Nodes") {
                true => partition.set(key, &self.nodes_after(&[], value)?)?,
                false => partition.set(key, value)?,
            };
        }
        if partition.preempt_mode.is_none() {
            partition.preempt_mode = self.preempt.partition_default().map(str::to_owned);
        }
        self.resolve_nodes(&mut partition)?;
        self.check_alternate(&partition)?;
        Ok(partition)
    }

    /// `Nodes=` of a partition that has these nodes, once it is changed so: where names have signs, `+n3` comes and `-n2` goes
    /// (scontrol(1)).
    ///
    /// # Errors
    /// A name that no node has, or a name without a sign beside others that have one.
    pub fn nodes_after(&self, members: &[NodeIndex], text: &str) -> Value<String> {
        let parts = parts(text);
        // In slurm.conf it is no value; here Slurm takes it for a name.
        if parts.iter().any(|part| part.eq_ignore_ascii_case("none")) {
            return Err(SettingError::new("no node is called none"));
        }
        if !parts.iter().any(|part| part.starts_with(['+', '-'])) {
            return Ok(text.to_owned());
        }
        let mut left: BTreeSet<NodeIndex> = members.iter().copied().collect();
        for part in parts {
            let adds = part.starts_with('+');
            let name = part.strip_prefix(['+', '-']);
            let name =
                name.ok_or_else(|| SettingError::new(format!("{part}: + or - is missing, which others have")))?;
            for index in self.members(name)?.0 {
                if adds {
                    left.insert(index)
                } else {
                    left.remove(&index)
                };
            }
        }
        let names = left.iter().filter_map(|index| self.node_at(*index)).map(|node| node.name.as_str());
        Ok(names.collect::<HostList>().to_string())
    }

    /// A list of nodes without the names that are none any more. `None`: all are, or it is no list of names.
    pub fn without_gone(&self, text: &str) -> Option<String> {
        let names: HostList = text.parse().ok()?;
        let left: HostList = names.iter().filter(|name| self.members(name).is_ok()).collect();
        (left.len() < names.len()).then(|| left.to_string())
    }

    /// A partition that was created when there were other nodes.
    fn made_before(&self, name: &str, fields: &[(String, String)]) -> Result<PartitionConfig, SettingError> {
        let of_now = |(key, value): &(String, String)| {
            let left = key.eq_ignore_ascii_case("Nodes").then(|| self.without_gone(value)).flatten();
            (key.clone(), left.unwrap_or_else(|| value.clone()))
        };
        self.new_partition(name, &fields.iter().map(of_now).collect::<Vec<_>>())
    }

    /// Applies changes of the list of partitions. Returns those that do not fit any more: they are left out.
    pub fn change_partitions(&mut self, changes: &BTreeMap<String, PartitionChange>) -> Vec<(String, SettingError)> {
        self.partitions.retain(|partition| !changes.contains_key(&partition.name));
        let mut created: Vec<_> = changes
            .iter()
            .filter_map(|(name, change)| match change {
                PartitionChange::Created { fields, place } => Some((*place, name, fields)),
                PartitionChange::Deleted => None,
            })
            .collect();
        created.sort_unstable();
        let mut unfit = Vec::new();
        for (_, name, fields) in created {
            match self.made_before(name, fields) {
                Ok(partition) => self.partitions.push(partition),
                Err(wrong) => unfit.push((name.clone(), wrong)),
            }
        }
        unfit
    }
}

/// A host list at its commas, those in brackets aside.
fn parts(text: &str) -> Vec<&str> {
    let mut inside = false;
    let at_comma = move |c: char| {
        inside = (inside || c == '[') && c != ']';
        c == ',' && !inside
    };
    text.split(at_comma).filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::read_text;
    use std::path::Path;

    const SITE: &str = "ClusterName=c\nSlurmctldHost=h\nNodeName=n[0-1]\nPartitionName=a Nodes=n0 Default=YES\n\
                        PartitionName=b Nodes=n1\n";

    fn site() -> Config {
        read_text(Path::new("slurm.conf"), SITE).0.unwrap()
    }

    fn pairs(text: &[(&str, &str)]) -> Vec<(String, String)> {
        text.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn created_partitions_follow_those_of_the_file_in_their_order() {
        let mut config = site();
        let created = |place, fields| PartitionChange::Created { fields, place };
        let changes = BTreeMap::from([
            ("b".to_owned(), PartitionChange::Deleted),
            ("y".to_owned(), created(1, pairs(&[("Nodes", "n1")]))),
            ("z".to_owned(), created(0, pairs(&[("Nodes", "ALL"), ("MaxTime", "5")]))),
            ("x".to_owned(), created(2, pairs(&[("MaxTime", "soon")]))),
            ("w".to_owned(), created(3, pairs(&[("Nodes", "n1,gone")]))),
            ("v".to_owned(), created(4, pairs(&[("Nodes", "gone")]))),
        ]);
        let unfit = config.change_partitions(&changes);
        assert_eq!(unfit.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["x"]);
        let names: Vec<&str> = config.partitions.iter().map(|partition| partition.name.as_str()).collect();
        assert_eq!(names, ["a", "z", "y", "w", "v"]);
        assert_eq!(config.partition("w").unwrap().nodes.len(), 1, "one of its nodes is gone");
        let of_all = config.partition("z").unwrap();
        assert_eq!((of_all.nodes.len(), of_all.min_nodes), (2, 1));
    }

    #[test]
    fn nodes_with_signs_come_to_those_of_the_partition_and_go_from_them() {
        let config = site();
        let first = [NodeIndex(0)];
        let after = |text: &str| config.nodes_after(&first, text);
        assert_eq!(after("+n1").unwrap(), "n[0-1]");
        assert_eq!(after("-n0,+n1").unwrap(), "n1");
        assert_eq!(after("-n[0,1]").unwrap(), "");
        assert_eq!(after("n1").unwrap(), "n1");
        assert!(after("-n0,n1").is_err() && after("none").is_err());
        assert!(after("+n9").is_err());
        assert_eq!(config.new_partition("p", &pairs(&[("Nodes", "+n1")])).unwrap().nodes.to_string(), "n1");
    }

    #[test]
    fn a_partition_needs_nodes_that_are_there_and_keys_that_are_keys() {
        let config = site();
        assert!(config.new_partition("p", &[]).unwrap().nodes.is_empty());
        for (key, value) in [("Nodes", "n9"), ("Nosuch", "1"), ("MaxTime", "x"), ("Alternate", "nosuch")] {
            assert!(config.new_partition("p", &pairs(&[(key, value)])).is_err(), "{key}={value}");
        }
    }
}
