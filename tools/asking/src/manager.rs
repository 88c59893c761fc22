//! Finds and connects to a job's step manager. Inside a job the environment names its door, so that steps need neither the
//! controller nor `slurm.conf`. Otherwise the controller says where it is: a door on this host, or a node to which a daemon of
//! this host relays.

use crate::{
    Asker,
    cluster::{ANSWER_TIMEOUT, Answer, Cluster, ClusterError, greeting, is_here},
    patience::{self, Word},
};
use garrick_frame::{DoorClient, LinkKind, TunnelTo};
use garrick_model::{
    doors, env_vars,
    ids::{ArrayTask, JobId, Sluid},
    messages::command::{CommandReply, CommandRequest, RunStanding, StepManagerPlace},
    refusal::Refusal,
    step_selector::StepsSelector,
};
use std::{
    env, fmt,
    path::{Path, PathBuf},
    time::Duration,
};

/// For an agent's answer, which it has at hand. One that takes longer is asked again before it matters.
const AGENT_ANSWER: Duration = Duration::from_secs(3);

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

/// The way to a job's step manager. One that was taken says nothing of the next time: the step manager may be away, and the
/// job's run over. [`Search`](crate::search::Search) takes it again and again.
#[derive(Clone, Debug)]
pub struct Way {
    job: JobId,
    program: String,
    cluster: Whose,
    named: Named,
    /// The run around this process.
    run: Option<Sluid>,
    /// As the controller said.
    place: Option<StepManagerPlace>,
}

/// The cluster that may be asked.
#[derive(Clone, Debug)]
enum Whose {
    /// The one that is meant; it is looked up when it is needed.
    Meant {
        conf: Option<PathBuf>,
    },
    Known(Box<Cluster>),
    /// None: only who is named by the environment.
    Nobodys,
}

/// What others say of a run whose step manager does not answer.
#[derive(Debug)]
pub enum Told {
    /// Looking again may help.
    Word(Word),
    /// Its agent says that it ended, or that it is given up.
    Over(RunEnd),
    /// The controller's words, or what keeps us from asking it: looking again does not help.
    No(ClusterError),
}

/// How a run ended under a command that waited for its step manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It is over, or the job runs once more, which is another run.
    Over,
    /// Its step manager died too often: it is not started again.
    GivenUp,
}

impl fmt::Display for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Over => "the run is over",
            Self::GivenUp => "the run was given up: its step manager is not started again",
        })
    }
}

impl Way {
    /// As the environment names it, where that is about the job, else by the controller. `conf` is the `--conf` option.
    pub fn new(conf: Option<&Path>, asker: &dyn Asker, job: JobId) -> Self {
        let variable = |name: &str| env::var(name).ok();
        Self {
            job,
            program: asker.program().to_owned(),
            cluster: Whose::Meant { conf: conf.map(Path::to_owned) },
            named: Named::read(job, variable),
            run: variable(env_vars::SLURM_JOB_SLUID).and_then(|text| text.parse().ok()),
            place: None,
        }
    }

    /// By the controller alone.
    pub fn in_cluster(cluster: &Cluster, asker: &dyn Asker, job: JobId) -> Self {
        let cluster = Whose::Known(Box::new(cluster.clone()));
        Self { cluster, named: Named::default(), run: None, ..Self::new(None, asker, job) }
    }

    /// To the door that the environment names, if it names one for that job; no other door is asked.
    pub fn of_own_job(asker: &dyn Asker, job: JobId) -> Option<Self> {
        let way = Self::new(None, asker, job);
        way.named.door.is_some().then_some(Self { cluster: Whose::Nobodys, ..way })
    }

    /// Its job.
    pub const fn job(&self) -> JobId {
        self.job
    }

    /// A door on this host, which is reached at once or not at all.
    pub fn is_short(&self) -> bool {
        self.named.door.is_some()
    }

    /// Somebody said that there is a run at its end: the environment, or the controller that gave the job its nodes.
    pub fn is_promised(&self) -> bool {
        self.is_short() || self.named.elsewhere.is_some() || matches!(self.cluster, Whose::Known(_))
    }

    /// Takes it once. Each step on it may take `limit`.
    pub fn take(&mut self, limit: Duration) -> Answer<DoorClient> {
        if let Some(place) = &self.place {
            return reach_at(&self.cluster()?, &self.program, place);
        }
        if let Some(door) = &self.named.door {
            return connect(door, LinkKind::CommandToStepMgr, &self.program, &[], limit);
        }
        let cluster = self.cluster()?;
        if let Some((node, address)) = self.named.elsewhere.clone() {
            let to = TunnelTo { address, node, job: self.job.0 };
            return cluster.connect_through(LinkKind::CommandToStepMgr, &self.program, to);
        }
        let place = self.locate(&cluster)?;
        reach_at(&cluster, &self.program, self.place.insert(place))
    }

