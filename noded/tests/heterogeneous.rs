//! Heterogeneous jobs over real processes: components of different shape that start together, what the script sees of
//! them, and how they end.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;
use support::{Cluster, field_of};

fn cluster(name: &str) -> Cluster {
    Cluster::up(name, &["--nodes", "2", "--cpus", "4", "--memory", "4000"])
}

/// Ids of the components of the newest job, by its leader.
fn components(leader: &str) -> (String, String) {
    let first: u32 = leader.parse().unwrap();
    (leader.to_owned(), (first + 1).to_string())
}

fn queue(c: &Cluster, leader: &str) -> Vec<String> {
    let shown = c.run("squeue", &["-h", "-j", leader, "-o", "%i %T"]).ok().out;
    let mut lines: Vec<String> = shown.lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

#[test]
fn components_start_together_and_scancel_ends_all_of_them() {
    let c = cluster("het-start");
    let said = c.fifo("said");
    c.script(
        "het.sh",
        "#!/bin/bash\n#SBATCH -J both -n2 --mem=100 -o het.out\n#SBATCH hetjob\n#SBATCH -N1 -n1 -c3 --exclusive\n\
         env | grep -E '^SLURM_(HET_SIZE|JOB_ID|JOB_NODELIST|JOB_NUM_NODES|NTASKS|CPUS_PER_TASK)' | sort > seen\n\
         srun --het-group=1 sh -c 'echo $SLURM_JOB_ID $SLURM_NTASKS $SLURMD_NODENAME' > other\n\
         srun sh -c 'echo $SLURM_JOB_ID $SLURM_PROCID' > own\n\
         srun --het-group=0,1 true 2> spanning || echo refused $? >> spanning\n\
         echo up > said\nexec sleep 100000\n",
    );
    let (leader, other) = components(&c.sh("sbatch het.sh").ok().job());
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "up\n");
    assert_eq!(queue(&c, &leader), [format!("{leader}+0 RUNNING"), format!("{leader}+1 RUNNING")]);
    let seen = c.read("seen");
    let node = |job: &str| c.job_field(job, "NodeList").unwrap();
    for line in [
        "SLURM_HET_SIZE=2".to_owned(),
        format!("SLURM_JOB_ID={leader}"),
        format!("SLURM_JOB_ID_HET_GROUP_0={leader}"),
        format!("SLURM_JOB_ID_HET_GROUP_1={other}"),
        format!("SLURM_JOB_NODELIST_HET_GROUP_0={}", node(&leader)),
        format!("SLURM_JOB_NODELIST_HET_GROUP_1={}", node(&other)),
        "SLURM_JOB_NUM_NODES_HET_GROUP_1=1".to_owned(),
        "SLURM_NTASKS_HET_GROUP_0=2".to_owned(),
        "SLURM_NTASKS_HET_GROUP_1=1".to_owned(),
        "SLURM_CPUS_PER_TASK_HET_GROUP_1=3".to_owned(),
    ] {
        assert!(seen.lines().any(|l| l == line), "{line} is not in\n{seen}");
    }
    assert_ne!(node(&leader), node(&other), "the second has its node for itself");
    assert_eq!(c.read("other"), format!("{other} 1 {}\n", node(&other)));
    assert_eq!(c.read("own").lines().count(), 2);
    let spanning = c.read("spanning");
    assert!(spanning.contains("not supported yet") && spanning.contains("refused 1"), "{spanning}");

    let record = c.sh(&format!("scontrol show job {leader}+1")).ok().out;
    for (field, want) in [("JobId", &other), ("HetJobId", &leader), ("JobName", &"both".to_owned())] {
        assert_eq!(field_of(&record, field).as_ref(), Some(want), "{record}");
    }
    assert_eq!(field_of(&record, "HetJobIdSet"), Some(format!("{leader}-{other}")));
    assert_eq!(field_of(&record, "HetJobOffset").as_deref(), Some("1"));
    let start = |job: &str| c.job_field(job, "StartTime");
    assert_eq!(start(&leader), start(&other));

    c.sh(&format!("scancel {leader}")).ok();
    c.await_state(&leader, "CANCELLED");
    c.await_state(&other, "CANCELLED");
    let idle = || c.run("sinfo", &["-h", "-o", "%D %T"]).ok().out.trim() == "2 idle";
    c.await_that("both nodes are idle", idle);
}

