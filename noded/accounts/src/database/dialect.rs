//! What databases write differently: placeholders, rows that replace others, and comparisons of several columns with several values.

use std::{borrow::Cow, fmt::Write as _};

/// Whose SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite 3.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MariaDB and MySQL.
    MySql,
}

/// A table whose rows are put by their key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// The key first.
    pub(crate) columns: &'static [&'static str],
    /// How many of these are the key.
    pub(crate) key: usize,
    /// What happens to a row that is there.
    pub(crate) there: There,
}

/// What a new row does to one of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum There {
    /// It is replaced.
    Replaced,
    /// It stays.
    Kept,
    /// It is replaced unless it has more in this column.
    ReplacedUnlessMore(&'static str),
}

impl Dialect {
    /// Values of a statement are written as `?`, which PostgreSQL numbers.
    pub(crate) fn placeholders(self, sql: Cow<'static, str>) -> Cow<'static, str> {
        if self != Self::Postgres || !sql.contains('?') {
            return sql;
        }
        let mut numbered = String::with_capacity(sql.len() + 32);
        for (number, part) in sql.split('?').enumerate() {
            if number > 0 {
                write!(numbered, "${number}").expect("a string takes everything");
            }
            numbered.push_str(part);
        }
        numbered.into()
    }

    /// At the end of a SELECT: nobody else changes these rows until the transaction ends. SQLite has one writer anyway.
    pub(crate) const fn for_update(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres | Self::MySql => " FOR UPDATE",
        }
    }

    /// A statement that puts so many rows.
    pub(crate) fn put(self, table: &Table, rows: usize) -> String {
        let row = format!("({})", vec!["?"; table.columns.len()].join(", "));
        let mut sql = format!("INSERT INTO {} ({}) VALUES ", table.name, table.columns.join(", "));
        sql.push_str(&vec![row.as_str(); rows].join(", "));
        let (key, rest) = table.columns.split_at(table.key);
        match self {
            Self::Sqlite | Self::Postgres => {
                let set = |column: &&str| format!("{column} = excluded.{column}");
                let sets = || rest.iter().map(set).collect::<Vec<_>>().join(", ");
                write!(sql, " ON CONFLICT ({}) DO ", key.join(", ")).expect("a string takes everything");
                match table.there {
                    There::Kept => sql.push_str("NOTHING"),
                    There::Replaced => sql.push_str(&format!("UPDATE SET {}", sets())),
                    There::ReplacedUnlessMore(by) => {
                        sql.push_str(&format!("UPDATE SET {} WHERE {}.{by} <= excluded.{by}", sets(), table.name));
                    }
                }
            }
            Self::MySql => {
                sql.push_str(" ON DUPLICATE KEY UPDATE ");
                sql.push_str(&match table.there {
                    There::Kept => format!("{0} = {0}", key[0]),
                    There::Replaced => rest.iter().map(|c| format!("{c} = VALUES({c})")).collect::<Vec<_>>().join(", "),
                    There::ReplacedUnlessMore(by) => {
                        // Assignments count for those behind them: what is compared comes last.
                        let others = rest.iter().copied().filter(|column| *column != by).chain([by]);
                        let set = |c| format!("{c} = IF({by} <= VALUES({by}), VALUES({c}), {c})");
                        others.map(set).collect::<Vec<_>>().join(", ")
                    }
                });
            }
        }
        sql
    }

    /// The columns together come behind that place. MariaDB finds no index for a comparison of rows.
    pub(crate) fn behind(self, columns: &[&str], place: &[i64]) -> String {
        if self == Self::MySql {
            return behind_each(columns, place);
        }
        format!("({}) > ({})", columns.join(", "), listed(place))
    }

    /// The columns together are one of these, which are not none. Numbers are written as such: a statement takes only so many values.
    pub(crate) fn among<K: AsRef<[i64]>>(self, columns: &[&str], keys: &[K]) -> String {
        if self == Self::MySql {
            let one = |key: &K| {
                let equal = columns.iter().zip(key.as_ref()).map(|(column, value)| format!("{column} = {value}"));
                format!("({})", equal.collect::<Vec<_>>().join(" AND "))
            };
            return format!("({})", keys.iter().map(one).collect::<Vec<_>>().join(" OR "));
        }
        let rows: Vec<String> = keys.iter().map(|key| format!("({})", listed(key.as_ref()))).collect();
        format!("({}) IN (VALUES {})", columns.join(", "), rows.join(", "))
    }
}

fn listed(values: &[i64]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// `a > 1 OR a = 1 AND (b > 2 OR ...)`.
fn behind_each(columns: &[&str], place: &[i64]) -> String {
    match (columns, place) {
        ([column, columns @ ..], [value, place @ ..]) if !columns.is_empty() => {
            format!("({column} > {value} OR {column} = {value} AND {})", behind_each(columns, place))
        }
        ([column], [value]) => format!("{column} > {value}"),
        _ => "FALSE".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: Table = Table {
        name: "steps",
        columns: &["cluster", "step", "progress", "body"],
        key: 2,
        there: There::ReplacedUnlessMore("progress"),
    };

    #[test]
    fn each_database_has_its_own_way_to_put_rows() {
        assert_eq!(
            Dialect::Postgres.put(&STEPS, 2),
            "INSERT INTO steps (cluster, step, progress, body) VALUES (?, ?, ?, ?), (?, ?, ?, ?) \
             ON CONFLICT (cluster, step) DO UPDATE SET progress = excluded.progress, body = excluded.body \
             WHERE steps.progress <= excluded.progress"
        );
        assert_eq!(Dialect::Sqlite.put(&STEPS, 3), Dialect::Postgres.put(&STEPS, 3));
        assert_eq!(
            Dialect::MySql.put(&STEPS, 1),
            "INSERT INTO steps (cluster, step, progress, body) VALUES (?, ?, ?, ?) ON DUPLICATE KEY UPDATE \
             body = IF(progress <= VALUES(progress), VALUES(body), body), \
             progress = IF(progress <= VALUES(progress), VALUES(progress), progress)"
        );
    }

    #[test]
    fn places_and_keys_are_compared_so_that_an_index_is_found() {
        let columns = ["a", "b", "c"];
        assert_eq!(Dialect::Sqlite.behind(&columns, &[1, 2, 3]), "(a, b, c) > (1, 2, 3)");
        assert_eq!(Dialect::MySql.behind(&columns, &[1, 2, 3]), "(a > 1 OR a = 1 AND (b > 2 OR b = 2 AND c > 3))");
        assert_eq!(Dialect::Postgres.among(&["a", "b"], &[[1, 2], [3, 4]]), "(a, b) IN (VALUES (1, 2), (3, 4))");
        assert_eq!(Dialect::MySql.among(&["a", "b"], &[[1, 2], [3, 4]]), "((a = 1 AND b = 2) OR (a = 3 AND b = 4))");
        assert_eq!(Dialect::Postgres.placeholders("a = ? AND b = ?".into()), "a = $1 AND b = $2");
        assert_eq!(Dialect::Sqlite.placeholders("a = ?".into()), "a = ?");
    }
}
