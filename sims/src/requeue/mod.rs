//! How soon a job whose node died runs again: a real cluster with spare nodes, a node killed under an expedited job several
//! times, and the actors' traces of what happened in between.
//!
//! | file | what |
//! |---|---|
//! | [`timeline`] | the actors' traces from the kill to the new script, as lines to read |
//!
//! Times are this machine's clock: the kill as this program sees it, the first line of a batch script as the script itself
//! writes it down, and everything between as the actors' traces have it. The floor is a job that is simply submitted to the
//! same cluster in the same minutes, from the start of `sbatch` to its script's first line.

pub mod timeline;

use crate::minibatch::{
    cluster::{ClusterError, Embedded, Stage, run},
    processes,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use timeline::{Line, Timeline};

/// Nodes of a job.
const WIDTH: usize = 2;
/// Nodes of the cluster: those of the job and spare ones.
const NODES: usize = 5;
/// Nothing here takes longer, but on a machine that stands still.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// `SlurmdTimeout` of the cluster, seconds: how long a silent node is believed to be there. It is all of the detection.
pub const SILENCE_SECS: u64 = 3;
/// What an ordinary requeue waits before anything else happens.
pub const ORDINARY_DELAY: Duration = Duration::from_secs(120);

/// Which node dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The one with the batch script and the step manager.
    BatchHost,
    /// The other one.
    Other,
}

/// One death.
#[derive(Clone, Debug)]
pub struct Death {
    /// Which node of the job.
    pub victim: Victim,
    /// From the kill to the controller's word that the node is down.
    pub detection: Duration,
    /// From there to the new script's first line.
    pub restart: Duration,
    /// Nodes before and after.
    pub nodes: (String, String),
    /// What happened.
    pub story: Vec<Line>,
}

/// A cluster on which nodes die.
pub struct Rig {
    cluster: Embedded,
    told: PathBuf,
}

impl Rig {
    /// Brings it up.
    pub fn up() -> Result<Self, ClusterError> {
        let lines = format!("SlurmctldParameters=enable_expedited_requeue\nSlurmdTimeout={SILENCE_SECS}\n");
        let cluster = Embedded::up_with(NODES, 2, &lines)?;
        let told = cluster.home().join("told");
        let script = format!(
            "#!/bin/bash\necho \"$EPOCHREALTIME $SLURM_JOB_NODELIST\" >> '{}'\n\
             [ \"$1\" = once ] || [ -n \"$SLURM_RESTART_COUNT\" ] || '{}' -n{WIDTH} sleep 100000\n",
            told.display(),
            cluster.bin().join("srun").display()
        );
        fs::write(cluster.home().join("job.sh"), script).map_err(file("write", &told))?;
        Ok(Self { cluster, told })
    }

    /// Takes it away.
    pub fn down(self) -> Result<(), ClusterError> {
        self.cluster.down()
    }

    /// From `sbatch` to the first line of the script, with nothing in the way.
    pub fn floor(&self) -> Result<Duration, ClusterError> {
        let began = now();
        let job = self.submit(&[], "once")?;
        let (at, _) = self.told_line(0)?;
        self.until_over(&job)?;
        Ok(at.saturating_sub(began))
    }

    /// Kills a node under an expedited job, and waits until the job ran again and the node is back.
    pub fn death(&self, victim: Victim) -> Result<Death, ClusterError> {
        let job = self.submit(&["--requeue=expedite"], "again")?;
        let (_, before) = self.told_line(0)?;
        self.until("its step runs", || Ok(self.ask("squeue", &["-h", "-s", "-j", &job, "-o", "%i"])?.contains(".0")))?;
        let names = self.ask("scontrol", &["show", "hostnames", &before]).unwrap_or_else(|_| before.clone());
        let mut names = names.split_whitespace();
        let node = match victim {
            Victim::BatchHost => names.next(),
            Victim::Other => names.nth(1),
        };
        let node = node.ok_or_else(|| ClusterError::Scenario(format!("no such node in {before}")))?.to_owned();
        let killed = self.kill_node(&node);
        let (again, after) = self.told_line(1)?;
        let traces = self.ask("stail", &["--json", &format!("job/{job}"), &format!("node/{node}"), "scheduler"])?;
        let timeline = Timeline::new(&traces, &node, &job, killed, again);
        let down = timeline.down.ok_or_else(|| ClusterError::Scenario("no trace of the node going down".to_owned()))?;
        self.until_over(&job)?;
        self.bring_back()?;
        let (detection, restart) = (down.saturating_sub(killed), again.saturating_sub(down));
        Ok(Death { victim, detection, restart, nodes: (before, after), story: timeline.lines })
    }

