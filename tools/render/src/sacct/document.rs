//! Records of accounting as JSON, in the shape of data parser v0.0.45.

use super::{
    choice::{Choice, Flag},
    entry::{Entry, Part, Span},
    fields::{Stream, first_run, planned_secs, qos_asked, shared, stream},
    state::RecordState,
    usage::{self, Sum},
};
use crate::{
    json::{Meta, document, exit, minutes, number, optional, skeleton, time},
    words,
};
use garrick_accounts::{
    messages::JobWithSteps,
    row::JobRow,
    step::StepRecord,
    tres::{CPU, NODE, Tres},
};
use garrick_model::{
    cpu_freq::Frequency,
    hostlist,
    resources::MemoryRequest,
    spec::ArraySpec,
    time::Timestamp,
    usage::{Metric, TaskUsage},
};
use serde_json::{Value, json};

/// What the document needs beside the rows.
#[derive(Clone, Copy)]
pub struct Setting<'s> {
    /// When the service answered.
    pub now: Timestamp,
    /// Names of users.
    pub user: &'s dyn Fn(u32) -> String,
}

/// The document, without its jobs.
pub fn empty(meta: &Meta) -> Value {
    let mut meta = document("jobs", Vec::new(), None, meta);
    meta["meta"]["plugin"]["accounting_storage"] = json!("accounting_storage/slurmdbd");
    meta
}

/// A job of it.
pub fn job(of: &JobWithSteps, choice: &Choice, set: &Setting<'_>) -> Value {
    let row = &of.row;
    let steps: Vec<Entry<'_>> =
        choice.entries(of).into_iter().filter(|entry| matches!(entry.part, Part::Step(_))).collect();
    let mut used = TaskUsage::default();
    steps.iter().for_each(|step| used.add(step.used));
    let whole = Entry { row, part: Part::Job, used };
    let mut j = skeleton(include_str!("../json/skeleton/accounting_job.json"));
    texts(&mut j, row);
    amounts(&mut j, row);
    identity(&mut j, row, set);
    j["time"] = times(row, &whole, set);
    j["exit_code"] = exit(row.exit);
    j["derived_exit_code"] = exit(row.derived);
    j["state"] = json!({"current": [RecordState::of(row).word()], "reason": row.waited_for.text()});
    j["flags"] = json!(Flag::of(row).iter().map(|flag| flag_word(*flag)).collect::<Vec<_>>());
    j["steps"] = steps.iter().map(|entry| step(entry, set)).collect();
    for (name, which) in [("stdin", Stream::In), ("stdout", Stream::Out), ("stderr", Stream::Err)] {
        j[name] = json!(stream(row, which, false));
        j[format!("{name}_expanded")] = json!(stream(row, which, true));
    }
    j
}

fn text(text: &Option<String>) -> Value {
    json!(text.as_deref().unwrap_or(""))
}

fn texts(j: &mut Value, row: &JobRow) {
    j["account"] = text(&row.account);
    j["comment"] = json!({
        "administrator": text(&row.admin_comment),
        "job": text(&row.comment),
        "system": text(&row.system_comment),
    });
    j["constraints"] = text(&row.constraint);
    j["extra"] = text(&row.extra);
    j["failed_node"] = text(&row.failed_node);
    j["group"] = json!(row.group);
    j["licenses"] = text(&row.licenses);
    j["mcs"]["label"] = text(&row.mcs_label);
    j["name"] = json!(row.name);
    j["nodes"] = json!(if row.nodes.is_empty() { "None assigned" } else { &row.nodes });
    j["partition"] = json!(row.partition.clone().unwrap_or_else(|| row.partitions.join(",")));
    j["qos"] = text(&row.qos);
    j["qosreq"] = json!(qos_asked(row));
    j["reservation"]["name"] = text(&row.reservation);
    j["reservation"]["requested"] = json!(row.requested_reservations.join(","));
    j["submit_line"] = json!(row.submit_line);
    j["user"] = json!(row.user);
    j["wckey"]["wckey"] = text(&row.wckey);
    j["working_directory"] = json!(row.work_dir);
}

