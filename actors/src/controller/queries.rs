//! Questions: from boards at once, from job owners, and from agents with patience.

use super::{env::deliver, front::ControllerActor, messages::ControllerMsg, ports::ReplySink};
use crate::{
    job::{
        messages::{Authority, JobMsg},
        record::indices_of,
    },
    node::messages::NodeInput,
};
use garrick_model::{
    ids::JobId,
    messages::{
        command::{CommandReply, JobMilestone, JobSelector, TraceLine},
        node::ControllerToNode,
    },
    refusal::Refusal,
    state::JobState,
    time::Timestamp,
    view::{JobView, StepView},
};
use garrick_runtime::{Context, ReplyTo, TraceRecord};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc;

/// How long agents may take to answer a query.
const PATIENCE: Duration = Duration::from_secs(5);
/// Batches of trace records on their way to a command; a slower command holds up nobody, it loses batches.
const TRACE_BATCHES: usize = 256;

enum AgentQuery {
    Steps { replies: Box<dyn ReplySink>, waiting: BTreeMap<String, u32>, steps: Vec<StepView>, missing: Vec<String> },
    Trace { lines: mpsc::Sender<Vec<TraceLine>>, waiting: BTreeSet<String>, follow: bool },
}

/// Queries that agents were asked.
#[derive(Default)]
pub struct AgentQueries {
    next: u64,
    open: BTreeMap<u64, AgentQuery>,
}

impl AgentQueries {
    fn begin(&mut self, query: AgentQuery) -> u64 {
        self.next += 1;
        self.open.insert(self.next, query);
        self.next
    }

    /// An agent's answer to a list of steps.
    pub fn steps(&mut self, query: u64, node: &str, mut new: Vec<StepView>, mut lost: Vec<String>) {
        if let Some(AgentQuery::Steps { waiting, steps, missing, .. }) = self.open.get_mut(&query) {
            steps.append(&mut new);
            missing.append(&mut lost);
            waiting.remove(node);
        }
        self.settle(query);
    }

    /// An agent's trace records.
    pub fn trace(&mut self, query: u64, node: &str, records: Vec<TraceLine>, last: bool) {
        if let Some(AgentQuery::Trace { lines, waiting, .. }) = self.open.get_mut(&query) {
            if !records.is_empty() && lines.try_send(records).is_err() {
                tracing::debug!(query, node, "trace.batch_lost");
            }
            if last {
                waiting.remove(node);
            }
        }
        self.settle(query);
    }

    /// That node answers nothing any more.
    pub fn node_gone(&mut self, node: &str) {
        let queries: Vec<u64> = self.open.keys().copied().collect();
        for query in queries {
            match self.open.get_mut(&query) {
                Some(AgentQuery::Steps { waiting, missing, .. }) => {
                    missing.extend(waiting.remove_entry(node).map(|(node, _)| node));
                }
                Some(AgentQuery::Trace { waiting, .. }) => {
                    waiting.remove(node);
                }
                None => {}
            }
            self.settle(query);
        }
    }

    /// Whoever has not answered by now is missing.
    pub fn timeout(&mut self, query: u64) {
        match self.open.get_mut(&query) {
            Some(AgentQuery::Steps { waiting, missing, .. }) => {
                missing.extend(std::mem::take(waiting).into_keys());
            }
            Some(AgentQuery::Trace { waiting, follow: false, .. }) => waiting.clear(),
            _ => {}
        }
        self.settle(query);
    }

