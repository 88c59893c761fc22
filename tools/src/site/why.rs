//! `garrick why`: what keeps jobs waiting: what stands first in their way, what would move that, and when.

use super::SiteError;
use crate::{
    options::table::Arg,
    output::{self, Console},
    query::{
        arguments::{self, Outcome, Table, option},
        asking::Contact,
        choices,
    },
    render::words,
};
use garrick_model::{
    messages::command::{CommandReply, CommandRequest},
    outlook::{Blocker, Outlook},
    state::Reason,
    time::short_duration,
    view::JobView,
};
use jiff::tz::TimeZone;
use serde_json::json;
use std::{ffi::OsString, sync::Arc};

static TABLE: Table = Table {
    program: "garrick why",
    purpose: "Say what keeps jobs waiting: what stands first in their way, what would move that, and when.",
    operands: "JOB...",
    options: &[option("json", None, Arg::None, "as a JSON array of objects")],
    misuse: 1,
};

/// Runs `garrick why`.
pub fn main(args: &[OsString], console: &Console) -> Result<i32, SiteError> {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return Ok(code),
    };
    let mut asked = Vec::new();
    for word in arguments.words() {
        asked.extend(choices::jobs(&word).map_err(|e| SiteError::Usage(e.to_string()))?);
    }
    if asked.is_empty() {
        return Err(SiteError::Usage("why takes the ids of jobs".to_owned()));
    }
    let mut cluster = Contact::open(console)?;
    let mut jobs = Vec::new();
    for selector in asked {
        let text = selector.job;
        match cluster.ask(&CommandRequest::list_jobs(vec![selector]))? {
            CommandReply::Jobs { jobs: found, .. } if found.is_empty() => {
                return Err(SiteError::Cluster(format!("Invalid job id specified: {text}")));
            }
            CommandReply::Jobs { jobs: found, .. } => jobs.extend(found),
            other => return Err(cluster.unexpected(&other).into()),
        }
    }
    let mut told: Vec<(Arc<JobView>, Option<Outlook>)> = Vec::new();
    for job in jobs {
        let outlook = match cluster.ask(&CommandRequest::Explain { job: job.id })? {
            CommandReply::Outlook(outlook) => outlook.map(|outlook| *outlook),
            other => return Err(cluster.unexpected(&other).into()),
        };
        told.push((job, outlook));
    }
    let zone = TimeZone::system();
    let written = output::stdout(|out| {
        if arguments.has("json") {
            let all: Vec<_> = told.iter().map(|(job, outlook)| as_json(job, outlook.as_ref())).collect();
            return writeln!(out, "{}", json!(all));
        }
        told.iter().try_for_each(|(job, outlook)| writeln!(out, "{}", text(job, outlook.as_ref(), &zone)))
    });
    Ok(output::finish(console, written, 0))
}

/// One or two lines about a job.
fn text(job: &JobView, outlook: Option<&Outlook>, zone: &TimeZone) -> String {
    let id = job.array_task.map_or_else(|| job.id.to_string(), |task| format!("{}_{}", task.array_job, task.index));
    if !job.state.waits() {
        return format!("Job {id} does not wait: it is {}.", words::job_state(job.state));
    }
    let reason = words::reason(&job.reason);
    let Some(outlook) = outlook else {
        return format!("Job {id} waits ({reason}): {}.", without_room(job, zone));
    };
    let Outlook { partition, start, nodes, planned, until, .. } = outlook;
    let first = format!(
        "Job {id} waits ({reason}) for {nodes} of partition {partition}, which it has reserved from {} on (plan of {}).",
        start.text(zone),
        planned.text(zone)
    );
    let first = match job.reason {
        Reason::Fragmentation => format!(
            "{first}\nIt could start now, but that would break up a block or leaf switch that is idle altogether \
             (topology_patience)."
        ),
        _ => match &job.spec.topology.switches {
            Some(switches) => format!("{first}\n{}", of_switches(*switches, job.spec.topology.switches_wait_secs)),
            None => first,
        },
    };
    let at = outlook.node.as_ref().map_or_else(String::new, |node| format!(" on {node}"));
    let until = until.text(zone);
    match &outlook.blocker {
        None => first,
        Some(Blocker::Running(other)) => {
            format!("{first}\nFirst in its way: job {other}{at}, until it ends; its limit is {until}.")
        }
        Some(Blocker::Ahead(other)) => {
            format!("{first}\nFirst in its way: job {other}{at}, which goes before it and is to be over at {until}.")
        }
        Some(Blocker::Reservation(name)) => {
            format!("{first}\nFirst in its way: reservation {name}{at}, until {until}.")
        }
        Some(Blocker::Licenses(licenses)) => {
            format!("{first}\nFirst in its way: licenses ({licenses}) that others have until {until}.")
        }
    }
}

