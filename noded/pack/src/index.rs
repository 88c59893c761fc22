//! Which steps are in which block, so that a reader of few steps skips most of the file.

use crate::{
    block::Mark,
    record::{Group, put_varint, take_u32, take_varint},
};
use garrick_model::ids::JobId;

/// Neighbours: consecutive tasks of one array, or consecutive steps that are no arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub first: Mark,
    pub last: Mark,
}

/// A block of records, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub offset: u64,
    /// `None` for a block that could not be read when the index was made: any step may be in it.
    pub holds: Option<(Group, Vec<Span>)>,
}

const READABLE: u8 = 0;
const UNREADABLE: u8 = 1;

/// Marks as few spans. Leaves them sorted.
pub(crate) fn spans(marks: &mut Vec<Mark>) -> Vec<Span> {
    marks.sort_unstable();
    marks.dedup();
    let mut spans: Vec<Span> = Vec::new();
    for mark in marks.iter().copied() {
        if let Some(span) = spans.last_mut() {
            let follows = |n: u32, last: u32| last.checked_add(1) == Some(n);
            let next_task = mark.step == span.last.step && span.last.task > 0 && follows(mark.task, span.last.task);
            let lone_steps = mark.task == 0 && span.last.task == 0;
            let next_step = lone_steps && follows(mark.step, span.last.step);
            if next_task || next_step {
                span.last = mark;
                continue;
            }
        }
        spans.push(Span { first: mark, last: mark });
    }
    spans
}

/// Entries that are not in the file yet, as they will stand in it.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    entries: Vec<u8>,
    from: u64,
    last: u64,
    count: u32,
}

impl Pending {
    /// For what stands from an offset on.
    pub fn from(offset: u64) -> Self {
        Self { entries: Vec::new(), from: offset, last: offset, count: 0 }
    }

    /// Blocks.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes, roughly.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// A block was written, or found and not readable.
    pub fn add(&mut self, entry: &Entry) {
        let out = &mut self.entries;
        put_varint(out, entry.offset - self.last);
        self.last = entry.offset;
        self.count += 1;
        let Some((group, spans)) = &entry.holds else {
            out.push(UNREADABLE);
            return;
        };
        out.push(READABLE);
        put_varint(out, u64::from(group.job.0));
        put_varint(out, group.het.map_or(0, |offset| u64::from(offset) + 1));
        put_varint(out, spans.len() as u64);
        let mut before = Mark::default();
        for Span { first, last } in spans {
            let steps = last.step - first.step;
            put_varint(out, u64::from(first.step - before.step));
            let base = if first.step == before.step { before.task } else { 0 };
            put_varint(out, u64::from(first.task - base));
            let (more, along) = if steps > 0 { (steps, 1) } else { (last.task - first.task, 0) };
            put_varint(out, u64::from(more) << 1 | along);
            before = *last;
        }
    }

    /// The payload of an index that covers the file up to there.
    pub fn payload(&self, to: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.entries.len() + 2 * 10);
        put_varint(&mut out, self.from);
        put_varint(&mut out, to - self.from);
        out.extend_from_slice(&self.entries);
        out
    }
}

/// An index as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Index {
    /// Offset from which on it covers the file.
    pub from: u64,
    /// Offset up to which it does.
    pub to: u64,
    /// The blocks of records there.
    pub entries: Vec<Entry>,
}

/// Reads the payload of an index; `None` for nonsense.
pub(crate) fn decode(mut payload: &[u8]) -> Option<Index> {
    let from = take_varint(&mut payload)?;
    let to = from.checked_add(take_varint(&mut payload)?)?;
    let mut offset = from;
    let mut entries = Vec::new();
    while !payload.is_empty() {
        offset = offset.checked_add(take_varint(&mut payload)?)?;
        let (form, rest) = payload.split_first()?;
        payload = rest;
        let holds = match *form {
            UNREADABLE => None,
            READABLE => Some(holds(&mut payload)?),
            _ => return None,
        };
        entries.push(Entry { offset, holds });
    }
    Some(Index { from, to, entries })
}

