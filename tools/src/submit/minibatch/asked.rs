//! The request of a minibatch step: only its own part of the job's resources, and files instead of an `srun` that waits with it.

use crate::options::{
    job_spec::{Checked, Submitter},
    step_spec::{self, StepWork},
    stream_plan,
    typed::{OptionError, Source, Sourced, Typed},
};
use garrick_model::{
    batch::{FailLimit, RetryPolicy, StepDependencies},
    ids::{JobId, RequestId},
    resources::MemoryRequest,
    spec::{NodeCount, StepSharing, StepSpec},
};

/// What is said of a step with `--mem=0`.
pub const ALL_MEMORY: &str = "step asks for all memory of its nodes: no other step runs beside it";

/// `--dependency` of a step of `job`.
fn dependency(typed: &Typed, job: JobId) -> Result<Option<StepDependencies>, OptionError> {
    // Set in the environment it is about the jobs that a user makes.
    let text = typed.dependency.as_ref().filter(|d| d.source != Source::Environment);
    let parsed = text.map(|d| StepDependencies::parse(&d.value, Some(job)));
    parsed.transpose().map_err(|error| OptionError::Text(error.to_string()))
}

/// Steps of a list or an array, and scripts, are made for one task unless more is asked for: the tasks and nodes of the
/// whole job, which the environment names, are not what each of thousands needs.
pub fn without_layout_of_the_job(typed: &mut Typed) {
    typed.nodes = typed.nodes.filter(|n| n.source != Source::Environment);
    typed.ntasks = typed.ntasks.filter(|n| n.source != Source::Environment);
    typed.ntasks_per_node = typed.ntasks_per_node.filter(|n| n.source != Source::Environment);
}

/// One task, when nothing that says how many was asked for.
pub fn one_task_at_least(typed: &mut Typed) {
    let names_nodes = typed.nodelist.is_some() || typed.nodefile.is_some();
    if typed.nodes.is_none() && typed.ntasks.is_none() && typed.ntasks_per_node.is_none() && !names_nodes {
        typed.ntasks = Some(Sourced { value: 1, source: Source::CommandLine });
    }
}

/// The nodes of the whole job, which the environment names, are made as few as the tasks that are asked for. Whoever names
/// both in the command is told so ([`fitting_nodes`](crate::options::job_spec::fitting_nodes)).
pub fn no_more_nodes_of_the_job_than_tasks(typed: &mut Typed) {
    let Some(Sourced { value: tasks, .. }) = typed.ntasks else { return };
    if let Some(Sourced { value: nodes, source: Source::Environment }) = &mut typed.nodes
        && tasks < nodes.min
    {
        *nodes = NodeCount { min: tasks, max: nodes.max.map(|max| max.min(tasks)) };
    }
}

/// A pack records what steps write to it: one whose output goes to a file would not be found there.
fn no_files_beside_a_pack(typed: &Typed) -> Result<(), OptionError> {
    let Some(pack) = &typed.output_pack else { return Ok(()) };
    for (option, file) in [("output", &typed.output), ("error", &typed.error)] {
        if let Some(file) = file.as_deref().filter(|file| !["all", "none"].contains(file)) {
            return Err(OptionError::Text(format!(
                "--{option}={file} cannot be used with --output-pack={pack}: what goes to a file is not in the pack; \
                 leave one of them out (--{option}=all or an empty --output-pack= undoes one that is set elsewhere)"
            )));
        }
    }
    Ok(())
}

/// Checks and converts what is handed over to the step manager of `job`.
pub fn spec(typed: &Typed, job: JobId, submitter: Submitter, work: StepWork) -> Result<Checked<StepSpec>, OptionError> {
    no_files_beside_a_pack(typed)?;
    let streams = stream_plan::unattended(typed, &submitter.work_dir);
    let output_pack = typed.output_pack.as_deref().map(|file| stream_plan::absolute(file, &submitter.work_dir));
    let retry = retry(typed)?;
    let dependency = dependency(typed, job)?;
    let Checked { spec, mut warnings } = step_spec::build(typed, submitter, work, streams, None)?;
    if spec.memory == MemoryRequest::All && spec.sharing != StepSharing::Overlap {
        warnings.push(ALL_MEMORY.to_owned());
    }
    let sharing = if spec.sharing == StepSharing::Overlap { StepSharing::Overlap } else { StepSharing::Exact };
    Ok(Checked { spec: StepSpec { sharing, dependency, retry, output_pack, immediate: false, ..spec }, warnings })
}

