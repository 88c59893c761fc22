//! A target: how it is run, its limits of time and memory, and its initial inputs.

use crate::corpus;
use nix::time::{ClockId, clock_gettime};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};

/// Most CPU time that one input may take, also in a debug build.
pub const MOST_CPU: Duration = Duration::from_secs(1);

/// Something that is fuzzed.
#[derive(Debug)]
pub struct Target {
    /// Name, of its corpus too.
    pub name: &'static str,
    /// Reads an input. Panics when something is wrong: that is the finding.
    pub read: fn(&[u8]),
    /// Most bytes that it may hold at a time for each byte of input, over [`Target::base_bytes`].
    pub bytes_per_byte: usize,
    /// What it may hold whatever the input.
    pub base_bytes: usize,
    /// Valid inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl Target {
    /// Reads an input within the caps of time and memory. Panics when it goes wrong or beyond them.
    pub fn run(&self, input: &[u8]) {
        let began = cpu_time();
        let mut ended = Ok(());
        // What unwinds through the measuring would leave it half done.
        let used = allocation_counter::measure(|| ended = catch_unwind(AssertUnwindSafe(|| (self.read)(input))));
        if let Err(panic) = ended {
            resume_unwind(panic);
        }
        let most = (self.base_bytes + self.bytes_per_byte * input.len()) as u64;
        assert!(
            used.bytes_max <= most,
            "{}: {} bytes were held for an input of {}, {most} are allowed",
            self.name,
            used.bytes_max,
            input.len()
        );
        let took = cpu_time().saturating_sub(began);
        assert!(took <= MOST_CPU, "{}: {took:?} of CPU time for an input of {} bytes", self.name, input.len());
    }

    /// Seeds and what is kept of earlier runs.
    pub fn inputs(&self) -> Vec<Vec<u8>> {
        let mut inputs = (self.seeds)();
        inputs.extend(corpus::kept(self.name));
        inputs
    }
}

/// What this thread has used.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
