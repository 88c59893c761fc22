//! Questions: from boards at once, from job owners, and from agents with patience.

use super::{env::deliver, front::ControllerActor, messages::ControllerMsg, ports::ReplySink};
use crate::trace_line::trace_line;
use crate::{
    job::{
        messages::{Authority, JobMsg, Watched},
        shell::is_over,
    },
    node::messages::NodeInput,
    scheduler::messages::{SchedulerAsk, SchedulerMsg},
    steps::{
        core::PATIENCE,
        messages::{StepsAsk, StepsInput, StepsMsg},
    },
};
use garrick_model::{
    ids::{ArrayTask, JobId, Sluid},
    messages::{
        command::{CommandReply, JobMilestone, JobSelector, MessageCount, TraceLine},
        node::ControllerToNode,
        records::RecordsPlace,
    },
    packed_steps::StepTally,
    refusal::Refusal,
    state::JobState,
    time::Timestamp,
    view::{JobView, PartitionView},
};
use garrick_runtime::{AskError, Context, ReplyTo, TraceRecord};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc;

/// Batches of trace records on their way to a command; a slower command holds up nobody, it loses batches.
const TRACE_BATCHES: usize = 256;

/// So often a job's owner that was built anew after a panic is asked again for those who wait for it.
const ASKED_AGAIN: u32 = 5;
/// For a job that starts, before who asks for its step manager is told to ask again: commands wait twice as long.
const LONGEST_START: Duration = Duration::from_secs(5);

/// A command that wants trace records.
struct TraceQuery {
    lines: mpsc::Sender<Vec<TraceLine>>,
    waiting: BTreeSet<String>,
    follow: bool,
}

/// Traces that agents were asked for.
#[derive(Default)]
pub struct AgentQueries {
    open: BTreeMap<u64, TraceQuery>,
}

impl AgentQueries {
    /// An agent's trace records.
    pub fn trace(&mut self, query: u64, node: &str, records: Vec<TraceLine>, last: bool) {
        if let Some(open) = self.open.get_mut(&query) {
            if !records.is_empty() && open.lines.try_send(records).is_err() {
                tracing::debug!(query, node, "trace.batch_lost");
            }
            if last {
                open.waiting.remove(node);
            }
        }
        self.settle();
    }

    /// That node answers nothing any more.
    pub fn node_gone(&mut self, node: &str) {
        for open in self.open.values_mut() {
            open.waiting.remove(node);
        }
        self.settle();
    }

    /// Whoever has not answered by now is not waited for.
    pub fn timeout(&mut self, query: u64) {
        if let Some(open) = self.open.get_mut(&query).filter(|open| !open.follow) {
            open.waiting.clear();
        }
        self.settle();
    }

    /// Ends a query; the nodes that were still to answer.
    pub fn close(&mut self, query: u64) -> Vec<String> {
        self.open.remove(&query).map_or_else(Vec::new, |open| open.waiting.into_iter().collect())
    }

    /// A query that is not followed ends with the last answer; a followed one goes on with this process's own records.
    fn settle(&mut self) {
        self.open.retain(|_, open| open.follow || !open.waiting.is_empty());
    }
}

/// Puts the newest numbers into a view.
fn count_steps(view: &mut Arc<JobView>, tally: StepTally) {
    if view.steps != tally {
        Arc::make_mut(view).steps = tally;
    }
}

/// All partitions that it may run in, or the one that it runs in, are hidden.
fn is_hidden(view: &JobView, hidden: &BTreeSet<&str>) -> bool {
    if hidden.is_empty() {
        return false;
    }
    match &view.allocation {
        Some(allocation) => hidden.contains(allocation.partition.as_str()),
        None => view.partitions.iter().all(|name| hidden.contains(name.as_str())),
    }
}

