//! Entities on their way: encoded, and cut into parts, since they may be larger than a message.

use garrick_model::entities::Entities;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Bytes of a part: far below what a frame may have.
const PART: usize = 512 << 10;
/// All parts together: several hundred thousand associations.
const MOST: usize = 256 << 20;

/// A part of the encoded [`Entities`]. Parts follow each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntitiesPart {
    /// Bytes.
    pub bytes: ByteBuf,
    /// It is the last part.
    pub last: bool,
}

/// Parts that are no entities.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// They cannot be written or read.
    #[error("{0}")]
    Code(String),
    /// There are too many.
    #[error("more than {MOST} bytes")]
    TooLong,
}

/// The parts of these entities; at least one.
pub fn parts(entities: &Entities) -> Result<Vec<EntitiesPart>, PartsError> {
    let bytes = rmp_serde::to_vec_named(entities).map_err(|e| PartsError::Code(e.to_string()))?;
    if bytes.len() > MOST {
        return Err(PartsError::TooLong);
    }
    let count = bytes.chunks(PART).len();
    let part = |(at, bytes): (usize, &[u8])| EntitiesPart { bytes: ByteBuf::from(bytes), last: at + 1 == count };
    Ok(bytes.chunks(PART).enumerate().map(part).collect())
}

/// Puts parts together.
#[derive(Debug, Default)]
pub struct Gathered(Vec<u8>);

impl Gathered {
    /// The next part. The entities once it was the last.
    pub fn add(&mut self, part: &EntitiesPart) -> Result<Option<Entities>, PartsError> {
        if self.0.len() + part.bytes.len() > MOST {
            return Err(PartsError::TooLong);
        }
        self.0.extend_from_slice(&part.bytes);
        if !part.last {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.0);
        rmp_serde::from_slice(&bytes).map(Some).map_err(|e| PartsError::Code(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::entities::names::Account;

    #[test]
    fn many_entities_arrive_as_they_were() {
        let account =
            |n: u32| Account { name: format!("account{n}"), description: "x".repeat(100), ..Account::default() };
        let accounts = (0..20_000).map(account).map(|account| (account.name.clone(), account)).collect();
        for entities in [Entities::default(), Entities { version: 7, accounts, ..Entities::default() }] {
            let parts = parts(&entities).unwrap();
            assert_eq!(parts.len() > 1, entities.version == 7);
            let mut gathered = Gathered::default();
            let (last, before) = parts.split_last().unwrap();
            assert!(before.iter().all(|part| gathered.add(part).unwrap().is_none()));
            assert_eq!(gathered.add(last).unwrap(), Some(entities));
        }
    }
}
