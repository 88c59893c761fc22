//! `sacctmgr show runawayjobs`: jobs that run by the records, but not for the controller.

use super::{
    Session,
    list::{caller_is_operator, table, unknown_field},
};
use garrick_accounts::{filter::JobFilter, messages::JobWithSteps, row::JobRow};
use garrick_asking::contact::{self, Contact};
use garrick_model::{messages::command::CommandRequest, state::JobState};
use garrick_render::{
    clock::Clock,
    field_table::{self, Kind as Long},
    sacct::state::RecordState,
    sacctmgr::{
        condition::{Key, Request},
        kind::begins,
    },
};
use std::collections::BTreeSet;

/// What stands in a field.
type Shown = fn(&JobRow, &Clock) -> String;
type Field = field_table::Field<Shown>;

const fn field(name: &'static str, width: usize, value: Shown) -> Field {
    Field { name, width, left: false, kind: Long::Text, value }
}

static FIELDS: [Field; 8] = [
    Field { left: true, ..field("ID", 12, |row, _| row.job.to_string()) },
    field("Name", 10, |row, _| row.name.clone()),
    field("Partition", 10, |row, _| row.partition.clone().unwrap_or_else(|| row.partitions.join(","))),
    field("Cluster", 10, |row, _| row.cluster.clone()),
    field("State", 10, |row, _| RecordState::of(row).word().to_owned()),
    field("TimeSubmit", 19, |row, clock| clock.at(row.submit)),
    field("TimeStart", 19, |row, clock| clock.at_or(row.start, "Unknown")),
    field("TimeEnd", 19, |row, clock| clock.at_or(row.end, "Unknown")),
];

const USUAL: &str = "id,name,partition,cluster,state,timesubmit,timestart,timeend";

/// The field of that name: times are known without `Time` too.
fn find(name: &str) -> Option<&'static Field> {
    let bare = |field: &Field| field.name.strip_prefix("Time").is_some_and(|bare| begins(bare, name, 1));
    FIELDS.iter().find(|field| begins(field.name, name, 1)).or_else(|| FIELDS.iter().find(|field| bare(field)))
}

/// Lists them. The error is an exit code.
pub(super) fn list(session: &mut Session, request: &Request) -> Result<i32, i32> {
    let columns = field_table::chosen(request.format.as_deref().unwrap_or(USUAL), find)
        .map_err(|name| unknown_field(session, &name))?;
    if !caller_is_operator(session)? {
        session.console.error("You must have an AdminLevel>=Operator to fix runaway jobs");
        return Err(1);
    }
    let here = session.service()?.cluster().name().to_owned();
    let named = request.conditions.get(&Key::Cluster).and_then(|names| names.first());
    let cluster = named.cloned().unwrap_or_else(|| here.clone());
    let found = if request.takes(Key::Cluster, &here) { runaway(session, &here)? } else { Vec::new() };
    if found.is_empty() {
        return Ok(session.print(|out| writeln!(out, "Runaway Jobs: No runaway jobs found on cluster {cluster}")));
    }
    session.print(|out| {
        writeln!(
            out,
            "NOTE: Runaway jobs are jobs that don't exist in the controller but have a start time and no end time in the \
             database"
        )
    });
    let clock = Clock::system();
    table(session, &columns, &found, |shown, row| shown(row, &clock));
    Err(session.not_supported("fixing runaway jobs"))
}

/// Rows that run, without those that the controller has. It is asked after the service: what began in between is no runaway.
fn runaway(session: &mut Session, cluster: &str) -> Result<Vec<JobRow>, i32> {
    let running = [JobState::Running, JobState::Suspended].into();
    let filter = JobFilter { clusters: vec![cluster.to_owned()], states: running, ..JobFilter::default() };
    let asked = session.service()?.jobs(&filter, false);
    let rows = asked.map_err(|error| session.failed(&error, ""))?;
    let request = CommandRequest::list_jobs(Vec::new());
    let live = Contact::open(&session.console).and_then(|mut cluster| contact::known_jobs(&mut cluster, &request));
    let live = live.map_err(|error| session.failed(&error.into(), ""))?;
    let runs: BTreeSet<_> = live.iter().map(|job| job.sluid).collect();
    Ok(left_over(rows.jobs, |row| runs.contains(&row.sluid)))
}

fn left_over(rows: Vec<JobWithSteps>, is_there: impl Fn(&JobRow) -> bool) -> Vec<JobRow> {
    let rows = rows.into_iter().map(|job| job.row);
    rows.filter(|row| row.start.is_some() && row.end.is_none() && !is_there(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_render::testing::accounting::{job_12, waiting, with_steps};

    #[test]
    fn only_jobs_that_run_by_the_records_alone_are_runaway() {
        let mut running = job_12();
        running.row.end = None;
        let ran = job_12();
        let rows = || vec![running.clone(), ran.clone(), with_steps(waiting(13, "w"), [])];
        assert_eq!(left_over(rows(), |_| false), [running.row.clone()]);
        assert_eq!(left_over(rows(), |_| true), []);
    }

    #[test]
    fn fields_may_be_begun() {
        let names: Vec<_> =
            ["id", "part", "start", "end", "timesub", "bogus"].map(find).map(|f| f.map(|f| f.name)).into();
        assert_eq!(
            names,
            [Some("ID"), Some("Partition"), Some("TimeStart"), Some("TimeEnd"), Some("TimeSubmit"), None]
        );
    }
}
