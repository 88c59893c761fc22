//! The tables that scripts get: a request whose fields are read and set, jobs, partitions, and `slurm`.

use super::Call;
use crate::{
    fields::{Desc, field},
    shown::{JOB, PARTITION, PartitionShown, RESERVATION, Row},
    value::{Value, bad},
};
use garrick_lua::slurm::telling;
use garrick_model::{ids::JobId, spec::EnvEntry};
use mlua::{Function, Lua, LuaString, MultiValue, Table, Value as LuaValue};
use serde_bytes::ByteBuf;
use std::{cell::RefCell, collections::BTreeSet, rc::Rc, sync::Arc};

/// The request in progress.
type Shared = Rc<RefCell<Desc>>;
/// Names of the fields that were set.
type WereSet = Rc<RefCell<BTreeSet<&'static str>>>;

fn to_lua(lua: &Lua, value: Value) -> mlua::Result<LuaValue> {
    Ok(match value {
        Value::Nil | Value::Environment(_) => LuaValue::Nil,
        Value::Number(number) => LuaValue::Number(number),
        Value::Flag(flag) => LuaValue::Boolean(flag),
        Value::Text(text) => LuaValue::String(lua.create_string(text)?),
        Value::Words(words) => {
            let table = lua.create_table()?;
            for (place, word) in words.into_iter().enumerate() {
                table.raw_set(place, lua.create_string(word)?)?;
            }
            LuaValue::Table(table)
        }
    })
}

fn of_lua(value: &LuaValue) -> mlua::Result<Value> {
    Ok(match value {
        LuaValue::Nil => Value::Nil,
        LuaValue::Boolean(flag) => Value::Flag(*flag),
        LuaValue::Integer(number) => Value::from_i64(*number),
        LuaValue::Number(number) => Value::Number(*number),
        LuaValue::String(text) => Value::Text(text.as_bytes().to_vec()),
        LuaValue::Table(table) => Value::Environment(variables(table)?),
        other => return Err(mlua::Error::runtime(format!("a field cannot be a {}", other.type_name()))),
    })
}

/// The variables in a table.
fn variables(table: &Table) -> mlua::Result<Vec<EnvEntry>> {
    let mut all = Vec::new();
    for pair in table.pairs::<LuaString, LuaString>() {
        let (name, value) = pair?;
        all.push(entry(&name.as_bytes(), &value.as_bytes()));
    }
    Ok(all)
}

fn entry(name: &[u8], value: &[u8]) -> EnvEntry {
    ByteBuf::from([name, b"=", value].concat())
}

/// What follows `NAME=` in an entry.
fn value_of<'e>(entry: &'e EnvEntry, name: &[u8]) -> Option<&'e [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}

/// `job_desc`: fields are read and set as they are asked for. Names that are no field are `nil`, and setting them is logged.
pub(super) fn job_desc(lua: &Lua, desc: &Shared, were_set: &WereSet) -> mlua::Result<Table> {
    let meta = lua.create_table()?;
    let of = Rc::clone(desc);
    let get = move |lua: &Lua, (_, name): (Table, String)| match field(&name) {
        Some(field) if field.name == "environment" => Ok(LuaValue::Table(environment(lua, &of)?)),
        Some(field) => {
            let value = (field.get)(&of.borrow());
            to_lua(lua, value)
        }
        None => Ok(LuaValue::Nil),
    };
    meta.set("__index", lua.create_function(get)?)?;
    let (of, were_set) = (Rc::clone(desc), Rc::clone(were_set));
    let set = move |_: &Lua, (_, name, value): (Table, String, LuaValue)| {
        // Its own environment, which it read before.
        if name == "environment" && value.as_table().is_some_and(|table| table.metatable().is_some()) {
            return Ok(());
        }
        let Some((field, set)) = field(&name).and_then(|field| Some((field, field.set?))) else {
            tracing::error!(field = name, "job_submit.field_cannot_be_set");
            return Ok(());
        };
        let value = of_lua(&value)?;
        set(&mut of.borrow_mut().spec, &value).map_err(|e| mlua::Error::runtime(format!("job_desc.{name}: {e}")))?;
        were_set.borrow_mut().insert(field.name);
        Ok(())
    };
    meta.set("__newindex", lua.create_function(set)?)?;
    let table = lua.create_table()?;
    table.set_metatable(Some(meta))?;
    Ok(table)
}

/// `job_desc.environment`: variables by name.
fn environment(lua: &Lua, desc: &Shared) -> mlua::Result<Table> {
    let meta = lua.create_table()?;
    let of = Rc::clone(desc);
    let get = move |lua: &Lua, (_, name): (Table, LuaString)| {
        let desc = of.borrow();
        let found = desc.spec.environment.iter().find_map(|entry| value_of(entry, &name.as_bytes()));
        found.map(|value| lua.create_string(value)).transpose()
    };
    meta.set("__index", lua.create_function(get)?)?;
    let of = Rc::clone(desc);
    let set = move |_: &Lua, (_, name, value): (Table, LuaString, LuaValue)| {
        let name = name.as_bytes();
        let new = match of_lua(&value)? {
            Value::Nil => None,
            Value::Text(text) => Some(entry(&name, &text)),
            Value::Number(number) => Some(entry(&name, number.to_string().as_bytes())),
            other => return Err(bad("text", &other).into()),
        };
        let mut desc = of.borrow_mut();
        let all = Arc::make_mut(&mut desc.spec.environment);
        all.retain(|entry| value_of(entry, &name).is_none());
        all.extend(new);
        Ok(())
    };
    meta.set("__newindex", lua.create_function(set)?)?;
    let of = Rc::clone(desc);
    let pairs = move |lua: &Lua, _: Table| {
        let table = lua.create_table()?;
        for entry in of.borrow().spec.environment.iter() {
            if let Some(at) = entry.iter().position(|byte| *byte == b'=') {
                table.raw_set(lua.create_string(&entry[..at])?, lua.create_string(&entry[at + 1..])?)?;
            }
        }
        Ok((lua.globals().get::<Function>("next")?, table, LuaValue::Nil))
    };
    meta.set("__pairs", lua.create_function(pairs)?)?;
    let table = lua.create_table()?;
    table.set_metatable(Some(meta))?;
    Ok(table)
}

