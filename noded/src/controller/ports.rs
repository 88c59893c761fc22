//! The controller's ports: journal and signer on this machine.

use crate::journal::{JournalError as FileError, JournalWriter};
use garrick_actors::controller::{
    event::ControllerEvent,
    ports::{CredentialSigner, JournalError, JournalPort},
};
use garrick_model::messages::{
    encoded_bytes,
    node::{JobCredential, SignedCredential},
};
use garrick_runtime::ReplyTo;
use garrick_transport::SigningKey;
use serde_bytes::ByteBuf;

/// Bytes of events in one record, so that what a record adds to them stays far below what it may have.
const MOST_OF_RECORD: usize = 8 << 20;

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
