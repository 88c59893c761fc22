//! Open connections and how to answer them: shared by the agent's port and the tasks that read connections, on any thread. Locks
//! are held for a map access or a non-blocking send, never across an await.

use garrick_agent::{AgentInput, AgentMsg, RunKey};
use garrick_daemon::links::traced;
use garrick_model::messages::{
    command::CommandReply,
    node::{AgentToStepMgr, NodeToController},
    stepd::NodeToStepd,
};
use garrick_runtime::{Address, TraceContext};
use garrick_transport::{Class, Sender};
use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A panic in another holder leaves a map that is still whole.
fn lock<T>(slot: &Mutex<T>) -> MutexGuard<'_, T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The open conversations of a node.
#[derive(Default)]
pub struct Conversations {
    next: AtomicU64,
    controller: Mutex<Option<(u64, Sender<NodeToController>)>>,
    stepds: Mutex<HashMap<RunKey, (u64, Sender<NodeToStepd>)>>,
    commands: Mutex<HashMap<u64, Sender<CommandReply>>>,
    shepherd_askers: Mutex<HashMap<u64, Sender<AgentToStepMgr>>>,
}

impl Conversations {
    /// A number for a conversation, never used again in this process.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Closes everything: an agent that starts anew is to hear from everybody anew.
    pub fn reset(&self) {
        *lock(&self.controller) = None;
        lock(&self.stepds).clear();
        lock(&self.commands).clear();
        lock(&self.shepherd_askers).clear();
    }

    /// The controller's link is up.
    pub fn controller_up(&self, conn: u64, link: Sender<NodeToController>) {
        *lock(&self.controller) = Some((conn, link));
    }

    /// There is a link to the controller.
    pub fn has_controller(&self) -> bool {
        lock(&self.controller).is_some()
    }

    /// It is gone, unless a newer one took its place.
    pub fn controller_gone(&self, conn: u64) -> bool {
        let mut slot = lock(&self.controller);
        let ours = slot.as_ref().is_some_and(|(c, _)| *c == conn);
        if ours {
            *slot = None;
        }
        ours
    }

    /// Sends to the controller; what does not go is repeated after the next registration.
    pub fn tell_controller(&self, message: NodeToController) {
        let class = match message {
            NodeToController::Heartbeat { .. } => Class::Control,
            NodeToController::Trace { .. } => Class::Trace,
            _ => Class::Request,
        };
        if let Some((_, link)) = lock(&self.controller).as_ref()
            && let Err(e) = link.try_send_on(class, &traced(message))
        {
            tracing::debug!(error = %e, "a message to the controller was not sent");
        }
    }

    /// A `stepd` is connected.
    pub fn stepd_up(&self, run: RunKey, conn: u64, link: Sender<NodeToStepd>) {
        lock(&self.stepds).insert(run, (conn, link));
    }

    /// Its connection is gone.
    pub fn stepd_gone(&self, run: RunKey, conn: u64) {
        let mut all = lock(&self.stepds);
        if all.get(&run).is_some_and(|(c, _)| *c == conn) {
            all.remove(&run);
        }
    }

    /// Sends to a `stepd`.
    pub fn tell_stepd(&self, run: RunKey, message: NodeToStepd) {
        if let Some((_, link)) = lock(&self.stepds).get(&run)
            && let Err(e) = link.try_send(&traced(message))
        {
            tracing::warn!(job_id = run.job.0, error = %e, "a message to a stepd was not sent");
        }
    }

    /// A command waits for replies.
    pub fn command_up(&self, query: u64, link: Sender<CommandReply>) {
        lock(&self.commands).insert(query, link);
    }

    /// It is gone.
    pub fn command_gone(&self, query: u64) {
        lock(&self.commands).remove(&query);
    }

    /// Answers a command.
    pub fn answer_command(&self, query: u64, reply: CommandReply) {
        if let Some(link) = lock(&self.commands).get(&query)
            && let Err(e) = link.try_send(&traced(reply))
        {
            tracing::debug!(error = %e, "a command did not take its reply");
        }
    }

    /// A step manager waits for the start of a shepherd.
    pub fn asker_up(&self, query: u64, link: Sender<AgentToStepMgr>) {
        lock(&self.shepherd_askers).insert(query, link);
    }

    /// Answers it.
    pub fn answer_asker(&self, query: u64, answer: AgentToStepMgr) {
        if let Some(link) = lock(&self.shepherd_askers).remove(&query)
            && let Err(e) = link.try_send(&traced(answer))
        {
            tracing::debug!(error = %e, "a step manager did not take its answer");
        }
    }
}

/// Hands an input to the agent under the trace that it came with. The agent's control lane is used throughout: its inputs
/// are few, bounded by connections, and must keep their order.
pub fn tell_agent(agent: &Address<AgentMsg>, cx: TraceContext, input: AgentInput) {
    if let Err(e) = agent.deliver(cx, garrick_runtime::Lane::Control, AgentMsg(input)) {
        tracing::error!(error = %e, "the node agent does not take messages");
    }
}