    /// It led nowhere: is there still a run at its end? `met`: its step manager was spoken to.
    pub fn ask_around(&mut self, met: bool) -> Told {
        let agents = match self.ask_agent() {
            Some(RunStanding::Here) => return Told::Word(Word::GoesOn),
            Some(RunStanding::StartsAgain) => return Told::Word(Word::StartsAgain),
            Some(RunStanding::GivenUp) => return Told::Over(RunEnd::GivenUp),
            Some(RunStanding::Over) if met => return Told::Over(RunEnd::Over),
            other => other,
        };
        if matches!(self.cluster, Whose::Nobodys) {
            return agents.map_or(Told::Word(Word::Silence), |_| Told::Over(RunEnd::Over));
        }
        match self.cluster().and_then(|cluster| self.locate(&cluster)) {
            Ok(place) => self.located(place, met, agents.is_some()),
            // Busy, and there.
            Err(error) if matches!(error.refusal(), Some(Refusal::RetryAfter { .. })) => Told::Word(Word::GoesOn),
            // Without `slurm.conf` there is nobody to be asked but those here.
            Err(error) if error.is_passing() || self.is_short() && matches!(error, ClusterError::Unknown(_)) => {
                Told::Word(Word::Silence)
            }
            // It waits to run once more.
            Err(error) if met && matches!(error.refusal(), Some(Refusal::JobPending)) => Told::Over(RunEnd::Over),
            Err(error) => Told::No(error),
        }
    }

    /// The controller says where it is. `gone`: it is not where the environment says.
    fn located(&mut self, place: StepManagerPlace, met: bool, gone: bool) -> Told {
        let before = self.place.as_ref().map(|place| Path::new(&place.door)).or(self.named.door.as_deref());
        let same = before.is_none_or(|door| door == Path::new(&place.door));
        // On another node of the job the environment names a door of that node.
        let elsewhere = !same && (gone || self.place.is_some());
        if elsewhere && met {
            return Told::Over(RunEnd::Over);
        }
        if elsewhere || self.place.is_some() {
            (self.named, self.place) = (Named::default(), Some(place));
        }
        Told::Word(Word::GoesOn)
    }

    /// Asks the agent of this host that looks after the run around this process.
    fn ask_agent(&self) -> Option<RunStanding> {
        let agent = doors::of_agent_beside(self.named.door.as_ref()?)?;
        let request = CommandRequest::AskRun { job: self.job, sluid: self.run? };
        let ask = || -> Answer<CommandReply> {
            let mut door = connect(&agent, LinkKind::CommandToDaemon, &self.program, &[], AGENT_ANSWER)?;
            door.send(&request)?;
            Ok(door.recv()?)
        };
        match ask() {
            Ok(CommandReply::Run(standing)) => Some(standing),
            // One that does not know the question, or does not answer it, says nothing.
            Ok(_) | Err(_) => None,
        }
    }

    fn cluster(&self) -> Answer<Cluster> {
        match &self.cluster {
            Whose::Meant { conf } => Cluster::find(conf.as_deref()),
            Whose::Known(cluster) => Ok(Cluster::clone(cluster)),
            Whose::Nobodys => Err(ClusterError::Unknown("no cluster is asked".to_owned())),
        }
    }

    fn locate(&self, cluster: &Cluster) -> Answer<StepManagerPlace> {
        place(cluster.ask(&self.program, &CommandRequest::LocateStepManager { job: self.job })?)
    }
}

/// Asks the controller where a job's step manager is.
pub fn locate(cluster: &Cluster, asker: &dyn Asker, job: JobId) -> Answer<StepManagerPlace> {
    place(patience::ask(cluster, asker, &CommandRequest::LocateStepManager { job })?)
}

fn place(reply: CommandReply) -> Answer<StepManagerPlace> {
    match reply {
        CommandReply::StepManager(place) => Ok(place),
        _ => Err(ClusterError::Unexpected("asked for a step manager's place")),
    }
}

/// Reaches a step manager at a place that is known.
fn reach_at(cluster: &Cluster, program: &str, place: &StepManagerPlace) -> Answer<DoorClient> {
    let door = Path::new(&place.door);
    if is_here(door).unwrap_or(false) {
        return connect(door, LinkKind::CommandToStepMgr, program, cluster.trusted(), ANSWER_TIMEOUT);
    }
    let to = TunnelTo { address: place.address.clone(), node: place.node.clone(), job: place.job.0 };
    cluster.connect_through(LinkKind::CommandToStepMgr, program, to)
}

/// Connects to a daemon's door, when it belongs to root, to the caller, or to one of `trusted`.
fn connect(door: &Path, link: LinkKind, program: &str, trusted: &[u32], limit: Duration) -> Answer<DoorClient> {
    let mut client = DoorClient::connect(door, link, &greeting(program), Some(limit))?;
    let peer = client.peer().uid;
    if peer != 0 && peer != nix::unistd::geteuid().as_raw() && !trusted.contains(&peer) {
        return Err(ClusterError::Untrusted { door: door.to_owned(), uid: peer });
    }
    if limit < ANSWER_TIMEOUT && link == LinkKind::CommandToStepMgr {
        client.set_timeout(Some(ANSWER_TIMEOUT))?;
    }
    Ok(client)
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
