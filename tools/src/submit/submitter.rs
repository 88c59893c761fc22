//! Reads the properties of this process that are passed on with a job or step.

use crate::options::{
    export::{self, For},
    job_spec::Submitter,
    limits,
    origin::Origin,
    table::Command,
    typed::{OptionError, Typed},
};
use garrick_asking::accounts::User;
use garrick_model::{
    config::{Config, PropagateLimits},
    cpu_freq::FrequencyRules,
    env_vars,
};
use std::{env, ffi::OsString, fs, io::Read as _, os::fd::FromRawFd as _};

/// Looks. `site` says which limits travel when the user says nothing, and what the site makes of `--cpu-freq`. Inside a job there is
/// none: its rules about limits have been applied to what this process has, and the job's tasks are told the rest.
pub fn look(
    command: Command,
    args: &[OsString],
    typed: &Typed,
    whose: For,
    site: Option<&Config>,
) -> Result<Submitter, OptionError> {
    let work_dir = env::current_dir()
        .map_err(|error| OptionError::Text(format!("Unable to determine the working directory: {error}")))?;
    let origin = Origin {
        work_dir,
        host: host_name(),
        pid: std::process::id(),
        session: nix::unistd::getsid(None).ok().and_then(|sid| u32::try_from(sid.as_raw()).ok()).unwrap_or(0),
        umask: limits::file_mode_mask(),
        nice: rustix::process::getpriority_process(None).unwrap_or_default(),
        variables: env::vars_os().collect(),
    };
    let travel = site.map_or(&PropagateLimits::All, |config| &config.propagate_limits);
    let frequencies = match site {
        Some(config) => config.frequencies.clone(),
        None => frequencies_of_surrounding_job(),
    };
    let submitter = origin.submitter(command, args, typed, whose, travel, limits::soft)?;
    let submitter = Submitter { frequencies, ..submitter };
    match &typed.export_file {
        Some(file) => Ok(Submitter { environment: export::from_file(&export_file(file)?)?, ..submitter }),
        None => Ok(submitter),
    }
}

/// What the site makes of `--cpu-freq`, as the tasks of a job are told.
pub fn frequencies_of_surrounding_job() -> FrequencyRules {
    env::var(env_vars::GARRICK_CPU_FREQ).ok().and_then(|rules| rules.parse().ok()).unwrap_or_default()
}

/// This host's name up to its first dot.
pub fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// This process's user name; its number where the user has none.
pub fn user_name() -> String {
    let uid = nix::unistd::getuid().as_raw();
    User::by_uid(uid).map_or_else(|| uid.to_string(), |user| user.name)
}

/// A file, or the number of an open descriptor.
fn export_file(name: &str) -> Result<Vec<u8>, OptionError> {
    let failed = |_| OptionError::Declined(format!("Could not open user environment file {name}"));
    match name.parse::<i32>() {
        Ok(fd) if fd > 2 => {
            // SAFETY: the caller of the command passed this descriptor for this purpose; nothing else here uses
            // descriptors above 2 that it did not open itself, and none is open yet. A number that is not open gives an
            // error at the first read.
            let mut file = unsafe { fs::File::from_raw_fd(fd) };
            let mut text = Vec::new();
            file.read_to_end(&mut text).map_err(failed)?;
            Ok(text)
        }
        _ => fs::read(name).map_err(failed),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_travels_is_looked_up() {
        let typed = Typed { propagate: Some("NONE".to_owned()), export: Some("NIL".to_owned()), ..Typed::default() };
        let submitter = look(Command::Sbatch, &[], &typed, For::Job, None).unwrap();
        assert_eq!(submitter.work_dir, env::current_dir().unwrap());
        assert!(submitter.rlimits.is_empty() && submitter.pid == std::process::id());
        assert!(!submitter.host.contains('.'));
    }
}
