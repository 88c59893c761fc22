//! From lines to a checked [`Config`]. Daemons use [`read_reporting`] and log its warnings, commands use [`read`] and say
//! nothing about them, `garrick check` prints what [`check`] finds.

use super::{
    hres,
    settings::{
        config::{Config, NodeSet},
        global::{GLOBAL, LINES},
        gres,
        node::{NodeConfig, NodeReader},
        partition::{PARTITION, PartitionConfig},
        power::PowerAction,
        row::{self, Class},
    },
    show,
    syntax::{
        report::{ConfigReport, Place, SettingError},
        text::{self, Pair, ReadFile},
        values,
    },
    topology,
};
use crate::hostlist::HostList;
use std::{collections::HashMap, fs, path::Path, sync::Arc};

/// Reads a configuration; on errors all findings. For commands: topologies are read only where a partition's nodes are
/// named by them.
pub fn read(path: &Path) -> Result<Config, ConfigReport> {
    let (config, report) = read_with(path, &from_disk, Topologies::WhereNamed);
    config.ok_or(report)
}

/// Reads a configuration and says everything there is to say about it; no configuration when there are errors.
pub fn read_reporting(path: &Path) -> (Option<Config>, ConfigReport) {
    read_with(path, &from_disk, Topologies::All)
}

fn from_disk(path: &Path) -> std::io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// All findings of a file.
pub fn check(path: &Path) -> ConfigReport {
    read_reporting(path).1
}

/// Reads a configuration from a text, as if it stood in a file of that name. Nothing is included from elsewhere.
pub fn read_text(path: &Path, text: &str) -> (Option<Config>, ConfigReport) {
    let name = path.to_string_lossy();
    read_files(path, &[(&name, text)])
}

/// Reads a configuration from texts, as if they stood in files of these names. Nothing is included from elsewhere.
pub fn read_files(path: &Path, files: &[(&str, &str)]) -> (Option<Config>, ConfigReport) {
    let read_file = |asked: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == asked);
        found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    };
    read_with(path, &read_file, Topologies::All)
}

/// Whether the files beside `slurm.conf` are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Topologies {
    All,
    WhereNamed,
}

fn read_with(path: &Path, read_file: &ReadFile<'_>, topologies: Topologies) -> (Option<Config>, ConfigReport) {
    let mut report = ConfigReport::default();
    let lines = text::lines(path, read_file, &mut report);
    let mut reader = Reader::new(path);
    reader.config.hash = hash_of(&lines);
    // It may stand below the nodes that it is about.
    let parameters = lines.iter().flatten().rfind(|pair| pair.is("SchedulerParameters"));
    let first = parameters.is_some_and(|pair| values::Parameters::parse(&pair.value).has("spec_cores_first"));
    reader.nodes.set_spec_cores_first(first);
    for pairs in &lines {
        reader.line(pairs, &mut report);
    }
    if !reader.config.gres.types.is_empty() {
        reader.config.gres.read(path, read_file, &mut report);
    }
    if topologies == Topologies::All {
        reader.config.gathering.read(path, read_file, &mut report);
    }
    let named = |partition: &PartitionConfig| partition.nodes_text.contains('{');
    let wanted = topologies == Topologies::All || reader.config.partitions.iter().any(named);
    let config = reader.finish(wanted.then_some(read_file), &mut report);
    // Findings about the whole come after those about lines, except that files keep together.
    let usable = !report.has_errors();
    (usable.then_some(config), report)
}

fn hash_of(lines: &[Vec<Pair>]) -> u32 {
    lines.iter().fold(0, |hash, pairs| {
        let hash = pairs.iter().fold(hash, |hash, pair| {
            let hash = crc32c::crc32c_append(hash, pair.key.to_ascii_lowercase().as_bytes());
            crc32c::crc32c_append(crc32c::crc32c_append(hash, b"="), format!("{}\0", pair.value).as_bytes())
        });
        crc32c::crc32c_append(hash, b"\n")
    })
}

struct Reader {
    config: Config,
    nodes: NodeReader,
    /// Where each key was last set.
    seen: HashMap<&'static str, Place>,
    partition_defaults: PartitionConfig,
    /// Places of partitions, in order, and those of their `Nodes=`.
    partitions: Vec<(Place, Place)>,
}

fn both(other: &str, before: &Place) -> SettingError {
    let cause = format!("{other} at {before} and this exclude each other; this one counts");
    SettingError::new(cause).suggest("keep one of them")
}

impl Reader {
    fn new(path: &Path) -> Self {
        Self {
            config: Config { path: path.to_owned(), ..Config::default() },
            nodes: NodeReader::default(),
            seen: HashMap::new(),
            partition_defaults: PartitionConfig::default(),
            partitions: Vec::new(),
        }
    }

