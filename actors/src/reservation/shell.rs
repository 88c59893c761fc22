//! The actor that owns all reservations, at `/reservation`.

use super::{
    core::{Changed, ReservationsCore, Site},
    messages::ReservationMsg,
};
use crate::controller::{
    env::{Env, journal_outcome},
    event::ControllerEvent,
    outbox::Outbox,
};
use crate::job::messages::{Authority, JobCommand, JobMsg};
use garrick_model::{
    config::Config,
    messages::command::JobChange,
    refusal::Refusal,
    reservation::Reservation,
    state::JobState,
    time::{Timestamp, system_zone},
    view::{JobView, NodeView, PartitionView},
};
use garrick_runtime::{Actor, Context, ReplyTo};
use jiff::tz::TimeZone;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The clock is looked at again after this at the latest, since somebody may set it.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Nodes and jobs of reservations that go by them are looked at again after this.
const WATCHED: Duration = Duration::from_secs(10);

/// Jobs that are to wait for a reservation no longer, or to leave one, are looked at again after this.
const RELEASED: Duration = Duration::from_secs(1);

enum Effect {
    Publish(Box<Changed>),
    /// It begins or ends: what goes by it is to look again.
    Again(Arc<Reservation>),
    Answer(ReplyTo<Result<String, Refusal>>, Result<String, Refusal>),
}

/// The actor.
pub struct ReservationsActor {
    env: Arc<Env>,
    core: ReservationsCore,
    outbox: Outbox<Effect>,
    looked: Timestamp,
}

impl ReservationsActor {
    /// An owner of what is saved.
    pub fn new(env: Arc<Env>) -> Self {
        let core = ReservationsCore::new(env.reservations());
        Self { env, core, outbox: Outbox::default(), looked: Timestamp::now() }
    }

    fn decide(
        &mut self,
        cx: &mut Context<Self>,
        reply: ReplyTo<Result<String, Refusal>>,
        decision: impl FnOnce(&mut ReservationsCore, &Site<'_>) -> Result<Changed, Refusal>,
    ) {
        let picture = Picture::of(&self.env, Timestamp::now()).with_jobs(&self.env);
        match decision(&mut self.core, &picture.site()) {
            Ok(changed) => {
                tracing::info!(reservation = changed.name, gone = changed.saved.is_none(), "reservation.changed");
                let name = changed.name.clone();
                self.save(cx, vec![changed], vec![Effect::Answer(reply, Ok(name))]);
                self.tick(cx);
            }
            Err(refusal) => self.outbox.push(vec![Effect::Answer(reply, Err(refusal))]),
        }
    }

    fn save(&mut self, cx: &mut Context<Self>, changes: Vec<Changed>, after: Vec<Effect>) {
        let events = changes.iter().map(|changed| ControllerEvent::Reservation {
            reservation: changed.name.clone(),
            saved: changed.saved.clone().map(Box::new),
        });
        let done = self.env.append(events.collect());
        for changed in &changes {
            self.env.keep_reservation(&changed.name, changed.saved.clone());
        }
        let effects = changes.into_iter().map(Box::new).map(Effect::Publish).chain(after).collect();
        let batch = self.outbox.push_unsaved(effects);
        cx.pipe(done, move |answer| ReservationMsg::Journaled { batch, result: journal_outcome(answer) });
    }

    /// What is over goes or moves on, what begins is told, and the next time is waited for.
    fn tick(&mut self, cx: &mut Context<Self>) {
        let now = Timestamp::now();
        let watches = self.core.watches();
        let picture = if self.core.list().next().is_some() {
            Picture::of(&self.env, now).with_jobs(&self.env)
        } else {
            Picture::of(&self.env, now)
        };
        let changes = self.core.tick(&picture.site());
        let released = self.core.released(&picture.site());
        self.release(cx, &released);
        let dismissed = self.core.dismissed(&picture.site());
        self.dismiss(cx, &dismissed);
        if !changes.is_empty() {
            self.save(cx, changes, Vec::new());
        }
        let since = self.looked;
        let begun = self.core.list().filter(|r| since < r.start && r.start <= now);
        let begun: Vec<Effect> = begun.map(|r| Effect::Again(Arc::new(r.clone()))).collect();
        self.outbox.push(begun);
        self.looked = now;
        let longest = match (released.is_empty() && dismissed.is_empty(), watches) {
            (false, _) => RELEASED,
            (true, true) => WATCHED,
            (true, false) => LONGEST_WAIT,
        };
        let wait = self.core.next_change(now).map_or(longest, |at| at.since(now).min(longest));
        cx.set_timer("tick", wait, ReservationMsg::Tick);
    }

    /// Has jobs wait without these reservations. One that does not is asked again.
    fn release(&self, cx: &mut Context<Self>, names: &BTreeSet<String>) {
        if names.is_empty() {
            return;
        }
        let jobs = self.env.boards.jobs.list();
        for job in jobs.iter().filter(|job| job.state.waits()) {
            let asked = &job.spec.reservations;
            let left: Vec<String> = asked.iter().filter(|name| !names.contains(*name)).cloned().collect();
            if left.len() < asked.len() {
                tracing::info!(job_id = %job.id, "reservation.job_released");
                let change = Box::new(JobChange { reservations: Some(left), ..JobChange::default() });
                let (reply, _) = ReplyTo::channel();
                let by = Authority { uid: 0, admin: true };
                let command = JobCommand::Update(change);
                self.env.ask_job(cx, job.id, JobMsg::Command { by, tasks: None, command, reply });
            }
        }
    }

    /// Tells jobs by when they leave these reservations. One that has not noted it is told again.
    fn dismiss(&self, cx: &mut Context<Self>, ended: &BTreeMap<String, Timestamp>) {
        if ended.is_empty() {
            return;
        }
        for job in self.env.boards.jobs.list().iter().filter(|job| is_unaware(job)) {
            let inside = job.allocation.as_ref().and_then(|a| a.reservation.as_ref());
            if let Some(at) = inside.and_then(|name| ended.get(name)) {
                tracing::info!(job_id = %job.id, "reservation.job_dismissed");
                let (reply, _) = ReplyTo::channel();
                let by = Authority { uid: 0, admin: true };
                let command = JobCommand::LeaveBy(*at);
                self.env.ask_job(cx, job.id, JobMsg::Command { by, tasks: None, command, reply });
            }
        }
    }

    fn flush(&mut self) {
        let board = &self.env.boards.reservations;
        while let Some(effects) = self.outbox.take_ready() {
            for effect in effects {
                match effect {
                    Effect::Publish(changed) => match *changed {
                        Changed { name, saved: Some(saved) } => {
                            board.publish(name, Arc::new(saved));
                        }
                        Changed { name, saved: None } => {
                            board.remove(&name);
                        }
                    },
                    Effect::Again(reservation) => {
                        // Not one that was deleted meanwhile.
                        if board.get(&reservation.name).is_some_and(|shown| shown == reservation) {
                            board.publish(reservation.name.clone(), reservation);
                        }
                    }
                    Effect::Answer(reply, result) => reply.reply(result),
                }
            }
        }
    }
}

/// What decisions are made from, at one time.
struct Picture {
    nodes: Vec<Arc<NodeView>>,
    partitions: Vec<Arc<PartitionView>>,
    licenses: BTreeMap<String, u32>,
    in_use: BTreeSet<String>,
    awaited: BTreeSet<String>,
    unaware: BTreeSet<String>,
    over_run: Option<Duration>,
    zone: TimeZone,
    now: Timestamp,
}

/// `ResvOverRun`: how long jobs may stay in a reservation that is over; `None`: for ever.
pub(super) fn over_run(config: &Config) -> Option<Duration> {
    config.resv_over_run.minutes().map(|minutes| Duration::from_secs(minutes * 60))
}

impl Picture {
    fn of(env: &Env, now: Timestamp) -> Self {
        Self {
            nodes: env.boards.nodes.list(),
            partitions: env.boards.partitions.list(),
            licenses: env.licenses.lock().totals().clone(),
            in_use: BTreeSet::new(),
            awaited: BTreeSet::new(),
            unaware: BTreeSet::new(),
            over_run: over_run(&env.config()),
            zone: system_zone(),
            now,
        }
    }

