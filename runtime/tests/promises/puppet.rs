//! An actor that does what a test's closure says, and writes down what happens to it.

use std::{sync::Arc, time::Duration};

use garrick_runtime::{
    Actor, Address, AskError, ChildEvent, ChildSpec, Context, Message, Restart, RestartLimits, Strategy, System,
    SystemConfig, WhenExceeded,
};
use tokio::sync::mpsc;

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(3600);

type Deed = Box<dyn FnOnce(&mut Puppet, &mut Context<Puppet>) + Send>;

/// A message: its name and what handling it does.
pub struct Act(pub &'static str, pub Deed);

impl Message for Act {
    fn name(&self) -> &'static str {
        self.0
    }

    fn is_traced(&self) -> bool {
        self.0 != "Untraced"
    }
}

pub fn act(name: &'static str, deed: impl FnOnce(&mut Puppet, &mut Context<Puppet>) + Send + 'static) -> Act {
    Act(name, Box::new(deed))
}

/// Writes a line.
pub fn say(line: impl Into<String>) -> Act {
    let line = line.into();
    act("Say", move |puppet, _| puppet.log.write(line))
}

pub fn panics() -> Act {
    act("Panic", |_, _| panic!("as told"))
}

#[derive(Clone)]
pub struct Log(mpsc::UnboundedSender<String>);

impl Log {
    pub fn write(&self, line: impl Into<String>) {
        // A test that is over reads no more.
        drop(self.0.send(line.into()));
    }
}

pub struct Lines(mpsc::UnboundedReceiver<String>);

impl Lines {
    pub async fn next(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.0.recv()).await.expect("nothing more is written").unwrap()
    }

    pub async fn take(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(self.next().await);
        }
        lines
    }

    /// Lines that are there already.
    pub fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }

    /// Waits for this line, passing over others.
    pub async fn until(&mut self, line: &str) {
        while self.next().await != line {}
    }
}

pub fn log() -> (Log, Lines) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Log(sender), Lines(receiver))
}

type Hook = Arc<dyn Fn(&mut Context<Puppet>) + Send + Sync>;

#[derive(Clone)]
pub struct Puppet {
    pub name: String,
    pub log: Log,
    /// State that must not survive a panic.
    pub count: u32,
    at_start: Option<Hook>,
    at_event: Option<Hook>,
    strategy: Strategy,
}

impl Puppet {
    pub fn new(name: &str, log: &Log) -> Self {
        Self {
            name: name.to_owned(),
            log: log.clone(),
            count: 0,
            at_start: None,
            at_event: None,
            strategy: Strategy::OneForOne,
        }
    }

    pub fn at_event(mut self, hook: impl Fn(&mut Context<Self>) + Send + Sync + 'static) -> Self {
        self.at_event = Some(Arc::new(hook));
        self
    }

    pub fn at_start(mut self, hook: impl Fn(&mut Context<Self>) + Send + Sync + 'static) -> Self {
        self.at_start = Some(Arc::new(hook));
        self
    }

    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Each life begins with a fresh copy.
    pub fn spec(self) -> ChildSpec<Self> {
        ChildSpec::new(self.name.clone(), move || self.clone())
    }
}

impl Actor for Puppet {
    type Msg = Act;

    fn started(&mut self, cx: &mut Context<Self>) {
        self.log.write(format!("{} up", self.name));
        if let Some(hook) = self.at_start.clone() {
            hook(cx);
        }
    }

    fn handle(&mut self, cx: &mut Context<Self>, msg: Act) {
        (msg.1)(self, cx);
    }

    fn child_event(&mut self, cx: &mut Context<Self>, event: ChildEvent) {
        self.log.write(match event {
            ChildEvent::Restarted { path, panic, restarts } => {
                format!("{}: restarted {path} #{restarts}: {panic}", self.name)
            }
            ChildEvent::Stopped { path } => format!("{}: stopped {path}", self.name),
            ChildEvent::GaveUp { path, reason } => format!("{}: gave up {path}: {reason}", self.name),
        });
        if let Some(hook) = self.at_event.clone() {
            hook(cx);
        }
    }

    fn strategy(&self) -> Strategy {
        self.strategy
    }

    fn stopped(&mut self) {
        self.log.write(format!("{} stopped", self.name));
    }
}

/// Runs a test in a system of its own on this thread.
pub async fn stage<T>(body: impl AsyncFnOnce(System, Log, Lines) -> T) -> T {
    System::within(SystemConfig::default(), async |system: System| {
        let (log, lines) = log();
        body(system, log, lines).await
    })
    .await
}

/// Starts a topmost puppet.
pub fn start(system: &System, name: &str, log: &Log) -> Address<Act> {
    system.start("/", Puppet::new(name, log).spec())
}

/// Waits until everything sent before has been handled.
pub async fn settle(address: &Address<Act>) {
    ask(address, |_, _| ()).await.unwrap();
}

/// Has something done and brings back the result.
pub async fn ask<R: Send + 'static>(
    address: &Address<Act>,
    deed: impl FnOnce(&mut Puppet, &mut Context<Puppet>) -> R + Send + 'static,
) -> Result<R, AskError> {
    address.ask(PATIENCE, |reply| act("Ask", move |puppet, cx| reply.reply(deed(puppet, cx)))).await
}

/// At most `max` restarts, one second apart at first.
pub fn limits(max: u32, then: WhenExceeded) -> Restart {
    Restart::OnPanic(RestartLimits {
        max,
        window: Duration::from_secs(1000),
        backoff: (Duration::from_secs(1), Duration::from_secs(5)),
        then,
    })
}
