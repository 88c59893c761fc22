//! Nodes that come and go at run time: what is kept of each, and the configuration with them in it. A node that came has an
//! index of its own for as long as it is there, after those of all nodes of `slurm.conf`; where one left, there is a gap.

use super::{
    places::{self, Placing},
    settings::{
        config::Config,
        gres,
        node::{ConfiguredState, NodeConfig, NodeReader},
    },
    syntax::{
        report::{ConfigReport, Problem, SettingError},
        text,
        values::Value,
    },
};
use crate::{
    hostlist::{HostList, HostListError},
    ids::NodeIndex,
    topology::Layout,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path, sync::Arc};

/// Where the line stands, in messages about it.
const LINE: &str = "node parameters";

/// A node that is not of `slurm.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DynamicNode {
    /// Name.
    pub name: String,
    /// What would follow `NodeName=` on its line.
    pub line: String,
    /// Its place after the nodes of `slurm.conf`.
    pub slot: u32,
    /// `Topology=` in place of what the line says; empty: it is in no topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// Its place with all that has to be made for it, kept once those left for whom it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<String>,
    /// Where its daemon is, once that came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whereabouts: Option<Whereabouts>,
    /// Of one that was created: `Topology=` as its daemon said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// An administrator created it: what its daemon says of itself does not change it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub created: bool,
}

/// Where a node's daemon can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// The machine's own name.
    pub hostname: String,
    /// Address that it came from.
    pub address: String,
    /// Port that it listens on.
    pub port: u16,
}

impl DynamicNode {
    /// Its place in topologies, as an administrator or its line has it; `None`: nothing is said.
    pub fn place(&self) -> Option<String> {
        self.topology.clone().or_else(|| said_place(&self.line))
    }

    /// The place that it is to be given.
    pub fn placing(&self) -> Option<Placing> {
        let (slot, kept) = (self.slot, self.way.is_some());
        let text = self.way.clone().or_else(|| self.place())?;
        Some(Placing { slot, text, kept })
    }
}

/// `Topology=` of a line.
pub fn said_place(line: &str) -> Option<String> {
    let pairs = parameters(line).ok()?;
    pairs.into_iter().rev().find(|(key, _)| key.eq_ignore_ascii_case("Topology")).map(|(_, value)| value)
}

/// What cannot be applied of a node.
#[derive(Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The node itself: it is not in the configuration.
    Node(SettingError),
    /// Its place in topologies: it has none.
    Place(SettingError),
}

/// Keys and values of a line of node parameters.
pub fn parameters(line: &str) -> Value<Vec<(String, String)>> {
    let mut report = ConfigReport::default();
    if line.contains(['\n', '\r', '#', '\\']) {
        return Err(SettingError::new("line ends, # and \\ do not belong into node parameters"));
    }
    let lines = text::lines(Path::new(LINE), &|_: &Path| Ok(line.to_owned()), &mut report);
    match report.errors().next() {
        Some(error) => Err(told(error)),
        None => Ok(lines.into_iter().flatten().map(|pair| (pair.key, pair.value)).collect()),
    }
}

/// One of them, as it stands on such a line.
pub fn written(key: &str, value: &str) -> Value<String> {
    if value.contains('"') {
        return Err(SettingError::new(format!("{key}={value}: quotes do not belong into a value")));
    }
    Ok(if value.contains(char::is_whitespace) { format!("{key}=\"{value}\"") } else { format!("{key}={value}") })
}

/// The same without the place, which is no file.
fn told(problem: &Problem) -> SettingError {
    let wrong = SettingError::new(format!("{}: {}", problem.what, problem.cause));
    match &problem.suggestion {
        Some(suggestion) => wrong.suggest(suggestion.clone()),
        None => wrong,
    }
}

/// Names and settings of a line: `NodeName=d[1-2] CPUs=4` without its first key.
pub fn read_line(base: &Config, names: &str, line: &str) -> Value<Config> {
    parameters(line)?;
    let mut report = ConfigReport::default();
    if names.contains(|c: char| c.is_whitespace() || "#\\\"'".contains(c)) {
        return Err(SettingError::new("these are no names of nodes"));
    }
    let most = base.most_nodes().max(1);
    if let Err(HostListError::TooMany { .. }) = HostList::parse_limited(names, u64::from(most)) {
        return Err(SettingError::new(format!("more nodes than the cluster may have (MaxNodeCount={most})")));
    }
    let written = format!("NodeName={names} {line}");
    let lines = text::lines(Path::new(LINE), &|_: &Path| Ok(written.clone()), &mut report);
    let mut reader = NodeReader::default();
    reader.set_spec_cores_first(base.scheduler_parameters.has("spec_cores_first"));
    for pairs in &lines {
        reader.line(pairs, &mut report);
    }
    reader.finish(base.slurmd_port, &mut report);
    let mut made =
        Config { gres: base.gres.clone(), nodes: reader.nodes, by_name: reader.by_name, ..Config::default() };
    gres::finish(&mut made, &mut report);
    match report.errors().next() {
        Some(error) => Err(told(error)),
        None => Ok(made),
    }
}

