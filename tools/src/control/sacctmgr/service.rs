//! What concerns the service itself: `sacctmgr ping`, `show configuration`, `reconfigure`, `shutdown`, `clear stats` and `rollup`.

use super::{
    Session,
    change::{
        asking,
        world::{Live, World as _},
    },
    is_operator,
};
use crate::{output, query::choices};
use garrick_accounts::messages::{AccountsRefusal, AccountsReply, AccountsRequest, ServiceOrder};
use garrick_asking::{
    accounting::AccountsError,
    cluster::{Cluster, ClusterError},
    contact::Contact,
};
use garrick_model::{
    date,
    messages::command::{CommandReply, CommandRequest},
    time::{Timestamp, system_zone},
};
use garrick_render::{
    clock::Clock,
    json,
    sacctmgr::{document, kind::begins},
};
use std::{
    io::{self, Write},
    time::Instant,
};

/// Is the service there?
pub(super) fn ping(session: &mut Session, rest: &[String]) -> i32 {
    if !rest.is_empty() {
        // Slurm goes on.
        session.plain_error("too many arguments for ping keyword");
    }
    let asked = Instant::now();
    let answer =
        session.service().map(|service| (service.cluster().name().to_owned(), service.ask(&AccountsRequest::Ping)));
    let latency_us = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
    let service = |host: String, is_up| json::Ping { host, is_up, latency_us };
    let (cluster, services) = match answer {
        Err(code) => return code,
        // What stands by while the other one serves is not asked.
        Ok((cluster, Ok(AccountsReply::Here { host, backup: false, .. }))) => (cluster, vec![service(host, true)]),
        Ok((cluster, Ok(AccountsReply::Here { host, .. }))) => {
            (cluster, vec![service(configured_hosts().0, false), service(host, true)])
        }
        Ok((cluster, answer)) => {
            // The service is there, and its database is not.
            if let Err(AccountsError::Refused(AccountsRefusal::Failed(why))) = &answer {
                session.console.error(why);
            }
            let (primary, backup) = configured_hosts();
            (cluster, std::iter::once(primary).chain(backup).map(|host| service(host, false)).collect())
        }
    };
    let code = i32::from(!services.iter().any(|service| service.is_up));
    if let Some(form) = session.manner.form {
        let document = document::ping(&services, &choices::meta(&cluster, form));
        return session.print(|out| form.write(out, document));
    }
    session.print(|out| ping_lines(out, &services)).max(code)
}

/// Tells the service something, and whoever asked why it does not do it.
fn order(session: &mut Session, order: ServiceOrder, denied: &str) -> i32 {
    match session.service().map(|service| service.ask(&AccountsRequest::Order(order))) {
        Ok(Ok(AccountsReply::Done)) => 0,
        Ok(Ok(_)) => session.failed(&ClusterError::Unexpected("accounts").into(), ""),
        Ok(Err(AccountsError::Refused(AccountsRefusal::Denied))) => session.plain_error(denied),
        Ok(Err(error)) => session.failed(&error, ""),
        Err(code) => code,
    }
}

/// Makes it read its configuration again.
pub(super) fn reconfigure(session: &mut Session, rest: &[String]) -> i32 {
    if !rest.is_empty() {
        return session.plain_error("too many arguments for reconfigure keyword");
    }
    order(session, ServiceOrder::Reconfigure, " Problem reconfiguring server: Access/permission denied")
}

/// Ends it.
pub(super) fn shutdown(session: &mut Session, rest: &[String]) -> i32 {
    if !rest.is_empty() {
        return session.plain_error("too many arguments for shutdown keyword");
    }
    order(session, ServiceOrder::Shutdown, " Problem shutting down server: Access/permission denied")
}

/// `clear stats`
pub(super) fn clear(session: &mut Session, rest: &[String]) -> i32 {
    match rest {
        [what] if begins("statistics", what, 3) || begins("stats", what, 3) => {
            order(session, ServiceOrder::ClearStatistics, " Problem clearing statistics: Access/permission denied")
        }
        [] => session.plain_error("too few arguments for clear keyword"),
        [what, ..] => session.plain_error(format_args!("invalid keyword: clear {what}")),
    }
}

/// Reports are summed up from records whenever they are asked for, so that there is nothing to be rolled up: scripts that ask for it
/// before their reports get what sacctmgr of Slurm 26.05.3 answered.
pub(super) fn rollup(session: &mut Session, rest: &[String]) -> i32 {
    if rest.len() > 3 {
        return session.plain_error("too many arguments for rollup keyword");
    }
    let zone = system_zone();
    for text in rest.iter().take(2) {
        if date::parse_past(text, Timestamp::now(), &zone).is_err() {
            session.plain_error(format_args!("Invalid time specification (pos={}): {text}", date::wrong_in_past(text)));
        }
    }
    let entities = match session.entities("") {
        Ok((entities, _)) => entities,
        Err(code) => return code,
    };
    let immediate = session.manner.immediate;
    let Ok(service) = session.service() else { return 1 };
    if !is_operator(service.cluster(), &entities) {
        // Nothing is said of it.
        return 0;
    }
    output::stderr(b"sacctmgr: accounting_storage/slurmdbd: acct_storage_p_roll_usage: SUCCESS\n");
    let mut live = Live::new(service);
    if !immediate && !asking::is_sure(&mut live, "Would you like to commit rollup?") {
        live.out(" Rollup Discarded\n");
    }
    let written = live.written();
    output::finish(&session.console, written, 0)
}

