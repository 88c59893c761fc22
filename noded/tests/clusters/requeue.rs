//! Jobs that return to the queue, over real processes: a node that dies under an expedited job, with a spare node and
//! without; a script and an epilog that fail together; exit codes.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const HURRIED: &str = "SlurmctldParameters=enable_expedited_requeue\nSlurmdTimeout=8";

fn shape(nodes: &'static str) -> [&'static str; 6] {
    ["--nodes", nodes, "--cpus", "2", "--memory", "4000"]
}

/// A job on two nodes that tells of each run; the first one then waits for ever on both nodes.
fn submit(c: &Cluster, options: &str) -> String {
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N2 -n2 --exclusive -o job.out\n\
         echo \"${SLURM_RESTART_COUNT-unset} $SLURM_JOB_NODELIST $(scontrol -d show job $SLURM_JOB_ID | grep -o 'SLUID=.*')\" >> told\n\
         if [ -z \"$SLURM_RESTART_COUNT\" ]; then srun -n2 sh -c 'echo up > said$SLURM_PROCID; exec sleep 100000'; fi\n\
         srun -n2 sh -c 'echo $SLURM_RESTART_COUNT' && echo through\n",
    );
    let said = [c.fifo("said0"), c.fifo("said1")];
    let id = c.sh(&format!("sbatch {options} job.sh")).ok().job();
    for pipe in said {
        assert_eq!(std::fs::read_to_string(pipe).unwrap(), "up\n");
    }
    id
}

/// What each run told of itself.
fn told(c: &Cluster) -> Vec<Vec<String>> {
    c.read("told").lines().map(|line| line.split_whitespace().map(ToOwned::to_owned).collect()).collect()
}

fn assert_ran_twice(c: &Cluster, id: &str, nodes: [&str; 2]) {
    c.await_state(id, "COMPLETED");
    let told = told(c);
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!((told[0][0].as_str(), told[0][1].as_str()), ("unset", nodes[0]));
    assert_eq!((told[1][0].as_str(), told[1][1].as_str()), ("1", nodes[1]));
    assert_ne!(told[0][2], told[1][2], "a run has an identity of its own");
    assert_eq!(c.read("job.out"), "1\n1\nthrough\n");
    assert_eq!(c.job_field(id, "Restarts").as_deref(), Some("1"));
}

fn node_state(c: &Cluster, node: &str) -> String {
    c.run("sinfo", &["-h", "-n", node, "-o", "%t"]).ok().out.trim().to_owned()
}

#[test]
fn a_job_whose_node_dies_starts_again_at_once_on_a_spare_one() {
    let c = Cluster::up_with("expedite", &shape("3"), |_| HURRIED.to_owned());
    let id = submit(&c, "--requeue=expedite");
    c.kill_node("n2", &id);
    assert_ran_twice(&c, &id, ["n[1-2]", "n[1,3]"]);
    assert_eq!(node_state(&c, "n2"), "down*");
    assert!(c.sh("sinfo -h -R -o %E").ok().out.contains("Not responding"));
}

#[test]
fn a_job_whose_batch_host_dies_starts_again_elsewhere() {
    let c = Cluster::up_with("expedite-host", &shape("3"), |_| HURRIED.to_owned());
    let id = submit(&c, "--requeue=expedite");
    c.kill_node("n1", &id);
    assert_ran_twice(&c, &id, ["n[1-2]", "n[2-3]"]);
}

#[test]
fn without_a_spare_node_the_healthy_one_is_kept_over_a_restart_of_the_controller() {
    let c = Cluster::up_with("expedite-wait", &shape("2"), |_| HURRIED.to_owned());
    let id = submit(&c, "--requeue=expedite");
    c.kill_node("n2", &id);
    c.await_state(&id, "EXPEDITING");
    assert_eq!(c.run("squeue", &["-h", "-j", &id, "-o", "%t %T"]).ok().out.trim(), "EX EXPEDITING");
    assert!(c.run("squeue", &["-h", "-t", "PD", "-o", "%i"]).ok().out.contains(&id));
    assert_eq!(node_state(&c, "n1"), "resv");
    // Another job, for which n1 would do, is not let in.
    let other = c.run("sbatch", &["-n1", "-w", "n1", "-o", "other.out", "--wrap", "cat told"]).ok().job();
    // Agents hear of it, and come back at once.
    let controller = c.pid_of("controller", None);
    kill(Pid::from_raw(controller), Signal::SIGTERM).unwrap();
    // Its command line is empty once it has ended, whether it was waited for or not.
    let command_line = format!("/proc/{controller}/cmdline");
    c.await_that("the controller is gone", || std::fs::read(&command_line).map_or(true, |line| line.is_empty()));
    c.sh("garrick up").ok();
    // That brought back n2 as well, empty: the job has what it needs, and goes first.
    assert_ran_twice(&c, &id, ["n[1-2]", "n[1-2]"]);
    c.await_state(&other, "COMPLETED");
    assert_eq!(c.read("other.out").lines().count(), 2, "it ran before the expedited job");
}

