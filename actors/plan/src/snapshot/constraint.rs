//! `-C` and `--prefer`: expressions over node features. `&` and `|` are evaluated from left to right, parentheses first.
//! Conditions on a job's nodes together, rather than on each node, are counts (`a*2`) and alternatives (`[a|b]`). They are a
//! [`Mix`]; `crate::room::mixed` finds nodes for it.

use fixedbitset::FixedBitSet;
use std::collections::BTreeMap;

/// An expression over the features of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Constraint {
    /// The node has this feature.
    Feature(String),
    /// Both.
    And(Box<Constraint>, Box<Constraint>),
    /// Either.
    Or(Box<Constraint>, Box<Constraint>),
}

/// One way to choose the nodes of a job by their features.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Choice {
    /// Holds for every node; `None`: no condition.
    pub(crate) every: Option<Constraint>,
    /// At least so many of the nodes satisfy each; no node is counted twice.
    pub(crate) counts: Vec<(Constraint, u32)>,
}

/// Conditions on the nodes of a job together: one of these choices. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mix {
    /// In the order of preference.
    pub choices: Vec<Choice>,
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The same condition on every node.
    Each(Constraint),
    /// Conditions on the nodes together.
    Together(Mix),
}

/// A malformed expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("feature expression {text:?} is malformed at byte {at}")]
pub struct ConstraintError {
    /// The expression, or its beginning.
    pub text: String,
    /// Position of the error.
    pub at: usize,
}

impl Wish {
    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Self, ConstraintError> {
        if text.len() > MAX_BYTES {
            let text = text[..text.floor_char_boundary(64)].to_owned();
            return Err(ConstraintError { text, at: MAX_BYTES });
        }
        let mut parser = Parser { text, at: 0, depth: 0 };
        let wish = parser.wish()?;
        if parser.peek().is_some() { Err(parser.malformed()) } else { Ok(wish) }
    }

    /// Does a well-formed expression have conditions on nodes together? A quick test, since most have none.
    pub fn is_together(text: &str) -> bool {
        text.contains(['*', '['])
    }

    /// Nodes that could satisfy a part of it, from an index of features to nodes.
    pub fn nodes(&self, by_feature: &BTreeMap<String, FixedBitSet>, count: usize) -> FixedBitSet {
        match self {
            Self::Each(expression) => expression.nodes(by_feature, count),
            Self::Together(mix) => {
                let mut all = FixedBitSet::with_capacity(count);
                for choice in &mix.choices {
                    match &choice.every {
                        Some(every) => all.union_with(&every.nodes(by_feature, count)),
                        None => all.insert_range(..),
                    }
                }
                all
            }
        }
    }

    /// Fewest nodes that satisfy it.
    pub fn least_nodes(&self) -> u32 {
        match self {
            Self::Each(_) => 1,
            Self::Together(mix) => mix.choices.iter().map(Choice::least_nodes).min().unwrap_or(1),
        }
    }

    /// Calls `see` with every feature that it names.
    pub fn each_feature<'a>(&'a self, see: &mut dyn FnMut(&'a str)) {
        match self {
            Self::Each(expression) => expression.each_feature(see),
            Self::Together(mix) => {
                for choice in &mix.choices {
                    let counted = choice.counts.iter().map(|(expression, _)| expression);
                    choice.every.iter().chain(counted).for_each(|expression| expression.each_feature(see));
                }
            }
        }
    }
}

impl Choice {
    /// The sum of its counts.
    pub fn least_nodes(&self) -> u32 {
        self.counts.iter().fold(0u32, |sum, (_, count)| sum.saturating_add(*count)).max(1)
    }

    fn and(mut self, more: &Constraint) -> Self {
        self.every = Some(match self.every.take() {
            Some(every) => Constraint::And(Box::new(every), Box::new(more.clone())),
            None => more.clone(),
        });
        self
    }
}

impl Constraint {
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

    /// Calls `see` with every feature that it names.
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

/// Limits on length and nesting: expressions come from users, and recursion over them must end.
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
        ConstraintError { text: self.text.to_owned(), at: self.at }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    /// The whole expression: terms from left to right, of which at most one is in brackets. With counts there is no `|`.
    fn wish(&mut self) -> Result<Wish, ConstraintError> {
        let mut every: Option<Constraint> = None;
        let mut counts = Vec::new();
        let mut choices: Option<Vec<Choice>> = None;
        let (mut either, mut joined) = (false, None);
        loop {
            if self.eat(b'[') {
                if choices.is_some() {
                    return Err(self.malformed());
                }
                choices = Some(self.brackets()?);
            } else {
                let term = self.operand()?;
                match (self.count()?, joined) {
                    (Some(count), _) => counts.push((term, count)),
                    (None, Some(Join::Either)) => every = Some(join(Join::Either, every, term)),
                    (None, _) => every = Some(join(Join::Both, every, term)),
                }
            }
            joined = self.joint();
            either |= joined == Some(Join::Either);
            if joined.is_none() {
                break;
            }
        }
        if choices.is_none() && counts.is_empty() {
            return every.map(Wish::Each).ok_or_else(|| self.malformed());
        }
        if either {
            return Err(self.malformed());
        }
        let mut choices = choices.unwrap_or_else(|| vec![Choice::default()]);
        for choice in &mut choices {
            choice.counts.extend(counts.iter().cloned());
            if let Some(every) = &every {
                *choice = std::mem::take(choice).and(every);
            }
        }
        Ok(Wish::Together(Mix { choices }))
    }

