//! Where runs that are over are written to.

#[cfg(feature = "kafka")]
use super::kafka::{Kafka, Produced};
use super::{forms::Completed, lua::LuaScript, queue::Waiting, scripts::Scripts};
use garrick_accountant::{
    completion::{CompletionRow, CompletionStore, Whence},
    store::StoreError,
};
use garrick_model::{
    config::{CompletionSettings, CompletionType},
    time::system_zone,
};
use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::Mutex;

/// How long a server may take for one document.
const SERVER: Duration = Duration::from_secs(30);

/// Why nothing can be written at all.
#[derive(Debug, thiserror::Error)]
pub enum SinkSetupError {
    /// This program is one without Kafka.
    #[error("JobCompType=jobcomp/kafka: this program was built without Kafka (cargo build --features kafka)")]
    WithoutKafka,
    /// The database.
    #[error("JobCompType=jobcomp/mysql: {0}")]
    Database(#[from] StoreError),
    /// A thread.
    #[error("JobCompType: cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// Why something was not written; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// A file.
    #[error("{}: {cause}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// A server.
    #[error("{url}: {cause}")]
    Server {
        /// Which, without a password.
        url: String,
        /// Why not.
        cause: String,
    },
    /// Kafka.
    #[error("Kafka: {0}")]
    Kafka(String),
    /// The script in Lua.
    #[error("JobCompType=jobcomp/lua: {0}")]
    Lua(String),
    /// The database.
    #[error(transparent)]
    Database(#[from] StoreError),
}

/// Not all was written.
#[derive(Debug)]
pub struct Unwritten {
    /// So many are, the first ones.
    pub written: usize,
    /// Why the others are not.
    pub cause: SinkError,
}

/// A server for documents.
#[derive(Clone)]
pub struct Server {
    /// Where they are posted to. It may have a password in it.
    url: String,
    /// The same for messages: without the password.
    shown: String,
    /// With the comment.
    comment: bool,
    /// With the script.
    script: bool,
    /// Keeps the connection.
    agent: ureq::Agent,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("url", &self.shown).finish_non_exhaustive()
    }
}

/// Where they are written to.
#[derive(Debug)]
pub enum Sink {
    /// A line of a text file each.
    Text(PathBuf),
    /// A program runs for each.
    Script(Scripts),
    /// A document each, for a search server or whoever takes JSON over HTTP.
    Server(Server),
    /// A message each.
    #[cfg(feature = "kafka")]
    Kafka(Kafka),
    /// A call of a function each.
    Lua(LuaScript),
    /// A row each.
    Database(Box<Mutex<CompletionStore>>),
}

impl Sink {
    /// As the site says; `None`: nothing is written. `folder` is that of `slurm.conf`.
    ///
    /// # Errors
    /// When it cannot be as the site says.
    pub fn of(settings: &CompletionSettings, cluster: &str, folder: &Path) -> Result<Option<Self>, SinkSetupError> {
        let location = settings.location.clone().unwrap_or_default();
        Ok(Some(match settings.kind {
            CompletionType::None => return Ok(None),
            CompletionType::FileText => Self::Text(location.into()),
            CompletionType::Script => Self::Script(Scripts::new(location, settings.script)),
            CompletionType::Elasticsearch => {
                let url = if location.contains("://") { location } else { format!("http://{location}") };
                let config = ureq::Agent::config_builder().timeout_global(Some(SERVER)).build();
                let (comment, script) = (settings.send_comment, settings.send_script);
                let shown = settings.shown_location();
                Self::Server(Server { url, shown, comment, script, agent: config.into() })
            }
            #[cfg(feature = "kafka")]
            CompletionType::Kafka => Self::Kafka(Kafka::start(settings, cluster)?),
            #[cfg(not(feature = "kafka"))]
            CompletionType::Kafka => return Err(SinkSetupError::WithoutKafka),
            CompletionType::Lua => Self::Lua(LuaScript::new(folder, cluster)),
            CompletionType::Database => match CompletionStore::of(&settings.storage)? {
                Some(store) => Self::Database(Box::new(Mutex::new(store))),
                None => return Ok(None),
            },
        }))
    }

