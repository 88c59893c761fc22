//! What a plan is made from, put together from what owners show. The scheduler's actor reads boards and calls this, and so does
//! whoever has other boards.

use crate::license::account::LicenseAccount;
use fixedbitset::FixedBitSet;
use garrick_model::{
    config::{OverSubscribe, PreemptWords},
    ids::JobId,
    reservation::Reservation,
    time::Timestamp,
    view::{JobView, NodeView, PartitionView},
};
use garrick_plan::snapshot::{
    bounds,
    caps::CpuCaps,
    facts::{ClusterView, PartitionFacts, PartitionSharing, Policy, node_places},
    licenses::LicenseFacts,
    preempt::Yielding,
    qos::QosTable,
    reservations::Reservations,
};
use jiff::tz::TimeZone;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Who people are.
pub trait People {
    /// Users who may use all reservations.
    fn administrators(&self) -> Vec<u32>;
    /// Names of a user's groups.
    fn groups(&self, uid: u32) -> Vec<String>;
}

/// What owners show at one time.
pub struct Shown<'a> {
    /// Jobs that wait, run or are being cleaned up, in any order; others may be among them.
    pub jobs: &'a [Arc<JobView>],
    /// One of them.
    pub job: &'a dyn Fn(JobId) -> Option<Arc<JobView>>,
    /// Nodes, in any order.
    pub nodes: &'a [Arc<NodeView>],
    /// Partitions in configuration order.
    pub partitions: &'a [Arc<PartitionView>],
    /// Reservations that are not over.
    pub reservations: &'a [Arc<Reservation>],
    /// Who has which licenses.
    pub licenses: LicenseAccount,
    /// Qualities of service.
    pub qos: Arc<QosTable>,
    /// In which reservations recur.
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

/// Who has licenses is the account's to say; how long, the jobs'.
fn license_facts(shown: &Shown<'_>) -> LicenseFacts {
    let account = &shown.licenses;
    let end = |job| (shown.job)(job).and_then(|view| view.end_time);
    let reserved = shown.reservations.iter().any(|r| !r.licenses.is_empty());
    let inside = |job: JobId| Some((job, (shown.job)(job)?.allocation.as_ref()?.reservation.clone()?));
    LicenseFacts {
        totals: account.totals().clone(),
        inside: account.holds().filter(|_| reserved).filter_map(|(job, _)| inside(job)).collect(),
        held: account.holds().map(|(job, licenses)| (job, licenses.clone(), end(job))).collect(),
        hres: Arc::clone(account.hres()),
    }
}

/// A partition as scheduling sees it, among that many nodes.
pub fn partition_facts(view: &PartitionView, nodes: usize) -> PartitionFacts {
    let config = &view.config;
    let words = config.preempt_mode.as_deref().map(PreemptWords::of).unwrap_or_default();
    let mut members = FixedBitSet::with_capacity(nodes);
    for index in view.nodes.iter().map(|n| n.0 as usize).filter(|i| *i < nodes) {
        members.insert(index);
    }
    PartitionFacts {
        name: config.name.clone(),
        state: view.state,
        tier: u32::from(config.priority_tier),
        nodes: members,
        default_time: config.default_time,
        max_time: config.max_time,
        min_nodes: config.min_nodes,
        max_nodes: config.max_nodes,
        caps: CpuCaps { per_node: config.max_cpus_per_node, per_socket: config.max_cpus_per_socket },
        def_memory: config.def_memory,
        max_memory: config.max_memory,
        sharing: match config.over_subscribe {
            OverSubscribe::No => PartitionSharing::No,
            OverSubscribe::Exclusive => PartitionSharing::Exclusive,
            OverSubscribe::Yes(most) => PartitionSharing::Yes(u32::from(most)),
            OverSubscribe::Force(most) => PartitionSharing::Force(u32::from(most)),
        },
        exclusive_user: config.exclusive_user,
        least_loaded: config.least_loaded,
        topology: config.topology.clone(),
        exclusive_topo: config.exclusive_topo,
        yielding: Yielding {
            mode: words.mode,
            within: words.within,
            by_priority: words.by_priority,
            grace: Duration::from_secs(u64::from(config.grace_secs)),
        },
        takes: config.is_choosy().then(|| Arc::clone(config)),
    }
}
