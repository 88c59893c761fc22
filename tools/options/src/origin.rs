//! Properties of the submitting process that are passed on with its job or step.

use crate::{
    export::{self, For},
    job_spec::Submitter,
    limits,
    table::Command,
    typed::{OptionError, Typed},
};
use garrick_model::{config::PropagateLimits, cpu_freq::FrequencyRules};
use nix::sys::resource::Resource;
use std::{ffi::OsString, path::PathBuf};

/// A command's process, as it is.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Working directory.
    pub work_dir: PathBuf,
    /// Host, up to its first dot.
    pub host: String,
    /// Process.
    pub pid: u32,
    /// Session.
    pub session: u32,
    /// File mode creation mask.
    pub umask: u32,
    /// Nice value.
    pub nice: i32,
    /// Its variables.
    pub variables: Vec<(OsString, OsString)>,
}

impl Origin {
    /// What travels. `args` are without the program's name; `site` says which limits travel when the user says nothing; `soft`
    /// gives the process's own, `None` for one that cannot be asked.
    pub fn submitter(
        self,
        command: Command,
        args: &[OsString],
        typed: &Typed,
        whose: For,
        site: &PropagateLimits,
        soft: impl Fn(Resource) -> Option<u64>,
    ) -> Result<Submitter, OptionError> {
        let travel = typed.propagate.as_deref().map(limits::asked).transpose()?;
        // `SLURM_UMASK` goes before the process's own (sbatch(1)).
        let named = self.variables.iter().find(|(name, _)| name == "SLURM_UMASK").and_then(|(_, text)| text.to_str());
        let named = named.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).filter(|mask| *mask <= 0o777);
        Ok(Submitter {
            work_dir: self.work_dir,
            host: self.host,
            pid: self.pid,
            session: self.session,
            umask: named.unwrap_or(self.umask),
            nice: self.nice,
            rlimits: limits::travelling(travel.as_ref().unwrap_or(site), soft),
            environment: export::environment(typed.export.as_deref(), self.variables.into_iter(), whose)?,
            submit_line: submit_line(command, args),
            frequencies: FrequencyRules::default(),
        })
    }
}

fn submit_line(command: Command, args: &[OsString]) -> String {
    let mut line = command.name().to_owned();
    for arg in args {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_submit_line_is_as_typed() {
        let args: Vec<OsString> = ["-n4", "job.sh", "a b"].map(OsString::from).into();
        assert_eq!(submit_line(Command::Sbatch, &args), "sbatch -n4 job.sh a b");
    }
}
