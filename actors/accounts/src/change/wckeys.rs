//! Workload characterization keys: of a user on a cluster.

use super::{
    Affected, ChangeRefusal,
    work::{Work, new_names},
};
use garrick_model::entities::names::{AdminLevel, WcKey};

impl Work<'_> {
    /// Keys of users on clusters. A user without a default gets the one that is asked for, else the last.
    pub fn add_wckeys(
        &mut self,
        users: &[String],
        clusters: &[String],
        keys: &[String],
        default: Option<&str>,
    ) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Operator)?;
        let keys = new_names(keys)?;
        let mut new = 0;
        for cluster in clusters {
            for user in users {
                for key in &keys {
                    new += usize::from(self.add_wckey(cluster, user, key));
                }
                let has = self.entities.wckeys.values().any(|k| is_of(k, cluster, user) && k.is_default);
                let last = keys.last().map(String::as_str).filter(|_| !has);
                if let Some(default) = default.or(last) {
                    self.set_default_wckey(cluster, user, &default.to_lowercase());
                }
            }
        }
        if new == 0 { Err(ChangeRefusal::NothingAdded { missing: Vec::new() }) } else { Ok(()) }
    }

    fn add_wckey(&mut self, cluster: &str, user: &str, name: &str) -> bool {
        if self.has_wckey(cluster, user, name) {
            return false;
        }
        let same = |key: &&WcKey| key.deleted && key.cluster == cluster && key.user == user && key.name == name;
        let old = self.entities.wckeys.values().find(same).map(|key| key.id);
        let id = old.unwrap_or_else(|| self.entities.wckeys.keys().last().map_or(1, |last| last.saturating_add(1)));
        let (cluster, name, user) = (cluster.to_owned(), name.to_owned(), user.to_owned());
        let key = WcKey {
            id,
            cluster: cluster.clone(),
            name: name.clone(),
            user: user.clone(),
            is_default: false,
            deleted: false,
        };
        self.entities.wckeys.insert(id, key);
        let info = format!("wckey_name='{name}', user='{user}'");
        self.log("Add WCKeys", format!("id_wckey={id}"), info, vec![cluster.clone(), user.clone()]);
        self.tell(Affected::WcKey { cluster, name, user });
        true
    }

    /// Has the user that key?
    pub fn has_wckey(&self, cluster: &str, user: &str, name: &str) -> bool {
        self.entities.wckeys.values().any(|key| is_of(key, cluster, user) && key.name == name)
    }

    /// Makes it the key of the user's jobs. Without effect if he does not have it.
    pub fn set_default_wckey(&mut self, cluster: &str, user: &str, name: &str) {
        if self.has_wckey(cluster, user, name) {
            for key in self.entities.wckeys.values_mut().filter(|key| is_of(key, cluster, user)) {
                key.is_default = key.name == name;
            }
        }
    }
}

fn is_of(key: &WcKey, cluster: &str, user: &str) -> bool {
    !key.deleted && key.cluster == cluster && key.user == user
}
