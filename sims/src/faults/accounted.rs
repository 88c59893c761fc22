//! Kills of all that keeps records of jobs: the service of accounting, its database's server, the controller, and step managers, at
//! random moments while jobs and steps run. In the end the records are what jobs, step managers and the controller have told, once.

use super::{
    FaultsError,
    injury::{Book, Fault, drawn},
    ledger::{self, Sums},
    report::Report,
    run::{Play, Stage, millis},
    site::{Accounting, Plan, Site},
    verdict::{Case, Verdict, Wrong},
    work::JobPlan,
};
use crate::{
    database::{self, Database, Kind},
    minibatch::{figures::Table, inside::Fallible},
};
use garrick_accountant::pages::{Cursor, Question};
use garrick_accounts::{filter::JobFilter, messages::JobWithSteps};
use garrick_simulator::random::Random;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// How often each, in a thousand. Where there is no server, its part is the service's.
const WEIGHTS: [(Fault, u32); 4] =
    [(Fault::KillService, 300), (Fault::KillDatabase, 200), (Fault::KillController, 200), (Fault::KillStepd, 300)];
/// Between two kills, milliseconds.
const BETWEEN_MS: (u32, u32) = (100, 1_500);
const SUBMITTERS: usize = 3;
/// Jobs in the queue for each node.
const LIVE_PER_NODE: usize = 6;
/// All is recorded in the end; where nothing moves for so long, it never is.
const PATIENCE: Duration = Duration::from_secs(180);
const PROGRESS_EVERY: Duration = Duration::from_secs(20);

/// What a run is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounted {
    /// Everything that is drawn follows from it. What becomes of it on a machine does not.
    pub seed: u64,
    /// Kills, at least.
    pub kills: u32,
    /// Acknowledged jobs, at least.
    pub jobs: u32,
    /// Steps of each.
    pub steps_per_job: u32,
    /// Nodes.
    pub nodes: u32,
    /// Where records are.
    pub database: Kind,
}

impl Accounted {
    /// The command that repeats it.
    pub fn command(&self) -> String {
        let Self { seed, kills, jobs, steps_per_job, nodes, database } = self;
        format!(
            "garrick-accounting kills --seed {seed} --count {kills} --jobs {jobs} --steps {steps_per_job} --nodes {nodes} \
             --database {}",
            database.word()
        )
    }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As of every run with faults.
    pub report: Report,
    /// What was told, and what is recorded.
    pub sums: Sums,
    /// Times that the controller began to feed.
    pub conversations: usize,
}

impl Outcome {
    /// Who was killed how often.
    pub fn victims(&self) -> Table {
        let Book { done, .. } = &self.report.book;
        let mut rows: Vec<Vec<String>> = done
            .iter()
            .filter(|(fault, _)| fault.is_kill())
            .map(|(fault, times)| vec![fault.to_string(), times.to_string()])
            .collect();
        rows.push(vec!["all".to_owned(), self.report.book.kills().to_string()]);
        table(format!("Kills in {:.0} s", self.report.hurt_for.as_secs_f64()), &["victim", "kills"], rows)
    }

    /// What was told, and what is recorded.
    pub fn comparison(&self) -> Table {
        let row = |(what, told, recorded): (&str, u64, u64)| {
            vec![
                what.to_owned(),
                told.to_string(),
                recorded.to_string(),
                (i128::from(recorded) - i128::from(told)).to_string(),
            ]
        };
        table(
            "What was told, and what is recorded".to_owned(),
            &["", "told", "recorded", "difference"],
            self.sums.lines().map(row).into(),
        )
    }
}

fn table(title: String, head: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table { title, head: head.iter().map(|word| (*word).to_owned()).collect(), rows }
}

/// Carries it out.
pub fn run(setup: Accounted) -> Result<Outcome, FaultsError> {
    let mut play = Kills { setup, sums: Sums::default(), conversations: 0 };
    let plan = |home: &Path| {
        let database = Database::make(home, setup.database).map_err(|e| FaultsError::Other(e.to_string()))?;
        Ok(Plan { accounting: Some(Accounting { database }), ..Plan::of_root(setup.nodes) })
    };
    let report = Stage::play(setup.seed, plan, &mut play)?;
    Ok(Outcome { report, sums: play.sums, conversations: play.conversations })
}