#[test]
fn a_job_that_is_cancelled_while_it_waits_gives_its_node_back() {
    let c = Cluster::up_with("expedite-cancel", &shape("2"), |_| HURRIED.to_owned());
    let id = submit(&c, "--requeue=expedite");
    c.kill_node("n2", &id);
    c.await_state(&id, "EXPEDITING");
    c.sh(&format!("scancel {id}")).ok();
    c.await_state(&id, "CANCELLED");
    c.run("srun", &["-n1", "-w", "n1", "true"]).ok();
    c.await_that("the node is free", || node_state(&c, "n1") == "idle");
}

#[test]
fn a_script_and_an_epilog_that_fail_together_are_expedited_and_the_node_is_drained() {
    let c = Cluster::up_with("expedite-epilog", &shape("3"), |c| {
        let text = format!("#!/bin/bash\n[ \"$SLURMD_NODENAME\" != n2 -o -e {}/fine ]\n", c.work.display());
        let epilog = c.script("epilog.sh", &text);
        format!("SlurmctldParameters=enable_expedited_requeue\nEpilog={}", epilog.display())
    });
    // The step sees to it that both nodes have the run: one that the launch has not reached when the run ends has no epilog.
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N2 -n2 --exclusive -o job.out\necho \"${SLURM_RESTART_COUNT-unset} $SLURM_JOB_NODELIST x\" >> told\n\
         [ -n \"$SLURM_RESTART_COUNT\" ] || { srun -n2 true; exit 3; }\nsrun -n2 sh -c 'echo $SLURM_RESTART_COUNT' && echo through\n",
    );
    let id = c.sh("sbatch --requeue=expedite job.sh").ok().job();
    c.await_state(&id, "COMPLETED");
    let told = told(&c);
    assert_eq!(told, [["unset", "n[1-2]", "x"], ["1", "n[1,3]", "x"]]);
    assert_eq!(c.read("job.out"), "1\n1\nthrough\n");
    assert_eq!(node_state(&c, "n2"), "drain");
    assert!(c.sh("sinfo -h -R -o %E").ok().out.contains("Epilog error"));
    // With epilogs that are fine, the same failure is looked at first.
    c.script("fine", "");
    c.run("scontrol", &["update", "nodename=n2", "state=resume"]).ok();
    let id = c.sh("sbatch --requeue=expedite job.sh").ok().job();
    c.await_state(&id, "REQUEUE_HOLD");
    assert_eq!(c.job_field(&id, "ExitCode").as_deref(), Some("3:0"));
    assert_eq!(c.job_field(&id, "Reason").as_deref(), Some("job_requeued_in_held_state"));
    assert_eq!(c.job_field(&id, "ExpeditedRequeue").as_deref(), Some("Yes"));
    c.sh(&format!("scontrol release {id}")).ok();
    c.await_state(&id, "COMPLETED");
}

#[test]
fn a_site_that_does_not_allow_it_says_so() {
    let c = Cluster::up("expedite-no", &shape("1"));
    let a = c.run("sbatch", &["--requeue=expedite", "--wrap", "true"]);
    assert_eq!(a.code, 1, "{a:?}");
    assert!(a.err.contains("Requested operation not supported on this system"), "{a:?}");
}

