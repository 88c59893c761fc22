//! Records: a piece of a task's output, or how the task ended. The crate's documentation has their format.

use garrick_model::{
    ids::{JobId, StepId, StepNum},
    messages::shepherd::Stream,
    state::ExitStatus,
    time::Timestamp,
    usage::TaskUsage,
};
use std::ops::Range;

/// One try of one task of a step: whose record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskRun {
    /// The step, with its job and its task of a step array.
    pub step: StepId,
    /// Tries of the step before this one.
    pub attempt: u32,
    /// Rank of the task in its step.
    pub rank: u32,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndRecord {
    /// Exit code and signal.
    pub status: ExitStatus,
    /// When it was started.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// What it used.
    pub usage: TaskUsage,
}

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A piece of output. Pieces of one stream of one task follow each other in their order.
    Output {
        /// Of which stream.
        stream: Stream,
        /// The piece.
        bytes: &'a [u8],
    },
    /// The task's end.
    End(EndRecord),
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Whose.
    pub task: TaskRun,
    /// What.
    pub content: Content<'a>,
}

/// The job and the heterogeneous component that all records of a block are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub job: JobId,
    pub het: Option<u32>,
}

impl Group {
    pub fn of(step: &StepId) -> Self {
        Self { job: step.job, het: step.het }
    }
}

const STDOUT: u8 = 0;
const STDERR: u8 = 1;
const END: u8 = 2;

/// Most bytes that a record takes beside its output: kind, length and four numbers, the task's with 33 bits.
pub(crate) const MAX_OVERHEAD: usize = 1 + 5 + 4 * 5;

/// The number that stands for a step.
pub(crate) fn code_of(step: StepNum) -> u32 {
    match step {
        StepNum::Number(n) => n,
        // -4 to -6 in 32 bits.
        special => special.slurm_number() as u32,
    }
}

fn step_of(code: u32) -> StepNum {
    [StepNum::Batch, StepNum::Extern, StepNum::Interactive]
        .into_iter()
        .find(|special| code_of(*special) == code)
        .unwrap_or(StepNum::Number(code))
}

