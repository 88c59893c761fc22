//! What a job without reserved resources waits for: what its reason means in the current state, what would change it, and when.

use super::reserving::Reserving;
use garrick_asking::contact::{self, Asked, Contact, reservations};
use garrick_model::{
    config::PrivateKind,
    hostlist,
    messages::command::{CommandReply, CommandRequest},
    reservation::Reservation,
    spec::DependencyKind,
    state::{JobState, NodeBase, Reason},
    time::{TimeLimit, Timestamp},
    view::{JobView, NodeView, PartitionView},
};
use garrick_render::{node_state, words};
use jiff::tz::TimeZone;
use std::{collections::BTreeSet, sync::Arc};

/// So many jobs or nodes are named at most.
const MOST_NAMED: usize = 5;

/// The cluster around the jobs that were asked about.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// All jobs.
    pub jobs: Vec<Arc<JobView>>,
    /// All nodes.
    pub nodes: Vec<Arc<NodeView>>,
    /// Partitions, hidden ones too.
    pub partitions: Vec<Arc<PartitionView>>,
    /// Reservations.
    pub reservations: Vec<Arc<Reservation>>,
    /// For whom plans reserve room.
    pub reserving: Reserving,
    /// When it was so.
    pub at: Timestamp,
    /// The site does not show it to this user.
    pub private: bool,
}

/// Is what stands in a job's way kept from this user?
fn keeps_private(cluster: &Contact) -> bool {
    cluster.keeps_private(&[PrivateKind::Jobs, PrivateKind::Nodes, PrivateKind::Partitions])
}

impl Around {
    /// Asks for all of it.
    pub fn ask(cluster: &mut Contact) -> Asked<Self> {
        if keeps_private(cluster) {
            return Ok(Self { private: true, ..Self::default() });
        }
        let jobs = contact::jobs(cluster, &CommandRequest::list_jobs(Vec::new()))?;
        let Self { partitions, nodes, .. } = Self::nodes_alone(cluster)?;
        let (reservations, at) = reservations(cluster)?;
        let reserving = match cluster.ask(&CommandRequest::ShowConfig)? {
            CommandReply::Config { pairs, .. } => Reserving::of(&pairs),
            other => return Err(cluster.unexpected(&other)),
        };
        Ok(Self { jobs, nodes, partitions, reservations, reserving, at, private: false })
    }

    /// Asks for nodes and partitions.
    pub fn nodes_alone(cluster: &mut Contact) -> Asked<Self> {
        if keeps_private(cluster) {
            return Ok(Self { private: true, ..Self::default() });
        }
        match cluster.ask(&CommandRequest::ListPartitions)? {
            CommandReply::Partitions { partitions, nodes, .. } => Ok(Self { partitions, nodes, ..Self::default() }),
            other => Err(cluster.unexpected(&other)),
        }
    }

    /// Partitions of the job.
    fn own<'a>(&'a self, job: &'a JobView) -> impl Iterator<Item = &'a PartitionView> {
        job.partitions.iter().filter_map(|name| self.partitions.iter().find(|p| p.config.name == *name)).map(|p| &**p)
    }

    /// Their nodes.
    pub(super) fn nodes_of<'a>(&'a self, job: &'a JobView) -> impl Iterator<Item = &'a NodeView> {
        let own: BTreeSet<_> = self.own(job).flat_map(|p| p.nodes.iter().copied()).collect();
        self.nodes.iter().filter(move |node| own.contains(&node.index)).map(|node| &**node)
    }
}

