//! The service of accounting on a host of its own, with two clusters, whose controllers reach it by QUIC only. Needs root.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{
    Answer, Killed, built, copy_program, is_root,
    network::{Network, ip, on_host_as, tail},
    scratch,
};
use std::{
    collections::BTreeMap,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::PathBuf,
};

/// 10.77.0.1 to 10.77.0.6: controller and node of `maple`, controller and node of `oak`, the service, and another one.
const HOSTS: &[&str] = &["ctl", "a", "oak", "b", "acct", "spare"];
/// Users of Debian's base system: SlurmUser (`daemon`), a user (`games`), another (`news`).
const SLURM: u32 = 1;
const ALICE: u32 = 5;
const BOB: u32 = 9;
/// Not the default, so that the setting has an effect.
const PORT: u16 = 7031;
const KEY: &str = "key of the controllers and the service of accounting";

struct Site {
    work: PathBuf,
    network: Network,
    daemons: BTreeMap<&'static str, Killed>,
    logs: Vec<(&'static str, PathBuf)>,
}

fn folder_of(host: &str) -> &'static str {
    match host {
        "oak" | "b" => "oak",
        "spare" => "spare",
        _ => "maple",
    }
}

impl Site {
    /// The two clusters and the service at work. `None`, with a message, where that cannot be.
    fn start(name: &str, settings: &str) -> Option<Self> {
        if !is_root() || ip("netns list").code != 0 {
            eprintln!("skipped: {name} needs root and network namespaces");
            return None;
        }
        let (work, bin) = (scratch(name), built());
        for program in ["garrick", "srun"] {
            copy_program(&bin.join(program), &work.join(program));
        }
        for name in ["sbatch", "sinfo", "scontrol", "squeue", "sacct", "sacctmgr", "sdiag", "strigger"] {
            symlink("garrick", work.join(name)).unwrap();
        }
        for (name, program) in [("slurmctld", "noded"), ("slurmd", "noded"), ("slurmdbd", "noded"), ("stepd", "stepd")]
        {
            let (from, to) = (bin.join(program), work.join(name));
            if std::fs::hard_link(&from, &to).is_err() {
                copy_program(&from, &to);
            }
        }
        let mut site = Self { work, network: Network::make(HOSTS), daemons: BTreeMap::new(), logs: Vec::new() };
        site.write_cluster("maple", "maple", (1, "a", 2), settings);
        site.write_cluster("oak", "oak", (3, "b", 4), settings);
        site.write_service("maple", "acct", "");
        for (host, program) in [("acct", "slurmdbd"), ("ctl", "slurmctld"), ("oak", "slurmctld")] {
            site.daemon(host, program, folder_of(host));
        }
        for node in ["a", "b"] {
            site.daemon(node, "slurmd", folder_of(node));
        }
        for host in ["ctl", "oak"] {
            site.await_that("the node is there", || {
                site.run(0, host, "sinfo", &["-h", "-o", "%t"]).out.trim() == "idle"
            });
        }
        Some(site)
    }

    /// `slurm.conf` and the keys of a cluster, in a folder. `hosts`: its controller's address, its node and that one's address.
    fn write_cluster(&self, folder: &str, cluster: &str, (controller, node, at): (u8, &str, u8), settings: &str) {
        let (own, hostname) = (self.work.join(folder), nix::unistd::gethostname().unwrap().into_string().unwrap());
        std::fs::create_dir_all(&own).unwrap();
        let text = format!(
            "ClusterName={cluster}\nSlurmctldHost={hostname}(10.77.0.{controller})\nSlurmUser=daemon\nSelectType=select/cons_tres\n\
             StateSaveLocation={o}/state\nSlurmdSpoolDir={o}/spool-%n\nSlurmctldPidFile={o}/ctld.pid\n\
             SlurmdPidFile={o}/slurmd-%n.pid\nSlurmdParameters=config_overrides\n\
             AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=10.77.0.5\nAccountingStoragePort={PORT}\n\
             {settings}NodeName={node} NodeAddr=10.77.0.{at} NodeHostname={hostname} CPUs=4 RealMemory=1000\n\
             PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
            o = own.display(),
        );
        std::fs::write(own.join("slurm.conf"), text).unwrap();
        self.write_key(folder, "slurm.key", "0123456789abcdef0123456789abcdef");
        self.write_key(folder, "slurmdbd.key", KEY);
    }