impl ControllerActor {
    /// Names of partitions that are not shown to somebody who does not ask for all.
    pub(super) fn hidden_from(&self, by: Authority, partitions: &[Arc<PartitionView>]) -> Vec<String> {
        let restricted = partitions.iter().any(|p| p.config.allow_groups.is_some());
        let user = if by.admin || !restricted { None } else { self.env.ports.users.user(by.uid) };
        let is_in = |group: &String| user.iter().flat_map(|user| &user.groups).any(|(_, name)| name == group);
        let is_for = |p: &PartitionView| {
            by.admin || p.config.allow_groups.as_ref().is_none_or(|groups| groups.iter().any(is_in))
        };
        let hidden = partitions.iter().filter(|p| p.config.hidden || !is_for(p));
        hidden.map(|p| p.config.name.clone()).collect()
    }

    pub(super) fn list_jobs(
        &self,
        by: Authority,
        selectors: &[JobSelector],
        after: Option<JobId>,
        most: Option<u32>,
        hide: bool,
    ) -> CommandReply {
        let at = Timestamp::now();
        let mut jobs: Vec<Arc<JobView>> = if selectors.is_empty() {
            self.env.boards.jobs.list()
        } else {
            let mut selection = self.selection();
            let mut found: BTreeMap<JobId, Arc<JobView>> = BTreeMap::new();
            for selector in selectors {
                match selection.find(selector) {
                    Ok(views) => found.extend(views.into_iter().map(|view| (view.id, view))),
                    Err(refusal) => return CommandReply::Refused(refusal),
                }
            }
            if found.is_empty() {
                return CommandReply::Refused(Refusal::InvalidJobId);
            }
            found.into_values().collect()
        };
        if let Some(after) = after {
            jobs.drain(..jobs.partition_point(|view| view.id <= after));
        }
        if hide {
            let partitions = self.env.boards.partitions.list();
            let hidden = self.hidden_from(by, &partitions);
            let hidden: BTreeSet<&str> = hidden.iter().map(String::as_str).collect();
            jobs.retain(|view| !is_hidden(view, &hidden));
        }
        let most = most.map_or(usize::MAX, |most| most as usize);
        let more = jobs.len() > most;
        jobs.truncate(most);
        for view in &mut jobs {
            if let Some(tally) = self.env.boards.steps.get(&view.id) {
                count_steps(view, *tally);
            }
        }
        CommandReply::Jobs { jobs, at, more }
    }

    pub(super) fn wait(
        &self,
        cx: &mut Context<Self>,
        job: JobId,
        until: JobMilestone,
        mut replies: Box<dyn ReplySink>,
    ) {
        let (reply, answer) = ReplyTo::channel();
        if !self.env.ask_job(cx, job, JobMsg::wait(until, reply)) {
            replies.send(CommandReply::Refused(Refusal::InvalidJobId));
            return;
        }
        let env = Arc::clone(&self.env);
        cx.spawn(async move {
            let mut answer = answer.await;
            for _ in 0..ASKED_AGAIN {
                let Some(owner) = env.job(job).filter(|_| answer.is_err()) else { break };
                let (reply, again) = ReplyTo::channel();
                if owner.try_send(JobMsg::wait(until, reply)).is_err() {
                    break;
                }
                answer = again.await;
            }
            replies.send(match answer {
                Ok(Ok(view)) => CommandReply::Job(view),
                Ok(Err(refusal)) => CommandReply::Refused(refusal),
                Err(_) => CommandReply::Refused(Refusal::InvalidJobId),
            });
        });
    }

