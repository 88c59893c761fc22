#![allow(clippy::unwrap_used)]
use super::*;
use crate::stepmgr::builders::{bytes, step};
use garrick_model::{
    batch::{BatchMembers, CommandList, StepBatch},
    ids::{ArrayTask, JobId, RequestId, Sluid, StepId},
    resources::CpuSet,
    spec::ArraySpec,
};

const OK: ExitStatus = ExitStatus::SUCCESS;
const THREE: ExitStatus = ExitStatus { code: 3, signal: None };

fn run() -> RecordedRun {
    RecordedRun {
        job: JobId(12),
        sluid: Sluid(70),
        node: "n0".into(),
        uid: 1001,
        user: "alice".into(),
        name: "job".into(),
        work_dir: "/home/alice".into(),
        array: None,
        nodes: vec!["n0".into(), "n1".into()],
        cpus: 4,
        partition: "p".into(),
        start: Timestamp(1000),
        end: None,
    }
}

fn array(first: u32, at: i64) -> StepEvent {
    let tasks = ArraySpec { ranges: vec![(0, 9, 1)], limit: None };
    let spec = StepSpec { stdout: StreamTarget::File("out-%J.%N".into()), ..step("work") };
    accepted(first, StepBatch { specs: vec![spec], members: BatchMembers::Array(tasks) }, at)
}

fn accepted(first: u32, batch: StepBatch, at: i64) -> StepEvent {
    let batch = Arc::new(batch.into());
    StepEvent::Accepted { request: RequestId(1, u64::from(first)), first, batch, at: Timestamp(at) }
}

fn started(step: StepKey, attempt: u32, at: i64) -> StepEvent {
    let place =
        Place { slot: 1, cpus: CpuSet::from_iter([0, 1]), memory: None, gres: Vec::new(), ranks: vec![0], held: true };
    let (at, places) = (Timestamp(at), vec![place]);
    StepEvent::Started { step, attempt, at, places, origin: None, after: None, request: None }
}

fn behind(step: StepKey, after: StepKey, at: i64) -> StepEvent {
    match started(step, 0, at) {
        StepEvent::Started { step, attempt, at, places, origin, request, .. } => {
            StepEvent::Started { step, attempt, at, places, origin, request, after: Some(after) }
        }
        other => other,
    }
}

fn result(step: StepKey, state: StepState, exit: ExitStatus, ended: Option<StepEnd>) -> StepResult {
    let usage = TaskUsage { user_us: 5, system_us: 6, max_rss_kib: 700, ..TaskUsage::default() };
    StepResult { step: StepId::of(JobId(12), step), state, exit, ended, usage, spread: None, detail: None }
}

fn ended(step: StepKey, state: StepState, exit: ExitStatus, cause: Option<StepEnd>, at: i64) -> StepEvent {
    StepEvent::Ended { result: result(step, state, exit, cause), at: Timestamp(at) }
}

fn all_told(run: &RecordedRun, events: Vec<StepEvent>, wanted: &WantedRecords) -> Vec<Told> {
    let mut history = History::new(run, wanted);
    let mut all = Vec::new();
    let mut tell = |told: Told| all.push(told);
    events.into_iter().for_each(|event| history.take(event, &mut tell));
    history.finish(&mut tell);
    all
}

fn steps_of(told: Vec<Told>) -> Vec<(Arc<RecordedOrigin>, RecordedStep)> {
    let step = |told: Told| match told {
        Told::Step(origin, step) => Some((origin, step)),
        Told::Batch(_) => None,
    };
    told.into_iter().filter_map(step).collect()
}

fn told(events: Vec<StepEvent>, wanted: &WantedRecords) -> Vec<(Arc<RecordedOrigin>, RecordedStep)> {
    steps_of(all_told(&run(), events, wanted))
}

fn texts() -> WantedRecords {
    WantedRecords { texts: true, ..WantedRecords::default() }
}

