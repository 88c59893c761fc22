//! Names of actors: `/job/5609/step/3`.
//!
//! Traces, logs and remote addresses name an actor by its path, which is the same in every process.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The name of an actor, from the root of its process: segments separated by `/`, as `/job/5609/step/3`.
///
/// Cheap to clone. Ordered and compared as text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorPath(Arc<str>);

/// Why a text is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A path starts at the root.
    #[error("actor path {0:?} does not start with '/'")]
    NotFromRoot(String),
    /// Two slashes in a row, or one at the end.
    #[error("actor path {0:?} has an empty segment")]
    EmptySegment(String),
    /// White space or a control character.
    #[error("actor path {path:?} has the character {character:?}, which names may not have")]
    Character {
        /// The text.
        path: String,
        /// Its first offending character.
        character: char,
    },
}

fn forbidden(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

impl ActorPath {
    /// The path of the root, `/`, whose children are the actors that the process started.
    pub fn root() -> Self {
        Self(Arc::from("/"))
    }

    /// Reads a path.
    ///
    /// # Errors
    /// When the text does not start with `/`, has an empty segment, white space or a control character.
    pub fn new(text: &str) -> Result<Self, PathError> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PathError::NotFromRoot(text.to_owned()));
        };
        if let Some(character) = text.chars().find(|c| forbidden(*c)) {
            return Err(PathError::Character { path: text.to_owned(), character });
        }
        if !rest.is_empty() && rest.split('/').any(str::is_empty) {
            return Err(PathError::EmptySegment(text.to_owned()));
        }
        Ok(Self(Arc::from(text)))
    }

    /// The path of a child. The name may have several segments (`step/3`).
    ///
    /// Never fails, since names come from configuration: empty segments are left out, and a character that paths may
    /// not have is written as `%` and its hexadecimal code.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let mut text = String::with_capacity(self.0.len() + name.len() + 1);
        if !self.is_root() {
            text.push_str(&self.0);
        }
        for segment in name.split('/').filter(|segment| !segment.is_empty()) {
            text.push('/');
            for c in segment.chars() {
                if forbidden(c) {
                    text.push_str(&format!("%{:02X}", u32::from(c)));
                } else {
                    text.push(c);
                }
            }
        }
        if text.is_empty() { Self::root() } else { Self(Arc::from(text)) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        &*self.0 == "/"
    }

    /// The first segment with its slash, which says what kind of actor it is: `/job` of `/job/5609/step/3`; `/` for the root.
    pub fn kind(&self) -> &str {
        let end = self.0.get(1..).and_then(|rest| rest.find('/')).map_or(self.0.len(), |at| at + 1);
        self.0.get(..end).unwrap_or_default()
    }

    /// The last segment: `3` of `/job/5609/step/3`; empty for the root.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The path that this one is directly below: `/job/5609/step` of `/job/5609/step/3`; the root's own is the root.
    #[must_use]
    pub fn parent(&self) -> Self {
        match self.0.rsplit_once('/') {
            Some(("", _)) | None => Self::root(),
            Some((above, _)) => Self(Arc::from(above)),
        }
    }

    /// Whether this is `prefix` or below it, by whole segments: `/job/56` is not under `/job/5`.
    pub fn is_under(&self, prefix: &str) -> bool {
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        match self.0.strip_prefix(prefix) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

impl fmt::Display for ActorPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for ActorPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for ActorPath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for ActorPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        Self::new(text)
    }
}

impl Serialize for ActorPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ActorPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn children_append_segments_and_the_root_has_no_double_slash() {
        let job = ActorPath::root().child("job/5609");
        assert_eq!(job.as_str(), "/job/5609");
        assert_eq!(job.child("step/3").as_str(), "/job/5609/step/3");
        assert_eq!(job.child("a b//c").as_str(), "/job/5609/a%20b/c");
        assert_eq!(ActorPath::root().child("").as_str(), "/");
        assert_eq!(job.name(), "5609");
        assert_eq!(job.child("step/3").parent().as_str(), "/job/5609/step");
        assert!(ActorPath::root().child("job").parent().is_root() && ActorPath::root().parent().is_root());
    }

    #[test]
    fn texts_that_are_not_paths_are_refused_with_the_reason() {
        assert!(matches!(ActorPath::new("job/1"), Err(PathError::NotFromRoot(_))));
        assert!(matches!(ActorPath::new("/job//1"), Err(PathError::EmptySegment(_))));
        assert!(matches!(ActorPath::new("/job/"), Err(PathError::EmptySegment(_))));
        assert!(matches!(ActorPath::new("/a\nb"), Err(PathError::Character { character: '\n', .. })));
        assert!(ActorPath::new("/").unwrap().is_root());
    }

    #[test]
    fn prefixes_match_whole_segments() {
        let path = ActorPath::new("/job/56/step/3").unwrap();
        for prefix in ["/", "", "/job", "/job/", "/job/56", "/job/56/step/3"] {
            assert!(path.is_under(prefix), "{prefix}");
        }
        for prefix in ["/job/5", "/node", "/job/56/step/3/x"] {
            assert!(!path.is_under(prefix), "{prefix}");
        }
    }
}
