//! Accounts, users, associations and QOS: changed with `sacctmgr`, by those who may, and binding for jobs.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Answer, Cluster, answer, is_root};

/// Users that there are on any Debian: `games` and `news`.
const GAMES: u32 = 5;
const NEWS: u32 = 9;

fn cluster(name: &str, lines: &str) -> Option<Cluster> {
    if !is_root() {
        eprintln!("skipped: {name} needs root");
        return None;
    }
    let lines = lines.to_owned();
    Some(Cluster::up_with(name, &["--nodes", "2", "--cpus", "4", "--memory", "1000"], |_| lines))
}

fn as_user(c: &Cluster, uid: u32, words: &[&str]) -> Answer {
    answer(c.command_as(uid, words[0]).args(&words[1..]))
}

/// Account `physics` with user `games`.
fn with_physics(c: &Cluster) {
    c.sh("sacctmgr -i add account physics Description=phys Organization=science").ok();
    c.sh("sacctmgr -i add user games account=physics").ok();
}

#[test]
fn limits_of_accounts_and_qos_bind_jobs_until_they_are_lifted() {
    let Some(c) = cluster("accounts-limits", "AccountingStorageEnforce=associations,limits,qos") else { return };
    with_physics(&c);
    c.sh("sacctmgr -i add qos high Priority=10 MaxJobsPerUser=1").ok();
    c.sh("sacctmgr -i modify user games set qos+=high").ok();
    c.sh("sacctmgr -i modify account physics set GrpTRES=cpu=3").ok();
    let send = |words: &[&str]| {
        let all = [&["sbatch", "-o", "/dev/null", "--wrap", "sleep 600"], words].concat();
        as_user(&c, GAMES, &all)
    };
    // The controller's copy is there when it refuses what is not in it.
    c.await_that("the limits are known", || {
        send(&["-A", "nosuch"]).code != 0 && send(&["-q", "high", "--hold"]).code == 0
    });
    c.sh("scancel -u games").ok();
    let [first, second] = [send(&["-n2"]), send(&["-n2"])].map(|sent| sent.ok().job());
    let reason = |job: &str| c.sh(&format!("squeue -h -j {job} -o %a|%q|%T|%r")).ok().out.trim().to_owned();
    c.await_that("the account has its CPUs", || reason(&first) == "physics|normal|RUNNING|None");
    c.await_that("it gets no more", || reason(&second) == "physics|normal|PENDING|AssocGrpCpuLimit");
    c.sh("sacctmgr -i modify account physics set GrpTRES=cpu=-1").ok();
    c.await_that("it may have more", || reason(&second) == "physics|normal|RUNNING|None");
    let [third, fourth] = [send(&["-q", "high"]), send(&["-q", "high"])].map(|sent| sent.ok().job());
    c.await_that("one of the QOS runs", || reason(&third) == "physics|high|RUNNING|None");
    c.await_that("and one only", || reason(&fourth) == "physics|high|PENDING|QOSMaxJobsPerUserLimit");
    c.sh(&format!("scancel {third}")).ok();
    c.await_that("then the next", || reason(&fourth) == "physics|high|RUNNING|None");
    let refused = |answer: Answer, why: &str| {
        assert_eq!((answer.code, answer.out.as_str()), (1, ""));
        assert!(answer.err.ends_with(&format!("Batch job submission failed: {why}\n")), "{}", answer.err);
    };
    let account = "Invalid account or account/partition combination specified";
    refused(send(&["-A", "nosuch"]), account);
    refused(send(&["-q", "nosuch"]), "Invalid qos specification");
    refused(as_user(&c, NEWS, &["sbatch", "-o", "/dev/null", "--wrap", "true"]), account);
    c.down();
}

