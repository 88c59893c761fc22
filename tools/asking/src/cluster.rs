//! Finds a cluster and talks to it: which `slurm.conf`, which run folder, which door, and one conversation there. A door is
//! trusted only if its peer is root, the cluster's SlurmUser or the caller, since others may be able to write to a run folder.
//! The controller's door is tried first, then the doors of this host's node agents, which pass requests on.

use crate::accounts::User;
use garrick_frame::{DoorClient, DoorError, LinkKind, TunnelTo};
use garrick_model::{
    config::{self, Config, locate},
    doors, env_vars,
    job_query::JobQuery,
    messages::command::{CommandReply, CommandRequest, JobSelector},
    refusal::Refusal,
};
use std::{
    env, fs,
    io::{self, IsTerminal as _},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    time::Duration,
};

/// Time a daemon has for its first answer: Slurm's default MessageTimeout.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Jobs asked for at a time: some MiB.
const JOBS_A_PAGE: u32 = 4_000;

/// A request that got no answer, or a refusal for an answer. Its text is Slurm's sentence; [`ClusterError::details`] has
/// what a user can act on.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No `slurm.conf` says which cluster is meant, or it cannot be used.
    #[error("Unable to determine the cluster: {0}")]
    Unknown(String),
    /// No daemon of the cluster answers on this host.
    #[error("Unable to contact slurm controller (connect failure)")]
    NoDaemon {
        /// Configuration.
        conf: PathBuf,
        /// What was tried, each with its failure.
        tried: Vec<String>,
    },
    /// A conversation that broke off.
    #[error("{}", door_sentence(.0))]
    Door(#[from] DoorError),
    /// Declined.
    #[error(transparent)]
    Refused(Refusal),
    /// The process that serves a step manager's door is not trusted.
    #[error("Unable to contact the step manager: its door {} belongs to uid {uid}, which is not trusted", door.display())]
    Untrusted {
        /// The door.
        door: PathBuf,
        /// Who serves it.
        uid: u32,
    },
    /// An answer that does not belong to the question.
    #[error("Unexpected message received: {0}")]
    Unexpected(&'static str),
}

/// Answer to a question.
pub type Answer<T> = Result<T, ClusterError>;

impl From<Refusal> for ClusterError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl ClusterError {
    /// The refusal, if it is one.
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// The user has too many connections to that daemon: others of his have to end first.
    pub fn is_one_of_too_many(&self) -> bool {
        matches!(self, Self::Door(DoorError::Refused { reason, .. }) if reason == doors::TOO_MANY)
    }

    /// Asking again may help: nobody answered, the answer got lost, or the daemon is busy or has lost its controller.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::NoDaemon { .. } => true,
            Self::Door(DoorError::PathTooLong { .. }) => false,
            Self::Door(error @ DoorError::Refused { .. }) => error.is_turned_away(),
            Self::Door(_) => true,
            Self::Refused(refusal) => matches!(
                refusal,
                Refusal::RetryAfter { .. }
                    | Refusal::Full { .. }
                    | Refusal::ControllerUnreachable
                    | Refusal::Unreachable(..)
            ),
            Self::Unknown(_) | Self::Untrusted { .. } | Self::Unexpected(_) => false,
        }
    }

    /// Lines to print before the sentence: what exactly is wrong. With hints for who sits at a terminal.
    pub fn details(&self) -> Vec<String> {
        match self {
            Self::NoDaemon { tried, .. } if tried.is_empty() => {
                self.hint().filter(|_| at_terminal()).into_iter().collect()
            }
            Self::NoDaemon { tried, .. } => tried.clone(),
            Self::Door(error) => vec![error.to_string()],
            Self::Refused(refusal) => refusal_details(refusal),
            Self::Unknown(_) | Self::Untrusted { .. } | Self::Unexpected(_) => Vec::new(),
        }
    }

    /// What else somebody may want to know.
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoDaemon { conf, .. } => {
                Some(format!("no daemon of the cluster of {} runs on this host", conf.display()))
            }
            _ => None,
        }
    }
}

