//! `sbcast`: sends a file to the nodes of a job. The job's step manager takes it and hands it on.
//!
//! | module | what it is |
//! |---|---|
//! | [`target`] | whose nodes |

pub mod target;

use crate::{
    output::Console,
    query::arguments::{self, Arguments, Outcome},
    submit::{
        file_sending::{self, Sent, Unsent},
        file_settings::{self, Settings, TABLE},
        shared_objects, startup,
    },
};
use garrick_asking::{
    cluster::{Cluster, ClusterError},
    manager::Way,
    search::{Search, Until},
};
use garrick_model::{
    config::Config,
    hostlist::{self, HostList},
    messages::files::{FileOrder, FileRequest},
    refusal::Refusal,
};
use jiff::{Timestamp, fmt::strtime, tz::TimeZone};
use std::{
    env,
    ffi::OsString,
    fs::{File, Metadata},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};
use target::{Named, Target, lookup_error};

/// Exit code where there is no such job or file, as Slurm's -1.
const NOT_FOUND: i32 = 255;

/// Runs `sbcast`; `args` are without the program's name. Returns the exit code: that of the system's error where a node could not
/// write the file, as in Slurm.
pub fn main(args: Vec<OsString>) -> i32 {
    let mut console = Console::new("sbcast");
    let arguments = match arguments::read(&TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    console.set_verbosity(arguments::verbosity(&arguments));
    run(&arguments, &console).map_or_else(|code| code, |()| 0)
}

fn run(arguments: &Arguments, console: &Console) -> Result<(), i32> {
    let cluster = Cluster::find(None).ok();
    let config = cluster.as_ref().map(Cluster::config);
    let mut remarks = Vec::new();
    let settings = Settings::of_site(config).laid_over(|name| env::var(name).ok(), arguments, &mut remarks);
    remarks.iter().for_each(|remark| remark.tell(console));
    let (source, dest, named, nodes) = operands(arguments, console)?;
    let to = destination(&dest, config);
    tell_settings(&settings, arguments, &source, &to, console);
    let failed = |text: String| {
        console.error(text);
        startup::exit_code(NOT_FOUND)
    };
    let open = |path: &Path| File::open(path).and_then(|file| file.metadata().map(|found| (file, found)));
    let (_, found) = open(&source).map_err(|e| failed(format!("Can't open `{}`: {e}", source.display())))?;
    tell_file(&found, console);
    if !found.is_file() {
        return Err(failed(format!("Can't mmap file `{}`, No such device.", source.display())));
    }
    let mut files = vec![(source.clone(), file_sending::order(&to, &found, settings.force, settings.preserve))];
    if settings.send_libs {
        files.extend(objects(&source, &to, &settings));
    }
    let targets = named.targets(console).map_err(|(text, code)| {
        console.error(text);
        startup::exit_code(code)
    })?;
    let sending = Sending { settings: &settings, nodes: &nodes, config, console };
    let several = targets.len() > 1;
    for target in &targets {
        for (from, order) in &files {
            sending
                .send(target, from, order.clone())
                .inspect_err(|_| {
                    if several {
                        console.error(format_args!("Failed to broadcast to JobId={} nodes", named.text));
                    }
                })
                .map_err(|code| if several { 1 } else { code })?;
        }
    }
    Ok(())
}

/// Source, destination, job and nodes.
fn operands(arguments: &Arguments, console: &Console) -> Result<(PathBuf, PathBuf, Named, Vec<String>), i32> {
    let wrong = |text: &str| {
        console.error(text);
        startup::exit_code(1)
    };
    let [source, dest] = arguments.operands.as_slice() else {
        let count = arguments.operands.len();
        let text = format!("Need two file names, have {count} names\nTry \"sbcast --help\" for more information\n");
        crate::output::stderr(text.as_bytes());
        return Err(startup::exit_code(1));
    };
    let named = match arguments.value("jobid") {
        Some(text) => Named::parse(&text).map_err(|why| {
            console.fatal(format_args!("Bad job/step specified: {text}: {why}"));
            startup::exit_code(1)
        })?,
        None => Named::around(|name| env::var(name).ok()).ok_or_else(|| {
            wrong("Need a job id to run this command.  Run from within a Slurm job or use the --jobid option.")
        })?,
    };
    if dest.to_string_lossy().ends_with('/') {
        return Err(wrong("Target filename cannot be a directory."));
    }
    let nodes = match arguments.value("nodelist") {
        None => Vec::new(),
        Some(text) => {
            let list: HostList = text.parse().map_err(|_| wrong(&format!("Invalid node list: {text}")))?;
            list.iter().collect()
        }
    };
    Ok((source.into(), dest.into(), named, nodes))
}

/// Where a file goes on each node: one that is not named in full is put where the site says, else where this process is.
fn destination(dest: &Path, config: Option<&Config>) -> PathBuf {
    let folder = file_settings::dest_dir(config).or_else(|| env::current_dir().ok()).unwrap_or_else(|| "/".into());
    folder.join(dest)
}

/// The shared objects of a program, beside where it goes.
fn objects(source: &Path, to: &Path, settings: &Settings) -> Vec<(PathBuf, FileOrder)> {
    let folder = shared_objects::folder_of(to);
    let order = |path: PathBuf| {
        let found = path.metadata().ok()?;
        let to = folder.join(path.file_name()?);
        let order = file_sending::order(&to, &found, settings.force, settings.preserve);
        Some((path, FileOrder { folders: true, ..order }))
    };
    shared_objects::needed(source, &settings.excluded()).into_iter().filter_map(order).collect()
}

struct Sending<'a> {
    settings: &'a Settings,
    nodes: &'a [String],
    config: Option<&'a Config>,
    console: &'a Console,
}

