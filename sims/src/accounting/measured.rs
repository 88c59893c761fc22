//! Time, memory and output of a process.

use crate::minibatch::{inside::Fallible, processes};
use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Between two looks at the memory of a process.
const LOOK: Duration = Duration::from_micros(500);

/// What a process came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Until its output ended, seconds.
    pub seconds: f64,
    /// Most memory that it was seen to have, bytes.
    pub peak: u64,
    /// Lines that it wrote.
    pub lines: u64,
    /// The last one.
    pub last: String,
}

/// Runs a command that has to succeed. What it writes is read and thrown away.
pub fn measured(command: &mut Command) -> Fallible<Measured> {
    let began = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    let reader = thread::spawn(move || -> std::io::Result<(u64, String, f64)> {
        let (mut output, mut lines, mut line, mut last) =
            (BufReader::with_capacity(1 << 20, output), 0, Vec::new(), Vec::new());
        while output.read_until(b'\n', &mut line)? > 0 {
            lines += 1;
            std::mem::swap(&mut line, &mut last);
            line.clear();
        }
        Ok((lines, String::from_utf8_lossy(&last).trim_end().to_owned(), began.elapsed().as_secs_f64()))
    });
    let mut peak = 0;
    let status = loop {
        // Gone already is as good.
        peak = processes::memory(child.id()).map_or(peak, |memory| peak.max(memory.peak));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        thread::sleep(LOOK);
    };
    let (lines, last, seconds) = reader.join().map_err(|_| "reading the output failed")??;
    if !status.success() {
        return Err(format!("{command:?}: {status}").into());
    }
    Ok(Measured { seconds, peak, lines, last })
}

/// Bytes as MiB.
pub fn mib(bytes: u64) -> String {
    format!("{:.1}", super::as_f64(bytes) / f64::from(1 << 20))
}
