//! A controller and two nodes as separate hosts, which nothing but QUIC connects ([`crate::support::network`]). Needs root.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{
    Answer, Killed, built, is_root,
    network::{Network, ip, on_host, on_host_as, tail},
    scratch,
};
use std::path::PathBuf;

const HOSTS: &[&str] = &["ctl", "a", "b"];

/// A cluster whose controller and nodes are on these hosts.
struct Site {
    work: PathBuf,
    conf: PathBuf,
    network: Network,
    logs: Vec<PathBuf>,
    controller: Killed,
    a: Killed,
    b: Killed,
}

impl Site {
    /// `None`, with a message, where that cannot be.
    fn start(name: &str) -> Option<Self> {
        Self::start_with(name, "SlurmctldParameters=admin_hosts=ALL\n")
    }

    /// With more lines of configuration.
    fn start_with(name: &str, settings: &str) -> Option<Self> {
        if !is_root() || !ip("netns list").code.eq(&0) {
            eprintln!("skipped: needs root and network namespaces");
            return None;
        }
        let work = scratch(name);
        let (bin, network) = (built(), Network::make(HOSTS));
        let hostname = nix::unistd::gethostname().unwrap().into_string().unwrap();
        // A copy: the folder in which it was built may be closed to other users.
        for program in ["garrick", "srun"] {
            crate::support::copy_program(&bin.join(program), &work.join(program));
        }
        for name in ["sbatch", "sinfo", "scontrol", "scancel"] {
            std::os::unix::fs::symlink("garrick", work.join(name)).unwrap();
        }
        for (name, program) in [("slurmctld", "noded"), ("slurmd", "noded"), ("stepd", "stepd")] {
            let (from, to) = (bin.join(program), work.join(name));
            if std::fs::hard_link(&from, &to).is_err() {
                crate::support::copy_program(&from, &to);
            }
        }
        let conf = work.join("slurm.conf");
        let slurm_user = if settings.contains("SlurmUser=") { "" } else { "SlurmUser=root\n" };
        std::fs::write(
            &conf,
            format!(
                "ClusterName=apart\nSlurmctldHost={hostname}(10.77.0.1)\n{slurm_user}AuthType=auth/munge\nSelectType=select/cons_tres\n\
                 StateSaveLocation={w}/state\nSlurmdSpoolDir={w}/spool-%n\nSlurmctldPidFile={w}/ctld.pid\nSlurmdPidFile={w}/slurmd-%n.pid\n\
                 SlurmdParameters=config_overrides\n{settings}\
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
        if slurm_user.is_empty() {
            // Its controller reads it, and root's daemons do.
            std::os::unix::fs::chown(work.join("slurm.key"), Some(SLURM), Some(SLURM)).unwrap();
        }
        let c = conf.to_string_lossy().into_owned();
        let logs: Vec<PathBuf> = HOSTS.iter().map(|h| work.join(format!("{h}.log"))).collect();
        let controller = network.daemon("ctl", &work.join("slurmctld"), &["-D", "-f", &c], &logs[0]);
        let a = network.daemon("a", &work.join("slurmd"), &["-D", "-N", "a", "-f", &c], &logs[1]);
        let b = network.daemon("b", &work.join("slurmd"), &["-D", "-N", "b", "-f", &c], &logs[2]);
        let site = Self { work, conf, network, logs, controller, a, b };
        site.await_that("the nodes are there", || site.nodes() == "idle 2");
        Some(site)
    }

    fn run(&self, daemon: &Killed, program: &str, args: &[&str]) -> Answer {
        on_host(daemon, &self.conf, &self.work.join(program), args)
    }

    fn nodes(&self) -> String {
        self.run(&self.controller, "sinfo", &["-h", "-o", "%t %D"]).out.trim().to_owned()
    }

    #[track_caller]
    fn await_that(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let began = std::time::Instant::now();
        while !holds() {
            assert!(began.elapsed().as_secs() < 90, "still waiting: {what}\n{}", tail(&self.logs));
        }
    }

    /// How often a host's log has a text.
    fn logged(&self, host: &str, text: &str) -> usize {
        let at = HOSTS.iter().position(|h| *h == host).unwrap();
        std::fs::read_to_string(&self.logs[at]).unwrap_or_default().matches(text).count()
    }

    /// The daemons end in order, and with them what their last jobs left to do.
    fn end(mut self) {
        self.await_that("the nodes are free again", || self.nodes() == "idle 2");
        // A run that its controller gave up while the node was away says its last words after the node is back in service.
        self.await_that("no run is left", || !self.processes().iter().any(|c| c.starts_with("stepd ")));
        self.run(&self.controller, "scontrol", &["shutdown"]).ok();
        for daemon in [&mut self.a, &mut self.b, &mut self.controller] {
            daemon.0.wait().unwrap();
        }
        assert_eq!(self.processes(), Vec::<String>::new(), "processes left");
        let _ = std::fs::remove_dir_all(&self.work);
    }

    /// Command lines of this cluster's processes.
    fn processes(&self) -> Vec<String> {
        let needle = self.work.to_string_lossy();
        crate::support::command_lines().into_iter().filter(|c| c.contains(&*needle)).collect()
    }
}

#[test]
fn a_controller_and_two_nodes_on_separate_hosts_form_a_cluster() {
    let Some(site) = Site::start("netns") else { return };
    let two = [
        "-N2",
        "-n2",
        "-l",
        "sh",
        "-c",
        "echo $SLURMD_NODENAME $(ip -4 -o addr show eth0 | tr -s ' ' | cut -d' ' -f4)",
    ];
    for (host, place) in [("ctl", &site.controller), ("a", &site.a), ("b", &site.b)] {
        let r = site.run(place, "srun", &two);
        let mut lines: Vec<_> = r.out.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            (r.code, lines),
            (0, vec!["0: a 10.77.0.2/24", "1: b 10.77.0.3/24"]),
            "srun from {host}: {}\n{}",
            r.err,
            tail(&site.logs)
        );
    }
    site.end();
}

/// Accounts that Debian's base system has: SlurmUser, a user, another user.
const SLURM: u32 = 1;
const ALICE: u32 = 5;
const BOB: u32 = 65534;

#[test]
fn everybody_works_from_every_host_and_root_only_where_it_is_trusted() {
    let Some(site) = Site::start_with("everybody", "SlurmUser=daemon\n") else { return };
    let as_user = |uid: u32, place: &Killed, program: &str, args: &[&str]| {
        on_host_as(uid, place, &site.conf, &site.work.join(program), args)
    };
    let hosts = [("ctl", &site.controller), ("a", &site.a), ("b", &site.b)];
    let uids = |uid: u32| format!("{uid}\n{uid}\n");
    for (host, place) in hosts {
        for uid in [ALICE, BOB] {
            let r = as_user(uid, place, "srun", &["-N2", "-n2", "id", "-u"]);
            assert_eq!((r.code, r.out), (0, uids(uid)), "uid {uid} on {host}: {}\n{}", r.err, tail(&site.logs));
        }
        for uid in [0, SLURM] {
            let r = as_user(uid, place, "srun", &["-N2", "-n2", "id", "-u"]);
            if host == "ctl" {
                assert_eq!((r.code, r.out), (0, uids(uid)), "uid {uid} on {host}: {}", r.err);
            } else {
                assert!(r.code != 0 && r.out.is_empty() && r.err.contains("may not speak for root"), "{host}: {r:?}");
            }
            let listed = as_user(uid, place, "sinfo", &["-h", "-o", "%D"]);
            assert_eq!((listed.code, listed.out.trim()), (0, "2"), "{host}: {}", listed.err);
        }
    }
    // Hers, from one host; his attempts and the administrators' from others.
    let submit = ["-w", "a", "-o", "/dev/null", "--wrap", "sleep 600"];
    let job = as_user(ALICE, &site.b, "sbatch", &submit).ok().job();
    let state = || as_user(ALICE, &site.controller, "scontrol", &["-o", "show", "job", &job]).out;
    site.await_that("her job runs", || state().contains("JobState=RUNNING"));
    for (_, place) in hosts {
        let r = as_user(BOB, place, "scancel", &[&job]);
        assert!(r.code != 0 && r.err.contains("Access/permission denied"), "{r:?}");
        let r = as_user(BOB, place, "srun", &["--jobid", &job, "--overlap", "id"]);
        assert!(r.code != 0 && r.out.is_empty(), "{r:?}");
        let r = as_user(ALICE, place, "srun", &["--jobid", &job, "--overlap", "id", "-u"]);
        assert_eq!((r.code, r.out), (0, format!("{ALICE}\n")), "{}", r.err);
    }
    let r = as_user(0, &site.b, "srun", &["--jobid", &job, "--overlap", "id"]);
    assert!(r.code != 0 && r.out.is_empty(), "root of another node is nobody to her step manager: {r:?}");
    assert!(state().contains("JobState=RUNNING"));
    as_user(SLURM, &site.controller, "scancel", &[&job]).ok();
    site.await_that("it is over", || state().contains("JobState=CANCELLED"));
    site.end();
}

#[test]
fn a_step_outlives_a_link_that_is_lost_and_comes_back() {
    let Some(site) = Site::start("cable") else { return };
    let w = site.work.display();
    let job = site.work.join("job.sh");
    std::fs::write(
        &job,
        format!(
            "#!/bin/bash\n#SBATCH -N2 -n2 -w a,b -o {w}/job.out\n\
             {w}/srun -N2 -n2 -l bash -c 'n=0; until [ -e {w}/open ]; do echo line $n; n=$((n+1)); sleep 0.01; done; exit 3' > {w}/srun.out\n\
             echo $? > {w}/end\n"
        ),
    )
    .unwrap();
    site.run(&site.controller, "sbatch", &[job.to_str().unwrap()]).ok();
    let out = || std::fs::read_to_string(site.work.join("srun.out")).unwrap_or_default();
    site.await_that("both tasks speak", || out().contains("0: line 5") && out().contains("1: line 5"));
    site.network.cable("b", "down");
    site.await_that("the loss is noticed on both sides", || {
        site.logged("a", "a shepherd is away") >= 1 && site.logged("b", "no step manager") >= 1
    });
    site.network.cable("b", "up");
    site.await_that("the link is there again", || site.logged("b", "the step manager is there") >= 2);
    std::fs::write(site.work.join("open"), "").unwrap();
    let end = || std::fs::read_to_string(site.work.join("end")).unwrap_or_default();
    site.await_that("the step ends", || end().ends_with('\n'));
    assert_eq!(std::fs::read_to_string(site.work.join("end")).unwrap(), "3\n", "{}", tail(&site.logs));
    let out = out();
    for rank in 0..2 {
        let said: Vec<&str> = out.lines().filter_map(|l| l.strip_prefix(&format!("{rank}: "))).collect();
        let expected: Vec<String> = (0..said.len()).map(|n| format!("line {n}")).collect();
        assert_eq!(said, expected, "all that task {rank} said, once and in order");
    }
    site.end();
}

/// The controller gives the node up and starts the job anew; the node cannot know, and must not let it run twice.
#[test]
fn a_node_that_is_cut_off_ends_its_job_before_it_can_run_elsewhere() {
    let Some(site) =
        Site::start_with("cut", "SlurmctldParameters=admin_hosts=ALL\nSlurmdTimeout=20\nReturnToService=1\n")
    else {
        return;
    };
    let w = site.work.display();
    let job = site.work.join("job.sh");
    let text = format!(
        "#!/bin/bash\n#SBATCH --requeue -o {w}/job.out\necho $$ $SLURMD_NODENAME >> {w}/runs\nexec sleep 600\n"
    );
    std::fs::write(&job, text).unwrap();
    let id = site.run(&site.controller, "sbatch", &[job.to_str().unwrap()]).ok().job();
    let runs = || std::fs::read_to_string(site.work.join("runs")).unwrap_or_default();
    site.await_that("the job runs", || runs().ends_with('\n'));
    let first = runs();
    let (pid, node) = first.trim().split_once(' ').unwrap();
    site.network.cable(node, "down");
    site.await_that("its node ends it", || site.logged(node, "this node is cut off from the controller") == 1);
    let process = PathBuf::from(format!("/proc/{pid}"));
    site.await_that("its process is gone", || !process.exists());
    site.network.cable(node, "up");
    let shown = || site.run(&site.controller, "scontrol", &["show", "job", &id]).out;
    site.await_that("the controller began it anew", || {
        crate::support::field_of(&shown(), "Restarts").as_deref() == Some("1")
    });
    site.run(&site.controller, "scancel", &[&id]).ok();
    site.end();
}
