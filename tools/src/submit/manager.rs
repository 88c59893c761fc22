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
    ids::JobId,
    messages::command::{CommandReply, CommandRequest, StepManagerPlace},
    refusal::Refusal,
};
use std::{
    env,
    path::{Path, PathBuf},
};

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
        let around = variable("SLURM_JOB_ID").and_then(|id| id.parse().ok());
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

/// Reaches the step manager of `job`. `conf` is the `--conf` option.
pub fn reach(conf: Option<&Path>, console: &Console, job: JobId) -> Answer<DoorClient> {
    let named = Named::read(job, |name| env::var(name).ok());
    if let Some(door) = &named.door {
        match connect(door, console, &[]) {
            // The manager named by the environment is gone; there may be a newer one.
            Err(ClusterError::Door(error)) if error.is_absent() => {}
            result => return result,
        }
    }
    let cluster = Cluster::find(conf)?;
    if let Some((node, address)) = named.elsewhere {
        return cluster.connect_through(console.program(), TunnelTo { address, node, job: job.0 });
    }
    let place = locate(&cluster, console, job)?;
    reach_at(&cluster, console, &place)
}

/// Asks the controller where a job's step manager is.
pub fn locate(cluster: &Cluster, console: &Console, job: JobId) -> Answer<StepManagerPlace> {
    match patience::ask(cluster, console, &CommandRequest::LocateStepManager { job })? {
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
    fn a_manager_elsewhere_has_a_node_and_an_address() {
        let variables = [("SLURM_JOB_ID", "7"), ("SLURM_STEPMGR", "n1"), ("GARRICK_STEPMGR_ADDRESS", "n1:6818")];
        assert_eq!(named(7, &variables).elsewhere, Some(("n1".to_owned(), "n1:6818".to_owned())));
        assert_eq!(named(7, &variables[..2]).elsewhere, None);
    }
}
