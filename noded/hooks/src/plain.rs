//! Plain checks that Slurm brings along: `all_partitions`, `logging`, `partition`, `require_timelimit` and `throttle`.

use crate::{
    fields::{Desc, field},
    lua::Called,
    shown::PartitionShown,
    value::Value,
};
use garrick_model::{
    config::MemoryPer,
    resources::{MemoryMib, MemoryRequest},
    spec::JobSpec,
};
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

/// `ESLURM_MISSING_TIME_LIMIT`.
const NO_TIME_LIMIT: i32 = 8000;
/// `ESLURM_ACCOUNTING_POLICY`.
const OVER_LIMIT: i32 = 2050;
/// What `throttle` counts in.
const HOUR: Duration = Duration::from_secs(3600);

/// `require_timelimit`
pub fn require_time_limit(spec: JobSpec) -> Called<JobSpec> {
    let code = if spec.time_limit.is_none() { NO_TIME_LIMIT } else { 0 };
    Called { request: spec, code, said: Vec::new() }
}

/// `all_partitions`: a job that names no partition may start in all of these.
pub fn all_partitions(mut spec: JobSpec, open: &[PartitionShown]) -> Called<JobSpec> {
    if spec.partitions.is_empty() {
        spec.partitions = open.iter().map(|p| p.view.config.name.clone()).collect();
    }
    accepted(spec)
}

/// `partition`: a job that names no partition starts in the one of the highest tier whose MaxMemPerNode is enough; the first of
/// those. As in 26.05, nothing else of the partitions is looked at.
pub fn partition(mut spec: JobSpec, open: &[PartitionShown]) -> Called<JobSpec> {
    let has_room = |p: &&PartitionShown| match (spec.memory, p.view.config.max_memory) {
        (MemoryRequest::PerNode(MemoryMib(asked)), Some(MemoryPer::Node(MemoryMib(most)))) => asked <= most,
        _ => true,
    };
    if spec.partitions.is_empty() {
        let first_of_highest =
            |best: &PartitionShown, p: &PartitionShown| best.view.config.priority_tier < p.view.config.priority_tier;
        let fitting = open.iter().filter(has_room);
        let best = fitting.reduce(|best, p| if first_of_highest(best, p) { p } else { best });
        spec.partitions = best.iter().map(|p| p.view.config.name.clone()).collect();
    }
    accepted(spec)
}

fn accepted(request: JobSpec) -> Called<JobSpec> {
    Called { request, code: 0, said: Vec::new() }
}

/// `logging`: a line for each request, in the words of 26.05. `call` is `submit` or `modify`.
pub fn logged(call: &str, desc: &Desc) -> String {
    let shown = |name: &str| match field(name).map(|field| (field.get)(desc)) {
        Some(Value::Text(text)) => String::from_utf8_lossy(&text).into_owned(),
        Some(Value::Number(number)) => format!("{number:.0}"),
        _ => "(null)".to_owned(),
    };
    let begin = if desc.spec.begin.is_none() { "0".to_owned() } else { shown("begin_time") };
    format!(
        "job_{call}: Job {call} request: account:{} begin_time:{begin} dependency:{} name:{} partition:{} qos:{} submit_uid:{} \
         time_limit:{} user_id:{}",
        shown("account"),
        shown("dependency"),
        shown("name"),
        shown("partition"),
        shown("qos"),
        desc.uid,
        shown("time_limit"),
        shown("user_id"),
    )
}

/// `throttle`: who submitted how often within the last hour.
#[derive(Debug, Default)]
pub struct Throttle {
    submitted: BTreeMap<u32, VecDeque<Instant>>,
}

impl Throttle {
    /// Counts a job, and refuses it beyond `most` of an hour (`SchedulerParameters=jobs_per_user_per_hour`).
    pub fn check(&mut self, desc: Desc, most: Option<usize>, now: Instant) -> Called<JobSpec> {
        let Some(most) = most else { return accepted(desc.spec) };
        self.submitted.retain(|_, times| {
            while times.front().is_some_and(|at| now.saturating_duration_since(*at) >= HOUR) {
                times.pop_front();
            }
            !times.is_empty()
        });
        let times = self.submitted.entry(desc.uid).or_default();
        if times.len() >= most {
            let said = vec!["Reached jobs per hour limit".to_owned()];
            return Called { request: desc.spec, code: OVER_LIMIT, said };
        }
        times.push_back(now);
        accepted(desc.spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, desc};
    use garrick_model::time::TimeLimit;

    #[test]
    fn who_submits_more_in_an_hour_than_the_site_wants_is_refused() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let mut code = |uid, after: u64, most| {
            let asked = Desc { uid, ..desc(JobSpec::default()) };
            throttle.check(asked, most, start + Duration::from_secs(after)).code
        };
        assert_eq!([code(5, 0, Some(2)), code(5, 1, Some(2)), code(5, 2, Some(2))], [0, 0, OVER_LIMIT]);
        assert_eq!(code(6, 2, Some(2)), 0);
        // What was refused does not count; the first is an hour ago.
        assert_eq!([code(5, 3600, Some(2)), code(5, 3600, Some(2)), code(5, 3601, Some(2))], [0, OVER_LIMIT, 0]);
        assert_eq!(code(5, 3601, None), 0);
    }

    /// As 26.05.3 chose.
    #[test]
    fn the_partition_is_of_the_highest_tier_with_enough_memory_and_the_first_of_those() {
        let world = World::with(
            "PartitionName=small Nodes=n1 MaxMemPerNode=100\nPartitionName=big Nodes=n1 MaxMemPerNode=500\n\
             PartitionName=mid Nodes=n1 MaxMemPerNode=300\nPartitionName=top Nodes=n1 PriorityTier=5 MaxMemPerNode=200",
        );
        let open = world.shown();
        let chosen = |memory| partition(JobSpec { memory, ..JobSpec::default() }, &open).request.partitions;
        assert_eq!(chosen(MemoryRequest::Default), ["top"]);
        assert_eq!(chosen(MemoryRequest::PerNode(MemoryMib(250))), ["big"]);
        assert_eq!(chosen(MemoryRequest::PerCpu(MemoryMib(250))), ["top"]);
        let named = JobSpec { partitions: vec!["mid".to_owned()], ..JobSpec::default() };
        assert_eq!(partition(named, &open).request.partitions, ["mid"]);
    }

    /// As 26.05.3 wrote.
    #[test]
    fn requests_are_logged_in_slurms_words() {
        let spec = JobSpec { name: "wrap".to_owned(), ..JobSpec::default() };
        assert_eq!(
            logged("submit", &desc(spec)),
            "job_submit: Job submit request: account:(null) begin_time:0 dependency:(null) name:wrap partition:(null) \
             qos:(null) submit_uid:5 time_limit:4294967294 user_id:5"
        );
        let spec = JobSpec { time_limit: Some(TimeLimit::Secs(300)), ..JobSpec::default() };
        assert!(logged("modify", &desc(spec)).contains("Job modify request"));
    }
}