/// What `--switches` has to do with it.
fn of_switches(switches: u32, wait_secs: Option<u64>) -> String {
    let leaves = if switches == 1 { "leaf switch" } else { "leaf switches" };
    let wait = match wait_secs {
        Some(secs) => format!("{} at most", short_duration(secs)),
        None => "as long as the site allows (max_switch_wait)".to_owned(),
    };
    format!("It asks for nodes of at most {switches} {leaves} (--switches), and waits for such nodes {wait}.")
}

/// What a job waits for that has no room reserved.
fn without_room(job: &JobView, zone: &TimeZone) -> String {
    match &job.reason {
        Reason::Dependency => {
            let left = job.dependencies.to_string();
            format!("what it depends on is not fulfilled yet: {left}")
        }
        Reason::BeginTime => {
            let begin = job.eligible_time.map_or_else(String::new, |at| format!(" at {}", at.text(zone)));
            format!("its time comes{begin}")
        }
        Reason::JobHeldUser | Reason::JobHeldAdmin => format!("it is held; \"scontrol release {}\" lets it go", job.id),
        Reason::JobArrayTaskLimit => "as many tasks of its array run as it allows".to_owned(),
        reason if reason.is_unavailable_nodes() => {
            "it needs nodes that are out of service; \"sinfo -R\" says why".to_owned()
        }
        Reason::PartitionDown | Reason::PartitionInactive => {
            format!("nothing starts in {}; \"sinfo\" shows its state", job.partitions.join(","))
        }
        Reason::PartitionTimeLimit | Reason::PartitionNodeLimit => {
            format!(
                "it asks for more than {} allows; \"scontrol show partition\" says how much",
                job.partitions.join(",")
            )
        }
        Reason::AccountNotAllowed => {
            let account =
                job.spec.account.as_deref().map_or_else(|| "no account".to_owned(), |a| format!("account {a}"));
            format!(
                "{} takes no jobs with {account}; \"scontrol update JobId={} Account=\" gives it another one",
                job.partitions.join(","),
                job.id
            )
        }
        Reason::QosNotAllowed => {
            let qos = job.spec.qos.as_deref().map_or_else(|| "no QOS".to_owned(), |qos| format!("QOS {qos}"));
            format!("{} takes no jobs with {qos}; \"scontrol show partition\" says which", job.partitions.join(","))
        }
        Reason::Priority | Reason::Resources | Reason::None => {
            "no room is reserved for it: so many jobs are before it that it was not looked at (bf_max_job_test), or \
             there is none for as far ahead as plans go (bf_window)"
                .to_owned()
        }
        _ => "the plan reserves no room for it".to_owned(),
    }
}

