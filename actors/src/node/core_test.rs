//! Rules of a node's life, and properties of its account.
#![allow(clippy::unwrap_used)]

use super::{
    core::{NodeCore, SEQ_BITS, to_job},
    effects::{NodeEffect, NodeErrand},
};
use crate::{
    controller::fixtures::config_of,
    messages::{
        job::JobInput,
        letter::Letter,
        node::{
            Grant, InitialState, NodeInput, NodeSettings, NodeSite, NodeTimer, Registration, ReserveAsk,
            ReserveRefusal, ReturnToService,
        },
    },
};
use garrick_events::{
    event::ControllerEvent,
    records::node::{DownCause, SavedService},
};
use garrick_model::{
    gres::{GresEntry, GresShare},
    ids::{JobId, NodeIndex, Sluid},
    messages::{
        command::{NodeChange, NodeStateChange},
        node::{AgentReport, ControllerToNode, HeldRun, NodeToController, ReleasedRun},
    },
    node_shape::{NodeShape, NodeShare, SpecCores},
    resources::{CpuSet, MemoryMib},
    state::NodeBase,
    time::Timestamp,
    view::{NodeFacts, NodeLoad},
};
use garrick_plan::snapshot::{caps::CpuCaps, request::NodeUse};
use proptest::prelude::*;
use std::{sync::Arc, time::Duration};

const NOW: Timestamp = Timestamp::from_secs(1000);

pub(crate) fn settings(index: u32) -> NodeSettings {
    NodeSettings {
        name: format!("n{index}"),
        index: NodeIndex(index),
        shape: garrick_model::testing::node(index, 4).shape,
        features: Vec::new(),
        weight: 1,
        address: format!("n{index}"),
        hostname: format!("n{index}"),
        port: 6818,
        initial: InitialState::Unknown,
        initial_reason: None,
        cloud: false,
        dynamic: false,
        neighbours: Vec::new(),
    }
}

pub(crate) fn registration(conn: u64, runs: Vec<HeldRun>) -> Registration {
    Registration {
        conn,
        facts: NodeFacts {
            hostname: "n0".to_owned(),
            shape: garrick_model::testing::node(0, 4).shape,
            arch: "x86_64".to_owned(),
            os: "Linux".to_owned(),
            version: "0.1.0".to_owned(),
            boot_time: NOW,
            agent_start: NOW,
            tracking: "process groups".to_owned(),
            boot_id: None,
            conf_hash: None,
        },
        runs,
        released: vec![],
        incarnation: 1,
        address: None,
        load: NodeLoad::default(),
    }
}

fn core_with(site: NodeSite) -> NodeCore {
    NodeCore::new(NOW, settings(0), Arc::new(site), None, [])
}

fn up() -> NodeCore {
    let mut core = core_with(NodeSite::default());
    core.handle(NOW, NodeInput::Registered(Box::new(registration(1, vec![]))), &mut Vec::new());
    core
}

pub(crate) fn ask(job: u32, cpus: std::ops::Range<u32>, generation: u64) -> ReserveAsk {
    ReserveAsk {
        job: JobId(job),
        sluid: Sluid(u64::from(job)),
        attempt: 1,
        uid: 1001,
        mcs_label: None,
        share: NodeShare { cpus: CpuSet::from(cpus), memory: Some(MemoryMib(400)), tasks: 1, gres: Vec::new() },
        usage: NodeUse::Cpus,
        partition: "debug".to_owned(),
        caps: CpuCaps::NONE,
        left_to_system: None,
        reboot: false,
        expected_end: None,
        generation,
    }
}

fn reserve(core: &mut NodeCore, ask: ReserveAsk) -> Result<Grant, ReserveRefusal> {
    let mut out = Vec::new();
    core.handle(NOW, NodeInput::Reserve(Box::new(ask)), &mut out);
    let answer = out.into_iter().find_map(|e| match e {
        NodeEffect::Tell(Letter::Job(_, JobInput::Reserved { result, .. })) => Some(result),
        _ => None,
    });
    answer.unwrap()
}

#[test]
fn an_older_generation_is_taken_while_the_share_is_free() {
    let mut core = up();
    let planned = core.view().generation;
    assert_eq!(reserve(&mut core, ask(1, 0..2, planned)), Ok(Grant::at("n0:6818".to_owned())));
    assert!(reserve(&mut core, ask(2, 2..4, planned)).is_ok());
    let current = core.view().generation;
    assert_eq!(reserve(&mut core, ask(3, 0..2, planned)), Err(ReserveRefusal::Stale { planned, current }));
    assert_eq!(reserve(&mut core, ask(3, 0..2, current)), Err(ReserveRefusal::DoesNotFit));
    // Memory: 800 of 1000 MiB are gone.
    assert_eq!(reserve(&mut core, ask(3, 4..6, current)), Err(ReserveRefusal::DoesNotFit));
    core.sanity_check().unwrap();
}

/// The release of an attempt that was given up is lost with the owner it was sent to.
#[test]
fn a_later_attempt_of_the_same_run_takes_the_place_of_an_earlier_one() {
    let mut core = up();
    assert!(reserve(&mut core, ask(1, 0..2, 0)).is_ok());
    let later = |cpus, attempt| ReserveAsk { attempt, ..ask(1, cpus, 0) };
    assert!(reserve(&mut core, later(2..4, 2)).is_ok());
    let held: Vec<_> = core.view().holds.iter().map(|hold| hold.share.cpus.to_string()).collect();
    assert_eq!(held, ["2-3"]);
    assert!(reserve(&mut core, later(0..2, 1)).is_err(), "an older one");
    core.handle(NOW, NodeInput::Completing { job: JobId(1), sluid: Sluid(1) }, &mut Vec::new());
    assert!(reserve(&mut core, later(0..2, 3)).is_err(), "a run that is being cleaned up was allocated");
    core.sanity_check().unwrap();
}

#[test]
fn an_owner_built_anew_says_again_what_may_be_lost_and_waits_for_its_agent() {
    let notices = |out: &[NodeEffect]| -> Vec<JobInput> {
        let notice = |e: &NodeEffect| match e {
            NodeEffect::Tell(Letter::Job(_, input)) => Some(input.clone()),
            _ => None,
        };
        out.iter().filter_map(notice).collect()
    };
    let mut core = up();
    assert!(reserve(&mut core, ask(1, 0..2, 0)).is_ok());
    assert!(reserve(&mut core, ask(2, 2..4, 0)).is_ok());
    core.handle(NOW, NodeInput::Keep { job: JobId(1), sluid: Sluid(1) }, &mut Vec::new());
    let mut anew = core.clone();
    let mut out = Vec::new();
    anew.resume(NOW, &mut out);
    assert_eq!(notices(&out), [missing(1)], "of what is kept its agent knows nothing");
    assert!(anew.view().flags.not_responding, "its link is closed");
    let change = NodeChange { state: Some(NodeStateChange::Down), reason: Some("x".into()), ..NodeChange::default() };
    core.handle(NOW, NodeInput::Update { request: 1, by: (0, "root".to_owned()), change }, &mut Vec::new());
    let mut out = Vec::new();
    core.resume(NOW, &mut out);

    assert_eq!(notices(&out)[..2], [lost(1), lost(2)]);
}

