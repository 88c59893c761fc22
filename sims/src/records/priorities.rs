//! Whether the controller pauses while the priorities of many waiting jobs are calculated anew: the longest time that it takes to
//! answer, compared with a controller that calculates none. Every job's priority changes each time.

use super::{Fallible, client, controller::Controller, submit_together};
use crate::minibatch::figures::{Findings, median};
use garrick_model::{
    ids::JobId,
    messages::command::{CommandReply, CommandRequest, JobSelector},
};
use std::time::{Duration, Instant};

/// Two calculations, and some more.
const WATCHED: Duration = Duration::from_secs(150);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(2);
/// After an hour of waiting age has its full weight; until then each calculation changes it by a sixtieth.
const CALCULATED: &str =
    "PriorityType=priority/multifactor\nPriorityWeightAge=1000000\nPriorityMaxAge=0-1\nPriorityCalcPeriod=1\n";

/// What was seen of one controller.
struct Seen {
    /// Milliseconds of the answers of each kind, sorted.
    answers: [(&'static str, Vec<f64>); 3],
    /// How often the priority of the first job changed.
    changes: usize,
}

impl Seen {
    fn of(lines: &str, jobs: usize) -> Fallible<Self> {
        let controller = Controller::up_with(None, lines)?;
        submit_together(controller.door(), controller.spec(), jobs)?;
        let first = || CommandRequest::list_jobs(vec![JobSelector::from(JobId(1))]);
        let mut seen = Self {
            answers: [("a ping", Vec::new()), ("a question for a job", Vec::new()), ("all nodes", Vec::new())],
            changes: 0,
        };
        let (began, mut known) = (Instant::now(), None);
        while began.elapsed() < WATCHED {
            let requests = [CommandRequest::Ping, first(), CommandRequest::ListNodes];
            for ((_, times), request) in seen.answers.iter_mut().zip(requests) {
                let asked = Instant::now();
                let mut client = client(controller.door())?;
                client.send(&request)?;
                let reply = client.recv::<CommandReply>()?;
                times.push(asked.elapsed().as_secs_f64() * 1e3);
                if let CommandReply::Jobs { jobs, .. } = reply {
                    let priority = jobs.first().map(|job| job.priority);
                    seen.changes += usize::from(known.is_some() && known != priority);
                    known = priority;
                }
                std::thread::sleep(PAUSE);
            }
        }
        seen.answers.iter_mut().for_each(|(_, times)| times.sort_by(f64::total_cmp));
        controller.down()?;
        Ok(seen)
    }
}

/// Latencies beside `jobs` waiting jobs, without and with priorities that change.
pub fn priorities(jobs: usize) -> Fallible<Findings> {
    let mut found = Findings::default();
    let (basic, calculated) = (Seen::of("", jobs)?, Seen::of(CALCULATED, jobs)?);
    if calculated.changes < 2 {
        return Err(format!("priorities changed {} times", calculated.changes).into());
    }
    let at = |sorted: &[f64], part: f64| sorted[((sorted.len() - 1) as f64 * part) as usize];
    let rows = basic.answers.iter().zip(&calculated.answers).map(|((what, basic), (_, calculated))| {
        let mut row = vec![(*what).to_owned()];
        for times in [basic, calculated] {
            row.push(format!("{:.2}", median(times.clone())));
            row.push(format!("{:.2}", at(times, 0.999)));
            row.push(format!("{:.1}", at(times, 1.0)));
        }
        row
    });
    found.table(
        format!("Milliseconds to an answer beside {jobs} waiting jobs, without priorities, and while they are calculated each minute"),
        &["", "median", "99.9 %", "longest", "calculated: median", "99.9 %", "longest"],
        rows.collect(),
    );
    found.note(format!("each for {} s; priorities changed {} times", WATCHED.as_secs(), calculated.changes));
    Ok(found)
}
