//! The owner of all reservations: its inputs and effects. The data for a decision are requested by an errand and come as an
//! input, so that each decision is made from one snapshot.

use super::core::{Changed, ReservationsCore, Site};
use crate::{
    messages::{job::JobInput, letter::Letter},
    owner::{Effect, FreshIds, Out, Owner},
};
use garrick_events::event::ControllerEvent;
use garrick_model::{
    refusal::Refusal,
    reservation::{Reservation, ReservationChange},
    site_program::Moment,
    state::JobState,
    time::Timestamp,
    view::{JobView, NodeView, PartitionView},
};
use jiff::tz::TimeZone;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The clock is checked at least this often, since it may be set.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How often nodes and jobs are checked for reservations that depend on them.
const WATCHED: Duration = Duration::from_secs(10);

/// How soon jobs are checked again that are to leave a reservation or no longer wait for it.
const RELEASED: Duration = Duration::from_secs(1);

/// The frontend's questions about reservations. The answer is the reservation's name, and is sent when the change is on disk.
#[derive(Clone, Debug, PartialEq)]
pub enum ReservationAsk {
    /// A new one.
    Create {
        /// Name of who asks.
        by: String,
        /// What is asked for.
        change: Box<ReservationChange>,
    },
    /// A change of one. May be asked twice.
    Update(Box<ReservationChange>),
    /// The end of one.
    Delete(String),
}

/// Inputs of the owner of reservations.
#[derive(Clone, Debug)]
pub enum ReservationInput {
    /// The actor's life begins.
    Begun {
        /// Names of published reservations. An earlier life may have failed before it removed one that it had ended.
        shown: BTreeSet<String>,
    },
    /// Somebody asks.
    Asked {
        /// Request.
        request: u64,
        /// What.
        ask: ReservationAsk,
    },
    /// One of them begins or ends now.
    Tick,
    /// Answer to [`ReservationErrand::Look`].
    Seen(Box<Snapshot>),
}

/// Errands of the owner of reservations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservationErrand {
    /// Run a program of the site with the reservation's name. What comes of it is in the log.
    Run {
        /// Which: at the begin or at the end.
        moment: Moment,
        /// Absolute path.
        program: PathBuf,
        /// Name of the reservation.
        name: String,
    },
    /// Read the views; those of jobs only if requested.
    Look {
        /// Jobs too.
        jobs: bool,
    },
}

/// Its one timer: the next time that one of them begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationTimer;

/// What it publishes: a reservation, or its deletion.
pub type ReservationEffect = Effect<ReservationTimer, Changed, Result<String, Refusal>, ReservationErrand>;

/// The data for decisions, at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Nodes, in configuration order.
    pub nodes: Vec<Arc<NodeView>>,
    /// Partitions.
    pub partitions: Vec<Arc<PartitionView>>,
    /// How many licenses there are of each name.
    pub licenses: BTreeMap<String, u32>,
    /// Jobs, where they were asked for.
    pub jobs: Vec<Arc<JobView>>,
    /// `ResvOverRun`: how long jobs may stay after a reservation has ended; `None`: for ever.
    pub over_run: Option<Duration>,
    /// `ResvProlog`.
    pub prolog: Option<PathBuf>,
    /// `ResvEpilog`.
    pub epilog: Option<PathBuf>,
    /// Zone in which days begin.
    pub zone: TimeZone,
}

/// The names of reservations that jobs use or request.
#[derive(Default)]
struct Names {
    in_use: BTreeSet<String>,
    awaited: BTreeSet<String>,
    unaware: BTreeSet<String>,
}

impl Names {
    fn of(jobs: &[Arc<JobView>]) -> Self {
        let mut names = Self::default();
        for job in jobs {
            let inside = || job.allocation.as_ref().and_then(|a| a.reservation.clone());
            if is_unaware(job) {
                names.unaware.extend(inside());
            }
            if job.state.waits() {
                names.awaited.extend(job.spec.reservations.iter().cloned());
            } else if has_resources(job) {
                names.in_use.extend(inside());
            }
        }
        names
    }
}

fn has_resources(job: &JobView) -> bool {
    let states = [JobState::Configuring, JobState::Running, JobState::Suspended, JobState::Completing];
    states.contains(&job.state)
}

/// Does it run, and was not told that its reservation has ended?
fn is_unaware(job: &JobView) -> bool {
    let runs = job.state.works();
    runs && job.leave_by.is_none() && job.ending.is_none()
}

impl Owner for ReservationsCore {
    type Input = ReservationInput;
    type Timer = ReservationTimer;
    type Shown = Changed;
    type Answer = Result<String, Refusal>;
    type Errand = ReservationErrand;

    fn handle(&mut self, now: Timestamp, _: &mut dyn FreshIds, input: ReservationInput, out: &mut Out<Self>) {
        match input {
            ReservationInput::Begun { mut shown } => {
                self.looked = now;
                let all: Vec<Reservation> = self.list().cloned().collect();
                shown.retain(|name| all.iter().all(|one| one.name != *name));
                out.extend(shown.into_iter().map(|name| Effect::Publish(Changed { name, saved: None })));
                out.extend(all.into_iter().map(shows));
                self.look(out);
            }
            ReservationInput::Asked { request, ask } => {
                self.asked.push_back((request, ask));
                self.look(out);
            }
            ReservationInput::Tick => self.look(out),
            ReservationInput::Seen(snapshot) => self.seen(now, &snapshot, out),
        }
    }

