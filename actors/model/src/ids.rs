//! Identities: jobs, steps, array tasks, heterogeneous components, and runs of a job (SLUID).
//!
//! Text forms (parsed and printed here): `5609`, `5609_3`, `5609_[1-4,7]`, `5609+1`, `5609.0`, `5609.batch`,
//! `5609.extern`, `5609.interactive`, `5609+1.0`, `5609.7_123`, `5609_3.0`, and SLUIDs such as `sFSNM7YRTC8Q00`.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A job's number in its cluster, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u32);

impl JobId {
    /// In place of a job that is named by one of its runs, until it was looked up. No job has it.
    pub const OF_A_RUN: Self = Self(0);
}

/// The run that an id names, as far as its `.`: `sFSNM7YRTC8Q00`.
pub(crate) fn run_named(text: &str) -> Option<Sluid> {
    text.starts_with('s').then(|| text.parse().ok()).flatten()
}

/// Which step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StepNum {
    /// The batch script.
    Batch,
    /// The external step (processes adopted from outside).
    Extern,
    /// The interactive step of `salloc`.
    Interactive,
    /// A numbered step, from 0.
    Number(u32),
}

/// A step of a job, with its component of a heterogeneous job and its task of a step array where it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepId {
    /// The job.
    pub job: JobId,
    /// Offset of the heterogeneous component, `5609+1.0`.
    #[serde(default)]
    pub het: Option<u32>,
    /// Which step.
    pub step: StepNum,
    /// Task of a step array, `5609.7_123`.
    #[serde(default)]
    pub array: Option<u32>,
}

impl StepId {
    /// A plain step of a job.
    pub const fn new(job: JobId, step: StepNum) -> Self {
        Self { job, het: None, step, array: None }
    }
    /// A step of a job, or a task of one of its step arrays.
    pub const fn of(job: JobId, key: StepKey) -> Self {
        Self { job, het: None, step: key.step, array: key.array }
    }
    /// Which it is within its job.
    pub const fn key(self) -> StepKey {
        StepKey { step: self.step, array: self.array }
    }
}

/// A step within its job: its number and, for a task of a step array, its index. `7`, `7_123`, `batch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepKey {
    /// Which step.
    pub step: StepNum,
    /// Task of a step array.
    #[serde(default)]
    pub array: Option<u32>,
}

impl StepKey {
    /// The batch script.
    pub const BATCH: Self = Self { step: StepNum::Batch, array: None };

    /// A numbered step.
    pub const fn number(number: u32) -> Self {
        Self { step: StepNum::Number(number), array: None }
    }
    /// A task of a step array.
    pub const fn task(number: u32, index: u32) -> Self {
        Self { step: StepNum::Number(number), array: Some(index) }
    }
}

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.array {
            None => fmt::Display::fmt(&self.step, f),
            Some(task) => f.pad(&format!("{}_{task}", self.step)),
        }
    }
}

impl FromStr for StepKey {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        match s.split_once('_') {
            None => Ok(Self { step: s.parse()?, array: None }),
            Some((step, task)) => Ok(Self::task(number("step id", s, step)?, number("step id", s, task)?)),
        }
    }
}

/// One run of a job: `s` and 13 base-32 digits (no I, L, O, U), sortable by creation; a requeued job gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Sluid(pub u64);

/// Index of a node in the cluster's configuration order. Dense, from 0; stable for one configuration generation only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeIndex(pub u32);

/// Identity of a request that may be retried: the receiver answers a repeat with the first answer. Random, 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64, pub u64);

/// A job array and the task in it: array job id and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ArrayTask {
    /// The id that `sbatch` printed.
    pub array_job: JobId,
    /// The task's index.
    pub index: u32,
}

/// Text that is not an id of the kind asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing there.
    #[error("{what} is empty")]
    Empty {
        /// Kind of id.
        what: &'static str,
    },
    /// Not a decimal number.
    #[error("{what} \"{text}\": \"{part}\" is not a number")]
    NotANumber {
        /// Kind of id.
        what: &'static str,
        /// The whole text.
        text: String,
        /// What should have been a number.
        part: String,
    },
    /// A number that no id of this kind can have.
    #[error("{what} \"{text}\": {part} is out of range")]
    OutOfRange {
        /// Kind of id.
        what: &'static str,
        /// The whole text.
        text: String,
        /// The number.
        part: String,
    },
    /// The parts are not put together in a known form.
    #[error("{what} \"{text}\": expected {expected}")]
    Form {
        /// Kind of id.
        what: &'static str,
        /// The whole text.
        text: String,
        /// The forms there are.
        expected: &'static str,
    },
}

