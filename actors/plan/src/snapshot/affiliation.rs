//! What decides under which limits of accounting a job is: its user, account, QOS, association and partition. Jobs that agree in
//! these count alike.

use garrick_model::{entities::association::AssocId, view::JobView};

/// The affiliation of a job. `T`: text, borrowed or owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Affiliation<T> {
    /// Its user's number.
    pub uid: u32,
    /// Its user's name.
    pub user: T,
    /// The account that it names.
    pub account: Option<T>,
    /// The QOS that it names.
    pub qos: Option<T>,
    /// The association that was found for it when it came.
    pub association: Option<AssocId>,
    /// Where it runs, or waits first.
    pub partition: Option<T>,
}

impl<'j> Affiliation<&'j str> {
    /// Of a job.
    pub fn of(job: &'j JobView) -> Self {
        let runs = job.allocation.as_ref().map(|run| &run.partition);
        Self {
            uid: job.uid,
            user: &job.user,
            account: job.spec.account.as_deref(),
            qos: job.spec.qos.as_deref(),
            association: job.association,
            partition: runs.or(job.partitions.first()).map(String::as_str),
        }
    }

    /// The same in that partition.
    #[must_use]
    pub const fn within(self, partition: &'j str) -> Self {
        Self { partition: Some(partition), ..self }
    }

    /// To be kept.
    pub fn owned(self) -> Affiliation<String> {
        Affiliation {
            uid: self.uid,
            user: self.user.to_owned(),
            account: self.account.map(str::to_owned),
            qos: self.qos.map(str::to_owned),
            association: self.association,
            partition: self.partition.map(str::to_owned),
        }
    }
}

impl Affiliation<String> {
    /// To be looked at.
    pub fn borrowed(&self) -> Affiliation<&str> {
        Affiliation {
            uid: self.uid,
            user: &self.user,
            account: self.account.as_deref(),
            qos: self.qos.as_deref(),
            association: self.association,
            partition: self.partition.as_deref(),
        }
    }
}
