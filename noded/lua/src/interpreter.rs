//! A script that is loaded. It has all of Lua's libraries but `debug`, and limits on time and memory. C modules cannot be loaded.
//! It keeps its global variables from one call to the next.

use crate::{
    error::ScriptError,
    slurm::{self, formatting},
};
use mlua::{Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value as LuaValue, VmState};
use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

/// Most memory that a script may have, in bytes.
pub const MEMORY_LIMIT: usize = 256 << 20;
/// The clock is read after so many instructions.
const INSTRUCTIONS: u32 = 10_000;

/// A loaded script.
pub struct Interpreter {
    lua: Lua,
    path: PathBuf,
    limit: Duration,
    deadline: Rc<Cell<Option<Instant>>>,
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interpreter").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Interpreter {
    /// Loads and runs the file. Each call may take as long as `limit`; `cluster` is the cluster's name; `more` adds to the table
    /// `slurm`. Returns what the script itself returns, too: a number, where it returns one.
    pub fn load(
        path: &Path,
        limit: Duration,
        cluster: &str,
        more: impl FnOnce(&Lua, &Table) -> mlua::Result<()>,
    ) -> Result<(Self, i32), ScriptError> {
        let mut text = fs::read(path).map_err(|error| ScriptError::Read { path: path.to_owned(), error })?;
        // A first line with `#` names an interpreter, as for lua(1).
        if text.first() == Some(&b'#') {
            let line = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
            text.drain(..line);
        }
        let deadline = Rc::<Cell<Option<Instant>>>::default();
        let lua = prepared(&deadline, limit, cluster, more).map_err(ScriptError::of)?;
        let script = Self { lua, path: path.to_owned(), limit, deadline };
        let returned = script.timed(|| {
            script.lua.load(text).set_name(format!("@{}", path.display())).eval::<LuaValue>().map_err(ScriptError::of)
        })?;
        Ok((script, code(&returned)))
    }

    /// The script's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A function that the script defines.
    pub fn function(&self, name: &'static str) -> Result<Function, ScriptError> {
        let found: Option<Function> = self.lua.globals().get(name).ok();
        found.ok_or_else(|| ScriptError::NoFunction { path: self.path.clone(), name })
    }

    /// Calls a function. Returns the number that it returns; what is no number is 0, as Slurm has it.
    pub fn call(
        &self,
        name: &'static str,
        call: impl FnOnce(&Lua, &Function) -> mlua::Result<LuaValue>,
    ) -> Result<i32, ScriptError> {
        let function = self.function(name)?;
        let returned = self.timed(|| call(&self.lua, &function).map_err(ScriptError::of))?;
        Ok(code(&returned))
    }

    fn timed<T>(&self, run: impl FnOnce() -> T) -> T {
        self.deadline.set(Some(Instant::now() + self.limit));
        let outcome = run();
        self.deadline.take();
        outcome
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
fn prepared(
    deadline: &Rc<Cell<Option<Instant>>>,
    limit: Duration,
    cluster: &str,
    more: impl FnOnce(&Lua, &Table) -> mlua::Result<()>,
) -> mlua::Result<Lua> {
    let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::default())?;
    lua.set_memory_limit(MEMORY_LIMIT)?;
    let clock = Rc::clone(deadline);
    lua.set_global_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS), move |_, _| match clock.get() {
        Some(deadline) if Instant::now() > deadline => {
            Err(mlua::Error::runtime(format!("it ran longer than {} seconds", limit.as_secs())))
        }
        _ => Ok(VmState::Continue),
    })?;
    let string: Table = lua.globals().get("string")?;
    let format: Function = string.get("format")?;
    string.set("format", formatting(&lua, format)?)?;
    let slurm = slurm::table(&lua, cluster)?;
    more(&lua, &slurm)?;
    lua.globals().set("slurm", slurm)?;
    Ok(lua)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A clock that is over at once, in place of a script that runs for its whole time.
    #[test]
    fn a_script_has_only_so_much_time() {
        let path =
            std::env::temp_dir().join(format!("garrick-lua-{:x}.lua", garrick_model::ids::RequestId::random().0));
        fs::write(&path, "#!/usr/bin/lua\nfunction work() while true do end end\nreturn 3").unwrap();
        let (script, returned) = Interpreter::load(&path, Duration::from_secs(7), "site", |_, _| Ok(())).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(returned, 3);
        let function = script.function("work").unwrap();
        script.deadline.set(Some(Instant::now()));
        let error = ScriptError::of(function.call::<LuaValue>(()).unwrap_err());
        assert!(error.to_string().contains("it ran longer than 7 seconds"), "{error}");
    }
}
