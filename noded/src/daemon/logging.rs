//! The daemons' log: one line an event, `[2026-11-21T10:00:51.123] info: text field=value`, to a file or to standard error.

use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    sync::Mutex,
};
use tracing::{Level, field::Visit};
use tracing_subscriber::{
    EnvFilter,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// The log file could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open log file {path}: {cause}")]
pub struct LogError {
    /// The file.
    pub path: PathBuf,
    /// The system's words.
    pub cause: std::io::Error,
}

/// How much is logged: 0 for operators, then debug, then every message. `GARRICK_LOG` (a filter as `info,quinn=debug`) overrides it.
fn filter(verbosity: u8) -> EnvFilter {
    let level = match verbosity {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    EnvFilter::try_from_env("GARRICK_LOG").unwrap_or_else(|_| {
        EnvFilter::new(format!("{level},quinn=warn,quinn_proto=warn,rustls=warn,actix=warn,tokio=warn,mio=warn"))
    })
}

/// Starts logging to `file`, or to standard error. Call once, first.
pub fn start(file: Option<&Path>, verbosity: u8) -> Result<(), LogError> {
    let target: Box<dyn std::io::Write + Send> = match file {
        Some(path) => Box::new(open(path)?),
        None => Box::new(std::io::stderr()),
    };
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).event_format(Lines).with_writer(Mutex::new(target));
    // A second start (in tests) keeps the first log.
    let _ = tracing_subscriber::registry().with(filter(verbosity)).with(layer).try_init();
    std::panic::set_hook(Box::new(|info| tracing::error!("panic: {info}")));
    Ok(())
}

fn open(path: &Path) -> Result<File, LogError> {
    if let Some(parent) = path.parent() {
        let _ = std::fs::create_dir_all(parent);
    }
    OpenOptions::new().create(true).append(true).open(path).map_err(|cause| LogError { path: path.to_owned(), cause })
}

struct Lines;

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _cx: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> std::fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "debug2",
        };
        let now = jiff::Zoned::now();
        write!(out, "[{}] {level}:", now.strftime("%Y-%m-%dT%H:%M:%S%.3f"))?;
        let mut text = String::new();
        event.record(&mut Fields(&mut text));
        writeln!(out, "{text}")
    }
}
