//! Which CPUs jobs and their tasks get on nodes of several sockets, over real processes.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;

/// Nodes with more about their hardware, and with other `SelectTypeParameters`.
fn cluster(name: &str, args: &[&str], hardware: &str, select: &str) -> Cluster {
    Cluster::up_changed(name, args, |_, text| {
        let select_now = "SelectTypeParameters=CR_Core_Memory";
        assert!(text.contains(select_now), "{text}");
        text.replace(select_now, &format!("{select_now}{select}"))
            .replace(" RealMemory=", &format!(" {hardware} RealMemory="))
    })
}

/// A node of so many sockets, cores of each, and threads of each core.
fn one_node(name: &str, (sockets, cores, threads): (u32, u32, u32), select: &str) -> Cluster {
    let cpus = (sockets * cores * threads).to_string();
    let hardware = format!("Sockets={sockets} CoresPerSocket={cores} ThreadsPerCore={threads}");
    cluster(name, &["--nodes", "1", "--cpus", &cpus, "--memory", "4000"], &hardware, select)
}

fn cpu_ids(c: &Cluster, options: &str) -> String {
    let id = c.shell(&format!("sbatch --mem 10 -o /dev/null {options} --wrap 'read line < hold'")).ok().job();
    c.await_state(&id, "RUNNING");
    let cpus = c.job_field(&id, "CPU_IDs").unwrap();
    c.sh(&format!("scancel {id}")).ok();
    c.await_state(&id, "CANCELLED");
    c.await_that("the node is idle again", || c.sh("sinfo -h -o %T").ok().out == "idle\n");
    cpus
}

/// What the kernel lets each task use, by rank.
fn of_tasks(c: &Cluster, options: &str) -> String {
    let line = format!("srun --mem 10 -l {options} grep Cpus_allowed_list: /proc/self/status");
    let out = c.sh(&line).ok().out;
    let mut tasks: Vec<(u32, String)> = out
        .lines()
        .map(|line| {
            let (rank, status) = line.split_once(':').unwrap();
            (rank.trim().parse().unwrap(), status.split_whitespace().nth(1).unwrap().to_owned())
        })
        .collect();
    tasks.sort_unstable();
    tasks.into_iter().map(|(_, cpus)| cpus).collect::<Vec<_>>().join(" ")
}

/// CPUs that tasks can be bound to here.
fn real_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[test]
fn jobs_get_cores_of_the_sockets_in_turn() {
    let c = one_node("dist-cores", (2, 4, 1), "");
    c.fifo("hold");
    assert_eq!(cpu_ids(&c, "-n4"), "0-1,4-5");
    assert_eq!(cpu_ids(&c, "-n4 -m block:block"), "0-3");
    assert_eq!(cpu_ids(&c, "-n1 -c3"), "0-2");
    assert_eq!(cpu_ids(&c, "-n1 -c3 -m '*:fcyclic'"), "0-1,4");
    let a = c.shell("sbatch -m plane=2:block --wrap true");
    assert!(a.code != 0 && a.err.contains("distribution"), "{a:?}");
    c.shell(
        "sbatch --wait -n4 -m cyclic:block:fcyclic -o o.txt --wrap 'echo $SLURM_DISTRIBUTION; \
                    srun --mem 10 -n1 sh -c \"echo \\$SLURM_DISTRIBUTION\"'",
    )
    .ok();
    assert_eq!(c.read("o.txt"), "cyclic:block:fcyclic\ncyclic:block:fcyclic\n");
}

#[test]
fn the_site_may_have_jobs_fill_sockets() {
    let c = one_node("dist-block", (2, 4, 1), ",CR_CORE_DEFAULT_DIST_BLOCK");
    c.fifo("hold");
    assert_eq!(cpu_ids(&c, "-n4"), "0-3");
    assert_eq!(cpu_ids(&c, "-n6"), "0-5");
    assert_eq!(cpu_ids(&c, "-n4 -m block:cyclic"), "0-1,4-5");
}

#[test]
fn tasks_are_bound_as_they_are_laid_on_sockets_and_cores() {
    if real_cpus() < 2 {
        eprintln!("skipped: needs two CPUs");
        return;
    }
    let c = one_node("dist-two", (2, 1, 1), "");
    let [both, first, second] = [0..2, 0..1, 1..2].map(machine);
    assert_eq!(of_tasks(&c, "-n2"), format!("{both} {both}"), "nothing says that they are bound");
    assert_eq!(of_tasks(&c, "-n2 -m block:block"), format!("{first} {second}"));
    assert_eq!(of_tasks(&c, "-n2 --cpu-bind=sockets"), format!("{first} {second}"));
    assert_eq!(of_tasks(&c, "-n1 -c2 --cpu-bind=sockets"), both);
    assert_eq!(of_tasks(&c, "-n2 -m block:block --cpu-bind=none"), format!("{both} {both}"));
    c.down();
    let c = one_node("dist-threads", (1, 1, 2), "");
    assert_eq!(of_tasks(&c, "-n2 --cpu-bind=threads"), format!("{first} {second}"));
    assert_eq!(of_tasks(&c, "-n2 --cpu-bind=cores"), format!("{both} {both}"));
    assert_eq!(of_tasks(&c, "-n1 -m block:cyclic"), both, "bound to the core that it wants");
}

