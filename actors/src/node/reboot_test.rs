//! Rules of reboots.
#![allow(clippy::unwrap_used)]

use super::{
    core::NodeCore,
    core_test::{registration, settings},
    effects::{NodeEffect, NodeErrand},
};
use crate::messages::{
    job::JobInput,
    letter::Letter,
    node::{NodeInput, NodeSite, NodeTimer, ReserveAsk},
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::{
        command::{NodeChange, NodeStateChange, RebootOrder, ResumeAfter},
        node::ControllerToNode,
    },
    node_shape::NodeShare,
    refusal::Refusal,
    resources::CpuSet,
    state::NodeBase,
    time::Timestamp,
    view::AfterReboot,
};
use garrick_plan::snapshot::{caps::CpuCaps, request::NodeUse};
use std::sync::Arc;

const NOW: Timestamp = Timestamp::from_secs(1000);
const LATER: Timestamp = Timestamp::from_secs(1020);

fn register(core: &mut NodeCore, now: Timestamp, boot: &str) -> Vec<NodeEffect> {
    let mut it = registration(1, vec![]);
    it.facts.boot_id = Some(boot.to_owned());
    it.facts.boot_time = Timestamp(0);
    let mut out = Vec::new();
    core.handle(now, NodeInput::Registered(Box::new(it)), &mut out);
    out
}

fn up() -> NodeCore {
    let mut core = NodeCore::new(NOW, settings(0), Arc::new(NodeSite::default()), None, []);
    register(&mut core, NOW, "first");
    core
}

fn change(core: &mut NodeCore, change: NodeChange) -> (Result<(), Refusal>, Vec<NodeEffect>) {
    let (request, by) = (3, (0, "root".to_owned()));
    let mut out = Vec::new();
    core.handle(NOW, NodeInput::Update { request, by, change }, &mut out);
    let answer = out.iter().find_map(|effect| match effect {
        NodeEffect::Answer { answer, .. } => Some(answer.clone()),
        _ => None,
    });
    (answer.unwrap(), out)
}

fn reboot(core: &mut NodeCore, asap: bool, next: Option<AfterReboot>) -> (Result<(), Refusal>, Vec<NodeEffect>) {
    change(core, NodeChange { reboot: Some(RebootOrder { asap, next }), ..NodeChange::default() })
}

fn cancel(core: &mut NodeCore) -> Result<(), Refusal> {
    change(core, NodeChange { state: Some(NodeStateChange::CancelReboot), ..NodeChange::default() }).0
}

/// The node is told to reboot, after that is saved.
fn is_told(out: &[NodeEffect]) -> bool {
    let told = out.iter().position(|effect| {
        matches!(effect, NodeEffect::Do(NodeErrand::Send { frame, .. }) if **frame == ControllerToNode::Reboot)
    });
    told.is_some_and(|told| out[..told].iter().any(|effect| matches!(effect, NodeEffect::Save(_))))
}

fn reason(core: &NodeCore) -> String {
    core.view().reason.map(|reason| reason.text).unwrap_or_default()
}

/// A job holds two CPUs.
fn busy() -> NodeCore {
    let mut core = up();
    reserve(&mut core, false);
    core
}

/// Does the job wait for the node to boot?
fn reserve(core: &mut NodeCore, reboot: bool) -> bool {
    let share = NodeShare { cpus: CpuSet::from(0..2), memory: None, tasks: 1, gres: Vec::new() };
    let ask = ReserveAsk {
        job: JobId(1),
        sluid: Sluid(1),
        attempt: 1,
        uid: 1001,
        mcs_label: None,
        share,
        usage: NodeUse::Cpus,
        partition: "debug".to_owned(),
        caps: CpuCaps::NONE,
        left_to_system: None,
        reboot,
        expected_end: None,
        generation: core.view().generation,
    };
    let mut out = Vec::new();
    core.handle(NOW, NodeInput::Reserve(Box::new(ask)), &mut out);
    assert_eq!(core.view().holds.len(), 1);
    let granted = out.iter().find_map(|effect| match effect {
        NodeEffect::Tell(Letter::Job(_, JobInput::Reserved { result: Ok(grant), .. })) => Some(grant.boots),
        _ => None,
    });
    granted.unwrap()
}

fn rebooting_site() -> Arc<NodeSite> {
    Arc::new(NodeSite { reboots: true, ..NodeSite::default() })
}

const ASKED: NodeInput = NodeInput::Reboot { job: JobId(1), sluid: Sluid(1) };

fn told_job(out: &[NodeEffect]) -> Vec<&JobInput> {
    let mut told = Vec::new();
    for effect in out {
        if let NodeEffect::Tell(Letter::Job(_, input)) = effect {
            told.push(input);
        }
    }
    told
}

