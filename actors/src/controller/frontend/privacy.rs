//! What `PrivateData` hides from users who are no administrators.

use super::core::FrontendCore;
use crate::{messages::job::Authority, submission::users::group_names};
use garrick_model::{
    config::PrivateKind,
    entities::{
        Entities,
        association::{AssocId, Association},
    },
    ids::{JobId, Sluid},
    messages::command::CommandRequest,
    refusal::Refusal,
    reservation::{Applicant, Reservation},
    time::Timestamp,
    view::{JobView, NodeHold, NodeView},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
};

/// Whose jobs those who asked see as coordinators, as of one copy of what accounting knows: all associations are looked at once for
/// each of them, not for each question.
#[derive(Debug, Default)]
pub(super) struct Coordinations {
    known: Arc<Entities>,
    of_user: BTreeMap<String, Arc<BTreeSet<AssocId>>>,
}

impl Coordinations {
    /// Associations of users in accounts that the user coordinates.
    fn of(&mut self, known: &Arc<Entities>, cluster: &str, user: &str) -> Arc<BTreeSet<AssocId>> {
        if !Arc::ptr_eq(&self.known, known) {
            *self = Self { known: Arc::clone(known), ..Self::default() };
        }
        let found = || {
            let coordinated = known.coordinated_by(user);
            if coordinated.is_empty() {
                return Arc::default();
            }
            let is_below = |own: &&Association| own.parent.is_some_and(|above| coordinated.contains(above));
            let below = known.living(cluster).filter(|own| own.user.is_some()).filter(is_below);
            Arc::new(below.map(|own| own.id).collect())
        };
        Arc::clone(self.of_user.entry(user.to_owned()).or_insert_with(found))
    }
}

impl FrontendCore {
    /// Does the site hide that from them? Nothing is hidden from operators (slurm.conf(5), `PrivateData`).
    pub(super) fn hides(&self, by: Authority, kind: PrivateKind) -> bool {
        !by.admin && self.sight.config().private_data.has(kind) && !self.is_operator(by)
    }

    fn is_operator(&self, by: Authority) -> bool {
        self.sight.entities().is_operator(&self.user_name(by.uid).to_ascii_lowercase())
    }

    /// A test for jobs: may they be shown to the user? Coordinators see those of their accounts.
    pub(super) fn sees_job(&self, by: Authority) -> impl Fn(&JobView) -> bool + use<> {
        let hides = self.hides(by, PrivateKind::Jobs);
        let seen = if hides { self.coordinated(by) } else { Arc::default() };
        move |view| !hides || view.uid == by.uid || view.association.is_some_and(|id| seen.contains(&id))
    }

    /// Associations of users in accounts that the user coordinates.
    fn coordinated(&self, by: Authority) -> Arc<BTreeSet<AssocId>> {
        let cluster = &self.sight.config().cluster_name;
        let mut found = self.coordinated.lock().unwrap_or_else(PoisonError::into_inner);
        found.of(&self.sight.entities(), cluster, &self.user_name(by.uid).to_ascii_lowercase())
    }

    /// Refuses a question about something that the user may not see. To ask about a hidden job is to ask about an unknown one.
    pub(super) fn may_ask(&self, by: Authority, request: &CommandRequest) -> Result<(), Refusal> {
        let refused = |kind| match self.hides(by, kind) {
            true => Err(Refusal::AccessDenied),
            false => Ok(()),
        };
        match request {
            CommandRequest::ListNodes => refused(PrivateKind::Nodes),
            CommandRequest::ListPartitions => refused(PrivateKind::Partitions),
            CommandRequest::WaitJob { job, .. } | CommandRequest::Watch { job } | CommandRequest::Explain { job } => {
                self.is_seen(by, *job)
            }
            _ => Ok(()),
        }
    }

    fn is_seen(&self, by: Authority, job: JobId) -> Result<(), Refusal> {
        // A job that is being saved has no view yet: whoever submitted it is answered when it has one.
        let view = self.sight.boards().jobs.get(&job);
        let is_own = view.as_ref().is_some_and(|view| view.uid == by.uid);
        if is_own || !self.hides(by, PrivateKind::Jobs) || view.is_some_and(|view| self.sees_job(by)(&view)) {
            return Ok(());
        }
        Err(Refusal::InvalidJobId)
    }

    /// Views of nodes for this user.
    pub(super) fn nodes_for(&self, by: Authority, now: Timestamp) -> Vec<Arc<NodeView>> {
        let mut nodes = self.sight.boards().nodes_shown(now);
        if self.hides(by, PrivateKind::Nodes) {
            return without_state(&nodes);
        }
        if self.hides(by, PrivateKind::Jobs) {
            for node in nodes.iter_mut().filter(|node| !node.holds.is_empty()) {
                anonymous(&mut Arc::make_mut(node).holds, by.uid);
            }
        }
        nodes
    }

    /// Leaves out what the user cannot use. Accounts and QOS of the user's jobs are not known here.
    pub(super) fn keep_usable(&self, by: Authority, reservations: &mut Vec<Arc<Reservation>>) {
        if !self.hides(by, PrivateKind::Reservations) {
            return;
        }
        let user = self.sight.users().user(by.uid);
        let groups = group_names(user.as_ref());
        let name = user.as_ref().map_or("", |user| &user.name);
        let (account, qos, partition) = (None, None, None);
        let who = Applicant { admin: false, user: name, account, qos, partition, groups: Some(&groups) };
        reservations.retain(|reservation| reservation.admits(who));
    }
}

/// Leaves out whose jobs hold what of a node, but for the user's own.
fn anonymous(holds: &mut [NodeHold], uid: u32) {
    for hold in holds.iter_mut().filter(|hold| hold.uid != uid) {
        (hold.job, hold.sluid, hold.uid) = (JobId(0), Sluid(0), u32::MAX);
        (hold.mcs_label, hold.partition, hold.expected_end) = (None, None, None);
    }
}

/// What the configuration says about nodes, without what goes on there.
fn without_state(nodes: &[Arc<NodeView>]) -> Vec<Arc<NodeView>> {
    nodes.iter().map(|node| Arc::new(node.without_state())).collect()
}
