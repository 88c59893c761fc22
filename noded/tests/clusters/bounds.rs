//! What one user can ask of the controller, with real processes: none of it stops the controller, is half done, or reaches beyond
//! the cluster.

#![allow(clippy::unwrap_used)]

use crate::support::Cluster;
use garrick_frame::{DoorClient, LinkKind, TunnelTo};
use garrick_model::messages::{command::CommandReply, step::StepMgrToCommand};
use serde::{Serialize, Serializer};
use std::{collections::BTreeSet, fs, net::UdpSocket, path::PathBuf, time::Duration};

/// Sockets that the controller and the node listen on.
fn doors(c: &Cluster) -> Vec<PathBuf> {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let own: BTreeSet<String> = ["controller", "node"]
        .into_iter()
        .flat_map(|role| fs::read_dir(format!("/proc/{}/fd", c.pid_of(role, None))).unwrap().flatten())
        .filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.to_string_lossy().into_owned()))
        .collect();
    let door = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (inode, path) = (words.get(6)?, words.get(7)?);
        let listens = *words.get(3)? == "00010000" && own.contains(&format!("socket:[{inode}]"));
        (listens && (path.ends_with("/ctl.sock") || path.ends_with("/n1.sock"))).then(|| PathBuf::from(path))
    };
    sockets.lines().filter_map(door).collect::<BTreeSet<_>>().into_iter().collect()
}

fn waiting(c: &Cluster, job: &str) -> usize {
    c.run("squeue", &["-h", "-r", "-t", "PD", "-j", job]).ok().out.lines().count()
}

/// Each task had the array's script and environment once more, all in one record of the journal, which was too long for it: the
/// answer was lost, and the tasks were back after a restart.
#[test]
fn a_thousand_cancelled_tasks_of_a_large_job_stay_cancelled() {
    let c = Cluster::up("bounds-array", &["--nodes", "1"]);
    let comment = format!("# {}\n", "x".repeat(70)).repeat(470);
    c.script("job.sh", &format!("#!/bin/bash\n#SBATCH -H --array=0-1000\n{comment}true\n"));
    let mut sbatch = c.command("sbatch");
    sbatch.arg("job.sh").env("LARGE", "x".repeat(34_000));
    let id = crate::support::answer(&mut sbatch).ok().job();
    assert_eq!(waiting(&c, &id), 1001);
    c.run("scancel", &[format!("{id}_[0-999]")]).ok();
    assert_eq!(waiting(&c, &id), 1);
    c.kill(c.pid_of("controller", None));
    c.run("garrick", &["up", "--nodes", "1"]).ok();
    assert_eq!(waiting(&c, &id), 1, "and so it is after a restart");
    c.run("scancel", &[&id]).ok();
}

/// Any address was dialled that a command named.
#[test]
fn a_tunnel_goes_to_a_node_of_the_cluster_and_nowhere_else() {
    let c = Cluster::up("bounds-tunnel", &["--nodes", "1"]);
    let elsewhere = UdpSocket::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let address = elsewhere.local_addr().unwrap().to_string();
    let doors = doors(&c);
    assert_eq!(doors.len(), 2, "{doors:?}");
    for door in doors {
        let ask = |node: &str| {
            let to = TunnelTo { address: address.clone(), node: node.to_owned(), job: 1 };
            let limit = Some(Duration::from_secs(20));
            let client = DoorClient::connect_tunnel(&door, LinkKind::CommandToStepMgr, "test", limit, to);
            client.and_then(|mut client| client.recv::<StepMgrToCommand>()).err().unwrap().to_string()
        };
        let refused = ask("elsewhere");
        assert!(refused.contains("no node of that name is known here"), "{refused}");
        // A node's own address is the one that the cluster knows.
        ask("n1");
        let heard = elsewhere.recv_from(&mut [0; 2000]).unwrap_err();
        assert_eq!(heard.kind(), std::io::ErrorKind::WouldBlock, "nobody knocked there");
    }
}

