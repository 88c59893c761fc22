use crate::support::{Kept, Scratch, all, ended, length, some, task};
use garrick_model::ids::JobId;
use garrick_pack::{FLUSH_AFTER, PackError, PackReader, PackWriter, Presence, Stream, Tail, Taken};
use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    time::{Duration, Instant},
};

#[test]
fn what_was_written_reads_back_in_its_order() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let now = Instant::now();
    let mut other = task(7, Some(3));
    (other.attempt, other.rank) = (2, 5);
    let records = [
        Kept::Output(task(1, None), Stream::Stdout, b"one\n".to_vec()),
        Kept::Output(other, Stream::Stderr, vec![0, 255, 10]),
        Kept::Output(task(1, None), Stream::Stdout, b"two\n".to_vec()),
        Kept::End(other, ended(0)),
        Kept::End(task(1, None), ended(3)),
    ];
    let mut pack = PackWriter::open(&path).unwrap();
    records.iter().for_each(|record| record.put(&mut pack, now));
    assert_eq!(all(&path), []);
    assert_eq!(pack.waiting(), [task(1, None), other]);
    pack.flush(now).unwrap();
    assert_eq!(pack.waiting(), []);
    assert_eq!(all(&path), records);
}

#[test]
fn a_closed_pack_is_known_as_such_until_it_is_continued() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let now = Instant::now();
    let tail = || {
        let mut reader = PackReader::open(&path).unwrap();
        while reader.next_record().is_some() {}
        reader.tail()
    };
    let mut pack = PackWriter::open(&path).unwrap();
    assert_eq!(tail(), Tail::Open);
    pack.end(&task(0, None), &ended(0), now).unwrap();
    pack.close().unwrap();
    assert_eq!(tail(), Tail::Closed);
    let closed = length(&path);
    pack.close().unwrap();
    drop(pack);
    PackWriter::open(&path).unwrap().close().unwrap();
    assert_eq!(length(&path), closed, "closing twice adds nothing");

    let mut pack = PackWriter::open(&path).unwrap();
    assert_eq!(pack.cut_bytes(), 0);
    pack.end(&task(1, None), &ended(1), now).unwrap();
    pack.flush(now).unwrap();
    assert_eq!(tail(), Tail::Open);
    pack.close().unwrap();
    assert_eq!(tail(), Tail::Closed);
    assert_eq!(all(&path), [Kept::End(task(0, None), ended(0)), Kept::End(task(1, None), ended(1))]);
}

#[test]
fn one_writer_at_a_time() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let first = PackWriter::open(&path).unwrap();
    assert!(first.is_exclusive());
    let reader = PackReader::open(&path).unwrap();
    assert_eq!(reader.writer().unwrap(), Presence::Present);
    let error = PackWriter::open(&path).unwrap_err();
    assert_eq!(error.to_string(), format!("{}: another process is writing this output pack", path.display()));
    drop(first);
    assert_eq!(reader.writer().unwrap(), Presence::Absent);
    PackWriter::open(&path).unwrap();
}

#[test]
fn files_that_are_no_packs_are_left_alone() {
    let folder = Scratch::new();
    for text in ["#!/bin/bash\nsrun hostname\n", "short"] {
        let path = folder.join("script");
        fs::write(&path, text).unwrap();
        let error = PackWriter::open(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: not an output pack", path.display()));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    assert!(matches!(PackWriter::open("/dev/null".as_ref()).unwrap_err(), PackError::NotAFile(_)));
    let nowhere = folder.join("none/out.pack");
    let error = PackWriter::open(&nowhere).unwrap_err();
    assert!(error.is_absent());
    assert!(error.to_string().starts_with(&format!("cannot open {}: No such file", nowhere.display())), "{error}");
    // A link is the user's own way to say where.
    symlink(folder.join("there"), folder.join("link")).unwrap();
    PackWriter::open(&folder.join("link")).unwrap().close().unwrap();
    assert!(length(&folder.join("there")) > 0);
}

#[test]
fn records_wait_for_others_but_not_for_long() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let start = Instant::now();
    let mut pack = PackWriter::open(&path).unwrap();
    assert_eq!(pack.due(), None);
    pack.end(&task(0, None), &ended(0), start).unwrap();
    pack.end(&task(1, None), &ended(0), start + FLUSH_AFTER / 2).unwrap();
    assert_eq!(pack.due(), Some(start + FLUSH_AFTER));
    pack.flush_if_due(start + FLUSH_AFTER - Duration::from_millis(1)).unwrap();
    assert_eq!(all(&path).len(), 0);
    pack.flush_if_due(start + FLUSH_AFTER).unwrap();
    assert_eq!(all(&path).len(), 2);
    assert_eq!(pack.due(), None);
}

#[test]
fn a_full_block_does_not_wait() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let now = Instant::now();
    let mut pack = PackWriter::open(&path).unwrap();
    let text = vec![b'x'; 1 << 20];
    pack.output(&task(0, None), Stream::Stdout, &text, now).unwrap();
    let there: usize = all(&path).iter().map(|r| if let Kept::Output(_, _, bytes) = r { bytes.len() } else { 0 }).sum();
    assert!(there > text.len() / 2 && there < text.len(), "{there}");
    drop(pack);
    let there: Vec<u8> =
        all(&path).into_iter().flat_map(|r| if let Kept::Output(_, _, bytes) = r { bytes } else { vec![] }).collect();
    assert!(there == text, "a writer that goes writes what it holds");
    assert!(length(&path) < 10_000, "it is compressed");
}

