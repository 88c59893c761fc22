//! The figures of a run.

use super::{
    injury::Book,
    verdict::{Verdict, Wrong},
};
use std::{
    io::{self, Write},
    time::Duration,
};

/// Violations that are printed; all are in a file.
const SHOWN: usize = 40;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the rules found.
    pub verdict: Verdict,
    /// What was done.
    pub book: Book,
    /// Jobs whose submission was acknowledged.
    pub acknowledged: usize,
    /// Submissions that were not.
    pub unacknowledged: usize,
    /// Jobs that were cancelled.
    pub cancelled: usize,
    /// Jobs held after a launch that failed, and released.
    pub released: usize,
    /// Ends of daemons that were not killed.
    pub ended_by_themselves: u32,
    /// How long faults happened.
    pub hurt_for: Duration,
    /// All in all.
    pub took: Duration,
}

impl Report {
    /// Prints it.
    pub fn render(&self, out: &mut impl Write) -> io::Result<()> {
        let v = &self.verdict;
        writeln!(
            out,
            "{} jobs ({} acknowledged; {} submissions were not), {} steps, {} tasks ran",
            v.jobs, self.acknowledged, self.unacknowledged, v.steps, v.tasks_run
        )?;
        writeln!(out, "{} kills, in {:.0} s:", self.book.kills(), self.hurt_for.as_secs_f64())?;
        for (fault, times) in &self.book.done {
            writeln!(out, "    {times:6} {fault}")?;
        }
        writeln!(out, "{} compound faults, aimed at steps over several nodes:", self.book.compounds())?;
        for (compound, times) in &self.book.compound {
            writeln!(out, "    {times:6} {compound}")?;
        }
        writeln!(
            out,
            "{} step managers and shepherds took over; {} jobs cancelled; {} put back after a failed launch; \
             {} daemons ended by themselves and were started again",
            v.takeovers, self.cancelled, self.released, self.ended_by_themselves
        )?;
        writeln!(out, "jobs by state: {:?}", v.job_states)?;
        writeln!(out, "    {:6} steps with the exit code that their tasks announced", v.true_exits)?;
        for (cause, steps) in &v.other_ends {
            writeln!(out, "    {steps:6} steps {cause}")?;
        }
        for (cause, jobs) in &v.job_excuses {
            writeln!(out, "    {jobs:6} jobs {cause}")?;
        }
        writeln!(
            out,
            "{} lost, {} duplicated, {} leaked, {} untrue; {:.0} s in all",
            v.of(Wrong::Lost),
            v.of(Wrong::Duplicated),
            v.of(Wrong::Leaked),
            v.of(Wrong::Untrue),
            self.took.as_secs_f64()
        )?;
        for violation in v.violations.iter().take(SHOWN) {
            writeln!(out, "{:?}: {}", violation.wrong, violation.text)?;
        }
        Ok(())
    }
}
