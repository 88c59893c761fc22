//! `garrick profile`: joins the files in which time series of a job are recorded.

use super::{
    arguments::{self, Arguments, Outcome, Table, option},
    choices,
};
use crate::{
    options::table::Arg,
    output::{self, Console},
};
use garrick_asking::cluster::Cluster;
use garrick_model::{
    config,
    hostlist::HostList,
    profile::{Dataset, Point, ProfileTo, SeriesSet},
    time::{Timestamp, system_zone},
};
use jiff::tz::TimeZone;
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    io::{self, BufRead as _, BufReader, Write},
    path::{Path, PathBuf},
};

pub(crate) static TABLE: Table = Table {
    program: "garrick profile",
    purpose: "Print the time series of jobs (sbatch --profile), of all steps and nodes in the order of time.\n\
              They are lines of Influx's line protocol, from the files below ProfileHDF5Dir of acct_gather.conf.",
    operands: "JOB[.STEP]...",
    words: &[],
    options: &[
        option("series", Some('s'), Arg::Required("LIST"), "only these: energy,filesystem,network,task"),
        option("node", Some('N'), Arg::Required("NODES"), "only of these nodes"),
        option("csv", None, Arg::None, "a row of comma-separated values for each sample"),
        option("profiledir", Some('p'), Arg::Required("DIR"), "instead of ProfileHDF5Dir"),
        option("user", Some('u'), Arg::Required("NAME"), "whose jobs they are; your own unless given"),
    ],
    misuse: 1,
};

/// What is asked for.
struct Request {
    /// Jobs, and a step of each; `None`: all.
    jobs: Vec<(u32, Option<String>)>,
    series: Option<SeriesSet>,
    nodes: Option<HostList>,
    csv: bool,
}

impl Request {
    fn read(arguments: &Arguments) -> Result<Self, String> {
        let words = arguments.words();
        if words.is_empty() {
            return Err("name a job".to_owned());
        }
        let jobs = words.iter().map(|word| {
            let (job, step) =
                word.split_once('.').map_or((word.as_str(), None), |(job, step)| (job, Some(step.to_owned())));
            Ok((job.parse().map_err(|_| format!("\"{word}\" is not a job"))?, step))
        });
        let series = arguments.value("series").map(|text| {
            SeriesSet::parse(&text)
                .filter(|set| !set.is_empty())
                .ok_or_else(|| format!("there is no series \"{text}\""))
        });
        let nodes = arguments.value("node").map(|text| text.parse::<HostList>().map_err(|error| error.to_string()));
        Ok(Self {
            jobs: jobs.collect::<Result<_, String>>()?,
            series: series.transpose()?,
            nodes: nodes.transpose()?,
            csv: arguments.has("csv"),
        })
    }

    /// Is it wanted?
    fn wants(&self, point: &Point) -> bool {
        let named = |(job, step): &(u32, Option<String>)| {
            *job == point.job && step.as_ref().is_none_or(|step| *step == point.step)
        };
        self.jobs.iter().any(named)
            && self.series.is_none_or(|series| series.has(point.series))
            && self.nodes.as_ref().is_none_or(|nodes| nodes.contains(&point.node))
    }
}

/// Runs `garrick profile`. Returns its exit code.
pub fn main(args: &[OsString], console: &Console) -> i32 {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    let request = match Request::read(&arguments) {
        Ok(request) => request,
        Err(text) => {
            console.error(text);
            output::stderr(format!("Try \"{} --help\" for more information\n", TABLE.program).as_bytes());
            return TABLE.misuse;
        }
    };
    let found = folder(&arguments).and_then(|folder| find(&request, &folder, &mut |text| console.warning(text)));
    match found {
        Ok(points) => {
            let zone = system_zone();
            let written =
                output::stdout(|out| if request.csv { rows(&points, &zone, out) } else { lines(&points, out) });
            output::finish(console, written, 0)
        }
        Err(text) => {
            text.lines().for_each(|line| console.error(line));
            1
        }
    }
}

/// The folder of the user's files.
fn folder(arguments: &Arguments) -> Result<PathBuf, String> {
    let user = arguments.value("user").unwrap_or_else(|| choices::user_name(nix::unistd::Uid::current().as_raw()));
    if user.is_empty() || user.contains('/') || user.starts_with('.') {
        return Err(format!("\"{user}\" is not a user"));
    }
    let folder = match arguments.value("profiledir") {
        Some(folder) => folder.into(),
        None => of_site()?,
    };
    Ok(folder.join(user))
}

/// `ProfileHDF5Dir`.
fn of_site() -> Result<PathBuf, String> {
    let cluster = Cluster::find(None).map_err(|error| error.to_string())?;
    let (config, report) = config::read_reporting(cluster.conf());
    let Some(config) = config else {
        let said: Vec<String> = report.errors().map(ToString::to_string).collect();
        return Err(format!("{}\nname the folder with --profiledir", said.join("\n")));
    };
    match config.gathering.profile().map(|settings| settings.to) {
        Some(ProfileTo::Files(folder)) => Ok(folder),
        Some(ProfileTo::Influx(server)) => {
            Err(format!("time series are not in files here: they are sent to {} (AcctGatherProfileType)", server.url))
        }
        None => {
            Err("no time series are recorded here (AcctGatherProfileType); name a folder with --profiledir".to_owned())
        }
    }
}