#[test]
fn a_repeated_reservation_is_one() {
    let mut core = up();
    assert!(reserve(&mut core, ask(1, 0..2, 0)).is_ok());
    assert!(reserve(&mut core, ask(1, 0..2, 0)).is_ok());
    assert_eq!(core.view().holds.len(), 1);
    let mut out = Vec::new();
    let release = |attempt| NodeInput::Release { job: JobId(1), sluid: Sluid(1), attempt, drain: None };
    core.handle(NOW, release(Some(0)), &mut out);
    assert_eq!(core.view().holds.len(), 1, "an earlier attempt's release");
    core.handle(NOW, release(Some(1)), &mut out);
    assert!(core.view().holds.is_empty());
}

#[test]
fn a_node_out_of_service_gets_nothing_new() {
    let mut silent = core_with(NodeSite::default());
    assert_eq!(reserve(&mut silent, ask(1, 0..2, 0)), Err(ReserveRefusal::OutOfService("unknown")));
    let mut core = up();
    let change = |state| NodeChange { state: Some(state), reason: Some("bad fan".to_owned()), ..NodeChange::default() };
    let mut out = Vec::new();
    let by = (1001, "alice".to_owned());
    core.handle(
        NOW,
        NodeInput::Update { request: 1, by: by.clone(), change: change(NodeStateChange::Drain) },
        &mut out,
    );
    assert!(matches!(&out[0], NodeEffect::Save(ControllerEvent::Node { saved, .. }) if saved.drain));
    assert_eq!(reserve(&mut core, ask(1, 0..2, 0)), Err(ReserveRefusal::OutOfService("drained")));
    assert_eq!(core.view().reason.unwrap().text, "bad fan");
    let resume = NodeChange { state: Some(NodeStateChange::Resume), ..NodeChange::default() };
    core.handle(NOW, NodeInput::Update { request: 2, by, change: resume }, &mut out);
    assert!(core.view().reason.is_none());
    assert!(reserve(&mut core, ask(1, 0..2, 0)).is_ok());
    core.handle(NOW, NodeInput::LinkGone { conn: 1 }, &mut out);
    assert_eq!(reserve(&mut core, ask(2, 2..4, 0)), Err(ReserveRefusal::OutOfService("not responding")));
}

/// From when to when it was out of service is for accounting (sreport(1): down, or fully drained).
#[test]
fn a_drained_node_is_out_of_service_when_its_last_job_has_left() {
    let at = |secs| Timestamp::from_secs(secs);
    let by = (0, "root".to_owned());
    let mut core = up();
    let service = |core: &mut NodeCore, secs, input| {
        core.handle(at(secs), input, &mut Vec::new());
        core.saved().service
    };
    let update = |state| {
        let change = NodeChange { state: Some(state), reason: Some("fans".to_owned()), ..NodeChange::default() };
        NodeInput::Update { request: 1, by: by.clone(), change }
    };
    reserve(&mut core, ask(1, 0..2, 0)).unwrap();
    assert_eq!(service(&mut core, 1010, update(NodeStateChange::Drain)), None);
    let release = NodeInput::Release { job: JobId(1), sluid: Sluid(1), attempt: None, drain: None };
    let out = Some(SavedService { out: true, since: at(1020) });
    assert_eq!(service(&mut core, 1020, release), out);
    // It is out in another way now, and that is another event.
    let down = Some(SavedService { out: true, since: at(1030) });
    assert_eq!(service(&mut core, 1030, update(NodeStateChange::Down)), down);
    let back = Some(SavedService { out: false, since: at(1040) });
    assert_eq!(service(&mut core, 1040, update(NodeStateChange::Resume)), back);
    assert_eq!(
        service(&mut core, 1050, update(NodeStateChange::Down)),
        Some(SavedService { out: true, since: at(1050) })
    );
}

#[test]
fn who_is_answered_sees_what_was_done() {
    let mut core = up();
    let change = NodeChange { state: Some(NodeStateChange::Drain), reason: Some("x".into()), ..NodeChange::default() };
    for input in
        [NodeInput::Update { request: 1, by: (0, "root".to_owned()), change }, NodeInput::Retire { request: 2 }]
    {
        let mut out = Vec::new();
        core.handle(NOW, input, &mut out);
        let shown = out.iter().position(|effect| matches!(effect, NodeEffect::Publish(_))).expect("it shows itself");
        let answered = out.iter().position(|effect| matches!(effect, NodeEffect::Answer { .. })).expect("it answers");
        assert!(shown < answered);
    }
}

#[test]
fn silence_takes_a_node_down_and_tells_its_jobs() {
    for (rts, back) in
        [(ReturnToService::Never, false), (ReturnToService::IfSilent, true), (ReturnToService::Always, true)]
    {
        let mut core = core_with(NodeSite { return_to_service: rts, ..NodeSite::default() });
        core.handle(NOW, NodeInput::Registered(Box::new(registration(1, vec![]))), &mut Vec::new());
        reserve(&mut core, ask(1, 0..2, 0)).unwrap();
        let mut out = Vec::new();
        let early = NOW.plus(Duration::from_secs(299));
        for _ in 0..3 {
            core.handle(early, NodeInput::Timer(NodeTimer::Ping), &mut out);
        }
        core.handle(early, NodeInput::Timer(NodeTimer::Silence), &mut out);
        assert_eq!(core.view().base, NodeBase::Up);
        let late = NOW.plus(Duration::from_secs(300));
        out.clear();
        core.handle(late, NodeInput::Timer(NodeTimer::Silence), &mut out);
        assert_eq!((core.view().base, core.view().reason.unwrap().text.as_str()), (NodeBase::Down, "Not responding"));
        assert!(out.contains(&to_job(JobId(1), lost(1))));
        core.handle(late, NodeInput::Registered(Box::new(registration(2, vec![]))), &mut out);
        assert_eq!(core.view().base == NodeBase::Up, back, "{rts:?}");
    }
}

/// Found by simulation: the last word on a link was half a minute old when the link broke, so the controller's patience
/// ended before the agent's lease, and jobs ran in two places.
#[test]
fn patience_begins_when_the_link_is_gone() {
    let mut core = up();
    let mut out = Vec::new();
    let gone = NOW.plus(Duration::from_secs(100));
    core.handle(gone, NodeInput::LinkGone { conn: 1 }, &mut out);
    for secs in [150, 250, 350] {
        core.handle(NOW.plus(Duration::from_secs(secs)), NodeInput::Timer(NodeTimer::Ping), &mut out);
    }
    core.handle(gone.plus(Duration::from_secs(299)), NodeInput::Timer(NodeTimer::Silence), &mut out);
    assert_eq!(core.view().base, NodeBase::Up);
    core.handle(gone.plus(Duration::from_secs(300)), NodeInput::Timer(NodeTimer::Silence), &mut out);
    assert_eq!(core.view().base, NodeBase::Down);
}

