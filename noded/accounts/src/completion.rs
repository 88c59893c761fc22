//! Runs of jobs that are over as rows of a table, for `JobCompType=jobcomp/mysql` and its like on PostgreSQL. The table has the
//! columns that Slurm 22.05's has: a site goes on with the one it has. What its position in the controller's log is, is stored
//! with each batch in one transaction: whatever is killed, a row is there once.

use crate::{
    database::{
        Connection, Row, Statement, Value,
        connect::{self, PATIENCE, Server, Watch},
        dialect::{Dialect, Table, There},
    },
    store::StoreError,
};
use garrick_accounts::messages::LogId;
use garrick_events::progress::Position;
use garrick_model::config::storage::Storage;
use std::{borrow::Cow, collections::BTreeMap};
use tokio::time::timeout;

const MYSQL: &str = include_str!("sql/jobcomp_mysql.sql");
const POSTGRES: &str = include_str!("sql/jobcomp_postgres.sql");
/// Bytes of a text in Slurm's table (`TINYTEXT`).
const COLUMN: usize = 255;

/// The key first: a job, its start and its end.
const COLUMNS: [&str; 14] = [
    "jobid",
    "starttime",
    "endtime",
    "uid",
    "user_name",
    "gid",
    "group_name",
    "name",
    "state",
    "partition",
    "timelimit",
    "nodelist",
    "nodecnt",
    "proc_cnt",
];
/// `PARTITION` is a word of its SQL.
const MYSQL_COLUMNS: [&str; 14] = {
    let mut columns = COLUMNS;
    columns[9] = "`partition`";
    columns
};
const POSITIONS: Table = Table {
    name: "jobcomp_positions",
    columns: &["cluster", "log_high", "log_low", "position"],
    key: 1,
    there: There::Replaced,
};

const fn runs(dialect: Dialect) -> Table {
    let columns: &'static [&'static str] = match dialect {
        Dialect::MySql => &MYSQL_COLUMNS,
        Dialect::Sqlite | Dialect::Postgres => &COLUMNS,
    };
    Table { name: "jobcomp_table", columns, key: 3, there: There::Replaced }
}

/// A run. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionRow {
    /// Where in the log it ended.
    pub position: Position,
    /// Job.
    pub job: u32,
    /// Start; of what never ran, its end.
    pub start: i64,
    /// End.
    pub end: i64,
    /// User.
    pub uid: u32,
    /// Its name.
    pub user: String,
    /// Group.
    pub gid: u32,
    /// Its name.
    pub group: String,
    /// Name of the job.
    pub name: String,
    /// Slurm's number of the state.
    pub state: u32,
    /// Partition.
    pub partition: String,
    /// Limit in minutes, or `UNLIMITED`.
    pub limit: String,
    /// Nodes as a host list; empty: it never ran.
    pub nodes: String,
    /// How many.
    pub node_count: u64,
    /// CPUs.
    pub cpus: u64,
}

/// Rows that are read together.
const PAGE: usize = 1000;

impl CompletionRow {
    /// Job, start and end: the key of the table.
    pub fn key(&self) -> [i64; 3] {
        [self.job.into(), self.start, self.end]
    }

    /// One of [`select`]. Slurm's own rows may lack what is empty here.
    fn of(row: &Row) -> Result<Self, StoreError> {
        let number = |column| row.number(column);
        let small = |column| Ok::<u32, sqlx::Error>(u32::try_from(row.number(column)?).unwrap_or(u32::MAX));
        let large = |column| Ok::<u64, sqlx::Error>(u64::try_from(row.number(column)?).unwrap_or(0));
        let text = |column| row.text(column).map(str::to_owned);
        Ok(Self {
            position: Position::default(),
            job: small(0)?,
            start: number(1)?,
            end: number(2)?,
            uid: small(3)?,
            user: text(4)?,
            gid: small(5)?,
            group: text(6)?,
            name: text(7)?,
            state: small(8)?,
            partition: text(9)?,
            limit: text(10)?,
            nodes: text(11)?,
            node_count: large(12)?,
            cpus: large(13)?,
        })
    }

