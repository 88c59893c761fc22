//! The login environment of a job's user (sbatch(1), `--get-user-env`): what `su - USER -c env` shows.

use crate::scripts::{Group, PATH};
use garrick_kernel::users::{self, Account, UserError};
use garrick_model::spec::EnvEntry;
use serde_bytes::ByteBuf;
use std::{collections::BTreeSet, io, process::Stdio, time::Duration};
use tokio::{io::AsyncReadExt as _, process::Command};

/// Lines around the variables: logins say things of their own.
const MARKS: [&str; 2] = ["garrick: here the environment begins", "garrick: here it ends"];

/// Most bytes that a login may show.
const MOST: usize = 1 << 20;

/// What the shell that shows them has for itself.
const OF_SHELL: [&[u8]; 4] = [b"_", b"SHLVL", b"PWD", b"OLDPWD"];

/// A login environment that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum UserEnvError {
    /// There is no such user.
    #[error("the login environment: {0}")]
    User(#[from] UserError),
    /// The login could not be started, or not be read.
    #[error("the login environment of {user}: {cause}")]
    Login {
        /// Whose.
        user: String,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// It ended, or said too much, before it had shown the variables.
    #[error("the login environment of {0}: the login showed none")]
    None(String),
    /// It took too long.
    #[error("the login environment of {user}: the login did not show it within {} s", limit.as_secs())]
    TimedOut {
        /// Whose.
        user: String,
        /// The limit.
        limit: Duration,
    },
}

/// That of the user with this id.
pub async fn of_login(uid: u32, limit: Duration) -> Result<Vec<EnvEntry>, UserEnvError> {
    let account = users::by_uid(uid)?;
    shown(login(&account), &account.name, limit).await
}

/// Variables of a login under those that a job brings, which go before them.
pub fn lay_under(own: &mut Vec<EnvEntry>, login: Vec<EnvEntry>) {
    let known: BTreeSet<Vec<u8>> = own.iter().map(|entry| name_of(entry).to_vec()).collect();
    own.extend(login.into_iter().filter(|entry| !known.contains(name_of(entry))));
}

fn name_of(entry: &[u8]) -> &[u8] {
    entry.split(|byte| *byte == b'=').next().unwrap_or_default()
}

/// A login of that user; without root's rights only of this daemon's own, by his shell.
fn login(account: &Account) -> Command {
    let [begin, end] = MARKS;
    let line = format!("echo; echo '{begin}'; env -0; echo; echo '{end}'");
    if users::effective_uid() == 0 {
        // In a process namespace of its own, all of which ends with it: a login may start what outlives it.
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child=KILL", "su", "-", &account.name, "-c", &line]).env_clear();
        command
    } else {
        let mut command = Command::new(&account.shell);
        command.args(["-l", "-c", &line]).env_clear();
        command.env("HOME", &account.home).env("SHELL", &account.shell);
        command.env("USER", &account.name).env("LOGNAME", &account.name);
        command
    }
}

async fn shown(mut login: Command, user: &str, limit: Duration) -> Result<Vec<EnvEntry>, UserEnvError> {
    let failed = |cause| UserEnvError::Login { user: user.to_owned(), cause };
    login.env("PATH", PATH).current_dir("/").process_group(0).kill_on_drop(true);
    let mut child = login.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(failed)?;
    // What it started goes with it.
    let _group = Group::of(&child);
    let Some(mut output) = child.stdout.take() else { return Err(UserEnvError::None(user.to_owned())) };
    let read = async {
        let mut text = Vec::new();
        loop {
            if let Some(entries) = between_marks(&text) {
                return Ok(Some(entries));
            }
            if text.len() > MOST || output.read_buf(&mut text).await? == 0 {
                return Ok(None);
            }
        }
    };
    match tokio::time::timeout(limit, read).await {
        Ok(found) => found.map_err(failed)?.ok_or_else(|| UserEnvError::None(user.to_owned())),
        Err(_) => Err(UserEnvError::TimedOut { user: user.to_owned(), limit }),
    }
}

/// The variables, once all of them are there.
fn between_marks(text: &[u8]) -> Option<Vec<EnvEntry>> {
    let find = |text: &[u8], mark: &str| {
        let line = format!("\n{mark}\n").into_bytes();
        text.windows(line.len()).position(|window| window == line).map(|at| (at, at + line.len()))
    };
    let [begin, end] = MARKS;
    let (_, from) = find(text, begin)?;
    let (to, _) = find(&text[from..], end)?;
    let entries = text[from..from + to].split(|byte| *byte == 0);
    let wanted = entries.filter(|entry| entry.contains(&b'=') && !OF_SHELL.contains(&name_of(entry)));
    Some(wanted.map(|entry| ByteBuf::from(entry.to_vec())).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entries(texts: &[&str]) -> Vec<EnvEntry> {
        texts.iter().map(|text| ByteBuf::from(text.as_bytes().to_vec())).collect()
    }

    fn script(text: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &text.replace("BEGIN", MARKS[0]).replace("END", MARKS[1])]);
        command
    }

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn a_login_may_say_other_things_too_and_leave_something_behind() {
        let text = "echo Welcome; echo; echo BEGIN; printf 'A=1\\0B=two\\nlines\\0_=x\\0SHLVL=1\\0PWD=/\\0'; echo; echo END; \
                    sleep 1000";
        let found = shown(script(text), "alice", LONG).await.unwrap();
        assert_eq!(found, entries(&["A=1", "B=two\nlines"]));
    }

    #[tokio::test]
    async fn a_login_that_shows_nothing_or_hangs_is_an_error() {
        for text in ["echo This account is currently not available.; exit 1", "echo; echo BEGIN; echo A=1", "yes"] {
            let error = shown(script(text), "alice", LONG).await.unwrap_err();
            assert!(matches!(error, UserEnvError::None(_)), "{error}");
        }
        let error = shown(script("exec sleep 1000"), "alice", Duration::from_millis(1)).await.unwrap_err();
        assert!(error.to_string().contains("alice: the login did not show it within"), "{error}");
    }

    #[test]
    fn what_a_job_brings_goes_before_its_users_login() {
        let mut own = entries(&["A=own", "C=3"]);
        lay_under(&mut own, entries(&["A=login", "B=2"]));
        assert_eq!(own, entries(&["A=own", "C=3", "B=2"]));
    }
}
