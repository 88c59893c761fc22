//! Records of jobs that are changed by hand: what owners and administrators say of them, jobs that have run away, and archives.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::{
    accounting::{over, rows},
    support::{Answer, Cluster, answer, is_root},
};
use garrick_accounts::row::JobRow;
use garrick_model::{
    ids::{JobId, Sluid},
    state::JobState,
};

/// Users that there are on any Debian: `games` and `news`.
const GAMES: u32 = 5;
const NEWS: u32 = 9;

fn as_user(c: &Cluster, uid: u32, words: &[&str]) -> Answer {
    answer(c.command_as(uid, words[0]).args(&words[1..]))
}

fn cluster(name: &str) -> Option<Cluster> {
    if !is_root() {
        eprintln!("skipped: {name} needs root");
        return None;
    }
    Some(Cluster::up(name, &["--nodes", "1", "--cpus", "2", "--memory", "1000"]))
}

/// A job of user `games` that is over, for accounting too.
fn ended_job(c: &Cluster) -> (String, JobRow) {
    let job = as_user(c, GAMES, &["sbatch", "-o", "/dev/null", "--wrap", "true"]).ok().job();
    let row = rows(c, &job, "ctl.sock", over(1)).remove(0).row;
    (job, row)
}

#[test]
fn owners_and_administrators_say_something_of_a_job() {
    let Some(c) = cluster("records-modify") else { return };
    let (job, _) = ended_job(&c);
    let set = |uid: u32, what: &str| {
        as_user(&c, uid, &["sacctmgr", "-i", "modify", "job", &format!("jobid={job}"), "set", what])
    };
    let own = set(GAMES, "comment=mine").ok();
    assert!(own.out.starts_with(&format!(" Modified jobs...\n  {job} submitted at 20")), "{}", own.out);
    let denied = "sacctmgr: error: Your user doesn't have privilege to perform this action\n \
                  Error with request: Access/permission denied\n";
    for refused in [set(GAMES, "admincomment=x"), set(NEWS, "comment=x"), set(NEWS, "derivedexitcode=1")] {
        assert_eq!((refused.code, refused.out.as_str(), refused.err.as_str()), (1, " Modified jobs...\n", denied));
    }
    let by_root = c.sh(&format!("sacctmgr -i modify job jobid={job} set admincomment=adm extra=e derivedec=256"));
    assert_eq!(by_root.code, 0, "{}", by_root.err);
    let fields = "comment,admincomment,extra,derivedexitcode";
    let shown = c.sh(&format!("sacct -nPX -j {job} -o {fields}")).ok().out;
    assert_eq!(shown, "mine|adm|e|1:0\n");
    // What it had, for reports.
    let denied = set(GAMES, "tres=cpu=7");
    assert!(denied.code == 1 && denied.err.contains("Access/permission denied"), "{denied:?}");
    c.sh(&format!("sacctmgr -i modify job jobid={job} set tres=cpu=7")).ok();
    let had = c.sh(&format!("sacct -nPX -j {job} -o alloctres")).ok().out;
    assert!(had.contains("cpu=7"), "{had}");
    // Without an answer nothing is changed.
    let asked = c.shell(&format!("printf n | sacctmgr modify job jobid={job} set comment=other")).ok().out;
    assert!(asked.ends_with("(N/y): \n Changes Discarded\n"), "{asked}");
    let nothing = c.sh("sacctmgr -i modify job jobid=99999 set comment=x");
    assert_eq!((nothing.code, nothing.out.as_str()), (1, " Modified jobs...\n"));
    assert_eq!(nothing.err, " Error with request: Data has not changed since time specified\n");
    assert_eq!(c.sh(&format!("sacct -nPX -j {job} -o comment")).ok().out, "mine\n");
    c.down();
}

