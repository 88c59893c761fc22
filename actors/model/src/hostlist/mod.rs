//! Host lists: `lx[0003-8000]`, nested and mixed ranges, both directions.
//!
//! [`HostList`] keeps order and repeats and never expands what it does not have to; [`HostSet`] is sorted and has each
//! name once. Names are what Slurm allows: anything without blanks, commas and brackets. A number at the end of a name is
//! what folds, with its leading zeros kept: `a[08-10]` is a08, a09, a10. Used by the configuration, the commands
//! (`scontrol show hostnames`, `-w`, every NODELIST column) and the controller.
//!
//! | part | what it is |
//! |---|---|
//! | `run` | consecutive names, the piece both are made of |
//! | `parse` | text to runs |
//! | `list`, `set` | the two types |

mod list;
mod parse;
mod run;
mod set;

pub use list::HostList;
pub use parse::{HostListError, MAX_HOSTS, MAX_SPELLED};
pub use set::HostSet;

/// The names that a text stands for, in its order, with repeats.
pub fn expand(text: &str) -> Result<Vec<String>, HostListError> {
    Ok(text.parse::<HostList>()?.iter().collect())
}

/// How many names a text stands for.
pub fn count(text: &str) -> Result<u64, HostListError> {
    Ok(text.parse::<HostList>()?.len())
}

/// Names in their order, folded: `a1,a2,a3,b7` gives `a[1-3],b7`.
pub fn fold<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    names.into_iter().collect::<HostList>().to_string()
}

/// Names sorted, each once, folded.
pub fn fold_sorted<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    names.into_iter().collect::<HostSet>().to_string()
}

#[cfg(test)]
mod tests;
