//! `garrick steps --follow`: steps as they end, and the progress of their job. The job's step manager reports that there is news;
//! then the daemon of the run's batch host reads further in the records. Either of the two may be killed and come back: then the
//! records are read from the beginning, and what was shown already is skipped.

use super::{News, Request, job_text, runs_of, shown::Shown, tell};
use crate::{
    output::{self, Console},
    query::arguments::Arguments,
    waiting::{
        progress::Ticker,
        terminal,
        wait_bar::{Pace, Standing, WaitBar},
    },
};
use garrick_asking::{
    cluster::{Cluster, ClusterError},
    manager::{Around, Way},
    patience::{self, Next},
    run_records::{self, Heard, Part, Sought},
    search::{NoWay, Search, Until},
    signals::Signals,
};
use garrick_frame::{DoorClient, DoorError};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::{
        command::{CommandReply, CommandRequest, JobSelector},
        records::{RecordsRequest, WantedRecords},
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    refusal::Refusal,
    state::StepState,
    step_selector::StepsSelector,
    view::StepCounts,
};
use garrick_render::{steps::FAILED, words::step_counts};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use std::{
    env,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

/// Least time between two messages of the step manager, in milliseconds: as often as a person reads.
const PROGRESS_MS: u32 = 200;
/// Tries to read on in records whose daemon is away, once the job is over.
const LAST_TRIES: u32 = 15;
/// Least pause before records are asked for again whose daemon is away or busy.
const LOOK_AGAIN: Duration = Duration::from_secs(3);
/// The answer is not whole.
const NOT_WHOLE: i32 = 2;

/// What is said besides the steps; without a choice of steps those are chosen that failed.
pub(super) fn news(arguments: &Arguments, states: &mut Vec<StepState>) -> Result<News, String> {
    for other in ["sort", "summary", "svg"] {
        if arguments.has(other) {
            return Err(format!("--follow and --{other} do not go together: steps are shown as they end"));
        }
    }
    if arguments.has("json") && arguments.value("json").as_deref() != Some("lines") {
        return Err("--follow goes with --json=lines, an object a line".to_owned());
    }
    if states.iter().any(|state| matches!(state, StepState::Pending | StepState::Running)) {
        return Err("--follow shows steps as they end, and neither those that wait nor those that run".to_owned());
    }
    if states.is_empty() && !arguments.has("json") && !arguments.has("joblog") {
        states.extend(FAILED);
        return Ok(News::Always);
    }
    Ok(News::OnTerminal)
}

/// Follows one named job after the other. Returns the exit code.
pub(super) fn main(cluster: &Cluster, console: &Console, request: &Request, news: News) -> i32 {
    let Ok(signals) = Signals::block(&[Signal::SIGINT, Signal::SIGTERM]) else {
        console.error("cannot watch for signals");
        return 1;
    };
    let mut code = 0;
    let written = output::stdout_as_is(|out| {
        let mut shown = Shown::new(request, out)?;
        shown.flush()?;
        let until = Until::signal(&signals);
        let mut named = Vec::new();
        for each in &request.named {
            match run_records::by_number_until(cluster, console, each, until) {
                Ok(found) => named.extend(found),
                Err(no_way) => {
                    if let End::Signal(signal) = End::from(no_way) {
                        code = 128 + signal;
                    }
                    return shown.finish();
                }
            }
        }
        for (which, named) in runs_of(&named) {
            let wanted = WantedRecords { which, ..request.wanted.clone() };
            let mut followed = Followed::new(cluster, console, &signals, named, wanted, &mut shown, news);
            match followed.to_the_end() {
                Ok(whole) => code = code.max(if whole { 0 } else { NOT_WHOLE }),
                Err(End::Signal(signal)) => {
                    code = 128 + signal;
                    break;
                }
                Err(End::Closed) => break,
                Err(End::Failed(error)) => code = code.max(tell(console, &job_text(&followed.named), &error)),
                Err(End::Pending(job)) => {
                    console.error(format_args!("job {job} is still pending: nothing runs that could be followed"));
                    code = code.max(1);
                }
            }
            drop(followed);
            shown.end_of_run()?;
        }
        shown.finish()
    });
    output::finish(console, written, code)
}

/// What ends it before its time.
enum End {
    Signal(i32),
    /// The reader of the output is gone.
    Closed,
    Failed(ClusterError),
    Pending(JobId),
}

impl From<ClusterError> for End {
    fn from(error: ClusterError) -> Self {
        Self::Failed(error)
    }
}

impl From<NoWay> for End {
    fn from(no_way: NoWay) -> Self {
        match no_way {
            NoWay::Interrupted(signal) => Self::Signal(signal),
            other => Self::Failed(other.into_error()),
        }
    }
}

/// What the step manager said last.
enum Said {
    /// Nothing is left.
    Over,
    /// The connection broke.
    Lost(DoorError),
}

/// Where it is shown how far the job is.
enum Progress {
    Bars(Box<WaitBar>),
    Lines(Ticker, Pace, Instant),
    Nothing,
}

impl Progress {
    fn show(&mut self, job: JobId, standing: &Standing) {
        match self {
            Self::Bars(bars) => bars.show(standing),
            Self::Lines(ticker, pace, since) => {
                pace.saw(since.elapsed(), &standing.counts);
                let line = format!("job {job}: {}", pace.line(&standing.counts));
                output::stderr(ticker.show(&line, Instant::now()).as_bytes());
            }
            Self::Nothing => {}
        }
    }

    fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match self {
            Self::Bars(bars) => bars.aside(write),
            _ => write(),
        }
    }

    /// Nothing is in the way of what is said.
    fn clear(&self) {
        if let Self::Bars(bars) = self {
            bars.clear();
        }
    }

    /// The line that stays.
    fn finish(&mut self, job: &str, counts: &StepCounts) {
        if matches!(std::mem::replace(self, Self::Nothing), Self::Bars(_) | Self::Lines(..)) {
            output::stderr(format!("job {job}: {}\n", step_counts(counts)).as_bytes());
        }
    }
}

