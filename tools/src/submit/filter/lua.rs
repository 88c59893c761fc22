//! `cli_filter.lua`: `slurm_cli_setup_defaults`, `slurm_cli_pre_submit` and `slurm_cli_post_submit` (cli_filter_plugins.html). As in
//! 26.05, a script that cannot be loaded ends the command, and a function that fails is told of and accepts.

use super::{Shared, text};
use crate::output::Console;
use garrick_lua::{error::ScriptError, interpreter::Interpreter, slurm::telling};
use garrick_model::ids::JobId;
use mlua::{Lua, LuaString, Table, Value as LuaValue};
use std::{cell::RefCell, collections::BTreeMap, path::Path, rc::Rc, time::Duration};

/// The script's name, beside `slurm.conf`.
pub const SCRIPT: &str = "cli_filter.lua";
/// Longest that a function may run. Nobody waits but the user: a script may ask about quotas.
const TIME_LIMIT: Duration = Duration::from_secs(60);

const SETUP: &str = "slurm_cli_setup_defaults";
const BEFORE: &str = "slurm_cli_pre_submit";
const AFTER: &str = "slurm_cli_post_submit";

/// What the functions of `slurm` need.
struct State {
    console: RefCell<Console>,
    looked: RefCell<Option<Shared>>,
    /// What the script keeps from one call for another.
    stored: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
}

/// A script that is loaded.
pub struct Script {
    interpreter: Interpreter,
    state: Rc<State>,
}

impl Script {
    /// Loads it. What is wrong with it is said.
    pub fn load(path: &Path, cluster: &str, console: &Console) -> Result<Self, ()> {
        let state = Rc::new(State {
            console: RefCell::new(console.clone()),
            looked: RefCell::default(),
            stored: RefCell::default(),
        });
        let more = |lua: &Lua, slurm: &Table| functions(lua, &state, slurm);
        let say = |text: String| console.error(format_args!("cli_filter/lua: {text}"));
        let usable = match Interpreter::load(path, TIME_LIMIT, cluster, more) {
            Ok((interpreter, 0)) => Some(interpreter).filter(|script| has_functions(script, &say)),
            Ok((_, code)) => {
                say(format!("{}: returned {code} on load", path.display()));
                None
            }
            Err(ScriptError::Read { path, error }) => {
                say(format!("Unable to stat {}: {error}", path.display()));
                None
            }
            Err(error) => {
                say(format!("{}: {error}", path.display()));
                None
            }
        };
        usable.map(|interpreter| Self { interpreter, state }).ok_or_else(|| {
            console.error("Couldn't load specified plugin name for cli_filter/lua: Plugin init() callback failed");
            console.error("cannot create cli_filter context for cli_filter/lua");
            console.fatal("failed to initialize cli_filter plugin");
        })
    }

    /// For defaults. Returns 0 where it accepts.
    pub fn setup(&self, looked: &Shared) -> i32 {
        self.called("setup_defaults", SETUP, Some(looked), |lua, function| {
            function.call((options(lua, looked)?, LuaValue::Nil))
        })
    }

    /// About the options of a component. Returns 0 where it accepts.
    pub fn before(&self, offset: u32, looked: &Shared) -> i32 {
        self.called("pre_submit", BEFORE, Some(looked), |lua, function| {
            function.call((options(lua, looked)?, f64::from(offset)))
        })
    }

    /// Of a component of a job that is there.
    pub fn after(&self, offset: u32, job: JobId, step: u32, console: &Console) {
        self.state.console.replace(console.clone());
        self.called("post_submit", AFTER, None, |_, function| {
            function.call((f64::from(offset), f64::from(job.0), f64::from(step)))
        });
    }

    fn called(
        &self,
        hook: &str,
        name: &'static str,
        looked: Option<&Shared>,
        call: impl FnOnce(&Lua, &mlua::Function) -> mlua::Result<LuaValue>,
    ) -> i32 {
        self.state.looked.replace(looked.cloned());
        let returned = self.interpreter.call(name, call);
        self.state.looked.take();
        // An option that cannot have its value is told of by whoever asked.
        let is_told = looked.is_some_and(|looked| looked.borrow().wrong.is_some());
        returned.unwrap_or_else(|error| {
            if !is_told {
                let path = self.interpreter.path().display();
                self.state.console.borrow().error(format_args!("cli_filter_p_{hook}/lua: {path}: {error}"));
            }
            0
        })
    }
}

