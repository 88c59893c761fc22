//! `sacctmgr list` and `show`: conditions, then a question to the service, then rows, then columns.

use super::{Session, change::words::past, is_operator, runaway, service, stats};
use crate::query::choices;
use garrick_accounts::{
    change::Transaction,
    messages::{AccountsReply, AccountsRequest},
    reservation::ReservationRow,
    tres::CPU,
    usage::UsageSum,
};
use garrick_asking::{accounts::User, cluster::ClusterError};
use garrick_model::time::{Timestamp, system_zone};
use garrick_render::{
    clock::Clock,
    field_table::Column,
    sacctmgr::{
        condition::{Key, More, Request},
        document,
        events::{self, Window},
        fields,
        kind::Kind,
        problems,
        reservations::{self, Line},
        rows::{Listing, Row},
    },
};
use jiff::ToSpan as _;

/// What is said where no entity is named, or none that there is.
const NO_ENTITY: &str = "No valid entity in list command\n\
     Input line must include \"Account\", \"Association\", \"Cluster\", \"Configuration\",\n\
     \"Event\", \"Federation\", \"Problem\", \"QOS\", \"Resource\", \"Reservation\",\n\
     \"RunAwayJobs\", \"Stats\", \"Transaction\", \"TRES\", \"User\", or \"WCKey\"";

/// Lists what is asked for. Returns the exit code.
pub fn run(session: &mut Session, words: &[String]) -> i32 {
    let Some(kind) = words.first().and_then(|word| Kind::read(word)) else {
        return session.plain_error(NO_ENTITY);
    };
    if kind == Kind::Stats {
        return stats::show(session, &words[1..]).unwrap_or_else(|code| code);
    }
    let mut request = match Request::read(kind, &words[1..]) {
        Ok(request) => request,
        Err(error) => {
            let code = session.plain_error(error);
            if kind == Kind::Qos {
                session.plain_error(" Use keyword 'set' to modify SLURM_PRINT_VALUE");
            }
            return code;
        }
    };
    if session.manner.associations {
        request.more.insert(More::Associations);
    }
    let done = match kind {
        Kind::Configuration => service::configuration(session),
        Kind::RunawayJobs => runaway::list(session, &request),
        Kind::Problem => problem_table(session, &request),
        Kind::Event => event_table(session, &request),
        Kind::Reservation => reservation_table(session, &request),
        _ => entities(session, &request),
    };
    done.unwrap_or_else(|code| code)
}

/// Can these words behind `list` be used, as far as that is known without asking anybody?
pub(super) fn is_readable(words: &[String]) -> bool {
    let kind = words.first().and_then(|word| Kind::read(word));
    let request = kind.and_then(|kind| Request::read(kind, &words[1..]).ok());
    request.is_some_and(|request| fields::columns(&request).is_ok())
}

/// What is said of a list that the user may not have.
const fn denial(kind: Kind) -> &'static str {
    match kind {
        Kind::Account => " Problem with query.",
        _ => "",
    }
}

