//! Collects what agents say about steps and records, keeps the reports of step managers, and answers queries.

use super::{
    effects::{StepsEffect, StepsErrand},
    ended::EndedSteps,
};
use crate::{
    messages::{
        letter::Letter,
        node::NodeInput,
        steps::{StepsAsk, StepsInput, StepsTimer},
    },
    owner::{Effect, FreshIds, Out, Owner},
};
use garrick_model::{
    ids::{ArrayTask, JobId, Sluid},
    messages::{command::CommandReply, node::ControllerToNode, records::RecordsPlace},
    refusal::Refusal,
    step_listing::StepListing,
    time::Timestamp,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How long agents may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A list that is being collected.
struct Open {
    request: u64,
    ended: Vec<JobId>,
    waiting: BTreeSet<String>,
    listing: StepListing,
    missing: Vec<String>,
}

/// A search for records.
struct Search {
    request: u64,
    by: u32,
    job: JobId,
    run: Option<Sluid>,
    task: Option<ArrayTask>,
    waiting: BTreeSet<String>,
    places: Vec<RecordsPlace>,
    missing: Vec<String>,
}

/// Most searches at a time: each asks every node.
const SEARCHES: usize = 8;

/// The owner of steps; initially empty.
#[derive(Default)]
pub struct StepsCore {
    ended: EndedSteps,
    open: BTreeMap<u64, Open>,
    searches: BTreeMap<u64, Search>,
    /// Collected, and answered when it is known which jobs still exist.
    gathered: Vec<Open>,
}

impl Owner for StepsCore {
    type Input = StepsInput;
    type Timer = StepsTimer;
    type Shown = std::convert::Infallible;
    type Answer = CommandReply;
    type Errand = StepsErrand;

    fn handle(&mut self, now: Timestamp, _: &mut dyn FreshIds, input: StepsInput, out: &mut Out<Self>) {
        match input {
            StepsInput::Reported { job, sluid, steps } => return self.ended.note(job, sluid, steps),
            StepsInput::Asked { request, ask: StepsAsk::List { query, ended, ask, missing } } => {
                self.list(now, (request, query), ask, (ended, missing), out);
            }
            StepsInput::Asked { request, ask: StepsAsk::Find { query, by, job, run, task, ask: waiting, missing } } => {
                let places = Vec::new();
                self.search(now, query, Search { request, by, job, run, task, waiting, places, missing }, out);
            }
            StepsInput::Listed { query, node, steps, missing, left_out } => {
                if let Some(open) = self.open.get_mut(&query)
                    && open.waiting.remove(&node)
                {
                    open.listing.add(steps, left_out);
                    open.missing.extend(missing);
                }
            }
            StepsInput::Found { query, node, address, runs } => {
                if let Some(search) = self.searches.get_mut(&query)
                    && search.waiting.remove(&node)
                {
                    let (job, place) = (search.job, (node, address));
                    let places = runs.into_iter().map(|sluid| {
                        let (node, address) = place.clone();
                        RecordsPlace { job, sluid, node, address }
                    });
                    search.places.extend(places);
                }
            }
            StepsInput::NodeGone(node) => {
                for open in self.open.values_mut() {
                    open.missing.extend(open.waiting.take(&node));
                }
                for search in self.searches.values_mut() {
                    search.missing.extend(search.waiting.take(&node));
                }
            }
            StepsInput::Known(known) => self.answer(&known, out),
            StepsInput::Late(StepsTimer(query)) => {
                if let Some(search) = self.searches.get_mut(&query) {
                    search.missing.extend(std::mem::take(&mut search.waiting));
                }
                if let Some(open) = self.open.get_mut(&query) {
                    open.missing.extend(std::mem::take(&mut open.waiting));
                }
            }
        }
        self.settle(out);
    }

    fn timer(timer: StepsTimer) -> StepsInput {
        StepsInput::Late(timer)
    }
}

fn ask(node: String, question: ControllerToNode) -> StepsEffect {
    Effect::Tell(Letter::Node(node, NodeInput::Send(Box::new(question))))
}

fn wait(now: Timestamp, query: u64) -> StepsEffect {
    Effect::SetTimer { timer: StepsTimer(query), at: now.plus(PATIENCE) }
}

impl StepsCore {
    fn list(
        &mut self,
        now: Timestamp,
        (request, query): (u64, u64),
        whom: BTreeMap<String, Vec<JobId>>,
        (ended, missing): (Vec<JobId>, Vec<String>),
        out: &mut Out<Self>,
    ) {
        let (waiting, listing): (BTreeSet<String>, _) = (whom.keys().cloned().collect(), StepListing::default());
        if !waiting.is_empty() {
            out.push(wait(now, query));
        }
        self.open.insert(query, Open { request, ended, waiting, listing, missing });
        out.extend(whom.into_iter().map(|(node, jobs)| ask(node, ControllerToNode::ListSteps { query, jobs })));
    }

    fn search(&mut self, now: Timestamp, query: u64, search: Search, out: &mut Out<Self>) {
        // A user's search must not keep other users from theirs.
        let has_one = search.by != 0 && self.searches.values().any(|other| other.by == search.by);
        if has_one || self.searches.len() >= SEARCHES {
            let answer = CommandReply::Refused(Refusal::RetryAfter { after: PATIENCE });
            return out.push(Effect::Answer { request: search.request, answer });
        }
        let Search { job, run, task, .. } = search;
        for node in &search.waiting {
            out.push(ask(node.clone(), ControllerToNode::FindRecords { query, job, run, task }));
        }
        out.push(wait(now, query));
        self.searches.insert(query, search);
    }

    /// Answers the queries whose agents have all answered or are not waited for any more.
    fn settle(&mut self, out: &mut Out<Self>) {
        for (query, open) in self.open.extract_if(.., |_, open| open.waiting.is_empty()) {
            out.push(Effect::ClearTimer(StepsTimer(query)));
            self.gathered.push(open);
        }
        if !self.gathered.is_empty() {
            out.push(Effect::Do(StepsErrand::WhichAreKnown(self.ended.jobs())));
        }
        for (query, search) in self.searches.extract_if(.., |_, search| search.waiting.is_empty()) {
            let Search { request, run, mut places, mut missing, .. } = search;
            places.retain(|place| run.is_none_or(|run| run == place.sluid));
            places.sort_by_key(|place| Reverse(place.sluid));
            missing.sort_unstable();
            out.push(Effect::ClearTimer(StepsTimer(query)));
            out.push(Effect::Answer { request, answer: CommandReply::RecordPlaces { places, missing } });
        }
    }

    fn answer(&mut self, known: &BTreeSet<JobId>, out: &mut Out<Self>) {
        self.ended.keep(|job| known.contains(&job));
        for Open { request, ended, mut listing, mut missing, .. } in std::mem::take(&mut self.gathered) {
            for job in ended {
                listing.add(self.ended.of(job), 0);
            }
            missing.sort_unstable();
            missing.dedup();
            let (steps, left_out) = listing.finish();
            out.push(Effect::Answer { request, answer: CommandReply::Steps { steps, missing, left_out } });
        }
    }
}
