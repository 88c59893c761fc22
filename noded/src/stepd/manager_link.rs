//! The link of a shepherd on another node to its step manager. It is made once: a run whose link breaks ends here, since
//! nobody could tell any more what became of its tasks.

use crate::node::conversations::traced;
use garrick_actors::shepherd::{ShepherdInput, ShepherdMsg};
use garrick_frame::LinkKind;
use garrick_model::messages::shepherd::{ShepherdToStepMgr, StepMgrToShepherd};
use garrick_runtime::{Address, Lane, TraceContext};
use garrick_transport::{
    Endpoint, LinkError, LinkHandle, Receiver, Sender,
    identity::{ExpectPeer, Role},
};
use std::{cell::RefCell, rc::Rc};

/// The sending side, once connected.
#[derive(Clone, Default)]
pub struct ManagerLink {
    sender: Rc<RefCell<Option<Sender<ShepherdToStepMgr>>>>,
    /// For relays of this node's door.
    pub handle: Rc<RefCell<Option<LinkHandle>>>,
}

impl ManagerLink {
    /// Sends if the link is there.
    pub fn send(&self, message: ShepherdToStepMgr) {
        if let Some(sender) = self.sender.borrow().as_ref()
            && let Err(e) = sender.try_send(&traced(message))
        {
            tracing::warn!(error = %e, "a message to the step manager was not sent");
        }
    }

    /// Connects and registers.
    pub async fn connect(
        &self,
        endpoint: &Endpoint,
        address: &str,
        batch_host: &str,
        register: ShepherdToStepMgr,
    ) -> Result<Receiver<StepMgrToShepherd>, LinkError> {
        let expect = ExpectPeer { role: Role::Node, name: Some(batch_host.to_owned()) };
        let program = concat!("garrick ", env!("CARGO_PKG_VERSION"));
        let mut connection = endpoint.connect(address, LinkKind::StepMgrShepherd, program, &expect).await?;
        *self.handle.borrow_mut() = Some(connection.handle());
        let (sender, messages) = connection.split::<ShepherdToStepMgr, StepMgrToShepherd>();
        sender.send(traced(register)).await?;
        *self.sender.borrow_mut() = Some(sender);
        Ok(messages)
    }
}

/// Hands an input to the shepherd.
pub fn tell_shepherd(shepherd: &Address<ShepherdMsg>, cx: TraceContext, input: ShepherdInput) {
    if let Err(e) = shepherd.deliver(cx, Lane::Control, ShepherdMsg(input)) {
        tracing::error!(error = %e, "the shepherd does not take messages");
    }
}
