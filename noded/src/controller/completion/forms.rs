//! How a run that is over is written: a line for `jobcomp/filetxt`, variables for `jobcomp/script`, a document for
//! `jobcomp/elasticsearch` and `jobcomp/kafka`, a row for `jobcomp/mysql`. Names and forms are those that Slurm 26.05 (the document
//! and the row: 22.05) was seen to write.

use garrick_accountant::completion::CompletionRow;
use garrick_accounts::{
    row::JobRow,
    tres::{BILLING, CPU, MEM, NODE, Tres},
};
use garrick_events::{progress::Position, records::job::JobRecord};
use garrick_model::{
    patterns::default_output,
    state::JobState,
    time::{TimeLimit, Timestamp},
    visible::written_out,
};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// `ARRAYTASKID` of what is no task (`NO_VAL` of Slurm).
const NO_TASK: u32 = u32::MAX - 1;

/// What a document has only of a run that is over.
const OF_THE_END: [&str; 5] = ["@end", "elapsed", "derived_ec", "exit_code", "cpu_hours"];

/// A run that is over, or has started where the site wants to hear of that too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// What accounting keeps of it.
    pub row: JobRow,
    /// What is known of its request only as long as the controller knows the job.
    pub more: More,
    /// It has only started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starts: bool,
}

/// What a record has, and a row does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct More {
    /// CPUs of a task.
    pub cpus_per_task: u32,
    /// Tasks on a node, if that was asked for.
    pub tasks_per_node: u32,
    /// Fewest CPUs.
    pub min_cpus: u32,
    /// Fewest nodes.
    pub min_nodes: u32,
    /// `--nice`.
    pub nice: i32,
    /// `--time-min`.
    pub time_min: Option<TimeLimit>,
    /// `--switches`: how many, and how long it waits for them, seconds.
    pub switches: Option<(u32, u64)>,
    /// `--delay-boot`, seconds.
    pub delay_boot_secs: u64,
    /// Dependencies that were left.
    pub dependency: String,
    /// Words of the command.
    pub argv: Vec<String>,
    /// The batch script, where it is written.
    pub script: Option<String>,
}

impl More {
    /// Of a job's record, with the script or without.
    pub fn of(record: &JobRecord, with_script: bool) -> Self {
        let spec = &record.spec;
        let script = spec.script.as_ref().filter(|_| with_script);
        Self {
            cpus_per_task: record.resolved.cpus_per_task,
            tasks_per_node: spec.tasks_per_node.unwrap_or(0),
            min_cpus: record.resolved.cpus,
            min_nodes: record.resolved.min_nodes,
            nice: spec.nice,
            time_min: spec.time_min,
            switches: spec.topology.switches.map(|most| (most, spec.topology.switches_wait_secs.unwrap_or(0))),
            delay_boot_secs: spec.delay_boot_secs.unwrap_or(0),
            dependency: record.dependencies.to_string(),
            argv: spec.argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
            script: script.map(|script| String::from_utf8_lossy(script).into_owned()),
        }
    }
}

/// In minutes, as a text.
fn minutes(limit: TimeLimit) -> String {
    match limit {
        TimeLimit::Unlimited => "UNLIMITED".to_owned(),
        TimeLimit::Secs(secs) => secs.div_ceil(60).to_string(),
    }
}

