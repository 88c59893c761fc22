//! `sattach`: watches the output of a running step, and passes standard input to it, beside what the step's own command passes. Output that its step manager relays comes in messages; for output in files or
//! an output pack the step manager says where it is, and those are followed from their beginning.
//!
//! | module | what it is |
//! |---|---|
//! | [`watched`] | reactions to messages of the step manager |
//! | [`follow`] | files and packs that grow |

pub mod follow;
pub mod watched;

use crate::{
    options::table::Arg,
    output::{self, Console},
    query::arguments::{self, Arguments, Outcome, Table, option},
    submit::{
        startup,
        step_files::{Got, INPUT_CHUNK, InputFile},
    },
    waiting::terminal::{self, RawMode},
};
use follow::Followed;
use garrick_asking::{
    cluster::{Answer, Cluster, ClusterError},
    manager::{Around, Way},
    runs,
    search::{NoWay, Search, Until},
    signals::Signals,
};
use garrick_frame::{DoorClient, DoorError, FrameError};
use garrick_model::{
    ids::{JobId, Sluid, StepId, StepSelector},
    messages::{
        command::{CommandReply, CommandRequest, JobSelector},
        shepherd::Stream,
        step::{CommandToStepMgr, STDIN_WINDOW, StepMgrToCommand},
    },
    refusal::Refusal,
    step_selector::{StepsSelector, WhichSteps},
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use serde_bytes::ByteBuf;
use std::{
    env,
    ffi::OsString,
    io::{self, Write as _},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};
use watched::{Effect, Filters, Watched};

pub(crate) static TABLE: Table = Table {
    program: "sattach",
    purpose: "Show the output of a running job step, as srun relays it or from its files or output packs, and send input to it.",
    operands: "JOB.STEP",
    words: &[],
    options: &[
        option("help", Some('h'), Arg::None, "show this help"),
        option("error-filter", None, Arg::Required("task"), "standard error of this task only"),
        option("input-filter", None, Arg::Required("task"), "send input to this task only"),
        option("label", Some('l'), Arg::None, "prepend task number to lines of output"),
        option("layout", None, Arg::None, "print where the tasks run and exit"),
        option("output-filter", None, Arg::Required("task"), "standard output of this task only"),
        option("pty", None, Arg::None, "the pseudo terminal of task zero, of a step of srun --pty"),
        option("quiet", Some('Q'), Arg::None, "only errors"),
        option("usage", Some('u'), Arg::None, "show a short usage"),
        option("verbose", Some('v'), Arg::None, "more messages"),
    ],
    misuse: 1,
};

/// How long nothing is looked at when nothing is heard: what another host writes to a shared file system goes unseen.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    step: StepSelector,
    /// The run that names the job.
    run: Option<Sluid>,
    filters: Filters,
    /// The task that gets the input; `None`: all.
    input: Option<u32>,
    pty: bool,
    label: bool,
    layout: bool,
}

