//! A controller and two nodes as separate hosts: network namespaces joined by a bridge, each with a `/run` of its own, so that
//! nothing but QUIC connects them. Needs root.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use support::{Answer, Killed, answer, built, is_root, scratch};

struct Network {
    prefix: String,
}

const HOSTS: [&str; 3] = ["ctl", "a", "b"];

fn ip(line: &str) -> Answer {
    answer(Command::new("ip").args(line.split_whitespace()).stdin(Stdio::null()))
}

impl Network {
    /// A switch and three hosts, 10.77.0.1 to 10.77.0.3.
    fn make() -> Self {
        let prefix = format!("gt{}", std::process::id() % 100_000);
        let n = Self { prefix };
        let switch = n.name("sw");
        ip(&format!("netns add {switch}")).ok();
        ip(&format!("-n {switch} link add br0 type bridge")).ok();
        ip(&format!("-n {switch} link set br0 up")).ok();
        for (i, host) in HOSTS.iter().enumerate() {
            let ns = n.name(host);
            ip(&format!("netns add {ns}")).ok();
            ip(&format!("-n {ns} link set lo up")).ok();
            ip(&format!("-n {ns} link add eth0 type veth peer name p{i} netns {switch}")).ok();
            ip(&format!("-n {ns} addr add 10.77.0.{}/24 dev eth0", i + 1)).ok();
            ip(&format!("-n {ns} link set eth0 up")).ok();
            ip(&format!("-n {switch} link set p{i} master br0")).ok();
            ip(&format!("-n {switch} link set p{i} up")).ok();
        }
        n
    }

    fn name(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    /// A daemon in the foreground on one host, with an empty `/run/garrick` of that host's own.
    fn daemon(&self, host: &str, program: &Path, args: &[&str], log: &Path) -> Killed {
        let log = std::fs::File::create(log).unwrap();
        Killed(
            Command::new("ip")
                .args(["netns", "exec", &self.name(host), "sh", "-c"])
                .arg("mkdir -p /run/garrick && mount -t tmpfs none /run/garrick && exec \"$0\" \"$@\"")
                .arg(program)
                .args(args)
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in HOSTS.iter().chain(&["sw"]) {
            ip(&format!("netns del {}", self.name(host)));
        }
    }
}

/// A command on the host where a daemon runs.
fn on_host(daemon: &Killed, conf: &Path, program: &Path, args: &[&str]) -> Answer {
    answer(
        Command::new("nsenter")
            .args(["-t", &daemon.0.id().to_string(), "-m", "-n", "--"])
            .arg("env")
            .arg(format!("SLURM_CONF={}", conf.display()))
            .arg(program)
            .args(args)
            .current_dir("/tmp")
            .stdin(Stdio::null()),
    )
}

fn tail(paths: &[PathBuf]) -> String {
    paths.iter().map(|p| format!("== {}\n{}", p.display(), std::fs::read_to_string(p).unwrap_or_default())).collect()
}

#[test]
fn a_controller_and_two_nodes_on_separate_hosts_form_a_cluster() {
    if !is_root() || !ip("netns list").code.eq(&0) {
        eprintln!("skipped: needs root and network namespaces");
        return;
    }
    let work = scratch("netns");
    let (bin, network) = (built(), Network::make());
    let hostname = nix::unistd::gethostname().unwrap().into_string().unwrap();
    for name in ["srun", "sbatch", "sinfo", "scontrol"] {
        std::os::unix::fs::symlink(bin.join("garrick"), work.join(name)).unwrap();
    }
    for name in ["slurmctld", "slurmd"] {
        std::fs::hard_link(bin.join("noded"), work.join(name))
            .or_else(|_| std::fs::copy(bin.join("noded"), work.join(name)).map(|_| ()))
            .unwrap();
    }
    std::fs::hard_link(bin.join("stepd"), work.join("stepd"))
        .or_else(|_| std::fs::copy(bin.join("stepd"), work.join("stepd")).map(|_| ()))
        .unwrap();
    let conf = work.join("slurm.conf");
    std::fs::write(
        &conf,
        format!(
            "ClusterName=apart\nSlurmctldHost={hostname}(10.77.0.1)\nSlurmUser=root\nAuthType=auth/munge\nSelectType=select/cons_tres\n\
             StateSaveLocation={w}/state\nSlurmdSpoolDir={w}/spool-%n\nSlurmctldPidFile={w}/ctld.pid\nSlurmdPidFile={w}/slurmd-%n.pid\n\
             SlurmdParameters=config_overrides\n\
             NodeName=a NodeAddr=10.77.0.2 NodeHostname={hostname} CPUs=2 RealMemory=1000\n\
             NodeName=b NodeAddr=10.77.0.3 NodeHostname={hostname} CPUs=2 RealMemory=1000\n\
             PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
            w = work.display()
        ),
    )
    .unwrap();
    // The key that the site distributes: nodes prove themselves with it and get an identity.
    std::fs::write(work.join("slurm.key"), "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::set_permissions(work.join("slurm.key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let c = conf.to_string_lossy().into_owned();
    let logs: Vec<PathBuf> = HOSTS.iter().map(|h| work.join(format!("{h}.log"))).collect();
    let controller = network.daemon("ctl", &work.join("slurmctld"), &["-D", "-f", &c], &logs[0]);
    let a = network.daemon("a", &work.join("slurmd"), &["-D", "-N", "a", "-f", &c], &logs[1]);
    let b = network.daemon("b", &work.join("slurmd"), &["-D", "-N", "b", "-f", &c], &logs[2]);
    let began = std::time::Instant::now();
    loop {
        let s = on_host(&controller, &conf, &work.join("sinfo"), &["-h", "-o", "%t %D"]);
        if s.out.trim() == "idle 2" {
            break;
        }
        assert!(began.elapsed().as_secs() < 90, "{s:?}\n{}", tail(&logs));
    }
    let two = [
        "-N2",
        "-n2",
        "-l",
        "sh",
        "-c",
        "echo $SLURMD_NODENAME $(ip -4 -o addr show eth0 | tr -s ' ' | cut -d' ' -f4)",
    ];
    for (host, place) in [("ctl", &controller), ("a", &a), ("b", &b)] {
        let r = on_host(place, &conf, &work.join("srun"), &two);
        let mut lines: Vec<_> = r.out.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            (r.code, lines),
            (0, vec!["0: a 10.77.0.2/24", "1: b 10.77.0.3/24"]),
            "srun from {host}: {}\n{}",
            r.err,
            tail(&logs)
        );
    }
    // The daemons end in order, and with them what their last jobs left to do.
    let began = std::time::Instant::now();
    while !on_host(&controller, &conf, &work.join("sinfo"), &["-h", "-o", "%t %D"]).out.trim().eq("idle 2") {
        assert!(began.elapsed().as_secs() < 90, "the nodes are not free again\n{}", tail(&logs));
    }
    on_host(&controller, &conf, &work.join("scontrol"), &["shutdown"]).ok();
    for mut daemon in [a, b, controller] {
        daemon.0.wait().unwrap();
    }
    drop(network);
    let needle = work.to_string_lossy().into_owned();
    let left: Vec<String> = support::command_lines().into_iter().filter(|c| c.contains(&needle)).collect();
    assert_eq!(left, Vec::<String>::new(), "processes left");
    let _ = std::fs::remove_dir_all(&work);
}
