//! The daemons' log: one line an event, `[2026-11-21T10:00:51.123] info: text field=value`, to a file or to standard error, and,
//! if the site configures it, to the system's log.
//!
//! The levels can be changed while the daemon runs, and its file can be opened again after it was moved away.

use super::syslog::{self, Syslog};
use garrick_model::{
    config::{DebugFlags, LogChange, LogLevel},
    time::{Timestamp, system_zone},
    visible::Visible,
};
use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};
use tracing::{Level, Subscriber, field::Visit};
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry,
    filter::LevelFilter,
    fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, format::Writer},
    layer::SubscriberExt,
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt,
};

/// The log file could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open log file {path}: {cause}")]
pub struct LogError {
    /// The file.
    pub path: PathBuf,
    /// The system's words.
    pub cause: io::Error,
}

/// How much is logged where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevels {
    /// To the file or standard error.
    pub level: LogLevel,
    /// To the system's log.
    pub syslog: LogLevel,
    /// Topics of which more is logged than the level asks for.
    pub flags: DebugFlags,
    /// The log of the scheduler is written.
    pub scheduler: bool,
}

/// What is logged where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// File; `None`: standard error.
    pub file: Option<PathBuf>,
    /// File of the scheduler's log (`SlurmSchedLogFile`).
    pub scheduler: Option<PathBuf>,
    /// The file is looked for at each line: nobody tells this process that it was moved away.
    pub follows_file: bool,
    /// How much.
    pub levels: LogLevels,
    /// Name in the system's log.
    pub name: String,
}

/// The log of this process.
struct Log {
    sink: Arc<Sink>,
    scheduler: Arc<SchedulerLog>,
    scheduler_level: reload::Handle<EnvFilter, Registry>,
    levels: Mutex<LogLevels>,
    level: reload::Handle<EnvFilter, Registry>,
    syslog: reload::Handle<LevelFilter, Registry>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// What is shown at a level. `GARRICK_LOG` (a filter as `info,quinn=debug`) overrides it.
fn filter(levels: &LogLevels) -> EnvFilter {
    let level = levels.level.tracing_name();
    EnvFilter::try_from_env("GARRICK_LOG").unwrap_or_else(|_| {
        // Libraries speak up where something is wrong only.
        let library = if matches!(level, "off" | "error") { level } else { "warn" };
        let libraries = ["quinn", "quinn_proto", "rustls", "actix", "tokio", "mio"];
        let mut directives: Vec<String> = libraries.iter().map(|name| format!("{name}={library}")).collect();
        if !matches!(level, "debug" | "trace") {
            directives.extend(levels.flags.targets().map(|target| format!("{target}=debug")));
        }
        EnvFilter::new(format!("{level},{}", directives.join(",")))
    })
}

/// What is in the log of the scheduler: its passes, and the moves of jobs.
fn scheduler_filter(on: bool) -> EnvFilter {
    EnvFilter::new(if on {
        "off,garrick_actors::scheduler=debug,garrick_actors::partition=info,garrick_actors::job=info"
    } else {
        "off"
    })
}

fn syslog_filter(level: LogLevel) -> LevelFilter {
    level.tracing_name().parse().unwrap_or(LevelFilter::OFF)
}

/// Starts logging. Call once, first.
pub fn start(settings: &Settings) -> Result<(), LogError> {
    let sink = Arc::new(Sink::open(settings.file.clone(), settings.follows_file)?);
    let (level, level_handle) = reload::Layer::new(filter(&settings.levels));
    let (syslog_level, syslog_handle) = reload::Layer::new(syslog_filter(settings.levels.syslog));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .event_format(Lines)
        .with_writer(SharedSink(Arc::clone(&sink)))
        .with_filter(level);
    let system = Syslog::new(Path::new(syslog::SOCKET), &settings.name).with_filter(syslog_level);
    let scheduler = Arc::new(SchedulerLog::default());
    scheduler.set_file(settings.scheduler.as_deref());
    let (of_scheduler, scheduler_level) = reload::Layer::new(scheduler_filter(settings.levels.scheduler));
    let moves = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .event_format(Lines)
        .with_writer(SharedSchedulerLog(Arc::clone(&scheduler)))
        .with_filter(of_scheduler);
    let layers: Vec<Box<dyn tracing_subscriber::Layer<Registry> + Send + Sync>> =
        vec![Box::new(lines), Box::new(system), Box::new(moves)];
    // A second start (in tests) keeps the first log.
    if tracing_subscriber::registry().with(layers).try_init().is_ok() {
        let _ = LOG.set(Log {
            sink,
            scheduler: Arc::clone(&scheduler),
            scheduler_level,
            levels: Mutex::new(settings.levels.clone()),
            level: level_handle,
            syslog: syslog_handle,
        });
    }
    if settings.levels.scheduler {
        scheduler.open();
    }
    std::panic::set_hook(Box::new(|info| tracing::error!("panic: {info}")));
    Ok(())
}

/// From now on so much is logged.
pub fn set_levels(levels: &LogLevels) {
    if let Some(log) = LOG.get() {
        *log.levels.lock().unwrap_or_else(PoisonError::into_inner) = levels.clone();
        // It fails when the log is gone, and then nothing is logged.
        let _ = log.level.reload(filter(levels));
        let _ = log.syslog.reload(syslog_filter(levels.syslog));
        if levels.scheduler {
            log.scheduler.open();
        }
        let _ = log.scheduler_level.reload(scheduler_filter(levels.scheduler));
    }
}

/// The file of the scheduler's log from now on; `None`: there is none.
pub fn set_scheduler_file(file: Option<&Path>) {
    if let Some(log) = LOG.get() {
        log.scheduler.set_file(file);
    }
}

/// What an administrator asks for, until the configuration is read again. A level is that of each place that is not quiet
/// (`scontrol(1)`).
pub fn change(change: &LogChange) {
    let Some(log) = LOG.get() else { return };
    let mut levels = log.levels.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match change {
        LogChange::Level(level) => {
            levels.level = *level;
            if levels.syslog != LogLevel::QUIET {
                levels.syslog = *level;
            }
        }
        LogChange::Flags { without, with } => {
            levels.flags.0.retain(|flag| !without.0.contains(flag));
            levels.flags.0.extend(&with.0);
        }
        LogChange::Scheduler(on) => levels.scheduler = *on,
    }
    set_levels(&levels);
    tracing::info!(%change, "the log was changed");
}

/// Opens the log file anew: it may have been moved away. Where that fails the old one is kept.
pub fn reopen() {
    let Some(log) = LOG.get() else { return };
    for sink in [Some(Arc::clone(&log.sink)), log.scheduler.sink()].into_iter().flatten() {
        if let Err(e) = sink.reopen() {
            tracing::error!("{e}; the log goes on in the file that was open");
        }
    }
}

/// Mode of a log that is made; what the process's mask forbids is taken away.
const ANY_MODE: u32 = 0o666;
/// Mode of the scheduler's log: only its owner reads it.
const PRIVATE: u32 = 0o600;

fn open(path: &Path, mode: u32) -> Result<File, LogError> {
    if let Some(parent) = path.parent() {
        let _ = std::fs::create_dir_all(parent);
    }
    let opened = OpenOptions::new().create(true).append(true).mode(mode).open(path);
    opened.map_err(|cause| LogError { path: path.to_owned(), cause })
}

/// Where lines go.
struct Sink {
    path: Option<PathBuf>,
    mode: u32,
    follows: bool,
    /// `None`: standard error.
    file: Mutex<Option<File>>,
}

impl Sink {
    fn open(path: Option<PathBuf>, follows: bool) -> Result<Self, LogError> {
        let file = path.as_deref().map(|path| open(path, ANY_MODE)).transpose()?;
        Ok(Self { path, mode: ANY_MODE, follows, file: Mutex::new(file) })
    }

