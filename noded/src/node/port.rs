//! Carries out the agent's effects.

use super::{neighbours::Neighbours, power::ShownPower, records::Sought, runs::RunWorld};
use crate::node::conversations::{Conversations, tell_agent};
use garrick_agent::{AgentEffect, AgentInput, AgentMsg, AgentPort, FoundRun, Leftover, RunKey, StepdState};
use garrick_daemon::logging;
use garrick_kernel::{inventory, proc_tree, reap::ended};
use garrick_model::{
    messages::node::NodeToController,
    time::Timestamp,
    view::{NodeFacts, NodeLoad},
};
use garrick_runtime::{Address, TraceContext};
use garrick_traces::answers::Traces;
use garrick_transport::identity::VerifyKey;
use std::{
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, watch};

/// The world of a node's agent.
pub struct NodePort {
    /// For answers.
    pub agent: Address<AgentMsg>,
    /// What the machine has.
    pub facts: NodeFacts,
    /// Open connections.
    pub conversations: Arc<Conversations>,
    /// How runs are started.
    pub world: Arc<RunWorld>,
    /// The key that credentials are checked with.
    pub trust: Arc<Mutex<Option<VerifyKey>>>,
    /// Set once the daemon is to end.
    pub exit: watch::Sender<bool>,
    /// Called when the configuration is to be read again.
    pub reconfigure: Arc<dyn Fn() + Send + Sync>,
    /// The controller lives in this process too and gives its trace records itself.
    pub with_controller: bool,
    /// Other nodes.
    pub neighbours: Neighbours,
    /// Trace records of this process.
    pub traces: Traces,
    /// When records of steps were looked through last.
    pub expired: Option<Instant>,
    /// One search for records at a time.
    pub finding: Arc<Semaphore>,
    /// What the node's energy meter showed.
    pub power: ShownPower,
}

/// So often records of steps are looked through.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);

impl NodePort {
    fn later(&self, work: impl Future<Output = AgentInput> + 'static) {
        let (agent, cx) = (self.agent.clone(), TraceContext::current());
        actix_rt::spawn(async move {
            let input = work.await;
            tell_agent(&agent, cx, input);
        });
    }

    /// Tells the agent when a run's `stepd` ends.
    fn watch(agent: &Address<AgentMsg>, run: RunKey, pid: u32, pidfd: OwnedFd) {
        let agent = agent.clone();
        actix_rt::spawn(async move {
            let how = ended(pidfd).await;
            tell_agent(&agent, TraceContext::root(), AgentInput::StepdExited { run, pid: Some(pid), how });
        });
    }

    /// The same for a process that is not of this daemon's making.
    fn watch_other(&self, run: RunKey, pid: u32) {
        match proc_tree::open(pid) {
            Ok(pidfd) => Self::watch(&self.agent, run, pid, pidfd),
            Err(e) => {
                tracing::warn!(job_id = run.job.0, pid, error = %e, "watching a stepd");
                self.not_there(run, Some(pid));
            }
        }
    }

    fn not_there(&self, run: RunKey, pid: Option<u32>) {
        let how = "it is not there".to_owned();
        tell_agent(&self.agent, TraceContext::current(), AgentInput::StepdExited { run, pid, how });
    }

    /// Starts a `stepd` and says so before anything that it does can be told.
    fn start(&self, run: RunKey, work: impl Future<Output = (AgentInput, Option<(u32, OwnedFd)>)> + 'static) {
        let (agent, cx) = (self.agent.clone(), TraceContext::current());
        actix_rt::spawn(async move {
            let (input, started) = work.await;
            tell_agent(&agent, cx, input);
            if let Some((pid, pidfd)) = started {
                Self::watch(&agent, run, pid, pidfd);
            }
        });
    }

    fn saved(what: &str, run: RunKey, result: Result<(), impl std::fmt::Display>) {
        if let Err(e) = result {
            tracing::error!(job_id = run.job.0, error = %e, "{what}");
        }
    }

