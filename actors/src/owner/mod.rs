//! What all owners of the controller's state have in common, whatever they own.
//!
//! An owner is a core: plain synchronous code that gets one input, the time and fresh ids, and returns a list of effects in
//! order, of few kinds ([`Effect`]). It calls nobody and waits for nobody. The same few parts surround it in the controller
//! (`controller/shells`), in tests and in the simulator:
//!
//! | file | what it is |
//! |---|---|
//! | [`outbox`] | holds effects until the events before them are saved |
//! | [`stage`] | carries effects out: the one place that interprets each kind |
//!
//! # Guarantees
//!
//! - The events of one turn are saved together, or none of them is.
//! - No effect overtakes an event before it: effects that follow an event happen after it is saved, and later effects wait behind
//!   them.
//! - Letters between two owners come in order, at most twice, and are lost with an owner that fails over one.

pub mod outbox;
pub mod stage;
#[cfg(test)]
mod tests;

pub use stage::{Stage, Turn, perform};

use crate::messages::letter::Letter;
use garrick_events::event::ControllerEvent;
use garrick_model::{
    ids::{JobId, Sluid},
    time::Timestamp,
};

/// An effect of an owner; there are no other kinds. `T` are its timers, `S` is what it publishes, `A` its answers, and `E` its
/// errands at the process's ports.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<T, S, A, E> {
    /// Save, together with all other events of the turn. Later effects wait until that is done.
    Save(ControllerEvent),
    /// Send a letter to another owner.
    Tell(Letter),
    /// An errand at a port. Its result is an input.
    Do(E),
    /// Set a timer, replacing an earlier setting.
    SetTimer {
        /// The timer.
        timer: T,
        /// When it runs out.
        at: Timestamp,
    },
    /// Clear a timer.
    ClearTimer(T),
    /// Publish a view.
    Publish(S),
    /// Answer a request.
    Answer {
        /// The request; 0 means none.
        request: u64,
        /// The answer.
        answer: A,
    },
    /// The object no longer exists: the owner is removed, with all that it published.
    Stop,
}

/// The core of an owner.
pub trait Owner: Sized + 'static {
    /// Its inputs.
    type Input: Send + 'static;
    /// Its timers, by name.
    type Timer: Copy + Send + 'static;
    /// What it publishes.
    type Shown;
    /// Its answers to requests.
    type Answer: Send + 'static;
    /// Its errands at ports.
    type Errand;

    /// Handles one input at a time. Effects are appended to `out`, in the order in which they must be carried out.
    fn handle(&mut self, now: Timestamp, ids: &mut dyn FreshIds, input: Self::Input, out: &mut Out<Self>);

    /// The input when a timer runs out.
    fn timer(timer: Self::Timer) -> Self::Input;
}

/// The effects of an owner.
pub type EffectOf<O> = Effect<<O as Owner>::Timer, <O as Owner>::Shown, <O as Owner>::Answer, <O as Owner>::Errand>;

/// The list of effects.
pub type Out<O> = Vec<EffectOf<O>>;

/// Fresh identities for tasks and runs. An argument of the core, so that tests choose them.
pub trait FreshIds {
    /// A job id that was never used.
    fn job(&mut self) -> JobId;
    /// So many consecutive unused ids; returns the first. `None`: there is no such range.
    fn jobs(&mut self, count: u32) -> Option<JobId>;
    /// A new run.
    fn sluid(&mut self, now: Timestamp) -> Sluid;
    /// Counts a submission. Returns the number of those before it.
    fn submission(&mut self) -> u64;
}