fn ping_lines(out: &mut dyn Write, services: &[json::Ping]) -> io::Result<()> {
    for (which, service) in ["primary", "backup"].iter().zip(services) {
        let word = if service.is_up { "UP" } else { "DOWN" };
        writeln!(out, "slurmdbd({which}) at {} is {word}", service.host)?;
    }
    Ok(())
}

/// The host of the service, as configured, and that of its backup. Where none is named, it is that of the controller.
fn configured_hosts() -> (String, Option<String>) {
    let Ok(cluster) = Cluster::find(None) else { return ("localhost".to_owned(), None) };
    let config = cluster.config();
    let of_controller = config.controllers.first().filter(|_| config.accounting_host == "localhost");
    (of_controller.map_or(&config.accounting_host, |host| &host.name).clone(), config.accounting_backup.clone())
}

/// Keys of `slurm.conf` that are about accounting, as Slurm shows them.
const OF_CLUSTER: [&str; 15] = [
    "AccountingStorageBackupHost",
    "AccountingStorageHost",
    "AccountingStorageParameters",
    "AccountingStoragePass",
    "AccountingStoragePort",
    "AccountingStorageType",
    "AuthType",
    "MessageTimeout",
    "PluginDir",
    "PrivateData",
    "SlurmUser",
    "SLURM_CONF",
    "SLURM_VERSION",
    "TCPTimeout",
    "TrackWCKey",
];

/// `sacctmgr show configuration`. The error is an exit code.
pub(super) fn configuration(session: &mut Session) -> Result<i32, i32> {
    if session.manner.form.is_some() {
        return Err(session.not_supported("a document of the configuration"));
    }
    let of_service = match session.service()?.ask(&AccountsRequest::Config) {
        Ok(AccountsReply::Config(pairs)) => pairs,
        Ok(_) => return Err(session.failed(&ClusterError::Unexpected("accounts").into(), "")),
        Err(error) => return Err(session.failed(&error, "")),
    };
    let of_cluster =
        Contact::open(&session.console).and_then(|mut cluster| match cluster.ask(&CommandRequest::ShowConfig)? {
            CommandReply::Config { pairs, .. } => Ok(pairs),
            other => Err(cluster.unexpected(&other)),
        });
    let of_cluster = of_cluster.map_err(|error| session.failed(&AccountsError::Cluster(error), ""))?;
    Ok(session.print(|out| write(out, &of_cluster, &of_service, &Clock::system())))
}

type Pairs = [(String, String)];

fn write(out: &mut dyn Write, of_cluster: &Pairs, of_service: &Pairs, clock: &Clock) -> io::Result<()> {
    writeln!(out, "Configuration data as of {}", Timestamp::text(clock.now, &clock.zone))?;
    for key in OF_CLUSTER {
        let Some((_, value)) = of_cluster.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)) else { continue };
        match key {
            // So in Slurm.
            "AccountingStorageBackupHost" => writeln!(out, "{key}  = {value}")?,
            "SlurmUser" => line(out, "SlurmUserId", value)?,
            _ => line(out, key, value)?,
        }
    }
    writeln!(out, "\nSlurmDBD configuration:")?;
    of_service.iter().try_for_each(|(key, value)| line(out, key, value))
}

fn line(out: &mut dyn Write, key: &str, value: &str) -> io::Result<()> {
    writeln!(out, "{key:<22} = {value}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use jiff::tz::TimeZone;

    #[test]
    fn a_backup_that_serves_is_shown_behind_the_one_that_does_not() {
        let of = |host: &str, is_up| json::Ping { host: host.to_owned(), is_up, latency_us: 1 };
        let mut out = Vec::new();
        ping_lines(&mut out, &[of("db1", false), of("db2", true)]).unwrap();
        let expected = "slurmdbd(primary) at db1 is DOWN\nslurmdbd(backup) at db2 is UP\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// Lines as sacctmgr of Slurm 26.05.3 set them.
    #[test]
    fn both_configurations_are_shown() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let of_cluster = [
            pair("AccountingStorageBackupHost", "(null)"),
            pair("AccountingStorageHost", "head"),
            pair("AccountingStorageParameters", "(null)"),
            pair("AuthType", "auth/munge"),
            pair("BatchStartTimeout", "10 sec"),
            pair("SlurmUser", "slurm(3000)"),
        ];
        let clock = Clock { zone: TimeZone::UTC, now: Timestamp::from_secs(1_795_423_188), format: None };
        let mut out = Vec::new();
        write(&mut out, &of_cluster, &[pair("DbdHost", "head")], &clock).unwrap();
        let expected = "Configuration data as of 2026-11-23T08:39:48\n\
            AccountingStorageBackupHost  = (null)\n\
            AccountingStorageHost  = head\n\
            AccountingStorageParameters = (null)\n\
            AuthType               = auth/munge\n\
            SlurmUserId            = slurm(3000)\n\n\
            SlurmDBD configuration:\n\
            DbdHost                = head\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
