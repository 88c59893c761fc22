//! Components of a heterogeneous job: what becomes of them when words between them are lost, and what may be said to one
//! alone.
#![allow(clippy::unwrap_used)]

use super::{
    core::JobCore,
    effects::JobEffect,
    fixtures::{ALICE, Bench, proposal},
};
use crate::messages::{
    het::HetMessage,
    job::{JobCommand, JobInput, JobTimer},
    letter::Letter,
    node::{Grant, NodeInput},
};
use garrick_events::{
    records::job::{Afterwards, JobRecord, Phase, PreemptMark, Run},
    testing::record,
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::node::HetComponent,
    refusal::Refusal,
    spec::{JobKind, JobSpec},
    state::JobState,
    testing::spec,
    time::Timestamp,
    view::PreemptTimes,
};
use garrick_plan::proposals::StartProposal;
use std::time::Duration;

const LEADER: JobId = JobId(7);
const OTHER: JobId = JobId(8);
const AGAIN: Afterwards = Afterwards::Requeue { hold: None, delay: true };

fn part(offset: u32) -> JobRecord {
    part_with(offset, spec())
}

fn part_with(offset: u32, spec: JobSpec) -> JobRecord {
    let kind = if offset == 0 { JobKind::Batch } else { JobKind::Allocation };
    record(LEADER.0 + offset, JobSpec { kind, het: Some((LEADER, offset)), het_size: 2, ..spec })
}

fn hears(job: &mut Bench, message: HetMessage) -> Vec<JobEffect> {
    let from = if job.core.record().id == LEADER { OTHER } else { LEADER };
    job.send(JobInput::Het { from, message: Box::new(message) })
}

fn told(out: &[JobEffect]) -> Vec<HetMessage> {
    let to = |effect: &JobEffect| match effect {
        JobEffect::Tell(Letter::Job(_, JobInput::Het { message, .. })) => Some((**message).clone()),
        _ => None,
    };
    out.iter().filter_map(to).collect()
}

fn names(out: &[JobEffect]) -> Vec<&'static str> {
    told(out).iter().map(HetMessage::name).collect()
}

fn asks(out: &[JobEffect], job: JobId) -> bool {
    out.iter().any(|e| matches!(e, JobEffect::Tell(Letter::Job(of, JobInput::Subscribe { .. })) if *of == job))
}

/// Another owner in place of one that failed, and what it does first.
fn built_anew(job: &mut Bench) -> Vec<JobEffect> {
    let left = job.core.leftover();
    let mut core = JobCore::new(job.core.record().clone(), std::sync::Arc::default());
    let mut out = Vec::new();
    core.resume(job.now, &mut job.ids, left, &mut out);
    job.core = core;
    out
}

fn yes(node: &str) -> JobInput {
    JobInput::Reserved { attempt: 1, node: node.to_owned(), result: Ok(Grant::at(format!("{node}:6818"))) }
}

/// The other component, which has prepared its part, and what it said of that.
fn prepared() -> (Bench, HetMessage) {
    let mut other = Bench::new(part(1)).0;
    let proposal = Box::new(proposal(OTHER.0, None, &["n1"]));
    hears(&mut other, HetMessage::Prepare { attempt: 1, requeue: true, proposal });
    let said = told(&other.send(yes("n1")));
    let [word @ HetMessage::Prepared { .. }] = said.as_slice() else { panic!("{said:?}") };
    (other, word.clone())
}

fn run_in(word: &HetMessage) -> (Box<Run>, Box<HetComponent>) {
    match word {
        HetMessage::Prepared { run, component, .. } => (run.clone(), component.clone()),
        other => panic!("{other:?}"),
    }
}

/// The other component, which runs.
fn other_running() -> Bench {
    let (mut other, word) = prepared();
    let (run, component) = run_in(&word);
    hears(&mut other, HetMessage::Granted { sluid: component.sluid, run });
    other.started();
    assert_eq!(other.state(), JobState::Running);
    other
}

/// The leader, which has recorded both allocations some time after the other's part was prepared; and what it granted.
fn leader_starting() -> (Bench, HetMessage) {
    let mut leader = Bench::new(part(0)).0;
    let others = vec![proposal(OTHER.0, None, &["n1"])];
    leader.send(JobInput::Start(Box::new(StartProposal { others, ..proposal(LEADER.0, None, &["n0"]) })));
    hears(&mut leader, prepared().1);
    leader.now = leader.now.plus(Duration::from_secs(3));
    let out = leader.send(yes("n0"));
    let granted = out.iter().find_map(|effect| match effect {
        JobEffect::Tell(Letter::Job(OTHER, JobInput::Het { message, .. }))
            if matches!(**message, HetMessage::Granted { .. }) =>
        {
            Some((**message).clone())
        }
        _ => None,
    });
    (leader, granted.unwrap())
}

