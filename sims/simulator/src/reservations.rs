//! Reservations that begin, end and are changed, and the check that other jobs stay off them. Some exist from the start.

use super::{
    disk::Writer,
    lives::{Life, Saved},
    mutation::Mutation,
    rules::ensure,
    world::{Happening, Place, World},
};
use garrick_actors::{
    messages::letter::Letter,
    owner::{Owner, Stage, Turn, outbox::Outbox, perform},
    reservation::{
        core::{Changed, ReservationsCore},
        owner::{ReservationAsk, ReservationErrand, ReservationInput, ReservationTimer, Snapshot},
    },
};
use garrick_events::records::job::Run;
use garrick_model::{
    ids::JobId,
    refusal::Refusal,
    reservation::{AccessList, NodesWanted, Reservation, ReservationChange, ReservationFlag},
    time::Timestamp,
};
use jiff::tz::TimeZone;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// So many there are.
const COUNT: u32 = 8;
/// From the begin of one to that of the next.
const EVERY: Duration = Duration::from_secs(200);
/// How long each is.
const LENGTH: Duration = Duration::from_secs(150);
/// A plan may be so old when its starts are carried out.
const SLACK: Duration = Duration::from_secs(60);

/// Of one node each, in turn, and every second one of a single user.
pub(super) fn some_reservations(begin: Timestamp, nodes: u32) -> BTreeMap<String, Reservation> {
    let one = |n: u32| {
        let start = begin.plus(EVERY * (n + 1));
        let users = if n.is_multiple_of(2) { "user1001" } else { "user1001,user1002,user1003,user1004" };
        Reservation {
            name: format!("r{n}"),
            start,
            end: start.plus(LENGTH),
            nodes: vec![format!("n{}", n * 3 % nodes)],
            users: AccessList::parse(users).unwrap_or_default(),
            ..Reservation::default()
        }
    };
    (0..COUNT).map(one).map(|reservation| (reservation.name.clone(), reservation)).collect()
}

/// What is shown of reservations, and since when.
#[derive(Debug, Default)]
pub(super) struct ShownReservations {
    /// By name; `None`: it is gone.
    all: BTreeMap<String, (Timestamp, Option<Arc<Reservation>>)>,
}

impl ShownReservations {
    /// In name order.
    pub(super) fn list(&self) -> Vec<Arc<Reservation>> {
        self.all.values().filter_map(|(_, shown)| shown.clone()).collect()
    }

    fn get(&self, name: &str) -> Option<&Arc<Reservation>> {
        self.all.get(name)?.1.as_ref()
    }

    /// Those that have been shown like that for some time.
    fn settled(&self, now: Timestamp) -> impl Iterator<Item = &Arc<Reservation>> {
        self.all.values().filter(move |(since, _)| now.since(*since) > SLACK).filter_map(|(_, shown)| shown.as_ref())
    }

    /// Has it been gone for some time?
    fn is_gone(&self, name: &str, now: Timestamp) -> bool {
        self.all.get(name).is_some_and(|(since, shown)| shown.is_none() && now.since(*since) > SLACK)
    }
}

/// What the verbs of reservations come to in the world, and what comes of its errands.
struct ReservationStage<'w>(&'w mut World, &'w mut VecDeque<ReservationInput>);

impl Stage<ReservationsCore> for ReservationStage<'_> {
    fn tell(&mut self, letter: Letter) {
        self.0.post(Place::Reservations, letter);
    }

    fn run(&mut self, errand: ReservationErrand) {
        // Worlds have no programs of a site.
        let ReservationErrand::Look { jobs } = errand else { return };
        let world = &*self.0;
        let seen = Snapshot {
            nodes: world.shown_nodes.values().cloned().collect(),
            partitions: world.partitions.clone(),
            licenses: world.licenses.totals().clone(),
            jobs: if jobs { world.shown_jobs.values().cloned().collect() } else { Vec::new() },
            over_run: Some(Duration::ZERO),
            prolog: None,
            epilog: None,
            zone: TimeZone::UTC,
        };
        self.1.push_back(ReservationInput::Seen(Box::new(seen)));
    }

    fn set_timer(&mut self, _: ReservationTimer, at: Timestamp) {
        self.0.set_clock_timer(at, Happening::ReservationTimer);
    }

    fn clear_timer(&mut self, _: ReservationTimer) {
        self.0.clear_timer(&Happening::ReservationTimer);
    }

    fn publish(&mut self, changed: Changed) {
        let Changed { name, saved } = changed;
        let world = &mut *self.0;
        let gone = saved.is_none();
        if (gone && world.has(Mutation::DeletedReservationsStay))
            || (!gone
                && world.has(Mutation::ReservationsStayAsTheyWere)
                && world.shown_reservations.get(&name).is_some())
        {
            return;
        }
        world.shown_reservations.all.insert(name, (world.now, saved.map(Arc::new)));
        world.is_shown(|seen| &mut seen.reservations);
    }

    fn answer(&mut self, _: u64, answer: Result<String, Refusal>) {
        let what = if answer.is_ok() { "reservation changed" } else { "change of a reservation refused" };
        self.0.ledger.counts.add(what);
    }

    fn stop(&mut self) {}
}

