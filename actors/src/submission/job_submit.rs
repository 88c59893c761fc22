//! The site's own checks of requests (`JobSubmitPlugins`), before they are judged.

use garrick_model::{
    config::Config,
    ids::JobId,
    messages::command::{Caller, JobChange},
    refusal::Refusal,
    reservation::Reservation,
    spec::JobSpec,
    view::{JobView, PartitionView},
};
use std::{pin::Pin, sync::Arc};

/// A request that the site checks.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteAsk {
    /// Who makes it, as the kernel says.
    pub caller: Caller,
    /// The caller's name.
    pub user: String,
    /// Names of partitions that take no jobs of the caller's groups.
    pub closed: Vec<String>,
    /// The jobs are components of one.
    pub heterogeneous: bool,
    /// What is requested.
    pub what: Requested,
}

/// What is requested, and what it has become after the checks.
#[derive(Clone, Debug, PartialEq)]
pub enum Requested {
    /// New jobs, or a query about them: one, the components of a heterogeneous one, or those of a crontab.
    Jobs(Vec<JobSpec>),
    /// Changes of jobs, each by itself.
    Changes(Vec<(JobId, JobChange)>),
}

/// What the checks have made of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteAnswer {
    /// New jobs as they shall be requested, in the same order; empty for changes.
    pub jobs: Vec<JobSpec>,
    /// Changes as they shall be made, or why not.
    pub changes: Vec<(JobId, Result<JobChange, Refusal>)>,
    /// Messages for the user, a line each.
    pub said: Vec<String>,
}

/// What the checks may look at.
pub trait SiteSight: Send + Sync {
    /// The configuration.
    fn config(&self) -> Arc<Config>;
    /// Partitions.
    fn partitions(&self) -> Vec<Arc<PartitionView>>;
    /// All jobs.
    fn jobs(&self) -> Vec<Arc<JobView>>;
    /// One job.
    fn job(&self, id: JobId) -> Option<Arc<JobView>>;
    /// Reservations.
    fn reservations(&self) -> Vec<Arc<Reservation>>;
}

/// The answer of the checks, when it comes.
pub type SiteChecked = Pin<Box<dyn Future<Output = Result<SiteAnswer, Refusal>> + Send>>;

/// The site's own checks. What they make of a request is judged as if the user had requested it. Script, arguments and environment
/// of a job stay as they are when it is changed.
pub trait JobSubmit: Send + Sync + 'static {
    /// Are there checks under this configuration?
    fn has_checks(&self, config: &Config) -> bool;

    /// Checks a request. It is called once for each request that comes, a repeated one included, and may take its time.
    fn check(&self, ask: SiteAsk, sight: Arc<dyn SiteSight>) -> SiteChecked;
}
