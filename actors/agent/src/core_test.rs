#![allow(clippy::unwrap_used)]

use crate::{
    AgentConfig, AgentEffect, AgentInput, AgentTimer, FoundRun, Leftover, NodeAgentCore, PeersSaid, PrepareFailure,
    RESTART_PAUSES, RESTART_WINDOW, RESTARTS, RunKey, StartOrder, StepdState, lease_of,
};
use garrick_model::{
    ids::{JobId, NodeIndex, Sluid},
    messages::{
        command::{Caller, CommandReply, CommandRequest, RunStanding},
        node::{
            AgentReport, AgentToStepMgr, ControllerToNode, JobCredential, JobLaunch, Joining, Neighbour,
            NodeToController, ReleasedRun, RequeuePolicy, SignalScope, SignedCredential,
        },
        stepd::{NodeToStepd, StepdReport, StepdToNode},
    },
    node_shape::NodeShare,
    packed_steps::PackedSteps,
    refusal::Refusal,
    signal::{SIGCONT, SIGSTOP, SIGTSTP},
    spec::JobKind,
    state::{ExitStatus, JobState, Reason},
    step_selector::WhichSteps,
    testing,
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, NodeFacts, NodeLoad, StepRows},
};
use serde_bytes::ByteBuf;
use std::{sync::Arc, time::Duration};

const RUN: RunKey = RunKey { job: JobId(7), sluid: Sluid(70) };
const MAY_FOLLOW: RequeuePolicy = RequeuePolicy { allowed: true, revision: 0 };

fn facts() -> Box<NodeFacts> {
    Box::new(testing::facts("h", testing::shape(1, 4, 1)))
}

