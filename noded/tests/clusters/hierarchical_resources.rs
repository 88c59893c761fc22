//! Hierarchical resources over real processes: a power cap on two racks that share a hall, whatever starts at once, and over
//! a restart of the controller.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;

/// Two racks of two nodes; the hall has less than both racks together, and what cools it takes some of that.
const RESOURCES: &str = "---
- resource: power
  mode: MODE_3
  variables:
    - name: full_node
      value: 1000
  layers:
    - nodes: ['n[1-4]']
      count: 3500
      base:
        - name: cooling
          value: 500
    - nodes: ['n[1-2]']
      count: 2000
    - nodes: ['n[3-4]']
      count: 2000
- resource: seats
  mode: MODE_1
  layers:
    - nodes: ['n[1-2]']
      count: 1
    - nodes: ['n[1-4]']
      count: 1
";

fn cluster(name: &str) -> Cluster {
    let c = Cluster::up_with(name, &["--nodes", "4", "--cpus", "4", "--memory", "4000"], |c| {
        std::fs::write(c.home.join("etc/resources.yaml"), RESOURCES).unwrap();
        String::new()
    });
    let conf = c.home.join("etc/slurm.conf");
    c.run("garrick", &["check".as_ref(), conf.as_os_str()]).ok();
    c
}

/// What is in use of each layer.
fn used(c: &Cluster) -> Vec<(String, u32)> {
    let lines = c.sh("scontrol -o show licenses").ok().out;
    let used = |line: &str| {
        let field = |name: &str| crate::support::field_of(line, name).unwrap();
        (format!("{}({})", field("LicenseName"), field("Nodes")), field("Used").parse().unwrap())
    };
    lines.lines().map(used).collect()
}

fn power(c: &Cluster) -> Vec<u32> {
    used(c).into_iter().filter(|(name, _)| name.starts_with("power")).map(|(_, used)| used).collect()
}

#[test]
fn no_layer_gives_more_than_it_has_also_after_the_controller_was_killed() {
    let c = cluster("hres-power");
    c.fifo("go");
    c.script("job.sh", "#!/bin/bash\n#SBATCH -N1 --exclusive -o job%j.out\nread line < go\n");
    assert_eq!(power(&c), [500, 0, 0], "{:?}", used(&c));
    let ids: Vec<String> = (0..4).map(|_| c.sh("sbatch -L power:full_node job.sh").ok().job()).collect();
    for id in &ids[..3] {
        c.await_state(id, "RUNNING");
    }
    c.await_that("the fourth waits", || c.job_field(&ids[3], "Reason").as_deref() == Some("Licenses"));
    assert_eq!(power(&c)[0], 3500);
    assert!(power(&c)[1..].iter().all(|used| *used <= 2000), "{:?}", used(&c));
    assert_eq!(c.job_field(&ids[0], "Licenses").as_deref(), Some("power:1000"));
    let given = c.job_field(&ids[0], "LicensesAlloc").unwrap();
    assert!(given.ends_with("power(n[1-4]):1000"), "{given}");
    c.script("other.sh", "#!/bin/bash\nsleep 600\n");
    let other = c.sh("sbatch other.sh").ok().job();
    c.await_state(&other, "RUNNING");

    let before = used(&c);
    let controller = c.pid_of("controller", None);
    c.kill(controller);
    let command_line = format!("/proc/{controller}/cmdline");
    c.await_that("the controller is gone", || std::fs::read(&command_line).map_or(true, |line| line.is_empty()));
    c.sh("garrick up").ok();
    assert_eq!(used(&c), before);
    assert_eq!(c.job_field(&ids[3], "JobState").as_deref(), Some("PENDING"));

    c.sh(&format!("scancel {}", ids[0])).ok();
    c.sh(&format!("scancel {other}")).ok();
    c.await_state(&ids[3], "RUNNING");
    assert_eq!(power(&c)[0], 3500);
    for id in &ids {
        c.sh(&format!("scancel {id}"));
    }
    c.await_that("all is given back", || power(&c) == [500, 0, 0]);
}

#[test]
fn a_job_takes_of_a_layer_that_has_enough_and_what_is_not_there_is_refused() {
    let c = cluster("hres-seats");
    c.script("job.sh", "#!/bin/bash\n#SBATCH -N1 -L seats\nsleep 600\n");
    c.script("other.sh", "#!/bin/bash\n");
    let ids: Vec<String> = (0..3).map(|_| c.sh("sbatch job.sh").ok().job()).collect();
    c.await_state(&ids[0], "RUNNING");
    c.await_state(&ids[1], "RUNNING");
    c.await_that("the third waits", || c.job_field(&ids[2], "Reason").as_deref() == Some("Licenses"));
    let given = |id: &String| c.job_field(id, "LicensesAlloc").unwrap();
    assert_eq!((given(&ids[0]), given(&ids[1])), ("seats(n[1-2]):1".to_owned(), "seats(n[1-4]):1".to_owned()));
    for wrong in ["power:half_node", "power:2001", "seats:2", "nosuch:1", "seats|power:1"] {
        let answer = c.sh(&format!("sbatch -L {wrong} other.sh"));
        assert_eq!(answer.code, 1, "{wrong}: {answer:?}");
        assert!(answer.err.contains("Invalid license specification"), "{wrong}: {answer:?}");
    }
    c.sh("sbatch -L power:2000 other.sh").ok();
    let json = c.sh("scontrol show licenses --json").ok().out;
    assert!(json.contains("\"Nodes\": \"n[1-2]\""), "{json}");

    // A file that is wrong is refused whole, with the line.
    let file = c.home.join("etc/resources.yaml");
    std::fs::write(&file, RESOURCES.replace("'n[3-4]'", "'n[3-5]'")).unwrap();
    let check = c.run("garrick", &["check".as_ref(), c.home.join("etc/slurm.conf").as_os_str()]);
    assert_eq!(check.code, 1, "{check:?}");
    assert!(
        format!("{}{}", check.out, check.err).contains("resources.yaml:15: error: nodes: n[3-5]: no node is called n5")
    );
}
