//! The cluster's authority at work: what it issued, what is revoked, who gets a new certificate, and when.

use crate::{daemon::place::Cluster, kernel::inventory};
use garrick_model::{
    messages::{
        command::{CertView, CommandReply},
        node::ControllerToNode,
    },
    refusal::Refusal,
    time::Timestamp,
};
use garrick_transport::{
    CertAuthority, IdentityError, IdentityStore,
    identity::{Issued, Role},
};
use jiff::tz::TimeZone;
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::sync::broadcast;

/// Orders that a link may have before it: a link that falls behind is closed, and told all when it comes again.
const ORDERS: usize = 64;
/// How often the controller looks at what ends soon.
const LOOK: Duration = Duration::from_secs(3600);
/// Said in the log so long before.
const WARN_CERTIFICATE: Duration = Duration::from_secs(30 * 24 * 3600);
const WARN_AUTHORITY: Duration = Duration::from_secs(365 * 24 * 3600);

/// What the links to nodes are told.
#[derive(Clone, Debug)]
pub enum TrustOrder {
    /// Another list of revoked certificates.
    Revoked(Option<String>),
    /// These nodes (none: all) are to ask for new certificates.
    Renew(Vec<String>),
}

/// See the module.
pub struct Trust {
    authority: Arc<CertAuthority>,
    identity: Arc<IdentityStore>,
    /// Folder of this process's own identity.
    folder: PathBuf,
    orders: broadcast::Sender<TrustOrder>,
}

fn internal(error: &IdentityError) -> Refusal {
    Refusal::Internal(error.to_string())
}

fn timestamp(seconds: u64) -> Timestamp {
    Timestamp::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn day(seconds: u64) -> String {
    timestamp(seconds).text(&TimeZone::system())
}

impl Trust {
    /// For this process's identity, which is in that folder.
    pub fn new(authority: Arc<CertAuthority>, identity: Arc<IdentityStore>, folder: PathBuf) -> Self {
        Self { authority, identity, folder, orders: broadcast::channel(ORDERS).0 }
    }

    /// What links are told from now on.
    pub fn orders(&self) -> broadcast::Receiver<TrustOrder> {
        self.orders.subscribe()
    }

    /// The list of what is revoked, for a node that connects.
    pub fn revoked(&self) -> Option<ControllerToNode> {
        match self.authority.revocation_list() {
            Ok(list) => list.map(|list| ControllerToNode::Revoked { list: Some(list) }),
            Err(e) => {
                tracing::error!(error = %e, "the list of revoked certificates");
                None
            }
        }
    }

    /// Is nothing of a node's left that holds?
    pub fn is_barred(&self, node: &str) -> bool {
        self.authority.is_barred(Role::Node, node)
    }

    /// A certificate for the new key of a node.
    pub fn renew(&self, node: &str, request: &[u8]) -> Result<ControllerToNode, IdentityError> {
        let certificate = self.authority.issue(Role::Node, node, request)?;
        tracing::info!(node, "node.certificate_renewed");
        Ok(ControllerToNode::Certificate {
            certificate,
            authorities: vec![self.authority.certificate_pem().to_owned()],
        })
    }

    /// For administrators.
    pub fn certs(&self) -> CommandReply {
        let view = |one: Issued| CertView {
            role: one.role,
            name: one.name,
            serial: one.serial,
            issued: timestamp(one.issued),
            expires: timestamp(one.expires),
            revoked: one.revoked.map(timestamp),
        };
        let certs = self.authority.issued().into_iter().map(view).collect();
        match self.authority.expiry() {
            Ok(ends) => CommandReply::Certs { certs, authority: timestamp(seconds(ends)) },
            Err(e) => CommandReply::Refused(internal(&e)),
        }
    }

    /// Revokes what nodes have, here and then wherever there is a link.
    pub fn revoke(&self, nodes: &[String]) -> Result<usize, Refusal> {
        let mut count = 0;
        for node in nodes {
            count += self.authority.revoke(Role::Node, node).map_err(|e| internal(&e))?;
        }
        let list = self.authority.revocation_list().map_err(|e| internal(&e))?;
        self.identity.set_revoked(&self.folder, list.as_deref()).map_err(|e| internal(&e))?;
        // Nobody listens where no node is connected.
        let _ = self.orders.send(TrustOrder::Revoked(list));
        Ok(count)
    }

    /// Has nodes ask for new certificates; with no names all of them, and this process gets one too.
    pub fn renew_all(&self, nodes: &[String]) -> Result<(), Refusal> {
        if nodes.is_empty() {
            self.renew_own().map_err(|e| internal(&e))?;
        }
        let _ = self.orders.send(TrustOrder::Renew(nodes.to_vec()));
        Ok(())
    }

    fn renew_own(&self) -> Result<(), IdentityError> {
        let name = self.identity.identity().name;
        self.authority.enrol(Role::Controller, &name, &self.folder)?;
        self.identity.reload(&self.folder)?;
        tracing::info!(until = day(seconds(self.identity.expiry())), "the controller's certificate was renewed");
        Ok(())
    }

    fn look(&self, now: SystemTime) {
        if self.identity.renew_at() <= now
            && let Err(e) = self.renew_own()
        {
            tracing::error!(error = %e, until = day(seconds(self.identity.expiry())), "the controller's certificate is not renewed");
        }
        match self.authority.expiry() {
            Ok(ends) if ends <= now + WARN_AUTHORITY => tracing::warn!(
                until = day(seconds(ends)),
                "the cluster's authority ends: make a new one (docs/security.md) before that day"
            ),
            Ok(_) => {}
            Err(e) => tracing::error!(error = %e, "the authority's certificate"),
        }
        let (soon, today) = (seconds(now + WARN_CERTIFICATE), seconds(now));
        let issued = self.authority.issued();
        for one in issued.iter().filter(|one| one.revoked.is_none() && (today..soon).contains(&one.expires)) {
            let newer = issued.iter().any(|other| {
                other.name == one.name && other.role == one.role && other.revoked.is_none() && other.issued > one.issued
            });
            if !newer {
                let until = day(one.expires);
                tracing::warn!(role = one.role, name = one.name, until, "a certificate ends soon and was not renewed");
            }
        }
    }
}

/// Renews this process's certificate in time, and says what ends soon. For the life of the process.
pub async fn keep_valid(trust: Arc<Trust>) {
    loop {
        trust.look(SystemTime::now());
        tokio::time::sleep(LOOK).await;
    }
}

/// This process's identity, made where there is none. One whose certificate ended is made anew: the authority is here.
pub fn own_identity(
    cluster: &Cluster,
    authority: &CertAuthority,
    folder: &std::path::Path,
) -> Result<Arc<IdentityStore>, IdentityError> {
    match IdentityStore::load(folder) {
        Ok(store) if store.expiry() > SystemTime::now() => Ok(store),
        outcome => {
            if let Ok(store) = outcome {
                let ended = day(seconds(store.expiry()));
                tracing::warn!(cluster = cluster.config.cluster_name, ended, "the controller's certificate had ended");
            }
            let host = inventory::hostname().unwrap_or_else(|_| "localhost".into());
            authority.enrol(Role::Controller, &host, folder)
        }
    }
}