#[test]
fn a_node_is_rebooted_for_a_run_which_begins_when_it_is_back() {
    let mut core = NodeCore::new(NOW, settings(0), rebooting_site(), None, []);
    register(&mut core, NOW, "first");
    assert!(reserve(&mut core, true));
    let mut out = Vec::new();
    core.handle(NOW, ASKED, &mut out);
    assert!(is_told(&out), "{out:?}");
    let view = core.view();
    assert_eq!((view.base, view.flags.reboot_issued, view.holds.len()), (NodeBase::Up, true, 1));
    // Asked again, and registered again, by the same boot: nothing more is done, and the run is not missed.
    let mut out = Vec::new();
    core.handle(NOW, ASKED, &mut out);
    assert_eq!(told_job(&out), Vec::<&JobInput>::new());
    assert!(!is_told(&out));
    assert_eq!(told_job(&register(&mut core, LATER, "first")), Vec::<&JobInput>::new());
    // It is silent meanwhile.
    let late = Timestamp::from_secs(5000);
    for _ in 0..5 {
        core.handle(late, NodeInput::Timer(NodeTimer::Ping), &mut Vec::new());
    }
    core.handle(late, NodeInput::Timer(NodeTimer::Silence), &mut Vec::new());
    assert_eq!(core.view().base, NodeBase::Up);
    let out = register(&mut core, LATER, "second");
    let ready = JobInput::NodeReady { node: core.view().name, sluid: Sluid(1), address: core.target() };
    assert!(told_job(&out).contains(&&ready), "{out:?}");
    assert!(!core.view().flags.reboot_issued && core.view().base == NodeBase::Up);
    // A controller that did not hear of it asks once more, and is told.
    let mut again = NodeCore::new(LATER, settings(0), rebooting_site(), Some(core.saved().clone()), core.kept());
    let mut out = Vec::new();
    again.handle(LATER, ASKED, &mut out);
    assert!(told_job(&out).contains(&&ready) && !is_told(&out), "{out:?}");
}

#[test]
fn a_node_that_does_not_come_back_for_a_run_is_lost_to_it() {
    let mut core = NodeCore::new(NOW, settings(0), rebooting_site(), None, []);
    register(&mut core, NOW, "first");
    assert!(reserve(&mut core, true));
    core.handle(NOW, ASKED, &mut Vec::new());
    let mut out = Vec::new();
    core.handle(Timestamp::from_secs(1060), NodeInput::Timer(NodeTimer::Reboot), &mut out);
    assert!(matches!(told_job(&out)[..], [JobInput::NodeLost { sluid: Sluid(1), .. }]), "{out:?}");
    assert_eq!((core.view().base, reason(&core).as_str()), (NodeBase::Down, "reboot timed out"));
}

/// A node that was told to reboot for a run, or that is away and will be told.
fn rebooting_for_run(issued: bool) -> NodeCore {
    let mut core = NodeCore::new(NOW, settings(0), rebooting_site(), None, []);
    register(&mut core, NOW, "first");
    assert!(reserve(&mut core, true));
    if !issued {
        core.handle(NOW, NodeInput::LinkGone { conn: 1 }, &mut Vec::new());
    }
    core.handle(NOW, ASKED, &mut Vec::new());
    assert_eq!(core.view().flags.reboot_issued, issued);
    core
}

#[test]
fn a_run_that_waits_for_a_reboot_gets_it_whatever_an_administrator_wants() {
    let ready = |out: &[NodeEffect]| told_job(out).iter().any(|input| matches!(input, JobInput::NodeReady { .. }));
    let mut resumed = rebooting_for_run(true);
    change(&mut resumed, NodeChange { state: Some(NodeStateChange::Resume), ..NodeChange::default() }).0.unwrap();
    assert!(resumed.view().flags.reboot_issued);
    assert!(ready(&register(&mut resumed, LATER, "second")));
    let mut drained = rebooting_for_run(true);
    let (state, resume_after) = (Some(NodeStateChange::Drain), Some(ResumeAfter::Secs(10)));
    change(&mut drained, NodeChange { state, resume_after, ..NodeChange::default() }).0.unwrap();
    drained.handle(LATER, NodeInput::Timer(NodeTimer::Resume), &mut Vec::new());
    assert!(drained.view().flags.reboot_issued && !drained.view().flags.drain);
    assert!(ready(&register(&mut drained, LATER, "second")));
    let mut waiting = rebooting_for_run(false);
    assert!(cancel(&mut waiting).is_err(), "none that an administrator asked for");
    assert!(waiting.view().flags.reboot_requested);
}