    pub(super) fn watch(&self, cx: &mut Context<Self>, job: JobId, mut replies: Box<dyn ReplySink>) {
        let (sender, mut views) = tokio::sync::watch::channel(Watched::default());
        if !self.env.ask_job(cx, job, JobMsg::watch(sender)) {
            replies.send(CommandReply::Refused(Refusal::InvalidJobId));
            return;
        }
        let env = Arc::clone(&self.env);
        cx.spawn(async move {
            let mut over = false;
            for _ in 0..=ASKED_AGAIN {
                // Whatever was not seen when the sender goes is still delivered first.
                while views.changed().await.is_ok() {
                    let watched = views.borrow_and_update().clone();
                    let view = match watched {
                        Watched::Nothing => continue,
                        Watched::View(view) => view,
                        Watched::TryAgain(after) => {
                            replies.send(CommandReply::Refused(Refusal::RetryAfter { after }));
                            return;
                        }
                    };
                    over = is_over(&view);
                    if !replies.send(CommandReply::Job(view)) {
                        return;
                    }
                }
                let Some(owner) = env.job(job).filter(|_| !over) else { break };
                let (sender, again) = tokio::sync::watch::channel(Watched::default());
                if owner.try_send(JobMsg::watch(sender)).is_err() {
                    break;
                }
                views = again;
            }
            replies.send(CommandReply::End);
        });
    }

    pub(super) fn script(&self, cx: &mut Context<Self>, by: Authority, job: JobId, mut replies: Box<dyn ReplySink>) {
        let Some(view) = self.env.boards.jobs.get(&job) else {
            replies.send(CommandReply::Refused(Refusal::InvalidJobId));
            return;
        };
        if !by.admin && by.uid != view.uid {
            replies.send(CommandReply::Refused(Refusal::AccessDenied));
            return;
        }
        let (reply, answer) = ReplyTo::channel();
        if !self.env.ask_job(cx, job, JobMsg::script(reply)) {
            replies.send(CommandReply::Refused(Refusal::InvalidJobId));
            return;
        }
        cx.spawn(async move {
            replies.send(match answer.await {
                Ok(Ok(Some(script))) => CommandReply::Script(script),
                Ok(Err(refusal)) => CommandReply::Refused(refusal),
                Ok(Ok(None)) => CommandReply::Refused(Refusal::InvalidScript("the job has none".to_owned())),
                Err(_) => CommandReply::Refused(Refusal::InvalidJobId),
            });
        });
    }

    pub(super) fn locate(&self, cx: &mut Context<Self>, by: Authority, job: JobId, mut replies: Box<dyn ReplySink>) {
        let Some(view) = self.env.boards.jobs.get(&job) else {
            replies.send(CommandReply::Refused(Refusal::InvalidJobId));
            return;
        };
        if !by.admin && by.uid != view.uid {
            replies.send(CommandReply::Refused(Refusal::AccessDenied));
            return;
        }
        let (reply, answer) = ReplyTo::channel();
        if !self.env.ask_job(cx, job, JobMsg::locate(reply)) {
            replies.send(CommandReply::Refused(Refusal::InvalidJobId));
            return;
        }
        cx.spawn(async move {
            replies.send(match tokio::time::timeout(LONGEST_START, answer).await {
                Ok(Ok(Ok(place))) => CommandReply::StepManager(place),
                Ok(Ok(Err(refusal))) => CommandReply::Refused(refusal),
                Ok(Err(_)) => CommandReply::Refused(Refusal::InvalidJobId),
                Err(_) => CommandReply::Refused(Refusal::RetryAfter { after: LONGEST_START }),
            });
        });
    }

    /// Tells whoever gathers and remembers steps.
    pub(super) fn tell_steps(&self, cx: &mut Context<Self>, input: StepsInput) {
        if let Some(steps) = self.env.steps() {
            deliver(cx, &steps, StepsMsg::Input(input));
        }
    }

    /// Asks it in somebody's name.
    fn ask_steps(&self, cx: &mut Context<Self>, ask: StepsAsk, replies: Box<dyn ReplySink>) {
        if let Some(steps) = self.env.steps() {
            deliver(cx, &steps, StepsMsg::Ask { ask, reply: answering(replies) });
        }
    }

    /// What keeps a job waiting.
    pub(super) fn explain(&self, cx: &mut Context<Self>, job: JobId, mut replies: Box<dyn ReplySink>) {
        match self.env.scheduler() {
            Some(scheduler) => {
                let ask = SchedulerAsk::Explain(job);
                deliver(cx, &scheduler, SchedulerMsg::Ask { ask, reply: answering(replies) });
            }
            None => drop(replies.send(CommandReply::Outlook(None))),
        }
    }

