//! The launcher: a small process without keys that runs as the job's user, spawns tasks on its `stepd`'s orders and reaps them.
//! It decides how a [`SpawnTask`](garrick_model::messages::launcher::SpawnTask) becomes a process. `stepd` decides everything
//! else (which task, where, with what limits).
//!
//! It has one thread with one loop over the socket to `stepd` and the signals of its children. It opens task files and output
//! packs with the user's rights. It is a subreaper, so that processes that tasks leave behind are reaped. When a task's first
//! process ends, the rest of its process group is killed before the process is reaped, while its id cannot be reused. A task
//! leads a process group of its own in the launcher's session, which has no terminal; with a terminal of its own (`--pty`) it
//! also leads a session. (With a session for each task, the kernel would treat each task like a user's whole login, see
//! `sched(7)` on autogroups: then spawning stalls behind whatever else runs.)
//!
//! # When `stepd` ends
//!
//! If a `stepd` is killed, its launcher stays: it continues to reap, keeps the last ends, and waits on a socket of its own for
//! another `stepd` of the run, which asks for its tasks ([`ToLauncher::Adopt`](garrick_model::messages::launcher::ToLauncher))
//! and continues. If none comes within [`ADOPTION_LIMIT`], if the socket's file is gone (the run was cleaned up), or if it was
//! told to finish before, it kills everything below it and ends. A launcher without a socket does so at once. If a launcher is
//! killed itself, the run's tasks end too: the next launcher starts after everything in the tasks' cgroup, or everything with the
//! run's marks, is dead.
//!
//! # Rights
//!
//! `stepd` runs as root (or as the one user of an unprivileged cluster). It holds the node's key, the journal and the cgroups,
//! makes pipes and terminals, writes scripts, and decides what runs. The user is changed once per job: when its launcher is
//! started, before it serves, with all ids and supplementary groups; the launcher cannot change back. It gets two sockets and
//! nothing else of root's: no environment, no key, no folder. Tasks are its children with its own ids, so no check of ours
//! protects what a task gets: the kernel opens files, enters folders and executes programs by its rules for that user. The
//! launcher is not dumpable, so tasks of the same user cannot read its memory, take its descriptors or trace it; they can send it
//! signals, and so end their own job.
//!
//! `stepd` trusts a launcher as far as the user could act without it. What comes through the socket is decoded with limits;
//! unknown tokens are ignored. The launcher's reports of how a task ended, what it used, and that a program could not be started
//! are accepted: whoever controls it could as well have run another program. An adopted launcher also reports which tasks it has;
//! it can invent tasks of its own job only, because every step that it names is looked up in the journal. Root never uses
//! reported process ids directly: what is left of a process group is killed only if the process is found in the job's cgroup or
//! below the launcher.
//!
//! The launcher trusts its `stepd`: the process that holds the other end of its first socket, or one that connects to its own
//! socket. The file of that socket is in the daemons' folder with mode 0600, bound by `stepd` and passed on. The process that
//! connects must belong to the user that started the launcher (`SO_PEERCRED`); only one may, and only while the earlier
//! connection is closed. `stepd` in turn only accepts a peer of the job's user: the launcher itself makes the socket listen, so
//! the kernel reports the launcher's user.
//!
//! [`start_ahead`], [`start`] and [`adopt`] are called by `stepd`, [`main`] by `stepd launcher` and by the copy of a `stepd` that
//! the first of these makes.

mod connection;
mod ends;
mod environment;
mod lines;
mod orders;
mod packs;
mod process;
mod reaping;
mod service;
mod settings;
mod unasked;

pub use connection::{ADOPTION_LIMIT, Listener};
pub use process::{LauncherAhead, LauncherError, LauncherHandle, LauncherSpec, adopt, start, start_ahead};
pub use service::{ServiceError, Serving, serve};

use garrick_frame::{FdChannel, limits};
use garrick_kernel::{
    reap, sockets,
    spawn::{self, Identity},
};
use std::{
    ffi::{OsStr, OsString},
    io::Write,
    os::fd::RawFd,
    path::{Path, PathBuf},
};

