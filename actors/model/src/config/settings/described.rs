//! What there is to say of every key of `slurm.conf`: for docs/settings.md, the man page and `garrick help`.

use super::{
    config::Config,
    global::GLOBAL,
    kinds::NULL,
    node::{NODE, Written},
    partition::{PARTITION, PartitionConfig},
    row::{Class, Row, Show},
};

/// A key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedKey {
    /// The usual spelling.
    pub name: &'static str,
    /// What becomes of it.
    pub class: Class,
    /// What holds where it is not set, with its unit; empty: nothing.
    pub unset: String,
    /// What it does; empty where it does nothing.
    pub what: &'static str,
}

/// The lines of the file that keys are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedLines {
    /// The key that such a line begins with; `None`: each key has a line of its own.
    pub begins_with: Option<&'static str>,
    /// Keys, by name.
    pub keys: Vec<DescribedKey>,
}

/// Every key.
pub fn described() -> [DescribedLines; 3] {
    [
        DescribedLines { begins_with: None, keys: keys(GLOBAL, &Config::default()) },
        DescribedLines { begins_with: Some("PartitionName"), keys: keys(PARTITION, &PartitionConfig::default()) },
        DescribedLines { begins_with: Some("NodeName"), keys: keys(NODE, &Written::default()) },
    ]
}

fn keys<S>(table: &'static [Row<S>], defaults: &S) -> Vec<DescribedKey> {
    let key =
        |row: &Row<S>| DescribedKey { name: row.name, class: row.class, unset: unset(row, defaults), what: row.what };
    let mut keys: Vec<DescribedKey> = table.iter().map(key).collect();
    keys.sort_by_key(|key| key.name.to_ascii_lowercase());
    keys
}

/// The default, with its unit where it has one.
fn unset<S>(row: &Row<S>, defaults: &S) -> String {
    let shown = match row.show {
        Show::Value(shown) => Some(shown(defaults)),
        _ => None,
    };
    let shown = shown.filter(|shown| row.default.is_empty() || shown.starts_with(&format!("{} ", row.default)));
    let shown = shown.unwrap_or_else(|| row.default.to_owned());
    let nothing = matches!(shown.as_str(), "" | NULL | "0") && row.default != "0" || row.what.contains("unless set");
    if nothing { String::new() } else { shown }
}
