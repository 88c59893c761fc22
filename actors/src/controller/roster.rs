//! Which nodes there are: those of `slurm.conf`, and those that came at run time. Decides who may come and who may go; the
//! front journals it and tells everyone. The configuration that all others see is made here.

use garrick_model::{
    config::{self, Config, ConfiguredState, DynamicNode, Unfit, Whereabouts},
    messages::node::Joining,
    refusal::Refusal,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Nodes of both kinds.
#[derive(Clone, Debug)]
pub struct Roster {
    /// As it was read.
    base: Arc<Config>,
    nodes: BTreeMap<String, DynamicNode>,
    /// With them.
    config: Arc<Config>,
}

/// Places of nodes that are still spoken of: no other node gets them.
pub type Spoken = BTreeSet<u32>;

impl Roster {
    /// From a configuration and what the journal says. What does not fit into it is said in the trace.
    pub fn new(base: Arc<Config>, nodes: BTreeMap<String, DynamicNode>) -> Self {
        let mut roster = Self { config: Arc::clone(&base), base, nodes };
        roster.make();
        roster
    }

    fn make(&mut self) {
        if self.nodes.is_empty() {
            self.config = Arc::clone(&self.base);
            return;
        }
        let (config, unfit) = self.base.with_dynamic(self.nodes.values());
        for (node, what) in unfit {
            match what {
                Unfit::Node(wrong) => tracing::error!(node, "node.left_out: {wrong}"),
                Unfit::Place(wrong) => tracing::error!(node, "node.without_place: {wrong}"),
            }
        }
        self.config = Arc::new(config);
    }

    /// The configuration with all nodes.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }

    /// The configuration as it was read.
    pub fn base(&self) -> Arc<Config> {
        Arc::clone(&self.base)
    }

    /// What is known of a node that is not of the file.
    pub fn get(&self, name: &str) -> Option<&DynamicNode> {
        self.nodes.get(name)
    }

    /// Nodes that are not of the file.
    pub const fn nodes(&self) -> &BTreeMap<String, DynamicNode> {
        &self.nodes
    }

    /// The file was read again. Answers the nodes that it has now itself.
    pub fn read_again(&mut self, base: Arc<Config>) -> Vec<String> {
        let taken: Vec<String> = self.nodes.keys().filter(|name| base.node(name).is_some()).cloned().collect();
        taken.iter().for_each(|name| drop(self.nodes.remove(name)));
        self.base = base;
        self.make();
        taken
    }

    /// May a node of this name join the cluster?
    pub fn admits(&self, name: &str) -> Result<(), String> {
        if self.config.node(name).is_some() || self.room_for(1).is_ok() {
            return Ok(());
        }
        Err(format!("slurm.conf has no NodeName={name}, and {}", self.full()))
    }

    fn full(&self) -> String {
        format!("there is no room for another node (MaxNodeCount={})", self.base.most_nodes())
    }

    fn room_for(&self, more: usize) -> Result<(), Refusal> {
        let all = self.base.nodes.len() + self.nodes.len() + more;
        if all <= self.base.most_nodes() as usize { Ok(()) } else { Err(Refusal::InvalidUpdate(self.full())) }
    }

    /// The lowest place that nobody has or is spoken of with.
    fn free_slot(&self, spoken: &Spoken) -> u32 {
        let first = u32::try_from(self.base.nodes.len()).unwrap_or(u32::MAX);
        let taken: BTreeSet<u32> = self.nodes.values().map(|node| node.slot).collect();
        (0..).find(|slot| !taken.contains(slot) && !spoken.contains(&first.saturating_add(*slot))).unwrap_or(u32::MAX)
    }

    /// Puts a node there, if it fits.
    fn put(&mut self, node: DynamicNode) -> Result<(), Refusal> {
        let name = node.name.clone();
        let before = self.nodes.insert(name.clone(), node);
        let (config, unfit) = self.base.with_dynamic(self.nodes.values());
        if let Some((_, Unfit::Node(wrong) | Unfit::Place(wrong))) = unfit.into_iter().find(|(unfit, _)| *unfit == name)
        {
            match before {
                Some(before) => self.nodes.insert(name.clone(), before),
                None => self.nodes.remove(&name),
            };
            return Err(Refusal::InvalidUpdate(format!("node {name}: {wrong}")));
        }
        self.config = Arc::new(config);
        Ok(())
    }

    fn own(&self, name: &str) -> Result<&DynamicNode, Refusal> {
        if self.base.node(name).is_some() {
            let said = format!("Invalid node state specified: {name} is a node of slurm.conf, not a dynamic one");
            return Err(Refusal::InvalidUpdate(said));
        }
        self.nodes.get(name).ok_or_else(|| Refusal::InvalidNode(name.to_owned()))
    }

    /// A daemon says that it is this node. True: something of it is new.
    pub fn join(
        &mut self,
        name: &str,
        joining: &Joining,
        hostname: &str,
        address: &str,
        spoken: &dyn Fn() -> Spoken,
    ) -> Result<bool, Refusal> {
        if self.base.node(name).is_some() {
            let said = format!("{name} is a node of slurm.conf: start its slurmd without -Z");
            return Err(Refusal::InvalidUpdate(said));
        }
        let line = without(name, &joining.line, &["State", "Reason"])?;
        let read = |line: &str| config::read_line(&self.base, name, line).map_err(|wrong| unfit(name, wrong));
        let place = read(&line)?.node(name).and_then(|node| node.settings.topology.clone());
        let hostname = if hostname.is_empty() { name } else { hostname };
        let whereabouts =
            Some(Whereabouts { hostname: hostname.to_owned(), address: address.to_owned(), port: joining.port });
        let node = match self.nodes.get(name) {
            // What an administrator wrote stands; its place is the daemon's to say.
            Some(known) if known.created => {
                DynamicNode { whereabouts, topology: place.or_else(|| known.topology.clone()), ..known.clone() }
            }
            Some(known) if known.line == line => DynamicNode { whereabouts, ..known.clone() },
            Some(known) => DynamicNode { whereabouts, line, topology: None, ..known.clone() },
            None => {
                self.room_for(1)?;
                let slot = self.free_slot(&spoken());
                DynamicNode { name: name.to_owned(), line, slot, whereabouts, ..DynamicNode::default() }
            }
        };
        if self.nodes.get(name) == Some(&node) {
            return Ok(false);
        }
        self.put(node)?;
        Ok(true)
    }

    /// An administrator makes nodes: all of them or none. Answers their names.
    pub fn create(&mut self, names: &str, line: &str, spoken: &dyn Fn() -> Spoken) -> Result<Vec<String>, Refusal> {
        let made = config::read_line(&self.base, names, line).map_err(|wrong| unfit(names, wrong))?;
        if !matches!(config::state_of(&made), ConfiguredState::Cloud | ConfiguredState::Future) {
            let said = "Invalid node state specified: only State=CLOUD and State=FUTURE nodes can be created";
            return Err(Refusal::InvalidUpdate(said.to_owned()));
        }
        if let Some(known) = made.nodes.iter().find(|node| self.config.node(&node.name).is_some()) {
            return Err(Refusal::InvalidUpdate(format!("Node {} exists already", known.name)));
        }
        self.room_for(made.nodes.len())?;
        // Of these each node has its own.
        let line = without(names, line, &["NodeHostname", "NodeAddr", "Port"])?;
        let spoken = spoken();
        let mut tried = self.clone();
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
            let slot = tried.free_slot(&spoken);
            let name = node.name;
            tried.put(DynamicNode { name: name.clone(), line: own, slot, created: true, ..DynamicNode::default() })?;
            created.push(name);
        }
        *self = tried;
        Ok(created)
    }

    /// May it go, as far as that is not its owner's to say?
    pub fn may_go(&self, name: &str) -> Result<(), Refusal> {
        self.own(name).map(|_| ())
    }

    /// Nodes go. Answers those that were there.
    pub fn delete(&mut self, names: &[String]) -> Vec<String> {
        let gone: Vec<String> = names.iter().filter(|name| self.nodes.remove(*name).is_some()).cloned().collect();
        if !gone.is_empty() {
            self.make();
        }
        gone
    }

    /// Nodes move in the topologies: all of them or none.
    pub fn place(&mut self, names: &[String], place: &str) -> Result<(), Refusal> {
        let mut tried = self.clone();
        for name in names {
            if self.base.node(name).is_some() {
                let what = format!("Topology= of a node of slurm.conf ({name}) at run time");
                return Err(Refusal::NotSupported(what));
            }
            let known = tried.own(name)?;
            let node = DynamicNode { topology: Some(place.to_owned()), ..known.clone() };
            tried.put(node)?;
        }
        *self = tried;
        Ok(())
    }
}

fn unfit(names: &str, wrong: config::SettingError) -> Refusal {
    Refusal::InvalidUpdate(format!("NodeName={names}: {wrong}"))
}

/// The line without these keys.
fn without(names: &str, line: &str, keys: &[&str]) -> Result<String, Refusal> {
    let pairs = config::parameters(line).map_err(|wrong| unfit(names, wrong))?;
    let left = pairs.into_iter().filter(|(key, _)| !keys.iter().any(|one| key.eq_ignore_ascii_case(one)));
    let word = |(key, value): (String, String)| {
        if value.contains(char::is_whitespace) { format!("{key}=\"{value}\"") } else { format!("{key}={value}") }
    };
    Ok(left.map(word).collect::<Vec<_>>().join(" "))
}
