//! Stopping a run whose CPUs another job has. SIGSTOP to the whole run holds until SIGCONT to the whole run, also for waiting
//! steps, for steps whose nodes are being asked after a takeover, and across a restart.

use crate::{
    step::{NodeSlot, StepInput},
    stepmgr::{core::StepMgrCore, messages::StepMgrEffect, pool::NodeUse, state::RecordState},
};
use garrick_events::steps::event::{Motion, StepEvent};
use garrick_model::{
    ids::{StepId, StepKey},
    messages::{
        node::SignalScope,
        shepherd::{SignalReach, StepMgrToShepherd},
    },
    signal::{SIGCONT, SIGSTOP, SIGTSTP},
    time::Timestamp,
};

impl StepMgrCore {
    /// Is the run stopped, so that no step is started?
    pub(super) fn stands_still(&self) -> bool {
        self.ledger.motion == Motion::Still
    }

    /// Signals the run's processes. May be repeated.
    pub(super) fn signal_run(&mut self, now: Timestamp, signal: i32, to: SignalScope, out: &mut Vec<StepMgrEffect>) {
        // An order to end overtakes signals: a run that is ending must not be stopped by a signal that was sent before.
        if !self.phase.takes_steps() && matches!(signal, SIGSTOP | SIGTSTP) {
            return;
        }
        let motion = match (to, signal) {
            (SignalScope::Full, SIGSTOP) => Motion::Still,
            (SignalScope::Full, SIGCONT) => Motion::Resumed,
            _ => return self.signal_steps(signal, to, out),
        };
        let was = self.ledger.motion;
        self.set_motion(motion, out);
        let steps: Vec<StepKey> = self.steps.keys().copied().collect();
        steps.into_iter().for_each(|step| self.tell_motion(step, out));
        self.tell_nodes(out);
        if was == Motion::Still && motion != was {
            self.settled = false;
            self.schedule(now, out);
        }
    }

    fn set_motion(&mut self, motion: Motion, out: &mut Vec<StepMgrEffect>) {
        if self.ledger.motion != motion {
            self.record(StepEvent::Moved(motion), out);
        }
    }

    /// A run that is ended is not stopped any more; its steps are continued when they are ended.
    pub(super) fn moves_to_end(&mut self, out: &mut Vec<StepMgrEffect>) {
        if self.stands_still() {
            self.set_motion(Motion::Resumed, out);
            self.tell_nodes(out);
        }
    }

    /// Nodes also stop and continue processes that left their task's process group.
    fn tell_nodes(&self, out: &mut Vec<StepMgrEffect>) {
        let ready = self.pool.nodes().iter().zip(0..).filter(|(node, _)| node.usage == NodeUse::Ready);
        for (_, slot) in ready {
            self.tell_node(NodeSlot(slot), out);
        }
    }

    /// Tells a node that is new, or came back, the current state.
    pub(super) fn tell_node(&self, node: NodeSlot, out: &mut Vec<StepMgrEffect>) {
        let Some(signal) = self.ledger.motion.signal() else { return };
        let (step, reach) = (StepId::of(self.facts.job, StepKey::BATCH), SignalReach::Groups);
        let message = StepMgrToShepherd::Signal { step, signal, reach, whole_run: true };
        out.push(StepMgrEffect::ToShepherd { node, message });
    }

    /// Tells a step that was taken over, or was ordered before the run was stopped, the current state.
    pub(super) fn tell_motion(&self, step: StepKey, out: &mut Vec<StepMgrEffect>) {
        let runs = self.steps.get(&step).is_some_and(|r| matches!(r.state, RecordState::Running { .. }));
        if let Some(signal) = self.ledger.motion.signal().filter(|_| runs) {
            out.push(StepMgrEffect::ToStep { step, input: StepInput::Signal { signal, reach: SignalReach::Groups } });
        }
    }
}
