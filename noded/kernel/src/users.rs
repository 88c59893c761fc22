//! Users and groups of this host, through the C library's name service.

use nix::{
    errno::Errno,
    unistd::{Gid, Group, Uid, User, getgrouplist},
};
use std::{ffi::CString, io, path::PathBuf};

/// A user who cannot be found, or a name service that does not answer.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// No such user.
    #[error("invalid user id: {0}")]
    UnknownUid(u32),
    /// No such user.
    #[error("invalid user name: {0}")]
    UnknownName(String),
    /// The name service.
    #[error("looking up {what}: {cause}")]
    Lookup {
        /// Whom.
        what: String,
        /// Why not.
        #[source]
        cause: io::Error,
    },
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name.
    pub name: String,
    /// Id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Home folder.
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

impl From<User> for Account {
    fn from(user: User) -> Self {
        Self {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            home: user.dir,
            shell: if user.shell.as_os_str().is_empty() { PathBuf::from("/bin/sh") } else { user.shell },
        }
    }
}

/// What a lookup found. The name service has several words for nobody (getpwnam_r(3)); others mean that it could not be asked.
fn found<T>(found: nix::Result<Option<T>>) -> nix::Result<Option<T>> {
    match found {
        Err(Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EPERM) => Ok(None),
        found => found,
    }
}

fn lookup(what: impl Into<String>) -> impl FnOnce(nix::Error) -> UserError {
    let what = what.into();
    move |e| UserError::Lookup { what, cause: e.into() }
}

/// By id.
pub fn by_uid(uid: u32) -> Result<Account, UserError> {
    let found = found(User::from_uid(Uid::from_raw(uid))).map_err(lookup(format!("user {uid}")))?;
    found.map(Account::from).ok_or(UserError::UnknownUid(uid))
}

/// By name.
pub fn by_name(name: &str) -> Result<Account, UserError> {
    let found = found(User::from_name(name)).map_err(lookup(format!("user {name}")))?;
    found.map(Account::from).ok_or_else(|| UserError::UnknownName(name.to_owned()))
}

/// By name, or by id in digits, as Slurm's options take users.
pub fn by_name_or_uid(text: &str) -> Result<Account, UserError> {
    match by_name(text) {
        Err(UserError::UnknownName(_)) if text.bytes().all(|b| b.is_ascii_digit()) => {
            by_uid(text.parse().map_err(|_| UserError::UnknownName(text.to_owned()))?)
        }
        other => other,
    }
}

/// Name of a user; the id in digits for one who has none.
pub fn user_name(uid: u32) -> String {
    by_uid(uid).map_or_else(|_| uid.to_string(), |a| a.name)
}

/// Name of a group; the id in digits for one that has none.
pub fn group_name(gid: u32) -> String {
    Group::from_gid(Gid::from_raw(gid)).ok().flatten().map_or_else(|| gid.to_string(), |g| g.name)
}

/// Name of a group that is told by name, or by id in digits; `None` when there is none.
pub fn group_by_name_or_gid(text: &str) -> Result<Option<String>, UserError> {
    let what = || format!("group {text}");
    let named = Group::from_name(text).map_err(lookup(what()))?;
    let found = match (named, text.parse()) {
        (None, Ok(gid)) => Group::from_gid(Gid::from_raw(gid)).map_err(lookup(what()))?,
        (named, _) => named,
    };
    Ok(found.map(|group| group.name))
}

/// Is there a group of that name? Where the name service does not answer, it is taken to be there.
pub fn knows_group(name: &str) -> bool {
    !matches!(Group::from_name(name), Ok(None))
}

/// All groups of a user, the primary one included, sorted. For an id without a name: the primary one alone.
pub fn groups(uid: u32, gid: u32) -> Result<Vec<u32>, UserError> {
    let name = match by_uid(uid) {
        Ok(account) => account.name,
        Err(UserError::UnknownUid(_)) => return Ok(vec![gid]),
        Err(e) => return Err(e),
    };
    let what = format!("groups of {name}");
    // Names come from the name service, which works with terminated strings itself.
    let name = CString::new(name).map_err(|e| UserError::Lookup { what: what.clone(), cause: io::Error::other(e) })?;
    let mut found: Vec<u32> =
        getgrouplist(&name, Gid::from_raw(gid)).map_err(lookup(what))?.into_iter().map(Gid::as_raw).collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// This process's user.
pub fn effective_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// This process's group.
pub fn effective_gid() -> u32 {
    nix::unistd::getegid().as_raw()
}

/// May a daemon of user `daemon_uid` do what `caller` asks of it on behalf of `owner`? Its own work: yes. That of others: only
/// for root, the daemon's own user, and `SlurmUser`.
pub fn may_act_for(caller: u32, owner: u32, daemon_uid: u32, slurm_user: Option<u32>) -> bool {
    caller == owner || is_administrator(caller, daemon_uid, slurm_user)
}

/// Root, the daemon's own user, or `SlurmUser`.
pub fn is_administrator(uid: u32, daemon_uid: u32, slurm_user: Option<u32>) -> bool {
    uid == 0 || uid == daemon_uid || Some(uid) == slurm_user
}

/// Whether a daemon can run work of this user: root switches to anyone, others stay themselves.
pub fn can_run_as(daemon_uid: u32, uid: u32) -> bool {
    daemon_uid == 0 || daemon_uid == uid
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn root_is_found_both_ways() {
        let root = by_uid(0).unwrap();
        assert_eq!(root, by_name("root").unwrap());
        assert_eq!(root, by_name_or_uid("0").unwrap());
        assert!(groups(0, 0).unwrap().contains(&0));
        assert_eq!((user_name(0), group_name(0)), ("root".to_owned(), "root".to_owned()));
    }

    #[test]
    fn nobody_has_several_words_and_a_name_service_that_fails_others() {
        for nobody in [Errno::ENOENT, Errno::ESRCH, Errno::EBADF, Errno::EPERM] {
            assert_eq!(found::<u8>(Err(nobody)), Ok(None));
        }
        for failure in [Errno::EIO, Errno::EMFILE, Errno::ETIMEDOUT] {
            assert_eq!(found::<u8>(Err(failure)), Err(failure));
        }
        assert_eq!(found(Ok(Some(1))), Ok(Some(1)));
    }

    #[test]
    fn strangers_are_errors_with_their_name() {
        assert!(matches!(by_uid(4_000_000_001), Err(UserError::UnknownUid(4_000_000_001))));
        assert_eq!(by_name("no-such-user").unwrap_err().to_string(), "invalid user name: no-such-user");
        assert!(by_name_or_uid("99999999999999999999").is_err());
        assert_eq!(groups(4_000_000_001, 17).unwrap(), [17]);
        assert_eq!(user_name(4_000_000_001), "4000000001");
    }

    #[test]
    fn only_administrators_act_for_others() {
        assert!(may_act_for(1000, 1000, 0, None));
        assert!(!may_act_for(1000, 1001, 0, None));
        assert!(may_act_for(0, 1001, 500, None));
        assert!(may_act_for(64030, 1001, 0, Some(64030)));
        assert!(can_run_as(0, 1000) && can_run_as(1000, 1000) && !can_run_as(1000, 1001));
    }
}
