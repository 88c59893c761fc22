//! A system: the actors of one process, their threads, names and traces.
//!
//! It starts the topmost actors, finds actors by path, and ends them all. The parent of the topmost actors is a guardian: an
//! actor of the runtime itself, whose failure (an escalation that no parent handled) is the failure of the system.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    address::Address,
    arbiters::Arbiters,
    context::Context,
    host,
    mailbox::{Inbox, Mailbox, Signal},
    message::{Actor, ChildEvent, Message},
    path::ActorPath,
    registry::{Registry, StartError},
    spec::{ChildSpec, Placement},
    trace::TraceContext,
    trace_hub::TraceHub,
};

/// What a system is made of. `Default` suits a daemon.
#[derive(Clone, Debug)]
pub struct SystemConfig {
    /// Threads of the pool behind [`Placement::Hash`]. 0 keeps every actor on the thread that made the system, whatever
    /// its placement says, which suits tests. Default: one per CPU, at most 8.
    pub arbiters: usize,
    /// Most messages that an actor handles before the others on its thread get their turn. Default 32.
    pub turn_len: u32,
    /// Whether trace records are kept from the start. Default true.
    pub trace: bool,
    /// Most trace records kept per actor, some 100 bytes each. Default 128.
    pub trace_ring_len: usize,
    /// Most trace records kept in all rings together; beyond it a ring keeps only its last few. Default 262,144
    /// (about 26 MB).
    pub trace_total_len: usize,
    /// Ended actors whose trace records are kept. Default 256.
    pub trace_retired_len: usize,
}

impl Default for SystemConfig {
    fn default() -> Self {
        Self {
            arbiters: std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(8)),
            turn_len: 32,
            trace: true,
            trace_ring_len: 128,
            trace_total_len: 262_144,
            trace_retired_len: 256,
        }
    }
}

/// The system ended because of a failure that no supervisor could deal with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("actor system failed: {reason}")]
pub struct SystemFailed {
    /// Which actor, and its last panic.
    pub reason: String,
}

#[derive(Clone, Debug)]
enum Life {
    Running,
    Ended(Option<SystemFailed>),
}

struct Inner {
    registry: Registry,
    traces: TraceHub,
    arbiters: Arbiters,
    guardian: Arc<Mailbox<Launch>>,
    life: watch::Sender<Life>,
    /// Whether a shutdown ran past its deadline: then an arbiter may be blocked and is not waited for.
    overdue: AtomicBool,
    turn_len: u32,
}

/// The actors of one process. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct System(Arc<Inner>);

impl System {
    /// Makes a system on this thread, which must run an actix system (or, with `arbiters: 0`, just a tokio `LocalSet`).
    ///
    /// # Panics
    /// When it does not.
    pub fn new(config: SystemConfig) -> Self {
        let traces =
            TraceHub::new(config.trace, config.trace_ring_len, config.trace_total_len, config.trace_retired_len);
        let guardian = Mailbox::new(ActorPath::root(), 1, 1, traces.clone());
        let system = Self(Arc::new(Inner {
            registry: Registry::default(),
            traces,
            arbiters: Arbiters::new(config.arbiters),
            guardian: Arc::clone(&guardian),
            life: watch::Sender::new(Life::Running),
            overdue: AtomicBool::new(false),
            turn_len: config.turn_len.max(1),
        }));
        host::start(system.clone(), guardian, Box::new(|| Guardian), None, TraceContext::root());
        system
    }

