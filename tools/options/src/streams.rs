//! Options about standard files, working directory, environment and terminal.

use super::{
    table::{
        Arg,
        Arg::{Optional, Required},
        BATCH, BATCH_RUN, JOB, OptionDef, RUN,
    },
    typed::OptionError,
    values,
};

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef::new("input", Some('i'), Required("in"), BATCH_RUN, "file for standard input", |t, g| {
        t.input = g.string()?;
        Ok(())
    })
    .env(&["SBATCH_INPUT", "SLURM_STDINMODE", "SRUN_INPUT"]),
    OptionDef::new("output", Some('o'), Required("out"), BATCH_RUN, "file for standard output", |t, g| {
        t.output = g.string()?;
        Ok(())
    })
    .env(&["SBATCH_OUTPUT", "SLURM_STDOUTMODE", "SRUN_OUTPUT"]),
    OptionDef::new("error", Some('e'), Required("err"), BATCH_RUN, "file for standard error", |t, g| {
        t.error = g.string()?;
        Ok(())
    })
    .env(&["SBATCH_ERROR", "SLURM_STDERRMODE", "SRUN_ERROR"]),
    OptionDef::new("open-mode", None, Required("append|truncate"), BATCH_RUN, "how output files are opened", |t, g| {
        t.open_mode = g.checked(values::open_mode(g.text()?))?;
        Ok(())
    })
    .env(&["SBATCH_OPEN_MODE", "SLURM_OPEN_MODE"]),
    OptionDef::new("chdir", Some('D'), Required("directory"), JOB, "working directory of the job or step", |t, g| {
        t.chdir = g.string()?;
        Ok(())
    })
    .env(&["SLURM_WORKING_DIR"]),
    OptionDef::new(
        "export",
        None,
        Required("list"),
        BATCH_RUN,
        "environment to pass on: ALL, NONE, NIL or names",
        |t, g| {
            t.export = g.string()?;
            Ok(())
        },
    )
    .env(&["SBATCH_EXPORT", "SLURM_EXPORT_ENV", "SRUN_EXPORT_ENV"]),
    OptionDef::new(
        "export-file",
        None,
        Required("file|fd"),
        BATCH,
        "read the environment from a file of NUL-terminated NAME=value",
        |t, g| {
            t.export_file = g.string()?;
            Ok(())
        },
    ),
    OptionDef::new(
        "get-user-env",
        None,
        Arg::None,
        BATCH,
        "have what a login of the user sets on the batch host too",
        |t, _| {
            t.user_env = true;
            Ok(())
        },
    )
    .env(&["SBATCH_GET_USER_ENV"]),
    OptionDef::new(
        "propagate",
        None,
        Optional("rlimits"),
        BATCH_RUN,
        "propagate all or some resource limits",
        |t, g| {
            t.propagate = Some(g.text()?.to_owned());
            Ok(())
        },
    ),
    OptionDef::new("label", Some('l'), Arg::None, RUN, "prepend task number to lines of output", |t, _| {
        t.label = true;
        Ok(())
    })
    .env(&["SLURM_LABELIO"]),
    OptionDef::new("unbuffered", Some('u'), Arg::None, RUN, "do not wait for whole lines of output", |t, _| {
        t.unbuffered = true;
        Ok(())
    })
    .env(&["SLURM_UNBUFFEREDIO"]),
    OptionDef::new("pty", None, Optional("fd"), RUN, "run task zero in a pseudo terminal", |t, g| {
        let text = g.text()?;
        if !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(OptionError::Fatal(format!("--pty={text} must be numeric file descriptor")));
        }
        if g.value.is_some() {
            return Err(g.not_supported());
        }
        t.pty = true;
        Ok(())
    }),
    OptionDef::new("mail-type", None, Required("type"), JOB, "events of the job that mail is sent for", |t, g| {
        t.mail.types = g.text()?.parse().map_err(|_| g.invalid())?;
        Ok(())
    }),
    OptionDef::new("mail-user", None, Required("user"), JOB, "who gets the mail", |t, g| {
        t.mail.user = g.string()?;
        Ok(())
    }),
];
