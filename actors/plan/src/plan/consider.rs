//! Considers one job in one partition, in stages: the rules decide whether it goes on, then resources are searched, task by task.

use super::pass::{Asked, Pass};
use crate::{
    room::hres,
    rules::{
        arrays::{NextTask, PendingTasks},
        backfill::Standing,
        bounds,
        expedited::Own,
        het::Trial,
        licenses, limits,
    },
    snapshot::{
        facts::UNLIMITED_FOR_PLANNING,
        request::{Request, run_limit},
        reservations::Viewer,
    },
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    spec_text::licenses::Licenses,
    state::{JobState, Reason},
    time::TimeLimit,
    view::{AllocatedNode, JobView},
};
use std::time::Duration;

/// The preferred request of `--prefer`, and nodes for it.
type Preferred = Option<(Request, FixedBitSet)>;

/// Where a job can start.
struct Found {
    nodes: Vec<AllocatedNode>,
    licenses: Licenses,
    length: Duration,
    limit: TimeLimit,
    /// On free resources, without those of suspended runs.
    is_free: bool,
}

impl<'a> Pass<'a> {
    /// Tries one job in one partition; for an array, as many of its tasks as fit.
    pub(super) fn consider(&mut self, job: &JobView, place: usize, viewer: Viewer) -> Result<(), Reason> {
        let view = self.view;
        let partition = &view.partitions[place];
        limits::gate(view, job, partition)?;
        self.counted.gate(view, job, partition)?;
        self.bounds.gate(view, job, place)?;
        let mut request = self.request(job, place, viewer);
        self.space.look(viewer);
        licenses::gate(&mut self.space.licenses, &request)?;
        let candidates = self.open_candidates(&request);
        let mut tasks = self.arrays.gate(view, job)?;
        let preferred = self.preferred(job, &request);
        let nodes = [Some(&candidates), preferred.as_ref().map(|(_, nodes)| nodes)];
        let behind = nodes.into_iter().flatten().any(|nodes| self.queue.is_behind(nodes));
        let enough = || self.bounds.has_seen_enough_like(view, job, place);
        let standing = self.queue.gate(view, job, behind, enough)?;
        let limit = run_limit(job, partition);
        let most = |limit: Option<Duration>| limit.unwrap_or(UNLIMITED_FOR_PLANNING).min(UNLIMITED_FOR_PLANNING);
        let (length, longest) = (most(bounds::length(view, job, limit)), most(limit.duration()));
        request.taken_secs = (length < longest).then_some(length.as_secs());
        // The job did not ask for this (magnetic) reservation: if it does not start here now, it waits outside of it.
        let drawn = view.reservations.name(viewer).is_some() && job.spec.reservations.is_empty();
        let asked = Asked { job, request: &request, candidates: &candidates, length, longest, behind, drawn };
        self.try_asked(&asked, &preferred, &mut tasks, standing)
    }

    /// The job's request under this view of reservations.
    fn request(&self, job: &JobView, place: usize, viewer: Viewer) -> Request {
        let mut request = Request::new(self.view, job, place, &|name| self.features.index(name)).as_of(self.now);
        request.reservation = viewer;
        request.owner = request.owner.where_matters(self.matters);
        request
    }

    /// Nodes with all that is requested, within the reservation of this view.
    fn open_candidates(&mut self, request: &Request) -> FixedBitSet {
        let mut candidates = self.features.candidates(request);
        self.view.reservations.restrict(request.reservation, &mut candidates);
        candidates
    }

    fn preferred(&mut self, job: &JobView, request: &Request) -> Preferred {
        let text = job.spec.prefer.as_deref().filter(|text| !text.is_empty())?;
        let request = request.with_constraint(text);
        let candidates = self.open_candidates(&request);
        Some((request, candidates))
    }

    /// Applies the rules that depend on the whole request.
    fn try_asked(
        &mut self,
        asked: &Asked<'_>,
        preferred: &Preferred,
        tasks: &mut PendingTasks,
        standing: Standing,
    ) -> Result<(), Reason> {
        let Asked { job, request, length, .. } = *asked;
        let frozen = self.is_frozen(request.partition) || Trial::is_later(self.trial) || standing.passes_by;
        let expedited = job.state == JobState::Expediting;
        if !expedited && preferred.is_none() {
            self.known.gate(request)?;
        }
        let least = self.shortest(asked).unwrap_or(length);
        if let Some(ledger) = &mut self.ledger {
            ledger.asks(request, (length, least), standing.behind);
        }
        if standing.behind {
            self.count_behind(asked);
            if !expedited && self.is_starved(asked) {
                return Err(self.waits(asked, tasks));
            }
        }
        let own = expedited.then(|| {
            Own::of(self.view, self.now, (job, request), asked.candidates, asked.longest, &self.space.planned)
        });
        self.start_tasks(asked, preferred, own.as_ref(), tasks, frozen)
    }