/// Programs compare what is said with Slurm's words; people get more.
fn at_terminal() -> bool {
    io::stderr().is_terminal()
}

/// What is printed before a refusal's own sentence.
pub fn refusal_details(refusal: &Refusal) -> Vec<String> {
    match refusal {
        Refusal::InvalidPartition(name) => vec![format!("invalid partition specified: {name}")],
        Refusal::InvalidNode(name) if at_terminal() => vec![format!("invalid node specified: {name}")],
        Refusal::NodeConfigUnavailable { detail: Some(detail) } | Refusal::StepImpossible { detail } => {
            vec![detail.clone()]
        }
        Refusal::HostNotTrusted { host } => {
            let way = "do it on the controller's host, or add it to SlurmctldParameters=admin_hosts=";
            vec![format!("host {host} may not speak for root and SlurmUser: {way}{host}")]
        }
        Refusal::BySite { said, .. } => said.clone(),
        Refusal::Said { lines, refusal } => lines.iter().cloned().chain(refusal_details(refusal)).collect(),
        Refusal::InvalidUser(what) if what.contains(' ') => vec![what.clone()],
        Refusal::InvalidFeature(name) if at_terminal() => vec![format!("invalid feature specified: {name}")],
        _ => Vec::new(),
    }
}

fn door_sentence(error: &DoorError) -> &'static str {
    match error {
        DoorError::Timeout { .. } => "Socket timed out on send/recv operation",
        error if error.is_turned_away() => "Unable to contact slurm controller (connect failure)",
        DoorError::Refused { .. } => "Incompatible versions of client and server code",
        DoorError::Frame { .. } => "Unspecified error",
        _ => "Unable to contact slurm controller (connect failure)",
    }
}

/// Where a command looks for its cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    config: Config,
    run_folders: Vec<PathBuf>,
    trusted: Vec<u32>,
}

impl Cluster {
    /// Finds the cluster that is meant; `conf` is the `--conf` option. Reads `slurm.conf`; asks no daemon.
    pub fn find(conf: Option<&Path>) -> Answer<Self> {
        let variable = |name: &str| env::var_os(name);
        let candidates = locate::conf_path(conf, &variable, env::current_exe().ok().as_deref());
        let Some(chosen) = candidates.iter().find(|candidate| candidate.path.exists()) else {
            let tried: Vec<_> = candidates.iter().map(|c| c.path.display().to_string()).collect();
            return Err(ClusterError::Unknown(format!("no configuration at {}", tried.join(", "))));
        };
        let config = config::read(&chosen.path).map_err(|report| {
            let first = report.errors().next().map(ToString::to_string);
            ClusterError::Unknown(first.unwrap_or_else(|| format!("{} cannot be used", chosen.path.display())))
        })?;
        let uid = nix::unistd::geteuid().as_raw();
        let slurm_uid = user_id(&config.slurm_user);
        let mut run_folders = Vec::new();
        for home in homes(&chosen.path, env::var_os(env_vars::GARRICK_HOME).map(PathBuf::from)) {
            for folder in config.run_dirs(uid, slurm_uid, Some(&home)) {
                if !run_folders.contains(&folder) {
                    run_folders.push(folder);
                }
            }
        }
        let mut trusted = vec![0, uid];
        trusted.extend(slurm_uid);
        Ok(Self { config, run_folders, trusted })
    }

    /// Its configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Its configuration file.
    pub fn conf(&self) -> &Path {
        &self.config.path
    }

    /// `ClusterName`.
    pub fn name(&self) -> &str {
        &self.config.cluster_name
    }

    /// Users whose doors are believed.
    pub fn trusted(&self) -> &[u32] {
        &self.trusted
    }

    /// Is this user root or SlurmUser? For what is answered without asking the controller.
    pub fn is_administrator(&self, uid: u32) -> bool {
        uid == 0 || user_id(&self.config.slurm_user) == Some(uid)
    }

