//! What must hold in the end, whatever was done to the cluster. The witness's log is compared with Garrick's records; a
//! difference must be explained by something that was done to that very run.

use super::{
    injury::{Book, Fault, RunFaults},
    records::{RunRecords, StepRecord},
    witness::{RunSeen, StepRef, StepSeen, Witness},
    work::{JobPlan, step_code},
};
use garrick_events::steps::end::StepEnd;
use garrick_events::{
    event::Replayed,
    records::job::{JobRecord, Phase},
};
use garrick_model::state::{ExitStatus, JobState, Reason, StepState};
use std::collections::{BTreeMap, BTreeSet};

/// Starts of a step manager that are allowed after the first, before a run is given up.
pub(super) const RESTARTS: u32 = garrick_agent::RESTARTS as u32;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// Accepted, and not there; or without an end.
    Lost,
    /// Ran or ended twice.
    Duplicated,
    /// An end that is not true, or not excused.
    Untrue,
    /// Left over.
    Leaked,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What kind.
    pub wrong: Wrong,
    /// Of what, and how.
    pub text: String,
}

/// All that is judged.
#[derive(Debug)]
pub struct Case<'a> {
    /// What was asked for, by serial number.
    pub plans: &'a BTreeMap<u32, JobPlan>,
    /// Acknowledged: job ids by serial number.
    pub acknowledged: &'a BTreeMap<u32, u32>,
    /// Cancelled from outside.
    pub cancelled: &'a BTreeSet<u32>,
    /// What was done.
    pub book: &'a Book,
    /// What was seen.
    pub witness: &'a Witness,
    /// What the controller knows.
    pub controller: &'a Replayed,
    /// The runs' journals.
    pub runs: &'a BTreeMap<String, RunRecords>,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Violations.
    pub violations: Vec<Violation>,
    /// Jobs with a record.
    pub jobs: u32,
    /// By final state.
    pub job_states: BTreeMap<String, u32>,
    /// Steps with a record.
    pub steps: u32,
    /// Of these, with the exit code that the task itself announced.
    pub true_exits: u32,
    /// Steps ended otherwise, by cause.
    pub other_ends: BTreeMap<String, u32>,
    /// Tasks that began.
    pub tasks_run: u32,
    /// Step managers that took over from one that was killed.
    pub takeovers: u32,
    /// Jobs that exited unknown, by cause.
    pub job_excuses: BTreeMap<String, u32>,
}

impl Verdict {
    /// How many of a kind.
    pub fn of(&self, wrong: Wrong) -> usize {
        self.violations.iter().filter(|v| v.wrong == wrong).count()
    }

    pub(super) fn found(&mut self, wrong: Wrong, text: String) {
        self.violations.push(Violation { wrong, text });
    }
}

/// Judges.
pub fn judge(case: &Case<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    for line in &case.witness.odd {
        verdict.found(Wrong::Untrue, format!("the witness has {line:?}"));
    }
    accepted_jobs_are_known_once(case, &mut verdict);
    for record in case.controller.jobs.values() {
        verdict.jobs += 1;
        job_is_over_and_ended_truly(case, record, &mut verdict);
    }
    nothing_ran_that_nobody_asked_for(case, &mut verdict);
    for (sluid, run) in case.runs {
        verdict.takeovers += run.takeovers;
        let counted = all_ends_are_counted(case, sluid, run);
        for (step, record) in &run.steps {
            verdict.steps += 1;
            step_has_one_true_end(case, step, record, counted, &mut verdict);
        }
        if let Some(seen) = case.witness.runs.get(sluid) {
            acknowledged_steps_are_recorded(sluid, seen, run, &mut verdict);
            waiters_were_told_the_truth(case, sluid, seen, &mut verdict);
        }
    }
    verdict
}

fn by_serial<'a>(case: &Case<'a>) -> BTreeMap<u32, Vec<&'a JobRecord>> {
    let mut all: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for record in case.controller.jobs.values() {
        if let Some(serial) = serial(record) {
            all.entry(serial).or_default().push(record);
        }
    }
    all
}

fn serial(record: &JobRecord) -> Option<u32> {
    record.spec.name.strip_prefix('f')?.parse().ok()
}

fn accepted_jobs_are_known_once(case: &Case<'_>, verdict: &mut Verdict) {
    let jobs = by_serial(case);
    for (serial, id) in case.acknowledged {
        let known = jobs.get(serial).map(Vec::as_slice).unwrap_or_default();
        if !known.iter().any(|r| r.id.0 == *id) {
            verdict.found(Wrong::Lost, format!("job {id} (f{serial}) was acknowledged and is not known"));
        }
    }
    for (serial, known) in jobs.iter().filter(|(_, known)| known.len() > 1) {
        let ids: Vec<u32> = known.iter().map(|r| r.id.0).collect();
        verdict.found(Wrong::Duplicated, format!("f{serial} was submitted once and is jobs {ids:?}"));
    }
}

