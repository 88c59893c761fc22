//! The database of a run: a file of SQLite, or a server that is started for it and ended with it; and the programs with which people
//! ask it by hand.

use crate::minibatch::inside::Fallible;
use garrick_accountant::store::Store;
use garrick_database_servers::{PASSWORD, Program, Server, USER};
use garrick_model::config::{slurmdbd::DbdConfig, storage::Storage};
use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

/// The name of the database on a server.
const NAME: &str = "records";
/// A database that is not free by then never will be.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 3] = [Self::Sqlite, Self::Postgres, Self::MariaDb];

    /// As it is named on a command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgresql",
            Self::MariaDb => "mariadb",
        }
    }

    /// By its word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// A database. A server ends when the last one that has it is gone.
#[derive(Clone, Debug)]
pub struct Database {
    /// Which.
    pub kind: Kind,
    /// Where the file is, unless it is a server's.
    file: PathBuf,
    /// The server.
    pub server: Option<Arc<Server>>,
}

impl Database {
    /// Makes one; a file of SQLite in that folder, when it is first opened.
    pub fn make(folder: &Path, kind: Kind) -> Fallible<Self> {
        let program = match kind {
            Kind::Sqlite => None,
            Kind::Postgres => Some(Program::Postgres),
            Kind::MariaDb => Some(Program::MariaDb),
        };
        let server = match program {
            None => None,
            Some(program) => {
                let server = Server::start(program).ok_or_else(|| format!("{program:?} is not installed"))?;
                server.create_database(NAME);
                Some(Arc::new(server))
            }
        };
        Ok(Self { kind, file: folder.join("accounting/accounting.db"), server })
    }

    /// Lines of `slurmdbd.conf` that say where it is. A server is reached by its socket: other network namespaces have that too.
    pub fn lines(&self) -> String {
        let of_server = |kind: &str, server: &Server| {
            format!(
                "StorageType=accounting_storage/{kind}\nStorageHost=unix:{}\nStoragePort={}\nStorageUser={USER}\n\
                 StoragePass={PASSWORD}\nStorageLoc={NAME}\n",
                server.socket().display(),
                server.port
            )
        };
        match (self.kind, &self.server) {
            (Kind::Postgres, Some(server)) => of_server("postgresql", server),
            (Kind::MariaDb, Some(server)) => of_server("mysql", server),
            _ => format!("StorageType=accounting_storage/sqlite\nStorageLoc={}\n", self.file.display()),
        }
    }

    /// SQL by hand: statements for the database's own program.
    pub fn by_hand(&self, statements: &[String]) -> Command {
        let mut command = match &self.server {
            Some(server) if self.kind == Kind::Postgres => {
                let mut psql = Command::new("psql");
                psql.args([
                    "-X",
                    "-q",
                    "-A",
                    "-t",
                    "-v",
                    "ON_ERROR_STOP=1",
                    "-v",
                    "FETCH_COUNT=1000",
                    "-U",
                    USER,
                    "-d",
                    NAME,
                ]);
                psql.arg("-h").arg(server.socket()).args(["-p", &server.port.to_string()]);
                for sql in statements {
                    psql.arg("-c").arg(sql);
                }
                psql.env("PGPASSWORD", PASSWORD);
                psql
            }
            Some(server) => {
                let mut client = Command::new("mariadb");
                client
                    .arg("--no-defaults")
                    .arg("-S")
                    .arg(server.socket())
                    .args(["-u", USER, "-N", "-B", "--quick", NAME]);
                client.arg(format!("-p{PASSWORD}")).args(["-e", &statements.join("; ")]);
                client
            }
            None => {
                // The service may be writing.
                let mut sqlite3 = Command::new("sqlite3");
                sqlite3.args(["-batch", "-bail", "-cmd", ".timeout 60000"]).arg(&self.file).arg(statements.join("; "));
                sqlite3
            }
        };
        command.stdin(Stdio::null());
        command
    }

    /// The answer to a statement, as text.
    pub fn sql(&self, statement: &str) -> Fallible<String> {
        Ok(crate::minibatch::cluster::run(&mut self.by_hand(&[statement.to_owned()]))?.trim().to_owned())
    }

    /// Is the program there with which it is asked by hand?
    pub fn has_client(&self) -> bool {
        let name = match self.kind {
            Kind::Sqlite => "sqlite3",
            Kind::Postgres => "psql",
            Kind::MariaDb => "mariadb",
        };
        Path::new("/usr/bin").join(name).exists()
    }

    /// Bytes of a table with its indices.
    pub fn bytes_of(&self, table: &str) -> Fallible<u64> {
        let sql = match self.kind {
            Kind::Sqlite => format!(
                "SELECT SUM(pgsize) FROM dbstat WHERE name IN (SELECT name FROM sqlite_master WHERE tbl_name = '{table}')"
            ),
            Kind::Postgres => format!("SELECT pg_total_relation_size('{table}')"),
            Kind::MariaDb => format!(
                "SELECT data_length + index_length FROM information_schema.tables \
                 WHERE table_schema = '{NAME}' AND table_name = '{table}'"
            ),
        };
        Ok(self.sql(&sql)?.parse()?)
    }
}

/// Opens the records. A server drops the lock of a service that has ended in its own time.
pub async fn open(storage: &Storage) -> Fallible<Store> {
    let (store, began) = (Store::open(storage).await?, Instant::now());
    while let Err(error) = store.ready().await {
        if began.elapsed() > PATIENCE {
            return Err(error.into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(store)
}

/// Writes a `slurmdbd.conf`, which may have a password, readable for its owner only.
pub fn write_settings(path: &Path, text: &str) -> std::io::Result<()> {
    // Somebody else's file is not written on.
    let _ = fs::remove_file(path);
    File::options().write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}

/// Where records are, by a `slurmdbd.conf`.
pub fn storage(settings: &Path) -> Fallible<Storage> {
    let (config, report) = DbdConfig::read(settings);
    Ok(config.ok_or_else(|| report.to_string())?.storage)
}
