//! The agent's actor: inputs go into the core, effects to the port. The port does what needs files, processes and sockets;
//! results that take time come back as messages.

use crate::{
    core::{AgentConfig, NodeAgentCore},
    messages::{AgentEffect, AgentInput, AgentMsg, AgentTimer, controller_message_name},
};
use garrick_model::{time::Timestamp, view::NodeLoad};
use garrick_runtime::{Actor, Context};

/// What the agent needs from its environment.
pub trait AgentPort: 'static {
    /// The first input: the contents of the spool and facts of the machine. Also called when the agent is restarted after a
    /// panic; then all earlier connections are to be closed so that their other ends start over.
    fn begin(&mut self) -> AgentInput;
    /// Carries out an effect. Timers are not passed here.
    fn perform(&mut self, effect: AgentEffect);
    /// The machine's current load.
    fn load(&mut self) -> NodeLoad;
}

/// The agent's actor, `/node/NAME/agent`.
pub struct NodeAgent<P> {
    core: NodeAgentCore,
    port: P,
    effects: Vec<AgentEffect>,
}

impl<P: AgentPort> NodeAgent<P> {
    /// A new agent, which begins by asking its port for the first input.
    pub fn new(config: AgentConfig, port: P) -> Self {
        Self { core: NodeAgentCore::new(config), port, effects: Vec::new() }
    }
}

fn timer_key(timer: AgentTimer) -> String {
    match timer {
        AgentTimer::Heartbeat => "heartbeat".into(),
        AgentTimer::Start(run) => format!("start {}", run.sluid),
        AgentTimer::End(run) => format!("end {}", run.sluid),
        AgentTimer::Restart(run) => format!("restart {}", run.sluid),
        AgentTimer::Command(query) => format!("command {query}"),
        AgentTimer::Query(query) => format!("query {query}"),
        AgentTimer::Lease => "lease".into(),
    }
}

impl<P: AgentPort> Actor for NodeAgent<P> {
    type Msg = AgentMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        let begin = self.port.begin();
        self.step(cx, begin);
    }

    fn handle(&mut self, cx: &mut Context<Self>, AgentMsg(input): AgentMsg) {
        let input = match input {
            // The load at the time of the heartbeat, not when its timer was set.
            AgentInput::Timer { timer: timer @ AgentTimer::Heartbeat, .. } => {
                AgentInput::Timer { timer, load: self.port.load() }
            }
            other => other,
        };
        self.step(cx, input);
    }
}

impl<P: AgentPort> NodeAgent<P> {
    fn step(&mut self, cx: &mut Context<Self>, input: AgentInput) {
        match &input {
            AgentInput::Controller(message) => {
                tracing::debug!(message_name = controller_message_name(message), "agent.heard");
            }
            AgentInput::StartJob(_) => tracing::debug!(message_name = "StartJob", "agent.heard"),
            _ => {}
        }
        self.core.handle(Timestamp::now(), input, &mut self.effects);
        for effect in self.effects.drain(..) {
            match effect {
                AgentEffect::SetTimer { timer, after } => {
                    let load = NodeLoad::default();
                    cx.set_timer(timer_key(timer), after, AgentMsg(AgentInput::Timer { timer, load }));
                }
                AgentEffect::ClearTimer(timer) => cx.clear_timer(timer_key(timer)),
                AgentEffect::Log { warning: true, text } => tracing::warn!("{text}"),
                AgentEffect::Log { warning: false, text } => tracing::info!("{text}"),
                other => self.port.perform(other),
            }
        }
    }
}
