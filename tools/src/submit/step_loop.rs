//! `srun`'s poll loop around a [`Conversation`]: door, signals, input and output. It decides nothing: it passes all input to the
//! conversation, and carries out the result.

use super::{
    conversation::{Behaviour, Conversation, Effect},
    parts::{Heard, Parts},
    sent_program::SentProgram,
    startup::Startup,
    step_files::{Got, INPUT_CHUNK, InputFile, OutputFile, Wrote},
    way_back::{self, WayBack},
};
use crate::{
    options::stream_plan::{Input, Sink, StreamPlan},
    output::{self, Console},
    waiting::terminal::{self, RawMode},
};
use garrick_asking::{
    search::{NoWay, Until},
    signals::Signals,
};
use garrick_frame::{DoorClient, DoorError, FrameError};
use garrick_model::{
    ids::{ArrayTask, JobId, StepId},
    messages::{
        shepherd::Stream,
        step::{CommandToStepMgr, StepMgrToCommand, WholeStep},
    },
    patterns::PatternFacts,
    spec::OpenMode,
    time::{Timestamp, system_zone},
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use std::{
    io, mem,
    os::fd::AsFd,
    time::{Duration, Instant},
};

/// Consumed output is granted anew in pieces of this many bytes: far below any window a step manager would open with,
/// and large enough that short output costs no extra message.
const GRANT: u64 = 16 << 10;

/// What file patterns need to know besides the step's number.
#[derive(Clone, Debug, Default)]
pub struct PatternNames {
    /// `%u`
    pub user: String,
    /// `%x`
    pub job_name: String,
    /// `%A`, `%a`
    pub array_task: Option<ArrayTask>,
}

/// What the loop works with.
#[derive(Debug)]
pub struct StepLoop<'a> {
    links: Vec<Link>,
    /// With several links.
    parts: Option<Parts>,
    /// With one.
    way_back: Option<WayBack<'a>>,
    sent_program: Option<SentProgram<'a>>,
    conversation: Conversation,
    plan: &'a StreamPlan,
    mode: OpenMode,
    names: &'a PatternNames,
    pty: bool,
    signals: &'a Signals,
    console: &'a Console,
    input: Option<InputFile>,
    input_opened: bool,
    output: Option<OutputFile>,
    error: Option<OutputFile>,
    raw: Option<RawMode>,
    ended: Option<i32>,
    start: Instant,
    /// Until then signals wait: what they mean depends on what is about to be heard.
    hears_first: Option<Instant>,
    /// Whose filters are told of the step, and its job.
    tells: Option<(&'a Startup, JobId)>,
}

/// A step manager.
#[derive(Debug)]
struct Link {
    door: DoorClient,
    /// Bytes of output that it sent, and was not granted anew.
    unconsumed: u64,
}

/// The step managers of a step: one, at whose door `Launch` was sent, or one for each of its parts, at whose doors the step's
/// number was reserved.
#[derive(Debug)]
pub struct Managers<'a> {
    /// Their doors.
    pub doors: Vec<DoorClient>,
    /// The parts.
    pub parts: Option<Parts>,
    /// Back to the one, should it be lost.
    pub way_back: Option<WayBack<'a>>,
    /// What is to be sent to the step's nodes before it starts.
    pub sent_program: Option<SentProgram<'a>>,
}

impl Managers<'_> {
    /// One.
    pub fn one(door: DoorClient) -> Self {
        Self { doors: vec![door], parts: None, way_back: None, sent_program: None }
    }
}

impl<'a> StepLoop<'a> {
    /// To be run.
    pub fn new(
        managers: Managers<'a>,
        behaviour: Behaviour,
        plan: &'a StreamPlan,
        mode: OpenMode,
        names: &'a PatternNames,
        signals: &'a Signals,
        console: &'a Console,
    ) -> Self {
        Self {
            pty: behaviour.pty,
            conversation: Conversation::new(behaviour),
            links: managers.doors.into_iter().map(|door| Link { door, unconsumed: 0 }).collect(),
            parts: managers.parts,
            way_back: managers.way_back,
            sent_program: managers.sent_program,
            plan,
            mode,
            names,
            signals,
            console,
            input: None,
            input_opened: false,
            output: None,
            error: None,
            raw: None,
            ended: None,
            start: Instant::now(),
            hears_first: None,
            tells: None,
        }
    }

