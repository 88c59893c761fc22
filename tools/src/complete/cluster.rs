//! Names that the cluster knows, asked of it. Where nobody answers there are none, and nothing is said.

use super::{line::Candidate, values::Names};
use garrick_asking::{Asker, cluster::Cluster, contact::Contact};
use garrick_model::{
    job_query::JobQuery,
    messages::command::{CommandReply, CommandRequest},
};
use garrick_render::words;
use std::{fmt::Display, fs, process, thread, time::Duration};

/// The cluster of this host.
#[derive(Debug)]
pub struct Live;

/// Says nothing: the user is typing.
#[derive(Debug)]
struct Silent;

impl Asker for Silent {
    fn program(&self) -> &str {
        "garrick complete"
    }

    fn info(&self, _: &dyn Display) {}

    fn warning(&self, _: &dyn Display) {}
}

/// Longest time that a key press may take to ask the cluster: what takes longer ends without an answer.
const PATIENCE: Duration = Duration::from_secs(2);

fn ask(request: &CommandRequest) -> Option<CommandReply> {
    // Not by a signal, of which the shell would tell.
    thread::spawn(|| {
        thread::sleep(PATIENCE);
        process::exit(0);
    });
    Contact::open(&Silent).ok()?.ask(request).ok()
}

fn candidate(text: impl Into<String>, help: impl Into<String>) -> Candidate {
    Candidate { text: text.into(), help: help.into() }
}

impl Names for Live {
    fn partitions(&self) -> Vec<Candidate> {
        match ask(&CommandRequest::ListPartitions) {
            Some(CommandReply::Partitions { partitions, .. }) => partitions
                .iter()
                .map(|p| {
                    candidate(&p.config.name, if p.config.default { "the default partition" } else { "partition" })
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    fn jobs(&self) -> Vec<Candidate> {
        let own = nix::unistd::Uid::current().as_raw();
        let query = JobQuery { users: vec![own], ..JobQuery::live() };
        match ask(&CommandRequest::list_such_jobs(query)) {
            Some(CommandReply::Jobs { jobs, .. }) => jobs
                .iter()
                .map(|job| candidate(job.id.to_string(), format!("{} {}", job.spec.name, words::job_state(job.state))))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn nodes(&self) -> Vec<Candidate> {
        match ask(&CommandRequest::ListNodes) {
            Some(CommandReply::Nodes { nodes, .. }) => nodes.iter().map(|node| candidate(&node.name, "node")).collect(),
            _ => Vec::new(),
        }
    }

    fn users(&self) -> Vec<Candidate> {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        passwd.lines().filter_map(|line| line.split(':').next()).map(|name| candidate(name, "user")).collect()
    }

    fn reservations(&self) -> Vec<Candidate> {
        match ask(&CommandRequest::ListReservations) {
            Some(CommandReply::Reservations { reservations, .. }) => {
                reservations.iter().map(|found| candidate(&found.name, "reservation")).collect()
            }
            _ => Vec::new(),
        }
    }

    fn clusters(&self) -> Vec<Candidate> {
        Cluster::find(None).map(|cluster| vec![candidate(cluster.name(), "cluster")]).unwrap_or_default()
    }
}
