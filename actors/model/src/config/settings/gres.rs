//! `gres.conf` and what it says of each node's devices, `GresTypes`, and `ConstrainDevices` of `cgroup.conf`. Both files
//! stand beside `slurm.conf`, are read only where `GresTypes` names something, and may include others in the same way.
//! Syntax and keys are those of `gres.conf(5)` and `cgroup.conf(5)`.

use super::{
    node::{NodeConfig, NodeSettings},
    restricted::cpus_of_gpus,
};
use crate::{
    config::{
        Config,
        syntax::{
            report::{ConfigReport, Place, SettingError},
            text::{self, Pair, ReadFile},
            values::{self, Value},
        },
    },
    gres::{DevicePlace, GPU, GresEntry, MOST_DEVICES, SHARD, first_device},
    hostlist::{self, HostList},
    node_shape::NodeShape,
    resources::{CpuSet, ResourceTextError},
    spec_text::gres as gres_text,
};
use std::{
    collections::{BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// `Flags` that say which variables tell programs of their GPUs; without any, all of them do.
const ENVIRONMENTS: [&str; 4] = ["nvidia_gpu_env", "amd_gpu_env", "intel_gpu_env", "opencl_env"];

/// Which variables tell programs of their GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GpuVariables {
    /// `CUDA_VISIBLE_DEVICES`
    pub nvidia: bool,
    /// `ROCR_VISIBLE_DEVICES`
    pub amd: bool,
    /// `ZE_AFFINITY_MASK`
    pub intel: bool,
    /// `GPU_DEVICE_ORDINAL`
    pub opencl: bool,
}

impl Default for GpuVariables {
    fn default() -> Self {
        Self { nvidia: true, amd: true, intel: true, opencl: true }
    }
}

/// A line of `gres.conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GresLine {
    /// Where.
    pub place: Place,
    /// `NodeName`; `None`: every node that has such a GRES.
    pub nodes: Option<HostList>,
    /// `Name`
    pub name: String,
    /// `Type`
    pub kind: Option<String>,
    /// `Count`; `None`: as many as there are files, or as `Gres=` says.
    pub count: Option<u64>,
    /// `File`, expanded: one file for each device. With `MultipleFiles` one device has all of them.
    pub files: Vec<String>,
    /// The files are those of one device.
    pub one_device: bool,
    /// `Cores`: numbers of the cores near to each of them; empty: all are.
    pub cores: CpuSet,
    /// `Links`: connections to each device of the name, in their order.
    pub links: Vec<i32>,
    /// `Flags` about variables; `None`: not said.
    pub variables: Option<GpuVariables>,
}

/// A device of a node.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GresDevice {
    /// Name of its GRES.
    pub name: String,
    /// Its number among those of that name on the node.
    pub number: u32,
    /// Device files.
    pub files: Vec<PathBuf>,
}

/// What `gres.conf` and `cgroup.conf` say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GresConfig {
    /// `GresTypes`
    pub types: Vec<String>,
    /// Lines of `gres.conf` in order.
    pub lines: Vec<GresLine>,
    /// Nodes with `AutoDetect=nvidia`; `None`: all.
    pub nvidia: Vec<Option<HostList>>,
    /// `ConstrainDevices` of `cgroup.conf`: jobs reach the devices that they were given and no others.
    pub constrain_devices: bool,
}

/// Values on one line, over those of none.
#[derive(Default)]
struct Written {
    nodes: Option<HostList>,
    name: Option<String>,
    kind: Option<String>,
    count: Option<u64>,
    files: Option<Vec<String>>,
    multiple: Option<Vec<String>>,
    cores: CpuSet,
    links: Vec<i32>,
    variables: Option<GpuVariables>,
    nvidia: bool,
}

fn not_yet(pair: &Pair) -> SettingError {
    SettingError::new(format!("{} is not supported yet", pair.what()))
}

/// `/dev/nvidia[0-3],/dev/nvidia7`.
fn files(text: &str) -> Value<Vec<String>> {
    let files = hostlist::expand(text).map_err(|e| SettingError::new(e.to_string()))?;
    match files.iter().find(|file| !file.starts_with('/')) {
        Some(file) => {
            Err(SettingError::new(format!("\"{file}\" is not an absolute path")).suggest("begin it with a slash"))
        }
        None if files.is_empty() => Err(SettingError::new("no file is named")),
        None => Ok(files),
    }
}

