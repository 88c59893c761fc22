//! Lists that come from elsewhere and whose items take much more memory than bytes on their way: a specification of a job is
//! 28 bytes there and more than a thousand here.

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use std::{fmt, marker::PhantomData};

struct AtMost<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for AtMost<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MOST {
                return Err(A::Error::invalid_length(items.size_hint().unwrap_or(0) + MOST + 1, &self));
            }
            list.push(item);
        }
        Ok(list)
    }
}

/// Reads a list; one of more than `MOST` items is an error.
pub(crate) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(AtMost::<T, MOST>(PhantomData))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Short(#[serde(deserialize_with = "list::<_, _, 3>")] Vec<u8>);

    #[test]
    fn a_list_is_read_up_to_its_bound() {
        let read = |bytes: &[u8]| rmp_serde::from_slice::<Short>(bytes);
        assert_eq!(read(&[0x93, 1, 2, 3]).unwrap(), Short(vec![1, 2, 3]));
        assert_eq!(read(&[0x90]).unwrap(), Short(vec![]));
        let said = read(&[0x95, 1, 2, 3, 4, 5]).unwrap_err().to_string();
        assert_eq!(said, "invalid length 5, expected a list of at most 3 items");
    }
}