    fn values(&self) -> Vec<Value<'_>> {
        let number = |count: u64| Value::from(i64::try_from(count).unwrap_or(i64::MAX));
        let nodes = Some(Cow::Borrowed(self.nodes.as_str())).filter(|nodes| !nodes.is_empty());
        vec![
            i64::from(self.job).into(),
            self.start.into(),
            self.end.into(),
            i64::from(self.uid).into(),
            short(&self.user).into(),
            i64::from(self.gid).into(),
            short(&self.group).into(),
            short(&self.name).into(),
            i64::from(self.state).into(),
            short(&self.partition).into(),
            short(&self.limit).into(),
            nodes.into(),
            number(self.node_count),
            number(self.cpus),
        ]
    }
}

/// As much of a text as a column takes. PostgreSQL takes no zero byte.
fn short(text: &str) -> &str {
    let text = text.split('\0').next().unwrap_or_default();
    &text[..text.floor_char_boundary(COLUMN)]
}

/// Whose runs they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whence {
    /// `ClusterName`.
    pub cluster: String,
    /// The log that the positions are of.
    pub log: LogId,
}

/// The number of a server's host, and that of the connection there.
type Place = (usize, Option<i64>);

/// The table, on a server.
pub struct CompletionStore {
    server: Server,
    /// With the number of the host; `None`: the server is away, or was not needed yet.
    connection: Option<(Connection, Place)>,
}

impl std::fmt::Debug for CompletionStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionStore").field("server", &self.server.name()).finish_non_exhaustive()
    }
}

impl CompletionStore {
    /// On that server, which need not be there yet. `None`: it is no server.
    ///
    /// # Errors
    /// Files of certificates.
    pub fn of(storage: &Storage) -> Result<Option<Self>, StoreError> {
        Ok(Server::of(storage, Watch::default())?.map(|server| Self { server, connection: None }))
    }

    /// Stores runs, in the order of their positions: those that are not stored yet, all or none.
    ///
    /// # Errors
    /// When they have to be stored again.
    pub async fn put(&mut self, of: &Whence, rows: &[CompletionRow]) -> Result<(), StoreError> {
        let (mut connection, (host, session)) = match self.connection.take() {
            Some(known) => known,
            None => self.connect().await?,
        };
        let done = tokio::select! {
            biased;
            done = put_as_they_go(&mut connection, of, rows) => done,
            () = self.server.until_silent(host, session) => Err(StoreError::Away("no answer".to_owned())),
        };
        match done {
            Err(error) if error.is_lost() => Err(StoreError::Away(format!("{}: {error}", self.server.name()))),
            done => {
                self.connection = Some((connection, (host, session)));
                done
            }
        }
    }

    /// The rows behind that key, as many as are read together; none: there are no more. Those that Slurm wrote are there too. Where there
    /// is no table yet, nothing was recorded.
    ///
    /// # Errors
    /// When the server is away, or does not let us read.
    pub async fn page(&mut self, after: Option<[i64; 3]>) -> Result<Vec<CompletionRow>, StoreError> {
        let (mut connection, (host, session)) = match self.connection.take() {
            Some(known) => known,
            None => {
                let (mut connection, host) = self.server.reach().await?;
                let session = connection.link().session().await?;
                (connection, (host, session))
            }
        };
        let mut link = connection.link();
        let asked = Statement::built(select(link.dialect(), after));
        let read = tokio::select! {
            biased;
            read = link.rows(asked) => read,
            () = self.server.until_silent(host, session) => return Err(StoreError::Away("no answer".to_owned())),
        };
        let rows = match read {
            Err(error) if connect::is_of_no_table(&error) => Vec::new(),
            read => read?,
        };
        self.connection = Some((connection, (host, session)));
        rows.iter().map(CompletionRow::of).collect()
    }

    /// A connection, and where it leads.
    async fn connect(&self) -> Result<(Connection, Place), StoreError> {
        let (mut connection, host) = self.server.reach().await?;
        let made = timeout(PATIENCE, make_tables(&mut connection)).await;
        made.unwrap_or_else(|_| Err(StoreError::Away(format!("{}: no answer", self.server.name()))))?;
        let session = connection.link().session().await?;
        Ok((connection, (host, session)))
    }
}