#[test]
fn tasks_go_over_real_sockets_in_the_order_that_is_asked_for() {
    if real_cpus() < 4 {
        eprintln!("skipped: needs four CPUs");
        return;
    }
    let c = one_node("dist-four", (2, 2, 1), "");
    let in_order = |cpus: [u32; 4]| cpus.map(|cpu| machine(cpu..cpu + 1)).join(" ");
    assert_eq!(of_tasks(&c, "-n4 -m block:cyclic"), in_order([0, 2, 1, 3]));
    assert_eq!(of_tasks(&c, "-n4 -m block:block"), in_order([0, 1, 2, 3]));
    assert_eq!(of_tasks(&c, "-n4 --cpu-bind=cores"), in_order([0, 2, 1, 3]));
}

/// Nodes of the tasks of a batch job's step, by rank, and what the job is told of them.
fn nodes_of_tasks(c: &Cluster, options: &str) -> String {
    c.script("where.sh", "#!/bin/bash\nsrun -l printenv SLURMD_NODENAME | sort -n\necho $SLURM_TASKS_PER_NODE\n");
    c.shell(&format!("sbatch --wait -o where.txt {options} where.sh")).ok();
    let text = c.read("where.txt");
    let words = text.lines().map(|line| line.rsplit(' ').next().unwrap());
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_list_says_the_node_of_each_task_of_a_job() {
    let c = Cluster::up("dist-list", &["--nodes", "3", "--cpus", "4", "--memory", "1000"]);
    assert_eq!(nodes_of_tasks(&c, "-m arbitrary -w n3,n1,n3"), "n3 n1 n3 1,2");
    assert_eq!(nodes_of_tasks(&c, "-m arbitrary -w n3,n1,n3 -n2"), "n3 n1 1(x2)");
    std::fs::write(c.work.join("hosts"), "n2\nn1\nn2\nn2\n").unwrap();
    let a = c.shell("SLURM_HOSTFILE=hosts sbatch --wait -m arbitrary -o o.txt --wrap 'echo $SLURM_TASKS_PER_NODE'");
    a.ok();
    assert_eq!(c.read("o.txt"), "1,3\n");
    let a = c.shell("sbatch -m arbitrary -w n3,n1 -n3 --wrap true");
    assert!(a.code != 0 && a.err.contains("3 tasks were asked for, and the list of nodes for them has 2"), "{a:?}");
    let a = c.shell("sbatch -m arbitrary -w n3,n9 --wrap true");
    assert!(a.code != 0 && a.err.contains("Invalid node name"), "{a:?}");
    let a = c.shell("sbatch -m arbitrary -w n3,n3,n3,n3,n3 --wrap true");
    assert!(a.code != 0 && a.err.contains("Requested node configuration is not available"), "{a:?}");
}

#[test]
fn tasks_go_evenly_over_whole_nodes_unless_they_are_packed() {
    let args = ["--nodes", "2", "--cpus", "4", "--memory", "1000"];
    let c = Cluster::up("dist-even", &args);
    assert_eq!(nodes_of_tasks(&c, "-N2 -n6 --exclusive"), "n1 n1 n1 n2 n2 n2 3(x2)");
    assert_eq!(nodes_of_tasks(&c, "-N2 -n6 --exclusive -m block,Pack"), "n1 n1 n1 n1 n2 n2 4,2");
    c.down();
    let c = cluster("dist-pack", &args, "", ",CR_Pack_Nodes");
    assert_eq!(nodes_of_tasks(&c, "-N2 -n6 --exclusive"), "n1 n1 n1 n1 n2 n2 4,2");
    assert_eq!(nodes_of_tasks(&c, "-N2 -n6 --exclusive -m block,NoPack"), "n1 n1 n1 n2 n2 n2 3(x2)");
}

/// CPUs of the machine that the node's are, as the kernel writes them.
fn machine(of: std::ops::Range<u32>) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let number = |text: &str| text.parse::<u32>().unwrap();
    let ranges = list.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    let cpus: Vec<u32> = ranges.flat_map(|(first, last)| number(first)..=number(last)).collect();
    let cpus: Vec<u32> = of.map(|cpu| cpus[cpu as usize]).collect();
    let run = cpus.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    match (cpus.as_slice(), run) {
        ([first, .., last], true) => format!("{first}-{last}"),
        _ => cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
    }
}
