//! The command line of `slurmdbd`, and what is read before it serves.

use crate::daemon::options::Options;
use garrick_model::config::{locate, slurmdbd::DbdConfig};
use std::path::PathBuf;

/// Where `slurmdbd.conf` is: the one that was named with `-f`, or the one beside `slurm.conf`, which is looked for in the usual
/// places. The warnings that it deserves come with it.
pub fn read(options: &Options) -> Result<(DbdConfig, Vec<String>), String> {
    let exe = std::env::current_exe().ok();
    let env = |name: &str| std::env::var_os(name);
    let path = match &options.conf {
        Some(path) => path.clone(),
        None => {
            let candidates = locate::conf_path(None, &env, exe.as_deref());
            let beside: Vec<PathBuf> = candidates.iter().map(|c| c.path.with_file_name("slurmdbd.conf")).collect();
            let found = beside.iter().find(|path| path.exists()).or_else(|| beside.first());
            found.cloned().ok_or("no slurmdbd.conf is in a usual place")?
        }
    };
    let path = std::path::absolute(&path).unwrap_or(path);
    let (settings, report) = DbdConfig::read(&path);
    match settings {
        Some(settings) => Ok((settings, report.warnings().map(ToString::to_string).collect())),
        None => {
            let errors: Vec<String> = report.errors().map(|e| format!("\n  {e}")).collect();
            Err(format!("{} cannot be used:{}", path.display(), errors.concat()))
        }
    }
}
