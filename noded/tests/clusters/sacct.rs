//! `sacct`, `seff` and `garrick efficiency` over a cluster's own records.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, answer, is_root};

/// What `sacct` says once it is what is awaited.
#[track_caller]
fn awaited(c: &Cluster, words: &str, is: impl Fn(&str) -> bool) -> String {
    let mut said = String::new();
    c.await_that(&format!("sacct {words}"), || {
        said = c.sh(&format!("sacct {words}")).ok().out;
        is(&said)
    });
    said
}

fn ended(count: usize) -> impl Fn(&str) -> bool {
    move |said: &str| said.lines().count() == count && !said.contains("RUNNING") && !said.contains("PENDING")
}

#[test]
fn jobs_and_steps_are_shown_from_their_records() {
    let c = Cluster::up("sacct", &["--nodes", "1", "--cpus", "4", "--memory", "1000"]);
    let steps = "srun -n2 -J two true; srun -n1 -J bad sh -c 'exit 3'; exit 5";
    let job = c.run("sbatch", &["-J", "steps", "-n2", "-o", "/dev/null", "--comment=seen", "-t", "5", "--wrap", steps]);
    let job = job.ok().job();
    let format = "-o jobid,jobname,alloccpus,state,exitcode,ntasks,nodelist";
    let said = awaited(&c, &format!("-nP {format} -j {job}"), |said| ended(4)(said) || ended(3)(said));
    let lines: Vec<&str> = said.lines().filter(|line| !line.contains(".extern|")).collect();
    assert_eq!(
        lines,
        [
            format!("{job}|steps|2|FAILED|5:0||n1"),
            format!("{job}.batch|batch|2|FAILED|5:0|1|n1"),
            format!("{job}.0|two|2|COMPLETED|0:0|2|n1"),
            format!("{job}.1|bad|{}|FAILED|3:0|1|n1", lines[3].split('|').nth(2).unwrap()),
        ]
    );
    let usual = c.sh(&format!("sacct -X -j {job}")).ok().out;
    let heading = "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode ";
    assert_eq!(usual.lines().next().unwrap(), heading);
    assert_eq!(usual.lines().count(), 3, "{usual}");
    let user = c.shell("id -un").ok().out.trim().to_owned();
    let one = |words: &str| c.sh(&format!("sacct -nP {words}")).ok().out.trim().to_owned();
    assert_eq!(
        one(&format!("-X -j {job} -o comment,timelimit,derivedexitcode,user")),
        format!("seen|00:05:00|3:0|{user}")
    );
    assert_eq!(one(&format!("-j {job}.1 -o jobid,jobname")), format!("{job}.1|bad"));
    assert_eq!(one("-X --name=steps -o jobid"), job);
    assert_eq!(one("-X --name=nosuch -o jobid"), "");
    assert_eq!(one("-X -s F -S now-1hour -E now+1 -o jobid"), job);
    assert_eq!(one("-X -s CD -S now-1hour -E now+1 -o jobid"), "");
    assert_eq!(one("-X -E now-1hour -S now-2hours -o jobid"), "");
    assert_eq!(one("-X -N n1 -I 2 -k 5 -o jobid"), job);
    assert_eq!(one("-X -I 3-4 -o jobid"), "");
    let sluid = one(&format!("-X -j {job} -o sluid"));
    assert_eq!(one(&format!("-X -j {sluid} -o jobid")), job);
    let document: serde_json::Value = serde_json::from_str(&c.sh(&format!("sacct -j {job} --json")).ok().out).unwrap();
    let of = &document["jobs"][0];
    assert_eq!((of["job_id"].to_string(), &of["state"]["current"][0]), (job.clone(), &"FAILED".into()));
    assert_eq!(of["derived_exit_code"]["return_code"]["number"], 3);
    assert!(of["steps"].as_array().unwrap().len() >= 3, "{of}");

    let seff = c.sh(&format!("seff {job}")).ok().out;
    let lines: Vec<&str> = seff.lines().collect();
    assert_eq!(
        lines[..4],
        [format!("Job ID: {job}").as_str(), lines[1], lines[2], "State: FAILED (exit code 5)"],
        "{seff}"
    );
    assert!(lines[6..].iter().any(|line| line.starts_with("Memory Efficiency: ")), "{seff}");
    let used = c.sh(&format!("garrick efficiency {job}")).ok().out;
    assert!(used.starts_with(&format!("{job} steps of {user}: FAILED\n  CPU ")), "{used}");
    let of_user = c.sh(&format!("garrick efficiency --user {user} -P")).ok().out;
    assert!(of_user.starts_with("JobID|JobName|State|Elapsed|CPUEff|MemEff|GPUEff|TimeEff\n"), "{of_user}");
    assert!(of_user.contains(&format!("\n{job}|steps|FAILED|")), "{of_user}");
    assert_eq!(c.sh("seff 99999").code, 2);
    c.down();
}

