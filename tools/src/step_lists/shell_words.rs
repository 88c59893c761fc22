//! Splits a line into words as `/bin/sh` does, as far as that is possible without a shell: quotes and backslashes. A line that
//! needs more (expansions, operators, assignments, builtins), or may need more, is left to the shell.

/// What keeps a line from being words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotWords {
    /// It means something to the shell.
    Shell,
    /// A quote that is never closed, and no shell would think otherwise.
    Unclosed(char),
}

/// Names that mean something else to a shell than a program of that name: keywords and builtins of POSIX, dash and bash.
const OF_THE_SHELL: &[&str] = &[
    "!",
    ".",
    ":",
    "[",
    "[[",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "chdir",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "echo",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "newgrp",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
];

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Where the next word begins: the first byte from `at` on that is no blank.
pub fn skip_blanks(text: &[u8], at: usize) -> usize {
    at + text[at..].iter().take_while(|b| is_blank(**b)).count()
}

/// The word that begins at `at` and where it ends. There must be one.
pub fn word(text: &[u8], at: usize) -> Result<(Vec<u8>, usize), NotWords> {
    let mut word = Vec::new();
    let mut bytes = text.iter().copied().enumerate().skip(at);
    while let Some((here, byte)) = bytes.next() {
        match byte {
            b if is_blank(b) => return Ok((word, here)),
            b'#' if here == at => return Err(NotWords::Shell),
            b'|' | b'&' | b';' | b'<' | b'>' | b'(' | b')' | b'$' | b'`' | b'*' | b'?' | b'[' | b'{' | b'}' | b'~'
            | b'\n' => return Err(NotWords::Shell),
            b'\\' => match bytes.next() {
                Some((_, b'\n')) | None => return Err(NotWords::Shell),
                Some((_, next)) => word.push(next),
            },
            b'\'' => loop {
                match bytes.next() {
                    None => return Err(NotWords::Unclosed('\'')),
                    Some((_, b'\'')) => break,
                    Some((_, inside)) => word.push(inside),
                }
            },
            b'"' => loop {
                match bytes.next() {
                    None => return Err(NotWords::Unclosed('"')),
                    Some((_, b'"')) => break,
                    Some((_, b'$' | b'`')) => return Err(NotWords::Shell),
                    // Within double quotes it only means something before what it keeps from meaning something.
                    Some((_, b'\\')) => match bytes.next() {
                        Some((_, next @ (b'$' | b'`' | b'"' | b'\\'))) => word.push(next),
                        Some((_, b'\n')) => return Err(NotWords::Shell),
                        Some((_, next)) => word.extend([b'\\', next]),
                        None => return Err(NotWords::Unclosed('"')),
                    },
                    Some((_, inside)) => word.push(inside),
                }
            },
            other => word.push(other),
        }
    }
    Ok((word, text.len()))
}

/// The words of a command that can be run without a shell.
pub fn words(text: &[u8]) -> Result<Vec<Vec<u8>>, NotWords> {
    let mut words = Vec::new();
    let mut at = skip_blanks(text, 0);
    while at < text.len() {
        let (next, end) = word(text, at)?;
        if words.is_empty() && is_for_the_shell(&next) {
            return Err(NotWords::Shell);
        }
        words.push(next);
        at = skip_blanks(text, end);
    }
    Ok(words)
}

