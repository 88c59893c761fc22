//! Options of steps that change how their tasks and CPUs are, over real processes.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, is_root};
use garrick_kernel::cpu_freq::make_cpu;
use std::path::Path;

/// Nodes of one CPU.
const UP: &[&str] = &["--nodes", "1", "--cpus", "1"];

/// A folder that stands for the kernel's, with more CPUs than a machine has.
fn cpus(at: &Path) {
    (0..64).for_each(|cpu| make_cpu(&at.join(format!("cpu{cpu}/cpufreq")), &[1000, 1500, 2000, 2500]));
}

#[test]
fn cpus_of_steps_have_the_frequency_that_is_asked_for_until_the_step_is_over() {
    let c =
        Cluster::up_with("frequencies", UP, |_| "CpuFreqDef=OnDemand\nCpuFreqGovernors=OnDemand,UserSpace".to_owned());
    cpus(&c.work.join("cpus"));
    c.sh("garrick down").ok();
    c.shell("GARRICK_CPU_FOLDER=$PWD/cpus garrick up").ok();
    let shows = c
        .script("shows", "#!/bin/sh\ngrep -h . cpus/*/cpufreq/$1 | sort | uniq -c | sort -n | head -n 1 | tr -s ' '\n");
    let shows = shows.to_str().unwrap();
    let shown = |line: &str| c.shell(&line.replace("shows", shows)).ok().out;
    assert_eq!(shown("srun --cpu-freq=high shows scaling_governor"), " 1 userspace\n");
    assert_eq!(shown("shows scaling_governor"), " 64 schedutil\n");
    assert_eq!(shown("srun --cpu-freq=highm1 shows scaling_setspeed"), " 1 2000\n");
    assert_eq!(shown("srun --cpu-freq=low-medium shows scaling_max_freq"), " 1 1500\n");
    assert_eq!(shown("shows scaling_max_freq"), " 64 2500\n");
    assert_eq!(shown("srun shows scaling_governor"), " 1 ondemand\n", "the site's");
    assert_eq!(
        shown("salloc -Q --cpu-freq=1700 sh -c 'echo $SLURM_CPU_FREQ_REQ; srun shows scaling_min_freq'"),
        "1700\n 1 1700\n"
    );
    let not_allowed = "srun: error: governor of performance is not allowed in slurm.conf\n\
                       srun: error: Invalid --cpu-freq argument\n";
    for line in ["srun --cpu-freq=performance true", "salloc -Q srun --cpu-freq=performance true"] {
        let answer = c.shell(line);
        assert_eq!((answer.code, answer.err.as_str()), (255, not_allowed), "{line}");
    }
    let job = c.shell(&format!(
        "sbatch --cpu-freq=low -o out --wrap '{shows} scaling_governor; srun {shows} scaling_governor'"
    ));
    let job = job.ok().job();
    c.await_state(&job, "COMPLETED");
    assert_eq!(c.read("out"), " 64 schedutil\n 1 userspace\n");
    assert!(c.sh(&format!("scontrol show job {job}")).ok().out.contains("   CPU_max_freq=Low Governor=UserSpace\n"));
    assert_eq!(shown("shows scaling_governor"), " 64 schedutil\n");
}

#[test]
fn a_machine_whose_kernel_sets_no_frequencies_runs_steps_all_the_same() {
    let c = Cluster::up("no-frequencies", UP);
    c.sh("garrick down").ok();
    c.shell("GARRICK_CPU_FOLDER=$PWD/none garrick up").ok();
    assert_eq!(c.sh("srun --cpu-freq=performance printenv SLURM_CPU_FREQ_REQ").ok().out, "Performance\n");
    let log = std::fs::read_to_string(c.home.join("log/slurmd-n1.log")).unwrap();
    assert!(log.contains("--cpu-freq=Performance: the kernel sets no frequencies of CPU"), "{log}");
}

#[test]
fn a_task_is_over_with_the_last_of_its_processes_where_that_is_asked_for() {
    let c = Cluster::up("children", UP);
    // The child goes on in a session of its own, until it is let.
    let leaves = c.script(
        "leaves",
        "#!/bin/sh\nmkfifo go.$SLURM_STEP_ID\n(setsid sh -c 'read x < go.$SLURM_STEP_ID; echo child' &)\n\
         test $$ = $SLURM_TASK_PID && echo parent\nexit $1\n",
    );
    let leaves = leaves.to_str().unwrap();
    let lets = "(until [ -p go.0 ]; do sleep 0.05; done; echo > go.0) & ";
    let ran = |line: &str| {
        let answer = c.shell(&format!("rm -f go.*; {lets} {line}"));
        (answer.code, answer.out)
    };
    assert_eq!(ran(&format!("srun --wait-for-children {leaves} 0")), (0, "parent\nchild\n".to_owned()));
    assert_eq!(ran(&format!("srun --wait-for-children {leaves} 3")), (3, "parent\nchild\n".to_owned()));
    // Nobody lets this child: it is not waited for.
    let failed = c.shell(&format!("rm -f go.*; srun -K1 --wait-for-children {leaves} 4"));
    assert_eq!((failed.code, failed.out.as_str()), (4, "parent\n"));
    let killed = c.shell("srun --wait-for-children sh -c 'kill -9 $$'");
    assert_eq!(killed.code, 137, "{}", killed.err);
    let missing = c.sh("srun --wait-for-children nosuch");
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("execve(): nosuch: No such file or directory"), "{}", missing.err);
}

#[test]
fn a_job_has_what_a_login_of_its_user_sets_where_that_is_asked_for() {
    let c = Cluster::up_with("login", UP, |_| "BatchStartTimeout=600".to_owned());
    let login = if is_root() { "su - $(id -un) -c env" } else { "$SHELL -l -c env" };
    let login =
        c.shell(&format!("env -i HOME=$HOME SHELL=$SHELL USER=$USER PATH=/usr/bin:/bin sh -c '{login}'")).ok().out;
    let own = ["_", "SHLVL", "PWD", "OLDPWD", "TERM"];
    let entry = |line: &str| line.split_once('=').is_some_and(|(name, _)| !own.contains(&name) && name != "PATH");
    let login: Vec<&str> = login.lines().filter(|line| entry(line)).collect();
    assert!(login.iter().any(|line| line.starts_with("HOME=")), "{login:?}");
    let clean = "env -i GARRICK_HOME=$GARRICK_HOME PATH=$PATH A=own sbatch";
    let job = c.shell(&format!("{clean} --get-user-env -o out --wrap 'echo A=$A; env'")).ok().job();
    c.await_state(&job, "COMPLETED");
    let has = c.read("out");
    assert!(has.starts_with("A=own\n") && has.contains("SLURM_GET_USER_ENV=1\n"), "{has}");
    let missing: Vec<&&str> = login.iter().filter(|line| !has.lines().any(|own| own == **line)).collect();
    assert!(missing.is_empty(), "{missing:?} of {has}");
}
