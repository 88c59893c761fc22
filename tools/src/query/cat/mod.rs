//! `garrick cat`: reads output packs.
//!
//! | module | what it is |
//! |---|---|
//! | [`which`] | `--step` |
//! | [`sources`] | the files of an operand |
//! | [`lines`] | output passed on in whole lines |
//! | [`list`] | `--list` |
//! | [`follow`] | `--follow` |

mod follow;
mod lines;
mod list;
mod sources;
mod which;

use super::arguments::{self, Arguments, Outcome, Table, option};
use crate::{
    options::table::Arg,
    output::{self, Console},
};
use garrick_pack::{Content, PackError, PackReader, Presence, Record, Selection, Stream, Tail};
use lines::{Lines, Sink};
use std::{
    ffi::OsString,
    io::{self, Write},
    path::PathBuf,
};

pub(crate) static TABLE: Table = Table {
    program: "garrick cat",
    purpose: "Print the output of steps from an output pack (srun --output-pack=FILE), in the order in which it was written.\n\
              If there is no FILE, but a FILE.NODE for each node, these are read.",
    operands: "FILE...",
    words: &[],
    options: &[
        option(
            "step",
            None,
            Arg::Required("LIST"),
            "only these steps: 7, 7_3, 7_[1-10], 3-9, batch, 5609.7, and comma-separated lists of these",
        ),
        option("stderr", None, Arg::None, "standard error instead of standard output"),
        option("all", None, Arg::None, "standard output and standard error, each to its own stream"),
        option("label", Some('l'), Arg::None, "put the step's id before each line, with #ATTEMPT and -RANK if not 0"),
        option("list", None, Arg::None, "a line for each task of each step instead of its output"),
        option("follow", Some('f'), Arg::None, "continue while the files grow, until their writers have closed them"),
    ],
    misuse: 1,
};

/// Which streams are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Stdout,
    Stderr,
    Both,
}

impl Wanted {
    /// Where a stream goes, if it is wanted.
    fn goes(self, stream: Stream) -> Option<Stream> {
        match (self, stream) {
            (Self::Both, stream) => Some(stream),
            (Self::Stdout, Stream::Stdout) | (Self::Stderr, Stream::Stderr) => Some(Stream::Stdout),
            (Self::Stdout, Stream::Stderr) | (Self::Stderr, Stream::Stdout) => None,
        }
    }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    files: Vec<PathBuf>,
    /// Steps; `None` for all.
    selection: Option<Selection>,
    wanted: Wanted,
    label: bool,
    list: bool,
    follow: bool,
}

pub(crate) fn request(arguments: &Arguments) -> Result<Request, String> {
    let selection = arguments
        .options
        .iter()
        .filter(|o| o.def.long == "step")
        .filter_map(|o| o.value.as_ref())
        .map(|list| which::parse(&list.to_string_lossy()))
        .collect::<Result<Vec<_>, _>>()?;
    let request = Request {
        files: arguments.operands.iter().map(PathBuf::from).collect(),
        selection: arguments.has("step").then(|| Selection { picks: selection.into_iter().flatten().collect() }),
        wanted: match (arguments.has("all"), arguments.has("stderr")) {
            (true, _) => Wanted::Both,
            (false, true) => Wanted::Stderr,
            (false, false) => Wanted::Stdout,
        },
        label: arguments.has("label"),
        list: arguments.has("list"),
        follow: arguments.has("follow"),
    };
    if request.files.is_empty() {
        return Err("which output pack?".to_owned());
    }
    if request.list && request.follow {
        return Err("--list and --follow do not go together".to_owned());
    }
    Ok(request)
}

/// Runs `garrick cat`. Returns its exit code: 0, or 1 when something could not be read or a step is not there.
pub fn main(args: &[OsString], console: &Console) -> i32 {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    let request = match request(&arguments) {
        Ok(request) => request,
        Err(text) => {
            console.error(text);
            output::stderr(format!("Try \"{} --help\" for more information\n", TABLE.program).as_bytes());
            return TABLE.misuse;
        }
    };
    let mut code = 0;
    let mut report = |text: String| {
        console.error(text);
        code = 1;
    };
    let written = output::stdout_as_is(|out| {
        let mut sink = Terminal { out };
        match (request.follow, request.list) {
            (true, _) => follow::run(&request, &mut sink, console, &mut report),
            (false, true) => list::run(&request, &mut sink, &mut report),
            (false, false) => print(&request, &mut sink, &mut report),
        }
    });
    output::finish(console, written, code)
}

/// Standard output and error; what is written to both comes out in that order.
struct Terminal<'a> {
    out: &'a mut dyn Write,
}

impl Sink for Terminal<'_> {
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        match stream {
            Stream::Stdout => self.out.write_all(bytes),
            Stream::Stderr => {
                self.out.flush()?;
                output::stderr(bytes);
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads every record that is asked for, of all files, as they are now.
fn read_all(
    request: &Request,
    sink: &mut dyn Sink,
    report: &mut dyn FnMut(String),
    mut each: impl FnMut(&mut dyn Sink, &Record<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut found = request.selection.is_none();
    let mut complete = true;
    for path in sources::files(&request.files, &mut |error| {
        complete = false;
        report(error.to_string());
    }) {
        let opened = PackReader::open(&path).and_then(|mut reader| {
            if let Some(selection) = &request.selection {
                reader.select(selection.clone())?;
            }
            // Before the end is looked for: a block that is not whole is no damage while someone writes it.
            let writer = reader.writer()?;
            Ok((reader, writer))
        });
        let (mut reader, writer) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                complete = false;
                report(error.to_string());
                continue;
            }
        };
        while let Some(next) = reader.next_record() {
            match next {
                Ok(record) => {
                    found = true;
                    each(sink, &record)?;
                }
                Err(error) => {
                    sink.flush()?;
                    complete = false;
                    report(error.to_string());
                    if !matches!(error, PackError::Damaged { .. }) {
                        break;
                    }
                }
            }
        }
        if let (Tail::Torn { offset, bytes }, false) = (reader.tail(), writer == Presence::Present) {
            sink.flush()?;
            complete = false;
            report(format!(
                "{}: the last {bytes} bytes are a block that was not finished, at offset {offset}",
                path.display()
            ));
        }
    }
    if !found && complete {
        report("no records of such steps".to_owned());
    }
    Ok(())
}

fn print(request: &Request, sink: &mut dyn Sink, report: &mut dyn FnMut(String)) -> io::Result<()> {
    let mut lines = Lines::new(request.label);
    read_all(request, sink, report, |sink, record| pass_on(request, &mut lines, sink, record))?;
    lines.finish(sink)
}

/// A record's output, if it is wanted.
fn pass_on(request: &Request, lines: &mut Lines, sink: &mut dyn Sink, record: &Record<'_>) -> io::Result<()> {
    match record.content {
        Content::Output { stream, bytes } => match request.wanted.goes(stream) {
            Some(stream) => lines.output(sink, &record.task, stream, bytes),
            None => Ok(()),
        },
        Content::End(_) => lines.end(sink, &record.task),
    }
}
