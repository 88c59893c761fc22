//! Clusters.

use super::{
    Affected, ChangeRefusal,
    associations::{lower_list, prepared_edit},
    edit::{AssocEdit, ClusterEdit, ListEdit},
    fresh,
    work::{Work, lower, new_names, text},
};
use garrick_model::entities::{ROOT, association::AssocId, names::AdminLevel};

impl Work<'_> {
    pub fn add_clusters(
        &mut self,
        names: &[String],
        cluster: &ClusterEdit,
        edit: &AssocEdit,
    ) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Administrator)?;
        let mut edit = prepared_edit(edit);
        if let Some(default) = self.rules.default_qos.as_ref().filter(|_| edit.qos == ListEdit::Keep) {
            edit.qos = ListEdit::Set([default.to_lowercase()].into());
        }
        self.check_edit(&edit)?;
        let names = new_names(names)?;
        let is_new = |name: &&String| self.entities.clusters.get(*name).is_none_or(|cluster| cluster.deleted);
        let new: Vec<String> = names.iter().filter(is_new).cloned().collect();
        if new.is_empty() {
            let first = names.into_iter().next();
            return Err(first.map_or(ChangeRefusal::NothingAdded { missing: vec![] }, ChangeRefusal::ClusterExists));
        }
        for name in new {
            fresh::add_cluster(self.entities, &name, self.now);
            if self.is_user(ROOT) {
                fresh::add_root_user(self.entities, &name, self.now);
            }
            self.set_cluster(&name, cluster)?;
            let root = self.roots(std::slice::from_ref(&name));
            self.set_values(&root, &edit)?;
            self.log("Add Clusters", name.clone(), String::new(), vec![name.clone()]);
            self.tell(Affected::Cluster(name));
        }
        Ok(())
    }

    pub fn modify_clusters(
        &mut self,
        names: &[String],
        cluster: &ClusterEdit,
        edit: &AssocEdit,
    ) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Administrator)?;
        let edit = prepared_edit(edit);
        self.check_edit(&edit)?;
        let names = self.living_clusters(names);
        if names.is_empty() {
            return Err(ChangeRefusal::NothingModified);
        }
        if *cluster != ClusterEdit::default() {
            for name in &names {
                self.set_cluster(name, cluster)?;
                self.log("Modify Clusters", format!("name='{name}'"), String::new(), vec![name.clone()]);
                self.tell(Affected::Cluster(name.clone()));
            }
        }
        if edit != AssocEdit::default() {
            let roots = self.roots(&names);
            let mut changed = self.set_values(&roots, &edit)?;
            changed.extend(&roots);
            self.log_associations("Modify Associations", &roots, "");
            self.tell_changed(&roots, &changed);
        }
        Ok(())
    }

    pub fn delete_clusters(&mut self, names: &[String]) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Administrator)?;
        let named = if names.is_empty() { Vec::new() } else { self.living_clusters(names) };
        if named.is_empty() {
            return Err(ChangeRefusal::NothingDeleted);
        }
        for name in named {
            let gone: Vec<AssocId> = self.entities.living(&name).map(|a| a.id).collect();
            self.remove_associations(&gone);
            for key in self.entities.wckeys.values_mut().filter(|key| key.cluster == name) {
                (key.deleted, key.is_default) = (true, false);
            }
            for resource in self.entities.resources.values_mut() {
                resource.allowed.remove(&name);
            }
            self.leave(&name);
            if let Some(cluster) = self.entities.clusters.get_mut(&name) {
                cluster.deleted = true;
            }
            self.log("Remove Clusters", format!("name='{name}'"), String::new(), vec![name.clone()]);
            self.tell(Affected::Cluster(name));
        }
        Ok(())
    }

    /// Those that there are of the names, all if none is named.
    fn living_clusters(&self, names: &[String]) -> Vec<String> {
        let names = lower(names);
        let living = self.entities.clusters.values().filter(|cluster| !cluster.deleted).map(|cluster| &cluster.name);
        living.filter(|name| names.is_empty() || names.contains(name)).cloned().collect()
    }

    fn roots(&self, clusters: &[String]) -> Vec<AssocId> {
        clusters.iter().filter_map(|name| Some(self.entities.account_association(name, ROOT)?.id)).collect()
    }

    fn set_cluster(&mut self, name: &str, edit: &ClusterEdit) -> Result<(), ChangeRefusal> {
        if let Some(federation) = &edit.federation {
            self.move_cluster(name, federation)?;
        }
        let Some(cluster) = self.entities.clusters.get_mut(name) else { return Ok(()) };
        if let Some(classification) = &edit.classification {
            text(classification)?;
            cluster.classification.clone_from(classification);
        }
        for feature in edit.features.named() {
            text(feature)?;
        }
        lower_list(&edit.features).on(&mut cluster.features);
        cluster.fed_state = edit.fed_state.unwrap_or(cluster.fed_state);
        Ok(())
    }
}
