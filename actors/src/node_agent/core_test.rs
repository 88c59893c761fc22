#![allow(clippy::unwrap_used)]

use crate::node_agent::{
    AgentConfig, AgentEffect, AgentInput, AgentTimer, FoundRun, NodeAgentCore, PrepareFailure, RunKey, StartOrder,
    StepdState,
};
use garrick_model::{
    ids::{JobId, NodeIndex, Sluid},
    messages::{
        node::{
            AgentReport, AgentToStepMgr, ControllerToNode, JobCredential, JobLaunch, NodeToController, SignedCredential,
        },
        stepd::{NodeToStepd, StepdReport, StepdToNode},
    },
    resources::{MemoryMib, NodeShape, NodeShare},
    state::{ExitStatus, JobState, Reason},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, NodeFacts, NodeLoad},
};
use serde_bytes::ByteBuf;
use std::{sync::Arc, time::Duration};

const RUN: RunKey = RunKey { job: JobId(7), sluid: Sluid(70) };

fn facts() -> Box<NodeFacts> {
    Box::new(NodeFacts {
        hostname: "h".into(),
        shape: NodeShape {
            cpus: 4,
            boards: 1,
            sockets: 1,
            cores_per_socket: 4,
            threads_per_core: 1,
            memory: MemoryMib(1000),
            tmp_disk_mib: 0,
        },
        arch: "x86_64".into(),
        os: "Linux".into(),
        version: "0".into(),
        boot_time: Timestamp(0),
        agent_start: Timestamp(0),
        tracking: "cgroup/v2".into(),
    })
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
    };
    StartOrder { launch: Box::new(launch), credential: Ok(Box::new(credential)) }
}

struct Bench {
    core: NodeAgentCore,
}

impl Bench {
    fn new(found: Vec<FoundRun>) -> (Self, Vec<AgentEffect>) {
        let config = AgentConfig {
            node: "n1".into(),
            incarnation: 9,
            heartbeat: Duration::from_secs(100),
            start_limit: Duration::from_secs(10),
            end_limit: Duration::from_secs(90),
            query_limit: Duration::from_secs(5),
        };
        let mut b = Self { core: NodeAgentCore::new(config) };
        let effects = b.tell(AgentInput::Begin { found, facts: facts(), load: NodeLoad::default() });
        (b, effects)
    }

    fn tell(&mut self, input: AgentInput) -> Vec<AgentEffect> {
        let mut out = Vec::new();
        self.core.handle(Timestamp(5), input, &mut out);
        out
    }

    /// Connected and welcome, with a run held under connection 1.
    fn holding(nodes: &[&str]) -> Self {
        let (mut b, _) = Self::new(vec![]);
        b.welcome(&[]);
        b.tell(AgentInput::StartJob(order(nodes)));
        b.tell(AgentInput::Prepared { run: RUN, result: Ok(42) });
        b.tell(AgentInput::StepdUp { run: RUN, conn: 1, door: "/d".into(), batch_host: true });
        b
    }

