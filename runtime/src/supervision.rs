//! What a parent decides about its children: which are restarted and when, which siblings are restarted with them, which are
//! given up, and in which order all of them end.
//!
//! Plain data in, orders out; no clock, no threads. A [`Host`](crate::host::Host) passes in the reports of its children and
//! carries out the orders. `I` is whatever the host needs to reach a child.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    message::{ChildEvent, Strategy},
    path::ActorPath,
    spec::{Restart, RestartLimits, WhenExceeded},
};

/// A child within its parent, numbered in start order; never used twice.
pub(crate) type Slot = u64;

/// What the host has to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Tell the child to begin a life.
    Begin(Slot),
    /// Tell the child to end its life in order and wait.
    Suspend(Slot),
    /// Tell the child to end for good.
    Stop(Slot),
    /// Call [`Children::backoff_over`] after that time.
    Wait { slot: Slot, after: Duration },
    /// Tell the actor.
    Tell(ChildEvent),
    /// The parent itself counts as failed.
    Escalate(String),
    /// All children have ended after [`Children::stop_all`].
    AllGone,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Told to begin, not up yet.
    Starting,
    Up,
    /// Failed, waiting out its pause.
    Backoff,
    /// Down, waiting for its turn to begin again.
    Ready,
    /// Told to suspend for a sibling.
    Suspending,
    /// Told to stop; with the reason if it was given up.
    Stopping(Option<String>),
}

struct Child<I> {
    path: ActorPath,
    inbox: I,
    restart: Restart,
    state: State,
    /// Failures within the window.
    failures: VecDeque<Instant>,
    restarts: u32,
    /// Why the next life begins, when it is not the first.
    cause: Option<String>,
}

pub(crate) struct Children<I> {
    children: BTreeMap<Slot, Child<I>>,
    slots: HashMap<ActorPath, Slot>,
    next: Slot,
    closing: bool,
    /// Whether a child may be `Ready` or `Suspending`, so that `advance` need not look through all of them each time.
    wave: bool,
}

impl<I> Children<I> {
    pub(crate) fn new() -> Self {
        Self { children: BTreeMap::new(), slots: HashMap::new(), next: 0, closing: false, wave: false }
    }

    /// The next slot. The caller starts the child and reports about it under this number.
    pub(crate) fn add(&mut self, path: ActorPath, inbox: I, restart: Restart) -> Slot {
        let slot = self.next;
        self.next += 1;
        let state = State::Starting;
        self.slots.insert(path.clone(), slot);
        self.children
            .insert(slot, Child { path, inbox, restart, state, failures: VecDeque::new(), restarts: 0, cause: None });
        slot
    }

    pub(crate) fn inbox(&self, slot: Slot) -> Option<&I> {
        self.children.get(&slot).map(|child| &child.inbox)
    }

