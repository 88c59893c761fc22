//! One machine, one command: the main job, batch jobs, steps, minibatch, exit codes, refusals.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, answer, built, scratch};

#[test]
fn main_job_maps_every_file_and_its_result_can_be_checked() {
    let work = scratch("main");
    let tree = work.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    let (mut lines, mut words) = (0, 0);
    for n in 0..60 {
        let text = format!("#define A{n} {n}\nint x{n};\n").repeat(n % 7 + 1);
        lines += text.lines().count();
        words += text.split_whitespace().count();
        std::fs::write(tree.join(format!("f{n:02}.h")), text).unwrap();
    }
    let sweep = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/sweep.sh");
    let home = work.join("home");
    let a = answer(
        std::process::Command::new(built().join("garrick"))
            .arg("run")
            .arg(&sweep)
            .arg(&tree)
            .env("GARRICK_HOME", &home)
            .current_dir(&work),
    );
    assert_eq!(a.code, 0, "{a:?}");
    assert!(a.out.contains("60 files mapped"), "{a:?}");
    for expected in ["files 60".to_owned(), format!("lines {lines}"), format!("words {words}")] {
        assert!(a.out.contains(&expected), "{expected} is not in {a:?}");
    }
    // It stopped what it had started.
    let status = answer(
        std::process::Command::new(built().join("garrick")).args(["status", "--json"]).env("GARRICK_HOME", &home),
    );
    assert_eq!(status.out.trim(), "[]", "{status:?}");
    let _ = std::fs::remove_dir_all(&work);
}

#[test]
fn a_batch_job_from_submission_to_its_record() {
    let c = Cluster::up("batch", &[]);
    c.script("job.sh", "#!/bin/bash\n#SBATCH -J demo -n1 -t 10\n#SBATCH -o %x-%j.out\necho $SLURM_JOB_NAME $SLURM_NTASKS $1\nsrun -n1 sh -c 'echo step $SLURM_STEP_ID'\nexit 3\n");
    let a = c.sh("sbatch --wait job.sh word");
    assert_eq!((a.code, a.out.lines().next().unwrap().starts_with("Submitted batch job ")), (3, true), "{a:?}");
    let id = a.job();
    assert_eq!(c.read(&format!("demo-{id}.out")), "demo 1 word\nstep 0\n");
    assert_eq!(c.job_field(&id, "JobState").as_deref(), Some("FAILED"));
    assert_eq!(c.job_field(&id, "ExitCode").as_deref(), Some("3:0"));
    assert_eq!(c.job_field(&id, "Reason").as_deref(), Some("NonZeroExitCode"));
}

#[test]
fn a_job_whose_output_cannot_be_opened_says_which_file_and_why() {
    let c = Cluster::up("noout", &[]);
    let failed = |options: &str, file: &str| {
        let a = c.sh(&format!("sbatch --wait {options} --wrap true"));
        assert_eq!(a.code, 1, "{a:?}");
        let id = a.job();
        let field = |name: &str| c.job_field(&id, name).unwrap_or_default();
        assert_eq!((field("JobState").as_str(), field("ExitCode").as_str()), ("FAILED", "0:53"));
        assert_eq!(field("Reason"), "RaisedSignal:53(Real-time_signal_19)");
        let cause = format!("Could not open {file}: No such file or directory");
        let shown = c.sh(&format!("scontrol show job {id}")).ok();
        assert!(shown.out.contains(&format!("\n   SystemComment={cause}\n")), "{shown:?}");
        let told = c.sh(&format!("garrick why {id}")).ok();
        assert!(told.out.contains(&format!(": it was not started on n1: {cause}; ")), "{told:?}");
        let listed = c.sh(&format!("squeue -h -t all -j {id} -O system_comment:100")).ok();
        assert_eq!(listed.out.trim(), cause);
    };
    failed("-o /nosuch/x.out", "stdout file /nosuch/x.out");
    failed("-e /nosuch/x.err -o /dev/null", "stderr file /nosuch/x.err");
    failed("-D /nosuch -o x.out", "stdout file /nosuch/x.out");
    // As in Slurm, a folder that is not there is no reason for a script not to run.
    let id = c
        .run("sbatch", &["--wait", "-D", "/nosuch", "-o", c.work.join("moved.out").to_str().unwrap(), "--wrap", "pwd"]);
    let id = id.ok().job();
    let moved =
        "slurmstepd: error: couldn't chdir to `/nosuch': No such file or directory: going to /tmp instead\n/tmp\n";
    assert_eq!(c.read("moved.out"), moved);
    assert!(!c.sh(&format!("scontrol show job {id}")).ok().out.contains("SystemComment="));
}

