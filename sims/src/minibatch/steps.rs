//! The steps of the scenarios if `/bin/true` is not enough: this program again, told to run for some time, to fail at first, and
//! to log its begin and end. The log is the scenario's own evidence, independent of Garrick's records.

use super::inside::Fallible;
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
    time::{Duration, Instant},
};

/// The word with which this program is told that it is a step.
pub const STEP: &str = "--step";
/// Exit code of a step that is to fail at first.
pub const FAILS_AT_FIRST: u8 = 75;

/// One run of a step, as it wrote it down. Times are on the machine's monotonic clock, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Which step.
    pub index: usize,
    /// On which rank of it.
    pub rank: u32,
    /// When its first instruction ran.
    pub began: f64,
    /// When it was about to end.
    pub ended: f64,
    /// Exit code.
    pub code: u8,
}

/// Seconds since the machine started. All hosts of a scenario are on one machine.
fn uptime() -> f64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map(|t| Duration::from(t).as_secs_f64())
        .unwrap_or_default()
}

/// Now, on the clock of [`Ran`].
pub fn now() -> f64 {
    uptime()
}

/// `--step LOG INDEX MILLISECONDS [once]`: the step itself. With `once` its first run fails, known by the log.
pub fn main(args: &[String]) -> Fallible<u8> {
    let (log, index, length, once) = match args {
        [log, index, ms] => (log, index, ms, false),
        [log, index, ms, word] if word == "once" => (log, index, ms, true),
        _ => return Err(format!("usage: {STEP} LOG INDEX MILLISECONDS [once]").into()),
    };
    let (began, start) = (uptime(), Instant::now());
    let index: usize = index.parse()?;
    let code = if once && first_time(log, index)? { FAILS_AT_FIRST } else { 0 };
    std::thread::sleep(Duration::from_millis(length.parse()?).saturating_sub(start.elapsed()));
    let rank = std::env::var("SLURM_PROCID").unwrap_or_default();
    let line = format!("{index} {} {began:.6} {:.6} {code}\n", if rank.is_empty() { "0" } else { &rank }, uptime());
    // One write of a short line to a file opened for appending is not torn apart by others.
    OpenOptions::new().append(true).create(true).open(log)?.write_all(line.as_bytes())?;
    Ok(code)
}

/// Creates the mark of a first run; false when it is there already.
fn first_time(log: &str, index: usize) -> io::Result<bool> {
    match File::create_new(format!("{log}.{index}.failed")) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e),
    }
}

/// All that was written down.
pub fn read(log: &Path) -> Fallible<Vec<Ran>> {
    fs::read_to_string(log)?.lines().map(parse).collect()
}

fn parse(line: &str) -> Fallible<Ran> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        [index, rank, began, ended, code] => Ok(Ran {
            index: index.parse()?,
            rank: rank.parse()?,
            began: began.parse()?,
            ended: ended.parse()?,
            code: code.parse()?,
        }),
        _ => Err(format!("not a line of a step: {line:?}").into()),
    }
}

/// Checks that each step ran as often as it should have: `wanted` gives the exit codes of its runs, in order, and the number
/// of its tasks.
pub fn check(ran: &[Ran], count: usize, wanted: impl Fn(usize) -> (Vec<u8>, usize)) -> Fallible<()> {
    let mut runs: BTreeMap<usize, Vec<&Ran>> = BTreeMap::new();
    for r in ran {
        runs.entry(r.index).or_default().push(r);
    }
    if let Some(index) = runs.keys().find(|i| **i >= count) {
        return Err(format!("step {index} ran, and was never sent").into());
    }
    for index in 0..count {
        let mut found = runs.remove(&index).unwrap_or_default();
        found.sort_by(|a, b| a.began.total_cmp(&b.began));
        let (codes, tasks) = wanted(index);
        let expected: Vec<u8> = codes.iter().flat_map(|c| std::iter::repeat_n(*c, tasks)).collect();
        let codes: Vec<u8> = found.iter().map(|r| r.code).collect();
        if codes != expected {
            return Err(format!("step {index} should have ended with {expected:?}, and ended with {codes:?}").into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ran(index: usize, began: f64, code: u8) -> Ran {
        Ran { index, rank: 0, began, ended: began + 1.0, code }
    }

    #[test]
    fn a_step_writes_down_its_runs_and_fails_once() {
        let dir = std::env::temp_dir().join(format!("garrick-steps-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let log = dir.join("log");
        let args = |words: &[&str]| -> Vec<String> {
            std::iter::once(log.to_string_lossy().into_owned()).chain(words.iter().map(|w| (*w).to_owned())).collect()
        };
        assert_eq!(main(&args(&["3", "1", "once"])).unwrap(), FAILS_AT_FIRST);
        assert_eq!(main(&args(&["3", "1", "once"])).unwrap(), 0);
        assert_eq!(main(&args(&["0", "1"])).unwrap(), 0);
        assert!(main(&args(&["0", "1", "twice"])).is_err());
        let all = read(&log).unwrap();
        assert_eq!(all.iter().map(|r| (r.index, r.code)).collect::<Vec<_>>(), [(3, FAILS_AT_FIRST), (3, 0), (0, 0)]);
        assert!(all.iter().all(|r| r.ended > r.began));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_step_that_is_missing_or_ran_twice_is_found() {
        let once = |_: usize| (vec![0], 1);
        assert!(check(&[ran(0, 1.0, 0), ran(1, 1.0, 0)], 2, once).is_ok());
        for (wrong, says) in [
            (vec![ran(0, 1.0, 0)], "step 1 should have ended with [0], and ended with []"),
            (vec![ran(0, 1.0, 0), ran(1, 1.0, 3)], "step 1 should have ended with [0], and ended with [3]"),
            (
                vec![ran(0, 1.0, 0), ran(0, 2.0, 0), ran(1, 1.0, 0)],
                "step 0 should have ended with [0], and ended with [0, 0]",
            ),
            (vec![ran(0, 1.0, 0), ran(1, 1.0, 0), ran(2, 1.0, 0)], "step 2 ran, and was never sent"),
        ] {
            assert_eq!(check(&wrong, 2, once).unwrap_err().to_string(), says);
        }
    }
}
