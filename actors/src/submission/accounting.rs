//! The account, QOS and workload characterization key (WCKey) of a job, and limits of accounting at its submission
//! (`AccountingStorageEnforce`, slurm.conf(5)). Part of admission. Where accounting knows the user, a job that names no account or QOS
//! gets those of his association, whatever is enforced. Limits that count other jobs are the frontend's, which sees them all.

use super::admission::{Purpose, Rules, Submitter};
use garrick_events::records::job::Resolved;
use garrick_model::{
    config::EnforceWord,
    entities::{
        NORMAL,
        association::AssocId,
        qos::{QosFlag, choices},
        relative,
    },
    refusal::Refusal,
    spec::JobSpec,
    view::{JobView, PartitionView},
};
use garrick_plan::{
    policy::partition_facts,
    rules::accounting::exceeded_alone,
    snapshot::{
        accounting::{AccountingTable, AssocRules},
        affiliation::Affiliation,
        qos::with_each,
    },
};
use std::{cmp::Reverse, sync::Arc};

impl Rules<'_> {
    /// Settles the account, QOS and WCKey of the job. Returns its association.
    pub(super) fn settle_accounting(
        &self,
        by: &Submitter<'_>,
        spec: &mut JobSpec,
        purpose: &Purpose<'_>,
    ) -> Result<Option<AssocId>, Refusal> {
        let user = by.user.as_ref().map_or_else(|| by.caller.uid.to_string(), |user| user.name.clone());
        let moves = purpose.asks(spec, |spec| (&spec.account, &spec.partitions));
        let takes_qos = moves || purpose.asks(spec, |spec| &spec.qos);
        let known = purpose.change().and_then(|change| change.record.resolved.association);
        let association = if moves { self.association(&user, spec, purpose)? } else { None };
        if let Some(rules) = association {
            spec.account = Some(rules.account_name.clone());
        }
        let id = if moves { association.map(|rules| rules.id) } else { known };
        if takes_qos {
            let rules = association.or_else(|| id.and_then(|id| self.accounting.table.association(id)));
            self.settle_qos(by, spec, rules)?;
        }
        if purpose.asks(spec, |spec| &spec.wckey) {
            self.settle_wckey(&user, spec)?;
        }
        Ok(id)
    }

    fn enforces(&self, word: EnforceWord) -> bool {
        self.accounting.enforces(word)
    }

    fn association(&self, user: &str, spec: &JobSpec, purpose: &Purpose<'_>) -> Result<Option<&AssocRules>, Refusal> {
        let table = &self.accounting.table;
        let account = spec.account.as_deref().map(str::to_ascii_lowercase);
        let stays = purpose.change().and_then(|change| change.record.resolved.partitions.first());
        let default = || self.partitions.iter().find(|p| p.config.default).map(|p| &p.config.name);
        let partitions = if spec.partitions.is_empty() {
            stays.or_else(default).into_iter().collect()
        } else {
            spec.partitions.iter().collect::<Vec<_>>()
        };
        let names = partitions.iter().map(|name| Some(name.as_str())).chain(partitions.is_empty().then_some(None));
        let own =
            Affiliation { uid: 0, user, account: account.as_deref(), qos: None, association: None, partition: None };
        // An account without a name is none.
        let found = names.filter(|_| own.account != Some("")).find_map(|partition| {
            let own = Affiliation { partition, ..own };
            table.association_of(own)
        });
        match found {
            None if self.enforces(EnforceWord::Associations) => Err(Refusal::InvalidAccount(spec.account.clone())),
            found => Ok(found),
        }
    }

    fn settle_qos(&self, by: &Submitter<'_>, spec: &mut JobSpec, rules: Option<&AssocRules>) -> Result<(), Refusal> {
        let table = &self.accounting.table;
        let named = spec.qos.as_deref().map(|named| in_order(table, named)).filter(|named| !named.is_empty());
        let default = || match rules {
            Some(rules) => rules.default_qos.clone().or_else(|| {
                let usual = rules.qos.get(NORMAL).or_else(|| rules.qos.first());
                usual.cloned()
            }),
            None => table.qos(NORMAL).map(|_| NORMAL.to_owned()),
        };
        if table.is_empty() {
            // Nothing is known to fill in.
            return if self.enforces(EnforceWord::Qos) { Err(Refusal::InvalidQos(spec.qos.clone())) } else { Ok(()) };
        }
        spec.qos = named.or_else(default);
        if !self.enforces(EnforceWord::Qos) {
            return Ok(());
        }
        let named = spec.qos.as_deref().ok_or(Refusal::InvalidQos(None))?;
        let may = |name: &str| {
            let Some(qos) = table.qos(name) else { return false };
            // As in Slurm, root's jobs may have any QOS.
            let may = by.caller.uid == 0 || rules.is_some_and(|rules| rules.qos.contains(name));
            let of_partitions = self.partitions.iter().map(|partition| partition.config.qos.as_deref());
            let may = may && !relative::is_of_partition(&qos.record, of_partitions);
            let outside = qos.record.has(QosFlag::RequiresReservation) && spec.reservations.is_empty();
            may && !outside
        };
        match choices(named).find(|name| !may(name)) {
            Some(name) => Err(Refusal::InvalidQos(Some(name.to_owned()))),
            None => Ok(()),
        }
    }

    /// With `wckeys` or `TrackWCKey`: a job that names none has its user's default one, which is shown with `*`. Only `wckeys` refuses
    /// others than those that he has.
    fn settle_wckey(&self, user: &str, spec: &mut JobSpec) -> Result<(), Refusal> {
        let table = &self.accounting.table;
        if !self.enforces(EnforceWord::WcKeys) {
            let names_one = spec.wckey.as_deref().is_some_and(|name| !name.trim_start_matches('*').is_empty());
            if self.config.track_wckey && !names_one && !table.is_empty() {
                spec.wckey = Some(format!("*{}", table.default_wckey(user).unwrap_or_default()));
            }
            return Ok(());
        }
        match spec.wckey.as_deref().map(|name| name.trim_start_matches('*').to_ascii_lowercase()) {
            Some(name) if table.has_wckey(user, &name) => Ok(()),
            Some(name) if !name.is_empty() => Err(Refusal::InvalidWcKey(Some(name))),
            _ => {
                let default = table.default_wckey(user).ok_or(Refusal::InvalidWcKey(None))?;
                spec.wckey = Some(format!("*{default}"));
                Ok(())
            }
        }
    }

    /// `DenyOnLimit`: a job that alone is over a limit is refused, if it is in each of its partitions with each QOS that it
    /// names.
    pub(super) fn deny_on_limit(
        &self,
        view: &JobView,
        resolved: &Resolved,
        partitions: &[Arc<PartitionView>],
    ) -> Result<(), Refusal> {
        let places = partitions.iter().filter(|place| resolved.partitions.contains(&place.config.name));
        let mut first = None;
        for place in places {
            let facts = partition_facts(place, self.feasibility.view().nodes.len());
            for view in with_each(view) {
                match exceeded_alone(self.accounting, &view, &facts) {
                    None => return Ok(()),
                    Some(reason) => _ = first.get_or_insert(reason),
                }
            }
        }
        first.map_or(Ok(()), |reason| Err(Refusal::AccountingPolicy.after(vec![reason.text().into_owned()])))
    }
}

/// The QOS that a job names, in lower case, each once: those of the greatest priority first, as in Slurm 26.05 (sbatch(1), `--qos`).
fn in_order(table: &AccountingTable, named: &str) -> String {
    let mut names: Vec<String> = Vec::new();
    for name in choices(named).map(str::to_ascii_lowercase) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort_by_key(|name| Reverse(table.qos(name).map_or(0, |qos| qos.record.priority)));
    names.join(",")
}
