//! The key with which the controller signs job credentials (ed25519), and its public half with which agents and `stepd`s check
//! them. The exact bytes that are sent are signed; their content (expiry, epoch, nonce) is the caller's concern.

use super::{
    IdentityError,
    authority::{hex, unhex},
    files, invalid,
};
use ed25519_dalek::Signer as _;
use sha2::{Digest as _, Sha256};
use std::path::Path;

/// A private signing key, kept in one file of mode 0600 (its 32-byte seed in hexadecimal).
pub struct SigningKey {
    key: ed25519_dalek::SigningKey,
    id: String,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Creates a new key in the file `path`; an existing one is kept, and is an error.
    pub fn create(path: &Path) -> Result<Self, IdentityError> {
        if path.exists() {
            return Err(IdentityError::Exists { path: path.to_owned() });
        }
        if let Some(folder) = path.parent() {
            files::create_folder(folder)?;
        }
        let seed = random::<32>()?;
        files::write_whole(path, format!("{}\n", hex(&seed)).as_bytes(), files::PRIVATE)?;
        Ok(Self::from_seed(&seed))
    }

    /// Reads the key in the file `path`; [`IdentityError::Absent`] when there is none.
    pub fn open(path: &Path) -> Result<Self, IdentityError> {
        let text = files::read_secret(path, 256)?;
        let seed = std::str::from_utf8(&text).ok().and_then(|text| unhex(text.trim()));
        let seed: Option<[u8; 32]> = seed.and_then(|seed| seed.try_into().ok());
        let seed =
            seed.ok_or_else(|| invalid(path.display().to_string(), "not a signing key (64 hexadecimal digits)"))?;
        Ok(Self::from_seed(&seed))
    }

    /// Opens it, or makes it where there is none.
    pub fn open_or_create(path: &Path) -> Result<Self, IdentityError> {
        match Self::open(path) {
            Err(IdentityError::Absent { .. }) => Self::create(path),
            opened => opened,
        }
    }

    fn from_seed(seed: &[u8; 32]) -> Self {
        let key = ed25519_dalek::SigningKey::from_bytes(seed);
        let id = key_id(key.verifying_key().as_bytes());
        Self { key, id }
    }

    /// Signs these bytes.
    pub fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.key.sign(bytes).to_bytes()
    }

    /// Names the key in what it signed: the first 16 hexadecimal digits of the public key's SHA-256.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The public half.
    pub fn verify_key(&self) -> VerifyKey {
        VerifyKey { key: self.key.verifying_key(), id: self.id.clone() }
    }
}

/// A public key to check signatures with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyKey {
    key: ed25519_dalek::VerifyingKey,
    id: String,
}

impl VerifyKey {
    /// From the 32 bytes that travel.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, IdentityError> {
        let bytes: &[u8; 32] = bytes.try_into().map_err(|_| invalid("credential key", "not 32 bytes long"))?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(bytes).map_err(|e| invalid("credential key", e))?;
        Ok(Self { key, id: key_id(bytes) })
    }

    /// The bytes that travel.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.key.to_bytes()
    }

    /// See [`SigningKey::id`].
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Did the holder of the private key sign exactly these bytes? Strict: weak keys and malleable signatures do not pass.
    pub fn verify_strict(&self, bytes: &[u8], signature: &[u8]) -> bool {
        <&[u8; 64]>::try_from(signature)
            .is_ok_and(|raw| self.key.verify_strict(bytes, &ed25519_dalek::Signature::from_bytes(raw)).is_ok())
    }
}

fn key_id(public: &[u8; 32]) -> String {
    hex(&Sha256::digest(public)[..8])
}

/// Random bytes from the kernel.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], IdentityError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| invalid("random numbers of the kernel", e))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::Folder;

    #[test]
    fn a_signature_holds_for_its_bytes_and_key_only() {
        let folder = Folder::new();
        let path = folder.path().join("credential.key");
        let key = SigningKey::open_or_create(&path).unwrap();
        let again = SigningKey::open(&path).unwrap();
        let other = SigningKey::create(&folder.path().join("other.key")).unwrap();
        let signature = key.sign(b"job 5609");
        let public = VerifyKey::from_bytes(&again.verify_key().to_bytes()).unwrap();
        assert_eq!((public.id(), public.id().len()), (key.id(), 16));
        assert!(public.verify_strict(b"job 5609", &signature));
        assert!(!public.verify_strict(b"job 5610", &signature));
        assert!(!public.verify_strict(b"job 5609", &signature[..63]));
        assert!(!other.verify_key().verify_strict(b"job 5609", &signature));
        assert!(matches!(SigningKey::create(&path), Err(IdentityError::Exists { .. })));
    }

    #[test]
    fn a_damaged_key_file_is_an_error() {
        let folder = Folder::new();
        let path = folder.path().join("credential.key");
        files::write_whole(&path, b"not a key", files::PRIVATE).unwrap();
        assert!(matches!(SigningKey::open(&path), Err(IdentityError::Invalid { .. })));
        assert!(VerifyKey::from_bytes(&[0; 31]).is_err());
    }
}
