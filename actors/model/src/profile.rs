//! Time series of what tasks and nodes use while steps run: `--profile` of srun(1), `AcctGatherProfileType` of slurm.conf(5) and
//! acct_gather.conf(5). A series is a set of [`Dataset`]s that are sampled together, and a [`Point`] is one value of one of them.

use crate::sampling::Periods;
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};

/// What is sampled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Series {
    /// Power and energy of the node.
    Energy,
    /// What the node reads from Lustre and writes there.
    Filesystem,
    /// What the node sends and receives.
    Network,
    /// What each task uses.
    Task,
}

impl Series {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Energy, Self::Filesystem, Self::Network, Self::Task];

    /// The words of `--profile` (srun(1)), the usual one first. Data parsers and older manuals call file systems `lustre`.
    const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Energy => &["Energy"],
            Self::Filesystem => &["Filesystem", "Lustre"],
            Self::Network => &["Network"],
            Self::Task => &["Task"],
        }
    }

    /// Its name: `Energy`.
    pub const fn name(self) -> &'static str {
        self.words()[0]
    }

    /// The word of data parser v0.0.45.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Energy => "ENERGY",
            Self::Filesystem => "LUSTRE",
            Self::Network => "NETWORK",
            Self::Task => "TASK",
        }
    }

    /// Of a word, in any case.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|series| series.words().iter().any(|known| known.eq_ignore_ascii_case(word)))
    }
}

impl Periods {
    /// That of a series.
    pub const fn of(&self, series: Series) -> Option<u32> {
        match series {
            Series::Energy => self.energy,
            Series::Filesystem => self.filesystem,
            Series::Network => self.network,
            Series::Task => self.task,
        }
    }
}

/// Which series are collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Series>", into = "Vec<Series>")]
pub struct SeriesSet(u8);

impl SeriesSet {
    /// Reads `all`, `none`, or a list of series, in any case. Of other words in a list nothing is said, as long as there is one that
    /// is known (seen in 26.05.3). `all` and `none` stand alone (srun(1)).
    pub fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "none" => return Some(Self::default()),
            "all" => return Some(Self::all()),
            _ => {}
        }
        let alone = |word: &str| word.eq_ignore_ascii_case("all") || word.eq_ignore_ascii_case("none");
        let series: Vec<Series> = text.split(',').filter_map(Series::of).collect();
        (!series.is_empty() && !text.split(',').any(alone)).then(|| series.into())
    }

    /// Every series.
    pub fn all() -> Self {
        Series::ALL.to_vec().into()
    }

    /// None.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Is it one of them?
    pub const fn has(self, series: Series) -> bool {
        self.0 & (1 << series as u8) != 0
    }

    /// Those that are in both.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// In the order of [`Series::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Series> {
        Series::ALL.into_iter().filter(move |series| self.has(*series))
    }
}

impl From<Vec<Series>> for SeriesSet {
    fn from(series: Vec<Series>) -> Self {
        Self(series.into_iter().fold(0, |bits, one| bits | 1 << one as u8))
    }
}

impl From<SeriesSet> for Vec<Series> {
    fn from(set: SeriesSet) -> Self {
        set.iter().collect()
    }
}

/// `All`, `None`, or their names with commas between them.
impl fmt::Display for SeriesSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::all() {
            return f.write_str("All");
        }
        if self.is_empty() {
            return f.write_str("None");
        }
        f.write_str(&self.iter().map(Series::name).collect::<Vec<_>>().join(","))
    }
}

/// What a job or a step says of its time series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Profiling {
    /// `--profile`; `None`: not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesSet>,
    /// `--acctg-freq`, but of tasks.
    #[serde(skip_serializing_if = "Periods::is_default")]
    pub periods: Periods,
}

impl Profiling {
    /// Nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What a step of a job says, and what it does not say, the job.
    #[must_use]
    pub fn or(self, job: Self) -> Self {
        Self { series: self.series.or(job.series), periods: self.periods.or(job.periods) }
    }
}

/// Where time series go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProfileTo {
    /// Files below this folder: `FOLDER/USER/JOB_STEP_NODE.lp`, of Influx's line protocol.
    Files(PathBuf),
    /// A server that takes Influx's line protocol over HTTP.
    Influx(InfluxServer),
}

/// The server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InfluxServer {
    /// Where it is: a URL without a path.
    pub url: String,
    /// Database, or bucket.
    pub database: String,
    /// Retention policy.
    pub policy: Option<String>,
    /// User.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// Seconds between requests while steps run.
    pub every_secs: u32,
    /// How long a request may take, seconds.
    pub timeout_secs: u32,
}

