//! The version of this program.

/// The version of Slurm that Garrick answers to: client programs parse it.
pub const COMPATIBILITY: &str = "26.05.3";

/// The compatibility level and Garrick's own version.
pub fn versions() -> String {
    format!("slurm {COMPATIBILITY}\ngarrick {}\n", env!("CARGO_PKG_VERSION"))
}