#[test]
fn a_job_that_names_several_qos_starts_with_the_first_that_lets_it() {
    let Some(c) = cluster("accounts-several-qos", "AccountingStorageEnforce=associations,limits,qos") else { return };
    with_physics(&c);
    c.sh("sacctmgr -i add qos high Priority=10 MaxJobsPerUser=1").ok();
    c.sh("sacctmgr -i add qos low Priority=1 MaxJobsPerUser=1").ok();
    c.sh("sacctmgr -i add qos secret").ok();
    c.sh("sacctmgr -i modify user games set qos+=high,low").ok();
    let send =
        |words: &[&str]| as_user(&c, GAMES, &[&["sbatch", "-o", "/dev/null", "--wrap", "sleep 600"], words].concat());
    c.await_that("the QOS are known", || send(&["-q", "high,low", "--hold"]).code == 0);
    c.sh("scancel -u games").ok();
    let refused = send(&["-q", "high,secret"]);
    assert!(refused.code == 1 && refused.err.contains("Invalid qos specification"), "{}", refused.err);
    let shown = |job: &str| c.sh(&format!("squeue -h -j {job} -o %q|%T|%r")).ok().out.trim().to_owned();
    let sent = || send(&["-q", "low,high"]).ok().job();
    let first = &sent();
    c.await_that("one has the QOS of the greatest priority", || shown(first) == "high|RUNNING|None");
    let second = &sent();
    c.await_that("the next the other one", || shown(second) == "low|RUNNING|None");
    let third = &sent();
    c.await_that("the last waits with both", || shown(third) == "high,low|PENDING|QOSMaxJobsPerUserLimit");
    assert_eq!(c.sh("squeue -h -q low -t PD -o %A").ok().out.trim(), *third);
    let recorded = |job: &str| c.sh(&format!("sacct -n -P -X -j {job} -o qos,qosreq,state")).ok().out.trim().to_owned();
    c.await_that("so it is recorded", || recorded(second) == "low|high,low|RUNNING");
    c.await_that("while it waits, too", || recorded(third) == "high,low|high,low|PENDING");
    assert_eq!(c.sh("sacct -a -n -P -X -q low -o jobid").ok().out, format!("{second}\n{third}\n"));
    let record = c.sh(&format!("scontrol -o show job {second}")).ok().out;
    assert!(record.contains(" QOS=low "), "{record}");
    // A requeued job may have another one.
    c.sh(&format!("scontrol requeue {first}")).ok();
    c.await_that("what it leaves is for the next", || shown(third) == "high|RUNNING|None");
    c.await_that("it waits with both again", || shown(first).starts_with("high,low|PENDING|"));
    // Others may be named while it waits.
    as_user(&c, GAMES, &["scontrol", "update", &format!("jobid={first}"), "qos=normal,low"]).ok();
    assert!(shown(first).starts_with("low,normal|PENDING|"), "{}", shown(first));
    assert_ne!(as_user(&c, GAMES, &["scontrol", "update", &format!("jobid={second}"), "qos=high,low"]).code, 0);
    c.down();
}

#[test]
fn jobs_of_an_account_that_has_used_up_its_minutes_are_ended() {
    let Some(c) = cluster("accounts-minutes", "AccountingStorageEnforce=associations,limits") else { return };
    with_physics(&c);
    c.sh("sacctmgr -i add account chem").ok();
    c.sh("sacctmgr -i add user news account=chem").ok();
    c.sh("sacctmgr -i modify account physics set GrpTRESMins=cpu=1").ok();
    let send = |uid, words: &[&str], line: &str| {
        as_user(&c, uid, &[&["sbatch", "-o", "/dev/null", "-t", "10"], words, &["--wrap", line]].concat())
    };
    c.await_that("accounts are known", || send(GAMES, &["-A", "nosuch"], "true").code != 0);
    let other = send(NEWS, &["-n1"], "exec sleep 7654321").ok().job();
    // Seven CPUs use up a minute in nine seconds.
    let job = send(GAMES, &["-n7"], "exec sleep 7654322").ok().job();
    let state = |job: &str| c.sh(&format!("scontrol -o show job {job}")).ok().out;
    c.await_that("it runs", || state(&job).contains("JobState=RUNNING"));
    let runs = |seconds: &str| c.shell(&format!("pgrep -f -x 'sleep {seconds}'")).code == 0;
    c.await_that("its script runs", || runs("7654322"));
    c.await_that("it is ended", || state(&job).contains("JobState=TIMEOUT Reason=AssocGrpCPUMinutesLimit"));
    c.await_that("with all of it", || !runs("7654322"));
    let next = send(GAMES, &["-n1"], "true").ok().job();
    c.await_that("no other one starts", || state(&next).contains("JobState=PENDING Reason=AssocGrpCPUMinutesLimit"));
    assert!(state(&other).contains("JobState=RUNNING") && runs("7654321"), "the other account goes on");
    c.sh("sacctmgr -i modify account physics set GrpTRESMins=cpu=-1").ok();
    c.await_that("without the limit it may run", || state(&next).contains("JobState=COMPLETED"));
    c.sh(&format!("scancel {other}")).ok();
    c.down();
}

