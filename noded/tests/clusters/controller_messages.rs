//! What a job's steps cost the controller in messages, with real processes: nothing in the launch path, and batches of reports
//! beside it.

#![allow(clippy::unwrap_used)]

use crate::support::{Cluster, field_of};
use std::collections::BTreeMap;

const STEPS: u64 = 500;

/// Messages handled, by actor and name.
type Counts = BTreeMap<(String, String), u64>;

fn counts(json_lines: &str) -> Counts {
    let count = |line: &str| {
        let v: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| v[key].as_str().unwrap().to_owned();
        ((text("actor"), text("message")), v["handled"].as_u64().unwrap())
    };
    json_lines.lines().map(count).collect()
}

/// Where a message belongs: what a batch of reported steps causes, what time or the counting itself causes, or neither.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Report,
    Beside,
    Launch,
}

fn part(actor: &str, message: &str) -> Part {
    let kind = actor.trim_start_matches('/').split('/').next().unwrap_or_default();
    match (kind, message) {
        ("controller" | "node" | "job" | "steps", "StepReport") | ("node", "ReportSafe") => Part::Report,
        // Of a report that was saved for accounting.
        ("job", "Journaled") => Part::Report,
        ("controller" | "node", "Heartbeat") | ("node", "Timer") => Part::Beside,
        // A heartbeat's news of a node's load wakes it.
        ("scheduler", "Changed" | "Pass") => Part::Beside,
        ("controller", "CountMessages" | "Serve") => Part::Beside,
        // Of `sbatch --wait`, over a connection of its own, whenever it gets there.
        ("controller", "WaitJob") | ("job", "Wait") => Part::Beside,
        _ => Part::Launch,
    }
}

#[test]
fn the_controller_handles_no_message_for_a_step_but_batches_of_reports() {
    // The node in a process of its own, so that the controller's process is counted alone.
    let c = Cluster::up("counted", &["--nodes", "1", "--cpus", "4"]);
    // The news of the job's start is none of its steps'.
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n4 -o job.out\n\
         until [ \"$(squeue -h -o %T -j $SLURM_JOB_ID)\" = RUNNING ]; do :; done\n\
         stail --counts --json > before\n\
         srun --async --array=0-499 -n1 --exact -o /dev/null true\n\
         swait\n\
         stail --counts --json > after\n",
    );
    let id = c.sh("sbatch --wait job.sh").ok().job();
    let (before, after) = (counts(&c.read("before")), counts(&c.read("after")));
    let mut grown: BTreeMap<Part, Counts> = BTreeMap::new();
    for ((actor, message), handled) in after {
        let more = handled - before.get(&(actor.clone(), message.clone())).unwrap_or(&0);
        if more > 0 {
            grown.entry(part(&actor, &message)).or_default().insert((actor, message), more);
        }
    }
    assert_eq!(grown.get(&Part::Launch), None, "messages in the launch path");
    let reports = grown.remove(&Part::Report).unwrap_or_default();
    let most = reports.values().max().copied().unwrap_or(0);
    assert!(most < STEPS / 5, "one report has many steps: {reports:?}");

    // The reports that came after that are counted too: every step is accounted for, and none is left unreported.
    let field = |name: &str| {
        let record = c.run("scontrol", &["-d", "-o", "show", "job", &id]).ok();
        field_of(&record.out, name).unwrap_or_else(|| panic!("no {name} in {record:?}"))
    };
    assert_eq!(field("StepsDone"), STEPS.to_string());
    assert_eq!(field("StepsFailed"), "0");
    c.await_that("every end is reported", || field("StepsUnreported") == "0");
    let listed = c.run("squeue", &["-s", "-h", "-t", "all", "-j", &id]).ok().out;
    let listed = listed.lines().filter(|line| line.trim_start().starts_with(&format!("{id}.0_"))).count();
    assert_eq!(listed as u64, STEPS, "the controller can list them");
}

#[test]
fn steps_that_end_while_the_controller_is_dead_are_all_reported_to_the_next_one() {
    const UP: &[&str] = &["--nodes", "1", "--cpus", "4"];
    let c = Cluster::up("unreported", UP);
    let said = c.fifo("said");
    // Long enough for more batches than may wait for an acknowledgement.
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n4 -o job.out\n\
         srun --async --array=0-199 -n1 --exact -o /dev/null sleep 0.1\n\
         echo queued > said\nswait\necho drained\n",
    );
    let id = c.sh("sbatch job.sh").ok().job();
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "queued\n");
    c.kill(c.pid_of("controller", None));
    c.await_that("the job's steps ended", || c.read("job.out").contains("drained"));
    c.run("garrick", &[&["up"], UP].concat()).ok();
    c.await_state(&id, "COMPLETED");
    let record = c.run("scontrol", &["-d", "-o", "show", "job", &id]).ok().out;
    let field = |name| field_of(&record, name);
    assert_eq!((field("StepsDone").as_deref(), field("StepsUnreported").as_deref()), (Some("200"), Some("0")));
    let listed = c.run("squeue", &["-s", "-h", "-t", "all", "-j", &id]).ok().out;
    assert_eq!(listed.lines().filter(|line| line.trim_start().starts_with(&format!("{id}.0_"))).count(), 200);
}

/// A job's step manager lives in a process of its own, which is asked for its part.
#[test]
fn a_trace_of_a_job_has_what_its_step_manager_and_shepherds_did() {
    let c = Cluster::up("traced", &["--nodes", "2", "--cpus", "2"]);
    let job = c.run("sbatch", &["-N2", "-o", "/dev/null", "--wrap", "srun -N2 sleep 100000"]).ok().job();
    c.await_state(&job, "RUNNING");
    let processes = ["controller".to_owned(), format!("stepd/{job}/n1"), format!("stepd/{job}/n2")];
    c.await_that("all of them are in it", || {
        let told = c.sh(&format!("stail job/{job}")).ok().out;
        let has = |process: &String| told.lines().any(|line| line.split_whitespace().nth(1) == Some(process));
        processes.iter().all(has)
    });
    c.sh(&format!("scancel {job}")).ok();
}
