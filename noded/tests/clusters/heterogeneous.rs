//! Heterogeneous jobs over real processes: components of different shape that start together, what the script sees of
//! them, and how they end.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, field_of};
use std::process::Stdio;

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
    // As in Slurm's documentation: the job is the leader's.
    assert_eq!(c.read("other"), format!("{leader} 1 {}\n", node(&other)));
    assert_eq!(c.read("own").lines().count(), 2);

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
    assert_eq!(lines[1..], [format!("task {}", words[1]), format!("task {}", words[1])], "{a:?}");
    c.await_state(words[1], "COMPLETED");
    c.await_state(words[2], "COMPLETED");
}

/// Runs a script in a job of two and three tasks on a node each, and gives the leader's id and what the script wrote.
fn in_two_components(c: &Cluster, script: &str) -> (String, String) {
    c.script(
        "parts.sh",
        &format!(
            "#!/bin/bash\n#SBATCH -n2 --mem=100 -o parts.out --exclusive\n#SBATCH hetjob\n\
             #SBATCH -n3 --mem=100 --exclusive\n{script}"
        ),
    );
    let leader = c.sh("sbatch --wait parts.sh").ok().job();
    (leader, c.read("parts.out"))
}

#[test]
fn one_step_over_several_components_is_numbered_through() {
    let c = cluster("het-step");
    let (leader, said) = in_two_components(
        &c,
        "srun --het-group=1 -n1 true; srun --het-group=1 -n1 true\n\
         srun -l --het-group=0,1 sh -c 'echo $SLURM_PROCID $SLURM_NTASKS $SLURM_NODEID $SLURM_JOB_ID $SLURM_STEP_ID'\n\
         srun -l -n1 sh -c 'echo a $SLURM_PROCID' : sh -c 'echo b $SLURM_PROCID'\n\
         srun -n1 -o f-%t-%n echo first : -n2 echo other; grep . f-*\n\
         echo hello | srun -l -n1 cat : -n1 cat; echo hello | srun -l -i1 -n1 cat : -n1 cat\n",
    );
    let mut lines: Vec<&str> = said.lines().collect();
    // Output of different tasks comes as it comes; each command's lines stay together.
    for (from, to) in [(0, 5), (5, 9), (9, 12), (12, 14)] {
        lines[from..to].sort_unstable();
    }
    let mut want: Vec<String> =
        (0..5).map(|rank| format!("{rank}: {rank} 5 {} {leader} 2", u8::from(rank > 1))).collect();
    want.extend(["0: a 0", "1: b 1", "2: b 2", "3: b 3"].map(str::to_owned));
    want.extend(["f-0-0:first", "f-1-1:other", "f-2-1:other", "0: hello", "1: hello", "1: hello"].map(str::to_owned));
    assert_eq!(lines, want);
}

