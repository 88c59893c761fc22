//! Options that Slurm has and Garrick does not build yet. They are errors, because going on without them would give the
//! user something other than what was asked for. An entry moves to its subject's table when it is built.

use super::table::{
    ALLOC_RUN, Arg,
    Arg::{Optional, Required},
    BATCH, Commands, Effect, JOB, OptionDef, RUN,
};
use super::values;

const fn unsupported(long: &'static str, short: Option<char>, arg: Arg, on: Commands, help: &'static str) -> OptionDef {
    OptionDef::other(long, short, arg, on, help, Effect::NotSupported)
}

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    unsupported("batch", None, Required("list"), BATCH, "features of the batch host").env(&["SBATCH_BATCH"]),
    unsupported("bb", None, Required("spec"), JOB, "burst buffer specifications")
        .env(&["SALLOC_BURST_BUFFER", "SLURM_BURST_BUFFER"]),
    unsupported("bbf", None, Required("file"), JOB, "burst buffer specification file"),
    OptionDef::inert(
        "cluster-constraint",
        None,
        Required("list"),
        JOB,
        "features of clusters",
        "there is no federation of clusters to choose from",
    ),
    unsupported("container", None, Required("path"), JOB, "OCI container bundle").env(&[
        "SBATCH_CONTAINER",
        "SALLOC_CONTAINER",
        "SRUN_CONTAINER",
    ]),
    unsupported("container-id", None, Required("id"), JOB, "OCI container id").env(&[
        "SBATCH_CONTAINER_ID",
        "SALLOC_CONTAINER_ID",
        "SRUN_CONTAINER_ID",
    ]),
    unsupported("container-type", None, Required("type"), JOB, "kind of OCI container"),
    unsupported("cpu-freq", None, Required("spec"), JOB, "requested CPU frequency")
        .checked(values::cpu_frequency)
        .env(&["SBATCH_CPU_FREQ_REQ", "SALLOC_CPU_FREQ_REQ", "SLURM_CPU_FREQ_REQ"]),
    unsupported("gpu-freq", None, Required("spec"), JOB, "frequency of GPUs").env(&[
        "SBATCH_GPU_FREQ",
        "SALLOC_GPU_FREQ",
        "SLURM_GPU_FREQ",
    ]),
    unsupported("mem-update", None, Required("margin@delay"), JOB, "reduce the job's memory limit after some time"),
    unsupported("no-allocate", Some('Z'), Arg::None, RUN, "run without an allocation"),
    OptionDef::new(
        "profile",
        None,
        Required("value"),
        JOB,
        "detailed data collection: none (others not yet)",
        |_, g| {
            if values::profile(g)? { Err(g.not_supported()) } else { Ok(()) }
        },
    )
    .env(&["SBATCH_PROFILE", "SALLOC_PROFILE", "SLURM_PROFILE"]),
    unsupported("reboot", None, Arg::None, JOB, "reboot compute nodes before starting the job"),
    unsupported("wait-for-children", None, Arg::None, RUN, "a task ends with the last of its processes"),
    unsupported("x11", None, Optional("all|batch|first|last"), ALLOC_RUN, "X11 forwarding"),
];