    /// Where doors of this cluster can be, were it the embedded one of that home.
    pub fn run_dirs(&self, home: &Path) -> Vec<PathBuf> {
        let uid = nix::unistd::geteuid().as_raw();
        self.config.run_dirs(uid, user_id(&self.config.slurm_user), Some(home))
    }

    /// Connects to the first door that a daemon of this cluster serves. `program` is the command's name.
    pub fn connect(&self, program: &str) -> Answer<Daemon> {
        let (mut tried, mut down) = (Vec::new(), false);
        for door in self.doors() {
            let of_controller = door.file_name().is_some_and(|name| name == doors::CONTROLLER);
            // This is the controller's host and it is down: the node daemons here could only wait for it too.
            if down && !of_controller {
                break;
            }
            let link = LinkKind::CommandToDaemon;
            match DoorClient::connect(&door, link, &greeting(program), Some(ANSWER_TIMEOUT)) {
                Ok(client) if self.trusted.contains(&client.peer().uid) => {
                    return Ok(Daemon { client, token: token() });
                }
                Ok(client) => {
                    tried.push(format!("{} belongs to uid {}, not trusted", door.display(), client.peer().uid))
                }
                Err(error) => {
                    down |= of_controller && error.is_absent() && self.is_left_by_trusted(&door);
                    tried.push(error.to_string());
                }
            }
        }
        Err(ClusterError::NoDaemon { conf: self.conf().to_owned(), tried })
    }

    /// The socket of a door is of somebody who is believed: others may make what looks like a controller that is down.
    fn is_left_by_trusted(&self, door: &Path) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        fs::symlink_metadata(door).is_ok_and(|found| self.trusted.contains(&found.uid()))
    }

    /// Asks once, on a connection of its own. A refusal is an error.
    pub fn ask(&self, program: &str, request: &CommandRequest) -> Answer<CommandReply> {
        self.connect(program)?.ask(request)
    }

    /// Opens a conversation with a step manager on another host, or about the records that its daemon has, through a daemon
    /// of this one.
    pub fn connect_through(&self, link: LinkKind, program: &str, to: TunnelTo) -> Answer<DoorClient> {
        let mut tried = Vec::new();
        for door in self.doors() {
            match DoorClient::connect_tunnel(&door, link, &greeting(program), Some(ANSWER_TIMEOUT), to.clone()) {
                Ok(client) if self.trusted.contains(&client.peer().uid) => return Ok(client),
                Ok(client) => {
                    tried.push(format!("{} belongs to uid {}, not trusted", door.display(), client.peer().uid))
                }
                Err(error) => tried.push(error.to_string()),
            }
        }
        Err(ClusterError::NoDaemon { conf: self.conf().to_owned(), tried })
    }

    /// Doors of daemons of nodes on this host.
    pub fn doors_of_nodes(&self) -> impl Iterator<Item = PathBuf> {
        let of_nodes = |door: &PathBuf| door.file_name().is_some_and(|name| name != doors::CONTROLLER);
        self.doors().into_iter().filter(of_nodes)
    }

    /// The doors on this host, in the order in which they are tried: a controller's before those that pass requests on.
    pub fn doors(&self) -> Vec<PathBuf> {
        let doors = self.doors_in(&self.run_folders);
        // None where the configuration says: its port or host may have been edited under daemons that run.
        if doors.is_empty() { self.doors_in(&self.noted_folders()) } else { doors }
    }

    /// Opens a conversation with the service of accounting: at its own door, or by way of a daemon of this host. Where too many of the
    /// user's are open, that is the error ([`ClusterError::is_one_of_too_many`]).
    pub fn connect_accounting(&self, program: &str) -> Answer<DoorClient> {
        let own = self.run_folders.iter().map(|folder| folder.join(doors::ACCOUNTING)).filter(|door| door.exists());
        let mut tried = Vec::new();
        for door in own.chain(self.doors()) {
            match DoorClient::connect(&door, LinkKind::CommandToAccounts, &greeting(program), Some(ANSWER_TIMEOUT)) {
                Ok(client) if self.trusted.contains(&client.peer().uid) => return Ok(client),
                Ok(client) => {
                    tried.push(format!("{} belongs to uid {}, not trusted", door.display(), client.peer().uid))
                }
                Err(error) => match ClusterError::from(error) {
                    busy if busy.is_one_of_too_many() => return Err(busy),
                    ClusterError::Door(error) => tried.push(error.to_string()),
                    other => return Err(other),
                },
            }
        }
        Err(ClusterError::NoDaemon { conf: self.conf().to_owned(), tried })
    }

    /// Other folders of doors in which this configuration is noted.
    fn noted_folders(&self) -> Vec<PathBuf> {
        let own = std::path::absolute(self.conf()).unwrap_or_else(|_| self.conf().to_owned());
        let around = self.run_folders.iter().filter_map(|folder| folder.parent());
        let mut noted: Vec<PathBuf> = Vec::new();
        for entry in around.filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten() {
            let (folder, note) = (entry.path(), entry.path().join(doors::CONF));
            let ours = self.is_left_by_trusted(&note)
                && fs::read(&note).is_ok_and(|text| text == own.as_os_str().as_encoded_bytes());
            if ours && !noted.contains(&folder) {
                noted.push(folder);
            }
        }
        noted
    }

    fn doors_in(&self, folders: &[PathBuf]) -> Vec<PathBuf> {
        let mut doors: Vec<PathBuf> = Vec::new();
        for folder in folders {
            let Ok(entries) = fs::read_dir(folder) else { continue };
            let mut names: Vec<String> = entries
                .flatten()
                .filter_map(|e| e.file_name().into_string().ok())
                .filter(|n| doors::is_of_daemon(n))
                .collect();
            names.sort();
            doors.extend(names.into_iter().map(|name| folder.join(name)));
        }
        doors.sort_by_key(|door| door.file_name().is_none_or(|name| name != doors::CONTROLLER));
        doors
    }
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Daemon {
    client: DoorClient,
    /// Whoever asks is the user whom it names (`SLURM_JWT`).
    token: Option<String>,
}

