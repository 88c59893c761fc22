//! Limits on waiting jobs that gain priority by age: each is reached, whoever has to wait for it does, and goes on when there is
//! room. As seen in Slurm 22.05 with slurmdbd.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::cluster,
    rules::accrual::{Accruals, Decision},
    snapshot::{
        accounting::{Accounting, AccountingTable},
        facts::ClusterView,
    },
};
use garrick_model::{
    config::EnforceWord,
    entities::{
        Entities,
        association::AssocId,
        limits::{Count, Limits},
    },
    ids::JobId,
    spec::JobSpec,
    testing::{array, entities, job, node, spec},
    time::Timestamp,
    view::{Accrual, JobView},
};
use std::{sync::Arc, time::Duration};

const NOW: Timestamp = Timestamp::from_secs(100_000);

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(NOW.secs() + secs)
}

/// A job of alice in physics that is eligible since so many seconds before now.
fn waits(id: u32, since: i64) -> JobView {
    let spec = JobSpec { qos: Some("normal".to_owned()), ..spec() };
    JobView { association: Some(AssocId(4)), eligible_time: Some(at(-since)), ..job(id, spec) }
}

fn with(limits: &[(Count, u64)]) -> Entities {
    let mut all = entities();
    for (count, most) in limits {
        let limits: &mut Limits = match count {
            Count::GrpJobsAccrue => &mut all.associations.get_mut(&AssocId(3)).unwrap().limits,
            Count::MaxJobsAccrue => &mut all.associations.get_mut(&AssocId(4)).unwrap().limits,
            _ => &mut all.qos.get_mut("normal").unwrap().limits,
        };
        limits.counts.insert(*count, *most);
    }
    all
}

/// A scheduler and the jobs that it sees. What it decides is shown at once.
struct Queue {
    accruals: Accruals,
    jobs: Vec<JobView>,
    accounting: Accounting,
}

impl Queue {
    fn new(jobs: Vec<JobView>, entities: &Entities) -> Self {
        let mut queue = Self {
            accruals: Accruals::default(),
            jobs,
            accounting: Accounting { enforce: [EnforceWord::Limits].into_iter().collect(), ..Accounting::default() },
        };
        queue.know(entities);
        // A new scheduler waits at first.
        assert_eq!(queue.accruals.decide(&mut queue.view(), at(-10)), []);
        queue
    }

    fn know(&mut self, entities: &Entities) {
        self.accounting.table = Arc::new(AccountingTable::new(entities, "test"));
    }

    fn view(&self) -> ClusterView {
        let mut view = cluster(vec![node(0, 4)], self.jobs.clone());
        view.accounting = self.accounting.clone();
        view
    }

    fn decide(&mut self, now: Timestamp) -> Vec<Decision> {
        self.accruals.decide(&mut self.view(), now)
    }

    /// Decides, shows it, and gives what each job has then.
    fn shown(&mut self, now: Timestamp) -> Vec<Accrual> {
        for decision in self.decide(now) {
            assert_eq!(decision.tasks, None);
            let job = self.jobs.iter_mut().find(|job| job.id == decision.job).unwrap();
            job.terms.accrual = decision.accrual;
        }
        self.jobs.iter().map(|job| job.terms.accrual).collect()
    }
}

use Accrual::{Eligible, Since, Waits};

#[test]
fn as_many_jobs_gain_priority_by_age_as_each_limit_says_first_those_that_have_waited_longest() {
    for count in
        [Count::GrpJobsAccrue, Count::MaxJobsAccrue, Count::MaxJobsAccruePerUser, Count::MaxJobsAccruePerAccount]
    {
        let jobs = vec![waits(1, 10), waits(2, 30), waits(3, 20)];
        let mut queue = Queue::new(jobs.clone(), &with(&[(count, 2)]));
        assert_eq!(queue.shown(NOW), [Waits, Since(at(-30)), Since(at(-20))], "{count:?}");
        assert_eq!(queue.shown(at(1)), [Waits, Since(at(-30)), Since(at(-20))], "{count:?}");
        // One starts.
        queue.jobs.remove(1);
        assert_eq!(queue.shown(at(2)), [Since(at(2)), Since(at(-20))], "{count:?}");
        let mut queue = Queue::new(jobs, &with(&[(count, 0)]));
        assert_eq!(queue.shown(NOW), [Waits; 3], "{count:?}");
    }
}

