//! Options that say where a batch script runs, in what state its nodes are, and who else may send input to a step, over real
//! processes.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, field_of};
use std::{fs, io::Write as _, process::Stdio};

const TWO: [&str; 6] = ["--nodes", "2", "--cpus", "4", "--memory", "4000"];

#[test]
fn the_batch_script_runs_on_a_node_with_the_features_that_it_asks_for() {
    let c = Cluster::up("batch-features", &["--nodes", "3", "--cpus", "1", "--memory", "1000"]);
    c.sh("scontrol update nodename=n[1-2] ActiveFeatures=slow").ok();
    c.sh("scontrol update nodename=n3 ActiveFeatures=fast,big").ok();
    let line = "sbatch --wait -o out.%j -C 'slow|fast|big'";
    let run = |options: &str| {
        let script = "echo $SLURMD_NODENAME $SLURM_NODEID $SLURM_JOB_NODELIST; srun printenv SLURMD_NODENAME | sort";
        let job = c.shell(&format!("{line} {options} --wrap '{script}'")).ok().job();
        (c.read(&format!("out.{job}")), c.job_field(&job, "BatchHost").unwrap())
    };
    // All the same the job has all its nodes, and its steps run there.
    assert_eq!(run("-N3 --batch='fast&big'"), ("n3 0 n[3,1-2]\nn1\nn2\nn3\n".to_owned(), "n3".to_owned()));
    assert_eq!(run("-N3 --batch='fast|slow'").1, "n1");
    let by_variable = c.shell(&format!("SBATCH_BATCH=big {line} -N3 --wrap true")).ok().job();
    assert_eq!(c.job_field(&by_variable, "BatchHost").as_deref(), Some("n3"));
    // The first node, where the job gets none that has them.
    assert_eq!(run("-N2 -x n3 --batch=fast"), ("n1 0 n[1-2]\nn1\nn2\n".to_owned(), "n1".to_owned()));
    for options in ["--batch=fast", "-C slow --batch=fast", "-C fast --batch='fast&'", "-C fast --batch='[fast|fast]'"]
    {
        let refused = c.shell(&format!("sbatch {options} --wrap true"));
        let text = "sbatch: error: Batch job submission failed: Invalid feature specification\n";
        assert_eq!((refused.code, refused.err.as_str()), (1, text), "{options}");
    }
}

#[test]
fn nodes_are_rebooted_before_a_job_that_asks_for_it_begins() {
    let c = Cluster::up_with("job-reboot", &TWO, |c| {
        // It starts the daemon of its node anew, as another boot of its machine, when it is let. All threads of the one that was
        // killed have to be gone, whether or not its parent has asked for its end.
        let text = format!(
            "#!/bin/bash\necho $SLURM_NODE_NAME >> {0}/told\n\
             mapfile -d '' line < /proc/$PPID/cmdline\nmapfile -d '' env < /proc/$PPID/environ\nread x < {0}/go\n\
             kill -9 $PPID\n\
             gone() {{\n read -r stat < /proc/$PPID/stat || return 0\n set -- /proc/$PPID/task/*\n\
             [[ $# -le 1 && $stat == *') '[ZX]' '* ]]\n}}\n\
             until gone; do :; done 2> /dev/null\n\
             exec env -i \"${{env[@]}}\" setsid \"${{line[@]}}\" -b > {0}/again 2>&1\n",
            c.work.display()
        );
        c.script("reboot", &text);
        // As long as it may take.
        format!("RebootProgram={}/reboot\nResumeTimeout=3600", c.work.display())
    });
    let go = c.fifo("go");
    let told = || fs::read_to_string(c.work.join("told")).unwrap_or_default();
    let node = |node: &str| field_of(&c.sh(&format!("scontrol -o show node {node}")).ok().out, "State").unwrap();
    let job = c.shell("sbatch --reboot -n1 -w n1 -o out --wrap 'cat told; echo runs'").ok().job();
    c.await_that("the node is told to reboot", || told() == "n1\n");
    assert_eq!(c.job_field(&job, "JobState").as_deref(), Some("CONFIGURING"));
    assert_eq!(c.job_field(&job, "Reboot").as_deref(), Some("1"));
    assert_eq!(node("n1"), "ALLOCATED+REBOOT_ISSUED", "nobody else has anything of it");
    assert!(!c.work.join("out").exists());
    fs::write(&go, "\n").unwrap();
    c.await_state(&job, "COMPLETED");
    assert_eq!(c.read("out"), "n1\nruns\n");
    // It was rebooted once, and is in service.
    c.await_that("the node is idle", || node("n1") == "IDLE");
    c.sh("srun -w n1 true").ok();
    assert_eq!(told(), "n1\n");
}

