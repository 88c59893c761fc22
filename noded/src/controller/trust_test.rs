#![allow(clippy::unwrap_used)]
//! What comes of a step, or of a revocation, when the log has no room amid it.

use super::trust::{Trust, TrustOrder};
use garrick_kernel::scratch::Scratch;
use garrick_model::refusal::Refusal;
use garrick_transport::{
    CertAuthority, IdentityError, IdentityStore,
    identity::{Change, Keep, KeepError, Role, Rotation, keep::InFolder, request_for},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::sync::broadcast::{Receiver, error::TryRecvError};

/// Has room for so many changes.
struct Room(AtomicUsize);

impl Keep for Room {
    fn keep(&self, changes: Vec<Change>) -> Result<(), IdentityError> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| KeepError::Later { after: Duration::from_secs(3) })?;
        InFolder.keep(changes)
    }
}

struct Site {
    _state: Scratch,
    authority: Arc<CertAuthority>,
    identity: Arc<IdentityStore>,
    trust: Trust,
    room: Arc<Room>,
    orders: Receiver<TrustOrder>,
}

/// With certificates of n1 and n2.
fn site(name: &str) -> Site {
    let state = Scratch::new(name);
    let room = Arc::new(Room(AtomicUsize::new(100)));
    let authority = CertAuthority::create(&state.join("ca"), "c1").unwrap().kept_by(Arc::clone(&room) as _);
    let folder = state.join("identity");
    let identity = authority.enrol(Role::Controller, "head", &folder).unwrap();
    for node in ["n1", "n2"] {
        let key = rcgen::KeyPair::generate().unwrap();
        authority.issue(Role::Node, node, &request_for(&key).unwrap()).unwrap();
    }
    let authority = Arc::new(authority);
    let trust = Trust::new(Arc::clone(&authority), Arc::clone(&identity), folder);
    let orders = trust.orders();
    Site { _state: state, authority, identity, trust, room, orders }
}

impl Site {
    fn room(&self, changes: usize) {
        self.room.0.store(changes, Ordering::Relaxed);
    }

    /// All nodes say that they have what they are to have.
    fn all_have_it(&self) {
        let trusted = self.authority.trusted();
        for node in ["n1", "n2"] {
            assert!(!self.trust.hear(node, trusted.first().cloned(), trusted.clone()), "{node} is not behind");
        }
    }

    /// What the links are told by now.
    fn told(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        loop {
            match self.orders.try_recv() {
                Ok(TrustOrder::Revoked(list)) => told.push(format!("revoked {}", list.is_some())),
                Ok(TrustOrder::Renew(nodes)) => told.push(format!("renew {nodes:?}")),
                Err(TryRecvError::Empty) => return told,
                Err(e) => panic!("{e}"),
            }
        }
    }

    fn goes_by_it(&self) -> bool {
        let trusted = self.authority.trusted();
        self.identity.trusted() == trusted && self.identity.issuer().as_ref() == trusted.first()
    }
}

const ALL: [&str; 2] = ["revoked false", "renew []"];

#[test]
fn a_step_that_is_taken_is_told_to_all_whatever_comes_of_the_controllers_own_certificate() {
    let mut site = site("trust-step");
    // Room for the step, and for nothing that follows from it.
    site.room(1);
    site.trust.rotate(false).unwrap();
    assert_eq!((site.authority.rotation(), site.goes_by_it()), (Some(Rotation::Introduced), false));
    assert_eq!(site.told(), ALL);
    // There still is none: the next step waits for the controller as it does for nodes.
    site.all_have_it();
    assert_eq!((site.authority.rotation(), site.told().len()), (Some(Rotation::Introduced), 0));
    assert_eq!(site.trust.catch_up(SystemTime::now()), Some(Duration::from_secs(3)));
    // Room for the controller's certificate and for the step.
    site.room(2);
    assert_eq!(site.trust.catch_up(SystemTime::now()), None);
    assert_eq!((site.authority.rotation(), site.goes_by_it()), (Some(Rotation::Issuing), false));
    assert_eq!(site.told(), ALL);
    site.room(100);
    assert_eq!(site.trust.catch_up(SystemTime::now()), None);
    assert!(site.goes_by_it());
    // The last step is the last one.
    site.room(1);
    site.all_have_it();
    assert_eq!((site.authority.rotation(), site.told()), (None, ALL.map(str::to_owned).to_vec()));
    site.room(100);
    site.all_have_it();
    assert_eq!(site.trust.catch_up(SystemTime::now()), None);
    assert_eq!((site.authority.rotation(), site.goes_by_it(), site.told().len()), (None, true, 0));
}

#[test]
fn a_step_that_is_not_taken_is_to_be_asked_for_again_and_one_of_an_administrator_stays_one() {
    let mut site = site("trust-later");
    let after = Duration::from_secs(3);
    site.room(0);
    assert_eq!(site.trust.rotate(false), Err(Refusal::RetryAfter { after }));
    assert_eq!((site.authority.rotation(), site.told().len()), (None, 0));
    site.room(100);
    site.trust.rotate(false).unwrap();
    assert_eq!((site.authority.rotation(), site.told()), (Some(Rotation::Introduced), ALL.map(str::to_owned).to_vec()));
    // Nobody is missing for the steps after that one, for which there is no room.
    site.trust.revoke(&["n1".to_owned(), "n2".to_owned()]).unwrap();
    site.room(2);
    site.trust.rotate(true).unwrap();
    assert_eq!(site.authority.rotation(), Some(Rotation::Issuing));
    site.room(100);
    assert_eq!(site.trust.catch_up(SystemTime::now()), None);
    assert_eq!((site.authority.rotation(), site.goes_by_it()), (None, true));
}

#[test]
fn what_could_be_revoked_is_made_known_also_where_not_all_could() {
    let mut site = site("trust-revoke");
    let nodes = ["n1".to_owned(), "n2".to_owned()];
    site.room(1);
    assert_eq!(site.trust.revoke(&nodes), Err(Refusal::RetryAfter { after: Duration::from_secs(3) }));
    assert_eq!(site.told(), ["revoked true"]);
    assert_eq!(nodes.each_ref().map(|node| site.trust.is_barred(node)), [true, false]);
    site.room(100);
    assert_eq!(site.trust.revoke(&nodes), Ok(1));
    assert_eq!(site.told(), ["revoked true"]);
    assert_eq!(nodes.each_ref().map(|node| site.trust.is_barred(node)), [true, true]);
}
