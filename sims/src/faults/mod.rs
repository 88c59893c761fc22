//! Faults against real processes: a cluster of namespaces, jobs and steps with known results, and faults (kills, stops, cut
//! links, full disks) while they run. In the end every accepted job and step has exactly one, correct final record.
//!
//! | file | what |
//! |---|---|
//! | [`site`], [`daemon`] | the hosts, and their daemons under supervision |
//! | [`work`], [`clients`] | jobs with known results, and the commands that submit and cancel them |
//! | [`injury`], [`population`] | what is done to which process, and the record of it |
//! | [`witness`] | what jobs and steps log about themselves |
//! | [`records`] | Garrick's records: journals of the controller and of runs |
//! | [`verdict`], [`leftovers`] | the rules |
//! | [`run`], [`pause`], [`accounted`] | the kinds of run |
//! | [`ledger`] | records of accounting beside what was told |
//! | [`report`] | the figures |

pub mod accounted;
pub mod clients;
pub mod daemon;
pub mod injury;
pub mod ledger;
pub mod leftovers;
pub mod pause;
pub mod population;
pub mod records;
pub mod report;
pub mod run;
pub mod site;
pub mod verdict;
pub mod witness;
pub mod work;

use crate::minibatch::cluster::ClusterError;

/// What a run is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Everything that is drawn follows from it. What becomes of it on a machine does not.
    pub seed: u64,
    /// Kills, at least.
    pub kills: u32,
    /// Of these and of stops, compound ones, at least.
    pub compounds: u32,
    /// Some jobs last longer than half a minute, and so do some compound faults.
    pub late: bool,
    /// Acknowledged jobs, at least.
    pub jobs: u32,
    /// Steps of each.
    pub steps_per_job: u32,
    /// Nodes.
    pub nodes: u32,
}

impl Setup {
    /// A minute or so.
    pub const SHORT: Self =
        Self { seed: 1, kills: 20, compounds: 3, late: false, jobs: 30, steps_per_job: 12, nodes: 4 };

    /// The command that repeats it.
    pub fn command(&self) -> String {
        let Self { seed, kills, compounds, late, jobs, steps_per_job, nodes } = self;
        let short = if *late { "" } else { " --short" };
        format!(
            "garrick-faults{short} --seed {seed} --kills {kills} --compounds {compounds} --jobs {jobs} \
             --steps-per-job {steps_per_job} --nodes {nodes}"
        )
    }
}

/// A run that could not be carried through.
#[derive(Debug, thiserror::Error)]
pub enum FaultsError {
    /// The cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The witness.
    #[error(transparent)]
    Witness(#[from] witness::WitnessError),
    /// Garrick's records.
    #[error(transparent)]
    Records(#[from] records::RecordsError),
    /// Output.
    #[error("cannot print: {0}")]
    Print(#[from] std::io::Error),
    /// A file or process.
    #[error("{0}")]
    Other(String),
}