#[test]
fn exit_codes_and_messages_of_srun_are_slurms() {
    let c = Cluster::up("exit", &[]);
    let a = c.run("srun", &["-n1", "bash", "-c", "exit 7"]);
    assert_eq!(a.code, 7, "{a:?}");
    assert!(a.err.contains(": task 0: Exited with exit code 7"), "{a:?}");
    let a = c.run("srun", &["-n1", "/nosuch/program"]);
    assert_eq!(a.code, 2, "{a:?}");
    assert!(a.err.contains("error: execve(): /nosuch/program: No such file or directory"), "{a:?}");
    let a = c.run("srun", &["-n1", "bash", "-c", "kill -9 $$"]);
    assert_eq!(a.code, 137, "{a:?}");
    assert!(a.err.contains("task 0: Killed"), "{a:?}");
    let a = c.run("srun", &["-n2", "-l", "sh", "-c", "echo $SLURM_PROCID"]);
    let mut lines: Vec<_> = a.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: 0", "1: 1"], "{a:?}");
    let a = c.shell("printf 'one\\ntwo\\n' | srun -n1 cat");
    assert_eq!((a.code, a.out.as_str()), (0, "one\ntwo\n"), "{a:?}");
}

#[test]
fn minibatch_steps_are_queued_run_and_waited_for() {
    let c = Cluster::up("mini", &[]);
    c.script("one.sh", "#!/bin/bash\necho batch step $SLURM_STEP_ID $1\n");
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n2 -o job.out\n\
         srun --async -n1 --exact -o out.%s sh -c 'echo async $SLURM_STEP_ID'\n\
         srun --async --parsable -n1 --exact -o out.%s sh -c 'echo async $SLURM_STEP_ID'\n\
         srun --batch -n1 --exact -o out.%s one.sh arg\n\
         swait\necho drained $?\n",
    );
    let id = c.sh("sbatch --wait job.sh").ok().job();
    assert_eq!(c.read("job.out"), format!("Submitted step {id}.0\n{id}.1\nSubmitted batch step {id}.2\ndrained 0\n"));
    assert_eq!(c.read("out.0"), "async 0\n");
    assert_eq!(c.read("out.1"), "async 1\n");
    assert_eq!(c.read("out.2"), "batch step 2 arg\n");
}

#[test]
fn a_line_that_names_a_script_without_an_interpreter_is_run_by_the_shell() {
    let c = Cluster::up("shell", &[]);
    c.script("plain", "echo plain $1 in step $SLURM_STEP_ID\nexit $2\n");
    c.script("list.txt", "./plain one 0\nplain 'two words' 5\n");
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n1 -o job.out\nexport PATH=$PWD:$PATH\n\
         srun --async --from-file list.txt -o out.%s\n\
         swait --exit-status\necho worst $?\nsrun ./plain three 0\necho attended $?\n",
    );
    let id = c.sh("sbatch --wait job.sh").ok().job();
    assert_eq!(c.read("out.0"), "plain one in step 0\n");
    assert_eq!(c.read("out.1"), "plain two words in step 1\n");
    let told = c.read("job.out");
    assert!(told.starts_with(&format!("Submitted 2 steps {id}.[0-1]\n")) && told.contains("\nworst 5\n"), "{told}");
    // Whoever names a program gets what the kernel says, as in Slurm.
    assert!(told.contains("execve(): ./plain: Exec format error") && told.ends_with("attended 8\n"), "{told}");
}

