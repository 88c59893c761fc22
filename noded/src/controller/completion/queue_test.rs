#![allow(clippy::unwrap_used)]
use super::super::testing::{completed, folder, waiting};
use super::*;

fn jobs(runs: &[Arc<Waiting>]) -> Vec<u64> {
    runs.iter().map(|run| run.position.0).collect()
}

fn files(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Runs at those positions.
fn push(queue: &mut Queue, positions: std::ops::RangeInclusive<u64>) {
    for position in positions {
        queue.push(Position(position), completed());
    }
}

#[test]
fn what_is_saved_is_there_after_a_restart_and_comes_once() {
    let place = folder();
    let mut queue = Queue::open(&place).unwrap();
    push(&mut queue, 1..=3);
    queue.save(Position(5)).unwrap();
    push(&mut queue, 6..=6);
    drop(queue);
    // The log gives again what it was not told of: what is saved comes once, what was not is there.
    let mut queue = Queue::open(&place).unwrap();
    push(&mut queue, 2..=6);
    assert_eq!(jobs(&queue.first(10)), [1, 2, 3]);
    queue.written(2);
    assert_eq!(jobs(&queue.first(10)), [3]);
    queue.written(1);
    assert_eq!(files(&place), 0, "a part that is written is gone");
    assert_eq!(jobs(&queue.first(10)), [6]);
    queue.written(1);
    assert!(queue.first(10).is_empty() && queue.waiting() == 0);
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn what_is_being_written_may_be_saved_meanwhile() {
    let place = folder();
    let mut queue = Queue::open(&place).unwrap();
    push(&mut queue, 1..=3);
    assert_eq!(jobs(&queue.first(2)), [1, 2]);
    queue.save(Position(3)).unwrap();
    push(&mut queue, 4..=4);
    queue.written(2);
    assert_eq!(jobs(&queue.first(2)), [3]);
    queue.written(1);
    assert_eq!(jobs(&queue.first(2)), [4]);
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn many_wait_on_disk_in_order() {
    let place = folder();
    let mut queue = Queue::open(&place).unwrap();
    let many = 3 * u64::try_from(MOST_FRESH).unwrap() + 7;
    for position in 1..=many {
        if queue.is_full() {
            queue.save(Position(position - 1)).unwrap();
        }
        push(&mut queue, position..=position);
    }
    assert_eq!(queue.waiting() as u64, many);
    queue.save(Position(many)).unwrap();
    let mut queue = Queue::open(&place).unwrap();
    let mut seen = Vec::new();
    loop {
        let next = queue.first(PART);
        if next.is_empty() {
            break;
        }
        seen.extend(jobs(&next));
        queue.written(next.len());
    }
    assert!(seen.iter().copied().eq(1..=many));
    assert_eq!(files(&place), 0);
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn a_file_that_cannot_be_read_holds_up_no_other() {
    let place = folder();
    let mut queue = Queue::open(&place).unwrap();
    push(&mut queue, 1..=1);
    queue.save(Position(1)).unwrap();
    push(&mut queue, 2..=2);
    queue.save(Position(2)).unwrap();
    fs::write(place.join(format!("{:020}", 1)), b"\x01").unwrap();
    let mut queue = Queue::open(&place).unwrap();
    assert_eq!(jobs(&queue.first(10)), [2]);
    assert!(place.join(format!("{:020}.unreadable", 1)).exists());
    fs::remove_dir_all(&place).unwrap();
}

/// Bytes that an earlier version has saved: a part of one run. A new form gets another file, made with `GARRICK_WRITE_SAMPLES` in the
/// environment; those that are there stay.
#[test]
fn what_an_earlier_version_saved_is_read() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/jobcomp-1.part");
    if std::env::var_os("GARRICK_WRITE_SAMPLES").is_some() && !sample.exists() {
        let saved = Saved { covers: Position(12), runs: [waiting(11, 7)].into() };
        fs::create_dir_all(sample.parent().unwrap()).unwrap();
        fs::write(&sample, rmp_serde::to_vec_named(&saved).unwrap()).unwrap();
    }
    let bytes = fs::read(&sample).unwrap();
    let saved: Saved = rmp_serde::from_slice(&bytes).unwrap();
    assert_eq!((saved.covers, saved.runs.len()), (Position(12), 1));
    assert_eq!(*saved.runs[0], *waiting(11, 7));
}