    fn with_jobs(mut self, env: &Env) -> Self {
        for job in env.boards.jobs.list() {
            if is_unaware(&job) {
                self.unaware.extend(job.allocation.as_ref().and_then(|a| a.reservation.clone()));
            }
            if job.state.waits() {
                self.awaited.extend(job.spec.reservations.iter().cloned());
            } else if matches!(
                job.state,
                JobState::Configuring | JobState::Running | JobState::Suspended | JobState::Completing
            ) {
                self.in_use.extend(job.allocation.as_ref().and_then(|a| a.reservation.clone()));
            }
        }
        self
    }

    const fn site(&self) -> Site<'_> {
        let Self { nodes, partitions, licenses, in_use, awaited, unaware, over_run, zone, now } = self;
        let (nodes, partitions) = (nodes.as_slice(), partitions.as_slice());
        Site { nodes, partitions, licenses, in_use, awaited, unaware, over_run: *over_run, zone, now: *now }
    }
}

/// Does it run, and has not heard that the time of its reservation is over?
fn is_unaware(job: &JobView) -> bool {
    let runs = matches!(job.state, JobState::Configuring | JobState::Running | JobState::Suspended);
    runs && job.leave_by.is_none() && job.ending.is_none()
}

impl Actor for ReservationsActor {
    type Msg = ReservationMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        let shown: BTreeMap<String, Reservation> = self.core.list().map(|r| (r.name.clone(), r.clone())).collect();
        let publish = |(name, saved)| Effect::Publish(Box::new(Changed { name, saved: Some(saved) }));
        self.outbox.push(shown.into_iter().map(publish).collect());
        self.tick(cx);
        self.flush();
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: ReservationMsg) {
        match message {
            ReservationMsg::Create { by, change, reply } => {
                self.decide(cx, reply, |core, site| core.create(site, &by, &change));
            }
            ReservationMsg::Update { change, reply } => {
                self.decide(cx, reply, |core, site| core.update(site, &change));
            }
            ReservationMsg::Delete { name, reply } => {
                self.decide(cx, reply, |core, site| core.delete(site, &name));
            }
            ReservationMsg::Tick => self.tick(cx),
            ReservationMsg::Journaled { batch, result } => match result {
                Ok(()) => self.outbox.saved(batch),
                Err(error) => {
                    tracing::error!(error, "reservation.not_saved");
                    self.outbox.lost(batch);
                }
            },
        }
        self.flush();
    }
}
