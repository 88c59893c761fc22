//! Metrics of jobs: of all, of each partition, of each user and each account.

use super::exposition::{Exposition, Type::Gauge};
use garrick_model::{
    gres::GPU,
    ids::NodeIndex,
    state::{JobState, Reason},
    view::{JobView, PartitionView},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// What is counted of a set of jobs. Tasks of an array that were not split off count as jobs each.
#[derive(Clone, Debug, Default)]
struct Counts {
    states: BTreeMap<JobState, u64>,
    /// Records of jobs that are not over: an array's waiting tasks are one.
    live: u64,
    total: u64,
    pending: u64,
    running: u64,
    suspended: u64,
    finished: u64,
    completing: u64,
    configuring: u64,
    expediting: u64,
    hold: u64,
    requeued: u64,
    powering_up: u64,
    node_limit: u64,
    cpus: u64,
    memory: u64,
    gpus: u64,
    nodes: HashSet<NodeIndex>,
    /// Most that waiting jobs ask for: at most and at least, with those that are held and without.
    most_nodes: [u64; 2],
    least_nodes: [u64; 2],
}

impl Counts {
    fn add(&mut self, job: &JobView, powering_up: &HashSet<NodeIndex>) {
        let tasks = job.array_pending.as_ref().map_or(1, |tasks| tasks.count().into());
        let base = job.base_state();
        self.total += tasks;
        self.live += u64::from(job.state.is_live());
        self.completing += u64::from(job.state == JobState::Completing);
        self.requeued += u64::from(job.runs_again);
        match base {
            base if base.waits() => {
                self.pending += tasks;
                self.expediting += u64::from(base == JobState::Expediting);
                self.wait(job, tasks);
            }
            JobState::Running | JobState::Completing => self.running += 1,
            JobState::Configuring => {
                self.running += 1;
                self.configuring += 1;
            }
            JobState::Suspended => self.suspended += 1,
            over => {
                self.finished += 1;
                *self.states.entry(over).or_default() += 1;
            }
        }
        if let Some(allocation) = job.allocation.as_ref().filter(|_| job.state.works()) {
            for node in &allocation.nodes {
                self.cpus += u64::from(node.share.cpus.len());
                self.memory += node.share.memory.map_or(0, |memory| memory.0);
                self.gpus += node.share.gres.iter().filter(|share| share.name == GPU).map(|s| s.count).sum::<u64>();
                self.nodes.insert(node.index);
            }
            self.powering_up += u64::from(allocation.nodes.iter().any(|node| powering_up.contains(&node.index)));
        }
    }

    fn wait(&mut self, job: &JobView, tasks: u64) {
        let held = job.priority == 0;
        self.hold += if held { tasks } else { 0 };
        self.node_limit += if job.reason == Reason::PartitionNodeLimit { tasks } else { 0 };
        // More nodes than tasks are of no use to a job that did not ask for them.
        let most = job.max_nodes.min(job.tasks.max(job.min_nodes));
        for which in if held { 0..1 } else { 0..2 } {
            self.most_nodes[which] = self.most_nodes[which].max(most.into());
            self.least_nodes[which] = self.least_nodes[which].max(job.min_nodes.into());
        }
    }

    const fn started(&self) -> u64 {
        self.running + self.suspended + self.finished
    }

    fn ended(&self, state: JobState) -> u64 {
        self.states.get(&state).copied().unwrap_or(0)
    }
}

/// A family: what follows the name of the set, its help, and the value.
type Family = (&'static str, &'static str, fn(&Counts) -> u64);

/// Nothing here is ever in such a state.
const fn never(_: &Counts) -> u64 {
    0
}

/// Families of all jobs, of users and of accounts, in Slurm's order, with its words.
const FAMILIES: &[Family] = &[
    ("_bootfail", "Number of jobs in BootFail state", |c| c.ended(JobState::BootFail)),
    ("_cancelled", "Number of jobs in Cancelled state", |c| c.ended(JobState::Cancelled)),
    ("_completed", "Number of jobs in Completed state", |c| c.ended(JobState::Completed)),
    ("_completing", "Number of jobs in Completing state", |c| c.completing),
    ("_configuring", "Number of jobs in Configuring state", |c| c.configuring),
    ("_cpus_alloc", "Total number of Cpus allocated by jobs", |c| c.cpus),
    ("_deadline", "Number of jobs in Deadline state", |c| c.ended(JobState::Deadline)),
    ("_expediting", "Number of jobs in Expediting state", |c| c.expediting),
    ("_failed", "Number of jobs in Failed state", |c| c.ended(JobState::Failed)),
    ("_fed_requeued", "Number of jobs requeued in a federation", never),
    ("_finished", "Number of finished jobs", |c| c.finished),
    ("_gpus_alloc", "Total number of GPUs allocated by jobs", |c| c.gpus),
    ("_hold", "Number of jobs in Hold state", |c| c.hold),
    ("", "Total number of jobs", |c| c.total),
    ("_memory_alloc", "Total memory bytes allocated by jobs", |c| c.memory),
    ("_node_failed", "Number of jobs in Node Failed state", |c| c.ended(JobState::NodeFail)),
    ("_nodes_alloc", "Total number of nodes allocated by jobs", |c| c.nodes.len() as u64),
    ("_outofmemory", "Number of jobs in Out of Memory state", |c| c.ended(JobState::OutOfMemory)),
    ("_pending", "Number of jobs in Pending state", |c| c.pending),
    ("_powerup_node", "Number of jobs in PowerUp Node state", |c| c.powering_up),
    ("_preempted", "Number of jobs in Preempted state", |c| c.ended(JobState::Preempted)),
    ("_requeued", "Number of jobs in Requeued state", |c| c.requeued),
    ("_resizing", "Number of jobs in Resizing state", never),
    ("_revoked", "Number of jobs in Rvoked state", never),
    ("_running", "Number of jobs in Running state", |c| c.running),
    ("_signaling", "Number of jobs being signaled", never),
    ("_stageout", "Number of jobs in StageOut state", never),
    ("_started", "Number of started jobs", Counts::started),
    ("_suspended", "Number of jobs in Suspended state", |c| c.suspended),
    ("_timeout", "Number of jobs in Timeout state", |c| c.ended(JobState::Timeout)),
];

/// Those of partitions, in Slurm's order.
const OF_PARTITIONS: &[&str] = &[
    "",
    "_bootfail",
    "_cancelled",
    "_completed",
    "_completing",
    "_configuring",
    "_cpus_alloc",
    "_gpus_alloc",
    "_deadline",
    "_expediting",
    "_failed",
    "_fed_requeued",
    "_finished",
    "_hold",
    "_max_job_nodes",
    "_max_job_nodes_nohold",
    "_memory_alloc",
    "_min_job_nodes",
    "_min_job_nodes_nohold",
    "_node_failed",
    "_outofmemory",
    "_pending",
    "_powerup_node",
    "_preempted",
    "_requeued",
    "_resizing",
    "_revoked",
    "_running",
    "_signaling",
    "_stageout",
    "_started",
    "_suspended",
    "_timeout",
    "_wait_part_node_limit",
];

/// Those whose words or values are not the same as in [`FAMILIES`].
const ONLY_OF_PARTITIONS: &[Family] = &[
    ("", "Number of jobs in this partition", |c| c.live),
    ("_finished", "Number of jobs in Finished", |c| c.finished),
    ("_max_job_nodes", "Max of the max_nodes required of all pending jobs in that partition", |c| c.most_nodes[0]),
    (
        "_max_job_nodes_nohold",
        "Max of the max_nodes required of all pending jobs in that partition excluding Held jobs",
        |c| c.most_nodes[1],
    ),
    ("_min_job_nodes", "Max of the min_nodes required of all pending jobs in that partition", |c| c.least_nodes[0]),
    (
        "_min_job_nodes_nohold",
        "Max of the min_nodes required of all pending jobs in that partition excluding Held jobs",
        |c| c.least_nodes[1],
    ),
    ("_revoked", "Number of revoked jobs", never),
    ("_signaling", "Number of jobs in Signaling state", never),
    ("_started", "Number of jobs started", Counts::started),
    ("_wait_part_node_limit", "Jobs wait partition node limit", |c| c.node_limit),
];

/// Families of partitions.
fn of_partitions() -> impl Iterator<Item = Family> {
    let named = |suffix: &&str| ONLY_OF_PARTITIONS.iter().chain(FAMILIES).find(|family| family.0 == *suffix).copied();
    OF_PARTITIONS.iter().filter_map(named)
}

/// Writes the families of sets of jobs: for each a name and what was counted. `label` is what the name is.
fn write(
    text: &mut Exposition,
    prefix: &str,
    families: impl IntoIterator<Item = Family>,
    label: &str,
    sets: &BTreeMap<String, Counts>,
) {
    for (suffix, help, value) in families {
        let samples = sets.iter().map(|(name, counts)| ([(label, name.as_str())], value(counts)));
        text.family(Gauge, format_args!("{prefix}{suffix}"), help, samples);
    }
}

/// `/metrics/jobs`
pub fn all(jobs: &[Arc<JobView>], powering_up: &HashSet<NodeIndex>) -> String {
    let mut counts = Counts::default();
    jobs.iter().for_each(|job| counts.add(job, powering_up));
    let mut text = Exposition::default();
    write(&mut text, "slurm_jobs", FAMILIES.iter().copied(), "", &BTreeMap::from([(String::new(), counts)]));
    text.text()
}

/// `/metrics/jobs-users-accts`. Jobs without an account are in a sample without that label.
pub fn by_user_and_account(jobs: &[Arc<JobView>], powering_up: &HashSet<NodeIndex>) -> String {
    let (mut users, mut accounts) = (BTreeMap::<String, Counts>::new(), BTreeMap::<String, Counts>::new());
    for job in jobs {
        users.entry(job.user.clone()).or_default().add(job, powering_up);
        accounts.entry(job.spec.account.clone().unwrap_or_default()).or_default().add(job, powering_up);
    }
    let mut text = Exposition::default();
    for (prefix, label, sets) in [("slurm_user_jobs", "username", users), ("slurm_account_jobs", "account", accounts)] {
        if !sets.is_empty() {
            write(&mut text, prefix, FAMILIES.iter().copied(), label, &sets);
        }
    }
    text.text()
}

/// The jobs' part of `/metrics/partitions`. A job that waits for any of several partitions is counted in each.
pub(super) fn of_each_partition(
    text: &mut Exposition,
    partitions: &[Arc<PartitionView>],
    jobs: &[Arc<JobView>],
    powering_up: &HashSet<NodeIndex>,
) {
    let names = partitions.iter().map(|partition| (partition.config.name.clone(), Counts::default()));
    let mut sets: BTreeMap<String, Counts> = names.collect();
    for job in jobs {
        let of = match &job.allocation {
            Some(allocation) => std::slice::from_ref(&allocation.partition),
            None => &job.partitions,
        };
        for name in of {
            if let Some(counts) = sets.get_mut(name) {
                counts.add(job, powering_up);
            }
        }
    }
    write(text, "slurm_partition_jobs", of_partitions(), "partition", &sets);
}
