//! How many blocks or leaf switches are completely idle: large jobs need such ones.

use garrick_plan::snapshot::facts::ClusterView;

/// What is idle at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// Nodes.
    pub nodes: u32,
    /// Blocks or leaf switches.
    pub units: u32,
    /// Nodes in those.
    pub in_units: u32,
    /// Nodes of the largest block of any size that is idle altogether.
    pub largest: u32,
}

impl Idle {
    /// Of blocks by level, the smallest first. `None`: there are none.
    pub(crate) fn of(view: &ClusterView, levels: &[Vec<Vec<usize>>]) -> Option<Self> {
        let first = levels.first()?;
        let idle: Vec<bool> = view.nodes.iter().map(|node| node.holds.is_empty()).collect();
        let whole = |area: &&Vec<usize>| !area.is_empty() && area.iter().all(|node| idle[*node]);
        let count = |nodes: usize| u32::try_from(nodes).unwrap_or(u32::MAX);
        let largest = levels.iter().flatten().filter(whole).map(Vec::len).max().unwrap_or(0);
        Some(Self {
            nodes: count(idle.iter().filter(|idle| **idle).count()),
            units: count(first.iter().filter(whole).count()),
            in_units: count(first.iter().filter(whole).map(Vec::len).sum()),
            largest: count(largest),
        })
    }
}

/// CPUs of the largest block or leaf switch; 0: there are none.
pub(crate) fn unit_cpus(view: &ClusterView, levels: &[Vec<Vec<usize>>]) -> u64 {
    let cpus = |area: &Vec<usize>| area.iter().map(|node| u64::from(view.nodes[*node].shape.cpus)).sum();
    levels.first().and_then(|units| units.iter().map(cpus).max()).unwrap_or(0)
}