#[test]
fn exit_codes_requeue_and_hold_as_the_site_says() {
    let c = Cluster::up_with("requeue-exit", &shape("1"), |_| "RequeueExit=10-12\nRequeueExitHold=77".to_owned());
    let held = c.run("sbatch", &["-o", "%j.out", "--wrap", "exit 77"]).ok().job();
    c.await_state(&held, "SPECIAL_EXIT");
    assert_eq!(c.job_field(&held, "Restarts").as_deref(), Some("1"));
    assert_eq!(c.job_field(&held, "Requeue").as_deref(), Some("1"));
    assert_eq!(c.job_field(&held, "BatchFlag").as_deref(), Some("1"));
    assert_eq!(c.job_field(&held, "Reason").as_deref(), Some("JobHeldUser"));
    let a = c.run("squeue", &["-h", "-j", &held, "-o", "%t"]).ok();
    assert_eq!(a.out.trim(), "SE");
    c.sh(&format!("scontrol release {held}")).ok();
    assert_eq!(c.job_field(&held, "JobState").as_deref(), Some("PENDING"));
    let again = c.run("sbatch", &["-o", "%j.out", "--wrap", "exit 11"]).ok().job();
    c.await_that("it waits for its delay", || c.job_field(&again, "Reason").as_deref() == Some("BeginTime"));
    assert_eq!(c.job_field(&again, "Restarts").as_deref(), Some("1"));
    let never = c.run("sbatch", &["--no-requeue", "-o", "%j.out", "--wrap", "exit 11"]).ok().job();
    c.await_state(&never, "FAILED");
    let by_hand = c.run("sbatch", &["--hold", "-o", "%j.out", "--wrap", "exit 0"]).ok().job();
    c.sh(&format!("scontrol release {by_hand}")).ok();
    c.await_state(&by_hand, "COMPLETED");
    c.sh(&format!("scontrol requeuehold State=SpecialExit {by_hand}")).ok();
    c.await_state(&by_hand, "SPECIAL_EXIT");
}

/// `squeue -j`, `scancel`, `scontrol`, `sattach`, `srun --jobid`, `swait`, `stail` and `garrick why` take a run's SLUID for its job.
#[test]
fn a_run_names_its_job_until_the_job_is_requeued() {
    let c = Cluster::up("sluid", &shape("1"));
    let script = "srun -n1 --mem=50 sleep 100000; exec sleep 100000";
    let id = c.run("sbatch", &["-n1", "--mem=100", "-o", "%j.out", "--wrap", script]).ok().job();
    let step = format!("{id}.0");
    c.await_that("its step runs", || c.run("scontrol", &["show", "step", &step]).out.contains("State=RUNNING"));
    let run = c.job_field(&id, "SLUID").unwrap();
    assert_eq!(c.run("squeue", &["-h", "-j", &run, "-o", "%i %s"]).ok().out.trim(), format!("{id} {run}"));
    assert_eq!(c.sh(&format!("squeue -h -j {} -O jobid,sluid", run.to_lowercase())).ok().out.matches(&run).count(), 1);
    assert_eq!(c.sh(&format!("squeue -h -s {run}.0 -o %i")).ok().out.trim(), step);
    assert!(c.sh(&format!("squeue -h -s -j {run} -o %i")).ok().out.contains(&step));
    assert!(c.sh(&format!("scontrol show job {run}")).ok().out.starts_with(&format!("JobId={id} ")));
    assert!(c.sh(&format!("scontrol show step {run}.0")).ok().out.starts_with(&format!("StepId={step} ")));
    c.sh(&format!("scontrol update JobId={run} comment=mine")).ok();
    assert_eq!(c.job_field(&id, "Comment").as_deref(), Some("mine"));
    assert_eq!(c.sh(&format!("srun --jobid={run} --overlap -n1 echo in")).ok().out, "in\n");
    // So does its variable, unless another names the job.
    let by_variable = format!("SLURM_JOB_SLUID={run} srun --overlap -n1 sh -c 'echo $SLURM_JOB_ID'");
    assert_eq!(c.shell(&by_variable).ok().out.trim(), id);
    let other = format!("SLURM_JOB_ID=999999 {by_variable}");
    assert!(c.shell(&other).err.contains("Unable to confirm allocation for job 999999"));
    assert!(c.sh(&format!("stail job/{run}")).ok().out.contains(&format!(" /job/{id} ")));
    c.sh(&format!("garrick sattach --layout {run}.0")).ok();
    assert!(c.sh(&format!("garrick why {run}")).ok().out.contains("does not wait"));
    assert_eq!(c.sh(&format!("swait --timeout=0.1 {run}")).code, 1);
    c.sh(&format!("scancel {run}.0")).ok();
    c.sh(&format!("swait {run}")).ok();
    // In a run of the job nobody has to be asked about that run.
    let inside = format!("srun --jobid={id} --overlap -n1 sh -c 'squeue -h -j $SLURM_JOB_SLUID -o %i'");
    assert_eq!(c.shell(&inside).ok().out.trim(), id);

    c.sh(&format!("scontrol requeue {run}")).ok();
    // The restart is counted before: while the nodes are cleaned, the job has the name of its last run.
    c.await_that("it is a new run", || c.job_field(&id, "SLUID").is_some_and(|next| next != run));
    assert_eq!(c.job_field(&id, "Restarts").as_deref(), Some("1"));
    let next = c.job_field(&id, "SLUID").unwrap();
    assert_ne!(next, run);
    for (line, code) in [
        (format!("squeue -j {run}"), 1),
        (format!("scontrol show job {run}"), 1),
        (format!("scontrol show step {run}.0"), 1),
        (format!("scontrol hold {run}"), 1),
        (format!("scontrol update JobId={run} comment=x"), 1),
        (format!("scancel {run}"), 1),
        (format!("scancel {run}.0"), 1),
        (format!("garrick sattach {run}.0"), 1),
        (format!("srun --jobid={run} true"), 1),
        (format!("stail job/{run}"), 1),
        (format!("garrick why {run}"), 1),
        (format!("swait {run}"), 2),
        ("scancel sAAAAAAAAAAAAA".to_owned(), 1),
    ] {
        let a = c.sh(&line);
        assert_eq!(a.code, code, "{line}: {a:?}");
        assert!(a.err.contains("Invalid job id specified"), "{line}: {a:?}");
    }
    assert_eq!(c.job_field(&id, "JobState").as_deref(), Some("PENDING"));
    let a = c.sh(&format!("swait {id}"));
    let said = format!("swait: error: JobId={id} is still pending; swait does not wait for jobs to start\n");
    assert_eq!((a.code, a.err), (2, said));
    c.sh(&format!("scontrol hold {next}")).ok();
    c.sh(&format!("scontrol release {next}")).ok();
    c.sh(&format!("scancel {next}")).ok();
    c.await_state(&id, "CANCELLED");
}

