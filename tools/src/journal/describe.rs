//! Describes an event in one line. Text from users is quoted, so that it stays one line.

use super::events::Event;
use garrick_events::steps::{
    batch::{StoredBatch, StoredMembers},
    end::StepResult,
    event::{Place, StepEvent},
};
use garrick_events::{
    event::{ControllerEvent, Following},
    records::{
        job::{End, JobRecord, Resolved, Run},
        job_event::{JobEvent, Revision},
        node::SavedNode,
    },
    usage::{Meter, UsageEvent, Who},
};
use garrick_model::{config::PartitionChange, hostlist, spec::ArraySpec, view::Accrual};
use garrick_render::words;
use serde::Serialize;
use std::{collections::BTreeSet, fmt::Write as _};

/// What a line says of an event.
pub struct Described {
    /// Job, step, node or partition.
    pub subject: String,
    /// Name of the event.
    pub event: &'static str,
    /// The rest.
    pub essentials: String,
}

/// Describes an event.
pub fn describe(event: &Event) -> Described {
    match event {
        Event::Controller(event) => of_controller(event),
        Event::Steps(event) => of_steps(event),
    }
}

fn of_controller(event: &ControllerEvent) -> Described {
    let (subject, event, essentials) = match event {
        ControllerEvent::Job { job, event } => (format!("job {job}"), event.name(), of_job(event)),
        ControllerEvent::Node { node, saved } => (format!("node {node}"), "Node", of_node(saved)),
        ControllerEvent::Partition { partition, saved } => {
            let fields = saved.fields.iter().map(|(key, value)| format!("{key}={value:?}"));
            (format!("partition {partition}"), "Partition", fields.collect::<Vec<_>>().join(" "))
        }
        // Those in it are described one by one.
        ControllerEvent::Reservation { reservation, saved, .. } => {
            let about = match saved.as_deref() {
                Some(r) => format!("start={} end={} nodes={}", r.start.0, r.end.0, hostlist::fold(&r.nodes)),
                None => "gone".to_owned(),
            };
            (format!("reservation {reservation}"), "Reservation", about)
        }
        ControllerEvent::Trigger { trigger, saved } => {
            let about = match saved.as_deref() {
                Some(t) => format!("uid={} program={:?}", t.uid, t.request.program),
                None => "gone".to_owned(),
            };
            (format!("trigger {trigger}"), "Trigger", about)
        }
        ControllerEvent::Crontab { uid, saved } => {
            let about = match saved.as_deref() {
                Some(crontab) => format!("bytes={} jobs={}", crontab.text.len(), crontab.jobs.len()),
                None => "gone".to_owned(),
            };
            (format!("crontab {uid}"), "Crontab", about)
        }
        ControllerEvent::DynamicNode { node, saved, of_file } => {
            let about = match saved.as_deref() {
                Some(node) => format!("slot={} {}", node.slot, node.line),
                None if *of_file => "of slurm.conf".to_owned(),
                None => "gone".to_owned(),
            };
            (format!("node {node}"), "DynamicNode", about)
        }
        ControllerEvent::PartitionChange { partition, saved } => {
            let about = match saved.as_deref() {
                Some(PartitionChange::Created { fields, .. }) => {
                    let words = fields.iter().map(|(key, value)| format!("{key}={value}"));
                    std::iter::once("created".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
                }
                Some(PartitionChange::Deleted) => "deleted".to_owned(),
                None => "of slurm.conf".to_owned(),
            };
            (format!("partition {partition}"), "PartitionChange", about)
        }
        ControllerEvent::Together(events) => ("controller".to_owned(), "Together", format!("events={}", events.len())),
        ControllerEvent::Part { events, .. } => ("controller".to_owned(), "Part", format!("events={}", events.len())),
        ControllerEvent::Started { epoch } => ("controller".to_owned(), "Started", format!("epoch={epoch}")),
        ControllerEvent::Used { job, sluid, submissions } => {
            ("controller".to_owned(), "Used", format!("job={job} sluid={sluid} submissions={submissions}"))
        }
        ControllerEvent::Steps { job, sluid, steps } => {
            (format!("job {job}"), "Steps", format!("rows={} sluid={sluid}", steps.rows))
        }
        ControllerEvent::Beside { name, piece } => {
            let about = piece
                .as_ref()
                .map_or_else(|| "gone".to_owned(), |piece| format!("sha256={} bytes={}", piece.digest, piece.bytes));
            (format!("piece {name}"), "Beside", about)
        }
        ControllerEvent::Usage(event) => ("usage".to_owned(), "Usage", about_usage(event)),
        ControllerEvent::Base { position, events, followers } => {
            let followers = followers.iter().map(|(name, upto)| format!(" {name:?}={upto}")).collect::<String>();
            ("log".to_owned(), "Base", format!("position={position} events={events}{followers}"))
        }
        ControllerEvent::Follower { name, is } => {
            let said = match is {
                Following::Registered => "registered".to_owned(),
                Following::Acknowledged(upto) => format!("acknowledged={upto}"),
                Following::Gone => "gone".to_owned(),
            };
            (format!("follower {name:?}"), "Follower", said)
        }
    };
    Described { subject, event, essentials }
}

fn about_usage(event: &UsageEvent) -> String {
    let name = |who: &Who| match &who.partition {
        Some(partition) => format!("{}/{}/{partition}", who.account, who.user),
        None => format!("{}/{}", who.account, who.user),
    };
    let meter = |meter: &Meter| format!("as_of={} running={}", meter.as_of.0, meter.running);
    match event {
        UsageEvent::Rules { rules, .. } | UsageEvent::Begin(rules) => {
            let next = rules.next_reset.map(|at| format!(" next_reset={}", at.0)).unwrap_or_default();
            format!("half_life={}{next}", rules.half_life_secs)
        }
        UsageEvent::Reset { users, qos, .. } => {
            format!("reset users={:?} qos={qos:?}", users.iter().map(name).collect::<Vec<_>>())
        }
        UsageEvent::User(who, of) => format!("user={:?} {}", name(who), meter(of)),
        UsageEvent::Qos(qos, of) => format!("qos={qos:?} {}", meter(of)),
    }
}

fn of_job(event: &JobEvent) -> String {
    match event {
        JobEvent::Submitted(record) | JobEvent::SubmittedLike { record, .. } => of_record(record),
        JobEvent::Held(by) => format!("by={by:?}"),
        JobEvent::Released { priority } => format!("priority={priority}"),
        JobEvent::Updated(change) => what_is_set(change),
        JobEvent::Revised(revision) => of_revision(revision),
        JobEvent::DependenciesLeft { left, failed } => {
            format!("left={:?}{}", left.to_string(), if *failed { " never fulfilled" } else { "" })
        }
        JobEvent::Eligible { .. }
        | JobEvent::NotEligible
        | JobEvent::Suspended
        | JobEvent::Resumed
        | JobEvent::Purged => String::new(),
        JobEvent::AccrualReset { at } | JobEvent::Accrues(Accrual::Since(at)) => format!("since={}", at.0),
        JobEvent::Accrues(accrual) => format!("{accrual:?}"),
        JobEvent::TaskSplit { index, job } => format!("task={index} job={job}"),
        JobEvent::BecameTask { index } => format!("task={index}"),
        JobEvent::TaskNews { index, started, over, .. } => {
            let started = if started.is_some() { " started" } else { "" };
            format!("task={index}{started}{}", over.map(|over| format!(" over={over:?}")).unwrap_or_default())
        }
        JobEvent::Allocated(run) => of_run(run),
        JobEvent::NodeBooted { node, address, .. } => format!("node={node} address={address:?}"),
        JobEvent::Started { door, .. } => format!("door={door:?}"),
        JobEvent::LimitChanged(limit) => format!("limit={}", limit.squeue_text()),
        JobEvent::LeaveBy(at) => format!("at={}", at.secs()),
        JobEvent::Ending(ending) => {
            let by = ending.by.map(|uid| format!(" by={uid}")).unwrap_or_default();
            let (state, reason) = (words::job_state(ending.state), words::reason(&ending.reason));
            format!("state={state} reason={reason:?} then={:?}{by}", ending.then)
        }
        JobEvent::Ended(end) => of_end(end),
        JobEvent::StepsCounted(tally) => {
            let counts = tally.counts;
            format!(
                "queued={} running={} done={} failed={} unreported={} dropped={}",
                counts.queued, counts.running, counts.done, counts.failed, tally.unreported, tally.dropped
            )
        }
        JobEvent::NodeReleased { node, epilog_failed } => {
            format!("node={node}{}", if *epilog_failed { " epilog failed" } else { "" })
        }
        JobEvent::NodeKept { node } => format!("node={node}"),
        JobEvent::NodesLost { nodes } => format!("nodes={}", hostlist::fold(nodes.iter().map(String::as_str))),
        JobEvent::EarlierReleased { sluid, node } => format!("node={node} sluid={sluid}"),
        JobEvent::NotExpedited | JobEvent::LeftCrontab => String::new(),
        JobEvent::Requeued { sluid, hold, expedited, .. } => {
            let expedited = if *expedited { " expedited" } else { "" };
            format!("sluid={sluid}{}{expedited}", hold.map(|by| format!(" held by={by:?}")).unwrap_or_default())
        }
        JobEvent::Stopped { by_admin, yielded, waits_turn, .. } => {
            let admin = by_admin.then(|| "by an administrator".to_owned());
            let other = yielded.as_ref().map(|yielded| format!("for={}", yielded.by));
            let turn = waits_turn.then(|| "until its turn".to_owned());
            admin.into_iter().chain(other).chain(turn).collect::<Vec<_>>().join(" ")
        }
        JobEvent::Continued { .. } | JobEvent::Prepared | JobEvent::EpilogEnded => String::new(),
        JobEvent::RequeueSet(policy) => format!("requeue={} revision={}", u8::from(policy.allowed), policy.revision),
        JobEvent::Unfenced { node, ends_when_cut_off } => format!("node={node} ends_when_cut_off={ends_when_cut_off}"),
        JobEvent::Fenced { sluid, node } => format!("node={node} sluid={sluid}"),
        JobEvent::Preempted(mark) => format!("by={} then={:?}", mark.by, mark.then),
    }
}

fn of_record(record: &JobRecord) -> String {
    let mut text = format!(
        "{} name={:?} user={}({}) partition={} priority={} sluid={}",
        record.phase.name(),
        record.spec.name,
        record.owner.user,
        record.owner.uid,
        record.resolved.partitions.join(","),
        record.priority,
        record.sluid
    );
    if let Some(array) = record.array.as_ref().filter(|array| !array.pending.is_empty()) {
        let _ = write!(text, " array={}", array.pending_spec());
    }
    if let Some(task) = record.array_task {
        let _ = write!(text, " task={task}");
    }
    if let Some(by) = record.hold {
        let _ = write!(text, " held by={by:?}");
    }
    if let Some(run) = record.phase.run() {
        let _ = write!(text, " {}", of_run(run));
    }
    if let Some(end) = record.phase.end() {
        let _ = write!(text, " {}", of_end(end));
    }
    text
}

fn of_revision(revision: &Revision) -> String {
    let Resolved { partitions, time_limit, tasks, min_nodes, max_nodes, cpus, memory, .. } = &revision.resolved;
    let mut text = format!(
        "name={:?} partition={} priority={} limit={} nodes={min_nodes}-{max_nodes} tasks={tasks} cpus={cpus} memory={memory:?}",
        revision.spec.name,
        partitions.join(","),
        revision.priority,
        time_limit.squeue_text()
    );
    if !revision.dependencies.list.is_empty() {
        let _ = write!(text, " dependencies={:?}", revision.dependencies.to_string());
    }
    text
}

fn of_run(run: &Run) -> String {
    let nodes = &run.allocation.nodes;
    let cpus: u64 = nodes.iter().map(|node| u64::from(node.share.cpus.len())).sum();
    let names = hostlist::fold(nodes.iter().map(|node| node.name.as_str()));
    format!("nodes={names} cpus={cpus} limit={}", run.time_limit.squeue_text())
}

fn of_end(end: &End) -> String {
    let (state, reason) = (words::job_state(end.state), words::reason(&end.reason));
    format!("state={state} exit={} reason={reason:?} then={:?}", words::exit(end.exit), end.then)
}

fn of_node(saved: &SavedNode) -> String {
    let mut said = Vec::new();
    said.extend(saved.down.map(|cause| format!("down={cause:?}")));
    said.extend(saved.drain.then(|| "drain".to_owned()));
    said.extend(saved.fail.then(|| "fail".to_owned()));
    said.extend(saved.reason.as_ref().map(|reason| format!("reason={:?} by={}", reason.text, reason.user)));
    said.extend(saved.weight.map(|weight| format!("weight={weight}")));
    said.extend(saved.features.as_ref().map(|features| format!("features={}", features.join(","))));
    said.extend(saved.extra.as_ref().map(|extra| format!("extra={extra:?}")));
    said.extend(saved.comment.as_ref().map(|comment| format!("comment={comment:?}")));
    said.join(" ")
}

/// The fields of a change that are set.
fn what_is_set(change: &impl Serialize) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(change) else { return String::new() };
    let set = fields.iter().filter(|(_, value)| !value.is_null());
    set.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn of_steps(event: &StepEvent) -> Described {
    let (subject, event, essentials) = match event {
        StepEvent::Accepted { request, first, batch, .. } => {
            let names: BTreeSet<&str> = batch.specs.iter().map(|spec| spec.name.as_str()).take(8).collect();
            let names = names.into_iter().map(|name| format!(" name={name:?}")).collect::<String>();
            let request = format!("{:016x}{:016x}", request.0, request.1);
            (steps_of(*first, batch), "Accepted", format!("{} steps{names} request={request}", batch.len()))
        }
        StepEvent::Started { step, attempt, places, origin, after, .. } => {
            let mut text = format!("attempt={attempt} {}", of_places(places));
            if let Some(origin) = origin {
                let _ = write!(text, " name={:?}", origin.name);
            }
            if let Some(after) = after {
                let _ = write!(text, " behind={after}");
            }
            (format!("step {step}"), "Started", text)
        }
        StepEvent::Retried { step, attempt, .. } => (format!("step {step}"), "Retried", format!("attempt={attempt}")),
        StepEvent::Ended { result, .. } => (format!("step {}", result.step.key()), "Ended", of_result(result)),
        StepEvent::Withdrawn { first, members, state, cause, .. } => {
            let members = ArraySpec { ranges: members.iter().map(|(from, to)| (*from, *to, 1)).collect(), limit: None };
            let state = words::step_state(*state);
            (format!("batch {first}"), "Withdrawn", format!("members={members} state={state} cause={cause:?}"))
        }
        StepEvent::Ending { state, reason, exit } => {
            let (state, reason) = (words::job_state(*state), words::reason(reason));
            ("job".to_owned(), "Ending", format!("state={state} exit={} reason={reason:?}", words::exit(*exit)))
        }
        StepEvent::Moved(motion) => ("job".to_owned(), "Moved", format!("motion={motion:?}")),
        StepEvent::StepLimit { step, origin } => {
            (format!("step {step}"), "StepLimit", format!("limit={}", origin.time_limit.squeue_text()))
        }
        StepEvent::TimeLimit(limit) => ("job".to_owned(), "TimeLimit", format!("limit={}", limit.squeue_text())),
        StepEvent::Reported { ends } => ("manager".to_owned(), "Reported", format!("ends={ends}")),
        StepEvent::LaunchFailed { detail } => ("job".to_owned(), "LaunchFailed", format!("detail={detail:?}")),
        StepEvent::Restarted => ("manager".to_owned(), "Restarted", String::new()),
        StepEvent::ShepherdUp { slot } => ("manager".to_owned(), "ShepherdUp", format!("slot={slot}")),
        StepEvent::NodeLost { slot } => ("manager".to_owned(), "NodeLost", format!("slot={slot}")),
        StepEvent::CancelAsked { steps, by } => (format!("steps {steps}"), "CancelAsked", format!("by={by}")),
    };
    Described { subject, event, essentials }
}

/// `step 7`, `step 7-11`, `step 7_[0-9]`.
fn steps_of(first: u32, batch: &StoredBatch) -> String {
    match (&batch.members, batch.len()) {
        (StoredMembers::Array(tasks), _) => format!("step {first}_[{}]", tasks.indices_text()),
        (_, 0 | 1) => format!("step {first}"),
        (_, steps) => format!("step {first}-{}", first.saturating_add(steps - 1)),
    }
}

fn of_places(places: &[Place]) -> String {
    let slots: Vec<String> = places.iter().map(|place| place.slot.to_string()).collect();
    let cpus: u64 = places.iter().map(|place| u64::from(place.cpus.len())).sum();
    format!("slots={} cpus={cpus}", slots.join(","))
}

fn of_result(result: &StepResult) -> String {
    let job = result.step.job;
    let mut text = format!("state={} exit={} job={job}", words::step_state(result.state), words::exit(result.exit));
    if let Some(cause) = &result.ended {
        let _ = write!(text, " cause={cause:?}");
    }
    if let Some(detail) = &result.detail {
        let _ = write!(text, " detail={detail:?}");
    }
    text
}
