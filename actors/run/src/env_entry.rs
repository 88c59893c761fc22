//! Entries of environments.

use garrick_model::spec::EnvEntry;
use serde_bytes::ByteBuf;
use std::fmt::{Display, Write as _};

/// An entry: `name=value`.
pub fn entry(name: &str, value: impl Display) -> EnvEntry {
    let mut text = String::with_capacity(name.len() + 16);
    text.push_str(name);
    text.push('=');
    // Writing to a string cannot fail.
    let _ = write!(text, "{value}");
    ByteBuf::from(text.into_bytes())
}
