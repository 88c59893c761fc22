//! Decides which nodes are to be powered down or up, and when the site's programs run. Called by its shell and by simulations.
//!
//! A pass looks at the views of all nodes. What is to change is proposed to the nodes' owners; when a node's view says that it is
//! on its way, the change is on disk, and the program runs for it. So a program runs for several nodes at a time, and never for a
//! change that nobody knows of after a restart.

use super::rate::Rate;
use crate::{
    messages::{
        letter::Letter,
        node::{NodeInput, PowerMove},
    },
    owner::{Effect, FreshIds, Out, Owner},
    power_policy::PowerPolicy,
};
use garrick_model::{
    config::Span,
    site_program::Moment,
    state::{NodePower, PowerRequest},
    time::Timestamp,
    view::{NodeHold, NodeView},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

/// Pause between passes, so that a crowd of changes is looked at once, and its nodes are switched together.
const LEAST_PAUSE: Duration = Duration::from_millis(250);

/// What a pass looks at.
#[derive(Clone, Debug)]
pub struct Looked {
    /// Generation of the nodes' board before it was read.
    pub seen: u64,
    /// All nodes, in the order of the configuration.
    pub nodes: Vec<Arc<NodeView>>,
    /// `None`: the site does not save power.
    pub policy: Option<Arc<PowerPolicy>>,
}

/// Inputs.
#[derive(Clone, Debug)]
pub enum PowerInput {
    /// The actor has started, or the configuration has changed.
    Begin,
    /// A node has changed since [`PowerErrand::Watch`].
    Changed,
    /// Answer to [`PowerErrand::Look`].
    Looked(Box<Looked>),
    /// It is time for a pass.
    Timer(PowerTimer),
}

/// Its timer: the next pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerTimer;

/// A program of the site to run for these nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerProgram {
    /// Which.
    pub moment: Moment,
    /// Its path and first arguments; the nodes follow.
    pub command: Vec<String>,
    /// The nodes.
    pub nodes: BTreeSet<String>,
    /// How long it may run; `None`: any time.
    pub limit: Option<Duration>,
}

/// Errands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PowerErrand {
    /// Read the views; answered by [`PowerInput::Looked`].
    Look,
    /// Send [`PowerInput::Changed`] when the nodes' board is newer than this.
    Watch(u64),
    /// Run a program. Nobody waits for its end.
    Run(PowerProgram),
}

/// The owner of power saving.
#[derive(Clone, Debug, Default)]
pub struct PowerCore {
    /// When it began: nodes that were on their way have their full time from then on.
    began: Option<Timestamp>,
    last: Option<Timestamp>,
    watching: bool,
    looking: bool,
    /// The state of each node for which its program was run.
    ran: BTreeMap<String, (NodePower, Timestamp)>,
    /// The generation of each node's view from which something was proposed.
    asked: BTreeMap<String, u64>,
    suspended: Rate,
    resumed: Rate,
    policy: Option<Arc<PowerPolicy>>,
}

/// What a pass finds.
#[derive(Default)]
struct Found<'n> {
    /// To be powered down, in order.
    suspend: Vec<&'n NodeView>,
    /// To be powered up, in order.
    resume: Vec<&'n NodeView>,
    moves: Vec<(&'n NodeView, PowerMove)>,
    /// The states of nodes for which a program is run.
    on_their_way: Vec<(String, (NodePower, Timestamp))>,
    /// Their programs run.
    going_down: BTreeSet<String>,
    coming_up: BTreeSet<String>,
    failed: BTreeSet<String>,
    /// When something is due next.
    next: Option<Timestamp>,
}

impl Found<'_> {
    fn due(&mut self, at: Timestamp) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

impl PowerCore {
    fn look(&mut self, out: &mut Out<Self>) {
        if !std::mem::replace(&mut self.looking, true) {
            out.push(Effect::Do(PowerErrand::Look));
        }
    }