#[test]
fn arrays_runs_and_jobs_that_wait_are_told_apart() {
    let c = Cluster::up("sacct-runs", &["--nodes", "1", "--cpus", "2", "--memory", "1000"]);
    let array =
        c.run("sbatch", &["-a", "1-3", "-n1", "-o", "/dev/null", "--wrap", "exit $((SLURM_ARRAY_TASK_ID % 2))"]);
    let array = array.ok().job();
    let tasks = awaited(&c, &format!("-nPX -j {array} -o jobid,state,exitcode"), ended(3));
    assert_eq!(tasks, format!("{array}_1|FAILED|1:0\n{array}_2|COMPLETED|0:0\n{array}_3|FAILED|1:0\n"));
    let second = c.sh(&format!("sacct -nPX -j {array}_2 -o jobid")).ok().out;
    assert_eq!(second, format!("{array}_2\n"));

    let held = c.run("sbatch", &["-a", "1,3,5-9%2", "-H", "-o", "/dev/null", "--wrap", "true"]).ok().job();
    let waits = awaited(&c, &format!("-nX -j {held} -o jobid%30,state,start"), |said| !said.is_empty());
    assert_eq!(waits.split_whitespace().collect::<Vec<_>>(), [&format!("{held}_[1,3,5-9%2]"), "PENDING", "Unknown"]);
    let each = c.sh(&format!("sacct -nPX --array -j {held} -o jobid")).ok().out;
    assert_eq!(each.lines().count(), 7, "{each}");
    c.run("scancel", &[&held]).ok();
    let uid = c.shell("id -u").ok().out.trim().to_owned();
    awaited(&c, &format!("-nPX -j {held} -o state,start"), |said| said == format!("CANCELLED by {uid}|None\n"));

    let script = "[ $SLURM_RESTART_COUNT ] || sleep 600";
    let requeued = c.run("sbatch", &["--requeue", "-J", "again", "-o", "/dev/null", "--wrap", script]).ok().job();
    c.await_state(&requeued, "RUNNING");
    awaited(&c, "-nPX -s R -o jobid,state", |said| said == format!("{requeued}|RUNNING\n"));
    c.run("scontrol", &["requeue", &requeued]).ok();
    let runs = format!("-nPX -D -j {requeued} -o jobid,state,restarts");
    awaited(&c, &runs, |said| said == format!("{requeued}|REQUEUED|0\n{requeued}|PENDING|1\n"));
    let update = [&format!("JobId={requeued}"), "StartTime=now"];
    c.await_that("it may start again", || c.run("scontrol", &["update", update[0], update[1]]).code == 0);
    awaited(&c, &runs, |said| said == format!("{requeued}|REQUEUED|0\n{requeued}|COMPLETED|1\n"));
    let newest = c.sh(&format!("sacct -nPX -j {requeued} -o state,restarts")).ok().out;
    assert_eq!(newest, "COMPLETED|1\n");
    c.down();
}

