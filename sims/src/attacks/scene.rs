//! The cluster that is attacked, as sites deploy one: a controller that runs as SlurmUser, node daemons of root, each on a
//! host of its own, no host but the controller's trusted; and a host without a daemon on the same network.

use super::{Fallible, attacker};
use crate::{
    faults::{
        daemon::Daemon,
        site::{Plan, Site, write_program},
    },
    minibatch::cluster::{fresh_home, own_program},
};
use garrick_model::{
    config::{self, Config},
    messages::command::{CommandReply, CommandRequest},
};
use nix::sched::{CloneFlags, setns};
use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Longest for anything to become true. Machines may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Accounts that every Debian has: SlurmUser, the victim, the attacker.
const SLURM: (&str, u32) = ("daemon", 1);
/// The victim.
pub const ALICE: u32 = 5;
/// The attacker.
pub const BOB: u32 = 65_534;
/// Root.
pub const ROOT: u32 = 0;

/// The controller's host.
pub const CTL: usize = 0;
/// The first node's.
pub const N1: usize = 1;
/// The node whose identity is stolen.
pub const STOLEN: usize = 3;
/// The host without a daemon.
pub const STRANGER: usize = 4;

/// A text of the victim that no other user may read: in her script, and in her environment.
pub const SECRETS: [&str; 2] = ["written-secret-4711", "exported-secret-4712"];
/// The port of every daemon (Slurm's: `SlurmctldPort`, `SlurmdPort`).
const PORTS: (u16, u16) = (6817, 6818);

/// What a command answered.
#[derive(Clone, Debug)]
pub struct Said {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// The answer, which must have been a success: the honest counterpart of an attack.
    pub fn ok(self, what: &str) -> Fallible<Self> {
        if self.code == 0 {
            return Ok(self);
        }
        Err(format!("{what} does not work for those who may do it: {} {}", self.out.trim(), self.err.trim()).into())
    }

    /// Its last line, for people.
    pub fn last_line(&self) -> &str {
        self.err.lines().chain(self.out.lines()).next_back().unwrap_or("no word")
    }
}

/// The cluster and its users.
#[derive(Debug)]
pub struct Scene {
    /// The cluster.
    pub site: Site,
    /// A running job of the victim's on the first node.
    pub job: String,
    /// A held array of hers.
    pub array: String,
    /// The cluster's configuration.
    pub config: Config,
}

/// On one line, as short as a table likes it.
pub fn one_line(text: &str) -> String {
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(300).collect()
}

impl Scene {
    /// Starts the cluster, and the victim's jobs on it.
    pub fn up() -> Fallible<Self> {
        let home = fresh_home("attacks")?;
        let prolog = home.join("prolog");
        write_program(&prolog, "#!/bin/sh\nexit 0\n")?;
        let settings =
            format!("Prolog={}\nSlurmdTimeout=300\nMaxTasksPerNode=512\nDefMemPerCPU=100\n", prolog.display());
        let site = Site::up_with(home, Plan { nodes: 3, strangers: 1, slurm_user: SLURM, settings, accounting: None })?;
        let config = config::read_reporting(&site.conf()).0.ok_or("the configuration is not understood")?;
        // A copy where every user may execute it.
        let own = (own_program()?, site.bin().join("attacker"));
        fs::hard_link(&own.0, &own.1).or_else(|_| fs::copy(&own.0, &own.1).map(|_| ()))?;
        let mut scene = Self { site, job: String::new(), array: String::new(), config };
        for (user, uid) in [("alice", ALICE), ("bob", BOB)] {
            let folder = scene.folder(user);
            fs::create_dir(&folder)?;
            chown(&folder, Some(uid), Some(uid))?;
        }
        let text = format!("#!/bin/bash\n# {}\nexec sleep 100000\n", SECRETS[0]);
        let script = scene.script("alice", "job.sh", &text)?;
        let export = format!("--export=ALL,TOLD={}", SECRETS[1]);
        scene.job = scene.submit(ALICE, CTL, &["-J", "hers", "-w", "n1", "-n2", &export, &script])?;
        scene.array = scene.submit(ALICE, CTL, &["-J", "array", "-H", "--array=0-99", &script])?;
        if let Err(e) = scene.until("her job runs", |scene| Ok(scene.state(&scene.job)? == "RUNNING")) {
            let shown = scene.shown(&["job", &scene.job])?;
            return Err(format!("{e}: {shown}\n{}\n{}", scene.log(CTL), scene.log(N1)).into());
        }
        Ok(scene)
    }

    /// A folder of a user.
    pub fn folder(&self, user: &str) -> PathBuf {
        self.site.home.join(user)
    }

