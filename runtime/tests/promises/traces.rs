//! Promises about traces.

use std::time::Duration;

use garrick_runtime::{ActorPath, Address, Lane, Outcome, System, SystemConfig, TraceContext, TraceRecord};

use crate::puppet::*;

fn of(system: &System, prefix: &str) -> Vec<TraceRecord> {
    system.traces().collect(&[prefix.to_owned()])
}

fn by_name<'a>(records: &'a [TraceRecord], name: &str) -> &'a TraceRecord {
    records.iter().find(|record| record.message == name).unwrap_or_else(|| panic!("no {name} in {records:#?}"))
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_sends_carries_its_trace_and_names_it_as_the_cause() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        let b = start(&system, "b", &log);
        let first = TraceContext { trace: 77, cause: 5 };
        let deed = act("First", move |_, cx| {
            b.try_send(act("Sent", |_, _| ())).unwrap();
            cx.set_timer("t", Duration::from_secs(9), act("Timer", |puppet, _| puppet.log.write("end")));
            cx.pipe(async {}, |()| act("Piped", |_, _| ()));
            cx.spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                b.send(act("Spawned", |_, _| ())).await.unwrap();
            });
            cx.start_child(
                Puppet::new("child", &log)
                    .at_start(|cx| {
                        cx.address().try_send(act("ToChild", |_, _| ())).unwrap();
                    })
                    .spec(),
            );
        });
        a.deliver(first, Lane::Normal, deed).unwrap();
        lines.until("end").await;
        let records = system.traces().collect(&[]);
        let root = by_name(&records, "First");
        assert_eq!((root.trace, root.cause), (77, 5));
        for name in ["Sent", "Timer", "Piped", "Spawned", "ToChild"] {
            let record = by_name(&records, name);
            assert_eq!((record.trace, record.cause), (77, root.id), "{name}");
            assert!(record.seq > root.seq);
        }
        assert_eq!(TraceContext::current(), TraceContext::default(), "nothing is left on the thread");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_send_outside_of_any_message_begins_a_trace() {
    stage(async |system, log, _lines| {
        let a = start(&system, "a", &log);
        a.try_send(act("One", |_, _| ())).unwrap();
        a.deliver(TraceContext::default(), Lane::Normal, act("Two", |_, _| ())).unwrap();
        settle(&a).await;
        let records = of(&system, "/a");
        let (one, two) = (by_name(&records, "One"), by_name(&records, "Two"));
        assert!(one.trace != 0 && two.trace != 0 && one.trace != two.trace);
        assert_eq!((one.cause, two.cause), (0, 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_message_leaves_a_record_with_its_outcome() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        a.try_send(act("Fine", |_, _| ())).unwrap();
        a.try_send(panics()).unwrap();
        a.try_send(act("Stop", |_, cx| cx.stop())).unwrap();
        a.try_send(act("Waiting", |_, _| ())).unwrap();
        a.try_send(act("Untraced", |_, _| ())).unwrap();
        lines.until("a stopped").await;
        let records = of(&system, "/a");
        let outcomes: Vec<(&str, String)> =
            records.iter().map(|record| (record.message, record.outcome.to_string())).collect();
        let expected = [("Fine", "ok"), ("Panic", "panic: as told"), ("Stop", "ok"), ("Waiting", "dropped")];
        assert_eq!(outcomes, expected.map(|(name, outcome)| (name, outcome.to_owned())));
        let path = ActorPath::new("/a").unwrap();
        assert!(records.iter().all(|record| record.actor == path && record.at_us > 0 && record.id != 0));
        assert_eq!(records[3].handle_us, 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_actor_keeps_its_last_records_only() {
    let config = SystemConfig { trace_ring_len: 5, ..SystemConfig::default() };
    System::within(config, async |system: System| {
        let (log, _lines) = log();
        let [noisy, quiet] = ["noisy", "quiet"].map(|name| start(&system, name, &log));
        quiet.try_send(say("quiet")).unwrap();
        for _ in 0..100 {
            noisy.try_send(say("x")).unwrap();
        }
        noisy.try_send(act("Last", |_, _| ())).unwrap();
        settle(&quiet).await;
        lines_settled(&noisy).await;
        let records = of(&system, "/noisy");
        assert_eq!(records.len(), 5);
        assert_eq!(records[3].message, "Last");
        assert_eq!(of(&system, "/quiet").len(), 2, "one actor's noise does not push out another's records");
    })
    .await;

    async fn lines_settled(address: &Address<Act>) {
        settle(address).await;
    }
}

#[tokio::test(start_paused = true)]
async fn records_in_all_rings_together_are_bounded() {
    let config = SystemConfig { trace_total_len: 50, ..SystemConfig::default() };
    System::within(config, async |system: System| {
        let (log, _lines) = log();
        for n in 0..10 {
            let a = start(&system, &format!("a{n}"), &log);
            for _ in 0..30 {
                a.try_send(say("x")).unwrap();
            }
            settle(&a).await;
        }
        let records = system.traces().collect(&[]);
        // Each ring may keep four beyond the limit.
        assert!(records.len() <= 50 + 11 * 4, "{}", records.len());
        assert_eq!(of(&system, "/a9").len(), 4);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn records_are_collected_by_prefix_in_causal_order_ended_actors_included() {
    stage(async |system, log, mut lines| {
        let step = system.start("/job/5", Puppet::new("step/0", &log).spec());
        let job = start(&system, "job/5", &log);
        let other = start(&system, "job/56", &log);
        settle(&other).await;
        job.try_send(act("Launch", move |_, _| {
            step.try_send(act("Run", |_, cx| cx.stop())).unwrap();
        }))
        .unwrap();
        lines.until("step/0 stopped").await;
        settle(&job).await;
        let records = of(&system, "/job/5");
        let seen: Vec<(&str, &str)> = records.iter().map(|record| (record.actor.as_str(), record.message)).collect();
        assert_eq!(seen[..2], [("/job/5", "Launch"), ("/job/5/step/0", "Run")]);
        assert!(records.is_sorted_by_key(|record| record.seq));
        assert!(records.iter().all(|record| !record.actor.is_under("/job/56")));
        assert_eq!(records[1].cause, records[0].id);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_follower_gets_every_record_also_of_actors_started_later() {
    stage(async |system, log, _lines| {
        let early = start(&system, "job/1", &log);
        settle(&early).await;
        let mut follower = system.traces().follow(vec!["/job".to_owned()]);
        early.try_send(act("Early", |_, _| ())).unwrap();
        start(&system, "job/2", &log).try_send(act("Late", |_, _| ())).unwrap();
        start(&system, "node/1", &log).try_send(act("Other", |_, _| ())).unwrap();
        let mut names = Vec::new();
        while names.len() < 2 {
            let (records, lost) = follower.next_batch().await;
            assert_eq!(lost, 0);
            names.extend(records.into_iter().map(|record| record.message));
        }
        names.sort_unstable();
        assert_eq!(names, ["Early", "Late"]);
        assert!(follower.try_batch().is_none());
    })
    .await;
}

/// Or whoever follows an actor that carries traces would be sent a record of each batch of records, without end.
#[tokio::test(start_paused = true)]
async fn what_carries_traces_is_counted_and_in_no_trace() {
    stage(async |system, log, _lines| {
        let a = start(&system, "a", &log);
        settle(&a).await;
        let mut follower = system.traces().follow(vec!["/a".to_owned()]);
        a.try_send(act("Untraced", |_, _| ())).unwrap();
        a.try_send(act("After", |_, _| ())).unwrap();
        let (records, _) = follower.next_batch().await;
        assert_eq!(records.iter().map(|record| record.message).collect::<Vec<_>>(), ["After"]);
        let counts = system.traces().counts(&["/a".to_owned()]);
        assert!(counts.iter().any(|count| (count.message, count.handled) == ("Untraced", 1)), "{counts:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_does_not_keep_up_learns_how_many_records_it_lost() {
    stage(async |system, log, _lines| {
        let a = start(&system, "a", &log);
        let mut follower = system.traces().follow(vec!["/a".to_owned()]);
        for _ in 0..10_000 {
            a.send(act("Many", |_, _| ())).await.unwrap();
        }
        settle(&a).await;
        let (records, lost) = follower.next_batch().await;
        assert!(lost > 0);
        assert_eq!(records.len() as u64 + lost, 10_001);
        a.try_send(act("After", |_, _| ())).unwrap();
        let (records, lost) = follower.next_batch().await;
        assert_eq!((records[0].message, records.len(), lost), ("After", 1, 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn with_traces_off_there_are_no_records_and_contexts_travel_all_the_same() {
    stage(async |system, log, _lines| {
        system.traces().set_enabled(false);
        let a = start(&system, "a", &log);
        let (address, mut receiver) = Address::channel(ActorPath::new("/far").unwrap(), 1);
        a.deliver(
            TraceContext { trace: 77, cause: 5 },
            Lane::Normal,
            act("Pass", move |_, _| address.try_send(say("on")).unwrap()),
        )
        .unwrap();
        let passed = receiver.recv_delivered().await.unwrap();
        assert_eq!(passed.cx.trace, 77);
        assert!(passed.cx.cause != 5 && passed.cx.cause != 0);
        assert!(of(&system, "/a").is_empty());
        system.traces().set_enabled(true);
        settle(&a).await;
        assert!(matches!(of(&system, "/a")[..], [TraceRecord { outcome: Outcome::Ok, .. }]));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn handled_messages_are_counted_by_name_with_traces_on_or_off() {
    stage(async |system, log, mut lines| {
        let counted = |prefix: &str| -> Vec<(String, &str, u64)> {
            let counts = system.traces().counts(&[prefix.to_owned()]);
            counts.into_iter().filter(|c| c.message != "Ask").map(|c| (c.actor, c.message, c.handled)).collect()
        };
        let a = start(&system, "job/1", &log);
        a.try_send(act("Beat", |_, _| ())).unwrap();
        a.try_send(panics()).unwrap();
        settle(&a).await;
        system.traces().set_enabled(false);
        a.try_send(act("Beat", |_, _| ())).unwrap();
        settle(&a).await;
        let names: Vec<(&str, u64)> = counted("/job").iter().map(|(_, name, handled)| (*name, *handled)).collect();
        assert_eq!(names.iter().find(|(name, _)| *name == "Beat"), Some(&("Beat", 2)), "{names:?}");
        assert!(names.len() == 2, "the message that panicked was handled too: {names:?}");
        a.try_send(act("Stop", |_, cx| cx.stop())).unwrap();
        a.try_send(act("Beat", |_, _| ())).unwrap();
        lines.until("job/1 stopped").await;
        // The last of it is told to the guardian; another actor of the same thread runs after that.
        settle(&start(&system, "b", &log)).await;
        let ended = counted("/job");
        assert!(ended.contains(&("/job/*".to_owned(), "Beat", 2)), "{ended:?}");
        assert!(ended.contains(&("/job/*".to_owned(), "Stop", 1)), "{ended:?}");
        assert_eq!(counted("/node"), []);
    })
    .await;
}
