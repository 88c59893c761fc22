//! `stepd write-file`: writes one file as the job's user. On its standard input come a [`FileOrder`] and the [`FilePart`]s of the
//! file, each as a frame; what it says goes to its standard output, as [`WriterSays`].
//!
//! The file has no name until all of it is there and its sum is right. Where the folder's file system has no such files, it has a
//! name of its own until then, which is taken away when anything fails.

use garrick_frame::{codec::PREFIX, decode_body, encode, limits};
use garrick_kernel::spawn::{self, Identity};
use garrick_model::messages::files::{FileOrder, FilePart, FileTimes, MOST_PART_BYTES, WriterSays};
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, open, renameat2},
    sys::{
        stat::{Mode, fchmod, futimens},
        time::TimeSpec,
    },
    unistd::linkat,
};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::{
        fd::AsRawFd as _,
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            fs::DirBuilderExt as _,
        },
    },
    path::{Path, PathBuf},
};

/// What failed: a system call or words, and an error number or 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    operation: String,
    errno: i32,
}

fn failed<E: Into<io::Error>>(operation: &str) -> impl FnOnce(E) -> Failure {
    move |e| Failure { operation: operation.to_owned(), errno: e.into().raw_os_error().unwrap_or(0) }
}

fn said(operation: &str) -> Failure {
    Failure { operation: operation.to_owned(), errno: 0 }
}

/// The program. `user`: whose ids it takes before it does anything else. Returns the exit code.
pub fn main(user: Option<&Identity>) -> i32 {
    let outcome = match user.map(spawn::become_user) {
        Some(Err(e)) => Err(failed("setresuid")(io::Error::from_raw_os_error(e.errno()))),
        _ => write(&mut io::stdin().lock(), &mut |says| tell(&says)),
    };
    let code = i32::from(outcome.is_err());
    match outcome {
        Ok(()) => tell(&WriterSays::Done),
        Err(Failure { operation, errno }) => tell(&WriterSays::Failed { operation, errno }),
    }
    code
}

fn tell(says: &WriterSays) {
    // A reader that is gone has given the file up.
    if let Ok(frame) = encode(says, limits::BULK) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(&frame).and_then(|()| out.flush());
    }
}

fn write(input: &mut impl Read, say: &mut impl FnMut(WriterSays)) -> Result<(), Failure> {
    let order: FileOrder = next(input)?;
    let mut file = NewFile::create(&order)?;
    say(WriterSays::Ready);
    let (mut bytes, mut sum) = (0_u64, 0);
    loop {
        let part = match next(input)? {
            FilePart::Plain(data) => data.into_vec(),
            FilePart::Lz4 { size, data } => unpack(size, &data)?,
            FilePart::End { bytes: all, sum: whole } if all == bytes && whole == sum => return file.finish(&order),
            FilePart::End { .. } => return Err(said("its sum is wrong")),
        };
        bytes += part.len() as u64;
        sum = crc32c::crc32c_append(sum, &part);
        file.open.write_all(&part).map_err(failed("write"))?;
    }
}

fn unpack(size: u32, data: &[u8]) -> Result<Vec<u8>, Failure> {
    if size > MOST_PART_BYTES {
        return Err(said("a part of it is too large"));
    }
    let unpacked = lz4_flex::block::decompress(data, size as usize).map_err(|_| said("it cannot be unpacked"))?;
    if unpacked.len() == size as usize { Ok(unpacked) } else { Err(said("it cannot be unpacked")) }
}

/// The next frame. The end of the input is an end too soon.
fn next<T: serde::de::DeserializeOwned>(input: &mut impl Read) -> Result<T, Failure> {
    let ended = |_| said("it was given up");
    let mut prefix = [0; PREFIX];
    input.read_exact(&mut prefix).map_err(ended)?;
    let size = u32::from_be_bytes(prefix) as usize;
    if size > limits::BULK {
        return Err(said("a part of it is too large"));
    }
    let mut body = vec![0; size];
    input.read_exact(&mut body).map_err(ended)?;
    decode_body(&body).map_err(|_| said("it was given up"))
}

/// A file without its name.
struct NewFile {
    path: PathBuf,
    open: File,
    /// What it is called until then; `None`: nothing.
    meanwhile: Option<PathBuf>,
}

