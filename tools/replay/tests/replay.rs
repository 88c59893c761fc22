//! Small workloads whose answers can be worked out by hand.
#![allow(clippy::unwrap_used)]

use garrick_model::{ids::JobId, time::Timestamp};
use garrick_replay::{
    cluster::{self, Choice},
    engine::{Estimates, Replay, replay},
    figures::Summary,
    picture, swf,
};
use std::path::Path;

/// Job, submission, run time, places, limit.
const TRACE: &str = "\
; MaxProcs: 4
1 0 -1 10 3 -1 -1 3 10 -1 1 1 -1 -1 1 -1 -1 -1
2 1 -1 10 4 -1 -1 4 10 -1 1 2 -1 -1 1 -1 -1 -1
3 2 -1 8 1 -1 -1 1 8 -1 1 1 -1 -1 1 -1 -1 -1
4 3 -1 5 1 -1 -1 1 9 -1 1 2 -1 -1 1 -1 -1 -1
5 4 -1 3 2 -1 -1 2 3 -1 1 1 -1 -1 1 -1 -1 -1
6 5 -1 3 9 -1 -1 9 3 -1 1 1 -1 -1 1 -1 -1 -1
";

fn run(policy: &str, estimates: Estimates) -> Replay {
    let trace = swf::parse(Path::new("small.swf"), TRACE.as_bytes()).unwrap();
    replay(cluster::places(trace.max_procs.unwrap(), 1, policy.parse().unwrap()), &trace.jobs, estimates)
}

fn starts(replay: &Replay) -> Vec<(u32, i64)> {
    let mut starts: Vec<(u32, i64)> = replay.ran.iter().map(|r| (r.id.0, r.start.secs())).collect();
    starts.sort_unstable();
    starts
}

#[test]
fn first_come_first_served_starts_nothing_behind_a_waiting_job() {
    let replay = run("fcfs", Estimates::Requested);
    assert_eq!(starts(&replay), [(1, 0), (2, 10), (3, 20), (4, 20), (5, 20)]);
    assert_eq!((replay.refused.as_slice(), replay.stranded.len()), ([JobId(6)].as_slice(), 0));
}

#[test]
fn backfill_starts_what_delays_nobody() {
    for policy in ["easy", "easy-sjbf", "conservative", "default"] {
        let replay = run(policy, Estimates::Requested);
        assert_eq!(starts(&replay), [(1, 0), (2, 10), (3, 2), (4, 20), (5, 20)], "{policy}");
    }
}

#[test]
fn the_shortest_goes_first_behind_the_one_that_has_room_reserved() {
    // At 4 a place is free until job 2 gets it at 10: for job 3, or for job 4 and then for nobody.
    let text = "\
1 0 -1 10 3 -1 -1 3 10
5 0 -1 4 1 -1 -1 1 4
2 1 -1 10 4 -1 -1 4 10
3 2 -1 6 1 -1 -1 1 6
4 3 -1 3 1 -1 -1 1 3
";
    let trace = swf::parse(Path::new("small.swf"), text.as_bytes()).unwrap();
    let of = |policy: Choice| starts(&replay(cluster::places(4, 1, policy), &trace.jobs, Estimates::Requested));
    assert_eq!(of(Choice::Easy(1))[2..4], [(3, 4), (4, 20)]);
    assert_eq!(of(Choice::EasySjbf(1))[2..4], [(3, 20), (4, 4)]);
}

#[test]
fn figures_are_those_of_the_definitions() {
    let summary = Summary::of(&run("fcfs", Estimates::Requested));
    // Waits 0, 9, 18, 17, 16; run times 10, 10, 8, 5, 3.
    assert!((summary.all.mean_wait_s - 12.0).abs() < 1e-9);
    assert_eq!((summary.all.max_wait_s, summary.all.median_wait_s), (18.0, 16.0));
    let slowdown = (1.0 + 1.9 + 2.6 + 2.2 + 1.9) / 5.0;
    assert!((summary.all.avg_bounded_slowdown - slowdown).abs() < 1e-9, "{}", summary.all.avg_bounded_slowdown);
    let work = 30.0 + 40.0 + 8.0 + 5.0 + 6.0;
    assert!((summary.utilization - work / (4.0 * 28.0)).abs() < 1e-9);
    assert_eq!((summary.users[&1].jobs, summary.users[&2].jobs, summary.refused), (3, 2, 1));
}

#[test]
fn pictures_show_all_of_the_time() {
    let replay = run("fcfs", Estimates::Requested);
    assert_eq!(replay.moments.last().unwrap().at, Timestamp::from_secs(28));
    let lines = picture::lines(&[("fcfs", &replay)]);
    assert!(lines.contains("in use") && lines.contains('█'), "{lines}");
    let svg = picture::svg(&[("fcfs", &replay), ("again", &replay)]).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("CPUs in use") && svg.contains("again"));
    let area: f64 = picture::curve(&replay, 28).iter().map(|(_, busy, _)| busy).sum();
    assert!((area * 4.0 - 89.0).abs() < 1e-6, "{area}");
}
