//! `--help` and `--usage`, from the option table.

use super::table::{Arg, Command, OptionDef, options_of};
use std::io::{self, Write};

/// Column in which the texts begin.
const TEXT_COLUMN: usize = 34;
/// Width of `--usage`.
const WIDTH: usize = 80;

/// `--hint=help`: what there is.
pub const HINTS: &str = "Application hint options:
    --hint=             Bind tasks according to application hints
        compute_bound   use all cores in each socket, one thread per core
        memory_bound    use only one core in each socket, one thread per core
        [no]multithread [don't] use extra threads with in-core multi-threading
        help            show this help message
";

/// `--cpu-bind=help`: what there is here.
pub const CPU_BINDINGS: &str = "CPU bind options:
    --cpu-bind=         Bind tasks to CPUs
        q[uiet]         say nothing about it
        v[erbose]       say what is bound to what
        no[ne]          don't bind tasks to CPUs
        rank            bind by task rank
        map_cpu:<list>  bind by giving a CPU for each task, as <cpu0>,<cpu1>,...
        sockets         bind each task to the sockets of its CPUs
        cores           bind each task to the cores of its CPUs
        threads         bind each task to CPUs of its own
        help            show this help message
";

/// `--gres=help`, with these names in `GresTypes`.
pub fn gres(types: &[String], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Valid gres options are:")?;
    types.iter().try_for_each(|name| writeln!(out, "{name}[[:type]:count]"))
}

/// The text of `--help`.
pub fn full(command: Command) -> String {
    let mut options = options_of(command);
    options.sort_by_key(|o| o.long);
    let (name, operands, purpose) = (command.name(), command.operands(), command.purpose());
    format!("Usage: {name} [OPTIONS...] {operands}\n{purpose}\n\nOptions:\n{}", list(&options))
}

/// A line for each option, and then the names of those that are errors here.
pub fn list(options: &[&OptionDef]) -> String {
    let usable = options.iter().filter(|o| !o.is_refused());
    let mut text: String = usable.map(|option| row(&names(option), option.help)).collect();
    let missing: Vec<String> = options.iter().filter(|o| o.is_refused()).map(|o| format!("--{}", o.long)).collect();
    if !missing.is_empty() {
        text.push_str("\nOptions of Slurm that are not supported yet (errors here):\n");
        text.push_str(&wrapped("  ", &missing));
    }
    text
}

/// A name with its text in the second column, or below it where the name is long.
pub fn row(names: &str, text: &str) -> String {
    if names.len() + 1 < TEXT_COLUMN {
        format!("{names:<TEXT_COLUMN$}{text}\n")
    } else {
        format!("{names}\n{:TEXT_COLUMN$}{text}\n", "")
    }
}

/// The text of `--usage`.
pub fn usage(command: Command) -> String {
    let mut options = options_of(command);
    options.sort_by_key(|o| o.long);
    let mut words: Vec<String> = options
        .iter()
        .filter(|o| !o.is_refused())
        .map(|option| match (option.short, option.arg) {
            (Some(short), Arg::None) => format!("[-{short}]"),
            (Some(short), Arg::Required(word)) => format!("[-{short} {word}]"),
            (Some(short), Arg::Optional(word)) => format!("[-{short}[{word}]]"),
            (None, Arg::None) => format!("[--{}]", option.long),
            (None, Arg::Required(word)) => format!("[--{}={word}]", option.long),
            (None, Arg::Optional(word)) => format!("[--{}[={word}]]", option.long),
        })
        .collect();
    words.push(command.operands().to_owned());
    let indent = " ".repeat("Usage:  ".len() + command.name().len());
    format!("Usage: {} {}", command.name(), wrapped(&indent, &words).trim_start())
}

fn names(option: &OptionDef) -> String {
    let short = option.short.map_or_else(|| "    ".to_owned(), |short| format!("-{short}, "));
    format!("  {short}{}", option.with_argument())
}

fn wrapped(indent: &str, words: &[String]) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for word in words {
        if !line.is_empty() && indent.len() + line.len() + 1 + word.len() > WIDTH {
            text.push_str(&format!("{indent}{line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    text + &format!("{indent}{line}\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{sources, typed::Help};

    #[test]
    fn some_options_list_what_they_take() {
        let asked = |text: &str| {
            let words: Vec<std::ffi::OsString> = text.split(' ').map(Into::into).collect();
            let parsed = sources::command_line(Command::Srun, &words).unwrap();
            let now = garrick_model::time::Timestamp::from_secs(0);
            sources::lay_over(Command::Srun, &[], &|_| None, &parsed.options, now).unwrap().help
        };
        for (text, help) in
            [("--hint=help", Help::Hint), ("--cpu-bind=help", Help::CpuBind), ("--gres=help", Help::Gres)]
        {
            assert_eq!(asked(text), Some(help), "{text}");
        }
        assert_eq!(asked("--hint=multithread --cpu-bind=cores --gres=gpu:1"), None);
        let mut out = Vec::new();
        gres(&["gpu".to_owned(), "shard".to_owned()], &mut out).unwrap();
        assert_eq!(out, b"Valid gres options are:\ngpu[[:type]:count]\nshard[[:type]:count]\n");
    }

    #[test]
    fn help_has_every_option_once() {
        for command in [Command::Sbatch, Command::Salloc, Command::Srun, Command::Swait] {
            let text = full(command);
            for option in options_of(command) {
                let name = format!("--{}", option.long);
                let count = text.split([' ', '=', '[', '\n']).filter(|w| *w == name).count();
                assert_eq!(count, 1, "{}: {name}", command.name());
            }
        }
    }

    #[test]
    fn help_lines_up() {
        let text = full(Command::Sbatch);
        assert!(text.starts_with("Usage: sbatch [OPTIONS...] script [args...]\n"));
        assert!(text.contains("\n  -n, --ntasks=number             number of tasks to run\n"), "{text}");
        assert!(text.contains("\n      --wrap=command              wrap command"), "{text}");
    }

    #[test]
    fn usage_is_short_lines_with_the_operands_last() {
        let text = usage(Command::Srun);
        assert!(text.starts_with("Usage: srun [--accel-bind=letters] [-A name] "), "{text}");
        assert!(text.ends_with("executable [args...]\n"), "{text}");
        assert!(text.lines().all(|l| l.len() <= WIDTH), "{text}");
    }
}
