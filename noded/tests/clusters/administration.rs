//! What administrators have in hand: tokens of users, the log of the scheduler, the configuration as a file.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::{
    deployment::{ALICE, ROOT, SLURM, Site},
    support::{Answer, Cluster, Killed, answer},
};
use garrick_model::config;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

const BOB: (&str, u32) = ("nobody", 65534);

/// A program of the site as somebody who shows a token.
fn with_token(site: &Site, (_, uid): (&str, u32), token: &str, program: &str, args: &[&str]) -> Answer {
    let mut command = Command::new(site.work.join(program));
    command.args(args).env_clear().env("PATH", "/usr/bin:/bin").env("SLURM_CONF", &site.conf).env("TZ", "UTC");
    answer(command.env("SLURM_JWT", token).uid(uid).gid(uid).current_dir("/tmp").stdin(Stdio::null()))
}

#[test]
fn a_token_stands_for_its_user_and_no_other() {
    let Some(site) = Site::new("tokens", &["n1"]) else { return };
    let without = site.as_user(ALICE, "scontrol", &["token"]);
    assert_eq!(without.code, 1, "no controller");
    site.daemon(ROOT, "slurmctld", &[]);
    let of = |who, args: &[&str]| site.as_user(who, "scontrol", &[&["token"], args].concat());
    let fails = "scontrol: error: slurm_fetch_token: error with request:";
    let none = of(ALICE, &[]);
    assert_eq!((none.code, none.err), (1, format!("{fails} Required plugin type not loaded or initialized\n")));
    let key = site.work.join("jwt.key");
    let write_key = |text: &[u8], mode| {
        fs::write(&key, text).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&key, Some(SLURM.1), Some(SLURM.1)).unwrap();
    };
    write_key(b"the secret of this site, all 32 of it", 0o600);
    let plain = fs::read_to_string(&site.conf).unwrap();
    let configure = |more: &str| {
        let auth = format!("AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={}{more}\n", key.display());
        let metrics = "MetricsType=metrics/openmetrics\nMetricsAuthUsers=games\n";
        fs::write(&site.conf, format!("{auth}{metrics}{plain}")).unwrap();
        site.as_user(ROOT, "scontrol", &["reconfigure"]).ok();
    };
    configure("");
    site.await_that("there are tokens", || of(ALICE, &[]).code == 0);
    let token = |answer: Answer| answer.ok().out.trim().strip_prefix("SLURM_JWT=").unwrap().to_owned();
    let alices = token(of(ALICE, &["lifespan=600"]));
    // Somebody else with it is she, and without it is not.
    let job = with_token(&site, BOB, &alices, "sbatch", &["-H", "-o", "/dev/null", "--wrap", "true"]).ok().job();
    let user = site.as_user(ROOT, "squeue", &["-h", "-o", "%u", "-j", &job]).ok().out;
    assert_eq!(user.trim(), ALICE.0);
    assert!(site.as_user(BOB, "scancel", &[&job]).err.contains("Access/permission denied"));
    // No more than she, whoever shows it: not even root.
    let update = ["update", "nodename=n1", "state=drain", "reason=x"];
    for who in [BOB, ROOT] {
        let refused = with_token(&site, who, &alices, "scontrol", &update);
        assert_eq!((refused.code, refused.err.as_str()), (1, "slurm_update error: Invalid user id\n"), "{who:?}");
    }
    with_token(&site, BOB, &alices, "scancel", &[&job]).ok();
    // Nobody gets another's, but of an administrator; with a token none is made.
    let denied = of(ALICE, &["username=root"]);
    assert_eq!((denied.code, denied.err), (1, format!("{fails} Access/permission denied\n")));
    let again = with_token(&site, ALICE, &alices, "scontrol", &["token"]);
    assert_eq!((again.code, again.err), (1, format!("{fails} Access/permission denied\n")));
    let roots = token(of(ROOT, &[]));
    with_token(&site, BOB, &roots, "scontrol", &["update", "nodename=n1", "comment=seen"]).ok();
    let by_slurm = token(of(SLURM, &["username=games"]));
    let job = with_token(&site, BOB, &by_slurm, "sbatch", &["-H", "-o", "/dev/null", "--wrap", "true"]).ok().job();
    let user = site.as_user(ROOT, "squeue", &["-h", "-o", "%u", "-j", &job]).ok().out;
    assert_eq!(user.trim(), ALICE.0);
    // The metrics know the same tokens.
    let port = config::read(&site.conf).unwrap().slurmctld_port.first;
    let status = |token: &str| {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = agent.get(format!("http://127.0.0.1:{port}/metrics/jobs"));
        request.header("authorization", format!("Bearer {token}")).call().unwrap().status().as_u16()
    };
    assert_eq!((status(&alices), status("bad")), (200, 401));
    // Those that do not hold: of no key, changed, run out, of another key.
    let refused = |token: &str| {
        let shown = with_token(&site, ALICE, token, "squeue", &[]);
        assert!(shown.code == 0 || shown.err == "slurm_load_jobs error: Protocol authentication error\n", "{shown:?}");
        shown.code == 1
    };
    let submitted = with_token(&site, ALICE, "bad", "sbatch", &["--wrap", "true"]);
    let words = "sbatch: error: Batch job submission failed: Protocol authentication error\n";
    assert_eq!((submitted.code, submitted.err.as_str()), (1, words));
    assert!(refused("bad") && refused(&format!("{alices}x")) && !refused(&alices));
    let short = token(of(ALICE, &["lifespan=1"]));
    site.await_that("it has run out", || refused(&short));
    configure(",disable_token_creation,max_token_lifespan=60");
    site.await_that("she gets none", || of(ALICE, &[]).err.contains("Access/permission denied"));
    token(of(ROOT, &["username=games", "lifespan=6000"]));
    write_key(b"another secret of this site, as long", 0o600);
    assert!(refused(&alices));
    // A key that all can read is none.
    write_key(b"the secret of this site, all 32 of it", 0o644);
    assert!(refused(&alices));
    let kept = fs::read_to_string(site.work.join("state/audit.log")).unwrap();
    assert!(!kept.contains(&alices) && !kept.contains(&roots));
    site.as_user(ROOT, "scancel", &["-u", "games"]).ok();
    site.end();
}

