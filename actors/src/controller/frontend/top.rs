//! `scontrol top`: moves jobs to the front of their user's queue by changing nice values. Each position in the queue keeps its
//! priority and gets another job, so that the user gains nothing over others.

use super::{
    commands::told,
    core::{FrontendCore, OfSelectors, Reply, Then, Turn},
    gather::Asked,
};
use crate::messages::job::{Authority, JobCommand};
use garrick_model::{
    ids::JobId,
    job_query::JobQuery,
    messages::command::{JobChange, JobSelector},
    refusal::Refusal,
    time::Timestamp,
    view::JobView,
};
use std::{cmp::Reverse, sync::Arc};

/// Limit of nice values, positive and negative.
const MOST_NICE: i64 = 2_147_483_645;

/// A job in its user's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Job.
    pub job: JobId,
    /// Its priority.
    pub priority: u32,
    /// Its nice value.
    pub nice: i32,
    /// At equal priority, the job submitted first goes first, then the one with the lower id.
    pub submit: Timestamp,
}

/// The nice values that put `listed` first, in that order, and keep the order of the others; only those that change.
pub fn reorder(listed: &[JobId], mut queue: Vec<Queued>) -> Vec<(JobId, i32)> {
    queue.sort_by_key(|queued| (Reverse(queued.priority), queued.submit, queued.job));
    let places: Vec<u32> = queue.iter().map(|queued| queued.priority).collect();
    // Stable: the others keep their order.
    queue.sort_by_key(|queued| listed.iter().position(|job| *job == queued.job).unwrap_or(usize::MAX));
    let mut changes = Vec::new();
    let mut before: Option<(u32, Timestamp, JobId)> = None;
    for (queued, place) in queue.into_iter().zip(places) {
        let most = match before {
            None => u32::MAX,
            Some((priority, submit, job)) if (submit, job) < (queued.submit, queued.job) => priority,
            // At equal priority it would come first.
            Some((priority, ..)) => priority.saturating_sub(1).max(1),
        };
        let target = place.min(most);
        before = Some((target, queued.submit, queued.job));
        let nice = i64::from(queued.nice) + i64::from(queued.priority) - i64::from(target);
        let nice = i32::try_from(nice.clamp(-MOST_NICE, MOST_NICE)).unwrap_or(queued.nice);
        if nice != queued.nice {
            changes.push((queued.job, nice));
        }
    }
    changes
}

impl FrontendCore {
    pub(super) fn top(&mut self, turn: &mut Turn<'_>, request: u64, by: Authority, jobs: Vec<JobSelector>) -> Reply {
        let allowed = by.admin || self.sight.config().scheduler_parameters.has("enable_user_top");
        let mut listed: Vec<Arc<JobView>> = Vec::new();
        let mut asked: OfSelectors = Vec::with_capacity(jobs.len());
        let mut refused = false;
        for (selector, views) in self.named(jobs)? {
            let found = movable(views, by, allowed);
            refused |= found.is_err();
            let known = found.map(|views| listed.extend(views));
            asked.push((selector, vec![Asked::of_all(Some(known))]));
        }
        let mut asks = Vec::new();
        // All or nothing.
        if let (false, Some(first)) = (refused, listed.first()) {
            let alike = |view: &JobView| {
                view.uid == first.uid
                    && view.partitions.len() == 1
                    && view.partitions == first.partitions
                    && view.spec.account == first.spec.account
                    && view.spec.qos == first.spec.qos
                    && view.state.waits()
                    && view.priority > 0
            };
            let such = JobQuery { users: vec![first.uid], ..JobQuery::live() };
            let queue = self.sight.boards().jobs.such(&such, None, usize::MAX, alike);
            let queue = queue.into_iter().map(|view| Queued {
                job: view.id,
                priority: view.priority,
                nice: view.spec.nice,
                submit: view.submit_time,
            });
            let ids: Vec<JobId> = listed.iter().map(|view| view.id).collect();
            // A change that the user may not make to one job is allowed as part of the exchange.
            let exchange = Authority { uid: by.uid, admin: true };
            for (job, nice) in reorder(&ids, queue.collect()) {
                let change = JobChange { nice: Some(nice), ..JobChange::default() };
                asks.push(told(job, exchange, None, JobCommand::Update(Box::new(change))));
                if let Some((_, heard)) = asked.first_mut() {
                    heard.push(Asked::of_all(None));
                }
            }
        }
        self.ask(turn, request, asks, Then::PerJob(asked));
        Ok(None)
    }
}

