//! Every command with all that its help says, from the tables that it reads its arguments by.

use crate::{
    control::{sacctmgr, scancel, scontrol, stail, strigger},
    graph, journal,
    options::{
        arguments::{Table, Word},
        table::{self, OptionDef, options_of},
    },
    query::{cat, profile, records, sacct, sdiag, sinfo, sprio, squeue, sreport, sshare, sstat},
    site::{certs, check, down, init, install, status, token, up, why, words},
    submit::{attach, file_settings, scrontab, sgather},
};
use garrick_model::env_vars::inputs;

/// Where a command's options are.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// In the table of those that make jobs and steps.
    Submit(table::Command),
    /// In one of its own.
    Own(&'static Table),
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its options.
    pub source: Source,
    /// Variables that stand for options, where the options do not name them.
    variables: &'static [inputs::Input],
}

const fn submit(command: table::Command) -> Command {
    Command { source: Source::Submit(command), variables: &[] }
}

/// A command with a table of its own.
pub const fn own(table: &'static Table) -> Command {
    Command { source: Source::Own(table), variables: &[] }
}

const fn with(table: &'static Table, variables: &'static [inputs::Input]) -> Command {
    Command { source: Source::Own(table), variables }
}

/// Every command that is installed.
pub static COMMANDS: [Command; 23] = [
    submit(table::Command::Sbatch),
    submit(table::Command::Salloc),
    submit(table::Command::Srun),
    submit(table::Command::Swait),
    own(&attach::TABLE),
    own(&file_settings::TABLE),
    own(&sgather::TABLE),
    own(&scrontab::TABLE),
    with(&squeue::options::TABLE, inputs::SQUEUE),
    with(&sinfo::options::TABLE, inputs::SINFO),
    own(&sprio::options::TABLE),
    own(&sshare::options::TABLE),
    own(&sstat::options::TABLE),
    with(&sacct::options::TABLE, inputs::SACCT),
    own(&sacct::used::SEFF),
    with(&sreport::TABLE, inputs::SREPORT),
    own(&sdiag::TABLE),
    own(&sacctmgr::TABLE),
    with(&scancel::TABLE, inputs::SCANCEL),
    with(&scontrol::TABLE, inputs::SCONTROL),
    own(&strigger::TABLE),
    own(&stail::TABLE),
    own(&words::TABLE),
];

/// Commands of `garrick` that have options.
pub static SUBCOMMANDS: [&Table; 15] = [
    &up::TABLE,
    &down::TABLE,
    &status::TABLE,
    &why::TABLE,
    &records::TABLE,
    &sacct::used::TABLE,
    &profile::TABLE,
    &graph::command::TABLE,
    &cat::TABLE,
    &init::TABLE,
    &check::TABLE,
    &install::TABLE,
    &token::TABLE,
    &certs::TABLE,
    &journal::TABLE,
];

/// The command of that name.
pub fn named(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name() == name)
}

impl Command {
    /// As typed.
    pub const fn name(&self) -> &'static str {
        match self.source {
            Source::Submit(command) => command.name(),
            Source::Own(table) => table.program,
        }
    }

    /// What it is for, one line.
    pub const fn purpose(&self) -> &'static str {
        match self.source {
            Source::Submit(command) => command.purpose(),
            Source::Own(table) => table.purpose,
        }
    }

    /// What follows the options on the command line.
    pub const fn operands(&self) -> &'static str {
        match self.source {
            Source::Submit(command) => command.operands(),
            Source::Own(table) => table.operands,
        }
    }

    /// Its commands, where the first operand is one.
    pub const fn words(&self) -> &'static [Word] {
        match self.source {
            Source::Submit(_) => &[],
            Source::Own(table) => table.words,
        }
    }

    /// Its options, by name.
    pub fn options(&self) -> Vec<&'static OptionDef> {
        let mut options: Vec<&'static OptionDef> = match self.source {
            Source::Submit(command) => options_of(command),
            Source::Own(table) => table.all_options().collect(),
        };
        options.sort_by_key(|option| option.long);
        options
    }

    /// Variables that set an option where the command line does not: the variable and the option's long name.
    pub fn variables(&self) -> Vec<(&'static str, &'static str)> {
        match self.source {
            Source::Submit(command) => {
                let of = |option: &'static OptionDef| option.variables(command).map(|name| (name, option.long));
                options_of(command).into_iter().flat_map(of).collect()
            }
            Source::Own(_) => self.variables.iter().map(|input| (input.variable, input.option)).collect(),
        }
    }
}
