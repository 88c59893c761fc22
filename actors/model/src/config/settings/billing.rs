//! `TRESBillingWeights`: what a job of a partition is billed.

use crate::config::SettingError;

/// One weighted thing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Weight {
    kind: Kind,
    /// Of one unit, millionths.
    millionths: u64,
    /// KiB that are a unit, for memory; 1 otherwise.
    unit: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Cpu,
    Mem,
    Node,
    /// Name and type.
    Gres(String, Option<String>),
    License(String),
}

/// Weights of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BillingWeights {
    weights: Vec<Weight>,
}

/// What a job has, or asks for.
pub struct Billed<'b> {
    /// CPUs.
    pub cpus: u64,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Nodes.
    pub nodes: u64,
    /// How many of a generic resource, by name and type (`None`: of all types).
    pub gres: &'b dyn Fn(&str, Option<&str>) -> u64,
    /// How many of a license.
    pub license: &'b dyn Fn(&str) -> u64,
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
            let lower = name.trim().to_ascii_lowercase();
            let kind = match lower.split_once('/') {
                None if lower == "cpu" => Kind::Cpu,
                None if lower == "mem" => Kind::Mem,
                None if lower == "node" => Kind::Node,
                // Nothing here has or counts these.
                None if matches!(lower.as_str(), "energy" | "billing" | "vmem" | "pages") => continue,
                Some(("bb" | "fs" | "ic", _)) => continue,
                Some(("gres", what)) => match what.split_once(':') {
                    Some((name, kind)) => Kind::Gres(name.to_owned(), Some(kind.to_owned())),
                    None => Kind::Gres(what.to_owned(), None),
                },
                Some(("license", what)) => Kind::License(what.to_owned()),
                _ => return Err(wrong()),
            };
            let number = number.trim();
            let plain = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let unit: u64 = match (number[plain.len()..].to_ascii_uppercase().as_str(), &kind) {
                ("", Kind::Mem) | ("M", Kind::Mem) => 1 << 10,
                ("K", Kind::Mem) => 1,
                ("G", Kind::Mem) => 1 << 20,
                ("T", Kind::Mem) => 1 << 30,
                ("P", Kind::Mem) => 1 << 40,
                ("", _) => 1,
                _ => return Err(wrong()),
            };
            let weight = plain.parse::<f64>().ok().filter(|weight| (0.0..1e12).contains(weight)).ok_or_else(wrong)?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
            let millionths = (weight * 1e6).round() as u64;
            weights.push(Weight { kind, millionths, unit });
        }
        Ok(Self { weights })
    }

    /// What is billed: the sum of all weighted, or of what nodes give only the greatest (`MAX_TRES`). Part of one is not
    /// billed.
    pub fn billed(&self, what: &Billed<'_>, greatest: bool) -> u64 {
        let (mut sum, mut most, mut global) = (0u128, 0u128, 0u128);
        for Weight { kind, millionths, unit } in &self.weights {
            let count = match kind {
                Kind::Cpu => u128::from(what.cpus),
                Kind::Mem => u128::from(what.memory_mib) << 10,
                Kind::Node => u128::from(what.nodes),
                Kind::Gres(name, kind) => u128::from((what.gres)(name, kind.as_deref())),
                Kind::License(name) => u128::from((what.license)(name)),
            };
            let term = count * u128::from(*millionths) / u128::from(*unit);
            if matches!(kind, Kind::License(_)) {
                global += term;
            } else {
                sum += term;
                most = most.max(term);
            }
        }
        let all = if greatest { most } else { sum } + global;
        u64::try_from(all / 1_000_000).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn billed(weights: &str, greatest: bool) -> u64 {
        let gres =
            |name: &str, kind: Option<&str>| u64::from(name == "gpu" && kind.is_none_or(|kind| kind == "h100")) * 3;
        let license = |name: &str| u64::from(name == "a") * 2;
        let what = Billed { cpus: 8, memory_mib: 20_480, nodes: 2, gres: &gres, license: &license };
        BillingWeights::parse(weights).unwrap().billed(&what, greatest)
    }

    // slurm.conf(5): with CPU=1.0,Mem=0.25G,GRES/gpu=2.0 the sum is CPUs + a quarter of the GiB + twice the GPUs.
    #[test]
    fn terms_are_added_up_or_the_greatest_of_them_counts() {
        assert_eq!(billed("CPU=1.0,Mem=0.25G,GRES/gpu=2.0", false), 8 + 5 + 6);
        assert_eq!(billed("CPU=1.0,Mem=0.25G,GRES/gpu=2.0", true), 8);
        assert_eq!(billed("cpu=1,license/a=1.5,license/b=9", true), 11);
        assert_eq!(billed("gres/gpu:h100=1,gres/gpu:a100=7,node=0.5", false), 4);
    }

    #[test]
    fn parts_of_one_are_not_billed() {
        assert_eq!(billed("CPU=0.2", false), 1);
        assert_eq!(billed("Mem=0.0001", false), 2);
    }

    #[test]
    fn what_is_no_weight_is_an_error() {
        for text in ["cpu", "cpu=x", "cpu=1G", "cpu=-1", "foo=1", "mem=1X"] {
            assert!(BillingWeights::parse(text).is_err(), "{text}");
        }
    }
}
