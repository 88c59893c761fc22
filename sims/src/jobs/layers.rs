//! The time of one job, divided at the boundaries between layers. The times are by this machine's clock: those of the
//! controller's actors in their traces, and those at which the kernel saw processes begin and end.

use super::{
    ask,
    exits::{Exit, Exits, Kind, by_kind},
    until_gone,
};
use crate::minibatch::{
    cluster::{Embedded, Stage},
    inside::Fallible,
};
use serde_json::Value;
use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The layers, in the order in which a job goes through them.
pub const LAYERS: [&str; 9] = [
    "submit: sbatch starts, the job is accepted and on disk",
    "plan: the scheduler proposes its node",
    "journal: the node agrees, the allocation is on disk",
    "agent: the node daemon is told and starts stepd",
    "stepd start: until it starts the launcher",
    "launcher start: until it starts the script",
    "script",
    "end: the launcher, the cgroups, until stepd is gone",
    "report: until the controller has the end on disk",
];

/// How long one job was in each of [`LAYERS`].
pub type Times = [Duration; LAYERS.len()];

/// Runs one job and cuts its time.
pub fn single(cluster: &Embedded, script: &Path, nodes: &[u32]) -> Fallible<Times> {
    let listening = Exits::listen()?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let text = script.to_string_lossy();
    let said = ask(cluster, "sbatch", &["--parsable", "--wait", "--output=/dev/null", "--chdir=/", &text])?;
    until_gone(cluster.home())?;
    let heard = listening.stop()?;
    let job = said.trim();
    let traces = ask(cluster, "stail", &["--json", &format!("job/{job}")])?;
    cut(began, &traces, job, &heard, nodes).ok_or_else(|| {
        format!("the traces of job {job} and the ends of its processes do not tell its time:\n{traces}{heard:?}").into()
    })
}

/// The job's time, from its traces and the ends of its processes. `None`: something of it is missing.
fn cut(began: Duration, traces: &str, job: &str, exits: &[Exit], nodes: &[u32]) -> Option<Times> {
    let mut told: Vec<(Duration, String)> = Vec::new();
    for value in traces.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if value["process"] == "controller" && value["actor"].as_str() == Some(&format!("/job/{job}")) {
            let at = Duration::from_micros(value["at_us"].as_u64()?);
            told.push((at, value["message"].as_str()?.to_owned()));
        }
    }
    told.sort();
    let first = |name: &str, after: Duration| told.iter().find(|(at, what)| *at >= after && what == name).map(|t| t.0);
    let accepted = first("Journaled", began)?;
    let proposed = first("Start", accepted)?;
    let allocated = first("Journaled", proposed)?;
    let kinds = by_kind(exits, nodes);
    // Of several threads the first is the process, and the last to end is too.
    let span = |kind: Kind| {
        let threads = kinds.get(&kind)?;
        Some((threads.iter().map(|e| e.began).min()?, threads.iter().map(|e| e.ended).max()?))
    };
    let (stepd, launcher, script) = (span(Kind::Stepd)?, span(Kind::Launcher)?, span(Kind::Script)?);
    let over = told.iter().rev().find(|(_, what)| what == "Journaled").map(|t| t.0)?;
    let cuts =
        [began, accepted, proposed, allocated, stepd.0, launcher.0, script.0, script.1, stepd.1, over.max(stepd.1)];
    let mut times = Times::default();
    for (time, pair) in times.iter_mut().zip(cuts.windows(2)) {
        *time = pair[1].saturating_sub(pair[0]);
    }
    Some(times)
}

/// The middle time of each layer, and of whole jobs.
pub fn medians(singles: &[Times]) -> Vec<(&'static str, Duration)> {
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    let mut rows: Vec<_> =
        LAYERS.iter().enumerate().map(|(n, name)| (*name, median(singles.iter().map(|t| t[n]).collect()))).collect();
    rows.push(("all", median(singles.iter().map(|t| t.iter().sum()).collect())));
    rows
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_jobs_time_is_cut_at_its_traces_and_its_processes() {
        let line = |at: u64, message: &str| {
            format!("{{\"process\":\"controller\",\"actor\":\"/job/7\",\"at_us\":{at},\"message\":\"{message}\"}}\n")
        };
        let told = [
            (10_005, "Journaled"),
            (10_007, "Start"),
            (10_010, "Journaled"),
            (10_060, "Report"),
            (10_070, "Journaled"),
        ];
        let traces: String = told.iter().map(|(at, message)| line(*at, message)).collect();
        let micros = Duration::from_micros;
        let process = |tid, parent, began, ended| Exit {
            tid,
            parent,
            name: "p".into(),
            cpu: micros(1),
            began: micros(began),
            ended: micros(ended),
        };
        let exits = [process(12, 11, 10_030, 10_040), process(11, 10, 10_022, 10_045), process(10, 1, 10_014, 10_055)];
        let times = cut(micros(10_000), &traces, "7", &exits, &[1]).unwrap();
        assert_eq!(times.map(|t| t.as_micros()), [5, 2, 3, 4, 8, 8, 10, 15, 15]);
        assert_eq!(cut(micros(10_000), &traces, "8", &exits, &[1]), None);
        assert_eq!(medians(&[times]).last().unwrap().1, micros(70));
    }
}
