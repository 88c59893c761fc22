//! Variables that tell of a job what it asked for and got: the same for a batch script and its steps, and for the command
//! of `salloc` (`sbatch(1)` and `salloc(1)`, "output environment variables").

use super::{SLURM_DIST_PLANESIZE, SLURM_DISTRIBUTION};
use crate::{
    hostlist,
    ids::{JobId, Sluid},
    resources::MemoryRequest,
    spec::{Distribution, JobKind, JobSpec, LayoutRequest, Sharing, WithinNode},
    spec_text::counts_per_node,
    time::Timestamp,
    view::AllocatedNode,
};

/// Settings that make MPI launchers start their daemons with `srun` in the right way: where the user has none of his own.
pub const MPI_LAUNCHERS: [(&str, &str); 6] = [
    ("HYDRA_BOOTSTRAP", "slurm"),
    ("HYDRA_LAUNCHER_EXTRA_ARGS", "--external-launcher"),
    ("I_MPI_HYDRA_BOOTSTRAP", "slurm"),
    ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "--external-launcher"),
    ("OMPI_MCA_plm_slurm_args", "--external-launcher"),
    ("PRTE_MCA_plm_slurm_args", "--external-launcher"),
];

/// A name and its value.
pub type Variable = (&'static str, String);

/// A job with its allocation.
#[derive(Clone, Copy, Debug)]
pub struct OfJob<'a> {
    /// `ClusterName`
    pub cluster: &'a str,
    /// Id.
    pub job: JobId,
    /// Run.
    pub sluid: Sluid,
    /// Owner.
    pub uid: u32,
    /// Owner's group.
    pub gid: u32,
    /// Owner's name.
    pub user: &'a str,
    /// What was asked for.
    pub spec: &'a JobSpec,
    /// What it got, the batch host first.
    pub nodes: &'a [AllocatedNode],
    /// Partition.
    pub partition: &'a str,
    /// Start of the run.
    pub start_time: Option<Timestamp>,
    /// When its limit ends it.
    pub end_time: Option<Timestamp>,
    /// How it shares its nodes.
    pub sharing: Sharing,
    /// Tasks, defaults filled in.
    pub tasks: u32,
    /// CPUs per task, defaults filled in.
    pub cpus_per_task: u32,
}

/// The variables, in no order.
pub fn of_job(of: &OfJob<'_>) -> Vec<Variable> {
    let OfJob { spec, nodes, .. } = *of;
    let node_list = hostlist::fold(nodes.iter().map(|n| &n.name));
    let mut set = vec![
        ("SLURM_CLUSTER_NAME", of.cluster.to_owned()),
        ("SLURM_JOBID", of.job.to_string()),
        ("SLURM_JOB_CPUS_PER_NODE", counts_per_node(nodes.iter().map(|n| n.share.cpus.len()))),
        ("SLURM_JOB_GID", of.gid.to_string()),
        ("SLURM_JOB_ID", of.job.to_string()),
        ("SLURM_JOB_NAME", spec.name.clone()),
        ("SLURM_JOB_NODELIST", node_list.clone()),
        ("SLURM_JOB_NUM_NODES", nodes.len().to_string()),
        ("SLURM_JOB_PARTITION", of.partition.to_owned()),
        ("SLURM_JOB_SLUID", of.sluid.to_string()),
        ("SLURM_JOB_UID", of.uid.to_string()),
        ("SLURM_JOB_USER", of.user.to_owned()),
        ("SLURM_NNODES", nodes.len().to_string()),
        ("SLURM_NODELIST", node_list),
        ("SLURM_TASKS_PER_NODE", counts_per_node(tasks_on_nodes(of))),
    ];
    let mut also = |name: &'static str, value: Option<String>| set.extend(value.map(|value| (name, value)));
    also("SLURM_JOB_START_TIME", of.start_time.map(|t| t.secs().to_string()));
    also("SLURM_JOB_END_TIME", of.end_time.map(|t| t.secs().to_string()));
    // Of jobs that `sbatch` made (seen in 26.05.3).
    if spec.kind == JobKind::Batch {
        also("SLURM_JOB_EXCLUSIVE", Some(exclusive(of.sharing).to_owned()));
        let shared = of.sharing == Sharing::Oversubscribe;
        also("SLURM_JOB_OVERSUBSCRIBE", Some(if shared { "YES" } else { "NO" }.to_owned()));
    }
    also("SLURM_JOB_ACCOUNT", spec.account.clone());
    also("SLURM_JOB_DEPENDENCY", (!spec.dependencies.list.is_empty()).then(|| spec.dependencies.to_string()));
    also("SLURM_JOB_LICENSES", spec.licenses.clone());
    also("SLURM_JOB_QOS", spec.qos.clone());
    also("SLURM_JOB_RESERVATION", spec.reservations.first().cloned());
    also("SLURM_JOB_SEGMENT_SIZE", spec.topology.segment.map(|n| n.to_string()));
    let tasks = tasks(of).map(|n| n.to_string());
    also("SLURM_NTASKS", tasks.clone());
    also("SLURM_NPROCS", tasks);
    also("SLURM_NTASKS_PER_NODE", spec.tasks_per_node.map(|n| n.to_string()));
    also("SLURM_CPU_FREQ_REQ", spec.cpu_freq.map(|asked| asked.to_string()));
    also("SLURM_GPU_FREQ", spec.gpu_freq.map(|asked| asked.to_string()));
    also("SLURM_PROFILE", spec.profiling.series.map(|series| series.to_string()));
    also("SLURM_CPUS_PER_TASK", spec.cpus_per_task.map(|n| n.to_string()));
    also("SLURM_TRES_PER_TASK", tres_per_task(spec));
    match spec.memory {
        MemoryRequest::PerNode(memory) => also("SLURM_MEM_PER_NODE", Some(memory.0.to_string())),
        MemoryRequest::PerCpu(memory) => also("SLURM_MEM_PER_CPU", Some(memory.0.to_string())),
        MemoryRequest::All => {
            let memory = nodes.first().and_then(|n| n.share.memory);
            also("SLURM_MEM_PER_NODE", memory.map(|m| m.0.to_string()));
        }
        MemoryRequest::Default => {}
    }
    set.extend(spec.gres.variables());
    set.extend(of_layout(&spec.layout));
    set
}

