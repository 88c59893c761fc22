//! One turn after another, with a disk that is slow; and letters to owners that are gone.
#![allow(clippy::unwrap_used)]

use super::{Effect, EffectOf, FreshIds, Out, Owner, Stage, Turn, outbox::Outbox, perform};
use crate::{
    job::fixtures::{CountingIds, proposal},
    messages::{
        job::JobInput,
        letter::Letter,
        node::{NodeInput, ReserveRefusal},
    },
};
use garrick_events::event::ControllerEvent;
use garrick_model::{
    ids::{JobId, Sluid},
    messages::node::{AgentReport, ControllerToNode},
    state::Reason,
    time::Timestamp,
};

/// Owns a number. What it is told it adds; what is even it saves first.
#[derive(Default)]
struct Sum(u64);

impl Owner for Sum {
    type Input = u64;
    type Timer = u64;
    type Shown = u64;
    type Answer = u64;
    type Errand = u64;

    fn handle(&mut self, now: Timestamp, _: &mut dyn FreshIds, input: u64, out: &mut Out<Self>) {
        self.0 += input;
        if input.is_multiple_of(2) {
            out.push(Effect::Save(ControllerEvent::Started { epoch: input }));
        }
        out.push(Effect::Publish(self.0));
        out.push(Effect::Do(input));
        out.push(Effect::SetTimer { timer: input, at: now });
        out.push(Effect::ClearTimer(input));
        if input.is_multiple_of(2) {
            out.push(Effect::Save(ControllerEvent::Started { epoch: input + 1 }));
        }
        out.push(Effect::Answer { request: input, answer: self.0 });
        out.push(Effect::Tell(Letter::Outcome { pass: input, accepted: true }));
        out.push(Effect::Stop);
    }

    fn timer(timer: u64) -> u64 {
        timer
    }
}

#[derive(Default)]
struct Story(Vec<String>);

impl Stage<Sum> for Story {
    fn tell(&mut self, letter: Letter) {
        self.0.push(format!("tell {letter:?}"));
    }

    fn run(&mut self, errand: u64) {
        self.0.push(format!("do {errand}"));
    }

    fn set_timer(&mut self, timer: u64, at: Timestamp) {
        self.0.push(format!("set {timer} {}", at.0));
    }

    fn clear_timer(&mut self, timer: u64) {
        self.0.push(format!("clear {timer}"));
    }

    fn publish(&mut self, shown: u64) {
        self.0.push(format!("show {shown}"));
    }

    fn answer(&mut self, request: u64, answer: u64) {
        self.0.push(format!("answer {request} {answer}"));
    }

    fn stop(&mut self) {
        self.0.push("stop".to_owned());
    }
}

fn all_of(input: u64, sum: u64) -> Vec<String> {
    let told = format!("tell Outcome {{ pass: {input}, accepted: true }}");
    let (done, set, cleared) = (format!("do {input}"), format!("set {input} 5"), format!("clear {input}"));
    vec![format!("show {sum}"), done, set, cleared, format!("answer {input} {sum}"), told, "stop".to_owned()]
}

#[test]
fn a_turns_events_are_saved_together_and_nothing_overtakes_them() {
    let (mut sum, mut outbox, mut story) = (Sum::default(), Outbox::<EffectOf<Sum>>::default(), Story::default());
    let mut tell = |input, outbox: &mut Outbox<EffectOf<Sum>>| {
        let mut out = Vec::new();
        sum.handle(Timestamp(5), &mut CountingIds { job: 1, sluid: 1 }, input, &mut out);
        Turn::<Sum>::of(out).queue(outbox)
    };
    let mut go_on = |outbox: &mut Outbox<EffectOf<Sum>>| {
        while let Some(effects) = outbox.take_ready() {
            perform(effects, &mut story);
        }
        std::mem::take(&mut story.0)
    };
    assert_eq!(tell(1, &mut outbox), None, "it saves nothing");
    assert_eq!(go_on(&mut outbox), all_of(1, 1), "in the order in which it wrote them down");
    let (first, events) = tell(2, &mut outbox).unwrap();
    let epochs = [2, 3].map(|epoch| ControllerEvent::Started { epoch });
    assert_eq!(events, epochs, "also what it saved behind other effects");
    assert_eq!(tell(3, &mut outbox), None);
    let (second, _) = tell(4, &mut outbox).unwrap();
    assert!(go_on(&mut outbox).is_empty());
    outbox.saved(second);
    assert!(go_on(&mut outbox).is_empty(), "the turn before is not saved");
    outbox.saved(first);
    assert_eq!(go_on(&mut outbox), [all_of(2, 3), all_of(3, 6), all_of(4, 10)].concat());
    assert!(outbox.is_empty());
}

