//! Nodes as configured: what `NodeName` and `DownNodes` lines come to.

use super::{config::host_and_port, keys, row::Class};
use crate::{
    config::syntax::{
        report::{ConfigReport, Place, SettingError, dropped, not_yet},
        text::Pair,
        values::{self, Value},
    },
    gres::GresEntry,
    hostlist::HostList,
    ids::NodeIndex,
    node_shape::NodeShape,
    resources::{CpuSet, MemoryMib, ResourceTextError},
    spec_text::gres as gres_text,
};
use std::{collections::HashMap, sync::Arc};

/// One node. What all nodes of a line share is kept once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Place in configuration order.
    pub index: NodeIndex,
    /// `NodeName`.
    pub name: String,
    /// `NodeHostname`: the machine's own name. Default: the node's name.
    pub hostname: String,
    /// `NodeAddr`: name or address to connect to. Default: the host name.
    pub address: String,
    /// `Port`; default: `SlurmdPort`.
    pub port: u16,
    /// What its line says.
    pub settings: Arc<NodeSettings>,
    /// `State` and `Reason` of its line or of a `DownNodes` line.
    pub initial: Arc<InitialState>,
    /// It is not of the file: it came at run time.
    pub dynamic: bool,
}

impl NodeConfig {
    /// `address:port` of its daemon.
    pub fn target(&self) -> String {
        host_and_port(&self.address, self.port)
    }
}

/// What a `NodeName` line says of all its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// CPUs, sockets, cores, threads, RealMemory (MiB, default 1) and TmpDisk (MiB, default 0).
    pub shape: NodeShape,
    /// `Features`.
    pub features: Vec<String>,
    /// `Weight`, default 1: lighter nodes are used first.
    pub weight: u32,
    /// `MemSpecLimit`, MiB kept back for the system; default 0.
    pub memory_reserved: MemoryMib,
    /// `RestrictedCoresPerGPU`; default 0.
    pub restricted_cores: u32,
    /// `Gres`, as written.
    pub gres: Option<String>,
    /// `Topology`, as written.
    pub topology: Option<String>,
    /// Where the line is.
    pub place: Place,
}

/// State in which a node starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialState {
    /// State.
    pub state: ConfiguredState,
    /// Why.
    pub reason: Option<String>,
}

/// `State=` of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConfiguredState {
    /// `UNKNOWN`: in service once it registers.
    #[default]
    Unknown,
    /// `DOWN`
    Down,
    /// `DRAIN`
    Drain,
    /// `FAIL`, `FAILING`: as `DRAIN`.
    Fail,
    /// `FUTURE`: not shown and not contacted.
    Future,
    /// `CLOUD`
    Cloud,
}

impl ConfiguredState {
    fn parse(text: &str) -> Value<Self> {
        let words = ["UNKNOWN", "IDLE", "DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE", "CLOUD"];
        Ok(match values::choice(text, &words)? {
            "DOWN" => Self::Down,
            "DRAIN" => Self::Drain,
            "FAIL" | "FAILING" => Self::Fail,
            "FUTURE" => Self::Future,
            "CLOUD" => Self::Cloud,
            _ => Self::Unknown,
        })
    }
}

/// What `NodeName` lines have said so far.
#[derive(Default)]
pub(in crate::config) struct NodeReader {
    defaults: Written,
    pub nodes: Vec<NodeConfig>,
    pub by_name: HashMap<String, NodeIndex>,
    /// Nodes whose port is SlurmdPort, which may be set further down.
    portless: Vec<usize>,
}

/// Values on one line, over those of `DEFAULT` lines.
#[derive(Clone, Default)]
struct Written {
    cpus: Option<u32>,
    boards: Option<u32>,
    sockets: Option<u32>,
    sockets_per_board: Option<u32>,
    cores: Option<u32>,
    threads: Option<u32>,
    memory: Option<MemoryMib>,
    tmp_disk: Option<u64>,
    features: Vec<String>,
    weight: Option<u32>,
    memory_reserved: Option<MemoryMib>,
    reserved_cores: Option<u32>,
    /// `SchedulerParameters=spec_cores_first`.
    spec_cores_first: bool,
    reserved_list: Option<CpuSet>,
    restricted_cores: u32,
    gres: Option<String>,
    gres_entries: Vec<GresEntry>,
    topology: Option<String>,
    state: ConfiguredState,
    reason: Option<String>,
    hostnames: Option<HostList>,
    addresses: Option<HostList>,
    ports: Option<Vec<u16>>,
}

