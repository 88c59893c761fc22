//! Where a job may run: its partitions, their access rules and limits, and the reservations that it names. Part of admission.

use super::{
    admission::{Purpose, Rules, Submitter},
    users::group_names,
};
use garrick_events::records::job::{JobRecord, Resolved};
use garrick_model::{
    config::{Config, EnforcePartLimits, EnforceWord},
    entities::qos::{QosFlag, QosRecord, choices},
    refusal::Refusal,
    reservation::Applicant,
    spec::JobSpec,
    state::PartitionState,
    time::TimeLimit,
    view::PartitionView,
};
use garrick_plan::{policy::partition_facts, rules::limits::longer, snapshot::facts::PartitionFacts};
use std::sync::Arc;

impl Rules<'_> {
    /// Partitions that the job may use, in the order in which they are tried. Empty: it waits in partitions that no longer exist.
    pub(super) fn partitions_for(
        &self,
        by: &Submitter<'_>,
        spec: &JobSpec,
        purpose: &Purpose<'_>,
    ) -> Result<Vec<Arc<PartitionView>>, Refusal> {
        let named_anew = purpose.asks(spec, |spec| &spec.partitions);
        let reserved_anew = purpose.asks(spec, |spec| &spec.reservations);
        let taken_anew = named_anew || purpose.asks(spec, |spec| (&spec.account, &spec.qos));
        let stays = purpose.change().filter(|_| !named_anew).map(|change| self.places_of(change.record));
        if let Some(places) = stays.as_ref().filter(|_| !(taken_anew || reserved_anew)) {
            return Ok(places.clone());
        }
        let is_there =
            |partition: &PartitionView| stays.iter().flatten().any(|place| place.config.name == partition.config.name);
        let named = self.named_partitions(spec, stays.as_deref(), named_anew)?;
        let admin = purpose.is_by_admin();
        let mut usable: Vec<Arc<PartitionView>> = Vec::new();
        let mut refused = None;
        for partition in named {
            let partition = if admin { partition } else { self.alternate_of(partition)? };
            if usable.iter().any(|one| one.config.name == partition.config.name) {
                continue;
            }
            let is_there = is_there(partition);
            let reserved = !partition.config.require_reservation || !spec.reservations.is_empty();
            let may_come = if admin || is_there { Ok(()) } else { may_use(self.config, partition, by) };
            let may_stay = if reserved || is_there && !reserved_anew { Ok(()) } else { Err(Refusal::AccessDenied) };
            if purpose.change().is_some() && (named_anew || is_there) {
                may_come.clone().and_then(|()| may_stay.clone())?;
            }
            let may = may_come.and(may_stay).and_then(|()| match self.config.enforce_part_limits {
                // It waits until the partition accepts it.
                EnforcePartLimits::No => Ok(()),
                EnforcePartLimits::Any | EnforcePartLimits::All if admin || !taken_anew => Ok(()),
                EnforcePartLimits::Any | EnforcePartLimits::All => takes(partition, by, spec),
            });
            match may {
                Ok(()) => usable.push(Arc::clone(partition)),
                Err(refusal) => refused = Some(refusal),
            }
        }
        match refused {
            Some(refusal) if usable.is_empty() || self.config.enforce_part_limits == EnforcePartLimits::All => {
                Err(refusal)
            }
            _ => Ok(usable),
        }
    }

    /// The partitions that a request names; without any those that the job has, or the default one.
    fn named_partitions<'p>(
        &'p self,
        spec: &JobSpec,
        stays: Option<&'p [Arc<PartitionView>]>,
        named_anew: bool,
    ) -> Result<Vec<&'p Arc<PartitionView>>, Refusal> {
        let mut named = Vec::new();
        match stays {
            // The partitions that it got when it named none.
            Some(places) if spec.partitions.is_empty() => named.extend(places),
            _ if spec.partitions.is_empty() => {
                let default = self.partitions.iter().find(|p| p.config.default);
                named.push(default.ok_or(Refusal::NoPartition)?);
            }
            _ => {}
        }
        for name in &spec.partitions {
            match self.partitions.iter().find(|p| p.config.name == *name) {
                Some(found) => named.push(found),
                None if named_anew => return Err(Refusal::InvalidPartition(name.clone())),
                // It was deleted since.
                None => {}
            }
        }
        Ok(named)
    }

    /// The existing partitions of a waiting job.
    pub(super) fn places_of(&self, record: &JobRecord) -> Vec<Arc<PartitionView>> {
        let find = |name: &String| self.partitions.iter().find(|p| p.config.name == *name).cloned();
        record.resolved.partitions.iter().filter_map(find).collect()
    }

    /// Where jobs go while a partition is DRAIN or INACTIVE.
    fn alternate_of<'p>(&'p self, mut partition: &'p Arc<PartitionView>) -> Result<&'p Arc<PartitionView>, Refusal> {
        let is_closed = |one: &PartitionView| matches!(one.state, PartitionState::Drain | PartitionState::Inactive);
        // In a cycle no partition is open.
        for _ in 0..self.partitions.len() {
            let Some(name) = partition.config.alternate.as_ref().filter(|_| is_closed(partition)) else { break };
            let found = self.partitions.iter().find(|one| one.config.name == *name);
            partition = found.ok_or_else(|| Refusal::InvalidPartition(name.clone()))?;
        }
        Ok(partition)
    }

    /// A job that names no partition uses that of its reservation, the first that has one.
    pub(super) fn follow_reservation(&self, spec: &mut JobSpec) {
        if spec.partitions.is_empty() {
            let known = spec.reservations.iter().filter_map(|name| (self.reservation)(name));
            spec.partitions.extend(known.filter_map(|r| r.partition.clone()).next());
        }
    }

    /// May the job use all of the reservations that it names, each in at least one of its partitions?
    pub(super) fn check_reservations(
        &self,
        by: &Submitter<'_>,
        spec: &JobSpec,
        purpose: &Purpose<'_>,
    ) -> Result<(), Refusal> {
        if spec.reservations.is_empty() {
            return Ok(());
        }
        let user = by.user.as_ref().map_or_else(|| by.caller.uid.to_string(), |user| user.name.clone());
        let groups = group_names(by.user.as_ref());
        let account = spec.account.as_deref();
        let who = Applicant {
            admin: by.admin,
            user: &user,
            account,
            qos: None,
            partition: None,
            groups: Some(groups.as_slice()),
        };
        let stays = purpose.change().filter(|_| !purpose.asks(spec, |spec| &spec.partitions));
        let partitions = stays.map_or(&spec.partitions, |change| &change.record.resolved.partitions);
        let default = self.partitions.iter().find(|p| p.config.default && partitions.is_empty());
        let default = default.map(|p| &p.config.name);
        for name in &spec.reservations {
            let known = (self.reservation)(name);
            // No job runs in a floating reservation.
            let usable = known.filter(|r| r.floating.is_none());
            let reservation = usable.ok_or_else(|| Refusal::InvalidReservation(name.clone()))?;
            let mut places = partitions.iter().chain(default).map(|name| Some(name.as_str()));
            let admits = |partition, qos| reservation.admits(Applicant { partition, qos, ..who });
            if !places.any(|partition| each_qos(spec).any(|qos| admits(partition, qos))) {
                return Err(Refusal::ReservationAccess(name.clone()));
            }
        }
        Ok(())
    }

    /// `EnforcePartLimits`: a job beyond its partitions' limits with each of the QOS that it names is refused rather than left to
    /// wait.
    pub(super) fn enforce_limits(
        &self,
        spec: &JobSpec,
        resolved: &Resolved,
        partitions: &[Arc<PartitionView>],
    ) -> Result<(), Refusal> {
        let extent =
            Extent { time_limit: spec.time_limit, min_nodes: resolved.min_nodes, max_nodes: resolved.max_nodes };
        let limits = self.accounting.enforces(EnforceWord::Limits);
        let mut last = Ok(());
        for name in each_qos(spec) {
            let qos = name.filter(|_| limits).and_then(|name| self.accounting.table.qos(name));
            let facts = |partition: &Arc<PartitionView>| {
                let mut facts = partition_facts(partition, self.feasibility.view().nodes.len());
                if let Some(qos) = qos {
                    lift(&qos.record, &mut facts);
                }
                facts
            };
            last = extent.enforce(self.config.enforce_part_limits, partitions, &facts);
            if last.is_ok() {
                break;
            }
        }
        last
    }
}

