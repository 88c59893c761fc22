//! Options for amounts: nodes, tasks, CPUs, memory, disk.

use super::{
    table::{Arg::Required, JOB, OptionDef},
    typed::{CPUS_OF_TASK, Given, MEMORY, OptionError, Typed},
    values,
};
use garrick_model::resources::{MemoryMib, MemoryRequest};

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef::new("nodes", Some('N'), Required("min[-max]|sizes"), JOB, "number of nodes on which to run", |t, g| {
        let (count, sizes) = values::node_count(g.text()?)?;
        t.nodes = g.sourced(count);
        t.node_sizes = sizes;
        Ok(())
    })
    .env(&["SLURM_NNODES", "SLURM_JOB_NUM_NODES"]),
    OptionDef::new("ntasks", Some('n'), Required("number"), JOB, "number of tasks to run", |t, g| {
        t.ntasks = g.sourced(g.number(1)?);
        Ok(())
    })
    .env(&["SLURM_NPROCS", "SLURM_NTASKS"]),
    OptionDef::new("ntasks-per-node", None, Required("n"), JOB, "number of tasks to invoke on each node", |t, g| {
        t.ntasks_per_node = g.sourced(g.number(1)?);
        Ok(())
    })
    .env(&["SLURM_NTASKS_PER_NODE"]),
    OptionDef::new("cpus-per-task", Some('c'), Required("ncpus"), JOB, "number of cpus required per task", |t, g| {
        t.cpus_per_task = Some(g.number(1)?);
        t.choose(CPUS_OF_TASK, g)
    })
    .env(&["SRUN_CPUS_PER_TASK"]),
    OptionDef::new("mincpus", None, Required("n"), JOB, "minimum number of logical processors per node", |t, g| {
        t.mincpus = Some(g.number(1)?);
        Ok(())
    }),
    OptionDef::new("mem", None, Required("MB"), JOB, "minimum amount of real memory per node", |t, g| {
        memory(t, g, MemoryRequest::PerNode)
    })
    .env(&["SBATCH_MEM_PER_NODE", "SALLOC_MEM_PER_NODE", "SLURM_MEM_PER_NODE"]),
    OptionDef::new(
        "mem-per-cpu",
        None,
        Required("MB"),
        JOB,
        "minimum amount of real memory per allocated cpu",
        |t, g| memory(t, g, MemoryRequest::PerCpu),
    )
    .env(&["SBATCH_MEM_PER_CPU", "SALLOC_MEM_PER_CPU", "SLURM_MEM_PER_CPU"]),
    OptionDef::new("tmp", None, Required("MB"), JOB, "minimum amount of temporary disk", |t, g| {
        t.tmp_disk_mib = g.checked(values::memory(g.text()?))?.0;
        Ok(())
    }),
];

fn memory(typed: &mut Typed, given: &Given<'_>, of: fn(MemoryMib) -> MemoryRequest) -> Result<(), OptionError> {
    typed.memory = given.sourced(match given.checked(values::memory(given.text()?))? {
        MemoryMib(0) => MemoryRequest::All,
        some => of(some),
    });
    typed.choose(MEMORY, given)
}