impl World {
    /// The owner of reservations begins with what is saved.
    pub(super) fn start_reservations(&mut self) {
        self.shown_reservations = ShownReservations::default();
        self.lives.reservations = Life::default();
        self.begin_reservations();
    }

    fn begin_reservations(&mut self) {
        self.reservations = ReservationsCore::new(self.replayed.reservations.clone());
        let shown = self.shown_reservations.list().iter().map(|shown| shown.name.clone()).collect();
        self.reservations_go_on(ReservationInput::Begun { shown });
        while let Some(early) = self.lives.reservations.next_early() {
            self.tell_reservations(early);
        }
    }

    pub(super) fn tell_reservations(&mut self, input: ReservationInput) {
        if let Some(input) = self.lives.reservations.wait(input) {
            self.reservations_go_on(input);
        }
    }

    /// Its turns, until nothing more comes of its errands at once.
    fn reservations_go_on(&mut self, input: ReservationInput) {
        let mut again = VecDeque::from([input]);
        while let Some(input) = again.pop_front() {
            let begins = matches!(input, ReservationInput::Begun { .. });
            if !begins && self.fails_over_it(5) {
                return self.reservations_fail();
            }
            let (mut out, clock) = (Vec::new(), self.clock());
            Owner::handle(&mut self.reservations, clock, &mut self.ids, input, &mut out);
            if let Some((batch, events)) = Turn::<ReservationsCore>::of(out).queue(&mut self.outboxes.reservations) {
                let batch = self.lives.reservations.number_of(batch);
                self.append(Writer::Reservations, batch, events);
            }
            self.flush_reservations(&mut again);
        }
    }

    /// Their owner panics over what it is told. Another begins once all that this one appended is committed.
    fn reservations_fail(&mut self) {
        self.meets_all("owner of reservations failed");
        self.outboxes.reservations = Outbox::default();
        self.clear_timer(&Happening::ReservationTimer);
        let batch = self.lives.reservations.fail();
        self.append(Writer::Reservations, batch, Vec::new());
    }

    pub(super) fn reservations_are_saved(&mut self, batch: u64) {
        match self.lives.reservations.saved(batch) {
            Saved::All => self.begin_reservations(),
            Saved::Batch(batch) => {
                self.outboxes.reservations.saved(batch);
                let mut again = VecDeque::new();
                self.flush_reservations(&mut again);
                again.into_iter().for_each(|input| self.tell_reservations(input));
            }
            Saved::OfEarlierLife => {}
        }
    }

    fn flush_reservations(&mut self, again: &mut VecDeque<ReservationInput>) {
        while let Some(effects) = self.outboxes.reservations.take_ready() {
            perform(effects, &mut ReservationStage(self, again));
        }
    }

