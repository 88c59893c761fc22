//! The harness is tested by putting bugs in: the rule that is about each notices it within a few worlds.

use garrick_simulator::{Setup, attempt, mutation::Mutation};
use std::{
    num::NonZero,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Worlds that a bug may take to show.
const WORLDS: u64 = 50;

/// A small one; of the usual size where nodes have to be lost for long, or set up anew, in the middle of much work.
fn world(mutation: Mutation, seed: u64) -> Setup {
    match mutation {
        Mutation::LeasesAreForgotten | Mutation::ShepherdsAreBegunAgain => Setup::of_seed(seed),
        _ => Setup { seed, jobs: 60, nodes: 8, events: 4_000 },
    }
}

/// The first world looked at: one that had it soon, while worlds were drawn as they were then. It saves time and decides
/// nothing.
const fn first(mutation: Mutation) -> u64 {
    match mutation {
        Mutation::ConditionsAreMetEarly
        | Mutation::DeletedNodesAreSavedOn
        | Mutation::EndsAreRecordedTwice
        | Mutation::EventsAreForgotten
        | Mutation::JoinsAreAnsweredEarly
        | Mutation::JoinsAreForgotten
        | Mutation::LeasesEndEarly
        | Mutation::LimitsAreForgotten
        | Mutation::LimitsOfPartitionsAreForgotten
        | Mutation::OutcomesAreForgotten
        | Mutation::PatienceIsForgotten
        | Mutation::ReservationsStayAsTheyWere
        | Mutation::SilentNodesAreNotDeclaredDown => 2,
        Mutation::AssertionsFail
        | Mutation::JobsAreForgotten
        | Mutation::LicensesAreTaken
        | Mutation::QuotasAreNotSpent => 3,
        Mutation::DrainsAreForgotten
        | Mutation::LeadersAreAllocatedAlone
        | Mutation::LeadersEndAlone
        | Mutation::TalliesAreForgotten => 4,
        Mutation::ComponentsAreAcceptedOneByOne | Mutation::MissingRunsAreNotDeclaredLost => 5,
        Mutation::NodesAreDeletedUnderJobs
        | Mutation::NodesSpeakForRoot
        | Mutation::OwnersAreNotLookedAt
        | Mutation::PartitionsThatAreDownServe
        | Mutation::PurgingOvertakesFollowers
        | Mutation::RefusedRequestsAreDone
        | Mutation::SubmissionsAreKeptThoughRefused => 7,
        Mutation::RepeatsAreNews => 8,
        Mutation::RunsAreToldToEndOnce => 9,
        Mutation::AnyNodeIsBelieved | Mutation::TasksAreMarkedBeforeTheyExist => 10,
        Mutation::IndexesAreReusedEarly => 15,
        Mutation::LeasesAreForgotten => 17,
        Mutation::LimitsOfAccountingAreForgotten => 18,
        Mutation::GraceIsForgotten => 30,
        Mutation::TurnsAreForgotten => 32,
        Mutation::MemoryIsNotCounted => 37,
        Mutation::ShepherdsAreBegunAgain => 38,
        Mutation::CredentialsAreNotLookedAt => 45,
        _ => 1,
    }
}

/// In how many worlds the rule noticed it, and what other rules said meanwhile.
fn noticed(mutation: Mutation, rule: &str) -> Result<u64, Vec<&'static str>> {
    let mut others = Vec::new();
    for (worlds, seed) in (1..=WORLDS).zip(first(mutation)..) {
        match attempt(world(mutation, seed), Some(mutation), None).result {
            Err(violation) if violation.rule == rule => return Ok(worlds),
            Err(violation) => others.push(violation.rule),
            Ok(_) => {}
        }
    }
    others.sort_unstable();
    others.dedup();
    Err(others)
}

/// The commit whose bugs are put in, in hexadecimal digits. `.ci/run` sets it.
const COMMIT: &str = "GARRICK_BUGS_OF";

/// Of a commit it is one in so many.
const PARTS: usize = 6;

/// All bugs, or a part of them that goes by the commit: other commits have the others.
fn chosen() -> Vec<&'static (Mutation, &'static str)> {
    let digits = std::env::var(COMMIT).ok();
    let part = digits.and_then(|digits| usize::from_str_radix(digits.get(..8)?, 16).ok()).map(|number| number % PARTS);
    let all = Mutation::ALL.iter().enumerate();
    all.filter(|(place, _)| part.is_none_or(|part| place % PARTS == part)).map(|(_, mutation)| mutation).collect()
}

#[test]
fn each_bug_is_noticed_by_the_rule_that_is_about_it() {
    let chosen = chosen();
    assert!(chosen.len() >= Mutation::ALL.len() / PARTS);
    std::panic::set_hook(Box::new(|_| {}));
    let (next, threads) = (AtomicUsize::new(0), thread::available_parallelism().map_or(1, NonZero::get));
    let missed: Vec<String> = thread::scope(|scope| {
        let search = || {
            let mut missed = Vec::new();
            while let Some((mutation, rule)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                match noticed(*mutation, rule) {
                    Ok(worlds) => println!("{mutation:?}: noticed by {rule} in world {worlds}"),
                    Err(others) => missed.push(format!("{mutation:?} by {rule}, though by {others:?}")),
                }
            }
            missed
        };
        let searches: Vec<_> = (0..threads).map(|_| scope.spawn(search)).collect();
        searches
            .into_iter()
            .flat_map(|search| search.join().unwrap_or_else(|_| vec!["a search failed".to_owned()]))
            .collect()
    });
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not noticed within {WORLDS} worlds: {missed:#?}");
}

/// To choose first worlds anew: `cargo test --release -p garrick-simulator --test mutations -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes and decides nothing"]
fn worlds_that_have_bugs_soon() {
    std::panic::set_hook(Box::new(|_| {}));
    let (next, threads) = (AtomicUsize::new(0), thread::available_parallelism().map_or(1, NonZero::get));
    let search = || {
        while let Some((mutation, rule)) = Mutation::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            let worlds = (1..=WORLDS).filter_map(|seed| {
                let tried = attempt(world(*mutation, seed), Some(*mutation), None);
                tried.result.is_err_and(|violation| violation.rule == *rule).then_some((tried.events, seed))
            });
            let mut worlds: Vec<(u64, u64)> = worlds.take(2).collect();
            worlds.sort_unstable();
            println!("{mutation:?}: events and seed {worlds:?}");
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(search))));
    let _ = std::panic::take_hook();
    assert!(next.load(Ordering::Relaxed) >= Mutation::ALL.len());
}

#[test]
fn each_rule_has_a_bug_that_it_notices() {
    let guarded = |rule: &str| Mutation::ALL.iter().any(|(_, by)| *by == rule);
    let unguarded: Vec<&str> = garrick_simulator::rules::names().filter(|rule| !guarded(rule)).collect();
    assert!(unguarded.is_empty(), "{unguarded:?}");
}
