//! Small workloads whose answers can be worked out by hand.
#![allow(clippy::unwrap_used)]

use garrick_model::{
    ids::{JobId, NodeIndex},
    time::Timestamp,
    topology::{Layout, NamedTopology, Unit},
};
use garrick_plan::topology::Topologies;
use garrick_replay::{
    cluster::{self, Choice},
    engine::{Estimates, Replay, replay},
    figures::Summary,
    picture, swf,
};
use std::{path::Path, sync::Arc, time::Duration};

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
fn with_patience_a_block_stays_whole_for_the_job_that_needs_it() {
    // Jobs 1 and 2 have the first block, three places of it until 50.
    let text = "\
1 0 -1 50 3 -1 -1 3 50
2 1 -1 90 1 -1 -1 1 90
3 2 -1 10 2 -1 -1 2 10
4 3 -1 20 4 -1 -1 4 20
";
    let trace = swf::parse(Path::new("small.swf"), text.as_bytes()).unwrap();
    let block = |name: &str, nodes: std::ops::Range<u32>| Unit {
        name: name.to_owned(),
        nodes: nodes.map(|n| format!("n{n}")).collect::<Vec<_>>().iter().map(String::as_str).collect(),
        line: 0,
    };
    let layout = Layout::Block { sizes: vec![4], blocks: vec![block("a", 0..4), block("b", 4..8)] };
    let named = NamedTopology { name: "t".to_owned(), cluster_default: true, layout, line: 0 };
    let index = |name: &str| name[1..].parse().ok().map(NodeIndex);
    let of = |patience: Option<u64>| {
        let mut view = cluster::places(8, 1, Choice::Easy(1));
        view.policy.topologies = Arc::new(Topologies::of(std::slice::from_ref(&named), 8, &index));
        view.policy.topology_patience = patience.map(Duration::from_secs);
        replay(view, &trace.jobs, Estimates::Requested)
    };
    for short in [None, Some(0), Some(47)] {
        assert_eq!(starts(&of(short)), [(1, 0), (2, 1), (3, 2), (4, 12)], "{short:?}");
    }
    let replay = of(Some(48));
    assert_eq!(starts(&replay), [(1, 0), (2, 1), (3, 50), (4, 3)]);
    let blocks = Summary::of(&replay).blocks.unwrap();
    assert_eq!((blocks.patient_jobs, blocks.patient_max_s, blocks.wide.jobs), (1, 48.0, 1));
    // The second block is idle from 0 to 3 and from 23 to 91.
    assert!((blocks.idle - (3.0 + 68.0) / 91.0).abs() < 1e-9, "{}", blocks.idle);
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
