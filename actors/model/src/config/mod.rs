//! `slurm.conf`: text is parsed into what was written, checked into what it means ([`Config`]), and everything wrong with
//! it is said at once ([`ConfigReport`]). Syntax and keys are those of `slurm.conf(5)`.
//!
//! | part | what it does |
//! |---|---|
//! | `text` | comments, quotes, continued lines, `Include`: pairs of key and value with their places |
//! | [`keys`] | every key of Slurm, and whether it is honoured, accepted in silence, or warned of |
//! | `values` | numbers, yes and no, times, lists |
//! | `apply` | keys that stand alone, into [`Config`] |
//! | `node`, `partition` | lines of nodes and partitions; `scontrol update` uses [`PartitionConfig::set`] too |
//! | `dynamic` | nodes that are not of the file: [`DynamicNode`], [`Config::with_dynamic`] |
//! | [`places`] | nodes put into topologies |
//! | `preempt` | who gives way to whom, and how |
//! | `priority` | keys of `priority/multifactor` |
//! | `gres` | `gres.conf`, and `ConstrainDevices` of `cgroup.conf` |
//! | `read` | all of it in order: [`read`], [`read_reporting`], [`check`] |
//! | `job_defaults` | what jobs get with each GPU |
//! | `hres` | `resources.yaml` |
//! | `topology` | `topology.conf` and `topology.yaml` |
//! | `scheduling` | the words of `SchedulerParameters` |
//! | `yaml` | how those YAML files are opened, and what is said of their form |
//! | `show` | [`show_config`]: what `scontrol show config` prints |
//! | `cluster` | the cluster's id and run folders; `%n` and `%h` in paths |
//! | [`locate`] | which file is meant |

mod apply;
mod billing;
mod cluster;
mod debug_flags;
mod doubts;
mod dynamic;
mod gres;
mod health;
mod hres;
mod job_defaults;
pub mod keys;
pub mod locate;
mod mcs;
mod nearest;
mod node;
mod partition;
pub mod places;
mod preempt;
mod priority;
mod read;
mod report;
mod restricted;
mod scheduling;
mod settings;
mod show;
mod text;
mod topology;
mod values;
mod yaml;

pub use billing::{Billed, BillingWeights};
pub use cluster::expand_path;
pub use debug_flags::{AUDIT_RPCS, DebugFlag, DebugFlags, LogChange};
pub use dynamic::{DynamicNode, MOST_NODES, Unfit, Whereabouts, parameters, read_line, said_place, state_of, written};
pub use gres::{GpuVariables, GresConfig, GresDevice, GresLine};
pub use health::{HealthCheck, HealthStates};
pub use hres::{Hres, HresLayer, HresMode, HresResource};
pub use job_defaults::JobDefaults;
pub use mcs::{Labelled, Mcs, McsPlugin, McsSelect};
pub use nearest::nearest;
pub use node::{ConfiguredState, InitialState, NodeConfig, NodeSettings};
pub use partition::{OverSubscribe, OverTime, PartitionConfig};
pub use preempt::{PreemptMode, PreemptSettings, PreemptType, PreemptWords};
pub use priority::{PriorityFlags, PrioritySettings, WeighedTres, amount};
pub use read::{check, read, read_files, read_reporting, read_text};
pub use report::{ConfigReport, Place, Problem, SettingError, Severity};
pub use settings::{
    Config, ControllerHost, EnforcePartLimits, NodeSet, PropagateLimits, PropagatePriority, ReturnToService,
};
pub use show::{ShowFacts, show_config};
pub use topology::function;
pub use values::{ExitCodes, LogLevel, MemoryPer, Parameters, PortRange, SelectParameters, SelectUnit};
