//! The whole controller in one process, with agents that are played: from submission to being forgotten, and restarts.
#![allow(clippy::unwrap_used)]

use super::{
    fixtures::{Agents, Habit, MemoryJournal, Rig, TWO_NODES, config_of, with_system},
    frontend::fair_queue::MOST_OF_USER,
    messages::ControllerMsg,
    setup::{Recover, forget},
};
use crate::log::{Log as _, memory::MemoryLog};
use garrick_events::{event::ControllerEvent, records::partition::SavedPartition};
use garrick_model::{
    ids::{JobId, RequestId},
    job_query::{JobQuery, JobStates},
    messages::{
        command::{
            CancelRequest, CommandReply, CommandRequest, JobAction, JobMilestone, JobSelector, NodeChange,
            NodeStateChange,
        },
        node::{AgentReport, ControllerToNode, HeldRun},
        stepd::StepsOrder,
    },
    refusal::Refusal,
    reservation::{AccessList, NodesWanted, ReservationChange},
    resources::{MemoryMib, MemoryRequest},
    spec::{Dependencies, Dependency, DependencyKind, JobKind, JobSpec, NodeCount},
    state::{JobState, PartitionState, Reason},
    testing::{array, spec},
};
use garrick_plan::snapshot::licenses;
use garrick_runtime::{ReplyTo, System, TraceContext};
use std::{collections::BTreeMap, future::Future};

fn rig(system: &System) -> (Rig, Agents) {
    let rig = Rig::start(system, TWO_NODES, MemoryJournal::default());
    let agents = Agents::new(&rig);
    (rig, agents)
}

/// The journal makes the records that the live actors have.
fn replay_equals_live(rig: &Rig) {
    let replayed = rig.journal.replayed();
    let live = rig.controller.env.committed.jobs();
    assert_eq!(replayed.jobs.keys().copied().collect::<Vec<_>>(), live);
    for job in live {
        assert_eq!(rig.controller.env.committed.job(job).unwrap(), replayed.jobs[&job]);
    }
}

fn selector(job: JobId) -> JobSelector {
    JobSelector { job, tasks: None, het: None, run: None }
}

async fn idle(rig: &Rig) {
    let board = &rig.controller.env.boards.nodes;
    let empty = async {
        loop {
            let generation = board.generation();
            if board.list().iter().all(|n| n.holds.is_empty()) {
                return;
            }
            board.changed(generation).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), empty).await.unwrap();
}

fn wide(nodes: u32) -> JobSpec {
    JobSpec { nodes: Some(NodeCount { min: nodes, max: None }), ..spec() }
}

#[test]
fn a_submitted_job_runs_and_gives_its_nodes_back() {
    with_system(async |system| {
        let (mut rig, mut agents) = rig(&system);
        let job = rig.submitted(wide(2)).await;
        assert_eq!(job, JobId(1));
        agents.connect("n0", Habit::Finish);
        agents.connect("n1", Habit::Finish);
        assert_eq!(rig.wait(job, JobMilestone::Ended).await, JobState::Completed);
        idle(&rig).await;
        replay_equals_live(&rig);
    });
}

#[test]
fn a_repeated_submission_gets_the_first_answer_after_a_restart_too() {
    let journal = MemoryJournal::default();
    let request = CommandRequest::SubmitJob { request: RequestId(1, 2), spec: Box::new(spec()) };
    let (again, kept) = (request.clone(), journal.clone());
    with_system(async move |system| {
        let rig = Rig::start(&system, TWO_NODES, kept);
        let first = rig.ask(1001, request.clone()).await;
        assert_eq!(rig.ask(1001, request).await, first);
        assert!(matches!(first, CommandReply::Submitted { job: JobId(1), .. }));
    });
    with_system(async move |system| {
        let mut rig = Rig::start(&system, TWO_NODES, journal);
        assert!(matches!(rig.ask(1001, again).await, CommandReply::Submitted { job: JobId(1), .. }));
        assert_eq!(rig.submitted(spec()).await, JobId(2));
        assert_eq!(rig.controller.epoch, 2);
    });
}

#[test]
fn a_restarted_controller_takes_running_jobs_back() {
    let journal = MemoryJournal::default();
    let kept = journal.clone();
    with_system(async move |system| {
        let mut rig = Rig::start(&system, TWO_NODES, kept);
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Stay);
        agents.connect("n1", Habit::Stay);
        let job = rig.submitted(JobSpec { nodelist: vec!["n0".to_owned()], ..spec() }).await;
        let lost = rig.submitted(JobSpec { nodelist: vec!["n1".to_owned()], ..spec() }).await;
        rig.wait(job, JobMilestone::Started).await;
        rig.wait(lost, JobMilestone::Started).await;
    });
    with_system(async move |system| {
        let rig = Rig::start(&system, TWO_NODES, journal);
        let (job, lost) = (JobId(1), JobId(2));
        rig.until(job, |view| view.state == JobState::Running).await;
        assert_eq!(rig.controller.env.nodes.get("n0").unwrap().view().holds.len(), 1);
        let mut agents = Agents::new(&rig);
        let sluid = rig.controller.env.committed.job(job).unwrap().sluid;
        agents.runs.lock().unwrap().insert((job, sluid), "n0".to_owned());
        let held = HeldRun { job, sluid, batch_host: true, door: "/run/door".to_owned(), requeue: None };
        agents.connect_holding("n0", Habit::Stay, vec![held]);
        agents.connect("n1", Habit::Stay);
        let cancel = CancelRequest { jobs: vec![selector(job), selector(lost)], ..CancelRequest::default() };
        let CommandReply::PerJob(answers) = rig.ask(1001, CommandRequest::Cancel(cancel)).await else { panic!() };
        assert!(answers.iter().all(|(_, answer)| answer.is_ok()), "{answers:?}");
        assert_eq!(rig.wait(job, JobMilestone::Ended).await, JobState::Cancelled);
        assert_eq!(rig.journal.replayed().jobs[&job].restarts, 0);
    });
}

/// The second job waits for the license of the first, also when the controller starts again between, and when there are
/// two of them it starts.
#[test]
fn licenses_are_not_given_twice_after_a_restart() {
    let site = |licenses: u32| format!("{TWO_NODES}Licenses=foo:{licenses}\n");
    let journal = MemoryJournal::default();
    let kept = journal.clone();
    let licensed = || JobSpec { licenses: Some("foo".to_owned()), ..spec() };
    let waits = |view: &garrick_model::view::JobView| view.reason == licenses::reason();
    with_system(async move |system| {
        let mut rig = Rig::start(&system, &site(1), kept);
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Stay);
        let (first, second) = (rig.submitted(licensed()).await, rig.submitted(licensed()).await);
        rig.wait(first, JobMilestone::Started).await;
        rig.until(second, waits).await;
    });
    with_system(async move |system| {
        let rig = Rig::start(&system, &site(1), journal);
        let (first, second) = (JobId(1), JobId(2));
        let CommandReply::Licenses { licenses, .. } = rig.ask(1001, CommandRequest::ListLicenses).await else {
            panic!()
        };
        assert_eq!((licenses[0].total, licenses[0].used), (1, 1));
        let mut agents = Agents::new(&rig);
        agents.connect("n1", Habit::Stay);
        rig.until(second, waits).await;
        let more = ControllerMsg::config_changed(config_of(&site(2)), None);
        rig.frontend().try_send(more).unwrap();
        rig.wait(second, JobMilestone::Started).await;
        let given = |job| rig.controller.env.committed.job(job).unwrap().licenses().unwrap().to_string();
        assert_eq!((given(first), given(second)), ("foo:1".to_owned(), "foo:1".to_owned()));
        replay_equals_live(&rig);
    });
}