/// The properties of a job that partitions limit.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Limit; `None`: each partition's own.
    time_limit: Option<TimeLimit>,
    /// Fewest nodes.
    min_nodes: u32,
    /// Most nodes.
    max_nodes: u32,
}

impl Extent {
    /// Is it within the limits of as many partitions as `EnforcePartLimits` requires? `facts`: what they limit.
    fn enforce(
        self,
        enforced: EnforcePartLimits,
        partitions: &[Arc<PartitionView>],
        facts: &dyn Fn(&Arc<PartitionView>) -> PartitionFacts,
    ) -> Result<(), Refusal> {
        let check = |partition: &Arc<PartitionView>| self.within(&facts(partition));
        match enforced {
            EnforcePartLimits::No => Ok(()),
            EnforcePartLimits::All => partitions.iter().try_for_each(check),
            EnforcePartLimits::Any => {
                let mut last = Ok(());
                for partition in partitions {
                    last = check(partition);
                    if last.is_ok() {
                        break;
                    }
                }
                last
            }
        }
    }

    fn within(self, partition: &PartitionFacts) -> Result<(), Refusal> {
        if longer(self.time_limit.unwrap_or(partition.limit_unsaid()), partition.max_time) {
            return Err(Refusal::InvalidTimeLimit);
        }
        let members = u32::try_from(partition.nodes.count_ones(..)).unwrap_or(u32::MAX);
        let most = partition.max_nodes.unwrap_or(u32::MAX).min(members);
        if self.min_nodes > most || self.max_nodes < partition.min_nodes {
            return Err(Refusal::BadNodeCount);
        }
        Ok(())
    }
}

