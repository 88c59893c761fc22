//! Advance reservations in a plan: which of them a job may use, and when their nodes are closed to which jobs. Called by
//! [`crate::plan`], which keeps one future for each reservation that some job wants to use, and one for all other jobs, and
//! closes in each what is not available to those jobs.
//!
//! A reservation for maintenance closes its nodes to all others; a reservation that overlaps others shares with them the nodes
//! that they have in common.

use super::facts::NEVER;
use fixedbitset::FixedBitSet;
use garrick_model::{
    reservation::{Applicant, Reservation, ReservationFlag},
    resources::CpuSet,
    spec_text::licenses::Licenses,
    state::Reason,
    time::Timestamp,
    view::{JobView, NodeView},
};
use jiff::tz::TimeZone;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// Times of a recurring reservation that are considered one by one; from the last of them on, its nodes stay closed to others, so
/// that a plan stays short. With `HOURLY` that is more than two days from now.
const MOST_TIMES: usize = 64;

/// A reservation in a plan's snapshot.
#[derive(Clone, Debug)]
pub(crate) struct ReservationFacts {
    /// What is reserved, and for which jobs.
    pub reservation: Arc<Reservation>,
    /// Its nodes, by index.
    pub nodes: FixedBitSet,
    /// For a reservation of cores: which CPUs of each of its nodes.
    pub parts: BTreeMap<usize, CpuSet>,
    /// The other CPUs of those nodes.
    rest: BTreeMap<usize, CpuSet>,
    /// When it is active, in order.
    pub times: Vec<(Timestamp, Timestamp)>,
}

/// All reservations in a plan's snapshot.
#[derive(Clone, Debug, Default)]
pub struct Reservations {
    /// In name order.
    pub(crate) list: Vec<ReservationFacts>,
    /// Users who may use all of them.
    pub administrators: Vec<u32>,
    /// Groups of users, by uid, if reservations are for groups. If a user is missing, the groups were checked when the job was
    /// submitted.
    pub groups: BTreeMap<u32, Vec<String>>,
    /// Jobs with `--signal=R:` may run on others' reserved nodes, since they can be preempted.
    pub guests: bool,
    /// Each distinct `MaxStartDelay` of the reservations, in seconds, ascending.
    delays: Vec<u64>,
    /// Nodes of which a part is reserved at some time: there, plans name CPUs.
    parted: FixedBitSet,
}

/// What is closed during a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Closing {
    /// Whole nodes, by index.
    pub nodes: FixedBitSet,
    /// CPUs of other nodes.
    pub parts: BTreeMap<usize, CpuSet>,
    /// Begin.
    pub from: Timestamp,
    /// End.
    pub until: Timestamp,
}

/// The view of reservations in which a job is placed: that of one reservation, by its index in [`Reservations::list`], or of
/// none. Indices beyond the list are those of guests: jobs that may overlap all reservations with at least a certain
/// `MaxStartDelay`.
pub(crate) type Viewer = Option<usize>;

impl Closing {
    /// If the node as a whole is closed: from when until when.
    pub fn of_node(&self, node: usize) -> Option<(Timestamp, Timestamp)> {
        self.nodes.contains(node).then_some((self.from, self.until))
    }
}

impl Reservations {
    /// From the views of their owner, for these nodes.
    pub fn new(
        shown: &[Arc<Reservation>],
        nodes: &[Arc<NodeView>],
        administrators: Vec<u32>,
        now: Timestamp,
        zone: &TimeZone,
    ) -> Self {
        if shown.is_empty() {
            return Self::default();
        }
        let places: HashMap<&str, usize> =
            nodes.iter().enumerate().map(|(place, n)| (n.name.as_str(), place)).collect();
        let list = shown.iter().map(|reservation| {
            let mut own = FixedBitSet::with_capacity(nodes.len());
            own.extend(reservation.nodes.iter().filter_map(|name| places.get(name.as_str()).copied()));
            let part = |(name, cores): (&String, &CpuSet)| {
                let place = *places.get(name.as_str())?;
                let shape = &nodes[place].shape;
                Some((place, cores.iter().flat_map(|core| shape.cpus_of_core(core)).collect()))
            };
            let parts: BTreeMap<usize, CpuSet> = reservation.core_ids.iter().filter_map(part).collect();
            let rest = |(place, cpus): (&usize, &CpuSet)| (*place, nodes[*place].shape.common_cpus().difference(cpus));
            ReservationFacts {
                rest: parts.iter().map(rest).collect(),
                parts,
                reservation: Arc::clone(reservation),
                nodes: own,
                times: reservation.times(now, MOST_TIMES, zone),
            }
        });
        let list: Vec<ReservationFacts> = list.collect();
        let mut parted = FixedBitSet::with_capacity(nodes.len());
        parted.extend(list.iter().flat_map(|r| r.parts.keys().copied()));
        let delays: BTreeSet<u64> = list.iter().filter_map(|r| r.reservation.max_start_delay_secs).collect();
        let delays = delays.into_iter().collect();
        Self { list, administrators, groups: BTreeMap::new(), guests: false, delays, parted }
    }

