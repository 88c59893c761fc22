//! The table of options: one entry per option with its names, argument, commands, environment variables, help and effect. The
//! entries are in the modules named in [`all`], by subject.

use super::{
    behaviour, gres, layout, minibatch, near, placement, sending, size, streams, timing,
    typed::{Given, OptionError, Typed},
    unsupported, waiting,
};
use garrick_model::env_vars;

/// A command whose options are in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `sbatch`
    Sbatch,
    /// `salloc`
    Salloc,
    /// `srun`
    Srun,
    /// `swait`
    Swait,
}

impl Command {
    /// As typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sbatch => "sbatch",
            Self::Salloc => "salloc",
            Self::Srun => "srun",
            Self::Swait => "swait",
        }
    }

    /// What follows the options on the command line.
    pub const fn operands(self) -> &'static str {
        match self {
            Self::Sbatch => "script [args...]",
            Self::Salloc => "[command [args...]]",
            Self::Srun => "executable [args...]",
            Self::Swait => "[jobid...]",
        }
    }

    /// What it is for, one line.
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Sbatch => "Submit a batch script as a job.",
            Self::Salloc => "Get nodes for a job, run a command while the job has them, and give them back.",
            Self::Srun => "Run a program as a step: in the job that it is called in, else in a new job.",
            Self::Swait => "Wait until no step of a job waits or runs.",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Sbatch => BATCH.0,
            Self::Salloc => ALLOC.0,
            Self::Srun => RUN.0,
            Self::Swait => WAIT.0,
        }
    }

    /// True when an environment variable of this name is input for the command: `SBATCH_*` for `sbatch`, `SALLOC_*` for
    /// `salloc`, `SLURM_*` and `SRUN_*` for `srun`; and what says more about `--distribution` for all of them.
    pub fn reads(self, variable: &str) -> bool {
        match self {
            Self::Sbatch | Self::Salloc
                if [env_vars::SLURM_HOSTFILE, env_vars::SLURM_DIST_PLANESIZE].contains(&variable) =>
            {
                true
            }
            Self::Sbatch => variable.starts_with("SBATCH_"),
            Self::Salloc => variable.starts_with("SALLOC_"),
            Self::Srun => variable.starts_with("SLURM_") || variable.starts_with("SRUN_"),
            Self::Swait => false,
        }
    }
}

/// A set of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commands(u8);

/// `sbatch`
pub const BATCH: Commands = Commands(1);
/// `salloc`
pub const ALLOC: Commands = Commands(2);
/// `srun`
pub const RUN: Commands = Commands(4);
/// `swait`
pub const WAIT: Commands = Commands(8);
/// Those that make jobs.
pub const JOB: Commands = Commands(1 | 2 | 4);
/// `sbatch` and `srun`
pub const BATCH_RUN: Commands = Commands(1 | 4);
/// `sbatch` and `salloc`
pub const BATCH_ALLOC: Commands = Commands(1 | 2);
/// `salloc` and `srun`
pub const ALLOC_RUN: Commands = Commands(2 | 4);
/// Every one.
pub const EVERY: Commands = Commands(1 | 2 | 4 | 8);