/// A decimal number without sign or blanks, as a part of `text`.
pub(crate) fn number(what: &'static str, text: &str, part: &str) -> Result<u32, IdError> {
    if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
        return Err(IdError::NotANumber { what, text: text.to_owned(), part: part.to_owned() });
    }
    part.parse().map_err(|_| IdError::OutOfRange { what, text: text.to_owned(), part: part.to_owned() })
}

/// A job number as a part of `text`: 0 is no job.
pub(crate) fn job_number(what: &'static str, text: &str, part: &str) -> Result<JobId, IdError> {
    match number(what, text, part)? {
        0 => Err(IdError::OutOfRange { what, text: text.to_owned(), part: part.to_owned() }),
        n => Ok(JobId(n)),
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for JobId {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        if s.is_empty() {
            return Err(IdError::Empty { what: "job id" });
        }
        job_number("job id", s, s)
    }
}

impl StepNum {
    /// The number that Slurm uses for it where only a number fits (`SLURM_STEP_ID`): special steps count down from -4.
    pub const fn slurm_number(self) -> i64 {
        match self {
            Self::Extern => -4,
            Self::Batch => -5,
            Self::Interactive => -6,
            Self::Number(n) => n as i64,
        }
    }
    /// The number of an ordinary step.
    pub const fn number(self) -> Option<u32> {
        match self {
            Self::Number(n) => Some(n),
            Self::Batch | Self::Extern | Self::Interactive => None,
        }
    }
}

impl fmt::Display for StepNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch => f.pad("batch"),
            Self::Extern => f.pad("extern"),
            Self::Interactive => f.pad("interactive"),
            Self::Number(n) => fmt::Display::fmt(n, f),
        }
    }
}

impl FromStr for StepNum {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        match s {
            "" => Err(IdError::Empty { what: "step id" }),
            "batch" => Ok(Self::Batch),
            "extern" => Ok(Self::Extern),
            "interactive" => Ok(Self::Interactive),
            _ => number("step id", s, s).map(Self::Number),
        }
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, het, step, array } = self;
        StepSelector { job: *job, task: None, het: *het, step: *step, array: *array }.fmt(f)
    }
}

impl FromStr for StepId {
    type Err = IdError;
    /// Every form but `5609_3.0`, which names an array task whose own job id the controller knows: see [`StepSelector`].
    fn from_str(s: &str) -> Result<Self, IdError> {
        let named: StepSelector = s.parse()?;
        if named.task.is_some() {
            let expected = "a job's own id, not an array task, before the step";
            return Err(IdError::Form { what: STEP, text: s.to_owned(), expected });
        }
        Ok(named.of_job(named.job))
    }
}

/// A step as a user names it, where the job may be a task of an array: `5609_3.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepSelector {
    /// The job, or the array when `task` is there.
    pub job: JobId,
    /// Task of the job array.
    #[serde(default)]
    pub task: Option<u32>,
    /// Offset of the heterogeneous component.
    #[serde(default)]
    pub het: Option<u32>,
    /// Which step.
    pub step: StepNum,
    /// Task of a step array.
    #[serde(default)]
    pub array: Option<u32>,
}

const STEP: &str = "step id";
const STEP_FORMS: &str = "JOB.STEP, JOB_TASK.STEP, JOB+OFFSET.STEP or JOB.STEP_TASK";

impl StepSelector {
    /// The step's id once the job's own id is known.
    pub const fn of_job(self, job: JobId) -> StepId {
        StepId { job, het: self.het, step: self.step, array: self.array }
    }
    /// The array task it names, if it names one.
    pub const fn array_task(self) -> Option<ArrayTask> {
        match self.task {
            Some(index) => Some(ArrayTask { array_job: self.job, index }),
            None => None,
        }
    }
}

impl fmt::Display for StepSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.job.to_string();
        for (mark, part) in [('_', self.task), ('+', self.het)] {
            if let Some(n) = part {
                text.push(mark);
                text.push_str(&n.to_string());
            }
        }
        text.push('.');
        text.push_str(&self.step.to_string());
        if let Some(n) = self.array {
            text.push('_');
            text.push_str(&n.to_string());
        }
        f.pad(&text)
    }
}

