//! Promises about panics, restarts and escalation.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use garrick_runtime::{Address, AskError, Restart, Strategy, System, SystemConfig, WhenExceeded};
use tokio::time::Instant;

use crate::puppet::*;

/// A parent, started, with the given children.
async fn family(system: &System, parent: Puppet, restart: Restart, names: &[&'static str]) -> Vec<Address<Act>> {
    let parent = system.start("/", parent.spec());
    let names = names.to_vec();
    let children = ask(&parent, move |puppet, cx| {
        let log = puppet.log.clone();
        names.into_iter().map(|name| cx.start_child(Puppet::new(name, &log).spec().restart(restart))).collect()
    });
    let mut addresses: Vec<Address<Act>> = children.await.unwrap();
    for child in &addresses {
        settle(child).await;
    }
    addresses.insert(0, parent);
    addresses
}

#[tokio::test(start_paused = true)]
async fn a_panicking_actor_is_built_anew_and_keeps_its_mailbox_and_address() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        ask(&a, |puppet, _| puppet.count = 7).await.unwrap();
        a.try_send(panics()).unwrap();
        a.try_send(say("sent before the restart")).unwrap();
        lines.until("a up").await;
        assert_eq!(lines.take(2).await, ["a up", "sent before the restart"]);
        assert_eq!(ask(&a, |puppet, cx| (puppet.count, cx.incarnation())).await, Ok((0, 2)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn only_the_message_in_hand_is_lost_to_a_panic() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        let lost = a.ask(PATIENCE, |reply| {
            act("Panic", move |_, _| {
                let _unanswered: garrick_runtime::ReplyTo<()> = reply;
                panic!("with a reply in hand")
            })
        });
        let (lost, kept) = tokio::join!(lost, ask(&a, |_, _| "kept"));
        assert_eq!((lost, kept), (Err(AskError::Dropped), Ok("kept")));
        assert_eq!(lines.rest(), ["a up", "a up"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_at_start_or_at_a_childs_event_or_in_a_timer_counts_like_one_in_a_handler() {
    stage(async |system, log, mut lines| {
        let lives = Arc::new(AtomicU32::new(0));
        let parent = start(&system, "parent", &log);
        let child = Puppet::new("child", &log).at_start(move |cx| match lives.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("at start"),
            1 => cx.set_timer("t", Duration::from_secs(1), act("Timer", |_, _| panic!("in a timer"))),
            _ => {}
        });
        ask(&parent, move |_, cx| drop(cx.start_child(child.spec()))).await.unwrap();
        lines.until("parent: restarted /parent/child #1: at start").await;
        lines.until("parent: restarted /parent/child #2: in a timer").await;

        let family = Puppet::new("family", &log).at_event(|_| panic!("at an event"));
        let parent = ask(&parent, move |_, cx| cx.start_child(family.spec())).await.unwrap();
        let child = ask(&parent, |puppet, cx| cx.start_child(Puppet::new("c", &puppet.log).spec())).await.unwrap();
        child.try_send(panics()).unwrap();
        lines.until("parent: restarted /parent/family #1: at an event").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_for_one_leaves_the_siblings_alone() {
    stage(async |system, log, mut lines| {
        let [_, a, b, c] = &family(&system, Puppet::new("p", &log), Restart::default(), &["a", "b", "c"]).await[..]
        else {
            panic!("four addresses")
        };
        ask(a, |puppet, _| puppet.count = 1).await.unwrap();
        ask(c, |puppet, _| puppet.count = 3).await.unwrap();
        lines.rest();
        b.try_send(panics()).unwrap();
        assert_eq!(lines.take(2).await, ["b up", "p: restarted /p/b #1: as told"]);
        assert_eq!(ask(a, |puppet, _| puppet.count).await, Ok(1));
        assert_eq!(ask(c, |puppet, _| puppet.count).await, Ok(3));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn rest_for_one_restarts_those_started_later_in_start_order() {
    stage(async |system, log, mut lines| {
        let parent = Puppet::new("p", &log).strategy(Strategy::RestForOne);
        let [_, a, b, c, d] = &family(&system, parent, Restart::default(), &["a", "b", "c", "d"]).await[..] else {
            panic!("five addresses")
        };
        ask(a, |puppet, _| puppet.count = 1).await.unwrap();
        lines.rest();
        b.try_send(panics()).unwrap();
        c.try_send(say("c, before")).unwrap();
        settle(c).await;
        d.try_send(say("d, kept")).unwrap();
        let mut events = lines.take(9).await;
        // What c and d did before they were told to end is no part of the promise.
        events.retain(|line| !line.ends_with("before") && !line.ends_with("kept"));
        events.extend(lines.rest());
        let lives: Vec<&str> = events.iter().map(String::as_str).filter(|line| !line.starts_with("p:")).collect();
        assert_eq!(lives, ["d stopped", "c stopped", "b up", "c up", "d up"]);
        assert_eq!(ask(a, |puppet, _| puppet.count).await, Ok(1));
        for later in [b, c, d] {
            assert_eq!(ask(later, |_, cx| cx.incarnation()).await, Ok(2));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pauses_before_restarts_double_up_to_their_limit() {
    stage(async |system, log, mut lines| {
        let family = family(&system, Puppet::new("p", &log), limits(9, WhenExceeded::Stop), &["a"]).await;
        let mut pauses = Vec::new();
        lines.until("a up").await;
        for _ in 0..5 {
            let failed = Instant::now();
            family[1].try_send(panics()).unwrap();
            lines.until("a up").await;
            settle(&family[1]).await;
            pauses.push(failed.elapsed().as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn failures_outside_the_window_are_forgotten() {
    stage(async |system, log, mut lines| {
        let family = family(&system, Puppet::new("p", &log), limits(1, WhenExceeded::Stop), &["a"]).await;
        for n in 1..=3 {
            family[1].try_send(panics()).unwrap();
            lines.until(&format!("p: restarted /p/a #{n}: as told")).await;
            tokio::time::advance(Duration::from_secs(1000)).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_over_its_limit_is_given_up_if_its_spec_says_stop() {
    stage(async |system, log, mut lines| {
        let family = family(&system, Puppet::new("p", &log), limits(1, WhenExceeded::Stop), &["a"]).await;
        family[1].try_send(panics()).unwrap();
        lines.until("p: restarted /p/a #1: as told").await;
        family[1].try_send(panics()).unwrap();
        lines.until("p: gave up /p/a: more than 1 times within 1000s: as told").await;
        assert!(family[1].is_closed());
        assert_eq!(ask(&family[0], |_, cx| (cx.incarnation(), cx.children().len())).await, Ok((1, 0)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_never_restarted_is_given_up_at_its_first_panic() {
    stage(async |system, log, mut lines| {
        let family = family(&system, Puppet::new("p", &log), Restart::Never, &["a"]).await;
        family[1].try_send(panics()).unwrap();
        lines.until("p: gave up /p/a: as told").await;
        assert!(family[1].is_closed());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_over_its_limit_fails_its_parent_if_its_spec_says_escalate() {
    stage(async |system, log, mut lines| {
        let grandparent = start(&system, "g", &log);
        let inner = log.clone();
        let parent = Puppet::new("p", &log).at_start(move |cx| {
            cx.start_child(Puppet::new("c", &inner).spec().restart(limits(0, WhenExceeded::Escalate)));
        });
        let parent = ask(&grandparent, move |_, cx| cx.start_child(parent.spec())).await.unwrap();
        settle(&parent).await;
        let child = system.find::<Act>(&parent.path().child("c")).unwrap();
        child.try_send(panics()).unwrap();
        let reason = "child /g/p/c failed more than 0 times within 1000s: as told";
        lines.until(&format!("g: restarted /g/p #1: {reason}")).await;
        assert_eq!(ask(&parent, |_, cx| (cx.incarnation(), cx.children().len())).await, Ok((2, 1)));
        assert!(child.is_closed());
        settle(&system.find::<Act>(child.path()).unwrap()).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_parent_ends_its_children_before_its_next_life() {
    stage(async |system, log, mut lines| {
        let family = family(&system, Puppet::new("p", &log), Restart::default(), &["a", "b"]).await;
        lines.rest();
        family[0].try_send(panics()).unwrap();
        assert_eq!(lines.take(3).await, ["b stopped", "a stopped", "p up"]);
        assert!(family[1].is_closed() && family[2].is_closed());
        assert_eq!(ask(&family[0], |_, cx| cx.children().len()).await, Ok(0));
    })
    .await;
}

#[test]
fn an_escalation_above_the_topmost_actors_fails_the_system() {
    let config = SystemConfig { arbiters: 1, ..SystemConfig::default() };
    let failed = System::run(config, async |system: System| {
        let (log, _lines) = log();
        let a = system.start("/", Puppet::new("a", &log).spec().restart(limits(0, WhenExceeded::Escalate)));
        a.try_send(panics()).unwrap();
        std::future::pending::<()>().await;
    });
    let reason = failed.unwrap_err().reason;
    assert_eq!(reason, "child /a failed more than 0 times within 1000s: as told");
}