#[test]
fn without_accounting_or_its_service_that_is_said() {
    let c = Cluster::up("sacct-away", &["--nodes", "1", "--cpus", "1"]);
    let script = c.run("sbatch", &["-o", "/dev/null", "--wrap", "true"]).ok().job();
    awaited(&c, &format!("-nPX -j {script} -o state"), |said| said == "COMPLETED\n");
    assert_eq!(
        c.sh(&format!("sacct -j {script} -B")).ok().out.lines().next().unwrap(),
        format!("Batch Script for {script}")
    );
    let conf = c.conf_folder().join("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    c.run("garrick", &["down"]).ok();
    let away = c.sh("sacct");
    assert_eq!((away.code, away.out.as_str()), (1, ""));
    assert!(away.err.ends_with("sacct: error: Problem talking to the database: Connection refused\n"), "{away:?}");
    std::fs::write(&conf, text.replace("AccountingStorageType=accounting_storage/slurmdbd\n", "")).unwrap();
    let off = c.sh("sacct");
    assert_eq!((off.code, off.err.as_str()), (1, "Slurm accounting storage is disabled\n"));
}

#[test]
fn rows_of_others_are_hidden_where_an_embedded_cluster_keeps_jobs_private() {
    if !is_root() {
        eprintln!("skipped: rows_of_others_are_hidden_where_an_embedded_cluster_keeps_jobs_private needs root");
        return;
    }
    let shape = ["--nodes", "1", "--cpus", "4", "--memory", "1000"];
    let c = Cluster::up_with("sacct-private", &shape, |_| "PrivateData=jobs".to_owned());
    let job = c.shell("sbatch -J hers -o /dev/null --wrap true").ok().job();
    awaited(&c, &format!("-nPX -j {job} -o state"), |said| said == "COMPLETED\n");
    let of_others = answer(c.command_as(65534, "sacct").args(["-a", "-nPX", "-o", "jobid,jobname"])).ok().out;
    assert_eq!(of_others, "");
    assert_eq!(c.sh("sacct -a -nPX -o jobid,jobname").ok().out, format!("{job}|hers\n"));
}

#[test]
fn coordinators_see_private_jobs_and_what_is_private_changes_with_the_configuration() {
    if !is_root() {
        return eprintln!("skipped: coordinators_see_private_jobs needs root");
    }
    // Users that there are on any Debian: `games` and `news`.
    let (games, news, nobody) = (5, 9, 65534);
    let shape = ["--nodes", "1", "--cpus", "4", "--memory", "1000"];
    let c = Cluster::up_with("coordinators", &shape, |_| "PrivateData=jobs,usage".to_owned());
    c.sh("sacctmgr -i add account physics").ok();
    c.sh("sacctmgr -i add user games account=physics").ok();
    c.sh("sacctmgr -i add account chem").ok();
    c.sh("sacctmgr -i add user news account=chem").ok();
    c.sh("sacctmgr -i add coordinator account=physics name=news").ok();
    let send = |words: &[&str]| answer(c.command_as(games, "sbatch").args(words));
    c.await_that("the accounts are known", || {
        let job = send(&["-J", "probe", "-H", "-o", "/dev/null", "--wrap", "true"]).ok().job();
        let account = c.sh(&format!("squeue -h -j {job} -o %a")).out;
        c.run("scancel", &[&job]).ok();
        account.trim() == "physics"
    });
    let job = send(&["-J", "hers", "-o", "/dev/null", "--wrap", "sleep 7654"]).ok().job();
    c.await_state(&job, "RUNNING");
    let queue = |uid| answer(c.command_as(uid, "squeue").args(["-h", "-o", "%i"])).out.trim().to_owned();
    c.await_that("her coordinator sees it", || queue(news) == job);
    assert_eq!((queue(games), queue(nobody)), (job.clone(), String::new()));
    let words = ["-a", "-nPX", "--name=hers", "-o", "jobid"];
    let records = |uid| answer(c.command_as(uid, "sacct").args(words)).out.trim().to_owned();
    c.await_that("it is recorded", || records(games) == job);
    assert_eq!((records(news), records(nobody)), (job.clone(), String::new()));
    // What a job uses is not removed.
    for entity in ["user games", "account physics"] {
        let refused = c.sh(&format!("sacctmgr -i delete {entity}"));
        assert_eq!(refused.code, 1, "{refused:?}");
        let (heading, jobs) = refused.err.split_once('\n').unwrap();
        assert_eq!(heading, " Error with request: Job(s) active, cancel job(s) before remove");
        assert!(jobs.starts_with(&format!("  JobID = {job:<10} C = ")) && jobs.contains(" A = physics    U = games "));
    }
    // A site that keeps nothing to itself any more.
    let conf = c.conf_folder().join("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, text.replace("PrivateData=jobs,usage", "PrivateData=none")).unwrap();
    c.sh("scontrol reconfigure").ok();
    c.await_that("everybody sees it", || queue(nobody) == job && records(nobody) == job);
    std::fs::write(&conf, text).unwrap();
    c.sh("sacctmgr reconfigure").ok();
    assert_eq!(records(nobody), "");
    // The service by itself.
    let rolled = c.sh("sacctmgr -i rollup").ok();
    assert_eq!(rolled.err, "sacctmgr: accounting_storage/slurmdbd: acct_storage_p_roll_usage: SUCCESS\n");
    assert!(c.sh("sacctmgr show stats").ok().out.contains("( 1444)"));
    c.sh("sacctmgr clear stats").ok();
    assert!(!c.sh("sacctmgr show stats").ok().out.contains("( 1444)"));
    for words in [["clear", "stats"].as_slice(), &["reconfigure"], &["shutdown"]] {
        let denied = answer(c.command_as(nobody, "sacctmgr").args(words));
        assert!(denied.code == 1 && denied.err.contains("Access/permission denied"), "{denied:?}");
    }
    let ours = c.sh("sacctmgr shutdown");
    assert!(ours.code == 1 && ours.err.contains("part of its cluster's controller"), "{ours:?}");
    c.run("scancel", &[&job]).ok();
    c.down();
}

/// The machine dies with all that runs there.
#[test]
fn steps_of_a_lost_node_end_with_their_job() {
    let shape = ["--nodes", "2", "--cpus", "2", "--memory", "1000"];
    let c = Cluster::up_with("sacct-lost", &shape, |_| "SlurmdTimeout=2".to_owned());
    let words = ["--no-requeue", "-w", "n2", "-o", "/dev/null", "--wrap", "srun sleep 7655"];
    let job = c.run("sbatch", &words).ok().job();
    let fields = format!("-nP -j {job} -o jobid,state,end,exitcode");
    awaited(&c, &fields, |said| said.contains(&format!("{job}.0|RUNNING")));
    c.kill_node("n2", &job);
    c.await_state(&job, "NODE_FAIL");
    let said = awaited(&c, &fields, |said| said.starts_with(&format!("{job}|NODE_FAIL")));
    let end = said.lines().next().unwrap().split('|').nth(2).unwrap();
    let expected = [("", "NODE_FAIL", "1:0"), (".batch", "CANCELLED", ""), (".0", "CANCELLED", "")]
        .map(|(step, state, exit)| format!("{job}{step}|{state}|{end}|{exit}"));
    let shown: Vec<&str> = said.lines().filter(|line| !line.contains(".extern|")).collect();
    assert_eq!(shown, expected);
}

#[test]
fn scripts_and_environments_are_kept_where_the_site_wants_them() {
    if !is_root() {
        eprintln!("skipped: scripts_and_environments_are_kept_where_the_site_wants_them needs root");
        return;
    }
    let shape = ["--nodes", "1", "--cpus", "4", "--memory", "1000"];
    let c = Cluster::up_with("sacct-texts", &shape, |_| "AccountingStoreFlags=job_script,job_env".to_owned());
    let text = "#!/bin/sh\n#SBATCH -J kept -o /dev/null -a 1-2\nexit 0\n";
    let path = c.script("kept.sh", text);
    let job = c.shell(&format!("MARK='one two' sbatch {}", path.display())).ok().job();
    awaited(&c, &format!("-nPX -o jobid,state -j {job}"), |said| said.matches("COMPLETED").count() == 2);
    let rule = "-".repeat(80);
    let said = c.sh(&format!("sacct -B -j {job}_2")).ok().out;
    assert_eq!(said, format!("Batch Script for {job}_2\n{rule}\n{text}"));
    let environment = c.sh(&format!("sacct --env-vars -j {job}_1")).ok().out;
    assert!(environment.starts_with(&format!("Environment used for {job}_1 (must be batch to display)\n{rule}\n")));
    assert!(environment.contains("\nMARK=one two\n"), "{environment}");
    let of_others = answer(c.command_as(65534, "sacct").args(["-B", "-j", &job])).ok().out;
    assert_eq!(of_others, "");
    // Jobs that are no batch jobs have none.
    c.sh("srun -J none true").ok();
    let run = awaited(&c, "-nPX -o jobid,state --name=none", |said| said.contains("COMPLETED"));
    let run = run.split('|').next().unwrap();
    assert_eq!(c.sh(&format!("sacct -B -j {run}")).ok().out, format!("Batch Script for {run}\n{rule}\nNONE\n"));
}