/// Limits of the partition that do not hold for jobs of that QOS (`PartitionTimeLimit`, `PartitionMaxNodes`, `PartitionMinNodes`).
fn lift(qos: &QosRecord, facts: &mut PartitionFacts) {
    if qos.has(QosFlag::PartitionTimeLimit) {
        facts.max_time = TimeLimit::Unlimited;
    }
    if qos.has(QosFlag::PartitionMaxNodes) {
        facts.max_nodes = None;
    }
    if qos.has(QosFlag::PartitionMinNodes) {
        facts.min_nodes = 0;
    }
}

/// May this user submit to this partition?
fn may_use(config: &Config, partition: &PartitionView, by: &Submitter<'_>) -> Result<(), Refusal> {
    let settings = &partition.config;
    let root = by.caller.uid == 0;
    if root && settings.disable_root_jobs.unwrap_or(config.disable_root_jobs) {
        return Err(Refusal::AccessDenied);
    }
    if settings.root_only && !root {
        return Err(Refusal::AccessDenied);
    }
    if let Some(hosts) = &settings.alloc_nodes {
        let allowed = garrick_model::hostlist::expand(hosts).unwrap_or_default();
        if !allowed.contains(&by.caller.host) {
            return Err(Refusal::AccessDenied);
        }
    }
    if let Some(groups) = &settings.allow_groups
        && !by.admin
        && !by.user.as_ref().is_some_and(|user| user.groups.iter().any(|(_, name)| groups.contains(name)))
    {
        return Err(Refusal::GroupNotPermitted);
    }
    match partition.state {
        PartitionState::Up | PartitionState::Down => Ok(()),
        PartitionState::Drain | PartitionState::Inactive => Err(Refusal::PartitionUnavailable),
    }
}

/// Does this partition accept jobs with that account, and one of those QOS?
fn takes(partition: &PartitionView, by: &Submitter<'_>, spec: &JobSpec) -> Result<(), Refusal> {
    if !partition.config.allows_account(spec.account.as_deref()) {
        return Err(Refusal::InvalidAccount(spec.account.clone()));
    }
    // As in Slurm, root's jobs may use any QOS.
    if by.caller.uid != 0 && !each_qos(spec).any(|qos| partition.config.allows_qos(qos)) {
        return Err(Refusal::InvalidQos(spec.qos.clone()));
    }
    Ok(())
}

/// The QOS that a job names: one of them may do. `None`: it names none.
fn each_qos(spec: &JobSpec) -> impl Iterator<Item = Option<&str>> {
    let none = spec.qos.as_deref().is_none_or(|named| choices(named).next().is_none()).then_some(None);
    spec.qos.as_deref().into_iter().flat_map(choices).map(Some).chain(none)
}
