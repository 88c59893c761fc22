//! `-C`: an expression over node features. `&` and `|` are taken from left to right, parentheses first. Counts (`a*2`)
//! and alternatives (`[a|b]`) are understood far enough to be declined by name.

use fixedbitset::FixedBitSet;
use std::collections::BTreeMap;

/// A feature expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// The node has this feature.
    Feature(String),
    /// Both.
    And(Box<Constraint>, Box<Constraint>),
    /// Either.
    Or(Box<Constraint>, Box<Constraint>),
}

/// Why an expression was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// Not an expression.
    #[error("feature expression {0:?} is malformed at byte {1}")]
    Malformed(String, usize),
    /// Known to Slurm, not built here.
    #[error("{what} in the feature expression {text:?}")]
    NotSupported {
        /// For example `node count (*)`.
        what: &'static str,
        /// The expression.
        text: String,
    },
}

impl Constraint {
    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Self, ConstraintError> {
        if text.len() > MAX_BYTES {
            return Err(ConstraintError::Malformed(text[..text.floor_char_boundary(64)].to_owned(), MAX_BYTES));
        }
        let mut parser = Parser { text, at: 0, depth: 0 };
        let expression = parser.expression()?;
        if parser.peek().is_some() { Err(parser.malformed()) } else { Ok(expression) }
    }

    /// Does a node with these features satisfy it?
    pub fn holds(&self, features: &[String]) -> bool {
        match self {
            Self::Feature(name) => features.iter().any(|f| f == name),
            Self::And(a, b) => a.holds(features) && b.holds(features),
            Self::Or(a, b) => a.holds(features) || b.holds(features),
        }
    }

    /// The nodes that satisfy it, from an index of features to nodes.
    pub fn nodes(&self, by_feature: &BTreeMap<String, FixedBitSet>, count: usize) -> FixedBitSet {
        match self {
            Self::Feature(name) => by_feature.get(name).cloned().unwrap_or_else(|| FixedBitSet::with_capacity(count)),
            Self::And(a, b) => {
                let mut set = a.nodes(by_feature, count);
                set.intersect_with(&b.nodes(by_feature, count));
                set
            }
            Self::Or(a, b) => {
                let mut set = a.nodes(by_feature, count);
                set.union_with(&b.nodes(by_feature, count));
                set
            }
        }
    }

    /// Calls `see` with every feature that is named.
    pub fn each_feature<'a>(&'a self, see: &mut dyn FnMut(&'a str)) {
        match self {
            Self::Feature(name) => see(name),
            Self::And(a, b) | Self::Or(a, b) => {
                a.each_feature(see);
                b.each_feature(see);
            }
        }
    }
}

/// Longest expression and deepest nesting that are read: expressions come from users, and recursion over them must end.
const MAX_BYTES: usize = 4096;
const MAX_DEPTH: u32 = 32;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn malformed(&self) -> ConstraintError {
        ConstraintError::Malformed(self.text.to_owned(), self.at)
    }

    fn not_supported(&self, what: &'static str) -> ConstraintError {
        ConstraintError::NotSupported { what, text: self.text.to_owned() }
    }

    fn expression(&mut self) -> Result<Constraint, ConstraintError> {
        let mut left = self.operand()?;
        loop {
            match self.peek() {
                Some(b'&' | b',') => {
                    self.at += 1;
                    left = Constraint::And(Box::new(left), Box::new(self.operand()?));
                }
                Some(b'|') => {
                    self.at += 1;
                    left = Constraint::Or(Box::new(left), Box::new(self.operand()?));
                }
                _ => return Ok(left),
            }
        }
    }

    fn operand(&mut self) -> Result<Constraint, ConstraintError> {
        match self.peek() {
            Some(b'(') => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(self.malformed());
                }
                self.at += 1;
                let inner = self.expression()?;
                if self.peek() != Some(b')') {
                    return Err(self.malformed());
                }
                self.at += 1;
                self.depth -= 1;
                self.no_count()?;
                Ok(inner)
            }
            Some(b'[') => Err(self.not_supported("[alternatives]")),
            _ => {
                let rest = &self.text[self.at..];
                let end = rest.find(['&', '|', '(', ')', '[', ']', '*', ',']).unwrap_or(rest.len());
                let name = rest[..end].trim();
                if name.is_empty() || name.contains(char::is_whitespace) {
                    return Err(self.malformed());
                }
                let name = name.to_owned();
                self.at += end;
                self.no_count()?;
                Ok(Constraint::Feature(name))
            }
        }
    }

    fn no_count(&self) -> Result<(), ConstraintError> {
        if self.peek() == Some(b'*') { Err(self.not_supported("node count (*)")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn holds(expression: &str, features: &[&str]) -> bool {
        let features: Vec<String> = features.iter().map(|f| (*f).to_owned()).collect();
        Constraint::parse(expression).unwrap().holds(&features)
    }

    #[test]
    fn operators_are_taken_from_left_to_right() {
        assert!(holds("a&b|c", &["c"]));
        assert!(holds("a&b|c", &["a", "b"]));
        assert!(!holds("a|b&c", &["a"]));
        assert!(holds("a|(b&c)", &["a"]));
        assert!(!holds("a&b", &["a"]));
    }

    #[test]
    fn malformed_expressions_are_errors() {
        for text in ["", "a&", "|a", "(a", "a)", "a b", "()", "a&&b"] {
            assert!(matches!(Constraint::parse(text), Err(ConstraintError::Malformed(..))), "{text}");
        }
        assert!(Constraint::parse(&"(".repeat(100_000)).is_err());
    }

    #[test]
    fn counts_and_alternatives_are_declined_by_name() {
        for text in ["a*2", "[a|b]", "(a&b)*2", "a&[b|c]"] {
            assert!(matches!(Constraint::parse(text), Err(ConstraintError::NotSupported { .. })), "{text}");
        }
    }
}
