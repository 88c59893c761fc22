//! Steps, as far as the controller knows any: what their managers reported, and lists of them that somebody asked for. One
//! actor on a thread of its own, at `/steps`, so that neither thousands of reported steps nor long lists hold up anything
//! else. It decides nothing about jobs; nobody waits for it but who asked for a list.

use super::{ended_steps::EndedSteps, env::Env, ports::ReplySink};
use crate::node::messages::NodeInput;
use garrick_model::{
    ids::{ArrayTask, JobId, Sluid},
    messages::{command::CommandReply, node::ControllerToNode, records::RecordsPlace},
    packed_steps::PackedSteps,
    refusal::Refusal,
    step_listing::StepListing,
    view::StepView,
};
use garrick_runtime::{Actor, Context, Message};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// How long agents may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Messages, all from the front.
pub enum StepsMsg {
    /// A run's step manager reported. Repeatable.
    Reported {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Steps.
        steps: PackedSteps,
    },
    /// Somebody wants a list.
    List {
        /// Jobs whose ended steps are wanted too.
        ended: Vec<JobId>,
        /// Which agents to ask about which jobs.
        ask: BTreeMap<String, Vec<JobId>>,
        /// Nodes that cannot be asked.
        missing: Vec<String>,
        /// Where the list goes.
        replies: Box<dyn ReplySink>,
    },
    /// An agent's answer.
    Answer {
        /// Question.
        query: u64,
        /// Node.
        node: String,
        /// Steps.
        steps: Vec<StepView>,
        /// Managers that did not answer.
        missing: Vec<String>,
        /// Lines that are not there because the list is too long.
        left_out: u64,
    },
    /// Somebody wants to know where the records of a job are that nobody knows here.
    Find {
        /// Who, by uid.
        by: u32,
        /// Job.
        job: JobId,
        /// Only this run of it.
        run: Option<Sluid>,
        /// The task of a job array that is meant instead of a job.
        task: Option<ArrayTask>,
        /// Which agents to ask.
        ask: Vec<String>,
        /// Nodes that cannot be asked.
        missing: Vec<String>,
        /// Where the places go.
        replies: Box<dyn ReplySink>,
    },
    /// An agent's answer.
    Found {
        /// Question.
        query: u64,
        /// Node.
        node: String,
        /// Runs whose records it has.
        runs: Vec<Sluid>,
    },
    /// That node answers nothing any more.
    NodeGone {
        /// Node.
        node: String,
    },
    /// A question took too long.
    Timeout {
        /// Question.
        query: u64,
    },
}

impl Message for StepsMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Reported { .. } => "StepReport",
            Self::List { .. } => "ListSteps",
            Self::Answer { .. } => "Steps",
            Self::Find { .. } => "FindRecords",
            Self::Found { .. } => "Records",
            Self::NodeGone { .. } => "NodeGone",
            Self::Timeout { .. } => "QueryTimeout",
        }
    }
}

/// A list that is being gathered.
struct Open {
    replies: Box<dyn ReplySink>,
    ended: Vec<JobId>,
    waiting: BTreeSet<String>,
    listing: StepListing,
    missing: Vec<String>,
}

/// Records that are looked for.
struct Search {
    by: u32,
    replies: Box<dyn ReplySink>,
    job: JobId,
    run: Option<Sluid>,
    task: Option<ArrayTask>,
    waiting: BTreeSet<String>,
    places: Vec<RecordsPlace>,
    missing: Vec<String>,
}

/// Searches at a time: each asks every node.
const SEARCHES: usize = 8;

/// The actor.
pub struct StepsActor {
    env: Arc<Env>,
    ended: EndedSteps,
    open: BTreeMap<u64, Open>,
    searches: BTreeMap<u64, Search>,
}

impl StepsActor {
    /// A new one, which remembers nothing.
    pub fn new(env: Arc<Env>) -> Self {
        Self { env, ended: EndedSteps::default(), open: BTreeMap::new(), searches: BTreeMap::new() }
    }

    fn list(&mut self, cx: &mut Context<Self>, ask: BTreeMap<String, Vec<JobId>>, mut open: Open) {
        if ask.is_empty() {
            return self.answer(open);
        }
        let query = self.env.next_query();
        open.waiting = ask.keys().cloned().collect();
        self.open.insert(query, open);
        for (node, jobs) in ask {
            self.env.tell_node(cx, &node, NodeInput::Send(Box::new(ControllerToNode::ListSteps { query, jobs })));
        }
        cx.set_timer(("query", query), PATIENCE, StepsMsg::Timeout { query });
    }