    /// Counts one more job that is looked at behind others.
    fn count_behind(&mut self, asked: &Asked<'_>) {
        self.queue.tried_behind += 1;
        self.bounds.count_behind(self.view, asked.job, asked.request.partition);
    }

    /// Is nothing reserved for the job, and does it need more than is left?
    fn is_starved(&mut self, asked: &Asked<'_>) -> bool {
        let place = asked.request.partition;
        !self.view.has_parked && !self.reserves(place) && self.space.machine.is_short_for(asked.request)
    }

    /// Starts the job, or as many of its array's tasks as fit.
    fn start_tasks(
        &mut self,
        asked: &Asked<'_>,
        preferred: &Preferred,
        own: Option<&Own<'_>>,
        tasks: &mut PendingTasks,
        frozen: bool,
    ) -> Result<(), Reason> {
        loop {
            let array_index = match tasks.next() {
                NextTask::Whole => None,
                NextTask::Index(index) => Some(index),
                NextTask::LimitReached => return Err(Reason::JobArrayTaskLimit),
                NextTask::Exhausted => return Ok(()),
            };
            let barred = frozen || self.has_started_its_kind(asked.behind);
            let found = if barred { None } else { self.find(asked, preferred, own) };
            let Some(found) = found else { return Err(self.waits(asked, tasks)) };
            let asked = Asked { length: found.length, ..*asked };
            // Where CPUs of suspended runs are taken, no block is idle.
            let kept = if found.is_free { self.keep_whole(&asked, found.nodes) } else { Some(found.nodes) };
            let Some(nodes) = kept else { return Err(Reason::Fragmentation) };
            let secs = found.limit.duration().map(|limit| limit.as_secs());
            let partition = &self.view.partitions[asked.request.partition];
            self.counted.gate_start(self.view, (asked.job, partition), (&nodes, &found.licenses), secs)?;
            self.start(&asked, array_index, (nodes, found.licenses), found.limit);
            if array_index.is_none() || self.has_started_all() {
                return Ok(());
            }
        }
    }

    /// Searches resources for a start now, in order of preference: for the full request, from suspended runs, with a shorter time
    /// limit.
    fn find(&mut self, asked: &Asked<'_>, preferred: &Preferred, own: Option<&Own<'_>>) -> Option<Found> {
        if let Some(found) = self.find_as_asked(asked, preferred, own) {
            return Some(found);
        }
        // Time limits are not shortened for resources that are kept for one job.
        if own.is_some() {
            return None;
        }
        let (nodes, licenses, secs) = self.place_shortened(asked)?;
        Some(Found { nodes, licenses, length: Duration::from_secs(secs), limit: TimeLimit::Secs(secs), is_free: true })
    }

    fn find_as_asked(&mut self, asked: &Asked<'_>, preferred: &Preferred, own: Option<&Own<'_>>) -> Option<Found> {
        let Asked { job, request, length, .. } = *asked;
        let licenses = self.space.licenses.at(request.licenses.as_deref(), self.now, length)?;
        let free = match own {
            Some(own) => own.place(job, request, self.room(request, self.now, length).as_ref()),
            None => self.place_preferred(asked, preferred).or_else(|| self.place_now(asked)),
        };
        let is_free = free.is_some();
        let nodes = match (free, own) {
            (None, None) => self.place_over_suspended(asked)?,
            (free, _) => free?,
        };
        let licenses = self.with_layers(licenses, request, &hres::places(&nodes), self.now, length)?;
        let limit = run_limit(job, &self.view.partitions[request.partition]);
        Some(Found { nodes, licenses, length, limit, is_free })
    }

    fn place_preferred(&mut self, asked: &Asked<'_>, preferred: &Preferred) -> Option<Vec<AllocatedNode>> {
        let (request, candidates) = preferred.as_ref()?;
        self.place_now(&Asked { request, candidates, ..*asked })
    }
}
