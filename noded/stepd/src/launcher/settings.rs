//! Environments and settings under the numbers that `stepd` gave them, as long as the connection to it is open.

use super::environment::Environment;
use garrick_kernel::{rlimits::own_nice, spawn::cstring, users};
use garrick_model::{
    messages::{launch_failure::LaunchFailure, launcher::TaskSetting},
    spec::EnvEntry,
};
use std::{collections::HashMap, ffi::CString, rc::Rc};

/// What many tasks are started with.
#[derive(Debug, Default)]
pub(super) struct Setting {
    pub(super) environment: Rc<Environment>,
    pub(super) work_dir: CString,
    /// The same, for messages.
    pub(super) folder: String,
    pub(super) umask: u32,
    pub(super) nice: Option<i32>,
    pub(super) rlimits: Vec<(u32, Option<u64>)>,
}

/// What cannot be given to a program is kept as such: whoever names it is told.
type Kept<T> = HashMap<u32, Result<Rc<T>, LaunchFailure>>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Settings {
    environments: Kept<Environment>,
    settings: Kept<Setting>,
}

fn found<T>(kept: &Kept<T>, kind: &str, id: u32) -> Result<Rc<T>, LaunchFailure> {
    match kept.get(&id) {
        Some(found) => found.clone(),
        None => Err(LaunchFailure::new(kind, id.to_string(), libc::ENOENT)),
    }
}

impl Settings {
    pub(super) fn set_environment(&mut self, id: u32, over: Option<u32>, entries: &[EnvEntry]) {
        let base = over.map(|base| found(&self.environments, "environment", base)).transpose();
        let made = base.and_then(|base| {
            Environment::new(base.as_deref(), entries)
                .map(Rc::new)
                .map_err(|_| LaunchFailure::new("environment", "a variable", libc::EINVAL))
        });
        self.environments.insert(id, made);
    }

    pub(super) fn drop_environment(&mut self, id: u32) {
        self.environments.remove(&id);
    }

    pub(super) fn set(&mut self, id: u32, setting: TaskSetting) {
        let TaskSetting { environment, work_dir: folder, umask, nice, rlimits } = setting;
        let nice = nice.map(|nice| nice.beside(own_nice(), users::effective_uid() == 0));
        let made = found(&self.environments, "environment", environment).and_then(|environment| {
            let work_dir = cstring(&folder).map_err(|_| LaunchFailure::new("chdir", folder.clone(), libc::EINVAL))?;
            Ok(Rc::new(Setting { environment, work_dir, folder, umask, nice, rlimits }))
        });
        self.settings.insert(id, made);
    }

    pub(super) fn drop_setting(&mut self, id: u32) {
        self.settings.remove(&id);
    }

    pub(super) fn get(&self, id: u32) -> Result<Rc<Setting>, LaunchFailure> {
        found(&self.settings, "setting", id)
    }
}
