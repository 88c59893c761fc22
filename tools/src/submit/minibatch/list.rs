//! `srun --async --from-file`, `--each` and `--graph`: a step for every line, for every combination of values, or for every step
//! of a graph. Lines are read as they come, combinations and steps of a graph are made when they are needed, and all are sent in
//! pieces, each after the answer to the previous one, so that neither side holds more of them than necessary.

use super::{
    accepted::{declined_lines, steps_left, submitted, told},
    asked,
    chunk::Chunk,
    given::Given,
    handover::{Handed, Handover},
};
use crate::{
    graph::plan::Plan,
    options::{
        getopt::Occurrence,
        job_spec::{Checked, Submitter},
        minibatch::{LABEL, ListFormat},
        sources,
        step_spec::StepWork,
        table::{Command, OptionDef, options_of},
        typed::{OptionError, Typed},
    },
    output::{self, Console},
    step_lists::{
        each::Each,
        json_line,
        labels::{self, LabelError, Labels, Resolved},
        lines::{Line, Lines},
        list_line::{self, LineError, ListLine},
    },
    submit::{no_step::no_step, startup},
};
use garrick_asking::{manager::Way, search::NoWay, signals::Signals};
use garrick_model::{
    batch::FailLimit,
    ids::JobId,
    spec::{ArraySpec, EnvEntry, StepSpec},
    time::Timestamp,
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    os::{
        fd::AsFd as _,
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::Path,
    time::Instant,
};

/// Most different warnings that are said.
const MOST_WARNINGS: usize = 100;

/// Signals that end it.
const ENDING: &[Signal] = &[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// What is to be handed over, and on whose behalf.
pub struct ListRequest<'a> {
    /// Options for every line.
    pub typed: &'a Typed,
    /// What travels.
    pub submitter: Submitter,
    /// The command, of [`Each`].
    pub command: &'a [OsString],
    /// A graph, and the name of its file.
    pub graph: Option<(Plan, String)>,
    /// The way to the job's step manager.
    pub way: Way,
    /// Messages.
    pub console: &'a Console,
}

/// Where steps come from.
enum Source {
    /// Lines of a file.
    File(Lines, ListFormat),
    /// Combinations of values.
    Each(Each),
    /// Steps of a graph.
    Graph(Plan),
}

/// What came of it.
#[derive(Debug)]
pub struct Done {
    /// The exit code: 0 when every line was accepted.
    pub code: i32,
    /// A signal ended it.
    pub is_interrupted: bool,
    /// Which steps have which label.
    pub labels: Labels,
}

struct Run<'a> {
    typed: Typed,
    job: JobId,
    submitter: Submitter,
    environment: Vec<EnvEntry>,
    fail_limit: Option<FailLimit>,
    console: &'a Console,
    options: Vec<&'static OptionDef>,
    /// The list, as messages name it.
    file: String,
    /// The list, as steps of several programs are named.
    name: String,
    chunk: Chunk,
    labels: Labels,
    /// A line that was read, and waits for lines whose numbers are known when the request in the making is answered.
    pending: Option<(u64, ListLine<'static>)>,
    given: Given,
    /// Warnings about the options for every line: they belong to no line.
    common_warnings: Vec<String>,
    /// Warnings that were said, for the first line that they are about.
    warned: Vec<String>,
    all_accepted: bool,
    /// What was said last of a line that was not accepted.
    rejected: String,
}

/// What a line asks for, the name that it gives its step, and the tasks of which it is an array.
type Asked = (Checked<StepSpec>, Option<String>, Option<ArraySpec>);

/// Why it ended before the list did; `from`: the first line that was not accepted; `under_way`: to this line it may have
/// been accepted, nobody knows.
enum Stop {
    /// Nothing of what is left can be accepted, or the list cannot be read.
    Failed { why: String, from: u64, under_way: Option<u64> },
    /// A signal.
    Interrupted { signal: i32, from: u64, under_way: Option<u64> },
}

/// Reads and hands over. Returns the exit code: 0 when every line was accepted.
pub fn run(request: ListRequest<'_>) -> Result<i32, i32> {
    hand_over(request).map(|done| done.code)
}

/// Reads and hands over.
pub fn hand_over(request: ListRequest<'_>) -> Result<Done, i32> {
    let ListRequest { typed, submitter, command, graph, way, console } = request;
    let job = way.job();
    let mut typed = typed.clone();
    let (graph, name) = match graph {
        Some((plan, file)) => (Some(plan), OsString::from(file)),
        None => (None, typed.from_file.clone().unwrap_or_default()),
    };
    let file = match name.to_string_lossy() {
        name if name == "-" => "stdin".to_owned(),
        name if name.is_empty() => "each".to_owned(),
        name => name.into_owned(),
    };
    let signals =
        Signals::block(ENDING).map_err(|error| failed(console, format_args!("Unable to take signals: {error}")))?;
    let mut source = Source::open(graph, &mut typed, command, Path::new(&name), &file, console)?;
    let mut handover = Handover::begin(way, console, Some(&signals)).map_err(|no_way| match no_way {
        NoWay::Interrupted(signal) => 128 + signal,
        no_way => no_step(console, job, no_way),
    })?;
    asked::without_layout_of_the_job(&mut typed);
    let mut submitter = submitter;
    let mut run = Run {
        fail_limit: asked::fail_limit(&typed),
        typed,
        job,
        environment: std::mem::take(&mut submitter.environment),
        submitter,
        console,
        options: options_of(Command::Srun).into_iter().map(|o| if o.long == "label" { &LABEL } else { o }).collect(),
        name: Path::new(&file).file_name().map_or_else(|| file.clone(), |n| n.to_string_lossy().into_owned()),
        file,
        chunk: Chunk::default(),
        labels: Labels::default(),
        pending: None,
        given: Given::default(),
        common_warnings: Vec::new(),
        warned: Vec::new(),
        all_accepted: true,
        rejected: String::new(),
    };
    // What is wrong with the options for all lines is said once, not for each.
    let (checked, ..) = run
        .step(&ListLine { argv: vec![b"true".to_vec()], ..ListLine::default() })
        .map_err(|error| startup::tell_option(Command::Srun, console, &error))?;
    run.common_warnings = checked.warnings;
    let stop = run.all(&mut source, &mut handover, &signals);
    let labels = std::mem::take(&mut run.labels);
    let is_interrupted = matches!(stop, Err(Stop::Interrupted { .. }));
    Ok(Done { code: run.finish(stop, &source), is_interrupted, labels })
}

fn failed(console: &Console, text: impl std::fmt::Display) -> i32 {
    console.error(text);
    startup::exit_code(1)
}

impl Run<'_> {
    /// Goes through the list.
    fn all(&mut self, source: &mut Source, handover: &mut Handover<'_>, signals: &Signals) -> Result<(), Stop> {
        loop {
            let ended = match source {
                Source::File(lines, format) => self.gather(lines, *format, handover, signals)?,
                Source::Each(each) => self.combine(each),
                Source::Graph(plan) => self.plan(plan),
            };
            if !self.chunk.is_empty() {
                self.send(handover, source)?;
            }
            if ended {
                return Ok(());
            }
            if let Some(signal) = handover.interrupted {
                let from = self.pending.as_ref().map_or_else(|| source.upcoming(), |(number, _)| *number);
                return Err(Stop::Interrupted { signal, from, under_way: None });
            }
        }
    }

    /// Makes combinations until there are enough. True when there are no more.
    fn combine(&mut self, each: &mut Each) -> bool {
        while !self.chunk.is_full() {
            let Some((number, line)) = each.next(&self.options) else { return true };
            self.take(number, &line, &[], |_| each.at(number, number));
        }
        false
    }

    /// Takes steps of a graph until there are enough, or one waits for those that were taken. True when there are no more.
    fn plan(&mut self, plan: &mut Plan) -> bool {
        if let Some((number, line)) = self.pending.take()
            && !self.add(number, line)
        {
            return false;
        }
        while !self.chunk.is_full() {
            let Some((number, line)) = plan.next(&self.options) else { return true };
            if !self.add(number, line) {
                return false;
            }
        }
        false
    }

    /// Takes lines until there are enough, or the first has waited long enough. True at the end of the list.
    fn gather(
        &mut self,
        lines: &mut Lines,
        format: ListFormat,
        handover: &mut Handover<'_>,
        signals: &Signals,
    ) -> Result<bool, Stop> {
        if let Some((number, line)) = self.pending.take() {
            self.add(number, line);
        }
        while !self.chunk.is_full() {
            match lines.next() {
                Line::End => return Ok(true),
                Line::TooLong(number) => self.reject(&self.line(number), LineError::TooLong),
                Line::Whole(number, text) => match read(format, text, &self.options) {
                    Ok(None) => {}
                    Ok(Some(line)) => {
                        // Parts of what has a label are a graph's own.
                        if let Some(part) = labels_of(&line).find(|label| label.contains('.')) {
                            let error = LabelError::Invalid(part.into_owned());
                            self.reject(&self.line(number), error);
                            continue;
                        }
                        let line = ListLine { line: u32::try_from(number).ok(), ..line };
                        if !self.add(number, line) {
                            return Ok(false);
                        }
                    }
                    Err(error) => self.reject(&self.line(number), error),
                },
                Line::More => {
                    if !self.more(lines, handover, signals)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Waits for more of the list and reads it. False when what was gathered has waited long enough.
    fn more(&mut self, lines: &mut Lines, handover: &mut Handover<'_>, signals: &Signals) -> Result<bool, Stop> {
        let from = lines.number() + 1;
        loop {
            let left = if lines.all_there() { None } else { self.chunk.left(Instant::now()) };
            let timeout = match left {
                Some(left) if left.is_zero() => return Ok(false),
                Some(left) => PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX),
                None => PollTimeout::NONE,
            };
            let mut fds =
                [PollFd::new(lines.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            // Whatever woke it, the list, the signals and the time are looked at.
            let _ = poll(&mut fds, timeout);
            let ready = fds[0].revents().is_some_and(|r| !r.is_empty());
            if handover.is_interrupted() {
                let signal = handover.interrupted.unwrap_or(libc::SIGINT);
                let from = self.chunk.first_line().unwrap_or(from);
                return Err(Stop::Interrupted { signal, from, under_way: None });
            }
            if ready {
                return lines.read().map(|()| true).map_err(|error| Stop::Failed {
                    why: format!("reading: {error}"),
                    from: self.chunk.first_line().unwrap_or(from),
                    under_way: None,
                });
            }
        }
    }

    /// A line of the list, as messages name it.
    fn line(&self, number: u64) -> String {
        format!("{}:{number}", self.file)
    }

    fn reject(&mut self, at: &str, why: impl std::fmt::Display) {
        self.all_accepted = false;
        let text = format!("{at}: {why}");
        // Steps of one description share its line.
        if self.rejected != text {
            self.console.error(&text);
            self.rejected = text;
        }
    }

    /// Adds the step of a line. False: what was gathered is to go first, and the line is kept until then.
    fn add(&mut self, number: u64, line: ListLine<'_>) -> bool {
        let labels: Vec<String> = labels_of(&line).map(Cow::into_owned).collect();
        // An array is a request of its own.
        if !self.chunk.is_empty() && line.options.iter().any(|o| o.def.long == "array") {
            self.pending = Some((number, line.into_owned()));
            return false;
        }
        match self.numbered(&line, &labels) {
            Ok(None) => {
                self.pending = Some((number, line.into_owned()));
                return false;
            }
            Ok(Some(options)) if options == line.options => self.take(number, &line, &[], |run| run.line(number)),
            Ok(Some(options)) => {
                let words = options
                    .iter()
                    .flat_map(|o| [o.def.long.as_bytes(), o.value.as_deref().map_or(b"", OsStr::as_bytes)]);
                // Not as any line has them.
                let text = [b"\0", words.collect::<Vec<_>>().join(&0).as_slice()].concat();
                let first = || labels.first().cloned().unwrap_or_default();
                let name = if line.name.is_empty() { first() } else { line.name.clone() };
                let line = ListLine { options, options_text: text.into(), name, ..line };
                self.take(number, &line, &labels, |run| run.line(number));
            }
            Err(error) => {
                labels.iter().for_each(|label| self.labels.miss(number, label));
                self.reject(&self.line(number), error);
            }
        }
        true
    }

    /// A line's options with numbers in place of labels, and without its own. `None`: not all numbers are known yet.
    fn numbered(&self, line: &ListLine<'_>, labels: &[String]) -> Result<Option<Vec<Occurrence>>, LabelError> {
        labels.iter().try_for_each(|label| labels::check(label.split('.').next().unwrap_or_default()))?;
        let mut options = Vec::new();
        for option in line.options.iter().filter(|o| o.def.long != LABEL.long) {
            let text = option.value.as_deref().and_then(OsStr::to_str);
            let text = text.filter(|text| option.def.long == "dependency" && text.contains('@'));
            let value = match text.map(|text| self.labels.resolve(text)).transpose()? {
                Some(Resolved::Later) => return Ok(None),
                Some(Resolved::Text(text)) => Some(OsString::from(text)),
                None => option.value.clone(),
            };
            options.push(Occurrence { def: option.def, value });
        }
        Ok(Some(options))
    }

    /// Adds a step. `at`: where it comes from, as messages name it.
    fn take(&mut self, number: u64, line: &ListLine<'_>, labels: &[String], at: impl Fn(&Self) -> String) {
        let mut warnings = Vec::new();
        let mut chunk = std::mem::take(&mut self.chunk);
        let taken = chunk.push(Instant::now(), number, line, || {
            let (checked, name, array) = self.step(line)?;
            warnings = checked.warnings;
            Ok::<_, OptionError>((checked.spec, name, array))
        });
        self.chunk = chunk;
        match taken {
            Ok(()) => {
                let place = self.chunk.len() as u32 - 1;
                labels.iter().for_each(|label| self.labels.gather(place, label));
            }
            Err(error) => {
                labels.iter().for_each(|label| self.labels.miss(number, label));
                self.reject(&at(self), error);
            }
        }
        for warning in warnings {
            if self.warned.contains(&warning) || self.warned.len() >= MOST_WARNINGS {
                continue;
            }
            if self.common_warnings.contains(&warning) {
                self.console.warning(&warning);
            } else {
                self.console.warning(format_args!("{}: {warning}", at(self)));
            }
            self.warned.push(warning);
        }
    }

    /// What a line asks for, the name that it gives its step, and the tasks of which it is an array.
    fn step(&self, line: &ListLine<'_>) -> Result<Asked, OptionError> {
        let mut typed = self.typed.clone();
        sources::lay_on(&mut typed, &line.options, Timestamp::now())?;
        asked::one_task_at_least(&mut typed);
        let program = OsString::from_vec(line.argv.first().cloned().unwrap_or_default());
        let work = StepWork { program, ..StepWork::default() };
        let name = typed.job_name.clone().filter(|name| !name.is_empty());
        let Checked { spec, warnings } = asked::spec(&typed, self.job, self.submitter.clone(), work)?;
        Ok((Checked { spec: StepSpec { fail_limit: self.fail_limit, ..spec }, warnings }, name, typed.array))
    }

    /// Hands over what was gathered.
    fn send(&mut self, handover: &mut Handover<'_>, source: &Source) -> Result<(), Stop> {
        let (batch, numbers) = self.chunk.take(&self.name, &self.environment);
        let (from, to) = (numbers.first().copied().unwrap_or(0), numbers.last().copied().unwrap_or(0));
        match handover.hand_over(batch) {
            Handed::Answered { given, declined } => {
                given.into_iter().for_each(|given| self.given.add(given));
                let places: Vec<u32> = declined.iter().map(|(place, _)| *place).collect();
                self.labels.answered(given, &places, &numbers);
                for (first, last, why) in declined_lines(&numbers, &declined, matches!(source, Source::Graph(_))) {
                    let at = match source {
                        Source::Each(each) => each.at(first, last),
                        Source::File(..) | Source::Graph(_) if first == last => self.line(first),
                        Source::File(..) | Source::Graph(_) => format!("{}:{first}-{last}", self.file),
                    };
                    self.reject(&at, why);
                }
                Ok(())
            }
            Handed::Refused(error) => Err(Stop::Failed { why: told(&error), from, under_way: None }),
            Handed::Lost(error) => Err(Stop::Failed { why: told(&error), from, under_way: Some(to) }),
            Handed::Interrupted { under_way } => Err(Stop::Interrupted {
                signal: handover.interrupted.unwrap_or(libc::SIGINT),
                from,
                under_way: under_way.then_some(to),
            }),
        }
    }

    /// Says what became of the list; the exit code.
    fn finish(self, stop: Result<(), Stop>, source: &Source) -> i32 {
        let code = match &stop {
            Ok(()) if self.all_accepted => 0,
            Ok(()) | Err(Stop::Failed { .. }) => startup::exit_code(1),
            Err(Stop::Interrupted { signal, .. }) => 128 + signal,
        };
        if let Err(stop) = stop {
            let (why, from, under_way) = match stop {
                Stop::Failed { why, from, under_way } => (why, from, under_way),
                Stop::Interrupted { signal, from, under_way } => {
                    (format!("interrupted by signal {signal}"), from, under_way)
                }
            };
            let of_lines = |what: &str| {
                let unknown = under_way.map(|to| format!("{what} {from} to {to}"));
                (format!("{what} from here on were not handed over"), unknown)
            };
            let (at, (left, unknown)) = match source {
                Source::Each(each) => (each.at(from, from), of_lines("combinations")),
                Source::File(..) => (self.line(from), of_lines("lines")),
                Source::Graph(plan) => {
                    (self.line(from), steps_left(plan.label(from), under_way.map(|to| plan.label(to))))
                }
            };
            self.console.error(format_args!("{at}: {why}; {left}"));
            if let Some(unknown) = unknown {
                self.console.error(format_args!(
                    "what became of {unknown}, which were on their way, is not known (squeue -s shows it)"
                ));
            }
        }
        let text = submitted(&self.given, self.job, self.typed.parsable);
        let written = output::stdout(|out| text.iter().try_for_each(|line| writeln!(out, "{line}")));
        output::finish(self.console, written, code)
    }
}

fn labels_of<'a>(line: &'a ListLine<'_>) -> impl Iterator<Item = Cow<'a, str>> {
    let labels = line.options.iter().filter(|option| option.def.long == LABEL.long);
    labels.filter_map(|option| option.value.as_deref()).map(OsStr::to_string_lossy)
}

fn read<'a>(
    format: ListFormat,
    text: &'a [u8],
    options: &[&'static OptionDef],
) -> Result<Option<ListLine<'a>>, LineError> {
    match format {
        ListFormat::Lines => list_line::read(text, options),
        ListFormat::JsonLines => json_line::read(text, options),
    }
}

impl Source {
    fn open(
        graph: Option<Plan>,
        typed: &mut Typed,
        command: &[OsString],
        path: &Path,
        file: &str,
        console: &Console,
    ) -> Result<Self, i32> {
        if let Some(plan) = graph {
            return Ok(Self::Graph(plan));
        }
        if !typed.each.is_empty() {
            let each = Each::new(typed, command);
            return each.map(Self::Each).map_err(|error| startup::tell_option(Command::Srun, console, &error));
        }
        let lines = Lines::open(path);
        let lines = lines.map_err(|error| failed(console, format_args!("Unable to open {file}: {error}")))?;
        let json = path.extension().is_some_and(|end| end == "jsonl" || end == "ndjson");
        let format = if json { ListFormat::JsonLines } else { ListFormat::Lines };
        Ok(Self::File(lines, typed.list_format.unwrap_or(format)))
    }

    /// The number of the line or combination that is next.
    fn upcoming(&self) -> u64 {
        match self {
            Self::File(lines, _) => lines.number() + 1,
            Self::Each(each) => each.number() + 1,
            Self::Graph(plan) => plan.upcoming(),
        }
    }
}
