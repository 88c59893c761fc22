//! What a user may see of accounts, users and associations (`PrivateData` of slurmdbd.conf(5)).

use crate::change::Actor;
use garrick_model::{
    config::{PrivateData, PrivateKind},
    entities::{Entities, association::Association, coordinators::Coordinated},
};
use std::collections::BTreeSet;

/// The entities that are shown to him: with `PrivateData=users`, of users only himself and those in accounts that he coordinates;
/// with `accounts`, only accounts in which he is or which he coordinates. Operators, administrators and those who are believed see
/// all.
pub fn visible(entities: &Entities, who: &Actor, private: &PrivateData) -> Entities {
    let mut seen = entities.clone();
    if who.believed || entities.is_operator(&who.name) {
        return seen;
    }
    let (users, accounts) = (private.has(PrivateKind::Users), private.has(PrivateKind::Accounts));
    if !users && !accounts {
        return seen;
    }
    let coordinated = names_of(entities, &entities.coordinated_by(&who.name));
    let is_coordinated = |of: &Association| coordinated.contains(&(of.cluster.as_str(), of.account.as_str()));
    let own = |of: &Association| of.user.as_deref() == Some(who.name.as_str());
    seen.associations.retain(|_, of| own(of) || is_coordinated(of) || (of.user.is_none() && !accounts));
    if users {
        let known: BTreeSet<&str> = seen.associations.values().filter_map(|of| of.user.as_deref()).collect();
        let known = |name: &String| *name == who.name || known.contains(name.as_str());
        seen.users.retain(|name, _| known(name));
        seen.wckeys.retain(|_, key| known(&key.user));
        seen.accounts.values_mut().for_each(|account| account.coordinators.retain(|name| known(name)));
    }
    if accounts {
        let known: BTreeSet<&str> = seen.associations.values().map(|of| of.account.as_str()).collect();
        seen.accounts.retain(|name, _| known.contains(name.as_str()));
    }
    seen
}

/// Clusters and names of accounts that a user coordinates.
pub fn coordinated(entities: &Entities, user: &str) -> BTreeSet<(String, String)> {
    let names = entities.coordinated_by(user);
    names_of(entities, &names).into_iter().map(|(cluster, name)| (cluster.to_owned(), name.to_owned())).collect()
}

/// Clusters and names of coordinated accounts.
fn names_of<'a>(entities: &'a Entities, coordinated: &Coordinated) -> BTreeSet<(&'a str, &'a str)> {
    let ours = entities.associations.values().filter(|of| coordinated.contains(of.id));
    ours.map(|of| (of.cluster.as_str(), of.account.as_str())).collect()
}