/// The token that the environment names.
fn token() -> Option<String> {
    env::var(env_vars::SLURM_JWT).ok().filter(|token| !token.is_empty())
}

impl Daemon {
    /// Asks and waits for the one answer. A refusal is an error.
    pub fn ask(&mut self, request: &CommandRequest) -> Answer<CommandReply> {
        if let CommandRequest::ListJobs { jobs, which, after: None, most: None, hide } = request {
            return self.list_jobs(jobs, which, *hide);
        }
        self.send(request)?;
        self.recv()
    }

    /// Page by page: a frame does not hold a hundred thousand jobs.
    fn list_jobs(&mut self, selectors: &[JobSelector], which: &JobQuery, hide: bool) -> Answer<CommandReply> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (jobs, which) = (selectors.to_vec(), which.clone());
            self.send(&CommandRequest::ListJobs { jobs, which, after, most: Some(JOBS_A_PAGE), hide })?;
            match self.recv()? {
                CommandReply::Jobs { jobs, more: true, .. } if !jobs.is_empty() => {
                    after = jobs.last().map(|view| view.id);
                    all.extend(jobs);
                }
                CommandReply::Jobs { jobs, at, .. } => {
                    all.extend(jobs);
                    return Ok(CommandReply::Jobs { jobs: all, at, more: false });
                }
                other => return Ok(other),
            }
        }
    }

    /// Asks without waiting.
    pub fn send(&mut self, request: &CommandRequest) -> Answer<()> {
        match &self.token {
            // A daemon is asked about itself, whoever asks.
            Some(token) if !matches!(request, CommandRequest::AskRun { .. } | CommandRequest::Ping) => {
                let (token, request) = (token.clone(), Box::new(request.clone()));
                Ok(self.client.send(&CommandRequest::WithToken { token, request })?)
            }
            _ => Ok(self.client.send(request)?),
        }
    }

    /// Waits for an answer.
    pub fn recv(&mut self) -> Answer<CommandReply> {
        checked(self.client.recv()?)
    }

    /// An answer, if one is here.
    pub fn try_next(&mut self) -> Answer<Option<CommandReply>> {
        self.client.try_next()?.map(checked).transpose()
    }

    /// Time for each answer from here on; `None`: as long as it takes (streams, waiting for a job).
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Answer<()> {
        Ok(self.client.set_timeout(timeout)?)
    }
}

