//! `jobcomp/kafka`: a JSON message for each run, to a topic of Kafka, by librdkafka. Its properties are those of a file, as they stand
//! there. A run is written when the broker has acknowledged its message; the library itself keeps nothing for longer.

use super::forms::Completed;
use garrick_model::config::CompletionSettings;
use rdkafka::{
    ClientConfig, ClientContext,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode},
    message::DeliveryResult,
    producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext, PurgeConfig},
};
use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Reports are looked for so often while they are waited for.
const LOOK: Duration = Duration::from_millis(10);
/// `poll_interval=0` means as often as makes sense.
const LEAST_POLL: Duration = Duration::from_millis(100);
/// Properties that do not go with those of an idempotent producer: with one of them in the file, the file alone says what holds.
const OF_ORDER: [&str; 8] = [
    "enable.idempotence",
    "acks",
    "request.required.acks",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "retries",
    "message.send.max.retries",
    "queuing.strategy",
];

/// What became of a batch.
#[derive(Debug, Default)]
pub struct Produced {
    /// So many are with the broker, the first ones.
    pub delivered: usize,
    /// Why not all are.
    pub cause: Option<String>,
}

struct Batch {
    messages: Vec<Message>,
    done: oneshot::Sender<Produced>,
}

struct Message {
    topic: String,
    key: String,
    document: String,
}

/// What is sent where.
#[derive(Clone, Debug)]
struct Form {
    topic: String,
    topic_job_start: String,
    comment: bool,
    script: bool,
    /// Starts too.
    starts: bool,
}

/// The thread that has the producer. It ends when this is dropped.
#[derive(Debug)]
pub struct Kafka {
    form: Form,
    ends: Arc<AtomicBool>,
    batches: Option<Sender<Batch>>,
    thread: Option<JoinHandle<()>>,
}

impl Kafka {
    /// Starts the thread. Nothing is connected yet; the properties are read when there is something to send.
    ///
    /// # Errors
    /// The thread.
    pub fn start(settings: &CompletionSettings, cluster: &str) -> Result<Self, std::io::Error> {
        let of = &settings.kafka;
        let form = Form {
            topic: of.topic.clone().unwrap_or_else(|| cluster.to_owned()),
            topic_job_start: of.topic_job_start.clone().unwrap_or_else(|| format!("{cluster}-job-start")),
            comment: settings.send_comment,
            script: settings.send_script,
            starts: of.job_start,
        };
        let ends = Arc::<AtomicBool>::default();
        let worker = Worker {
            properties: settings.location.clone().unwrap_or_default().into(),
            idle: Duration::from_secs(of.poll_interval_secs.into()).max(LEAST_POLL),
            flush: of.flush_timeout_ms.map(|ms| Duration::from_millis(ms.into())),
            ends: Arc::clone(&ends),
            producer: None,
        };
        let (batches, came) = channel();
        let thread = thread::Builder::new().name("jobcomp-kafka".to_owned()).spawn(move || worker.work(&came))?;
        Ok(Self { form, ends, batches: Some(batches), thread: Some(thread) })
    }

    /// Starts of runs are sent too.
    pub const fn wants_starts(&self) -> bool {
        self.form.starts
    }

    /// Messages have the batch script in them.
    pub const fn wants_scripts(&self) -> bool {
        self.form.script
    }

    /// Sends a message for each run, and waits for the broker.
    pub async fn send(&self, runs: impl Iterator<Item = &Completed>) -> Produced {
        let (done, produced) = oneshot::channel();
        let batch = Batch { messages: runs.map(|run| self.form.message(run)).collect(), done };
        let ended = || Produced { delivered: 0, cause: Some("its thread has ended".to_owned()) };
        match self.batches.as_ref().map(|batches| batches.send(batch)) {
            Some(Ok(())) => produced.await.unwrap_or_else(|_| ended()),
            _ => ended(),
        }
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.batches = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread for Kafka panicked");
        }
    }
}

impl Form {
    /// Messages of a job have one key: they are in one partition, in order.
    fn message(&self, run: &Completed) -> Message {
        let topic = if run.starts { &self.topic_job_start } else { &self.topic };
        let document = run.document(self.comment, self.script).to_string();
        Message { topic: topic.clone(), key: run.row.job.to_string(), document }
    }
}

/// What the library says of messages and of itself.
struct Reports;

/// Whether each message of a batch is delivered; `None`: that is not known yet.
type Outcomes = Mutex<Vec<Option<Result<(), KafkaError>>>>;

/// A message on its way.
struct Sent {
    place: usize,
    outcomes: Arc<Outcomes>,
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
                tracing::error!("librdkafka: {facility} {text}");
            }
            RDKafkaLogLevel::Warning => tracing::warn!("librdkafka: {facility} {text}"),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!("librdkafka: {facility} {text}"),
            RDKafkaLogLevel::Debug => tracing::debug!("librdkafka: {facility} {text}"),
        }
    }

    fn stats_raw(&self, statistics: &[u8]) {
        tracing::info!("librdkafka: {}", String::from_utf8_lossy(statistics));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::error!(%error, "Kafka: {reason}");
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<Sent>;

    fn delivery(&self, result: &DeliveryResult<'_>, sent: Box<Sent>) {
        let outcome = result.as_ref().map(|_| ()).map_err(|(error, _)| error.clone());
        sent.outcomes.lock().unwrap_or_else(PoisonError::into_inner)[sent.place] = Some(outcome);
    }
}

