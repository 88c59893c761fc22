//! Files that are written whole or not at all, and files opened with the rights of a job's user.

use garrick_model::messages::launcher::FileMode;
use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown},
    path::{Path, PathBuf},
};

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {path}: {cause}", path = path.display())]
pub struct FileError {
    /// What was tried.
    pub operation: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub cause: io::Error,
}

pub(crate) fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |cause| FileError { operation, path: path.to_owned(), cause }
}

/// Replaces a file so that readers, and this program after a crash, see the old contents or the new, never a part:
/// temporary file, fsync, rename, fsync of the folder.
pub fn write_atomically(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    replace_with(path, bytes, mode, true)?;
    sync_folder(folder_of(path))
}

/// The same without the sync of the folder, for a file whose name is made to last later: until then a crash of the machine may
/// take it away, but its contents are on the disk.
pub fn replace_for_good(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    replace_with(path, bytes, mode, true)
}

/// Makes a name that a crash of the machine does not take away, and that nothing but its being there matters of. It is another
/// one of `file`, which costs less than a new file; where that cannot be had, an empty file's.
pub fn mark(path: &Path, file: &Path) -> Result<(), FileError> {
    let made = fs::hard_link(file, path).or_else(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Err(e),
        _ => OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop),
    });
    match made {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(failed("create", path)(e)),
        // There is nothing in it to be synced. One that is there already may have been made just before a crash of this program.
        _ => sync_folder(folder_of(path)),
    }
}

/// The same for what need not survive a crash of the machine: nothing is synced.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    replace_with(path, bytes, mode, false)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

fn replace_with(path: &Path, bytes: &[u8], mode: u32, sync: bool) -> Result<(), FileError> {
    let name = path.file_name().ok_or_else(|| failed("write", path)(io::ErrorKind::InvalidInput.into()))?;
    let mut temporary = OsString::from(".");
    temporary.push(name);
    // One writer per file and process; another process's leftovers are not ours to overwrite.
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder_of(path).join(temporary);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&temporary)
            .map_err(failed("create", &temporary))?;
        file.write_all(bytes).map_err(failed("write", &temporary))?;
        if sync {
            file.sync_all().map_err(failed("fsync", &temporary))?;
        }
        fs::rename(&temporary, path).map_err(failed("rename to", path))
    })();
    if written.is_err() {
        // Nothing of it is wanted, whichever step failed.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Puts a file in the place of another, whichever file system that is in. Where it is the same one nothing is synced: after a crash the
/// file has one of the two names. Else it is written there first, whole and for good, with this mode.
pub fn move_to(from: &Path, to: &Path, mode: u32) -> Result<(), FileError> {
    move_with(from, to, mode, |from, to| fs::rename(from, to))
}

fn move_with(
    from: &Path,
    to: &Path,
    mode: u32,
    rename: impl FnOnce(&Path, &Path) -> io::Result<()>,
) -> Result<(), FileError> {
    match rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
            let bytes = fs::read(from).map_err(failed("read", from))?;
            write_atomically(to, &bytes, mode)?;
            fs::remove_file(from).map_err(failed("remove", from))
        }
        outcome => outcome.map_err(failed("rename to", to)),
    }
}

/// Makes names in a folder durable.
pub fn sync_folder(path: &Path) -> Result<(), FileError> {
    File::open(path).and_then(|f| f.sync_all()).map_err(failed("fsync", path))
}

/// Contents, or `None` for a file that is not there.
pub fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("read", path)(e)),
    }
}

/// Makes a folder and those above it that are missing, each with this mode.
pub fn create_folder(path: &Path, mode: u32) -> Result<(), FileError> {
    DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed("mkdir", path))
}

/// Gives a file or folder to a user. Only root can give away.
pub fn give_to(path: &Path, uid: u32, gid: u32) -> Result<(), FileError> {
    chown(path, Some(uid), Some(gid)).map_err(failed("chown", path))
}

/// Makes a folder for a user in one that is there or is made, with mode 0755. One that is there has to be a folder of that user's. No
/// link is followed for its last name.
pub fn create_folder_for(path: &Path, mode: u32, uid: u32, gid: u32) -> Result<(), FileError> {
    create_folder(folder_of(path), 0o755)?;
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path).map_err(failed("examine", path))?;
            if found.is_dir() && found.uid() == uid {
                return Ok(());
            }
            let wrong = io::Error::other(format!("it is there, and is no folder of uid {uid}"));
            return Err(failed("use", path)(wrong));
        }
        Err(e) => return Err(failed("mkdir", path)(e)),
    }
    // By its descriptor: what has the name by now might be another thing.
    let made = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path);
    made.and_then(|made| fchown(&made, Some(uid), Some(gid))).map_err(failed("chown", path))
}

