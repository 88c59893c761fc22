//! Nodes are powered down when they are idle, and up for jobs: the site's programs here end and start real node daemons.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, built, field_of, free_ports};
use std::os::unix::fs::symlink;

const UP: &[&str] = &["--nodes", "1", "--cpus", "4", "--memory", "4000"];

/// Starts a daemon for each node that it is given, but not for those that a file says do not come.
const RESUME: &str = r#"#!/bin/bash
export PATH=WORK/bin:$PATH GARRICK_HOME=WORK/home
echo "$1" >> WORK/resumed
cat "$SLURM_RESUME_FILE" >> WORK/jobs.json
for node in $(scontrol show hostnames "$1"); do
    grep -qx "$node" WORK/broken && continue
    setsid slurmd -D -b -N "$node" -f CONF > "WORK/$node.out" 2>&1 < /dev/null &
    echo $! > "WORK/$node.pid"
done
"#;

/// Ends them.
const SUSPEND: &str = r#"#!/bin/bash
export PATH=WORK/bin:$PATH GARRICK_HOME=WORK/home
echo "$1" >> WORK/suspended
for node in $(scontrol show hostnames "$1"); do
    [ -e "WORK/$node.pid" ] && kill -KILL "$(cat "WORK/$node.pid")" && rm "WORK/$node.pid"
done
exit 0
"#;

const FAILED: &str = "#!/bin/bash\necho \"$1\" >> WORK/failed\n";

/// A cluster with two nodes in the cloud.
struct Cloud(Option<Cluster>);

impl std::ops::Deref for Cloud {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.0.as_ref().unwrap()
    }
}

impl Cloud {
    fn new(name: &str, settings: &str) -> Self {
        Self(Some(Cluster::up_with(name, UP, |cluster| {
            symlink(built().join("noded"), cluster.work.join("bin/slurmd")).unwrap();
            let conf = cluster.conf_folder().join("slurm.conf");
            let script = |name: &str, text: &str| {
                let text = text.replace("WORK", cluster.work.to_str().unwrap());
                cluster.script(name, &text.replace("CONF", conf.to_str().unwrap())).display().to_string()
            };
            let resume = script("resume.sh", RESUME);
            let (suspend, failed) = (script("suspend.sh", SUSPEND), script("failed.sh", FAILED));
            std::fs::write(cluster.work.join("broken"), "").unwrap();
            let ports = free_ports(2);
            let port = |at: usize| ports[at];
            format!(
                "ResumeProgram={resume}\nSuspendProgram={suspend}\nResumeFailProgram={failed}\nSuspendExcNodes=n1\n\
                 SlurmctldParameters=power_save_interval=1\n{settings}\n\
                 NodeName=c1 CPUs=4 RealMemory=4000 NodeAddr=127.0.0.1 Port={} State=CLOUD\n\
                 NodeName=c2 CPUs=4 RealMemory=4000 NodeAddr=127.0.0.1 Port={} State=CLOUD\n\
                 PartitionName=cloud Nodes=c[1-2]\n",
                port(0),
                port(1)
            )
        })))
    }

    fn state(&self, node: &str) -> String {
        field_of(&self.run("scontrol", &["-o", "show", "node", node]).out, "State").unwrap_or_default()
    }

    #[track_caller]
    fn await_node(&self, node: &str, state: &str) {
        self.await_that(&format!("{node} is {state}"), || self.state(node) == state);
    }
}

/// Machines in the cloud do not end with the cluster.
impl Drop for Cloud {
    fn drop(&mut self) {
        for node in ["c1", "c2"] {
            let pid = std::fs::read_to_string(self.work.join(format!("{node}.pid"))).unwrap_or_default();
            if let Ok(pid) = pid.trim().parse() {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
            }
        }
        drop(self.0.take());
    }
}

const OFF: &str = "IDLE+CLOUD+POWERED_DOWN";

