//! A naive planner: for each job it tries every time at which something ends, and at each of them it examines every node for the
//! holds at that time. Plans are compared with it.

use super::workload::CORES;
use garrick_model::{spec::Sharing, time::Timestamp};
use garrick_plan::snapshot::facts::ClusterView;

struct Held {
    from: Timestamp,
    until: Timestamp,
    cpus: u32,
}

/// Gives each job the first time at which enough nodes are free for all of its limit. Returns how many got one.
pub fn plan(view: &ClusterView, now: Timestamp) -> usize {
    let never = Timestamp(i64::MAX);
    let mut held: Vec<Vec<Held>> = view
        .nodes
        .iter()
        .map(|node| {
            let hold = |h: &garrick_model::view::NodeHold| Held {
                from: now,
                until: h.expected_end.unwrap_or(never),
                cpus: if h.sharing == Sharing::Exclusive { CORES } else { h.share.cpus.len() },
            };
            node.holds.iter().map(hold).collect()
        })
        .collect();
    let mut placed = 0;
    for job in &view.pending {
        let Some(length) = job.time_limit.duration() else { continue };
        let cpus = if job.spec.sharing == Sharing::Exclusive { CORES } else { job.cpus_per_task };
        let mut times: Vec<Timestamp> = held.iter().flatten().map(|h| h.until).chain([now]).collect();
        times.sort_unstable();
        times.dedup();
        let fits = |node: &[Held], at: Timestamp| {
            let until = at.plus(length);
            let edges = node.iter().map(|h| h.from).filter(|from| *from > at && *from < until).chain([at]);
            edges.into_iter().all(|edge| {
                let used: u32 = node.iter().filter(|h| h.from <= edge && h.until > edge).map(|h| h.cpus).sum();
                used + cpus <= CORES
            })
        };
        let found = times.into_iter().filter(|at| *at < never).find_map(|at| {
            let free = (0..held.len()).filter(|node| fits(&held[*node], at));
            let nodes: Vec<usize> = free.take(job.min_nodes as usize).collect();
            (nodes.len() >= job.min_nodes as usize).then_some((at, nodes))
        });
        if let Some((at, nodes)) = found {
            placed += 1;
            for node in nodes {
                held[node].push(Held { from: at, until: at.plus(length), cpus });
            }
        }
    }
    placed
}