fn as_json(job: &JobView, outlook: Option<&Outlook>) -> serde_json::Value {
    let blocker = outlook.and_then(|o| o.blocker.as_ref()).map(|blocker| match blocker {
        Blocker::Running(job) => json!({"kind": "running", "job": job.0}),
        Blocker::Ahead(job) => json!({"kind": "ahead", "job": job.0}),
        Blocker::Reservation(name) => json!({"kind": "reservation", "name": name}),
        Blocker::Licenses(licenses) => json!({"kind": "licenses", "licenses": licenses}),
    });
    json!({
        "job": job.id.0,
        "state": words::job_state(job.state),
        "reason": words::reason(&job.reason),
        "partition": outlook.map(|o| o.partition.clone()),
        "start": outlook.map(|o| o.start.secs()),
        "nodes": outlook.map(|o| o.nodes.clone()),
        "blocker": blocker,
        "node": outlook.and_then(|o| o.node.clone()),
        "until": outlook.map(|o| o.until.secs()),
        "planned": outlook.map(|o| o.planned.secs()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::render::test_views::waiting;
    use garrick_model::{
        ids::JobId,
        spec::{JobSpec, TopologyRequest},
        time::Timestamp,
    };

    fn outlook(blocker: Blocker, node: Option<&str>) -> Outlook {
        Outlook {
            job: JobId(7),
            partition: "debug".to_owned(),
            start: Timestamp::from_secs(3600),
            nodes: "n[1-4]".to_owned(),
            blocker: Some(blocker),
            node: node.map(str::to_owned),
            until: Timestamp::from_secs(3590),
            planned: Timestamp::from_secs(60),
        }
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let job = waiting(7, Reason::Resources);
        let told = |outlook: &Outlook| text(&job, Some(outlook), &TimeZone::UTC);
        assert_eq!(
            told(&outlook(Blocker::Running(JobId(3)), Some("n2"))),
            "Job 7 waits (Resources) for n[1-4] of partition debug, which it has reserved from 1970-01-01T01:00:00 on \
             (plan of 1970-01-01T00:01:00).\n\
             First in its way: job 3 on n2, until it ends; its limit is 1970-01-01T00:59:50."
        );
        assert!(told(&outlook(Blocker::Ahead(JobId(5)), Some("n2"))).ends_with(
            "First in its way: job 5 on n2, which goes before it and is to be over at 1970-01-01T00:59:50."
        ));
        assert!(told(&outlook(Blocker::Licenses("foo:2".to_owned()), None)).contains("licenses (foo:2) that others"));
    }

    #[test]
    fn who_could_start_is_told_why_it_does_not() {
        let told = text(
            &waiting(7, Reason::Fragmentation),
            Some(&outlook(Blocker::Running(JobId(3)), Some("n2"))),
            &TimeZone::UTC,
        );
        assert!(told.starts_with("Job 7 waits (Fragmentation) for n[1-4]"), "{told}");
        assert!(told.contains("\nIt could start now, but that would break up a block or leaf switch"), "{told}");
        assert!(told.contains("\nFirst in its way: job 3 on n2"), "{told}");
    }

    #[test]
    fn who_asks_for_few_switches_is_told_so() {
        let mut job = waiting(7, Reason::Resources);
        let topology = TopologyRequest { switches: Some(1), switches_wait_secs: Some(300), ..Default::default() };
        job.spec = Arc::new(JobSpec { topology, ..(*job.spec).clone() });
        let outlook = Outlook { blocker: None, ..outlook(Blocker::Running(JobId(3)), None) };
        assert!(text(&job, Some(&outlook), &TimeZone::UTC).ends_with(
            "\nIt asks for nodes of at most 1 leaf switch (--switches), and waits for such nodes 5:00 at most."
        ));
    }

    #[test]
    fn who_has_no_room_reserved_is_told_what_it_waits_for() {
        let told = |reason: Reason| text(&waiting(7, reason), None, &TimeZone::UTC);
        assert!(told(Reason::JobHeldUser).contains("scontrol release 7"));
        assert!(told(Reason::Priority).contains("bf_max_job_test"));
        assert!(told(Reason::PartitionDown).starts_with("Job 7 waits (PartitionDown): nothing starts in"));
    }

    #[test]
    fn json_has_every_key() {
        let job = waiting(7, Reason::Resources);
        let value = as_json(&job, Some(&outlook(Blocker::Running(JobId(3)), Some("n2"))));
        assert_eq!(value["blocker"], json!({"kind": "running", "job": 3}));
        assert_eq!((value["start"].as_i64(), value["node"].as_str()), (Some(3600), Some("n2")));
        assert_eq!(as_json(&job, None)["blocker"], json!(null));
    }
}
