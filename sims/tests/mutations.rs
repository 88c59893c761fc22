//! The harness is tested by putting bugs in: each is noticed within a few seeds.
#![allow(clippy::unwrap_used)]

use garrick_sims::simulation::{Setup, mutation::Mutation, run_with};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that a bug may take to show.
const SEEDS: u64 = 12;

/// What noticed it from that seed on: a rule, or an assertion of a core.
fn noticed(mutation: Mutation, first: u64) -> Option<String> {
    (first..first + SEEDS).find_map(|seed| {
        let setup = Setup::of_seed(seed);
        match catch_unwind(AssertUnwindSafe(|| run_with(setup, mutation))) {
            Ok(Ok(_)) => None,
            Ok(Err(violation)) => Some(format!("seed {seed}: {}: {}", violation.rule, violation.what)),
            Err(_) => Some(format!("seed {seed}: an assertion of a core")),
        }
    })
}

fn is_noticed(mutation: Mutation) {
    is_noticed_from(1, mutation);
}

/// Where one is rare, the first seed is one that soon has it.
fn is_noticed_from(first: u64, mutation: Mutation) {
    let by = noticed(mutation, first);
    println!("{mutation:?}: {by:?}");
    assert!(by.is_some(), "{mutation:?} went unnoticed through {SEEDS} seeds");
}

#[test]
fn memory_that_is_not_counted_is_noticed() {
    is_noticed(Mutation::MemoryIsNotCounted);
}

#[test]
fn a_run_that_is_missing_and_not_declared_lost_is_noticed() {
    is_noticed(Mutation::MissingRunsAreNotDeclaredLost);
}

#[test]
fn a_silent_node_that_is_not_declared_down_is_noticed() {
    is_noticed(Mutation::SilentNodesAreNotDeclaredDown);
}

#[test]
fn runs_that_are_told_to_end_only_once_are_noticed() {
    is_noticed(Mutation::RunsAreToldToEndOnce);
}

#[test]
fn effects_that_do_not_wait_for_the_disk_are_noticed() {
    is_noticed(Mutation::EffectsDoNotWaitForTheDisk);
}

#[test]
fn a_task_that_a_torn_write_loses_is_noticed() {
    is_noticed_from(7, Mutation::TasksAreMarkedBeforeTheyExist);
}

#[test]
fn a_hold_that_is_forgotten_is_noticed() {
    is_noticed(Mutation::HoldsAreForgotten);
}