/// What is wanted of the files of this folder, in the order of time.
fn find(request: &Request, folder: &Path, warn: &mut dyn FnMut(String)) -> Result<Vec<Point>, String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| format!("{path}: {error}")
    };
    let mut points = Vec::new();
    let mut names: Vec<OsString> = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let name = entry.map_err(failed(folder))?.file_name();
        let text = name.to_string_lossy();
        let is_of = |(job, _): &(u32, Option<String>)| text.starts_with(&format!("{job}_"));
        if text.ends_with(".lp") && request.jobs.iter().any(is_of) {
            names.push(name);
        }
    }
    names.sort();
    for name in names {
        let path = folder.join(name);
        let mut unreadable = 0;
        for line in BufReader::new(fs::File::open(&path).map_err(failed(&path))?).split(b'\n') {
            let line = line.map_err(failed(&path))?;
            match std::str::from_utf8(&line).ok().and_then(Point::read) {
                Some(point) if request.wants(&point) => points.push(point),
                Some(_) => {}
                None => unreadable += usize::from(!line.is_empty()),
            }
        }
        if unreadable > 0 {
            let lines = if unreadable == 1 { "1 line is" } else { &format!("{unreadable} lines are") };
            warn(format!("{}: {lines} left out: cut, or of something else", path.display()));
        }
    }
    if points.is_empty() {
        let jobs: Vec<String> = request.jobs.iter().map(|(job, _)| job.to_string()).collect();
        return Err(format!("nothing of that is recorded of job {} in {}", jobs.join(", "), folder.display()));
    }
    // Those of one time stay in the order of their files.
    points.sort_by_key(|point| point.at_ms);
    Ok(points)
}

fn lines(points: &[Point], out: &mut dyn Write) -> io::Result<()> {
    points.iter().try_for_each(|point| writeln!(out, "{point}"))
}

/// A row for each sample, with a column for each dataset that occurs.
fn rows(points: &[Point], zone: &TimeZone, out: &mut dyn Write) -> io::Result<()> {
    let columns: BTreeSet<Dataset> = points.iter().map(|point| point.dataset).collect();
    let mut samples: BTreeMap<_, BTreeMap<Dataset, f64>> = BTreeMap::new();
    for point in points {
        let sample = (point.at_ms, point.job, &point.step, &point.node, point.series, point.task);
        samples.entry(sample).or_default().insert(point.dataset, point.value);
    }
    write!(out, "Time,Job,Step,Node,Series,Task")?;
    columns.iter().try_for_each(|column| write!(out, ",{}", column.name()))?;
    writeln!(out)?;
    for ((at_ms, job, step, node, series, task), values) in samples {
        let time = Timestamp(at_ms).text_with_millis(zone);
        let task = task.map(|task| task.to_string()).unwrap_or_default();
        write!(out, "{time},{job},{step},{node},{},{task}", series.name())?;
        for column in &columns {
            match values.get(column) {
                Some(value) => write!(out, ",{value}")?,
                None => write!(out, ",")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::profile::Series;

    fn point(dataset: Dataset, node: &str, task: Option<u32>, value: f64, at_ms: i64) -> Point {
        let series = if task.is_some() { Series::Task } else { Series::Energy };
        Point { dataset, series, job: 7, step: "0".to_owned(), task, node: node.to_owned(), value, at_ms }
    }

    fn request(series: Option<&str>) -> Request {
        let series = series.map(|text| SeriesSet::parse(text).unwrap());
        Request { jobs: vec![(7, None)], series, nodes: None, csv: false }
    }

    const AT: i64 = 1_795_868_431_000;

    #[test]
    fn files_of_a_job_are_joined_in_the_order_of_time_and_cut_lines_are_left_out() {
        let folder = std::env::temp_dir().join(format!("garrick-profile-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (first, second) =
            (point(Dataset::Rss, "n1", Some(0), 5.0, AT), point(Dataset::Rss, "n1", Some(0), 7.0, AT + 2000));
        let between = point(Dataset::Power, "n2", None, 95.5, AT + 1000);
        let half = &second.to_string()[..30];
        fs::write(folder.join("7_0_n1.lp"), format!("{first}\n{half}\n{second}\n{half}")).unwrap();
        fs::write(folder.join("7_0_n2.lp"), format!("{between}\n")).unwrap();
        fs::write(folder.join("77_0_n2.lp"), format!("{between}\n")).unwrap();
        let mut said = Vec::new();
        let found = find(&request(None), &folder, &mut |text| said.push(text)).unwrap();
        assert_eq!(found, [first.clone(), between, second.clone()]);
        assert!(matches!(&said[..], [one] if one.contains("7_0_n1.lp: 2 lines are left out")), "{said:?}");
        assert_eq!(find(&request(Some("task")), &folder, &mut |_| {}).unwrap(), [first, second]);
        assert!(find(&request(Some("network")), &folder, &mut |_| {}).unwrap_err().contains("job 7"));
        fs::remove_dir_all(&folder).unwrap();
        assert!(find(&request(None), &folder, &mut |_| {}).is_err());
    }

    #[test]
    fn a_sample_is_a_row() {
        let points = [
            point(Dataset::CpuTime, "n1", Some(1), 0.25, AT),
            point(Dataset::Rss, "n1", Some(1), 1564.0, AT),
            point(Dataset::Power, "n1", None, 95.5, AT + 250),
        ];
        let mut out = Vec::new();
        rows(&points, &TimeZone::UTC, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let wanted = "Time,Job,Step,Node,Series,Task,CPUTime,RSS,Power\n\
                      2026-11-28T12:20:31.000,7,0,n1,Task,1,0.25,1564,\n\
                      2026-11-28T12:20:31.250,7,0,n1,Energy,,,,95.5\n";
        assert_eq!(text, wanted);
    }
}
