//! Reservations that begin and end, known from the start on, and that those who are not in them stay away.

use super::world::World;
use garrick_actors::job::record::Run;
use garrick_model::{
    ids::JobId,
    reservation::{AccessList, Reservation},
    time::Timestamp,
};
use std::{sync::Arc, time::Duration};

/// So many there are.
const COUNT: u32 = 8;
/// From the begin of one to that of the next.
const EVERY: Duration = Duration::from_secs(200);
/// How long each is.
const LENGTH: Duration = Duration::from_secs(150);
/// A plan may be so old when its starts are carried out.
const SLACK: Duration = Duration::from_secs(60);

/// Of one node each, in turn, and every second one of a single user.
pub(super) fn some_reservations(begin: Timestamp, nodes: u32) -> Vec<Arc<Reservation>> {
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
    (0..COUNT).map(|n| Arc::new(one(n))).collect()
}

impl World {
    /// Those that are not over, as their owner shows them.
    pub(super) fn shown_reservations(&self) -> Vec<Arc<Reservation>> {
        self.reservations.iter().filter(|reservation| reservation.end > self.clock()).cloned().collect()
    }

    /// Is any of these still to come, or there?
    pub(super) fn may_be_waited_for(&self, names: &[String]) -> bool {
        self.shown_reservations().iter().any(|reservation| names.contains(&reservation.name))
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
        let in_the_way = self.reservations.iter().find(|reservation| {
            let others = Some(&reservation.name) != inside && has(reservation);
            others && reservation.start.plus(SLACK) < until && from.plus(SLACK) < reservation.end
        });
        let outside = self.reservations.iter().find(|reservation| {
            let all = run.allocation.nodes.iter().all(|n| reservation.nodes.contains(&n.name));
            let during = reservation.start < from.plus(SLACK) && from < reservation.end.plus(SLACK);
            Some(&reservation.name) == inside && !(all && during)
        });
        if let Some(reservation) = in_the_way.or(outside) {
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
