//! `--prolog` and `--epilog`, `SrunProlog` and `SrunEpilog`: programs that `srun` itself runs, before and after its step.

use crate::{
    options::typed::Typed,
    output::Console,
    submit::{startup, submitter},
};
use garrick_model::{
    env_vars,
    ids::JobId,
    spec::{Mpi, SiteOfSrun},
    state::ExitStatus,
};
use nix::{
    sys::signal::SigSet,
    unistd::{AccessFlags, access},
};
use serde_bytes::ByteBuf;
use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    process::Command,
};

/// What they are told about the step.
pub struct Around<'a> {
    /// Its job.
    pub job: JobId,
    /// Its command with its arguments: those of the programs (slurm.conf(5), SrunProlog).
    pub argv: &'a [ByteBuf],
}

/// What the site has where the options say nothing: its programs, and how tasks find each other.
pub fn of_site(typed: &mut Typed, site: &SiteOfSrun) {
    let program = |own: &mut Option<OsString>, of_site: &Option<String>| {
        if own.is_none() {
            *own = of_site.as_ref().map(OsString::from);
        }
    };
    program(&mut typed.prolog, &site.prolog);
    program(&mut typed.epilog, &site.epilog);
    if !site.mpi.is_none() {
        typed.mpi.get_or_insert(site.mpi);
    }
}

/// Those of the site, as a job's tasks are told.
pub fn of_surrounding_job() -> SiteOfSrun {
    let named = |name| env::var(name).ok().filter(|program| !program.is_empty());
    SiteOfSrun {
        prolog: named(env_vars::GARRICK_SRUN_PROLOG),
        epilog: named(env_vars::GARRICK_SRUN_EPILOG),
        filters_options: named(env_vars::GARRICK_CLI_FILTER).is_some(),
        // An option like any other: a variable names it.
        mpi: Mpi::None,
        frequencies: submitter::frequencies_of_surrounding_job(),
    }
}

/// Runs the prolog. A step whose prolog fails is not started: that is the error, as an exit code.
pub fn prolog(typed: &Typed, around: &Around<'_>, console: &Console) -> Result<(), i32> {
    match wanted(&typed.prolog).and_then(|program| run(program, "prolog_srun", around, console)) {
        None | Some(0) => Ok(()),
        Some(code) => {
            console.error(format_args!("srun prolog failed rc = {code}. Aborting step."));
            Err(startup::exit_code(1))
        }
    }
}

/// Runs the epilog. Its failure is told.
pub fn epilog(typed: &Typed, around: &Around<'_>, console: &Console) {
    let ran = wanted(&typed.epilog).and_then(|program| run(program, "epilog_srun", around, console));
    if let Some(code) = ran.filter(|code| *code != 0) {
        console.error(format_args!("srun epilog failed status={code}"));
    }
}

/// `none` stands for no program, whatever the site has (srun(1)).
fn wanted(program: &Option<OsString>) -> Option<&OsStr> {
    program.as_deref().filter(|program| !program.eq_ignore_ascii_case("none"))
}

/// The exit code of a program, or as many above 128 as the signal that ended it. `None`: it may not be executed, as is said.
fn run(program: &OsStr, context: &str, around: &Around<'_>, console: &Console) -> Option<i32> {
    if let Err(why) = access(program, AccessFlags::X_OK) {
        console.info(format_args!("Access denied for {}: {}", program.display(), why.desc()));
        return None;
    }
    let mut command = Command::new(program);
    let (job, argv) = (around.job.to_string(), around.argv.iter().map(|argument| OsStr::from_bytes(argument)));
    command.args(argv).env("SLURM_SCRIPT_CONTEXT", context).env("SLURM_JOB_ID", &job).env("SLURM_JOBID", &job);
    // SAFETY: between fork and exec this makes one system call that is safe there, and allocates nothing.
    unsafe {
        command.pre_exec(|| SigSet::empty().thread_set_mask().map_err(io::Error::from));
    }
    match command.status() {
        Ok(status) => Some(ExitStatus::from(status).shell_code()),
        Err(error) => {
            console.error(format_args!("{}: {error}", program.display()));
            Some(1)
        }
    }
}
