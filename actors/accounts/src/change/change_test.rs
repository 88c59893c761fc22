//! Random changes by random people keep what must always hold.

#![allow(clippy::unwrap_used)]
use super::{
    Action, Actor, AddAccounts, AddUsers, Change, ChangeRefusal, Rules, apply, apply_by,
    edit::{
        AccountEdit, AssocEdit, AssocFilter, ClusterEdit, Edit, ListEdit, QosEdit, ResourceEdit, TresEdit, UserEdit,
    },
    fresh, register_cluster, register_cluster_by,
};
use garrick_model::{
    entities::{
        Entities, ROOT,
        association::{AssocId, Association, Shares},
        limits::{Count, TresLimit},
        names::AdminLevel,
    },
    time::Timestamp,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const NOW: Timestamp = Timestamp(1_000_000);

pub(super) fn name(names: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(names).prop_map(str::to_owned)
}

fn account() -> impl Strategy<Value = String> {
    name(&["a", "b", "c", "d", "root"])
}

fn user() -> impl Strategy<Value = String> {
    name(&["ann", "bob", "cora", "dave", "root"])
}

pub(super) fn some<T: std::fmt::Debug>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(of, 0..3)
}

fn qos_names() -> impl Strategy<Value = BTreeSet<String>> {
    prop::collection::btree_set(name(&["normal", "high", "low"]), 0..3)
}

pub(super) fn edit() -> impl Strategy<Value = AssocEdit> {
    let shares =
        prop_oneof![Just(Edit::Keep), Just(Edit::Clear), (0..9_u32).prop_map(|n| Edit::Set(Shares::Number(n)))];
    let counts = prop_oneof![Just(Count::GrpJobs), Just(Count::MaxJobs), Just(Count::MaxWall)];
    let counts = prop::collection::btree_map(counts, prop::option::of(0..9_u64), 0..2);
    let tres = prop_oneof![
        Just(TresEdit::Clear),
        (0..9_u64).prop_map(TresEdit::Set),
        (0..9_u64).prop_map(TresEdit::Add),
        (0..9_u64).prop_map(TresEdit::Subtract)
    ];
    let tres = prop::collection::btree_map(name(&["cpu", "mem"]), tres, 0..2);
    let qos = prop_oneof![
        Just(ListEdit::Keep),
        qos_names().prop_map(ListEdit::Set),
        (qos_names(), qos_names()).prop_map(|(added, removed)| ListEdit::Change { added, removed })
    ];
    let default = prop_oneof![Just(Edit::Keep), Just(Edit::Clear), name(&["normal", "high"]).prop_map(Edit::Set)];
    (shares, counts, tres, qos, default).prop_map(|(shares, counts, tres, qos, default_qos)| AssocEdit {
        shares,
        counts,
        tres: BTreeMap::from([(TresLimit::MaxTresPerJob, tres)]),
        qos,
        default_qos,
        ..AssocEdit::default()
    })
}

fn filter() -> impl Strategy<Value = AssocFilter> {
    (some(name(&["one", "two"])), some(account()), some(user())).prop_map(|(clusters, accounts, users)| AssocFilter {
        clusters,
        accounts,
        users,
        ..AssocFilter::default()
    })
}

fn level() -> impl Strategy<Value = Option<AdminLevel>> {
    prop_oneof![
        Just(None),
        Just(Some(AdminLevel::None)),
        Just(Some(AdminLevel::Operator)),
        Just(Some(AdminLevel::Administrator))
    ]
}

fn added_users() -> impl Strategy<Value = Action> {
    let places = (some(account()), some(name(&["one", "two"])), some(name(&["short"])));
    (some(user()), places, prop::option::of(account()), level(), some(name(&["k", "l"])), edit()).prop_map(
        |(names, (accounts, clusters, partitions), default_account, admin, wckeys, edit)| {
            Action::AddUsers(AddUsers {
                names,
                accounts,
                clusters,
                partitions,
                default_account,
                admin,
                wckeys,
                default_wckey: None,
                edit,
            })
        },
    )
}