fn order(nodes: &[&str]) -> StartOrder {
    let nodes = nodes
        .iter()
        .enumerate()
        .map(|(i, n)| AllocatedNode {
            name: (*n).into(),
            index: NodeIndex(u32::try_from(i).unwrap()),
            share: NodeShare::default(),
        })
        .collect();
    let credential = JobCredential {
        cluster: "c".into(),
        job: RUN.job,
        sluid: RUN.sluid,
        uid: 1,
        gid: 1,
        groups: vec![],
        user: "u".into(),
        nodes,
        addresses: vec![],
        partition: "p".into(),
        epoch: 1,
        expires: Timestamp(1),
    };
    let spec = serde_json::from_str(r#"{"kind":"Batch","name":"j","work_dir":"/"}"#).unwrap();
    let launch = JobLaunch {
        credential: SignedCredential { payload: ByteBuf::new(), signature: ByteBuf::new(), key_id: String::new() },
        spec: Arc::new(spec),
        time_limit: TimeLimit::Unlimited,
        start_time: Timestamp(0),
        restarts: 0,
        tasks: 1,
        cpus_per_task: 1,
        array: None,
        switches: Vec::new(),
        het: Vec::new(),
        requeue: None,
    };
    StartOrder { launch: Box::new(launch), credential: Ok(Box::new(credential)) }
}

struct Bench {
    core: NodeAgentCore,
    now: Timestamp,
}

impl Bench {
    fn new(found: Vec<FoundRun>) -> (Self, Vec<AgentEffect>) {
        Self::with_user(found, None)
    }

    fn with_user(found: Vec<FoundRun>, only_uid: Option<u32>) -> (Self, Vec<AgentEffect>) {
        let config = AgentConfig {
            node: "n1".into(),
            incarnation: 9,
            heartbeat: Duration::from_secs(100),
            start_limit: Duration::from_secs(10),
            end_limit: Duration::from_secs(90),
            query_limit: Duration::from_secs(5),
            lease: None,
            requeue: true,
            only_uid,
            joining: None,
        };
        let mut b = Self { core: NodeAgentCore::new(config), now: Timestamp(5) };
        let effects = b.tell(AgentInput::Begin { found, over: Vec::new(), facts: facts(), load: NodeLoad::default() });
        (b, effects)
    }

    fn tell(&mut self, input: AgentInput) -> Vec<AgentEffect> {
        let mut out = Vec::new();
        self.core.handle(self.now, input, &mut out);
        out
    }

    /// Connected and welcome, with a run held under connection 1.
    fn holding(nodes: &[&str]) -> Self {
        let (mut b, _) = Self::new(vec![]);
        b.welcome(&[]);
        b.tell(AgentInput::StartJob(order(nodes)));
        b.tell(AgentInput::Prepared { run: RUN, result: Ok(42) });
        b.tell(AgentInput::StepdUp { run: RUN, conn: 1, pid: 42, door: "/d".into(), batch_host: true });
        b
    }

    fn welcome(&mut self, runs: &[(JobId, Sluid)]) -> Vec<AgentEffect> {
        let mut all = self.tell(AgentInput::ControllerUp);
        all.extend(self.tell(AgentInput::Controller(ControllerToNode::Welcome {
            epoch: 1,
            credential_key: ByteBuf::from(vec![1]),
            key_id: "k".into(),
            runs: runs.to_vec(),
            neighbours: Vec::new(),
            shape: None,
        })));
        all
    }

    fn from_stepd(&mut self, seq: u64, report: StepdReport) -> Vec<AgentEffect> {
        self.tell(AgentInput::Stepd { run: RUN, conn: 1, message: StepdToNode::Report { seq, report } })
    }
}

fn ended() -> StepdReport {
    StepdReport::Ended {
        state: JobState::Completed,
        reason: Reason::None,
        exit: ExitStatus::SUCCESS,
        derived: ExitStatus::SUCCESS,
        at: Timestamp(3),
        lost: Vec::new(),
        cause: None,
    }
}

fn reports(effects: &[AgentEffect]) -> Vec<(u64, &AgentReport)> {
    effects
        .iter()
        .filter_map(|e| match e {
            AgentEffect::ToController(m) => match m.as_ref() {
                NodeToController::Report { seq, report } => Some((*seq, report)),
                _ => None,
            },
            _ => None,
        })
        .collect()
}

#[test]
fn a_run_goes_from_order_to_release_and_every_report_is_acknowledged_in_turn() {
    let mut b = Bench::holding(&["n1"]);
    assert!(matches!(reports(&b.from_stepd(1, StepdReport::Started))[..], [(1, AgentReport::JobStarted { .. })]));
    assert!(matches!(reports(&b.from_stepd(2, ended()))[..], [(2, AgentReport::JobEnded { .. })]));
    let e = b.from_stepd(3, StepdReport::Gone);
    assert_eq!(e, [AgentEffect::ClearTimer(AgentTimer::End(RUN))]);
    let e = b.tell(AgentInput::Controller(ControllerToNode::AckReports { upto: 2 }));
    assert_eq!(
        e,
        [
            AgentEffect::ToStepd { run: RUN, message: NodeToStepd::Ack { upto: 1 } },
            AgentEffect::MarkClean { run: RUN },
            AgentEffect::ToStepd { run: RUN, message: NodeToStepd::Ack { upto: 3 } },
            AgentEffect::SetTimer { timer: AgentTimer::End(RUN), after: Duration::from_secs(90) },
        ]
    );
    let e = b.tell(AgentInput::StepdExited { run: RUN, pid: Some(42), how: "exit code 0".into() });
    assert_eq!(e, [AgentEffect::ClearTimer(AgentTimer::End(RUN)), AgentEffect::Sweep { run: RUN }]);
    b.tell(AgentInput::Swept { run: RUN, left: None });
    let e = b.tell(AgentInput::EpilogDone { run: RUN, failed: None });
    assert!(matches!(reports(&e)[..], [(3, AgentReport::NodeReleased { epilog_failed: None, .. })]));
    let e = b.tell(AgentInput::Controller(ControllerToNode::AckReports { upto: 3 }));
    assert_eq!(e, [AgentEffect::RemoveSpool { run: RUN }]);
}

/// Such a node passed for clean, and the next job came to it.
#[test]
fn what_cannot_be_killed_runs_the_sites_program_and_is_told_with_the_release() {
    let unknown = || Leftover::Unknown("no permission".into());
    for (left, said) in [
        (Leftover::Processes(vec![51, 52]), "processes that cannot be killed: [51, 52]"),
        (unknown(), "whether processes are left is not known: no permission"),
    ] {
        let mut b = Bench::holding(&["n1"]);
        b.from_stepd(1, ended());
        b.from_stepd(2, StepdReport::Gone);
        b.tell(AgentInput::Controller(ControllerToNode::AckReports { upto: 1 }));
        b.tell(AgentInput::StepdExited { run: RUN, pid: Some(42), how: "exit code 0".into() });
        let e = b.tell(AgentInput::Swept { run: RUN, left: Some(left) });
        let want = [
            AgentEffect::Log { warning: true, text: format!("job 7: {said}") },
            AgentEffect::RunUnkillable { run: RUN },
            AgentEffect::MarkClean { run: RUN },
            AgentEffect::RunEpilog { run: RUN },
        ];
        assert_eq!(e, want);
        let e = b.tell(AgentInput::EpilogDone { run: RUN, failed: None });
        let report = AgentReport::NodeReleased {
            job: RUN.job,
            sluid: RUN.sluid,
            epilog_failed: None,
            unkillable: Some(said.into()),
        };
        assert_eq!(reports(&e), [(2, &report)]);
    }
    // An agent that finds the run after that looks anew: what it did not tell is there still, or gone.
    let found = FoundRun {
        run: RUN,
        batch_host: true,
        uid: 1,
        stepd: StepdState::Clean,
        door: "/d".into(),
        requeue: MAY_FOLLOW,
    };
    let (mut next, e) = Bench::new(vec![found]);
    assert!(e.contains(&AgentEffect::Sweep { run: RUN }), "{e:?}");
    let e = next.tell(AgentInput::Swept { run: RUN, left: Some(unknown()) });
    assert!(e.contains(&AgentEffect::RunUnkillable { run: RUN }), "{e:?}");
}

/// A link that broke between an epilog's failure and the word of it.
#[test]
fn a_registration_names_the_runs_whose_release_follows() {
    let mut b = Bench::holding(&["n1"]);
    b.from_stepd(1, ended());
    b.from_stepd(2, StepdReport::Gone);
    b.tell(AgentInput::Controller(ControllerToNode::AckReports { upto: 1 }));
    b.tell(AgentInput::StepdExited { run: RUN, pid: Some(42), how: "exit code 0".into() });
    b.tell(AgentInput::Swept { run: RUN, left: None });
    b.tell(AgentInput::ControllerGone);
    b.tell(AgentInput::EpilogDone { run: RUN, failed: Some("exit 1".into()) });
    let registered = b.tell(AgentInput::ControllerUp);
    let says = registered.iter().find_map(|effect| match effect {
        AgentEffect::ToController(message) => match message.as_ref() {
            NodeToController::Register { runs, released, .. } => Some((runs.len(), released.clone())),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(says, Some((0, vec![ReleasedRun { job: RUN.job, sluid: RUN.sluid, seq: 2 }])));
    let e = b.welcome(&[(RUN.job, RUN.sluid)]);
    assert!(reports(&e).iter().any(|(seq, report)| {
        *seq == 2 && matches!(report, AgentReport::NodeReleased { epilog_failed: Some(_), .. })
    }));
}

#[test]
fn an_order_is_carried_out_once_however_often_it_comes() {
    let mut b = Bench::holding(&["n1"]);
    assert_eq!(b.tell(AgentInput::StartJob(order(&["n1"]))), []);
}

/// Ends are urgent: on a link they overtake the orders to start. A run that was released and then started was nobody's, and
/// worked on beside the job's next one.
#[test]
fn a_run_that_is_over_before_the_order_to_start_it_comes_is_not_started() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    let (job, sluid) = (RUN.job, RUN.sluid);
    let end =
        ControllerToNode::EndJob { job, sluid, state: JobState::NodeFail, reason: Reason::NodeDown, lost: Vec::new() };
    let e = b.tell(AgentInput::Controller(end));
    assert!(matches!(reports(&e)[..], [(1, AgentReport::NodeReleased { .. })]));
    let e = b.tell(AgentInput::StartJob(order(&["n1"])));
    assert!(matches!(e[..], [AgentEffect::Log { warning: false, .. }]), "{e:?}");
    assert_eq!(b.core.held().len(), 0);
    // What a controller orders on another link is new.
    b.tell(AgentInput::ControllerGone);
    b.welcome(&[]);
    let e = b.tell(AgentInput::StartJob(order(&["n1"])));
    assert!(matches!(e[..], [AgentEffect::Prepare { .. }]), "{e:?}");
}

#[test]
fn an_order_with_a_bad_credential_or_for_another_node_starts_nothing() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    let e = b.tell(AgentInput::StartJob(StartOrder { credential: Err("signature".into()), ..order(&["n1"]) }));
    assert!(matches!(e[..], [AgentEffect::Log { warning: true, .. }]));
    let e = b.tell(AgentInput::StartJob(order(&["n2", "n1"])));
    assert!(matches!(reports(&e)[..], [(1, AgentReport::JobLaunchFailed { drain_node: false, .. })]));
}

#[test]
fn a_daemon_of_an_ordinary_user_starts_jobs_of_that_user_alone() {
    let uid = order(&["n1"]).credential.unwrap().uid;
    let begun = |own: u32| {
        let (mut b, _) = Bench::with_user(vec![], Some(own));
        b.welcome(&[]);
        b.tell(AgentInput::StartJob(order(&["n1"])))
    };
    assert!(matches!(begun(uid)[..], [AgentEffect::Prepare { .. }]));
    let e = begun(uid + 1);
    match &reports(&e)[..] {
        [(1, AgentReport::JobLaunchFailed { drain_node: false, detail, .. })] => {
            assert!(detail.contains("cannot start a job of"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failed_prolog_drains_the_node_and_cleans_up() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    b.tell(AgentInput::StartJob(order(&["n1"])));
    let e = b.tell(AgentInput::Prepared { run: RUN, result: Err(PrepareFailure::Prolog("exit 3".into())) });
    assert!(matches!(
        reports(&e)[..],
        [(1, AgentReport::JobLaunchFailed { drain_node: true, reason: Reason::PrologFailure, .. })]
    ));
    assert_eq!(e.last(), Some(&AgentEffect::Sweep { run: RUN }));
}

#[test]
fn what_is_not_acknowledged_is_said_again_to_the_next_controller() {
    let mut b = Bench::holding(&["n1"]);
    b.from_stepd(1, StepdReport::Started);
    b.tell(AgentInput::ControllerGone);
    assert_eq!(b.from_stepd(2, ended()), []);
    let e = b.welcome(&[(RUN.job, RUN.sluid)]);
    let again: Vec<u64> = reports(&e).iter().map(|(seq, _)| *seq).collect();
    assert_eq!(again, [1, 2]);
}

#[test]
fn a_stepd_that_comes_back_repeats_itself_without_doubling_anything() {
    let mut b = Bench::holding(&["n1"]);
    b.from_stepd(1, StepdReport::Started);
    b.tell(AgentInput::StepdGone { run: RUN, conn: 1 });
    b.tell(AgentInput::StepdUp { run: RUN, conn: 2, pid: 42, door: "/d".into(), batch_host: true });
    let repeat = StepdToNode::Report { seq: 1, report: StepdReport::Started };
    assert_eq!(b.tell(AgentInput::Stepd { run: RUN, conn: 2, message: repeat }), []);
}

fn killed() -> AgentInput {
    AgentInput::StepdExited { run: RUN, pid: None, how: "signal 9".into() }
}

fn restart_timer(after: Duration) -> AgentEffect {
    AgentEffect::SetTimer { timer: AgentTimer::Restart(RUN), after }
}

impl Bench {
    /// The pause is over, the process was started and connected under `conn`.
    fn back(&mut self, conn: u64) -> Vec<AgentEffect> {
        let load = NodeLoad::default();
        let e = self.tell(AgentInput::Timer { timer: AgentTimer::Restart(RUN), load });
        assert_eq!(e.last(), Some(&AgentEffect::Restart { run: RUN }));
        let pid = 100 + u32::try_from(conn).unwrap();
        let e = self.tell(AgentInput::Restarted { run: RUN, result: Ok(pid) });
        assert_eq!(e, [AgentEffect::SetTimer { timer: AgentTimer::Start(RUN), after: Duration::from_secs(10) }]);
        self.tell(AgentInput::StepdUp { run: RUN, conn, pid, door: "/d".into(), batch_host: true })
    }
}

fn orders(effects: &[AgentEffect]) -> Vec<&NodeToStepd> {
    effects
        .iter()
        .filter_map(|e| match e {
            AgentEffect::ToStepd { message, .. } => Some(message),
            _ => None,
        })
        .collect()
}

#[test]
fn a_stepd_that_died_is_started_again_and_the_job_goes_on() {
    let mut b = Bench::holding(&["n1"]);
    let e = b.tell(killed());
    assert_eq!(reports(&e), []);
    assert_eq!(e.last(), Some(&restart_timer(RESTART_PAUSES[0])));
    assert_eq!(b.core.held().len(), 1, "the controller hears of it when it asks");
    assert_eq!(orders(&b.back(2)), [&NodeToStepd::Welcome]);
    // What it has to say is taken under the new connection.
    let report = StepdToNode::Report { seq: 1 << 32, report: StepdReport::Started };
    let e = b.tell(AgentInput::Stepd { run: RUN, conn: 2, message: report });
    assert!(matches!(reports(&e)[..], [(1, AgentReport::JobStarted { .. })]));
    // The end of the first process, told late, is no news of the second.
    assert_eq!(b.tell(AgentInput::StepdExited { run: RUN, pid: Some(42), how: "signal 9".into() }), []);
}

#[test]
fn orders_for_a_stepd_that_is_away_reach_the_next_one_in_turn() {
    let mut b = Bench::holding(&["n1"]);
    let to_job = |message| AgentInput::Controller(message);
    let (job, sluid) = (RUN.job, RUN.sluid);
    let limit = |secs| ControllerToNode::SetTimeLimit { job, sluid, limit: TimeLimit::Secs(secs) };
    let signal = |signal| ControllerToNode::SignalJob { job, sluid, signal, to: SignalScope::Full };
    // Heard by the first one; the limit has to be known to the second too, the signal was meant for then.
    b.tell(to_job(limit(5)));
    b.tell(to_job(signal(10)));
    b.tell(killed());
    assert_eq!(b.tell(to_job(signal(12))), []);
    b.tell(to_job(limit(7)));
    b.tell(to_job(ControllerToNode::EndJob {
        job,
        sluid,
        state: JobState::Cancelled,
        reason: Reason::None,
        lost: vec![],
    }));
    let told = b.back(2);
    let end = NodeToStepd::EndJob { state: JobState::Cancelled, reason: Reason::None, lost: Vec::new() };
    assert_eq!(
        orders(&told),
        [
            &NodeToStepd::Welcome,
            &NodeToStepd::SetTimeLimit(TimeLimit::Secs(7)),
            &NodeToStepd::SignalJob { signal: 12, to: SignalScope::Full },
            &end
        ]
    );
}

#[test]
fn whether_a_run_stands_still_is_said_to_every_stepd_until_it_is_to_end() {
    let mut b = Bench::holding(&["n1"]);
    let (job, sluid) = (RUN.job, RUN.sluid);
    let tell = |b: &mut Bench, signal, to| {
        b.tell(AgentInput::Controller(ControllerToNode::SignalJob { job, sluid, signal, to }));
    };
    let signal = |signal| NodeToStepd::SignalJob { signal, to: SignalScope::Full };
    tell(&mut b, SIGSTOP, SignalScope::Full);
    tell(&mut b, SIGCONT, SignalScope::Steps);
    b.tell(killed());
    assert_eq!(orders(&b.back(2)), [&NodeToStepd::Welcome, &signal(SIGSTOP)], "that was for one who had heard it");
    // What came while nobody was there: the last one counts, and behind those that were kept.
    b.tell(killed());
    for signal in [SIGCONT, SIGSTOP, SIGTSTP, SIGCONT] {
        tell(&mut b, signal, SignalScope::Full);
    }
    assert_eq!(orders(&b.back(3)), [&NodeToStepd::Welcome, &signal(SIGTSTP), &signal(SIGCONT)]);
    let state = JobState::Cancelled;
    b.tell(AgentInput::Controller(ControllerToNode::EndJob { job, sluid, state, reason: Reason::None, lost: vec![] }));
    tell(&mut b, SIGSTOP, SignalScope::Full);
    b.tell(killed());
    let end = NodeToStepd::EndJob { state, reason: Reason::None, lost: Vec::new() };
    assert_eq!(orders(&b.back(4)), [&NodeToStepd::Welcome, &end]);
}

#[test]
fn the_death_of_a_step_manager_is_reported_once_it_is_not_started_again() {
    let mut b = Bench::holding(&["n1"]);
    for (n, pause) in RESTART_PAUSES.into_iter().enumerate() {
        assert_eq!(b.tell(killed()).last(), Some(&restart_timer(pause)));
        b.back(2 + n as u64);
    }
    let e = b.tell(killed());
    assert!(matches!(
        reports(&e)[..],
        [(1, AgentReport::JobEnded { state: JobState::Failed, reason: Reason::StepManagerDied, at: Timestamp(5), .. })]
    ));
    assert_eq!(e.last(), Some(&AgentEffect::Sweep { run: RUN }));
    assert_eq!(b.tell(killed()), []);
}

#[test]
fn deaths_of_long_ago_do_not_count() {
    let mut b = Bench::holding(&["n1"]);
    for n in 0..2 * RESTARTS as u64 {
        assert_eq!(b.tell(killed()).last(), Some(&restart_timer(RESTART_PAUSES[0])));
        b.back(2 + n);
        b.now = b.now.plus(RESTART_WINDOW);
    }
}

#[test]
fn a_stepd_that_cannot_be_started_again_counts_as_one_that_died() {
    let mut b = Bench::holding(&["n1"]);
    b.tell(killed());
    for pause in &RESTART_PAUSES[1..] {
        b.tell(AgentInput::Timer { timer: AgentTimer::Restart(RUN), load: NodeLoad::default() });
        let e = b.tell(AgentInput::Restarted { run: RUN, result: Err("no memory".into()) });
        assert_eq!(e.last(), Some(&restart_timer(*pause)));
    }
    b.tell(AgentInput::Timer { timer: AgentTimer::Restart(RUN), load: NodeLoad::default() });
    let e = b.tell(AgentInput::Restarted { run: RUN, result: Err("no memory".into()) });
    assert!(matches!(reports(&e)[..], [(1, AgentReport::JobEnded { reason: Reason::StepManagerDied, .. })]));
    assert_eq!(e.last(), Some(&AgentEffect::Sweep { run: RUN }));
}

#[test]
fn a_run_that_does_not_end_when_told_is_given_up_with_the_state_it_was_to_have() {
    let end = ControllerToNode::EndJob {
        job: RUN.job,
        sluid: RUN.sluid,
        state: JobState::Cancelled,
        reason: Reason::None,
        lost: Vec::new(),
    };
    let timer = AgentInput::Timer { timer: AgentTimer::End(RUN), load: NodeLoad::default() };
    let given_up = |e: &[AgentEffect]| {
        let told = reports(e);
        assert!(matches!(told[..], [(1, AgentReport::JobEnded { state: JobState::Cancelled, .. })]), "{e:?}");
        assert_eq!(e.last(), Some(&AgentEffect::Sweep { run: RUN }));
    };
    // One that lives is killed, and not started again.
    let mut b = Bench::holding(&["n1"]);
    let e = b.tell(AgentInput::Controller(end.clone()));
    assert!(e.contains(&AgentEffect::SetTimer { timer: AgentTimer::End(RUN), after: Duration::from_secs(90) }));
    // However often it is repeated, it is one deadline.
    let e = b.tell(AgentInput::Controller(end.clone()));
    assert!(!e.iter().any(|e| matches!(e, AgentEffect::SetTimer { .. })));
    // As often as it takes: the controller may have forgotten the run, and then there is no second order.
    for _ in 0..2 {
        let e = b.tell(timer.clone());
        assert!(e.contains(&AgentEffect::KillStepd { run: RUN, pid: Some(42) }));
        assert!(e.contains(&AgentEffect::SetTimer { timer: AgentTimer::End(RUN), after: Duration::from_secs(90) }));
    }
    given_up(&b.tell(killed()));
    // One that is being started again: whoever comes up all the same has to go.
    let mut b = Bench::holding(&["n1"]);
    b.tell(killed());
    b.tell(AgentInput::Controller(end));
    given_up(&b.tell(timer));
    let e = b.tell(AgentInput::Restarted { run: RUN, result: Ok(43) });
    assert_eq!(e, [AgentEffect::KillStepd { run: RUN, pid: Some(43) }]);
}

/// Found by simulation: a `stepd` had said that all is gone, was told that this is safe, and hung instead of ending. Nothing
/// was left that would have ended it, and its node was never free again.
#[test]
fn a_stepd_that_hangs_after_its_last_word_is_killed() {
    let mut b = Bench::holding(&["n1"]);
    b.from_stepd(1, StepdReport::Started);
    b.from_stepd(2, ended());
    b.from_stepd(3, StepdReport::Gone);
    let timer = AgentTimer::End(RUN);
    let e = b.tell(AgentInput::Controller(ControllerToNode::AckReports { upto: 2 }));
    assert!(e.contains(&AgentEffect::SetTimer { timer, after: Duration::from_secs(90) }));
    let e = b.tell(AgentInput::Timer { timer, load: NodeLoad::default() });
    assert!(e.contains(&AgentEffect::KillStepd { run: RUN, pid: Some(42) }));
    let e = b.tell(killed());
    assert_eq!(e, [AgentEffect::ClearTimer(timer), AgentEffect::Sweep { run: RUN }]);
}

#[test]
fn runs_found_at_the_start_are_adopted_by_what_is_left_of_them() {
    let found = |stepd| FoundRun { run: RUN, batch_host: true, uid: 1, stepd, door: "/d".into(), requeue: MAY_FOLLOW };
    let start_timer = AgentEffect::SetTimer { timer: AgentTimer::Start(RUN), after: Duration::from_secs(10) };
    let up = AgentInput::StepdUp { run: RUN, conn: 1, pid: 3, door: "/d".into(), batch_host: true };
    let (mut b, e) = Bench::new(vec![found(StepdState::Alive { pid: Some(3), clean: false })]);
    assert!(e.contains(&start_timer));
    let e = b.tell(up.clone());
    assert!(e.contains(&AgentEffect::ToStepd { run: RUN, message: NodeToStepd::Welcome }));
    assert!(!e.contains(&AgentEffect::Watch { run: RUN, pid: 3 }));
    // One that had not noted its number when this daemon looked is watched from its greeting on.
    let (mut b, e) = Bench::new(vec![found(StepdState::Alive { pid: None, clean: false })]);
    assert!(e.contains(&start_timer));
    assert!(b.tell(up).contains(&AgentEffect::Watch { run: RUN, pid: 3 }));
    // One that only waited for its last acknowledgement ends as it should.
    let (mut b, _) = Bench::new(vec![found(StepdState::Alive { pid: Some(3), clean: true })]);
    let e = b.tell(killed());
    assert_eq!(e.last(), Some(&AgentEffect::Sweep { run: RUN }));
    assert_eq!(reports(&b.welcome(&[(RUN.job, RUN.sluid)])), []);
    let (mut b, e) = Bench::new(vec![found(StepdState::Dead)]);
    assert!(e.contains(&restart_timer(RESTART_PAUSES[0])));
    assert_eq!(reports(&b.welcome(&[(RUN.job, RUN.sluid)])), []);
    let (mut b, e) = Bench::new(vec![found(StepdState::Rebooted)]);
    assert!(e.contains(&AgentEffect::Sweep { run: RUN }));
    assert!(matches!(
        reports(&b.welcome(&[(RUN.job, RUN.sluid)]))[..],
        [(1, AgentReport::JobEnded { state: JobState::NodeFail, .. })]
    ));
    let (mut b, e) = Bench::new(vec![found(StepdState::Clean)]);
    assert!(e.contains(&AgentEffect::Sweep { run: RUN }), "a killed stepd leaves its cgroup and its door: {e:?}");
    assert_eq!(reports(&b.welcome(&[(RUN.job, RUN.sluid)])), []);
}

/// A stepd reported the end of its job while the controller was away, and was killed; then the agent was killed too. The folder
/// said that the run was clean, so nobody told the controller how the job had ended.
#[test]
fn a_run_is_not_clean_before_the_controller_knows_how_it_ended() {
    let mut b = Bench::holding(&["n1"]);
    b.from_stepd(1, StepdReport::Started);
    b.from_stepd(2, ended());
    b.from_stepd(3, StepdReport::Gone);
    let e = b.tell(killed());
    assert!(e.contains(&restart_timer(RESTART_PAUSES[0])), "the next one repeats what is not safe: {e:?}");
    assert!(!e.contains(&AgentEffect::MarkClean { run: RUN }));
    // The next one comes after the controller has it all: it is told so.
    b.tell(AgentInput::Controller(ControllerToNode::AckReports { upto: 2 }));
    b.back(1);
    b.from_stepd(1_001, ended());
    b.from_stepd(1_002, StepdReport::Gone);
    let e = b.tell(AgentInput::Controller(ControllerToNode::AckReports { upto: 3 }));
    let ack = AgentEffect::ToStepd { run: RUN, message: NodeToStepd::Ack { upto: 1_002 } };
    assert_eq!(e[..2], [AgentEffect::MarkClean { run: RUN }, ack]);
    let e = b.tell(AgentInput::StepdExited { run: RUN, pid: Some(101), how: "exit code 0".into() });
    assert!(e.contains(&AgentEffect::Sweep { run: RUN }));
}

#[test]
fn a_run_the_controller_does_not_know_is_ended() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    b.tell(AgentInput::StartJob(order(&["n1"])));
    b.tell(AgentInput::Prepared { run: RUN, result: Ok(1) });
    b.tell(AgentInput::StepdUp { run: RUN, conn: 1, pid: 42, door: "/d".into(), batch_host: true });
    let e = b.welcome(&[(RUN.job, Sluid(71))]);
    let ended = |e: &AgentEffect| matches!(e, AgentEffect::ToStepd { message: NodeToStepd::EndJob { .. }, .. });
    assert!(e.iter().any(ended));
}

#[test]
fn an_order_to_end_a_run_that_is_not_here_lets_the_controller_go_on() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    let end = ControllerToNode::EndJob {
        job: RUN.job,
        sluid: RUN.sluid,
        state: JobState::Cancelled,
        reason: Reason::None,
        lost: Vec::new(),
    };
    assert!(matches!(reports(&b.tell(AgentInput::Controller(end)))[..], [(1, AgentReport::NodeReleased { .. })]));
}

#[test]
fn a_shepherd_is_started_once_and_its_asker_answered() {
    let (mut b, _) = Bench::new(vec![]);
    let e = b.tell(AgentInput::StartShepherd {
        query: 4,
        order: order(&["n0", "n1"]),
        manager: "a:1".into(),
        again: false,
    });
    assert!(matches!(&e[..], [AgentEffect::Prepare { manager: Some(m), .. }] if m == "a:1"));
    let e = b.tell(AgentInput::Prepared { run: RUN, result: Ok(8) });
    assert!(e.contains(&AgentEffect::AnswerShepherd { query: 4, answer: AgentToStepMgr::Started }));
}

/// The order to end went ahead of the step manager's, and the controller has let go of this node.
#[test]
fn a_shepherd_of_a_run_that_is_over_is_not_started() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    let (job, sluid) = (RUN.job, RUN.sluid);
    let end =
        ControllerToNode::EndJob { job, sluid, state: JobState::Cancelled, reason: Reason::None, lost: Vec::new() };
    b.tell(AgentInput::Controller(end));
    let e = b.tell(AgentInput::StartShepherd {
        query: 4,
        order: order(&["n0", "n1"]),
        manager: "a:1".into(),
        again: false,
    });
    let answer = AgentToStepMgr::Failed(Refusal::AlreadyDone);
    assert_eq!(e, [AgentEffect::AnswerShepherd { query: 4, answer }]);
}

/// Whoever has a copy of its credential, as the host of its step manager has, must not start it once more.
#[test]
fn a_run_that_ended_here_is_not_started_once_more_also_by_another_agent() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    let ask =
        |query| AgentInput::StartShepherd { query, order: order(&["n0", "n1"]), manager: "a:1".into(), again: false };
    b.tell(ask(1));
    b.tell(AgentInput::Prepared { run: RUN, result: Ok(8) });
    b.tell(AgentInput::StepdExited { run: RUN, pid: Some(8), how: "killed".into() });
    b.tell(AgentInput::Controller(ControllerToNode::EndJob {
        job: RUN.job,
        sluid: RUN.sluid,
        state: JobState::Completed,
        reason: Reason::None,
        lost: Vec::new(),
    }));
    b.now = b.now.plus(Duration::from_secs(3600));
    for input in [
        AgentInput::Timer { timer: AgentTimer::End(RUN), load: NodeLoad::default() },
        AgentInput::Swept { run: RUN, left: None },
        AgentInput::EpilogDone { run: RUN, failed: None },
    ] {
        b.tell(input);
    }
    let until = b.now.plus(Duration::from_secs(24 * 3600));
    let e = b.tell(AgentInput::Controller(ControllerToNode::AckReports { upto: 1 }));
    assert_eq!(e, [AgentEffect::NoteOver { run: RUN, until }, AgentEffect::RemoveSpool { run: RUN }]);
    let refused = |query| [AgentEffect::AnswerShepherd { query, answer: AgentToStepMgr::Failed(Refusal::AlreadyDone) }];
    b.tell(AgentInput::ControllerGone);
    assert_eq!(b.tell(ask(2)), refused(2));
    let mut next = Bench::new(vec![]).0;
    next.now = b.now;
    let over = vec![(RUN, until)];
    next.tell(AgentInput::Begin { found: vec![], over, facts: facts(), load: NodeLoad::default() });
    assert_eq!(next.tell(ask(3)), refused(3));
    // No credential of it is good any more.
    next.now = until;
    assert!(matches!(&next.tell(ask(4))[..], [AgentEffect::Prepare { .. }]));
}

/// The machine was set up anew, or its agent was away while the run was ended and cleaned up: a step manager that was started
/// again, or one that missed its shepherd, began the run there once more.
#[test]
fn a_shepherd_that_this_node_does_not_know_of_is_not_begun_in_its_place() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    let ask =
        |query, again| AgentInput::StartShepherd { query, order: order(&["n0", "n1"]), manager: "a:1".into(), again };
    let e = b.tell(ask(4, true));
    let answer = AgentToStepMgr::Failed(Refusal::AlreadyDone);
    let answers = |effect: &&AgentEffect| !matches!(effect, AgentEffect::Log { .. });
    assert_eq!(e.iter().filter(answers).collect::<Vec<_>>(), [&AgentEffect::AnswerShepherd { query: 4, answer }]);
    let e = b.tell(ask(5, false));
    assert!(e.iter().any(|effect| matches!(effect, AgentEffect::Prepare { run: RUN, .. })), "{e:?}");
}

#[test]
fn a_shepherd_that_is_asked_for_again_learns_where_its_manager_is_now() {
    let (mut b, _) = Bench::new(vec![]);
    let ask = |query, manager: &str| AgentInput::StartShepherd {
        query,
        order: order(&["n0", "n1"]),
        manager: manager.into(),
        again: true,
    };
    let first = order(&["n0", "n1"]);
    b.tell(AgentInput::StartShepherd { query: 4, order: first, manager: "a:1".into(), again: false });
    b.tell(AgentInput::Prepared { run: RUN, result: Ok(8) });
    b.tell(killed());
    let e = b.tell(ask(5, "a:2"));
    assert_eq!(
        e,
        [
            AgentEffect::NoteManager { run: RUN, manager: "a:2".into() },
            AgentEffect::AnswerShepherd { query: 5, answer: AgentToStepMgr::Started }
        ]
    );
}

#[test]
fn steps_are_passed_on_as_they_came_and_acknowledged_when_the_controller_has_them() {
    let mut b = Bench::holding(&["n1"]);
    let steps = PackedSteps::from(StepRows { unreported: 3, ..StepRows::default() });
    let passed = |steps: &PackedSteps| AgentReport::Steps { job: RUN.job, sluid: RUN.sluid, steps: steps.clone() };
    let out = b.from_stepd(1, StepdReport::Steps(steps.clone()));
    assert_eq!(reports(&out), [(1, &passed(&steps))]);
    let ack = AgentEffect::ToStepd { run: RUN, message: NodeToStepd::Ack { upto: 1 } };
    assert_eq!(out.iter().filter(|e| **e == ack).count(), 0);
    b.tell(AgentInput::ControllerGone);
    assert_eq!(reports(&b.welcome(&[(RUN.job, RUN.sluid)])), [(1, &passed(&steps))]);
    assert_eq!(b.tell(AgentInput::Controller(ControllerToNode::AckReports { upto: 1 })), [ack]);
    assert_eq!(reports(&b.welcome(&[(RUN.job, RUN.sluid)])), []);
}

#[test]
fn orders_to_steps_reach_the_step_manager_of_that_run_alone() {
    let steps = WhichSteps::All;
    let signal = |sluid| {
        let (job, steps) = (RUN.job, steps.clone());
        AgentInput::Controller(ControllerToNode::SignalSteps {
            job,
            sluid,
            steps,
            pending_only: true,
            signal: Some(9),
            by: None,
        })
    };
    let mut b = Bench::holding(&["n1"]);
    let message = NodeToStepd::SignalSteps { steps: steps.clone(), pending_only: true, signal: Some(9), by: None };
    assert_eq!(b.tell(signal(RUN.sluid)), [AgentEffect::ToStepd { run: RUN, message }]);
    assert_eq!(b.tell(signal(Sluid(69))), []);
    // The same node as one of the others of a job: its shepherd has no step manager.
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    b.tell(AgentInput::StartShepherd { query: 1, order: order(&["n0", "n1"]), manager: "a:1".into(), again: false });
    b.tell(AgentInput::Prepared { run: RUN, result: Ok(42) });
    b.tell(AgentInput::StepdUp { run: RUN, conn: 1, pid: 42, door: "/d".into(), batch_host: false });
    assert_eq!(b.tell(signal(RUN.sluid)), []);
}

#[test]
fn a_list_of_steps_names_the_managers_that_are_away_and_what_was_left_out() {
    let mut b = Bench::holding(&["n1"]);
    let list = |query| AgentInput::Controller(ControllerToNode::ListSteps { query, jobs: vec![RUN.job] });
    b.tell(list(1));
    let answer = StepdToNode::Steps { query: 1, steps: Vec::new(), left_out: 7 };
    let out = b.tell(AgentInput::Stepd { run: RUN, conn: 1, message: answer });
    let told = |query, missing: &[&str], left_out| {
        let missing = missing.iter().map(ToString::to_string).collect();
        AgentEffect::ToController(Box::new(NodeToController::Steps { query, steps: Vec::new(), missing, left_out }))
    };
    assert!(out.contains(&told(1, &[], 7)), "{out:?}");
    b.tell(AgentInput::StepdGone { run: RUN, conn: 1 });
    assert!(b.tell(list(2)).contains(&told(2, &["job 7 on n1"], 0)));
}

/// With the controller away, more steps end than may be under way: the rest is reported behind `Gone`, and the `stepd` ends
/// only when all of it is acknowledged.
#[test]
fn steps_reported_behind_the_last_word_of_a_stepd_arrive_too() {
    let mut b = Bench::holding(&["n1"]);
    let steps = |unreported| StepdReport::Steps(StepRows { unreported, ..StepRows::default() }.into());
    b.tell(AgentInput::ControllerGone);
    b.from_stepd(1, steps(2));
    b.from_stepd(2, StepdReport::Gone);
    assert_eq!(reports(&b.welcome(&[(RUN.job, RUN.sluid)])).len(), 1);
    let ack = |upto| AgentEffect::ToStepd { run: RUN, message: NodeToStepd::Ack { upto } };
    let acknowledged = |upto| AgentInput::Controller(ControllerToNode::AckReports { upto });
    assert!(b.tell(acknowledged(1)).contains(&ack(2)));
    assert_eq!(reports(&b.from_stepd(3, steps(0))).len(), 1);
    let safe = b.tell(acknowledged(2));
    assert_eq!(safe[..2], [AgentEffect::MarkClean { run: RUN }, ack(3)]);
    let out = b.tell(AgentInput::StepdExited { run: RUN, pid: Some(42), how: "exit code 0".into() });
    assert!(out.contains(&AgentEffect::Sweep { run: RUN }));
}

#[test]
fn nodes_that_joined_are_known_from_the_controller() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    let joined = vec![Neighbour { name: "d1".to_owned(), address: "10.0.0.9:7000".to_owned() }];
    let mut ping = |neighbours| b.tell(AgentInput::Controller(ControllerToNode::Ping { n: 1, neighbours }));
    let told = AgentEffect::Neighbours(joined.clone());
    assert!(ping(Some(joined)).contains(&told));
    assert!(!ping(None).iter().any(|effect| matches!(effect, AgentEffect::Neighbours(_))));
}

