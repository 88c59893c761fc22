//! The harness is tested by putting bugs in: each is noticed within a few seeds.
#![allow(clippy::unwrap_used)]

use garrick_sims::simulation::{Setup, mutation::Mutation, run_with};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that a bug may take to show.
const SEEDS: u64 = 12;

/// What noticed it from that seed on, a rule or an assertion of a core; or this rule.
fn noticed(mutation: Mutation, first: u64, rule: Option<&str>) -> Option<String> {
    (first..first + SEEDS).find_map(|seed| {
        let setup = Setup::of_seed(seed);
        match catch_unwind(AssertUnwindSafe(|| run_with(setup, mutation))) {
            Ok(Ok(_)) => None,
            Ok(Err(violation)) => rule
                .is_none_or(|rule| rule == violation.rule)
                .then(|| format!("seed {seed}: {}: {}", violation.rule, violation.what)),
            Err(_) => rule.is_none().then(|| format!("seed {seed}: an assertion of a core")),
        }
    })
}

fn is_noticed(mutation: Mutation) {
    is_noticed_from(1, mutation, None);
}

/// By a rule that was made for it. Where it is rare, the first seed is one that soon has it.
fn is_noticed_by(rule: &str, first: u64, mutation: Mutation) {
    is_noticed_from(first, mutation, Some(rule));
}

fn is_noticed_from(first: u64, mutation: Mutation, rule: Option<&str>) {
    let by = noticed(mutation, first, rule);
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
    is_noticed_from(7, Mutation::TasksAreMarkedBeforeTheyExist, None);
}

#[test]
fn components_that_are_accepted_one_by_one_are_noticed() {
    let rule = "a_heterogeneous_job_is_accepted_whole_or_not_at_all";
    is_noticed_by(rule, 1, Mutation::ComponentsAreAcceptedOneByOne);
}

#[test]
fn components_whose_allocations_are_saved_apart_are_noticed() {
    is_noticed_by("components_of_a_heterogeneous_job_start_together", 1, Mutation::ComponentsAreSavedApart);
}

#[test]
fn components_that_outlive_their_leader_are_noticed() {
    is_noticed_by("components_end_and_are_queued_again_with_their_leader", 1, Mutation::LeadersEndAlone);
}

#[test]
fn a_shepherd_that_is_begun_again_is_noticed() {
    is_noticed_by("a_shepherd_is_begun_once", 1, Mutation::ShepherdsAreBegunAgain);
}

#[test]
fn a_hold_that_is_forgotten_is_noticed() {
    is_noticed(Mutation::HoldsAreForgotten);
}