#[test]
fn a_step_without_output_leaves_no_file_unless_one_was_asked_for() {
    let c = Cluster::up("silent", &[]);
    c.script("silent.sh", "#!/bin/sh\nexit 0\n");
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n2 -o job.out\n\
         srun --async --array=0-9 sh -c '[ $SLURM_STEP_ARRAY_TASK_ID != 7 ] || echo seven'\n\
         srun --async --array=0-1 -o asked.%a true\n\
         srun --async -n2 --exact sh -c '[ $SLURM_PROCID = 0 ] || echo one of two'\n\
         srun --async -n2 --exact true\n\
         srun --batch silent.sh\n\
         srun --async -n1 --exact no-such-program\n\
         printf 'true\\necho a line\\n' | srun --async --from-file -\n\
         srun --async --retries=1 -n1 --exact sh -c '[ -n \"$GARRICK_STEP_RETRY\" ] || { echo first; exit 1; }'\n\
         swait\n",
    );
    let id = c.sh("sbatch --wait job.sh").ok().job();
    let mut found: Vec<String> = std::fs::read_dir(&c.work)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("slurm-") || name.starts_with("asked."))
        .collect();
    found.sort_unstable();
    let left = ["0_7", "2", "5", "7"].map(|step| format!("slurm-{id}.{step}.out"));
    assert_eq!(found, [&["asked.0".to_owned(), "asked.1".to_owned()][..], &left].concat());
    assert_eq!((c.read(&left[0]), c.read(&left[1])), ("seven\n".to_owned(), "one of two\n".to_owned()));
    assert_eq!(c.read(&left[2]), "slurmstepd: error: execve(): no-such-program: No such file or directory\n");
    assert_eq!(c.read(&left[3]), "a line\n");
}

/// One of them had all memory, and the others waited beside idle CPUs.
#[test]
fn jobs_that_name_no_memory_run_on_all_cpus_at_once_and_one_that_waits_is_told_what_it_lacks() {
    let c = Cluster::up("memory", &["--nodes", "1", "--cpus", "4", "--memory", "2000"]);
    c.fifo("gate");
    let submit = |options: &str| {
        let words: Vec<&str> = ["-o", "/dev/null"].into_iter().chain(options.split_whitespace()).collect();
        c.run("sbatch", &[&words[..], &["--wrap", "read line < gate"]].concat()).ok().job()
    };
    let small: Vec<String> = (0..3).map(|_| submit("-n1")).collect();
    for job in &small {
        c.await_state(job, "RUNNING");
    }
    assert_eq!(c.job_field(&small[0], "AllocTRES").as_deref(), Some("cpu=1,mem=500M,node=1,billing=1"));
    let large = submit("-n1 --mem=1000 -t 1");
    c.await_that("it is looked at", || c.job_field(&large, "Reason").as_deref() == Some("Resources"));
    let told = c.sh(&format!("garrick why {large}")).ok();
    let lacks = "\nWhat it lacks: memory: 500 of 2000M free; you asked for 1000M.\n";
    assert!(told.out.ends_with(lacks), "{told:?}");
    c.sh(&format!("scancel {large} {}", small.join(" "))).ok();
    for job in &small {
        c.await_state(job, "CANCELLED");
    }
    let whole = submit("-n1 --mem=0");
    c.await_state(&whole, "RUNNING");
    let next = submit("-n1");
    c.await_that("it is looked at", || c.job_field(&next, "Reason").as_deref() == Some("Resources"));
    let told = c.sh(&format!("garrick why {next}")).ok();
    let lacks = "\nWhat it lacks: memory: 0 of 2000M free; you asked for none, which means 500M.\n";
    assert!(told.out.ends_with(lacks), "{told:?}");
    c.sh(&format!("scancel {whole} {next}")).ok();
    c.await_state(&whole, "CANCELLED");
}