fn variables(flags: &[String], pair: &Pair, report: &mut ConfigReport) -> Option<GpuVariables> {
    let mut said: Option<GpuVariables> = None;
    let none = GpuVariables { nvidia: false, amd: false, intel: false, opencl: false };
    for flag in flags {
        match flag.to_ascii_lowercase().as_str() {
            "no_gpu_env" => said = Some(none),
            "nvidia_gpu_env" => said.get_or_insert(none).nvidia = true,
            "amd_gpu_env" => said.get_or_insert(none).amd = true,
            "intel_gpu_env" => said.get_or_insert(none).intel = true,
            "opencl_env" => said.get_or_insert(none).opencl = true,
            // Both say what is done anyhow.
            "countonly" | "explicit" => {}
            _ => {
                let wrong = SettingError::new(format!("flag {flag} is not supported yet"));
                report.error(&pair.place, pair.what(), wrong.suggest(format!("known are {}", ENVIRONMENTS.join(", "))));
            }
        }
    }
    said
}

/// `AutoDetect`: are the GPUs those that NVIDIA's driver names?
fn auto_detect(pair: &Pair) -> Value<bool> {
    match pair.value.to_ascii_lowercase().as_str() {
        "off" => Ok(false),
        "nvidia" => Ok(true),
        _ => Err(not_yet(pair).suggest("nvidia, or off with Name and File of each device")),
    }
}

impl GresConfig {
    /// Reads both files, as far as they are there.
    pub(in crate::config) fn read(&mut self, slurm_conf: &Path, read_file: &ReadFile<'_>, report: &mut ConfigReport) {
        let folder = slurm_conf.parent().map(Path::to_owned).unwrap_or_default();
        let there = |path: &Path| !matches!(read_file(path), Err(e) if e.kind() == io::ErrorKind::NotFound);
        let path = folder.join("gres.conf");
        if there(&path) {
            for pairs in text::lines(&path, read_file, report) {
                self.line(&pairs, report);
            }
        }
        let path = folder.join("cgroup.conf");
        if there(&path) {
            for pair in text::lines(&path, read_file, report).iter().flatten() {
                if pair.is("ConstrainDevices") {
                    match values::yes_no(&pair.value) {
                        Ok(yes) => self.constrain_devices = yes,
                        Err(wrong) => report.error(&pair.place, pair.what(), wrong),
                    }
                }
            }
        }
    }

    fn line(&mut self, pairs: &[Pair], report: &mut ConfigReport) {
        let Some(head) = pairs.first() else { return };
        let mut written = Written::default();
        let mut usable = true;
        for pair in pairs {
            if let Err(wrong) = written.set(pair, report) {
                report.error(&pair.place, pair.what(), wrong);
                usable = false;
            }
        }
        if written.nvidia {
            self.nvidia.push(written.nodes.clone());
        }
        let Some(name) = written.name.filter(|_| usable) else {
            // AutoDetect may stand alone, with or without nodes.
            if usable && !pairs.iter().any(|pair| pair.is("AutoDetect")) {
                let wrong = SettingError::new("the line has no Name").suggest("Name=gpu");
                report.error(&head.place, head.what(), wrong);
            }
            return;
        };
        if !self.types.contains(&name) {
            let wrong = SettingError::new(format!("{name} is not in GresTypes of slurm.conf"));
            return report.error(&head.place, head.what(), wrong.suggest(format!("GresTypes={name}")));
        }
        if written.files.is_some() && written.multiple.is_some() {
            let wrong = SettingError::new("File and MultipleFiles exclude each other");
            return report.error(&head.place, head.what(), wrong);
        }
        let one_device = written.multiple.is_some();
        if !written.links.is_empty() && written.files.as_ref().is_some_and(|files| files.len() > 1) {
            let wrong = SettingError::new("a line with Links is about one device");
            return report.error(&head.place, head.what(), wrong.suggest("a line for each File"));
        }
        let files = written.files.or(written.multiple).unwrap_or_default();
        let devices = if one_device { 1 } else { files.len() as u64 };
        if let Some(count) = written.count.filter(|count| devices > 0 && *count != devices && name != SHARD) {
            let wrong = SettingError::new(format!("Count={count} and {devices} device files disagree"));
            return report.error(&head.place, head.what(), wrong.suggest("leave Count out"));
        }
        self.lines.push(GresLine {
            place: head.place.clone(),
            nodes: written.nodes,
            name,
            kind: written.kind,
            count: written.count,
            files,
            one_device,
            cores: written.cores,
            links: written.links,
            variables: written.variables,
        });
    }