/// The waiting jobs among those that a selector means, if the caller may move them.
fn movable(views: Vec<Arc<JobView>>, by: Authority, allowed: bool) -> Result<Vec<Arc<JobView>>, Refusal> {
    if views.is_empty() {
        return Err(Refusal::InvalidJobId);
    }
    if views.iter().any(|view| !by.admin && (!allowed || view.uid != by.uid)) {
        return Err(Refusal::AccessDenied);
    }
    let waiting: Vec<_> = views.into_iter().filter(|view| view.state.waits()).collect();
    if waiting.is_empty() {
        return Err(Refusal::JobNotPending);
    }
    if waiting.iter().any(|view| view.priority == 0) {
        return Err(Refusal::JobHeld);
    }
    Ok(waiting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queued(job: u32, priority: u32) -> Queued {
        Queued { job: JobId(job), priority, nice: 0, submit: Timestamp::from_secs(i64::from(job)) }
    }

    /// The queue after the changes.
    fn after(listed: &[u32], queue: &[Queued]) -> Vec<Queued> {
        let listed: Vec<JobId> = listed.iter().copied().map(JobId).collect();
        let changes = reorder(&listed, queue.to_vec());
        let mut queue = queue.to_vec();
        for (job, nice) in changes {
            for queued in queue.iter_mut().filter(|queued| queued.job == job) {
                let priority = i64::from(queued.priority) + i64::from(queued.nice) - i64::from(nice);
                queued.priority = u32::try_from(priority.max(1)).unwrap_or(u32::MAX);
                queued.nice = nice;
            }
        }
        queue.sort_by_key(|queued| (Reverse(queued.priority), queued.submit, queued.job));
        queue
    }

    fn order(queue: &[Queued]) -> Vec<u32> {
        queue.iter().map(|queued| queued.job.0).collect()
    }

    #[test]
    fn places_keep_their_priorities() {
        let queue = [queued(1, 500), queued(2, 400), queued(3, 300), queued(4, 200)];
        let queue = after(&[4, 2], &queue);
        assert_eq!(order(&queue), [4, 2, 1, 3]);
        assert_eq!(queue.iter().map(|q| q.priority).collect::<Vec<_>>(), [500, 400, 300, 200]);
        assert_eq!(queue.iter().map(|q| i64::from(q.nice)).sum::<i64>(), 0);
    }

    #[test]
    fn equal_priorities_are_told_apart() {
        let queue = [queued(1, 100), queued(2, 100), queued(3, 100)];
        assert_eq!(order(&after(&[3], &queue)), [3, 1, 2]);
        assert_eq!(order(&after(&[1], &queue)), [1, 2, 3]);
        assert!(reorder(&[JobId(1)], queue.to_vec()).is_empty());
    }

    proptest! {
        #[test]
        fn the_listed_go_first_and_nobody_gains(
            priorities in proptest::collection::vec(100_u32..1000, 1..20),
            chosen in proptest::collection::vec(0_usize..20, 1..5),
        ) {
            let queue: Vec<Queued> = priorities.iter().zip(1..).map(|(p, job)| queued(job, *p)).collect();
            let mut listed: Vec<u32> = Vec::new();
            for place in chosen {
                let job = queue[place % queue.len()].job.0;
                if !listed.contains(&job) {
                    listed.push(job);
                }
            }
            let mut wanted = listed.clone();
            wanted.extend(order(&after(&[], &queue)).into_iter().filter(|job| !listed.contains(job)));
            let moved = after(&listed, &queue);
            prop_assert_eq!(order(&moved), wanted);
            let sum = |queue: &[Queued]| queue.iter().map(|q| u64::from(q.priority)).sum::<u64>();
            prop_assert!(sum(&moved) <= sum(&queue));
        }
    }
}
