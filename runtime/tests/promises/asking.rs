//! Promises about requests and their answers.

use std::time::Duration;

use garrick_runtime::{AskError, ReplyTo};

use crate::puppet::*;

#[tokio::test(start_paused = true)]
async fn an_answer_reaches_its_asker() {
    stage(async |system, log, _lines| {
        let a = start(&system, "a", &log);
        assert_eq!(ask(&a, |_, _| 42).await, Ok(42));
        let on_control: Result<&str, AskError> =
            a.ask_control(PATIENCE, |reply| act("Ask", |_, _| reply.reply("by control"))).await;
        assert_eq!(on_control, Ok("by control"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_asker_that_gives_up_takes_nothing_back() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        let answer: Result<(), AskError> = a
            .ask(Duration::ZERO, |reply| {
                act("Slow", move |puppet, _| {
                    puppet.log.write(format!("handled, abandoned: {}", reply.is_abandoned()));
                    reply.reply(());
                })
            })
            .await;
        assert_eq!(answer, Err(AskError::Timeout));
        assert_eq!(lines.take(2).await, ["a up", "handled, abandoned: true"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_timeout_says_only_that_the_answer_is_not_there() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        // The actor keeps the reply and answers two seconds later; the asker waits for one.
        let answer: Result<(), AskError> = a
            .ask(Duration::from_secs(1), |reply| {
                act("Later", move |_, cx| {
                    cx.set_timer(
                        "answer",
                        Duration::from_secs(2),
                        act("Answer", move |puppet, _| {
                            puppet.log.write("answered");
                            reply.reply(());
                        }),
                    );
                })
            })
            .await;
        assert_eq!(answer, Err(AskError::Timeout));
        assert_eq!(lines.take(2).await, ["a up", "answered"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_dropped_unanswered_is_told_at_once() {
    stage(async |system, log, _lines| {
        let a = start(&system, "a", &log);
        let begun = tokio::time::Instant::now();
        let answer: Result<(), AskError> = a.ask(PATIENCE, |reply| act("Drop", |_, _| drop(reply))).await;
        assert_eq!(answer, Err(AskError::Dropped));
        let (reply, pending) = ReplyTo::<()>::channel();
        a.try_send(act("PanicWithReply", move |_, _| {
            let _held = reply;
            panic!("before the answer")
        }))
        .unwrap();
        assert_eq!(pending.await, Err(AskError::Dropped));
        assert_eq!(begun.elapsed(), Duration::ZERO, "on the paused clock: nobody waited");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_could_not_be_delivered_fails_at_once() {
    stage(async |system, log, mut lines| {
        let a = system.start("/", Puppet::new("a", &log).spec().mailbox(1));
        a.try_send(say("first")).unwrap();
        assert_eq!(ask(&a, |_, _| ()).await, Err(AskError::Full));
        lines.until("first").await;
        a.control(act("Stop", |_, cx| cx.stop())).unwrap();
        lines.until("a stopped").await;
        assert_eq!(ask(&a, |_, _| ()).await, Err(AskError::Closed));
    })
    .await;
}
