//! Options of an entry (`#SCRON`): most of those of `sbatch`, in whole words.

use crate::options::{
    getopt::{self, GetoptError},
    sources,
    table::{Command, OptionDef, options_of},
    typed::{OptionError, Typed},
};
use garrick_model::time::Timestamp;
use std::ffi::OsString;

/// Options of `sbatch` that no entry can have: they are about the submission, or about what the crontab says itself.
const OF_SBATCH_ONLY: [&str; 28] = [
    "array",
    "bb",
    "bbf",
    "begin",
    "cluster-constraint",
    "clusters",
    "conf",
    "export-file",
    "get-user-env",
    "gid",
    "graph",
    "help",
    "hold",
    "ignore-pbs",
    "input",
    "kill-on-invalid-dep",
    "no-requeue",
    "parsable",
    "prefer",
    "propagate",
    "requeue",
    "resume-from",
    "test-only",
    "uid",
    "usage",
    "version",
    "wait",
    "wrap",
];

/// A word of a line that is no option of an entry.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The last word that was read.
    pub word: String,
    /// Why it cannot be taken, where it is an option.
    pub error: Option<OptionError>,
}

/// Reads the words of an entry's options.
pub fn read(words: &[String], now: Timestamp) -> Result<Typed, Wrong> {
    let defs = options_of(Command::Sbatch);
    let mut typed = Typed::default();
    let mut at = 0;
    while at < words.len() {
        let (taken, options) = take(&defs, &words[at..])?;
        let word = words[at + taken - 1].clone();
        sources::lay_on(&mut typed, &options, now).map_err(|error| Wrong { word, error: Some(error) })?;
        at += taken;
    }
    Ok(typed)
}

/// The options of the next word, with the word behind it where that is an argument.
fn take(defs: &[&'static OptionDef], words: &[String]) -> Result<(usize, Vec<getopt::Occurrence>), Wrong> {
    let wrong = || Wrong { word: words[0].clone(), error: None };
    let args: Vec<OsString> = words.iter().take(2).map(OsString::from).collect();
    let (taken, parsed) = match getopt::parse(defs, &args[..1]) {
        Err(GetoptError::MissingLong(_) | GetoptError::MissingShort(_)) if args.len() == 2 => {
            (2, getopt::parse(defs, &args))
        }
        parsed => (1, parsed),
    };
    let parsed = parsed.map_err(|_| wrong())?;
    let name = words[0].strip_prefix("--").map(|long| long.split('=').next().unwrap_or(long));
    let whole = |def: &OptionDef| name.is_none_or(|name| name == def.long);
    let taken_here = |def: &OptionDef| whole(def) && !OF_SBATCH_ONLY.contains(&def.long);
    if parsed.options.is_empty() || !parsed.rest.is_empty() || !parsed.options.iter().all(|o| taken_here(o.def)) {
        return Err(wrong());
    }
    Ok((taken, parsed.options))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read_line(line: &str) -> Result<Typed, Wrong> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        read(&words, Timestamp(0))
    }

    #[test]
    fn options_of_sbatch_are_read() {
        let typed = read_line("-t 5 -Jname --partition=debug -n2 --mem 10 -Q").unwrap();
        assert_eq!((typed.job_name.as_deref(), typed.partitions.len()), (Some("name"), 1));
        assert_eq!(typed.ntasks.map(|n| n.value), Some(2));
    }

    #[test]
    fn what_no_entry_can_have_is_named() {
        for (line, word) in [
            ("--bogus", "--bogus"),
            ("x y", "x"),
            ("-t 1 # c", "#"),
            ("-a 1-3", "-a"),
            ("--array=1", "--array=1"),
            ("-H", "-H"),
            ("-n", "-n"),
            ("--mem", "--mem"),
            ("--ti=1", "--ti=1"),
            ("--wrap x", "--wrap"),
            ("-V", "-V"),
        ] {
            assert_eq!(read_line(line).unwrap_err(), Wrong { word: word.to_owned(), error: None }, "{line}");
        }
        let wrong = read_line("-t x").unwrap_err();
        assert_eq!(
            (wrong.word.as_str(), wrong.error.unwrap().to_string()),
            ("x", "Invalid --time specification".into())
        );
    }

    #[test]
    fn options_that_are_left_out_are_options_of_sbatch() {
        let defs = options_of(Command::Sbatch);
        let missing: Vec<&str> =
            OF_SBATCH_ONLY.into_iter().filter(|name| !defs.iter().any(|def| def.long == *name)).collect();
        assert_eq!(missing, Vec::<&str>::new());
    }
}
