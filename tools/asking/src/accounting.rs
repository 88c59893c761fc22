//! A command's questions to the service of accounting.

use crate::{
    Asker,
    cluster::{Answer, Cluster, ClusterError},
    patience::{FIRST_PAUSE, jittered, random},
};
use garrick_accounts::{
    event::{EventQuestion, EventRow},
    filter::JobFilter,
    messages::{AccountsRefusal, AccountsReply, AccountsRequest, JobWithSteps},
    parts::Gathered,
    reservation::{ReservationQuestion, ReservationRow},
    usage::{UsageQuestion, UsageRow, UsageSum},
};
use garrick_frame::DoorClient;
use garrick_model::{entities::Entities, time::Timestamp};
use std::{
    io, thread,
    time::{Duration, Instant},
};

/// How long the service may be silent: where an answer takes longer it says that it works on it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two tries of one who has too many connections.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A question that was not answered.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    /// No cluster is meant, or nobody is there.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// There is no accounting.
    #[error("Slurm accounting storage is disabled")]
    Off,
    /// The service does not answer it.
    #[error("{}", words(.0))]
    Refused(AccountsRefusal),
    /// What it answered was not taken by who asked.
    #[error("{0}")]
    NotTaken(io::Error),
}

impl AccountsError {
    /// The user may not.
    pub const fn is_denial(&self) -> bool {
        matches!(self, Self::Refused(AccountsRefusal::Denied))
    }
}

fn words(refusal: &AccountsRefusal) -> String {
    match refusal {
        AccountsRefusal::Off => "Slurm accounting storage is disabled".to_owned(),
        AccountsRefusal::Away(why) => why.clone(),
        AccountsRefusal::Denied => "Access/permission denied".to_owned(),
        AccountsRefusal::Busy => "Resource temporarily unavailable".to_owned(),
        AccountsRefusal::Invalid(what) | AccountsRefusal::Failed(what) => what.clone(),
    }
}

/// A connection to the service.
pub struct Accounts {
    cluster: Cluster,
    door: DoorClient,
}

/// Rows, and when the service gave them.
#[derive(Debug)]
pub struct Rows {
    /// Runs with their steps.
    pub jobs: Vec<JobWithSteps>,
    /// By the service's clock.
    pub at: Timestamp,
}

impl Accounts {
    /// Finds the cluster that is meant and its service.
    ///
    /// # Errors
    /// No cluster, no accounting, nobody who answers.
    pub fn open(asker: &dyn Asker) -> Result<Self, AccountsError> {
        let cluster = Cluster::find(None)?;
        if !cluster.config().accounting {
            return Err(AccountsError::Off);
        }
        let begun = Instant::now();
        let mut door = in_turn(
            || cluster.connect_accounting(asker.program()),
            |pause| {
                thread::sleep(pause);
                begun.elapsed() < PATIENCE
            },
        )?;
        door.set_timeout(Some(PATIENCE)).map_err(ClusterError::from)?;
        Ok(Self { cluster, door })
    }

    /// The cluster.
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Asks, and waits for the answer. A refusal is an error.
    ///
    /// # Errors
    /// A refusal, a connection that broke.
    pub fn ask(&mut self, request: &AccountsRequest) -> Result<AccountsReply, AccountsError> {
        self.door.send(request).map_err(ClusterError::from)?;
        self.answer()
    }

    /// The next answer, or part of one.
    fn answer(&mut self) -> Result<AccountsReply, AccountsError> {
        loop {
            return match self.door.recv().map_err(ClusterError::from)? {
                AccountsReply::Working => continue,
                AccountsReply::Refused(AccountsRefusal::Off) => Err(AccountsError::Off),
                AccountsReply::Refused(refusal) => Err(AccountsError::Refused(refusal)),
                reply => Ok(reply),
            };
        }
    }

