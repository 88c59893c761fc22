//! Limits of associations and QOS in worlds that have them: two accounts with two users each, of which some may run only so many
//! jobs, on so many nodes and CPUs, at one time. They hold until faults stop; then an administrator lifts them, so that every job
//! can run.

use super::{
    random::Random,
    rules::{Scope, ensure},
    world::World,
};
use garrick_model::{
    entities::{
        Entities, NORMAL, ROOT,
        association::{AssocId, Association},
        limits::{Amounts, Count, Limits, TresLimit},
        qos::QosRecord,
    },
    view::{Accrual, AllocatedNode},
};
use garrick_plan::snapshot::accounting::{Accounting, AccountingTable};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

const CLUSTER: &str = "sim";

/// What accounting knows in a world, and what follows from it.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    entities: Entities,
    pub(super) facts: Accounting,
}

impl Known {
    /// Of a world with that seed and so many nodes. `enforced`: limits hold in it.
    pub(super) fn of_seed(seed: u64, nodes: u32, enforced: bool) -> Self {
        if !enforced {
            return Self::default();
        }
        // Other numbers than those that the world and its mix draw.
        let mut random = Random::new(seed ^ 0x5eed_1111);
        let of = |id: u32, parent: Option<u32>, account: &str, user: Option<u32>| Association {
            id: AssocId(id),
            cluster: CLUSTER.to_owned(),
            account: account.to_owned(),
            user: user.map(|uid| format!("user{uid}")),
            parent: parent.map(AssocId),
            is_default: user.is_some(),
            ..Association::default()
        };
        let accounts = [of(1, None, ROOT, None), of(2, Some(1), "a", None), of(3, Some(1), "b", None)];
        let users = (1001..=1004).map(|uid| match uid % 2 {
            0 => of(uid, Some(2), "a", Some(uid)),
            _ => of(uid, Some(3), "b", Some(uid)),
        });
        let mut entities = Entities::default();
        for mut association in accounts.into_iter().chain(users) {
            association.limits = some_limits(&mut random, nodes);
            entities.associations.insert(association.id, association);
        }
        // Drawn apart from the others, so that these stay as they are.
        let mut random = Random::new(seed ^ 0x5eed_2222);
        for association in entities.associations.values_mut() {
            let count = if association.user.is_some() { Count::MaxJobsAccrue } else { Count::GrpJobsAccrue };
            if random.one_in_thousand(400) {
                association.limits.counts.insert(count, u64::from(random.between(1, 4)));
            }
        }
        entities.associations.entry(AssocId(1)).or_default().qos.own = Some([NORMAL.to_owned()].into());
        let mut normal = QosRecord::new(1, NORMAL);
        if random.one_in_thousand(300) {
            normal.limits.counts.insert(Count::MaxJobsPerUser, u64::from(random.between(3, 9)));
        }
        entities.qos.insert(NORMAL.to_owned(), normal);
        let mut known = Self { entities, facts: Accounting::default() };
        known.renew();
        known
    }

    fn renew(&mut self) {
        self.facts.table = Arc::new(AccountingTable::new(&self.entities, CLUSTER));
    }
}

/// Jobs have three components at most, so groups of three may always run.
fn some_limits(random: &mut Random, nodes: u32) -> Limits {
    let mut limits = Limits::default();
    let mut set = |of: &[Count], random: &mut Random| {
        for count in of {
            if random.one_in_thousand(300) {
                limits.counts.insert(*count, u64::from(random.between(3, 9)));
            }
        }
    };
    set(&[Count::GrpJobs, Count::MaxJobs], random);
    for (name, most) in [("node", nodes), ("cpu", nodes * 8)] {
        if random.one_in_thousand(300) {
            let amounts: &mut Amounts = limits.tres.entry(TresLimit::GrpTres).or_default();
            amounts.insert(name.to_owned(), u64::from(random.between(most / 3 + 1, most)));
        }
    }
    limits
}

impl World {
    /// What the controller's copy says.
    pub(super) fn accounting(&self) -> Accounting {
        Accounting { enforce: self.config.enforce.clone(), ..self.known.facts.clone() }
    }

    /// No limits any more.
    pub(super) fn lift_limits(&mut self) {
        for association in self.known.entities.associations.values_mut() {
            association.limits = Limits::default();
        }
        for qos in self.known.entities.qos.values_mut() {
            qos.limits = Limits::default();
        }
        self.known.renew();
        self.is_shown(|seen| &mut seen.accounting.0);
    }
}

