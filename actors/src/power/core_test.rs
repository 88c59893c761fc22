//! When nodes are powered down and up, and what the site's programs are told.
#![allow(clippy::unwrap_used)]

use super::core::{Looked, PowerCore, PowerErrand, PowerInput, PowerProgram, PowerTimer};
use crate::{
    controller::fixtures::config_of,
    job::fixtures::CountingIds,
    messages::{
        letter::Letter,
        node::{NodeInput, PowerMove},
    },
    owner::{Effect, EffectOf, Owner as _},
    power_policy::PowerPolicy,
};
use garrick_model::{
    site_program::Moment,
    state::{NodeBase, NodePower, PowerRequest},
    testing,
    time::Timestamp,
    view::NodeView,
};
use std::{sync::Arc, time::Duration};

const NOW: Timestamp = Timestamp::from_secs(10_000);

const NODES: &str = "ClusterName=test\nSlurmctldHost=head\nNodeName=n[0-3] CPUs=4\nPartitionName=all Nodes=ALL Default=YES\nResumeProgram=/sbin/up\n\
                     SuspendProgram=/sbin/down\nResumeFailProgram=/sbin/lost\n";

fn policy(lines: &str) -> Arc<PowerPolicy> {
    Arc::new(PowerPolicy::of(&config_of(&format!("{NODES}{lines}\n"))).unwrap())
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// An idle node.
fn idle(index: u32) -> NodeView {
    NodeView { idle_since: Some(NOW), ..testing::node(index, 4) }
}

fn with_power(node: NodeView, power: NodePower, since: Timestamp) -> NodeView {
    let mut node = NodeView { power_since: Some(since), idle_since: None, ..node };
    node.flags.power = power;
    node
}

fn asked(node: NodeView, request: PowerRequest) -> NodeView {
    let mut node = node;
    node.flags.power_request = Some(request);
    node
}

fn held(node: NodeView) -> NodeView {
    NodeView { holds: vec![testing::hold(7, 0..1, 0, None)], idle_since: None, ..node }
}

struct Bench {
    core: PowerCore,
    policy: Arc<PowerPolicy>,
    out: Vec<EffectOf<PowerCore>>,
}

impl Bench {
    fn new(lines: &str) -> Self {
        let mut bench = Self { core: PowerCore::default(), policy: policy(lines), out: Vec::new() };
        bench.send(NOW, PowerInput::Begin);
        assert!(bench.out.contains(&Effect::Do(PowerErrand::Look)));
        bench
    }

    fn send(&mut self, now: Timestamp, input: PowerInput) {
        self.out.clear();
        self.core.handle(now, &mut CountingIds { job: 0, sluid: 0 }, input, &mut self.out);
    }

    /// A pass over these nodes. Returns the moves that it proposes.
    fn pass(&mut self, after: u64, nodes: Vec<NodeView>) -> Vec<(String, PowerMove)> {
        let nodes = nodes.into_iter().map(Arc::new).collect();
        let looked = Looked { seen: 1, nodes, policy: Some(Arc::clone(&self.policy)) };
        self.send(NOW.plus(secs(after)), PowerInput::Looked(Box::new(looked)));
        let moves = self.out.iter().filter_map(|effect| match effect {
            Effect::Tell(Letter::Node(node, NodeInput::Power(what))) => Some((node.clone(), *what)),
            _ => None,
        });
        moves.collect()
    }

    /// What the last pass runs.
    fn programs(&self) -> Vec<(Moment, String)> {
        let of = |effect: &EffectOf<PowerCore>| match effect {
            Effect::Do(PowerErrand::Run(PowerProgram { moment, nodes, .. })) => {
                Some((*moment, nodes.iter().cloned().collect::<Vec<_>>().join(",")))
            }
            _ => None,
        };
        self.out.iter().filter_map(of).collect()
    }

    /// When the next pass is due, after now.
    fn next(&self, after: u64) -> Duration {
        let at = self.out.iter().find_map(|effect| match effect {
            Effect::SetTimer { timer: PowerTimer, at } => Some(*at),
            _ => None,
        });
        at.unwrap().since(NOW.plus(secs(after)))
    }
}

fn moves(names: &[&str], what: PowerMove) -> Vec<(String, PowerMove)> {
    names.iter().map(|name| ((*name).to_owned(), what)).collect()
}

#[test]
fn nodes_that_were_idle_for_their_time_are_powered_down_at_the_rate_of_the_site() {
    let mut bench = Bench::new("SuspendTime=60\nSuspendRate=2");
    assert_eq!(bench.pass(59, (0..4).map(idle).collect()), []);
    assert_eq!(bench.next(59), secs(1));
    assert_eq!(bench.pass(60, (0..4).map(idle).collect()), moves(&["n0", "n1"], PowerMove::Suspend));
    assert_eq!(bench.pass(61, (0..4).map(idle).collect()), [], "they were asked, and others may not be yet");
    assert_eq!(bench.pass(120, (0..4).map(idle).collect()), moves(&["n2", "n3"], PowerMove::Suspend));
    let mut any = Bench::new("SuspendTime=60\nSuspendRate=0");
    assert_eq!(any.pass(60, (0..4).map(idle).collect()).len(), 4);
    let mut never = Bench::new("");
    assert_eq!(never.pass(60_000, (0..4).map(idle).collect()), []);
}

#[test]
fn programs_run_for_nodes_that_are_on_their_way_once_and_again_after_a_restart() {
    let mut bench = Bench::new("SuspendTime=60\nSuspendTimeout=5\nResumeTimeout=30");
    let down = |index| with_power(idle(index), NodePower::PoweringDown, NOW);
    let nodes = || vec![down(0), down(1), with_power(held(idle(2)), NodePower::PoweringUp, NOW), idle(3)];
    let both = [(Moment::Suspend, "n0,n1".to_owned()), (Moment::Resume, "n2".to_owned())];
    assert_eq!(bench.pass(1, nodes()), []);
    assert_eq!(bench.programs(), both);
    assert_eq!((bench.pass(2, nodes()), bench.programs()), (vec![], vec![]));
    assert_eq!(bench.next(2), secs(3));
    assert_eq!(bench.pass(5, nodes()), moves(&["n0", "n1"], PowerMove::Off));
    let mut again = Bench::new("SuspendTime=60\nSuspendTimeout=5\nResumeTimeout=30");
    assert_eq!((again.pass(1, nodes()), again.programs()), (vec![], both.to_vec()));
}

#[test]
fn nodes_are_powered_up_for_jobs_and_on_request_at_the_rate_of_the_site() {
    let mut bench = Bench::new("ResumeRate=2");
    let off = |index| with_power(idle(index), NodePower::PoweredDown, NOW);
    let nodes = || vec![off(0), held(off(1)), asked(off(2), PowerRequest::Up), held(off(3))];
    assert_eq!(bench.pass(1, nodes()), moves(&["n1", "n2"], PowerMove::Resume));
    assert_eq!(bench.programs(), [], "first that is recorded");
    assert_eq!(bench.pass(2, nodes()), []);
    assert_eq!(bench.pass(62, nodes()), moves(&["n3"], PowerMove::Resume));
}

#[test]
fn a_node_that_does_not_come_in_time_is_told_to_the_site() {
    let mut bench = Bench::new("ResumeTimeout=30\nPartitionName=slow Nodes=n1 ResumeTimeout=100");
    let up = |index| with_power(idle(index), NodePower::PoweringUp, NOW);
    assert_eq!(bench.pass(1, vec![up(0), up(1)]), []);
    assert_eq!(bench.pass(30, vec![up(0), up(1)]), moves(&["n0"], PowerMove::Failed));
    assert_eq!(bench.programs(), [(Moment::ResumeFail, "n0".to_owned())]);
    assert_eq!(bench.pass(100, vec![idle(0), up(1)]), moves(&["n1"], PowerMove::Failed));
    let mut never = Bench::new("ResumeTimeout=INFINITE");
    assert_eq!(never.pass(100_000, vec![up(0)]), []);
}

#[test]
fn requests_to_power_down_wait_for_the_jobs() {
    let mut bench = Bench::new("");
    let down = |node| asked(node, PowerRequest::Down);
    let off = with_power(idle(2), NodePower::PoweredDown, NOW);
    let nodes = vec![down(idle(0)), down(held(idle(1))), down(off), idle(3)];
    assert_eq!(bench.pass(1, nodes), moves(&["n0", "n2"], PowerMove::Suspend));
}

#[test]
fn a_program_may_be_a_power_action_with_arguments() {
    let lines = "PowerAction=wake Location=slurmctld Program=\"/sbin/cloud --up\"\nResumeProgram=wake";
    let conf = NODES.replace("ResumeProgram=/sbin/up\n", "");
    let policy = PowerPolicy::of(&config_of(&format!("{conf}{lines}\n"))).unwrap();
    let mut bench = Bench { policy: Arc::new(policy), ..Bench::new("") };
    bench.pass(1, vec![with_power(idle(0), NodePower::PoweringUp, NOW)]);
    let command = bench.out.iter().find_map(|effect| match effect {
        Effect::Do(PowerErrand::Run(PowerProgram { command, .. })) => Some(command.join(" ")),
        _ => None,
    });
    assert_eq!(command.as_deref(), Some("/sbin/cloud --up"));
}

/// The times of nodes, of their partitions (the highest) and of the cluster.
#[test]
fn times_are_those_of_the_node_then_of_its_partitions_then_of_the_cluster() {
    let lines = "SuspendTime=10\nSuspendTimeout=11\nPartitionName=a Nodes=n[0-1] SuspendTime=20 SuspendTimeout=21\n\
                 PartitionName=b Nodes=n1 SuspendTime=30\nPartitionName=c Nodes=n2 SuspendTime=INFINITE\n\
                 NodeName=n4 CPUs=4 SuspendTime=5\nPartitionName=d Nodes=n[2,4] SuspendTime=50";
    let policy = policy(lines);
    let of = |node| policy.times(node).suspend_time.to_string();
    assert_eq!(["n0", "n1", "n2", "n3", "n4"].map(of), ["20", "30", "INFINITE", "10", "5"]);
    let timeout = |node| policy.times(node).suspend_timeout.to_string();
    assert_eq!(["n1", "n3"].map(timeout), ["21", "11"]);
    assert_eq!(policy.program_limit(), Some(secs(60)), "the longest of all");
}

#[test]
fn some_nodes_stay_on_by_name_by_partition_and_by_state() {
    let suspended = |lines: &str, nodes: Vec<NodeView>| {
        let moves = Bench::new(&format!("SuspendTime=60\n{lines}")).pass(60, nodes);
        moves.into_iter().map(|(node, _)| node).collect::<Vec<_>>().join(",")
    };
    let all = || (0..4).map(idle).collect::<Vec<_>>();
    assert_eq!(suspended("SuspendExcNodes=n[0-1]", all()), "n2,n3");
    assert_eq!(suspended("SuspendExcNodes=n[0-3]:3", all()), "n3");
    let mut one_down = all();
    one_down[1].base = NodeBase::Down;
    assert_eq!(suspended("SuspendExcNodes=n[0-3]:2", one_down.clone()), "n1,n3", "those that could be used count");
    assert_eq!(suspended("SuspendExcStates=DOWN", one_down), "n0,n2,n3");
    assert_eq!(suspended("PartitionName=own Nodes=n[2-3]\nSuspendExcParts=own", all()), "n0,n1");
}

#[test]
fn passes_are_not_closer_than_the_site_says_and_not_rarer() {
    let mut bench = Bench::new("SlurmctldParameters=power_save_interval=7,power_save_min_interval=3");
    bench.pass(0, vec![idle(0)]);
    assert_eq!(bench.next(0), secs(7));
    bench.send(NOW.plus(secs(1)), PowerInput::Changed);
    assert_eq!(bench.next(1), secs(2));
}

#[test]
fn a_site_without_a_program_that_powers_nodes_up_saves_no_power() {
    let lines = "ClusterName=test\nSlurmctldHost=head\nNodeName=n0 CPUs=4\nPartitionName=all Nodes=ALL Default=YES\nSuspendProgram=/sbin/down\nSuspendTime=1";
    assert_eq!(PowerPolicy::of(&config_of(lines)), None);
    let mut core = PowerCore::default();
    let mut out = Vec::new();
    let looked = Looked { seen: 1, nodes: vec![Arc::new(idle(0))], policy: None };
    core.handle(
        NOW.plus(secs(100)),
        &mut CountingIds { job: 0, sluid: 0 },
        PowerInput::Looked(Box::new(looked)),
        &mut out,
    );
    assert_eq!(out, []);
}