/// Makes a file that is not there, empty and of that user, with the folders above it; one that is there is given to the user
/// if it is root's, or is where only root can put one (what an earlier SlurmUser could not remove). No link is followed.
pub fn make_for(path: &Path, mode: u32, uid: u32, gid: u32) -> Result<(), FileError> {
    create_folder(folder_of(path), 0o755)?;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(mode).custom_flags(libc::O_NOCTTY | libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(failed("create", path))?;
    let found = file.metadata().map_err(failed("examine", path))?;
    let folder = fs::metadata(folder_of(path)).map_err(failed("examine", path))?;
    let of_root = found.uid() == 0 || (folder.uid() == 0 && folder.mode() & 0o022 == 0 && found.nlink() == 1);
    if found.is_file() && of_root {
        fchown(&file, Some(uid), Some(gid)).map_err(failed("chown", path))?;
    }
    Ok(())
}

/// Makes a folder with this mode, or sets that mode on one of this user's that lets others do more. True: an existing one was
/// corrected. The parents that are missing get mode 0755.
pub fn keep_folder(path: &Path, mode: u32) -> Result<bool, FileError> {
    let set = || fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed("chmod", path));
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            create_folder(folder_of(path), 0o755)?;
            create_folder(path, mode)?;
            // Whatever the mask says.
            set()?;
            Ok(false)
        }
        Err(e) => Err(failed("examine", path)(e)),
        Ok(found) => {
            let wrong = found.mode() & 0o7777 & !mode != 0 && found.uid() == nix::unistd::geteuid().as_raw();
            if wrong {
                set()?;
            }
            Ok(wrong)
        }
    }
}

/// Takes everything from group and others on a file or folder of this user; no link is followed. True: there was something.
pub fn keep_private(path: &Path) -> Result<bool, FileError> {
    let found = fs::symlink_metadata(path).map_err(failed("examine", path))?;
    let own = found.uid() == nix::unistd::geteuid().as_raw() && !found.file_type().is_symlink();
    if !own || found.mode() & 0o077 == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, fs::Permissions::from_mode(found.mode() & 0o7700)).map_err(failed("chmod", path))?;
    Ok(true)
}

/// Removes all that is in a folder but what has these names.
pub fn empty_folder(path: &Path, but: &[&str]) -> Result<(), FileError> {
    for entry in fs::read_dir(path).map_err(failed("list", path))? {
        let entry = entry.map_err(failed("list", path))?;
        if entry.file_name().to_str().is_some_and(|name| but.contains(&name)) {
            continue;
        }
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(failed("remove", &path))?;
    }
    Ok(())
}

/// Removes a folder with all that is in it; one that is not there is no error.
pub fn remove_folder(path: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(e)),
        _ => Ok(()),
    }
}

/// Opens a standard file of a task, under this process's ids and mask. Writers append even after truncating: tasks share
/// files, and Slurm's users rely on it.
pub fn open_standard_file(path: &Path, mode: FileMode) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // A terminal must not become the launcher's own.
    options.custom_flags(libc::O_NOCTTY);
    match mode {
        FileMode::Read => options.read(true).open(path),
        FileMode::Append => options.append(true).create(true).mode(0o666).open(path),
        FileMode::Truncate => {
            let file = options.append(true).create(true).mode(0o666).open(path)?;
            // Not by O_TRUNC, which goes with writing but not with appending in the standard library. Pipes and terminals
            // cannot be cut.
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            Ok(file)
        }
    }
}

/// Which file that is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

/// A file that is about to be removed.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Which.
    pub id: FileId,
    /// Nothing is in it.
    pub is_empty: bool,
}

/// The regular file of that name, if there is one.
fn regular(path: &Path) -> Option<Found> {
    let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(Found { id: FileId { device: found.dev(), inode: found.ino() }, is_empty: found.len() == 0 })
}

/// Which regular file has that name.
pub fn id_of(path: &Path) -> Option<FileId> {
    regular(path).map(|found| found.id)
}

/// Removes a regular file, if it is as it is to be.
pub fn remove_regular(path: &Path, is_meant: impl FnOnce(&Found) -> bool) -> io::Result<()> {
    match regular(path) {
        Some(found) if is_meant(&found) => fs::remove_file(path),
        _ => Ok(()),
    }
}