/// What a job waits for that has no room reserved.
pub fn grounds(job: &JobView, around: &Around, zone: &TimeZone) -> String {
    let own = job.partitions.join(",");
    match &job.reason {
        _ if job.priority == 0 => held(job),
        Reason::JobHeldUser | Reason::JobHeldAdmin | Reason::JobHoldMaxRequeue => held(job),
        Reason::Dependency => depends(job, around),
        Reason::DependencyNeverSatisfied => format!(
            "what it depends on can never be fulfilled any more: {}; {} lets it run all the same, \"scancel {}\" gives it up",
            job.dependencies,
            update(job, "Dependency="),
            job.id
        ),
        Reason::BeginTime => {
            let begin = job.eligible_time.map_or_else(String::new, |at| format!(" at {}", at.text(zone)));
            format!("its time comes{begin}")
        }
        Reason::JobArrayTaskLimit => task_limit(job),
        reason if reason.is_unavailable_nodes() => out_of_service(job, reason, around),
        Reason::PartitionDown | Reason::PartitionInactive => partition_down(job, around),
        Reason::PartitionTimeLimit => time_limit(job, around),
        Reason::PartitionNodeLimit => node_limit(job, around),
        Reason::PartitionConfig => cpu_limit(job, around),
        Reason::AccountNotAllowed => account_refused(job),
        Reason::QosNotAllowed => qos_refused(job),
        Reason::BadConstraints => format!(
            "no nodes of {own} have what it asks for any more, however idle they are: nodes, features, limits or the job's \
             own request changed since it was submitted; \"scontrol show job {}\" says what it asks for",
            job.id
        ),
        Reason::Cleaning => {
            "it was requeued, and its earlier run may not be over everywhere: a node that was given up has not said so; then it is \
             looked at again"
                .to_owned()
        }
        Reason::None => "no plan has looked at it yet; the next one does".to_owned(),
        Reason::Priority | Reason::Resources | Reason::Fragmentation => crowded(job, around),
        Reason::Other(text) if text == "Licenses" => licenses(job),
        Reason::Other(text) if text == "Reservation" => reservation(job, around, zone),
        Reason::Other(text) if text == "ReservationDeleted" => format!(
            "reservation {} is not there any more; {} lets it wait without one",
            job.spec.reservations.join(","),
            update(job, "ReservationName=")
        ),
        Reason::Other(text) if text.starts_with("ReqNodeNotAvail") && !around.private => kept(job, around, zone),
        _ => crowded(job, around),
    }
}

fn update(job: &JobView, what: &str) -> String {
    format!("\"scontrol update JobId={} {what}\"", job.id)
}

fn task_limit(job: &JobView) -> String {
    let limit = job.spec.array.as_ref().and_then(|array| array.limit);
    let most = limit.map_or_else(String::new, |limit| format!(" ({limit})"));
    let instead = update(job, "ArrayTaskThrottle=N");
    format!(
        "as many tasks of its array run as it allows{most}; when one ends the next may start, and {instead} allows more"
    )
}

fn partition_down(job: &JobView, around: &Around) -> String {
    let states: Vec<String> = around.own(job).map(|p| format!("{} is {}", p.config.name, p.state)).collect();
    let own = job.partitions.join(",");
    let first = own.split(',').next().unwrap_or_default();
    let state = if states.is_empty() { String::new() } else { format!(" ({})", states.join(", ")) };
    format!(
        "nothing starts in {own}{state} until an administrator sets \"scontrol update PartitionName={first} State=UP\""
    )
}

fn account_refused(job: &JobView) -> String {
    let account = job.spec.account.as_deref().map_or_else(|| "no account".to_owned(), |a| format!("account {a}"));
    let (own, other) = (job.partitions.join(","), update(job, "Account="));
    format!("{own} takes no jobs with {account}; {other} gives it another one")
}

fn qos_refused(job: &JobView) -> String {
    let qos = job.spec.qos.as_deref().map_or_else(|| "no QOS".to_owned(), |qos| format!("QOS {qos}"));
    let own = job.partitions.join(",");
    let other = update(job, "QOS=");
    format!("{own} takes no jobs with {qos}; \"scontrol show partition\" says which it takes, {other} gives it another")
}

fn licenses(job: &JobView) -> String {
    let what = job.spec.licenses.as_deref().unwrap_or_default();
    format!(
        "not enough of its licenses ({what}) is free, and nobody knows until when; \"scontrol show licenses\" says how many are in use"
    )
}

fn held(job: &JobView) -> String {
    let who = match job.reason {
        Reason::JobHeldUser => "it is held by its user",
        Reason::JobHeldAdmin => "it is held by an administrator",
        Reason::JobHoldMaxRequeue => "it is held, since it went back to the queue too often (MaxBatchRequeue)",
        _ => "it is held",
    };
    let failed = job.system_comment.as_ref();
    let failed = failed.map_or_else(String::new, |c| format!(", since its last run could not be started ({c})"));
    let whose = if job.reason == Reason::JobHoldMaxRequeue { "an administrator's " } else { "" };
    format!("{who}{failed}; {whose}\"scontrol release {}\" lets it go", job.id)
}