/// Runs `sattach`; `args` are without the program's name. Returns the exit code: 0 when the step ended with 0, else 1.
pub fn main(args: Vec<OsString>) -> i32 {
    let mut console = Console::new("sattach");
    let arguments = match arguments::read(&TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    console.set_verbosity(arguments::verbosity(&arguments));
    let request = match read(&arguments) {
        Ok(request) => request,
        Err(error) => return error.tell(&console),
    };
    let found = step(&request, &console).map_err(NoWay::Failed).and_then(|step| {
        let mut search = Search::new(Way::new(None, &console, step.job), &console);
        let door = search.begin(Until::default())?;
        Ok((step, search, door))
    });
    match found {
        Ok((step, search, door)) => watch(&request, step, search, door, &console),
        Err(no_way) => {
            let error = no_way.into_error();
            error.details().iter().for_each(|line| console.error(line));
            console.error(format_args!("Could not get job step info: {error}"));
            startup::exit_code(1)
        }
    }
}

/// Words that cannot be used, and how Slurm says so.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Misuse {
    /// As an error.
    Error(String),
    /// As a fatal one.
    Fatal(String),
    /// As an error, with a short usage.
    Usage(&'static str),
}

impl Misuse {
    fn tell(&self, console: &Console) -> i32 {
        match self {
            Self::Error(text) => console.error(text),
            Self::Fatal(text) => console.fatal(text),
            Self::Usage(text) => {
                console.error(text);
                // Where standard output is gone there is nobody to read it.
                let _ = output::print_line("Usage: sattach [options] <jobid.stepid>");
            }
        }
        startup::exit_code(1)
    }
}

/// Why a word names no step, in Slurm's words.
fn no_step(word: &str) -> Misuse {
    match word.split_once('.') {
        _ if !word.starts_with(|c: char| c.is_ascii_digit()) => {
            Misuse::Fatal(format!("Bad job/step specified: {word}: JobID can not be zero"))
        }
        Some(_) => {
            Misuse::Fatal(format!("Bad job/step specified: {word}: StepID includes unexpected non-numeric characters"))
        }
        None => Misuse::Usage("Failed to parse stepid from command line options"),
    }
}

pub(crate) fn read(arguments: &Arguments) -> Result<Request, Misuse> {
    let filter = |name: &str| match arguments.value(name) {
        None => Ok(None),
        Some(text) => {
            let wrong = |_| Misuse::Error(format!("Invalid numeric value \"{text}\" for {name}."));
            text.parse().map(Some).map_err(wrong)
        }
    };
    let mut filters = Filters { output: filter("output-filter")?, error: filter("error-filter")? };
    let mut input = filter("input-filter")?;
    let pty = arguments.has("pty");
    if pty {
        if filters != Filters::default() || input.is_some() {
            return Err(Misuse::Error("don't specify both --pty and I/O filtering".to_owned()));
        }
        // It is that of task zero.
        (filters, input) = (Filters { output: Some(0), error: Some(0) }, Some(0));
    }
    let words = arguments.words();
    let [word] = words.as_slice() else { return Err(Misuse::Usage("too many parameters")) };
    let steps = word.parse::<StepsSelector>();
    let of_run = steps.as_ref().ok().filter(|steps| steps.run.is_some());
    let (step, run) = match of_run.and_then(|steps| Some((steps.which.single()?, steps.run))) {
        Some((key, run)) => {
            (StepSelector { job: JobId::OF_A_RUN, task: None, het: None, step: key.step, array: key.array }, run)
        }
        None => {
            let step = word.parse().map_err(|_| match steps {
                Ok(_) if word.contains('.') => {
                    Misuse::Error(format!("{word} means several steps: name one, JOB.STEP or JOB.STEP_TASK"))
                }
                _ => no_step(word),
            });
            (step?, None)
        }
    };
    Ok(Request { step, run, filters, input, pty, label: arguments.has("label"), layout: arguments.has("layout") })
}

/// The step that is named: its job's id may have to be asked for.
fn step(request: &Request, console: &Console) -> Answer<StepId> {
    let named = &request.step;
    if let Some(run) = request.run {
        return Ok(named.of_job(runs::job_of(None, console, run)?));
    }
    let around = Around::read(|name| env::var(name).ok());
    let as_steps =
        StepsSelector { job: named.job, task: named.task, het: named.het, run: None, which: WhichSteps::All };
    let job = match (named.array_task(), around) {
        (None, _) if named.het.is_some() => {
            let jobs = vec![JobSelector { job: named.job, tasks: None, het: named.het, run: None }];
            match Cluster::find(None)?.ask(console.program(), &CommandRequest::list_jobs(jobs))? {
                CommandReply::Jobs { jobs, .. } => {
                    jobs.first().map(|j| j.id).ok_or(ClusterError::Refused(Refusal::InvalidJobId))?
                }
                _ => return Err(ClusterError::Unexpected("asked for a job")),
            }
        }
        (None, _) => named.job,
        (Some(_), Some(around)) if around.has(&as_steps) => around.job,
        (Some(task), _) => {
            let jobs = vec![JobSelector {
                job: task.array_job,
                tasks: Some(vec![(task.index, task.index, 1)]),
                het: None,
                run: None,
            }];
            match Cluster::find(None)?.ask(console.program(), &CommandRequest::list_jobs(jobs))? {
                CommandReply::Jobs { jobs, .. } => {
                    let found = jobs.iter().find(|j| j.array_task == Some(task)).map(|j| j.id);
                    found.ok_or(ClusterError::Refused(Refusal::InvalidJobId))?
                }
                _ => return Err(ClusterError::Unexpected("asked for a job")),
            }
        }
    };
    // A component's step is one of its own job.
    Ok(StepId { het: None, ..named.of_job(job) })
}

/// What a turn of the loop brought.
enum Turn {
    On,
    Over(i32),
}

struct Watching<'a> {
    console: &'a Console,
    search: Search<'a>,
    door: DoorClient,
    /// What was asked at the door.
    question: CommandToStepMgr,
    watched: Watched,
    followed: Option<Followed>,
    sending: Sending,
    /// The step is over, with this exit code; files may still have to be read to their ends, until then.
    ended: Option<(i32, Instant)>,
}

