//! All checks of the configuration, in order, on a thread of their own: one request after another, as Slurm's. A script's global
//! variables are the same from one request to the next, and nobody waits for it but those whose requests it checks.

use crate::{
    fields::{Desc, of_change},
    lua::{Called, Script, ScriptError, TIME_LIMIT},
    plain::{self, Throttle},
    shown::PartitionShown,
    socket,
};
use garrick_actors::submission::job_submit::{JobSubmit, Requested, SiteAnswer, SiteAsk, SiteChecked, SiteSight};
use garrick_model::{
    config::{Config, JobSubmitPlugin},
    ids::NodeIndex,
    messages::command::JobChange,
    refusal::Refusal,
    spec::JobSpec,
    view::JobView,
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};
use tokio::sync::oneshot;

/// Most requests that wait for the thread; later ones are told to come again.
const MOST_WAITING: usize = 1000;
/// When to come again.
const CROWDED: Duration = Duration::from_secs(1);
/// A request waits so much longer than one script may run.
const PATIENCE: Duration = Duration::from_secs(50);
/// The script's name, beside `slurm.conf`.
const SCRIPT: &str = "job_submit.lua";

/// Why the checks cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ChecksError {
    /// The script is not usable.
    #[error("JobSubmitPlugins=lua: {0}")]
    Script(#[from] ScriptError),
    /// The thread did not start.
    #[error("JobSubmitPlugins: cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

struct Work {
    ask: SiteAsk,
    sight: Arc<dyn SiteSight>,
    done: oneshot::Sender<Result<SiteAnswer, Refusal>>,
}

/// The site's own checks.
#[derive(Debug)]
pub struct SiteChecks {
    work: SyncSender<Work>,
}

impl SiteChecks {
    /// Starts the thread. Where the configuration asks for a script, it is loaded; `folder` is that of `slurm.conf`.
    pub fn start(folder: &Path, config: &Config) -> Result<Self, ChecksError> {
        let (work, came) = sync_channel(MOST_WAITING);
        let (loaded, outcome) = sync_channel(1);
        let path = folder.join(SCRIPT);
        let cluster = config.cluster_name.clone();
        let has_script = config.job_submit.contains(&JobSubmitPlugin::Lua);
        let run = move || {
            let mut worker = Worker { path, script: None, throttle: Throttle::default() };
            let first = if has_script { worker.load(&cluster) } else { Ok(()) };
            let is_good = first.is_ok();
            if loaded.send(first).is_ok() && is_good {
                worker.run(&came);
            }
        };
        thread::Builder::new().name("job-submit".to_owned()).spawn(run).map_err(ChecksError::Thread)?;
        outcome.recv().map_err(|_| ChecksError::Thread(std::io::Error::other("it ended")))??;
        Ok(Self { work })
    }
}

impl JobSubmit for SiteChecks {
    fn has_checks(&self, config: &Config) -> bool {
        !config.job_submit.is_empty()
    }

    fn check(&self, ask: SiteAsk, sight: Arc<dyn SiteSight>) -> SiteChecked {
        let (done, answer) = oneshot::channel();
        let sent = self.work.try_send(Work { ask, sight, done });
        Box::pin(async move {
            match sent {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => return Err(Refusal::RetryAfter { after: CROWDED }),
                Err(TrySendError::Disconnected(_)) => return Err(failed("the thread of the site's checks has ended")),
            }
            match tokio::time::timeout(TIME_LIMIT + PATIENCE, answer).await {
                Ok(answer) => answer.unwrap_or_else(|_| Err(failed("the site's checks have failed"))),
                Err(_) => Err(Refusal::RetryAfter { after: CROWDED }),
            }
        })
    }
}

fn failed(text: &str) -> Refusal {
    Refusal::Internal(text.to_owned())
}

/// A file as it was when it was read.
type FileState = (SystemTime, u64);

struct Worker {
    path: PathBuf,
    script: Option<(Script, Option<FileState>)>,
    throttle: Throttle,
}

impl Worker {
    fn run(&mut self, came: &Receiver<Work>) {
        while let Ok(Work { ask, sight, done }) = came.recv() {
            // Whoever asked may be gone.
            let _ = done.send(self.check(ask, &sight));
        }
    }

    fn load(&mut self, cluster: &str) -> Result<(), ScriptError> {
        let state = file_state(&self.path);
        self.script = Some((Script::load(&self.path, cluster)?, state));
        tracing::info!(path = %self.path.display(), "job_submit.loaded");
        Ok(())
    }

    /// The script, read again if its file has changed. One that is broken or gone is not taken: the former one goes on.
    fn script(&mut self, cluster: &str) -> Result<&Script, Refusal> {
        let now = file_state(&self.path);
        if self.script.as_ref().is_none_or(|(_, state)| *state != now)
            && let Err(error) = self.load(cluster)
        {
            tracing::error!(path = %self.path.display(), %error, "job_submit.not_loaded");
            match &mut self.script {
                // Not tried again until it changes.
                Some((_, state)) => *state = now,
                None => return Err(by_script(&error)),
            }
        }
        self.script.as_ref().map(|(script, _)| script).ok_or_else(|| failed("there is no script"))
    }

    fn check(&mut self, ask: SiteAsk, sight: &Arc<dyn SiteSight>) -> Result<SiteAnswer, Refusal> {
        let config = sight.config();
        let by = By::new(&ask, sight);
        let mut answer = SiteAnswer { jobs: Vec::new(), changes: Vec::new(), said: Vec::new() };
        match ask.what {
            Requested::Jobs(jobs) => {
                for (offset, mut spec) in (0_u32..).zip(jobs) {
                    for plugin in &config.job_submit {
                        let desc = Desc { offset: ask.heterogeneous.then_some(offset), ..by.desc(spec) };
                        let called = self.submit(plugin, desc, &by, &config)?;
                        spec = called.accepted(&mut answer.said)?;
                    }
                    answer.jobs.push(spec);
                }
            }
            Requested::Changes(changes) => {
                for (id, change) in changes {
                    let changed = match sight.job(id) {
                        Some(job) => self.change(&job, change, &by, &config, &mut answer.said),
                        None => Err(Refusal::InvalidJobId),
                    };
                    answer.changes.push((id, changed));
                }
            }
        }
        Ok(answer)
    }

    fn submit(
        &mut self,
        plugin: &JobSubmitPlugin,
        desc: Desc,
        by: &By<'_>,
        config: &Config,
    ) -> Result<Called<JobSpec>, Refusal> {
        match plugin {
            JobSubmitPlugin::Lua => self
                .script(&config.cluster_name)?
                .submit(desc, &by.partitions, by.sight)
                .map_err(|error| by_script(&error)),
            JobSubmitPlugin::Socket(path) => socket::submit(path, desc, &by.partitions),
            JobSubmitPlugin::RequireTimeLimit => Ok(plain::require_time_limit(desc.spec)),
            JobSubmitPlugin::AllPartitions => Ok(plain::all_partitions(desc.spec, &by.partitions)),
            JobSubmitPlugin::Partition => Ok(plain::partition(desc.spec, &by.partitions)),
            JobSubmitPlugin::Throttle => {
                let most =
                    config.scheduler_parameters.value("jobs_per_user_per_hour").and_then(|most| most.parse().ok());
                Ok(self.throttle.check(desc, most, Instant::now()))
            }
            JobSubmitPlugin::Logging => {
                tracing::info!("job_submit/logging: {}", plain::logged("submit", &desc));
                Ok(Called { request: desc.spec, code: 0, said: Vec::new() })
            }
        }
    }

    fn change(
        &mut self,
        job: &JobView,
        mut change: JobChange,
        by: &By<'_>,
        config: &Config,
        said: &mut Vec<String>,
    ) -> Result<JobChange, Refusal> {
        for plugin in &config.job_submit {
            let desc = by.desc(JobSpec::default());
            let called = match plugin {
                JobSubmitPlugin::Lua => self
                    .script(&config.cluster_name)?
                    .modify(desc, (job, &change), &by.partitions, by.sight)
                    .map_err(|error| by_script(&error)),
                JobSubmitPlugin::Socket(path) => socket::modify(path, desc, (job, &change), &by.partitions),
                JobSubmitPlugin::Logging => {
                    let desc = Desc { spec: of_change(&change), is_change: true, ..desc };
                    tracing::info!("job_submit/logging: {}, JobId={}", plain::logged("modify", &desc), job.id);
                    continue;
                }
                JobSubmitPlugin::RequireTimeLimit
                | JobSubmitPlugin::AllPartitions
                | JobSubmitPlugin::Partition
                | JobSubmitPlugin::Throttle => continue,
            };
            change = called.and_then(|called| called.accepted(said)).map_err(|refusal| told_apart(refusal, said))?;
        }
        Ok(change)
    }
}

/// What a refusal says to the user is told with the answer, once for all jobs.
fn told_apart(refusal: Refusal, said: &mut Vec<String>) -> Refusal {
    match refusal {
        Refusal::BySite { number, said: own } => {
            said.extend(own);
            Refusal::BySite { number, said: Vec::new() }
        }
        other => other,
    }
}

impl<T> Called<T> {
    /// The request as the check wants it, or its refusal.
    fn accepted(self, said: &mut Vec<String>) -> Result<T, Refusal> {
        said.extend(self.said);
        if self.code == 0 {
            return Ok(self.request);
        }
        Err(Refusal::BySite { number: self.code, said: std::mem::take(said) })
    }
}

/// A script that failed refuses: it may be there to keep somebody out.
fn by_script(error: &ScriptError) -> Refusal {
    tracing::error!(%error, "job_submit.failed");
    Refusal::BySite { number: error.number(), said: vec![error.to_string()] }
}

fn file_state(path: &Path) -> Option<FileState> {
    let file = fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.len()))
}

/// Who asks, and what of the cluster is shown to the checks.
struct By<'a> {
    uid: u32,
    gid: u32,
    user: String,
    partitions: Vec<PartitionShown>,
    sight: &'a Arc<dyn SiteSight>,
}

impl<'a> By<'a> {
    fn new(ask: &SiteAsk, sight: &'a Arc<dyn SiteSight>) -> Self {
        let config = sight.config();
        let cpus = |index: &NodeIndex| config.nodes.get(index.0 as usize).map_or(0, |node| node.settings.shape.cpus);
        let open = sight.partitions().into_iter().filter(|p| !ask.closed.contains(&p.config.name));
        let partitions = open.map(|view| PartitionShown { cpus: view.nodes.iter().map(cpus).sum(), view }).collect();
        Self { uid: ask.caller.uid, gid: ask.caller.gid, user: ask.user.clone(), partitions, sight }
    }

    fn desc(&self, spec: JobSpec) -> Desc {
        Desc { spec, uid: self.uid, gid: self.gid, user: self.user.clone(), offset: None, is_change: false }
    }
}

#[cfg(test)]
mod tests;
