//! Crontabs: their jobs run as their users, again and again.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Answer, Cluster, answer, is_root};
use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
};

const ONE: [&str; 6] = ["--nodes", "1", "--cpus", "4", "--memory", "4000"];
const NOBODY: u32 = 65534;

/// Whose crontab it is: root has it belong to somebody else.
fn user() -> u32 {
    if is_root() { NOBODY } else { nix::unistd::geteuid().as_raw() }
}

fn as_user(c: &Cluster, name: &str) -> Command {
    if is_root() { c.command_as(NOBODY, name) } else { c.command(name) }
}

/// `scrontab ARGS` by the user, with this on standard input.
fn scrontab(c: &Cluster, args: &[&str], text: &str) -> Answer {
    let mut child = as_user(c, "scrontab")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Answer { code: done.status.code().unwrap(), out: text(done.stdout), err: text(done.stderr) }
}

#[test]
fn a_job_of_a_crontab_runs_as_its_user_again_and_again() {
    let c = Cluster::up_with("crontab", &ONE, |_| "ScronParameters=enable".to_owned());
    let (work, user) = (c.work.display(), user());
    let text = format!(
        "TOLD=told\n#SCRON -D {work} -J often -o {work}/out --open-mode=append\n\
         * * * * * echo $(id -u) $SLURM_JOB_ID >> $TOLD\n@yearly true\n"
    );
    scrontab(&c, &["-"], &text).ok();
    let job = answer(as_user(&c, "squeue").args(["-h", "-n", "often", "-o", "%i"])).ok().out.trim().to_owned();
    let shown = c.sh(&format!("scontrol -o show job {job}")).ok().out;
    assert!(
        shown.contains("CronJob=Yes CrontabSpec=\"* * * * *\"") && shown.contains(&format!("({user}) ")),
        "{shown}"
    );
    // The crontab is in the journal, and its jobs are.
    c.sh("garrick down").ok();
    c.sh("garrick up").ok();
    assert_eq!(scrontab(&c, &["-l"], "").ok().out, text);
    let told = c.work.join("told");
    c.await_that("it ran", || fs::read_to_string(&told).is_ok_and(|text| text.ends_with('\n')));
    assert_eq!(fs::read_to_string(&told).unwrap(), format!("{user} {job}\n"));
    let field = |name| c.job_field(&job, name).unwrap_or_default();
    c.await_that("it waits for its next time", || {
        (field("JobState"), field("Reason"), field("Restarts")) == ("PENDING".into(), "BeginTime".into(), "1".into())
    });
    // A new crontab has new jobs, and none of the old one recurs.
    scrontab(&c, &["-"], "@daily true\n").ok();
    c.await_state(&job, "CANCELLED");
    assert!(!c.sh(&format!("scontrol -o show job {job}")).ok().out.contains("CronJob=Yes"));
}

#[test]
fn a_crontab_is_its_users_and_root_s() {
    let c = Cluster::up_with("crontab-rights", &ONE, |_| "ScronParameters=enable,explicit_scancel".to_owned());
    if !is_root() {
        eprintln!("skipped: needs root, to be several users");
        return;
    }
    scrontab(&c, &[], "@daily true\n").ok();
    let own = scrontab(&c, &["-u", "root", "-l"], "");
    assert_eq!((own.code, own.err.as_str()), (1, "scrontab: fatal: slurm_request_crontab failed: Invalid user id\n"));
    assert_eq!(c.sh("scrontab -u nobody -l").ok().out, "@daily true\n");
    assert_eq!(c.sh("scrontab -l").out, "no crontab for root\n");
    let job = c.sh("squeue -h -u nobody -o %i").ok().out.trim().to_owned();
    let refused = c.sh(&format!("scancel {job}"));
    assert!(refused.code == 50 && refused.err.contains("without --cron flag"), "{refused:?}");
    c.sh(&format!("scancel --cron {job}")).ok();
    c.await_that("its line is disabled", || scrontab(&c, &["-l"], "").out == "#DISABLED: @daily true\n");
    // What root installs for another user runs as that user.
    let file = c.script("crontab", "@weekly true\n");
    c.sh(&format!("scrontab -u nobody {}", file.display())).ok();
    assert_eq!(c.sh("squeue -h -o %u").ok().out, "nobody\n");
    c.sh("scrontab -u nobody -r").ok();
    c.await_that("its job is gone", || c.sh("squeue -h").ok().out.is_empty());
    assert_eq!(scrontab(&c, &["-l"], "").out, "no crontab for nobody\n");
}

#[test]
fn no_crontab_is_kept_where_the_site_does_not_say_so() {
    let c = Cluster::up("crontab-off", &ONE);
    for args in [&["-l"][..], &["-r"], &["-"]] {
        let refused = scrontab(&c, args, "");
        assert_eq!(
            (refused.code, refused.err.as_str()),
            (1, "scrontab: fatal: scrontab is disabled on this cluster\n")
        );
    }
}