    pub(super) fn list_steps(
        &self,
        cx: &mut Context<Self>,
        job: Option<JobId>,
        ended: bool,
        mut replies: Box<dyn ReplySink>,
    ) {
        let views = match job {
            None => self.env.boards.jobs.list(),
            Some(job) => match self.selection().find(&job.into()) {
                Ok(views) => views,
                Err(refusal) => {
                    replies.send(CommandReply::Refused(refusal));
                    return;
                }
            },
        };
        if job.is_some() && views.is_empty() {
            replies.send(CommandReply::Refused(Refusal::InvalidJobId));
            return;
        }
        let mut by_node: BTreeMap<String, Vec<JobId>> = BTreeMap::new();
        for view in &views {
            let working = matches!(view.state, JobState::Running | JobState::Suspended | JobState::Configuring);
            let batch_host = view.allocation.as_ref().and_then(|a| a.nodes.first());
            if let Some(node) = batch_host.filter(|_| working || !view.completing_nodes.is_empty()) {
                by_node.entry(node.name.clone()).or_default().push(view.id);
            }
        }
        let (ask, away): (BTreeMap<_, _>, BTreeMap<_, _>) =
            by_node.into_iter().partition(|(node, _)| self.link(node).is_some());
        let ended = if ended { views.iter().map(|view| view.id).collect() } else { Vec::new() };
        let (query, missing) = (self.env.next_query(), away.into_keys().collect());
        self.ask_steps(cx, StepsAsk::List { query, ended, ask, missing }, replies);
    }

    /// Where records of a job's steps are. Of a job that is known here that is its batch host; for one that is not, every node is
    /// asked.
    pub(super) fn find_records(
        &self,
        cx: &mut Context<Self>,
        by: Authority,
        (job, run, task): (JobId, Option<Sluid>, Option<ArrayTask>),
        mut replies: Box<dyn ReplySink>,
    ) {
        let of = |meant: &dyn Fn(&JobView) -> bool| self.env.boards.jobs.list().into_iter().find(|view| meant(view));
        let view = match (run, task) {
            (Some(run), _) if job == JobId::OF_A_RUN => of(&|view| view.sluid == run),
            (None, Some(task)) if job == JobId::OF_A_RUN => of(&|view| view.array_task == Some(task)),
            _ => self.env.boards.jobs.get(&job),
        };
        if view.as_ref().is_some_and(|view| !by.admin && by.uid != view.uid) {
            replies.send(CommandReply::Refused(Refusal::AccessDenied));
            return;
        }
        let view = view.filter(|view| run.is_none_or(|run| run == view.sluid));
        let batch_host = view.as_ref().and_then(|view| view.allocation.as_ref()?.nodes.first());
        if let Some((view, node)) = view.as_ref().zip(batch_host) {
            let (node, address) = (node.name.clone(), self.env.address_of(&node.name));
            let place = RecordsPlace { job: view.id, sluid: view.sluid, node, address };
            replies.send(CommandReply::RecordPlaces { places: vec![place], missing: Vec::new() });
            return;
        }
        let nodes = self.env.boards.nodes.list();
        let (ask, missing): (BTreeSet<String>, BTreeSet<String>) =
            nodes.iter().map(|node| node.name.clone()).partition(|name| self.link(name).is_some());
        let (query, missing) = (self.env.next_query(), missing.into_iter().collect());
        self.ask_steps(cx, StepsAsk::Find { query, by: by.uid, job, run, task, ask, missing }, replies);
    }

    /// Messages handled in this process, for whoever may see the traces of the same actors.
    pub(super) fn count_messages(&self, cx: &Context<Self>, by: Authority, prefixes: &[String]) -> CommandReply {
        if !self.may_trace(by, prefixes) {
            return CommandReply::Refused(Refusal::AccessDenied);
        }
        let counts = cx.system().traces().counts(prefixes);
        let line = |c: garrick_runtime::MessageCount| MessageCount {
            actor: c.actor,
            message: c.message.to_owned(),
            handled: c.handled,
        };
        CommandReply::MessageCounts(counts.into_iter().map(line).collect())
    }

