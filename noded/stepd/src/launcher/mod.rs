//! The launcher: a small process without keys that runs as the job's user, spawns tasks on its `stepd`'s orders and reaps
//! them. What it decides: how a [`SpawnTask`](garrick_model::messages::launcher::SpawnTask) becomes a process. Everything
//! else (which task, where, with what limits) is `stepd`'s.
//!
//! One thread, one loop over the socket to `stepd` and the signals of its children. It opens task files and output packs
//! under the user's rights. It is a subreaper, so that what tasks leave behind is taken away. When a task's first process
//! ends, what is left of its process group is killed before the process is reaped, while its number is still its own. A
//! task leads a process group of its own in the launcher's session, which has no terminal; on a terminal of its own
//! (`--pty`) it leads a session too. (A session for each task would make the kernel weigh each task as if it were a user's
//! whole login, see `sched(7)` on autogroups: spawning stalls behind whatever else runs.)
//!
//! # When `stepd` ends
//!
//! A `stepd` that is killed leaves its launcher behind: it goes on reaping, keeps the last ends, and waits on a socket of
//! its own for another `stepd` of the run, which asks what there is
//! ([`ToLauncher::Adopt`](garrick_model::messages::launcher::ToLauncher)) and goes on. When nobody comes within
//! [`ADOPTION_LIMIT`], when the socket's file is gone (the run was cleaned up), or when it was told to finish before, it
//! kills everything below it and ends. So does one without a socket, at once. A launcher that is killed itself takes the
//! run's tasks along: the next one is started after everything in the tasks' cgroup, or everything with the run's marks,
//! is dead.
//!
//! # Who may do what
//!
//! `stepd` runs as root (or as the one user of an unprivileged cluster). It holds the node's key, the journal and the
//! cgroups, makes pipes and terminals, writes scripts, and decides what runs. The user is switched once for a job: when
//! its launcher is started, before it serves, with all ids and supplementary groups set; the launcher has no way
//! back. It gets two sockets and nothing else of root's: no environment, no key, no folder. Tasks are its children with
//! its own ids, so nothing that a task gets depends on a check of ours: files are opened, folders entered and programs
//! executed by the kernel's rules for that user. It is not dumpable, so that tasks of the same user cannot read its
//! memory, take its descriptors or trace it; they can send it signals, and so end their own job.
//!
//! `stepd` believes a launcher as far as the user could act without it. What comes through the socket is decoded with
//! limits; tokens that it did not give out are ignored. How a task of the job ended, what it used, and that a program
//! could not be started are taken at the launcher's word: whoever controls it could as well have run another program. A
//! launcher that is adopted says in addition which tasks it has; it can invent tasks of its own job only, because every
//! step it names is looked up in the journal. Process numbers are never acted upon as root as they come: what is left of
//! a process group is killed only where the process is found in the job's cgroup or below the launcher.
//!
//! The launcher believes its `stepd`, whoever that is: a process that holds the other end of its first socket, or one that
//! connects to its own. That one's file is in the daemons' folder with mode 0600, bound by `stepd` and passed on, and who
//! connects must be of the user that started the launcher (`SO_PEERCRED`); one at a time, and only while the former
//! connection is closed. `stepd` in turn goes on only with a peer of the job's user: the launcher itself makes the socket
//! listen, so that is who the kernel names.
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
        if let Some(Identity { uid, gid, groups }) = &self.user {
            let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
            words.extend(["--as".into(), format!("{uid}:{gid}:{}", groups.join(",")).into()]);
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

fn parse_identity(text: &str) -> Option<Identity> {
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
