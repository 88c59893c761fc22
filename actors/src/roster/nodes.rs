//! The nodes and partitions that exist: those of `slurm.conf`, and those that came at run time. Decides which nodes may join and which
//! may be deleted, and makes the configuration that all others see.

use crate::{messages::node::NodeSettings, node::settings::node_settings};
use garrick_model::{
    config::{
        self, Config, ConfiguredState, DynamicNode, NodeConfig, PartitionChange, SettingError, Unfit, Whereabouts,
        places::{self, Placing},
    },
    messages::node::{Joining, Neighbour},
    refusal::Refusal,
    reservation::Reservation,
    topology::NamedTopology,
    view::JobView,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

/// Nodes of both kinds.
#[derive(Clone, Debug)]
pub struct Roster {
    /// As it was read.
    base: Arc<Config>,
    nodes: BTreeMap<String, DynamicNode>,
    /// Partitions that were created or deleted at run time.
    partitions: BTreeMap<String, PartitionChange>,
    /// The configuration with all nodes, as of the last [`Roster::settle`].
    config: Arc<Config>,
    /// Something has changed since.
    stale: bool,
    /// Indices of nodes, and their places in topologies.
    places: BTreeMap<String, Placing>,
    /// Topologies with the dynamic nodes in them.
    topologies: Vec<NamedTopology>,
    /// Nodes whose place in the topology does not exist.
    unplaced: BTreeSet<String>,
}

/// The number of dynamic nodes about which each node is told: as many as one asks at a time.
const MOST_NEIGHBOURS: usize = 16;

/// Node indices that are still in use: no other node gets them.
pub type Spoken = BTreeSet<u32>;

/// Node indices in allocations of visible jobs, including those that are over.
pub fn spoken_of<'v>(jobs: impl IntoIterator<Item = &'v JobView>) -> Spoken {
    let allocations = jobs.into_iter().filter_map(|job| job.allocation.as_ref());
    allocations.flat_map(|allocation| allocation.nodes.iter().map(|node| node.index.0)).collect()
}

/// Nodes in reservations, each with the name of one.
pub fn reserved(reservations: &BTreeMap<String, Reservation>) -> BTreeMap<String, String> {
    let mut reserved = BTreeMap::new();
    for (name, reservation) in reservations {
        for node in &reservation.nodes {
            reserved.entry(node.clone()).or_insert_with(|| name.clone());
        }
    }
    reserved
}

impl Roster {
    /// From a configuration and the journal's nodes and changes of the list of partitions. What does not fit into the configuration is logged. Also returns the nodes that the
    /// configuration lists itself now.
    pub fn restored(
        base: Arc<Config>,
        mut nodes: BTreeMap<String, DynamicNode>,
        partitions: BTreeMap<String, PartitionChange>,
    ) -> (Self, Vec<String>) {
        let taken = take_of_file(&base, &mut nodes);
        let (config, topologies) = (Arc::clone(&base), Vec::new());
        let (places, unplaced) = (BTreeMap::new(), BTreeSet::new());
        let mut roster = Self { base, nodes, partitions, config, stale: true, places, topologies, unplaced };
        roster.make();
        (roster, taken)
    }

    /// The same without that list.
    #[cfg(test)]
    pub fn new(base: Arc<Config>, nodes: BTreeMap<String, DynamicNode>) -> Self {
        Self::restored(base, nodes, BTreeMap::new()).0
    }

    /// Builds everything from what is known of each node.
    fn make(&mut self) {
        let place = |(name, node): (&String, &DynamicNode)| Some((name.clone(), node.placing()?));
        self.places = self.nodes.iter().filter_map(place).collect();
        self.build();
        self.topologies.clone_from(&self.config.topologies);
    }

    fn build(&mut self) {
        self.stale = false;
        if self.nodes.is_empty() {
            self.unplaced.clear();
            self.config = Arc::clone(&self.base);
            return self.build_partitions();
        }
        let (config, unfit) = self.base.with_dynamic(self.nodes.values());
        let mut unplaced = BTreeSet::new();
        for (node, what) in unfit {
            match what {
                Unfit::Node(wrong) => tracing::error!(node, "node.left_out: {wrong}"),
                Unfit::Place(wrong) if self.unplaced.contains(&node) => {
                    tracing::debug!(node, "node.without_place: {wrong}");
                    unplaced.insert(node);
                }
                Unfit::Place(wrong) => {
                    tracing::error!(node, "node.without_place: {wrong}");
                    unplaced.insert(node);
                }
            }
        }
        self.unplaced = unplaced;
        self.config = Arc::new(config);
        self.build_partitions();
    }