async fn make_tables(connection: &mut Connection) -> Result<(), StoreError> {
    let mut link = connection.link();
    let tables = match link.dialect() {
        Dialect::MySql => MYSQL,
        Dialect::Sqlite | Dialect::Postgres => POSTGRES,
    };
    for table in tables.split(';').map(str::trim).filter(|table| !table.is_empty()) {
        link.execute(Statement::built(table)).await?;
    }
    Ok(())
}

/// What [`CompletionRow::of`] reads. Slurm's table has numbers of other widths.
fn select(dialect: Dialect, after: Option<[i64; 3]>) -> String {
    let number = match dialect {
        Dialect::MySql => "SIGNED",
        Dialect::Sqlite | Dialect::Postgres => "BIGINT",
    };
    let text = |column: &str| match dialect {
        // Text of a table of Slurm may be in another character set.
        Dialect::MySql => format!("COALESCE(CONVERT({column} USING utf8mb4), '')"),
        Dialect::Sqlite | Dialect::Postgres => format!("COALESCE({column}, '')"),
    };
    let columns = runs(dialect).columns.iter().map(|column| match *column {
        "user_name" | "group_name" | "name" | "partition" | "`partition`" | "timelimit" | "nodelist" => text(column),
        column => format!("CAST({column} AS {number})"),
    });
    let columns: Vec<String> = columns.collect();
    let key = &COLUMNS[..3];
    let behind = after.map(|place| format!(" WHERE {}", dialect.behind(key, &place))).unwrap_or_default();
    format!("SELECT {} FROM jobcomp_table{behind} ORDER BY {} LIMIT {PAGE}", columns.join(", "), key.join(", "))
}

/// Together, or one by one where the table does not take them all.
async fn put_as_they_go(connection: &mut Connection, of: &Whence, rows: &[CompletionRow]) -> Result<(), StoreError> {
    match put(connection, of, rows).await {
        Err(error) if error.is_of_row() => put_each(connection, of, rows).await,
        done => done,
    }
}

/// Rows and position, in one transaction.
async fn put(connection: &mut Connection, of: &Whence, rows: &[CompletionRow]) -> Result<(), StoreError> {
    let Some(last) = rows.last() else { return Ok(()) };
    let mut transaction = connection.begin().await?;
    let mut link = transaction.link();
    let dialect = link.dialect();
    let mut asked = Statement::of("SELECT log_high, log_low, position FROM jobcomp_positions WHERE cluster = ?");
    asked.push(dialect.for_update());
    let (high, low) = (of.log.0.cast_signed(), of.log.1.cast_signed());
    let stored = match link.row(asked.with(of.cluster.as_str())).await? {
        // Positions of another log mean nothing.
        Some(row) if (row.number(0)?, row.number(1)?) == (high, low) => row.number(2)?.cast_unsigned(),
        _ => 0,
    };
    // A statement has each key once: of two runs within a second the last one counts, as in Slurm.
    let new = rows.iter().filter(|row| row.position.0 > stored);
    let new: BTreeMap<_, _> = new.map(|row| ((row.job, row.start, row.end), row.values())).collect();
    link.put(&runs(dialect), new.into_values().collect()).await?;
    if last.position.0 > stored {
        let position = vec![of.cluster.as_str().into(), high.into(), low.into(), last.position.0.cast_signed().into()];
        link.put(&POSITIONS, vec![position]).await?;
    }
    Ok(transaction.commit().await?)
}

/// One by one: a row that the table does not take for what it is holds up no other.
async fn put_each(connection: &mut Connection, of: &Whence, rows: &[CompletionRow]) -> Result<(), StoreError> {
    for row in rows {
        match put(connection, of, std::slice::from_ref(row)).await {
            Err(error) if error.is_of_row() => {
                tracing::error!(job_id = row.job, %error, "the table refuses the record of a job: it is left out");
            }
            done => done?,
        }
    }
    Ok(())
}

impl StoreError {
    /// The database does not take a value of a row: again it would be no better.
    fn is_of_row(&self) -> bool {
        matches!(self, Self::Sql(error) if connect::is_of_value(error))
    }
}

#[cfg(test)]
#[path = "completion_test.rs"]
mod tests;
