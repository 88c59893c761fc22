//! A parent's description of a child: how to build it, what to do when it fails, where it lives, how many messages may wait.

use std::time::Duration;

use crate::message::Actor;

/// Messages that may wait in a mailbox's normal lane when the spec does not say. Enough to ride out a burst from every
/// peer of a busy actor, little enough that a full one is seconds of work, not minutes.
pub(crate) const DEFAULT_MAILBOX: usize = 1024;
/// Messages that may wait in the control lane when the spec does not say.
pub(crate) const DEFAULT_CONTROL: usize = 256;

/// How to build a child and what to do with it.
pub struct ChildSpec<C> {
    pub(crate) name: String,
    pub(crate) factory: Box<dyn FnMut() -> C + Send>,
    pub(crate) restart: Restart,
    pub(crate) placement: Placement,
    pub(crate) mailbox: usize,
    pub(crate) control: usize,
}

impl<C: Actor> ChildSpec<C> {
    /// A child named `name` (one or more path segments), built by `factory` at its start and after each failure.
    ///
    /// The factory runs on the child's thread; what it needs to rebuild saved state, it captures.
    pub fn new(name: impl Into<String>, factory: impl FnMut() -> C + Send + 'static) -> Self {
        Self {
            name: name.into(),
            factory: Box::new(factory),
            restart: Restart::default(),
            placement: Placement::Parent,
            mailbox: DEFAULT_MAILBOX,
            control: DEFAULT_CONTROL,
        }
    }

    /// What to do when it fails.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// Which thread it lives on.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// How many messages may wait in the normal lane: at least 1, by default 1,024.
    #[must_use]
    pub fn mailbox(mut self, capacity: usize) -> Self {
        self.mailbox = capacity.max(1);
        self
    }

    /// How many messages may wait in the control lane: at least 1, by default 256. Timers do not count.
    #[must_use]
    pub fn control(mut self, capacity: usize) -> Self {
        self.control = capacity.max(1);
        self
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<C> std::fmt::Debug for ChildSpec<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChildSpec")
            .field("name", &self.name)
            .field("restart", &self.restart)
            .field("placement", &self.placement)
            .field("mailbox", &self.mailbox)
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}

/// What to do when a child fails. A child that stops in order is never restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Give it up.
    Never,
    /// Build it anew, within limits.
    OnPanic(RestartLimits),
}

impl Default for Restart {
    fn default() -> Self {
        Self::OnPanic(RestartLimits::default())
    }
}

/// How often a child may be restarted, and how long to wait before each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartLimits {
    /// Restarts within `window`; one more failure exceeds the limit.
    pub max: u32,
    /// The sliding window.
    pub window: Duration,
    /// Pause before the first restart within the window, doubled for each further one, up to the second value.
    pub backoff: (Duration, Duration),
    /// What happens when the limit is exceeded.
    pub then: WhenExceeded,
}

impl Default for RestartLimits {
    /// Five restarts a minute, after 20 ms to 5 s, then escalate. A fault that comes with one rare message passes well
    /// below that; one that comes with the saved state does not.
    fn default() -> Self {
        Self {
            max: 5,
            window: Duration::from_secs(60),
            backoff: (Duration::from_millis(20), Duration::from_secs(5)),
            then: WhenExceeded::Escalate,
        }
    }
}

/// What a parent does about a child that exceeded its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenExceeded {
    /// The parent counts as failed itself; above the topmost actors, the system ends with an error.
    Escalate,
    /// The child is given up; the parent is told and lives on.
    Stop,
}

/// Which thread an actor lives on. It never moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The parent's; the main thread for topmost actors.
    Parent,
    /// One of the pool, by this number, the same each time.
    Hash(u64),
    /// A dedicated thread of that name, made at first use.
    Named(&'static str),
}
