//! Jobs that give way to others, over real processes: requeued, cancelled, with a grace in which they may end, suspended, and
//! taking turns on CPUs that they share.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, children_of, field_of};

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

const SUSPEND: &str = "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\n\
                       PreemptParameters=suspend_grace_time=1\nPartitionName=low Nodes=ALL PriorityTier=1\n\
                       PartitionName=high Nodes=ALL PriorityTier=10\n";

/// State letters of that process and of all that come from it.
fn states(pid: i32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let own = stat.rsplit_once(") ").map_or("", |(_, rest)| &rest[..1]).to_owned();
    children_of(pid).into_iter().fold(own, |all, child| all + &states(child))
}

/// A job of two CPUs, and the processes of its batch shell, of its step's task, and of one that left that in every way.
fn low(c: &Cluster) -> (String, [i32; 3]) {
    let text = "#!/bin/bash\n#SBATCH -p low -n2 --mem=1000 -o low-%j.out\necho $$ > shell\n\
                srun -n1 sh -c 'echo $$ > task; (setsid sh -c \"echo \\$\\$ > apart; while :; do sleep 1; done\" &)\n\
                timeout 100000 sh -c \"while :; do sleep 1; done\"'\n";
    c.script("low.sh", text);
    let said = ["shell", "task", "apart"].map(|name| c.fifo(name));
    let id = c.sh("sbatch low.sh").ok().job();
    (id, said.map(|pipe| std::fs::read_to_string(pipe).unwrap().trim().parse().unwrap()))
}

/// A job of two CPUs of the higher tier, which ends when [`Cluster::read`] has read the pipe.
fn high(c: &Cluster, pipe: &str, memory: u32) -> String {
    c.fifo(pipe);
    let wrap = format!("echo over > {pipe}");
    c.run("sbatch", &["-p", "high", "-n2", &format!("--mem={memory}"), "-o", "high.out", "--wrap", &wrap]).ok().job()
}

fn stands(pid: i32) -> bool {
    !states(pid).is_empty() && states(pid).chars().all(|state| "TZ".contains(state))
}

fn goes(pid: i32) -> bool {
    !states(pid).is_empty() && !states(pid).contains('T')
}

fn stand_still(c: &Cluster, processes: [i32; 3]) {
    c.await_that("all processes are stopped", || processes.into_iter().all(stands));
}

fn go_on(c: &Cluster, processes: [i32; 3]) {
    c.await_that("no process is stopped", || processes.into_iter().all(goes));
}

#[test]
fn a_job_of_a_lower_tier_stands_still_for_one_of_a_higher_and_goes_on_after_it() {
    let c = Cluster::up_with("preempt-suspend", &["--nodes", "1", "--cpus", "2", "--memory", "4000"], |_| {
        SUSPEND.to_owned()
    });
    let (low, processes) = low(&c);
    c.await_state(&low, "RUNNING");
    go_on(&c, processes);

    // Its memory would not be free.
    let large = high(&c, "never", 3500);
    c.await_that("it waits", || c.job_field(&large, "Reason").as_deref() == Some("Resources"));
    assert_eq!(c.job_field(&low, "JobState").as_deref(), Some("RUNNING"));
    c.sh(&format!("scancel {large}")).ok();

    let first = high(&c, "first", 1000);
    c.await_state(&first, "RUNNING");
    stand_still(&c, processes);
    let shown = c.run("squeue", &["-h", "-j", &low, "-o", "%t %T"]).ok().out;
    assert_eq!(shown.trim(), "S SUSPENDED");
    let record = c.sh(&format!("scontrol show job {low}")).ok().out;
    for field in ["SuspendTime", "PreemptTime"] {
        assert!(field_of(&record, field).is_some_and(|time| time.starts_with("20")), "{record}");
    }
    let node = c.sh("scontrol show node n1").ok().out;
    assert_eq!(field_of(&node, "CPUAlloc").as_deref(), Some("2"), "{node}");
    assert_eq!(field_of(&node, "AllocMem").as_deref(), Some("2000"), "{node}");
    let refused = c.sh(&format!("scontrol resume {low}"));
    assert_eq!((refused.code, refused.err.contains("Requested nodes are busy")), (1, true), "{refused:?}");

    // A controller that is restarted goes on with that.
    c.kill(c.pid_of("controller", None));
    c.sh("garrick up").ok();
    c.await_state(&first, "RUNNING");
    assert_eq!(c.job_field(&low, "JobState").as_deref(), Some("SUSPENDED"));
    stand_still(&c, processes);
    assert_eq!(c.read("first"), "over\n");
    c.await_state(&first, "COMPLETED");
    c.await_state(&low, "RUNNING");
    go_on(&c, processes);

    // Whom an administrator suspended besides, nobody else resumes.
    let second = high(&c, "second", 1000);
    c.await_state(&second, "RUNNING");
    c.sh(&format!("scontrol suspend {low}")).ok();
    assert_eq!(c.read("second"), "over\n");
    c.await_state(&second, "COMPLETED");
    let third = high(&c, "third", 1000);
    assert_eq!(c.read("third"), "over\n");
    c.await_state(&third, "COMPLETED");
    assert_eq!(c.job_field(&low, "JobState").as_deref(), Some("SUSPENDED"));
    stand_still(&c, processes);
    c.sh(&format!("scontrol resume {low}")).ok();
    c.await_state(&low, "RUNNING");
    go_on(&c, processes);

    // One that is cancelled while it stands still leaves nothing behind.
    let last = high(&c, "last", 1000);
    c.await_state(&last, "RUNNING");
    c.sh(&format!("scancel {low}")).ok();
    c.await_state(&low, "CANCELLED");
    assert!(processes.into_iter().all(|pid| states(pid).is_empty()));
    assert_eq!(c.read("last"), "over\n");
    c.await_state(&last, "COMPLETED");
    c.await_that("the node is idle", || c.sh("sinfo -h -p low -o %t").ok().out.trim() == "idle");
}

