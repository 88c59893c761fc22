//! A job's `stepd` that is killed is started again and goes on where it was: with its launcher and without, on the batch host
//! and elsewhere, with its node's daemon and without. And one that dies again and again is given up.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Answer, Cluster, Killed, children_of};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::collections::BTreeMap;

const ONE: &[&str] = &["--nodes", "1", "--cpus", "4", "--memory", "5000"];
const TWO: &[&str] = &["--nodes", "2", "--cpus", "4", "--memory", "5000"];
const QUEUED: usize = 200;

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn lines(c: &Cluster, name: &str) -> Vec<String> {
    std::fs::read_to_string(c.work.join(name)).unwrap_or_default().lines().map(ToOwned::to_owned).collect()
}

/// How often each of the queued steps ran, by its number.
fn runs(c: &Cluster) -> BTreeMap<usize, usize> {
    let mut times = BTreeMap::new();
    for line in lines(c, "ran") {
        *times.entry(line.parse().unwrap()).or_default() += 1;
    }
    times
}

fn each_once() -> BTreeMap<usize, usize> {
    (0..QUEUED).map(|n| (n, 1)).collect()
}

/// The programs of the steps: they say that they started, and go on once there is a file `open`.
fn programs(c: &Cluster) {
    c.script("one.sh", "#!/bin/bash\necho $1 >> started\nuntil [ -e open ]; do sleep 0.05; done\necho $1 >> ran\n");
    c.script(
        "long.sh",
        "#!/bin/bash\necho long >> started\necho begin\nuntil [ -e open ]; do sleep 0.05; done\necho end\nexit 7\n",
    );
}

/// Shell lines that hand over one long step and the queue, all on one node where that is said.
fn hand_over(place: &str) -> String {
    format!(
        "srun --async {place} -n1 --exact --mem=10 -o long.out ./long.sh\n\
         for i in $(seq 0 {}); do echo \"one.sh $i\"; srun --async {place} -n1 --exact --mem=10 -o /dev/null ./one.sh $i; done > accepted\n",
        QUEUED - 1
    )
}

fn open_the_gate(c: &Cluster) {
    std::fs::write(c.work.join("open"), "").unwrap();
}

/// The job's step manager has given out all four CPUs: the long step and three of the queue.
fn await_full(c: &Cluster) {
    c.await_that("four steps run", || lines(c, "started").len() == 4);
}

/// Kills, and waits until there is another.
fn kill_and_await_next(c: &Cluster, job: &str, node: &str) {
    let pid = c.stepd_of(job, node).unwrap();
    signal(pid, Signal::SIGKILL);
    c.await_that("another stepd serves the run", || c.stepd_of(job, node).is_some_and(|next| next != pid));
}

fn batch_job(c: &Cluster, options: &str, place: &str) -> String {
    programs(c);
    let said = c.fifo("said");
    let steps = hand_over(place);
    c.script(
        "job.sh",
        &format!("#!/bin/bash\n#SBATCH {options} -o job.out\n{steps}echo waiting > said\nswait\necho drained $?\n"),
    );
    let id = c.sh("sbatch job.sh").ok().job();
    assert_eq!(std::fs::read_to_string(said).unwrap(), "waiting\n");
    await_full(c);
    c.await_state(&id, "RUNNING");
    id
}

/// Nothing was lost, nothing ran twice, and everybody who waited was told.
fn assert_whole(c: &Cluster, id: &str) {
    c.await_state(id, "COMPLETED");
    assert_eq!(runs(c), each_once());
    assert_eq!(c.read("long.out"), "begin\nend\n");
    assert_eq!(lines(c, "started").len(), QUEUED + 1, "each was started once");
    assert_eq!(c.job_field(id, "DerivedExitCode").as_deref(), Some("7:0"), "the long step's own exit code");
    assert!(c.read("job.out").ends_with("drained 0\n"), "{}", c.read("job.out"));
}

#[test]
fn a_killed_stepd_is_started_again_and_nothing_is_lost_or_run_twice() {
    let c = Cluster::up("again", ONE);
    let id = batch_job(&c, "-n4", "");
    kill_and_await_next(&c, &id, "n1");
    assert_eq!(c.job_field(&id, "JobState").as_deref(), Some("RUNNING"));
    open_the_gate(&c);
    assert_whole(&c, &id);
}

#[test]
fn a_stepd_killed_in_the_middle_of_its_queue_goes_on_with_the_rest() {
    let c = Cluster::up("middle", ONE);
    let id = batch_job(&c, "-n4", "");
    open_the_gate(&c);
    c.await_that("some of the queue ran", || lines(&c, "ran").len() > QUEUED / 4);
    kill_and_await_next(&c, &id, "n1");
    assert_whole(&c, &id);
}