/// A first word that is no program: nothing, an assignment, or a name of the shell's own.
fn is_for_the_shell(first: &[u8]) -> bool {
    first.is_empty() || first.contains(&b'=') || OF_THE_SHELL.iter().any(|name| name.as_bytes() == first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_render::words::shell_quoted as quoted;
    use proptest::prelude::*;
    use std::{os::unix::ffi::OsStrExt as _, process::Command};

    fn shown(text: &str) -> Result<Vec<String>, NotWords> {
        Ok(words(text.as_bytes())?.into_iter().map(|w| String::from_utf8(w).unwrap()).collect())
    }

    #[test]
    fn quotes_and_backslashes_make_words() {
        for (text, want) in [
            ("./prog a b", &["./prog", "a", "b"] as &[&str]),
            ("  prog\t'a b'  \"c d\"  ", &["prog", "a b", "c d"]),
            (r#"p a\ b \'x\' \\ \$HOME"#, &["p", "a b", "'x'", "\\", "$HOME"]),
            (r#"p "a\$b \n \"q\" 'in'" '\n"'"#, &["p", "a$b \\n \"q\" 'in'", "\\n\""]),
            (r#"p '' "" a''b"#, &["p", "", "", "ab"]),
            ("p --x=y a#b a=b 100% x:y @ ,", &["p", "--x=y", "a#b", "a=b", "100%", "x:y", "@", ","]),
            ("/bin/echo hi", &["/bin/echo", "hi"]),
            ("p ü ß", &["p", "ü", "ß"]),
            ("", &[]),
        ] {
            assert_eq!(shown(text).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn what_means_something_to_the_shell_is_left_to_it() {
        for text in [
            "a | b",
            "a; b",
            "a && b",
            "a > f",
            "a <f",
            "a &",
            "a $x",
            "a `b`",
            "a *.c",
            "a ?",
            "a [x]",
            "a ~",
            "a {x,y}",
            "(a)",
            "a # b",
            "X=1 a",
            "cd /tmp",
            "echo hi",
            "if",
            "! a",
            ". f",
            "exec a",
            "a \"$x\"",
            "a \"`b`\"",
            "a \\",
            "'cd' x",
            "'' a",
            "time a",
            "true",
        ] {
            assert_eq!(shown(text), Err(NotWords::Shell), "{text}");
        }
    }

    #[test]
    fn a_quote_that_is_never_closed_is_an_error_only_where_no_shell_is_needed() {
        assert_eq!(shown("a 'b"), Err(NotWords::Unclosed('\'')));
        assert_eq!(shown("a \"b"), Err(NotWords::Unclosed('"')));
        assert_eq!(shown("a \"b\\"), Err(NotWords::Unclosed('"')));
        assert_eq!(shown("a $(b \"c d)"), Err(NotWords::Shell));
        assert_eq!(shown("a \"$(b \"c"), Err(NotWords::Shell));
        assert_eq!(shown("a # don't"), Err(NotWords::Shell));
    }

    proptest! {
        #[test]
        fn quoted_words_come_back(words in proptest::collection::vec("[^\\n\\x00]{0,12}", 0..6)) {
            let line: Vec<String> = std::iter::once("prog".to_owned()).chain(words.iter().map(|w| quoted(w.as_bytes()))).collect();
            let mut want = vec!["prog".to_owned()];
            want.extend(words);
            prop_assert_eq!(shown(&line.join(" ")), Ok(want));
        }

        #[test]
        fn nothing_panics(text in proptest::collection::vec(any::<u8>(), 0..40), at in 0usize..40) {
            let _ = words(&text);
            if at < text.len() {
                let _ = word(&text, at);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_shell_makes_the_same_words(text in "[a-z0-9 \\t'\"\\\\=#%^!:,./@+-]{0,16}") {
            let line = [b"p ", text.as_bytes()].concat();
            if let Ok(words) = words(&line) {
                let script = [b"p() { printf '%s\\0' \"$@\"; }\n".as_slice(), &line].concat();
                let script = std::ffi::OsStr::from_bytes(&script);
                let output = Command::new("/bin/sh").arg("-c").arg(script).output().unwrap();
                let mut want: Vec<u8> = words[1..].iter().flat_map(|w| [w.as_slice(), &[0]].concat()).collect();
                if words.len() == 1 {
                    // printf without arguments prints its format once.
                    want.push(0);
                }
                prop_assert_eq!(output.stdout, want);
            }
        }
    }
}