struct Worker {
    properties: PathBuf,
    idle: Duration,
    /// How long the end waits for messages that are on their way; `None`: for ever.
    flush: Option<Duration>,
    ends: Arc<AtomicBool>,
    producer: Option<BaseProducer<Reports>>,
}

impl Worker {
    fn work(mut self, came: &Receiver<Batch>) {
        loop {
            match came.recv_timeout(self.idle) {
                Ok(Batch { messages, done }) => {
                    let produced = self.produce(&messages);
                    if produced.cause.is_some() {
                        // A new one begins without what this one may still have, and with the properties as they are then.
                        self.producer = None;
                    }
                    // Whoever asked may be gone.
                    let _ = done.send(produced);
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.producer.iter().for_each(|producer| producer.poll(Duration::ZERO))
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn produce(&mut self, messages: &[Message]) -> Produced {
        let producer = match self.producer.take() {
            Some(producer) => producer,
            None => match self.connect() {
                Ok(producer) => producer,
                Err(cause) => return Produced { delivered: 0, cause: Some(cause) },
            },
        };
        let outcomes: Arc<Outcomes> = Arc::new(Mutex::new(messages.iter().map(|_| None).collect()));
        let mut patience = Patience { ends: Arc::clone(&self.ends), flush: self.flush, until: None };
        for (place, message) in messages.iter().enumerate() {
            if !send(&producer, message, Sent { place, outcomes: Arc::clone(&outcomes) }, &mut patience) {
                break;
            }
        }
        while producer.in_flight_count() > 0 && patience.goes_on() {
            producer.poll(LOOK);
        }
        if producer.in_flight_count() > 0 {
            producer.purge(PurgeConfig::default().queue().inflight());
        }
        // Reports of the last ones.
        producer.poll(LOOK);
        let outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let produced = delivered(&outcomes);
        self.producer = Some(producer);
        produced
    }

    fn connect(&self) -> Result<BaseProducer<Reports>, String> {
        let path = self.properties.display();
        let text = fs::read_to_string(&self.properties).map_err(|error| format!("{path}: {error}"))?;
        let pairs = properties(&text).map_err(|wrong| format!("{path}: {wrong}"))?;
        let mut config = ClientConfig::new();
        config.set_log_level(level(pairs.iter().find(|(key, _)| *key == "log_level").map(|(_, value)| *value)));
        if !pairs.iter().any(|(key, _)| OF_ORDER.contains(key)) {
            config.set("enable.idempotence", "true");
        }
        config.extend(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        config.create_with_context(Reports).map_err(|error| format!("{path}: {error}"))
    }
}

/// Waits as long as it takes, until the controller ends.
struct Patience {
    ends: Arc<AtomicBool>,
    flush: Option<Duration>,
    until: Option<Instant>,
}

impl Patience {
    fn goes_on(&mut self) -> bool {
        match (self.ends.load(Ordering::Relaxed), self.flush) {
            (true, Some(flush)) => *self.until.get_or_insert_with(|| Instant::now() + flush) > Instant::now(),
            _ => true,
        }
    }
}

/// Hands a message to the library. `false`: no more are to be sent.
fn send(producer: &BaseProducer<Reports>, message: &Message, sent: Sent, patience: &mut Patience) -> bool {
    let (place, outcomes) = (sent.place, Arc::clone(&sent.outcomes));
    let mut record = BaseRecord::with_opaque_to(&message.topic, Box::new(sent))
        .key(message.key.as_str())
        .payload(message.document.as_str());
    loop {
        match producer.send(record) {
            Ok(()) => return true,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), same)) if patience.goes_on() => {
                record = same;
                producer.poll(LOOK);
            }
            Err((error, _)) => {
                let goes_on = is_of_message(&error);
                outcomes.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(Err(error));
                return goes_on;
            }
        }
    }
}

/// The message is refused for what it is: again it would be no better.
fn is_of_message(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{InvalidMessageSize, InvalidRecord, MessageSizeTooLarge};
    matches!(error.rdkafka_error_code(), Some(MessageSizeTooLarge | InvalidMessageSize | InvalidRecord))
}

/// How many of the first are done with.
fn delivered(outcomes: &[Option<Result<(), KafkaError>>]) -> Produced {
    for (delivered, outcome) in outcomes.iter().enumerate() {
        let cause = match outcome {
            Some(Ok(())) => continue,
            Some(Err(error)) if is_of_message(error) => {
                tracing::error!(%error, "Kafka refuses the record of a job: it is left out");
                continue;
            }
            Some(Err(error)) => error.to_string(),
            None => "no answer".to_owned(),
        };
        return Produced { delivered, cause: Some(cause) };
    }
    Produced { delivered: outcomes.len(), cause: None }
}

/// What the library is to log. It is told so apart from its properties.
fn level(text: Option<&str>) -> RDKafkaLogLevel {
    match text.and_then(|text| text.parse().ok()).unwrap_or(6) {
        0 => RDKafkaLogLevel::Emerg,
        1 => RDKafkaLogLevel::Alert,
        2 => RDKafkaLogLevel::Critical,
        3 => RDKafkaLogLevel::Error,
        4 => RDKafkaLogLevel::Warning,
        5 => RDKafkaLogLevel::Notice,
        6 => RDKafkaLogLevel::Info,
        _ => RDKafkaLogLevel::Debug,
    }
}

/// Lines `key=value`; `#` begins a comment.
fn properties(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            let (key, value) = line.split_once('=').ok_or_else(|| format!("line {} is no key=value", number + 1))?;
            Ok((key.trim(), value.trim()))
        })
        .collect()
}

#[cfg(test)]
#[path = "kafka_test.rs"]
mod tests;