fn has_functions(script: &Interpreter, say: &dyn Fn(String)) -> bool {
    let path = script.path().display();
    let missing: Vec<&str> = [SETUP, BEFORE, AFTER].into_iter().filter(|name| script.function(name).is_err()).collect();
    missing.iter().for_each(|name| say(format!("{path}: missing required function {name}")));
    if !missing.is_empty() {
        say(format!("{path}: required function(s) not present"));
    }
    missing.is_empty()
}

/// `options`: read and set by the long names of options.
fn options(lua: &Lua, looked: &Shared) -> mlua::Result<Table> {
    let meta = lua.create_table()?;
    let of = Rc::clone(looked);
    let get = move |lua: &Lua, (_, name): (Table, LuaString)| {
        let name = name.to_string_lossy();
        let looked = of.borrow();
        Ok(match name.as_str() {
            "type" => LuaValue::String(lua.create_string(looked.options.command().name())?),
            "argv" => LuaValue::Table(lua.create_sequence_from(looked.argv.iter().map(String::as_str))?),
            "spank" => LuaValue::Table(lua.create_table()?),
            name => match looked.options.value(name) {
                Some(value) => LuaValue::String(lua.create_string(value)?),
                None => LuaValue::Nil,
            },
        })
    };
    meta.set("__index", lua.create_function(get)?)?;
    let of = Rc::clone(looked);
    let set = move |_: &Lua, (_, name, value): (Table, LuaString, LuaValue)| {
        let value = match &value {
            LuaValue::String(text) => text.to_string_lossy(),
            LuaValue::Integer(number) => number.to_string(),
            LuaValue::Number(number) if number.fract() == 0.0 => format!("{number:.1}"),
            LuaValue::Number(number) => number.to_string(),
            other => {
                let kind = other.type_name();
                let text = format!("bad argument #-1 to 'newindex' (string expected, got {kind})");
                return Err(mlua::Error::runtime(text));
            }
        };
        of.borrow_mut().set(&name.to_string_lossy(), &value).map_err(mlua::Error::runtime)
    };
    meta.set("__newindex", lua.create_function(set)?)?;
    let table = lua.create_table()?;
    table.set_metatable(Some(meta))?;
    Ok(table)
}

/// What this script has in `slurm` besides what every script has.
fn functions(lua: &Lua, state: &Rc<State>, slurm: &Table) -> mlua::Result<()> {
    let say = |how: fn(&Console, &str)| {
        let state = Rc::clone(state);
        telling(lua, move |text| how(&state.console.borrow(), &format!("lua: {text}")))
    };
    for name in ["log_error", "error"] {
        slurm.set(name, say(|console, text| console.error(text))?)?;
    }
    // There is nobody else to talk to: what is for the user is as what is for the log.
    for name in ["log_info", "log_user"] {
        slurm.set(name, say(|console, text| console.info(text))?)?;
    }
    slurm.set("log_verbose", say(|console, text| console.verbose(text))?)?;
    slurm.set("log_debug", say(|console, text| console.debug(text))?)?;
    for name in ["log_debug2", "log_debug3", "log_debug4"] {
        slurm.set(name, say(|_, _| {})?)?;
    }
    let of = Rc::clone(state);
    let json_options = move |_: &Lua, _: LuaValue| {
        let looked = of.looked.borrow();
        Ok(looked.as_ref().map(|looked| text::options(&looked.borrow())))
    };
    slurm.set("json_cli_options", lua.create_function(json_options)?)?;
    slurm.set("json_env", lua.create_function(|_, ()| Ok(text::environment()))?)?;
    let of = Rc::clone(state);
    let store = move |_: &Lua, (key, value): (LuaString, LuaString)| {
        of.stored.borrow_mut().insert(key.as_bytes().to_vec(), value.as_bytes().to_vec());
        Ok(())
    };
    slurm.set("cli_store", lua.create_function(store)?)?;
    let of = Rc::clone(state);
    let retrieve = move |lua: &Lua, key: LuaString| {
        of.stored.borrow().get(&*key.as_bytes()).map(|value| lua.create_string(value)).transpose()
    };
    slurm.set("cli_retrieve", lua.create_function(retrieve)?)
}