#[test]
fn each_component_asks_for_the_reboots_of_its_own_nodes() {
    let reboots = || JobSpec { reboot: true, ..spec() };
    let boots = |node: &str| {
        let grant = Grant { boots: true, ..Grant::at(format!("{node}:6818")) };
        JobInput::Reserved { attempt: 1, node: node.to_owned(), result: Ok(grant) }
    };
    let asked = |out: &[JobEffect]| -> Vec<String> {
        let node = |effect: &JobEffect| match effect {
            JobEffect::Tell(Letter::Node(node, NodeInput::Reboot { .. })) => Some(node.clone()),
            _ => None,
        };
        out.iter().filter_map(node).collect()
    };
    let mut other = Bench::new(part_with(1, reboots())).0;
    let own = Box::new(proposal(OTHER.0, None, &["n1"]));
    hears(&mut other, HetMessage::Prepare { attempt: 1, requeue: true, proposal: own });
    let said = told(&other.send(boots("n1")));
    let mut leader = Bench::new(part_with(0, reboots())).0;
    let others = vec![proposal(OTHER.0, None, &["n1"])];
    leader.send(JobInput::Start(Box::new(StartProposal { others, ..proposal(LEADER.0, None, &["n0"]) })));
    hears(&mut leader, said[0].clone());
    let out = leader.send(boots("n0"));
    assert_eq!(asked(&out), ["n0"]);
    let granted = told(&out).into_iter().find(|message| matches!(message, HetMessage::Granted { .. })).unwrap();
    assert_eq!(asked(&hears(&mut other, granted)), ["n1"]);
    assert_eq!(other.state(), JobState::Configuring);
}

#[test]
fn a_component_is_not_prepared_with_a_qos_that_it_does_not_name() {
    for (chosen, declined) in [(Some("b"), false), (Some("c"), true), (None, true)] {
        let mut other = Bench::new(part_with(1, JobSpec { qos: Some("a,b".to_owned()), ..spec() })).0;
        let own = StartProposal { qos: chosen.map(str::to_owned), ..proposal(OTHER.0, None, &["n1"]) };
        let message = HetMessage::Prepare { attempt: 1, requeue: true, proposal: Box::new(own) };
        let said = told(&hears(&mut other, message));
        assert_eq!(said == [HetMessage::Declined { attempt: 1 }], declined, "{chosen:?}: {said:?}");
    }
}

fn end(state: JobState, then: Afterwards) -> HetMessage {
    HetMessage::End { state, then, by: None }
}

#[test]
fn one_that_is_to_be_queued_again_is_not_cancelled_alone() {
    let refused = Err(Refusal::NotWholeHetJob);
    let mut other = other_running();
    hears(&mut other, end(JobState::Cancelled, AGAIN));
    assert_eq!((other.order(JobCommand::Cancel), other.view().ending), (refused.clone(), Some(JobState::Cancelled)));
    other.ended(JobState::Cancelled, 0);
    assert_eq!((other.order(JobCommand::Cancel), other.state()), (refused.clone(), JobState::Completing));
    other.released("n1");
    assert_eq!((other.order(JobCommand::Cancel), other.state()), (refused, JobState::Pending));
    assert_eq!(other.core.record().restarts, 1);
}

#[test]
fn the_whole_is_cancelled_while_it_is_queued_again() {
    // However far the other has come by then.
    for steps in 0..4 {
        let mut other = other_running();
        hears(&mut other, end(JobState::Cancelled, AGAIN));
        if steps > 0 {
            other.ended(JobState::Cancelled, 0);
        }
        if steps > 1 {
            other.released("n1");
        }
        if steps > 2 {
            built_anew(&mut other);
        }
        hears(&mut other, HetMessage::End { state: JobState::Cancelled, then: Afterwards::Over, by: Some(1001) });
        if steps == 0 {
            other.ended(JobState::Cancelled, 0);
        }
        other.released("n1");
        assert_eq!(other.state(), JobState::Cancelled, "{steps}");
        assert!(other.core.is_over());
    }
}

#[test]
fn one_that_was_cancelled_alone_comes_back_with_the_others() {
    let mut other = other_running();
    assert_eq!(other.order(JobCommand::Cancel), Ok(()));
    hears(&mut other, end(JobState::Cancelled, AGAIN));
    assert_eq!(other.order(JobCommand::Cancel), Err(Refusal::NotWholeHetJob));
    other.ended(JobState::Cancelled, 0);
    other.released("n1");
    assert_eq!(other.state(), JobState::Pending);
}