#[test]
fn a_node_that_does_not_come_back_from_its_reboot_is_down_and_the_job_lost() {
    let c = Cluster::up_with("job-reboot-lost", &TWO, |c| {
        c.script("reboot", &format!("#!/bin/sh\necho $SLURM_NODE_NAME >> {}/told\n", c.work.display()));
        format!("RebootProgram={}/reboot\nResumeTimeout=1", c.work.display())
    });
    let lost = c.shell("sbatch --reboot --no-requeue -w n2 -o lost --wrap true").ok().job();
    c.await_state(&lost, "NODE_FAIL");
    c.await_that("the node was told to reboot", || {
        fs::read_to_string(c.work.join("told")).is_ok_and(|told| told == "n2\n")
    });
    assert_eq!(c.sh("sinfo -h -n n2 -o %E").ok().out, "reboot timed out\n");
    let state = field_of(&c.sh("scontrol -o show node n2").ok().out, "State").unwrap();
    assert!(state.starts_with("DOWN") && !c.work.join("lost").exists(), "{state}");
}

#[test]
fn without_a_program_to_reboot_nodes_a_job_begins_at_once() {
    let c = Cluster::up("no-reboot", &["--nodes", "1", "--cpus", "1"]);
    assert_eq!(c.sh("srun --reboot echo runs").ok().out, "runs\n");
}

#[test]
fn who_attaches_to_a_step_sends_input_to_its_tasks_or_to_one() {
    let c = Cluster::up("attached-input", &TWO);
    let job = c.shell("sbatch -N2 -n3 -o /dev/null --wrap 'exec sleep 100000'").ok().job();
    c.await_state(&job, "RUNNING");
    let reads =
        c.script("reads", "#!/bin/sh\necho ready\nwhile read word; do echo \"$word for $SLURM_PROCID\"; done\n");
    let mut step = c.command("srun");
    step.args(["--jobid", &job, "-N2", "-n3"]).arg(&reads).stdin(Stdio::piped());
    let mut step = step.stdout(fs::File::create(c.work.join("seen")).unwrap()).spawn().unwrap();
    // Held open: the end of the command's input is that of the tasks' input.
    let mut own = step.stdin.take().unwrap();
    let seen = || {
        let mut lines: Vec<String> = c.read("seen").lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines.retain(|line| line != "ready");
        lines
    };
    c.await_that("all tasks are there", || c.read("seen").matches("ready").count() == 3);
    let step_id = format!("{job}.0");
    let attach = |options: &[&str], word: &str| {
        let mut child = c.command("garrick");
        let mut child = child
            .arg("sattach")
            .args(options)
            .arg(&step_id)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut to = child.stdin.take().unwrap();
        writeln!(to, "{word}").unwrap();
        child
    };
    let one = attach(&["--input-filter=1"], "one");
    c.await_that("one task has it", || seen() == ["one for 1"]);
    let all = attach(&[], "all");
    let everything = ["all for 0", "all for 1", "all for 2", "one for 1"];
    c.await_that("all tasks have it", || seen() == everything);
    // The ends of their input were not those of the tasks'.
    writeln!(own, "last").unwrap();
    c.await_that("the command's own input goes on", || {
        seen().iter().filter(|line| line.starts_with("last")).count() == 3
    });
    drop(own);
    assert!(step.wait().unwrap().success());
    for (child, sees) in [(one, "one for 1\n"), (all, "all for 2\n")] {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains(sees), "{output:?}");
    }
}

#[test]
fn who_attaches_to_the_terminal_of_a_step_types_into_it() {
    let c = Cluster::up("attached-terminal", &["--nodes", "1", "--cpus", "2"]);
    let job = c.shell("sbatch -n1 -o /dev/null --wrap 'exec sleep 100000'").ok().job();
    c.await_state(&job, "RUNNING");
    let asks =
        c.script("asks", "#!/bin/sh\n[ -t 0 ] && echo name? && read name && echo \"hello $name\" | tee answer\n");
    let mut step = c.command("srun");
    step.args(["--overlap", "--jobid", &job, "--pty"]).arg(&asks).stdin(Stdio::piped());
    let mut step = step.stdout(fs::File::create(c.work.join("seen")).unwrap()).spawn().unwrap();
    c.await_that("it asks", || c.read("seen").contains("name?"));
    let attached = c.shell(&format!("echo alice | garrick sattach --pty {job}.0"));
    assert!(attached.code == 0 && attached.out.contains("hello alice"), "{attached:?}");
    assert!(step.wait().unwrap().success());
    assert_eq!(c.read("answer"), "hello alice\n");
    let none = c.sh("garrick sattach --pty --output-filter=0 1.0");
    assert_eq!((none.code, none.err.as_str()), (1, "sattach: error: don't specify both --pty and I/O filtering\n"));
}
