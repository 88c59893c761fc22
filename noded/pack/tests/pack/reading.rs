use crate::support::{Kept, Scratch, all, drain, ended, length, picked, run_of, some, spoil, task};
use garrick_model::ids::StepKey;
use garrick_pack::{PackError, PackReader, PackWriter, Presence, Stream, Tail, Watch};
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A pack of so many blocks, a step in each, and the offsets at which they begin.
fn blocks(path: &Path, count: u32) -> Vec<u64> {
    let now = Instant::now();
    let mut pack = PackWriter::open(path).unwrap();
    let mut begins = Vec::new();
    for step in 0..count {
        begins.push(length(path));
        pack.output(&task(step, None), Stream::Stdout, format!("step {step}\n").as_bytes(), now).unwrap();
        pack.flush(now).unwrap();
    }
    pack.close().unwrap();
    begins
}

fn output(step: u32) -> Kept {
    Kept::Output(task(step, None), Stream::Stdout, format!("step {step}\n").into_bytes())
}

fn offsets(errors: &[PackError]) -> Vec<u64> {
    let offset = |e: &PackError| if let PackError::Damaged { offset, .. } = e { *offset } else { panic!("{e}") };
    errors.iter().map(offset).collect()
}

#[test]
fn damage_is_reported_and_reading_goes_on_behind_it() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let begins = blocks(&path, 10);
    spoil(&path, begins[3] + 80);
    spoil(&path, begins[6] + 5);
    let (records, errors) = drain(&mut PackReader::open(&path).unwrap());
    assert_eq!(records, [0, 1, 2, 4, 5, 7, 8, 9].map(output));
    assert_eq!(offsets(&errors), [begins[3], begins[6]]);
    assert_eq!(
        errors[0].to_string(),
        format!("{}: damaged block at offset {}: its checksum does not fit", path.display(), begins[3])
    );
    assert_eq!(
        errors[1].to_string(),
        format!("{}: damaged block at offset {}: no block begins there", path.display(), begins[6])
    );
}

#[test]
fn few_steps_are_read_without_the_others() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let begins = blocks(&path, 300);
    // What is damaged elsewhere is not even seen.
    (0..300).filter(|n| *n != 150).for_each(|n| spoil(&path, begins[n] + 75));
    let (records, errors) = some(&path, "150");
    assert_eq!((records.as_slice(), errors.len()), ([output(150)].as_slice(), 0));
    let (records, errors) = some(&path, "[149-150,299]");
    assert_eq!(records, [output(150)]);
    assert_eq!(offsets(&errors), [begins[149], begins[299]]);
    assert_eq!(some(&path, "300").0, []);
}

#[test]
fn a_damaged_index_only_costs_time() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let begins = blocks(&path, 300);
    // The index written before block n stands in front of it: 64 blocks are followed by one.
    let index = begins[127] + (begins[127] - begins[126]);
    let kinds = fs::read(&path).unwrap();
    assert_eq!(kinds[usize::try_from(index).unwrap() + 4], 2, "that is an index");
    for at in [index + 80, index + 4] {
        spoil(&path, at);
        let (records, errors) = some(&path, "[3,70,100,130,299]");
        assert_eq!(records, [3, 70, 100, 130, 299].map(output));
        // Only the header that cannot be read is noticed: what had been there could have been records.
        assert_eq!(offsets(&errors), if at == index + 4 { vec![index] } else { vec![] });
    }
    // Without any index all block headers are gone through.
    let end = length(&path);
    spoil(&path, end - 3);
    spoil(&path, begins[256]);
    let (records, _) = some(&path, "[3,70,100,130,299]");
    assert_eq!(records, [3, 70, 100, 130, 299].map(output));
}

#[test]
fn a_writer_makes_a_new_index_when_it_cannot_find_the_old_one() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let begins = blocks(&path, 100);
    let closing = begins[99] + (begins[99] - begins[98]);
    // The last index is not where the last block says, and one block cannot be read.
    let now = Instant::now();
    let mut pack = PackWriter::open(&path).unwrap();
    pack.end(&task(100, None), &ended(0), now).unwrap();
    drop(pack);
    spoil(&path, closing + 10);
    spoil(&path, begins[20] + 80);
    let mut pack = PackWriter::open(&path).unwrap();
    assert_eq!(pack.cut_bytes(), 0);
    pack.end(&task(101, None), &ended(0), now).unwrap();
    pack.close().unwrap();
    (0..100).filter(|n| *n != 50).for_each(|n| spoil(&path, begins[n] + 75));
    let (records, errors) = some(&path, "[50,101]");
    assert_eq!(records, [output(50), Kept::End(task(101, None), ended(0))]);
    // Any step could be in what the writer could not read.
    assert_eq!(offsets(&errors), [begins[20], closing]);
}

#[test]
fn what_no_index_names_yet_is_found() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let now = Instant::now();
    let mut pack = PackWriter::open(&path).unwrap();
    let runs: Vec<_> = (0..200).map(|n| run_of(StepKey::task(7, n))).collect();
    for (n, run) in runs.iter().enumerate() {
        pack.end(run, &ended(0), now).unwrap();
        if n % 2 == 1 {
            pack.flush(now).unwrap();
        }
    }
    let wanted = [3, 150, 198].map(|n: usize| Kept::End(runs[n], ended(0)));
    assert_eq!(some(&path, "7_[3,150,198]").0, wanted);
    pack.close().unwrap();
    assert_eq!(some(&path, "7_[3,150,198]").0, wanted);
    assert_eq!(some(&path, "7").0.len(), 200);
}