/// Conditions that are not fulfilled, and how it stands with the jobs that they are about.
fn depends(job: &JobView, around: &Around) -> String {
    let mut states: Vec<String> = Vec::new();
    for one in &job.dependencies.list {
        match one.job {
            Some(id) => {
                let known = around.jobs.iter().find(|other| other.id == id);
                states.extend(known.map(|other| match other.state.waits() {
                    true => format!("job {id} is {} ({})", words::job_state(other.state), words::reason(&other.reason)),
                    false => format!("job {id} is {}", words::job_state(other.state)),
                }));
            }
            None if one.kind == DependencyKind::Singleton => {
                let same = |other: &&Arc<JobView>| {
                    let active =
                        !matches!(other.state, JobState::Completed) && other.end_time.is_none_or(|end| end > around.at);
                    other.id < job.id && other.uid == job.uid && other.spec.name == job.spec.name && active
                };
                states.extend(
                    around
                        .jobs
                        .iter()
                        .find(same)
                        .map(|other| format!("job {} is {}", other.id, words::job_state(other.state))),
                );
            }
            None => {}
        }
    }
    states.dedup();
    let stands = if states.is_empty() { String::new() } else { format!("; {}", states.join(", ")) };
    format!("what it depends on is not fulfilled yet: {}{stands}", job.dependencies)
}

/// Nodes that it needs and that are not in service, with why.
fn out_of_service(job: &JobView, reason: &Reason, around: &Around) -> String {
    let named = match reason {
        Reason::Other(text) => text.split_once(':').and_then(|(_, names)| hostlist::expand(names).ok()),
        _ => None,
    };
    let is_out = |node: &NodeView| node.base != NodeBase::Up || node.flags.is_held_back() || node.flags.is_silent();
    let out: Vec<&NodeView> = match &named {
        Some(names) => around.nodes.iter().map(|n| &**n).filter(|node| names.contains(&node.name)).collect(),
        None => around.nodes_of(job).filter(|node| is_out(node)).collect(),
    };
    let told = |node: &&NodeView| {
        let why = node.reason.as_ref().map_or_else(String::new, |reason| format!(": {}", reason.text));
        format!("{} is {}{why}", node.name, node_state::word(node).long)
    };
    let mut states: Vec<String> = out.iter().take(MOST_NAMED).map(told).collect();
    if out.len() > MOST_NAMED {
        states.push(format!("{} more", out.len() - MOST_NAMED));
    }
    let states = if states.is_empty() { String::new() } else { format!(" ({})", states.join("; ")) };
    let what = if named.is_some() {
        "it needs nodes that are"
    } else {
        "so many nodes that the others are too few for it are"
    };
    format!("{what} out of service{states}; it goes on when they are back, \"sinfo -R\" says more")
}

fn time_limit(job: &JobView, around: &Around) -> String {
    let limits: Vec<String> =
        around.own(job).map(|p| format!("{} of {}", p.config.max_time.scontrol_text(), p.config.name)).collect();
    let limits = if limits.is_empty() { "what its partition allows".to_owned() } else { limits.join(", ") };
    format!(
        "its time limit {} is above {limits}; \"scontrol update JobId={} TimeLimit=\" lowers it",
        job.time_limit.scontrol_text(),
        job.id
    )
}

fn node_limit(job: &JobView, around: &Around) -> String {
    let of = |p: &PartitionView| {
        let (name, has) = (&p.config.name, p.nodes.len());
        match p.config.max_nodes {
            Some(most) if job.min_nodes > most => format!("{name} gives a job {most} at most (MaxNodes)"),
            _ if job.max_nodes < p.config.min_nodes => {
                format!("{name} gives a job {} at least (MinNodes)", p.config.min_nodes)
            }
            _ => format!("{name} has {has}"),
        }
    };
    let limits: Vec<String> = around.own(job).map(of).collect();
    let nodes = if job.min_nodes == 1 { "node" } else { "nodes" };
    format!(
        "it asks for {} {nodes}, and {}; \"scontrol update JobId={} NumNodes=\" changes that",
        job.min_nodes,
        limits.join(", "),
        job.id
    )
}