/// A Prolog that could not be given a job's name drained the node, for anybody who wanted it to.
#[test]
fn a_name_that_no_prolog_could_be_given_is_refused() {
    let c = Cluster::up("bounds-name", &["--nodes", "1"]);
    c.script("job.sh", "#!/bin/bash\ntrue\n");
    let long = "x".repeat(100_000);
    let a = c.run("sbatch", &["-J", &long, "job.sh"]);
    assert!(
        a.code != 0 && a.err.contains("the job's name has 100000 bytes, and 1024 are taken"),
        "{} {}",
        a.out,
        a.err
    );
    let id = c.run("sbatch", &["-H", "job.sh"]).ok().job();
    let a = c.run("scontrol", &["update", &format!("JobId={id}"), &format!("Name={long}")]);
    assert!(a.code != 0 && a.err.contains("Name has 100000 bytes"), "{} {}", a.out, a.err);
    c.run("scontrol", &["update", &format!("JobId={id}"), "Name=short"]).ok();
    c.run("scancel", &[&id]).ok();
}

/// Requests that are dense: so many of the smallest items that there are.
#[derive(Clone, Copy, Serialize)]
enum Dense {
    NameNodes(Empty),
    TestHetJob { specs: Plain },
}

#[derive(Clone, Copy)]
struct Empty(usize);

impl Serialize for Empty {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(std::iter::repeat_n("", self.0))
    }
}

#[derive(Clone, Copy)]
struct Plain(usize);

impl Serialize for Plain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// What a specification of a job cannot do without.
        #[derive(Clone, Serialize)]
        struct Spec {
            kind: &'static str,
            name: &'static str,
            work_dir: &'static str,
        }
        serializer.collect_seq(std::iter::repeat_n(Spec { kind: "Batch", name: "", work_dir: "" }, self.0))
    }
}

/// One frame of 16 MiB took 700 MiB of the controller, whoever sent it.
#[test]
fn a_frame_takes_little_more_memory_than_it_has_bytes() {
    const MOST_KIB: u64 = 64 << 10;
    let c = Cluster::up("bounds-dense", &["--nodes", "1"]);
    let controller = c.pid_of("controller", None);
    let kib = |what: &str| {
        let status = fs::read_to_string(format!("/proc/{controller}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap()
    };
    let door = doors(&c).into_iter().find(|door| door.ends_with("ctl.sock")).unwrap();
    let ask = |request: &Dense| {
        let limit = Some(Duration::from_secs(90));
        let mut client = DoorClient::connect(&door, LinkKind::CommandToDaemon, "test", limit).unwrap();
        // The greeting goes with the first message, and is waited for a few seconds: a large one takes longer to be made.
        client.send(&Dense::NameNodes(Empty(0))).and_then(|()| client.recv::<CommandReply>()).unwrap();
        client.send(request).and_then(|()| client.recv::<CommandReply>()).map(|reply| format!("{reply:?}"))
    };
    for (request, frame_kib, answer) in [
        (Dense::NameNodes(Empty(16_000_000)), 15_625, "closed the connection"),
        (Dense::TestHetJob { specs: Plain(500_000) }, 13_672, "closed the connection"),
        (Dense::NameNodes(Empty(500_000)), 488, "NodesNamed"),
    ] {
        // The peak is counted anew from here (`clear_refs` in proc_pid(5)).
        fs::write(format!("/proc/{controller}/clear_refs"), "5").unwrap();
        let before = kib("VmRSS:");
        let said = ask(&request).unwrap_or_else(|e| e.to_string());
        assert!(said.contains(answer), "{said:.200}");
        let grown = kib("VmHWM:").saturating_sub(before);
        assert!(grown < frame_kib + MOST_KIB, "{grown} KiB for a frame of {frame_kib} KiB");
    }
    let said = ask(&Dense::TestHetJob { specs: Plain(200) }).unwrap();
    assert!(said.contains("a heterogeneous job of 200 components"), "{said}");
}
