//! The requests that concern this process: reading the configuration again, ending, join tokens.

use crate::{
    accounts::live::LiveSettings,
    controller::{
        links::try_tell,
        names::Names,
        primary, tokens,
        trust::{Trust, internal},
    },
    daemon::place::Cluster,
};
use garrick_actors::controller::{
    frontend::{CROWDED, shell::FrontendGift},
    messages::ControllerMsg,
    shells::ports::{Host, ReplySink},
};
use garrick_daemon::logging;
use garrick_kernel::users;
use garrick_model::{
    config::{self, Config, ConfigReport, LogChange, ShowFacts},
    ids::JobId,
    messages::command::{CommandReply, DaemonInfo},
    refusal::Refusal,
    time::{Timestamp, system_zone},
};
use garrick_runtime::{Address, ReplyTo, TraceContext};
use garrick_transport::{JoinServer, identity};
use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// This process, for the frontend.
pub struct ThisProcess {
    /// Where it belongs.
    pub cluster: Cluster,
    /// The frontend, once it runs.
    pub frontend: Arc<OnceLock<Address<ControllerMsg>>>,
    /// Settings of the service of accounting of an embedded cluster, once it runs.
    pub accounts: Arc<OnceLock<Arc<LiveSettings>>>,
    /// Who is who.
    pub names: Names,
    /// Makes tokens.
    pub join: Arc<JoinServer>,
    /// Certificates.
    pub trust: Arc<Trust>,
    /// Ends the process.
    pub exit: watch::Sender<bool>,
    /// When it started.
    pub started: Timestamp,
    /// This host's name.
    pub host: String,
    /// Address the controller listens on.
    pub address: String,
    /// Warnings of the configuration that were said: each is said once a start.
    pub warned: Arc<Mutex<BTreeSet<String>>>,
}

impl ThisProcess {
    /// Reads the configuration again and hands it to the frontend; an unusable one changes nothing. Waits for files and the name
    /// service.
    pub fn read_again(&self) {
        self.reader().read(None);
    }

    fn reader(&self) -> Reader {
        let (cluster, frontend, warned) = (self.cluster.clone(), Arc::clone(&self.frontend), Arc::clone(&self.warned));
        Reader { cluster, frontend, accounts: Arc::clone(&self.accounts), warned }
    }
}

/// Reads the configuration, on whatever thread.
struct Reader {
    cluster: Cluster,
    frontend: Arc<OnceLock<Address<ControllerMsg>>>,
    accounts: Arc<OnceLock<Arc<LiveSettings>>>,
    warned: Arc<Mutex<BTreeSet<String>>>,
}

impl Reader {
    /// Says what was not said before.
    fn warn_of(&self, report: &ConfigReport) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in report.warnings().map(ToString::to_string) {
            if !warned.contains(&warning) {
                tracing::warn!("{warning}");
                warned.insert(warning);
            }
        }
    }

    /// Who waits is answered: here where the file cannot be used, by the frontend where all is done.
    fn read(&self, mut replies: Option<Box<dyn ReplySink>>) {
        let mut refuse = |refusal| {
            if let Some(replies) = &mut replies {
                replies.send(CommandReply::Refused(refusal));
            }
        };
        let path = &self.cluster.config.path;
        let (config, mut report) = config::read_reporting(path);
        report.check_groups(users::knows_group);
        self.warn_of(&report);
        match config {
            Some(config) if !report.has_errors() => {
                let (now, then) = (self.cluster.config.slurmctld_port.first, config.slurmctld_port.first);
                if now != then {
                    tracing::warn!(
                        now,
                        then,
                        "SlurmctldPort is another: this controller keeps its port until it is started again"
                    );
                }
                logging::set_scheduler_file(config.sched_log_file.as_deref().map(Path::new));
                logging::set_levels(&self.cluster.log_levels_of(&config, None));
                primary::reconfigured(&config);
                tracing::info!(file = %path.display(), "configuration read again");
                if let Some(Err(why)) = self.accounts.get().map(|accounts| accounts.read_again()) {
                    tracing::error!("the settings of accounting were not changed: {why}");
                }
                let Some(frontend) = self.frontend.get() else { return };
                let changed = ControllerMsg::config_changed(Arc::new(config), replies);
                if let Some(ControllerMsg::Hand { gift: FrontendGift::Replies(mut replies), .. }) =
                    try_tell(frontend, TraceContext::root(), changed)
                {
                    replies.send(CommandReply::Refused(Refusal::RetryAfter { after: CROWDED }));
                }
            }
            _ => {
                let why: Vec<String> = report.errors().map(ToString::to_string).collect();
                tracing::error!("the configuration was not changed: {}", why.join("; "));
                refuse(Refusal::InvalidUpdate(format!("{} cannot be used: {}", path.display(), why.join("; "))));
            }
        }
    }
}