fn job_is_over_and_ended_truly(case: &Case<'_>, record: &JobRecord, verdict: &mut Verdict) {
    let (id, sluid) = (record.id, record.sluid.to_string());
    let Some(plan) = serial(record).and_then(|s| case.plans.get(&s)) else { return };
    let Phase::Over(_, end) = &record.phase else {
        return verdict.found(Wrong::Lost, format!("job {id} ({}) is {} for ever", plan.name(), record.phase.name()));
    };
    *verdict.job_states.entry(format!("{:?}", end.state)).or_default() += 1;
    let seen = case.witness.runs.get(&sluid);
    let codes = seen.map(|s| s.codes.as_slice()).unwrap_or_default();
    let expected = ExitStatus { code: plan.exit_code(), signal: None };
    let natural = if expected.success() { JobState::Completed } else { JobState::Failed };
    let faults = case.book.run(&sluid);
    if end.state == natural && end.exit == expected && codes == [plan.exit_code()] {
        // Where the disk was full, some ends are with the controller only, and all of them are.
        let full_disk = case.runs.get(&sluid).is_some_and(|run| all_ends_are_counted(case, &sluid, run));
        if !full_disk {
            steps_are_counted(record, case.runs.get(&sluid), faults, verdict);
        }
        return;
    }
    let excuse = if case.cancelled.contains(&plan.serial) && end.state == JobState::Cancelled {
        Some("cancelled")
    } else if faults.launchers > 0 && end.state == JobState::Failed {
        Some("exit unknown: its launcher was killed")
    } else if faults.stepds > 0 && batch_is_unknown(case, &sluid) && seen.is_none() {
        Some("exit unknown: its step manager was killed while it started the launcher")
    } else if end.reason == Reason::StepManagerDied && seen.is_none() && case.book.of(Fault::FillDisk) > 0 {
        Some("never began: its step manager could not start on a full disk")
    } else if faults.stepds > RESTARTS && end.reason == Reason::StepManagerDied {
        Some("its step managers were killed too often")
    } else if faults.stepds > RESTARTS && (end.state, &end.reason) == (JobState::NodeFail, &Reason::NodeDown) {
        // A node on which the run was given up is lost to it.
        Some("its shepherds on a node were killed too often")
    } else {
        None
    };
    match excuse {
        Some(excuse) => *verdict.job_excuses.entry(excuse.to_owned()).or_default() += 1,
        None => verdict.found(
            Wrong::Untrue,
            format!(
                "job {id} ({}, run {sluid}) ended as {:?} ({:?}) with {:?}, and its script said {codes:?}; done to it: {faults:?}",
                plan.name(),
                end.state,
                end.reason,
                end.exit
            ),
        ),
    }
}

fn batch_is_unknown(case: &Case<'_>, sluid: &str) -> bool {
    let ends = case.runs.get(sluid).map(|run| run.batch.as_slice()).unwrap_or_default();
    ends.iter().any(|end| end.cause == Some(StepEnd::ExitUnknown))
}

/// The controller was told of every end.
fn steps_are_counted(record: &JobRecord, run: Option<&RunRecords>, faults: RunFaults, verdict: &mut Verdict) {
    let (id, counts) = (record.id, record.steps.counts);
    let Some(run) = run else {
        return verdict.found(Wrong::Lost, format!("job {id} (run {}): no journal was kept", record.sluid));
    };
    let ended = run.steps.values().filter(|s| !s.ends.is_empty()).count() as u64;
    if counts.done + counts.failed != ended || record.steps.unreported > 0 {
        verdict.found(
            Wrong::Lost,
            format!(
                "job {id} (run {}): {ended} steps ended and the controller counts {:?}; done to it: {faults:?}",
                record.sluid, record.steps
            ),
        );
    }
}

