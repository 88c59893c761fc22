//! Steps at the controller: reports, what they cost in messages, lists, and orders to step managers.
#![allow(clippy::unwrap_used)]

use super::fixtures::{Agents, Habit, MemoryJournal, Rig, TWO_NODES, with_system};
use crate::log::{ACCOUNTING, Log as _};
use garrick_events::{event::ControllerEvent, testing::ended_row};
use garrick_model::{
    ids::{JobId, Sluid, StepId, StepKey},
    messages::{
        command::{CancelRequest, CommandReply, CommandRequest, JobMilestone, JobSelector, MessageCount},
        node::{AgentReport, ControllerToNode, NodeToController},
    },
    packed_steps::StepTally,
    refusal::Refusal,
    spec::NodeCount,
    state::{ExitStatus, JobState, Reason, StepState},
    step_selector::WhichSteps,
    testing::spec,
    time::{TimeLimit, Timestamp},
    view::{StepCounts, StepOrigin, StepRows, StepView},
};
use garrick_runtime::{ReplyTo, System};
use std::{collections::BTreeMap, ops::Range};

/// A controller with two nodes, and a job of alice's that runs on both.
async fn running(system: &System) -> (Rig, Agents, JobId, Sluid) {
    running_with(system, MemoryJournal::default()).await
}

async fn running_with(system: &System, journal: MemoryJournal) -> (Rig, Agents, JobId, Sluid) {
    let mut rig = Rig::start(system, TWO_NODES, journal);
    let mut agents = Agents::new(&rig);
    agents.connect("n0", Habit::Stay);
    agents.connect("n1", Habit::Stay);
    rig.until_up("n0").await;
    rig.until_up("n1").await;
    let wide = garrick_model::spec::JobSpec { nodes: Some(NodeCount { min: 2, max: None }), ..spec() };
    let job = rig.submitted(wide).await;
    assert_eq!(rig.wait(job, JobMilestone::Started).await, JobState::Running);
    let sluid = rig.controller.env.committed.job(job).unwrap().sluid;
    (rig, agents, job, sluid)
}

fn rows(numbers: Range<u32>, total: u64, unreported: u64) -> StepRows {
    let origin = StepOrigin {
        name: "true".into(),
        uid: 1001,
        partition: "debug".into(),
        tasks: 1,
        time_limit: TimeLimit::Unlimited,
        srun: None,
        submit_line: "srun --async --array=0-9999 true".into(),
        priority: 0,
        cpu_freq: None,
        layout: None,
    };
    let row = |task| ended_row(StepKey::task(0, task));
    let done = u64::from(numbers.end);
    let counts = StepCounts { queued: total - done, running: 0, done, failed: 0, cancelled: 0 };
    StepRows { origins: vec![origin], rows: numbers.map(row).collect(), counts, unreported, dropped: 0 }
}

fn live(job: JobId, number: u32, state: StepState) -> StepView {
    let steps = rows(number..number + 1, 1_000_000, 0);
    let view = steps.views(job).next().unwrap();
    StepView { id: StepId::of(job, StepKey::number(number)), state, end_time: None, ..view }
}

async fn counts(rig: &Rig) -> BTreeMap<(String, String), u64> {
    match rig.ask(0, CommandRequest::CountMessages { prefixes: Vec::new() }).await {
        CommandReply::MessageCounts(counts) => {
            counts.into_iter().map(|MessageCount { actor, message, handled }| ((actor, message), handled)).collect()
        }
        other => panic!("{other:?}"),
    }
}

async fn tally(rig: &Rig, job: JobId) -> StepTally {
    match rig.ask(1001, CommandRequest::list_jobs(vec![JobSelector { job, tasks: None, het: None, run: None }])).await {
        CommandReply::Jobs { jobs, .. } => jobs[0].steps,
        other => panic!("{other:?}"),
    }
}