/// Asked for after the lease: ended, whether the run goes on, for what the others said.
fn cut_off(said: PeersSaid) -> (bool, Bench) {
    cut_off_as(said, None)
}

fn cut_off_as(said: PeersSaid, joining: Option<Box<Joining>>) -> (bool, Bench) {
    let mut b = Bench::holding(&["n1"]);
    b.core.config.joining = joining;
    b.core.config.lease = Some(Duration::from_secs(100));
    let gone = b.tell(AgentInput::ControllerGone);
    assert_eq!(gone, [AgentEffect::SetTimer { timer: AgentTimer::Lease, after: Duration::from_secs(100) }]);
    let asked = b.tell(AgentInput::Timer { timer: AgentTimer::Lease, load: NodeLoad::default() });
    assert_eq!(asked, [AgentEffect::AskPeers]);
    let then = b.tell(AgentInput::PeersSaid(said));
    assert!(then.contains(&AgentEffect::SetTimer { timer: AgentTimer::Lease, after: Duration::from_secs(100) / 3 }));
    let ends = |e: &AgentEffect| matches!(e, AgentEffect::ToStepd { message: NodeToStepd::EndJob { .. }, .. });
    (then.iter().any(ends), b)
}

#[test]
fn a_node_that_is_cut_off_ends_what_may_run_elsewhere() {
    let (ended, _) = cut_off(PeersSaid { asked: 3, reached: 1, with_controller: 1 });
    assert!(ended, "another node has the controller");
    let (ended, _) = cut_off(PeersSaid { asked: 3, reached: 0, with_controller: 0 });
    assert!(ended, "no other node answers");
    // Found by simulation: the nodes of a rack that is cut off answer each other.
    let (ended, _) = cut_off(PeersSaid { asked: 16, reached: 7, with_controller: 0 });
    assert!(ended, "those who answer are cut off too");
    let (ended, _) = cut_off(PeersSaid { asked: 3, reached: 2, with_controller: 0 });
    assert!(!ended, "the controller is gone for all");
    let (ended, mut b) = cut_off(PeersSaid::default());
    assert!(!ended, "there are no other nodes");
    let joined = Box::new(Joining { line: "CPUs=4".to_owned(), port: 7000 });
    let (joined, _) = cut_off_as(PeersSaid::default(), Some(joined));
    assert!(joined, "it does not know the other nodes");
    // An answer that is overtaken by the controller's return changes nothing, and the lease is renewed.
    let welcome = b.welcome(&[(RUN.job, RUN.sluid)]);
    assert!(welcome.contains(&AgentEffect::ClearTimer(AgentTimer::Lease)));
    assert_eq!(b.tell(AgentInput::PeersSaid(PeersSaid { asked: 1, reached: 1, with_controller: 1 })), []);
}

