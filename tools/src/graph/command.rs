//! `garrick graph`: checks a graph's file and describes it.

use super::{
    GraphText,
    check::Graph,
    here, picture,
    resume::Completed,
    script,
    written::{Many, Step, kind_word},
};
use crate::{
    options::table::Arg,
    output::{self, Console},
    query::arguments::{self, Outcome, Table, option},
};
use serde_json::{Value as Json, json};
use std::{
    ffi::OsString,
    fmt::Write as _,
    path::{Path, PathBuf},
};

pub(crate) static TABLE: Table = Table {
    program: "garrick graph",
    purpose: "Check a graph of steps: labels, options, files, cycles. All errors are printed with their lines.\n\
              sbatch --graph FILE runs it as a job; srun --graph FILE runs it in the current job.\n\
              Exit code: 0, or 1 if there are errors.",
    operands: "FILE",
    words: &[],
    options: &[
        option(
            "svg",
            None,
            Arg::Required("FILE"),
            "draw the graph (SVG; -: to standard output, in place of the summary)",
        ),
        option("json", None, Arg::None, "all steps with their dependencies, as JSON"),
        option("resume-from", None, Arg::Required("JOB[,...]"), "print how much of the graph completed in these jobs"),
        option("chdir", Some('D'), Arg::Required("DIR"), "folder for relative file names; default: the current one"),
    ],
    misuse: 1,
};

/// Most labels of the longest way that are shown.
const MOST_LABELS: usize = 12;

/// Runs it; `args` are without the command's name. Returns the exit code.
pub fn main(args: &[OsString], console: &Console) -> i32 {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    let [file] = arguments.operands.as_slice() else {
        console.error("name one file (- is standard input)");
        output::stderr(format!("Try \"{} --help\" for more information\n", TABLE.program).as_bytes());
        return TABLE.misuse;
    };
    let wrong = |error: String| {
        error.lines().for_each(|line| console.error(line));
        1
    };
    let text = match GraphText::read(Path::new(file)) {
        Ok(text) => text,
        Err(error) => return wrong(error.to_string()),
    };
    let dir = match folder(&text, arguments.value("chdir")) {
        Ok(dir) => dir,
        Err(error) => return wrong(format!("{}: {error}", text.file)),
    };
    let graph = match text.graph(&dir) {
        Ok(graph) => graph,
        Err(error) => return wrong(error.to_string()),
    };
    let mut shares = Vec::new();
    if let Some(jobs) = arguments.value("resume-from") {
        match Completed::read(&jobs, None, console) {
            Ok(completed) => {
                let left = completed.left(&graph);
                left.say(&graph, &jobs, console);
                shares = left.shares;
            }
            Err(code) => return code,
        }
    }
    let mut said = if arguments.has("json") { format!("{:#}\n", as_json(&graph)) } else { summary(&text.file, &graph) };
    if let Some(file) = arguments.value("svg") {
        let drawn = picture::svg(&graph, &shares).map_err(|error| format!("{}: {error}", text.file));
        let written = drawn.and_then(|drawn| match file.as_str() {
            "-" => {
                said = drawn;
                Ok(())
            }
            file => std::fs::write(file, drawn).map_err(|error| format!("Unable to write {file}: {error}")),
        });
        if let Err(error) = written {
            console.error(error);
            return 1;
        }
    }
    output::finish(console, output::stdout(|out| out.write_all(said.as_bytes())), 0)
}

/// Where names of files begin: where the job will, by the command line or by what the file itself says.
fn folder(text: &GraphText, given: Option<String>) -> Result<PathBuf, String> {
    let head = script::head(text).map_err(|error| error.to_string())?;
    script::check_head(&head.lines)?;
    let own = || script::in_head(&head.lines, "chdir").and_then(|option| option.value);
    Ok(given.map(OsString::from).or_else(own).map_or_else(here, |dir| here().join(dir)))
}

fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The result.
fn summary(file: &str, graph: &Graph) -> String {
    let mut text = String::new();
    let arrays = graph.steps.iter().filter(|step| matches!(step.many, Many::Array(_))).count() as u64;
    let waits: Vec<_> = graph.waits.iter().flatten().collect();
    let by_file = waits.iter().filter(|wait| wait.file.is_some()).count();
    let way = graph.longest_way();
    let label = |at: &usize| graph.steps[*at].label.as_str();
    let mut labels: Vec<&str> = way.iter().map(label).collect();
    if labels.len() > MOST_LABELS {
        labels.splice(MOST_LABELS / 2..labels.len() - MOST_LABELS / 2, ["..."]);
    }
    let (level, widest) = graph.widest();
    let described = plural(graph.steps.len() as u64, "description", "descriptions");
    let _ = writeln!(text, "{file}: {} of {described}", plural(graph.count(), "step", "steps"));
    let _ = writeln!(text, "Arrays: {arrays}");
    let _ = writeln!(text, "Dependencies: {} ({by_file} by files)", waits.len());
    let _ = writeln!(text, "Longest way: {}: {}", plural(way.len() as u64, "step", "steps"), labels.join(" > "));
    let _ = writeln!(text, "Widest level: {} of {} at once", level + 1, plural(widest, "step", "steps"));
    text
}

fn words(step: &Step) -> Json {
    let word = |word: &Vec<u8>| Json::from(String::from_utf8_lossy(word));
    let argv: Vec<Json> = match &step.many {
        Many::Each(each) => each.line(0, &[]).argv.iter().map(word).collect(),
        Many::One | Many::Array(_) => step.argv.iter().map(word).collect(),
    };
    argv.into()
}

fn as_json(graph: &Graph) -> Json {
    let levels = graph.levels();
    let of = |at: usize| {
        let step = &graph.steps[at];
        let waits: Vec<Json> = graph.waits[at]
            .iter()
            .map(|wait| {
                let mut object = json!({ "kind": kind_word(wait.kind), "label": graph.steps[wait.on].label });
                if let Some(file) = &wait.file {
                    object["file"] = file.as_str().into();
                }
                object
            })
            .collect();
        let options: serde_json::Map<String, Json> = step
            .settings
            .iter()
            .map(|setting| {
                let value = setting.option.value.as_ref();
                let value = value.map_or(Json::Bool(true), |value| value.to_string_lossy().into());
                (setting.option.def.long.to_owned(), value)
            })
            .collect();
        let environment: serde_json::Map<String, Json> =
            step.environment.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let files = |names: &[super::written::FileName]| names.iter().map(|n| Json::from(n.text.as_str())).collect();
        let (reads, writes): (Vec<Json>, Vec<Json>) = (files(&step.reads), files(&step.writes));
        let array = match &step.many {
            Many::Array(tasks) => Json::from(tasks.to_string()),
            Many::One | Many::Each(_) => Json::Null,
        };
        json!({
            "label": step.label, "line": step.line, "level": levels[at], "steps": step.count(), "array": array,
            "command": words(step), "options": options, "environment": environment, "after": waits,
            "reads": reads, "writes": writes,
        })
    };
    json!({ "steps": (0..graph.steps.len()).map(of).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::graph;

    #[test]
    fn files_are_looked_for_where_the_job_will_be() {
        let of = |text: &str, given: Option<&str>| {
            folder(&GraphText { file: "p".into(), text: text.into() }, given.map(str::to_owned))
        };
        assert_eq!(of("#SBATCH --chdir=/there\n", None), Ok(PathBuf::from("/there")));
        assert_eq!(of("#SBATCH -D there\n", None), Ok(here().join("there")));
        assert_eq!(of("#SBATCH --chdir=/there\n", Some("/given")), Ok(PathBuf::from("/given")));
        assert_eq!(of("[[step]]\n", None), Ok(here()));
        assert_eq!(of("#SBATCH --array=1-3\n", None), Err("#SBATCH --array cannot stand in a graph".to_owned()));
    }

    #[test]
    fn a_graph_is_summed_up_and_written_out() {
        let text = "[[step]]\nlabel = 'a'\ncommand = './a'\nwrites = 'f'\n[[step]]\nlabel = 'b'\narray = '0-9%2'\n\
                    command = './b'\nreads = 'f'\nmem = 5\n[[step]]\nlabel = 'c'\ncommand = './c'\nafter = 'afterany:b'\n";
        let graph = graph::parse(text.as_bytes(), Path::new("/w"), &|_| false).unwrap();
        assert_eq!(
            summary("g.toml", &graph),
            "g.toml: 12 steps of 3 descriptions\nArrays: 1\nDependencies: 2 (1 by files)\n\
             Longest way: 3 steps: a > b > c\nWidest level: 2 of 10 steps at once\n"
        );
        let json = as_json(&graph);
        let b = &json["steps"][1];
        assert_eq!(b["after"], json!([{ "kind": "afterok", "label": "a", "file": "f" }]));
        assert_eq!((&b["array"], &b["options"], &b["level"]), (&json!("0-9%2"), &json!({ "mem": "5" }), &json!(1)));
    }
}
