//! Reports of what was used, as `sreport` prints them (sreport(1)): sums of the service in, text out.
//!
//! | module | what it is |
//! |---|---|
//! | [`units`] | how amounts are written: minutes, hours, percent |
//! | [`tree`] | accounts with those below them |
//! | [`usage`] | reports of accounts, users and WCKeys |
//! | [`cluster`] | use of a cluster as a whole |
//! | [`reservation`] | use of reservations |
//! | [`sizes`] | jobs by their size |

pub mod cluster;
pub mod reservation;
pub mod sizes;
pub mod tree;
pub mod units;
pub mod usage;

use crate::sacctmgr::kind::begins;
use garrick_accounts::{
    event::EventRow,
    tres::{CPU, ENERGY},
};
use garrick_model::{
    entities::{Entities, names::Cluster},
    time::Timestamp,
};
use std::collections::BTreeMap;
use units::Units;

/// What a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// `cluster AccountUtilizationByUser`
    AccountByUser,
    /// `cluster AccountUtilizationByQOS`
    AccountByQos,
    /// `cluster UserUtilizationByAccount`
    UserByAccount,
    /// `cluster UserUtilizationByWckey`
    UserByWckey,
    /// `cluster Utilization`
    Cluster,
    /// `cluster WCKeyUtilizationByUser`
    WckeyByUser,
    /// `job SizesByAccount`
    SizesByAccount,
    /// `job SizesByAccountAndWckey`
    SizesByAccountAndWckey,
    /// `job SizesByWckey`
    SizesByWckey,
    /// `reservation Utilization`
    Reservation,
    /// `user TopUsage`
    TopUsage,
}

/// The kinds of reports with their names. The first that begins as typed is meant.
const REPORTS: [(&str, &[(&str, Report)]); 4] = [
    (
        "cluster",
        &[
            ("AccountUtilizationByUser", Report::AccountByUser),
            ("AccountUtilizationByQOS", Report::AccountByQos),
            ("UserUtilizationByAccount", Report::UserByAccount),
            ("UserUtilizationByWckey", Report::UserByWckey),
            ("Utilization", Report::Cluster),
            ("WCKeyUtilizationByUser", Report::WckeyByUser),
        ],
    ),
    (
        "job",
        &[
            ("SizesByAccount", Report::SizesByAccount),
            ("SizesByAccountAndWckey", Report::SizesByAccountAndWckey),
            ("SizesByWckey", Report::SizesByWckey),
        ],
    ),
    ("reservation", &[("Utilization", Report::Reservation)]),
    ("user", &[("TopUsage", Report::TopUsage)]),
];

/// A report that is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// No such kind.
    #[error("invalid keyword: {0}")]
    Kind(String),
    /// None is named.
    #[error("too few arguments for keyword:{0}")]
    Missing(&'static str),
    /// No such report.
    #[error("Not valid report {name}\nValid {kind} reports are, {reports}")]
    Name {
        /// As typed.
        name: String,
        /// Of which kind.
        kind: &'static str,
        /// Those that there are.
        reports: String,
    },
}

/// Names in quotes: `"A", "B", and "C"`.
fn quoted(names: &[(&str, Report)]) -> String {
    let names: Vec<String> = names.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{}, and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

impl Report {
    /// Reads kind and name.
    ///
    /// # Errors
    /// There is no such report.
    pub fn read(kind: &str, name: Option<&str>) -> Result<Self, ReportError> {
        let (kind, reports) = REPORTS
            .iter()
            .find(|(known, _)| begins(known, kind, 1))
            .ok_or_else(|| ReportError::Kind(kind.to_owned()))?;
        let name = name.ok_or(ReportError::Missing(kind))?;
        let exact = reports.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let found = exact.or_else(|| reports.iter().find(|(known, _)| begins(known, name, 1)));
        found.map(|(_, report)| *report).ok_or_else(|| ReportError::Name {
            name: name.to_owned(),
            kind,
            reports: quoted(reports),
        })
    }

    /// The names, for completion.
    pub fn names(kind: &str) -> impl Iterator<Item = &'static str> {
        let of_kind = REPORTS.iter().filter(move |(known, _)| *known == kind);
        of_kind.flat_map(|(_, reports)| reports.iter().map(|(name, _)| *name))
    }
}

/// The kinds, for completion.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    REPORTS.iter().map(|(kind, _)| *kind)
}

/// From when to when, the end not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Beginning.
    pub start: Timestamp,
    /// End.
    pub end: Timestamp,
}

