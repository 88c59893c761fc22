//! What jobs and steps came to, asked from the service of accounting: with their facts, however the job ended, and complete
//! whoever was killed.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;
use garrick_accounts::{
    filter::{JobFilter, NamedJob},
    messages::{AccountsReply, AccountsRequest, JobWithSteps},
};
use garrick_frame::{DoorClient, LinkKind};
use garrick_model::{
    ids::{JobId, StepKey},
    messages::command::Caller,
    state::{JobState, StepState},
};
use std::{path::Path, time::Duration};

/// Everything that a question finds, asked at a daemon's door in as many pages as it takes. `None`: accounting is away.
pub fn ask(door: &Path, filter: &JobFilter) -> Option<Vec<JobWithSteps>> {
    ask_for(door, filter, None)
}

/// The same in the name of a user.
pub fn ask_for(door: &Path, filter: &JobFilter, caller: Option<Caller>) -> Option<Vec<JobWithSteps>> {
    let mut client =
        DoorClient::connect(door, LinkKind::CommandToAccounts, "test", Some(Duration::from_secs(10))).ok()?;
    if let Some(caller) = caller {
        client.send(&AccountsRequest::OnBehalfOf(caller)).ok()?;
    }
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        client.send(&AccountsRequest::Jobs { filter: Box::new(filter.clone()), steps: true, after }).ok()?;
        let AccountsReply::Jobs { jobs, next, .. } = client.recv().ok()? else { return None };
        found.extend(jobs);
        after = next;
        if after.is_none() {
            return Some(found);
        }
    }
}

fn door(c: &Cluster, name: &str) -> std::path::PathBuf {
    let folders = std::fs::read_dir(c.home.join("run")).unwrap().flatten().map(|entry| entry.path());
    let mut folders: Vec<_> = folders.filter(|path| path.is_dir()).collect();
    folders.push(c.home.join("run"));
    folders.extend(std::fs::read_dir("/run/garrick").into_iter().flatten().flatten().map(|entry| entry.path()));
    let conf = c.conf_folder().join("slurm.conf");
    let of_this = |folder: &&std::path::PathBuf| {
        std::fs::read_to_string(folder.join("conf")).is_ok_and(|text| Path::new(text.trim()) == conf)
    };
    folders.iter().find(of_this).unwrap_or_else(|| panic!("no doors: {folders:?}")).join(name)
}

/// Rows of a job, once accounting has them all and they are as they are to be.
#[track_caller]
pub fn rows(c: &Cluster, job: &str, at: &str, are: impl Fn(&[JobWithSteps]) -> bool) -> Vec<JobWithSteps> {
    let named = NamedJob::job(JobId(job.parse().unwrap()));
    let filter = JobFilter { jobs: vec![named], duplicates: true, ..JobFilter::default() };
    let (door, mut found) = (door(c, at), Vec::new());
    c.await_that(&format!("accounting has job {job}"), || {
        ask(&door, &filter).is_some_and(|answer| {
            found = answer;
            are(&found)
        })
    });
    found
}

pub fn over(count: usize) -> impl Fn(&[JobWithSteps]) -> bool {
    move |jobs| jobs.len() == count && jobs.iter().all(|job| job.row.is_over())
}