    /// A script of a user. Returns its path.
    pub fn script(&self, user: &str, name: &str, text: &str) -> Fallible<String> {
        let path = self.folder(user).join(name);
        write_program(&path, text)?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// A command of a user on a host.
    pub fn command(&self, uid: u32, host: usize, program: &str, args: &[&str]) -> Command {
        let mut command = self.site.command_of(uid, host, program);
        command.args(args);
        command
    }

    /// Runs it.
    pub fn run(&self, uid: u32, host: usize, program: &str, args: &[&str]) -> Fallible<Said> {
        said(self.command(uid, host, program, args))
    }

    /// Submits a job that writes nothing. Returns its id.
    pub fn submit(&self, uid: u32, host: usize, args: &[&str]) -> Fallible<String> {
        let mut all = vec!["--parsable", "-o", "/dev/null"];
        all.extend(args);
        Ok(self.run(uid, host, "sbatch", &all)?.ok("sbatch")?.out.trim().to_owned())
    }

    /// The state of a job.
    pub fn state(&self, job: &str) -> Fallible<String> {
        let shown = self.run(ROOT, CTL, "squeue", &["-h", "-t", "all", "-o", "%T", "-j", job])?;
        Ok(shown.out.lines().next().unwrap_or_default().trim().to_owned())
    }

    /// A job, node or whatever as `scontrol -o show` has it.
    pub fn shown(&self, words: &[&str]) -> Fallible<String> {
        let mut all = vec!["-o", "show"];
        all.extend(words);
        Ok(self.run(ROOT, CTL, "scontrol", &all)?.ok("scontrol show")?.out)
    }

    /// The states of all nodes, in order.
    pub fn nodes(&self) -> Fallible<String> {
        let listed = self.run(ROOT, CTL, "sinfo", &["-h", "-N", "-o", "%N=%T"])?.ok("sinfo")?;
        Ok(listed.out.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// What the victim has, as an attacker could have changed it.
    pub fn hers(&self) -> Fallible<String> {
        let show = |job: &str| {
            let shown = self.shown(&["job", job])?;
            // But for what changes by itself.
            let words = shown.split_whitespace().filter(|word| !word.starts_with("RunTime="));
            Fallible::Ok(words.collect::<Vec<_>>().join(" "))
        };
        Ok(format!("{} {}", show(&self.job)?, show(&self.array)?))
    }

    /// Waits until it is so.
    pub fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> Fallible<bool>) -> Fallible<()> {
        let began = Instant::now();
        while !holds(self)? {
            if began.elapsed() > PATIENCE {
                return Err(format!("still waiting: {what}").into());
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Somebody works honestly on the first node.
    pub fn works(&self, uid: u32) -> Fallible<()> {
        let ran = self.run(uid, CTL, "srun", &["-w", "n1", "-n1", "--overlap", "id", "-u"])?.ok("srun")?;
        if ran.out.trim() == uid.to_string() { Ok(()) } else { Err(format!("srun ran as {}", ran.out.trim()).into()) }
    }

    /// A daemon's door, as processes of its host see it.
    pub fn door(&self, host: usize) -> Fallible<PathBuf> {
        match host {
            CTL => Ok(self.config.slurm_user_dir().ok_or("SlurmUser is root")?.join("ctl.sock")),
            node => Ok(self.config.run_dir(0, None).join(format!("{}.sock", self.site.hosts[node].name))),
        }
    }

    /// The QUIC address of a host's daemon.
    pub fn address(&self, host: usize) -> String {
        format!("{}:{}", Site::address(host), if host == CTL { PORTS.0 } else { PORTS.1 })
    }

    /// Requests that no command makes, from a user's process at a daemon's door. Each is answered before the next is sent.
    /// An error text stands where no answer came.
    pub fn ask(
        &self,
        uid: u32,
        host: usize,
        requests: &[CommandRequest],
    ) -> Fallible<Vec<Result<CommandReply, String>>> {
        let door = self.door(host)?.to_string_lossy().into_owned();
        self.attacker(uid, host, &[attacker::ASK, &door], &serde_json::to_vec(requests)?)
    }

    /// This program as a user's process: gives it `input` and reads what it found.
    pub fn attacker<T: serde::de::DeserializeOwned>(
        &self,
        uid: u32,
        host: usize,
        words: &[&str],
        input: &[u8],
    ) -> Fallible<T> {
        let mut child = self.start_attacker(uid, host, words)?;
        // It may end before it has read all.
        let _ = child.stdin.take().ok_or("no standard input")?.write_all(input);
        let output = child.wait_with_output()?;
        serde_json::from_slice(&output.stdout)
            .map_err(|e| format!("{words:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }

    /// The same, which goes on until its input ends.
    pub fn start_attacker(&self, uid: u32, host: usize, words: &[&str]) -> Fallible<Child> {
        let mut command = self.site.command_of(uid, host, "attacker");
        command.arg(attacker::WORD).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command.spawn()?)
    }

    /// Work of a process in a host's network: on a thread whose sockets are there.
    pub fn on_network<T: Send>(&self, host: usize, work: impl FnOnce() -> Result<T, String> + Send) -> Fallible<T> {
        let namespace = self.site.network(host);
        let inside = || {
            enter_network(&namespace)?;
            work()
        };
        let joined = thread::scope(|scope| scope.spawn(inside).join());
        Ok(joined.map_err(|_| "the thread in the network panicked")??)
    }

    /// The process of a host's daemon.
    pub fn daemon(&self, host: usize) -> Fallible<u32> {
        let pid = self.site.daemons.get(host).and_then(Daemon::pid);
        pid.ok_or_else(|| format!("{} has no daemon", self.site.hosts[host].name).into())
    }

    /// The log of a host's daemon.
    pub fn log(&self, host: usize) -> String {
        let path = self.site.home.join(format!("{}.log", self.site.hosts[host].name));
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }

    /// A file as a host sees it.
    pub fn sees(&self, host: usize, path: &Path) -> PathBuf {
        self.site.hosts[host].sees(path)
    }

    /// The supervised daemon of a host.
    pub fn supervised(&mut self, host: usize) -> &mut Daemon {
        &mut self.site.daemons[host]
    }
}

/// Moves this thread into a network: the sockets that it opens from then on are there.
pub fn enter_network(namespace: &Path) -> Result<(), String> {
    let entered = File::open(namespace).map_err(|e| e.to_string());
    entered.and_then(|net| setns(net, CloneFlags::CLONE_NEWNET).map_err(|e| e.to_string()))
}

/// Runs a command.
pub fn said(mut command: Command) -> Fallible<Said> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) })
}
