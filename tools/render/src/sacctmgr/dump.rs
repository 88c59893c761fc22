//! Everything of a cluster as a file that `sacctmgr load` reads (sacctmgr(1), FLAT FILE DUMP AND LOAD): its tree of accounts with
//! users and limits, and all QOS.

use super::{
    amounts::{self, list},
    fields::{preempt_mode, qos_flags},
    limit_words::{Limit, in_file},
    rows::ordered,
};
use garrick_model::entities::{
    Entities,
    association::{AssocId, Association},
    limits::{Amounts, Limits},
    names::{AdminLevel, Cluster},
    qos::QosRecord,
};
use std::{
    collections::BTreeMap,
    fmt::{Display, Write as _},
};

/// What stands at the head of the file, as Slurm writes it.
pub const HEAD: &str = "\
# To edit this file start with a cluster line for the new cluster
# Cluster - 'cluster_name':MaxTRESPerJob=node=50
# Followed by Accounts you want in this fashion (root is created by default)...
# Parent - 'root'
# Account - 'cs':MaxTRESPerJob=node=5:MaxJobs=4:MaxTRESMinsPerJob=cpu=20:FairShare=399:MaxWallDurationPerJob=40:Description='Computer Science':Organization='LC'
# Any of the options after a ':' can be left out and they can be in any order.
# If you want to add any sub accounts just list the Parent THAT HAS ALREADY
# BEEN CREATED before the account line in this fashion...
# Parent - 'cs'
# Account - 'test':MaxTRESPerJob=node=1:MaxJobs=1:MaxTRESMinsPerJob=cpu=1:FairShare=1:MaxWallDurationPerJob=1:Description='Test Account':Organization='Test'
# To add users to a account add a line like this after a Parent - 'line'
# User - 'lipari':MaxTRESPerJob=node=2:MaxJobs=3:MaxTRESMinsPerJob=cpu=4:FairShare=1:MaxWallDurationPerJob=1
";

/// The lines of a cluster: first those of the QOS and the cluster, which are told as one, then the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// QOS and the cluster.
    pub first: Vec<String>,
    /// The tree.
    pub rest: Vec<String>,
}

impl Dump {
    /// The file.
    pub fn file(&self) -> String {
        let lines = self.first.iter().chain(&self.rest);
        lines.fold(HEAD.to_owned(), |file, line| file + line + "\n")
    }
}

/// A line that grows: `Account - 'chem':Fairshare=7`.
struct Line(String);

impl Line {
    fn of(what: &str, name: &str) -> Self {
        Self(format!("{what} - '{name}'"))
    }

    fn value(&mut self, key: &str, value: impl Display) {
        let _ = write!(self.0, ":{key}={value}");
    }

    fn text(&mut self, key: &str, text: &str) {
        // A quote would end the text.
        if !text.is_empty() {
            self.value(key, format_args!("'{}'", text.replace('\'', "")));
        }
    }
}

/// Amounts as they are read back: memory without a unit is in MiB.
fn plain(amounts: &Amounts) -> String {
    list(amounts.iter().map(|(name, amount)| format!("{name}={amount}")))
}

fn limits(line: &mut Line, limits: &Limits) {
    for (count, number) in &limits.counts {
        line.value(in_file(Limit::Count(*count)), number);
    }
    for (limit, amounts) in limits.tres.iter().filter(|(_, amounts)| !amounts.is_empty()) {
        line.value(in_file(Limit::Tres(*limit)), plain(amounts));
    }
}

