//! Triggers: programs run when something happens.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::{
    deployment::{ALICE, ROOT, SLURM, Site},
    support::{Cluster, answer, is_root},
};
use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

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
        c.await_that(argument, || fs::read_to_string(&told).is_ok_and(|text| text.contains(&line)));
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

/// A program of triggers that writes what it was told, and as whom.
pub struct Told {
    program: PathBuf,
    told: PathBuf,
}

impl Told {
    pub fn new(site: &Site) -> Self {
        let (program, told) = (site.work.join("tell"), site.work.join("told"));
        // Another process writes it: this one must not have it open while it starts others.
        let text = format!("#!/bin/sh\necho \"$@\" >> {}\n", told.display());
        let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let written = std::process::Command::new("/bin/sh").args(["-c", write]).arg(&program).arg(text).status();
        assert!(written.unwrap().success());
        fs::write(&told, "").unwrap();
        fs::set_permissions(&told, fs::Permissions::from_mode(0o666)).unwrap();
        if !site.work.join("strigger").exists() {
            std::os::unix::fs::symlink("garrick", site.work.join("strigger")).unwrap();
        }
        Self { program, told }
    }

    /// A trigger for each of these events.
    #[track_caller]
    pub fn set(&self, site: &Site, events: &[&str]) {
        for event in events {
            let line = format!("{} {event}", self.program.display());
            site.as_user(SLURM, "strigger", &["--set", event, "-p", &line]).ok();
        }
    }

    /// These lines and no others were written.
    #[track_caller]
    pub fn await_all(&self, site: &Site, lines: &[&str]) {
        let sorted = |mut lines: Vec<String>| {
            lines.sort();
            lines
        };
        let want = sorted(lines.iter().map(|line| (*line).to_owned()).collect());
        let read = || sorted(fs::read_to_string(&self.told).unwrap().lines().map(str::to_owned).collect());
        site.await_that(&format!("{want:?} of triggers"), || read() == want);
    }
}

/// The state folder goes from host to host. Each host is a name of its own here, in a namespace for it.
#[test]
fn controllers_that_fail_come_back_and_take_over_run_programs() {
    let mut unshare = std::process::Command::new("unshare");
    let tried = unshare.args(["-u", "true"]).stderr(std::process::Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs root with CAP_SYS_ADMIN, to give each controller a host name of its own");
        return;
    }
    let Some(site) = Site::new("controllers", &["n1"]) else { return };
    let told = Told::new(&site);
    let own = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let tell = |what: &str| {
        let path = site.work.join(what);
        let text = format!("#!/bin/sh\necho {what} ${{SLURM_CONF##*/}} $# >> {}\n", told.told.display());
        let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let written = std::process::Command::new("/bin/sh").args(["-c", write]).arg(&path).arg(text).status();
        assert!(written.unwrap().success());
        path.display().to_string()
    };
    let text = fs::read_to_string(&site.conf).unwrap();
    let hosts = format!("SlurmctldHost={own}\nSlurmctldHost=understudy\n");
    let programs = format!("SlurmctldPrimaryOnProg={}\nSlurmctldPrimaryOffProg={}\n", tell("on"), tell("off"));
    let text = text.replace(&format!("SlurmctldHost={own}(127.0.0.1)\n"), &format!("{hosts}{programs}"));
    fs::write(&site.conf, text).unwrap();
    let line =
        format!("hostname understudy && exec {} -f {}", site.work.join("slurmctld").display(), site.conf.display());
    let start_understudy = || {
        let mut unshare = std::process::Command::new("unshare");
        let started = answer(unshare.args(["-u", "sh", "-c", &line]).stdin(std::process::Stdio::null()));
        assert_eq!(started.code, 0, "{started:?}");
    };
    let mut so_far = vec!["on slurm.conf 0"];
    site.daemon(ROOT, "slurmctld", &[]);
    told.await_all(&site, &so_far);
    told.set(&site, &["-a", "-A", "-b", "-B", "-c", "-C"]);
    let mut come = |lines: &[&'static str]| {
        so_far.extend(lines);
        told.await_all(&site, &so_far);
    };
    site.kill_daemon("slurmctld");
    site.daemon(ROOT, "slurmctld", &[]);
    come(&["on slurm.conf 0", "-a *", "-A *"]);
    let shut_down = || {
        let pid = fs::read_to_string(site.work.join("run/slurmctld.pid")).unwrap().trim().parse().unwrap();
        site.as_user(ROOT, "scontrol", &["shutdown", "controller"]).ok();
        site.await_that("the controller is gone", || crate::support::is_dead(pid));
    };
    shut_down();
    come(&["off slurm.conf 0"]);
    start_understudy();
    come(&["on slurm.conf 0", "-C *"]);
    site.kill_daemon("slurmctld");
    start_understudy();
    come(&["on slurm.conf 0", "-B *", "-c *"]);
    shut_down();
    site.daemon(ROOT, "slurmctld", &[]);
    // The trigger for the controller's return has run already.
    come(&["off slurm.conf 0", "on slurm.conf 0", "-b *"]);
    assert_eq!(site.as_user(ROOT, "strigger", &["--get"]).ok().out, "");
    site.end();
}