/// Found by simulation: the node's owner closed the link itself, to have all said again to a job's new owner.
#[test]
fn patience_begins_when_the_owner_closes_the_link() {
    let mut core = up();
    reserve(&mut core, ask(1, 0..2, 0)).unwrap();
    let (mut out, closed) = (Vec::new(), NOW.plus(Duration::from_secs(100)));
    core.handle(closed, NodeInput::OwnerIsNew { job: JobId(1) }, &mut out);
    assert!(out.contains(&NodeEffect::Do(NodeErrand::Close { conn: 1 })), "{out:?}");
    core.handle(closed, NodeInput::LinkGone { conn: 1 }, &mut out);
    for secs in [150, 250, 350] {
        core.handle(NOW.plus(Duration::from_secs(secs)), NodeInput::Timer(NodeTimer::Ping), &mut out);
    }
    core.handle(closed.plus(Duration::from_secs(299)), NodeInput::Timer(NodeTimer::Silence), &mut out);
    assert_eq!(core.view().base, NodeBase::Up);
    core.handle(closed.plus(Duration::from_secs(300)), NodeInput::Timer(NodeTimer::Silence), &mut out);
    assert_eq!(core.view().base, NodeBase::Down);
}

/// `ReturnToService` 0 and 1 leave a machine DOWN that was started anew unasked; 2 does not; one that was DOWN for silence
/// meanwhile is what the rule for those says.
#[test]
fn a_machine_that_was_started_anew_is_looked_at_first() {
    let with = |return_to_service| NodeSite { return_to_service, ..NodeSite::default() };
    let boot = |core: &mut NodeCore, id: &str| {
        let mut registration = registration(1, vec![]);
        registration.facts.boot_id = Some(id.to_owned());
        let mut out = Vec::new();
        core.handle(NOW, NodeInput::Registered(Box::new(registration)), &mut out);
        (core.view().base, core.view().reason.map(|reason| reason.text))
    };
    let rebooted = (NodeBase::Down, Some("Node unexpectedly rebooted".to_owned()));
    for (rule, expected) in [
        (ReturnToService::Never, rebooted.clone()),
        (ReturnToService::IfSilent, rebooted),
        (ReturnToService::Always, (NodeBase::Up, None)),
    ] {
        let mut core = core_with(with(rule));
        assert_eq!(boot(&mut core, "first"), (NodeBase::Up, None));
        assert_eq!(boot(&mut core, "first"), (NodeBase::Up, None), "a daemon that was started anew");
        assert_eq!(boot(&mut core, "second"), expected);
        // It stays so for a daemon that registers again.
        assert_eq!(boot(&mut core, "second"), expected);
    }
    let mut core = core_with(with(ReturnToService::IfSilent));
    boot(&mut core, "first");
    core.saved.down = Some(DownCause::Silence);
    assert_eq!(boot(&mut core, "second").0, NodeBase::Up);
}

/// Found by simulation: the controller's clock was set two hours ahead, and every node had been silent for two hours.
#[test]
fn a_clock_that_is_stepped_takes_no_node_down_and_keeps_none_up() {
    let tick = |core: &mut NodeCore, now, timer| core.handle(now, NodeInput::Timer(timer), &mut Vec::new());
    for hours in [2i64, -2] {
        let stepped = Timestamp(NOW.0 + hours * 3_600_000);
        let mut core = up();
        tick(&mut core, stepped, NodeTimer::Ping);
        tick(&mut core, stepped, NodeTimer::Silence);
        assert_eq!(core.view().base, NodeBase::Up, "{hours} h");
        for _ in 0..3 {
            tick(&mut core, stepped, NodeTimer::Ping);
        }
        assert_eq!(core.view().base, NodeBase::Down, "{hours} h");
    }
}

#[test]
fn less_memory_than_configured_is_invalid_until_it_registers_right() {
    let mut core = core_with(NodeSite::default());
    let mut poor = registration(1, vec![]);
    poor.facts.shape.memory = MemoryMib(500);
    core.handle(NOW, NodeInput::Registered(Box::new(poor)), &mut Vec::new());
    assert!(core.view().flags.invalid);
    assert_eq!(core.view().reason.unwrap().text, "Low RealMemory (reported:500 < 100.00% of configured:1000)");
    assert_eq!(reserve(&mut core, ask(1, 0..2, 0)), Err(ReserveRefusal::OutOfService("invalid")));
    core.handle(NOW, NodeInput::Registered(Box::new(registration(2, vec![]))), &mut Vec::new());
    assert!(!core.view().flags.invalid && core.view().reason.is_none());
}

#[test]
fn where_the_configuration_overrides_a_node_counts_as_what_it_says() {
    for line in ["", "SlurmdParameters=config_overrides\n"] {
        let text = format!("{line}ClusterName=c\nSlurmctldHost=h\nNodeName=n0\nPartitionName=p Nodes=n0\n");
        let config_overrides = config_of(&text).config_overrides();
        let mut core = core_with(NodeSite { config_overrides, ..NodeSite::default() });
        let mut poor = registration(1, vec![]);
        poor.facts.shape = NodeShape { cpus: 1, cores_per_socket: 1, memory: MemoryMib(500), ..poor.facts.shape };
        let mut out = Vec::new();
        core.handle(NOW, NodeInput::Registered(Box::new(poor)), &mut out);
        assert_eq!(core.view().flags.invalid, line.is_empty());
        let told = out.iter().find_map(|effect| match effect {
            NodeEffect::Do(NodeErrand::Send { frame, .. }) => match &**frame {
                ControllerToNode::Welcome { shape, .. } => Some(shape.clone()),
                _ => None,
            },
            _ => None,
        });
        let shape = core.view().shape.clone();
        assert_eq!(told, Some((!line.is_empty()).then(|| Box::new(shape))), "its runs are told the same");
    }
}

fn gpus(count: u64) -> GresEntry {
    GresEntry {
        name: "gpu".into(),
        kind: None,
        count,
        no_consume: false,
        devices: true,
        places: Vec::new(),
        shards: Vec::new(),
    }
}

fn with_gpus(count: u64) -> NodeCore {
    let mut settings = settings(0);
    settings.shape.gres = vec![gpus(count)];
    NodeCore::new(NOW, settings, Arc::new(NodeSite::default()), None, [])
}

fn registered_with(conn: u64, count: u64) -> NodeInput {
    let mut registration = registration(conn, vec![]);
    registration.facts.shape.gres = vec![gpus(count)];
    NodeInput::Registered(Box::new(registration))
}

fn ask_gpus(job: u32, cpus: std::ops::Range<u32>, devices: &str) -> ReserveAsk {
    let devices: CpuSet = devices.parse().unwrap();
    let mut ask = ask(job, cpus, 0);
    ask.share.gres = vec![GresShare { name: "gpu".into(), kind: None, count: devices.len().into(), devices }];
    ask
}