impl NewFile {
    fn create(order: &FileOrder) -> Result<Self, Failure> {
        let path = PathBuf::from(OsString::from_vec(order.path.clone()));
        let folder = path.parent().filter(|_| path.is_absolute()).ok_or_else(|| said("no absolute path"))?;
        if order.folders {
            make_folder(folder)?;
        }
        may_be_there(&path, order.force)?;
        let nameless = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        match open(folder, nameless, Mode::from_bits_truncate(0o600)) {
            Ok(open) => Ok(Self { open: File::from(open), path, meanwhile: None }),
            // What kernels and file systems say that do not know the flag.
            Err(Errno::EISDIR | Errno::EOPNOTSUPP | Errno::EINVAL) => Self::create_named(path),
            Err(e) => Err(failed("open")(e)),
        }
    }

    fn create_named(path: PathBuf) -> Result<Self, Failure> {
        let meanwhile = beside(&path);
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let open = open(&meanwhile, flags, Mode::from_bits_truncate(0o600)).map_err(failed("open"))?;
        Ok(Self { open: File::from(open), path, meanwhile: Some(meanwhile) })
    }

    fn finish(mut self, order: &FileOrder) -> Result<(), Failure> {
        fchmod(&self.open, Mode::from_bits_truncate(order.mode)).map_err(failed("chmod"))?;
        if let Some(FileTimes { accessed, modified }) = order.times {
            let time = |(secs, nanos): (i64, u32)| TimeSpec::new(secs, i64::from(nanos));
            futimens(&self.open, &time(accessed), &time(modified)).map_err(failed("utimes"))?;
        }
        let may_replace = order.force && may_be_there(&self.path, true).is_ok_and(|there| there);
        match self.meanwhile.take() {
            None if !may_replace => link(&self.open, &self.path).map_err(failed("open")),
            None => {
                let meanwhile = beside(&self.path);
                link(&self.open, &meanwhile).map_err(failed("open"))?;
                put(&meanwhile, &self.path, true)
            }
            Some(meanwhile) => put(&meanwhile, &self.path, may_replace),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(meanwhile) = &self.meanwhile {
            // Somebody else may have taken it away.
            let _ = fs::remove_file(meanwhile);
        }
    }
}

/// Whether something of that name is there that may be replaced; an error if it may not.
fn may_be_there(path: &Path, force: bool) -> Result<bool, Failure> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(failed("open")(e)),
        Ok(_) if !force => Err(failed("open")(Errno::EEXIST)),
        Ok(found) if found.is_dir() => Err(failed("open")(Errno::EISDIR)),
        // Devices and the like are not swapped for files, whoever may.
        Ok(found) if found.is_file() || found.is_symlink() => Ok(true),
        Ok(_) => Err(failed("open")(Errno::EEXIST)),
    }
}

/// A name in the same folder that nobody else uses.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_bytes();
    // Short enough for any file system.
    let mut own = OsString::from(".");
    own.push(OsStr::from_bytes(&name[..name.len().min(200)]));
    own.push(format!(".sbcast-{}", std::process::id()));
    path.with_file_name(own)
}

/// Gives a file without a name one that nothing has.
fn link(file: &File, path: &Path) -> nix::Result<()> {
    // By the way of open(2), `O_TMPFILE`, that needs no capability.
    let own = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    linkat(AT_FDCWD, &own, AT_FDCWD, path, AtFlags::AT_SYMLINK_FOLLOW)
}

/// Gives a file its name.
fn put(from: &Path, to: &Path, replace: bool) -> Result<(), Failure> {
    let flags = if replace { RenameFlags::empty() } else { RenameFlags::RENAME_NOREPLACE };
    let put = match renameat2(AT_FDCWD, from, AT_FDCWD, to, flags) {
        // File systems that do not know the flag.
        Err(Errno::EINVAL) if !replace => {
            linkat(AT_FDCWD, from, AT_FDCWD, to, AtFlags::empty()).and_then(|()| nix::unistd::unlink(from))
        }
        put => put,
    };
    put.map_err(|e| {
        let _ = fs::remove_file(from);
        failed("open")(e)
    })
}

fn make_folder(folder: &Path) -> Result<(), Failure> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(failed("mkdir")(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "writer_test.rs"]
mod tests;