#[test]
fn a_tasks_file_is_taken_over_in_pieces_and_as_it_grows() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let now = Instant::now();
    let text: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    let mut file = fs::File::options().create(true).append(true).read(true).open(folder.join("task")).unwrap();
    file.write_all(&text[..500_000]).unwrap();
    let mut pack = PackWriter::open(&path).unwrap();
    let mut take = |from, most| pack.take_file(&task(4, None), Stream::Stderr, &file, from, most, now).unwrap();
    assert_eq!(take(0, 300_000), Taken { next: 300_000, more: true });
    assert_eq!(take(300_000, 300_000), Taken { next: 500_000, more: false });
    assert_eq!(take(500_000, 300_000), Taken { next: 500_000, more: false });
    fs::File::options().append(true).open(folder.join("task")).unwrap().write_all(&text[500_000..]).unwrap();
    assert_eq!(take(500_000, u64::MAX), Taken { next: 800_000, more: false });
    assert_eq!(take(900_000, u64::MAX), Taken { next: 900_000, more: false });
    pack.close().unwrap();
    let mut there = Vec::new();
    for record in all(&path) {
        let Kept::Output(run, Stream::Stderr, bytes) = record else { panic!("{record:?}") };
        assert!(run == task(4, None) && bytes.len() <= 64 << 10);
        there.extend(bytes);
    }
    assert!(there == text);
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let mut pack = PackWriter::open(&path).unwrap();
    let unreadable = fs::File::create(folder.join("task")).unwrap();
    let refused = pack.take_file(&task(0, None), Stream::Stdout, &unreadable, 0, u64::MAX, Instant::now()).unwrap_err();
    assert_eq!(refused.taken, 0);
    let said = refused.to_string();
    assert!(said.starts_with(&format!("cannot read a task's output for {}: Bad file", path.display())), "{said}");
}

#[test]
fn jobs_that_share_a_file_are_kept_apart() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let now = Instant::now();
    let (first, mut second, mut third) = (task(1, None), task(1, None), task(1, None));
    second.step.job = JobId(5610);
    third.step.het = Some(1);
    let runs = [first, second, first, third];
    let mut pack = PackWriter::open(&path).unwrap();
    runs.iter().for_each(|run| pack.end(run, &ended(0), now).unwrap());
    pack.close().unwrap();
    assert_eq!(all(&path), runs.map(|run| Kept::End(run, ended(0))));
    assert_eq!(some(&path, "1").0.len(), 4);
    let mut reader = PackReader::open(&path).unwrap();
    reader.select(garrick_pack::Selection::one(second.step)).unwrap();
    assert_eq!(crate::support::drain(&mut reader).0, [Kept::End(second, ended(0))]);
}

#[test]
fn a_file_that_someone_else_changed_is_not_written_on() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let now = Instant::now();
    let mut pack = PackWriter::open(&path).unwrap();
    pack.end(&task(0, None), &ended(0), now).unwrap();
    pack.flush(now).unwrap();
    let expected = length(&path);
    fs::File::options().append(true).open(&path).unwrap().write_all(b"garbage").unwrap();
    pack.end(&task(1, None), &ended(0), now).unwrap();
    let error = pack.flush(now).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{}: changed by another program: {} bytes long, not {expected}", path.display(), expected + 7)
    );
    assert!(pack.due().unwrap() > now + FLUSH_AFTER, "the next try takes its time");
    // The records are kept; once the file is as it was left, they get there.
    fs::File::options().write(true).open(&path).unwrap().set_len(expected).unwrap();
    pack.flush(now).unwrap();
    assert_eq!(all(&path).len(), 2);
}
