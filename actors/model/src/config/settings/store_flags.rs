//! `AccountingStoreFlags` of slurm.conf(5): what accounting keeps besides what it always does.

use crate::config::syntax::{report::SettingError, values};

/// What is kept of jobs besides their rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFlags {
    /// `job_script`: batch scripts.
    pub script: bool,
    /// `job_env`: environments of batch jobs.
    pub environment: bool,
}

impl StoreFlags {
    /// Takes the words. Returns a note about those that have no effect.
    pub(super) fn set(&mut self, text: &str) -> Option<SettingError> {
        *self = Self::default();
        let mut unknown = Vec::new();
        for word in values::list_or_none(text) {
            match word.to_ascii_lowercase().as_str() {
                "job_script" => self.script = true,
                "job_env" => self.environment = true,
                // Always kept.
                "job_comment" | "job_extra" => {}
                _ => unknown.push(word),
            }
        }
        let without = || SettingError::new(format!("{} is not supported yet", unknown.join(",")));
        (!unknown.is_empty()).then(|| without().suggest("job_script, job_env, job_comment and job_extra are there"))
    }
}
