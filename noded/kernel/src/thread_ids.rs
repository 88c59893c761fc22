//! A thread that opens files with the rights of another user. Threads of a process are one user to the C library, but not to the
//! kernel: these are its calls for one thread alone (setfsuid(2), credentials(7)).

use crate::spawn::Identity;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use std::io;

/// From now on and for good, this thread opens and makes files as that user, with that user's groups and without root's power over
/// files. For threads of root that were started for this.
///
/// # Errors
/// The kernel did not allow all of it: the thread is to be ended.
pub fn open_files_as(identity: &Identity) -> io::Result<()> {
    let groups = &identity.groups;
    // SAFETY: the pointer is to as many group ids as are said, which the kernel only reads. The raw call changes this thread alone.
    let done = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    setfsgid(gid);
    setfsuid(uid);
    // These calls tell no errors, but what was there before: what is there now, if they are called again.
    if setfsgid(gid) == gid && setfsuid(uid) == uid { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{scratch::Scratch, users};
    use std::{fs, os::unix::fs::MetadataExt as _, os::unix::fs::PermissionsExt as _};

    #[test]
    fn one_thread_has_the_rights_of_a_user_and_the_others_those_of_root() {
        if users::effective_uid() != 0 {
            return eprintln!("skipped: only root can act as others");
        }
        let dir = Scratch::new("thread-ids");
        let (closed, open) = (dir.join("closed"), dir.join("open"));
        fs::write(&closed, "secret").unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let identity = Identity { uid: 65_534, gid: 65_533, groups: vec![65_533, 65_532] };
        let (in_thread, made) = (closed.clone(), open.clone());
        let thread = std::thread::spawn(move || {
            open_files_as(&identity).unwrap();
            fs::write(made, "").unwrap();
            fs::read(in_thread).unwrap_err().kind()
        });
        assert_eq!(thread.join().unwrap(), io::ErrorKind::PermissionDenied);
        let found = fs::metadata(&open).unwrap();
        assert_eq!((found.uid(), found.gid()), (65_534, 65_533));
        assert_eq!(fs::read_to_string(&closed).unwrap(), "secret");
    }
}