/// Answers from another thread than that of the frontend, which serves everybody: the authority waits for the log.
fn apart(mut replies: Box<dyn ReplySink>, work: impl FnOnce() -> CommandReply + Send + 'static) {
    tokio::task::spawn_blocking(move || replies.send(work()));
}

fn done(outcome: Result<(), Refusal>) -> CommandReply {
    outcome.map_or_else(CommandReply::Refused, |()| CommandReply::Done)
}

impl Host for ThisProcess {
    fn may_be_named(&self, name: &str) -> bool {
        identity::is_name(name)
    }

    fn reconfigure(&self, replies: Box<dyn ReplySink>) {
        let reader = self.reader();
        // Not on the thread of the frontend, which serves everybody.
        tokio::task::spawn_blocking(move || reader.read(Some(replies)));
    }

    fn change_log(&self, change: &LogChange) {
        logging::change(change);
    }

    fn shutdown(&self, mut replies: Box<dyn ReplySink>) {
        replies.send(CommandReply::Done);
        let exit = self.exit.clone();
        // The answer and the agents' orders are on their way in other tasks; they get their turn first.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let _ = exit.send(true);
        });
    }

    fn join_token(&self, lifetime: Duration, node: Option<String>, replies: Box<dyn ReplySink>) {
        let join = Arc::clone(&self.join);
        apart(replies, move || match join.create_token(lifetime, node.as_deref()) {
            Ok(token) => CommandReply::Token(token),
            Err(e) => CommandReply::Refused(internal(&e)),
        });
    }

    fn user_token(&self, config: Arc<Config>, user: String, lifespan: Duration, replies: Box<dyn ReplySink>) {
        apart(replies, move || match tokens::make(&config, user, lifespan) {
            Ok(token) => CommandReply::Token(token),
            Err(error) => {
                tracing::error!(%error, "no token was made");
                CommandReply::Refused(Refusal::NoTokens)
            }
        });
    }

    fn certs(&self, replies: Box<dyn ReplySink>) {
        let trust = Arc::clone(&self.trust);
        apart(replies, move || trust.certs());
    }

    fn revoke_certs(&self, nodes: Vec<String>, done: ReplyTo<Result<usize, Refusal>>) {
        let trust = Arc::clone(&self.trust);
        tokio::task::spawn_blocking(move || done.reply(trust.revoke(&nodes)));
    }

    fn rotate_authority(&self, leave_behind: bool, replies: Box<dyn ReplySink>) {
        let trust = Arc::clone(&self.trust);
        apart(replies, move || done(trust.rotate(leave_behind)));
    }

    fn renew_certs(&self, nodes: Vec<String>, replies: Box<dyn ReplySink>) {
        let trust = Arc::clone(&self.trust);
        apart(replies, move || done(trust.renew_all(&nodes)));
    }

    fn daemons(&self) -> Vec<DaemonInfo> {
        vec![DaemonInfo {
            role: "controller".into(),
            name: self.host.clone(),
            pid: std::process::id(),
            address: self.address.clone(),
        }]
    }

    fn show_config(&self, config: &Config, next_job: JobId) -> Vec<(String, String)> {
        let uid = |name: &str| self.names.uid_called(name);
        let facts = ShowFacts {
            boot_time: self.started,
            next_job_id: next_job.0,
            slurm_uid: uid(&config.slurm_user),
            slurmd_uid: uid(&config.slurmd_user),
            version: garrick_daemon::versions::COMPATIBILITY,
            zone: &system_zone(),
        };
        config::show_config(config, &facts)
    }

    fn administrators(&self) -> Vec<u32> {
        let mut uids = vec![0, users::effective_uid()];
        uids.extend(self.names.uid_called(&self.cluster.config.slurm_user));
        uids.sort_unstable();
        uids.dedup();
        uids
    }

    fn identity(&self) -> (String, String) {
        (self.host.clone(), env!("CARGO_PKG_VERSION").into())
    }
}
