//! Which rows `sacct` shows: what the service is asked for, and what is left out of its answer (sacct(1)).

use super::{
    Window,
    entry::{Entry, Part, step_order},
    state::RecordState,
};
use garrick_accounts::{
    filter::{JobFilter, NamedJob},
    messages::JobWithSteps,
    row::{JobRow, RunEnergy},
    step::StepRecord,
    tres::{CPU, NODE},
};
use garrick_model::{
    entities::association::AssocId,
    ids::{JobId, Sluid},
    state::JobState,
    time::{TimeLimit, Timestamp},
    usage::TaskUsage,
};
use std::ops::RangeInclusive;

/// Which rows are shown.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Names, users, accounts and so on. Window, states and duplicates are below.
    pub such: JobFilter,
    /// When they were there.
    pub window: Window,
    /// States that they had in the window; none: any.
    pub states: Vec<RecordState>,
    /// Runs that others followed are shown too.
    pub duplicates: bool,
    /// Whether a name of a component of a heterogeneous job stands for all of them; `None`: that of the leader does.
    pub whole_het: Option<bool>,
    /// Features that they asked for, all of them.
    pub constraints: Vec<String>,
    /// Their associations, one of these.
    pub associations: Vec<String>,
    /// How they were handled, one of these.
    pub flags: Vec<Flag>,
    /// Why they waited, one of these words.
    pub reasons: Vec<String>,
    /// How many nodes they had.
    pub nodes: Option<RangeInclusive<u64>>,
    /// How many CPUs they had.
    pub cpus: Option<RangeInclusive<u64>>,
    /// Their time limits.
    pub limits: Option<RangeInclusive<Limit>>,
    /// Steps are shown.
    pub steps: bool,
    /// A line for each task of an array that waits.
    pub tasks: bool,
}

/// A time limit, by its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Minutes.
    Minutes(u64),
    /// None.
    Unlimited,
}

impl From<TimeLimit> for Limit {
    fn from(limit: TimeLimit) -> Self {
        match limit {
            TimeLimit::Secs(secs) => Self::Minutes(secs.div_ceil(60)),
            TimeLimit::Unlimited => Self::Unlimited,
        }
    }
}

/// How a job was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// Nothing is said.
    None,
    /// Started at submission.
    SchedSubmit,
    /// Started by the scheduler.
    SchedMain,
    /// Started by backfill.
    SchedBackfill,
    /// Its start was recorded.
    StartReceived,
}

impl Flag {
    /// All of them with their words.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::None, "None"),
        (Self::SchedSubmit, "SchedSubmit"),
        (Self::SchedMain, "SchedMain"),
        (Self::SchedBackfill, "SchedBackfill"),
        (Self::StartReceived, "StartReceived"),
    ];

    /// Those of a row. Garrick has one scheduler, which starts every job: ahead of others that wait, or in its turn.
    pub const fn of(row: &JobRow) -> &'static [Self] {
        match (row.start.is_some(), row.backfilled) {
            (true, true) => &[Self::SchedBackfill, Self::StartReceived],
            (true, false) => &[Self::SchedMain, Self::StartReceived],
            (false, _) => &[Self::None],
        }
    }

    /// `SchedMain`
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(flag, _)| *flag == self).map_or("None", |(_, word)| word)
    }
}

impl Choice {
    /// The newest runs of all jobs until then, with their steps.
    pub fn everything(end: Timestamp) -> Self {
        Self {
            such: JobFilter::default(),
            window: Window { start: Timestamp(0), end },
            states: Vec::new(),
            duplicates: false,
            whole_het: None,
            constraints: Vec::new(),
            associations: Vec::new(),
            flags: Vec::new(),
            reasons: Vec::new(),
            nodes: None,
            cpus: None,
            limits: None,
            steps: true,
            tasks: false,
        }
    }

    /// What the service is asked for: at least everything that [`Self::takes`] takes.
    pub fn question(&self) -> JobFilter {
        let epoch = Timestamp(0);
        let states: Option<Vec<JobState>> = self.states.iter().map(|state| state.for_service()).collect();
        JobFilter {
            states: states.unwrap_or_default(),
            start: Some(self.window.start).filter(|start| *start != epoch),
            // Jobs that are named are there before they are eligible.
            end: Some(self.window.end).filter(|_| self.such.jobs.is_empty() || !self.states.is_empty()),
            // Which of those that were asked for is the newest is found out here.
            duplicates: true,
            ..self.such.clone()
        }
    }

