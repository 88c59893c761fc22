//! Four node daemons on one machine: layouts, labels, environments and exit codes from all three ways in, and what
//! survives the loss of a process.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const UP: &[&str] = &["--nodes", "4", "--cpus", "4", "--memory", "5000"];

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    lines.sort();
    lines
}

fn expected() -> Vec<String> {
    (0..8).map(|r| format!("{r}: {r} {} {} n{} 8 4", r % 2, r / 2, r / 2 + 1)).collect()
}

const TELL: &str = "echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURMD_NODENAME $SLURM_NTASKS $SLURM_NNODES";

#[test]
fn four_nodes_of_two_tasks_from_sbatch_salloc_and_srun() {
    let c = Cluster::up("four", UP);
    let a = c.run("srun", &["-N4", "-n8", "--ntasks-per-node=2", "-l", "sh", "-c", TELL]).ok();
    assert_eq!(sorted(&a.out), expected(), "{a:?}");
    let a = c.run("salloc", &["-N4", "-n8", "--ntasks-per-node=2", "srun", "-l", "sh", "-c", TELL]).ok();
    assert_eq!(sorted(&a.out), expected(), "{a:?}");
    assert!(a.err.contains("salloc: Granted job allocation"), "{a:?}");
    c.script("job.sh", &format!("#!/bin/bash\n#SBATCH -N4 -n8 --ntasks-per-node=2 -o job.out\nsrun -l sh -c '{TELL}'\nsrun sh -c 'exit $SLURM_PROCID'\n"));
    let a = c.sh("sbatch --wait job.sh");
    assert_eq!(a.code, 7, "{a:?} {}", c.read("job.out"));
    let out = c.read("job.out");
    let told: Vec<_> = sorted(&out).into_iter().filter(|l| l.as_bytes()[1] == b':').collect();
    assert_eq!(told, expected(), "{out}");
    for rank in 1..8 {
        let line = format!("task {rank}: Exited with exit code {rank}");
        assert!(out.contains(&line), "{line} is not in {out}");
    }
}

/// A shepherd may end before its step manager knows it. It says goodbye, so that nobody waits until nothing is heard of it: of 20
/// such jobs one waited for ten seconds.
#[test]
fn a_job_that_is_over_at_once_leaves_no_step_manager_listening() {
    let c = Cluster::up("short-jobs", UP);
    for _ in 0..30 {
        c.run("salloc", &["-Q", "-N4", "-n4", "true"]).ok();
    }
    c.await_that("no stepd is left", || c.processes().iter().all(|(role, ..)| role != "stepd"));
    let log = std::fs::read_to_string(c.home.join("log/slurmd-n1.log")).unwrap();
    assert!(log.contains("is gone from this node"), "{log}");
    assert!(!log.contains("nothing was heard from it"), "{log}");
}

/// Of 36 such files 9 held one node's lines only.
#[test]
fn a_file_that_tasks_on_several_nodes_write_has_every_line_once() {
    let c = Cluster::up("shared-files", &["--nodes", "2", "--cpus", "4", "--memory", "1000"]);
    let tasks = "bash -c 'echo line $SLURM_PROCID try ${GARRICK_STEP_RETRY-0}; [ -z \"$FAILS\" -o -n \"$GARRICK_STEP_RETRY\" ]'";
    c.script(
        "job.sh",
        &format!(
            "#!/bin/bash\n#SBATCH -N2 -n8 --exclusive -o job.out\n\
             for n in {{1..24}}; do echo old > f.$n; echo old > a.$n; done\n\
             for n in {{1..24}}; do srun --async -N2 -n4 --mem=10 -o f.$n {tasks}; done\n\
             for n in {{1..8}}; do srun --async -N2 -n4 --mem=10 --open-mode=append -o a.$n {tasks}; done\n\
             for n in {{1..8}}; do FAILS=1 srun --async -N2 -n4 --mem=10 --retries=1 -o r.$n {tasks}; done\n\
             swait; echo waited $?\n"
        ),
    );
    c.sh("sbatch --wait job.sh").ok();
    assert!(c.read("job.out").ends_with("waited 0\n"), "{}", c.read("job.out"));
    let lines = |tries: u32| -> Vec<String> { (0..4).map(|task| format!("line {task} try {tries}")).collect() };
    for n in 1..=24 {
        assert_eq!(sorted(&c.read(&format!("f.{n}"))), lines(0), "f.{n}");
    }
    for n in 1..=8 {
        assert_eq!(sorted(&c.read(&format!("a.{n}"))), [lines(0), vec!["old".to_owned()]].concat(), "a.{n}");
        assert_eq!(sorted(&c.read(&format!("r.{n}"))), lines(1), "r.{n}");
    }
}