    fn build_partitions(&mut self) {
        if self.partitions.is_empty() {
            return;
        }
        for (partition, wrong) in Arc::make_mut(&mut self.config).change_partitions(&self.partitions) {
            tracing::error!(partition, "partition.left_out: {wrong}");
        }
    }

    /// Applies changes: once for all of them.
    pub fn settle(&mut self) {
        if self.stale {
            self.build();
        }
    }

    /// The configuration with all nodes, as of the last [`Roster::settle`].
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }

    /// The configuration as it was read.
    pub fn base(&self) -> Arc<Config> {
        Arc::clone(&self.base)
    }

    /// What is known of a dynamic node.
    pub fn get(&self, name: &str) -> Option<&DynamicNode> {
        self.nodes.get(name)
    }

    /// Dynamic nodes.
    pub const fn nodes(&self) -> &BTreeMap<String, DynamicNode> {
        &self.nodes
    }

    /// The file was read again. Returns the dynamic nodes that it lists now.
    pub fn read_again(&mut self, base: Arc<Config>) -> Vec<String> {
        let taken = take_of_file(&base, &mut self.nodes);
        let kept = base.reconfig_flags.has("KeepPartInfo");
        self.partitions.retain(|name, change| {
            kept && matches!(change, PartitionChange::Created { .. }) && base.partition(name).is_none()
        });
        self.base = base;
        self.make();
        taken
    }

    /// Partitions that were created or deleted at run time.
    pub const fn partition_changes(&self) -> &BTreeMap<String, PartitionChange> {
        &self.partitions
    }

    /// An administrator creates a partition.
    pub fn create_partition(&mut self, name: &str, fields: Vec<(String, String)>) -> Result<(), Refusal> {
        let config = &self.config;
        // A list of names could not name it.
        let unusable =
            name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control() || ",=\"'".contains(c));
        let reserved = name.eq_ignore_ascii_case("default") || name.eq_ignore_ascii_case("all");
        if unusable || reserved || config.partition(name).is_some() {
            return Err(Refusal::InvalidPartition(name.to_owned()));
        }
        let made = config.new_partition(name, &fields);
        made.map_err(|wrong| unfit_partition(config, &fields, wrong))?;
        let last = self.partitions.values().filter_map(|change| match change {
            PartitionChange::Created { place, .. } => Some(*place),
            PartitionChange::Deleted => None,
        });
        let place = last.max().map_or(0, |last| last + 1);
        self.partitions.insert(name.to_owned(), PartitionChange::Created { fields, place });
        self.stale = true;
        Ok(())
    }

    /// An administrator deletes a partition, of which no job is left.
    pub fn delete_partition(&mut self, name: &str) -> Result<(), Refusal> {
        if self.config.partition(name).is_none() {
            return Err(Refusal::InvalidPartition(name.to_owned()));
        }
        let alternate_of = self.config.partitions.iter().find(|other| other.alternate.as_deref() == Some(name));
        if let Some(other) = alternate_of.filter(|other| other.name != name) {
            return Err(in_use_as_alternate(&other.name));
        }
        match self.base.partition(name) {
            Some(_) => drop(self.partitions.insert(name.to_owned(), PartitionChange::Deleted)),
            None => drop(self.partitions.remove(name)),
        }
        self.stale = true;
        Ok(())
    }

    /// Places of dynamic nodes in the topologies, by name.
    pub fn whereabouts(&self) -> impl Iterator<Item = (&str, Option<&Whereabouts>)> {
        self.nodes.iter().map(|(name, node)| (name.as_str(), node.whereabouts.as_ref()))
    }

    /// Dynamic nodes about which this one is told, so that it can ask them for the controller: the next ones by name, cyclically.
    /// It knows the nodes of the file itself.
    pub fn neighbours(&self, name: &str) -> Vec<Neighbour> {
        let after = self.nodes.range::<str, _>((Bound::Excluded(name), Bound::Unbounded));
        let before = self.nodes.range::<str, _>((Bound::Unbounded, Bound::Excluded(name)));
        let told = |(name, node): (&String, &DynamicNode)| {
            let place = node.whereabouts.as_ref()?;
            Some(Neighbour { name: name.clone(), address: format!("{}:{}", place.address, place.port) })
        };
        after.chain(before).filter_map(told).take(MOST_NEIGHBOURS).collect()
    }

    /// The settings for the owner of a configured node.
    pub fn settings(&self, node: &NodeConfig) -> NodeSettings {
        NodeSettings { neighbours: self.neighbours(&node.name), ..node_settings(node) }
    }

    /// May a node of this name join the cluster?
    pub fn admits(&self, name: &str) -> Result<(), String> {
        if self.has(name) || self.room_for(1).is_ok() {
            return Ok(());
        }
        Err(format!("slurm.conf has no NodeName={name}, and {}", self.full()))
    }

    fn has(&self, name: &str) -> bool {
        self.base.node(name).is_some() || self.nodes.contains_key(name)
    }

    fn full(&self) -> String {
        format!("there is no room for another node (MaxNodeCount={})", self.base.most_nodes())
    }

    fn room_for(&self, more: usize) -> Result<(), Refusal> {
        let all = self.base.nodes.len() + self.nodes.len() + more;
        if all <= self.base.most_nodes() as usize { Ok(()) } else { Err(Refusal::InvalidUpdate(self.full())) }
    }

    /// Free node indices that are not in use any more, from the lowest.
    fn free_slots(&self, spoken: &Spoken) -> impl Iterator<Item = u32> + use<> {
        let first = u32::try_from(self.base.nodes.len()).unwrap_or(u32::MAX);
        let of_jobs = spoken.iter().filter_map(|index| index.checked_sub(first));
        let taken: BTreeSet<u32> = self.nodes.values().map(|node| node.slot).chain(of_jobs).collect();
        (0..u32::MAX).filter(move |slot| !taken.contains(slot))
    }

    /// Adds nodes, if they fit and no other node loses its place because of it: all of them or none.
    pub fn put(&mut self, mut nodes: Vec<DynamicNode>) -> Result<(), Refusal> {
        let wrong = |name: &str, wrong: SettingError| Refusal::InvalidUpdate(format!("node {name}: {wrong}"));
        for node in &mut nodes {
            self.base.dynamic_node(node).map_err(|error| wrong(&node.name, error))?;
            if self.nodes.get(&node.name).is_some_and(|known| known.place() != node.place()) {
                node.way = None;
            }
        }
        let moved = |node: &&DynamicNode| node.placing().as_ref() != self.places.get(&node.name);
        let movers: Vec<(String, Option<Placing>)> =
            nodes.iter().filter(moved).map(|node| (node.name.clone(), node.placing())).collect();
        if movers.is_empty() {
            self.enter(nodes);
            return Ok(());
        }
        // The usual case among many new nodes: nothing else moves.
        if let [(name, Some(place))] = &movers[..]
            && !self.places.contains_key(name)
            && places::join(&mut self.topologies, name, &place.text)
        {
            self.places.insert(name.clone(), place.clone());
            self.enter(nodes);
            return Ok(());
        }
        let mut tried = self.clone();
        // Errors are to name the nodes that move, so the others are placed first.
        movers.iter().for_each(|(name, _)| drop(tried.places.remove(name)));
        tried.arrange();
        for (name, place) in &movers {
            if let Some(place) = place {
                places::put(&mut tried.topologies, name, &place.text, place.kept)
                    .map_err(|error| wrong(name, error))?;
            }
        }
        let places = movers.into_iter().filter_map(|(name, place)| Some((name, place?)));
        tried.places.extend(places);
        if let Some((name, error)) = tried.arrange().into_iter().next() {
            return Err(Refusal::InvalidUpdate(format!("node {name} would lose its place: {error}")));
        }
        tried.enter(nodes);
        *self = tried;
        Ok(())
    }

    fn enter(&mut self, nodes: Vec<DynamicNode>) {
        self.stale = true;
        self.nodes.extend(nodes.into_iter().map(|node| (node.name.clone(), node)));
    }

    /// Places all nodes in the topologies again. Nodes in units made for them that nobody else defines keep those. Returns the
    /// nodes that lost their place.
    fn arrange(&mut self) -> Vec<(String, SettingError)> {
        let (mut topologies, mut lost) = self.arranged();
        let mut found = false;
        for (name, _) in lost.iter().filter(|(name, _)| !self.unplaced.contains(name)) {
            let (Some(place), Some(node)) = (self.places.get_mut(name), self.nodes.get_mut(name)) else { continue };
            if let Some(way) = places::way(&self.base.topologies, &self.topologies, name, &place.text) {
                (place.text, place.kept) = (way.clone(), true);
                node.way = Some(way);
                found = true;
            }
        }
        if found {
            (topologies, lost) = self.arranged();
        }
        self.topologies = topologies;
        lost.retain(|(name, _)| !self.unplaced.contains(name));
        lost
    }

    fn arranged(&self) -> (Vec<NamedTopology>, Vec<(String, SettingError)>) {
        let mut topologies = self.base.topologies.clone();
        let lost = places::put_all(&mut topologies, self.places.iter().map(|(name, place)| (name.as_str(), place)));
        (topologies, lost)
    }

    fn own(&self, name: &str) -> Result<&DynamicNode, Refusal> {
        if self.base.node(name).is_some() {
            let said = format!("Invalid node state specified: {name} is a node of slurm.conf, not a dynamic one");
            return Err(Refusal::InvalidUpdate(said));
        }
        self.nodes.get(name).ok_or_else(|| Refusal::InvalidNode(name.to_owned()))
    }

    /// Can this daemon be that node, ignoring other nodes? Returns the effective line of configuration, and the place in it.
    pub fn may_join(&self, name: &str, joining: &Joining) -> Result<(String, Option<String>), Refusal> {
        if self.base.node(name).is_some() {
            let said = format!("{name} is a node of slurm.conf: start its slurmd without -Z");
            return Err(Refusal::InvalidUpdate(said));
        }
        let line = without(name, &joining.line, &["State", "Reason"])?;
        let read = config::read_line(&self.base, name, &line).map_err(|wrong| unfit(name, wrong))?;
        let place = read.node(name).and_then(|node| node.settings.topology.clone());
        Ok((line, place))
    }

    /// A daemon joins as this node. Returns the resulting node if it is new or has changed: it is to be [put](Self::put).
    pub fn joined(
        &self,
        name: &str,
        joining: &Joining,
        hostname: &str,
        address: &str,
        spoken: &Spoken,
    ) -> Result<Option<DynamicNode>, Refusal> {
        let (line, place) = self.may_join(name, joining)?;
        let hostname = if hostname.is_empty() { name } else { hostname };
        let whereabouts =
            Some(Whereabouts { hostname: hostname.to_owned(), address: address.to_owned(), port: joining.port });
        let node = match self.nodes.get(name) {
            // The administrator's line stays; the daemon sets the place unless an administrator did.
            Some(known) if known.created => {
                let said = place.clone().filter(|_| place != known.said);
                let topology = said.or_else(|| known.topology.clone());
                DynamicNode { whereabouts, topology, said: place, ..known.clone() }
            }
            Some(known) if known.line == line => DynamicNode { whereabouts, ..known.clone() },
            // The administrator's place stays until the daemon names another one.
            Some(known) => {
                let same = config::said_place(&known.line) == place;
                let topology = known.topology.clone().filter(|_| same);
                DynamicNode { whereabouts, line, topology, ..known.clone() }
            }
            None => {
                self.room_for(1)?;
                let slot = self.free_slots(spoken).next().unwrap_or(u32::MAX);
                DynamicNode { name: name.to_owned(), line, slot, whereabouts, ..DynamicNode::default() }
            }
        };
        Ok((self.nodes.get(name) != Some(&node)).then_some(node))
    }

    /// An administrator creates nodes: all of them or none. Returns their names.
    pub fn create(
        &mut self,
        names: &str,
        line: &str,
        spoken: &Spoken,
        may_be_named: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<String>, Refusal> {
        let made = config::read_line(&self.base, names, line).map_err(|wrong| unfit(names, wrong))?;
        if !matches!(config::state_of(&made), ConfiguredState::Cloud | ConfiguredState::Future) {
            let said = "Invalid node state specified: only State=CLOUD and State=FUTURE nodes can be created";
            return Err(Refusal::InvalidUpdate(said.to_owned()));
        }
        if let Some(known) = made.nodes.iter().find(|node| self.has(&node.name)) {
            return Err(Refusal::InvalidUpdate(format!("Node {} exists already", known.name)));
        }
        if let Some(node) = made.nodes.iter().find(|node| !may_be_named(&node.name)) {
            let said = format!(
                "Invalid node name specified: \"{}\" (up to 63 letters and digits, with -, _ and . between them)",
                node.name
            );
            return Err(Refusal::InvalidUpdate(said));
        }
        self.room_for(made.nodes.len())?;
        // Each node has its own values of these.
        let line = without(names, line, &["NodeHostname", "NodeAddr", "Port"])?;
        let mut slots = self.free_slots(spoken);
        let mut created = Vec::new();
        for node in made.nodes {
            let mut own = line.clone();
            if node.hostname != node.name {
                own.push_str(&format!(" NodeHostname={}", node.hostname));
            }
            if node.address != node.hostname {
                own.push_str(&format!(" NodeAddr={}", node.address));
            }
            if node.port != self.base.slurmd_port {
                own.push_str(&format!(" Port={}", node.port));
            }
            let slot = slots.next().unwrap_or(u32::MAX);
            created.push(DynamicNode { name: node.name, line: own, slot, created: true, ..DynamicNode::default() });
        }
        let names = created.iter().map(|node| node.name.clone()).collect();
        self.put(created)?;
        Ok(names)
    }

    /// May it be deleted, as far as its owner need not be asked?
    pub fn may_go(&self, name: &str) -> Result<(), Refusal> {
        self.own(name).map(|_| ())
    }

    /// Deletes nodes. Returns those that existed.
    pub fn delete(&mut self, names: &[String]) -> Vec<String> {
        let gone: Vec<String> = names.iter().filter(|name| self.nodes.remove(*name).is_some()).cloned().collect();
        self.stale |= !gone.is_empty();
        let places = self.places.len();
        gone.iter().for_each(|name| drop(self.places.remove(name)));
        if self.places.len() < places {
            // Nodes without a place are reported when the configuration is made.
            drop(self.arrange());
        }
        gone
    }

    /// Moves nodes in the topologies: all of them or none.
    pub fn place(&mut self, names: &[String], place: &str) -> Result<(), Refusal> {
        let mut moved = Vec::with_capacity(names.len());
        for name in names {
            if self.base.node(name).is_some() {
                let what = format!("Topology= of a node of slurm.conf ({name}) at run time");
                return Err(Refusal::NotSupported(what));
            }
            moved.push(DynamicNode { topology: Some(place.to_owned()), ..self.own(name)?.clone() });
        }
        self.put(moved)
    }
}

