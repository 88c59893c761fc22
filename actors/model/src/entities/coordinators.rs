//! Who coordinates which accounts.

use super::{
    Entities,
    association::{AssocId, Association},
    names::AdminLevel,
};
use std::collections::BTreeSet;

/// Accounts on clusters that one user coordinates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coordinated {
    /// By themselves.
    direct: BTreeSet<AssocId>,
    /// With all that are below those.
    all: BTreeSet<AssocId>,
    /// Accounts that anybody coordinates by themselves.
    of_anybody: BTreeSet<AssocId>,
}

impl Coordinated {
    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Is the association of that number one of a coordinated account?
    pub fn contains(&self, account: AssocId) -> bool {
        self.all.contains(&account)
    }

    /// The highest coordinated account of those that are an association or stand above it, whoever coordinates it: a coordinator who
    /// makes another one below him gives that one no more than he has.
    pub fn top(&self, entities: &Entities, id: AssocId) -> Option<AssocId> {
        entities.lineage(id).map(|above| above.id).filter(|above| self.of_anybody.contains(above)).last()
    }
}

impl Entities {
    /// Is that user an operator or administrator?
    pub fn is_operator(&self, user: &str) -> bool {
        self.users.get(user).is_some_and(|known| !known.deleted && known.admin >= AdminLevel::Operator)
    }

    /// Accounts that a user coordinates: as a coordinator of them or of one above, or as one of the users of such an account where these
    /// are coordinators (`UsersAreCoords`).
    pub fn coordinated_by(&self, user: &str) -> Coordinated {
        if self.users.get(user).is_none_or(|known| known.deleted) {
            return Coordinated::default();
        }
        let living = || self.associations.values().filter(|a| !a.deleted);
        let his = living().filter(|a| a.user.as_deref() == Some(user));
        let his: BTreeSet<(&str, &str)> = his.map(|a| (a.cluster.as_str(), a.account.as_str())).collect();
        let is_direct = |of: &&Association| {
            let known = self.accounts.get(&of.account).filter(|account| !account.deleted);
            known.is_some_and(|known| {
                let all_users = known.users_are_coordinators || of.users_are_coordinators;
                known.coordinators.contains(user) || (all_users && his.contains(&(&of.cluster, &of.account)))
            })
        };
        let accounts = || living().filter(|a| a.user.is_none());
        let is_of_anybody = |of: &&Association| {
            let known = self.accounts.get(&of.account).filter(|account| !account.deleted);
            known.is_some_and(|known| {
                !known.coordinators.is_empty() || known.users_are_coordinators || of.users_are_coordinators
            })
        };
        let direct: BTreeSet<AssocId> = accounts().filter(is_direct).map(|of| of.id).collect();
        if direct.is_empty() {
            return Coordinated::default();
        }
        let is_below = |of: &&Association| self.lineage(of.id).any(|above| direct.contains(&above.id));
        let all = accounts().filter(is_below).map(|of| of.id).collect();
        let of_anybody = accounts().filter(is_of_anybody).map(|of| of.id).collect();
        Coordinated { direct, all, of_anybody }
    }
}
