//! One way to speak with SQLite, PostgreSQL and MariaDB (or MySQL). What differs is in [`dialect`], connecting in [`connect`].
//!
//! sqlx's own `Any` copies each value of each row into a form of its own, and leaves placeholders to its callers. Here a row stays
//! what the database's driver made of it, and columns are numbers of 64 bits, text or bytes in all three.

pub(crate) mod connect;
pub mod dialect;
pub mod error;
mod password;

use dialect::{Dialect, Table};
use sqlx::{
    Arguments, AssertSqlSafe, Connection as _, Encode, MySql, MySqlConnection, PgConnection, Postgres, Row as _,
    Sqlite, SqliteConnection, Type, mysql::MySqlRow, pool::PoolConnection, postgres::PgRow, sqlite::SqliteRow,
};
use std::{borrow::Cow, fmt::Display, time::Duration};

/// A statement of a database server that has not ended by then has lost its connection: the slowest ones delete a thousand jobs.
const LONGEST: Duration = Duration::from_secs(600);
/// Rows of one statement, the most that fit first: few forms, so that prepared statements are used again.
const AT_ONCE: [usize; 3] = [64, 8, 1];
/// Bytes of the bodies of such rows. A server takes only so much at a time (`max_allowed_packet`: 16 MiB).
const BYTES_AT_ONCE: usize = 1 << 20;

