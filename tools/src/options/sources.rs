//! Lays the three sources of options over each other: script lines first, the environment over them, the command line
//! over both. Within a source the last one wins.

use super::{
    getopt::{self, GetoptError, Occurrence, Parsed},
    script_lines::ScriptLine,
    table::{Command, Effect, OptionDef, options_of},
    typed::{Given, OptionError, Source, Typed},
};
use garrick_model::time::Timestamp;
use std::{
    ffi::{OsStr, OsString},
    fmt,
};

/// Arguments or a value that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// The arguments cannot be taken apart.
    Getopt {
        /// How.
        error: GetoptError,
        /// In which line of the script; `None`: on the command line.
        line: Option<usize>,
    },
    /// Something that is no option stands in a script line.
    Stray {
        /// The word.
        word: String,
        /// Line.
        line: usize,
    },
    /// An option's value cannot be taken.
    Option {
        /// Why.
        error: OptionError,
        /// Where it stands, when that is not the command line.
        place: Option<Place>,
    },
}

/// Where an option stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a line of the script.
    Line(usize),
    /// In an environment variable.
    Variable(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "in line {number} of the script"),
            Self::Variable(name) => write!(f, "in environment variable {name}"),
        }
    }
}

/// Takes a command line apart, without applying it.
pub fn command_line(command: Command, args: &[OsString]) -> Result<Parsed, SourceError> {
    getopt::parse(&options_of(command), args).map_err(|error| SourceError::Getopt { error, line: None })
}

/// Lays everything over each other. `variable` looks up the environment.
pub fn lay_over(
    command: Command,
    script: &[ScriptLine],
    variable: &dyn Fn(&str) -> Option<OsString>,
    command_line: &[Occurrence],
    now: Timestamp,
) -> Result<Typed, SourceError> {
    let options = options_of(command);
    let mut typed = Typed::default();
    for line in script {
        let parsed = getopt::parse(&options, &line.words)
            .map_err(|error| SourceError::Getopt { error, line: Some(line.number) })?;
        if let Some(word) = parsed.rest.first() {
            return Err(SourceError::Stray { word: word.to_string_lossy().into_owned(), line: line.number });
        }
        let place = Some(Place::Line(line.number));
        apply_all(&mut typed, &parsed.options, Source::Script, place.as_ref(), now)?;
    }
    for def in options {
        for name in def.variables(command) {
            // An empty variable is taken for one that is not set.
            if let Some(value) = variable(name).filter(|v| !v.is_empty()) {
                apply(&mut typed, def, Some(&value), Source::Environment, now)
                    .map_err(|error| SourceError::Option { error, place: Some(Place::Variable(name)) })?;
            }
        }
    }
    apply_all(&mut typed, command_line, Source::CommandLine, None, now)?;
    Ok(typed)
}

fn apply_all(
    typed: &mut Typed,
    options: &[Occurrence],
    source: Source,
    place: Option<&Place>,
    now: Timestamp,
) -> Result<(), SourceError> {
    options.iter().try_for_each(|o| {
        apply(typed, o.def, o.value.as_deref(), source, now)
            .map_err(|error| SourceError::Option { error, place: place.cloned() })
    })
}

