//! The kind of world that a seed makes: which jobs are frequent in it, what fails and how often, how fast its disk and its
//! scheduler are. Drawn separately, so that worlds differ in kind and not only in order.

use super::random::Random;

/// What a job is like. Heterogeneous jobs are several submissions' worth of work in one and have a share of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A few tasks.
    Plain,
    /// Many tasks, wherever there is room.
    Tasks,
    /// Several nodes, and ends when it loses one.
    Nodes,
    /// Several nodes, and goes on without those that it loses.
    NoKill,
    /// `--exclusive`.
    Exclusive,
    /// In a partition of whole nodes.
    Whole,
    /// `--exclusive=user`.
    User,
    /// In a partition where jobs share CPUs and take turns.
    Gang,
    Array,
    /// Waits for others.
    Dependent,
    /// An array whose tasks wait for those of another.
    TaskByTask,
    Singleton,
    /// Several CPUs for a task.
    Threads,
    /// Asks for a feature.
    Feature,
    /// `--begin`.
    Later,
    /// `salloc`.
    Allocation,
    NoRequeue,
    /// Names a node.
    Named,
}

/// What goes wrong, or is decided by somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Link,
    Agent,
    Reboot,
    Stepd,
    /// The step manager of a run over several nodes, one of its other nodes amid the takeover, and the step manager again.
    StepMgrAmidLoss,
    Drain,
    Down,
    Controller,
    Cut,
    Clock,
    NodeClock,
    Hang,
    Disk,
    Cancel,
    CancelTasks,
    Requeue,
    /// `scontrol update requeue=`.
    Update,
    Hold,
    Release,
    Suspend,
    Resume,
    Busy,
    Wipe,
    Gone,
    /// A reservation is made, changed or ended.
    Reservation,
    /// A partition does not serve for some time.
    Partition,
    /// A node that came at run time is deleted, if it may be.
    Delete,
    /// The configuration file is changed and read again.
    Reconfigure,
}

/// How jobs come to their priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priorities {
    /// Who comes first has more.
    Basic,
    /// Several factors.
    Calculated,
    /// The same, also while jobs run.
    CalculatedOnAndOn,
}

/// Things with how often each is to be drawn.
#[derive(Clone, Debug)]
pub(super) struct Weights<T>(Vec<(T, u32)>);

impl<T: Copy> Weights<T> {
    /// Each weight is changed by a factor: some things are left out of a world, and some fill it.
    fn varied(usual: &[(T, u32)], random: &mut Random) -> Self {
        let factors = [0, 1, 2, 2, 2, 4, 12];
        let vary = |(what, weight): &(T, u32)| (*what, weight * random.pick(&factors).copied().unwrap_or(2));
        Self(usual.iter().map(vary).collect())
    }

