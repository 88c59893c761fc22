//! From a placed step to what its nodes are told: environment layers, tasks with their arguments, standard files.

use crate::{
    step::{NodeSlot, PlannedNode, StepPlan},
    stepmgr::{
        env::{self, StepFacts},
        placement::Placement,
        pool::Pool,
        run::{RunFacts, StepMgrConfig},
        state::StepRecord,
    },
};
use garrick_model::{
    ids::{StepId, StepNum},
    messages::shepherd::{StepLaunch, StepNodeShare, TaskLaunch},
    spec::{CpuBind, Distribution, EnvEntry, MultiProg, OpenMode, StdinTo, StepSpec, StreamTarget},
};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// What `argv[0]` of a script is until the shepherd puts the path of its copy there.
const SCRIPT_NAME: &[u8] = b"slurm_script";

/// Output of a minibatch step that named no file: beside the job's own output, told apart by the step's number.
const MINIBATCH_OUTPUT: &str = "slurm-%J.out";

/// A step's plan.
pub fn step_plan(facts: &RunFacts, pool: &Pool, number: u32, record: &StepRecord, placement: &Placement) -> StepPlan {
    let spec = &record.spec;
    let id = StepId::new(facts.job, StepNum::Number(number));
    let umask = spec.umask.unwrap_or(facts.spec.umask);
    let step_env = env::step_variables(&StepFacts {
        step: id,
        nodes: placement.nodes.iter().map(|n| pool.node(n.slot).name.as_str()).collect(),
        tasks_per_node: placement.nodes.iter().map(|n| n.ranks.len() as u32).collect(),
        cpus_per_task: spec.cpus_per_task,
        ntasks_per_node: spec.tasks_per_node,
        distribution: spec.distribution,
        umask,
        manager: facts.addresses.first().and_then(|a| a.rsplit_once(':')),
    });
    let programs = Programs::new(spec);
    let nodes = placement
        .nodes
        .iter()
        .zip(0..)
        .map(|(placed, node_id)| {
            let node = pool.node(placed.slot);
            PlannedNode {
                slot: NodeSlot(placed.slot),
                name: node.name.clone(),
                share: StepNodeShare {
                    node_id,
                    cpus: placed.cpus.clone(),
                    memory_mib: placed.memory,
                    own_cgroup: record.shape.own_cgroup,
                    env: env::node_variables(node, node_id, placed.cpu_count, &placed.ranks),
                },
                tasks: placed
                    .ranks
                    .iter()
                    .zip(0..)
                    .map(|(rank, local_id)| TaskLaunch {
                        rank: *rank,
                        local_id,
                        argv: programs.argv(*rank),
                        extra_env: env::task_variables(*rank, local_id),
                    })
                    .collect(),
            }
        })
        .collect();
    let attended = record.client.is_some();
    let launch = StepLaunch {
        step: id,
        name: spec.name.clone(),
        job_name: facts.spec.name.clone(),
        user: facts.user.clone(),
        array_task: facts.spec.array_task,
        environment: record.environment.clone(),
        step_env,
        work_dir: spec.work_dir.clone().unwrap_or_else(|| facts.spec.work_dir.clone()),
        stdin: match &spec.stdin {
            StreamTarget::Relay if !attended => StreamTarget::Null,
            target => target.clone(),
        },
        stdin_to: spec.stdin_to,
        stdout: match &spec.stdout {
            StreamTarget::Relay if !attended => StreamTarget::File(MINIBATCH_OUTPUT.into()),
            target => target.clone(),
        },
        stderr: match &spec.stderr {
            StreamTarget::Relay if !attended => StreamTarget::SameAsStdout,
            target => target.clone(),
        },
        open_mode: match spec.open_mode {
            OpenMode::Default => OpenMode::Truncate,
            mode => mode,
        },
        pty: spec.pty.filter(|_| attended),
        umask,
        rlimits: spec.rlimits.clone(),
        cpu_bind: spec.cpu_bind.clone(),
        cpus_per_task: record.shape.cpus_per_task,
        total_tasks: record.shape.tasks,
        script: spec.script.clone(),
        batch: false,
    };
    StepPlan {
        id,
        launch: Arc::new(launch),
        nodes,
        attended,
        time_limit: spec.time_limit.and_then(|l| l.duration()),
        kill_on_bad_exit: spec.kill_on_bad_exit,
        wait: spec.wait_secs.map(|s| std::time::Duration::from_secs(u64::from(s))),
        zone: facts.zone.clone(),
    }
}

