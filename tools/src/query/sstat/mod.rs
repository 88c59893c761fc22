//! `sstat`: what the tasks of running steps use. The controller says which steps run; each step manager asks the nodes of its own.
//!
//! [`options`] has what was typed, [`garrick_render::sstat`] the fields.

pub mod options;

use super::arguments::{self, Outcome};
use crate::{
    output::{self, Console},
    telling::{Tell as _, hints},
};
use garrick_asking::{
    cluster::ClusterError,
    contact::{self, Asked, Contact},
    manager::Way,
    runs,
    search::{Search, Until},
};
use garrick_frame::DoorClient;
use garrick_model::{
    ids::{JobId, Sluid, StepId, StepNum},
    messages::{
        command::{CommandRequest, JobSelector},
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    refusal::Refusal,
    state::StepState,
    step_selector::WhichSteps,
    view::{JobView, StepView},
};
use garrick_render::{
    field_table,
    sstat::{self as fields, StepUse},
};
use options::{Named, Request, RequestError};
use std::{ffi::OsString, io, time::Duration};

/// How long a node may take to look at its tasks.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs `sstat`. Returns its exit code: of jobs that have no running steps it is told, and that is no failure.
pub fn main(args: Vec<OsString>) -> i32 {
    let mut console = Console::new("sstat");
    let arguments = match arguments::read(&options::TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    console.set_verbosity(arguments::verbosity(&arguments));
    if arguments.has("helpformat") {
        return output::finish(&console, output::stdout(|out| field_table::help_format(out, fields::FIELDS)), 0);
    }
    let request = match options::read(&arguments) {
        Ok(request) => request,
        Err(error @ RequestError::Step(_)) => {
            console.fatal(error);
            return 1;
        }
        Err(error) => {
            console.error(error);
            return 1;
        }
    };
    let mut cluster = match Contact::open(&console) {
        Ok(cluster) => cluster,
        Err(error) => return error.tell("slurm_get_job_steps", &console),
    };
    match show(&request, &mut cluster, &console) {
        Ok(()) => 0,
        Err(error) => output::finish(&console, Err(error), 1),
    }
}

fn show(request: &Request, cluster: &mut Contact, console: &Console) -> io::Result<()> {
    if request.heading {
        output::stdout(|out| request.setting.heading(out, &request.columns))?;
    }
    for named in &request.named {
        let steps = match running(named, request.all, cluster, console) {
            Ok(steps) => steps,
            Err(told) => {
                console.error(told);
                continue;
            }
        };
        for (step, sluid) in steps {
            let Some(used) = used(step, sluid, console) else { continue };
            let rows = if request.pids { fields::by_node(&used) } else { vec![used] };
            output::stdout(|out| {
                rows.iter()
                    .try_for_each(|row| request.setting.row(out, &request.columns, |shown| shown(row, request.units)))
            })?;
        }
    }
    Ok(())
}

/// The job that is named.
fn job(named: &JobSelector, cluster: &mut Contact, console: &Console) -> Option<std::sync::Arc<JobView>> {
    let mut named = [named.clone()];
    runs::find(console, &mut named, &mut []).ok()?;
    let [named] = named;
    contact::known_jobs(cluster, &CommandRequest::list_jobs(vec![named])).ok()?.into_iter().next()
}

/// Its running steps that are meant: the named one, all of them, or the first numbered one. The error is what is told of it.
fn running(
    named: &Named,
    all: bool,
    cluster: &mut Contact,
    console: &Console,
) -> Result<Vec<(StepView, Sluid)>, String> {
    let unknown = || format!("couldn't get steps for JobId={}", named.job);
    let view = job(&named.job, cluster, console).ok_or_else(unknown)?;
    let mut steps = steps_of(view.id, cluster).map_err(|error| {
        hints(&error, console);
        unknown()
    })?;
    steps.retain(|step| step.state == StepState::Running);
    // The batch script first.
    steps.sort_by_key(|step| (matches!(step.id.step, StepNum::Number(_)), step.id.key()));
    let nothing = match &named.step {
        Some(which) => {
            steps.retain(|step| which.contains(step.id.key()));
            format!("StepId={}.{which} not found running.", view.id)
        }
        None => {
            if !all {
                steps.retain(|step| matches!(step.id.step, StepNum::Number(_)));
                steps.truncate(1);
            }
            format!("No steps running for JobId={}", view.id)
        }
    };
    if steps.is_empty() { Err(nothing) } else { Ok(steps.into_iter().map(|step| (step, view.sluid)).collect()) }
}

fn steps_of(job: JobId, cluster: &mut Contact) -> Asked<Vec<StepView>> {
    match contact::live_steps(cluster, job) {
        // It has no step manager yet.
        Err(error) if error.refusal() == Some(&Refusal::JobPending) => Ok(Vec::new()),
        answer => answer,
    }
}

/// Asks the step's nodes. Of those that do not answer it is told.
fn used(view: StepView, sluid: Sluid, console: &Console) -> Option<StepUse> {
    let step = view.id;
    let refused = |error: &ClusterError| {
        let why = match error.refusal() {
            Some(Refusal::AccessDenied) => "Invalid user id".to_owned(),
            _ => error.to_string(),
        };
        console.error(format_args!("problem getting step_layout for StepId={step}: {why}"));
    };
    let mut search = Search::new(Way::new(None, console, step.job), console);
    let mut door = match search.begin(Until::default()).map_err(|no_way| no_way.into_error()) {
        Ok(door) => door,
        Err(error) => {
            refused(&error);
            return None;
        }
    };
    let mut answers =
        Answers { step, used: StepUse { view, sluid: Some(sluid), tasks: Vec::new() }, awaited: Vec::new() };
    if let Err(error) = answers.collect(&mut door) {
        if answers.used.tasks.is_empty() && answers.awaited.is_empty() {
            refused(&error);
            return None;
        }
        for node in &answers.awaited {
            console
                .error(format_args!("slurm_job_step_stat: there was an error with the request to {node} rc = {error}"));
        }
    }
    answers.used.tasks.sort_by_key(|(_, task)| task.rank);
    (!answers.used.tasks.is_empty()).then_some(answers.used)
}

/// What comes of one step.
struct Answers {
    step: StepId,
    used: StepUse,
    /// Nodes that have not answered.
    awaited: Vec<String>,
}

impl Answers {
    fn collect(&mut self, door: &mut DoorClient) -> Result<(), ClusterError> {
        door.set_timeout(Some(PATIENCE))?;
        door.send(&CommandToStepMgr::Sample { steps: WhichSteps::one(self.step.key()) })?;
        loop {
            match door.recv::<StepMgrToCommand>()? {
                StepMgrToCommand::Sampling(asked) => {
                    // None: it has just ended.
                    self.awaited = asked.into_iter().flat_map(|(_, nodes)| nodes).collect();
                }
                StepMgrToCommand::Sampled { step, node, tasks } if step.key() == self.step.key() => {
                    self.awaited.retain(|awaited| *awaited != node);
                    self.used.tasks.extend(tasks.into_iter().map(|task| (node.clone(), task)));
                }
                StepMgrToCommand::Refused(refusal) => return Err(ClusterError::Refused(refusal)),
                _ => {}
            }
            if self.awaited.is_empty() {
                return Ok(());
            }
        }
    }
}