#[test]
fn jobs_of_hidden_partitions_are_left_out_where_that_is_asked() {
    with_system(async |system| {
        let conf = format!("{TWO_NODES}PartitionName=secret Nodes=ALL Hidden=YES\n");
        let mut rig = Rig::start(&system, &conf, MemoryJournal::default());
        let on = |partitions: &[&str]| JobSpec {
            hold: true,
            partitions: partitions.iter().map(|p| (*p).to_owned()).collect(),
            ..spec()
        };
        for partitions in [&["debug"][..], &["secret"], &["secret", "debug"]] {
            rig.submitted(on(partitions)).await;
        }
        for (hide, wanted) in [(false, &[1, 2, 3][..]), (true, &[1, 3])] {
            let list = CommandRequest::ListJobs {
                jobs: Vec::new(),
                which: JobQuery::default(),
                after: None,
                most: None,
                hide,
            };
            let CommandReply::Jobs { jobs, .. } = rig.ask(1001, list).await else { panic!() };
            assert_eq!(jobs.iter().map(|view| view.id.0).collect::<Vec<_>>(), wanted);
        }
    });
}

#[test]
fn arrays_run_under_their_limit_and_dependents_after_them() {
    with_system(async |system| {
        let (mut rig, mut agents) = rig(&system);
        let tasks = rig.submitted(JobSpec { array: Some(array(1, 12, Some(3))), ..spec() }).await;
        let after = Dependency { kind: DependencyKind::AfterOk, job: Some(tasks), array_index: None, failed: false };
        let last =
            rig.submitted(JobSpec { dependencies: Dependencies { any: false, list: vec![after] }, ..spec() }).await;
        rig.until(last, |view| view.reason == Reason::Dependency).await;
        agents.connect("n0", Habit::Finish);
        assert_eq!(rig.wait(last, JobMilestone::Ended).await, JobState::Completed);
        let CommandReply::Jobs { jobs, .. } = rig.ask(1001, CommandRequest::list_jobs(vec![selector(tasks)])).await
        else {
            panic!()
        };
        assert_eq!(jobs.len(), 12);
        assert!(jobs.iter().all(|view| view.state == JobState::Completed), "{jobs:?}");
        replay_equals_live(&rig);
    });
}

#[test]
fn a_long_list_of_jobs_is_told_in_pages() {
    with_system(async |system| {
        let (mut rig, _agents) = rig(&system);
        let mut submitted = Vec::new();
        for _ in 0..7 {
            submitted.push(rig.submitted(JobSpec { hold: true, ..spec() }).await);
        }
        let (mut told, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = CommandRequest::ListJobs {
                jobs: Vec::new(),
                which: JobQuery::default(),
                after,
                most: Some(3),
                hide: false,
            };
            let CommandReply::Jobs { jobs, more, .. } = rig.ask(1001, page).await else { panic!() };
            pages += 1;
            after = jobs.last().map(|view| view.id);
            told.extend(jobs.iter().map(|view| view.id));
            if !more {
                break;
            }
        }
        assert_eq!((told, pages), (submitted, 3));
    });
}

#[test]
fn only_jobs_that_are_asked_for_are_listed() {
    with_system(async |system| {
        let (mut rig, mut agents) = rig(&system);
        let mut waiting = Vec::new();
        for name in ["one", "two", "one"] {
            waiting.push(rig.submitted(JobSpec { hold: true, name: name.to_owned(), ..spec() }).await);
        }
        let over = rig.submitted(JobSpec { name: "one".to_owned(), ..spec() }).await;
        agents.connect("n0", Habit::Finish);
        assert_eq!(rig.wait(over, JobMilestone::Ended).await, JobState::Completed);
        let list = async |jobs: &[JobId], which: &JobQuery, most| {
            let (jobs, which) = (jobs.iter().map(|job| (*job).into()).collect(), which.clone());
            let list = CommandRequest::ListJobs { jobs, which, after: None, most, hide: false };
            match rig.ask(1001, list).await {
                CommandReply::Jobs { jobs, more, .. } => {
                    Ok((jobs.iter().map(|view| view.id).collect::<Vec<_>>(), more))
                }
                CommandReply::Refused(refusal) => Err(refusal),
                other => panic!("{other:?}"),
            }
        };
        let ones = JobQuery { names: vec!["one".to_owned()], ..JobQuery::live() };
        let all_ones = JobQuery { states: JobStates::All, ..ones.clone() };
        let of_nobody = JobQuery { users: vec![4711], ..JobQuery::default() };
        assert_eq!(list(&[], &JobQuery::live(), None).await, Ok((waiting.clone(), false)));
        assert_eq!(list(&[], &ones, None).await, Ok((vec![waiting[0], waiting[2]], false)));
        assert_eq!(list(&[], &all_ones, Some(2)).await, Ok((vec![waiting[0], waiting[2]], true)));
        assert_eq!(list(&[], &all_ones, None).await, Ok((vec![waiting[0], waiting[2], over], false)));
        assert_eq!(list(&[], &of_nobody, None).await, Ok((Vec::new(), false)));
        // One that is there and not meant is not unknown.
        assert_eq!(list(&[over], &ones, None).await, Ok((Vec::new(), false)));
        assert_eq!(list(&[over, waiting[1]], &all_ones, None).await, Ok((vec![over], false)));
        assert_eq!(list(&[JobId(4711), waiting[1]], &JobQuery::live(), None).await, Ok((vec![waiting[1]], false)));
        assert_eq!(list(&[JobId(4711)], &ones, None).await, Err(Refusal::InvalidJobId));
    });
}