    /// The views in which a job may be placed, in the order in which they are tried. Empty: the reservation that it requested
    /// does not exist, or does not admit it.
    pub(crate) fn viewers(&self, job: &JobView, partition: &str, now: Timestamp) -> Vec<Viewer> {
        if self.list.is_empty() && job.spec.reservations.is_empty() {
            return vec![None];
        }
        let (account, qos) = (job.spec.account.as_deref(), job.spec.qos.as_deref());
        let known = self.groups.get(&job.uid);
        let groups: Option<Vec<&str>> = known.map(|names| names.iter().map(String::as_str).collect());
        let groups = groups.as_deref();
        let who = |admin| Applicant { admin, user: &job.user, account, qos, partition: Some(partition), groups };
        let places = self.list.iter().enumerate();
        if !job.spec.reservations.is_empty() {
            let admin = self.administrators.contains(&job.uid);
            let named = job.spec.reservations.iter().filter_map(|name| {
                let usable =
                    |r: &ReservationFacts| r.reservation.floating.is_none() && r.reservation.admits(who(admin));
                places.clone().find(|(_, r)| r.reservation.name == *name && usable(r))
            });
            return named.map(|(place, _)| Some(place)).collect();
        }
        let draws = |r: &ReservationFacts| {
            let open = r.reservation.is_active(now) || r.has(ReservationFlag::Flex);
            let floats = r.reservation.floating.is_some();
            // The job did not request the reservation, so its user's groups were not checked.
            let who = Applicant { groups: Some(groups.unwrap_or_default()), ..who(false) };
            open && !floats && r.has(ReservationFlag::Magnetic) && r.reservation.admits(who)
        };
        places.filter(|(_, r)| draws(r)).map(|(place, _)| Some(place)).chain([self.guest(job)]).collect()
    }

    /// The view of a job that requested no reservation; if it asked to overlap some, that of a guest.
    fn guest(&self, job: &JobView) -> Viewer {
        let warned = job.spec.signal.filter(|warning| warning.overlaps && self.guests)?;
        let class = self.delays.iter().position(|delay| *delay >= u64::from(warned.before_secs))?;
        Some(self.list.len() + class)
    }

    /// The longest time that jobs of this view's reservation wait for their nodes while such a guest leaves.
    pub(crate) fn grace_of_guest(&self, viewer: Viewer, runs: &JobView) -> Option<Duration> {
        let own = self.list.get(viewer?)?;
        let warned = runs.spec.signal.filter(|warning| warning.overlaps && self.guests)?;
        let inside = runs.allocation.as_ref().and_then(|a| a.reservation.as_ref()) == Some(&own.reservation.name);
        // On other nodes it is not in the way.
        let mut places = runs.allocation.iter().flat_map(|a| &a.nodes).map(|node| node.index.0 as usize);
        let there = places.any(|place| own.nodes.contains(place));
        let secs = u64::from(warned.before_secs);
        (there && !inside && own.stands_guests(secs)).then(|| Duration::from_secs(secs))
    }

    /// Might any reservation make guests leave?
    pub(crate) fn may_have_guests(&self) -> bool {
        self.guests && !self.delays.is_empty()
    }

    /// Do the groups of the job's user matter?
    pub fn ask_for_groups(&self, job: &JobView) -> bool {
        let asked = &job.spec.reservations;
        let concerns = |r: &ReservationFacts| match asked.as_slice() {
            [] => r.has(ReservationFlag::Magnetic),
            names => names.contains(&r.reservation.name),
        };
        self.list.iter().any(|r| !r.reservation.groups.is_empty() && concerns(r))
    }