    /// All rows of a filter.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn jobs(&mut self, filter: &JobFilter, steps: bool) -> Result<Rows, AccountsError> {
        let mut jobs = Vec::new();
        let at = self.each_job(filter, steps, &mut |job, _| {
            jobs.push(job);
            Ok(())
        })?;
        Ok(Rows { jobs, at })
    }

    /// Gives the rows of a filter one after the other, by cluster, job and run, each with the time at which the service told it. A
    /// page of them is held at most, and of the steps of a run all. When the service told the last ones.
    ///
    /// # Errors
    /// As [`Self::ask`]; those of `take`, as [`AccountsError::NotTaken`].
    pub fn each_job(
        &mut self,
        filter: &JobFilter,
        steps: bool,
        take: &mut dyn FnMut(JobWithSteps, Timestamp) -> io::Result<()>,
    ) -> Result<Timestamp, AccountsError> {
        each_job(filter, steps, &mut |request| self.ask(request), take)
    }

    /// All entities that the user may see.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn entities(&mut self) -> Result<Entities, AccountsError> {
        let unexpected = || AccountsError::from(ClusterError::Unexpected("accounts"));
        let mut gathered = Gathered::default();
        let mut reply = self.ask(&AccountsRequest::Entities)?;
        loop {
            let AccountsReply::Entities(part) = reply else { return Err(unexpected()) };
            if let Some(entities) = gathered.add(&part).map_err(|_| unexpected())? {
                return Ok(entities);
            }
            reply = self.answer()?;
        }
    }

    /// What was used, and until when.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn usage(&mut self, question: &UsageQuestion) -> Result<(Vec<UsageRow>, Timestamp), AccountsError> {
        let mut question = question.clone();
        let mut all: Vec<UsageRow> = Vec::new();
        loop {
            let after = all.last().map(|last| Box::new(last.key.clone()));
            let request = AccountsRequest::Usage { question: Box::new(question.clone()), after };
            let AccountsReply::Usage { rows, more, at } = self.ask(&request)? else {
                return Err(ClusterError::Unexpected("accounts").into());
            };
            // Jobs that run go on while it is told: all parts are of the same moment.
            question.end = question.end.min(at);
            let goes_on = more && !rows.is_empty();
            all.extend(rows);
            if !goes_on {
                return Ok((all, question.end));
            }
        }
    }

    /// When nodes were out of service, and what clusters had, as it began.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn events(&mut self, question: &EventQuestion) -> Result<Vec<EventRow>, AccountsError> {
        self.rows(
            |after| AccountsRequest::Events { question: Box::new(question.clone()), after },
            |reply| match reply {
                AccountsReply::Events { rows, next } => Some((rows, next)),
                _ => None,
            },
        )
    }

    /// What is kept of reservations, as they were made.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn reservations(&mut self, question: &ReservationQuestion) -> Result<Vec<ReservationRow>, AccountsError> {
        self.rows(
            |after| AccountsRequest::Reservations { question: Box::new(question.clone()), after },
            |reply| match reply {
                AccountsReply::Reservations { rows, next } => Some((rows, next)),
                _ => None,
            },
        )
    }

    /// Reservations, and what the jobs of each used; with a window: in it.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn reserved(
        &mut self,
        question: &ReservationQuestion,
        window: Option<(Timestamp, Timestamp)>,
    ) -> Result<Vec<(ReservationRow, UsageSum)>, AccountsError> {
        let mut all = Vec::new();
        for row in self.reservations(question)? {
            let such = JobFilter {
                clusters: vec![row.cluster.clone()],
                reservations: vec![row.name.clone()],
                ..JobFilter::default()
            };
            let (from, until) = window.unwrap_or((row.start, row.end));
            let (start, end) = (row.start.max(from), row.end.min(until));
            let (lines, _) = self.usage(&UsageQuestion { start, end, such, ..UsageQuestion::default() })?;
            let mut used = UsageSum::default();
            lines.iter().for_each(|line| used.merge(&line.sum));
            all.push((row, used));
        }
        Ok(all)
    }

    /// The rows of all parts of an answer. An answer that goes nowhere would be asked for without end.
    fn rows<R>(
        &mut self,
        request: impl Fn(Option<i64>) -> AccountsRequest,
        part: impl Fn(AccountsReply) -> Option<(Vec<R>, Option<i64>)>,
    ) -> Result<Vec<R>, AccountsError> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let reply = self.ask(&request(after))?;
            let (rows, next) = part(reply).ok_or(ClusterError::Unexpected("accounts"))?;
            all.extend(rows);
            if next.is_none() || next <= after {
                return Ok(all);
            }
            after = next;
        }
    }

    /// A script or an environment.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn text(&mut self, request: &AccountsRequest) -> Result<Option<Vec<u8>>, AccountsError> {
        match self.ask(request)? {
            AccountsReply::Text(text) => Ok(text.map(serde_bytes::ByteBuf::into_vec)),
            _ => Err(ClusterError::Unexpected("accounts").into()),
        }
    }
}

