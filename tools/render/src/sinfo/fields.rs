//! The fields of `sinfo`: a row each, with its letter (`-o`), names (`-O`) and heading, what a group of nodes shows in it, whether
//! nodes must agree in it to share a line, and by what lines are sorted.

use super::Group;
use crate::{amounts, clock::Clock, node_state, words};
use garrick_model::{
    config::{OverSubscribe, PartitionConfig},
    hostlist,
    ids::NodeIndex,
    node_shape::entries_text,
    state::{NodeBase, PartitionState},
    time::TimeLimit,
    view::{NodeReason, NodeView},
};
use std::{cmp::Ordering, fmt};

/// Whether nodes that differ in a field can share a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// A partition's property.
    Partition,
    /// Nodes must agree.
    Same,
    /// Shown as the least value and `+` (or a range), unless `-e`.
    Least,
    /// Summed up or listed.
    Total,
}

/// How lines are sorted by a column.
#[derive(Clone, Copy)]
enum Order {
    /// By what they show.
    Text,
    /// By the place of the partition in the configuration, where asked for.
    Place,
    /// By the least value of a line's nodes.
    Least(fn(&NodeView) -> u64),
    Groups(fn(&Group<'_>, &Group<'_>) -> Ordering),
}

/// A group of nodes to show.
struct Cell<'a> {
    group: &'a Group<'a>,
    partition: &'a PartitionConfig,
    clock: &'a Clock,
}

type Shown = fn(&Cell<'_>) -> String;

/// A field.
pub struct Entry {
    /// Letter of `-o`, if it has one.
    pub letter: Option<char>,
    /// Names of `-O` in lower case.
    pub names: &'static [&'static str],
    /// Heading.
    pub title: &'static str,
    /// Whether nodes that differ in it can share a line.
    pub grouping: Grouping,
    shown: Shown,
    order: Order,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title)
    }
}

impl Entry {
    const fn new(grouping: Grouping, names: &'static [&'static str], title: &'static str, shown: Shown) -> Self {
        Self { letter: None, names, title, grouping, shown, order: Order::Text }
    }
    const fn letter(self, letter: char) -> Self {
        Self { letter: Some(letter), ..self }
    }
    const fn by(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// What a group shows.
    pub fn of(&self, group: &Group<'_>, clock: &Clock) -> String {
        (self.shown)(&Cell { group, partition: &group.partition.config, clock })
    }

    /// Which of two groups comes first. `configured`: partitions in the order in which they are configured.
    pub(super) fn compare(&self, a: &Group<'_>, b: &Group<'_>, configured: bool, clock: &Clock) -> Ordering {
        let least = |group: &Group<'_>, of: fn(&NodeView) -> u64| group.nodes.iter().map(|n| of(n)).min();
        match self.order {
            Order::Place if configured => a.place.cmp(&b.place),
            Order::Text | Order::Place => self.of(a, clock).cmp(&self.of(b, clock)),
            Order::Least(of) => least(a, of).cmp(&least(b, of)),
            Order::Groups(order) => order(a, b),
        }
    }
}

const fn partition(names: &'static [&'static str], title: &'static str, shown: Shown) -> Entry {
    Entry::new(Grouping::Partition, names, title, shown)
}

const fn same(names: &'static [&'static str], title: &'static str, shown: Shown) -> Entry {
    Entry::new(Grouping::Same, names, title, shown)
}

const fn least(names: &'static [&'static str], title: &'static str, shown: Shown) -> Entry {
    Entry::new(Grouping::Least, names, title, shown)
}

const fn total(names: &'static [&'static str], title: &'static str, shown: Shown) -> Entry {
    Entry::new(Grouping::Total, names, title, shown)
}

/// What `--helpformat` lists, in its order (seen in 26.05.3).
pub const HELP_FORMAT: &str = "SaVYcOCLdfbeGGgBmoAFnNDhPRMIpEirsXztTZlHuUvw";

