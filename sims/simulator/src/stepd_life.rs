//! How simulated `stepd`s start, die, hang, are restarted and look for each other.

use super::{
    mutation::Mutation,
    roster::machine_of,
    step_side::{FIRST_TURN, StepSide},
    stepds::{Folder, Launch, Stepd, ToStepd, others},
    world::{Happening, Place, World},
};
use garrick_agent::{AgentInput, PrepareFailure, RunKey, StartOrder};
use garrick_model::{messages::stepd::StepdReport, state::JobState, time::Timestamp};

/// A shepherd that says nothing is waited for so long: the idle limit of its link and `SHEPHERD_AWAY_LIMIT` of `stepd`, in
/// milliseconds.
const SILENT_MS: u64 = 40_000;

impl World {
    /// Prolog and folder are done: a `stepd` starts, or not.
    pub(super) fn prepared(&mut self, node: usize, life: u64, launch: Launch) {
        if self.machines[node].life != life {
            return;
        }
        let run = launch.run;
        if !self.is_calm() && self.random.one_in_thousand(8) {
            self.ledger.counts.add("launch failure");
            let prolog = self.random.one_in_thousand(300);
            let what = "made to fail".to_owned();
            let failure = if prolog { PrepareFailure::Prolog(what) } else { PrepareFailure::Start(what) };
            return self.agent(node, AgentInput::Prepared { run, result: Err(failure) });
        }
        if self.step_sides.get(&run).is_some_and(|step_side| step_side.had_shepherd(node)) {
            let what =
                format!("job {}: another shepherd is begun on n{node}, which had lost the one before", run.job.0);
            self.broken = Some(("a_shepherd_is_begun_once", what));
        }
        let (batch_host, requeue) = (launch.manager.is_none(), launch.order.requeue_policy(true));
        let (conn, unacknowledged) = (None, Vec::new());
        let stepd = Stepd {
            launch,
            conn,
            open: false,
            seq: 0,
            unacknowledged,
            started: false,
            ended: false,
            left: false,
            hung: false,
            began: Timestamp::default(),
            limit: None,
            stopped: false,
        };
        let boot = self.machines[node].boot;
        let folder = Folder { batch_host, requeue, clean: false, boot, stepd: Some(stepd), journal: None };
        self.machines[node].spool.insert(run, folder);
        self.agent(node, AgentInput::Prepared { run, result: Ok(1) });
        self.send(Place::Machine(node), Happening::StepdConnects(node, run));
    }

    pub(super) fn stepd(&mut self, node: usize, run: RunKey) -> Option<&mut Stepd> {
        self.machines[node].spool.get_mut(&run)?.stepd.as_mut()
    }

    pub(super) fn stepd_connects(&mut self, node: usize, run: RunKey) {
        self.connections += 1;
        let conn = self.connections;
        let Some(stepd) = self.stepd(node, run) else { return };
        (stepd.conn, stepd.open) = (Some(conn), false);
        let batch_host = stepd.launch.manager.is_none();
        self.agent(node, AgentInput::StepdUp { run, conn, pid: 1, door: format!("n{node}.sock"), batch_host });
    }

