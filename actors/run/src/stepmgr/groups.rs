//! Progress of each array and list. A list may come in many requests: those of one `srun` are one group as long as some of their
//! steps are not over. A step that was submitted alone belongs to no group.

use crate::stepmgr::core::StepMgrCore;
use garrick_events::steps::batch::StoredBatch;
use garrick_model::{
    messages::step::{MOST_GROUPS, StepGroup},
    state::StepState,
    view::StepCounts,
};
use std::{cmp::Reverse, collections::BTreeMap};

/// The state of a step of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It waits.
    Queued,
    /// It runs.
    Running,
    /// It ended in this state.
    Over(StepState),
}

#[derive(Clone, Debug, PartialEq)]
struct Group {
    shown: StepGroup,
    /// Host and pid of the `srun` that submits it.
    srun: Option<(String, u32)>,
    /// Number of its batches that are not over.
    open: u32,
}

/// All groups that are not over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Groups {
    /// By first number.
    all: BTreeMap<u32, Group>,
    /// The group of a batch, by the first numbers of both.
    of_batch: BTreeMap<u32, u32>,
    by_srun: BTreeMap<(String, u32), u32>,
}

const fn count(counts: &mut StepCounts, standing: Standing) -> &mut u64 {
    match standing {
        Standing::Queued => &mut counts.queued,
        Standing::Running => &mut counts.running,
        Standing::Over(StepState::Completed) => &mut counts.done,
        Standing::Over(_) => &mut counts.failed,
    }
}

impl Groups {
    /// A batch was accepted.
    pub fn accepted(&mut self, first: u32, batch: &StoredBatch) {
        let Some(spec) = batch.specs.first() else { return };
        let (steps, array) = (batch.len(), batch.array().is_some());
        let last = first + batch.numbers().saturating_sub(1);
        let known = spec.srun.as_ref().filter(|_| !array).and_then(|srun| self.by_srun.get(srun)).copied();
        let number = known.unwrap_or(first);
        if known.is_none() {
            if !array && steps < 2 {
                return;
            }
            let shown = StepGroup { first, last, array, name: spec.name.clone(), counts: StepCounts::default() };
            let srun = spec.srun.clone().filter(|_| !array);
            self.by_srun.extend(srun.clone().map(|srun| (srun, first)));
            self.all.insert(first, Group { shown, srun, open: 0 });
        }
        if let Some(group) = self.all.get_mut(&number) {
            group.open += 1;
            group.shown.last = group.shown.last.max(last);
            group.shown.counts.queued += u64::from(steps);
            self.of_batch.insert(first, number);
        }
    }

    /// So many steps of a batch have changed their state.
    pub fn moved(&mut self, batch: u32, steps: u64, from: Standing, to: Standing) {
        let Some(group) = self.of_batch.get(&batch).and_then(|number| self.all.get_mut(number)) else { return };
        let counts = &mut group.shown.counts;
        let before = count(counts, from);
        *before = before.saturating_sub(steps);
        *count(counts, to) += steps;
        if to == Standing::Over(StepState::Cancelled) {
            counts.cancelled += steps;
        }
    }

    /// All steps of a batch are over.
    pub fn batch_over(&mut self, batch: u32) {
        let Some(number) = self.of_batch.remove(&batch) else { return };
        let Some(group) = self.all.get_mut(&number) else { return };
        group.open -= 1;
        if group.open == 0
            && let Some(srun) = self.all.remove(&number).and_then(|group| group.srun)
        {
            self.by_srun.remove(&srun);
        }
    }

    fn of(&self, batch: u32) -> Option<u32> {
        self.of_batch.get(&batch).copied()
    }
}

