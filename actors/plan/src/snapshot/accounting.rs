//! What accounting says of jobs, in a plan's snapshot: limits of associations and QOS ([`AccountingTable`], made from the controller's
//! copy of accounting's entities), what running jobs have of them ([`Used`]), and what was used in the past ([`PastUsage`]).
//! [`crate::rules::accounting`] decides by them.

use super::{affiliation::Affiliation, facts::PartitionFacts};
use garrick_model::{
    config::{Enforce, EnforceWord},
    entities::{
        Entities, NORMAL,
        association::{AssocId, Association},
        limits::{Count, Limits, TresLimit},
        qos::{QosFlag, QosRecord, choices},
        used::{Flow, Who},
    },
    gres::GPU,
    ids::JobId,
    resources::MemoryRequest,
    spec_text::licenses::{LicenseRequest, Licenses},
    state::JobState,
    time::Timestamp,
    view::{AllocatedNode, JobView, NodeHold, NodeView},
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A number that stands for "without end".
pub(crate) const ENDLESS: u64 = u64::MAX;

/// Whose use is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// An association and those below it.
    Association(AssocId),
    /// A QOS, by its number.
    Qos(u32),
    /// A user in a QOS: number, uid.
    QosUser(u32, u32),
    /// An account in a QOS: number, the association of the account itself.
    QosAccount(u32, AssocId),
}

/// Limits with numbers in place of the names of TRES ([`AccountingTable::names`]).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Compiled {
    counts: BTreeMap<Count, u64>,
    tres: BTreeMap<TresLimit, Vec<(usize, u64)>>,
}

impl Compiled {
    fn of(limits: &Limits, names: &[String]) -> Self {
        let place = |name: &String| names.binary_search(name).ok();
        let tres = limits.tres.iter().map(|(limit, amounts)| {
            (*limit, amounts.iter().filter_map(|(name, most)| Some((place(name)?, *most))).collect())
        });
        Self { counts: limits.counts.clone(), tres: tres.collect() }
    }

    /// A number; `None`: no limit.
    pub(crate) fn count(&self, count: Count) -> Option<u64> {
        self.counts.get(&count).copied()
    }

    /// Places of TRES with their numbers.
    pub(crate) fn tres(&self, limit: TresLimit) -> &[(usize, u64)] {
        self.tres.get(&limit).map_or(&[], Vec::as_slice)
    }

    /// Is there one of minutes that were used?
    fn limits_minutes(&self) -> bool {
        self.count(Count::GrpWall).is_some() || !self.tres(TresLimit::GrpTresMins).is_empty()
    }

    fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.tres.values().all(Vec::is_empty)
    }
}

/// What holds for the jobs of an association.
#[derive(Clone, Debug, PartialEq)]
pub struct AssocRules {
    /// The association.
    pub id: AssocId,
    /// It still exists.
    pub living: bool,
    /// Under which names its usage is counted; `None`: it is that of an account.
    pub who: Option<Who>,
    /// Name of its account.
    pub account_name: String,
    /// It is for this partition only.
    pub partition: Option<String>,
    /// It is its user's default.
    pub is_default: bool,
    /// The QOS of jobs that name none.
    pub default_qos: Option<String>,
    /// The association of its account.
    pub account: AssocId,
    /// Limits of its jobs, also those from above.
    pub(crate) limits: Compiled,
    /// Limits of groups, from itself up to the root, where there are any.
    pub(crate) groups: Vec<(AssocId, Compiled)>,
    /// QOS that its jobs may have.
    pub qos: BTreeSet<String>,
}

/// What holds for the jobs of a QOS.
#[derive(Clone, Debug, PartialEq)]
pub struct QosRules {
    /// The QOS.
    pub record: QosRecord,
    /// Its limits.
    pub(crate) limits: Compiled,
}

/// What the controller's copy of accounting's entities says of jobs of this cluster. Made anew when a copy comes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccountingTable {
    /// Names of TRES that some limit is for, in order.
    names: Vec<String>,
    associations: FxHashMap<AssocId, AssocRules>,
    qos: BTreeMap<String, QosRules>,
    /// Living associations of each user, by number.
    of_user: FxHashMap<String, Vec<AssocId>>,
    /// Living associations of accounts themselves, by name.
    of_account: FxHashMap<String, AssocId>,
    /// WCKeys of each user, and which one is the default.
    wckeys: FxHashMap<String, Vec<(String, bool)>>,
    /// Some limit is on waiting jobs that gain priority by age.
    accrual: bool,
}

