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
use garrick_accounts::tres::CPU;
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
}

impl std::fmt::Debug for Facts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Facts").field("window", &self.window).field("units", &self.units).finish_non_exhaustive()
    }
}

impl Facts<'_> {
    /// What a cluster had of each TRES in the window, amounts times seconds.
    fn had(&self, cluster: &str) -> BTreeMap<&str, u64> {
        let Some(cluster) = self.entities.clusters.get(cluster) else { return BTreeMap::new() };
        let secs = self.window.secs_of(cluster, self.now);
        let amount = |name: &String| cluster.tres.get(name).copied().unwrap_or(0).saturating_mul(secs);
        self.tres.iter().map(|name| (name.as_str(), amount(name))).collect()
    }

    /// An amount of a TRES on a cluster, as it is written.
    fn amount(&self, cluster: &str, tres: &str, secs: u64) -> String {
        let whole = self.had(cluster).get(tres).copied().unwrap_or(0);
        self.units.amount(secs, whole)
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
