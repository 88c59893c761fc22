//! The forms in which a document is written: JSON or YAML, in the shape of a version of Slurm's data parser. Documents are made in
//! the shape of v0.0.45; that of v0.0.44 has other properties in a few objects.

use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// A version of the data parser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// v0.0.44
    V44,
    /// v0.0.45
    #[default]
    V45,
}

impl Version {
    /// All that there are.
    pub const ALL: [Self; 2] = [Self::V45, Self::V44];

    /// As `meta` and `list` name it.
    pub const fn plugin(self) -> &'static str {
        match self {
            Self::V44 => "data_parser/v0.0.44",
            Self::V45 => "data_parser/v0.0.45",
        }
    }

    /// Reads the value of `--json` and `--yaml`, without or with `data_parser/` before it; flags after `+` change only what is
    /// lossless here. `None`: there is no such version.
    pub fn read(text: &str) -> Option<Self> {
        let version = text.split('+').next().unwrap_or_default();
        match version.strip_prefix("data_parser/").unwrap_or(version) {
            "" if !text.contains('+') => Some(Self::default()),
            "latest" | "v0.0.45" => Some(Self::V45),
            "v0.0.44" => Some(Self::V44),
            _ => None,
        }
    }
}

/// How a document is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// Shape.
    pub version: Version,
    /// YAML instead of JSON.
    pub yaml: bool,
}

impl Form {
    /// Writes a document, which has the shape of the newest version.
    pub fn write(self, out: &mut dyn Write, mut document: Value) -> io::Result<()> {
        if self.version == Version::V44 {
            as_v44(&mut document);
        }
        self.write_as_is(out, &document)
    }

    /// Writes a document of `sacct`, whose jobs are others than those of the controller.
    pub fn write_accounting(self, out: &mut dyn Write, mut document: Value) -> io::Result<()> {
        if self.version == Version::V44
            && let Some(Value::Array(jobs)) = document.get_mut("jobs")
        {
            jobs.iter_mut().filter_map(Value::as_object_mut).for_each(accounting_job);
        }
        self.write_as_is(out, &document)
    }

    fn write_as_is(self, out: &mut dyn Write, document: &Value) -> io::Result<()> {
        if self.yaml { write_yaml(out, document) } else { super::write(out, document) }
    }
}

/// Gives a document the shape of v0.0.44.
fn as_v44(document: &mut Value) {
    let Some(parts) = document.as_object_mut() else { return };
    for (name, part) in parts {
        let objects: Vec<&mut Map<String, Value>> = match part {
            Value::Array(list) => list.iter_mut().filter_map(Value::as_object_mut).collect(),
            Value::Object(one) => vec![one],
            _ => continue,
        };
        let change = match name.as_str() {
            "jobs" => job,
            "nodes" => node,
            "clusters" => |object: &mut Map<String, Value>| put(object, "select_plugin", json!("")),
            "partitions" => partition,
            "reservations" => |object: &mut Map<String, Value>| put(object, "watts", no_number()),
            "statistics" => |object: &mut Map<String, Value>| put(object, "parts_packed", json!(1)),
            "steps" => step,
            "sinfo" => |object: &mut Map<String, Value>| {
                if let Some(Value::Object(of_group)) = object.get_mut("partition") {
                    partition(of_group);
                }
                let user = object.remove("reason_set_by_user").unwrap_or_default();
                if let Some(Value::Object(reason)) = object.get_mut("reason") {
                    put(reason, "user", user);
                }
            },
            _ => continue,
        };
        objects.into_iter().for_each(change);
    }
}

fn put(object: &mut Map<String, Value>, name: &str, value: Value) {
    object.insert(name.to_owned(), value);
}

fn no_number() -> Value {
    json!({"set": false, "infinite": true, "number": 0})
}

/// Removes words that the older version does not have from a list.
fn without(object: &mut Map<String, Value>, list: &str, words: &[&str]) {
    if let Some(Value::Array(values)) = object.get_mut(list) {
        values.retain(|value| !words.iter().any(|word| value == word));
    }
}

