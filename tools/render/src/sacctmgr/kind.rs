//! What `sacctmgr list` can list.

/// A kind of entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Accounts.
    Account,
    /// Associations.
    Association,
    /// Clusters.
    Cluster,
    /// The configuration of the service.
    Configuration,
    /// When nodes and clusters were down.
    Event,
    /// Federations.
    Federation,
    /// Instances of cloud nodes.
    Instance,
    /// What is wrong.
    Problem,
    /// Qualities of service.
    Qos,
    /// Licenses of servers.
    Resource,
    /// Reservations of the past.
    Reservation,
    /// Jobs that run by the records, but not for the controller.
    RunawayJobs,
    /// What the service counted.
    Stats,
    /// Changes.
    Transaction,
    /// Trackable resources.
    Tres,
    /// Users.
    User,
    /// Workload characterization keys.
    WcKey,
}

/// The words, and how many letters of each are needed (seen in Slurm 26.05.3). The first that fits is meant.
const WORDS: [(&str, usize, Kind); 19] = [
    ("accounts", 2, Kind::Account),
    ("associations", 2, Kind::Association),
    ("clusters", 2, Kind::Cluster),
    ("configuration", 3, Kind::Configuration),
    ("events", 1, Kind::Event),
    ("federations", 1, Kind::Federation),
    ("instances", 1, Kind::Instance),
    ("problems", 1, Kind::Problem),
    ("qos", 1, Kind::Qos),
    ("resources", 4, Kind::Resource),
    ("reservations", 4, Kind::Reservation),
    ("resv", 4, Kind::Reservation),
    ("runawayjobs", 2, Kind::RunawayJobs),
    ("stats", 1, Kind::Stats),
    ("transactions", 1, Kind::Transaction),
    ("txn", 2, Kind::Transaction),
    ("tres", 2, Kind::Tres),
    ("users", 1, Kind::User),
    ("wckeys", 1, Kind::WcKey),
];

/// The beginning of a word, of so many letters at least, in any case.
pub fn begins(word: &str, typed: &str, letters: usize) -> bool {
    typed.len() >= letters && word.get(..typed.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(typed))
}

/// What a table has under that name, or under the first that begins so, of so many letters at least.
pub fn find_named<'t, T>(
    table: impl Iterator<Item = &'t (&'static str, T)> + Clone,
    name: &str,
    letters: usize,
) -> Option<&'t T> {
    let exact = table.clone().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let mut table = table;
    exact.or_else(|| table.find(|(known, _)| begins(known, name, letters))).map(|(_, found)| found)
}

impl Kind {
    /// The kind of that word.
    pub fn read(typed: &str) -> Option<Self> {
        WORDS.iter().find(|(word, letters, _)| begins(word, typed, *letters)).map(|(_, _, kind)| *kind)
    }

    /// The words, one for each kind.
    pub fn words() -> impl Iterator<Item = &'static str> {
        WORDS.iter().filter(|(word, ..)| !matches!(*word, "resv" | "txn")).map(|(word, ..)| *word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As sacctmgr of Slurm 26.05.3 took them.
    #[test]
    fn words_may_be_begun() {
        let kinds = [
            ("q", Some(Kind::Qos)),
            ("u", Some(Kind::User)),
            ("acc", Some(Kind::Account)),
            ("assoc", Some(Kind::Association)),
            ("t", Some(Kind::Transaction)),
            ("tx", Some(Kind::Transaction)),
            ("TRES", Some(Kind::Tres)),
            ("p", Some(Kind::Problem)),
            ("resv", Some(Kind::Reservation)),
            ("runaway", Some(Kind::RunawayJobs)),
            ("config", Some(Kind::Configuration)),
            ("a", None),
            ("r", None),
            ("c", None),
            ("ts", None),
            ("res", None),
            ("coord", None),
            ("bogus", None),
        ];
        for (word, kind) in kinds {
            assert_eq!(Kind::read(word), kind, "{word}");
        }
    }
}
