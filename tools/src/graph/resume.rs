//! What of a graph is left to run, according to the records of earlier jobs: a step that completed with the same command and
//! label is not run again.

use super::{
    check::Graph,
    plan::Share,
    written::{Many, Step},
};
use crate::{output::Console, query::records};
use garrick_asking::{
    cluster::{Cluster, ClusterError},
    run_records::{self, Over, Part},
};
use garrick_model::{
    batch::StepDependencyKind,
    messages::records::{RecordedOrigin, RecordedStep, WantedRecords},
    state::StepState,
};
use std::collections::HashMap;

/// What a step is known by from one job to the next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    label: String,
    task: Option<u32>,
    values: String,
    argv: Vec<Vec<u8>>,
}

/// By step, job after job: how often it ran there, and how often it completed. More than once where several are the same in
/// everything.
#[derive(Clone, Debug, Default)]
pub struct Completed(HashMap<Identity, Vec<(u64, u64)>>);

/// What is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// By step of the graph.
    pub shares: Vec<Share>,
    /// Steps that completed before and are not run again.
    pub completed: u64,
    /// Labels of those that can never run, since what would have to fail completed.
    pub never: Vec<String>,
}

fn identity(origin: &RecordedOrigin, step: &RecordedStep, task: Option<u32>) -> Identity {
    let label = if step.own_name.is_empty() { &origin.name } else { &step.own_name };
    let argv = if step.argv.is_empty() { &origin.argv } else { &step.argv };
    Identity {
        label: label.clone(),
        task,
        values: step.values.clone(),
        argv: argv.iter().map(|word| word.to_vec()).collect(),
    }
}

impl Completed {
    /// Adds what the records of a job say.
    fn add(&mut self, steps: &[(Identity, bool)]) {
        let mut of_job: HashMap<&Identity, (u64, u64)> = HashMap::new();
        for (identity, completed) in steps {
            let (ran, well) = of_job.entry(identity).or_default();
            *ran += 1;
            *well += u64::from(*completed);
        }
        for (identity, counts) in of_job {
            self.0.entry(identity.clone()).or_default().push(counts);
        }
    }

    /// Reads the records of jobs, `5609` or `5609,5611`, in their order. The error has been said.
    pub fn read(jobs: &str, conf: Option<&std::path::Path>, console: &Console) -> Result<Self, i32> {
        let wrong = |text: String| {
            console.error(text);
            1
        };
        let failed = |error: &ClusterError| records::tell(console, jobs, error);
        let cluster = Cluster::find(conf).map_err(|error| failed(&error))?;
        let mut all = Self::default();
        for (which, of) in records::runs_of(&records::named(jobs).map_err(wrong)?) {
            if !which.is_empty() {
                return Err(wrong(format!("{jobs}: a graph is resumed from whole jobs")));
            }
            let mut steps = Vec::new();
            let (mut job, mut is_over) = (of.job, true);
            let wanted = WantedRecords { texts: true, ..WantedRecords::default() };
            let read = run_records::read(&cluster, console, &of, wanted, &mut |part| {
                match part {
                    Part::Run(run) => (job, is_over) = (run.job, run.end.is_some()),
                    Part::Batch(_) => {}
                    Part::Steps(origins, recorded) => {
                        for step in recorded {
                            let Some(origin) = origins.get(step.origin as usize) else { continue };
                            // Those that an srun stayed with are of no graph.
                            if origin.batch.is_some() {
                                take(origin, &step, &mut steps);
                            }
                        }
                    }
                }
                true
            });
            let Over { missing, .. } = read.map_err(|error| failed(&error))?;
            if let Some(what) = missing.first() {
                return Err(wrong(format!(
                    "{job}: its records are not whole, and no graph is resumed from it: {what}"
                )));
            }
            if !is_over {
                return Err(wrong(format!("job {job} is not over: a graph is resumed when its job is")));
            }
            all.add(&steps);
        }
        Ok(all)
    }

    /// How many completed of `there` steps that are the same in everything. What ran in a job goes before what ran in jobs before
    /// it, and what did not run there is as it was.
    fn of(&self, identity: &Identity, there: u64) -> u64 {
        let jobs = self.0.get(identity).into_iter().flatten();
        jobs.fold(0, |before, (ran, well)| (well + before.min(there.saturating_sub(*ran))).min(there))
    }

    /// Which of a step's tasks or combinations did not complete, in their order.
    fn open(&self, step: &Step) -> Vec<u64> {
        let mut completed: HashMap<Identity, u64> = HashMap::new();
        for (_, identity) in members(step).filter(|(_, identity)| self.0.contains_key(identity)) {
            *completed.entry(identity).or_default() += 1;
        }
        completed.iter_mut().for_each(|(identity, count)| *count = self.of(identity, *count));
        let mut is_open = |identity: &Identity| match completed.get_mut(identity) {
            Some(count @ 1..) => {
                *count -= 1;
                false
            }
            _ => true,
        };
        members(step).filter(|(_, identity)| is_open(identity)).map(|(member, _)| member).collect()
    }