#[test]
fn without_its_launcher_what_ran_is_unknown_and_the_queue_goes_on() {
    let c = Cluster::up("both", ONE);
    programs(&c);
    let said = c.fifo("said");
    let steps = hand_over("");
    // No batch script: it would be the launcher's too.
    c.script(
        "steps.sh",
        &format!("#!/bin/bash\n{steps}echo $SLURM_JOB_ID > said\nswait > swait.out 2>&1\necho $? > end\n"),
    );
    let mut allocation = Killed(c.command("salloc").args(["-n4", "-Q", "./steps.sh"]).spawn().unwrap());
    let id = std::fs::read_to_string(said).unwrap().trim().to_owned();
    await_full(&c);
    let running: Vec<usize> = lines(&c, "started").iter().filter_map(|l| l.parse().ok()).collect();
    let stepd = c.stepd_of(&id, "n1").unwrap();
    let launchers = children_of(stepd);
    assert_eq!(launchers.len(), 1, "{launchers:?}");
    // Neither may see the other's death.
    for pid in [stepd, launchers[0]] {
        signal(pid, Signal::SIGSTOP);
    }
    for pid in [stepd, launchers[0]] {
        signal(pid, Signal::SIGKILL);
    }
    c.await_that("another stepd serves the run", || c.stepd_of(&id, "n1").is_some_and(|next| next != stepd));
    open_the_gate(&c);
    assert!(allocation.0.wait().unwrap().success(), "{}", c.read("swait.out"));
    assert_eq!(c.read("end"), "0\n", "{}", c.read("swait.out"));
    let ran = runs(&c);
    assert!(ran.values().all(|times| *times == 1), "{ran:?}");
    for n in (0..QUEUED).filter(|n| !running.contains(n)) {
        assert!(ran.contains_key(&n), "step {n} was queued and did not run");
    }
    assert_eq!(lines(&c, "started").len(), QUEUED + 1, "each was started once");
    // The long one, whose exit nobody saw, did not end well.
    c.await_that("the controller knows how the steps ended", || {
        let a = c.run("squeue", &["-h", "--steps", "--states=all", "-j", &id, "-o", "%i %T"]);
        a.out.lines().any(|l| l.trim() == format!("{id}.0 FAILED"))
    });
}

#[test]
fn a_killed_stepd_on_another_node_is_started_again() {
    let c = Cluster::up("other", TWO);
    let id = batch_job(&c, "-N2 -n8", "-w n2");
    kill_and_await_next(&c, &id, "n2");
    open_the_gate(&c);
    assert_whole(&c, &id);
}

#[test]
fn shepherds_on_other_nodes_outlive_their_step_manager() {
    let c = Cluster::up("manager", TWO);
    let id = batch_job(&c, "-N2 -n8", "-w n2");
    let shepherd = c.stepd_of(&id, "n2");
    kill_and_await_next(&c, &id, "n1");
    assert_eq!(c.stepd_of(&id, "n2"), shepherd, "the other node's is the same process");
    open_the_gate(&c);
    assert_whole(&c, &id);
}

#[test]
fn a_node_daemon_that_comes_back_takes_up_a_run_whose_stepd_died_too() {
    let c = Cluster::up("daemon", ONE);
    let id = batch_job(&c, "-n4", "");
    let (noded, stepd) = (c.pid_of("node", Some("n1")), c.stepd_of(&id, "n1").unwrap());
    for pid in [noded, stepd] {
        signal(pid, Signal::SIGSTOP);
    }
    for pid in [noded, stepd] {
        signal(pid, Signal::SIGKILL);
    }
    c.await_dead(noded);
    c.run("garrick", &[&["up"], ONE].concat()).ok();
    c.await_that("another stepd serves the run", || c.stepd_of(&id, "n1").is_some_and(|next| next != stepd));
    open_the_gate(&c);
    assert_whole(&c, &id);
}

#[test]
fn orders_that_come_while_a_stepd_is_away_are_carried_out_by_the_next() {
    let c = Cluster::up("orders", ONE);
    let id = batch_job(&c, "-n4", "");
    let stepd = c.stepd_of(&id, "n1").unwrap();
    signal(stepd, Signal::SIGSTOP);
    // It is heard by nobody, or by one that dies before it does anything.
    c.sh(&format!("scancel {id}")).ok();
    signal(stepd, Signal::SIGKILL);
    c.await_state(&id, "CANCELLED");
    assert_eq!(lines(&c, "ran"), Vec::<String>::new());
}

#[test]
fn an_srun_whose_step_is_lost_with_its_step_manager_says_so() {
    let c = Cluster::up("srun", ONE);
    let (up, said) = (c.fifo("up"), c.fifo("said"));
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n2 -o job.out\n\
         srun -n1 --exact sh -c 'echo up > up; exec sleep 7777' 2> srun.err\necho srun ended with $?\n\
         srun -n1 true && echo the next one ran\necho over > said\n",
    );
    let id = c.sh("sbatch job.sh").ok().job();
    assert_eq!(std::fs::read_to_string(up).unwrap(), "up\n");
    kill_and_await_next(&c, &id, "n1");
    assert_eq!(std::fs::read_to_string(said).unwrap(), "over\n");
    c.await_state(&id, "COMPLETED");
    let (out, err) = (c.read("job.out"), c.read("srun.err"));
    assert!(!out.contains("srun ended with 0") && out.contains("the next one ran"), "{out}");
    assert!(out.contains("srun ended with 137\n"), "{out}");
    assert!(err.contains("srun: error: ") && err.contains(": Job step aborted: "), "{err}");
}