    fn submit(&self, options: &[&str], word: &str) -> Result<String, ClusterError> {
        let _ = fs::remove_file(&self.told);
        let mut sbatch = self.cluster.command("sbatch");
        sbatch.args([
            "--parsable",
            "--exclusive",
            "-o",
            "/dev/null",
            "-N",
            &WIDTH.to_string(),
            "-n",
            &WIDTH.to_string(),
        ]);
        sbatch.args(options).arg(self.cluster.home().join("job.sh")).arg(word);
        Ok(run(&mut sbatch)?.trim().to_owned())
    }

    /// When a script wrote that line, and its nodes.
    fn told_line(&self, number: usize) -> Result<(Duration, String), ClusterError> {
        let mut found = None;
        self.until("the script's first line", || {
            let text = fs::read_to_string(&self.told).unwrap_or_default();
            let whole = text.split_inclusive('\n').nth(number).filter(|line| line.ends_with('\n'));
            found = whole.and_then(|line| {
                let (at, nodes) = line.trim().split_once(' ')?;
                Some((Duration::from_secs_f64(at.replace(',', ".").parse().ok()?), nodes.to_owned()))
            });
            Ok(found.is_some())
        })?;
        found.ok_or_else(|| ClusterError::Scenario("the script said nothing".to_owned()))
    }

    /// All processes of the node at once, as when its machine loses power.
    fn kill_node(&self, node: &str) -> Duration {
        let home = self.cluster.home().display().to_string();
        let all = processes::running();
        let of_node = |args: &[String]| {
            let daemon =
                args.iter().any(|a| a.starts_with(&home)) && args.windows(2).any(|w| w[0] == "-N" && w[1] == node);
            daemon || args.iter().any(|a| a.starts_with(&format!("{home}/spool/{node}/")))
        };
        let mut doomed: Vec<u32> = all.iter().filter(|p| of_node(&p.args)).map(|p| p.pid).collect();
        let mut at = 0;
        while at < doomed.len() {
            let parent = doomed[at];
            doomed.extend(
                all.iter()
                    .filter(|p| p.parent == parent)
                    .map(|p| p.pid)
                    .filter(|pid| !doomed.contains(pid))
                    .collect::<Vec<_>>(),
            );
            at += 1;
        }
        let killed = now();
        for pid in doomed {
            // Gone with its parent is as good.
            let _ = i32::try_from(pid).map(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL));
        }
        killed
    }

    fn bring_back(&self) -> Result<(), ClusterError> {
        self.ask("garrick", &["up"])?;
        self.until("all nodes are idle", || {
            let states = self.ask("sinfo", &["-h", "-N", "-o", "%t"])?;
            Ok(states.lines().count() == NODES && states.lines().all(|state| state.trim() == "idle"))
        })
    }

    fn until_over(&self, job: &str) -> Result<(), ClusterError> {
        self.until("the job is over", || Ok(self.ask("squeue", &["-h", "-j", job])?.trim().is_empty()))
    }

    fn ask(&self, command: &str, args: &[&str]) -> Result<String, ClusterError> {
        run(self.cluster.command(command).args(args))
    }

    fn until(&self, what: &str, mut holds: impl FnMut() -> Result<bool, ClusterError>) -> Result<(), ClusterError> {
        let began = Instant::now();
        while !holds()? {
            if began.elapsed() > PATIENCE {
                let queue = self.ask("squeue", &[]).unwrap_or_default();
                return Err(ClusterError::Scenario(format!("waited too long until {what}\n{queue}")));
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn file(operation: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> ClusterError {
    let path = path.to_owned();
    move |cause| ClusterError::File { operation, path, cause }
}
