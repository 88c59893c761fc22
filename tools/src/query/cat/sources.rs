//! The files of an operand: the file itself, or the packs of the nodes, `FILE.NODE`.

use garrick_pack::{PackError, of_nodes};
use std::{
    io,
    path::{Path, PathBuf},
};

/// What there is of an operand.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The file itself.
    One(PathBuf),
    /// Files of nodes.
    Nodes(Vec<PathBuf>),
    /// Neither.
    None,
}

/// Looks for an operand's files.
pub(super) fn find(operand: &Path) -> Result<Found, PackError> {
    if operand.exists() {
        return Ok(Found::One(operand.to_owned()));
    }
    let nodes = of_nodes(operand)?;
    Ok(if nodes.is_empty() { Found::None } else { Found::Nodes(nodes) })
}

/// All files of all operands; what is missing is reported.
pub(super) fn files(operands: &[PathBuf], report: &mut dyn FnMut(PackError)) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for operand in operands {
        match find(operand) {
            Ok(Found::One(file)) => files.push(file),
            Ok(Found::Nodes(nodes)) => files.extend(nodes),
            Ok(Found::None) => report(absent(operand)),
            // A folder that is not there: the file is what was asked for.
            Err(error) if error.is_absent() => report(absent(operand)),
            Err(error) => report(error),
        }
    }
    files
}

fn absent(path: &Path) -> PackError {
    PackError::File {
        operation: "cannot open",
        path: path.to_owned(),
        source: io::Error::from_raw_os_error(libc::ENOENT),
    }
}
