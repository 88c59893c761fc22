//! A node whose machine is powered down and up.
#![allow(clippy::unwrap_used)]

use super::{
    core::NodeCore,
    core_test::{registration, settings},
    effects::{NodeEffect, NodeErrand},
};
use crate::{
    controller::fixtures::config_of,
    messages::{
        job::JobInput,
        letter::Letter,
        node::{NodeInput, NodeSettings, NodeSite, PowerMove, Registration, ReserveAsk, ReserveRefusal},
    },
    power_policy::PowerPolicy,
};
use garrick_events::{event::ControllerEvent, records::node::DownCause};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::command::{NodeChange, NodeStateChange, RebootOrder},
    refusal::Refusal,
    state::{NodeBase, NodePower, PowerRequest},
    time::Timestamp,
};
use garrick_plan::snapshot::facts::in_service;
use std::{sync::Arc, time::Duration};

const BEGIN: Timestamp = Timestamp::from_secs(1000);

const CONF: &str = "ClusterName=test\nSlurmctldHost=head\nNodeName=n0 CPUs=4\nPartitionName=debug Nodes=ALL Default=YES\n\
                    ResumeProgram=/sbin/up\nSuspendProgram=/sbin/down\n";

struct Bench {
    core: NodeCore,
    now: Timestamp,
}

impl Bench {
    fn with(lines: &str, settings: NodeSettings) -> Self {
        let policy = PowerPolicy::of(&config_of(&format!("{CONF}{lines}\n"))).map(Arc::new);
        let site = Arc::new(NodeSite { power: policy, ..NodeSite::default() });
        Self { core: NodeCore::new(BEGIN, settings, site, None, []), now: BEGIN }
    }

    /// A node of the cloud.
    fn cloud(lines: &str) -> Self {
        Self::with(lines, NodeSettings { cloud: true, ..settings(0) })
    }

    /// One that is there.
    fn up(lines: &str) -> Self {
        let mut bench = Self::with(lines, settings(0));
        bench.register(1, "first");
        bench
    }

    fn send(&mut self, input: NodeInput) -> Vec<NodeEffect> {
        self.now = self.now.plus(Duration::from_secs(10));
        let mut out = Vec::new();
        self.core.handle(self.now, input, &mut out);
        out
    }

    fn moved(&mut self, what: PowerMove) -> Vec<NodeEffect> {
        self.send(NodeInput::Power(what))
    }

    fn register(&mut self, conn: u64, boot: &str) -> Vec<NodeEffect> {
        let mut registration = Registration { address: Some("10.0.0.7".to_owned()), ..registration(conn, vec![]) };
        registration.facts.boot_id = Some(boot.to_owned());
        registration.facts.boot_time = BEGIN;
        self.send(NodeInput::Registered(Box::new(registration)))
    }

    fn admin(&mut self, state: NodeStateChange) -> Result<(), Refusal> {
        let change = NodeChange { state: Some(state), ..NodeChange::default() };
        let out = self.send(NodeInput::Update { request: 1, by: (0, "root".to_owned()), change });
        let answer = out.into_iter().find_map(|effect| match effect {
            NodeEffect::Answer { answer, .. } => Some(answer),
            _ => None,
        });
        answer.unwrap()
    }

    fn reserve(&mut self, job: u32) -> Result<bool, ReserveRefusal> {
        let ask = ReserveAsk { partition: "debug".to_owned(), ..super::core_test::ask(job, 0..2, 0) };
        let out = self.send(NodeInput::Reserve(Box::new(ask)));
        let result = out.into_iter().find_map(|effect| match effect {
            NodeEffect::Tell(Letter::Job(_, JobInput::Reserved { result, .. })) => Some(result),
            _ => None,
        });
        result.unwrap().map(|grant| grant.boots)
    }

    fn release(&mut self, job: u32) -> Vec<NodeEffect> {
        let sluid = Sluid(u64::from(job));
        self.send(NodeInput::Release { job: JobId(job), sluid, attempt: None, drain: None })
    }

    fn state(&self) -> (NodeBase, NodePower, Option<PowerRequest>) {
        let view = self.core.view();
        (view.base, view.flags.power, view.flags.power_request)
    }
}

fn readied(out: &[NodeEffect]) -> Vec<(u32, &str)> {
    let ready = out.iter().filter_map(|effect| match effect {
        NodeEffect::Tell(Letter::Job(job, JobInput::NodeReady { address, .. })) => Some((job.0, address.as_str())),
        _ => None,
    });
    ready.collect()
}