fn release(node: &str, sluid: u64, drain: Option<&str>) -> Letter {
    let (job, sluid, drain) = (JobId(7), Sluid(sluid), drain.map(str::to_owned));
    Letter::Node(node.to_owned(), NodeInput::Release { job, sluid, attempt: None, drain })
}

#[test]
fn nobody_waits_for_an_owner_that_is_gone() {
    let (job, sluid) = (JobId(7), Sluid(70));
    let node = || "n0".to_owned();
    let back = |input| Letter::Job(job, input).undeliverable();
    assert_eq!(back(JobInput::Subscribe { by: JobId(8) }), [Letter::Job(JobId(8), JobInput::Fact { job, fact: None })]);
    let proposed = JobInput::Start(Box::new(proposal(7, None, &["n0"])));
    assert_eq!(back(proposed), [Letter::Outcome { pass: 1, accepted: false }]);
    assert_eq!(back(JobInput::NodeLost { node: node(), sluid }), [release("n0", 70, None)]);
    let held = back(JobInput::RunHeld { node: node(), sluid, requeue: None });
    let [Letter::Node(to, NodeInput::Send(frame)), given_back] = &held[..] else { panic!("{held:?}") };
    let ends = matches!(**frame, ControllerToNode::EndJob { job: JobId(7), sluid: Sluid(70), .. });
    assert!(to == "n0" && ends && *given_back == release("n0", 70, None), "{held:?}");
    assert!(back(JobInput::Priority(3)).is_empty());

    let unparked = NodeInput::Unpark { job, sluid, attempt: 4 };
    let no = JobInput::Unparked { attempt: 4, node: node(), granted: false };
    assert_eq!(Letter::Node(node(), unparked).undeliverable(), [Letter::Job(job, no)]);
    assert!(release("n0", 70, None).undeliverable().is_empty(), "what a node had goes with it");
    let refusal = ReserveRefusal::OutOfService("gone");
    assert_eq!(refusal.to_string(), "node is gone");
}

/// What simulations and tests left out while each had a hand-written one of its own.
#[test]
fn a_report_about_a_job_that_is_forgotten_is_acknowledged_and_drains_a_node_whose_epilog_failed() {
    let report = |report| {
        let input = JobInput::Report { node: "n0".to_owned(), seq: 9, report: Box::new(report) };
        Letter::Job(JobId(7), input).undeliverable()
    };
    let (job, sluid) = (JobId(7), Sluid(70));
    let safe = || Letter::Node("n0".to_owned(), NodeInput::ReportSafe { seq: 9 });
    let released = |epilog_failed: Option<&str>| {
        let epilog_failed = epilog_failed.map(str::to_owned);
        report(AgentReport::NodeReleased { job, sluid, epilog_failed, unkillable: None })
    };
    assert_eq!(released(None), [release("n0", 70, None), safe()]);
    assert_eq!(released(Some("exit 1")), [release("n0", 70, Some("Epilog error")), safe()]);
    let failed = AgentReport::JobLaunchFailed {
        job,
        sluid,
        reason: Reason::None,
        detail: "prolog".to_owned(),
        drain_node: false,
    };
    assert_eq!(report(failed), [safe()]);
}
