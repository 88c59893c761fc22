//! Licenses of servers, divided among clusters.

use super::{
    Affected, ChangeRefusal,
    edit::{ResourceEdit, ResourceFilter},
    work::{Work, lower, new_names, text},
};
use garrick_model::entities::names::{AdminLevel, Resource};

/// Where nothing is counted out of itself, clusters are allowed percentages.
const WHOLE: u64 = 100;

impl Work<'_> {
    pub fn add_resources(
        &mut self,
        names: &[String],
        server: &str,
        clusters: &[String],
        edit: &ResourceEdit,
    ) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Operator)?;
        let names = new_names(names)?;
        let clusters = if clusters.is_empty() { Vec::new() } else { self.clusters(clusters)? };
        new_names(&[server.to_owned()])?;
        let mut new = false;
        for name in &names {
            let id = match self.resource(name, server) {
                Some(id) => id,
                None => {
                    new = true;
                    self.add_resource(name, server, edit)?
                }
            };
            for cluster in &clusters {
                let Some(resource) = self.entities.resources.get_mut(&id) else { continue };
                if resource.allowed.contains_key(cluster) {
                    continue;
                }
                new = true;
                resource.allowed.insert(cluster.clone(), edit.allowed.unwrap_or(0));
                self.tell_allowed(cluster, name, server);
            }
            self.check_allowed(id)?;
        }
        if new { Ok(()) } else { Err(ChangeRefusal::NothingAdded { missing: Vec::new() }) }
    }

    fn resource(&self, name: &str, server: &str) -> Option<u32> {
        let same = |r: &&Resource| !r.deleted && r.name == name && r.server == server;
        self.entities.resources.values().find(same).map(|resource| resource.id)
    }

    fn add_resource(&mut self, name: &str, server: &str, edit: &ResourceEdit) -> Result<u32, ChangeRefusal> {
        let Some(count) = edit.count else { return Err(ChangeRefusal::NoCount(name.to_owned())) };
        let old = self.entities.resources.values().find(|r| r.deleted && r.name == name && r.server == server);
        let next = || self.entities.resources.keys().last().map_or(1, |last| last.saturating_add(1));
        let id = old.map_or_else(next, |old| old.id);
        let mut resource = Resource {
            id,
            name: name.to_owned(),
            server: server.to_owned(),
            description: name.to_owned(),
            count,
            absolute: self.rules.resources_absolute,
            changed: self.now,
            ..Resource::default()
        };
        set(&mut resource, edit)?;
        self.entities.resources.insert(id, resource);
        self.log("Add Resource", format!("{name}@{server}"), format!("count={count}"), vec![name.to_owned()]);
        self.tell(Affected::Resource { name: name.to_owned(), server: server.to_owned() });
        Ok(id)
    }

    fn tell_allowed(&mut self, cluster: &str, name: &str, server: &str) {
        let (cluster, name, server) = (cluster.to_owned(), name.to_owned(), server.to_owned());
        self.tell(Affected::Allowed { cluster, name, server });
    }

    /// Clusters together are not allowed more than there is.
    fn check_allowed(&self, id: u32) -> Result<(), ChangeRefusal> {
        let Some(resource) = self.entities.resources.get(&id) else { return Ok(()) };
        let together: u64 = resource.allowed.values().map(|allowed| u64::from(*allowed)).sum();
        let most = if resource.absolute { u64::from(resource.count) } else { WHOLE };
        if together > most { Err(ChangeRefusal::OverAllocated(resource.name.clone())) } else { Ok(()) }
    }

    fn meant_resources(&self, filter: &ResourceFilter) -> Vec<u32> {
        let (names, clusters) = (lower(&filter.names), lower(&filter.clusters));
        let is_meant = |r: &&Resource| {
            !r.deleted
                && (names.is_empty() || names.contains(&r.name))
                && (filter.servers.is_empty() || filter.servers.contains(&r.server))
                && (clusters.is_empty() || clusters.iter().any(|cluster| r.allowed.contains_key(cluster)))
        };
        self.entities.resources.values().filter(is_meant).map(|r| r.id).collect()
    }

    pub fn modify_resources(&mut self, filter: &ResourceFilter, edit: &ResourceEdit) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Operator)?;
        let clusters = lower(&filter.clusters);
        let meant = self.meant_resources(filter);
        if meant.is_empty() {
            return Err(ChangeRefusal::NothingModified);
        }
        for id in meant {
            let Some(resource) = self.entities.resources.get_mut(&id) else { continue };
            if clusters.is_empty() {
                set(resource, edit)?;
            }
            resource.changed = self.now;
            let (name, server) = (resource.name.clone(), resource.server.clone());
            let mut changed = Vec::new();
            for (cluster, allowed) in &mut resource.allowed {
                if clusters.is_empty() || clusters.contains(cluster) {
                    *allowed = edit.allowed.unwrap_or(*allowed);
                    changed.push(cluster.clone());
                }
            }
            self.check_allowed(id)?;
            self.log("Modify Resource", format!("{name}@{server}"), String::new(), vec![name.clone()]);
            if clusters.is_empty() {
                self.tell(Affected::Resource { name: name.clone(), server: server.clone() });
            }
            changed.iter().for_each(|cluster| self.tell_allowed(cluster, &name, &server));
        }
        Ok(())
    }

    pub fn delete_resources(&mut self, filter: &ResourceFilter) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Operator)?;
        let clusters = lower(&filter.clusters);
        let meant = if *filter == ResourceFilter::default() { Vec::new() } else { self.meant_resources(filter) };
        if meant.is_empty() {
            return Err(ChangeRefusal::NothingDeleted);
        }
        for id in meant {
            let Some(resource) = self.entities.resources.get_mut(&id) else { continue };
            let (name, server) = (resource.name.clone(), resource.server.clone());
            if clusters.is_empty() {
                resource.deleted = true;
                resource.allowed.clear();
                self.tell(Affected::Resource { name: name.clone(), server: server.clone() });
            } else {
                let gone: Vec<String> = resource.allowed.keys().filter(|c| clusters.contains(c)).cloned().collect();
                resource.allowed.retain(|cluster, _| !gone.contains(cluster));
                gone.iter().for_each(|cluster| self.tell_allowed(cluster, &name, &server));
            }
            self.log("Remove Resource", format!("{name}@{server}"), String::new(), vec![name]);
        }
        Ok(())
    }
}

fn set(resource: &mut Resource, edit: &ResourceEdit) -> Result<(), ChangeRefusal> {
    resource.count = edit.count.unwrap_or(resource.count);
    resource.last_consumed = edit.last_consumed.unwrap_or(resource.last_consumed);
    resource.absolute = edit.absolute.unwrap_or(resource.absolute);
    if let Some(description) = &edit.description {
        resource.description = text(description)?;
    }
    if let Some(server_type) = &edit.server_type {
        text(server_type)?;
        resource.server_type.clone_from(server_type);
    }
    Ok(())
}
