//! Where effects come to something. [`perform`] is the only interpreter of them; who lets owners live (the controller's
//! actor, a test, the simulator) says in a [`Stage`] what each verb is there.

use super::{Effect, EffectOf, Owner, outbox::Outbox};
use crate::messages::letter::Letter;
use garrick_events::event::ControllerEvent;
use garrick_model::time::Timestamp;

/// What the verbs of one owner come to. Saving is apart: see [`Turn`].
pub trait Stage<O: Owner> {
    /// Hands a letter over, or brings it back to whoever has to know.
    fn tell(&mut self, letter: Letter);
    /// Does an errand. What comes of it is the owner's next input, or a letter.
    fn run(&mut self, errand: O::Errand);
    /// Sets a timer.
    fn set_timer(&mut self, timer: O::Timer, at: Timestamp);
    /// Clears one.
    fn clear_timer(&mut self, timer: O::Timer);
    /// Shows.
    fn publish(&mut self, shown: O::Shown);
    /// Answers whoever waits for that, if anybody does.
    fn answer(&mut self, request: u64, answer: O::Answer);
    /// Forgets the owner.
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

/// The effects of one turn, with its events apart.
pub struct Turn<O: Owner> {
    /// To be saved together.
    pub events: Vec<ControllerEvent>,
    /// What happens then.
    pub rest: Vec<EffectOf<O>>,
}

impl<O: Owner> Turn<O> {
    /// Takes the events out.
    pub fn of(effects: Vec<EffectOf<O>>) -> Self {
        // A scheduler's turn has many, and none is an event.
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

    /// Queues what happens. The batch that waits to be saved, with its events; `None`: there are none.
    pub fn queue(self, outbox: &mut Outbox<EffectOf<O>>) -> Option<(u64, Vec<ControllerEvent>)> {
        if self.events.is_empty() {
            outbox.push(self.rest);
            return None;
        }
        Some((outbox.push_unsaved(self.rest), self.events))
    }
}