/// Found by simulation: the controller came back while others were being asked, and was gone again before they had all
/// answered. The lease had begun anew, and the answers ended the jobs all the same.
#[test]
fn what_others_say_is_of_one_lease() {
    let mut b = Bench::holding(&["n1"]);
    b.core.config.lease = Some(Duration::from_secs(100));
    b.tell(AgentInput::ControllerGone);
    let lease_over = AgentInput::Timer { timer: AgentTimer::Lease, load: NodeLoad::default() };
    assert_eq!(b.tell(lease_over), [AgentEffect::AskPeers]);
    b.tell(AgentInput::ControllerUp);
    b.welcome(&[(RUN.job, RUN.sluid)]);
    b.tell(AgentInput::ControllerGone);
    assert_eq!(b.tell(AgentInput::PeersSaid(PeersSaid { asked: 3, reached: 0, with_controller: 0 })), []);
}

#[test]
fn a_job_that_is_not_requeued_works_on_at_a_node_that_is_cut_off() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    b.core.config.lease = Some(Duration::from_secs(100));
    let mut start = order(&["n1"]);
    Arc::make_mut(&mut start.launch.spec).requeue = Some(false);
    b.tell(AgentInput::StartJob(start));
    b.tell(AgentInput::Prepared { run: RUN, result: Ok(42) });
    b.tell(AgentInput::ControllerGone);
    let then = b.tell(AgentInput::Timer { timer: AgentTimer::Lease, load: NodeLoad::default() });
    assert_eq!(then, [AgentEffect::SetTimer { timer: AgentTimer::Lease, after: Duration::from_secs(100) / 3 }]);
}

