//! The step as PMIx wants to have it described: which ranks are on which nodes.

use crate::{PmixError, number, pmi::Pmi};
use garrick_model::hostlist;
use garrick_run::pmi::{MAPPING_KEY, nodes_of_mapping};

/// A step, as the server of one node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// PMIx's name for it.
    pub namespace: String,
    /// The job's id.
    pub job_id: String,
    /// Names of the nodes, in the order of their numbers.
    pub nodes: Vec<String>,
    /// The ranks on each node, in ascending order.
    pub ranks: Vec<Vec<u32>>,
    /// The number of this node.
    pub here: usize,
}

impl Job {
    /// From the environment of the node's first task, and what the node says.
    pub fn of_step(pmi: &mut Pmi) -> Result<Self, PmixError> {
        let text = |name| std::env::var(name).map_err(|_| PmixError::Variable(name));
        let (job_id, step) = (text("SLURM_JOB_ID")?, text("SLURM_STEP_ID")?);
        let names = hostlist::expand(&text("SLURM_STEP_NODELIST")?);
        let nodes = names.map_err(|_| PmixError::Variable("SLURM_STEP_NODELIST"))?;
        let mapping = pmi.value("info-getjobattr", &[("key", MAPPING_KEY)])?.unwrap_or_default();
        let of_ranks =
            nodes_of_mapping(&mapping).ok_or_else(|| PmixError::Node(format!("{MAPPING_KEY} {mapping:?}")))?;
        let namespace = format!("slurm.pmix.{job_id}.{step}");
        Self::new(namespace, job_id, nodes, &of_ranks, number("SLURM_NODEID")?)
    }

    fn new(
        namespace: String,
        job_id: String,
        nodes: Vec<String>,
        of_ranks: &[u32],
        here: u32,
    ) -> Result<Self, PmixError> {
        let mut ranks = vec![Vec::new(); nodes.len()];
        for (rank, node) in (0..).zip(of_ranks) {
            let of_node = ranks.get_mut(*node as usize).ok_or(PmixError::Variable("SLURM_STEP_NODELIST"))?;
            of_node.push(rank);
        }
        let here = here as usize;
        match ranks.get(here) {
            Some(own) if !own.is_empty() => Ok(Self { namespace, job_id, nodes, ranks, here }),
            _ => Err(PmixError::Variable("SLURM_NODEID")),
        }
    }

    /// How many tasks there are.
    pub fn size(&self) -> u32 {
        self.ranks.iter().map(|ranks| ranks.len() as u32).sum()
    }

    /// The ranks on this node.
    pub fn own_ranks(&self) -> &[u32] {
        &self.ranks[self.here]
    }

    /// All of them, or all that are on this node: those who meet at a fence. `None`: some others.
    pub fn meeting(&self, ranks: &[Option<u32>]) -> Option<Meeting> {
        let named: std::collections::BTreeSet<u32> = ranks.iter().flatten().copied().collect();
        if ranks.contains(&None) || named.len() as u64 == u64::from(self.size()) {
            Some(Meeting::All)
        } else if named.iter().all(|rank| self.own_ranks().contains(rank)) {
            Some(Meeting::OfNode)
        } else {
            None
        }
    }
}

/// Who meets at a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// All tasks.
    All,
    /// Only tasks of this node.
    OfNode,
}

/// Numbers with commas between them.
pub fn listed(ranks: &[u32]) -> String {
    ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn job(of_ranks: &[u32], here: u32) -> Result<Job, PmixError> {
        let nodes = ["a", "b"].map(str::to_owned).to_vec();
        Job::new("slurm.pmix.7.0".to_owned(), "7".to_owned(), nodes, of_ranks, here)
    }

    #[test]
    fn ranks_are_known_by_node_and_a_place_that_is_none_is_refused() {
        let job = job(&[0, 1, 0], 0).unwrap();
        assert_eq!((job.ranks.clone(), job.size(), job.own_ranks()), (vec![vec![0, 2], vec![1]], 3, &[0, 2][..]));
        assert!(self::job(&[0, 2], 0).is_err(), "there is no third node");
        assert!(self::job(&[0, 0], 1).is_err(), "no task is on the second");
        assert!(self::job(&[0, 1], 2).is_err());
    }

    #[test]
    fn fences_of_all_and_of_the_node_are_told_from_others() {
        let job = job(&[0, 1, 0], 0).unwrap();
        assert_eq!(job.meeting(&[None]), Some(Meeting::All));
        assert_eq!(job.meeting(&[Some(2), Some(0), Some(1)]), Some(Meeting::All));
        assert_eq!(job.meeting(&[Some(2), Some(0)]), Some(Meeting::OfNode));
        assert_eq!(job.meeting(&[Some(0), Some(1)]), None);
    }
}
