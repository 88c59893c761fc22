//! `garrick journal`: reads the journals of controllers and step managers. Nothing here writes to one or waits for a daemon that
//! has it open.
//!
//! | module | what it is |
//! |---|---|
//! | [`events`] | decodes the records of either kind |
//! | [`show`] | a line for each record |
//! | [`describe`] | the text of a line |
//! | [`verify`] | checks that it is intact |
//! | [`export`] | a JSON object for each record |
//! | [`value`] | a record as JSON |

mod describe;
mod events;
mod export;
mod show;
mod value;
mod verify;

use crate::{
    options::table::Arg,
    output::{self, Console},
    query::arguments::{self, Arguments, Outcome, Table, option},
};
use garrick_journal::JournalError;
use garrick_model::ids::JobId;
use std::{ffi::OsString, path::Path};

pub(crate) static TABLE: Table = Table {
    program: "garrick journal",
    purpose: "Read a journal: of a controller (StateSaveLocation/journal) or of a run's step manager\n\
              (SlurmdSpoolDir/runs/SLUID/steps). The file is only read; a daemon may have it open.\n\n  \
              show     a line for each record: offset, time, owner, event, main fields\n  \
              verify   read the whole file and print whether it is intact\n  \
              export   a JSON object for each record\n\n\
              Exit code 0, also if the last record is incomplete; 1 if it is damaged before its end; 2 if it is not a journal\n\
              of this version, cannot be read, or the command line is wrong.",
    operands: "show|verify|export FILE",
    words: &[],
    options: &[
        option("job", Some('j'), Arg::Required("N"), "show: only records about this job"),
        option("lines", Some('n'), Arg::Required("N"), "show: only the last N lines"),
    ],
    misuse: MISUSE,
};

/// Damaged before its end.
const DAMAGED: i32 = 1;
/// Not read, or not asked well.
const MISUSE: i32 = 2;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Show { job: Option<JobId>, lines: Option<usize> },
    Verify,
    Export,
}

fn request(arguments: &Arguments) -> Result<(Action, &Path), String> {
    let [action, file] = arguments.operands.as_slice() else {
        return Err("expected show, verify or export, and one file".to_owned());
    };
    let job = arguments.value("job").map(|text| text.parse().map_err(|e| format!("--job: {e}"))).transpose()?;
    let lines = arguments
        .value("lines")
        .map(|text| text.parse().map_err(|_| format!("--lines: \"{text}\" is not a number of lines")))
        .transpose()?;
    let action = match action.to_str() {
        Some("show") => Action::Show { job, lines },
        _ if job.is_some() || lines.is_some() => return Err("--job and --lines are for show".to_owned()),
        Some("verify") => Action::Verify,
        Some("export") => Action::Export,
        _ => return Err(format!("\"{}\" is none of show, verify, export", action.to_string_lossy())),
    };
    Ok((action, Path::new(file)))
}

/// Runs `garrick journal`. Returns its exit code.
pub fn main(args: &[OsString], console: &Console) -> i32 {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    let (action, path) = match request(&arguments) {
        Ok(request) => request,
        Err(text) => return misused(&text, console),
    };
    match action {
        Action::Show { job, lines } => show::run(path, job, lines, console),
        Action::Verify => verify::run(path, console),
        Action::Export => export::run(path, console),
    }
}

fn misused(text: &str, console: &Console) -> i32 {
    console.error(text);
    output::stderr(format!("Try \"{} --help\" for more information\n", TABLE.program).as_bytes());
    MISUSE
}

/// Says what is wrong with a journal. Returns the exit code for it.
fn failed(error: &JournalError, console: &Console) -> i32 {
    console.error(error);
    if matches!(error, JournalError::Damaged { .. }) { DAMAGED } else { MISUSE }
}

/// Says that a journal's end is torn.
fn say_torn(offset: u64, bytes: u64, console: &Console) {
    console.line(format_args!(
        "the last record, at byte {offset}, is not whole: {bytes} bytes, which its daemon is writing now or cuts off at its next start"
    ));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn asked(words: &str) -> Result<Action, String> {
        let args: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        request(&arguments::parse(&TABLE, &args).unwrap()).map(|(action, _)| action)
    }

    #[test]
    fn action_file_and_options_are_told_apart() {
        assert_eq!(asked("verify f"), Ok(Action::Verify));
        assert_eq!(asked("export f"), Ok(Action::Export));
        assert_eq!(asked("show -n 3 --job=7 f"), Ok(Action::Show { job: Some(JobId(7)), lines: Some(3) }));
        assert_eq!(asked("show f"), Ok(Action::Show { job: None, lines: None }));
        for wrong in
            ["show", "show f g", "repair f", "verify --lines=3 f", "export --job=1 f", "show --job=0 f", "show -n x f"]
        {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }
}
