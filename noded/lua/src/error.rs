//! What is wrong with a script.

use std::{io, path::PathBuf};

/// What is wrong with a script.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The script.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is no Lua.
    #[error("{0}")]
    Syntax(String),
    /// It does not define this function.
    #[error("{} has no function {name}", path.display())]
    NoFunction {
        /// The script.
        path: PathBuf,
        /// The function.
        name: &'static str,
    },
    /// It failed: file, line and cause.
    #[error("{0}")]
    Runtime(String),
    /// It wanted more memory than [`MEMORY_LIMIT`](crate::interpreter::MEMORY_LIMIT).
    #[error("{0}")]
    Memory(String),
}

impl ScriptError {
    /// Of an error of the interpreter.
    pub fn of(error: mlua::Error) -> Self {
        match error {
            mlua::Error::SyntaxError { message, .. } => Self::Syntax(message),
            mlua::Error::MemoryError(text) => Self::Memory(text),
            mlua::Error::CallbackError { traceback, cause } => match Self::of((*cause).clone()) {
                // Where the script called what failed is in the traceback.
                Self::Runtime(text) if !text.contains(".lua:") => Self::Runtime(format!("{}{text}", place(&traceback))),
                other => other,
            },
            mlua::Error::RuntimeError(text) => {
                Self::Runtime(text.split("\nstack traceback:").next().unwrap_or_default().to_owned())
            }
            other => Self::Runtime(other.to_string()),
        }
    }

    /// Slurm's number for it, of [`garrick_model::slurm_error`].
    pub const fn number(&self) -> i32 {
        match self {
            Self::Read { .. } | Self::Syntax(_) => 7401,
            Self::NoFunction { .. } => 7402,
            Self::Runtime(_) => 7405,
            Self::Memory(_) => 7406,
        }
    }
}

/// `/etc/slurm/job_submit.lua:7: `, of the first line of a traceback that names a line of a script.
fn place(traceback: &str) -> String {
    let lines = traceback.lines().map(str::trim);
    let called = lines.filter_map(|line| line.split(": in ").next()).find(|place| place.contains(".lua:"));
    called.map_or_else(String::new, |place| format!("{place}: "))
}