    pub(super) fn stepd_begins(&mut self, node: usize, run: RunKey) {
        let Some(launch) = self.stepd(node, run).map(|stepd| stepd.launch.clone()) else { return };
        if let Some(manager) = &launch.manager {
            // A shepherd that finds no step manager, and none that will be started again, ends itself.
            let folder = machine_of(manager).and_then(|at| self.machines[at].spool.get(&run));
            if folder.is_none_or(Folder::is_over) {
                self.leave(node, run);
            }
            let dead = self.step_sides.get(&run).is_some_and(|step_side| step_side.dead);
            self.with_step_side(run, node, |harness, slot| {
                match (harness.nodes[slot].lost, harness.nodes[slot].away) {
                    (true, _) => {}
                    (false, true) => harness.back(slot),
                    (false, false) if dead => harness.launcher_up(slot),
                    (false, false) => harness.shepherd_up(slot),
                }
            });
            return;
        }
        if self.random.one_in_thousand(self.mix.with_steps) {
            self.ledger.counts.add("run with steps");
            let knows_limit = !self.has(Mutation::LimitsAreForgotten);
            self.step_sides.insert(run, StepSide::new(self.now, &launch, knows_limit));
            let first = u64::try_from(FIRST_TURN.as_millis()).unwrap_or(100);
            self.after(first, Happening::StepSide(run));
            self.after_step_side(run);
        } else {
            self.stepd_reports(node, run, StepdReport::Started);
        }
        for other in others(&launch, node) {
            self.ask_for_shepherd(node, other, &launch, false);
        }
        let state = if self.random.one_in_thousand(120) { JobState::Failed } else { JobState::Completed };
        let work = self.random.between(2_000, 300_000);
        self.after(u64::from(work), Happening::Stepd(node, run, ToStepd::WorkDone(state)));
        let (now, limit) = (self.now, launch.order.time_limit.duration());
        if let Some(stepd) = self.stepd(node, run) {
            stepd.began = now;
            stepd.limit = limit.map(|limit| now.plus(limit));
        }
        self.wait_for_limit(node, run);
    }

    /// `again`: the run had one there.
    fn ask_for_shepherd(&mut self, node: usize, other: usize, launch: &Launch, again: bool) {
        let run = launch.run;
        if self.machines[other].dead {
            // There is no answer.
            return self.after(30_000, Happening::Stepd(node, run, ToStepd::PeerLost(other)));
        }
        self.connections += 1;
        let query = self.connections;
        self.machines[other].askers.insert(query, (node, run));
        let order = StartOrder { launch: launch.order.clone(), credential: Ok(launch.credential.clone()) };
        let again = again && !self.has(Mutation::ShepherdsAreBegunAgain);
        let input = AgentInput::StartShepherd { query, order, manager: self.machines[node].name.clone(), again };
        let life = self.machines[other].life;
        self.send(Place::Stepd(node, run), Happening::Agent(other, life, input));
    }

    /// The process lives on and does nothing more.
    pub(super) fn hang_stepd(&mut self, node: usize, run: RunKey) {
        let Some(stepd) = self.stepd(node, run) else { return };
        stepd.hung = true;
        if let Some(manager) = stepd.launch.manager.as_deref().and_then(machine_of) {
            self.wait_for_silent(manager, run, node);
        }
    }

    /// The link to a shepherd that hangs is given up after a while, as the step manager's shell does.
    fn wait_for_silent(&mut self, manager: usize, run: RunKey, node: usize) {
        self.after(SILENT_MS, Happening::Stepd(manager, run, ToStepd::PeerSilent(node)));
    }

    /// Does the run's step manager hang?
    pub(super) fn hangs(&self, node: usize, run: RunKey) -> bool {
        let folder = self.machines[node].spool.get(&run);
        folder.and_then(|folder| folder.stepd.as_ref()).is_some_and(|stepd| stepd.hung)
    }

    /// The process ends, by a signal or because all is said. Its journal stays. False: there was none.
    pub(super) fn kill_stepd(&mut self, node: usize, run: RunKey) -> bool {
        let Some(folder) = self.machines[node].spool.get_mut(&run) else { return false };
        let Some(stepd) = folder.stepd.take() else { return false };
        folder.journal = Some(Stepd { conn: None, hung: false, ..stepd });
        let life = self.machines[node].life;
        if let Some(step_side) = self.step_sides.get_mut(&run) {
            match step_side.slot(node) {
                Some(0) => step_side.dead = true,
                Some(slot) if step_side.harness.nodes[slot].up && !step_side.harness.nodes[slot].lost => {
                    step_side.harness.away(slot)
                }
                Some(_) | None => {}
            }
        }
        let exited = AgentInput::StepdExited { run, pid: None, how: "made up".to_owned() };
        self.send(Place::Stepd(node, run), Happening::Agent(node, life, exited));
        true
    }

    /// The machine is started anew: its processes are gone, and none is taken up again.
    pub(super) fn reboot(&mut self, node: usize) {
        self.machines[node].boot += 1;
        for run in self.machines[node].living() {
            self.abandon(node, run);
        }
        self.begin_agent(node);
    }