fn amounts(j: &mut Value, row: &JobRow) {
    j["allocation_nodes"] = json!(row.allocated.count(NODE));
    j["priority"] = number(row.priority);
    j["hold"] = json!(row.priority == 0);
    j["required"]["CPUs"] = json!(row.requested.count(CPU));
    let (per_cpu, per_node) = match row.requested_memory {
        MemoryRequest::PerCpu(memory) => (Some(memory.0), None),
        MemoryRequest::PerNode(memory) => (None, Some(memory.0)),
        MemoryRequest::All => (None, Some(0)),
        MemoryRequest::Default => (None, None),
    };
    j["required"]["memory_per_cpu"] = optional(per_cpu);
    j["required"]["memory_per_node"] = optional(per_node);
    j["restart_cnt"] = json!(row.restarts);
    j["segment_size"] = json!(row.segment.unwrap_or(0));
    j["tres"] = json!({"allocated": tres(&row.allocated_with_energy()), "requested": tres(&row.requested)});
    let gres = |(name, count): (&str, u64)| Some(format!("{}:{count}", name.strip_prefix("gres/")?));
    j["used_gres"] = json!(row.allocated.iter().filter_map(gres).collect::<Vec<_>>().join(","));
}

fn identity(j: &mut Value, row: &JobRow, set: &Setting<'_>) {
    let array = row.array_task.map(|task| task.array_job).or_else(|| row.waiting.as_ref().map(|_| row.job));
    j["array"]["job_id"] = json!(array.map_or(0, |job| job.0));
    j["array"]["task_id"] = optional(row.array_task.map(|task| task.index.into()));
    if let Some(waiting) = row.waiting.as_ref().filter(|_| row.array_task.is_none()) {
        j["array"]["task"] = json!(bits(waiting));
        j["array"]["limits"]["max"]["running"]["tasks"] = json!(waiting.limit.unwrap_or(0));
    }
    j["association"]["account"] = text(&row.account);
    j["association"]["cluster"] = json!(row.cluster);
    j["association"]["user"] = json!(row.user);
    j["association"]["id"] = json!(row.association.map_or(0, |id| id.0));
    (j["oversubscribe"], j["exclusive"]) = (json!(shared(row).0), json!(shared(row).1));
    j["reservation"]["id"] = json!(row.ids.reservation.unwrap_or(0));
    // The default key of the user is marked so.
    let assigned = row.wckey.as_deref().is_some_and(|key| key.starts_with('*'));
    j["wckey"]["flags"] = if assigned { json!(["ASSIGNED_DEFAULT"]) } else { json!([]) };
    j["cluster"] = json!(row.cluster);
    j["het"]["job_id"] = json!(row.het.map_or(0, |(leader, _)| leader.0));
    j["het"]["job_offset"] = optional(row.het.map(|(_, offset)| offset.into()));
    j["job_id"] = json!(row.job.0);
    j["kill_request_user"] = json!(row.cancelled_by.map(set.user).unwrap_or_default());
    j["sluid"] = json!(row.sluid.to_string());
    j["original_sluid"] = json!(first_run(row).to_string());
}

/// Tasks as a number in hexadecimal figures with a bit for each of them, `0x3EA`; of too many, their ranges.
fn bits(tasks: &ArraySpec) -> String {
    /// Most figures: more are no use to anybody.
    const MOST_FIGURES: usize = 4096;
    let most = tasks.indices().max().unwrap_or(0) as usize;
    if most / 4 >= MOST_FIGURES {
        return tasks.to_string();
    }
    let mut figures = vec![0_u8; most / 4 + 1];
    tasks.indices().for_each(|index| figures[index as usize / 4] |= 1 << (index % 4));
    let figures: String = figures.iter().rev().map(|figure| format!("{figure:X}")).collect();
    format!("0x{figures}")
}

fn secs(at: Option<Timestamp>) -> i64 {
    at.map_or(0, Timestamp::secs)
}

fn cpu_times(t: &mut Value, used: TaskUsage) {
    let time = |micros: u64| json!({"seconds": micros / 1_000_000, "microseconds": micros % 1_000_000});
    t["system"] = time(used.system_us);
    t["user"] = time(used.user_us);
    t["total"] = time(used.cpu_us());
}

fn times(row: &JobRow, whole: &Entry<'_>, set: &Setting<'_>) -> Value {
    let Span { start, end, secs: elapsed } = whole.span(set.now, None);
    let mut t = json!({
        "elapsed": elapsed,
        "eligible": secs(row.eligible),
        "end": secs(end),
        "start": secs(start),
        "submission": row.submit.secs(),
        "suspended": whole.suspended_secs(set.now),
        "planned": optional(row.start.is_some().then(|| planned_secs(row, set.now))),
        "limit": minutes(row.time_limit),
    });
    cpu_times(&mut t, whole.used);
    t
}