#[test]
fn a_node_of_the_cloud_is_off_until_a_job_needs_it_and_its_job_begins_when_it_has_come() {
    let mut node = Bench::cloud("");
    assert_eq!(node.state(), (NodeBase::Up, NodePower::PoweredDown, None));
    assert!(in_service(&node.core.view()));
    assert_eq!(node.reserve(7), Ok(true));
    let out = node.moved(PowerMove::Resume);
    assert!(matches!(&out[0], NodeEffect::Save(ControllerEvent::Node { saved, .. })
        if saved.power.unwrap().state == NodePower::PoweringUp));
    assert_eq!(node.reserve(8), Err(ReserveRefusal::Stale { planned: 0, current: node.core.view().generation }));
    assert!(node.core.view().flags.not_responding && in_service(&node.core.view()));
    let out = node.register(1, "first");
    assert_eq!(readied(&out), [(7, "10.0.0.7:6818")]);
    assert_eq!(node.state(), (NodeBase::Up, NodePower::On, None));
    assert_eq!(node.core.view().address, "10.0.0.7");
    node.release(7);
    node.moved(PowerMove::Suspend);
    assert!(!in_service(&node.core.view()));
    assert_eq!(node.reserve(9), Err(ReserveRefusal::OutOfService("being powered down")));
    let out = node.moved(PowerMove::Off);
    assert!(out.contains(&NodeEffect::Do(NodeErrand::Close { conn: 1 })), "{out:?}");
    assert_eq!(node.core.view().address, "n0", "the next machine has another");
    assert_eq!(node.reserve(9), Ok(true));
}

#[test]
fn a_machine_that_is_still_on_its_way_down_does_not_count_as_come() {
    let mut node = Bench::up("");
    node.moved(PowerMove::Suspend);
    assert_eq!(readied(&node.register(2, "first")), []);
    assert_eq!(node.state(), (NodeBase::Up, NodePower::PoweringDown, None));
    node.moved(PowerMove::Off);
    assert_eq!(node.reserve(7), Ok(true));
    node.moved(PowerMove::Resume);
    assert_eq!(readied(&node.register(3, "first")), []);
    assert_eq!(node.state(), (NodeBase::Up, NodePower::PoweringUp, None));
    assert_eq!(readied(&node.register(4, "second")), [(7, "n0:6818")]);
    assert_eq!(node.state(), (NodeBase::Up, NodePower::On, None), "a boot that was wanted");
    assert_eq!(readied(&node.register(5, "second")), [(7, "n0:6818")], "the job may have missed it");
}

#[test]
fn a_node_that_does_not_come_is_down_loses_its_jobs_and_is_to_be_powered_down() {
    let mut node = Bench::cloud("");
    assert_eq!(node.reserve(7), Ok(true));
    node.moved(PowerMove::Resume);
    let out = node.moved(PowerMove::Failed);
    let lost = JobInput::NodeLost { node: "n0".to_owned(), sluid: Sluid(7) };
    assert!(out.contains(&NodeEffect::Tell(Letter::Job(JobId(7), lost))), "{out:?}");
    assert_eq!(node.state(), (NodeBase::Down, NodePower::On, Some(PowerRequest::Down)));
    assert_eq!(node.core.saved().down, Some(DownCause::Resume));
    assert_eq!(node.core.view().reason.unwrap().text, "ResumeTimeout reached");
    node.release(7);
    node.moved(PowerMove::Suspend);
    node.moved(PowerMove::Off);
    assert_eq!(node.state(), (NodeBase::Down, NodePower::PoweredDown, None));
    assert_eq!(node.admin(NodeStateChange::Resume), Ok(()));
    assert_eq!(node.state(), (NodeBase::Up, NodePower::PoweredDown, None));
}

#[test]
fn moves_that_do_not_fit_are_ignored() {
    let mut node = Bench::up("");
    assert_eq!(node.reserve(7), Ok(false));
    for what in [PowerMove::Suspend, PowerMove::Off, PowerMove::Resume, PowerMove::Failed] {
        assert_eq!(node.moved(what), [], "{what:?}");
    }
    assert_eq!(node.state(), (NodeBase::Up, NodePower::On, None));
}

#[test]
fn silence_does_not_take_a_node_down_that_is_off() {
    let mut node = Bench::up("");
    node.moved(PowerMove::Suspend);
    for _ in 0..100 {
        node.send(NodeInput::Timer(crate::messages::node::NodeTimer::Ping));
        node.send(NodeInput::Timer(crate::messages::node::NodeTimer::Silence));
    }
    assert_eq!(node.state(), (NodeBase::Up, NodePower::PoweringDown, None));
}

