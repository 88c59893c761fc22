//! `slurm.conf`: text is parsed into what was written, checked into what it means ([`Config`]), and everything wrong with
//! it is said at once ([`ConfigReport`]). Syntax and keys are those of `slurm.conf(5)`.
//!
//! | part | what it does |
//! |---|---|
//! | `syntax` | how the files are written: pairs of keys and values with their places, YAML, numbers, times, lists |
//! | [`settings`] | what is set, typed, and every key of Slurm: tables of which a row says all there is to say of a key |
//! | `dynamic` | nodes that are not of the file: [`DynamicNode`], [`Config::with_dynamic`] |
//! | `partition_changes` | partitions created and deleted at run time: [`PartitionChange`] |
//! | [`places`] | nodes put into topologies |
//! | `read` | all of it in order: [`read`], [`read_reporting`], [`check`] |
//! | `hres` | `resources.yaml` |
//! | `topology` | `topology.conf` and `topology.yaml` |
//! | `show` | [`show_config`]: what `scontrol show config` prints |
//! | `cluster` | the cluster's id and run folders; `%n` and `%h` in paths |
//! | [`locate`] | which file is meant |

mod cluster;
mod doubts;
mod dynamic;
mod hres;
pub mod locate;
mod partition_changes;
pub mod places;
pub mod purge;
mod read;
pub mod settings;
mod show;
pub mod slurmdbd;
mod syntax;
mod topology;

pub use cluster::expand_path;
pub use dynamic::{DynamicNode, Unfit, Whereabouts, parameters, read_line, said_place, state_of, written};
pub use partition_changes::PartitionChange;
pub use read::{check, read, read_files, read_reporting, read_text};
pub use settings::auth::AuthSettings;
pub use settings::billing::{BilledTerms, BillingWeights};
pub use settings::cli_filter::CliFilter;
pub use settings::completion::{CompletionSettings, CompletionType, KafkaSettings, ScriptSettings};
pub use settings::config::{
    Config, ControllerHost, EnforcePartLimits, NodeSet, PropagateLimits, PropagatePriority, ReturnToService,
};
pub use settings::debug_flags::{AUDIT_RPCS, DebugFlag, DebugFlags, LogChange};
pub use settings::described::{DescribedKey, DescribedLines, described};
pub use settings::enforce::{Enforce, EnforceWord};
pub use settings::gathering::{EnergySource, GatheringSettings, ProfileType};
pub use settings::gres::{GpuVariables, GresConfig, GresDevice, GresLine};
pub use settings::health::{HealthCheck, HealthStates};
pub use settings::hres::{Hres, HresLayer, HresMode, HresResource};
pub use settings::job_defaults::JobDefaults;
pub use settings::job_submit::JobSubmitPlugin;
pub use settings::mcs::{Labelled, Mcs, McsPlugin, McsSelect};
pub use settings::metrics::MetricsSettings;
pub use settings::node::{ConfiguredState, InitialState, NodeConfig, NodeSettings};
pub use settings::partition::{OverSubscribe, OverTime, PartitionConfig};
pub use settings::power::{KeptNodes, KeptOn, KeptStates, PowerAction, PowerSettings, Span};
pub use settings::preempt::{PreemptMode, PreemptSettings, PreemptType, PreemptWords};
pub use settings::priority::{PriorityFlags, PrioritySettings, ResetPeriod, WeighedTres, amount};
pub use settings::private::{PrivateData, PrivateKind};
pub use settings::prolog_flags::{PrologFlag, PrologFlags};
pub use settings::row::{Class, ShowFacts};
pub use settings::storage;
pub use settings::store_flags::StoreFlags;
pub use settings::tracked::TrackedTres;
pub use show::show_config;
pub use syntax::nearest::nearest;
pub use syntax::report::{ConfigReport, Place, Problem, SettingError, Severity};
pub use syntax::values::{ExitCodes, LogLevel, MemoryPer, Parameters, PortRange, SelectParameters, SelectUnit};
pub use topology::function;
