//! Fair shares: who has had less than his share of what is used goes first. Three algorithms, as on Slurm's pages `fair_tree.html`
//! (the default), `classic_fair_share.html` (`PriorityFlags=NO_FAIR_TREE`) and `priority_multifactor3.html` (`DEPTH_OBLIVIOUS`). Pure: associations, usage and the moment are
//! arguments. The scheduler has this calculated every `PriorityCalcPeriod`; `sshare` shows it.
//!
//! Fair Tree: siblings are ordered by their level fair share, which is the share of the account's shares that they have, divided by
//! the share of the account's usage that is theirs. Users are ranked as a walk over the ordered tree finds them, and the factor is
//! rank / number of users.
//!
//! `Fairshare=parent` (sacctmgr(1)): the members of such an account count as those of the account above it, and such a user goes by
//! his account: all such users of an account share the rank that its best one can have.

use crate::{
    rules::priority::Standing,
    snapshot::{accounting::AccountingTable, affiliation::Affiliation},
};
use garrick_model::{
    config::PrioritySettings,
    entities::{
        Entities,
        association::{AssocId, Association, Shares},
        qos::QosRecord,
        used::{Used, Who},
    },
    time::Timestamp,
    view::JobView,
};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

/// Which factors are calculated, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Fair Tree.
    #[default]
    Tree,
    /// Classic, with `FairShareDampeningFactor`.
    Classic {
        /// At least 1.
        dampening: u32,
    },
    /// `DEPTH_OBLIVIOUS`, with `FairShareDampeningFactor`.
    DepthOblivious {
        /// At least 1.
        dampening: u32,
    },
}

impl Method {
    /// As the site says.
    pub const fn of(settings: &PrioritySettings) -> Self {
        let dampening = settings.dampening;
        match (settings.flags.depth_oblivious, settings.flags.no_fair_tree) {
            (true, _) => Self::DepthOblivious { dampening },
            (false, true) => Self::Classic { dampening },
            (false, false) => Self::Tree,
        }
    }
}

/// What there is of one association.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Share {
    /// Levels below the root.
    pub depth: u32,
    /// What it, or for an account all in it, has used.
    pub used: Used,
    /// Its part of the shares: of its siblings' in Fair Tree, of the cluster in the classic algorithm. 0 to 1.
    pub norm_shares: f64,
    /// Its part of all usage. 0 to 1.
    pub norm_usage: f64,
    /// Its part of its account's usage in Fair Tree; with that of its siblings in the classic algorithm. 0 to 1.
    pub effective: f64,
    /// Fair Tree's level fair share: 0 to infinity.
    pub level: f64,
    /// All shares of its siblings and itself.
    pub level_shares: u64,
    /// The fair-share factor, 0 to 1. Of accounts only in the classic algorithm.
    pub factor: Option<f64>,
}

/// The fair shares of a cluster at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FairShares {
    /// The moment.
    pub as_of: Timestamp,
    /// What they were calculated from.
    pub entities: Arc<Entities>,
    shares: BTreeMap<AssocId, Share>,
    /// From the root down: each account, its users by name, then its accounts by name.
    order: Vec<AssocId>,
    /// Priorities of associations, with what they inherit.
    priorities: BTreeMap<AssocId, u32>,
    /// Which association and QOS a job has.
    table: Arc<AccountingTable>,
    greatest_priority: u32,
    greatest_qos: u32,
    /// How they were calculated.
    pub method: Method,
    /// What was used in each QOS.
    pub qos: BTreeMap<String, Used>,
}

impl FairShares {
    /// Calculates them. Without associations there are none.
    pub fn new(
        entities: Arc<Entities>,
        table: Arc<AccountingTable>,
        cluster: &str,
        used: &BTreeMap<Who, Used>,
        method: Method,
        as_of: Timestamp,
    ) -> Self {
        let mut tree = Tree::new(&entities, cluster);
        tree.use_up(used);
        match method {
            Method::Tree => tree.levels(),
            Method::Classic { dampening } => tree.classic(dampening, effective),
            Method::DepthOblivious { dampening } => tree.classic(dampening, oblivious),
        }
        let Tree { shares, order, .. } = tree;
        let priority = |own: &Association| (own.id, entities.effective(own.id).priority.unwrap_or(0));
        let priorities: BTreeMap<AssocId, u32> = entities.living(cluster).map(priority).collect();
        Self {
            as_of,
            greatest_priority: priorities.values().copied().max().unwrap_or(0),
            priorities,
            table,
            greatest_qos: entities.qos.values().filter(|qos| !qos.deleted).map(|qos| qos.priority).max().unwrap_or(0),
            shares,
            order,
            method,
            qos: BTreeMap::new(),
            entities,
        }
    }