    /// Lines that are about a GRES of a node.
    fn lines_of<'a>(&'a self, node: &'a str, name: &'a str) -> impl Iterator<Item = &'a GresLine> {
        let on = move |line: &&GresLine| line.nodes.as_ref().is_none_or(|nodes| nodes.contains(node));
        self.lines.iter().filter(move |line| line.name == name).filter(on)
    }

    /// The lines of one entry: those that name its type, and those that name none.
    fn lines_of_entry<'a>(&'a self, node: &'a str, entry: &'a GresEntry) -> impl Iterator<Item = &'a GresLine> {
        self.lines_of(node, &entry.name).filter(|line| line.kind.is_none() || line.kind == entry.kind)
    }

    /// For each device of an entry its line and its files, of which there are none where a line only counts.
    fn lines_of_devices<'a>(
        &'a self,
        node: &'a str,
        entries: &'a [GresEntry],
        place: usize,
    ) -> Vec<(&'a GresLine, Vec<&'a String>)> {
        let Some(entry) = entries.get(place).filter(|entry| entry.count <= MOST_DEVICES) else { return Vec::new() };
        // Lines without a type serve several entries of the name: each begins where the one before ended.
        let skip = match self.lines_of_entry(node, entry).any(|line| line.kind.is_none()) {
            true => first_device(entries, place),
            false => 0,
        };
        let each = self.lines_of_entry(node, entry).flat_map(|line| {
            let files: Vec<Vec<&String>> = match (line.files.is_empty(), line.one_device) {
                (true, _) => {
                    let count = line.count.unwrap_or(entry.count).min(MOST_DEVICES);
                    vec![Vec::new(); usize::try_from(count).unwrap_or(0)]
                }
                (false, true) => vec![line.files.iter().collect()],
                (false, false) => line.files.iter().map(|file| vec![file]).collect(),
            };
            files.into_iter().map(move |files| (line, files))
        });
        each.skip(usize::try_from(skip).unwrap_or(0)).take(usize::try_from(entry.count).unwrap_or(0)).collect()
    }

    /// Where each device of an entry is; nothing where `gres.conf` says it of none.
    fn places(&self, node: &str, shape: &NodeShape, place: usize) -> Vec<DevicePlace> {
        let of_line = |line: &GresLine| DevicePlace {
            cpus: line.cores.iter().flat_map(|core| shape.cpus_of_core(core)).collect(),
            links: line.links.clone(),
        };
        let lines = self.lines_of_devices(node, &shape.gres, place);
        let places: Vec<DevicePlace> = lines.into_iter().map(|(line, _)| of_line(line)).collect();
        if places.iter().all(|place| *place == DevicePlace::default()) { Vec::new() } else { places }
    }

    /// Are the files of a node's GPUs to be found on it, rather than in `gres.conf`?
    pub fn detects(&self, node: &str) -> bool {
        let named = self.lines_of(node, GPU).any(|line| !line.files.is_empty());
        !named && self.nvidia.iter().any(|nodes| nodes.as_ref().is_none_or(|nodes| nodes.contains(node)))
    }

    /// What `gres.conf` says that a node has of which nothing else is said, as `Gres=` would: on lines that name the node,
    /// and on lines for all nodes whose files are there.
    pub fn offered(&self, node: &str, is_there: &dyn Fn(&Path) -> bool) -> String {
        let mut entries: Vec<(String, u64)> = Vec::new();
        for line in self.lines.iter().filter(|line| self.types.contains(&line.name) && line.name != SHARD) {
            let concerned = match &line.nodes {
                Some(nodes) => nodes.contains(node),
                None => !line.files.is_empty() && line.files.iter().all(|file| is_there(Path::new(file))),
            };
            if !concerned {
                continue;
            }
            let count = match (line.files.len(), line.one_device) {
                (0, _) => line.count.unwrap_or(1),
                (_, true) => 1,
                (files, false) => files as u64,
            };
            let name = line.kind.iter().fold(line.name.clone(), |name, kind| format!("{name}:{kind}"));
            match entries.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum = sum.saturating_add(count),
                None => entries.push((name, count)),
            }
        }
        let words: Vec<String> = entries.into_iter().map(|(name, count)| format!("{name}:{count}")).collect();
        words.join(",")
    }

    /// The devices of a node, by name and number. `detected`: files of its GPUs, for `AutoDetect`.
    pub fn devices(&self, node: &NodeConfig, detected: &[PathBuf]) -> Vec<GresDevice> {
        let entries = &node.settings.shape.gres;
        let detects = self.detects(&node.name);
        let mut devices = Vec::new();
        for (place, entry) in entries.iter().enumerate() {
            // They are of GPUs, which have the files.
            if entry.name == SHARD {
                continue;
            }
            let first = first_device(entries, place);
            if detects && entry.name == GPU {
                let own =
                    detected.iter().zip(0u32..).filter(|(_, n)| (first..first + entry.count).contains(&u64::from(*n)));
                devices.extend(own.map(|(file, number)| GresDevice {
                    name: entry.name.clone(),
                    number,
                    files: vec![file.clone()],
                }));
                continue;
            }
            let of_entry = self.lines_of_devices(&node.name, entries, place).into_iter().zip(first..);
            let with_files = of_entry.filter(|((_, files), _)| !files.is_empty());
            devices.extend(with_files.map(|((_, files), number)| GresDevice {
                name: entry.name.clone(),
                number: u32::try_from(number).unwrap_or(u32::MAX),
                files: files.into_iter().map(PathBuf::from).collect(),
            }));
        }
        devices
    }

    /// Shards of each GPU of a node: as lines with files say, otherwise evenly shared out.
    fn shards(&self, node: &NodeConfig, entries: &[GresEntry]) -> Value<Vec<u64>> {
        let Some(entry) = entries.iter().find(|entry| entry.name == SHARD) else { return Ok(Vec::new()) };
        let gpus: u64 = entries.iter().filter(|entry| entry.name == GPU).map(|entry| entry.count).sum();
        if gpus == 0 || gpus > MOST_DEVICES || entry.kind.is_some() {
            let wrong = SettingError::new("shards are parts of the node's GPUs, whatever their type");
            return Err(wrong.suggest("Gres=gpu:4,shard:16"));
        }
        let even = |count: u64, of: u64, at: u64| count / of + u64::from(at < count % of);
        let with_files: Vec<&GresLine> = self.lines_of(&node.name, SHARD).filter(|l| !l.files.is_empty()).collect();
        if with_files.is_empty() {
            return Ok((0..gpus).map(|gpu| even(entry.count, gpus, gpu)).collect());
        }
        let devices = self.devices(node, &[]);
        let mut shards = vec![0; usize::try_from(gpus).unwrap_or(0)];
        for line in with_files {
            for (file, at) in line.files.iter().zip(0..) {
                let is_it = |d: &&GresDevice| d.name == GPU && d.files.iter().any(|own| own == Path::new(file));
                let gpu =
                    devices.iter().find(is_it).and_then(|d| shards.get_mut(d.number as usize)).ok_or_else(|| {
                        SettingError::new(format!(
                            "{file} in {} is the File of no GPU of node {}",
                            line.place, node.name
                        ))
                    })?;
                let files = line.files.len() as u64;
                *gpu += even(line.count.unwrap_or(files), files, at);
            }
        }
        let all: u64 = shards.iter().sum();
        if all != entry.count {
            let text = format!("gres.conf gives node {} {all} shards where Gres= says {}", node.name, entry.count);
            return Err(SettingError::new(text));
        }
        Ok(shards)
    }

    /// Variables that tell programs of a node's GPUs.
    pub fn variables(&self, node: &str) -> GpuVariables {
        self.lines_of(node, GPU).find_map(|line| line.variables).unwrap_or_default()
    }

    /// What a node has of its GRES, where `is_there` says of each device file whether it is. Without a line of
    /// `gres.conf`, and for what is only counted, that is what `Gres=` or `Count=` says.
    pub fn found(&self, node: &NodeConfig, detected: &[PathBuf], is_there: &dyn Fn(&Path) -> bool) -> Vec<GresEntry> {
        let entries = &node.settings.shape.gres;
        let devices = self.devices(node, detected);
        let detects = self.detects(&node.name);
        let counted = entries.iter().enumerate().map(|(place, entry)| {
            if entry.name == SHARD {
                return entry.clone();
            }
            let lines: Vec<&GresLine> = self.lines_of_entry(&node.name, entry).collect();
            let with_files = lines.iter().any(|line| !line.files.is_empty()) || (detects && entry.name == GPU);
            let count = if with_files {
                let first = first_device(entries, place);
                let own = devices
                    .iter()
                    .filter(|d| d.name == entry.name && (first..first + entry.count).contains(&u64::from(d.number)));
                own.filter(|device| device.files.iter().all(|file| is_there(file))).count() as u64
            } else if lines.is_empty() {
                entry.count
            } else {
                lines.iter().map(|line| line.count.unwrap_or(entry.count)).fold(0, u64::saturating_add).min(entry.count)
            };
            GresEntry { count, ..entry.clone() }
        });
        counted.collect()
    }
}

