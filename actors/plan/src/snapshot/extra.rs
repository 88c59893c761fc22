//! `--extra` where the site filters nodes by it (`SchedulerParameters=extra_constraints`): comparisons with the values in a
//! node's `Extra`, which is JSON, as extra_constraints.html documents them.

use serde_json::Value;
use std::cmp::Ordering;

/// Numbers that differ by less are equal.
const TOLERANCE: f64 = 0.000_01;

/// Deepest nesting of parentheses.
const DEEPEST: usize = 64;

/// Characters that are in neither keys nor values.
const SPECIAL: [char; 9] = [',', '&', '|', '<', '>', '=', '!', '(', ')'];

/// A condition on each node.
#[derive(Clone, Debug, PartialEq)]
pub enum Extra {
    /// A comparison.
    Is {
        /// Key of the node's value.
        key: String,
        /// Operator.
        how: Comparison,
        /// Value to compare with.
        value: String,
    },
    /// All of these.
    All(Vec<Extra>),
    /// Any of these.
    Any(Vec<Extra>),
}

/// How a node's value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `>`
    Greater,
    /// `>=`
    NotLess,
    /// `<`
    Less,
    /// `<=`
    NotGreater,
}

/// A malformed condition, and the position of the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {why}")]
pub struct ExtraError {
    /// Position.
    pub at: usize,
    /// What is wrong.
    pub why: &'static str,
}

impl Extra {
    /// Reads `(a=1&b!=x)|c<3`.
    pub fn parse(text: &str) -> Result<Self, ExtraError> {
        let mut parser = Parser { text, at: 0 };
        let extra = parser.level(0)?;
        if parser.at < text.len() { Err(parser.wrong("a ) without its (")) } else { Ok(extra) }
    }

    /// Does a node with this `Extra` satisfy it? A node without `Extra`, or whose `Extra` is no JSON object, does not.
    pub fn fits(&self, node: &Value) -> bool {
        match self {
            Self::Is { key, how, value } => node.get(key).is_some_and(|own| how.holds(compared(own, value))),
            Self::All(list) => list.iter().all(|one| one.fits(node)),
            Self::Any(list) => list.iter().any(|one| one.fits(node)),
        }
    }
}

impl Comparison {
    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            Self::Greater => order == Some(Ordering::Greater),
            Self::NotLess => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
            Self::Less => order == Some(Ordering::Less),
            Self::NotGreater => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        }
    }
}