    /// An administrator makes a reservation, changes one, or ends one.
    pub(super) fn change_some_reservation(&mut self) {
        let names: Vec<String> = self.reservations.list().map(|r| r.name.clone()).collect();
        let name = self.random.pick(&names).cloned();
        let secs = |world: &mut Self, most| u64::from(world.random.between(30, most));
        let users = AccessList::parse(["user1001", "user1001,user1002"][self.random.between(0, 1) as usize]);
        let ask = match (self.random.between(0, 4), name) {
            (0, Some(name)) => ReservationAsk::Delete(name),
            (1, Some(name)) => {
                let nodes = Some(NodesWanted::Named(vec![self.some_node()]));
                ReservationAsk::Update(Box::new(ReservationChange { name: Some(name), nodes, ..Default::default() }))
            }
            (2, Some(name)) => {
                let (start, duration_secs) =
                    (self.clock().plus(Duration::from_secs(secs(self, 300))), Some(secs(self, 300)));
                let change = ReservationChange {
                    name: Some(name),
                    start: Some(start),
                    duration_secs,
                    users,
                    ..Default::default()
                };
                ReservationAsk::Update(Box::new(change))
            }
            _ => {
                // Names of which some are asked for by jobs.
                let name = Some(format!("r{}", self.random.between(0, 12)));
                let (start, duration_secs) =
                    (Some(self.clock().plus(Duration::from_secs(secs(self, 300)))), Some(secs(self, 300)));
                let nodes = Some(if self.random.one_in_thousand(500) {
                    NodesWanted::Count(self.random.between(1, 2))
                } else {
                    NodesWanted::Named(vec![self.some_node()])
                });
                let set = self.random.one_in_thousand(500).then_some(ReservationFlag::IgnoreJobs).into_iter().collect();
                let change = ReservationChange { name, start, duration_secs, nodes, users, set, ..Default::default() };
                ReservationAsk::Create { by: "root".to_owned(), change: Box::new(change) }
            }
        };
        self.requests += 1;
        let request = self.requests;
        self.send(Place::Frontend, Happening::Reservations(ReservationInput::Asked { request, ask }));
    }

    fn some_node(&mut self) -> String {
        let last = u32::try_from(self.machines.len() - 1).unwrap_or(0);
        format!("n{}", self.random.between(0, last))
    }

    /// Is any of these still to come, or there?
    pub(super) fn may_be_waited_for(&self, names: &[String]) -> bool {
        names.iter().any(|name| self.shown_reservations.get(name).is_some())
    }

    /// See the rule of this name.
    pub(super) fn shows_reservations_as_saved(&self) -> Result<(), String> {
        // What is on its way to the disk is not shown yet, nor what an owner had to show that failed.
        if !self.outboxes.reservations.is_empty() || self.lives.reservations.is_waiting() {
            return Ok(());
        }
        let saved = &self.replayed.reservations;
        let shown = self.shown_reservations.list();
        let other = |r: &&Arc<Reservation>| saved.get(&r.name) != Some(&***r);
        let one = shown.iter().find(other).map(|r| &r.name);
        let missing = saved.keys().find(|name| self.shown_reservations.get(name).is_none());
        ensure(one.or(missing).is_none(), || {
            let name = one.or(missing).cloned().unwrap_or_default();
            format!("{name} is shown as {:?}, and saved as {:?}", self.shown_reservations.get(&name), saved.get(&name))
        })
    }

    /// A run is given nodes: by its time limit it is over before they are reserved for others, and in one that it asked for.
    pub(super) fn against_reservations(&mut self, job: JobId, run: &Run) {
        // The plan may have been made by another time than it is now.
        if self.now.since(self.clock_stepped) < SLACK {
            return;
        }
        let (from, inside) = (self.clock(), run.allocation.reservation.as_ref());
        let until = run.time_limit.duration().map_or(Timestamp(i64::MAX), |limit| from.plus(limit));
        let has = |reservation: &Reservation| run.allocation.nodes.iter().any(|n| reservation.nodes.contains(&n.name));
        let settled: Vec<_> = self.shown_reservations.settled(self.now).collect();
        let in_the_way = settled.iter().find(|reservation| {
            let others = Some(&reservation.name) != inside && has(reservation);
            others && reservation.start.plus(SLACK) < until && from.plus(SLACK) < reservation.end
        });
        let outside = settled.iter().find(|reservation| {
            let all = run.allocation.nodes.iter().all(|n| reservation.nodes.contains(&n.name));
            let during = reservation.start < from.plus(SLACK) && from < reservation.end.plus(SLACK);
            Some(&reservation.name) == inside && !(all && during)
        });
        if let Some(name) = inside.filter(|name| self.shown_reservations.is_gone(name, self.now)) {
            let what = format!("job {} is given nodes in reservation {name}, which is gone", job.0);
            self.broken = Some(("a_reservation_is_kept_for_its_jobs", what));
        } else if let Some(reservation) = in_the_way.or(outside) {
            let (name, start, end) = (&reservation.name, reservation.start, reservation.end);
            let what = format!(
                "job {}, inside {inside:?}, is given {:?} from {from:?} to {until:?}; reservation {name} has {:?} from {start:?} to {end:?}",
                job.0,
                run.allocation.nodes.iter().map(|n| &n.name).collect::<Vec<_>>(),
                reservation.nodes
            );
            self.broken = Some(("a_reservation_is_kept_for_its_jobs", what));
        }
    }
}