#[test]
fn the_script_ends_all_of_it_and_one_component_may_be_cancelled_alone() {
    let c = cluster("het-end");
    let go = c.fifo("go");
    let line = "sbatch -n1 -o /dev/null : -n1 wait.sh";
    c.script("wait.sh", "#!/bin/bash\nread x < go\n");
    let (leader, other) = components(&c.sh(line).ok().job());
    c.await_state(&leader, "RUNNING");
    c.sh(&format!("scancel {leader}+1")).ok();
    c.await_state(&other, "CANCELLED");
    assert_eq!(c.job_field(&leader, "JobState").as_deref(), Some("RUNNING"));
    std::fs::write(&go, "on\n").unwrap();
    c.await_state(&leader, "COMPLETED");

    let (leader, other) = components(&c.sh(line).ok().job());
    c.await_state(&leader, "RUNNING");
    c.await_state(&other, "RUNNING");
    std::fs::write(&go, "on\n").unwrap();
    c.await_state(&leader, "COMPLETED");
    c.await_state(&other, "COMPLETED");
}

#[test]
fn what_waits_is_held_released_and_cancelled_as_a_whole() {
    let c = cluster("het-wait");
    // Each component would fit by itself, both together do not.
    let filler = c.run("sbatch", &["-N1", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 100000"]).ok().job();
    c.await_state(&filler, "RUNNING");
    let line = "sbatch -N1 --exclusive -o /dev/null : -N1 --exclusive wait.sh";
    c.script("wait.sh", "#!/bin/bash\ntrue\n");
    let (leader, other) = components(&c.sh(line).ok().job());
    for job in [&leader, &other] {
        c.await_that("it waits for room", || c.job_field(job, "Reason").as_deref() == Some("Resources"));
    }
    let alone = c.sh(&format!("scancel {leader}+1"));
    assert!(alone.code != 0 && alone.err.contains("whole heterogeneous job"), "{alone:?}");
    c.sh(&format!("scontrol hold {leader}")).ok();
    for job in [&leader, &other] {
        c.await_that("it is held", || c.job_field(job, "Reason").is_some_and(|reason| reason.starts_with("JobHeld")));
    }
    c.sh(&format!("scontrol release {leader}")).ok();
    c.sh(&format!("scancel {filler}")).ok();
    c.await_state(&leader, "COMPLETED");
    c.await_state(&other, "COMPLETED");

    let filler = c.run("sbatch", &["-N1", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 100000"]).ok().job();
    c.await_state(&filler, "RUNNING");
    let (leader, other) = components(&c.sh(line).ok().job());
    c.sh(&format!("scancel {leader}")).ok();
    c.await_state(&leader, "CANCELLED");
    c.await_state(&other, "CANCELLED");
    c.sh(&format!("scancel {filler}")).ok();
}

#[test]
fn salloc_gets_all_components_and_gives_them_back() {
    let c = cluster("het-salloc");
    let told = "echo $SLURM_HET_SIZE $SLURM_JOB_ID_HET_GROUP_0 $SLURM_JOB_ID_HET_GROUP_1; \
                srun --het-group=1 sh -c 'echo task $SLURM_JOB_ID'";
    let a = c.run("salloc", &["-n1", ":", "-n2", "sh", "-c", told]).ok();
    let lines: Vec<&str> = a.out.lines().collect();
    let words: Vec<&str> = lines[0].split(' ').collect();
    assert_eq!(words[0], "2", "{a:?}");
    assert_eq!(lines[1..], [format!("task {}", words[2]), format!("task {}", words[2])], "{a:?}");
    c.await_state(words[1], "COMPLETED");
    c.await_state(words[2], "COMPLETED");
    for refused in ["srun -n1 : -n1 true", "sbatch --test-only -n1 : -n1 --wrap=true"] {
        let a = c.sh(refused);
        assert!(a.code != 0 && a.err.contains("not supported"), "{a:?}");
    }
}