#[test]
fn what_cannot_be_is_refused() {
    with_system(async |system| {
        let (mut rig, _agents) = rig(&system);
        let refused = |reply: CommandReply| match reply {
            CommandReply::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        };
        rig.until_nodes(2).await;
        let nosuch = JobSpec { partitions: vec!["nosuch".to_owned()], ..spec() };
        assert_eq!(refused(rig.submit(nosuch).await), Refusal::InvalidPartition("nosuch".to_owned()));
        let memory = JobSpec { memory: MemoryRequest::PerNode(MemoryMib(99_999)), ..spec() };
        let detail = Some("Memory specification can not be satisfied".to_owned());
        assert_eq!(refused(rig.submit(memory).await), Refusal::NodeConfigUnavailable { detail });
        let after =
            Dependency { kind: DependencyKind::AfterOk, job: Some(JobId(99)), array_index: None, failed: false };
        let dependent = JobSpec { dependencies: Dependencies { any: false, list: vec![after] }, ..spec() };
        assert_eq!(refused(rig.submit(dependent).await), Refusal::Dependency);
        let job = rig.submitted(spec()).await;
        assert_eq!(job, JobId(1), "what was refused used up no id");
        rig.until(job, |view| view.eligible).await;
        let cancel = CommandRequest::Cancel(CancelRequest { jobs: vec![selector(job)], ..CancelRequest::default() });
        let answer = rig.ask(1002, cancel).await;
        assert_eq!(answer, CommandReply::PerJob(vec![(selector(job), Err(Refusal::AccessDenied))]));
        let drain =
            NodeChange { state: Some(NodeStateChange::Drain), reason: Some("fan".to_owned()), ..NodeChange::default() };
        let update = CommandRequest::UpdateNode { nodes: vec!["n0".to_owned()], change: drain };
        assert_eq!(refused(rig.ask(1001, update.clone()).await), Refusal::AccessDenied);
        assert_eq!(rig.ask(0, update).await, CommandReply::Done);
        assert!(rig.journal.replayed().nodes["n0"].drain);
        let unknown = CommandRequest::list_jobs(vec![selector(JobId(99))]);
        assert_eq!(refused(rig.ask(1001, unknown).await), Refusal::InvalidJobId);
    });
}

#[test]
fn a_drained_node_gets_nothing_and_a_resumed_one_does() {
    with_system(async |system| {
        let (mut rig, mut agents) = rig(&system);
        rig.until_nodes(2).await;
        let state = |state| CommandRequest::UpdateNode {
            nodes: vec!["n0".to_owned()],
            change: NodeChange { state: Some(state), reason: Some("fan".to_owned()), ..NodeChange::default() },
        };
        assert_eq!(rig.ask(0, state(NodeStateChange::Drain)).await, CommandReply::Done);
        agents.connect("n0", Habit::Finish);
        agents.connect("n1", Habit::Finish);
        let job = rig.submitted(JobSpec { nodelist: vec!["n0".to_owned()], ..spec() }).await;
        rig.until(job, |view| view.reason == Reason::unavailable_nodes(["n0"])).await;
        assert_eq!(rig.ask(0, state(NodeStateChange::Resume)).await, CommandReply::Done);
        assert_eq!(rig.wait(job, JobMilestone::Ended).await, JobState::Completed);
    });
}

#[test]
fn held_jobs_start_when_released() {
    with_system(async |system| {
        let (mut rig, mut agents) = rig(&system);
        agents.connect("n0", Habit::Finish);
        let job = rig.submitted(JobSpec { hold: true, ..spec() }).await;
        rig.until(job, |view| view.reason == Reason::JobHeldUser).await;
        let release = CommandRequest::ControlJob { jobs: vec![selector(job)], action: JobAction::Release };
        assert_eq!(rig.ask(1001, release).await, CommandReply::PerJob(vec![(selector(job), Ok(()))]));
        assert_eq!(rig.wait(job, JobMilestone::Ended).await, JobState::Completed);
    });
}

/// Its owner is started elsewhere and may be later than the reply: what is asked meanwhile waits for it.
#[test]
fn a_job_can_be_asked_about_the_moment_it_is_accepted() {
    with_system(async |system| {
        let (mut rig, _agents) = rig(&system);
        for _ in 0..50 {
            let job = rig.submitted(JobSpec { hold: true, ..spec() }).await;
            let mut views = rig.ask_stream(1001, CommandRequest::Watch { job });
            let mut found = rig.ask_stream(1001, CommandRequest::list_jobs(vec![selector(job)]));
            let cancel = CancelRequest { jobs: vec![selector(job)], ..CancelRequest::default() };
            let mut cancelled = rig.ask_stream(1001, CommandRequest::Cancel(cancel));
            within_time(async {
                assert!(matches!(views.recv().await, Some(CommandReply::Job(_))));
                assert!(matches!(found.recv().await, Some(CommandReply::Jobs { jobs, .. }) if jobs.len() == 1));
                assert_eq!(cancelled.recv().await, Some(CommandReply::PerJob(vec![(selector(job), Ok(()))])));
            })
            .await;
        }
    });
}

/// A script may run before the news that it does is with the controller.
#[test]
fn who_asks_for_the_step_manager_of_a_job_that_starts_waits_for_it() {
    with_system(async |system| {
        let mut rig = Rig::start(&system, TWO_NODES, MemoryJournal::default());
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Wait);
        let job = rig.submitted(spec()).await;
        agents.heard(|_, frame| matches!(frame, ControllerToNode::StartJob(_)).then_some(())).await;
        let sluid = rig.controller.env.committed.job(job).unwrap().sluid;
        let mut place = rig.ask_stream(1001, CommandRequest::LocateStepManager { job });
        agents.report("n0", AgentReport::JobStarted { job, sluid, door: "/run/door".to_owned() });
        let Some(CommandReply::StepManager(place)) = within_time(place.recv()).await else { panic!() };
        assert_eq!((place.node.as_str(), place.door.as_str()), ("n0", "/run/door"));

        let waits = rig.submitted(JobSpec { hold: true, ..spec() }).await;
        let refused = rig.ask(1001, CommandRequest::LocateStepManager { job: waits }).await;
        assert_eq!(refused, CommandReply::Refused(Refusal::JobPending));
    });
}