/// Standard input on its way to the step.
#[derive(Debug, Default)]
struct Sending {
    /// `None`: not yet, or no more.
    from: Option<InputFile>,
    /// The task that gets it; `None`: all.
    to: Option<u32>,
    /// Bytes that the tasks have not taken yet.
    under_way: u64,
    /// The terminal is that of task zero.
    raw: Option<RawMode>,
    /// With `--pty`: what would end this command leaves the terminal as it was.
    signals: Option<Signals>,
}

impl Sending {
    /// How much may be sent now.
    fn room(&self) -> usize {
        usize::try_from(STDIN_WINDOW.saturating_sub(self.under_way)).unwrap_or(INPUT_CHUNK).min(INPUT_CHUNK)
    }

    /// What is there to be sent, when it was found to be readable; `None`: nothing.
    fn read(&mut self) -> Option<CommandToStepMgr> {
        let mut piece = vec![0; self.room()];
        match self.from.as_ref().filter(|_| !piece.is_empty())?.read(&mut piece) {
            Got::Nothing => None,
            Got::Bytes(count) => {
                piece.truncate(count);
                self.under_way += count as u64;
                Some(CommandToStepMgr::AttachedInput { rank: self.to, data: ByteBuf::from(piece) })
            }
            // The tasks' input goes on: others may have some for them.
            Got::End => {
                self.from = None;
                None
            }
        }
    }
}

fn watch(request: &Request, step: StepId, search: Search<'_>, mut door: DoorClient, console: &Console) -> i32 {
    let question = CommandToStepMgr::Attach { step };
    // One that broke is noticed as soon as it is read from.
    let _ = door.send(&question);
    let watched = Watched::new(step, request.filters, request.label, request.layout);
    let watched = watched.with_input(request.pty, request.input.is_some());
    let signals = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];
    let signals = match request.pty.then(|| Signals::block(&signals)).transpose() {
        Ok(signals) => signals,
        Err(error) => {
            console.error(error);
            return startup::exit_code(1);
        }
    };
    let sending = Sending { to: request.input, signals, ..Sending::default() };
    let mut watching = Watching { console, search, door, question, watched, followed: None, sending, ended: None };
    loop {
        match watching.turn() {
            Ok(Turn::On) => {
                if let Some(signal) = watching.wait() {
                    drop(watching);
                    return 128 + signal;
                }
            }
            Ok(Turn::Over(code)) => return code,
            // The reader is gone.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return 0,
            Err(error) => {
                console.error(error);
                return startup::exit_code(1);
            }
        }
    }
}

