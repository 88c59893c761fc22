//! Host list functions: `feature{gpu}`, `switch{s1}`, `blockwith{n7}` in place of a node's name (Slurm's topology guide and
//! `slurm.conf(5)`, Features).

use crate::{
    config::{settings::config::Config, syntax::report::SettingError},
    hostlist::HostList,
};

const UNITS: [&str; 4] = ["switch", "block", "ring", "torus"];

/// A function and its argument; `None`: the name is an ordinary one.
pub fn function(name: &str) -> Option<(&str, &str)> {
    let (word, argument) = name.split_once('{')?;
    Some((word, argument.strip_suffix('}').unwrap_or(argument)))
}

impl Config {
    /// Nodes that a function stands for; `Ok(None)`: the name is an ordinary one. `with_feature` finds nodes by feature.
    ///
    /// Units are looked for in the default topology first, then in the others in the order of the file.
    ///
    /// # Errors
    ///
    /// There is no such function, unit, feature, or node in a unit.
    pub fn hosts_of_function(
        &self,
        name: &str,
        with_feature: &dyn Fn(&str) -> HostList,
    ) -> Result<Option<HostList>, SettingError> {
        let Some((word, argument)) = function(name) else { return Ok(None) };
        if !name.ends_with('}') || argument.is_empty() {
            let wrong = SettingError::new(format!("\"{name}\" is no host list function"));
            return Err(wrong.suggest("WORD{NAME}, one name at a time"));
        }
        if word == "feature" {
            let nodes = with_feature(argument);
            return if nodes.is_empty() {
                Err(SettingError::new(format!("no node has the feature {argument}")))
            } else {
                Ok(Some(nodes))
            };
        }
        let (unit, with) = word.strip_suffix("with").map_or((word, false), |unit| (unit, true));
        if !UNITS.contains(&unit) {
            let wrong = SettingError::new(format!("no host list function is called {word}"));
            return Err(
                wrong.suggest("feature, switch, block, ring, torus, and the last four with \"with\" behind them")
            );
        }
        let mut topologies: Vec<_> = self.topologies.iter().filter(|t| t.layout.unit_word() == unit).collect();
        topologies.sort_by_key(|t| self.default_topology().is_none_or(|default| default.name != t.name));
        if topologies.is_empty() {
            return Err(SettingError::new(format!("{name}: no topology has {unit} units")));
        }
        let found = topologies
            .iter()
            .find_map(|t| if with { t.layout.nodes_with(argument) } else { t.layout.nodes_of(argument) })
            .filter(|nodes| !nodes.is_empty());
        let missing = || match with {
            true => format!("node {argument} is in no {unit}"),
            false => format!("no {unit} with nodes is called {argument}"),
        };
        found.map(Some).ok_or_else(|| SettingError::new(missing()))
    }

    /// The names with functions put in their nodes' names, each once.
    ///
    /// # Errors
    ///
    /// As [`Self::hosts_of_function`].
    pub fn with_functions(
        &self,
        names: &[String],
        with_feature: &dyn Fn(&str) -> HostList,
    ) -> Result<Vec<String>, SettingError> {
        let mut seen = std::collections::HashSet::new();
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            match self.hosts_of_function(name, with_feature)? {
                Some(nodes) => all.extend(nodes.iter().filter(|node| seen.insert(node.clone()))),
                None if seen.insert(name.clone()) => all.push(name.clone()),
                None => {}
            }
        }
        Ok(all)
    }

    /// Nodes that were configured with a feature.
    pub fn nodes_with_feature(&self, feature: &str) -> HostList {
        let has = |node: &&super::super::NodeConfig| node.settings.features.iter().any(|f| f == feature);
        self.nodes.iter().filter(has).map(|node| node.name.as_str()).collect()
    }
}