    /// A key file that SlurmUser and root can read.
    fn write_key(&self, folder: &str, name: &str, text: &str) {
        let path = self.work.join(folder).join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(SLURM), Some(SLURM)).unwrap();
    }

    /// `slurmdbd.conf` in a folder, of a service that keeps its database in another one.
    fn write_service(&self, folder: &str, database: &str, settings: &str) {
        let (w, own) = (self.work.display(), self.work.join(folder));
        let hostname = nix::unistd::gethostname().unwrap().into_string().unwrap();
        let text = format!(
            "DbdHost={hostname}\nDbdPort={PORT}\nSlurmUser=daemon\nStorageType=accounting_storage/sqlite\n\
             StorageLoc={w}/{database}/accounting.db\nPidFile={}/dbd.pid\nPrivateData=jobs\n{settings}",
            own.display()
        );
        std::fs::write(own.join("slurmdbd.conf"), text).unwrap();
    }

    /// Starts a daemon on a host, with the configuration of a folder.
    fn daemon(&mut self, host: &'static str, program: &str, folder: &str) {
        let log = self.work.join(format!("{host}-{}.log", self.logs.len()));
        let conf = if program == "slurmdbd" { "slurmdbd.conf" } else { "slurm.conf" };
        let conf = self.work.join(folder).join(conf).to_string_lossy().into_owned();
        let mut words = vec!["-D", "-f", conf.as_str()];
        if program == "slurmd" {
            words.extend(["-N", host]);
        }
        let daemon = self.network.daemon(host, &self.work.join(program), &words, &log);
        self.logs.push((host, log));
        self.daemons.insert(host, daemon);
    }

    /// Kills a host's daemon with SIGKILL.
    fn kill(&mut self, host: &str) {
        drop(self.daemons.remove(host));
    }

    fn run(&self, uid: u32, host: &str, program: &str, words: &[&str]) -> Answer {
        self.run_with(folder_of(host), uid, host, program, words)
    }

    fn run_with(&self, folder: &str, uid: u32, host: &str, program: &str, words: &[&str]) -> Answer {
        let conf = self.work.join(folder).join("slurm.conf");
        on_host_as(uid, &self.daemons[host], &conf, &self.work.join(program), words)
    }

    fn submit(&self, uid: u32, host: &str, name: &str) {
        self.run(uid, host, "sbatch", &["-J", name, "--mem=10", "-o", "/dev/null", "--wrap", "true"]).ok();
    }

    /// `cluster|name|state` of all jobs that somebody sees from a host, in order.
    fn jobs(&self, uid: u32, host: &str, words: &[&str]) -> Vec<String> {
        let all = [&["-a", "-D", "-nPX", "-o", "cluster,jobname,state"], words].concat();
        let mut lines: Vec<String> = self.run(uid, host, "sacct", &all).out.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    #[track_caller]
    fn await_jobs(&self, uid: u32, host: &str, words: &[&str], expected: &[&str]) {
        let mut last = Vec::new();
        let began = std::time::Instant::now();
        while last != expected {
            assert!(
                began.elapsed().as_secs() < 90,
                "uid {uid} on {host} sees {last:?}, not {expected:?}\n{}",
                self.tail()
            );
            last = self.jobs(uid, host, words);
        }
    }

    #[track_caller]
    fn await_that(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let began = std::time::Instant::now();
        while !holds() {
            assert!(began.elapsed().as_secs() < 90, "still waiting: {what}\n{}", self.tail());
        }
    }

    fn tail(&self) -> String {
        let paths: Vec<PathBuf> = self.logs.iter().map(|(_, path)| path.clone()).collect();
        tail(&paths)
    }

    /// How often logs of a host have a text.
    fn logged(&self, host: &str, text: &str) -> usize {
        let of_host = self.logs.iter().filter(|(of, _)| *of == host);
        of_host.map(|(_, path)| std::fs::read_to_string(path).unwrap_or_default().matches(text).count()).sum()
    }

    fn queued(&self, host: &str) -> u64 {
        let said = self.run(0, host, "sdiag", &[]).out;
        let line = said.lines().find_map(|line| line.strip_prefix("DBD Agent queue size:"));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or_else(|| panic!("{said}"))
    }

    fn end(mut self) {
        for host in ["ctl", "oak"] {
            self.await_that("no job runs", || self.run(0, host, "squeue", &["-h", "-t", "R,CG"]).out.is_empty());
            self.run(0, host, "scontrol", &["shutdown"]).ok();
        }
        for host in ["a", "b", "ctl", "oak"] {
            if let Some(mut daemon) = self.daemons.remove(host) {
                daemon.0.wait().unwrap();
            }
        }
        self.daemons.clear();
        let needle = self.work.to_string_lossy();
        let left: Vec<String> =
            crate::support::command_lines().into_iter().filter(|line| line.contains(&*needle)).collect();
        assert_eq!(left, Vec::<String>::new(), "processes left");
        let _ = std::fs::remove_dir_all(&self.work);
    }
}