impl Written {
    fn set(&mut self, pair: &Pair, report: &mut ConfigReport) -> Value<()> {
        let value = pair.value.as_str();
        match pair.key.to_ascii_lowercase().as_str() {
            "nodename" => {
                self.nodes = Some(value.parse().map_err(|e: hostlist::HostListError| SettingError::new(e.to_string()))?)
            }
            "name" => self.name = values::optional(value),
            "type" => self.kind = values::optional(value),
            "count" => {
                let count = gres_text::count(value);
                self.count = Some(count.ok_or_else(|| SettingError::new(format!("\"{value}\" is not a count")))?);
            }
            "file" => self.files = Some(files(value)?),
            "multiplefiles" => self.multiple = Some(files(value)?),
            "flags" => self.variables = variables(&values::list(value), pair, report),
            "autodetect" => self.nvidia = auto_detect(pair)?,
            "cores" | "cpus" => {
                let cores = values::optional(value).unwrap_or_default().parse();
                self.cores = cores.map_err(|e: ResourceTextError| SettingError::new(e.to_string()))?;
            }
            "links" => {
                let links = values::list(value).iter().map(|n| n.parse::<i32>().ok().filter(|n| *n >= -1)).collect();
                let wrong = || SettingError::new(format!("\"{value}\" is not a list of numbers of connections"));
                self.links = Option::<Vec<i32>>::ok_or_else(links, || wrong().suggest("Links=-1,4,4,0"))?;
            }
            _ => return Err(SettingError::new(format!("unknown key {} of gres.conf", pair.key))),
        }
        Ok(())
    }
}

