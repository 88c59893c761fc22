//! A log in the columns of GNU parallel's `--joblog` (parallel(1)), for scripts that read such logs: a line for every step that
//! began and ended. `Seq` is the line of a list, the index of an array's task, or the step's number.

use super::{Row, fields};
use garrick_model::ids::StepNum;
use std::io::{self, Write};

/// See the module.
#[derive(Debug)]
pub struct Joblog<W: Write>(W);

impl<W: Write> Joblog<W> {
    /// Begins with the headings.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n")?;
        Ok(Self(out))
    }

    /// A step, if it began and ended.
    pub fn add(&mut self, row: &Row<'_>) -> io::Result<()> {
        let step = row.step;
        let (Some(start), Some(end), StepNum::Number(number)) = (step.start, step.end, step.key.step) else {
            return Ok(());
        };
        let seq = step.line.or(step.key.array).unwrap_or(number);
        let host = fields::nodes(row).first().copied().unwrap_or_default().to_owned();
        let (from, took) = (start.0 as f64 / 1000.0, end.0.saturating_sub(start.0).max(0) as f64 / 1000.0);
        let (code, signal) = (step.exit.code, step.exit.signal.unwrap_or(0));
        let command = fields::command(row).replace(['\n', '\t'], " ");
        writeln!(self.0, "{seq}\t{host}\t{from:.3}\t{took:10.3}\t0\t0\t{code}\t{signal}\t{command}")
    }

    /// What was added leaves this process.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    /// Everything is written.
    pub fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}
