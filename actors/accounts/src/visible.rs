//! What a user may see of accounts, users and associations (`PrivateData` of slurmdbd.conf(5)).

use crate::change::Actor;
use garrick_model::{
    config::{PrivateData, PrivateKind},
    entities::{Entities, association::Association, names::AdminLevel},
};

/// The entities that are shown to him: with `PrivateData=users`, of users only himself and those in accounts that he coordinates;
/// with `accounts`, only accounts in which he is or which he coordinates. Operators, administrators and those who are believed see
/// all.
pub fn visible(entities: &Entities, who: &Actor, private: &PrivateData) -> Entities {
    let mut seen = entities.clone();
    if who.believed || is_operator(entities, &who.name) {
        return seen;
    }
    let coordinated = |of: &Association| entities.coordinates(&of.cluster, &who.name, &of.account);
    let own = |of: &Association| of.user.as_deref() == Some(who.name.as_str());
    let (users, accounts) = (private.has(PrivateKind::Users), private.has(PrivateKind::Accounts));
    if users || accounts {
        seen.associations.retain(|_, of| own(of) || coordinated(of) || (of.user.is_none() && !accounts));
    }
    if users {
        let known =
            |name: &str| name == who.name || seen.associations.values().any(|of| of.user.as_deref() == Some(name));
        seen.users.retain(|name, _| known(name));
        seen.wckeys.retain(|_, key| known(&key.user));
        seen.accounts.values_mut().for_each(|account| account.coordinators.retain(|name| known(name)));
    }
    if accounts {
        seen.accounts.retain(|name, _| seen.associations.values().any(|of| of.account == *name));
    }
    seen
}

/// Has that user rights that others do not have: as an operator, administrator or coordinator?
pub fn has_rights(entities: &Entities, user: &str) -> bool {
    let of_account = |of: &Association| !of.deleted && entities.coordinates(&of.cluster, user, &of.account);
    is_operator(entities, user)
        || entities.accounts.values().any(|account| account.coordinators.contains(user))
        || entities.associations.values().filter(|of| of.user.as_deref() == Some(user)).any(of_account)
}

/// Is that user an operator or administrator?
pub fn is_operator(entities: &Entities, user: &str) -> bool {
    entities.users.get(user).is_some_and(|known| !known.deleted && known.admin >= AdminLevel::Operator)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::entities::{
        association::AssocId,
        names::{Account, User},
    };

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
}