    /// The contents of brackets: alternatives, or conditions on some of the nodes and on others.
    fn brackets(&mut self) -> Result<Vec<Choice>, ConstraintError> {
        let mut terms = Vec::new();
        let mut kind = None;
        loop {
            let term = self.operand()?;
            terms.push((term, self.count()?));
            match self.joint() {
                None => break,
                joint if kind.is_none() || kind == joint => kind = joint,
                Some(_) => return Err(self.malformed()),
            }
        }
        if !self.eat(b']') {
            return Err(self.malformed());
        }
        Ok(match kind {
            Some(Join::Both) => {
                let counts = terms.into_iter().map(|(term, count)| (term, count.unwrap_or(1))).collect();
                vec![Choice { every: None, counts }]
            }
            _ => {
                let choice = |(term, count): (Constraint, Option<u32>)| match count {
                    Some(count) => Choice { every: None, counts: vec![(term, count)] },
                    None => Choice { every: Some(term), counts: Vec::new() },
                };
                terms.into_iter().map(choice).collect()
            }
        })
    }

    fn joint(&mut self) -> Option<Join> {
        if self.eat(b'&') || self.eat(b',') {
            Some(Join::Both)
        } else if self.eat(b'|') {
            Some(Join::Either)
        } else {
            None
        }
    }

    fn expression(&mut self) -> Result<Constraint, ConstraintError> {
        let mut left = self.operand()?;
        while let Some(joint) = self.joint() {
            left = join(joint, Some(left), self.operand()?);
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Constraint, ConstraintError> {
        if self.eat(b'(') {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(self.malformed());
            }
            let inner = self.expression()?;
            self.depth -= 1;
            return if self.eat(b')') { Ok(inner) } else { Err(self.malformed()) };
        }
        let rest = &self.text[self.at..];
        let end = rest.find(['&', '|', '(', ')', '[', ']', '*', ',']).unwrap_or(rest.len());
        let name = rest[..end].trim();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(self.malformed());
        }
        let name = name.to_owned();
        self.at += end;
        Ok(Constraint::Feature(name))
    }

    /// `*4`.
    fn count(&mut self) -> Result<Option<u32>, ConstraintError> {
        if !self.eat(b'*') {
            return Ok(None);
        }
        let rest = &self.text[self.at..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let count: Option<u32> = rest[..digits].parse().ok().filter(|count| *count > 0);
        let count = count.ok_or_else(|| self.malformed())?;
        self.at += digits;
        Ok(Some(count))
    }
}

/// The operator between two terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Join {
    Both,
    Either,
}

fn join(joint: Join, left: Option<Constraint>, right: Constraint) -> Constraint {
    match (left, joint) {
        (None, _) => right,
        (Some(left), Join::Both) => Constraint::And(Box::new(left), Box::new(right)),
        (Some(left), Join::Either) => Constraint::Or(Box::new(left), Box::new(right)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn holds(expression: &str, features: &[&str]) -> bool {
        let features: Vec<String> = features.iter().map(|f| (*f).to_owned()).collect();
        match Wish::parse(expression).unwrap() {
            Wish::Each(expression) => expression.holds(&features),
            Wish::Together(mix) => panic!("{mix:?}"),
        }
    }

    fn choices(expression: &str) -> Vec<Choice> {
        match Wish::parse(expression).unwrap() {
            Wish::Together(mix) => mix.choices,
            Wish::Each(expression) => panic!("{expression:?}"),
        }
    }

    fn feature(name: &str) -> Constraint {
        Constraint::Feature(name.to_owned())
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
        let plain = ["", "a&", "|a", "(a", "a)", "a b", "()", "a&&b"];
        let together =
            ["a*", "a*0", "a*x", "*2", "[a", "a]", "[]", "[a|b]*2", "[a|b&c]", "[a][b]", "[a]&[b]", "a*2|b", "([a])"];
        for text in plain.iter().chain(&together) {
            assert!(Wish::parse(text).is_err(), "{text}");
        }
        assert!(Wish::parse(&"(".repeat(100_000)).is_err());
    }

    #[test]
    fn counts_are_of_the_nodes_together() {
        let both = vec![(feature("a"), 2), (feature("b"), 4)];
        for text in ["a*2&b*4", "[a*2&b*4]", "[a*2,b*4]"] {
            assert_eq!(choices(text), [Choice { every: None, counts: both.clone() }], "{text}");
        }
        assert_eq!(choices("c&a*2"), [Choice { every: Some(feature("c")), counts: both[..1].to_vec() }]);
        assert_eq!(choices("[a&b]")[0].counts, [(feature("a"), 1), (feature("b"), 1)]);
        assert_eq!(Wish::parse("[(a|c)*1&b*2]").unwrap().least_nodes(), 3);
    }

    #[test]
    fn alternatives_are_for_all_nodes() {
        let each = |name| Choice { every: Some(feature(name)), counts: Vec::new() };
        assert_eq!(choices("[a|b]"), [each("a"), each("b")]);
        assert_eq!(choices("[a]"), [each("a")]);
        assert_eq!(choices("[a|b]&c").iter().map(|c| c.every.clone().unwrap()).collect::<Vec<_>>()[1], {
            Constraint::And(Box::new(feature("b")), Box::new(feature("c")))
        });
        assert_eq!(choices("[a*2|b*3]").iter().map(Choice::least_nodes).collect::<Vec<_>>(), [2, 3]);
    }
}
