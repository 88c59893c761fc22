//! The results of a scenario, to be printed, saved as JSON and compared with goals. A rate is always shown beside the machine's
//! own spawn rate of the same minutes.

use crate::spawn_floor::{Floor, FloorError};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// What a figure should reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Goal {
    /// A rate: at least this part of the best raw spawn rate.
    OfBest(f64),
    /// A rate: at least this many a second, or this part of the raw rate one at a time, whichever is lower.
    RateOrOfSerial(f64, f64),
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

/// So many of something in so many seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// What.
    pub what: String,
    /// How many.
    pub count: u64,
    /// In how long.
    pub seconds: f64,
    /// Wanted.
    pub goal: Option<Goal>,
    /// The floor to compare with is one at a time, not the best way.
    pub beside_serial: bool,
}

/// A figure that is not a rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Amount {
    /// What.
    pub what: String,
    /// How much.
    pub value: f64,
    /// Unit.
    pub unit: String,
    /// Wanted.
    pub goal: Option<Goal>,
}

/// Rows under a heading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Column names.
    pub head: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Finding {
    /// A rate.
    Pace(Pace),
    /// Another figure.
    Amount(Amount),
    /// Several.
    Table(Table),
    /// What a reader has to know.
    Note(String),
}

/// All that one scenario found, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// A rate.
    pub fn pace(&mut self, what: impl Into<String>, count: u64, seconds: f64, goal: Option<Goal>) {
        self.0.push(Finding::Pace(Pace { what: what.into(), count, seconds, goal, beside_serial: false }));
    }

    /// A rate of something that happens one at a time.
    pub fn serial_pace(&mut self, what: impl Into<String>, count: u64, seconds: f64, goal: Option<Goal>) {
        self.0.push(Finding::Pace(Pace { what: what.into(), count, seconds, goal, beside_serial: true }));
    }

    /// Another figure.
    pub fn amount(&mut self, what: impl Into<String>, value: f64, unit: &str, goal: Option<Goal>) {
        self.0.push(Finding::Amount(Amount { what: what.into(), value, unit: unit.into(), goal }));
    }

    /// Rows under a heading.
    pub fn table(&mut self, title: impl Into<String>, head: &[&str], rows: Vec<Vec<String>>) {
        let head = head.iter().map(|h| (*h).to_owned()).collect();
        self.0.push(Finding::Table(Table { title: title.into(), head, rows }));
    }

    /// What a reader has to know.
    pub fn note(&mut self, text: impl Into<String>) {
        self.0.push(Finding::Note(text.into()));
    }
}

/// The middle one of some values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A scenario's findings beside the floors around it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Which scenario.
    pub scenario: String,
    /// Raw spawn rates before it.
    pub before: Floor,
    /// And after it.
    pub after: Floor,
    /// What was found.
    pub findings: Findings,
}

impl Goal {
    /// Whether a figure reaches it; rates are held against `floor`.
    pub fn met(self, value: f64, floor: &Floor) -> bool {
        match self {
            Self::OfBest(part) => value >= part * floor.best(),
            Self::RateOrOfSerial(rate, part) => value >= rate.min(part * floor.serial()),
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }

    fn words(self, floor: &Floor) -> String {
        match self {
            Self::OfBest(part) => format!("{part:.2} of raw"),
            Self::RateOrOfSerial(rate, part) => format!("{:.0}/s", rate.min(part * floor.serial())),
            Self::AtMost(most) => format!("at most {}", number(most)),
            Self::AtLeast(least) => format!("at least {}", number(least)),
        }
    }
}

impl Figures {
    /// Puts spawn rates of this machine around what a scenario finds: each way of spawning, `spawns` times before and after.
    pub fn around<E: From<FloorError>>(
        scenario: String,
        spawns: usize,
        of: impl FnOnce() -> Result<Findings, E>,
    ) -> Result<Self, E> {
        let before = Floor::measure(spawns)?;
        let findings = of()?;
        let after = Floor::measure(spawns)?;
        Ok(Self { scenario, before, after, findings })
    }

    /// The floor that rates are held against: the mean of before and after.
    pub fn floor(&self) -> Floor {
        Floor::between(&self.before, &self.after)
    }

    /// Goals that were not reached.
    pub fn missed(&self) -> usize {
        let floor = self.floor();
        let goals = self.findings.0.iter().filter_map(|f| match f {
            Finding::Pace(p) => p.goal.map(|g| (g, p.rate())),
            Finding::Amount(a) => a.goal.map(|g| (g, a.value)),
            Finding::Table(_) | Finding::Note(_) => None,
        });
        goals.filter(|(goal, value)| !goal.met(*value, &floor)).count()
    }

