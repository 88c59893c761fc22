//! `garrick why`: what jobs wait for: the first obstacle, what would remove it, and when.

mod grounds;
mod lacks;
mod reserving;
mod steps;

use self::{
    grounds::{Around, grounds},
    lacks::lacks,
};
use super::SiteError;
use crate::{
    options::table::Arg,
    output::{self, Console},
    query::{
        arguments::{self, Outcome, Table, option},
        choices, records,
    },
};
use garrick_asking::contact::{self, Contact};
use garrick_model::{
    messages::{
        command::{CommandReply, CommandRequest, JobSelector},
        launch_failure::advice,
    },
    outlook::{Blocker, Outlook},
    state::Reason,
    time::{short_duration, system_zone},
    view::JobView,
};
use garrick_render::words;
use jiff::tz::TimeZone;
use serde_json::json;
use std::{ffi::OsString, sync::Arc};

pub(crate) static TABLE: Table = Table {
    program: "garrick why",
    purpose: "Explain why jobs and steps wait: the first obstacle, what would remove it, and when;\n\
              and why ended steps ended as they did.",
    operands: "JOB[.STEP]...",
    words: &[],
    options: &[option("json", None, Arg::None, "as a JSON array of objects")],
    misuse: 1,
};

/// Runs `garrick why`.
pub fn main(args: &[OsString], console: &Console) -> Result<i32, SiteError> {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return Ok(code),
    };
    let (mut asked, mut steps) = (Vec::new(), Vec::new());
    for word in arguments.words() {
        if word.contains('.') {
            steps.extend(records::named(&word).map_err(SiteError::Usage)?);
            continue;
        }
        asked.extend(choices::jobs(&word).map_err(|e| SiteError::Usage(e.to_string()))?);
    }
    if asked.is_empty() && steps.is_empty() {
        return Err(SiteError::Usage("why takes the ids of jobs and steps".to_owned()));
    }
    if arguments.has("json") && !steps.is_empty() {
        return Err(SiteError::Usage("--json is for jobs: garrick steps --json tells of steps".to_owned()));
    }
    let mut cluster = Contact::open(console)?;
    if !steps.is_empty() {
        let mut told = Vec::new();
        for named in &steps {
            told.extend(steps::explain(&mut cluster, named, console)?);
        }
        let written = output::stdout(|out| told.iter().try_for_each(|text| writeln!(out, "{text}")));
        if asked.is_empty() || written.is_err() {
            return Ok(output::finish(console, written, 0));
        }
    }
    let told = outlooks(&mut cluster, asked)?;
    let unreserved = told.iter().any(|(job, outlook)| outlook.is_none() && job.state.waits());
    let short = told.iter().any(|(job, _)| job.reason == Reason::Resources);
    let around = match (unreserved, short) {
        _ if arguments.has("json") => Around::default(),
        (true, _) => Around::ask(&mut cluster)?,
        (false, true) => Around::nodes_alone(&mut cluster)?,
        (false, false) => Around::default(),
    };
    let zone = system_zone();
    let written = output::stdout(|out| {
        if arguments.has("json") {
            let all: Vec<_> = told.iter().map(|(job, outlook)| as_json(job, outlook.as_ref())).collect();
            return writeln!(out, "{}", json!(all));
        }
        told.iter().try_for_each(|(job, outlook)| {
            writeln!(out, "{}", text(job, outlook.as_ref(), &around, &zone))?;
            lacks(job, &around).map_or(Ok(()), |lacks| writeln!(out, "What it lacks: {lacks}."))
        })
    });
    Ok(output::finish(console, written, 0))
}

type Told = (Arc<JobView>, Option<Outlook>);

/// The named jobs, each with when and where it is to start.
fn outlooks(cluster: &mut Contact, named: Vec<JobSelector>) -> Result<Vec<Told>, SiteError> {
    let mut jobs = Vec::new();
    for selector in named {
        let text = selector.to_string();
        let found = contact::jobs(cluster, &CommandRequest::list_jobs(vec![selector]))?;
        if found.is_empty() {
            return Err(SiteError::Cluster(format!("Invalid job id specified: {text}")));
        }
        jobs.extend(found);
    }
    let outlook = |job: Arc<JobView>| match cluster.ask(&CommandRequest::Explain { job: job.id })? {
        CommandReply::Outlook(outlook) => Ok((job, outlook.map(|outlook| *outlook))),
        other => Err(cluster.unexpected(&other).into()),
    };
    jobs.into_iter().map(outlook).collect()
}