const RESTRICTED: &str = "RestrictedCoresPerGPU";

/// What only can be said when nodes and `gres.conf` are read: each name must be one of `GresTypes`, and `gres.conf` must
/// not name less than `Gres=` does. Marks the entries that are devices.
pub(in crate::config) fn finish(config: &mut Config, report: &mut ConfigReport) {
    let gres = &config.gres;
    let mut known: HashMap<(*const NodeSettings, Vec<GresEntry>), Arc<NodeSettings>> = HashMap::new();
    let mut said = Said { report, keys: BTreeSet::new() };
    for node in &mut config.nodes {
        if node.settings.shape.gres.is_empty() && node.settings.restricted_cores == 0 {
            continue;
        }
        let settings = Arc::clone(&node.settings);
        let entries = gres.entries_of(node, &mut said);
        let gpu_cpus = match settings.restricted_cores {
            0 => Vec::new(),
            cores => cpus_of_gpus(&node.name, &settings.shape, &entries, cores).unwrap_or_else(|wrong| {
                said.error(&settings, &format!("{RESTRICTED}={cores}"), RESTRICTED, wrong);
                Vec::new()
            }),
        };
        if entries != settings.shape.gres || gpu_cpus != settings.shape.gpu_cpus {
            let of_line = known.entry((Arc::as_ptr(&settings), entries.clone())).or_insert_with(|| {
                let mut settings = (*settings).clone();
                (settings.shape.gres, settings.shape.gpu_cpus) = (entries, gpu_cpus);
                Arc::new(settings)
            });
            node.settings = Arc::clone(of_line);
        }
    }
    for line in &gres.lines {
        let unknown: Option<HostList> =
            line.nodes.as_ref().map(|nodes| nodes.iter().filter(|n| !config.by_name.contains_key(n)).collect());
        // Where nodes come at run time, they may be those.
        if let Some(unknown) = unknown.filter(|nodes| !nodes.is_empty() && config.max_node_count.is_none()) {
            let wrong = SettingError::new(format!("no node is called {unknown}"));
            said.report.warning(&line.place, format!("Name={}", line.name), wrong);
        }
    }
}