/// Has that user rights that others do not have: as an operator, administrator or coordinator?
pub fn has_rights(entities: &Entities, user: &str) -> bool {
    entities.is_operator(user)
        || entities.accounts.values().any(|account| account.coordinators.contains(user))
        || !entities.coordinated_by(user).is_empty()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::entities::{
        association::AssocId,
        names::{Account, AdminLevel, User, WcKey},
    };
    use proptest::prelude::*;

    fn entities() -> Entities {
        let of = |id, account: &str, user: Option<&str>| Association {
            id: AssocId(id),
            cluster: "c".to_owned(),
            account: account.to_owned(),
            user: user.map(str::to_owned),
            parent: (id > 1).then_some(AssocId(if user.is_some() { id - 1 } else { 1 })),
            ..Association::default()
        };
        let associations = [of(1, "root", None), of(2, "physics", None), of(3, "physics", Some("alice"))];
        let more = [of(4, "chem", None), of(5, "chem", Some("bob"))];
        let account = |name: &str| (name.to_owned(), Account { name: name.to_owned(), ..Account::default() });
        let user = |name: &str| (name.to_owned(), User { name: name.to_owned(), ..User::default() });
        Entities {
            associations: associations.into_iter().chain(more).map(|a| (a.id, a)).collect(),
            accounts: ["root", "physics", "chem"].map(account).into(),
            users: ["alice", "bob", "carol"].map(user).into(),
            ..Entities::default()
        }
    }

    fn names(entities: &Entities) -> (Vec<&str>, Vec<&str>) {
        (entities.users.keys().map(String::as_str).collect(), entities.accounts.keys().map(String::as_str).collect())
    }

    #[test]
    fn others_are_hidden_where_the_site_says_so() {
        let (all, private): (_, PrivateData) =
            (entities(), [PrivateKind::Users, PrivateKind::Accounts].into_iter().collect());
        let who = |name: &str| Actor { name: name.to_owned(), believed: false };
        assert_eq!(visible(&all, &who("alice"), &PrivateData::default()), all);
        assert_eq!(names(&visible(&all, &who("alice"), &private)), (vec!["alice"], vec!["physics"]));
        assert_eq!(names(&visible(&all, &who("carol"), &private)), (vec!["carol"], vec![]));
        assert_eq!(visible(&all, &Actor { believed: true, ..who("slurm") }, &private), all);
        let only_users = std::iter::once(PrivateKind::Users).collect();
        let (users, accounts) = (vec!["alice"], vec!["chem", "physics", "root"]);
        assert_eq!(names(&visible(&all, &who("alice"), &only_users)), (users, accounts));
    }

    #[test]
    fn coordinators_and_operators_see_more() {
        let (mut all, private): (_, PrivateData) =
            (entities(), [PrivateKind::Users, PrivateKind::Accounts].into_iter().collect());
        let carol = Actor { name: "carol".to_owned(), believed: false };
        all.accounts.get_mut("chem").unwrap().coordinators.insert("carol".to_owned());
        assert_eq!(names(&visible(&all, &carol, &private)), (vec!["bob", "carol"], vec!["chem"]));
        all.users.get_mut("carol").unwrap().admin = AdminLevel::Operator;
        assert_eq!(visible(&all, &carol, &private), all);
    }

    /// As the documentation says it, for each association by itself.
    fn plainly(entities: &Entities, who: &str, private: &PrivateData) -> Entities {
        let living = |cluster: &str, account: &str, user: Option<&str>| {
            let mut all = entities.associations.values();
            all.find(|a| !a.deleted && a.cluster == cluster && a.account == account && (a.user.as_deref() == user))
        };
        let coordinates = |of: &Association| {
            let Some(account) = living(&of.cluster, &of.account, None) else { return false };
            let is_known = entities.users.get(who).is_some_and(|user| !user.deleted);
            is_known
                && entities.lineage(account.id).any(|above| {
                    let known = &entities.accounts[&above.account];
                    let all_users = known.users_are_coordinators || above.users_are_coordinators;
                    known.coordinators.contains(who)
                        || (all_users && living(&above.cluster, &above.account, Some(who)).is_some())
                })
        };
        let (users, accounts) = (private.has(PrivateKind::Users), private.has(PrivateKind::Accounts));
        let mut seen = entities.clone();
        if users || accounts {
            let own = |of: &Association| of.user.as_deref() == Some(who);
            seen.associations.retain(|_, of| own(of) || coordinates(of) || (of.user.is_none() && !accounts));
        }
        let associations = seen.associations.clone();
        if users {
            let known = |name: &str| name == who || associations.values().any(|a| a.user.as_deref() == Some(name));
            seen.users.retain(|name, _| known(name));
            seen.wckeys.retain(|_, key| known(&key.user));
            seen.accounts.values_mut().for_each(|account| account.coordinators.retain(|name| known(name)));
        }
        if accounts {
            seen.accounts.retain(|name, _| associations.values().any(|a| a.account == *name));
        }
        seen
    }

    /// Accounts `a0` to `a7` in a tree as the numbers say, users `u0` to `u4` in some, a coordinator and a flag here and there.
    fn random() -> impl Strategy<Value = Entities> {
        let accounts = prop::collection::vec((any::<u8>(), any::<u8>(), any::<bool>(), any::<bool>()), 1..8);
        let users = prop::collection::vec((any::<u8>(), 0..5_u8, any::<bool>()), 0..12);
        (accounts, users, any::<bool>()).prop_map(|(accounts, users, gone)| {
            let mut all = Entities::default();
            let mut put = |id: usize, account: String, user: Option<String>, parent: usize| {
                let id = AssocId(u32::try_from(id).unwrap());
                let parent = (id.0 > 1).then(|| AssocId(u32::try_from(parent).unwrap()));
                let one = Association { id, cluster: "c".to_owned(), account, user, parent, ..Association::default() };
                all.associations.insert(id, one);
            };
            let count = accounts.len();
            for (at, (parent, ..)) in accounts.iter().enumerate() {
                put(at + 1, format!("a{at}"), None, usize::from(*parent) % at.max(1) + 1);
            }
            for (at, (account, user, _)) in users.iter().enumerate() {
                let above = usize::from(*account) % count;
                put(count + 1 + at, format!("a{above}"), Some(format!("u{user}")), above + 1);
            }
            for (at, (_, coordinator, everywhere, flag)) in accounts.into_iter().enumerate() {
                let name = format!("a{at}");
                let coordinators = (coordinator < 100).then(|| format!("u{}", coordinator % 5)).into_iter().collect();
                let account = Account { name: name.clone(), coordinators, ..Account::default() };
                all.accounts.insert(name, Account { users_are_coordinators: everywhere && flag, ..account });
                let of = all.associations.get_mut(&AssocId(u32::try_from(at + 1).unwrap())).unwrap();
                of.users_are_coordinators = !everywhere && flag;
            }
            for (at, (.., deleted)) in users.into_iter().enumerate() {
                let of = all.associations.get_mut(&AssocId(u32::try_from(count + 1 + at).unwrap())).unwrap();
                of.deleted = deleted;
            }
            for at in 0..5_u32 {
                let name = format!("u{at}");
                let key = WcKey { id: at, name: "k".to_owned(), user: name.clone(), ..WcKey::default() };
                all.wckeys.insert(at, key);
                all.users.insert(name.clone(), User { name, deleted: gone && at == 3, ..User::default() });
            }
            all
        })
    }

    proptest! {
        #[test]
        fn what_is_seen_is_what_the_documentation_says(all in random(), users: bool, accounts: bool) {
            let kinds = [(users, PrivateKind::Users), (accounts, PrivateKind::Accounts)];
            let private: PrivateData = kinds.into_iter().filter(|(is, _)| *is).map(|(_, kind)| kind).collect();
            for name in ["u0", "u1", "u2", "u3", "u4", "stranger"] {
                let who = Actor { name: name.to_owned(), believed: false };
                prop_assert_eq!(visible(&all, &who, &private), plainly(&all, name, &private), "{}", name);
            }
        }
    }
}
