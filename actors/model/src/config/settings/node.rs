//! Nodes as configured: what `NodeName` and `DownNodes` lines come to.

use super::{
    config::host_and_port,
    kinds::{Kind, Number, OneOf, Own, number, some},
    power::Span,
    row::{self, Row, Show, key, settings_with_rows, with_defaults},
};
use crate::{
    config::syntax::{
        report::{ConfigReport, Place, SettingError},
        text::Pair,
        values::{self, Value},
    },
    gres::GresEntry,
    hostlist::{HostList, HostListError},
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
    /// `SuspendTime`; `None`: that of its partitions, or the cluster's.
    pub suspend_time: Option<Span>,
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
    /// `FAIL`, `FAILING`: gets nothing new either.
    Fail,
    /// `FUTURE`: not shown and not contacted.
    Future,
    /// `CLOUD`
    Cloud,
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

settings_with_rows! {
    /// Values on one line, over those of `DEFAULT` lines.
    #[derive(Clone)]
    pub struct Written {
        cpus: Option<u32>,
        boards: Option<u32>,
        sockets: Option<u32>,
        sockets_per_board: Option<u32>,
        cores: Option<u32>,
        threads: Option<u32>,
        memory: Option<MemoryMib>,
        tmp_disk: u64,
        features: Vec<String>,
        weight: u32,
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
        suspend_time: Option<Span>,
        reason: Option<String>,
        hostnames: Option<HostList>,
        addresses: Option<HostList>,
        ports: Option<Vec<u16>>,
    }
}

const COUNT: Number<u32> = number(1, 65_535);
const MIB: Number<u64> = number(0, u64::MAX / 2);

type Key = Row<Written>;

/// Keys on a `NodeName` line.
#[rustfmt::skip]
pub(in crate::config) static NODE: &[Key] = &[
    Key::honoured("NodeName", "", |_, _| Ok(None), "its name; `DEFAULT` sets defaults for the lines below it"),
    Key::not_yet("BcastAddr", ""),
    Key::honoured("Boards", "", |n, text| some(&mut n.boards, &COUNT, text), "boards; 1 unless set"),
    Key::honoured("CoreSpecCount", "", |n, text| some(&mut n.reserved_cores, &number(0, 65_535), text),
        "number of cores that are kept for the system"),
    Key::honoured("CoresPerSocket", "", |n, text| some(&mut n.cores, &COUNT, text), "cores of a socket; 1 unless set"),
    Key::not_yet("CpuBind", ""),
    Key::honoured("CPUs", "", |n, text| some(&mut n.cpus, &COUNT, text), "CPUs; unless set, all threads"),
    Key::honoured("Procs", "", |n, text| some(&mut n.cpus, &COUNT, text), "an older name of `CPUs`"),
    Key::honoured("CpuSpecList", "", cpu_spec_list, "CPUs whose cores are kept for the system"),
    key!("Feature", "", features: LIST, "an older name of `Features`"),
    key!("Features", "", features: LIST, "features that jobs may request with `--constraint`"),
    Key::honoured("Gres", "", gres, "generic resources: `NAME:TYPE:COUNT`"),
    Key::honoured("MemSpecLimit", "", |n, text| mib(&mut n.memory_reserved, text),
        "memory that is kept for the system, MiB"),
    Key::honoured("NodeAddr", "", |n, text| hosts(&mut n.addresses, text),
        "name or address to connect to; unless set, the host name"),
    Key::honoured("NodeHostname", "", |n, text| hosts(&mut n.hostnames, text),
        "the machine's own name; unless set, the node's name"),
    Key::not_yet("Parameters", ""),
    Key::honoured("Port", "", |n, text| some(&mut n.ports, &Own(ports, |_| String::new()), text),
        "the port of its daemon; unless set, `SlurmdPort`"),
    Key::honoured("RealMemory", "", |n, text| mib(&mut n.memory, text), "memory, MiB; 1 unless set"),
    Key::honoured("Reason", "", |n, text| some(&mut n.reason, &ANY, text), "the reason for its `State`"),
    key!("RestrictedCoresPerGPU", "0", restricted_cores: number(0, 65_535),
        "cores for each GPU that only jobs with GPUs get"),
    Key::honoured("Sockets", "", |n, text| some(&mut n.sockets, &COUNT, text),
        "sockets; unless set, as many as `CPUs` needs"),
    Key::honoured("SocketsPerBoard", "", |n, text| some(&mut n.sockets_per_board, &COUNT, text),
        "sockets of a board, in place of `Sockets`"),
    key!("State", "UNKNOWN", state: STATE, "the state that it starts in"),
    Key::honoured("SuspendTime", "", |n, text| some(&mut n.suspend_time, &Own(Span::parse_long, Span::to_string), text),
        "after how long it is powered down when idle; unless set, its partitions' or the cluster's"),
    Key::honoured("ThreadsPerCore", "", |n, text| some(&mut n.threads, &COUNT, text), "threads of a core; 1 unless set"),
    key!("TmpDisk", "0", tmp_disk: MIB, "space for temporary files, MiB"),
    Key::honoured("Topology", "", |n, text| some(&mut n.topology, &ANY, text), "its place in a topology: `TOPOLOGY:UNIT`"),
    Key::not_yet("TRESWeights", ""),
    key!("Weight", "1", weight: number(0, u32::MAX - 2), "nodes of lower weight are used first"),
];

const LIST: Own<Vec<String>> = Own(|text| Ok(values::list(text)), |list| list.join(","));
/// Kept as it is.
const ANY: Own<String> = Own(|text| Ok(text.to_owned()), String::clone);
const STATE: OneOf<ConfiguredState> = OneOf(&[
    ("UNKNOWN", ConfiguredState::Unknown),
    ("IDLE", ConfiguredState::Unknown),
    ("DOWN", ConfiguredState::Down),
    ("DRAIN", ConfiguredState::Drain),
    ("FAIL", ConfiguredState::Fail),
    ("FAILING", ConfiguredState::Fail),
    ("FUTURE", ConfiguredState::Future),
    ("CLOUD", ConfiguredState::Cloud),
]);

impl Default for Written {
    fn default() -> Self {
        with_defaults(NODE, Self::blank())
    }
}

fn mib(field: &mut Option<MemoryMib>, text: &str) -> Value<Option<SettingError>> {
    *field = Some(MemoryMib(MIB.read(text)?));
    Ok(None)
}

fn hosts(field: &mut Option<HostList>, text: &str) -> Value<Option<SettingError>> {
    *field = Some(text.parse().map_err(|e: HostListError| SettingError::new(e.to_string()))?);
    Ok(None)
}

fn cpu_spec_list(node: &mut Written, text: &str) -> Value<Option<SettingError>> {
    let list = text.parse().map_err(|e: ResourceTextError| SettingError::new(e.to_string()))?;
    node.reserved_list = Some(list);
    Ok(None)
}

fn gres(node: &mut Written, text: &str) -> Value<Option<SettingError>> {
    node.gres = values::optional(text);
    let entries = node.gres.as_deref().map(gres_text::entries).transpose();
    node.gres_entries = entries.map_err(|e| SettingError::new(e.to_string()))?.unwrap_or_default();
    Ok(None)
}

impl Written {
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
            tmp_disk_mib: self.tmp_disk,
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
            let row = row::find(NODE, &pair.key).ok_or_else(|| row::unknown(NODE, &[], &pair.key));
            match row.and_then(|row| row.set(&mut written, &pair.value)) {
                Ok(None) => {}
                Ok(Some(note)) => report.warning(&pair.place, pair.what(), note),
                Err(wrong) => {
                    report.error(&pair.place, pair.what(), wrong);
                    usable = false;
                }
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
        let names = match named(head) {
            Ok(names) => names,
            Err(wrong) => return report.error(place, head.what(), wrong),
        };
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
        written.check_pairs(names.len(), head, report);
        let settings = Arc::new(NodeSettings {
            shape,
            features: written.features.clone(),
            weight: written.weight,
            memory_reserved: written.memory_reserved.unwrap_or_default(),
            restricted_cores: written.restricted_cores,
            gres: written.gres.clone(),
            topology: written.topology.clone(),
            suspend_time: written.suspend_time,
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
                "state" => match STATE.read(&pair.value) {
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

/// The names of a `NodeName` line.
fn named(head: &Pair) -> Result<HostList, SettingError> {
    let names: HostList = head.value.parse().map_err(|e: HostListError| SettingError::new(e.to_string()))?;
    if names.is_empty() {
        return Err(SettingError::new("no node is named"));
    }
    if names.iter().any(|n| n.eq_ignore_ascii_case("default") || n.eq_ignore_ascii_case("all")) {
        return Err(SettingError::new("ALL and DEFAULT are no names for nodes"));
    }
    Ok(names)
}

impl Written {
    /// Lists of one value a node have one for each of the `count` nodes, or one for all.
    fn check_pairs(&self, count: u64, head: &Pair, report: &mut ConfigReport) {
        let lists = [
            ("NodeHostname", self.hostnames.as_ref().map(HostList::len)),
            ("NodeAddr", self.addresses.as_ref().map(HostList::len)),
            ("Port", self.ports.as_ref().map(|list| list.len() as u64)),
        ];
        for (what, given) in lists {
            if let Some(given) = given.filter(|given| *given != count && *given != 1) {
                let cause = format!("{what} names {given} for {count} nodes");
                report.error(&head.place, head.what(), SettingError::new(cause).suggest("give one for each node"));
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