/// The table or document of entities. The error is an exit code.
fn entities(session: &mut Session, request: &Request) -> Result<i32, i32> {
    let columns = fields::columns(request).map_err(|name| unknown_field(session, &name))?;
    let (entities, here) = session.entities(denial(request.kind))?;
    let listing = Listing { entities: &entities, here: &here, request };
    if let Some(form) = session.manner.form
        && let Some(document) = document::listed(&listing, &choices::meta(&here, form))
    {
        return Ok(session.print(|out| form.write(out, document)));
    }
    let changes = if request.kind == Kind::Transaction { transactions(session, request)? } else { Vec::new() };
    let rows = match request.kind {
        Kind::Account => listing.accounts(),
        Kind::Association => listing.associations(),
        Kind::Cluster => listing.clusters(),
        Kind::Federation => listing.federations(),
        Kind::Qos => listing.qos(),
        Kind::Resource => listing.resources(),
        Kind::Transaction => listing.transactions(&changes),
        Kind::Tres => listing.tres(),
        Kind::User => listing.users(),
        Kind::WcKey => listing.wckeys(),
        // Nodes are of no cloud that has names for them.
        _ => Vec::new(),
    };
    let clock = Clock::system();
    Ok(table(session, &columns, &rows, |shown, row: &Row<'_>| shown(row, &clock)))
}

pub(super) fn unknown_field(session: &Session, name: &str) -> i32 {
    session.plain_error(format_args!("Unknown field '{name}'"))
}

/// A table of rows. Returns the exit code.
pub(super) fn table<V, R>(
    session: &Session,
    columns: &[Column<V>],
    rows: &[R],
    value: impl Fn(&V, &R) -> String,
) -> i32 {
    session.print(|out| {
        if session.manner.heading {
            session.manner.setting.heading(out, columns)?;
        }
        rows.iter().try_for_each(|row| session.manner.setting.row(out, columns, |shown| value(shown, row)))
    })
}

/// The window that is asked for. The error is an exit code.
fn window(session: &Session, request: &Request) -> Result<Window, i32> {
    let at = |key: Key| {
        let Some(text) = request.conditions.get(&key).and_then(|values| values.last()) else { return Ok(None) };
        past(text).map(Some).map_err(|error| session.plain_error(error))
    };
    Ok(Window { start: at(Key::Start)?, end: at(Key::End)? })
}

/// The beginning of yesterday, where no window is named (sacctmgr(1), events).
fn yesterday() -> Timestamp {
    let zoned = jiff::Zoned::now().with_time_zone(system_zone());
    let begun = zoned.start_of_day().and_then(|today| today.checked_sub(1.day()));
    begun.map_or_else(|_| Timestamp::default(), |at| Timestamp(at.timestamp().as_millisecond()))
}

fn event_table(session: &mut Session, request: &Request) -> Result<i32, i32> {
    let columns = events::columns(request.format.as_deref()).map_err(|name| unknown_field(session, &name))?;
    let window = window(session, request)?;
    let here = session.service()?.cluster().name().to_owned();
    let question = events::question(request, window, yesterday(), &here).map_err(|e| session.plain_error(e))?;
    let told = session.service()?.events(&question);
    let mut rows = told.map_err(|error| session.failed(&error, ""))?;
    rows.retain(|row| events::takes(request, row));
    let clock = Clock::system();
    Ok(table(session, &columns, &rows, |shown, row| shown(row, &clock)))
}

fn reservation_table(session: &mut Session, request: &Request) -> Result<i32, i32> {
    let columns = reservations::columns(request.format.as_deref()).map_err(|name| unknown_field(session, &name))?;
    let window = window(session, request)?;
    let here = session.service()?.cluster().name().to_owned();
    let question = reservations::question(request, window, yesterday(), &here).map_err(|e| session.plain_error(e))?;
    let (entities, _) = session.entities("")?;
    // What is unused is counted from its beginning, whatever the window.
    let told = session.service()?.reserved(&question, None);
    let told = told.map_err(|error| session.failed(&error, ""))?;
    let line = |(row, used): (ReservationRow, UsageSum)| {
        let associations = reservations::associations(&row, &entities);
        Line { row, associations, used: used.of(CPU) }
    };
    let lines: Vec<Line> = told.into_iter().map(line).collect();
    let clock = Clock::system();
    Ok(table(session, &columns, &lines, |shown, line| shown(line, &clock)))
}

/// Changes in the window that is asked for.
fn transactions(session: &mut Session, request: &Request) -> Result<Vec<Transaction>, i32> {
    let Window { start: since, end: until } = window(session, request)?;
    let answer = session.service()?.ask(&AccountsRequest::Transactions { since, until });
    match answer {
        Ok(AccountsReply::Transactions(all)) => Ok(all),
        Ok(_) => Err(session.failed(&ClusterError::Unexpected("accounts").into(), "")),
        Err(error) => Err(session.failed(&error, "")),
    }
}

fn problem_table(session: &mut Session, request: &Request) -> Result<i32, i32> {
    let columns = problems::columns(request.format.as_deref()).map_err(|name| unknown_field(session, &name))?;
    let (entities, _) = session.entities("")?;
    let found = problems::problems(&entities, request, &|user| User::by_name(user).is_some());
    Ok(table(session, &columns, &found, |shown, problem| shown(problem).to_owned()))
}

/// Is the caller an operator, by what the service says of him?
pub(super) fn caller_is_operator(session: &mut Session) -> Result<bool, i32> {
    let (entities, _) = session.entities("")?;
    Ok(is_operator(session.service()?.cluster(), &entities))
}
