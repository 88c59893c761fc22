//! Records of accounting beside what was told: by jobs and tasks about themselves, by step managers in their journals, and by the
//! controller in its own.

use super::{
    records::{Ended, RunRecords},
    verdict::{Case, RESTARTS, Verdict, Wrong, own_end},
    witness::StepRef,
};
use garrick_accounts::{messages::JobWithSteps, row::JobRow, step::StepRecord, tres::CPU};
use garrick_events::records::job::JobRecord;
use garrick_model::ids::{StepKey, StepNum};
use std::collections::{BTreeMap, BTreeSet};

/// What was told, and what is recorded of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    told: u64,
    recorded: u64,
}

/// Sums of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    jobs: Sum,
    runs: Sum,
    steps: Sum,
    /// CPUs times milliseconds that jobs had them.
    allocated_ms: Sum,
    /// CPU time of steps.
    used_us: Sum,
    /// Exit codes that scripts and tasks told themselves, added up, and how many.
    codes: Sum,
    codes_told: u64,
}

impl Sums {
    /// Each sum, with what was told and what is recorded.
    pub fn lines(&self) -> [(&'static str, u64, u64); 6] {
        let line = |what, sum: Sum| (what, sum.told, sum.recorded);
        [
            line("jobs", self.jobs),
            line("runs of jobs", self.runs),
            line("steps, batch scripts among them", self.steps),
            line("CPU milliseconds that jobs had", self.allocated_ms),
            line("CPU microseconds that steps used", self.used_us),
            line("exit codes of scripts and tasks, added up", self.codes),
        ]
    }

    /// Is everything recorded as it was told?
    pub fn are_equal(&self) -> bool {
        self.lines().iter().all(|(_, told, recorded)| told == recorded)
    }

    /// How many scripts and tasks told with what they exit.
    pub const fn told(&self) -> u64 {
        self.codes_told
    }
}

/// Compares. What is not equal is added to the verdict.
pub fn compare(case: &Case<'_>, rows: &[JobWithSteps], verdict: &mut Verdict) -> Sums {
    let mut sums = Sums::default();
    let mut of_job: BTreeMap<u32, Vec<&JobWithSteps>> = BTreeMap::new();
    for row in rows {
        of_job.entry(row.row.job.0).or_default().push(row);
    }
    sums.jobs.recorded = of_job.len() as u64;
    sums.runs.recorded = rows.len() as u64;
    for record in case.controller.jobs.values() {
        sums.jobs.told += 1;
        sums.runs.told += 1 + u64::from(record.restarts);
        let runs = of_job.remove(&record.id.0).unwrap_or_default();
        job_is_recorded_once(record, &runs, &mut sums, verdict);
    }
    for (job, runs) in of_job {
        verdict.found(
            Wrong::Duplicated,
            format!("job {job} is recorded {} times, and the controller has none", runs.len()),
        );
    }
    for run in rows {
        let sluid = run.row.sluid.to_string();
        script_told_the_same(case, &sluid, &run.row, &mut sums, verdict);
        if let Some(journal) = case.runs.get(&sluid) {
            steps_are_recorded_once(case, &sluid, journal, run, &mut sums, verdict);
        }
    }
    sums
}

fn job_is_recorded_once(record: &JobRecord, runs: &[&JobWithSteps], sums: &mut Sums, verdict: &mut Verdict) {
    let (id, told) = (record.id, JobRow::of("", record));
    let wanted = 1 + record.restarts as usize;
    if runs.len() != wanted {
        let wrong = if runs.len() < wanted { Wrong::Lost } else { Wrong::Duplicated };
        verdict.found(wrong, format!("job {id} had {wanted} runs, and {} are recorded", runs.len()));
    }
    for run in runs.iter().filter(|run| !run.row.is_over()) {
        verdict.found(
            Wrong::Lost,
            format!("run {} of job {id} is over, and is recorded as {:?}", run.row.sluid, run.row.state),
        );
    }
    sums.allocated_ms.told += cpu_ms(&told);
    let Some(last) = runs.iter().find(|run| run.row.sluid == record.sluid).map(|run| &run.row) else {
        return verdict.found(Wrong::Lost, format!("run {} of job {id} is not recorded", record.sluid));
    };
    sums.allocated_ms.recorded += cpu_ms(last);
    let facts = |row: &JobRow| {
        (
            row.state,
            row.exit,
            row.derived,
            row.submit,
            row.start,
            row.end,
            row.restarts,
            row.nodes.clone(),
            row.allocated.clone(),
        )
    };
    if facts(last) != facts(&told) {
        verdict.found(
            Wrong::Untrue,
            format!("job {id} is recorded as {:?}, and the controller says {:?}", facts(last), facts(&told)),
        );
    }
}

/// CPUs times the milliseconds for which they were had.
fn cpu_ms(row: &JobRow) -> u64 {
    let ran = row.start.zip(row.end).map_or(0, |(start, end)| u64::try_from(end.0 - start.0).unwrap_or(0));
    row.allocated.count(CPU) * ran
}

/// A script that was about to exit with a code is recorded with it, unless its job was ended meanwhile.
fn script_told_the_same(case: &Case<'_>, sluid: &str, row: &JobRow, sums: &mut Sums, verdict: &mut Verdict) {
    let Some(seen) = case.witness.runs.get(sluid) else { return };
    let ended_otherwise = case.cancelled.contains(&seen.serial) || case.book.run(sluid).launchers > 0;
    let [code] = seen.codes[..] else { return };
    if row.requeued || ended_otherwise || case.book.run(sluid).stepds > RESTARTS {
        return;
    }
    sums.codes_told += 1;
    sums.codes.told += u64::from(code);
    sums.codes.recorded += u64::from(row.exit.code);
    if (row.exit.code, row.exit.signal) != (code, None) {
        verdict.found(
            Wrong::Untrue,
            format!("the script of run {sluid} exits with {code}, and {:?} is recorded", row.exit),
        );
    }
}

fn steps_are_recorded_once(
    case: &Case<'_>,
    sluid: &str,
    journal: &RunRecords,
    run: &JobWithSteps,
    sums: &mut Sums,
    verdict: &mut Verdict,
) {
    // Of a run that was given up, the last ends were told to nobody.
    let was_given_up = case.book.run(sluid).stepds > RESTARTS;
    let mut known: BTreeSet<StepKey> = BTreeSet::new();
    let batch = journal.batch.first().map(|end| (StepKey::BATCH, None, end));
    let numbered =
        journal.steps.iter().filter_map(|(step, record)| Some((key_of(step), Some(step), record.ends.first()?)));
    for (key, step, end) in batch.into_iter().chain(numbered) {
        known.insert(key);
        let Some(recorded) = recorded(&run.steps, key) else {
            if !was_given_up {
                sums.steps.told += 1;
                verdict.found(Wrong::Lost, format!("step {key} of run {sluid} has ended, and is not recorded"));
            }
            continue;
        };
        sums.steps.told += 1;
        sums.steps.recorded += 1;
        step_is_recorded_truly((sluid, key), end, recorded, (was_given_up, sums), verdict);
        if let Some(exit) =
            step.and_then(|step| own_end(case, case.witness.steps.get(step))).filter(|_| end.cause.is_none())
        {
            sums.codes_told += 1;
            sums.codes.told += u64::from(exit.code);
            sums.codes.recorded += u64::from(recorded.exit.code);
        }
    }
    let strangers =
        run.steps.iter().filter(|step| step.all_of.is_none() && is_counted(step.key) && !known.contains(&step.key));
    for stranger in strangers.filter(|_| !was_given_up) {
        sums.steps.recorded += 1;
        verdict.found(Wrong::Duplicated, format!("{stranger:?} is recorded, and its step manager has no end of it"));
    }
}

fn step_is_recorded_truly(
    (sluid, key): (&str, StepKey),
    end: &Ended,
    recorded: &StepRecord,
    (was_given_up, sums): (bool, &mut Sums),
    verdict: &mut Verdict,
) {
    if was_given_up && !recorded.state.is_over() {
        return;
    }
    sums.used_us.told += end.cpu_us;
    sums.used_us.recorded += recorded.usage.user_us + recorded.usage.system_us;
    if (recorded.state, recorded.exit) != (end.state, end.exit) {
        verdict.found(
            Wrong::Untrue,
            format!(
                "step {key} of run {sluid} is recorded as {:?} with {:?}, and its step manager says {end:?}",
                recorded.state, recorded.exit
            ),
        );
    }
}

/// Numbered steps and batch scripts: others have no end of their own.
fn is_counted(key: StepKey) -> bool {
    matches!(key.step, StepNum::Number(_) | StepNum::Batch)
}

fn key_of(step: &StepRef) -> StepKey {
    step.array.map_or_else(|| StepKey::number(step.step), |task| StepKey::task(step.step, task))
}

/// The record of a step. Steps that were withdrawn together have one.
fn recorded(steps: &[StepRecord], key: StepKey) -> Option<&StepRecord> {
    let is_it = |step: &&StepRecord| match &step.all_of {
        None => step.key == key,
        Some(all) => all.contains(key),
    };
    steps.iter().find(is_it)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::faults::{
        injury::Book,
        witness::{RunSeen, Witness},
    };
    use garrick_events::{
        event::{ControllerEvent, Replayed},
        records::job_event::JobEvent,
        testing::{cancelled, ended_row, record},
    };
    use garrick_model::{
        ids::{JobId, Sluid},
        spec::JobSpec,
        state::{ExitStatus, StepState},
        time::TimeLimit,
        view::{StepOrigin, StepRows},
    };

    /// Job 7, whose batch script and step 0 have ended.
    fn recorded_rows(controller: &Replayed) -> Vec<JobWithSteps> {
        let record = controller.jobs.values().next().unwrap();
        let origin = StepOrigin {
            name: "a".into(),
            uid: 1,
            partition: "main".into(),
            tasks: 1,
            time_limit: TimeLimit::Unlimited,
            srun: None,
            submit_line: String::new(),
            priority: 0,
            cpu_freq: None,
            layout: None,
        };
        let rows = vec![ended_row(StepKey::BATCH), ended_row(StepKey::number(0))];
        let report = StepRows { origins: vec![origin], rows, ..StepRows::default() };
        vec![JobWithSteps { row: JobRow::of("c", record), steps: StepRecord::all(record.id, record.sluid, &report) }]
    }

    #[test]
    fn what_is_lost_doubled_or_untrue_is_found() {
        let mut controller = Replayed::default();
        let event = |event| ControllerEvent::Job { job: JobId(7), event: Box::new(event) };
        controller.apply(&event(JobEvent::Submitted(Box::new(record(7, JobSpec::default()))))).unwrap();
        controller.apply(&event(JobEvent::Ended(cancelled()))).unwrap();
        let sluid = Sluid(7).to_string();
        let end = |state| Ended { state, exit: ExitStatus::SUCCESS, cause: None, cpu_us: 0 };
        let step = StepRef { sluid: sluid.clone(), step: 0, array: None };
        let mut journal = RunRecords { batch: vec![end(StepState::Completed)], ..RunRecords::default() };
        journal.steps.entry(step).or_default().ends.push(end(StepState::Completed));
        let mut witness = Witness::default();
        witness.runs.insert(sluid.clone(), RunSeen { codes: vec![0], ..RunSeen::default() });
        let found = |change: &dyn Fn(&mut Vec<JobWithSteps>)| {
            let mut rows = recorded_rows(&controller);
            change(&mut rows);
            let case = Case {
                plans: &BTreeMap::new(),
                acknowledged: &BTreeMap::new(),
                cancelled: &BTreeSet::new(),
                book: &Book::default(),
                witness: &witness,
                controller: &controller,
                runs: &BTreeMap::from([(sluid.clone(), journal.clone())]),
            };
            let mut verdict = Verdict::default();
            let sums = compare(&case, &rows, &mut verdict);
            (verdict.violations.iter().map(|one| one.wrong).collect::<Vec<_>>(), sums.are_equal())
        };
        assert_eq!(found(&|_| {}), (vec![], true));
        assert_eq!(found(&|rows| rows.clear()), (vec![Wrong::Lost, Wrong::Lost], false));
        let twice = |rows: &mut Vec<JobWithSteps>| {
            let mut other = rows[0].clone();
            other.row.sluid = Sluid(8);
            rows.push(other);
        };
        assert_eq!(found(&twice), (vec![Wrong::Duplicated], false));
        assert_eq!(found(&|rows| rows[0].row.end = None), (vec![Wrong::Lost, Wrong::Untrue], true));
        assert_eq!(found(&|rows| rows[0].row.exit.code = 1), (vec![Wrong::Untrue, Wrong::Untrue], false));
        assert_eq!(found(&|rows| drop(rows[0].steps.pop())), (vec![Wrong::Lost], false));
        assert_eq!(
            found(&|rows| rows[0].steps[1].key = StepKey::number(9)),
            (vec![Wrong::Lost, Wrong::Duplicated], true)
        );
        assert_eq!(found(&|rows| rows[0].steps[1].state = StepState::Failed), (vec![Wrong::Untrue], true));
    }
}