    /// For people.
    pub fn render(&self, out: &mut dyn Write) -> io::Result<()> {
        let floor = self.floor();
        writeln!(out, "== {}", self.scenario)?;
        writeln!(out, "raw before: {}", self.before)?;
        writeln!(out, "raw after:  {}", self.after)?;
        writeln!(out, "raw taken:  {:.0}/s best, {:.0}/s one at a time (means)", floor.best(), floor.serial())?;
        for finding in &self.findings.0 {
            match finding {
                Finding::Pace(pace) => pace.render(&floor, out)?,
                Finding::Amount(amount) => amount.render(&floor, out)?,
                Finding::Table(table) => table.render(out)?,
                Finding::Note(text) => writeln!(out, "   {text}")?,
            }
        }
        writeln!(out)
    }
}

impl Pace {
    /// How many a second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.seconds.max(1e-9)
    }

    fn render(&self, floor: &Floor, out: &mut dyn Write) -> io::Result<()> {
        let (raw, beside) = if self.beside_serial { (floor.serial(), "serial raw") } else { (floor.best(), "raw") };
        write!(
            out,
            "{:<44} {:>8} in {:>8.2} s {:>9.0}/s  {:.2} of {beside}",
            self.what,
            self.count,
            self.seconds,
            self.rate(),
            self.rate() / raw.max(1e-9)
        )?;
        verdict(self.goal, self.rate(), floor, out)
    }
}

impl Amount {
    fn render(&self, floor: &Floor, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{:<44} {:>8} {}", self.what, number(self.value), self.unit)?;
        verdict(self.goal, self.value, floor, out)
    }
}

fn verdict(goal: Option<Goal>, value: f64, floor: &Floor, out: &mut dyn Write) -> io::Result<()> {
    match goal {
        None => writeln!(out),
        Some(goal) => {
            let verdict = if goal.met(value, floor) { "met" } else { "NOT MET" };
            writeln!(out, "  goal {}: {verdict}", goal.words(floor))
        }
    }
}

impl Table {
    /// For people.
    pub fn render(&self, out: &mut dyn Write) -> io::Result<()> {
        let rows = || std::iter::once(&self.head).chain(&self.rows);
        let columns = rows().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| rows().filter_map(|r| r.get(c)).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        writeln!(out, "   {}", self.title)?;
        for row in rows() {
            write!(out, "    ")?;
            for (c, (cell, width)) in row.iter().zip(&widths).enumerate() {
                // Words to the left, figures to the right.
                if c == 0 { write!(out, " {cell:<width$}")? } else { write!(out, "  {cell:>width$}")? }
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// Three digits that matter, and no more behind the point than that needs.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || value == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::spawn_floor::Way;

    fn floor(serial: f64, best: f64) -> Floor {
        Floor { ways: vec![(Way { threads: 1, in_flight: 1 }, serial), (Way { threads: 2, in_flight: 1 }, best)] }
    }

    #[test]
    fn goals_are_held_against_the_floor_of_the_same_run() {
        let f = floor(1000.0, 2000.0);
        assert!(Goal::OfBest(0.75).met(1500.0, &f) && !Goal::OfBest(0.75).met(1499.0, &f));
        assert!(Goal::RateOrOfSerial(300.0, 1.0 / 3.0).met(300.0, &f));
        assert!(Goal::RateOrOfSerial(300.0, 1.0 / 3.0).met(201.0, &floor(600.0, 2000.0)));
        assert!(!Goal::AtMost(0.0).met(0.001, &f) && Goal::AtLeast(0.95).met(0.95, &f));
    }

    #[test]
    fn figures_are_shown_with_ratio_goal_and_verdict() {
        let mut findings = Findings::default();
        findings.pace("array", 1500, 1.0, Some(Goal::OfBest(0.75)));
        findings.serial_pace("srun", 100, 1.0, Some(Goal::RateOrOfSerial(300.0, 1.0 / 3.0)));
        findings.amount("bytes per queued step", 12.0, "B", None);
        findings.table("layers", &["layer", "us"], vec![vec!["spawn".into(), "9".into()]]);
        let figures =
            Figures { scenario: "x".into(), before: floor(900.0, 1900.0), after: floor(1100.0, 2100.0), findings };
        let mut text = Vec::new();
        figures.render(&mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "== x\n\
             raw before: 900/s one at a time, 1900/s 2 threads\n\
             raw after:  1100/s one at a time, 2100/s 2 threads\n\
             raw taken:  2000/s best, 1000/s one at a time (means)\n\
             array                                            1500 in     1.00 s      1500/s  0.75 of raw  goal 0.75 of raw: met\n\
             srun                                              100 in     1.00 s       100/s  0.10 of serial raw  goal 300/s: NOT MET\n\
             bytes per queued step                            12.0 B\n\
             \u{20}  layers\n\
             \u{20}    layer  us\n\
             \u{20}    spawn   9\n\n"
        );
        assert_eq!(figures.missed(), 1);
    }
}
