//! Which jobs hold how many licenses, and whether more are free. Jobs never hold more of a license than there are, unless the
//! configuration reduced the total meanwhile.
//!
//! A job asks before it is allocated, with the number of its attempt, and returns licenses when its work is over. Repeats change
//! nothing.
//!
//! Layers of hierarchical resources are counted as licenses with names such as `flat(node[01-08])`, so that a start takes its
//! amounts of all layers at once or not at all.

use crate::{
    messages::{job::JobInput, letter::Letter, license::LicenseInput},
    owner::{Effect, FreshIds, Out, Owner},
};
use garrick_events::records::job::JobRecord;
use garrick_model::{
    config::{Config, Hres},
    entities::remote::RemoteLicense,
    ids::JobId,
    spec_text::licenses::Licenses,
    time::Timestamp,
    view::{LayerView, LicenseView, RemoteView},
};
use std::{
    collections::BTreeMap,
    convert::Infallible as Never,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hold {
    /// The attempt in which it was reserved; 0 if it comes from a record.
    attempt: u64,
    licenses: Licenses,
}

/// The account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LicenseAccount {
    /// Of all: of `configured` and of `remote`.
    totals: BTreeMap<String, u32>,
    /// Those of the configuration, which hide others of their names.
    configured: BTreeMap<String, u32>,
    /// Hierarchical resources; `configured` contains the amounts of their layers for jobs, except unlimited ones.
    hres: Arc<Hres>,
    holds: BTreeMap<JobId, Hold>,
    /// Licenses of servers, which accounting says, by name.
    remote: BTreeMap<String, Remote>,
}

/// A license of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Remote {
    license: RemoteLicense,
    /// How many are kept back: as of when accounting said the last.
    deficit: u32,
}

impl LicenseAccount {
    /// Sets the totals from the configuration. Jobs that hold more keep them.
    pub fn configure(&mut self, licenses: &Licenses, hres: &Arc<Hres>) {
        let layers = hres.layers().filter_map(|(_, layer)| Some((layer.name.clone(), layer.available()?)));
        self.configured = licenses.0.iter().map(|l| (l.name.clone(), l.count)).chain(layers).collect();
        self.hres = Arc::clone(hres);
        self.sum_up();
    }

    fn sum_up(&mut self) {
        let remote = self.remote.iter().map(|(name, remote)| (name.clone(), remote.license.total));
        let configured = self.configured.iter().map(|(name, total)| (name.clone(), *total));
        self.totals = remote.chain(configured).collect();
    }

    /// That license of a server, unless the configuration has one of its name.
    fn remote(&self, name: &str) -> Option<&Remote> {
        self.remote.get(name).filter(|_| !self.configured.contains_key(name))
    }

    /// Takes over what accounting says of licenses of servers. Jobs that hold more keep them.
    pub fn set_remote(&mut self, licenses: Vec<RemoteLicense>) {
        let known = std::mem::take(&mut self.remote);
        for license in licenses {
            let name = license.name.clone();
            // What it says of use is news only when it was said.
            let same = known.get(&name).filter(|known| known.license == license);
            let deficit = same.map_or_else(|| license.deficit(self.used(&name)), |known| known.deficit);
            self.remote.insert(name, Remote { license, deficit });
        }
        self.sum_up();
    }

    /// Recounts what jobs hold of layers that may have changed: `told` returns what a job holds now, from what it was given. The
    /// account alone cannot tell that if a resource did not exist for a while.
    pub fn recount(&mut self, told: impl Fn(JobId) -> Option<Licenses>) {
        for (job, hold) in &mut self.holds {
            if let Some(licenses) = told(*job) {
                hold.licenses = licenses;
            }
        }
    }

    /// Restores what a job's record says that it holds. Not checked: it was given and is valid.
    pub fn restore(&mut self, job: JobId, licenses: Licenses) {
        self.holds.insert(job, Hold { attempt: 0, licenses });
    }

    /// Gives them to the job if all are free. True if it holds them now.
    pub fn reserve(&mut self, job: JobId, attempt: u64, licenses: &Licenses) -> bool {
        if let Some(hold) = self.holds.get_mut(&job) {
            let same = hold.licenses == *licenses;
            if same {
                hold.attempt = attempt;
            }
            return same;
        }
        let fits = licenses.0.iter().all(|l| self.is_endless(&l.name) || self.free(&l.name) >= l.count);
        if fits {
            self.holds.insert(job, Hold { attempt, licenses: licenses.clone() });
        }
        fits
    }

    /// The job returns what it holds; with `attempt`, only what was reserved in that one. True if it held something.
    pub fn release(&mut self, job: JobId, attempt: Option<u64>) -> bool {
        let has = self.holds.get(&job).is_some_and(|hold| attempt.is_none_or(|a| a == hold.attempt));
        has && self.holds.remove(&job).is_some()
    }

