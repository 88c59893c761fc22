//! `job_submit.lua`: the functions and the table `slurm` of Slurm's Lua interface.
//!
//! The script runs as the controller's user.

mod tables;

use crate::{
    fields::{Desc, FIELDS, of_change},
    shown::{JOB, PartitionShown},
    value::BadValue,
};
use garrick_actors::submission::job_submit::SiteSight;
pub use garrick_lua::error::ScriptError;
use garrick_lua::interpreter::Interpreter;
use garrick_model::{messages::command::JobChange, spec::JobSpec, view::JobView};
use mlua::{Function, Lua, Table, Value as LuaValue};
use std::{cell::RefCell, collections::BTreeSet, path::Path, rc::Rc, sync::Arc, time::Duration};

/// Longest that a script may run for one job.
pub const TIME_LIMIT: Duration = Duration::from_secs(10);
/// What a call has come to.
#[derive(Debug, PartialEq)]
pub struct Called<T> {
    /// The request as the script wants it.
    pub request: T,
    /// What it returned; 0: it accepts.
    pub code: i32,
    /// What it says to the user, a line each.
    pub said: Vec<String>,
}

/// What the functions of `slurm` need of the call that is in progress.
#[derive(Default)]
struct Call {
    sight: RefCell<Option<Arc<dyn SiteSight>>>,
    said: RefCell<Vec<String>>,
}

/// A script that is loaded.
pub struct Script {
    interpreter: Interpreter,
    call: Rc<Call>,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script").field("interpreter", &self.interpreter).finish_non_exhaustive()
    }
}

impl Script {
    /// Loads and runs a script, which has to define `slurm_job_submit` and `slurm_job_modify`. `cluster` is the cluster's name.
    pub fn load(path: &Path, cluster: &str) -> Result<Self, ScriptError> {
        let call = Rc::<Call>::default();
        let more = |lua: &Lua, slurm: &Table| tables::slurm(lua, &call, slurm);
        let (interpreter, _) = Interpreter::load(path, TIME_LIMIT, cluster, more)?;
        interpreter.function("slurm_job_submit")?;
        interpreter.function("slurm_job_modify")?;
        Ok(Self { interpreter, call })
    }

    /// Calls `slurm_job_submit`.
    pub fn submit(
        &self,
        desc: Desc,
        partitions: &[PartitionShown],
        sight: &Arc<dyn SiteSight>,
    ) -> Result<Called<JobSpec>, ScriptError> {
        let uid = desc.uid;
        let (desc, set) = (Rc::new(RefCell::new(desc)), Rc::default());
        let (code, said) = self.called("slurm_job_submit", sight, |lua, function| {
            let of_job = tables::job_desc(lua, &desc, &set)?;
            function.call((of_job, tables::partitions(lua, partitions)?, f64::from(uid)))
        })?;
        let request = desc.borrow().spec.clone();
        Ok(Called { request, code, said })
    }

    /// Calls `slurm_job_modify` with a change of this job. What is set is taken over into the change.
    pub fn modify(
        &self,
        desc: Desc,
        (job, change): (&JobView, &JobChange),
        partitions: &[PartitionShown],
        sight: &Arc<dyn SiteSight>,
    ) -> Result<Called<JobChange>, ScriptError> {
        let uid = desc.uid;
        let desc = Desc { spec: of_change(change), is_change: true, ..desc };
        let (desc, set) = (Rc::new(RefCell::new(desc)), Rc::<RefCell<BTreeSet<&'static str>>>::default());
        let (code, said) = self.called("slurm_job_modify", sight, |lua, function| {
            let of_job = tables::job_desc(lua, &desc, &set)?;
            let record = tables::record(lua, JOB, job)?;
            function.call((of_job, record, tables::partitions(lua, partitions)?, f64::from(uid)))
        })?;
        let mut request = change.clone();
        let set = set.borrow();
        for take in FIELDS.iter().filter(|field| set.contains(field.name)).filter_map(|field| field.change) {
            take(&mut request, &desc.borrow().spec);
        }
        Ok(Called { request, code, said })
    }

    /// Calls a function. Returns its code, and what it says to the user.
    fn called(
        &self,
        name: &'static str,
        sight: &Arc<dyn SiteSight>,
        call: impl FnOnce(&Lua, &Function) -> mlua::Result<LuaValue>,
    ) -> Result<(i32, Vec<String>), ScriptError> {
        self.call.said.take();
        self.call.sight.replace(Some(Arc::clone(sight)));
        let code = self.interpreter.call(name, call);
        self.call.sight.take();
        Ok((code?, self.call.said.take()))
    }
}

impl From<BadValue> for mlua::Error {
    fn from(error: BadValue) -> Self {
        Self::runtime(error.0)
    }
}

#[cfg(test)]
mod tests;
