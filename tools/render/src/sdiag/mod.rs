//! `sdiag`: what the controller counted, in sdiag(1)'s sections. What Slurm counts of threads and queues that are not there is 0:
//! messages to nodes and to accounting are handed over at once, or refused.

mod requests;

pub use requests::{Order, Rpc, User, rpcs, users};

use crate::clock::Clock;
use garrick_model::{
    messages::statistics::{Exits, PlanCounts, Statistics},
    time::Timestamp,
};
use std::io::{self, Write};

const RULE: &str = "*******************************************************";

/// Writes the report. `name` finds a user's name.
pub fn write(
    out: &mut dyn Write,
    statistics: &Statistics,
    order: Order,
    clock: &Clock,
    name: &dyn Fn(u32) -> String,
) -> io::Result<()> {
    let at = |time: Timestamp| format!("{} ({})", clock.long(time), time.secs());
    writeln!(out, "{RULE}\nsdiag output at {}\nData since      {}\n{RULE}", at(statistics.at), at(statistics.since))?;
    writeln!(out, "Server thread count:  {}", statistics.serving)?;
    writeln!(out, "RPC queue enabled:    0\nAgent queue size:     0\nAgent count:          0")?;
    let accounting = &statistics.accounting;
    writeln!(out, "Agent thread count:   0\nDBD Agent queue size: {}", accounting.events)?;
    if let Some(since) = accounting.away_since {
        writeln!(out, "DBD Agent position:   {}\nDBD away since:       {}", accounting.stored, at(since))?;
    }
    writeln!(out)?;
    jobs(out, statistics, &at)?;
    passes(out, statistics)?;
    plans(out, &statistics.plans, &at)?;
    writeln!(out, "\nLatency for 1000 calls to gettimeofday(): {} microseconds\n", statistics.clock_micros)?;
    writeln!(out, "Remote Procedure Call statistics by message type")?;
    for Rpc { id, name, count, micros } in rpcs(statistics, order) {
        let mean = micros / count.max(1);
        writeln!(out, "\t{name:<40}({id:>5}) count:{count:<6} ave_time:{mean:<6} total_time:{micros}")?;
    }
    writeln!(out, "\nRemote Procedure Call statistics by user")?;
    for User { uid, count, micros } in users(statistics, order) {
        let (mean, name) = (micros / count.max(1), name(uid));
        writeln!(out, "\t{name:<16}({uid:>8}) count:{count:<6} ave_time:{mean:<6} total_time:{micros}")?;
    }
    writeln!(out, "\nPending RPC statistics\n\tNo pending RPCs")
}

fn jobs(out: &mut dyn Write, statistics: &Statistics, at: &dyn Fn(Timestamp) -> String) -> io::Result<()> {
    let jobs = &statistics.jobs;
    writeln!(out, "Jobs submitted: {}\nJobs started:   {}", jobs.submitted, jobs.started)?;
    writeln!(
        out,
        "Jobs completed: {}\nJobs canceled:  {}\nJobs failed:    {}\n",
        jobs.completed, jobs.cancelled, jobs.failed
    )?;
    writeln!(out, "Job states ts:  {}", at(statistics.at))?;
    writeln!(out, "Jobs pending:   {}\nJobs running:   {}\n", jobs.pending, jobs.running)
}

fn passes(out: &mut dyn Write, statistics: &Statistics) -> io::Result<()> {
    let (passes, cycles) = (&statistics.passes, &statistics.passes.cycles);
    writeln!(out, "Main schedule statistics (microseconds):")?;
    writeln!(out, "\tLast cycle:   {}\n\tMax cycle:    {}", cycles.last_micros, cycles.max_micros)?;
    writeln!(out, "\tTotal cycles: {}", cycles.count)?;
    if let Some(mean) = cycles.mean_micros() {
        writeln!(out, "\tMean cycle:   {mean}\n\tMean depth cycle:  {}", passes.depth_sum / cycles.count)?;
    }
    if let Some(rate) = per_minute(statistics).filter(|rate| *rate > 0) {
        writeln!(out, "\tCycles per minute: {rate}")?;
    }
    writeln!(out, "\tLast queue length: {}\n", passes.last_queue)?;
    let Exits { end_of_queue, most_starts, time, .. } = passes.exits;
    writeln!(out, "Main scheduler exit:\n\tEnd of job queue: {end_of_queue}\n\tHit default_queue_depth: 0")?;
    writeln!(out, "\tHit sched_max_job_start: {most_starts}\n\tBlocked on licenses: 0\n\tHit max_rpc_cnt: 0")?;
    writeln!(out, "\tTimeout (max_sched_time): {time}\n")
}

/// Passes a minute; `None` in the first.
pub fn per_minute(statistics: &Statistics) -> Option<u64> {
    let minutes = statistics.at.since(statistics.since).as_secs() / 60;
    statistics.passes.cycles.count.checked_div(minutes)
}

