//! The shepherd's actor, `/job/N/shepherd`. Inputs go into the core; the core's effects go to the port, except timers and the
//! log. Results that take time come back as messages.

use crate::shepherd::{ShepherdConfig, ShepherdCore, ShepherdEffect, ShepherdInput, ShepherdMsg};
use garrick_model::time::Timestamp;
use garrick_runtime::{Actor, ChildSpec, Context, Restart};

/// What a shepherd needs from its environment: launcher, descriptors, cgroups, the connection to the step manager. It runs on the
/// actor's thread and must not block.
pub trait ShepherdPort: 'static {
    /// Carries out an effect. `SetTimer` and `Log` are not passed here.
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
    /// A shepherd; first it has its launcher started (`StartLauncher`).
    pub fn new(config: ShepherdConfig, port: P) -> Self {
        Self { core: ShepherdCore::new(config), port, effects: Vec::new() }
    }

    /// How to start it (`system.start("/job/N", Shepherd::spec(...))`). It is never restarted: its knowledge of its tasks died
    /// with it. Its parent then ends the process, and the node's agent ends the run here.
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
