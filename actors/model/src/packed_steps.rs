//! Steps on their way to the controller: numbers in the open, rows as the step manager encoded them. Agents and most of the
//! controller pass them on without looking inside; only who shows steps unpacks them.

use crate::view::{StepCounts, StepRows};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Where a run's step manager stood when a report left it. Each report has all of it anew, so that a repeat changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepTally {
    /// Its numbered steps, by state.
    pub counts: StepCounts,
    /// Ends that were not reported yet when this left.
    pub unreported: u64,
    /// Ends of this run whose rows were given up for lack of room. They are in the run's counts and in its journal.
    pub dropped: u64,
    /// Of two tallies of a run, the one with the greater number is the newer, whoever of its step managers made it. 0: one of
    /// an earlier version, which did not number them.
    #[serde(skip_serializing_if = "is_unnumbered")]
    pub number: u64,
}

/// A batch of steps in a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedSteps {
    /// Numbers.
    pub tally: StepTally,
    /// How many rows are inside.
    pub rows: u32,
    /// The rows and their origins.
    packed: Bytes,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_unnumbered(number: &u64) -> bool {
    *number == 0
}

/// Deepest nesting, as in frames.
const MAX_DEPTH: usize = 64;

/// What is inside is not a list of steps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes said to be {rows} steps: {cause}")]
pub struct UnpackError {
    bytes: usize,
    rows: u32,
    cause: String,
}

impl PackedSteps {
    /// Encodes rows, once for the whole way. Their tally is numbered by who sends them.
    pub fn pack(steps: &StepRows) -> Self {
        let packed = rmp_serde::to_vec_named(steps).expect("rows hold nothing that cannot be encoded");
        Self {
            tally: StepTally { counts: steps.counts, unreported: steps.unreported, dropped: steps.dropped, number: 0 },
            rows: u32::try_from(steps.rows.len()).unwrap_or(u32::MAX),
            packed: packed.into(),
        }
    }

    /// The rows.
    ///
    /// # Errors
    /// When the bytes are not what [`Self::pack`] made.
    pub fn unpack(&self) -> Result<StepRows, UnpackError> {
        let broken = |cause: String| UnpackError { bytes: self.packed.len(), rows: self.rows, cause };
        let mut reader = rmp_serde::Deserializer::from_read_ref(&*self.packed);
        // Some host's step manager made them: what is nested deeper than a frame may be would take this thread's stack.
        reader.set_max_depth(MAX_DEPTH);
        let steps = StepRows::deserialize(&mut reader).map_err(|e| broken(e.to_string()))?;
        let StepTally { counts, unreported, dropped, .. } = self.tally;
        Ok(StepRows { counts, unreported, dropped, ..steps })
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.packed.len()
    }
}

impl From<StepRows> for PackedSteps {
    fn from(steps: StepRows) -> Self {
        Self::pack(&steps)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        ids::StepKey,
        state::{ExitStatus, StepState},
        time::{TimeLimit, Timestamp},
        usage::TaskUsage,
        view::{StepOrigin, StepRow},
    };

    fn rows(count: u32) -> StepRows {
        let origin = StepOrigin {
            name: "true".into(),
            uid: 1001,
            partition: "debug".into(),
            tasks: 1,
            time_limit: TimeLimit::Unlimited,
            srun: None,
            submit_line: "srun --async --array=0-9 true".into(),
            priority: 0,
            cpu_freq: None,
            layout: None,
        };
        let row = |task| StepRow {
            key: StepKey::task(7, task),
            origin: 0,
            state: StepState::Completed,
            nodelist: "n1".into(),
            nodes: 1,
            cpus: 1,
            memory: Default::default(),
            gres: Vec::new(),
            start_time: Some(Timestamp(1)),
            end_time: Some(Timestamp(2)),
            exit: ExitStatus::SUCCESS,
            attempt: 0,
            usage: TaskUsage::default(),
            spread: None,
            all_of: None,
            reason: Default::default(),
        };
        StepRows {
            origins: vec![origin],
            rows: (0..count).map(row).collect(),
            counts: StepCounts { queued: 3, running: 2, done: 10, failed: 1, cancelled: 0 },
            unreported: 5,
            dropped: 1,
        }
    }

    #[test]
    fn what_was_packed_comes_out_after_a_journey() {
        let steps = rows(3);
        let packed = PackedSteps::pack(&steps);
        assert_eq!((packed.rows, packed.tally.counts, packed.tally.unreported), (3, steps.counts, 5));
        let frame = rmp_serde::to_vec_named(&packed).unwrap();
        let arrived: PackedSteps = rmp_serde::from_slice(&frame).unwrap();
        assert_eq!(arrived.unpack(), Ok(steps));
    }

    #[test]
    fn the_rows_travel_as_one_string_of_bytes() {
        let packed = PackedSteps::pack(&rows(1000));
        let frame = rmp_serde::to_vec_named(&packed).unwrap();
        // Numbers and names around the bytes; a list of small integers would be larger than the bytes themselves.
        assert!(frame.len() < packed.bytes() + 200, "{} around {}", frame.len(), packed.bytes());
    }

    /// It took a thread's stack, and the process with it.
    #[test]
    fn bytes_that_are_nested_deeply_are_an_error() {
        // One key that nobody knows, and lists in lists behind it.
        let nested = [b"\x81\xa1x".to_vec(), vec![0x91; 1000], vec![0xc0]].concat();
        let broken = PackedSteps { packed: nested.into(), ..PackedSteps::default() };
        let said = broken.unpack().unwrap_err().to_string();
        assert!(said.contains("depth limit exceeded"), "{said}");
    }

    #[test]
    fn bytes_that_are_no_steps_are_an_error() {
        let broken = PackedSteps { rows: 9, packed: Bytes::from_static(b"\xc1nothing"), ..PackedSteps::default() };
        let said = broken.unpack().unwrap_err().to_string();
        assert!(said.starts_with("8 bytes said to be 9 steps: "), "{said}");
    }
}