    /// The same with what was used in each QOS.
    #[must_use]
    pub fn with_qos(self, qos: BTreeMap<String, Used>) -> Self {
        Self { qos, ..self }
    }

    /// The fair-share factor of each association.
    pub fn factors(&self) -> BTreeMap<AssocId, f64> {
        self.iter().filter_map(|(of, share)| Some((of.id, share.factor?))).collect()
    }

    /// Nothing is known of associations.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Associations in the order of a tree, each with its share.
    pub fn iter(&self) -> impl Iterator<Item = (&Association, &Share)> {
        self.order.iter().filter_map(|id| Some((self.entities.associations.get(id)?, self.shares.get(id)?)))
    }

    /// That of an association.
    pub fn get(&self, id: AssocId) -> Option<&Share> {
        self.shares.get(&id)
    }

    /// The association of a job.
    pub fn association(&self, job: &JobView) -> Option<&Association> {
        self.entities.associations.get(&self.table.association_of(Affiliation::of(job))?.id)
    }

    /// The QOS of a job.
    pub fn qos_of(&self, job: &JobView) -> Option<&QosRecord> {
        let job = Affiliation::of(job);
        self.table.qos_of(job, self.table.association_of(job)).map(|qos| &qos.record)
    }

    /// The factors of a job's association and QOS. `normal_assoc`, `normal_qos`: priorities divided by the greatest one.
    pub fn standing(&self, job: &JobView, normal_assoc: bool, normal_qos: bool) -> Standing {
        let job = Affiliation::of(job);
        let association = self.table.association_of(job);
        let qos = self.table.qos_of(job, association).map(|qos| &qos.record);
        let part = |own: u32, greatest: u32, normal: bool| match (normal, greatest) {
            (false, _) => f64::from(own),
            (true, 0) => 0.0,
            (true, greatest) => f64::from(own) / f64::from(greatest),
        };
        let own = association.and_then(|own| self.priorities.get(&own.id)).copied().unwrap_or(0);
        Standing {
            fairshare: association.and_then(|own| self.shares.get(&own.id)?.factor).unwrap_or(0.0),
            assoc: part(own, self.greatest_priority, normal_assoc),
            qos: part(qos.map_or(0, |qos| qos.priority), self.greatest_qos, normal_qos),
        }
    }
}

/// The tree while it is calculated.
struct Tree<'e> {
    entities: &'e Entities,
    root: Option<AssocId>,
    children: BTreeMap<AssocId, Vec<&'e Association>>,
    shares: BTreeMap<AssocId, Share>,
    order: Vec<AssocId>,
}

impl<'e> Tree<'e> {
    fn new(entities: &'e Entities, cluster: &str) -> Self {
        let mut children: BTreeMap<AssocId, Vec<&Association>> = BTreeMap::new();
        let mut root = None;
        for own in entities.living(cluster) {
            match own.parent {
                Some(parent) => children.entry(parent).or_default().push(own),
                None => root = root.or(Some(own.id)),
            }
        }
        for members in children.values_mut() {
            // Users before accounts, as sshare(1) shows them.
            members.sort_by_key(|own| (own.user.is_none(), &own.user, &own.account, &own.partition));
        }
        let mut tree = Self { entities, root, children, shares: BTreeMap::new(), order: Vec::new() };
        // Without recursion, however deep it is; what is damaged, a loop, is not below the root.
        let mut stack: Vec<(AssocId, u32)> = root.map(|root| (root, 0)).into_iter().collect();
        while let Some((id, depth)) = stack.pop() {
            tree.order.push(id);
            tree.shares.insert(id, Share { depth, ..Share::default() });
            stack.extend(tree.members(id).iter().rev().map(|own| (own.id, depth.saturating_add(1))));
        }
        tree
    }

    fn members(&self, id: AssocId) -> &[&'e Association] {
        self.children.get(&id).map_or(&[], Vec::as_slice)
    }

    fn shares_mut(&mut self, id: AssocId) -> Option<&mut Share> {
        self.shares.get_mut(&id)
    }

    fn of(&self, id: AssocId) -> &Share {
        static NONE: Share = Share {
            depth: 0,
            used: Used { tres: BTreeMap::new(), wall_secs: 0.0 },
            norm_shares: 0.0,
            norm_usage: 0.0,
            effective: 0.0,
            level: 0.0,
            level_shares: 0,
            factor: None,
        };
        self.shares.get(&id).unwrap_or(&NONE)
    }

    fn billed(&self, id: AssocId) -> f64 {
        self.of(id).used.billed()
    }

