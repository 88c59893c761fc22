//! Replies that go on until the command ends or goes away: a job that is watched, and traces.

use super::{core::ASKED_AGAIN, shell::ControllerActor};
use crate::{
    controller::{messages::ControllerMsg, ports::ReplySink},
    job::{
        messages::{JobMsg, Watched},
        shell::is_over,
    },
    node::messages::NodeInput,
    steps::core::PATIENCE,
    trace_line::trace_line,
};
use garrick_model::{
    ids::JobId,
    messages::{
        command::{CommandReply, TraceLine},
        node::ControllerToNode,
    },
    refusal::Refusal,
};
use garrick_runtime::{Context, TraceRecord};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::sync::mpsc;

/// Batches of trace records on their way to a command; a slower command holds up nobody, it loses batches.
const TRACE_BATCHES: usize = 256;

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

impl ControllerActor {
    /// Shows a job until it is over.
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

    /// Shows trace records of this process and of these nodes.
    pub(super) fn trace(
        &mut self,
        cx: &mut Context<Self>,
        prefixes: Vec<String>,
        follow: bool,
        nodes: Vec<String>,
        mut replies: Box<dyn ReplySink>,
    ) {
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
            let waiting = nodes.iter().cloned().collect();
            self.queries.open.insert(query, TraceQuery { lines, waiting, follow });
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

    /// Nobody wants the answers of that query any more.
    pub(super) fn trace_ended(&mut self, query: u64) {
        for node in self.queries.close(query) {
            if let Some((_, link)) = self.env.links.get(&node)
                && link.send(ControllerToNode::StopTrace { query }).is_err()
            {
                tracing::debug!(node, "node.stop_trace_not_sent");
            }
        }
    }
}

fn line(record: &TraceRecord) -> TraceLine {
    trace_line("controller", record)
}