#[test]
fn administrators_have_nodes_powered_down_and_up() {
    let mut node = Bench::up("");
    assert_eq!(node.admin(NodeStateChange::PowerUp), Ok(()), "it is");
    assert_eq!(node.state(), (NodeBase::Up, NodePower::On, None));
    assert_eq!(node.reserve(7), Ok(false));
    assert_eq!(node.admin(NodeStateChange::PowerDownAsap), Ok(()));
    let view = node.core.view();
    assert!(view.flags.drain && view.flags.power_request == Some(PowerRequest::Down));
    assert_eq!(view.reason.unwrap().text, "POWER_DOWN_ASAP");
    assert_eq!(node.reserve(8), Err(ReserveRefusal::OutOfService("to be powered down")));
    node.release(7);
    node.moved(PowerMove::Suspend);
    assert!(!node.core.view().flags.drain, "it was drained only for that");
    node.admin(NodeStateChange::PowerUp).unwrap();
    node.moved(PowerMove::Off);
    assert_eq!(node.state(), (NodeBase::Up, NodePower::PoweredDown, Some(PowerRequest::Up)));
    node.moved(PowerMove::Resume);
    let out = node.send(NodeInput::Update {
        request: 1,
        by: (0, "root".to_owned()),
        change: NodeChange { state: Some(NodeStateChange::PowerDownForce), ..NodeChange::default() },
    });
    assert!(out.contains(&NodeEffect::Answer { request: 1, answer: Ok(()) }));
    assert_eq!(node.state(), (NodeBase::Unknown, NodePower::On, Some(PowerRequest::Down)));
    let mut none = Bench::with("", settings(0));
    none.core.go_by(settings(0), Arc::default());
    let refused = Refusal::InvalidUpdate("Invalid power action".to_owned());
    assert_eq!(none.admin(NodeStateChange::PowerDown), Err(refused));
}

#[test]
fn a_forced_power_down_ends_the_jobs() {
    let mut node = Bench::up("");
    assert_eq!(node.reserve(7), Ok(false));
    let change = NodeChange { state: Some(NodeStateChange::PowerDownForce), ..NodeChange::default() };
    let out = node.send(NodeInput::Update { request: 1, by: (0, "root".to_owned()), change });
    let lost = JobInput::NodeLost { node: "n0".to_owned(), sluid: Sluid(7) };
    assert!(out.contains(&NodeEffect::Tell(Letter::Job(JobId(7), lost))), "{out:?}");
    assert_eq!(node.state(), (NodeBase::Up, NodePower::On, Some(PowerRequest::Down)));
}

#[test]
fn a_node_that_had_a_job_of_such_a_partition_is_powered_down_when_it_is_empty() {
    let mut node = Bench::up("");
    node.core.go_by(settings(0), {
        let conf = CONF.replace("Default=YES", "Default=YES PowerDownOnIdle=YES");
        let policy = PowerPolicy::of(&config_of(&conf)).map(Arc::new);
        Arc::new(NodeSite { power: policy, ..NodeSite::default() })
    });
    assert_eq!(node.reserve(7), Ok(false));
    node.release(7);
    assert_eq!(node.state(), (NodeBase::Up, NodePower::On, Some(PowerRequest::Down)));
}

#[test]
fn a_node_is_idle_when_it_is_powered_down_where_the_site_says_so() {
    for (lines, base) in [("", NodeBase::Down), ("SlurmctldParameters=idle_on_node_suspend", NodeBase::Up)] {
        let mut node = Bench::up(lines);
        node.admin(NodeStateChange::Down).unwrap();
        node.moved(PowerMove::Suspend);
        assert_eq!(node.core.view().base, base, "{lines}");
    }
}

#[test]
fn addresses_of_the_configuration_are_kept_where_the_site_has_them_in_dns() {
    let mut node = Bench::cloud("SlurmctldParameters=cloud_dns");
    node.moved(PowerMove::Resume);
    node.register(1, "first");
    assert_eq!(node.core.view().address, "n0");
}

/// The site began to save power when its file was read again.
#[test]
fn a_node_shows_itself_anew_when_the_site_begins_to_save_power() {
    let cloud = NodeSettings { cloud: true, ..settings(0) };
    let mut bench = Bench { core: NodeCore::new(BEGIN, cloud.clone(), Arc::default(), None, []), now: BEGIN };
    assert_eq!(bench.state().1, NodePower::On);
    let policy = PowerPolicy::of(&config_of(CONF)).map(Arc::new);
    let site = Arc::new(NodeSite { power: policy, ..NodeSite::default() });
    let out = bench.send(NodeInput::Configure { settings: Box::new(cloud), site });
    assert!(out.iter().any(|effect| matches!(effect, NodeEffect::Publish(_))), "{out:?}");
    assert_eq!(bench.state().1, NodePower::PoweredDown);
}

#[test]
fn a_reboot_that_waits_is_over_when_the_machine_is_off() {
    let mut node = Bench::up("");
    node.reserve(7).unwrap();
    let order = RebootOrder { asap: true, next: None };
    let change = NodeChange { reboot: Some(order), ..NodeChange::default() };
    node.send(NodeInput::Update { request: 1, by: (0, "root".to_owned()), change });
    assert!(node.core.view().flags.reboot_requested);
    node.admin(NodeStateChange::PowerDownForce).unwrap();
    node.moved(PowerMove::Suspend);
    node.release(7);
    node.moved(PowerMove::Suspend);
    node.moved(PowerMove::Off);
    let flags = node.core.view().flags;
    assert_eq!((flags.power, flags.reboot_requested, flags.drain), (NodePower::PoweredDown, false, false));
}
