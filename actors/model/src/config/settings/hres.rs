//! Hierarchical resources, with the meaning of `resources.yaml(5)` and of Slurm's page on HRES
//! (<https://slurm.schedmd.com/hres.html>). Each layer of a resource is counted like a license of its own, called by resource and
//! nodes: `flat(node[01-08])`.

use crate::{
    hostlist::HostList,
    spec_text::licenses::{LicenseCount, Licenses},
};
use fixedbitset::FixedBitSet;

/// What of a resource must be free on the layers that a job's nodes are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HresMode {
    /// `MODE_1`: enough on any one of them.
    One,
    /// `MODE_2`: enough on each of them.
    Two,
    /// `MODE_3`: so much for each node, summed up in each of them.
    Three,
}

/// Some nodes, and how much they have together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HresLayer {
    /// Resource and nodes, `flat(node[01-08])`: what it is called where amounts are counted.
    pub name: String,
    /// Nodes, as shown.
    pub nodes: HostList,
    /// The same by their places in the configuration.
    pub members: FixedBitSet,
    /// How much there is; `None`: without end.
    pub count: Option<u32>,
    /// What is always in use: `base`, and with [`HresMode::Three`] that of the layers below too.
    pub base: u32,
    /// How many layers its nodes are all in besides, it being inside them.
    pub depth: usize,
}

impl HresLayer {
    /// What is there for jobs; `None`: without end.
    pub fn available(&self) -> Option<u32> {
        self.count.map(|count| count.saturating_sub(self.base))
    }
}

/// A resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HresResource {
    /// Name.
    pub name: String,
    /// How it is planned.
    pub mode: HresMode,
    /// The block topology that has the same layout; only with [`HresMode::Three`].
    pub topology: Option<String>,
    /// Words that stand for amounts in requests.
    pub variables: Vec<(String, u32)>,
    /// In the order of the file.
    pub layers: Vec<HresLayer>,
}

impl HresResource {
    /// Layers with fewer nodes first: those that amounts are rather taken from where there is a choice.
    pub fn by_size(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.layers.len()).collect();
        order.sort_by_key(|layer| (self.layers[*layer].members.count_ones(..), *layer));
        order
    }

    /// Nodes of any layer: no other node has the resource.
    pub fn members(&self) -> FixedBitSet {
        let mut all = FixedBitSet::new();
        self.layers.iter().for_each(|layer| {
            all.grow(layer.members.len());
            all.union_with(&layer.members);
        });
        all
    }

    /// Could any node ever be given so much?
    pub fn could_give(&self, count: u32) -> bool {
        let has = |layer: &HresLayer| layer.available().is_none_or(|most| count <= most);
        let enough = |node: usize| {
            let mut layers = self.layers.iter().filter(|layer| layer.members.contains(node));
            if self.mode == HresMode::One { layers.any(has) } else { layers.all(has) }
        };
        self.members().ones().any(enough)
    }
}

/// All resources, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hres {
    /// The resources.
    pub resources: Vec<HresResource>,
}

impl Hres {
    /// Are there none?
    pub const fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// A resource by its name, with its place.
    pub fn resource(&self, name: &str) -> Option<(usize, &HresResource)> {
        self.resources.iter().enumerate().find(|(_, resource)| resource.name == name)
    }

    /// The amount that a word stands for in requests of a resource.
    pub fn variable(&self, resource: &str, word: &str) -> Option<u32> {
        let (_, resource) = self.resource(resource)?;
        resource.variables.iter().find(|(name, _)| name == word).map(|(_, value)| *value)
    }

    /// All layers.
    pub fn layers(&self) -> impl Iterator<Item = (&HresResource, &HresLayer)> {
        self.resources.iter().flat_map(|resource| resource.layers.iter().map(move |layer| (resource, layer)))
    }

    /// What a job that has these nodes, by place, counts for in the layers as they are now: it asked for `asked`, and was
    /// given `held` at its start, when the layers may have been others. What it has of other things stays.
    pub fn recount(&self, asked: Option<&str>, nodes: &[usize], held: &Licenses) -> Licenses {
        // Layers are called by nodes in brackets, which licenses never are.
        let layered = |license: &LicenseCount| license.name.ends_with(')');
        if !held.0.iter().any(layered) {
            return held.clone();
        }
        let mut counted: Vec<LicenseCount> = held.0.iter().filter(|license| !layered(license)).cloned().collect();
        let asked: Licenses = asked.and_then(|text| text.parse().ok()).unwrap_or_default();
        for LicenseCount { name, count } in &asked.0 {
            let Some((_, resource)) = self.resource(name) else { continue };
            let here = |layer: &HresLayer| nodes.iter().filter(|node| layer.members.contains(**node)).count();
            let order = resource.by_size();
            let mut layers = order.iter().map(|place| &resource.layers[*place]).filter(|layer| here(layer) > 0);
            match resource.mode {
                HresMode::One => {
                    let known = layers.clone().find(|layer| held.count(&layer.name) > 0).or_else(|| layers.next());
                    counted.extend(known.map(|layer| LicenseCount { name: layer.name.clone(), count: *count }));
                }
                HresMode::Two => {
                    counted.extend(layers.map(|layer| LicenseCount { name: layer.name.clone(), count: *count }));
                }
                HresMode::Three => counted.extend(layers.map(|layer| {
                    let nodes = u32::try_from(here(layer)).unwrap_or(u32::MAX);
                    LicenseCount { name: layer.name.clone(), count: count.saturating_mul(nodes) }
                })),
            }
        }
        Licenses(counted)
    }
}
