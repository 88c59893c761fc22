//! Cores that are left to the system, and what a partition has of a node, over real processes.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, answer, is_root};
use std::path::Path;

/// CPUs that the kernel lets a job's processes use.
fn cpus_of_job(c: &Cluster, options: &str) -> Vec<u32> {
    let a = c.sh(&format!("srun -n1 {options} grep Cpus_allowed_list: /proc/self/status")).ok();
    let list = a.out.split_whitespace().nth(1).unwrap().to_owned();
    let number = |text: &str| text.parse::<u32>().unwrap();
    let ranges = list.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    ranges.flat_map(|(first, last)| number(first)..=number(last)).collect()
}

#[test]
fn a_jobs_cpuset_has_no_core_that_is_left_to_the_system() {
    let cpuset = Path::new("/sys/fs/cgroup/cpuset").exists()
        || std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").is_ok_and(|list| list.contains("cpuset"));
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    if !is_root() || !cpuset || cpus < 2 {
        eprintln!("skipped: needs root, the cpuset controller and two CPUs");
        return;
    }
    let c = Cluster::up_changed("corespec", &["--nodes", "1", "--cpus", "2", "--memory", "1000"], |_, text| {
        let text = text.replace(" RealMemory=", " CoreSpecCount=1 RealMemory=");
        format!("{text}\nAllowSpecResourcesUsage=YES\n")
    });
    let usual = cpus_of_job(&c, "");
    assert_eq!(usual.len(), 1, "{usual:?}");
    assert_eq!(cpus_of_job(&c, "--exclusive"), usual);
    assert_eq!(cpus_of_job(&c, "--core-spec=1"), usual);
    assert_eq!(cpus_of_job(&c, "--thread-spec=1"), usual);
    let all = cpus_of_job(&c, "--core-spec=0");
    assert!(all.len() == 2 && all.contains(&usual[0]), "{all:?}");
    let a = c.sh("sbatch --core-spec=2 --wrap true");
    assert_eq!(a.code, 1, "{a:?}");
    assert!(a.err.contains("Requested node configuration is not available"), "{a:?}");
    let a = c.sh("sbatch --core-spec=1 --thread-spec=1 --wrap true");
    assert!(a.code != 0 && a.err.contains("mutually exclusive"), "{a:?}");
    let mut by_variable = c.command("sbatch");
    by_variable.args(["--wait", "-n2", "--wrap", "true"]).env("SBATCH_CORE_SPEC", "0");
    let id = answer(&mut by_variable).ok().job();
    assert_eq!(c.job_field(&id, "CoreSpec").as_deref(), Some("0"));
    assert_eq!(c.job_field(&id, "Exclusive").as_deref(), Some("NODE"));
    assert_eq!(c.job_field(&id, "NumCPUs").as_deref(), Some("2"));
    assert_eq!(c.sh(&format!("squeue -h -t all -o %X -j {id}")).ok().out, "0\n");
}

#[test]
fn jobs_of_a_partition_leave_the_rest_of_a_node_to_others() {
    let c = Cluster::up_with("caps", &["--nodes", "1", "--cpus", "4", "--memory", "1000"], |_| {
        "PartitionName=small Nodes=ALL MaxCPUsPerNode=1".to_owned()
    });
    // Each ends when its pipe is written to.
    let submit = |pipe: &str, options: &str| {
        c.fifo(pipe);
        c.shell(&format!("sbatch -n1 --mem=10 -o /dev/null {options} --wrap 'read line <{pipe}'")).ok().job()
    };
    let end = |pipe: &str| std::fs::write(c.work.join(pipe), "\n").unwrap();
    let (first, second) = (submit("first", "-p small"), submit("second", "-p small"));
    let others = ["other0", "other1", "other2"].map(|pipe| submit(pipe, ""));
    others.iter().for_each(|job| c.await_state(job, "RUNNING"));
    c.await_state(&first, "RUNNING");
    assert_eq!(c.job_field(&second, "JobState").as_deref(), Some("PENDING"));
    end("other0");
    c.await_state(&others[0], "COMPLETED");
    // One of the other partition goes before it, though it came later.
    let next = submit("next", "");
    c.await_state(&next, "RUNNING");
    assert_eq!(c.job_field(&second, "JobState").as_deref(), Some("PENDING"));
    end("first");
    c.await_state(&second, "RUNNING");
    ["second", "next", "other1", "other2"].iter().for_each(|pipe| end(pipe));
    c.await_state(&second, "COMPLETED");
}
