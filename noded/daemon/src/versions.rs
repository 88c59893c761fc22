//! The version of this program.

/// The version of Slurm that Garrick answers to: client programs parse it.
pub const COMPATIBILITY: &str = "26.05.3";

/// What `-V` prints. Garrick's own version is that of `garrick --version`.
pub fn versions() -> String {
    format!("slurm {COMPATIBILITY}\n")
}