#[test]
fn a_pack_is_followed_while_it_is_written() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let now = Instant::now();
    let mut pack = PackWriter::open(&path).unwrap();
    let mut every = PackReader::open(&path).unwrap();
    let mut one = PackReader::open(&path).unwrap();
    one.select(picked("1")).unwrap();
    let watch = Watch::default();
    watch.file(&path);
    for step in 0..130 {
        assert_eq!(every.writer().unwrap(), Presence::Present);
        output(step).put(&mut pack, now);
        pack.flush(now).unwrap();
        watch.wait(Duration::from_secs(60));
        assert_eq!(drain(&mut every).0, [output(step)]);
        assert_eq!(drain(&mut one).0, if step == 1 { vec![output(1)] } else { vec![] });
        assert_eq!(every.tail(), Tail::Open);
    }
    pack.close().unwrap();
    drop(pack);
    assert_eq!(every.writer().unwrap(), Presence::Absent);
    assert_eq!(drain(&mut every).0, []);
    assert_eq!(every.tail(), Tail::Closed);
}

#[test]
fn a_block_that_is_being_written_is_waited_for() {
    let folder = Scratch::new();
    let (path, growing) = (folder.join("out.pack"), folder.join("growing.pack"));
    let begins = blocks(&path, 2);
    let bytes = fs::read(&path).unwrap();
    fs::write(&growing, &bytes[..16]).unwrap();
    let mut reader = PackReader::open(&growing).unwrap();
    let mut file = fs::File::options().append(true).open(&growing).unwrap();
    let mut seen = Vec::new();
    for (at, byte) in bytes.iter().enumerate().skip(16) {
        file.write_all(&[*byte]).unwrap();
        let (records, errors) = drain(&mut reader);
        assert!(errors.is_empty(), "{errors:?} at {at}");
        seen.extend(records);
        let end = u64::try_from(at).unwrap() + 1;
        let whole = begins.contains(&end) || end == begins[1] + (begins[1] - begins[0]) || at + 1 == bytes.len();
        assert_eq!(matches!(reader.tail(), Tail::Torn { .. }), !whole, "at {at}");
    }
    assert_eq!(seen, [output(0), output(1)]);
    assert_eq!(reader.tail(), Tail::Closed);
}

#[test]
fn a_followed_file_that_is_emptied_is_read_from_its_beginning() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    blocks(&path, 3);
    let mut reader = PackReader::open(&path).unwrap();
    assert_eq!(drain(&mut reader).0.len(), 3);
    fs::File::create(&path).unwrap();
    blocks(&path, 1);
    let (records, errors) = drain(&mut reader);
    assert_eq!(records, [output(0)]);
    assert!(matches!(errors.as_slice(), [PackError::Changed { .. }]), "{errors:?}");
}

#[test]
fn a_pack_within_a_pack_is_not_taken_apart() {
    let folder = Scratch::new();
    let (inner, path) = (folder.join("inner.pack"), folder.join("out.pack"));
    blocks(&inner, 5);
    let bytes = fs::read(&inner).unwrap();
    let now = Instant::now();
    let mut pack = PackWriter::open(&path).unwrap();
    let mut begins: Vec<u64> = Vec::new();
    for step in 0..3 {
        begins.push(length(&path));
        pack.output(&task(step, None), Stream::Stdout, &bytes, now).unwrap();
        pack.flush(now).unwrap();
    }
    drop(pack);
    spoil(&path, begins[1] + 20);
    let (records, errors) = drain(&mut PackReader::open(&path).unwrap());
    assert_eq!(records, [0, 2].map(|n| Kept::Output(task(n, None), Stream::Stdout, bytes.clone())));
    assert_eq!(offsets(&errors), [begins[1]]);
}

#[test]
fn what_is_no_pack_is_refused_with_its_name() {
    let folder = Scratch::new();
    let said = |path: PathBuf| PackReader::open(&path).unwrap_err().to_string();
    fs::write(folder.join("empty"), "").unwrap();
    assert_eq!(said(folder.join("empty")), format!("{}: not an output pack", folder.join("empty").display()));
    assert_eq!(said(folder.join("")), format!("{}: not a plain file", folder.join("").display()));
    let none = folder.join("none");
    assert_eq!(said(none.clone()), format!("cannot open {}: No such file or directory (os error 2)", none.display()));
    assert!(PackReader::open(&none).unwrap_err().is_absent());
    let later = folder.join("later.pack");
    blocks(&later, 1);
    let mut bytes = fs::read(&later).unwrap();
    bytes[8] = 9;
    fs::write(&later, bytes).unwrap();
    let version = format!("{}: an output pack of version 9; this program knows version 1", later.display());
    assert_eq!(said(later.clone()), version);
    assert_eq!(PackWriter::open(&later).unwrap_err().to_string(), version);
    assert!(garrick_pack::is_pack(&later) && !garrick_pack::is_pack(&folder.join("empty")));
}

#[test]
fn a_torn_end_is_told_from_the_rest() {
    let folder = Scratch::new();
    let path = folder.join("out.pack");
    let begins = blocks(&path, 3);
    fs::File::options().write(true).open(&path).unwrap().set_len(begins[2] + 80).unwrap();
    let mut reader = PackReader::open(&path).unwrap();
    assert_eq!(drain(&mut reader).0, [output(0), output(1)]);
    assert_eq!(reader.tail(), Tail::Torn { offset: begins[2], bytes: 80 });
    assert_eq!(some(&path, "[0,2]").0, [output(0)]);
    let pack = PackWriter::open(&path).unwrap();
    assert_eq!(pack.cut_bytes(), 80);
    assert_eq!(length(&path), begins[2]);
    assert_eq!(all(&path).len(), 2);
}
