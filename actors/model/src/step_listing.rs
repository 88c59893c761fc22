//! Answers to `ListSteps`, kept small enough for a frame wherever they are gathered: running steps first, then waiting ones,
//! then those that are over, the newest first; the rest is counted.

use crate::{ids::StepId, state::StepState, view::StepView};
use std::cmp::Reverse;

/// Bytes of views in one answer. Frames between processes hold 16 MiB; half of that leaves room for estimates, and is some
/// twenty thousand lines of a screen.
pub const MOST_BYTES: usize = 8 << 20;

/// Names of fields and all numbers of a view as it travels, with some room.
const FIXED_BYTES: usize = 608;
/// A range of numbers as it travels.
const RANGE_BYTES: usize = 24;

/// About how many bytes a view takes in a frame; not less than it does.
pub fn frame_bytes(view: &StepView) -> usize {
    use crate::step_selector::WhichSteps::{All, Numbers, Special, Tasks};
    let ranges = match &view.waiting {
        None | Some(All | Special(_)) => 0,
        Some(Numbers(spec) | Tasks { tasks: spec, .. }) => spec.ranges.len(),
    };
    let reason = match &view.reason {
        crate::state::Reason::Other(text) => text.len(),
        _ => 0,
    };
    FIXED_BYTES
        + RANGE_BYTES * ranges
        + reason
        + view.name.len()
        + view.partition.len()
        + view.nodelist.len()
        + view.submit_line.len()
        + view.dependency.len()
        + view.srun.as_ref().map_or(0, |(host, _)| host.len())
}

/// A list of steps that is being gathered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepListing {
    steps: Vec<StepView>,
    bytes: usize,
    most: usize,
    left_out: u64,
}

impl Default for StepListing {
    fn default() -> Self {
        Self::with_room(MOST_BYTES)
    }
}

impl StepListing {
    /// With room for about so many bytes.
    pub const fn with_room(most: usize) -> Self {
        Self { steps: Vec::new(), bytes: 0, most, left_out: 0 }
    }

    /// Adds views, and lines that were left out before they came here.
    pub fn add(&mut self, views: impl IntoIterator<Item = StepView>, left_out: u64) {
        self.left_out += left_out;
        for view in views {
            self.bytes += frame_bytes(&view);
            self.steps.push(view);
            // Never more than twice of what may leave is held, however many answer.
            if self.bytes > 2 * self.most {
                self.shrink();
            }
        }
    }

    /// Takes out what is there twice: of a step that was tried again the latest try, of one try its end.
    fn unite(&mut self) {
        let over = |view: &StepView| view.state.is_over();
        self.steps.sort_by_key(|view| (view.id, Reverse((view.attempt, over(view)))));
        self.steps.dedup_by_key(|view| view.id);
        self.bytes = self.steps.iter().map(frame_bytes).sum();
    }

    fn shrink(&mut self) {
        self.unite();
        if self.bytes <= self.most {
            return;
        }
        self.steps.sort_by_key(rank);
        let mut room = self.most;
        let fits = self.steps.iter().take_while(|view| {
            let bytes = frame_bytes(view);
            let fits = bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        });
        let kept = fits.count();
        self.left_out += (self.steps.len() - kept) as u64;
        self.steps.truncate(kept);
        self.bytes = self.most - room;
    }

    /// The list in the order of ids, and how many lines do not fit.
    pub fn finish(mut self) -> (Vec<StepView>, u64) {
        self.shrink();
        self.steps.sort_by_key(|view| view.id);
        (self.steps, self.left_out)
    }
}

/// What goes first when there is no room for all.
fn rank(view: &StepView) -> (u8, Reverse<Option<i64>>, StepId) {
    match view.state {
        StepState::Running => (0, Reverse(None), view.id),
        StepState::Pending => (1, Reverse(None), view.id),
        _ => (2, Reverse(view.end_time.map(|at| at.0)), view.id),
    }
}

#[cfg(test)]
#[path = "step_listing_test.rs"]
mod tests;