/// Every field.
#[rustfmt::skip]
pub static TABLE: &[Entry] = &[
    partition(&["available"], "AVAIL", |c| available(c.group.partition.state).to_owned()).letter('a'),
    total(&["nodeai"], "NODES(A/I)", |c| { let [allocated, idle, ..] = node_counts(c.group); format!("{allocated}/{idle}") }).letter('A'),
    same(&["features_act"], "ACTIVE_FEATURES", |c| c.first(|n| words::cell_or_null(Some(&n.features.join(","))), "")).letter('b'),
    partition(&["maxcpuspernode"], "MAX_CPUS_PER_NODE", |c| unlimited(c.partition.max_cpus_per_node)).letter('B'),
    least(&["cpus"], "CPUS", |c| least_of(c.group, |n| n.shape.cpus.into())).letter('c').by(Order::Least(|n| n.shape.cpus.into())),
    total(&["cpusstate"], "CPUS(A/I/O/T)", |c| cpu_counts(c.group).map(|n| n.to_string()).join("/")).letter('C'),
    least(&["disk"], "TMP_DISK", |c| least_of(c.group, |n| n.shape.tmp_disk_mib)).letter('d').by(Order::Least(|n| n.shape.tmp_disk_mib)),
    total(&["nodes"], "NODES", |c| c.group.nodes.len().to_string()).letter('D').by(Order::Groups(|a, b| a.nodes.len().cmp(&b.nodes.len()))),
    least(&["freemem"], "FREE_MEM", |c| range(c.group, |n| n.load.free_memory.map(|m| m.0), |n| n.to_string())).letter('e'),
    same(&["reason"], "REASON", |c| c.reason("none", |r| r.text.clone())).letter('E'),
    same(&["features"], "AVAIL_FEATURES", |c| c.first(|n| words::cell_or_null(Some(&n.features.join(","))), "")).letter('f'),
    total(&["nodeaiot"], "NODES(A/I/O/T)", |c| node_counts(c.group).map(|n| n.to_string()).join("/")).letter('F'),
    partition(&["groups"], "GROUPS", |c| c.partition.allow_groups.as_ref().map_or_else(|| "all".to_owned(), |g| g.join(","))).letter('g'),
    same(&["gres"], "GRES", |c| c.first(|n| words::cell_or_null(Some(&entries_text(&n.shape))), "(null)")).letter('G'),
    partition(&["oversubscribe"], "OVERSUBSCRIBE", |c| c.partition.over_subscribe.to_string()).letter('h'),
    same(&["timestamp"], "TIMESTAMP", |c| { let clock = c.clock; c.reason("Unknown", |r| clock.at(r.at)) }).letter('H'),
    total(&["reservation"], "RESERVATION", |_| "".to_owned()).letter('i'),
    partition(&["priorityjobfactor"], "PRIO_JOB_FACTOR", |c| c.partition.priority_job_factor.to_string()).letter('I'),
    partition(&["time"], "TIMELIMIT", |c| c.partition.max_time.sinfo_text()).letter('l'),
    partition(&["defaulttime"], "DEFAULTTIME", |c| c.partition.default_time.map_or_else(|| "n/a".to_owned(), TimeLimit::sinfo_text)).letter('L'),
    least(&["memory"], "MEMORY", |c| least_of(c.group, |n| n.shape.memory.0)).letter('m').by(Order::Least(|n| n.shape.memory.0)),
    partition(&["preemptmode"], "PREEMPT_MODE", |c| c.partition.preempt_mode.clone().unwrap_or_else(|| "OFF".to_owned())).letter('M'),
    same(&["nodehost"], "HOSTNAMES", |c| list(c.group, |n| &n.hostname)).letter('n'),
    total(&["nodelist"], "NODELIST", |c| hostlist::fold(c.group.nodes.iter().map(|n| &n.name))).letter('N').by(Order::Groups(|a, b| first_index(a).cmp(&first_index(b)))),
    same(&["nodeaddr"], "NODE_ADDR", |c| list(c.group, |n| &n.address)).letter('o'),
    least(&["cpusload"], "CPU_LOAD", |c| cpu_load(c.group)).letter('O').by(Order::Least(|n| n.load.load_hundredths.into())),
    partition(&["prioritytier"], "PRIO_TIER", |c| c.partition.priority_tier.to_string()).letter('p'),
    partition(&["partition"], "PARTITION", |c| starred(c.partition)).letter('P').by(Order::Place),
    partition(&["root"], "ROOT", |c| if c.partition.root_only { "yes" } else { "no" }.to_owned()).letter('r'),
    partition(&["partitionname"], "PARTITION", |c| c.partition.name.clone()).letter('R').by(Order::Place),
    partition(&["size"], "JOB_SIZE", |c| job_size(c.partition)).letter('s'),
    partition(&["allocnodes"], "ALLOCNODES", |c| c.partition.alloc_nodes.clone().unwrap_or_else(|| "all".to_owned())).letter('S'),
    same(&["statecompact"], "STATE", |c| c.first(|n| node_state::word(n).compact, "n/a")).letter('t').by(Order::Groups(by_state)),
    same(&["statelong"], "STATE", |c| c.first(|n| node_state::word(n).long, "n/a")).letter('T').by(Order::Groups(by_state)),
    same(&["user"], "USER", |c| c.reason("Unknown", |r| r.user.clone())).letter('u'),
    same(&["userlong"], "USER", |c| c.reason("Unknown", |r| format!("{}({})", r.user, r.uid))).letter('U'),
    same(&["version"], "VERSION", |c| c.first(|n| n.registration.as_ref().map_or_else(|| "N/A".to_owned(), |f| f.version.clone()), "N/A")).letter('v'),
    total(&["cluster"], "CLUSTER", |_| "N/A".to_owned()).letter('V'),
    least(&["weight"], "WEIGHT", |c| least_of(c.group, |n| n.weight.into())).letter('w').by(Order::Least(|n| n.weight.into())),
    least(&["sockets"], "SOCKETS", |c| least_of(c.group, |n| n.shape.sockets.into())).letter('X'),
    least(&["cores"], "CORES", |c| least_of(c.group, |n| n.shape.cores_per_socket.into())).letter('Y'),
    least(&["socketcorethread"], "S:C:T", |c| sockets_cores_threads(c.group)).letter('z'),
    least(&["threads"], "THREADS", |c| least_of(c.group, |n| n.shape.threads_per_core.into())).letter('Z'),
    least(&["allocmem"], "ALLOCMEM", |c| least_of(c.group, |n| node_state::usage(n).memory.0)),
    same(&["comment"], "COMMENT", |c| c.first(|n| n.comment.clone().unwrap_or_else(|| "(null)".to_owned()), "")),
    same(&["extra"], "EXTRA", |c| c.first(|n| n.extra.clone().unwrap_or_else(|| "(null)".to_owned()), "")),
    same(&["gresused"], "GRES_USED", |c| c.first(|n| words::cell_or_null(Some(&amounts::gres_used(n))), "(null)")),
    total(&["port"], "PORT", |c| c.first(|n| n.port.to_string(), "")),
    same(&["statecomplete"], "STATECOMPLETE", |c| c.first(|n| node_state::record_words(n).join("+").to_lowercase(), "n/a")).by(Order::Groups(by_state)),
];