#[test]
fn steps_come_as_they_ended_then_those_that_run_then_those_that_wait() {
    let task = |n| StepKey::task(0, n);
    let events = vec![
        array(0, 1100),
        started(task(4), 0, 1200),
        started(task(1), 0, 1210),
        started(task(2), 0, 1220),
        ended(task(1), StepState::Failed, THREE, None, 1500),
        ended(task(4), StepState::Completed, OK, None, 1600),
    ];
    let steps = told(events, &texts());
    let shown: Vec<_> = steps.iter().map(|(_, step)| (step.key, step.state)).collect();
    let expected = [(task(1), StepState::Failed), (task(4), StepState::Completed), (task(2), StepState::Running)];
    assert_eq!(shown[..3], expected);
    let (origin, failed) = &steps[0];
    assert_eq!((origin.name.as_str(), failed.exit, failed.usage.max_rss_kib), ("work", THREE, 700));
    assert_eq!(failed.queued, Some(Timestamp(1100)));
    assert_eq!((failed.elapsed_ms(Timestamp(0)), failed.cpus, &failed.slots[..]), (Some(290), 2, &[1][..]));
    assert_eq!(failed.output, "/home/alice/out-12.0_1.n1");
    assert_eq!(steps[3].1.all_of.as_ref().map(ToString::to_string), Some("0_[0,3,5-9]".into()));
    assert_eq!(steps.len(), 4);
}

#[test]
fn what_is_not_wanted_is_left_out() {
    let task = |n| StepKey::task(0, n);
    let events = vec![
        array(0, 1100),
        started(task(1), 0, 1200),
        ended(task(1), StepState::Failed, THREE, None, 1500),
        started(task(2), 0, 1600),
        ended(task(2), StepState::Completed, OK, None, 1700),
    ];
    let keys = |wanted: &WantedRecords| -> Vec<String> {
        told(events.clone(), wanted)
            .iter()
            .map(|(_, step)| step.all_of.as_ref().map_or_else(|| step.key.to_string(), ToString::to_string))
            .collect()
    };
    let failed = WantedRecords { states: vec![StepState::Failed], ..WantedRecords::default() };
    assert_eq!(keys(&failed), ["0_1"]);
    let which = |text: &str| WantedRecords { which: vec![text.parse().unwrap()], ..WantedRecords::default() };
    assert_eq!(keys(&which("0_[2-4]")), ["0_2", "0_[3-4]"]);
    assert_eq!(keys(&which("0")).len(), 3);
    assert_eq!(keys(&which("1")), [""; 0]);
}

#[test]
fn tries_are_told_apart_and_the_last_is_the_steps_own() {
    let task = StepKey::task(0, 7);
    let retried = StepEvent::Retried {
        step: task,
        attempt: 1,
        after: Timestamp(1600),
        ended: Some(Box::new(result(task, StepState::Failed, THREE, None))),
        at: Some(Timestamp(1500)),
    };
    let events = vec![
        array(0, 1100),
        started(task, 0, 1200),
        retried,
        started(task, 1, 1700),
        ended(task, StepState::Completed, OK, None, 1800),
    ];
    let only = WantedRecords { which: vec![WhichSteps::one(task)], ..WantedRecords::default() };
    let steps = told(events.clone(), &only);
    assert_eq!(steps.len(), 1);
    assert_eq!((steps[0].1.attempt, steps[0].1.state), (1, StepState::Completed));
    let steps = told(events, &WantedRecords { tries: true, ..only });
    let shown: Vec<_> = steps.iter().map(|(_, s)| (s.again, s.attempt, s.exit, s.elapsed_ms(Timestamp(0)))).collect();
    assert_eq!(shown, [(true, 0, THREE, Some(300)), (false, 1, OK, Some(100))]);
}

#[test]
fn a_step_that_is_lined_up_begins_when_the_one_before_it_ends() {
    let task = |n| StepKey::task(0, n);
    let events = vec![
        array(0, 1100),
        started(task(0), 0, 1200),
        behind(task(1), task(0), 1200),
        behind(task(2), task(1), 1200),
        ended(task(0), StepState::Completed, OK, None, 1300),
        ended(task(1), StepState::Completed, OK, None, 1310),
        ended(task(2), StepState::Completed, OK, None, 1350),
    ];
    let steps = told(events, &WantedRecords { states: vec![StepState::Completed], ..WantedRecords::default() });
    let took: Vec<_> = steps.iter().map(|(_, step)| step.elapsed_ms(Timestamp(0))).collect();
    assert_eq!(took, [Some(100), Some(10), Some(40)]);
}

