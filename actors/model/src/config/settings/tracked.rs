//! `AccountingStorageTRES` of slurm.conf(5): what is counted besides what always is.
//!
//! Every generic resource and license of the cluster is counted by its name. A type of a generic resource is counted by itself, besides
//! its name, where this names it.

use crate::config::syntax::{report::SettingError, values};
use std::fmt;

/// What is always counted, as it is shown.
const ALWAYS: [&str; 8] = ["cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"];

/// What the site names besides, in its order: `gres/gpu`, `gres/gpu:h100`, `license/matlab`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackedTres(Vec<String>);

impl TrackedTres {
    /// From names separated by commas. What of them nothing measures is noted.
    ///
    /// # Errors
    /// The first that is no name of a TRES.
    pub fn parse(text: &str) -> Result<(Self, Option<SettingError>), SettingError> {
        let mut tracked = Self::default();
        let mut later = Vec::new();
        for name in values::list_or_none(text) {
            let (kind, rest) = name.split_once('/').map_or((name.as_str(), None), |(kind, rest)| (kind, Some(rest)));
            let kind = kind.to_ascii_lowercase();
            let full = rest.map_or_else(|| kind.clone(), |rest| format!("{kind}/{rest}"));
            match (kind.as_str(), rest) {
                _ if ALWAYS.contains(&full.to_ascii_lowercase().as_str()) => {}
                ("bb" | "fs" | "ic", Some(_)) => later.push(name),
                ("gres" | "license", Some(rest)) if !rest.is_empty() && !rest.ends_with(':') => {
                    if !tracked.0.contains(&full) {
                        tracked.0.push(full);
                    }
                }
                _ => {
                    return Err(SettingError::new(format!("\"{name}\" is not the name of a TRES"))
                        .suggest("for example gres/gpu,gres/gpu:h100,license/matlab"));
                }
            }
        }
        let without = || SettingError::new(format!("{} is not counted yet", later.join(",")));
        let note = (!later.is_empty()).then(|| without().suggest("gres/NAME, gres/NAME:TYPE and license/NAME are"));
        Ok((tracked, note))
    }

    /// Is that counted? Only types of generic resources have to be named.
    pub fn counts(&self, name: &str) -> bool {
        !(name.starts_with("gres/") && name.contains(':')) || self.0.iter().any(|known| known == name)
    }

    /// Is that type of a generic resource counted by itself?
    pub fn counts_type(&self, name: &str, kind: &str) -> bool {
        self.0.iter().any(|known| {
            let typed = known.strip_prefix("gres/").and_then(|known| known.split_once(':'));
            typed == Some((name, kind))
        })
    }

    /// What is named.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// As `scontrol show config` has it.
impl fmt::Display for TrackedTres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&ALWAYS.join(","))?;
        self.0.iter().try_for_each(|name| write!(f, ",{name}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_added_to_what_is_always_counted() {
        let parse = |text: &str| TrackedTres::parse(text);
        let (tracked, note) = parse("cpu,gres/gpu,GRES/gpu:H100,license/matlab,gres/gpu").unwrap();
        assert_eq!(note, None);
        assert_eq!(
            tracked.to_string(),
            "cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu,gres/gpu:H100,license/matlab"
        );
        assert!(tracked.counts_type("gpu", "H100") && !tracked.counts_type("gpu", "a100"));
        assert!(tracked.counts("gres/gpu:H100") && !tracked.counts("gres/gpu:a100") && tracked.counts("gres/nic"));
        assert_eq!(parse("").unwrap(), (TrackedTres::default(), None));
        // What tasks use of GPUs.
        let (used, note) = parse("gres/gpumem,gres/gpuutil").unwrap();
        assert_eq!((used.names().collect::<Vec<_>>(), note), (vec!["gres/gpumem", "gres/gpuutil"], None));
        assert!(parse("bb/cray").unwrap().1.is_some());
        for wrong in ["tape", "gres", "gres/", "license/", "gres/gpu:"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
