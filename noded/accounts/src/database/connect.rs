//! Connecting: a file of SQLite, or a server with its backup. One connection writes, and on a server it holds a lock of the database
//! for as long as it is there: a second service that is given the same database waits. What writes is always what holds the lock,
//! so a service that lost its connection cannot come in between.

use super::{Connection, Link, Reader, Statement, error::StoreError, password::PasswordScript};
use garrick_kernel::{files, users};
use garrick_model::config::storage::{Password, ServerAddress, Storage, StorageKind, StorageTls};
use sqlx::{
    Connection as _, MySqlPool, PgPool, SqliteConnection, SqlitePool,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
    mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlPoolOptions, MySqlSslMode},
    postgres::{PgConnectOptions, PgPoolOptions, PgSslMode},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::{
    fs,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::timeout;

/// Connections that read.
const READERS: u32 = 4;
/// Another process that has the file (a copy is being made) is waited for so long.
const BUSY: Duration = Duration::from_secs(30);
/// A server that takes longer to answer is not there.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// So many looks in a row that find nobody mean that a server is gone.
const FAILURES: u32 = 3;
/// Of PostgreSQL's locks, which are numbers: `garrick` and a version.
const LOCK: i64 = 0x0067_6172_7269_636b;
/// A service whose host is gone loses its lock after a minute.
const KEEPALIVE: [(&str, &str); 3] =
    [("tcp_keepalives_idle", "30"), ("tcp_keepalives_interval", "10"), ("tcp_keepalives_count", "3")];

const FILE: [(i64, &str, &str); 4] = [
    (1, "jobs and steps", include_str!("../sql/sqlite/0001.sql")),
    (2, "accounts, users, associations, QOS", include_str!("../sql/sqlite/0002.sql")),
    (3, "events, reservations", include_str!("../sql/sqlite/0003.sql")),
    (4, "jobs by name, archives", include_str!("../sql/sqlite/0004.sql")),
];
const POSTGRES: [(i64, &str, &str); 2] = [
    (1, "all tables", include_str!("../sql/postgres.sql")),
    (2, "jobs by name, archives", include_str!("../sql/postgres_0002.sql")),
];
const MYSQL: [(i64, &str, &str); 2] = [
    (1, "all tables", include_str!("../sql/mysql.sql")),
    (2, "jobs by name, archives", include_str!("../sql/mysql_0002.sql")),
];

fn migrator(all: &[(i64, &'static str, &'static str)]) -> Migrator {
    let migration = |(version, what, sql): &(i64, &'static str, &'static str)| {
        Migration::new(*version, (*what).into(), MigrationType::Simple, sqlx::SqlSafeStr::into_sql_str(*sql), false)
    };
    Migrator::with_migrations(all.iter().map(migration).collect())
}

/// Connections for questions.
#[derive(Clone)]
pub(crate) enum Readers {
    Sqlite(SqlitePool),
    Postgres(PgPool),
    MySql(MySqlPool),
}

impl Readers {
    pub(crate) async fn one(&self) -> Result<Reader, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(pool) => Reader::Sqlite(pool.acquire().await?),
            Self::Postgres(pool) => Reader::Postgres(pool.acquire().await?),
            Self::MySql(pool) => Reader::MySql(pool.acquire().await?),
        })
    }
}

/// Opens the database file, made if it is not there: readable for this process's user only, in a folder for him only.
pub(crate) async fn open_file(path: &Path) -> Result<(Connection, Readers), StoreError> {
    if let Some(folder) = path.parent() {
        files::create_folder(folder, 0o700)?;
    }
    let made = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    made.map_err(|cause| StoreError::Create { path: path.to_owned(), cause })?;
    files::keep_private(path)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        // A controller forgets what is answered: it has to be on disk.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    migrator(&FILE).run(&mut connection).await?;
    let readers =
        SqlitePoolOptions::new().max_connections(READERS).min_connections(0).connect_lazy_with(options.read_only(true));
    Ok((Connection::Sqlite(connection), Readers::Sqlite(readers)))
}

/// Opens a database file with the tables of an earlier version.
#[cfg(test)]
pub(crate) async fn open_file_as_of(path: &Path, version: usize) -> Result<Connection, StoreError> {
    if let Some(folder) = path.parent() {
        files::create_folder(folder, 0o700)?;
    }
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    migrator(&FILE[..version]).run(&mut connection).await?;
    Ok(Connection::Sqlite(connection))
}

/// A database on a server.
pub(crate) struct Server {
    /// The server, and its backup.
    hosts: Vec<Host>,
    /// Who knows the password where it is not written.
    script: Option<PasswordScript>,
    /// While something takes long.
    pub(crate) watch: Watch,
}

