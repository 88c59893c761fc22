//! The controller runs as `SlurmUser` (slurm.conf(5)), started by that user or by root. When root starts it, it creates what
//! SlurmUser cannot create, changes the owner of files that an earlier controller left as root's, and becomes SlurmUser before
//! anything else.

use crate::daemon::options::{Action, Options, Roles};
use garrick_kernel::{
    files::{self, FileError},
    users::{self, Account},
};
use garrick_model::config::{Config, slurmdbd::DbdConfig};
use nix::unistd::{Gid, Uid, initgroups, setgid, setuid};
use std::{
    ffi::CString,
    fs::File,
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown},
    },
    path::{Path, PathBuf},
};

/// Makes this process one of `SlurmUser` where it is to be a controller alone and root started it. An error where it was
/// started by somebody who is neither.
///
/// To be called while the process has one thread and has opened nothing.
pub fn become_it(
    config: &Config,
    options: &Options,
    home: Option<&Path>,
    accounting: Option<&DbdConfig>,
) -> Result<(), String> {
    let serves = matches!(options.action, Action::Serve | Action::Init);
    // A process with a node's role too starts jobs of all users.
    if !serves || options.roles == Roles::Node || options.roles == Roles::Both && options.action == Action::Serve {
        return Ok(());
    }
    let file = config.path.display();
    if let Some(other) = accounting.and_then(|a| a.slurm_user.as_ref()).filter(|user| **user != config.slurm_user) {
        return Err(format!(
            "{file} has SlurmUser={}, and slurmdbd.conf SlurmUser={other}: they have to be the same",
            config.slurm_user
        ));
    }
    let own = users::effective_uid();
    let user = match users::by_name_or_uid(&config.slurm_user) {
        Ok(user) => user,
        Err(e) => return Err(format!("{file}: SlurmUser={}: {e}; name a user that this host has", config.slurm_user)),
    };
    if let Some(settings) = accounting.filter(|settings| settings.storage.password.is_some()) {
        let owner = std::fs::metadata(&settings.path).map_err(|e| format!("{}: {e}", settings.path.display()))?.uid();
        if ![0, user.uid, own].contains(&owner) {
            return Err(format!(
                "{} has a password and belongs to {}: it has to be {}'s or root's",
                settings.path.display(),
                users::user_name(owner),
                user.name
            ));
        }
    }
    if user.uid == own {
        return Ok(());
    }
    if own != 0 {
        // One who never said SlurmUser tries Garrick without being root.
        if user.uid == 0 {
            return Ok(());
        }
        return Err(format!(
            "running as {}, but {file} has SlurmUser={}: start it as that user or as root, or set SlurmUser={}",
            users::user_name(own),
            config.slurm_user,
            users::user_name(own),
        ));
    }
    match accounting {
        Some(settings) => prepare_accounting(config, options, settings, &user),
        None => prepare(config, options, home, &user),
    }
    .map_err(|e| e.to_string())?;
    let failed = |call: &'static str| {
        let name = &user.name;
        move |e: nix::Error| format!("becoming {name}: {call}: {e}")
    };
    let name = CString::new(user.name.clone()).map_err(|e| format!("SlurmUser {:?}: {e}", user.name))?;
    initgroups(&name, Gid::from_raw(user.gid)).map_err(failed("initgroups"))?;
    setgid(Gid::from_raw(user.gid)).map_err(failed("setgid"))?;
    setuid(Uid::from_raw(user.uid)).map_err(failed("setuid"))
}

/// What only root can make.
fn prepare(config: &Config, options: &Options, home: Option<&Path>, user: &Account) -> Result<(), FileError> {
    let state = &config.state_save_location;
    if !state.exists() {
        files::create_folder(state, 0o700)?;
        files::give_to(state, user.uid, user.gid)?;
    }
    hand_over(state, user)?;
    if let Some(run) = config.slurm_user_run().filter(|_| home.is_none()) {
        files::create_folder(&run, 0o755)?;
        files::give_to(&run, user.uid, user.gid)?;
    }
    let log = options.log_file.clone().or_else(|| config.slurmctld_log_file.as_deref().map(PathBuf::from));
    let pid = PathBuf::from(&config.slurmctld_pid_file);
    let scheduler = config.sched_log_file.as_deref().map(PathBuf::from);
    for (path, mode) in [(log.filter(|_| !options.foreground), 0o600), (Some(pid), 0o644)] {
        if let Some(path) = path {
            files::make_for(&path, mode, user.uid, user.gid)?;
        }
    }
    if let Some(path) = scheduler {
        // Where it cannot be opened later, the controller says so and goes on without it.
        let _ = files::make_for(&path, 0o600, user.uid, user.gid);
    }
    Ok(())
}