fn nothing_ran_that_nobody_asked_for(case: &Case<'_>, verdict: &mut Verdict) {
    let jobs = by_serial(case);
    let mut runs: BTreeMap<u32, Vec<&String>> = BTreeMap::new();
    for (sluid, seen) in &case.witness.runs {
        runs.entry(seen.serial).or_default().push(sluid);
        if seen.began > 1 {
            verdict.found(
                Wrong::Duplicated,
                format!("the script of f{} began {} times in run {sluid}", seen.serial, seen.began),
            );
        }
    }
    for (serial, sluids) in runs {
        let records = jobs.get(&serial).map(Vec::as_slice).unwrap_or_default();
        if records.is_empty() {
            verdict.found(Wrong::Lost, format!("f{serial} ran as {sluids:?} and no job is known"));
        }
        let may_rerun = case.plans.get(&serial).is_some_and(|p| p.requeue);
        let allowed = if may_rerun { 1 + records.iter().map(|r| r.restarts as usize).sum::<usize>() } else { 1 };
        if sluids.len() > allowed {
            verdict.found(Wrong::Duplicated, format!("f{serial} ran as {sluids:?}, {allowed} runs were asked for"));
        }
    }
    // A step is told by its place in the job; each may run once in a run.
    let mut places: BTreeMap<(&str, u32), Vec<&StepRef>> = BTreeMap::new();
    for (step, seen) in &case.witness.steps {
        places.entry((&step.sluid, seen.index)).or_default().push(step);
        for ((attempt, rank), task) in &seen.tasks {
            verdict.tasks_run += task.began;
            if task.began != 1 || *attempt > 0 || task.codes.len() > 1 {
                verdict.found(
                    Wrong::Duplicated,
                    format!(
                        "task {rank} of {step:?} began {} times (try {attempt}) and ended with {:?}",
                        task.began, task.codes
                    ),
                );
            }
        }
        let run = case.runs.get(&step.sluid);
        if run.is_some_and(|r| r.steps.contains_key(step)) {
            continue;
        }
        if run.is_some_and(|run| all_ends_are_counted(case, &step.sluid, run)) {
            *verdict.other_ends.entry("are with the controller only: the disk was full".to_owned()).or_default() += 1;
        } else {
            verdict.found(Wrong::Lost, format!("{step:?} ran and has no record"));
        }
    }
    for ((sluid, index), steps) in places.iter().filter(|(_, steps)| steps.len() > 1) {
        verdict.found(Wrong::Duplicated, format!("step {index} of run {sluid} ran as {steps:?}"));
    }
}

/// A run that ends while its disk is full cannot write down any more what begins and ends; it still tells the controller of
/// every end.
fn all_ends_are_counted(case: &Case<'_>, sluid: &str, run: &RunRecords) -> bool {
    let record = case.controller.jobs.values().find(|r| r.sluid.to_string() == sluid);
    let counts = record.map(|r| r.steps.counts).unwrap_or_default();
    let unwritten = case.witness.steps.keys().filter(|s| s.sluid == sluid && !run.steps.contains_key(s)).count();
    case.book.of(Fault::FillDisk) > 0 && counts.done + counts.failed == (run.steps.len() + unwritten) as u64
}

fn step_has_one_true_end(case: &Case<'_>, step: &StepRef, record: &StepRecord, counted: bool, verdict: &mut Verdict) {
    let faults = case.book.run(&step.sluid);
    let end = match record.ends.as_slice() {
        [] => {
            // A run that was given up has no step manager that could write more.
            if counted {
                *verdict.other_ends.entry("end with the controller only: the disk was full".to_owned()).or_default() +=
                    1;
            } else if faults.stepds > RESTARTS {
                *verdict.other_ends.entry("no end: its step managers were killed too often".to_owned()).or_default() +=
                    1;
            } else {
                verdict.found(Wrong::Lost, format!("{step:?} has no end; {record:?}; done to it: {faults:?}"));
            }
            return;
        }
        [end] => end,
        ends => return verdict.found(Wrong::Duplicated, format!("{step:?} ended {} times: {ends:?}", ends.len())),
    };
    let seen = case.witness.steps.get(step);
    let cancelled = seen.is_some_and(|s| case.cancelled.contains(&s.serial));
    match &end.cause {
        // After a takeover the signal that ended it is all that is known.
        None if cancelled && end.exit.signal.is_some() => {
            *verdict.other_ends.entry("ended by a signal: its job was cancelled".to_owned()).or_default() += 1;
        }
        None => match own_end(case, seen) {
            Some(exit) if exit == end.exit && end.state == state_of(exit) => verdict.true_exits += 1,
            own => verdict.found(
                Wrong::Untrue,
                format!(
                    "{step:?} ended as {end:?}, its tasks announced {own:?}; seen {seen:?}; done to it: {faults:?}"
                ),
            ),
        },
        Some(cause) => {
            let serial = case.witness.runs.get(&step.sluid).map(|r| r.serial);
            // An order that died with a shepherd: nobody but its `srun` could give it again.
            let order_lost = *cause == StepEnd::ExitUnknown && faults.stepds > 0 && !record.accepted;
            let half_begun = *cause == StepEnd::ExitUnknown && faults.stepds > 0 && began_on_some_nodes(case, seen);
            if excused(case, cause, serial, faults) || order_lost || half_begun {
                *verdict.other_ends.entry(format!("{:?}: {cause:?}", end.state)).or_default() += 1;
            } else {
                verdict
                    .found(Wrong::Untrue, format!("{step:?} ended as {end:?} without cause; done to it: {faults:?}"));
            }
        }
    }
}

