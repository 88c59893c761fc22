//! Whether resources hold together: their names, amounts and nodes, and the shape of their layers.

use super::yaml::{Entry, LayerEntry, Valued};
use crate::{
    config::{
        settings::{
            config::Config,
            hres::{Hres, HresLayer, HresMode, HresResource},
        },
        syntax::{
            nearest::nearest,
            report::{ConfigReport, Place, SettingError},
            yaml::line_of,
        },
    },
    hostlist::{HostList, HostListError},
    topology::Layout,
};
use fixedbitset::FixedBitSet;
use serde_saphyr::Spanned;
use std::collections::{BTreeMap, HashSet};

/// From what was written to what it means.
pub(super) fn check(config: &Config, entries: Vec<Entry>, file: &Place, report: &mut ConfigReport) -> Hres {
    let mut checker = Checker { config, file, report };
    let mut resources: Vec<HresResource> = Vec::new();
    for entry in entries {
        let (name, line) = (entry.resource.value.clone(), line_of(&entry.resource));
        let cause = if !is_word(&name) {
            Some("a name has letters, digits, and any of - _ . /".to_owned())
        } else if resources.iter().any(|known| known.name == name) {
            Some("another resource has this name".to_owned())
        } else if config.licenses.count(&name) > 0 {
            Some(format!("a license is called {name} (Licenses= in slurm.conf); give one of them another name"))
        } else {
            None
        };
        if let Some(cause) = cause {
            checker.error(line, format!("resource: {name}"), SettingError::new(cause));
            continue;
        }
        resources.extend(checker.resource(entry));
    }
    Hres { resources }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
}

struct Checker<'c> {
    config: &'c Config,
    file: &'c Place,
    report: &'c mut ConfigReport,
}

