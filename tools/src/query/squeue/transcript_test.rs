//! Lists of jobs and steps against what Slurm printed (`src/query/expected`, copied from its output).

#![allow(clippy::unwrap_used)]

use super::{More, attach_ids, options, render_jobs, render_steps};
use crate::query::{arguments, choices::ChoiceError};
use garrick_model::{
    ids::{JobId, StepNum},
    resources::{MemoryMib, MemoryRequest},
    spec::{ArraySpec, Dependencies, JobSpec},
    state::{JobState, Reason, StepState},
    view::{JobView, StepView},
};
use garrick_render::{job_rows, testing as views};
use std::{ffi::OsString, sync::Arc};

fn request(words: &str) -> Result<options::Request, options::RequestError> {
    let args: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
    options::read(&arguments::parse(&options::TABLE, &attach_ids(args)).unwrap(), |_| None)
}

fn shown(words: &str, jobs: Vec<JobView>, secs: i64) -> String {
    let by_root = |view| JobView { user: "root".to_owned(), ..view };
    let jobs: Vec<Arc<JobView>> = jobs.into_iter().map(by_root).map(Arc::new).collect();
    let mut out = Vec::new();
    render_jobs(&jobs, &request(words).unwrap(), &More::default(), &views::clock(secs), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn shown_with(words: &str, jobs: Vec<JobView>, more: &More) -> String {
    let jobs: Vec<Arc<JobView>> = jobs.into_iter().map(Arc::new).collect();
    let mut out = Vec::new();
    render_jobs(&jobs, &request(words).unwrap(), more, &views::clock(7), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_waiting_job_of_several_partitions_is_listed_once_for_each() {
    let of = |id: u32, priority, partitions: &[&str]| JobView {
        partitions: partitions.iter().map(|name| (*name).to_owned()).collect(),
        priority,
        ..views::waiting(id, Reason::Priority)
    };
    let jobs = || vec![of(1, 50, &["slow", "fast"]), of(2, 70, &["slow"])];
    let tiers = [("slow".to_owned(), 1), ("fast".to_owned(), 9)].into();
    let more = More { tiers: Some(tiers), ..More::default() };
    let format = "-h -o %i/%P";
    assert_eq!(shown_with(&format!("-P -S -p,i {format}"), jobs(), &more), "1/fast\n2/slow\n1/slow\n");
    assert_eq!(shown_with(&format!("-P -p fast {format}"), jobs(), &more), "1/fast\n");
    assert_eq!(shown_with(&format!("-S -p,i {format}"), jobs(), &More::default()), "2/slow\n1/slow,fast\n");
    assert!(request("-P").unwrap().each_partition && !request("").unwrap().each_partition);
}

#[test]
fn jobs_are_chosen_by_how_long_they_have_run() {
    let jobs = || vec![views::job(1, &[("n1", 1)]), views::waiting(2, Reason::Resources)];
    let ids = |words: &str, secs| shown(&format!("-h -o %i {words}"), jobs(), secs);
    assert_eq!(ids("--running-over=1", 61), "1\n");
    assert_eq!(ids("--running-over=1", 60), "");
    assert_eq!(ids("--running-under=1:00", 59), "1\n");
    assert_eq!(ids("--running-under=1:00", 60), "");
    assert_eq!((ids("--running-over=-1", 60), ids("--running-under=-1", 60)), (String::new(), "1\n".to_owned()));
    for words in ["--running-over=0", "--running-under=x"] {
        assert_eq!(request(words).unwrap_err(), options::RequestError::RunTime, "{words}");
    }
}

#[test]
fn units_of_memory_are_converted_or_left() {
    let view = views::waiting(1, Reason::Resources);
    let memory = MemoryRequest::PerNode(MemoryMib(2048));
    let shown = |words: &str| shown(&format!("-h -o %m {words}"), vec![JobView { memory, ..view.clone() }], 0);
    assert_eq!((shown("").as_str(), shown("--noconvert").as_str()), ("2G\n", "2048M\n"));
}

#[test]
fn jobs_are_chosen_by_reservation_and_show_where_they_are_to_start() {
    let in_one = |id, name: &str| {
        let view = views::waiting(id, Reason::Resources);
        let spec = Arc::new(JobSpec { reservations: vec![name.to_owned()], ..(*view.spec).clone() });
        JobView { spec, ..view }
    };
    let jobs = vec![in_one(1, "a"), in_one(2, "b"), views::waiting(3, Reason::Resources)];
    let more = More { sched_nodes: [(JobId(2), "n[1-2]".to_owned())].into(), ..More::default() };
    assert_eq!(shown_with("-R b,c -h -o %i:%Y", jobs.clone(), &more), "2:n[1-2]\n");
    assert_eq!(shown_with("-R a -h -o %i:%Y", jobs, &more), "1:(null)\n");
}

#[test]
fn any_word_behind_j_is_taken_for_a_job() {
    assert_eq!(request("-j abc").unwrap_err().to_string(), "Invalid job id: abc");
    assert_eq!(request("-j -h").unwrap().choice.jobs, []);
}

#[test]
fn nodes_are_named_by_their_hosts_too() {
    let nodes = vec![Arc::new(views::node(1)), Arc::new(views::node(2))];
    let read = |name: &str| {
        let mut names = vec![name.to_owned()];
        job_rows::node_names(&mut names, &nodes, "here").map(|()| names)
    };
    let first = &nodes[0].name;
    assert_eq!(read(first), Ok(vec![first.clone()]));
    assert!(read(&nodes[1].hostname).unwrap().contains(&nodes[1].name));
    assert_eq!((read("n99"), read("localhost")), (Err("n99".to_owned()), Err("localhost".to_owned())));
}

#[test]
fn a_job_that_never_can_run_shows_all_that_it_asked_for() {
    let asked: Dependencies = "afterok:3:4:5".parse().unwrap();
    let mut left = Dependencies { any: false, list: asked.list[1..].to_vec() };
    let view = |left: &Dependencies| {
        let view = views::waiting(6, Reason::Dependency);
        let spec = Arc::new(JobSpec { dependencies: asked.clone(), ..(*view.spec).clone() });
        vec![JobView { spec, dependencies: left.clone(), ..view }]
    };
    assert_eq!(shown("-h -o %E", view(&left), 7), "afterok:4(unfulfilled),afterok:5(unfulfilled)\n");
    left.list[0].failed = true;
    let all = "afterok:3(fulfilled),afterok:4(failed),afterok:5(unfulfilled)\n";
    assert_eq!(shown("-h -o %E", view(&left), 7), all);
}

/// The transcripts' user had a name of four letters, replaced without regard to columns.
fn expected(text: &str) -> String {
    text.replace("alice", "root")
}

fn array_504() -> JobView {
    let record = views::task(0, views::waiting(504, Reason::JobArrayTaskLimit));
    JobView { array_task: None, array_pending: Some("3-20%2".parse::<ArraySpec>().unwrap()), ..record }
}

/// Job 503, and the array 504 of which two tasks run.
fn queue() -> Vec<JobView> {
    let running =
        |id, index| JobView { start_time: Some(views::at(5)), ..views::task(index, views::job(id, &[("n1", 1)])) };
    vec![views::job_503(), array_504(), running(505, 1), running(506, 2)]
}

/// What was there at the end of the transcript.
fn finished() -> Vec<JobView> {
    let why = |view: JobView| JobView { reason: Reason::PartitionNodeLimit, ..view };
    vec![
        JobView { min_nodes: 4, ..views::waiting(507, Reason::PartitionNodeLimit) },
        why(views::over(513, JobState::Cancelled, &[])),
        views::task(19, views::over(523, JobState::Completed, &[("n1", 1)])),
        views::task(20, views::over(524, JobState::Completed, &[("n1", 1)])),
        views::over(531, JobState::Completed, &[("n1", 1)]),
    ]
}

#[test]
fn default_list_folds_arrays() {
    assert_eq!(shown("", queue(), 7), expected(include_str!("../expected/squeue.txt")));
}

#[test]
fn long_list_has_a_date_and_limits() {
    assert_eq!(shown("-l", vec![views::job_503()], 4), expected(include_str!("../expected/squeue_l.txt")));
}

#[test]
fn expanded_arrays_have_a_line_for_each_task() {
    assert_eq!(shown("-r -h", queue(), 7), expected(include_str!("../expected/squeue_r_h.txt")));
}

#[test]
fn expected_starts_are_those_of_pending_jobs() {
    assert_eq!(shown("--start", finished(), 7), expected(include_str!("../expected/squeue_start.txt")));
}

#[test]
fn fields_by_name_are_twenty_wide() {
    assert_eq!(
        shown("-O JobArrayID,StateCompact,Reason -t all", finished(), 7),
        expected(include_str!("../expected/squeue_O.txt"))
    );
}

#[test]
fn fields_by_letter_are_as_wide_as_their_text() {
    assert_eq!(
        shown("--format=%i|%T|%r|%N --states=all --noheader", finished(), 7),
        expected(include_str!("../expected/squeue_format.txt"))
    );
}

#[test]
fn steps_have_their_own_columns() {
    let steps = [
        StepView { nodes: 2, ..views::step(StepNum::Extern, "extern", "n[1-2]") },
        views::step(StepNum::Batch, "batch", "n1"),
    ];
    let mut out = Vec::new();
    let jobs = [Arc::new(views::job_503())];
    let user = |_| "root".to_owned();
    render_steps(&steps, &jobs, &request("-s").unwrap(), &views::clock(4), &user, &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), expected(include_str!("../expected/squeue_s.txt")));
}

#[test]
fn jobs_of_hidden_partitions_are_asked_for_or_named() {
    for (words, hidden) in [("", false), ("--hide", false), ("-a", true), ("-p secret", true), ("-j 5", true)] {
        assert_eq!(request(words).unwrap().hidden, hidden, "{words}");
    }
}

#[test]
fn waiting_steps_are_listed_with_their_reason() {
    let waiting = StepView {
        state: StepState::Pending,
        reason: Reason::Resources,
        start_time: None,
        ..views::step(StepNum::Number(3), "sleep", "")
    };
    let mut out = Vec::new();
    let user = |_| "root".to_owned();
    render_steps(&[waiting], &[], &request("-h -s").unwrap(), &views::clock(4), &user, &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "          503.3    sleep     debug     root      0:00 (Resources)\n");
}

/// A running task of an array, its waiting tasks, waiting lines of a list, and a plain step.
fn minibatch() -> Vec<StepView> {
    let step = |id: &str, state, reason, waiting: Option<&str>| StepView {
        id: id.parse().unwrap(),
        state,
        reason,
        start_time: (state == StepState::Running).then(|| views::at(0)),
        waiting: waiting.map(|w| w.parse().unwrap()),
        ..views::step(StepNum::Number(0), "sim", if state == StepState::Running { "n1" } else { "" })
    };
    vec![
        step("503.7_3", StepState::Pending, Reason::Resources, Some("7_[3-9999%64]")),
        step("503.7_2", StepState::Running, Reason::None, None),
        step("503.8", StepState::Pending, Reason::Dependency, Some("[8-10]")),
        step("503.0", StepState::Running, Reason::None, None),
    ]
}

fn shown_steps(words: &str) -> String {
    let mut out = Vec::new();
    let request = request(words).unwrap();
    render_steps(&minibatch(), &[], &request, &views::clock(4), &|_| "alice".to_owned(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn alike_waiting_steps_are_one_line() {
    let want = [
        "           STEPID     NAME PARTITION     USER      TIME NODELIST\n",
        "            503.0      sim     debug    alice      0:04 n1\n",
        "          503.7_2      sim     debug    alice      0:04 n1\n",
        "503.7_[3-9999%64]      sim     debug    alice      0:00 (Resources)\n",
        "       503.[8-10]      sim     debug    alice      0:00 (Dependency)\n",
    ];
    assert_eq!(shown_steps("-s"), want.concat());
    // Columns that were asked for stay as they are.
    assert_eq!(shown_steps("-h -s -o %.9i|%T|%r").lines().nth(2), Some("503.7_[3-|PENDING|Resources"));
}

#[test]
fn waiting_steps_can_be_had_one_by_one_and_by_name() {
    assert_eq!(shown_steps("-h -r -s -o %i").lines().count(), 1 + 1 + 9997 + 3);
    assert_eq!(shown_steps("-h -r -s -o %i").lines().last(), Some("503.10"));
    let ids = |words: &str| shown_steps(&format!("-h -o %i {words}")).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(ids("--steps=503.7_[1-5]"), "503.7_2 503.7_[3-5%64]");
    assert_eq!(ids("--steps=503.7_4,503.0"), "503.0 503.7_4");
    assert_eq!(ids("--steps=503.*"), "503.0 503.7_2 503.7_[3-9999%64] 503.[8-10]");
    assert_eq!(ids("-s -t PD"), "503.7_[3-9999%64] 503.[8-10]");
    assert_eq!(ids("-s -t R -S -i"), "503.7_2 503.0");
}

#[test]
fn jobs_are_chosen_by_id_user_partition_state_and_node() {
    let ids = |words: &str| {
        shown(&format!("-h -o %i {words}"), queue(), 7).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(ids("-j 503"), ["503"]);
    assert_eq!(ids("-j 504"), ["504_[3-20%2]", "504_1", "504_2"]);
    assert_eq!(ids("--jobs 504_2,503"), ["504_2", "503"]);
    assert_eq!(ids("-r -j504_[4-5]"), ["504_4", "504_5"]);
    assert_eq!(ids("-t pd"), ["504_[3-20%2]"]);
    assert_eq!(ids("-t R -n demo"), ["503"]);
    assert_eq!(ids("-w n2"), ["503"]);
    assert_eq!(ids("-u 1002"), [""; 0]);
    assert_eq!(ids("-u 1001 -p other,debug -t running -S -i"), ["504_2", "504_1", "503"]);
}

#[test]
fn failed_jobs_show_why_and_finished_ones_are_left_out_unasked() {
    let failed = JobView { reason: Reason::NonZeroExitCode, ..views::over(9, JobState::Failed, &[("n1", 1)]) };
    assert_eq!(shown("-h", vec![failed.clone()], 0), "");
    assert_eq!(shown("-h -t F -o %R", vec![failed], 0), "(NonZeroExitCode)\n");
}

#[test]
fn long_task_lists_are_cut() {
    let spec: ArraySpec = (0..100).map(|n| (n * 3).to_string()).collect::<Vec<_>>().join(",").parse().unwrap();
    let mut spec = spec;
    spec.remove(3);
    let record = JobView { array_pending: Some(spec), ..array_504() };
    let shown = shown("-h -o %i", vec![record], 0);
    assert!(shown.starts_with("504_[0,6,9,12,") && shown.ends_with(",...]\n"), "{shown}");
    assert!(shown.len() < 80, "{shown}");
}

#[test]
fn every_field_can_be_shown() {
    let all = shown("-o %all", queue(), 7);
    assert_eq!(all.lines().count(), 5);
    assert!(all.starts_with("ACCOUNT|JOBID|EXEC_HOST|MIN_CPUS|CPUS|"), "{all}");
}

/// Nobody's jobs are shown for a user who is not known, not everybody's.
#[test]
fn users_who_are_not_known_are_told_of_and_the_others_are_shown() {
    let only = request("-u no-such-user-here").unwrap();
    assert_eq!(only.unknown_users, [ChoiceError::User("no-such-user-here".to_owned())]);
    assert_eq!(shown("-h -u no-such-user-here", queue(), 7), "");
    let both = request("-u no-such-user-here,1001").unwrap();
    assert_eq!((both.unknown_users.len(), both.choice.such.users), (1, vec![1001]));
}

#[test]
fn wrong_options_say_what_is_wrong() {
    let said = |words: &str| request(words).unwrap_err().to_string();
    assert_eq!(request("-o %!").unwrap().layout.unknown, ["!"]);
    assert_eq!(request("-O JobID,Nosuch").unwrap().layout.unknown, ["Nosuch"]);
    assert!(said("-t nosuch").starts_with("Invalid job state specified: nosuch\nValid job states include: pending,"));
    assert_eq!(said("--jobs=x"), "Invalid job id: x");
    assert_eq!(said("-S !"), "Invalid sort specification: !");
    assert_eq!(said("-i 0"), "--iterate=0");
}
