//! What the site's programs are told about a job: the environment of PrologSlurmctld, EpilogSlurmctld and MailProg (slurm.conf(5),
//! prolog_epilog.html), as the programs of Slurm 26.05.3 were seen to get it.

use super::{core::JobCore, start::array_facts};
use garrick_model::{
    hostlist, site_program::variable, spec_text::counts_per_node, state::JobState, time::Timestamp, view::JobView,
};
use std::time::Duration;

/// A variable of the environment.
type Variable = (String, String);

/// Of a job without a time limit, the end that programs are told is a year after its start, as in Slurm.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Bytes of a text in the environment: all variables together share a quarter of the stack (execve(2)).
const MOST_OF_TEXT: usize = 64 * 1024;

fn seconds(at: Option<Timestamp>) -> i64 {
    at.map_or(0, Timestamp::secs)
}

/// A text that a program can be given: without what is behind a zero byte or too long.
pub(super) fn text(name: &str, value: &str) -> Variable {
    let value = value.split('\0').next().unwrap_or_default();
    variable(name, &value[..value.floor_char_boundary(MOST_OF_TEXT)])
}

impl JobCore {
    /// The variables that all of those programs get, as of `now`.
    pub(super) fn environment(&self, now: Timestamp) -> Vec<Variable> {
        let view = self.view(now);
        let mut all = self.identity(&view);
        all.extend(self.array_variables());
        all.extend(request(&view));
        all.extend(allocation(&view));
        all.extend(end(&view));
        all
    }

    fn identity(&self, view: &JobView) -> Vec<Variable> {
        vec![
            text("SLURM_CLUSTER_NAME", &self.site.cluster),
            variable("SLURM_JOBID", view.id.0),
            variable("SLURM_JOB_ID", view.id.0),
            variable("SLURM_JOB_SLUID", view.sluid),
            variable("SLURM_JOB_UID", view.uid),
            variable("SLURM_JOB_GID", view.gid),
            text("SLURM_JOB_USER", &view.user),
            text("SLURM_JOB_GROUP", &view.group),
            text("SLURM_JOB_NAME", &view.spec.name),
            variable("SLURM_JOB_RESTART_COUNT", view.restarts),
        ]
    }

    /// Of a task of an array.
    fn array_variables(&self) -> Vec<Variable> {
        let record = &self.record;
        let (Some(task), Some(spec)) = (record.array_task, &record.spec.array) else { return Vec::new() };
        let facts = array_facts(spec);
        vec![
            variable("SLURM_ARRAY_JOB_ID", task.array_job.0),
            variable("SLURM_ARRAY_TASK_ID", task.index),
            variable("SLURM_ARRAY_TASK_COUNT", facts.count),
            variable("SLURM_ARRAY_TASK_MAX", facts.max),
            variable("SLURM_ARRAY_TASK_MIN", facts.min),
            variable("SLURM_ARRAY_TASK_STEP", facts.step),
        ]
    }
}

/// What it asked for.
fn request(view: &JobView) -> Vec<Variable> {
    let spec = &view.spec;
    let (oversubscribe, exclusive) = view.sharing.words(spec.topology.exclusive);
    let mut all = vec![
        text("SLURM_JOB_ACCOUNT", spec.account.as_deref().unwrap_or("(null)")),
        text("SLURM_JOB_WORK_DIR", &spec.work_dir),
        variable("SLURM_JOB_OVERSUBSCRIBE", oversubscribe),
        variable("SLURM_JOB_EXCLUSIVE", exclusive),
        text("SLURM_JOB_STDIN", view.stdin_path.as_deref().unwrap_or("/dev/null")),
    ];
    let given = [
        ("SLURM_JOB_COMMENT", &spec.comment),
        ("SLURM_JOB_CONSTRAINTS", &spec.constraint),
        ("SLURM_JOB_EXTRA", &spec.extra),
        ("SLURM_JOB_LICENSES", &spec.licenses),
        ("SLURM_JOB_QOS", &spec.qos),
        ("SLURM_JOB_STDERR", &view.stderr_path),
        ("SLURM_JOB_STDOUT", &view.stdout_path),
        ("SLURM_WCKEY", &spec.wckey),
    ];
    all.extend(given.iter().filter_map(|(name, value)| value.as_deref().map(|value| text(name, value))));
    if !spec.reservations.is_empty() {
        all.push(text("SLURM_JOB_RESERVATION", &spec.reservations.join(",")));
    }
    all
}

/// What it has or had.
fn allocation(view: &JobView) -> Vec<Variable> {
    let run = view.allocation.as_ref();
    let start = view.start_time.filter(|_| run.is_some());
    let end = view.end_time.or_else(|| start.map(|start| start.plus(A_YEAR)));
    let partition = run.map_or_else(|| view.partitions.join(","), |run| run.partition.clone());
    let nodes = run.map(|run| hostlist::fold(run.nodes.iter().map(|node| node.name.as_str())));
    let mut all = vec![
        text("SLURM_JOB_PARTITION", &partition),
        text("SLURM_JOB_NODELIST", nodes.as_deref().unwrap_or("(null)")),
        variable("SLURM_JOB_START_TIME", seconds(start)),
        variable("SLURM_JOB_END_TIME", seconds(end)),
    ];
    if let Some(run) = run {
        let cpus = run.nodes.iter().map(|node| node.share.cpus.len());
        all.push(text("SLURM_JOB_CPUS_PER_NODE", &counts_per_node(cpus)));
        all.push(variable("SLURM_JOB_NUM_NODES", run.nodes.len()));
    }
    all
}

/// How it ended.
fn end(view: &JobView) -> Vec<Variable> {
    if view.state.waits() || view.state.works() || view.state == JobState::Completing && view.ending.is_none() {
        return Vec::new();
    }
    vec![
        variable("SLURM_JOB_EXIT_CODE", view.exit.wait_status()),
        variable("SLURM_JOB_EXIT_CODE2", view.exit),
        variable("SLURM_JOB_DERIVED_EC", view.derived_exit.wait_status()),
    ]
}
