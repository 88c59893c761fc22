//! What all owners of the controller's state have in common, whatever they own.
//!
//! An owner is a core: plain synchronous code that is handed one input, the time and fresh ids, and writes down what shall
//! happen, in order, with few verbs ([`Effect`]). It asks nobody and waits for nobody. Around it are the same few parts
//! wherever it lives, in the controller (`controller/shells`), in tests and in the simulator:
//!
//! | file | what it is |
//! |---|---|
//! | [`outbox`] | keeps effects back until the events before them are saved |
//! | [`stage`] | carries effects out: the one place where each verb comes to something |
//!
//! # What is promised
//!
//! - The events of one turn are saved together, or none of them is.
//! - No effect overtakes an event before it: what follows from an event happens when it is saved, and what follows later
//!   waits behind that.
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

/// What an owner has happen: the only verbs there are. `T` are its timers, `S` is what it shows, `A` what it answers, and `E`
/// what it has done at the process's ports.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<T, S, A, E> {
    /// Save, with all that the same turn saves. What comes after it waits until it is.
    Save(ControllerEvent),
    /// Tell another owner.
    Tell(Letter),
    /// An errand at a port. What comes of it is an input.
    Do(E),
    /// Set a timer, in place of the one that was set.
    SetTimer {
        /// Which.
        timer: T,
        /// When it runs out.
        at: Timestamp,
    },
    /// Clear a timer.
    ClearTimer(T),
    /// Show.
    Publish(S),
    /// Answer a request.
    Answer {
        /// Which; 0 is nobody's.
        request: u64,
        /// What.
        answer: A,
    },
    /// Nothing is left to be owned: it is forgotten, with all that it showed.
    Stop,
}

/// The core of an owner.
pub trait Owner: Sized + 'static {
    /// What it is told.
    type Input: Send + 'static;
    /// Its timers, by name.
    type Timer: Copy + Send + 'static;
    /// What it shows.
    type Shown;
    /// What it answers requests with.
    type Answer: Send + 'static;
    /// What it has done at ports.
    type Errand;

    /// One input, at a time. What shall happen is appended to `out`, in the order in which it must.
    fn handle(&mut self, now: Timestamp, ids: &mut dyn FreshIds, input: Self::Input, out: &mut Out<Self>);

    /// What it is told when a timer runs out.
    fn timer(timer: Self::Timer) -> Self::Input;
}

/// The effects of an owner.
pub type EffectOf<O> = Effect<<O as Owner>::Timer, <O as Owner>::Shown, <O as Owner>::Answer, <O as Owner>::Errand>;

/// Where an owner writes down what shall happen.
pub type Out<O> = Vec<EffectOf<O>>;

/// Fresh identities for tasks and runs. An argument of the core, so that tests choose them.
pub trait FreshIds {
    /// A job id that was never used.
    fn job(&mut self) -> JobId;
    /// So many ids in a row that were never used; the first of them. `None`: there is no such row.
    fn jobs(&mut self, count: u32) -> Option<JobId>;
    /// A new run.
    fn sluid(&mut self, now: Timestamp) -> Sluid;
    /// Counts a submission; the number of those before it.
    fn submission(&mut self) -> u64;
}