    /// Ends a query; the nodes that were still to answer.
    pub fn close(&mut self, query: u64) -> Vec<String> {
        match self.open.remove(&query) {
            Some(AgentQuery::Trace { waiting, .. }) => waiting.into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn settle(&mut self, query: u64) {
        let done = match self.open.get(&query) {
            Some(AgentQuery::Steps { waiting, .. }) => waiting.is_empty(),
            // A followed trace goes on with this process's own records.
            Some(AgentQuery::Trace { waiting, follow, .. }) => waiting.is_empty() && !follow,
            None => false,
        };
        if !done {
            return;
        }
        if let Some(AgentQuery::Steps { mut replies, mut steps, mut missing, .. }) = self.open.remove(&query) {
            steps.sort_by_key(|s| s.id);
            steps.dedup_by_key(|s| s.id);
            missing.sort_unstable();
            missing.dedup();
            replies.send(CommandReply::Steps { steps, missing });
        }
    }
}

fn selects(selector: &JobSelector, view: &JobView) -> bool {
    let of_array = view.array_task.is_some_and(|t| t.array_job == selector.job);
    if view.id != selector.job && !of_array {
        return false;
    }
    let Some(ranges) = &selector.tasks else { return true };
    let within = |index: u32| {
        ranges
            .iter()
            .any(|&(first, last, step)| (first..=last).contains(&index) && (index - first).is_multiple_of(step.max(1)))
    };
    match (view.array_task, &view.array_pending) {
        (Some(task), _) => within(task.index),
        (None, Some(pending)) => indices_of(&pending.ranges).into_iter().any(within),
        (None, None) => false,
    }
}

impl ControllerActor {
    /// Views that a selector means: the job, or an array's record and its tasks.
    pub(super) fn selected(&self, selector: &JobSelector) -> Vec<Arc<JobView>> {
        let own = self.env.boards.jobs.get(&selector.job);
        let plain = own.as_ref().is_some_and(|v| v.spec.array.is_none());
        if plain {
            return own.into_iter().filter(|v| selects(selector, v)).collect();
        }
        self.env.boards.jobs.list().into_iter().filter(|v| selects(selector, v)).collect()
    }

    pub(super) fn list_jobs(&self, selectors: &[JobSelector]) -> CommandReply {
        let at = Timestamp::now();
        if selectors.is_empty() {
            return CommandReply::Jobs { jobs: self.env.boards.jobs.list(), at };
        }
        let found: BTreeMap<JobId, Arc<JobView>> =
            selectors.iter().flat_map(|s| self.selected(s)).map(|view| (view.id, view)).collect();
        if found.is_empty() {
            return CommandReply::Refused(Refusal::InvalidJobId);
        }
        CommandReply::Jobs { jobs: found.into_values().collect(), at }
    }

    pub(super) fn wait(
        &self,
        cx: &mut Context<Self>,
        job: JobId,
        until: JobMilestone,
        mut replies: Box<dyn ReplySink>,
    ) {
        let Some(owner) = self.env.job(job) else {
            replies.send(CommandReply::Refused(Refusal::InvalidJobId));
            return;
        };
        let (reply, answer) = ReplyTo::channel();
        deliver(cx, &owner, JobMsg::Wait { until, reply });
        cx.spawn(async move {
            replies.send(match answer.await {
                Ok(view) => CommandReply::Job(view),
                Err(_) => CommandReply::Refused(Refusal::InvalidJobId),
            });
        });
    }

    pub(super) fn watch(&self, cx: &mut Context<Self>, job: JobId, mut replies: Box<dyn ReplySink>) {
        let Some(owner) = self.env.job(job) else {
            replies.send(CommandReply::Refused(Refusal::InvalidJobId));
            return;
        };
        let (sender, mut views) = tokio::sync::watch::channel(None);
        deliver(cx, &owner, JobMsg::Watch(sender));
        cx.spawn(async move {
            // Whatever was not seen when the sender goes is still delivered first.
            while views.changed().await.is_ok() {
                let view: Option<Arc<JobView>> = views.borrow_and_update().clone();
                if view.is_some_and(|view| !replies.send(CommandReply::Job(view))) {
                    break;
                }
            }
            replies.send(CommandReply::End);
        });
    }

    pub(super) fn script(&self, cx: &mut Context<Self>, by: Authority, job: JobId, mut replies: Box<dyn ReplySink>) {
        let (Some(view), Some(owner)) = (self.env.boards.jobs.get(&job), self.env.job(job)) else {
            replies.send(CommandReply::Refused(Refusal::InvalidJobId));
            return;
        };
        if !by.admin && by.uid != view.uid {
            replies.send(CommandReply::Refused(Refusal::AccessDenied));
            return;
        }
        let (reply, answer) = ReplyTo::channel();
        deliver(cx, &owner, JobMsg::Script { reply });
        cx.spawn(async move {
            replies.send(match answer.await {
                Ok(Some(script)) => CommandReply::Script(script),
                Ok(None) => CommandReply::Refused(Refusal::InvalidScript("the job has none".to_owned())),
                Err(_) => CommandReply::Refused(Refusal::InvalidJobId),
            });
        });
    }

    pub(super) fn locate(&self, cx: &mut Context<Self>, by: Authority, job: JobId, mut replies: Box<dyn ReplySink>) {
        let (Some(view), Some(owner)) = (self.env.boards.jobs.get(&job), self.env.job(job)) else {
            replies.send(CommandReply::Refused(Refusal::InvalidJobId));
            return;
        };
        if !by.admin && by.uid != view.uid {
            replies.send(CommandReply::Refused(Refusal::AccessDenied));
            return;
        }
        let (reply, answer) = ReplyTo::channel();
        deliver(cx, &owner, JobMsg::Locate { reply });
        cx.spawn(async move {
            replies.send(match answer.await {
                Ok(Ok(place)) => CommandReply::StepManager(place),
                Ok(Err(refusal)) => CommandReply::Refused(refusal),
                Err(_) => CommandReply::Refused(Refusal::InvalidJobId),
            });
        });
    }

    pub(super) fn list_steps(&mut self, cx: &mut Context<Self>, job: Option<JobId>, mut replies: Box<dyn ReplySink>) {
        let views = match job {
            None => self.env.boards.jobs.list(),
            Some(job) => self.selected(&JobSelector { job, tasks: None }),
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
        let (here, away): (Vec<_>, Vec<_>) = by_node.into_iter().partition(|(node, _)| self.link(node).is_some());
        let missing: Vec<String> = away.into_iter().map(|(node, _)| node).collect();
        self.ended.keep(|job| self.env.boards.jobs.get(&job).is_some());
        let steps = self.ended.of(&views);
        if here.is_empty() {
            replies.send(CommandReply::Steps { steps, missing });
            return;
        }
        let waiting = here.iter().map(|(node, _)| (node.clone(), 1)).collect();
        let query = self.queries.begin(AgentQuery::Steps { replies, waiting, steps, missing });
        for (node, jobs) in here {
            self.env.tell_node(cx, &node, NodeInput::Send(Box::new(ControllerToNode::ListSteps { query, jobs })));
        }
        cx.set_timer(("query", query), PATIENCE, ControllerMsg::QueryTimeout { query });
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
        let own = |view: &Option<Arc<JobView>>| view.as_ref().is_some_and(|v| v.uid == by.uid);
        if !by.admin && !jobs.iter().all(own) {
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
            let query = self.queries.begin(AgentQuery::Trace { lines, waiting: nodes.clone(), follow });
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

fn line(record: &TraceRecord) -> TraceLine {
    TraceLine {
        process: "controller".to_owned(),
        seq: record.seq,
        at_us: record.at_us,
        trace: record.trace,
        id: record.id,
        cause: record.cause,
        actor: record.actor.to_string(),
        message: record.message.to_owned(),
        queue_us: record.queue_us,
        handle_us: record.handle_us,
        outcome: record.outcome.to_string(),
    }
}
