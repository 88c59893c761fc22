//! Where other programs of Garrick are: next to this one, in `../sbin` of an installation, or on `PATH`.

use crate::executable::is_program;
use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// The program of the commands that plan.
pub const PLANNING: &str = "garrick-planning";

/// A program that is nowhere.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot find the program {name}: looked at {looked}. Build it (cargo build) or install it (garrick install)")]
pub struct ProgramError {
    name: String,
    looked: String,
}

/// Finds `noded`, `stepd` or [`PLANNING`].
pub fn find(name: &str) -> Result<PathBuf, ProgramError> {
    let own = env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()));
    find_in(name, own.as_deref(), env::var_os("PATH").as_deref())
}

fn find_in(name: &str, own: Option<&Path>, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    let mut candidates = Vec::new();
    if let Some(own) = own {
        candidates.push(own.join(name));
        candidates.extend(own.parent().map(|prefix| prefix.join("sbin").join(name)));
    }
    let near = candidates.len();
    candidates.extend(path.iter().flat_map(env::split_paths).map(|folder| folder.join(name)));
    candidates.iter().find(|c| is_program(c)).cloned().ok_or_else(|| {
        let mut looked: Vec<String> = candidates[..near].iter().map(|c| c.display().to_string()).collect();
        looked.push("PATH".to_owned());
        ProgramError { name: name.to_owned(), looked: looked.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_program_nowhere_says_where_it_was_looked_for() {
        let error = find_in("noded", Some(Path::new("/nosuch/bin")), Some(OsStr::new("/nosuch/path"))).unwrap_err();
        assert!(error.to_string().contains("/nosuch/bin/noded, /nosuch/sbin/noded, PATH"), "{error}");
    }

    #[test]
    fn path_is_looked_through_last() {
        assert_eq!(
            find_in("sh", Some(Path::new("/nosuch/bin")), Some(OsStr::new("/bin"))).unwrap(),
            Path::new("/bin/sh")
        );
    }
}
