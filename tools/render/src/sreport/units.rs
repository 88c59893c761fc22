//! How amounts are written (sreport(1), `time`).

use crate::sacctmgr::kind::begins;

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    Seconds,
    Minutes,
    Hours,
}

/// How amounts times seconds are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    time: Option<Time>,
    percent: bool,
}

/// The words. The first that begins as typed is meant.
const WORDS: [(&str, Units); 7] = [
    ("secper", Units { time: Some(Time::Seconds), percent: true }),
    ("minper", Units { time: Some(Time::Minutes), percent: true }),
    ("hourper", Units { time: Some(Time::Hours), percent: true }),
    ("seconds", Units { time: Some(Time::Seconds), percent: false }),
    ("minutes", Units { time: Some(Time::Minutes), percent: false }),
    ("hours", Units { time: Some(Time::Hours), percent: false }),
    ("percent", Units { time: None, percent: true }),
];

impl Default for Units {
    fn default() -> Self {
        Self { time: Some(Time::Minutes), percent: false }
    }
}

#[expect(clippy::cast_precision_loss, reason = "sums are shown with few figures")]
const fn float(n: u64) -> f64 {
    n as f64
}

impl Units {
    /// `minutes`, `percent`; `None`: there is no such word.
    pub fn read(text: &str) -> Option<Self> {
        WORDS.iter().find(|(word, _)| begins(word, text, 1)).map(|(_, units)| *units)
    }

    /// Percentages stand beside the times: columns are wider.
    pub const fn both(self) -> bool {
        self.time.is_some() && self.percent
    }

    /// The same for amounts that are not multiplied by a time.
    #[must_use]
    pub const fn of_amounts(self) -> Self {
        match self.time {
            Some(_) => Self { time: Some(Time::Seconds), ..self },
            None => self,
        }
    }

    /// Amounts times seconds; `whole` is what the percentage is of.
    pub fn amount(self, secs: u64, whole: u64) -> String {
        let percent = || format!("{:.2}%", if whole == 0 { 0.0 } else { float(secs) / float(whole) * 100.0 });
        match self.time {
            None => percent(),
            Some(time) => {
                let amount = match time {
                    Time::Seconds => secs.to_string(),
                    Time::Minutes => format!("{:.0}", float(secs) / 60.0),
                    Time::Hours => format!("{:.0}", float(secs) / 3600.0),
                };
                if self.percent { format!("{amount}({})", percent()) } else { amount }
            }
        }
    }

    /// `CPU Minutes`, `Percentage of Total`; `of`: `CPU `, or nothing.
    pub fn words(self, of: &str) -> String {
        let time = match self.time {
            None => return "Percentage of Total".to_owned(),
            Some(Time::Seconds) => "Seconds",
            Some(Time::Minutes) => "Minutes",
            Some(Time::Hours) => "Hours",
        };
        format!("{of}{time}{}", if self.percent { "/Percentage of Total" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// As sreport of Slurm 26.05.3 wrote them.
    #[test]
    fn amounts_are_rounded_as_slurm_rounds_them() {
        let of = |word: &str, secs| Units::read(word).unwrap().amount(secs, 15_744);
        assert_eq!((of("minutes", 2401), of("min", 7291)), ("40".to_owned(), "122(46.31%)".to_owned()));
        assert_eq!((of("hours", 6052), of("seconds", 2401)), ("2".to_owned(), "2401".to_owned()));
        assert_eq!((of("percent", 2401), of("secper", 6052)), ("15.25%".to_owned(), "6052(38.44%)".to_owned()));
        assert_eq!(Units::default().amount(3600, 0), "60");
        assert_eq!(Units::read("bogus"), None);
    }

    #[test]
    fn words_say_what_it_is_of() {
        let of = |word: &str| Units::read(word).unwrap().words("CPU ");
        assert_eq!(of("minutes"), "CPU Minutes");
        assert_eq!(of("hourper"), "CPU Hours/Percentage of Total");
        assert_eq!(of("percent"), "Percentage of Total");
    }
}
