//! Answers `sshare` and `scontrol show assoc_mgr`: shares and usage of associations as of now, and what their jobs have. Who may see
//! what of it: with `PrivateData=usage` a user's own associations and those that he coordinates, with `users` his own record, as
//! scontrol(1) says.

use super::{
    core::{FrontendCore, Reply, Turn},
    messages::FrontendErrand,
    submit::TOO_MANY_QUESTIONS,
};
use crate::{
    controller::shells::{env::Env, fair},
    messages::job::Authority,
};
use garrick_model::{
    config::PrivateKind,
    entities::{
        Entities,
        association::{AssocId, Association},
        limits::Amounts,
    },
    messages::{
        command::CommandReply,
        shares::{AssocView, Load, QosView, SharesBoard, UserView},
    },
    refusal::Refusal,
    time::Timestamp,
    view::JobView,
};
use garrick_plan::rules::fair::{FairShares, Method, Share};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Most of these answers that are made at once.
const BOARDS: usize = 8;

/// What of it is asked for, and may be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharesAsk {
    /// Also QOS and users.
    with_qos: bool,
    /// The user's name.
    name: String,
    /// What others have of associations is hidden from him.
    hides_associations: bool,
    /// The same of QOS.
    hides_qos: bool,
    /// Other users are hidden from him.
    hides_users: bool,
}

impl FrontendCore {
    pub(super) fn list_shares(&mut self, turn: &mut Turn<'_>, request: u64, by: Authority, with_qos: bool) -> Reply {
        if self.boards >= BOARDS {
            return Err(Refusal::RetryAfter { after: TOO_MANY_QUESTIONS });
        }
        let name = self.sight.users().user(by.uid).map(|user| user.name).unwrap_or_default();
        let (hides_qos, hides_users) = (self.hides(by, PrivateKind::Usage), self.hides(by, PrivateKind::Users));
        let hides_associations = hides_qos || hides_users;
        self.boards += 1;
        let ask = SharesAsk { with_qos, name, hides_associations, hides_qos, hides_users };
        turn.run(FrontendErrand::Shares { request, ask, at: turn.now });
        Ok(None)
    }
}

/// The answer: a walk over all associations, and over all jobs.
pub(super) fn board(env: &Env, ask: &SharesAsk, now: Timestamp) -> CommandReply {
    let (config, shares) = (env.config(), fair::of_now(env, now));
    let entities = &shares.entities;
    let visible = || fair::visible(entities, &config.cluster_name, &ask.name.to_ascii_lowercase());
    let seen = ask.hides_associations.then(visible);
    let mut loads = Loads::of(&shares, &env.boards.jobs.live(), now);
    let sees = |own: &Association| seen.as_ref().is_none_or(|seen| seen.contains(&own.id));
    let shown = shares.iter().filter(|(own, _)| sees(own));
    let associations = shown.map(|(own, share)| view(own, share, entities, &mut loads)).collect();
    let mut board = SharesBoard {
        fair_tree: shares.method == Method::Tree,
        tres: names(entities),
        associations,
        ..SharesBoard::default()
    };
    if ask.with_qos {
        board.qos = loads.qos(&shares, ask.hides_qos.then_some(ask.name.as_str()));
        board.users = users(entities, &config.cluster_name, ask.hides_users.then_some(ask.name.as_str()));
    }
    CommandReply::Shares(Box::new(board))
}

/// Names of TRES in the order of their numbers.
fn names(entities: &Entities) -> Vec<String> {
    let name = |kind: &str, name: &str| if name.is_empty() { kind.to_owned() } else { format!("{kind}/{name}") };
    entities.tres.values().map(|tres| name(&tres.kind, &tres.name)).collect()
}

fn view(own: &Association, share: &Share, entities: &Entities, loads: &mut Loads) -> AssocView {
    let mut lineage: Vec<String> = entities
        .lineage(own.id)
        .filter(|above| above.user.is_none() && above.parent.is_some())
        .map(|above| above.account.clone())
        .collect();
    lineage.reverse();
    AssocView {
        depth: share.depth,
        lineage,
        above: own.parent.and_then(|above| Some(entities.associations.get(&above)?.account.clone())),
        norm_shares: share.norm_shares,
        norm_usage: share.norm_usage,
        effective: share.effective,
        level: share.level,
        level_shares: share.level_shares,
        factor: share.factor,
        used: share.used.tres.clone(),
        wall_secs: share.used.wall_secs,
        load: loads.associations.remove(&own.id).unwrap_or_default(),
        association: own.clone(),
    }
}