    /// Distributes usage: to the user's association, or where that is gone to the account's; and up the tree.
    fn use_up(&mut self, used: &BTreeMap<Who, Used>) {
        let mut by_who: BTreeMap<Who, AssocId> = BTreeMap::new();
        let mut by_account: BTreeMap<&str, AssocId> = BTreeMap::new();
        for id in &self.order {
            let Some(own) = self.entities.associations.get(id) else { continue };
            match own.who() {
                Some(who) => drop(by_who.insert(who, *id)),
                None => drop(by_account.insert(own.account.as_str(), *id)),
            }
        }
        for (who, used) in used {
            let own = by_who.get(who).or_else(|| by_account.get(who.account.as_str())).copied();
            if let Some(share) = own.and_then(|own| self.shares_mut(own)) {
                share.used.add(used);
            }
        }
        for id in self.order.clone().into_iter().rev() {
            let Some(parent) = self.entities.associations.get(&id).and_then(|own| own.parent) else { continue };
            let own = self.of(id).used.clone();
            if let Some(above) = self.shares_mut(parent) {
                above.used.add(&own);
            }
        }
        let all = self.root.map_or(0.0, |root| self.billed(root));
        for share in self.shares.values_mut() {
            share.norm_usage = part(share.used.billed(), all);
        }
    }

    /// The members that share what an account gets: those of accounts with `Fairshare=parent` in place of these. Users with
    /// `Fairshare=parent` come apart: they go by the account.
    fn sharing(&self, id: AssocId) -> (Vec<&'e Association>, Vec<AssocId>) {
        let (mut sharing, mut of_parent) = (Vec::new(), Vec::new());
        let mut stack: Vec<&Association> = self.members(id).iter().rev().copied().collect();
        while let Some(own) = stack.pop() {
            match (own.shares, own.user.is_some()) {
                (Shares::Number(_), _) => sharing.push(own),
                (Shares::Parent, true) => of_parent.push(own.id),
                (Shares::Parent, false) => stack.extend(self.members(own.id).iter().rev().copied()),
            }
        }
        (sharing, of_parent)
    }

    /// Sets what members have of their level, and returns them. `whole`: what they share has used that.
    fn level(&mut self, id: AssocId) -> Vec<&'e Association> {
        let (sharing, of_parent) = self.sharing(id);
        let all: u64 = sharing.iter().map(|own| shares_of(own)).sum();
        let whole = self.billed(id);
        for own in &sharing {
            let (norm_shares, effective) = (part(wide(shares_of(own)), wide(all)), part(self.billed(own.id), whole));
            if let Some(share) = self.shares_mut(own.id) {
                (share.norm_shares, share.effective, share.level_shares) = (norm_shares, effective, all);
                share.level = match (norm_shares > 0.0, effective > 0.0) {
                    (false, _) => 0.0,
                    (true, false) => f64::INFINITY,
                    (true, true) => norm_shares / effective,
                };
            }
        }
        for own in of_parent {
            let above = self.of(id).clone();
            if let Some(share) = self.shares_mut(own) {
                (share.norm_shares, share.effective) = (above.norm_shares, above.effective);
                (share.level, share.level_shares) = (above.level, above.level_shares);
            }
        }
        self.reparented(id);
        sharing
    }

    /// Accounts with `Fairshare=parent` show what the account above them has.
    fn reparented(&mut self, id: AssocId) {
        let above = self.of(id).clone();
        let parents: Vec<AssocId> = self
            .members(id)
            .iter()
            .filter(|own| own.user.is_none() && own.shares == Shares::Parent)
            .map(|own| own.id)
            .collect();
        for own in parents {
            if let Some(share) = self.shares_mut(own) {
                (share.norm_shares, share.effective) = (above.norm_shares, above.effective);
                (share.level, share.level_shares) = (above.level, above.level_shares);
            }
        }
    }

    /// Fair Tree.
    fn levels(&mut self) {
        let Some(root) = self.root else { return };
        if let Some(share) = self.shares_mut(root) {
            (share.effective, share.level_shares) = (f64::from(u8::from(share.used.billed() > 0.0)), 1);
        }
        let is_user = |id: &&AssocId| self.entities.associations.get(id).is_some_and(|own| own.user.is_some());
        let users = u32::try_from(self.order.iter().filter(is_user).count()).unwrap_or(u32::MAX);
        let mut walk = Walk { rank: users, left: users, users };
        self.rank(vec![root], false, &mut walk);
    }

    /// Ranks the members of these accounts together, which have equal level fair shares. `tied`: the best of them share the rank of
    /// who came before.
    fn rank(&mut self, accounts: Vec<AssocId>, mut tied: bool, walk: &mut Walk) {
        let mut groups: BTreeMap<Reverse<Level>, (Vec<AssocId>, Vec<AssocId>)> = BTreeMap::new();
        for account in accounts {
            let best = groups.entry(Reverse(Level(f64::INFINITY))).or_default();
            // They go by the account, whose turn it is.
            best.0.extend(self.of_parent(account));
            for own in self.level(account) {
                let (users, accounts) = groups.entry(Reverse(Level(self.of(own.id).level))).or_default();
                if own.user.is_some() { users.push(own.id) } else { accounts.push(own.id) }
            }
        }
        for (users, accounts) in groups.into_values() {
            let before = walk.left;
            for user in users {
                let factor = walk.next(tied);
                tied = true;
                if let Some(share) = self.shares_mut(user) {
                    share.factor = Some(factor);
                }
            }
            if !accounts.is_empty() {
                self.rank(accounts, tied, walk);
            }
            // Accounts without users rank nobody.
            tied &= walk.left == before;
        }
    }

    fn of_parent(&self, id: AssocId) -> Vec<AssocId> {
        self.sharing(id).1
    }

    /// The algorithms with a factor for each association by itself: `F = 2^(-UE/S/d)`, where UE is what is said to be its effective
    /// usage.
    fn classic(&mut self, dampening: u32, effective: fn(&Share, &Share, &Siblings) -> f64) {
        let Some(root) = self.root else { return };
        let d = f64::from(dampening.max(1));
        if let Some(share) = self.shares_mut(root) {
            (share.norm_shares, share.level_shares) = (1.0, 1);
            share.effective = share.norm_usage;
        }
        let mut stack = vec![root];
        while let Some(id) = stack.pop() {
            let above = self.of(id).clone();
            let (sharing, of_parent) = self.sharing(id);
            let all: u64 = sharing.iter().map(|own| shares_of(own)).sum();
            let used = sharing.iter().map(|own| self.of(own.id).norm_usage).sum();
            for own in sharing {
                let level = Siblings { own: part(wide(shares_of(own)), wide(all)), used };
                if let Some(share) = self.shares_mut(own.id) {
                    share.norm_shares = above.norm_shares * level.own;
                    // Of accounts just under the root it is what they used.
                    share.effective = if id == root { share.norm_usage } else { effective(share, &above, &level) };
                    share.level_shares = all;
                    share.factor = Some(factor(share.effective, share.norm_shares, d));
                }
                if own.user.is_none() {
                    stack.push(own.id);
                }
            }
            for own in of_parent {
                if let Some(share) = self.shares_mut(own) {
                    (share.norm_shares, share.effective) = (above.norm_shares, above.effective);
                    share.level_shares = above.level_shares;
                    share.factor = Some(factor(above.effective, above.norm_shares, d));
                }
            }
            self.reparented(id);
        }
    }
}