    fn may_trace(&self, by: Authority, prefixes: &[String]) -> bool {
        let own = |path: &String| self.job_of_path(path).is_some_and(|view| view.uid == by.uid);
        by.admin || (!prefixes.is_empty() && prefixes.iter().all(own))
    }

    /// Trace records of this process and of the nodes that the prefixes lead to.
    pub(super) fn trace(
        &mut self,
        cx: &mut Context<Self>,
        by: Authority,
        prefixes: Vec<String>,
        follow: bool,
        mut replies: Box<dyn ReplySink>,
    ) {
        let jobs: Vec<Option<Arc<JobView>>> = prefixes.iter().map(|p| self.job_of_path(p)).collect();
        if !self.may_trace(by, &prefixes) {
            replies.send(CommandReply::Refused(Refusal::AccessDenied));
            return;
        }
        let mut nodes: BTreeSet<String> = BTreeSet::new();
        for (prefix, job) in prefixes.iter().zip(&jobs) {
            if let Some(allocation) = job.as_ref().and_then(|v| v.allocation.as_ref()) {
                nodes.extend(allocation.nodes.iter().map(|n| n.name.clone()));
            } else if let Some(node) = prefix.strip_prefix("/node/") {
                nodes.extend(node.split('/').next().map(str::to_owned));
            }
        }
        nodes.retain(|node| self.link(node).is_some());
        let (lines, mut receiver) = mpsc::channel::<Vec<TraceLine>>(TRACE_BATCHES);
        let traces = cx.system().traces().clone();
        let first: Vec<TraceLine> = traces.collect(&prefixes).iter().map(line).collect();
        if !first.is_empty() && lines.try_send(first).is_err() {
            tracing::debug!("trace.batch_lost");
        }
        if follow {
            let (mut follower, lines) = (traces.follow(prefixes.clone()), lines.clone());
            cx.spawn(async move {
                loop {
                    tokio::select! {
                        (records, _) = follower.next_batch() => {
                            if lines.send(records.iter().map(line).collect()).await.is_err() {
                                break;
                            }
                        }
                        () = lines.closed() => break,
                    }
                }
            });
        }
        let query = if nodes.is_empty() && !follow {
            drop(lines);
            None
        } else {
            let query = self.env.next_query();
            self.queries.open.insert(query, TraceQuery { lines, waiting: nodes.clone(), follow });
            for node in nodes {
                let frame = ControllerToNode::Trace { query, prefixes: prefixes.clone(), follow };
                self.env.tell_node(cx, &node, NodeInput::Send(Box::new(frame)));
            }
            if !follow {
                cx.set_timer(("query", query), PATIENCE, ControllerMsg::QueryTimeout { query });
            }
            Some(query)
        };
        let front = cx.address();
        cx.spawn(async move {
            while let Some(batch) = receiver.recv().await {
                if !replies.send(CommandReply::TraceRecords(batch)) {
                    break;
                }
            }
            replies.send(CommandReply::End);
            drop(receiver);
            if let Some(query) = query
                && front.send(ControllerMsg::QueryGone { query }).await.is_err()
            {
                tracing::debug!(query, "trace.front_gone");
            }
        });
    }

    fn job_of_path(&self, path: &str) -> Option<Arc<JobView>> {
        let id = path.strip_prefix("/job/")?.split('/').next()?.parse().ok()?;
        self.env.boards.jobs.get(&JobId(id))
    }
}

/// What an owner answers goes to whoever asked.
fn answering(mut replies: Box<dyn ReplySink>) -> ReplyTo<CommandReply> {
    ReplyTo::calling(move |answer: Result<CommandReply, AskError>| {
        if let Ok(answer) = answer {
            replies.send(answer);
        }
    })
}

fn line(record: &TraceRecord) -> TraceLine {
    trace_line("controller", record)
}
