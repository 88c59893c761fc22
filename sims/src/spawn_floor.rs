//! The floor that every launch rate is compared with: how fast this machine can `posix_spawn` and reap `/bin/true` at all.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Spawns per second, `in_flight` at a time, over `count` spawns, measured now.
pub fn raw_spawn_rate(count: usize, in_flight: usize) -> std::io::Result<f64> {
    let began = Instant::now();
    let mut running = std::collections::VecDeque::with_capacity(in_flight);
    for _ in 0..count {
        if running.len() == in_flight {
            reap(&mut running)?;
        }
        // No pre_exec, no ids: the standard library uses posix_spawn for this.
        running.push_back(
            Command::new("/bin/true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?,
        );
    }
    while !running.is_empty() {
        reap(&mut running)?;
    }
    Ok(rate(count, began.elapsed()))
}

fn reap(running: &mut std::collections::VecDeque<std::process::Child>) -> std::io::Result<()> {
    if let Some(mut child) = running.pop_front() {
        child.wait()?;
    }
    Ok(())
}

/// Events per second.
pub fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-9)
}
