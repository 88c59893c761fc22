//! Heterogeneous jobs on the command line, separated by ` : `, and in scripts, separated by `#SBATCH hetjob`. Options that
//! describe the job rather than its resources are only needed for the first component.

use super::startup::{self, Startup};
use crate::{
    options::{
        job_spec::{self, Checked, Submitter, Work},
        script_lines::ScriptLine,
        typed::{OptionError, Typed},
    },
    output::Console,
};
use garrick_asking::{
    cluster::{Answer, Cluster, ClusterError},
    patience,
};
use garrick_model::{
    ids::{JobId, RequestId},
    messages::command::{CommandReply, CommandRequest},
    spec::{ArraySpec, JobKind, JobSpec},
    view::JobView,
};
use std::sync::Arc;

/// What is submitted: a job, or all components of a heterogeneous one. `script` has the lines of the others.
pub fn specs(
    startup: &Startup,
    typed: &Typed,
    script: &[Vec<ScriptLine>],
    submitter: Submitter,
    work: Work,
) -> Result<Vec<JobSpec>, i32> {
    let wrong = |error: OptionError| startup::tell_option(startup.command(), &startup.console, &error);
    let is_het = startup.other_components() > 0 || !script.is_empty();
    let for_others = is_het.then(|| submitter.clone());
    let Checked { spec, warnings } = job_spec::build(typed, submitter, work).map_err(wrong)?;
    warnings.iter().for_each(|line| startup.console.warning(line));
    match for_others {
        Some(submitter) => components(startup, script, spec, &submitter),
        None => Ok(vec![spec]),
    }
}

/// All components: the first as it is, and the others. `script` has the lines of the others.
fn components(
    startup: &Startup,
    script: &[Vec<ScriptLine>],
    first: JobSpec,
    submitter: &Submitter,
) -> Result<Vec<JobSpec>, i32> {
    let wrong = |error: OptionError| startup::tell_option(startup.command(), &startup.console, &error);
    if first.array.is_some() {
        startup.console.error("Job arrays of heterogeneous jobs are not supported");
        return Err(startup::exit_code(1));
    }
    let count = startup.other_components().max(script.len());
    let mut specs = vec![first];
    for at in 0..count {
        let typed = startup.typed_other(at, script.get(at).map_or(&[], Vec::as_slice))?;
        let submitter = Submitter { environment: Vec::new(), ..submitter.clone() };
        // Only the first runs anything.
        let work = Work {
            kind: JobKind::Allocation,
            default_name: specs[0].name.clone(),
            argv: Vec::new(),
            script: None,
            command: specs[0].command.clone(),
        };
        let Checked { spec, warnings } = job_spec::build(&typed, submitter, work).map_err(wrong)?;
        warnings.iter().for_each(|line| startup.console.warning(line));
        specs.push(inherited(&typed, spec, &specs[0]));
    }
    Ok(specs)
}

/// What was not said for a component is as for the first, where it is about the job and not about resources.
fn inherited(typed: &Typed, own: JobSpec, first: &JobSpec) -> JobSpec {
    JobSpec {
        account: own.account.or_else(|| first.account.clone()),
        qos: own.qos.or_else(|| first.qos.clone()),
        comment: own.comment.or_else(|| first.comment.clone()),
        wckey: own.wckey.or_else(|| first.wckey.clone()),
        time_limit: own.time_limit.or(first.time_limit),
        begin: own.begin.or(first.begin),
        deadline: own.deadline.or(first.deadline),
        dependencies: if typed.dependencies.is_some() { own.dependencies } else { first.dependencies.clone() },
        hold: own.hold || first.hold,
        priority: own.priority.or(first.priority),
        nice: if own.nice == 0 { first.nice } else { own.nice },
        requeue: own.requeue.or(first.requeue),
        no_kill: own.no_kill || first.no_kill,
        immediate_secs: first.immediate_secs,
        work_dir: if typed.chdir.is_some() { own.work_dir } else { first.work_dir.clone() },
        ..own
    }
}

/// Submits a job of any number of components, and says what the controller has to say.
pub fn submit(startup: &Startup, cluster: &Cluster, specs: Vec<JobSpec>) -> Result<JobId, i32> {
    let (job, said) = ask_for(cluster, &startup.console, specs)
        .map_err(|error| startup::tell_cluster(startup.command(), &startup.console, &error))?;
    said.iter().for_each(|line| startup.console.info(line));
    Ok(job)
}

/// A lost reply is asked for again with the same identity. Returns what the controller has to say, too.
pub fn ask_for(cluster: &Cluster, console: &Console, mut specs: Vec<JobSpec>) -> Answer<(JobId, Vec<String>)> {
    let request = RequestId::random();
    let request = match specs.len() {
        1 => CommandRequest::SubmitJob { request, spec: Box::new(specs.remove(0)) },
        _ => CommandRequest::SubmitHetJob { request, specs },
    };
    match patience::ask(cluster, console, &request)? {
        CommandReply::Submitted { job, warnings } => Ok((job, warnings)),
        _ => Err(ClusterError::Unexpected("submitted a job")),
    }
}

/// The components of a heterogeneous job, in the order of their offsets.
pub fn views(cluster: &Cluster, console: &Console, leader: JobId) -> Answer<Vec<Arc<JobView>>> {
    match patience::ask(cluster, console, &CommandRequest::list_jobs(vec![leader.into()]))? {
        CommandReply::Jobs { jobs, .. } => Ok(jobs),
        _ => Err(ClusterError::Unexpected("asked for the components of a job")),
    }
}

