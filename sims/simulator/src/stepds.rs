//! Simulated `stepd`s: their orders, work and reports. `stepd_life` has their starts and ends.

use super::{
    roster::machine_of,
    step_side::StepSide,
    world::{Happening, Place, World},
};
use garrick_agent::{AgentInput, RunKey};
use garrick_model::{
    messages::{
        node::{JobCredential, JobLaunch, RequeuePolicy, SignalScope},
        stepd::{NodeToStepd, StepdReport, StepdToNode},
    },
    signal::{SIGCONT, SIGSTOP},
    spec::JobKind,
    state::{ExitStatus, JobState, Reason},
    time::Timestamp,
};

/// An order that is being prepared, and later what a `stepd` was told.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) run: RunKey,
    pub(super) order: Box<JobLaunch>,
    pub(super) credential: Box<JobCredential>,
    /// Name of the batch host, where this is another node.
    pub(super) manager: Option<String>,
}

/// What a `stepd` hears.
#[derive(Clone, Debug)]
pub(super) enum ToStepd {
    Agent(NodeToStepd),
    /// Its tasks are done.
    WorkDone(JobState),
    /// Its time is over.
    LimitOver,
    /// The step manager ended the run, or is gone.
    ManagerEnds,
    /// This other node's part is lost or did not start.
    PeerLost(usize),
    /// This other node's part has said nothing for as long as it is waited for.
    PeerSilent(usize),
    /// It asks the agents of the run's other nodes for their parts, as one does that was started again.
    LookForPeers,
}

impl Launch {
    pub(super) fn order(&self) -> &JobLaunch {
        &self.order
    }

    pub(super) fn credential(&self) -> &JobCredential {
        &self.credential
    }
}

#[derive(Clone, Debug)]
pub(super) struct Stepd {
    pub(super) launch: Launch,
    pub(super) conn: Option<u64>,
    /// That connection's agent is told what was not safe, and from then on everything.
    pub(super) open: bool,
    pub(super) seq: u64,
    pub(super) unacknowledged: Vec<(u64, StepdReport)>,
    pub(super) started: bool,
    pub(super) ended: bool,
    pub(super) left: bool,
    /// It lives and does nothing.
    pub(super) hung: bool,
    /// When it began, on the batch host.
    pub(super) began: Timestamp,
    /// When its time is over, on the batch host.
    pub(super) limit: Option<Timestamp>,
    /// Its tasks are stopped.
    pub(super) stopped: bool,
}

impl Stepd {
    /// A step manager's numbers start behind those of the one before it, whose reports it makes its own; that its run is gone
    /// it finds out itself.
    pub(super) fn renumber(&mut self) {
        self.seq = ((self.seq >> 32) + 1) << 32;
        let mut reports: Vec<StepdReport> =
            std::mem::take(&mut self.unacknowledged).into_iter().map(|(_, r)| r).collect();
        if self.left && !reports.contains(&StepdReport::Gone) {
            reports.push(StepdReport::Gone);
        }
        for report in reports {
            self.seq += 1;
            self.unacknowledged.push((self.seq, report));
        }
    }
}

/// A run's folder.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) batch_host: bool,
    /// Whether its job may be started again elsewhere when this node is given up.
    pub(super) requeue: RequeuePolicy,
    pub(super) clean: bool,
    /// Boot of the machine in which it was made.
    pub(super) boot: u64,
    pub(super) stepd: Option<Stepd>,
    /// What the next `stepd` will know of one that died.
    pub(super) journal: Option<Stepd>,
}

impl Folder {
    /// No process works on the run here any longer.
    pub(super) fn is_over(&self) -> bool {
        self.stepd.as_ref().or(self.journal.as_ref()).is_none_or(|stepd| stepd.ended)
    }
}

