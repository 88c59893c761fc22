//! From a placed step to the orders for its nodes: environment layers, tasks with their arguments, standard files.

use crate::{
    env_entry::entry,
    shepherd::stdio::one_file_for_all,
    step::{NodeSlot, PlannedNode, StepPlan},
    stepmgr::{
        env::{self, StepFacts},
        het_env,
        placement::Placement,
        pool::Pool,
        rows::Row,
        run::{RunFacts, StepMgrConfig},
        shape::{StepGres, StepShape},
        state::StepRecord,
    },
};
use garrick_events::steps::batch::StoredMembers;
use garrick_model::{
    gres::{GpuBind, GresRequest},
    ids::{StepId, StepKey},
    messages::{
        shepherd::{StepLaunch, StepNodeShare, TaskLaunch},
        step::WholeStep,
    },
    patterns,
    spec::{
        ArraySpec, CpuBind, EnvEntry, Mpi, MultiProg, OpenMode, PartsBefore, StdinTo, StepSpec, StreamTarget,
        TaskOverWith, TaskScripts,
    },
};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// The `argv[0]` of a script until the shepherd replaces it by the path of its copy.
const SCRIPT_NAME: &[u8] = b"slurm_script";

/// Output of a minibatch step that named no file: beside the job's own output, distinguished by the step's number.
const MINIBATCH_OUTPUT: &str = "slurm-%J.out";

/// Recently used layouts of a row, with what was derived from them: steps of a row differ in little more than their number, and
/// use the same few places again and again.
#[derive(Debug, Default)]
pub struct Layouts(Vec<Layout>);

/// How many layouts are kept; then the oldest is dropped.
const LAYOUTS_KEPT: usize = 64;

/// What follows from the placement of tasks, whatever the step's number.
#[derive(Debug)]
struct Layout {
    nodes: Vec<(u32, u32, Vec<u32>)>,
    env: Arc<Vec<EnvEntry>>,
    node_env: Vec<Arc<Vec<EnvEntry>>>,
}

impl Layout {
    fn new(
        facts: &RunFacts,
        pool: &Pool,
        spec: &StepSpec,
        array: Option<(u32, &ArraySpec)>,
        placement: &Placement,
        whole: Option<&WholeStep>,
    ) -> Self {
        let (names, tasks_per_node) = match whole {
            Some(whole) => (whole.nodes.iter().map(String::as_str).collect(), whole.tasks_per_node.clone()),
            None => (
                placement.nodes.iter().map(|n| pool.node(n.slot).name.as_str()).collect(),
                placement.nodes.iter().map(|n| n.ranks.len() as u32).collect(),
            ),
        };
        let mut env = env::layout_variables(&StepFacts {
            nodes: names,
            tasks_per_node,
            cpus_per_task: spec.cpus_per_task,
            ntasks_per_node: spec.tasks_per_node,
            distribution: spec.distribution,
            within: spec.within,
            process_nice: spec.process_nice,
            umask: spec.umask.unwrap_or(facts.spec.umask),
            manager: facts.addresses.first().and_then(|a| a.rsplit_once(':')),
        });
        env.extend(array.iter().flat_map(|(number, tasks)| env::step_array_variables(*number, tasks)));
        env.extend(spec.het.iter().flat_map(|part| het_env::part_variables(facts.job, part, whole)));
        let nodes = placement.nodes.iter();
        let node_env = nodes.clone().zip(before(spec).nodes..).map(|(placed, node_id)| {
            let node = pool.node(placed.slot);
            let path = facts.switches.get(placed.slot as usize);
            Arc::new(env::node_variables(node, path, node_id, placed.cpu_count, &placed.ranks))
        });
        Self {
            env: Arc::new(env),
            node_env: node_env.collect(),
            nodes: nodes.map(|n| (n.slot, n.cpu_count, n.ranks.clone())).collect(),
        }
    }

    fn is_of(&self, placement: &Placement) -> bool {
        self.nodes.len() == placement.nodes.len()
            && self.nodes.iter().zip(&placement.nodes).all(|((slot, cpus, ranks), placed)| {
                *slot == placed.slot && *cpus == placed.cpu_count && *ranks == placed.ranks
            })
    }
}

impl Layouts {
    fn of(
        &mut self,
        facts: &RunFacts,
        pool: &Pool,
        spec: &StepSpec,
        array: Option<(u32, &ArraySpec)>,
        placement: &Placement,
    ) -> &Layout {
        let at = match self.0.iter().position(|l| l.is_of(placement)) {
            Some(at) => at,
            None => {
                if self.0.len() >= LAYOUTS_KEPT {
                    self.0.remove(0);
                }
                self.0.push(Layout::new(facts, pool, spec, array, placement, None));
                self.0.len() - 1
            }
        };
        &self.0[at]
    }
}

