//! Replies that continue until the command ends or goes away: watching a job, and traces.

use super::{core::ASKED_AGAIN, messages::FrontendInput, selection::may_act};
use crate::{
    controller::shells::{
        actor::Came,
        env::Env,
        job::{JobMsg, Watched, is_over},
        ports::ReplySink,
    },
    messages::job::Authority,
    steps::core::PATIENCE,
};
use garrick_model::{
    ids::JobId,
    messages::{
        command::{CommandReply, TraceLine},
        node::ControllerToNode,
    },
    refusal::Refusal,
};
use garrick_runtime::TraceRecord;
use garrick_traces::line::trace_line;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};
use tokio::sync::{mpsc, watch::Receiver};

/// Batches of trace records in flight to a command; a slow command delays nobody, it loses batches.
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
    /// Adds an agent's trace records.
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

    /// That node no longer answers.
    pub fn node_gone(&mut self, node: &str) {
        for open in self.open.values_mut() {
            open.waiting.remove(node);
        }
        self.settle();
    }

    /// Nodes that have not answered by now are not waited for.
    pub fn timeout(&mut self, query: u64) {
        if let Some(open) = self.open.get_mut(&query).filter(|open| !open.follow) {
            open.waiting.clear();
        }
        self.settle();
    }

    /// Ends a query. Returns the nodes that had not answered.
    pub fn close(&mut self, query: u64) -> Vec<String> {
        self.open.remove(&query).map_or_else(Vec::new, |open| open.waiting.into_iter().collect())
    }

    /// A query without `follow` ends with the last answer; otherwise it continues with this process's own records.
    fn settle(&mut self) {
        self.open.retain(|_, open| open.follow || !open.waiting.is_empty());
    }
}

/// Shows a job until it is over.
pub(super) fn watch(env: Arc<Env>, job: JobId, by: Authority, mut replies: Box<dyn ReplySink>) -> Came<FrontendInput> {
    let (sender, views) = tokio::sync::watch::channel(Watched::default());
    let Some(late) = env.ask_job(job, JobMsg::watch(sender)) else {
        replies.send(CommandReply::Refused(Refusal::InvalidJobId));
        return Came::Nothing;
    };
    Came::Later(Box::pin(async move {
        if let Some(late) = late {
            late.await;
        }
        show(&env, (job, by), views, replies).await;
        None
    }))
}

async fn show(env: &Env, (job, by): (JobId, Authority), mut views: Receiver<Watched>, mut replies: Box<dyn ReplySink>) {
    let mut over = false;
    // Whoever may not act on the job sees it, but is told nothing; notices wait until its owner is known.
    let mut may_hear = false;
    let mut notices = env.notices.listen(job);
    for _ in 0..=ASKED_AGAIN {
        // A view that was not seen before the sender is dropped is still delivered.
        loop {
            tokio::select! {
                changed = views.changed() => match changed {
                    Ok(()) => {}
                    Err(_) => break,
                },
                notice = notices.next(), if may_hear => {
                    if !replies.send(CommandReply::Notice(notice.to_string())) {
                        return;
                    }
                    continue;
                }
            }
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
            may_hear = may_act(by, &view);
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
}

/// The parameters of a trace query.
pub(super) struct Tracing {
    /// Number of the question to agents, if there is one.
    pub query: Option<u64>,
    /// Of actors below these paths.
    pub prefixes: Vec<String>,
    /// Later records too.
    pub follow: bool,
    /// Nodes that are asked.
    pub nodes: Vec<String>,
}

/// Shows trace records of this process and of nodes.
pub(super) fn trace(
    env: Arc<Env>,
    queries: Rc<RefCell<AgentQueries>>,
    asked: Tracing,
    replies: Box<dyn ReplySink>,
) -> Came<FrontendInput> {
    let Tracing { query, prefixes, follow, nodes } = asked;
    let (lines, receiver) = mpsc::channel::<Vec<TraceLine>>(TRACE_BATCHES);
    let traces = env.system.traces().clone();
    let first: Vec<TraceLine> = traces.collect(&prefixes).iter().map(line).collect();
    if !first.is_empty() && lines.try_send(first).is_err() {
        tracing::debug!("trace.batch_lost");
    }
    let mut follower = follow.then(|| (traces.follow(prefixes), lines.clone()));
    if let Some(query) = query {
        let waiting = nodes.into_iter().collect();
        queries.borrow_mut().open.insert(query, TraceQuery { lines, waiting, follow });
    }
    Came::Later(Box::pin(async move {
        let aside = async {
            match (&mut follower, query) {
                (Some((follower, lines)), _) => {
                    while let Some((records, _)) = tokio::select! {
                        records = follower.next_batch() => Some(records),
                        () = lines.closed() => None,
                    } {
                        if lines.send(records.iter().map(line).collect()).await.is_err() {
                            break;
                        }
                    }
                }
                (None, Some(query)) => {
                    tokio::time::sleep(PATIENCE).await;
                    queries.borrow_mut().timeout(query);
                }
                (None, None) => {}
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = pass_on(receiver, replies) => {}
            () = aside => {}
        }
        // No command needs the answers to that query any more.
        let query = query?;
        for node in queries.borrow_mut().close(query) {
            if let Some((_, link)) = env.links.get(&node)
                && link.send(ControllerToNode::StopTrace { query }).is_err()
            {
                tracing::debug!(node, "node.stop_trace_not_sent");
            }
        }
        None
    }))
}

async fn pass_on(mut receiver: mpsc::Receiver<Vec<TraceLine>>, mut replies: Box<dyn ReplySink>) {
    while let Some(batch) = receiver.recv().await {
        if !replies.send(CommandReply::TraceRecords(batch)) {
            break;
        }
    }
    replies.send(CommandReply::End);
}

fn line(record: &TraceRecord) -> TraceLine {
    trace_line("controller", record)
}