/// The batch script as a step.
pub fn batch_plan(facts: &RunFacts, pool: &Pool, config: &StepMgrConfig, environment: Arc<Vec<EnvEntry>>) -> StepPlan {
    let spec = &facts.spec;
    let id = StepId::new(facts.job, StepNum::Batch);
    let node = pool.node(0);
    let default_output = if spec.array_task.is_some() { "slurm-%A_%a.out" } else { "slurm-%j.out" };
    let launch = StepLaunch {
        step: id,
        name: "batch".into(),
        job_name: spec.name.clone(),
        user: facts.user.clone(),
        array_task: spec.array_task,
        environment,
        step_env: env::step_variables(&StepFacts {
            step: id,
            nodes: vec![&node.name],
            tasks_per_node: vec![1],
            cpus_per_task: None,
            ntasks_per_node: None,
            distribution: Distribution::Block,
            umask: spec.umask,
            manager: None,
        }),
        work_dir: spec.work_dir.clone(),
        stdin: spec.stdin.clone().map_or(StreamTarget::Null, StreamTarget::File),
        stdin_to: StdinTo::None,
        stdout: StreamTarget::File(spec.stdout.clone().unwrap_or_else(|| default_output.into())),
        stderr: spec.stderr.clone().map_or(StreamTarget::SameAsStdout, StreamTarget::File),
        open_mode: match spec.open_mode {
            OpenMode::Default if config.append_files => OpenMode::Append,
            OpenMode::Default => OpenMode::Truncate,
            mode => mode,
        },
        pty: None,
        umask: spec.umask,
        rlimits: spec.rlimits.clone(),
        cpu_bind: CpuBind::None,
        cpus_per_task: facts.cpus_per_task,
        total_tasks: 1,
        script: spec.script.clone(),
        batch: true,
    };
    let mut argv = vec![ByteBuf::from(SCRIPT_NAME.to_vec())];
    argv.extend(spec.argv.iter().cloned());
    StepPlan {
        id,
        launch: Arc::new(launch),
        nodes: vec![PlannedNode {
            slot: NodeSlot(0),
            name: node.name.clone(),
            share: StepNodeShare {
                node_id: 0,
                cpus: node.cpus.clone(),
                memory_mib: None,
                own_cgroup: false,
                env: env::node_variables(node, 0, node.cpu_count, &[0]),
            },
            tasks: vec![TaskLaunch {
                rank: 0,
                local_id: 0,
                argv: Arc::new(argv),
                extra_env: env::task_variables(0, 0),
            }],
        }],
        attended: false,
        time_limit: None,
        kill_on_bad_exit: false,
        wait: None,
        zone: facts.zone.clone(),
    }
}

/// Arguments by rank: one list for all, or `--multi-prog` lines.
enum Programs<'a> {
    One(Arc<Vec<ByteBuf>>),
    Many(&'a [MultiProg]),
}

impl<'a> Programs<'a> {
    fn new(spec: &'a StepSpec) -> Self {
        if !spec.multi_prog.is_empty() {
            return Self::Many(&spec.multi_prog);
        }
        let mut argv = spec.argv.clone();
        if spec.script.is_some() {
            argv.insert(0, ByteBuf::from(SCRIPT_NAME.to_vec()));
        }
        Self::One(Arc::new(argv))
    }

    /// `%t` is the rank, `%o` its offset in the range it was named by.
    fn argv(&self, rank: u32) -> Arc<Vec<ByteBuf>> {
        let lines = match self {
            Self::One(argv) => return argv.clone(),
            Self::Many(lines) => lines,
        };
        let named = lines.iter().find_map(|line| {
            let mut before = 0;
            for (first, last) in &line.tasks {
                if (*first..=*last).contains(&rank) {
                    return Some((line, before + rank - first));
                }
                before += last.saturating_sub(*first) + 1;
            }
            None
        });
        let (line, offset) = match named.or_else(|| lines.iter().find(|l| l.tasks.is_empty()).map(|l| (l, rank))) {
            Some(found) => found,
            None => return Arc::new(Vec::new()),
        };
        Arc::new(line.argv.iter().map(|arg| expand(arg, rank, offset)).collect())
    }
}

fn expand(arg: &[u8], rank: u32, offset: u32) -> ByteBuf {
    let mut out = Vec::with_capacity(arg.len());
    let mut bytes = arg.iter().copied().peekable();
    while let Some(b) = bytes.next() {
        match (b, bytes.peek()) {
            (b'%', Some(b't')) => {
                bytes.next();
                out.extend_from_slice(rank.to_string().as_bytes());
            }
            (b'%', Some(b'o')) => {
                bytes.next();
                out.extend_from_slice(offset.to_string().as_bytes());
            }
            _ => out.push(b),
        }
    }
    ByteBuf::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multi_prog_lines_name_ranks_offsets_and_the_rest() {
        let arg = |s: &str| ByteBuf::from(s.as_bytes().to_vec());
        let lines = vec![
            MultiProg { tasks: vec![(1, 1), (4, 5)], argv: vec![arg("echo"), arg("%t:%o")] },
            MultiProg { tasks: vec![], argv: vec![arg("rest%t")] },
        ];
        let programs = Programs::Many(&lines);
        assert_eq!(*programs.argv(5), [arg("echo"), arg("5:2")]);
        assert_eq!(*programs.argv(1), [arg("echo"), arg("1:0")]);
        assert_eq!(*programs.argv(0), [arg("rest0")]);
    }
}
