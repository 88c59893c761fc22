//! What the controller needs of the process that it lives in, as traits: implemented by the daemon's wiring and by tests.

use super::audit::AuditRecord;
use crate::{
    log::Log,
    submission::{job_submit::JobSubmit, users::UserDirectory},
};
use garrick_model::{
    config::{Config, LogChange},
    ids::JobId,
    messages::{
        command::CommandReply,
        node::{ControllerToNode, JobCredential, SignedCredential},
    },
    refusal::Refusal,
};
use garrick_runtime::ReplyTo;
use std::{sync::Arc, time::Duration};

/// The link to one node's agent. Frames arrive in the order in which they were sent, or the link is gone.
pub trait AgentLink: Send + Sync + 'static {
    /// Sends without waiting. An error means that the link is gone or its queue is full; what must arrive is sent again
    /// after the next registration.
    fn send(&self, frame: ControllerToNode) -> Result<(), LinkClosed>;
    /// Closes it.
    fn close(&self);
}

/// The link takes nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("link to the agent is closed")]
pub struct LinkClosed;

/// Signs job credentials.
pub trait CredentialSigner: Send + Sync + 'static {
    /// Signs.
    fn sign(&self, credential: &JobCredential) -> SignedCredential;
    /// Public key (32 bytes) and its id, as agents are told.
    fn public_key(&self) -> (Vec<u8>, String);
}

/// Where a command's replies go. One reply, or a stream that ends with [`CommandReply::End`]; dropped without a reply, the
/// command is to be told that the controller failed it.
pub trait ReplySink: Send + 'static {
    /// Hands over one reply; false when nobody wants more.
    fn send(&mut self, reply: CommandReply) -> bool;
    /// Nobody waits any more.
    fn is_gone(&self) -> bool;
    /// The request's turn has come: whoever held back others of the same user until then need not any more.
    fn taken(&mut self) {}
}

/// What of a command concerns the process rather than its actors. It must not block: what waits for the log or
/// for the disk answers through its sink when it is done.
pub trait Host: Send + Sync + 'static {
    /// Reads the configuration again and sends it to the frontend as [`crate::controller::messages::ControllerMsg::config_changed`], which
    /// answers `Done`; or answers a refusal.
    fn reconfigure(&self, replies: Box<dyn ReplySink>);
    /// Changes this process's log, until the configuration is read again.
    fn change_log(&self, change: &LogChange);
    /// Ends the process after answering `Done`. Agents have been told already.
    fn shutdown(&self, replies: Box<dyn ReplySink>);
    /// Makes a join token, for one node where that is said.
    fn join_token(&self, lifetime: Duration, node: Option<String>, replies: Box<dyn ReplySink>);
    /// What the cluster's authority issued: answers `Certs`.
    fn certs(&self, replies: Box<dyn ReplySink>);
    /// Revokes the certificates of these nodes, and has everyone go by that. Answers how many there were; of a refusal, some may be
    /// revoked.
    fn revoke_certs(&self, nodes: Vec<String>, done: ReplyTo<Result<usize, Refusal>>);
    /// Begins to replace the cluster's authority, or takes the next step of that where it can be taken (or has to be): answers `Done`.
    fn rotate_authority(&self, leave_behind: bool, replies: Box<dyn ReplySink>);
    /// Has nodes (none: all of them, and this process) ask for new certificates: answers `Done`.
    fn renew_certs(&self, nodes: Vec<String>, replies: Box<dyn ReplySink>);
    /// Processes that this one knows of, beside the agents.
    fn daemons(&self) -> Vec<garrick_model::messages::command::DaemonInfo>;
    /// The configuration as `scontrol show config` lists it.
    fn show_config(&self, config: &Config, next_job: JobId) -> Vec<(String, String)>;
    /// Users who may do everything: root, SlurmUser, and the user that the controller runs as.
    fn administrators(&self) -> Vec<u32>;
    /// May a node be called so? Its certificate carries the name: a daemon of another one could never come.
    fn may_be_named(&self, name: &str) -> bool;
    /// Host name and program version, for `Pong`.
    fn identity(&self) -> (String, String);
}

/// Keeps what was asked for and what came of it.
pub trait AuditPort: Send + Sync + 'static {
    /// Keeps a record. Must not block.
    fn keep(&self, record: AuditRecord);
}

/// All of them, as the frontend hands them on.
#[derive(Clone)]
pub struct Ports {
    /// Log.
    pub log: Arc<dyn Log>,
    /// Signer.
    pub signer: Arc<dyn CredentialSigner>,
    /// Users.
    pub users: Arc<dyn UserDirectory>,
    /// Process.
    pub host: Arc<dyn Host>,
    /// Audit log.
    pub audit: Arc<dyn AuditPort>,
    /// The site's own word on requests.
    pub job_submit: Arc<dyn JobSubmit>,
}
