//! The cluster's authority in operation: what it issued, what is revoked, which processes get new certificates, and when.

use crate::daemon::place::Cluster;
use garrick_kernel::inventory;
use garrick_model::{
    messages::{
        command::{CertView, CommandReply, RotationView},
        node::ControllerToNode,
    },
    refusal::Refusal,
    time::{Timestamp, system_zone},
};
use garrick_transport::{
    CertAuthority, IdentityError, IdentityStore,
    identity::{Issued, KeepError, Role, Rotation},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    sync::{Notify, broadcast},
    time::Instant,
};

/// Orders that a link may have before it: a link that falls behind is closed, and told all when it comes again.
const ORDERS: usize = 64;
/// How often the controller looks at what ends soon.
const LOOK: Duration = Duration::from_secs(3600);
/// What could not be done is tried again no sooner.
const SOON: Duration = Duration::from_secs(5);
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
    /// What each node said last that it has.
    held: Mutex<BTreeMap<String, Held>>,
    /// One step at a time.
    steps: Mutex<()>,
    /// A step that was due could not be taken.
    owed: AtomicBool,
    /// Something is to be tried again soon.
    again: Notify,
}

/// Whose word may be the reason for the next step.
#[derive(Clone, Copy)]
enum Rotated {
    /// A node's: it has what it was waited for with.
    ByNodes,
    /// An administrator's, who begins, or goes on without those that are missing.
    ByAdministrator {
        /// Without them.
        leave_behind: bool,
    },
}

/// Fingerprints of authorities.
struct Held {
    issuer: Option<String>,
    trusted: Vec<String>,
}

/// When to ask again, where nothing was changed.
pub(super) fn later(error: &IdentityError) -> Option<Duration> {
    match error {
        IdentityError::Keep(KeepError::Later { after }) => Some(*after),
        _ => None,
    }
}

/// For who asked.
pub(super) fn internal(error: &IdentityError) -> Refusal {
    later(error).map_or_else(|| Refusal::Internal(error.to_string()), |after| Refusal::RetryAfter { after })
}