#[test]
fn an_srun_that_waits_for_its_step_goes_on_waiting_and_runs_once() {
    let c = Cluster::up("waiting", ONE);
    let (up, go) = (c.fifo("up"), c.fifo("go"));
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n1 -o job.out\n\
         srun --async -n1 --exact -o /dev/null sh -c 'echo up > up; read word < go'\n\
         srun -n1 --exact sh -c 'echo ran >> ran; exit 3' 2> srun.err\necho srun ended with $?\n",
    );
    let id = c.sh("sbatch job.sh").ok().job();
    assert_eq!(std::fs::read_to_string(up).unwrap(), "up\n");
    let said = |words: &str| std::fs::read_to_string(c.work.join("srun.err")).is_ok_and(|text| text.contains(words));
    c.await_that("the srun waits", || said("step creation temporarily disabled"));
    kill_and_await_next(&c, &id, "n1");
    c.await_that("the srun has noticed", || said("Lost contact"));
    std::fs::write(&go, "word\n").unwrap();
    c.await_state(&id, "COMPLETED");
    assert!(c.read("job.out").ends_with("\nsrun ended with 3\n"), "{} {}", c.read("job.out"), c.read("srun.err"));
    assert_eq!(lines(&c, "ran"), ["ran"]);
}

#[test]
fn an_srun_whose_step_ended_while_its_step_manager_was_away_is_told_how() {
    let c = Cluster::up("outcome", ONE);
    let (up, go) = (c.fifo("up"), c.fifo("go"));
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n2 -o job.out\n\
         srun -n1 --exact sh -c 'echo up > up; read word < go; echo got $word; exit 7' 2> srun.err\n\
         echo srun ended with $?\n",
    );
    let id = c.sh("sbatch job.sh").ok().job();
    assert_eq!(std::fs::read_to_string(up).unwrap(), "up\n");
    let stepd = c.stepd_of(&id, "n1").unwrap();
    signal(stepd, Signal::SIGSTOP);
    std::fs::write(&go, "word\n").unwrap();
    // The task's last words: what follows is its exit, which nobody waits for but its launcher.
    c.await_that("the task is over", || lines(&c, "job.out") == ["got word"]);
    c.await_that("its launcher reaped it", || {
        let launcher = children_of(stepd);
        launcher.len() == 1 && children_of(launcher[0]).len() == 1
    });
    signal(stepd, Signal::SIGKILL);
    c.await_state(&id, "COMPLETED");
    assert_eq!(c.read("job.out"), "got word\nsrun ended with 7\n", "{}", c.read("srun.err"));
    assert!(c.read("srun.err").contains("srun: Lost contact with the step manager of "), "{}", c.read("srun.err"));
}

/// The answer of `squeue` for the job's steps, for messages of failed tests.
fn steps(c: &Cluster, id: &str) -> Answer {
    c.run("squeue", &["-h", "--steps", "--states=all", "-j", id, "-o", "%i %T"])
}

#[test]
fn a_stepd_that_dies_again_and_again_ends_its_job_alone() {
    let c = Cluster::up("doomed", TWO);
    let (go, said) = (c.fifo("go"), c.fifo("said"));
    c.script("job.sh", "#!/bin/bash\n#SBATCH -n1 -o job.%j\necho up > said\nread x < go\necho went on\n");
    let doomed = c.sh("sbatch -w n1 job.sh").ok().job();
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "up\n");
    let other = c.sh("sbatch -w n2 job.sh").ok().job();
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "up\n");
    c.await_state(&doomed, "RUNNING");
    c.await_state(&other, "RUNNING");
    let daemons: Vec<_> = c.processes().into_iter().filter(|p| p.0 != "stepd").collect();
    for _ in 0..6 {
        kill_and_await_next(&c, &doomed, "n1");
        assert_eq!(c.job_field(&doomed, "JobState").as_deref(), Some("RUNNING"), "{:?}", steps(&c, &doomed));
    }
    signal(c.stepd_of(&doomed, "n1").unwrap(), Signal::SIGKILL);
    c.await_state(&doomed, "FAILED");
    assert_eq!(c.job_field(&doomed, "Reason").as_deref(), Some("StepManagerDied"));
    assert_eq!(c.processes().into_iter().filter(|p| p.0 != "stepd").collect::<Vec<_>>(), daemons);
    std::fs::write(&go, "x\n").unwrap();
    c.await_state(&other, "COMPLETED");
    assert_eq!(c.read(&format!("job.{other}")), "went on\n");
    // The node is free again.
    c.run("srun", &["-w", "n1", "-n4", "true"]).ok();
}