impl World {
    pub(super) fn tell_stepd(&mut self, node: usize, run: RunKey, what: ToStepd) {
        let Some(stepd) = self.stepd(node, run).filter(|stepd| !stepd.hung) else { return };
        let batch_host = stepd.launch.manager.is_none();
        if batch_host && self.step_sides.contains_key(&run) {
            return self.tell_with_steps(node, run, what);
        }
        let now = self.now;
        let Some(stepd) = self.stepd(node, run) else { return };
        match what {
            ToStepd::Agent(NodeToStepd::Welcome) => {
                let (first, again) = (!stepd.started, stepd.unacknowledged.clone());
                (stepd.started, stepd.open) = (true, true);
                for (seq, report) in again {
                    self.stepd_says(node, run, seq, report);
                }
                if first {
                    self.stepd_begins(node, run);
                }
            }
            ToStepd::Agent(NodeToStepd::Ack { upto }) => {
                let is_end =
                    |(seq, report): &(u64, StepdReport)| *seq <= upto && matches!(report, StepdReport::Ended { .. });
                let ended = stepd.unacknowledged.iter().any(is_end);
                stepd.unacknowledged.retain(|(seq, _)| *seq > upto);
                if ended {
                    self.promises.end(run.sluid);
                }
                let Some(stepd) = self.stepd(node, run) else { return };
                if stepd.left && stepd.unacknowledged.is_empty() {
                    self.kill_stepd(node, run);
                }
            }
            ToStepd::Agent(NodeToStepd::EndJob { state, reason, .. }) if batch_host => {
                self.end_run(node, run, state, reason);
            }
            ToStepd::Agent(NodeToStepd::FinishAllocation(_)) if batch_host => {
                self.end_run(node, run, JobState::Completed, Reason::None);
            }
            ToStepd::Agent(NodeToStepd::SignalJob { signal, to: SignalScope::Full }) if batch_host => {
                stepd.stopped = (stepd.stopped || signal == SIGSTOP) && signal != SIGCONT;
            }
            ToStepd::Agent(NodeToStepd::SetTimeLimit(limit)) if batch_host => {
                stepd.limit = limit.duration().map(|limit| stepd.began.plus(limit));
                self.wait_for_limit(node, run);
            }
            ToStepd::WorkDone(state) if stepd.stopped && !stepd.ended => {
                self.after(5_000, Happening::Stepd(node, run, ToStepd::WorkDone(state)));
            }
            // Its owner says that it is done, again and again until that is heard.
            ToStepd::WorkDone(_) if stepd.launch.order.spec.kind == JobKind::Allocation && !stepd.ended => {
                self.finish_allocation(run);
                self.after(60_000, Happening::Stepd(node, run, ToStepd::WorkDone(JobState::Completed)));
            }
            ToStepd::WorkDone(state) => self.end_run(node, run, state, Reason::None),
            // It may have been moved.
            ToStepd::LimitOver if stepd.limit.is_none_or(|at| at > now) => {}
            ToStepd::LimitOver => self.end_run(node, run, JobState::Timeout, Reason::TimeLimit),
            ToStepd::LookForPeers => self.look_for_peers(node, run),
            ToStepd::PeerLost(_) if batch_host => self.end_run(node, run, JobState::NodeFail, Reason::NodeDown),
            ToStepd::ManagerEnds | ToStepd::Agent(NodeToStepd::EndJob { .. }) => self.leave(node, run),
            ToStepd::PeerLost(_) | ToStepd::PeerSilent(_) | ToStepd::Agent(_) => {}
        }
    }