#[test]
fn without_a_limit_nothing_is_decided_and_where_limits_do_not_bind_neither() {
    let mut queue = Queue::new(vec![waits(1, 10), waits(2, 30)], &entities());
    assert_eq!(queue.decide(NOW), []);
    let mut queue = Queue::new(vec![waits(1, 10)], &with(&[(Count::GrpJobsAccrue, 0)]));
    queue.accounting.enforce = [EnforceWord::Associations].into_iter().collect();
    assert_eq!(queue.decide(NOW), []);
}

#[test]
fn the_limit_of_a_qos_goes_before_that_of_an_association() {
    let limits = [(Count::MaxJobsAccruePerUser, 2), (Count::MaxJobsAccrue, 1)];
    let mut queue = Queue::new(vec![waits(1, 10), waits(2, 30)], &with(&limits));
    assert_eq!(queue.shown(NOW), [Since(at(-10)), Since(at(-30))]);
    let limits = [(Count::GrpJobsAccrue, 2), (Count::MaxJobsAccrue, 1)];
    let mut queue = Queue::new(vec![waits(1, 10), waits(2, 30)], &with(&limits));
    assert_eq!(queue.shown(NOW), [Waits, Since(at(-30))], "both count");
}

#[test]
fn a_job_that_is_held_gives_up_its_place() {
    let mut queue = Queue::new(vec![waits(1, 30), waits(2, 20)], &with(&[(Count::MaxJobsAccrue, 1)]));
    assert_eq!(queue.shown(NOW), [Since(at(-30)), Waits]);
    queue.jobs[0].eligible = false;
    assert_eq!(queue.shown(at(1)), [Waits, Since(at(1))]);
    queue.jobs[0].eligible = true;
    assert_eq!(queue.shown(at(2)), [Waits, Since(at(1))]);
}

#[test]
fn jobs_that_gain_when_a_limit_is_set_or_lowered_go_on_and_all_gain_when_it_is_lifted() {
    let mut queue = Queue::new(vec![waits(1, 40), waits(2, 30)], &entities());
    assert_eq!(queue.shown(NOW), [Eligible, Eligible]);
    queue.know(&with(&[(Count::MaxJobsAccrue, 1)]));
    queue.jobs.push(waits(3, -1));
    assert_eq!(queue.shown(at(2)), [Since(at(-40)), Since(at(-30)), Waits]);
    queue.know(&with(&[(Count::MaxJobsAccrue, 0)]));
    assert_eq!(queue.shown(at(3)), [Since(at(-40)), Since(at(-30)), Waits]);
    queue.know(&entities());
    // As if there had never been a limit: since it became eligible.
    assert_eq!(queue.shown(at(4)), [Since(at(-40)), Since(at(-30)), Eligible]);
    assert_eq!(queue.decide(at(5)), []);
}

#[test]
fn what_is_not_shown_is_told_again_and_counts() {
    let mut queue = Queue::new(vec![waits(1, 30), waits(2, 20)], &with(&[(Count::MaxJobsAccrue, 1)]));
    let decision = |job, accrual| Decision { job: JobId(job), accrual, reset: None, tasks: None };
    let told = [decision(1, Since(at(-30))), decision(2, Waits)];
    assert_eq!(queue.decide(NOW), told);
    assert_eq!(queue.decide(at(1)), told);
    // It was held before it heard of it, and is not any more when it does.
    queue.jobs[0].eligible = false;
    assert_eq!(queue.decide(at(2)), [decision(1, Waits), decision(2, Since(at(2)))]);
    queue.jobs[0].eligible = true;
    queue.jobs[0].terms.accrual = Since(at(-30));
    assert_eq!(queue.decide(at(3)), [decision(1, Waits), decision(2, Since(at(2)))]);
}

