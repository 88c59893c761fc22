//! Why a job waits for a limit of its association or QOS, or is refused because of one, in Slurm's words (job_reason_codes.html; which
//! word goes with which limit was seen in 26.05.3).

use super::limits::{Count, TresLimit};
use crate::state::Reason;

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// That of an association.
    Association,
    /// That of a QOS.
    Qos,
}

/// The association of a job is not there any more, or it never had one where one is needed.
pub const INVALID_ACCOUNT: &str = "InvalidAccount";
/// The QOS of a job is none that its association may use.
pub const INVALID_QOS: &str = "InvalidQOS";
/// The fair share of its association is below the threshold of its QOS.
pub const USAGE_THRESHOLD: &str = "QOSUsageThreshold";

/// As a reason: not a variant of its own, since older programs could not read it.
fn reason(text: impl Into<String>) -> Reason {
    Reason::Other(text.into())
}

/// [`INVALID_ACCOUNT`], [`INVALID_QOS`] or [`USAGE_THRESHOLD`].
pub fn plain(word: &'static str) -> Reason {
    reason(word)
}

/// Does a job wait because of accounting: its association, its QOS, or a limit of them?
pub fn is_of_accounting(reason: &Reason) -> bool {
    let Reason::Other(text) = reason else { return false };
    ["Assoc", "QOS", "MaxCpu", "MaxJobs", "MaxSubmit", "MaxMem", "MaxNode", "MaxGRES", "MaxLicense", "MaxBilling"]
        .iter()
        .chain(&["MaxEnergy", "MaxBB", "MaxUnknown", INVALID_ACCOUNT])
        .chain(&[INVALID_QOS])
        .any(|begin| text.starts_with(begin))
}

/// The reason of a number that is reached.
pub fn of_count(level: Level, count: Count) -> Reason {
    let of_qos = level == Level::Qos;
    reason(match count {
        Count::GrpJobs | Count::GrpJobsAccrue if of_qos => "QOSGrpJobsLimit",
        Count::GrpJobs | Count::GrpJobsAccrue => "AssocGrpJobsLimit",
        Count::GrpSubmit if of_qos => "QOSGrpSubmitJobsLimit",
        Count::GrpSubmit => "AssocGrpSubmitJobsLimit",
        Count::GrpWall if of_qos => "QOSGrpWallLimit",
        Count::GrpWall => "AssocGrpWallLimit",
        Count::MaxJobs | Count::MaxJobsAccrue => "AssocMaxJobsLimit",
        Count::MaxSubmit => "AssocMaxSubmitJobLimit",
        Count::MaxWall if of_qos => "QOSMaxWallDurationPerJobLimit",
        Count::MaxWall => "AssocMaxWallDurationPerJobLimit",
        Count::MaxJobsPerUser | Count::MaxJobsAccruePerUser => "QOSMaxJobsPerUserLimit",
        Count::MaxJobsPerAccount | Count::MaxJobsAccruePerAccount => "MaxJobsPerAccount",
        Count::MaxSubmitPerUser => "QOSMaxSubmitJobPerUserLimit",
        Count::MaxSubmitPerAccount => "MaxSubmitJobsPerAccount",
        Count::MinPrioThreshold => "Priority",
    })
}

/// The kind of a TRES, as reasons name it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cpu,
    Mem,
    Node,
    Other(&'static str),
}

fn kind(tres: &str) -> Kind {
    match tres.split('/').next().unwrap_or(tres) {
        "cpu" => Kind::Cpu,
        "mem" => Kind::Mem,
        "node" => Kind::Node,
        "energy" => Kind::Other("Energy"),
        "billing" => Kind::Other("Billing"),
        "gres" => Kind::Other("GRES"),
        "license" => Kind::Other("License"),
        "bb" => Kind::Other("BB"),
        _ => Kind::Other("Unknown"),
    }
}

/// The reason of a limit for a kind of TRES.
pub fn of_tres(level: Level, limit: TresLimit, tres: &str) -> Reason {
    let kind = kind(tres);
    let of_qos = level == Level::Qos;
    let word = match kind {
        Kind::Cpu => "Cpu",
        Kind::Mem if of_qos => "Memory",
        Kind::Mem => "Mem",
        Kind::Node => "Node",
        Kind::Other(word) => word,
    };
    let owner = if of_qos { "QOS" } else { "Assoc" };
    // Where the words for CPUs end with a word that others do not have.
    let limit_of = |with: &[Kind]| if with.contains(&kind) { "Limit" } else { "" };
    let all = &[Kind::Cpu, Kind::Mem, Kind::Node];
    reason(match limit {
        TresLimit::GrpTres if kind == Kind::Mem => format!("{owner}GrpMemLimit"),
        TresLimit::GrpTres => format!("{owner}Grp{word}{}", limit_of(all)),
        TresLimit::GrpTresMins if kind == Kind::Cpu => format!("{owner}GrpCPUMinutesLimit"),
        TresLimit::GrpTresMins => format!("{owner}Grp{word}Minutes"),
        TresLimit::GrpTresRunMins if kind == Kind::Cpu => format!("{owner}GrpCPURunMinutesLimit"),
        TresLimit::GrpTresRunMins => format!("{owner}Grp{word}RunMinutes"),
        TresLimit::MaxTresPerJob => format!("{owner}Max{word}PerJob{}", limit_of(&[Kind::Cpu, Kind::Node])),
        TresLimit::MaxTresPerNode => format!("{owner}Max{word}PerNode"),
        TresLimit::MaxTresMinsPerJob => format!("{owner}Max{word}MinutesPerJob{}", limit_of(&[Kind::Cpu])),
        TresLimit::MaxTresPerUser => format!("QOSMax{word}PerUser{}", limit_of(&[Kind::Cpu, Kind::Node])),
        TresLimit::MaxTresPerAccount => format!("Max{word}PerAccount"),
        TresLimit::MaxTresRunMinsPerUser => format!("Max{}RunMinsPerUser", short(kind, word)),
        TresLimit::MaxTresRunMinsPerAccount => format!("Max{}RunMinsPerAccount", short(kind, word)),
        TresLimit::MinTresPerJob if kind == Kind::Cpu => "QOSMinCpuNotSatisfied".to_owned(),
        TresLimit::MinTresPerJob => format!("QOSMin{word}"),
    })
}

