//! Jobs that give way to others, over real processes: requeued, cancelled, and with a grace in which they may end.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;
use support::{Cluster, field_of};

const RULES: &str = "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n\
                     PartitionName=low Nodes=ALL PriorityTier=1\nPartitionName=cancel Nodes=ALL PriorityTier=1 PreemptMode=CANCEL\n\
                     PartitionName=gentle Nodes=ALL PriorityTier=1 PreemptMode=CANCEL GraceTime=100000\n\
                     PartitionName=spared Nodes=ALL PriorityTier=1 PreemptMode=OFF\n\
                     PartitionName=high Nodes=ALL PriorityTier=10\n";

fn cluster(name: &str) -> Cluster {
    Cluster::up_with(name, &["--nodes", "1", "--cpus", "2", "--memory", "4000"], |_| RULES.to_owned())
}

/// A job that fills the node and says that it runs.
fn fill(c: &Cluster, partition: &str, options: &str, task: &str) -> String {
    c.script(
        "low.sh",
        &format!("#!/bin/bash\n#SBATCH -n1 --exclusive -o low-%j.out\necho up > said\nsrun sh -c '{task}'\n"),
    );
    let said = c.fifo("said");
    let id = c.sh(&format!("sbatch -p {partition} {options} low.sh")).ok().job();
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "up\n");
    std::fs::remove_file(said).unwrap();
    id
}

fn urgent(c: &Cluster) -> String {
    c.run("sbatch", &["-p", "high", "-n1", "--exclusive", "-o", "high.out", "--wrap", "echo through"]).ok().job()
}

#[test]
fn a_job_of_a_lower_tier_is_requeued_for_one_of_a_higher() {
    let c = cluster("preempt-requeue");
    let low = fill(&c, "low", "", "exec sleep 100000");
    let high = urgent(&c);
    c.await_state(&high, "COMPLETED");
    assert_eq!(c.read("high.out"), "through\n");
    c.await_state(&low, "PENDING");
    assert_eq!(c.job_field(&low, "Restarts").as_deref(), Some("1"));
    assert_eq!(c.job_field(&low, "Reason").as_deref(), Some("BeginTime"));
    assert_eq!(c.job_field(&low, "PreemptTime"), None, "that was the run before");
    c.sh(&format!("scancel {low}")).ok();
}

#[test]
fn without_requeue_it_ends_as_preempted_and_spared_partitions_stay() {
    let c = cluster("preempt-cancel");
    for (partition, options) in [("cancel", ""), ("low", "--no-requeue")] {
        let low = fill(&c, partition, options, "exec sleep 100000");
        let high = urgent(&c);
        c.await_state(&high, "COMPLETED");
        c.await_state(&low, "PREEMPTED");
        let shown = c.run("squeue", &["-h", "-j", &low, "-t", "all", "-o", "%t %T"]).ok().out;
        assert_eq!(shown.trim(), "PR PREEMPTED");
        let record = c.sh(&format!("scontrol show job {low}")).ok().out;
        for field in ["PreemptEligibleTime", "PreemptTime"] {
            assert!(field_of(&record, field).is_some_and(|time| time.starts_with("20")), "{record}");
        }
    }
    let low = fill(&c, "spared", "", "exec sleep 100000");
    let high = urgent(&c);
    c.await_that("the job of a higher tier waits", || c.job_field(&high, "Reason").as_deref() == Some("Resources"));
    assert_eq!(c.job_field(&low, "JobState").as_deref(), Some("RUNNING"));
    c.sh(&format!("scancel {low}")).ok();
    c.await_state(&high, "COMPLETED");
}

#[test]
fn a_job_with_grace_is_told_and_may_end_by_itself() {
    let c = cluster("preempt-grace");
    let told = "sleep 100000 & trap \"echo saved > kept; kill $!; exit 0\" TERM; echo ready > ready; wait";
    let ready = c.fifo("ready");
    let low = fill(&c, "gentle", "", told);
    assert_eq!(std::fs::read_to_string(ready).unwrap(), "ready\n");
    let high = urgent(&c);
    // Without the signal this would take more than a day.
    c.await_state(&high, "COMPLETED");
    c.await_state(&low, "COMPLETED");
    assert_eq!(c.read("kept"), "saved\n");
    assert!(c.job_field(&low, "PreemptTime").is_some());
}
