//! What `sbcast` is asked for: options over variables over the site's `BcastParameters` (sbcast(1), slurm.conf(5)).

use crate::{
    options::table::Arg,
    output::{self, Console},
    query::arguments::{Arguments, Table, option, unsupported},
    submit::{file_sending::Manner, shared_objects},
};
use garrick_model::config::Config;
use std::{path::PathBuf, time::Duration};

pub(crate) static TABLE: Table = Table {
    program: "sbcast",
    purpose: "Send a file to the nodes of a job: each gets a copy that belongs to the job's user.",
    operands: "SOURCE DEST",
    words: &[],
    options: &[
        option("compress", Some('C'), Arg::Optional("lz4|none"), "pack the file on its way"),
        option("exclude", None, Arg::Required("NONE|paths"), "folders whose shared objects are not sent"),
        option("fanout", None, Arg::Required("number"), "the same as --treewidth"),
        option("force", Some('f'), Arg::None, "replace a file that is there"),
        option("help", None, Arg::None, "show this help"),
        option("jobid", Some('j'), Arg::Required("job[+offset][.step]"), "nodes of this job, component or step"),
        unsupported("no-allocation", Some('Z'), Arg::None, "nodes without a job"),
        option("nodelist", Some('w'), Arg::Required("nodes"), "only these nodes of it"),
        option("preserve", Some('p'), Arg::None, "keep the times of access and modification"),
        option("send-libs", None, Arg::Optional("yes|no"), "send the shared objects that a program needs, too"),
        option("size", Some('s'), Arg::Required("bytes"), "send this much at a time: a number, with k or m"),
        option("timeout", Some('t'), Arg::Required("seconds"), "longest that nothing may happen"),
        option("treewidth", Some('F'), Arg::Required("number|off"), "to how many others a node sends it"),
        option("verbose", Some('v'), Arg::None, "more messages"),
    ],
    misuse: 1,
};

/// Bytes sent at a time where nothing else is asked for (sbcast(1)).
const BLOCK_BYTES: u32 = 8 << 20;
/// `off`, as Slurm counts it.
const NO_TREE: u32 = 65533;

/// Settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes sent at a time; 0: as many as fit.
    pub block_bytes: u32,
    /// Packed with LZ4.
    pub packed: bool,
    /// Text of the folders whose shared objects are not sent.
    pub exclude: String,
    /// A file that is there is replaced.
    pub force: bool,
    /// As typed; 0: the default.
    pub width: u32,
    /// Times stay.
    pub preserve: bool,
    /// Shared objects are sent too.
    pub send_libs: bool,
    /// As typed, seconds; 0: the default.
    pub timeout_secs: u32,
}

/// A line that is said, and whether it is an error with the program's name in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// `sbcast: error: text`.
    Error(String),
    /// The text alone.
    Bare(String),
}

impl Remark {
    /// Says it.
    pub fn tell(&self, console: &Console) {
        match self {
            Self::Error(text) => console.error(text),
            Self::Bare(text) => output::stderr(format!("{text}\n").as_bytes()),
        }
    }
}

/// Where files go that are not named in full, if the site says so: `BcastParameters=DestDir=`.
pub fn dest_dir(config: Option<&Config>) -> Option<PathBuf> {
    config.and_then(|config| config.bcast_parameters.value("DestDir")).map(PathBuf::from)
}

impl Settings {
    /// Defaults of the site; `config` is there where its file can be read.
    pub fn of_site(config: Option<&Config>) -> Self {
        let parameters = config.map(|config| &config.bcast_parameters);
        let value = |name: &str| parameters.and_then(|p| p.value(name));
        let folders = config.map(|config| match config.bcast_exclude.0.as_slice() {
            [] => "NONE".to_owned(),
            folders => folders.join(","),
        });
        Self {
            block_bytes: BLOCK_BYTES,
            packed: value("Compression").is_some_and(|name| name.eq_ignore_ascii_case("lz4")),
            exclude: folders.unwrap_or_else(|| "/lib,/usr/lib,/lib64,/usr/lib64".to_owned()),
            force: false,
            width: 0,
            preserve: false,
            send_libs: parameters.is_some_and(|p| p.has("send_libs") || value("send_libs") == Some("yes")),
            timeout_secs: 0,
        }
    }

