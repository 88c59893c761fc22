//! Carries out the step manager's effects: journal, shepherds, commands, agent.

use super::{
    agent_link::AgentLink,
    files::{
        branch::{PARTS_KEPT, Station},
        spread::{Spread, spread},
    },
    handed::HandedStreams,
    light::{Asks, Kept, Told},
    shepherd_links::ShepherdLinks,
};
use garrick_daemon::{
    journal::{JournalError, Log, Written},
    links::traced,
};
use garrick_events::steps::event::StepEvent;
use garrick_model::messages::{
    files::{FileOrder, FilePart},
    shepherd::StepMgrToShepherd,
    step::{LightReply, StepMgrToCommand},
};
use garrick_run::{
    shepherd::{ShepherdInput, ShepherdMsg},
    step::NodeSlot,
    stepmgr::{ClientId, StepMgrEffect, StepMgrInput, StepMgrMsg, shell::StepMgrPort},
};
use garrick_runtime::{Address, Lane, TraceContext};
use garrick_transport::Sender;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    time::Duration,
};
use tokio::sync::mpsc;

/// How often a full disk is tried again.
const ROOM_ASKED_EVERY: Duration = Duration::from_secs(1);

/// Hands an input to the step manager under a trace. One lane, so that the order of each sender is kept.
pub fn tell_manager(manager: &Address<StepMgrMsg>, cx: TraceContext, input: StepMgrInput) {
    if let Err(e) = manager.deliver(cx, Lane::Control, StepMgrMsg(input)) {
        tracing::error!(error = %e, "the step manager does not take messages");
    }
}

/// The way to a command.
struct Line {
    sender: Sender<StepMgrToCommand>,
    /// A light `srun`.
    kept: Option<Kept>,
}

impl Line {
    /// What the step manager says in one go reaches the command in one go.
    fn post(&self, message: StepMgrToCommand) {
        if let Err(e) = self.sender.try_post(&traced(message)) {
            tracing::debug!(error = %e, "a command did not take a message");
        }
    }

    fn say(&mut self, message: StepMgrToCommand) {
        let Some(kept) = &mut self.kept else { return self.post(message) };
        match kept.hear(message) {
            Told::Nothing => {}
            Told::Line(text) => self.post(StepMgrToCommand::Light(LightReply::Say(text))),
            Told::Done => self.post(StepMgrToCommand::Light(LightReply::Done)),
            Told::TakeOver(messages) => self.take_over(messages),
        }
    }

    fn take_over(&mut self, messages: Vec<StepMgrToCommand>) {
        self.kept = None;
        self.post(StepMgrToCommand::Light(LightReply::TakeOver));
        messages.into_iter().for_each(|message| self.post(message));
    }
}

/// The commands that are connected.
pub struct Clients {
    next: Cell<u64>,
    /// Whose steps light ones ask for.
    pub asks: Asks,
    lines: RefCell<HashMap<ClientId, Line>>,
    /// Descriptors that they handed over.
    pub handed: Rc<HandedStreams>,
    /// Where parts of their files go.
    files: RefCell<HashMap<ClientId, mpsc::Sender<FilePart>>>,
}

impl Clients {
    /// No client is connected.
    pub fn new(asks: Asks) -> Self {
        Self {
            next: Cell::default(),
            asks,
            lines: RefCell::default(),
            handed: Rc::default(),
            files: RefCell::default(),
        }
    }

    /// A new conversation.
    pub fn open(&self, sender: Sender<StepMgrToCommand>) -> ClientId {
        self.next.set(self.next.get() + 1);
        let client = ClientId(self.next.get());
        self.lines.borrow_mut().insert(client, Line { sender, kept: None });
        client
    }

    /// Is it going on?
    fn is_there(&self, client: ClientId) -> bool {
        self.lines.borrow().contains_key(&client)
    }

    /// It is over: what was sent still goes out.
    pub fn forget(&self, client: ClientId) {
        self.lines.borrow_mut().remove(&client);
        self.handed.forget(client);
        self.files.borrow_mut().remove(&client);
    }