/// Does a node that is cut off end the run that this order started?
fn ends_when_cut_off(b: &mut Bench) -> bool {
    b.core.config.lease = Some(Duration::from_secs(100));
    b.tell(AgentInput::ControllerGone);
    b.tell(AgentInput::Timer { timer: AgentTimer::Lease, load: NodeLoad::default() }).contains(&AgentEffect::AskPeers)
}

fn launched(launch: impl FnOnce(&mut JobLaunch)) -> Bench {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    let mut start = order(&["n1"]);
    launch(&mut start.launch);
    b.tell(AgentInput::StartJob(start));
    b.tell(AgentInput::Prepared { run: RUN, result: Ok(42) });
    b
}

/// Found by simulation: a component of a heterogeneous job is an allocation, and was started elsewhere while it went on here.
#[test]
fn a_node_goes_by_what_the_launch_says_of_another_run() {
    let says = |allowed| Some(RequeuePolicy { allowed, revision: 0 });
    let component = |launch: &mut JobLaunch| {
        let spec = Arc::make_mut(&mut launch.spec);
        (spec.kind, spec.het, spec.het_size) = (JobKind::Allocation, Some((JobId(6), 1)), 2);
    };
    let by_controller = |requeue| {
        ends_when_cut_off(&mut launched(|launch| {
            component(launch);
            launch.requeue = requeue;
        }))
    };
    assert_eq!([says(true), says(false), None].map(by_controller), [true, false, true]);
    assert!(!ends_when_cut_off(&mut launched(|launch| launch.requeue = says(false))), "whatever the request says");
    let salloc = |launch: &mut JobLaunch| Arc::make_mut(&mut launch.spec).kind = JobKind::Allocation;
    assert!(!ends_when_cut_off(&mut launched(salloc)));
}

