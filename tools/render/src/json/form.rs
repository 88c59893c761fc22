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

    /// A document of `sacct` whose jobs are written one by one. `document` has none of them yet.
    pub fn of_accounting(self, document: Value) -> io::Result<Listed> {
        Listed::of(self, "jobs", document)
    }

    /// A job of such a document as text.
    pub fn accounting_job(self, mut job: Value) -> io::Result<Vec<u8>> {
        // Those of accounting are others than those of the controller.
        if self.version == Version::V44
            && let Value::Object(job) = &mut job
        {
            accounting_job(job);
        }
        self.item(&job)
    }

    /// An item of a list of a document, as it stands there.
    fn item(self, item: &Value) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        if self.yaml {
            text.push(b'-');
            yaml(&mut text, item, 2, false)?;
            return Ok(text);
        }
        let alone = serde_json::to_string_pretty(item)?;
        // Texts in it have no newlines as such.
        text.extend_from_slice(alone.replace('\n', "\n    ").as_bytes());
        Ok(text)
    }

    fn write_as_is(self, out: &mut dyn Write, document: &Value) -> io::Result<()> {
        if self.yaml { write_yaml(out, document) } else { super::write(out, document) }
    }
}

/// A document whose list is too long to be held: its items are written as they come, the same bytes as of the whole document.
#[derive(Debug)]
pub struct Listed {
    /// Before the first item, and between two.
    before: Vec<u8>,
    between: &'static [u8],
    behind: Vec<u8>,
    /// Without items.
    empty: Vec<u8>,
    has_items: bool,
}

impl Listed {
    /// What stands around that list of the document, which is empty there.
    fn of(form: Form, list: &str, mut document: Value) -> io::Result<Self> {
        /// No other text of a document is that.
        const ITEM: &str = "the items of the list";
        let text = |document: &Value| {
            let mut text = Vec::new();
            form.write_as_is(&mut text, document).map(|()| text)
        };
        let empty = text(&document)?;
        let item = Value::from(ITEM);
        let stands = form.item(&item)?;
        document[list] = Value::Array(vec![item]);
        let around = text(&document)?;
        // The list comes before all that is not the program's own.
        let at = around.windows(stands.len()).position(|part| part == stands);
        let at = at.ok_or_else(|| io::Error::other("a document without its list"))?;
        let between: &[u8] = if form.yaml { b"" } else { b",\n    " };
        let (before, behind) = (around[..at].to_vec(), around[at + stands.len()..].to_vec());
        Ok(Self { before, between, behind, empty, has_items: false })
    }

    /// Writes the next item.
    pub fn write(&mut self, out: &mut dyn Write, item: &[u8]) -> io::Result<()> {
        out.write_all(if self.has_items { self.between } else { &self.before })?;
        self.has_items = true;
        out.write_all(item)
    }

    /// Writes what stands behind the last item.
    pub fn end(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(if self.has_items { &self.behind } else { &self.empty })
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
    fn a_document_whose_items_come_one_by_one_has_the_bytes_of_the_whole() {
        let item = |n: u32| json!({"name": format!("job\n{n}"), "list": [n, {"deep": [{}]}], "none": [], "o": {}});
        let document = |items: Vec<Value>| json!({"errors": [], "jobs": items, "meta": {"command": ["sacct", "x"]}});
        for form in [false, true].map(|yaml| Form { yaml, ..Form::default() }) {
            for count in 0..4 {
                let items: Vec<Value> = (0..count).map(item).collect();
                let (mut whole, mut written) = (Vec::new(), Vec::new());
                form.write_as_is(&mut whole, &document(items.clone())).unwrap();
                let mut listed = Listed::of(form, "jobs", document(Vec::new())).unwrap();
                items.iter().for_each(|job| listed.write(&mut written, &form.item(job).unwrap()).unwrap());
                listed.end(&mut written).unwrap();
                assert_eq!(String::from_utf8(written).unwrap(), String::from_utf8(whole).unwrap());
            }
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
