//! The simulation repeats itself, and its rules see what is wrong.
#![allow(clippy::unwrap_used)]

use garrick_actors::{
    messages::node::NodeSite,
    node::{core::NodeCore, effects::KeptHold},
};
use garrick_model::time::Timestamp;
use garrick_simulator::{Setup, run, world::World};
use std::sync::Arc;

const SMALL: Setup = Setup { seed: 11, jobs: 40, nodes: 8, events: 2_000 };

#[test]
fn two_runs_of_a_seed_have_the_same_digest() {
    let (first, second) = (run(SMALL).unwrap(), run(SMALL).unwrap());
    assert_eq!(first, second);
    assert_ne!(run(Setup { seed: 12, ..SMALL }).unwrap().digest, first.digest);
}

/// Some way into a simulation, with work on the nodes.
fn busy() -> World {
    let mut world = World::new(SMALL);
    while world.nodes.values().all(|node| node.kept().len() < 2) {
        world.step().unwrap();
    }
    world.check_all().unwrap();
    world
}

#[test]
fn a_job_that_vanishes_is_noticed() {
    let mut world = busy();
    let (job, _) = world.jobs.pop_first().unwrap();
    world.replayed.jobs.remove(&job);
    assert_eq!(world.check_all().unwrap_err().rule, "an_accepted_job_is_never_lost");
}

#[test]
fn a_cpu_that_two_jobs_have_is_noticed() {
    let mut world = busy();
    let (&index, node) = world.nodes.iter().find(|(_, node)| node.kept().len() >= 2).unwrap();
    let mut holds: Vec<KeptHold> = node.kept();
    holds[1].hold.share.cpus = holds[0].hold.share.cpus.clone();
    let settings = node.settings().clone();
    world.nodes.insert(index, NodeCore::new(Timestamp(0), settings, Arc::new(NodeSite::default()), None, holds));
    let violation = world.check_all().unwrap_err();
    assert_eq!(violation.rule, "no_cpu_or_memory_of_a_node_is_given_twice");
    assert!(violation.what.contains("have a holder"), "{violation}");
}

/// What has to happen in one world, since it broke rules once, and its story.
const SCENARIOS: [(&[&str], &str); 6] = [
    (
        &["run ended by a lease", "heterogeneous job queued again"],
        "nodes that lost the controller end what may run elsewhere, and heterogeneous jobs go back to the queue",
    ),
    (&["run ended by a lease", "owner of a node failed"], "the same, and owners of nodes fail between"),
    (
        &["owner of a job failed", "owner of a node failed", "heterogeneous job queued again"],
        "what owners had in hand is asked for again, what they were told and had to say is told and said again",
    ),
    (
        &["run ended by its time limit", "step manager taken over", "heterogeneous job ended"],
        "step managers die and are taken over, and keep the limits all the same",
    ),
    (&["controller restart", "heterogeneous job started"], "the controller dies, also while components are saved"),
    (
        &["step manager killed amid a loss", "step manager taken over"],
        "nodes are lost while a step manager asks around",
    ),
];

/// Worlds in which all of them are to have happened; the first one holds much.
const WORLDS: usize = 40;

#[test]
fn each_scenario_happens_and_all_rules_hold() {
    let mut missing = SCENARIOS.to_vec();
    for seed in (27..).take(WORLDS) {
        let outcome = run(Setup { seed, jobs: 60, nodes: 8, events: 4_000 }).unwrap();
        missing.retain(|(happens, _)| !happens.iter().all(|what| outcome.counts.of(what) > 0));
        if missing.is_empty() {
            return;
        }
    }
    panic!("not in {WORLDS} worlds: {missing:?}");
}

#[test]
fn whoever_has_less_left_to_do_makes_progress_and_is_not_late() {
    let mut world = World::new(SMALL);
    while !world.may_calm_down() {
        world.step().unwrap();
    }
    world.calm_down();
    let left = world.left_to_do();
    assert!(left > 0 && !world.makes_progress());
    while world.left_to_do() >= left {
        world.step().unwrap();
    }
    let (_, events) = world.since_progress();
    assert!(events > 0 && world.makes_progress());
    assert_eq!((world.since_progress(), world.makes_progress()), ((0, 0), false));
}