#[test]
fn refusals_say_what_slurm_says() {
    let c = Cluster::up("refuse", &[]);
    let a = c.sh("sbatch --nosuch job.sh");
    assert_eq!(a.code, 255);
    assert!(a.err.contains("sbatch: unrecognized option '--nosuch'"), "{a:?}");
    let a = c.sh("sbatch nosuch.sh");
    assert_eq!((a.code, a.err.as_str()), (1, "sbatch: error: Unable to open file nosuch.sh\n"));
    let a = c.sh("sbatch -t 1x --wrap true");
    assert_eq!((a.code, a.err.as_str()), (255, "sbatch: error: Invalid --time specification\n"));
    let a = c.sh("sbatch -p nosuch --wrap true");
    assert_eq!(a.code, 1);
    assert!(a.err.ends_with("sbatch: error: Batch job submission failed: Invalid partition name specified\n"), "{a:?}");
    let a = c.sh("sbatch -n1 --mem=999999999 --wrap true");
    assert_eq!(a.code, 1);
    assert!(
        a.err.contains("sbatch: error: Batch job submission failed: Requested node configuration is not available"),
        "{a:?}"
    );
    let a = c.sh("sbatch -d afterok:99999999 --wrap true");
    assert_eq!((a.code, a.err.as_str()), (1, "sbatch: error: Batch job submission failed: Job dependency problem\n"));
    let a = c.sh("squeue -j 99999999");
    assert_eq!((a.code, a.err.as_str()), (1, "slurm_load_jobs error: Invalid job id specified\n"));
    let a = c.sh("scontrol show job 99999999");
    assert_eq!((a.code, a.err.as_str()), (1, "slurm_load_jobs error: Invalid job id specified\n"));
    assert_eq!(c.sh("scancel 99999999").code, 0);
}

#[test]
fn a_cancelled_job_ends_with_all_its_processes_even_daemonised_ones() {
    let c = Cluster::up("cancel", &[]);
    let started = c.fifo("started");
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -o job.out\nsetsid sh -c 'echo $$ > daemon.pid; exec sleep 7777' &\nwhile [ ! -s daemon.pid ]; do :; done\necho up > started\nwait\n",
    );
    let id = c.sh("sbatch job.sh").ok().job();
    assert_eq!(std::fs::read_to_string(started).unwrap(), "up\n");
    let daemon = c.read("daemon.pid").trim().to_owned();
    c.sh(&format!("scancel {id}")).ok();
    c.await_state(&id, "CANCELLED");
    // One that init has not reaped yet is dead too.
    let stat = std::fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "the daemonised child lives on: {stat}");
}

#[test]
fn job_arrays_run_every_task_once() {
    let c = Cluster::up("array", &[]);
    let id = c
        .run(
            "sbatch",
            &[
                "--wait",
                "--array=1-6%2",
                "-n1",
                "-o",
                "a.%A_%a",
                "--wrap",
                "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT",
            ],
        )
        .ok()
        .job();
    for n in 1..=6 {
        assert_eq!(c.read(&format!("a.{id}_{n}")), format!("{id} {n} 6\n"));
    }
}

#[test]
fn time_limits_end_a_job_and_warn_it_before() {
    let c = Cluster::up("limit", &[]);
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -o job.out --signal=B:USR1@45 -t 1\ntrap 'echo warned; exit 0' USR1\nsleep 600 & wait\n",
    );
    c.sh("sbatch --wait job.sh").ok();
    assert!(c.read("job.out").contains("warned"));
}

#[test]
fn everything_a_dead_controller_is_asked_fails_within_seconds() {
    let work = scratch("dead");
    let a = answer(
        std::process::Command::new(built().join("garrick"))
            .args(["squeue"])
            .env("GARRICK_HOME", work.join("home"))
            .current_dir(&work),
    );
    assert_eq!(a.code, 1, "{a:?}");
    assert!(!a.err.is_empty());
    let _ = std::fs::remove_dir_all(&work);
}