    fn reopen(&self) -> Result<(), LogError> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = open(path, self.mode)?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        if self.follows && self.was_moved() {
            // Better in the old file than nowhere.
            let _ = self.reopen();
        }
        match &mut *self.file.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(file) => file.write_all(line),
            None => io::stderr().write_all(line),
        }
    }

    fn was_moved(&self) -> bool {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(path), Some(file)) = (&self.path, &*file) else { return false };
        let identity = |about: std::fs::Metadata| (about.dev(), about.ino());
        std::fs::metadata(path).map(identity).ok() != file.metadata().map(identity).ok()
    }
}

/// Where lines of the scheduler's log go. Its file is opened when the log is switched on.
#[derive(Default)]
struct SchedulerLog(Mutex<SchedulerFile>);

#[derive(Default)]
struct SchedulerFile {
    path: Option<PathBuf>,
    /// `None`: it is not open.
    sink: Option<Arc<Sink>>,
}

impl SchedulerLog {
    fn lock(&self) -> MutexGuard<'_, SchedulerFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another file is opened when it is needed.
    fn set_file(&self, path: Option<&Path>) {
        let mut file = self.lock();
        if file.path.as_deref() != path {
            *file = SchedulerFile { path: path.map(Path::to_owned), sink: None };
        }
    }

    fn sink(&self) -> Option<Arc<Sink>> {
        self.lock().sink.clone()
    }

    /// Opens the file where it is not open. Where it cannot be opened, the daemon goes on without this log.
    fn open(&self) {
        let path = {
            let file = self.lock();
            if file.sink.is_some() { None } else { file.path.clone() }
        };
        let Some(path) = path else { return };
        match open(&path, PRIVATE) {
            Ok(file) => {
                let sink = Sink { path: Some(path), mode: PRIVATE, follows: false, file: Mutex::new(Some(file)) };
                self.lock().sink = Some(Arc::new(sink));
            }
            Err(error) => tracing::warn!("{error}: the scheduler has no log"),
        }
    }
}

