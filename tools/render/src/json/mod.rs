//! Documents of the query commands, in the shape of Slurm's data parser v0.0.45; [`Form`] writes them, in other shapes too. Skeletons with every property of that shape
//! at its empty value are filled in, so that properties that Garrick does not have are there, empty, as readers of Slurm's output
//! expect.

mod config;
mod form;
mod job;
mod license;
mod node;
pub mod partition;
mod reservation;
mod statistics;
mod step;

pub use config::{Ping, config, pings};
pub use form::{Form, Listed, Version};
pub use job::{job_states, jobs};
pub use license::licenses;
pub use node::nodes;
pub use partition::partitions;
pub use reservation::reservations;
pub use statistics::statistics;
pub use step::steps;

use crate::words::SLURM_VERSION;
use garrick_model::{
    signal::signal_name,
    state::ExitStatus,
    time::{TimeLimit, Timestamp},
};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Who made the document, and of which cluster it is.
#[derive(Clone, Debug)]
pub struct Meta {
    /// The cluster's name.
    pub cluster: String,
    /// The command line that was given, the program's name first.
    pub command: Vec<String>,
    /// The name of the user who asked.
    pub user: String,
    /// That of the user's group.
    pub group: String,
    /// How the document is written.
    pub form: Form,
}

impl Meta {
    fn value(&self) -> Value {
        let mut meta = skeleton(include_str!("skeleton/meta.json"));
        let release = SLURM_VERSION.trim_start_matches("slurm ");
        let mut parts = release.split('.');
        let mut part = || json!(parts.next().unwrap_or(""));
        let version = json!({"major": part(), "minor": part(), "micro": part()});
        meta["plugin"]["data_parser"] = json!(self.form.version.plugin());
        meta["client"]["user"] = json!(self.user);
        meta["client"]["group"] = json!(self.group);
        meta["command"] = json!(self.command);
        meta["slurm"] = json!({"version": version, "release": release, "cluster": self.cluster});
        meta
    }
}

/// A whole document: a list under its name, and what Slurm puts beside it.
pub fn document(name: &str, list: Vec<Value>, last_update: Option<Timestamp>, meta: &Meta) -> Value {
    let mut document = Map::new();
    document.insert(name.to_owned(), Value::Array(list));
    if let Some(at) = last_update {
        document.insert("last_update".to_owned(), time(Some(at)));
    }
    document.insert("meta".to_owned(), meta.value());
    document.insert("errors".to_owned(), json!([]));
    document.insert("warnings".to_owned(), json!([]));
    Value::Object(document)
}

/// Adds a warning to a document.
pub fn warn(document: &mut Value, description: &str) {
    if let Some(Value::Array(warnings)) = document.get_mut("warnings") {
        warnings.push(json!({ "description": description, "source": "" }));
    }
}

/// Writes a document as Slurm does, indented, with a newline at the end.
pub fn write(out: &mut dyn Write, document: &Value) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

/// An object with every property at its empty value.
pub(crate) fn skeleton(text: &str) -> Value {
    serde_json::from_str(text).expect("the skeletons in the program are valid JSON")
}

/// A number that is there.
pub fn number(n: impl Into<u64>) -> Value {
    json!({"set": true, "infinite": false, "number": n.into()})
}

/// A number that may not be there.
pub fn optional(n: Option<u64>) -> Value {
    n.map_or_else(|| json!({"set": false, "infinite": false, "number": 0}), number)
}

/// Seconds since the epoch; a time that is not known is 0, as Slurm has it.
pub fn time(at: Option<Timestamp>) -> Value {
    number(at.map_or(0, |t| u64::try_from(t.secs()).unwrap_or(0)))
}

/// A limit, in minutes.
pub(crate) fn minutes(limit: TimeLimit) -> Value {
    match limit {
        TimeLimit::Unlimited => json!({"set": false, "infinite": true, "number": 0}),
        TimeLimit::Secs(secs) => number(secs / 60),
    }
}

/// How something ended.
pub(crate) fn exit(status: ExitStatus) -> Value {
    let word = match status {
        ExitStatus { signal: Some(_), .. } => "SIGNALED",
        ExitStatus { code: 0, .. } => "SUCCESS",
        _ => "ERROR",
    };
    let name = status.signal.and_then(|n| signal_name(n.into())).unwrap_or("");
    json!({
        "status": [word],
        "return_code": number(status.code),
        "signal": {"id": optional(status.signal.map(u64::from)), "name": name},
    })
}

