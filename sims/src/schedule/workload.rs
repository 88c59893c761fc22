//! A full cluster with a queue, always the same one.

use garrick_model::{
    ids::{JobId, Sluid},
    node_shape::NodeShare,
    resources::CpuSet,
    spec::{NodeCount, Sharing},
    time::Timestamp,
    view::{JobView, NodeHold},
};
use garrick_plan::{proposals::StartProposal, snapshot::facts::ClusterView};
use garrick_replay::{
    TraceJob,
    cluster::{self, Choice},
    engine::{Estimates, job_view},
};
use std::{sync::Arc, time::Duration};

/// Cores of a node.
pub const CORES: u32 = 64;
/// Different times at which running jobs end.
pub const ENDS: u32 = 190;
/// When plans are made.
pub const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Limits that users ask for, minutes.
const LIMITS: [u64; 12] = [10, 30, 60, 90, 120, 180, 240, 360, 480, 720, 1440, 2880];

/// What waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Whole nodes, 1 to 256 of them.
    Nodes,
    /// Cores of one node for three jobs of four, whole nodes for the rest.
    Cores,
}

impl Mix {
    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nodes => "whole nodes",
            Self::Cores => "cores and nodes",
        }
    }
}

/// Numbers that look random and are always the same ones.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        // Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % u64::from(sides)) as u32
    }
}

/// A full cluster with a queue.
pub fn cluster(nodes: u32, waiting: u32, mix: Mix, choice: Choice) -> ClusterView {
    cluster_with(nodes, waiting, mix, choice, ENDS)
}

/// The same with so many running jobs, each with an end of its own.
pub fn cluster_with(nodes: u32, waiting: u32, mix: Mix, choice: Choice, running: u32) -> ClusterView {
    let mut dice = Dice(42);
    let mut view = cluster::places(nodes, CORES, choice);
    for node in &mut view.nodes {
        let node = Arc::make_mut(node);
        let pieces = if mix == Mix::Nodes { 1 } else { 1 + dice.roll(4) };
        for piece in 0..pieces {
            let end = 1 + dice.roll(running);
            let cpus = CpuSet::from(piece * CORES / pieces..(piece + 1) * CORES / pieces);
            node.holds.push(NodeHold {
                job: JobId(1_000_000 + end),
                sluid: Sluid(u64::from(end)),
                uid: 1,
                share: NodeShare { cpus, memory: None, tasks: 1, gres: Vec::new() },
                sharing: if mix == Mix::Nodes { Sharing::Exclusive } else { Sharing::Default },
                mcs_label: None,
                partition: None,
                // All within the same time, whole minutes apart where they can be.
                expected_end: Some(
                    NOW.plus(Duration::from_secs(u64::from(end) * u64::from(ENDS) * 420 / u64::from(running))),
                ),
                completing: false,
                kept: false,
                parked: false,
            });
        }
    }
    view.pending = (1..=waiting).map(|id| Arc::new(job(&view, &mut dice, id, mix))).collect();
    view
}

fn job(view: &ClusterView, dice: &mut Dice, id: u32, mix: Mix) -> JobView {
    let whole = mix == Mix::Nodes || dice.roll(4) == 0;
    let size = if whole { 1 << dice.roll(9) } else { 1 + dice.roll(32) };
    let asked = TraceJob {
        id: JobId(id),
        submit: NOW,
        run: 60,
        size,
        requested: Some(LIMITS[dice.roll(LIMITS.len() as u32) as usize] * 60),
        memory: None,
        user: 1 + dice.roll(300),
        queue: None,
    };
    let mut job = job_view(view, &asked, Estimates::Requested);
    let spec = Arc::make_mut(&mut job.spec);
    if whole {
        spec.nodes = Some(NodeCount { min: size, max: None });
        spec.sharing = Sharing::Exclusive;
        (job.min_nodes, job.max_nodes) = (size, size);
    } else {
        spec.cpus_per_task = Some(size);
        spec.tasks = Some(1);
        (job.min_nodes, job.max_nodes, job.tasks, job.cpus_per_task) = (1, 1, 1, size);
    }
    job
}

/// What nodes show once a start was accepted.
pub fn begin(view: &mut ClusterView, start: &StartProposal) {
    let uid = view.pending.iter().find(|job| job.id == start.job).map_or(0, |job| job.uid);
    for given in &start.nodes {
        let node = Arc::make_mut(&mut view.nodes[given.index.0 as usize]);
        node.holds.push(NodeHold {
            job: start.job,
            sluid: Sluid(u64::from(start.job.0)),
            uid,
            share: given.share.clone(),
            sharing: start.usage.sharing(),
            mcs_label: None,
            partition: Some(start.partition.clone()),
            expected_end: start.time_limit.duration().map(|limit| NOW.plus(limit)),
            completing: false,
            kept: false,
            parked: false,
        });
    }
}