fn qos_line(qos: &QosRecord) -> String {
    let mut line = Line::of("QOS", &qos.name);
    line.text("Description", &qos.description);
    line.text("Flags", &list(qos_flags(qos)));
    if qos.grace_secs > 0 {
        line.value("GraceTime", qos.grace_secs);
    }
    limits(&mut line, &qos.limits);
    line.text("Preempt", &list(&qos.preempt));
    if !qos.preempt_mode.is_empty() {
        line.text("PreemptMode", &preempt_mode(qos));
    }
    if let Some(secs) = qos.preempt_exempt_secs {
        line.value("PreemptExemptTime", amounts::seconds(secs));
    }
    if qos.priority > 0 {
        line.value("Priority", qos.priority);
    }
    if let Some(factor) = qos.limit_factor {
        line.value("LimitFactor", format_args!("{factor:.6}"));
    }
    if (qos.usage_factor - 1.0).abs() > f64::EPSILON {
        line.value("UsageFactor", format_args!("{:.6}", qos.usage_factor));
    }
    if let Some(threshold) = qos.usage_threshold {
        line.value("UsageThreshold", format_args!("{threshold:.6}"));
    }
    line.0
}

/// What every association has: shares, limits, QOS.
fn association(line: &mut Line, of: &Association) {
    line.value("Fairshare", amounts::shares(of.shares));
    if let Some(priority) = of.priority {
        line.value("Priority", priority);
    }
    limits(line, &of.limits);
    line.text("DefaultQOS", of.default_qos.as_deref().unwrap_or(""));
    match &of.qos.own {
        Some(own) => line.text("QOS", &list(of.qos.over(own.clone()))),
        None => {
            for (key, names) in [("QOS+", &of.qos.added), ("QOS-", &of.qos.removed)] {
                line.text(key, &list(names));
            }
        }
    }
}

struct Tree<'e> {
    entities: &'e Entities,
    cluster: &'e str,
    children: BTreeMap<AssocId, Vec<&'e Association>>,
}

impl<'e> Tree<'e> {
    fn user(&self, of: &Association, user: &str) -> String {
        let mut line = Line::of("User", user);
        let record = self.entities.users.get(user);
        line.text("Partition", of.partition.as_deref().unwrap_or(""));
        line.text("DefaultAccount", self.entities.default_account(self.cluster, user).unwrap_or(""));
        let keys = || {
            let its = |key: &&garrick_model::entities::names::WcKey| {
                !key.deleted && key.cluster == self.cluster && key.user == user
            };
            self.entities.wckeys.values().filter(its)
        };
        line.text("DefaultWCKey", keys().find(|key| key.is_default).map_or("", |key| &key.name));
        let mut names: Vec<&str> = keys().map(|key| key.name.as_str()).collect();
        names.sort_unstable();
        line.text("WCKeys", &list(names));
        if let Some(level) = record.map(|user| user.admin).filter(|level| *level != AdminLevel::None) {
            line.text("AdminLevel", amounts::admin(level));
        }
        let coordinated = self.entities.accounts.values().filter(|a| !a.deleted && a.coordinators.contains(user));
        line.text("Coordinator", &list(coordinated.map(|account| &account.name)));
        association(&mut line, of);
        line.0
    }

    fn account(&self, of: &Association) -> String {
        let mut line = Line::of("Account", &of.account);
        if let Some(account) = self.entities.accounts.get(&of.account) {
            line.text("Description", &account.description);
            line.text("Organization", &account.organization);
        }
        association(&mut line, of);
        line.0
    }

    /// What is in an account, then what is in those below it.
    fn write(&self, of: &'e Association, lines: &mut Vec<String>) {
        let Some(children) = self.children.get(&of.id) else { return };
        lines.push(format!("Parent - '{}'", of.account));
        for child in children {
            lines.push(match &child.user {
                Some(user) => self.user(child, user),
                None => self.account(child),
            });
        }
        children.iter().filter(|child| child.user.is_none()).for_each(|child| self.write(child, lines));
    }
}

