//! What is kept of each change that somebody asked for: who, from where, what, and what came of it. Refusals for want of rights
//! are kept of questions too.

use super::ports::{AuditPort, ReplySink};
use garrick_model::{
    messages::command::{Caller, CommandReply, CommandRequest},
    refusal::Refusal,
    time::Timestamp,
};
use serde::Serialize;
use std::sync::Arc;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AuditedRequest {
    /// A submission: neither its script nor its environment.
    Submit {
        /// Jobs, the components of a heterogeneous one each.
        submit: Vec<Submitted>,
    },
    /// Anything else, as it was asked.
    Request(Box<CommandRequest>),
}

/// A job that was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Submitted {
    /// Its name.
    pub name: String,
    /// Partitions that were named.
    pub partitions: Vec<String>,
    /// Account that was named.
    pub account: Option<String>,
}

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditRecord {
    /// When it was answered: milliseconds since 1970.
    pub time: Timestamp,
    /// User.
    pub uid: u32,
    /// Process of the command.
    pub pid: u32,
    /// Host whose daemon says so.
    pub host: String,
    /// Name of the request.
    pub what: &'static str,
    /// The request.
    pub request: AuditedRequest,
    /// `done`, or the refusal in words.
    pub outcome: String,
    /// True: it was declined.
    pub refused: bool,
}

/// Passes replies on, and keeps the first.
pub struct Audited {
    inner: Box<dyn ReplySink>,
    port: Arc<dyn AuditPort>,
    caller: Caller,
    what: &'static str,
    request: Option<AuditedRequest>,
    /// A question: only that it was denied is kept.
    asks: bool,
}

impl Audited {
    /// For a request that is served now.
    pub fn new(
        inner: Box<dyn ReplySink>,
        port: Arc<dyn AuditPort>,
        caller: &Caller,
        what: &'static str,
        request: &CommandRequest,
    ) -> Self {
        let of = |spec: &garrick_model::spec::JobSpec| Submitted {
            name: spec.name.clone(),
            partitions: spec.partitions.clone(),
            account: spec.account.clone(),
        };
        let request_kept = match request {
            CommandRequest::SubmitJob { spec, .. } | CommandRequest::TestJob { spec } => {
                AuditedRequest::Submit { submit: vec![of(spec)] }
            }
            CommandRequest::SubmitHetJob { specs, .. } | CommandRequest::TestHetJob { specs } => {
                AuditedRequest::Submit { submit: specs.iter().map(of).collect() }
            }
            // Denied to nobody, and as long as somebody likes.
            CommandRequest::NameNodes(_) => AuditedRequest::Request(Box::new(CommandRequest::NameNodes(Vec::new()))),
            other => AuditedRequest::Request(Box::new(other.clone())),
        };
        Self { inner, port, caller: caller.clone(), what, request: Some(request_kept), asks: request.only_asks() }
    }

    fn keep(&mut self, outcome: String, refused: bool) {
        let Some(request) = self.request.take() else { return };
        let Caller { uid, pid, host, .. } = self.caller.clone();
        let (time, what) = (Timestamp::now(), self.what);
        self.port.keep(AuditRecord { time, uid, pid, host, what, request, outcome, refused });
    }
}

/// `done`, or why not; and whether the rights were missing. `None`: it was told to come again, and nothing was done.
fn outcome(reply: &CommandReply) -> Option<(String, bool, bool)> {
    let declined = |refusal: &Refusal| {
        let denied = matches!(refusal, Refusal::AccessDenied | Refusal::HostNotTrusted { .. });
        (refusal.to_string(), true, denied)
    };
    match reply {
        CommandReply::Refused(Refusal::RetryAfter { .. }) => None,
        CommandReply::Refused(refusal) => Some(declined(refusal)),
        CommandReply::PerJob(jobs) => {
            let refusals: Vec<&Refusal> = jobs.iter().filter_map(|(_, result)| result.as_ref().err()).collect();
            let Some(first) = refusals.first() else { return Some(("done".to_owned(), false, false)) };
            let (text, _, denied) = declined(first);
            let of =
                if jobs.len() > 1 { format!(" ({} of {} jobs)", refusals.len(), jobs.len()) } else { String::new() };
            Some((text + &of, true, denied))
        }
        CommandReply::Submitted { job, .. } => Some((format!("job {job}"), false, false)),
        _ => Some(("done".to_owned(), false, false)),
    }
}

impl ReplySink for Audited {
    fn send(&mut self, reply: CommandReply) -> bool {
        if let Some((text, refused, denied)) = outcome(&reply) {
            if !self.asks || denied {
                self.keep(text, refused);
            }
            self.request = None;
        }
        self.inner.send(reply)
    }

    fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        // Dropped unanswered: the command is told that the controller failed it. A change may have been made.
        if !self.asks {
            self.keep("not answered".to_owned(), true);
        }
    }
}