    /// The run is given up on this node; its other nodes notice.
    pub(super) fn abandon(&mut self, node: usize, run: RunKey) {
        self.kill_stepd(node, run);
        let Some(stepd) = self.machines[node].spool.get_mut(&run).and_then(|folder| folder.journal.take()) else {
            return;
        };
        let batch_host = stepd.launch.credential.nodes.first().and_then(|n| machine_of(&n.name));
        if stepd.launch.manager.is_none() {
            self.step_sides.remove(&run);
            for other in others(&stepd.launch, node) {
                self.send(Place::Stepd(node, run), Happening::Stepd(other, run, ToStepd::ManagerEnds));
            }
        } else if let Some(batch_host) = batch_host {
            self.send(Place::Stepd(node, run), Happening::Stepd(batch_host, run, ToStepd::PeerLost(node)));
        }
    }

    /// Starts the `stepd` of a run again, from what its journal says; or not.
    pub(super) fn restart_stepd(&mut self, node: usize, life: u64, run: RunKey) {
        let fails = !self.is_calm() && self.random.one_in_thousand(50);
        let folder = self.machines[node].spool.get_mut(&run).filter(|_| !fails);
        let Some(mut stepd) = folder.and_then(|folder| folder.journal.take()) else {
            let result = Err("made to fail".to_owned());
            return self.later(node, life, 500, AgentInput::Restarted { run, result });
        };
        self.ledger.counts.add("stepd restarted");
        let batch_host = stepd.launch.manager.is_none();
        // One that was never welcomed has asked nobody for a part, and begins when it is.
        let begun = batch_host && stepd.started;
        let working = begun && !stepd.ended;
        // A shepherd looks for its step manager anew; a step manager goes on where it was.
        stepd.started &= batch_host;
        if batch_host {
            stepd.renumber();
        }
        if let Some(folder) = self.machines[node].spool.get_mut(&run) {
            folder.stepd = Some(stepd);
        }
        if batch_host && let Some(step_side) = self.step_sides.get_mut(&run) {
            self.ledger.counts.add("step manager taken over");
            step_side.take_over(self.now, self.random.between(0, 30) as usize);
        }
        self.later(node, life, 500, AgentInput::Restarted { run, result: Ok(1) });
        self.send(Place::Machine(node), Happening::StepdConnects(node, run));
        if begun {
            // What happened while it was away it finds out now.
            self.look_later(node, run);
        }
        if working {
            let work = self.random.between(2_000, 60_000);
            self.after(u64::from(work), Happening::Stepd(node, run, ToStepd::WorkDone(JobState::Completed)));
            self.wait_for_limit(node, run);
        }
    }

    pub(super) fn look_later(&mut self, node: usize, run: RunKey) {
        let pause = self.random.between(1_000, 30_000);
        self.after(u64::from(pause), Happening::Stepd(node, run, ToStepd::LookForPeers));
    }

    /// A node that has nothing of the run any more is lost for it; where a `stepd` is being started again, that is awaited. The
    /// step manager of a run with steps asks the agents.
    pub(super) fn look_for_peers(&mut self, node: usize, run: RunKey) {
        let Some(launch) = self.stepd(node, run).map(|stepd| stepd.launch.clone()) else { return };
        let mut again = false;
        for other in others(&launch, node) {
            let folder = self.machines[other].spool.get(&run);
            let dead = folder.is_none_or(|folder| folder.stepd.is_none());
            let returns = folder.is_some_and(|folder| folder.stepd.is_none() && folder.journal.is_some());
            if let Some(step_side) = self.step_sides.get(&run) {
                let (misses, begun) = (dead && !step_side.has_lost(other), step_side.had_shepherd(other));
                again |= misses;
                if self.hangs(other, run) {
                    self.wait_for_silent(node, run, other);
                }
                if misses {
                    self.ledger.counts.add(if begun { "shepherd asked for again" } else { "shepherd asked for anew" });
                    self.ask_for_shepherd(node, other, &launch, begun);
                }
                continue;
            }
            again |= returns;
            if dead && !returns {
                self.tell_stepd(node, run, ToStepd::PeerLost(other));
            }
        }
        if again {
            self.look_later(node, run);
        }
    }
}
