//! Changes of waiting jobs are judged by what submissions are judged by: nobody moves a job to where he could not have
//! submitted it. Called by the front for `UpdateJob`.

use super::{
    admission::{Extent, Submitter, may_use, takes},
    front::ControllerActor,
};
use crate::job::messages::Authority;
use garrick_model::{
    config::EnforcePartLimits,
    messages::command::{Caller, JobChange, JobSelector},
    refusal::Refusal,
    time::TimeLimit,
    view::{JobView, PartitionView},
};
use std::sync::Arc;

impl ControllerActor {
    /// May the owner's jobs go into those partitions, and with `EnforcePartLimits`, are they within their limits then?
    /// Administrators may put a job where they like.
    pub(super) fn check_move(&self, by: Authority, jobs: &[JobSelector], change: &JobChange) -> Result<(), Refusal> {
        let limits = change.time_limit.is_some() || change.time_limit_delta_secs.is_some() || change.nodes.is_some();
        let other_place = change.partitions.is_some() || change.account.is_some();
        if by.admin || !(limits || other_place) {
            return Ok(());
        }
        let config = self.env.config();
        let known = self.env.boards.partitions.list();
        let nodes = self.env.boards.nodes.len();
        // Others' jobs are not his to change: their owners say so.
        let own = |view: &Arc<JobView>| view.uid == by.uid && view.state.waits();
        for view in jobs.iter().flat_map(|selector| self.selected(selector)).filter(own) {
            let names = change.partitions.as_ref().unwrap_or(&view.partitions);
            let mut partitions: Vec<Arc<PartitionView>> =
                names.iter().filter_map(|name| known.iter().find(|p| p.config.name == *name)).cloned().collect();
            let caller = Caller { uid: view.uid, gid: view.gid, pid: 0, host: view.spec.submit_host.clone() };
            let user = self.env.ports.users.user(view.uid);
            let owner = Submitter { caller: &caller, user, group: None, admin: false };
            if change.partitions.is_some() {
                partitions.iter().try_for_each(|partition| may_use(&config, partition, &owner))?;
            }
            if other_place && config.enforce_part_limits != EnforcePartLimits::No {
                let account = change.account.as_deref().or(view.spec.account.as_deref());
                let qos = view.spec.qos.as_deref();
                let mut refused = None;
                partitions.retain(|partition| match takes(partition, &owner, account, qos) {
                    Ok(()) => true,
                    Err(refusal) => {
                        refused = Some(refusal);
                        false
                    }
                });
                let all = config.enforce_part_limits == EnforcePartLimits::All;
                if let Some(refusal) = refused.filter(|_| all || partitions.is_empty()) {
                    return Err(refusal);
                }
            }
            extent(&view, change).enforce(config.enforce_part_limits, &partitions, nodes)?;
        }
        Ok(())
    }
}

/// What the job will come to.
fn extent(view: &JobView, change: &JobChange) -> Extent {
    let named = change.time_limit.unwrap_or(view.time_limit);
    let time_limit = match (named, change.time_limit_delta_secs) {
        (TimeLimit::Secs(secs), Some(delta)) => TimeLimit::Secs(secs.saturating_add_signed(delta)),
        (named, _) => named,
    };
    let (min_nodes, max_nodes) =
        change.nodes.map_or((view.min_nodes, view.max_nodes), |nodes| (nodes.min, nodes.max.unwrap_or(nodes.min)));
    Extent { time_limit, min_nodes, max_nodes }
}
