//! The fields of `sinfo`: their letters (`-o`), names (`-O`), headings, and whether nodes must agree in them to share a
//! line.

/// What a column shows of a group of nodes in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Partition, the default one with a star.
    Partition,
    /// Partition without star.
    PartitionName,
    /// `up`, `down`, `drain`, `inact`.
    Available,
    /// Longest limit.
    TimeLimit,
    /// Limit of jobs that name none.
    DefaultTime,
    /// Fewest and most nodes of a job.
    JobSize,
    /// Root only.
    Root,
    /// Sharing of nodes.
    OverSubscribe,
    /// Groups that may use it.
    Groups,
    /// Hosts from which it may be used.
    AllocNodes,
    /// Preemption.
    PreemptMode,
    /// PriorityJobFactor.
    PriorityFactor,
    /// PriorityTier.
    PriorityTier,
    /// Most CPUs of a node.
    MaxCpusPerNode,
    /// Number of nodes.
    Nodes,
    /// Nodes allocated and idle.
    NodesAi,
    /// Nodes allocated, idle, other, total.
    NodesAiot,
    /// CPUs allocated, idle, other, total.
    CpusAiot,
    /// Names.
    NodeList,
    /// Host names.
    HostNames,
    /// Addresses.
    Addresses,
    /// Port.
    Port,
    /// `idle`, `alloc`.
    StateCompact,
    /// `idle`, `allocated`.
    State,
    /// `IDLE+DRAIN`.
    StateComplete,
    /// CPUs of a node.
    Cpus,
    /// Load of a node.
    CpuLoad,
    /// Sockets.
    Sockets,
    /// Cores in a socket.
    Cores,
    /// Threads in a core.
    Threads,
    /// All three.
    Sct,
    /// RealMemory.
    Memory,
    /// Memory in use.
    AllocMemory,
    /// Free memory.
    FreeMemory,
    /// TmpDisk.
    Disk,
    /// Weight.
    Weight,
    /// Features.
    Features,
    /// Generic resources.
    Gres,
    /// Those that jobs hold.
    GresUsed,
    /// Why it is down or drained.
    Reason,
    /// Who said so.
    ReasonUser,
    /// Who said so, with his number.
    ReasonUserLong,
    /// When.
    ReasonTime,
    /// Version of its daemon.
    Version,
    /// Comment.
    Comment,
    /// Extra.
    Extra,
    /// What nothing here has: always this word.
    Constant(&'static str),
}

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

impl Field {
    /// How it groups.
    pub fn grouping(self) -> Grouping {
        match self {
            Self::Partition
            | Self::PartitionName
            | Self::Available
            | Self::TimeLimit
            | Self::DefaultTime
            | Self::JobSize
            | Self::Root
            | Self::OverSubscribe
            | Self::Groups
            | Self::AllocNodes
            | Self::PreemptMode
            | Self::PriorityFactor
            | Self::PriorityTier
            | Self::MaxCpusPerNode => Grouping::Partition,
            Self::Nodes | Self::NodesAi | Self::NodesAiot | Self::CpusAiot | Self::NodeList | Self::Constant(_) => {
                Grouping::Total
            }
            Self::Cpus
            | Self::CpuLoad
            | Self::Sockets
            | Self::Cores
            | Self::Threads
            | Self::Sct
            | Self::Memory
            | Self::AllocMemory
            | Self::FreeMemory
            | Self::Disk
            | Self::Weight => Grouping::Least,
            Self::HostNames
            | Self::Addresses
            | Self::Port
            | Self::StateCompact
            | Self::State
            | Self::StateComplete
            | Self::Features
            | Self::Gres
            | Self::GresUsed
            | Self::Reason
            | Self::ReasonUser
            | Self::ReasonUserLong
            | Self::ReasonTime
            | Self::Version
            | Self::Comment
            | Self::Extra => Grouping::Same,
        }
    }
}

/// One entry of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Field.
    pub field: Field,
    /// Letter of `-o`, if it has one.
    pub letter: Option<char>,
    /// Names of `-O` in lower case.
    pub names: &'static [&'static str],
    /// Heading.
    pub title: &'static str,
}

const fn entry(field: Field, letter: char, names: &'static [&'static str], title: &'static str) -> Entry {
    Entry { field, letter: Some(letter), names, title }
}

const fn named(field: Field, names: &'static [&'static str], title: &'static str) -> Entry {
    Entry { field, letter: None, names, title }
}