#[test]
fn nodes_are_powered_up_for_a_job_and_down_when_they_are_idle() {
    let c = Cloud::new("power", "ResumeTimeout=100\nSuspendTimeout=1\nSuspendTime=2");
    assert_eq!([c.state("c1"), c.state("c2")], [OFF, OFF]);
    assert_eq!(c.sh("sinfo -h -N -p cloud -o %t").ok().out, "idle~\nidle~\n");
    let script = "#!/bin/bash\n#SBATCH -p cloud -N2 -o job.out --extra=x\nsrun -n2 printenv SLURMD_NODENAME | sort\n";
    c.script("job.sh", script);
    let job = c.sh("sbatch job.sh").ok().job();
    c.await_that("the job waits for its nodes", || {
        let state = c.job_field(&job, "JobState").unwrap_or_default();
        state == "CONFIGURING" || state == "RUNNING" || state == "COMPLETED"
    });
    c.await_state(&job, "COMPLETED");
    assert_eq!(c.read("job.out"), "c1\nc2\n");
    assert_eq!(c.read("resumed"), "c[1-2]\n", "both at once, and once");
    let jobs: serde_json::Value = serde_json::from_str(&c.read("jobs.json")).unwrap();
    assert_eq!(jobs["all_nodes_resume"], "c[1-2]");
    let of_job = serde_json::json!([{
        "extra": "x", "features": null, "job_id": job.parse::<u32>().unwrap(), "nodes_alloc": "c[1-2]",
        "nodes_resume": "c[1-2]", "oversubscribe": "OK", "exclusive": "NO", "partition": "cloud", "reservation": null,
    }]);
    assert_eq!(jobs["jobs"], of_job);

    for node in ["c1", "c2"] {
        c.await_node(node, OFF);
    }
    assert!(
        c.read("suspended").lines().all(|nodes| ["c1", "c2", "c[1-2]"].contains(&nodes)),
        "{}",
        c.read("suspended")
    );
    assert_eq!(c.state("n1"), "IDLE", "SuspendExcNodes");

    c.kill(c.pid_of("controller", None));
    c.sh("garrick up").ok();
    assert_eq!([c.state("c1"), c.state("c2")], [OFF, OFF], "they stay so");
    c.sh("scontrol power up c2").ok();
    c.await_that("c2 was powered up", || c.read("resumed").lines().last() == Some("c2"));
    c.await_that("and is powered down again, being idle", || c.read("suspended").lines().last() == Some("c2"));
    c.await_node("c2", OFF);
    let refused = c.sh("scontrol update nodename=c2 state=resume");
    assert_eq!((refused.code, refused.err.as_str()), (1, "slurm_update error: Invalid node state transition\n"));
    c.sh("scontrol update nodename=c[1-2] nodeaddr=10.9.8.[1-2]").ok();
    let shown = c.sh("scontrol -o show node c2").ok().out;
    assert_eq!(field_of(&shown, "NodeAddr").as_deref(), Some("10.9.8.2"));
}

#[test]
fn a_node_that_does_not_come_in_time_is_down_and_its_job_is_requeued() {
    let settings = "ResumeTimeout=3\nSuspendTimeout=1\nSchedulerParameters=requeue_on_resume_failure";
    let c = Cloud::new("no-power", settings);
    std::fs::write(c.work.join("broken"), "c1\nc2\n").unwrap();
    let other = c.sh("sbatch -p cloud -w c2 --wrap true").ok().job();
    c.await_state(&other, "CONFIGURING");
    assert!(c.state("c2").starts_with("MIXED+CLOUD"), "{}", c.state("c2"));
    c.sh(&format!("scancel {other}")).ok();
    c.await_state(&other, "CANCELLED");

    let job = c.sh("sbatch -p cloud -w c1 --no-requeue --wrap true").ok().job();
    c.await_that("it is requeued", || c.job_field(&job, "Restarts").as_deref() == Some("1"));
    c.await_state(&job, "PENDING");
    c.await_that("c1 is powered down", || c.state("c1") == "DOWN+CLOUD+POWERED_DOWN");
    let shown = c.sh("scontrol show node c1").ok().out;
    assert!(shown.contains("Reason=ResumeTimeout reached ["), "{shown}");
    assert_eq!(c.sh("sinfo -h -n c1 -p cloud -o %t").ok().out, "down~\n");
    c.await_that("the site is told", || {
        let failed = std::fs::read_to_string(c.work.join("failed")).unwrap_or_default();
        failed.lines().any(|nodes| nodes.contains("c1") || nodes == "c[1-2]")
    });
}
