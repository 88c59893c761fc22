//! `cli_filter/user_defaults`: each user's own defaults in `~/.slurm/defaults`, a line `OPTION=VALUE` each, with
//! `COMMAND:CLUSTER:` in front for some commands or clusters only (cli_filter_plugins.html).

use super::Shared;
use crate::{options::table::Command, output::Console};
use garrick_asking::accounts::User;
use std::{fs, io, path::Path};

/// Below the user's home.
const FILE: &str = ".slurm/defaults";

/// Sets what the file says. A user without one has no defaults; what is wrong with it is said.
pub fn apply(looked: &Shared, command: Command, cluster: &str, console: &Console) {
    let Some(user) = User::by_uid(nix::unistd::getuid().as_raw()) else { return };
    let path = Path::new(&user.home).join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => set(looked, &text, (command, cluster), &mut |number, error| {
            console.error(format_args!("{}:{number}: {error}", path.display()));
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => console.error(format_args!("{}: {error}", path.display())),
    }
}

/// `wrong` gets the number of a line and what is wrong with it.
fn set(looked: &Shared, text: &str, (command, cluster): (Command, &str), wrong: &mut dyn FnMut(usize, String)) {
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match of_line(line, command, cluster) {
            Some(Some((option, value))) => {
                // A wrong value ends the command, as on its command line; here is said where it stands.
                if let Err(error) = looked.borrow_mut().set(option, value) {
                    wrong(at + 1, error);
                }
            }
            Some(None) => {}
            None => wrong(at + 1, format!("\"{line}\" is no OPTION=VALUE or COMMAND:CLUSTER:OPTION=VALUE")),
        }
    }
}

/// Option and value; within, `None`: the line is for other commands or clusters. `None`: it has another form.
fn of_line<'l>(line: &'l str, command: Command, cluster: &str) -> Option<Option<(&'l str, &'l str)>> {
    let (left, value) = line.split_once('=').unwrap_or((line, ""));
    let parts: Vec<&str> = left.split(':').map(str::trim).collect();
    let (is_meant, option) = match parts.as_slice() {
        [option] => (true, *option),
        [of_command, of_cluster, option] => {
            let is = |word: &str, own: &str| word == "*" || word == own;
            (is(of_command, command.name()) && is(of_cluster, cluster), *option)
        }
        _ => return None,
    };
    Some(is_meant.then_some((option, value.trim())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        options::{filtered::Filtered, sources::GivenOptions, typed::Typed},
        submit::filter::Looked,
    };
    use garrick_model::time::Timestamp;
    use std::{cell::RefCell, rc::Rc};

    #[test]
    fn lines_are_for_all_or_for_a_command_and_a_cluster() {
        let text = "# mine\njob-name=default_name\n error = slurm-%j.err\nsalloc:*:partition = interactive\n\
                    sbatch:site:mem=256\nsbatch:other:mem=1\n*:*:nodes=2\na:b=1\nntasks=x\nnosuch=1\nhold\n";
        let options = Filtered::new(Command::Sbatch, GivenOptions::new(), Typed::default(), Timestamp::from_secs(0));
        let looked = Rc::new(RefCell::new(Looked { options, argv: Vec::new(), wrong: None }));
        let mut wrong = Vec::new();
        set(&looked, text, (Command::Sbatch, "site"), &mut |line, error| wrong.push((line, error)));
        let set: Vec<_> = looked.borrow().options.all().map(|(name, value)| format!("{name}={value}")).collect();
        let folder = std::env::current_dir().unwrap();
        let error = format!("error={}", folder.join("slurm-%j.err").display());
        assert_eq!(set, [error.as_str(), "hold=set", "job-name=default_name", "mem=256", "nodes=2"]);
        assert_eq!(
            wrong,
            [
                (8, "\"a:b=1\" is no OPTION=VALUE or COMMAND:CLUSTER:OPTION=VALUE".to_owned()),
                (9, "Invalid numeric value \"x\" for --ntasks.".to_owned())
            ]
        );
        assert!(looked.borrow().wrong.is_some());
    }
}