#[test]
fn two_clusters_are_kept_by_a_service_on_another_host() {
    let Some(mut site) = Site::start("far-accounting", "") else { return };
    for (uid, host, name) in [(ALICE, "a", "hers"), (BOB, "a", "his"), (ALICE, "b", "there")] {
        site.submit(uid, host, name);
    }
    let (hers, his, there) = ("maple|hers|COMPLETED", "maple|his|COMPLETED", "oak|there|COMPLETED");
    // Everybody sees of his cluster what is his, from each of its hosts; administrators all, from where they are trusted.
    for host in ["a", "ctl"] {
        site.await_jobs(ALICE, host, &[], &[hers]);
        site.await_jobs(BOB, host, &[], &[his]);
    }
    site.await_jobs(ALICE, "a", &["-L"], &[hers, there]);
    site.await_jobs(ALICE, "a", &["-M", "oak"], &[there]);
    site.await_jobs(ALICE, "oak", &[], &[there]);
    for uid in [0, SLURM] {
        site.await_jobs(uid, "ctl", &[], &[hers, his]);
        site.await_jobs(uid, "oak", &["-L"], &[hers, his, there]);
        assert_eq!(site.jobs(uid, "a", &["-L"]), [""; 0], "{uid} of a node is nobody");
    }
    let clusters = ["-nP", "list", "cluster", "format=cluster,controlhost,controlport"];
    assert_eq!(site.run(ALICE, "a", "sacctmgr", &clusters).out, "maple|10.77.0.1|6817\noak|10.77.0.3|6817\n");
    let ping = site.run(BOB, "b", "sacctmgr", &["ping"]);
    assert!(
        ping.code == 0 && ping.out.starts_with("slurmdbd(primary) at ") && ping.out.ends_with(" is UP\n"),
        "{ping:?}"
    );

    // A change reaches both controllers, from those who may make it.
    for (uid, host) in [(ALICE, "oak"), (0, "a"), (SLURM, "b")] {
        let refused = site.run(uid, host, "sacctmgr", &["-i", "add", "account", "physics"]);
        assert_ne!(refused.code, 0, "{uid} on {host}: {refused:?}");
    }
    site.run(0, "oak", "sacctmgr", &["-i", "add", "account", "physics"]).ok();
    for host in ["ctl", "oak"] {
        let shown = || site.run(0, host, "scontrol", &["show", "assoc_mgr", "flags=assoc"]).out;
        site.await_that("the controller knows the account", || shown().contains("Account=physics"));
    }

    // While the service is away, and the controller is killed too, nothing waits and nothing is lost.
    site.kill("acct");
    site.await_that("its loss is noticed", || site.logged("ctl", "is not fed now") > 0);
    for _ in 0..3 {
        site.submit(BOB, "a", "away");
    }
    site.await_that("they are over", || site.run(0, "ctl", "squeue", &["-h", "-t", "PD,R,CG"]).out.is_empty());
    site.await_that("they wait for the service", || site.queued("ctl") > 0);
    let away = site.run(BOB, "a", "sacct", &[]);
    assert!(away.code == 1 && away.err.contains("Problem talking to the database"), "{away:?}");
    site.kill("ctl");
    site.daemon("ctl", "slurmctld", "maple");
    site.daemon("acct", "slurmdbd", "maple");
    let gone = "maple|away|COMPLETED";
    site.await_jobs(BOB, "a", &[], &[gone, gone, gone, his]);

    // The same while the way to it is cut.
    site.network.cable("acct", "down");
    let before = site.logged("oak", "is not fed now");
    site.submit(ALICE, "b", "cut");
    site.await_that("the loss is noticed", || site.logged("oak", "is not fed now") > before);
    site.network.cable("acct", "up");
    site.await_jobs(ALICE, "b", &[], &["oak|cut|COMPLETED", there]);
    site.await_jobs(0, "ctl", &["-L"], &[gone, gone, gone, hers, his, "oak|cut|COMPLETED", there]);
    site.end();
}

