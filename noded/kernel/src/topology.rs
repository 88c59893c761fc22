//! Sockets, cores and hardware threads of the machine, from sysfs, and which CPU of the machine corresponds to an abstract CPU of
//! a node.
//!
//! Abstract CPU numbers count threads within cores within sockets: socket 0 core 0 thread 0, socket 0 core 0 thread 1,
//! socket 0 core 1 thread 0, ... The machine's own numbers are often laid out otherwise (all first threads first).

use super::cpu_list::{CpuList, CpuListError};
use garrick_model::node_shape::NodeShape;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Where CPUs are shown, below the root folder.
const CPUS: &str = "sys/devices/system/cpu";

/// The machine's layout could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A file.
    #[error("{path}: {cause}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Its contents.
    #[error("{path}: {cause}", path = path.display())]
    List {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: CpuListError,
    },
    /// No CPU that is online may be used.
    #[error("no usable CPU in {}", .0.display())]
    Empty(PathBuf),
}

/// A CPU of the machine and where it sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    package: i64,
    core: i64,
    cpu: u32,
}

/// CPUs that are online and may be used, in the order of abstract numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Sorted by package, core, number.
    places: Vec<Place>,
    sockets: u32,
    cores_per_socket: u32,
    threads_per_core: u32,
}

impl Topology {
    /// Reads `root/sys/devices/system/cpu` (`root` is `/` in production). `allowed`: what this process may run on
    /// ([`allowed_cpus`]); `None`: all.
    pub fn read(root: &Path, allowed: Option<&CpuList>) -> Result<Self, TopologyError> {
        let base = root.join(CPUS);
        let online = match read_list(&base.join("online")) {
            // Absent in kernels without hotplug.
            Err(TopologyError::File { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                read_list(&base.join("present"))?
            }
            other => other?,
        };
        let usable = allowed.map_or(online.clone(), |a| a.intersection(&online));
        let mut places: Vec<Place> = usable
            .iter()
            .map(|cpu| {
                let dir = base.join(format!("cpu{cpu}/topology"));
                // Some virtual machines show no topology: then each CPU is a core of one socket.
                let number = |file: &str| fs::read_to_string(dir.join(file)).ok().and_then(|t| t.trim().parse().ok());
                Place {
                    // -1 where the firmware does not say.
                    package: number("physical_package_id").filter(|p: &i64| *p >= 0).unwrap_or(0),
                    core: number("core_id").unwrap_or_else(|| i64::from(cpu)),
                    cpu,
                }
            })
            .collect();
        if places.is_empty() {
            return Err(TopologyError::Empty(base));
        }
        places.sort();
        let mut cores: BTreeMap<i64, BTreeMap<i64, u32>> = BTreeMap::new();
        for place in &places {
            *cores.entry(place.package).or_default().entry(place.core).or_default() += 1;
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let per_socket = cores.values().map(BTreeMap::len);
        let per_core = cores.values().flat_map(BTreeMap::values).copied();
        let regular =
            per_socket.clone().min() == per_socket.clone().max() && per_core.clone().min() == per_core.clone().max();
        let (sockets, cores_per_socket, threads_per_core) = if regular {
            (count(cores.len()), count(per_socket.max().unwrap_or(1)), per_core.max().unwrap_or(1))
        } else {
            // Mixed kinds of cores, or some threads offline: sockets x cores x threads cannot say it, so each CPU counts as
            // a core.
            (1, count(places.len()), 1)
        };
        Ok(Self { places, sockets, cores_per_socket, threads_per_core })
    }

    /// CPUs.
    pub fn cpus(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }
    /// Sockets.
    pub fn sockets(&self) -> u32 {
        self.sockets
    }
    /// Cores in a socket.
    pub fn cores_per_socket(&self) -> u32 {
        self.cores_per_socket
    }
    /// Threads in a core.
    pub fn threads_per_core(&self) -> u32 {
        self.threads_per_core
    }

    /// The machine's CPU for an abstract number of a node of exactly this topology.
    pub fn machine_cpu(&self, number: u32) -> Option<u32> {
        self.places.get(number as usize).map(|p| p.cpu)
    }
}

fn read_list(path: &Path) -> Result<CpuList, TopologyError> {
    let text = fs::read_to_string(path).map_err(|cause| TopologyError::File { path: path.to_owned(), cause })?;
    text.parse().map_err(|cause| TopologyError::List { path: path.to_owned(), cause })
}

/// CPUs that this process may run on, from `root/proc/self/status`.
pub fn allowed_cpus(root: &Path) -> Option<CpuList> {
    let text = fs::read_to_string(root.join("proc/self/status")).ok()?;
    let list = text.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
    list.parse().ok()
}

/// Abstract CPUs of a node to CPUs of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuMap {
    /// CPUs of the machine for each abstract one: one, or the threads of a core where the node counts cores only.
    machine: Vec<Vec<u32>>,
    claimed: u32,
}

impl CpuMap {
    /// For a node of this shape on this machine. `first` is the abstract CPU of the machine that the node's CPU 0 stands for,
    /// so that several small nodes on one machine can lie beside each other; 0 for a node that has the machine.
    pub fn new(topology: &Topology, shape: &NodeShape, first: u32) -> Self {
        // `CPUs` may be the number of cores: then a CPU of the node is a core with all its threads.
        let threads =
            if shape.cpus_per_core() == 1 && shape.threads_per_core > 1 { topology.threads_per_core } else { 1 };
        let total = topology.cpus() / threads;
        let thread_cpus = |n: u32| {
            let start = (first + n) % total * threads;
            (start..start + threads).filter_map(|t| topology.machine_cpu(t)).collect()
        };
        Self { machine: (0..total.min(shape.cpus.max(1))).map(thread_cpus).collect(), claimed: shape.cpus }
    }