    pub(super) fn pick(&self, random: &mut Random) -> Option<T> {
        let all: u32 = self.0.iter().map(|(_, weight)| weight).sum();
        let mut left = random.between(0, all.checked_sub(1)?);
        let drawn = self.0.iter().find(|(_, weight)| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        drawn.map(|(what, _)| *what)
    }
}

const SHAPES: &[(Shape, u32)] = &[
    (Shape::Plain, 2),
    (Shape::Tasks, 3),
    (Shape::Nodes, 3),
    (Shape::NoKill, 1),
    (Shape::Exclusive, 1),
    (Shape::Whole, 1),
    (Shape::User, 1),
    (Shape::Gang, 1),
    (Shape::Array, 2),
    (Shape::Dependent, 2),
    (Shape::TaskByTask, 1),
    (Shape::Singleton, 1),
    (Shape::Threads, 1),
    (Shape::Feature, 1),
    (Shape::Later, 1),
    (Shape::Allocation, 1),
    (Shape::NoRequeue, 1),
    (Shape::Named, 1),
];

const FAULTS: &[(Fault, u32)] = &[
    (Fault::Link, 10),
    (Fault::Agent, 4),
    (Fault::Reboot, 2),
    (Fault::Stepd, 6),
    (Fault::StepMgrAmidLoss, 4),
    (Fault::Drain, 4),
    (Fault::Down, 2),
    (Fault::Controller, 1),
    (Fault::Cut, 2),
    (Fault::Clock, 2),
    (Fault::NodeClock, 2),
    (Fault::Hang, 2),
    (Fault::Disk, 2),
    (Fault::Cancel, 10),
    (Fault::CancelTasks, 4),
    (Fault::Requeue, 8),
    (Fault::Update, 4),
    (Fault::Hold, 4),
    (Fault::Release, 4),
    (Fault::Suspend, 2),
    (Fault::Resume, 2),
    (Fault::Busy, 2),
    (Fault::Wipe, 2),
    (Fault::Gone, 4),
    (Fault::Reservation, 4),
    (Fault::Partition, 2),
    (Fault::Delete, 6),
    (Fault::Reconfigure, 2),
];

/// See the module. Chances are in thousandths.
#[derive(Clone, Debug)]
pub(super) struct Mix {
    pub(super) shapes: Weights<Shape>,
    pub(super) faults: Weights<Fault>,
    /// Heterogeneous jobs among submissions.
    pub(super) heterogeneous: u32,
    /// Jobs that ask for `--no-requeue`, beside those of that shape.
    pub(super) no_requeue: u32,
    /// Jobs that are preempted by others, by suspension.
    pub(super) still: u32,
    /// Jobs that preempt others.
    pub(super) urgent: u32,
    /// Runs in which steps are launched.
    pub(super) with_steps: u32,
    /// Most time between two faults, milliseconds.
    pub(super) pause_ms: u32,
    /// Most time between two submissions, milliseconds.
    pub(super) submit_ms: u32,
    /// Messages over which an owner fails.
    pub(super) owners_fail: u32,
    /// Messages that come twice.
    pub(super) twice: u32,
    /// Writes of the disk that are slow.
    pub(super) slow_writes: u32,
    /// Between two looks of the scheduler at least, milliseconds.
    pub(super) pass_ms: u64,
    /// How long the scheduler takes for a plan at most, milliseconds; for half as long at least.
    pub(super) plan_ms: u32,
    /// Jobs that ask for much of a node's memory.
    pub(super) memory: u32,
    /// Jobs preempt others.
    pub(super) preempts: bool,
    /// How priorities come about.
    pub(super) priorities: Priorities,
    /// So many jobs start in an interval in their order at most, and so many behind others.
    pub(super) starts: Option<u32>,
    /// Nodes that forge.
    pub(super) forgers: u32,
    /// Nodes come at run time, and go.
    pub(super) joiners: bool,
    /// Limits of associations and QOS hold.
    pub(super) limits: bool,
}

impl Mix {
    pub(super) fn of_seed(seed: u64) -> Self {
        // Other numbers than those that the world draws.
        let mut random = Random::new(!seed);
        let mut one_of = |values: &[u32]| random.pick(values).copied().unwrap_or(0);
        Self {
            heterogeneous: one_of(&[0, 20, 60, 60, 250]),
            no_requeue: one_of(&[0, 0, 50, 300]),
            still: one_of(&[0, 150, 150, 400]),
            urgent: one_of(&[0, 70, 70, 250]),
            with_steps: one_of(&[100, 350, 350, 900]),
            pause_ms: one_of(&[1_500, 3_000, 3_000, 10_000]),
            submit_ms: one_of(&[2_000, 6_000, 6_000, 15_000]),
            owners_fail: one_of(&[0, 1, 1, 6]),
            twice: one_of(&[10, 30, 30, 120]),
            slow_writes: one_of(&[5, 15, 15, 80]),
            pass_ms: u64::from(one_of(&[1_000, 2_000, 3_000, 10_000])),
            plan_ms: one_of(&[0, 0, 0, 300, 2_000]),
            memory: one_of(&[0, 0, 200, 900]),
            preempts: one_of(&[0, 1, 1]) > 0,
            priorities: match one_of(&[0, 0, 0, 1, 1, 2]) {
                0 => Priorities::Basic,
                1 => Priorities::Calculated,
                _ => Priorities::CalculatedOnAndOn,
            },
            starts: Some(one_of(&[0, 0, 0, 0, 3, 8])).filter(|most| *most > 0),
            shapes: Weights::varied(SHAPES, &mut random),
            faults: Weights::varied(FAULTS, &mut random),
            forgers: random.pick(&[0, 0, 1, 2]).copied().unwrap_or(0),
            joiners: random.one_in_thousand(600),
            // Drawn last: worlds without limits are as they were.
            limits: random.one_in_thousand(250),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_mix_and_others_have_others() {
        let text = |seed| format!("{:?}", Mix::of_seed(seed));
        assert_eq!(text(5), text(5));
        assert_ne!(text(5), text(6));
    }

    #[test]
    fn only_what_has_a_weight_is_drawn() {
        let (weights, mut random) = (Weights(vec![('a', 0), ('b', 1), ('c', 3)]), Random::new(1));
        let drawn: Vec<char> = (0..400).filter_map(|_| weights.pick(&mut random)).collect();
        let count = |what| drawn.iter().filter(|one| **one == what).count();
        assert_eq!((drawn.len(), count('a')), (400, 0));
        assert!(count('b') > 50 && count('c') > 2 * count('b'), "{} b, {} c", count('b'), count('c'));
        assert_eq!(Weights::<char>(vec![('a', 0)]).pick(&mut random), None);
    }
}