/// An option's argument, with the word that stands for it in help texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// There is none.
    None,
    /// It must be there.
    Required(&'static str),
    /// It may be there, attached.
    Optional(&'static str),
}

/// What an option does.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// Changes what was typed.
    Set(fn(&mut Typed, &Given<'_>) -> Result<(), OptionError>),
    /// Slurm has it, Garrick not yet, and going on without it would change what the user gets.
    NotSupported,
    /// Does nothing yet, and that is said once.
    Ignored(&'static str),
    /// Accepted without effect, and nothing is said: it tunes what Garrick does not have, or always does. Why, for the
    /// documentation.
    Inert(&'static str),
    /// The command looks for it by its name.
    ByName,
}

/// An option.
#[derive(Debug)]
pub struct OptionDef {
    /// Long name, without dashes.
    pub long: &'static str,
    /// Short name.
    pub short: Option<char>,
    /// Argument.
    pub arg: Arg,
    /// Commands that have it.
    pub on: Commands,
    /// Environment variables that set it, for the commands that their prefixes name; a later one wins.
    pub env: &'static [&'static str],
    /// One line of help.
    pub help: &'static str,
    /// Effect.
    pub effect: Effect,
    /// Whether its argument has the right form, where the effect does not look at it.
    pub check: Option<Check>,
}

/// Looks at an option's argument.
pub type Check = fn(&Given<'_>) -> Result<(), OptionError>;

/// Two options are the same when they have the same name on the same commands.
impl PartialEq for OptionDef {
    fn eq(&self, other: &Self) -> bool {
        self.long == other.long && self.on == other.on
    }
}

impl Eq for OptionDef {}

impl OptionDef {
    /// An option that sets something.
    pub const fn new(
        long: &'static str,
        short: Option<char>,
        arg: Arg,
        on: Commands,
        help: &'static str,
        set: fn(&mut Typed, &Given<'_>) -> Result<(), OptionError>,
    ) -> Self {
        Self { long, short, arg, on, env: &[], help, effect: Effect::Set(set), check: None }
    }

    /// An option that is accepted without effect, and why.
    pub const fn inert(
        long: &'static str,
        short: Option<char>,
        arg: Arg,
        on: Commands,
        help: &'static str,
        why: &'static str,
    ) -> Self {
        Self::other(long, short, arg, on, help, Effect::Inert(why))
    }

    /// An option with another effect.
    pub const fn other(
        long: &'static str,
        short: Option<char>,
        arg: Arg,
        on: Commands,
        help: &'static str,
        effect: Effect,
    ) -> Self {
        Self { long, short, arg, on, env: &[], help, effect, check: None }
    }

    /// With a look at the argument's form.
    pub const fn checked(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }

    /// With environment variables.
    pub const fn env(mut self, variables: &'static [&'static str]) -> Self {
        self.env = variables;
        self
    }

    /// `--long`, `--long=word` or `--long[=word]`.
    pub fn with_argument(&self) -> String {
        match self.arg {
            Arg::None => format!("--{}", self.long),
            Arg::Required(word) => format!("--{}={word}", self.long),
            Arg::Optional(word) => format!("--{}[={word}]", self.long),
        }
    }

    /// Slurm has it, Garrick not yet.
    pub const fn is_refused(&self) -> bool {
        matches!(self.effect, Effect::NotSupported)
    }

    /// What becomes of it, for documentation: it works, has no effect, or is refused.
    pub fn state(&self) -> String {
        match self.effect {
            Effect::Set(_) | Effect::ByName => "works".to_owned(),
            Effect::Inert(why) => format!("no effect: {why}"),
            Effect::Ignored(notice) => format!("no effect, with the warning \"{notice}\""),
            Effect::NotSupported => "refused: not supported yet".to_owned(),
        }
    }

    /// True when the command has it.
    pub const fn is_on(&self, command: Command) -> bool {
        self.on.0 & command.bit() != 0
    }

    /// Environment variables that set it for this command.
    pub fn variables(&self, command: Command) -> impl Iterator<Item = &'static str> {
        self.env.iter().copied().filter(move |v| command.reads(v))
    }
}

/// Every option of every command.
pub fn all() -> impl Iterator<Item = &'static OptionDef> {
    let subjects = [
        size::OPTIONS,
        placement::OPTIONS,
        near::OPTIONS,
        layout::OPTIONS,
        gres::OPTIONS,
        timing::OPTIONS,
        streams::OPTIONS,
        behaviour::OPTIONS,
        sending::OPTIONS,
        minibatch::OPTIONS,
        waiting::OPTIONS,
        unsupported::OPTIONS,
    ];
    subjects.into_iter().flatten()
}

/// The options of one command.
pub fn options_of(command: Command) -> Vec<&'static OptionDef> {
    all().filter(|d| d.is_on(command)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_has_a_name_or_letter_twice() {
        for command in [Command::Sbatch, Command::Salloc, Command::Srun, Command::Swait] {
            let options = options_of(command);
            for (i, a) in options.iter().enumerate() {
                for b in &options[i + 1..] {
                    assert_ne!(a.long, b.long, "{}", command.name());
                    assert!(a.short.is_none() || a.short != b.short, "{}: -{:?}", command.name(), a.short);
                }
            }
        }
    }

    #[test]
    fn every_variable_belongs_to_a_command_that_has_the_option() {
        for option in all() {
            for variable in option.env {
                let read = [Command::Sbatch, Command::Salloc, Command::Srun]
                    .into_iter()
                    .any(|c| option.is_on(c) && option.variables(c).any(|v| v == *variable));
                assert!(read, "{variable} of --{}", option.long);
            }
        }
    }

    #[test]
    fn every_option_has_help() {
        assert!(all().all(|o| !o.help.is_empty()));
    }
}