pub(super) fn action() -> impl Strategy<Value = Action> {
    let cluster = |names| some(name(names));
    prop_oneof![
        (some(account()), cluster(&["one", "two"]), prop::option::of(account()), edit()).prop_map(
            |(names, clusters, parent, edit)| {
                Action::AddAccounts(AddAccounts { names, clusters, parent, account: AccountEdit::default(), edit })
            }
        ),
        added_users(),
        (filter(), prop::option::of(account()), edit(), prop::option::of(any::<bool>())).prop_map(
            |(filter, parent, edit, users_are_coordinators)| Action::ModifyAccounts {
                filter,
                account: AccountEdit { users_are_coordinators, ..AccountEdit::default() },
                parent,
                edit
            }
        ),
        (filter(), edit()).prop_map(|(filter, edit)| Action::ModifyUsers { filter, user: UserEdit::default(), edit }),
        (filter(), level(), prop::option::of(account()), prop::option::of(user())).prop_map(
            |(filter, admin, default_account, new_name)| Action::ModifyUsers {
                filter,
                user: UserEdit { admin, default_account, new_name, ..UserEdit::default() },
                edit: AssocEdit::default()
            }
        ),
        filter().prop_map(Action::DeleteUsers),
        filter().prop_map(Action::DeleteAccounts),
        some(name(&["high", "low"])).prop_map(|names| Action::AddQos { names, edit: QosEdit::default() }),
        some(name(&["high", "low", "normal"])).prop_map(Action::DeleteQos),
        (some(account()), some(user())).prop_map(|(accounts, users)| Action::AddCoordinators { accounts, users }),
        (some(account()), some(user())).prop_map(|(accounts, users)| Action::DeleteCoordinators { accounts, users }),
        some(name(&["two"])).prop_map(|names| Action::AddClusters {
            names,
            cluster: ClusterEdit::default(),
            edit: AssocEdit::default()
        }),
        some(name(&["two"])).prop_map(Action::DeleteClusters),
    ]
}

fn actor() -> impl Strategy<Value = Actor> {
    prop_oneof![
        Just(Actor { name: "slurm".to_owned(), believed: true }),
        user().prop_map(|name| Actor { name, believed: false })
    ]
}

/// A cluster `one`, with accounts `a` and `b` and `c` below `a`; `cora` coordinates `a`.
pub(super) fn start() -> Entities {
    let mut entities = fresh(NOW);
    register_cluster(&mut entities, "one", NOW, &BTreeMap::new());
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let accounts = |all: &[&str], parent: &str| {
        Action::AddAccounts(AddAccounts {
            names: names(all),
            parent: Some(parent.to_owned()),
            ..AddAccounts::default()
        })
    };
    let users = |all: &[&str], account: &str| {
        Action::AddUsers(AddUsers { names: names(all), accounts: names(&[account]), ..AddUsers::default() })
    };
    let all = [
        accounts(&["a", "b"], ROOT),
        accounts(&["c"], "a"),
        users(&["cora", "ann"], "a"),
        users(&["bob"], "b"),
        Action::AddQos { names: names(&["high"]), edit: QosEdit::default() },
        Action::AddCoordinators { accounts: names(&["a"]), users: names(&["cora"]) },
    ];
    let all = Change { actions: all.to_vec() };
    apply(&mut entities, &all, &Actor { name: ROOT.to_owned(), believed: true }, NOW).unwrap();
    entities
}

fn living(entities: &Entities) -> impl Iterator<Item = &Association> {
    entities.associations.values().filter(|a| !a.deleted)
}

/// Every association hangs below the root of its cluster, over associations of accounts that live.
fn is_a_tree(entities: &Entities) {
    for association in living(entities) {
        let line: Vec<&Association> = entities.lineage(association.id).collect();
        let top = line.last().unwrap();
        assert!(top.parent.is_none() && top.account == ROOT && top.user.is_none(), "{association:?} is below {top:?}");
        for above in &line[1..] {
            assert!(!above.deleted && above.user.is_none() && above.cluster == association.cluster, "{above:?}");
        }
        assert!(!entities.clusters[&association.cluster].deleted);
    }
}

fn accounts_and_users_are_there(entities: &Entities) {
    for association in living(entities) {
        assert!(!entities.accounts[&association.account].deleted, "{association:?}");
        if let Some(user) = &association.user {
            assert!(!entities.users[user].deleted, "{association:?}");
            let above = &entities.associations[&association.parent.unwrap()];
            assert_eq!(above.account, association.account);
        }
    }
}

fn each_user_has_one_default(entities: &Entities) {
    let mut defaults: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for association in living(entities) {
        if let Some(user) = &association.user {
            *defaults.entry((&association.cluster, user)).or_default() += usize::from(association.is_default);
        }
    }
    assert!(defaults.values().all(|n| *n == 1), "{defaults:?}");
}

fn names_are_unique(entities: &Entities) {
    let names: Vec<_> = living(entities).map(super::AssocName::from).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
}