#[test]
fn steps_that_never_started_say_why_and_who_cancelled_them() {
    let withdrawn = |members: Vec<(u32, u32)>, cause: StepEnd, at| StepEvent::Withdrawn {
        first: 0,
        members,
        state: StepState::Cancelled,
        cause,
        at: Timestamp(at),
    };
    let events = vec![
        array(0, 1100),
        StepEvent::CancelAsked { steps: "0_[3-5]".parse().unwrap(), by: 1001 },
        withdrawn(vec![(3, 5)], StepEnd::Cancelled, 1200),
        withdrawn(vec![(0, 2), (6, 9)], StepEnd::BatchOver, 1300),
    ];
    let steps = told(events, &texts());
    let shown: Vec<_> = steps
        .iter()
        .map(|(_, step)| (step.all_of.as_ref().unwrap().to_string(), step.reason.clone(), step.end))
        .collect();
    assert_eq!(
        shown,
        [
            ("0_[3-5]".to_owned(), "cancelled by 1001".to_owned(), Some(Timestamp(1200))),
            ("0_[0-2,6-9]".to_owned(), "the batch script ended".to_owned(), Some(Timestamp(1300))),
        ]
    );
}

#[test]
fn a_step_that_can_never_run_names_what_it_waited_for() {
    let batch = |name: &str, dependency: Option<&str>| StepBatch {
        specs: vec![StepSpec { dependency: dependency.map(|text| text.parse().unwrap()), ..step(name) }],
        members: BatchMembers::Each,
    };
    let never = StepEvent::Withdrawn {
        first: 1,
        members: vec![(0, 0)],
        state: StepState::Cancelled,
        cause: StepEnd::DependencyNeverSatisfied,
        at: Timestamp(1300),
    };
    let steps = told(
        vec![
            accepted(0, batch("prepare", None), 1100),
            accepted(1, batch("reduce", Some("afterok:0")), 1100),
            ended(StepKey::number(0), StepState::Failed, THREE, None, 1200),
            never,
        ],
        &texts(),
    );
    assert_eq!(steps[1].1.reason, "its dependency can never be satisfied: afterok:0");
}

#[test]
fn steps_of_a_list_have_line_and_command_of_their_own() {
    let mut list = CommandList::default();
    for (line, command) in [(1, "one"), (4, "two")] {
        list.push([command], 0);
        list.set_line(line);
    }
    let batch = StepBatch { specs: vec![step("list")], members: BatchMembers::Commands(list) };
    let key = StepKey::number(3);
    let events =
        vec![accepted(2, batch, 1100), started(key, 0, 1200), ended(key, StepState::Completed, OK, None, 1300)];
    let steps = told(events, &texts());
    let shown: Vec<_> = steps.iter().map(|(_, step)| (step.key, step.line, step.argv.clone())).collect();
    assert_eq!(shown, [(key, Some(4), vec![bytes("two")]), (StepKey::number(2), Some(1), vec![bytes("one")])]);
}

#[test]
fn a_batch_is_told_before_its_steps_with_the_environment_that_they_had() {
    let mut specs = vec![step("a"), step("b")];
    specs[0].environment = vec![bytes("A=1")];
    let key = StepKey::number(1);
    let events = vec![
        accepted(0, StepBatch { specs, members: BatchMembers::Each }, 1100),
        started(key, 0, 1200),
        ended(key, StepState::Failed, THREE, None, 1300),
    ];
    let wanted = WantedRecords { batches: true, states: vec![StepState::Failed], ..WantedRecords::default() };
    let run = RecordedRun { array: Some(ArrayTask { array_job: JobId(11), index: 1 }), ..run() };
    let all = all_told(&run, events, &wanted);
    let [Told::Batch(batch), Told::Step(_, failed)] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((batch.first, batch.array, batch.spec, failed.key), (0, false, 1, key));
    assert_eq!((batch.made_of.name.as_str(), &batch.made_of.environment[..]), ("b", &[bytes("A=1")][..]));
}

#[test]
fn an_environment_that_specs_share_is_told_once_where_that_is_asked_for() {
    let mut specs = vec![step("a"), step("b"), step("c")];
    specs[0].environment = vec![bytes("A=1")];
    let mut events = vec![accepted(0, StepBatch { specs, members: BatchMembers::Each }, 1100)];
    // In whatever order they end.
    for number in [2, 0, 1] {
        events.push(started(StepKey::number(number), 0, 1200));
        events.push(ended(StepKey::number(number), StepState::Failed, THREE, None, 1300));
    }
    let told = |share_environments| {
        let wanted = WantedRecords { batches: true, share_environments, ..WantedRecords::default() };
        let all = all_told(&run(), events.clone(), &wanted);
        let batch = |told: &Told| match told {
            Told::Batch(batch) => Some((batch.spec, batch.made_of.environment.len())),
            Told::Step(..) => None,
        };
        all.iter().filter_map(batch).collect::<Vec<_>>()
    };
    assert_eq!(told(false), [(2, 1), (0, 1), (1, 1)]);
    assert_eq!(told(true), [(2, 1), (0, 0), (1, 0)]);
}

