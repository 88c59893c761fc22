//! Finding and reaching a job's step manager. Inside a job its door is named by the environment, so that steps need
//! neither the controller nor `slurm.conf`. Otherwise the controller says where it is: a door on this host, or a node
//! that a daemon of this host relays to.

use crate::{
    cluster::{ANSWER_TIMEOUT, Answer, Cluster, ClusterError, greeting, is_here},
    output::Console,
    submit::patience,
};
use garrick_frame::{DoorClient, LinkKind, TunnelTo};
use garrick_model::{
    env_vars,
    ids::{ArrayTask, JobId},
    messages::command::{CommandReply, CommandRequest, StepManagerPlace},
    refusal::Refusal,
    step_selector::StepsSelector,
};
use std::{
    env,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// For a killed step manager to be back, and between two looks for it.
const RESTART_TIME: Duration = Duration::from_secs(10);
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// What the environment says about the step manager of the job around this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// A door on this host.
    pub door: Option<PathBuf>,
    /// Node and address of a manager elsewhere.
    pub elsewhere: Option<(String, String)>,
}

impl Named {
    /// Reads the environment. Nothing counts unless it is about `job`.
    pub fn read(job: JobId, variable: impl Fn(&str) -> Option<String>) -> Self {
        let id = variable(env_vars::GARRICK_STEPD_JOB).or_else(|| variable(env_vars::SLURM_JOB_ID));
        let around = id.and_then(|id| id.parse().ok());
        if around != Some(job) {
            return Self::default();
        }
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        Self {
            door: set(env_vars::GARRICK_STEPD_DOOR).map(PathBuf::from),
            elsewhere: set(env_vars::SLURM_STEPMGR).zip(set(env_vars::GARRICK_STEPMGR_ADDRESS)),
        }
    }
}

/// The job around this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Around {
    /// Its own id.
    pub job: JobId,
    /// The task of a job array that it is.
    pub task: Option<ArrayTask>,
}

impl Around {
    /// Reads the environment.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.parse::<u32>().ok();
        let job = variable(env_vars::SLURM_JOB_ID)?.parse().ok()?;
        let task = number(env_vars::SLURM_ARRAY_JOB_ID)
            .zip(number(env_vars::SLURM_ARRAY_TASK_ID))
            .map(|(job, index)| ArrayTask { array_job: JobId(job), index });
        Some(Self { job, task })
    }

    /// Are these steps of that job?
    pub fn has(&self, steps: &StepsSelector) -> bool {
        let same = match steps.array_task() {
            Some(task) => self.task == Some(task),
            None => steps.job == self.job,
        };
        same && steps.het.is_none()
    }
}

/// How long a step manager is looked for that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// For as long as one that was killed needs to be back.
    Patient,
    /// Once: whoever asks does so again.
    Once,
}

/// Reaches the step manager of `job`. `conf` is the `--conf` option.
pub fn reach(conf: Option<&Path>, console: &Console, job: JobId) -> Answer<DoorClient> {
    look_for(conf, console, job, Look::Patient)
}

/// As [`reach`].
pub fn look_for(conf: Option<&Path>, console: &Console, job: JobId, look: Look) -> Answer<DoorClient> {
    let named = Named::read(job, |name| env::var(name).ok());
    if let Some(door) = &named.door {
        let reached = match look {
            Look::Patient => own_door(door, console),
            Look::Once => connect(door, console, &[]),
        };
        match reached {
            // It may be on its way back. A newer one does not know what is asked.
            Err(ClusterError::Door(error)) if look == Look::Once && error.is_deserted() => return Err(error.into()),
            // The manager named by the environment is gone; there may be a newer one.
            Err(ClusterError::Door(error)) if error.is_absent() => {}
            result => return result,
        }
    }
    let cluster = Cluster::find(conf)?;
    if let Some((node, address)) = named.elsewhere {
        return cluster.connect_through(console.program(), TunnelTo { address, node, job: job.0 });
    }
    find(&cluster, console, job, look)
}

/// Asks the controller for a job's step manager and reaches it.
pub fn find(cluster: &Cluster, console: &Console, job: JobId, look: Look) -> Answer<DoorClient> {
    let place = match look {
        Look::Patient => locate(cluster, console, job)?,
        Look::Once => place(cluster.ask(console.program(), &CommandRequest::LocateStepManager { job })?)?,
    };
    reach_at(cluster, console, &place)
}

/// Reaches the step manager of the job around this process, if that is `job`, at the door that its environment names, and
/// asks nobody else. `None`: no door is named, or nobody is behind it any more.
pub fn own(console: &Console, job: JobId) -> Option<Answer<DoorClient>> {
    let door = Named::read(job, |name| env::var(name).ok()).door?;
    match own_door(&door, console) {
        Err(ClusterError::Door(error)) if error.is_absent() => None,
        result => Some(result),
    }
}