fn job(object: &mut Map<String, Value>) {
    for name in ["container_type", "memory_update_delay", "memory_update_margin"] {
        object.remove(name);
    }
    without(object, "flags", &["JOB_IMPLICIT_MAX_NODES"]);
    put(object, "power", json!({"flags": []}));
    if let Some(Value::Object(resources)) = object.get_mut("job_resources") {
        select_type(resources);
    }
}

fn accounting_job(object: &mut Map<String, Value>) {
    for name in ["exclusive", "original_sluid", "oversubscribe", "sluid"] {
        object.remove(name);
    }
    if let Some(Value::Array(steps)) = object.get_mut("steps") {
        steps.iter_mut().filter_map(Value::as_object_mut).for_each(step);
    }
}

fn node(object: &mut Map<String, Value>) {
    object.remove("suspend_time");
    for list in ["state", "next_state_after_reboot"] {
        without(object, list, &["POWER_DOWN_ASAP", "POWER_DOWN_FORCE"]);
    }
    put(object, "external_sensors", json!({}));
    put(object, "power", json!({}));
    put(object, "tres_weighted", json!(0.0));
}

fn partition(object: &mut Map<String, Value>) {
    for name in ["flags", "preempt_mode"] {
        object.remove(name);
    }
    select_type(object);
    if let Some(Value::Object(cpus)) = object.get_mut("cpus") {
        put(cpus, "task_binding", json!(0));
    }
    if let Some(Value::Object(state)) = object.get_mut("partition") {
        state.retain(|name, _| name == "state");
    }
}

fn step(object: &mut Map<String, Value>) {
    object.remove("submit_line");
    put(object, "pid", json!(""));
}

/// The older version names each resource by itself.
fn select_type(object: &mut Map<String, Value>) {
    let Some(Value::Array(words)) = object.get_mut("select_type") else { return };
    let parts = |word: &Value| -> &'static [&'static str] {
        match word.as_str().unwrap_or_default() {
            "CR_CPU" => &["CPU"],
            "CR_CPU_MEMORY" => &["CPU", "MEMORY"],
            "CR_CORE" => &["CORE"],
            "CR_CORE_MEMORY" => &["CORE", "MEMORY"],
            "CR_SOCKET" => &["SOCKET"],
            "CR_SOCKET_MEMORY" => &["SOCKET", "MEMORY"],
            "CR_MEMORY" => &["MEMORY"],
            "CR_ONE_TASK_PER_CORE" => &["ONE_TASK_PER_CORE"],
            "CR_CORE_DEFAULT_DIST_BLOCK" => &["CORE_DEFAULT_DIST_BLOCK"],
            "CR_LLN" => &["LLN"],
            "CR_PACK_NODES" => &["PACK_NODES"],
            _ => &[],
        }
    };
    *words = words.iter().flat_map(parts).map(|word| json!(word)).collect();
}

/// Writes YAML as Slurm does, with a tag at every value. Long texts stay on one line.
fn write_yaml(out: &mut dyn Write, document: &Value) -> io::Result<()> {
    write!(out, "%YAML 1.1\n---")?;
    yaml(out, document, 0, false)?;
    out.write_all(b"...\n\n")
}

/// A value behind its key or dash. Lists of a mapping stand below their keys without a further indentation.
fn yaml(out: &mut dyn Write, value: &Value, indent: usize, in_map: bool) -> io::Result<()> {
    let blanks = " ".repeat(indent);
    match value {
        Value::Null => writeln!(out, " !!null null"),
        Value::Bool(truth) => writeln!(out, " !!bool {truth}"),
        Value::Number(number) if number.is_f64() => writeln!(out, " !!float {:.6}", number.as_f64().unwrap_or(0.0)),
        Value::Number(number) => writeln!(out, " !!int {number}"),
        Value::String(text) if text.is_empty() => writeln!(out, " !!str"),
        Value::String(text) => writeln!(out, " !!str {}", scalar(text)),
        Value::Array(list) if list.is_empty() => writeln!(out, " !!seq []"),
        Value::Object(object) if object.is_empty() => writeln!(out, " !!map {{}}"),
        Value::Array(list) => {
            writeln!(out, " !!seq")?;
            let (blanks, indent) = match in_map {
                true => (" ".repeat(indent.saturating_sub(2)), indent),
                false => (blanks, indent + 2),
            };
            list.iter().try_for_each(|item| {
                write!(out, "{blanks}-")?;
                yaml(out, item, indent, false)
            })
        }
        Value::Object(object) => {
            writeln!(out, " !!map")?;
            object.iter().try_for_each(|(key, item)| {
                write!(out, "{blanks}!!str {}:", scalar(key))?;
                yaml(out, item, indent + 2, true)
            })
        }
    }
}