    fn welcome(&mut self, runs: &[(JobId, Sluid)]) -> Vec<AgentEffect> {
        let mut all = self.tell(AgentInput::ControllerUp);
        all.extend(self.tell(AgentInput::Controller(ControllerToNode::Welcome {
            epoch: 1,
            credential_key: ByteBuf::from(vec![1]),
            key_id: "k".into(),
            runs: runs.to_vec(),
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
    assert_eq!(e, [AgentEffect::ClearTimer(AgentTimer::End(RUN)), AgentEffect::MarkClean { run: RUN },]);
    let e = b.tell(AgentInput::Controller(ControllerToNode::AckReports { upto: 2 }));
    assert_eq!(
        e,
        [
            AgentEffect::ToStepd { run: RUN, message: NodeToStepd::Ack { upto: 1 } },
            AgentEffect::ToStepd { run: RUN, message: NodeToStepd::Ack { upto: 3 } }
        ]
    );
    let e = b.tell(AgentInput::StepdExited { run: RUN, how: "exit code 0".into() });
    assert_eq!(e, [AgentEffect::Sweep { run: RUN }]);
    b.tell(AgentInput::Swept { run: RUN, stubborn: vec![] });
    let e = b.tell(AgentInput::EpilogDone { run: RUN, failed: None });
    assert!(matches!(reports(&e)[..], [(3, AgentReport::NodeReleased { epilog_failed: None, .. })]));
    let e = b.tell(AgentInput::Controller(ControllerToNode::AckReports { upto: 3 }));
    assert_eq!(e, [AgentEffect::RemoveSpool { run: RUN }]);
}

#[test]
fn an_order_is_carried_out_once_however_often_it_comes() {
    let mut b = Bench::holding(&["n1"]);
    assert_eq!(b.tell(AgentInput::StartJob(order(&["n1"]))), []);
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
    b.tell(AgentInput::StepdUp { run: RUN, conn: 2, door: "/d".into(), batch_host: true });
    let repeat = StepdToNode::Report { seq: 1, report: StepdReport::Started };
    assert_eq!(b.tell(AgentInput::Stepd { run: RUN, conn: 2, message: repeat }), []);
}

#[test]
fn the_death_of_a_step_manager_is_reported_once_with_its_reason() {
    let mut b = Bench::holding(&["n1"]);
    let e = b.tell(AgentInput::StepdExited { run: RUN, how: "signal 9".into() });
    assert!(matches!(
        reports(&e)[..],
        [(1, AgentReport::JobEnded { state: JobState::Failed, reason: Reason::StepManagerDied, at: Timestamp(5), .. })]
    ));
    assert_eq!(e.last(), Some(&AgentEffect::Sweep { run: RUN }));
    assert_eq!(b.tell(AgentInput::StepdExited { run: RUN, how: "signal 9".into() }), []);
}

#[test]
fn runs_found_at_the_start_are_adopted_by_what_is_left_of_them() {
    let found = |stepd| FoundRun { run: RUN, batch_host: true, uid: 1, stepd, door: "/d".into() };
    let (mut b, e) = Bench::new(vec![found(StepdState::Alive { pid: 3 })]);
    assert!(e.contains(&AgentEffect::SetTimer { timer: AgentTimer::Start(RUN), after: Duration::from_secs(10) }));
    let e = b.tell(AgentInput::StepdUp { run: RUN, conn: 1, door: "/d".into(), batch_host: true });
    assert!(e.contains(&AgentEffect::ToStepd { run: RUN, message: NodeToStepd::Welcome }));
    let (mut b, e) = Bench::new(vec![found(StepdState::Dead)]);
    assert!(e.contains(&AgentEffect::Sweep { run: RUN }));
    assert!(matches!(reports(&b.welcome(&[(RUN.job, RUN.sluid)]))[..], [(1, AgentReport::JobEnded { .. })]));
    let (mut b, e) = Bench::new(vec![found(StepdState::Clean)]);
    assert!(e.contains(&AgentEffect::RunEpilog { run: RUN }));
    assert_eq!(reports(&b.welcome(&[(RUN.job, RUN.sluid)])), []);
}

#[test]
fn a_run_the_controller_does_not_know_is_ended() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    b.tell(AgentInput::StartJob(order(&["n1"])));
    b.tell(AgentInput::Prepared { run: RUN, result: Ok(1) });
    b.tell(AgentInput::StepdUp { run: RUN, conn: 1, door: "/d".into(), batch_host: true });
    let e = b.welcome(&[(RUN.job, Sluid(71))]);
    let ended = |e: &AgentEffect| matches!(e, AgentEffect::ToStepd { message: NodeToStepd::EndJob { .. }, .. });
    assert!(e.iter().any(ended));
}

#[test]
fn an_order_to_end_a_run_that_is_not_here_lets_the_controller_go_on() {
    let (mut b, _) = Bench::new(vec![]);
    b.welcome(&[]);
    let end =
        ControllerToNode::EndJob { job: RUN.job, sluid: RUN.sluid, state: JobState::Cancelled, reason: Reason::None };
    assert!(matches!(reports(&b.tell(AgentInput::Controller(end)))[..], [(1, AgentReport::NodeReleased { .. })]));
}

#[test]
fn a_shepherd_is_started_once_and_its_asker_answered() {
    let (mut b, _) = Bench::new(vec![]);
    let e = b.tell(AgentInput::StartShepherd { query: 4, order: order(&["n0", "n1"]), manager: "a:1".into() });
    assert!(matches!(&e[..], [AgentEffect::Prepare { manager: Some(m), .. }] if m == "a:1"));
    let e = b.tell(AgentInput::Prepared { run: RUN, result: Ok(8) });
    assert!(e.contains(&AgentEffect::AnswerShepherd { query: 4, answer: AgentToStepMgr::Started }));
}
