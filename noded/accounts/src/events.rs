//! When nodes were out of service, what clusters had, and what is kept of reservations. Rows follow from saved states in the
//! controller's log ([`garrick_accounts::event`], [`garrick_accounts::reservation`]), in the transaction of their batch.

use crate::{
    database::{Link, Statement},
    pages::LISTED,
    store::{FORM, Followed, Store, StoreError, column, decoded, encoded},
};
use garrick_accounts::{
    event::{self, DISCONNECTED, EventQuestion, EventRow, Following, Outage, REGISTERED},
    messages::Inventory,
    reservation::{self, ReservationQuestion, ReservationRow, Write},
};
use garrick_events::records::node::SavedNode;
use garrick_model::{hostlist, reservation::Reservation, time::Timestamp};
use serde::de::DeserializeOwned;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashSet},
};

/// Rows of one answer: far below what a frame may have.
const IN_ANSWER: i64 = 500;

/// Amounts by the name of a TRES.
pub type Amounts = BTreeMap<String, u64>;

/// A cluster, by number and name.
type Of<'o> = (i64, &'o str);

/// Rows of an answer, and where the next one goes on.
type Part<R> = (Vec<R>, Option<i64>);

impl Store {
    /// Events that are asked for, behind that place.
    pub async fn events(&self, question: &EventQuestion, after: Option<i64>) -> Result<Part<EventRow>, StoreError> {
        let window = (question.start, question.end);
        let such = |sql: &mut Statement<'_>| {
            among_clusters(sql, &question.clusters);
            among(sql, "node", &question.nodes);
            if question.open {
                sql.push(" AND end_ms IS NULL");
            }
            if question.of_nodes {
                sql.push(" AND node <> ''");
            }
            if question.of_clusters {
                sql.push(" AND node = ''");
            }
        };
        self.part("events", window, such, after, |row| question.takes(row)).await
    }

    /// Reservations that are asked for, behind that place.
    pub async fn reservations(
        &self,
        question: &ReservationQuestion,
        after: Option<i64>,
    ) -> Result<Part<ReservationRow>, StoreError> {
        let window = (question.start, question.end);
        let such = |sql: &mut Statement<'_>| {
            among_clusters(sql, &question.clusters);
            among(sql, "name", &question.names);
        };
        self.part("reservations", window, such, after, |row| question.takes(row)).await
    }

    async fn part<R: DeserializeOwned>(
        &self,
        table: &'static str,
        (start, end): (Option<Timestamp>, Option<Timestamp>),
        such: impl Fn(&mut Statement<'_>),
        after: Option<i64>,
        takes: impl Fn(&R) -> bool,
    ) -> Result<Part<R>, StoreError> {
        let mut sql = Statement::built(format!("SELECT id, body FROM {table} WHERE id > "));
        sql.push_with("", after.unwrap_or(0));
        such(&mut sql);
        if let Some(start) = start {
            sql.push_with(" AND (end_ms IS NULL OR end_ms >= ", start.0).push(")");
        }
        if let Some(end) = end {
            sql.push_with(" AND start_ms < ", end.0);
        }
        sql.push_with(" ORDER BY id LIMIT ", IN_ANSWER);
        let rows = self.read(async |reader| Ok(reader.link().rows(sql).await?)).await?;
        let mut told = Vec::new();
        for row in &rows {
            told.extend(readable::<R>(row.bytes(1)?).filter(&takes));
        }
        let is_full = i64::try_from(rows.len()).is_ok_and(|count| count == IN_ANSWER);
        let last = rows.last().filter(|_| is_full).map(|row| row.number(0)).transpose()?;
        Ok((told, last))
    }

    /// A cluster's controller is not there any more: an event of the cluster, which goes on until one comes.
    pub async fn note_gone(&self, of: &Followed, now: Timestamp) -> Result<(), StoreError> {
        self.write(async |writer| {
            let mut tx = writer.connection()?.begin().await?;
            let mut link = tx.link();
            if open_of_cluster(&mut link, of.id, EventRow::is_disconnect).await?.is_none() {
                let had = open_of_cluster(&mut link, of.id, EventRow::is_registration).await?;
                let (nodes, tres) = had.map(|(_, event)| (event.nodes, event.tres)).unwrap_or_default();
                let (reason, state) = (DISCONNECTED.to_owned(), "DOWN".to_owned());
                let cluster = of.cluster.clone();
                let event = EventRow { cluster, start: now, reason, state, nodes, tres, ..EventRow::default() };
                begin(&mut link, of.id, &event).await?;
            }
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// A cluster's controller has come.
    pub async fn note_back(&self, of: &Followed, now: Timestamp) -> Result<(), StoreError> {
        self.write(async |writer| {
            let mut tx = writer.connection()?.begin().await?;
            let mut link = tx.link();
            if let Some((id, event)) = open_of_cluster(&mut link, of.id, EventRow::is_disconnect).await? {
                end(&mut link, id, &event, now).await?;
            }
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// A cluster's controller said what the cluster has: an event of the cluster, unless it had that before. Nodes that are not
    /// there any more are not out of service any more.
    pub async fn note_inventory(&self, of: &Followed, inventory: &Inventory, now: Timestamp) -> Result<(), StoreError> {
        self.write(async |writer| {
            let mut tx = writer.connection()?.begin().await?;
            note_inventory(&mut tx.link(), (of.id, &of.cluster), inventory, now).await?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }
}

/// An event of a cluster that goes on.
async fn open_of_cluster(
    link: &mut Link<'_>,
    cluster: i64,
    is_meant: fn(&EventRow) -> bool,
) -> Result<Option<(i64, EventRow)>, StoreError> {
    let open = Statement::of("SELECT id, body FROM events WHERE cluster = ? AND node = '' AND end_ms IS NULL");
    for row in &link.rows(open.with(cluster)).await? {
        if let Some(event) = readable::<EventRow>(row.bytes(1)?).filter(is_meant) {
            return Ok(Some((row.number(0)?, event)));
        }
    }
    Ok(None)
}

async fn note_inventory(
    link: &mut Link<'_>,
    of: Of<'_>,
    inventory: &Inventory,
    now: Timestamp,
) -> Result<(), StoreError> {
    let open = Statement::of("SELECT id, body FROM events WHERE cluster = ? AND end_ms IS NULL").with(of.0);
    let mut all: Vec<(i64, EventRow)> = Vec::new();
    for row in &link.rows(open).await? {
        if let Some(event) = readable(row.bytes(1)?) {
            all.push((row.number(0)?, event));
        }
    }
    let names: HashSet<String> = hostlist::expand(&inventory.nodes).unwrap_or_default().into_iter().collect();
    for (id, event) in all.iter().filter(|(_, event)| event.node.as_ref().is_some_and(|node| !names.contains(node))) {
        end(link, *id, event, now).await?;
    }
    let of_cluster = all.iter().find(|(_, event)| event.is_registration());
    if of_cluster.is_some_and(|(_, event)| (&event.tres, &event.nodes) == (&inventory.tres, &inventory.nodes)) {
        return Ok(());
    }
    if let Some((id, event)) = of_cluster {
        end(link, *id, event, now).await?;
    }
    let event = EventRow {
        cluster: of.1.to_owned(),
        start: now,
        reason: REGISTERED.to_owned(),
        nodes: inventory.nodes.clone(),
        tres: inventory.tres.clone(),
        ..EventRow::default()
    };
    begin(link, of.0, &event).await
}

/// A node was saved with that state; it has these amounts.
pub(crate) async fn put_node(
    link: &mut Link<'_>,
    of: Of<'_>,
    (node, saved): (&str, &SavedNode),
    tres: Option<&Amounts>,
) -> Result<(), StoreError> {
    let open = Statement::of("SELECT id, body FROM events WHERE cluster = ? AND node = ? AND end_ms IS NULL");
    let open: Option<(i64, EventRow)> = match link.row(open.with(of.0).with(Some(column(node)))).await? {
        Some(row) => readable(row.bytes(1)?).map(|event| (row.number(0).unwrap_or_default(), event)),
        None => None,
    };
    let Following::Change(at, next) = event::follow(open.as_ref().map(|(_, event)| event), saved) else {
        return Ok(());
    };
    if let Some((id, event)) = &open {
        end(link, *id, event, at).await?;
    }
    let Some(Outage { since, state, down, reason, user }) = next else { return Ok(()) };
    let event = EventRow {
        cluster: of.1.to_owned(),
        node: Some(node.to_owned()),
        start: since,
        state: state.to_owned(),
        down,
        reason,
        user,
        tres: tres.cloned().unwrap_or_default(),
        ..EventRow::default()
    };
    begin(link, of.0, &event).await
}

async fn begin(link: &mut Link<'_>, cluster: i64, event: &EventRow) -> Result<(), StoreError> {
    let id = next(link, Statement::of("SELECT COALESCE(MAX(id), 0) + 1 FROM events")).await?;
    let row = Statement::of(
        "INSERT INTO events (id, cluster, node, start_ms, end_ms, form, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
    );
    let node = column(event.node.as_deref().unwrap_or(""));
    link.execute(
        row.with(id)
            .with(cluster)
            .with(Some(node))
            .with(event.start.0)
            .with(event.end.map(|at| at.0))
            .with(FORM)
            .with(encoded(event)),
    )
    .await?;
    Ok(())
}

async fn end(link: &mut Link<'_>, id: i64, event: &EventRow, at: Timestamp) -> Result<(), StoreError> {
    // Clocks may be set back.
    let at = at.max(event.start);
    let ended = EventRow { end: Some(at), ..event.clone() };
    let row = Statement::of("UPDATE events SET end_ms = ?, body = ? WHERE id = ?");
    link.execute(row.with(at.0).with(encoded(&ended)).with(id)).await?;
    Ok(())
}

/// A reservation was saved, or deleted.
pub(crate) async fn put_reservation(
    link: &mut Link<'_>,
    of: Of<'_>,
    (name, saved): (&str, Option<&Reservation>),
    at: Timestamp,
) -> Result<(), StoreError> {
    let last = Statement::of(
        "SELECT body FROM reservations WHERE cluster = ? AND name = ? ORDER BY start_ms DESC, id DESC LIMIT 1",
    );
    let last: Option<ReservationRow> = match link.row(last.with(of.0).with(Some(column(name)))).await? {
        Some(row) => readable(row.bytes(0)?),
        None => None,
    };
    let unused = Statement::of("SELECT COALESCE(MAX(resv), 0) + 1 FROM reservations WHERE cluster = ?").with(of.0);
    let unused = next(link, unused).await?;
    for write in reservation::follow(of.1, last.as_ref(), saved, at, unused.cast_unsigned()) {
        match write {
            Write::Delete(id, start) => delete(link, of.0, id, start).await?,
            Write::Put(row) => {
                delete(link, of.0, row.id, row.start).await?;
                put(link, of.0, &row).await?;
            }
        }
    }
    Ok(())
}

/// Reservations of other names than these were deleted, some time before.
pub(crate) async fn end_missing_reservations(
    link: &mut Link<'_>,
    of: Of<'_>,
    names: &[String],
    now: Timestamp,
) -> Result<(), StoreError> {
    let there: HashSet<&String> = names.iter().collect();
    let open = Statement::of("SELECT body FROM reservations WHERE cluster = ? AND end_ms > ?").with(of.0).with(now.0);
    let mut missing: BTreeSet<String> = BTreeSet::new();
    for row in &link.rows(open).await? {
        let row = readable::<ReservationRow>(row.bytes(0)?).filter(|row| !row.gone && !there.contains(&row.name));
        missing.extend(row.map(|row| row.name));
    }
    for name in &missing {
        put_reservation(link, of, (name, None), now).await?;
    }
    Ok(())
}

/// Leaves out other clusters, as long as few are named.
fn among_clusters(sql: &mut Statement<'_>, names: &[String]) {
    if !names.is_empty() && names.len() <= LISTED {
        sql.push(" AND cluster IN (SELECT id FROM clusters WHERE 1 = 1");
        among(sql, "name", names);
        sql.push(")");
    }
}

/// Leaves out other names, as long as few are named.
fn among(sql: &mut Statement<'_>, column_of: &'static str, names: &[String]) {
    if names.is_empty() || names.len() > LISTED {
        return;
    }
    for (number, name) in names.iter().enumerate() {
        let before = if number == 0 { format!(" AND {column_of} IN (") } else { ", ".to_owned() };
        sql.push_with(before, Some(Cow::<str>::Owned(column(name).into_owned())));
    }
    sql.push(")");
}

async fn delete(link: &mut Link<'_>, cluster: i64, id: u64, start: Timestamp) -> Result<(), StoreError> {
    let row = Statement::of("DELETE FROM reservations WHERE cluster = ? AND resv = ? AND start_ms = ?");
    link.execute(row.with(cluster).with(id.cast_signed()).with(start.0)).await?;
    Ok(())
}

async fn put(link: &mut Link<'_>, cluster: i64, row: &ReservationRow) -> Result<(), StoreError> {
    let id = next(link, Statement::of("SELECT COALESCE(MAX(id), 0) + 1 FROM reservations")).await?;
    let sql = Statement::of(
        "INSERT INTO reservations (id, cluster, resv, name, start_ms, end_ms, form, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    );
    let sql = sql.with(id).with(cluster).with(row.id.cast_signed()).with(Some(column(&row.name)));
    link.execute(sql.with(row.start.0).with(row.end.0).with(FORM).with(encoded(row))).await?;
    Ok(())
}

/// An event of an archive. True: it was not there.
pub(crate) async fn load_event(link: &mut Link<'_>, cluster: i64, event: &EventRow) -> Result<bool, StoreError> {
    let known = Statement::of("SELECT body FROM events WHERE cluster = ? AND node = ? AND start_ms = ?");
    let node = column(event.node.as_deref().unwrap_or(""));
    let known = link.rows(known.with(cluster).with(Some(node)).with(event.start.0)).await?;
    let mut is_new = true;
    for row in &known {
        is_new &= decoded::<EventRow>(row.bytes(0)?).ok().as_ref() != Some(event);
    }
    if is_new {
        begin(link, cluster, event).await?;
    }
    Ok(is_new)
}

/// A reservation of an archive. True: it was not there.
pub(crate) async fn load_reservation(
    link: &mut Link<'_>,
    cluster: i64,
    row: &ReservationRow,
) -> Result<bool, StoreError> {
    let known = Statement::of("SELECT 1 FROM reservations WHERE cluster = ? AND resv = ? AND start_ms = ?");
    let known = known.with(cluster).with(row.id.cast_signed()).with(row.start.0);
    let is_new = link.row(known).await?.is_none();
    if is_new {
        put(link, cluster, row).await?;
    }
    Ok(is_new)
}

/// A row, unless it is damaged: one must not stop all others.
fn readable<R: DeserializeOwned>(body: &[u8]) -> Option<R> {
    decoded(body).inspect_err(|error| tracing::error!(%error, "a row of events or reservations is passed over")).ok()
}

/// The number that a statement gives.
async fn next(link: &mut Link<'_>, statement: Statement<'_>) -> Result<i64, StoreError> {
    let row = link.row(statement).await?;
    Ok(row.map(|row| row.number(0)).transpose()?.unwrap_or(1))
}

#[cfg(test)]
#[path = "events_test.rs"]
mod tests;
