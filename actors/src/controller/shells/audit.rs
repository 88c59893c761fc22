//! The audit log: for each requested change who asked, from where, what, and the result. Queries that were refused for lack of
//! rights are recorded too.

use super::{
    counted::Counted,
    ports::{AuditPort, ReplySink},
};
use crate::messages::names::{counted_name, request_name, waits_on_purpose};
use garrick_model::{
    messages::command::{Caller, CommandReply, CommandRequest},
    refusal::Refusal,
    time::Timestamp,
};
use serde::Serialize;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The recorded part of a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AuditedRequest {
    /// A submission: neither its script nor its environment.
    Submit {
        /// Its jobs: each component of a heterogeneous one.
        submit: Vec<Submitted>,
    },
    /// Any other request, unchanged.
    Request(Box<CommandRequest>),
}

/// A job that was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Submitted {
    /// Its name.
    pub name: String,
    /// Requested partitions.
    pub partitions: Vec<String>,
    /// Requested account.
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
    /// The host whose daemon passed it on.
    pub host: String,
    /// Name of the request.
    pub what: &'static str,
    /// The request.
    pub request: AuditedRequest,
    /// `done`, or the text of the refusal.
    pub outcome: String,
    /// It was refused.
    pub refused: bool,
}

/// Passes replies on, and records the first.
pub struct Audited {
    inner: Box<dyn ReplySink>,
    port: Arc<dyn AuditPort>,
    caller: Caller,
    what: &'static str,
    request: Option<AuditedRequest>,
    /// A query: it is recorded only if it was denied.
    asks: bool,
    /// Where it is counted, once, and since when it is served. `None`: it is counted.
    counts: Option<(Arc<Counted>, Instant)>,
    counted_as: &'static str,
    /// It is answered only when something happens: its time does not count.
    waits: bool,
}

impl Audited {
    /// For a request that is served now.
    pub fn new(
        inner: Box<dyn ReplySink>,
        port: Arc<dyn AuditPort>,
        caller: &Caller,
        request: &CommandRequest,
        counted: Arc<Counted>,
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
            // This request is never denied, and may be of any length.
            CommandRequest::NameNodes(_) => AuditedRequest::Request(Box::new(CommandRequest::NameNodes(Vec::new()))),
            other => AuditedRequest::Request(Box::new(other.clone())),
        };
        Self {
            inner,
            port,
            caller: caller.clone(),
            what: request_name(request),
            request: Some(request_kept),
            asks: request.only_asks(),
            counts: Some((counted, Instant::now())),
            counted_as: counted_name(request),
            waits: waits_on_purpose(request),
        }
    }

    /// It is answered, or never will be.
    fn count(&mut self) {
        if let Some((counted, began)) = self.counts.take() {
            let took = if self.waits { Duration::ZERO } else { began.elapsed() };
            counted.request(self.counted_as, self.caller.uid, took);
        }
    }

    fn keep(&mut self, outcome: String, refused: bool) {
        let Some(request) = self.request.take() else { return };
        let Caller { uid, pid, host, .. } = self.caller.clone();
        let (time, what) = (Timestamp::now(), self.what);
        self.port.keep(AuditRecord { time, uid, pid, host, what, request, outcome, refused });
    }
}

/// `done` or the refusal, and whether rights were missing. `None`: the requester was told to try again, and nothing was done.
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
        self.count();
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
        self.count();
        // Dropped unanswered: the command is told that the controller failed. The change may have been made.
        if !self.asks {
            self.keep("not answered".to_owned(), true);
        }
    }
}
