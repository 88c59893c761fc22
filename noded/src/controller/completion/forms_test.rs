#![allow(clippy::unwrap_used)]
use super::super::testing::completed;
use super::*;
use garrick_model::{
    ids::{ArrayTask, JobId},
    state::JobState,
};

#[test]
fn a_line_is_slurms_and_one_job_whatever_it_is_called() {
    let mut run = completed();
    assert_eq!(
        run.line(&TimeZone::UTC),
        "JobId=7 UserId=alice(1001) GroupId=users(100) Name=a b JobState=FAILED Partition=main TimeLimit=6 \
         StartTime=2001-09-09T01:46:45 EndTime=2001-09-09T01:46:55 NodeList=n1 NodeCnt=1 ProcCnt=2 WorkDir=/home/alice \
         ReservationName= Tres=cpu=2,mem=1000M,node=1,billing=2,gres/gpu=1 Account= QOS= WcKey= Cluster=maple \
         SubmitTime=2001-09-09T01:46:40 EligibleTime=2001-09-09T01:46:40 DerivedExitCode=0:0 ExitCode=3:0 \n"
    );
    run.row.name = "x\nJobId=8 UserId=root(0)".into();
    run.row.array_task = Some(ArrayTask { array_job: JobId(5), index: 2 });
    run.row.het = Some((JobId(6), 1));
    let line = run.line(&TimeZone::UTC);
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.contains(r" Name=x\nJobId=8 "), "{line}");
    assert!(line.contains(" ArrayJobId=5 ArrayTaskId=2 HetJobId=6 HetJobOffset=1 DerivedExitCode="), "{line}");
}

#[test]
fn what_never_ran_has_no_nodes_and_ends_as_it_starts() {
    let mut run = completed();
    (run.row.start, run.row.eligible, run.row.nodes) = (None, None, String::new());
    run.row.allocated = Tres::default();
    let line = run.line(&TimeZone::UTC);
    let times = "StartTime=2001-09-09T01:46:55 EndTime=2001-09-09T01:46:55 NodeList=(null) NodeCnt=0 ProcCnt=0 ";
    assert!(line.contains(times) && line.contains(" EligibleTime=unknown "), "{line}");
    let variables = run.variables();
    let value = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert_eq!(value("ELIGIBLE"), Some("0"));
    assert_eq!(value("ARRAYTASKID"), Some("4294967294"));
    assert_eq!(value("STDOUT"), Some("slurm-%j.out"));
    assert_eq!(value("EXITCODE"), Some("3:0"));
    assert_eq!(value("LIMIT"), Some("00:05:01"));
}

#[test]
fn a_document_has_the_script_and_the_comment_where_the_site_wants_them() {
    let mut run = completed();
    let plain = run.document(false, false);
    assert_eq!(plain["cpu_hours"].as_f64().unwrap(), 20.0 / 3600.0);
    assert_eq!(
        (&plain["@end"], &plain["elapsed"], &plain["@queue_wait"]),
        (&"2001-09-09T01:46:55".into(), &10.into(), &5.into())
    );
    assert_eq!((&plain["state"], &plain["time_limit"]), (&"FAILED".into(), &301.into()));
    assert!(plain.get("script").is_none() && plain.get("comment").is_none() && plain.get("array_job_id").is_none());
    let whole = run.document(true, true);
    assert_eq!((&whole["comment"], &whole["script"]), (&"hi".into(), &"#!/bin/sh\nexit 3\n".into()));
    // What has only started has no end.
    (run.starts, run.row.end, run.row.state) = (true, None, JobState::Running);
    let start = run.document(true, false);
    assert_eq!((&start["state"], &start["@start"]), (&"RUNNING".into(), &plain["@start"]));
    for name in OF_THE_END {
        assert!(plain.get(name).is_some() && start.get(name).is_none(), "{name}");
    }
}

#[test]
fn a_row_of_a_table_is_slurms() {
    let mut run = completed();
    let row = run.row(Position(3));
    assert_eq!((row.job, row.start, row.end, row.state), (7, 1_000_000_005, 1_000_000_015, 5));
    assert_eq!((row.limit.as_str(), row.nodes.as_str(), row.node_count, row.cpus), ("6", "n1", 1, 2));
    assert_eq!((row.user.as_str(), row.group.as_str(), row.name.as_str()), ("alice", "users", "a b"));
    run.row.time_limit = TimeLimit::Unlimited;
    (run.row.start, run.row.nodes) = (None, String::new());
    let row = run.row(Position(4));
    assert_eq!((row.position, row.start, row.limit.as_str()), (Position(4), row.end, "UNLIMITED"));
}