#[test]
fn a_node_that_is_expected_to_fail_gets_nothing_new_and_is_told_of() {
    let c = Cluster::up("trigger-fail", &TWO);
    let told = c.work.join("told");
    let program = c.script("tell", &format!("#!/bin/sh\necho $1 >> {}\n", told.display()));
    c.run("strigger", &["--set", "-F", "-p", program.to_str().unwrap()]).ok();
    c.run("strigger", &["--set", "--burst_buffer", "-p", "/bin/true"]).ok();
    let shown = c.sh("strigger --get -N").ok().out;
    assert!(
        shown.contains(" node            * fail ") && shown.contains(" other      (null) burst_buffer "),
        "{shown}"
    );
    c.sh("scontrol update nodename=n1 state=fail reason=disk").ok();
    let state = |node: &str| c.sh(&format!("sinfo -h -o %t%T -n {node}")).ok().out;
    c.await_that("it is FAIL", || state("n1") == "failfail\n");
    assert!(c.sh("scontrol show node n1").ok().out.contains("State=IDLE+FAIL "));
    assert_eq!(c.sh("sinfo -h -t fail -o %N").ok().out, "n1\n");
    let job = c.shell("sbatch -w n1 -o /dev/null --wrap true").ok().job();
    let other = c.shell("sbatch -w n2 --wait -o /dev/null --wrap true").ok().job();
    c.await_state(&other, "COMPLETED");
    assert_eq!(c.job_field(&job, "JobState").as_deref(), Some("PENDING"));
    c.await_that("the trigger ran", || fs::read_to_string(&told).is_ok_and(|text| text == "n1\n"));
    // It is in the journal.
    c.sh("garrick down").ok();
    c.sh("garrick up").ok();
    c.await_that("it is still FAIL", || state("n1") == "failfail\n");
    c.sh("scontrol update nodename=n1 state=resume").ok();
    c.await_state(&job, "COMPLETED");
    c.down();
}

#[test]
fn a_users_trigger_runs_as_that_user_where_the_site_allows_it() {
    let Some(site) = Site::with_slurm_user(ROOT, "user-triggers", &["n1"]) else { return };
    let told = Told::new(&site);
    site.daemon(ROOT, "slurmctld", &[]);
    let program = format!("{} alice", told.program.display());
    let set = |who| site.as_user(who, "strigger", &["--set", "-r", "--flags=PERM", "-p", &program]);
    let refused = set(ALICE);
    assert_eq!((refused.code, refused.err.as_str()), (1, "slurm_set_trigger: Access/permission denied\n"));
    let text = fs::read_to_string(&site.conf).unwrap();
    fs::write(&site.conf, format!("SlurmctldParameters=allow_user_triggers\n{text}")).unwrap();
    site.as_user(ROOT, "scontrol", &["reconfigure"]).ok();
    site.await_that("she may set one", || set(ALICE).code == 0);
    // What it writes belongs to her.
    fs::remove_file(&told.told).unwrap();
    fs::set_permissions(&site.work, fs::Permissions::from_mode(0o777)).unwrap();
    site.as_user(ROOT, "scontrol", &["reconfigure"]).ok();
    let owner = || fs::metadata(&told.told).ok().map(|found| std::os::unix::fs::MetadataExt::uid(&found));
    site.await_that("it ran as her", || owner() == Some(ALICE.1));
    let job = site.as_user(ROOT, "sbatch", &["-H", "-o", "/dev/null", "--wrap", "true"]).ok().job();
    let of_another = site.as_user(ALICE, "strigger", &["--set", "-j", &job, "-f", "-p", "/bin/true"]);
    assert_eq!((of_another.code, of_another.err.as_str()), (1, "slurm_set_trigger: Access/permission denied\n"));
    site.end();
}