#[test]
fn a_reboot_that_an_administrator_asked_for_is_done_with_that_for_a_run() {
    let reboots = |next| {
        let mut core = NodeCore::new(NOW, settings(0), rebooting_site(), None, []);
        register(&mut core, NOW, "first");
        assert!(reserve(&mut core, true));
        reboot(&mut core, true, next).0.unwrap();
        let mut out = Vec::new();
        core.handle(NOW, ASKED, &mut out);
        assert!(is_told(&out) && core.view().flags.drain, "{out:?}");
        register(&mut core, LATER, "second");
        core
    };
    let core = reboots(None);
    assert_eq!((core.view().flags.drain, core.view().reason), (false, None));
    // One that is to be down after it is rebooted again when the run has left it.
    let mut core = reboots(Some(AfterReboot::Down));
    assert!(core.view().flags.reboot_requested && core.view().flags.drain);
    let mut out = Vec::new();
    core.handle(LATER, NodeInput::Release { job: JobId(1), sluid: Sluid(1), attempt: None, drain: None }, &mut out);
    assert!(is_told(&out), "{out:?}");
}

#[test]
fn a_node_that_is_down_or_has_no_program_is_not_rebooted_for_a_run() {
    let mut plain = up();
    assert!(!reserve(&mut plain, true));
    let mut out = Vec::new();
    plain.handle(NOW, ASKED, &mut out);
    assert!(matches!(told_job(&out)[..], [JobInput::NodeReady { .. }]) && !is_told(&out), "{out:?}");
    let mut down = NodeCore::new(NOW, settings(0), rebooting_site(), None, []);
    register(&mut down, NOW, "first");
    assert!(reserve(&mut down, true));
    change(&mut down, NodeChange { state: Some(NodeStateChange::Down), ..NodeChange::default() }).0.unwrap();
    let mut out = Vec::new();
    down.handle(NOW, ASKED, &mut out);
    assert!(told_job(&out).is_empty() && !is_told(&out), "{out:?}");
    assert!(!down.view().flags.reboot_requested);
}

#[test]
fn no_node_is_rebooted_for_a_run_without_a_program_or_beside_another_job() {
    assert!(!reserve(&mut up(), true));
    let mut shared = NodeCore::new(NOW, settings(0), rebooting_site(), None, []);
    register(&mut shared, NOW, "first");
    assert!(!reserve(&mut shared, false));
    let share = NodeShare { cpus: CpuSet::from(2..4), memory: None, tasks: 1, gres: Vec::new() };
    let other = ReserveAsk { job: JobId(2), sluid: Sluid(2), share, ..super::core_test::ask(2, 2..4, 0) };
    let mut out = Vec::new();
    shared.handle(NOW, NodeInput::Reserve(Box::new(ReserveAsk { reboot: true, ..other })), &mut out);
    let boots =
        told_job(&out).into_iter().any(|input| matches!(input, JobInput::Reserved { result: Ok(g), .. } if g.boots));
    assert!(shared.view().holds.len() == 2 && !boots, "{out:?}");
    // A run that is over before its node was told wants nothing of it any more.
    let mut gone = NodeCore::new(NOW, settings(0), rebooting_site(), None, []);
    register(&mut gone, NOW, "first");
    assert!(reserve(&mut gone, true));
    gone.handle(NOW, NodeInput::LinkGone { conn: 1 }, &mut Vec::new());
    gone.handle(NOW, ASKED, &mut Vec::new());
    assert!(gone.view().flags.reboot_requested);
    let release = NodeInput::Release { job: JobId(1), sluid: Sluid(1), attempt: None, drain: None };
    gone.handle(NOW, release, &mut Vec::new());
    assert!(!is_told(&register(&mut gone, LATER, "first")) && !gone.view().flags.reboot_requested);
}

#[test]
fn a_node_is_rebooted_when_nothing_runs_there_and_is_in_service_after_it() {
    let mut core = busy();
    let (answer, out) = reboot(&mut core, true, None);
    assert!(answer.is_ok() && !is_told(&out));
    let flags = core.view().flags;
    assert!(flags.drain && flags.reboot_requested && !flags.reboot_issued);
    assert_eq!((reason(&core).as_str(), core.view().after_reboot), ("Reboot ASAP", Some(AfterReboot::Undrain)));
    let release = NodeInput::Release { job: JobId(1), sluid: Sluid(1), attempt: None, drain: None };
    let mut out = Vec::new();
    core.handle(NOW, release, &mut out);
    assert!(is_told(&out), "{out:?}");
    let view = core.view();
    assert_eq!((view.base, view.flags.reboot_issued), (NodeBase::Down, true));
    assert_eq!(reason(&core), "Reboot ASAP : reboot issued");
    // Its daemon connects again before the machine goes down.
    let out = register(&mut core, LATER, "first");
    assert!(!is_told(&out) && core.view().base == NodeBase::Down);
    register(&mut core, LATER, "second");
    let view = core.view();
    assert_eq!((view.base, view.flags.drain, view.reason, view.after_reboot), (NodeBase::Up, false, None, None));
    assert!(!view.flags.reboot_issued);
}

