//! The controller's ports on this machine: the signer.

use garrick_actors::controller::shells::ports::CredentialSigner;
use garrick_model::messages::node::{JobCredential, SignedCredential};
use garrick_transport::SigningKey;
use serde_bytes::ByteBuf;

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