/// A line for a row of a database: the keys of [`Completed::line`] of which the table has something. It has no time of submission:
/// Slurm 22.05's sacct shows the start in its place.
pub(super) fn line_of(row: &CompletionRow, zone: &TimeZone) -> String {
    let state = JobState::of_number(row.state).map_or_else(|| row.state.to_string(), |state| state.word().to_owned());
    let at = |secs: i64| Timestamp::from_secs(secs).text(zone);
    let line = format!(
        "JobId={} UserId={}({}) GroupId={}({}) Name={} JobState={state} Partition={} TimeLimit={} StartTime={} EndTime={} \
         NodeList={} NodeCnt={} ProcCnt={} SubmitTime={}",
        row.job,
        row.user,
        row.uid,
        row.group,
        row.gid,
        row.name,
        row.partition,
        row.limit,
        at(row.start),
        at(row.end),
        row.nodes,
        row.node_count,
        row.cpus,
        at(row.start),
    );
    format!("{}\n", written_out(&line))
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

fn told(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}

/// As `scontrol show job` has it: in the order of Slurm's numbers of TRES.
pub(super) fn in_order(tres: &Tres) -> String {
    let known = [CPU, MEM, NODE, BILLING];
    let first = known.iter().filter_map(|name| Some((*name, tres.iter().find(|(known, _)| known == name)?.1)));
    let others = tres.iter().filter(|(name, _)| !known.contains(name));
    let one = |(name, count): (&str, u64)| [(name, count)].into_iter().collect::<Tres>().to_string();
    first.chain(others).map(one).collect::<Vec<_>>().join(",")
}

impl Completed {
    /// Its last moment; a run that never ended has none.
    pub(super) fn end(&self) -> Timestamp {
        self.row.end.unwrap_or(self.row.submit)
    }

    /// When it started; what never ran ends as it starts, as `scontrol` shows it.
    pub(super) fn start(&self) -> Timestamp {
        self.row.start.unwrap_or_else(|| self.end())
    }

    pub(super) fn partition(&self) -> String {
        self.row.partition.clone().unwrap_or_else(|| self.row.partitions.join(","))
    }

    /// The amounts of the run, or of the request of what never ran.
    fn tres(&self) -> &Tres {
        if self.row.start.is_some() { &self.row.allocated } else { &self.row.requested }
    }

    /// A line for a text file, with its newline.
    pub fn line(&self, zone: &TimeZone) -> String {
        let row = &self.row;
        let limit = minutes(row.time_limit);
        let eligible = row.eligible.map_or_else(|| "unknown".to_owned(), |at| at.text(zone));
        let mut line = format!(
            "JobId={} UserId={}({}) GroupId={}({}) Name={} JobState={} Partition={} TimeLimit={limit} StartTime={} EndTime={} \
             NodeList={} NodeCnt={} ProcCnt={} WorkDir={} ReservationName={} Tres={} Account={} QOS={} WcKey={} Cluster={} \
             SubmitTime={} EligibleTime={eligible}",
            row.job,
            row.user,
            row.uid,
            row.group,
            row.gid,
            row.name,
            row.state.word(),
            self.partition(),
            self.start().text(zone),
            self.end().text(zone),
            or(&row.nodes, "(null)"),
            row.allocated.count(NODE),
            row.allocated.count(CPU),
            row.work_dir,
            told(row.reservation.as_ref()),
            in_order(self.tres()),
            told(row.account.as_ref()),
            told(row.qos.as_ref()),
            told(row.wckey.as_ref()),
            row.cluster,
            row.submit.text(zone),
        );
        if let Some(task) = row.array_task {
            let _ = write!(line, " ArrayJobId={} ArrayTaskId={}", task.array_job, task.index);
        } else if let Some(waiting) = &row.waiting {
            let _ = write!(line, " ArrayJobId={} ArrayTaskId={}", row.job, waiting);
        }
        if let Some((leader, offset)) = row.het {
            let _ = write!(line, " HetJobId={leader} HetJobOffset={offset}");
        }
        let _ = write!(line, " DerivedExitCode={} ExitCode={} ", row.derived, row.exit);
        // A name or a folder may have a newline in it: a line is one job.
        format!("{}\n", written_out(&line))
    }

    /// Variables for a script.
    pub fn variables(&self) -> Vec<(String, String)> {
        let row = &self.row;
        let (array, task) = row.array_task.map_or((0, NO_TASK), |task| (task.array_job.0, task.index));
        let seconds = |at: Option<Timestamp>| at.map_or(0, Timestamp::secs).to_string();
        let batch_output = default_output(row.array_task.is_some());
        let mut variables = vec![
            ("JOBID", row.job.to_string()),
            ("SLUID", row.sluid.to_string()),
            ("ARRAYJOBID", array.to_string()),
            ("ARRAYTASKID", task.to_string()),
            ("UID", row.uid.to_string()),
            ("USERNAME", row.user.clone()),
            ("GID", row.gid.to_string()),
            ("GROUPNAME", row.group.clone()),
            ("JOBNAME", row.name.clone()),
            ("JOBSTATE", row.state.word().to_owned()),
            ("STATEREASONPREV", row.reason.text().into_owned()),
            ("PARTITION", self.partition()),
            ("QOS", told(row.qos.as_ref()).to_owned()),
            ("ACCOUNT", told(row.account.as_ref()).to_owned()),
            ("CLUSTER", row.cluster.clone()),
            ("RESERVATION", told(row.reservation.as_ref()).to_owned()),
            ("CONSTRAINTS", told(row.constraint.as_ref()).to_owned()),
            ("DEPENDENCY", self.more.dependency.clone()),
            ("LIMIT", row.time_limit.scontrol_text()),
            ("SUBMIT", seconds(Some(row.submit))),
            ("ELIGIBLE", seconds(row.eligible)),
            ("START", seconds(Some(self.start()))),
            ("END", seconds(Some(self.end()))),
            ("NODES", row.nodes.clone()),
            ("NODECNT", row.allocated.count(NODE).to_string()),
            ("PROCS", row.allocated.count(CPU).to_string()),
            ("TRES", in_order(self.tres())),
            ("EXITCODE", row.exit.to_string()),
            ("DERIVED_EC", row.derived.to_string()),
            ("BATCH", if row.batch { "yes" } else { "no" }.to_owned()),
            ("WORK_DIR", row.work_dir.clone()),
        ];
        if row.batch {
            variables.push(("STDIN", row.stdin.clone().unwrap_or_else(|| "/dev/null".to_owned())));
            variables.push(("STDOUT", row.stdout.clone().unwrap_or_else(|| batch_output.to_owned())));
            variables.extend(row.stderr.clone().map(|path| ("STDERR", path)));
        }
        if let Some((leader, offset)) = row.het {
            variables.extend([("HETJOBID", leader.to_string()), ("HETJOBOFFSET", offset.to_string())]);
        }
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// A row of a table; where in the log the run ended.
    pub fn row(&self, position: Position) -> CompletionRow {
        let row = &self.row;
        CompletionRow {
            position,
            job: row.job.0,
            start: self.start().secs(),
            end: self.end().secs(),
            uid: row.uid,
            user: row.user.clone(),
            gid: row.gid,
            group: row.group.clone(),
            name: row.name.clone(),
            state: row.state.number(),
            partition: self.partition(),
            limit: minutes(row.time_limit),
            nodes: row.nodes.clone(),
            node_count: row.allocated.count(NODE),
            cpus: row.allocated.count(CPU),
        }
    }

    /// A document for a search server or for Kafka. Times are UTC, as such servers take them without a zone. That of a start has
    /// less in it.
    pub fn document(&self, comment: bool, script: bool) -> Value {
        let row = &self.row;
        let at = |time: Timestamp| Value::from(time.text(&TimeZone::UTC));
        let ran = self.end().since(self.start()).as_secs();
        let cpus = row.allocated.count(CPU);
        let eligible = row.eligible.unwrap_or(row.submit);
        let (leader, offset) = row.het.map_or((0, 0), |(leader, offset)| (leader.0, offset));
        #[allow(clippy::cast_precision_loss)]
        let cpu_hours = (cpus * ran) as f64 / 3600.0;
        let mut document = json!({
            "jobid": row.job.0, "sluid": row.sluid.to_string(), "container": "", "username": row.user, "user_id": row.uid,
            "groupname": row.group, "group_id": row.gid, "@start": at(self.start()), "@end": at(self.end()),
            "elapsed": ran, "partition": self.partition(), "alloc_node": row.submit_host,
            "nodes": or(&row.nodes, "(null)"), "total_cpus": cpus, "total_nodes": row.allocated.count(NODE),
            "derived_ec": row.derived.to_string(), "exit_code": row.exit.to_string(), "state": row.state.word(),
            "cpu_hours": cpu_hours, "het_job_id": leader, "het_job_offset": offset, "@submit": at(row.submit),
            "@eligible": at(eligible), "@queue_wait": self.start().since(eligible).as_secs(),
            "work_dir": row.work_dir, "ntasks": row.tasks, "ntasks_per_node": self.more.tasks_per_node,
            "cpus_per_task": self.more.cpus_per_task, "job_name": row.name, "tres_req": in_order(&row.requested),
            "tres_alloc": in_order(&row.allocated), "cluster": row.cluster,
        });
        if let Value::Object(fields) = &mut document {
            self.add_if_known(fields, comment, script);
            if self.starts {
                fields.retain(|name, _| !OF_THE_END.contains(&name.as_str()));
            }
        }
        document
    }

    /// What not every run has.
    fn add_if_known(&self, fields: &mut Map<String, Value>, comment: bool, script: bool) {
        let row = &self.row;
        let mut add = |name: &str, value: Option<Value>| {
            fields.extend(value.map(|value| (name.to_owned(), value)));
        };
        let text = |text: &Option<String>| text.clone().map(Value::from);
        add("array_job_id", row.array_task.map(|task| task.array_job.0.into()));
        add("array_task_id", row.array_task.map(|task| task.index.into()));
        // As in Slurm, in seconds.
        add("time_limit", row.time_limit.duration().map(|limit| limit.as_secs().into()));
        add("std_in", text(&row.stdin));
        add("std_out", text(&row.stdout));
        add("std_err", text(&row.stderr));
        add("account", text(&row.account));
        add("qos", text(&row.qos));
        add("wc_key", text(&row.wckey));
        add("reservation_name", text(&row.reservation));
        add("constraints", text(&row.constraint));
        add("comment", text(&row.comment).filter(|_| comment));
        add("script", text(&self.more.script).filter(|_| script));
    }
}

#[cfg(test)]
#[path = "forms_test.rs"]
mod tests;