/// How it is looked whether a server is there, while something takes long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// Between two looks.
    pub(crate) every: Duration,
    /// One that answers later is not there.
    pub(crate) patience: Duration,
}

impl Default for Watch {
    fn default() -> Self {
        Self { every: Duration::from_secs(20), patience: PATIENCE }
    }
}

struct Host {
    /// For messages.
    name: String,
    options: Options,
}

enum Options {
    Postgres(PgConnectOptions),
    MySql(MySqlConnectOptions),
}

impl Server {
    /// That of the settings; `None`: it is a file.
    pub(crate) fn of(storage: &Storage, watch: Watch) -> Result<Option<Self>, StoreError> {
        let authorities = authorities(&storage.tls)?;
        let host = |address: &ServerAddress| {
            let (kind, options) = match storage.kind {
                StorageKind::File => return None,
                StorageKind::Postgres => ("PostgreSQL", Options::Postgres(postgres(storage, address, &authorities))),
                StorageKind::MySql => ("MySQL", Options::MySql(mysql(storage, address, &authorities))),
            };
            let port = match address {
                ServerAddress::Host(_) => format!(":{}", storage.port()),
                ServerAddress::Socket(_) => String::new(),
            };
            Some(Host { name: format!("{kind} {} at {address}{port}", storage.database()), options })
        };
        let hosts: Vec<Host> =
            [Some(&storage.host), storage.backup.as_ref()].into_iter().flatten().filter_map(host).collect();
        let script = storage.password_script.clone().map(PasswordScript::new);
        Ok((!hosts.is_empty()).then_some(Self { hosts, script, watch }))
    }

    /// Connections for questions to the host of that number.
    pub(crate) fn readers(&self, host: usize) -> Readers {
        match self.hosts[host.min(self.hosts.len() - 1)].options.with(self.told()) {
            Options::Postgres(options) => Readers::Postgres(
                PgPoolOptions::new()
                    .max_connections(READERS)
                    .acquire_timeout(2 * self.watch.patience)
                    .connect_lazy_with(options),
            ),
            Options::MySql(options) => Readers::MySql(
                MySqlPoolOptions::new()
                    .max_connections(READERS)
                    .acquire_timeout(2 * self.watch.patience)
                    .connect_lazy_with(options),
            ),
        }
    }

    /// The password that its program told last.
    fn told(&self) -> Option<Password> {
        self.script.as_ref().and_then(PasswordScript::told)
    }

    /// For messages.
    pub(crate) fn name(&self) -> &str {
        &self.hosts[0].name
    }

    /// Waits until the host of that number does not answer any more, or knows nothing of what it was asked over the connection that has
    /// that number there: for somebody who waits for an answer. New connections are tried: what is asked over one that is there would
    /// wait too. A server that works on an answer is waited for however long it takes.
    pub(crate) async fn until_silent(&self, host: usize, session: Option<i64>) {
        let host = &self.hosts[host.min(self.hosts.len() - 1)];
        let mut failures = 0;
        while failures < FAILURES {
            tokio::time::sleep(self.watch.every).await;
            let looked = timeout(self.watch.patience, async {
                let mut connection = host.connect(self.told()).await?;
                match session {
                    Some(session) => doing(&mut connection.link(), session).await,
                    None => Ok(Doing::Works),
                }
            });
            match looked.await {
                // It was started anew, or ended the connection.
                Ok(Ok(Doing::Gone)) => return,
                // Nothing came of what was asked since the last look.
                Ok(Ok(Doing::Waits(idle))) if idle >= self.watch.every => failures += 1,
                // It may have too many connections.
                Ok(Ok(_) | Err(sqlx::Error::Database(_))) => failures = 0,
                _ => failures += 1,
            }
        }
    }

    /// Connects to write: to the first host that answers, which has that number. Its tables are as this program has them.
    pub(crate) async fn connect(&self) -> Result<(Connection, usize), StoreError> {
        let (mut connection, number) = self.reach().await?;
        let name = &self.hosts[number].name;
        let owned = timeout(self.watch.patience, own(&mut connection.link(), name)).await;
        owned.unwrap_or_else(|_| Err(StoreError::Away(format!("{name}: no answer"))))?;
        prepare(&mut connection).await?;
        Ok((connection, number))
    }

    /// Connects to the first host that answers, which has that number.
    pub(crate) async fn reach(&self) -> Result<(Connection, usize), StoreError> {
        if let Some(script) = &self.script {
            script.ask().await.map_err(|error| StoreError::Away(error.to_string()))?;
        }
        let mut failures = Vec::new();
        for (number, host) in self.hosts.iter().enumerate() {
            let patience = self.watch.patience;
            match timeout(patience, host.connect(self.told())).await {
                Ok(Ok(connection)) => return Ok((connection, number)),
                Ok(Err(e)) if is_refusal(&e) => {
                    return Err(StoreError::Refused { server: host.name.clone(), cause: e });
                }
                Ok(Err(e)) => failures.push(format!("{}: {e}", host.name)),
                Err(_) => failures.push(format!("{}: no answer within {} s", host.name, patience.as_secs())),
            }
        }
        Err(StoreError::Away(failures.join("; ")))
    }
}

