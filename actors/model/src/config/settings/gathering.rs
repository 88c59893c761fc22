//! How it is measured what tasks use: `JobAcctGatherFrequency` and `AcctGatherEnergyType` of slurm.conf(5).

use crate::{
    config::syntax::{report::SettingError, values::Value},
    sampling,
};

/// Where the energy of a node is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnergySource {
    /// Nowhere.
    #[default]
    None,
    /// `acct_gather_energy/rapl`: counters of the processor, as the kernel shows them below `/sys/class/powercap`.
    Rapl,
}

/// What is measured, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatheringSettings {
    /// `JobAcctGatherFrequency`: seconds between looks at running tasks; 0: never. Unless steps say otherwise.
    pub task_secs: u32,
    /// `AcctGatherEnergyType`.
    pub energy: EnergySource,
}

impl GatheringSettings {
    /// Seconds between looks where a list does not name tasks (slurm.conf(5)).
    const USUAL_SECS: u32 = 30;

    /// Takes `JobAcctGatherFrequency`.
    pub(super) fn set_periods(&mut self, text: &str) -> Value<Option<SettingError>> {
        let secs = sampling::task_secs(text);
        let secs = secs.map_err(|part| {
            SettingError::new(format!("{part} is not a number of seconds for tasks, energy, network or filesystem"))
        })?;
        self.task_secs = secs.unwrap_or(Self::USUAL_SECS);
        Ok(None)
    }

    /// Takes `AcctGatherEnergyType`; with a type that is not supported nothing is measured.
    pub(super) fn set_energy(&mut self, text: &str) -> Option<SettingError> {
        self.energy = EnergySource::None;
        let lower = text.to_ascii_lowercase();
        match lower.strip_prefix("acct_gather_energy/").unwrap_or(&lower) {
            "none" | "(null)" | "" => {}
            "rapl" => self.energy = EnergySource::Rapl,
            _ => {
                let without = SettingError::new(format!("{text} is not supported yet"));
                return Some(without.suggest("no energy is measured; acct_gather_energy/rapl is there"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_is_that_of_the_processor_or_is_not_measured() {
        let mut settings = GatheringSettings::default();
        for text in ["acct_gather_energy/rapl", "rapl", "Acct_Gather_Energy/RAPL"] {
            assert_eq!(settings.set_energy(text), None);
            assert_eq!(settings.energy, EnergySource::Rapl);
        }
        assert!(settings.set_energy("acct_gather_energy/ipmi").is_some());
        assert_eq!(settings.energy, EnergySource::None);
        assert_eq!(settings.set_energy("acct_gather_energy/none"), None);
    }

    #[test]
    fn tasks_are_looked_at_every_half_minute_where_a_list_does_not_say_it() {
        let mut settings = GatheringSettings::default();
        for (text, secs) in [("energy=5", 30), ("task=0", 0), ("7", 7)] {
            assert_eq!(settings.set_periods(text), Ok(None));
            assert_eq!(settings.task_secs, secs);
        }
        assert!(settings.set_periods("often").is_err());
    }
}
