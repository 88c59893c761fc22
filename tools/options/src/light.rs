//! Parses the arguments of the light `srun` as `srun` parses its own. The step manager, which runs as root, does this. So nothing
//! is looked up here, no file and no program, and anything unusual is left to the whole command, which reports errors in the
//! user's own process.

use crate::{
    export::For,
    job_spec::Checked,
    origin::Origin,
    sources,
    step_spec::{self, StepWork},
    stream_plan,
    table::Command,
    typed::{Typed, TypedGres, TypedLayout},
};
use garrick_frame::light::{Launch, word};
use garrick_model::{
    config::PropagateLimits,
    ids::{JobId, RequestId, StepId},
    spec::{CpuBind, Sharing, StepSpec, WithinNode},
    time::Timestamp,
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
};

/// A step that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Identity of the request.
    pub request: RequestId,
    /// Step.
    pub spec: StepSpec,
    /// Which of descriptors 0, 1 and 2 are for the tasks.
    pub descriptors: [bool; 3],
    /// `-Q`
    pub quiet: bool,
    /// Lines for the user.
    pub warnings: Vec<String>,
}

/// Reads it, for a step of that job, asked for on that host. `None`: the whole command is to do it.
pub fn read(launch: &Launch<'_>, job: JobId, host: &str, now: Timestamp) -> Option<Asked> {
    let args: Vec<OsString> = launch.arguments().skip(1).map(|arg| OsStr::from_bytes(arg).to_owned()).collect();
    let variables: BTreeMap<&OsStr, &OsStr> = launch.environment().filter_map(variable).collect();
    // Heterogeneous jobs have components to be found.
    if variables.keys().any(|name| name.as_bytes().starts_with(b"SLURM_HET_")) {
        return None;
    }
    let parsed = sources::command_line(Command::Srun, &args).ok()?;
    let program = parsed.rest.first()?;
    let at = args.len() - parsed.rest.len() + 1;
    let path_travels = |typed: &Typed| typed.export.as_ref().is_none_or(|export| export == "ALL");
    let look_up = |name: &str| variables.get(OsStr::new(name)).map(|value| (*value).to_owned());
    let typed = sources::lay_over(Command::Srun, &[], &look_up, &parsed.options, now).ok()?;
    // A bare name is looked for by whoever asks, who says which of its words it found.
    let is_found = program.as_bytes().contains(&b'/')
        || path_travels(&typed) && launch.word(word::FOUND) == at as u64 && variables.contains_key(OsStr::new("PATH"));
    if !is_usual(&typed) || !is_found || parsed.rest.iter().any(|word| word == ":") || typed.jobid?.value != job {
        return None;
    }
    let origin = Origin {
        work_dir: PathBuf::from(OsStr::from_bytes(launch.directory)),
        host: host.to_owned(),
        pid: u32::try_from(launch.word(word::PID)).ok()?,
        session: u32::try_from(launch.word(word::SESSION)).ok()?,
        umask: u32::try_from(launch.word(word::UMASK)).ok().filter(|mask| *mask <= 0o777)?,
        nice: i32::try_from(launch.word(word::NICE).cast_signed()).ok()?,
        variables: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    };
    let soft = |resource| Some(launch.word(word::LIMITS + resource as usize));
    // Inside a job the site's rules about limits have been applied to what the process has.
    let submitter = origin.submitter(Command::Srun, &args, &typed, For::Step, &PropagateLimits::All, soft).ok()?;
    let plan = stream_plan::attended(&typed, &submitter.work_dir);
    let terminals = launch.word(word::TERMINALS);
    let descriptors = stream_plan::handed(&typed, &plan, |fd| terminals & 1 << fd != 0);
    if descriptors != [true; 3] {
        return None;
    }
    let work = StepWork { program: program.clone(), argv: parsed.rest, ..StepWork::default() };
    let Checked { spec, warnings } = step_spec::build(&typed, submitter, work, plan.targets, None).ok()?;
    let request = RequestId(launch.word(word::REQUEST), launch.word(word::REQUEST + 1));
    Some(Asked { request, spec, descriptors, quiet: typed.quiet, warnings })
}

/// What `srun` says of a step that waits.
pub fn waits(job: JobId) -> String {
    format!("Job {job} step creation temporarily disabled, retrying (Requested nodes are busy)")
}

/// What it says once such a step has begun.
pub fn created(step: StepId) -> String {
    format!("Step created for StepId={step}")
}

/// An entry of the environment. Entries without a name or a value are left out.
fn variable(entry: &[u8]) -> Option<(&OsStr, &OsStr)> {
    let at = entry.iter().skip(1).position(|byte| *byte == b'=')? + 1;
    Some((OsStr::from_bytes(&entry[..at]), OsStr::from_bytes(&entry[at + 1..])))
}

/// Nothing was asked for but what is taken as it is: size and place, binding, limits, names. Files and descriptors, waiting
/// for something else, and whatever is to be said or shown is not.
fn is_usual(typed: &Typed) -> bool {
    // A file, or names that would have to be written out.
    let is_long = |list: &Option<String>| list.as_ref().is_some_and(|list| list.contains(['/', '[']));
    let rest = Typed {
        quiet: false,
        chosen: Vec::new(),
        job_name: None,
        nodes: None,
        ntasks: None,
        ntasks_per_node: None,
        cpus_per_task: None,
        memory: None,
        gres: TypedGres::default(),
        nodelist: None,
        exclude: None,
        sharing: Sharing::default(),
        layout: TypedLayout::default(),
        distribution: None,
        within: WithinNode::default(),
        cpu_bind: CpuBind::default(),
        relative: None,
        exact: false,
        whole: false,
        oom_kill_step: None,
        overlap: false,
        time_limit: None,
        chdir: None,
        export: None,
        propagate: None,
        unbuffered: false,
        jobid: None,
        kill_on_bad_exit: None,
        wait_secs: None,
        ..typed.clone()
    };
    rest == Typed::default() && !is_long(&typed.nodelist) && !is_long(&typed.exclude)
}

#[cfg(test)]
#[path = "light_test.rs"]
mod tests;
