//! `swait` conversations: which command waits for which steps, and when it gets progress counts.

use crate::{
    step::state::worse,
    stepmgr::{messages::ClientId, watch::Lookouts},
};
use garrick_model::{ids::StepKey, state::ExitStatus, step_selector::WhichSteps, time::Timestamp, view::StepCounts};
use std::{collections::BTreeMap, time::Duration};

/// What a command waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Until {
    /// Nothing queued or running.
    Drained,
    /// The run is over.
    RunOver,
    /// So many of these are over.
    Named { steps: Vec<WhichSteps>, left: u64 },
}

#[derive(Clone, Debug)]
struct Waiter {
    until: Until,
    worst: ExitStatus,
    progress: Option<Duration>,
    groups: bool,
    told: Option<(Timestamp, StepCounts)>,
    timer: bool,
}

/// All waiting commands.
#[derive(Clone, Debug, Default)]
pub struct Waiters {
    all: BTreeMap<ClientId, Waiter>,
    lookouts: Lookouts<ClientId>,
    /// Worst exit of the run's minibatch steps.
    worst: ExitStatus,
}

/// The progress counts that a waiting command requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curiosity {
    /// Least time between two messages, milliseconds; 0: none wanted.
    pub progress_ms: u32,
    /// Counts of each array and list too.
    pub groups: bool,
}

/// What to tell a waiting command now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing.
    Quiet,
    /// These counts.
    Tell(StepCounts),
    /// These counts, and those of arrays and lists.
    TellGroups(StepCounts),
    /// Check again after this time.
    Later(Duration),
}

impl Waiters {
    /// After a restart: the worst exit status of steps that are over.
    pub fn begin_with(&mut self, worst: ExitStatus) {
        self.worst = worst;
    }

    /// Waits for the queue to drain.
    pub fn wait_for_all(&mut self, client: ClientId, curiosity: Curiosity) {
        self.insert(client, Until::Drained, ExitStatus::SUCCESS, curiosity);
    }

    /// Waits for the end of the run.
    pub fn wait_for_run(&mut self, client: ClientId, curiosity: Curiosity) {
        self.insert(client, Until::RunOver, ExitStatus::SUCCESS, curiosity);
    }

    /// Waits until `left` more of the named steps are over; `worst`: that of those that are.
    pub fn wait_for(
        &mut self,
        client: ClientId,
        steps: Vec<WhichSteps>,
        left: u64,
        worst: ExitStatus,
        curiosity: Curiosity,
    ) {
        self.lookouts.add(client, &steps);
        self.insert(client, Until::Named { steps, left }, worst, curiosity);
    }

    fn insert(&mut self, client: ClientId, until: Until, worst: ExitStatus, curiosity: Curiosity) {
        let Curiosity { progress_ms, groups } = curiosity;
        let progress = (progress_ms > 0).then(|| Duration::from_millis(u64::from(progress_ms)));
        self.all.insert(client, Waiter { until, worst, progress, groups, told: None, timer: false });
    }

    /// A command went away.
    pub fn remove(&mut self, client: ClientId) {
        if let Some(Waiter { until: Until::Named { steps, .. }, .. }) = self.all.remove(&client) {
            self.lookouts.remove(client, &steps);
        }
    }

    /// A step is over. Returns the commands whose wait ends by it, with the worst exit. `drained`: nothing is queued or running
    /// any more.
    pub fn step_over(
        &mut self,
        step: StepKey,
        exit: ExitStatus,
        minibatch: bool,
        drained: bool,
    ) -> Vec<(ClientId, ExitStatus)> {
        if minibatch {
            self.worst = worse(self.worst, exit);
        }
        let mut done = Vec::new();
        for client in self.lookouts.of(step) {
            if let Some(waiter) = self.all.get_mut(&client)
                && let Until::Named { steps, left } = &mut waiter.until
                && steps.iter().any(|s| s.contains(step))
            {
                *left = left.saturating_sub(1);
                waiter.worst = worse(waiter.worst, exit);
                if *left == 0 {
                    done.push((client, waiter.worst));
                }
            }
        }
        for (client, _) in &done {
            self.remove(*client);
        }
        if drained {
            done.extend(self.drained());
        }
        done
    }

    /// Nothing is queued or running: the commands that wait for that, with the worst exit of minibatch steps.
    pub fn drained(&mut self) -> Vec<(ClientId, ExitStatus)> {
        let clients: Vec<ClientId> =
            self.all.iter().filter(|(_, w)| w.until == Until::Drained).map(|(c, _)| *c).collect();
        if clients.is_empty() {
            return Vec::new();
        }
        let worst = self.worst;
        clients
            .into_iter()
            .map(|client| {
                self.all.remove(&client);
                (client, worst)
            })
            .collect()
    }

    /// Commands that requested progress counts; usually none.
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
        if waiter.groups { Progress::TellGroups(counts) } else { Progress::Tell(counts) }
    }

    /// All waiting commands, for the end of the run.
    pub fn take_all(&mut self) -> Vec<(ClientId, ExitStatus)> {
        self.lookouts = Lookouts::default();
        let worst = self.worst;
        std::mem::take(&mut self.all).into_iter().map(|(c, w)| (c, worse(w.worst, worst))).collect()
    }
}