    /// The conversation was begun before: how it stands is heard before any signal is taken, if it comes within that time.
    pub fn hearing_first(self, limit: Duration) -> Self {
        Self { hears_first: Some(Instant::now() + limit), ..self }
    }

    /// The site's filters of options are told as soon as the step of that job has a number.
    pub fn telling_filters(self, startup: &'a Startup, job: JobId) -> Self {
        Self { tells: Some((startup, job)), ..self }
    }

    /// Runs the conversation to its end. Returns the exit code.
    pub fn run(mut self) -> i32 {
        let mut effects = Vec::new();
        let mut heard = Vec::new();
        if let Some(parts) = &mut self.parts {
            parts.begin(&mut heard);
        }
        self.pass_on(heard, &mut effects);
        // What was read already does not show at a descriptor.
        for link in self.listening() {
            self.take_messages(link, &mut effects);
        }
        loop {
            self.carry_out(&mut effects);
            self.grant();
            if let Some(code) = self.ended
                && !self.pending()
            {
                return code;
            }
            self.prepare_input(&mut effects);
            let ready = self.wait();
            for link in ready.doors {
                if self.ended.is_none() {
                    self.take_messages(link, &mut effects);
                }
            }
            // A step that is heard to have begun is no pending one.
            if ready.signal {
                self.take_signals(&mut effects);
            }
            if ready.input {
                self.take_input(&mut effects);
            }
            self.write(Stream::Stdout, ready.output, &mut effects);
            self.write(Stream::Stderr, ready.error, &mut effects);
            if self.ended.is_none() {
                self.tick(&mut effects);
                self.flush(&mut effects);
            }
        }
    }

    fn pending(&self) -> bool {
        [&self.output, &self.error].into_iter().flatten().any(OutputFile::is_pending)
    }

    fn tick(&mut self, effects: &mut Vec<Effect>) {
        let now = self.start.elapsed();
        self.conversation.tick(now, effects);
        let mut heard = Vec::new();
        if let Some(parts) = &mut self.parts {
            parts.tick(now, &mut heard);
        }
        self.pass_on(heard, effects);
    }

    fn flush(&mut self, effects: &mut Vec<Effect>) {
        for link in self.listening() {
            let door = &mut self.links[link].door;
            if door.wants_write()
                && let Err(error) = door.try_flush()
            {
                self.lost(error, effects);
            }
        }
    }

    /// Links from which something is to come.
    fn listening(&self) -> Vec<usize> {
        let over = |link: &usize| self.parts.as_ref().is_some_and(|parts| parts.is_over(*link));
        (0..self.links.len()).filter(|link| !over(link)).collect()
    }

    /// What the managers of several parts say, put together.
    fn pass_on(&mut self, heard: Vec<Heard>, effects: &mut Vec<Effect>) {
        for one in heard {
            match one {
                Heard::Tell(job, message) => {
                    self.conversation.speak_of(job);
                    self.conversation.message(self.start.elapsed(), message, effects);
                    // Files must be open before output for them is met.
                    self.carry_out(effects);
                }
                Heard::Send(link, message) => self.send(link, &message, effects),
            }
        }
    }

    fn send(&mut self, link: usize, message: &CommandToStepMgr, effects: &mut Vec<Effect>) {
        let door = &mut self.links[link].door;
        if let Err(error) = door.enqueue(message).and_then(|()| door.try_flush()) {
            self.lost(error, effects);
        }
    }

