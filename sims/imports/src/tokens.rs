//! Rust in tokens, as far as imports need them: names, `::` and single signs, without comments and what stands in quotes.

/// One token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    /// As it is written.
    pub text: String,
    /// Its line, from 1 on.
    pub line: usize,
}

/// All of a text.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let (mut all, mut at, mut line) = (Vec::new(), 0, 1);
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    while at < chars.len() {
        let c = chars[at];
        let next = chars.get(at + 1).copied().unwrap_or(' ');
        let begin = at;
        match c {
            '/' if next == '/' => at = past(&chars, at, |c| c == '\n'),
            '/' if next == '*' => at = after_comment(&chars, at),
            '"' => at = after_text(&chars, at),
            'r' | 'b' | 'c' if let Some(end) = after_prefixed(&chars, at) => at = end,
            '\'' if next == '\\' => at = past(&chars, at + 3, |c| c == '\'') + 1,
            '\'' if chars.get(at + 2) == Some(&'\'') => at += 3,
            // A lifetime.
            '\'' => at = past(&chars, at + 1, |c| !is_part(c)),
            c if is_part(c) => {
                at = past(&chars, at, |c| !is_part(c));
                all.push(Token { text: chars[begin..at].iter().collect(), line });
            }
            ':' if next == ':' => {
                at += 2;
                all.push(Token { text: "::".to_owned(), line });
            }
            c => {
                at += 1;
                if !c.is_whitespace() {
                    all.push(Token { text: c.to_string(), line });
                }
            }
        }
        line += chars[begin..at.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    all
}

fn past(chars: &[char], from: usize, is_end: impl Fn(char) -> bool) -> usize {
    (from..chars.len()).find(|at| is_end(chars[*at])).unwrap_or(chars.len())
}

/// Comments are in one another.
fn after_comment(chars: &[char], from: usize) -> usize {
    let (mut depth, mut at) = (0_usize, from);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn after_text(chars: &[char], quote: usize) -> usize {
    let mut at = quote + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Text with letters before it: `b"..."`, `r#"..."#`, `b'.'`.
fn after_prefixed(chars: &[char], from: usize) -> Option<usize> {
    let letters = chars[from..].iter().take_while(|c| matches!(c, 'r' | 'b' | 'c')).count();
    let raw = chars[from..from + letters].contains(&'r');
    let signs = chars[from + letters..].iter().take_while(|c| **c == '#').count();
    let quote = from + letters + signs;
    match chars.get(quote)? {
        '"' if raw => {
            let closes = |at: &usize| chars[*at] == '"' && chars[at + 1..].iter().take(signs).all(|c| *c == '#');
            Some((quote + 1..chars.len()).find(closes)? + 1 + signs)
        }
        '"' if signs == 0 => Some(after_text(chars, quote)),
        '\'' if signs == 0 && chars[from] == 'b' && letters == 1 => {
            let from = if chars.get(quote + 1) == Some(&'\\') { quote + 3 } else { quote + 2 };
            Some(past(chars, from, |c| c == '\'') + 1)
        }
        _ => None,
    }
}
