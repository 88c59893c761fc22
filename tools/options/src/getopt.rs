//! Splits arguments into options and the rest, as `getopt_long` does with `+`: options end at the first argument that is
//! none (the script or the program to run), long names may be shortened while that is unambiguous, `-N4` and `-N 4` are the
//! same, an optional argument is attached (`-K1`, `--immediate=5`). Called for the command line and for each `#SBATCH` line.
//!
//! This is our own code rather than clap for three reasons: the same table must be applied to three sources (script, environment,
//! command line) with one order of precedence; programs and users know the wording of these errors; and building a hundred and
//! fifty clap arguments takes longer than everything else that `srun` does before it contacts the step manager.

use super::table::{Arg, OptionDef};
use garrick_model::config;
use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// An option that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Which.
    pub def: &'static OptionDef,
    /// Its argument.
    pub value: Option<OsString>,
}

/// Arguments, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Options in the order given.
    pub options: Vec<Occurrence>,
    /// From the first argument that is no option.
    pub rest: Vec<OsString>,
}

/// Arguments that cannot be taken apart. The text is what `getopt_long` says, without the command's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GetoptError {
    /// No such long option.
    UnknownLong {
        /// As typed.
        name: String,
        /// A name that is close to it.
        suggestion: Option<&'static str>,
    },
    /// No such short option.
    UnknownShort(char),
    /// A shortened name that several options begin with.
    Ambiguous {
        /// As typed.
        name: String,
        /// Which could be meant.
        candidates: Vec<&'static str>,
    },
    /// The argument is missing.
    MissingLong(&'static str),
    /// The argument is missing.
    MissingShort(char),
    /// There must be no argument.
    NotAllowed(&'static str),
}

impl GetoptError {
    /// What might have been meant.
    pub fn suggestion(&self) -> Option<String> {
        match self {
            Self::UnknownLong { suggestion: Some(name), .. } => Some(format!("did you mean '--{name}'?")),
            _ => None,
        }
    }
}

impl fmt::Display for GetoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownLong { name, .. } => write!(f, "unrecognized option '--{name}'"),
            Self::UnknownShort(c) => write!(f, "invalid option -- '{c}'"),
            Self::Ambiguous { name, candidates } => {
                write!(f, "option '--{name}' is ambiguous; possibilities:")?;
                candidates.iter().try_for_each(|c| write!(f, " '--{c}'"))
            }
            Self::MissingLong(name) => write!(f, "option '--{name}' requires an argument"),
            Self::MissingShort(c) => write!(f, "option requires an argument -- '{c}'"),
            Self::NotAllowed(name) => write!(f, "option '--{name}' doesn't allow an argument"),
        }
    }
}

impl std::error::Error for GetoptError {}

/// Takes `args` (without the program's name) apart, by the options in `defs`.
pub fn parse(defs: &[&'static OptionDef], args: &[OsString]) -> Result<Parsed, GetoptError> {
    let mut parsed = Parsed::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let bytes = arg.as_bytes();
        if bytes == b"--" {
            break;
        }
        if let Some(long) = bytes.strip_prefix(b"--") {
            let (name, attached) = match long.iter().position(|b| *b == b'=') {
                Some(at) => (&long[..at], Some(OsStr::from_bytes(&long[at + 1..]).to_owned())),
                None => (long, None),
            };
            let def = find_long(defs, name, long)?;
            let value = match (def.arg, attached) {
                (Arg::None, Some(_)) => return Err(GetoptError::NotAllowed(def.long)),
                (Arg::Required(_), None) => Some(rest.next().cloned().ok_or(GetoptError::MissingLong(def.long))?),
                (_, attached) => attached,
            };
            parsed.options.push(Occurrence { def, value });
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            parse_cluster(defs, &bytes[1..], &mut rest, &mut parsed.options)?;
        } else {
            parsed.rest.push(arg.clone());
            break;
        }
    }
    parsed.rest.extend(rest.cloned());
    Ok(parsed)
}