#[test]
fn a_job_that_was_reset_by_hand_is_not_told_again_what_it_was_told_before() {
    let mut queue = Queue::new(vec![waits(1, 30)], &with(&[(Count::MaxJobsAccrue, 1)]));
    assert_eq!(queue.decide(NOW).len(), 1);
    let by_hand = |job: &mut JobView, when| {
        (job.terms.accrual, job.terms.reset) = (Since(when), Some(when));
    };
    by_hand(&mut queue.jobs[0], at(1));
    assert_eq!(queue.decide(at(2)), []);
    // It was held, and told to wait; that was under way while it was released and reset again.
    queue.jobs[0].eligible = false;
    let waits = Decision { job: JobId(1), accrual: Waits, reset: Some(at(1)), tasks: None };
    assert_eq!(queue.decide(at(3)), [waits]);
    queue.jobs[0].eligible = true;
    by_hand(&mut queue.jobs[0], at(4));
    assert_eq!(queue.decide(at(5)), []);
}

#[test]
fn a_job_that_is_held_keeps_what_it_has_gained_where_nothing_limits_it() {
    let mut held = waits(1, 30);
    (held.terms.accrual, held.eligible, held.eligible_time) = (Since(at(-30)), false, None);
    let mut queue = Queue::new(vec![held, waits(2, 20)], &entities());
    assert_eq!(queue.decide(NOW), []);
    (queue.jobs[0].eligible, queue.jobs[0].eligible_time) = (true, Some(at(1)));
    assert_eq!(queue.decide(at(2)), []);
    assert_eq!(queue.jobs[0].accrue_time(), Some(at(-30)));
}

#[test]
fn each_task_of_an_array_counts_and_some_of_them_become_jobs() {
    let tasks = |id, first, last| JobView {
        array_pending: Some(array(first, last, None)),
        ..JobView { spec: Arc::new(JobSpec { array: Some(array(1, 5, None)), ..spec() }), ..waits(id, 20) }
    };
    let mut queue = Queue::new(vec![waits(1, 30), tasks(2, 1, 5)], &with(&[(Count::MaxJobsAccrue, 3)]));
    let decision = |job, accrual, tasks| Decision { job: JobId(job), accrual, reset: None, tasks };
    let some = decision(2, Since(at(-20)), Some(2));
    let rest = decision(2, Waits, None);
    assert_eq!(queue.decide(NOW), [some, decision(1, Since(at(-30)), None), rest]);
    // They are counted before they are there.
    queue.jobs.push(waits(3, 10));
    let third = decision(3, Waits, None);
    assert_eq!(queue.decide(at(1)), [decision(1, Since(at(-30)), None), rest, third]);
    queue.jobs[0].terms.accrual = Since(at(-30));
    queue.jobs[1] = JobView {
        terms: garrick_model::view::PriorityTerms { accrual: Waits, ..Default::default() },
        ..tasks(2, 3, 5)
    };
    for id in [11, 12] {
        let mut task = waits(id, 20);
        task.terms.accrual = Since(at(-20));
        queue.jobs.push(task);
    }
    assert_eq!(queue.decide(at(2)), [third]);
    // Nobody became a job: it is tried again.
    let mut queue = Queue::new(vec![tasks(2, 1, 5)], &with(&[(Count::MaxJobsAccrue, 1)]));
    assert_eq!(queue.decide(NOW).first(), Some(&decision(2, Since(at(-20)), Some(1))));
    assert_eq!(queue.decide(at(9)), [rest]);
    assert_eq!(queue.decide(at(10)).first(), Some(&decision(2, Since(at(10)), Some(1))));
    // Room for all: the array as a whole.
    let mut queue = Queue::new(vec![tasks(2, 1, 5)], &with(&[(Count::MaxJobsAccrue, 5)]));
    assert_eq!(queue.decide(NOW), [decision(2, Since(at(-20)), None)]);
}

#[test]
fn a_clock_that_is_set_back_delays_nobody_for_long() {
    let mut queue = Queue::new(vec![waits(1, 30)], &with(&[(Count::MaxJobsAccrue, 1)]));
    assert_eq!(queue.decide(at(-5000)), []);
    let later = NOW.secs() - 5000;
    let later = Timestamp::from_secs(later).plus(Duration::from_secs(10));
    assert_eq!(queue.decide(later).len(), 1);
}