fn step(entry: &Entry<'_>, set: &Setting<'_>) -> Value {
    let Some(step) = entry.step() else { return Value::Null };
    let mut s = skeleton(include_str!("../json/skeleton/step.json"));
    let span = entry.span(set.now, None);
    s["time"]["elapsed"] = json!(span.secs);
    s["time"]["start"] = time(span.start);
    s["time"]["end"] = time(span.end);
    s["time"]["suspended"] = json!(entry.suspended_secs(set.now));
    s["time"]["limit"] = minutes(step.time_limit);
    cpu_times(&mut s["time"], step.usage);
    s["exit_code"] = exit(step.exit);
    let names = hostlist::expand(&step.nodes).unwrap_or_default();
    s["nodes"] = json!({"count": step.allocated.count(NODE), "range": step.nodes, "list": names});
    s["tasks"]["count"] = json!(step.tasks);
    s["state"] = json!([words::step_state(step.state)]);
    s["step"]["id"] = json!(entry.raw_id());
    s["step"]["name"] = json!(step.name);
    s["submit_line"] = json!(step.submit_line);
    s["tres"]["allocated"] = tres(&step.allocated);
    for (name, metrics) in [("requested", usage::IN), ("consumed", usage::OUT)] {
        s["tres"][name] = used(step, metrics);
    }
    s["statistics"]["energy"]["consumed"] = number(step.usage.energy_joules);
    s["CPU"]["requested_frequency"] = json!({"min": number(0_u32), "max": number(0_u32)});
    if let Some(asked) = step.cpu_freq {
        let khz = |of: Option<Frequency>| match of {
            Some(Frequency::Khz(khz)) => number(khz),
            _ => number(0_u32),
        };
        s["CPU"]["requested_frequency"] = json!({"min": khz(asked.least()), "max": khz(asked.greatest())});
        s["CPU"]["governor"] = json!(asked.governor().name());
    }
    s
}

/// What tasks used: CPU time in milliseconds, memory in bytes.
fn used(step: &StepRecord, metrics: &[Metric]) -> Value {
    let sum = |sum| {
        let items = usage::counts(step, metrics, sum).into_iter().map(|(name, count)| tres_item(name, count));
        in_order(items.collect())
    };
    json!({
        "max": sum(Sum::Greatest),
        "min": sum(Sum::Least),
        "average": sum(Sum::Average),
        "total": sum(Sum::Total),
    })
}

/// Numbers of the resources that Slurm always has; others count from 1001.
const TRES_IDS: [(&str, u32); 8] =
    [("cpu", 1), ("mem", 2), ("energy", 3), ("node", 4), ("billing", 5), ("fs/disk", 6), ("vmem", 7), ("pages", 8)];

fn tres_item(name: &str, count: u64) -> Value {
    let id = TRES_IDS.iter().find(|(known, _)| *known == name).map_or(0, |(_, id)| *id);
    let (kind, name) = name.split_once('/').unwrap_or((name, ""));
    json!({"type": kind, "name": name, "id": id, "count": count})
}

fn tres(tres: &Tres) -> Value {
    in_order(tres.iter().map(|(name, count)| tres_item(name, count)).collect())
}

fn in_order(mut items: Vec<Value>) -> Value {
    items.sort_by_key(|item| item["id"].as_u64().filter(|id| *id > 0).unwrap_or(u64::MAX));
    Value::Array(items)
}

