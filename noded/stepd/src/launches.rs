//! Steps of one request share their description, which can be large (environment, script). Over a link between hosts it is sent
//! once, as `Keep` under a number; later `Launch` messages name the number. Each connection has its own numbers.

use crate::link_end::{LinkMessage, OnWire};
use garrick_model::messages::shepherd::{LaunchRef, ShepherdToStepMgr, StepLaunch, StepMgrToShepherd};
use garrick_run::pmi;
use std::{collections::HashMap, sync::Arc};

/// Descriptions that both ends of a connection remember: the requests whose steps start in turn at a time. What it costs
/// is the memory of so many descriptions, which the step manager's queue mostly has anyway.
pub const REMEMBERED: usize = 64;

/// The sender's side: which descriptions the other end has under which numbers, the latest used last. They are held, so that
/// the address of one is not used for another.
#[derive(Debug, Default)]
pub struct SentLaunches(Vec<(u32, Arc<StepLaunch>)>);

impl SentLaunches {
    /// The number of a description, and whether it is new.
    fn number(&mut self, launch: &Arc<StepLaunch>) -> (u32, bool) {
        if let Some(at) = self.0.iter().rposition(|(_, known)| Arc::ptr_eq(known, launch)) {
            let used = self.0.remove(at);
            let number = used.0;
            self.0.push(used);
            return (number, false);
        }
        // The one that was not used for longest gives its number away.
        let number = if self.0.len() < REMEMBERED { self.0.len() as u32 } else { self.0.remove(0).0 };
        self.0.push((number, Arc::clone(launch)));
        (number, true)
    }
}

/// A launch names a description that was not sent on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a launch names description {0}, which was not sent")]
pub struct UnknownLaunch(pub u32);

/// The receiver's side.
#[derive(Debug, Default)]
pub struct KeptLaunches(HashMap<u32, Arc<StepLaunch>>);

impl KeptLaunches {
    /// Keeps a description, or puts the whole in the place of its number. `None`: it was the link's own matter.
    pub fn restore(&mut self, message: StepMgrToShepherd) -> Result<Option<StepMgrToShepherd>, UnknownLaunch> {
        match message {
            StepMgrToShepherd::Keep { id, launch } => {
                self.0.insert(id, launch);
                Ok(None)
            }
            StepMgrToShepherd::Launch(mut start) => {
                if let LaunchRef::Known(id) = start.launch {
                    start.launch = LaunchRef::Whole(Arc::clone(self.0.get(&id).ok_or(UnknownLaunch(id))?));
                }
                Ok(Some(StepMgrToShepherd::Launch(start)))
            }
            other => Ok(Some(other)),
        }
    }
}

/// What a small message takes in memory while it is kept, about.
const SMALL: usize = 128;

impl LinkMessage for StepMgrToShepherd {
    type Wire = SentLaunches;

    fn is_urgent(&self) -> bool {
        matches!(self, Self::Kill { .. } | Self::EndJob)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Stdin { data, .. } => SMALL + data.len(),
            Self::Note { text, .. } => SMALL + text.len(),
            Self::PmiFenced { puts, .. } => SMALL + pmi::bytes_of(puts),
            // The descriptions are shared; what is its own are its tasks and variables.
            Self::Launch(start) => {
                let entries = start.own_env.iter().chain(start.tasks.iter().flat_map(|t| &t.extra_env));
                4 * SMALL + start.tasks.len() * SMALL + entries.map(|e| e.len() + 32).sum::<usize>()
            }
            _ => SMALL,
        }
    }

    fn on_wire(&self, sent: &mut SentLaunches) -> OnWire<Self> {
        let Self::Launch(start) = self else { return OnWire::AS_IT_IS };
        let LaunchRef::Whole(launch) = &start.launch else { return OnWire::AS_IT_IS };
        let (id, new) = sent.number(launch);
        let mut known = start.clone();
        known.launch = LaunchRef::Known(id);
        OnWire {
            before: new.then(|| Self::Keep { id, launch: Arc::clone(launch) }),
            instead: Some(Self::Launch(known)),
        }
    }
}

impl LinkMessage for ShepherdToStepMgr {
    type Wire = ();

    fn is_urgent(&self) -> bool {
        false
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Output { data, .. } => SMALL + data.len(),
            Self::TaskFailed { message, .. } => SMALL + message.len(),
            Self::Tasks { tasks, .. } => SMALL * (1 + tasks.len()),
            Self::PmiFence { puts, .. } => SMALL + pmi::bytes_of(puts),
            Self::PmiAbort { message, .. } => SMALL + message.len(),
            _ => SMALL,
        }
    }

    fn on_wire(&self, (): &mut ()) -> OnWire<Self> {
        OnWire::AS_IT_IS
    }
}

#[cfg(test)]
#[path = "launches_test.rs"]
mod tests;
