//! `sacctmgr dump`: everything of a cluster to a file.

use super::{Session, is_operator};
use crate::output;
use garrick_render::sacctmgr::{
    dump::{self, Dump},
    kind::begins,
};
use std::{fs, io};

/// Which cluster, and to which file.
fn read(words: &[String]) -> (Option<String>, Option<String>) {
    let (mut cluster, mut file) = (None, None);
    for word in words {
        let plain = |value: &str| Some(value.trim_matches(['"', '\'']).to_owned());
        match word.split_once('=') {
            Some((key, value)) if begins("file", key, 1) => file = plain(value),
            Some((key, value)) if begins("cluster", key, 1) || begins("name", key, 1) => cluster = plain(value),
            Some(_) => {}
            None if cluster.is_none() => cluster = plain(word),
            None => file = plain(word),
        }
    }
    (cluster, file)
}

/// Dumps a cluster. Returns the exit code.
pub(super) fn run(session: &mut Session, words: &[String]) -> i32 {
    let (cluster, file) = read(words);
    match cluster {
        None => session.plain_error(" We need a cluster to dump."),
        Some(cluster) => write(session, &cluster, file).unwrap_or_else(|code| code),
    }
}

fn write(session: &mut Session, cluster: &str, file: Option<String>) -> Result<i32, i32> {
    let (entities, _) = session.entities("")?;
    if !is_operator(session.service()?.cluster(), &entities) {
        return Err(session.plain_error(" Your user does not have sufficient privileges to dump clusters."));
    }
    let Some(dumped) = dump::dump(&entities, cluster) else {
        return Err(session.plain_error(format_args!(" Cluster {cluster} doesn't exist.")));
    };
    let file = file.unwrap_or_else(|| {
        let file = format!("./{cluster}.cfg");
        output::stderr(format!(" No filename given, using {file}.\n").as_bytes());
        file
    });
    fs::write(&file, dumped.file()).map_err(|error: io::Error| {
        session.console.error(format_args!("{file}: {error}"));
        1
    })?;
    output::stderr(told(&dumped).as_bytes());
    Ok(0)
}

/// What is said of a dump: QOS and cluster at once, then each line of the tree.
fn told(dumped: &Dump) -> String {
    let first = dumped.first.join("\n");
    let lines = std::iter::once(&first).chain(&dumped.rest);
    lines.map(|line| format!("sacctmgr: {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_and_file_may_be_named_or_not() {
        let of = |words: &[&str]| {
            let (cluster, file) = read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
            (cluster.unwrap_or_default(), file.unwrap_or_default())
        };
        let both = ("c".to_owned(), "f".to_owned());
        for words in [["c", "file=f"], ["cluster=c", "file='f'"], ["c", "f"]] {
            assert_eq!(of(&words), both, "{words:?}");
        }
        assert_eq!(of(&["file=f"]), (String::new(), "f".to_owned()));
    }

    #[test]
    fn the_first_lines_are_told_as_one() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        let dumped = Dump { first: lines(&["QOS", "Cluster"]), rest: lines(&["Parent", "User"]) };
        assert_eq!(told(&dumped), "sacctmgr: QOS\nCluster\nsacctmgr: Parent\nsacctmgr: User\n");
    }
}
