//! The simulation repeats itself, and its rules see what is wrong.
#![allow(clippy::unwrap_used)]

use garrick_actors::node::{
    core::NodeCore,
    messages::{KeptHold, NodeSite},
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
    while world.nodes.iter().all(|node| node.kept().len() < 2) {
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
    let index = world.nodes.iter().position(|node| node.kept().len() >= 2).unwrap();
    let node = &world.nodes[index];
    let mut holds: Vec<KeptHold> = node.kept();
    holds[1].hold.share.cpus = holds[0].hold.share.cpus.clone();
    let settings = node.settings().clone();
    world.nodes[index] = NodeCore::new(Timestamp(0), settings, Arc::new(NodeSite::default()), None, holds);
    let violation = world.check_all().unwrap_err();
    assert_eq!(violation.rule, "no_cpu_or_memory_of_a_node_is_given_twice");
    assert!(violation.what.contains("have a holder"), "{violation}");
}

/// Seeds in which something happens that broke rules once, small so that they are run each time: what has to have happened
/// in it, and its story.
const SCENARIOS: [(u64, &[&str], &str); 5] = [
    (
        3,
        &["run ended by a lease", "heterogeneous job queued again"],
        "nodes that lost the controller end what may run elsewhere, and heterogeneous jobs go back to the queue",
    ),
    (5, &["run ended by a lease", "owner of a node failed"], "the same, and owners of nodes fail between"),
    (
        6,
        &["owner of a job failed", "owner of a node failed", "heterogeneous job queued again"],
        "what owners had in hand is asked for again, what they were told and had to say is told and said again",
    ),
    (
        2,
        &["run ended by its time limit", "step manager taken over", "heterogeneous job ended"],
        "step managers die and are taken over, and keep the limits all the same",
    ),
    (1, &["controller restart", "heterogeneous job started"], "the controller dies, also while components are saved"),
];

#[test]
fn scenarios_keep_their_stories_and_all_rules() {
    for (seed, happens, story) in SCENARIOS {
        let outcome = run(Setup { seed, jobs: 60, nodes: 8, events: 4_000 }).unwrap();
        for what in happens {
            assert!(outcome.counts.of(what) > 0, "seed {seed} is not about {what:?} any more: {story}");
        }
    }
}
