//! `scrontab -e`: the user's editor on a copy of the crontab, again and again until what comes of it can be installed or the user
//! gives up.

use super::{Crontabs, NotInstalled, fatal, text};
use crate::output;
use std::{
    env, fs,
    io::{self, BufRead as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

/// What a user without a crontab begins with.
const EXAMPLE: &str = "\
# A crontab of scrontab: its entries are batch jobs that recur.
#
# An entry has five fields, which say when it is due, and a command:
#
#   minute  hour  day of the month  month  day of the week  command
#
# Without the first character, this one is due at 5 o'clock each day:
# 0 5 * * * /home/me/nightly
#
# A line that begins with #SCRON has options of sbatch for the entry that
# follows: \"#SCRON --time=1\" gives it a minute. The clock and the time zone
# are those of the controller.
";

/// The editor where the user names none.
const EDITOR: &str = "vi";

/// A file of the user's own, removed in the end.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Copy {
    fn of(text: &[u8]) -> Result<Self, (PathBuf, io::Error)> {
        let folder = env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map_or_else(env::temp_dir, PathBuf::from);
        let path = folder.join(format!("scrontab-{:016x}", garrick_asking::patience::random()));
        // Only a file that nobody else has laid there.
        let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = made.and_then(|mut file| {
            let copy = Self(path.clone());
            file.write_all(text).map(|()| copy)
        });
        written.map_err(|error| (path, error))
    }
}

/// Edits the crontab. Returns the exit code.
pub fn edit(of: &Crontabs<'_>) -> Result<i32, i32> {
    let console = of.console;
    let before = of.text()?.map_or_else(|| EXAMPLE.as_bytes().to_vec(), |text| text.into_vec());
    let copy = Copy::of(&before).map_err(|(path, error)| {
        let path = path.display();
        fatal(console, format_args!("error creating temp crontab file '{path}': {error}"))
    })?;
    loop {
        open_editor(&copy.0).ok_or_else(|| fatal(console, "editor returned non-zero exit code"))?;
        let after = fs::read(&copy.0).map_err(|error| {
            let path = copy.0.display();
            fatal(console, format_args!("error reopening temp crontab file '{path}': {error}"))
        })?;
        if after == before {
            console.line("No modification made");
            return Ok(0);
        }
        let Err(wrong) = of.install(&after) else { return Ok(0) };
        let code = wrong.tell(console);
        let Some(lines) = wrong.lines() else { return Err(code) };
        if !wants_another_try(&wrong) {
            return Ok(0);
        }
        fs::write(&copy.0, text::with_bad_lines(&after, lines)).map_err(|error| {
            let path = copy.0.display();
            fatal(console, format_args!("error reopening temp crontab file '{path}': {error}"))
        })?;
    }
}

/// Runs the editor, whose name may have arguments behind it. `None`: it failed.
fn open_editor(file: &Path) -> Option<()> {
    let named = |name: &str| env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| EDITOR.to_owned());
    let done = Command::new("/bin/sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file).status().ok()?;
    done.success().then_some(())
}

/// Asks the user. No answer is no.
fn wants_another_try(wrong: &NotInstalled) -> bool {
    let which = match wrong {
        NotInstalled::Broken(_) => "line(s) is",
        _ => "lines are",
    };
    let mut answer = String::new();
    loop {
        let asked = output::stdout(|out| {
            write!(out, "The failed {which} commented out with #BAD:\nDo you want to retry the edit? (y/n) ")
        });
        answer.clear();
        if asked.is_err() || io::stdin().lock().read_line(&mut answer).is_ok_and(|read| read == 0) {
            return false;
        }
        match answer.trim() {
            "y" | "Y" => return true,
            "n" | "N" => return false,
            _ => {}
        }
    }
}
