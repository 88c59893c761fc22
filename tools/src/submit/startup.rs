//! How these commands begin: the command line is taken apart, `--help` and its like are answered, script lines and
//! environment are laid under it, and what is wrong is said in Slurm's words.

use crate::{
    cluster::ClusterError,
    options::{
        getopt::{Occurrence, Parsed},
        help,
        script_lines::ScriptLine,
        sources::{self, SourceError},
        table::Command,
        typed::{Help, OptionError, Typed},
    },
    output::{self, Console, Verbosity},
};
use garrick_model::time::Timestamp;
use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
};

/// Exit code for what goes wrong on our side, unless `SLURM_EXIT_ERROR` names another.
const EXIT_ERROR: i32 = 1;

/// A command that has begun.
#[derive(Debug)]
pub struct Startup {
    command: Command,
    parsed: Parsed,
    /// Options of the other components of a heterogeneous job: those after each ` : `.
    others: Vec<Vec<Occurrence>>,
    /// Its messages.
    pub console: Console,
}

impl Startup {
    /// Takes the command line apart. The error is the exit code, when everything has been said.
    pub fn begin(command: Command, args: &[OsString]) -> Result<Self, i32> {
        let console = Console::new(command.name());
        let taken_apart =
            |args: &[OsString]| sources::command_line(command, args).map_err(|e| tell_source(command, &console, &e));
        let mut parsed = taken_apart(args)?;
        let mut others = Vec::new();
        while command != Command::Swait && parsed.rest.first().is_some_and(|word| word == ":") {
            let next = taken_apart(&parsed.rest[1..])?;
            others.push(next.options);
            parsed.rest = next.rest;
        }
        let startup = Self { command, parsed, others, console };
        for option in startup.parsed.options.iter().chain(startup.others.iter().flatten()) {
            match option.def.long {
                "help" => return Err(startup.help(Help::Full)),
                "usage" => return Err(startup.help(Help::Usage)),
                "version" => return Err(startup.help(Help::Version)),
                _ => {}
            }
        }
        Ok(startup)
    }

    /// Which command it is.
    pub const fn command(&self) -> Command {
        self.command
    }

    /// What stands after the options.
    pub fn operands(&self) -> &[OsString] {
        &self.parsed.rest
    }

    /// How many components of a heterogeneous job the command line names beside the first.
    pub const fn other_components(&self) -> usize {
        self.others.len()
    }

    /// What was typed for one of them, from 0: its own script lines and options. Variables are about the first component.
    pub fn typed_other(&self, at: usize, script: &[ScriptLine]) -> Result<Typed, i32> {
        let options = self.others.get(at).map_or(&[][..], Vec::as_slice);
        sources::lay_over(self.command, script, &|_| None, options, Timestamp::now())
            .map_err(|error| tell_source(self.command, &self.console, &error))
    }

    fn all_options(&self) -> impl Iterator<Item = &Occurrence> {
        self.parsed.options.iter().chain(self.others.iter().flatten())
    }

    /// Was this option on the command line?
    pub fn gave(&self, long: &str) -> bool {
        self.all_options().any(|o| o.def.long == long)
    }

    /// The argument of an option on the command line, the last one.
    pub fn value(&self, long: &str) -> Option<&OsString> {
        self.all_options().filter(|o| o.def.long == long).last().and_then(|o| o.value.as_ref())
    }

    /// Lays the command line over environment and script lines, and says what there is to say about options.
    pub fn typed(&mut self, script: &[ScriptLine]) -> Result<Typed, i32> {
        // One pass over the environment, instead of one for every variable that an option may come from.
        let reads = |name: &OsString| name.to_str().is_some_and(|name| self.command.reads(name));
        let environment: BTreeMap<OsString, OsString> = env::vars_os().filter(|(name, _)| reads(name)).collect();
        // A step of another component goes by how that one describes itself.
        let group = self.value("het-group").and_then(|group| group.to_str()).filter(|group| *group != "0");
        let variable = |name: &str| match group {
            Some(group) if sources::OF_THE_JOB.contains(&name) => env::var_os(format!("{name}_HET_GROUP_{group}")),
            _ => environment.get(OsStr::new(name)).cloned(),
        };
        let typed = sources::lay_over(self.command, script, &variable, &self.parsed.options, Timestamp::now())
            .map_err(|error| tell_source(self.command, &self.console, &error))?;
        self.console.set_verbosity(match (typed.quiet, typed.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, times) => Verbosity::Verbose(times),
        });
        if let Some(help) = typed.help {
            return Err(self.help(help));
        }
        typed.notices.iter().for_each(|notice| self.console.info(notice));
        Ok(typed)
    }

    fn help(&self, help: Help) -> i32 {
        let written = match help {
            Help::Full => output::stdout(|out| help::full(self.command, out)),
            Help::Usage => output::stdout(|out| help::usage(self.command, out)),
            Help::Version => output::print_version(),
            Help::MpiList => output::print_line("MPI plugin types are...\n\tnone"),
        };
        output::finish(&self.console, written, 0)
    }
}

/// Says what is wrong with the options; returns the exit code.
fn tell_source(command: Command, console: &Console, error: &SourceError) -> i32 {
    match error {
        SourceError::Getopt { error, line } => {
            console.line(error);
            if let Some(line) = line {
                console.error(format_args!("in line {line} of the script"));
            }
            if let Some(suggestion) = error.suggestion() {
                console.line(suggestion);
            }
            output::stderr(format!("Try \"{} --help\" for more information\n", command.name()).as_bytes());
            exit_code(255)
        }
        SourceError::Stray { word, line } => {
            console.error(format_args!("Invalid argument in line {line} of the script: {word}"));
            exit_code(255)
        }
        SourceError::Option { error, place } => {
            let code = tell_option(command, console, error);
            if let Some(place) = place {
                console.error(place);
            }
            code
        }
    }
}

/// Says what is wrong with an option; returns the exit code.
pub fn tell_option(command: Command, console: &Console, error: &OptionError) -> i32 {
    match error {
        OptionError::Refused(refusal) => {
            console.error(format_args!("{}: {refusal}", failure(command)));
        }
        error => console.error(error),
    }
    exit_code(error.exit_code())
}

/// Says why the cluster did not do what was asked; returns the exit code.
pub fn tell_cluster(command: Command, console: &Console, error: &ClusterError) -> i32 {
    error.details().iter().for_each(|line| console.error(line));
    console.error(format_args!("{}: {error}", failure(command)));
    exit_code(EXIT_ERROR)
}

/// How each command begins to say that there will be no job.
const fn failure(command: Command) -> &'static str {
    match command {
        Command::Sbatch => "Batch job submission failed",
        Command::Salloc => "Job submit/allocate failed",
        Command::Srun => "Unable to allocate resources",
        Command::Swait => "Unable to wait",
    }
}

/// The exit code for an error of ours: as given, or what `SLURM_EXIT_ERROR` says.
pub fn exit_code(code: i32) -> i32 {
    variable_code("SLURM_EXIT_ERROR").unwrap_or(code)
}

/// The exit code of an allocation that `--immediate` did not get.
pub fn immediate_code() -> i32 {
    variable_code("SLURM_EXIT_IMMEDIATE").unwrap_or(EXIT_ERROR)
}

fn variable_code(name: &str) -> Option<i32> {
    env::var(name).ok()?.trim().parse().ok().filter(|code| (0..=255).contains(code))
}