#[test]
fn a_backup_host_takes_over_when_the_service_ends() {
    let Some(mut site) = Site::start("spare-accounting", "AccountingStorageBackupHost=10.77.0.6\n") else { return };
    let both = "DbdBackupHost=spare\n";
    site.write_cluster("spare", "maple", (1, "a", 2), "");
    site.write_service("spare", "acct", both);
    site.daemon("spare", "slurmdbd", "spare");
    site.await_that("it stands by", || site.logged("spare", "this one stands by") == 1);
    site.submit(ALICE, "a", "first");
    site.await_jobs(ALICE, "a", &[], &["maple|first|COMPLETED"]);
    site.kill("acct");
    site.await_that("it takes over", || site.logged("spare", "this one serves") == 1);
    site.submit(ALICE, "a", "second");
    site.await_jobs(ALICE, "a", &[], &["maple|first|COMPLETED", "maple|second|COMPLETED"]);
    // The first one comes back, and waits for its turn.
    site.write_service("maple", "acct", both);
    site.daemon("acct", "slurmdbd", "maple");
    site.await_that("it stands by", || site.logged("acct", "this one stands by") == 1);
    site.kill("spare");
    site.submit(ALICE, "a", "third");
    let all = ["maple|first|COMPLETED", "maple|second|COMPLETED", "maple|third|COMPLETED"];
    site.await_jobs(ALICE, "a", &[], &all);
    site.end();
}

/// Makes more events than may wait: the tasks of an array are told apart one by one.
fn fill(site: &Site) -> String {
    let array = ["-H", "-a", "0-5999", "--mem=10", "-o", "/dev/null", "--wrap", "true"];
    let job = site.run(0, "ctl", "sbatch", &array).ok().job();
    // In parts: a command waits for an answer for some seconds only.
    for first in (1..6000).step_by(500) {
        let tasks = format!("JobId={job}_[{first}-{}]", (first + 499).min(5999));
        site.run(0, "ctl", "scontrol", &["update", &tasks, "Comment=seen"]).ok();
    }
    job
}

