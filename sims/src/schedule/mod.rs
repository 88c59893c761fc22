//! How long a plan takes: backfill over many nodes with long queues, beside a planner that keeps nothing but a list of who
//! holds what and when.

mod naive;
mod workload;

use crate::minibatch::figures::Findings;
use garrick_actors::scheduler::{
    facts::{ClusterView, UNLIMITED_FOR_PLANNING},
    plan::plan,
};
use garrick_replay::cluster::Choice;
use std::time::{Duration, Instant};
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
