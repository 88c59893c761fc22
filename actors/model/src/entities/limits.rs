//! Limits of associations and QOS (sacctmgr(1), Slurm's page on resource limits).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A limit that is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Count {
    /// `GrpJobs`: running jobs together.
    GrpJobs,
    /// `GrpJobsAccrue`: waiting jobs together that gain priority by age.
    GrpJobsAccrue,
    /// `GrpSubmitJobs`: waiting and running jobs together.
    GrpSubmit,
    /// `GrpWall`: time of running and past jobs together, minutes, with decay.
    GrpWall,
    /// `MaxJobs` of an association: running jobs.
    MaxJobs,
    /// `MaxJobsAccrue` of an association: waiting jobs that gain priority by age.
    MaxJobsAccrue,
    /// `MaxSubmitJobs` of an association: waiting and running jobs.
    MaxSubmit,
    /// `MaxWall`: time limit of a job, minutes.
    MaxWall,
    /// `MaxJobsPerUser` of a QOS.
    MaxJobsPerUser,
    /// `MaxJobsPerAccount` of a QOS.
    MaxJobsPerAccount,
    /// `MaxJobsAccruePerUser` of a QOS.
    MaxJobsAccruePerUser,
    /// `MaxJobsAccruePerAccount` of a QOS.
    MaxJobsAccruePerAccount,
    /// `MaxSubmitJobsPerUser` of a QOS.
    MaxSubmitPerUser,
    /// `MaxSubmitJobsPerAccount` of a QOS.
    MaxSubmitPerAccount,
    /// `MinPrioThreshold`: jobs with less priority do not reserve resources.
    MinPrioThreshold,
}

/// A limit that is a number for each kind of TRES.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TresLimit {
    /// `GrpTRES`: allocated to running jobs together.
    GrpTres,
    /// `GrpTRESMins`: minutes of past, present and future jobs together, with decay.
    GrpTresMins,
    /// `GrpTRESRunMins`: minutes that running jobs have left by their limits, together.
    GrpTresRunMins,
    /// `MaxTRESPerJob`.
    MaxTresPerJob,
    /// `MaxTRESPerNode`.
    MaxTresPerNode,
    /// `MaxTRESMinsPerJob`: amounts times time limit, minutes.
    MaxTresMinsPerJob,
    /// `MaxTRESPerUser` of a QOS.
    MaxTresPerUser,
    /// `MaxTRESPerAccount` of a QOS.
    MaxTresPerAccount,
    /// `MaxTRESRunMinsPerUser` of a QOS.
    MaxTresRunMinsPerUser,
    /// `MaxTRESRunMinsPerAccount` of a QOS.
    MaxTresRunMinsPerAccount,
    /// `MinTRESPerJob` of a QOS.
    MinTresPerJob,
}

/// Amounts by the name of a TRES (`cpu`, `mem` in MiB, `gres/gpu`, ...). 0 is a limit like any other.
pub type Amounts = BTreeMap<String, u64>;

/// Limits that are set. What is not in it is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<Count, u64>,
    /// Numbers for kinds of TRES.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tres: BTreeMap<TresLimit, Amounts>,
}

impl Count {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::GrpJobs,
        Self::GrpJobsAccrue,
        Self::GrpSubmit,
        Self::GrpWall,
        Self::MaxJobs,
        Self::MaxJobsAccrue,
        Self::MaxSubmit,
        Self::MaxWall,
        Self::MaxJobsPerUser,
        Self::MaxJobsPerAccount,
        Self::MaxJobsAccruePerUser,
        Self::MaxJobsAccruePerAccount,
        Self::MaxSubmitPerUser,
        Self::MaxSubmitPerAccount,
        Self::MinPrioThreshold,
    ];

    /// Of a group: not inherited by its members, who count together.
    pub const fn is_of_group(self) -> bool {
        matches!(self, Self::GrpJobs | Self::GrpJobsAccrue | Self::GrpSubmit | Self::GrpWall)
    }

    /// On waiting jobs that gain priority by age: no job waits because of it.
    pub const fn is_of_age(self) -> bool {
        matches!(
            self,
            Self::GrpJobsAccrue | Self::MaxJobsAccrue | Self::MaxJobsAccruePerUser | Self::MaxJobsAccruePerAccount
        )
    }
}