/// Found by simulation: the leader's owner failed over its grant, and the next one granted the other its own start.
#[test]
fn what_was_prepared_is_granted_as_it_was_recorded() {
    let (mut leader, granted) = leader_starting();
    let (_, said_again) = prepared();
    assert_ne!(run_in(&said_again).0.start, leader.core.record().phase.run().unwrap().start);
    let lost = HetMessage::Lost { sluid: Sluid(8) };
    for again in [false, true] {
        if again {
            built_anew(&mut leader);
        }
        for word in [said_again.clone(), lost.clone()] {
            assert_eq!(told(&hears(&mut leader, word)), [granted.clone(), HetMessage::Ask], "{again}");
        }
    }
    // And so after the run that it is part of, with what has come of that.
    leader.order(JobCommand::Requeue { hold: false }).unwrap();
    leader.ended(JobState::Cancelled, 0);
    leader.released("n0");
    assert_eq!(leader.state(), JobState::Pending);
    for word in [said_again, lost] {
        built_anew(&mut leader);
        assert_eq!(told(&hears(&mut leader, word)), [granted.clone(), HetMessage::Back]);
    }
    // Of any other run nothing is recorded.
    let unknown = Sluid(99);
    let out = told(&hears(&mut leader, HetMessage::Lost { sluid: unknown }));
    assert_eq!(out, [HetMessage::NotGranted { sluid: unknown }]);
}

/// The leader's owner failed over its grant; the run ends before the other has asked again.
#[test]
fn an_end_waits_for_the_grant_that_has_not_come() {
    for lives in 1..3 {
        let (mut other, mut word) = prepared();
        let (run, component) = run_in(&word);
        if lives > 1 {
            assert_eq!(told(&built_anew(&mut other)), [HetMessage::Lost { sluid: Sluid(8) }]);
        }
        let out = hears(&mut other, end(JobState::Cancelled, Afterwards::Over));
        assert!(out.is_empty(), "nothing is given back: {out:?}");
        word = told(&other.send(JobInput::Timer(JobTimer::Commit))).remove(0);
        assert_eq!(word.name(), if lives > 1 { "HetLost" } else { "HetPrepared" });
        let out = hears(&mut other, HetMessage::Granted { sluid: component.sluid, run });
        assert_eq!(other.view().ending, Some(JobState::Cancelled), "{out:?}");
        assert!(matches!(other.core.record().phase, Phase::Starting(_)));

        let (mut other, _) = prepared();
        if lives > 1 {
            built_anew(&mut other);
        }
        hears(&mut other, end(JobState::Cancelled, Afterwards::Over));
        let no =
            if lives > 1 { HetMessage::NotGranted { sluid: Sluid(8) } } else { HetMessage::Abandon { attempt: 1 } };
        let out = hears(&mut other, no);
        assert!(
            out.iter()
                .any(|e| matches!(e, JobEffect::Tell(Letter::Node(node, NodeInput::Release { .. })) if node == "n1")),
            "{out:?}"
        );
        assert_eq!(other.state(), JobState::Cancelled);
    }
}

/// Found by simulation: a repeated yes came to the next owner before the leader's word, which gave back what the leader had granted.
#[test]
fn a_repeated_yes_gives_nothing_back_while_the_leader_decides() {
    let (mut other, word) = prepared();
    let (run, component) = run_in(&word);
    built_anew(&mut other);
    let licensed = JobInput::LicensesReserved { attempt: 1, granted: true };
    for repeated in [yes("n1"), licensed] {
        assert_eq!(other.send(repeated.clone()), [], "{repeated:?}");
    }
    let missing = JobInput::RunMissing { node: "n1".to_owned(), sluid: component.sluid };
    assert_eq!(other.send(missing), []);
    // One of an attempt that nobody decides about goes back.
    let earlier = JobInput::Reserved { attempt: 0, node: "n1".to_owned(), result: Ok(Grant::at("n1:6818".to_owned())) };
    let out = other.send(earlier);
    assert!(
        matches!(&out[..], [JobEffect::Tell(Letter::Node(_, NodeInput::Release { attempt: Some(0), .. }))]),
        "{out:?}"
    );
    hears(&mut other, HetMessage::Granted { sluid: component.sluid, run });
    assert_eq!(other.send(yes("n1")), [], "its run has the node");
}

#[test]
fn a_prepared_component_keeps_its_nodes_whatever_they_say_of_having_let_go() {
    let (mut other, word) = prepared();
    let (run, component) = run_in(&word);
    for _ in 0..2 {
        let out = other.released("n1");
        assert!(matches!(&out[..], [JobEffect::Tell(Letter::Node(_, NodeInput::ReportSafe { .. }))]), "{out:?}");
        built_anew(&mut other);
    }
    hears(&mut other, HetMessage::Granted { sluid: component.sluid, run });
    assert_eq!(other.state(), JobState::Configuring);
}