#[test]
fn a_user_with_one_request_does_not_wait_for_another_with_thousands() {
    with_system(async |system| {
        let (rig, _agents) = rig(&system);
        let submit = |uid: u32, n: u32| {
            let request = RequestId(u64::from(uid), u64::from(n));
            let spec = Box::new(JobSpec { hold: true, ..spec() });
            rig.ask_stream(uid, CommandRequest::SubmitJob { request, spec })
        };
        let mut crowd: Vec<_> = (0..2000).map(|n| submit(1001, n)).collect();
        let mut one = submit(1002, 0);
        within_time(async {
            let Some(CommandReply::Submitted { job, .. }) = one.recv().await else { panic!("not accepted") };
            assert!(job.0 < 10, "{job}");
            let mut turned_away = 0;
            for replies in &mut crowd {
                match replies.recv().await {
                    Some(CommandReply::Submitted { .. }) => {}
                    Some(CommandReply::Refused(Refusal::RetryAfter { .. })) => turned_away += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(turned_away, 2000 - MOST_OF_USER);
        })
        .await;
    });
}

/// What was saved was told behind all requests of others that waited.
#[test]
fn a_submission_that_is_saved_is_answered_before_the_requests_of_others_that_wait() {
    with_system(async |system| {
        let (rig, _agents) = rig(&system);
        let crowd: Vec<_> = (0..MOST_OF_USER).map(|_| rig.ask_stream(1001, CommandRequest::ShowConfig)).collect();
        let request = CommandRequest::SubmitJob { request: RequestId(1002, 0), spec: Box::new(spec()) };
        let mut one = rig.ask_stream(1002, request);
        within_time(async {
            let Some(CommandReply::Submitted { .. }) = one.recv().await else { panic!("not accepted") };
            let served = crowd.iter().filter(|replies| !replies.is_empty()).count();
            // The log answers between two rounds of the executor, which runs at most 61 tasks in each (tokio's LocalSet).
            assert!(served < 61, "{served} others were served before");
            for mut replies in crowd {
                assert!(matches!(replies.recv().await, Some(CommandReply::Config { .. })));
            }
        })
        .await;
    });
}

#[test]
fn while_the_disk_is_full_nothing_new_is_begun_and_questions_are_answered() {
    with_system(async |system| {
        let (mut rig, _agents) = rig(&system);
        let job = rig.submitted(JobSpec { hold: true, ..spec() }).await;
        rig.journal.set_waits_for_room(true);
        assert!(matches!(rig.submit(spec()).await, CommandReply::Refused(Refusal::RetryAfter { .. })));
        let found = rig.ask(1001, CommandRequest::list_jobs(vec![selector(job)])).await;
        assert!(matches!(found, CommandReply::Jobs { jobs, .. } if jobs.len() == 1));
        rig.journal.set_waits_for_room(false);
        rig.submitted(spec()).await;
    });
}

#[test]
fn a_watch_ends_with_the_job() {
    with_system(async |system| {
        let (mut rig, mut agents) = rig(&system);
        let job = rig.submitted(spec()).await;
        let mut views = rig.ask_stream(1001, CommandRequest::Watch { job });
        agents.connect("n1", Habit::Finish);
        let mut last = None;
        let all = async {
            while let Some(reply) = views.recv().await {
                match reply {
                    CommandReply::Job(view) => last = Some(view.state),
                    CommandReply::End => break,
                    other => panic!("{other:?}"),
                }
            }
        };
        within_time(all).await;
        assert_eq!(last, Some(JobState::Completed));
    });
}

/// The texts of `scontrol notify` are for the job's owner.
#[test]
fn notices_of_a_job_reach_its_owner_and_administrators_only() {
    with_system(async |system| {
        let (mut rig, mut agents) = rig(&system);
        agents.connect("n0", Habit::Stay);
        let job = rig.submitted(JobSpec { kind: JobKind::Allocation, ..spec() }).await;
        rig.wait(job, JobMilestone::Started).await;
        let mut told = 0;
        let mut watching: Vec<_> =
            [1001, 0, 1002].map(|uid| rig.ask_stream(uid, CommandRequest::Watch { job })).into_iter().collect();
        for views in &mut watching {
            assert!(matches!(within_time(views.recv()).await, Some(CommandReply::Job(_))));
        }
        let notify = CommandRequest::OrderSteps { job: selector(job), order: StepsOrder::Notify("secret".to_owned()) };
        assert_eq!(rig.ask(1001, notify).await, CommandReply::Done);
        // Only then does it end, so that nobody's watch ends before.
        for views in &mut watching[..2] {
            assert_eq!(within_time(views.recv()).await, Some(CommandReply::Notice("secret".to_owned())));
        }
        let cancel = CancelRequest { jobs: vec![selector(job)], ..CancelRequest::default() };
        rig.ask(1001, CommandRequest::Cancel(cancel)).await;
        for views in &mut watching {
            while let Some(reply) = within_time(views.recv()).await {
                told += u32::from(matches!(reply, CommandReply::Notice(_)));
            }
        }
        assert_eq!(told, 0);
    });
}

async fn within_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(std::time::Duration::from_secs(20), future).await.unwrap()
}

#[test]
fn partitions_are_updated_and_remembered_by_a_full_recovery() {
    let journal = MemoryJournal::default();
    let kept = journal.clone();
    with_system(async move |system| {
        let rig = Rig::start(&system, TWO_NODES, kept);
        rig.until_nodes(2).await;
        let update = |key: &str, value: &str| CommandRequest::UpdatePartition {
            partition: "debug".to_owned(),
            fields: vec![(key.to_owned(), value.to_owned())],
        };
        assert_eq!(rig.ask(0, update("State", "DOWN")).await, CommandReply::Done);
        assert!(matches!(rig.ask(0, update("Nosuch", "1")).await, CommandReply::Refused(Refusal::InvalidUpdate(_))));
    });
    let kept = journal.clone();
    with_system(async move |system| {
        let mut rig = Rig::recover(&system, TWO_NODES, kept, Recover::Full);
        rig.until_nodes(2).await;
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Finish);
        let job = rig.submitted(spec()).await;
        rig.until(job, |view| view.reason == Reason::PartitionDown).await;
    });
    let kept = journal.clone();
    with_system(async move |system| {
        let rig = Rig::start(&system, TWO_NODES, kept);
        assert_eq!(rig.controller.env.boards.partitions.list()[0].state, PartitionState::Up);
    });
    with_system(async move |system| {
        let rig = Rig::recover(&system, TWO_NODES, journal, Recover::Full);
        assert_eq!(rig.controller.env.boards.partitions.list()[0].state, PartitionState::Up, "they came back");
        assert_eq!(rig.controller.env.boards.jobs.list().len(), 1, "jobs stay");
    });
}

#[test]
fn partitions_come_and_go_and_a_full_recovery_knows_of_those_that_came() {
    let journal = MemoryJournal::default();
    let fields = |text: &[(&str, &str)]| text.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let create = |name: &str, pairs: &[(&str, &str)]| CommandRequest::CreatePartition {
        partition: name.to_owned(),
        fields: fields(pairs),
    };
    let delete = |name: &str| CommandRequest::DeletePartition { partition: name.to_owned() };
    let shown = |rig: &Rig| -> Vec<(String, bool, usize)> {
        let views = rig.controller.env.boards.partitions.list();
        views.iter().map(|view| (view.config.name.clone(), view.config.default, view.nodes.len())).collect()
    };
    let both = |debug: bool, new: usize| vec![("debug".to_owned(), debug, 2), ("new".to_owned(), !debug, new)];
    let kept = journal.clone();
    with_system(async move |system| {
        let mut rig = Rig::start(&system, TWO_NODES, kept);
        rig.until_nodes(2).await;
        let new = [("Nodes", "n0"), ("Default", "YES"), ("MaxTime", "5")];
        assert_eq!(rig.ask(1001, create("new", &new)).await, CommandReply::Refused(Refusal::AccessDenied));
        assert_eq!(rig.ask(0, create("new", &new)).await, CommandReply::Done);
        assert_eq!(shown(&rig), both(false, 1));
        for (wrong, refusal) in [
            (create("new", &[]), Refusal::InvalidPartition("new".to_owned())),
            (create("a,b", &[]), Refusal::InvalidPartition("a,b".to_owned())),
            (create("bad", &[("Nodes", "n9")]), Refusal::InvalidNode("n9".to_owned())),
            (delete("nosuch"), Refusal::InvalidPartition("nosuch".to_owned())),
        ] {
            assert_eq!(rig.ask(0, wrong).await, CommandReply::Refused(refusal));
        }
        let update = |key: &str, value: &str| CommandRequest::UpdatePartition {
            partition: "new".to_owned(),
            fields: fields(&[(key, value)]),
        };
        assert_eq!(rig.ask(0, update("Nodes", "+n1")).await, CommandReply::Done);
        // A job that waits there keeps it.
        let job = rig.submitted(JobSpec { hold: true, ..spec() }).await;
        let in_use = CommandReply::Refused(Refusal::InvalidUpdate("Partition is in use".to_owned()));
        assert_eq!(rig.ask(0, delete("new")).await, in_use);
        assert_eq!(shown(&rig), both(false, 2));
        let jobs = vec![selector(job)];
        rig.ask(0, CommandRequest::Cancel(CancelRequest { jobs, ..CancelRequest::default() })).await;
        rig.until(job, |view| !view.state.is_live()).await;
        assert_eq!(rig.ask(0, delete("debug")).await, CommandReply::Done);
        assert_eq!(shown(&rig), [("new".to_owned(), true, 2)]);
    });
    let kept = journal.clone();
    with_system(async move |system| {
        let rig = Rig::recover(&system, TWO_NODES, kept, Recover::Full);
        let names: Vec<String> = shown(&rig).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["debug", "new"], "that of the file is back");
        assert_eq!(rig.ask(0, delete("new")).await, CommandReply::Done);
        // Nothing of the one before it is left.
        assert_eq!(rig.ask(0, create("new", &[])).await, CommandReply::Done);
        assert_eq!(shown(&rig)[1], ("new".to_owned(), false, 0));
    });
    with_system(async move |system| {
        let rig = Rig::start(&system, TWO_NODES, journal);
        assert_eq!(shown(&rig), [("debug".to_owned(), true, 2)], "without -R it is as in the file");
    });
}

