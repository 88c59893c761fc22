//! Properties of the submitting process that are passed on with its job or step.

use crate::{
    export::{self, For},
    job_spec::Submitter,
    limits,
    table::Command,
    typed::{OptionError, Typed},
};
use garrick_model::{config::PropagateLimits, cpu_freq::FrequencyRules, env_vars};
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
            environment: {
                let own = told(command, typed).into_iter().map(|(name, value)| (name.into(), value.into()));
                export::environment(typed.export.as_deref(), self.variables.into_iter().chain(own), whose)?
            },
            submit_line: submit_line(command, args),
            frequencies: FrequencyRules::default(),
        })
    }
}

/// Variables by which programs in the job know how it was asked for: the hint of `sbatch`, and how much `srun` says, of which 3
/// is the usual (sbatch(1), srun(1)).
fn told(command: Command, typed: &Typed) -> Vec<(&'static str, String)> {
    match command {
        Command::Sbatch => hint(typed).into_iter().collect(),
        Command::Srun => {
            let level = if typed.quiet { 2 } else { u32::from(typed.verbose).saturating_add(3) };
            vec![(env_vars::SRUN_DEBUG, level.to_string()), (env_vars::SLURMD_DEBUG, "2".to_owned())]
        }
        _ => Vec::new(),
    }
}

/// `SLURM_HINT`, where there is a hint.
pub fn hint(typed: &Typed) -> Option<(&'static str, String)> {
    Some((env_vars::SLURM_HINT, typed.layout.hint?.value.word().to_owned()))
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
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sources::{command_line, lay_over};
    use garrick_model::time::Timestamp;

    #[test]
    fn programs_are_told_of_the_hint_and_of_how_much_srun_says() {
        let typed = |words: &[&str]| {
            let args: Vec<OsString> = words.iter().map(OsString::from).collect();
            let parsed = command_line(Command::Srun, &args).unwrap();
            lay_over(Command::Srun, &[], &|_| None, &parsed.options, Timestamp::from_secs(0)).unwrap()
        };
        let told = |command, words: &[&str]| {
            let told = told(command, &typed(words));
            told.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(told(Command::Sbatch, &["--hint=memory_bound"]), ["SLURM_HINT=memory_bound"]);
        assert!(told(Command::Sbatch, &[]).is_empty());
        assert_eq!(told(Command::Srun, &[]), ["SRUN_DEBUG=3", "SLURMD_DEBUG=2"]);
        assert_eq!(told(Command::Srun, &["-vv"])[0], "SRUN_DEBUG=5");
        assert_eq!(told(Command::Srun, &["-Q"])[0], "SRUN_DEBUG=2");
    }

    #[test]
    fn the_submit_line_is_as_typed() {
        let args: Vec<OsString> = ["-n4", "job.sh", "a b"].map(OsString::from).into();
        assert_eq!(submit_line(Command::Sbatch, &args), "sbatch -n4 job.sh a b");
    }
}
