//! The cost of a query, whatever the controller remembers: commands whose answers have ten lines at most, compared with
//! `/bin/true` started in the same way, with few jobs, with many that wait, and with as many that were cancelled.

use super::{Fallible, controller::Controller, submit, submit_together};
use crate::minibatch::{
    cluster::run,
    figures::{Findings, median},
};
use garrick_model::{
    job_query::JobQuery,
    messages::command::{CancelRequest, CommandReply, CommandRequest, JobSelector},
    spec::JobSpec,
};
use std::time::Instant;

/// Runs of each command.
const ROUNDS: usize = 40;
/// Name of the few jobs that are asked for.
const NAMED: &str = "few";
const FEW: usize = 10;

/// Each command in milliseconds, medians.
fn times(controller: &Controller, commands: &[Vec<String>]) -> Fallible<Vec<f64>> {
    let mut all = vec![Vec::with_capacity(ROUNDS); commands.len()];
    // In turns, so that what else this machine does meets all of them.
    for _ in 0..ROUNDS {
        for (words, times) in commands.iter().zip(&mut all) {
            let mut command = controller.command(&words[0])?;
            command.args(&words[1..]);
            let began = Instant::now();
            run(&mut command)?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(all.into_iter().map(median).collect())
}

fn cancel_all_others(controller: &Controller) -> Fallible<()> {
    controller.each_page(&JobQuery::live(), |client, jobs| {
        let others = jobs.iter().filter(|view| view.spec.name != NAMED);
        let jobs: Vec<JobSelector> = others.map(|view| view.id.into()).collect();
        if !jobs.is_empty() {
            client.send(&CommandRequest::Cancel(CancelRequest { jobs, ..CancelRequest::default() }))?;
            let _: CommandReply = client.recv()?;
        }
        Ok(())
    })
}

/// Latencies of commands beside `jobs` jobs.
pub fn queries(jobs: usize) -> Fallible<Findings> {
    let mut found = Findings::default();
    let controller = Controller::up(None)?;
    let named = JobSpec { name: NAMED.to_owned(), ..controller.spec().clone() };
    submit(controller.door(), &named, FEW, FEW)?;
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let lines = ["/bin/true", "squeue -j 2", "squeue -n few", "scontrol show job 2", "sinfo"];
    let mut commands: Vec<Vec<String>> = lines.map(words).to_vec();
    let few = times(&controller, &commands)?;
    submit_together(controller.door(), controller.spec(), jobs)?;
    let waiting = times(&controller, &commands)?;
    cancel_all_others(&controller)?;
    commands.push(words("squeue"));
    let ended = times(&controller, &commands)?;
    let columns = [few, waiting, ended];
    let rows = commands.iter().enumerate().map(|(at, words)| {
        let mut row = vec![words.join(" ")];
        for column in &columns {
            let (ms, floor) = (column.get(at), column[0]);
            row.push(ms.map_or_else(String::new, |ms| format!("{ms:.1}")));
            row.push(ms.map_or_else(String::new, |ms| format!("{:.1}", ms / floor)));
        }
        row
    });
    found.table(
        format!("Answers of at most {FEW} lines, in milliseconds (median of {ROUNDS}), and as a multiple of /bin/true"),
        &["", "few jobs", "", "many wait", "", "many ended", ""],
        rows.collect(),
    );
    found.note(format!("many: {jobs} jobs beside the few"));
    controller.down()?;
    Ok(found)
}
