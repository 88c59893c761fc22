//! `sacctmgr show runawayjobs`: jobs that run by the records, but not for the controller.

use super::{
    Session,
    change::{
        asking,
        world::{Live, World as _},
    },
    list::{caller_is_operator, table, unknown_field},
};
use crate::output;
use garrick_accounts::{
    filter::JobFilter,
    messages::JobWithSteps,
    records::{MOST_RUNS, RecordsRequest},
    row::JobRow,
};
use garrick_asking::contact::{self, Contact};
use garrick_model::{messages::command::CommandRequest, state::JobState};
use garrick_render::{
    clock::Clock,
    field_table::{self, text as field},
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

/// Lists them and offers to give them an end. The error is an exit code.
pub(super) fn list(session: &mut Session, request: &Request) -> Result<i32, i32> {
    let columns = field_table::chosen(request.format.as_deref().unwrap_or(USUAL), find)
        .map_err(|name| unknown_field(session, &name))?;
    let end = end_state(request).map_err(|name| session.plain_error(format_args!(" Invalid end state: {name}")))?;
    if !caller_is_operator(session)? {
        session.console.error("You must have an AdminLevel>=Operator to fix runaway jobs");
        return Err(1);
    }
    let here = session.service()?.cluster().name().to_owned();
    let named = request.conditions.get(&Key::Cluster).and_then(|names| names.first());
    let cluster = named.cloned().unwrap_or_else(|| here.clone());
    if !request.takes(Key::Cluster, &here) {
        session.console.error(format_args!("runaway jobs of {cluster} can be looked for on that cluster only"));
        return Err(1);
    }
    let found = runaway(session, &here)?;
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
    repair(session, &here, &found, end)
}

/// Completed or failed, as sacctmgr(1) has it. The error is another word.
fn end_state(request: &Request) -> Result<JobState, String> {
    match request.conditions.get(&Key::EndState).and_then(|states| states.last()) {
        None => Ok(JobState::Completed),
        Some(state) if begins("completed", state, 2) => Ok(JobState::Completed),
        Some(state) if begins("failed", state, 1) => Ok(JobState::Failed),
        Some(other) => Err(other.clone()),
    }
}

fn repair(session: &mut Session, cluster: &str, found: &[JobRow], end: JobState) -> Result<i32, i32> {
    let asks = !session.manner.immediate;
    if session.manner.readonly {
        return Err(session.plain_error("Can't run this command in readonly mode."));
    }
    let mut live = Live::new(session.service()?);
    if asks && !asking::is_sure(&mut live, &question(end)) {
        live.out("Changes Discarded\n");
        let written = live.written();
        return Ok(output::finish(&session.console, written, 0));
    }
    let runs: Vec<_> = found.iter().map(|row| (row.job, row.sluid)).collect();
    let failed = end == JobState::Failed;
    let asked = runs.chunks(MOST_RUNS).try_for_each(|runs| {
        let request = RecordsRequest::Repair { cluster: cluster.to_owned(), runs: runs.to_vec(), failed };
        live.records(&request).map(drop)
    });
    asked.map(|()| 0).map_err(|error| session.failed(&error, ""))
}

/// In Slurm's words, though sums are made anew when they are asked for.
fn question(end: JobState) -> String {
    format!(
        "\nWould you like to fix these runaway jobs?\n(This sets the end time for each job to the latest of the job's start, \
         eligible, and submit times, and sets the state to {}.\nOnce corrected, this triggers the SlurmDBD to recalculate the \
         usage from before the earliest submit time of all the runaway jobs. Warning: This could take a long time and sreport \
         may not return data until the recalculation is completed.)\n\n",
        end.word().to_ascii_lowercase()
    )
}

/// Rows that wait or run, without those that the controller has. It is asked after the service: what began in between is no runaway.
fn runaway(session: &mut Session, cluster: &str) -> Result<Vec<JobRow>, i32> {
    let alive = [JobState::Pending, JobState::Running, JobState::Suspended].into();
    let filter = JobFilter { clusters: vec![cluster.to_owned()], states: alive, ..JobFilter::default() };
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
    rows.filter(|row| row.end.is_none() && !is_there(row)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_render::testing::accounting::{job_12, waiting, with_steps};

    #[test]
    fn only_jobs_that_run_by_the_records_alone_are_runaway() {
        let mut running = job_12();
        running.row.end = None;
        let ran = job_12();
        let rows = || vec![running.clone(), ran.clone(), with_steps(waiting(13, "w"), [])];
        let waits = rows().remove(2).row;
        assert_eq!(left_over(rows(), |_| false), [running.row.clone(), waits]);
        assert_eq!(left_over(rows(), |_| true), []);
    }

    #[test]
    fn a_state_for_the_end_may_be_chosen() {
        let state = |words: &[&str]| {
            end_state(&Request::read(garrick_render::sacctmgr::kind::Kind::RunawayJobs, words).unwrap())
        };
        assert_eq!(state(&[]), Ok(JobState::Completed));
        assert_eq!(state(&["set", "EndState=Failed"]), Ok(JobState::Failed));
        assert_eq!(state(&["set", "endstate=timeout"]), Err("timeout".to_owned()));
        assert!(question(JobState::Failed).contains("sets the state to failed.\n"));
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
