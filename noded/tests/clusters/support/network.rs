//! Hosts on one machine: network namespaces joined by a bridge, each with a `/run` of its own, so that nothing but QUIC connects
//! them. Needs root.

use super::{Answer, Killed, answer};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// A switch and hosts.
pub struct Network {
    prefix: String,
    hosts: &'static [&'static str],
}

pub fn ip(line: &str) -> Answer {
    answer(Command::new("ip").args(line.split_whitespace()).stdin(Stdio::null()))
}

impl Network {
    /// The hosts have the addresses 10.77.0.1, 10.77.0.2 and so on.
    pub fn make(hosts: &'static [&'static str]) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("gt{}.{serial}", std::process::id() % 100_000);
        let n = Self { prefix, hosts };
        let switch = n.name("sw");
        ip(&format!("netns add {switch}")).ok();
        ip(&format!("-n {switch} link add br0 type bridge")).ok();
        ip(&format!("-n {switch} link set br0 up")).ok();
        for (i, host) in hosts.iter().enumerate() {
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

    /// Pulls a host's cable, or puts it back.
    pub fn cable(&self, host: &str, state: &str) {
        let port = self.hosts.iter().position(|h| *h == host).unwrap();
        ip(&format!("-n {} link set p{port} {state}", self.name("sw"))).ok();
    }

    fn name(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    /// A daemon in the foreground on one host, with an empty `/run/garrick` of that host's own.
    pub fn daemon(&self, host: &str, program: &Path, args: &[&str], log: &Path) -> Killed {
        let log = std::fs::File::create(log).unwrap();
        Killed(
            Command::new("ip")
                .args(["netns", "exec", &self.name(host), "sh", "-c"])
                .arg(
                    "for d in garrick garrick-daemon; do mkdir -p /run/$d && mount -t tmpfs none /run/$d || exit 1; done; \
                     exec \"$0\" \"$@\"",
                )
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
        for host in self.hosts.iter().chain(&["sw"]) {
            ip(&format!("netns del {}", self.name(host)));
        }
    }
}

/// A command on the host where a daemon runs, as root.
pub fn on_host(daemon: &Killed, conf: &Path, program: &Path, args: &[&str]) -> Answer {
    on_host_as(0, daemon, conf, program, args)
}

/// As a user.
pub fn on_host_as(uid: u32, daemon: &Killed, conf: &Path, program: &Path, args: &[&str]) -> Answer {
    answer(
        Command::new("nsenter")
            .args(["-t", &daemon.0.id().to_string(), "-m", "-n", "--"])
            .args(["setpriv", &format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups"])
            .arg("env")
            .arg(format!("SLURM_CONF={}", conf.display()))
            .arg(program)
            .args(args)
            .current_dir("/tmp")
            .stdin(Stdio::null()),
    )
}

pub fn tail(paths: &[PathBuf]) -> String {
    paths.iter().map(|p| format!("== {}\n{}", p.display(), std::fs::read_to_string(p).unwrap_or_default())).collect()
}
