//! What is asked for behind `sacctmgr list ENTITY`: conditions (`user=alice`), fields (`format=`), and words for more or less than
//! usual (`WithAssoc`).

use super::kind::{Kind, begins};
use std::collections::{BTreeMap, BTreeSet};

/// A word for more or less than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum More {
    /// `All_Clusters`: of all clusters.
    AllClusters,
    /// `All_Time`: whenever it was.
    AllTime,
    /// `OnlyDefaults`: default associations only.
    OnlyDefaults,
    /// `Tree`: accounts are indented as in their tree.
    Tree,
    /// `WithAssoc`: with associations.
    Associations,
    /// `WithClusters`: resources with the clusters that may use them.
    Clusters,
    /// `WithCoordinator`: with coordinators.
    Coordinators,
    /// `WithDeleted`: what was deleted too.
    Deleted,
    /// `WithRawQOSLevel`: the QOS that are set at each association, or what they change.
    RawQos,
    /// `WithSubAccounts`: accounts below those that are named too.
    SubAccounts,
    /// `WOLimits`: without limits.
    NoLimits,
    /// `WOPInfo`, `WOPLimits`: only what is set, not what comes from above.
    OwnOnly,
}

const MORE: [(&str, usize, More); 15] = [
    ("All_Clusters", 5, More::AllClusters),
    ("All_Time", 5, More::AllTime),
    ("OnlyDefaults", 4, More::OnlyDefaults),
    ("Tree", 4, More::Tree),
    ("WithAssociations", 5, More::Associations),
    ("WithClusters", 6, More::Clusters),
    ("WithCoordinators", 6, More::Coordinators),
    ("WithDeleted", 5, More::Deleted),
    ("WithRawQOSLevel", 5, More::RawQos),
    ("WithSubAccounts", 5, More::SubAccounts),
    ("WOLimits", 3, More::NoLimits),
    ("WOPInfo", 3, More::OwnOnly),
    ("WOPLimits", 4, More::OwnOnly),
    // Users are listed without their WCKeys unless that is one of the fields.
    ("WithWCKeys", 6, More::Associations),
    ("WOParentInfo", 4, More::OwnOnly),
];

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The name of the entity.
    Name,
    /// Account.
    Account,
    /// Cluster.
    Cluster,
    /// User.
    User,
    /// Partition.
    Partition,
    /// Account above.
    Parent,
    /// QOS.
    Qos,
    /// Default QOS.
    DefaultQos,
    /// Number.
    Id,
    /// Description.
    Description,
    /// Organization.
    Organization,
    /// Level of administration.
    Admin,
    /// Default account.
    DefaultAccount,
    /// Default WCKey.
    DefaultWcKey,
    /// Classification.
    Classification,
    /// Federation.
    Federation,
    /// Flags.
    Flags,
    /// Server.
    Server,
    /// Type.
    Type,
    /// WCKey.
    WcKey,
    /// What was done.
    Action,
    /// Who did it.
    Actor,
    /// Beginning of a window.
    Start,
    /// End of a window.
    End,
    /// Nodes, as host lists.
    Nodes,
    /// States of nodes.
    States,
    /// Why a node is out of service.
    Reason,
    /// `Cluster` or `Node`.
    Event,
    /// CPUs at least.
    MinCpus,
    /// CPUs at most.
    MaxCpus,
    /// `Open`.
    CondFlags,
    /// State that runaway jobs are given.
    EndState,
}