fn apply(
    typed: &mut Typed,
    def: &'static OptionDef,
    value: Option<&OsStr>,
    source: Source,
    now: Timestamp,
) -> Result<(), OptionError> {
    match def.effect {
        Effect::Set(set) => set(typed, &Given { name: def.long, value, source, now }),
        Effect::NotSupported => Err(OptionError::NotSupported(format!("--{}", def.long))),
        Effect::Ignored(notice) => {
            typed.notice(notice);
            Ok(())
        }
        Effect::Silent => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::script_lines;
    use garrick_model::{
        resources::{MemoryMib, MemoryRequest},
        time::TimeLimit,
    };

    fn typed_by(command: Command, script: &str, env: &[(&str, &str)], args: &str) -> Result<Typed, SourceError> {
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let parsed = command_line(command, &args)?;
        let head = script_lines::read(script.as_bytes()).unwrap();
        let variable = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(*v));
        lay_over(command, &head.lines, &variable, &parsed.options, Timestamp::from_secs(0))
    }

    #[test]
    fn environment_goes_over_script_and_command_line_over_both() {
        let script = "#!/bin/sh\n#SBATCH -t 1 -p script -A script\n";
        let env = [("SBATCH_TIMELIMIT", "2"), ("SBATCH_PARTITION", "env")];
        let typed = typed_by(Command::Sbatch, script, &env, "-t 3").unwrap();
        assert_eq!(typed.time_limit, Some(TimeLimit::Secs(180)));
        assert_eq!(typed.partitions, ["env"]);
        assert_eq!(typed.account.as_deref(), Some("script"));
    }

    #[test]
    fn the_last_of_several_wins() {
        let typed = typed_by(Command::Sbatch, "#!/bin/sh\n#SBATCH -J a\n#SBATCH -J b\n", &[], "").unwrap();
        assert_eq!(typed.job_name.as_deref(), Some("b"));
        let typed = typed_by(Command::Sbatch, "", &[], "--mem=5 --mem-per-cpu=7").unwrap();
        assert_eq!(typed.memory.unwrap().value, MemoryRequest::PerCpu(MemoryMib(7)));
    }

    #[test]
    fn each_command_reads_its_own_variables_only() {
        let env = [("SBATCH_PARTITION", "b"), ("SALLOC_PARTITION", "a"), ("SLURM_PARTITION", "r")];
        assert_eq!(typed_by(Command::Sbatch, "", &env, "").unwrap().partitions, ["b"]);
        assert_eq!(typed_by(Command::Salloc, "", &env, "").unwrap().partitions, ["a"]);
        assert_eq!(typed_by(Command::Srun, "", &env, "").unwrap().partitions, ["r"]);
    }

    #[test]
    fn srun_takes_cpus_per_task_from_its_own_variable_only() {
        let env = [("SLURM_CPUS_PER_TASK", "4")];
        assert_eq!(typed_by(Command::Srun, "", &env, "").unwrap().cpus_per_task, None);
        let env = [("SRUN_CPUS_PER_TASK", "4")];
        assert_eq!(typed_by(Command::Srun, "", &env, "").unwrap().cpus_per_task, Some(4));
    }

    #[test]
    fn malformed_values_are_named_with_their_option_and_place() {
        let SourceError::Option { error, place: None } = typed_by(Command::Sbatch, "", &[], "-t 1x").unwrap_err()
        else {
            panic!("an option's error")
        };
        assert_eq!((error.to_string().as_str(), error.exit_code()), ("Invalid --time specification", 255));
        let SourceError::Option { error, place } =
            typed_by(Command::Srun, "", &[("SLURM_NTASKS", "many")], "").unwrap_err()
        else {
            panic!("an option's error")
        };
        assert_eq!(error.to_string(), "Invalid numeric value \"many\" for --ntasks.");
        assert_eq!(place.unwrap().to_string(), "in environment variable SLURM_NTASKS");
    }

    #[test]
    fn what_is_not_built_is_an_error_and_not_ignored() {
        let SourceError::Option { error, .. } = typed_by(Command::Sbatch, "", &[], "--gres=gpu:1").unwrap_err() else {
            panic!("an option's error")
        };
        assert_eq!((error.to_string().as_str(), error.exit_code()), ("--gres is not supported yet", 1));
        let SourceError::Option { error, .. } = typed_by(Command::Srun, "", &[], "--mpi=pmix").unwrap_err() else {
            panic!("an option's error")
        };
        assert_eq!(error.to_string(), "--mpi=pmix is not supported yet");
    }

    #[test]
    fn mail_options_share_one_notice() {
        let typed = typed_by(Command::Sbatch, "", &[], "--mail-type=ALL --mail-user=me").unwrap();
        assert_eq!(typed.notices.len(), 1);
    }

    #[test]
    fn a_stray_word_in_a_script_line_is_an_error() {
        let error = typed_by(Command::Sbatch, "#!/bin/sh\n#SBATCH --output = x\n", &[], "").unwrap_err();
        assert_eq!(error, SourceError::Stray { word: "x".to_owned(), line: 2 });
    }

    #[test]
    fn an_unknown_option_in_a_script_names_its_line() {
        let error = typed_by(Command::Sbatch, "#!/bin/sh\n#SBATCH --nosuch\n", &[], "").unwrap_err();
        assert!(matches!(error, SourceError::Getopt { line: Some(2), .. }), "{error:?}");
    }

    #[test]
    fn a_time_limit_of_zero_asks_for_none() {
        assert_eq!(typed_by(Command::Sbatch, "", &[], "-t 0").unwrap().time_limit, Some(TimeLimit::Unlimited));
    }
}
