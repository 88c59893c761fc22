//! The part of the table `slurm` that every script has: numbers by name, errors, the cluster's name, times and JSON.

use crate::{
    constants::NUMBERS,
    json,
    numbers::{INFINITE, NO_VAL},
};
use garrick_model::{slurm_error, time::parse_duration_secs};
use mlua::{Function, Lua, LuaString, MultiValue, Table, Value as LuaValue, Variadic};

/// The table.
pub fn table(lua: &Lua, cluster: &str) -> mlua::Result<Table> {
    let slurm = lua.create_table()?;
    for (name, number) in NUMBERS {
        slurm.set(*name, *number)?;
    }
    for error in slurm_error::all() {
        if let Some(name) = error.name {
            slurm.set(name, f64::from(error.number))?;
        }
    }
    slurm.set("CLUSTER_NAME", cluster)?;
    slurm.set("time_str2mins", lua.create_function(|_, text: String| Ok(minutes(&text)))?)?;
    slurm.set("to_json", lua.create_function(|_, value: LuaValue| json::text(&value))?)?;
    slurm.set("from_json", lua.create_function(|lua, text: LuaString| json::value(lua, &text.as_bytes()))?)?;
    Ok(slurm)
}

/// A format in which `%u`, which Lua has not had since 5.4, is `%d`: sites' scripts use it.
fn signed(format: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(format.len());
    let mut bytes = format.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        out.push(byte);
        if byte != b'%' {
            continue;
        }
        while let Some(flag) = bytes.next_if(|byte| b"-+ #0.123456789".contains(byte)) {
            out.push(flag);
        }
        if let Some(kind) = bytes.next() {
            out.push(if kind == b'u' { b'd' } else { kind });
        }
    }
    out
}

/// `string.format` with `%u`.
pub(crate) fn formatting(lua: &Lua, format: Function) -> mlua::Result<Function> {
    lua.create_function(move |lua, (text, rest): (LuaString, Variadic<LuaValue>)| {
        format.call::<LuaString>((lua.create_string(signed(&text.as_bytes()))?, rest))
    })
}

/// A function of a format and its values.
pub fn telling(lua: &Lua, tell: impl Fn(&str) + 'static) -> mlua::Result<Function> {
    lua.create_function(move |lua, values: MultiValue| {
        let format: Function = lua.globals().get::<Table>("string")?.get("format")?;
        let text: LuaString = format.call(values)?;
        tell(&text.to_string_lossy());
        Ok(())
    })
}

/// Minutes of a limit's text, rounded up; without limit, `INFINITE`.
fn minutes(text: &str) -> LuaValue {
    match parse_duration_secs(text) {
        Ok(Some(secs)) => LuaValue::Number(secs.div_ceil(60) as f64),
        Ok(None) => LuaValue::Number(f64::from(INFINITE)),
        Err(_) => LuaValue::Number(f64::from(NO_VAL)),
    }
}

#[cfg(test)]
mod tests {
    use super::signed;

    #[test]
    fn unsigned_numbers_are_written_as_signed_ones() {
        for (format, want) in [("%u", "%d"), ("%%u", "%%u"), ("a %-5u b", "a %-5d b"), ("%s%", "%s%"), ("100%", "100%")]
        {
            assert_eq!(signed(format.as_bytes()), want.as_bytes());
        }
    }
}
