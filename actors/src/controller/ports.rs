//! What the controller needs of the process that it lives in, as traits: implemented by the daemon's wiring and by tests.

use super::{admission::Submitter, audit::AuditRecord};
use crate::{log::Log, messages::job::Authority};
use garrick_model::{
    config::{Config, LogChange},
    ids::JobId,
    messages::{
        command::CommandReply,
        node::{ControllerToNode, JobCredential, SignedCredential},
    },
    refusal::Refusal,
    spec::JobSpec,
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

/// A user, from the site's user database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Id.
    pub uid: u32,
    /// Name.
    pub name: String,
    /// Primary group.
    pub gid: u32,
    /// All groups: id and name, the primary one included.
    pub groups: Vec<(u32, String)>,
}

/// Looks users up. Must not block: implementations answer with what they know, and ask elsewhere what they do not.
pub trait UserDirectory: Send + Sync + 'static {
    /// By id. `None`: there is none, or it is not known yet.
    fn user(&self, uid: u32) -> Option<User>;
    /// Is it known whether there is such a user, and who that is?
    fn is_known(&self, _uid: u32) -> bool {
        true
    }
    /// A group's name.
    fn group_name(&self, gid: u32) -> Option<String>;
    /// The name of a user who is told by name, or by id in digits. `None`: there is none. Where that cannot be found out
    /// now, what was told.
    fn user_called(&self, text: &str) -> Option<String>;
    /// The same for a group.
    fn group_called(&self, text: &str) -> Option<String>;
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
    /// Reads the configuration again and sends it to the front as [`super::messages::ControllerMsg::config_changed`], which
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

/// The site's own word on requests, before they are judged (`job_submit` plugins). What it leaves is judged as if its user had
/// asked for it. It must not block, and it is asked again about a request that is judged again.
pub trait JobSubmit: Send + Sync + 'static {
    /// A job is submitted, or asked about; each component of a heterogeneous job by itself. May change what is asked for, or
    /// refuse it. Answers what is to be said to the user, a line each.
    fn submit(&self, _by: &Submitter<'_>, _spec: &mut JobSpec) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }

    /// A job that waits is changed by `by`, whose job it may be or not, from `current` to `patched`. The same, but for its
    /// script, arguments and environment: those stay as they are.
    fn modify(&self, _by: Authority, _current: &JobSpec, _patched: &mut JobSpec) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }
}

/// A site without a word of its own.
#[derive(Clone, Copy, Debug)]
pub struct NoJobSubmit;

impl JobSubmit for NoJobSubmit {}

/// All of them, as the front hands them on.
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
