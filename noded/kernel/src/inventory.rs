//! Facts of the machine: shape, memory, disk, boot id, names, load. The agent registers with them, and `slurmd -C` prints them.

use super::topology::{Topology, TopologyError, allowed_cpus};
use garrick_model::{node_shape::NodeShape, resources::MemoryMib, time::Timestamp, view::NodeLoad};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// The machine could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// CPUs.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A file.
    #[error("{path}: {cause}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A file that does not say what it should.
    #[error("{path} has no {what}", path = path.display())]
    Missing {
        /// Which.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// `uname`.
    #[error("uname: {0}")]
    Uname(#[source] io::Error),
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Host name up to the first dot.
    pub hostname: String,
    /// `uname -m`.
    pub arch: String,
    /// `Linux <release> <version>`.
    pub os: String,
    /// What it has to give, as found.
    pub shape: NodeShape,
    /// CPUs.
    pub topology: Topology,
}

impl Machine {
    /// Looks at the machine below `root` (`/` in production; names come from the running kernel). `tmp_fs`: the file system
    /// that `TmpDisk` means.
    pub fn read(root: &Path, tmp_fs: &Path) -> Result<Self, InventoryError> {
        let topology = Topology::read(root, allowed_cpus(root).as_ref())?;
        let uname = nix::sys::utsname::uname().map_err(|e| InventoryError::Uname(e.into()))?;
        let text = |s: &std::ffi::OsStr| s.to_string_lossy().into_owned();
        let shape = NodeShape {
            cpus: topology.cpus(),
            boards: 1,
            sockets: topology.sockets(),
            cores_per_socket: topology.cores_per_socket(),
            threads_per_core: topology.threads_per_core(),
            memory: total_memory(root)?,
            // A node whose TmpFS is not there offers none.
            tmp_disk_mib: disk_mib(tmp_fs).unwrap_or(0),
            gres: Vec::new(),
            reserved_cpus: Default::default(),
            gpu_cpus: Vec::new(),
            reserved_memory: Default::default(),
        };
        Ok(Self {
            hostname: short_hostname(&text(uname.nodename())),
            arch: text(uname.machine()),
            os: format!("{} {} {}", text(uname.sysname()), text(uname.release()), text(uname.version())),
            shape,
            topology,
        })
    }
}

/// Up to the first dot.
pub fn short_hostname(name: &str) -> String {
    name.split('.').next().unwrap_or_default().to_owned()
}

/// This host's name up to the first dot.
pub fn hostname() -> io::Result<String> {
    Ok(short_hostname(&nix::unistd::gethostname()?.to_string_lossy()))
}

fn read(path: PathBuf) -> Result<(PathBuf, String), InventoryError> {
    match fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(cause) => Err(InventoryError::File { path, cause }),
    }
}

