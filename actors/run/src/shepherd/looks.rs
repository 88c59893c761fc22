//! What the kernel does not tell of a task at its end is looked at while it runs: its virtual memory, the memory of processes
//! that nobody waited for. There is one timer whatever the number of tasks, and none while nothing runs, so short tasks cost
//! nothing. The energy of the node while a step runs is read here too.

use crate::shepherd::{
    core::ShepherdCore,
    messages::{LookedAt, ShepherdEffect, ShepherdTimer},
    state::{StepHere, TaskHere, TaskPhase},
};
use garrick_model::{ids::StepId, usage::TaskSample};
use std::time::Duration;

/// When tasks begin after nothing was running, they are looked at early: most that end before a whole period has passed are seen
/// once all the same.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// Counters of energy overflow if nobody reads them. Where they are read, there are looks even if nobody asks for them.
const METER_LOOK: Duration = Duration::from_secs(30);

impl ShepherdCore {
    /// How often a step's tasks are looked at: as the step says (`--acctg-freq`), or the site. `None`: never. Where energy
    /// is measured, always.
    fn look_period(&self, here: &StepHere) -> Option<Duration> {
        let asked = here.launch.sample_secs.map(|secs| Duration::from_secs(secs.into()));
        let usual = asked.or(self.config.look_every).filter(|period| !period.is_zero());
        usual.or(self.config.meters_energy.then_some(METER_LOOK))
    }

    /// Tasks of a step were handed to the launcher.
    pub(super) fn look_later(&mut self, step: StepId, out: &mut Vec<ShepherdEffect>) {
        let Some(period) = self.steps.get(&step).and_then(|here| self.look_period(here)) else { return };
        let after = match self.looks_after {
            None => period.min(FIRST_LOOK),
            Some(set) if period < set => period,
            Some(_) => return,
        };
        self.set_look(after, out);
    }

    fn set_look(&mut self, after: Duration, out: &mut Vec<ShepherdEffect>) {
        self.looks_after = Some(after);
        out.push(ShepherdEffect::SetTimer { timer: ShepherdTimer::Look, after });
    }

    /// Looks at all tasks that run.
    pub(super) fn look(&mut self, out: &mut Vec<ShepherdEffect>) {
        self.looks_after = None;
        let (mut next, mut tasks): (Option<Duration>, Vec<LookedAt>) = (None, Vec::new());
        for (id, here) in &self.steps {
            let Some(period) = self.look_period(here) else { continue };
            let recorded = self.records_tasks(here);
            let running = |(rank, token): &(u32, u64)| {
                let pid = process_of(self.tasks.get(token)?)?;
                Some(LookedAt { token: *token, step: *id, rank: *rank, pid, recorded })
            };
            let before = tasks.len();
            tasks.extend(here.running.iter().filter_map(running));
            if tasks.len() > before {
                next = Some(next.map_or(period, |next| next.min(period)));
            }
        }
        // With nothing to look at there is no timer until something starts.
        if let Some(next) = next {
            out.push(ShepherdEffect::Look { tasks });
            self.set_look(next, out);
        }
    }

    /// Those that have ended meanwhile have told what they used.
    pub(super) fn looked(&mut self, seen: &[(u64, TaskSample)]) {
        for (token, sample) in seen {
            if let Some(task) = self.tasks.get_mut(token).filter(|task| process_of(task).is_some()) {
                task.seen.get_or_insert_default().saw(sample);
            }
        }
    }

    /// A look for somebody else is a look too.
    pub(super) fn sampled(&mut self, step: StepId, tasks: &[TaskSample]) {
        let Some(here) = self.steps.get(&step) else { return };
        let seen = |sample: &TaskSample| Some((here.token(sample.rank)?, sample.clone()));
        let seen: Vec<(u64, TaskSample)> = tasks.iter().filter_map(seen).collect();
        self.looked(&seen);
    }

    /// No other task of the step runs here, or will.
    pub(super) fn is_last_to_end(&self, step: StepId, token: u64) -> bool {
        let Some(here) = self.steps.get(&step) else { return false };
        let runs = |(_, other): &(u32, u64)| {
            *other != token && self.tasks.get(other).is_some_and(|task| process_of(task).is_some())
        };
        here.unspawned.is_empty() && !here.running.iter().any(runs)
    }

    /// The energy of a step is put down to its last task here.
    pub(super) fn meter_read(&mut self, token: u64, joules: u64, out: &mut Vec<ShepherdEffect>) {
        let Some(task) = self.tasks.get_mut(&token) else { return };
        task.metered = true;
        if let TaskPhase::Ended { exit, .. } = &mut task.phase {
            exit.usage.energy_joules = joules;
        }
        self.examine_end(token, out);
    }
}

/// Its process, if that is known, of a task that runs.
const fn process_of(task: &TaskHere) -> Option<Option<u32>> {
    match task.phase {
        TaskPhase::Running { pid } => Some(Some(pid)),
        TaskPhase::Launched => Some(None),
        TaskPhase::Ended { .. } => None,
    }
}