    fn search(&mut self, cx: &mut Context<Self>, mut search: Search) {
        // One user's searches keep nobody else from his.
        let has_one = search.by != 0 && self.searches.values().any(|other| other.by == search.by);
        if has_one || self.searches.len() >= SEARCHES {
            search.replies.send(CommandReply::Refused(Refusal::RetryAfter { after: PATIENCE }));
            return;
        }
        let query = self.env.next_query();
        for node in &search.waiting {
            let Search { job, run, task, .. } = search;
            let question = ControllerToNode::FindRecords { query, job, run, task };
            self.env.tell_node(cx, node, NodeInput::Send(Box::new(question)));
        }
        self.searches.insert(query, search);
        cx.set_timer(("query", query), PATIENCE, StepsMsg::Timeout { query });
    }

    fn answer_search(search: Search) {
        let Search { mut replies, run, mut places, mut missing, .. } = search;
        places.retain(|place| run.is_none_or(|run| run == place.sluid));
        places.sort_by_key(|place| Reverse(place.sluid));
        missing.sort_unstable();
        replies.send(CommandReply::RecordPlaces { places, missing });
    }

    /// Answers the questions that nobody is waited for any more.
    fn settle(&mut self, cx: &mut Context<Self>) {
        let done: Vec<u64> = self.open.iter().filter(|(_, o)| o.waiting.is_empty()).map(|(query, _)| *query).collect();
        for query in done {
            cx.clear_timer(("query", query));
            if let Some(open) = self.open.remove(&query) {
                self.answer(open);
            }
        }
        let found: Vec<u64> =
            self.searches.iter().filter(|(_, s)| s.waiting.is_empty()).map(|(query, _)| *query).collect();
        for query in found {
            cx.clear_timer(("query", query));
            if let Some(search) = self.searches.remove(&query) {
                Self::answer_search(search);
            }
        }
    }

    fn answer(&mut self, open: Open) {
        let Open { mut replies, ended, mut listing, mut missing, .. } = open;
        if replies.is_gone() {
            return;
        }
        self.ended.keep(|job| self.env.jobs.contains(job));
        for job in ended {
            listing.add(self.ended.of(job), 0);
        }
        missing.sort_unstable();
        missing.dedup();
        let (steps, left_out) = listing.finish();
        replies.send(CommandReply::Steps { steps, missing, left_out });
    }
}

impl Actor for StepsActor {
    type Msg = StepsMsg;

    fn handle(&mut self, cx: &mut Context<Self>, message: StepsMsg) {
        match message {
            StepsMsg::Reported { job, sluid, steps } => return self.ended.note(job, sluid, steps),
            StepsMsg::List { ended, ask, missing, replies } => {
                let (waiting, listing) = (BTreeSet::new(), StepListing::default());
                return self.list(cx, ask, Open { replies, ended, waiting, listing, missing });
            }
            StepsMsg::Answer { query, node, steps, missing, left_out } => {
                if let Some(open) = self.open.get_mut(&query)
                    && open.waiting.remove(&node)
                {
                    open.listing.add(steps, left_out);
                    open.missing.extend(missing);
                }
            }
            StepsMsg::Find { by, job, run, task, ask, missing, replies } => {
                let (waiting, places) = (ask.into_iter().collect(), Vec::new());
                self.search(cx, Search { by, replies, job, run, task, waiting, places, missing });
            }
            StepsMsg::Found { query, node, runs } => {
                if let Some(search) = self.searches.get_mut(&query)
                    && search.waiting.remove(&node)
                {
                    let place = |sluid| self.env.records_place(search.job, sluid, &node);
                    search.places.extend(runs.into_iter().map(place));
                }
            }
            StepsMsg::NodeGone { node } => {
                for open in self.open.values_mut() {
                    open.missing.extend(open.waiting.take(&node));
                }
                for search in self.searches.values_mut() {
                    search.missing.extend(search.waiting.take(&node));
                }
            }
            StepsMsg::Timeout { query } => {
                if let Some(search) = self.searches.get_mut(&query) {
                    search.missing.extend(std::mem::take(&mut search.waiting));
                }
                if let Some(open) = self.open.get_mut(&query) {
                    open.missing.extend(std::mem::take(&mut open.waiting));
                }
            }
        }
        self.settle(cx);
    }
}
