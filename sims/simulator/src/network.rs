//! Links between machines and the controller: they break, are cut, and are restored; agents without a controller ask others.

use super::{
    stepds::Stepd,
    world::{Happening, PATIENCE, Place, World},
};
use garrick_actors::messages::node::NodeInput;
use garrick_agent::{AgentInput, PeersSaid, RunKey, lease_of};
use garrick_model::ids::{JobId, Sluid};
use std::time::Duration;

/// So many other nodes are asked whether they have the controller, as by real agents.
const PEERS_ASKED: usize = 16;
/// How long their answers are waited for, as by real agents.
const PEERS_PATIENCE_MS: u32 = 5_000;
/// The links of a node that is cut off are given up after this at most.
const SILENCE_NOTICED_MS: u32 = 10_000;
/// A node that has had the controller for so long was told what an administrator's word means for its jobs.
const TOLD_AFTER: Duration = Duration::from_secs(30);
/// Name of the rule that a lease is kept.
const LEASE: &str = "a_lease_ends_no_earlier_than_it_may";

impl World {
    /// The network between some nodes and all others, and the controller, is gone for a while. Both ends of a link notice
    /// when they hear nothing for long.
    pub(super) fn cut(&mut self, nodes: &[usize], secs: u32) {
        self.connections += 1;
        let (partition, ms) = (self.connections, u64::from(secs) * 1_000);
        for &node in nodes {
            self.machines[node].cut_until = self.now.plus(Duration::from_millis(ms));
            self.machines[node].partition = partition;
            let Some(conn) = self.lose_link(node) else { continue };
            let there = self.random.between(5_000, 40_000);
            self.after(u64::from(there), Happening::Node(node, NodeInput::LinkGone { conn }));
            let here = u64::from(self.random.between(0, SILENCE_NOTICED_MS)).min(ms);
            let life = self.machines[node].life;
            self.after(here, Happening::Agent(node, life, AgentInput::ControllerGone));
            self.after(ms + 1_000, Happening::Connect(node));
        }
    }

    /// What is under way on the link is lost with it.
    pub(super) fn lose_link(&mut self, node: usize) -> Option<u64> {
        let conn = self.machines[node].link.take()?;
        self.lose_frames(conn);
        let (now, machine) = (self.now, &mut self.machines[node]);
        if machine.without_since.is_none() {
            machine.set_down.take_if(|at| now.since(machine.welcomed.max(*at)) > TOLD_AFTER);
            machine.without_since = Some(now);
        }
        Some(conn)
    }

    pub(super) fn is_cut(&self, node: usize) -> bool {
        self.machines[node].cut_until > self.now
    }

    /// Does a network reach from the one to the other?
    pub(super) fn reaches(&self, node: usize, other: usize) -> bool {
        let together = self.machines[node].partition == self.machines[other].partition;
        match (self.is_cut(node), self.is_cut(other)) {
            (false, false) => self.machines[other].is_on(),
            (true, true) => together && self.machines[other].is_on(),
            _ => false,
        }
    }

    /// Asks some other nodes whether they have the controller.
    pub(super) fn ask_peers(&mut self, node: usize, life: u64) {
        self.ledger.counts.add("lease over");
        let mut others: Vec<usize> = (0..self.machines.len()).filter(|other| *other != node).collect();
        let mut said = PeersSaid::default();
        while said.asked < PEERS_ASKED
            && let Some(&other) = self.random.pick(&others)
        {
            others.retain(|o| *o != other);
            said.asked += 1;
            if self.reaches(node, other) {
                said.reached += 1;
                said.with_controller += usize::from(self.machines[other].link.is_some());
            }
        }
        let quickest = if said.reached < said.asked { PEERS_PATIENCE_MS } else { 5 };
        let pause = self.random.between(quickest, PEERS_PATIENCE_MS);
        self.after(u64::from(pause), Happening::Agent(node, life, AgentInput::PeersSaid(said)));
    }

    /// Runs were ended because this node has no controller: it has been without one for as long as it is to wait.
    pub(super) fn against_lease(&mut self, node: usize, ended: usize) {
        (0..ended).for_each(|_| self.ledger.counts.add("run ended by a lease"));
        let machine = &self.machines[node];
        let since = machine.without_since.map(|since| self.now.since(since));
        if since.is_none() || since < lease_of(Some(PATIENCE)) {
            let what = format!("{} has ended {ended} runs after {since:?} without a controller", machine.name);
            self.broken = Some((LEASE, what));
        }
    }

    /// A node that was given up, where an earlier run of a job goes on than this one. Who was given up at an
    /// administrator's word has to be told first, an agent counts from its own start, and a stepped clock is believed a
    /// ping too early: none of these counts.
    pub fn goes_on_elsewhere(&self, job: JobId, run: Sluid) -> Option<String> {
        let earlier = RunKey { job, sluid: Sluid(0) }..RunKey { job, sluid: run };
        self.machines.iter().find_map(|machine| {
            let since = machine.without_since.filter(|since| {
                machine.is_on()
                    && machine.set_down.is_none()
                    && machine.agent_start <= *since
                    && self.clock_stepped < *since
            })?;
            let works = |stepd: &Stepd| !stepd.ended && !stepd.left;
            let runs = machine.spool.range(earlier.clone()).filter(|(run, _)| !machine.ending.contains(run));
            let mut works = runs.filter(|(_, folder)| folder.stepd.as_ref().is_some_and(works));
            let (run, _) = works.next()?;
            Some(format!("run {} on {}, {:?} without a controller", run.sluid, machine.name, self.now.since(since)))
        })
    }

    pub(super) fn connect(&mut self, node: usize) {
        let left = self.machines[node].cut_until.since(self.now);
        if !left.is_zero() {
            return self.after(u64::try_from(left.as_millis()).unwrap_or(0) + 1_000, Happening::Connect(node));
        }
        if self.machines[node].link.is_none() && !self.machines[node].dead && !self.machines[node].off {
            self.connections += 1;
            self.machines[node].link = Some(self.connections);
            self.agent(node, AgentInput::ControllerUp);
        }
    }

    /// The link breaks; frames on it are lost. The agent connects again after a while, mostly a short one.
    pub(super) fn break_link(&mut self, node: usize) {
        let Some(conn) = self.lose_link(node) else { return };
        self.send(Place::Agent(node), Happening::Node(node, NodeInput::LinkGone { conn }));
        self.agent(node, AgentInput::ControllerGone);
        let long = !self.is_calm() && self.random.one_in_thousand(150);
        let pause = self.random.between(1_000, if long { 400_000 } else { 15_000 });
        self.after(u64::from(pause), Happening::Connect(node));
    }
}