/// Without the password.
impl fmt::Debug for InfluxServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InfluxServer").field("url", &self.url).field("database", &self.database).finish_non_exhaustive()
    }
}

/// How the site collects time series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileSettings {
    /// Where they go.
    pub to: ProfileTo,
    /// Which are collected of steps that do not say it.
    pub usual: SeriesSet,
    /// Which can be collected on a node of the site.
    pub there: SeriesSet,
    /// How often, of steps that do not say it. What is not said here either is sampled as often as tasks.
    pub periods: Periods,
    /// Network interfaces that count; empty: all but the one of the host with itself.
    pub interfaces: Vec<String>,
}

/// What a value is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dataset {
    /// Task: frequency of the CPU that it ran on last, kHz.
    CpuFrequency,
    /// Task: CPU time since it began, seconds.
    CpuTime,
    /// Task: CPU time since the sample before, percent of one CPU.
    CpuUtilization,
    /// Task: memory on GPUs, MiB.
    GpuMemMb,
    /// Task: use of GPUs, percent of one.
    GpuUtilization,
    /// Task: resident set, KiB.
    Rss,
    /// Task: virtual memory, KiB.
    VmSize,
    /// Task: page faults that read from a disk, since it began.
    Pages,
    /// Task, file system: read since the task or step began, MiB.
    ReadMb,
    /// Task, file system: written since then, MiB.
    WriteMb,
    /// Energy: mean power of the node since the sample before, watts.
    Power,
    /// Energy: of the node since the step began there, joules.
    Energy,
    /// File system: reads since the step began.
    Reads,
    /// File system: writes since the step began.
    Writes,
    /// Network: packets received since the step began.
    PacketsIn,
    /// Network: packets sent since the step began.
    PacketsOut,
    /// Network: received since the step began, MiB.
    InMb,
    /// Network: sent since the step began, MiB.
    OutMb,
}

impl Dataset {
    /// All, in the order of columns.
    pub const ALL: [Self; 18] = [
        Self::CpuFrequency,
        Self::CpuTime,
        Self::CpuUtilization,
        Self::GpuMemMb,
        Self::GpuUtilization,
        Self::Rss,
        Self::VmSize,
        Self::Pages,
        Self::ReadMb,
        Self::WriteMb,
        Self::Power,
        Self::Energy,
        Self::Reads,
        Self::Writes,
        Self::PacketsIn,
        Self::PacketsOut,
        Self::InMb,
        Self::OutMb,
    ];

    /// Its name, as acct_gather.conf(5) and sh5util(1) spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CpuFrequency => "CPUFrequency",
            Self::CpuTime => "CPUTime",
            Self::CpuUtilization => "CPUUtilization",
            Self::GpuMemMb => "GPUMemMB",
            Self::GpuUtilization => "GPUUtilization",
            Self::Rss => "RSS",
            Self::VmSize => "VMSize",
            Self::Pages => "Pages",
            Self::ReadMb => "ReadMB",
            Self::WriteMb => "WriteMB",
            Self::Power => "Power",
            Self::Energy => "Energy",
            Self::Reads => "Reads",
            Self::Writes => "Writes",
            Self::PacketsIn => "PacketsIn",
            Self::PacketsOut => "PacketsOut",
            Self::InMb => "InMB",
            Self::OutMb => "OutMB",
        }
    }

    /// Of a name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dataset| dataset.name() == name)
    }
}

/// A value at a time. As text it is a line of Influx's line protocol:
/// `RSS,job=7,step=0,series=Task,task=1,host=n1 value=1564 1795868431000000000`.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What it is of.
    pub dataset: Dataset,
    /// Of which series.
    pub series: Series,
    /// Job.
    pub job: u32,
    /// Step: `0`, `batch`, `3_17`.
    pub step: String,
    /// Rank of the task; `None`: it is of the node.
    pub task: Option<u32>,
    /// Node.
    pub node: String,
    /// How much, in the unit of the dataset.
    pub value: f64,
    /// When, milliseconds since the Unix epoch. Lines have nanoseconds, as is usual there.
    pub at_ms: i64,
}