#[test]
fn what_was_wrong_goes_with_a_right_registration_after_a_restart_of_the_controller_too() {
    let mut core = with_gpus(4);
    core.handle(NOW, registered_with(1, 0), &mut Vec::new());
    let saved = core.saved().clone();
    let mut core = NodeCore::new(NOW, core.settings().clone(), Arc::new(NodeSite::default()), Some(saved), []);
    assert!(core.view().reason.is_some());
    let mut out = Vec::new();
    core.handle(NOW, registered_with(2, 4), &mut out);
    assert!(!core.view().flags.invalid && core.view().reason.is_none());
    assert!(
        out.iter()
            .any(|e| matches!(e, NodeEffect::Save(ControllerEvent::Node { saved, .. }) if saved.reason.is_none()))
    );
}

#[test]
fn fewer_gpus_than_configured_are_invalid_until_all_are_found() {
    let mut core = with_gpus(4);
    core.handle(NOW, registered_with(1, 0), &mut Vec::new());
    assert!(core.view().flags.invalid);
    assert_eq!(core.view().reason.unwrap().text, "gres/gpu count reported lower than configured (0 < 4)");
    core.handle(NOW, registered_with(2, 4), &mut Vec::new());
    assert!(!core.view().flags.invalid && core.view().reason.is_none());
}

#[test]
fn cores_that_come_with_a_gpu_are_only_for_jobs_that_have_it() {
    let mut shaped = settings(0);
    shaped.shape.gres = vec![gpus(2)];
    shaped.shape.gpu_cpus = vec![(0..1).collect(), (1..2).collect()];
    let mut core = NodeCore::new(NOW, shaped, Arc::new(NodeSite::default()), None, []);
    core.handle(NOW, registered_with(1, 2), &mut Vec::new());
    let small = |mut ask: ReserveAsk| {
        ask.share.memory = Some(MemoryMib(10));
        ask
    };
    assert!(reserve(&mut core, small(ask(1, 0..1, 0))).is_err());
    assert!(reserve(&mut core, small(ask_gpus(2, 0..1, "1"))).is_err());
    assert!(reserve(&mut core, small(ask_gpus(3, 1..3, "1"))).is_ok());
    assert!(reserve(&mut core, small(ask_gpus(4, 0..1, "0"))).is_ok());
    assert!(reserve(&mut core, small(ask(5, 3..4, 0))).is_ok());
}

#[test]
fn shards_of_a_gpu_are_given_to_several_jobs_and_never_beside_the_gpu() {
    let mut shaped = settings(0);
    let shard = GresEntry { name: "shard".into(), count: 4, devices: false, shards: vec![2, 2], ..gpus(0) };
    shaped.shape.gres = vec![gpus(2), shard];
    let mut core = NodeCore::new(NOW, shaped.clone(), Arc::new(NodeSite::default()), None, []);
    let mut here = registration(1, vec![]);
    here.facts.shape.gres.clone_from(&shaped.shape.gres);
    core.handle(NOW, NodeInput::Registered(Box::new(here)), &mut Vec::new());
    let small = |mut ask: ReserveAsk| {
        ask.share.memory = Some(MemoryMib(10));
        ask
    };
    let ask_shards = |job, cpu: u32, gpu: u32, count| {
        let mut ask = small(ask(job, cpu..cpu + 1, 0));
        ask.share.gres =
            vec![GresShare { name: "shard".into(), kind: None, count, devices: [gpu].into_iter().collect() }];
        ask
    };
    assert!(reserve(&mut core, ask_shards(1, 0, 0, 1)).is_ok());
    assert!(reserve(&mut core, ask_shards(2, 1, 0, 1)).is_ok());
    assert!(reserve(&mut core, ask_shards(3, 2, 0, 1)).is_err(), "all of GPU 0 is given");
    assert!(reserve(&mut core, small(ask_gpus(4, 2..3, "0"))).is_err());
    assert!(reserve(&mut core, ask_shards(5, 2, 1, 3)).is_err());
    assert!(reserve(&mut core, small(ask_gpus(6, 2..3, "1"))).is_ok());
    assert!(reserve(&mut core, ask_shards(7, 3, 1, 1)).is_err());
}

#[test]
fn a_device_is_given_to_one_job_and_kept_with_its_share() {
    let mut core = with_gpus(2);
    core.handle(NOW, registered_with(1, 2), &mut Vec::new());
    reserve(&mut core, ask_gpus(1, 0..2, "0")).unwrap();
    assert!(reserve(&mut core, ask_gpus(2, 2..4, "0")).is_err(), "held");
    assert!(reserve(&mut core, ask_gpus(2, 2..4, "1-2")).is_err(), "more than there are");
    reserve(&mut core, ask_gpus(2, 2..4, "1")).unwrap();
    core.sanity_check().unwrap();
    // What is kept for a job is nobody else's, and its next run takes its place.
    core.handle(NOW, NodeInput::Keep { job: JobId(1), sluid: Sluid(1) }, &mut Vec::new());
    assert!(reserve(&mut core, ask_gpus(3, 4..6, "0")).is_err());
    reserve(&mut core, ReserveAsk { sluid: Sluid(50), attempt: 4, ..ask_gpus(1, 0..2, "0") }).unwrap();
    core.sanity_check().unwrap();
    let release = |job, sluid| NodeInput::Release { job: JobId(job), sluid: Sluid(sluid), attempt: None, drain: None };
    core.handle(NOW, release(1, 50), &mut Vec::new());
    core.handle(NOW, release(2, 2), &mut Vec::new());
    reserve(&mut core, ask_gpus(3, 4..6, "0-1")).unwrap();
    core.sanity_check().unwrap();
}

#[test]
fn registration_is_compared_with_what_jobs_hold() {
    let mut core = up();
    reserve(&mut core, ask(1, 0..2, 0)).unwrap();
    reserve(&mut core, ask(2, 2..4, 0)).unwrap();
    let held = HeldRun { job: JobId(1), sluid: Sluid(1), batch_host: true, door: String::new(), requeue: None };
    let mut out = Vec::new();
    core.handle(NOW, NodeInput::Registered(Box::new(registration(2, vec![held]))), &mut out);
    let NodeEffect::Do(NodeErrand::Send { conn: 2, frame: welcome }) = &out[0] else {
        panic!("Welcome comes first: {out:?}")
    };
    assert!(matches!(&**welcome, ControllerToNode::Welcome { runs, .. } if runs.len() == 2));
    assert!(
        out.contains(&to_job(JobId(1), JobInput::RunHeld { node: "n0".to_owned(), sluid: Sluid(1), requeue: None }))
    );
    assert!(out.contains(&to_job(JobId(2), missing(2))));
}

#[test]
fn a_node_gets_nothing_new_while_a_run_that_was_given_up_is_ended_there() {
    let mut core = up();
    let given_up = HeldRun { job: JobId(1), sluid: Sluid(1), batch_host: true, door: String::new(), requeue: None };
    core.handle(NOW, NodeInput::Registered(Box::new(registration(1, vec![given_up]))), &mut Vec::new());
    let flags = core.view().flags;
    assert!(flags.completing && !garrick_plan::snapshot::facts::in_service(&core.view()));
    let refused = reserve(&mut core, ask(2, 0..2, 0));
    assert_eq!(refused, Err(ReserveRefusal::OutOfService("ending runs that were given up")));
    report(&mut core, 1);
    assert!(!core.view().flags.completing && garrick_plan::snapshot::facts::in_service(&core.view()));
    reserve(&mut core, ask(2, 0..2, 0)).unwrap();
}