    pub(crate) fn find(&self, path: &ActorPath) -> Option<Slot> {
        self.slots.get(path).copied()
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &ActorPath> {
        self.children.values().map(|child| &child.path)
    }

    /// A child's life has begun.
    pub(crate) fn up(&mut self, slot: Slot) -> Vec<Order> {
        let mut orders = Vec::new();
        let Some(child) = self.children.get_mut(&slot) else { return orders };
        // A child that was told to suspend or stop meanwhile will report that next.
        if child.state == State::Starting {
            child.state = State::Up;
            if let Some(panic) = child.cause.take() {
                child.restarts += 1;
                let event = ChildEvent::Restarted { path: child.path.clone(), panic, restarts: child.restarts };
                if !self.closing {
                    orders.push(Order::Tell(event));
                }
            }
            self.advance(&mut orders);
        }
        orders
    }

    /// A child's life ended with a panic; it waits for orders.
    pub(crate) fn failed(&mut self, slot: Slot, panic: &str, now: Instant, strategy: Strategy) -> Vec<Order> {
        let mut orders = Vec::new();
        let closing = self.closing;
        let Some(child) = self.children.get_mut(&slot) else { return orders };
        match child.state {
            State::Stopping(_) => return orders,
            State::Suspending => {
                // It would have been restarted for its sibling anyway.
                child.state = State::Ready;
                child.cause = Some(panic.to_owned());
                self.wave = true;
                self.advance(&mut orders);
                return orders;
            }
            State::Starting | State::Up | State::Backoff | State::Ready => {}
        }
        if closing {
            child.state = State::Ready;
            return orders;
        }
        match verdict(child.restart, &mut child.failures, now) {
            Verdict::Restart(after) => {
                child.state = State::Backoff;
                child.cause = Some(panic.to_owned());
                orders.push(Order::Wait { slot, after });
                if strategy == Strategy::RestForOne {
                    let why = format!("restarted with {}: {panic}", child.path);
                    self.suspend_after(slot, &why, &mut orders);
                }
            }
            Verdict::GiveUp(excess) => {
                let reason = excess.map_or_else(|| panic.to_owned(), |excess| format!("{excess}: {panic}"));
                child.state = State::Stopping(Some(reason));
                orders.push(Order::Stop(slot));
                self.advance(&mut orders);
            }
            Verdict::Escalate(excess) => {
                child.state = State::Ready;
                orders.push(Order::Escalate(format!("child {} failed {excess}: {panic}", child.path)));
            }
        }
        orders
    }

    fn suspend_after(&mut self, failed: Slot, why: &str, orders: &mut Vec<Order>) {
        self.wave = true;
        for (slot, child) in self.children.range_mut(failed + 1..).rev() {
            match child.state {
                State::Starting | State::Up => {
                    child.state = State::Suspending;
                    child.cause = Some(why.to_owned());
                    orders.push(Order::Suspend(*slot));
                }
                // Its own pause ends no later than its turn comes.
                State::Backoff => child.state = State::Ready,
                State::Ready | State::Suspending | State::Stopping(_) => {}
            }
        }
    }

    /// A child has suspended as told.
    pub(crate) fn suspended(&mut self, slot: Slot) -> Vec<Order> {
        let mut orders = Vec::new();
        if let Some(child) = self.children.get_mut(&slot)
            && child.state == State::Suspending
        {
            child.state = State::Ready;
            self.advance(&mut orders);
        }
        orders
    }

    /// A pause asked for by [`Order::Wait`] is over.
    pub(crate) fn backoff_over(&mut self, slot: Slot, strategy: Strategy) -> Vec<Order> {
        let mut orders = Vec::new();
        if self.closing {
            return orders;
        }
        if let Some(child) = self.children.get_mut(&slot)
            && child.state == State::Backoff
        {
            match strategy {
                Strategy::OneForOne => {
                    child.state = State::Starting;
                    orders.push(Order::Begin(slot));
                }
                Strategy::RestForOne => {
                    child.state = State::Ready;
                    self.wave = true;
                    self.advance(&mut orders);
                }
            }
        }
        orders
    }

    /// Begins the first child that waits for its turn, if nothing before it is still on its way and nothing is still
    /// being suspended: one after the other, in start order.
    fn advance(&mut self, orders: &mut Vec<Order>) {
        if self.closing || !self.wave || self.children.values().any(|child| child.state == State::Suspending) {
            return;
        }
        for (slot, child) in &mut self.children {
            match child.state {
                State::Up | State::Stopping(_) => {}
                State::Ready => {
                    child.state = State::Starting;
                    orders.push(Order::Begin(*slot));
                    return;
                }
                State::Starting | State::Backoff | State::Suspending => return,
            }
        }
        self.wave = false;
    }

    /// A child has ended for good.
    pub(crate) fn gone(&mut self, slot: Slot) -> Vec<Order> {
        let mut orders = Vec::new();
        let Some(child) = self.children.remove(&slot) else { return orders };
        // Another one may have been started there between its end and this word of it.
        if self.slots.get(&child.path) == Some(&slot) {
            self.slots.remove(&child.path);
        }
        if self.closing {
            self.stop_next(&mut orders);
            return orders;
        }
        orders.push(Order::Tell(match child.state {
            State::Stopping(Some(reason)) => ChildEvent::GaveUp { path: child.path, reason },
            _ => ChildEvent::Stopped { path: child.path },
        }));
        self.advance(&mut orders);
        orders
    }

    /// The parent wants a child to end for good.
    pub(crate) fn stop(&mut self, slot: Slot) -> Vec<Order> {
        match self.children.get_mut(&slot) {
            Some(child) if !matches!(child.state, State::Stopping(_)) => {
                child.state = State::Stopping(None);
                let mut orders = vec![Order::Stop(slot)];
                self.advance(&mut orders);
                orders
            }
            _ => Vec::new(),
        }
    }

    /// The parent's life ends: ends all children for good, one after the other in reverse start order.
    /// Answered by [`Order::AllGone`] at once or later.
    pub(crate) fn stop_all(&mut self) -> Vec<Order> {
        let mut orders = Vec::new();
        if !self.closing {
            self.closing = true;
            self.stop_next(&mut orders);
        }
        orders
    }

    fn stop_next(&mut self, orders: &mut Vec<Order>) {
        match self.children.last_entry() {
            None => orders.push(Order::AllGone),
            Some(mut last) => {
                if !matches!(last.get().state, State::Stopping(_)) {
                    last.get_mut().state = State::Stopping(None);
                    orders.push(Order::Stop(*last.key()));
                }
            }
        }
    }

    /// The parent begins another life: no children, and new ones may be added.
    pub(crate) fn reopen(&mut self) {
        self.closing = false;
    }
}

enum Verdict {
    Restart(Duration),
    GiveUp(Option<String>),
    Escalate(String),
}

fn verdict(restart: Restart, failures: &mut VecDeque<Instant>, now: Instant) -> Verdict {
    let limits = match restart {
        Restart::Never => return Verdict::GiveUp(None),
        Restart::OnPanic(limits) => limits,
    };
    while failures.front().is_some_and(|at| now.saturating_duration_since(*at) >= limits.window) {
        failures.pop_front();
    }
    let earlier = u32::try_from(failures.len()).unwrap_or(u32::MAX);
    if earlier >= limits.max {
        let excess = format!("more than {} times within {:?}", limits.max, limits.window);
        return match limits.then {
            WhenExceeded::Escalate => Verdict::Escalate(excess),
            WhenExceeded::Stop => Verdict::GiveUp(Some(excess)),
        };
    }
    failures.push_back(now);
    Verdict::Restart(pause(&limits, earlier))
}

/// The pause before a restart that follows `earlier` others within the window.
fn pause(limits: &RestartLimits, earlier: u32) -> Duration {
    let (least, most) = limits.backoff;
    least.saturating_mul(1_u32.checked_shl(earlier).unwrap_or(u32::MAX)).min(most.max(least))
}

#[cfg(test)]
#[path = "supervision_test.rs"]
mod supervision_test;
