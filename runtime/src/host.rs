//! One actor's life on its arbiter.
//!
//! A host is an actix actor with a single future in its context: the [`Turns`]. It takes signals and messages from the mailbox, a
//! bounded number per turn, runs the author's code behind `catch_unwind`, and reports to the parent. `supervision` decides about
//! failing children, and `mailbox` the order of messages.
//!
//! A life begins with the factory and [`Actor::started`] and ends by a stop, a panic or a suspension because of a sibling: first
//! futures and timers end, then the children, then the value. The mailbox belongs to the host and survives all lives but the
//! last.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
};

use actix::{ActorContext as _, AsyncContext as _, fut::ActorFuture};
use tokio::time::{Instant, Sleep};

use crate::{
    context::{Context, Due, DueKey},
    mailbox::{Envelope, Inbox, Mailbox, Origin, Signal, Taken},
    message::{Actor, Message as _, Strategy},
    supervision::{Order, Slot},
    system::System,
    tasks::guarded,
    trace::{Outcome, TraceContext, next_id},
    trace_hub::{Begun, Ring},
};

/// How a host reaches its parent.
pub(crate) struct ParentLink {
    pub(crate) inbox: Arc<dyn Inbox>,
    /// The host's number among the parent's children.
    pub(crate) slot: Slot,
}

impl ParentLink {
    fn tell(&self, report: impl FnOnce(Slot) -> Signal) {
        self.inbox.signal(report(self.slot));
    }
}

/// Starts an actor on this thread, behind a mailbox that is registered already.
pub(crate) fn start<A: Actor>(
    system: System,
    mailbox: Arc<Mailbox<A::Msg>>,
    factory: Box<dyn FnMut() -> A + Send>,
    parent: Option<ParentLink>,
    cx: TraceContext,
) {
    let host = Host {
        actor: None,
        ring: system.traces().ring(mailbox.path()),
        turn_len: system.turn_len(),
        cx: Context::new(system, mailbox),
        factory,
        parent,
        phase: Phase::Down,
        sleep: None,
        birth: Some(cx),
    };
    #[expect(clippy::disallowed_methods, reason = "the one place where an actix actor is started")]
    drop(actix::Actor::start(host));
}

enum Phase {
    /// No life: before the first, or waiting for the parent's word.
    Down,
    Running,
    /// A life is ending; its children have not all gone.
    Ending(End),
    /// Ended for good.
    Over,
}

enum End {
    Stop,
    Suspend,
    Fail(String),
}

struct Host<A: Actor> {
    actor: Option<A>,
    cx: Context<A>,
    factory: Box<dyn FnMut() -> A + Send>,
    /// `None` for the topmost actor.
    parent: Option<ParentLink>,
    phase: Phase,
    ring: Arc<Ring>,
    /// Most messages and signals taken in one turn.
    turn_len: u32,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The trace in which the actor was started, until it has started.
    birth: Option<TraceContext>,
}

// Nothing in a host is pinned in place: the sleep is in a box of its own.
impl<A: Actor> Unpin for Host<A> {}

impl<A: Actor> actix::Actor for Host<A> {
    type Context = actix::Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        #[expect(clippy::disallowed_methods, reason = "the host's only future: see the module's description")]
        ctx.spawn(Turns);
    }
}

/// Drives a host from its mailbox.
struct Turns;

impl<A: Actor> ActorFuture<Host<A>> for Turns {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        host: &mut Host<A>,
        ctx: &mut actix::Context<Host<A>>,
        task: &mut TaskContext<'_>,
    ) -> Poll<()> {
        let polled = host.turn(task);
        if polled.is_ready() {
            ctx.stop();
        }
        polled
    }
}

impl<A: Actor> Host<A> {
    /// Works until there is nothing to do or the turn is used up. Ready when the actor has ended for good.
    fn turn(&mut self, task: &mut TaskContext<'_>) -> Poll<()> {
        if self.birth.is_some() {
            self.begin();
        }
        let mut left = self.turn_len;
        self.queue_due_timers(task);
        while !matches!(self.phase, Phase::Over) {
            if left == 0 {
                // Back of the arbiter's queue: the others get their turn.
                task.waker().wake_by_ref();
                return Poll::Pending;
            }
            left -= 1;
            match self.cx.mailbox.take() {
                Some(Taken::Signal(signal)) => self.signal(signal),
                Some(Taken::Message(envelope)) => self.message(envelope),
                Some(Taken::Timer { id, queued }) => self.timer(id, queued),
                None => {
                    if !self.queue_due_timers(task) && self.cx.mailbox.park(task.waker()) {
                        return Poll::Pending;
                    }
                }
            }
        }
        Poll::Ready(())
    }