fn default_qos_may_be_used(entities: &Entities) {
    for association in living(entities) {
        let effective = entities.effective(association.id);
        assert!(effective.default_qos.is_none_or(|name| effective.qos.contains(&name)), "{association:?}");
    }
}

/// What had a number keeps it, for the same name or for nothing.
fn numbers_are_not_used_again(before: &Entities, after: &Entities, renamed: bool) {
    for (id, old) in &before.associations {
        let new = &after.associations[id];
        assert_eq!((&old.cluster, &old.account, &old.partition), (&new.cluster, &new.account, &new.partition));
        assert!(renamed || old.user == new.user);
    }
    for (id, old) in &before.qos {
        assert_eq!(old.id, after.qos[id].id);
    }
}

/// Whoever has no level and coordinates nothing above it changes no association but his own default; and nobody without a level gives
/// one, or changes QOS, clusters or facts of accounts.
fn stayed_within_his_rights(before: &Entities, after: &Entities, actor: &Actor) {
    let level = before.users.get(&actor.name).filter(|user| !user.deleted).map_or(AdminLevel::None, |user| user.admin);
    if actor.believed || level >= AdminLevel::Operator {
        return;
    }
    assert_eq!((&before.qos, &before.clusters), (&after.qos, &after.clusters));
    for (name, user) in &after.users {
        let before = before.users.get(name).map_or(AdminLevel::None, |user| user.admin);
        assert!(user.admin <= before, "{name} came to {:?}", user.admin);
    }
    for (id, new) in &after.associations {
        let old = before.associations.get(id);
        if old == Some(new) {
            continue;
        }
        let own_default = old.is_some_and(|old| {
            old.user.as_ref() == Some(&actor.name) && Association { is_default: new.is_default, ..old.clone() } == *new
        });
        let coordinated = before.coordinated_by(&actor.name);
        let above = |a: &Association| a.parent.is_some_and(|above| coordinated.contains(above));
        let his =
            old.filter(|old| !old.deleted).map_or_else(|| above(new) || is_below_his(before, after, new, actor), above);
        let default_only = old.is_some_and(|old| Association { is_default: new.is_default, ..old.clone() } == *new);
        assert!(his || own_default || default_only, "{actor:?} changed {old:?} to {new:?}");
        limits_are_within_those_above(after, old, new);
    }
}

/// New ones below new ones: the first that was there before is his.
fn is_below_his(before: &Entities, after: &Entities, new: &Association, actor: &Actor) -> bool {
    let mut line = after.lineage(new.id).skip(1).map(|above| above.id);
    let first: Option<AssocId> = line.find(|id| before.associations.get(id).is_some_and(|a| !a.deleted));
    first.is_some_and(|id| before.coordinated_by(&actor.name).contains(id))
}

