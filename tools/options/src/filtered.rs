//! Options as filters of the site see and change them (`CliFilterPlugins`): by their long names, as texts.

use crate::{
    defined,
    getopt::Occurrence,
    sources::{self, GivenOptions},
    table::{Arg, Command, OptionDef, all},
    typed::{OptionError, Typed},
};
use garrick_model::time::Timestamp;
use std::ffi::{OsStr, OsString};

/// What a filter reads of an option that belongs to other commands, as in 26.05.
const ELSEWHERE: &str = "invalid-context";
/// Options of other commands that all have in 26.05, and their values.
const EVERYWHERE: &[(&str, Option<&str>)] = &[
    ("error", None),
    ("input", None),
    ("kill-on-invalid-dep", Some("unset")),
    ("output", None),
    ("parsable", Some("unset")),
];
/// What a filter reads of options that were not given and are more than a switch, as in 26.05. Others have no value then.
const NOT_GIVEN: &[(&str, &str)] = &[
    ("bcast-exclude", "/lib,/usr/lib,/lib64,/usr/lib64"),
    ("begin", "Unknown"),
    ("bell", "bell-after-delay"),
    ("compress", "none"),
    ("core-spec", "unset"),
    ("cores-per-socket", "-2"),
    ("cpus-per-gpu", "0"),
    ("cpus-per-task", "0"),
    ("deadline", "Unknown"),
    ("exclusive", "unset"),
    ("extra-node-info", "unset"),
    ("get-user-env", "unset"),
    ("gres-flags", "unset"),
    ("ignore-signals", "unset"),
    ("immediate", "0"),
    ("kill-on-bad-exit", "-2"),
    ("kill-on-invalid-dep", "unset"),
    ("mail-type", "NONE"),
    ("mem-bind", "unset"),
    ("mem-update", "unset"),
    ("mincpus", "-1"),
    ("msg-timeout", "10"),
    ("nice", "-2"),
    ("no-kill", "unset"),
    ("nodes", "1-0"),
    ("ntasks", "1"),
    ("ntasks-per-core", "-2"),
    ("ntasks-per-gpu", "-2"),
    ("ntasks-per-node", "-2"),
    ("ntasks-per-socket", "-2"),
    ("ntasks-per-tres", "-2"),
    ("oom-kill-step", "unset"),
    ("oversubscribe", "unset"),
    ("priority", "0"),
    ("profile", "NotSet"),
    ("quiet", "0"),
    ("relative", "-2"),
    ("requeue", "unset"),
    ("resv-ports", "unset"),
    ("segment", "unset"),
    ("signal", "0@0"),
    ("slurmd-debug", "error"),
    ("sockets-per-node", "-2"),
    ("switches", "unset"),
    ("thread-spec", "unset"),
    ("threads", "60"),
    ("threads-per-core", "-2"),
    ("treewidth", "0"),
    ("verbose", "0"),
    ("wait-all-nodes", "65534"),
];

/// The options of one component of a job, or of a step.
#[derive(Debug)]
pub struct Filtered {
    command: Command,
    given: GivenOptions,
    typed: Typed,
    now: Timestamp,
    /// What filters set, in order.
    set: Vec<Occurrence>,
}

impl Filtered {
    /// Those that were given: `given` and `typed` are of the same words.
    pub const fn new(command: Command, given: GivenOptions, typed: Typed, now: Timestamp) -> Self {
        Self { command, given, typed, now, set: Vec::new() }
    }

    /// Whose options they are.
    pub const fn command(&self) -> Command {
        self.command
    }

    /// What filters set, in order.
    pub fn into_set(self) -> Vec<Occurrence> {
        self.set
    }

    /// An option's value as text; `None`: it has none, or there is no such option.
    pub fn value(&self, name: &str) -> Option<String> {
        match (self.own(name), self.given.get(name)) {
            (Some(def), Some(_)) => Some(self.shown(def.long)),
            (Some(def), None) => self.not_given(def),
            (None, _) => match EVERYWHERE.iter().find(|(other, _)| *other == name) {
                Some((_, text)) => text.map(str::to_owned),
                None => all().any(|def| def.long == name).then(|| ELSEWHERE.to_owned()),
            },
        }
    }