impl AsFd for Daemon {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.as_fd()
    }
}

fn checked(reply: CommandReply) -> Answer<CommandReply> {
    match reply {
        CommandReply::Refused(refusal) => Err(refusal.into()),
        reply => Ok(reply),
    }
}

/// Opens a conversation at a daemon's door, if it answers and belongs to one of `trusted`.
pub fn connect_at(door: &Path, link: LinkKind, program: &str, trusted: &[u32]) -> Option<DoorClient> {
    let client = DoorClient::connect(door, link, &greeting(program), Some(ANSWER_TIMEOUT)).ok()?;
    trusted.contains(&client.peer().uid).then_some(client)
}

/// What a command calls itself to a daemon.
pub fn greeting(program: &str) -> String {
    format!("{program} {}", env!("CARGO_PKG_VERSION"))
}

/// Folders that may be the home of the cluster: the one that is named, and `X` where the configuration is
/// `X/etc/slurm.conf`, since `SLURM_CONF` alone may name a cluster that lives in a home.
fn homes(conf: &Path, named: Option<PathBuf>) -> Vec<PathBuf> {
    let around = conf.parent().filter(|etc| etc.ends_with("etc")).and_then(Path::parent).map(Path::to_owned);
    // Daemons know their home by its absolute path.
    let named = named.map(|home| std::path::absolute(&home).unwrap_or(home));
    let mut homes: Vec<PathBuf> = named.into_iter().chain(around).collect();
    if homes.is_empty() {
        // No home gives no folder of its own; root's folder and the user's are still looked at.
        homes.push(PathBuf::new());
    }
    homes
}

/// A user's id, by name or number.
pub fn user_id(user: &str) -> Option<u32> {
    if let Ok(uid) = user.parse() {
        return Some(uid);
    }
    User::by_name(user).map(|user| user.uid)
}

/// True when there is a socket at that path, so that it can be on this host.
pub fn is_here(door: &Path) -> io::Result<bool> {
    use std::os::unix::fs::FileTypeExt as _;
    match fs::metadata(door) {
        Ok(found) => Ok(found.file_type().is_socket()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_in_a_home_names_that_home() {
        assert_eq!(homes(Path::new("/g/etc/slurm.conf"), None), [PathBuf::from("/g")]);
        assert_eq!(homes(Path::new("/x/slurm.conf"), None), [PathBuf::new()]);
        assert_eq!(homes(Path::new("/g/etc/slurm.conf"), Some("/h".into())), [PathBuf::from("/h"), "/g".into()]);
    }

    #[test]
    fn refusals_with_details_say_them_first() {
        assert_eq!(
            ClusterError::from(Refusal::InvalidPartition("nosuch".to_owned())).details(),
            ["invalid partition specified: nosuch"]
        );
        let refusal =
            Refusal::NodeConfigUnavailable { detail: Some("Memory specification can not be satisfied".to_owned()) };
        assert_eq!(refusal_details(&refusal), ["Memory specification can not be satisfied"]);
        assert_eq!(refusal.to_string(), "Requested node configuration is not available");
        assert!(refusal_details(&Refusal::AccessDenied).is_empty());
    }

    #[test]
    fn a_dead_controller_is_worded_as_slurm_words_it() {
        let error = ClusterError::NoDaemon { conf: "/etc/slurm.conf".into(), tried: Vec::new() };
        assert_eq!(error.to_string(), "Unable to contact slurm controller (connect failure)");
        assert!(error.is_passing());
        assert_eq!(error.hint().as_slice(), ["no daemon of the cluster of /etc/slurm.conf runs on this host"]);
    }
}
