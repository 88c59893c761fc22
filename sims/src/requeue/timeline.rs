//! What happened between a death and the new script, from the actors' traces.

use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};

/// One line of the story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Since the kill.
    pub after: Duration,
    /// Which actor, in which process.
    pub who: String,
    /// What it was told.
    pub what: String,
}

/// The story of one death.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// When the node's owner called it down, since the epoch.
    pub down: Option<Duration>,
    /// In the order of time.
    pub lines: Vec<Line>,
}

/// Messages that say nothing of this story: they come all the time.
const ROUTINE: [&str; 7] = ["Heartbeat", "Ping", "Journaled", "Changed", "StepReport", "Watch", "Considered"];

impl Timeline {
    /// From `stail --json` of the job, the dead node and the scheduler; times since the epoch.
    pub fn new(traces: &str, node: &str, job: &str, killed: Duration, again: Duration) -> Self {
        let mut found: Vec<(Duration, String, String)> = Vec::new();
        for value in traces.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
            let at = Duration::from_micros(value["at_us"].as_u64().unwrap_or_default());
            let who = format!("{} {}", text("process"), text("actor"));
            found.push((at, who, text("message")));
        }
        found.sort();
        let (owner, of_job) = (format!("controller /node/{node}"), format!("controller /job/{job}"));
        let lost = found.iter().find(|(at, who, what)| *at >= killed && *who == of_job && what == "NodeLost");
        // The silence ran out in the last timer of the node's owner before it told the job.
        let timer = |(at, who, what): &&(Duration, String, String)| {
            *who == owner && what == "Timer" && lost.is_some_and(|(told, ..)| at <= told)
        };
        let down = found.iter().rev().find(timer).map(|(at, ..)| *at);
        let mut once = BTreeSet::new();
        let mut lines = vec![Line { after: Duration::ZERO, who: "this program".into(), what: format!("kills {node}") }];
        for (at, who, what) in found {
            let of_time = at >= killed && at <= again;
            let timer = what == "Timer" && Some(at) != down;
            let before = down.is_some_and(|down| at < down);
            if !of_time || before || timer || ROUTINE.contains(&what.as_str()) {
                continue;
            }
            // Steps and tasks have many; the first of a kind tells.
            if once.insert((who.clone(), what.clone())) || who == of_job {
                let what = if Some(at) == down {
                    format!("nothing was heard for too long: {node} is down")
                } else {
                    told(&what)
                };
                lines.push(Line { after: at.saturating_sub(killed), who, what });
            }
        }
        let who = "the new batch script".to_owned();
        lines.push(Line { after: again.saturating_sub(killed), who, what: "its first line".to_owned() });
        Self { down, lines }
    }
}

/// What a message means in this story, after its name.
fn told(message: &str) -> String {
    let meaning = match message {
        "NodeLost" => "the run ends, the other nodes are told to clean up",
        "Release" => "the dead node is free of the job",
        "LinkGone" => "its connection is closed",
        "Pass" => "the scheduler plans, expedited jobs first",
        "Start" => "the scheduler proposes nodes",
        "Reserved" => "a node agrees",
        "Outcome" => "the scheduler hears that the job starts",
        "Report" => "an agent: the run ended, a node is clean and kept, or the new run began",
        _ => return message.to_owned(),
    };
    format!("{message}: {meaning}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detection_is_the_timer_that_made_the_node_tell_its_jobs() {
        let line = |at: u64, actor: &str, message: &str| {
            format!(r#"{{"process":"controller","at_us":{at},"actor":"{actor}","message":"{message}"}}"#)
        };
        let traces = [
            line(4_000_500, "/job/7", "NodeLost"),
            line(4_000_000, "/node/n2", "Timer"),
            line(2_000_000, "/node/n2", "Timer"),
            line(4_200_000, "/job/7", "Report"),
            line(9_000_000, "/job/7", "Report"),
        ];
        let (killed, again) = (Duration::from_secs(1), Duration::from_secs(5));
        let timeline = Timeline::new(&traces.join("\n"), "n2", "7", killed, again);
        assert_eq!(timeline.down, Some(Duration::from_secs(4)));
        let name = |what: &str| what.split(": ").next().unwrap_or_default().to_owned();
        let told: Vec<(u128, String)> = timeline.lines.iter().map(|l| (l.after.as_millis(), name(&l.what))).collect();
        let told: Vec<(u128, &str)> = told.iter().map(|(at, what)| (*at, what.as_str())).collect();
        assert_eq!(
            told,
            [
                (0, "kills n2"),
                (3000, "nothing was heard for too long"),
                (3000, "NodeLost"),
                (3200, "Report"),
                (4000, "its first line")
            ]
        );
    }
}
