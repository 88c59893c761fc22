//! Whatever a coordinator does, one change after the other: nobody comes to have more than before or than an operator let the accounts
//! above him have, and nothing changes outside. The rules are written down here once more, by themselves.

#![allow(clippy::unwrap_used)]
use super::{
    Action, Actor, AddAccounts, AddUsers, Change, ChangeRefusal, apply,
    change_test::{NOW, action, edit, name, some, start},
    edit::{AccountEdit, AssocEdit, AssocFilter, Edit, ListEdit, UserEdit},
};
use garrick_model::{
    entities::{
        Entities, ROOT,
        association::{AssocId, Association},
        coordinators::Coordinated,
        limits::{Count, Limits, TresLimit},
        names::AdminLevel,
    },
    time::Timestamp,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const COORDINATOR: &str = "cora";
const LATER: Timestamp = Timestamp(2_000_000);

fn believed() -> Actor {
    Actor { name: ROOT.to_owned(), believed: true }
}

fn cora() -> Actor {
    Actor { name: COORDINATOR.to_owned(), believed: false }
}

/// Limits that the strategies set.
type Of = fn(&Limits) -> Option<u64>;
const LIMITS: [(bool, Of); 5] = [
    (true, |limits| limits.count(Count::GrpJobs)),
    (false, |limits| limits.count(Count::MaxJobs)),
    (false, |limits| limits.count(Count::MaxWall)),
    (false, |limits| limits.tres(TresLimit::MaxTresPerJob, "cpu")),
    (false, |limits| limits.tres(TresLimit::MaxTresPerJob, "mem")),
];

/// The number that binds an association: of a group the least above, else the nearest.
fn number(entities: &Entities, id: AssocId, (of_group, of): (bool, Of)) -> Option<u64> {
    let mut set = entities.lineage(id).filter_map(|above| of(&above.limits));
    if of_group { set.min() } else { set.next() }
}

/// What an operator does, mostly in the accounts that are coordinated.
fn by_operator() -> impl Strategy<Value = Action> {
    prop_oneof![action(), within()]
}

/// Changes of the accounts `a`, `c` and `d` and of those in them.
fn within() -> impl Strategy<Value = Action> {
    let accounts = || prop::collection::vec(name(&["a", "c", "d"]), 1..3);
    let users = || prop::collection::vec(name(&["ann", "bob", "cora", "eve"]), 1..3);
    let edit = || {
        (edit(), prop::option::of(0..9_u32), any::<bool>()).prop_map(|(edit, priority, without_qos)| AssocEdit {
            priority: priority.map_or(Edit::Keep, Edit::Set),
            qos: if without_qos { ListEdit::Keep } else { edit.qos },
            default_qos: Edit::Keep,
            ..edit
        })
    };
    let filter = |users: Vec<String>, accounts| AssocFilter { accounts, users, ..AssocFilter::default() };
    prop_oneof![
        (accounts(), prop::option::of(name(&["a", "c", "d"])), edit()).prop_map(|(names, parent, edit)| {
            Action::AddAccounts(AddAccounts { names, parent, edit, ..AddAccounts::default() })
        }),
        (users(), accounts(), some(name(&["short", "long"])), edit()).prop_map(
            |(names, accounts, partitions, edit)| {
                Action::AddUsers(AddUsers { names, accounts, partitions, edit, ..AddUsers::default() })
            }
        ),
        (accounts(), prop::option::of(name(&["a", "c", "d"])), edit()).prop_map(move |(accounts, parent, edit)| {
            let filter = filter(Vec::new(), accounts);
            Action::ModifyAccounts { filter, account: AccountEdit::default(), parent, edit }
        }),
        (users(), accounts(), edit()).prop_map(move |(users, accounts, edit)| Action::ModifyUsers {
            filter: filter(users, accounts),
            user: UserEdit::default(),
            edit
        }),
        (users(), accounts()).prop_map(move |(users, accounts)| Action::DeleteUsers(filter(users, accounts))),
    ]
}

/// Nobody below the coordinated accounts has more.
fn nobody_has_more(before: &Entities, after: &Entities, coordinated: &Coordinated) {
    for own in after.associations.values().filter(|a| !a.deleted) {
        let Some(top) = own.parent.and_then(|above| coordinated.top(after, above)) else { continue };
        let old = before.associations.get(&own.id);
        let known = |id: &AssocId| before.associations.get(id).is_some_and(|a| !a.deleted);
        let mut above: Vec<AssocId> = after.lineage(own.id).skip(1).map(|a| a.id).filter(known).collect();
        above.truncate(above.iter().position(|id| *id == top).unwrap() + 1);
        for limit in LIMITS {
            let was = match old {
                Some(old) if !old.deleted => Some(number(before, own.id, limit)),
                Some(old) => limit.1(&old.limits).map(Some),
                None => None,
            };
            let of_above = above.iter().map(|id| number(before, *id, limit));
            let most = match (number(before, top, limit), old.filter(|old| !old.deleted)) {
                (Some(_), None) => of_above.flatten().max(),
                (Some(_), Some(_)) => of_above.flatten().chain(was.flatten()).max(),
                (None, Some(_)) => was.flatten(),
                // An operator may let an account have more than the one above it.
                (None, None) => of_above.take(1).chain(was).flatten().min(),
            };
            let is = number(after, own.id, limit);
            assert!(most.is_none_or(|most| is.is_some_and(|is| is <= most)), "{own:?} has {is:?} instead of {most:?}");
        }
        let old = old.filter(|old| !old.deleted).map(|old| old.id);
        let sources: Vec<_> = above.into_iter().chain(old).map(|id| before.effective(id)).collect();
        let has = after.effective(own.id);
        let qos: BTreeSet<String> = sources.iter().flat_map(|of| of.qos.clone()).collect();
        assert!(has.qos.is_subset(&qos), "{own:?} has {:?}, which is not of {qos:?}", has.qos);
        let priority = sources.iter().filter_map(|of| of.priority).max();
        assert!(has.priority.unwrap_or(0) <= priority.unwrap_or(0), "{own:?}");
    }
}

/// Has it a limit that a coordinator cannot lift, as the highest of his accounts has none?
fn is_bound(before: &Entities, own: &Association, coordinated: &Coordinated) -> bool {
    let top = own.parent.and_then(|above| coordinated.top(before, above));
    top.is_some_and(|top| {
        LIMITS.into_iter().any(|limit| limit.1(&own.limits).is_some() && number(before, top, limit).is_none())
    })
}

/// Who was bound in an account has no association there for another partition than before.
fn nobody_stands_beside_his_limits(before: &Entities, after: &Entities, coordinated: &Coordinated) {
    let mut had: BTreeMap<_, (bool, BTreeSet<_>)> = BTreeMap::new();
    for old in before.associations.values().filter(|a| a.user.is_some()) {
        let (bound, partitions) = had.entry((&old.cluster, &old.account, &old.user)).or_default();
        *bound |= is_bound(before, old, coordinated);
        partitions.insert(&old.partition);
    }
    for new in after.associations.values().filter(|a| !a.deleted) {
        let Some((true, partitions)) = had.get(&(&new.cluster, &new.account, &new.user)) else { continue };
        assert!(partitions.contains(&new.partition), "{new:?}");
    }
}

/// Nothing else is changed: outside the coordinated accounts only which account is the coordinator's own default; nobody's past use.
fn nothing_is_changed_outside(before: &Entities, after: &Entities, coordinated: &Coordinated) {
    for (id, old) in &before.associations {
        let new = &after.associations[id];
        assert_eq!(old.usage_reset, new.usage_reset, "{new:?}");
        let is_inside = |a: &Association| a.parent.is_some_and(|above| coordinated.contains(above));
        let was_out = old.deleted && after.lineage(new.id).skip(1).any(|above| coordinated.contains(above.id));
        if is_inside(old) || was_out {
            continue;
        }
        let default = old.user.as_deref() == Some(COORDINATOR);
        let is_default = if default { new.is_default } else { old.is_default };
        assert_eq!(*new, Association { is_default, ..old.clone() });
    }
    assert_eq!((&before.qos, &before.clusters, &before.tres), (&after.qos, &after.clusters, &after.tres));
    assert_eq!((&before.wckeys, &before.resources), (&after.wckeys, &after.resources));
    users_who_have_more_stay(before, after, coordinated);
}

fn users_who_have_more_stay(before: &Entities, after: &Entities, coordinated: &Coordinated) {
    let is_outside = |account: &str| {
        let mut places =
            before.associations.values().filter(|a| !a.deleted && a.user.is_none() && a.account == account);
        places.any(|place| !coordinated.contains(place.id))
    };
    for (name, old) in &before.accounts {
        if is_outside(name) {
            assert_eq!(*old, after.accounts[name]);
        }
    }
    for (name, old) in before.users.iter().filter(|(_, user)| !user.deleted) {
        let coordinates = before.accounts.values().any(|a| a.coordinators.contains(name) && is_outside(&a.name));
        let has_key = before.wckeys.values().any(|key| !key.deleted && key.user == *name);
        // The account may be the coordinator's on one cluster and not on another.
        let is_his = |a: &Association| a.parent.is_some_and(|above| coordinated.contains(above));
        let is_in = |a: &Association| !a.deleted && a.user.as_ref() == Some(name) && !is_his(a);
        let elsewhere = before.associations.values().any(is_in);
        if coordinates || has_key || elsewhere || old.admin > AdminLevel::None {
            assert_eq!(*old, after.users[name]);
        }
        assert!(after.users[name].admin <= old.admin);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_coordinator_leaves_nobody_with_more_whatever_he_does(
        first in prop::collection::vec(by_operator(), 0..12),
        then in prop::collection::vec(prop_oneof![4 => within(), 1 => action()], 1..25),
    ) {
        let mut before = start();
        for action in first {
            let mut next = before.clone();
            if apply(&mut next, &Change::from(action), &believed(), NOW).is_ok() {
                before = next;
            }
        }
        let level = before.users.get(COORDINATOR).filter(|user| !user.deleted).map(|user| user.admin);
        prop_assume!(level == Some(AdminLevel::None));
        let coordinated = before.coordinated_by(COORDINATOR);
        let mut after = before.clone();
        for action in then {
            let mut next = after.clone();
            if apply(&mut next, &Change::from(action), &cora(), LATER).is_ok() {
                after = next;
            }
        }
        nobody_has_more(&before, &after, &coordinated);
        nobody_stands_beside_his_limits(&before, &after, &coordinated);
        nothing_is_changed_outside(&before, &after, &coordinated);
    }
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

fn user_in(user: &str, account: &str, partitions: &[&str]) -> Change {
    let (names, accounts) = (names(&[user]), names(&[account]));
    Action::AddUsers(AddUsers { names, accounts, partitions: self::names(partitions), ..AddUsers::default() }).into()
}

fn of(users: &[&str], accounts: &[&str]) -> AssocFilter {
    AssocFilter { users: names(users), accounts: names(accounts), ..AssocFilter::default() }
}

fn count(count: Count, number: Option<u64>) -> AssocEdit {
    AssocEdit { counts: [(count, number)].into(), ..AssocEdit::default() }
}

fn set_user(user: &str, account: &str, edit: AssocEdit) -> Change {
    Action::ModifyUsers { filter: of(&[user], &[account]), user: UserEdit::default(), edit }.into()
}

fn set_account(account: &str, parent: Option<&str>, edit: AssocEdit) -> Change {
    let (filter, parent) = (of(&[], &[account]), parent.map(str::to_owned));
    Action::ModifyAccounts { filter, account: AccountEdit::default(), parent, edit }.into()
}

/// `cora` coordinates `a`, `ann` in it may run two jobs.
fn limited() -> Entities {
    let mut entities = start();
    apply(&mut entities, &set_user("ann", "a", count(Count::MaxJobs, Some(2))), &believed(), NOW).unwrap();
    entities
}

#[test]
fn who_is_deleted_and_added_again_has_the_limits_that_he_had() {
    let mut entities = limited();
    let delete = Change::from(Action::DeleteUsers(of(&["ann"], &["a"])));
    apply(&mut entities, &delete, &cora(), NOW).unwrap();
    let id = entities.associations.values().find(|a| a.user.as_deref() == Some("ann")).unwrap().id;
    // Not for a partition either.
    let refused = apply(&mut entities.clone(), &user_in("ann", "a", &["short"]), &cora(), NOW);
    assert_eq!(refused, Err(ChangeRefusal::BeyondParent));
    let mut by_operator = entities.clone();
    apply(&mut entities, &user_in("ann", "a", &[]), &cora(), LATER).unwrap();
    assert_eq!(entities.effective(id).limits.count(Count::MaxJobs), Some(2));
    assert_eq!(entities.associations[&id].usage_reset, None, "what she has used counts on");
    apply(&mut by_operator, &user_in("ann", "a", &[]), &believed(), LATER).unwrap();
    assert_eq!(by_operator.effective(id).limits.count(Count::MaxJobs), None);
    assert_eq!(by_operator.associations[&id].usage_reset, Some(LATER));
}

#[test]
fn an_association_for_a_partition_is_for_operators_where_a_user_is_limited() {
    let mut entities = limited();
    let refused = apply(&mut entities.clone(), &user_in("ann", "a", &["short"]), &cora(), NOW);
    assert_eq!(refused, Err(ChangeRefusal::BeyondParent));
    apply(&mut entities.clone(), &user_in("ann", "a", &["short"]), &believed(), NOW).unwrap();
    apply(&mut entities, &user_in("eve", "a", &["short", "short"]), &cora(), NOW).unwrap();
    assert!(entities.association("one", "a", "eve", Some("short")).is_some());
}

#[test]
fn a_coordinator_moves_accounts_only_below_what_limits_them() {
    let mut entities = start();
    let add = |name: &str, parent: &str| {
        let parent = Some(parent.to_owned());
        Change::from(Action::AddAccounts(AddAccounts { names: names(&[name]), parent, ..AddAccounts::default() }))
    };
    for (name, parent) in [("d", "a"), ("e", "c")] {
        apply(&mut entities, &add(name, parent), &cora(), NOW).unwrap();
    }
    apply(&mut entities, &set_account("c", None, count(Count::GrpJobs, Some(4))), &believed(), NOW).unwrap();
    for parent in ["a", "d"] {
        let moved = set_account("e", Some(parent), AssocEdit::default());
        assert_eq!(apply(&mut entities.clone(), &moved, &cora(), NOW), Err(ChangeRefusal::BeyondParent), "{parent}");
        apply(&mut entities.clone(), &moved, &believed(), NOW).unwrap();
    }
    apply(&mut entities, &set_account("d", Some("c"), AssocEdit::default()), &cora(), NOW).unwrap();
}

/// What a coordinator sets for an account of his is not what an operator lets those below it have.
#[test]
fn a_limit_of_his_own_in_between_lifts_no_limit_below_it() {
    let mut entities = start();
    apply(&mut entities, &user_in("eve", "c", &[]), &believed(), NOW).unwrap();
    apply(&mut entities, &set_user("eve", "c", count(Count::MaxJobs, Some(2))), &believed(), NOW).unwrap();
    apply(&mut entities, &set_account("c", None, count(Count::MaxJobs, Some(500))), &cora(), NOW).unwrap();
    let raised = set_user("eve", "c", count(Count::MaxJobs, Some(500)));
    assert_eq!(apply(&mut entities.clone(), &raised, &cora(), NOW), Err(ChangeRefusal::BeyondParent));
    // What an operator has set for the highest account of hers is hers to give.
    apply(&mut entities, &set_account("a", None, count(Count::MaxJobs, Some(600))), &believed(), NOW).unwrap();
    apply(&mut entities, &raised, &cora(), NOW).unwrap();
}

#[test]
fn users_who_have_something_elsewhere_stay() {
    let is_there = |entities: &Entities, user: &str| !entities.users[user].deleted;
    let delete = |user: &str| Change::from(Action::DeleteUsers(of(&[user], &["a"])));
    let mut entities = start();
    let appoint = |account: &str, user: &str| {
        Change::from(Action::AddCoordinators { accounts: names(&[account]), users: names(&[user]) })
    };
    for user in ["eve", "dan"] {
        apply(&mut entities, &user_in(user, "a", &[]), &cora(), NOW).unwrap();
    }
    apply(&mut entities, &appoint("b", "ann"), &believed(), NOW).unwrap();
    let keys = AddUsers { names: names(&["eve"]), wckeys: names(&["k"]), ..AddUsers::default() };
    apply(&mut entities, &Action::AddUsers(keys).into(), &believed(), NOW).unwrap();
    for user in ["ann", "eve", "dan"] {
        apply(&mut entities, &delete(user), &cora(), NOW).unwrap();
    }
    assert!(is_there(&entities, "ann") && is_there(&entities, "eve") && !is_there(&entities, "dan"));
    assert!(entities.accounts["b"].coordinators.contains("ann") && !entities.wckeys[&1].deleted);
}