    fn line(&mut self, pairs: &[Pair], report: &mut ConfigReport) {
        for (at, pair) in pairs.iter().enumerate() {
            let rest = &pairs[at..];
            if pair.is("NodeName") {
                return self.nodes.line(rest, report);
            } else if pair.is("PartitionName") {
                return self.partition_line(rest, report);
            } else if pair.is("DownNodes") {
                return self.nodes.down_line(rest, report);
            } else if pair.is("NodeSet") {
                return self.node_set_line(rest, report);
            } else if pair.is("PowerAction") {
                return self.power_action_line(rest, report);
            } else if pair.is("FrontendName") || pair.is("FrontEndNode") {
                let wrong = SettingError::new("front end nodes are not supported").suggest("remove the line");
                return report.error(&pair.place, pair.what(), wrong);
            }
            self.global(pair, report);
        }
    }

    fn global(&mut self, pair: &Pair, report: &mut ConfigReport) {
        let Some(row) = row::find(GLOBAL, &pair.key) else {
            return report.error(&pair.place, pair.what(), row::unknown(GLOBAL, LINES, &pair.key));
        };
        if let Some(before) = self.seen.insert(row.name, pair.place.clone())
            && !row.repeated
        {
            let wrong = SettingError::new(format!("{} is already set at {before}; this one counts", row.name));
            report.warning(&pair.place, pair.what(), wrong.suggest("keep one of them"));
        }
        if let Some((other, before)) = row.excludes.and_then(|other| self.seen.get_key_value(other)) {
            report.warning(&pair.place, pair.what(), both(other, before));
        }
        match row.set(&mut self.config, &pair.value) {
            // What is not honoured need not be said of what a key has anyhow.
            Ok(Some(_)) if row.read.is_none() && row.class == Class::NotYet && show::is_default(row, &pair.value) => {}
            Ok(Some(note)) => report.warning(&pair.place, pair.what(), note),
            Ok(None) => {}
            Err(wrong) => return report.error(&pair.place, pair.what(), wrong),
        }
        let kept = self.config.other.entry(row.name).or_default();
        if row.repeated && !kept.is_empty() {
            kept.push(',');
        } else {
            kept.clear();
        }
        kept.push_str(&pair.value);
    }

    fn partition_line(&mut self, pairs: &[Pair], report: &mut ConfigReport) {
        let Some((head, rest)) = pairs.split_first() else { return };
        let is_default = head.value.eq_ignore_ascii_case("DEFAULT");
        if !is_default {
            let taken = self.config.partitions.iter().any(|p| p.name == head.value);
            let cause = match &*head.value {
                "" => Some("the partition has no name".to_owned()),
                name if name.contains([',', ' ']) => Some("a partition's name has no commas or blanks".to_owned()),
                name if taken => Some(format!("partition {name} is already configured")),
                _ => None,
            };
            if let Some(cause) = cause {
                return report.error(&head.place, head.what(), SettingError::new(cause));
            }
        }
        let mut partition = self.partition_defaults.clone();
        let mut nodes_place = head.place.clone();
        for (at, pair) in rest.iter().enumerate() {
            let other = row::find(PARTITION, &pair.key).and_then(|row| row.excludes);
            if let Some(before) = other.and_then(|other| rest[..at].iter().find(|before| before.is(other))) {
                report.warning(&pair.place, pair.what(), both(&before.key, &before.place));
            }
            match partition.set(&pair.key, &pair.value) {
                Ok(None) => {}
                Ok(Some(note)) => report.warning(&pair.place, pair.what(), note),
                Err(wrong) => report.error(&pair.place, pair.what(), wrong),
            }
            if pair.is("Nodes") {
                nodes_place = pair.place.clone();
            } else if pair.is("AllowGroups") {
                let groups = values::list_or_all(&pair.value).into_iter().flatten();
                report.groups.extend(groups.map(|group| (pair.place.clone(), group)));
            }
        }
        if is_default {
            self.partition_defaults = partition;
        } else {
            partition.name = head.value.clone();
            self.config.partitions.push(partition);
            self.partitions.push((head.place.clone(), nodes_place));
        }
    }

    fn node_set_line(&mut self, pairs: &[Pair], report: &mut ConfigReport) {
        let Some((head, rest)) = pairs.split_first() else { return };
        let place = head.place.clone();
        let mut set = NodeSet { name: head.value.clone(), nodes: HostList::new(), feature: None, place };
        for pair in rest {
            match pair.key.to_ascii_lowercase().as_str() {
                "nodes" => match pair.value.parse() {
                    Ok(nodes) => set.nodes = nodes,
                    Err(e) => report.error(&pair.place, pair.what(), SettingError::new(e.to_string())),
                },
                "feature" => set.feature = values::optional(&pair.value),
                _ => {
                    let wrong = SettingError::new("unknown on a NodeSet line").suggest("Nodes and Feature are known");
                    report.error(&pair.place, pair.what(), wrong);
                }
            }
        }
        if set.name.is_empty() || self.config.node_sets.iter().any(|s| s.name == set.name) {
            let wrong = SettingError::new("a node set needs a name of its own");
            return report.error(&head.place, head.what(), wrong);
        }
        self.config.node_sets.push(set);
    }