#[test]
fn a_step_over_several_components_ends_as_one() {
    let c = cluster("het-step-end");
    let (_, said) = in_two_components(
        &c,
        "exec 2>&1\nsrun sh -c 'exit 3' : sh -c 'exit 5'; echo worst $?\n\
         srun -K sh -c 'sleep 100000' : sh -c 'exit 5'; echo killed $?\n\
         srun -n1 true : -n40 true; echo impossible $?\n\
         srun true : true : true; echo unknown $?\n\
         srun --het-group=0 true : --het-group=0 true; echo twice $?\n\
         srun -n1 true; echo left $?; squeue -h -s -j $SLURM_JOB_ID -o %i | grep -vc batch || true\n",
    );
    for part in [
        "worst 5\n",
        "killed 143\n",
        "More processors requested than permitted",
        "impossible 1\n",
        "Attempt to run a job step with het-group value of 2",
        "unknown 1\n",
        "component 0 is named twice",
        "twice 1\n",
        // Nothing of them is left.
        "left 0\n0\n",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
}

#[test]
fn srun_makes_a_heterogeneous_job_for_one_step_and_its_steps_have_names() {
    let c = cluster("het-srun");
    let go = c.fifo("go");
    let said = c.fifo("said");
    let first = "echo $SLURM_PROCID $SLURM_HET_SIZE > said; read x < go";
    let mut srun = c.command("srun");
    srun.args(["-n1", "sh", "-c", first, ":", "-n2", "sleep", "100000"]);
    let srun = srun.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "0 2\n");
    let leader = c.run("squeue", &["-h", "-o", "%A"]).ok().out.lines().min().unwrap().trim().to_owned();
    let (leader, other) = components(&leader);
    let steps = |args: &[&str]| {
        let mut all = vec!["-h", "-s", "-o", "%i"];
        all.extend(args);
        c.run("squeue", &all).ok().out.lines().map(|l| l.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(steps(&["-j", &leader]), [format!("{leader}.0"), format!("{other}.0")]);
    assert_eq!(
        c.run("squeue", &["-h", "-s", &format!("{leader}+1.0"), "-o", "%i"]).ok().out.trim(),
        format!("{other}.0")
    );
    let shown = c.sh(&format!("scontrol show step {leader}+1.0")).ok().out;
    assert_eq!(field_of(&shown, "StepId"), Some(format!("{other}.0")), "{shown}");
    let shown = c.sh(&format!("scontrol show step {leader}+1")).ok().out;
    assert_eq!(field_of(&shown, "StepId"), Some(format!("{other}.0")), "{shown}");
    c.sh(&format!("scancel {leader}+1.0")).ok();
    c.await_that("that part is gone", || steps(&[]) == [format!("{leader}.0")]);
    std::fs::write(&go, "on\n").unwrap();
    let over = srun.wait_with_output().unwrap();
    assert_eq!(over.status.code(), Some(143), "{over:?}");
    c.await_that("the job is over", || queue(&c, &leader).iter().all(|line| !line.contains("RUNNING")));
    // Components are of a job that is around.
    for named in ["0,1", "1", "1,2"] {
        let a = c.sh(&format!("srun --het-group={named} true"));
        let said = "--het-group expected to be used within an HetJob allocation";
        assert!(a.code == 1 && a.err.contains(said), "{named}: {a:?}");
    }
}

#[test]
fn test_only_says_when_all_of_it_could_start() {
    let c = cluster("het-test-only");
    let line = "sbatch --test-only -N1 --exclusive : -N1 --exclusive --wrap=true";
    let now = c.sh(line).ok().err;
    assert!(now.contains(" using 8 processors on nodes n[1-2] in partition "), "{now}");
    let filler =
        c.run("sbatch", &["-N1", "--exclusive", "-t60", "-o", "/dev/null", "--wrap", "sleep 100000"]).ok().job();
    c.await_state(&filler, "RUNNING");
    let end = c.job_field(&filler, "EndTime").unwrap();
    c.script("both.sh", "#!/bin/bash\n#SBATCH -N1 --exclusive\n#SBATCH hetjob\n#SBATCH -N1 --exclusive\n");
    let later = c.sh("sbatch --test-only both.sh").ok().err;
    // Plans round times up.
    let at = later.split_whitespace().nth(6).unwrap().to_owned();
    assert!(at >= end, "{later} {end}");
    assert_eq!(c.run("squeue", &["-h", "-o", "%A"]).ok().out.trim(), filler);
    let (leader, other) = components(&c.sh("sbatch -o /dev/null both.sh").ok().job());
    let start = |job: &str| c.run("squeue", &["-h", "--start", "-j", job, "-o", "%i %S"]).ok().out;
    c.await_that("both have a time to start", || {
        let times: Vec<String> = start(&leader).lines().filter_map(|l| Some(l.split_once(' ')?.1.to_owned())).collect();
        times.len() == 2 && times[0] == times[1] && times[0] != "N/A"
    });
    assert_eq!(start(&other).lines().count(), 1);
    c.sh(&format!("scancel {leader}")).ok();
    let never = c.sh("sbatch --test-only -N1 : -N9 --wrap=true");
    assert!(never.code != 0, "{never:?}");
    c.sh(&format!("scancel {filler}")).ok();
}

#[test]
fn where_the_site_has_it_so_a_component_stands_for_the_whole_job() {
    let c = Cluster::up_with("het-whole", &["--nodes", "2", "--cpus", "4", "--memory", "4000"], |_| {
        "SchedulerParameters=whole_hetjob\n".to_owned()
    });
    let line = "sbatch -H -N1 -o /dev/null : -H -N1";
    c.script("wait.sh", "#!/bin/bash\nexec sleep 100000\n");
    let (leader, other) = components(&c.sh(&format!("{line} wait.sh")).ok().job());
    let held = |job: &str| c.job_field(job, "Reason").is_some_and(|reason| reason.starts_with("JobHeld"));
    c.sh(&format!("scontrol release {leader}+1")).ok();
    c.await_state(&leader, "RUNNING");
    c.sh(&format!("scancel {other}")).ok();
    c.await_state(&leader, "CANCELLED");
    c.await_state(&other, "CANCELLED");

    let (leader, other) = components(&c.sh(&format!("{line} --begin=now+1hour wait.sh")).ok().job());
    c.sh(&format!("scontrol release {leader}")).ok();
    c.sh(&format!("scontrol hold {leader}+1")).ok();
    for job in [&leader, &other] {
        c.await_that("it is held", || held(job));
    }
    c.sh(&format!("scancel {leader}+1")).ok();
    c.await_state(&leader, "CANCELLED");
    c.await_state(&other, "CANCELLED");
}
