//! Whose nodes `sbcast` sends to: `-j job[+offset][.step]`, or the job around.

use crate::{output::Console, submit::het};
use garrick_asking::{
    cluster::{Answer, Cluster, ClusterError},
    manager::Around,
    runs,
};
use garrick_model::{
    env_vars,
    ids::{JobId, Sluid, StepId, StepKey},
    messages::command::{CommandReply, CommandRequest, JobSelector},
    refusal::Refusal,
};
use std::env;

/// What was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    job: Id,
    offset: Option<u32>,
    step: Option<StepKey>,
    /// As it is said in messages.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    Job(JobId),
    Task(JobId, u32),
    Run(Sluid),
}

/// One job, or a step of it, whose nodes are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The job that has the nodes.
    pub job: JobId,
    /// Only those of this step.
    pub step: Option<StepId>,
    /// As it is said in messages.
    pub text: String,
}

impl Named {
    /// Takes it apart; the error is what follows the text in the message.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("JobID must not be an empty string");
        }
        let (job, step) = text.split_once('.').map_or((text, None), |(job, step)| (job, Some(step)));
        let step = step.map(str::parse).transpose();
        let step = step.map_err(|_| "StepID includes unexpected non-numeric characters")?;
        let (job, offset) = job.split_once('+').map_or((job, None), |(job, offset)| (job, Some(offset)));
        let offset = offset.map(str::parse).transpose();
        let offset = offset.map_err(|_| "HetJobOffset includes unexpected non-numeric characters")?;
        Ok(Self { job: Id::parse(job).ok_or("JobID can not be zero")?, offset, step, text: text.to_owned() })
    }

    /// The job around.
    pub fn around(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let text = variable(env_vars::SLURM_JOB_ID).or_else(|| variable("SLURM_JOBID"))?;
        Self::parse(&text).ok()
    }

    /// The jobs that are meant: of a heterogeneous job all, unless one is named. The error says what is to be said, and the exit
    /// code.
    pub fn targets(&self, console: &Console) -> Result<Vec<Target>, (String, i32)> {
        self.jobs(console).map(|jobs| self.of_jobs(&jobs)).map_err(|error| match self.offset {
            None => {
                let job = self.text.split('.').next().unwrap_or_default();
                (format!("Failed to load JobId={job}: '{error}'"), 1)
            }
            Some(_) => (lookup_error(&self.text, &error), super::NOT_FOUND),
        })
    }

    fn of_jobs(&self, jobs: &[JobId]) -> Vec<Target> {
        let one = jobs.len() == 1;
        let target = |(offset, job): (usize, &JobId)| Target {
            job: *job,
            step: self.step.map(|key| StepId::of(*job, key)),
            text: if one { self.text.clone() } else { format!("{}+{offset}", self.text) },
        };
        jobs.iter().enumerate().map(target).collect()
    }

    fn jobs(&self, console: &Console) -> Answer<Vec<JobId>> {
        let variable = |name: &str| env::var(name).ok();
        let around = Around::read(variable).map(|around| around.job);
        let job = match self.job {
            Id::Job(job) => job,
            Id::Run(run) => runs::job_of(None, console, run)?,
            Id::Task(..) => return self.asked(console),
        };
        if around != Some(job) {
            let jobs = self.asked(console)?;
            // A step is the leader's unless it says whose.
            return Ok(if self.step.is_some() { jobs.into_iter().take(1).collect() } else { jobs });
        }
        let size = variable(env_vars::SLURM_HET_SIZE).and_then(|size| size.parse::<u32>().ok()).unwrap_or(1);
        match self.offset {
            Some(0) if size == 1 => Ok(vec![job]),
            Some(offset) => Ok(vec![component(offset)?]),
            None if self.step.is_some() || size == 1 => Ok(vec![job]),
            None => (0..size).map(component).collect(),
        }
    }

    /// Asks the controller.
    fn asked(&self, console: &Console) -> Answer<Vec<JobId>> {
        let (job, tasks) = match self.job {
            Id::Task(job, task) => (job, Some(vec![(task, task, 1)])),
            Id::Job(job) => (job, None),
            Id::Run(run) => (runs::job_of(None, console, run)?, None),
        };
        let selector = JobSelector { job, tasks, het: self.offset, run: None };
        match Cluster::find(None)?.ask(console.program(), &CommandRequest::list_jobs(vec![selector]))? {
            CommandReply::Jobs { jobs, .. } if !jobs.is_empty() => Ok(jobs.iter().map(|job| job.id).collect()),
            CommandReply::Jobs { .. } => Err(Refusal::InvalidJobId.into()),
            _ => Err(ClusterError::Unexpected("asked for a job")),
        }
    }
}

impl Id {
    fn parse(text: &str) -> Option<Self> {
        if let Some((job, task)) = text.split_once('_') {
            return Some(Self::Task(job.parse().ok()?, task.parse().ok()?));
        }
        match text.parse::<JobId>() {
            Ok(JobId(0)) => None,
            Ok(job) => Some(Self::Job(job)),
            Err(_) => text.parse().ok().map(Self::Run),
        }
    }
}

fn component(offset: u32) -> Answer<JobId> {
    het::component(offset, |name| env::var(name).ok()).map_err(|_| Refusal::InvalidJobId.into())
}

/// Why a job or step has no nodes to send to.
pub fn lookup_error(text: &str, error: &ClusterError) -> String {
    let why = match error.refusal() {
        Some(Refusal::AccessDenied) => "Invalid user id".to_owned(),
        Some(Refusal::InvalidStep(_)) => Refusal::InvalidJobId.to_string(),
        _ => error.to_string(),
    };
    format!("Slurm job {text} lookup error: {why}")
}

#[cfg(test)]
#[path = "target_test.rs"]
mod tests;