fn holds(payload: &mut &[u8]) -> Option<(Group, Vec<Span>)> {
    let job = JobId(take_u32(payload)?);
    let het = match take_varint(payload)? {
        0 => None,
        n => Some(u32::try_from(n - 1).ok()?),
    };
    let count = take_varint(payload)?;
    let mut spans = Vec::new();
    let mut before = Mark::default();
    for _ in 0..count {
        let step = before.step.checked_add(take_u32(payload)?)?;
        let base = if step == before.step { before.task } else { 0 };
        let first = Mark { step, task: base.checked_add(take_u32(payload)?)? };
        let length = take_varint(payload)?;
        let more = u32::try_from(length >> 1).ok()?;
        let last = match length & 1 {
            0 => Mark { step, task: first.task.checked_add(more)? },
            _ => Mark { step: step.checked_add(more)?, task: 0 },
        };
        spans.push(Span { first, last });
        before = last;
    }
    Some((Group { job, het }, spans))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn marks(list: &[(u32, u32)]) -> Vec<Mark> {
        list.iter().map(|&(step, task)| Mark { step, task }).collect()
    }

    fn shown(list: &[(u32, u32)]) -> Vec<((u32, u32), (u32, u32))> {
        spans(&mut marks(list))
            .into_iter()
            .map(|s| ((s.first.step, s.first.task), (s.last.step, s.last.task)))
            .collect()
    }

    #[test]
    fn neighbours_are_one_span() {
        assert_eq!(shown(&[(3, 0), (2, 0), (1, 0), (2, 0)]), [((1, 0), (3, 0))]);
        assert_eq!(shown(&[(7, 3), (7, 2), (7, 5)]), [((7, 2), (7, 3)), ((7, 5), (7, 5))]);
        assert_eq!(shown(&[(7, 0), (7, 1), (8, 0), (9, 0)]), [((7, 0), (7, 0)), ((7, 1), (7, 1)), ((8, 0), (9, 0))]);
        assert_eq!(shown(&[(7, 4), (8, 5)]), [((7, 4), (7, 4)), ((8, 5), (8, 5))]);
    }

    #[test]
    fn a_thousand_tasks_in_order_take_a_few_bytes() {
        let mut many: Vec<Mark> = (1..1001).map(|task| Mark { step: 7, task }).collect();
        let mut pending = Pending::from(16);
        let group = Group { job: JobId(1), het: None };
        pending.add(&Entry { offset: 16, holds: Some((group, spans(&mut many))) });
        assert!(pending.len() < 12, "{}", pending.len());
    }

    proptest! {
        #[test]
        fn indices_read_back(
            blocks in proptest::collection::vec((1u64..1000, any::<bool>(), any::<Option<u16>>(), proptest::collection::vec((0u32..6, 0u32..6), 0..20)), 0..9),
        ) {
            let mut offset = 16;
            let mut pending = Pending::from(offset);
            let mut entries = Vec::new();
            for (length, readable, het, list) in blocks {
                let group = Group { job: JobId(9), het: het.map(u32::from) };
                let entry = Entry { offset, holds: readable.then(|| (group, spans(&mut marks(&list)))) };
                pending.add(&entry);
                entries.push(entry);
                offset += length;
            }
            prop_assert_eq!(decode(&pending.payload(offset)), Some(Index { from: 16, to: offset, entries }));
        }

        #[test]
        fn spans_hold_each_mark_once(list in proptest::collection::vec((0u32..9, 0u32..9), 0..60)) {
            let mut sorted = marks(&list);
            let spans = spans(&mut sorted);
            let mut held = Vec::new();
            for span in spans {
                if span.first.step == span.last.step {
                    held.extend((span.first.task..=span.last.task).map(|task| Mark { step: span.first.step, task }));
                } else {
                    prop_assert_eq!((span.first.task, span.last.task), (0, 0));
                    held.extend((span.first.step..=span.last.step).map(|step| Mark { step, task: 0 }));
                }
            }
            prop_assert_eq!(held, sorted);
        }

        #[test]
        fn any_bytes_are_an_index_or_nonsense(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
