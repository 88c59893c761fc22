//! What is wrong with accounts and users (`sacctmgr list problem`).

use super::{
    condition::{Key, Request},
    kind::begins,
    rows::ordered,
};
use crate::field_table::{self, text as field};
use garrick_model::entities::{Entities, association::Association};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    cluster: String,
    account: String,
    user: String,
    what: &'static str,
}

/// What stands in a field.
pub type Shown = fn(&Problem) -> &str;
/// A column.
pub type Column = field_table::Column<Shown>;

static FIELDS: [field_table::Field<Shown>; 4] = [
    field("Cluster", 10, |p| &p.cluster),
    field("Account", 10, |p| &p.account),
    field("User", 10, |p| &p.user),
    field("Problem", 40, |p| p.what),
];

/// The columns that are asked for, or the usual ones.
///
/// # Errors
/// The first field that there is not.
pub fn columns(format: Option<&str>) -> Result<Vec<Column>, String> {
    let find = |name: &str| FIELDS.iter().find(|field| begins(field.name, name, 1));
    field_table::chosen(format.unwrap_or("cluster,account,user,problem"), find)
}

/// Everything that is wrong: accounts without users and accounts below them, users that this host does not know.
pub fn problems(entities: &Entities, request: &Request, knows: &dyn Fn(&str) -> bool) -> Vec<Problem> {
    let all = ordered(entities, false);
    let empty = |account: &&&Association| {
        account.user.is_none() && account.parent.is_some() && !all.iter().any(|a| a.parent == Some(account.id))
    };
    let mut empty: Vec<&Association> = all.iter().filter(empty).copied().collect();
    empty.sort_by_key(|a| (&a.cluster, &a.account));
    let of_account = |a: &Association| Problem {
        cluster: a.cluster.clone(),
        account: a.account.clone(),
        user: String::new(),
        what: "Account has no users",
    };
    let users = entities.users.values().filter(|user| !user.deleted && !knows(&user.name));
    let of_user = |name: &str| Problem {
        cluster: String::new(),
        account: String::new(),
        user: name.to_owned(),
        what: "User does not have a uid",
    };
    let mut found: Vec<Problem> = empty.into_iter().map(of_account).collect();
    found.extend(users.map(|user| of_user(&user.name)));
    found.retain(|p| {
        request.takes(Key::Cluster, &p.cluster)
            && request.takes(Key::Account, &p.account)
            && request.takes(Key::User, &p.user)
    });
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        field_table::Setting,
        sacctmgr::{kind::Kind, samples},
    };

    /// As sacctmgr of Slurm 26.05.3 found them.
    #[test]
    fn empty_accounts_and_unknown_users_are_problems() {
        let entities = samples::tree();
        let found = problems(&entities, &Request::all(Kind::Problem), &|user| user != "eva");
        let mut out = Vec::new();
        let columns = columns(None).unwrap();
        Setting::Columns.heading(&mut out, &columns).unwrap();
        for problem in &found {
            Setting::Columns.row(&mut out, &columns, |shown| shown(problem).to_owned()).unwrap();
        }
        let expected = "   Cluster    Account       User                                  Problem \n\
             ---------- ---------- ---------- ---------------------------------------- \n   \
             cluster      chem2                                Account has no users \n   \
             cluster    chemsub                                Account has no users \n   \
             cluster    quantum                                Account has no users \n                             \
             eva                 User does not have a uid \n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!(columns_error("bogus"), "bogus");
    }

    fn columns_error(format: &str) -> String {
        columns(Some(format)).unwrap_err()
    }
}
