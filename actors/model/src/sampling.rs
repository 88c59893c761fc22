//! How often it is looked at what runs: `--acctg-freq` of srun(1), and `JobAcctGatherFrequency` of slurm.conf(5).

use serde::{Deserialize, Serialize};

/// Seconds between samples, for each series. `None`: not said; 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Periods {
    /// Of tasks, whether they are recorded or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<u32>,
    /// Of the node's energy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<u32>,
    /// Of its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<u32>,
    /// Of its file systems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<u32>,
}

impl Periods {
    /// Reads seconds, or a list of `type=seconds`. A number alone is that of tasks.
    ///
    /// # Errors
    /// The part that is no such thing.
    pub fn parse(text: &str) -> Result<Self, &str> {
        let mut periods = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (kind, number) = part.split_once('=').unwrap_or(("task", part));
            let secs = number.parse::<u32>().ok().filter(|_| number.bytes().all(|b| b.is_ascii_digit())).ok_or(part)?;
            let period = match kind {
                "task" => &mut periods.task,
                "energy" => &mut periods.energy,
                "network" => &mut periods.network,
                "filesystem" => &mut periods.filesystem,
                _ => return Err(part),
            };
            *period = Some(secs);
        }
        Ok(periods)
    }

    /// Nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// These, and where they say nothing, others.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            task: self.task.or(others.task),
            energy: self.energy.or(others.energy),
            network: self.network.or(others.network),
            filesystem: self.filesystem.or(others.filesystem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_that_of_tasks() {
        let of_tasks = |text| Periods::parse(text).map(|periods| periods.task);
        assert_eq!(of_tasks("30"), Ok(Some(30)));
        let all = Periods { task: Some(0), energy: Some(5), network: Some(1), filesystem: None };
        assert_eq!(Periods::parse("energy=5,task=0,network=1,"), Ok(all));
        assert_eq!((of_tasks(""), of_tasks("filesystem=7")), (Ok(None), Ok(None)));
        for wrong in ["x", "+3", "task=", "task=5s", "memory=3", "Task=5", "99999999999"] {
            assert_eq!(of_tasks(wrong), Err(wrong));
        }
        assert_eq!(of_tasks("task=5,x=3"), Err("x=3"));
    }

    #[test]
    fn what_is_not_said_others_say() {
        let own = Periods { energy: Some(0), ..Periods::default() };
        let others = Periods { task: Some(1), energy: Some(2), ..Periods::default() };
        assert_eq!(own.or(others), Periods { task: Some(1), energy: Some(0), ..Periods::default() });
    }
}