#[test]
fn what_the_site_does_not_want_recorded_is_not() {
    for (word, of_first) in [("nosteps", vec!["1|COMPLETED"]), ("nojobs", vec![])] {
        let line = format!("AccountingStorageEnforce={word}");
        let Some(c) = cluster(&format!("accounts-{word}"), &line) else { return };
        let run = || c.shell("sbatch --wait -o /dev/null --wrap 'srun true'").ok();
        let recorded = || c.sh("sacct -a -n -P -o jobid,state").ok().out;
        run();
        // Jobs that come later are recorded again, with their steps.
        let conf = c.conf_folder().join("slurm.conf");
        let text = std::fs::read_to_string(&conf).unwrap();
        std::fs::write(&conf, text.replace(&line, "")).unwrap();
        c.sh("scontrol reconfigure").ok();
        run();
        c.await_that("a job and its step are recorded", || recorded().contains("2.0|COMPLETED"));
        let all = recorded();
        let first: Vec<&str> = all.lines().filter(|row| row.starts_with("1|") || row.starts_with("1.")).collect();
        assert_eq!(first, of_first, "{all}");
        c.down();
    }
}

#[test]
fn a_job_that_is_recorded_is_recorded_to_its_end() {
    let Some(c) = cluster("accounts-nojobs-later", "AccountingStorageEnforce=associations") else { return };
    let job = c.shell("sbatch -o /dev/null --wrap 'exec sleep 600'").ok().job();
    let recorded = || c.sh("sacct -a -n -P -X -o jobid,state").ok().out;
    c.await_that("it is recorded as running", || recorded() == format!("{job}|RUNNING\n"));
    let conf = c.conf_folder().join("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, text.replace("Enforce=associations", "Enforce=nojobs")).unwrap();
    c.sh("scontrol reconfigure").ok();
    c.shell("sbatch --wait -o /dev/null --wrap true").ok();
    c.sh(&format!("scancel {job}")).ok();
    c.await_that("its end is recorded, and no other job", || recorded() == format!("{job}|CANCELLED by 0\n"));
    c.down();
}

/// Slurm's guide to licenses: remote licenses.
#[test]
fn licenses_of_servers_are_offered_to_jobs() {
    let Some(c) = cluster("accounts-licenses", "Licenses=local:3") else { return };
    let name = c.sh("sacctmgr -nP list cluster format=cluster").ok().out.trim().to_owned();
    let add =
        format!("sacctmgr -i add resource nastran server=flex_host count=10 cluster={name} allowed=40 type=license");
    c.sh(&add).ok();
    let shown = || c.sh("scontrol -o show lic").ok().out;
    let line = |used: u32, free: u32, last: u32, deficit: u32| {
        format!(
            "LicenseName=nastran@flex_host Total=4 Used={used} Free={free} Reserved=0 Remote=yes LastConsumed={last} \
             LastDeficit={deficit} LastUpdate=20"
        )
    };
    c.await_that("the license is there", || shown().contains(&line(0, 4, 0, 0)));
    assert!(shown().contains("LicenseName=local Total=3 Used=0 Free=3 Reserved=0 Remote=no\n"));
    let send =
        |count: u32| c.shell(&format!("sbatch -L nastran@flex_host:{count} -o /dev/null --wrap 'exec sleep 600'"));
    let first = send(3).ok().job();
    c.await_that("a job has some", || shown().contains(&line(3, 1, 0, 0)));
    let second = send(2).ok().job();
    let reason = |job: &str| c.sh(&format!("squeue -h -j {job} -o %T|%r")).ok().out.trim().to_owned();
    c.await_that("another one waits for its own", || reason(&second) == "PENDING|Licenses");
    for (count, license) in [(5, "nastran@flex_host"), (1, "nastran"), (1, "nastran@elsewhere")] {
        let refused = c.shell(&format!("sbatch -L {license}:{count} -o /dev/null --wrap true"));
        assert!(refused.code == 1 && refused.err.contains("Invalid license specification"), "{license}: {refused:?}");
    }
    // 9 of 10 are in use: 6 may be by others, 3 are the job's; and then one more, by nobody who is known.
    c.sh("sacctmgr -i modify resource nastran set lastconsumed=10").ok();
    c.await_that("one is kept back", || shown().contains(&line(3, 0, 10, 1)));
    c.sh(&format!("scancel {first}")).ok();
    c.await_that("the next one runs", || reason(&second) == "RUNNING|None");
    assert!(shown().contains(&line(2, 1, 10, 1)), "{}", shown());
    c.sh("sacctmgr -i delete resource nastran").ok();
    c.await_that("it is gone", || !shown().contains("nastran"));
    c.down();
}

#[test]
fn only_those_who_may_change_accounts() {
    let Some(c) = cluster("accounts-rights", "") else { return };
    with_physics(&c);
    c.sh("sacctmgr -i add account chem").ok();
    c.sh("sacctmgr -i add user news account=chem").ok();
    let denied = as_user(&c, NEWS, &["sacctmgr", "-i", "add", "account", "mine"]);
    let why = " error: Only admins/operators/coordinators can add accounts\n";
    assert_eq!((denied.code, denied.out + &denied.err), (1, why.to_owned()));
    let own = as_user(&c, NEWS, &["sacctmgr", "-i", "modify", "user", "news", "set", "fairshare=100"]);
    assert_eq!(own.code, 1);
    // A coordinator is one below his accounts only.
    c.sh("sacctmgr -i add account sub parent=chem").ok();
    c.sh("sacctmgr -i add coordinator account=chem names=news").ok();
    let change =
        |account: &str| as_user(&c, NEWS, &["sacctmgr", "-i", "modify", "account", account, "set", "MaxJobs=3"]);
    assert_eq!(change("sub").code, 0);
    assert_eq!(change("physics").code, 1);
    let limits = c.sh("sacctmgr -nP show assoc format=account,user,maxjobs").ok().out;
    assert!(limits.contains("sub||3\n") && limits.contains("physics||\n"), "{limits}");
    // What was changed, by whom.
    let done = c.sh("sacctmgr -nP show transactions actor=news").ok().out;
    assert_eq!(done.lines().count(), 1, "{done}");
    assert!(done.contains("|Modify Associations|news|"), "{done}");
}

#[test]
fn accounts_survive_kills_and_bind_while_the_service_is_away() {
    let Some(c) = cluster("accounts-kill", "AccountingStorageEnforce=associations,limits") else { return };
    with_physics(&c);
    c.sh("sacctmgr -i modify account physics set MaxSubmitJobs=1").ok();
    let send = || as_user(&c, GAMES, &["sbatch", "--hold", "-o", "/dev/null", "--wrap", "true"]);
    c.await_that("an association is needed", || {
        as_user(&c, NEWS, &["sbatch", "--hold", "-o", "/dev/null", "--wrap", "true"]).code != 0
    });
    c.await_that("the user is known", || send().code == 0);
    let refused = send();
    let why = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n";
    assert!(refused.err.ends_with(why), "{}", refused.err);
    c.kill(c.pid_of("controller", None));
    c.sh("garrick up").ok();
    assert!(send().err.ends_with(why), "the limit is known from the start");
    let known = c.sh("sacctmgr -nP show assoc format=account,user,maxsubmit account=physics").ok().out;
    assert_eq!(known, "physics||1\nphysics|games|1\n");
}

/// As administrators of a site see it: when nodes were out of service, and what of reservations was used.
#[test]
fn outages_of_nodes_and_reservations_are_recorded() {
    let Some(c) = cluster("accounts-events", "") else { return };
    let nodes = c.sh("sinfo -h -N -o %N").ok().out;
    let [first, second] = [0, 1].map(|n| nodes.lines().nth(n).unwrap().to_owned());
    let events = |more: &str| {
        let list = "sacctmgr -nP list event event=node format=nodename,state,reason,user,timeend";
        c.shell(&format!("{list} {more}")).ok().out
    };
    let set = |words: &str| drop(c.shell(&format!("scontrol update nodename={words}")).ok());
    set(&format!("{first} state=down reason='bad fan'"));
    let down = format!("{first}|DOWN|bad fan|root(0)|Unknown\n");
    c.await_that("the outage is told", || events("") == down);
    assert_eq!(events("states=drain"), "");
    assert_eq!(events("condflags=open reason='bad fan'"), down);
    // A drained node is in service as long as a job runs there.
    let job = c.shell(&format!("sbatch -o /dev/null -w {second} --wrap 'sleep 600'")).ok().job();
    c.await_that("it runs", || c.sh(&format!("squeue -h -j {job} -o %T")).ok().out == "RUNNING\n");
    set(&format!("{second} state=drain reason=later"));
    set(&format!("{first} state=resume"));
    c.await_that("the first one is back", || events("condflags=open").is_empty() && !events("").contains("Unknown"));
    c.sh(&format!("scancel {job}")).ok();
    let drained = format!("{second}|DRAIN|later|root(0)|Unknown\n");
    c.await_that("the second one is drained", || events(&format!("nodes={second}")) == drained);
    let cluster = c.sh("sacctmgr -nP list event event=cluster format=event,nodename,reason").ok().out;
    assert_eq!(cluster, "Cluster||Cluster Registered TRES\n");
    // A controller that starts again says nothing twice.
    c.kill(c.pid_of("controller", None));
    c.sh("garrick up").ok();
    set(&format!("{second} state=resume"));
    c.await_that("the second one is back", || events("condflags=open").is_empty());
    assert_eq!(events("").lines().count(), 2, "{}", events(""));
    reservations(&c, &first);
    c.down();
}

fn reservations(c: &Cluster, node: &str) {
    c.sh(&format!("scontrol create reservation=res1 users=games nodes={node} start=now duration=60")).ok();
    let job =
        as_user(c, GAMES, &["sbatch", "-o", "/dev/null", "-n2", "-t10", "--reservation=res1", "--wrap", "sleep 600"]);
    let job = job.ok().job();
    c.await_that("it runs inside", || c.sh(&format!("squeue -h -j {job} -o %T")).ok().out == "RUNNING\n");
    let listed = || c.sh("sacctmgr -nP list reservation format=name,id,nodenames,tres,timeend").ok().out;
    let begins = format!("res1|1|{node}|cpu=4|20");
    c.await_that("it is told", || listed().starts_with(&begins));
    let planned = listed();
    c.sh(&format!("scancel {job}")).ok();
    c.await_that("nothing runs", || c.sh("squeue -h").ok().out.is_empty());
    c.sh("scontrol delete reservation=res1").ok();
    c.await_that("it ended early", || listed() != planned);
    let report = c.sh("sreport -nP -t seconds reservation Utilization start=now-1hour end=now+1hour").ok().out;
    let fields: Vec<&str> = report.trim().split('|').collect();
    assert_eq!((fields[1], fields[4]), ("res1", "cpu"), "{report}");
    let used: u64 = c.sh(&format!("sacct -nPX -j {job} -o cputimeraw")).ok().out.trim().parse().unwrap();
    assert_eq!(fields[5], used.to_string(), "{report}");
    // Down time is told apart from idle time.
    c.shell(&format!("scontrol update nodename={node} state=down reason=fans")).ok();
    c.await_that("its time is down time", || {
        let report = c.sh("sreport -nP -t seconds cluster utilization start=now-1hour end=now+1hour").ok().out;
        let amounts: Vec<u64> = report.trim().split('|').skip(1).map(|text| text.parse().unwrap()).collect();
        let [allocated, down, planned_down, idle, planned, reported] = amounts[..] else { panic!("{report}") };
        assert_eq!(allocated + down + planned_down + idle + planned, reported, "{report}");
        down > 0
    });
}