    /// Names under which further components of heterogeneous jobs are to be asked for, if any.
    pub fn rest_of_het_jobs(&self, rows: &[JobWithSteps]) -> Vec<NamedJob> {
        if self.whole_het != Some(true) {
            return Vec::new();
        }
        let named = |row: &JobRow| self.such.jobs.iter().any(|named| named.steps.is_none() && named.is(row));
        let mut leaders: Vec<_> =
            rows.iter().filter(|job| named(&job.row)).filter_map(|job| Some(job.row.het?.0)).collect();
        leaders.sort_unstable();
        leaders.dedup();
        leaders.into_iter().map(NamedJob::job).collect()
    }

    /// Is the row shown, leaving aside that others of its job may be newer?
    pub fn takes(&self, row: &JobRow) -> bool {
        // Neither window nor states are part of that.
        self.such.takes(row)
            && (self.such.jobs.is_empty() || self.such.jobs.iter().any(|named| self.names(named, row)))
            && self.in_window(row)
            && (self.constraints.is_empty() || has_all(row.constraint.as_deref(), &self.constraints))
            && (self.associations.is_empty() || row.association.is_some_and(|id| self.is_of(id)))
            && (self.flags.is_empty() || self.flags.iter().any(|flag| Flag::of(row).contains(flag)))
            && (self.reasons.is_empty()
                || self.reasons.iter().any(|reason| reason.eq_ignore_ascii_case(&row.waited_for.text())))
            && self.nodes.as_ref().is_none_or(|range| range.contains(&row.allocated.count(NODE)))
            && self.cpus.as_ref().is_none_or(|range| range.contains(&row.allocated.count(CPU)))
            && self.limits.as_ref().is_none_or(|range| range.contains(&row.time_limit.into()))
    }

    fn is_of(&self, association: AssocId) -> bool {
        // A word that is no number names none.
        self.associations.iter().any(|word| word.parse() == Ok(association.0))
    }

    fn names(&self, named: &NamedJob, row: &JobRow) -> bool {
        // A task that waits has no record of its own.
        let waits = named.tasks.is_some() && row.array_task.is_none();
        let other = self.whole_het == Some(false)
            && row.het.is_some_and(|(leader, _)| named.het.is_none() && leader == named.job && row.job != named.job);
        named.is(row) && !waits && !other
    }

    /// Was the row there in the window, and in one of the states? sacct(1): without states the job was eligible.
    fn in_window(&self, row: &JobRow) -> bool {
        let Window { start, end } = self.window;
        let before_end = |at: Timestamp| at.secs() < end.secs();
        let not_over = row.end.is_none_or(|over| over.secs() >= start.secs());
        let named = !self.such.jobs.is_empty();
        if self.states.is_empty() {
            return not_over && (row.eligible.is_some_and(before_end) || (named && before_end(row.submit)));
        }
        self.states.iter().any(|state| match state {
            RecordState::Job(JobState::Pending) => {
                let waited = row.start.or(row.end).is_none_or(|until| until.secs() >= start.secs());
                waited && row.eligible.is_some_and(before_end)
            }
            RecordState::Job(JobState::Running) => not_over && row.start.is_some_and(before_end),
            RecordState::Job(JobState::Suspended) => {
                let stood = row.suspended_ms > 0 || row.suspended_since.is_some();
                stood && not_over && row.start.is_some_and(before_end)
            }
            state => {
                let ended = row.end.is_some_and(|over| over.secs() >= start.secs() && over.secs() <= end.secs());
                *state == RecordState::of(row) && ended
            }
        })
    }

    /// The rows to show, in order ([`Place`]). Of a job's runs only the newest, unless all are asked for.
    pub fn rows(&self, mut rows: Vec<JobWithSteps>) -> Vec<JobWithSteps> {
        rows.sort_by(|a, b| run_of(&a.row).cmp(&run_of(&b.row)));
        let mut shown = Shown::of(self);
        let mut rows: Vec<JobWithSteps> = rows.into_iter().filter_map(|row| shown.next(row)).collect();
        rows.extend(shown.last());
        rows.sort_by_key(|job| Place::of(&job.row));
        rows
    }