#[cfg(test)]
pub(crate) mod shapes_test;
#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        job_rows::{Arrays, JobRow},
        testing as views,
    };
    use garrick_model::{state::JobState, view::JobView};
    use std::sync::Arc;

    #[test]
    fn job_document_has_every_property_and_the_values_of_the_job() {
        let meta = crate::testing::meta();
        let rows = JobRow::list(&[Arc::new(views::job_503())], Arrays::Folded);
        let document = jobs(&rows, &meta, &views::clock(7));
        assert_eq!(document["meta"]["client"]["group"], "users");
        let job = &document["jobs"][0];
        assert_eq!(job["job_id"], 503);
        assert_eq!(job["job_state"], json!(["RUNNING"]));
        assert_eq!(job["nodes"], "n[1-2]");
        assert_eq!(job["time_limit"], json!({"set": true, "infinite": false, "number": 10}));
        assert_eq!(job["start_time"]["number"], views::START);
        assert_eq!(job["job_resources"]["nodes"]["allocation"][0]["cpus"]["count"], 3);
        assert_eq!(job["exit_code"]["status"], json!(["SUCCESS"]));
        let shape = skeleton(include_str!("skeleton/job.json"));
        let missing: Vec<&String> = shape.as_object().unwrap().keys().filter(|k| job.get(k).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let added: Vec<&String> = job.as_object().unwrap().keys().filter(|k| shape.get(k).is_none()).collect();
        assert!(added.is_empty(), "{added:?}");
        assert_eq!(document["meta"]["slurm"]["release"], "26.05.3");
        for key in ["last_backfill", "last_update", "errors", "warnings"] {
            assert!(document.get(key).is_some(), "{key}");
        }
    }

    /// A run without a limit has an end, and a run that another follows is of a job that waits (seen in 26.05.3).
    #[test]
    fn endless_runs_end_in_a_year_and_requeued_jobs_wait() {
        let of = |view: JobView| {
            let rows = JobRow::list(&[Arc::new(view)], Arrays::Folded);
            jobs(&rows, &crate::testing::meta(), &views::clock(7))["jobs"][0].clone()
        };
        let endless = JobView { time_limit: TimeLimit::Unlimited, end_time: None, ..views::job_503() };
        assert_eq!(of(endless.clone())["end_time"]["number"], views::START + 365 * 86_400);
        assert_eq!(of(JobView { start_time: None, ..endless })["end_time"]["number"], 0);
        let (state, ending) = (JobState::Completing, Some(JobState::Cancelled));
        let requeued = JobView { state, ending, runs_again: true, ..views::job_503() };
        let shown = of(requeued);
        assert_eq!((&shown["job_state"], &shown["restart_cnt"]), (&json!(["PENDING", "COMPLETING"]), &json!(1)));
    }

    #[test]
    fn ids_and_states_are_a_document_of_their_own() {
        let rows = JobRow::list(&[Arc::new(views::job_503())], Arrays::Expanded);
        let document = job_states(&rows, &crate::testing::meta());
        assert_eq!(document["jobs"], json!([{"job_id": "503", "state": ["RUNNING"]}]));
    }

    #[test]
    fn node_and_partition_documents_add_nothing_to_the_shape() {
        let meta = crate::testing::meta();
        let clock = views::clock(7);
        let node = Arc::new(views::node(0));
        let same = |value: &Value, shape: &str| {
            let shape = skeleton(shape);
            let keys = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(value), keys(&shape));
        };
        let document = nodes(&[(node.clone(), vec!["debug".to_owned()])], &meta, &clock);
        same(&document["nodes"][0], include_str!("skeleton/node.json"));
        assert_eq!(document["nodes"][0]["state"], json!(["IDLE"]));
        let document = partitions(&[Arc::new(views::partition("debug", 1))], &[node], &meta, &clock);
        same(&document["partitions"][0], include_str!("skeleton/partition.json"));
        assert_eq!(document["partitions"][0]["maximums"]["nodes"]["infinite"], true);
    }

    #[test]
    fn how_something_ended_has_words_and_numbers() {
        let killed = exit(ExitStatus { code: 0, signal: Some(9) });
        assert_eq!(killed["status"], json!(["SIGNALED"]));
        assert_eq!(killed["signal"], json!({"id": {"set": true, "infinite": false, "number": 9}, "name": "KILL"}));
        assert_eq!(exit(ExitStatus { code: 3, signal: None })["status"], json!(["ERROR"]));
    }
}
