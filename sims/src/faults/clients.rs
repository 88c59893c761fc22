//! The users and the administrator: they submit, query, cancel and release. Their commands are processes that may be killed too.

use super::{
    site::{Site, write_program},
    work::{JobPlan, Works},
};
use crate::minibatch::cluster::ClusterError;
use nix::sys::signal::Signal;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

/// A command that takes longer is given up, as a user would.
const SUBMIT_LIMIT: Duration = Duration::from_secs(90);
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at the queue.
const LOOK_EVERY: Duration = Duration::from_millis(400);

#[derive(Debug)]
struct Submission {
    serial: u32,
    child: Child,
    since: Instant,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Clients {
    /// Acknowledged: job ids by serial number.
    pub acknowledged: BTreeMap<u32, u32>,
    /// Not acknowledged: the command failed or was killed.
    pub unacknowledged: BTreeSet<u32>,
    /// Jobs whose cancellation was asked for.
    pub cancelled: BTreeSet<u32>,
    /// Jobs that were held after a launch that failed, and released by the administrator.
    pub released: BTreeSet<String>,
    /// Jobs in the queue, by the last look.
    pub live: usize,
    submissions: Vec<Submission>,
    cancels: Vec<(Child, Instant)>,
    to_cancel: Vec<(Instant, u32, u32)>,
    look: Option<(Child, Instant)>,
    looked: Option<Instant>,
}

impl Clients {
    /// Processes of `sbatch` under way.
    pub fn under_way(&self) -> Vec<u32> {
        self.submissions.iter().map(|s| s.child.id()).collect()
    }

    /// Submits from that host.
    pub fn submit(&mut self, site: &Site, works: &Works, plan: &JobPlan, host: usize) -> Result<(), ClusterError> {
        let script = site.home.join("jobs").join(plan.name());
        write_program(&script, &plan.script(works))?;
        let mut c = site.command(host, "sbatch");
        c.args(plan.options(&site.home)).arg(&script);
        let log = super::site::append(&site.home.join("clients.log"))?;
        let child = spawn(c.stdout(Stdio::piped()).stderr(log))?;
        self.submissions.push(Submission { serial: plan.serial, child, since: Instant::now() });
        Ok(())
    }

    /// Cancels a job at that time, should it be acknowledged by then.
    pub fn cancel_at(&mut self, at: Instant, serial: u32, job: u32) {
        self.to_cancel.push((at, serial, job));
    }

    /// Takes answers, cancels what is due, looks at the queue. Gives back what was acknowledged.
    pub fn attend(&mut self, site: &Site, now: Instant) -> Result<Vec<(u32, u32)>, ClusterError> {
        let mut new = Vec::new();
        let mut waiting = Vec::new();
        for mut submission in std::mem::take(&mut self.submissions) {
            match submission.child.try_wait() {
                Ok(None) if now - submission.since < SUBMIT_LIMIT => waiting.push(submission),
                ended => {
                    let said = said(&mut submission.child);
                    let id = said.trim().split(';').next().and_then(|w| w.parse().ok());
                    match (ended, id) {
                        // What was printed was promised, however the command ended.
                        (Ok(Some(_)), Some(id)) => {
                            self.acknowledged.insert(submission.serial, id);
                            new.push((submission.serial, id));
                        }
                        _ => {
                            self.unacknowledged.insert(submission.serial);
                        }
                    }
                }
            }
        }
        self.submissions = waiting;
        let due: Vec<_> = self.to_cancel.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, serial, job) in due {
            self.cancelled.insert(serial);
            let mut c = site.command(0, "scancel");
            self.cancels.push((spawn(c.arg(job.to_string()).stdout(Stdio::null()).stderr(Stdio::null()))?, now));
        }
        self.cancels.retain_mut(|(child, since)| still_runs(child, *since, now));
        self.look(site, now)?;
        Ok(new)
    }

    fn look(&mut self, site: &Site, now: Instant) -> Result<(), ClusterError> {
        match self.look.take() {
            Some((mut child, since)) => match child.try_wait() {
                Ok(None) if now - since < LOOK_LIMIT => self.look = Some((child, since)),
                Ok(Some(status)) => {
                    let said = said(&mut child);
                    if status.success() {
                        self.live = said.lines().count();
                    }
                    for line in said.lines().filter(|line| line.contains("launch failed")) {
                        let job = line.split(' ').next().unwrap_or_default();
                        self.released.insert(job.to_owned());
                        let mut c = site.command(0, "scontrol");
                        c.args(["release", job]).stdout(Stdio::null()).stderr(Stdio::null());
                        self.cancels.push((spawn(&mut c)?, now));
                    }
                }
                _ => {
                    drop(said(&mut child));
                }
            },
            None if self.looked.is_none_or(|at| now - at > LOOK_EVERY) => {
                let mut c = site.command(0, "squeue");
                let child = spawn(c.args(["-h", "-o", "%i %r"]).stdout(Stdio::piped()).stderr(Stdio::null()))?;
                (self.look, self.looked) = (Some((child, now)), Some(now));
            }
            None => {}
        }
        Ok(())
    }

    /// Nothing is watched any longer.
    pub fn leave(&mut self) {
        if let Some((mut child, _)) = self.look.take() {
            drop(said(&mut child));
        }
    }

    /// Whether nothing is under way.
    pub fn idle(&self) -> bool {
        self.submissions.is_empty() && self.cancels.is_empty() && self.to_cancel.is_empty()
    }
}

fn spawn(c: &mut std::process::Command) -> Result<Child, ClusterError> {
    let program = c.get_program().to_string_lossy().into_owned();
    c.spawn().map_err(|cause| ClusterError::Run { program, cause })
}

/// Ends a command that is over or taken for it, and gives back what it printed.
fn said(child: &mut Child) -> String {
    // Over already is as good.
    let _ = child.kill();
    let _ = child.wait();
    let mut text = String::new();
    if let Some(out) = &mut child.stdout {
        let _ = out.read_to_string(&mut text);
    }
    text
}

fn still_runs(child: &mut Child, since: Instant, now: Instant) -> bool {
    if !matches!(child.try_wait(), Ok(None)) {
        return false;
    }
    if now - since > SUBMIT_LIMIT {
        super::population::signal(child.id(), Signal::SIGKILL);
    }
    true
}
