//! Words for limits (sacctmgr(1)): of associations, of QOS, and in the file of `dump`.

use garrick_model::entities::limits::{Count, TresLimit};

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A number, or minutes.
    Count(Count),
    /// Amounts of TRES.
    Tres(TresLimit),
}

/// What has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Associations and QOS.
    Both,
    /// Associations.
    Associations,
    /// QOS.
    Qos,
}

/// Every word: of several for a limit, the first is that of the file. In the order in which the first is meant that begins so.
const WORDS: &[(&str, Limit, Of)] = &[
    ("GrpJobs", Limit::Count(Count::GrpJobs), Of::Both),
    ("GrpJobsAccrue", Limit::Count(Count::GrpJobsAccrue), Of::Both),
    ("GrpSubmitJobs", Limit::Count(Count::GrpSubmit), Of::Both),
    ("GrpTRES", Limit::Tres(TresLimit::GrpTres), Of::Both),
    ("GrpTRESMins", Limit::Tres(TresLimit::GrpTresMins), Of::Both),
    ("GrpTRESRunMins", Limit::Tres(TresLimit::GrpTresRunMins), Of::Both),
    ("GrpWall", Limit::Count(Count::GrpWall), Of::Both),
    ("MaxJobs", Limit::Count(Count::MaxJobs), Of::Associations),
    ("MaxJobsAccrue", Limit::Count(Count::MaxJobsAccrue), Of::Associations),
    ("MaxJobsAccruePerAccount", Limit::Count(Count::MaxJobsAccruePerAccount), Of::Qos),
    ("MaxJobsAccruePA", Limit::Count(Count::MaxJobsAccruePerAccount), Of::Qos),
    ("MaxJobsAccruePerUser", Limit::Count(Count::MaxJobsAccruePerUser), Of::Qos),
    ("MaxJobsAccruePU", Limit::Count(Count::MaxJobsAccruePerUser), Of::Qos),
    ("MaxJobsPerAccount", Limit::Count(Count::MaxJobsPerAccount), Of::Qos),
    ("MaxJobsPA", Limit::Count(Count::MaxJobsPerAccount), Of::Qos),
    ("MaxJobsPerUser", Limit::Count(Count::MaxJobsPerUser), Of::Qos),
    ("MaxJobsPU", Limit::Count(Count::MaxJobsPerUser), Of::Qos),
    ("MaxSubmitJobs", Limit::Count(Count::MaxSubmit), Of::Associations),
    ("MaxSubmitJobsPerAccount", Limit::Count(Count::MaxSubmitPerAccount), Of::Qos),
    ("MaxSubmitJobsPA", Limit::Count(Count::MaxSubmitPerAccount), Of::Qos),
    ("MaxSubmitJobsPerUser", Limit::Count(Count::MaxSubmitPerUser), Of::Qos),
    ("MaxSubmitJobsPU", Limit::Count(Count::MaxSubmitPerUser), Of::Qos),
    ("MaxTRESPerJob", Limit::Tres(TresLimit::MaxTresPerJob), Of::Both),
    ("MaxTRES", Limit::Tres(TresLimit::MaxTresPerJob), Of::Both),
    ("MaxTRESPJ", Limit::Tres(TresLimit::MaxTresPerJob), Of::Both),
    ("MaxTRESMinsPerJob", Limit::Tres(TresLimit::MaxTresMinsPerJob), Of::Both),
    ("MaxTRESMins", Limit::Tres(TresLimit::MaxTresMinsPerJob), Of::Both),
    ("MaxTRESMinsPJ", Limit::Tres(TresLimit::MaxTresMinsPerJob), Of::Both),
    ("MaxTRESPerAccount", Limit::Tres(TresLimit::MaxTresPerAccount), Of::Qos),
    ("MaxTRESPA", Limit::Tres(TresLimit::MaxTresPerAccount), Of::Qos),
    ("MaxTRESPerNode", Limit::Tres(TresLimit::MaxTresPerNode), Of::Both),
    ("MaxTRESPN", Limit::Tres(TresLimit::MaxTresPerNode), Of::Both),
    ("MaxTRESPerUser", Limit::Tres(TresLimit::MaxTresPerUser), Of::Qos),
    ("MaxTRESPU", Limit::Tres(TresLimit::MaxTresPerUser), Of::Qos),
    ("MaxTRESRunMinsPerAccount", Limit::Tres(TresLimit::MaxTresRunMinsPerAccount), Of::Qos),
    ("MaxTRESRunMinsPA", Limit::Tres(TresLimit::MaxTresRunMinsPerAccount), Of::Qos),
    ("MaxTRESRunMinsPerUser", Limit::Tres(TresLimit::MaxTresRunMinsPerUser), Of::Qos),
    ("MaxTRESRunMinsPU", Limit::Tres(TresLimit::MaxTresRunMinsPerUser), Of::Qos),
    ("MaxWallDurationPerJob", Limit::Count(Count::MaxWall), Of::Both),
    ("MaxWall", Limit::Count(Count::MaxWall), Of::Both),
    ("MinPrioThreshold", Limit::Count(Count::MinPrioThreshold), Of::Qos),
    ("MinTRESPerJob", Limit::Tres(TresLimit::MinTresPerJob), Of::Qos),
    ("MinTRES", Limit::Tres(TresLimit::MinTresPerJob), Of::Qos),
];

/// The limit that a key means, of associations or of QOS: that word, or the first that begins so.
pub fn find(key: &str, of: Of) -> Option<Limit> {
    const LETTERS: usize = 3;
    let words = || WORDS.iter().filter(|(.., whose)| *whose == Of::Both || *whose == of);
    let begins = |word: &str| word.get(..key.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(key));
    let exact = words().find(|(word, ..)| word.eq_ignore_ascii_case(key));
    let found = exact.or_else(|| words().find(|(word, ..)| key.len() >= LETTERS && begins(word)));
    found.map(|(_, limit, _)| *limit)
}

/// The word of a limit in the file of `dump`.
pub fn in_file(limit: Limit) -> &'static str {
    WORDS.iter().find(|(_, known, _)| *known == limit).map_or("", |(word, ..)| word)
}

/// The word by which messages call a limit.
pub fn told(limit: Limit) -> &'static str {
    match limit {
        Limit::Count(Count::MaxWall) => "MaxWall",
        Limit::Tres(TresLimit::MaxTresMinsPerJob) => "MaxTRESMins",
        other => in_file(other),
    }
}

/// Is it a time, in minutes?
pub const fn is_time(count: Count) -> bool {
    matches!(count, Count::MaxWall | Count::GrpWall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known_by_their_beginning_where_they_belong() {
        let jobs = |of| find("MAXJOBS", of);
        assert_eq!(jobs(Of::Associations), Some(Limit::Count(Count::MaxJobs)));
        assert_eq!(jobs(Of::Qos), Some(Limit::Count(Count::MaxJobsAccruePerAccount)));
        assert_eq!(find("maxwall", Of::Qos), Some(Limit::Count(Count::MaxWall)));
        assert_eq!(find("mintres", Of::Associations), None);
        assert_eq!(find("gr", Of::Qos), None);
        assert_eq!(in_file(Limit::Count(Count::MaxWall)), "MaxWallDurationPerJob");
        assert_eq!(told(Limit::Count(Count::GrpSubmit)), "GrpSubmitJobs");
    }
}
