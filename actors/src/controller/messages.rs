//! Messages to the frontend, as the daemon sends them.

use super::{
    frontend::{core::FrontendCore, messages::FrontendInput, shell::FrontendGift},
    shells::{
        actor::OwnerMsg,
        ports::{AgentLink, ReplySink},
    },
};
use crate::messages::node::Registration;
use garrick_model::{
    config::Config,
    messages::{
        command::{Caller, CommandRequest},
        node::{Joining, NodeToController},
    },
};
use std::sync::Arc;

/// Messages of the frontend.
pub type ControllerMsg = OwnerMsg<FrontendCore>;

impl ControllerMsg {
    /// An agent connected and sent its `Register`. The frontend answers `Welcome` or `Declined` over `link`. The connection's
    /// identity was checked against the name in the registration; its `conn` is unique among all connections since the controller
    /// started. `joining`: for a dynamic node, its own description and its address.
    pub fn agent_connected(
        node: String,
        registration: Box<Registration>,
        link: Arc<dyn AgentLink>,
        joining: Option<(Box<Joining>, String)>,
    ) -> Self {
        let gift = FrontendGift::Link(registration.conn, link);
        Self::Hand { gift, input: Some(FrontendInput::Connected { node, registration, joining }) }
    }

    /// An agent's connection is gone.
    pub const fn agent_gone(node: String, conn: u64) -> Self {
        Self::Input(FrontendInput::AgentGone { node, conn })
    }

    /// Any frame of an agent but `Register`, in the order of arrival.
    pub const fn agent_message(node: String, conn: u64, message: Box<NodeToController>) -> Self {
        Self::Input(FrontendInput::AgentSaid { node, conn, message })
    }

    /// A command at the controller's own door, with the caller's identity from the kernel. `bytes`: its size as sent.
    pub fn command(caller: Caller, command: Box<CommandRequest>, bytes: usize, replies: Box<dyn ReplySink>) -> Self {
        Self::Hand {
            gift: FrontendGift::Replies(replies),
            input: Some(FrontendInput::Asked { caller, command, bytes }),
        }
    }

    /// The configuration was read again. The reply is sent after the new configuration is in effect.
    pub fn config_changed(config: Arc<Config>, replies: Option<Box<dyn ReplySink>>) -> Self {
        let input = FrontendInput::ConfigRead { config, waits: replies.is_some() };
        match replies {
            Some(replies) => Self::Hand { gift: FrontendGift::Replies(replies), input: Some(input) },
            None => Self::Input(input),
        }
    }
}
