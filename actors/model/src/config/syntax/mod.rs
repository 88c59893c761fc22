//! How the files are written: pairs of keys and values, YAML, single values, and what is said of what is wrong.

pub(super) mod nearest;
pub(super) mod report;
pub(super) mod text;
pub(super) mod values;
pub(super) mod yaml;