/// What `stepd launcher` is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// `--fd N`: the socket to `stepd`.
    pub fd: RawFd,
    /// `--listen N PATH`: the socket for another, and its file.
    pub listen: Option<(RawFd, PathBuf)>,
    /// `--successor`: the run had a launcher before.
    pub successor: bool,
    /// `--as UID:GID:GROUP,...`: whose ids it takes before it does anything else.
    pub user: Option<Identity>,
}

impl Arguments {
    /// From the words after `launcher`; `None` if they make no sense.
    pub fn parse(words: &[&OsStr]) -> Option<Self> {
        let number = |word: &OsStr| word.to_str()?.parse::<RawFd>().ok();
        let mut arguments = Self::default();
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            match word.to_str()? {
                "--fd" => arguments.fd = number(words.next()?)?,
                "--listen" => arguments.listen = Some((number(words.next()?)?, Path::new(words.next()?).to_owned())),
                "--successor" => arguments.successor = true,
                "--as" => arguments.user = Some(parse_identity(words.next()?.to_str()?)?),
                _ => return None,
            }
        }
        (arguments.fd > 0).then_some(arguments)
    }

    /// The words that [`Self::parse`] reads. The listening socket's path among them is what a run without cgroups is known by.
    fn words(&self) -> Vec<OsString> {
        let mut words = vec!["--fd".into(), self.fd.to_string().into()];
        if let Some(user) = &self.user {
            words.extend(["--as".into(), identity_text(user).into()]);
        }
        if self.successor {
            words.push("--successor".into());
        }
        if let Some((fd, path)) = &self.listen {
            words.extend(["--listen".into(), fd.to_string().into(), path.as_os_str().to_owned()]);
        }
        words
    }
}

/// As [`parse_identity`] reads it.
pub fn identity_text(Identity { uid, gid, groups }: &Identity) -> String {
    let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
    format!("{uid}:{gid}:{}", groups.join(","))
}

/// `UID:GID:GROUP,...`.
pub fn parse_identity(text: &str) -> Option<Identity> {
    let mut parts = text.split(':');
    let mut number = || parts.next()?.parse().ok();
    let (uid, gid) = (number()?, number()?);
    let groups = parts.next()?.split(',').filter(|word| !word.is_empty());
    Some(Identity { uid, gid, groups: groups.map(|word| word.parse().ok()).collect::<Option<_>>()? })
}

/// The program `stepd launcher`.
pub fn main(arguments: &Arguments) -> ! {
    let outcome = prepare(arguments).and_then(|serving| serve(serving).map_err(|e| e.to_string()));
    let code = match outcome {
        Ok(()) => 0,
        Err(e) => {
            // Without a log there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "launcher: {e}");
            1
        }
    };
    std::process::exit(code)
}

fn prepare(arguments: &Arguments) -> Result<Serving, String> {
    // First of all: other processes of this user must not get at the sockets.
    let undumpable = || reap::become_undumpable().map_err(|e| format!("PR_SET_DUMPABLE: {e}"));
    undumpable()?;
    if let Some(user) = &arguments.user {
        spawn::become_user(user).map_err(|e| e.to_string())?;
        // Where fs.suid_dumpable is 1 a change of ids has made it so again.
        undumpable()?;
    }
    reap::become_subreaper().map_err(|e| format!("PR_SET_CHILD_SUBREAPER: {e}"))?;
    let inherited = |fd: RawFd| sockets::inherited(fd).map_err(|e| format!("descriptor {fd}: {e}"));
    let channel = FdChannel::new(inherited(arguments.fd)?, limits::LAUNCHER);
    let listener = match &arguments.listen {
        Some((fd, path)) => Some(Listener { socket: inherited(*fd)?, path: path.clone() }),
        None => None,
    };
    Ok(Serving { channel, listener, first: !arguments.successor })
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::ahead::entry as ahead_entry;