    /// A pass is due: not sooner after the last one than the site says.
    fn soon(&self, now: Timestamp, out: &mut Out<Self>) {
        let pause = self.policy.as_ref().map_or(Duration::ZERO, |policy| policy.least_interval).max(LEAST_PAUSE);
        let at = self.last.filter(|last| *last <= now).map_or(now, |last| last.plus(pause)).max(now);
        out.push(Effect::SetTimer { timer: PowerTimer, at });
    }

    fn pass(&mut self, now: Timestamp, looked: Looked, out: &mut Out<Self>) {
        (self.looking, self.last) = (false, Some(now));
        self.policy = looked.policy;
        let Some(policy) = self.policy.clone() else {
            // Until the configuration changes.
            return self.ran.clear();
        };
        let nodes: Vec<&NodeView> = looked.nodes.iter().map(|node| &**node).collect();
        let mut found = Found::default();
        for node in &nodes {
            self.examine(now, node, &policy, &mut found);
        }
        self.find_idle(now, &nodes, &policy, &mut found);
        self.forget_others(&nodes);
        self.act(now, &policy, found, out);
        if !std::mem::replace(&mut self.watching, true) {
            out.push(Effect::Do(PowerErrand::Watch(looked.seen)));
        }
    }

    /// When a time that began then is over.
    fn end(&self, since: Option<Timestamp>, time: Span) -> Option<Timestamp> {
        let began = since.unwrap_or_default().max(self.began.unwrap_or_default());
        time.duration().map(|time| began.plus(time))
    }