    /// Looks for records that are too old or too many, now and then.
    fn expire_records(&mut self) {
        if self.expired.is_some_and(|last| last.elapsed() < EXPIRE_EVERY) {
            return;
        }
        self.expired = Some(Instant::now());
        let (spool, retention) = (self.world.spool.clone(), self.world.retention);
        tokio::task::spawn_blocking(move || {
            if let Err(e) = spool.expire_records(retention) {
                tracing::warn!(error = %e, "removing records of steps");
            }
        });
    }

    fn find_records(&self, query: u64, sought: Sought) {
        let (spool, conversations) = (self.world.spool.clone(), Arc::clone(&self.conversations));
        let finding = Arc::clone(&self.finding);
        actix_rt::spawn(async move {
            let Ok(_turn) = finding.acquire().await else { return };
            let found = tokio::task::spawn_blocking(move || spool.records_of(sought)).await;
            let runs = match found {
                Ok(Ok(found)) => found.into_iter().map(|found| found.run.sluid).collect(),
                Ok(Err(e)) => {
                    tracing::warn!(job_id = sought.job.0, error = %e, "looking for records of steps");
                    Vec::new()
                }
                Err(_) => Vec::new(),
            };
            conversations.tell_controller(NodeToController::Records { query, runs });
        });
    }

    fn kill_stepd(&self, run: RunKey, pid: Option<u32>) {
        // Numbers of processes are used again: one that only the agent remembers must look like this run's.
        let folder = self.world.spool.run(run).into_os_string();
        let of_run = |pid: &u32| proc_tree::has_argument(Path::new(proc_tree::PROC), *pid, &[folder.as_bytes()]);
        let Some(pid) = self.world.spool.living_stepd(run).or(pid.filter(of_run)) else {
            return self.not_there(run, pid);
        };
        let process = proc_tree::Process::read(Path::new(proc_tree::PROC), pid).filter(|p| !p.is_dead());
        match process.map(|p| proc_tree::signal(&p, libc::SIGKILL)) {
            None => self.not_there(run, Some(pid)),
            Some(Err(e)) => tracing::error!(job_id = run.job.0, pid, error = %e, "killing a stepd"),
            // The watcher reports its end.
            Some(Ok(_)) => {}
        }
    }
}

