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
use garrick_model::{refusal::Refusal, reservation::Reservation, time::Timestamp};
use garrick_runtime::{Actor, Context, ReplyTo};
use jiff::tz::TimeZone;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The clock is looked at again after this at the latest, since somebody may set it.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

enum Effect {
    Publish(Changed),
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
        let zone = TimeZone::system();
        let (nodes, partitions) = (self.env.boards.nodes.list(), self.env.boards.partitions.list());
        let site = Site { nodes: &nodes, partitions: &partitions, zone: &zone, now: Timestamp::now() };
        match decision(&mut self.core, &site) {
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
        let effects = changes.into_iter().map(Effect::Publish).chain(after).collect();
        let batch = self.outbox.push_unsaved(effects);
        cx.pipe(done, move |answer| ReservationMsg::Journaled { batch, result: journal_outcome(answer) });
    }

    /// What is over goes or moves on, what begins is told, and the next time is waited for.
    fn tick(&mut self, cx: &mut Context<Self>) {
        let now = Timestamp::now();
        let changes = self.core.tick(now, &TimeZone::system());
        if !changes.is_empty() {
            self.save(cx, changes, Vec::new());
        }
        let since = self.looked;
        let begun = self.core.list().filter(|r| since < r.start && r.start <= now);
        let begun: Vec<Effect> = begun.map(|r| Effect::Again(Arc::new(r.clone()))).collect();
        self.outbox.push(begun);
        self.looked = now;
        let wait = self.core.next_change(now).map_or(LONGEST_WAIT, |at| at.since(now).min(LONGEST_WAIT));
        cx.set_timer("tick", wait, ReservationMsg::Tick);
    }

    fn flush(&mut self) {
        let board = &self.env.boards.reservations;
        while let Some(effects) = self.outbox.take_ready() {
            for effect in effects {
                match effect {
                    Effect::Publish(Changed { name, saved: Some(saved) }) => {
                        board.publish(name, Arc::new(saved));
                    }
                    Effect::Publish(Changed { name, saved: None }) => {
                        board.remove(&name);
                    }
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

impl Actor for ReservationsActor {
    type Msg = ReservationMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        let shown: BTreeMap<String, Reservation> = self.core.list().map(|r| (r.name.clone(), r.clone())).collect();
        let publish = |(name, saved)| Effect::Publish(Changed { name, saved: Some(saved) });
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
            ReservationMsg::Delete { name, reply } => self.decide(cx, reply, |core, _| core.delete(&name)),
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