/// A value of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Value<'v> {
    Number(Option<i64>),
    Text(Option<Cow<'v, str>>),
    Bytes(Cow<'v, [u8]>),
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(number: Option<i64>) -> Self {
        Self::Number(number)
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(text: &'v str) -> Self {
        Self::Text(Some(text.into()))
    }
}

impl<'v> From<Option<Cow<'v, str>>> for Value<'v> {
    fn from(text: Option<Cow<'v, str>>) -> Self {
        Self::Text(text)
    }
}

impl<'v> From<&'v [u8]> for Value<'v> {
    fn from(bytes: &'v [u8]) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl Value<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Number(_) => 8,
            Self::Text(text) => text.as_ref().map_or(0, |text| text.len()),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// SQL with `?` for its values. It never has a value in its text that is no number.
#[derive(Clone, Debug)]
pub(crate) struct Statement<'v> {
    sql: Cow<'static, str>,
    values: Vec<Value<'v>>,
    /// It comes again in this form: what the database makes of it is kept.
    again: bool,
}

impl<'v> Statement<'v> {
    pub(crate) const fn of(sql: &'static str) -> Self {
        Self { sql: Cow::Borrowed(sql), values: Vec::new(), again: true }
    }

    /// One that is put together for once.
    pub(crate) fn built(sql: impl Into<String>) -> Self {
        Self { sql: Cow::Owned(sql.into()), values: Vec::new(), again: false }
    }

    pub(crate) fn with(mut self, value: impl Into<Value<'v>>) -> Self {
        self.values.push(value.into());
        self
    }

    pub(crate) fn push(&mut self, sql: impl Display) -> &mut Self {
        use std::fmt::Write as _;
        write!(self.sql.to_mut(), "{sql}").expect("a string takes everything");
        self
    }

    /// SQL that ends with a value.
    pub(crate) fn push_with(&mut self, sql: impl Display, value: impl Into<Value<'v>>) -> &mut Self {
        self.push(sql).push('?');
        self.values.push(value.into());
        self
    }
}

/// Values as a driver takes them.
fn arguments<A: Arguments>(values: Vec<Value<'_>>) -> Result<A, sqlx::Error>
where
    Option<i64>: for<'q> Encode<'q, A::Database> + Type<A::Database>,
    Option<String>: for<'q> Encode<'q, A::Database> + Type<A::Database>,
    Vec<u8>: for<'q> Encode<'q, A::Database> + Type<A::Database>,
{
    let mut arguments = A::default();
    arguments.reserve(values.len(), values.iter().map(Value::bytes).sum());
    for value in values {
        match value {
            Value::Number(number) => arguments.add(number),
            Value::Text(text) => arguments.add(text.map(Cow::into_owned)),
            Value::Bytes(bytes) => arguments.add(bytes.into_owned()),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

/// A row of an answer. Columns are counted from 0.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
    MySql(MySqlRow),
}

/// The same for each of the three.
macro_rules! each {
    ($of:expr, $one:pat => $what:expr) => {
        match $of {
            Self::Sqlite($one) => $what,
            Self::Postgres($one) => $what,
            Self::MySql($one) => $what,
        }
    };
}

/// The link over any of the three.
macro_rules! link {
    ($of:expr) => {
        match $of {
            Self::Sqlite(one) => Link::Sqlite(one),
            Self::Postgres(one) => Link::Postgres(one),
            Self::MySql(one) => Link::MySql(one),
        }
    };
}

impl Row {
    pub(crate) fn number(&self, column: usize) -> Result<i64, sqlx::Error> {
        each!(self, row => row.try_get(column))
    }

    pub(crate) fn maybe(&self, column: usize) -> Result<Option<i64>, sqlx::Error> {
        each!(self, row => row.try_get(column))
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<&[u8], sqlx::Error> {
        each!(self, row => row.try_get(column))
    }

    pub(crate) fn text(&self, column: usize) -> Result<&str, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
            // Text is bytes there.
            Self::MySql(row) => {
                let text: &[u8] = row.try_get(column)?;
                std::str::from_utf8(text).map_err(|e| sqlx::Error::Decode(e.into()))
            }
        }
    }
}

/// A connection that statements are sent over.
pub(crate) enum Link<'l> {
    Sqlite(&'l mut SqliteConnection),
    Postgres(&'l mut PgConnection),
    MySql(&'l mut MySqlConnection),
}

/// Runs a statement on whichever connection it is, by a method of sqlx's query, and makes something of the answer.
macro_rules! run {
    ($link:expr, $statement:expr, $method:ident, $sqlite:expr, $postgres:expr, $mysql:expr) => {{
        let dialect = $link.dialect();
        let Statement { sql, values, again } = $statement;
        let sql = AssertSqlSafe(dialect.placeholders(sql));
        match $link {
            Link::Sqlite(to) => {
                let query = sqlx::query_with::<Sqlite, _>(sql, arguments::<sqlx::sqlite::SqliteArguments>(values)?);
                query.persistent(again).$method(&mut **to).await.map($sqlite)
            }
            Link::Postgres(to) => {
                let query = sqlx::query_with::<Postgres, _>(sql, arguments::<sqlx::postgres::PgArguments>(values)?);
                in_time(query.persistent(again).$method(&mut **to)).await.map($postgres)
            }
            Link::MySql(to) => {
                let query = sqlx::query_with::<MySql, _>(sql, arguments::<sqlx::mysql::MySqlArguments>(values)?);
                in_time(query.persistent(again).$method(&mut **to)).await.map($mysql)
            }
        }
    }};
}

/// A server that is gone without a word must not be waited for forever.
async fn in_time<T>(answer: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    let late = || sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    tokio::time::timeout(LONGEST, answer).await.unwrap_or_else(|_| Err(late()))
}

impl Link<'_> {
    pub(crate) const fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
            Self::MySql(_) => Dialect::MySql,
        }
    }

    /// The number of this connection on its server; a file has none.
    pub(crate) async fn session(&mut self) -> Result<Option<i64>, sqlx::Error> {
        let number = match self {
            Self::Sqlite(_) => return Ok(None),
            Self::Postgres(_) => "SELECT pg_backend_pid()::BIGINT",
            Self::MySql(_) => "SELECT CAST(CONNECTION_ID() AS SIGNED)",
        };
        let late = || sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        let row = tokio::time::timeout(connect::PATIENCE, self.row(Statement::of(number))).await;
        row.unwrap_or_else(|_| Err(late()))?.ok_or(sqlx::Error::RowNotFound)?.number(0).map(Some)
    }

    /// Runs it. How many rows it was about.
    pub(crate) async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, sqlx::Error> {
        run!(self, statement, execute, |d| d.rows_affected(), |d| d.rows_affected(), |d| d.rows_affected())
    }

    pub(crate) async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<Row>, sqlx::Error> {
        run!(
            self,
            statement,
            fetch_all,
            |rows| rows.into_iter().map(Row::Sqlite).collect(),
            |rows| rows.into_iter().map(Row::Postgres).collect(),
            |rows| rows.into_iter().map(Row::MySql).collect()
        )
    }

    /// The first row.
    pub(crate) async fn row(&mut self, statement: Statement<'_>) -> Result<Option<Row>, sqlx::Error> {
        run!(self, statement, fetch_optional, |row| row.map(Row::Sqlite), |row| row.map(Row::Postgres), |row| row
            .map(Row::MySql))
    }

    /// Puts rows, many with one statement. No two are of one key.
    pub(crate) async fn put(&mut self, table: &Table, rows: Vec<Vec<Value<'_>>>) -> Result<(), sqlx::Error> {
        let mut rest = rows.into_iter();
        while !rest.as_slice().is_empty() {
            let fits = |count: usize| {
                let next = rest.as_slice().get(..count);
                next.is_some_and(|next| next.iter().flatten().map(Value::bytes).sum::<usize>() <= BYTES_AT_ONCE)
            };
            let count = AT_ONCE.into_iter().find(|count| fits(*count)).unwrap_or(1);
            let values = rest.by_ref().take(count).flatten().collect();
            self.execute(Statement { sql: self.dialect().put(table, count).into(), values, again: true }).await?;
        }
        Ok(())
    }
}

/// A connection of its own.
pub(crate) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

impl Connection {
    pub(crate) const fn link(&mut self) -> Link<'_> {
        link!(self)
    }

    /// What is done is undone unless it is committed.
    pub(crate) async fn begin(&mut self) -> Result<Transaction<'_>, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(one) => Transaction::Sqlite(one.begin().await?),
            Self::Postgres(one) => Transaction::Postgres(in_time(one.begin()).await?),
            Self::MySql(one) => Transaction::MySql(in_time(one.begin()).await?),
        })
    }

    /// Is the other end there?
    pub(crate) async fn ping(&mut self) -> Result<(), sqlx::Error> {
        each!(self, one => one.ping().await)
    }
}

