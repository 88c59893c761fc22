//! The shepherd's actor, `/job/N/shepherd`. Inputs go into the core; what the core wants done goes to the port, except
//! timers and the log. What takes time comes back as a message.

use crate::shepherd::{ShepherdConfig, ShepherdCore, ShepherdEffect, ShepherdInput, ShepherdMsg};
use garrick_model::time::Timestamp;
use garrick_runtime::{Actor, ChildSpec, Context, Restart};

/// The world as a shepherd sees it: launcher, descriptors, cgroups, the way to the step manager. Lives on its thread;
/// nothing in it blocks.
pub trait ShepherdPort: 'static {
    /// Does what an effect says. `SetTimer` and `Log` do not come here.
    fn perform(&mut self, effect: ShepherdEffect);

    /// The time.
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Messages that may wait in each lane: ends and output of thousands of tasks at once.
const MAILBOX: usize = 131_072;

/// The actor.
pub struct Shepherd<P> {
    core: ShepherdCore,
    port: P,
    effects: Vec<ShepherdEffect>,
}

impl<P: ShepherdPort> Shepherd<P> {
    /// A shepherd; its first act is to have its launcher started (`StartLauncher`).
    pub fn new(config: ShepherdConfig, port: P) -> Self {
        Self { core: ShepherdCore::new(config), port, effects: Vec::new() }
    }

    /// How to start it (`system.start("/job/N", Shepherd::spec(...))`). It is never restarted: what it knew of its tasks
    /// died with it. Whoever started it ends the process then, and the node's agent ends the run here.
    pub fn spec(factory: impl FnMut() -> Self + Send + 'static) -> ChildSpec<Self> {
        ChildSpec::new("shepherd", factory).restart(Restart::Never).mailbox(MAILBOX).control(MAILBOX)
    }
}

impl<P: ShepherdPort> Actor for Shepherd<P> {
    type Msg = ShepherdMsg;

    fn started(&mut self, _cx: &mut Context<Self>) {
        self.port.perform(ShepherdEffect::StartLauncher);
    }

    fn handle(&mut self, cx: &mut Context<Self>, ShepherdMsg(input): ShepherdMsg) {
        let before = self.core.phase();
        self.core.handle(self.port.now(), input, &mut self.effects);
        let after = self.core.phase();
        if before != after {
            tracing::debug!(actor = %cx.path(), from = ?before, to = ?after, "shepherd.move");
        }
        for effect in self.effects.drain(..) {
            match effect {
                ShepherdEffect::SetTimer { timer, after } => {
                    cx.set_timer(timer.key(), after, ShepherdMsg(ShepherdInput::Timer(timer)));
                }
                ShepherdEffect::Log { text } => tracing::warn!(actor = %cx.path(), "{text}"),
                other => self.port.perform(other),
            }
        }
    }
}