/// The conditions of a kind, as sacctmgr(1) names them.
const fn keys(kind: Kind) -> &'static [(&'static str, Key)] {
    match kind {
        Kind::Account => &[
            ("accounts", Key::Name),
            ("names", Key::Name),
            ("clusters", Key::Cluster),
            ("descriptions", Key::Description),
            ("organizations", Key::Organization),
            ("parents", Key::Parent),
            ("users", Key::User),
            ("qoslevel", Key::Qos),
            ("defaultqos", Key::DefaultQos),
        ],
        Kind::Association => &[
            ("accounts", Key::Account),
            ("clusters", Key::Cluster),
            ("defaultqos", Key::DefaultQos),
            ("ids", Key::Id),
            ("associations", Key::Id),
            ("partitions", Key::Partition),
            ("parents", Key::Parent),
            ("qoslevel", Key::Qos),
            ("users", Key::User),
        ],
        Kind::Cluster => &[
            ("clusters", Key::Name),
            ("names", Key::Name),
            ("classification", Key::Classification),
            ("federations", Key::Federation),
            ("flags", Key::Flags),
        ],
        Kind::Qos => {
            &[("names", Key::Name), ("qoslevel", Key::Name), ("ids", Key::Id), ("descriptions", Key::Description)]
        }
        Kind::Resource => &[
            ("names", Key::Name),
            ("resources", Key::Name),
            ("clusters", Key::Cluster),
            ("ids", Key::Id),
            ("descriptions", Key::Description),
            ("servers", Key::Server),
        ],
        Kind::Tres => &[("names", Key::Name), ("ids", Key::Id), ("types", Key::Type)],
        Kind::User => &[
            ("users", Key::Name),
            ("names", Key::Name),
            ("accounts", Key::Account),
            ("adminlevels", Key::Admin),
            ("clusters", Key::Cluster),
            ("defaultaccounts", Key::DefaultAccount),
            ("defaultwckeys", Key::DefaultWcKey),
            ("partitions", Key::Partition),
            ("qoslevel", Key::Qos),
            ("defaultqos", Key::DefaultQos),
        ],
        Kind::WcKey => &[
            ("wckeys", Key::Name),
            ("names", Key::Name),
            ("clusters", Key::Cluster),
            ("ids", Key::Id),
            ("users", Key::User),
        ],
        Kind::Transaction => &[
            ("accounts", Key::Account),
            ("actions", Key::Action),
            ("actors", Key::Actor),
            ("clusters", Key::Cluster),
            ("ids", Key::Id),
            ("start", Key::Start),
            ("end", Key::End),
            ("users", Key::User),
        ],
        Kind::Federation => &[("names", Key::Name), ("federations", Key::Name), ("clusters", Key::Cluster)],
        Kind::RunawayJobs => &[
            ("accounts", Key::Account),
            ("clusters", Key::Cluster),
            ("users", Key::User),
            ("start", Key::Start),
            ("end", Key::End),
            ("endstate", Key::EndState),
        ],
        Kind::Instance | Kind::Problem => &[
            ("accounts", Key::Account),
            ("clusters", Key::Cluster),
            ("users", Key::User),
            ("start", Key::Start),
            ("end", Key::End),
        ],
        Kind::Event => &[
            ("clusters", Key::Cluster),
            ("condflags", Key::CondFlags),
            ("end", Key::End),
            ("events", Key::Event),
            ("maxcpus", Key::MaxCpus),
            ("mincpus", Key::MinCpus),
            ("nodes", Key::Nodes),
            ("reasons", Key::Reason),
            ("start", Key::Start),
            ("states", Key::States),
            ("users", Key::User),
        ],
        Kind::Reservation => &[
            ("clusters", Key::Cluster),
            ("end", Key::End),
            ("ids", Key::Id),
            ("names", Key::Name),
            ("nodes", Key::Nodes),
            ("start", Key::Start),
        ],
        Kind::Configuration | Kind::Stats => &[],
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of what.
    pub kind: Kind,
    /// Values of each condition; one of them must be met.
    pub conditions: BTreeMap<Key, Vec<String>>,
    /// Fields.
    pub format: Option<String>,
    /// More or less than usual.
    pub more: BTreeSet<More>,
}

/// Words that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// There is no such condition.
    #[error(" Unknown condition: {0}")]
    Unknown(String),
}

impl Request {
    /// Everything of a kind.
    pub const fn all(kind: Kind) -> Self {
        Self { kind, conditions: BTreeMap::new(), format: None, more: BTreeSet::new() }
    }