impl Options {
    /// With that password, if there is one.
    fn with(&self, password: Option<Password>) -> Self {
        match (self, password) {
            (Self::Postgres(options), Some(password)) => Self::Postgres(options.clone().password(password.reveal())),
            (Self::MySql(options), Some(password)) => Self::MySql(options.clone().password(password.reveal())),
            (Self::Postgres(options), None) => Self::Postgres(options.clone()),
            (Self::MySql(options), None) => Self::MySql(options.clone()),
        }
    }
}

impl Host {
    async fn connect(&self, password: Option<Password>) -> Result<Connection, sqlx::Error> {
        Ok(match self.options.with(password) {
            Options::Postgres(options) => Connection::Postgres(sqlx::PgConnection::connect_with(&options).await?),
            Options::MySql(options) => Connection::MySql(sqlx::MySqlConnection::connect_with(&options).await?),
        })
    }
}

/// What a server does for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// There is no such connection.
    Gone,
    /// It has been waiting for so long to be asked something.
    Waits(Duration),
    /// What was asked last.
    Works,
}

/// Asks what a server does for the connection that has that number there.
async fn doing(link: &mut Link<'_>, session: i64) -> Result<Doing, sqlx::Error> {
    let asked = match link {
        Link::Sqlite(_) => return Ok(Doing::Works),
        Link::Postgres(_) => {
            "SELECT CASE WHEN state LIKE 'idle%' THEN \
             CAST(EXTRACT(EPOCH FROM clock_timestamp() - state_change) * 1000 AS BIGINT) END \
             FROM pg_stat_activity WHERE pid = ?"
        }
        Link::MySql(_) => {
            "SELECT CASE WHEN COMMAND = 'Sleep' THEN CAST(TIME AS SIGNED) * 1000 END \
             FROM information_schema.PROCESSLIST WHERE ID = ?"
        }
    };
    let Some(row) = link.row(Statement::of(asked).with(session)).await? else { return Ok(Doing::Gone) };
    let idle = row.maybe(0)?.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    Ok(idle.map_or(Doing::Works, Doing::Waits))
}

/// Only one service writes to a database: the one whose connection has its lock.
async fn own(link: &mut Link<'_>, server: &str) -> Result<(), StoreError> {
    let lock = match link {
        Link::Sqlite(_) => return Ok(()),
        Link::Postgres(_) => {
            let lock = "SELECT CASE WHEN pg_try_advisory_lock(?) THEN 1::BIGINT ELSE 0::BIGINT END";
            Statement::of(lock).with(LOCK)
        }
        // Names of locks are those of the whole server. A service whose host is gone loses its lock after a minute.
        Link::MySql(_) => Statement::of("SELECT GET_LOCK(CONCAT('garrick.', MD5(DATABASE())), 0)"),
    };
    if matches!(link, Link::MySql(_)) {
        link.execute(Statement::of("SET SESSION wait_timeout = 60")).await?;
    }
    let taken = || StoreError::Away(format!("{server}: another slurmdbd works with this database"));
    match link.row(lock).await?.map(|row| row.maybe(0)).transpose()?.flatten() {
        Some(1) => {}
        _ => return Err(taken()),
    }
    if matches!(link, Link::Postgres(_)) {
        let utf8 = Statement::of("SELECT 1::BIGINT WHERE current_setting('server_encoding') = 'UTF8'");
        link.row(utf8).await?.ok_or_else(|| StoreError::Encoding(server.to_owned()))?;
    }
    Ok(())
}

/// Brings its tables to this program's version.
async fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    match connection {
        Connection::Sqlite(one) => migrator(&FILE).run(one).await?,
        Connection::Postgres(one) => migrator(&POSTGRES).run(one).await?,
        Connection::MySql(one) => {
            let mut interrupted = 0;
            loop {
                match migrator(&MYSQL).run(&mut *one).await {
                    // It was interrupted. Nothing of it is undone there, and it may be begun again.
                    Err(MigrateError::Dirty(version)) if interrupted < MYSQL.len() => {
                        interrupted += 1;
                        let again = Statement::of("DELETE FROM _sqlx_migrations WHERE version = ? AND success = FALSE");
                        Link::MySql(&mut *one).execute(again.with(version)).await?;
                    }
                    done => break done?,
                }
            }
        }
    }
    Ok(())
}