    /// The lines of a row.
    pub fn entries<'r>(&self, job: &'r JobWithSteps) -> Vec<Entry<'r>> {
        let JobWithSteps { row, steps } = job;
        let named: Vec<&NamedJob> = self.such.jobs.iter().filter(|named| self.names(named, row)).collect();
        let whole = named.is_empty() || named.iter().any(|named| named.steps.is_none());
        let meant = |step: &&StepRecord| {
            let is = |named: &&NamedJob| named.steps.as_ref().is_some_and(|steps| steps.contains(step.key));
            whole || named.iter().any(is)
        };
        let mut steps: Vec<&StepRecord> = if self.steps { steps.iter().filter(meant).collect() } else { Vec::new() };
        steps.sort_by_key(|step| step_order(step.key));
        let mut used = TaskUsage::default();
        steps.iter().for_each(|step| used.add(step.usage));
        used.energy_joules = joules(&steps);
        let parts: Vec<Part<'r>> = match &row.waiting {
            Some(waiting) if self.tasks && row.array_task.is_none() => waiting.indices().map(Part::Task).collect(),
            _ => vec![Part::Job],
        };
        let of_job = parts.into_iter().filter(|_| whole).map(|part| Entry { row, part, used });
        let of_steps = steps.into_iter().map(|step| Entry { row, part: Part::Step(step), used: step.usage });
        of_job.chain(of_steps).collect()
    }
}

/// What rows come by.
fn run_of(row: &JobRow) -> (&str, JobId, Sluid) {
    (&row.cluster, row.job, row.sluid)
}

/// Those of rows that are shown, as they come: by cluster, job and run. Of a job's runs only the newest that fits, unless all are
/// asked for. One row is held until it is known that no newer run of its job follows.
#[derive(Debug)]
pub struct Shown<'c> {
    choice: &'c Choice,
    newest: Option<JobWithSteps>,
}

impl<'c> Shown<'c> {
    /// Of that choice.
    pub const fn of(choice: &'c Choice) -> Self {
        Self { choice, newest: None }
    }

    /// The next row came. The one that is certain by that, if any.
    pub fn next(&mut self, job: JobWithSteps) -> Option<JobWithSteps> {
        if !self.choice.takes(&job.row) {
            return None;
        }
        if self.choice.duplicates {
            return Some(job);
        }
        let is_of_the_same = |held: &JobWithSteps| held.row.cluster == job.row.cluster && held.row.job == job.row.job;
        let same = self.newest.as_ref().is_some_and(is_of_the_same);
        self.newest.replace(job).filter(|_| !same)
    }

    /// No more come: the one that was held.
    pub const fn last(&mut self) -> Option<JobWithSteps> {
        self.newest.take()
    }
}

/// Where a row stands: by submission, arrays behind other jobs of the same second, by task. Places are compared byte by byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub [u8; 29]);

impl Place {
    /// That of a row.
    pub fn of(row: &JobRow) -> Self {
        let task = row.array_task.map_or((0, 0), |task| (task.array_job.0, task.index));
        let mut bytes = [0; 29];
        // Times before 1970 come first.
        bytes[..8].copy_from_slice(&(row.submit.secs().cast_unsigned() ^ (1 << 63)).to_be_bytes());
        bytes[8] = row.array_task.is_some().into();
        bytes[9..13].copy_from_slice(&task.0.to_be_bytes());
        bytes[13..17].copy_from_slice(&task.1.to_be_bytes());
        bytes[17..21].copy_from_slice(&row.job.0.to_be_bytes());
        bytes[21..].copy_from_slice(&row.sluid.0.to_be_bytes());
        Self(bytes)
    }
}

/// Energy of a job.
fn joules(steps: &[&StepRecord]) -> u64 {
    let mut energy = RunEnergy::default();
    steps.iter().for_each(|step| energy.add(step.key.step, step.usage.energy_joules));
    energy.joules()
}

/// Are all of these features part of what was asked for?
fn has_all(asked: Option<&str>, features: &[String]) -> bool {
    let asked = asked.unwrap_or_default();
    let words: Vec<&str> = asked.split(|c: char| "&|,()[]*".contains(c)).collect();
    features.iter().all(|feature| words.contains(&feature.as_str()))
}

impl RecordState {
    /// The state by which the service finds all rows of this one; `None`: it cannot.
    const fn for_service(self) -> Option<JobState> {
        match self {
            Self::Job(JobState::Suspended) | Self::Resizing | Self::Revoked => None,
            Self::Job(state) => Some(state),
            Self::Requeued => Some(JobState::Cancelled),
        }
    }
}

#[cfg(test)]
#[path = "choice_test.rs"]
pub(in crate::sacct) mod tests;