fn plans(out: &mut dyn Write, plans: &PlanCounts, at: &dyn Fn(Timestamp) -> String) -> io::Result<()> {
    let cycles = &plans.cycles;
    writeln!(out, "Backfilling stats")?;
    writeln!(out, "\tTotal backfilled jobs (since last slurm start): {}", plans.backfilled_ever)?;
    writeln!(out, "\tTotal backfilled jobs (since last stats cycle start): {}", plans.backfilled)?;
    writeln!(out, "\tTotal backfilled heterogeneous job components: {}", plans.backfilled_components)?;
    writeln!(out, "\tTotal cycles: {}", cycles.count)?;
    writeln!(out, "\tLast cycle when: {}", plans.last_at.map_or_else(|| "N/A".to_owned(), at))?;
    writeln!(out, "\tLast cycle: {}\n\tMax cycle:  {}", cycles.last_micros, cycles.max_micros)?;
    if let Some(mean) = cycles.mean_micros() {
        writeln!(out, "\tMean cycle: {mean}")?;
    }
    writeln!(out, "\tLast depth cycle: {}\n\tLast depth cycle (try sched): {}", plans.last_depth, plans.last_tried)?;
    let mean = |sum: u64| sum.checked_div(cycles.count);
    if let (Some(depth), Some(tried)) = (mean(plans.depth_sum), mean(plans.tried_sum)) {
        writeln!(out, "\tDepth Mean: {depth}\n\tDepth Mean (try depth): {tried}")?;
    }
    writeln!(out, "\tLast queue length: {}", plans.last_queue)?;
    if let Some(queue) = mean(plans.queue_sum) {
        writeln!(out, "\tQueue length mean: {queue}")?;
    }
    writeln!(out, "\tLast table size: {}", plans.last_slots)?;
    if let Some(slots) = mean(plans.slots_sum) {
        writeln!(out, "\tMean table size: {slots}")?;
    }
    let Exits { end_of_queue, most_starts, time, changed } = plans.exits;
    writeln!(out, "\nBackfill exit\n\tEnd of job queue: {end_of_queue}\n\tHit bf_max_job_start: {most_starts}")?;
    writeln!(out, "\tHit bf_max_job_test: 0\n\tSystem state changed: {changed}")?;
    writeln!(out, "\tHit table size limit (bf_node_space_size): 0\n\tTimeout (bf_max_time): {time}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::clock;
    use garrick_model::messages::statistics::{
        AccountingQueue, Cycles, JobCounts, PassCounts, RequestCount, UserCount,
    };

    fn counted() -> Statistics {
        Statistics {
            at: Timestamp::from_secs(1_795_780_309),
            since: Timestamp::from_secs(1_795_780_100),
            serving: 1,
            jobs: JobCounts { submitted: 2, started: 2, completed: 1, cancelled: 1, failed: 0, pending: 1, running: 0 },
            passes: PassCounts {
                cycles: Cycles { count: 4, last_micros: 23, max_micros: 2142, sum_micros: 2172 },
                depth_sum: 8,
                ..PassCounts::default()
            },
            requests: vec![
                RequestCount { request: "ListJobs".to_owned(), count: 320, micros: 26_625 },
                RequestCount { request: "Explain".to_owned(), count: 1, micros: 7 },
            ],
            users: vec![UserCount { uid: 0, count: 321, micros: 26_632 }],
            ..Statistics::default()
        }
    }

    #[test]
    fn the_queue_for_accounting_is_announced_while_the_service_is_away() {
        let away_since = Some(Timestamp::from_secs(1_795_780_200));
        let away = AccountingQueue { events: 12, stored: 345, away_since };
        let told = report(&Statistics { accounting: away, ..counted() });
        let lines = "DBD Agent queue size: 12\nDBD Agent position:   345\nDBD away since:       ";
        assert!(told.contains(lines) && told.contains("(1795780200)\n\nJobs submitted: 2\n"), "{told}");
        let there = report(&Statistics { accounting: AccountingQueue { away_since: None, ..away }, ..counted() });
        assert!(there.contains("DBD Agent queue size: 12\n\nJobs submitted: 2\n"), "{there}");
    }

    fn report(statistics: &Statistics) -> String {
        let mut out = Vec::new();
        write(&mut out, statistics, Order::Count, &clock(0), &|_| "root".to_owned()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_report_has_slurms_sections() {
        let report = report(&counted());
        for line in [
            "Data since      Fri Nov 27 11:48:20 2026 (1795780100)\n",
            "Jobs canceled:  1\n",
            "\tTotal cycles: 4\n\tMean cycle:   543\n\tMean depth cycle:  2\n\tCycles per minute: 1\n\tLast queue length: 0\n",
            "\tREQUEST_JOB_INFO                        ( 2003) count:320    ave_time:83     total_time:26625\n",
            "\troot            (       0) count:321    ave_time:82     total_time:26632\n",
            "\tLast cycle when: N/A\n",
        ] {
            assert!(report.contains(line), "{line:?} is not in\n{report}");
        }
    }

    #[test]
    fn there_is_no_mean_of_nothing() {
        let none = report(&Statistics { passes: PassCounts::default(), ..counted() });
        assert!(none.contains("\tTotal cycles: 0\n\tLast queue length: 0\n"), "{none}");
        assert!(!none.contains("Mean"), "{none}");
    }
}