/// A text as a scalar: plain where it cannot be taken for anything else.
fn scalar(text: &str) -> String {
    if text.chars().any(|c| c.is_control()) {
        return serde_json::to_string(text).unwrap_or_default();
    }
    let starts = text.starts_with(|c: char| "?:,[]{}#&*!|>'\"%@`".contains(c)) || text == "-" || text.starts_with("- ");
    let inside = text.contains(": ") || text.contains(" #") || text.contains(['[', ']', '{', '}']);
    let ends = text.ends_with(':') || text.starts_with(' ') || text.ends_with(' ');
    let marks = text.starts_with("---") || text.starts_with("...");
    if starts || inside || ends || marks { format!("'{}'", text.replace('\'', "''")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn versions_are_named_as_slurm_names_them() {
        for (text, version) in [
            ("", Some(Version::V45)),
            ("latest", Some(Version::V45)),
            ("v0.0.44", Some(Version::V44)),
            ("data_parser/v0.0.45+fast", Some(Version::V45)),
            ("+fast", None),
            ("v0.0.40", None),
            ("x", None),
        ] {
            assert_eq!(Version::read(text), version, "{text}");
        }
    }

    #[test]
    fn yaml_has_a_tag_at_every_value() {
        let document = json!({
            "jobs": [{"name": "a: b", "flags": ["X"], "none": [], "n": 5, "f": 0.5, "set": true, "empty": "", "o": {}}],
            "text": "it's\tso",
        });
        let mut out = Vec::new();
        write_yaml(&mut out, &document).unwrap();
        let expected = "%YAML 1.1\n--- !!map\n!!str jobs: !!seq\n- !!map\n  !!str empty: !!str\n  !!str f: !!float 0.500000\n  \
                        !!str flags: !!seq\n  - !!str X\n  !!str n: !!int 5\n  !!str name: !!str 'a: b'\n  !!str none: !!seq \
                        []\n  !!str o: !!map {}\n  !!str set: !!bool true\n!!str text: !!str \"it's\\tso\"\n...\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let quoted = ["- x", "#a", "a #b", "x:", "[a]", "'q", " a"];
        assert!(quoted.iter().all(|text| scalar(text).starts_with('\'')), "{quoted:?}");
        for plain in ["-x", "a,b*c%@", "123", "true", "N/A", "00:05:00"] {
            assert_eq!(scalar(plain), plain);
        }
    }

    #[test]
    fn the_older_shape_has_other_properties() {
        let mut document = json!({
            "jobs": [{"container_type": "", "flags": ["JOB_IMPLICIT_MAX_NODES", "DEPENDENT"],
                      "job_resources": {"select_type": ["CR_CORE_MEMORY"]}}],
            "partitions": [{"flags": [], "cpus": {"task_binding": []}, "partition": {"state": ["UP"], "exclusive": "NO"}}],
            "nodes": [{"suspend_time": {}, "state": ["IDLE", "POWER_DOWN_ASAP"]}],
        });
        as_v44(&mut document);
        let expected = json!({
            "jobs": [{"flags": ["DEPENDENT"], "power": {"flags": []}, "job_resources": {"select_type": ["CORE", "MEMORY"]}}],
            "partitions": [{"cpus": {"task_binding": 0}, "partition": {"state": ["UP"]}}],
            "nodes": [{"state": ["IDLE"], "external_sensors": {}, "power": {}, "tres_weighted": 0.0}],
        });
        assert_eq!(document, expected);
    }
}