    /// Names and values of all options that were given, by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.given.keys().filter(|name| self.own(name).is_some()).map(|name| (*name, self.shown(name)))
    }

    /// Sets an option. Names of no option of this command have no effect, as in Slurm. An error is one of the option.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), OptionError> {
        let Some(def) = self.own(name) else { return Ok(()) };
        let value = match def.arg {
            Arg::None => None,
            Arg::Optional(_) if text.is_empty() => None,
            Arg::Optional(_) | Arg::Required(_) => Some(OsString::from(text)),
        };
        let one = Occurrence { def, value };
        sources::lay_on(&mut self.typed, std::slice::from_ref(&one), self.now)?;
        self.given.insert(def.long, one.value.clone());
        self.set.push(one);
        Ok(())
    }

    fn own(&self, name: &str) -> Option<&'static OptionDef> {
        all().find(|def| def.long == name && def.is_on(self.command))
    }

    fn shown(&self, name: &'static str) -> String {
        let value = self.given.get(name).and_then(|value| value.as_deref()).map(OsStr::to_string_lossy);
        defined::shown(self.command, name, value.as_deref(), &self.typed, self.now)
    }

    fn not_given(&self, def: &OptionDef) -> Option<String> {
        if let Some((_, text)) = NOT_GIVEN.iter().find(|(name, _)| *name == def.long) {
            return Some((*text).to_owned());
        }
        match def.long {
            "uid" => Some(nix::unistd::getuid().to_string()),
            "gid" => Some(nix::unistd::getgid().to_string()),
            "chdir" if self.command != Command::Salloc => {
                std::env::current_dir().ok().map(|folder| folder.display().to_string())
            }
            _ => (def.arg == Arg::None).then(|| "unset".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(command: Command, words: &str) -> Filtered {
        let words: Vec<OsString> = words.split_whitespace().map(Into::into).collect();
        let parsed = sources::command_line(command, &words).unwrap();
        let now = Timestamp::from_secs(0);
        let given = sources::given_options(command, &[], &|_| None, &parsed.options, now).unwrap();
        let typed = sources::lay_over(command, &[], &|_| None, &parsed.options, now).unwrap();
        Filtered::new(command, given, typed, now)
    }

    /// As Slurm 26.05.3 had them.
    #[test]
    fn options_are_read_as_slurms_filters_read_them() {
        let mut options = of(Command::Sbatch, "-n2 --mem=1G -t 5 -H");
        let read = |options: &Filtered, name: &str| options.value(name);
        for (name, value) in [
            ("ntasks", Some("2")),
            ("mem", Some("1G")),
            ("time", Some("00:05:00")),
            ("hold", Some("set")),
            ("nodes", Some("1-0")),
            ("parsable", Some("unset")),
            ("partition", None),
            ("label", Some("invalid-context")),
            ("nosuch", None),
        ] {
            assert_eq!(read(&options, name).as_deref(), value, "{name}");
        }
        options.set("time", "7").unwrap();
        options.set("no-requeue", "").unwrap();
        options.set("nosuch", "x").unwrap();
        options.set("label", "x").unwrap();
        assert_eq!(read(&options, "time").as_deref(), Some("00:07:00"));
        assert_eq!(
            options.all().map(|(name, _)| name).collect::<Vec<_>>(),
            ["hold", "mem", "no-requeue", "ntasks", "time"]
        );
        assert_eq!(options.set("ntasks", "x").unwrap_err().to_string(), "Invalid numeric value \"x\" for --ntasks.");
        let set: Vec<_> = options.into_set().iter().map(|one| one.def.long).collect();
        assert_eq!(set, ["time", "no-requeue"]);
    }
}
