//! A filter in any language behind a Unix socket: `CliFilterPlugins=unix:/run/site/cli_filter.sock`. For each call a connection, on
//! which a line of JSON is sent and one is read:
//!
//! ```text
//! {"call":"pre_submit","command":"sbatch","uid":1001,"offset":0,"options":{"ntasks":"2","argv":["job.sh"]}}
//! {"return":0,"messages":["it runs at night"],"options":{"partition":"night"}}
//! ```
//!
//! `call` is `setup_defaults`, `pre_submit`, or, with `jobid` and `stepid`, `post_submit`. In the answer, `return` is 0 or refuses,
//! and `options` are set. Whatever goes wrong refuses, but not after the job is there.

use super::{Looked, Shared, text};
use crate::{options::table::Command, output::Console};
use garrick_frame::line;
use garrick_model::ids::JobId;
use serde_json::{Map, Value as Json, json};
use std::{io, path::Path, time::Duration};

/// Longest that an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer, in bytes: all options fit.
const MOST_OF_ANSWER: u64 = 1 << 20;

/// What the program is asked.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// For defaults.
    Setup,
    /// About the options of this component.
    Before(u32),
}

/// Asks about options, and sets what the answer says. Returns 0 where it accepts.
pub fn ask(path: &Path, call: Call, looked: &Shared, console: &Console) -> i32 {
    let question = question(call, &looked.borrow());
    let outcome = exchange(path, &question).and_then(|answer| take(&answer, looked, console));
    outcome.unwrap_or_else(|error| {
        console.error(format_args!("cli_filter/unix: {}: {error}", path.display()));
        1
    })
}

/// Tells of a job that is there.
pub fn tell(path: &Path, offset: u32, (job, step): (JobId, u32), options: &str, console: &Console) {
    let uid = nix::unistd::getuid().as_raw();
    let question = json!({"call": "post_submit", "uid": uid, "offset": offset, "jobid": job.0, "stepid": step,
        "options": text::map(options)});
    match exchange(path, &question) {
        Ok(answer) => say(&answer, console),
        Err(error) => console.error(format_args!("cli_filter/unix: {}: {error}", path.display())),
    }
}

fn question(call: Call, looked: &Looked) -> Json {
    let (name, offset) = match call {
        Call::Setup => ("setup_defaults", 0),
        Call::Before(offset) => ("pre_submit", offset),
    };
    let command: Command = looked.options.command();
    let uid = nix::unistd::getuid().as_raw();
    json!({"call": name, "command": command.name(), "uid": uid, "offset": offset,
        "options": text::map(&text::options(looked))})
}

fn exchange(path: &Path, question: &Json) -> io::Result<Map<String, Json>> {
    let answer = line::exchange(path, question.to_string().into_bytes(), PATIENCE, MOST_OF_ANSWER)?;
    serde_json::from_slice(&answer).map_err(|error| wrong(&format!("its answer is no JSON object: {error}")))
}

fn wrong(text: &str) -> io::Error {
    io::Error::other(text.to_owned())
}

fn take(answer: &Map<String, Json>, looked: &Shared, console: &Console) -> io::Result<i32> {
    say(answer, console);
    let code =
        answer.get("return").and_then(Json::as_i64).ok_or_else(|| wrong("its answer has no number \"return\""))?;
    for (name, value) in answer.get("options").and_then(Json::as_object).into_iter().flatten() {
        let value = match value {
            Json::String(text) => text.clone(),
            Json::Number(number) => number.to_string(),
            _ => return Err(wrong(&format!("{name} is neither text nor number"))),
        };
        looked.borrow_mut().set(name, &value).map_err(|error| wrong(&error))?;
    }
    Ok(i32::from(code != 0))
}

fn say(answer: &Map<String, Json>, console: &Console) {
    let lines = answer.get("messages").and_then(Json::as_array).into_iter().flatten();
    lines.filter_map(Json::as_str).for_each(|line| console.info(line));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::{filtered::Filtered, sources::GivenOptions, typed::Typed};
    use garrick_model::time::Timestamp;
    use std::{
        cell::RefCell,
        io::{BufRead as _, BufReader, Write as _},
        os::unix::net::UnixListener,
        rc::Rc,
        thread,
    };

    /// Asks a program that gives this answer. Returns the code, the options afterwards, and what it was asked.
    fn asked(answer: &'static str) -> (i32, Vec<String>, Json) {
        let path = std::env::temp_dir().join(format!("garrick-filter-{:x}", garrick_model::ids::RequestId::random().0));
        let program = UnixListener::bind(&path).unwrap();
        let serves = thread::spawn(move || {
            let (stream, _) = program.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
            line
        });
        let options = Filtered::new(Command::Srun, GivenOptions::new(), Typed::default(), Timestamp::from_secs(0));
        let looked = Rc::new(RefCell::new(Looked { options, argv: vec!["true".to_owned()], wrong: None }));
        looked.borrow_mut().set("ntasks", "2").unwrap();
        let code = ask(&path, Call::Before(1), &looked, &Console::new("srun"));
        let line = serves.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        let all = looked.borrow().options.all().map(|(name, value)| format!("{name}={value}")).collect();
        (code, all, serde_json::from_str(&line).unwrap())
    }

    #[test]
    fn a_program_is_asked_and_sets_options() {
        let (code, options, question) = asked("{\"return\":0,\"options\":{\"time\":5,\"partition\":\"night\"}}\n");
        assert_eq!((code, options), (0, ["ntasks=2", "partition=night", "time=00:05:00"].map(str::to_owned).to_vec()));
        let uid = nix::unistd::getuid().as_raw();
        let want = json!({"call": "pre_submit", "command": "srun", "uid": uid, "offset": 1,
            "options": {"ntasks": "2", "argv": ["true"]}});
        assert_eq!(question, want);
    }

    #[test]
    fn whatever_goes_wrong_refuses() {
        for answer in ["{\"return\":5}\n", "{}\n", "no\n", "", "{\"return\":0,\"options\":{\"ntasks\":\"x\"}}\n"] {
            assert_eq!(asked(answer).0, 1, "{answer}");
        }
    }
}
