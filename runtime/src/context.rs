//! What an actor may ask of the runtime while it handles a message.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    address::Address,
    host::{self, ParentLink},
    mailbox::{Inbox, Mailbox, Signal},
    message::{Actor, ChildEvent, Lane},
    path::ActorPath,
    registry::StartError,
    spec::{ChildSpec, Placement},
    supervision::{Children, Order, Slot},
    system::System,
    tasks::Tasks,
    timer::{TimerKey, Timers},
    trace::TraceContext,
};

/// What a timer is for: keys of actors and of supervision cannot meet.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum DueKey {
    Actor(TimerKey),
    Backoff(Slot),
}

/// What happens when a timer is due.
pub(crate) enum Due<M> {
    Deliver(M),
    BackoffOver(Slot),
}

/// An actor's hold on the runtime. Timers, futures and children made through it belong to the present life of the
/// actor and end with it.
pub struct Context<A: Actor> {
    pub(crate) system: System,
    pub(crate) mailbox: Arc<Mailbox<A::Msg>>,
    pub(crate) incarnation: u64,
    pub(crate) timers: Timers<DueKey, Due<A::Msg>>,
    pub(crate) tasks: Tasks,
    pub(crate) children: Children<Arc<dyn Inbox>>,
    /// Orders made while the actor's code ran, for the host to carry out after it.
    pub(crate) orders: Vec<Order>,
    pub(crate) stopping: bool,
}

impl<A: Actor> Context<A> {
    pub(crate) fn new(system: System, mailbox: Arc<Mailbox<A::Msg>>) -> Self {
        Self {
            system,
            mailbox,
            incarnation: 0,
            timers: Timers::new(),
            tasks: Tasks::new(),
            children: Children::new(),
            orders: Vec::new(),
            stopping: false,
        }
    }

    /// The actor's own address.
    pub fn address(&self) -> Address<A::Msg> {
        Address::near(Arc::clone(&self.mailbox))
    }

    /// The actor's own path.
    pub fn path(&self) -> &ActorPath {
        self.mailbox.path()
    }

    /// The system that it lives in.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// How many lives the actor has begun: 1 until the first restart.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Has `msg` delivered after that time, on the control lane. One timer per key: setting it again replaces it.
    ///
    /// A message whose timer was cleared or replaced is not delivered, even if it was due already. The message carries
    /// the trace of what is handled now. Timers end with this life of the actor.
    pub fn set_timer(&mut self, key: impl Into<TimerKey>, after: Duration, msg: A::Msg) {
        let cx = TraceContext::current_or_root();
        self.timers.set(DueKey::Actor(key.into()), Instant::now(), after, cx, Due::Deliver(msg));
    }

    /// Clears a timer, if it is set.
    pub fn clear_timer(&mut self, key: impl Into<TimerKey>) {
        self.timers.clear(&DueKey::Actor(key.into()));
    }

    /// Whether a timer is set (and has not been delivered).
    pub fn has_timer(&self, key: impl Into<TimerKey>) -> bool {
        self.timers.is_set(&DueKey::Actor(key.into()))
    }