    /// Puts due timers into the control lane, and sleeps until the next is due. True when there were any.
    fn queue_due_timers(&mut self, task: &mut TaskContext<'_>) -> bool {
        let mut any = false;
        while let Some(deadline) = self.cx.timers.next_deadline() {
            let sleep = match &mut self.sleep {
                Some(sleep) => {
                    if sleep.deadline() != deadline {
                        sleep.as_mut().reset(deadline);
                    }
                    sleep
                }
                none => none.insert(Box::pin(tokio::time::sleep_until(deadline))),
            };
            if sleep.as_mut().poll(task).is_pending() {
                return any;
            }
            // The clock counts in milliseconds: what this sleep was for is due, whatever a finer clock says.
            for id in self.cx.timers.due(deadline.max(Instant::now())) {
                any = true;
                self.cx.mailbox.push_timer(id);
            }
        }
        self.sleep = None;
        any
    }

    fn timer(&mut self, id: u64, queued: Option<std::time::Instant>) {
        match self.cx.timers.take(id) {
            Some((cx, Due::Deliver(msg))) => {
                let origin = Origin::Own(self.cx.incarnation);
                self.message(Envelope { msg, cx, id: next_id(), queued, origin });
            }
            Some((_, Due::BackoffOver(slot))) => {
                let strategy = self.strategy();
                let orders = self.cx.children.backoff_over(slot, strategy);
                self.carry_out(orders);
            }
            None => {}
        }
    }

    fn message(&mut self, envelope: Envelope<A::Msg>) {
        let Envelope { msg, cx, id, queued, origin } = envelope;
        if matches!(origin, Origin::Own(life) if life != self.cx.incarnation) {
            self.drop_message(Envelope { msg, cx, id, queued, origin });
            return;
        }
        let Some(actor) = &mut self.actor else { return };
        let context = &mut self.cx;
        let begun = self.ring.begin();
        let (mut name, mut traced) = ("?", true);
        let result = TraceContext { trace: cx.trace, cause: id }.enter(|| {
            guarded(|| {
                (name, traced) = (msg.name(), msg.is_traced());
                actor.handle(context, msg);
            })
        });
        let outcome = match &result {
            Ok(()) => Outcome::Ok,
            Err(panic) => Outcome::Panic(panic.clone()),
        };
        match begun {
            Some(begun) if traced || result.is_err() => self.ring.record(&begun, cx, id, queued, name, &outcome),
            _ => self.ring.count(name),
        }
        match result {
            Ok(()) => self.after_author(),
            Err(panic) => {
                tracing::error!(actor = %self.cx.path(), msg = name, trace = cx.trace, panic, "actor.panic");
                self.end(End::Fail(panic));
            }
        }
    }

    /// Records a message that will not be handled, and drops it.
    fn drop_message(&self, envelope: Envelope<A::Msg>) {
        let Envelope { msg, cx, id, queued, .. } = envelope;
        let begun: Option<Begun> = self.ring.begin();
        // Message names and drops are authors' code too.
        let dropped = guarded(|| {
            if let Some(begun) = begun.filter(|_| msg.is_traced()) {
                self.ring.record(&begun, cx, id, queued, msg.name(), &Outcome::Dropped);
            }
            drop(msg);
        });
        if let Err(panic) = dropped {
            tracing::error!(actor = %self.cx.path(), panic, "message panicked while it was dropped");
        }
    }

    fn close_mailbox(&self) {
        for envelope in self.cx.mailbox.close() {
            self.drop_message(envelope);
        }
    }

    fn signal(&mut self, signal: Signal) {
        let orders = match signal {
            Signal::Begin => {
                if matches!(self.phase, Phase::Down) {
                    self.begin();
                }
                return;
            }
            Signal::Stop => return self.stop(),
            Signal::Suspend => {
                match self.phase {
                    Phase::Running => self.end(End::Suspend),
                    // It failed meanwhile; the parent learns that first and passes over this answer.
                    Phase::Down => self.report(Signal::ChildSuspended),
                    Phase::Ending(_) | Phase::Over => {}
                }
                return;
            }
            Signal::TaskPanicked { incarnation, panic } => {
                if incarnation == self.cx.incarnation && matches!(self.phase, Phase::Running) {
                    tracing::error!(actor = %self.cx.path(), panic, "actor.panic in a future");
                    self.end(End::Fail(panic));
                }
                return;
            }
            Signal::ChildUp(slot) => self.cx.children.up(slot),
            Signal::ChildFailed(slot, panic) => {
                let strategy = self.strategy();
                self.cx.children.failed(slot, &panic, Instant::now(), strategy)
            }
            Signal::ChildSuspended(slot) => self.cx.children.suspended(slot),
            Signal::ChildGone(slot) => self.cx.children.gone(slot),
        };
        self.carry_out(orders);
    }

    fn strategy(&self) -> Strategy {
        self.actor.as_ref().and_then(|actor| guarded(|| actor.strategy()).ok()).unwrap_or_default()
    }

    fn report(&self, report: impl FnOnce(Slot) -> Signal) {
        if let Some(parent) = &self.parent {
            parent.tell(report);
        }
    }

