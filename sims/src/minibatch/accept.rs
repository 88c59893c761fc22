//! A million queued steps from a list, while one long step keeps the job busy: how fast they are accepted, and the memory of each
//! while it waits. They are cancelled at the end.

use super::{
    array,
    figures::Findings,
    inside::{Fallible, Inside, drained},
};
use nix::sys::resource::{UsageWho, getrusage};
use std::time::Instant;

const USUAL: usize = 1_000_000;

/// The scenario.
pub fn accept(inside: &Inside) -> Fallible<Findings> {
    let mut found = Findings::default();
    let count = inside.steps(USUAL);
    let path = inside.order.home.join("commands.txt");
    array::write_list(&path, count)?;
    let bytes = std::fs::metadata(&path)?.len();

    let counts = drained()?;
    let all_cpus = format!("-c{}", std::env::var("SLURM_CPUS_ON_NODE")?);
    let busy = inside.run("srun", &["--async", "--parsable", "-n1", &all_cpus, "-o", "/dev/null", "sleep", "3600"])?;
    let (before, launcher) = (inside.stepd_memory()?, inside.launcher_memory()?);
    let began = Instant::now();
    let path = path.to_string_lossy().into_owned();
    let ids = inside.run("srun", &["--async", "--parsable", "-n1", "-o", "/dev/null", "--from-file", &path])?;
    let took = began.elapsed();
    let accepted = inside.stepd_memory()?;
    let sender = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss();

    let began = Instant::now();
    inside.run("scancel", &[ids.trim()])?;
    inside.run("scancel", &[busy.trim()])?;
    let after = drained()?;
    let cancelled = began.elapsed();
    let (done, failed) = (after.done - counts.done, after.failed - counts.failed);
    if (done, failed) != (0, count as u64 + 1) {
        return Err(
            format!("{} steps should have been cancelled: {done} ended well, {failed} otherwise", count + 1).into()
        );
    }
    found.pace("steps accepted from a list", count as u64, took.as_secs_f64(), None);
    array::memory(&mut found, count, "stepd", before, accepted, inside.stepd_memory()?);
    found.amount("srun that sent them, peak memory", sender as f64 / 1024.0, "MiB", None);
    found.amount("launcher, peak memory", array::mib(launcher.peak), "MiB", None);
    found.pace("cancelled", count as u64, cancelled.as_secs_f64(), None);
    found.note(format!("the list has {bytes} bytes, {:.1} a line", bytes as f64 / count as f64));
    Ok(found)
}
