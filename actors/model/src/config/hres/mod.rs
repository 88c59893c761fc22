//! Hierarchical resources: `resources.yaml` beside `slurm.conf`, with the meaning of `resources.yaml(5)` and of Slurm's page
//! on HRES (<https://slurm.schedmd.com/hres.html>). Each layer of a resource is counted like a license of its own, called by
//! resource and nodes: `flat(node[01-08])`.

mod check;
mod yaml;

#[cfg(test)]
mod tests;

use crate::config::{
    settings::{config::Config, hres::Hres},
    syntax::{
        report::{ConfigReport, Place, SettingError},
        text::ReadFile,
    },
};
use std::{io, path::Path, sync::Arc};

/// The file's name.
const FILE: &str = "resources.yaml";

/// Reads and checks the file, if there is one.
pub(super) fn read(config: &Config, read_file: &ReadFile<'_>, report: &mut ConfigReport) -> Arc<Hres> {
    let path = config.path.parent().unwrap_or(Path::new("")).join(FILE);
    let place = Place { file: Arc::from(path.as_path()), line: 0 };
    let text = match read_file(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Arc::default(),
        Err(e) => {
            report.error(&place, FILE, SettingError::new(format!("cannot be read: {e}")));
            return Arc::default();
        }
    };
    report.files.push(path);
    let written = yaml::read(&text, &place, report);
    Arc::new(check::check(config, written, &place, report))
}