/// An association among its siblings.
struct Siblings {
    /// Its part of their shares.
    own: f64,
    /// What all of them have used, of all usage.
    used: f64,
}

/// The effective usage of the classic algorithm (`classic_fair_share.html`): it contains part of that of the account.
fn effective(share: &Share, above: &Share, level: &Siblings) -> f64 {
    share.norm_usage + (above.effective - share.norm_usage) * level.own
}

/// That of `DEPTH_OBLIVIOUS` (`priority_multifactor3.html`): the shares times the effective usage ratio `R = R_parent * r_l^k`, which
/// is what Slurm 22.05 shows.
fn oblivious(share: &Share, above: &Share, level: &Siblings) -> f64 {
    let of_parent = part(above.effective, above.norm_shares);
    // Its usage over its shares, and the same of all siblings together, who share what their account has.
    let local = part(part(share.norm_usage, share.norm_shares), part(level.used, above.norm_shares));
    if local <= 0.0 || of_parent <= 0.0 {
        return 0.0;
    }
    let (log_of_parent, log_local) = (of_parent.ln(), local.ln());
    let k = if log_of_parent * log_local >= 0.0 { 1.0 } else { 1.0 / (1.0 + (5.0 * log_of_parent).powi(2)) };
    of_parent * local.powf(k) * share.norm_shares
}

fn factor(effective: f64, norm_shares: f64, dampening: f64) -> f64 {
    if norm_shares > 0.0 { (-effective / norm_shares / dampening).exp2() } else { 0.0 }
}

/// Counts ranks down.
struct Walk {
    /// That of who came last.
    rank: u32,
    /// That of who comes next and is not tied.
    left: u32,
    users: u32,
}

impl Walk {
    /// The factor of the next user.
    fn next(&mut self, tied: bool) -> f64 {
        if !tied {
            self.rank = self.left;
        }
        self.left = self.left.saturating_sub(1);
        part(f64::from(self.rank), f64::from(self.users))
    }
}

/// A level fair share, with an order.
#[derive(Clone, Copy, PartialEq)]
struct Level(f64);

impl Eq for Level {}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Level {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

fn shares_of(own: &Association) -> u64 {
    match own.shares {
        Shares::Number(number) => u64::from(number),
        Shares::Parent => 0,
    }
}

fn part(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}

/// Sums of shares are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
const fn wide(number: u64) -> f64 {
    number as f64
}