impl Watching<'_> {
    fn turn(&mut self) -> io::Result<Turn> {
        while self.ended.is_none() {
            let mut effects = Vec::new();
            match self.door.try_next::<StepMgrToCommand>() {
                Ok(Some(message)) => {
                    self.search.heard();
                    self.watched.message(message, &mut effects);
                }
                Ok(None) => break,
                Err(DoorError::Frame { source: FrameError::Malformed { .. }, .. }) => continue,
                Err(error) => {
                    if let Err(no_way) = self.find_again(error) {
                        self.watched.lost(&no_way.to_string(), &mut effects);
                    }
                }
            }
            if let Some(code) = self.carry_out(effects)? {
                return Ok(Turn::Over(code));
            }
        }
        // Where it ended says whether there can be more: that is asked before the last look.
        let last = self.ended.is_some();
        let mut effects = Vec::new();
        if let Some(followed) = &mut self.followed {
            followed.look(&mut |rank, stream, bytes| self.watched.followed(rank, stream, bytes, &mut effects));
        }
        self.carry_out(effects)?;
        let Some((code, until)) = self.ended.filter(|_| last) else { return Ok(Turn::On) };
        let complete = self.followed.as_ref().is_none_or(Followed::is_complete);
        if !complete && Instant::now() < until {
            return Ok(Turn::On);
        }
        let mut effects = Vec::new();
        self.watched.finish(&mut effects);
        self.carry_out(effects)?;
        for problem in self.followed.iter().flat_map(Followed::problems) {
            self.console.error(problem);
        }
        Ok(Turn::Over(code))
    }

    /// Finds the step manager again and asks once more.
    fn find_again(&mut self, error: DoorError) -> Result<(), NoWay> {
        self.door = self.search.again(error.into(), Until::default())?;
        self.watched.parted();
        self.sending.under_way = 0;
        // As at first.
        let _ = self.door.send(&self.question);
        Ok(())
    }

    /// Asks something else.
    fn ask(&mut self, question: CommandToStepMgr) -> Result<(), NoWay> {
        self.question = question;
        self.door = self.search.begin(Until::default())?;
        let _ = self.door.send(&self.question);
        Ok(())
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> io::Result<Option<i32>> {
        for effect in effects {
            match effect {
                Effect::Write(Stream::Stdout, bytes) => {
                    let mut out = io::stdout().lock();
                    out.write_all(&bytes)?;
                    out.flush()?;
                }
                Effect::Write(Stream::Stderr, bytes) => output::stderr(&bytes),
                Effect::Layout(text) => {
                    let written = output::stdout(|out| out.write_all(text.as_bytes()));
                    return Ok(Some(output::finish(self.console, written, 0)));
                }
                Effect::Follow(files) => {
                    files.iter().for_each(|f| self.console.verbose(format_args!("reading {}", f.path.display())));
                    self.followed = Some(Followed::new(files));
                }
                Effect::TakeInput { terminal } => self.begin_sending(terminal),
                Effect::Taken(bytes) => self.sending.under_way = self.sending.under_way.saturating_sub(bytes),
                Effect::Info(text) => self.console.info(text),
                Effect::Error(text) => self.console.error(text),
                Effect::Ask(question) => {
                    if let Err(no_way) = self.ask(question) {
                        let mut effects = Vec::new();
                        self.watched.lost(&no_way.to_string(), &mut effects);
                        return self.carry_out(effects);
                    }
                }
                Effect::Ended(code) => self.ended = Some((code, Instant::now() + follow::LAST_RECORDS)),
                Effect::GiveUp => return Ok(Some(startup::exit_code(1))),
            }
        }
        Ok(None)
    }

    /// The tasks take input; `terminal`: task zero has one, and is to have this one's keys.
    fn begin_sending(&mut self, terminal: bool) {
        if terminal && terminal::input_is_terminal() {
            match RawMode::enter() {
                Ok(raw) => self.sending.raw = Some(raw),
                Err(error) => self.console.error(format_args!("terminal stays in line mode: {error}")),
            }
        }
        self.sending.from = InputFile::own();
    }

    /// Until there is something to do. Returns the signal that ends this, if one does.
    fn wait(&mut self) -> Option<i32> {
        let sends = self.ended.is_none() && !self.door.wants_write() && self.sending.room() > 0;
        let mut fds = Vec::new();
        let mut add = |fd, flags| {
            fds.push(PollFd::new(fd, flags));
            fds.len() - 1
        };
        let input =
            self.sending.from.as_ref().filter(|from| sends && (!from.is_terminal() || terminal::in_foreground()));
        let input = input.map(|from| add(from.as_fd(), PollFlags::POLLIN));
        if self.ended.is_none() {
            let writes = if self.door.wants_write() { PollFlags::POLLOUT } else { PollFlags::empty() };
            add(self.door.as_fd(), PollFlags::POLLIN | writes);
        }
        if let Some(signals) = &self.sending.signals {
            add(signals.as_fd(), PollFlags::POLLIN);
        }
        if let Some(fd) = self.followed.as_ref().and_then(Followed::notice) {
            add(fd, PollFlags::POLLIN);
        }
        let timeout = match (&self.followed, self.ended) {
            (None, None) => PollTimeout::NONE,
            (Some(_), None) => PollTimeout::try_from(LOOK_AFTER).unwrap_or(PollTimeout::MAX),
            (_, Some((_, until))) => {
                let left = until.saturating_duration_since(Instant::now()).min(LOOK_AFTER);
                PollTimeout::try_from(left.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX)
            }
        };
        // Whatever woke it, everything is looked at.
        let _ = poll(&mut fds, timeout);
        let readable = input.is_some_and(|at| fds[at].revents().is_some_and(|events| !events.is_empty()));
        if let Some(followed) = &self.followed {
            followed.noticed();
        }
        let message = if readable { self.sending.read() } else { None };
        // A door that broke is noticed as soon as it is read from.
        let _ = message.map(|message| self.door.enqueue(&message)).transpose().and_then(|_| self.door.try_flush());
        self.sending.signals.as_ref().and_then(Signals::next)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read_words(words: &str) -> Result<Request, Misuse> {
        let args: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        read(&arguments::parse(&TABLE, &args).unwrap())
    }

    #[test]
    fn one_step_is_named() {
        let request = read_words("-l --output-filter 3 5609.7_2").unwrap();
        assert_eq!(request.step.to_string(), "5609.7_2");
        assert_eq!((request.label, request.filters), (true, Filters { output: Some(3), error: None }));
        assert_eq!(read_words("504_3.0 --layout").unwrap().step.task, Some(3));
        assert_eq!(read_words("--input-filter=2 5.1").unwrap().input, Some(2));
        let terminal = read_words("--pty 5.1").unwrap();
        assert_eq!((terminal.pty, terminal.input, terminal.filters.output), (true, Some(0), Some(0)));
        for (words, want) in [
            ("", Misuse::Usage("too many parameters")),
            ("5.1 5.2", Misuse::Usage("too many parameters")),
            ("5609", Misuse::Usage("Failed to parse stepid from command line options")),
            ("x", Misuse::Fatal("Bad job/step specified: x: JobID can not be zero".to_owned())),
            (
                "5.x",
                Misuse::Fatal(
                    "Bad job/step specified: 5.x: StepID includes unexpected non-numeric characters".to_owned(),
                ),
            ),
            (
                "5609.[1-3]",
                Misuse::Error("5609.[1-3] means several steps: name one, JOB.STEP or JOB.STEP_TASK".to_owned()),
            ),
            ("--pty --input-filter=0 5.1", Misuse::Error("don't specify both --pty and I/O filtering".to_owned())),
            ("--error-filter=x 5.1", Misuse::Error("Invalid numeric value \"x\" for error-filter.".to_owned())),
        ] {
            assert_eq!(read_words(words).unwrap_err(), want, "{words}");
        }
    }
}