/// Says what is wrong with a line of nodes once, not for each of its nodes.
struct Said<'r> {
    report: &'r mut ConfigReport,
    /// Line, and what was wrong.
    keys: BTreeSet<(u32, String)>,
}

impl Said<'_> {
    fn is_new(&mut self, settings: &NodeSettings, key: &str) -> bool {
        self.keys.insert((settings.place.line, key.to_owned()))
    }
    fn error(&mut self, settings: &NodeSettings, what: &str, key: &str, wrong: SettingError) {
        if self.is_new(settings, key) {
            self.report.error(&settings.place, what, wrong);
        }
    }
    fn warning(&mut self, settings: &NodeSettings, what: &str, key: &str, wrong: SettingError) {
        if self.is_new(settings, key) {
            self.report.warning(&settings.place, what, wrong);
        }
    }
}

impl GresConfig {
    /// The node's `Gres=`, with what `gres.conf` says about it.
    fn entries_of(&self, node: &NodeConfig, said: &mut Said<'_>) -> Vec<GresEntry> {
        let settings = &node.settings;
        let what = format!("Gres={}", settings.gres.as_deref().unwrap_or_default());
        let mut entries = settings.shape.gres.clone();
        let shards = self.shards(node, &entries);
        for (at, entry) in entries.iter_mut().enumerate() {
            if !self.types.contains(&entry.name) {
                let wrong = SettingError::new(format!("{} is not in GresTypes", entry.name));
                said.error(settings, &what, &entry.name, wrong.suggest(format!("GresTypes={}", entry.name)));
            }
            if entry.name == SHARD {
                match &shards {
                    Ok(shards) => entry.shards.clone_from(shards),
                    Err(wrong) => said.error(settings, &what, SHARD, wrong.clone()),
                }
                continue;
            }
            let asked = entry.clone();
            let lines: Vec<&GresLine> = self.lines_of_entry(&node.name, &asked).collect();
            let with_files = lines.iter().any(|line| !line.files.is_empty());
            entry.devices = (entry.name == GPU || with_files) && !entry.no_consume && entry.count <= MOST_DEVICES;
            entry.places = self.places(&node.name, &settings.shape, at);
            self.check_lines(node, entry, &lines, said);
        }
        entries
    }

