//! Steps launched a second on a cluster without accounting, with it, and with it while the service is fed by another cluster as
//! many jobs and steps as a large site has; and what that feed takes. Two clusters of real daemons, one with and one without the
//! service, work in turns. Needs root.

use super::{
    fill::{self, RAN},
    since,
};
use crate::{
    database::{Database, Kind},
    faults::site::{Accounting, Plan, Site, write_program},
    minibatch::{
        cluster::{fresh_home, run},
        figures::{Findings, Goal, median},
        inside::Fallible,
        processes,
    },
};
use garrick_accounts::messages::{Feed, Kept, LogId};
use garrick_events::{event::ControllerEvent, progress::Position};
use garrick_frame::{DoorClient, LinkKind};
use garrick_model::time::Timestamp;
use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The feed sends so often.
const EVERY: Duration = Duration::from_millis(100);
/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Launching {
    /// Times that each cluster launches.
    pub rounds: usize,
    /// Steps of each time.
    pub steps: u32,
    /// Jobs that are fed a second.
    pub jobs_per_second: u32,
    /// Steps of each of them.
    pub steps_per_job: u32,
    /// How long the feed is measured while nothing is launched, seconds.
    pub feed_seconds: u32,
}

impl Launching {
    /// As it is to be shown.
    pub const USUAL: Self =
        Self { rounds: 7, steps: 10_000, jobs_per_second: 1_000, steps_per_job: 10, feed_seconds: 30 };
    /// To see that all works.
    pub const SHORT: Self = Self { rounds: 1, steps: 60, jobs_per_second: 20, steps_per_job: 3, feed_seconds: 1 };
}

/// What the feed came to.
#[derive(Clone, Copy, Debug, Default)]
struct Fed {
    jobs: u64,
    seconds: f64,
    /// Longest time between when something was due and when it was stored.
    latest: f64,
    /// CPU time of the service, seconds.
    cpu: f64,
}