/// It may fail before that is in the log: then the next start knows of them.
#[test]
fn what_is_not_recovered_counts_until_the_log_says_that_it_does_not() {
    let log = MemoryLog::default();
    let saved = SavedPartition { fields: BTreeMap::from([("state".to_owned(), "DOWN".to_owned())]) };
    let event = ControllerEvent::Partition { partition: "debug".to_owned(), saved: Box::new(saved.clone()) };
    log.append(vec![event], ReplyTo::channel().0);
    assert!(forget(&log, Recover::Full).try_take().is_some());
    log.hold(true);
    assert_eq!(forget(&log, Recover::Partial).try_take(), None);
    assert_eq!(log.value().partition("debug"), saved);
    let next = log.crash(0);
    assert_eq!(next.value().partition("debug"), saved);
    assert!(matches!(forget(&next, Recover::Partial).try_take(), Some(Ok(Ok(_)))));
    assert_eq!(next.value().partition("debug"), SavedPartition::default());
    assert_eq!(next.crash(0).value().partition("debug"), SavedPartition::default());
}

#[test]
fn partitions_for_other_groups_and_their_jobs_are_not_shown_unasked() {
    let site = format!("{TWO_NODES}PartitionName=own Nodes=ALL AllowGroups=alice\n");
    with_system(async move |system| {
        let mut rig = Rig::start(&system, &site, MemoryJournal::default());
        let job = rig.submitted(JobSpec { partitions: vec!["own".to_owned()], ..spec() }).await;
        for (uid, seen) in [(1001, true), (1002, false), (0, true)] {
            let CommandReply::Partitions { hidden, .. } = rig.ask(uid, CommandRequest::ListPartitions).await else {
                panic!()
            };
            assert_eq!(hidden.is_empty(), seen, "{uid}: {hidden:?}");
            let list = |hide| CommandRequest::ListJobs {
                jobs: Vec::new(),
                which: JobQuery::default(),
                after: None,
                most: None,
                hide,
            };
            for (hide, shown) in [(true, seen), (false, true)] {
                let CommandReply::Jobs { jobs, .. } = rig.ask(uid, list(hide)).await else { panic!() };
                assert_eq!(jobs.iter().any(|view| view.id == job), shown, "{uid} {hide}");
            }
        }
    });
}

#[test]
fn users_and_groups_of_a_reservation_must_be_there() {
    with_system(async |system| {
        let (rig, _agents) = rig(&system);
        let change = |users: &str, groups: &[&str]| {
            let now = garrick_model::time::Timestamp::now();
            CommandRequest::CreateReservation(Box::new(ReservationChange {
                start: Some(now),
                duration_secs: Some(600),
                nodes: Some(NodesWanted::Named(vec!["n0".to_owned()])),
                users: AccessList::parse(users).filter(|users| !users.is_empty()),
                groups: Some(groups.iter().map(|name| (*name).to_owned()).collect()),
                ..ReservationChange::default()
            }))
        };
        let refused = |what: Refusal| CommandReply::Refused(what);
        assert_eq!(rig.ask(0, change("alice,carol", &[])).await, refused(Refusal::InvalidUser("carol".to_owned())));
        assert_eq!(rig.ask(0, change("", &["staff"])).await, refused(Refusal::InvalidGroup("staff".to_owned())));
        let CommandReply::ReservationCreated(name) = rig.ask(0, change("1001", &[])).await else { panic!() };
        let users = |name: &String| rig.controller.env.boards.reservations.get(name).unwrap().users.names.clone();
        assert_eq!(users(&name), ["alice"]);
        let update = |more: &str, less: &str| {
            CommandRequest::UpdateReservation(Box::new(ReservationChange {
                name: Some(name.clone()),
                users_more: AccessList::parse(more).filter(|users| !users.is_empty()),
                users_less: AccessList::parse(less).filter(|users| !users.is_empty()),
                ..ReservationChange::default()
            }))
        };
        // By number as by name, in either direction.
        assert_eq!(rig.ask(0, update("1002", "1001")).await, CommandReply::Done);
        assert_eq!(users(&name), ["bob"]);
        assert!(matches!(rig.ask(0, update("", "1999")).await, CommandReply::Refused(Refusal::InvalidUpdate(_))));
    });
}

#[test]
fn a_job_would_start_where_there_is_room() {
    with_system(async |system| {
        let (rig, mut agents) = rig(&system);
        agents.connect("n0", Habit::Finish);
        rig.until_up("n0").await;
        let reply = rig.ask(1001, CommandRequest::TestJob { spec: Box::new(spec()) }).await;
        let CommandReply::WouldStart { job, nodes, partition, cpus, .. } = reply else { panic!("{reply:?}") };
        assert_eq!((job, nodes.as_str(), partition.as_str(), cpus), (JobId(1), "n0", "debug", 1));
    });
}

#[test]
fn a_job_would_start_after_what_it_depends_on() {
    with_system(async |system| {
        let (mut rig, mut agents) = rig(&system);
        agents.connect("n0", Habit::Stay);
        agents.connect("n1", Habit::Stay);
        let runs = rig.submitted(spec()).await;
        rig.wait(runs, JobMilestone::Started).await;
        let held = rig.submitted(JobSpec { hold: true, ..spec() }).await;
        let after = |any: bool, on: &[JobId]| {
            let one = |job: &JobId| Dependency {
                kind: DependencyKind::AfterAny,
                job: Some(*job),
                array_index: None,
                failed: false,
            };
            let dependencies = Dependencies { any, list: on.iter().map(one).collect() };
            CommandRequest::TestJob { spec: Box::new(JobSpec { dependencies, ..spec() }) }
        };
        let end = rig.controller.env.boards.jobs.get(&runs).unwrap().end_time.unwrap();
        for (any, on) in [(false, vec![runs]), (true, vec![held, runs])] {
            let reply = rig.ask(1001, after(any, &on)).await;
            let CommandReply::WouldStart { at, .. } = reply else { panic!("{reply:?}") };
            assert_eq!(at, end);
        }
        let refused = CommandReply::Refused(Refusal::DependencyOpen(held));
        assert_eq!(rig.ask(1001, after(false, &[runs, held])).await, refused);
    });
}