impl AccountingTable {
    /// Of a cluster.
    pub fn new(entities: &Entities, cluster: &str) -> Self {
        let of_cluster = || entities.associations.values().filter(|a| a.cluster == cluster);
        let limits = of_cluster().map(|a| &a.limits).chain(entities.qos.values().map(|qos| &qos.limits));
        let accrual = limits.clone().any(|l| l.counts.keys().any(|count| count.is_of_age()));
        let names: BTreeSet<String> = limits.flat_map(|l| l.tres.values()).flat_map(BTreeMap::keys).cloned().collect();
        let names: Vec<String> = names.into_iter().collect();
        let groups_of = |limits: &Limits| {
            let mut limits = limits.clone();
            limits.counts.retain(|count, _| count.is_of_group());
            limits.tres.retain(|limit, _| limit.is_of_group());
            Compiled::of(&limits, &names)
        };
        let rules = |association: &Association| {
            let id = association.id;
            let effective = entities.effective(id);
            let lineage = || entities.lineage(id);
            AssocRules {
                id,
                living: !association.deleted,
                who: association.who(),
                account_name: association.account.clone(),
                partition: association.partition.clone(),
                is_default: association.is_default,
                default_qos: effective.default_qos,
                account: lineage().find(|a| a.user.is_none()).map_or(id, |a| a.id),
                limits: Compiled::of(&effective.limits, &names),
                groups: lineage().map(|a| (a.id, groups_of(&a.limits))).filter(|(_, l)| !l.is_empty()).collect(),
                qos: effective.qos,
            }
        };
        let qos = entities.qos.iter().filter(|(_, qos)| !qos.deleted);
        let mut of_user: FxHashMap<String, Vec<AssocId>> = FxHashMap::default();
        let mut of_account = FxHashMap::default();
        for association in of_cluster().filter(|a| !a.deleted) {
            match &association.user {
                Some(user) => of_user.entry(user.clone()).or_default().push(association.id),
                None => _ = of_account.insert(association.account.clone(), association.id),
            }
        }
        let mut wckeys: FxHashMap<String, Vec<(String, bool)>> = FxHashMap::default();
        for key in entities.wckeys.values().filter(|key| !key.deleted && key.cluster == cluster) {
            wckeys.entry(key.user.clone()).or_default().push((key.name.clone(), key.is_default));
        }
        Self {
            associations: of_cluster().map(|a| (a.id, rules(a))).collect(),
            of_user,
            of_account,
            wckeys,
            accrual,
            qos: qos
                .map(|(name, record)| {
                    let limits = Compiled::of(&record.limits, &names);
                    (name.clone(), QosRules { record: record.clone(), limits })
                })
                .collect(),
            names,
        }
    }

    /// Names of TRES that some limit is for.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Nothing is known of accounts and users.
    pub fn has_no_associations(&self) -> bool {
        self.associations.is_empty()
    }

    /// Nothing came from accounting yet.
    pub fn is_empty(&self) -> bool {
        self.associations.is_empty() && self.qos.is_empty()
    }

    /// The living association of a job: of its user in its account, for its partition if there is one for that, else for all
    /// partitions. Which account that is, the association says that was found when the job came; a job that has none any more, or
    /// came before accounts were enforced, goes by what it names, or by its user's default.
    pub fn association_of(&self, job: Affiliation<&str>) -> Option<&AssocRules> {
        let known = job.association.and_then(|id| self.association(id)).filter(|rules| rules.living);
        let Some((known, who)) = known.and_then(|rules| Some((rules, rules.who.as_ref()?))) else {
            let user = lower(job.user);
            let named = job.account.filter(|account| !account.is_empty()).map(lower);
            let default =
                || self.of_user(&user).find(|rules| rules.is_default).map(|rules| rules.account_name.as_str());
            let account = named.as_deref().or_else(default)?;
            return self.within(&user, account, job.partition);
        };
        Some(self.within(&who.user, &who.account, job.partition).unwrap_or(known))
    }

    /// Does anybody have a limit on waiting jobs that gain priority by age?
    pub(crate) fn limits_accrual(&self) -> bool {
        self.accrual
    }