/// Connects to the door that the environment names. A step manager that was killed is started again by its node within
/// moments: a socket that nobody serves is tried again for a while.
fn own_door(door: &Path, console: &Console) -> Answer<DoorClient> {
    let since = Instant::now();
    let mut deserted = false;
    loop {
        match connect(door, console, &[]) {
            Err(ClusterError::Door(error))
                if (error.is_deserted() || (deserted && error.is_absent())) && since.elapsed() < RESTART_TIME =>
            {
                deserted = true;
                std::thread::sleep(RESTART_PAUSE);
            }
            result => return result,
        }
    }
}

/// Asks the controller where a job's step manager is.
pub fn locate(cluster: &Cluster, console: &Console, job: JobId) -> Answer<StepManagerPlace> {
    place(patience::ask(cluster, console, &CommandRequest::LocateStepManager { job })?)
}

fn place(reply: CommandReply) -> Answer<StepManagerPlace> {
    match reply {
        CommandReply::StepManager(place) => Ok(place),
        _ => Err(ClusterError::Unexpected("asked for a step manager's place")),
    }
}

/// Reaches a step manager at a place that is known.
pub fn reach_at(cluster: &Cluster, console: &Console, place: &StepManagerPlace) -> Answer<DoorClient> {
    let door = Path::new(&place.door);
    if is_here(door).unwrap_or(false) {
        return connect(door, console, cluster.trusted());
    }
    let to = TunnelTo { address: place.address.clone(), node: place.node.clone(), job: place.job.0 };
    cluster.connect_through(console.program(), to)
}

/// Connects to a `stepd`'s door, when it belongs to root, to the caller, or to one of `trusted`.
fn connect(door: &Path, console: &Console, trusted: &[u32]) -> Answer<DoorClient> {
    let program = greeting(console.program());
    let client = DoorClient::connect(door, LinkKind::CommandToStepMgr, &program, Some(ANSWER_TIMEOUT))?;
    let peer = client.peer().uid;
    if peer == 0 || peer == nix::unistd::geteuid().as_raw() || trusted.contains(&peer) {
        Ok(client)
    } else {
        let problem = format!("its door {} belongs to uid {peer}, which is not trusted", door.display());
        Err(Refusal::Unreachable("the step manager".to_owned(), problem).into())
    }
}

/// Says that there is no way to the step manager of a job.
pub fn tell(console: &Console, job: JobId, error: &ClusterError) {
    error.details().iter().for_each(|line| console.error(line));
    console.error(format_args!("Unable to confirm allocation for job {job}: {error}"));
    if matches!(error.refusal(), Some(Refusal::InvalidJobId | Refusal::AlreadyDone)) {
        console.info(format_args!("Check SLURM_JOB_ID environment variable. Expired or invalid job {job}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(job: u32, variables: &[(&str, &str)]) -> Named {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Named::read(JobId(job), variable)
    }

    #[test]
    fn the_environment_counts_for_its_own_job_only() {
        let variables = [("SLURM_JOB_ID", "7"), ("GARRICK_STEPD_DOOR", "/run/x.sock")];
        assert_eq!(named(7, &variables).door, Some(PathBuf::from("/run/x.sock")));
        assert_eq!(named(8, &variables), Named::default());
    }

    #[test]
    fn in_another_component_the_step_manager_is_not_the_leaders() {
        let variables = [("SLURM_JOB_ID", "7"), ("GARRICK_STEPD_JOB", "8"), ("GARRICK_STEPD_DOOR", "/run/x.sock")];
        assert_eq!(named(8, &variables).door, Some(PathBuf::from("/run/x.sock")));
        assert_eq!(named(7, &variables), Named::default());
    }

    #[test]
    fn steps_of_the_job_around_are_known_by_both_its_names() {
        let variables = [("SLURM_JOB_ID", "507"), ("SLURM_ARRAY_JOB_ID", "504"), ("SLURM_ARRAY_TASK_ID", "3")];
        let of = |variables: &[(&str, &str)]| {
            Around::read(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        let has = |text: &str| text.parse().is_ok_and(|steps| of(&variables).is_some_and(|a| a.has(&steps)));
        assert!(has("507.1") && has("504_3.[1-4]"));
        assert!(!has("504_2.1") && !has("504.1") && !has("507+1.1"));
        assert_eq!(of(&variables[1..]), None);
        assert_eq!(of(&variables[..1]).and_then(|a| a.task), None);
    }

    #[test]
    fn a_manager_elsewhere_has_a_node_and_an_address() {
        let variables = [("SLURM_JOB_ID", "7"), ("SLURM_STEPMGR", "n1"), ("GARRICK_STEPMGR_ADDRESS", "n1:6818")];
        assert_eq!(named(7, &variables).elsewhere, Some(("n1".to_owned(), "n1:6818".to_owned())));
        assert_eq!(named(7, &variables[..2]).elsewhere, None);
    }
}