fn report(core: &mut NodeCore, seq: u64) -> Vec<NodeEffect> {
    let report = AgentReport::NodeReleased { job: JobId(1), sluid: Sluid(1), epilog_failed: None, unkillable: None };
    let mut out = Vec::new();
    core.handle(NOW, NodeInput::Frame { conn: 1, frame: Box::new(NodeToController::Report { seq, report }) }, &mut out);
    out
}

fn acks(out: &[NodeEffect]) -> Vec<u64> {
    out.iter()
        .filter_map(|e| match e {
            NodeEffect::Do(NodeErrand::Send { frame, .. }) => match **frame {
                ControllerToNode::AckReports { upto } => Some(upto),
                _ => None,
            },
            _ => None,
        })
        .collect()
}

#[test]
fn reports_are_acknowledged_in_order_and_repeats_are_dropped() {
    let mut core = up();
    assert!(acks(&report(&mut core, 5)).is_empty());
    report(&mut core, 6);
    // Owners of jobs name a report together with the start of the agent that made it.
    let safe = |core: &mut NodeCore, seq| {
        let mut out = Vec::new();
        core.handle(NOW, NodeInput::ReportSafe { seq: seq | 1u64 << SEQ_BITS }, &mut out);
        acks(&out)
    };
    assert!(safe(&mut core, 6).is_empty());
    assert_eq!(safe(&mut core, 5), [6]);
    assert_eq!(acks(&report(&mut core, 6)), [6]);
    assert!(report(&mut core, 7).iter().any(|e| matches!(e, NodeEffect::Tell(_))));
}

#[test]
fn an_acknowledgement_for_an_agent_that_is_gone_is_not_given_to_the_next() {
    let mut core = up();
    let handed = |effects: &[NodeEffect]| {
        effects.iter().find_map(|e| match e {
            NodeEffect::Tell(Letter::Job(_, JobInput::Report { seq, .. })) => Some(*seq),
            _ => None,
        })
    };
    let safe = |core: &mut NodeCore, seq| {
        let mut out = Vec::new();
        core.handle(NOW, NodeInput::ReportSafe { seq }, &mut out);
        acks(&out)
    };
    let (first, second) = (handed(&report(&mut core, 5)).unwrap(), handed(&report(&mut core, 6)).unwrap());
    // The agent is started again and counts from 1; its first words are on their way.
    let next = Registration { incarnation: 10, ..registration(1, vec![]) };
    core.handle(NOW, NodeInput::Registered(Box::new(next)), &mut Vec::new());
    assert_eq!(safe(&mut core, first), [0; 0]);
    let of_next: Vec<u64> = (1..=6).map(|seq| handed(&report(&mut core, seq)).unwrap()).collect();
    assert_eq!(safe(&mut core, second), [0; 0], "its sixth report is not the other's sixth");
    for (at, seq) in of_next.into_iter().enumerate() {
        assert_eq!(safe(&mut core, seq), [at as u64 + 1]);
    }
}

/// A node that was set DOWN while it was cut off, as the next controller has it: the last one failed before the jobs heard.
fn down_when_the_controller_failed() -> NodeCore {
    let mut core = up();
    reserve(&mut core, ask(1, 0..2, 0)).unwrap();
    reserve(&mut core, ask(2, 2..4, 0)).unwrap();
    core.handle(NOW, NodeInput::LinkGone { conn: 1 }, &mut Vec::new());
    let change = NodeChange { state: Some(NodeStateChange::Down), reason: Some("x".into()), ..NodeChange::default() };
    core.handle(NOW, NodeInput::Update { request: 1, by: (0, "root".to_owned()), change }, &mut Vec::new());
    let mut next = NodeCore::new(NOW, settings(0), core.site(), Some(core.saved().clone()), core.kept());
    next.resume(NOW, &mut Vec::new());
    next
}

fn lost_jobs(out: &[NodeEffect]) -> Vec<u32> {
    let lost = |e: &NodeEffect| match e {
        NodeEffect::Tell(Letter::Job(job, JobInput::NodeLost { .. })) => Some(job.0),
        _ => None,
    };
    out.iter().filter_map(lost).collect()
}

/// Found by simulation: a node was set DOWN while it was cut off, and the controller failed before the jobs there heard of it.
/// The node came back to the next controller and its runs went on as if nothing had been said. Minutes later the node's owner
/// failed and was built anew: it told the jobs, they were started elsewhere, and no agent had been told to end anything.
#[test]
fn what_runs_on_a_node_that_is_down_ends_when_it_registers() {
    let mut core = down_when_the_controller_failed();
    let held = HeldRun { job: JobId(1), sluid: Sluid(1), batch_host: true, door: String::new(), requeue: None };
    let mut out = Vec::new();
    core.handle(NOW, NodeInput::Registered(Box::new(registration(1, vec![held]))), &mut out);
    assert_eq!(lost_jobs(&out), [1, 2], "{out:?}");
    let goes_on = |e: &NodeEffect| matches!(e, NodeEffect::Tell(Letter::Job(_, JobInput::RunHeld { .. })));
    assert!(!out.iter().any(goes_on), "{out:?}");
    let NodeEffect::Do(NodeErrand::Send { conn: 1, frame: welcome }) = &out[0] else {
        panic!("Welcome comes first: {out:?}")
    };
    assert!(matches!(&**welcome, ControllerToNode::Welcome { runs, .. } if runs.is_empty()), "{welcome:?}");
    for job in [1, 2] {
        let release = NodeInput::Release { job: JobId(job), sluid: Sluid(u64::from(job)), attempt: None, drain: None };
        core.handle(NOW, release, &mut Vec::new());
    }
    let resume = NodeChange { state: Some(NodeStateChange::Resume), ..NodeChange::default() };
    core.handle(NOW, NodeInput::Update { request: 2, by: (0, "root".to_owned()), change: resume }, &mut Vec::new());
    let refused = reserve(&mut core, ask(3, 0..2, 0));
    assert_eq!(refused, Err(ReserveRefusal::OutOfService("ending runs that were given up")));
    report(&mut core, 1);
    reserve(&mut core, ask(3, 0..2, 0)).unwrap();
}

/// The same, and the machine never comes back: its jobs were shown as running for good.
#[test]
fn jobs_on_a_node_that_is_down_and_stays_silent_are_told_again() {
    let mut core = down_when_the_controller_failed();
    let (mut out, late) = (Vec::new(), NOW.plus(Duration::from_secs(300)));
    for _ in 0..3 {
        core.handle(NOW.plus(Duration::from_secs(299)), NodeInput::Timer(NodeTimer::Ping), &mut out);
    }
    core.handle(NOW.plus(Duration::from_secs(299)), NodeInput::Timer(NodeTimer::Silence), &mut out);
    assert_eq!(lost_jobs(&out), [0; 0], "an agent that is alive may still connect");
    let before = core.saved().clone();
    core.handle(late, NodeInput::Timer(NodeTimer::Silence), &mut out);
    assert_eq!(lost_jobs(&out), [1, 2], "{out:?}");
    assert_eq!(core.saved(), &before, "why it is down is what it was");
}

