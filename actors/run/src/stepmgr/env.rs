//! The environment of a batch script, of a step, of a node's tasks and of one task: Slurm's output variables over what
//! the user passed on. Pure. Layers, each set over the one before:
//!
//! 1. what the user passed on, with the job's variables over it: the same for many steps, shared ([`job_environment`]);
//! 2. those of its layout ([`layout_variables`]) and of the step alone ([`number_variables`], [`step_array_variables`]);
//! 3. the node's ([`node_variables`]);
//! 4. the task's ([`task_variables`]). `SLURM_TASK_PID` is set by the launcher, `GARRICK_STEPD_DOOR` by the shepherd.
//!
//! Names and values were compared with what a batch script and `srun` tasks of Slurm 26.05 see.

use crate::{
    env_entry::entry,
    stepmgr::{het_env::het_variables, pool::PoolNode, run::RunFacts},
};
use garrick_model::{
    env_vars::{
        GARRICK_SRUN_EPILOG, GARRICK_SRUN_PROLOG, GARRICK_STEPD_JOB,
        outputs::{self, MPI_LAUNCHERS, OfJob},
    },
    hostlist,
    ids::StepKey,
    messages::node::SwitchPath,
    spec::{ArraySpec, Distribution, EnvEntry, WithinNode},
    spec_text::counts_per_node,
};
use serde_bytes::ByteBuf;
use std::{
    collections::BTreeMap,
    fmt::{Display, Write as _},
};

/// Variables of an outer job or step that a new job must not inherit.
const STALE_PREFIXES: [&str; 13] = [
    "SLURM_JOB",
    "SLURM_STEP",
    "SLURM_ARRAY_",
    "SLURM_TASK",
    "SLURM_SRUN_COMM",
    "SLURM_LAUNCH_",
    "SLURM_MEM_PER_",
    "SLURM_CPUS_",
    "SLURM_GPU",
    "SLURM_HET_",
    "SLURM_NTASKS",
    "SLURM_TOPOLOGY_",
    "PMI_",
];
const STALE_NAMES: [&str; 17] = [
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_GTIDS",
    "SLURM_NNODES",
    "SLURM_NODELIST",
    "SLURM_NPROCS",
    "SLURM_RESTART_COUNT",
    "SLURM_DISTRIBUTION",
    "SLURM_DIST_PLANESIZE",
    "SLURM_TRES_PER_TASK",
    "SLURM_UMASK",
    "SLURMD_NODENAME",
    "GARRICK_STEPD_DOOR",
    GARRICK_STEPD_JOB,
    GARRICK_SRUN_PROLOG,
    GARRICK_SRUN_EPILOG,
];

/// Search path of a user who passed none, as `login` sets it on Debian.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Where temporary files go when the user names no folder.
const DEFAULT_TMPDIR: &str = "/tmp";

/// Variables under construction: one value per name, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<Vec<u8>, Vec<u8>>);

impl Environment {
    /// From `NAME=value` entries; a later one replaces an earlier one, entries without `=` are dropped.
    pub fn from_entries(entries: &[EnvEntry]) -> Self {
        let mut variables = BTreeMap::new();
        for entry in entries {
            if let Some(eq) = entry.iter().position(|b| *b == b'=') {
                variables.insert(entry[..eq].to_vec(), entry[eq + 1..].to_vec());
            }
        }
        Self(variables)
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: impl Display) {
        self.0.insert(name.as_bytes().to_vec(), value.to_string().into_bytes());
    }

    fn set_missing(&mut self, name: &str, value: impl Display) {
        self.0.entry(name.as_bytes().to_vec()).or_insert_with(|| value.to_string().into_bytes());
    }

    /// A variable's value, if it is text.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.0.get(name.as_bytes())?).ok()
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name.as_bytes())
    }

    fn drop_stale(&mut self) {
        self.0.retain(|name, _| {
            let stale = STALE_PREFIXES.iter().any(|p| name.starts_with(p.as_bytes()))
                || STALE_NAMES.iter().any(|n| name == n.as_bytes());
            !stale
        });
    }

    /// As entries, in order of names.
    pub fn into_entries(self) -> Vec<EnvEntry> {
        self.0
            .into_iter()
            .map(|(name, value)| {
                let mut entry = name;
                entry.push(b'=');
                entry.extend_from_slice(&value);
                ByteBuf::from(entry)
            })
            .collect()
    }
}

/// Layer 1 for a step: what its `srun` passed on, with the job's variables over it.
pub fn job_environment(facts: &RunFacts, passed_on: &[EnvEntry]) -> Vec<EnvEntry> {
    let mut env = Environment::from_entries(passed_on);
    // Set by the step around it, which may be of another component.
    env.0.remove(GARRICK_STEPD_JOB.as_bytes());
    job_variables(facts, &mut env);
    env.set_missing("SLURM_SUBMIT_DIR", &facts.spec.work_dir);
    env.set_missing("SLURM_SUBMIT_HOST", &facts.spec.submit_host);
    user_variables(facts, &mut env);
    if let Some(group) = &facts.group {
        env.set("SLURM_JOB_GROUP", group);
    }
    env.into_entries()
}