    /// The node claims more CPUs than exist (`config_overrides`): several abstract CPUs share one of the machine.
    pub fn wraps(&self) -> bool {
        self.claimed as usize > self.machine.len()
    }

    /// What to say about it at start.
    pub fn notice(&self) -> Option<String> {
        self.wraps().then(|| {
            let there = self.machine.len();
            format!(
                "node claims {} CPUs and the machine has {there}: CPU n stands for machine CPU n modulo {there}",
                self.claimed
            )
        })
    }

    /// CPUs of the machine for these abstract numbers.
    pub fn machine_cpus(&self, numbers: impl IntoIterator<Item = u32>) -> CpuList {
        let there = u32::try_from(self.machine.len()).unwrap_or(u32::MAX).max(1);
        numbers.into_iter().filter_map(|n| self.machine.get((n % there) as usize)).flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scratch::Scratch;

    /// A recorded tree: online CPUs, and package and core of each CPU in order of its number.
    fn tree(online: &str, places: &[(i64, i64)]) -> Scratch {
        let dir = Scratch::new("topology");
        dir.put(&format!("{CPUS}/online"), &format!("{online}\n"));
        for (cpu, (package, core)) in places.iter().enumerate() {
            dir.put(&format!("{CPUS}/cpu{cpu}/topology/physical_package_id"), &format!("{package}\n"));
            dir.put(&format!("{CPUS}/cpu{cpu}/topology/core_id"), &format!("{core}\n"));
        }
        dir
    }

    fn shape_of(t: &Topology) -> (u32, u32, u32, u32) {
        (t.cpus(), t.sockets(), t.cores_per_socket(), t.threads_per_core())
    }

    fn node(cpus: u32) -> NodeShape {
        garrick_model::testing::shape(1, cpus, 1)
    }

    #[test]
    fn two_sockets_with_smt_are_numbered_by_socket_core_thread() {
        // A Xeon with two sockets of two cores: first threads are 0-3 alternating over sockets, second threads 4-7.
        let places = [(0, 0), (1, 0), (0, 4), (1, 4), (0, 0), (1, 0), (0, 4), (1, 4)];
        let dir = tree("0-7", &places);
        let topology = Topology::read(dir.path(), None).unwrap();
        assert_eq!(shape_of(&topology), (8, 2, 2, 2));
        let order: Vec<u32> = (0..8).filter_map(|n| topology.machine_cpu(n)).collect();
        assert_eq!(order, [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(topology.machine_cpu(8), None);
    }

    #[test]
    fn offline_and_forbidden_cpus_do_not_count() {
        let dir = tree("0,2-3", &[(0, 0), (0, 1), (0, 2), (0, 3)]);
        assert_eq!(shape_of(&Topology::read(dir.path(), None).unwrap()), (3, 1, 3, 1));
        let allowed: CpuList = "1-2".parse().unwrap();
        let topology = Topology::read(dir.path(), Some(&allowed)).unwrap();
        assert_eq!(shape_of(&topology), (1, 1, 1, 1));
        assert_eq!(topology.machine_cpu(0), Some(2));
        let none: CpuList = "9".parse().unwrap();
        assert!(matches!(Topology::read(dir.path(), Some(&none)), Err(TopologyError::Empty(_))));
    }

    #[test]
    fn mixed_cores_count_each_cpu_as_a_core() {
        // Two cores with two threads, two with one.
        let dir = tree("0-5", &[(0, 0), (0, 0), (0, 1), (0, 1), (0, 8), (0, 9)]);
        assert_eq!(shape_of(&Topology::read(dir.path(), None).unwrap()), (6, 1, 6, 1));
    }

    #[test]
    fn a_machine_that_shows_no_topology_has_one_socket() {
        let dir = Scratch::new("topology");
        dir.put(&format!("{CPUS}/present"), "0-3\n");
        assert_eq!(shape_of(&Topology::read(dir.path(), None).unwrap()), (4, 1, 4, 1));
        assert!(Topology::read(&dir.join("nowhere"), None).is_err());
    }

    #[test]
    fn nodes_with_more_cpus_than_exist_wrap_around() {
        let dir = tree("0-1", &[(0, 0), (0, 1)]);
        let topology = Topology::read(dir.path(), None).unwrap();
        let map = CpuMap::new(&topology, &node(5), 0);
        assert!(map.wraps() && map.notice().unwrap().contains("claims 5 CPUs"));
        assert_eq!(map.machine_cpus([2, 4]).to_string(), "0");
        assert_eq!(map.machine_cpus([3, 4]).to_string(), "0-1");
    }

    #[test]
    fn nodes_with_fewer_cpus_lie_side_by_side() {
        let dir = tree("0-3", &[(0, 0), (0, 1), (0, 2), (0, 3)]);
        let topology = Topology::read(dir.path(), None).unwrap();
        let map = CpuMap::new(&topology, &node(2), 2);
        assert_eq!((map.wraps(), map.notice()), (false, None));
        assert_eq!(map.machine_cpus(0..2).to_string(), "2-3");
    }

    #[test]
    fn nodes_that_count_cores_get_all_threads_of_each() {
        let dir = tree("0-3", &[(0, 0), (0, 1), (0, 0), (0, 1)]);
        let topology = Topology::read(dir.path(), None).unwrap();
        let mut shape = node(2);
        shape.threads_per_core = 2;
        let map = CpuMap::new(&topology, &shape, 0);
        assert_eq!(
            (map.machine_cpus([0]).to_string(), map.machine_cpus([1]).to_string()),
            ("0,2".into(), "1,3".into())
        );
        assert!(!map.wraps());
    }

    #[test]
    fn this_machine_can_be_read() {
        let root = Path::new("/");
        let topology = Topology::read(root, allowed_cpus(root).as_ref()).unwrap();
        let (cpus, sockets, cores, threads) = shape_of(&topology);
        assert_eq!(cpus, sockets * cores * threads);
    }
}