/// The same, but operands may stand anywhere between the options, up to a `--`.
pub fn parse_anywhere(defs: &[&'static OptionDef], args: &[OsString]) -> Result<Parsed, GetoptError> {
    let mut all = Parsed::default();
    let mut rest = args.to_vec();
    loop {
        let before = rest.len();
        let parsed = parse(defs, &rest)?;
        let taken = before - parsed.rest.len();
        let ended = taken > 0 && rest[taken - 1] == "--";
        all.options.extend(parsed.options);
        let mut left = parsed.rest.into_iter();
        if ended {
            all.rest.extend(left);
            return Ok(all);
        }
        match left.next() {
            None => return Ok(all),
            Some(operand) => all.rest.push(operand),
        }
        rest = left.collect();
    }
}

/// `-ln4`: short options behind one dash, the last of which may have an argument.
fn parse_cluster(
    defs: &[&'static OptionDef],
    cluster: &[u8],
    rest: &mut std::slice::Iter<'_, OsString>,
    options: &mut Vec<Occurrence>,
) -> Result<(), GetoptError> {
    let mut at = 0;
    while at < cluster.len() {
        let letter = char::from(cluster[at]);
        let def = defs.iter().find(|d| d.short == Some(letter)).ok_or(GetoptError::UnknownShort(letter))?;
        let attached = &cluster[at + 1..];
        let attached = (!attached.is_empty()).then(|| OsString::from_vec(attached.to_vec()));
        let value = match def.arg {
            Arg::None => {
                options.push(Occurrence { def, value: None });
                at += 1;
                continue;
            }
            Arg::Optional(_) => attached,
            Arg::Required(_) => match attached {
                Some(value) => Some(value),
                None => Some(rest.next().cloned().ok_or(GetoptError::MissingShort(letter))?),
            },
        };
        options.push(Occurrence { def, value });
        return Ok(());
    }
    Ok(())
}

/// `typed` is the name with what follows it: it is all that the C library tells of.
fn find_long(defs: &[&'static OptionDef], name: &[u8], typed: &[u8]) -> Result<&'static OptionDef, GetoptError> {
    if let Some(def) = defs.iter().find(|d| d.long.as_bytes() == name) {
        return Ok(def);
    }
    let (name_text, typed) = (String::from_utf8_lossy(name), String::from_utf8_lossy(typed).into_owned());
    let begins: Vec<_> = defs.iter().filter(|d| !name.is_empty() && d.long.as_bytes().starts_with(name)).collect();
    match begins.as_slice() {
        [def] => Ok(def),
        [] => {
            let suggestion = nearest(&name_text, defs.iter().map(|d| d.long));
            Err(GetoptError::UnknownLong { name: typed, suggestion })
        }
        several => {
            let mut candidates: Vec<_> = several.iter().map(|d| d.long).collect();
            candidates.sort_unstable();
            Err(GetoptError::Ambiguous { name: typed, candidates })
        }
    }
}

/// The name closest to `typed`, when it is close enough to be a slip.
pub fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    config::nearest(typed, &names.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::table::{Command, options_of};
    use super::*;

    fn args(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    /// Options with their values, and the rest.
    type Shown = (Vec<(&'static str, String)>, Vec<OsString>);

    fn shown(command: Command, text: &str) -> Result<Shown, GetoptError> {
        let parsed = parse(&options_of(command), &args(text))?;
        let options = parsed
            .options
            .iter()
            .map(|o| (o.def.long, o.value.as_ref().map_or_else(String::new, |v| v.to_string_lossy().into_owned())))
            .collect();
        Ok((options, parsed.rest))
    }

    #[test]
    fn options_end_at_the_script() {
        let (options, rest) = shown(Command::Sbatch, "-n4 job.sh -n 5 --time=3").unwrap();
        assert_eq!(options, [("ntasks", "4".to_owned())]);
        assert_eq!(rest, args("job.sh -n 5 --time=3"));
    }

    #[test]
    fn two_dashes_end_options_and_are_dropped() {
        let (options, rest) = shown(Command::Srun, "-l -- -x").unwrap();
        assert_eq!(options, [("label", String::new())]);
        assert_eq!(rest, args("-x"));
    }

    #[test]
    fn values_may_be_attached_or_apart() {
        let expected = [
            ("nodes", "1-4".to_owned()),
            ("nodes", "1-4".to_owned()),
            ("time", "5".to_owned()),
            ("time", "5".to_owned()),
        ];
        assert_eq!(shown(Command::Sbatch, "-N1-4 -N 1-4 --time=5 --time 5").unwrap().0, expected);
    }

    #[test]
    fn short_flags_join_and_the_last_may_take_a_value() {
        let (options, rest) = shown(Command::Srun, "-lun2 hostname").unwrap();
        assert_eq!(options, [("label", String::new()), ("unbuffered", String::new()), ("ntasks", "2".to_owned())]);
        assert_eq!(rest, args("hostname"));
    }

    #[test]
    fn optional_values_are_only_taken_when_attached() {
        let (options, rest) = shown(Command::Srun, "-K0 -I --immediate=7 -K prog").unwrap();
        let expected = [("kill-on-bad-exit", "0"), ("immediate", ""), ("immediate", "7"), ("kill-on-bad-exit", "")];
        assert_eq!(options, expected.map(|(n, v)| (n, v.to_owned())));
        assert_eq!(rest, args("prog"));
    }

    #[test]
    fn long_names_may_be_shortened_while_unambiguous() {
        assert_eq!(shown(Command::Sbatch, "--job=x").unwrap().0, [("job-name", "x".to_owned())]);
        let error = shown(Command::Sbatch, "--no=1").unwrap_err();
        let GetoptError::Ambiguous { candidates, .. } = &error else { panic!("{error}") };
        assert!(candidates.contains(&"nodes") && candidates.contains(&"nodelist"));
        let text = error.to_string();
        assert!(text.starts_with("option '--no=1' is ambiguous; possibilities: '--no-kill' '--no-requeue'"), "{text}");
    }

    #[test]
    fn a_whole_name_is_not_ambiguous_with_longer_ones() {
        assert_eq!(shown(Command::Sbatch, "--time=1").unwrap().0, [("time", "1".to_owned())]);
        assert_eq!(shown(Command::Sbatch, "--mem=1").unwrap().0, [("mem", "1".to_owned())]);
    }

    #[test]
    fn errors_are_worded_as_getopt_words_them() {
        let said = |text| shown(Command::Sbatch, text).unwrap_err().to_string();
        assert_eq!(said("--nosuch job.sh"), "unrecognized option '--nosuch'");
        assert_eq!(said("-ZZ"), "invalid option -- 'Z'");
        assert_eq!(said("--time"), "option '--time' requires an argument");
        assert_eq!(said("-t"), "option requires an argument -- 't'");
        assert_eq!(said("--hold=3"), "option '--hold' doesn't allow an argument");
    }

    #[test]
    fn a_slip_gets_a_suggestion_and_nonsense_none() {
        let said = |text| shown(Command::Sbatch, text).unwrap_err().suggestion();
        assert_eq!(said("--ndoes=3").as_deref(), Some("did you mean '--nodes'?"));
        assert_eq!(said("--partitoin=3").as_deref(), Some("did you mean '--partition'?"));
        assert_eq!(said("--xyzzyplugh"), None);
    }

    #[test]
    fn values_need_not_be_utf8() {
        let odd = OsString::from_vec(b"--wrap=echo \xff".to_vec());
        let parsed = parse(&options_of(Command::Sbatch), &[odd]).unwrap();
        assert_eq!(parsed.options[0].value.as_ref().unwrap().as_bytes(), b"echo \xff");
    }

    #[test]
    fn options_of_another_command_are_unknown() {
        assert!(shown(Command::Sbatch, "--multi-prog x").is_err());
        assert!(shown(Command::Srun, "--multi-prog x").is_ok());
        assert!(shown(Command::Srun, "--wrap=x").is_err());
    }
}
