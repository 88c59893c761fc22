//! The lines in users' error files when something is ended early, in Slurm's wording: `*** JOB 503 ON n1 CANCELLED AT
//! 2026-11-21T10:00:58 DUE TO TIME LIMIT ***`.

use garrick_model::time::Timestamp;
use jiff::tz::TimeZone;
use std::fmt::Display;

/// `STEP 5609.0 ON n1 CANCELLED AT 2026-11-21T10:00:58 DUE TO TIME LIMIT`. `what` is `JOB 503` or `STEP 5609.0`.
pub fn cancelled(what: impl Display, node: &str, now: Timestamp, zone: &TimeZone, due_to: &str) -> String {
    format!("{what} ON {node} CANCELLED AT {}{due_to}", now.text(zone))
}

/// The notice as `slurmstepd` writes it to an error file.
pub fn error_line(text: &str) -> String {
    format!("slurmstepd: error: *** {text} ***")
}

/// A message of `srun` without the leading time and word.
pub fn without_time(message: &str) -> &str {
    message.split_once("] error: ").map_or(message, |(_, text)| text)
}

/// The same, shortened for a record: paths may be long.
pub fn detail(message: &str) -> String {
    const MOST_CHARS: usize = 1000;
    without_time(message).chars().take(MOST_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wording_is_slurms() {
        let text =
            cancelled("JOB 503", "n1", Timestamp::from_secs(1_795_255_258), &TimeZone::UTC, " DUE TO TIME LIMIT");
        assert_eq!(
            error_line(&text),
            "slurmstepd: error: *** JOB 503 ON n1 CANCELLED AT 2026-11-21T10:00:58 DUE TO TIME LIMIT ***"
        );
    }
}