#[test]
fn steps_go_on_without_the_controller_and_it_shows_them_when_it_returns() {
    let c = Cluster::up("away", UP);
    let (go, said) = (c.fifo("go"), c.fifo("said"));
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N2 -n2 -o job.out\necho up > said\nread x < go\nfor i in 1 2 3; do srun -n2 hostname > /dev/null && echo step $i; done\necho done > said\nread x < go\n",
    );
    let id = c.sh("sbatch job.sh").ok().job();
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "up\n");
    c.await_state(&id, "RUNNING");
    let controller = Pid::from_raw(c.pid_of("controller", None));
    kill(controller, Signal::SIGSTOP).unwrap();
    std::fs::write(&go, "x\n").unwrap();
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "done\n");
    kill(controller, Signal::SIGCONT).unwrap();
    assert_eq!(c.read("job.out"), "step 1\nstep 2\nstep 3\n");
    c.await_that("the controller shows the steps", || {
        let a = c.run("squeue", &["-h", "--steps", "--states=all", "-j", &id, "-o", "%i"]);
        (0..3).all(|s| a.out.lines().any(|l| l.trim() == format!("{id}.{s}")))
    });
    std::fs::write(&go, "x\n").unwrap();
    c.await_state(&id, "COMPLETED");
}

#[test]
fn a_restarted_controller_knows_its_jobs_and_takes_back_their_step_managers() {
    let c = Cluster::up("restart", UP);
    let (go, said) = (c.fifo("go"), c.fifo("said"));
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N2 -n2 -o job.out\necho up > said\nread x < go\nsrun -n2 true && echo fine\nexit 5\n",
    );
    let id = c.sh("sbatch job.sh").ok().job();
    let waiting = c.run("sbatch", &["--hold", "-n1", "-o", "held.out", "--wrap", "echo held"]).ok().job();
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "up\n");
    c.await_state(&id, "RUNNING");
    c.kill(c.pid_of("controller", None));
    // The job ends while nobody listens.
    std::fs::write(&go, "x\n").unwrap();
    c.await_that("the job's output is complete", || c.read("job.out").contains("fine"));
    c.run("garrick", &[&["up"], UP].concat()).ok();
    c.await_state(&id, "FAILED");
    assert_eq!(c.job_field(&id, "ExitCode").as_deref(), Some("5:0"));
    assert_eq!(c.job_field(&waiting, "JobState").as_deref(), Some("PENDING"));
    assert_eq!(c.job_field(&waiting, "Reason").as_deref(), Some("JobHeldUser").or(Some("JobHeldAdmin")));
    c.sh(&format!("scontrol release {waiting}")).ok();
    c.await_state(&waiting, "COMPLETED");
    assert_eq!(c.read("held.out"), "held\n");
}

#[test]
fn a_drained_node_gets_nothing_and_comes_back() {
    let c = Cluster::up("drain", UP);
    c.run("scontrol", &["update", "nodename=n2", "state=drain", "reason=bad fan"]).ok();
    assert!(c.sh("sinfo -R -h").out.contains("bad fan"));
    let a = c.sh("sinfo -h -n n2 -o %t").ok();
    assert_eq!(a.out.trim(), "drain");
    let a = c.run("srun", &["-N3", "-n3", "sh", "-c", "echo $SLURMD_NODENAME"]).ok();
    assert_eq!(sorted(&a.out), ["n1", "n3", "n4"]);
    c.run("scontrol", &["update", "nodename=n2", "state=resume"]).ok();
    c.run("srun", &["-N4", "-n4", "true"]).ok();
}

#[test]
fn the_journal_of_a_cluster_is_a_workload_to_replay() {
    let c = Cluster::up("replayed", UP);
    c.sh("sbatch --wait -N2 -n8 -t 5 -o /dev/null --wrap true").ok();
    c.sh("sbatch --wait --array=0-2 -n1 -t 5 -o /dev/null --wrap true").ok();
    let held = c.sh("sbatch --hold -n1 -o /dev/null --wrap true").ok().job();
    let (state, conf) = (c.home.join("state"), c.home.join("etc/slurm.conf"));
    let replay = |options: &str| {
        c.sh(&format!("garrick sim --journal {} --conf {} --json {options}", state.display(), conf.display())).ok().out
    };
    let told: serde_json::Value = serde_json::from_str(&replay("--policy easy")).unwrap();
    assert_eq!((&told["jobs"], &told["refused"]), (&4.into(), &0.into()), "{told}: all but {held}, which never ran");
    let wrong = c.sh("garrick sim --journal state --trace x.swf");
    assert_eq!((wrong.code, wrong.err.contains("one workload at a time")), (1, true), "{wrong:?}");
}