/// The plan of an attended step.
pub fn attended_plan(
    facts: &RunFacts,
    pool: &Pool,
    number: u32,
    record: &StepRecord,
    placement: &Placement,
) -> StepPlan {
    StepPlan {
        awaits_others: record.spec.het.is_some_and(|part| part.behind.is_some()) || record.spec.sent.is_some(),
        ..plan_with(facts, pool, number, record, placement, None)
    }
}

/// The plan of a part of a step over several components, when all parts are placed.
pub fn part_plan(
    facts: &RunFacts,
    pool: &Pool,
    number: u32,
    record: &StepRecord,
    placement: &Placement,
    whole: &WholeStep,
) -> StepPlan {
    plan_with(facts, pool, number, record, placement, Some(whole))
}

fn plan_with(
    facts: &RunFacts,
    pool: &Pool,
    number: u32,
    record: &StepRecord,
    placement: &Placement,
    whole: Option<&WholeStep>,
) -> StepPlan {
    let launch = launch_of(facts, record, placement);
    let layout = Layout::new(facts, pool, &record.spec, None, placement, whole);
    let programs = Programs::new(&record.spec, None);
    let key = StepKey::number(number);
    let step = Planned { key, attempt: 0, attended: true, own_env: Vec::new(), spec: &record.spec };
    plan(facts, pool, step, Arc::new(launch), &layout, &programs, record.shape.own_cgroup, placement)
}

/// Tasks and nodes before this part of a step.
pub fn before(spec: &StepSpec) -> PartsBefore {
    spec.het.and_then(|part| part.behind).unwrap_or_default()
}

/// The place of a part of a step, with ranks that follow those of the parts before.
pub fn behind_others(mut placement: Placement, record: &StepRecord) -> Placement {
    let first = before(&record.spec).tasks;
    placement.nodes.iter_mut().flat_map(|node| &mut node.ranks).for_each(|rank| *rank = rank.saturating_add(first));
    placement
}

/// What the launches of a running step share.
pub fn launch_of(facts: &RunFacts, record: &StepRecord, placement: &Placement) -> StepLaunch {
    let attendance = match record.client {
        Some(_) => Attendance::By { handed: handed_here(record, placement) },
        None => Attendance::None,
    };
    launch(facts, &record.spec, &record.shape, record.environment.clone(), attendance)
}

/// Descriptors that were handed over are valid only on the host of the command's door, which is the batch host.
fn handed_here(record: &StepRecord, placement: &Placement) -> [bool; 3] {
    let here = matches!(placement.nodes.as_slice(), [only] if only.slot == 0);
    if here { record.handed } else { [false; 3] }
}

/// The plan of a minibatch step.
pub fn member_plan(
    facts: &RunFacts,
    pool: &Pool,
    row: &mut Row,
    member: u32,
    attempt: u32,
    placement: &Placement,
) -> StepPlan {
    let launch = row.launch.get_or_insert_with(|| {
        let launch = launch(facts, &row.spec, &row.shape, row.environment.clone(), Attendance::None);
        Arc::new(StepLaunch { or_shell: matches!(row.batch.members, StoredMembers::Commands(_)), ..launch })
    });
    let launch = launch.clone();
    let mut own_env = Vec::new();
    let programs = match &row.batch.members {
        StoredMembers::Commands(list) => {
            own_env.extend(list.environment(member as usize));
            Programs::new(&row.spec, Some(list.argv(member as usize)))
        }
        _ => Programs::new(&row.spec, None),
    };
    if attempt > 0 {
        own_env.push(entry("GARRICK_STEP_RETRY", attempt));
    }
    let step = Planned { key: row.step(member), attempt, attended: false, own_env, spec: &row.spec };
    let array = row.batch.array().map(|tasks| (row.first, tasks.as_ref()));
    let layout = row.layouts.of(facts, pool, &row.spec, array, placement);
    plan(facts, pool, step, launch, layout, &programs, row.shape.own_cgroup, placement)
}

/// Which command waits with a step.
#[derive(Clone, Copy)]
enum Attendance {
    None,
    By { handed: [bool; 3] },
}