impl Checker<'_> {
    fn error(&mut self, line: u32, what: impl Into<String>, wrong: SettingError) {
        let place = Place { line, ..self.file.clone() };
        self.report.error(&place, what, wrong);
    }

    fn resource(&mut self, entry: Entry) -> Option<HresResource> {
        let name = entry.resource.value.clone();
        let mode = match entry.mode.value.as_str() {
            "MODE_1" => HresMode::One,
            "MODE_2" => HresMode::Two,
            "MODE_3" => HresMode::Three,
            other => {
                let wrong = SettingError::new("is no mode").suggest("MODE_1, MODE_2 or MODE_3");
                self.error(line_of(&entry.mode), format!("mode: {other}"), wrong);
                return None;
            }
        };
        if line_of(&entry.mode) < line_of(&entry.resource) {
            let wrong = SettingError::new("resource must be the first attribute").suggest("write it before mode");
            self.error(line_of(&entry.resource), format!("resource: {name}"), wrong);
        }
        let variables = self.variables(&entry.variables);
        let lines: Vec<u32> = entry.layers.iter().map(|layer| line_of(&layer.count)).collect();
        let mut layers: Vec<HresLayer> = Vec::new();
        for layer in &entry.layers {
            layers.push(self.layer(&name, layer)?);
        }
        if layers.is_empty() {
            let wrong = SettingError::new("has no layers").suggest("layers: with nodes and count");
            self.error(line_of(&entry.resource), format!("resource: {name}"), wrong);
            return None;
        }
        for (place, layer) in layers.iter().enumerate() {
            if layers[..place].iter().any(|other| other.members == layer.members) {
                let wrong = SettingError::new("another layer has the same nodes").suggest("make them one");
                self.error(lines[place], format!("layer {}", layer.name), wrong);
            }
        }
        let around = |layer: &HresLayer| layers.iter().filter(|other| layer.members.is_subset(&other.members)).count();
        let depths: Vec<usize> = layers.iter().map(|layer| around(layer).saturating_sub(1)).collect();
        for (layer, depth) in layers.iter_mut().zip(depths) {
            layer.depth = depth;
        }
        if mode == HresMode::Three {
            self.tree(&layers, &lines);
            let own: Vec<u32> = layers.iter().map(|layer| layer.base).collect();
            let below = |place: usize| {
                let inside = |other: &usize| layers[*other].members.is_subset(&layers[place].members);
                (0..layers.len()).filter(inside).fold(0u32, |sum, other| sum.saturating_add(own[other]))
            };
            let sums: Vec<u32> = (0..layers.len()).map(below).collect();
            for (layer, sum) in layers.iter_mut().zip(sums) {
                layer.base = sum;
            }
        }
        for (layer, line) in layers.iter().zip(&lines) {
            if let Some(count) = layer.count.filter(|count| *count < layer.base) {
                let cause = format!("base takes {} of it (with that of the layers inside)", layer.base);
                let wrong = SettingError::new(cause).suggest("raise the count or lower the base");
                self.error(*line, format!("count: {count}"), wrong);
            }
        }
        let topology = entry.topology.map(|named| {
            self.topology(&named, mode, &layers);
            named.value
        });
        Some(HresResource { name, mode, topology, variables, layers })
    }

    fn variables(&mut self, entries: &[Valued]) -> Vec<(String, u32)> {
        let mut variables: Vec<(String, u32)> = Vec::new();
        for Valued { name, value } in entries {
            let what = format!("name: {}", name.value);
            if !is_word(&name.value) || name.value.parse::<u64>().is_ok() {
                let wrong = SettingError::new("is no word for an amount").suggest("for example full_node");
                self.error(line_of(name), what, wrong);
            } else if variables.iter().any(|(known, _)| *known == name.value) {
                self.error(line_of(name), what, SettingError::new("another variable has this name"));
            } else if let Some(value) = self.amount(value, 1) {
                variables.push((name.value.clone(), value));
            }
        }
        variables
    }

    fn amount(&mut self, value: &Spanned<i64>, least: u32) -> Option<u32> {
        let amount = u32::try_from(value.value).ok().filter(|amount| (least..u32::MAX).contains(amount));
        if amount.is_none() {
            let wrong = SettingError::new("is out of range").suggest(format!("{least} to {}", u32::MAX - 1));
            self.error(line_of(value), format!("value: {}", value.value), wrong);
        }
        amount
    }

    fn layer(&mut self, resource: &str, entry: &LayerEntry) -> Option<HresLayer> {
        let mut members = FixedBitSet::with_capacity(self.config.nodes.len());
        let mut names: Vec<String> = Vec::new();
        for text in &entry.nodes {
            let what = format!("nodes: {}", text.value);
            let list = match text.value.parse::<HostList>() {
                Ok(list) => list,
                Err(e) => {
                    let e: HostListError = e;
                    self.error(line_of(text), what, SettingError::new(e.to_string()));
                    return None;
                }
            };
            for name in list.iter() {
                let Some(node) = self.config.by_name.get(&name) else {
                    let known: Vec<&str> = self.config.nodes.iter().map(|node| node.name.as_str()).collect();
                    let wrong = SettingError::new(format!("no node is called {name}"));
                    let wrong = match nearest(&name, &known) {
                        Some(meant) => wrong.suggest(format!("did you mean {meant}?")),
                        None => wrong.suggest("nodes of slurm.conf"),
                    };
                    self.error(line_of(text), what, wrong);
                    return None;
                };
                if !members.put(node.0 as usize) {
                    names.push(name);
                }
            }
        }
        if names.is_empty() {
            let wrong = SettingError::new("the layer has no nodes").suggest("nodes: with a list of nodes");
            self.error(line_of(&entry.count), format!("count: {}", entry.count.value), wrong);
            return None;
        }
        let count = match entry.count.value {
            -1 => None,
            value => match u32::try_from(value).ok().filter(|count| *count < u32::MAX) {
                Some(count) => Some(count),
                None => {
                    let wrong = SettingError::new("is out of range").suggest("-1 is without end");
                    self.error(line_of(&entry.count), format!("count: {value}"), wrong);
                    return None;
                }
            },
        };
        let mut base = 0u32;
        let mut consumers = HashSet::new();
        for Valued { name, value } in &entry.base {
            if !consumers.insert(&name.value) {
                let wrong = SettingError::new("is twice in this base").suggest("make them one");
                self.error(line_of(name), format!("name: {}", name.value), wrong);
            }
            base = base.saturating_add(self.amount(value, 0).unwrap_or(0));
        }
        let nodes: HostList = names.iter().collect();
        Some(HresLayer { name: format!("{resource}({nodes})"), nodes, members, count, base, depth: 0 })
    }

    /// Layers of `MODE_3` are a rooted tree of uniform depth (Slurm's page on HRES).
    fn tree(&mut self, layers: &[HresLayer], lines: &[u32]) {
        let suggestion = "with MODE_3 one layer has all nodes, and every layer is split whole into those inside it";
        for (place, layer) in layers.iter().enumerate() {
            let crossing = layers[..place].iter().find(|other| {
                let (a, b) = (&layer.members, &other.members);
                !a.is_disjoint(b) && !a.is_subset(b) && !b.is_subset(a)
            });
            if let Some(other) = crossing {
                let wrong = SettingError::new(format!("has some nodes of {} but not all", other.name));
                return self.error(lines[place], format!("layer {}", layer.name), wrong.suggest(suggestion));
            }
        }
        let mut depth: BTreeMap<usize, usize> = BTreeMap::new();
        layers.iter().flat_map(|layer| layer.members.ones()).for_each(|node| *depth.entry(node).or_insert(0) += 1);
        let root = layers.iter().any(|layer| layer.members.count_ones(..) == depth.len());
        if !root {
            let wrong = SettingError::new("no layer has all nodes of the others");
            return self.error(lines[0], format!("layer {}", layers[0].name), wrong.suggest(suggestion));
        }
        let deepest = depth.values().max().copied().unwrap_or(0);
        if let Some((node, less)) = depth.iter().find(|(_, layers)| **layers < deepest) {
            let name = self.config.nodes.get(*node).map_or("", |node| &node.name);
            let wrong = SettingError::new(format!("{name} is in {less} layers, others in {deepest}"));
            self.error(lines[0], format!("layer {}", layers[0].name), wrong.suggest(suggestion));
        }
    }

    /// Layers that no other is inside of are the blocks of a topology.
    fn topology(&mut self, named: &Spanned<String>, mode: HresMode, layers: &[HresLayer]) {
        let (line, what) = (line_of(named), format!("topology: {}", named.value));
        if mode != HresMode::Three {
            let wrong = SettingError::new("goes with MODE_3 only").suggest("remove the line");
            return self.error(line, what, wrong);
        }
        let Some(topology) = self.config.topology(&named.value) else {
            let wrong = SettingError::new("no topology is called that").suggest("a block topology of topology.yaml");
            return self.error(line, what, wrong);
        };
        let Layout::Block { blocks, .. } = &topology.layout else {
            let wrong = SettingError::new("is not a block topology").suggest("remove the line");
            return self.error(line, what, wrong);
        };
        let place = |name: &String| self.config.by_name.get(name).map(|node| node.0 as usize);
        let of_block = |nodes: &HostList| nodes.iter().filter_map(|name| place(&name)).collect::<Vec<_>>();
        let mut units: Vec<Vec<usize>> = blocks.iter().map(|b| of_block(&b.nodes)).filter(|b| !b.is_empty()).collect();
        units.iter_mut().for_each(|unit| unit.sort_unstable());
        let inner = |layer: &&HresLayer| {
            !layers.iter().any(|other| other.members != layer.members && other.members.is_subset(&layer.members))
        };
        let mut lowest: Vec<Vec<usize>> = layers.iter().filter(inner).map(|l| l.members.ones().collect()).collect();
        units.sort();
        lowest.sort();
        if units != lowest {
            let wrong = SettingError::new("its blocks are not the lowest layers").suggest("a layer for each block");
            self.error(line, what, wrong);
        }
    }
}
