//! Options and environment as JSON in one line, as `slurm.json_cli_options` and `slurm.json_env` of 26.05 write them.

use super::Looked;
use serde_json::{Map, Value as Json};
use std::env;

/// Options that were given, and what is run.
pub fn options(looked: &Looked) -> String {
    let given = looked.options.all().map(|(name, value)| (name.to_owned(), value));
    let argv = looked.argv.iter().map(|word| Json::String(word.clone())).collect();
    object(given.map(|(name, value)| (name, Json::String(value))).chain([("argv".to_owned(), Json::Array(argv))]))
}

/// This process's environment.
pub fn environment() -> String {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    object(env::vars_os().map(|(name, value)| (text(name), Json::String(text(value)))))
}

/// The values of an environment or of options, by name.
pub fn map(text: &str) -> Map<String, Json> {
    serde_json::from_str(text).unwrap_or_default()
}

/// In the order given, with slashes as Slurm writes them.
fn object(entries: impl Iterator<Item = (String, Json)>) -> String {
    let entry = |(name, value): (String, Json)| format!("{}:{value}", Json::String(name));
    let all: Vec<String> = entries.map(entry).collect();
    format!("{{{}}}", all.join(",")).replace('/', "\\/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_order_and_slashes_are_escaped() {
        let entries = [("b", "x/\"y"), ("a", "")].map(|(name, value)| (name.to_owned(), Json::from(value)));
        assert_eq!(object(entries.into_iter()), r#"{"b":"x\/\"y","a":""}"#);
    }
}
