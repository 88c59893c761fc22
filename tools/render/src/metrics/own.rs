//! Metrics that Slurm has none of: steps, what waits for accounting, requests, actors and the process itself.

use super::exposition::{
    Exposition,
    Type::{Counter, Gauge},
};
use garrick_model::{messages::statistics::Statistics, time::Timestamp, view::StepCounts};
use std::time::Duration;

/// Messages of one name that actors of one kind handled.
#[derive(Clone, Copy, Debug)]
pub struct Handled<'a> {
    /// The first part of their paths: `/job`.
    pub actors: &'a str,
    /// The message's name.
    pub message: &'a str,
    /// How many.
    pub count: u64,
    /// How long they waited for their turns, all together.
    pub queued: Duration,
    /// How long they were handled, all together.
    pub handling: Duration,
}

impl<'a> Handled<'a> {
    const fn labels(&self) -> [(&'static str, &'a str); 2] {
        [("actors", self.actors), ("message", self.message)]
    }
}

/// Actors of one kind.
#[derive(Clone, Debug, Default)]
pub struct Actors {
    /// The first part of their paths: `/job`.
    pub kind: String,
    /// How many there are.
    pub count: u64,
    /// Messages that wait in their mailboxes.
    pub waiting: u64,
    /// Messages that wait in the fullest mailbox.
    pub most_waiting: u64,
    /// How often one was started again after a panic.
    pub restarts: u64,
}

/// What the controller's process uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessUse {
    /// Time on CPUs, in user and kernel mode.
    pub cpu: Duration,
    /// Bytes in memory.
    pub resident: u64,
    /// Bytes of address space.
    pub address_space: u64,
    /// Open files.
    pub open_files: u64,
    /// Most files that may be open.
    pub most_files: u64,
    /// When it was started.
    pub started: Option<Timestamp>,
}

/// What the page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    /// What the controller counted.
    pub counted: &'a Statistics,
    /// The sum of what the step managers of running jobs reported last.
    pub steps: &'a StepCounts,
    /// Messages that were handled.
    pub messages: &'a [Handled<'a>],
    /// Actors that there are.
    pub actors: &'a [Actors],
    /// What the process uses.
    pub process: &'a ProcessUse,
    /// The program's version.
    pub version: &'a str,
}

/// A time in seconds, to the microsecond.
struct Seconds(Duration);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:06}", self.0.as_secs(), self.0.subsec_micros())
    }
}

/// `/metrics/garrick`. Times are seconds. Metrics of the process have the names that Prometheus' own libraries give them
/// (<https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>).
pub fn page(own: &Own<'_>) -> String {
    let mut text = Exposition::default();
    text.family(Gauge, "garrick_build_info", "Version of the controller", [([("version", own.version)], 1)]);
    accounting_and_steps(&mut text, own);
    requests(&mut text, own.counted);
    messages(&mut text, own.messages);
    actors(&mut text, own.actors);
    process(&mut text, own.process);
    text.text()
}

fn accounting_and_steps(text: &mut Exposition, Own { counted, steps, .. }: &Own<'_>) {
    let queue = &counted.accounting;
    let away = queue.away_since.map_or(0, |since| counted.at.since(since).as_secs());
    for (kind, name, help, value) in [
        (Gauge, "garrick_accounting_queue_events", "Events of the log that slurmdbd has not stored yet", queue.events),
        (
            Counter,
            "garrick_accounting_stored_position",
            "Position of the log up to which slurmdbd has stored all",
            queue.stored,
        ),
        (Gauge, "garrick_accounting_away_seconds", "Seconds since slurmdbd has been away", away),
        (Gauge, "garrick_steps_pending", "Steps that wait in running jobs", steps.queued),
        (Gauge, "garrick_steps_running", "Steps that run", steps.running),
        (Gauge, "garrick_steps_done", "Steps of running jobs that ended with success", steps.done),
        (Gauge, "garrick_steps_failed", "Steps of running jobs that ended otherwise", steps.failed),
    ] {
        text.value(kind, name, help, value);
    }
}

fn requests(text: &mut Exposition, counted: &Statistics) {
    let requests = || counted.requests.iter();
    text.family(
        Counter,
        "garrick_requests_total",
        "Requests of commands that were answered",
        requests().map(|request| ([("request", request.request.as_str())], request.count)),
    );
    text.family(
        Counter,
        "garrick_request_seconds_total",
        "Seconds from the turns of these requests to their answers",
        requests()
            .map(|request| ([("request", request.request.as_str())], Seconds(Duration::from_micros(request.micros)))),
    );
}

fn messages(text: &mut Exposition, messages: &[Handled<'_>]) {
    text.family(
        Counter,
        "garrick_messages_handled_total",
        "Messages that actors of the controller handled",
        messages.iter().map(|handled| (handled.labels(), handled.count)),
    );
    text.family(
        Counter,
        "garrick_message_queue_seconds_total",
        "Seconds that these messages waited for their turns",
        messages.iter().map(|handled| (handled.labels(), Seconds(handled.queued))),
    );
    text.family(
        Counter,
        "garrick_message_handling_seconds_total",
        "Seconds that these messages were handled",
        messages.iter().map(|handled| (handled.labels(), Seconds(handled.handling))),
    );
}

fn actors(text: &mut Exposition, actors: &[Actors]) {
    let mut family = |kind, name: &str, help: &str, value: fn(&Actors) -> u64| {
        text.family(kind, name, help, actors.iter().map(|of| ([("actors", of.kind.as_str())], value(of))));
    };
    family(Gauge, "garrick_actors", "Actors of the controller", |of| of.count);
    family(Gauge, "garrick_mailbox_messages", "Messages that wait in the mailboxes of actors", |of| of.waiting);
    family(Gauge, "garrick_mailbox_messages_max", "Messages that wait in the fullest of these mailboxes", |of| {
        of.most_waiting
    });
    family(Counter, "garrick_actor_restarts_total", "Actors that were started again after a panic", |of| of.restarts);
}

fn process(text: &mut Exposition, used: &ProcessUse) {
    text.value(Counter, "process_cpu_seconds_total", "Seconds on CPUs in user and kernel mode", Seconds(used.cpu));
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Bytes in memory", used.resident),
        ("process_virtual_memory_bytes", "Bytes of address space", used.address_space),
        ("process_open_fds", "Open files", used.open_files),
        ("process_max_fds", "Most files that may be open", used.most_files),
    ] {
        text.value(Gauge, name, help, value);
    }
    if let Some(started) = used.started {
        text.value(Gauge, "process_start_time_seconds", "When it was started, since 1970", started.secs());
    }
}