/// A run that is followed.
struct Followed<'a, 'o> {
    cluster: &'a Cluster,
    console: &'a Console,
    signals: &'a Signals,
    named: StepsSelector,
    wanted: WantedRecords,
    shown: &'a mut Shown<'o>,
    news: News,
    /// The conversation about its records.
    records: Option<DoorClient>,
    /// Their daemon did not answer: when it is asked again.
    again_at: Option<Instant>,
    /// That was said.
    said_away: bool,
    /// The run that is followed, once it was told of: the job may run once more, and that is another one.
    run: Option<Sluid>,
    /// Steps that were passed on, wanted ones alone.
    told: u64,
    /// Of all steps, as far as the records were read.
    counts: StepCounts,
    damaged: bool,
    progress: Progress,
}

impl<'a, 'o> Followed<'a, 'o> {
    fn new(
        cluster: &'a Cluster,
        console: &'a Console,
        signals: &'a Signals,
        named: StepsSelector,
        wanted: WantedRecords,
        shown: &'a mut Shown<'o>,
        news: News,
    ) -> Self {
        Self {
            cluster,
            console,
            signals,
            named,
            wanted,
            shown,
            news,
            records: None,
            again_at: None,
            said_away: false,
            run: None,
            told: 0,
            counts: StepCounts::default(),
            damaged: false,
            progress: Progress::Nothing,
        }
    }

    /// The job, by its number; `None`: the controller knows none that could run.
    fn job(&self) -> Result<Option<JobId>, End> {
        let Some(run) = self.named.run else {
            let known = self.named.task.is_none() && self.named.het.is_none();
            return Ok(known.then_some(self.named.job));
        };
        let request = CommandRequest::list_jobs(vec![JobSelector::from(run)]);
        match patience::ask_until(self.cluster, self.console, &request, Until::signal(self.signals)) {
            Ok(CommandReply::Jobs { jobs, .. }) => Ok(jobs.iter().find(|job| job.sluid == run).map(|job| job.id)),
            Ok(_) => Err(ClusterError::Unexpected("asked for a job").into()),
            Err(NoWay::Failed(error)) if matches!(error.refusal(), Some(Refusal::InvalidJobId)) => Ok(None),
            Err(no_way) => Err(no_way.into()),
        }
    }

