//! The harness is tested by putting bugs in: each is noticed within a few seeds.
#![allow(clippy::unwrap_used)]

use garrick_simulator::{Setup, mutation::Mutation, run_with};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that a bug may take to show.
const SEEDS: u64 = 12;

/// Which rule noticed it in that world, and what it says; an assertion of a core counts as one.
fn noticed(mutation: Mutation, setup: Setup) -> Option<(&'static str, String)> {
    match catch_unwind(AssertUnwindSafe(|| run_with(setup, mutation))) {
        Ok(Ok(_)) => None,
        Ok(Err(violation)) => Some((violation.rule, violation.what)),
        Err(_) => Some(("an assertion of a core", String::new())),
    }
}

fn is_noticed(mutation: Mutation) {
    is_noticed_from(1, mutation);
}

/// Where one is rare, the first seed is one that soon has it.
fn is_noticed_from(first: u64, mutation: Mutation) {
    let by = (first..first + SEEDS).find_map(|seed| Some((seed, noticed(mutation, Setup::of_seed(seed))?)));
    println!("{mutation:?}: {by:?}");
    assert!(by.is_some(), "{mutation:?} went unnoticed through {SEEDS} seeds");
}

/// By the rule that is about it, in small worlds.
fn is_noticed_by(rule: &str, first: u64, mutation: Mutation) {
    let small = |seed| Setup { seed, jobs: 60, nodes: 8, events: 4_000 };
    let by = (first..first + SEEDS).find_map(|seed| {
        let by = (seed, noticed(mutation, small(seed))?);
        println!("{mutation:?}: {by:?}");
        Some(by).filter(|(_, (by, _))| *by == rule)
    });
    assert!(by.is_some(), "{rule} did not notice {mutation:?} through {SEEDS} seeds");
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
fn components_that_are_accepted_one_by_one_are_noticed() {
    let rule = "a_heterogeneous_job_is_accepted_whole_or_not_at_all";
    is_noticed_by(rule, 3, Mutation::ComponentsAreAcceptedOneByOne);
}

#[test]
fn leaders_that_are_allocated_alone_are_noticed() {
    is_noticed_by("components_of_a_heterogeneous_job_start_together", 1, Mutation::LeadersAreAllocatedAlone);
}

#[test]
fn components_that_outlive_their_leader_are_noticed() {
    is_noticed_by("components_end_and_are_queued_again_with_their_leader", 1, Mutation::LeadersEndAlone);
}

#[test]
fn a_shepherd_that_is_begun_again_is_noticed() {
    is_noticed_by("a_shepherd_is_begun_once", 9, Mutation::ShepherdsAreBegunAgain);
}

#[test]
fn a_hold_that_is_forgotten_is_noticed() {
    is_noticed(Mutation::HoldsAreForgotten);
}
