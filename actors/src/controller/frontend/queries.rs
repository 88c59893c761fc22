//! Queries: answered from views at once, or by owners.

use super::{
    core::{FrontendCore, Reply, Then, Turn},
    messages::{Ask, FrontendErrand, Passed},
    selection::may_act,
};
use crate::{
    messages::{
        job::{Authority, JobAsk},
        letter::Letter,
        node::NodeInput,
        steps::StepsAsk,
    },
    scheduler::messages::SchedulerAsk,
};
use garrick_model::{
    config::PrivateKind,
    ids::{ArrayTask, JobId, Sluid},
    job_query::{JobQuery, MOST_LISTED},
    messages::{
        command::{CommandReply, JobMilestone, JobSelector},
        node::ControllerToNode,
        records::RecordsPlace,
    },
    packed_steps::StepTally,
    refusal::Refusal,
    time::Timestamp,
    view::{JobView, PartitionView},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// How long a request for a starting job's step manager waits before it is told to ask again: commands wait twice as long.
pub(super) const LONGEST_START: Duration = Duration::from_secs(5);

/// Puts the newest counts into a view.
fn count_steps(view: &mut Arc<JobView>, tally: StepTally) {
    if view.steps != tally {
        Arc::make_mut(view).steps = tally;
    }
}

/// Are all partitions that it may run in, or the one that it runs in, hidden?
fn is_hidden(view: &JobView, hidden: &[String]) -> bool {
    if hidden.is_empty() {
        return false;
    }
    match &view.allocation {
        Some(allocation) => hidden.contains(&allocation.partition),
        None => view.partitions.iter().all(|name| hidden.contains(name)),
    }
}

impl FrontendCore {
    pub(super) fn list_partitions(&self, by: Authority, now: Timestamp) -> CommandReply {
        let (partitions, nodes) = (self.sight.boards().partitions.list(), self.nodes_for(by, now));
        let nodes_private = self.hides(by, PrivateKind::Nodes);
        let hidden = self.hidden_from(by, &partitions);
        CommandReply::Partitions { partitions, nodes, at: now, hidden, nodes_private }
    }

    /// The default one first.
    pub(super) fn list_topologies(&self) -> CommandReply {
        let config = self.sight.config();
        let mut topologies = config.topologies.clone();
        topologies.sort_by_key(|t| config.default_topology().is_none_or(|default| default.name != t.name));
        CommandReply::Topologies { topologies }
    }

    /// Names of partitions that are hidden from this user, unless he asks for all.
    pub(super) fn hidden_from(&self, by: Authority, partitions: &[Arc<PartitionView>]) -> Vec<String> {
        let closed = self.closed_to(by, partitions);
        let hidden = partitions.iter().filter(|p| p.config.hidden || closed.contains(&p.config.name));
        hidden.map(|p| p.config.name.clone()).collect()
    }

    /// Names of partitions that take no jobs of this user's groups.
    pub(super) fn closed_to(&self, by: Authority, partitions: &[Arc<PartitionView>]) -> Vec<String> {
        let restricted = partitions.iter().any(|p| p.config.allow_groups.is_some());
        let user = if by.admin || !restricted { None } else { self.sight.users().user(by.uid) };
        let is_in = |group: &String| user.iter().flat_map(|user| &user.groups).any(|(_, name)| name == group);
        let is_for = |p: &PartitionView| {
            by.admin || p.config.allow_groups.as_ref().is_none_or(|groups| groups.iter().any(is_in))
        };
        let closed = partitions.iter().filter(|p| !is_for(p));
        closed.map(|p| p.config.name.clone()).collect()
    }

    pub(super) fn list_jobs(
        &self,
        by: Authority,
        at: Timestamp,
        selectors: &[JobSelector],
        which: &JobQuery,
        (after, most): (Option<JobId>, Option<u32>),
        hide: bool,
    ) -> Reply {
        if !which.is_short() {
            let said = format!("more than {MOST_LISTED} users, names or nodes: name fewer at a time");
            return Err(Refusal::TooLarge(said));
        }
        let most = most.map_or(usize::MAX, |most| most as usize);
        let mut hidden = Vec::new();
        if hide {
            hidden = self.hidden_from(by, &self.sight.boards().partitions.list());
        }
        let sees = self.sees_job(by);
        let mut jobs: Vec<Arc<JobView>> = if selectors.is_empty() {
            let shown = |view: &JobView| sees(view) && !is_hidden(view, &hidden);
            self.sight.boards().jobs.such(which, after, most.saturating_add(1), shown)
        } else {
            let mut selection = self.selection();
            let mut found: BTreeMap<JobId, Arc<JobView>> = BTreeMap::new();
            for selector in selectors {
                let views = selection.find(selector)?;
                found.extend(views.into_iter().filter(|view| sees(view)).map(|view| (view.id, view)));
            }
            if found.is_empty() {
                return Err(Refusal::InvalidJobId);
            }
            let shown = |view: &Arc<JobView>| {
                after.is_none_or(|after| view.id > after) && which.takes(view) && !is_hidden(view, &hidden)
            };
            found.into_values().filter(shown).collect()
        };
        let more = jobs.len() > most;
        jobs.truncate(most);
        for view in &mut jobs {
            if let Some(tally) = self.sight.boards().steps.get(&view.id) {
                count_steps(view, *tally);
            }
        }
        Ok(Some(CommandReply::Jobs { jobs, at, more }))
    }

    pub(super) fn list_licenses(&self, at: Timestamp) -> CommandReply {
        let mut licenses = self.sight.license_views();
        let reservations = self.sight.boards().reservations.list();
        for one in licenses.iter_mut().filter(|one| one.layer.is_none()) {
            let active = reservations.iter().filter(|reservation| reservation.is_active(at));
            one.reserved = active.fold(0, |sum, reservation| sum.saturating_add(reservation.licenses.count(&one.name)));
        }
        CommandReply::Licenses { licenses, at }
    }

    pub(super) fn list_reservations(&self, by: Authority, at: Timestamp) -> CommandReply {
        let (mut reservations, zone) = (self.sight.boards().reservations.list(), self.sight.zone());
        self.keep_usable(by, &mut reservations);
        for one in reservations.iter_mut().filter(|one| one.floating.is_some()) {
            *one = one.as_of(at, &zone).map_or_else(|| Arc::clone(one), Arc::new);
        }
        CommandReply::Reservations { reservations, at }
    }

    pub(super) fn wait(&mut self, turn: &mut Turn<'_>, request: u64, job: JobId, until: JobMilestone, tries: u32) {
        let asks = vec![Ask::Job(job, JobAsk::Wait(until))];
        self.ask(turn, request, asks, Then::Reached { job, until, tries });
    }

    /// The job exists and belongs to the caller.
    fn own(&self, by: Authority, job: JobId) -> Result<(), Refusal> {
        let view = self.sight.boards().jobs.get(&job).ok_or(Refusal::InvalidJobId)?;
        if may_act(by, &view) { Ok(()) } else { Err(Refusal::AccessDenied) }
    }

    pub(super) fn script(&mut self, turn: &mut Turn<'_>, request: u64, by: Authority, job: JobId) -> Reply {
        self.own(by, job)?;
        self.ask(turn, request, vec![Ask::Job(job, JobAsk::Script)], Then::OfJob);
        Ok(None)
    }

    pub(super) fn locate(&mut self, turn: &mut Turn<'_>, request: u64, by: Authority, job: JobId) -> Reply {
        self.own(by, job)?;
        self.ask_within(turn, request, vec![Ask::Job(job, JobAsk::Locate)], Then::OfJob, Some(LONGEST_START));
        Ok(None)
    }

    /// Explains what a job waits for, without naming jobs that the user may not see.
    pub(super) fn explain(&mut self, turn: &mut Turn<'_>, request: u64, by: Authority, job: JobId) -> Reply {
        let names_jobs = !self.hides(by, PrivateKind::Jobs);
        let to = Passed::Scheduler(SchedulerAsk::Explain { job, names_jobs }, CommandReply::Outlook(None));
        turn.run(FrontendErrand::Pass { request, to });
        Ok(None)
    }

    /// The address of a node's daemon.
    pub(super) fn address_of(&self, node: &str) -> String {
        self.sight.config().node(node).map(|known| format!("{}:{}", known.address, known.port)).unwrap_or_default()
    }

    /// Steps of a job or of all, also ended ones where asked for.
    pub(super) fn list_steps(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        by: Authority,
        (job, ended): (Option<JobId>, bool),
    ) -> Reply {
        let mut views = match job {
            None if ended => self.sight.boards().jobs.list(),
            None => self.sight.boards().jobs.live(),
            Some(job) => self.selection().find(&job.into())?,
        };
        if job.is_some() && views.is_empty() {
            return Err(Refusal::InvalidJobId);
        }
        let sees = self.sees_job(by);
        views.retain(|view| sees(view));
        let mut by_node: BTreeMap<String, Vec<JobId>> = BTreeMap::new();
        for view in &views {
            let batch_host = view.allocation.as_ref().and_then(|a| a.nodes.first());
            if let Some(node) = batch_host.filter(|_| view.state.works() || !view.completing_nodes.is_empty()) {
                by_node.entry(node.name.clone()).or_default().push(view.id);
            }
        }
        let (ask, away): (BTreeMap<_, _>, BTreeMap<_, _>) =
            by_node.into_iter().partition(|(node, _)| self.sight.link(node).is_some());
        let ended = if ended { views.iter().map(|view| view.id).collect() } else { Vec::new() };
        let (query, missing) = (self.sight.next_query(), away.into_keys().collect());
        let to = Passed::Steps(StepsAsk::List { query, ended, ask, missing });
        turn.run(FrontendErrand::Pass { request, to });
        Ok(None)
    }

    /// Finds the records of a job's steps. For a known job they are on its batch host; for an unknown one, every node is asked.
    pub(super) fn find_records(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        by: Authority,
        (job, run, task): (JobId, Option<Sluid>, Option<ArrayTask>),
    ) -> Reply {
        let view = match (run, task) {
            (Some(run), _) if job == JobId::OF_A_RUN => self.sight.boards().jobs.run(run),
            (None, Some(task)) if job == JobId::OF_A_RUN => self.sight.boards().jobs.task(task),
            _ => self.sight.boards().jobs.get(&job),
        };
        if view.as_ref().is_some_and(|view| !by.admin && by.uid != view.uid) {
            return Err(Refusal::AccessDenied);
        }
        let view = view.filter(|view| run.is_none_or(|run| run == view.sluid));
        let batch_host = view.as_ref().and_then(|view| view.allocation.as_ref()?.nodes.first());
        if let Some((view, node)) = view.as_ref().zip(batch_host) {
            let (node, address) = (node.name.clone(), self.address_of(&node.name));
            let place = RecordsPlace { job: view.id, sluid: view.sluid, node, address };
            return Ok(Some(CommandReply::RecordPlaces { places: vec![place], missing: Vec::new() }));
        }
        let nodes = self.sight.boards().nodes.list();
        let (ask, missing): (BTreeSet<String>, BTreeSet<String>) =
            nodes.iter().map(|node| node.name.clone()).partition(|name| self.sight.link(name).is_some());
        let (query, missing) = (self.sight.next_query(), missing.into_iter().collect());
        let to = Passed::Steps(StepsAsk::Find { query, by: by.uid, job, run, task, ask, missing });
        turn.run(FrontendErrand::Pass { request, to });
        Ok(None)
    }

    /// A user who may see the traces of actors may see what they handled.
    pub(super) fn may_trace(&self, by: Authority, prefixes: &[String]) -> bool {
        let own = |path: &String| self.job_of_path(path).is_some_and(|view| view.uid == by.uid);
        by.admin || (!prefixes.is_empty() && prefixes.iter().all(own))
    }

    /// Trace records of this process and of the nodes that the prefixes name.
    pub(super) fn trace(
        &self,
        turn: &mut Turn<'_>,
        request: u64,
        by: Authority,
        prefixes: Vec<String>,
        follow: bool,
    ) -> Reply {
        if !self.may_trace(by, &prefixes) {
            return Err(Refusal::AccessDenied);
        }
        let mut nodes: BTreeSet<String> = BTreeSet::new();
        for prefix in &prefixes {
            if let Some(allocation) = self.job_of_path(prefix).as_ref().and_then(|v| v.allocation.as_ref()) {
                nodes.extend(allocation.nodes.iter().map(|n| n.name.clone()));
            } else if let Some(node) = prefix.strip_prefix("/node/") {
                nodes.extend(node.split('/').next().map(str::to_owned));
            }
        }
        nodes.retain(|node| self.sight.link(node).is_some());
        let nodes: Vec<String> = nodes.into_iter().collect();
        let query = (follow || !nodes.is_empty()).then(|| self.sight.next_query());
        turn.run(FrontendErrand::Trace { request, query, prefixes: prefixes.clone(), follow, nodes: nodes.clone() });
        for (node, query) in nodes.into_iter().zip(query.into_iter().cycle()) {
            let frame = ControllerToNode::Trace { query, prefixes: prefixes.clone(), follow };
            turn.tell(Letter::Node(node, NodeInput::Send(Box::new(frame))));
        }
        Ok(None)
    }

    fn job_of_path(&self, path: &str) -> Option<Arc<JobView>> {
        let id = path.strip_prefix("/job/")?.split('/').next()?.parse().ok()?;
        self.sight.boards().jobs.get(&JobId(id))
    }
}