    /// A part of a command's file. Waits while nodes do not keep up; one that is given up is dropped.
    pub async fn file_part(&self, client: ClientId, part: FilePart) {
        let file = self.files.borrow().get(&client).cloned();
        if let Some(file) = file {
            // Whoever does not take it any more says so in the end.
            let _ = file.send(part).await;
        }
    }

    /// A step manager that starts anew knows none of them.
    fn close_all(&self) {
        self.lines.borrow_mut().clear();
        self.files.borrow_mut().clear();
        self.handed.forget_all();
    }

    fn send(&self, client: ClientId, message: StepMgrToCommand) {
        self.handed.told(client, &message);
        if let Some(line) = self.lines.borrow_mut().get_mut(&client) {
            line.say(message);
        }
    }

    /// It is a light `srun`, whose request was read.
    pub fn attend_lightly(&self, client: ClientId, kept: Kept, warnings: &[String]) {
        if let Some(line) = self.lines.borrow_mut().get_mut(&client) {
            for warning in warnings {
                line.post(StepMgrToCommand::Light(LightReply::Say(format!("srun: warning: {warning}\n"))));
            }
            line.kept = Some(kept);
        }
    }

    /// It is a light `srun`, whose request is not for it.
    pub fn needs_whole(&self, client: ClientId) {
        if let Some(line) = self.lines.borrow().get(&client) {
            line.post(StepMgrToCommand::Light(LightReply::Whole));
        }
    }

    /// It was a light `srun`, and is the whole one now.
    pub fn take_over(&self, client: ClientId) {
        if let Some(line) = self.lines.borrow_mut().get_mut(&client) {
            let missed = line.kept.as_mut().map(Kept::take);
            missed.into_iter().for_each(|messages| line.take_over(messages));
        }
    }
}

/// The world of a step manager. Lives on its thread.
pub struct ManagerWorld {
    /// For answers.
    pub manager: Address<StepMgrMsg>,
    /// The journal of accepted steps.
    pub journal: Rc<Log<StepEvent>>,
    /// It is being tried whether there is room for what the journal holds back.
    pub catching_up: Rc<Cell<bool>>,
    /// What sends files.
    pub station: Rc<Station>,
    /// This node's own shepherd.
    pub own_shepherd: Address<ShepherdMsg>,
    /// Those of other nodes.
    pub shepherds: Rc<ShepherdLinks>,
    /// Commands.
    pub clients: Rc<Clients>,
    /// The node's agent.
    pub agent: AgentLink,
    /// Called once everything is over and told.
    pub exit: Rc<dyn Fn()>,
    /// Lives of the step manager before this one.
    pub lives: u32,
}

impl ManagerWorld {
    fn write(&self, event: StepEvent, durable: Option<u64>) {
        let manager = self.manager.clone();
        let cx = TraceContext::current();
        let Some(record) = durable else {
            match self.journal.write(&event) {
                Ok(Written::Done) => {}
                Ok(Written::Kept(e)) => self.fall_behind(&e),
                Err(e) => tell_manager(&manager, cx, StepMgrInput::JournalFailed { detail: e.to_string() }),
            }
            return;
        };
        let done = move |outcome: Result<(), JournalError>| {
            let input = match outcome {
                Ok(()) => StepMgrInput::Journaled { upto: record },
                // After a failed sync the content of the disk is unknown.
                Err(e @ JournalError::Io { op: "sync", .. }) => StepMgrInput::JournalFailed { detail: e.to_string() },
                Err(e) => StepMgrInput::JournalRefused { record, detail: e.to_string() },
            };
            tell_manager(&manager, cx, input);
        };
        self.journal.append(&event, Box::new(done));
        if let Some(e) = self.journal.failure() {
            tell_manager(&self.manager, cx, StepMgrInput::JournalFailed { detail: e.to_string() });
        }
    }

