//! A whole cluster in one thread: the cores of the controller (jobs, nodes, admission, plan) and of the nodes' agents as
//! they ship, with a fake clock, made-up links, machines and `stepd`s around them. One seed decides everything.
//!
//! | file | what it is |
//! |---|---|
//! | [`world`] | the clock, the queue of what happens, and who is there |
//! | `controller` | carries out what job and node cores want; submission, scheduling, restart from the journal |
//! | `dependencies` | whether a job that starts was allowed to |
//! | `heterogeneous` | jobs of several components, and whether these stay together |
//! | `reservations` | reservations that begin and end, and whether they are kept |
//! | `disk` | the controller's journal: written in groups, torn by crashes |
//! | `crew` | what runs inside a run: its step manager, steps, shepherds, users |
//! | `machine` | carries out what agents want |
//! | `stepds`, `stepd_life` | `stepd`s that start, work, report, die |
//! | `network` | links that break, machines that are cut off |
//! | `faults` | what users, administrators and misfortune do |
//! | [`ledger`] | what was promised, noted from the journal, apart from the cores' own state |
//! | [`rules`] | what must hold after every event |
//! | [`mutation`] | bugs put in on purpose, to see them caught |
//! | [`random`] | numbers from the seed |
//!
//! # What can go wrong here
//!
//! Messages are late, some by seconds; those inside the controller and on links may come twice. Order between two ends
//! is kept, as actors and QUIC streams keep it. Agents lose their link for seconds or for longer than the controller's
//! patience, alone or cut off together with others, ask each other for the controller and end what may run elsewhere; they
//! restart, lose their `stepd`s, reboot; prologs and epilogs fail. Some runs take longer than their time limit. Nodes are drained, set down and resumed; jobs are
//! cancelled, requeued, held and released. Jobs of one partition preempt those of others, which are requeued after a grace,
//! cancelled or suspended; licenses and generic resources are scarce; nodes are reserved for some, jobs wait for
//! others, and some have several components.
//! The controller dies and restarts with what its disk has: all that was under way
//! in it is lost, and of the journal's last write any part, down to a part of a record. Owners of jobs fail over what they
//! are told, and others are built: what they had in hand, and what waited for the disk, is lost.
//!
//! # What is not simulated
//!
//! The accounting service, several controllers, changes of reservations, jobs that share CPUs and take turns.

#[path = "../../../actors/src/stepmgr/company.rs"]
#[allow(dead_code, missing_docs, clippy::unwrap_used)]
mod company;
mod controller;
mod crew;
mod dependencies;
mod disk;
mod faults;
mod heterogeneous;
pub mod ledger;
mod machine;
pub mod mutation;
mod network;
pub mod random;
mod reservations;
pub mod rules;
mod stepd_life;
mod stepds;
pub mod world;

// The people and processes of a run are the same in the tests of its step manager, whose names these are.
use garrick_actors::{shepherd, step, stepmgr};
use mutation::Mutation;
use rules::Violation;
use world::World;

/// One simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Decides everything.
    pub seed: u64,
    /// Submissions; arrays count once.
    pub jobs: u32,
    /// Nodes.
    pub nodes: u32,
    /// Faults go on until all jobs are submitted and this many events have happened.
    pub events: u64,
}

impl Setup {
    /// With the usual size.
    pub const fn of_seed(seed: u64) -> Self {
        Self { seed, jobs: 250, nodes: 24, events: 12_000 }
    }

    /// The command that repeats it.
    pub fn command(&self) -> String {
        format!(
            "cargo run -p garrick-simulator -- --seed {} --jobs {} --nodes {} --events {}",
            self.seed, self.jobs, self.nodes, self.events
        )
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Events until the queue was empty.
    pub events: u64,
    /// Of all events and of what was recorded, in order.
    pub digest: u64,
    /// How often each thing happened.
    pub counts: ledger::Counts,
    /// Simulated seconds.
    pub simulated_secs: u64,
}

/// Faults and work first, then work alone until nothing is left to do. The first rule that does not hold ends it.
pub fn run(setup: Setup) -> Result<Outcome, Box<Violation>> {
    run_world(World::new(setup))
}

/// The same with a bug put in.
pub fn run_with(setup: Setup, mutation: Mutation) -> Result<Outcome, Box<Violation>> {
    run_world(World::with(setup, Some(mutation)))
}

fn run_world(mut world: World) -> Result<Outcome, Box<Violation>> {
    while !world.may_calm_down() {
        world.step()?;
    }
    world.calm_down();
    world.check_all()?;
    while !world.is_drained() {
        world.step()?;
        rules::after_faults_stop_the_queue_drains(&world).map_err(|what| world.violation(rules::DRAINS, what))?;
    }
    world.check_all()?;
    Ok(world.outcome())
}
