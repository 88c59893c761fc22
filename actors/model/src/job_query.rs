//! Which jobs a question is about, by what they are. The controller answers with no others, so that what it remembers beside them
//! costs neither it nor who asks.

use crate::{entities::qos::names_qos, spec_text::licenses::LicenseRequest, state::JobState, view::JobView};
use serde::{Deserialize, Serialize};

/// States of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobStates {
    /// All.
    #[default]
    All,
    /// Those of jobs that wait, run or are being cleaned up.
    Live,
    /// The named ones. PENDING means all states of jobs that wait; one that a job ends in means it also while its nodes are
    /// being cleaned.
    Only(Vec<JobState>),
}

/// What holds for a job that is asked for. An empty list leaves no job out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobQuery {
    /// `squeue -u`, `--me`: uids.
    pub users: Vec<u32>,
    /// `-p`: one of those that it may run in.
    pub partitions: Vec<String>,
    /// `-n`
    pub names: Vec<String>,
    /// `-A`
    pub accounts: Vec<String>,
    /// `-q`
    pub qos: Vec<String>,
    /// `-L`: licenses of which it asks for some.
    pub licenses: Vec<String>,
    /// `-R`: the one that it runs in, or may.
    pub reservations: Vec<String>,
    /// `-w`: nodes that it has.
    pub nodes: Vec<String>,
    /// `-t`
    pub states: JobStates,
}

impl JobStates {
    /// Is that one of them?
    pub fn has(&self, job: &JobView) -> bool {
        match self {
            Self::All => true,
            Self::Live => job.state.is_live(),
            Self::Only(states) => {
                states.contains(&job.state)
                    || (job.state.waits() && states.contains(&JobState::Pending))
                    || (job.state == JobState::Completing && states.contains(&job.base_state()))
            }
        }
    }

    /// No job that is over and cleaned up has one of them.
    pub fn are_live(&self) -> bool {
        match self {
            Self::All => false,
            Self::Live => true,
            Self::Only(states) => states.iter().all(|state| state.is_live()),
        }
    }
}

/// Longest list of a question: each job is compared with all that is in it.
pub const MOST_LISTED: usize = 256;

impl JobQuery {
    /// Is none of its lists longer than [`MOST_LISTED`]?
    pub fn is_short(&self) -> bool {
        *self == self.coarse()
    }

    /// One that [`Self::is_short`] and takes all jobs that this one takes, and maybe others: whoever asks chooses among them.
    #[must_use]
    pub fn coarse(&self) -> Self {
        let mut coarse = self.clone();
        let lists = [
            &mut coarse.partitions,
            &mut coarse.names,
            &mut coarse.accounts,
            &mut coarse.qos,
            &mut coarse.licenses,
            &mut coarse.reservations,
            &mut coarse.nodes,
        ];
        for list in lists.into_iter().filter(|list| list.len() > MOST_LISTED) {
            list.clear();
        }
        if coarse.users.len() > MOST_LISTED {
            coarse.users.clear();
        }
        if matches!(&coarse.states, JobStates::Only(states) if states.len() > MOST_LISTED) {
            coarse.states = JobStates::All;
        }
        coarse
    }

    /// Jobs that wait, run or are being cleaned up.
    pub fn live() -> Self {
        Self { states: JobStates::Live, ..Self::default() }
    }

    /// Is that job asked for?
    pub fn takes(&self, job: &JobView) -> bool {
        let listed = |list: &[String], value: Option<&str>| {
            list.is_empty() || list.iter().any(|listed| listed == value.unwrap_or(""))
        };
        self.states.has(job)
            && (self.users.is_empty() || self.users.contains(&job.uid))
            && (self.partitions.is_empty() || job.partitions.iter().any(|name| self.partitions.contains(name)))
            && (self.reservations.is_empty() || self.in_reservations(job))
            && listed(&self.names, Some(&job.spec.name))
            && listed(&self.accounts, job.spec.account.as_deref())
            && (self.qos.is_empty() || self.qos.iter().any(|asked| names_qos(job.spec.qos.as_deref(), asked)))
            && (self.licenses.is_empty() || self.with_licenses(job))
            && (self.nodes.is_empty() || self.on_nodes(job))
    }

    fn with_licenses(&self, job: &JobView) -> bool {
        let asked = LicenseRequest::of(&job.spec);
        let named = |name: &String| {
            asked.iter().flat_map(|request| &request.alternatives).any(|licenses| licenses.count(name) > 0)
        };
        self.licenses.iter().any(named)
    }

    fn in_reservations(&self, job: &JobView) -> bool {
        let own = job.allocation.as_ref().filter(|_| !job.state.waits()).map(|a| &a.reservation);
        match own {
            Some(one) => one.as_ref().is_some_and(|name| self.reservations.contains(name)),
            None => job.spec.reservations.iter().any(|name| self.reservations.contains(name)),
        }
    }

    fn on_nodes(&self, job: &JobView) -> bool {
        let Some(allocation) = &job.allocation else { return false };
        match job.state {
            JobState::Completing => job.completing_nodes.iter().any(|n| self.nodes.contains(n)),
            _ => allocation.nodes.iter().any(|n| self.nodes.contains(&n.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_left_to_whoever_asks() {
        let names: Vec<String> = (0..=MOST_LISTED).map(|n| n.to_string()).collect();
        let query = JobQuery { names: names[1..].to_vec(), users: vec![1], ..JobQuery::live() };
        assert!(query.is_short());
        assert_eq!(query.coarse(), query);
        let long = JobQuery { names: names.clone(), nodes: names, ..query };
        assert!(!long.is_short());
        assert_eq!(long.coarse(), JobQuery { users: vec![1], ..JobQuery::live() });
    }
}
