//! Finds the other programs of Garrick: in this program's folder, in the `sbin` next to that folder, or on `PATH`.

use std::path::PathBuf;

/// A program that is not where it should be.
#[derive(Debug, thiserror::Error)]
#[error("the program {name} was not found beside {}, in ../sbin, or on PATH", own.display())]
pub struct ProgramError {
    /// Its name.
    pub name: String,
    /// This program.
    pub own: PathBuf,
}

/// Path of a program of Garrick's.
pub fn beside(name: &str) -> Result<PathBuf, ProgramError> {
    let own = std::env::current_exe().unwrap_or_default();
    let folder = own.parent().map(std::path::Path::to_owned).unwrap_or_default();
    let mut places = vec![folder.join(name), folder.join("../sbin").join(name)];
    let path = std::env::var_os("PATH").unwrap_or_default();
    places.extend(std::env::split_paths(&path).map(|d| d.join(name)));
    places.into_iter().find(|p| p.is_file()).ok_or(ProgramError { name: name.to_owned(), own })
}