impl FromStr for StepSelector {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        if s.is_empty() {
            return Err(IdError::Empty { what: STEP });
        }
        let (left, right) =
            s.split_once('.').ok_or_else(|| IdError::Form { what: STEP, text: s.to_owned(), expected: STEP_FORMS })?;
        let (job, task, het) = if let Some((job, task)) = left.split_once('_') {
            (job, Some(number(STEP, s, task)?), None)
        } else if let Some((job, het)) = left.split_once('+') {
            (job, None, Some(number(STEP, s, het)?))
        } else {
            (left, None, None)
        };
        let job = job_number(STEP, s, job)?;
        let (step, array) = match right.split_once('_') {
            Some((step, task)) => (step, Some(number(STEP, s, task)?)),
            None => (right, None),
        };
        let step = match step {
            "batch" => StepNum::Batch,
            "extern" => StepNum::Extern,
            "interactive" => StepNum::Interactive,
            n => StepNum::Number(number(STEP, s, n)?),
        };
        if array.is_some() && step.number().is_none() {
            return Err(IdError::Form { what: STEP, text: s.to_owned(), expected: STEP_FORMS });
        }
        Ok(Self { job, task, het, step, array })
    }
}

impl fmt::Display for ArrayTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}_{}", self.array_job, self.index))
    }
}

impl FromStr for ArrayTask {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        const WHAT: &str = "array task id";
        if s.is_empty() {
            return Err(IdError::Empty { what: WHAT });
        }
        let (job, task) =
            s.split_once('_').ok_or_else(|| IdError::Form { what: WHAT, text: s.to_owned(), expected: "JOB_TASK" })?;
        Ok(Self { array_job: job_number(WHAT, s, job)?, index: number(WHAT, s, task)? })
    }
}

/// Crockford's base 32: digits and capitals without I, L, O and U.
const BASE32: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// 64 bits in base 32.
const SLUID_DIGITS: u32 = 13;

impl fmt::Display for Sluid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(1 + SLUID_DIGITS as usize);
        text.push('s');
        for place in (0..SLUID_DIGITS).rev() {
            let digit = (self.0 >> (5 * place)) & 31;
            text.push(char::from(BASE32[digit as usize]));
        }
        f.pad(&text)
    }
}

impl FromStr for Sluid {
    type Err = IdError;
    /// Lower-case digits are taken too; the leading letter must be `s`, as in everything that is printed.
    fn from_str(s: &str) -> Result<Self, IdError> {
        const WHAT: &str = "SLUID";
        let form = || IdError::Form { what: WHAT, text: s.to_owned(), expected: "s and 13 base-32 digits" };
        if s.is_empty() {
            return Err(IdError::Empty { what: WHAT });
        }
        let digits = s.strip_prefix('s').ok_or_else(form)?;
        if digits.len() != SLUID_DIGITS as usize {
            return Err(form());
        }
        let mut value: u64 = 0;
        for b in digits.bytes() {
            let b = b.to_ascii_uppercase();
            let digit = BASE32.iter().position(|&c| c == b).ok_or_else(form)?;
            if value >> 59 != 0 {
                return Err(IdError::OutOfRange { what: WHAT, text: s.to_owned(), part: digits.to_owned() });
            }
            value = (value << 5) | digit as u64;
        }
        Ok(Self(value))
    }
}

impl Sluid {
    /// The short form for file names: the last eight digits, which differ between runs made within years of each other.
    pub fn short(self) -> String {
        self.to_string().split_off(1 + SLUID_DIGITS as usize - 8)
    }
    /// Milliseconds since the Unix epoch at which it was made (as far as the clock had been right).
    pub const fn made_at(self) -> Timestamp {
        Timestamp((self.0 >> SLUID_TAIL_BITS) as i64)
    }
}

/// Low bits of a SLUID: random, or counting on when the clock did not move on.
const SLUID_TAIL_BITS: u32 = 20;

/// Makes SLUIDs that strictly increase: 44 bits of milliseconds, 20 bits of random tail. When the clock stands still or
/// steps back, it counts on from the last one. Save [`SluidMaker::last`] with what was promised, and give it back to
/// [`SluidMaker::after`] at recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SluidMaker {
    /// The greatest one made.
    pub last: Sluid,
}

impl Default for SluidMaker {
    fn default() -> Self {
        Self::after(Sluid(0))
    }
}

impl SluidMaker {
    /// Goes on after the greatest SLUID known.
    pub const fn after(last: Sluid) -> Self {
        Self { last }
    }
    /// Takes note of a SLUID made by someone else or read from a journal.
    pub fn saw(&mut self, sluid: Sluid) {
        self.last = self.last.max(sluid);
    }
    /// A new one, greater than all before.
    pub fn make(&mut self, now: Timestamp, random: u32) -> Sluid {
        let ms = u64::try_from(now.0).unwrap_or(0) & ((1 << (64 - SLUID_TAIL_BITS)) - 1);
        let tail = u64::from(random) & ((1 << SLUID_TAIL_BITS) - 1);
        let wanted = (ms << SLUID_TAIL_BITS) | tail;
        self.last = Sluid(wanted.max(self.last.0.saturating_add(1)));
        self.last
    }
}