    /// Starts of runs are wanted too.
    pub const fn wants_starts(&self) -> bool {
        match self {
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => kafka.wants_starts(),
            _ => false,
        }
    }

    /// Batch scripts are written too.
    pub const fn wants_scripts(&self) -> bool {
        match self {
            Self::Server(server) => server.script,
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => kafka.wants_scripts(),
            Self::Lua(_) => true,
            Self::Text(_) | Self::Script(_) | Self::Database(_) => false,
        }
    }

    /// Writes them for good.
    ///
    /// # Errors
    /// When some have to be written again.
    pub async fn write(&self, runs: &[Arc<Waiting>], of: &Whence) -> Result<(), Unwritten> {
        let none = |cause| Unwritten { written: 0, cause };
        match self {
            Self::Text(path) => append(path, runs).map_err(|cause| none(SinkError::File { path: path.clone(), cause })),
            Self::Script(scripts) => {
                scripts.run(runs).await;
                Ok(())
            }
            Self::Server(server) => server.post_all(runs).await,
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => match kafka.send(runs.iter().map(|waiting| &waiting.run)).await {
                Produced { cause: None, .. } => Ok(()),
                Produced { delivered, cause: Some(cause) } => {
                    Err(Unwritten { written: delivered, cause: SinkError::Kafka(cause) })
                }
            },
            Self::Lua(script) => tell_all(script, runs).await,
            Self::Database(store) => {
                let rows: Vec<CompletionRow> = runs.iter().map(|waiting| waiting.run.row(waiting.position)).collect();
                store.lock().await.put(of, &rows).await.map_err(|error| none(error.into()))
            }
        }
    }
}

/// One after the other, until one is not taken.
async fn tell_all(script: &LuaScript, runs: &[Arc<Waiting>]) -> Result<(), Unwritten> {
    for (written, waiting) in runs.iter().enumerate() {
        let told = script.tell(&waiting.run).await;
        told.map_err(|why| Unwritten { written, cause: SinkError::Lua(why) })?;
    }
    Ok(())
}

/// All or nothing. The file is opened anew each time, so that it can be moved away.
fn append(path: &Path, runs: &[Arc<Waiting>]) -> io::Result<()> {
    let zone = system_zone();
    let lines: String = runs.iter().map(|waiting| waiting.run.line(&zone)).collect();
    let mut file = OpenOptions::new().append(true).create(true).mode(0o644).open(path)?;
    let before = file.metadata()?.len();
    let done = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data());
    // The lines come again: what there is of them now goes.
    if done.is_err() && file.metadata().is_ok_and(|now| now.len() > before) {
        file.set_len(before)?;
    }
    done
}

impl Server {
    /// One after the other, until one is not taken.
    async fn post_all(&self, runs: &[Arc<Waiting>]) -> Result<(), Unwritten> {
        for (written, waiting) in runs.iter().enumerate() {
            self.post(&waiting.run).await.map_err(|cause| Unwritten { written, cause })?;
        }
        Ok(())
    }

    async fn post(&self, run: &Completed) -> Result<(), SinkError> {
        let (agent, to) = (self.agent.clone(), self.url.clone());
        let document = run.document(self.comment, self.script).to_string();
        let posted = tokio::task::spawn_blocking(move || {
            agent.post(&to).header("Content-Type", "application/json").send(document).map(|_| ())
        });
        let outcome = posted.await.map_err(|e| e.to_string()).and_then(|sent| match sent {
            Ok(()) => Ok(()),
            // The document is refused for what it is: again it would be no better.
            Err(ureq::Error::StatusCode(code @ (400 | 413 | 422))) => {
                tracing::error!(url = self.shown, code, "the server refuses the record of a job: it is left out");
                Ok(())
            }
            Err(error) => Err(error.to_string().replace(&self.url, &self.shown)),
        });
        outcome.map_err(|cause| SinkError::Server { url: self.shown.clone(), cause })
    }
}