#[test]
fn a_change_of_it_is_answered_when_it_is_on_the_disk_and_older_words_do_not_undo_it() {
    let mut b = launched(|launch| launch.requeue = Some(RequeuePolicy { allowed: false, revision: 0 }));
    let policy = RequeuePolicy { allowed: true, revision: 2 };
    let set = |policy| AgentInput::Controller(ControllerToNode::SetRequeue { job: RUN.job, sluid: RUN.sluid, policy });
    let note = [AgentEffect::NoteRequeue { run: RUN, policy }];
    assert_eq!(b.tell(set(policy)), note);
    assert_eq!(b.tell(set(RequeuePolicy { allowed: false, revision: 1 })), []);
    assert_eq!(b.tell(set(policy)), note, "a repeat is answered again");
    assert_eq!(b.core.held()[0].requeue.unwrap().revision, 0, "the next agent would not know");
    let said = b.tell(AgentInput::RequeueNoted { run: RUN, policy });
    assert!(matches!(reports(&said)[..], [(_, AgentReport::RequeueSet { policy: p, .. })] if *p == policy), "{said:?}");
    let older = RequeuePolicy { revision: 1, ..policy };
    assert_eq!(b.tell(AgentInput::RequeueNoted { run: RUN, policy: older }), []);
    assert_eq!(b.core.held()[0].requeue, Some(policy));
    assert!(ends_when_cut_off(&mut b));
    // Of a run that is not here nothing is said.
    let other = ControllerToNode::SetRequeue { job: RUN.job, sluid: Sluid(71), policy };
    assert_eq!(b.tell(AgentInput::Controller(other)), []);
}

