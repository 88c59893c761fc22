//! `srun --async --rerun-failed JOB[.STEP]` and `--resume JOB[.STEP]`: submits steps again that were submitted before and failed
//! or did not complete, unchanged, from the records of their run. A step that was rerun since, and completed, is skipped.

use super::{
    chunk::{MOST_BYTES, MOST_LINES, SPEC_BYTES},
    given::Given,
    handover::{Handed, Handover},
};
use crate::{
    options::{minibatch::Again, typed::Typed},
    output::{self, Console},
    query::records,
    submit::{no_step::no_step, startup},
};
use garrick_asking::{
    cluster::{Cluster, ClusterError},
    manager::Way,
    run_records::{self, Over, Part},
};
use garrick_model::{
    batch::{BatchMembers, CommandList, StepBatch},
    ids::{JobId, RequestId, StepKey, StepNum},
    messages::records::{RecordedBatch, RecordedOrigin, RecordedRun, RecordedStep, WantedRecords},
    spec::{ArraySpec, EnvEntry, StepSpec},
    state::StepState,
    step_selector::WhichSteps,
};
use garrick_render::steps::FAILED;
use std::{collections::BTreeMap, sync::Arc};

/// Is a step meant that came to this? `over`: its run is.
fn means(which: Again, state: StepState, over: bool) -> bool {
    match (which, state) {
        (_, StepState::Completed) => false,
        (Again::Failed, state) => FAILED.contains(&state),
        (Again::Unfinished, StepState::Pending | StepState::Running) => over,
        (Again::Unfinished, _) => true,
    }
}

/// A step by the job and the number that it was handed over with at first: they stay when it is run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    job: JobId,
    key: StepKey,
}

/// What is known of one that is to be run again.
#[derive(Clone, Debug)]
struct Open {
    /// First number and spec of its batch.
    made_of: (u32, u32),
    /// Job and first number of the batch that it was in at first.
    root: (JobId, u32),
    step: RecordedStep,
}

/// What specs share.
type Environment = Arc<Vec<EnvEntry>>;

/// What steps are made of; its own environment is empty.
#[derive(Clone, Debug)]
struct Batch {
    told: RecordedBatch,
    environment: Environment,
}

/// Steps that did not end well, as their records are read.
#[derive(Clone, Debug, Default)]
struct Search {
    run: Option<RecordedRun>,
    /// By first number and spec.
    batches: BTreeMap<(u32, u32), Batch>,
    /// The environment that was told last, by first number.
    environments: BTreeMap<u32, Environment>,
    open: BTreeMap<Identity, Open>,
    /// Steps that an `srun` stayed with.
    attended: u64,
}

impl Search {
    fn take(&mut self, which: Again, part: Part) -> bool {
        match part {
            Part::Run(run) => self.run = Some(run),
            Part::Batch(batch) => self.batch(*batch),
            Part::Steps(origins, steps) => {
                let over = self.run.as_ref().is_some_and(|run| run.end.is_some());
                for step in steps {
                    if let Some(origin) = origins.get(step.origin as usize) {
                        self.step(which, over, origin, step);
                    }
                }
            }
        }
        true
    }

    fn batch(&mut self, mut told: RecordedBatch) {
        let own = std::mem::take(&mut Arc::make_mut(&mut told.made_of).environment);
        let last = self.environments.entry(told.first).or_default();
        // A daemon of an earlier version tells it with each spec.
        if !own.is_empty() && own != **last {
            *last = Arc::new(own);
        }
        let environment = Arc::clone(last);
        self.batches.insert((told.first, told.spec), Batch { told, environment });
    }

