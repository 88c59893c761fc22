//! `swait` conversations: who waits for which steps, and when to tell them how far it is.

use crate::{step::state::worse, stepmgr::messages::ClientId};
use garrick_model::{state::ExitStatus, time::Timestamp, view::StepCounts};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// For what somebody waits.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Until {
    /// Nothing queued or running.
    Drained,
    /// These are over.
    Named(BTreeSet<u32>),
}

#[derive(Clone, Debug)]
struct Waiter {
    until: Until,
    worst: ExitStatus,
    progress: Option<Duration>,
    told: Option<(Timestamp, StepCounts)>,
    timer: bool,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Waiters {
    all: BTreeMap<ClientId, Waiter>,
    /// Waiters by named step.
    by_step: BTreeMap<u32, BTreeSet<ClientId>>,
    /// Worst exit of minibatch steps since the queue was last waited for.
    since_drained: ExitStatus,
}

/// What to tell a waiter now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing.
    Quiet,
    /// These counts.
    Tell(StepCounts),
    /// Look again after so long.
    Later(Duration),
}

impl Waiters {
    /// Waits for the queue to drain.
    pub fn wait_for_all(&mut self, client: ClientId, progress_ms: u32) {
        self.insert(client, Until::Drained, progress_ms);
    }

    /// Waits for named steps that are not over; `worst` of those that are.
    pub fn wait_for(&mut self, client: ClientId, steps: BTreeSet<u32>, worst: ExitStatus, progress_ms: u32) {
        for step in &steps {
            self.by_step.entry(*step).or_default().insert(client);
        }
        self.insert(client, Until::Named(steps), progress_ms);
        if let Some(waiter) = self.all.get_mut(&client) {
            waiter.worst = worst;
        }
    }

    fn insert(&mut self, client: ClientId, until: Until, progress_ms: u32) {
        let progress = (progress_ms > 0).then(|| Duration::from_millis(u64::from(progress_ms)));
        let waiter = Waiter { until, worst: ExitStatus::SUCCESS, progress, told: None, timer: false };
        self.all.insert(client, waiter);
    }

    /// Went away.
    pub fn remove(&mut self, client: ClientId) -> bool {
        let Some(waiter) = self.all.remove(&client) else { return false };
        if let Until::Named(steps) = waiter.until {
            for step in steps {
                if let Some(clients) = self.by_step.get_mut(&step) {
                    clients.remove(&client);
                    if clients.is_empty() {
                        self.by_step.remove(&step);
                    }
                }
            }
        }
        true
    }

    /// A numbered step is over. `drained`: nothing is queued or running any more. Answers those whose wait is over.
    pub fn step_over(
        &mut self,
        step: u32,
        exit: ExitStatus,
        minibatch: bool,
        drained: bool,
    ) -> Vec<(ClientId, ExitStatus)> {
        if minibatch {
            self.since_drained = worse(self.since_drained, exit);
        }
        let mut done = Vec::new();
        for client in self.by_step.remove(&step).unwrap_or_default() {
            if let Some(waiter) = self.all.get_mut(&client)
                && let Until::Named(steps) = &mut waiter.until
            {
                steps.remove(&step);
                waiter.worst = worse(waiter.worst, exit);
                if steps.is_empty() {
                    done.push((client, waiter.worst));
                }
            }
        }
        if drained {
            done.extend(self.drained());
        }
        for (client, _) in &done {
            self.all.remove(client);
        }
        done
    }

    /// Nothing is queued or running: those who wait for that, with the worst exit of minibatch steps since last time.
    pub fn drained(&mut self) -> Vec<(ClientId, ExitStatus)> {
        let clients: Vec<ClientId> =
            self.all.iter().filter(|(_, w)| w.until == Until::Drained).map(|(c, _)| *c).collect();
        if clients.is_empty() {
            return Vec::new();
        }
        let worst = std::mem::take(&mut self.since_drained);
        clients
            .into_iter()
            .map(|client| {
                self.all.remove(&client);
                (client, worst)
            })
            .collect()
    }

    /// Who wants to hear of changes: none on the fast path.
    pub fn curious(&self) -> Vec<ClientId> {
        self.all.iter().filter(|(_, w)| w.progress.is_some() && !w.timer).map(|(c, _)| *c).collect()
    }

    /// The counts changed, or a waiter's timer ran out.
    pub fn progress(&mut self, client: ClientId, now: Timestamp, counts: StepCounts, timer_ran_out: bool) -> Progress {
        let Some(waiter) = self.all.get_mut(&client) else { return Progress::Quiet };
        let Some(every) = waiter.progress else { return Progress::Quiet };
        if timer_ran_out {
            waiter.timer = false;
        }
        if waiter.timer || waiter.told.is_some_and(|(_, told)| told == counts) {
            return Progress::Quiet;
        }
        if let Some((at, _)) = waiter.told {
            let passed = now.since(at);
            if passed < every {
                waiter.timer = true;
                return Progress::Later(every.saturating_sub(passed));
            }
        }
        waiter.told = Some((now, counts));
        Progress::Tell(counts)
    }

    /// Everybody, for the end of the run.
    pub fn take_all(&mut self) -> Vec<(ClientId, ExitStatus)> {
        self.by_step.clear();
        let worst = self.since_drained;
        std::mem::take(&mut self.all).into_iter().map(|(c, w)| (c, worse(w.worst, worst))).collect()
    }
}