#[test]
fn swait_takes_tasks_of_arrays_and_several_jobs_and_counts_a_cancelled_step_as_1() {
    let c = Cluster::up("swait-jobs", &shape("1"));
    let script = "srun --async -n1 --mem=50 sleep 100000; scancel $SLURM_JOB_ID.0; swait --exit-status; echo code $?; \
                  exec sleep 100000";
    let id = c.run("sbatch", &["-n1", "--mem=100", "--array=0-1", "-o", "%a.out", "--wrap", script]).ok().job();
    for task in ["0", "1"] {
        c.await_that("its step is over", || {
            std::fs::read_to_string(c.work.join(format!("{task}.out"))).is_ok_and(|text| text.contains("code 1"))
        });
    }
    c.sh(&format!("swait {id}_0")).ok();
    assert_eq!(c.sh(&format!("swait --exit-status {id}_0 {id}_1")).code, 1);
    c.sh(&format!("swait {id}_0,{id}_1")).ok();
    let plain = c.run("sbatch", &["-H", "-n1", "--mem=100", "--wrap", "true"]).ok().job();
    for (line, said) in [
        (format!("swait {id}_9"), format!("array task {id}_9: not found")),
        (format!("swait {id}_[0-1]"), format!("{id}_[0-1]: array-task ranges are not supported, pass one task offset")),
        (format!("swait {plain}_0"), format!("JobId={plain}: not an array job")),
        ("swait 999999".to_owned(), "cannot load JobId=999999: Invalid job id specified".to_owned()),
        ("swait sAAAAAAAAAAAAA".to_owned(), "cannot load SLUID=sAAAAAAAAAAAAA: Invalid job id specified".to_owned()),
    ] {
        let a = c.sh(&line);
        assert_eq!((a.code, a.err), (2, format!("swait: error: {said}\n")), "{line}");
    }
    assert_eq!(c.sh(&format!("swait {id}_0 --step=99")).code, 2);
    c.sh(&format!("scancel {id} {plain}")).ok();
}

#[test]
fn a_job_that_requeues_itself_hears_that_it_was() {
    let c = Cluster::up_with("requeues-itself", &["--nodes", "1", "--cpus", "2"], |_| {
        "SchedulerParameters=requeue_delay=0".to_owned()
    });
    let script = c.script(
        "again",
        "#!/bin/bash\n#SBATCH --open-mode=append --output=codes\ntrap : TERM\n\
         [ ${SLURM_RESTART_COUNT:-0} -ge 3 ] && exit 0\nscontrol requeue $SLURM_JOB_ID\necho $?\n",
    );
    let id = c.sh(&format!("sbatch {}", script.display())).ok().job();
    c.await_state(&id, "COMPLETED");
    let text = c.read("codes");
    let codes: Vec<&str> = text.lines().filter(|line| line.chars().all(|c| c.is_ascii_digit())).collect();
    assert_eq!(codes, ["0", "0", "0"], "{text}");
}