/// Layer 1 for the batch script: what `sbatch` passed on, without what it inherited from an outer job.
pub fn batch_environment(facts: &RunFacts) -> Vec<EnvEntry> {
    let mut env = Environment::from_entries(&facts.spec.environment);
    let submit_dir = env.0.get(b"SLURM_SUBMIT_DIR".as_slice()).cloned();
    env.drop_stale();
    job_variables(facts, &mut env);
    user_variables(facts, &mut env);
    match submit_dir {
        Some(dir) => {
            env.0.insert(b"SLURM_SUBMIT_DIR".to_vec(), dir);
        }
        None => env.set("SLURM_SUBMIT_DIR", &facts.spec.work_dir),
    }
    env.set("SLURM_SUBMIT_HOST", &facts.spec.submit_host);
    env.set("ENVIRONMENT", "BATCH");
    if let Some(first) = facts.nodes.first() {
        env.set("HOSTNAME", &first.name);
    }
    env.into_entries()
}

/// Variables that describe the job.
pub(super) fn job_variables(facts: &RunFacts, env: &mut Environment) {
    let spec = &facts.spec;
    let of = OfJob {
        cluster: &facts.cluster,
        job: facts.job,
        sluid: facts.sluid,
        uid: facts.uid,
        gid: facts.gid,
        user: &facts.user,
        spec,
        nodes: &facts.nodes,
        partition: &facts.partition,
        start_time: Some(facts.start_time),
        end_time: Some(facts.time_limit.end_of_run(facts.start_time)),
        sharing: spec.sharing,
        tasks: facts.tasks,
        cpus_per_task: facts.cpus_per_task,
    };
    for (name, value) in outputs::of_job(&of) {
        env.set(name, value);
    }
    if let Some(conf) = &facts.conf_path {
        env.set("SLURM_CONF", conf);
    }
    env.set("SLURM_OOM_KILL_STEP", 0);
    env.set("SLURM_PRIO_PROCESS", spec.process_nice);
    if facts.restarts > 0 {
        env.set("SLURM_RESTART_COUNT", facts.restarts);
    }
    if let Some(first) = facts.nodes.first() {
        env.set("SLURM_STEPMGR", &first.name);
    }
    env.set("SLURM_TOPOLOGY_ADDR_PATTERN", facts.switches.first().map_or("node", |path| &path.pattern));
    if let (Some(task), Some(array)) = (spec.array_task, facts.array) {
        env.set("SLURM_ARRAY_JOB_ID", task.array_job);
        env.set("SLURM_ARRAY_TASK_ID", task.index);
        env.set("SLURM_ARRAY_TASK_COUNT", array.count);
        env.set("SLURM_ARRAY_TASK_MIN", array.min);
        env.set("SLURM_ARRAY_TASK_MAX", array.max);
        env.set("SLURM_ARRAY_TASK_STEP", array.step);
    }
    het_variables(facts, env);
}

/// What a login would have set, if the user passed nothing on, and what programs find in each job.
fn user_variables(facts: &RunFacts, env: &mut Environment) {
    env.set_missing("USER", &facts.user);
    env.set_missing("LOGNAME", &facts.user);
    if let Some(home) = &facts.home {
        env.set_missing("HOME", home);
    }
    if let Some(shell) = &facts.shell {
        env.set_missing("SHELL", shell);
    }
    if !env.has("PATH") {
        env.set("PATH", DEFAULT_PATH);
    }
    env.set_missing("TMPDIR", DEFAULT_TMPDIR);
    for (name, value) in MPI_LAUNCHERS {
        env.set_missing(name, value);
    }
}

/// The input of [`layout_variables`].
#[derive(Clone, Debug)]
pub struct StepFacts<'a> {
    /// Names of its nodes in order.
    pub nodes: Vec<&'a str>,
    /// Tasks on each.
    pub tasks_per_node: Vec<u32>,
    /// `-c`, if given.
    pub cpus_per_task: Option<u32>,
    /// `--ntasks-per-node`, if given.
    pub ntasks_per_node: Option<u32>,
    /// Distribution of tasks.
    pub distribution: Distribution,
    /// The other words of `-m`.
    pub within: WithinNode,
    /// Nice value of the command that requested it.
    pub process_nice: i32,
    /// Mask.
    pub umask: u32,
    /// Host and port of the step manager.
    pub manager: Option<(&'a str, &'a str)>,
}

