//! Whether topologies hold together: their units, and the nodes and partitions of `slurm.conf`.

use super::{TopologyFile, conf::at};
use crate::{
    config::{
        settings::config::Config,
        syntax::{
            nearest::nearest,
            report::{ConfigReport, Place, SettingError},
        },
    },
    hostlist::HostList,
    topology::{CONF_NAME, Layout, NamedTopology, Switch, Torus, Xyz},
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Most nodes of a ring (`topology.conf(5)`).
const RING_LIMIT: u64 = 16;
/// Longest name of a switch (`topology.conf(5)`).
const SWITCH_NAME_LIMIT: usize = 64;

/// Checks what was read; `partitions` says where each partition's name and nodes were written.
pub fn check(config: &Config, file: &TopologyFile, partitions: &[(Place, Place)], report: &mut ConfigReport) {
    let mut names = HashSet::new();
    for topology in &file.topologies {
        if !names.insert(topology.name.as_str()) {
            let wrong = SettingError::new("another topology has this name");
            report.error(&at(&file.place, topology.line), format!("topology: {}", topology.name), wrong);
        }
        Checker { config, file: &file.place, topology, report }.all();
    }
    if file.topologies.len() > 1 && !file.topologies.iter().any(|t| t.cluster_default) {
        let first = &file.topologies[0];
        let wrong = SettingError::new("no topology has cluster_default: true; the first one counts");
        report.warning(&at(&file.place, first.line), format!("topology: {}", first.name), wrong);
    }
    let mut defaults = file.topologies.iter().filter(|t| t.cluster_default);
    if let (Some(first), others) = (defaults.next(), defaults) {
        for other in others {
            let wrong = SettingError::new(format!("{} has cluster_default: true already; that one counts", first.name));
            let what = format!("topology: {}", other.name);
            report.warning(&at(&file.place, other.line), what, wrong.suggest("keep it on one topology"));
        }
    }
    if report.has_errors() {
        return;
    }
    let with = Config { topologies: file.topologies.clone(), ..Config::default() };
    // Partitions often share a topology, and its nodes are looked up once.
    let mut members: HashMap<&str, HashSet<String>> = HashMap::new();
    for (partition, (place, _)) in config.partitions.iter().zip(partitions) {
        if let Some(name) = &partition.topology
            && with.topology(name).is_none()
        {
            let known: Vec<&str> = file.topologies.iter().map(|t| t.name.as_str()).collect();
            let wrong = SettingError::new(format!("no topology is called {name}"));
            let wrong = match nearest(name, &known) {
                Some(meant) => wrong.suggest(format!("did you mean {meant}?")),
                None if known.is_empty() => wrong.suggest("topology.yaml describes none"),
                None => wrong.suggest(format!("there are {}", known.join(", "))),
            };
            report.error(place, format!("PartitionName={} Topology={name}", partition.name), wrong);
            continue;
        }
        let Some(topology) = with.partition_topology(partition.topology.as_deref()) else { continue };
        let covered = members.entry(&topology.name).or_insert_with(|| {
            topology.layout.holders().iter().flat_map(|(_, nodes)| nodes.iter().collect::<Vec<_>>()).collect()
        });
        let missing: HostList = partition.nodes.iter().filter(|node| !covered.contains(node)).collect();
        if !missing.is_empty() {
            let cause = format!(
                "{missing} of partition {} is in no {} of topology {}",
                partition.name,
                topology.layout.unit_word(),
                topology.name
            );
            let wrong = SettingError::new(cause).suggest("add it, or give the partition another Topology=");
            report.error(&at(&file.place, topology.line), format!("PartitionName={}", partition.name), wrong);
        }
    }
}

/// The same of a configuration without topologies: the one that all nodes are in has the name that it has in `topology.conf`.
pub fn check_without(config: &Config, partitions: &[(Place, Place)], report: &mut ConfigReport) {
    for (partition, (place, _)) in config.partitions.iter().zip(partitions) {
        let Some(name) = partition.topology.as_deref().filter(|name| *name != CONF_NAME) else { continue };
        let wrong = SettingError::new(format!("no topology is called {name}"));
        let wrong = wrong.suggest("topology.yaml, beside slurm.conf, describes topologies by name");
        report.error(place, format!("PartitionName={} Topology={name}", partition.name), wrong);
    }
}

struct Checker<'c> {
    config: &'c Config,
    file: &'c Place,
    topology: &'c NamedTopology,
    report: &'c mut ConfigReport,
}