    /// Why a job waits that has no view in which it may be placed.
    pub fn refused(&self, job: &JobView) -> Reason {
        let there = self.list.iter().any(|r| job.spec.reservations.contains(&r.reservation.name));
        Reason::Other(if there { "Reservation" } else { "ReservationDeleted" }.to_owned())
    }

    /// Name of the reservation of this view.
    pub fn name(&self, viewer: Viewer) -> Option<String> {
        self.list.get(viewer?).map(|r| r.reservation.name.clone())
    }

    /// Keeps in `candidates` the nodes that may be used at some time.
    pub fn restrict(&self, viewer: Viewer, candidates: &mut FixedBitSet) {
        let bound = |r: &&ReservationFacts| !r.has(ReservationFlag::Flex) && !r.has(ReservationFlag::AnyNodes);
        if let Some(own) = viewer.and_then(|place| self.list.get(place)).filter(bound) {
            candidates.intersect_with(&own.nodes);
        }
    }

    /// Is a part of that node reserved at some time?
    pub(crate) fn is_parted(&self, node: usize) -> bool {
        self.parted.contains(node)
    }

    /// Do they only close whole nodes, as long as no job requests them by name?
    pub(crate) fn only_close_nodes(&self) -> bool {
        let plain = |r: &ReservationFacts| !r.has(ReservationFlag::Magnetic) && r.reservation.licenses.is_empty();
        !self.may_have_guests() && self.parted.is_clear() && self.list.iter().all(plain)
    }

    /// Do the same jobs have the same use of both?
    pub(crate) fn are_the_same(&self, other: &Self) -> bool {
        let each = |facts: &ReservationFacts, other: &ReservationFacts| {
            Arc::ptr_eq(&facts.reservation, &other.reservation) || facts.reservation == other.reservation
        };
        self.list.len() == other.list.len()
            && self.list.iter().zip(&other.list).all(|(one, other)| each(one, other))
            && self.administrators == other.administrators
            && self.groups == other.groups
    }

    /// What is closed, and when.
    pub(crate) fn closings(&self, viewer: Viewer, now: Timestamp) -> Vec<Closing> {
        let own = viewer.and_then(|place| self.list.get(place));
        let guest_secs = viewer.and_then(|place| self.delays.get(place.checked_sub(self.list.len())?)).copied();
        let mut closings = Vec::new();
        for (place, other) in self.list.iter().enumerate() {
            if viewer == Some(place) {
                closings.extend(self.outside(other, now));
                continue;
            }
            if guest_secs.is_some_and(|secs| other.stands_guests(secs)) {
                continue;
            }
            let (mut nodes, mut parts) = (other.nodes.clone(), other.parts.clone());
            if let Some(own) = own.filter(|own| own.shares_with(other)) {
                // On a node that the other reservation has too, a reservation of cores closes its own CPUs.
                parts.extend(
                    own.rest
                        .iter()
                        .filter(|(node, _)| nodes.contains(**node) && !other.parts.contains_key(node))
                        .map(|(node, rest)| (*node, rest.clone())),
                );
                nodes.difference_with(&own.nodes);
                for (node, cpus) in &mut parts {
                    match own.parts.get(node) {
                        Some(shared) => cpus.subtract(shared),
                        None if own.nodes.contains(*node) => *cpus = CpuSet::new(),
                        None => {}
                    }
                }
            }
            other.parts.keys().for_each(|node| nodes.set(*node, false));
            parts.retain(|_, cpus| !cpus.is_empty());
            let closing = |(from, until)| Closing { nodes: nodes.clone(), parts: parts.clone(), from, until };
            closings.extend(other.times_closed().map(closing));
        }
        closings.retain(|closing| closing.from.max(now) < closing.until);
        closings
    }