/// Layer 2: the same for all steps of a request with the same layout.
pub fn layout_variables(step: &StepFacts<'_>) -> Vec<EnvEntry> {
    let tasks: u32 = step.tasks_per_node.iter().sum();
    let nodelist = hostlist::fold(&step.nodes);
    let per_node = counts_per_node(step.tasks_per_node.iter().copied());
    let mut env = vec![
        entry("SLURM_DISTRIBUTION", outputs::distribution_name(Some(step.distribution), step.within)),
        entry("SLURM_NNODES", step.nodes.len()),
        entry("SLURM_NODELIST", &nodelist),
        entry("SLURM_NPROCS", tasks),
        entry("SLURM_NTASKS", tasks),
        entry("SLURM_PRIO_PROCESS", step.process_nice),
        entry("SLURM_STEP_NODELIST", &nodelist),
        entry("SLURM_STEP_NUM_NODES", step.nodes.len()),
        entry("SLURM_STEP_NUM_TASKS", tasks),
        entry("SLURM_STEP_TASKS_PER_NODE", &per_node),
        entry("SLURM_TASKS_PER_NODE", &per_node),
        entry("SLURM_UMASK", format_args!("{:04o}", step.umask)),
    ];
    if let Some((host, port)) = step.manager {
        env.push(entry("SLURM_LAUNCH_NODE_IPADDR", host));
        env.push(entry("SLURM_SRUN_COMM_HOST", host));
        env.push(entry("SLURM_SRUN_COMM_PORT", port));
        env.push(entry("SLURM_STEP_LAUNCHER_PORT", port));
    }
    if let Distribution::Plane(size) = step.distribution {
        env.push(entry("SLURM_DIST_PLANESIZE", size));
    }
    if let Some(cpus) = step.cpus_per_task {
        env.push(entry("SLURM_CPUS_PER_TASK", cpus));
    }
    if let Some(tasks) = step.ntasks_per_node {
        env.push(entry("SLURM_NTASKS_PER_NODE", tasks));
    }
    env
}

/// Variables of one step.
pub fn number_variables(step: StepKey) -> Vec<EnvEntry> {
    let number = step.step.slurm_number();
    let mut env = vec![entry("SLURM_STEPID", number), entry("SLURM_STEP_ID", number)];
    if let Some(task) = step.array {
        env.push(entry("SLURM_STEP_ARRAY_TASK_ID", task));
    }
    env
}

/// With `--preserve-env`: those of the command that asked for the step go over the step's own (srun(1)).
pub fn preserved(environment: &[EnvEntry]) -> impl Iterator<Item = EnvEntry> + '_ {
    let kept = [&b"SLURM_JOB_NUM_NODES="[..], b"SLURM_NTASKS="];
    environment.iter().filter(move |entry| kept.iter().any(|name| entry.starts_with(name))).cloned()
}

/// Variables of all tasks of a step array, named like those of job arrays in sbatch(1).
pub fn step_array_variables(number: u32, tasks: &ArraySpec) -> Vec<EnvEntry> {
    vec![
        entry("SLURM_STEP_ARRAY_ID", number),
        entry("SLURM_STEP_ARRAY_TASK_COUNT", tasks.count()),
        entry("SLURM_STEP_ARRAY_TASK_MIN", tasks.min().unwrap_or(0)),
        entry("SLURM_STEP_ARRAY_TASK_MAX", tasks.max().unwrap_or(0)),
        entry("SLURM_STEP_ARRAY_TASK_STEP", tasks.step()),
    ]
}

/// Layer 3: a node of the step, its number in the step, the step's CPUs there and its ranks.
///
/// `path` is the node's path in a tree of switches, if there is one.
pub fn node_variables(
    node: &PoolNode,
    path: Option<&SwitchPath>,
    node_id: u32,
    cpus: u32,
    ranks: &[u32],
) -> Vec<EnvEntry> {
    let mut gtids = String::new();
    for rank in ranks {
        if !gtids.is_empty() {
            gtids.push(',');
        }
        let _ = write!(gtids, "{rank}");
    }
    let address = path.map_or_else(|| node.name.clone(), |path| format!("{}.{}", path.names, node.name));
    let mut variables = vec![
        entry("SLURMD_NODENAME", &node.name),
        entry("SLURM_CPUS_ON_NODE", cpus),
        entry("SLURM_GTIDS", gtids),
        entry("SLURM_NODEID", node_id),
        entry("SLURM_TOPOLOGY_ADDR", address),
    ];
    // Trees need not be equally deep everywhere, so this replaces the job's value.
    variables.extend(path.map(|path| entry("SLURM_TOPOLOGY_ADDR_PATTERN", &path.pattern)));
    variables
}

/// Layer 4.
pub fn task_variables(rank: u32, local_id: u32) -> Vec<EnvEntry> {
    vec![entry("SLURM_LOCALID", local_id), entry("SLURM_PROCID", rank)]
}

#[cfg(test)]
#[path = "env_test.rs"]
mod tests;