#[test]
fn what_jobs_came_to_is_found_and_survives_kills() {
    let c = Cluster::up("accounting", &["--nodes", "1", "--cpus", "2", "--memory", "1000"]);
    let go = c.fifo("go");
    let steps = "srun -n2 true; srun -n1 sh -c 'exit 3'; exit 5";
    let with_steps = c.run("sbatch", &["-J", "steps", "-n2", "-o", "/dev/null", "--comment=seen", "--wrap", steps]);
    let with_steps = with_steps.ok().job();
    let jobs = rows(&c, &with_steps, "n1.sock", |jobs| over(1)(jobs) && jobs[0].steps.len() >= 3);
    let row = &jobs[0].row;
    assert_eq!((row.state, row.exit.code, row.name.as_str()), (JobState::Failed, 5, "steps"));
    assert_eq!((row.nodes.as_str(), row.comment.as_deref(), row.batch), ("n1", Some("seen"), true));
    assert_eq!((row.allocated.count("cpu"), row.allocated.count("node")), (2, 1), "{}", row.allocated);
    assert!(row.submit <= row.start.unwrap() && row.start <= row.end, "{row:?}");
    let step = |key: StepKey| jobs[0].steps.iter().find(|step| step.key == key).unwrap();
    assert_eq!(step(StepKey::BATCH).state, StepState::Failed);
    let (first, second) = (step(StepKey::number(0)), step(StepKey::number(1)));
    assert_eq!((first.state, first.tasks, first.name.as_str()), (StepState::Completed, 2, "true"));
    assert_eq!((second.state, second.exit.code), (StepState::Failed, 3));

    // One that runs while all that keeps records of it is killed, and goes on after that.
    let script = "[ $SLURM_RESTART_COUNT ] || srun -n1 cat go; read -r word < go; srun -n1 true";
    let requeued = c.run("sbatch", &["--requeue", "-o", "out", "--wrap", script]).ok().job();
    c.await_state(&requeued, "RUNNING");
    rows(&c, &requeued, "ctl.sock", |jobs| jobs.len() == 1 && jobs[0].row.state == JobState::Running);
    c.run("scontrol", &["requeue", &requeued]).ok();
    let array = c.run("sbatch", &["-a", "0-2", "-n1", "-o", "/dev/null", "--wrap", "exit $SLURM_ARRAY_TASK_ID"]);
    let array = array.ok().job();
    let cancelled = c.run("sbatch", &["-H", "-o", "/dev/null", "--wrap", "true"]).ok().job();
    c.kill(c.pid_of("controller", None));
    c.sh("garrick up").ok();
    c.run("scancel", &[&cancelled]).ok();
    c.run("scontrol", &["update", &format!("JobId={requeued}"), "StartTime=now"]);
    c.await_state(&requeued, "RUNNING");
    c.kill(c.pid_of("controller", None));
    std::fs::write(&go, "go\n").unwrap();
    c.sh("garrick up").ok();

    let runs = rows(&c, &requeued, "n1.sock", |jobs| over(2)(jobs) && jobs[1].steps.len() >= 2);
    assert!(runs[0].row.requeued && !runs[1].row.requeued && runs[0].row.sluid < runs[1].row.sluid);
    assert_eq!((runs[1].row.state, runs[1].row.restarts), (JobState::Completed, 1));
    // Each run has a submission of its own.
    assert!(runs[0].row.submit < runs[1].row.submit && runs[0].row.end.unwrap() <= runs[1].row.submit, "{runs:?}");
    let tasks = rows(&c, &array, "ctl.sock", over(3));
    let mut ends: Vec<(u32, JobState)> =
        tasks.iter().map(|task| (task.row.array_task.unwrap().index, task.row.state)).collect();
    ends.sort_unstable();
    assert_eq!(ends, [(0, JobState::Completed), (1, JobState::Failed), (2, JobState::Failed)]);
    let never_ran = rows(&c, &cancelled, "accounting.door", over(1));
    assert_eq!((never_ran[0].row.state, never_ran[0].row.start), (JobState::Cancelled, None));
    assert_eq!(never_ran[0].row.cancelled_by, Some(nix::unistd::geteuid().as_raw()));
    assert!(never_ran[0].row.allocated.is_empty());

    // All of it, once: nothing was lost or doubled by the kills.
    let all = ask(&door(&c, "ctl.sock"), &JobFilter { duplicates: true, ..JobFilter::default() }).unwrap();
    let mut runs: Vec<_> = all.iter().map(|job| job.row.sluid).collect();
    runs.sort_unstable();
    runs.dedup();
    assert_eq!((all.len(), runs.len()), (7, 7));
    c.down();
}
