//! Limits and times of accounting as text.

use garrick_model::{
    entities::{
        association::Shares,
        limits::{Amounts, Limits, TresLimit},
        names::AdminLevel,
        qos::{QosFlag, QosPreemptMode},
    },
    resources::MemoryMib,
};

/// `1-02:03:04`, `00:10:00`
pub fn seconds(secs: u64) -> String {
    crate::sacct::units::elapsed(secs)
}

/// Minutes, in the same form.
pub fn minutes(minutes: u64) -> String {
    seconds(minutes.saturating_mul(60))
}

/// `cpu=3,mem=500M`
pub fn tres<'a>(amounts: impl IntoIterator<Item = (&'a str, u64)>) -> String {
    let text = |(name, amount): (&str, u64)| match name {
        "mem" => format!("mem={}", MemoryMib(amount)),
        _ => format!("{name}={amount}"),
    };
    amounts.into_iter().map(text).collect::<Vec<_>>().join(",")
}

/// A limit of TRES.
pub fn limit(limits: &Limits, limit: TresLimit) -> String {
    tres(limits.amounts(limit))
}

/// Amounts by name.
pub fn amounts(amounts: &Amounts) -> String {
    tres(amounts.iter().map(|(name, amount)| (name.as_str(), *amount)))
}

/// `Fairshare`
pub fn shares(shares: Shares) -> String {
    match shares {
        Shares::Number(number) => number.to_string(),
        Shares::Parent => "parent".to_owned(),
    }
}

/// `AdminLevel`
pub const fn admin(level: AdminLevel) -> &'static str {
    match level {
        AdminLevel::None => "None",
        AdminLevel::Operator => "Operator",
        AdminLevel::Administrator => "Administrator",
    }
}

/// The flags of a QOS with their words, in the order in which Slurm prints them.
pub const QOS_FLAGS: [(QosFlag, &str); 11] = [
    (QosFlag::PartitionMinNodes, "PartitionMinNodes"),
    (QosFlag::DenyOnLimit, "DenyOnLimit"),
    (QosFlag::EnforceUsageThreshold, "EnforceUsageThreshold"),
    (QosFlag::PartitionMaxNodes, "PartitionMaxNodes"),
    (QosFlag::PartitionTimeLimit, "PartitionTimeLimit"),
    (QosFlag::RequiresReservation, "RequiresReservation"),
    (QosFlag::OverPartQos, "OverPartQOS"),
    (QosFlag::NoReserve, "NoReserve"),
    (QosFlag::NoDecay, "NoDecay"),
    (QosFlag::UsageFactorSafe, "UsageFactorSafe"),
    (QosFlag::Relative, "Relative"),
];

/// `PreemptMode` of a QOS.
pub const fn preempt_mode(mode: QosPreemptMode) -> &'static str {
    match mode {
        QosPreemptMode::Suspend => "suspend",
        QosPreemptMode::Requeue => "requeue",
        QosPreemptMode::Cancel => "cancel",
        QosPreemptMode::Within => "within",
        QosPreemptMode::Priority => "priority",
    }
}

/// Texts between commas.
pub fn list<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    texts.into_iter().map(|text| text.as_ref().to_owned()).collect::<Vec<_>>().join(",")
}