    fn step(&mut self, which: Again, over: bool, origin: &RecordedOrigin, step: RecordedStep) {
        let Some(job) = self.run.as_ref().map(|run| run.job) else { return };
        let StepNum::Number(_) = step.key.step else { return };
        let Some(made_of) = origin.batch else {
            self.attended += u64::from(means(which, step.state, over));
            return;
        };
        let root = origin.again_of.unwrap_or((job, made_of.0));
        let keys: Vec<StepKey> = step.all_of.as_ref().map_or_else(|| vec![step.key], |all| all.keys().collect());
        for key in keys {
            let first = match (key.array, step.again_number) {
                (Some(task), _) => StepKey::task(root.1, task),
                (None, Some(number)) => StepKey::number(number),
                // One by itself.
                (None, None) if origin.again_of.is_some() => StepKey::number(root.1),
                (None, None) => key,
            };
            let identity = Identity { job: root.0, key: first };
            if means(which, step.state, over) {
                let step = RecordedStep { key, all_of: None, ..step.clone() };
                self.open.insert(identity, Open { made_of, root, step });
            } else {
                self.open.remove(&identity);
            }
        }
    }

    /// What is handed over: for each batch and spec, in their order.
    fn into_batches(self, named: &[WhichSteps]) -> Vec<StepBatch> {
        let Some(run) = self.run else { return Vec::new() };
        let meant = |identity: &Identity, open: &Open| {
            let at_first = |which: &WhichSteps| identity.job == run.job && which.contains(identity.key);
            named.is_empty() || named.iter().any(|which| at_first(which) || which.contains(open.step.key))
        };
        let mut groups: BTreeMap<_, Vec<(StepKey, Open)>> = BTreeMap::new();
        for (identity, open) in self.open {
            if meant(&identity, &open) {
                groups.entry((open.root, open.made_of)).or_default().push((identity.key, open));
            }
        }
        let (mut made, mut limits) = (Requests::default(), BTreeMap::new());
        for ((root, made_of), steps) in groups {
            let Some(Batch { told, environment }) = self.batches.get(&made_of) else { continue };
            let mut spec = as_it_was(&run, told, root);
            if let Some(limit) = &mut spec.fail_limit {
                // They count for themselves, together as before.
                limit.group = *limits.entry(limit.group).or_insert_with(RequestId::random);
            }
            if told.array {
                let tasks = steps.iter().filter_map(|(key, _)| key.array);
                let tasks = ArraySpec::from_indices(tasks, told.limit);
                made.alone(spec, environment, BatchMembers::Array(tasks));
                continue;
            }
            for (key, open) in &steps {
                let step = &open.step;
                let Some(number) = key.step.number() else { continue };
                if step.argv.is_empty() {
                    let spec = StepSpec { again_of: Some((root.0, number)), ..spec.clone() };
                    made.alone(spec, environment, BatchMembers::Each);
                } else {
                    made.line((root, made_of), &spec, environment, step, number);
                }
            }
        }
        made.finish()
    }
}

/// Requests in the making. Lines of lists go together, however many specs they have, and an environment that they share goes
/// with the first of them.
#[derive(Debug, Default)]
struct Requests {
    made: Vec<StepBatch>,
    specs: Vec<StepSpec>,
    list: CommandList,
    /// Whose lines came last.
    last: Option<((JobId, u32), (u32, u32))>,
    environment: Environment,
    bytes: usize,
}

impl Requests {
    fn alone(&mut self, spec: StepSpec, environment: &Environment, members: BatchMembers) {
        self.close();
        let spec = StepSpec { environment: environment.to_vec(), ..spec };
        self.made.push(StepBatch { specs: vec![spec], members });
    }

    fn line(
        &mut self,
        of: ((JobId, u32), (u32, u32)),
        spec: &StepSpec,
        environment: &Environment,
        step: &RecordedStep,
        number: u32,
    ) {
        let full = self.list.len() >= MOST_LINES || self.list.bytes() + self.bytes >= MOST_BYTES;
        // One that is empty would be taken for that of the spec before.
        let other = environment.is_empty() && !self.environment.is_empty();
        if full || other || self.last.is_some_and(|(root, _)| root != of.0) {
            self.close();
        }
        if self.last != Some(of) {
            let shared = !self.specs.is_empty() && *environment == self.environment;
            let own = if shared { Vec::new() } else { environment.to_vec() };
            self.bytes += SPEC_BYTES + spec.submit_line.len() + own.iter().map(|entry| entry.len()).sum::<usize>();
            self.environment = Arc::clone(environment);
            self.specs.push(StepSpec { environment: own, ..spec.clone() });
            self.last = Some(of);
        }
        add(&mut self.list, step, self.specs.len() as u32 - 1, number);
    }