/// Appends a number of variable length.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Takes a number of variable length off the frontend; `None` for one that ends too early or is too long.
pub(crate) fn take_varint(from: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        n |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

/// The same for a number that fits 32 bits.
pub(crate) fn take_u32(from: &mut &[u8]) -> Option<u32> {
    take_varint(from).and_then(|n| u32::try_from(n).ok())
}

fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

fn varint_len(n: u64) -> usize {
    (64 - (n | 1).leading_zeros() as usize).div_ceil(7)
}

fn owner(task: &TaskRun) -> [u64; 4] {
    let array = task.step.array.map_or(0, |index| u64::from(index) + 1);
    [u64::from(code_of(task.step.step)), array, u64::from(task.attempt), u64::from(task.rank)]
}

fn put_head(out: &mut Vec<u8>, kind: u8, task: &TaskRun, rest: usize) {
    let owner = owner(task);
    let body = owner.iter().map(|n| varint_len(*n)).sum::<usize>() + rest;
    out.push(kind);
    put_varint(out, body as u64);
    owner.into_iter().for_each(|n| put_varint(out, n));
}

/// Appends a piece of output.
pub(crate) fn put_output(out: &mut Vec<u8>, task: &TaskRun, stream: Stream, bytes: &[u8]) {
    let kind = match stream {
        Stream::Stdout => STDOUT,
        Stream::Stderr => STDERR,
    };
    put_head(out, kind, task, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends an end.
pub(crate) fn put_end(out: &mut Vec<u8>, task: &TaskRun, end: &EndRecord) {
    let EndRecord { status, started, ended, usage } = end;
    let mut rest = vec![status.code, status.signal.unwrap_or(0)];
    for n in [zigzag(started.0), zigzag(ended.0), usage.user_us, usage.system_us, usage.max_rss_kib] {
        put_varint(&mut rest, n);
    }
    let more = [usage.pages, usage.read, usage.written];
    let used = more.iter().rposition(|n| *n != 0).map_or(0, |last| last + 1);
    more[..used].iter().for_each(|n| put_varint(&mut rest, *n));
    put_head(out, END, task, rest.len());
    out.extend_from_slice(&rest);
}

/// A record in a block, its output by place.
#[derive(Debug)]
pub(crate) struct Found {
    pub task: TaskRun,
    what: What,
}

#[derive(Debug)]
enum What {
    Output(Stream, Range<usize>),
    End(EndRecord),
}

impl Found {
    /// The record, with its output out of the block that it was found in.
    pub fn record<'a>(&self, raw: &'a [u8]) -> Record<'a> {
        let content = match &self.what {
            What::Output(stream, range) => Content::Output { stream: *stream, bytes: &raw[range.clone()] },
            What::End(end) => Content::End(*end),
        };
        Record { task: self.task, content }
    }
}

/// What stands at `*at` in a block: `Some(None)` for a record of a kind that is not known, `None` for nonsense. Moves `*at`
/// behind it.
pub(crate) fn find(raw: &[u8], at: &mut usize, group: Group) -> Option<Option<Found>> {
    let mut rest = raw.get(*at..)?;
    let (kind, after) = rest.split_first()?;
    rest = after;
    let length = usize::try_from(take_varint(&mut rest)?).ok()?;
    let body_at = raw.len() - rest.len();
    let mut body = rest.get(..length)?;
    let end_at = body_at + length;
    *at = end_at;
    if ![STDOUT, STDERR, END].contains(kind) {
        return Some(None);
    }
    let step = step_of(take_u32(&mut body)?);
    let array = match take_varint(&mut body)? {
        0 => None,
        n => Some(u32::try_from(n - 1).ok()?),
    };
    let step = StepId { job: group.job, het: group.het, step, array };
    let task = TaskRun { step, attempt: take_u32(&mut body)?, rank: take_u32(&mut body)? };
    let what = match *kind {
        END => What::End(end(body)?),
        STDERR => What::Output(Stream::Stderr, end_at - body.len()..end_at),
        _ => What::Output(Stream::Stdout, end_at - body.len()..end_at),
    };
    Some(Some(Found { task, what }))
}

fn end(mut body: &[u8]) -> Option<EndRecord> {
    let [code, signal, rest @ ..] = body else { return None };
    body = rest;
    let status = ExitStatus { code: *code, signal: Some(*signal).filter(|s| *s != 0) };
    let mut number = || take_varint(&mut body);
    let (started, ended) = (Timestamp(unzigzag(number()?)), Timestamp(unzigzag(number()?)));
    let (user_us, system_us, max_rss_kib) = (number()?, number()?, number()?);
    // An earlier version ends here, and so does what is zero.
    let mut more = || number().unwrap_or(0);
    let (pages, read, written) = (more(), more(), more());
    let usage = TaskUsage { user_us, system_us, max_rss_kib, pages, read, written, ..TaskUsage::default() };
    Some(EndRecord { status, started, ended, usage })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn task(step: StepNum, array: Option<u32>) -> TaskRun {
        TaskRun { step: StepId { job: JobId(5), het: None, step, array }, attempt: 1, rank: 2 }
    }

    #[test]
    fn special_steps_have_codes_of_their_own() {
        for (step, code) in [(StepNum::Batch, 0xffff_fffb), (StepNum::Extern, 0xffff_fffc), (StepNum::Number(7), 7)] {
            assert_eq!(code_of(step), code);
            assert_eq!(step_of(code), step);
        }
        assert_eq!(step_of(0xffff_fffa), StepNum::Interactive);
    }

    #[test]
    fn kinds_and_fields_of_later_versions_are_skipped() {
        let group = Group { job: JobId(5), het: None };
        let mut raw = vec![9, 2, 0xff, 0xff];
        let whole = task(StepNum::Number(3), Some(u32::MAX));
        let ended = EndRecord {
            status: ExitStatus { code: 0, signal: Some(9) },
            started: Timestamp(-1),
            ended: Timestamp(i64::MAX),
            usage: TaskUsage { user_us: u64::MAX, max_rss_kib: 3, pages: 1, written: 2, ..TaskUsage::default() },
        };
        put_end(&mut raw, &whole, &ended);
        raw.extend_from_slice(&[1, 2, 3]);
        // The record's length is the varint behind its kind; here it fits one byte.
        raw[5] += 3;
        let mut at = 0;
        assert!(find(&raw, &mut at, group).unwrap().is_none());
        let found = find(&raw, &mut at, group).unwrap().unwrap();
        assert_eq!(found.record(&raw), Record { task: whole, content: Content::End(ended) });
        assert_eq!(at, raw.len());
    }

    proptest! {
        #[test]
        fn numbers_read_back(n: u64, i: i64) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, n);
            prop_assert_eq!(bytes.len(), varint_len(n));
            prop_assert_eq!(take_varint(&mut bytes.as_slice()), Some(n));
            prop_assert_eq!(take_varint(&mut &bytes[..bytes.len() - 1]), None);
            prop_assert_eq!(unzigzag(zigzag(i)), i);
        }

        #[test]
        fn any_bytes_are_records_or_nonsense(raw: Vec<u8>) {
            let mut at = 0;
            while let Some(found) = find(&raw, &mut at, Group { job: JobId(1), het: None }) {
                if let Some(found) = found {
                    found.record(&raw);
                }
            }
        }

        #[test]
        fn output_reads_back(step: u32, array: Option<u32>, attempt: u32, rank: u32, bytes: Vec<u8>) {
            let step = StepId { job: JobId(5), het: Some(1), step: step_of(step), array };
            let task = TaskRun { step, attempt, rank };
            let mut raw = Vec::new();
            put_output(&mut raw, &task, Stream::Stderr, &bytes);
            prop_assert!(raw.len() <= bytes.len() + MAX_OVERHEAD);
            let found = find(&raw, &mut 0, Group::of(&step)).unwrap().unwrap();
            prop_assert_eq!(found.record(&raw), Record { task, content: Content::Output { stream: Stream::Stderr, bytes: &bytes } });
        }
    }
}
