//! Triggers: programs run when something happens.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, answer, is_root};

const TWO: [&str; 6] = ["--nodes", "2", "--cpus", "4", "--memory", "4000"];

#[test]
fn programs_of_triggers_run_as_slurm_user_with_what_happened() {
    let c = Cluster::up("triggers", &TWO);
    let told = c.work.join("told");
    let program = c.script("tell", &format!("#!/bin/sh\necho $(id -u) \"$@\" >> {}\n", told.display()));
    let program = program.display().to_string();
    let set = |words: &str, argument: &str| {
        let line = format!("{program} {argument} ; $(x) *");
        let mut args: Vec<&str> = vec!["--set"];
        args.extend(words.split(' '));
        args.extend(["-p", &line]);
        c.run("strigger", &args).ok();
    };
    let job = c.shell("sbatch -H -o /dev/null --wrap true").ok().job();
    set("--node=n1 --drained", "drained");
    set(&format!("--jobid={job} --fini"), "fini");
    set("--reconfig --flags=PERM", "again");
    assert_eq!(c.sh("strigger --get -N").ok().out.lines().count(), 3);
    // They are in the journal.
    c.sh("garrick down").ok();
    c.sh("garrick up").ok();
    assert_eq!(c.sh("strigger --get -N").ok().out.lines().count(), 3);
    let uid = nix::unistd::geteuid().as_raw();
    let said = |argument: &str, what: &str| {
        let line = format!("{uid} {argument} ; $(x) * {what}\n");
        c.await_that(argument, || std::fs::read_to_string(&told).is_ok_and(|text| text.contains(&line)));
    };
    c.sh("scontrol update nodename=n2 state=drain reason=x").ok();
    c.sh("scontrol update nodename=n1 state=drain reason=x").ok();
    said("drained", "n1");
    c.sh(&format!("scancel {job}")).ok();
    said("fini", &job);
    c.await_that("only what stays is left", || c.sh("strigger --get -N").ok().out.lines().count() == 1);
    c.sh("scontrol reconfigure").ok();
    said("again", "*");
    assert!(c.sh("strigger --get -N").ok().out.contains(" reconfig "));
}

#[test]
fn only_slurm_user_sets_triggers() {
    let c = Cluster::up("trigger-rights", &TWO);
    if !is_root() {
        eprintln!("skipped: needs root, to be another user");
        return;
    }
    let mut by_another = c.command_as(65534, "strigger");
    let refused = answer(by_another.args(["--set", "-d", "-p", "/bin/true"]));
    assert_eq!((refused.code, refused.err.as_str()), (1, "slurm_set_trigger: Access/permission denied\n"));
    c.sh("strigger --set -d -p /bin/true").ok();
    let mut by_another = c.command_as(65534, "strigger");
    let refused = answer(by_another.args(["--clear", "-i", "1"]));
    assert_eq!((refused.code, refused.err.as_str()), (1, "slurm_clear_trigger: Access/permission denied\n"));
    c.sh("strigger --clear -i 1").ok();
    assert_eq!(c.sh("strigger --get").ok().out, "");
}
