//! `job_submit.lua`: the functions and the table `slurm` of Slurm's Lua interface.
//!
//! The script runs with all of Lua's libraries but `debug`, as the controller's user, and with limits on time and memory. C modules
//! cannot be loaded. It keeps its global variables from one call to the next.

mod constants;
mod tables;

use crate::{
    fields::{Desc, FIELDS, of_change},
    shown::{JOB, PartitionShown},
    value::BadValue,
};
use garrick_actors::submission::job_submit::SiteSight;
use garrick_model::{messages::command::JobChange, spec::JobSpec, view::JobView};
use mlua::{Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value as LuaValue, VmState};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

/// Longest that a script may run for one job.
pub const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Most memory that a script may have, in bytes.
pub const MEMORY_LIMIT: usize = 256 << 20;
/// The clock is read after so many instructions.
const INSTRUCTIONS: u32 = 10_000;

/// What is wrong with a script.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The script.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is no Lua.
    #[error("{0}")]
    Syntax(String),
    /// It does not define this function.
    #[error("{} has no function {name}", path.display())]
    NoFunction {
        /// The script.
        path: PathBuf,
        /// The function.
        name: &'static str,
    },
    /// It failed: file, line and cause.
    #[error("{0}")]
    Runtime(String),
    /// It wanted more memory than [`MEMORY_LIMIT`].
    #[error("{0}")]
    Memory(String),
}

impl ScriptError {
    fn of(error: mlua::Error) -> Self {
        match error {
            mlua::Error::SyntaxError { message, .. } => Self::Syntax(message),
            mlua::Error::MemoryError(text) => Self::Memory(text),
            mlua::Error::CallbackError { traceback, cause } => match Self::of((*cause).clone()) {
                // Where the script called what failed is in the traceback.
                Self::Runtime(text) if !text.contains(".lua:") => Self::Runtime(format!("{}{text}", place(&traceback))),
                other => other,
            },
            mlua::Error::RuntimeError(text) => {
                Self::Runtime(text.split("\nstack traceback:").next().unwrap_or_default().to_owned())
            }
            other => Self::Runtime(other.to_string()),
        }
    }

    /// Slurm's number for it, of [`garrick_model::slurm_error`].
    pub const fn number(&self) -> i32 {
        match self {
            Self::Read { .. } | Self::Syntax(_) => 7401,
            Self::NoFunction { .. } => 7402,
            Self::Runtime(_) => 7405,
            Self::Memory(_) => 7406,
        }
    }
}

/// `/etc/slurm/job_submit.lua:7: `, of the first line of a traceback that names a line of a script.
fn place(traceback: &str) -> String {
    let lines = traceback.lines().map(str::trim);
    let called = lines.filter_map(|line| line.split(": in ").next()).find(|place| place.contains(".lua:"));
    called.map_or_else(String::new, |place| format!("{place}: "))
}

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
    deadline: Cell<Option<Instant>>,
}

/// A script that is loaded.
pub struct Script {
    lua: Lua,
    path: PathBuf,
    call: Rc<Call>,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Script {
    /// Loads and runs a script, which has to define `slurm_job_submit` and `slurm_job_modify`. `cluster` is the cluster's name.
    pub fn load(path: &Path, cluster: &str) -> Result<Self, ScriptError> {
        let text = fs::read(path).map_err(|error| ScriptError::Read { path: path.to_owned(), error })?;
        let call = Rc::<Call>::default();
        let lua = prepared(&call, cluster).map_err(ScriptError::of)?;
        call.deadline.set(Some(Instant::now() + TIME_LIMIT));
        lua.load(text).set_name(format!("@{}", path.display())).exec().map_err(ScriptError::of)?;
        let script = Self { lua, path: path.to_owned(), call };
        script.function("slurm_job_submit")?;
        script.function("slurm_job_modify")?;
        Ok(script)
    }

    fn function(&self, name: &'static str) -> Result<Function, ScriptError> {
        let found: Option<Function> = self.lua.globals().get(name).ok();
        found.ok_or_else(|| ScriptError::NoFunction { path: self.path.clone(), name })
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
        let function = self.function(name)?;
        self.call.said.take();
        self.call.sight.replace(Some(Arc::clone(sight)));
        self.call.deadline.set(Some(Instant::now() + TIME_LIMIT));
        let returned = call(&self.lua, &function);
        self.call.sight.take();
        self.call.deadline.take();
        Ok((code(&returned.map_err(ScriptError::of)?), self.call.said.take()))
    }
}

/// What a function returned. Like Slurm's, what is no number accepts.
fn code(returned: &LuaValue) -> i32 {
    match returned {
        LuaValue::Integer(number) => i32::try_from(*number).unwrap_or(-1),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "beyond its range it is the nearest number, which refuses too"
        )]
        LuaValue::Number(number) => *number as i32,
        _ => 0,
    }
}

/// A Lua with the table `slurm` and with limits.
fn prepared(call: &Rc<Call>, cluster: &str) -> mlua::Result<Lua> {
    let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::default())?;
    lua.set_memory_limit(MEMORY_LIMIT)?;
    let clock = Rc::clone(call);
    lua.set_global_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS), move |_, _| {
        match clock.deadline.get() {
            Some(deadline) if Instant::now() > deadline => {
                Err(mlua::Error::runtime(format!("it ran longer than {} seconds", TIME_LIMIT.as_secs())))
            }
            _ => Ok(VmState::Continue),
        }
    })?;
    let string: Table = lua.globals().get("string")?;
    let format: Function = string.get("format")?;
    string.set("format", tables::formatting(&lua, format)?)?;
    lua.globals().set("slurm", tables::slurm(&lua, call, cluster)?)?;
    Ok(lua)
}

impl From<BadValue> for mlua::Error {
    fn from(error: BadValue) -> Self {
        Self::runtime(error.0)
    }
}

#[cfg(test)]
mod tests;
