//! Options that Slurm has and Garrick does not build yet. They are errors, because going on without them would give the
//! user something other than what was asked for. An entry moves to its subject's table when it is built.

use super::table::{
    ALLOC, ALLOC_RUN, Arg,
    Arg::{Optional, Required},
    BATCH_RUN, Commands, Effect, JOB, OptionDef, RUN,
};
use super::{typed::OptionError, values};

const fn unsupported(long: &'static str, short: Option<char>, arg: Arg, on: Commands, help: &'static str) -> OptionDef {
    OptionDef::other(long, short, arg, on, help, Effect::NotSupported)
}

/// As in Slurm where no burst buffer plugin is configured.
const NO_BURST_BUFFERS: &str = "there are no burst buffers";

/// As in Slurm where there is no `oci.conf`.
const NO_CONTAINERS: &str = "there is no `oci.conf`: programs run as they are";

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef::inert("bb", None, Required("spec"), JOB, "burst buffer specifications", NO_BURST_BUFFERS)
        .env(&["SALLOC_BURST_BUFFER", "SLURM_BURST_BUFFER"]),
    OptionDef::inert("bbf", None, Required("file"), JOB, "burst buffer specification file", NO_BURST_BUFFERS)
        .checked(values::burst_buffer_file),
    OptionDef::inert(
        "cluster-constraint",
        None,
        Required("list"),
        JOB,
        "features of clusters",
        "there is no federation of clusters to choose from",
    ),
    OptionDef::inert("container", None, Required("path"), BATCH_RUN, "OCI container bundle", NO_CONTAINERS)
        .env(&["SBATCH_CONTAINER", "SRUN_CONTAINER"]),
    OptionDef::new("container", None, Required("path"), ALLOC, "OCI container bundle", |_, _| {
        Err(OptionError::Declined("--container requires LaunchParameters=use_interactive_step".to_owned()))
    })
    .env(&["SALLOC_CONTAINER"]),
    OptionDef::inert("container-id", None, Required("id"), JOB, "OCI container id", NO_CONTAINERS).env(&[
        "SBATCH_CONTAINER_ID",
        "SALLOC_CONTAINER_ID",
        "SRUN_CONTAINER_ID",
    ]),
    OptionDef::inert("container-type", None, Required("type"), JOB, "kind of OCI container", NO_CONTAINERS),
    unsupported("mem-update", None, Required("margin@delay"), JOB, "reduce the job's memory limit after some time")
        .checked(values::memory_update),
    unsupported("no-allocate", Some('Z'), Arg::None, RUN, "run without an allocation"),
    unsupported("x11", None, Optional("all|batch|first|last"), ALLOC_RUN, "X11 forwarding"),
];
