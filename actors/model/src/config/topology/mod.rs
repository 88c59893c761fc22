//! `topology.conf` and `topology.yaml`, which stand beside `slurm.conf`: read, and checked against its nodes and
//! partitions. `topology.yaml` alone counts where there is one (`topology.yaml(5)`).

mod check;
mod conf;
mod functions;
mod yaml;

#[cfg(test)]
mod tests;

use crate::{
    config::{
        settings::config::Config,
        syntax::{
            report::{ConfigReport, Place, SettingError},
            text::ReadFile,
        },
    },
    topology::{Layout, NamedTopology},
};
use std::{io, path::Path, sync::Arc};

/// What a file said.
pub(super) struct TopologyFile {
    pub place: Place,
    pub topologies: Vec<NamedTopology>,
}

/// Reads the topologies that the configuration calls for. Their nodes are not looked at yet: see [`check`].
pub(super) fn read(config: &Config, read_file: &ReadFile<'_>, report: &mut ConfigReport) -> Option<TopologyFile> {
    let folder = config.path.parent().unwrap_or(Path::new(""));
    let yaml = folder.join("topology.yaml");
    match read_file(&yaml) {
        Ok(text) => {
            report.files.push(yaml.clone());
            let place = Place { file: Arc::from(yaml), line: 0 };
            let before = report.errors().count();
            let topologies = yaml::read(&text, &place, report);
            if topologies.is_empty() && report.errors().count() == before {
                let instead = match config.topology_plugin() {
                    "flat" => "",
                    _ => ", and topology.conf is not read",
                };
                let wrong =
                    SettingError::new(format!("describes no topology: all nodes count as equally near{instead}"));
                report.warning(&place, "topology.yaml", wrong.suggest("remove it, or describe topologies there"));
            }
            return Some(TopologyFile { place, topologies });
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => {
            let wrong = SettingError::new(format!("cannot be read: {e}"));
            report.error(&Place { file: Arc::from(yaml), line: 0 }, "topology.yaml", wrong);
            return None;
        }
    }
    let plugin = config.topology_plugin();
    if plugin == "flat" {
        return None;
    }
    let path = folder.join("topology.conf");
    let place = Place { file: Arc::from(path.as_path()), line: 0 };
    if plugin == "torus3d" {
        let wrong = SettingError::new("topology.conf does not describe tori").suggest("write topology.yaml");
        report.error(&place, "TopologyPlugin=topology/torus3d", wrong);
        return None;
    }
    let layout = conf::read(&path, plugin, read_file, report)?;
    let name = crate::topology::CONF_NAME.to_owned();
    let topologies = vec![NamedTopology { name, cluster_default: true, layout, line: 0 }];
    Some(TopologyFile { place, topologies })
}

pub use functions::function;

pub(super) use check::{check, check_without};

impl Config {
    /// `TopologyPlugin` without `topology/`; `flat` for its other names.
    pub fn topology_plugin(&self) -> &str {
        match self.topology_type.strip_prefix("topology/").unwrap_or(&self.topology_type) {
            "" | "default" | "none" => "flat",
            name => name,
        }
    }

    /// A topology by its name.
    pub fn topology(&self, name: &str) -> Option<&NamedTopology> {
        self.topologies.iter().find(|t| t.name == name)
    }

    /// The topology of partitions that name none, and of what is about no partition; `None`: all nodes are equally near.
    pub fn default_topology(&self) -> Option<&NamedTopology> {
        self.topologies.iter().find(|t| t.cluster_default).or_else(|| self.topologies.first())
    }

    /// The topology of jobs in a partition whose `Topology=` is this.
    pub fn partition_topology(&self, named: Option<&str>) -> Option<&NamedTopology> {
        let topology = named.map_or_else(|| self.default_topology(), |name| self.topology(name));
        topology.filter(|t| !matches!(t.layout, Layout::Flat { .. }))
    }
}