/// Nanoseconds in a millisecond.
const NANOS: i64 = 1_000_000;
/// The first time with as many digits as those of now, nanoseconds: in 2001.
const LEAST_TIME: i64 = 1_000_000_000_000_000_000;

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dataset, series, job, step, task, node, value, at_ms } = self;
        write!(f, "{},job={job},step={step},series={}", dataset.name(), series.name())?;
        if let Some(task) = task {
            write!(f, ",task={task}")?;
        }
        // Three digits are enough for each of the units. Neither names of nodes nor of steps have characters that would have to be
        // escaped.
        let value = (value * 1000.0).round() / 1000.0;
        write!(f, ",host={node} value={value} {}", at_ms.saturating_mul(NANOS))
    }
}

impl Point {
    /// Reads a line as it was written here. `None`: it is none, or a part of one.
    pub fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (key, field, time) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() {
            return None;
        }
        let mut tags = key.split(',');
        let dataset = Dataset::of(tags.next()?)?;
        let (mut job, mut step, mut series, mut task, mut node) = (None, None, None, None, None);
        for tag in tags {
            match tag.split_once('=')? {
                ("job", text) => job = Some(text.parse().ok()?),
                ("step", text) => step = Some(text.to_owned()),
                ("series", text) => series = Some(Series::of(text)?),
                ("task", text) => task = Some(text.parse().ok()?),
                ("host", text) => node = Some(text.to_owned()),
                _ => return None,
            }
        }
        let value: f64 = field.strip_prefix("value=")?.parse().ok()?;
        // A shorter number is one that was cut.
        let nanos: i64 = time.parse().ok().filter(|nanos| *nanos >= LEAST_TIME)?;
        let at_ms = nanos / NANOS;
        let (job, step, series, node) = (job?, step?, series?, node?);
        value.is_finite().then_some(Self { dataset, series, job, step, task, node, value, at_ms })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_list_names_series_and_all_and_none_stand_alone() {
        let read = |text| SeriesSet::parse(text).map(|set| set.to_string());
        for (text, wanted) in [
            ("task", "Task"),
            ("TASK,energy,task", "Energy,Task"),
            ("all", "All"),
            ("None", "None"),
            ("lustre", "Filesystem"),
            ("filesystem,network", "Filesystem,Network"),
            ("task,foo", "Task"),
            ("energy,filesystem,network,task", "All"),
        ] {
            assert_eq!(read(text).as_deref(), Some(wanted), "{text}");
        }
        for wrong in ["", "foo", "all,task", "none,energy", "none,all"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let set = SeriesSet::parse("task,network").unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Series::Network, Series::Task]);
        assert_eq!(serde_json::to_string(&set).unwrap(), r#"["Network","Task"]"#);
        assert_eq!(serde_json::from_str::<SeriesSet>(r#"["Task","Network"]"#).unwrap(), set);
        assert_eq!(set.both(SeriesSet::parse("task,energy").unwrap()).to_string(), "Task");
    }

    #[test]
    fn what_a_step_does_not_say_the_job_does() {
        let said = |series: &str, energy| Profiling {
            series: SeriesSet::parse(series),
            periods: Periods { energy, ..Periods::default() },
        };
        let job = said("task", Some(5));
        assert_eq!(Profiling::default().or(job), job);
        assert_eq!(said("none", None).or(job), said("none", Some(5)));
    }

    #[test]
    fn a_line_reads_back_and_a_part_of_one_does_not() {
        let point = Point {
            dataset: Dataset::CpuTime,
            series: Series::Task,
            job: 7,
            step: "3_17".to_owned(),
            task: Some(2),
            node: "n1".to_owned(),
            value: 1.23449,
            at_ms: 1_795_868_431_250,
        };
        let line = point.to_string();
        assert_eq!(line, "CPUTime,job=7,step=3_17,series=Task,task=2,host=n1 value=1.234 1795868431250000000");
        assert_eq!(Point::read(&line), Some(Point { value: 1.234, ..point.clone() }));
        let of_node = Point { task: None, value: 7.0, dataset: Dataset::Power, series: Series::Energy, ..point };
        assert_eq!(of_node.to_string(), "Power,job=7,step=3_17,series=Energy,host=n1 value=7 1795868431250000000");
        assert_eq!(Point::read(&of_node.to_string()), Some(of_node));
        for cut in 0..line.len() {
            assert_eq!(Point::read(&line[..cut]), None, "{}", &line[..cut]);
        }
        for wrong in
            ["", "# comment", &line.replace("value", "valu"), &line.replace("1.234", "nan"), &format!("{line} 5")]
        {
            assert_eq!(Point::read(wrong), None, "{wrong}");
        }
    }
}