const GANG: &str = "PreemptMode=GANG\nSchedulerTimeSlice=5\nPartitionName=shared Nodes=ALL OverSubscribe=FORCE:2\n";

/// A job on both CPUs, with the process of its step's task once that was started.
fn sharer(c: &Cluster, name: &str) -> (String, i32) {
    let text = format!(
        "#!/bin/bash\n#SBATCH -p shared -n2 --mem=1000 -o {name}.out\n\
         srun -n1 sh -c 'echo $$ > {name}; while :; do sleep 1; done'\n"
    );
    c.script(&format!("{name}.sh"), &text);
    let said = c.fifo(name);
    let id = c.sh(&format!("sbatch {name}.sh")).ok().job();
    let pid = std::fs::read_to_string(said).unwrap().trim().parse().unwrap();
    (id, pid)
}

/// Waits until one of them runs and the other stands still, as users and the kernel see it.
fn has_turn(c: &Cluster, (id, pid): &(String, i32), (other, other_pid): &(String, i32)) {
    c.await_that(&format!("job {id} runs while {other} waits for its turn"), || {
        let shown = c.run("squeue", &["-h", "-t", "R,S", "-S", "i", "-o", "%i %t"]).ok().out;
        let all: Vec<&str> = shown.lines().map(str::trim).collect();
        all.contains(&format!("{id} R").as_str())
            && all.contains(&format!("{other} S").as_str())
            && goes(*pid)
            && stands(*other_pid)
    });
}

#[test]
fn two_jobs_on_the_same_cpus_take_turns() {
    let c = Cluster::up_with("gang", &["--nodes", "1", "--cpus", "2", "--memory", "4000"], |_| GANG.to_owned());
    let first = sharer(&c, "first");
    c.await_state(&first.0, "RUNNING");
    assert!(goes(first.1));
    // Its task is started when its turn comes.
    let second = sharer(&c, "second");
    has_turn(&c, &second, &first);
    let third = c.run("sbatch", &["-p", "shared", "-n2", "--mem=100", "--wrap", "true"]).ok().job();
    c.await_that("no more than two share", || c.job_field(&third, "Reason").as_deref() == Some("Resources"));
    c.sh(&format!("scancel {third}")).ok();
    has_turn(&c, &first, &second);
    has_turn(&c, &second, &first);

    // A controller that is restarted goes on with that.
    c.kill(c.pid_of("controller", None));
    c.sh("garrick up").ok();
    has_turn(&c, &first, &second);
    has_turn(&c, &second, &first);

    // Whom an administrator suspended has no turn: the other is not stopped for it, and when it has ended, nobody goes on.
    c.sh(&format!("scontrol suspend {}", first.0)).ok();
    c.await_that("it has the CPUs for itself", || goes(second.1) && stands(first.1));
    c.sh(&format!("scancel {}", second.0)).ok();
    c.await_state(&second.0, "CANCELLED");
    assert_eq!(c.job_field(&first.0, "JobState").as_deref(), Some("SUSPENDED"));
    c.sh(&format!("scontrol resume {}", first.0)).ok();
    c.await_that("it goes on", || goes(first.1));
    c.await_state(&first.0, "RUNNING");

    // One that is cancelled while it waits for its turn leaves nothing behind.
    let last = sharer(&c, "last");
    has_turn(&c, &last, &first);
    c.sh(&format!("scancel {}", first.0)).ok();
    c.await_state(&first.0, "CANCELLED");
    assert!(states(first.1).is_empty());
    c.sh(&format!("scancel {}", last.0)).ok();
    c.await_that("the node is idle", || c.sh("sinfo -h -p shared -o %t").ok().out.trim() == "idle");
}