    /// Living associations of a user.
    fn of_user(&self, user: &str) -> impl Iterator<Item = &AssocRules> {
        self.of_user.get(user).into_iter().flatten().filter_map(|id| self.associations.get(id))
    }

    /// Those of a user in an account: that for the partition, else that for all partitions.
    fn within(&self, user: &str, account: &str, partition: Option<&str>) -> Option<&AssocRules> {
        let within = || self.of_user(user).filter(|rules| rules.account_name == account);
        let own = within().find(|rules| rules.partition.is_some() && rules.partition.as_deref() == partition);
        own.or_else(|| within().find(|rules| rules.partition.is_none()))
    }

    /// Does anybody have a limit of minutes that were used?
    pub fn limits_minutes(&self) -> bool {
        let of_groups = || self.associations.values().flat_map(|rules| &rules.groups).map(|(_, limits)| limits);
        self.qos.values().map(|qos| &qos.limits).chain(of_groups()).any(Compiled::limits_minutes)
    }

    /// The limits of groups that the use of a user in an account counts for: those of the user's association, or where that is gone
    /// of the account's.
    fn groups_of(&self, who: &Who) -> &[(AssocId, Compiled)] {
        let own = self.of_user(&who.user).find(|rules| rules.who.as_ref() == Some(who));
        let account = || self.associations.get(self.of_account.get(&who.account)?);
        own.or_else(account).map_or(&[], |rules| rules.groups.as_slice())
    }

    /// The QOS of a job: that which it names, the default of its association, or `normal`. `None`: there is no such QOS. Of several
    /// that a waiting job names, the first counts.
    pub fn qos_of(&self, job: Affiliation<&str>, association: Option<&AssocRules>) -> Option<&QosRules> {
        let named = job.qos.and_then(|named| choices(named).next());
        let default = || association.and_then(|rules| rules.default_qos.as_deref());
        self.qos(named.or_else(default).unwrap_or(NORMAL))
    }

    /// The WCKey of a user's jobs that name none.
    pub fn default_wckey(&self, user: &str) -> Option<&str> {
        self.wckeys
            .get(&user.to_ascii_lowercase())?
            .iter()
            .find(|(_, is_default)| *is_default)
            .map(|(name, _)| name.as_str())
    }

    /// Has the user that WCKey?
    pub fn has_wckey(&self, user: &str, name: &str) -> bool {
        self.wckeys.get(&user.to_ascii_lowercase()).is_some_and(|keys| keys.iter().any(|(known, _)| known == name))
    }

    /// An association.
    pub fn association(&self, id: AssocId) -> Option<&AssocRules> {
        self.associations.get(&id)
    }

    /// A QOS by name, in any case.
    pub fn qos(&self, name: &str) -> Option<&QosRules> {
        self.qos.get(name).or_else(|| self.qos.get(&name.to_ascii_lowercase()))
    }
}

/// What was used in the past, and by running jobs until the moment of the snapshot, with decay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastUsage {
    /// Of each association with a limit of minutes, with that of those below it.
    pub associations: BTreeMap<AssocId, Flow>,
    /// Of each QOS with such a limit, by its number.
    pub qos: BTreeMap<u32, Flow>,
    /// The fair-share factor of each association, as of its last calculation.
    pub fair_share: Arc<BTreeMap<AssocId, f64>>,
}

impl PastUsage {
    /// Adds what a user in an account used, where there is a limit for it. `flow` is only asked then.
    pub fn add(&mut self, table: &AccountingTable, who: &Who, flow: impl FnOnce() -> Flow) {
        let groups = table.groups_of(who).iter().filter(|(_, limits)| limits.limits_minutes());
        let ids: Vec<AssocId> = groups.map(|(id, _)| *id).collect();
        if !ids.is_empty() {
            let flow = flow();
            ids.into_iter().for_each(|id| self.associations.entry(id).or_default().add(&flow));
        }
    }

    /// The same of a QOS.
    pub fn add_qos(&mut self, table: &AccountingTable, name: &str, flow: impl FnOnce() -> Flow) {
        if let Some(qos) = table.qos(name).filter(|qos| qos.limits.limits_minutes()) {
            self.qos.insert(qos.record.id, flow());
        }
    }
}