    /// What is left of a graph.
    pub fn left(self, graph: &Graph) -> Left {
        let mut left = Left { shares: vec![Share::All; graph.steps.len()], completed: 0, never: Vec::new() };
        let mut never = vec![false; graph.steps.len()];
        for at in graph.in_order() {
            let step = &graph.steps[at];
            let mut open = self.open(step);
            let mut all_again = false;
            for wait in &graph.waits[at] {
                let runs = left.shares[wait.on] != Share::Nothing;
                match (wait.kind, runs) {
                    // What runs again may end otherwise.
                    (
                        StepDependencyKind::AfterOk | StepDependencyKind::AfterAny | StepDependencyKind::AfterNotOk,
                        true,
                    ) => all_again = true,
                    (StepDependencyKind::AfterCorr, true) => match &left.shares[wait.on] {
                        Share::Tasks(tasks) => {
                            let runs = |task: &u64| tasks.binary_search_by_key(task, |other| u64::from(*other)).is_ok();
                            open.extend(numbers(step).filter(runs));
                        }
                        _ => all_again = true,
                    },
                    (StepDependencyKind::AfterOk | StepDependencyKind::AfterCorr, false) => never[at] |= never[wait.on],
                    (StepDependencyKind::AfterNotOk, false) => never[at] |= !never[wait.on],
                    (StepDependencyKind::After, _) | (StepDependencyKind::AfterAny, false) => {}
                }
            }
            if all_again {
                open = numbers(step).collect();
            }
            open.sort_unstable();
            open.dedup();
            left.shares[at] = if never[at] && !open.is_empty() {
                left.never.push(step.label.clone());
                Share::Nothing
            } else {
                left.completed += step.count() - open.len() as u64;
                share(step, open)
            };
        }
        left
    }
}

fn take(origin: &RecordedOrigin, step: &RecordedStep, into: &mut Vec<(Identity, bool)>) {
    let completed = step.state == StepState::Completed;
    match &step.all_of {
        Some(all) => into.extend(all.keys().map(|key| (identity(origin, step, key.array), completed))),
        None => into.push((identity(origin, step, step.key.array), completed)),
    }
}

/// A step's tasks or combinations by their numbers, and what each is known by.
fn members(step: &Step) -> Box<dyn Iterator<Item = (u64, Identity)> + '_> {
    let plain = |task: Option<u32>| Identity {
        label: step.label.clone(),
        task,
        values: String::new(),
        argv: step.argv.clone(),
    };
    match &step.many {
        Many::One => Box::new(std::iter::once((0, plain(None)))),
        Many::Array(tasks) => Box::new(tasks.indices().map(move |task| (u64::from(task), plain(Some(task))))),
        Many::Each(each) => Box::new((0..each.count()).map(move |number| {
            let line = each.line(number, &[]);
            let label = step.label.clone();
            (number, Identity { label, task: None, values: line.values, argv: line.argv })
        })),
    }
}

/// The numbers of a step's tasks or combinations, in their order.
fn numbers(step: &Step) -> Box<dyn Iterator<Item = u64> + '_> {
    match &step.many {
        Many::One => Box::new(std::iter::once(0)),
        Many::Array(tasks) => Box::new(tasks.indices().map(u64::from)),
        Many::Each(each) => Box::new(0..each.count()),
    }
}

fn share(step: &Step, open: Vec<u64>) -> Share {
    match &step.many {
        _ if open.is_empty() => Share::Nothing,
        _ if open.len() as u64 == step.count() => Share::All,
        Many::One => Share::All,
        Many::Array(_) => Share::Tasks(open.into_iter().map(|task| task as u32).collect()),
        Many::Each(_) => Share::Combinations(open),
    }
}

impl Left {
    /// Is nothing left?
    pub fn is_nothing(&self) -> bool {
        self.shares.iter().all(|share| *share == Share::Nothing)
    }

    /// Says what is left out.
    pub fn say(&self, graph: &Graph, jobs: &str, console: &Console) {
        let all = graph.count();
        console.info(format_args!("{} of {all} steps completed in job {jobs} and are not run again", self.completed));
        for label in &self.never {
            console.info(format_args!("step \"{label}\" does not run: what it waits for completed, and did not fail"));
        }
    }
}