#[test]
fn what_is_prepared_is_given_back_when_the_leader_is_not_known_any_more() {
    for lives in 1..3 {
        let (mut other, _) = prepared();
        if lives > 1 {
            built_anew(&mut other);
        }
        let out = other.send(JobInput::Fact { job: LEADER, fact: None });
        assert!(
            out.iter()
                .any(|e| matches!(e, JobEffect::Tell(Letter::Node(node, NodeInput::Release { .. })) if node == "n1")),
            "{out:?}"
        );
        assert_eq!(other.state(), JobState::Cancelled);
    }
}

/// Found by simulation: the owner of a component failed over the word that all ends, and the next one was told nothing.
#[test]
fn a_component_that_asks_hears_what_has_come_of_its_leader() {
    let asked = |leader: &mut Bench| told(&leader.send(JobInput::Subscribe { by: OTHER }));
    let mut leader = Bench::new(part(0)).0;
    assert_eq!(asked(&mut leader), [], "it waits, as it did from the beginning");
    let (mut leader, _) = leader_starting();
    assert_eq!(asked(&mut leader), [HetMessage::Ask]);
    leader.started();
    let at = Timestamp::from_secs(2000);
    let times = PreemptTimes { eligible: at, at, ends: at };
    let mark = PreemptMark { times, then: AGAIN, by: JobId(3) };
    let mut preempted = leader.core.record().clone();
    preempted.apply(&garrick_events::records::job_event::JobEvent::Preempted(mark.clone())).unwrap();
    let mut gives_way = Bench::new(preempted).0;
    assert_eq!(asked(&mut gives_way), [HetMessage::GiveWay { mark: Box::new(mark) }, HetMessage::Ask]);

    leader.order(JobCommand::Requeue { hold: false }).unwrap();
    let by = Some(ALICE.uid);
    let ends = HetMessage::End { state: JobState::Cancelled, then: AGAIN, by };
    assert_eq!(asked(&mut leader), [ends]);
    leader.ended(JobState::Cancelled, 0);
    assert_eq!(asked(&mut leader), [end(JobState::Cancelled, AGAIN)]);
    leader.released("n0");
    assert_eq!(asked(&mut leader), [HetMessage::Back]);
    leader.order(JobCommand::Cancel).unwrap();
    assert_eq!(asked(&mut leader), [end(JobState::Cancelled, Afterwards::Over)]);
    // Who is none of its components hears how far it is, and no more.
    assert_eq!(told(&leader.send(JobInput::Subscribe { by: JobId(30) })), []);
}

#[test]
fn one_that_missed_that_all_is_queued_again_comes_back_too() {
    let mut other = other_running();
    let out = built_anew(&mut other);
    assert!(asks(&out, LEADER) && names(&out) == ["HetStarted"], "{out:?}");
    hears(&mut other, HetMessage::Back);
    assert_eq!(other.view().ending, Some(JobState::Cancelled));
    other.ended(JobState::Cancelled, 0);
    other.released("n1");
    assert_eq!((other.state(), other.core.record().restarts), (JobState::Pending, 1));
    // Said again, it changes nothing: nor what is prepared for the next run.
    let proposal = Box::new(proposal(OTHER.0, None, &["n1"]));
    hears(&mut other, HetMessage::Prepare { attempt: 2, requeue: true, proposal });
    let attempt = other.core.leftover().attempt;
    other.send(JobInput::Reserved { attempt, node: "n1".to_owned(), result: Ok(Grant::at("n1:6818".to_owned())) });
    assert_eq!(hears(&mut other, HetMessage::Back), []);
    // Over by itself before: back as well.
    let mut other = other_running();
    other.order(JobCommand::Cancel).unwrap();
    other.ended(JobState::Cancelled, 0);
    other.released("n1");
    hears(&mut other, HetMessage::Back);
    assert_eq!(other.state(), JobState::Pending);
}

#[test]
fn what_may_have_been_lost_is_said_and_asked_for_again_after_a_while() {
    let timer = |out: &[JobEffect]| out.iter().any(|e| matches!(e, JobEffect::SetTimer { timer: JobTimer::News, .. }));
    let news = || JobInput::Timer(JobTimer::News);
    let mut other = other_running();
    let out = other.send(news());
    assert!(asks(&out, LEADER) && names(&out) == ["HetStarted"] && timer(&out), "{out:?}");
    let (mut leader, _) = leader_starting();
    let out = leader.send(news());
    assert!(told(&out) == [HetMessage::Ask] && timer(&out), "{out:?}");
    leader.order(JobCommand::Cancel).unwrap();
    assert_eq!(names(&leader.send(news())), ["HetEnd"]);
    leader.ended(JobState::Cancelled, 0);
    leader.released("n0");
    assert!(!timer(&leader.send(news())), "then the others ask");
}
