//! Where runs that are over are written to.

use super::forms::Completed;
use crate::scripts;
use garrick_model::{
    config::{CompletionSettings, CompletionType},
    site_program::{Moment, SiteProgram},
    time::system_zone,
};
use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    time::Duration,
};

/// How long a script may take for one job, before it is killed.
const SCRIPT: Duration = Duration::from_secs(300);
/// How long a server may take for one document.
const SERVER: Duration = Duration::from_secs(30);

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
        /// Which.
        url: String,
        /// Why not.
        cause: String,
    },
}

/// Not all was written.
#[derive(Debug)]
pub struct Unwritten {
    /// So many are, the first ones.
    pub written: usize,
    /// Why the others are not.
    pub cause: SinkError,
}

/// Where they are written to.
#[derive(Clone, Debug)]
pub enum Sink {
    /// A line of a text file each.
    Text(PathBuf),
    /// A program runs for each.
    Script(String),
    /// A document each, for a search server or whoever takes JSON over HTTP.
    Server {
        /// Where it is posted to.
        url: String,
        /// With the comment.
        comment: bool,
        /// With the script.
        script: bool,
        /// Keeps the connection.
        agent: ureq::Agent,
    },
}

impl Sink {
    /// As the site says; `None`: nothing is written.
    pub fn of(settings: &CompletionSettings) -> Option<Self> {
        let location = settings.location.clone()?;
        match settings.kind {
            CompletionType::None => None,
            CompletionType::FileText => Some(Self::Text(location.into())),
            CompletionType::Script => Some(Self::Script(location)),
            CompletionType::Elasticsearch => {
                let url = if location.contains("://") { location } else { format!("http://{location}") };
                let config = ureq::Agent::config_builder().timeout_global(Some(SERVER)).build();
                let (comment, script) = (settings.send_comment, settings.send_script);
                Some(Self::Server { url, comment, script, agent: config.into() })
            }
        }
    }

    /// Writes them for good.
    ///
    /// # Errors
    /// When some have to be written again.
    pub async fn write(&self, runs: &[Completed]) -> Result<(), Unwritten> {
        match self {
            Self::Text(path) => append(path, runs)
                .map_err(|cause| Unwritten { written: 0, cause: SinkError::File { path: path.clone(), cause } }),
            Self::Script(program) => {
                for run in runs {
                    run_script(program, run).await;
                }
                Ok(())
            }
            Self::Server { url, comment, script, agent } => {
                for (written, run) in runs.iter().enumerate() {
                    let document = run.document(*comment, *script).to_string();
                    post(agent, url, document).await.map_err(|cause| Unwritten { written, cause })?;
                }
                Ok(())
            }
        }
    }
}

/// The file is opened anew each time, so that it can be moved away.
fn append(path: &PathBuf, runs: &[Completed]) -> io::Result<()> {
    let zone = system_zone();
    let lines: String = runs.iter().map(|run| run.line(&zone)).collect();
    let mut file = OpenOptions::new().append(true).create(true).mode(0o644).open(path)?;
    file.write_all(lines.as_bytes())?;
    file.sync_data()
}

/// One that fails is not run again: it may have done half of its work.
async fn run_script(program: &str, run: &Completed) {
    let program = SiteProgram {
        moment: Moment::JobCompletion,
        programs: vec![program.to_owned()],
        arguments: Vec::new(),
        environment: run.variables(),
        limit: Some(SCRIPT),
    };
    if let Err(error) = scripts::run(&program).await {
        tracing::error!(job_id = run.row.job.0, "{error}");
    }
}

async fn post(agent: &ureq::Agent, url: &str, document: String) -> Result<(), SinkError> {
    let (agent, to) = (agent.clone(), url.to_owned());
    let posted = tokio::task::spawn_blocking(move || {
        agent.post(&to).header("Content-Type", "application/json").send(document).map(|_| ())
    });
    let outcome = posted.await.map_err(|e| e.to_string()).and_then(|sent| match sent {
        Ok(()) => Ok(()),
        // The document is refused for what it is: again it would be no better.
        Err(ureq::Error::StatusCode(code @ (400 | 413 | 422))) => {
            tracing::error!(url, code, "the server refuses the record of a job: it is left out");
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    });
    outcome.map_err(|cause| SinkError::Server { url: url.to_owned(), cause })
}