const fn flag_word(flag: Flag) -> &'static str {
    match flag {
        Flag::None => "NONE",
        Flag::SchedSubmit => "STARTED_ON_SUBMIT",
        Flag::SchedMain => "STARTED_ON_SCHEDULE",
        Flag::SchedBackfill => "STARTED_ON_BACKFILL",
        Flag::StartReceived => "START_RECEIVED",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        json::{Form, Version, shapes_test::differences},
        sacct::choice::tests::choice,
        testing::{
            accounting::{at, job, job_12, waiting, with_steps},
            meta,
        },
    };
    use garrick_model::ids::{ArrayTask, JobId};

    fn user(uid: u32) -> String {
        format!("u{uid}")
    }

    fn written(rows: &[JobWithSteps], form: Form) -> Value {
        let mut written = Vec::new();
        let mut listed = form.of_accounting(empty(&meta())).unwrap();
        for row in rows {
            let job = super::job(row, &choice(), &Setting { now: at(100), user: &user });
            listed.write(&mut written, &form.accounting_job(job).unwrap()).unwrap();
        }
        listed.end(&mut written).unwrap();
        serde_json::from_slice(&written).unwrap()
    }

    fn made(rows: &[JobWithSteps]) -> Value {
        written(rows, Form::default())
    }

    #[test]
    fn documents_have_the_properties_and_types_of_both_versions() {
        for (version, shapes) in [
            (Version::V44, include_str!("../json/shapes/v0.0.44.json")),
            (Version::V45, include_str!("../json/shapes/v0.0.45.json")),
        ] {
            let document = written(&[job_12()], Form { version, yaml: false });
            let shapes: Value = serde_json::from_str(shapes).unwrap();
            let mut found = Vec::new();
            let list = document["jobs"].as_array().unwrap();
            assert_eq!(list.len(), 1);
            differences(&list[0], &shapes["accounting_jobs"], "jobs", &mut found);
            assert!(found.is_empty(), "{version:?}: {found:#?}");
        }
    }

    /// As Slurm 26.05.3 wrote them.
    #[test]
    fn values_are_those_of_the_job() {
        let document = made(&[job_12()]);
        let job = &document["jobs"][0];
        assert_eq!(job["exit_code"]["status"], json!(["SUCCESS"]));
        assert_eq!(job["derived_exit_code"]["return_code"]["number"], 7);
        assert_eq!(job["state"], json!({"current": ["COMPLETED"], "reason": "None"}));
        assert_eq!(job["required"]["memory_per_cpu"], json!({"set": true, "infinite": false, "number": 100}));
        assert_eq!(
            job["tres"]["allocated"],
            json!([
                {"type": "cpu", "name": "", "id": 1, "count": 4},
                {"type": "mem", "name": "", "id": 2, "count": 400},
                {"type": "node", "name": "", "id": 4, "count": 1},
                {"type": "billing", "name": "", "id": 5, "count": 4},
            ])
        );
        assert_eq!(job["time"]["elapsed"], 8);
        assert_eq!(job["time"]["limit"], json!({"set": true, "infinite": false, "number": 10}));
        assert_eq!(job["time"]["system"], json!({"seconds": 0, "microseconds": 82_000}));
        assert_eq!(job["steps"][2]["time"]["limit"], json!({"set": false, "infinite": true, "number": 0}));
        assert_eq!(job["steps"][0]["step"]["id"], "12.batch");
        let used = &job["steps"][0]["tres"]["requested"];
        let mem = json!({"type": "mem", "name": "", "id": 2, "count": 33_292 << 10});
        assert_eq!((&used["max"][1], &used["min"][1], &used["total"][1]), (&mem, &mem, &mem));
        let names = |list: &Value| list.as_array().unwrap().iter().map(|item| item["id"].clone()).collect::<Vec<_>>();
        assert_eq!(names(&used["average"]), [1, 2, 3, 6, 7, 8].map(Value::from));
        // No task of it was measured.
        let energy = json!([{"type": "energy", "name": "", "id": 3, "count": 0}]);
        assert_eq!(
            job["steps"][2]["tres"]["consumed"],
            json!({"max": [], "min": [], "average": energy, "total": energy})
        );
        assert_eq!(document["meta"]["plugin"]["accounting_storage"], "accounting_storage/slurmdbd");
        assert_eq!(document["errors"], json!([]));
    }

    #[test]
    fn arrays_and_het_jobs_are_told_as_slurm_tells_them() {
        let task = Some(ArrayTask { array_job: JobId(9), index: 1 });
        let waits = JobRow { waiting: Some("1,3,5-9".parse().unwrap()), ..waiting(225, "arrp") };
        let rows = [
            with_steps(JobRow { array_task: task, ..job(18, "arr", 0, 1) }, []),
            with_steps(waits, []),
            with_steps(JobRow { het: Some((JobId(10), 1)), cancelled_by: Some(7), ..job(11, "het", 0, 1) }, []),
        ];
        let document = made(&rows);
        let jobs = &document["jobs"];
        let none = json!({"max": {"running": {"tasks": 0}}});
        let id = |set, number: u32| json!({"set": set, "infinite": false, "number": number});
        assert_eq!(jobs[0]["array"], json!({"job_id": 9, "limits": none, "task_id": id(true, 1), "task": ""}));
        assert_eq!(jobs[1]["array"], json!({"job_id": 225, "limits": none, "task_id": id(false, 0), "task": "0x3EA"}));
        assert_eq!(jobs[2]["het"], json!({"job_id": 10, "job_offset": id(true, 1)}));
        assert_eq!(jobs[2]["kill_request_user"], "u7");
        assert_eq!(made(&[])["jobs"], json!([]));
    }
}
