//! `scontrol create NodeName=` and `scontrol delete NodeName=`: dynamic nodes, which `slurm.conf` does not list.

use super::{NOT_THEIRS, Session};
use garrick_model::{config, hostlist, messages::command::CommandRequest};

/// `NodeName=d[1-2] CPUs=4`, or `nodename d[1-2] CPUs=4`: names, and the words after them.
fn split(words: &[String]) -> (&str, &[String]) {
    match words {
        [first, rest @ ..] => match first.split_once('=') {
            Some((_, names)) => (names, rest),
            None => rest.split_first().map_or(("", rest), |(names, rest)| (names.as_str(), rest)),
        },
        [] => ("", words),
    }
}

/// What stands on a `NodeName` line: values with blanks in quotes.
fn line(words: &[String]) -> Result<String, String> {
    let written = words.iter().map(|word| {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("Invalid input: {word}\nRequest aborted"))?;
        let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        config::written(key, bare).map_err(|wrong| format!("Invalid input: {wrong}\nRequest aborted"))
    });
    Ok(written.collect::<Result<Vec<_>, String>>()?.join(" "))
}

/// Runs `create NodeName=...`.
pub fn create(session: &mut Session, words: &[String]) -> i32 {
    let (names, rest) = split(words);
    if names.is_empty() {
        return session.plain_error("Node names are missing: create NodeName=d[1-2] CPUs=4 State=CLOUD");
    }
    let line = match line(rest) {
        Ok(line) => line,
        Err(error) => return session.plain_error(error),
    };
    let request = CommandRequest::CreateNodes { names: names.to_owned(), line };
    match session.cluster().and_then(|c| c.ask(&request)) {
        Ok(_) => 0,
        Err(error) => session.denied("Error creating node(s): ", &error, NOT_THEIRS),
    }
}

/// Runs `delete NodeName=...`; `word` is how it was asked for.
pub fn delete(session: &mut Session, word: &str, names: &str) -> i32 {
    let nodes = match hostlist::expand(names) {
        Ok(nodes) => nodes,
        Err(error) => return session.plain_error(format_args!("Invalid NodeName value: {names} ({error})")),
    };
    match session.cluster().and_then(|c| c.ask(&CommandRequest::DeleteNodes { nodes })) {
        Ok(_) => 0,
        Err(error) => {
            session.console.error(format_args!("failed to delete nodes {names}"));
            session.denied(&format!("delete_node {word}: "), &error, NOT_THEIRS)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{super::typed, *};

    #[test]
    fn names_stand_behind_the_key_or_apart() {
        for given in [&["NodeName=d[1-2]", "CPUs=4"][..], &["nodename", "d[1-2]", "CPUs=4"]] {
            let given = typed(given);
            assert_eq!(split(&given), ("d[1-2]", &typed(&["CPUs=4"])[..]));
        }
    }

    #[test]
    fn values_with_blanks_stay_whole() {
        assert_eq!(line(&typed(&["CPUs=4", "Reason=not here yet"])).unwrap(), "CPUs=4 Reason=\"not here yet\"");
        assert_eq!(line(&typed(&["Reason=\"not here yet\""])).unwrap(), "Reason=\"not here yet\"");
        assert!(line(&typed(&["Reason=a \"b\" c"])).unwrap_err().contains("quotes"));
        assert!(line(&typed(&["CPUs"])).unwrap_err().contains("Invalid input: CPUs"));
    }
}
