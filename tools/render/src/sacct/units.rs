//! Amounts and times as `sacct` writes them.

use garrick_accounts::tres::{MEM, Tres};

/// How amounts of memory are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// In the greatest unit in which they are whole.
    Short,
    /// `--noconvert`: in the unit in which they are kept.
    Plain,
    /// `--units`: in this one, with two decimals where it is not whole.
    In(Unit),
}

/// A unit of memory, by its power of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit(u32);

/// Letters of the powers of 1024.
const LETTERS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

impl Unit {
    /// Bytes.
    pub const BYTE: Self = Self(0);
    /// KiB
    pub const KIB: Self = Self(1);
    /// MiB
    pub const MIB: Self = Self(2);

    /// By the first letter of a text, `K` to `P`.
    pub fn read(text: &str) -> Option<Self> {
        let first = text.get(..1)?;
        let power = LETTERS[1..=5].iter().position(|letter| letter.eq_ignore_ascii_case(first))?;
        u32::try_from(power + 1).ok().map(Self)
    }

    const fn letter(self) -> &'static str {
        LETTERS[self.0 as usize]
    }

    fn bytes(self) -> u128 {
        1 << (10 * self.0)
    }
}

impl Units {
    /// So much of a unit: `400M`, `33292K`, `2.50G`.
    pub fn amount(self, count: u64, of: Unit) -> String {
        match self {
            Self::Plain => format!("{count}{}", of.letter()),
            Self::Short => {
                let (mut count, mut unit) = (count, of);
                while count > 0 && count.is_multiple_of(1024) && (unit.0 as usize) + 1 < LETTERS.len() {
                    (count, unit) = (count / 1024, Unit(unit.0 + 1));
                }
                format!("{count}{}", unit.letter())
            }
            Self::In(unit) => {
                let bytes = u128::from(count) * of.bytes();
                if bytes.is_multiple_of(unit.bytes()) {
                    return format!("{}{}", bytes / unit.bytes(), unit.letter());
                }
                format!("{:.2}{}", bytes as f64 / unit.bytes() as f64, unit.letter())
            }
        }
    }

    /// Bytes that were read or written: in MiB unless another unit is asked for, always with two decimals.
    pub fn fraction(self, bytes: u64) -> String {
        let unit = match self {
            Self::In(unit) => unit,
            Self::Short | Self::Plain => Unit::MIB,
        };
        format!("{:.2}{}", bytes as f64 / unit.bytes() as f64, unit.letter())
    }

    /// A frequency in kHz: `2.44M`, `2440000`.
    pub fn khz(self, khz: u64) -> String {
        match (khz, self) {
            (0, _) => "0".to_owned(),
            (khz, Self::Plain) => khz.to_string(),
            (khz, _) => {
                let hundredths = (khz + 5_000) / 10_000;
                format!("{}.{:02}M", hundredths / 100, hundredths % 100)
            }
        }
    }

    /// `billing=4,cpu=4,mem=400M,node=1`
    pub fn tres(self, tres: &Tres) -> String {
        let one = |(name, count): (&str, u64)| match name {
            MEM => format!("{name}={}", self.amount(count, Unit::MIB)),
            _ => format!("{name}={count}"),
        };
        tres.iter().map(one).collect::<Vec<_>>().join(",")
    }
}

/// `[days-]hours:minutes:seconds`
pub fn elapsed(secs: u64) -> String {
    let (days, hours, minutes, secs) = (secs / 86_400, secs / 3600 % 24, secs / 60 % 60, secs % 60);
    let days = if days > 0 { format!("{days}-") } else { String::new() };
    format!("{days}{hours:02}:{minutes:02}:{secs:02}")
}

/// CPU time: with thousandths as long as there are no hours, `01:05.250`.
pub fn cpu_time(micros: u64) -> String {
    let secs = micros / 1_000_000;
    match micros {
        0 => elapsed(0),
        _ if secs >= 3600 => elapsed(secs),
        _ => format!("{:02}:{:02}.{:03}", secs / 60, secs % 60, micros / 1000 % 1000),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// As sacct of Slurm 26.05.3 wrote them.
    #[test]
    fn amounts_are_in_the_unit_that_is_asked_for() {
        let all = |units: Units| {
            [units.amount(400, Unit::MIB), units.amount(34_091_008, Unit::BYTE), units.amount(3 << 20, Unit::BYTE)]
        };
        assert_eq!(all(Units::Short), ["400M", "33292K", "3M"]);
        assert_eq!(all(Units::Plain), ["400M", "34091008", "3145728"]);
        assert_eq!(all(Units::In(Unit::read("K").unwrap())), ["409600K", "33292K", "3072K"]);
        assert_eq!(all(Units::In(Unit::read("MB").unwrap())), ["400M", "32.51M", "3M"]);
        assert_eq!(Units::In(Unit::read("g").unwrap()).amount(400, Unit::MIB), "0.39G");
        assert_eq!(Units::Short.amount(0, Unit::KIB), "0K");
        for text in ["x", "E", "", "ü"] {
            assert_eq!(Unit::read(text), None);
        }
        let tres: Tres = [("cpu", 4), ("mem", 400), ("node", 1), ("billing", 4)].into_iter().collect();
        assert_eq!(Units::In(Unit::read("G").unwrap()).tres(&tres), "billing=4,cpu=4,mem=0.39G,node=1");
    }

    #[test]
    fn times_have_days_and_cpu_times_have_thousandths() {
        assert_eq!((elapsed(0), elapsed(90_061)), ("00:00:00".to_owned(), "1-01:01:01".to_owned()));
        assert_eq!(cpu_time(0), "00:00:00");
        assert_eq!(cpu_time(204_433), "00:00.204");
        assert_eq!(cpu_time(65_250_000), "01:05.250");
        assert_eq!(cpu_time(9_000_999_999), "02:30:00");
    }
}