const fn short(kind: Kind, word: &'static str) -> &'static str {
    if matches!(kind, Kind::Mem) { "Mem" } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tres(level: Level, limit: TresLimit, name: &str) -> String {
        of_tres(level, limit, name).text().into_owned()
    }

    // What 26.05.3 shows.
    #[test]
    fn reasons_have_slurms_words() {
        use TresLimit::*;
        let of = |limit, name| tres(Level::Association, limit, name);
        assert_eq!(of(GrpTres, "cpu"), "AssocGrpCpuLimit");
        assert_eq!(of(GrpTres, "mem"), "AssocGrpMemLimit");
        assert_eq!(of(GrpTres, "node"), "AssocGrpNodeLimit");
        assert_eq!(of(GrpTres, "gres/gpu"), "AssocGrpGRES");
        assert_eq!(of(GrpTres, "license/matlab"), "AssocGrpLicense");
        assert_eq!(of(GrpTres, "billing"), "AssocGrpBilling");
        assert_eq!(of(GrpTresMins, "cpu"), "AssocGrpCPUMinutesLimit");
        assert_eq!(of(GrpTresMins, "gres/gpu"), "AssocGrpGRESMinutes");
        assert_eq!(of(GrpTresMins, "mem"), "AssocGrpMemMinutes");
        assert_eq!(of(GrpTresRunMins, "cpu"), "AssocGrpCPURunMinutesLimit");
        assert_eq!(of(MaxTresPerJob, "cpu"), "AssocMaxCpuPerJobLimit");
        assert_eq!(of(MaxTresPerJob, "mem"), "AssocMaxMemPerJob");
        assert_eq!(of(MaxTresPerJob, "gres/gpu"), "AssocMaxGRESPerJob");
        assert_eq!(of(MaxTresPerJob, "node"), "AssocMaxNodePerJobLimit");
        assert_eq!(of(MaxTresPerNode, "cpu"), "AssocMaxCpuPerNode");
        assert_eq!(of(MaxTresMinsPerJob, "cpu"), "AssocMaxCpuMinutesPerJobLimit");
        let of = |limit, name| tres(Level::Qos, limit, name);
        assert_eq!(of(GrpTres, "mem"), "QOSGrpMemLimit");
        assert_eq!(of(GrpTresMins, "mem"), "QOSGrpMemoryMinutes");
        assert_eq!(of(GrpTresRunMins, "cpu"), "QOSGrpCPURunMinutesLimit");
        assert_eq!(of(MaxTresPerJob, "mem"), "QOSMaxMemoryPerJob");
        assert_eq!(of(MaxTresPerJob, "license/matlab"), "QOSMaxLicensePerJob");
        assert_eq!(of(MaxTresPerNode, "cpu"), "QOSMaxCpuPerNode");
        assert_eq!(of(MaxTresPerUser, "cpu"), "QOSMaxCpuPerUserLimit");
        assert_eq!(of(MaxTresPerUser, "node"), "QOSMaxNodePerUserLimit");
        assert_eq!(of(MaxTresPerUser, "mem"), "QOSMaxMemoryPerUser");
        assert_eq!(of(MaxTresPerAccount, "cpu"), "MaxCpuPerAccount");
        assert_eq!(of(MaxTresPerAccount, "mem"), "MaxMemoryPerAccount");
        assert_eq!(of(MaxTresRunMinsPerUser, "cpu"), "MaxCpuRunMinsPerUser");
        assert_eq!(of(MinTresPerJob, "cpu"), "QOSMinCpuNotSatisfied");
        assert_eq!(of(MinTresPerJob, "mem"), "QOSMinMemory");
        assert_eq!(of_count(Level::Qos, Count::MaxWall).text(), "QOSMaxWallDurationPerJobLimit");
    }

    #[test]
    fn they_are_told_from_others() {
        assert!(is_of_accounting(&plain(INVALID_QOS)) && is_of_accounting(&of_count(Level::Qos, Count::GrpJobs)));
        assert!(is_of_accounting(&of_tres(Level::Qos, TresLimit::MaxTresPerAccount, "license/a")));
        assert!(!is_of_accounting(&Reason::QosNotAllowed) && !is_of_accounting(&plain("Licenses")));
        assert!(!is_of_accounting(&Reason::JobHoldMaxRequeue));
    }
}
