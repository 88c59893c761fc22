//! `stepd`: one per job on every node of the job, started by the node's agent (`stepd run FOLDER`); and the launcher that it
//! starts in turn (`stepd launcher --fd N ...`); the
//! writer of a file (`stepd write-file`); what a task with prologs or PMIx begins as (`stepd task ...`); and a node's PMIx server
//! (`stepd pmix-server`).

use garrick_stepd::{files::writer, launcher, task};
use std::{ffi::OsStr, io::Write, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let words: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    let complain = |text: &str| {
        let _ = writeln!(std::io::stderr(), "stepd: {text}");
        ExitCode::FAILURE
    };
    match words[..] {
        [verb, folder] if verb == "run" => match garrick_stepd::start::main(Path::new(folder)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => complain(&e),
        },
        [verb, ref words @ ..] if verb == "launcher" => match launcher::Arguments::parse(words) {
            Some(arguments) => launcher::main(&arguments),
            None => complain("is started by stepd: stepd launcher --fd N [--listen N PATH] [--successor]"),
        },
        [verb, ref words @ ..] if verb == "task" => match task::Arguments::parse(words) {
            Some(arguments) => ExitCode::from(u8::try_from(task::main(&arguments)).unwrap_or(u8::MAX)),
            None => complain(
                "is started by stepd: stepd task [--site-prolog PROGRAM] [--prolog PROGRAM] [--pmix] [--over-with last|last-or-failed] -- PROGRAM [ARGUMENTS]",
            ),
        },
        [verb] if verb == "pmix-server" => match garrick_pmix::serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => complain(&e.to_string()),
        },
        [verb] if verb == "write-file" => ExitCode::from(u8::try_from(writer::main(None)).unwrap_or(u8::MAX)),
        [verb, flag, user] if verb == "write-file" && flag == "--as" => {
            match user.to_str().and_then(launcher::parse_identity) {
                Some(user) => ExitCode::from(u8::try_from(writer::main(Some(&user))).unwrap_or(u8::MAX)),
                None => complain("is started by stepd: stepd write-file [--as UID:GID:GROUPS]"),
            }
        }
        [verb] if verb == "-V" || verb == "--version" => {
            let _ = std::io::stdout().write_all(garrick_daemon::versions::versions().as_bytes());
            ExitCode::SUCCESS
        }
        _ => complain("is started by a node's agent: stepd run FOLDER"),
    }
}
