//! Accounts, users, associations and QOS in the database. The service has all of them in memory; a change is applied to a copy, and
//! what differs is written in one transaction together with the line for the list of transactions. Who follows them
//! ([`Store::watch_entities`]) sees a change after it is on disk.

use crate::{
    database::{
        Connection, Link, Statement, Value,
        dialect::{Table, There},
    },
    pages::CHUNK,
    store::{FORM, Store, StoreError, decoded, encoded, readable},
};
use garrick_accounts::{
    change::{
        self, Actor, Applied, Change, ChangeRefusal, Transaction,
        active::{ActiveJob, MOST_ACTIVE, Removed},
    },
    messages::Inventory,
    row::JobRow,
};
use garrick_model::{
    entities::{Entities, association::AssocId},
    ids::JobId,
    time::Timestamp,
};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::watch;

/// Transactions of one answer at most, the newest.
const TRANSACTIONS: i64 = 100_000;
/// And bytes of them: far below what a frame may have.
const TRANSACTION_BYTES: usize = 8 << 20;

const ENTITIES: Table =
    Table { name: "entities", columns: &["kind", "name", "form", "body"], key: 2, there: There::Replaced };

/// What is written of entities: a kind has a table of its own in [`Entities`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Version = 0,
    Tres = 1,
    Cluster = 2,
    Account = 3,
    User = 4,
    Qos = 5,
    Association = 6,
    WcKey = 7,
    Resource = 8,
    Federation = 9,
}

/// A row to be written; without a body it is deleted.
type Difference = (Kind, String, Option<Vec<u8>>);

/// Jobs without an end that use what is removed.
async fn active_jobs(link: &mut Link<'_>, removed: &Removed<'_>) -> Result<Vec<ActiveJob>, StoreError> {
    let mut active = Vec::new();
    for cluster in &link.rows(Statement::of("SELECT id, name FROM clusters")).await? {
        if !removed.is_on(cluster.text(1)?) {
            continue;
        }
        let mut place: Option<[i64; 3]> = None;
        loop {
            let mut sql = Statement::built("SELECT since_ms, job, sluid, body FROM jobs");
            sql.push_with(" WHERE cluster = ", cluster.number(0)?).push(" AND end_ms IS NULL");
            if let Some(place) = &place {
                sql.push(" AND ").push(link.dialect().behind(&["since_ms", "job", "sluid"], place));
            }
            sql.push(format_args!(" ORDER BY since_ms, job, sluid LIMIT {CHUNK}"));
            let rows = link.rows(sql).await?;
            for row in &rows {
                place = Some([row.number(0)?, row.number(1)?, row.number(2)?]);
                let job = JobId(u32::try_from(row.number(1)?).unwrap_or(u32::MAX));
                active.extend(readable::<JobRow>(row.bytes(3)?, job).and_then(|row| removed.used_by(&row)));
                if active.len() >= MOST_ACTIVE {
                    return Ok(active);
                }
            }
            if rows.len() < CHUNK {
                break;
            }
        }
    }
    Ok(active)
}

/// What a change came to, and the version that it was applied to.
pub type Changed = Result<(Applied, u64), ChangeRefusal>;

impl Store {
    /// All entities.
    pub fn entities(&self) -> Arc<Entities> {
        Arc::clone(&self.told().borrow())
    }

    /// All entities, now and after each change.
    pub fn watch_entities(&self) -> watch::Receiver<Arc<Entities>> {
        self.told().subscribe()
    }