#[test]
fn what_became_of_all_steps_is_counted_whichever_are_wanted() {
    let task = |n| StepKey::task(0, n);
    let withdrawn = StepEvent::Withdrawn {
        first: 0,
        members: vec![(4, 5)],
        state: StepState::Cancelled,
        cause: StepEnd::TooManyFailed,
        at: Timestamp(1400),
    };
    let events = vec![
        array(0, 1100),
        started(StepKey::BATCH, 0, 1100),
        started(task(0), 0, 1200),
        started(task(1), 0, 1200),
        started(task(2), 0, 1200),
        ended(task(0), StepState::Completed, ExitStatus::SUCCESS, None, 1300),
        ended(task(2), StepState::Failed, THREE, None, 1300),
        withdrawn,
    ];
    let (run, wanted) = (run(), WantedRecords { which: vec!["7".parse().unwrap()], ..WantedRecords::default() });
    let mut history = History::new(&run, &wanted);
    let mut told = 0;
    events.into_iter().for_each(|event| history.take(event, &mut |_| told += 1));
    let counts = history.counts();
    assert_eq!((told, counts.running, counts.done, counts.failed, counts.cancelled), (0, 1, 1, 3, 2));
}

#[test]
fn a_step_that_was_lined_up_and_taken_back_was_no_try() {
    let task = |n| StepKey::task(0, n);
    let back = StepEvent::Retried {
        step: task(1),
        attempt: 0,
        after: Timestamp(1250),
        ended: None,
        at: Some(Timestamp(1250)),
    };
    let events = vec![array(0, 1100), started(task(0), 0, 1200), behind(task(1), task(0), 1200), back];
    let wanted = WantedRecords { tries: true, ..texts() };
    let shown: Vec<_> = told(events, &wanted).iter().map(|(_, step)| (step.key, step.again, step.state)).collect();
    assert_eq!(shown, [(task(0), false, StepState::Running), (task(1), false, StepState::Pending)]);
}

#[test]
fn a_line_of_steps_closes_up_when_one_in_it_is_cancelled() {
    let task = |n| StepKey::task(0, n);
    let events = vec![
        array(0, 1100),
        started(task(0), 0, 1200),
        behind(task(1), task(0), 1200),
        behind(task(2), task(1), 1200),
        ended(task(1), StepState::Cancelled, OK, Some(StepEnd::Cancelled), 1250),
        ended(task(0), StepState::Completed, OK, None, 1300),
        ended(task(2), StepState::Completed, OK, None, 1350),
    ];
    let steps = told(events, &WantedRecords { states: vec![StepState::Completed], ..WantedRecords::default() });
    let took: Vec<_> = steps.iter().map(|(_, step)| step.elapsed_ms(Timestamp(0))).collect();
    assert_eq!(took, [Some(100), Some(50)]);
}

#[test]
fn an_srun_that_never_got_its_step_is_there_and_steps_of_a_lost_run_do_not_run_for_ever() {
    let (never, lost) = (StepKey::number(0), StepKey::task(1, 3));
    let events = vec![
        ended(never, StepState::Cancelled, OK, Some(StepEnd::ClientGone), 1150),
        array(1, 1160),
        started(lost, 0, 1200),
    ];
    let run = RecordedRun { end: Some(Timestamp(5000)), ..run() };
    let steps = steps_of(all_told(&run, events, &WantedRecords::default()));
    let shown: Vec<_> = steps
        .iter()
        .map(|(_, step)| (step.key, step.state, step.reason.clone(), step.elapsed_ms(Timestamp(9000))))
        .collect();
    let text = |text: &str| text.to_owned();
    assert_eq!(shown[0], (never, StepState::Cancelled, text("its srun ended"), None));
    assert_eq!(shown[1], (lost, StepState::NodeFail, text("its end is not recorded"), Some(3800)));
    assert_eq!((shown[2].0, shown[2].1), (StepKey::task(1, 0), StepState::Cancelled));
}