/// See [`Connection::begin`].
pub(crate) enum Transaction<'c> {
    Sqlite(sqlx::Transaction<'c, Sqlite>),
    Postgres(sqlx::Transaction<'c, Postgres>),
    MySql(sqlx::Transaction<'c, MySql>),
}

impl Transaction<'_> {
    pub(crate) fn link(&mut self) -> Link<'_> {
        link!(self)
    }

    pub(crate) async fn commit(self) -> Result<(), sqlx::Error> {
        each!(self, one => in_time(one.commit()).await)
    }
}

/// A connection for a question.
pub(crate) enum Reader {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
    MySql(PoolConnection<MySql>),
}

impl Reader {
    pub(crate) fn link(&mut self) -> Link<'_> {
        link!(self)
    }

    /// It is not used any more, by nobody: what was asked over it may never be answered.
    pub(crate) fn give_up(self) {
        match self {
            Self::Sqlite(one) => drop(one.detach()),
            Self::Postgres(one) => drop(one.detach()),
            Self::MySql(one) => drop(one.detach()),
        }
    }

    /// All that is read in it is of one moment.
    pub(crate) async fn begin(&mut self) -> Result<Transaction<'_>, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(one) => Transaction::Sqlite(one.begin().await?),
            Self::Postgres(one) => {
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                Transaction::Postgres(in_time(one.begin_with(begin)).await?)
            }
            Self::MySql(one) => {
                let next = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ";
                Link::MySql(&mut *one).execute(Statement::of(next)).await?;
                Transaction::MySql(in_time(one.begin_with("START TRANSACTION READ ONLY")).await?)
            }
        })
    }
}

#[cfg(test)]
mod servers_test;