/// One or two lines about a job.
fn text(job: &JobView, outlook: Option<&Outlook>, around: &Around, zone: &TimeZone) -> String {
    let id = job.array_task.map_or_else(|| job.id.to_string(), |task| format!("{}_{}", task.array_job, task.index));
    if !job.state.waits() {
        let state = words::job_state(job.state);
        return match &job.system_comment {
            Some(cause) => {
                format!("Job {id} is {state} ({}): {}.", words::reason(&job.reason), not_started(job, cause))
            }
            None => format!("Job {id} does not wait: it is {state}."),
        };
    }
    let reason = words::reason(&job.reason);
    let Some(outlook) = outlook else {
        let group = match job.spec.het {
            Some((leader, _)) => {
                format!("\nIt is a component of heterogeneous job {leader}: all of them start together.")
            }
            None => String::new(),
        };
        return format!("Job {id} waits ({reason}): {}.{group}", grounds(job, around, zone));
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
        Some(Blocker::Switches(_)) => {
            format!("{first}\nFirst in its way: that wish itself, until {until}; from then on it takes any nodes.")
        }
        Some(Blocker::Licenses(licenses)) => {
            format!("{first}\nFirst in its way: licenses ({licenses}) that others have until {until}.")
        }
    }
}

/// Why a job's script was not run, where, and what can be done about it.
fn not_started(job: &JobView, cause: &str) -> String {
    let node = job.allocation.as_ref().and_then(|allocation| allocation.nodes.first());
    let node = node.map_or_else(String::new, |node| format!(" on {}", node.name));
    let advice = advice(cause).map_or_else(String::new, |advice| format!("; {advice}"));
    format!("it was not started{node}: {cause}{advice}")
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

fn as_json(job: &JobView, outlook: Option<&Outlook>) -> serde_json::Value {
    let blocker = outlook.and_then(|o| o.blocker.as_ref()).map(|blocker| match blocker {
        Blocker::Running(job) => json!({"kind": "running", "job": job.0}),
        Blocker::Ahead(job) => json!({"kind": "ahead", "job": job.0}),
        Blocker::Reservation(name) => json!({"kind": "reservation", "name": name}),
        Blocker::Switches(most) => json!({"kind": "switches", "switches": most}),
        Blocker::Licenses(licenses) => json!({"kind": "licenses", "licenses": licenses}),
    });
    json!({
        "job": job.id.0,
        "state": words::job_state(job.state),
        "reason": words::reason(&job.reason),
        "cause": job.system_comment,
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
    use garrick_model::{
        ids::JobId,
        spec::{JobSpec, TopologyRequest},
        state::JobState,
        time::Timestamp,
    };
    use garrick_render::testing::{over, waiting};

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
        let told = |outlook: &Outlook| text(&job, Some(outlook), &Around::default(), &TimeZone::UTC);
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
            &Around::default(),
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
        let told = |outlook: &Outlook| text(&job, Some(outlook), &Around::default(), &TimeZone::UTC);
        let wish = "\nIt asks for nodes of at most 1 leaf switch (--switches), and waits for such nodes 5:00 at most.";
        assert!(told(&outlook).ends_with(wish));
        let waits = Outlook { blocker: Some(Blocker::Switches(1)), ..outlook };
        let itself =
            "\nFirst in its way: that wish itself, until 1970-01-01T00:59:50; from then on it takes any nodes.";
        assert!(told(&waits).ends_with(&format!("{wish}{itself}")));
    }

    #[test]
    fn what_kept_a_script_from_being_started_is_told_with_what_to_do() {
        let mut job = over(7, JobState::Failed, &[("n1", 1)]);
        job.reason = Reason::RaisedSignal(53);
        let told = |job: &JobView| text(job, None, &Around::default(), &TimeZone::UTC);
        assert_eq!(told(&job), "Job 7 does not wait: it is FAILED.");
        job.system_comment = Some("Could not open stdout file /nosuch/x.out: No such file or directory".to_owned());
        let first = "Job 7 is FAILED (RaisedSignal:53(Real-time_signal_19)): it was not started on n1: Could not open stdout file \
                     /nosuch/x.out: No such file or directory; the folder has to be on the node, ";
        assert!(told(&job).starts_with(first), "{}", told(&job));
        let mut held = waiting(8, Reason::Other("launch failed requeued held".to_owned()));
        (held.priority, held.system_comment) = (0, Some("write /spool: No space left on device".to_owned()));
        assert_eq!(
            told(&held),
            "Job 8 waits (launch failed requeued held): it is held, since its last run could not be started (write /spool: No \
             space left on device); \"scontrol release 8\" lets it go."
        );
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
