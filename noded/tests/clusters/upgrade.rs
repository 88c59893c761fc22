//! Programs replaced under running jobs: daemon after daemon is killed and started from new files, while `stepd`s of the
//! old ones go on with their jobs.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, PROGRAMS, built, copy_program, scratch};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

const UP: &[&str] = &["--nodes", "2", "--cpus", "4", "--memory", "5000"];

/// Puts new files in the place of the programs, as a package does: what runs keeps the old ones.
fn replace(programs: &Path) {
    for name in PROGRAMS {
        let fresh = programs.join(format!("{name}.new"));
        copy_program(&built().join(name), &fresh);
        fs::rename(fresh, programs.join(name)).unwrap();
    }
}

/// The file that a process runs, whatever its name is now.
fn file_of(pid: i32) -> u64 {
    fs::metadata(format!("/proc/{pid}/exe")).unwrap().ino()
}

fn file(path: PathBuf) -> u64 {
    fs::metadata(path).unwrap().ino()
}

/// Kills a daemon and starts what is missing, from the files that are there now.
fn restart(c: &Cluster, role: &str, name: Option<&str>) -> i32 {
    c.kill(c.pid_of(role, name));
    c.run("garrick", &[&["up"], UP].concat()).ok();
    c.pid_of(role, name)
}

#[test]
fn jobs_go_on_while_every_daemon_is_replaced() {
    let work = scratch("upgrade");
    let programs = work.join("programs");
    fs::create_dir(&programs).unwrap();
    replace(&programs);
    let c = Cluster::up_from(work, &programs, UP);
    let (go, said) = (c.fifo("go"), c.fifo("said"));
    // A step that lasts over all of it, a queue, and a step over both nodes at each stop.
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N2 -n4 --mem=500 -o job.out\n\
         srun --async -n1 --mem=10 -o long.out sh -c 'until [ -e open ]; do sleep 0.05; done; echo long'\n\
         srun --async --array=0-199 -n1 --mem=10 -o /dev/null sh -c 'echo $SLURM_STEP_ARRAY_TASK_ID >> ran'\n\
         for stop in old mixed new; do\n  echo $stop > said\n  read x < go\n\
         \x20 srun --overlap -N2 -n2 -l hostname | wc -l\ndone\n\
         touch open\nswait\nexit 9\n",
    );
    let id = c.sh("sbatch job.sh").ok().job();
    let stop = |name: &str| assert_eq!(fs::read_to_string(&said).unwrap().trim(), name);
    let go = || fs::write(&go, "x\n").unwrap();
    stop("old");
    c.await_state(&id, "RUNNING");
    go();
    stop("mixed");
    let old = file(programs.join("stepd"));
    let stepds = ["n1", "n2"].map(|node| c.stepd_of(&id, node).unwrap());
    replace(&programs);
    // One node's daemon is of the new files, the other's and the controller of the old.
    assert_eq!(file_of(restart(&c, "node", Some("n2"))), file(programs.join("noded")));
    assert_ne!(file_of(c.pid_of("node", Some("n1"))), file(programs.join("noded")));
    c.await_that("the node is there again", || c.sh("sinfo -h -n n2 -o %t").out.trim() == "mix");
    let a = c.run("srun", &["-w", "n2", "-n1", "--mem=10", "sh", "-c", "exit 4"]);
    assert_eq!(a.code, 4, "a new job on the new daemon under the old controller: {a:?}");
    go();
    stop("new");
    assert_eq!(file_of(restart(&c, "controller", None)), file(programs.join("noded")));
    assert_eq!(file_of(restart(&c, "node", Some("n1"))), file(programs.join("noded")));
    c.await_that("the nodes are there again", || c.sh("sinfo -h -o %t%D").out.trim() == "mix2");
    for (node, pid) in ["n1", "n2"].into_iter().zip(stepds) {
        assert_eq!(c.stepd_of(&id, node), Some(pid), "the job's stepd on {node} is the one that it had");
        assert_eq!(file_of(pid), old);
    }
    // A job of the new ones beside it.
    let a = c.run("srun", &["-N2", "-n2", "--mem=10", "sh", "-c", "exit 6"]);
    assert_eq!(a.code, 6, "{a:?}");
    go();
    c.await_state(&id, "FAILED");
    assert_eq!(c.job_field(&id, "ExitCode").as_deref(), Some("9:0"));
    let out = c.read("job.out");
    assert_eq!(out.lines().filter(|line| *line == "2").count(), 3, "{out}");
    assert_eq!(c.read("long.out"), "long\n");
    let mut ran: Vec<u32> = c.read("ran").lines().map(|line| line.parse().unwrap()).collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..200).collect::<Vec<_>>());
}