    fn close(&mut self) {
        let (specs, list) = (std::mem::take(&mut self.specs), std::mem::take(&mut self.list));
        (self.last, self.bytes, self.environment) = (None, 0, Environment::default());
        if !specs.is_empty() {
            self.made.push(StepBatch { specs, members: BatchMembers::Commands(list) });
        }
    }

    fn finish(mut self) -> Vec<StepBatch> {
        self.close();
        self.made
    }
}

/// Adds the command of a step with all that is its own.
fn add(list: &mut CommandList, step: &RecordedStep, spec: u32, number: u32) {
    list.push(&step.argv, spec);
    if let Some(line) = step.line {
        list.set_line(line);
    }
    list.set_values(&step.values);
    list.set_name(&step.own_name);
    let variables = step.environment.iter().map(|entry| format!("{}\0", String::from_utf8_lossy(entry)));
    list.set_environment(&variables.collect::<String>());
    list.again.push(number);
}

/// A spec for the same steps in whatever job: what it left to its own job is said.
fn as_it_was(run: &RecordedRun, batch: &RecordedBatch, root: (JobId, u32)) -> StepSpec {
    let made_of: &StepSpec = &batch.made_of;
    StepSpec {
        work_dir: made_of.work_dir.clone().or_else(|| Some(run.work_dir.clone())),
        // Of steps that were, under numbers that mean others by now.
        dependency: None,
        again_of: Some(root),
        ..made_of.clone()
    }
}

/// Finds them and hands them over. Returns the exit code.
pub fn run(typed: &Typed, which: Again, named: &str, way: Way, console: &Console) -> Result<i32, i32> {
    let job = way.job();
    let wrong = |text: String| {
        console.error(text);
        startup::exit_code(1)
    };
    let selectors = records::named(named).map_err(wrong)?;
    let [(which_steps, of)] = &records::runs_of(&selectors)[..] else {
        return Err(wrong(format!("{named}: steps of one job at a time can be run again")));
    };
    let failed = |error: &ClusterError| records::tell(console, named, error);
    let cluster = Cluster::find(typed.conf.as_deref()).map_err(|error| failed(&error))?;
    let wanted = WantedRecords { texts: true, batches: true, share_environments: true, ..WantedRecords::default() };
    let mut search = Search::default();
    let Over { missing, .. } = run_records::read(&cluster, console, of, wanted, &mut |part| search.take(which, part))
        .map_err(|error| failed(&error))?;
    if let Some(what) = missing.first() {
        return Err(wrong(format!("{named}: its records are not whole, and nothing is run again: {what}")));
    }
    if search.attended > 0 {
        console.warning(format_args!(
            "{} steps that an srun stayed with are not run again: run that srun once more",
            search.attended
        ));
    }
    let batches = search.into_batches(which_steps);
    if batches.is_empty() {
        console.info(format_args!("{named}: no step is to be run again"));
        return Ok(0);
    }
    hand_over(typed, batches, way, job, console)
}