/// Tries until it is not turned away as one of too many of the user's. `pause` waits for so long; false: not any more.
fn in_turn<T>(mut attempt: impl FnMut() -> Answer<T>, mut pause: impl FnMut(Duration) -> bool) -> Answer<T> {
    let mut next = FIRST_PAUSE;
    loop {
        match attempt() {
            Err(error) if error.is_one_of_too_many() => {
                if !pause(jittered(next, random())) {
                    return Err(error);
                }
                next = (2 * next).min(LONGEST_PAUSE);
            }
            done => return done,
        }
    }
}

/// Puts the pages of an answer together: a run whose steps are spread over pages is one.
fn each_job(
    filter: &JobFilter,
    steps: bool,
    ask: &mut dyn FnMut(&AccountsRequest) -> Result<AccountsReply, AccountsError>,
    take: &mut dyn FnMut(JobWithSteps, Timestamp) -> io::Result<()>,
) -> Result<Timestamp, AccountsError> {
    // The last one of a page may go on in the next one.
    let mut last: Option<JobWithSteps> = None;
    let mut after = None;
    loop {
        let request = AccountsRequest::Jobs { filter: Box::new(filter.clone()), steps, after: after.clone() };
        let AccountsReply::Jobs { jobs, next, at } = ask(&request)? else {
            return Err(ClusterError::Unexpected("accounts").into());
        };
        for job in jobs {
            match &mut last {
                Some(last) if last.row.sluid == job.row.sluid && last.row.cluster == job.row.cluster => {
                    last.steps.extend(job.steps);
                }
                last => {
                    if let Some(whole) = last.replace(job) {
                        take(whole, at).map_err(AccountsError::NotTaken)?;
                    }
                }
            }
        }
        match next {
            // A page without rows has only passed over some. One that goes nowhere would be asked for without end.
            Some(next) if after.as_ref() != Some(&next) => after = Some(next),
            _ => {
                last.map_or(Ok(()), |whole| take(whole, at)).map_err(AccountsError::NotTaken)?;
                return Ok(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_frame::{DoorError, PROTOCOL};
    use garrick_model::doors;

    fn refused(reason: &str) -> ClusterError {
        DoorError::Refused { path: "door".into(), reason: reason.to_owned(), versions: PROTOCOL }.into()
    }

    #[test]
    fn one_of_too_many_waits_for_its_turn_until_it_has_no_patience_left() {
        let (mut tries, mut pauses) = (0, Vec::new());
        let attempt = || {
            tries += 1;
            if tries < 6 { Err(refused(doors::TOO_MANY)) } else { Ok(tries) }
        };
        let told = in_turn(attempt, |pause| {
            pauses.push(pause);
            true
        });
        assert_eq!((told.unwrap(), pauses.len()), (6, 5));
        assert!(pauses.iter().all(|pause| *pause >= FIRST_PAUSE && *pause <= 2 * LONGEST_PAUSE), "{pauses:?}");
        let mut left = 3;
        let told = in_turn(
            || Err::<(), _>(refused(doors::TOO_MANY)),
            |_| {
                left -= 1;
                left > 0
            },
        );
        assert!(told.unwrap_err().is_one_of_too_many() && left == 0);
        // Whoever is turned away for another reason does not wait.
        let told = in_turn(|| Err::<(), _>(refused("no")), |_| panic!("it waits"));
        assert!(!told.unwrap_err().is_one_of_too_many());
    }
}
