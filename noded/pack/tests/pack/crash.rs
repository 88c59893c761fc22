//! Whatever is written in whatever order, and wherever a crash cuts the file off: what stands in whole blocks reads back,
//! and writing goes on.

use crate::support::{Kept, Scratch, all, ended, length, picked, run_of, some, task};
use garrick_model::ids::{JobId, StepKey, StepNum};
use garrick_pack::{PackWriter, Stream, TaskRun};
use proptest::{prelude::*, sample::Index};
use std::{fs::File, path::Path, time::Instant};

#[derive(Clone, Debug)]
enum Act {
    Output(TaskRun, Stream, Vec<u8>),
    End(TaskRun, u8),
    Flush,
    Close,
    Reopen,
}

fn run() -> impl Strategy<Value = TaskRun> {
    let step = prop_oneof![8 => (0u32..12).prop_map(StepNum::Number), 1 => Just(StepNum::Batch)];
    (step, proptest::option::of(0u32..40), 0u32..2, 0u32..3, prop_oneof![9 => Just(5609), 1 => Just(5610)]).prop_map(
        |(step, array, attempt, rank, job)| {
            let array = array.filter(|_| step.number().is_some());
            let mut run = TaskRun { attempt, rank, ..run_of(StepKey { step, array }) };
            run.step.job = JobId(job);
            run
        },
    )
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => proptest::collection::vec(any::<u8>(), 1..200),
        20 => "[a-z ]{1,60}\n".prop_map(String::into_bytes),
        1 => (60_000usize..65_536, any::<u8>()).prop_map(|(n, byte)| vec![byte; n]),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    prop_oneof![
        10 => (run(), stream, bytes()).prop_map(|(run, stream, bytes)| Act::Output(run, stream, bytes)),
        10 => (run(), any::<u8>()).prop_map(|(run, code)| Act::End(run, code)),
        8 => Just(Act::Flush),
        1 => Just(Act::Close),
        1 => Just(Act::Reopen),
    ]
}

/// Does all that; gives the records, and how many of them the file holds at which length.
fn perform(path: &Path, acts: &[Act]) -> (Vec<Kept>, Vec<(u64, usize)>) {
    let now = Instant::now();
    let mut records = Vec::new();
    let mut lengths = vec![(0, 0)];
    let mut pack = PackWriter::open(path).unwrap();
    for act in acts {
        let before = records.len();
        match act {
            Act::Output(run, stream, bytes) => records.push(Kept::Output(*run, *stream, bytes.clone())),
            Act::End(run, code) => records.push(Kept::End(*run, ended(*code))),
            Act::Flush => pack.flush(now).unwrap(),
            Act::Close => {
                // In two steps, so that the length between block and index is known.
                pack.flush(now).unwrap();
                lengths.push((length(path), before));
                pack.close().unwrap();
            }
            Act::Reopen => {
                drop(pack);
                pack = PackWriter::open(path).unwrap();
                assert_eq!(pack.cut_bytes(), 0);
            }
        }
        if let Some(record) = records.get(before) {
            record.put(&mut pack, now);
        }
        let length = length(path);
        if lengths.last().unwrap().0 < length {
            // A record that finds no room makes those before it go.
            lengths.push((length, before));
        }
    }
    // What was not flushed goes with the writer.
    drop(pack);
    lengths.push((length(path), records.len()));
    (records, lengths)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cut_costs_no_more_than_the_block_that_it_hits(
        acts in proptest::collection::vec(act(), 0..300), at in any::<Index>(), which in "[0-9]|1[01]|[0-9]_\\[3-20\\]|batch|\\*",
    ) {
        let folder = Scratch::new();
        let path = folder.join("out.pack");
        let (records, lengths) = perform(&path, &acts);
        let cut = at.index(usize::try_from(length(&path)).unwrap() + 1) as u64;
        File::options().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let held = lengths.iter().rfind(|(length, _)| *length <= cut).unwrap().1;
        if cut >= 16 {
            prop_assert_eq!(&all(&path), &records[..held]);
        }

        let mut pack = PackWriter::open(&path).unwrap();
        let more = [Kept::Output(task(3, None), Stream::Stdout, b"on\n".to_vec()), Kept::End(task(3, None), ended(0))];
        more.iter().for_each(|record| record.put(&mut pack, Instant::now()));
        pack.flush(Instant::now()).unwrap();
        let expected: Vec<Kept> = records[..held].iter().chain(&more).cloned().collect();
        let selection = picked(&which);
        let chosen: Vec<Kept> = expected.iter().filter(|r| selection.contains(&r.task().step)).cloned().collect();
        for closed in [false, true] {
            if closed {
                pack.close().unwrap();
            }
            prop_assert_eq!(&all(&path), &expected);
            let (records, errors) = some(&path, &which);
            prop_assert!(errors.is_empty());
            prop_assert_eq!(&records, &chosen);
        }
    }

    /// Whatever is in a file, a reader comes to its end, and a writer leaves something that reads.
    #[test]
    fn any_bytes_behind_a_header_are_read_to_their_end(
        acts in proptest::collection::vec(act(), 0..60), spoilt in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let folder = Scratch::new();
        let path = folder.join("out.pack");
        let (records, _) = perform(&path, &acts);
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.len() > 16 {
            for (at, byte) in spoilt {
                let at = 16 + at.index(bytes.len() - 16);
                bytes[at] = byte;
            }
            std::fs::write(&path, bytes).unwrap();
        }
        let (read, _) = some_and_all(&path);
        // What reads is what was written, in its order.
        let mut written = records.iter();
        prop_assert!(read.iter().all(|record| written.any(|w| w == record)));
        let mut pack = PackWriter::open(&path).unwrap();
        let last = Kept::End(task(77, None), ended(7));
        last.put(&mut pack, Instant::now());
        pack.close().unwrap();
        let (read, _) = some_and_all(&path);
        prop_assert_eq!(read.last(), Some(&last));
        prop_assert_eq!(some(&path, "77").0, vec![last]);
    }
}

fn some_and_all(path: &Path) -> (Vec<Kept>, Vec<garrick_pack::PackError>) {
    let (chosen, _) = some(path, "[0-11]");
    let (read, errors) = crate::support::drain(&mut garrick_pack::PackReader::open(path).unwrap());
    assert!(chosen.iter().all(|record| read.contains(record)));
    (read, errors)
}