fn limits_are_within_those_above(after: &Entities, old: Option<&Association>, new: &Association) {
    let Some(above) = new.parent else { return };
    let has = after.effective(above);
    for (count, number) in &new.limits.counts {
        let before = old.and_then(|old| old.limits.count(*count));
        let bound = has.limits.count(*count);
        assert!(before == Some(*number) || bound.is_none_or(|bound| *number <= bound), "{new:?}");
    }
    let had = old.map(|old| old.qos.own.clone().unwrap_or_default().into_iter().chain(old.qos.added.clone()));
    let had: BTreeSet<String> = had.into_iter().flatten().collect();
    let own = new.qos.own.iter().flatten().chain(&new.qos.added);
    for name in own {
        assert!(has.qos.contains(name) || had.contains(name) || name == "normal", "{new:?} has {name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn whatever_is_changed_by_whomever_the_rules_hold(steps in prop::collection::vec((action(), actor()), 1..40)) {
        let mut entities = start();
        for (action, actor) in &steps {
            let change = Change::from(action.clone());
            let mut next = entities.clone();
            let applied = apply(&mut next, &change, actor, NOW);
            let mut again = entities.clone();
            prop_assert_eq!(&applied, &apply(&mut again, &change, actor, NOW));
            prop_assert_eq!(&again, &next);
            let Ok(applied) = applied else { continue };
            prop_assert!(next.version == entities.version + 1);
            prop_assert!(applied.transactions.iter().all(|t| t.actor == actor.name && t.time == NOW));
            is_a_tree(&next);
            accounts_and_users_are_there(&next);
            each_user_has_one_default(&next);
            names_are_unique(&next);
            default_qos_may_be_used(&next);
            let renamed = matches!(action, Action::ModifyUsers { user: UserEdit { new_name: Some(_), .. }, .. });
            numbers_are_not_used_again(&entities, &next, renamed);
            stayed_within_his_rights(&entities, &next, actor);
            entities = next;
        }
    }
}

#[test]
fn a_coordinator_gives_no_more_than_his_account_has() {
    let cora = Actor { name: "cora".to_owned(), believed: false };
    let modify = |accounts: &[&str], users: &[&str], edit: AssocEdit| {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let filter = AssocFilter { accounts: all(accounts), users: all(users), ..AssocFilter::default() };
        Change::from(Action::ModifyUsers { filter, user: UserEdit::default(), edit })
    };
    let jobs = |n| AssocEdit { counts: BTreeMap::from([(Count::MaxJobs, n)]), ..AssocEdit::default() };
    let mut entities = start();
    assert!(apply(&mut entities, &modify(&["a"], &["ann"], jobs(Some(5))), &cora, NOW).is_ok());
    // The account has no limit: what is set is only lowered.
    for n in [Some(6), None] {
        let refused = apply(&mut entities.clone(), &modify(&["a"], &["ann"], jobs(n)), &cora, NOW);
        assert_eq!(refused, Err(ChangeRefusal::BeyondParent));
    }
    let high = AssocEdit { qos: ListEdit::Set(["high".to_owned()].into()), ..AssocEdit::default() };
    let refused = apply(&mut entities.clone(), &modify(&["a"], &["ann"], high), &cora, NOW);
    assert_eq!(refused, Err(ChangeRefusal::Denied));
    let outside = apply(&mut entities.clone(), &modify(&["b"], &["bob"], jobs(Some(1))), &cora, NOW);
    assert_eq!(outside, Err(ChangeRefusal::Denied));
    // CVE-2025-43904: nobody but an administrator gives a level, in whatever way.
    let level = UserEdit { admin: Some(AdminLevel::Administrator), ..UserEdit::default() };
    let filter = AssocFilter { users: vec!["cora".to_owned()], ..AssocFilter::default() };
    let promoted = Change::from(Action::ModifyUsers { filter, user: level, edit: AssocEdit::default() });
    assert_eq!(apply(&mut entities.clone(), &promoted, &cora, NOW), Err(ChangeRefusal::Denied));
    let new = AddUsers {
        names: vec!["eve".to_owned()],
        accounts: vec!["a".to_owned()],
        admin: Some(AdminLevel::Operator),
        ..AddUsers::default()
    };
    assert_eq!(apply(&mut entities, &Action::AddUsers(new).into(), &cora, NOW), Err(ChangeRefusal::AdminLevel));
}

#[test]
fn a_coordinator_takes_a_user_in_but_leaves_him_his_default_account() {
    let mut entities = start();
    let to_a = |user: &str| {
        let one = |name: &str| vec![name.to_owned()];
        let wanted = Some("a".to_owned());
        Change::from(Action::AddUsers(AddUsers {
            names: one(user),
            accounts: one("a"),
            default_account: wanted,
            ..AddUsers::default()
        }))
    };
    let cora = Actor { name: "cora".to_owned(), believed: false };
    apply(&mut entities, &to_a("bob"), &cora, NOW).unwrap();
    assert!(entities.association("one", "a", "bob", None).is_some());
    assert_eq!(entities.default_account("one", "bob"), Some("b"));
    apply(&mut entities, &to_a("eve"), &cora, NOW).unwrap();
    assert_eq!(entities.default_account("one", "eve"), Some("a"));
}

#[test]
fn coordinators_change_nothing_where_the_site_says_so() {
    let rules = Rules { no_coordinators: true, ..Rules::default() };
    let mut entities = fresh(NOW);
    let root = Actor { name: ROOT.to_owned(), believed: true };
    register_cluster(&mut entities, "one", NOW, &BTreeMap::new());
    let accounts = AddAccounts { names: vec!["a".to_owned()], ..AddAccounts::default() };
    let user = |name: &str| {
        Action::AddUsers(AddUsers {
            names: vec![name.to_owned()],
            accounts: vec!["a".to_owned()],
            ..AddUsers::default()
        })
    };
    let coordinates = Action::AddCoordinators { accounts: vec!["a".to_owned()], users: vec!["cora".to_owned()] };
    let change = Change { actions: vec![Action::AddAccounts(accounts), user("cora"), coordinates] };
    apply_by(&rules, &mut entities, &change, &root, NOW).unwrap();
    let cora = Actor { name: "cora".to_owned(), believed: false };
    let add = Change::from(user("ann"));
    assert_eq!(apply_by(&rules, &mut entities.clone(), &add, &cora, NOW), Err(ChangeRefusal::NotEvenCoordinator));
    assert!(apply(&mut entities.clone(), &add, &cora, NOW).is_ok());
    assert!(apply_by(&rules, &mut entities, &add, &root, NOW).is_ok(), "administrators do");
}

#[test]
fn new_clusters_and_resources_are_as_the_site_says() {
    let rules = Rules { resources_absolute: true, default_qos: Some("High".to_owned()), ..Rules::default() };
    let root = Actor { name: ROOT.to_owned(), believed: true };
    let mut entities = fresh(NOW);
    let high = Action::AddQos { names: vec!["high".to_owned()], edit: QosEdit::default() };
    apply(&mut entities, &high.into(), &root, NOW).unwrap();
    let add = |name: &str, edit: AssocEdit| {
        Change::from(Action::AddClusters { names: vec![name.to_owned()], cluster: ClusterEdit::default(), edit })
    };
    let own = AssocEdit { qos: ListEdit::Set(["normal".to_owned()].into()), ..AssocEdit::default() };
    apply_by(&rules, &mut entities, &add("one", AssocEdit::default()), &root, NOW).unwrap();
    apply_by(&rules, &mut entities, &add("two", own), &root, NOW).unwrap();
    register_cluster_by(&rules, &mut entities, "three", NOW, &BTreeMap::new());
    register_cluster(&mut entities, "four", NOW, &BTreeMap::new());
    let qos = |cluster: &str| entities.account_association(cluster, ROOT).unwrap().qos.own.clone();
    let only = |name: &str| Some([name.to_owned()].into());
    assert_eq!((qos("one"), qos("two"), qos("three")), (only("high"), only("normal"), only("high")));
    assert_ne!(qos("four"), only("high"));
    // It comes again as it is.
    let known = entities.clone();
    register_cluster_by(
        &Rules { default_qos: Some("normal".to_owned()), ..rules.clone() },
        &mut entities,
        "one",
        NOW,
        &BTreeMap::new(),
    );
    assert_eq!(entities, known);
    let missing = Rules { default_qos: Some("nosuch".to_owned()), ..Rules::default() };
    let refused = apply_by(&missing, &mut entities.clone(), &add("five", AssocEdit::default()), &root, NOW);
    assert_eq!(refused, Err(ChangeRefusal::NoQos("nosuch".to_owned())));
    let resource = |allowed| Action::AddResources {
        names: vec!["matlab".to_owned()],
        server: "flex".to_owned(),
        clusters: vec!["one".to_owned()],
        edit: ResourceEdit { count: Some(500), allowed: Some(allowed), ..ResourceEdit::default() },
    };
    apply_by(&rules, &mut entities.clone(), &resource(400).into(), &root, NOW).unwrap();
    assert!(
        apply(&mut entities.clone(), &resource(400).into(), &root, NOW).is_err(),
        "of percentages that is too much"
    );
    let refused = apply_by(&rules, &mut entities, &resource(501).into(), &root, NOW);
    assert!(matches!(refused, Err(ChangeRefusal::OverAllocated(_))), "{refused:?}");
}

#[test]
fn users_lose_their_default_account_where_the_site_allows_that() {
    let mut entities = fresh(NOW);
    let root = Actor { name: ROOT.to_owned(), believed: true };
    register_cluster(&mut entities, "one", NOW, &BTreeMap::new());
    let accounts = AddAccounts { names: vec!["a".to_owned(), "b".to_owned()], ..AddAccounts::default() };
    let names = accounts.names.clone();
    let ann = AddUsers { names: vec!["ann".to_owned()], accounts: names, ..AddUsers::default() };
    let change = Change { actions: vec![Action::AddAccounts(accounts), Action::AddUsers(ann)] };
    apply(&mut entities, &change, &root, NOW).unwrap();
    assert_eq!(entities.default_account("one", "ann"), Some("a"));
    let filter =
        AssocFilter { users: vec!["ann".to_owned()], accounts: vec!["a".to_owned()], ..AssocFilter::default() };
    let gone = Change::from(Action::DeleteUsers(filter));
    let kept = apply(&mut entities.clone(), &gone, &root, NOW);
    assert!(matches!(kept, Err(ChangeRefusal::DefaultAccount(_))), "{kept:?}");
    let rules = Rules { no_default_account: true, ..Rules::default() };
    apply_by(&rules, &mut entities, &gone, &root, NOW).unwrap();
    assert_eq!(entities.default_account("one", "ann"), None);
    assert!(entities.living("one").any(|own| own.user.as_deref() == Some("ann")), "he keeps the other one");
}