#[test]
fn a_change_during_the_prolog_is_noted_after_it() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    b.tell(AgentInput::StartJob(order(&["n1"])));
    let policy = RequeuePolicy { allowed: false, revision: 1 };
    let set = ControllerToNode::SetRequeue { job: RUN.job, sluid: RUN.sluid, policy };
    assert_eq!(b.tell(AgentInput::Controller(set)), [], "there is no folder yet");
    let out = b.tell(AgentInput::Prepared { run: RUN, result: Ok(42) });
    assert!(out.contains(&AgentEffect::NoteRequeue { run: RUN, policy }), "{out:?}");
    assert!(!ends_when_cut_off(&mut b));
}

/// The next agent of the node reads it from the run's folder.
#[test]
fn a_run_that_is_found_goes_by_what_was_noted() {
    let found = |allowed| FoundRun {
        run: RUN,
        batch_host: true,
        uid: 1,
        stepd: StepdState::Alive { pid: Some(1), clean: false },
        door: "/d".into(),
        requeue: RequeuePolicy { allowed, revision: 3 },
    };
    for allowed in [true, false] {
        let (mut b, _) = Bench::new(vec![found(allowed)]);
        assert_eq!(b.core.held()[0].requeue, Some(RequeuePolicy { allowed, revision: 3 }));
        assert_eq!(ends_when_cut_off(&mut b), allowed);
    }
}

