//! Peers of a process that died and was restarted on the same port learn of it with their next packet, not after
//! [`crate::class::IDLE_LIMIT`]: the new process answers packets of unknown connections with a stateless reset (RFC 9000 section
//! 10.3). For the peers to accept it, both processes need the same key.

use hmac::{Hmac, KeyInit as _, Mac as _};
use quinn::{
    ConnectionId, ConnectionIdGenerator, EndpointConfig,
    crypto::{CryptoError, HmacKey},
};
use sha2::Sha256;
use std::{sync::Arc, time::Duration};

/// Bytes of a connection's number; as many as QUIC libraries usually take.
const ID_BYTES: usize = 8;
/// Bytes of an HMAC with SHA-256.
const MAC_BYTES: usize = 32;

/// A secret that outlives the process. With it, connections of this endpoint can be ended, but nothing else.
#[derive(Clone, PartialEq, Eq)]
pub struct ResetKey([u8; 32]);

impl std::fmt::Debug for ResetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResetKey")
    }
}

impl ResetKey {
    /// A new one; an error when the system has no random numbers.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// One that was kept.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// To keep it.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Settings of an endpoint whose resets are believed by the peers of an earlier one with the same key.
pub(super) fn endpoint_config(key: &ResetKey) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(Key(key.0)));
    // The default generator marks its numbers with a random key of the process and stays silent about all others.
    config.cid_generator(|| Box::new(RandomIds));
    config
}

struct Key([u8; 32]);

impl Key {
    fn mac(&self, data: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(data);
        mac
    }
}

impl HmacKey for Key {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        signature_out.copy_from_slice(&self.mac(data).finalize().into_bytes());
    }

    fn signature_len(&self) -> usize {
        MAC_BYTES
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        self.mac(data).verify_slice(signature).map_err(|_| CryptoError)
    }
}

#[derive(Debug)]
struct RandomIds;

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; ID_BYTES];
        // Without random numbers TLS fails long before; a number that is taken is generated again.
        let _ = getrandom::fill(&mut bytes);
        ConnectionId::new(&bytes)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn two_processes_with_one_key_make_the_same_tokens() {
        let sign = |key: &Key| {
            let mut out = [0; MAC_BYTES];
            key.sign(b"connection", &mut out);
            out
        };
        let kept = ResetKey::random().unwrap();
        let (before, after) = (Key(*kept.as_bytes()), Key(*ResetKey::from_bytes(*kept.as_bytes()).as_bytes()));
        assert_eq!(sign(&before), sign(&after));
        assert!(after.verify(b"connection", &sign(&before)).is_ok());
        assert!(Key([0; 32]).verify(b"connection", &sign(&before)).is_err());
    }
}
