//! The controller's ports: journal, signer and user directory on this machine.

use crate::{
    journal::{JournalError as FileError, JournalWriter},
    kernel::users::{self, UserError},
};
use garrick_actors::controller::{
    event::ControllerEvent,
    ports::{CredentialSigner, JournalError, JournalPort, User, UserDirectory},
};
use garrick_model::messages::node::{JobCredential, SignedCredential};
use garrick_runtime::ReplyTo;
use garrick_transport::SigningKey;
use serde_bytes::ByteBuf;
use std::{
    collections::HashMap,
    io::{self, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Bytes of events in one record, so that what a record adds to them stays far below what it may have.
const MOST_OF_RECORD: usize = 8 << 20;

/// Counts what is written to it.
struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn encoded_bytes(event: &ControllerEvent) -> usize {
    let mut count = Count(0);
    // What cannot be encoded is found out when it is.
    let _ = rmp_serde::encode::write_named(&mut count, event);
    count.0
}

/// The controller's journal file.
pub struct JournalFile {
    writer: JournalWriter<ControllerEvent>,
}

impl JournalFile {
    /// Over a writer that runs.
    pub fn new(writer: JournalWriter<ControllerEvent>) -> Self {
        Self { writer }
    }
}

impl JournalPort for JournalFile {
    fn append(&self, events: Vec<ControllerEvent>, done: ReplyTo<Result<(), JournalError>>) {
        self.writer.append(
            &ControllerEvent::records(events, MOST_OF_RECORD, encoded_bytes),
            Box::new(move |outcome: Result<(), FileError>| {
                if let Err(e) = &outcome {
                    // Nobody can tell what is on disk now, and owners went on as if it were: only a restart, which reads it
                    // back, can go on.
                    tracing::error!(error = %e, "the journal cannot be written: the controller ends");
                    std::process::exit(1);
                }
                done.reply(outcome.map_err(|e| JournalError(e.to_string())));
            }),
        );
    }

    fn waits_for_room(&self) -> bool {
        self.writer.waits_for_room()
    }
}

/// Signs with the cluster's key.
pub struct Signer {
    key: SigningKey,
}

impl Signer {
    /// With a key.
    pub fn new(key: SigningKey) -> Self {
        Self { key }
    }
}

impl CredentialSigner for Signer {
    fn sign(&self, credential: &JobCredential) -> SignedCredential {
        let payload = rmp_serde::to_vec_named(credential).expect("a credential holds nothing that cannot be encoded");
        let signature = self.key.sign(&payload);
        SignedCredential {
            payload: ByteBuf::from(payload),
            signature: ByteBuf::from(signature.to_vec()),
            key_id: self.key.id().to_owned(),
        }
    }

    fn public_key(&self) -> (Vec<u8>, String) {
        (self.key.verify_key().to_bytes().to_vec(), self.key.id().to_owned())
    }
}

/// How long what the user database said is believed.
const USER_AGE: Duration = Duration::from_secs(60);
/// Users remembered at a time.
const USERS_KEPT: usize = 10_000;

/// The site's users, as this host's name service knows them.
#[derive(Default)]
pub struct Users {
    known: Mutex<HashMap<u32, (Instant, Option<User>)>>,
}

impl UserDirectory for Users {
    fn user(&self, uid: u32) -> Option<User> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, user)) = known.get(&uid)
            && at.elapsed() < USER_AGE
        {
            return user.clone();
        }
        let user = look_up(uid);
        if known.len() >= USERS_KEPT {
            known.clear();
        }
        known.insert(uid, (Instant::now(), user.clone()));
        user
    }

    fn group_name(&self, gid: u32) -> Option<String> {
        Some(users::group_name(gid))
    }

    fn user_called(&self, text: &str) -> Option<String> {
        match users::by_name_or_uid(text) {
            Ok(account) => Some(account.name),
            Err(UserError::UnknownName(_) | UserError::UnknownUid(_)) => None,
            Err(e) => {
                tracing::warn!(user = text, error = %e, "the name service did not answer");
                Some(text.to_owned())
            }
        }
    }

    fn group_called(&self, text: &str) -> Option<String> {
        users::group_by_name_or_gid(text).unwrap_or_else(|e| {
            tracing::warn!(group = text, error = %e, "the name service did not answer");
            Some(text.to_owned())
        })
    }
}

fn look_up(uid: u32) -> Option<User> {
    let account = users::by_uid(uid).ok()?;
    let groups = users::groups(account.uid, account.gid).unwrap_or_else(|e| {
        tracing::warn!(uid, error = %e, "groups of a user");
        vec![account.gid]
    });
    let groups = groups.into_iter().map(|gid| (gid, users::group_name(gid))).collect();
    Some(User { uid, name: account.name, gid: account.gid, groups })
}