impl Window {
    /// Seconds.
    pub fn secs(self) -> u64 {
        u64::try_from(self.end.secs() - self.start.secs()).unwrap_or(0)
    }

    /// Seconds for which a cluster was there until now.
    pub fn secs_of(self, cluster: &Cluster, now: Timestamp) -> u64 {
        Self { start: self.start.max(cluster.created), end: self.end.min(now) }.secs()
    }
}

/// What a report is made of.
#[derive(Clone, Copy)]
pub struct Facts<'f> {
    /// Accounts, users, clusters.
    pub entities: &'f Entities,
    /// Window.
    pub window: Window,
    /// Now, by the service's clock.
    pub now: Timestamp,
    /// How amounts are written.
    pub units: Units,
    /// TRES that are reported.
    pub tres: &'f [String],
    /// The full name of a user.
    pub proper: &'f dyn Fn(&str) -> String,
    /// What clusters had, and when: their events in the window, as they began.
    pub events: &'f [EventRow],
}

impl std::fmt::Debug for Facts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Facts").field("window", &self.window).field("units", &self.units).finish_non_exhaustive()
    }
}

impl Facts<'_> {
    /// What a cluster had at a time, with the seconds of that time in the window. What it had before the first time that is recorded
    /// is taken to be the same, and where none is recorded, what it has now.
    fn sizes<'c>(&'c self, cluster: &'c Cluster) -> Vec<(&'c BTreeMap<String, u64>, u64)> {
        let had = self.events.iter().filter(|event| event.is_registration() && event.cluster == cluster.name);
        let last = self.window.end.min(self.now);
        let first = self.window.start.max(cluster.created);
        let size = |(number, event): (usize, &'c EventRow)| {
            let start = if number == 0 { first } else { event.start.max(first) };
            let end = event.end.map_or(last, |end| end.min(last));
            (&event.tres, Window { start, end }.secs())
        };
        let sizes: Vec<_> = had.enumerate().map(size).collect();
        if sizes.is_empty() { vec![(&cluster.tres, self.window.secs_of(cluster, self.now))] } else { sizes }
    }

    /// What a cluster had of a TRES in the window, amounts times seconds.
    fn had(&self, cluster: &Cluster, tres: &str) -> u64 {
        let sizes = self.sizes(cluster).into_iter();
        sizes.map(|(had, secs)| had.get(tres).copied().unwrap_or(0).saturating_mul(secs)).fold(0, u64::saturating_add)
    }

    /// How much of a TRES a cluster had at the end of the window; `None`: nothing is known of it.
    fn count(&self, cluster: &Cluster, tres: &str) -> Option<u64> {
        let sizes = self.sizes(cluster);
        let last = sizes.iter().rev().find(|(_, secs)| *secs > 0).or(sizes.last());
        last.and_then(|(had, _)| had.get(tres).copied())
    }

    /// An amount of a TRES on a cluster, as it is written.
    fn amount(&self, cluster: &str, tres: &str, secs: u64) -> String {
        let whole = self.entities.clusters.get(cluster).map_or(0, |cluster| self.had(cluster, tres));
        // Energy is no amount that is had for a time.
        let units = if tres == ENERGY { self.units.of_amounts() } else { self.units };
        units.amount(secs, whole)
    }
}

/// The TRES that is reported unasked.
pub const USUAL_TRES: &str = CPU;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// As sreport of Slurm 26.05.3 took and refused them.
    #[test]
    fn reports_are_named_or_begun() {
        let read = Report::read;
        assert_eq!(read("cl", Some("ut")), Ok(Report::Cluster));
        assert_eq!(read("cluster", Some("utilization")), Ok(Report::Cluster));
        assert_eq!(read("user", Some("Top")), Ok(Report::TopUsage));
        assert_eq!(read("job", Some("Sizes")), Ok(Report::SizesByAccount));
        let said = |kind, name| read(kind, name).unwrap_err().to_string();
        assert_eq!(said("bogus", None), "invalid keyword: bogus");
        assert_eq!(said("user", None), "too few arguments for keyword:user");
        assert_eq!(
            said("cluster", Some("bogus")),
            "Not valid report bogus\nValid cluster reports are, \"AccountUtilizationByUser\", \
             \"AccountUtilizationByQOS\", \"UserUtilizationByAccount\", \"UserUtilizationByWckey\", \"Utilization\", and \
             \"WCKeyUtilizationByUser\""
        );
    }
}