/// `SLURM_JOB_EXCLUSIVE`
const fn exclusive(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Exclusive => "NODE",
        Sharing::User => "USER",
        Sharing::Mcs => "MCS",
        Sharing::Default | Sharing::Oversubscribe => "NO",
    }
}

/// What was asked of sockets, cores and threads, for the steps.
fn of_layout(layout: &LayoutRequest) -> Vec<Variable> {
    let number = |n: Option<u32>| n.map(|n| n.to_string());
    let (plane, named) = match layout.distribution {
        Some(Distribution::Plane(size)) => (Some(size), true),
        Some(_) => (None, true),
        None => (None, !layout.within.is_default()),
    };
    let all = [
        ("SLURM_NTASKS_PER_CORE", number(layout.tasks_per_core)),
        ("SLURM_NTASKS_PER_SOCKET", number(layout.tasks_per_socket)),
        ("SLURM_THREADS_PER_CORE", number(layout.threads_per_core)),
        ("SLURM_OVERCOMMIT", layout.overcommit.then(|| "1".to_owned())),
        (SLURM_DISTRIBUTION, named.then(|| distribution_name(layout.distribution, layout.within))),
        (SLURM_DIST_PLANESIZE, number(plane)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// As `-m` reads it.
pub fn distribution_name(distribution: Option<Distribution>, within: WithinNode) -> String {
    let (over_nodes, packing) = match distribution {
        None => ("*", ""),
        Some(Distribution::Block) => ("block", ""),
        Some(Distribution::BlockNoPack) => ("block", ",nopack"),
        Some(Distribution::BlockPack) => ("block", ",pack"),
        Some(Distribution::Cyclic) => ("cyclic", ""),
        Some(Distribution::Plane(_)) => ("plane", ""),
        Some(Distribution::Arbitrary) => ("arbitrary", ""),
    };
    format!("{over_nodes}{within}{packing}")
}

/// Tasks, where the job said how many, in all or of each part; as many as there are on the nodes that it got.
fn tasks(of: &OfJob<'_>) -> Option<u32> {
    let OfJob { spec, .. } = of;
    let of_parts =
        [spec.tasks_per_node, spec.layout.tasks_per_socket, spec.layout.tasks_per_core, spec.gres.tasks_per_gpu];
    if spec.tasks.is_some() {
        return Some(of.tasks);
    }
    let laid_out: u32 = of.nodes.iter().map(|n| n.share.tasks).sum();
    of_parts.iter().any(Option::is_some).then(|| of.tasks.max(laid_out))
}

/// Tasks on each node as the job was laid out; where it named no tasks, as many as CPUs per task allow.
fn tasks_on_nodes(of: &OfJob<'_>) -> impl Iterator<Item = u32> {
    let laid_out = of.nodes.iter().any(|n| n.share.tasks > 0);
    let per_task = of.cpus_per_task.max(1);
    of.nodes.iter().map(move |n| if laid_out { n.share.tasks } else { (n.share.cpus.len() / per_task).max(1) })
}

/// CPUs and generic resources of a task, as `--tres-per-task` reads them.
fn tres_per_task(spec: &JobSpec) -> Option<String> {
    let cpus = spec.cpus_per_task.map(|n| format!("cpu={n}"));
    let gres = spec.gres.per_task.iter().map(|asked| match &asked.kind {
        Some(kind) => format!("gres/{}:{kind}={}", asked.name, asked.count),
        None => format!("gres/{}={}", asked.name, asked.count),
    });
    let all: Vec<String> = cpus.into_iter().chain(gres).collect();
    (!all.is_empty()).then(|| all.join(","))
}
