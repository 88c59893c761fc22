//! What the controller's shells count for `sdiag`: jobs by what became of them, and requests of commands. In memory only, as in
//! Slurm; the scheduler counts its passes itself.

use garrick_model::{
    messages::statistics::{JobCounts, RequestCount, Statistics, UserCount},
    state::JobState,
    time::{Timestamp, micros},
    view::JobView,
};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How many, and how long together.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    micros: u64,
}

impl Sum {
    fn add(&mut self, took: Duration) {
        self.count += 1;
        self.micros += micros(took);
    }
}

#[derive(Debug)]
struct Counts {
    since: Timestamp,
    jobs: JobCounts,
    requests: BTreeMap<&'static str, Sum>,
    users: BTreeMap<u32, Sum>,
}

/// The counters of one controller. Jobs' begin anew at midnight (UTC).
#[derive(Debug)]
pub struct Counted {
    began: Timestamp,
    clock: Duration,
    counts: Mutex<Counts>,
}

impl Default for Counted {
    fn default() -> Self {
        let now = Timestamp::now();
        let counts =
            Counts { since: now, jobs: JobCounts::default(), requests: BTreeMap::new(), users: BTreeMap::new() };
        Self { began: now, clock: thousand_readings(), counts: Mutex::new(counts) }
    }
}

/// What reading the clock a thousand times takes.
fn thousand_readings() -> Duration {
    let began = Instant::now();
    for _ in 0..1000 {
        std::hint::black_box(Timestamp::now());
    }
    began.elapsed()
}

/// What became of a job, as soon as it is known.
fn outcome(view: &JobView) -> Option<JobState> {
    let over = !view.state.is_live();
    view.ending.or_else(|| over.then_some(view.state))
}

impl Counted {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job's view is replaced.
    pub fn job(&self, before: Option<&JobView>, view: &JobView) {
        // What was there before the controller was started is not news.
        let new = before.is_none() && view.submit_time >= self.began && view.array_task.is_none();
        let started = before.is_some_and(|before| before.state.waits() && view.state.works());
        let ended = outcome(view).filter(|_| before.is_some_and(|before| outcome(before).is_none()));
        if !new && !started && ended.is_none() {
            return;
        }
        let mut counts = self.counts();
        counts.of_today(Timestamp::now());
        let jobs = &mut counts.jobs;
        jobs.submitted += u64::from(new);
        jobs.started += u64::from(started);
        match ended {
            None => {}
            Some(JobState::Cancelled | JobState::Preempted) => jobs.cancelled += 1,
            Some(JobState::NodeFail | JobState::BootFail) => jobs.failed += 1,
            Some(_) => jobs.completed += 1,
        }
    }

    /// A request was answered.
    pub fn request(&self, name: &'static str, uid: u32, took: Duration) {
        let mut counts = self.counts();
        counts.requests.entry(name).or_default().add(took);
        counts.users.entry(uid).or_default().add(took);
    }

    /// All counters begin anew.
    pub fn reset(&self, now: Timestamp) {
        let mut counts = self.counts();
        (counts.since, counts.jobs) = (now, JobCounts::default());
        counts.requests.clear();
        counts.users.clear();
    }

    /// What was counted. The scheduler's part is missing, and how many jobs there are now.
    pub fn read(&self, now: Timestamp) -> Statistics {
        let mut counts = self.counts();
        counts.of_today(now);
        let request = |(name, sum): (&&'static str, &Sum)| RequestCount {
            request: (*name).to_owned(),
            count: sum.count,
            micros: sum.micros,
        };
        Statistics {
            at: now,
            since: counts.since,
            jobs: counts.jobs,
            requests: counts.requests.iter().map(request).collect(),
            users: counts
                .users
                .iter()
                .map(|(uid, s)| UserCount { uid: *uid, count: s.count, micros: s.micros })
                .collect(),
            clock_micros: micros(self.clock),
            ..Statistics::default()
        }
    }
}

impl Counts {
    fn of_today(&mut self, now: Timestamp) {
        if now.utc_day() != self.since.utc_day() {
            (self.since, self.jobs) = (now, JobCounts::default());
        }
    }
}
