//! What `garrick` does for a cluster and a site: the embedded cluster of one machine (`up`, `down`, `status`, `run`) and a site's
//! files (`init`, `check`, `install`).
//!
//! | module | what it does |
//! |---|---|
//! | [`home`] | where an embedded cluster's files are |
//! | [`conf`] | the `slurm.conf` that is written for it |
//! | [`doors`] | one daemon asked at its own door |
//! | [`processes`] | which of its processes run: started, found, ended |
//! | [`up`], [`down`], [`status`] | start, end, list them |
//! | [`run`] | submit a script and stay with it |
//! | [`follow`] | its output files; the line about its steps is in [`crate::waiting::progress`] |
//! | [`init`], [`check`], [`install`] | keys, configuration check, files of an installation |
//! | [`token`] | how a node joins |
//! | [`why`] | what keeps jobs waiting |
//! | [`words`] | the names of the commands of `garrick` |

pub mod certs;
pub mod check;
pub mod conf;
pub mod doors;
pub mod down;
pub mod follow;
pub mod home;
pub mod init;
pub mod install;
pub mod processes;
pub mod run;
pub mod status;
pub mod token;
pub mod up;
pub mod why;
pub mod words;

use std::io;

/// Why one of these commands could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The command line.
    #[error("{0}")]
    Usage(String),
    /// A file or folder.
    #[error("{doing} {path}: {source}")]
    File {
        /// `cannot write`, `cannot create`, ...
        doing: &'static str,
        /// Which.
        path: String,
        /// Cause.
        source: io::Error,
    },
    /// A program is not where it should be.
    #[error(transparent)]
    Program(#[from] crate::programs::ProgramError),
    /// A daemon did not come to serve.
    #[error("{name} did not start: {why}{log}")]
    Start {
        /// Which.
        name: String,
        /// What happened.
        why: String,
        /// The end of its log.
        log: String,
    },
    /// The cluster does not answer, or refuses.
    #[error("{0}")]
    Cluster(String),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

impl SiteError {
    /// A failure with a file.
    pub fn file(doing: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::File { doing, path, source }
    }
}

impl From<garrick_asking::cluster::ClusterError> for SiteError {
    fn from(error: garrick_asking::cluster::ClusterError) -> Self {
        let mut lines = error.details();
        lines.push(error.to_string());
        Self::Cluster(lines.join("\n"))
    }
}
