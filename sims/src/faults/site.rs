//! The cluster under test: a controller and nodes as separate hosts (network namespaces on one bridge), each with a
//! `/run/garrick` of its own that outlives its daemon, as on a real machine. The controller's state and the first node's spool
//! are on small disks. Needs root.

use super::daemon::Daemon;
use crate::{
    database::{self, Database},
    minibatch::{
        cluster::{ClusterError, beside, remove, run, without_cluster},
        inside::Fallible,
    },
};
use garrick_model::doors;
use garrick_simulator::random::Random;
use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// Longest for the nodes to come up. Machines may be busy.
const PATIENCE: Duration = Duration::from_secs(90);
/// Longest for a user's command, in seconds: what waits for one says which never ended.
const LONGEST_COMMAND: &str = "300";
/// Size of a small disk beside the copy of `stepd` that a spool has: enough for what runs at a time, so that only the filler
/// fills it.
const DISK_MIB: u64 = 64;
/// CPUs that each node claims.
pub const CPUS: u32 = 8;
const COMMANDS: [&str; 9] = ["sbatch", "sinfo", "scontrol", "swait", "scancel", "squeue", "salloc", "sattach", "sdiag"];
/// And where there is accounting.
const OF_ACCOUNTING: [&str; 3] = ["sacct", "sacctmgr", "sreport"];
/// A database's server is started again after so long, milliseconds.
const SERVER_BACK_MS: (u32, u32) = (50, 1_500);
/// What a service of accounting recorded is looked for so long.
const RECORDS_PATIENCE: Duration = Duration::from_secs(120);

/// What a site is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Nodes.
    pub nodes: u32,
    /// Hosts on the same network without a daemon.
    pub strangers: u32,
    /// Who runs the controller: a user's name and number.
    pub slurm_user: (&'static str, u32),
    /// More lines of `slurm.conf`.
    pub settings: String,
    /// With a service of accounting on the controller's host.
    pub accounting: Option<Accounting>,
}

/// A service of accounting.
#[derive(Clone, Debug)]
pub struct Accounting {
    /// Where its records are.
    pub database: Database,
}

impl Plan {
    /// The controller runs as root, and every host is trusted.
    pub fn of_root(nodes: u32) -> Self {
        let settings = "SlurmctldParameters=admin_hosts=ALL\nMinJobAge=0\n".to_owned();
        Self { nodes, strangers: 0, slurm_user: ("root", 0), settings, accounting: None }
    }
}

/// A machine of the cluster.
#[derive(Debug)]
pub struct Host {
    /// The node's name; `ctl` for the controller's.
    pub name: String,
    /// Its network namespace.
    namespace: String,
    /// A process that does nothing but hold the namespaces.
    holder: Child,
    /// Folder on its small disk, where it has one.
    pub disk: Option<PathBuf>,
}

impl Host {
    /// A path as this host sees it.
    pub fn sees(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix("/").unwrap_or(path);
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(inside)
    }

    /// Runs a program there.
    pub fn command(&self, program: &Path) -> Command {
        let mut c = Command::new("nsenter");
        without_cluster(&mut c).args(["-t", &self.holder.id().to_string(), "-m", "-n", "--"]).arg(program);
        c.stdin(Stdio::null());
        c
    }

    /// What is mounted there.
    pub fn mounts(&self) -> Vec<String> {
        let text = fs::read_to_string(format!("/proc/{}/mounts", self.holder.id())).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }
}

/// The cluster.
#[derive(Debug)]
pub struct Site {
    /// Everything of it is below this folder.
    pub home: PathBuf,
    /// The controller's host, then the nodes'.
    pub hosts: Vec<Host>,
    /// One on each host but strangers', in the same order.
    pub daemons: Vec<Daemon>,
    /// The service of accounting on the controller's host.
    pub service: Option<Daemon>,
    /// When the database's server is started again, where it was killed.
    server_back: Option<Instant>,
    plan: Plan,
    prefix: String,
    keep: bool,
}