impl Written {
    fn set(&mut self, key: &str, value: &str) -> Value<()> {
        let count = |text: &str| values::number(text, 1, 65_535).map(Some);
        let mib = |text: &str| values::number(text, 0, u64::MAX / 2);
        let hosts = |text: &str| text.parse::<HostList>().map(Some).map_err(|e| SettingError::new(e.to_string()));
        match key.to_ascii_lowercase().as_str() {
            "cpus" | "procs" => self.cpus = count(value)?,
            "boards" => self.boards = count(value)?,
            "sockets" => self.sockets = count(value)?,
            "socketsperboard" => self.sockets_per_board = count(value)?,
            "corespersocket" => self.cores = count(value)?,
            "threadspercore" => self.threads = count(value)?,
            "realmemory" => self.memory = Some(MemoryMib(mib(value)?)),
            "tmpdisk" => self.tmp_disk = Some(mib(value)?),
            "memspeclimit" => self.memory_reserved = Some(MemoryMib(mib(value)?)),
            "feature" | "features" => self.features = values::list(value),
            "corespeccount" => self.reserved_cores = Some(values::number(value, 0, 65_535)?),
            "restrictedcorespergpu" => self.restricted_cores = values::number(value, 0, 65_535)?,
            "cpuspeclist" => {
                self.reserved_list =
                    Some(value.parse().map_err(|e: ResourceTextError| SettingError::new(e.to_string()))?);
            }
            "weight" => self.weight = Some(values::number(value, 0, u32::MAX - 2)?),
            "gres" => {
                self.gres = values::optional(value);
                let entries = self.gres.as_deref().map(gres_text::entries).transpose();
                self.gres_entries = entries.map_err(|e| SettingError::new(e.to_string()))?.unwrap_or_default();
            }
            "state" => self.state = ConfiguredState::parse(value)?,
            "topology" => self.topology = Some(value.to_owned()),
            "reason" => self.reason = Some(value.to_owned()),
            "nodehostname" => self.hostnames = hosts(value)?,
            "nodeaddr" => self.addresses = hosts(value)?,
            "port" => self.ports = Some(ports(value)?),
            _ => {}
        }
        Ok(())
    }

    /// Slurm's defaults and its rules about counts that contradict each other. The second part is a warning.
    fn shape(&self) -> Value<(NodeShape, Option<SettingError>)> {
        let boards = self.boards.unwrap_or(1);
        if self.sockets.is_some() && self.sockets_per_board.is_some() {
            let wrong = SettingError::new("Sockets and SocketsPerBoard exclude each other");
            return Err(wrong.suggest("keep SocketsPerBoard with Boards, Sockets otherwise"));
        }
        let (cores, threads) = (self.cores.unwrap_or(1), self.threads.unwrap_or(1));
        let inferred = || (self.cpus.unwrap_or(1) / boards.saturating_mul(cores).saturating_mul(threads)).max(1);
        let sockets = self.sockets.or(self.sockets_per_board).unwrap_or_else(inferred).saturating_mul(boards);
        let (all_cores, all_threads) =
            (sockets.saturating_mul(cores), sockets.saturating_mul(cores).saturating_mul(threads));
        let mut note = None;
        let cpus = match self.cpus {
            None => all_threads,
            Some(cpus) if cpus == all_cores || cpus == all_threads => cpus,
            Some(cpus) if cpus == sockets => {
                return Err(SettingError::new(format!(
                    "CPUs={cpus} is neither the number of cores ({all_cores}) nor of threads ({all_threads})"
                ))
                .suggest(format!("CPUs={all_threads}, or leave CPUs out")));
            }
            Some(cpus) => {
                let cause =
                    format!("CPUs={cpus} is neither the number of cores ({all_cores}) nor of threads ({all_threads})");
                note = Some(SettingError::new(cause).suggest(format!("{all_threads} is used")));
                all_threads
            }
        };
        if cpus > 65_535 {
            return Err(SettingError::new(format!("{cpus} CPUs are more than a node can have (65535)")));
        }
        let shape = NodeShape {
            cpus,
            boards,
            sockets,
            cores_per_socket: cores,
            threads_per_core: threads,
            memory: self.memory.unwrap_or(MemoryMib(1)),
            tmp_disk_mib: self.tmp_disk.unwrap_or(0),
            gres: self.gres_entries.clone(),
            reserved_cpus: CpuSet::new(),
            gpu_cpus: Vec::new(),
            reserved_memory: self.memory_reserved.unwrap_or_default(),
        };
        let reserved_cpus = self.reserved_cpus(&shape)?;
        let shape = NodeShape { reserved_cpus, ..shape };
        if shape.job_cpu_count() == 0 || (self.memory.is_some() && shape.memory.0 > 0 && shape.job_memory() == 0) {
            return Err(SettingError::new("nothing of the node is left for jobs"));
        }
        Ok((shape, note))
    }
}