/// The user that the service runs as, where none is named (slurmdbd.conf(5)).
fn user(storage: &Storage) -> String {
    storage.user.clone().unwrap_or_else(|| users::user_name(users::effective_uid()))
}

fn postgres(storage: &Storage, address: &ServerAddress, authorities: &Option<Vec<u8>>) -> PgConnectOptions {
    let mut options = PgConnectOptions::new_without_pgpass()
        .port(storage.port())
        .username(&user(storage))
        .database(storage.database())
        .application_name("slurmdbd")
        .ssl_mode(PgSslMode::Prefer)
        .options(KEEPALIVE);
    options = match address {
        ServerAddress::Host(host) => options.host(host),
        ServerAddress::Socket(folder) => options.socket(folder),
    };
    if let Some(password) = &storage.password {
        options = options.password(password.reveal());
    }
    if let Some(authorities) = authorities {
        options = options.ssl_mode(PgSslMode::VerifyFull).ssl_root_cert_from_pem(authorities.clone());
    }
    if let (Some(certificate), Some(key)) = (&storage.tls.certificate, &storage.tls.key) {
        options = options.ssl_client_cert(certificate).ssl_client_key(key);
    }
    options
}

fn mysql(storage: &Storage, address: &ServerAddress, authorities: &Option<Vec<u8>>) -> MySqlConnectOptions {
    let mut options =
        MySqlConnectOptions::new().port(storage.port()).username(&user(storage)).database(storage.database());
    let is_here = matches!(address, ServerAddress::Socket(_));
    options = match address {
        ServerAddress::Host(host) => options.host(host),
        ServerAddress::Socket(socket) => options.socket(socket),
    };
    if let Some(password) = &storage.password {
        options = options.password(password.reveal());
    }
    if let Some(authorities) = authorities.as_ref().filter(|_| !is_here) {
        options = options.ssl_mode(MySqlSslMode::VerifyIdentity).ssl_ca_from_pem(authorities.clone());
    }
    if let (Some(certificate), Some(key)) = (&storage.tls.certificate, &storage.tls.key) {
        options = options.ssl_client_cert(certificate).ssl_client_key(key);
    }
    options
}

/// Certificates of all who may sign those of servers.
fn authorities(tls: &StorageTls) -> Result<Option<Vec<u8>>, StoreError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |cause| StoreError::Certificates { path, cause }
    };
    let mut files: Vec<PathBuf> = tls.authority.iter().cloned().collect();
    if let Some(folder) = &tls.authorities {
        let found = fs::read_dir(folder).map_err(unreadable(folder))?;
        let mut found: Vec<PathBuf> = found.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        found.sort();
        files.append(&mut found);
    }
    let mut all = Vec::new();
    for file in &files {
        all.append(&mut fs::read(file).map_err(unreadable(file))?);
        all.push(b'\n');
    }
    Ok((tls.authority.is_some() || tls.authorities.is_some()).then_some(all))
}

/// The connection is lost, or its server cannot do now what it could before: it is tried again later.
pub(crate) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => match error.try_downcast_ref::<MySqlDatabaseError>() {
            // Too many connections, going down, no room (1021, 1114), locks (1205, 1213), killed, read-only for now.
            Some(of_mysql) => {
                matches!(of_mysql.number(), 1021 | 1040 | 1053 | 1114 | 1205 | 1213 | 1290 | 1792 | 1836 | 1927)
            }
            // Classes of connections, deadlocks, resources and operators, and a standby (Appendix A of PostgreSQL's manual).
            None => error.code().is_some_and(|code| {
                ["08", "40", "53", "57P"].iter().any(|class| code.starts_with(class)) || code == "25006"
            }),
        },
        _ => false,
    }
}

/// A value is not one that its column takes: too long, out of range, or of characters that the column does not have.
pub(crate) fn is_of_value(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    match error.try_downcast_ref::<MySqlDatabaseError>() {
        Some(of_mysql) => matches!(of_mysql.number(), 1264 | 1265 | 1292 | 1366 | 1406),
        // Data exceptions (Appendix A of PostgreSQL's manual).
        None => error.code().is_some_and(|code| code.starts_with("22")),
    }
}

/// There is no such table.
pub(crate) fn is_of_no_table(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    match error.try_downcast_ref::<MySqlDatabaseError>() {
        Some(of_mysql) => of_mysql.number() == 1146,
        // Undefined table (Appendix A of PostgreSQL's manual).
        None => error.code().is_some_and(|code| code == "42P01"),
    }
}

/// The server is there and does not want us, or has no such database: waiting would not help.
fn is_refusal(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Configuration(_)) || matches!(error, sqlx::Error::Database(_)) && !is_lost(error)
}
