//! Runs that may go on where nobody hears of them, and what waits for that. A node that is cut off ends by itself what may
//! have been started elsewhere; what that is the controller says: with the launch, and whenever it changes. So on a node that
//! is given up a run ends in time where the node knows that another may follow, and for all that is known goes on for ever
//! where it does not. Of a job that has such a run nothing is started before that node has said that nothing is left there.
//! A step manager gives nodes up sooner than the controller does. An expedited job is queued again then, and started when either
//! the node has said so or the controller has given it up too.

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

/// Who gave a node of a run up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUpBy {
    /// After `SlurmdTimeout`, by which time a node that is cut off has ended what may be started elsewhere; or an administrator.
    Controller,
    /// The run's step manager, when what ran there had not been heard of for half a minute: the node may have the controller, or
    /// be cut off from it for no longer than that.
    StepManager,
}

impl JobCore {
    /// May another run follow one that is lost with its node? A component goes back to the queue with its leader.
    pub(super) fn another_may_follow(&self) -> bool {
        if self.het_leader().is_some() { self.het_leader_may_be_requeued() } else { self.may_be_requeued() }
    }

    /// What the run's nodes are to go by. Agents of an earlier version made it out of the request.
    pub(super) fn requeue_policy(&self, run: &Run) -> RequeuePolicy {
        let (spec, resolved) = (&self.record.spec, &self.record.resolved);
        let by_request = || spec.kind == JobKind::Batch && spec.requeue.unwrap_or(resolved.requeue);
        run.requeue.unwrap_or_else(|| RequeuePolicy { allowed: by_request(), revision: 0 })
    }

    /// Would that node end the run by itself when it is cut off? With a launch all nodes of it hear the same; of a change only
    /// those are known to have heard that said so.
    fn ends_when_cut_off(&self, run: &Run, node: &str) -> bool {
        let policy = self.requeue_policy(run);
        policy.allowed && (policy.revision == 0 || self.policy_known.contains(node))
    }

    /// Whether another run may follow is decided anew.
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

    /// Tells the nodes that are not known to have heard of the latest change.
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

    /// A node has said what it goes by.
    pub(super) fn requeue_heard(&mut self, node: &str, policy: RequeuePolicy) {
        let wanted = self.record.phase.working().map(|run| self.requeue_policy(run));
        if wanted == Some(policy) {
            self.policy_known.insert(node.to_owned());
        } else {
            self.policy_known.remove(node);
        }
    }

    /// A node registered with the run, and said what it goes by. One of an earlier version did not, and is not told: it would
    /// not understand.
    pub(super) fn requeue_held(&mut self, node: &str, policy: Option<RequeuePolicy>, turn: &mut Turn<'_>) {
        let (Some(run), Some(policy)) = (self.record.phase.working(), policy) else { return };
        let wanted = self.requeue_policy(run);
        self.requeue_heard(node, policy);
        if policy == wanted {
            return;
        }
        if wanted.revision == 0 {
            // A launch of an earlier version, of which the node thinks otherwise.
            self.revise(RequeuePolicy { revision: 1, ..wanted }, turn);
            return self.tell_requeue(turn);
        }
        if let Some(run) = self.record.phase.working() {
            self.tell_requeue_to(run, node, turn);
        }
    }

    /// A node is given up that has not said that nothing of the run is left there.
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

    /// Nothing of that run is left on that node, as that says itself.
    pub(super) fn fenced(&mut self, node: &str, sluid: Sluid, turn: &mut Turn<'_>) {
        if self.unfenced(node, sluid).is_some() {
            self.save(JobEvent::Fenced { sluid, node: node.to_owned() }, turn);
            self.check_eligible(turn);
        }
    }

    /// The controller gives the node of an earlier run up.
    pub(super) fn earlier_node_lost(&mut self, node: &str, sluid: Sluid, turn: &mut Turn<'_>) {
        if self.unfenced(node, sluid).is_some_and(|left| left.ends_when_cut_off) {
            self.fenced(node, sluid, turn);
        }
    }

    /// Earlier runs that the next one waits for, and where.
    pub(super) fn unfenced_earlier(&self) -> impl Iterator<Item = (Sluid, &String)> {
        let earlier = self.record.unfenced.iter().filter(|left| left.sluid != self.record.sluid);
        earlier.map(|left| (left.sluid, &left.node))
    }
}