/// The state that the line names.
pub fn state_of(made: &Config) -> ConfiguredState {
    made.nodes.first().map_or(ConfiguredState::Unknown, |node| node.initial.state)
}

impl Config {
    /// How many indices nodes take, gaps included.
    pub fn node_places(&self) -> usize {
        self.nodes.last().map_or(0, |node| node.index.0 as usize + 1)
    }

    /// Most nodes at a time.
    pub fn most_nodes(&self) -> u32 {
        let configured = u32::try_from(self.nodes.iter().filter(|node| !node.dynamic).count()).unwrap_or(u32::MAX);
        self.max_node_count.unwrap_or(configured).max(configured)
    }

    /// This configuration, as it was read, with these nodes as well; what of them does not fit is left out, and said.
    pub fn with_dynamic<'n>(&self, nodes: impl IntoIterator<Item = &'n DynamicNode>) -> (Self, Vec<(String, Unfit)>) {
        let mut made = self.clone();
        let mut unfit = Vec::new();
        let mut nodes: Vec<&DynamicNode> = nodes.into_iter().collect();
        nodes.sort_by_key(|node| node.slot);
        let mut placed = BTreeMap::new();
        for node in nodes {
            match self.dynamic_node(node) {
                Ok(one) => {
                    made.by_name.insert(one.name.clone(), one.index);
                    made.nodes.push(one);
                    placed.extend(node.placing().map(|place| (node.name.as_str(), place)));
                }
                Err(wrong) => unfit.push((node.name.clone(), Unfit::Node(wrong))),
            }
        }
        let lost = places::put_all(&mut made.topologies, placed.iter().map(|(name, place)| (*name, place)));
        unfit.extend(lost.into_iter().map(|(name, wrong)| (name, Unfit::Place(wrong))));
        let mut partitions = std::mem::take(&mut made.partitions);
        for partition in &mut partitions {
            // It was resolved before, with fewer nodes.
            let _ = made.resolve_nodes(partition);
        }
        made.partitions = partitions;
        (made, unfit)
    }

    /// A node as this configuration, of the file alone, would have it.
    pub fn dynamic_node(&self, node: &DynamicNode) -> Value<NodeConfig> {
        if let Some(other) = self.node(&node.name) {
            return Err(SettingError::new(format!(
                "node {} is already configured at {}",
                node.name, other.settings.place
            )));
        }
        let mut one = read_line(self, &node.name, &node.line)?;
        let Some(mut made) = one.nodes.pop().filter(|made| one.nodes.is_empty() && made.name == node.name) else {
            return Err(SettingError::new(format!("\"{}\" is not the name of one node", node.name)));
        };
        if self.node_sets.iter().any(|set| set.name == node.name) {
            return Err(SettingError::new(format!("a node set is called {}", node.name)));
        }
        let first = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        made.index = NodeIndex(first.saturating_add(node.slot));
        made.dynamic = true;
        if let Some(whereabouts) = &node.whereabouts {
            made.hostname.clone_from(&whereabouts.hostname);
            made.address.clone_from(&whereabouts.address);
            made.port = whereabouts.port;
            // It is there: what was planned of it is so.
            let state = ConfiguredState::Unknown;
            if made.initial.state == ConfiguredState::Future {
                made.initial = Arc::new(super::settings::node::InitialState { state, reason: None });
            }
        }
        Ok(made)
    }

    /// Puts a node into the units that a `Topology=` names, and into no others; on an error it is in none.
    pub fn put_into_topologies(&mut self, node: &str, text: &str) -> Value<()> {
        places::put(&mut self.topologies, node, text, false)
    }

    /// What of partitions' topologies the node is not in: jobs there do not get it.
    pub fn topologies_without(&self, node: &str) -> Vec<&str> {
        let mut without: Vec<&str> = Vec::new();
        for partition in self.partitions.iter().filter(|partition| partition.nodes.contains(node)) {
            let topology = self.partition_topology(partition.topology.as_deref());
            if let Some(topology) = topology.filter(|t| !matches!(t.layout, Layout::Flat { .. }))
                && topology.layout.nodes_with(node).is_none()
                && !without.contains(&topology.name.as_str())
            {
                without.push(&topology.name);
            }
        }
        without
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::read_files;

    const SLURM: &str = "ClusterName=c\nSlurmctldHost=a\nMaxNodeCount=6\nGresTypes=gpu\nNodeName=n[1-2] CPUs=2\n\
                         NodeSet=fast Feature=f1\nPartitionName=all Nodes=ALL Default=YES\nPartitionName=fast Nodes=fast\n";

    fn base() -> Config {
        let (config, report) = read_files(Path::new("/x/slurm.conf"), &[("/x/slurm.conf", SLURM)]);
        config.unwrap_or_else(|| panic!("{:?}", report.errors().map(ToString::to_string).collect::<Vec<_>>()))
    }

    fn node(name: &str, slot: u32, line: &str) -> DynamicNode {
        DynamicNode { name: name.to_owned(), line: line.to_owned(), slot, ..DynamicNode::default() }
    }

    #[test]
    fn more_names_than_the_cluster_may_have_nodes_are_not_looked_at_one_by_one() {
        let wrong = read_line(&base(), "d[1-999999]", "CPUs=4").unwrap_err();
        assert!(wrong.to_string().contains("MaxNodeCount=6"), "{wrong}");
        assert_eq!(read_line(&base(), "d[1-6]", "CPUs=4").unwrap().nodes.len(), 6);
    }

    #[test]
    fn nodes_come_after_those_of_the_file_and_join_partitions() {
        let base = base();
        let nodes = [node("d3", 2, "CPUs=4 Feature=f1 Gres=gpu:2"), node("d1", 0, "CPUs=4")];
        let (config, unfit) = base.with_dynamic(&nodes);
        assert_eq!(unfit, []);
        let places: Vec<_> = config.nodes.iter().map(|n| (n.name.as_str(), n.index.0, n.dynamic)).collect();
        assert_eq!(places, [("n1", 0, false), ("n2", 1, false), ("d1", 2, true), ("d3", 4, true)]);
        assert_eq!((config.node_places(), config.most_nodes()), (5, 6));
        assert_eq!(config.node("d3").unwrap().settings.shape.gres.len(), 1);
        assert!(config.node_at(NodeIndex(3)).is_none());
        assert_eq!(config.partition("all").unwrap().nodes.to_string(), "n[1-2],d[1,3]");
        assert_eq!(config.partition("fast").unwrap().nodes.to_string(), "d3");
        assert_eq!(config.members("fast").unwrap().0, [NodeIndex(4)]);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_said() {
        let base = base();
        let nodes = [
            node("n1", 0, ""),
            node("d1", 1, "CPUs=x"),
            node("d2", 2, "Nonsense=1"),
            node("d3", 3, "Gres=nic:1"),
            node("d[4-5]", 4, ""),
            node("fast", 5, ""),
            node("d6", 6, "Topology=topo1:s1"),
        ];
        let (config, unfit) = base.with_dynamic(&nodes);
        let said: Vec<(&str, String)> = unfit
            .iter()
            .map(|(name, unfit)| match unfit {
                Unfit::Node(wrong) | Unfit::Place(wrong) => (name.as_str(), wrong.to_string()),
            })
            .collect();
        assert_eq!(said.len(), 7, "{said:?}");
        assert!(said[0].1.contains("already configured"), "{said:?}");
        assert!(said[2].1.contains("unknown key Nonsense"), "{said:?}");
        assert!(said[3].1.contains("not in GresTypes"), "{said:?}");
        assert!(said[6].1.contains("no topology is called topo1"), "{said:?}");
        let names: Vec<&str> = config.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["n1", "n2", "d6"]);
    }

    #[test]
    fn cores_for_the_system_are_those_that_slurm_conf_says() {
        let cores = |parameters: &str| {
            let text = format!("{SLURM}SchedulerParameters={parameters}\n");
            let base = read_files(Path::new("/x/slurm.conf"), &[("/x/slurm.conf", &text)]).0.unwrap();
            let line = "Sockets=2 CoresPerSocket=2 CoreSpecCount=1";
            base.dynamic_node(&node("d1", 0, line)).unwrap().settings.shape.job_cpus().to_string()
        };
        assert_eq!(cores("defer"), "0-2");
        assert_eq!(cores("spec_cores_first"), "1-3");
    }

    #[test]
    fn a_value_is_read_as_it_was_written() {
        let line = [written("Reason", "not here yet").unwrap(), written("CPUs", "4").unwrap()].join(" ");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(parameters(&line).unwrap(), [pair("Reason", "not here yet"), pair("CPUs", "4")]);
        assert!(written("Reason", "the \"new\" one").unwrap_err().to_string().contains("quotes"));
    }

    #[test]
    fn a_record_of_an_earlier_version_is_read() {
        let read: DynamicNode = serde_json::from_str(r#"{"name":"d1","line":"CPUs=4","slot":0}"#).unwrap();
        assert_eq!(read, node("d1", 0, "CPUs=4"));
    }
}