/// Carries it out.
pub fn launching(setup: Launching, kind: Kind) -> Fallible<Findings> {
    let mut findings = Findings::default();
    let without = Site::up(fresh_home("launching")?, 1)?;
    let with = with_service("launching", kind, 1)?;
    let alone = feed(&with, setup, |_| Ok(()), Some(Duration::from_secs(setup.feed_seconds.into())))?.0;
    let (mut off, mut on, mut fed_on, mut fed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..=setup.rounds {
        let rates = [launched(&without, setup.steps)?, launched(&with, setup.steps)?];
        with.await_records()?;
        let (what, rate) = feed(&with, setup, |site| launched(site, setup.steps), None)?;
        with.await_records()?;
        // The first time caches are cold.
        if round > 0 || setup.rounds == 1 {
            off.push(rates[0]);
            on.push(rates[1]);
            fed_on.push(rate);
            fed.push(what);
        }
    }
    tell_feed(setup, alone, &fed, &mut findings);
    let (off, on, fed_on) = (median(off), median(on), median(fed_on));
    let line = |what: &str, rate: f64| vec![what.to_owned(), format!("{rate:.0}"), format!("{:.3}", rate / off)];
    findings.table(
        format!("Steps of /bin/true launched a second, {} at a time, medians of {}", setup.steps, setup.rounds),
        &["", "steps/s", "of that without"],
        vec![
            line("without accounting", off),
            line("with the service", on),
            line("with the service, which is fed by another cluster too", fed_on),
        ],
    );
    findings.amount("fewer steps with the service", 100.0 * (1.0 - on / off), "%", Some(Goal::AtMost(2.0)));
    Ok(findings)
}

fn tell_feed(setup: Launching, alone: Fed, beside: &[Fed], findings: &mut Findings) {
    let of = |what: &str, fed: Fed| {
        let wanted = f64::from(setup.jobs_per_second);
        let rate = fed.jobs as f64 / fed.seconds;
        vec![
            what.to_owned(),
            format!("{rate:.0}"),
            format!("{:.0}", rate * f64::from(setup.steps_per_job)),
            format!("{:.2}", rate / wanted),
            format!("{:.0}", fed.latest * 1e3),
            format!("{:.2}", fed.cpu / fed.seconds),
        ]
    };
    let sum = beside.iter().fold(Fed::default(), |sum, fed| Fed {
        jobs: sum.jobs + fed.jobs,
        seconds: sum.seconds + fed.seconds,
        latest: sum.latest.max(fed.latest),
        cpu: sum.cpu + fed.cpu,
    });
    findings.table(
        format!(
            "{} jobs and {} steps a second fed to slurmdbd",
            setup.jobs_per_second,
            setup.jobs_per_second * setup.steps_per_job
        ),
        &["", "jobs/s", "steps/s", "of what was due", "latest, ms", "cores of slurmdbd"],
        vec![of("when no step is launched", alone), of("while steps are launched", sum)],
    );
}

/// A cluster with the service.
pub fn with_service(name: &str, kind: Kind, nodes: u32) -> Fallible<Site> {
    let home = fresh_home(name)?;
    let accounting = Some(Accounting { database: Database::make(&home, kind)? });
    Ok(Site::up_with(home, Plan { accounting, ..Plan::of_root(nodes) })?)
}

/// Launches steps in a job of their own. Steps a second.
fn launched(site: &Site, steps: u32) -> Fallible<f64> {
    let (script, times) = (site.home.join("launch.sh"), site.home.join("launch.times"));
    let bin = site.bin();
    let text = format!(
        "#!/bin/sh\nexport PATH={}:$PATH\nbegan=$(date +%s.%N)\n\
         srun --async --array=0-{} -n1 --mem=20 -o /dev/null /bin/true > /dev/null && swait && \
         echo $began $(date +%s.%N) > {}\n",
        bin.display(),
        steps - 1,
        times.display()
    );
    write_program(&script, &text)?;
    let mut sbatch = site.command(0, "sbatch");
    run(sbatch.args(["--wait", "--exclusive", "-N1", "--mem=0", "-o", "/dev/null", "--chdir=/"]).arg(&script))?;
    let said = std::fs::read_to_string(&times)?;
    std::fs::remove_file(&times)?;
    let times: Vec<f64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [began, ended] = times[..] else { return Err(format!("the job said {said:?}").into()) };
    Ok(f64::from(steps) / (ended - began))
}

/// Feeds the service, as another cluster's controller does, for as long as something else is done or for that time.
fn feed<T: Default>(
    site: &Site,
    setup: Launching,
    meanwhile: impl FnOnce(&Site) -> Fallible<T>,
    time: Option<Duration>,
) -> Fallible<(Fed, T)> {
    let door = site.accounting_door().ok_or("the service has no door")?;
    let pid = site.service.as_ref().and_then(crate::faults::daemon::Daemon::pid).ok_or("the service does not run")?;
    let before = processes::cpu_time(pid)?;
    let is_over = AtomicBool::new(false);
    let (fed, other) = thread::scope(|scope| {
        let feeder = scope.spawn(|| {
            let feeder = Feeder::begin(&door);
            feeder.and_then(|feeder| feeder.feed(setup, &is_over)).map_err(|e| e.to_string())
        });
        let other = meanwhile(site);
        thread::sleep(time.unwrap_or_default());
        is_over.store(true, Ordering::Relaxed);
        let fed = feeder.join().map_err(|_| "the feed panicked".to_owned());
        (fed.and_then(|fed| fed), other)
    });
    let cpu = processes::cpu_time(pid)?.saturating_sub(before).as_secs_f64();
    Ok((Fed { cpu, ..fed? }, other?))
}

/// The controller of another cluster, as far as accounting sees it.
struct Feeder {
    client: DoorClient,
    position: u64,
    jobs: u32,
    /// Its jobs have greater numbers, a million for each second: no two feeds have the same.
    first: u32,
}

impl Feeder {
    /// Its log and its jobs are new ones each time.
    fn begin(door: &Path) -> Fallible<Self> {
        let mut client = DoorClient::connect(door, LinkKind::ControllerAccounts, "garrick-accounting", Some(PATIENCE))?;
        let now = Timestamp::now().0;
        let log = LogId(3, u64::try_from(now)?);
        client.send(&Feed::Hello { cluster: "other".to_owned(), log, inventory: None })?;
        let Kept::Welcome { stored: None, .. } = client.recv()? else { return Err("it is known".into()) };
        let first = u32::try_from(now / 1_000 % 4_000)? * 1_000_000;
        let mut feeder = Self { client, position: 0, jobs: 0, first };
        feeder.client.send(&Feed::Begin(Position(0)))?;
        feeder.is_stored(0)?;
        Ok(feeder)
    }

    fn is_stored(&mut self, at: u64) -> Fallible<()> {
        loop {
            match self.client.recv()? {
                Kept::Stored(stored) if stored == Position(at) => return Ok(()),
                Kept::Working | Kept::Entities(_) => {}
                other => return Err(format!("the service says {other:?}").into()),
            }
        }
    }

    fn feed(mut self, setup: Launching, is_over: &AtomicBool) -> Fallible<Fed> {
        let each = (setup.jobs_per_second * u32::try_from(EVERY.as_millis())? / 1_000).max(1);
        let (began, mut latest, mut due) = (Instant::now(), 0_f64, Instant::now());
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let now = Timestamp::now().0;
            let last = self.first + self.jobs;
            let jobs = last + 1..=last + each;
            let events: Vec<ControllerEvent> =
                jobs.flat_map(|id| fill::job_at(id, now - RAN, setup.steps_per_job)).collect();
            let upto = self.position + events.len() as u64;
            let (after, upto) = (Position(self.position), Position(upto));
            self.client.send(&Feed::Batch {
                after,
                upto,
                events,
                nodes: Default::default(),
                no_new_jobs: false,
                reservations: None,
            })?;
            self.is_stored(upto.0)?;
            (self.position, self.jobs) = (upto.0, self.jobs + each);
            latest = latest.max(due.elapsed().as_secs_f64());
            due += EVERY;
        }
        Ok(Fed { jobs: self.jobs.into(), seconds: since(began), latest, cpu: 0.0 })
    }
}