/// Some of its tasks began and some did not: the order to one of its nodes died with the shepherd there, and what ran may not run
/// again.
fn began_on_some_nodes(case: &Case<'_>, seen: Option<&StepSeen>) -> bool {
    seen.is_some_and(|seen| {
        let plan = case.plans.get(&seen.serial);
        plan.is_some_and(|plan| seen.tasks.len() < plan.tasks_of(seen.index) as usize)
    })
}

fn state_of(exit: ExitStatus) -> StepState {
    if exit.success() { StepState::Completed } else { StepState::Failed }
}

/// The exit status that the step's tasks announced, if all of them did, and truly.
pub(super) fn own_end(case: &Case<'_>, seen: Option<&StepSeen>) -> Option<ExitStatus> {
    let seen = seen?;
    let tasks = case.plans.get(&seen.serial)?.tasks_of(seen.index) as usize;
    let code = step_code(seen.serial, seen.index);
    let all = seen.tasks.len() == tasks && seen.tasks.values().all(|t| t.codes == [code]);
    all.then_some(ExitStatus { code, signal: None })
}

/// Whether something was done to the run that may end a step so.
fn excused(case: &Case<'_>, cause: &StepEnd, serial: Option<u32>, faults: RunFaults) -> bool {
    let cancelled = serial.is_some_and(|s| case.cancelled.contains(&s));
    let given_up = faults.stepds > RESTARTS;
    match cause {
        StepEnd::ExitUnknown => faults.launchers > 0,
        StepEnd::ManagerRestarted => faults.stepds > 0,
        StepEnd::ClientGone => faults.commands > 0 || faults.stepds > 0 || faults.launchers > 0 || cancelled,
        StepEnd::BatchOver => faults.launchers > 0 || cancelled || given_up,
        StepEnd::Job(_) | StepEnd::Cancelled => cancelled || faults.launchers > 0 || given_up,
        StepEnd::NodeLost { .. } => case.book.of(Fault::Cut) > 0,
        _ => false,
    }
}

fn acknowledged_steps_are_recorded(sluid: &str, seen: &RunSeen, run: &RunRecords, verdict: &mut Verdict) {
    for (first, count, ids) in &seen.accepted {
        let there = ids_of(ids).is_some_and(|(from, to)| {
            let of_number =
                |n: u32| run.steps.range(step_range(sluid, n)).filter(|(_, record)| record.accepted).count();
            (from..=to).map(of_number).sum::<usize>() == *count as usize
        });
        if !there {
            verdict.found(
                Wrong::Lost,
                format!("run {sluid}: {count} steps from {first} were accepted as {ids}, and are not all recorded"),
            );
        }
    }
}

fn step_range(sluid: &str, step: u32) -> std::ops::RangeInclusive<StepRef> {
    let named = |array| StepRef { sluid: sluid.to_owned(), step, array };
    named(None)..=named(Some(u32::MAX))
}

/// `12.3` is 3 to 3, `12.[3-9]` is 3 to 9.
fn ids_of(text: &str) -> Option<(u32, u32)> {
    let (_, numbers) = text.split_once('.')?;
    let numbers = numbers.trim_start_matches('[').trim_end_matches(']');
    match numbers.split_once('-') {
        Some((from, to)) => Some((from.parse().ok()?, to.parse().ok()?)),
        None => numbers.parse().ok().map(|n| (n, n)),
    }
}

/// An `srun` of a run to which nothing was done returns what its step exited with.
fn waiters_were_told_the_truth(case: &Case<'_>, sluid: &str, seen: &RunSeen, verdict: &mut Verdict) {
    if case.book.run(sluid) != RunFaults::default() || case.cancelled.contains(&seen.serial) {
        return;
    }
    let lies = seen.returned.iter().filter(|(index, code)| *code != step_code(seen.serial, *index));
    for (index, code) in lies {
        verdict.found(Wrong::Untrue, format!("run {sluid} of f{}: srun of step {index} returned {code}", seen.serial));
    }
}
