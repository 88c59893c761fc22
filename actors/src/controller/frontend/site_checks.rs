//! Requests about jobs go through the site's own checks first, where it has some.

use super::{
    core::{FrontendCore, Reply, Then, Turn},
    messages::{Ask, Said},
    selection::may_act,
};
use crate::{
    messages::job::Authority,
    submission::job_submit::{Requested, SiteAnswer, SiteAsk},
};
use garrick_model::{
    ids::JobId,
    messages::command::{Caller, CommandReply, CommandRequest, JobChange},
    refusal::Refusal,
};
use std::collections::BTreeMap;

/// A request that the site is checking.
#[derive(Debug)]
pub(super) struct Checking {
    caller: Caller,
    command: CommandRequest,
}

/// What the site's checks have made of a request, beside the request itself.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// Messages for the user.
    pub(super) said: Vec<String>,
    /// The changes of single jobs; none: as requested.
    pub(super) changes: BTreeMap<JobId, Result<JobChange, Refusal>>,
}

impl Checked {
    /// These messages, and no change.
    pub(super) fn saying(said: Vec<String>) -> Self {
        Self { said, changes: BTreeMap::new() }
    }

    /// The change of this job.
    pub(super) fn change<'a>(&'a self, job: JobId, requested: &'a JobChange) -> Result<&'a JobChange, Refusal> {
        self.changes.get(&job).map_or(Ok(requested), |change| change.as_ref().map_err(Clone::clone))
    }

    /// The answer, with the messages before it.
    pub(super) fn with(&mut self, reply: CommandReply) -> CommandReply {
        let lines = std::mem::take(&mut self.said);
        if lines.is_empty() { reply } else { CommandReply::Said { lines, reply: Box::new(reply) } }
    }
}

impl FrontendCore {
    /// Has the site check a request about jobs. `Some`: nothing is checked, and this is the request.
    pub(super) fn checked_first(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        caller: &Caller,
        by: Authority,
        command: CommandRequest,
    ) -> Option<CommandRequest> {
        if !self.sight.has_site_checks() {
            return Some(command);
        }
        let what = match &command {
            CommandRequest::SubmitJob { spec, .. } | CommandRequest::TestJob { spec } => {
                Requested::Jobs(vec![(**spec).clone()])
            }
            CommandRequest::SubmitHetJob { specs, .. } | CommandRequest::TestHetJob { specs } => {
                Requested::Jobs(specs.clone())
            }
            CommandRequest::InstallCrontab(change) => {
                Requested::Jobs(change.entries.iter().map(|entry| entry.spec.clone()).collect())
            }
            CommandRequest::UpdateJob { jobs, change } => {
                // What cannot be is refused later.
                let named = self.named(jobs.clone()).unwrap_or_default();
                let own = named.iter().flat_map(|(_, views)| views).filter(|view| may_act(by, view));
                Requested::Changes(own.map(|view| (view.id, (**change).clone())).collect())
            }
            _ => return Some(command),
        };
        let owner = match &command {
            CommandRequest::InstallCrontab(change) => self.crontab_owner(caller, by, change),
            _ => Ok(caller.clone()),
        };
        // It is refused later.
        let Ok(owner) = owner else { return Some(command) };
        let heterogeneous = matches!(command, CommandRequest::SubmitHetJob { .. } | CommandRequest::TestHetJob { .. });
        let user = self.user_name(owner.uid);
        let closed = self.closed_to(self.authority(&owner), &self.sight.boards().partitions.list());
        let ask = SiteAsk { caller: owner, user, closed, heterogeneous, what };
        let checking = Checking { caller: caller.clone(), command };
        self.ask(turn, request, vec![Ask::Site(Box::new(ask))], Then::Checked(Box::new(checking)));
        None
    }

    /// Goes on with a request that the site has checked.
    pub(super) fn checked(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        checking: Checking,
        said: Option<Said>,
    ) -> Reply {
        let SiteAnswer { mut jobs, changes, said } = match said {
            Some(Said::Checked(answer)) => *answer?,
            Some(Said::Gone(error)) => return Err(Refusal::Internal(format!("the site's own checks: {error}"))),
            other => return Err(Refusal::Internal(format!("the site's own checks did not answer: {other:?}"))),
        };
        let Checking { caller, mut command } = checking;
        match &mut command {
            CommandRequest::SubmitJob { spec, .. } | CommandRequest::TestJob { spec } => {
                if let Some(job) = jobs.pop() {
                    **spec = job;
                }
            }
            CommandRequest::SubmitHetJob { specs, .. } | CommandRequest::TestHetJob { specs } => *specs = jobs,
            CommandRequest::InstallCrontab(change) => {
                change.entries.iter_mut().zip(jobs).for_each(|(entry, spec)| entry.spec = spec);
            }
            _ => {}
        }
        let checked = Checked { said: said.clone(), changes: changes.into_iter().collect() };
        // What is refused at once; submissions tell it themselves.
        self.route(turn, request, &caller, command, checked).map_err(|refusal| refusal.after(said))
    }
}