/// Every field.
pub const TABLE: &[Entry] = &[
    entry(Field::Available, 'a', &["available"], "AVAIL"),
    entry(Field::NodesAi, 'A', &["nodeai"], "NODES(A/I)"),
    entry(Field::Features, 'b', &["features_act"], "ACTIVE_FEATURES"),
    entry(Field::MaxCpusPerNode, 'B', &["maxcpuspernode"], "MAX_CPUS_PER_NODE"),
    entry(Field::Cpus, 'c', &["cpus"], "CPUS"),
    entry(Field::CpusAiot, 'C', &["cpusstate"], "CPUS(A/I/O/T)"),
    entry(Field::Disk, 'd', &["disk"], "TMP_DISK"),
    entry(Field::Nodes, 'D', &["nodes"], "NODES"),
    entry(Field::FreeMemory, 'e', &["freemem"], "FREE_MEM"),
    entry(Field::Reason, 'E', &["reason"], "REASON"),
    entry(Field::Features, 'f', &["features"], "AVAIL_FEATURES"),
    entry(Field::NodesAiot, 'F', &["nodeaiot"], "NODES(A/I/O/T)"),
    entry(Field::Groups, 'g', &["groups"], "GROUPS"),
    entry(Field::Gres, 'G', &["gres"], "GRES"),
    entry(Field::OverSubscribe, 'h', &["oversubscribe"], "OVERSUBSCRIBE"),
    entry(Field::ReasonTime, 'H', &["timestamp"], "TIMESTAMP"),
    entry(Field::Constant(""), 'i', &["reservation"], "RESERVATION"),
    entry(Field::PriorityFactor, 'I', &["priorityjobfactor"], "PRIO_JOB_FACTOR"),
    entry(Field::TimeLimit, 'l', &["time"], "TIMELIMIT"),
    entry(Field::DefaultTime, 'L', &["defaulttime"], "DEFAULTTIME"),
    entry(Field::Memory, 'm', &["memory"], "MEMORY"),
    entry(Field::PreemptMode, 'M', &["preemptmode"], "PREEMPT_MODE"),
    entry(Field::HostNames, 'n', &["nodehost"], "HOSTNAMES"),
    entry(Field::NodeList, 'N', &["nodelist"], "NODELIST"),
    entry(Field::Addresses, 'o', &["nodeaddr"], "NODE_ADDR"),
    entry(Field::CpuLoad, 'O', &["cpusload"], "CPU_LOAD"),
    entry(Field::PriorityTier, 'p', &["prioritytier"], "PRIO_TIER"),
    entry(Field::Partition, 'P', &["partition"], "PARTITION"),
    entry(Field::Root, 'r', &["root"], "ROOT"),
    entry(Field::PartitionName, 'R', &["partitionname"], "PARTITION"),
    entry(Field::JobSize, 's', &["size"], "JOB_SIZE"),
    entry(Field::AllocNodes, 'S', &["allocnodes"], "ALLOCNODES"),
    entry(Field::StateCompact, 't', &["statecompact"], "STATE"),
    entry(Field::State, 'T', &["statelong"], "STATE"),
    entry(Field::ReasonUser, 'u', &["user"], "USER"),
    entry(Field::ReasonUserLong, 'U', &["userlong"], "USER"),
    entry(Field::Version, 'v', &["version"], "VERSION"),
    entry(Field::Constant("N/A"), 'V', &["cluster"], "CLUSTER"),
    entry(Field::Weight, 'w', &["weight"], "WEIGHT"),
    entry(Field::Sockets, 'X', &["sockets"], "SOCKETS"),
    entry(Field::Cores, 'Y', &["cores"], "CORES"),
    entry(Field::Sct, 'z', &["socketcorethread"], "S:C:T"),
    entry(Field::Threads, 'Z', &["threads"], "THREADS"),
    named(Field::AllocMemory, &["allocmem"], "ALLOCMEM"),
    named(Field::Comment, &["comment"], "COMMENT"),
    named(Field::Extra, &["extra"], "EXTRA"),
    named(Field::GresUsed, &["gresused"], "GRES_USED"),
    named(Field::Port, &["port"], "PORT"),
    named(Field::StateComplete, &["statecomplete"], "STATECOMPLETE"),
];

/// The entry with that letter.
pub fn by_letter(letter: char) -> Option<&'static Entry> {
    TABLE.iter().find(|e| e.letter == Some(letter))
}

/// The entry with that name, given in lower case.
pub fn by_name(name: &str) -> Option<&'static Entry> {
    TABLE.iter().find(|e| e.names.contains(&name))
}