    /// Begins a life.
    fn begin(&mut self) {
        let cx = self.birth.take().unwrap_or_else(TraceContext::root);
        self.cx.incarnation += 1;
        self.cx.stopping = false;
        self.cx.children.reopen();
        // Orders carried out while the last life ended may have set one.
        self.cx.timers.clear_all();
        self.phase = Phase::Running;
        let (actor, factory, context) = (&mut self.actor, &mut self.factory, &mut self.cx);
        let begun = cx.enter(|| guarded(|| actor.insert(factory()).started(context)));
        match begun {
            Ok(()) => {
                self.report(Signal::ChildUp);
                self.cx.mailbox.set_accepting(true);
                self.after_author();
            }
            Err(panic) => {
                tracing::error!(actor = %self.cx.path(), panic, "actor.panic at start");
                self.end(End::Fail(panic));
            }
        }
    }

    /// After the author's code ran: what it asked for.
    fn after_author(&mut self) {
        let orders = std::mem::take(&mut self.cx.orders);
        self.carry_out(orders);
        if self.cx.stopping && matches!(self.phase, Phase::Running) {
            self.end(End::Stop);
        }
    }

    fn carry_out(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Begin(slot) => self.cx.signal_child(slot, Signal::Begin),
                Order::Suspend(slot) => self.cx.signal_child(slot, Signal::Suspend),
                Order::Stop(slot) => self.cx.signal_child(slot, Signal::Stop),
                Order::Wait { slot, after } => {
                    let cx = TraceContext::default();
                    let key = DueKey::Backoff(slot);
                    self.cx.timers.set(key, Instant::now(), after, cx, Due::BackoffOver(slot));
                }
                Order::Tell(event) => self.child_event(event),
                Order::Escalate(reason) => {
                    if matches!(self.phase, Phase::Running) {
                        tracing::error!(actor = %self.cx.path(), reason, "actor.escalate");
                        self.end(End::Fail(reason));
                    }
                }
                Order::AllGone => self.children_gone(),
            }
        }
    }

    fn child_event(&mut self, event: crate::message::ChildEvent) {
        if let crate::message::ChildEvent::Restarted { path, .. } = &event {
            self.cx.system.traces().restarted(path);
        }
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let Some(actor) = &mut self.actor else { return };
        let context = &mut self.cx;
        match TraceContext::root().enter(|| guarded(|| actor.child_event(context, event))) {
            Ok(()) => self.after_author(),
            Err(panic) => {
                tracing::error!(actor = %self.cx.path(), panic, "actor.panic at a child's event");
                self.end(End::Fail(panic));
            }
        }
    }

    /// The parent's (or the system's) word that this is the end.
    fn stop(&mut self) {
        match &mut self.phase {
            Phase::Running => self.end(End::Stop),
            Phase::Ending(End::Stop) | Phase::Over => {}
            Phase::Ending(end) => {
                *end = End::Stop;
                self.close_mailbox();
            }
            Phase::Down => {
                self.close_mailbox();
                self.over(None);
            }
        }
    }

    /// Ends this life: futures and timers now, then the children, then (in [`children_gone`](Self::children_gone)) the
    /// value. Messages wait for the next life, unless there will be none.
    fn end(&mut self, end: End) {
        self.cx.mailbox.set_accepting(false);
        if matches!(end, End::Stop) {
            self.close_mailbox();
        }
        self.phase = Phase::Ending(end);
        self.cx.tasks.clear();
        self.cx.timers.clear_all();
        self.sleep = None;
        // What a panicking handler still ordered: its children count on it, since supervision has noted it as done.
        let mut orders = std::mem::take(&mut self.cx.orders);
        orders.extend(self.cx.children.stop_all());
        self.carry_out(orders);
    }

    fn children_gone(&mut self) {
        let Phase::Ending(end) = std::mem::replace(&mut self.phase, Phase::Down) else { return };
        let actor = self.actor.take();
        let orderly = matches!(end, End::Stop | End::Suspend);
        let dropped = guarded(move || {
            if let Some(mut actor) = actor
                && orderly
            {
                actor.stopped();
            }
        });
        if let Err(panic) = dropped {
            tracing::error!(actor = %self.cx.path(), panic, "actor.panic at the end");
        }
        match (end, &self.parent) {
            (End::Stop, _) => self.over(None),
            (End::Suspend, _) => self.report(Signal::ChildSuspended),
            (End::Fail(panic), Some(parent)) => parent.tell(|slot| Signal::ChildFailed(slot, panic)),
            (End::Fail(panic), None) => {
                self.close_mailbox();
                self.over(Some(panic));
            }
        }
    }

    /// Ended for good: the path is free, and the parent may know.
    fn over(&mut self, failure: Option<String>) {
        self.phase = Phase::Over;
        self.cx.system.unregister(&self.cx.mailbox);
        self.cx.system.traces().retire(&self.ring);
        match &self.parent {
            Some(parent) => parent.tell(Signal::ChildGone),
            None => self.cx.system.ended(failure),
        }
    }
}

/// An arbiter that ends before its actors takes them along; senders and the parent must learn that.
impl<A: Actor> Drop for Host<A> {
    fn drop(&mut self) {
        if !matches!(self.phase, Phase::Over) {
            self.close_mailbox();
            self.over(Some("the arbiter ended".to_owned()));
        }
    }
}
