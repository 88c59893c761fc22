//! `PrologFlags` (slurm.conf(5)).

use crate::config::syntax::values::{self, Value};
use std::fmt;

/// A flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrologFlag {
    /// The prolog runs on every node as soon as a job has it: always so in Garrick.
    Alloc,
    /// Every job has its container on each of its nodes as soon as it has it: always so in Garrick, without a step for it.
    Contain,
    /// A batch script starts when the prologs of all nodes have ended.
    DeferBatch,
    /// A batch job whose prolog failed is requeued even where it asked for no requeue.
    ForceRequeueOnFail,
    /// `salloc` does not wait for prologs.
    NoHold,
    /// Prolog and epilog run inside the job's container.
    RunInJob,
    /// Prologs and epilogs of a node run one at a time.
    Serial,
    /// X11 forwarding.
    X11,
}

use PrologFlag::{Alloc, Contain, DeferBatch, ForceRequeueOnFail, NoHold, RunInJob, Serial, X11};

/// Each with its word and what it implies.
const FLAGS: [(PrologFlag, &str, &[PrologFlag]); 8] = [
    (Alloc, "Alloc", &[]),
    (Contain, "Contain", &[Alloc]),
    (DeferBatch, "DeferBatch", &[Alloc]),
    (ForceRequeueOnFail, "ForceRequeueOnFail", &[Alloc]),
    (NoHold, "NoHold", &[Alloc]),
    (RunInJob, "RunInJob", &[Contain, Alloc]),
    (Serial, "Serial", &[]),
    (X11, "X11", &[Contain, Alloc]),
];

/// What is read and not acted on.
const NOT_YET: [PrologFlag; 3] = [NoHold, RunInJob, X11];

/// The flags that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrologFlags(Vec<PrologFlag>);

impl PrologFlags {
    /// Reads words between commas; returns those that are not acted on too.
    pub fn parse(text: &str) -> Value<(Self, Vec<&'static str>)> {
        let known: Vec<&'static str> = FLAGS.iter().map(|(_, word, _)| *word).collect();
        let mut set = Vec::new();
        for word in values::list_or_none(text) {
            let word = values::choice(&word, &known)?;
            let named = FLAGS.iter().filter(|(_, name, _)| *name == word);
            set.extend(named.flat_map(|(flag, _, implied)| implied.iter().chain([flag])));
        }
        let flags = Self(FLAGS.iter().map(|(flag, ..)| *flag).filter(|flag| set.contains(flag)).collect());
        let not_yet = FLAGS.iter().filter(|(flag, ..)| flags.has(*flag) && NOT_YET.contains(flag));
        let not_yet = not_yet.map(|(_, word, _)| *word).collect();
        Ok((flags, not_yet))
    }

    /// Is it set?
    pub fn has(&self, flag: PrologFlag) -> bool {
        self.0.contains(&flag)
    }
}

impl fmt::Display for PrologFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = FLAGS.iter().filter(|(flag, ..)| self.has(*flag)).map(|(_, word, _)| *word);
        f.write_str(&words.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn flags_imply_others_and_some_are_only_known() {
        let read = |text: &str| PrologFlags::parse(text).map(|(flags, not_yet)| (flags.to_string(), not_yet.join(",")));
        let both = |flags: &str, not_yet: &str| (flags.to_owned(), not_yet.to_owned());
        assert_eq!(read("").unwrap(), both("", ""));
        assert_eq!(read("serial,deferbatch").unwrap(), both("Alloc,DeferBatch,Serial", ""));
        assert_eq!(read("X11").unwrap(), both("Alloc,Contain,X11", "X11"));
        assert!(read("Alloc,Never").is_err());
    }
}
