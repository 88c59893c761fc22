//! The promises of `docs/runtime.md`, one test each, named after the rule.
//!
//! Nothing here sleeps to synchronise: time is tokio's paused clock, and everything else is waited for by name. With
//! the clock paused, a wait for something that will never come fails at once instead of hanging.
#![allow(clippy::unwrap_used)]

#[path = "promises/asking.rs"]
mod asking;
#[path = "promises/boards.rs"]
mod boards;
#[path = "promises/futures.rs"]
mod futures;
#[path = "promises/names.rs"]
mod names;
#[path = "promises/puppet.rs"]
mod puppet;
#[path = "promises/requests.rs"]
mod requests;
#[path = "promises/sending.rs"]
mod sending;
#[path = "promises/stopping.rs"]
mod stopping;
#[path = "promises/supervision.rs"]
mod supervision;
#[path = "promises/timers.rs"]
mod timers;
#[path = "promises/traces.rs"]
mod traces;
#[path = "promises/turns.rs"]
mod turns;

/// The page and the tests name each other completely.
#[test]
fn every_promise_names_its_test_and_every_test_is_named() {
    let page = include_str!("../../docs/runtime.md");
    let mut promised: Vec<String> = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let Ok(number) = cells[1].parse::<usize>() else { continue };
        assert_eq!(number, promised.len() + 1, "promises are numbered through: {row}");
        promised.push(cells[cells.len() - 2].trim_matches('`').to_owned());
    }
    let mut tested: Vec<String> = Vec::new();
    for (module, source) in [
        ("asking", include_str!("promises/asking.rs")),
        ("boards", include_str!("promises/boards.rs")),
        ("futures", include_str!("promises/futures.rs")),
        ("names", include_str!("promises/names.rs")),
        ("requests", include_str!("promises/requests.rs")),
        ("sending", include_str!("promises/sending.rs")),
        ("stopping", include_str!("promises/stopping.rs")),
        ("supervision", include_str!("promises/supervision.rs")),
        ("timers", include_str!("promises/timers.rs")),
        ("traces", include_str!("promises/traces.rs")),
        ("turns", include_str!("promises/turns.rs")),
    ] {
        let mut lines = source.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                let name = lines.next().unwrap().trim_start_matches("async ").trim_start_matches("fn ");
                tested.push(format!("{module}::{}", name.split('(').next().unwrap()));
            }
        }
    }
    promised.sort();
    tested.sort();
    assert_eq!(promised, tested);
}
