//! What a database, or its rows, may fail of.

use super::connect;
use garrick_events::progress::Position;
use garrick_kernel::files::FileError;
use std::path::PathBuf;

/// The database failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Its folder or file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file could not be made.
    #[error("cannot create {}: {cause}", path.display())]
    Create {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// Who signs certificates of servers is not known.
    #[error("cannot read {}: {cause}", path.display())]
    Certificates {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// Its server cannot be used now. It is tried again.
    #[error("the database is away: {0}")]
    Away(String),
    /// Its server refuses this service.
    #[error("{server} refuses: {cause}")]
    Refused {
        /// Which.
        server: String,
        /// What it says.
        cause: sqlx::Error,
    },
    /// Names of all users could not be stored.
    #[error("{0} has to be created with ENCODING 'UTF8'")]
    Encoding(String),
    /// A statement.
    #[error("the database: {0}")]
    Sql(#[from] sqlx::Error),
    /// It is of a later version, or was changed.
    #[error("the tables of the database: {0}")]
    Schema(#[from] sqlx::migrate::MigrateError),
    /// A row cannot be read.
    #[error("a row of the database cannot be read: {0}")]
    Row(String),
    /// Events are missing in between.
    #[error("events come after {after}, and {stored} is stored")]
    Gap {
        /// The batch follows this position.
        after: Position,
        /// What is stored.
        stored: Position,
    },
    /// What is old was not archived: it is not deleted.
    #[error("{0}")]
    NotArchived(String),
    /// The controller has not said which log it is, or another one took its place.
    #[error("cluster {0} is fed from another log now")]
    OtherLog(String),
}

impl StoreError {
    /// The database fails, not what is asked of it.
    pub const fn is_of_database(&self) -> bool {
        matches!(self, Self::File(_) | Self::Away(_) | Self::Refused { .. } | Self::Sql(_) | Self::Schema(_))
    }

    /// The connection is not to be used any more.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Away(_) => true,
            Self::Sql(error) => connect::is_lost(error),
            Self::Schema(sqlx::migrate::MigrateError::Execute(error)) => connect::is_lost(error),
            _ => false,
        }
    }
}