impl RequestId {
    /// A new identity from the kernel's random numbers.
    ///
    /// # Panics
    /// If the kernel has no random numbers to give, which Linux rules out once it has booted.
    pub fn random() -> Self {
        let word = || getrandom::u64().expect("the kernel gives random numbers");
        Self(word(), word())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn step_ids_read_back_in_every_form() {
        for text in ["5609.0", "5609.batch", "5609.extern", "5609.interactive", "5609+1.0", "5609.7_123"] {
            assert_eq!(text.parse::<StepId>().unwrap().to_string(), text);
        }
        let named: StepSelector = "5609_3.0".parse().unwrap();
        assert_eq!(named.array_task(), Some(ArrayTask { array_job: JobId(5609), index: 3 }));
        assert_eq!(named.to_string(), "5609_3.0");
        assert_eq!(named.of_job(JobId(5612)).to_string(), "5612.0");
    }

    #[test]
    fn malformed_ids_say_what_is_wrong() {
        let says = |text: &str| text.parse::<StepId>().unwrap_err().to_string();
        assert_eq!(says("x.0"), "step id \"x.0\": \"x\" is not a number");
        assert_eq!(says("0.0"), "step id \"0.0\": 0 is out of range");
        assert_eq!(says("12"), format!("step id \"12\": expected {STEP_FORMS}"));
        assert!("12.batch_3".parse::<StepId>().is_err());
        assert!("5609_3.0".parse::<StepId>().is_err());
        assert!("-1".parse::<JobId>().is_err());
        assert!("+1".parse::<JobId>().is_err());
        assert!("4294967296".parse::<JobId>().is_err());
    }

    #[test]
    fn widths_apply_to_ids() {
        assert_eq!(format!("{:>6}|{:<8}|", JobId(12), "3.0".parse::<StepId>().unwrap()), "    12|3.0     |");
    }

    #[test]
    fn special_steps_have_slurms_numbers() {
        assert_eq!(StepNum::Batch.slurm_number(), -5);
        assert_eq!("batch".parse::<StepNum>().unwrap(), StepNum::Batch);
    }

    #[test]
    fn sluids_read_back_and_refuse_what_does_not_fit() {
        let text = "sFSNM7YRTC8Q00";
        assert_eq!(text.parse::<Sluid>().unwrap().to_string(), text);
        assert_eq!(Sluid(u64::MAX).to_string(), "sFZZZZZZZZZZZZ");
        assert!("sGZZZZZZZZZZZZ".parse::<Sluid>().is_err());
        assert!("sFSNM7YRTC8Q0L".parse::<Sluid>().is_err());
        assert!("FSNM7YRTC8Q00".parse::<Sluid>().is_err());
    }

    #[test]
    fn sluids_never_repeat_when_the_clock_steps_back() {
        let mut maker = SluidMaker::default();
        let a = maker.make(Timestamp(1_795_255_201_000), 7);
        let b = maker.make(Timestamp(1_795_255_100_000), 900);
        let c = maker.make(Timestamp(1_795_255_201_000), 3);
        let d = maker.make(Timestamp(1_795_255_201_001), 0);
        assert!(a < b && b < c && c < d);
        assert_eq!(a.made_at(), Timestamp(1_795_255_201_000));
        assert_eq!(SluidMaker::after(d).make(Timestamp(0), 0), Sluid(d.0 + 1));
    }

    #[test]
    fn request_ids_differ() {
        assert_ne!(RequestId::random(), RequestId::random());
    }

    proptest! {
        #[test]
        fn sluid_text_sorts_like_its_number(a: u64, b: u64) {
            prop_assert_eq!(a.cmp(&b), Sluid(a).to_string().cmp(&Sluid(b).to_string()));
            prop_assert_eq!(Sluid(a).to_string().parse::<Sluid>(), Ok(Sluid(a)));
        }

        #[test]
        fn any_text_is_an_id_or_an_error(s in "\\PC{0,24}|[0-9_+.a-z]{0,16}") {
            let _ = s.parse::<JobId>();
            let _ = s.parse::<Sluid>();
            let _ = s.parse::<ArrayTask>();
            if let Ok(id) = s.parse::<StepSelector>() {
                prop_assert_eq!(id.to_string().parse::<StepSelector>(), Ok(id));
            }
        }
    }
}