    /// Runs a process: makes the actix system and ours, runs `body`, and blocks until the system has ended, by
    /// [`shutdown`](Self::shutdown) or by failure. A body that returns early ends nothing.
    ///
    /// # Errors
    /// When the system failed.
    ///
    /// # Panics
    /// When threads cannot be made.
    pub fn run<T>(config: SystemConfig, body: impl AsyncFnOnce(Self) -> T) -> Result<T, SystemFailed> {
        let runner = actix_rt::System::new();
        let (system, result) = runner.block_on(async move {
            let system = Self::new(config);
            let mut body = std::pin::pin!(body(system.clone()));
            // A failed system ends even if the body waits for something that will not come now.
            let value = tokio::select! {
                biased;
                value = &mut body => Ok(value),
                failed = system.failed() => Err(failed),
            };
            let result = match (value, system.ended_for()) {
                (Ok(value), None) => match system.stopped().await {
                    None => Ok(value),
                    Some(failed) => Err(failed),
                },
                (Ok(_), Some(Some(failed))) | (Err(failed), _) => Err(failed),
                (Ok(value), Some(None)) => Ok(value),
            };
            system.0.arbiters.stop();
            (system, result)
        });
        if !system.0.overdue.load(Ordering::Relaxed) {
            system.0.arbiters.join();
        }
        result
    }