impl TresLimit {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::GrpTres,
        Self::GrpTresMins,
        Self::GrpTresRunMins,
        Self::MaxTresPerJob,
        Self::MaxTresPerNode,
        Self::MaxTresMinsPerJob,
        Self::MaxTresPerUser,
        Self::MaxTresPerAccount,
        Self::MaxTresRunMinsPerUser,
        Self::MaxTresRunMinsPerAccount,
        Self::MinTresPerJob,
    ];

    /// Of a group: not inherited by its members, who count together.
    pub const fn is_of_group(self) -> bool {
        matches!(self, Self::GrpTres | Self::GrpTresMins | Self::GrpTresRunMins)
    }
}

impl Limits {
    /// A number; `None`: no limit.
    pub fn count(&self, count: Count) -> Option<u64> {
        self.counts.get(&count).copied()
    }

    /// The number for a kind of TRES; `None`: no limit.
    pub fn tres(&self, limit: TresLimit, name: &str) -> Option<u64> {
        self.tres.get(&limit)?.get(name).copied()
    }

    /// All numbers of such a limit, by name.
    pub fn amounts(&self, limit: TresLimit) -> impl Iterator<Item = (&str, u64)> {
        self.tres.get(&limit).into_iter().flatten().map(|(name, number)| (name.as_str(), *number))
    }

    /// Nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.tres.values().all(BTreeMap::is_empty)
    }

    /// Takes what is not set here from above, but for what limits groups.
    pub fn inherit(&mut self, above: &Self) {
        for (count, number) in above.counts.iter().filter(|(count, _)| !count.is_of_group()) {
            self.counts.entry(*count).or_insert(*number);
        }
        for (limit, amounts) in above.tres.iter().filter(|(limit, _)| !limit.is_of_group()) {
            let own = self.tres.entry(*limit).or_default();
            for (name, number) in amounts {
                own.entry(name.clone()).or_insert(*number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new one does not compile before it has a place here.
    const fn place(count: Count) -> usize {
        match count {
            Count::GrpJobs => 0,
            Count::GrpJobsAccrue => 1,
            Count::GrpSubmit => 2,
            Count::GrpWall => 3,
            Count::MaxJobs => 4,
            Count::MaxJobsAccrue => 5,
            Count::MaxSubmit => 6,
            Count::MaxWall => 7,
            Count::MaxJobsPerUser => 8,
            Count::MaxJobsPerAccount => 9,
            Count::MaxJobsAccruePerUser => 10,
            Count::MaxJobsAccruePerAccount => 11,
            Count::MaxSubmitPerUser => 12,
            Count::MaxSubmitPerAccount => 13,
            Count::MinPrioThreshold => 14,
        }
    }

    const fn place_of_tres(limit: TresLimit) -> usize {
        match limit {
            TresLimit::GrpTres => 0,
            TresLimit::GrpTresMins => 1,
            TresLimit::GrpTresRunMins => 2,
            TresLimit::MaxTresPerJob => 3,
            TresLimit::MaxTresPerNode => 4,
            TresLimit::MaxTresMinsPerJob => 5,
            TresLimit::MaxTresPerUser => 6,
            TresLimit::MaxTresPerAccount => 7,
            TresLimit::MaxTresRunMinsPerUser => 8,
            TresLimit::MaxTresRunMinsPerAccount => 9,
            TresLimit::MinTresPerJob => 10,
        }
    }

    #[test]
    fn the_lists_have_every_limit() {
        let counts: Vec<usize> = Count::ALL.into_iter().map(place).collect();
        assert_eq!(counts, (0..=place(Count::MinPrioThreshold)).collect::<Vec<_>>());
        let tres: Vec<usize> = TresLimit::ALL.into_iter().map(place_of_tres).collect();
        assert_eq!(tres, (0..=place_of_tres(TresLimit::MinTresPerJob)).collect::<Vec<_>>());
    }
}
