//! Helps for this crate's own tests.
#![allow(clippy::unwrap_used)]

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A fresh folder with a short path (socket paths are limited), removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("garrick-t{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

use crate::identity::{
    CertAuthority, IdentityParts, IdentityStore, Role,
    authority::{LEAF_LIFETIME, request_for},
};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// A cluster's CA and members made on the spot.
pub struct Cluster {
    pub folder: Folder,
    pub authority: Arc<CertAuthority>,
}

impl Cluster {
    pub fn new(name: &str) -> Self {
        let folder = Folder::new();
        let authority = Arc::new(CertAuthority::create(&folder.path().join("ca"), name).unwrap());
        Self { folder, authority }
    }

    pub fn parts(&self, role: Role, name: &str, now: SystemTime, lifetime: Duration) -> IdentityParts {
        let key = rcgen::KeyPair::generate().unwrap();
        let request = request_for(&key).unwrap();
        let certificate = self.authority.issue_for(role, name, &request, now, lifetime).unwrap();
        let authorities = self.authority.trusted_pem();
        IdentityParts { key: key.serialize_pem(), certificate, authorities, revoked: None }
    }

    pub fn good(&self, role: Role, name: &str) -> IdentityParts {
        self.parts(role, name, SystemTime::now(), LEAF_LIFETIME)
    }

    pub fn member(&self, role: Role, name: &str) -> Arc<IdentityStore> {
        IdentityStore::from_parts(&self.good(role, name)).unwrap()
    }

    pub fn controller(&self) -> Arc<IdentityStore> {
        self.member(Role::Controller, "ctl")
    }

    pub fn node(&self, name: &str) -> Arc<IdentityStore> {
        self.member(Role::Node, name)
    }
}