fn ip(line: &str) -> Result<String, ClusterError> {
    run(Command::new("ip").args(line.split_whitespace()))
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ClusterError {
    let path = path.to_owned();
    move |cause| ClusterError::File { operation, path, cause }
}

impl Site {
    /// Whether this machine allows it: root, and network namespaces.
    pub fn possible() -> bool {
        nix::unistd::geteuid().is_root() && ip("netns list").is_ok()
    }

    /// Starts it and waits until every node is in service.
    pub fn up(home: PathBuf, nodes: u32) -> Result<Self, ClusterError> {
        Self::up_with(home, Plan::of_root(nodes))
    }

    /// The same of another kind.
    pub fn up_with(home: PathBuf, plan: Plan) -> Result<Self, ClusterError> {
        if !Self::possible() {
            return Err(ClusterError::Unable("network namespaces need root".to_owned()));
        }
        // Several may be there at a time.
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = match SERIAL.fetch_add(1, Ordering::Relaxed) {
            0 => String::new(),
            serial => format!("x{serial}"),
        };
        let prefix = format!("gf{}{serial}", std::process::id() % 1_000_000);
        let (hosts, daemons) = (Vec::new(), Vec::new());
        let mut site = Self { home, hosts, daemons, service: None, server_back: None, plan, prefix, keep: false };
        site.make_network()?;
        site.write_files()?;
        site.start_accounting()?;
        for at in 0..=site.plan.nodes as usize {
            let daemon = site.daemon(at)?;
            site.daemons.push(daemon);
        }
        site.wait_for_nodes()?;
        Ok(site)
    }

    fn make_network(&mut self) -> Result<(), ClusterError> {
        let nodes = self.plan.nodes;
        let switch = format!("{}-switch", self.prefix);
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add br0 type bridge"))?;
        ip(&format!("-n {switch} link set br0 up"))?;
        for at in 0..=nodes + self.plan.strangers {
            let name = match at {
                0 => "ctl".to_owned(),
                at if at <= nodes => format!("n{at}"),
                at => format!("stranger{}", at - nodes),
            };
            let ns = format!("{}-{name}", self.prefix);
            ip(&format!("netns add {ns}"))?;
            ip(&format!("-n {ns} link set lo up"))?;
            ip(&format!("-n {ns} link add eth0 type veth peer name p{at} netns {switch}"))?;
            ip(&format!("-n {ns} addr add {}/24 dev eth0", Self::address(at as usize)))?;
            ip(&format!("-n {ns} link set eth0 up"))?;
            ip(&format!("-n {switch} link set p{at} master br0"))?;
            ip(&format!("-n {switch} link set p{at} up"))?;
            let disk = match at {
                0 => Some(self.home.join("state")),
                1 => Some(self.home.join("spool-n1")),
                _ => None,
            };
            let host = self.host(name, ns, disk)?;
            self.hosts.push(host);
        }
        Ok(())
    }

    fn host(&self, name: String, namespace: String, disk: Option<PathBuf>) -> Result<Host, ClusterError> {
        let mut script = "mkdir -p /run/garrick && mount -t tmpfs none /run/garrick".to_owned();
        if self.plan.slurm_user.1 != 0 {
            let folder = format!("/run/garrick-{}", self.plan.slurm_user.0);
            script += &format!(" && mkdir -p {folder} && mount -t tmpfs none {folder}");
        }
        if let Some(disk) = &disk {
            fs::create_dir_all(disk).map_err(failed("create", disk))?;
            let stepd = beside("stepd")?;
            let copy = fs::metadata(&stepd).map_err(failed("examine", &stepd))?.len().div_ceil(1 << 20);
            script += &format!(" && mount -t tmpfs -o size={}m none '{}'", DISK_MIB + copy, disk.display());
        }
        script += " && echo there && exec sleep infinity";
        // Not `ip netns exec`: that mounts a new /sys, without the cgroups.
        let mut holder = Command::new("nsenter")
            .args([&format!("--net=/run/netns/{namespace}"), "unshare", "-m", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|cause| ClusterError::Run { program: "nsenter".to_owned(), cause })?;
        let mut there = String::new();
        if let Some(out) = holder.stdout.take() {
            use std::io::BufRead;
            std::io::BufReader::new(out).read_line(&mut there).map_err(failed("read", Path::new("/proc/self/fd")))?;
        }
        if there != "there\n" {
            return Err(ClusterError::Unable(format!("host {name} could not be set up")));
        }
        Ok(Host { name, namespace, holder, disk })
    }

    /// Of the host with that number.
    pub fn address(at: usize) -> String {
        format!("10.80.0.{}", at + 1)
    }

    /// The network namespace of a host.
    pub fn network(&self, host: usize) -> PathBuf {
        Path::new("/run/netns").join(&self.hosts[host].namespace)
    }

    /// The folder with the commands.
    pub fn bin(&self) -> PathBuf {
        self.home.join("bin")
    }

    /// The service's configuration.
    pub fn accounting_conf(&self) -> PathBuf {
        self.home.join("slurmdbd.conf")
    }

    /// Are records on a server, which may be killed?
    pub fn has_server(&self) -> bool {
        self.plan.accounting.as_ref().is_some_and(|accounting| accounting.database.server.is_some())
    }

    /// `kill -9` of the service of accounting, if it runs.
    pub fn kill_service(&mut self) -> Option<u32> {
        let service = self.service.as_mut()?;
        let pid = service.pid()?;
        service.kill();
        Some(pid)
    }

    /// `kill -9` of the server of the database, if it runs. It is started again by [`Self::supervise`].
    pub fn kill_server(&mut self, random: &mut Random) -> bool {
        let database = self.plan.accounting.as_ref().map(|accounting| &accounting.database);
        let Some(server) = database.and_then(|database| database.server.as_ref()) else { return false };
        if self.server_back.is_some() {
            return false;
        }
        server.kill();
        let pause = u64::from(random.between(SERVER_BACK_MS.0, SERVER_BACK_MS.1));
        self.server_back = Some(Instant::now() + Duration::from_millis(pause));
        true
    }

    /// Starts again what has ended and is to be started again.
    pub fn supervise(&mut self, random: &mut Random, now: Instant) -> Result<(), ClusterError> {
        let Self { daemons, hosts, service, .. } = self;
        for (daemon, host) in daemons.iter_mut().zip(hosts.iter()) {
            daemon.supervise(host, random, now)?;
        }
        if let Some(service) = service {
            service.supervise(&hosts[0], random, now)?;
        }
        if self.server_back.is_some_and(|at| at <= now) {
            self.server_back = None;
            let database = self.plan.accounting.as_ref().map(|accounting| &accounting.database);
            database.and_then(|database| database.server.as_ref()).into_iter().for_each(|server| server.run());
        }
        Ok(())
    }

    /// What its controller has not heard to be recorded.
    ///
    /// # Errors
    /// The controller does not answer.
    pub fn accounting_queue(&self) -> Fallible<u64> {
        let said = run(&mut self.command(0, "sdiag"))?;
        let line = said.lines().find_map(|line| line.strip_prefix("DBD Agent queue size:"));
        Ok(line.ok_or("sdiag does not say what waits for accounting")?.trim().parse()?)
    }

    /// Waits until all that has happened is recorded.
    ///
    /// # Errors
    /// It never is, or the controller does not answer.
    pub fn await_records(&self) -> Fallible<()> {
        let began = Instant::now();
        while self.accounting_queue()? > 0 {
            if began.elapsed() > RECORDS_PATIENCE {
                return Err("the service of accounting is behind for ever".into());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// The folder of the doors on the controller's host, as seen from here.
    pub fn doors(&self) -> Option<PathBuf> {
        Some(self.hosts.first()?.sees(Path::new("/run/garrick")).join(self.key()?))
    }

    /// The door of the service of accounting, as seen from here.
    pub fn accounting_door(&self) -> Option<PathBuf> {
        Some(self.doors()?.join(doors::ACCOUNTING))
    }

    /// Where epilogs put the journals of runs that are over.
    pub fn kept(&self) -> PathBuf {
        self.home.join("kept")
    }

    /// The configuration.
    pub fn conf(&self) -> PathBuf {
        self.home.join("slurm.conf")
    }

    fn write_files(&self) -> Result<(), ClusterError> {
        let bin = self.bin();
        for folder in [&bin, &self.kept(), &self.home.join("out")] {
            fs::create_dir_all(folder).map_err(failed("create", folder))?;
        }
        let of_accounting = self.plan.accounting.iter().flat_map(|_| OF_ACCOUNTING);
        for name in COMMANDS.into_iter().chain(of_accounting) {
            symlink("garrick", bin.join(name)).map_err(failed("link", &bin.join(name)))?;
        }
        // Not links to where they were built: that folder may be closed to other users.
        for (name, program) in [
            ("garrick", "garrick"),
            ("srun", "srun"),
            ("slurmctld", "noded"),
            ("slurmd", "noded"),
            ("slurmdbd", "noded"),
            ("noded", "noded"),
            ("stepd", "stepd"),
        ] {
            let (from, to) = (beside(program)?, bin.join(name));
            fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(|_| ())).map_err(failed("link", &to))?;
        }
        let epilog = self.home.join("epilog");
        let text = format!(
            "#!/bin/sh\nfrom={}/spool-$SLURMD_NODENAME/runs/$SLURM_JOB_SLUID/steps\n\
             to={}/$SLURM_JOB_SLUID\nif [ -e $from ]; then cp $from $to.new && mv $to.new $to; fi\n",
            self.home.display(),
            self.kept().display()
        );
        write_program(&epilog, &text)?;
        let hostname = run(&mut Command::new("hostname"))?;
        let (hostname, home) = (hostname.trim(), self.home.display());
        let mut conf = format!(
            "ClusterName={}\nSlurmctldHost={hostname}({})\nSlurmUser={}\nAuthType=auth/munge\n\
             SelectType=select/cons_tres\nStateSaveLocation={home}/state\nSlurmdSpoolDir={home}/spool-%n\n\
             SlurmctldPidFile={home}/ctld.pid\nSlurmdPidFile={home}/slurmd-%n.pid\nSlurmdParameters=config_overrides\n\
             ReturnToService=2\nEpilog={}\n{}",
            self.prefix,
            Self::address(0),
            self.plan.slurm_user.0,
            epilog.display(),
            self.plan.settings,
        );
        for (at, host) in self.hosts.iter().enumerate().skip(1).take(self.plan.nodes as usize) {
            let (node, address) = (&host.name, Self::address(at));
            conf +=
                &format!("NodeName={node} NodeAddr={address} NodeHostname={hostname} CPUs={CPUS} RealMemory=100000\n");
        }
        if let Some(Accounting { database }) = &self.plan.accounting {
            conf += "AccountingStorageType=accounting_storage/slurmdbd\n";
            let path = self.accounting_conf();
            let text = format!(
                "DbdHost=localhost\nSlurmUser={}\nPidFile={home}/dbd.pid\n{}",
                self.plan.slurm_user.0,
                database.lines()
            );
            database::write_settings(&path, &text).map_err(failed("write", &path))?;
        }
        conf += "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
        let (path, key) = (self.conf(), self.home.join("slurm.key"));
        fs::write(&path, conf).map_err(failed("write", &path))?;
        // The key that a site distributes, with which nodes prove themselves.
        fs::write(&key, "0123456789abcdef0123456789abcdef").map_err(failed("write", &key))?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).map_err(failed("protect", &key))?;
        // The controller reads it too.
        let owner = Some(self.plan.slurm_user.1);
        chown(&key, owner, owner).map_err(failed("give", &key))
    }

    fn daemon(&self, at: usize) -> Result<Daemon, ClusterError> {
        let host = &self.hosts[at];
        let log = self.home.join(format!("{}.log", host.name));
        let program = if at == 0 { "slurmctld" } else { "slurmd" };
        let mut args = vec!["-D".to_owned(), "-f".to_owned(), self.conf().to_string_lossy().into_owned()];
        if at > 0 {
            args.extend(["-N".to_owned(), host.name.clone()]);
        }
        let mut daemon = Daemon::new(self.bin().join(program), args, log);
        daemon.start(host)?;
        Ok(daemon)
    }

    fn start_accounting(&mut self) -> Result<(), ClusterError> {
        if self.plan.accounting.is_some() {
            let args = ["-D", "-f"].map(ToOwned::to_owned).into_iter();
            let args = args.chain([self.accounting_conf().to_string_lossy().into_owned()]).collect();
            let mut daemon = Daemon::new(self.bin().join("slurmdbd"), args, self.home.join("slurmdbd.log"));
            daemon.start(&self.hosts[0])?;
            self.service = Some(daemon);
        }
        Ok(())
    }

    fn wait_for_nodes(&self) -> Result<(), ClusterError> {
        let (began, wanted) = (Instant::now(), format!("idle {}", self.daemons.len() - 1));
        loop {
            let said = run(self.command(0, "sinfo").args(["-h", "-o", "%t %D"]));
            if said.as_ref().is_ok_and(|s| s.trim() == wanted) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(ClusterError::Unable(format!("the nodes do not come up: {said:?}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A program of the site as a user on that host. It is ended after `LONGEST_COMMAND`, with exit code 124.
    pub fn command_of(&self, uid: u32, host: usize, name: &str) -> Command {
        let mut c = self.hosts[host].command(Path::new("setpriv"));
        c.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "--"])
            .args(["timeout", "--kill-after=10", LONGEST_COMMAND])
            .arg(self.bin().join(name));
        c.env_clear().env("SLURM_CONF", self.conf()).env("HOME", "/").env("PATH", "/usr/bin:/bin").current_dir("/tmp");
        c
    }

    /// A command of root on that host.
    pub fn command(&self, host: usize, name: &str) -> Command {
        let mut c = self.hosts[host].command(&self.bin().join(name));
        c.env_clear().env("SLURM_CONF", self.conf()).env("HOME", "/root").env("PATH", "/usr/bin:/bin");
        c
    }

    /// Pulls a host's cable, or puts it back.
    pub fn cable(&self, host: usize, state: &str) -> Result<(), ClusterError> {
        ip(&format!("-n {}-switch link set p{host} {state}", self.prefix)).map(drop)
    }

    /// The cluster's folder name in `/run/garrick` and among cgroups.
    pub fn key(&self) -> Option<String> {
        let entries = fs::read_dir(self.hosts.first()?.sees(Path::new("/run/garrick"))).ok()?;
        entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).next()
    }

    /// The home is to stay, for who wants to know what happened.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Copies the controller's journal out of its disk, which goes with its host. Returns the folder.
    pub fn save_journal(&self) -> Result<PathBuf, ClusterError> {
        let to = self.home.join("controller-journal");
        fs::create_dir_all(&to).map_err(failed("create", &to))?;
        let from = self.hosts.first().map_or_else(PathBuf::new, |h| h.sees(&self.home.join("state")));
        for entry in fs::read_dir(&from).map_err(failed("list", &from))?.flatten() {
            let name = entry.file_name();
            if ["journal", "snapshot"].iter().any(|kind| name.to_string_lossy().starts_with(kind)) {
                fs::copy(entry.path(), to.join(&name)).map_err(failed("copy", &entry.path()))?;
            }
        }
        Ok(to)
    }
}

/// Writes a script that can be executed.
pub fn write_program(path: &Path, text: &str) -> Result<(), ClusterError> {
    fs::write(path, text).map_err(failed("write", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(failed("open", path))
}

/// Opens a log to be written on.
pub fn append(path: &Path) -> Result<File, ClusterError> {
    File::options().create(true).append(true).open(path).map_err(failed("open", path))
}

impl Drop for Site {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().chain(&mut self.service) {
            daemon.kill();
        }
        for pid in super::population::with_text(&self.home.to_string_lossy()) {
            super::population::signal(pid, nix::sys::signal::Signal::SIGKILL);
        }
        // Launchers, whose words do not name the folder, wait for a step daemon for minutes.
        for host in &self.hosts {
            let there = run(Command::new("ip").args(["netns", "pids", &host.namespace])).unwrap_or_default();
            for pid in there.split_whitespace().filter_map(|pid| pid.parse().ok()) {
                super::population::signal(pid, nix::sys::signal::Signal::SIGKILL);
            }
        }
        for host in &mut self.hosts {
            // Gone already is as good.
            let _ = host.holder.kill();
            let _ = host.holder.wait();
        }
        let names = self.hosts.iter().map(|h| h.namespace.clone()).chain([format!("{}-switch", self.prefix)]);
        for name in names.filter(|n| Path::new("/run/netns").join(n).exists()) {
            if let Err(e) = ip(&format!("netns del {name}")) {
                eprintln!("garrick-faults: {e}");
            }
        }
        if !self.keep
            && let Err(e) = remove(&self.home)
        {
            eprintln!("garrick-faults: {e}");
        }
    }
}
