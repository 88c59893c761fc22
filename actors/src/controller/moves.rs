//! Changes of waiting jobs are judged by what submissions are judged by: nobody moves a job to where he could not have
//! submitted it. Called by the front for `UpdateJob`.

use super::{
    admission::{Extent, Submitter, could_ever_run, may_use, takes},
    front::ControllerActor,
    selection::{Named, may_act},
};
use crate::job::{core::JobCore, messages::Authority, state::JobEvent};
use garrick_model::{
    config::{EnforcePartLimits, MemoryPer},
    messages::command::{Caller, JobChange},
    refusal::Refusal,
    resources::{MemoryMib, MemoryRequest},
    time::{TimeLimit, Timestamp},
    view::{JobView, PartitionView},
};
use std::sync::Arc;

impl ControllerActor {
    /// May the owner's jobs go into those partitions, and with `EnforcePartLimits`, are they within their limits then?
    /// Administrators may put a job where they like.
    pub(super) fn check_move(&self, by: Authority, jobs: &[Named], change: &JobChange) -> Result<(), Refusal> {
        let limits = change.time_limit.is_some() || change.time_limit_delta_secs.is_some() || change.nodes.is_some();
        let request = &change.request;
        let other_place = change.partitions.is_some() || change.account.is_some() || request.qos.is_some();
        let more = change.memory.is_some() || request.min_cpus_per_node.is_some() || request.cpus_per_task.is_some();
        if by.admin || !(limits || other_place || more) {
            return Ok(());
        }
        let config = self.env.config();
        let known = self.env.boards.partitions.list();
        let nodes = self.env.boards.nodes.len();
        // Others' jobs are not his to change: their owners say so.
        let own = |view: &&Arc<JobView>| view.uid == by.uid && view.state.waits();
        for view in jobs.iter().flat_map(|(_, views)| views).filter(own) {
            let names = change.partitions.as_ref().unwrap_or(&view.partitions);
            let mut partitions: Vec<Arc<PartitionView>> =
                names.iter().filter_map(|name| known.iter().find(|p| p.config.name == *name)).cloned().collect();
            let caller = Caller { uid: view.uid, gid: view.gid, pid: 0, host: view.spec.submit_host.clone() };
            let user = self.user_now(view.uid)?;
            let owner = Submitter { caller: &caller, user, group: None, admin: false };
            if change.partitions.is_some() {
                partitions.iter().try_for_each(|partition| may_use(&config, partition, &owner))?;
            }
            if other_place && config.enforce_part_limits != EnforcePartLimits::No {
                let account = change.account.as_deref().or(view.spec.account.as_deref());
                let qos = change.qos_of(&view.spec);
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
            if more {
                let most = partitions.first().and_then(|partition| partition.config.max_memory).or(config.max_memory);
                check_memory(view, change, most)?;
            }
            extent(view, change).enforce(config.enforce_part_limits, &partitions, nodes)?;
        }
        Ok(())
    }

    /// A job that waits must not come to ask for what no nodes could ever give, who may change it or not: its owner says that.
    pub(super) fn check_possible(&mut self, by: Authority, view: &JobView, change: &JobChange) -> Result<(), Refusal> {
        let env = Arc::clone(&self.env);
        if !view.state.waits() || !may_act(by, view) {
            return Ok(());
        }
        let Some(kept) = env.jobs.get(view.id).filter(|kept| kept.record.may_act(by.uid, by.admin)) else {
            return Ok(());
        };
        let mut changed = kept.record.clone();
        if changed.apply(&JobEvent::Updated(Box::new(change.clone()))).is_err() {
            return Ok(());
        }
        let now = Timestamp::now();
        let seen = |record| JobCore::new(record, env.job_site()).view(now);
        let (before, after) = (seen(kept.record), seen(changed));
        let feasibility = self.feasibility();
        if feasibility.ask_alike(&before, &after) { Ok(()) } else { could_ever_run(feasibility, &after) }
    }
}

/// Its memory must be within what a node or its CPUs may bring. Only at submission do CPUs follow from memory.
fn check_memory(view: &JobView, change: &JobChange, most: Option<MemoryPer>) -> Result<(), Refusal> {
    let cpus_per_task = change.request.cpus_per_task.unwrap_or(view.cpus_per_task);
    let on_node = change.request.min_cpus_per_node.or(view.spec.min_cpus_per_node).unwrap_or(0).max(cpus_per_task);
    let fits = match (change.memory.unwrap_or(view.memory), most) {
        (_, None | Some(MemoryPer::Node(MemoryMib(0)) | MemoryPer::Cpu(MemoryMib(0)))) => true,
        (MemoryRequest::PerCpu(asked), Some(MemoryPer::Cpu(most))) => asked <= most,
        (MemoryRequest::PerNode(asked), Some(MemoryPer::Cpu(most))) => asked.0.div_ceil(most.0) <= on_node.into(),
        (MemoryRequest::PerNode(asked), Some(MemoryPer::Node(most))) => asked <= most,
        _ => true,
    };
    let detail = Some("Memory specification can not be satisfied".to_owned());
    if fits { Ok(()) } else { Err(Refusal::NodeConfigUnavailable { detail }) }
}

/// What the job will come to.
fn extent(view: &JobView, change: &JobChange) -> Extent {
    let moved = change.time_limit_delta_secs.is_some() && matches!(view.time_limit, TimeLimit::Secs(_));
    let named = change.time_limit.is_some() || moved;
    let time_limit = if named { Some(change.limit_after(view.time_limit)) } else { view.spec.time_limit };
    let (min_nodes, max_nodes) =
        change.nodes.map_or((view.min_nodes, view.max_nodes), |nodes| (nodes.min, nodes.max.unwrap_or(nodes.min)));
    Extent { time_limit, min_nodes, max_nodes }
}
