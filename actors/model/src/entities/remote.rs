//! Licenses of servers that accounting divides among clusters (sacctmgr(1), resources), as a cluster's controller offers them. Slurm's
//! guide to licenses says what they mean: they are asked for as `name@server`.

use super::Entities;
use crate::time::Timestamp;

/// Where nothing is counted out of itself, clusters are allowed percentages.
const WHOLE: u64 = 100;

/// A license of a server, as a cluster has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteLicense {
    /// `name@server`.
    pub name: String,
    /// How many the cluster may use.
    pub total: u32,
    /// How many of the server's are for others.
    pub others: u32,
    /// How many of the server's are in use, as accounting was told last.
    pub last_consumed: u32,
    /// When that was.
    pub changed: Timestamp,
}

impl RemoteLicense {
    /// How many of the cluster's are in use though nobody knows by whom, where its jobs use that many: they are kept back.
    pub fn deficit(&self, used: u32) -> u32 {
        let known = u64::from(self.others) + u64::from(used);
        let unknown = u64::from(self.last_consumed).saturating_sub(known);
        u32::try_from(unknown).unwrap_or(u32::MAX).min(self.total)
    }
}

impl Entities {
    /// Licenses of servers that a cluster may use, by name.
    pub fn remote_licenses(&self, cluster: &str) -> Vec<RemoteLicense> {
        let there = self.resources.values().filter(|resource| !resource.deleted);
        let mut licenses: Vec<RemoteLicense> = there
            .filter_map(|resource| {
                let allowed = u64::from(*resource.allowed.get(cluster)?);
                let count = u64::from(resource.count);
                let total = if resource.absolute { allowed } else { count.saturating_mul(allowed) / WHOLE };
                let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
                Some(RemoteLicense {
                    name: format!("{}@{}", resource.name, resource.server),
                    total: number(total),
                    others: number(count.saturating_sub(total)),
                    last_consumed: resource.last_consumed,
                    changed: resource.changed,
                })
            })
            .collect();
        licenses.sort_by(|a, b| a.name.cmp(&b.name));
        licenses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entities::names::Resource;

    /// The numbers of Slurm's guide to licenses.
    #[test]
    fn a_cluster_has_its_part_of_what_there_is() {
        let of = |id, name: &str, count, allowed| Resource {
            id,
            name: name.to_owned(),
            server: "rlm_host".to_owned(),
            count,
            allowed: [("pdf".to_owned(), allowed)].into(),
            ..Resource::default()
        };
        let counted = Resource { absolute: true, last_consumed: 30, ..of(2, "foobar", 100, 80) };
        let gone = Resource { deleted: true, ..of(3, "old", 10, 100) };
        let resources = [of(1, "matlab", 50, 70), counted, gone].map(|one| (one.id, one)).into();
        let entities = Entities { resources, ..Entities::default() };
        let licenses = entities.remote_licenses("pdf");
        let told: Vec<_> = licenses.iter().map(|l| (l.name.as_str(), l.total, l.others)).collect();
        assert_eq!(told, [("foobar@rlm_host", 80, 20), ("matlab@rlm_host", 35, 15)]);
        assert!(entities.remote_licenses("fluid").is_empty());
        // 30 are in use, 20 of them by others.
        let foobar = &licenses[0];
        assert_eq!([0, 4, 10, 50].map(|used| foobar.deficit(used)), [10, 6, 0, 0]);
        let all = RemoteLicense { last_consumed: 500, ..foobar.clone() };
        assert_eq!(all.deficit(0), 80);
    }
}
