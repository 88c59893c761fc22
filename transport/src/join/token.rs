//! One-time tokens. The text that an administrator takes to a node is `garrick-join-1.<id>.<secret>.<CA fingerprint>`, in
//! hexadecimal. The list of issued tokens is pure: time is an argument, and it can be serialised to survive restarts.

use super::{JoinError, exchange::Secret};
use crate::identity::authority::{hex, unhex};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

const PREFIX: &str = "garrick-join-1";
/// Wrong proofs after which a token is dead: an honest node needs none.
const MOST_FAILURES: u32 = 5;
/// Tokens that may be open at a time.
const MOST_TOKENS: usize = 10_000;

/// A token, as the joining node holds it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Which.
    pub id: String,
    /// Its secret.
    pub secret: Secret,
    /// SHA-256 of the certificate of the CA that issued it.
    pub authority: [u8; 32],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Token {
    /// From 8 random bytes for the id and 32 for the secret.
    pub fn new(id: [u8; 8], secret: Secret, authority: [u8; 32]) -> Self {
        Self { id: hex(&id), secret, authority }
    }

    /// The text to carry. It is the secret: treat it as a password.
    pub fn text(&self) -> String {
        format!("{PREFIX}.{}.{}.{}", self.id, hex(&self.secret), hex(&self.authority))
    }

    /// Reads the text.
    pub fn parse(text: &str) -> Result<Self, JoinError> {
        let bad = |cause| JoinError::BadToken { cause };
        let mut parts = text.trim().split('.');
        if parts.next() != Some(PREFIX) {
            return Err(bad("it does not begin with `garrick-join-1.`"));
        }
        let mut part = || parts.next().and_then(unhex).ok_or_else(|| bad("a part is missing or cut off"));
        let (id, secret, authority) = (part()?, part()?, part()?);
        let sized = |bytes: Vec<u8>| bytes.try_into().map_err(|_| bad("a part has the wrong length"));
        if parts.next().is_some() || id.len() != 8 {
            return Err(bad("a part has the wrong length"));
        }
        Ok(Self { id: hex(&id), secret: sized(secret)?, authority: sized(authority)? })
    }
}

/// What the controller keeps of a token.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    #[serde(with = "serde_bytes")]
    secret: Vec<u8>,
    /// Seconds since 1970.
    expires_secs: u64,
    failures: u32,
    /// The only node that may use it; `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    only: Option<String>,
    /// Which node used it, and for which key: the same node may ask again, since its first answer may have been lost.
    used_by: Option<Use>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Use {
    name: String,
    #[serde(with = "serde_bytes")]
    key: Vec<u8>,
}

/// The controller's book of issued tokens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TokenBook {
    tokens: BTreeMap<String, Kept>,
}