/// The components that `--het-group` names: `2`, `0,4`, `1,3-5`. In ascending order, each once.
pub fn groups(text: &str) -> Result<Vec<u32>, String> {
    let wrong = || format!("Invalid --het-group specification: {text}: components are named like 2, 0,4 or 1,3-5");
    if text.contains(['%', ':']) {
        return Err(wrong());
    }
    let named: ArraySpec = text.trim().parse().map_err(|_| wrong())?;
    Ok(named.indices().collect())
}

/// The job of a component of the heterogeneous job around this process, by its variables.
pub fn component(offset: u32, variable: impl Fn(&str) -> Option<String>) -> Result<JobId, String> {
    let size = variable("SLURM_HET_SIZE").and_then(|size| size.parse::<u32>().ok());
    if let Some(most) = size.and_then(|size| size.checked_sub(1))
        && offset > most
    {
        return Err(format!(
            "Attempt to run a job step with het-group value of {offset},\n       \
             but the job allocation has maximum value of {most}"
        ));
    }
    variable(&format!("SLURM_JOB_ID_HET_GROUP_{offset}"))
        .and_then(|id| id.parse().ok())
        .ok_or_else(|| no_component(offset, size.is_some()))
}

/// Why no such component can be meant.
pub fn no_component(offset: u32, within_het_job: bool) -> String {
    match within_het_job {
        false => "--het-group expected to be used within an HetJob allocation".to_owned(),
        true => format!("--het-group: there is no heterogeneous job with a component {offset} around"),
    }
}

/// Says that something cannot be done with a heterogeneous job; returns the exit code.
pub fn not_yet(console: &Console, what: &str) -> i32 {
    console.error(format_args!("{what} is not supported yet"));
    startup::exit_code(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::table::Command;
    use garrick_model::time::TimeLimit;
    use std::ffi::OsString;

    fn parts(line: &str, script: &[Vec<ScriptLine>]) -> Result<(Vec<JobSpec>, Vec<OsString>), i32> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let mut startup = Startup::begin(Command::Sbatch, &args)?;
        let typed = startup.typed(&[])?;
        let submitter = Submitter { work_dir: "/home/alice".into(), ..Submitter::default() };
        let work = Work {
            kind: JobKind::Batch,
            default_name: "job.sh".to_owned(),
            argv: Vec::new(),
            script: Some(b"#!/bin/sh\n".to_vec()),
            command: None,
        };
        let first = job_spec::build(&typed, submitter.clone(), work).unwrap().spec;
        Ok((components(&startup, script, first, &submitter)?, startup.operands().to_vec()))
    }

    #[test]
    fn options_before_and_after_a_colon_are_of_different_components() {
        let (specs, operands) = parts("-n4 -J both -A lab -t 5 : -n2 -p gpu -t 7 : -N2 job.sh : x", &[]).unwrap();
        assert_eq!(specs.iter().map(|s| s.tasks).collect::<Vec<_>>(), [Some(4), Some(2), None]);
        assert_eq!(operands, ["job.sh", ":", "x"]);
        assert!(specs.iter().all(|s| s.name == "both" && s.account.as_deref() == Some("lab")));
        let limit = |minutes: u64| Some(TimeLimit::Secs(minutes * 60));
        assert_eq!(specs.iter().map(|s| s.time_limit).collect::<Vec<_>>(), [limit(5), limit(7), limit(5)]);
        // Resources are each component's own.
        assert_eq!((specs[1].partitions.as_slice(), specs[2].partitions.len()), (&["gpu".to_owned()][..], 0));
        assert!(specs[1..].iter().all(|s| s.kind == JobKind::Allocation && s.script.is_none()));
    }

    #[test]
    fn components_of_the_script_and_of_the_command_line_lie_over_each_other() {
        let line = |text: &str| ScriptLine {
            number: 3,
            mark: crate::options::script_lines::Mark::Sbatch,
            words: text.split_whitespace().map(OsString::from).collect(),
        };
        let script = [vec![line("-n2 -c3")], vec![line("-n7")]];
        let (specs, _) = parts("-n1 : -n5 job.sh", &script).unwrap();
        assert_eq!(specs.iter().map(|s| s.tasks).collect::<Vec<_>>(), [Some(1), Some(5), Some(7)]);
        assert_eq!(specs[1].cpus_per_task, Some(3));
    }

    #[test]
    fn a_group_is_a_component_of_the_job_around() {
        let around = |name: &str| (name == "SLURM_JOB_ID_HET_GROUP_1").then(|| "8".to_owned());
        assert_eq!(component(1, around), Ok(JobId(8)));
        let outside = "--het-group expected to be used within an HetJob allocation";
        assert_eq!(component(2, around).unwrap_err(), outside);
        let sized = |name: &str| if name == "SLURM_HET_SIZE" { Some("2".to_owned()) } else { around(name) };
        assert_eq!(
            component(2, sized).unwrap_err(),
            "Attempt to run a job step with het-group value of 2,\n       \
             but the job allocation has maximum value of 1"
        );
    }

    #[test]
    fn groups_are_named_like_tasks_of_an_array() {
        assert_eq!(groups("2"), Ok(vec![2]));
        assert_eq!(groups("1,3-5"), Ok(vec![1, 3, 4, 5]));
        assert_eq!(groups("1,0,1"), Ok(vec![0, 1]));
        for wrong in ["", "x", "0-", "0-4:2", "0,1%1"] {
            assert!(groups(wrong).unwrap_err().starts_with("Invalid --het-group specification"), "{wrong}");
        }
    }

    #[test]
    fn arrays_are_refused() {
        assert_eq!(parts("--array=1-3 : -n1 job.sh", &[]).unwrap_err(), 1);
    }
}