    /// As [`Self::tell_stepd`], for the batch host of a run with steps.
    pub(super) fn tell_with_steps(&mut self, node: usize, run: RunKey, what: ToStepd) {
        let allocation = self.stepd(node, run).is_some_and(|s| s.launch.order.spec.kind == JobKind::Allocation);
        match what {
            ToStepd::Agent(message) => self.tell_step_side(run, message),
            ToStepd::WorkDone(state) if self.step_sides.get(&run).is_some_and(StepSide::stands_still) => {
                self.after(5_000, Happening::Stepd(node, run, ToStepd::WorkDone(state)));
            }
            ToStepd::WorkDone(state) => {
                if allocation {
                    self.finish_allocation(run);
                } else if let Some(step_side) = self.step_sides.get_mut(&run) {
                    step_side.end_script(u8::from(state == JobState::Failed));
                }
                self.after(60_000, Happening::Stepd(node, run, ToStepd::WorkDone(state)));
            }
            ToStepd::PeerLost(other) => self.with_step_side(run, other, |harness, slot| {
                if !harness.nodes[slot].lost {
                    harness.lose(slot);
                }
            }),
            ToStepd::PeerSilent(other) if self.hangs(other, run) => self.with_step_side(run, other, |harness, slot| {
                let (lost, away) = (harness.nodes[slot].lost, harness.nodes[slot].away);
                if !lost && !away {
                    harness.away(slot);
                }
                if !lost {
                    harness.give_up(slot);
                }
            }),
            ToStepd::PeerSilent(_) => {}
            ToStepd::LookForPeers => self.look_for_peers(node, run),
            // Its step manager has a timer of its own.
            ToStepd::ManagerEnds | ToStepd::LimitOver => {}
        }
    }

    /// The step manager has said that the run is over.
    pub(super) fn tell_shepherds_of_end(&mut self, node: usize, run: RunKey) {
        let Some(stepd) = self.stepd(node, run) else { return };
        stepd.ended = true;
        for other in others(&stepd.launch, node) {
            self.send(Place::Stepd(node, run), Happening::Stepd(other, run, ToStepd::ManagerEnds));
        }
    }

    /// As a step manager's timer, which the next one sets again.
    pub(super) fn wait_for_limit(&mut self, node: usize, run: RunKey) {
        let left = self.stepd(node, run).and_then(|stepd| stepd.limit).map(|at| at.since(self.now));
        if let Some(left) = left {
            let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            self.after(ms, Happening::Stepd(node, run, ToStepd::LimitOver));
        }
    }

    pub(super) fn stepd_reports(&mut self, node: usize, run: RunKey, report: StepdReport) {
        let Some(stepd) = self.stepd(node, run) else { return };
        stepd.seq += 1;
        let seq = stepd.seq;
        stepd.unacknowledged.push((seq, report.clone()));
        self.stepd_says(node, run, seq, report);
    }

    pub(super) fn stepd_says(&mut self, node: usize, run: RunKey, seq: u64, report: StepdReport) {
        let life = self.machines[node].life;
        if let Some(conn) = self.stepd(node, run).filter(|stepd| stepd.open).and_then(|stepd| stepd.conn) {
            let input = AgentInput::Stepd { run, conn, message: StepdToNode::Report { seq, report } };
            self.send(Place::Stepd(node, run), Happening::Agent(node, life, input));
        }
    }

    /// The step manager ends the run everywhere.
    pub(super) fn end_run(&mut self, node: usize, run: RunKey, state: JobState, reason: Reason) {
        let at = self.now;
        let Some(stepd) = self.stepd(node, run).filter(|stepd| !stepd.ended) else { return };
        stepd.ended = true;
        let others = others(&stepd.launch, node);
        let exit = ExitStatus { code: u8::from(state == JobState::Failed), signal: None };
        let gone = |other: &&usize| self.machines[**other].spool.get(&run).is_none_or(Folder::is_over);
        let lost =
            others.iter().filter(|_| state == JobState::NodeFail).filter(gone).map(|at| format!("n{at}")).collect();
        self.note_end(run, state);
        self.stepd_reports(node, run, StepdReport::Ended { state, reason, exit, derived: exit, at, lost, cause: None });
        for other in others {
            self.send(Place::Stepd(node, run), Happening::Stepd(other, run, ToStepd::ManagerEnds));
        }
        self.leave(node, run);
    }

    pub(super) fn leave(&mut self, node: usize, run: RunKey) {
        if let Some(stepd) = self.stepd(node, run).filter(|stepd| !stepd.left) {
            stepd.left = true;
            self.stepd_reports(node, run, StepdReport::Gone);
        }
    }
}

/// The run's nodes but this one.
pub(super) fn others(launch: &Launch, but: usize) -> Vec<usize> {
    launch.credential.nodes.iter().filter_map(|n| machine_of(&n.name)).filter(|node| *node != but).collect()
}
