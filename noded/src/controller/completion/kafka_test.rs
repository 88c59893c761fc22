//! With the broker that librdkafka has for tests, in this process.
#![allow(clippy::unwrap_used)]

use super::super::testing::{completed, folder};
use super::*;
use garrick_model::{config::KafkaSettings, ids::JobId};
use rdkafka::{
    Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    mocking::MockCluster,
    producer::DefaultProducerContext,
};
use std::path::Path;

type Broker = MockCluster<'static, DefaultProducerContext>;

fn broker() -> Broker {
    let broker = MockCluster::new(1).unwrap();
    for topic in ["maple", "maple-job-start", "jobs"] {
        broker.create_topic(topic, 1, 1).unwrap();
    }
    broker
}

fn kafka(place: &Path, properties: &str, kafka: KafkaSettings) -> Kafka {
    let file = place.join("kafka.conf");
    fs::write(&file, properties).unwrap();
    let location = Some(file.display().to_string());
    Kafka::start(&CompletionSettings { location, kafka, ..Default::default() }, "maple").unwrap()
}

fn run(job: u32) -> Completed {
    let mut run = completed();
    run.row.job = JobId(job);
    run
}

/// So many messages of a topic, from its beginning: the key of each, and its document.
fn messages(servers: &str, topic: &str, count: usize) -> Vec<(String, serde_json::Value)> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("group.id", "test");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
    consumer.assign(&from).unwrap();
    let mut messages = Vec::new();
    let mut polls = 0;
    while messages.len() < count {
        polls += 1;
        assert!(polls < 600, "{} of {count} on {topic}", messages.len());
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
            let key = String::from_utf8(message.key().unwrap().to_vec()).unwrap();
            messages.push((key, serde_json::from_slice(message.payload().unwrap()).unwrap()));
        }
    }
    messages
}

#[tokio::test]
async fn runs_are_messages_in_order_on_their_topics() {
    let (broker, place) = (broker(), folder());
    let servers = broker.bootstrap_servers();
    let properties = format!("# of the site\nbootstrap.servers = {servers}\nlinger.ms=1\n");
    let default = kafka(&place, &properties, KafkaSettings { job_start: true, ..Default::default() });
    let mut start = run(1);
    start.starts = true;
    let runs: Vec<Completed> = std::iter::once(start).chain((1..=200).map(run)).collect();
    let produced = default.send(runs.iter()).await;
    assert_eq!((produced.delivered, produced.cause), (201, None));
    let ended = messages(&servers, "maple", 200);
    assert!(ended.iter().enumerate().all(|(place, (key, document))| {
        *key == (place + 1).to_string() && document["jobid"] == place + 1 && document["state"] == "FAILED"
    }));
    let started = messages(&servers, "maple-job-start", 1);
    assert!(started[0].1["jobid"] == 1 && started[0].1.get("exit_code").is_none());
    let topic = Some("jobs".to_owned());
    let named = kafka(&place, &properties, KafkaSettings { topic, ..Default::default() });
    assert!(!named.wants_starts());
    assert_eq!(named.send([run(7)].iter()).await.delivered, 1);
    assert_eq!(messages(&servers, "jobs", 1)[0].0, "7");
    fs::remove_dir_all(&place).unwrap();
}

#[tokio::test]
async fn while_the_broker_is_away_nothing_counts_as_written() {
    let (broker, place) = (broker(), folder());
    let servers = broker.bootstrap_servers();
    // The library gives up soon, which is what the site says in its file.
    let properties = format!("bootstrap.servers={servers}\nmessage.timeout.ms=10000\nlog_level=2\n");
    let kafka = kafka(&place, &properties, KafkaSettings::default());
    broker.broker_down(-1).unwrap();
    let away = kafka.send([run(1), run(2)].iter()).await;
    assert!(away.delivered == 0 && away.cause.as_ref().is_some_and(|cause| cause.contains("timed out")), "{away:?}");
    broker.broker_up(-1).unwrap();
    let mut from = 0;
    let runs = [run(1), run(2)];
    while from < runs.len() {
        from += kafka.send(runs[from..].iter()).await.delivered;
    }
    let received = messages(&servers, "maple", 2);
    assert_eq!(received.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["1", "2"]);
    fs::remove_dir_all(&place).unwrap();
}

#[tokio::test]
async fn a_message_that_is_too_large_holds_up_no_other() {
    let (broker, place) = (broker(), folder());
    let servers = broker.bootstrap_servers();
    let properties = format!("bootstrap.servers={servers}\nmessage.max.bytes=4000\n");
    let kafka = kafka(&place, &properties, KafkaSettings::default());
    let mut large = run(1);
    large.row.name = "x".repeat(10_000);
    let produced = kafka.send([large, run(2)].iter()).await;
    assert_eq!((produced.delivered, produced.cause), (2, None));
    assert_eq!(messages(&servers, "maple", 1)[0].0, "2");
    fs::remove_dir_all(&place).unwrap();
}

#[tokio::test]
async fn what_is_wrong_with_the_file_is_said() {
    let place = folder();
    let said = async |properties: &str| {
        let produced = kafka(&place, properties, KafkaSettings::default()).send([run(1)].iter()).await;
        assert_eq!(produced.delivered, 0);
        produced.cause.unwrap()
    };
    let wrong = said("bootstrap.servers=h:1\nno.such.property=1\n").await;
    assert!(wrong.contains("no.such.property") && wrong.contains("kafka.conf"), "{wrong}");
    let wrong = said("bootstrap.servers\n").await;
    assert!(wrong.contains("line 1 is no key=value"), "{wrong}");
    // The site's own idea of order is taken as it is.
    assert!(
        said("acks=1\nmessage.timeout.ms=50\nlog_level=2\nbootstrap.servers=127.0.0.1:1\n").await.contains("timed out")
    );
    fs::remove_file(place.join("kafka.conf")).unwrap();
    let location = Some(place.join("kafka.conf").display().to_string());
    let missing = Kafka::start(&CompletionSettings { location, ..Default::default() }, "maple").unwrap();
    let cause = missing.send([run(1)].iter()).await.cause.unwrap();
    assert!(cause.contains("No such file"), "{cause}");
    fs::remove_dir_all(&place).unwrap();
}

/// The controller's end waits for a broker that is away only as long as the site says.
#[tokio::test]
async fn the_end_does_not_wait_for_a_broker_that_is_away() {
    let place = folder();
    let properties = "bootstrap.servers=127.0.0.1:1\nlog_level=2\n";
    let kafka = kafka(&place, properties, KafkaSettings { flush_timeout_ms: Some(0), ..Default::default() });
    let ends = Arc::clone(&kafka.ends);
    let runs = [run(1)];
    let end = async { ends.store(true, Ordering::Relaxed) };
    let (produced, ()) = tokio::join!(kafka.send(runs.iter()), end);
    // Given up, and not after the library's own patience.
    let gave_up = produced.cause.as_ref().is_some_and(|cause| !cause.contains("timed out"));
    assert!(produced.delivered == 0 && gave_up, "{produced:?}");
    drop(kafka);
    fs::remove_dir_all(&place).unwrap();
}