/// What running jobs of a holder have together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Jobs.
    pub jobs: u64,
    /// Amounts, by the places of their names.
    pub tres: Vec<u64>,
    /// Amounts times the seconds that are left by the time limits.
    pub left_secs: Vec<u64>,
    /// Seconds that are left by the time limits.
    pub wall_left_secs: u64,
    /// How many of the jobs are on each node, by its place.
    pub nodes: BTreeMap<usize, u32>,
}

/// What running jobs have, by holder. Only holders with limits are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used(FxHashMap<Holder, Sum>);

impl Used {
    /// Of one holder.
    pub fn of(&self, holder: Holder) -> Option<&Sum> {
        self.0.get(&holder)
    }

    /// Counts a job.
    pub(crate) fn add(&mut self, holders: &[Holder], demand: &Demand) {
        for holder in holders {
            let sum = self.0.entry(*holder).or_default();
            sum.jobs += 1;
            sum.tres.resize(demand.amounts.len(), 0);
            sum.left_secs.resize(demand.amounts.len(), 0);
            for (at, amount) in demand.amounts.iter().enumerate() {
                sum.tres[at] = sum.tres[at].saturating_add(*amount);
                sum.left_secs[at] = sum.left_secs[at].saturating_add(demand.times_secs(at));
            }
            sum.wall_left_secs = sum.wall_left_secs.saturating_add(demand.wall_secs());
            for node in demand.nodes.iter().flatten() {
                *sum.nodes.entry(*node).or_insert(0) += 1;
            }
        }
    }
}

/// What a job asks for, or gets, as far as limits are concerned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Amounts, by the places of their names.
    pub amounts: Vec<u64>,
    /// The same on the node where it has most.
    pub on_node: Vec<u64>,
    /// Places of its nodes; `None`: it has none yet.
    pub nodes: Option<Vec<usize>>,
    /// How long it may run; `None`: without end.
    pub secs: Option<u64>,
    /// How many times minutes count.
    pub factor: f64,
}

impl Demand {
    /// An amount times the run time.
    pub(crate) fn times_secs(&self, at: usize) -> u64 {
        self.amounts[at].saturating_mul(if self.amounts[at] == 0 { 0 } else { self.wall_secs() })
    }

    /// The run time, with the factor.
    pub(crate) fn wall_secs(&self) -> u64 {
        match self.secs {
            None => ENDLESS,
            Some(secs) if self.factor == 1.0 => secs,
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            Some(secs) => (secs as f64 * self.factor) as u64,
        }
    }
}

/// The facts of one snapshot.
#[derive(Clone, Debug, Default)]
pub struct Accounting {
    /// `AccountingStorageEnforce`.
    pub enforce: Enforce,
    /// Associations and QOS.
    pub table: Arc<AccountingTable>,
    /// What was used.
    pub past: Arc<PastUsage>,
    /// What running jobs have.
    pub used: Arc<Used>,
}

/// The association and QOS of a job in a partition.
#[derive(Clone, Debug)]
pub(crate) struct Standing<'t> {
    pub id: Option<AssocId>,
    pub association: Option<&'t AssocRules>,
    /// Its QOS.
    pub own: Option<&'t QosRules>,
    /// QOS whose limits hold, those that go before others first.
    pub qos: Vec<&'t QosRules>,
    pub uid: u32,
}

impl Standing<'_> {
    /// Whom the job counts for while it waits or runs.
    pub(crate) fn submitters(&self) -> Vec<Holder> {
        let groups = self.association.iter().flat_map(|rules| &rules.groups).map(|(id, _)| Holder::Association(*id));
        let mut holders: Vec<Holder> = groups.chain(self.id.map(Holder::Association)).collect();
        for qos in &self.qos {
            let number = qos.record.id;
            holders.extend([Holder::Qos(number), Holder::QosUser(number, self.uid)]);
            holders.extend(self.association.map(|rules| Holder::QosAccount(number, rules.account)));
        }
        holders
    }

    /// Whose use its run is.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        let mut holders: Vec<Holder> = Vec::new();
        if let (Some(id), Some(rules)) = (self.id, self.association) {
            holders.extend(rules.groups.iter().map(|(id, _)| Holder::Association(*id)));
            let own = Holder::Association(id);
            if rules.limits.count(Count::MaxJobs).is_some() && !holders.contains(&own) {
                holders.push(own);
            }
        }
        for qos in self.qos.iter().filter(|qos| !qos.limits.is_empty()) {
            let number = qos.record.id;
            holders.extend([Holder::Qos(number), Holder::QosUser(number, self.uid)]);
            holders.extend(self.association.map(|rules| Holder::QosAccount(number, rules.account)));
        }
        holders
    }
}