/// The same for the service of accounting.
fn prepare_accounting(
    config: &Config,
    options: &Options,
    settings: &DbdConfig,
    user: &Account,
) -> Result<(), FileError> {
    let of_storage = settings.storage.file().and_then(Path::parent).map(Path::to_owned);
    let folders = [(config.slurm_user_run(), 0o755), (of_storage, 0o700)];
    for (folder, mode) in folders.into_iter().filter_map(|(folder, mode)| Some((folder?, mode))) {
        if !folder.exists() {
            files::create_folder(&folder, mode)?;
            files::give_to(&folder, user.uid, user.gid)?;
        }
    }
    let log = options.log_file.clone().or_else(|| settings.log_file.clone()).filter(|_| !options.foreground);
    for (path, mode) in log.map(|log| (log, 0o600)).into_iter().chain([(settings.pid_file.clone(), 0o644)]) {
        files::make_for(&path, mode, user.uid, user.gid)?;
    }
    Ok(())
}

/// What a controller that ran as root left in its folder is SlurmUser's from now on. Every file is opened before it is looked at
/// and given by its descriptor: no link is followed, and a file of more than one name stays root's.
fn hand_over(state: &Path, user: &Account) -> Result<(), FileError> {
    let failed = |cause| FileError { operation: "giving to SlurmUser", path: state.to_owned(), cause };
    let folder = open_unlinked(state).map_err(failed)?;
    // A folder of all (StateSaveLocation's default is /var/spool) is the system's: what is ours has names that are known.
    let known = |name: &str| {
        ["journal", "snapshot", "audit.log", "accounting"].iter().any(|first| name.starts_with(first))
            || ["ca", "beside", "identity", "credential.key", "reset.key", "lock", "writer"].contains(&name)
    };
    let given = give_below(&folder, &known, user, 2).map_err(failed)?;
    if given > 0 {
        if folder.metadata().map_err(failed)?.uid() == 0 && state != Path::new("/var/spool") {
            fchown(&folder, Some(user.uid), Some(user.gid)).map_err(failed)?;
        }
        eprintln!("slurmctld: {given} files in {} were root's and are {}'s now", state.display(), user.name);
    }
    Ok(())
}

fn open_unlinked(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// Gives the files of an open folder that have such names, and of the folders in it as deep as that. Returns how many.
fn give_below(folder: &File, named: &dyn Fn(&str) -> bool, user: &Account, depth: u32) -> io::Result<u32> {
    // By the descriptor, so that nobody can put another folder in its place meanwhile.
    let here = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    let mut given = 0;
    for entry in std::fs::read_dir(&here)? {
        let name = entry?.file_name();
        if !name.to_str().is_some_and(named) {
            continue;
        }
        let file = match open_unlinked(&here.join(&name)) {
            Ok(file) => file,
            // A link, or a socket: nothing of the controller's.
            Err(_) => continue,
        };
        let found = file.metadata()?;
        if found.is_dir() && depth > 0 {
            given += give_below(&file, &|_| true, user, depth - 1)?;
        }
        if found.uid() == 0 && (found.is_dir() || found.is_file() && found.nlink() == 1) {
            fchown(&file, Some(user.uid), Some(user.gid))?;
            given += 1;
        }
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_kernel::scratch::Scratch;

    #[test]
    fn only_what_a_controller_left_is_handed_over() {
        if users::effective_uid() != 0 {
            eprintln!("skipped: only root can give files away");
            return;
        }
        let dir = Scratch::new("slurm-user");
        for name in ["state/journal", "state/ca/ca.pem", "state/mail", "elsewhere", "state/journal.1"] {
            dir.put(name, "x");
        }
        std::os::unix::fs::symlink(dir.join("elsewhere"), dir.join("state/journal.link")).unwrap();
        std::fs::remove_file(dir.join("state/journal.1")).unwrap();
        std::fs::hard_link(dir.join("elsewhere"), dir.join("state/journal.1")).unwrap();
        let user = Account { name: "u".into(), uid: 64030, gid: 64031, home: "/".into(), shell: "/bin/sh".into() };
        hand_over(&dir.join("state"), &user).unwrap();
        let owner = |name: &str| std::fs::symlink_metadata(dir.join(name)).unwrap().uid();
        for given in ["state", "state/journal", "state/ca", "state/ca/ca.pem"] {
            assert_eq!(owner(given), 64030, "{given}");
        }
        for kept in ["state/mail", "state/journal.link", "state/journal.1", "elsewhere"] {
            assert_eq!(owner(kept), 0, "{kept}");
        }
    }
}
