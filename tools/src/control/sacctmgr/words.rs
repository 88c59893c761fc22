//! The commands of `sacctmgr`, for finding the one that is meant, for help, man page and completion.

use crate::query::arguments::{Word, word};

const SHOW: &str = "What there is";
const CHANGE: &str = "Changes";
const SERVICE: &str = "The service";
const PROMPT: &str = "How things are shown, and the prompt";

/// Every command.
pub const WORDS: &[Word] = &[
    word(SHOW, "list", "ENTITY [CONDITION...]", "show accounts, users, associations, clusters, QOS, TRES and more"),
    word(SHOW, "show", "ENTITY [CONDITION...]", "the same"),
    word(SHOW, "dump", "CLUSTER [file=FILE]", "write accounts, users and QOS of a cluster to a file"),
    word(CHANGE, "add", "ENTITY SPEC...", "add an entity"),
    word(CHANGE, "create", "ENTITY SPEC...", "the same"),
    word(CHANGE, "modify", "ENTITY where SPEC... set SPEC...", "change entities"),
    word(CHANGE, "delete", "ENTITY where SPEC...", "delete entities"),
    word(CHANGE, "remove", "ENTITY where SPEC...", "the same"),
    word(CHANGE, "load", "FILE", "add what a file of dump has"),
    word(CHANGE, "archive", "dump|load SPEC...", "write old records to files, or read them back"),
    word(SERVICE, "ping", "", "ask whether the service of accounting answers"),
    word(SERVICE, "reconfigure", "", "make the service read slurmdbd.conf again"),
    word(SERVICE, "shutdown", "", "end the service"),
    word(SERVICE, "clear", "stats", "begin to count anew how long questions take"),
    word(SERVICE, "rollup", "[START [END]]", "nothing: reports are summed up from records when they are asked for"),
    word(PROMPT, "associations", "", "show associations with accounts and users"),
    word(PROMPT, "quiet", "", "print only errors"),
    word(PROMPT, "verbose", "", "print more messages"),
    word(PROMPT, "readonly", "", "change nothing from here on"),
    word(PROMPT, "help", "", "show this help"),
    word(PROMPT, "version", "", "show the version"),
    word(PROMPT, "exit", "", "leave the prompt"),
    word(PROMPT, "quit", "", "leave the prompt"),
    word(PROMPT, "!!", "", "run the last command again"),
];

/// The command that is meant: three letters of its name will do (seen in Slurm 26.05.3).
pub fn find(typed: &str) -> Option<&'static Word> {
    const LETTERS: usize = 3;
    let is = |word: &&Word| word.name.eq_ignore_ascii_case(typed);
    let begins = |word: &&Word| {
        typed.len() >= LETTERS && word.name.get(..typed.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(typed))
    };
    WORDS.iter().find(is).or_else(|| WORDS.iter().find(begins))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As sacctmgr of Slurm 26.05.3 took them.
    #[test]
    fn three_letters_are_enough() {
        let found = |typed| find(typed).map(|word| word.name);
        for (typed, name) in [("lis", "list"), ("sho", "show"), ("LIST", "list"), ("version", "version"), ("!!", "!!")]
        {
            assert_eq!(found(typed), Some(name), "{typed}");
        }
        for typed in ["li", "l", "s", "bogus", ""] {
            assert_eq!(found(typed), None, "{typed}");
        }
    }
}