/// `--gpu-bind`, or what `--gpus-per-task` and `--ntasks-per-gpu` imply (`srun(1)`).
fn gpu_bind(spec: &StepSpec, shape: &StepShape) -> GpuBind {
    let StepGres::Asked(asked) = &shape.gres else { return spec.gres.bind.clone().unwrap_or_default() };
    let each = u32::try_from(GresRequest::gpus(&asked.per_task)).unwrap_or(u32::MAX);
    match (&spec.gres.bind, asked.tasks_per_gpu) {
        (None, _) if each > 0 => GpuBind::PerTask(each),
        (None, Some(tasks)) => GpuBind::Single(tasks),
        (bind, _) => bind.clone().unwrap_or_default(),
    }
}

fn launch(
    facts: &RunFacts,
    spec: &StepSpec,
    shape: &StepShape,
    environment: Arc<Vec<EnvEntry>>,
    attendance: Attendance,
) -> StepLaunch {
    let pack = spec.output_pack.is_some();
    let output = |target: &StreamTarget, at: usize, alone: StreamTarget| match (target, attendance) {
        (StreamTarget::Relay, Attendance::None) => alone,
        (StreamTarget::Relay, Attendance::By { handed }) if handed[at] => StreamTarget::Handed,
        (target, _) => target.clone(),
    };
    let to_file = if pack { StreamTarget::Pack } else { StreamTarget::File(MINIBATCH_OUTPUT.into()) };
    // An output pack stores the streams separately; in a file they are mixed, as for a batch job.
    let beside = if pack { StreamTarget::Pack } else { StreamTarget::SameAsStdout };
    let unattended = matches!(attendance, Attendance::None);
    let launch = StepLaunch {
        name: spec.name.clone(),
        job_name: facts.spec.name.clone(),
        user: facts.user.clone(),
        array_task: facts.spec.array_task,
        environment,
        work_dir: spec.work_dir.clone().unwrap_or_else(|| facts.spec.work_dir.clone()),
        stdin: output(&spec.stdin, 0, StreamTarget::Null),
        stdin_to: spec.stdin_to,
        stdout: output(&spec.stdout, 1, to_file),
        stderr: output(&spec.stderr, 2, beside),
        open_mode: match spec.open_mode {
            OpenMode::Default => OpenMode::Truncate,
            mode => mode,
        },
        pty: spec.pty.filter(|_| !unattended),
        umask: spec.umask.unwrap_or(facts.spec.umask),
        process_nice: spec.process_nice,
        rlimits: spec.rlimits.clone(),
        cpu_bind: spec.cpu_bind.clone(),
        says_cpu_bind: spec.says_cpu_bind,
        within: spec.within,
        gpu_bind: gpu_bind(spec, shape),
        cpus_per_task: shape.cpus_per_task,
        // A script runs once, whatever resources it requests: like a batch script, it uses them itself.
        total_tasks: if spec.script.is_some() { 1 } else { shape.tasks },
        script: spec.script.clone(),
        batch: false,
        output_pack: spec.output_pack.clone(),
        unattended: unattended || !spec.tell_starts,
        or_shell: false,
        unasked_output: unattended && !pack && (spec.unasked_output || spec.stdout == StreamTarget::Relay),
        task_scripts: spec.task_scripts.clone(),
        mpi: spec.mpi,
        program_named_by_node: spec.sent.is_some_and(|sent| sent.named_by_node),
        cpu_freq: spec.cpu_freq,
        gpu_freq: spec.gpu_freq,
        sample_secs: spec.sample_secs.or(facts.spec.sample_secs),
        profiling: spec.profiling.or(facts.spec.profiling),
        over_with: match (spec.wait_for_children, spec.kill_on_bad_exit) {
            (false, _) => TaskOverWith::First,
            (true, false) => TaskOverWith::Last,
            (true, true) => TaskOverWith::LastOrFailed,
        },
    };
    // Before tasks on other nodes begin, the first task has to report that it opened the shared file.
    let tells = shape.max_nodes > 1 && launch.total_tasks > 1 && one_file_for_all(&launch);
    StepLaunch { unattended: launch.unattended && !tells, ..launch }
}

/// The inputs of a plan.
struct Planned<'a> {
    key: StepKey,
    attempt: u32,
    attended: bool,
    own_env: Vec<EnvEntry>,
    spec: &'a StepSpec,
}