    /// The disk is full: the step manager starts nothing until what waits for room is written.
    fn fall_behind(&self, why: &JournalError) {
        tell_manager(&self.manager, TraceContext::root(), StepMgrInput::JournalBehind { detail: why.to_string() });
        if self.catching_up.replace(true) {
            return;
        }
        let (journal, manager, catching_up) =
            (Rc::clone(&self.journal), self.manager.clone(), Rc::clone(&self.catching_up));
        actix_rt::spawn(async move {
            loop {
                tokio::time::sleep(ROOM_ASKED_EVERY).await;
                if journal.catch_up() {
                    catching_up.set(false);
                    return tell_manager(&manager, TraceContext::root(), StepMgrInput::JournalCaughtUp);
                }
                if let Some(e) = journal.failure() {
                    let detail = e.to_string();
                    return tell_manager(&manager, TraceContext::root(), StepMgrInput::JournalFailed { detail });
                }
            }
        });
    }

    fn to_shepherd(&self, node: NodeSlot, message: StepMgrToShepherd) {
        if node.0 == 0 {
            let own = ShepherdMsg(ShepherdInput::Manager(message));
            if let Err(e) = self.own_shepherd.deliver(TraceContext::current(), Lane::Control, own) {
                tracing::error!(error = %e, "this node's shepherd does not take messages");
            }
        } else {
            self.shepherds.send(node, message);
        }
    }
}

impl ManagerWorld {
    /// The batch host is the root of the tree. The command's parts come to it past the step manager.
    fn send_file(&self, client: ClientId, nodes: &[NodeSlot], file: FileOrder, width: u16) {
        // A command that has hung up meanwhile would never be forgotten.
        if !self.clients.is_there(client) {
            return;
        }
        let stops: Vec<_> = nodes.iter().map(|node| self.shepherds.stop(*node)).collect();
        let names = stops.iter().map(|stop| stop.node.clone()).collect();
        let below = stops.into_iter().zip(nodes).filter(|(_, node)| node.0 != 0).map(|(stop, _)| stop).collect();
        let what = Spread { file, here: nodes.contains(&NodeSlot(0)), below, width };
        let (parts, coming) = mpsc::channel(PARTS_KEPT);
        self.clients.files.borrow_mut().insert(client, parts);
        let (station, clients) = (Rc::clone(&self.station), Rc::clone(&self.clients));
        actix_rt::spawn(async move {
            let ready = async || clients.send(client, StepMgrToCommand::FileReady { nodes: names });
            let failures = spread(&station, what, coming, ready).await;
            clients.send(client, StepMgrToCommand::FileDone(failures));
            clients.forget(client);
        });
    }
}

impl StepMgrPort for ManagerWorld {
    fn perform(&mut self, effect: StepMgrEffect) {
        match effect {
            StepMgrEffect::Journal { event, durable } => self.write(event, durable),
            StepMgrEffect::StartShepherd { node, again } => self.shepherds.start(node, again, &self.manager),
            StepMgrEffect::ToShepherd { node, message } => self.to_shepherd(node, message),
            StepMgrEffect::ToClient { client, message } => self.clients.send(client, message),
            StepMgrEffect::SendFile { client, nodes, file, width } => self.send_file(client, &nodes, file, width),
            StepMgrEffect::CloseClient { client } => self.clients.forget(client),
            StepMgrEffect::OpenAgent => self.agent.open(),
            StepMgrEffect::ToAgent(message) => self.agent.send(message),
            StepMgrEffect::Exit => (self.exit)(),
            // The shell keeps steps, timers and the log.
            StepMgrEffect::StartStep { .. }
            | StepMgrEffect::ResumeStep { .. }
            | StepMgrEffect::ToStep { .. }
            | StepMgrEffect::SetTimer { .. }
            | StepMgrEffect::ClearTimer(_)
            | StepMgrEffect::Log { .. } => {}
        }
    }

    fn standing(&mut self) -> Vec<StepMgrInput> {
        if self.lives == 0 {
            return Vec::new();
        }
        self.clients.close_all();
        let mut standing = vec![StepMgrInput::ShepherdUp { node: NodeSlot(0) }];
        standing.extend(self.shepherds.connected().into_iter().map(|node| StepMgrInput::ShepherdUp { node }));
        if self.agent.is_up() {
            standing.push(StepMgrInput::AgentUp);
        }
        standing
    }
}
