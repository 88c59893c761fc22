//! Checks by a program of the site behind a Unix socket, in any language: `JobSubmitPlugins=unix:/run/site/job_submit.sock`.
//!
//! For each job one connection: a line of JSON is sent, and one is read.
//!
//! ```text
//! {"call":"job_submit","submit_uid":1001,"job_desc":{"time_limit":10,...},"part_list":{"debug":{"max_time":60,...}}}
//! {"return":0,"messages":["queued for the night"],"job_desc":{"partition":"night"}}
//! ```
//!
//! Fields have the names, units and values of `job_submit.lua`; those that are not set are left out or one of the `NO_VAL`s. For a
//! change of a job, `call` is `job_modify`, `job_desc` has what changes, and `job_rec` is the job. In the answer, `return` is 0 or one
//! of Slurm's error numbers, `job_desc` has the fields to set. Whatever goes wrong refuses the request.

use crate::{
    fields::{Desc, FIELDS, Field, field, of_change},
    lua::{Called, TIME_LIMIT},
    shown::{JOB, PARTITION, PartitionShown, Row},
    value::Value,
};
use garrick_frame::line;
use garrick_model::{messages::command::JobChange, refusal::Refusal, spec::JobSpec, view::JobView};
use serde_bytes::ByteBuf;
use serde_json::{Map, Number, Value as Json, json};
use std::{io, path::Path};

/// Longest answer, in bytes: a script and an environment fit.
const MOST_OF_ANSWER: u64 = 16 << 20;

/// Has the program check a new job.
pub fn submit(path: &Path, desc: Desc, partitions: &[PartitionShown]) -> Result<Called<JobSpec>, Refusal> {
    let mut question = question("job_submit", &desc, partitions);
    let mut answer = ask(path, &mut question)?;
    let mut spec = desc.spec;
    for (field, value) in fields_of(path, &mut answer)? {
        let Some(set) = field.set else { return Err(wrong(path, &format!("{} cannot be set", field.name))) };
        set(&mut spec, &value).map_err(|e| wrong(path, &format!("{}: {e}", field.name)))?;
    }
    called(path, &answer, spec)
}

/// Has the program check a change of this job.
pub fn modify(
    path: &Path,
    desc: Desc,
    (job, change): (&JobView, &JobChange),
    partitions: &[PartitionShown],
) -> Result<Called<JobChange>, Refusal> {
    let desc = Desc { spec: of_change(change), is_change: true, ..desc };
    let mut question = question("job_modify", &desc, partitions);
    question.insert("job_rec".to_owned(), record(JOB, job));
    let mut answer = ask(path, &mut question)?;
    let (mut spec, mut change) = (desc.spec, change.clone());
    for (field, value) in fields_of(path, &mut answer)? {
        let Some((set, take)) = field.set.zip(field.change) else {
            return Err(wrong(path, &format!("{} cannot be set in a change", field.name)));
        };
        set(&mut spec, &value).map_err(|e| wrong(path, &format!("{}: {e}", field.name)))?;
        take(&mut change, &spec);
    }
    called(path, &answer, change)
}

fn question(call: &str, desc: &Desc, partitions: &[PartitionShown]) -> Map<String, Json> {
    let of_job = FIELDS.iter().filter_map(|field| Some((field.name.to_owned(), to_json((field.get)(desc))?)));
    let of_partition = |p: &PartitionShown| (p.view.config.name.clone(), record(PARTITION, p));
    let parts = [
        ("call", json!(call)),
        ("submit_uid", json!(desc.uid)),
        ("job_desc", Json::Object(of_job.collect())),
        ("part_list", Json::Object(partitions.iter().map(of_partition).collect())),
    ];
    parts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn record<T>(rows: &[Row<T>], of: &T) -> Json {
    Json::Object(rows.iter().filter_map(|(name, get)| Some(((*name).to_owned(), to_json(get(of))?))).collect())
}

/// `None` for nil.
fn to_json(value: Value) -> Option<Json> {
    let text = |bytes: &[u8]| Json::String(String::from_utf8_lossy(bytes).into_owned());
    Some(match value {
        Value::Nil => return None,
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and in range")]
        Value::Number(number) if number.fract() == 0.0 && (0.0..9.2e18).contains(&number) => json!(number as u64),
        Value::Number(number) => Json::Number(Number::from_f64(number)?),
        Value::Flag(flag) => Json::Bool(flag),
        Value::Text(bytes) => text(&bytes),
        Value::Words(words) => Json::Array(words.iter().map(|word| text(word)).collect()),
        Value::Environment(all) => {
            let pair = |entry: &ByteBuf| {
                let at = entry.iter().position(|byte| *byte == b'=')?;
                Some((String::from_utf8_lossy(&entry[..at]).into_owned(), text(&entry[at + 1..])))
            };
            Json::Object(all.iter().filter_map(pair).collect())
        }
    })
}

fn of_json(value: Json) -> Option<Value> {
    Some(match value {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::Flag(flag),
        Json::Number(number) => Value::Number(number.as_f64()?),
        Json::String(text) => Value::from(text),
        Json::Object(all) => {
            let entry = |(name, value): (String, Json)| Some(ByteBuf::from(format!("{name}={}", value.as_str()?)));
            Value::Environment(all.into_iter().map(entry).collect::<Option<_>>()?)
        }
        Json::Array(_) => return None,
    })
}

fn ask(path: &Path, question: &mut Map<String, Json>) -> Result<Map<String, Json>, Refusal> {
    let exchange = || line::exchange(path, serde_json::to_vec(question)?, TIME_LIMIT, MOST_OF_ANSWER);
    let answer = exchange().map_err(|error: io::Error| wrong(path, &error.to_string()))?;
    match serde_json::from_slice(&answer) {
        Ok(Json::Object(answer)) => Ok(answer),
        Ok(_) => Err(wrong(path, "its answer is no JSON object")),
        Err(error) => Err(wrong(path, &format!("its answer is no line of JSON: {error}"))),
    }
}

/// The fields that the answer sets.
fn fields_of(path: &Path, answer: &mut Map<String, Json>) -> Result<Vec<(&'static Field, Value)>, Refusal> {
    let fields = match answer.remove("job_desc") {
        None | Some(Json::Null) => return Ok(Vec::new()),
        Some(Json::Object(fields)) => fields,
        Some(_) => return Err(wrong(path, "job_desc is no JSON object")),
    };
    let known = |(name, value): (String, Json)| {
        let value = of_json(value).ok_or_else(|| wrong(path, &format!("{name} cannot be a list")))?;
        Ok((field(&name).ok_or_else(|| wrong(path, &format!("a job has no field {name}")))?, value))
    };
    fields.into_iter().map(known).collect()
}

fn called<T>(path: &Path, answer: &Map<String, Json>, request: T) -> Result<Called<T>, Refusal> {
    let code = answer.get("return").and_then(Json::as_i64).and_then(|code| i32::try_from(code).ok());
    let Some(code) = code else { return Err(wrong(path, "its answer has no number \"return\"")) };
    let lines = answer.get("messages").and_then(Json::as_array).into_iter().flatten();
    let said = lines.filter_map(Json::as_str).map(str::to_owned).collect();
    Ok(Called { request, code, said })
}

/// The administrator reads why in the log.
fn wrong(path: &Path, error: &str) -> Refusal {
    tracing::error!(path = %path.display(), error, "job_submit.failed");
    Refusal::BySite {
        number: -1,
        said: vec!["the site's own check of jobs failed; the controller's log says why".to_owned()],
    }
}

#[cfg(test)]
mod tests;