    /// A connection broke. Where there is a way back, it is taken at once: nothing is to be done meanwhile but to wait.
    fn lost(&mut self, error: DoorError, effects: &mut Vec<Effect>) {
        self.hears_first = None;
        let way = self.way_back.take_if(|_| way_back::is_worth_trying(&error) && self.ended.is_none());
        let Some(mut way) = way else { return self.conversation.lost(&error.to_string(), effects) };
        let mut said = Vec::new();
        let question = self.conversation.parted(&error.to_string(), &mut said);
        self.carry_out(&mut said);
        // Keys that nobody takes are signals again.
        self.raw = None;
        let deadline = self.conversation.give_up_at().map(|at| self.start + at);
        match way.go(error, question.as_ref(), Until { signals: Some(self.signals), deadline }) {
            Ok(door) => {
                self.links[0] = Link { door, unconsumed: 0 };
                self.way_back = Some(way);
            }
            Err(NoWay::Failed(why)) => self.conversation.lost(&why.to_string(), effects),
            Err(NoWay::Over(end)) => self.conversation.lost(&end.to_string(), effects),
            Err(NoWay::Interrupted(signal)) => self.conversation.given_up(signal, effects),
            Err(NoWay::TimeUp) => self.conversation.tick(self.start.elapsed(), effects),
        }
    }

    /// Waits until there is something to do.
    fn wait(&self) -> Ready {
        let listening = if self.ended.is_none() { self.listening() } else { Vec::new() };
        let writing = listening.iter().any(|link| self.links[*link].door.wants_write());
        let reading = self.ended.is_none() && !writing && self.conversation.input_room() > 0;
        let input = self.input.as_ref().filter(|i| reading && (!i.is_terminal() || terminal::in_foreground()));
        let output = self.output.as_ref().filter(|o| o.is_pending());
        let error = self.error.as_ref().filter(|o| o.is_pending());
        let hears_first = self.hears_first.filter(|until| Instant::now() < *until);
        let signals = if hears_first.is_some() { PollFlags::empty() } else { PollFlags::POLLIN };
        let mut fds = vec![PollFd::new(self.signals.as_fd(), signals)];
        let mut add = |fd, flags| {
            fds.push(PollFd::new(fd, flags));
            fds.len() - 1
        };
        let doors: Vec<(usize, usize)> = listening
            .into_iter()
            .map(|link| {
                let door = &self.links[link].door;
                let out = if door.wants_write() { PollFlags::POLLOUT } else { PollFlags::empty() };
                (link, add(door.as_fd(), PollFlags::POLLIN | out))
            })
            .collect();
        let input = input.map(|i| add(i.as_fd(), PollFlags::POLLIN));
        let output = output.map(|o| add(o.as_fd(), PollFlags::POLLOUT));
        let error = error.map(|o| add(o.as_fd(), PollFlags::POLLOUT));
        let parts = self.parts.as_ref().and_then(Parts::deadline);
        let hears_first = hears_first.map(|until| until.saturating_duration_since(self.start));
        let deadline = [self.conversation.deadline(), parts, hears_first].into_iter().flatten().min();
        let timeout = match deadline.filter(|_| self.ended.is_none()) {
            None => PollTimeout::NONE,
            Some(at) => {
                let left = at.saturating_sub(self.start.elapsed()).as_micros().div_ceil(1000);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            // Out of memory in the kernel: trying again is all that is left.
            Err(_) => std::thread::yield_now(),
        }
        let has = |at: Option<usize>| at.is_some_and(|at| fds[at].revents().is_some_and(|r| !r.is_empty()));
        Ready {
            signal: has(Some(0)),
            doors: doors.into_iter().filter(|(_, at)| has(Some(*at))).map(|(link, _)| link).collect(),
            input: has(input),
            output: has(output),
            error: has(error),
        }
    }

    fn take_signals(&mut self, effects: &mut Vec<Effect>) {
        while let Some(signal) = self.signals.next() {
            if self.ended.is_some() {
                // Only a reader that does not read is waited for any more.
                if matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) {
                    [&mut self.output, &mut self.error].into_iter().flatten().for_each(OutputFile::close);
                }
            } else if signal == libc::SIGWINCH {
                if let Some((rows, cols)) = terminal::size(io::stdin()) {
                    effects.push(Effect::Send(CommandToStepMgr::Resize { rows, cols }));
                }
            } else {
                self.conversation.signal(self.start.elapsed(), signal, effects);
            }
        }
    }