#[test]
fn a_job_that_would_be_held_does_not_start_at_any_time() {
    with_system(async |system| {
        let (rig, mut agents) = rig(&system);
        agents.connect("n0", Habit::Finish);
        rig.until_up("n0").await;
        let held = || JobSpec { hold: true, ..spec() };
        let refused = CommandReply::Refused(Refusal::JobHeld);
        assert_eq!(rig.ask(1001, CommandRequest::TestJob { spec: Box::new(held()) }).await, refused);
        let of = |specs| CommandRequest::TestHetJob { specs };
        assert_eq!(rig.ask(1001, of(vec![held(), spec()])).await, refused);
        assert_eq!(rig.ask(1001, of(vec![spec(), held()])).await, refused);
        let reply = rig.ask(1001, of(vec![spec(), spec()])).await;
        assert!(matches!(reply, CommandReply::WouldStart { .. }), "{reply:?}");
    });
}

#[test]
fn host_list_functions_name_the_nodes_of_now() {
    with_system(async |system| {
        let config =
            TWO_NODES.replace("NodeName=n[0-1]", "NodeName=n0 CPUs=4 RealMemory=1000 Feature=fast\nNodeName=n1");
        let rig = Rig::start(&system, &config, MemoryJournal::default());
        let ask = |names: &[&str]| CommandRequest::NameNodes(names.iter().map(|n| (*n).to_owned()).collect());
        let named = rig.ask(1001, ask(&["n1", "feature{fast}"])).await;
        assert_eq!(named, CommandReply::NodesNamed(vec!["n1".to_owned(), "n0".to_owned()]));
        let refused = rig.ask(1001, ask(&["switch{s1}"])).await;
        assert!(matches!(refused, CommandReply::Refused(Refusal::InvalidNode(_))));
    });
}

#[test]
fn a_panic_of_a_jobs_owner_loses_nothing() {
    with_system(async |system| {
        let (mut rig, mut agents) = rig(&system);
        agents.connect("n0", Habit::Stay);
        let job = rig.submitted(spec()).await;
        rig.wait(job, JobMilestone::Started).await;
        let owner = rig.controller.env.job(job).unwrap();
        let (reply, _answer) = ReplyTo::channel();
        let fails = async {
            // Behind the question that waits for the end.
            rig.wait(job, JobMilestone::Started).await;
            owner.try_send(crate::controller::shells::job::JobMsg::PanicForTests(reply)).unwrap();
            // Its nodes are asked to say again what they have.
            rig.nodes(|nodes| nodes.iter().any(|n| n.name == "n0" && n.flags.not_responding)).await;
            let (&(job, sluid), _) = agents.runs.lock().unwrap().first_key_value().unwrap();
            let held = HeldRun { job, sluid, batch_host: true, door: "/run/door".to_owned(), requeue: None };
            agents.connect_holding("n0", Habit::Stay, vec![held]);
            rig.until_up("n0").await;
            let cancel = CancelRequest { jobs: vec![selector(job)], ..CancelRequest::default() };
            rig.ask(1001, CommandRequest::Cancel(cancel)).await
        };
        let (ended, answer) = tokio::join!(rig.wait(job, JobMilestone::Ended), fails);
        assert_eq!(answer, CommandReply::PerJob(vec![(selector(job), Ok(()))]));
        assert_eq!(ended, JobState::Cancelled, "who waited before the panic is told too");
        replay_equals_live(&rig);
    });
}

/// What it had appended when it failed is not read before it is saved, and is not lost.
#[test]
fn an_owner_that_failed_begins_anew_from_what_is_committed() {
    with_system(async |system| {
        let (mut rig, _agents) = rig(&system);
        let job = rig.submitted(spec()).await;
        rig.until(job, |view| view.eligible).await;
        let env = std::sync::Arc::clone(&rig.controller.env);
        let committed_hold = || env.committed.look(job, |record| record.hold).unwrap();
        rig.journal.hold();
        let owner = env.job(job).unwrap();
        let action = JobAction::Hold;
        let told = rig.ask(1001, CommandRequest::ControlJob { jobs: vec![selector(job)], action });
        let fails = async {
            rig.journal.held().await;
            let (reply, fails) = ReplyTo::channel();
            owner.try_send(crate::controller::shells::job::JobMsg::PanicForTests(reply)).unwrap();
            assert!(fails.await.is_err());
            // Asked of the next life, which has not begun.
            let (reply, mut script) = ReplyTo::channel();
            owner.try_send(crate::controller::shells::job::JobMsg::script(reply)).unwrap();
            tokio::task::yield_now().await;
            assert_eq!((committed_hold(), script.try_take()), (None, None));
            rig.journal.release();
            script.await
        };
        let (told, script) = tokio::join!(told, fails);
        assert!(matches!(script, Ok(Ok(Some(_)))), "{script:?}");
        assert_ne!(told, CommandReply::PerJob(vec![(selector(job), Ok(()))]), "nobody can say that it was done");
        assert!(committed_hold().is_some(), "and it was");
        rig.until(job, |view| view.reason == Reason::JobHeldUser).await;
        replay_equals_live(&rig);
    });
}

/// The frontend refuses what comes later; this was on its way when another controller began to lead.
#[test]
fn an_owner_whose_controller_does_not_lead_has_whoever_asks_try_again_and_goes_on_from_what_is_committed() {
    with_system(async |system| {
        let (mut rig, _agents) = rig(&system);
        let job = rig.submitted(spec()).await;
        rig.until(job, |view| view.eligible).await;
        let owner = rig.controller.env.job(job).unwrap();
        let hold = || {
            let (reply, answer) = ReplyTo::channel();
            let by = crate::messages::job::Authority { uid: 1001, admin: false };
            let command = crate::messages::job::JobCommand::Hold { admin: false };
            owner.try_send(crate::controller::shells::job::JobMsg::command(by, None, command, reply)).unwrap();
            answer
        };
        rig.journal.log.lose(Some("head2".to_owned()), 0);
        for _ in 0..3 {
            let refused = hold().await.unwrap();
            assert!(matches!(refused, Err(Refusal::RetryAfter { .. })), "{refused:?}");
        }
        assert_eq!(rig.controller.env.committed.look(job, |record| record.hold), Some(None));
        rig.journal.log.lead();
        while hold().await.unwrap() != Ok(()) {
            tokio::task::yield_now().await;
        }
        assert!(rig.controller.env.committed.look(job, |record| record.hold).unwrap().is_some());
        rig.until(job, |view| view.reason == Reason::JobHeldUser).await;
        replay_equals_live(&rig);
    });
}