#[test]
fn a_lease_ends_before_the_controllers_patience() {
    let secs = |n| Some(Duration::from_secs(n));
    assert_eq!([300, 40, 10].map(|n| lease_of(secs(n))), [secs(285), secs(25), secs(12)]);
    assert_eq!(lease_of(None), None);
}

fn asked(b: &mut Bench, uid: u32, run: RunKey) -> CommandReply {
    let request = Box::new(CommandRequest::AskRun { job: run.job, sluid: run.sluid });
    let caller = Caller { uid, gid: uid, pid: 1, host: "n1".into() };
    let effects = b.tell(AgentInput::Command { query: 5, caller, request });
    let [AgentEffect::AnswerCommand { query: 5, reply }] = effects.as_slice() else { panic!("{effects:?}") };
    (**reply).clone()
}

fn died(b: &mut Bench, pid: u32) -> Vec<AgentEffect> {
    b.tell(AgentInput::StepdExited { run: RUN, pid: Some(pid), how: "killed".into() })
}

#[test]
fn a_command_is_told_whether_its_run_goes_on_with_the_controller_or_without() {
    let mut b = Bench::holding(&["n1"]);
    b.tell(AgentInput::ControllerGone);
    let here = |b: &mut Bench| asked(b, 1, RUN);
    assert_eq!(here(&mut b), CommandReply::Run(RunStanding::Here));
    // Each time it dies it is started again, until that was too often.
    let last = 42 + u32::try_from(RESTARTS).unwrap();
    for pid in 42..last {
        died(&mut b, pid);
        assert_eq!(here(&mut b), CommandReply::Run(RunStanding::StartsAgain));
        b.tell(AgentInput::Timer { timer: AgentTimer::Restart(RUN), load: NodeLoad::default() });
        assert_eq!(here(&mut b), CommandReply::Run(RunStanding::StartsAgain));
        b.tell(AgentInput::Restarted { run: RUN, result: Ok(pid + 1) });
        assert_eq!(here(&mut b), CommandReply::Run(RunStanding::Here));
    }
    died(&mut b, last);
    assert_eq!(here(&mut b), CommandReply::Run(RunStanding::GivenUp));
    let newer = RunKey { sluid: Sluid(71), ..RUN };
    assert_eq!(asked(&mut b, 1, newer), CommandReply::Run(RunStanding::Over));
}

// After a restart of the controller commands failed until its nodes had found it again.
#[test]
fn commands_wait_for_the_controller_as_long_as_messages_may_take() {
    let mut b = Bench::holding(&["n1"]);
    b.tell(AgentInput::ControllerGone);
    let ask = |b: &mut Bench, query| {
        let caller = Caller { uid: 1, gid: 1, pid: 1, host: "n1".into() };
        b.tell(AgentInput::Command { query, caller, request: Box::new(CommandRequest::Ping) })
    };
    for query in 1..4 {
        let [AgentEffect::SetTimer { timer, .. }] = ask(&mut b, query)[..] else { panic!() };
        assert_eq!(timer, AgentTimer::Command(query));
    }
    let refused = |effects: &[AgentEffect], n| {
        let away = CommandReply::Refused(Refusal::ControllerUnreachable);
        matches!(effects, [AgentEffect::AnswerCommand { query, reply }] if *query == n && **reply == away)
    };
    let late = b.tell(AgentInput::Timer { timer: AgentTimer::Command(1), load: NodeLoad::default() });
    assert!(refused(&late, 1), "{late:?}");
    assert_eq!(b.tell(AgentInput::CommandGone { query: 2 }), [AgentEffect::ClearTimer(AgentTimer::Command(2))]);
    let sent = |effects: &[AgentEffect]| {
        let of_command = |effect: &AgentEffect| match effect {
            AgentEffect::ToController(message) => match **message {
                NodeToController::Command { query, .. } => Some(query),
                _ => None,
            },
            _ => None,
        };
        effects.iter().filter_map(of_command).collect::<Vec<_>>()
    };
    assert_eq!(sent(&b.tell(AgentInput::ControllerUp)), [3]);
    b.tell(AgentInput::ControllerGone);
    // Not without bounds.
    for query in 10..10 + 1024 {
        assert!(!refused(&ask(&mut b, query), query));
    }
    let one_more = ask(&mut b, 5000);
    assert!(refused(&one_more, 5000), "{one_more:?}");
}

#[test]
fn a_run_is_its_owners_to_ask_for_and_roots() {
    let mut b = Bench::holding(&["n1"]);
    assert_eq!(asked(&mut b, 0, RUN), CommandReply::Run(RunStanding::Here));
    assert_eq!(asked(&mut b, 2, RUN), CommandReply::Refused(Refusal::AccessDenied));
}

#[test]
fn a_run_that_is_found_or_over_is_told_as_that() {
    let found = |stepd| FoundRun { run: RUN, batch_host: true, uid: 1, stepd, door: "/d".into(), requeue: MAY_FOLLOW };
    for (stepd, standing) in [
        (StepdState::Alive { pid: Some(42), clean: false }, RunStanding::Here),
        (StepdState::Dead, RunStanding::StartsAgain),
        (StepdState::Rebooted, RunStanding::Over),
        (StepdState::Clean, RunStanding::Over),
    ] {
        let (mut b, _) = Bench::new(vec![found(stepd)]);
        assert_eq!(asked(&mut b, 1, RUN), CommandReply::Run(standing), "{stepd:?}");
    }
}