    /// Reads the words behind the entity.
    ///
    /// # Errors
    /// A condition that the kind does not have.
    pub fn read<S: AsRef<str>>(kind: Kind, words: &[S]) -> Result<Self, ConditionError> {
        let mut request = Self::all(kind);
        for word in words.iter().map(AsRef::as_ref) {
            request.take(word).ok_or_else(|| ConditionError::Unknown(word.to_owned()))?;
        }
        Ok(request)
    }

    fn take(&mut self, word: &str) -> Option<()> {
        let Some((name, value)) = word.split_once('=') else {
            return self.take_bare(word);
        };
        if begins("format", name, 1) {
            let more = self.format.take().map_or_else(String::new, |format| format + ",");
            self.format = Some(more + value);
            return Some(());
        }
        let (_, key) = keys(self.kind).iter().find(|(known, _)| begins(known, name, 1))?;
        self.conditions.entry(*key).or_default().extend(values(value));
        Some(())
    }

    fn take_bare(&mut self, word: &str) -> Option<()> {
        if begins("where", word, 5) || begins("set", word, 3) {
            return Some(());
        }
        if let Some((_, _, more)) = MORE.iter().find(|(known, letters, _)| begins(known, word, *letters)) {
            self.more.insert(*more);
            return Some(());
        }
        let named = keys(self.kind).iter().any(|(_, key)| *key == Key::Name);
        named.then(|| self.conditions.entry(Key::Name).or_default().extend(values(word)))
    }

    /// Is it asked for?
    pub fn has(&self, more: More) -> bool {
        self.more.contains(&more)
    }

    /// Does the value meet the condition, if there is one?
    pub fn takes(&self, key: Key, value: &str) -> bool {
        self.conditions.get(&key).is_none_or(|values| values.iter().any(|known| known.eq_ignore_ascii_case(value)))
    }

    /// The same of a value that may not be there: that is met by an empty one.
    pub fn takes_option(&self, key: Key, value: Option<&str>) -> bool {
        self.takes(key, value.unwrap_or(""))
    }

    /// Does one of the values meet the condition, if there is one?
    pub fn takes_any<'v>(&self, key: Key, mut values: impl Iterator<Item = &'v str>) -> bool {
        !self.conditions.contains_key(&key) || values.any(|value| self.takes(key, value))
    }

    /// Is there a condition about it?
    pub fn asks(&self, key: Key) -> bool {
        self.conditions.contains_key(&key)
    }
}

/// Values between commas, without quotes. An empty text is one empty value.
fn values(text: &str) -> Vec<String> {
    let plain = |value: &str| value.trim_matches(['"', '\'']).to_owned();
    match plain(text) {
        empty if empty.is_empty() => vec![empty],
        text => text.split(',').map(plain).filter(|value| !value.is_empty()).collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn words_are_names_conditions_fields_and_more() {
        let words = ["where", "alice,bob", "names=carol", "cluster=c", "format=user,acc", "withassoc", "WOPI"];
        let request = Request::read(Kind::User, &words).unwrap();
        assert_eq!(request.conditions[&Key::Name], ["alice", "bob", "carol"]);
        assert!(request.takes(Key::Cluster, "C") && !request.takes(Key::Cluster, "d"));
        assert!(request.takes(Key::Account, "any") && !request.asks(Key::Account));
        assert_eq!(request.format.as_deref(), Some("user,acc"));
        assert!(request.has(More::Associations) && request.has(More::OwnOnly) && !request.has(More::Tree));
    }

    #[test]
    fn an_empty_value_means_none() {
        for word in ["user=", "user=''"] {
            let request = Request::read(Kind::Association, &[word]).unwrap();
            assert!(request.takes_option(Key::User, None) && !request.takes_option(Key::User, Some("a")), "{word}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused_in_slurms_words() {
        let error = Request::read(Kind::Association, &["bogus=1"]).unwrap_err();
        assert_eq!(error.to_string(), " Unknown condition: bogus=1");
        assert!(Request::read(Kind::Association, &["alice"]).is_err());
        assert!(Request::read(Kind::User, &["wckeys=proj2"]).is_err());
    }
}
