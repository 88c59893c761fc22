//! Text of others, for terminals and logs: control characters in it would act on the terminal, or begin a line of their own.

use std::{
    borrow::Cow,
    fmt::{self, Display, Write as _},
};

/// A text in which control characters are written as Rust writes them (`\n`, `\u{1b}`), so that none acts on a terminal and none begins
/// a line. Tabs stay.
pub fn written_out(text: &str) -> Cow<'_, str> {
    let acts = |c: char| c.is_control() && c != '\t';
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match acts(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// What is shown so, for logs.
#[derive(Clone, Copy, Debug)]
pub struct Visible<T>(pub T);

impl<T: Display> Display for Visible<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);
        impl fmt::Write for Escaping<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.write_str(&written_out(text))
            }
        }
        write!(Escaping(f), "{}", self.0)
    }
}

/// A text for a terminal: each control character (also U+0080 to U+009F, in UTF-8) is a `?`, but for tab and newline. Bytes that are
/// no UTF-8 stay.
pub fn masked(text: &[u8]) -> Vec<u8> {
    let mut masked = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        masked.push(match byte {
            b'\n' | b'\t' => byte,
            0xc2 if bytes.next_if(|second| (0x80..=0x9f).contains(second)).is_some() => b'?',
            _ if byte.is_ascii_control() => b'?',
            _ => byte,
        });
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_out_in_logs_and_masked_at_terminals() {
        let hostile = "a\u{1b}]0;x\u{7}b\nc\td\u{9b}31m é\r";
        assert_eq!(Visible(hostile).to_string(), "a\\u{1b}]0;x\\u{7}b\\nc\td\\u{9b}31m é\\r");
        assert_eq!(masked(hostile.as_bytes()), "a?]0;x?b\nc\td?31m é?".as_bytes());
        assert!(matches!(written_out("Jürgen's\tjob \\n"), Cow::Borrowed(_)));
        assert_eq!(masked(b"\xff\xc2"), b"\xff\xc2");
    }
}