/// A report in the hands of a job's owner that failed was not sent again for as long as the link stayed up.
#[test]
fn a_new_owner_of_a_job_is_told_by_a_registration() {
    let tell = |core: &mut NodeCore, job| {
        let mut out = Vec::new();
        core.handle(NOW, NodeInput::OwnerIsNew { job: JobId(job) }, &mut out);
        out.retain(|effect| !matches!(effect, NodeEffect::Publish(_) | NodeEffect::Save(_)));
        out
    };
    let mut core = up();
    assert_eq!(tell(&mut core, 1), [], "nothing is there of that job");
    report(&mut core, 5);
    assert_eq!(tell(&mut core, 1), [NodeEffect::Do(NodeErrand::Close { conn: 1 })]);
    assert_eq!(tell(&mut core, 1), [], "it is closed");
    core.handle(NOW, NodeInput::Registered(Box::new(registration(1, vec![]))), &mut Vec::new());
    let again = report(&mut core, 5);
    assert!(again.iter().any(|e| matches!(e, NodeEffect::Tell(Letter::Job(_, JobInput::Report { .. })))));
    // What it holds may have been given back by an owner that came to nothing; on a node that is down it is lost.
    reserve(&mut core, ask(2, 0..2, 0)).unwrap();
    assert_eq!(tell(&mut core, 2), [NodeEffect::Do(NodeErrand::Close { conn: 1 })]);
    core.saved.down = Some(DownCause::Admin);
    assert_eq!(tell(&mut core, 2), [to_job(JobId(2), lost(2))]);
    // What is kept no agent knows of.
    core.saved.down = None;
    core.handle(NOW, NodeInput::Keep { job: JobId(2), sluid: Sluid(2) }, &mut Vec::new());
    assert_eq!(tell(&mut core, 2), [to_job(JobId(2), missing(2))]);
}

fn lost(sluid: u64) -> JobInput {
    JobInput::NodeLost { node: "n0".to_owned(), sluid: Sluid(sluid) }
}

fn missing(sluid: u64) -> JobInput {
    JobInput::RunMissing { node: "n0".to_owned(), sluid: Sluid(sluid) }
}

fn notices_of(out: &[NodeEffect]) -> Vec<JobInput> {
    let of = |effect: &NodeEffect| match effect {
        NodeEffect::Tell(Letter::Job(_, input)) => Some(input.clone()),
        _ => None,
    };
    out.iter().filter_map(of).collect()
}

/// A link that broke between an epilog's failure and the word of it: the run passed for released in good order, and an expedited
/// job whose script had failed too was not expedited.
#[test]
fn a_run_whose_release_follows_is_not_missing() {
    let mut core = up();
    reserve(&mut core, ask(1, 0..2, 0)).unwrap();
    let registers = |core: &mut NodeCore| {
        let released = vec![ReleasedRun { job: JobId(1), sluid: Sluid(1), seq: 1 }];
        let mut out = Vec::new();
        let next = Registration { released, ..registration(2, vec![]) };
        core.handle(NOW, NodeInput::Registered(Box::new(next)), &mut out);
        notices_of(&out)
    };
    assert_eq!(registers(&mut core), []);
    let says = AgentReport::NodeReleased {
        job: JobId(1),
        sluid: Sluid(1),
        epilog_failed: Some("exit 1".to_owned()),
        unkillable: None,
    };
    let frame = NodeToController::Report { seq: 1, report: says.clone() };
    let mut out = Vec::new();
    core.handle(NOW, NodeInput::Frame { conn: 2, frame: Box::new(frame) }, &mut out);
    let [JobInput::Report { seq, report, .. }] = &notices_of(&out)[..] else { panic!("{out:?}") };
    assert_eq!(**report, says);
    assert_eq!(registers(&mut core), [], "its owner has not dealt with it yet");
    // It was dealt with, and what followed from it was lost: the report comes to nobody any more.
    core.handle(NOW, NodeInput::ReportSafe { seq: *seq }, &mut Vec::new());
    assert_eq!(registers(&mut core), [missing(1)]);
}

/// Found by simulation with a slow disk: an acknowledgement waited behind a drain that was being saved. Meanwhile the agent
/// was started anew and connected, got the acknowledgement on its link, and forgot its own reports, the end of a job too.
#[test]
fn what_is_for_an_agent_names_its_link() {
    let mut core = up();
    report(&mut core, 1);
    let links = |out: &[NodeEffect]| -> Vec<u64> {
        let of =
            |e: &NodeEffect| if let NodeEffect::Do(NodeErrand::Send { conn, .. }) = e { Some(*conn) } else { None };
        out.iter().filter_map(of).collect()
    };
    let mut out = Vec::new();
    core.handle(NOW, NodeInput::ReportSafe { seq: 1 | 1u64 << SEQ_BITS }, &mut out);
    assert_eq!(links(&out), [1]);
    let next = Registration { incarnation: 10, ..registration(2, vec![]) };
    let mut out = Vec::new();
    core.handle(NOW, NodeInput::Registered(Box::new(next)), &mut out);
    assert_eq!(links(&out), [2]);
    core.handle(NOW, NodeInput::LinkGone { conn: 2 }, &mut out);
    let mut out = Vec::new();
    core.handle(NOW, NodeInput::Send(Box::new(ControllerToNode::Ping { n: 1, neighbours: None })), &mut out);
    assert!(links(&out).is_empty(), "without a link nothing may wait for the next one");
}

#[test]
fn an_epilog_failure_drains() {
    let mut core = up();
    reserve(&mut core, ask(1, 0..2, 0)).unwrap();
    let drain = Some("Epilog error".to_owned());
    core.handle(NOW, NodeInput::Release { job: JobId(1), sluid: Sluid(1), attempt: None, drain }, &mut Vec::new());
    let view = core.view();
    assert_eq!((view.flags.drain, view.reason.unwrap().text.as_str()), (true, "Epilog error"));
}

#[derive(Clone, Debug)]
enum Step {
    Reserve { job: u32, first: u32, count: u32, memory: u64, kind: u8, uid: u32, label: Option<bool> },
    Release { job: u32, attempt: Option<u64> },
    Completing { job: u32 },
    Park { job: u32 },
    Unpark { job: u32 },
}

