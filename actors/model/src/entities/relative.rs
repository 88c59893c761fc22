//! QOS whose limits are percentages (`Flags=Relative`; qos.html, "Relative QOS").

use super::{
    Entities,
    limits::{Amounts, Limits, TresLimit},
    qos::{QosFlag, QosRecord},
};
use crate::config::Config;
use std::{borrow::Cow, collections::HashSet};

/// Limits of amounts that somebody has at a time. Minutes are no part of a cluster: they stay what they are.
const OF_AMOUNTS: [TresLimit; 6] = [
    TresLimit::GrpTres,
    TresLimit::MaxTresPerJob,
    TresLimit::MaxTresPerNode,
    TresLimit::MaxTresPerUser,
    TresLimit::MaxTresPerAccount,
    TresLimit::MinTresPerJob,
];

/// A percentage of an amount. More than all means all.
fn part(percent: u64, all: u64) -> u64 {
    let part = u128::from(percent.min(100)) * u128::from(all) / 100;
    u64::try_from(part).unwrap_or(all)
}

/// The limits with amounts in place of percentages of these. What there is nothing of is limited to nothing.
pub fn scaled(limits: &Limits, all: &Amounts) -> Limits {
    let mut scaled = limits.clone();
    for limit in OF_AMOUNTS {
        for (name, number) in scaled.tres.get_mut(&limit).into_iter().flatten() {
            *number = part(*number, all.get(name).copied().unwrap_or(0));
        }
    }
    scaled
}

/// What the cluster has, or the partition whose QOS it is.
fn all_of(config: &Config, qos: &str) -> Amounts {
    // Only one partition may have it: the first one counts.
    let partition = config.partitions.iter().find(|partition| has_qos(partition.qos.as_deref(), qos));
    let inside = partition.map(|partition| partition.nodes.iter().collect::<HashSet<String>>());
    let mut all = Amounts::new();
    for node in config.nodes.iter().filter(|node| inside.as_ref().is_none_or(|names| names.contains(&node.name))) {
        for (name, count) in node.settings.shape.amounts() {
            *all.entry(name).or_default() += count;
        }
    }
    for license in &config.licenses.0 {
        all.insert(format!("license/{}", license.name), license.count.into());
    }
    all
}

fn has_qos(of_partition: Option<&str>, qos: &str) -> bool {
    of_partition.is_some_and(|name| name.eq_ignore_ascii_case(qos))
}

/// Is it the QOS of one of these partitions, so that no job may ask for it?
pub fn is_of_partition<'p>(qos: &QosRecord, mut of_partitions: impl Iterator<Item = Option<&'p str>>) -> bool {
    qos.has(QosFlag::Relative) && of_partitions.any(|of| has_qos(of, &qos.name))
}

/// The entities as they bind on a cluster of that configuration: with amounts in place of percentages.
pub fn resolved<'e>(entities: &'e Entities, config: &Config) -> Cow<'e, Entities> {
    let relative = |qos: &QosRecord| qos.has(QosFlag::Relative) && !qos.limits.tres.is_empty();
    if !entities.qos.values().any(relative) {
        return Cow::Borrowed(entities);
    }
    let mut resolved = Entities::clone(entities);
    for qos in resolved.qos.values_mut().filter(|qos| relative(qos)) {
        qos.limits = scaled(&qos.limits, &all_of(config, &qos.name));
    }
    Cow::Owned(resolved)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config;
    use std::path::Path;

    fn config_of(text: &str) -> Config {
        let text = format!("ClusterName=c\nSlurmctldHost=head\n{text}");
        let (config, report) = config::read_text(Path::new("slurm.conf"), &text);
        config.unwrap_or_else(|| panic!("{report:?}"))
    }

    fn limits(all: &[(TresLimit, &str, u64)]) -> Limits {
        let mut limits = Limits::default();
        for (limit, name, number) in all {
            limits.tres.entry(*limit).or_default().insert((*name).to_owned(), *number);
        }
        limits
    }

    fn entities(qos: QosRecord) -> Entities {
        Entities { qos: [(qos.name.clone(), qos)].into(), ..Entities::default() }
    }

    #[test]
    fn percentages_are_of_the_cluster_or_of_the_partition_whose_qos_it_is() {
        let text = "NodeName=n[1-4] CPUs=8 RealMemory=1000\nLicenses=foo:10\n\
                    PartitionName=main Nodes=ALL\nPartitionName=small Nodes=n1 QOS=small\n";
        let config = config_of(text);
        let of = |name: &str, limits: &Limits| {
            let mut qos = QosRecord::new(2, name);
            (qos.flags, qos.limits) = ([QosFlag::Relative].into(), limits.clone());
            resolved(&entities(qos), &config).qos[name].limits.clone()
        };
        use TresLimit::{GrpTres, GrpTresMins, MaxTresPerUser};
        let asked = limits(&[
            (GrpTres, "cpu", 50),
            (GrpTres, "license/foo", 25),
            (MaxTresPerUser, "mem", 10),
            (MaxTresPerUser, "node", 300),
            (GrpTresMins, "cpu", 50),
        ]);
        let got = of("half", &asked);
        assert_eq!((got.tres(GrpTres, "cpu"), got.tres(GrpTres, "license/foo")), (Some(16), Some(2)));
        assert_eq!((got.tres(MaxTresPerUser, "mem"), got.tres(MaxTresPerUser, "node")), (Some(400), Some(4)));
        assert_eq!(got.tres(GrpTresMins, "cpu"), Some(50), "minutes are no amount");
        assert_eq!(of("small", &asked).tres(GrpTres, "cpu"), Some(4));
    }

    #[test]
    fn others_stay_and_one_of_a_partition_is_for_no_job() {
        let config = config_of("NodeName=n1 CPUs=8\nPartitionName=main Nodes=ALL QOS=Part\n");
        let mut qos = QosRecord::new(2, "part");
        qos.limits = limits(&[(TresLimit::GrpTres, "cpu", 50)]);
        let plain = entities(qos.clone());
        assert!(matches!(resolved(&plain, &config), Cow::Borrowed(_)));
        let of = || config.partitions.iter().map(|partition| partition.qos.as_deref());
        assert!(!is_of_partition(&qos, of()));
        qos.flags = [QosFlag::Relative].into();
        assert!(is_of_partition(&qos, of()));
    }
}