    fn power_action_line(&mut self, pairs: &[Pair], report: &mut ConfigReport) {
        let Some((head, rest)) = pairs.split_first() else { return };
        let mut action = PowerAction { name: head.value.clone(), program: Vec::new() };
        for pair in rest {
            match pair.key.to_ascii_lowercase().as_str() {
                "program" => action.program = pair.value.split_whitespace().map(ToOwned::to_owned).collect(),
                "location" if pair.value.eq_ignore_ascii_case("slurmctld") => {}
                "location" => report.error(
                    &pair.place,
                    pair.what(),
                    SettingError::new("only Location=slurmctld is supported yet"),
                ),
                _ => {
                    let wrong = SettingError::new("unknown on a PowerAction line");
                    report.error(&pair.place, pair.what(), wrong.suggest("Location and Program are known"));
                }
            }
        }
        let known = self.config.power.actions.iter().any(|other| other.name == action.name);
        if action.name.is_empty() || known || action.program.is_empty() {
            let wrong = SettingError::new("a power action needs a name of its own, and a program");
            return report.error(&head.place, head.what(), wrong);
        }
        self.config.power.actions.push(action);
    }

    /// What can be said only when all lines are read.
    fn finish(mut self, topologies: Option<&ReadFile<'_>>, report: &mut ConfigReport) -> Config {
        let whole = Place { file: Arc::from(self.config.path.as_path()), line: 0 };
        // Nothing could be read at all: that was said.
        if report.files.is_empty() {
            return self.config;
        }
        self.nodes.finish(self.config.slurmd_port, report);
        self.config.nodes = std::mem::take(&mut self.nodes.nodes);
        self.config.by_name = std::mem::take(&mut self.nodes.by_name);
        gres::finish(&mut self.config, report);
        let mut missing = |what: &str, suggestion: &str| {
            report.error(&whole, what, SettingError::new("is missing").suggest(suggestion));
        };
        if self.config.cluster_name.is_empty() && !self.seen.contains_key("ClusterName") {
            missing("ClusterName", "for example ClusterName=cluster");
        }
        if self.config.controllers.is_empty() && !self.seen.contains_key("SlurmctldHost") {
            missing("SlurmctldHost", "the host that runs the controller");
        }
        // With room for nodes that come at run time there may be none to begin with.
        if self.config.nodes.is_empty() && self.config.max_node_count.is_none() && !report.has_errors() {
            let wrong = SettingError::new("is missing").suggest("slurmd -C prints the line of a machine");
            report.error(&whole, "NodeName", wrong);
        }
        if self.config.partitions.is_empty() && !report.has_errors() {
            let wrong =
                SettingError::new("is missing").suggest("for example PartitionName=debug Nodes=ALL Default=YES");
            report.error(&whole, "PartitionName", wrong);
        }
        if self.config.max_job_id < self.config.first_job_id
            && let Some(place) = self.seen.get("MaxJobId").or_else(|| self.seen.get("FirstJobId"))
        {
            let wrong = SettingError::new(format!("is below FirstJobId={}", self.config.first_job_id));
            report.error(place, format!("MaxJobId={}", self.config.max_job_id), wrong);
        }
        if let Some((key, wrong)) = self.config.preempt.conflict() {
            report.error(self.seen.get(key).unwrap_or(&whole), key, wrong);
        }
        let given = self.seen.contains_key("MCSParameters");
        for (key, doubt) in self.config.mcs.doubts(given) {
            report.warning(self.seen.get(key).unwrap_or(&whole), key, doubt);
        }
        if let Err(wrong) = self.config.completion.settle() {
            let place = self.seen.get("JobCompLoc").or_else(|| self.seen.get("JobCompType")).unwrap_or(&whole);
            report.error(place, "JobCompLoc", wrong);
        }
        self.finish_sets(report);
        let mut file = topologies.and_then(|read_file| topology::read(&self.config, read_file, report));
        if let Some(file) = &mut file {
            self.config.topologies.clone_from(&file.topologies);
        }
        if topologies.is_some() {
            self.place_nodes(report);
        }
        if let Some(file) = &mut file {
            file.topologies.clone_from(&self.config.topologies);
        }
        self.finish_partitions(report);
        if let Some(file) = &file {
            topology::check(&self.config, file, &self.partitions, report);
        } else if topologies.is_some() && !report.has_errors() {
            topology::check_without(&self.config, &self.partitions, report);
        }
        if let Some(read_file) = topologies {
            self.config.hres = hres::read(&self.config, read_file, report);
        }
        // select/linear gives whole nodes whatever the parameters' order in the file.
        if self.config.select_type == "select/linear" {
            self.config.select.unit = values::SelectUnit::Node;
            if !self.seen.contains_key("SelectTypeParameters") {
                self.config.select.memory = false;
                self.config.select.text = "NONE".to_owned();
            }
        }
        self.config
    }