struct Kills {
    setup: Accounted,
    sums: Sums,
    conversations: usize,
}

impl Play for Kills {
    fn act(&mut self, stage: &mut Stage) -> Result<(), FaultsError> {
        let (setup, mut next, mut progress) = (self.setup, Instant::now(), Instant::now());
        loop {
            let now = Instant::now();
            let (kills, jobs) = (stage.injurer.book.kills(), stage.clients.acknowledged.len() as u32);
            if kills >= setup.kills && jobs >= setup.jobs {
                return Ok(());
            }
            if now >= next && kills < setup.kills {
                let fault = victim(kills, &stage.site, &mut stage.random);
                stage.injurer.kill(fault, &mut stage.site, &mut stage.random);
                next = now + millis(BETWEEN_MS, &mut stage.random);
            }
            let under_way = stage.clients.under_way().len();
            if under_way < SUBMITTERS && stage.clients.live + under_way < LIVE_PER_NODE * setup.nodes as usize {
                let serial = stage.plans.len() as u32 + 1;
                let plan = JobPlan::draw(serial, setup.steps_per_job, false, &mut stage.random);
                stage.submit(plan)?;
            }
            stage.tick(now)?;
            if now - progress > PROGRESS_EVERY {
                progress = now;
                eprintln!(
                    "{:5.0} s: {jobs} jobs, {kills} kills, {} live",
                    stage.age().as_secs_f64(),
                    stage.clients.live
                );
            }
        }
    }

    /// The service has everything, and ends.
    fn settle(&mut self, stage: &mut Stage) -> Result<(), FaultsError> {
        let (mut before, mut moved) = (None, Instant::now());
        loop {
            let queue = stage.site.accounting_queue().ok();
            if queue == Some(0) {
                break;
            }
            if queue != before {
                (before, moved) = (queue, Instant::now());
            } else if moved.elapsed() > PATIENCE {
                stage.complain(Wrong::Lost, format!("what waits for accounting does not get less: {queue:?}"));
                break;
            }
            let until = Instant::now() + Duration::from_millis(300);
            while Instant::now() < until {
                stage.tick(Instant::now())?;
            }
        }
        Ok(())
    }

    fn judge(&mut self, site: &Site, case: &Case<'_>, verdict: &mut Verdict) -> Result<(), FaultsError> {
        let rows = rows(site)?;
        self.sums = ledger::compare(case, &rows, verdict);
        let log = std::fs::read_to_string(site.home.join("slurmdbd.log")).unwrap_or_default();
        self.conversations = log.lines().filter(|line| line.contains("a controller has come")).count();
        Ok(())
    }
}

/// Who is killed next: once each, then as it is drawn.
fn victim(kills: u32, site: &Site, random: &mut Random) -> Fault {
    let first = WEIGHTS.get(kills as usize).map(|(fault, _)| *fault);
    match first.or_else(|| drawn(&WEIGHTS, random)) {
        Some(Fault::KillDatabase) if !site.has_server() => Fault::KillService,
        drawn => drawn.unwrap_or(Fault::KillService),
    }
}

/// All that is recorded.
fn rows(site: &Site) -> Result<Vec<JobWithSteps>, FaultsError> {
    let failed = |e: &dyn std::fmt::Display| FaultsError::Other(format!("reading records: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| failed(&e))?;
    runtime.block_on(read(&site.accounting_conf())).map_err(|e| failed(&e))
}

/// Read from the database, which nobody writes to any more.
async fn read(settings: &Path) -> Fallible<Vec<JobWithSteps>> {
    let store = database::open(&database::storage(settings)?).await?;
    let filter = JobFilter { duplicates: true, ..JobFilter::default() };
    let (mut all, mut cursor, mut after): (Vec<JobWithSteps>, _, _) = (Vec::new(), Cursor::default(), None);
    loop {
        let question = Question { filter: &filter, steps: true, after: after.as_ref(), only: None };
        let page = store.page(question, &mut cursor).await?;
        for job in page.jobs {
            // A run whose steps did not fit into a page comes again with the rest of them.
            match all.last_mut().filter(|last| last.row.sluid == job.row.sluid) {
                Some(last) => last.steps.extend(job.steps),
                None => all.push(job),
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}
