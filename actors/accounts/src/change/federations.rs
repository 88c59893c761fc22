//! Federations: which clusters belong together (sacctmgr(1), federations).

use super::{
    Affected, ChangeRefusal,
    edit::ListEdit,
    work::{Work, lower, new_names},
};
use garrick_model::entities::names::{AdminLevel, FedState, Federation};
use std::collections::BTreeSet;

impl Work<'_> {
    pub fn add_federations(&mut self, names: &[String], clusters: &[String]) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Administrator)?;
        let names = new_names(names)?;
        let new: Vec<String> = names.into_iter().filter(|name| !self.is_federation(name)).collect();
        if new.is_empty() {
            return Err(ChangeRefusal::NothingAdded { missing: Vec::new() });
        }
        // A cluster can only be in one of them.
        let clusters = if clusters.is_empty() { Vec::new() } else { self.clusters(clusters)? };
        for name in &new {
            let federation = Federation { name: name.clone(), created: self.now, deleted: false };
            self.entities.federations.insert(name.clone(), federation);
            for cluster in &clusters {
                self.not_elsewhere(cluster, name)?;
                self.join(cluster, name);
            }
            self.log("Add Federations", name.clone(), format!("clusters={}", clusters.join(",")), vec![name.clone()]);
            self.tell(Affected::Federation(name.clone()));
        }
        Ok(())
    }

    pub fn modify_federations(&mut self, names: &[String], clusters: &ListEdit<String>) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Administrator)?;
        let names = self.living_federations(names);
        if names.is_empty() {
            return Err(ChangeRefusal::NothingModified);
        }
        for name in names {
            let before: BTreeSet<String> =
                self.entities.in_federation(&name).into_iter().map(|cluster| cluster.name.clone()).collect();
            let mut after = before.clone();
            clusters.on(&mut after);
            let after: BTreeSet<String> = lower(&after.into_iter().collect::<Vec<_>>()).into_iter().collect();
            let come: Vec<String> = after.difference(&before).cloned().collect();
            if !come.is_empty() {
                self.clusters(&come)?;
            }
            for cluster in before.difference(&after) {
                self.leave(cluster);
            }
            for cluster in &come {
                self.not_elsewhere(cluster, &name)?;
                self.join(cluster, &name);
            }
            let all: Vec<String> = after.into_iter().collect();
            self.log(
                "Modify Federations",
                format!("name='{name}'"),
                format!("clusters={}", all.join(",")),
                vec![name.clone()],
            );
            self.tell(Affected::Federation(name));
        }
        Ok(())
    }

    pub fn delete_federations(&mut self, names: &[String]) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Administrator)?;
        let named = if names.is_empty() { Vec::new() } else { self.living_federations(names) };
        if named.is_empty() {
            return Err(ChangeRefusal::NothingDeleted);
        }
        for name in named {
            let members: Vec<String> =
                self.entities.in_federation(&name).into_iter().map(|cluster| cluster.name.clone()).collect();
            members.iter().for_each(|cluster| self.leave(cluster));
            if let Some(federation) = self.entities.federations.get_mut(&name) {
                federation.deleted = true;
            }
            self.log("Remove Federations", format!("name='{name}'"), String::new(), vec![name.clone()]);
            self.tell(Affected::Federation(name));
        }
        Ok(())
    }

    /// Puts a cluster into another federation; without a name into none.
    pub fn move_cluster(&mut self, cluster: &str, federation: &str) -> Result<(), ChangeRefusal> {
        let name = federation.to_lowercase();
        if name.is_empty() {
            self.leave(cluster);
            return Ok(());
        }
        if !self.is_federation(&name) {
            return Err(ChangeRefusal::NoFederation(name));
        }
        if self.entities.clusters.get(cluster).is_some_and(|known| known.federation != name) {
            self.join(cluster, &name);
        }
        Ok(())
    }

    fn is_federation(&self, name: &str) -> bool {
        self.entities.federations.get(name).is_some_and(|federation| !federation.deleted)
    }

    /// Those that there are of the names, all if none is named.
    fn living_federations(&self, names: &[String]) -> Vec<String> {
        let names = lower(names);
        let living = self.entities.federations.values().filter(|federation| !federation.deleted);
        living
            .map(|federation| &federation.name)
            .filter(|name| names.is_empty() || names.contains(name))
            .cloned()
            .collect()
    }

    /// A cluster can only be a member of one federation.
    fn not_elsewhere(&self, cluster: &str, federation: &str) -> Result<(), ChangeRefusal> {
        match self.entities.clusters.get(cluster).map(|known| known.federation.as_str()) {
            Some(of) if !of.is_empty() && of != federation => {
                Err(ChangeRefusal::InFederation { cluster: cluster.to_owned(), federation: of.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// The cluster gets the least number that is free.
    fn join(&mut self, cluster: &str, federation: &str) {
        let taken: BTreeSet<u32> =
            self.entities.in_federation(federation).into_iter().map(|cluster| cluster.fed_index).collect();
        let free = (1..).find(|index| !taken.contains(index)).unwrap_or(0);
        if let Some(cluster) = self.entities.clusters.get_mut(cluster) {
            federation.clone_into(&mut cluster.federation);
            (cluster.fed_index, cluster.fed_state) = (free, FedState::Active);
        }
    }

    /// It is in none any more.
    pub fn leave(&mut self, cluster: &str) {
        if let Some(cluster) = self.entities.clusters.get_mut(cluster) {
            cluster.federation.clear();
            (cluster.fed_index, cluster.fed_state) = (0, FedState::Active);
        }
    }
}