#[test]
fn it_stays_as_was_asked_for() {
    for (drained, next, base, drain, why) in [
        (false, Some(AfterReboot::Down), NodeBase::Down, false, "reboot requested : reboot issued : reboot complete"),
        (false, None, NodeBase::Up, false, ""),
        (true, None, NodeBase::Up, true, "broken fan : reboot issued"),
        (true, Some(AfterReboot::Resume), NodeBase::Up, false, ""),
    ] {
        let mut core = up();
        if drained {
            let (state, why) = (Some(NodeStateChange::Drain), Some("broken fan".to_owned()));
            change(&mut core, NodeChange { state, reason: why, ..NodeChange::default() }).0.unwrap();
        }
        assert!(is_told(&reboot(&mut core, drained, next).1));
        register(&mut core, LATER, "second");
        let view = core.view();
        assert_eq!((view.base, view.flags.drain, reason(&core).as_str()), (base, drain, why));
    }
}

#[test]
fn a_reboot_is_cancelled_before_it_is_issued_and_asked_for_once() {
    let mut core = busy();
    assert!(cancel(&mut core).is_err());
    reboot(&mut core, true, None).0.unwrap();
    assert!(reboot(&mut core, false, None).0.is_err());
    cancel(&mut core).unwrap();
    let view = core.view();
    assert_eq!((view.flags.drain, view.flags.reboot_requested, view.reason), (false, false, None));
    let mut idle = up();
    reboot(&mut idle, false, None).0.unwrap();
    assert!(cancel(&mut idle).is_err(), "it is issued");
}

#[test]
fn a_node_that_does_not_come_back_in_time_is_down_and_a_restart_of_the_controller_waits_on() {
    let mut core = up();
    reboot(&mut core, false, None).0.unwrap();
    // A controller that starts again neither forgets it nor issues it again.
    let site = Arc::new(NodeSite::default());
    let mut again = NodeCore::new(LATER, settings(0), site, Some(core.saved().clone()), []);
    let mut out = Vec::new();
    again.resume(LATER, &mut out);
    let timer = NodeEffect::SetTimer { timer: NodeTimer::Reboot, at: Timestamp::from_secs(1060) };
    assert!(out.contains(&timer), "{out:?}");
    assert!(!is_told(&register(&mut again, LATER, "first")));
    again.handle(Timestamp::from_secs(1060), NodeInput::Timer(NodeTimer::Reboot), &mut Vec::new());
    let view = again.view();
    assert_eq!((view.base, view.flags.reboot_issued), (NodeBase::Down, false));
    assert_eq!(reason(&again), "reboot requested : reboot issued : reboot timed out");
}

#[test]
fn a_node_that_was_taken_out_for_some_time_is_in_service_after_it() {
    let taken = |state, after| NodeChange {
        state: Some(state),
        reason: Some("fan".to_owned()),
        resume_after: Some(after),
        ..NodeChange::default()
    };
    for state in [NodeStateChange::Drain, NodeStateChange::Down] {
        let mut core = up();
        let (answer, out) = change(&mut core, taken(state, ResumeAfter::Secs(60)));
        let at = NOW.plus(std::time::Duration::from_secs(60));
        assert!(answer.is_ok() && out.contains(&NodeEffect::SetTimer { timer: NodeTimer::Resume, at }), "{out:?}");
        assert_eq!(core.view().resume_at, Some(at));
        core.handle(at, NodeInput::Timer(NodeTimer::Resume), &mut Vec::new());
        let view = core.view();
        assert_eq!((view.base, view.flags.drain, view.reason, view.resume_at), (NodeBase::Up, false, None, None));
        change(&mut core, taken(state, ResumeAfter::Secs(60))).0.unwrap();
        // Who says it anew without a time, or with -1, wants it to stay so.
        change(&mut core, taken(state, ResumeAfter::Never)).0.unwrap();
        core.handle(at, NodeInput::Timer(NodeTimer::Resume), &mut Vec::new());
        assert!(core.view().flags.drain || core.view().base == NodeBase::Down);
    }
}
