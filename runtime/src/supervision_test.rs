//! Supervision decides on plain data: these tests play the host and the clock.
#![allow(clippy::unwrap_used)]

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn limits(max: u32, then: WhenExceeded) -> Restart {
    Restart::OnPanic(RestartLimits { max, window: 100 * SECOND, backoff: (SECOND, 4 * SECOND), then })
}

fn path(slot: Slot) -> ActorPath {
    ActorPath::root().child(&slot.to_string())
}

/// As many children, all up.
fn children(count: u64, restart: Restart) -> Children<()> {
    let mut children = Children::new();
    for slot in 0..count {
        assert_eq!(children.add(path(slot), (), restart), slot);
        assert_eq!(children.up(slot), [], "a first start is no event");
    }
    children
}

fn restarted(slot: Slot, panic: &str, restarts: u32) -> Order {
    Order::Tell(ChildEvent::Restarted { path: path(slot), panic: panic.to_owned(), restarts })
}

fn wait(slot: Slot, seconds: u32) -> Order {
    Order::Wait { slot, after: seconds * SECOND }
}

use Strategy::{OneForOne, RestForOne};

#[test]
fn a_failing_child_waits_out_its_pause_and_begins_again() {
    let mut children = children(2, Restart::default());
    let now = Instant::now();
    let orders = children.failed(0, "p", now, OneForOne);
    assert!(matches!(orders[..], [Order::Wait { slot: 0, .. }]));
    assert_eq!(children.backoff_over(0, OneForOne), [Order::Begin(0)]);
    assert_eq!(children.backoff_over(0, OneForOne), [], "only once");
    assert_eq!(children.up(0), [restarted(0, "p", 1)]);
}

#[test]
fn pauses_double_within_the_window_and_failures_before_it_are_forgotten() {
    let mut children = children(1, limits(4, WhenExceeded::Stop));
    let t0 = Instant::now();
    let mut fail_at = |at: Instant| {
        let orders = children.failed(0, "p", at, OneForOne);
        children.backoff_over(0, OneForOne);
        children.up(0);
        orders
    };
    for pause in [1, 2, 4, 4] {
        assert_eq!(fail_at(t0), [wait(0, pause)]);
    }
    assert_eq!(fail_at(t0 + 100 * SECOND), [wait(0, 1)], "the four are out of the window");
}

#[test]
fn above_its_limit_a_child_is_given_up_or_fails_its_parent() {
    let now = Instant::now();
    let excess = "more than 0 times within 100s";
    let mut stop = children(1, limits(0, WhenExceeded::Stop));
    assert_eq!(stop.failed(0, "p", now, OneForOne), [Order::Stop(0)]);
    let reason = format!("{excess}: p");
    assert_eq!(stop.gone(0), [Order::Tell(ChildEvent::GaveUp { path: path(0), reason })]);
    let mut escalate = children(1, limits(0, WhenExceeded::Escalate));
    let reason = format!("child /0 failed {excess}: p");
    assert_eq!(escalate.failed(0, "p", now, OneForOne), [Order::Escalate(reason)]);
    assert_eq!(escalate.stop_all(), [Order::Stop(0)]);
    assert_eq!(escalate.gone(0), [Order::AllGone]);
}

#[test]
fn rest_for_one_suspends_the_later_ones_backwards_and_begins_them_forwards_one_by_one() {
    let mut children = children(4, Restart::default());
    let orders = children.failed(1, "p", Instant::now(), RestForOne);
    assert!(matches!(orders[..], [Order::Wait { slot: 1, .. }, Order::Suspend(3), Order::Suspend(2)]));
    assert_eq!(children.suspended(3), []);
    // The pause may be over before all have suspended; nothing begins then.
    assert_eq!(children.backoff_over(1, RestForOne), []);
    assert_eq!(children.suspended(2), [Order::Begin(1)]);
    assert_eq!(children.up(1), [restarted(1, "p", 1), Order::Begin(2)]);
    let why = "restarted with /1: p";
    assert_eq!(children.up(2), [restarted(2, why, 1), Order::Begin(3)]);
    assert_eq!(children.up(3), [restarted(3, why, 1)]);
}

#[test]
fn a_child_that_fails_or_comes_up_while_it_is_to_suspend_just_joins_the_others() {
    let mut children = children(3, Restart::default());
    let now = Instant::now();
    children.failed(0, "p", now, RestForOne);
    assert_eq!(children.failed(1, "q", now, RestForOne), []);
    assert_eq!(children.up(2), [], "crossed with the order to suspend");
    assert_eq!(children.suspended(2), []);
    assert_eq!(children.backoff_over(0, RestForOne), [Order::Begin(0)]);
    assert_eq!(children.suspended(1), [], "its late answer changes nothing");
    assert_eq!(children.up(0), [restarted(0, "p", 1), Order::Begin(1)]);
    assert_eq!(children.up(1), [restarted(1, "q", 1), Order::Begin(2)]);
}

#[test]
fn an_earlier_failure_takes_a_waiting_later_one_along() {
    let mut children = children(3, Restart::default());
    let now = Instant::now();
    children.failed(2, "late", now, RestForOne);
    let orders = children.failed(0, "early", now, RestForOne);
    assert!(matches!(orders[..], [Order::Wait { slot: 0, .. }, Order::Suspend(1)]));
    assert_eq!(children.backoff_over(2, RestForOne), [], "its pause is over, its turn is not");
    assert_eq!(children.suspended(1), []);
    assert_eq!(children.backoff_over(0, RestForOne), [Order::Begin(0)]);
    assert!(matches!(children.up(0)[..], [_, Order::Begin(1)]));
    assert!(matches!(children.up(1)[..], [_, Order::Begin(2)]));
    assert_eq!(children.up(2), [restarted(2, "late", 1)]);
}

#[test]
fn a_child_that_goes_away_does_not_hold_up_the_others() {
    let mut children = children(3, Restart::default());
    children.failed(0, "p", Instant::now(), RestForOne);
    assert_eq!(children.stop(0), [Order::Stop(0)]);
    assert_eq!(children.suspended(2), []);
    assert_eq!(children.suspended(1), [Order::Begin(1)]);
    assert_eq!(children.gone(0), [Order::Tell(ChildEvent::Stopped { path: path(0) })]);
    assert!(matches!(children.up(1)[..], [_, Order::Begin(2)]));
}

#[test]
fn all_are_stopped_one_after_the_other_backwards_and_no_events_told() {
    let mut children = children(3, Restart::default());
    children.failed(1, "p", Instant::now(), OneForOne);
    assert_eq!(children.stop(2), [Order::Stop(2)]);
    assert_eq!(children.stop_all(), [], "the last one has been told already");
    assert_eq!(children.gone(2), [Order::Stop(1)]);
    assert_eq!(children.backoff_over(1, OneForOne), []);
    assert_eq!(children.failed(0, "q", Instant::now(), OneForOne), []);
    assert_eq!(children.gone(1), [Order::Stop(0)]);
    assert_eq!(children.gone(0), [Order::AllGone]);
    children.reopen();
    assert_eq!(children.stop_all(), [Order::AllGone], "none left: at once");
}
