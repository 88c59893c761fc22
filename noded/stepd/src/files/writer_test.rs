#![allow(clippy::unwrap_used)]
use super::*;
use garrick_kernel::scratch::Scratch;
use serde::Serialize;
use serde_bytes::ByteBuf;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

fn order(path: &Path) -> FileOrder {
    let path = path.as_os_str().as_bytes().to_vec();
    FileOrder { path, named_by_node: false, force: false, mode: 0o640, times: None, folders: false }
}

fn framed(order: &FileOrder, parts: &[FilePart]) -> Vec<u8> {
    fn frame<T: Serialize>(message: &T) -> Vec<u8> {
        encode(message, limits::BULK).unwrap()
    }
    std::iter::once(frame(order)).chain(parts.iter().map(frame)).flatten().collect()
}

fn plain(bytes: &[u8]) -> FilePart {
    FilePart::Plain(ByteBuf::from(bytes))
}

fn end(bytes: &[u8]) -> FilePart {
    FilePart::End { bytes: bytes.len() as u64, sum: crc32c::crc32c(bytes) }
}

/// The outcome, and whether it said that it was ready.
fn written(order: &FileOrder, parts: &[FilePart]) -> (Result<(), Failure>, bool) {
    let mut ready = false;
    let outcome = write(&mut framed(order, parts).as_slice(), &mut |says| ready |= says == WriterSays::Ready);
    (outcome, ready)
}

fn errno(order: &FileOrder, parts: &[FilePart]) -> i32 {
    written(order, parts).0.unwrap_err().errno
}

fn names(folder: &Scratch) -> Vec<String> {
    let list = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> = list.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_is_written_from_plain_and_packed_parts() {
    let dir = Scratch::new("writer");
    let path = dir.join("f");
    let times = FileTimes { accessed: (1_000_000_000, 5), modified: (1_100_000_000, 7) };
    let order = FileOrder { times: Some(times), ..order(&path) };
    let packed = FilePart::Lz4 { size: 9, data: ByteBuf::from(lz4_flex::block::compress(b"and again")) };
    assert_eq!(written(&order, &[plain(b"once "), packed, end(b"once and again")]), (Ok(()), true));
    let found = fs::metadata(&path).unwrap();
    assert_eq!(
        (found.mode() & 0o7777, found.atime(), found.mtime(), found.mtime_nsec()),
        (0o640, 1_000_000_000, 1_100_000_000, 7)
    );
    assert_eq!(fs::read(&path).unwrap(), b"once and again");
    assert_eq!(names(&dir), ["f"]);
}

#[test]
fn what_is_there_is_replaced_only_when_asked_and_never_a_folder() {
    let dir = Scratch::new("writer");
    let (path, other) = (dir.join("f"), dir.join("other"));
    fs::write(&path, "old").unwrap();
    fs::write(&other, "other").unwrap();
    assert_eq!(written(&order(&path), &[plain(b"new"), end(b"new")]).0.unwrap_err().errno, libc::EEXIST);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    // It is said before anything is sent.
    assert_eq!(written(&order(&path), &[]), (Err(failed("open")(Errno::EEXIST)), false));
    let force = FileOrder { force: true, ..order(&path) };
    assert_eq!(written(&force, &[plain(b"new"), end(b"new")]), (Ok(()), true));
    assert_eq!(fs::read(&path).unwrap(), b"new");
    // A link is replaced, not followed.
    fs::remove_file(&path).unwrap();
    symlink(&other, &path).unwrap();
    assert_eq!(errno(&order(&path), &[plain(b"new"), end(b"new")]), libc::EEXIST);
    assert_eq!(written(&force, &[plain(b"new"), end(b"new")]).0, Ok(()));
    assert_eq!((fs::read(&other).unwrap(), fs::symlink_metadata(&path).unwrap().is_file()), (b"other".to_vec(), true));
    let folder = FileOrder { force: true, ..order(dir.path()) };
    assert_eq!(errno(&folder, &[end(b"")]), libc::EISDIR);
    let device = FileOrder { force: true, ..order(Path::new("/dev/null")) };
    assert_eq!(errno(&device, &[end(b"")]), libc::EEXIST);
    assert_eq!(names(&dir), ["f", "other"]);
}

#[test]
fn nothing_is_left_of_a_file_that_did_not_come_whole() {
    let dir = Scratch::new("writer");
    let path = dir.join("f");
    let wrong = |parts: &[FilePart]| written(&order(&path), parts).0.unwrap_err().operation;
    assert_eq!(wrong(&[plain(b"half")]), "it was given up");
    assert_eq!(wrong(&[plain(b"text"), end(b"test")]), "its sum is wrong");
    assert_eq!(wrong(&[plain(b"text"), end(b"texts")]), "its sum is wrong");
    let bad = |size, data: &[u8]| FilePart::Lz4 { size, data: ByteBuf::from(data) };
    assert_eq!(wrong(&[bad(100, b"\xff\xff\xff"), end(b"")]), "it cannot be unpacked");
    assert_eq!(wrong(&[bad(u32::MAX, b""), end(b"")]), "a part of it is too large");
    let mut lies = framed(&order(&path), &[]);
    lies.extend_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(write(&mut lies.as_slice(), &mut |_| {}).unwrap_err(), said("a part of it is too large"));
    assert!(names(&dir).is_empty());
}

#[test]
fn a_file_system_without_nameless_files_gets_one_by_another_name() {
    let dir = Scratch::new("writer");
    let path = dir.join("f");
    let named = || NewFile::create_named(path.clone()).unwrap();
    drop(named());
    assert!(names(&dir).is_empty());
    let mut file = named();
    file.open.write_all(b"x").unwrap();
    assert_eq!(names(&dir).len(), 1);
    file.finish(&order(&path)).unwrap();
    assert_eq!((names(&dir), fs::read(&path).unwrap()), (vec!["f".to_owned()], b"x".to_vec()));
    // Somebody made one meanwhile.
    let late = named();
    assert_eq!(late.finish(&order(&path)).unwrap_err(), failed("open")(Errno::EEXIST));
    let forced = named();
    forced.finish(&FileOrder { force: true, ..order(&path) }).unwrap();
    assert_eq!(names(&dir), ["f"]);
}

#[test]
fn the_folder_above_is_made_only_when_asked() {
    let dir = Scratch::new("writer");
    let path = dir.join("libs/f");
    assert_eq!(errno(&order(&path), &[end(b"")]), libc::ENOENT);
    let made = FileOrder { folders: true, ..order(&path) };
    assert_eq!(written(&made, &[end(b"")]).0, Ok(()));
    assert_eq!(fs::metadata(dir.join("libs")).unwrap().permissions().mode() & 0o777, 0o700);
    let relative = order(Path::new("f"));
    assert_eq!(written(&relative, &[end(b"")]).0.unwrap_err(), said("no absolute path"));
}