impl Written {
    /// slurm.conf(5): cores of `CoreSpecCount` are the last ones of the last sockets, going round the sockets, or with
    /// `spec_cores_first` the first ones of the first; CPUs of `CpuSpecList` bring the others of their cores.
    fn reserved_cpus(&self, shape: &NodeShape) -> Value<CpuSet> {
        let mut reserved = CpuSet::new();
        let cores = match (&self.reserved_cores, &self.reserved_list) {
            (Some(_), Some(_)) => return Err(SettingError::new("CoreSpecCount and CpuSpecList exclude each other")),
            (Some(count), None) if self.spec_cores_first => {
                shape.cores_to_set_aside().rev().take(*count as usize).collect()
            }
            (Some(count), None) => shape.cores_to_set_aside().take(*count as usize).collect(),
            (None, Some(list)) => list.iter().map(|cpu| shape.core_of_cpu(cpu)).collect(),
            (None, None) => Vec::new(),
        };
        for core in cores {
            shape.cpus_of_core(core).for_each(|cpu| _ = reserved.insert(cpu));
        }
        Ok(reserved)
    }
}

/// `6818`, `[7001-7004]`, `7001-7004`, `7001,7003`.
fn ports(text: &str) -> Value<Vec<u16>> {
    let inside = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let mut ports = Vec::new();
    for part in inside.split(',') {
        let range = values::PortRange::parse(part)?;
        ports.extend(range.first..=range.last);
    }
    Ok(ports)
}

impl NodeReader {
    /// Which cores `CoreSpecCount` takes.
    pub const fn set_spec_cores_first(&mut self, first: bool) {
        self.defaults.spec_cores_first = first;
    }

    /// A line that begins with `NodeName`.
    pub fn line(&mut self, pairs: &[Pair], report: &mut ConfigReport) {
        let Some((head, rest)) = pairs.split_first() else { return };
        let is_default = head.value.eq_ignore_ascii_case("DEFAULT");
        let mut written = self.defaults.clone();
        let mut usable = true;
        for pair in rest {
            if known_key(keys::NODE, pair, report) {
                if let Err(wrong) = written.set(&pair.key, &pair.value) {
                    report.error(&pair.place, pair.what(), wrong);
                    usable = false;
                }
            } else {
                usable = false;
            }
        }
        // A line that replaces the default's way to count sockets must not clash with it.
        let named = |key: &str| rest.iter().any(|pair| pair.is(key));
        match (named("Sockets"), named("SocketsPerBoard")) {
            (true, false) => written.sockets_per_board = None,
            (false, true) => written.sockets = None,
            _ => {}
        }
        if is_default {
            self.defaults = written;
        } else if usable {
            self.add(head, &written, report);
        } else {
            self.remember_names(head, report);
        }
    }

    /// The names of a line that cannot be used, so that partitions that list them raise no further errors.
    fn remember_names(&mut self, head: &Pair, report: &mut ConfigReport) {
        self.add(head, &Written::default(), report);
    }

    fn add(&mut self, head: &Pair, written: &Written, report: &mut ConfigReport) {
        let place = &head.place;
        let names: HostList = match head.value.parse() {
            Ok(names) => names,
            Err(e) => return report.error(place, head.what(), SettingError::new(e.to_string())),
        };
        if names.is_empty() {
            return report.error(place, head.what(), SettingError::new("no node is named"));
        }
        let count = names.len();
        if names.contains("ALL")
            || names.iter().any(|n| n.eq_ignore_ascii_case("default") || n.eq_ignore_ascii_case("all"))
        {
            return report.error(place, head.what(), SettingError::new("ALL and DEFAULT are no names for nodes"));
        }
        let shape = match written.shape() {
            Ok((shape, None)) => shape,
            Ok((shape, Some(note))) => {
                report.warning(place, head.what(), note);
                shape
            }
            // The names still count, so that partitions with these nodes raise no further errors.
            Err(wrong) => {
                report.error(place, head.what(), wrong);
                NodeShape::default()
            }
        };
        let mut paired = |what: &str, given: u64| {
            if given != count && given != 1 {
                let cause = format!("{what} names {given} for {count} nodes");
                report.error(place, head.what(), SettingError::new(cause).suggest("give one for each node"));
            }
        };
        if let Some(list) = &written.hostnames {
            paired("NodeHostname", list.len());
        }
        if let Some(list) = &written.addresses {
            paired("NodeAddr", list.len());
        }
        if let Some(list) = &written.ports {
            paired("Port", list.len() as u64);
        }
        let settings = Arc::new(NodeSettings {
            shape,
            features: written.features.clone(),
            weight: written.weight.unwrap_or(1),
            memory_reserved: written.memory_reserved.unwrap_or_default(),
            restricted_cores: written.restricted_cores,
            gres: written.gres.clone(),
            topology: written.topology.clone(),
            place: place.clone(),
        });
        let initial = Arc::new(InitialState { state: written.state, reason: written.reason.clone() });
        let mut hostnames = written.hostnames.as_ref().map(|list| OneOrEach::new(list.iter().collect()));
        let mut addresses = written.addresses.as_ref().map(|list| OneOrEach::new(list.iter().collect()));
        let mut ports = written.ports.clone().map(OneOrEach::new);
        for name in names.iter() {
            let hostname = hostnames.as_mut().and_then(OneOrEach::next).unwrap_or_else(|| name.clone());
            let address = addresses.as_mut().and_then(OneOrEach::next).unwrap_or_else(|| hostname.clone());
            let port = ports.as_mut().and_then(OneOrEach::next);
            let at = self.nodes.len();
            let index = NodeIndex(u32::try_from(at).unwrap_or(u32::MAX));
            if let Some(before) = self.by_name.get(&name).and_then(|i| self.nodes.get(i.0 as usize)) {
                let cause = format!("node {name} is already configured at {}", before.settings.place);
                report.error(place, head.what(), SettingError::new(cause));
                continue;
            }
            if port.is_none() {
                self.portless.push(at);
            }
            self.by_name.insert(name.clone(), index);
            let (settings, initial, port) = (settings.clone(), initial.clone(), port.unwrap_or(0));
            self.nodes.push(NodeConfig { index, name, hostname, address, port, settings, initial, dynamic: false });
        }
    }