    /// What requests, jobs and times mean for a node.
    fn examine<'n>(&self, now: Timestamp, node: &'n NodeView, policy: &PowerPolicy, found: &mut Found<'n>) {
        let times = policy.times(&node.name);
        let state = (node.flags.power, node.power_since.unwrap_or_default());
        let is_new = self.ran.get(&node.name) != Some(&state);
        match node.flags.power {
            NodePower::On if node.flags.power_request == Some(PowerRequest::Down) && node.holds.is_empty() => {
                found.suspend.push(node);
            }
            NodePower::On => {}
            NodePower::PoweredDown if node.flags.power_request == Some(PowerRequest::Down) => found.suspend.push(node),
            NodePower::PoweredDown => {
                if node.flags.power_request == Some(PowerRequest::Up) || node.holds.iter().any(NodeHold::is_at_work) {
                    found.resume.push(node);
                }
            }
            NodePower::PoweringDown => {
                if is_new {
                    found.going_down.insert(node.name.clone());
                    found.on_their_way.push((node.name.clone(), state));
                }
                match self.end(node.power_since, times.suspend_timeout) {
                    Some(at) if at <= now => found.moves.push((node, PowerMove::Off)),
                    at => at.into_iter().for_each(|at| found.due(at)),
                }
            }
            NodePower::PoweringUp if node.flags.power_request == Some(PowerRequest::Down) && node.holds.is_empty() => {
                found.suspend.push(node);
            }
            NodePower::PoweringUp => {
                if is_new {
                    found.coming_up.insert(node.name.clone());
                    found.on_their_way.push((node.name.clone(), state));
                }
                match self.end(node.power_since, times.resume_timeout) {
                    Some(at) if at <= now => {
                        found.failed.insert(node.name.clone());
                        found.moves.push((node, PowerMove::Failed));
                    }
                    at => at.into_iter().for_each(|at| found.due(at)),
                }
            }
        }
    }

    /// Nodes that have been idle for `SuspendTime`.
    fn find_idle<'n>(&self, now: Timestamp, nodes: &[&'n NodeView], policy: &PowerPolicy, found: &mut Found<'n>) {
        if policy.settings.suspend_program.is_none() {
            return;
        }
        let mut idle = Vec::new();
        for node in nodes {
            let time = policy.times(&node.name).suspend_time.duration();
            if let (Some(since), Some(time), None) = (node.idle_since, time, node.flags.power_request) {
                match since.plus(time) {
                    at if at <= now => idle.push(*node),
                    at => found.due(at),
                }
            }
        }
        if !idle.is_empty() {
            let kept = policy.stay_on(nodes.iter().copied());
            found.suspend.extend(idle.into_iter().filter(|node| !kept.contains(node.name.as_str())));
        }
    }

    fn forget_others(&mut self, nodes: &[&NodeView]) {
        if self.ran.is_empty() && self.asked.is_empty() {
            return;
        }
        let on_its_way: BTreeSet<&str> = nodes
            .iter()
            .filter(|node| matches!(node.flags.power, NodePower::PoweringDown | NodePower::PoweringUp))
            .map(|node| node.name.as_str())
            .collect();
        self.ran.retain(|node, _| on_its_way.contains(node.as_str()));
        let of_now: BTreeMap<&str, u64> = nodes.iter().map(|node| (node.name.as_str(), node.generation)).collect();
        self.asked.retain(|node, generation| of_now.get(node.as_str()) == Some(generation));
    }

    /// So many of the nodes as the rate allows.
    fn paced<'n>(&mut self, now: Timestamp, found: &mut Found<'n>, policy: &PowerPolicy, what: PowerMove) {
        let (nodes, rate, most) = match what {
            PowerMove::Suspend => (&found.suspend, &mut self.suspended, policy.settings.suspend_rate),
            _ => (&found.resume, &mut self.resumed, policy.settings.resume_rate),
        };
        let fresh: Vec<&'n NodeView> =
            nodes.iter().copied().filter(|node| !self.asked.contains_key(&node.name)).collect();
        let left = rate.left(now, most).min(fresh.len());
        for node in &fresh[..left] {
            rate.count(now);
            found.moves.push((node, what));
        }
        if let Some(at) = rate.next().filter(|_| left < fresh.len()) {
            found.due(at);
        }
    }

    fn act(&mut self, now: Timestamp, policy: &PowerPolicy, mut found: Found<'_>, out: &mut Out<Self>) {
        self.paced(now, &mut found, policy, PowerMove::Suspend);
        self.paced(now, &mut found, policy, PowerMove::Resume);
        for (node, what) in &found.moves {
            if self.asked.insert(node.name.clone(), node.generation).is_none() {
                out.push(Effect::Tell(Letter::Node(node.name.clone(), NodeInput::Power(*what))));
            }
        }
        self.run(policy, &mut found, out);
        let latest = now.plus(policy.interval);
        let at = found.next.map_or(latest, |next| next.min(latest)).max(now.plus(LEAST_PAUSE));
        out.push(Effect::SetTimer { timer: PowerTimer, at });
    }

    /// The programs for nodes that are on their way since the last pass, and for those that did not come.
    fn run(&mut self, policy: &PowerPolicy, found: &mut Found<'_>, out: &mut Out<Self>) {
        let settings = &policy.settings;
        self.ran.extend(std::mem::take(&mut found.on_their_way));
        let programs = [
            (Moment::Suspend, &settings.suspend_program, std::mem::take(&mut found.going_down)),
            (Moment::Resume, &settings.resume_program, std::mem::take(&mut found.coming_up)),
            (Moment::ResumeFail, &settings.resume_fail_program, std::mem::take(&mut found.failed)),
        ];
        for (moment, program, nodes) in programs {
            if let Some(program) = program.as_ref().filter(|_| !nodes.is_empty()) {
                let (command, limit) = (settings.command(program), policy.program_limit());
                out.push(Effect::Do(PowerErrand::Run(PowerProgram { moment, command, nodes, limit })));
            }
        }
    }
}

impl Owner for PowerCore {
    type Input = PowerInput;
    type Timer = PowerTimer;
    type Shown = Infallible;
    type Answer = ();
    type Errand = PowerErrand;

    fn handle(&mut self, now: Timestamp, _: &mut dyn FreshIds, input: PowerInput, out: &mut Out<Self>) {
        match input {
            PowerInput::Begin => {
                self.began.get_or_insert(now);
                self.look(out);
            }
            PowerInput::Changed => {
                self.watching = false;
                self.soon(now, out);
            }
            PowerInput::Timer(PowerTimer) => self.look(out),
            PowerInput::Looked(looked) => self.pass(now, *looked, out),
        }
    }

    fn timer(timer: PowerTimer) -> PowerInput {
        PowerInput::Timer(timer)
    }
}
