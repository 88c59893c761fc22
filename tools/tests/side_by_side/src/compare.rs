//! What a case showed on a side as one text, and how two such texts differ.

use crate::{
    normal::normal,
    scenario::{Case, Json, Part, Step},
    side::{Observation, Observed},
};
use serde_json::{Map, Value};
use similar::TextDiff;
use std::fmt::Write as _;

/// All that is compared of a case, as one text.
///
/// # Errors
///
/// A mask of the case is no regular expression.
pub fn shown(case: &Case, mut seen: Observation) -> Result<String, regex::Error> {
    for (step, told) in case.steps.iter().zip(&mut seen.steps) {
        if let Some(json) = step.json {
            told.stdout = canonical(&told.stdout, json);
        }
        if step.sort {
            told.stdout = sorted(&told.stdout);
            told.stderr = sorted(&told.stderr);
        }
    }
    let seen = normal(case, seen)?;
    let mut text = String::new();
    for (step, told) in case.steps.iter().zip(&seen.steps) {
        // Writing to a text does not fail.
        let _ = writeln!(text, "$ {}", step.run);
        show(&mut text, case, step, told);
    }
    for (name, content) in &seen.written {
        let _ = writeln!(text, "file {name}");
        lines(&mut text, "  ", content);
    }
    if let Some(stuck) = &seen.stuck {
        let _ = writeln!(text, "stuck: {stuck}");
    }
    Ok(text)
}

fn show(text: &mut String, case: &Case, step: &Step, told: &Observed) {
    const ALL: [Part; 3] = [Part::Stdout, Part::Stderr, Part::Code];
    for part in step.compare.as_deref().or(case.compare.as_deref()).unwrap_or(&ALL) {
        match part {
            Part::Stdout => lines(text, "out: ", &told.stdout),
            Part::Stderr => lines(text, "err: ", &told.stderr),
            Part::Code => {
                let _ = writeln!(text, "code: {}", told.code);
            }
        }
    }
}

fn lines(text: &mut String, before: &str, content: &str) {
    for line in content.split_inclusive('\n') {
        let whole = line.strip_suffix('\n');
        let _ =
            writeln!(text, "{before}{}{}", whole.unwrap_or(line), if whole.is_none() { "<no newline>" } else { "" });
    }
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines.sort_unstable();
    lines.concat()
}

/// JSON with sorted names, one value a line; or the types in their place. Other text is left as it is.
fn canonical(text: &str, json: Json) -> String {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    let value = if json == Json::Shape { shape(&value) } else { value };
    format!("{value:#}\n")
}

/// A value's names and types. A list has one element, which has the names of all.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(all) => Value::Array(all.iter().map(shape).reduce(merged).into_iter().collect()),
        Value::Object(all) => Value::Object(all.iter().map(|(name, value)| (name.clone(), shape(value))).collect()),
    }
}

/// The names of both shapes. Of two types of one name, the first.
fn merged(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let mut all: Map<String, Value> = a;
            for (name, value) in b {
                let value = match all.remove(&name) {
                    Some(known) => merged(known, value),
                    None => value,
                };
                all.insert(name, value);
            }
            Value::Object(all)
        }
        (Value::Array(a), Value::Array(b)) => Value::Array(a.into_iter().chain(b).reduce(merged).into_iter().collect()),
        (a, _) => a,
    }
}

/// The lines that differ, with what is around them. `-` is ours, `+` the reference.
#[must_use]
pub fn difference(ours: &str, reference: &str) -> String {
    TextDiff::from_lines(ours, reference).unified_diff().context_radius(2).to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_has_the_names_of_all_elements() {
        let text = r#"{"a": [{"x": 1}, {"y": "s", "x": 2}], "b": null}"#;
        let shape: Value = serde_json::from_str(&canonical(text, Json::Shape)).unwrap();
        assert_eq!(shape, serde_json::json!({"a": [{"x": "number", "y": "string"}], "b": "null"}));
        assert_eq!(canonical("no JSON", Json::Shape), "no JSON");
    }

    #[test]
    fn a_missing_newline_differs() {
        let mut text = String::new();
        lines(&mut text, "out: ", "a\nb");
        assert_eq!(text, "out: a\nout: b<no newline>\n");
        assert!(difference("a\n", "b\n").contains("-a\n+b\n"));
    }
}