impl Sending<'_> {
    /// Sends one file. The error is the exit code.
    fn send(&self, target: &Target, from: &Path, file: FileOrder) -> Result<(), i32> {
        let (console, settings) = (self.console, self.settings);
        let mut opened = File::open(from).map_err(|e| {
            console.error(format_args!("Can't open `{}`: {e}", from.display()));
            startup::exit_code(NOT_FOUND)
        })?;
        let request = FileRequest { step: target.step, nodes: self.nodes.to_vec(), file, width: settings.tree_width() };
        let manner = settings.manner(self.config);
        let mut search = Search::new(Way::new(None, console, target.job), console);
        let mut door = search.begin(Until::default()).map_err(|no_way| self.not_found(target, &no_way.into_error()))?;
        let sent = file_sending::send(&mut door, request, &mut opened, manner, |nodes| {
            console.verbose(format_args!("jobid      = {}", target.job));
            console.verbose(format_args!("node_list  = {}", hostlist::fold(nodes)));
        });
        match sent {
            Ok(sent) => {
                if settings.packed {
                    console.verbose(packed_text(&sent));
                }
                Ok(())
            }
            Err(unsent) => Err(self.unsent(target, from, unsent)),
        }
    }

    fn not_found(&self, target: &Target, error: &ClusterError) -> i32 {
        self.console.error(lookup_error(&target.text, error));
        startup::exit_code(NOT_FOUND)
    }

    fn unsent(&self, target: &Target, from: &Path, unsent: Unsent) -> i32 {
        match unsent {
            Unsent::Nodes(failures) => {
                failures.iter().for_each(|failure| self.console.error(file_sending::failure_text(failure)));
                failures.first().map(|failure| failure.errno).filter(|errno| *errno != 0).unwrap_or(1)
            }
            Unsent::Refused(Refusal::InvalidNode(_)) => {
                let (nodes, job) = (hostlist::fold(self.nodes), &target.text);
                self.console.error(format_args!("Not all nodes in --nodelist/-w '{nodes}' are in job {job}."));
                startup::exit_code(NOT_FOUND)
            }
            Unsent::Source(error) => {
                self.console.error(format_args!("Can't read `{}`: {error}", from.display()));
                startup::exit_code(1)
            }
            other => self.not_found(target, &ClusterError::from(other)),
        }
    }
}

fn packed_text(sent: &Sent) -> String {
    let (bytes, packed) = (sent.bytes, sent.packed_bytes);
    let saved = match i64::try_from(bytes) {
        Ok(bytes @ 1..) => 100 * (bytes - i64::try_from(packed).unwrap_or(bytes)) / bytes,
        _ => 0,
    };
    format!("File compressed from {bytes} to {packed} ({saved} percent) in {} usec", sent.packing.as_micros())
}

/// What `-v` says first.
fn tell_settings(settings: &Settings, arguments: &Arguments, source: &Path, dest: &Path, console: &Console) {
    let line = "-----------------------------";
    let compress = if settings.packed { 2 } else { 0 };
    let timeout = settings.timeout_secs.saturating_mul(1000);
    for text in [
        line.to_owned(),
        format!("block_size = {}", settings.block_bytes),
        format!("compress   = {compress}"),
        format!("exclude    = {}", settings.exclude),
        format!("force      = {}", settings.force),
        format!("treewidth     = {}", settings.width),
        format!("preserve   = {}", settings.preserve),
        format!("send_libs  = {}", settings.send_libs),
        format!("timeout    = {timeout}"),
        format!("verbose    = {}", arguments.count("verbose")),
        format!("source     = {}", source.display()),
        format!("dest       = {}", dest.display()),
        line.to_owned(),
    ] {
        console.verbose(text);
    }
}

fn tell_file(found: &Metadata, console: &Console) {
    let time = |secs: i64| {
        let zoned = Timestamp::from_second(secs).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::system());
        strtime::format("%a %b %e %H:%M:%S %Y", &zoned).unwrap_or_default()
    };
    for text in [
        format!("modes    = {:o}", found.mode()),
        format!("uid      = {}", found.uid()),
        format!("gid      = {}", found.gid()),
        format!("atime    = {}", time(found.atime())),
        format!("mtime    = {}", time(found.mtime())),
        format!("ctime    = {}", time(found.ctime())),
        format!("size     = {}", found.size()),
    ] {
        console.verbose(text);
    }
}