/// As after a panic: who waits is told, and who has something in hand with it says that again.
#[test]
fn others_hear_of_an_owner_that_forgot_what_it_had_decided() {
    use crate::{
        controller::shells::job::{JobMsg, Watched},
        messages::job::{Authority, JobCommand},
    };
    with_system(async |system| {
        let (mut rig, mut agents) = rig(&system);
        agents.connect("n0", Habit::Stay);
        let job = rig.submitted(spec()).await;
        rig.wait(job, JobMilestone::Started).await;
        rig.until_up("n0").await;
        let owner = rig.controller.env.job(job).unwrap();
        let wait = || {
            let (reply, answer) = ReplyTo::channel();
            owner.try_send(JobMsg::wait(JobMilestone::Ended, reply)).unwrap();
            answer
        };
        let watch = || {
            let (sender, views) = tokio::sync::watch::channel(Watched::default());
            owner.try_send(JobMsg::watch(sender)).unwrap();
            views
        };
        let is_told = async |mut views: tokio::sync::watch::Receiver<Watched>| {
            while views.changed().await.is_ok() {}
            matches!(*views.borrow(), Watched::TryAgain(_))
        };
        let (waits, watches) = (wait(), watch());
        rig.journal.log.lose(Some("head2".to_owned()), 0);
        let (reply, answer) = ReplyTo::channel();
        let by = Authority { uid: 1001, admin: false };
        owner.try_send(JobMsg::command(by, None, JobCommand::Cancel, reply)).unwrap();
        assert!(matches!(answer.await, Ok(Err(Refusal::RetryAfter { .. }))));
        assert!(matches!(waits.await, Ok(Err(Refusal::RetryAfter { .. }))));
        assert!(is_told(watches).await);
        // Who comes while it is so.
        let (waits, watches) = (wait(), watch());
        assert!(matches!(waits.await, Ok(Err(Refusal::RetryAfter { .. }))));
        assert!(is_told(watches).await);
        rig.journal.log.lead();
        // Its nodes are asked to say again what they have.
        rig.nodes(|nodes| nodes.iter().any(|n| n.name == "n0" && n.flags.not_responding)).await;
    });
}

/// It owns nothing: what is not saved yet is not its own.
#[test]
fn a_scheduler_that_failed_waits_for_no_log_and_plans_again() {
    with_system(async |system| {
        let (mut rig, mut agents) = rig(&system);
        let job = rig.submitted(spec()).await;
        rig.until(job, |view| view.eligible).await;
        rig.journal.hold();
        let scheduler = rig.controller.env.scheduler().unwrap();
        let (reply, fails) = ReplyTo::channel();
        scheduler.try_send(crate::controller::shells::scheduler::SchedulerMsg::PanicForTests(reply)).unwrap();
        assert!(fails.await.is_err());
        let answer = rig.ask(1001, CommandRequest::Explain { job }).await;
        assert!(matches!(answer, CommandReply::Outlook(_)), "{answer:?}");
        rig.journal.release();
        agents.connect("n0", Habit::Finish);
        assert_eq!(rig.wait(job, JobMilestone::Ended).await, JobState::Completed);
        replay_equals_live(&rig);
    });
}

/// Its array's owner failed before it was saved, and so did the word that it is to have an owner.
#[test]
fn a_task_that_was_split_off_by_an_owner_that_failed_has_an_owner() {
    with_system(async |system| {
        let (mut rig, _agents) = rig(&system);
        let array = JobSpec { array: Some(array(0, 3, None)), ..spec() };
        let job = rig.submitted(array).await;
        rig.until(job, |view| view.eligible).await;
        let owner = rig.controller.env.job(job).unwrap();
        rig.journal.hold();
        let one = JobSelector { tasks: Some(vec![(1, 1, 1)]), ..selector(job) };
        let told = rig.ask(1001, CommandRequest::ControlJob { jobs: vec![one], action: JobAction::Hold });
        let fails = async {
            rig.journal.held().await;
            let (reply, fails) = ReplyTo::channel();
            owner.try_send(crate::controller::shells::job::JobMsg::PanicForTests(reply)).unwrap();
            assert!(fails.await.is_err());
            // The next life has begun to wait, and its supervisor has seen to what was committed.
            let (reply, _script) = ReplyTo::channel();
            owner.try_send(crate::controller::shells::job::JobMsg::script(reply)).unwrap();
            rig.journal.held().await;
            rig.journal.release();
        };
        tokio::join!(told, fails);
        let task =
            rig.controller.env.committed.look(job, |record| record.array.as_ref().unwrap().tasks[&1].job).unwrap();
        rig.until(task, |view| view.reason == Reason::JobHeldUser).await;
        assert!(rig.controller.env.job(task).is_some());
        replay_equals_live(&rig);
    });
}

/// It is shown as soon as it is saved, and the word that it is to have an owner comes behind that.
#[test]
fn who_asks_a_job_that_was_saved_a_moment_ago_has_an_answer() {
    with_system(async |system| {
        let (rig, _agents) = rig(&system);
        let env = &rig.controller.env;
        env.committed.put(garrick_events::testing::record(5000, spec()));
        let (reply, script) = ReplyTo::channel();
        let message = Box::new(crate::controller::shells::job::JobMsg::script(reply));
        let supervisor = env.jobs_supervisor().unwrap();
        supervisor.try_send(crate::controller::shells::job::JobsMsg::Deliver { key: JobId(5000), message }).unwrap();
        assert!(script.await.is_ok());
        assert!(env.job(JobId(5000)).is_some());
    });
}

#[test]
fn a_heterogeneous_job_is_suspended_and_resumed_as_a_whole() {
    with_system(async |system| {
        let (rig, mut agents) = rig(&system);
        for node in ["n0", "n1"] {
            agents.connect(node, Habit::Stay);
            rig.until_up(node).await;
        }
        let specs = vec![spec(), spec()];
        let request = RequestId(7, 7);
        let reply = rig.ask(1001, CommandRequest::SubmitHetJob { request, specs }).await;
        let CommandReply::Submitted { job: leader, .. } = reply else { panic!("{reply:?}") };
        let other = JobId(leader.0 + 1);
        rig.wait(leader, JobMilestone::Started).await;
        let one = |offset| JobSelector { het: Some(offset), ..selector(leader) };
        for (action, state) in [(JobAction::Suspend, JobState::Suspended), (JobAction::Resume, JobState::Running)] {
            for component in [one(0), one(1), selector(other)] {
                let control = CommandRequest::ControlJob { jobs: vec![component.clone()], action };
                let refused = CommandReply::PerJob(vec![(component, Err(Refusal::NotWholeHetJob))]);
                assert_eq!(rig.ask(0, control).await, refused);
            }
            let control = CommandRequest::ControlJob { jobs: vec![selector(leader)], action };
            assert_eq!(rig.ask(0, control).await, CommandReply::PerJob(vec![(selector(leader), Ok(()))]));
            for job in [leader, other] {
                rig.until(job, |view| view.state == state).await;
            }
        }
    });
}

