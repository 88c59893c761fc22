//! `slurm.to_json` and `slurm.from_json`, of 26.05. As there, a table whose keys are 1, 2, 3, ... is a list, and an empty one too.

use mlua::{Lua, Table, Value as LuaValue};
use serde_json::{Map, Value as Json};

/// Deepest nesting of tables: beyond it a table may hold itself.
const DEEPEST: usize = 64;

/// A value as JSON, in lines.
pub fn text(value: &LuaValue) -> mlua::Result<String> {
    serde_json::to_string_pretty(&json(value, 0)?).map_err(mlua::Error::external)
}

/// The value of a JSON text.
pub fn value(lua: &Lua, text: &[u8]) -> mlua::Result<LuaValue> {
    let parsed = serde_json::from_slice(text);
    lua_value(lua, parsed.map_err(|error| mlua::Error::runtime(format!("this is no JSON: {error}")))?)
}

fn json(value: &LuaValue, depth: usize) -> mlua::Result<Json> {
    Ok(match value {
        LuaValue::Nil => Json::Null,
        LuaValue::Boolean(flag) => Json::Bool(*flag),
        LuaValue::Integer(number) => (*number).into(),
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
        LuaValue::Number(number) if number.fract() == 0.0 && number.abs() < 9.0e15 => (*number as i64).into(),
        LuaValue::Number(number) => (*number).into(),
        LuaValue::String(text) => Json::String(text.to_string_lossy()),
        LuaValue::Table(_) if depth == DEEPEST => return Err(mlua::Error::runtime("tables are nested too deeply")),
        LuaValue::Table(table) => of_table(table, depth + 1)?,
        other => return Err(mlua::Error::runtime(format!("a {} cannot be JSON", other.type_name()))),
    })
}

fn of_table(table: &Table, depth: usize) -> mlua::Result<Json> {
    let entries: Vec<(LuaValue, LuaValue)> = table.pairs().collect::<mlua::Result<_>>()?;
    // A list has as many values as entries, whatever the order in which the entries come.
    let listed: Vec<LuaValue> = (1..=entries.len()).map(|at| table.raw_get(at)).collect::<mlua::Result<_>>()?;
    if !listed.iter().any(LuaValue::is_nil) {
        return listed.iter().map(|value| json(value, depth)).collect::<mlua::Result<Vec<_>>>().map(Json::Array);
    }
    let mut object = Map::new();
    for (key, value) in entries {
        let key = match key {
            LuaValue::Number(number) => number.to_string(),
            key => key.to_string()?,
        };
        object.insert(key, json(&value, depth)?);
    }
    Ok(Json::Object(object))
}

fn lua_value(lua: &Lua, json: Json) -> mlua::Result<LuaValue> {
    Ok(match json {
        Json::Null => LuaValue::Nil,
        Json::Bool(flag) => LuaValue::Boolean(flag),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => LuaValue::Integer(whole),
            None => LuaValue::Number(number.as_f64().unwrap_or(f64::INFINITY)),
        },
        Json::String(text) => LuaValue::String(lua.create_string(text)?),
        Json::Array(all) => {
            let table = lua.create_table()?;
            for (place, one) in all.into_iter().enumerate() {
                table.raw_set(place + 1, lua_value(lua, one)?)?;
            }
            LuaValue::Table(table)
        }
        Json::Object(all) => {
            let table = lua.create_table()?;
            for (key, one) in all {
                table.raw_set(key, lua_value(lua, one)?)?;
            }
            LuaValue::Table(table)
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn values_become_json_and_come_back() {
        let lua = Lua::new();
        let made: LuaValue = lua.load("return {a=1, b='x/y', c={1, 2.5}, d={}, e=true}").eval().unwrap();
        let parsed: Json = serde_json::from_str(&text(&made).unwrap()).unwrap();
        assert_eq!(parsed, serde_json::json!({"a": 1, "b": "x/y", "c": [1, 2.5], "d": [], "e": true}));
        let back = value(&lua, br#"{"a":[1,{"b":"c"}],"d":null}"#).unwrap();
        let table = back.as_table().unwrap();
        let list: Table = table.get("a").unwrap();
        assert_eq!(list.get::<Table>(2).unwrap().get::<String>("b").unwrap(), "c");
        assert!(table.get::<LuaValue>("d").unwrap().is_nil());
    }

    #[test]
    fn what_cannot_be_json_is_an_error() {
        let lua = Lua::new();
        let of = |code: &str| text(&lua.load(code).eval().unwrap()).unwrap_err().to_string();
        assert!(of("return print").contains("a function cannot be JSON"));
        assert!(of("local t = {}; t.t = t; return t").contains("nested too deeply"));
        assert!(value(&lua, b"{bad").unwrap_err().to_string().contains("this is no JSON"));
    }
}
