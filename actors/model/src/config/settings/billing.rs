//! `TRESBillingWeights`: what a job of a partition is billed.

use crate::config::SettingError;
use std::collections::BTreeMap;

const MEM: &str = "mem";

/// One weighted thing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Weight {
    /// The name of the TRES: `cpu`, `mem`, `node`, `gres/gpu`, `gres/gpu:h100`, `license/matlab`.
    name: String,
    /// Of one unit, millionths.
    millionths: u64,
    /// KiB that are a unit, for memory; 1 otherwise.
    unit: u64,
}

/// Weights of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BillingWeights {
    weights: Vec<Weight>,
}

/// Which terms are added up (`PriorityFlags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BilledTerms {
    /// All.
    #[default]
    All,
    /// `MAX_TRES`: the greatest of what nodes give, and licenses.
    Greatest,
    /// `MAX_TRES_GRES`: the greatest of CPUs, memory and nodes, all generic resources, and licenses.
    GreatestAndGres,
}

impl BillingWeights {
    /// `CPU=1.0,Mem=0.25G,GRES/gpu=2.0,license/a=1.5`. A unit after a weight for memory says of how much; without one it is
    /// of a MiB.
    pub fn parse(text: &str) -> Result<Self, SettingError> {
        let mut weights = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong =
                || SettingError::new(format!("\"{part}\" is not a TRES with a weight, like CPU=1.0 or GRES/gpu=2.0"));
            let (name, number) = part.split_once('=').ok_or_else(wrong)?;
            let name = name.trim().to_ascii_lowercase();
            match name.split_once('/') {
                None if matches!(name.as_str(), MEM | "cpu" | "node") => {}
                // Nothing here has or counts these.
                None if matches!(name.as_str(), "energy" | "billing" | "vmem" | "pages") => continue,
                Some(("bb" | "fs" | "ic", _)) => continue,
                Some(("gres" | "license", _)) => {}
                _ => return Err(wrong()),
            }
            let number = number.trim();
            let plain = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let unit: u64 = match (number[plain.len()..].to_ascii_uppercase().as_str(), name.as_str()) {
                ("", MEM) | ("M", MEM) => 1 << 10,
                ("K", MEM) => 1,
                ("G", MEM) => 1 << 20,
                ("T", MEM) => 1 << 30,
                ("P", MEM) => 1 << 40,
                ("", _) => 1,
                _ => return Err(wrong()),
            };
            let weight = plain.parse::<f64>().ok().filter(|weight| (0.0..1e12).contains(weight)).ok_or_else(wrong)?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
            let millionths = (weight * 1e6).round() as u64;
            weights.push(Weight { name, millionths, unit });
        }
        Ok(Self { weights })
    }

    /// What is billed of amounts by the name of the TRES (`mem`: MiB). Part of one is not.
    pub fn billed(&self, tres: &BTreeMap<String, u64>, terms: BilledTerms) -> u64 {
        let (mut most, mut all) = (0u128, 0u128);
        for Weight { name, millionths, unit } in &self.weights {
            let such = tres.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
            let count: u128 = such.map(|(_, count)| u128::from(*count)).sum();
            let count = if name == MEM { count << 10 } else { count };
            let term = count * u128::from(*millionths) / u128::from(*unit);
            let is_added = match terms {
                BilledTerms::All => true,
                BilledTerms::Greatest => name.starts_with("license/"),
                BilledTerms::GreatestAndGres => name.starts_with("license/") || name.starts_with("gres/"),
            };
            if is_added {
                all += term;
            } else {
                most = most.max(term);
            }
        }
        u64::try_from((all + most) / 1_000_000).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn billed(weights: &str, terms: BilledTerms) -> u64 {
        let tres = [("cpu", 8), ("mem", 20_480), ("node", 2), ("gres/gpu", 3), ("gres/gpu:H100", 3), ("license/a", 2)];
        let what = tres.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        BillingWeights::parse(weights).unwrap().billed(&what, terms)
    }

    use BilledTerms::{All, Greatest, GreatestAndGres};

    // slurm.conf(5): with CPU=1.0,Mem=0.25G,GRES/gpu=2.0 the sum is CPUs + a quarter of the GiB + twice the GPUs.
    #[test]
    fn terms_are_added_up_or_the_greatest_of_them_counts() {
        assert_eq!(billed("CPU=1.0,Mem=0.25G,GRES/gpu=2.0", All), 8 + 5 + 6);
        assert_eq!(billed("CPU=1.0,Mem=0.25G,GRES/gpu=2.0", Greatest), 8);
        assert_eq!(billed("CPU=1.0,Mem=0.25G,GRES/gpu=2.0", GreatestAndGres), 8 + 6);
        assert_eq!(billed("CPU=0.5,Mem=0.25G,GRES/gpu=2.0,license/a=1.5", GreatestAndGres), 5 + 6 + 3);
        assert_eq!(billed("cpu=1,license/a=1.5,license/b=9", Greatest), 11);
        assert_eq!(billed("gres/gpu:h100=1,gres/gpu:a100=7,node=0.5", All), 4);
    }

    #[test]
    fn parts_of_one_are_not_billed() {
        assert_eq!(billed("CPU=0.2", All), 1);
        assert_eq!(billed("Mem=0.0001", All), 2);
    }

    #[test]
    fn what_is_no_weight_is_an_error() {
        for text in ["cpu", "cpu=x", "cpu=1G", "cpu=-1", "foo=1", "mem=1X"] {
            assert!(BillingWeights::parse(text).is_err(), "{text}");
        }
    }
}