/// What nodes hold for a job whose run is not shown yet.
#[derive(Default)]
struct Begun {
    partition: String,
    nodes: Vec<AllocatedNode>,
    end: Option<Timestamp>,
}

/// What nodes hold for other jobs than those, unless the run is over.
fn begun(shown: FxHashSet<JobId>, nodes: &[Arc<NodeView>]) -> FxHashMap<JobId, Begun> {
    let mut begun: FxHashMap<JobId, Begun> = FxHashMap::default();
    for node in nodes {
        let of_others = |hold: &&NodeHold| !hold.completing && !hold.kept && !shown.contains(&hold.job);
        for hold in node.holds.iter().filter(of_others) {
            let one = begun.entry(hold.job).or_default();
            one.partition = hold.partition.clone().unwrap_or_default();
            one.end = hold.expected_end;
            let share = hold.share.clone();
            one.nodes.push(AllocatedNode { name: node.name.clone(), index: node.index, share });
        }
    }
    begun
}

impl Accounting {
    /// Is that enforced?
    pub fn enforces(&self, word: EnforceWord) -> bool {
        self.enforce.has(word)
    }

    /// Counts what running jobs have now, and those that start: nodes hold resources for a job before its own view shows the run.
    #[must_use]
    pub fn counting(
        mut self,
        jobs: &[Arc<JobView>],
        nodes: &[Arc<NodeView>],
        partitions: &[PartitionFacts],
        now: Timestamp,
    ) -> Self {
        if !self.enforces(EnforceWord::Limits) {
            return self;
        }
        let of_partition: BTreeMap<&str, Option<&str>> =
            partitions.iter().map(|p| (p.name.as_str(), p.qos.as_deref())).collect();
        let mut used = Used::default();
        let has_run =
            |job: &&Arc<JobView>| matches!(job.state, JobState::Configuring | JobState::Running | JobState::Suspended);
        let mut count =
            |job: &JobView, partition: &str, what: (&[AllocatedNode], &Licenses), end: Option<Timestamp>| {
                let of_partition = of_partition.get(partition).copied().flatten();
                let own = Affiliation::of(job).within(partition);
                let standing = self.standing(own, of_partition);
                let mut holders = standing.holders();
                // Of one that names several QOS it is not known yet which of them it starts with: it counts for each until it shows that.
                for name in own.qos.into_iter().flat_map(|named| choices(named).skip(1)) {
                    let more = self.standing(Affiliation { qos: Some(name), ..own }, of_partition).holders();
                    let new: Vec<Holder> = more.into_iter().filter(|holder| !holders.contains(holder)).collect();
                    holders.extend(new);
                }
                if !holders.is_empty() {
                    let left = end.map(|end| end.since(now).as_secs());
                    used.add(&holders, &self.gets(job, &standing, what, left));
                }
            };
        for job in jobs.iter().filter(has_run) {
            if let Some(run) = &job.allocation {
                count(job, &run.partition, (&run.nodes, &run.licenses), job.end_time);
            }
        }
        let begun = begun(jobs.iter().filter(has_run).map(|job| job.id).collect(), nodes);
        if !begun.is_empty() {
            for job in jobs.iter().filter(|job| job.state.waits()) {
                if let Some(Begun { partition, nodes, end }) = begun.get(&job.id) {
                    count(job, partition, (nodes, &Licenses::default()), *end);
                }
            }
        }
        self.used = Arc::new(used);
        self
    }

