//! Runs as `sacct --completion` shows them: lines of the text file of `jobcomp/filetxt`, Garrick's or Slurm's, or of what
//! `noded completed` prints of a database.

use crate::field_table::{self, Kind};
use std::collections::BTreeMap;

/// Shown unasked (seen in Slurm 26.05).
pub const USUAL: &str = "jobid,uid,jobname,partition,nnodes,nodelist,state,end";
/// With `--long`.
pub const LONG: &str = "jobid,uid,jobname,partition,nnodes,nodelist,state,start,end,timelimit";

/// The keys of a line, in its order. Names, folders and the like may have blanks in them, and so may be mistaken for what follows;
/// a key is looked for behind the one before it.
const KEYS: [&str; 27] = [
    "JobId",
    "UserId",
    "GroupId",
    "Name",
    "JobState",
    "Partition",
    "TimeLimit",
    "StartTime",
    "EndTime",
    "NodeList",
    "NodeCnt",
    "ProcCnt",
    "WorkDir",
    "ReservationName",
    "Tres",
    "Account",
    "QOS",
    "WcKey",
    "Cluster",
    "SubmitTime",
    "EligibleTime",
    "ArrayJobId",
    "ArrayTaskId",
    "HetJobId",
    "HetJobOffset",
    "DerivedExitCode",
    "ExitCode",
];

/// The name of the user alone, beside the keys.
const USER: &str = "User";

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run(BTreeMap<&'static str, String>);

/// What is recorded where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a text file.
    File,
    /// In a database: Slurm shows a user by his name alone then.
    Database,
}

impl Run {
    /// Of a line; `None`: it is none of a run.
    pub fn of(line: &str, from: Source) -> Option<Self> {
        let mut run = Self::of_line(line)?;
        if from == Source::Database {
            let name = run.value("UserId").rsplit_once('(').map(|(name, _)| name.to_owned());
            run.0.insert(USER, name.unwrap_or_default());
        }
        Some(run)
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut rest = line.strip_prefix("JobId=")?;
        let mut values = BTreeMap::new();
        let mut key = "JobId";
        for next in &KEYS[1..] {
            let mark = format!(" {next}=");
            // Older versions of Slurm wrote fewer keys.
            if let Some((value, behind)) = rest.split_once(&mark) {
                values.insert(key, value.to_owned());
                (key, rest) = (*next, behind);
            }
        }
        values.insert(key, rest.trim_end().to_owned());
        Some(Self(values))
    }

