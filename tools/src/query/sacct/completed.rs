//! `sacct --completion`: the lines of the text file that `jobcomp/filetxt` writes, or the rows of the database of `jobcomp/mysql`. A command
//! has no library for databases in it: `noded completed`, run as the same user, reads them.

use super::options::Request;
use crate::{
    output::{self, Console},
    programs,
};
use garrick_accounts::filter::JobFilter;
use garrick_asking::cluster::Cluster;
use garrick_model::config::{CompletionSettings, CompletionType};
use garrick_render::sacct::completed::{self, Column, Run, Source};
use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Longest line that is looked at, bytes: who may write into the file may write what he likes.
const LONGEST: u64 = 1 << 20;

/// Shows the runs that are asked for. `file` is that of `--file`. Returns the exit code.
pub fn show(request: &Request, file: Option<String>, console: &Console) -> i32 {
    let place = match file.map(|file| Place::File(file.into())).map_or_else(settled, Ok) {
        Ok(place) => place,
        Err(Nowhere::Disabled) => {
            output::stderr(b"Slurm job completion is disabled\n");
            return 1;
        }
        Err(Nowhere::Other(why)) => {
            console.error(why);
            return 1;
        }
    };
    let columns = match completed::columns(&request.format) {
        Ok(columns) => columns,
        Err(field) => {
            console.error(format_args!("Invalid field requested: \"{field}\""));
            return 1;
        }
    };
    match place {
        Place::File(path) => of_file(request, &columns, &path, console),
        Place::Database { conf } => of_database(request, &columns, &conf, console),
    }
}

fn of_file(request: &Request, columns: &[Column], path: &Path, console: &Console) -> i32 {
    let Ok(file) = File::open(path) else {
        output::stderr(format!("{} is not a valid file\n", path.display()).as_bytes());
        return 1;
    };
    let written = output::stdout(|out| table(request, columns, Source::File, BufReader::new(file), out));
    output::finish(console, written, 0)
}

fn of_database(request: &Request, columns: &[Column], conf: &Path, console: &Console) -> i32 {
    let reader = match programs::find("noded") {
        Ok(reader) => reader,
        Err(why) => {
            console.error(why);
            return 1;
        }
    };
    // What keeps it from reading it says itself.
    let started =
        Command::new(&reader).arg("completed").arg("-f").arg(conf).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let (mut child, lines) = match started.map(|mut child| (child.stdout.take(), child)) {
        Ok((Some(lines), child)) => (child, lines),
        Ok((None, _)) => return 1,
        Err(why) => {
            console.error(format_args!("cannot run {}: {why}", reader.display()));
            return 1;
        }
    };
    let written = output::stdout(|out| table(request, columns, Source::Database, BufReader::new(lines), out));
    let read = child.wait().is_ok_and(|status| status.success());
    output::finish(console, written, i32::from(!read))
}

/// Where runs are recorded.
enum Place {
    File(PathBuf),
    /// In the one that this file of settings names.
    Database {
        conf: PathBuf,
    },
}

/// Why there is no such place.
enum Nowhere {
    Disabled,
    Other(String),
}

/// That of the site's settings.
fn settled() -> Result<Place, Nowhere> {
    let cluster = Cluster::find(None).map_err(|why| Nowhere::Other(why.to_string()))?;
    let CompletionSettings { kind, location, .. } = &cluster.config().completion;
    match (kind, location) {
        (CompletionType::None, _) => Err(Nowhere::Disabled),
        (CompletionType::FileText, Some(path)) => Ok(Place::File(path.into())),
        (CompletionType::Database, _) => Ok(Place::Database { conf: cluster.conf().to_owned() }),
        _ => Err(Nowhere::Other(
            "only records of JobCompType=jobcomp/filetxt, jobcomp/mysql and jobcomp/postgresql can be shown".to_owned(),
        )),
    }
}

fn table(
    request: &Request,
    columns: &[Column],
    from: Source,
    mut lines: impl io::BufRead,
    out: &mut dyn Write,
) -> io::Result<()> {
    if request.heading {
        request.setting.heading(out, columns)?;
    }
    let mut line = Vec::new();
    while io::Read::take(&mut lines, LONGEST).read_until(b'\n', &mut line)? > 0 {
        let run = Run::of(String::from_utf8_lossy(&line).trim_end_matches('\n'), from);
        if let Some(run) = run.filter(|run| is_asked_for(&request.choice.such, run)) {
            request.setting.row(out, columns, |shown| shown(&run))?;
        }
        line.clear();
    }
    Ok(())
}

/// As far as a line tells. Slurm, too, leaves the time window out here.
fn is_asked_for(such: &JobFilter, run: &Run) -> bool {
    let listed = |list: &[String], value: &str| list.is_empty() || list.iter().any(|listed| listed == value);
    let among = |list: &[u32], id: Option<u32>| list.is_empty() || id.is_some_and(|id| list.contains(&id));
    (such.jobs.is_empty() || such.jobs.iter().any(|named| run.job() == Some(named.job.0)))
        && among(&such.users, run.uid())
        && among(&such.groups, run.gid())
        && listed(&such.accounts, run.account())
        && listed(&such.names, run.name())
        && run.partition().split(',').any(|partition| listed(&such.partitions, partition))
}
