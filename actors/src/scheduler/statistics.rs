//! What the scheduler counts of its passes, for `sdiag`.

use garrick_model::{
    messages::statistics::{Cycles, Exits, PassCounts, PlanCounts, Statistics},
    time::{Timestamp, micros},
};
use garrick_plan::plan::{Plan, kept::planning::Way};
use std::{collections::BTreeSet, time::Duration};

/// The counters. Those but the ones of the whole life begin anew at midnight (UTC).
#[derive(Clone, Debug, Default)]
pub struct PassStatistics {
    since: Timestamp,
    passes: PassCounts,
    plans: PlanCounts,
}

/// A pass that has ended.
pub struct Pass<'p> {
    /// The plan.
    pub plan: &'p Plan,
    /// How it was made.
    pub way: Way,
    /// Its time, the reading of the state included.
    pub took: Duration,
    /// Jobs that waited and could have been started.
    pub queue: usize,
    /// The plan is thrown away: what it was made from has changed.
    pub outdated: bool,
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl PassStatistics {
    /// Counters begin anew; what describes the last pass stays.
    pub fn reset(&mut self, now: Timestamp) {
        let PassCounts { cycles, last_queue, .. } = self.passes;
        let last_only = |cycles: Cycles| Cycles { last_micros: cycles.last_micros, ..Cycles::default() };
        self.passes = PassCounts { cycles: last_only(cycles), last_queue, ..PassCounts::default() };
        self.plans = PlanCounts {
            backfilled_ever: self.plans.backfilled_ever,
            backfilled_components: self.plans.backfilled_components,
            last_at: self.plans.last_at,
            last_slots: self.plans.last_slots,
            ..PlanCounts::default()
        };
        self.since = now;
    }

    /// A new day begins.
    pub fn of_today(&mut self, now: Timestamp) {
        if now.utc_day() != self.since.utc_day() {
            self.reset(now);
        }
    }

    /// A pass has ended.
    pub fn pass(&mut self, now: Timestamp, pass: &Pass<'_>) {
        self.of_today(now);
        let Pass { plan, way, took, queue, outdated } = *pass;
        let looked = match way {
            Way::Idle => 0,
            Way::Repaired => plan.starts.len(),
            Way::Anew { .. } => queue.saturating_sub(plan.left_out),
        };
        self.passes.cycles.add(micros(took));
        self.passes.depth_sum += count(looked);
        self.passes.last_queue = count(queue);
        exit(&mut self.passes.exits, plan, outdated);
        if !outdated {
            // Also where a kept plan was repaired.
            self.plans.backfilled += u64::from(plan.backfilled);
            self.plans.backfilled_ever += u64::from(plan.backfilled);
            self.plans.backfilled_components += u64::from(plan.backfilled_components);
        }
        let Way::Anew { took, .. } = way else { return };
        let tried = count(plan.starts.len() + plan.reservations.len());
        let later: BTreeSet<Timestamp> = plan.expected.iter().map(|(_, at)| *at).collect();
        let plans = &mut self.plans;
        plans.cycles.add(micros(took));
        plans.last_at = Some(now);
        (plans.last_depth, plans.last_tried, plans.last_queue) = (count(looked), tried, count(queue));
        plans.last_slots = count(later.len()) + 1;
        plans.depth_sum += plans.last_depth;
        plans.tried_sum += tried;
        plans.queue_sum += plans.last_queue;
        plans.slots_sum += plans.last_slots;
        exit(&mut plans.exits, plan, outdated);
    }

    /// Fills in what the scheduler knows.
    pub fn fill(&self, statistics: &mut Statistics) {
        statistics.passes = self.passes;
        statistics.plans = self.plans;
    }
}

fn exit(exits: &mut Exits, plan: &Plan, outdated: bool) {
    let why = match (outdated, plan.truncated, plan.left_out) {
        (true, ..) => &mut exits.changed,
        (_, true, _) => &mut exits.most_starts,
        (_, _, 1..) => &mut exits.time,
        _ => &mut exits.end_of_queue,
    };
    *why += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANEW: Way = Way::Anew { began: Duration::ZERO, took: Duration::from_micros(70) };

    fn pass(plan: &Plan, way: Way, outdated: bool) -> Pass<'_> {
        Pass { plan, way, took: Duration::from_micros(100), queue: 5, outdated }
    }

    fn read(statistics: &PassStatistics) -> Statistics {
        let mut read = Statistics::default();
        statistics.fill(&mut read);
        read
    }

    #[test]
    fn passes_and_plans_are_counted_with_why_they_ended() {
        let (mut counted, at) = (PassStatistics::default(), Timestamp::from_secs(1000));
        let plan = Plan { backfilled: 2, left_out: 1, ..Plan::default() };
        counted.pass(at, &pass(&Plan::default(), Way::Idle, false));
        counted.pass(at, &pass(&plan, ANEW, false));
        counted.pass(at, &pass(&plan, ANEW, true));
        let read = read(&counted);
        assert_eq!((read.passes.cycles.count, read.passes.cycles.sum_micros, read.passes.depth_sum), (3, 300, 8));
        assert_eq!(read.passes.exits, Exits { end_of_queue: 1, time: 1, changed: 1, most_starts: 0 });
        assert_eq!((read.plans.cycles.count, read.plans.cycles.last_micros, read.plans.last_at), (2, 70, Some(at)));
        assert_eq!((read.plans.backfilled, read.plans.queue_sum, read.plans.last_slots), (2, 10, 1));
    }

    #[test]
    fn a_reset_keeps_what_is_of_the_whole_life() {
        let (mut counted, at) = (PassStatistics::default(), Timestamp::from_secs(1000));
        let plan = Plan { backfilled: 2, truncated: true, ..Plan::default() };
        counted.pass(at, &pass(&plan, ANEW, false));
        counted.reset(at);
        let after = read(&counted);
        assert_eq!((after.passes.cycles.count, after.passes.cycles.last_micros, after.plans.backfilled), (0, 100, 0));
        assert_eq!((after.plans.backfilled_ever, after.passes.exits), (2, Exits::default()));
        // The same at midnight.
        counted.pass(at, &pass(&plan, ANEW, false));
        counted.pass(Timestamp::from_secs(90_000), &pass(&plan, ANEW, false));
        assert_eq!((read(&counted).plans.backfilled, read(&counted).plans.backfilled_ever), (2, 6));
    }
}
