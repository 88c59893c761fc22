//! A record as it is in the file, whatever it means, and as JSON: fields in order; bytes as text if they are valid UTF-8, else as
//! `{"hex": "00ff"}`; maps whose keys are neither text nor numbers as lists of pairs.

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, SeqAccess, Visitor},
    ser::SerializeMap as _,
};
use std::fmt::{self, Write as _};

/// Anything.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A number of 0 or more.
    Unsigned(u64),
    /// A number below 0.
    Signed(i64),
    /// A fraction.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<Self>),
    /// Names or other keys and what they have, in order.
    Map(Vec<(Self, Self)>),
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or(Value::Signed(value), Value::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Value, E> {
        Ok(Value::Bytes(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Value::Map(map))
    }
}

impl Value {
    const fn is_plain_key(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Unsigned(_) | Self::Signed(_))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Signed(value) => serializer.serialize_i64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => serializer.serialize_str(text),
                Err(_) => {
                    let mut hex = String::with_capacity(2 * bytes.len());
                    for byte in bytes {
                        let _ = write!(hex, "{byte:02x}");
                    }
                    let mut map = serializer.serialize_map(Some(1))?;
                    map.serialize_entry("hex", &hex)?;
                    map.end()
                }
            },
            Self::List(values) => serializer.collect_seq(values),
            Self::Map(entries) if entries.iter().all(|(key, _)| key.is_plain_key()) => {
                serializer.collect_map(entries.iter().map(|(key, value)| (key, value)))
            }
            Self::Map(entries) => serializer.collect_seq(entries),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bytes_are_text_where_they_can_be_and_odd_keys_make_pairs() {
        let text = |text: &str| Value::Text(text.to_owned());
        let map = Value::Map(vec![
            (text("z"), Value::Bytes(b"A=1".to_vec())),
            (text("a"), Value::Bytes(vec![0, 255])),
            (
                Value::Unsigned(7),
                Value::List(vec![Value::Null, Value::Bool(true), Value::Signed(-1), Value::Float(0.5)]),
            ),
            (text("pairs"), Value::Map(vec![(Value::List(vec![Value::Unsigned(1)]), text("x"))])),
        ]);
        let json = r#"{"z":"A=1","a":{"hex":"00ff"},"7":[null,true,-1,0.5],"pairs":[[[1],"x"]]}"#;
        assert_eq!(serde_json::to_string(&map).unwrap(), json);
    }
}