/// A table of all fields that have a value.
pub(super) fn record<T>(lua: &Lua, rows: &[Row<T>], of: &T) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, get) in rows {
        table.raw_set(*name, to_lua(lua, get(of))?)?;
    }
    Ok(table)
}

/// `part_list`: partitions by name.
pub(super) fn partitions(lua: &Lua, partitions: &[PartitionShown]) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for partition in partitions {
        table.raw_set(partition.view.config.name.as_str(), record(lua, PARTITION, partition)?)?;
    }
    Ok(table)
}

/// `slurm`: what every script has, messages, and what the controller knows.
pub(super) fn slurm(lua: &Lua, call: &Rc<Call>, slurm: &Table) -> mlua::Result<()> {
    messages(lua, call, slurm)?;
    slurm.set("jobs", jobs(lua, call)?)?;
    slurm.set("reservations", reservations(lua, call)?)
}

fn messages(lua: &Lua, call: &Rc<Call>, slurm: &Table) -> mlua::Result<()> {
    slurm.set("log_error", telling(lua, |text| tracing::error!("job_submit: {text}"))?)?;
    slurm.set("error", telling(lua, |text| tracing::error!("job_submit: {text}"))?)?;
    slurm.set("log_info", telling(lua, |text| tracing::info!("job_submit: {text}"))?)?;
    slurm.set("log_verbose", telling(lua, |text| tracing::info!("job_submit: {text}"))?)?;
    for name in ["log_debug", "log_debug2", "log_debug3", "log_debug4"] {
        slurm.set(name, telling(lua, |text| tracing::debug!("job_submit: {text}"))?)?;
    }
    let to_user = |call: &Rc<Call>| {
        let call = Rc::clone(call);
        move |text: &str| call.said.borrow_mut().extend(text.lines().map(str::to_owned))
    };
    slurm.set("log_user", telling(lua, to_user(call))?)?;
    let tell = to_user(call);
    let plain = move |_: &Lua, text: LuaString| {
        tell(&text.to_string_lossy());
        Ok(())
    };
    slurm.set("user_msg", lua.create_function(plain)?)
}

/// A table whose entries are made when they are asked for: one by its key, or all of them by `pairs`.
fn lazy(
    lua: &Lua,
    one: impl Fn(&Lua, &str) -> mlua::Result<Option<Table>> + 'static,
    all: impl Fn(&Lua) -> mlua::Result<Vec<(String, Table)>> + 'static,
) -> mlua::Result<Table> {
    let meta = lua.create_table()?;
    let get = move |lua: &Lua, (_, key): (Table, LuaValue)| match key {
        LuaValue::String(key) => one(lua, &key.to_string_lossy()),
        LuaValue::Integer(key) => one(lua, &key.to_string()),
        LuaValue::Number(key) => one(lua, &key.to_string()),
        _ => Ok(None),
    };
    meta.set("__index", lua.create_function(get)?)?;
    let pairs = move |lua: &Lua, _: Table| {
        let mut entries = all(lua)?.into_iter();
        let next = lua.create_function_mut(move |_, _: MultiValue| Ok(entries.next().unzip()))?;
        Ok((next, LuaValue::Nil, LuaValue::Nil))
    };
    meta.set("__pairs", lua.create_function(pairs)?)?;
    let table = lua.create_table()?;
    table.set_metatable(Some(meta))?;
    Ok(table)
}

/// `slurm.jobs`: known jobs by id.
fn jobs(lua: &Lua, call: &Rc<Call>) -> mlua::Result<Table> {
    let (for_one, for_all) = (Rc::clone(call), Rc::clone(call));
    let one = move |lua: &Lua, key: &str| {
        let sight = for_one.sight.borrow();
        let job = key.parse().ok().and_then(|id| sight.as_ref()?.job(JobId(id)));
        job.map(|job| record(lua, JOB, &*job)).transpose()
    };
    let all = move |lua: &Lua| {
        let jobs = for_all.sight.borrow().as_ref().map(|sight| sight.jobs()).unwrap_or_default();
        jobs.iter().map(|job| Ok((job.id.0.to_string(), record(lua, JOB, &**job)?))).collect()
    };
    lazy(lua, one, all)
}

/// `slurm.reservations`: by name.
fn reservations(lua: &Lua, call: &Rc<Call>) -> mlua::Result<Table> {
    let (for_one, for_all) = (Rc::clone(call), Rc::clone(call));
    let listed = |call: &Call| call.sight.borrow().as_ref().map(|sight| sight.reservations()).unwrap_or_default();
    let one = move |lua: &Lua, key: &str| {
        let found = listed(&for_one).into_iter().find(|reservation| reservation.name == key);
        found.map(|reservation| record(lua, RESERVATION, &*reservation)).transpose()
    };
    let all = move |lua: &Lua| {
        let made = listed(&for_all).into_iter().map(|one| Ok((one.name.clone(), record(lua, RESERVATION, &*one)?)));
        made.collect()
    };
    lazy(lua, one, all)
}
