//! MCS labels of jobs: which one a job has is decided when it is submitted, and again when its label or its account is changed.

use super::{admission::Submitter, front::ControllerActor, selection::may_act};
use crate::job::messages::Authority;
use garrick_model::{
    config::{Config, Labelled, McsPlugin},
    messages::command::{Caller, JobChange},
    refusal::Refusal,
    spec::{JobSpec, Sharing},
    view::JobView,
};
use std::sync::Arc;

/// The label of a submitted job, and how it shares its nodes with it.
pub fn give(config: &Config, by: &Submitter<'_>, spec: &mut JobSpec) -> Result<(), Refusal> {
    let (label, sharing) = judged(config, by, (spec.mcs_label.as_deref(), spec.account.as_deref()), spec.sharing)?;
    (spec.mcs_label, spec.sharing) = (label, sharing);
    Ok(())
}

/// The label of that user's job that asks for this one with this account, and how it shares nodes if it wishes so.
fn judged(
    config: &Config,
    by: &Submitter<'_>,
    (asked, account): (Option<&str>, Option<&str>),
    wish: Sharing,
) -> Result<(Option<String>, Sharing), Refusal> {
    let known = by.user.as_ref();
    let number = by.caller.uid.to_string();
    let others = known.iter().flat_map(|user| &user.groups).map(|(_, name)| name);
    let mut groups: Vec<String> = by.group.iter().cloned().collect();
    groups.extend(others.filter(|name| by.group.as_ref() != Some(name)).cloned());
    let of = Labelled { user: known.map_or(&number, |user| &user.name), groups: &groups, account };
    let label = config.mcs.label(asked, of).ok_or_else(|| Refusal::InvalidMcsLabel(asked.map(str::to_owned)))?;
    let sharing = config.mcs.sharing(wish, label.is_some());
    Ok((label, sharing))
}

impl ControllerActor {
    /// The change for those jobs, with the label that they have then.
    pub(super) fn with_label(
        &self,
        by: Authority,
        views: &[Arc<JobView>],
        change: &JobChange,
    ) -> Result<JobChange, Refusal> {
        // Only the controller says how nodes are shared.
        let mut change = JobChange { sharing: None, ..change.clone() };
        let config = self.env.config();
        let by_account = change.account.is_some() && config.mcs.plugin == McsPlugin::Account;
        if config.mcs.plugin == McsPlugin::None {
            change.mcs_label = None;
        }
        if change.mcs_label.is_none() && !by_account {
            return Ok(change);
        }
        // Tasks of one array are the same user's. Others' jobs are not his to change: their owners say so.
        let mut own: Vec<&Arc<JobView>> = views.iter().filter(|view| may_act(by, view)).collect();
        // One that does not wait yet may when its owner hears of it.
        own.sort_by_key(|view| !view.state.waits());
        let Some(view) = own.first().filter(|view| change.mcs_label.is_some() || view.state.waits()) else {
            return Ok(change);
        };
        let account = change.account.as_deref().or(view.spec.account.as_deref()).filter(|name| !name.is_empty());
        let asked = match &change.mcs_label {
            Some(asked) => Some(asked.as_str()),
            // The label goes with the account.
            None => view.spec.mcs_label.as_ref().and(account),
        };
        // What leaves cores to the system has its nodes to itself from then on.
        let wish = if change.request.left_to_system.is_some() { Sharing::Exclusive } else { view.spec.sharing };
        let (label, sharing) = self.judged_for_owner(&config, view, (asked, account), wish)?;
        (change.mcs_label, change.sharing) = (Some(label.unwrap_or_default()), Some(sharing));
        Ok(change)
    }

    fn judged_for_owner(
        &self,
        config: &Config,
        view: &JobView,
        wanted: (Option<&str>, Option<&str>),
        wish: Sharing,
    ) -> Result<(Option<String>, Sharing), Refusal> {
        let caller = Caller { uid: view.uid, gid: view.gid, pid: 0, host: view.spec.submit_host.clone() };
        let user = self.user_now(view.uid)?;
        let owner = Submitter { caller: &caller, user, group: self.env.ports.users.group_name(view.gid), admin: false };
        judged(config, &owner, wanted, wish)
    }
}