    fn take_messages(&mut self, link: usize, effects: &mut Vec<Effect>) {
        loop {
            match self.links[link].door.try_next::<StepMgrToCommand>() {
                Ok(Some(message)) => {
                    self.hears_first = None;
                    if let Some(way) = &mut self.way_back {
                        way.heard();
                    }
                    if let StepMgrToCommand::Output { data, .. } = &message {
                        self.links[link].unconsumed += data.len() as u64;
                    }
                    let now = self.start.elapsed();
                    let mut heard = Vec::new();
                    match &mut self.parts {
                        Some(parts) => parts.heard(now, link, message, &mut heard),
                        None => self.conversation.message(now, message, effects),
                    }
                    self.pass_on(heard, effects);
                    // Files must be open before output for them is met.
                    self.carry_out(effects);
                    if self.ended.is_some() || self.parts.as_ref().is_some_and(|parts| parts.is_over(link)) {
                        return;
                    }
                }
                Ok(None) => return,
                Err(DoorError::Frame { source: source @ FrameError::Malformed { .. }, .. }) => {
                    effects.push(Effect::Verbose(format!("message not understood: {source}")));
                }
                Err(error) => return self.lost(error, effects),
            }
        }
    }

    /// Opens input when the tasks are there to read it; the terminal becomes theirs for `--pty`.
    fn prepare_input(&mut self, effects: &mut Vec<Effect>) {
        if self.input_opened || !self.conversation.takes_input() {
            return;
        }
        self.input_opened = true;
        if self.pty && terminal::input_is_terminal() {
            match RawMode::enter() {
                Ok(raw) => self.raw = Some(raw),
                Err(error) => effects.push(Effect::Warning(format!("terminal stays in line mode: {error}"))),
            }
        }
        if self.plan.input == Input::Own {
            self.input = InputFile::own();
        }
        if self.input.is_none() {
            self.conversation.input(Vec::new(), effects);
            self.carry_out(effects);
        }
    }

    fn take_input(&mut self, effects: &mut Vec<Effect>) {
        let Some(input) = &self.input else { return };
        let room = usize::try_from(self.conversation.input_room()).unwrap_or(INPUT_CHUNK);
        if room == 0 {
            return;
        }
        let mut piece = vec![0; room.min(INPUT_CHUNK)];
        match input.read(&mut piece) {
            Got::Nothing => return,
            Got::Bytes(count) => piece.truncate(count),
            Got::End => {
                piece.clear();
                self.input = None;
            }
        }
        self.conversation.input(piece, effects);
    }

    fn write(&mut self, stream: Stream, ready: bool, effects: &mut Vec<Effect>) {
        let file = match stream {
            Stream::Stdout => &mut self.output,
            Stream::Stderr => &mut self.error,
        };
        if ready && let Some(file) = file {
            let wrote = file.write_some();
            self.wrote(stream, wrote, effects);
        }
    }

    fn wrote(&mut self, stream: Stream, wrote: io::Result<Wrote>, effects: &mut Vec<Effect>) {
        match wrote {
            Ok(Wrote::Ok) => {}
            Ok(Wrote::Closed) => {
                if stream == Stream::Stdout {
                    self.conversation.output_closed(effects);
                }
            }
            Err(error) => {
                let name = if stream == Stream::Stdout { "stdout" } else { "stderr" };
                effects.push(Effect::Error(format!("Unable to write {name}: {error}")));
            }
        }
    }

    fn grant(&mut self) {
        if self.pending() || self.ended.is_some() {
            return;
        }
        for link in &mut self.links {
            if link.unconsumed >= GRANT {
                let consumed = CommandToStepMgr::Consumed(mem::take(&mut link.unconsumed));
                // What cannot be sent shows at the next read.
                let _ = link.door.enqueue(&consumed).and_then(|()| link.door.try_flush());
            }
        }
    }

    fn carry_out(&mut self, effects: &mut Vec<Effect>) {
        let mut todo = mem::take(effects);
        if todo.iter().any(|effect| matches!(effect, Effect::End(_))) {
            // What is said at the end is said to the terminal as it was.
            self.raw = None;
        }
        while !todo.is_empty() {
            let mut more = Vec::new();
            for effect in todo {
                self.carry_out_one(effect, &mut more);
            }
            todo = more;
        }
    }