impl Checker<'_> {
    fn error(&mut self, line: u32, what: impl Into<String>, wrong: SettingError) {
        self.report.error(&at(self.file, line), what.into(), wrong);
    }

    fn all(&mut self) {
        let topology = self.topology;
        let units: Vec<(String, u32, HostList)> = match &topology.layout {
            Layout::Flat { .. } => return,
            Layout::Tree { switches } => {
                self.tree(switches);
                switches.iter().map(|s| (s.name.clone(), s.line, s.nodes.clone())).collect()
            }
            Layout::Block { sizes, blocks } => {
                self.sizes(sizes);
                if let Some(base) = sizes.first() {
                    let small: Vec<&str> = blocks
                        .iter()
                        .filter(|b| !b.nodes.is_empty() && b.nodes.len() < u64::from(*base))
                        .map(|b| b.name.as_str())
                        .collect();
                    if !small.is_empty() {
                        // One that is there twice is told of by its name, below.
                        let names: HostList = small.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
                        let wrong = SettingError::new(format!("{names}: fewer nodes than BlockSizes={base} says"));
                        self.report.warning(&at(self.file, topology.line), topology.name.clone(), wrong);
                    }
                }
                blocks.iter().map(|b| (b.name.clone(), b.line, b.nodes.clone())).collect()
            }
            Layout::Ring { rings } => {
                for ring in rings.iter().filter(|r| r.nodes.len() > RING_LIMIT) {
                    let wrong = SettingError::new(format!("has {} nodes", ring.nodes.len()))
                        .suggest(format!("a ring has {RING_LIMIT} at most"));
                    self.error(ring.line, ring.name.as_str(), wrong);
                }
                rings.iter().map(|r| (r.name.clone(), r.line, r.nodes.clone())).collect()
            }
            Layout::Torus3d { toruses } => {
                toruses.iter().for_each(|torus| self.torus(torus));
                toruses.iter().map(|t| (t.name.clone(), t.line, t.nodes())).collect()
            }
        };
        self.units(&units);
    }

    /// Names are there and differ; nodes are known and in one unit each.
    fn units(&mut self, units: &[(String, u32, HostList)]) {
        let word = self.topology.layout.unit_word();
        let mut names: HashMap<&str, u32> = HashMap::new();
        let mut home: HashMap<String, (&str, u32)> = HashMap::new();
        for (name, line, nodes) in units {
            if name.is_empty() {
                self.error(*line, word, SettingError::new("has no name"));
            } else if let Some(other) = names.insert(name, *line) {
                let wrong = SettingError::new(format!("this name is already used on line {other}"));
                self.error(*line, name.as_str(), wrong);
            }
            let mut unknown = HostList::new();
            // By the unit that has them too.
            let mut twice: BTreeMap<(u32, &str), HostList> = BTreeMap::new();
            for node in nodes.iter() {
                if self.config.node(&node).is_none() {
                    unknown.push(&node);
                }
                match home.get(&node) {
                    Some((other, at)) => twice.entry((*at, other)).or_default().push(&node),
                    None => {
                        home.insert(node, (name, *line));
                    }
                }
            }
            if !unknown.is_empty() {
                let wrong = SettingError::new(format!("no node is called {unknown}"));
                self.error(*line, name.as_str(), wrong.suggest("every node needs a NodeName line in slurm.conf"));
            }
            for ((at, other), nodes) in twice {
                let cause = format!("{nodes} is already in {word} {other} on line {at}");
                let wrong = SettingError::new(cause).suggest(format!("a node is in one {word}"));
                self.error(*line, name.as_str(), wrong);
            }
        }
    }

    fn tree(&mut self, switches: &[Switch]) {
        let places: HashMap<&str, usize> = switches.iter().enumerate().map(|(i, s)| (s.name.as_str(), i)).collect();
        let mut parents: HashMap<String, &Switch> = HashMap::new();
        for switch in switches {
            for child in switch.children.iter() {
                if let Some(other) = parents.get(&child).filter(|other| other.line != switch.line) {
                    let cause = format!("switch {child} is below switch {} on line {} already", other.name, other.line);
                    let wrong = SettingError::new(cause).suggest("a switch of a tree has one above it");
                    self.report.warning(&at(self.file, switch.line), switch.name.as_str(), wrong);
                }
                parents.entry(child).or_insert(switch);
            }
            // Those that come at run time may be the first of their switch.
            if switch.nodes.is_empty() && switch.children.is_empty() && self.config.max_node_count.is_none() {
                let wrong =
                    SettingError::new("has neither nodes nor switches").suggest("write its Nodes= or Switches=");
                self.report.warning(&at(self.file, switch.line), switch.name.as_str(), wrong);
            }
            if switch.name.len() > SWITCH_NAME_LIMIT {
                let wrong = SettingError::new(format!("the name is longer than {SWITCH_NAME_LIMIT} characters"));
                self.error(switch.line, switch.name.as_str(), wrong);
            }
            if !switch.nodes.is_empty() && !switch.children.is_empty() {
                let wrong = SettingError::new("has both nodes and switches").suggest("nodes belong to leaf switches");
                self.error(switch.line, switch.name.as_str(), wrong);
            }
            let unknown: HostList = switch.children.iter().filter(|c| !places.contains_key(c.as_str())).collect();
            if !unknown.is_empty() {
                let wrong = SettingError::new(format!("no switch is called {unknown}"));
                self.error(switch.line, switch.name.as_str(), wrong.suggest("every switch needs a line of its own"));
            }
        }
        // Which of them lead back to themselves: all that is left after taking away what has no children left.
        let mut left: Vec<Vec<usize>> = switches
            .iter()
            .map(|s| s.children.iter().filter_map(|c| places.get(c.as_str()).copied()).collect())
            .collect();
        let mut gone = vec![false; switches.len()];
        loop {
            let ready: Vec<usize> =
                (0..switches.len()).filter(|i| !gone[*i] && left[*i].iter().all(|c| gone[*c])).collect();
            if ready.is_empty() {
                break;
            }
            ready.into_iter().for_each(|i| gone[i] = true);
        }
        if let Some(first) = gone.iter().position(|gone| !gone) {
            left.iter_mut().for_each(|children| children.retain(|c| !gone[*c]));
            let mut path = vec![first];
            while let Some(next) = path.last().and_then(|last| left[*last].first().copied()) {
                let again = path.iter().position(|seen| *seen == next);
                path.push(next);
                if let Some(from) = again {
                    path.drain(..from);
                    break;
                }
            }
            let names: Vec<&str> = path.iter().map(|i| switches[*i].name.as_str()).collect();
            let at = path.first().copied().unwrap_or(first);
            let wrong = SettingError::new(format!("the switch is below itself: {}", names.join(", ")));
            self.error(switches[at].line, switches[at].name.as_str(), wrong);
        }
    }

    fn sizes(&mut self, sizes: &[u32]) {
        let line = self.topology.line;
        let text: Vec<String> = sizes.iter().map(u32::to_string).collect();
        let what = format!("BlockSizes={}", text.join(","));
        match sizes.first() {
            None => {
                self.error(line, "BlockSizes", SettingError::new("is missing").suggest("for example BlockSizes=18"))
            }
            Some(0) => self.error(line, what, SettingError::new("a block of no nodes")),
            Some(base) => {
                for pair in sizes.windows(2) {
                    let times = pair[1] / pair[0].max(1);
                    if pair[1] % base != 0 || pair[1] <= pair[0] || pair[1] % pair[0] != 0 || !times.is_power_of_two() {
                        let cause = format!("{} is not {} times a power of two", pair[1], pair[0]);
                        self.error(line, what, SettingError::new(cause).suggest("for example 18,36,72"));
                        return;
                    }
                }
            }
        }
    }

    fn torus(&mut self, torus: &Torus) {
        let fits = |anchor: Xyz, dims: Xyz| {
            let one =
                |from: u32, size: u32, whole: u32| size > 0 && u64::from(from) + u64::from(size) <= u64::from(whole);
            one(anchor.x, dims.x, torus.dims.x)
                && one(anchor.y, dims.y, torus.dims.y)
                && one(anchor.z, dims.z, torus.dims.z)
        };
        let (line, name) = (torus.line, torus.name.as_str());
        if torus.dims.cells() == 0 || torus.dims.cells() > crate::hostlist::MAX_HOSTS {
            return self.error(line, name, SettingError::new(format!("dims {} are no torus", torus.dims)));
        }
        let mut taken = HashSet::new();
        for region in &torus.regions {
            if !fits(region.anchor, region.dims) {
                let cause = format!("the region of {} does not fit into {}", region.dims, torus.dims);
                self.error(line, name, SettingError::new(cause));
                continue;
            }
            if region.nodes.len() != region.dims.cells() {
                let cause =
                    format!("{} has {} cells for {} nodes", region.dims, region.dims.cells(), region.nodes.len());
                self.error(line, name, SettingError::new(cause));
            }
            let a = region.anchor;
            for z in a.z..a.z + region.dims.z {
                for y in a.y..a.y + region.dims.y {
                    for x in a.x..a.x + region.dims.x {
                        if !taken.insert((x, y, z)) {
                            let wrong = SettingError::new(format!("two regions have the cell {x},{y},{z}"));
                            return self.error(line, name, wrong);
                        }
                    }
                }
            }
        }
        for placement in &torus.placements {
            if !fits(Xyz::default(), placement.dims) {
                let cause = format!("the placement {} does not fit into {}", placement.dims, torus.dims);
                self.error(line, name, SettingError::new(cause));
            }
            if placement.spacing.cells() == 0 {
                self.error(line, name, SettingError::new("anchor_spacing has a zero"));
            }
        }
        if torus.placements.is_empty() {
            let wrong = SettingError::new("has no placements: no job will get nodes of it");
            self.report.warning(&at(self.file, line), name, wrong);
        }
    }
}
