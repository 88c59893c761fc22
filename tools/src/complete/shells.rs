//! The scripts that ask `garrick complete` from within a shell.

use crate::{
    manual::commands::{COMMANDS, Command},
    output::{self, Console},
    site::SiteError,
};
use std::ffi::OsString;

/// A shell.
#[derive(Debug)]
pub struct Shell {
    name: &'static str,
    script: &'static str,
    /// Where the shell looks for the completion of a command, below `share`, with `@` for the command.
    place: &'static str,
}

/// Every shell that there is a script for.
pub static SHELLS: [Shell; 3] = [
    Shell { name: "bash", script: include_str!("completion.bash"), place: "bash-completion/completions/@" },
    Shell { name: "zsh", script: include_str!("completion.zsh"), place: "zsh/site-functions/_@" },
    Shell { name: "fish", script: include_str!("completion.fish"), place: "fish/vendor_completions.d/@.fish" },
];

impl Shell {
    /// The script for these commands.
    fn script_for(&self, names: &str) -> String {
        self.script.replace("@NAMES@", names)
    }
}

/// Runs `garrick completion SHELL`: prints the script for all commands.
pub fn main(args: &[OsString], console: &Console) -> Result<i32, SiteError> {
    let [name] = args else { return Err(SiteError::Usage("completion takes one shell: bash, zsh or fish".to_owned())) };
    let Some(shell) = SHELLS.iter().find(|shell| *name == *shell.name) else {
        let text = format!("there is no completion for {}: bash, zsh or fish", name.to_string_lossy());
        return Err(SiteError::Usage(text));
    };
    let names: Vec<&str> = COMMANDS.iter().map(Command::name).collect();
    let script = shell.script_for(&names.join(" "));
    Ok(output::finish(console, output::stdout_as_is(|out| out.write_all(script.as_bytes())), 0))
}

/// The files for an installation: paths below `share`, and what is in them.
pub fn files() -> Vec<(String, String)> {
    let of_shell = |shell: &'static Shell| {
        COMMANDS.iter().map(|command| (shell.place.replace('@', command.name()), shell.script_for(command.name())))
    };
    SHELLS.iter().flat_map(of_shell).collect()
}
