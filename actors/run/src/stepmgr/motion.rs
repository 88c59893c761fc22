//! Standing still: a run whose CPUs another job has. SIGSTOP to all of it holds until SIGCONT to all of it, also for steps
//! that wait, for those whose nodes are being asked what became of them, and over a restart.

use crate::{
    step::{NodeSlot, StepInput},
    stepmgr::{
        core::StepMgrCore,
        journal::StepEvent,
        messages::StepMgrEffect,
        pool::NodeUse,
        state::{Motion, RecordState},
    },
};
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
    /// No step is started.
    pub(super) fn stands_still(&self) -> bool {
        self.ledger.motion == Motion::Still
    }

    /// A signal for the run's processes. May be repeated.
    pub(super) fn signal_run(&mut self, now: Timestamp, signal: i32, to: SignalScope, out: &mut Vec<StepMgrEffect>) {
        // An order to end overtakes signals: what is to end must not be stopped by one that was sent before.
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

    /// A run that is ended does not stand still any more; whoever ends its steps continues them.
    pub(super) fn moves_to_end(&mut self, out: &mut Vec<StepMgrEffect>) {
        if self.stands_still() {
            self.set_motion(Motion::Resumed, out);
            self.tell_nodes(out);
        }
    }

    /// Nodes stop and continue also what left its task's process group.
    fn tell_nodes(&self, out: &mut Vec<StepMgrEffect>) {
        let ready = self.pool.nodes().iter().zip(0..).filter(|(node, _)| node.usage == NodeUse::Ready);
        for (_, slot) in ready {
            self.tell_node(NodeSlot(slot), out);
        }
    }

    /// A node that came, or came back, hears what holds.
    pub(super) fn tell_node(&self, node: NodeSlot, out: &mut Vec<StepMgrEffect>) {
        let Some(signal) = self.ledger.motion.signal() else { return };
        let (step, reach) = (StepId::of(self.facts.job, StepKey::BATCH), SignalReach::Groups);
        let message = StepMgrToShepherd::Signal { step, signal, reach, whole_run: true };
        out.push(StepMgrEffect::ToShepherd { node, message });
    }

    /// A step that was taken over, or was ordered before the run was stopped, hears what holds.
    pub(super) fn tell_motion(&self, step: StepKey, out: &mut Vec<StepMgrEffect>) {
        let runs = self.steps.get(&step).is_some_and(|r| matches!(r.state, RecordState::Running { .. }));
        if let Some(signal) = self.ledger.motion.signal().filter(|_| runs) {
            out.push(StepMgrEffect::ToStep { step, input: StepInput::Signal { signal, reach: SignalReach::Groups } });
        }
    }
}