    fn used(&self, name: &str) -> u32 {
        self.holds.values().fold(0, |used, hold| used.saturating_add(hold.licenses.count(name)))
    }

    fn free(&self, name: &str) -> u32 {
        let deficit = self.remote(name).map_or(0, |remote| remote.deficit);
        self.totals.get(name).map_or(0, |total| total.saturating_sub(self.used(name)).saturating_sub(deficit))
    }

    fn is_endless(&self, name: &str) -> bool {
        self.hres.layers().any(|(_, layer)| layer.count.is_none() && layer.name == name)
    }

    /// All licenses by name, then the layers of hierarchical resources in the order of the configuration. Amounts that
    /// reservations keep are not included.
    pub fn view(&self) -> Vec<LicenseView> {
        let is_layer = |name: &str| self.hres.layers().any(|(_, layer)| layer.name == name);
        let licenses = self.totals.iter().filter(|(name, _)| !is_layer(name)).map(|(name, total)| LicenseView {
            name: name.clone(),
            total: *total,
            used: self.used(name),
            reserved: 0,
            layer: None,
            remote: self.remote(name).map(|remote| RemoteView {
                last_consumed: remote.license.last_consumed,
                last_deficit: remote.deficit,
                changed: remote.license.changed,
            }),
        });
        let layers = self.hres.layers().map(|(resource, layer)| LicenseView {
            name: resource.name.clone(),
            total: layer.count.unwrap_or(0),
            used: self.used(&layer.name).saturating_add(layer.base),
            reserved: 0,
            layer: Some(LayerView { nodes: layer.nodes.to_string(), endless: layer.count.is_none() }),
            remote: None,
        });
        licenses.chain(layers).collect()
    }

    /// Hierarchical resources.
    pub const fn hres(&self) -> &Arc<Hres> {
        &self.hres
    }

    /// How many there are.
    pub const fn totals(&self) -> &BTreeMap<String, u32> {
        &self.totals
    }

    /// How many jobs may hold now: what is kept back is left out.
    pub fn usable(&self) -> BTreeMap<String, u32> {
        let kept = |name: &str| self.remote(name).map_or(0, |remote| remote.deficit);
        self.totals.iter().map(|(name, total)| (name.clone(), total.saturating_sub(kept(name)))).collect()
    }

    /// What each job holds.
    pub fn holds(&self) -> impl Iterator<Item = (JobId, &Licenses)> {
        self.holds.iter().map(|(job, hold)| (*job, &hold.licenses))
    }
}

impl LicenseAccount {
    /// The answers to an input, as letters; it has no other effects.
    pub fn answers(&mut self, now: Timestamp, ids: &mut dyn FreshIds, input: LicenseInput) -> Vec<Letter> {
        let mut out = Vec::new();
        self.handle(now, ids, input, &mut out);
        let letter = |effect| if let Effect::Tell(letter) = effect { Some(letter) } else { None };
        out.into_iter().filter_map(letter).collect()
    }
}

impl Owner for LicenseAccount {
    type Input = LicenseInput;
    type Timer = Never;
    type Shown = Never;
    type Answer = Never;
    type Errand = Never;

    fn handle(&mut self, _: Timestamp, _: &mut dyn FreshIds, input: LicenseInput, out: &mut Out<Self>) {
        match input {
            LicenseInput::Reserve { job, attempt, licenses } => {
                let granted = self.reserve(job, attempt, &licenses);
                out.push(Effect::Tell(Letter::Job(job, JobInput::LicensesReserved { attempt, granted })));
            }
            LicenseInput::Release { job, attempt } => {
                self.release(job, attempt);
            }
        }
    }

    fn timer(timer: Never) -> LicenseInput {
        match timer {}
    }
}

/// The account as the controller's actors share it. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct LicenseOffice(Arc<Mutex<LicenseAccount>>);

