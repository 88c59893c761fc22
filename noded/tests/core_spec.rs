//! Cores that are left to the system, and what a partition has of a node, over real processes.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;
use std::path::Path;
use support::{Cluster, answer, is_root};

/// With something more on the line of the nodes, and more lines.
fn cluster(name: &str, args: &[&str], node: &str, lines: &str) -> Cluster {
    let c = Cluster::up(name, args);
    c.sh("garrick down").ok();
    let conf = c.home.join("etc/slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    // Without its first line the file is the test's own.
    let own = text
        .lines()
        .skip(1)
        .map(|line| if line.starts_with("NodeName=") { format!("{line} {node}") } else { line.to_owned() });
    std::fs::write(&conf, format!("{}\n{lines}\n", own.collect::<Vec<_>>().join("\n"))).unwrap();
    c.run("garrick", &["check".as_ref(), conf.as_os_str()]).ok();
    c.sh("garrick up").ok();
    c
}

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
    let args = ["--nodes", "1", "--cpus", "2", "--memory", "1000"];
    let c = cluster("corespec", &args, "CoreSpecCount=1", "AllowSpecResourcesUsage=YES");
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
    let lines = "PartitionName=small Nodes=ALL MaxCPUsPerNode=1";
    let c = cluster("caps", &["--nodes", "1", "--cpus", "4", "--memory", "1000"], "", lines);
    c.script("wait.sh", "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.1; done\n");
    let submit = |options: &str| c.sh(&format!("sbatch -n1 --mem=10 -t 10 -o /dev/null {options} wait.sh")).ok().job();
    let (first, second) = (submit("-p small"), submit("-p small"));
    let others: Vec<String> = (0..3).map(|_| submit("")).collect();
    let state = |id: &str| c.job_field(id, "JobState");
    c.await_that("the others run", || others.iter().all(|id| state(id).as_deref() == Some("RUNNING")));
    c.await_that("the first runs", || state(&first).as_deref() == Some("RUNNING"));
    assert_eq!(state(&second).as_deref(), Some("PENDING"));
    c.sh(&format!("scancel {}", others[0])).ok();
    c.await_that("one is gone", || state(&others[0]).as_deref() == Some("CANCELLED"));
    let next = submit("");
    c.await_that("a later one of the other partition goes before it", || state(&next).as_deref() == Some("RUNNING"));
    assert_eq!(state(&second).as_deref(), Some("PENDING"));
    std::fs::write(c.work.join("go"), "").unwrap();
    c.await_that("the second ends too", || state(&second).as_deref() == Some("COMPLETED"));
}