    /// True: all that there was is shown.
    fn to_the_end(&mut self) -> Result<bool, End> {
        let heard_all = match self.job()? {
            Some(job) => {
                self.progress = match self.news {
                    _ if terminal::is_terminal(2) => Progress::Bars(Box::new(WaitBar::new(job))),
                    News::Always => Progress::Lines(Ticker::new(Instant::now()), Pace::new(), Instant::now()),
                    News::OnTerminal => Progress::Nothing,
                };
                self.while_it_runs(job)?
            }
            None => true,
        };
        self.read_to_the_end()?;
        let job = job_text(&self.named);
        self.progress.finish(&job, &self.counts);
        Ok(heard_all && !self.damaged)
    }

    /// Hears what the step manager says until nothing is left. False: it could not be heard to the end.
    fn while_it_runs(&mut self, job: JobId) -> Result<bool, End> {
        let until = Until::signal(self.signals);
        let mut search = Search::new(Way::new(None, self.console, job), self.console);
        let mut found = search.begin(until);
        loop {
            let error = match found {
                Ok(door) => match self.at(door, job, &mut search)? {
                    Said::Over => return Ok(true),
                    Said::Lost(error) => ClusterError::Door(error),
                },
                Err(NoWay::Interrupted(signal)) => return Err(End::Signal(signal)),
                Err(NoWay::Failed(error)) => {
                    return match error.refusal() {
                        Some(Refusal::AlreadyDone | Refusal::InvalidJobId) => Ok(true),
                        Some(Refusal::JobPending) => Err(End::Pending(job)),
                        Some(Refusal::AccessDenied) => Err(End::Failed(error)),
                        _ => {
                            self.progress.clear();
                            self.console.error(format_args!("job {job}: its step manager does not answer: {error}"));
                            Ok(false)
                        }
                    };
                }
                // How its steps ended is in its records.
                Err(NoWay::Over(_) | NoWay::TimeUp) => return Ok(true),
            };
            self.progress.clear();
            found = search.again(error, until);
        }
    }

