//! Dependencies over real processes: tasks of an array that wait for the tasks with their index of another one, and jobs
//! that would wait for themselves.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;

#[test]
fn tasks_wait_for_their_counterparts_and_no_job_for_itself() {
    let c = Cluster::up("depend", &["--nodes", "1", "--cpus", "4", "--memory", "2000"]);
    let sbatch = |words: &str| c.shell(&format!("sbatch -n1 --mem 100 -t 10 -o /dev/null {words}")).ok().job();
    let good = "--wrap 'test $SLURM_ARRAY_TASK_ID != 2'";
    let first = sbatch(&format!("--hold --array=1-3 {good}"));
    let second = sbatch(&format!("--array=1-3 --dependency=aftercorr:{first} --wrap true"));
    let shown = c.sh(&format!("squeue -h -o %E -j {second}")).ok().out;
    assert_eq!(shown, format!("aftercorr:{first}(unfulfilled)\n"));
    c.sh(&format!("scontrol release {first}_1")).ok();
    c.await_state(&format!("{second}_1"), "COMPLETED");
    assert_eq!(c.job_field(&format!("{first}_2"), "JobState").as_deref(), Some("PENDING"));
    // The task that is over is named, as Slurm does.
    let a = c.sh(&format!("scontrol release {first}"));
    let over = format!("{first}_1: Job/step already completing or completed\n{first}_2-3: No error\n");
    assert_eq!((a.code, a.err), (1, over));
    c.await_state(&format!("{second}_3"), "COMPLETED");
    c.await_that("the task after the one that failed never starts", || {
        c.job_field(&format!("{second}_2"), "Reason").as_deref() == Some("DependencyNeverSatisfied")
    });

    let earlier = sbatch("--hold --wrap true");
    let later = sbatch(&format!("--dependency=afterany:{earlier} --wrap true"));
    let last = sbatch(&format!("--dependency=afterok:{later} --wrap true"));
    for on in [&last, &earlier] {
        let a = c.sh(&format!("scontrol update JobId={earlier} Dependency=afterok:{on}"));
        assert!(a.code == 1 && a.err.contains("Circular job dependency"), "{a:?}");
    }
    c.sh(&format!("scontrol update JobId={last} Dependency=afterok:{earlier}")).ok();
    c.sh(&format!("scontrol release {earlier}")).ok();
    c.await_state(&last, "COMPLETED");
    c.await_state(&later, "COMPLETED");
}