/// The entry with that letter.
pub fn by_letter(letter: char) -> Option<&'static Entry> {
    TABLE.iter().find(|e| e.letter == Some(letter))
}

/// The entry with that name, given in lower case.
pub fn by_name(name: &str) -> Option<&'static Entry> {
    TABLE.iter().find(|e| e.names.contains(&name))
}

impl Cell<'_> {
    /// Of the first node; `none` where there is none.
    fn first(&self, value: impl Fn(&NodeView) -> String, none: &str) -> String {
        self.group.nodes.first().map_or_else(|| none.to_owned(), |node| value(node))
    }

    /// Of the reason why the first node is down or drained.
    fn reason(&self, none: &str, value: impl Fn(&NodeReason) -> String) -> String {
        self.first(|node| node.reason.as_ref().map_or_else(|| none.to_owned(), &value), none)
    }
}

fn by_state(a: &Group<'_>, b: &Group<'_>) -> Ordering {
    let rank = |group: &Group<'_>| group.nodes.first().map(|node| node_state::word(node).rank);
    rank(a).cmp(&rank(b))
}

fn first_index(group: &Group<'_>) -> Option<NodeIndex> {
    group.nodes.first().map(|node| node.index)
}

fn starred(partition: &PartitionConfig) -> String {
    format!("{}{}", partition.name, if partition.default { "*" } else { "" })
}

