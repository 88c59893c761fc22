//! The file of `dump` and `load` (sacctmgr(1), "FLAT FILE DUMP AND LOAD"), taken apart.

use super::words::unquoted;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Title {
    Qos,
    Cluster,
    Parent,
    Account,
    User,
}

const TITLES: [(&str, Title); 5] = [
    ("QOS", Title::Qos),
    ("Cluster", Title::Cluster),
    ("Parent", Title::Parent),
    ("Account", Title::Account),
    ("User", Title::User),
];

/// A line: `Title - name:Key=value:Key='value'`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// From 1.
    pub number: usize,
    /// What it is about.
    pub title: Title,
    /// Its name.
    pub name: String,
    /// `Key=value`
    pub words: Vec<String>,
}

/// A line that is none: its number and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misformatted(pub usize, pub String);

/// All lines that are no comments.
pub fn read(text: &str) -> Result<Vec<Line>, Misformatted> {
    let used =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    used.map(|(at, text)| line(at + 1, text.trim()).ok_or_else(|| Misformatted(at + 1, text.to_owned()))).collect()
}

fn line(number: usize, text: &str) -> Option<Line> {
    let (title, rest) = text.split_once(" - ")?;
    let (_, title) = TITLES.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(title.trim()))?;
    let mut parts = divided(rest.trim()).into_iter();
    let name = unquoted(&parts.next()?).to_lowercase();
    let words = parts.filter(|word| !word.is_empty()).collect();
    Some(Line { number, title, name, words })
}

/// Parts between colons that are not in quotes.
fn divided(text: &str) -> Vec<String> {
    let (mut parts, mut quote) = (vec![String::new()], None);
    for c in text.chars() {
        match (c, quote) {
            (':', None) => parts.push(String::new()),
            (c, None) if c == '\'' || c == '"' => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            _ => {}
        }
        if let Some(last) = parts.last_mut().filter(|_| c != ':' || quote.is_some()) {
            last.push(c);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn colons_in_quotes_do_not_divide() {
        let read = read("# a comment\n\nAccount - 'cs':Description='a: b':GrpTRES=cpu=3\nBogus - x\n");
        assert_eq!(read, Err(Misformatted(4, "Bogus - x".to_owned())));
        let line = line(3, "Account - 'CS':Description='a: b':GrpTRES=cpu=3").unwrap();
        assert_eq!((line.title, line.name.as_str()), (Title::Account, "cs"));
        assert_eq!(line.words, ["Description='a: b'", "GrpTRES=cpu=3"]);
    }
}