/// Removes nodes that the file lists.
fn take_of_file(base: &Config, nodes: &mut BTreeMap<String, DynamicNode>) -> Vec<String> {
    nodes.extract_if(.., |name, _| base.node(name).is_some()).map(|(name, _)| name).collect()
}

fn unfit(names: &str, wrong: SettingError) -> Refusal {
    Refusal::InvalidUpdate(format!("NodeName={names}: {wrong}"))
}

/// A partition that cannot be deleted, because that other one refers to it.
pub fn in_use_as_alternate(other: &str) -> Refusal {
    Refusal::InvalidUpdate(format!("Partition is in use: it is the Alternate of {other}"))
}

/// What is wrong with the pairs of a partition, as a refusal.
pub fn unfit_partition(config: &Config, fields: &[(String, String)], wrong: SettingError) -> Refusal {
    let of = |key: &str| fields.iter().rev().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, value)| value);
    match of("Nodes") {
        Some(nodes) if config.members(nodes).is_err() => Refusal::InvalidNode(nodes.clone()),
        _ => Refusal::InvalidUpdate(wrong.to_string()),
    }
}

/// The line without these keys.
fn without(names: &str, line: &str, keys: &[&str]) -> Result<String, Refusal> {
    let pairs = config::parameters(line).map_err(|wrong| unfit(names, wrong))?;
    let left = pairs.into_iter().filter(|(key, _)| !keys.iter().any(|one| key.eq_ignore_ascii_case(one)));
    let words = left.map(|(key, value)| config::written(&key, &value).map_err(|wrong| unfit(names, wrong)));
    Ok(words.collect::<Result<Vec<_>, _>>()?.join(" "))
}