fn hand_over(typed: &Typed, batches: Vec<StepBatch>, way: Way, job: JobId, console: &Console) -> Result<i32, i32> {
    let mut handover = Handover::begin(way, console, None).map_err(|no_way| no_step(console, job, no_way))?;
    let (mut all, mut code) = (Given::default(), 0);
    for batch in batches {
        let error = match handover.hand_over(batch) {
            Handed::Answered { given, declined } => {
                given.into_iter().for_each(|given| all.add(given));
                match declined.into_iter().next() {
                    Some((_, refusal)) => ClusterError::Refused(refusal),
                    None => continue,
                }
            }
            Handed::Refused(error) | Handed::Lost(error) => error,
            Handed::Interrupted { .. } => {
                code = startup::exit_code(1);
                break;
            }
        };
        error.details().iter().for_each(|line| console.error(line));
        console.error(format_args!("Unable to create step for job {job}: {error}"));
        code = startup::exit_code(1);
    }
    let name = all.names(job);
    let line = name.map(|name| if typed.parsable { name } else { format!("Submitted steps {name}") });
    let written = output::stdout(|out| line.iter().try_for_each(|line| writeln!(out, "{line}")));
    Ok(output::finish(console, written, code))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::{ids::Sluid, state::ExitStatus, time::Timestamp, usage::TaskUsage};
    use serde_bytes::ByteBuf;

    fn search(over: bool) -> Search {
        let run = RecordedRun {
            job: JobId(12),
            sluid: Sluid(70),
            node: "n0".into(),
            uid: 1001,
            user: "alice".into(),
            name: "job".into(),
            work_dir: "/home/alice".into(),
            array: None,
            nodes: vec!["n0".into()],
            cpus: 4,
            partition: "p".into(),
            start: Timestamp(0),
            end: over.then_some(Timestamp(9)),
        };
        let mut search = Search { run: Some(run), ..Search::default() };
        for (first, array) in [(0, true), (1, false), (9, true)] {
            let again_of = (first == 9).then_some((JobId(12), 0));
            let made_of = StepSpec { name: "work".into(), again_of, ..StepSpec::default() };
            let batch = RecordedBatch { first, array, limit: None, spec: 0, made_of: Arc::new(made_of) };
            search.batch(batch);
        }
        search
    }

    fn origin(first: u32) -> RecordedOrigin {
        RecordedOrigin {
            batch: Some((first, 0)),
            again_of: (first == 9).then_some((JobId(12), 0)),
            ..RecordedOrigin::named("work")
        }
    }

    fn step(key: StepKey, state: StepState) -> RecordedStep {
        RecordedStep {
            key,
            all_of: None,
            origin: 0,
            state,
            attempt: 0,
            again: false,
            slots: Vec::new(),
            cpus: 1,
            queued: None,
            start: None,
            end: None,
            exit: ExitStatus::SUCCESS,
            usage: TaskUsage::default(),
            reason: String::new(),
            word: Default::default(),
            line: None,
            argv: Vec::new(),
            values: String::new(),
            own_name: String::new(),
            environment: Vec::new(),
            again_number: None,
            output: String::new(),
        }
    }

    fn tasks(batches: &[StepBatch]) -> Vec<String> {
        let name = |batch: &StepBatch| match &batch.members {
            BatchMembers::Array(tasks) => tasks.to_string(),
            BatchMembers::Commands(list) => (0..list.len()).map(|n| list.line(n).unwrap().to_string()).collect(),
            BatchMembers::Each => "each".to_owned(),
        };
        batches.iter().map(name).collect()
    }

    #[test]
    fn failed_tasks_run_again_and_those_that_did_so_well_since_do_not() {
        let mut found = search(true);
        for (n, state) in
            [(1, StepState::Failed), (2, StepState::Completed), (3, StepState::Timeout), (4, StepState::Failed)]
        {
            found.step(Again::Failed, true, &origin(0), step(StepKey::task(0, n), state));
        }
        found.step(Again::Failed, true, &origin(9), step(StepKey::task(9, 1), StepState::Completed));
        found.step(Again::Failed, true, &origin(9), step(StepKey::task(9, 3), StepState::Failed));
        let batches = found.clone().into_batches(&["9_3".parse().unwrap()]);
        assert_eq!(tasks(&batches), ["3"], "by the number of its last run");
        let batches = found.into_batches(&[]);
        assert_eq!(tasks(&batches), ["4", "3"]);
        for batch in &batches {
            assert_eq!(batch.specs[0].again_of, Some((JobId(12), 0)));
            assert_eq!(batch.specs[0].work_dir.as_deref(), Some("/home/alice"));
        }
    }

    #[test]
    fn lines_keep_their_numbers_and_those_that_are_named_are_taken() {
        let mut found = search(true);
        for line in 1..=4 {
            let (state, argv) = (StepState::Failed, vec![ByteBuf::from(b"x".to_vec())]);
            let step = RecordedStep { line: Some(line), argv, ..step(StepKey::number(line), state) };
            found.step(Again::Failed, true, &origin(1), step);
        }
        assert_eq!(tasks(&found.into_batches(&["[2-3]".parse().unwrap()])), ["23"]);
    }

    #[test]
    fn equal_commands_are_steps_of_their_own_whatever_job_ran_them_last() {
        let line = |number, state, again_number| {
            let (argv, values) = (vec![ByteBuf::from(b"x".to_vec())], "seed=1".to_owned());
            RecordedStep { line: Some(2), argv, values, again_number, ..step(StepKey::number(number), state) }
        };
        let mut found = search(true);
        for number in 1..=3 {
            found.step(Again::Failed, true, &origin(1), line(number, StepState::Failed, None));
        }
        // A step of another job, run again twice here: the second time it ended well.
        let elsewhere = RecordedOrigin { again_of: Some((JobId(7), 1)), ..origin(1) };
        found.step(Again::Failed, true, &elsewhere, line(20, StepState::Failed, Some(2)));
        found.step(Again::Failed, true, &origin(1), line(2, StepState::Completed, None));
        let left = |found: &Search| -> Vec<Vec<u32>> {
            let again = |batch: StepBatch| match batch.members {
                BatchMembers::Commands(list) => list.again,
                _ => Vec::new(),
            };
            found.clone().into_batches(&[]).into_iter().map(again).collect()
        };
        assert_eq!(left(&found), [vec![2], vec![1, 3]]);
        found.step(Again::Failed, true, &elsewhere, line(21, StepState::Completed, Some(2)));
        assert_eq!(left(&found), [vec![1, 3]]);
    }

    #[test]
    fn what_never_started_is_resumed_once_the_run_is_over() {
        let waiting =
            RecordedStep { all_of: Some("0_[5-6]".parse().unwrap()), ..step(StepKey::task(0, 5), StepState::Pending) };
        for (over, expected) in [(true, vec!["1,5-6".to_owned()]), (false, vec!["1".to_owned()])] {
            let mut found = search(over);
            found.step(Again::Unfinished, over, &origin(0), step(StepKey::task(0, 1), StepState::Cancelled));
            found.step(Again::Unfinished, over, &origin(0), waiting.clone());
            assert_eq!(tasks(&found.into_batches(&[])), expected);
        }
    }

    #[test]
    fn steps_with_files_of_their_own_share_one_environment_in_each_request() {
        const STEPS: u32 = 10_000;
        let environment: Vec<EnvEntry> = vec![ByteBuf::from(vec![b'e'; 100_000])];
        let mut found = search(true);
        for n in 0..STEPS {
            let stdout = garrick_model::spec::StreamTarget::File(format!("out.{n}"));
            // The first tells it, as the daemon does that was asked to share it; every hundredth as one that was not.
            let environment = if n.is_multiple_of(100) { environment.clone() } else { Vec::new() };
            let made_of = Arc::new(StepSpec { name: "work".into(), stdout, environment, ..StepSpec::default() });
            found.batch(RecordedBatch { first: 100, array: false, limit: None, spec: n, made_of });
            let origin = RecordedOrigin { batch: Some((100, n)), ..RecordedOrigin::named("work") };
            let argv = vec![ByteBuf::from(b"work".to_vec())];
            let failed = RecordedStep { argv, ..step(StepKey::number(100 + n), StepState::Failed) };
            found.step(Again::Failed, true, &origin, failed);
        }
        let batches = found.into_batches(&[]);
        let steps: u32 = batches.iter().map(StepBatch::len).sum();
        assert_eq!(steps, STEPS);
        let mut all = 0;
        for batch in &batches {
            assert_eq!(batch.check(u32::MAX), Ok(()));
            assert_eq!(batch.specs.iter().filter(|spec| !spec.environment.is_empty()).count(), 1);
            let bytes = garrick_frame::encode(batch, garrick_frame::limits::DOOR).unwrap().len();
            assert!(bytes < 2 * MOST_BYTES, "{bytes}");
            all += bytes;
        }
        // Some two kilobytes a step, where it was more than a hundred.
        assert!(all < STEPS as usize * 2_500, "{all}");
        let outs: std::collections::BTreeSet<String> =
            batches.iter().flat_map(|batch| &batch.specs).map(|spec| format!("{:?}", spec.stdout)).collect();
        assert_eq!(outs.len(), STEPS as usize, "each has its own file");
    }
}
