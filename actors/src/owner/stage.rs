//! Carries effects out. [`perform`] is the only interpreter of effects; the surroundings of an owner (the controller's actor, a
//! test, the simulator) implement each kind in a [`Stage`].

use super::{Effect, EffectOf, Owner, outbox::Outbox};
use crate::messages::letter::Letter;
use garrick_events::event::ControllerEvent;
use garrick_model::time::Timestamp;

/// How the effects of one owner are carried out. Saving is separate: see [`Turn`].
pub trait Stage<O: Owner> {
    /// Delivers a letter, or tells those that have to know that it cannot be delivered.
    fn tell(&mut self, letter: Letter);
    /// Carries out an errand. Its result is the owner's next input, or a letter.
    fn run(&mut self, errand: O::Errand);
    /// Sets a timer.
    fn set_timer(&mut self, timer: O::Timer, at: Timestamp);
    /// Clears one.
    fn clear_timer(&mut self, timer: O::Timer);
    /// Publishes a view.
    fn publish(&mut self, shown: O::Shown);
    /// Answers the requester, if it still waits.
    fn answer(&mut self, request: u64, answer: O::Answer);
    /// Removes the owner.
    fn stop(&mut self);
}

/// Carries out effects whose events are saved.
pub fn perform<O: Owner>(effects: Vec<EffectOf<O>>, stage: &mut impl Stage<O>) {
    for effect in effects {
        match effect {
            // Taken out by `Turn`.
            Effect::Save(_) => {}
            Effect::Tell(letter) => stage.tell(letter),
            Effect::Do(errand) => stage.run(errand),
            Effect::SetTimer { timer, at } => stage.set_timer(timer, at),
            Effect::ClearTimer(timer) => stage.clear_timer(timer),
            Effect::Publish(shown) => stage.publish(shown),
            Effect::Answer { request, answer } => stage.answer(request, answer),
            Effect::Stop => stage.stop(),
        }
    }
}

/// The effects of one turn, with the events separated.
pub struct Turn<O: Owner> {
    /// Events to be saved together.
    pub events: Vec<ControllerEvent>,
    /// Effects that follow.
    pub rest: Vec<EffectOf<O>>,
}

impl<O: Owner> Turn<O> {
    /// Takes the events out.
    pub fn of(effects: Vec<EffectOf<O>>) -> Self {
        // A turn of the scheduler has many effects, and none is an event.
        if !effects.iter().any(|effect| matches!(effect, Effect::Save(_))) {
            return Self { events: Vec::new(), rest: effects };
        }
        let (mut events, mut rest) = (Vec::new(), Vec::with_capacity(effects.len()));
        for effect in effects {
            match effect {
                Effect::Save(event) => events.push(event),
                other => rest.push(other),
            }
        }
        Self { events, rest }
    }

    /// Queues the effects. Returns the batch to be saved, with its events; `None`: there are no events.
    pub fn queue(self, outbox: &mut Outbox<EffectOf<O>>) -> Option<(u64, Vec<ControllerEvent>)> {
        if self.events.is_empty() {
            outbox.push(self.rest);
            return None;
        }
        Some((outbox.push_unsaved(self.rest), self.events))
    }
}
