//! What the frontend accepts, as the wiring sends it.

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
    /// An agent connected and sent its `Register`. The frontend answers `Welcome` or `Declined` over `link`. The name in the
    /// registration is one which the connection's identity was checked against; its `conn` is unique among all connections since
    /// the controller started. `joining`: what node it is and where it comes from, when `slurm.conf` need not have it.
    pub fn agent_connected(
        node: String,
        registration: Box<Registration>,
        link: Arc<dyn AgentLink>,
        joining: Option<(Box<Joining>, String)>,
    ) -> Self {
        let gift = FrontendGift::Link(registration.conn, link);
        Self::Hand { gift, input: Some(FrontendInput::Connected { node, registration, joining }) }
    }

    /// That connection is gone.
    pub const fn agent_gone(node: String, conn: u64) -> Self {
        Self::Input(FrontendInput::AgentGone { node, conn })
    }

    /// Any frame of an agent but `Register`, in the order of arrival.
    pub const fn agent_message(node: String, conn: u64, message: Box<NodeToController>) -> Self {
        Self::Input(FrontendInput::AgentSaid { node, conn, message })
    }

    /// A command at the controller's own door, of a caller whom the kernel names. `bytes`: what it takes where it is sent.
    pub fn command(caller: Caller, command: Box<CommandRequest>, bytes: usize, replies: Box<dyn ReplySink>) -> Self {
        Self::Hand {
            gift: FrontendGift::Replies(replies),
            input: Some(FrontendInput::Asked { caller, command, bytes }),
        }
    }

    /// The configuration was read again. Whoever is to be told waits until everybody may see it.
    pub fn config_changed(config: Arc<Config>, replies: Option<Box<dyn ReplySink>>) -> Self {
        let input = FrontendInput::ConfigRead { config, waits: replies.is_some() };
        match replies {
            Some(replies) => Self::Hand { gift: FrontendGift::Replies(replies), input: Some(input) },
            None => Self::Input(input),
        }
    }
}
