//! Records against what Slurm printed (`src/expected`, copied from its output).

#![allow(clippy::unwrap_used)]

use super::{Lines, Record, job, job::Detail, node, partition, step};
use crate::{
    step_lines::{Alike, StepLine},
    testing as views,
};
use garrick_model::{
    ids::StepNum,
    packed_steps::StepTally,
    spec::ArraySpec,
    state::{ExitStatus, JobState, NodeBase, NodeFlags, Reason, StepState},
    time::{TimeLimit, Timestamp},
    view::{JobView, NodeView, StepCounts, StepView},
};
use std::sync::Arc;

fn text(record: &Record, lines: Lines) -> String {
    let mut out = Vec::new();
    record.write(&mut out, lines).unwrap();
    String::from_utf8(out).unwrap()
}

/// The transcripts' job asked for the memory of whole nodes, of which the test set-up had 1 MB each.
fn expected(text: &str) -> String {
    text.replace("cpu=4,mem=2M,node=2", "cpu=4,node=2")
}

#[test]
fn job_is_shown_as_slurm_shows_it() {
    let record = job::record(&views::job_503(), &views::clock(7), Detail::Plain);
    assert_eq!(text(&record, Lines::Many), expected(include_str!("../expected/show_job.txt")));
    assert_eq!(text(&record, Lines::One), expected(include_str!("../expected/show_job_o.txt")));
}

#[test]
fn details_of_a_job_add_run_and_shares() {
    let mut view = views::job_503();
    view.sluid = "sFSNM7YRTC8Q00".parse().unwrap();
    let counts = StepCounts { queued: 90_000, running: 2, done: 9_990, failed: 8, cancelled: 0 };
    view.steps = StepTally { counts, unreported: 25, ..StepTally::default() };
    let record = job::record(&view, &views::clock(7), Detail::Detailed);
    assert_eq!(text(&record, Lines::Many), expected(include_str!("../expected/show_job_d.txt")));
}

#[test]
fn cancelled_job_keeps_its_allocation() {
    let view = JobView {
        state: JobState::Cancelled,
        exit: ExitStatus { code: 0, signal: Some(15) },
        end_time: Some(views::at(7)),
        ..views::job_503()
    };
    let record = job::record(&view, &views::clock(60), Detail::Plain);
    assert_eq!(text(&record, Lines::Many), expected(include_str!("../expected/show_job_cancelled.txt")));
}

#[test]
fn pending_array_shows_its_tasks_and_no_nodes() {
    let mut view = views::task(3, views::waiting(504, Reason::JobArrayTaskLimit));
    view.array_task = None;
    view.array_pending = Some("3-20%2".parse::<ArraySpec>().unwrap());
    let shown = text(&job::record(&view, &views::clock(7), Detail::Plain), Lines::Many);
    let line = |n: usize| shown.lines().nth(n).unwrap().trim_start().to_owned();
    assert_eq!(line(0), "JobId=504 ArrayJobId=504 ArrayTaskId=3-20%2 ArrayTaskThrottle=2 JobName=arr.sh");
    assert_eq!(line(3), "JobState=PENDING Reason=JobArrayTaskLimit Dependency=(null)");
    assert_eq!(line(8), "StartTime=Unknown EndTime=Unknown Deadline=N/A");
    assert_eq!(line(12), "NodeList=");
    assert_eq!(line(13), "StepMgrEnabled=Yes");
    assert!(shown.contains("\n   AllocTRES=(null)\n"));
}

#[test]
fn node_is_shown_as_slurm_shows_it() {
    let view = NodeView { holds: vec![views::hold(0..5)], ..views::node(0) };
    let record = node::record(&view, &["debug".to_owned()], &views::clock(7), Detail::Plain, &|uid| uid.to_string());
    assert_eq!(text(&record, Lines::Many), include_str!("../expected/show_node.txt"));
    assert_eq!(text(&record, Lines::One), include_str!("../expected/show_node_o.txt"));
}

#[test]
fn drained_node_says_why_and_an_absent_one_what_is_unknown() {
    let record =
        node::record(&views::drained(views::node(1), "bad fan"), &[], &views::clock(0), Detail::Plain, &|uid| {
            uid.to_string()
        });
    let shown = text(&record, Lines::Many);
    assert!(shown.contains("\n   State=IDLE+DRAIN ThreadsPerCore=1"), "{shown}");
    assert!(shown.ends_with("AveWatts=0\n   Reason=bad fan [alice@2026-11-21T10:11:17]\n\n"), "{shown}");

    let absent = NodeView {
        base: NodeBase::Down,
        flags: NodeFlags { not_responding: true, ..NodeFlags::default() },
        registration: None,
        load: Default::default(),
        ..views::node(0)
    };
    let shown = text(&node::record(&absent, &[], &views::clock(0), Detail::Plain, &|uid| uid.to_string()), Lines::Many);
    assert!(shown.starts_with("NodeName=n1 CoresPerSocket=1 \n"), "{shown}");
    assert!(shown.contains("CPULoad=N/A\n") && shown.contains("FreeMem=N/A") && shown.contains("BootTime=None"));
    assert!(shown.contains("State=DOWN+NOT_RESPONDING "), "{shown}");
}

#[test]
fn partition_is_shown_as_slurm_shows_it() {
    let nodes = [Arc::new(views::node(0)), Arc::new(views::node(1))];
    let record = partition::record(&views::partition("debug", 2), &nodes);
    assert_eq!(text(&record, Lines::Many), include_str!("../expected/show_partition.txt"));
    assert_eq!(text(&record, Lines::One), include_str!("../expected/show_partition_o.txt"));
}

#[test]
fn waiting_step_is_shown_as_slurm_shows_it() {
    let view = StepView {
        state: StepState::Pending,
        uid: 0,
        start_time: None::<Timestamp>,
        time_limit: TimeLimit::Unlimited,
        srun: Some(("host1".to_owned(), 26086)),
        ..views::step(StepNum::Number(3), "sleep", "n1")
    };
    let line = &StepLine::of(&view, None, &[], Alike::Folded)[0];
    let shown = text(&step::record(line, None, &views::clock(0)), Lines::Many);
    assert_eq!(shown, include_str!("../expected/show_step.txt").replace("502.3", "503.3"));
    // What Slurm's record does not have comes after it.
    let waiting = StepView {
        reason: Reason::Dependency,
        dependency: "afterok:3".to_owned(),
        priority: 5,
        attempt: 1,
        waiting: Some("3_[7-99%2]".parse().unwrap()),
        ..view
    };
    let line = &StepLine::of(&waiting, None, &[], Alike::Folded)[0];
    let shown = text(&step::record(line, None, &views::clock(0)), Lines::One);
    assert!(shown.starts_with("StepId=503.3_[7-99%2] UserId=0 "), "{shown}");
    assert!(
        shown.ends_with(" SrunHost:Pid=host1:26086 Reason=Dependency Dependency=afterok:3 StepPriority=5 Retries=1\n"),
        "{shown}"
    );
}