/// How many steps of each kind there are, by label: for tests.
#[cfg(test)]
pub fn completed(steps: &[(&str, Option<u32>, &str, &str)]) -> Completed {
    let of = |(label, task, values, argv): &(&str, Option<u32>, &str, &str)| {
        let argv = argv.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        (Identity { label: (*label).to_owned(), task: *task, values: (*values).to_owned(), argv }, true)
    };
    let mut all = Completed::default();
    all.add(&steps.iter().map(of).collect::<Vec<_>>());
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::graph;
    use std::path::Path;

    fn left(text: &str, steps: &[(&str, Option<u32>, &str, &str)]) -> Left {
        let graph = graph::parse(text.as_bytes(), Path::new("/w"), &|_| false).unwrap();
        completed(steps).left(&graph)
    }

    const ARRAYS: &str = "[[step]]\nlabel = 'a'\ncommand = './a'\n\
                          [[step]]\nlabel = 'b'\narray = '0-2'\ncommand = './b'\nafter = 'a'\n\
                          [[step]]\nlabel = 'c'\narray = '0-2'\ncommand = './c'\nafter = 'aftercorr:b'\n\
                          [[step]]\nlabel = 'd'\ncommand = './d'\nafter = 'c'\n";

    #[test]
    fn what_completed_is_left_out_and_the_rest_is_not() {
        let done =
            [("a", None, "", "./a"), ("b", Some(0), "", "./b"), ("b", Some(2), "", "./b"), ("c", Some(0), "", "./c")];
        let left_of = left(ARRAYS, &done);
        let want = [Share::Nothing, Share::Tasks(vec![1]), Share::Tasks(vec![1, 2]), Share::All];
        assert_eq!((left_of.shares, left_of.completed), (want.to_vec(), 4));
        assert_eq!(left(ARRAYS, &[]).shares, vec![Share::All; 4]);
        let all: Vec<_> = (0..3).flat_map(|n| [("b", Some(n), "", "./b"), ("c", Some(n), "", "./c")]).collect();
        let all = [&all[..], &[("a", None, "", "./a"), ("d", None, "", "./d")]].concat();
        assert!(left(ARRAYS, &all).is_nothing());
    }

    #[test]
    fn a_step_with_another_command_runs_again_and_so_does_what_waits_for_it() {
        let all: Vec<_> = (0..3).flat_map(|n| [("b", Some(n), "", "./b"), ("c", Some(n), "", "./c")]).collect();
        let all = [&all[..], &[("a", None, "", "./a --old"), ("d", None, "", "./d")]].concat();
        assert_eq!(left(ARRAYS, &all).shares, vec![Share::All; 4]);
    }

    #[test]
    fn combinations_are_known_by_their_values_and_equal_ones_are_counted() {
        let text = "[[step]]\nlabel = 'a'\ncommand = ['./a', '{n}']\neach = { n = '1..3' }\n\
                    [[step]]\nlabel = 'b'\ncommand = ['./b', '{n}']\neach = { n = [1, 1] }\n";
        let left = left(text, &[("a", None, "n=2", "./a 2"), ("b", None, "n=1", "./b 1")]);
        assert_eq!(left.shares, [Share::Combinations(vec![0, 2]), Share::Combinations(vec![1])]);
    }

    #[test]
    fn who_waits_for_a_failure_of_what_completed_never_runs_and_a_report_runs_after_what_runs_again() {
        let text = "[[step]]\nlabel = 'a'\ncommand = 'a'\n\
                    [[step]]\nlabel = 'mend'\ncommand = 'm'\nafter = 'afternotok:a'\n\
                    [[step]]\nlabel = 'mended'\ncommand = 'm'\nafter = 'mend'\n\
                    [[step]]\nlabel = 'b'\ncommand = 'b'\nafter = 'a'\n\
                    [[step]]\nlabel = 'report'\ncommand = 'r'\nafter = ['afterany:b', 'afterany:mended']\n";
        let left = left(text, &[("a", None, "", "a"), ("report", None, "", "r")]);
        let want = [Share::Nothing, Share::Nothing, Share::Nothing, Share::All, Share::All];
        assert_eq!((left.shares, left.never, left.completed), (want.to_vec(), vec!["mend".into(), "mended".into()], 1));
    }

    #[test]
    fn what_a_later_job_says_of_a_step_counts() {
        let steps = |completed: bool| {
            let argv = vec![b"a".to_vec()];
            [(Identity { label: "a".into(), task: None, values: String::new(), argv }, completed)]
        };
        let mut all = Completed::default();
        all.add(&steps(true));
        all.add(&steps(false));
        assert_eq!(all.of(&steps(true)[0].0, 1), 0);
        all.add(&steps(true));
        assert_eq!(all.of(&steps(true)[0].0, 1), 1);
    }

    #[test]
    fn equal_combinations_that_completed_in_different_jobs_are_added() {
        let argv = vec![b"a".to_vec()];
        let one = Identity { label: "a".into(), task: None, values: "n=1".into(), argv };
        let all = |jobs: &[&[bool]]| {
            let mut all = Completed::default();
            for job in jobs {
                all.add(&job.iter().map(|completed| (one.clone(), *completed)).collect::<Vec<_>>());
            }
            all.of(&one, 2)
        };
        assert_eq!(all(&[&[true, false]]), 1);
        // The second job ran what the first left.
        assert_eq!(all(&[&[true, false], &[true]]), 2);
        assert_eq!(all(&[&[true, false], &[false]]), 1);
        // It ran both again.
        assert_eq!(all(&[&[true, true], &[false, true]]), 1);
        assert_eq!(all(&[&[true, true, true]]), 2);
    }
}
