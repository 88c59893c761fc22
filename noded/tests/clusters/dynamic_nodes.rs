//! A node that `slurm.conf` does not have joins a running cluster, runs jobs, outlives the controller and is deleted.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Answer, Cluster, Killed, built, field_of};
use std::{
    os::unix::fs::symlink,
    process::{Child, Stdio},
};

const UP: &[&str] = &["--nodes", "1", "--cpus", "4", "--memory", "5000"];
const TREE: &str = "SwitchName=root Switches=s1,s2\nSwitchName=s1 Nodes=n1\nSwitchName=s2\n";

const FAST: &str = "TopologyPlugin=topology/tree\nNodeSet=fast Feature=f1\nPartitionName=fast Nodes=fast\n";

fn cluster(name: &str) -> Cluster {
    cluster_with(name, ("topology.conf", TREE), FAST)
}

fn cluster_with(name: &str, (file, text): (&str, &str), conf: &str) -> Cluster {
    let cluster = Cluster::up_with(name, UP, |cluster| {
        std::fs::write(cluster.home.join("etc").join(file), text).unwrap();
        format!("MaxNodeCount=3\n{conf}")
    });
    symlink(built().join("noded"), cluster.work.join("bin/slurmd")).unwrap();
    cluster
}

/// `slurmd -Z` in the foreground, with its log in a file.
fn slurmd(cluster: &Cluster, name: &str, parameters: &str) -> Child {
    let log = std::fs::File::create(cluster.work.join(format!("{name}.out"))).unwrap();
    let conf = cluster.home.join("etc/slurm.conf");
    let mut command = cluster.command("slurmd");
    command.args(["-D", "-Z", "-N", name, "--conf", parameters, "-f"]).arg(conf);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

fn state(cluster: &Cluster, node: &str) -> Option<String> {
    field_of(&cluster.run("scontrol", &["-o", "show", "node", node]).out, "State")
}

fn refused(answer: &Answer, why: &str) {
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.err.contains(why), "{answer:?}");
}

#[test]
fn a_node_joins_works_outlives_the_controller_and_is_deleted() {
    let c = cluster("dynamic");
    let parameters = "CPUs=4 RealMemory=5000 Feature=f1 Topology=default:s2";
    let mut daemon = Killed(slurmd(&c, "d1", parameters));
    c.await_that("d1 is there", || state(&c, "d1").as_deref() == Some("IDLE+DYNAMIC_NORM"));
    assert_eq!(c.sh("sinfo -h -p fast -o %N").ok().out.trim(), "d1");
    assert!(c.sh("scontrol show topology unit=s2").ok().out.contains("Nodes=d1"));
    let a = c.sh("srun -C f1 --switches=1 printenv SLURM_TOPOLOGY_ADDR").ok();
    assert_eq!(a.out.trim(), "root.s2.d1");
    let a = c.sh("srun -N2 -n2 printenv SLURMD_NODENAME").ok();
    let mut nodes: Vec<&str> = a.out.lines().collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["d1", "n1"]);
    refused(&c.sh("scontrol create nodename=d1 CPUs=4 state=cloud"), "Node d1 exists already");
    refused(&c.sh("scontrol create nodename=d[2-3] CPUs=4 state=cloud"), "MaxNodeCount=3");
    refused(&c.sh("scontrol delete nodename=n1"), "n1 is a node of slurm.conf");

    let (go, said) = (c.fifo("go"), c.fifo("said"));
    c.script("job.sh", "#!/bin/bash\n#SBATCH -p fast -o job.out\necho up > said\nread x < go\necho $SLURMD_NODENAME\n");
    let job = c.sh("sbatch job.sh").ok().job();
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "up\n");
    c.kill(c.pid_of("controller", None));
    c.sh("garrick up").ok();
    c.await_that("d1 is back", || state(&c, "d1").as_deref() == Some("MIXED+DYNAMIC_NORM"));
    refused(&c.sh("scontrol delete nodename=d1"), &format!("Requested nodes are busy: d1 has jobs {job}"));
    c.sh("scontrol reconfigure").ok();
    assert!(c.sh("scontrol show topology unit=s2").ok().out.contains("Nodes=d1"));
    std::fs::write(&go, "x\n").unwrap();
    c.await_state(&job, "COMPLETED");
    assert_eq!(c.read("job.out"), "d1\n");

    c.sh("scontrol update nodename=d1 topology=default:root:s3").ok();
    let a = c.sh("srun -w d1 printenv SLURM_TOPOLOGY_ADDR").ok();
    assert_eq!(a.out.trim(), "root.s3.d1");
    c.await_that("nothing runs on d1", || state(&c, "d1").as_deref() == Some("IDLE+DYNAMIC_NORM"));
    c.sh("scontrol delete nodename=d1").ok();
    assert!(daemon.0.wait().unwrap().success(), "its daemon ends: {}", c.read("d1.out"));
    assert_eq!(c.sh("sinfo -h -N -o %N").ok().out.trim(), "n1");
    assert_eq!(c.sh("scontrol show node d1").code, 1);
}

#[test]
fn a_node_without_a_place_is_told_why() {
    let c = cluster("misplaced");
    let _daemon = Killed(slurmd(&c, "d1", "CPUs=4 Topology=default:s9"));
    c.await_that("the node is declined", || c.read("d1.out").contains("no switch is called s9"));
    c.await_that("the controller says so", || c.logs().contains("no switch is called s9"));
    assert_eq!(c.sh("sinfo -h -N -o %N").ok().out.trim(), "n1");
    let mut wrong = slurmd(&c, "n1", "CPUs=4");
    assert!(!wrong.wait().unwrap().success());
    assert!(c.read("n1.out").contains("start a node of slurm.conf without -Z"));
}

/// What was written at `create` had to be written again at its daemon.
#[test]
fn a_created_node_has_the_gres_that_gres_conf_says() {
    let devices = "NodeName=d1 Name=gpu File=/dev/null,/dev/zero\n";
    let c = cluster_with("dynamic-gres", ("gres.conf", devices), "GresTypes=gpu\n");
    c.sh("scontrol create nodename=d1 CPUs=2 RealMemory=1000 Gres=gpu:2 State=CLOUD").ok();
    let _daemon = Killed(slurmd(&c, "d1", "CPUs=2 RealMemory=1000"));
    c.await_that("d1 is there", || state(&c, "d1").is_some_and(|state| state.starts_with("IDLE")));
    let given = c.sh("srun -w d1 --mem=100 --gres=gpu:2 printenv CUDA_VISIBLE_DEVICES").ok();
    assert_eq!(given.out.trim(), "0,1");
}

#[test]
fn a_cluster_starts_again_without_a_node_that_joined_it() {
    let c = cluster("without");
    let daemon = Killed(slurmd(&c, "d1", "CPUs=4 RealMemory=5000"));
    c.await_that("d1 is there", || state(&c, "d1").as_deref() == Some("IDLE+DYNAMIC_NORM"));
    c.sh("garrick down").ok();
    drop(daemon);
    c.sh("garrick up").ok();
    assert_eq!(c.sh("srun -w n1 printenv SLURMD_NODENAME").ok().out, "n1\n");
    assert!(state(&c, "d1").is_some(), "it is remembered");
}
