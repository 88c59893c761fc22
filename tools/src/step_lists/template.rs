//! Words with placeholders for values: `--seed={seed}`, `{1}.dat`. `{{` and `}}` stand for literal braces.

/// Names of parameters, each with its number from 1 by its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<Option<String>>);

/// A word, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    /// By its place in [`Names`].
    Value(usize),
}

/// A place for a value of nothing that there is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{{{wanted}}} is none of the parameters ({there}); {{{{{wanted}}}}} stands for itself")]
pub struct Unknown {
    wanted: String,
    there: String,
}

/// A name that a parameter may have: letters, digits, `_` and `-`, not beginning with a digit.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

impl Names {
    /// Adds a parameter, with or without a name. An error is the number of the one that has that name already.
    pub fn add(&mut self, name: Option<&str>) -> Result<(), usize> {
        let same = name.and_then(|name| self.0.iter().position(|other| other.as_deref() == Some(name)));
        self.0.push(name.map(str::to_owned));
        same.map_or(Ok(()), |at| Err(at + 1))
    }

    /// How many.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// A parameter as it is shown: by its name, else by its number.
    pub fn shown(&self, at: usize) -> String {
        self.0.get(at).cloned().flatten().unwrap_or_else(|| (at + 1).to_string())
    }

    fn find(&self, text: &str) -> Option<usize> {
        let numbered = || text.parse().ok().and_then(|number: usize| number.checked_sub(1));
        let named = self.0.iter().position(|name| name.as_deref() == Some(text));
        named.or_else(|| numbered().filter(|at| *at < self.0.len()))
    }

    fn unknown(&self, wanted: &str) -> Unknown {
        let there: Vec<String> = (0..self.0.len()).map(|at| format!("{{{}}}", self.shown(at))).collect();
        Unknown { wanted: wanted.to_owned(), there: there.join(" ") }
    }
}

impl Template {
    /// Takes a word apart. A brace that opens neither a name nor a number is a brace.
    pub fn parse(word: &[u8], names: &Names) -> Result<Self, Unknown> {
        let mut template = Self::default();
        let mut open = 0usize;
        let mut at = 0;
        while let Some(rest) = word.get(at..).filter(|rest| !rest.is_empty()) {
            if rest.starts_with(b"{{") {
                open += 1;
                template.text(b"{");
                at += 2;
            } else if rest.starts_with(b"}}") && open > 0 {
                open -= 1;
                template.text(b"}");
                at += 2;
            } else if let Some(inside) = braced(rest) {
                match names.find(inside) {
                    Some(parameter) => template.pieces.push(Piece::Value(parameter)),
                    None if is_name(inside) || inside.bytes().all(|b| b.is_ascii_digit()) => {
                        return Err(names.unknown(inside));
                    }
                    None => template.text(&rest[..inside.len() + 2]),
                }
                at += inside.len() + 2;
            } else {
                template.text(&rest[..1]);
                at += 1;
            }
        }
        Ok(template)
    }

    fn text(&mut self, more: &[u8]) {
        match self.pieces.last_mut() {
            Some(Piece::Text(text)) => text.extend_from_slice(more),
            _ => self.pieces.push(Piece::Text(more.to_vec())),
        }
    }

    /// The parameters that it has places for.
    pub fn parameters(&self) -> impl Iterator<Item = usize> + '_ {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Value(parameter) => Some(*parameter),
            Piece::Text(_) => None,
        })
    }

    /// The word with values in their places.
    pub fn fill<V: AsRef<[u8]>>(&self, value: impl Fn(usize) -> V) -> Vec<u8> {
        let mut word = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => word.extend_from_slice(text),
                Piece::Value(parameter) => word.extend_from_slice(value(*parameter).as_ref()),
            }
        }
        word
    }
}

/// What is between the brace that a text begins with and the next one, if that closes it.
fn braced(text: &[u8]) -> Option<&str> {
    let inside = text.strip_prefix(b"{")?;
    let end = inside.iter().position(|b| matches!(b, b'{' | b'}'))?;
    let inside = if inside[end] == b'}' { &inside[..end] } else { return None };
    std::str::from_utf8(inside).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn names() -> Names {
        let mut names = Names::default();
        for name in [Some("seed"), None, Some("my size")] {
            names.add(name).unwrap();
        }
        names
    }

    fn filled(word: &str) -> Result<String, String> {
        let template = Template::parse(word.as_bytes(), &names()).map_err(|e| e.to_string())?;
        Ok(String::from_utf8(template.fill(|at| ["1", "two words", "3"][at])).unwrap())
    }

    #[test]
    fn values_take_the_places_of_names_and_numbers() {
        for (word, want) in [
            ("{seed}", "1"),
            ("--seed={seed}", "--seed=1"),
            ("{2}-{1}.{my size}{3}", "two words-1.33"),
            ("none", "none"),
            ("", ""),
        ] {
            assert_eq!(filled(word).unwrap(), want, "{word}");
        }
    }

    #[test]
    fn braces_that_open_no_name_are_braces() {
        for (word, want) in [
            ("{{seed}}", "{seed}"),
            ("{{{seed}}}", "{1}"),
            ("{{seed}", "{seed}"),
            ("{}", "{}"),
            ("{ print $1 }", "{ print $1 }"),
            ("{a,b}", "{a,b}"),
            ("{\"a\": {\"b\": {seed}}}", "{\"a\": {\"b\": 1}}"),
            ("{{\"a\": {seed}}}", "{\"a\": 1}"),
            ("a}}", "a}}"),
            ("{", "{"),
            ("${{HOME}}", "${HOME}"),
        ] {
            assert_eq!(filled(word).unwrap(), want, "{word}");
        }
    }

    #[test]
    fn names_that_there_are_not_are_refused() {
        let there = "is none of the parameters ({seed} {2} {my size})";
        assert_eq!(filled("x{sed}").unwrap_err(), format!("{{sed}} {there}; {{{{sed}}}} stands for itself"));
        assert_eq!(filled("{4}").unwrap_err(), format!("{{4}} {there}; {{{{4}}}} stands for itself"));
        assert_eq!(filled("{0}").unwrap_err(), format!("{{0}} {there}; {{{{0}}}} stands for itself"));
        assert_eq!(names().add(Some("my size")), Err(3));
    }

    proptest! {
        #[test]
        fn braces_in_pairs_keep_any_word_as_it_is(word in "[a-z{} =]{0,12}") {
            let doubled = word.replace('{', "{{").replace('}', "}}");
            // Doubled ones are undone from the left, so a closing brace counts only behind an opening one.
            let balanced = word.chars().try_fold(0, |open, c| match c {
                '{' => Some(open + 1),
                '}' if open == 0 => None,
                '}' => Some(open - 1),
                _ => Some(open),
            });
            if balanced.is_some() {
                prop_assert_eq!(filled(&doubled).unwrap(), word);
            }
        }

        #[test]
        fn no_word_panics(word in proptest::collection::vec(any::<u8>(), 0..24)) {
            let _ = Template::parse(&word, &names()).map(|template| template.fill(|_| "x"));
        }
    }
}
