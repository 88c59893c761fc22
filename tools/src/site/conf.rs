//! The `slurm.conf` of an embedded cluster: written by `garrick up`, with the requested options in its first line, so that a
//! later `up` knows whether the file is its own and still matches.

use garrick_model::ids::RequestId;
use std::{
    fmt::Write as _,
    io,
    net::{TcpListener, UdpSocket},
    ops::Range,
    path::Path,
};

/// What `garrick up` was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// `--nodes`: separate processes, this many nodes. `None`: controller and one node in one process.
    pub nodes: Option<u32>,
    /// `--cpus`: CPUs of each node (default: the machine's).
    pub cpus: Option<u32>,
    /// `--memory`: MiB of each node, else the machine's.
    pub memory_mib: Option<u64>,
}

const MARK: &str = "# Made by: garrick up";

impl Shape {
    /// The first line of the file.
    fn mark(&self) -> String {
        let mut line = MARK.to_owned();
        for (name, value) in
            [("nodes", self.nodes.map(u64::from)), ("cpus", self.cpus.map(u64::from)), ("memory", self.memory_mib)]
        {
            if let Some(value) = value {
                let _ = write!(line, " --{name} {value}");
            }
        }
        line
    }

    /// What a file was made for; `None` when someone else wrote it.
    pub fn of_file(text: &str) -> Option<Self> {
        let mut words = text.lines().next()?.strip_prefix(MARK)?.split_whitespace();
        let mut shape = Self::default();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            match name {
                "--nodes" => shape.nodes = Some(value.parse().ok()?),
                "--cpus" => shape.cpus = Some(value.parse().ok()?),
                "--memory" => shape.memory_mib = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        Some(shape)
    }

    /// Names of its nodes.
    pub fn node_names(&self) -> Vec<String> {
        (1..=self.nodes.unwrap_or(1)).map(|n| format!("n{n}")).collect()
    }

    /// Whether nothing was asked for.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What the file needs to know about this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// User whose daemons these are.
    pub user: String,
    /// `CPUs=2 Boards=1 ... RealMemory=4000`, as `noded -C` prints it.
    pub hardware: String,
}

/// Text of the file. `ports` has the controller's first, then one for each node.
pub fn text(shape: &Shape, home: &Path, machine: &Machine, ports: &[u16]) -> String {
    let root = home.display();
    let mut conf = shape.mark();
    let mut ports = ports.iter();
    let mut port = || ports.next().copied().unwrap_or(0);
    let overrides = shape.cpus.is_some() || shape.memory_mib.is_some();
    let _ = write!(
        conf,
        "
# Everything of this cluster is under {root}. `garrick up` writes this file anew when it is asked for another
# number or size of nodes; remove the first line to keep a file of your own.
ClusterName=garrick
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/affinity,task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
MaxJobCount=1000000
AccountingStorageType=accounting_storage/slurmdbd
",
        host = machine.host,
        user = machine.user,
        controller = port(),
    );
    if overrides {
        conf.push_str("SlurmdParameters=config_overrides\n");
    }
    let hardware = hardware(shape, &machine.hardware);
    if let Some(mib) = memory_per_cpu(&hardware) {
        let _ = writeln!(
            conf,
            "# Jobs that say nothing of memory get their CPUs' part of it, so that a node's CPUs can all be used.\nDefMemPerCPU={mib}"
        );
    }
    conf.push('\n');
    for name in shape.node_names() {
        let _ = writeln!(
            conf,
            "NodeName={name} NodeHostname={} NodeAddr=127.0.0.1 Port={} {hardware} State=UNKNOWN",
            machine.host,
            port()
        );
    }
    conf.push_str("\nPartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n");
    conf
}

/// The machine's hardware with what was asked for in its place.
fn hardware(shape: &Shape, found: &str) -> String {
    let found: Vec<(&str, &str)> = found.split_whitespace().filter_map(|w| w.split_once('=')).collect();
    let mut words: Vec<String> = match shape.cpus {
        Some(cpus) => vec![format!("CPUs={cpus}")],
        None => ["CPUs", "Boards", "SocketsPerBoard", "Sockets", "CoresPerSocket", "ThreadsPerCore"]
            .iter()
            .filter_map(|key| found.iter().find(|(k, _)| k == key))
            .map(|(k, v)| format!("{k}={v}"))
            .collect(),
    };
    match shape.memory_mib {
        Some(mib) => words.push(format!("RealMemory={mib}")),
        None => words.extend(found.iter().find(|(k, _)| *k == "RealMemory").map(|(k, v)| format!("{k}={v}"))),
    }
    words.join(" ")
}

/// A CPU's part of a node's memory, MiB.
fn memory_per_cpu(hardware: &str) -> Option<u64> {
    let number = |key: &str| {
        let found = hardware.split_whitespace().filter_map(|word| word.split_once('=')).find(|(name, _)| *name == key);
        found?.1.parse::<u64>().ok()
    };
    number("RealMemory")?.checked_div(number("CPUs")?).filter(|mib| *mib > 0)
}

/// Where ports are looked for: below those that Linux gives to whoever asks for any (`ip_local_port_range`), so that nobody has
/// been given one when a daemon comes back.
const PORTS: Range<u64> = 10_240..32_240;

/// So many ports that nobody uses now. They are held together while they are found, so that they differ.
pub fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let mut held = Vec::new();
    for _ in 0..1000 + 10 * count {
        if held.len() == count {
            break;
        }
        let port = PORTS.start + RequestId::random().0 % (PORTS.end - PORTS.start);
        let port = u16::try_from(port).map_err(io::Error::other)?;
        // QUIC has the port of UDP, HTTP that of TCP.
        let socket = UdpSocket::bind(("127.0.0.1", port));
        match socket.and_then(|socket| Ok((socket, TcpListener::bind(("127.0.0.1", port))?))) {
            Ok(both) => held.push(both),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    if held.len() < count {
        return Err(io::Error::other(format!("no {count} free ports between {} and {}", PORTS.start, PORTS.end)));
    }
    held.iter().map(|(socket, _)| Ok(socket.local_addr()?.port())).collect()
}

/// Whether every port that a file names is still free.
pub fn ports_are_free(text: &str) -> bool {
    ports(text).iter().all(|port| UdpSocket::bind(("127.0.0.1", *port)).is_ok())
}

/// Ports in a file that [`text`] made.
fn ports(text: &str) -> Vec<u16> {
    text.split_whitespace()
        .filter_map(|w| w.strip_prefix("SlurmctldPort=").or_else(|| w.strip_prefix("Port=")))
        .filter_map(|p| p.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn machine() -> Machine {
        Machine {
            host: "host1".to_owned(),
            user: "alice".to_owned(),
            hardware: "CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000 TmpDisk=9"
                .to_owned(),
        }
    }

    #[test]
    fn a_file_remembers_what_it_was_made_for() {
        for shape in [
            Shape::default(),
            Shape { nodes: Some(4), cpus: None, memory_mib: None },
            Shape { nodes: Some(4), cpus: Some(4), memory_mib: Some(5000) },
        ] {
            let text = text(&shape, Path::new("/h"), &machine(), &[7, 8, 9, 10, 11]);
            assert_eq!(Shape::of_file(&text), Some(shape));
        }
        assert_eq!(Shape::of_file("ClusterName=x\n"), None);
    }

    #[test]
    fn nodes_have_ports_of_their_own_and_the_machines_hardware() {
        let shape = Shape { nodes: Some(2), ..Shape::default() };
        let text = text(&shape, Path::new("/h"), &machine(), &[7, 8, 9]);
        assert_eq!(ports(&text), [7, 8, 9]);
        assert!(text.contains(
            "NodeName=n2 NodeHostname=host1 NodeAddr=127.0.0.1 Port=9 CPUs=8 Boards=1 SocketsPerBoard=1 \
             CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000 State=UNKNOWN\n"
        ));
        assert!(!text.contains("config_overrides"));
    }

    /// A job of one CPU had all of a node's memory, and the other CPUs stayed idle.
    #[test]
    fn a_job_that_names_no_memory_gets_its_cpus_part() {
        let conf = |shape: &Shape| text(shape, Path::new("/h"), &machine(), &[7, 8]);
        assert!(conf(&Shape::default()).contains("\nDefMemPerCPU=2000\n"));
        let shape = Shape { cpus: Some(3), memory_mib: Some(5000), ..Shape::default() };
        assert!(conf(&shape).contains("\nDefMemPerCPU=1666\n"));
        let shape = Shape { cpus: Some(64), memory_mib: Some(50), ..Shape::default() };
        assert!(!conf(&shape).contains("DefMemPerCPU"));
    }

    #[test]
    fn nodes_may_claim_more_than_the_machine_has() {
        let shape = Shape { nodes: Some(1), cpus: Some(64), memory_mib: Some(5000) };
        let text = text(&shape, Path::new("/h"), &machine(), &[7, 8]);
        assert!(text.contains("Port=8 CPUs=64 RealMemory=5000 State=UNKNOWN\n"));
        assert!(text.contains("SlurmdParameters=config_overrides\n"));
    }

    #[test]
    fn ports_found_together_differ() {
        let mut ports = free_ports(20).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }
}