fn any_step() -> impl Strategy<Value = Step> {
    let reserve = (1u32..6, 0u32..8, 1u32..6, 0u64..600, 0u8..7, 1u32..3, any::<Option<bool>>()).prop_map(
        |(job, first, count, memory, kind, uid, label)| Step::Reserve { job, first, count, memory, kind, uid, label },
    );
    let release = (1u32..6, prop::option::of(0u64..3)).prop_map(|(job, attempt)| Step::Release { job, attempt });
    let completing = (1u32..6).prop_map(|job| Step::Completing { job });
    let park = (1u32..6).prop_map(|job| Step::Park { job });
    let unpark = (1u32..6).prop_map(|job| Step::Unpark { job });
    prop_oneof![4 => reserve, 2 => release, 1 => completing, 2 => park, 2 => unpark]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn node_accounting_is_the_sum_of_its_holds(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut core = up();
        for step in steps {
            let input = match step {
                Step::Reserve { job, first, count, memory, kind, uid, label } => NodeInput::Reserve(Box::new(ReserveAsk {
                    uid,
                    mcs_label: label.map(|red| if red { "red" } else { "blue" }.to_owned()),
                    usage: match kind {
                        0 => NodeUse::Whole,
                        1 => NodeUse::User,
                        2 => NodeUse::Oversubscribe(2),
                        3 => NodeUse::Label,
                        _ => NodeUse::Cpus,
                    },
                    share: NodeShare { cpus: CpuSet::from(first..first + count), memory: Some(MemoryMib(memory)), tasks: 1, gres: Vec::new() },
                    ..ask(job, 0..1, 0)
                })),
                Step::Release { job, attempt } => {
                    NodeInput::Release { job: JobId(job), sluid: Sluid(u64::from(job)), attempt, drain: None }
                }
                Step::Park { job } => NodeInput::Park { job: JobId(job), sluid: Sluid(u64::from(job)) },
                Step::Unpark { job } => NodeInput::Unpark { job: JobId(job), sluid: Sluid(u64::from(job)), attempt: 1 },
                Step::Completing { job } => NodeInput::Completing { job: JobId(job), sluid: Sluid(u64::from(job)) },
            };
            core.handle(NOW, input, &mut Vec::new());
            prop_assert_eq!(core.sanity_check(), Ok(()));
        }
    }
}

fn unpark(core: &mut NodeCore, job: u32) -> bool {
    let mut out = Vec::new();
    core.handle(NOW, NodeInput::Unpark { job: JobId(job), sluid: Sluid(u64::from(job)), attempt: 3 }, &mut out);
    let answer = out.into_iter().find_map(|e| match e {
        NodeEffect::Tell(Letter::Job(_, JobInput::Unparked { attempt: 3, granted, .. })) => Some(granted),
        _ => None,
    });
    answer.unwrap()
}

#[test]
fn a_run_that_stands_still_for_another_keeps_all_but_its_cpus_and_has_them_back_when_they_are_free() {
    for usage in [NodeUse::Cpus, NodeUse::Whole] {
        let mut core = up();
        reserve(&mut core, ReserveAsk { usage, ..ask(1, 0..8, 0) }).unwrap();
        assert!(reserve(&mut core, ask(2, 0..2, 0)).is_err());
        let before = core.view().generation;
        for _ in 0..2 {
            core.handle(NOW, NodeInput::Park { job: JobId(1), sluid: Sluid(1) }, &mut Vec::new());
        }
        assert_eq!((core.view().generation, core.view().holds[0].parked), (before + 1, true));
        reserve(&mut core, ask(2, 0..2, 0)).unwrap();
        // 800 of 1000 MiB are gone.
        assert!(reserve(&mut core, ask(3, 4..6, 0)).is_err());
        assert!(!unpark(&mut core, 1));
        core.sanity_check().unwrap();
        core.handle(
            NOW,
            NodeInput::Release { job: JobId(2), sluid: Sluid(2), attempt: None, drain: None },
            &mut Vec::new(),
        );
        assert!(unpark(&mut core, 1) && unpark(&mut core, 1), "an answer that was lost is given again");
        assert!(reserve(&mut core, ask(2, 0..2, 0)).is_err());
        assert!(!unpark(&mut core, 9), "not here");
        core.sanity_check().unwrap();
    }
}

fn held(core: &NodeCore) -> Vec<(u64, bool)> {
    core.view().holds.iter().map(|h| (h.sluid.0, h.kept)).collect()
}

#[test]
fn what_is_kept_for_a_job_refuses_others_and_gives_way_to_its_next_run() {
    let mut core = up();
    reserve(&mut core, ask(1, 0..4, 0)).unwrap();
    let keep = NodeInput::Keep { job: JobId(1), sluid: Sluid(1) };
    core.handle(NOW, keep, &mut Vec::new());
    assert_eq!(held(&core), [(1, true)]);
    assert!(reserve(&mut core, ask(2, 2..3, 0)).is_err());
    // The next run is another one: its share takes the place of what was kept, and more.
    let next = |attempt| ReserveAsk { sluid: Sluid(50), attempt, ..ask(1, 0..5, 0) };
    reserve(&mut core, next(4)).unwrap();
    assert_eq!(held(&core), [(50, false)]);
    // The attempt is given up, since another node declined: kept as before.
    let release = |sluid, attempt| NodeInput::Release { job: JobId(1), sluid: Sluid(sluid), attempt, drain: None };
    core.handle(NOW, release(50, Some(4)), &mut Vec::new());
    assert_eq!(held(&core), [(1, true)]);
    assert!(reserve(&mut core, ask(2, 2..3, 0)).is_err());
    // The word that it was given up was lost; the job says it again when it hears of the share, whatever attempt it is at then.
    reserve(&mut core, next(5)).unwrap();
    core.handle(NOW, release(50, Some(4)), &mut Vec::new());
    assert_eq!(held(&core), [(50, false)], "that one was not meant");
    core.handle(NOW, release(50, Some(7)), &mut Vec::new());
    assert_eq!(held(&core), [(1, true)]);
    reserve(&mut core, next(8)).unwrap();
    core.handle(NOW, release(50, None), &mut Vec::new());
    assert_eq!(held(&core), []);
    core.sanity_check().unwrap();
}

#[test]
fn what_is_not_kept_any_more_does_not_return_with_a_given_up_attempt() {
    let mut core = up();
    reserve(&mut core, ask(1, 0..4, 0)).unwrap();
    core.handle(NOW, NodeInput::Keep { job: JobId(1), sluid: Sluid(1) }, &mut Vec::new());
    reserve(&mut core, ReserveAsk { sluid: Sluid(50), attempt: 4, ..ask(1, 0..4, 0) }).unwrap();
    let release = |sluid, attempt| NodeInput::Release { job: JobId(1), sluid: Sluid(sluid), attempt, drain: None };
    core.handle(NOW, release(1, None), &mut Vec::new());
    core.handle(NOW, release(50, Some(4)), &mut Vec::new());
    assert_eq!(held(&core), []);
}

#[test]
fn agents_are_not_asked_for_runs_of_which_only_the_share_is_kept() {
    let mut core = up();
    reserve(&mut core, ask(1, 0..4, 0)).unwrap();
    core.handle(NOW, NodeInput::Keep { job: JobId(1), sluid: Sluid(1) }, &mut Vec::new());
    let mut out = Vec::new();
    core.handle(NOW, NodeInput::Registered(Box::new(registration(2, vec![]))), &mut out);
    assert!(!out.iter().any(|e| matches!(e, NodeEffect::Tell(_))), "{out:?}");
}

