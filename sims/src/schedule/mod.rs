//! How long a plan takes: backfill over many nodes with long queues, compared with a planner that only keeps a list of which job
//! holds what and when.

mod growth;
mod memory;
mod naive;
mod workload;

pub use growth::{Growth, growth};
pub use memory::{MemoryError, PlanMemory, memory, of_one};

use crate::minibatch::figures::Findings;
use garrick_model::{ids::JobId, view::JobView};
use garrick_plan::{
    plan::{kept::plan_to_keep, plan},
    snapshot::facts::{ClusterView, UNLIMITED_FOR_PLANNING},
};
use garrick_replay::cluster::Choice;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use workload::{CORES, ENDS, Mix, NOW, cluster};

/// A plan without an end takes long for longer queues.
const MOST_WITHOUT_END: u32 = 10_000;

/// Seconds of a first plan, and how many jobs have a place in it.
fn measure(view: &ClusterView) -> (f64, usize) {
    let began = Instant::now();
    let made = plan(view, NOW);
    (began.elapsed().as_secs_f64(), made.starts.len() + made.reservations.len())
}

/// First plans over so many nodes for queues of these lengths.
pub fn first_plans(nodes: u32, queues: &[u32]) -> Findings {
    let mut found = Findings::default();
    let mut rows = Vec::new();
    for mix in [Mix::Nodes, Mix::Cores] {
        let few = 20;
        let view = cluster(nodes, few, mix, Choice::Conservative);
        let began = Instant::now();
        let naive = naive::plan(&view, NOW);
        let naive_each = began.elapsed().as_secs_f64() / f64::from(few);
        for &waiting in queues {
            let mut view = cluster(nodes, waiting, mix, Choice::Conservative);
            view.policy.resolution = Duration::from_secs(60);
            let windows = [(Duration::from_secs(86_400), "a day"), (UNLIMITED_FOR_PLANNING, "no end")];
            for (window, name) in windows.into_iter().take(if waiting > MOST_WITHOUT_END { 1 } else { 2 }) {
                view.policy.backfill_window = window;
                let (seconds, placed) = measure(&view);
                rows.push(vec![
                    mix.name().to_owned(),
                    waiting.to_string(),
                    name.to_owned(),
                    format!("{seconds:.3}"),
                    format!("{:.1}", seconds / f64::from(waiting) * 1e6),
                    placed.to_string(),
                    format!("{:.0}", naive_each * f64::from(waiting) / seconds),
                ]);
            }
        }
        found.note(format!(
            "{}: a list of who holds what: {:.1} ms a job, {} of {few} placed",
            mix.name(),
            naive_each * 1e3,
            naive
        ));
    }
    found.table(
        format!(
            "First plan over {nodes} nodes of {CORES} cores, {ENDS} ends of running jobs, one core of this machine"
        ),
        &["waiting jobs", "how many", "window", "seconds", "us a job", "placed", "times faster than the list"],
        rows,
    );
    found
}

/// What happens between a plan and its repair.
#[derive(Clone, Copy)]
enum Change {
    /// A running job ends hours early: its share of [`ENDS`].
    End,
    /// A job is submitted.
    Submission,
    /// A waiting job is cancelled.
    Cancelling,
}

impl Change {
    const fn name(self) -> &'static str {
        match self {
            Self::End => "a job ends early",
            Self::Submission => "a job is submitted",
            Self::Cancelling => "a waiting job is cancelled",
        }
    }

    fn happens(self, view: &ClusterView, round: u32) -> ClusterView {
        let mut view = view.clone();
        match self {
            Self::End => {
                let job = JobId(1_000_000 + ENDS / 2 + round);
                for node in view.nodes.iter_mut().filter(|node| node.holds.iter().any(|hold| hold.job == job)) {
                    Arc::make_mut(node).holds.retain(|hold| hold.job != job);
                }
            }
            Self::Submission => {
                let like = &view.pending[view.pending.len() / 2];
                let id = JobId(900_000 + round);
                view.pending.push(Arc::new(JobView { id, priority: 1, submit_time: NOW, ..(**like).clone() }));
            }
            Self::Cancelling => {
                view.pending.remove(view.pending.len() / 3);
            }
        }
        view
    }
}

/// Repairs of kept plans beside plans that are made anew for the same.
pub fn repairs(nodes: u32, queues: &[u32]) -> Findings {
    let mut found = Findings::default();
    let mut rows = Vec::new();
    for mix in [Mix::Nodes, Mix::Cores] {
        for &waiting in queues {
            let mut view = cluster(nodes, waiting, mix, Choice::Conservative);
            view.policy.resolution = Duration::from_secs(60);
            view.policy.backfill_depth = usize::MAX;
            view.policy.backfill_window = Duration::from_secs(86_400);
            let (_, kept) = plan_to_keep(view.clone(), NOW);
            let Ok(mut kept) = kept else { continue };
            for change in [Change::End, Change::Submission, Change::Cancelling] {
                let (mut worst, mut starts, mut moved) = (0f64, 0, 0);
                let mut times = Vec::new();
                for round in 0..5 {
                    view = change.happens(&view, round);
                    let snapshot = view.clone();
                    let began = Instant::now();
                    let Ok((made, next)) = kept.repair(snapshot, NOW) else { return found };
                    times.push(began.elapsed().as_secs_f64());
                    worst = worst.max(times[times.len() - 1]);
                    (starts, moved) = (starts + made.starts.len(), moved + made.expected.len());
                    kept = next;
                    // Owners start what is proposed.
                    let gone: Vec<JobId> = made.starts.iter().map(|start| start.job).collect();
                    for start in &made.starts {
                        workload::begin(&mut view, start);
                    }
                    view.pending.retain(|job| !gone.contains(&job.id));
                }
                times.sort_by(f64::total_cmp);
                let (anew, _) = measure(&view);
                rows.push(vec![
                    mix.name().to_owned(),
                    waiting.to_string(),
                    change.name().to_owned(),
                    format!("{:.1}", times[times.len() / 2] * 1e3),
                    format!("{:.1}", worst * 1e3),
                    format!("{:.0}", anew * 1e3),
                    format!("{:.0}", anew / times[times.len() / 2]),
                    starts.to_string(),
                    moved.to_string(),
                ]);
            }
        }
    }
    found.table(
        format!("Repairs of a kept plan over {nodes} nodes, five of each; milliseconds"),
        &[
            "waiting jobs",
            "how many",
            "what happens",
            "median",
            "worst",
            "a new plan",
            "times faster",
            "starts",
            "planned again",
        ],
        rows,
    );
    found
}
