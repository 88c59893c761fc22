//! Benchmarks of minibatch: real clusters, real steps, each figure beside the raw spawn rate of the same minutes. A step that
//! is not accounted for fails the scenario.
//!
//! | file | what |
//! |---|---|
//! | [`mod@array`] | 100,000 steps as an array and from a list: rate, memory, controller messages |
//! | [`srun`] | `srun` after `srun`, sixteen at a time, and where the time goes |
//! | [`accept`] | a million queued steps: acceptance and memory |
//! | [`suite`] | a test suite with retries against the best packing |
//! | [`graph`] | a pipeline of 10,000 steps that wait for each other, against the best packing |
//! | [`latency`] | four hosts with a millisecond between them |
//! | [`layers`] | what each layer costs in CPU time |
//! | [`layer_line`], [`layer_meter`] | of that, the layers within `stepd`, driven in this process |
//! | [`mixed`] | small and large steps in one queue |
//! | [`compare`] | the same commands through other tools, where they are installed |
//! | [`cluster`], [`hosts`], [`delay_switch`] | the clusters, and the network between hosts |
//! | [`inside`], [`steps`], [`processes`], [`spent`], [`controller_messages`] | what a scenario sees and counts |
//! | [`packing`], [`figures`] | bounds, and how figures are kept and shown |

pub mod accept;
pub mod array;
pub mod cluster;
pub mod compare;
pub mod controller_messages;
pub mod delay_switch;
pub mod figures;
pub mod graph;
pub mod hosts;
pub mod inside;
pub mod latency;
pub mod layer_line;
pub mod layer_meter;
pub mod layers;
pub mod mixed;
pub mod packing;
pub mod processes;
pub mod spent;
pub mod srun;
pub mod steps;
pub mod suite;

use crate::spawn_floor::FloorError;
use cluster::{ClusterError, Embedded, Order};
use figures::{Figures, Findings};
use inside::{Fallible, Inside};

/// Spawns of each way in which the floor is measured, before and after each scenario: a second or so each.
const FLOOR_SPAWNS: usize = 2_000;

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    place: Place,
    inside: fn(&Inside) -> Fallible<Findings>,
}

/// Where it runs.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// A cluster of so many nodes with so many CPUs each; `None`: this machine's.
    Embedded(usize, Option<usize>),
    /// It makes its own.
    Own(fn(&Order) -> Result<Findings, ClusterError>),
}

/// All of them.
pub static SCENARIOS: [Scenario; 10] = [
    Scenario {
        name: "array",
        about: "100,000 steps of /bin/true as one step array",
        place: Place::Embedded(1, None),
        inside: array::array,
    },
    Scenario {
        name: "list",
        about: "100,000 steps of /bin/true from a file",
        place: Place::Embedded(1, None),
        inside: array::list,
    },
    Scenario {
        name: "srun",
        about: "srun /bin/true one after the other and 16 at a time, and where the time goes",
        place: Place::Embedded(1, None),
        inside: srun::srun,
    },
    Scenario {
        name: "accept",
        about: "1,000,000 queued steps from a list: acceptance rate and memory",
        place: Place::Embedded(1, None),
        inside: accept::accept,
    },
    Scenario {
        name: "suite",
        about: "1,700 steps of mixed length 32 wide, some tried again, against the best packing",
        place: Place::Embedded(1, Some(suite::PLACES)),
        inside: suite::suite,
    },
    Scenario {
        name: "graph",
        about: "10,000 steps of a pipeline 32 wide that wait for each other, some tried again, against the best packing",
        place: Place::Embedded(1, Some(graph::PLACES)),
        inside: graph::graph,
    },
    Scenario {
        name: "latency",
        about: "four hosts with a millisecond between them",
        place: Place::Own(latency::latency),
        inside: latency::inside,
    },
    Scenario {
        name: "layers",
        about: "CPU time of one step, layer by layer",
        place: Place::Embedded(1, None),
        inside: layers::layers,
    },
    Scenario {
        name: "mixed",
        about: "steps of one CPU and of whole nodes in one queue on four nodes",
        place: Place::Embedded(mixed::NODES, Some(mixed::CPUS)),
        inside: mixed::mixed,
    },
    Scenario {
        name: "compare",
        about: "10,000 times /bin/true through srun in a loop, job arrays, and GNU parallel, xargs and HyperQueue if installed",
        place: Place::Own(compare::compare),
        inside: compare::inside,
    },
];

/// A scenario that failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The floor.
    #[error(transparent)]
    Floor(#[from] FloorError),
    /// The cluster, or the scenario in it.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

impl Scenario {
    /// By its name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SCENARIOS.iter().find(|s| s.name == name)
    }

    /// Runs it between two measurements of the floor.
    pub fn run(&self, order: &Order) -> Result<Figures, BenchError> {
        let spawns = if order.quick { FLOOR_SPAWNS / 10 } else { FLOOR_SPAWNS };
        let order = Order { scenario: self.name.to_owned(), ..order.clone() };
        Figures::around(format!("{}: {}", self.name, self.about), spawns, || match self.place {
            Place::Own(run) => Ok(run(&order)?),
            Place::Embedded(nodes, cpus) => {
                let cluster = Embedded::up(nodes, cpus)?;
                let findings = cluster::as_job(&cluster, nodes, order)?;
                cluster.down()?;
                Ok(findings)
            }
        })
    }

    /// Runs it as the job that [`Scenario::run`] submitted.
    pub fn run_inside(&self, order: Order) -> Fallible<Findings> {
        (self.inside)(&Inside::new(order)?)
    }
}