fn cpu_limit(job: &JobView, around: &Around) -> String {
    let cpus = |p: &PartitionView| -> u64 {
        let members = around.nodes.iter().filter(|node| p.nodes.binary_search(&node.index).is_ok());
        members.map(|node| u64::from(node.shape.job_cpu_count())).sum()
    };
    let have: Vec<String> = around.own(job).map(|p| format!("{} has {}", p.config.name, cpus(p))).collect();
    format!(
        "it asks for {} CPUs, and {}; \"scontrol update JobId={} NumTasks=\" changes that",
        job.cpus,
        have.join(", "),
        job.id
    )
}

/// The reservation that it is to run in.
fn reservation(job: &JobView, around: &Around, zone: &TimeZone) -> String {
    let own = around.reservations.iter().filter(|r| job.spec.reservations.contains(&r.name));
    let times: Vec<String> = own
        .map(|r| match r.start > around.at {
            true => format!("{} begins at {}", r.name, r.start.text(zone)),
            false => format!("{} holds until {}, which is not long enough for it", r.name, r.end.text(zone)),
        })
        .collect();
    match &times[..] {
        [] => "its reservation has not begun".to_owned(),
        times => format!("it is to run in a reservation: {}", times.join(", ")),
    }
}

/// Reservations that keep its nodes from it.
fn kept(job: &JobView, around: &Around, zone: &TimeZone) -> String {
    let nodes: BTreeSet<&str> = around.nodes_of(job).map(|node| node.name.as_str()).collect();
    let of_them = |r: &&Arc<Reservation>| r.nodes.iter().any(|node| nodes.contains(node.as_str()));
    let times = around.reservations.iter().filter(of_them).take(MOST_NAMED);
    let times: Vec<String> =
        times.map(|r| format!("{} from {} to {}", r.name, r.start.text(zone), r.end.text(zone))).collect();
    format!("nodes that it needs are kept for others by reservation: {}", times.join(", "))
}

/// No room is reserved for it: who is there without an end, and how many are before it.
fn crowded(job: &JobView, around: &Around) -> String {
    if around.private {
        return "there is no room for it now; what has it, the site shows to administrators only (PrivateData)"
            .to_owned();
    }
    let own: BTreeSet<&str> = around.nodes_of(job).map(|node| node.name.as_str()).collect();
    let there = |other: &JobView| {
        other.allocation.as_ref().is_some_and(|a| a.nodes.iter().any(|node| own.contains(node.name.as_str())))
    };
    let works = |state| matches!(state, JobState::Running | JobState::Configuring | JobState::Suspended);
    let endless: Vec<String> = around
        .jobs
        .iter()
        .filter(|other| works(other.state) && other.time_limit == TimeLimit::Unlimited && there(other))
        .map(|other| other.id.to_string())
        .collect();
    let shares = |other: &JobView| other.partitions.iter().any(|name| job.partitions.contains(name));
    let before = around.jobs.iter().filter(|other| {
        let first = (other.priority, std::cmp::Reverse(other.id)) > (job.priority, std::cmp::Reverse(job.id));
        other.id != job.id && other.state.waits() && other.eligible && other.priority > 0 && shares(other) && first
    });
    let count = before.count();
    let before = match count {
        0 => String::new(),
        1 => "; one other job goes before it".to_owned(),
        n => format!("; {n} other jobs go before it"),
    };
    // Of the first one the jobs without an end say more.
    if let Some(why) = around.reserving.why_not(count).filter(|_| count > 0 || endless.is_empty()) {
        return why + &before;
    }
    let far = "no room is reserved for it";
    if endless.is_empty() {
        return match &before[..] {
            "" => format!("{far}: there is none for as far ahead as plans go (bf_window), or the next plan finds some"),
            _ => format!(
                "{far}: so many jobs are before it that it was not looked at (bf_max_job_test), or there is none for as far \
                 ahead as plans go (bf_window){before}"
            ),
        };
    }
    let named = endless.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more =
        if endless.len() > MOST_NAMED { format!(" and {} more", endless.len() - MOST_NAMED) } else { String::new() };
    let (jobs, until) =
        if endless.len() == 1 { ("runs job", "until it ends") } else { ("run jobs", "until one of them ends") };
    let first = &endless[0];
    format!(
        "{far}: on its partition's nodes {jobs} {named}{more} without a time limit, and {until} nobody can say when there \
         is room (\"scontrol update JobId={first} TimeLimit=\" sets one){before}"
    )
}

#[cfg(test)]
#[path = "grounds_test.rs"]
mod tests;