    fn carry_out_one(&mut self, effect: Effect, more: &mut Vec<Effect>) {
        match effect {
            Effect::Send(message) => {
                let mut meant = Vec::new();
                match &self.parts {
                    Some(parts) => parts.said(&message, &mut meant),
                    None => meant.push(Heard::Send(0, message)),
                }
                self.pass_on(meant, more);
            }
            Effect::AskAgain => {
                let asked = self.way_back.as_ref().map(|way| way.ask(&mut self.links[0].door));
                if let Some(Err(error)) = asked {
                    self.lost(error, more);
                }
            }
            Effect::SendProgram(layout) => match self.sent_program.as_ref().map(|sent| sent.send(&layout)) {
                Some(Ok(())) => {
                    let tasks_per_node = layout.ranks.iter().map(|ranks| ranks.len() as u32).collect();
                    let whole = WholeStep { nodes: layout.nodes, tasks_per_node };
                    more.push(Effect::Send(CommandToStepMgr::StartPart(whole)));
                }
                Some(Err(code)) => more.push(Effect::End(code)),
                None => more.push(Effect::Verbose("answer of another conversation ignored".to_owned())),
            },
            Effect::Numbered(step) => {
                if let Some((startup, job)) = self.tells {
                    startup.tell_filters(job, Some(step));
                }
                if let Err(error) = self.open_files(step) {
                    more.push(Effect::Error(error.to_string()));
                    more.push(Effect::End(1));
                }
            }
            Effect::Write(stream, bytes) => {
                if let Some(file) = self.output_file(stream) {
                    let wrote = file.push(&bytes);
                    self.wrote(stream, wrote, more);
                }
            }
            Effect::End(code) => {
                self.ended.get_or_insert(code);
            }
            Effect::Info(text) => self.say(|console| console.info(text)),
            Effect::Verbose(text) => self.say(|console| console.verbose(text)),
            Effect::Debug(text) => self.say(|console| console.debug(text)),
            Effect::Warning(text) => self.say(|console| console.warning(text)),
            Effect::Error(text) => self.say(|console| console.error(text)),
            Effect::TaskError(text) => {
                let line = task_error_line(&text, Timestamp::now(), &system_zone());
                self.say(|_| output::stderr(line.as_bytes()));
            }
            Effect::Line(text) => self.say(|_| output::stderr(format!("{text}\n").as_bytes())),
        }
    }

    /// A terminal in raw mode does not go back to the first column by itself.
    fn say(&self, speak: impl FnOnce(&Console)) {
        if self.raw.is_some() {
            output::stderr(b"\r");
        }
        speak(self.console);
        if self.raw.is_some() {
            output::stderr(b"\r");
        }
    }

    /// Where a stream's bytes go. What is `srun`'s own is looked at with the first of them: usually the tasks write there
    /// themselves.
    fn output_file(&mut self, stream: Stream) -> Option<&mut OutputFile> {
        let (file, sink) = match stream {
            Stream::Stdout => (&mut self.output, &self.plan.output),
            Stream::Stderr => (&mut self.error, &self.plan.error),
        };
        if file.is_none() && matches!(sink, Sink::Own | Sink::OwnOf(_)) {
            *file = OutputFile::own(stream);
        }
        file.as_mut()
    }

    fn open_files(&mut self, step: StepId) -> Result<(), super::step_files::FileError> {
        let facts = PatternFacts {
            job: step.job,
            array_task: self.names.array_task,
            step: Some(step.key()),
            node: None,
            node_id: None,
            task: None,
            user: &self.names.user,
            job_name: &self.names.job_name,
        };
        self.output = OutputFile::open(&self.plan.output, "stdout", self.mode, &facts)?;
        self.error = OutputFile::open(&self.plan.error, "stderr", self.mode, &facts)?;
        self.input = InputFile::open(&self.plan.input, &facts)?;
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct Ready {
    signal: bool,
    doors: Vec<usize>,
    input: bool,
    output: bool,
    error: bool,
}

/// `[2026-11-21T10:01:00.528] error: execve(): /nosuch: No such file or directory`
fn task_error_line(message: &str, now: Timestamp, zone: &jiff::tz::TimeZone) -> String {
    format!("[{}] error: {message}\n", now.text_with_millis(zone))
}

#[cfg(test)]
#[path = "step_loop_test.rs"]
mod tests;