    /// Lays the variables and then the options over them.
    pub fn laid_over(
        mut self,
        variable: impl Fn(&str) -> Option<String>,
        arguments: &Arguments,
        remarks: &mut Vec<Remark>,
    ) -> Self {
        if let Some(text) = variable("SBCAST_COMPRESS") {
            self.packed = compression(Some(&text), remarks);
        }
        if let Some(text) = variable("SBCAST_EXCLUDE") {
            self.exclude = text;
        }
        if let Some(text) = variable("SBCAST_FANOUT") {
            self.width = width(&text);
        }
        self.force |= variable("SBCAST_FORCE").is_some();
        self.preserve |= variable("SBCAST_PRESERVE").is_some();
        if let Some(text) = variable("SBCAST_SEND_LIBS") {
            self.send_libs = yes_or_no(&text, "SBCAST_SEND_LIBS", self.send_libs, remarks);
        }
        if let Some(text) = variable("SBCAST_SIZE") {
            self.block_bytes = block(&text, remarks);
        }
        if let Some(text) = variable("SBCAST_TIMEOUT") {
            self.timeout_secs = leading_number(&text);
        }
        for given in &arguments.options {
            let text = given.value.as_ref().map(|value| value.to_string_lossy().into_owned());
            let value = text.as_deref().unwrap_or_default();
            match given.def.long {
                "compress" => self.packed = compression(text.as_deref(), remarks),
                "exclude" => self.exclude = value.to_owned(),
                "fanout" | "treewidth" => self.width = width(value),
                "force" => self.force = true,
                "preserve" => self.preserve = true,
                "send-libs" => {
                    self.send_libs = text.is_none() || yes_or_no(value, "--send-libs", self.send_libs, remarks);
                }
                "size" => self.block_bytes = block(value, remarks),
                "timeout" => self.timeout_secs = leading_number(value),
                _ => {}
            }
        }
        self
    }

    /// Folders whose shared objects are not sent.
    pub fn excluded(&self) -> Vec<String> {
        shared_objects::excluded(&self.exclude)
    }

    /// Most children of a node in the tree; 0: no tree.
    pub fn tree_width(&self) -> u16 {
        use garrick_model::messages::files::{MOST_WIDTH, WIDTH};
        match self.width {
            0 => WIDTH,
            NO_TREE => 0,
            width => u16::try_from(width).unwrap_or(MOST_WIDTH).min(MOST_WIDTH),
        }
    }

    /// How a file is sent.
    pub fn manner(&self, config: Option<&Config>) -> Manner {
        Manner { packed: self.packed, block_bytes: self.block_bytes, limit: self.limit(config) }
    }

    /// Longest that nothing may happen.
    fn limit(&self, config: Option<&Config>) -> Duration {
        let secs = match self.timeout_secs {
            0 => config.map_or(10, |config| config.message_timeout_secs).max(LEAST_SECS),
            secs => secs,
        };
        Duration::from_secs(secs.into())
    }
}

/// What a node may take to have a part on its disk where nothing is said: longer than for a message, since many share a disk.
const LEAST_SECS: u32 = 60;

/// Whether a file is packed.
pub fn compression(text: Option<&str>, remarks: &mut Vec<Remark>) -> bool {
    match text {
        None => true,
        Some(name) if name.eq_ignore_ascii_case("lz4") => true,
        Some(name) if name.eq_ignore_ascii_case("none") => false,
        Some(name) => {
            let text = format!("Compression type '{name}' unknown, disabling compression support.");
            remarks.push(Remark::Error(text));
            false
        }
    }
}

fn yes_or_no(text: &str, what: &str, before: bool, remarks: &mut Vec<Remark>) -> bool {
    match text.to_ascii_lowercase().as_str() {
        "yes" => true,
        "no" => false,
        _ => {
            remarks.push(Remark::Error(format!("Ignoring unrecognized {what} value '{text}'")));
            before
        }
    }
}

/// As `atoi(3)`.
fn leading_number(text: &str) -> u32 {
    let digits = text.trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

fn width(text: &str) -> u32 {
    if text.eq_ignore_ascii_case("off") { NO_TREE } else { leading_number(text) }
}

/// A number with `k` or `m`.
fn block(text: &str, remarks: &mut Vec<Remark>) -> u32 {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    match digits.parse::<u32>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(bytes) => bytes,
        None => {
            remarks.push(Remark::Bare("size specification is invalid, ignored".to_owned()));
            0
        }
    }
}

#[cfg(test)]
#[path = "file_settings_test.rs"]
mod tests;
