//! What jobs get with each GPU where they do not say: `DefCpuPerGPU` and `DefMemPerGPU`, also written
//! `JobDefaults=DefCpuPerGPU=4,DefMemPerGPU=1000`.

use crate::{
    config::syntax::{
        report::SettingError,
        values::{self, Value},
    },
    resources::MemoryMib,
};
use std::fmt;

/// Defaults for each GPU of a job; `None`: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobDefaults {
    /// `DefCpuPerGPU`.
    pub cpus_per_gpu: Option<u32>,
    /// `DefMemPerGPU`.
    pub mem_per_gpu: Option<MemoryMib>,
}

impl JobDefaults {
    /// Sets one by its name; 0 is none.
    pub(in crate::config) fn set(&mut self, name: &str, value: &str) -> Value<()> {
        match values::choice(name, &["DefCpuPerGPU", "DefMemPerGPU"])? {
            "DefCpuPerGPU" => self.cpus_per_gpu = values::number_or_unlimited(value, 0, 65_535)?.filter(|n| *n > 0),
            _ => {
                let mib = values::number_or_unlimited(value, 0, u64::MAX / 2)?;
                self.mem_per_gpu = mib.filter(|n| *n > 0).map(MemoryMib);
            }
        }
        Ok(())
    }

    /// All of them; nothing, or `(null)`, for none.
    pub(in crate::config) fn parse(text: &str) -> Value<Self> {
        let mut defaults = Self::default();
        for pair in values::optional(text).unwrap_or_default().split(',').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                let wrong = SettingError::new(format!("\"{pair}\" is not one of JobDefaults"));
                return Err(wrong.suggest("write DefCpuPerGPU=N or DefMemPerGPU=MEGABYTES"));
            };
            defaults.set(name.trim(), value.trim())?;
        }
        Ok(defaults)
    }

    /// One word for each.
    pub(in crate::config) fn words(self) -> Vec<String> {
        let cpus = self.cpus_per_gpu.map(|n| format!("DefCpuPerGPU={n}"));
        let memory = self.mem_per_gpu.map(|mib| format!("DefMemPerGPU={}", mib.0));
        cpus.into_iter().chain(memory).collect()
    }
}

impl fmt::Display for JobDefaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.words().join(","))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn defaults_are_read_and_shown() {
        let both = JobDefaults { cpus_per_gpu: Some(4), mem_per_gpu: Some(MemoryMib(1000)) };
        assert_eq!(JobDefaults::parse("defcpupergpu=4,DefMemPerGPU=1000").unwrap(), both);
        assert_eq!(both.to_string(), "DefCpuPerGPU=4,DefMemPerGPU=1000");
        assert_eq!(JobDefaults::parse("(null)").unwrap(), JobDefaults::default());
        assert_eq!(JobDefaults::parse("DefCpuPerGPU=0").unwrap().to_string(), "");
        for wrong in ["DefCpuPerGPU", "DefCpuPerGPU=x", "CpuPerGPU=1"] {
            assert!(JobDefaults::parse(wrong).is_err(), "{wrong}");
        }
    }
}
