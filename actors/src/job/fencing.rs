//! Fencing: runs that may still be active on unreachable nodes, and what waits for them. A node that is cut off ends by itself
//! the runs that may be started again elsewhere; the controller tells it which these are, with the launch and whenever it
//! changes. So on a node that is given up, a run ends in time if the node knows that another run may follow, and otherwise
//! possibly never. A job with such a run is not started again before that node has reported that nothing is left there.
//!
//! A step manager gives nodes up sooner than the controller does. An expedited job is then requeued, and started when the node
//! has reported so or the controller has given it up too.

use super::core::{JobCore, Turn};
use crate::messages::node::NodeInput;
use garrick_events::records::{
    job::{Run, Unfenced},
    job_event::JobEvent,
};
use garrick_model::{
    ids::Sluid,
    messages::node::{ControllerToNode, RequeuePolicy},
    spec::JobKind,
};

/// Who gave up a node of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUpBy {
    /// After `SlurmdTimeout`, by which time a node that is cut off has ended what may be started elsewhere; or an administrator.
    Controller,
    /// The run's step manager, which had not heard from the node for half a minute: the node may be connected to the controller,
    /// or be cut off from it for no longer than that.
    StepManager,
}

impl JobCore {
    /// May another run follow one that is lost with its node? A component is requeued with its leader.
    pub(super) fn another_may_follow(&self) -> bool {
        if self.het_leader().is_some() { self.het_leader_may_be_requeued() } else { self.may_be_requeued() }
    }

    /// The policy for the run's nodes. Agents of an earlier version derived it from the request.
    pub(super) fn requeue_policy(&self, run: &Run) -> RequeuePolicy {
        let (spec, resolved) = (&self.record.spec, &self.record.resolved);
        let by_request = || spec.kind == JobKind::Batch && spec.requeue.unwrap_or(resolved.requeue);
        run.requeue.unwrap_or_else(|| RequeuePolicy { allowed: by_request(), revision: 0 })
    }

    /// Would that node end the run by itself when it is cut off? A launch tells all nodes of it the same; of a change, only nodes
    /// that confirmed it are known to have it.
    fn ends_when_cut_off(&self, run: &Run, node: &str) -> bool {
        let policy = self.requeue_policy(run);
        policy.allowed && (policy.revision == 0 || self.policy_known.contains(node))
    }

    /// Decides anew whether another run may follow.
    pub(super) fn set_requeue(&mut self, allowed: bool, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working() else { return };
        let before = self.requeue_policy(run);
        if before.allowed != allowed {
            self.revise(RequeuePolicy { allowed, revision: before.revision + 1 }, turn);
        }
        self.tell_requeue(turn);
        self.het_set_requeue(turn);
    }

    fn revise(&mut self, policy: RequeuePolicy, turn: &mut Turn<'_>) {
        self.policy_known.clear();
        self.save(JobEvent::RequeueSet(policy), turn);
    }

    /// Tells the nodes that have not confirmed the latest change.
    pub(super) fn tell_requeue(&self, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working() else { return };
        for node in run.unreleased().filter(|node| !run.lost.contains(*node)) {
            self.tell_requeue_to(run, node, turn);
        }
    }

    fn tell_requeue_to(&self, run: &Run, node: &str, turn: &mut Turn<'_>) {
        let policy = self.requeue_policy(run);
        if policy.revision > 0 && !self.policy_known.contains(node) {
            let (job, sluid) = (self.record.id, self.record.sluid);
            let frame = Box::new(ControllerToNode::SetRequeue { job, sluid, policy });
            turn.tell_node(node.to_owned(), NodeInput::Send(frame));
        }
    }

    /// A node has confirmed a policy.
    pub(super) fn requeue_heard(&mut self, node: &str, policy: RequeuePolicy) {
        let wanted = self.record.phase.working().map(|run| self.requeue_policy(run));
        if wanted == Some(policy) {
            self.policy_known.insert(node.to_owned());
        } else {
            self.policy_known.remove(node);
        }
    }

    /// A node registered with the run and its policy. A node of an earlier version has none, and is not told: it would not
    /// understand.
    pub(super) fn requeue_held(&mut self, node: &str, policy: Option<RequeuePolicy>, turn: &mut Turn<'_>) {
        let (Some(run), Some(policy)) = (self.record.phase.working(), policy) else { return };
        let wanted = self.requeue_policy(run);
        self.requeue_heard(node, policy);
        if policy == wanted {
            return;
        }
        if wanted.revision == 0 {
            // A launch of an earlier version, for which the node has another policy.
            self.revise(RequeuePolicy { revision: 1, ..wanted }, turn);
            return self.tell_requeue(turn);
        }
        if let Some(run) = self.record.phase.working() {
            self.tell_requeue_to(run, node, turn);
        }
    }

    /// A node is given up that has not reported that nothing of the run is left there.
    pub(super) fn leave_unfenced(&mut self, node: &str, given_up_by: GivenUpBy, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.run() else { return };
        let has_another = self.record.spec.kind == JobKind::Batch || self.het_leader().is_some();
        let open = run.has_node(node) && !run.released.contains(node) && !run.kept.contains(node);
        let noted = self.unfenced(node, self.record.sluid).is_some();
        let ends_when_cut_off = self.ends_when_cut_off(run, node);
        let is_over = ends_when_cut_off && given_up_by == GivenUpBy::Controller;
        if has_another && open && !noted && !is_over {
            self.save(JobEvent::Unfenced { node: node.to_owned(), ends_when_cut_off }, turn);
        }
    }

    fn unfenced(&self, node: &str, sluid: Sluid) -> Option<&Unfenced> {
        self.record.unfenced.iter().find(|left| left.sluid == sluid && left.node == node)
    }

    /// The node has reported that nothing of that run is left there.
    pub(super) fn fenced(&mut self, node: &str, sluid: Sluid, turn: &mut Turn<'_>) {
        if self.unfenced(node, sluid).is_some() {
            self.save(JobEvent::Fenced { sluid, node: node.to_owned() }, turn);
            self.check_eligible(turn);
        }
    }

    /// The controller gives up the node of an earlier run.
    pub(super) fn earlier_node_lost(&mut self, node: &str, sluid: Sluid, turn: &mut Turn<'_>) {
        if self.unfenced(node, sluid).is_some_and(|left| left.ends_when_cut_off) {
            self.fenced(node, sluid, turn);
        }
    }

    /// Earlier runs for which the next one waits, and their nodes.
    pub(super) fn unfenced_earlier(&self) -> impl Iterator<Item = (Sluid, &String)> {
        let earlier = self.record.unfenced.iter().filter(|left| left.sluid != self.record.sluid);
        earlier.map(|left| (left.sluid, &left.node))
    }
}
