#![allow(clippy::unwrap_used)]
use super::*;
use crate::testing::accounting::{at, job, job_12, step, waiting, with_steps};
use garrick_accounts::{row::JobRow, step::StepRecord};
use garrick_model::{
    ids::{ArrayTask, JobId},
    state::ExitStatus,
};

#[test]
fn seff_says_what_the_script_of_that_name_says() {
    let used = job_12();
    assert_eq!(
        Efficiency::of(&used, at(100)).seff(),
        [
            "Job ID: 12",
            "Cluster: cluster",
            "User/Group: alice/alice",
            "State: COMPLETED (exit code 0)",
            "Nodes: 1",
            "Cores per node: 4",
            "CPU Utilized: 00:00:00",
            "CPU Efficiency: 0.54% of 00:00:32 core-walltime",
            "Job Wall-clock time: 00:00:08",
            "Memory Utilized: 32.51 MB",
            "Memory Efficiency: 8.13% of 400.00 MB (100.00 MB/core)",
        ]
    );
    let waits = with_steps(waiting(28, "dep"), []);
    assert_eq!(
        Efficiency::of(&waits, at(100)).seff()[3..],
        ["State: PENDING", "Efficiency not available for jobs in the PENDING state."]
    );
    let task = Some(ArrayTask { array_job: JobId(9), index: 1 });
    let runs = JobRow { end: None, state: JobState::Running, array_task: task, ..job(18, "arr", 0, 0) };
    let runs = with_steps(runs, []);
    let lines = Efficiency::of(&runs, at(100)).seff();
    assert_eq!(lines[1..2], ["Array Job ID: 9_1"]);
    assert_eq!(lines[4..6], ["State: RUNNING", "Cores: 1"]);
    assert_eq!(lines.last().unwrap(), "WARNING: Efficiency statistics may be misleading for RUNNING jobs.");
}

fn ran(cpus: u64, secs: i64, cpu_secs: u64, mib: u64, state: JobState) -> JobWithSteps {
    let mut row = JobRow { state, ..job(40, "work", 0, secs) };
    row.allocated.set(CPU, cpus);
    row.exit = ExitStatus::SUCCESS;
    let usage =
        TaskUsage { user_us: cpu_secs * 1_000_000, system_us: 0, max_rss_kib: mib * 1024, ..TaskUsage::default() };
    let batch = StepRecord { usage, ..step(&row, "batch", "batch") };
    with_steps(row, [batch])
}

#[test]
fn advice_is_about_what_matters_most() {
    let advice = |job: JobWithSteps| Efficiency::of(&job, at(0)).advice();
    let over = JobState::Completed;
    assert_eq!(advice(ran(1, 500, 450, 60, over)), "It used what it asked for.");
    assert_eq!(
        advice(ran(8, 500, 900, 60, over)),
        "It kept 2 of 8 CPUs busy: ask for fewer (--ntasks, --cpus-per-task)."
    );
    assert_eq!(advice(ran(1, 500, 450, 20, over)), "24M of memory would do: ask for less (--mem).");
    assert_eq!(
        advice(ran(1, 500, 450, 95, over)),
        "It nearly used up its memory: ask for more than 100.00 MB (--mem)."
    );
    assert_eq!(
        advice(ran(1, 100, 90, 60, over)),
        "3 minutes would do: with a shorter limit (--time) it may start earlier."
    );
    assert_eq!(advice(ran(1, 500, 10, 60, JobState::OutOfMemory)), "It ran out of memory: ask for more (--mem).");
    assert_eq!(advice(ran(1, 500, 10, 60, JobState::Timeout)), "It reached its time limit: ask for more (--time).");
}

#[test]
fn a_report_sets_used_beside_asked_for() {
    let used = ran(4, 300, 600, 60, JobState::Completed);
    assert_eq!(
        Efficiency::of(&used, at(0)).report(),
        [
            "40 work of alice: COMPLETED",
            "  CPU        00:10:00 used of 00:20:00 (4 CPUs for 00:05:00)  50.00%",
            "  memory     60.00 MB used of 100.00 MB  60.00%",
            "  time       00:05:00 used of 00:10:00  50.00%",
            "It used what it asked for.",
        ]
    );
    let waits = with_steps(waiting(28, "dep"), []);
    let jobs = [Efficiency::of(&used, at(0)), Efficiency::of(&waits, at(0))];
    assert_eq!(jobs[0].row()[3..], ["00:05:00", "50.00%", "60.00%", "-", "50.00%"]);
    assert_eq!(jobs[1].row()[2..], ["PENDING", "00:00:00", "-", "-", "-", "-"]);
    assert_eq!(
        together(&jobs).unwrap(),
        "1 job that ended: 50.00% of the CPU time and 60.00% of the memory were used."
    );
    assert!(together(&jobs[1..]).is_none());
}

#[test]
fn gpus_are_told_with_what_was_seen_of_their_use() {
    let with_gpus = |gpus: u64, percent: u64, mib: u64| {
        let mut used = ran(4, 300, 1100, 60, JobState::Completed);
        used.row.allocated.set("gres/gpu", gpus);
        (used.steps[0].usage.gpu_percent, used.steps[0].usage.gpu_memory_kib) = (percent, mib * 1024);
        used
    };
    let told = |job: &JobWithSteps| {
        let of = Efficiency::of(job, at(0));
        (of.report()[3].clone(), of.advice(), of.row()[6].clone())
    };
    assert_eq!(
        told(&with_gpus(4, 150, 2048)),
        (
            "  GPU            1.50 used of 4 GPUs  37.50%, 2.00 GB of their memory".to_owned(),
            "It kept 2 of 4 GPUs busy: ask for fewer (--gpus, --gres).".to_owned(),
            "37.50%".to_owned(),
        )
    );
    assert_eq!(told(&with_gpus(1, 90, 1)).1, "It used what it asked for.");
    let unseen = told(&with_gpus(2, 0, 0));
    assert_eq!(unseen.0, "  GPU               - used of 2 GPUs: no use was seen, or none is measured here");
    assert_eq!((unseen.1.as_str(), unseen.2.as_str()), ("It used what it asked for.", "-"));
}