    fn value(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// The number of the job.
    pub fn job(&self) -> Option<u32> {
        self.value("JobId").parse().ok()
    }

    /// The number behind a name: `alice(1001)`.
    fn id(&self, key: &str) -> Option<u32> {
        self.value(key).rsplit_once('(')?.1.strip_suffix(')')?.parse().ok()
    }

    /// Whose it was.
    pub fn uid(&self) -> Option<u32> {
        self.id("UserId")
    }

    /// Of which group.
    pub fn gid(&self) -> Option<u32> {
        self.id("GroupId")
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.value("Name")
    }

    /// Its partition.
    pub fn partition(&self) -> &str {
        self.value("Partition")
    }

    /// Its account.
    pub fn account(&self) -> &str {
        self.value("Account")
    }

    fn group(&self) -> &str {
        let group = self.value("GroupId");
        group.rsplit_once('(').map_or(group, |(name, _)| name)
    }
}

/// What stands in a field.
type Shown = fn(&Run) -> String;
/// A field.
pub type Field = field_table::Field<Shown>;
/// A column.
pub type Column = field_table::Column<Shown>;

const fn number(name: &'static str, width: usize, value: Shown) -> Field {
    Field { kind: Kind::Number, ..field_table::text(name, width, value) }
}

const fn date(name: &'static str, value: Shown) -> Field {
    Field { kind: Kind::Date, ..field_table::text(name, 19, value) }
}

/// The fields of which the file has something.
static FIELDS: &[Field] = &[
    field_table::text("Account", 10, |run| run.account().to_owned()),
    number("AllocCPUS", 10, |run| run.value("ProcCnt").to_owned()),
    field_table::text("AllocTRES", 10, |run| run.value("Tres").to_owned()),
    field_table::text("Cluster", 10, |run| run.value("Cluster").to_owned()),
    field_table::text("DerivedExitCode", 15, |run| run.value("DerivedExitCode").to_owned()),
    date("Eligible", |run| run.value("EligibleTime").to_owned()),
    date("End", |run| run.value("EndTime").to_owned()),
    field_table::text("ExitCode", 8, |run| exit_code(run).to_owned()),
    number("GID", 6, |run| run.gid().map_or_else(String::new, |gid| gid.to_string())),
    field_table::text("Group", 9, |run| run.group().to_owned()),
    Field { left: true, ..field_table::text("JobID", 12, |run| run.value("JobId").to_owned()) },
    field_table::text("JobName", 10, |run| run.name().to_owned()),
    number("NCPUS", 10, |run| run.value("ProcCnt").to_owned()),
    number("NNodes", 8, |run| run.value("NodeCnt").to_owned()),
    field_table::text("NodeList", 15, |run| run.value("NodeList").to_owned()),
    field_table::text("Partition", 10, |run| run.partition().to_owned()),
    field_table::text("QOS", 10, |run| run.value("QOS").to_owned()),
    field_table::text("Reservation", 20, |run| run.value("ReservationName").to_owned()),
    date("Start", |run| run.value("StartTime").to_owned()),
    field_table::text("State", 10, |run| run.value("JobState").to_owned()),
    date("Submit", |run| run.value("SubmitTime").to_owned()),
    field_table::text("Timelimit", 10, |run| run.value("TimeLimit").to_owned()),
    number("UID", 6, |run| run.uid().map_or_else(String::new, |uid| uid.to_string())),
    // As Slurm shows it.
    field_table::text("User", 9, |run| run.0.get(USER).map_or_else(|| run.value("UserId"), String::as_str).to_owned()),
    field_table::text("WCKey", 10, |run| run.value("WcKey").to_owned()),
    field_table::text("WorkDir", 20, |run| run.value("WorkDir").to_owned()),
];

/// Before 20.02, Slurm's lines ended in other words.
fn exit_code(run: &Run) -> &str {
    run.value("ExitCode").split(' ').next().unwrap_or_default()
}

/// Reads a list of fields.
///
/// # Errors
/// The first that there is not.
pub fn columns(format: &str) -> Result<Vec<Column>, String> {
    field_table::columns(FIELDS, format)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::field_table::Setting;

    /// A line of Slurm 26.05.
    const LINE: &str = "JobId=5 UserId=root(0) GroupId=users(100) Name=a b JobState=FAILED Partition=debug TimeLimit=5 \
        StartTime=2026-11-28T11:28:22 EndTime=2026-11-28T11:28:23 NodeList=n0 NodeCnt=1 ProcCnt=1 WorkDir=/tmp/a b \
        ReservationName= Tres=cpu=1,mem=4000M,node=1,billing=1 Account= QOS= WcKey= Cluster=unknown \
        SubmitTime=2026-11-28T11:28:19 EligibleTime=2026-11-28T11:28:19 DerivedExitCode=0:0 ExitCode=3:0 ";

    fn shown(line: &str, format: &str) -> String {
        let mut out = Vec::new();
        let run = Run::of(line, Source::File).unwrap();
        let columns = columns(format).unwrap();
        Setting::Parsable2("|".to_owned()).row(&mut out, &columns, |shown| shown(&run)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_has_the_values_of_its_keys() {
        assert_eq!(shown(LINE, USUAL), "5|0|a b|debug|1|n0|FAILED|2026-11-28T11:28:23\n");
        assert_eq!(
            shown(LINE, "user,group,gid,exitcode,workdir,alloct,timel"),
            "root(0)|users|100|3:0|/tmp/a b|cpu=1,mem=4000M,node=1,billing=1|5\n"
        );
        let of_array = LINE.replace(" DerivedExitCode", " ArrayJobId=4 ArrayTaskId=1 DerivedExitCode");
        assert_eq!(shown(&of_array, "jobid,exit,elig"), "5|3:0|2026-11-28T11:28:19\n");
        assert!(columns(LONG).is_ok() && columns("nosuch").is_err());
    }

    #[test]
    fn a_row_of_a_database_names_its_user_without_a_number() {
        let run = Run::of(LINE, Source::Database).unwrap();
        assert_eq!((run.uid(), run.0.get(USER).map(String::as_str)), (Some(0), Some("root")));
    }

    #[test]
    fn what_is_no_line_of_a_run_is_none() {
        assert_eq!(Run::of("# moved away", Source::File), None);
        assert_eq!(Run::of("JobId=5", Source::File).unwrap().job(), Some(5));
        assert_eq!(Run::of("JobId=5 UserId=alice", Source::File).unwrap().uid(), None);
    }
}