fn timestamp(seconds: u64) -> Timestamp {
    Timestamp::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn day(seconds: u64) -> String {
    timestamp(seconds).text(&system_zone())
}

impl Trust {
    /// For this process's identity, which is in that folder.
    pub fn new(authority: Arc<CertAuthority>, identity: Arc<IdentityStore>, folder: PathBuf) -> Self {
        Self {
            authority,
            identity,
            folder,
            orders: broadcast::channel(ORDERS).0,
            held: Mutex::default(),
            steps: Mutex::default(),
            owed: AtomicBool::new(false),
            again: Notify::new(),
        }
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
        Ok(ControllerToNode::Certificate { certificate, authorities: self.authority.trusted_pem() })
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
            Ok(ends) => CommandReply::Certs { certs, authority: timestamp(seconds(ends)), rotation: self.rotation() },
            Err(e) => CommandReply::Refused(internal(&e)),
        }
    }

    /// A node says what it has. True: it is to ask for a certificate, since it goes by authorities of before.
    pub fn hear(&self, node: &str, issuer: Option<String>, trusted: Vec<String>) -> bool {
        let wanted = self.authority.trusted();
        let behind = trusted.iter().collect::<BTreeSet<_>>() != wanted.iter().collect()
            || (self.authority.rotation() != Some(Rotation::Introduced) && issuer.as_ref() != wanted.first());
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned(), Held { issuer, trusted });
        // While it is behind, so is the replacement.
        if !behind && let Err(e) = self.advance(Rotated::ByNodes) {
            self.owes(&e);
        }
        behind
    }

    /// Nodes with a certificate that holds, for which the next step of a replacement waits.
    fn missing(&self) -> Vec<String> {
        let now = seconds(SystemTime::now());
        let (trusted, rotation) = (self.authority.trusted(), self.authority.rotation());
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = |node: &str| {
            held.get(node).is_some_and(|held| match rotation {
                Some(Rotation::Issuing) => held.issuer.as_ref() == trusted.first(),
                _ => trusted.iter().all(|authority| held.trusted.contains(authority)),
            })
        };
        let valid = |one: &Issued| one.role == Role::Node.to_string() && one.revoked.is_none() && one.expires > now;
        let nodes: BTreeSet<String> = self.authority.issued().into_iter().filter(valid).map(|one| one.name).collect();
        nodes.into_iter().filter(|node| !is_there(node)).collect()
    }

    fn rotation(&self) -> Option<RotationView> {
        let issuing = self.authority.rotation()? == Rotation::Issuing;
        Some(RotationView { issuing, missing: self.missing() })
    }

    /// Begins to replace the authority, or takes the next step: where all nodes are ready, or are to be left behind.
    pub fn rotate(&self, leave_behind: bool) -> Result<(), Refusal> {
        self.advance(Rotated::ByAdministrator { leave_behind }).map_err(|e| internal(&e))
    }

    /// All steps for which no node is missing. An administrator begins without that, and may leave those behind that are missing.
    fn advance(&self, by: Rotated) -> Result<(), IdentityError> {
        let _one_at_a_time = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at_once = match by {
            Rotated::ByNodes => false,
            Rotated::ByAdministrator { leave_behind } => leave_behind || self.authority.rotation().is_none(),
        };
        let mut stepped = false;
        while at_once || (self.authority.rotation().is_some() && self.missing().is_empty()) {
            at_once = false;
            match self.step() {
                Ok(()) => stepped = true,
                // Asked again, it would be one step more than was asked for.
                Err(e) if stepped => {
                    self.owes(&e);
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// A step that was due is taken later.
    fn owes(&self, why: &IdentityError) {
        tracing::error!(error = %why, "a step of the replacement of the cluster's authority could not be taken: it is tried again");
        self.owed.store(true, Ordering::Relaxed);
        self.again.notify_one();
    }

    /// Of an error nothing was changed, so that it can be asked for again. What is left to do when the authority has changed is no reason
    /// for one.
    fn step(&self) -> Result<(), IdentityError> {
        if !goes_by(&self.identity, &self.authority) {
            self.renew_own()?;
        }
        let rotation = self.authority.rotate()?;
        tracing::warn!(
            "{}",
            match rotation {
                Some(Rotation::Introduced) =>
                    "a new authority was made: all nodes are to trust it beside the one that issues",
                Some(Rotation::Issuing) => "the new authority issues: all nodes are to get their certificates from it",
                None => "the authority was replaced: the old one is not trusted any more",
            }
        );
        if let Err(e) = self.renew_own() {
            tracing::error!(error = %e, "the controller has no certificate of this step yet: it is tried again");
            self.again.notify_one();
        }
        match self.authority.revocation_list() {
            Ok(list) => drop(self.orders.send(TrustOrder::Revoked(list))),
            Err(e) => tracing::error!(error = %e, "the list of revoked certificates"),
        }
        let _ = self.orders.send(TrustOrder::Renew(Vec::new()));
        Ok(())
    }

    /// Revokes what nodes have, here and then wherever there is a link. Of an error, what could be revoked is.
    pub fn revoke(&self, nodes: &[String]) -> Result<usize, Refusal> {
        let mut outcome = Ok(0);
        for node in nodes {
            let revoked = self.authority.revoke(Role::Node, node);
            outcome = outcome.and_then(|count| Ok(count + revoked?));
        }
        let list = self.authority.revocation_list().map_err(|e| internal(&e))?;
        let kept = self.identity.set_revoked(&self.folder, list.as_deref());
        // Nobody listens where no node is connected.
        let _ = self.orders.send(TrustOrder::Revoked(list));
        outcome.and_then(|count| kept.map(|()| count)).map_err(|e| internal(&e))
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

    /// Renews this process's certificate where that is due, and takes the step that could not be taken. Some: not all could be done, and is
    /// to be tried again after that.
    pub(super) fn catch_up(&self, now: SystemTime) -> Option<Duration> {
        let mut again = None;
        if (self.identity.renew_at() <= now || !goes_by(&self.identity, &self.authority))
            && let Err(e) = self.renew_own()
        {
            tracing::error!(error = %e, until = day(seconds(self.identity.expiry())), "the controller's certificate is not renewed");
            again = Some(later(&e).unwrap_or(SOON));
        }
        if self.owed.swap(false, Ordering::Relaxed)
            && let Err(e) = self.advance(Rotated::ByNodes)
        {
            self.owes(&e);
            again = again.max(later(&e));
        }
        again
    }

    /// Says what ends soon.
    fn look(&self, now: SystemTime) {
        match self.authority.expiry() {
            Ok(ends) if ends <= now + WARN_AUTHORITY => tracing::warn!(
                until = day(seconds(ends)),
                "the cluster's authority ends: replace it before that day (garrick certs rotate)"
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

/// On another thread than that which serves: it waits for the log.
async fn apart<T: Default + Send + 'static>(trust: &Arc<Trust>, work: impl FnOnce(&Trust) -> T + Send + 'static) -> T {
    let trust = Arc::clone(trust);
    let done = tokio::task::spawn_blocking(move || work(&trust)).await;
    done.inspect_err(|e| tracing::error!(error = %e, "certificates are not looked after")).unwrap_or_default()
}

/// Renews this process's certificate in time, takes what steps could not be taken, and says what ends soon. For the life of the process.
pub async fn keep_valid(trust: Arc<Trust>) {
    loop {
        apart(&trust, |trust| trust.look(SystemTime::now())).await;
        let next_look = Instant::now() + LOOK;
        while Instant::now() < next_look {
            let again = apart(&trust, |trust| trust.catch_up(SystemTime::now())).await;
            let pause = again.map_or(next_look, |after| next_look.min(Instant::now() + after.max(SOON)));
            tokio::select! {
                () = tokio::time::sleep_until(pause) => {}
                () = trust.again.notified() => tokio::time::sleep(SOON).await,
            }
        }
    }
}

/// Does the identity have the certificate, and trust the authorities, that it would get now?
fn goes_by(identity: &IdentityStore, authority: &CertAuthority) -> bool {
    let trusted = authority.trusted();
    identity.trusted() == trusted && identity.issuer().as_ref() == trusted.first()
}

/// This process's identity, made where there is none. One whose certificate ended is made anew: the authority is here.
pub fn own_identity(
    cluster: &Cluster,
    authority: &CertAuthority,
    folder: &std::path::Path,
) -> Result<Arc<IdentityStore>, IdentityError> {
    match IdentityStore::load(folder) {
        Ok(store) if store.expiry() > SystemTime::now() && goes_by(&store, authority) => Ok(store),
        outcome => {
            if let Ok(store) = outcome
                && store.expiry() <= SystemTime::now()
            {
                let ended = day(seconds(store.expiry()));
                tracing::warn!(cluster = cluster.config.cluster_name, ended, "the controller's certificate had ended");
            }
            let host = inventory::hostname().unwrap_or_else(|_| "localhost".into());
            authority.enrol(Role::Controller, &host, folder)
        }
    }
}