#[test]
fn a_partition_has_no_more_cpus_than_it_may() {
    let mut core = up();
    let caps = CpuCaps { per_node: Some(4), per_socket: None };
    let limited = |job, cpus| ReserveAsk { caps, partition: "cpu".to_owned(), ..memoryless(job, cpus) };
    reserve(&mut core, limited(1, 0..3)).unwrap();
    assert!(reserve(&mut core, limited(2, 3..5)).is_err());
    reserve(&mut core, memoryless(3, 4..6)).unwrap();
    reserve(&mut core, limited(4, 3..4)).unwrap();
    assert!(reserve(&mut core, limited(5, 6..7)).is_err());
}

#[test]
fn a_run_goes_on_only_where_its_partition_may_have_its_cpus() {
    let mut core = up();
    let caps = CpuCaps { per_node: Some(4), per_socket: None };
    let limited = |job, cpus| ReserveAsk { caps, partition: "cpu".to_owned(), ..memoryless(job, cpus) };
    reserve(&mut core, limited(1, 0..3)).unwrap();
    core.handle(NOW, NodeInput::Park { job: JobId(1), sluid: Sluid(1) }, &mut Vec::new());
    reserve(&mut core, limited(2, 4..7)).unwrap();
    assert!(!unpark(&mut core, 1));
    core.handle(
        NOW,
        NodeInput::Release { job: JobId(2), sluid: Sluid(2), attempt: None, drain: None },
        &mut Vec::new(),
    );
    assert!(unpark(&mut core, 1));
}

#[test]
fn only_a_job_that_says_what_is_left_to_the_system_has_cores_set_aside() {
    let mut settings = settings(0);
    settings.shape.reserved_cpus = (4..8).collect();
    let mut core = NodeCore::new(NOW, settings, Arc::new(NodeSite::default()), None, []);
    core.handle(NOW, NodeInput::Registered(Box::new(registration(1, vec![]))), &mut Vec::new());
    let whole = |job, cpus, left| ReserveAsk { usage: NodeUse::Whole, left_to_system: left, ..memoryless(job, cpus) };
    assert!(reserve(&mut core, whole(1, 0..6, None)).is_err());
    assert!(reserve(&mut core, whole(1, 0..7, Some(SpecCores::Cores(1)))).is_err());
    assert!(
        reserve(&mut core, ReserveAsk { usage: NodeUse::Cpus, ..whole(1, 0..6, Some(SpecCores::Cores(1))) }).is_err()
    );
    reserve(&mut core, whole(1, 0..6, Some(SpecCores::Cores(1)))).unwrap();
}

fn memoryless(job: u32, cpus: std::ops::Range<u32>) -> ReserveAsk {
    let ask = ask(job, cpus, 0);
    ReserveAsk { share: NodeShare { memory: None, ..ask.share.clone() }, ..ask }
}

/// A limit of the partition that a run was given its CPUs under holds for a controller that was started since.
#[test]
fn a_parked_run_that_was_restored_comes_back_within_the_limit() {
    let caps = CpuCaps { per_node: Some(2), per_socket: None };
    let limited = |job, cpus| ReserveAsk { caps, ..ask(job, cpus, 0) };
    let mut before = up();
    assert!(reserve(&mut before, limited(1, 0..2)).is_ok());
    before.handle(NOW, NodeInput::Park { job: JobId(1), sluid: Sluid(1) }, &mut Vec::new());
    let mut core = NodeCore::new(NOW, settings(0), Arc::default(), None, before.kept());
    let held = HeldRun { job: JobId(1), sluid: Sluid(1), batch_host: true, door: String::new(), requeue: None };
    core.handle(NOW, NodeInput::Registered(Box::new(registration(1, vec![held]))), &mut Vec::new());
    assert_eq!(reserve(&mut core, limited(2, 2..4)), Ok(Grant::at("n0:6818".to_owned())));
    assert!(!unpark(&mut core, 1));
    let over = NodeInput::Release { job: JobId(2), sluid: Sluid(2), attempt: None, drain: None };
    core.handle(NOW, over, &mut Vec::new());
    assert!(unpark(&mut core, 1));
}

#[test]
fn a_node_that_is_being_deleted_is_shown_so_and_records_nothing() {
    let dynamic = NodeSettings { dynamic: true, ..settings(0) };
    let mut core = NodeCore::new(NOW, dynamic, Arc::default(), None, []);
    let mut handle = |input| {
        let mut out = Vec::new();
        core.handle(NOW, input, &mut out);
        out
    };
    let shown = |out: &[NodeEffect]| {
        out.iter().find_map(|effect| match effect {
            NodeEffect::Publish(view) => {
                Some((view.base, view.flags.drain, view.reason.as_ref().map(|reason| reason.text.clone())))
            }
            _ => None,
        })
    };
    let recorded = |out: &[NodeEffect]| out.iter().any(|effect| matches!(effect, NodeEffect::Save(_)));
    handle(NodeInput::Registered(Box::new(registration(1, vec![]))));
    let out = handle(NodeInput::Retire { request: 1 });
    assert!(out.contains(&NodeEffect::Answer { request: 1, answer: Ok(()) }));
    assert_eq!(shown(&out), Some((NodeBase::Up, true, Some("being deleted".to_owned()))));
    let down = NodeChange { state: Some(NodeStateChange::Down), ..NodeChange::default() };
    let out = handle(NodeInput::Update { request: 2, by: (0, "root".to_owned()), change: down });
    assert_eq!(shown(&out), Some((NodeBase::Down, true, Some("being deleted".to_owned()))));
    assert!(!recorded(&out));
    // It is one of the file now, and what was said of it counts.
    let out = handle(NodeInput::Configure { settings: Box::new(settings(0)), site: Arc::default() });
    assert_eq!(shown(&out), Some((NodeBase::Down, false, None)));
    assert!(recorded(&out));
}

// Nobody noticed a node that had been started with another file.
#[test]
fn a_node_with_another_slurm_conf_is_told_of_once() {
    let with = |conf_hash| NodeSite { conf_hash, ..NodeSite::default() };
    let register = |core: &mut NodeCore, conn, conf_hash| {
        let mut registration = registration(conn, vec![]);
        registration.facts.conf_hash = conf_hash;
        let mut out = Vec::new();
        core.handle(NOW, NodeInput::Registered(Box::new(registration)), &mut out);
        let differs = |effect: &NodeEffect| match effect {
            NodeEffect::Do(NodeErrand::WarnOfConf { theirs, ours }) => Some((*theirs, *ours)),
            _ => None,
        };
        out.iter().filter_map(differs).collect::<Vec<_>>()
    };
    let mut core = core_with(with(Some(7)));
    assert_eq!(register(&mut core, 1, Some(7)), []);
    assert_eq!(register(&mut core, 2, Some(8)), [(8, 7)]);
    assert_eq!(register(&mut core, 3, Some(8)), [], "known");
    assert_eq!(register(&mut core, 4, Some(9)), [(9, 7)]);
    // One of an earlier version does not say.
    assert_eq!(register(&mut core, 5, None), []);
    assert_eq!(register(&mut core_with(with(None)), 1, Some(8)), []);
}
