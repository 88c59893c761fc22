//! One command's contact with its cluster: found, connected, and asked as often as needed.

use crate::{
    Asker,
    cluster::{Answer, Cluster, ClusterError, Daemon},
};
use garrick_model::{
    config::{self, PrivateKind},
    ids::JobId,
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
    reservation::Reservation,
    time::Timestamp,
    view::{JobView, NodeView, StepView},
};
use nix::unistd::geteuid;
use std::sync::Arc;

/// A request that failed.
pub type AskError = ClusterError;
/// What came of asking.
pub type Asked<T> = Answer<T>;

/// A cluster and a connection to one of its daemons.
pub struct Contact {
    cluster: Cluster,
    daemon: Daemon,
}

impl Contact {
    /// Does the site keep some of that from this user (`PrivateData`)?
    pub fn keeps_private(&self, any_of: &[PrivateKind]) -> bool {
        let private = &self.cluster.config().private_data;
        any_of.iter().any(|kind| private.has(*kind)) && !self.cluster.is_administrator(geteuid().as_raw())
    }

    /// Finds the cluster that is meant and connects.
    pub fn open(asker: &dyn Asker) -> Asked<Self> {
        let cluster = Cluster::find(None)?;
        let daemon = cluster.connect(asker.program())?;
        Ok(Self { cluster, daemon })
    }

    /// The cluster.
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// `ClusterName`.
    pub fn name(&self) -> &str {
        self.cluster.name()
    }

    /// Asks, and waits for the answer. A refusal is an error.
    pub fn ask(&mut self, request: &CommandRequest) -> Asked<CommandReply> {
        self.daemon.ask(request)
    }

    /// The connection, for streams of answers.
    pub fn daemon(&mut self) -> &mut Daemon {
        &mut self.daemon
    }

    /// An answer that does not belong to the question.
    pub fn unexpected(&self, reply: &CommandReply) -> AskError {
        ClusterError::Unexpected(match reply {
            CommandReply::Pong { .. } => "Pong",
            CommandReply::Statistics(_) => "Statistics",
            CommandReply::Submitted { .. } => "Submitted",
            CommandReply::Said { .. } => "Said",
            CommandReply::WouldStart { .. } => "WouldStart",
            CommandReply::Job(_) => "Job",
            CommandReply::Notice(_) => "Notice",
            CommandReply::Jobs { .. } => "Jobs",
            CommandReply::Nodes { .. } => "Nodes",
            CommandReply::Partitions { .. } => "Partitions",
            CommandReply::Steps { .. } => "Steps",
            CommandReply::Priorities { .. } => "Priorities",
            CommandReply::Shares(_) => "Shares",
            CommandReply::Licenses { .. } => "Licenses",
            CommandReply::Topologies { .. } => "Topologies",
            CommandReply::Reservations { .. } => "Reservations",
            CommandReply::ReservationCreated(_) => "ReservationCreated",
            CommandReply::Outlook(_) => "Outlook",
            CommandReply::NodesNamed(_) => "NodesNamed",
            CommandReply::Config { .. } => "Config",
            CommandReply::Script(_) => "Script",
            CommandReply::StepManager(_) => "StepManager",
            CommandReply::RecordPlaces { .. } => "RecordPlaces",
            CommandReply::Run(_) => "Run",
            CommandReply::PerJob(_) => "PerJob",
            CommandReply::Done => "Done",
            CommandReply::Token(_) => "Token",
            CommandReply::Certs { .. } => "certificates",
            CommandReply::TraceRecords(_) => "TraceRecords",
            CommandReply::MessageCounts(_) => "MessageCounts",
            CommandReply::Daemons(_) => "Daemons",
            CommandReply::End => "End",
            CommandReply::Refused(_) => "Refused",
            CommandReply::Triggers(_) => "Triggers",
            CommandReply::Crontab(_) => "Crontab",
            CommandReply::CrontabInstalled { .. } => "CrontabInstalled",
            CommandReply::CrontabWrong { .. } => "CrontabWrong",
        })
    }
}

/// Nodes in place of host list functions (`feature{gpu}`, `switch{s1}`), which only the controller can resolve.
pub fn named_nodes(cluster: &mut Contact, names: &[String]) -> Asked<Vec<String>> {
    if names.iter().all(|name| config::function(name).is_none()) {
        return Ok(names.to_vec());
    }
    match cluster.ask(&CommandRequest::NameNodes(names.to_vec()))? {
        CommandReply::NodesNamed(nodes) => Ok(nodes),
        other => Err(cluster.unexpected(&other)),
    }
}

/// The same for what was typed, before anything else is asked; no daemon is asked if there is no function.
pub fn resolve_nodes(names: &mut Vec<String>, asker: &dyn Asker) -> Asked<()> {
    if names.iter().any(|name| config::function(name).is_some()) {
        *names = named_nodes(&mut Contact::open(asker)?, names)?;
    }
    Ok(())
}

/// Jobs, as [`CommandRequest::ListJobs`] asks for them. Where some are named and none of them is known, that is refused.
pub fn jobs(cluster: &mut Contact, request: &CommandRequest) -> Asked<Vec<Arc<JobView>>> {
    match cluster.ask(request)? {
        CommandReply::Jobs { jobs, .. } => Ok(jobs),
        other => Err(cluster.unexpected(&other)),
    }
}

/// The same; none where none of those that are named is known.
pub fn known_jobs(cluster: &mut Contact, request: &CommandRequest) -> Asked<Vec<Arc<JobView>>> {
    match jobs(cluster, request) {
        Err(AskError::Refused(Refusal::InvalidJobId)) => Ok(Vec::new()),
        answer => answer,
    }
}

/// Steps of a job that are not over.
pub fn live_steps(cluster: &mut Contact, job: JobId) -> Asked<Vec<StepView>> {
    match cluster.ask(&CommandRequest::ListSteps { job: Some(job), ended: false })? {
        CommandReply::Steps { steps, .. } => Ok(steps),
        other => Err(cluster.unexpected(&other)),
    }
}

/// All nodes that the caller may see.
pub fn nodes(cluster: &mut Contact) -> Asked<Vec<Arc<NodeView>>> {
    match cluster.ask(&CommandRequest::ListNodes)? {
        CommandReply::Nodes { nodes, .. } => Ok(nodes),
        other => Err(cluster.unexpected(&other)),
    }
}

/// All reservations, and when they were asked for.
pub fn reservations(cluster: &mut Contact) -> Asked<(Vec<Arc<Reservation>>, Timestamp)> {
    match cluster.ask(&CommandRequest::ListReservations)? {
        CommandReply::Reservations { reservations, at } => Ok((reservations, at)),
        other => Err(cluster.unexpected(&other)),
    }
}