/// A new file without a name that is gone when nobody has it open, for this user to read, and to write at its end. Where
/// the folder's file system has no such files, one whose name is taken away at once.
pub fn nameless(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    match options.clone().custom_flags(libc::O_TMPFILE | libc::O_NOCTTY).open(folder) {
        // What kernels and file systems say that do not know the flag: EISDIR, EOPNOTSUPP, EINVAL.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EISDIR | libc::EOPNOTSUPP | libc::EINVAL)) => {}
        other => return other,
    }
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    loop {
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = folder.join(format!(".garrick-output-{}-{number}", std::process::id()));
        match options.clone().create_new(true).open(&path) {
            Ok(file) => {
                fs::remove_file(&path)?;
                return Ok(file);
            }
            // Left by a process of the same number that was killed between the two.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_file_is_moved_within_a_file_system_and_into_another() {
        let dir = Scratch::new("move");
        let across = |_: &Path, _: &Path| Err(io::ErrorKind::CrossesDevices.into());
        for other_file_system in [false, true] {
            let (from, to) = (dir.join("from"), dir.join("to"));
            write_atomically(&from, b"new", 0o600).unwrap();
            write_atomically(&to, b"old", 0o644).unwrap();
            match other_file_system {
                false => move_to(&from, &to, 0o600).unwrap(),
                true => move_with(&from, &to, 0o600, across).unwrap(),
            }
            assert_eq!(fs::read(&to).unwrap(), b"new");
            assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
        // Another error is one, and what was there stays.
        let error = move_with(&dir.join("none"), &dir.join("to"), 0o600, |_, _| Err(io::ErrorKind::NotFound.into()));
        assert_eq!(error.unwrap_err().operation, "rename to");
        assert_eq!(fs::read(dir.join("to")).unwrap(), b"new");
    }

    #[test]
    fn a_file_where_only_root_can_put_one_is_the_next_owners() {
        if crate::users::effective_uid() != 0 {
            eprintln!("skipped: only root can give files away");
            return;
        }
        let dir = Scratch::new("made-for");
        let owner = |path: &Path| fs::metadata(path).unwrap().uid();
        for (name, mode, kept) in [("closed", 0o755, false), ("open", 0o777, true)] {
            let folder = dir.join(name);
            fs::create_dir(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            let path = folder.join("pid");
            make_for(&path, 0o644, 1, 1).unwrap();
            assert_eq!(owner(&path), 1);
            make_for(&path, 0o644, 2, 2).unwrap();
            assert_eq!(owner(&path), if kept { 1 } else { 2 }, "{name}");
        }
    }

    #[test]
    fn replaced_files_leave_no_temporary_behind() {
        let dir = Scratch::new("files");
        let path = dir.join("state");
        write_atomically(&path, b"one", 0o600).unwrap();
        write_atomically(&path, b"two", 0o600).unwrap();
        assert_eq!(read_if_there(&path).unwrap().unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_replacement_keeps_the_old_file_and_says_where() {
        let dir = Scratch::new("files");
        fs::create_dir_all(dir.join("state/inside")).unwrap();
        let e = write_atomically(&dir.join("state"), b"x", 0o600).unwrap_err();
        assert_eq!(e.operation, "rename to");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "temporary file removed");
        let e = write_atomically(&dir.join("nowhere/state"), b"x", 0o600).unwrap_err();
        assert!(e.to_string().contains("nowhere"));
    }

    #[test]
    fn standard_files_append_and_are_cut_only_when_asked() {
        let dir = Scratch::new("files");
        let path = dir.join("out");
        open_standard_file(&path, FileMode::Append).unwrap().write_all(b"a").unwrap();
        open_standard_file(&path, FileMode::Append).unwrap().write_all(b"b").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ab");
        let (mut one, mut two) = (
            open_standard_file(&path, FileMode::Truncate).unwrap(),
            open_standard_file(&path, FileMode::Append).unwrap(),
        );
        one.write_all(b"1").unwrap();
        two.write_all(b"2").unwrap();
        one.write_all(b"3").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"123");
        assert!(open_standard_file(&dir.join("none"), FileMode::Read).is_err());
        assert!(open_standard_file(Path::new("/dev/null"), FileMode::Truncate).is_ok());
    }

    #[test]
    fn nameless_files_leave_nothing_behind() {
        let dir = Scratch::new("files");
        let mut file = nameless(dir.path()).unwrap();
        file.write_all(b"out").unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let mut text = [0; 8];
        assert_eq!(std::os::unix::fs::FileExt::read_at(&file, &mut text, 0).unwrap(), 3);
        assert!(nameless(&dir.join("nowhere")).is_err());
    }

    #[test]
    fn folders_are_made_and_removed_whole() {
        let dir = Scratch::new("files");
        create_folder(&dir.join("a/b"), 0o700).unwrap();
        dir.put("a/b/c/file", "x");
        remove_folder(&dir.join("a")).unwrap();
        remove_folder(&dir.join("a")).unwrap();
        assert_eq!(read_if_there(&dir.join("a/b/c/file")).unwrap(), None);
    }
}