impl TokenBook {
    /// Writes a new token in. Tokens past their time are forgotten on this occasion.
    pub fn add(
        &mut self,
        token: &Token,
        only: Option<&str>,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<(), String> {
        self.tokens.retain(|_, kept| kept.expires_secs > secs(now));
        if self.tokens.len() >= MOST_TOKENS {
            return Err(format!("{MOST_TOKENS} tokens are open already"));
        }
        let expires_secs = secs(now).saturating_add(lifetime.as_secs());
        let only = only.map(ToOwned::to_owned);
        let kept = Kept { secret: token.secret.to_vec(), expires_secs, failures: 0, only, used_by: None };
        self.tokens.insert(token.id.clone(), kept);
        Ok(())
    }

    /// The secret that the holder of a token has to prove.
    pub fn secret(&self, id: &str, now: SystemTime) -> Result<Secret, String> {
        let kept =
            self.tokens.get(id).ok_or("this token is not known here (used up long ago, or of another controller)")?;
        if kept.expires_secs <= secs(now) {
            return Err("this token has expired; ask for a new one".to_owned());
        }
        if kept.failures >= MOST_FAILURES {
            return Err("this token is dead after too many wrong attempts; ask for a new one".to_owned());
        }
        kept.secret.as_slice().try_into().map_err(|_| "this token is damaged".to_owned())
    }

    /// A wrong proof.
    pub fn failed(&mut self, id: &str) {
        if let Some(kept) = self.tokens.get_mut(id) {
            kept.failures += 1;
        }
    }

    /// May it be used for that name and key? The same again is no second use, unless what the name got was `revoked` since.
    pub fn admits(&self, id: &str, name: &str, key: &[u8], revoked: bool) -> Result<(), String> {
        let kept = self.tokens.get(id).ok_or("this token is not known here")?;
        if let Some(only) = kept.only.as_ref().filter(|only| *only != name) {
            return Err(format!("this token is for node {only}, not for {name}"));
        }
        match &kept.used_by {
            Some(first) if revoked || first.name != name || first.key != key => {
                Err(format!("this token was used already, by {}", first.name))
            }
            _ => Ok(()),
        }
    }

    /// Uses a token up, for one name and key.
    pub fn spend(&mut self, id: &str, name: &str, key: &[u8]) -> Result<(), String> {
        self.admits(id, name, key, false)?;
        if let Some(kept) = self.tokens.get_mut(id) {
            kept.used_by = Some(Use { name: name.to_owned(), key: key.to_vec() });
        }
        Ok(())
    }
}

fn secs(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn token() -> Token {
        Token::new([1; 8], [2; 32], [3; 32])
    }

    fn at(secs: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(secs)
    }

    #[test]
    fn text_reads_back_and_damage_is_named() {
        let text = token().text();
        assert_eq!(Token::parse(&format!(" {text}\n")).unwrap(), token());
        for bad in ["", "hello", &text[..text.len() - 1], &text[..40], &format!("{text}.00")] {
            assert!(Token::parse(bad).is_err(), "{bad}");
        }
        assert!(!format!("{:?}", token()).contains("0202"), "no secret in logs");
    }

    #[test]
    fn a_token_ends_with_its_lifetime() {
        let mut book = TokenBook::default();
        book.add(&token(), None, Duration::from_secs(60), at(1000)).unwrap();
        assert_eq!(book.secret(&token().id, at(1059)).unwrap(), [2; 32]);
        assert!(book.secret(&token().id, at(1060)).unwrap_err().contains("expired"));
        assert!(book.secret("0000", at(1000)).is_err());
    }

    #[test]
    fn a_token_serves_once_and_repeats_its_answer_to_the_same_key_only() {
        let mut book = TokenBook::default();
        book.add(&token(), None, Duration::from_secs(60), at(0)).unwrap();
        book.spend(&token().id, "n1", b"key").unwrap();
        book.spend(&token().id, "n1", b"key").unwrap();
        assert!(book.spend(&token().id, "n1", b"another").unwrap_err().contains("used already, by n1"));
        assert!(book.spend(&token().id, "n2", b"key").is_err());
    }

    #[test]
    fn a_saved_book_of_version_one_still_reads() {
        use crate::identity::authority::{hex, unhex};
        let mut book = TokenBook::default();
        book.add(&token(), None, Duration::from_secs(60), at(1000)).unwrap();
        book.spend(&token().id, "n1", b"key").unwrap();
        let saved = include_str!("../../samples/v1/tokens.hex").trim();
        assert_eq!(hex(&rmp_serde::to_vec_named(&book).unwrap()), saved);
        let mut read: TokenBook = garrick_frame::decode_body(&unhex(saved).unwrap()).unwrap();
        assert_eq!(read.secret(&token().id, at(1059)).unwrap(), [2; 32]);
        assert!(read.spend(&token().id, "n2", b"key").is_err());
    }

    #[test]
    fn wrong_attempts_kill_a_token() {
        let mut book = TokenBook::default();
        book.add(&token(), None, Duration::from_secs(60), at(0)).unwrap();
        for _ in 0..MOST_FAILURES {
            book.secret(&token().id, at(1)).unwrap();
            book.failed(&token().id);
        }
        assert!(book.secret(&token().id, at(1)).unwrap_err().contains("too many wrong attempts"));
    }
}
