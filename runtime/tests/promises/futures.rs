//! Promises about an actor's futures.

use std::future::pending;

use garrick_runtime::SendError;
use tokio::sync::oneshot;

use crate::puppet::*;

struct WhenDropped(Log);

impl Drop for WhenDropped {
    fn drop(&mut self) {
        self.0.write("future dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_pipe_comes_back_even_to_a_full_mailbox() {
    stage(async |system, log, mut lines| {
        let a = system.start("/", Puppet::new("a", &log).spec().mailbox(1));
        let (sender, receiver) = oneshot::channel();
        ask(&a, move |_, cx| cx.pipe(receiver, |result| say(result.unwrap()))).await.unwrap();
        // Fills the mailbox before the actor's thread, which is this one, can do anything.
        a.try_send(say("fills it")).unwrap();
        assert!(matches!(a.try_send(say("no room")), Err(SendError::Full(_))));
        sender.send("piped").unwrap();
        let mut got = lines.take(3).await;
        got.sort();
        assert_eq!(got, ["a up", "fills it", "piped"]);
        // The result took no place, so there is exactly one again.
        a.try_send(say("one")).unwrap();
        assert!(matches!(a.try_send(say("two")), Err(SendError::Full(_))));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_piped_ahead_comes_before_what_waits_in_the_normal_lane() {
    stage(async |system, log, mut lines| {
        let a = system.start("/", Puppet::new("a", &log).spec().mailbox(8));
        let (sender, receiver) = oneshot::channel::<&'static str>();
        let (hold, held) = oneshot::channel::<()>();
        ask(&a, move |_, cx| cx.pipe_ahead(receiver, |result| say(result.unwrap()))).await.unwrap();
        ask(&a, move |_, cx| cx.pipe(held, |_| say("piped"))).await.unwrap();
        hold.send(()).unwrap();
        sender.send("piped ahead").unwrap();
        assert_eq!(lines.take(3).await, ["a up", "piped ahead", "piped"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn futures_are_dropped_when_the_life_that_spawned_them_ends() {
    stage(async |system, log, mut lines| {
        for end in [panics(), act("Stop", |_, cx| cx.stop())] {
            let a = start(&system, "a", &log);
            lines.until("a up").await;
            ask(&a, |puppet, cx| {
                let held = WhenDropped(puppet.log.clone());
                cx.spawn(async move {
                    let _held = held;
                    pending::<()>().await;
                });
                assert_eq!(cx.tasks(), 1);
            })
            .await
            .unwrap();
            a.try_send(end).unwrap();
            assert_eq!(lines.next().await, "future dropped");
            // Whichever way it ended, let it be gone before the next.
            system.stop(a.path());
            while !a.is_closed() || system.paths("/").contains(a.path()) {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_future_counts_as_a_panic_of_the_actor() {
    stage(async |system, log, mut lines| {
        let parent = start(&system, "parent", &log);
        let child = ask(&parent, |puppet, cx| cx.start_child(Puppet::new("child", &puppet.log).spec())).await.unwrap();
        ask(&child, |puppet, cx| {
            puppet.count = 7;
            cx.spawn(async { panic!("in a future") });
        })
        .await
        .unwrap();
        lines.until("parent: restarted /parent/child #1: in a future").await;
        assert_eq!(ask(&child, |puppet, cx| (puppet.count, cx.incarnation())).await, Ok((0, 2)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_pipe_does_not_reach_a_later_life() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        // The panic is handled first, with the piped result waiting behind it.
        ask(&a, |_, cx| {
            cx.pipe(async {}, |()| say("from an earlier life"));
            cx.pipe(async {}, |()| panics());
            cx.pipe(async {}, |()| say("also from an earlier life"));
        })
        .await
        .unwrap();
        lines.until("from an earlier life").await;
        lines.until("a up").await;
        settle(&a).await;
        assert!(lines.rest().is_empty());
    })
    .await;
}
