//! What `scontrol show config` prints: every key in Slurm's order, with defaults.

use super::settings::{
    config::Config,
    global::GLOBAL,
    kinds::NULL,
    row::{Row, Show, ShowFacts},
};

/// Is this the value that the key has anyhow? Then there is nothing to warn of.
pub(super) fn is_default(row: &Row<Config>, value: &str) -> bool {
    let nothing = value.is_empty() || value == NULL || value == "0" || value.eq_ignore_ascii_case("no");
    if nothing || value.eq_ignore_ascii_case("none") || value.to_ascii_lowercase().ends_with("/none") {
        return true;
    }
    // "16 sec" is what 16 is shown as.
    let number = row.default.split(' ').next().filter(|word| word.parse::<u64>().is_ok());
    value.eq_ignore_ascii_case(row.default) || number == Some(value)
}

/// All keys with their values.
pub fn show_config(config: &Config, facts: &ShowFacts<'_>) -> Vec<(String, String)> {
    let mut pairs = Vec::with_capacity(GLOBAL.len() + 8);
    for row in GLOBAL.iter().filter(|row| row.shown_if.is_none_or(|holds| holds(config))) {
        let value = match row.show {
            Show::Hidden => continue,
            Show::AsWritten => as_written(config, row),
            Show::Value(shown) => shown(config),
            Show::With(shown) => shown(config, facts),
            Show::Lines(shown) => {
                pairs.extend(shown(config));
                continue;
            }
        };
        pairs.push((row.name.to_owned(), value));
    }
    pairs
}

/// As written, with the unit that the default shows.
fn as_written(config: &Config, row: &Row<Config>) -> String {
    match config.other.get(row.name) {
        Some(value) if value.is_empty() => NULL.to_owned(),
        Some(value) => match row.default.split_once(' ') {
            Some((_, unit)) if value.bytes().all(|b| b.is_ascii_digit()) => format!("{value} {unit}"),
            _ => value.clone(),
        },
        None => row.default.to_owned(),
    }
}