    /// Runs a future on this thread, besides the actor. It is dropped when this life of the actor ends; a panic in it counts as a
    /// panic of the actor; its sends carry the trace of the current message.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + 'static) {
        let inbox: Arc<dyn Inbox> = self.mailbox.clone();
        self.tasks.spawn(TraceContext::current_or_root(), inbox, self.incarnation, future);
    }

    /// Runs a future as [`spawn`](Self::spawn) does; its result comes back as a message in the normal lane.
    ///
    /// A full mailbox does not refuse this message: the actor limits how many such futures run at once. A result that finds the
    /// actor in its next life is dropped.
    pub fn pipe<T: 'static>(
        &mut self,
        future: impl Future<Output = T> + 'static,
        map: impl FnOnce(T) -> A::Msg + 'static,
    ) {
        self.pipe_into(Lane::Normal, future, map);
    }

    /// As [`pipe`](Self::pipe), with the message in the control lane: what it yields is not held up by what can wait.
    pub fn pipe_ahead<T: 'static>(
        &mut self,
        future: impl Future<Output = T> + 'static,
        map: impl FnOnce(T) -> A::Msg + 'static,
    ) {
        self.pipe_into(Lane::Control, future, map);
    }

    fn pipe_into<T: 'static>(
        &mut self,
        lane: Lane,
        future: impl Future<Output = T> + 'static,
        map: impl FnOnce(T) -> A::Msg + 'static,
    ) {
        let mailbox = Arc::clone(&self.mailbox);
        let incarnation = self.incarnation;
        self.spawn(async move {
            let value = future.await;
            mailbox.push_own(lane, incarnation, map(value));
        });
    }

    /// Number of running futures.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Starts a child at this path and `spec`'s name. The address is good at once: messages wait until it is up.
    ///
    /// If the path is taken (see [`try_start_child`](Self::try_start_child)), the address is closed from the start, and
    /// the actor is told by `GaveUp`.
    pub fn start_child<C: Actor>(&mut self, spec: ChildSpec<C>) -> Address<C::Msg> {
        let path = self.path().child(&spec.name);
        let mailbox = self.system.mailbox(&path, &spec);
        match self.adopt(Arc::clone(&mailbox), spec) {
            Ok(address) => address,
            Err(error) => {
                tracing::error!(%path, %error, "child was not started");
                mailbox.close();
                self.orders.push(Order::Tell(ChildEvent::GaveUp { path, reason: error.to_string() }));
                Address::near(mailbox)
            }
        }
    }

    /// Starts a child, or says why not.
    ///
    /// # Errors
    /// [`StartError::PathTaken`] when an actor of that path runs or has not quite ended.
    pub fn try_start_child<C: Actor>(&mut self, spec: ChildSpec<C>) -> Result<Address<C::Msg>, StartError> {
        let mailbox = self.system.mailbox(&self.path().child(&spec.name), &spec);
        self.adopt(mailbox, spec)
    }

    /// Registers the mailbox and starts the child behind it.
    fn adopt<C: Actor>(
        &mut self,
        mailbox: Arc<Mailbox<C::Msg>>,
        spec: ChildSpec<C>,
    ) -> Result<Address<C::Msg>, StartError> {
        self.system.register(mailbox.clone())?;
        self.launch(Arc::clone(&mailbox), spec);
        Ok(Address::near(mailbox))
    }

    /// Starts a child whose mailbox is registered already.
    pub(crate) fn launch<C: Actor>(&mut self, mailbox: Arc<Mailbox<C::Msg>>, spec: ChildSpec<C>) {
        let slot = self.children.add(mailbox.path().clone(), mailbox.clone(), spec.restart);
        let parent = ParentLink { inbox: self.mailbox.clone(), slot };
        let system = self.system.clone();
        let cx = TraceContext::current_or_root();
        let ChildSpec { factory, placement, .. } = spec;
        match placement {
            Placement::Parent => host::start(system, mailbox, factory, Some(parent), cx),
            elsewhere => self.system.arbiters().run(elsewhere, move || {
                host::start(system, mailbox, factory, Some(parent), cx);
            }),
        }
    }

    /// Ends a child for good, its own children first. `Stopped` tells when it is gone; until then its path is taken.
    /// Messages that still wait in its mailbox are dropped.
    pub fn stop_child(&mut self, path: &ActorPath) {
        if let Some(slot) = self.children.find(path) {
            let orders = self.children.stop(slot);
            self.orders.extend(orders);
        }
    }

    /// Paths of the children, in start order, those that are just ending or restarting included.
    pub fn children(&self) -> Vec<ActorPath> {
        self.children.paths().cloned().collect()
    }

    /// Ends this actor for good after the message in hand: it takes no more messages, its children end first, then
    /// [`Actor::stopped`] is called. Messages that still wait are dropped.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Passes on the orders that reach a child. The others are the host's.
    pub(crate) fn signal_child(&self, slot: Slot, signal: Signal) {
        if let Some(inbox) = self.children.inbox(slot) {
            inbox.signal(signal);
        }
    }
}

impl<A: Actor> std::fmt::Debug for Context<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({})", self.path())
    }
}
