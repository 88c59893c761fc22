//! A command's questions to the service of accounting.

use crate::{
    Asker,
    cluster::{Cluster, ClusterError},
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
use std::time::Duration;

/// How long the service may be silent: where an answer takes longer it says that it works on it.
const PATIENCE: Duration = Duration::from_secs(120);

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
        let mut door = cluster.connect_accounting(asker.program())?;
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

    /// All rows of a filter, page by page.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn jobs(&mut self, filter: &JobFilter, steps: bool) -> Result<Rows, AccountsError> {
        collect(filter, steps, &mut |request| self.ask(request))
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

/// Puts the pages of an answer together: a run whose steps are spread over pages is one.
fn collect(
    filter: &JobFilter,
    steps: bool,
    ask: &mut dyn FnMut(&AccountsRequest) -> Result<AccountsReply, AccountsError>,
) -> Result<Rows, AccountsError> {
    let mut all: Vec<JobWithSteps> = Vec::new();
    let mut after = None;
    loop {
        let request = AccountsRequest::Jobs { filter: Box::new(filter.clone()), steps, after: after.clone() };
        let AccountsReply::Jobs { jobs, next, at } = ask(&request)? else {
            return Err(ClusterError::Unexpected("accounts").into());
        };
        for job in jobs {
            match all.last_mut().filter(|last| last.row.sluid == job.row.sluid && last.row.cluster == job.row.cluster) {
                Some(last) => last.steps.extend(job.steps),
                None => all.push(job),
            }
        }
        match next {
            // A page without rows has only passed over some. One that goes nowhere would be asked for without end.
            Some(next) if after.as_ref() != Some(&next) => after = Some(next),
            _ => return Ok(Rows { jobs: all, at }),
        }
    }
}