#[allow(clippy::too_many_arguments)]
fn plan(
    facts: &RunFacts,
    pool: &Pool,
    step: Planned<'_>,
    launch: Arc<StepLaunch>,
    layout: &Layout,
    programs: &Programs<'_>,
    own_cgroup: bool,
    placement: &Placement,
) -> StepPlan {
    let Planned { key, attempt, attended, mut own_env, spec } = step;
    own_env.extend(env::number_variables(key));
    own_env.extend(spec.gpu_freq.map(|asked| entry("SLURM_GPU_FREQ", asked)));
    if spec.preserve_env {
        own_env.extend(env::preserved(&spec.environment));
    }
    // A script runs once, on the first node.
    let (most_nodes, most_ranks) = if launch.script.is_some() { (1, 1) } else { (usize::MAX, usize::MAX) };
    let before = before(spec);
    let placed = placement.nodes.iter().take(most_nodes).zip(&layout.node_env).zip(before.nodes..);
    let nodes = placed.map(|((placed, node_env), node_id)| PlannedNode {
        slot: NodeSlot(placed.slot),
        name: pool.node(placed.slot).name.clone(),
        share: StepNodeShare {
            node_id,
            cpus: placed.cpus.clone(),
            memory_mib: placed.memory,
            gres: placed.gres.clone(),
            own_cgroup,
            env: node_env.clone(),
        },
        tasks: placed
            .ranks
            .iter()
            .take(most_ranks)
            .zip(0..)
            .map(|(rank, local_id)| TaskLaunch {
                rank: *rank,
                local_id,
                argv: programs.argv(*rank),
                extra_env: env::task_variables(*rank, local_id),
            })
            .collect(),
    });
    StepPlan {
        id: StepId::of(facts.job, key),
        attempt,
        env: layout.env.clone(),
        own_env,
        nodes: nodes.collect(),
        attended,
        launch,
        time_limit: spec.time_limit.and_then(|l| l.duration()),
        kill_on_bad_exit: spec.kill_on_bad_exit,
        kill_on_oom: spec.oom_kill_step.or(facts.spec.oom_kill_step).unwrap_or(false),
        wait: spec.wait_secs.map(|s| std::time::Duration::from_secs(u64::from(s))),
        zone: facts.zone.clone(),
        after: None,
        first_rank: before.tasks,
        awaits_others: false,
    }
}

/// The batch script as a step.
pub fn batch_plan(facts: &RunFacts, pool: &Pool, config: &StepMgrConfig, environment: Arc<Vec<EnvEntry>>) -> StepPlan {
    let spec = &facts.spec;
    let id = StepId::of(facts.job, StepKey::BATCH);
    let node = pool.node(0);
    let default_output = patterns::default_output(spec.array_task.is_some());
    let launch = StepLaunch {
        name: "batch".into(),
        job_name: spec.name.clone(),
        user: facts.user.clone(),
        array_task: spec.array_task,
        environment,
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
        process_nice: spec.process_nice,
        rlimits: spec.rlimits.clone(),
        cpu_bind: CpuBind::None,
        says_cpu_bind: false,
        within: Default::default(),
        gpu_bind: GpuBind::None,
        cpus_per_task: facts.cpus_per_task,
        total_tasks: 1,
        script: spec.script.as_deref().cloned(),
        batch: true,
        output_pack: None,
        unattended: true,
        or_shell: false,
        unasked_output: false,
        task_scripts: TaskScripts::default(),
        mpi: Mpi::None,
        program_named_by_node: false,
        cpu_freq: None,
        gpu_freq: None,
        sample_secs: spec.sample_secs,
        profiling: spec.profiling,
        over_with: Default::default(),
    };
    let own_env = env::number_variables(StepKey::BATCH);
    let mut argv = vec![ByteBuf::from(SCRIPT_NAME.to_vec())];
    argv.extend(spec.argv.iter().cloned());
    StepPlan {
        id,
        attempt: 0,
        env: Arc::default(),
        own_env,
        launch: Arc::new(launch),
        nodes: vec![PlannedNode {
            slot: NodeSlot(0),
            name: node.name.clone(),
            share: StepNodeShare {
                node_id: 0,
                cpus: node.cpus.clone(),
                memory_mib: None,
                gres: node.all_gres.everything(&node.gres),
                own_cgroup: false,
                env: Arc::new(env::node_variables(node, facts.switches.first(), 0, node.cpu_count, &[0])),
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
        kill_on_oom: facts.spec.oom_kill_step.unwrap_or(false),
        wait: None,
        zone: facts.zone.clone(),
        after: None,
        first_rank: 0,
        awaits_others: false,
    }
}

/// Arguments by rank: the same for all, or lines of `--multi-prog`.
enum Programs<'a> {
    One(Arc<Vec<ByteBuf>>),
    Many(&'a [MultiProg]),
}

impl<'a> Programs<'a> {
    /// `own`: program and arguments instead of the spec's.
    fn new(spec: &'a StepSpec, own: Option<Vec<ByteBuf>>) -> Self {
        if !spec.multi_prog.is_empty() {
            return Self::Many(&spec.multi_prog);
        }
        let mut argv = own.unwrap_or_else(|| spec.argv.clone());
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