    /// Makes a system with everything on this thread, runs `body` in it and ends it: for tests (also with tokio's clock
    /// paused) and small programs.
    pub async fn within<T>(config: SystemConfig, body: impl AsyncFnOnce(Self) -> T) -> T {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async move {
                let system = Self::new(SystemConfig { arbiters: 0, ..config });
                let value = body(system.clone()).await;
                system.shutdown(Duration::from_secs(10)).await;
                value
            })
            .await
    }

    /// Starts a topmost actor at `path_root` and `spec`'s name (`/` and `scheduler` make `/scheduler`).
    ///
    /// The address is good at once. If it cannot be started (see [`try_start`](Self::try_start)), the address is closed
    /// from the start and an error is logged.
    pub fn start<C: Actor>(&self, path_root: &str, spec: ChildSpec<C>) -> Address<C::Msg> {
        let path = ActorPath::root().child(path_root).child(&spec.name);
        let mailbox = self.mailbox(&path, &spec);
        match self.launch(Arc::clone(&mailbox), spec) {
            Ok(address) => address,
            Err(error) => {
                tracing::error!(%path, %error, "actor was not started");
                mailbox.close();
                Address::near(mailbox)
            }
        }
    }

    /// As [`start`](Self::start), or says why not.
    ///
    /// # Errors
    /// When the path is taken, or the system is ending.
    pub fn try_start<C: Actor>(&self, path_root: &str, spec: ChildSpec<C>) -> Result<Address<C::Msg>, StartError> {
        let path = ActorPath::root().child(path_root).child(&spec.name);
        self.launch(self.mailbox(&path, &spec), spec)
    }

    fn launch<C: Actor>(
        &self,
        mailbox: Arc<Mailbox<C::Msg>>,
        spec: ChildSpec<C>,
    ) -> Result<Address<C::Msg>, StartError> {
        self.register(mailbox.clone())?;
        let started = Arc::clone(&mailbox);
        let launch = Launch(Box::new(move |cx| cx.launch(started, spec)));
        if self.0.guardian.push_unbounded(launch).is_err() {
            self.unregister(&mailbox);
            return Err(StartError::Ending(mailbox.path().clone()));
        }
        Ok(Address::near(mailbox))
    }

    /// Ends a topmost actor for good, its children first. True when there was one of that path.
    pub fn stop(&self, path: &ActorPath) -> bool {
        let known = self.0.registry.contains(path);
        let path = path.clone();
        known && self.0.guardian.push_unbounded(Launch(Box::new(move |cx| cx.stop_child(&path)))).is_ok()
    }

    /// The address of an actor in this process, if there is one of that path and it accepts messages of type `M`.
    pub fn find<M: Message>(&self, path: &ActorPath) -> Option<Address<M>> {
        self.0.registry.find(path)
    }

    /// Paths of the actors at or below `prefix`, sorted.
    pub fn paths(&self, prefix: &str) -> Vec<ActorPath> {
        self.0.registry.paths(prefix)
    }

    /// Calls `look` with the path of each actor and how many messages wait in its mailbox, in no order. Actors that start or end
    /// meanwhile may be in it or not.
    pub fn mailboxes(&self, look: impl FnMut(&ActorPath, usize)) {
        self.0.registry.mailboxes(look);
    }

    /// Trace records.
    pub fn traces(&self) -> &TraceHub {
        &self.0.traces
    }

    /// Runs a future on the thread given by `placement` (the main one for [`Placement::Parent`]), with the current trace. It
    /// belongs to no actor: its end or panic is not reported.
    pub fn on_arbiter(&self, placement: Placement, future: impl Future<Output = ()> + Send + 'static) {
        let carried = TraceContext::current_or_root().carry(future);
        self.0.arbiters.run(placement, move || drop(tokio::task::spawn_local(carried)));
    }

    /// Ends all actors, each after its children, in reverse start order, then the threads. After `deadline`, what has
    /// not ended is dropped with its thread; a thread that is blocked is left behind.
    pub async fn shutdown(&self, deadline: Duration) {
        self.0.guardian.signal(Signal::Stop);
        if tokio::time::timeout(deadline, self.stopped()).await.is_err() {
            let left = self.paths("/");
            tracing::warn!(?left, ?deadline, "system.shutdown: actors did not end within the deadline");
            self.0.overdue.store(true, Ordering::Relaxed);
            self.0.life.send_replace(Life::Ended(None));
        }
        self.0.arbiters.stop();
    }

    /// Waits until the system has ended; with the failure, if one was the reason.
    pub async fn stopped(&self) -> Option<SystemFailed> {
        let mut life = self.0.life.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        match life.wait_for(|life| matches!(life, Life::Ended(_))).await.as_deref() {
            Ok(Life::Ended(failure)) => failure.clone(),
            Ok(Life::Running) | Err(_) => None,
        }
    }

    /// Resolves only if the system fails.
    async fn failed(&self) -> SystemFailed {
        match self.stopped().await {
            Some(failed) => failed,
            None => std::future::pending().await,
        }
    }

    fn ended_for(&self) -> Option<Option<SystemFailed>> {
        match &*self.0.life.borrow() {
            Life::Running => None,
            Life::Ended(failure) => Some(failure.clone()),
        }
    }

    /// The guardian has ended.
    pub(crate) fn ended(&self, failure: Option<String>) {
        self.0.life.send_if_modified(|life| match life {
            Life::Running => {
                *life = Life::Ended(failure.map(|reason| SystemFailed { reason }));
                true
            }
            Life::Ended(_) => false,
        });
    }

    pub(crate) fn mailbox<C: Actor>(&self, path: &ActorPath, spec: &ChildSpec<C>) -> Arc<Mailbox<C::Msg>> {
        Mailbox::new(path.clone(), spec.mailbox, spec.control, self.0.traces.clone())
    }

    pub(crate) fn register(&self, inbox: Arc<dyn Inbox>) -> Result<(), StartError> {
        self.0.registry.add(inbox)
    }

    pub(crate) fn unregister<M: Message>(&self, mailbox: &Arc<Mailbox<M>>) {
        self.0.registry.remove(mailbox);
    }

    pub(crate) fn arbiters(&self) -> &Arbiters {
        &self.0.arbiters
    }

    pub(crate) fn turn_len(&self) -> u32 {
        self.0.turn_len
    }
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "System({} actors)", self.0.registry.len())
    }
}

/// Parent of the topmost actors.
struct Guardian;

type Job = Box<dyn FnOnce(&mut Context<Guardian>) + Send>;

/// Something for the guardian to do with its context.
struct Launch(Job);

impl Message for Launch {
    fn name(&self) -> &'static str {
        "Launch"
    }
}

impl Actor for Guardian {
    type Msg = Launch;

    fn handle(&mut self, cx: &mut Context<Self>, Launch(job): Launch) {
        job(cx);
    }

    fn child_event(&mut self, _cx: &mut Context<Self>, event: ChildEvent) {
        match event {
            ChildEvent::Restarted { path, panic, restarts } => {
                tracing::warn!(%path, panic, restarts, "actor.restarted");
            }
            ChildEvent::Stopped { path } => tracing::debug!(%path, "actor.stopped"),
            ChildEvent::GaveUp { path, reason } => tracing::error!(%path, reason, "actor.gave_up"),
        }
    }
}
