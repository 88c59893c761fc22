//! What somebody has used: what fair shares, and limits of past use, go by.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name under which what is billed is counted.
pub const BILLING: &str = "billing";
/// Whose usage it is: names, since they outlive the numbers of associations.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Who {
    /// Account.
    pub account: String,
    /// User.
    pub user: String,
    /// Of an association for one partition: that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

/// What was used up to a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    /// Amounts times seconds, by the name of the TRES.
    pub tres: BTreeMap<String, f64>,
    /// Seconds of jobs.
    pub wall_secs: f64,
}

impl Used {
    /// What is billed: Slurm's `RawUsage`.
    pub fn billed(&self) -> f64 {
        self.tres.get(BILLING).copied().unwrap_or(0.0)
    }

    /// Adds that of another.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.tres {
            match self.tres.get_mut(name) {
                Some(own) => *own += amount,
                None => drop(self.tres.insert(name.clone(), *amount)),
            }
        }
        self.wall_secs += other.wall_secs;
    }
}

/// How a use goes on while nothing begins or ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    /// What was used up to a moment.
    pub used: Used,
    /// What running jobs add in a second.
    pub rate: Used,
    /// What was used decays to one half in so many seconds; 0: it does not.
    pub half_life_secs: u64,
}

impl Flow {
    /// Adds another with the same half-life.
    pub fn add(&mut self, other: &Self) {
        self.used.add(&other.used);
        self.rate.add(&other.rate);
        self.half_life_secs = other.half_life_secs;
    }

    /// In how many seconds an amount times seconds reaches this; `None`: never, if all goes on.
    pub fn reaches(&self, name: &str, most: f64) -> Option<f64> {
        let of = |used: &Used| used.tres.get(name).copied().unwrap_or(0.0);
        let (value, rate) = (of(&self.used), of(&self.rate));
        if value >= most {
            return Some(0.0);
        }
        if self.half_life_secs == 0 {
            return (rate > 0.0).then(|| (most - value) / rate);
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let half_life = self.half_life_secs as f64;
        // The value goes towards this one, and comes nearer by half in each half-life.
        let end = rate * half_life / std::f64::consts::LN_2;
        (end > most).then(|| half_life * ((end - value) / (end - most)).log2())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_flow_reaches_what_it_is_said_to_reach(value in 0.0..1e6_f64, rate in 0.0..64.0_f64, half_life in 0u64..1_000_000, most in 1.0..1e7_f64) {
            let one = |amount| Used { tres: [("cpu".to_owned(), amount)].into(), wall_secs: 0.0 };
            let flow = Flow { used: one(value), rate: one(rate), half_life_secs: half_life };
            // The sum of short steps.
            let after = |secs: f64| {
                let (steps, decay) = (20_000, |secs: f64| if half_life == 0 { 1.0 } else { (-secs / half_life as f64).exp2() });
                let step = secs / f64::from(steps);
                (0..steps).fold(value, |value, _| value * decay(step) + rate * step * decay(step / 2.0))
            };
            match flow.reaches("cpu", most) {
                Some(secs) => prop_assert!(value >= most || (after(secs) - most).abs() <= most * 1e-3),
                None => prop_assert!(after(1e8) < most * 1.001 || rate == 0.0),
            }
            prop_assert_eq!(flow.reaches("mem", most), None);
        }
    }
}
