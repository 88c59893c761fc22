//! Promises about timers.

use std::time::Duration;

use tokio::time::Instant;

use crate::puppet::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn timers_are_delivered_at_their_time_in_the_order_of_their_deadlines() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        let t0 = Instant::now();
        ask(&a, move |_, cx| {
            for n in [3_u64, 1, 2] {
                let line = act("Timer", move |puppet, _| {
                    puppet.log.write(format!("{n} at {}", t0.elapsed().as_secs()));
                });
                cx.set_timer(("timer", n), Duration::from_secs(n), line);
            }
        })
        .await
        .unwrap();
        assert_eq!(lines.take(4).await, ["a up", "1 at 1", "2 at 2", "3 at 3"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn timers_overtake_normal_messages() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        ask(&a, |_, cx| {
            for n in 0..100 {
                cx.address().try_send(say(n.to_string())).unwrap();
            }
            cx.set_timer("now", Duration::ZERO, say("timer"));
        })
        .await
        .unwrap();
        settle(&a).await;
        let lines = lines.rest();
        let place = lines.iter().position(|line| line == "timer").unwrap();
        assert!(place < 64, "behind {place} others: a timer waits for the present turn at most");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn setting_a_timer_replaces_the_one_of_its_key() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        ask(&a, |_, cx| {
            cx.set_timer("key", SECOND, say("first"));
            cx.set_timer("key", 2 * SECOND, say("second"));
            cx.set_timer("other", 3 * SECOND, say("other"));
        })
        .await
        .unwrap();
        assert_eq!(lines.take(3).await, ["a up", "second", "other"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cleared_timer_is_not_delivered_even_if_it_was_due() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        ask(&a, |_, cx| {
            // Both are due together; the first to be handled clears the other.
            for (key, other) in [("left", "right"), ("right", "left")] {
                let once = act("Once", move |puppet, cx| {
                    puppet.log.write("one of two");
                    cx.clear_timer(other);
                    assert!(!cx.has_timer(other));
                });
                cx.set_timer(key, SECOND, once);
            }
            cx.set_timer("end", 2 * SECOND, say("end"));
        })
        .await
        .unwrap();
        assert_eq!(lines.take(3).await, ["a up", "one of two", "end"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn timers_end_with_the_life_that_set_them() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        ask(&a, |_, cx| cx.set_timer("key", 10 * SECOND, say("from an earlier life"))).await.unwrap();
        a.try_send(panics()).unwrap();
        lines.until("a up").await;
        lines.until("a up").await;
        ask(&a, |_, cx| cx.set_timer("end", 60 * SECOND, say("end"))).await.unwrap();
        assert_eq!(lines.next().await, "end");
    })
    .await;
}
