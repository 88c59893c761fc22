//! Reads the arguments of the query and control commands; prints what `--help`, `--usage` and `--version` ask for, and errors.

use crate::output::{self, Console, Verbosity};
pub use garrick_options::arguments::{
    Arguments, NO_FEDERATION, Table, Word, attach_ids, help, inert, option, parse, unsupported, unsupported_word,
    usage, word,
};
use std::ffi::OsString;

/// What the arguments come to.
#[derive(Debug)]
pub enum Outcome {
    /// Go on with these.
    Go(Arguments),
    /// Everything is said; exit with this code.
    Done(i32),
}

/// Takes a command's arguments apart; help, version and errors are dealt with.
pub fn read(table: &'static Table, args: &[OsString], console: &Console) -> Outcome {
    match parse(table, args) {
        Err(error) => {
            console.line(&error);
            if let Some(hint) = error.suggestion() {
                console.hint(hint);
            }
            output::stderr(format!("Try \"{} --help\" for more information\n", table.program).as_bytes());
            Outcome::Done(table.misuse)
        }
        Ok(arguments) if arguments.has("help") => {
            Outcome::Done(output::finish(console, output::print_help(&help(table)), 0))
        }
        Ok(arguments) if arguments.has("usage") => {
            Outcome::Done(output::finish(console, output::print_line(usage(table)), 0))
        }
        Ok(arguments) if arguments.has("version") => Outcome::Done(output::finish(console, output::print_version(), 0)),
        Ok(arguments) => match arguments.refused() {
            Some(error) => {
                console.error(&error);
                Outcome::Done(error.exit_code())
            }
            None => Outcome::Go(arguments),
        },
    }
}

/// What `--quiet` and `--verbose` ask for.
pub fn verbosity(arguments: &Arguments) -> Verbosity {
    match u8::try_from(arguments.count("verbose")) {
        _ if arguments.has("quiet") => Verbosity::Quiet,
        Ok(times @ 1..) => Verbosity::Verbose(times),
        _ => Verbosity::Normal,
    }
}