/// Who waits for it had asked an owner that is no more.
#[test]
fn an_owner_that_is_started_again_after_a_pause_knows_who_waits_for_it() {
    with_system(async |system| {
        let (mut rig, _agents) = rig(&system);
        let job = rig.submitted(JobSpec { hold: true, ..spec() }).await;
        let after = Dependency { kind: DependencyKind::AfterAny, job: Some(job), array_index: None, failed: false };
        let dependencies = Dependencies { any: false, list: vec![after] };
        let waits = rig.submitted(JobSpec { dependencies, ..spec() }).await;
        let env = &rig.controller.env;
        while let Some(owner) = env.job(job) {
            let (reply, fails) = ReplyTo::channel();
            let _ = owner.try_send(crate::controller::shells::job::JobMsg::PanicForTests(reply));
            assert!(fails.await.is_err());
        }
        let supervisor = env.jobs_supervisor().unwrap();
        supervisor.try_send(crate::controller::shells::job::JobsMsg::Again(job)).unwrap();
        let cancel = CancelRequest { jobs: vec![selector(job)], ..CancelRequest::default() };
        rig.ask(1001, CommandRequest::Cancel(cancel)).await;
        rig.until(waits, |view| view.eligible).await;
    });
}

/// Two nodes of the site that allows it.
fn hurried() -> String {
    format!("{TWO_NODES}\nSlurmctldParameters=enable_expedited_requeue\n")
}

fn set_n1(state: NodeStateChange) -> CommandRequest {
    let reason = Some("lost power".to_owned());
    let change = NodeChange { state: Some(state), reason, ..NodeChange::default() };
    CommandRequest::UpdateNode { nodes: vec!["n1".to_owned()], change }
}

/// What each node's view says is kept there.
fn kept(rig: &Rig) -> Vec<(String, JobId)> {
    let nodes = rig.controller.env.boards.nodes.list();
    let kept = |node: &std::sync::Arc<garrick_model::view::NodeView>| {
        node.holds.iter().filter(|h| h.kept).map(|h| (node.name.clone(), h.job)).collect::<Vec<_>>()
    };
    nodes.iter().flat_map(kept).collect()
}

#[test]
fn an_expedited_job_keeps_its_healthy_node_over_a_restart_and_goes_first() {
    let journal = MemoryJournal::default();
    let again = journal.clone();
    let alone = |nodes| JobSpec { sharing: garrick_model::spec::Sharing::Exclusive, ..wide(nodes) };
    with_system(async move |system| {
        let mut rig = Rig::start(&system, &hurried(), journal);
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Stay);
        agents.connect("n1", Habit::Stay);
        let job = rig.submitted(JobSpec { expedite: true, ..alone(2) }).await;
        rig.wait(job, JobMilestone::Started).await;
        let other = rig.submitted(alone(1)).await;
        assert_eq!(rig.ask(0, set_n1(NodeStateChange::Down)).await, CommandReply::Done);
        rig.until(job, |view| view.state == JobState::Expediting).await;
        rig.until(other, |view| matches!(view.reason, Reason::Resources | Reason::Priority)).await;
        assert_eq!(kept(&rig), [("n0".to_owned(), job)]);
        replay_equals_live(&rig);
    });
    with_system(async move |system| {
        let rig = Rig::start(&system, &hurried(), again);
        let (job, other) = (JobId(1), JobId(2));
        assert_eq!(kept(&rig), [("n0".to_owned(), job)]);
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Stay);
        agents.connect("n1", Habit::Stay);
        rig.until(other, |view| view.last_sched_eval.is_some()).await;
        assert_eq!(rig.ask(0, set_n1(NodeStateChange::Resume)).await, CommandReply::Done);
        rig.until(job, |view| view.state == JobState::Running && view.restarts == 1).await;
        assert_eq!(kept(&rig), []);
        rig.until(other, |view| view.state == JobState::Pending).await;
        replay_equals_live(&rig);
    });
}

#[test]
fn an_expedited_requeue_that_the_site_does_not_allow_is_refused() {
    with_system(async |system| {
        let (mut rig, _) = rig(&system);
        let answer = rig.submit(JobSpec { expedite: true, ..spec() }).await;
        assert_eq!(answer, CommandReply::Refused(Refusal::ExpediteDisabled));
    });
}

/// However many wait at the fair_queue: a request belongs to a trace, and so does what it leads to.
#[test]
fn what_a_request_leads_to_is_of_its_own_trace() {
    with_system(async |system| {
        let (mut rig, _agents) = rig(&system);
        let jobs = [rig.submitted(JobSpec { hold: true, ..spec() }).await, rig.submitted(spec()).await];
        let mut follower = system.traces().follow(jobs.iter().map(|job| format!("/job/{}", job.0)).collect());
        let traces = jobs.map(|_| TraceContext::root());
        let mut replies = Vec::new();
        for (job, trace) in jobs.iter().zip(traces) {
            let hold = CommandRequest::ControlJob { jobs: vec![(*job).into()], action: JobAction::Hold };
            replies.push(trace.enter(|| rig.ask_stream(1001, hold)));
        }
        for replies in &mut replies {
            assert!(matches!(replies.recv().await, Some(CommandReply::PerJob(_))));
        }
        let mut told = BTreeMap::new();
        while told.len() < jobs.len() {
            let (records, _) = follower.next_batch().await;
            let commands = records.into_iter().filter(|record| record.message == "Command");
            told.extend(commands.map(|record| (record.actor.to_string(), record.trace)));
        }
        let expected = jobs.iter().zip(traces).map(|(job, trace)| (format!("/job/{}", job.0), trace.trace));
        assert_eq!(told, expected.collect());
    });
}

#[test]
fn programs_of_the_site_run_around_a_job_and_their_ends_are_heard() {
    with_system(async |system| {
        let keys = "PrologSlurmctld=/etc/before\nEpilogSlurmctld=/etc/after\nMailProg=/etc/mail\nPrologTimeout=7\n";
        let mut rig = Rig::start(&system, &format!("{TWO_NODES}{keys}"), MemoryJournal::default());
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Finish);
        agents.connect("n1", Habit::Finish);
        let mail = garrick_model::mail::Mail { types: "END".parse().unwrap(), user: None };
        let job = rig.submitted(JobSpec { mail, ..wide(2) }).await;
        assert_eq!(rig.wait(job, JobMilestone::Ended).await, JobState::Completed);
        let programs = || rig.programs.rows().into_iter().map(|row| row.programs.join(",")).collect::<Vec<_>>();
        assert_eq!(programs(), ["/etc/before", "/etc/mail", "/etc/after"]);
        assert_eq!(rig.programs.rows()[0].limit, Some(std::time::Duration::from_secs(7)));
        assert_eq!(rig.programs.rows()[1].arguments[2], "alice");
        rig.programs.fail("no");
        let job = rig.submitted(JobSpec { kind: JobKind::Allocation, ..wide(1) }).await;
        assert_eq!(rig.wait(job, JobMilestone::Ended).await, JobState::Cancelled);
        replay_equals_live(&rig);
    });
}