    /// A `DownNodes` line.
    pub fn down_line(&mut self, pairs: &[Pair], report: &mut ConfigReport) {
        let Some((head, rest)) = pairs.split_first() else { return };
        let mut down = InitialState { state: ConfiguredState::Down, reason: None };
        for pair in rest {
            match pair.key.to_ascii_lowercase().as_str() {
                "state" => match ConfiguredState::parse(&pair.value) {
                    Ok(state) => down.state = state,
                    Err(wrong) => report.error(&pair.place, pair.what(), wrong),
                },
                "reason" => down.reason = Some(pair.value.clone()),
                _ => {
                    let wrong = SettingError::new("unknown on a DownNodes line").suggest("State and Reason are known");
                    report.error(&pair.place, pair.what(), wrong);
                }
            }
        }
        let names: HostList = match head.value.parse() {
            Ok(names) => names,
            Err(e) => return report.error(&head.place, head.what(), SettingError::new(e.to_string())),
        };
        let down = Arc::new(down);
        for name in names.iter() {
            let node = self.by_name.get(&name).and_then(|i| self.nodes.get_mut(i.0 as usize));
            match node {
                Some(node) => node.initial = down.clone(),
                None => {
                    let cause = format!("no node is called {name}");
                    report.error(
                        &head.place,
                        head.what(),
                        SettingError::new(cause).suggest("put NodeName lines above"),
                    );
                }
            }
        }
    }

    /// Fills in SlurmdPort and looks for two nodes at one address and port.
    pub fn finish(&mut self, slurmd_port: u16, report: &mut ConfigReport) {
        for &at in &self.portless {
            if let Some(node) = self.nodes.get_mut(at) {
                node.port = slurmd_port;
            }
        }
        let mut taken: HashMap<(&str, u16), &NodeConfig> = HashMap::with_capacity(self.nodes.len());
        for node in self.nodes.iter().filter(|n| n.initial.state != ConfiguredState::Future) {
            if let Some(other) = taken.insert((&node.address, node.port), node) {
                let cause =
                    format!("has the same address and port ({}:{}) as node {}", node.address, node.port, other.name);
                let wrong = SettingError::new(cause).suggest("several nodes on one host need a Port each");
                report.warning(&node.settings.place, format!("NodeName={}", node.name), wrong);
            }
        }
    }
}

/// One value for all nodes of a line, or one for each.
struct OneOrEach<T>(Vec<T>, usize);

impl<T: Clone> OneOrEach<T> {
    const fn new(values: Vec<T>) -> Self {
        Self(values, 0)
    }
    fn next(&mut self) -> Option<T> {
        let value = if self.0.len() == 1 { self.0.first() } else { self.0.get(self.1) };
        self.1 += 1;
        value.cloned()
    }
}

/// Reports a key that its table does not have or that is not honoured; true when its value is to be read.
pub(in crate::config) fn known_key(table: &'static [keys::Key], pair: &Pair, report: &mut ConfigReport) -> bool {
    let Some(key) = keys::find(table, &pair.key) else {
        let wrong = SettingError::new(format!("unknown key {}", pair.key));
        let wrong = match keys::meant(table, &pair.key) {
            Some(name) => wrong.suggest(format!("did you mean {name}?")),
            None => wrong,
        };
        report.error(&pair.place, pair.what(), wrong);
        return false;
    };
    match key.class {
        Class::NotYet => report.warning(&pair.place, pair.what(), not_yet(key.name)),
        Class::Dropped => report.warning(&pair.place, pair.what(), dropped(key.name)),
        Class::Honoured | Class::OwnWay | Class::Fact => {}
    }
    true
}