fn users(entities: &Entities, cluster: &str, only: Option<&str>) -> Vec<UserView> {
    let shown = entities.users.values().filter(|user| !user.deleted && only.is_none_or(|own| own == user.name));
    let wckey = |user: &str| {
        let default = entities
            .wckeys
            .values()
            .find(|key| key.is_default && !key.deleted && key.cluster == cluster && key.user == user);
        default.map(|key| key.name.clone())
    };
    let view = |user: &garrick_model::entities::names::User| UserView {
        name: user.name.clone(),
        default_account: entities.default_account(cluster, &user.name).map(str::to_owned),
        default_wckey: wckey(&user.name),
        admin: user.admin,
    };
    shown.map(view).collect()
}

/// What jobs have, by association (with all above) and by QOS.
#[derive(Default)]
struct Loads {
    associations: BTreeMap<AssocId, Load>,
    qos: BTreeMap<String, OfQos>,
}

#[derive(Default)]
struct OfQos {
    all: Load,
    by_account: BTreeMap<String, Load>,
    by_user: BTreeMap<String, Load>,
}

impl Loads {
    fn of(shares: &FairShares, jobs: &[Arc<JobView>], now: Timestamp) -> Self {
        let mut loads = Self::default();
        for job in jobs.iter().filter(|job| job.state.waits() || job.state.works()) {
            let association = shares.association(job);
            let own = load(job, now);
            for above in association.into_iter().flat_map(|own| shares.entities.lineage(own.id)) {
                add(loads.associations.entry(above.id).or_default(), &own);
            }
            let Some(qos) = shares.qos_of(job) else { continue };
            let of_qos = loads.qos.entry(qos.name.clone()).or_default();
            add(&mut of_qos.all, &own);
            if let Some(account) = association.map(|own| own.account.clone()) {
                add(of_qos.by_account.entry(account).or_default(), &own);
            }
            add(of_qos.by_user.entry(job.user.clone()).or_default(), &own);
        }
        loads
    }

    /// `only`: what others have is private, and this is the user.
    fn qos(&mut self, shares: &FairShares, only: Option<&str>) -> Vec<QosView> {
        let mut all: Vec<QosView> = Vec::new();
        for record in shares.entities.qos.values().filter(|qos| !qos.deleted) {
            let OfQos { all: load, mut by_account, mut by_user } = self.qos.remove(&record.name).unwrap_or_default();
            if let Some(only) = only {
                let own: BTreeSet<&str> = shares
                    .iter()
                    .filter(|(own, _)| own.user.as_deref() == Some(only))
                    .map(|(own, _)| own.account.as_str())
                    .collect();
                by_account.retain(|account, _| own.contains(account.as_str()));
                by_user.retain(|user, _| user == only);
            }
            let used = shares.qos.get(&record.name).cloned().unwrap_or_default();
            let (record, wall_secs) = (record.clone(), used.wall_secs);
            all.push(QosView { record, used: used.tres, wall_secs, load, by_account, by_user });
        }
        all.sort_by_key(|qos| qos.record.id);
        all
    }
}

fn load(job: &JobView, now: Timestamp) -> Load {
    let waits = job.state.waits();
    // An array's record stands for its waiting tasks.
    let waiting = job.array_pending.as_ref().map_or(1, |tasks| u64::from(tasks.count().max(1)));
    let tasks = if waits { waiting } else { 1 };
    let mut load = Load { submitted: tasks, ..Load::default() };
    let Some(allocation) = job.allocation.as_ref().filter(|_| !waits) else {
        load.accruing = if job.accrue_time().is_some() { tasks } else { 0 };
        return load;
    };
    let mut tres: Amounts = allocation.tres();
    let cpus = tres.get("cpu").copied().unwrap_or(0);
    tres.insert("billing".to_owned(), job.billing.unwrap_or(cpus));
    let left = job.end_time.map_or(0, |end| end.since(now).as_secs());
    load.left_secs = tres.iter().map(|(name, count)| (name.clone(), count.saturating_mul(left))).collect();
    (load.jobs, load.tres) = (1, tres);
    load
}

fn add(to: &mut Load, other: &Load) {
    to.jobs += other.jobs;
    to.accruing += other.accruing;
    to.submitted += other.submitted;
    for (sums, counts) in [(&mut to.tres, &other.tres), (&mut to.left_secs, &other.left_secs)] {
        for (name, count) in counts {
            match sums.get_mut(name) {
                Some(sum) => *sum = sum.saturating_add(*count),
                None => drop(sums.insert(name.clone(), *count)),
            }
        }
    }
}