struct SharedSchedulerLog(Arc<SchedulerLog>);

/// Drops lines where no file is open.
struct SchedulerWriter(Option<Arc<Sink>>);

impl io::Write for SchedulerWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.as_ref().map_or(Ok(()), |sink| sink.write(line)).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'s> MakeWriter<'s> for SharedSchedulerLog {
    type Writer = SchedulerWriter;

    fn make_writer(&'s self) -> SchedulerWriter {
        SchedulerWriter(self.0.sink())
    }
}

struct SharedSink(Arc<Sink>);

struct SinkWriter<'s>(&'s Sink);

impl io::Write for SinkWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write(line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'s> MakeWriter<'s> for SharedSink {
    type Writer = SinkWriter<'s>;

    fn make_writer(&'s self) -> SinkWriter<'s> {
        SinkWriter(&self.0)
    }
}

struct Lines;

/// Writes ` text field=value` of an event.
pub(super) struct Fields<'a>(pub(super) &'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            // Its text is shown as it is written, and may have other users' names in it.
            "message" => write!(self.0, " {}", Visible(format_args!("{value:?}"))),
            // So may what is logged with `%`.
            name => write!(self.0, " {name}={}", Visible(format_args!("{value:?}"))),
        };
    }
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        let _ = match field.name() {
            "message" => write!(self.0, " {}", Visible(value)),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

/// Slurm's word for a level.
pub(super) fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "debug2",
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _cx: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> std::fmt::Result {
        let now = Timestamp::now().text_with_millis(&system_zone());
        write!(out, "[{now}] {}:", word(*event.metadata().level()))?;
        let mut text = String::new();
        event.record(&mut Fields(&mut text));
        writeln!(out, "{text}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_kernel::scratch::Scratch;

    #[test]
    fn a_file_that_was_moved_away_is_opened_anew_when_told_or_at_the_next_line() {
        for follows in [false, true] {
            let dir = Scratch::new("log");
            let (path, old) = (dir.join("d.log"), dir.join("d.log.1"));
            let sink = Sink::open(Some(path.clone()), follows).unwrap();
            sink.write(b"one\n").unwrap();
            std::fs::rename(&path, &old).unwrap();
            if !follows {
                sink.write(b"two\n").unwrap();
                sink.reopen().unwrap();
            }
            sink.write(b"three\n").unwrap();
            let read = |path| std::fs::read_to_string(path).unwrap();
            assert_eq!((read(&old).lines().count(), &*read(&path)), (if follows { 1 } else { 2 }, "three\n"));
        }
    }

    #[test]
    fn the_schedulers_log_is_opened_when_it_is_switched_on_and_for_its_owner_only() {
        let dir = Scratch::new("sched-log");
        let (one, other) = (dir.join("one.log"), dir.join("other.log"));
        let log = SchedulerLog::default();
        log.open();
        log.set_file(Some(&one));
        assert!(log.sink().is_none() && !one.exists());
        let write = |line: &[u8]| io::Write::write(&mut SchedulerWriter(log.sink()), line).unwrap();
        assert_eq!(write(b"lost\n"), 5);
        log.open();
        write(b"first\n");
        log.set_file(Some(&one));
        write(b"second\n");
        log.set_file(Some(&other));
        log.open();
        write(b"third\n");
        let read = |path| std::fs::read_to_string(path).unwrap();
        assert_eq!((&*read(&one), &*read(&other)), ("first\nsecond\n", "third\n"));
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&one).unwrap());
        assert_eq!(mode & 0o077, 0);
        // What cannot be opened is no log.
        log.set_file(Some(dir.path()));
        log.open();
        assert!(log.sink().is_none());
    }

    #[test]
    fn what_others_named_begins_no_line_and_moves_no_cursor() {
        struct Collect(Arc<Mutex<String>>);
        impl<S: Subscriber> tracing_subscriber::Layer<S> for Collect {
            fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
                event.record(&mut Fields(&mut self.0.lock().unwrap()));
            }
        }
        let text = Arc::new(Mutex::new(String::new()));
        let name = "a\nerror: b\u{1b}[2J";
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Collect(Arc::clone(&text))), || {
            tracing::info!(plain = %name, quoted = name, "job {name}");
        });
        let escaped = "a\\nerror: b\\u{1b}[2J";
        assert_eq!(*text.lock().unwrap(), format!(" job {escaped} plain={escaped} quoted=\"{escaped}\""));
    }

    #[test]
    fn libraries_say_no_more_than_the_daemon() {
        let at = |level| LogLevels {
            level,
            syslog: LogLevel::QUIET,
            flags: DebugFlags::of("steps").unwrap().0,
            scheduler: false,
        };
        assert!(filter(&at(LogLevel::QUIET)).to_string().contains("quinn=off"));
        assert!(filter(&at(LogLevel::INFO)).to_string().contains("garrick_stepd=debug"));
        assert!(filter(&at(LogLevel::INFO.louder(3))).to_string().contains("quinn=warn"));
    }
}
