//! A cluster of separate hosts: network namespaces joined by a [`DelaySwitch`], each with a `/run/garrick` of its own, so that
//! nothing but QUIC connects them. Needs root.

use super::{
    cluster::{ClusterError, Stage, beside, fresh_home, kill_leftovers, remove, run, without_cluster},
    delay_switch::{DelaySwitch, Traffic},
};
use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The controller's host; it runs no steps.
const CONTROLLER: &str = "ctl";
/// Longest for the nodes to come up, and for the daemons to end. Machines may be busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// The running cluster.
#[derive(Debug)]
pub struct Hosts {
    home: PathBuf,
    bin: PathBuf,
    prefix: String,
    nodes: Vec<String>,
    /// The controller first.
    daemons: Vec<Child>,
    switch: Option<DelaySwitch>,
    ended: bool,
}

fn ip(line: &str) -> Result<String, ClusterError> {
    run(Command::new("ip").args(line.split_whitespace()))
}

impl Hosts {
    /// Starts a controller and so many nodes with so many CPUs each. Every frame between any two of them takes `delay`.
    pub fn up(nodes: usize, cpus: usize, delay: Duration) -> Result<Self, ClusterError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(ClusterError::Unable("network namespaces need root".to_owned()));
        }
        let home = fresh_home("hosts")?;
        let mut hosts = Self {
            bin: home.join("bin"),
            home,
            prefix: format!("gm{}", std::process::id() % 1_000_000),
            nodes: (1..=nodes).map(|n| format!("n{n}")).collect(),
            daemons: Vec::new(),
            switch: None,
            ended: false,
        };
        hosts.make_network(delay)?;
        hosts.write_files(cpus)?;
        hosts.start_daemons()?;
        Ok(hosts)
    }

    /// What passed between the hosts so far.
    pub fn traffic(&self) -> Option<&Traffic> {
        self.switch.as_ref().map(DelaySwitch::traffic)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(CONTROLLER).chain(self.nodes.iter().map(String::as_str))
    }

    fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    fn address(at: usize) -> String {
        format!("10.78.0.{}", at + 1)
    }

    fn make_network(&mut self, delay: Duration) -> Result<(), ClusterError> {
        let switch = self.namespace("switch");
        ip(&format!("netns add {switch}"))?;
        let mut ports = Vec::new();
        for (at, host) in self.names().enumerate() {
            let (ns, address) = (self.namespace(host), Self::address(at));
            ip(&format!("netns add {ns}"))?;
            ip(&format!("-n {ns} link set lo up"))?;
            ip(&format!("-n {ns} link add eth0 type veth peer name p{at} netns {switch}"))?;
            ip(&format!("-n {ns} link set eth0 gso_max_segs 1"))?;
            ip(&format!("-n {ns} addr add {address}/24 dev eth0"))?;
            ip(&format!("-n {ns} link set eth0 up"))?;
            ip(&format!("-n {switch} link set p{at} up"))?;
            ports.push(format!("p{at}"));
        }
        let started = DelaySwitch::start(&switch, &ports, delay);
        self.switch = Some(started.map_err(|e| ClusterError::Unable(format!("a switch between namespaces: {e}")))?);
        Ok(())
    }

    fn write_files(&self, cpus: usize) -> Result<(), ClusterError> {
        let file = |operation, path: &Path| {
            let path = path.to_owned();
            move |cause| ClusterError::File { operation, path, cause }
        };
        fs::create_dir(&self.bin).map_err(file("create", &self.bin))?;
        let (garrick, srun) = (beside("garrick")?, beside("srun")?);
        for name in ["srun", "sbatch", "sinfo", "scontrol", "swait", "stail", "scancel", "squeue"] {
            let link = self.bin.join(name);
            symlink(if name == "srun" { &srun } else { &garrick }, &link).map_err(file("link", &link))?;
        }
        for (name, program) in [("slurmctld", "noded"), ("slurmd", "noded"), ("stepd", "stepd")] {
            let (from, to) = (beside(program)?, self.bin.join(name));
            fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(|_| ())).map_err(file("link", &to))?;
        }
        let hostname = run(&mut Command::new("hostname"))?;
        let (hostname, home) = (hostname.trim(), self.home.display());
        let mut conf = format!(
            "ClusterName=apart\nSlurmctldHost={hostname}({})\nSlurmUser=root\nSlurmctldParameters=admin_hosts=ALL\nAuthType=auth/munge\n\
             SelectType=select/cons_tres\nStateSaveLocation={home}/state\nSlurmdSpoolDir={home}/spool-%n\n\
             SlurmctldPidFile={home}/ctld.pid\nSlurmdPidFile={home}/slurmd-%n.pid\nSlurmdParameters=config_overrides\n",
            Self::address(0)
        );
        for (at, node) in self.nodes.iter().enumerate() {
            let address = Self::address(at + 1);
            conf +=
                &format!("NodeName={node} NodeAddr={address} NodeHostname={hostname} CPUs={cpus} RealMemory=2000\n");
        }
        conf += "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
        let (path, key) = (self.conf(), self.home.join("slurm.key"));
        fs::write(&path, conf).map_err(file("write", &path))?;
        // The key that a site distributes, with which nodes prove themselves.
        fs::write(&key, "0123456789abcdef0123456789abcdef").map_err(file("write", &key))?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).map_err(file("protect", &key))
    }

    fn conf(&self) -> PathBuf {
        self.home.join("slurm.conf")
    }

    fn start_daemons(&mut self) -> Result<(), ClusterError> {
        let conf = self.conf().to_string_lossy().into_owned();
        self.daemons.push(self.daemon(CONTROLLER, "slurmctld", &["-D", "-f", &conf])?);
        for node in self.nodes.clone() {
            let daemon = self.daemon(&node, "slurmd", &["-D", "-N", &node, "-f", &conf])?;
            self.daemons.push(daemon);
        }
        let (began, wanted) = (Instant::now(), format!("idle {}", self.nodes.len()));
        loop {
            let said = run(self.command("sinfo").args(["-h", "-o", "%t %D"]));
            if said.as_ref().is_ok_and(|s| s.trim() == wanted) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                let logs: Vec<String> = self.names().map(|h| self.log_tail(h)).collect();
                return Err(ClusterError::Unable(format!("the nodes do not come up: {said:?}\n{}", logs.join("\n"))));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self, host: &str) -> PathBuf {
        self.home.join(format!("{host}.log"))
    }

    fn log_tail(&self, host: &str) -> String {
        let text = fs::read_to_string(self.log(host)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(10).collect();
        format!("== {host}\n{}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }

    /// In the foreground of a host, with an empty `/run/garrick` of that host's own.
    fn daemon(&self, host: &str, program: &str, args: &[&str]) -> Result<Child, ClusterError> {
        let path = self.log(host);
        let log = File::create(&path)
            .and_then(|log| Ok((log.try_clone()?, log)))
            .map_err(|cause| ClusterError::File { operation: "create", path, cause })?;
        let mut c = Command::new("ip");
        without_cluster(&mut c)
            .args(["netns", "exec", &self.namespace(host), "sh", "-c"])
            .arg("mkdir -p /run/garrick && mount -t tmpfs none /run/garrick && exec \"$0\" \"$@\"")
            .arg(self.bin.join(program))
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.0)
            .stderr(log.1);
        c.spawn().map_err(|cause| ClusterError::Run { program: program.to_owned(), cause })
    }

    /// Ends it and checks that nothing is left.
    pub fn down(mut self) -> Result<(), ClusterError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ClusterError> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let asked = match self.daemons.len() {
            0 => Ok(()),
            _ => run(self.command("scontrol").arg("shutdown")).map(|_| ()),
        };
        let began = Instant::now();
        for daemon in &mut self.daemons {
            while daemon.try_wait().is_ok_and(|ended| ended.is_none()) {
                if asked.is_err() || began.elapsed() > PATIENCE {
                    let _ = daemon.kill();
                    let _ = daemon.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let left = kill_leftovers(&self.home);
        self.switch = None;
        let names: Vec<String> = self.names().chain(["switch"]).map(|h| self.namespace(h)).collect();
        for name in names.iter().filter(|n| Path::new("/run/netns").join(n).exists()) {
            ip(&format!("netns del {name}"))?;
        }
        asked.and(left).and(remove(&self.home))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            eprintln!("garrick-minibatch: {e}");
        }
    }
}

impl Stage for Hosts {
    fn home(&self) -> &Path {
        &self.home
    }
    fn bin(&self) -> &Path {
        &self.bin
    }
    /// On the controller's host.
    fn command(&self, name: &str) -> Command {
        let controller = self.daemons.first().map_or(0, Child::id);
        let mut c = Command::new("nsenter");
        without_cluster(&mut c)
            .args(["-t", &controller.to_string(), "-m", "-n", "--"])
            .arg("env")
            .arg(format!("SLURM_CONF={}", self.conf().display()))
            .arg(self.bin.join(name));
        c
    }
}