/// The lines of a cluster; `None`: there is no such cluster.
pub fn dump(entities: &Entities, cluster: &str) -> Option<Dump> {
    let Cluster { name, classification, .. } = entities.clusters.get(cluster).filter(|cluster| !cluster.deleted)?;
    let mut qos: Vec<&QosRecord> = entities.qos.values().filter(|qos| !qos.deleted).collect();
    qos.sort_by_key(|qos| qos.id);
    let mut first: Vec<String> = qos.into_iter().map(qos_line).collect();
    let mut line = Line::of("Cluster", name);
    line.text("Classification", classification);
    let mut children: BTreeMap<AssocId, Vec<&Association>> = BTreeMap::new();
    let mut root = None;
    for of in ordered(entities, false).into_iter().filter(|a| a.cluster == *name) {
        match of.parent {
            Some(parent) => children.entry(parent).or_default().push(of),
            None => root = Some(of),
        }
    }
    let mut rest = Vec::new();
    if let Some(root) = root {
        association(&mut line, root);
        Tree { entities, cluster: name, children }.write(root, &mut rest);
    }
    first.push(line.0);
    Some(Dump { first, rest })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sacctmgr::samples;
    use garrick_model::entities::limits::{Count, TresLimit};

    /// As sacctmgr of Slurm 26.05.3 wrote it.
    #[test]
    fn a_cluster_is_dumped_as_slurm_dumps_it() {
        let expected = "QOS - 'normal':Description='Normal QOS default'
QOS - 'high':Description='high':Preempt='low,normal':PreemptMode='requeue':Priority=100
QOS - 'long':Description='long jobs':MaxWallDurationPerJob=2880
QOS - 'low':Description='low':PreemptMode='cancel':Priority=1:UsageFactor=3.000000
Cluster - 'cluster':Classification='Capacity':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'chem':Description='chemistry dept':Organization='newsci':Fairshare=7
Account - 'chem2':Description='upper':Organization='chem2':Fairshare=1
Account - 'physics':Description='physics dept':Organization='science':Fairshare=1:QOS='high,long,low,normal'
Parent - 'chem'
User - 'alice':DefaultAccount='physics':DefaultWCKey='proj1':WCKeys='proj1,proj2':Fairshare=1
User - 'bob':DefaultAccount='astro':DefaultWCKey='proj1':WCKeys='nosuch,proj1':Fairshare=1:QOS='high,normal'
User - 'dave':DefaultAccount='chem':AdminLevel='Operator':Fairshare=1
User - 'eva':DefaultAccount='chem':Fairshare=1
Account - 'chemsub':Description='chemsub':Organization='chem':Fairshare=1
Parent - 'physics'
User - 'alice':DefaultAccount='physics':DefaultWCKey='proj1':WCKeys='proj1,proj2':Fairshare=10
Account - 'astro':Description='astro':Organization='physics':Fairshare=1
Account - 'quantum':Description='quantum':Organization='physics':Fairshare=1
Parent - 'astro'
User - 'bob':DefaultAccount='astro':DefaultWCKey='proj1':WCKeys='nosuch,proj1':Fairshare=1:QOS='high,normal'
";
        let dump = dump(&samples::tree(), "cluster").unwrap();
        assert_eq!(dump.file().strip_prefix(HEAD).unwrap(), expected);
        assert_eq!((dump.first.len(), dump.rest[0].as_str()), (5, "Parent - 'root'"));
        assert_eq!(super::dump(&samples::tree(), "nosuch"), None);
    }

    #[test]
    fn limits_are_dumped_so_that_they_are_read_back() {
        let mut entities = samples::tree();
        let chem = entities.associations.values_mut().find(|a| a.account == "chem" && a.user.is_none()).unwrap();
        chem.limits.counts.insert(Count::MaxWall, 40);
        chem.limits.tres.insert(TresLimit::GrpTres, [("mem".to_owned(), 6144), ("cpu".to_owned(), 3)].into());
        let file = dump(&entities, "cluster").unwrap().file();
        assert!(file.contains(":Fairshare=7:MaxWallDurationPerJob=40:GrpTRES=cpu=3,mem=6144\n"), "{file}");
    }
}