impl LicenseOffice {
    /// Locks the account for one operation.
    pub fn lock(&self) -> MutexGuard<'_, LicenseAccount> {
        // Every change is one insertion or removal: nothing is half done after a panic elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a job's licenses count as now: layers of hierarchical resources may have changed since they were given, or not exist for
/// a while. `None`: its record has none.
pub(crate) fn counted_now(config: &Config, record: &JobRecord) -> Option<Licenses> {
    let given = record.licenses()?;
    let allocated = record.phase.working().into_iter().flat_map(|run| &run.allocation.nodes);
    let nodes: Vec<usize> = allocated.filter_map(|n| Some(config.node(&n.name)?.index.0 as usize)).collect();
    Some(config.hres.recount(record.spec.licenses.as_deref(), &nodes, given))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn licenses(text: &str) -> Licenses {
        text.parse().unwrap()
    }

    fn account(text: &str) -> LicenseAccount {
        let mut account = LicenseAccount::default();
        account.configure(&licenses(text), &Arc::default());
        account
    }

    #[test]
    fn all_or_nothing_is_given() {
        let mut account = account("foo:4,bar:1");
        assert!(account.reserve(JobId(1), 1, &licenses("foo:3,bar")));
        assert!(!account.reserve(JobId(2), 1, &licenses("foo:1,bar:1")));
        assert!(account.reserve(JobId(2), 2, &licenses("foo")));
        assert!(!account.reserve(JobId(3), 1, &licenses("baz")));
        let view: Vec<(String, u32, u32)> = account.view().into_iter().map(|l| (l.name, l.total, l.used)).collect();
        assert_eq!(view, [("bar".to_owned(), 1, 1), ("foo".to_owned(), 4, 4)]);
    }

    #[test]
    fn an_attempt_that_was_given_up_takes_nothing_with_it() {
        let mut account = account("foo:1");
        assert!(account.reserve(JobId(1), 1, &licenses("foo")));
        assert!(account.release(JobId(1), Some(1)));
        assert!(account.reserve(JobId(1), 2, &licenses("foo")));
        assert!(!account.release(JobId(1), Some(1)));
        assert!(account.reserve(JobId(1), 2, &licenses("foo")), "said again");
        assert!(account.release(JobId(1), None));
        assert!(!account.release(JobId(1), None));
    }

    #[test]
    fn what_is_taken_away_under_a_job_is_not_given_again() {
        let mut account = account("foo:4");
        account.restore(JobId(1), licenses("foo:3"));
        account.configure(&licenses("foo:2"), &Arc::default());
        assert!(!account.reserve(JobId(2), 1, &licenses("foo")));
        assert!(account.release(JobId(1), None));
        assert!(account.reserve(JobId(2), 1, &licenses("foo:2")));
    }

    #[test]
    fn licenses_of_servers_are_those_that_accounting_says() {
        let foobar = |last_consumed| RemoteLicense {
            name: "foobar@slurmdb".to_owned(),
            total: 80,
            others: 20,
            last_consumed,
            changed: Timestamp(5),
        };
        let mut account = account("foo:4");
        account.set_remote(vec![foobar(30), RemoteLicense { name: "foo".to_owned(), ..foobar(0) }]);
        let shown = |account: &LicenseAccount| {
            let view = account.view();
            let one = view.iter().find(|one| one.name == "foobar@slurmdb")?;
            Some((one.total, one.used, one.remote.map(|remote| remote.last_deficit)))
        };
        assert_eq!(account.totals()["foo"], 4, "that of the configuration counts");
        assert_eq!((shown(&account), account.usable()["foobar@slurmdb"]), (Some((80, 0, Some(10))), 70));
        assert!(!account.reserve(JobId(1), 1, &licenses("foobar@slurmdb:71")));
        assert!(account.reserve(JobId(1), 1, &licenses("foobar@slurmdb:70")));
        // It says again what it said, with something else that changed; and then that the job's are among those in use.
        account.set_remote(vec![foobar(30)]);
        assert_eq!(shown(&account), Some((80, 70, Some(10))));
        account.configure(&licenses("foo:5"), &Arc::default());
        assert_eq!((shown(&account), account.totals()["foo"]), (Some((80, 70, Some(10))), 5));
        // One that the configuration has for a while is as configured, and the server's again afterwards.
        account.configure(&licenses("foobar@slurmdb:3"), &Arc::default());
        assert_eq!((shown(&account), account.usable()["foobar@slurmdb"]), (Some((3, 70, None)), 3));
        account.configure(&licenses("foo:5"), &Arc::default());
        assert_eq!(shown(&account), Some((80, 70, Some(10))));
        account.set_remote(vec![foobar(85)]);
        assert_eq!(shown(&account), Some((80, 70, Some(0))));
        assert!(account.reserve(JobId(2), 1, &licenses("foobar@slurmdb:10")));
        account.set_remote(Vec::new());
        assert_eq!(shown(&account), None);
        assert!(account.release(JobId(1), None) && !account.reserve(JobId(3), 1, &licenses("foobar@slurmdb")));
    }

    proptest! {
        #[test]
        fn never_more_than_there_are(turns in prop::collection::vec((1u32..6, 1u64..3, 1u32..4, any::<bool>()), 1..60)) {
            let mut account = account("foo:4");
            for (job, attempt, count, give) in turns {
                if give {
                    account.release(JobId(job), (count > 1).then_some(attempt));
                } else {
                    account.reserve(JobId(job), attempt, &licenses(&format!("foo:{count}")));
                }
                prop_assert!(account.view()[0].used <= 4);
            }
        }
    }
}