/// The limit of failures of steps that are handed over together, however many requests that takes. To be made once for all.
pub fn fail_limit(typed: &Typed) -> Option<FailLimit> {
    typed.max_fails.map(|(most, kill)| FailLimit { group: RequestId::random(), most, kill })
}

fn retry(typed: &Typed) -> Result<Option<RetryPolicy>, OptionError> {
    match typed.retries {
        Some(count @ 1..) => {
            Ok(Some(RetryPolicy { count, delay_secs: typed.retry_delay_secs, on: typed.retry_on.clone() }))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::{
        sources::{command_line, lay_over},
        table::Command,
    };
    use garrick_model::{
        batch::{RetryOn, StepCgroup, StepDependencyKind},
        spec::StreamTarget,
        time::Timestamp,
    };
    use std::ffi::OsString;

    const JOB: JobId = JobId(5609);

    fn typed(env: &[(&str, &str)], args: &str) -> Typed {
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let parsed = command_line(Command::Srun, &args).unwrap();
        let variable = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(*v));
        lay_over(Command::Srun, &[], &variable, &parsed.options, Timestamp::from_secs(0)).unwrap()
    }

    fn built(env: &[(&str, &str)], args: &str) -> Result<Checked<StepSpec>, OptionError> {
        let submitter = Submitter { work_dir: "/w".into(), ..Submitter::default() };
        let work = StepWork { program: "/bin/true".into(), argv: vec!["/bin/true".into()], ..StepWork::default() };
        spec(&typed(env, args), JOB, submitter, work)
    }

    #[test]
    fn a_queued_step_takes_what_it_asks_for_and_no_more() {
        assert_eq!(built(&[], "-n2").unwrap().spec.sharing, StepSharing::Exact);
        assert_eq!(built(&[], "-n2 --overlap").unwrap().spec.sharing, StepSharing::Overlap);
    }

    #[test]
    fn who_asks_for_all_memory_is_told_what_that_means() {
        assert_eq!(built(&[], "--mem=0").unwrap().warnings, [ALL_MEMORY]);
        assert!(built(&[], "--mem=0 --overlap").unwrap().warnings.is_empty());
        assert!(built(&[("SLURM_MEM_PER_NODE", "0")], "").unwrap().warnings.is_empty());
    }

    #[test]
    fn retries_need_a_count() {
        let args = "--retries=3 --retry-delay=1:00 --retry-on=75,NODE_FAIL";
        let on = vec![RetryOn::Codes(75, 75), RetryOn::NodeFail];
        assert_eq!(built(&[], args).unwrap().spec.retry, Some(RetryPolicy { count: 3, delay_secs: 60, on }));
        assert_eq!(built(&[], "--retries=0").unwrap().spec.retry, None);
        let set = built(&[("SRUN_RETRIES", "2"), ("SRUN_RETRY_ON", "SIGKILL")], "").unwrap().spec.retry.unwrap();
        assert_eq!((set.count, set.on), (2, vec![RetryOn::Signal(9)]));
    }

    #[test]
    fn dependencies_are_on_steps_of_the_job() {
        let dependency = built(&[], "-d afterok:3,after:5609.7_*").unwrap().spec.dependency.unwrap();
        assert_eq!(dependency.on.len(), 2);
        assert_eq!(dependency.on[1].kind, StepDependencyKind::After);
        // As the names of what was accepted are printed.
        let list = built(&[], "-d afterok:5609.[1-10,14]").unwrap().spec.dependency.unwrap();
        assert_eq!(list.to_string(), "afterok:[1-10,14]");
        let other = built(&[], "-d afterok:7.3").unwrap_err().to_string();
        assert!(other.contains("belongs to another job"), "{other}");
        assert_eq!(built(&[("SLURM_DEPENDENCY", "afterok:12")], "").unwrap().spec.dependency, None);
    }

    #[test]
    fn a_pack_takes_all_output() {
        let spec = built(&[], "--output-pack=out.pack --step-cgroup=always --step-priority=-2").unwrap().spec;
        assert_eq!(spec.output_pack.as_deref(), Some("/w/out.pack"));
        assert_eq!((spec.stdout, spec.stderr), (StreamTarget::Pack, StreamTarget::Pack));
        assert_eq!((spec.step_cgroup, spec.priority), (StepCgroup::Always, -2));
        let quiet = built(&[], "--output-pack=out.pack -e none -o all").unwrap().spec;
        assert_eq!((quiet.stdout, quiet.stderr), (StreamTarget::Pack, StreamTarget::Null));
    }

    #[test]
    fn a_pack_and_a_file_exclude_each_other() {
        let refused = |option: &str, file: &str| {
            format!(
                "--{option}={file} cannot be used with --output-pack=p: what goes to a file is not in the pack; leave one \
                 of them out (--{option}=all or an empty --output-pack= undoes one that is set elsewhere)"
            )
        };
        let said = |env: &[(&str, &str)], args: &str| built(env, args).unwrap_err().to_string();
        assert_eq!(said(&[], "--output-pack=p -o out"), refused("output", "out"));
        assert_eq!(said(&[], "-e err.%t --output-pack=p"), refused("error", "err.%t"));
        assert_eq!(said(&[("SRUN_OUTPUT", "out")], "--output-pack=p"), refused("output", "out"));
        assert_eq!(built(&[("SRUN_OUTPUT", "out")], "--output-pack=p -o all").unwrap().spec.stdout, StreamTarget::Pack);
        let file = built(&[("SRUN_OUTPUT_PACK", "p")], "--output-pack= -o out").unwrap().spec;
        assert_eq!((file.stdout, file.output_pack), (StreamTarget::File("/w/out".to_owned()), None));
    }

    #[test]
    fn fewer_tasks_than_the_job_has_nodes_take_fewer_nodes() {
        let job = [("SLURM_NTASKS", "8"), ("SLURM_NNODES", "2")];
        let of = |args: &str| {
            let mut typed = typed(&job, args);
            no_more_nodes_of_the_job_than_tasks(&mut typed);
            let submitter = Submitter { work_dir: "/w".into(), ..Submitter::default() };
            let checked = spec(&typed, JOB, submitter, StepWork::default()).unwrap();
            (checked.spec.tasks, checked.spec.nodes.map(|n| n.min), checked.warnings)
        };
        assert_eq!(of(""), (Some(8), Some(2), vec![]));
        assert_eq!(of("-n1"), (Some(1), Some(1), vec![]));
        assert_eq!(of("-n1 -w n2"), (Some(1), None, vec![]));
        let own = vec!["can't run 1 processes on 2 nodes, setting nnodes to 1".to_owned()];
        assert_eq!(of("-n1 -N2"), (Some(1), Some(1), own));
    }

    #[test]
    fn the_layout_of_the_job_is_not_that_of_its_steps() {
        let env = [("SLURM_NTASKS", "8"), ("SLURM_NNODES", "2"), ("SLURM_NTASKS_PER_NODE", "4")];
        let of = |args: &str| {
            let mut typed = typed(&env, args);
            without_layout_of_the_job(&mut typed);
            one_task_at_least(&mut typed);
            (typed.ntasks.map(|n| n.value), typed.nodes.map(|n| n.value.min))
        };
        assert_eq!(of(""), (Some(1), None));
        assert_eq!(of("-n2"), (Some(2), None));
        assert_eq!(of("-N2"), (None, Some(2)));
        assert_eq!(of("-w n1,n2"), (None, None));
    }
}