    /// What is closed to jobs of a reservation: its nodes while it is not active, and CPUs that are not its own.
    fn outside(&self, own: &ReservationFacts, now: Timestamp) -> Vec<Closing> {
        if own.has(ReservationFlag::Flex) {
            return Vec::new();
        }
        let mut nodes = own.nodes.clone();
        if own.has(ReservationFlag::AnyNodes) {
            nodes.insert_range(..);
        }
        let ends = [now].into_iter().chain(own.times.iter().map(|(_, end)| *end));
        let starts = own.times.iter().map(|(start, _)| *start).chain([NEVER]);
        let whole = |(from, until)| Closing { nodes: nodes.clone(), parts: BTreeMap::new(), from, until };
        let rest = Closing { nodes: FixedBitSet::new(), parts: own.rest.clone(), from: now, until: NEVER };
        ends.zip(starts).map(whole).chain((!own.parts.is_empty()).then_some(rest)).collect()
    }

    /// Nodes that are closed at any time of the interval.
    pub fn closed(&self, viewer: Viewer, now: Timestamp, from: Timestamp, until: Timestamp) -> FixedBitSet {
        let mut closed = FixedBitSet::new();
        for closing in self.closings(viewer, now) {
            if closing.from < until && from < closing.until {
                closed.union_with(&closing.nodes);
            }
        }
        closed
    }

    /// CPUs of partly reserved nodes that are closed at any time of the interval.
    pub(crate) fn closed_cpus(
        &self,
        viewer: Viewer,
        now: Timestamp,
        from: Timestamp,
        until: Timestamp,
    ) -> BTreeMap<usize, CpuSet> {
        let mut closed: BTreeMap<usize, CpuSet> = BTreeMap::new();
        if self.parted.is_clear() {
            return closed;
        }
        for closing in self.closings(viewer, now) {
            if closing.from < until && from < closing.until {
                closing.parts.iter().for_each(|(node, cpus)| closed.entry(*node).or_default().add(cpus));
            }
        }
        closed
    }

    /// CPUs that are never available in this view.
    pub(crate) fn never_open(&self, viewer: Viewer) -> BTreeMap<usize, CpuSet> {
        let own = viewer.and_then(|place| self.list.get(place));
        own.filter(|own| !own.has(ReservationFlag::Flex)).map(|own| own.rest.clone()).unwrap_or_default()
    }

    /// Nodes of which a part is reserved at some time.
    pub(crate) fn parted(&self) -> impl Iterator<Item = usize> {
        self.parted.ones()
    }

    /// Licenses that are kept for jobs of reservations: the view of those jobs, which licenses, and when.
    pub fn licenses(&self) -> impl Iterator<Item = (Viewer, &Licenses, Timestamp, Timestamp)> {
        let kept = self.list.iter().enumerate().filter(|(_, r)| !r.reservation.licenses.is_empty());
        kept.flat_map(|(place, r)| {
            r.times_closed().map(move |(from, until)| (Some(place), &r.reservation.licenses, from, until))
        })
    }

    /// The view of that reservation's jobs.
    pub(crate) fn viewer_of(&self, name: &str) -> Viewer {
        self.list.iter().position(|r| r.reservation.name == name)
    }

    /// Is a reservation that a job requested not active yet?
    pub(crate) fn awaits(&self, viewer: Viewer, now: Timestamp) -> bool {
        let own = viewer.and_then(|place| self.list.get(place));
        own.is_some_and(|r| !r.has(ReservationFlag::Flex) && !r.reservation.is_active(now))
    }
}

impl ReservationFacts {
    fn has(&self, flag: ReservationFlag) -> bool {
        self.reservation.has(flag)
    }

    /// Are guests allowed that leave within so many seconds? Not on nodes for maintenance.
    fn stands_guests(&self, secs: u64) -> bool {
        self.reservation.max_start_delay_secs.is_some_and(|delay| secs <= delay) && !self.has(ReservationFlag::Maint)
    }

    /// When it closes its nodes to others: from the last considered time on for good.
    fn times_closed(&self) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let last = self.times.len().saturating_sub(1);
        let recurs = self.reservation.recurs();
        let times = self.times.iter().enumerate();
        times.map(move |(number, (start, end))| (*start, if number == last && recurs { NEVER } else { *end }))
    }

    /// May jobs of this reservation use nodes that both have?
    fn shares_with(&self, other: &Self) -> bool {
        match (self.has(ReservationFlag::Maint), other.has(ReservationFlag::Maint)) {
            (false, true) => false,
            (true, _) => true,
            (false, false) => self.has(ReservationFlag::Overlap) || other.has(ReservationFlag::Overlap),
        }
    }
}