/// How long more may gain priority by age than a limit says: what the scheduler decided may be late, as messages and writes are.
const TOLD: Duration = Duration::from_secs(100);

impl World {
    /// No more waiting jobs gain priority by age than a limit says, for longer than it takes to tell them.
    pub(super) fn against_accruals(&mut self) {
        let clock = self.clock();
        let mut gaining: BTreeMap<AssocId, u64> = BTreeMap::new();
        for core in self.jobs.values() {
            let record = core.record();
            let gains = matches!(record.terms.accrual, Accrual::Since(_)) && core.view(clock).eligible;
            let Some(association) = record.resolved.association.filter(|_| gains) else { continue };
            let waiting = record.array.as_ref().filter(|_| record.array_task.is_none());
            let tasks = waiting.map_or(1, |array| array.pending.len() as u64);
            for above in self.known.entities.lineage(association) {
                *gaining.entry(above.id).or_default() += tasks;
            }
        }
        let mut before = std::mem::take(&mut self.watch.too_many_gain);
        for association in self.known.entities.associations.values() {
            let limits = &association.limits;
            let most = limits.count(Count::GrpJobsAccrue).or_else(|| limits.count(Count::MaxJobsAccrue));
            let gain = gaining.get(&association.id).copied().unwrap_or(0);
            let Some(most) = most.filter(|most| gain > *most) else { continue };
            let since = before.remove(&association.id).unwrap_or(self.now);
            self.watch.too_many_gain.insert(association.id, since);
            if self.now.since(since) > TOLD {
                let what = format!("{gain} jobs of {} gain priority by age, of {most}", association.account);
                self.broken = Some(("no_more_jobs_gain_priority_by_age_than_may", what));
            }
        }
    }
}

/// What jobs of some have at one time.
#[derive(Default)]
struct Has {
    jobs: u64,
    cpus: u64,
    nodes: BTreeSet<u32>,
}

impl Has {
    fn add(&mut self, nodes: &[AllocatedNode]) {
        self.jobs += 1;
        self.cpus += nodes.iter().map(|node| u64::from(node.share.cpus.len())).sum::<u64>();
        self.nodes.extend(nodes.iter().map(|node| node.index.0));
    }
}

/// Runs that nobody ends yet have no more together than their association, its accounts and their QOS may.
pub(super) fn no_limit_of_accounting_is_overbooked(world: &World, scope: &Scope) -> Result<(), String> {
    let entities = &world.known.entities;
    if entities.associations.is_empty() || scope.jobs.is_empty() {
        return Ok(());
    }
    let running = || {
        world.jobs.values().filter_map(|core| {
            let record = core.record();
            let run = record.phase.run().filter(|run| run.ending.is_none() && record.phase.end().is_none())?;
            Some((record.resolved.association?, record.owner.uid, &run.allocation.nodes))
        })
    };
    for association in entities.associations.values().filter(|association| !association.limits.is_empty()) {
        let mut has = Has::default();
        let below = |id: AssocId| entities.lineage(id).any(|above| above.id == association.id);
        running().filter(|(id, ..)| below(*id)).for_each(|(.., nodes)| has.add(nodes));
        let group = |name| association.limits.tres(TresLimit::GrpTres, name);
        let limits = [
            ("jobs", has.jobs, association.limits.count(Count::GrpJobs)),
            ("CPUs", has.cpus, group("cpu")),
            ("nodes", has.nodes.len() as u64, group("node")),
        ];
        for (what, has, most) in limits {
            let of = &association.account;
            ensure(most.is_none_or(|most| has <= most), || format!("{of} has {has} {what} of {most:?}"))?;
        }
    }
    for uid in 1001..=1004 {
        let jobs = running().filter(|(_, owner, _)| *owner == uid).count() as u64;
        let of_qos = entities.qos.values().find_map(|qos| qos.limits.count(Count::MaxJobsPerUser));
        let most = of_qos.or_else(|| entities.effective(AssocId(uid)).limits.count(Count::MaxJobs));
        ensure(most.is_none_or(|most| jobs <= most), || format!("user {uid} has {jobs} jobs of {most:?}"))?;
    }
    Ok(())
}