fn meminfo(root: &Path, what: &'static str) -> Result<MemoryMib, InventoryError> {
    let (path, text) = read(root.join("proc/meminfo"))?;
    let kib = text.lines().find_map(|l| {
        let value = l.strip_prefix(what)?.strip_prefix(':')?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    kib.map(|k| MemoryMib(k / 1024)).ok_or(InventoryError::Missing { path, what })
}

/// `MemTotal`.
pub fn total_memory(root: &Path) -> Result<MemoryMib, InventoryError> {
    meminfo(root, "MemTotal")
}

/// Size of a file system in MiB.
pub fn disk_mib(path: &Path) -> io::Result<u64> {
    let stat = nix::sys::statvfs::statvfs(path)?;
    Ok(stat.blocks() * stat.fragment_size() / (1024 * 1024))
}

/// Load and free memory, for heartbeats.
pub fn load(root: &Path) -> Result<NodeLoad, InventoryError> {
    let (path, text) = read(root.join("proc/loadavg"))?;
    let missing = InventoryError::Missing { path, what: "load average" };
    let first = text.split_ascii_whitespace().next().and_then(hundredths).ok_or(missing)?;
    Ok(NodeLoad { load_hundredths: first, free_memory: Some(meminfo(root, "MemFree")?), power: None })
}

/// `12.34` to 1234.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.')?;
    let fraction = fraction.get(..2)?;
    whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(fraction.parse().ok()?)
}

/// When the machine booted.
pub fn boot_time(root: &Path) -> Result<Timestamp, InventoryError> {
    let (path, text) = read(root.join("proc/stat"))?;
    let secs = text.lines().find_map(|l| l.strip_prefix("btime ")?.trim().parse::<i64>().ok());
    secs.map(Timestamp::from_secs).ok_or(InventoryError::Missing { path, what: "btime" })
}

/// Names this boot of the machine (random(4), `boot_id`).
pub fn boot_id(root: &Path) -> Result<String, InventoryError> {
    let (_, text) = read(root.join("proc/sys/kernel/random/boot_id"))?;
    Ok(text.trim().to_owned())
}

/// How long the machine has been up.
pub fn uptime(root: &Path) -> Result<Duration, InventoryError> {
    let (path, text) = read(root.join("proc/uptime"))?;
    let secs = text.split('.').next().and_then(|s| s.trim().parse::<u64>().ok());
    secs.map(Duration::from_secs).ok_or(InventoryError::Missing { path, what: "uptime" })
}

/// Device files of the GPUs that NVIDIA's driver names, in the order of their places on the bus. None where it is not loaded.
pub fn nvidia_gpus(root: &Path) -> Vec<PathBuf> {
    let Ok(folder) = fs::read_dir(root.join("proc/driver/nvidia/gpus")) else { return Vec::new() };
    let mut places: Vec<PathBuf> = folder.flatten().map(|gpu| gpu.path()).collect();
    places.sort();
    let minor = |place: &PathBuf| {
        let about = fs::read_to_string(place.join("information")).ok()?;
        let minor = about.lines().find_map(|line| line.strip_prefix("Device Minor:"))?;
        minor.trim().parse::<u32>().ok()
    };
    places.iter().filter_map(minor).map(|minor| PathBuf::from(format!("/dev/nvidia{minor}"))).collect()
}

/// First line of `slurmd -C`.
pub fn node_line(name: &str, shape: &NodeShape) -> String {
    let boards = shape.boards.max(1);
    format!(
        "NodeName={name} CPUs={} Boards={boards} SocketsPerBoard={} CoresPerSocket={} ThreadsPerCore={} RealMemory={}",
        shape.cpus,
        shape.sockets / boards,
        shape.cores_per_socket,
        shape.threads_per_core,
        shape.memory.0
    )
}

/// Second line of `slurmd -C`.
pub fn uptime_line(up: Duration) -> String {
    let secs = up.as_secs();
    let (days, hours, minutes) = (secs / 86_400, secs / 3600 % 24, secs / 60 % 60);
    format!("UpTime={days}-{hours:02}:{minutes:02}:{:02}", secs % 60)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scratch::Scratch;

    fn recorded() -> Scratch {
        let dir = Scratch::new("inventory");
        dir.put("sys/devices/system/cpu/online", "0-1\n");
        for cpu in 0..2 {
            dir.put(&format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "0\n");
            dir.put(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_id"), &format!("{cpu}\n"));
        }
        dir.put("proc/meminfo", "MemTotal:       24662564 kB\nMemFree:        22501000 kB\n");
        dir.put("proc/loadavg", "2.71 1.05 0.33 2/345 6789\n");
        dir.put("proc/stat", "cpu  1 2 3\nbtime 1795248079\nprocesses 5\n");
        dir.put("proc/uptime", "5025.77 9000.00\n");
        dir
    }

    #[test]
    fn gpus_are_named_in_the_order_of_the_bus() {
        let dir = recorded();
        assert_eq!(nvidia_gpus(dir.path()), Vec::<PathBuf>::new());
        for (place, minor) in [("0000:41:00.0", 0), ("0000:01:00.0", 1)] {
            let about =
                format!("Model: \t\t NVIDIA H100 80GB HBM3\nBus Location: \t {place}\nDevice Minor: \t {minor}\n");
            dir.put(&format!("proc/driver/nvidia/gpus/{place}/information"), &about);
        }
        let files = ["/dev/nvidia1", "/dev/nvidia0"].map(PathBuf::from);
        assert_eq!(nvidia_gpus(dir.path()), files);
    }

    #[test]
    fn a_machine_prints_as_slurmd_does() {
        let dir = recorded();
        let machine = Machine::read(dir.path(), dir.path()).unwrap();
        assert_eq!(
            node_line("host1", &machine.shape),
            "NodeName=host1 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=24084"
        );
        assert_eq!(uptime_line(uptime(dir.path()).unwrap()), "UpTime=0-01:23:45");
        assert_eq!(uptime_line(Duration::from_secs(90_061)), "UpTime=1-01:01:01");
        assert!(machine.shape.tmp_disk_mib > 0 && machine.os.starts_with("Linux "));
    }

    #[test]
    fn load_and_boot_are_read() {
        let dir = recorded();
        let found = load(dir.path()).unwrap();
        assert_eq!((found.load_hundredths, found.free_memory), (271, Some(MemoryMib(21_973))));
        assert_eq!(boot_time(dir.path()).unwrap(), Timestamp::from_secs(1_795_248_079));
    }

    #[test]
    fn what_is_missing_is_named() {
        let dir = Scratch::new("inventory");
        assert!(total_memory(dir.path()).unwrap_err().to_string().contains("proc/meminfo"));
        dir.put("proc/meminfo", "nothing\n");
        assert!(total_memory(dir.path()).unwrap_err().to_string().ends_with("has no MemTotal"));
        dir.put("proc/loadavg", "x\n");
        assert!(load(dir.path()).is_err());
    }

    #[test]
    fn host_names_lose_their_domain() {
        assert_eq!(short_hostname("lx0003.cluster.example"), "lx0003");
        assert_eq!(short_hostname("lx0003"), "lx0003");
    }

    #[test]
    fn this_machine_is_whole() {
        let root = Path::new("/");
        let machine = Machine::read(root, Path::new("/tmp")).unwrap();
        assert!(machine.shape.memory > load(root).unwrap().free_memory.unwrap());
        assert!(boot_time(root).unwrap() <= Timestamp::now());
        assert_eq!(boot_id(root).unwrap().len(), 36);
    }
}