fn sockets_cores_threads(group: &Group<'_>) -> String {
    let counts: [fn(&NodeView) -> u64; 3] =
        [|n| n.shape.sockets.into(), |n| n.shape.cores_per_socket.into(), |n| n.shape.threads_per_core.into()];
    counts.map(|count| least_of(group, count)).join(":")
}

fn cpu_load(group: &Group<'_>) -> String {
    let load = |n: &NodeView| n.registration.is_some().then(|| n.load.load_hundredths.into());
    range(group, load, |n| format!("{}.{:02}", n / 100, n % 100))
}

fn available(state: PartitionState) -> &'static str {
    match state {
        PartitionState::Up => "up",
        PartitionState::Down => "down",
        PartitionState::Drain => "drain",
        PartitionState::Inactive => "inact",
    }
}

fn unlimited(limit: Option<u32>) -> String {
    limit.map_or_else(|| "UNLIMITED".to_owned(), |n| n.to_string())
}

/// `1-infinite`, `2-4`, `4`.
fn job_size(partition: &PartitionConfig) -> String {
    let min = partition.min_nodes.max(1);
    if partition.over_subscribe == OverSubscribe::Exclusive && partition.max_nodes == Some(min) {
        return min.to_string();
    }
    match partition.max_nodes {
        None => format!("{min}-infinite"),
        Some(max) if max == min => min.to_string(),
        Some(max) => format!("{min}-{max}"),
    }
}

fn list<'a>(group: &Group<'a>, of: impl Fn(&'a NodeView) -> &'a String) -> String {
    hostlist::fold_sorted(group.nodes.iter().map(|n| of(n)))
}

/// The least value, with `+` where others are larger.
fn least_of(group: &Group<'_>, of: impl Fn(&NodeView) -> u64) -> String {
    let values = group.nodes.iter().map(|n| of(n));
    match (values.clone().min(), values.max()) {
        (Some(min), Some(max)) if min < max => format!("{min}+"),
        (Some(min), _) => min.to_string(),
        _ => "0".to_owned(),
    }
}

/// `0.01`, or `0.01-2.50` where they differ; `N/A` where nothing is known.
fn range(group: &Group<'_>, of: impl Fn(&NodeView) -> Option<u64>, text: impl Fn(u64) -> String) -> String {
    let values = group.nodes.iter().filter_map(|n| of(n));
    match (values.clone().min(), values.max()) {
        (Some(min), Some(max)) if min < max => format!("{}-{}", text(min), text(max)),
        (Some(min), _) => text(min),
        _ => "N/A".to_owned(),
    }
}

/// Whether a node counts as idle when nothing runs on it.
fn serves(node: &NodeView) -> bool {
    node.base == NodeBase::Up && !node.flags.is_held_back() && !node.flags.is_silent() && !node.flags.invalid
}

/// Nodes allocated, idle, other and in all.
pub fn node_counts(group: &Group<'_>) -> [usize; 4] {
    let used = |n: &&&NodeView| {
        let used = node_state::usage(n);
        used.active || used.completing
    };
    let allocated = group.nodes.iter().filter(used).count();
    let idle = group.nodes.iter().filter(|n| !used(n) && serves(n)).count();
    let total = group.nodes.len();
    [allocated, idle, total - allocated - idle, total]
}

/// CPUs allocated, idle, other and in all.
pub fn cpu_counts(group: &Group<'_>) -> [u32; 4] {
    let mut counts = [0; 4];
    for node in &group.nodes {
        let used = node_state::usage(node).cpus.min(node.shape.cpus);
        let rest = node.shape.cpus - used;
        counts[0] += used;
        counts[if serves(node) { 1 } else { 2 }] += rest;
        counts[3] += node.shape.cpus;
    }
    counts
}

/// Names of the group's nodes.
pub fn names(group: &Group<'_>) -> Vec<String> {
    group.nodes.iter().map(|n| n.name.clone()).collect()
}

/// Memory that jobs hold in the group, MiB.
pub fn allocated_memory(group: &Group<'_>) -> u64 {
    group.nodes.iter().map(|n| node_state::usage(n).memory.0).sum()
}