    /// `Topology=` of nodes goes before the files of topologies (slurm.conf(5)).
    fn place_nodes(&mut self, report: &mut ConfigReport) {
        let written =
            |node: &NodeConfig| Some((node.name.clone(), Arc::clone(&node.settings), node.settings.topology.clone()?));
        for (name, settings, place) in self.config.nodes.iter().filter_map(written).collect::<Vec<_>>() {
            if let Err(wrong) = self.config.put_into_topologies(&name, &place) {
                report.error(&settings.place, format!("NodeName={name}"), wrong);
            }
        }
    }

    fn finish_sets(&self, report: &mut ConfigReport) {
        for set in &self.config.node_sets {
            let what = format!("NodeSet={}", set.name);
            if self.config.node(&set.name).is_some() {
                report.error(&set.place, what.as_str(), SettingError::new("a node has this name too"));
            }
            let unknown: HostList = set.nodes.iter().filter(|n| self.config.node(n).is_none()).collect();
            if !unknown.is_empty() {
                report.error(&set.place, what, SettingError::new(format!("no node is called {unknown}")));
            }
        }
    }

    fn finish_partitions(&mut self, report: &mut ConfigReport) {
        let mut partitions = std::mem::take(&mut self.config.partitions);
        let mut default: Option<&str> = None;
        // Partitions often share their nodes, and with thousands of nodes it pays to look them up once.
        let mut resolved: HashMap<String, (HostList, Vec<String>)> = HashMap::new();
        for (partition, (place, nodes_place)) in partitions.iter_mut().zip(&self.partitions) {
            let what = format!("PartitionName={}", partition.name);
            if let Some((nodes, sets)) = resolved.get(&partition.nodes_text) {
                (partition.nodes, partition.node_sets) = (nodes.clone(), sets.clone());
            } else if let Err(wrong) = self.config.resolve_nodes(partition) {
                report.error(nodes_place, format!("Nodes={}", partition.nodes_text), wrong);
            } else {
                let answer = (partition.nodes.clone(), partition.node_sets.clone());
                resolved.insert(partition.nodes_text.clone(), answer);
            }
            if partition.max_nodes.is_some_and(|max| max < partition.min_nodes) {
                let cause =
                    format!("MaxNodes={} is below MinNodes={}", partition.max_nodes.unwrap_or(0), partition.min_nodes);
                report.error(place, what.as_str(), SettingError::new(cause));
            }
            if let (Some(default), max) = (partition.default_time, partition.max_time)
                && default.min(max) != default
            {
                let cause = format!("DefaultTime={} is above MaxTime={}", default.scontrol_text(), max.scontrol_text());
                report.warning(place, what.as_str(), SettingError::new(cause).suggest("MaxTime counts"));
            }
            let suspends =
                partition.preempt_mode.as_deref().is_some_and(|mode| mode.split(',').any(|m| m == "SUSPEND"));
            if suspends && !self.config.preempt.is_gang() {
                let cause =
                    "PreemptMode=SUSPEND needs GANG in the cluster's PreemptMode, which resumes what was suspended";
                let instead = "for example PreemptMode=SUSPEND,GANG on a line of its own";
                report.error(place, what.as_str(), SettingError::new(cause).suggest(instead));
            }
            if partition.preempt_mode.is_none() {
                partition.preempt_mode = self.config.preempt.partition_default().map(str::to_owned);
            }
            match default {
                Some(other) if partition.default => {
                    let cause = format!("{other} is the default partition already; this one counts");
                    report.warning(place, what.as_str(), SettingError::new(cause).suggest("keep one Default=YES"));
                }
                _ => {}
            }
            if partition.default {
                default = Some(&partition.name);
            }
        }
        let last_default = partitions.iter().rposition(|p| p.default);
        for (at, partition) in partitions.iter_mut().enumerate() {
            partition.default = Some(at) == last_default;
        }
        self.config.partitions = partitions;
        for (partition, (place, _)) in self.config.partitions.iter().zip(&self.partitions) {
            if let Err(wrong) = self.config.check_alternate(partition) {
                report.error(place, format!("PartitionName={}", partition.name), wrong);
            }
            for doubt in self.config.doubts_about(partition) {
                report.warning(place, format!("PartitionName={}", partition.name), doubt);
            }
        }
    }
}
