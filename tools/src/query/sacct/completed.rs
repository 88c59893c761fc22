//! `sacct --completion`: the lines of the text file that `jobcomp/filetxt` writes.

use super::options::Request;
use crate::output::{self, Console};
use garrick_accounts::filter::JobFilter;
use garrick_asking::cluster::Cluster;
use garrick_model::config::{CompletionSettings, CompletionType};
use garrick_render::sacct::completed::{self, Column, Run};
use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Write},
    path::PathBuf,
};

/// Longest line that is looked at, bytes: who may write into the file may write what he likes.
const LONGEST: u64 = 1 << 20;

/// Shows the runs that are asked for. `file` is that of `--file`. Returns the exit code.
pub fn show(request: &Request, file: Option<String>, console: &Console) -> i32 {
    let path = match file.map(PathBuf::from).map_or_else(settled, Ok) {
        Ok(path) => path,
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
    let Ok(file) = File::open(&path) else {
        output::stderr(format!("{} is not a valid file\n", path.display()).as_bytes());
        return 1;
    };
    let written = output::stdout(|out| table(request, &columns, BufReader::new(file), out));
    output::finish(console, written, 0)
}

/// Why there is no file.
enum Nowhere {
    Disabled,
    Other(String),
}

/// The file of the site's settings.
fn settled() -> Result<PathBuf, Nowhere> {
    let cluster = Cluster::find(None).map_err(|why| Nowhere::Other(why.to_string()))?;
    let CompletionSettings { kind, location, .. } = &cluster.config().completion;
    match (kind, location) {
        (CompletionType::None, _) => Err(Nowhere::Disabled),
        (CompletionType::FileText, Some(path)) => Ok(path.into()),
        _ => Err(Nowhere::Other("only records of JobCompType=jobcomp/filetxt can be shown".to_owned())),
    }
}

fn table(request: &Request, columns: &[Column], mut file: impl io::BufRead, out: &mut dyn Write) -> io::Result<()> {
    if request.heading {
        request.setting.heading(out, columns)?;
    }
    let mut line = Vec::new();
    while io::Read::take(&mut file, LONGEST).read_until(b'\n', &mut line)? > 0 {
        let run = Run::of(String::from_utf8_lossy(&line).trim_end_matches('\n'));
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
