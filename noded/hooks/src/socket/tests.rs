#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{World, desc, script};
use garrick_actors::submission::job_submit::SiteSight as _;
use garrick_model::time::TimeLimit;
use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixListener,
    thread,
};

/// A program of the site that answers once, and returns what it was sent.
fn answering<T>(answer: &'static str, ask: impl FnOnce(&Path) -> T) -> (T, Json) {
    let (folder, _) = script("");
    let path = folder.0.join("site.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let program = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        (&stream).write_all(answer.as_bytes()).unwrap();
        serde_json::from_str(&line).unwrap()
    });
    (ask(&path), program.join().unwrap())
}

#[test]
fn a_program_is_asked_and_sets_fields() {
    let answer = "{\"return\":0,\"messages\":[\"at night\"],\"job_desc\":{\"partition\":\"debug\",\"time_limit\":7}}\n";
    let spec = JobSpec { name: "own".to_owned(), tasks: Some(3), ..JobSpec::default() };
    let (called, sent) = answering(answer, |path| submit(path, desc(spec), &World::default().shown()));
    let called = called.unwrap();
    assert_eq!((called.code, called.said.as_slice()), (0, ["at night".to_owned()].as_slice()));
    assert_eq!(called.request.time_limit, Some(TimeLimit::Secs(420)));
    assert_eq!(called.request.partitions, ["debug"]);
    assert_eq!((&sent["call"], &sent["submit_uid"]), (&json!("job_submit"), &json!(5)));
    assert_eq!((&sent["job_desc"]["name"], &sent["job_desc"]["num_tasks"]), (&json!("own"), &json!(3)));
    assert_eq!(sent["part_list"]["debug"]["max_time"], json!(60));
}

#[test]
fn a_program_changes_a_change() {
    let world = World::default();
    let job = world.jobs().remove(0);
    let change = JobChange { comment: Some("c".to_owned()), ..JobChange::default() };
    let ask = |path: &Path| modify(path, desc(JobSpec::default()), (&job, &change), &world.shown());
    let (called, sent) = answering("{\"return\":0,\"job_desc\":{\"nice\":2147483653}}\n", ask);
    assert_eq!(called.unwrap().request, JobChange { nice: Some(5), ..change.clone() });
    assert_eq!((&sent["job_rec"]["name"], &sent["job_desc"]["comment"]), (&json!("old"), &json!("c")));
    let (refused, _) = answering("{\"return\":2002}\n", |path| {
        modify(path, desc(JobSpec::default()), (&job, &change), &world.shown())
    });
    assert_eq!(refused.unwrap().code, 2002);
}

#[test]
fn whatever_goes_wrong_refuses() {
    for answer in ["", "yes\n", "[]\n", "{}\n", "{\"return\":\"0\"}\n", "{\"return\":0,\"job_desc\":{\"nothing\":1}}\n"]
    {
        let (called, _) = answering(answer, |path| submit(path, desc(JobSpec::default()), &[]));
        assert!(matches!(called, Err(Refusal::BySite { number: -1, .. })), "{answer:?}");
    }
    let gone = submit(Path::new("/nonexistent/site.sock"), desc(JobSpec::default()), &[]);
    assert!(matches!(gone, Err(Refusal::BySite { number: -1, .. })));
}