const ONE: [&str; 6] = ["--nodes", "1", "--cpus", "4", "--memory", "4000"];

#[test]
fn the_scheduler_has_a_log_of_its_own_that_is_switched_on_and_off() {
    let c = Cluster::up_with("sched-log", &ONE, |c| {
        format!("SlurmSchedLogLevel=1\nSlurmSchedLogFile={}", c.work.join("sched.log").display())
    });
    let log = || fs::read_to_string(c.work.join("sched.log")).unwrap();
    let run = || c.shell("sbatch --wait -o /dev/null --wrap true").ok().job();
    let has = |job: &str| {
        let log = log();
        log.contains("sched.pass") && log.contains(&format!("job.started job_id={job} "))
    };
    let first = run();
    c.await_that("moves of jobs and passes are logged", || has(&first));
    c.sh("scontrol schedloglevel disable").ok();
    c.await_that("it is off", || !has(&run()));
    c.sh("scontrol schedloglevel 1").ok();
    c.await_that("it is on again", || has(&run()));
    c.down();
}

#[test]
fn the_running_configuration_is_written_and_read_back() {
    let c = Cluster::up_with("write-config", &ONE, |_| {
        "KillWait=7\nPriorityType=priority/multifactor\nMaxJobCount=77".into()
    });
    c.sh("scontrol create partitionname=night nodes=n1 maxtime=30 prioritytier=3").ok();
    let said = c.sh("scontrol write config written").ok().out;
    let path = c.work.join(said.trim().strip_prefix("Slurm config saved to ").unwrap());
    let (own, written) = (config::read(&c.conf_folder().join("slurm.conf")).unwrap(), config::read(&path).unwrap());
    assert_eq!((written.kill_wait_secs, written.max_job_count), (own.kill_wait_secs, own.max_job_count));
    let shape = |config: &config::Config| config.nodes[0].settings.shape.clone();
    assert_eq!(shape(&written), shape(&own));
    let night = written.partition("night").unwrap();
    assert_eq!((night.max_time, night.nodes_text.as_str(), night.priority_tier), { ("30".parse().unwrap(), "n1", 3) });
    assert!(written.partition(&own.partitions[0].name).is_some_and(|p| p.default));
    let nowhere = c.sh("scontrol write config /no/dir/x");
    assert!(nowhere.err.starts_with("Could not create file /no/dir/x.") && nowhere.out.is_empty(), "{nowhere:?}");
    c.down();
}

#[test]
fn there_is_no_sibling_and_no_trace_of_what_there_is_not() {
    let c = Cluster::up_with("no-siblings", &ONE, |_| "PriorityType=priority/multifactor".into());
    let job = c.shell("sbatch -H -o /dev/null --wrap true").ok().job();
    let refused = c.sh(&format!("scancel --sibling=x {job}"));
    let text = format!("scancel: error: Kill job error on job id {job}: Not a valid federated job\n");
    assert_eq!((refused.code, refused.err), (191, text));
    assert_eq!(c.job_field(&job, "JobState").as_deref(), Some("PENDING"));
    c.sh("sprio --sibling").ok();
    for follow in ["", "-f "] {
        let unknown = c.sh(&format!("stail {follow}job/999"));
        assert_eq!((unknown.code, unknown.out.as_str()), (1, ""), "{follow}");
        assert_eq!(unknown.err, "stail: error: job/999: Invalid job id specified\n");
    }
    // One that is there is no error, whatever its actor has handled.
    c.sh(&format!("stail job/{job}")).ok();
    c.sh(&format!("scancel {job}")).ok();
    c.down();
}

/// Sets it when dropped, also by a panic: the thread that waits for it ends.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each batch of records that a node's daemon sends was itself a message to its agent.
#[test]
fn who_follows_a_node_is_not_sent_what_following_causes() {
    const LINES: usize = 60;
    let c = Cluster::up("stail-node", &ONE);
    let mut stail = Killed(c.command("stail").args(["-f", "node/n1"]).stdout(Stdio::piped()).spawn().unwrap());
    let seen = AtomicBool::new(false);
    let lines: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Something happens at the node until enough was read.
            while !seen.load(Ordering::Relaxed) {
                c.sh("scontrol setdebug info nodes=n1");
            }
        });
        let _over = SetAtEnd(&seen);
        BufReader::new(stail.0.stdout.take().unwrap()).lines().take(LINES).map(Result::unwrap).collect()
    });
    drop(stail);
    assert_eq!(lines.len(), LINES);
    let of_traces: Vec<_> = lines.iter().filter(|line| line.contains("OwnTrace")).collect();
    assert!(of_traces.is_empty(), "{of_traces:#?}");
    c.down();
}
