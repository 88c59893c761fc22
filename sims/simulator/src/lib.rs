//! A whole cluster in one thread: the real cores of the controller (jobs, nodes, admission, scheduler) and of the nodes' agents,
//! with a fake clock and simulated links, machines and `stepd`s around them. One seed decides everything.
//!
//! | file | what it is |
//! |---|---|
//! | [`world`] | the clock, the queue of events, and the participants |
//! | `controller` | carries out effects of job and node cores; submission, restart from the journal |
//! | `passes` | carries out effects of the scheduler's core: snapshots, plans that take time, proposals |
//! | `accounting` | limits of associations and QOS, and whether they are kept |
//! | `proposals` | checks the scheduler's proposals |
//! | `dependencies` | checks whether a job was allowed to start |
//! | `heterogeneous` | jobs of several components, and whether these stay together |
//! | `reservations` | the owner of reservations, changes of them, and whether they are kept |
//! | `partitions` | owners of partitions, and changes of them |
//! | `lives` | owners that fail, and messages that wait for the next life |
//! | `roster` | the owner of the roster, daemons that join, deletions, a configuration that is read again |
//! | `site` | the configuration file and its changes |
//! | `disk` | the controller's journal: written in groups, torn by crashes |
//! | `follower` | a registered follower of the log |
//! | `step side` | the inside of a run: its step manager, steps, shepherds, users |
//! | `machine` | carries out effects of agents |
//! | `stepds`, `stepd_life` | `stepd`s that start, work, report, die |
//! | `network` | links that break, machines that are cut off |
//! | `faults` | actions of users and administrators, and faults |
//! | `forgers` | nodes and users that send forged messages |
//! | `mix` | which jobs and faults are frequent in a world |
//! | `meetings` | which kinds of jobs each fault affected |
//! | [`story`] | prints what happened in a world, or to some jobs and nodes |
//! | [`ledger`] | what was promised, from the journal, independent of the cores' own state |
//! | [`rules`] | what must hold after every event |
//! | [`mutation`] | bugs inserted on purpose, which rules must detect |
//! | [`random`] | numbers from the seed |
//!
//! # What can go wrong here
//!
//! Messages are late, some by seconds; those inside the controller and on links may come twice. Order between two ends is kept,
//! as actors and QUIC streams keep it. Agents lose their link for seconds or for longer than `SlurmdTimeout`, alone or together
//! with others, ask each other for the controller and end what may run elsewhere; they restart, lose their `stepd`s, reboot;
//! prologs and epilogs fail. Some runs take longer than their time limit. Nodes are drained, set down and resumed; jobs are
//! cancelled, requeued, held and released. Jobs of one partition preempt those of others, which are requeued after a grace,
//! cancelled or suspended; licenses and generic resources are scarce; nodes are reserved for some, jobs depend on others, some
//! share CPUs and take turns, and some have several components.
//!
//! The controller dies and restarts with the content of its disk: work in progress is lost, and any part of the journal's last
//! write, down to a part of a record. Owners of jobs, nodes, partitions and reservations fail over messages and are rebuilt: what
//! they were doing, and what waited for the disk, is lost.
//!
//! # What is not simulated
//!
//! The accounting service, several controllers, nodes that are created before their daemons connect.

mod accounting;
mod controller;
mod dependencies;
mod disk;
mod faults;
mod follower;
mod forgers;
mod heterogeneous;
pub mod ledger;
mod lives;
#[cfg(test)]
mod log_test;
mod machine;
pub mod meetings;
mod mix;
pub mod mutation;
mod network;
mod partitions;
mod passes;
mod proposals;
pub mod random;
mod reservations;
mod roster;
pub mod rules;
mod site;
mod step_side;
mod stepd_life;
mod stepds;
pub mod story;
mod submissions;
pub mod world;

// The people and processes of a run are the same in the tests of its step manager, whose names these are.
use mutation::Mutation;
use random::Random;
use rules::Violation;
use std::panic::{AssertUnwindSafe, catch_unwind};
use story::Subjects;
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

    /// With sizes from the seed too: 4 to 200 nodes and 20 to 1,000 jobs, small ones more often.
    pub fn fresh(seed: u64) -> Self {
        Self::sized(seed, (6, 200), (6, 1_000))
    }

    /// The same with at most 32 nodes and 160 jobs: a world takes seconds also where nothing is optimised.
    pub fn fresh_and_quick(seed: u64) -> Self {
        Self::sized(seed, (3, 32), (3, 160))
    }

    /// Nodes from 4 and jobs from 20 on, doubled up to so many times, and at most so many.
    fn sized(seed: u64, nodes: (u32, u32), jobs: (u32, u32)) -> Self {
        // Apart from what the world draws.
        let mut random = Random::new(seed.rotate_left(32) ^ 0x5eed);
        let mut size = |least: u32, (doublings, most): (u32, u32)| {
            let doubled = least << random.between(0, doublings - 1);
            random.between(doubled, 2 * doubled).min(most)
        };
        let (nodes, jobs) = (size(4, nodes), size(20, jobs));
        Self { seed, jobs, nodes, events: u64::from(jobs) * 48 }
    }

    /// The command that repeats it.
    pub fn command(&self) -> String {
        format!(
            "cargo run --release -p garrick-simulator -- --seed {} --jobs {} --nodes {} --events {}",
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

/// What came of a world: how far it went, and whether its rules held.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Which.
    pub setup: Setup,
    /// Events, also of one that broke a rule.
    pub events: u64,
    /// What it held, also of one that broke a rule.
    pub counts: ledger::Counts,
    /// The first rule that did not hold.
    pub result: Result<Outcome, Box<Violation>>,
    /// What was told about those whom somebody asked about.
    pub story: String,
}

/// Name of the rule that an assertion of a core breaks.
pub const PANICS: &str = "no_core_panics";

/// Faults and work first, then work alone until nothing is left to do. The first rule that does not hold ends it.
pub fn run(setup: Setup) -> Result<Outcome, Box<Violation>> {
    drive(&mut World::new(setup))
}

/// The same with a bug put in.
pub fn run_with(setup: Setup, mutation: Mutation) -> Result<Outcome, Box<Violation>> {
    drive(&mut World::with(setup, Some(mutation), None))
}

/// The same, with what there is to say of it in any case. An assertion of a core is a broken rule too.
pub fn attempt(setup: Setup, mutation: Option<Mutation>, about: Option<Subjects>) -> Trial {
    let mut world = World::with(setup, mutation, about);
    let driven = catch_unwind(AssertUnwindSafe(|| drive(&mut world)));
    let result = driven.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(world.violation(PANICS, said.unwrap_or("it does not say why").to_owned()))
    });
    Trial { setup, events: world.events(), counts: world.counts().clone(), result, story: world.story() }
}

fn drive(world: &mut World) -> Result<Outcome, Box<Violation>> {
    while !world.may_calm_down() {
        world.step()?;
    }
    world.calm_down();
    world.check_all()?;
    while !world.is_drained() {
        world.step()?;
        rules::after_faults_stop_the_queue_drains(world).map_err(|what| world.violation(rules::DRAINS, what))?;
    }
    world.check_all()?;
    Ok(world.outcome())
}