    fn at(&mut self, mut door: DoorClient, job: JobId, search: &mut Search<'_>) -> Result<Said, End> {
        // A process of the job itself does not wait for the job's end.
        let inside = Around::read(|name| env::var(name).ok()).is_some_and(|own| own.job == job);
        let steps = self.wanted.which.clone();
        let request =
            CommandToStepMgr::Wait { steps, any: false, progress_ms: PROGRESS_MS, groups: true, stay: !inside };
        if let Err(error) = door.send(&request) {
            return Ok(Said::Lost(error));
        }
        loop {
            match door.try_next::<StepMgrToCommand>() {
                Ok(Some(message)) => {
                    search.heard();
                    match message {
                        StepMgrToCommand::Progress(counts) => self.hear(job, &counts.into())?,
                        StepMgrToCommand::Groups { counts, groups, left_out, rest } => {
                            self.hear(job, &Standing { counts, groups, left_out, rest })?;
                        }
                        StepMgrToCommand::Drained { .. } => return Ok(Said::Over),
                        StepMgrToCommand::Refused(refusal) => return Err(End::Failed(refusal.into())),
                        _ => {}
                    }
                    continue;
                }
                Ok(None) => {}
                Err(error) => return Ok(Said::Lost(error)),
            }
            if let Some(signal) = self.signals.next() {
                return Err(End::Signal(signal));
            }
            let left = self.again_at.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.read_or_later()?;
                continue;
            }
            let timeout = left.map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
            });
            let (door, signals) = (door.as_fd(), self.signals.as_fd());
            let mut fds = [PollFd::new(door, PollFlags::POLLIN), PollFd::new(signals, PollFlags::POLLIN)];
            // Whatever woke it, both are looked at.
            let _ = poll(&mut fds, timeout);
        }
    }

    fn hear(&mut self, job: JobId, standing: &Standing) -> Result<(), End> {
        self.progress.show(job, standing);
        // Who is away is not asked at all news.
        if self.again_at.is_some() { Ok(()) } else { self.read_or_later() }
    }

    /// Reads on; of a daemon that does not answer some time later.
    fn read_or_later(&mut self) -> Result<(), End> {
        let passing = |read: &Result<(), End>| matches!(read, Err(End::Failed(error)) if error.is_passing());
        let known = self.records.is_some();
        let mut read = self.read_on();
        // It may have been started anew already.
        if known && self.records.is_none() && passing(&read) {
            read = self.read_on();
        }
        match read {
            Err(End::Failed(error)) if error.is_passing() => {
                if self.again_at.is_some() && !std::mem::replace(&mut self.said_away, true) {
                    let job = job_text(&self.named);
                    let said = format_args!("the records of {job} cannot be read at the moment: {error}; trying again");
                    self.progress.aside(|| self.console.warning(said));
                }
                self.again_at = Some(Instant::now() + patience::jittered(LOOK_AGAIN, patience::random()));
                Ok(())
            }
            read => {
                (self.again_at, self.said_away) = (None, false);
                read
            }
        }
    }

    /// Reads on until the records have been read as far as they are now.
    fn read_to_the_end(&mut self) -> Result<(), End> {
        let mut attempt = 1;
        loop {
            let error = match self.read_on() {
                Err(End::Failed(error)) if error.is_passing() && attempt < LAST_TRIES => error,
                read => return read,
            };
            let pause = match patience::after(&error, 1, patience::random()) {
                Next::Pause(pause) => pause,
                Next::GiveUp => patience::jittered(patience::FIRST_PAUSE, patience::random()),
            };
            self.signals.wait(pause);
            if let Some(signal) = self.signals.next() {
                return Err(End::Signal(signal));
            }
            attempt += 1;
        }
    }

    /// Shows what was recorded since the last time.
    fn read_on(&mut self) -> Result<(), End> {
        let (signals, progress) = (self.signals, &self.progress);
        let named = StepsSelector { run: self.run.or(self.named.run), ..self.named.clone() };
        let (run, told, shown) = (&mut self.run, &mut self.told, &mut *self.shown);
        let mut written = Ok(());
        // What was shown of records that are begun anew comes once more.
        let mut again = if self.records.is_some() { 0 } else { *told };
        let mut take = |part: Part| {
            let part = match part {
                Part::Run(told) if run.replace(told.sluid).is_some() => return true,
                Part::Steps(origins, mut steps) => {
                    let old = steps.len().min(usize::try_from(again).unwrap_or(usize::MAX));
                    again -= old as u64;
                    *told += (steps.len() - old) as u64;
                    steps.drain(..old);
                    Part::Steps(origins, steps)
                }
                part => part,
            };
            let empty = matches!(&part, Part::Steps(_, steps) if steps.is_empty());
            if !empty {
                written = progress.aside(|| if shown.take(part) { shown.flush() } else { Ok(()) });
            }
            written.is_ok() && !shown.is_closed()
        };
        let heard = match self.records.take() {
            Some(mut door) => {
                match run_records::converse(&mut door, &RecordsRequest::More, Some(signals), &mut take) {
                    Ok(heard) => Ok((door, heard)),
                    Err(error) => {
                        // Busy: it knows where it was.
                        if matches!(error.refusal(), Some(Refusal::RetryAfter { .. })) {
                            self.records = Some(door);
                        }
                        Err(End::from(error))
                    }
                }
            }
            None => {
                let wanted = &self.wanted;
                let request =
                    |Sought { job, run, task }| RecordsRequest::Follow { job, run, task, wanted: wanted.clone() };
                run_records::ask(self.cluster, self.console, &named, &request, Some(signals), &mut take)
                    .map_err(End::from)
            }
        };
        // A door that failed is left, and the records are begun anew at the next.
        let (door, heard) = heard?;
        self.heard(door, heard)
    }

    fn heard(&mut self, door: DoorClient, heard: Heard) -> Result<(), End> {
        match heard {
            Heard::SoFar(counts, damage) => {
                self.counts = counts;
                if let Some(what) = damage {
                    self.damaged = true;
                    let said = format!("the records of {} are not whole: {what}", job_text(&self.named));
                    self.progress.aside(|| self.console.warning(said));
                }
                self.records = Some(door);
                Ok(())
            }
            Heard::Signal(signal) => Err(End::Signal(signal)),
            Heard::Stopped | Heard::Over(_) => Err(End::Closed),
        }
    }
}
