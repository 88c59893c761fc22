//! Finds, reads and checks a batch script, with Slurm's messages.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read as _},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

/// A script that cannot be submitted. The texts are Slurm's.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// Not found or not readable.
    #[error("Unable to open file {0}")]
    Open(String),
    /// Reading broke off.
    #[error("Unable to read file {0}: {1}")]
    Read(String, io::Error),
    /// Nothing in it.
    #[error("Batch script is empty!")]
    Empty,
    /// Only blanks in it.
    #[error("Batch script contains only whitespace!")]
    Blank,
    /// No interpreter.
    #[error(
        "This does not look like a batch script.  The first\nline must start with #! followed by the path to an \
         interpreter.\nFor instance: #!/bin/sh"
    )]
    NoInterpreter,
    /// A NUL byte.
    #[error("The Slurm controller does not allow scripts that\ncontain a NULL character '\\0'.")]
    Nul,
    /// Line ends of DOS.
    #[error("Batch script contains DOS line breaks (\\r\\n)\ninstead of expected UNIX line breaks (\\n).")]
    DosLineBreaks,
}

/// A script that can be submitted.
#[derive(Debug)]
pub struct BatchScript {
    /// Its text.
    pub text: Vec<u8>,
    /// Its absolute path; `None` when it came from standard input or `--wrap`.
    pub path: Option<String>,
    /// Name for the job.
    pub name: String,
}

/// The script at `file`, looked up as a shell would where it has no slash, after the working directory.
pub fn from_file(file: &OsStr) -> Result<BatchScript, ScriptError> {
    let shown = file.to_string_lossy().into_owned();
    let path = find(file).ok_or_else(|| ScriptError::Open(shown.clone()))?;
    let absolute = env::current_dir().map_or_else(|_| path.clone(), |dir| dir.join(&path));
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            return Err(ScriptError::Open(absolute.to_string_lossy().into_owned()));
        }
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Err(ScriptError::Empty),
        Err(error) => return Err(ScriptError::Read(shown, error)),
    };
    check(&text)?;
    Ok(BatchScript {
        text,
        name: path.file_name().unwrap_or(file).to_string_lossy().into_owned(),
        // A path from here or from above stays as it is written, as in Slurm.
        path: Some(if shown.starts_with('.') { shown } else { absolute.to_string_lossy().into_owned() }),
    })
}

/// The script on standard input.
pub fn from_stdin() -> Result<BatchScript, ScriptError> {
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text).map_err(|e| ScriptError::Read("stdin".to_owned(), e))?;
    check(&text)?;
    Ok(BatchScript { text, path: None, name: "sbatch".to_owned() })
}

/// `--wrap`
pub fn wrapped(command: OsString) -> BatchScript {
    let mut text = b"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n".to_vec();
    text.extend(command.into_vec());
    text.push(b'\n');
    BatchScript { text, path: None, name: "wrap".to_owned() }
}

/// Checks a script's text.
pub fn check(text: &[u8]) -> Result<(), ScriptError> {
    if text.is_empty() {
        Err(ScriptError::Empty)
    } else if text.iter().all(u8::is_ascii_whitespace) {
        Err(ScriptError::Blank)
    } else if !text.starts_with(b"#!") {
        Err(ScriptError::NoInterpreter)
    } else if text.contains(&0) {
        Err(ScriptError::Nul)
    } else if text.windows(2).any(|pair| pair == b"\r\n") {
        Err(ScriptError::DosLineBreaks)
    } else {
        Ok(())
    }
}

fn find(file: &OsStr) -> Option<PathBuf> {
    let readable = |path: &Path| fs::metadata(path).is_ok_and(|m| !m.is_dir());
    let direct = PathBuf::from(file);
    if readable(&direct) || (file.as_bytes().contains(&b'/') && direct.exists()) {
        return Some(direct);
    }
    if file.as_bytes().contains(&b'/') {
        return None;
    }
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(file)).find(|path| readable(path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn scripts_are_checked_in_slurms_words() {
        let said = |text: &[u8]| check(text).unwrap_err().to_string();
        assert_eq!(said(b""), "Batch script is empty!");
        assert_eq!(said(b" \n\t\n"), "Batch script contains only whitespace!");
        assert!(said(b"echo hi\n").starts_with("This does not look like a batch script.  The first\nline must start"));
        assert!(said(b"#!/bin/sh\r\necho\r\n").contains("DOS line breaks"));
        assert!(said(b"#!/bin/sh\n\0").contains("NULL character"));
        assert!(check(b"#!/bin/sh\n").is_ok());
    }

    #[test]
    fn a_missing_script_is_named_as_typed() {
        let error = from_file(OsStr::new("./nosuch.sh")).unwrap_err();
        assert_eq!(error.to_string(), "Unable to open file ./nosuch.sh");
        // Slurm reads nothing in a folder.
        assert!(matches!(from_file(OsStr::new("/tmp")), Err(ScriptError::Empty)));
    }

    #[test]
    fn a_wrapped_command_becomes_a_script() {
        let script = wrapped("echo hi".into());
        assert!(script.text.starts_with(b"#!/bin/sh\n") && script.text.ends_with(b"\necho hi\n"));
        assert!(check(&script.text).is_ok());
        assert_eq!((script.name.as_str(), script.path), ("wrap", None));
    }

    #[test]
    fn a_script_has_its_absolute_path_and_base_name() {
        let path = env::temp_dir().join(format!("garrick-script-{}.sh", std::process::id()));
        fs::write(&path, "#!/bin/sh\n").unwrap();
        let script = from_file(path.as_os_str()).unwrap();
        assert_eq!(script.path.as_deref(), path.to_str());
        assert_eq!(Some(script.name.as_str()), path.file_name().unwrap().to_str());
        fs::remove_file(path).unwrap();
    }
}
