//! Which association and which QOS a job goes by: that which it names, or the defaults.

use super::{Entities, NORMAL, association::Association, qos::QosRecord, used::Who};

impl Entities {
    /// The association of a job of that user: in the account that it asked for, or in his default one; for the partition, if there
    /// is one for it. `None`: nobody may run such a job, or there is no accounting.
    pub fn association_of_job(
        &self,
        cluster: &str,
        account: Option<&str>,
        user: &str,
        partition: Option<&str>,
    ) -> Option<&Association> {
        let user = user.to_ascii_lowercase();
        let asked = account.map(str::to_ascii_lowercase).filter(|account| !account.is_empty());
        let account = asked.as_deref().or_else(|| self.default_account(cluster, &user))?;
        self.association(cluster, account, &user, partition)
    }

    /// The QOS of a job: that which it asked for, the default of its association, or `normal`. `None`: there is no such QOS.
    pub fn qos_of_job(&self, asked: Option<&str>, association: Option<&Association>) -> Option<&QosRecord> {
        let living = |name: &str| self.qos.get(&name.to_ascii_lowercase()).filter(|qos| !qos.deleted);
        if let Some(asked) = asked.filter(|asked| !asked.is_empty()) {
            return living(asked);
        }
        let default = association.and_then(|own| self.effective(own.id).default_qos);
        living(default.as_deref().unwrap_or(NORMAL))
    }
}

impl Association {
    /// Under which names its usage is counted; `None`: it is that of an account, whose usage is that of its users.
    pub fn who(&self) -> Option<Who> {
        let user = self.user.clone()?;
        Some(Who { account: self.account.clone(), user, partition: self.partition.clone() })
    }
}
