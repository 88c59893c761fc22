//! MCS labels over real processes: which one a job has, and who shares nodes with whom because of it.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, field_of};

fn cluster(name: &str, settings: &str) -> Cluster {
    Cluster::up_with(name, &["--nodes", "2", "--cpus", "4", "--memory", "4000"], |_| settings.to_owned())
}

/// A job of one task that runs until it is cancelled.
fn stays(c: &Cluster, options: &str) -> String {
    c.shell(&format!("sbatch -n1 --mem=100 -o stays-%j.out {options} --wrap 'exec sleep 100000'")).ok().job()
}

fn label_of_node(c: &Cluster, node: &str) -> Option<String> {
    field_of(&c.sh(&format!("scontrol show node {node}")).ok().out, "MCS_label")
}

#[test]
fn jobs_of_different_labels_have_nodes_of_their_own() {
    let c = cluster("mcs-select", "MCSPlugin=mcs/label\nMCSParameters=ondemand,select\n");
    let red = stays(&c, "--mcs-label=red");
    c.await_state(&red, "RUNNING");
    let blue = stays(&c, "--mcs-label=blue");
    let also_red = stays(&c, "--mcs-label=red");
    c.await_state(&blue, "RUNNING");
    c.await_state(&also_red, "RUNNING");
    let node = |job: &str| c.job_field(job, "NodeList").unwrap();
    assert_eq!(node(&red), node(&also_red));
    assert_ne!(node(&red), node(&blue));
    assert_eq!(label_of_node(&c, &node(&red)).as_deref(), Some("red"));
    assert_eq!(label_of_node(&c, &node(&blue)).as_deref(), Some("blue"));
    assert_eq!(c.job_field(&red, "Exclusive").as_deref(), Some("MCS"));
    let shown = c.run("squeue", &["-h", "-O", "jobid:10,mcslabel:10", "-S", "i"]).ok().out;
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows, [[red.as_str(), "red"], [blue.as_str(), "blue"], [also_red.as_str(), "red"]]);
    // Neither another label nor none comes in, though there are CPUs left.
    let green = stays(&c, "--mcs-label=green");
    let none = stays(&c, "");
    for job in [&green, &none] {
        let waits = |reason: &str| c.job_field(job, "Reason").as_deref() == Some(reason);
        c.await_that("it waits for a node", || waits("Resources") || waits("Priority"));
        assert_eq!(c.job_field(job, "JobState").as_deref(), Some("PENDING"));
    }
    // A waiting job gets another label, and comes to those who have it.
    c.sh(&format!("scontrol update JobId={green} MCSLabel=blue")).ok();
    c.await_state(&green, "RUNNING");
    assert_eq!((node(&green), c.job_field(&green, "MCS_label").as_deref()), (node(&blue), Some("blue")));
    let late = c.sh(&format!("scontrol update JobId={green} MCSLabel=red"));
    assert_ne!(late.code, 0, "it runs");
    assert_eq!(c.job_field(&green, "MCS_label").as_deref(), Some("blue"));
    // Once those of a label have gone, the node is anybody's.
    c.sh(&format!("scancel {red} {also_red}")).ok();
    c.await_state(&none, "RUNNING");
    assert_eq!(label_of_node(&c, &node(&none)).as_deref(), Some("N/A"));
    c.sh(&format!("scancel {blue} {green} {none}")).ok();
}

#[test]
fn labels_on_demand_are_what_the_plugin_allows_and_keep_nodes_only_where_asked() {
    let c = cluster("mcs-demand", "MCSPlugin=mcs/user\n");
    let user = c.shell("id -un").ok().out.trim().to_owned();
    let plain = stays(&c, "-w n1");
    c.await_state(&plain, "RUNNING");
    assert_eq!(c.job_field(&plain, "MCS_label").as_deref(), Some("N/A"));
    let shared = stays(&c, &format!("-w n1 --mcs-label={user}"));
    c.await_state(&shared, "RUNNING");
    assert_eq!(c.job_field(&shared, "Exclusive").as_deref(), Some("NO"));
    // A node with somebody without that label is none for a job that keeps it to the label.
    let apart = stays(&c, &format!("--mcs-label={user} --exclusive=mcs"));
    c.await_state(&apart, "RUNNING");
    assert_eq!(c.job_field(&apart, "NodeList").as_deref(), Some("n2"));
    assert_eq!(label_of_node(&c, "n2"), Some(user));
    assert_eq!(label_of_node(&c, "n1").as_deref(), Some("N/A"));
    let wrong = c.sh("sbatch --mcs-label=somebody --wrap true");
    assert_eq!(wrong.code, 1);
    assert_eq!(wrong.err, "sbatch: error: Batch job submission failed: Invalid mcs_label specified\n");
    c.sh(&format!("scancel {plain} {shared} {apart}")).ok();
}
