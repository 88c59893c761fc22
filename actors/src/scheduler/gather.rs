//! Makes a plan's snapshot from the owners' views. The scheduler's actor calls this with its boards, and so do other users with
//! their own.

use crate::license::account::LicenseAccount;
use garrick_model::{
    ids::JobId,
    reservation::Reservation,
    time::Timestamp,
    view::{JobView, NodeView, PartitionView},
};
use garrick_plan::{
    policy::partition_facts,
    snapshot::{
        accounting::Accounting,
        bounds,
        facts::{ClusterView, Policy, node_places},
        licenses::LicenseFacts,
        qos::QosTable,
        reservations::Reservations,
    },
};
use jiff::tz::TimeZone;
use std::{collections::BTreeSet, sync::Arc};

/// Looks up users.
pub trait People {
    /// Users who may use all reservations.
    fn administrators(&self) -> Vec<u32>;
    /// Names of a user's groups.
    fn groups(&self, uid: u32) -> Vec<String>;
}

/// The owners' views at one time.
pub struct Shown<'a> {
    /// Jobs that wait, run or are being cleaned up, in any order; others may be included.
    pub jobs: &'a [Arc<JobView>],
    /// Looks up one of them.
    pub job: &'a dyn Fn(JobId) -> Option<Arc<JobView>>,
    /// Nodes, in any order.
    pub nodes: &'a [Arc<NodeView>],
    /// Partitions in configuration order.
    pub partitions: &'a [Arc<PartitionView>],
    /// Reservations that are not over.
    pub reservations: &'a [Arc<Reservation>],
    /// Which jobs hold which licenses.
    pub licenses: LicenseAccount,
    /// Qualities of service.
    pub qos: Arc<QosTable>,
    /// Associations and limits; what running jobs have of them is counted here.
    pub accounting: Accounting,
    /// The time zone of recurring reservations.
    pub zone: &'a TimeZone,
}

/// The snapshot of a plan.
pub fn cluster_view(policy: Policy, shown: &Shown<'_>, people: &dyn People, now: Timestamp) -> ClusterView {
    let places = node_places(shown.nodes);
    let partitions = shown.partitions.iter().map(|p| partition_facts(p, places)).collect();
    let mut view = ClusterView::new(policy, shown.jobs, shown.nodes, partitions);
    bounds::soften(&mut view, shown.jobs, now);
    view.licenses = license_facts(shown);
    view.qos = Arc::clone(&shown.qos);
    view.accounting = shown.accounting.clone().counting(shown.jobs, &view.nodes, &view.partitions, now);
    if !shown.reservations.is_empty() {
        let administrators = people.administrators();
        let mut reservations = Reservations::new(shown.reservations, &view.nodes, administrators, now, shown.zone);
        let concerned = view.pending.iter().filter(|job| job.eligible && reservations.ask_for_groups(job));
        let users: BTreeSet<u32> = concerned.map(|job| job.uid).collect();
        reservations.groups = users.into_iter().map(|uid| (uid, people.groups(uid))).collect();
        reservations.guests = view.policy.preempt.is_on();
        view.reservations = reservations;
    }
    view
}

/// The account says which jobs hold licenses; the jobs say how long.
fn license_facts(shown: &Shown<'_>) -> LicenseFacts {
    let account = &shown.licenses;
    let end = |job| (shown.job)(job).and_then(|view| view.end_time);
    let reserved = shown.reservations.iter().any(|r| !r.licenses.is_empty());
    let inside = |job: JobId| Some((job, (shown.job)(job)?.allocation.as_ref()?.reservation.clone()?));
    LicenseFacts {
        totals: account.usable(),
        inside: account.holds().filter(|_| reserved).filter_map(|(job, _)| inside(job)).collect(),
        held: account.holds().map(|(job, licenses)| (job, licenses.clone(), end(job))).collect(),
        hres: Arc::clone(account.hres()),
    }
}
