#[path = "../../../sims/src/schedule/workload.rs"]
mod workload;
use garrick_actors::scheduler::{facts::UNLIMITED_FOR_PLANNING, plan::plan};
use garrick_replay::cluster::Choice;
use std::time::{Duration, Instant};
use workload::*;
fn main() {
    let a: Vec<u32> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    for mix in [Mix::Nodes, Mix::Cores] {
        for &w in &a {
            let mut view = cluster(15000, w, mix, Choice::Conservative);
            view.policy.resolution = Duration::from_secs(60);
            for win in [Duration::from_secs(86400)] {
                view.policy.backfill_window = win;
                let b = Instant::now();
                let p = plan(&view, NOW);
                let s = b.elapsed().as_secs_f64();
                println!(
                    "{} {w} {win:?}: {s:.3} s, {:.1} us/job, starts {} res {}",
                    mix.name(),
                    s / w as f64 * 1e6,
                    p.starts.len(),
                    p.reservations.len()
                );
            }
        }
    }
}