#[test]
fn too_much_that_waits_is_given_up_or_ends_the_controller() {
    let settings = "MaxDBDMsgs=10000\nMaxArraySize=6001\nMaxJobCount=20000\n";
    let Some(mut site) = Site::start("full-accounting", settings) else { return };
    site.submit(ALICE, "a", "before");
    site.await_jobs(ALICE, "a", &[], &["maple|before|COMPLETED"]);
    let told = site.work.join("told");
    let tell = site.work.join("tell");
    let text = format!("#!/bin/sh\\necho full \"$1\" >> {}\\n", told.display());
    let line = format!("printf '{text}' > {0}; chmod 755 {0}; > {1}; chmod 666 {1}", tell.display(), told.display());
    assert!(std::process::Command::new("/bin/sh").args(["-c", &line]).status().unwrap().success());
    // Of SlurmUser.
    site.run(1, "ctl", "strigger", &["--set", "-e", "-p", tell.to_str().unwrap()]).ok();
    site.kill("acct");
    let job = fill(&site);
    site.await_that("a trigger tells of it", || std::fs::read_to_string(&told).is_ok_and(|text| text == "full *\n"));
    site.await_that("the oldest are given up", || site.logged("ctl", "the oldest events are given up") > 0);
    site.await_that("the queue is shorter", || site.queued("ctl") <= 10_000);
    site.daemon("acct", "slurmdbd", "maple");
    // What the controller still knows is all there, and what comes after.
    let tasks = ["-nPX", "-j", &job, "-o", "comment"];
    site.await_that("its jobs are recorded", || {
        site.run(0, "ctl", "sacct", &tasks).out.matches("seen").count() == 5999
    });
    site.submit(ALICE, "a", "after");
    site.await_jobs(ALICE, "a", &[], &["maple|after|COMPLETED", "maple|before|COMPLETED"]);

    // The other way: it ends, and does not start without the service.
    site.await_that("all is stored", || site.queued("ctl") < 1000);
    site.kill("ctl");
    let conf = site.work.join("maple/slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("SlurmctldParameters=max_dbd_msg_action=exit\n{text}")).unwrap();
    site.daemon("ctl", "slurmctld", "maple");
    site.await_that("it serves", || site.run(0, "ctl", "squeue", &["-h"]).code == 0);
    site.await_that("it feeds", || site.logged("ctl", "the service of accounting is fed") > 2);
    site.kill("acct");
    let job = fill(&site);
    let ended = |site: &mut Site| site.daemons.get_mut("ctl").unwrap().0.try_wait().unwrap().is_some();
    while !ended(&mut site) {
        assert_eq!(site.logged("ctl", "the oldest events are given up"), 1);
    }
    site.daemon("ctl", "slurmctld", "maple");
    while !ended(&mut site) {}
    site.daemon("acct", "slurmdbd", "maple");
    site.daemon("ctl", "slurmctld", "maple");
    site.await_that("all is stored", || {
        site.run(0, "ctl", "sacct", &["-nPX", "-j", &job, "-o", "comment"]).out.matches("seen").count() == 5999
    });
    site.end();
}

#[test]
fn impostors_are_neither_fed_nor_feed() {
    let Some(mut site) = Site::start("false-accounting", "") else { return };
    site.submit(ALICE, "a", "true");
    site.await_jobs(ALICE, "a", &[], &["maple|true|COMPLETED"]);

    // A controller that says it is that of maple, even with the site's key, on a host of its own.
    site.write_cluster("spare", "maple", (6, "a", 2), "");
    site.daemon("spare", "slurmctld", "spare");
    site.await_that("it is refused", || site.logged("spare", "cluster maple is that of another controller") > 0);
    site.kill("spare");

    // A service without the site's key, where the true one was.
    site.kill("acct");
    site.write_service("spare", "false", "");
    site.write_key("spare", "slurmdbd.key", "some other key, of the right length");
    site.daemon("acct", "slurmdbd", "spare");
    site.await_that("it is found out", || site.logged("ctl", "the proof is wrong") > 0);
    let asked = site.run(ALICE, "a", "sacct", &[]);
    assert!(asked.code == 1 && asked.out.is_empty(), "{asked:?}");
    let clusters = site.run_with("spare", 0, "acct", "sacctmgr", &["-nP", "list", "cluster"]);
    assert_eq!((clusters.code, clusters.out.as_str()), (0, ""), "it has nothing: {clusters:?}");
    site.kill("acct");
    site.daemon("acct", "slurmdbd", "maple");
    site.submit(ALICE, "a", "true");
    let both = ["maple|true|COMPLETED", "maple|true|COMPLETED"];
    site.await_jobs(ALICE, "a", &[], &both);

    // A cluster whose line is gone is shut out at once, with a certificate that is valid for years; the other one is not.
    let clusters = site.work.join("acct/network/clusters");
    let text = std::fs::read_to_string(&clusters).unwrap();
    let others: String =
        text.lines().filter(|line| !line.starts_with("maple ")).map(|line| format!("{line}\n")).collect();
    assert_ne!(others, text);
    std::fs::write(&clusters, others).unwrap();
    let told = "cluster maple is not enrolled with this controller's key";
    site.await_that("it is shut out", || site.logged("ctl", told) > 0);
    site.await_that("its commands are too", || site.run(ALICE, "a", "sacct", &[]).code == 1);
    site.await_jobs(0, "oak", &["-M", "maple"], &both);
    // By sacctmgr it is the same.
    site.kill("ctl");
    std::fs::remove_dir_all(site.work.join("maple/state/accounting")).unwrap();
    site.daemon("ctl", "slurmctld", "maple");
    site.await_jobs(ALICE, "a", &[], &both);
    let before = site.logged("ctl", told);
    site.run(0, "oak", "sacctmgr", &["-i", "delete", "cluster", "maple"]).ok();
    site.await_that("it is shut out again", || site.logged("ctl", told) > before);
    site.kill("ctl");
    std::fs::remove_dir_all(site.work.join("maple/state/accounting")).unwrap();
    site.daemon("ctl", "slurmctld", "maple");
    // Its node is back too, or it would not be told to end.
    site.await_that("the controller is there", || site.run(ALICE, "ctl", "squeue", &["-h"]).code == 0);
    site.submit(ALICE, "ctl", "true");
    site.await_jobs(ALICE, "a", &[], &["maple|true|COMPLETED"; 3]);
    site.end();
}
