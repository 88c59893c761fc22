//! `garrick check`: every problem of a `slurm.conf`, with line, cause and suggestion.

use super::SiteError;
use crate::{
    output::{self, Console},
    query::arguments::{self, Outcome, Table},
};
use garrick_asking::{accounts, cluster::Cluster};
use garrick_model::config::{self, ConfigReport, ConfiguredState, NodeConfig};
use std::{
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
};

pub(crate) static TABLE: Table = Table {
    program: "garrick check",
    purpose: "List all problems of a configuration. Exit code 1 if it cannot be used.",
    operands: "[FILE]",
    words: &[],
    options: &[],
    misuse: 1,
};

/// Runs `garrick check`. Without a file it is the one that the commands would read.
pub fn main(args: &[OsString], console: &Console) -> Result<i32, SiteError> {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return Ok(code),
    };
    let path = match arguments.operands.as_slice() {
        [] => Cluster::find(None)?.conf().to_owned(),
        [file] => PathBuf::from(file),
        _ => return Err(SiteError::Usage("check takes one file".to_owned())),
    };
    let mut report = config::check(&path);
    report.check_groups(|group| accounts::gid_of(group).is_some());
    let code = i32::from(report.has_errors());
    Ok(output::finish(console, output::stdout(|out| render(&report, &path, out)), code))
}

/// One problem a line, and how many there are.
fn render(report: &ConfigReport, path: &Path, out: &mut dyn Write) -> io::Result<()> {
    for problem in &report.problems {
        writeln!(out, "{problem}")?;
    }
    match (report.errors().count(), report.warnings().count()) {
        (0, 0) => writeln!(out, "{}: no problems", path.display()),
        (errors, warnings) => {
            writeln!(out, "{}: {} and {}", path.display(), counted(errors, "error"), counted(warnings, "warning"))
        }
    }
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Names of the nodes of a configuration whose daemons are to be started.
pub fn node_names(path: &Path) -> Result<Vec<String>, SiteError> {
    let config = config::read(path).map_err(|report| SiteError::Other(report.to_string()))?;
    // Those of the cloud come when they are needed, and planned ones later.
    let comes = |node: &&NodeConfig| !matches!(node.initial.state, ConfiguredState::Cloud | ConfiguredState::Future);
    Ok(config.nodes.iter().filter(comes).map(|n| n.name.clone()).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn checked(text: &str) -> String {
        let path = Path::new("/etc/slurm.conf");
        let (_, report) = config::read_text(path, text);
        let mut out = Vec::new();
        render(&report, path, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_problem_has_line_cause_and_suggestion() {
        let said = checked("ClusterName=x\nSlurmctldHost=h\nKilWait=5\nNodeName=n1\nPartitionName=p Nodes=n9\n");
        assert!(said.contains("/etc/slurm.conf:3: error: "), "{said}");
        assert!(said.contains("KillWait"), "{said}");
        assert!(said.contains("/etc/slurm.conf:5: error: "), "{said}");
        assert!(said.ends_with("/etc/slurm.conf: 2 errors and 0 warnings\n"), "{said}");
    }

    #[test]
    fn groups_that_nobody_knows_are_warned_of() {
        let text = "ClusterName=x\nSlurmctldHost=h\nNodeName=n1\nPartitionName=p Nodes=n1 AllowGroups=staff,nosuch\n";
        let (config, mut report) = config::read_text(Path::new("/etc/slurm.conf"), text);
        report.check_groups(|group| group == "staff");
        assert!(config.is_some() && !report.has_errors());
        let said: Vec<String> = report.warnings().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("/etc/slurm.conf:4: warning: AllowGroups=nosuch: "), "{said:?}");
    }

    #[test]
    fn the_files_that_garrick_writes_have_no_problems() {
        let example = checked(include_str!("slurm.conf.example"));
        assert_eq!(example, "/etc/slurm.conf: no problems\n");
        let machine = crate::site::conf::Machine {
            host: "host1".to_owned(),
            user: "root".to_owned(),
            hardware: "CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000".to_owned(),
        };
        let shape = crate::site::conf::Shape { nodes: Some(2), cpus: Some(4), memory_mib: Some(5000) };
        let text = crate::site::conf::text(&shape, Path::new("/h"), &machine, &[7000, 7001, 7002]);
        assert_eq!(checked(&text), "/etc/slurm.conf: no problems\n");
        let text = crate::site::conf::text(&Default::default(), Path::new("/h"), &machine, &[7000, 7001]);
        assert_eq!(checked(&text), "/etc/slurm.conf: no problems\n");
    }
}