async fn steps(rig: &Rig, job: JobId, ended: bool) -> (Vec<StepView>, Vec<String>, u64) {
    match rig.ask(1001, CommandRequest::ListSteps { job: Some(job), ended }).await {
        CommandReply::Steps { steps, missing, left_out } => (steps, missing, left_out),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_keeps_accounts_has_the_records_of_steps_before_their_manager_forgets_them() {
    let journal = MemoryJournal::default();
    journal.log.register(ACCOUNTING, ReplyTo::channel().0);
    let log = journal.log.clone();
    with_system(async move |system| {
        let (rig, agents, job, sluid) = running_with(&system, journal).await;
        let mut feed = log.subscribe(log.committed().next()).unwrap();
        rig.journal.hold();
        let report = |from| {
            let steps = rows(from..from + 1000, 10_000, 0).into();
            agents.report("n0", AgentReport::Steps { job, sluid, steps })
        };
        report(0);
        rig.journal.held().await;
        assert_eq!(feed.try_next().unwrap(), None);
        let last = report(1000);
        rig.journal.held().await;
        rig.journal.release();
        agents.acknowledged("n0", last).await;
        let mut numbers = Vec::new();
        while let Some(committed) = feed.try_next().unwrap() {
            if let ControllerEvent::Steps { steps, .. } = &*committed.event {
                numbers.extend(steps.unpack().unwrap().rows.into_iter().map(|row| row.key));
            }
        }
        assert_eq!(numbers, (0..2000).map(|task| StepKey::task(0, task)).collect::<Vec<_>>());
        // They are nobody's state.
        let replayed = rig.journal.replayed();
        assert!(replayed.into_events().all(|event| !matches!(event, ControllerEvent::Steps { .. })));
    });
}

#[test]
fn reported_steps_cost_messages_per_batch_and_none_per_step() {
    with_system(async |system| {
        let (rig, agents, job, sluid) = running(&system).await;
        let saved = rig.journal.events().len();
        let shown = rig.controller.env.boards.jobs.generation();
        let before = counts(&rig).await;
        let mut last = 0;
        for from in (0..6000).step_by(2000) {
            let steps = rows(from..from + 2000, 10_000, 12).into();
            last = agents.report("n0", AgentReport::Steps { job, sluid, steps });
        }
        agents.acknowledged("n0", last).await;
        let after = counts(&rig).await;
        let mut grown: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for ((actor, message), handled) in &after {
            let more = handled - before.get(&(actor.clone(), message.clone())).unwrap_or(&0);
            if more > 0 {
                grown.insert((actor, message), more);
            }
        }
        // What the job's start set off may still be under way there; the reports set off nothing, see below.
        grown.retain(|(actor, _), _| *actor != "/scheduler");
        // The rows are on their own way to the actor that remembers them.
        let remembered = grown.remove(&("/steps", "StepReport")).unwrap_or(0);
        assert!(remembered <= 3);
        let path = format!("/job/{job}");
        let expected = BTreeMap::from([
            (("/controller", "CountMessages"), 1),
            (("/controller", "Serve"), 1),
            (("/controller", "StepReport"), 3),
            (("/node/n0", "StepReport"), 3),
            (("/node/n0", "ReportSafe"), 3),
            ((path.as_str(), "StepReport"), 3),
        ]);
        assert_eq!(grown, expected);
        assert_eq!(rig.controller.env.boards.jobs.generation(), shown, "nobody who waits for changes of jobs wakes");
        assert_eq!(rig.journal.events().len(), saved, "a report of steps is not saved while the job runs");
        let counts = StepCounts { queued: 4000, running: 0, done: 6000, failed: 0, cancelled: 0 };
        assert_eq!(tally(&rig, job).await, StepTally { counts, unreported: 12, ..StepTally::default() });
    });
}

#[test]
fn a_repeated_report_is_counted_once_and_the_last_numbers_stay_with_the_job() {
    with_system(async |system| {
        let (rig, agents, job, sluid) = running(&system).await;
        let report = AgentReport::Steps { job, sluid, steps: rows(0..100, 100, 3).into() };
        let seq = agents.report("n0", report.clone());
        agents.acknowledged("n0", seq).await;
        agents.say("n0", NodeToController::Report { seq, report });
        let cancel = CancelRequest {
            jobs: vec![JobSelector { job, tasks: None, het: None, run: None }],
            ..CancelRequest::default()
        };
        rig.ask(1001, CommandRequest::Cancel(cancel)).await;
        rig.until(job, |view| view.state == JobState::Cancelled).await;
        let late = rows(0..100, 100, 0);
        let seq = agents.report("n0", AgentReport::Steps { job, sluid, steps: late.into() });
        agents.acknowledged("n0", seq).await;
        assert_eq!((tally(&rig, job).await.counts.done, tally(&rig, job).await.unreported), (100, 0));
        assert_eq!(rig.journal.replayed().jobs[&job].steps, tally(&rig, job).await);
        assert!(rig.controller.env.boards.steps.is_empty(), "what is in the view is not kept beside it");
    });
}

#[test]
fn a_list_has_what_managers_and_memory_know_and_names_who_is_missing() {
    use StepState::{Completed, Pending, Running};
    with_system(async |system| {
        let (rig, mut agents, job, sluid) = running(&system).await;
        let seq = agents.report("n0", AgentReport::Steps { job, sluid, steps: rows(0..3, 9, 0).into() });
        agents.acknowledged("n0", seq).await;
        let (listed, ()) = tokio::join!(steps(&rig, job, true), async {
            let query = agents.heard(|node, frame| asked(node, frame, job)).await;
            let steps = vec![live(job, 7, Running), live(job, 8, Pending)];
            agents.say("n0", NodeToController::Steps { query, steps, missing: Vec::new(), left_out: 40 });
        });
        let (views, missing, left_out) = listed;
        let states: Vec<StepState> = views.iter().map(|v| v.state).collect();
        assert_eq!(states, [Completed, Completed, Completed, Running, Pending]);
        assert_eq!((missing, left_out), (Vec::new(), 40));

        agents.disconnect("n0");
        let (views, missing, _) = steps(&rig, job, false).await;
        assert_eq!((views.len(), missing), (0, vec!["n0".to_owned()]));
        let unknown = rig.ask(1001, CommandRequest::ListSteps { job: Some(JobId(99)), ended: false }).await;
        assert_eq!(unknown, CommandReply::Refused(Refusal::InvalidJobId));
    });
}

fn asked(node: &str, frame: &ControllerToNode, job: JobId) -> Option<u64> {
    match frame {
        ControllerToNode::ListSteps { query, jobs } if node == "n0" && *jobs == [job] => Some(*query),
        _ => None,
    }
}

#[test]
fn a_list_that_is_too_long_says_how_much_is_left_out() {
    with_system(async |system| {
        let (rig, agents, job, _) = running(&system).await;
        let ((views, _, left_out), ()) = tokio::join!(steps(&rig, job, false), async {
            let query = agents.heard(|node, frame| asked(node, frame, job)).await;
            let steps = (0..100_000).map(|n| live(job, n, StepState::Pending)).collect();
            agents.say("n0", NodeToController::Steps { query, steps, missing: Vec::new(), left_out: 0 });
        });
        assert!((10_000..30_000).contains(&views.len()), "{}", views.len());
        assert_eq!(views.len() as u64 + left_out, 100_000);
        assert!(views.iter().zip(0..).all(|(v, n)| v.id.step.number() == Some(n)), "the first ones are shown");
    });
}

#[test]
fn an_order_to_steps_goes_to_the_step_manager_of_the_run_or_is_refused_with_why() {
    with_system(async |system| {
        let (mut rig, mut agents, job, sluid) = running(&system).await;
        let held = garrick_model::spec::JobSpec { hold: true, ..spec() };
        let waiting = rig.submitted(held).await;
        let signal = async |rig: &Rig, uid, steps: &str, signal| {
            let steps = vec![steps.parse().unwrap()];
            let cancel = CancelRequest { steps, signal, ..CancelRequest::default() };
            match rig.ask(uid, CommandRequest::Cancel(cancel)).await {
                CommandReply::PerJob(mut answers) => answers.remove(0).1,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(signal(&rig, 1001, "99.0", None).await, Err(Refusal::InvalidJobId));
        assert_eq!(signal(&rig, 1001, "99_3.0", None).await, Err(Refusal::InvalidJobId));
        assert_eq!(signal(&rig, 1001, &format!("{waiting}.0"), None).await, Err(Refusal::JobPending));
        assert_eq!(signal(&rig, 1002, &format!("{job}.0"), None).await, Err(Refusal::AccessDenied));
        assert_eq!(agents.orders(), []);

        assert_eq!(signal(&rig, 1001, &format!("{job}.7_[1-4]"), Some(10)).await, Ok(()));
        let steps: WhichSteps = "7_[1-4]".parse().unwrap();
        let order =
            ControllerToNode::SignalSteps { job, sluid, steps, pending_only: false, signal: Some(10), by: Some(1001) };
        agents.heard(|_, frame| (*frame == order).then_some(())).await;
        assert_eq!(agents.orders(), [("n0".to_owned(), order)], "the batch host's agent alone is told");

        agents.disconnect("n0");
        let said = signal(&rig, 1001, &format!("{job}.0"), None).await.unwrap_err().to_string();
        assert_eq!(said, "Unable to contact n0: its node daemon is not connected");
        agents.connect("n0", Habit::Stay);
        let end = AgentReport::JobEnded {
            job,
            sluid,
            state: JobState::Completed,
            reason: Reason::None,
            exit: ExitStatus::SUCCESS,
            derived: ExitStatus::SUCCESS,
            at: Timestamp::now(),
            lost: Vec::new(),
            cause: None,
        };
        agents.report("n0", end);
        rig.until(job, |view| view.state != JobState::Running).await;
        assert_eq!(signal(&rig, 1001, &format!("{job}.0"), None).await, Err(Refusal::AlreadyDone));
    });
}