/// Compares a node's value with the requested one; `None`: they cannot be compared. Compared with a boolean, a number counts as
/// one too.
fn compared(own: &Value, asked: &str) -> Option<Ordering> {
    match own {
        Value::Bool(own) => Some(own.cmp(&truth(asked)?)),
        Value::Number(own) => match number(asked) {
            Some(asked) => ordered(own.as_f64()?, asked),
            None => Some((own.as_f64()? != 0.0).cmp(&truth(asked)?)),
        },
        Value::String(own) => match own.parse().ok().zip(number(asked)) {
            Some((own, asked)) => ordered(own, asked),
            None => Some(own.as_str().cmp(asked)),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn ordered(own: f64, asked: f64) -> Option<Ordering> {
    if (own - asked).abs() < TOLERANCE { Some(Ordering::Equal) } else { own.partial_cmp(&asked) }
}

fn number(text: &str) -> Option<f64> {
    // Words such as inf and nan are strings.
    text.parse().ok().filter(|_| !text.contains(|c: char| c.is_ascii_alphabetic()))
}

fn truth(text: &str) -> Option<bool> {
    match text {
        _ if text.eq_ignore_ascii_case("true") => Some(true),
        _ if text.eq_ignore_ascii_case("false") => Some(false),
        _ => number(text).map(|number| number != 0.0),
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    const fn wrong(&self, why: &'static str) -> ExtraError {
        ExtraError { at: self.at, why }
    }

    /// Conditions joined by one kind of operator, up to the end or a parenthesis.
    fn level(&mut self, depth: usize) -> Result<Extra, ExtraError> {
        let mut all = vec![self.request(depth)?];
        let mut any = None;
        loop {
            let is_or = match self.rest().chars().next() {
                None | Some(')') => break,
                Some('&' | ',') => false,
                Some('|') => true,
                Some(_) => return Err(self.wrong("expected &, | or , between requests")),
            };
            if any.is_some_and(|any| any != is_or) {
                return Err(self.wrong("& and | on one level need parentheses"));
            }
            any = Some(is_or);
            self.at += 1;
            all.push(self.request(depth)?);
        }
        Ok(match (all.pop(), any) {
            (Some(alone), None) => alone,
            (last, Some(true)) => Extra::Any(all.into_iter().chain(last).collect()),
            (last, _) => Extra::All(all.into_iter().chain(last).collect()),
        })
    }

    fn request(&mut self, depth: usize) -> Result<Extra, ExtraError> {
        if !self.rest().starts_with('(') {
            return self.comparison();
        }
        if depth >= DEEPEST {
            return Err(self.wrong("too many parentheses in each other"));
        }
        self.at += 1;
        let inside = self.level(depth + 1)?;
        if !self.rest().starts_with(')') {
            return Err(self.wrong("a ( without its )"));
        }
        self.at += 1;
        Ok(inside)
    }

    fn comparison(&mut self) -> Result<Extra, ExtraError> {
        const WAYS: [(&str, Comparison); 6] = [
            ("!=", Comparison::NotEqual),
            (">=", Comparison::NotLess),
            ("<=", Comparison::NotGreater),
            (">", Comparison::Greater),
            ("<", Comparison::Less),
            ("=", Comparison::Equal),
        ];
        let key = self.word("expected a key")?;
        let way = WAYS.into_iter().find(|(sign, _)| self.rest().starts_with(sign));
        let (sign, how) = way.ok_or_else(|| self.wrong("expected =, !=, >, >=, < or <= after the key"))?;
        self.at += sign.len();
        let value = self.word("expected a value")?;
        Ok(Extra::Is { key, how, value })
    }

    fn word(&mut self, missing: &'static str) -> Result<String, ExtraError> {
        let length = self.rest().find(SPECIAL).unwrap_or(self.rest().len());
        if length == 0 {
            return Err(self.wrong(missing));
        }
        let word = self.rest()[..length].to_owned();
        self.at += length;
        Ok(word)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        fixtures::cluster,
        plan::{Plan, plan},
    };
    use garrick_model::testing::{job, node, spec};
    use garrick_model::{spec::JobSpec, state::Reason, time::Timestamp};
    use proptest::prelude::*;
    use serde_json::json;

    fn fits(text: &str) -> bool {
        Extra::parse(text).unwrap().fits(&json!({ "a": 1.23, "b": true, "c": 0, "foo": "bar", "zed": 23 }))
    }

    #[test]
    fn nodes_fit_as_slurms_page_says() {
        for text in [
            "a=1.23",
            "a!=1.24",
            "a!=1.23|foo!=blah",
            "b=200",
            "b=true",
            "foo<baz",
            "(c<=0.0001&a=1.25)|zed=23.0",
            "((c<=0.0001&a=1.25)|zed=23.0)&(a<1|b=false|c>=0.00000001)",
            "((c<=0.0001&a=1.25)|zed=23.0)&(a<1|b=true|c>=0.1)",
            "a=1.23,b=1",
            "foo!=7",
        ] {
            assert!(fits(text), "{text}");
        }
        for text in ["a!=1.23", "b=0", "b=false", "foo>baz", "(c=0.00001)", "none=1", "none!=1", "a=   b", "a>x"] {
            assert!(!fits(text), "{text}");
        }
        assert!(!Extra::parse("a!=1").unwrap().fits(&Value::Null));
    }

    #[test]
    fn what_is_no_request_is_refused_with_its_place() {
        for (text, at) in [
            ("", 0),
            ("a,<=6", 1),
            ("a<=6<=", 4),
            ("a=5&&&b=5", 4),
            ("a=5|||b=5", 4),
            ("a====5", 2),
            ("b<=<=5", 3),
            ("a=5&()", 5),
            ("a=5&b=5|c=5", 7),
            ("(a=1)&(b=2)|(c=3)", 11),
            ("a=1(b=2)", 3),
            ("(a=1)(b=2)", 5),
            ("(((a=1)b=2))", 7),
            (" (a=b)", 1),
            ("((a=b)", 6),
            ("a=b)", 3),
        ] {
            assert_eq!(Extra::parse(text).unwrap_err().at, at, "{text}");
        }
        let is = Extra::Is { key: " a".to_owned(), how: Comparison::Equal, value: "b".to_owned() };
        assert_eq!(Extra::parse("( a=b)"), Ok(is));
        assert!(Extra::parse(&"(".repeat(100_000)).is_err());
    }

    fn planned(asks: &str, filters: bool) -> Plan {
        let says = |place: u32, extra: &str| {
            let extra = Some(extra.to_owned());
            garrick_model::view::NodeView { extra, ..node(place, 4) }
        };
        let nodes = vec![node(0, 4), says(1, "no JSON"), says(2, "{\"load\": 0.45}")];
        let mut view = cluster(nodes, vec![job(1, JobSpec { extra: Some(asks.to_owned()), ..spec() })]);
        view.policy.extra_constraints = filters;
        plan(&view, Timestamp::from_secs(1000))
    }

    #[test]
    fn where_the_site_has_it_so_jobs_start_on_nodes_that_fit() {
        let place = |asks: &str, filters| planned(asks, filters).starts.first().map(|start| start.nodes[0].index.0);
        assert_eq!((place("load<0.5", true), place("load<0.4", true)), (Some(2), None));
        assert_eq!((place("load<0.5", false), place("any text", false)), (Some(0), Some(0)));
        let reasons = planned("load<0.4", true).reasons;
        assert!(matches!(reasons.as_slice(), [(_, Reason::BadConstraints)]), "{reasons:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_an_error(text in "\\PC{0,20}|[ab1.,&|<>=!()]{0,24}") {
            if let Ok(extra) = Extra::parse(&text) {
                let _ = extra.fits(&json!({"a": 1, "b": "x"}));
            }
        }
    }
}