/// The record of a job that the controller has never seen comes from an archive.
#[test]
fn jobs_that_have_run_away_are_shown_and_get_an_end() {
    let Some(c) = cluster("records-runaway") else { return };
    let (_, row) = ended_job(&c);
    assert_eq!(
        c.sh("sacctmgr show runawayjobs").ok().out,
        "Runaway Jobs: No runaway jobs found on cluster garrick\n".replace("garrick", &row.cluster)
    );
    let lost = JobRow { job: JobId(4711), sluid: Sluid(77), state: JobState::Running, end: None, ..row };
    let line = serde_json::json!({ "job": lost }).to_string() + "\n";
    let file = c.script("lost", &line);
    let load = format!("archive load file={}", file.display());
    let refused = as_user(&c, GAMES, &["sacctmgr", "-i", "archive", "load", &format!("file={}", file.display())]);
    assert_eq!(refused.code, 1, "{}", refused.out);
    let tried = c.shell(&format!("printf n | sacctmgr {load}")).ok();
    assert!(tried.out.ends_with(" Changes Discarded\n"), "{}", tried.out);
    c.sh(&format!("sacctmgr -i {load}")).ok();
    let again = c.sh(&format!("sacctmgr -i {load}"));
    assert_eq!((again.code, again.err.contains(" Problem loading archive file: Unspecified error\n")), (1, true));
    let table = c.shell("printf n | sacctmgr -P show runawayjobs format=id,state,timeend").ok().out;
    assert!(table.contains("ID|State|TimeEnd\n4711|RUNNING|Unknown\n\nWould you like to fix"), "{table}");
    assert!(table.ends_with("(N/y): \nChanges Discarded\n"), "{table}");
    let ordinary = as_user(&c, GAMES, &["sacctmgr", "show", "runawayjobs"]);
    assert_eq!(ordinary.err, "sacctmgr: error: You must have an AdminLevel>=Operator to fix runaway jobs\n");
    c.shell("printf y | sacctmgr show runawayjobs set EndState=Failed").ok();
    let shown = c.sh("sacct -nPX -j 4711 -o jobid,state,end,start").ok().out;
    let fields: Vec<&str> = shown.trim().split('|').collect();
    assert_eq!((fields[0], fields[1], fields[2]), ("4711", "FAILED", fields[3]), "{shown}");
    assert!(c.sh("sacctmgr show runawayjobs").ok().out.contains("No runaway jobs found"));
    c.down();
}

#[test]
fn archives_and_statistics_are_for_administrators() {
    let Some(c) = cluster("records-archive") else { return };
    let (job, _) = ended_job(&c);
    let folder = c.conf_folder().join("arch");
    std::fs::create_dir(&folder).unwrap();
    let dump = format!("archive dump directory={} purgejobafter=1months jobs", folder.display());
    let as_games = |line: &str| {
        let words: Vec<&str> = ["sacctmgr", "-i"].into_iter().chain(line.split(' ')).collect();
        as_user(&c, GAMES, &words)
    };
    let nowhere = c.sh("sacctmgr -i archive dump directory=/nosuch");
    let note = " Note: For archive dump, the directory must be on the calling host.\n";
    assert_eq!(nowhere.err, format!(" dump: Failed to stat /nosuch: No such file or directory\n{note}"));
    let refused = as_games("archive dump purgejobafter=1hours");
    assert!(refused.code == 1 && refused.err.contains("Access/permission denied"), "{}", refused.err);
    let done = c.sh(&format!("sacctmgr -i {dump}")).ok();
    assert_eq!(done.err, "sacctmgr: accounting_storage/slurmdbd: jobacct_storage_p_archive: SUCCESS\n");
    assert_eq!(c.sh(&format!("sacct -nPX -j {job} -o jobid")).ok().out, format!("{job}\n"), "it is not so old");
    let why = "Your user doesn't have privilege to perform this action\n";
    let refused = as_games("show stats");
    assert!(refused.code == 1 && refused.err.ends_with(&format!("acct_storage_p_get_stats: RC:2002 {why}")));
    let shown = c.sh("sacctmgr show stats").ok().out;
    assert!(shown.contains("\tDBD_SEND_MULT_MSG        ( 1474) count:"), "{shown}");
    assert!(shown.contains("\nRemote Procedure Call statistics by user\n\t"), "{shown}");
    c.down();
}