    /// The association and QOS of a job in a partition with that QOS.
    pub(crate) fn standing(&self, job: Affiliation<&str>, partition_qos: Option<&str>) -> Standing<'_> {
        let association = self.table.association_of(job);
        let own = self.table.qos_of(job, association);
        let of_partition = partition_qos.and_then(|name| self.table.qos(name));
        let first = own.is_some_and(|qos| qos.record.has(QosFlag::OverPartQos));
        let mut qos: Vec<&QosRules> =
            if first { [own, of_partition] } else { [of_partition, own] }.into_iter().flatten().collect();
        qos.dedup_by_key(|qos| qos.record.id);
        Standing { id: association.map(|rules| rules.id), association, own, qos, uid: job.uid }
    }

    /// The same while it is considered in that partition.
    pub(crate) fn standing_in(&self, job: &JobView, partition: &PartitionFacts) -> Standing<'_> {
        self.standing(Affiliation::of(job).within(&partition.name), partition.qos.as_deref())
    }

    /// How many times the minutes of a job of that QOS count (`UsageFactorSafe`).
    fn factor(&self, standing: &Standing<'_>) -> f64 {
        let safe = self.enforces(EnforceWord::Safe);
        let own = standing.own.filter(|qos| safe && qos.record.has(QosFlag::UsageFactorSafe));
        own.map_or(1.0, |qos| qos.record.usage_factor)
    }

    /// What a waiting job asks for at least.
    pub(crate) fn asks(&self, job: &JobView, standing: &Standing<'_>, secs: Option<u64>) -> Demand {
        let gres = job.spec.gres.counted(job.min_nodes, job.tasks);
        let first = LicenseRequest::of(&job.spec)
            .and_then(|request| request.alternatives.into_iter().next())
            .unwrap_or_default();
        let (nodes, cpus) = (u64::from(job.min_nodes), u64::from(job.cpus));
        let spread = u64::from(job.max_nodes.max(1));
        let per_gpu = || job.spec.gres.mem_per_gpu.unwrap_or_default().0;
        let gpus = gres.get(GPU).copied().unwrap_or(0);
        let (memory, memory_on_node) = match job.memory {
            MemoryRequest::PerNode(each) => (each.0.saturating_mul(nodes), each.0),
            MemoryRequest::PerCpu(each) => (each.0.saturating_mul(cpus), each.0.saturating_mul(cpus.div_ceil(spread))),
            MemoryRequest::Default | MemoryRequest::All => (per_gpu().saturating_mul(gpus), 0),
        };
        let amount = |name: &str| match name.split_once('/') {
            None if name == "cpu" => (cpus, cpus.div_ceil(spread)),
            None if name == "mem" => (memory, memory_on_node),
            None if name == "node" => (nodes, 1),
            None if name == "billing" => (job.billing.unwrap_or(cpus), 0),
            Some(("gres", what)) => {
                let all = gres.get(what).copied().unwrap_or(0);
                (all, all.div_ceil(spread))
            }
            Some(("license", what)) => (first.count(what).into(), 0),
            _ => (0, 0),
        };
        let (amounts, on_node) = self.table.names().iter().map(|name| amount(name)).unzip();
        Demand { amounts, on_node, nodes: None, secs, factor: self.factor(standing) }
    }

    /// What a job has with these nodes and licenses.
    pub(crate) fn gets(
        &self,
        job: &JobView,
        standing: &Standing<'_>,
        (nodes, licenses): (&[AllocatedNode], &Licenses),
        secs: Option<u64>,
    ) -> Demand {
        let on = |node: &AllocatedNode, name: &str| match name.split_once('/') {
            None if name == "cpu" => u64::from(node.share.cpus.len()),
            None if name == "mem" => node.share.memory.map_or(0, |memory| memory.0),
            None if name == "node" => 1,
            Some(("gres", what)) => {
                let (name, kind) = what.split_once(':').map_or((what, None), |(name, kind)| (name, Some(kind)));
                let such = node.share.gres.iter().filter(|one| one.name == name);
                such.filter(|one| kind.is_none() || one.kind.as_deref() == kind).map(|one| one.count).sum()
            }
            _ => 0,
        };
        let cpus = || nodes.iter().map(|node| u64::from(node.share.cpus.len())).sum::<u64>();
        let amount = |name: &str| match name.split_once('/') {
            None if name == "billing" => (job.billing.unwrap_or_else(cpus), 0),
            Some(("license", what)) => (licenses.count(what).into(), 0),
            _ => {
                let each = || nodes.iter().map(|node| on(node, name));
                (each().fold(0, u64::saturating_add), each().max().unwrap_or(0))
            }
        };
        let (amounts, on_node) = self.table.names().iter().map(|name| amount(name)).unzip();
        let places = nodes.iter().map(|node| node.index.0 as usize).collect();
        Demand { amounts, on_node, nodes: Some(places), secs, factor: self.factor(standing) }
    }
}

/// Names are nearly always in lower case already.
fn lower(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|b| b.is_ascii_uppercase()) { name.to_ascii_lowercase().into() } else { name.into() }
}
