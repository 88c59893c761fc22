//! Secret files. A file is replaced as a whole: after a crash, the old or the new one is there.

use super::IdentityError;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

/// Mode of files that hold a key.
pub const PRIVATE: u32 = 0o600;
/// Mode of files that anyone may read.
pub const PUBLIC: u32 = 0o644;

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> IdentityError + 'a {
    move |source| IdentityError::Io { doing, path: path.to_owned(), source }
}

/// Makes a folder for secrets (mode 0700) and its parents, if it is not there.
pub fn create_folder(path: &Path) -> Result<(), IdentityError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("creating", path))
}

/// Writes a file whole: temporary file beside it, fsync, rename, fsync of the folder.
pub fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<(), IdentityError> {
    let folder = folder_of(path);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder.join(name);
    // One left by a crash of an earlier process with our number.
    let _ = fs::remove_file(&temporary);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(failed("writing", path))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes a file, for good.
pub fn remove(path: &Path) -> Result<(), IdentityError> {
    fs::remove_file(path).and_then(|()| File::open(folder_of(path))?.sync_all()).map_err(failed("removing", path))
}

/// Reads a secret of at most `limit` bytes; refuses one that others than its owner and group can read.
pub fn read_secret(path: &Path, limit: usize) -> Result<Vec<u8>, IdentityError> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(IdentityError::Absent { path: path.to_owned() }),
        opened => opened.map_err(failed("opening", path))?,
    };
    let mode = file.metadata().map_err(failed("examining", path))?.mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(IdentityError::Exposed { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(failed("reading", path))?;
    if bytes.len() > limit {
        return Err(super::invalid(path.display().to_string(), format!("longer than {limit} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::Folder;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_whole_with_its_mode_and_nothing_beside_it() {
        let folder = Folder::new();
        let path = folder.path().join("secret");
        write_whole(&path, b"one", PRIVATE).unwrap();
        write_whole(&path, b"two", PRIVATE).unwrap();
        assert_eq!(read_secret(&path, 10).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let folder = Folder::new();
        let path = folder.path().join("secret");
        write_whole(&path, b"one", PRIVATE).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(read_secret(&path, 10), Err(IdentityError::Exposed { mode: 0o644, .. })));
        assert!(matches!(read_secret(&folder.path().join("none"), 10), Err(IdentityError::Absent { .. })));
    }

    #[test]
    fn a_secret_over_its_limit_is_refused() {
        let folder = Folder::new();
        let path = folder.path().join("secret");
        write_whole(&path, &[0; 11], PRIVATE).unwrap();
        assert!(matches!(read_secret(&path, 10), Err(IdentityError::Invalid { .. })));
    }
}