    /// Applies a change, or only tries it. With a version: only to that one.
    pub async fn change(
        &self,
        change: &Change,
        by: &Actor,
        version: Option<u64>,
        only_try: bool,
    ) -> Result<Changed, StoreError> {
        self.write(async |writer| {
            let old = self.entities();
            if version.is_some_and(|shown| shown != old.version) {
                return Ok(Err(ChangeRefusal::Outdated));
            }
            let mut new = Entities::clone(&old);
            let applied = match change::apply_by(&self.rules, &mut new, change, by, Timestamp::now()) {
                Ok(applied) => applied,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if let Some(removed) = Removed::of(&old, &new, change) {
                let active = active_jobs(&mut writer.connection()?.link(), &removed).await?;
                if !active.is_empty() {
                    return Ok(Err(ChangeRefusal::JobsActive(active)));
                }
            }
            new.version = old.version;
            if !only_try && new != *old {
                new.version += 1;
                write(writer.connection()?, &old, &new, &applied.transactions).await?;
                self.told().send_replace(Arc::new(new));
            }
            Ok(Ok((applied, old.version)))
        })
        .await
    }

    /// A cluster's controller has come, with that inventory.
    pub async fn register(&self, cluster: &str, inventory: &Inventory) -> Result<(), StoreError> {
        self.register_at(cluster, inventory, Timestamp::now()).await
    }

    /// The same at that time.
    pub async fn register_at(&self, cluster: &str, inventory: &Inventory, at: Timestamp) -> Result<(), StoreError> {
        self.write(async |writer| {
            let old = self.entities();
            let mut new = Entities::clone(&old);
            change::register_cluster_by(&self.rules, &mut new, cluster, at, &inventory.tres);
            if let Some(of) = new.clusters.get_mut(cluster) {
                of.control.clone_from(&inventory.control);
                of.nodes.clone_from(&inventory.nodes);
                of.tres.clone_from(&inventory.tres);
            }
            new.version = old.version;
            if new != *old {
                new.version += 1;
                write(writer.connection()?, &old, &new, &[]).await?;
                self.told().send_replace(Arc::new(new));
            }
            Ok(())
        })
        .await
    }

    /// What was changed in that time, oldest first.
    pub async fn transactions(
        &self,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> Result<Vec<Transaction>, StoreError> {
        let in_time = "SELECT body FROM transactions WHERE time_ms >= ? AND time_ms <= ? ORDER BY id DESC LIMIT ?";
        let asked = Statement::of(in_time)
            .with(since.map_or(i64::MIN, |at| at.0))
            .with(until.map_or(i64::MAX, |at| at.0))
            .with(TRANSACTIONS);
        let rows = self.read(async |reader| Ok(reader.link().rows(asked).await?)).await?;
        let (mut newest, mut bytes) = (Vec::new(), 0);
        for row in &rows {
            let body = row.bytes(0)?;
            bytes += body.len();
            if bytes > TRANSACTION_BYTES {
                break;
            }
            newest.push(decoded(body)?);
        }
        newest.reverse();
        Ok(newest)
    }
}

/// Reads all entities. A new database begins with those that there always are.
pub(crate) async fn open(connection: &mut Connection) -> Result<Entities, StoreError> {
    let rows = connection.link().rows(Statement::of("SELECT kind, name, body FROM entities")).await?;
    if rows.is_empty() {
        let fresh = change::fresh(Timestamp::now());
        write(connection, &Entities { version: u64::MAX, ..Entities::default() }, &fresh, &[]).await?;
        return Ok(fresh);
    }
    let mut entities = Entities::default();
    for row in &rows {
        take(&mut entities, row.number(0)?, row.text(1)?, row.bytes(2)?)?;
    }
    Ok(entities)
}

fn take(entities: &mut Entities, kind: i64, name: &str, body: &[u8]) -> Result<(), StoreError> {
    let number = || name.parse::<u32>().map_err(|_| StoreError::Row(format!("entity {kind} {name}")));
    match kind {
        0 => entities.version = decoded(body)?,
        1 => drop(entities.tres.insert(number()?, decoded(body)?)),
        2 => drop(entities.clusters.insert(name.to_owned(), decoded(body)?)),
        3 => drop(entities.accounts.insert(name.to_owned(), decoded(body)?)),
        4 => drop(entities.users.insert(name.to_owned(), decoded(body)?)),
        5 => drop(entities.qos.insert(name.to_owned(), decoded(body)?)),
        6 => drop(entities.associations.insert(AssocId(number()?), decoded(body)?)),
        7 => drop(entities.wckeys.insert(number()?, decoded(body)?)),
        9 => drop(entities.federations.insert(name.to_owned(), decoded(body)?)),
        8 => drop(entities.resources.insert(number()?, decoded(body)?)),
        // Of a later version that was in use for a while.
        other => return Err(StoreError::Row(format!("entity of kind {other}"))),
    }
    Ok(())
}

/// What has to be written so that the database has the new ones in place of the old.
fn differences(old: &Entities, new: &Entities) -> Vec<Difference> {
    let mut all = Vec::new();
    if old.version != new.version {
        all.push((Kind::Version, String::new(), Some(encoded(&new.version))));
    }
    compare(Kind::Tres, &old.tres, &new.tres, &mut all);
    compare(Kind::Cluster, &old.clusters, &new.clusters, &mut all);
    compare(Kind::Account, &old.accounts, &new.accounts, &mut all);
    compare(Kind::User, &old.users, &new.users, &mut all);
    compare(Kind::Qos, &old.qos, &new.qos, &mut all);
    let numbers = |entities: &Entities| -> BTreeMap<u32, _> {
        entities.associations.iter().map(|(id, association)| (id.0, association.clone())).collect()
    };
    compare(Kind::Association, &numbers(old), &numbers(new), &mut all);
    compare(Kind::WcKey, &old.wckeys, &new.wckeys, &mut all);
    compare(Kind::Resource, &old.resources, &new.resources, &mut all);
    compare(Kind::Federation, &old.federations, &new.federations, &mut all);
    all
}

fn compare<K: Ord + ToString, V: PartialEq + Serialize>(
    kind: Kind,
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    all: &mut Vec<Difference>,
) {
    let gone = old.keys().filter(|name| !new.contains_key(name));
    all.extend(gone.map(|name| (kind, name.to_string(), None)));
    let changed = new.iter().filter(|(name, value)| old.get(name) != Some(value));
    all.extend(changed.map(|(name, value)| (kind, name.to_string(), Some(encoded(value)))));
}

async fn write(
    connection: &mut Connection,
    old: &Entities,
    new: &Entities,
    transactions: &[Transaction],
) -> Result<(), StoreError> {
    let mut tx = connection.begin().await?;
    let mut link = tx.link();
    let mut rows: Vec<Vec<Value<'_>>> = Vec::new();
    for (kind, name, body) in differences(old, new) {
        match body {
            Some(body) => {
                rows.push(vec![(kind as i64).into(), Value::Text(Some(name.into())), FORM.into(), body.into()]);
            }
            None => {
                let gone = Statement::of("DELETE FROM entities WHERE kind = ? AND name = ?");
                link.execute(gone.with(kind as i64).with(name.as_str())).await?;
            }
        }
    }
    link.put(&ENTITIES, rows).await?;
    for transaction in transactions {
        insert(&mut link, transaction).await?;
    }
    Ok(tx.commit().await?)
}

/// Adds to the list of transactions.
pub(crate) async fn insert(link: &mut Link<'_>, transaction: &Transaction) -> Result<(), StoreError> {
    let next =
        "INSERT INTO transactions (id, time_ms, form, body) SELECT COALESCE(MAX(id), 0) + 1, ?, ?, ? FROM transactions";
    link.execute(Statement::of(next).with(transaction.time.0).with(FORM).with(encoded(transaction))).await?;
    Ok(())
}

#[cfg(test)]
#[path = "entities_test.rs"]
mod tests;