impl AgentPort for NodePort {
    fn perform(&mut self, effect: AgentEffect) {
        match effect {
            AgentEffect::ToController(message) => self.conversations.tell_controller(*message),
            AgentEffect::TrustKey { key, id } => match VerifyKey::from_bytes(&key) {
                Ok(verify) => {
                    if let Err(e) =
                        garrick_kernel::files::write_atomically(&self.world.spool.credential_key(), &key, 0o600)
                    {
                        tracing::error!(error = %e, "keeping the credential key");
                    }
                    *self.trust.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(verify);
                }
                Err(e) => tracing::error!(error = %e, key = id, "the controller's credential key"),
            },
            AgentEffect::Prepare { run, launch, credential, manager } => {
                let world = Arc::clone(&self.world);
                self.start(run, async move {
                    match world.prepare(run, *launch, *credential, manager).await {
                        Ok(started) => (AgentInput::Prepared { run, result: Ok(started.0) }, Some(started)),
                        Err(e) => (AgentInput::Prepared { run, result: Err(e) }, None),
                    }
                });
            }
            AgentEffect::Restart { run } => {
                let world = Arc::clone(&self.world);
                self.start(run, async move {
                    match world.restart(run) {
                        Ok(started) => (AgentInput::Restarted { run, result: Ok(started.0) }, Some(started)),
                        Err(e) => (AgentInput::Restarted { run, result: Err(e) }, None),
                    }
                });
            }
            AgentEffect::Watch { run, pid } => self.watch_other(run, pid),
            AgentEffect::NoteManager { run, manager } => {
                Self::saved("noting where a step manager is", run, self.world.note_manager(run, manager));
            }
            AgentEffect::NoteRequeue { run, policy } => match self.world.spool.note_requeue(run, policy) {
                Ok(()) => tell_agent(&self.agent, TraceContext::current(), AgentInput::RequeueNoted { run, policy }),
                // It is asked for again when the controller hears from this node next.
                Err(e) => tracing::error!(job_id = run.job.0, error = %e, "noting whether a run may be requeued"),
            },
            AgentEffect::ToStepd { run, message } => self.conversations.tell_stepd(run, message),
            AgentEffect::FindRecords { query, job, run, task } => self.find_records(query, Sought { job, run, task }),
            AgentEffect::KillStepd { run, pid } => self.kill_stepd(run, pid),
            AgentEffect::Sweep { run } => {
                let world = Arc::clone(&self.world);
                self.later(async move {
                    let swept = tokio::task::spawn_blocking(move || world.sweep(run)).await;
                    let broken = |e| Some(Leftover::Unknown(format!("the sweep broke off: {e}")));
                    AgentInput::Swept { run, left: swept.unwrap_or_else(broken) }
                });
            }
            AgentEffect::Reboot => {
                let world = Arc::clone(&self.world);
                actix_rt::spawn(async move { world.reboot().await });
            }
            AgentEffect::RunUnkillable { run } => {
                let world = Arc::clone(&self.world);
                actix_rt::spawn(async move { world.run_unkillable(run).await });
            }
            AgentEffect::MarkClean { run } => {
                Self::saved("noting that a run is clean", run, self.world.spool.mark_clean(run))
            }
            AgentEffect::RunEpilog { run } => {
                let world = Arc::clone(&self.world);
                self.later(async move { AgentInput::EpilogDone { run, failed: world.epilog(run).await.err() } });
            }
            AgentEffect::NoteOver { run, until } => {
                Self::saved("remembering that a run is over", run, self.world.spool.note_over(run, until));
            }
            AgentEffect::RemoveSpool { run } => {
                Self::saved("removing a run's folder", run, self.world.spool.close_run(run, Timestamp::now()));
                self.expire_records();
            }
            AgentEffect::AnswerShepherd { query, answer } => self.conversations.answer_asker(query, answer),
            AgentEffect::AnswerCommand { query, reply } => self.conversations.answer_command(query, *reply),
            AgentEffect::OwnTrace { query, .. } if self.with_controller => {
                tell_agent(&self.agent, TraceContext::root(), AgentInput::OwnTrace { query, records: Vec::new() });
            }
            AgentEffect::OwnTrace { query, prefixes, follow } => {
                let agent = self.agent.clone();
                let tell =
                    move |records| tell_agent(&agent, TraceContext::root(), AgentInput::OwnTrace { query, records });
                self.traces.serve(query, prefixes, follow, tell);
            }
            AgentEffect::StopOwnTrace { query } => self.traces.stop(query),
            AgentEffect::AskPeers => {
                let neighbours = self.neighbours.clone();
                self.later(async move { AgentInput::PeersSaid(neighbours.ask().await) });
            }
            AgentEffect::Neighbours(joined) => self.neighbours.told(joined),
            AgentEffect::CountAs(shape) => *self.world.counts_as() = Some(*shape),
            AgentEffect::Reconfigure => {
                self.world.read_scripts_again();
                (self.reconfigure)();
            }
            AgentEffect::ChangeLog(change) => logging::change(&change),
            AgentEffect::Exit => {
                let _ = self.exit.send(true);
            }
            // The shell keeps timers and the log.
            AgentEffect::SetTimer { .. } | AgentEffect::ClearTimer(_) | AgentEffect::Log { .. } => {}
        }
    }

    fn begin(&mut self) -> AgentInput {
        self.conversations.reset();
        let (found, unreadable) = self.world.spool.runs().unwrap_or_else(|e| {
            tracing::error!(error = %e, "the spool cannot be read");
            (Vec::new(), Vec::new())
        });
        for why in unreadable {
            tracing::warn!("a run's folder is left alone: {why}");
        }
        let found: Vec<FoundRun> = found.into_iter().map(|(run, _)| run).collect();
        for run in &found {
            if let StepdState::Alive { pid: Some(pid), .. } = run.stepd {
                self.watch_other(run.run, pid);
            }
        }
        let over = self.world.spool.over(Timestamp::now()).unwrap_or_else(|e| {
            tracing::error!(error = %e, "which runs are over here cannot be read");
            Vec::new()
        });
        AgentInput::Begin { found, over, facts: Box::new(self.facts.clone()), load: self.load() }
    }

    fn load(&mut self) -> NodeLoad {
        NodeLoad { power: self.power.get(), ..inventory::load(Path::new("/")).unwrap_or_default() }
    }
}
