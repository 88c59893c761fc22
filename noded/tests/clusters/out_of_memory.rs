//! Jobs and steps with a process that the kernel killed for memory, over real processes and cgroups.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, is_root};

/// `head` and `tail` in a shell, of which the kernel kills `tail`: it keeps what has no line end.
const TOO_MUCH: &str = "head -c 200000000 /dev/zero | tail";

/// A cluster that holds jobs to their memory; `None`, with a message, where that cannot be.
fn cluster(name: &str) -> Option<Cluster> {
    if !is_root() {
        eprintln!("skipped: holding jobs to their memory needs root");
        return None;
    }
    let c = Cluster::up(name, &["--nodes", "1", "--cpus", "2", "--memory", "4000"]);
    let log = std::fs::read_to_string(c.home.join("log/slurmd-n1.log")).unwrap();
    let served = log.lines().find(|line| line.contains("the node agent serves")).expect("the node says how it tracks");
    if !served.contains("tracking=\"cgroup") || log.contains("without: ") && log.contains("memory (") {
        eprintln!("skipped: no memory controller: {served}");
        return None;
    }
    Some(c)
}

#[test]
fn a_killed_child_makes_the_job_out_of_memory_whatever_its_script_says() {
    let Some(c) = cluster("oom-child") else { return };
    for script in [TOO_MUCH.to_owned(), format!("{TOO_MUCH}; exit 0")] {
        let job = c.run("sbatch", &["--mem=20", "-o", "/dev/null", "--wrap", &script]).ok().job();
        c.await_state(&job, "OUT_OF_MEMORY");
        assert_eq!(c.job_field(&job, "Reason").as_deref(), Some("OutOfMemory"));
    }
    let job = c.run("sbatch", &["--mem=20", "-o", "/dev/null", "--wrap", "exit 7"]).ok().job();
    c.await_state(&job, "FAILED");
}

#[test]
fn a_killed_child_makes_its_step_out_of_memory_and_no_other() {
    let Some(c) = cluster("oom-step") else { return };
    let script = format!("#!/bin/bash\nsrun sh -c '{TOO_MUCH}' 2> said\necho $? > code\nsrun true\necho $? >> code\n");
    c.script("steps.sh", &script);
    let job = c.run("sbatch", &["--mem=100", "-o", "/dev/null", "steps.sh"]).ok().job();
    c.await_state(&job, "COMPLETED");
    assert_eq!(c.read("code"), "253\n0\n");
    assert!(c.read("said").contains("task 0: Out Of Memory"), "{}", c.read("said"));
}

#[test]
fn a_job_whose_launcher_the_kernel_chose_is_out_of_memory_too() {
    let Some(c) = cluster("oom-launcher") else { return };
    // The launcher is the script's parent, and the first choice from here on.
    let script = format!("echo 1000 > /proc/$PPID/oom_score_adj; {TOO_MUCH}; exit 0");
    let job = c.run("sbatch", &["--mem=50", "-o", "/dev/null", "--wrap", &script]).ok().job();
    c.await_state(&job, "OUT_OF_MEMORY");
    assert_eq!(c.job_field(&job, "Reason").as_deref(), Some("OutOfMemory"));
    let log = std::fs::read_to_string(c.home.join("log/slurmd-n1.log")).unwrap();
    assert!(log.contains("the launcher closed its socket; its process ended with signal 9"), "{log}");
}