    /// Whether the lines of `gres.conf` fit the node.
    fn check_lines(&self, node: &NodeConfig, entry: &GresEntry, lines: &[&GresLine], said: &mut Said<'_>) {
        let (settings, name) = (&node.settings, &entry.name);
        let what = format!("Gres={}", settings.gres.as_deref().unwrap_or_default());
        let cores = settings.shape.cores();
        if let Some(line) = lines.iter().find(|line| line.cores.last().is_some_and(|last| last >= cores)) {
            let text = format!("Cores={}, and node {} has {cores} cores, from 0", line.cores, node.name);
            said.error(settings, &what, &format!("{name} cores {}", line.place.line), SettingError::new(text));
        }
        let of = |line: &&GresLine| match (line.files.len(), line.one_device) {
            (0, _) => line.count.unwrap_or(entry.count),
            (_, true) => 1,
            (files, false) => files as u64,
        };
        let there: u64 = lines.iter().map(of).fold(0, u64::saturating_add);
        if !lines.is_empty() && there < entry.count {
            let text = format!("gres.conf gives node {} {there} of {name} where Gres= says {}", node.name, entry.count);
            let wrong = SettingError::new(text).suggest("nodes with fewer than configured are not used");
            said.warning(settings, &what, &format!("{name} count"), wrong);
        }
        let with_files = lines.iter().any(|line| !line.files.is_empty());
        if name == GPU && !with_files && !self.detects(&node.name) {
            let wrong = SettingError::new("gres.conf names no File for these GPUs");
            let wrong = wrong.suggest("without it jobs are told of their GPUs, and kept from no others");
            said.warning(settings, &what, "gpu file", wrong);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{config::read_files, gres::list};

    const HEAD: &str = "ClusterName=c\nSlurmctldHost=a\nPartitionName=p Nodes=ALL\n";

    fn read(slurm: &str, gres: &str, cgroup: &str) -> (Option<Config>, Vec<String>) {
        let slurm = format!("{HEAD}{slurm}");
        let files = [("/x/slurm.conf", slurm.as_str()), ("/x/gres.conf", gres), ("/x/cgroup.conf", cgroup)];
        let (config, report) = read_files(Path::new("/x/slurm.conf"), &files);
        (config, report.problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn devices_follow_the_entries_of_a_node() {
        let slurm =
            "GresTypes=gpu,bandwidth\nNodeName=n[1-2] Gres=gpu:a100:2,gpu:h100:1,bandwidth:lustre:no_consume:4G\n";
        let gres = "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia[0-1]\nName=gpu Type=h100 File=/dev/nvidia2\n\
                    NodeName=n2 Name=gpu Type=a100 File=/dev/b[0-1]\n";
        let (config, said) = read(slurm, gres, "ConstrainDevices=yes\n");
        assert_eq!(said, Vec::<String>::new());
        let config = config.unwrap();
        assert!(config.gres.constrain_devices);
        let n1 = config.node("n1").unwrap();
        assert_eq!(list(&n1.settings.shape.gres), "gpu:a100:2,gpu:h100:1,bandwidth:lustre:no_consume:4G");
        let devices = config.gres.devices(n1, &[]);
        let shown: Vec<String> = devices.iter().map(|d| format!("{}={}", d.number, d.files[0].display())).collect();
        assert_eq!(shown, ["0=/dev/nvidia0", "1=/dev/nvidia1", "2=/dev/nvidia2"]);
        let found = config.gres.found(n1, &[], &|path| !path.ends_with("nvidia1"));
        assert_eq!(list(&found), "gpu:a100:1,gpu:h100:1,bandwidth:lustre:no_consume:4G");
        assert_eq!(config.gres.devices(config.node("n2").unwrap(), &[]).len(), 3);
    }

    #[test]
    fn what_disagrees_is_said_with_its_place() {
        let (_, said) = read("NodeName=n1 Gres=gpu:2\n", "", "");
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].starts_with("/x/slurm.conf:4: error: Gres=gpu:2: gpu is not in GresTypes (GresTypes=gpu)"),
            "{said:?}"
        );
        let (config, said) = read("GresTypes=gpu\nNodeName=n1 Gres=gpu:4\n", "Name=gpu File=/dev/nvidia[0-1]\n", "");
        assert!(config.is_some());
        assert!(said[0].contains("slurm.conf:5: warning: Gres=gpu:4: gres.conf gives node n1 2 of gpu"), "{said:?}");
        for (line, cause) in [
            ("AutoDetect=nvml", "AutoDetect=nvml is not supported yet"),
            ("Name=nic File=/dev/x", "nic is not in GresTypes"),
            ("Name=gpu File=x", "not an absolute path"),
            ("Name=gpu Count=3 File=/dev/x[0-1]", "Count=3 and 2 device files disagree"),
            ("Name=gpu Colour=red", "unknown key Colour"),
            ("File=/dev/x", "the line has no Name"),
            ("Name=gpu Flags=one_sharing File=/dev/x", "flag one_sharing is not supported yet"),
        ] {
            let (config, said) = read("GresTypes=gpu\nNodeName=n1 Gres=gpu:1\n", line, "");
            assert!(
                config.is_none() && said.iter().any(|s| s.contains("/x/gres.conf:1: error") && s.contains(cause)),
                "{said:?}"
            );
        }
        let (_, said) = read("GresTypes=gpu\nNodeName=n1 Gres=gpu:1\n", "AutoDetect=off\nName=gpu File=/dev/x\n", "");
        assert_eq!(said, Vec::<String>::new());
    }

    #[test]
    fn gpus_may_be_those_that_the_driver_names() {
        let slurm = "GresTypes=gpu\nNodeName=n[1-2] Gres=gpu:h100:2\n";
        let gres = "AutoDetect=nvidia\nNodeName=n2 Name=gpu File=/dev/x[0-1]\n";
        let (config, said) = read(slurm, gres, "");
        assert_eq!(said, Vec::<String>::new());
        let config = config.unwrap();
        let detected = [PathBuf::from("/dev/nvidia1"), PathBuf::from("/dev/nvidia0")];
        let (n1, n2) = (config.node("n1").unwrap(), config.node("n2").unwrap());
        assert!(config.gres.detects("n1") && !config.gres.detects("n2"));
        let files = |node| config.gres.devices(node, &detected).into_iter().map(|d| d.files).collect::<Vec<_>>();
        assert_eq!(files(n1), [["/dev/nvidia1"], ["/dev/nvidia0"]].map(|f| f.map(PathBuf::from).to_vec()));
        assert_eq!(files(n2)[0], [PathBuf::from("/dev/x0")]);
        assert_eq!(list(&config.gres.found(n1, &detected[..1], &|_| true)), "gpu:h100:1");
    }

    #[test]
    fn devices_have_cores_and_links() {
        let slurm = "GresTypes=gpu\nNodeName=n1 Gres=gpu:h100:3 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 CPUs=8\n";
        let gres = "Name=gpu File=/dev/a Cores=0-1 Links=-1,4,0\nName=gpu File=/dev/b Cores=0,1 Links=4,-1,0\n\
                    Name=gpu File=/dev/c Cores=2-3\n";
        let (config, said) = read(slurm, gres, "");
        assert_eq!(said, Vec::<String>::new());
        let config = config.unwrap();
        let shape = &config.node("n1").unwrap().settings.shape;
        let places = &shape.gres[0].places;
        assert_eq!(places.iter().map(|p| p.cpus.to_string()).collect::<Vec<_>>(), ["0-3", "0-3", "4-7"]);
        assert_eq!(places[1].links, [4, -1, 0]);
        assert_eq!(crate::node_shape::entries_text(shape), "gpu:h100:3(S:0-1)");
        for (line, cause) in [
            ("Name=gpu File=/dev/a Cores=9", "Cores=9, and node n1 has 4 cores"),
            ("Name=gpu File=/dev/[a-b] Links=-1,1", "one device"),
            ("Name=gpu File=/dev/a Links=x", "not a list of numbers of connections"),
            ("Name=gpu File=/dev/a Cores=x", "not a list of CPUs"),
        ] {
            let (config, said) = read(slurm, &line.replace("[a-b]", "x[0-1]"), "");
            assert!(config.is_none() && said.iter().any(|s| s.contains(cause)), "{said:?}");
        }
    }

    #[test]
    fn shards_are_shared_out_among_gpus_or_are_of_those_that_are_named() {
        let of = |slurm: &str, gres: &str| {
            let (config, said) = read(&format!("GresTypes=gpu,shard\nNodeName=n1 {slurm}\n"), gres, "");
            config.map(|c| c.node("n1").unwrap().settings.shape.gres.last().unwrap().shards.clone()).ok_or(said)
        };
        let gpus = "Name=gpu File=/dev/nvidia[0-3]\n";
        assert_eq!(of("Gres=gpu:4,shard:18", gpus), Ok(vec![5, 5, 4, 4]));
        assert_eq!(of("Gres=gpu:4,shard:16", &format!("{gpus}Name=shard Count=16\n")), Ok(vec![4; 4]));
        let named = format!("{gpus}Name=shard Count=8 File=/dev/nvidia1\nName=shard Count=4 File=/dev/nvidia[2-3]\n");
        assert_eq!(of("Gres=gpu:4,shard:12", &named), Ok(vec![0, 8, 2, 2]));
        for (slurm, gres, cause) in [
            ("Gres=shard:4", gpus, "parts of the node's GPUs"),
            ("Gres=gpu:4,shard:h100:4", gpus, "whatever their type"),
            ("Gres=gpu:4,shard:9", named.as_str(), "12 shards where Gres= says 9"),
            ("Gres=gpu:4,shard:9", "Name=shard File=/dev/x\n", "/dev/x in /x/gres.conf:1 is the File of no GPU"),
        ] {
            let said = of(slurm, gres).unwrap_err();
            assert!(said.iter().any(|s| s.contains(cause)), "{cause}: {said:?}");
        }
    }

    #[test]
    fn one_device_may_have_several_files() {
        let gres = "Name=gpu MultipleFiles=/dev/a,/dev/b Flags=nvidia_gpu_env\nName=gpu File=/dev/c\n";
        let config = read("GresTypes=gpu\nNodeName=n1 Gres=gpu:2\n", gres, "").0.unwrap();
        let devices = config.gres.devices(config.node("n1").unwrap(), &[]);
        assert_eq!(devices.iter().map(|d| d.files.len()).collect::<Vec<_>>(), [2, 1]);
        assert!(config.gres.variables("n1").nvidia && !config.gres.variables("n1").amd);
    }
}