impl StepMgrCore {
    /// Arrays and lists that are not over, in the order of their numbers; if there are many, only the busiest. Also how many are
    /// left out, with the counts of their steps.
    pub(super) fn groups(&self) -> (Vec<StepGroup>, u64, StepCounts) {
        let groups = &self.ledger.groups;
        // Steps that were handed over ahead of time count as waiting, as users see them.
        let mut behind: BTreeMap<u32, u64> = BTreeMap::new();
        for step in self.lines.all_behind() {
            let batch = self.ledger.batch_of(step).and_then(|(batch, _)| groups.of(batch));
            behind.extend(batch.map(|group| (group, behind.get(&group).copied().unwrap_or(0) + 1)));
        }
        let counts = |number: &u32, group: &Group| {
            let StepCounts { queued, running, .. } = group.shown.counts;
            let behind = behind.get(number).copied().unwrap_or(0);
            StepCounts { queued: queued + behind, running: running.saturating_sub(behind), ..group.shown.counts }
        };
        let mut told: Vec<(&u32, &Group)> = groups.all.iter().collect();
        let mut rest = Vec::new();
        if told.len() > MOST_GROUPS {
            told.sort_by_key(|(number, group)| {
                let counts = &group.shown.counts;
                (Reverse((counts.running, counts.queued)), **number)
            });
            rest = told.split_off(MOST_GROUPS);
        }
        told.sort_by_key(|(_, group)| group.shown.first);
        let shown =
            |(number, group): (&u32, &Group)| StepGroup { counts: counts(number, group), ..group.shown.clone() };
        let of_rest = rest.iter().map(|(number, group)| counts(number, group)).sum();
        (told.into_iter().map(shown).collect(), rest.len() as u64, of_rest)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::stepmgr::{
        StepMgrConfig,
        builders::{exact, run},
        harness::Harness,
        journal::Ledger,
    };
    use garrick_model::{
        batch::{BatchMembers, CommandList, StepBatch},
        messages::step::{CommandToStepMgr, MOST_GROUPS, StepGroup, StepMgrToCommand},
        spec::{JobKind, StepSpec},
        state::ExitStatus,
        view::StepCounts,
    };

    fn harness(cpus: u32) -> Harness {
        Harness::ready(run(JobKind::Batch, &[cpus]), StepMgrConfig::default())
    }

    fn list(lines: u32, pid: u32) -> StepBatch {
        let mut list = CommandList::default();
        (0..lines).for_each(|n| list.push(["a".to_owned(), n.to_string()], 0));
        let spec = StepSpec { argv: Vec::new(), srun: Some(("n1".to_owned(), pid)), ..exact("lines", 1) };
        StepBatch { specs: vec![spec], members: BatchMembers::Commands(list) }
    }

    fn shown(harness: &Harness) -> Vec<String> {
        let (groups, ..) = harness.core.groups();
        let one = |group: &StepGroup| {
            let StepCounts { queued, running, done, failed, cancelled } = group.counts;
            format!("{}-{} {}: {queued} {running} {done} {failed} {cancelled}", group.first, group.last, group.name)
        };
        // A later step manager gets the same from the journal.
        assert_eq!(Ledger::replay(harness.journal.clone()).groups, harness.core.ledger().groups);
        groups.iter().map(one).collect()
    }

    #[test]
    fn an_array_and_the_requests_of_a_list_are_counted_each_by_themselves_until_they_are_over() {
        let mut harness = harness(3);
        harness.enqueue_array(exact("array", 1), "0-3");
        harness.enqueue_batch(list(2, 70));
        harness.enqueue(vec![exact("single", 1)]);
        harness.enqueue_batch(list(1, 70));
        harness.enqueue_batch(list(2, 71));
        harness.settle();
        assert_eq!(shown(&harness), ["0-0 array: 1 3 0 0 0", "1-4 lines: 3 0 0 0 0", "5-6 lines: 2 0 0 0 0"]);
        harness.exit("0_0".parse().unwrap(), ExitStatus { code: 1, signal: None });
        harness.exit("0_1".parse().unwrap(), ExitStatus::SUCCESS);
        assert_eq!(shown(&harness), ["0-0 array: 0 2 1 1 0", "1-4 lines: 2 1 0 0 0", "5-6 lines: 2 0 0 0 0"]);
        let client = harness.connect();
        let steps = vec!["0".parse().unwrap(), "[1-4]".parse().unwrap()];
        harness.say(client, CommandToStepMgr::SignalSteps { steps, pending_only: true, signal: None });
        harness.settle();
        assert_eq!(shown(&harness)[1], "1-4 lines: 0 1 0 2 2");
        ["0_2", "0_3", "1"].iter().for_each(|key| harness.exit(key.parse().unwrap(), ExitStatus::SUCCESS));
        assert_eq!(shown(&harness), ["5-6 lines: 0 2 0 0 0"]);
        ["5", "6"].iter().for_each(|key| harness.exit(key.parse().unwrap(), ExitStatus::SUCCESS));
        assert_eq!(shown(&harness), [""; 0]);
    }

    #[test]
    fn of_very_many_the_busiest_are_told_and_the_rest_counted() {
        let mut harness = harness(2);
        for _ in 0..MOST_GROUPS + 20 {
            harness.enqueue_array(exact("a", 1), "0-1");
            harness.settle();
        }
        harness.enqueue_array(exact("large", 1), "0-9");
        harness.settle();
        let (groups, left_out, rest) = harness.core.groups();
        assert_eq!((groups.len(), left_out), (MOST_GROUPS, 21));
        // All but those of the first array wait.
        assert_eq!(rest, StepCounts { queued: 2 * 21, ..StepCounts::default() });
        assert!(groups.iter().all(|group| group.counts != StepCounts::default()));
        assert_eq!((groups[0].counts.running, groups[MOST_GROUPS - 1].name.as_str()), (2, "large"));
        assert!(groups.is_sorted_by_key(|group| group.first));
    }

    #[test]
    fn who_stays_hears_of_groups_and_of_the_end_of_the_run_alone() {
        let mut harness = harness(2);
        let client = harness.connect();
        let stay = CommandToStepMgr::Wait { steps: Vec::new(), any: false, progress_ms: 100, groups: true, stay: true };
        harness.say(client, stay);
        harness.settle();
        harness.enqueue_array(exact("a", 1), "0-1");
        harness.settle();
        ["0_0", "0_1"].iter().for_each(|key| harness.exit(key.parse().unwrap(), ExitStatus::SUCCESS));
        harness.advance(std::time::Duration::from_secs(1));
        let told = &harness.heard[&client];
        assert!(told.iter().all(|message| matches!(message, StepMgrToCommand::Groups { .. })), "{told:?}");
        assert!(
            matches!(told.last(), Some(StepMgrToCommand::Groups { counts, groups, .. }) if counts.done == 2 && groups.is_empty()),
            "{told:?}"
        );
        harness.exit(garrick_model::ids::StepKey::BATCH, ExitStatus::SUCCESS);
        harness.settle();
        assert!(matches!(harness.last(client), Some(StepMgrToCommand::Drained { .. })));
    }
}
