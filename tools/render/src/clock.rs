//! Times for display: in the user's time zone, in Slurm's form or that of `SLURM_TIME_FORMAT`. The current time, zone and format
//! are arguments, so that tests choose them.

use garrick_model::time::{Timestamp, UNKNOWN, system_zone};
use jiff::tz::TimeZone;

/// How points in time are written.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Zone of the reader.
    pub zone: TimeZone,
    /// Now, for times relative to it.
    pub now: Timestamp,
    /// `SLURM_TIME_FORMAT`: `standard` (also `None`), `relative`, or a strftime pattern.
    pub format: Option<String>,
}

impl Clock {
    /// The system's zone and clock, and `SLURM_TIME_FORMAT` from the environment.
    pub fn system() -> Self {
        Self {
            zone: system_zone(),
            now: Timestamp::now(),
            format: std::env::var("SLURM_TIME_FORMAT").ok().filter(|f| f != "standard" && !f.is_empty()),
        }
    }

    fn zoned(&self, at: Timestamp) -> Option<jiff::Zoned> {
        Some(jiff::Timestamp::from_millisecond(at.0).ok()?.to_zoned(self.zone.clone()))
    }

    /// `2026-11-21T10:00:51`.
    pub fn at(&self, at: Timestamp) -> String {
        match self.format.as_deref() {
            None => at.text(&self.zone),
            Some("relative") => self.relative(at).unwrap_or_else(|| UNKNOWN.to_owned()),
            Some(pattern) => at.strftime(pattern, &self.zone),
        }
    }

    /// As [`Clock::at`], or `absent` (`N/A`, `Unknown`, `None`) where there is no time.
    pub fn at_or(&self, at: Option<Timestamp>, absent: &str) -> String {
        at.map_or_else(|| absent.to_owned(), |t| self.at(t))
    }

    /// Line above long listings, `Sat Nov 21 10:00:51 2026`.
    pub fn banner(&self) -> String {
        self.long(self.now)
    }

    /// `Sat Nov 21 10:00:51 2026`, whatever the environment says.
    pub fn long(&self, at: Timestamp) -> String {
        at.strftime("%a %b %d %H:%M:%S %Y", &self.zone)
    }

    /// `17:30:05` for today, `Ystday 09:12`, `21 Nov 10:00` near, `21 Nov 2027` far.
    fn relative(&self, at: Timestamp) -> Option<String> {
        let (then, now) = (self.zoned(at)?, self.zoned(self.now)?);
        let days = (then.date() - now.date()).get_days();
        let far = (then.date() - now.date()).get_days().abs() > 200;
        let pattern = match days {
            0 => "%H:%M:%S",
            -1 => "Ystday %H:%M",
            1 => "Tomorr %H:%M",
            2..=6 => "%a %H:%M",
            _ if far => "%-d %b %Y",
            _ => "%-d %b %H:%M",
        };
        Some(at.strftime(pattern, &self.zone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(format: Option<&str>) -> Clock {
        Clock { zone: TimeZone::UTC, now: Timestamp::from_secs(1_795_255_255), format: format.map(str::to_owned) }
    }

    #[test]
    fn points_in_time_are_iso_without_zone() {
        assert_eq!(clock(None).at(Timestamp::from_secs(1_795_255_251)), "2026-11-21T10:00:51");
        assert_eq!(clock(None).at_or(None, "N/A"), "N/A");
        assert_eq!(clock(None).banner(), "Sat Nov 21 10:00:55 2026");
    }

    #[test]
    fn time_format_variable_is_a_pattern_or_relative() {
        assert_eq!(clock(Some("%H.%M")).at(Timestamp::from_secs(1_795_255_251)), "10.00");
        assert_eq!(clock(Some("relative")).at(Timestamp::from_secs(1_795_255_251)), "10:00:51");
        assert_eq!(clock(Some("relative")).at(Timestamp::from_secs(1_795_255_251 - 86400)), "Ystday 10:00");
    }
}
