//! Output files that were not requested: such a file is removed if it is empty when the last of its tasks is over.
//!
//! The tasks of one step on one node write such a file. Another try of the step on another node creates it anew, so that this
//! launcher, if it was cut off meanwhile, does not take that file for its own.

use garrick_kernel::files::{self, FileId};
use std::{collections::HashMap, path::Path};

/// The files of tasks that run.
#[derive(Debug, Default)]
pub(super) struct Unasked {
    open: HashMap<String, Open>,
}

#[derive(Debug, Default)]
struct Open {
    tasks: usize,
    /// As it was when the last task had opened it.
    file: Option<FileId>,
}

impl Unasked {
    /// A task is about to open it; `anew`: what an earlier try has written goes.
    pub(super) fn begin(&mut self, path: &str, anew: bool) {
        if anew {
            // Opening it says more of what is wrong than this.
            let _ = files::remove_regular(Path::new(path), |_| true);
        }
        self.open.entry(path.to_owned()).or_default().tasks += 1;
    }

    /// It has.
    pub(super) fn opened(&mut self, path: &str) {
        if let Some(open) = self.open.get_mut(path) {
            open.file = files::id_of(Path::new(path));
        }
    }

    /// The task is over, or never began.
    pub(super) fn end(&mut self, path: &str) {
        let Some(open) = self.open.get_mut(path) else { return };
        open.tasks -= 1;
        if open.tasks > 0 {
            return;
        }
        let Some(file) = self.open.remove(path).and_then(|open| open.file) else { return };
        // One that cannot be removed stays, as it would have.
        let _ = files::remove_regular(Path::new(path), |found| found.is_empty && found.id == file);
    }
}
