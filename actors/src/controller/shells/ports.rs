//! What the controller needs of its process, as traits: implemented by the daemon and by tests.

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
    site_program::SiteProgram,
};
use garrick_runtime::ReplyTo;
use std::{sync::Arc, time::Duration};

/// The connection to a node's agent. Messages arrive in the order in which they were sent, or the connection is gone.
pub trait AgentLink: Send + Sync + 'static {
    /// Sends without waiting. An error means that the connection is gone or its queue is full; what must arrive is sent again
    /// after the next registration.
    fn send(&self, frame: ControllerToNode) -> Result<(), LinkClosed>;
    /// Closes it.
    fn close(&self);
}

/// The connection accepts nothing more.
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

/// Where a command's replies go: one reply, or a stream that ends with [`CommandReply::End`]. If it is dropped without a reply,
/// the command is told that the controller failed.
pub trait ReplySink: Send + 'static {
    /// Passes one reply on; false if the command needs no more.
    fn send(&mut self, reply: CommandReply) -> bool;
    /// The command is gone.
    fn is_gone(&self) -> bool;
    /// The request's turn has come: other requests of the same user need not be held back any more.
    fn taken(&mut self) {}
}

/// Requests that concern the process rather than its actors. The methods must not block: if they wait for the log or the disk,
/// they answer through the sink when done.
pub trait Host: Send + Sync + 'static {
    /// Reads the configuration again and sends it to the frontend as
    /// [`crate::controller::messages::ControllerMsg::config_changed`], which answers `Done`; or answers a refusal.
    fn reconfigure(&self, replies: Box<dyn ReplySink>);
    /// Changes this process's log, until the configuration is read again.
    fn change_log(&self, change: &LogChange);
    /// Ends the process after answering `Done`. Agents have been told already.
    fn shutdown(&self, replies: Box<dyn ReplySink>);
    /// Makes a join token, for one node only if it is named.
    fn join_token(&self, lifetime: Duration, node: Option<String>, replies: Box<dyn ReplySink>);
    /// Makes a token with which commands act as that user: answers `Token`.
    fn user_token(&self, config: Arc<Config>, user: String, lifespan: Duration, replies: Box<dyn ReplySink>);
    /// The certificates that the cluster's authority issued: answers `Certs`.
    fn certs(&self, replies: Box<dyn ReplySink>);
    /// Revokes the certificates of these nodes, and makes the revocation effective everywhere. Answers their number; after a
    /// refusal, some may be revoked.
    fn revoke_certs(&self, nodes: Vec<String>, done: ReplyTo<Result<usize, Refusal>>);
    /// Begins to replace the cluster's authority, or takes the next step if possible (or if forced): answers `Done`.
    fn rotate_authority(&self, leave_behind: bool, replies: Box<dyn ReplySink>);
    /// Makes nodes (if empty: all of them, and this process) request new certificates: answers `Done`.
    fn renew_certs(&self, nodes: Vec<String>, replies: Box<dyn ReplySink>);
    /// Processes that this one knows, besides the agents.
    fn daemons(&self) -> Vec<garrick_model::messages::command::DaemonInfo>;
    /// The configuration as `scontrol show config` lists it.
    fn show_config(&self, config: &Config, next_job: JobId) -> Vec<(String, String)>;
    /// Users with all rights: root, SlurmUser, and the user that the controller runs as.
    fn administrators(&self) -> Vec<u32>;
    /// May a node have this name? Its certificate contains the name, so a daemon with a name that is invalid there could never
    /// connect.
    fn may_be_named(&self, name: &str) -> bool;
    /// Host name and program version, for `Pong`.
    fn identity(&self) -> (String, String);
}

/// The audit log.
pub trait AuditPort: Send + Sync + 'static {
    /// Writes a record. Must not block.
    fn keep(&self, record: AuditRecord);
}

/// The programs of the site that the controller runs, as its own user.
pub trait SitePrograms: Send + Sync + 'static {
    /// Runs a row of programs beside the actors, and logs a failure. Must not block. Answers when the last one has ended or one
    /// has failed, with what was wrong; dropped without an answer if this process ends before.
    fn run(&self, program: SiteProgram, done: ReplyTo<Result<(), String>>);
}

/// All ports.
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
    /// The site's own checks of requests.
    pub job_submit: Arc<dyn JobSubmit>,
    /// The site's programs.
    pub programs: Arc<dyn SitePrograms>,
}