    fn timer(_: ReservationTimer) -> ReservationInput {
        ReservationInput::Tick
    }
}

fn shows(reservation: Reservation) -> ReservationEffect {
    Effect::Publish(Changed { name: reservation.name.clone(), saved: Some(reservation) })
}

impl ReservationsCore {
    fn look(&self, out: &mut Out<Self>) {
        let jobs = !self.asked.is_empty() || self.list().next().is_some();
        out.push(Effect::Do(ReservationErrand::Look { jobs }));
    }

    fn seen(&mut self, now: Timestamp, snapshot: &Snapshot, out: &mut Out<Self>) {
        let Snapshot { nodes, partitions, licenses, jobs, over_run, prolog, epilog, zone } = snapshot;
        let Names { in_use, awaited, unaware } = &Names::of(jobs);
        let site = Site { nodes, partitions, licenses, in_use, awaited, unaware, over_run: *over_run, zone, now };
        for (request, ask) in std::mem::take(&mut self.asked) {
            let decided = match ask {
                ReservationAsk::Create { by, change } => self.create(&site, &by, &change),
                ReservationAsk::Update(change) => self.update(&site, &change),
                ReservationAsk::Delete(name) => self.delete(&site, &name),
            };
            let answer = decided.map(|changed| {
                tracing::info!(reservation = changed.name, gone = changed.saved.is_none(), "reservation.changed");
                let name = changed.name.clone();
                save(now, changed, out);
                name
            });
            out.push(Effect::Answer { request, answer });
        }
        self.end_and_begin(&site, [prolog.as_ref(), epilog.as_ref()], out);
        self.go_by_time(&site, jobs, out);
    }

    /// Moves on or removes what is over, and runs the site's programs for what ends and begins. That a reservation has begun, or is no
    /// longer there, is on disk before its program runs: each runs once, or not at all where the controller ends in between.
    fn end_and_begin(&mut self, site: &Site<'_>, [prolog, epilog]: [Option<&PathBuf>; 2], out: &mut Out<Self>) {
        let begun: BTreeSet<String> = self.list().filter(|r| r.begun).map(|r| r.name.clone()).collect();
        for changed in self.tick(site) {
            // One that had its nodes replaced goes on.
            let ends = begun.contains(&changed.name) && !changed.saved.as_ref().is_some_and(|saved| saved.begun);
            let name = changed.name.clone();
            save(site.now, changed, out);
            if let Some(program) = epilog.filter(|_| ends) {
                out.push(run(Moment::ReservationEpilog, program, name));
            }
        }
        if prolog.is_none() && epilog.is_none() {
            return;
        }
        for changed in self.begin(site.now) {
            let name = changed.name.clone();
            save(site.now, changed, out);
            if let Some(program) = prolog {
                out.push(run(Moment::ReservationProlog, program, name));
            }
        }
    }

    /// Announces what begins, tells jobs of reservations that are over, and waits for the next time.
    fn go_by_time(&mut self, site: &Site<'_>, jobs: &[Arc<JobView>], out: &mut Out<Self>) {
        let (now, watches) = (site.now, self.watches());
        let released = self.released(site);
        let dismissed = self.dismissed(site);
        for job in jobs.iter().filter(|job| job.state.waits()) {
            // A job that still waits for them is told again.
            if job.spec.reservations.iter().any(|name| released.contains(name)) {
                tracing::info!(job_id = %job.id, "reservation.job_released");
                out.push(Effect::Tell(Letter::Job(job.id, JobInput::ReservationsGone(released.clone()))));
            }
        }
        for job in jobs.iter().filter(|job| is_unaware(job)) {
            let inside = job.allocation.as_ref().and_then(|a| a.reservation.as_ref());
            // A job that has not noted it is told again.
            if let Some(at) = inside.and_then(|name| dismissed.get(name)) {
                tracing::info!(job_id = %job.id, "reservation.job_dismissed");
                out.push(Effect::Tell(Letter::Job(job.id, JobInput::LeaveBy(*at))));
            }
        }
        let since = std::mem::replace(&mut self.looked, now);
        // Those that depend on a reservation that begins now are told to check again.
        let begun: Vec<Reservation> = self.list().filter(|r| since < r.start && r.start <= now).cloned().collect();
        out.extend(begun.into_iter().map(shows));
        let longest = match (released.is_empty() && dismissed.is_empty(), watches) {
            (false, _) => RELEASED,
            (true, true) => WATCHED,
            (true, false) => LONGEST_WAIT,
        };
        let wait = self.next_change(now).map_or(longest, |at| at.since(now).min(longest));
        out.push(Effect::SetTimer { timer: ReservationTimer, at: now.plus(wait) });
    }
}

fn run(moment: Moment, program: &Path, name: String) -> ReservationEffect {
    Effect::Do(ReservationErrand::Run { moment, program: program.to_owned(), name })
}

fn save(at: Timestamp, changed: Changed, out: &mut Vec<ReservationEffect>) {
    let (reservation, saved) = (changed.name.clone(), changed.saved.clone().map(Box::new));
    out.push(Effect::Save(ControllerEvent::Reservation { reservation, saved, at: Some(at) }));
    out.push(Effect::Publish(changed));
}
