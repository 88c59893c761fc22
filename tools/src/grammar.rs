//! Parses what users write for commands, as the commands do, without carrying it out: no files are read, no environment is used,
//! no daemon is asked. For fuzzing.

use crate::{
    control::{sacctmgr, scancel, scontrol, stail, strigger},
    graph::{self, plan::Plan},
    options::{
        getopt::Parsed,
        job_spec::{self, Submitter, Work},
        script_lines::{self, ScriptLine},
        sources,
        step_spec::StepWork,
        table::{Command, options_of},
        typed::Typed,
    },
    query::{
        arguments::{self, Arguments, Table},
        cat, sacct, sdiag, sinfo, sprio, squeue, sreport, sshare, sstat,
    },
    step_lists::list_line,
    submit::{
        attach,
        file_settings::{self, Settings},
        minibatch::asked,
        multi_prog,
        sbcast::target::Named,
        scrontab,
    },
};
use garrick_model::{
    ids::JobId,
    spec::{JobKind, JobSpec, StepSpec},
    time::Timestamp,
};
use garrick_render::sreport::Report;
use jiff::tz::TimeZone;
use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

/// The commands that [`read_words`] knows.
pub const COMMANDS: [&str; 22] = [
    "sbatch",
    "salloc",
    "srun",
    "swait",
    "squeue",
    "sinfo",
    "sprio",
    "sdiag",
    "sshare",
    "sstat",
    "sacct",
    "scancel",
    "sattach",
    "sbcast",
    "scrontab",
    "strigger",
    "scontrol",
    "update",
    "reservation",
    "cat",
    "sacctmgr",
    "sreport",
];

/// When dates without a year are read.
const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// A file that a list names would be read: such words are left alone.
fn names_a_file(words: &[OsString]) -> bool {
    words.iter().any(|word| word.as_bytes().contains(&b'/'))
}

fn submitter() -> Submitter {
    Submitter { work_dir: "/work".into(), host: "n1".into(), ..Submitter::default() }
}

/// The job that `sbatch` or `salloc` would submit.
fn job_of(typed: &Typed, script: Option<Vec<u8>>) -> Option<JobSpec> {
    let (kind, command) = (JobKind::Batch, Some("/work/job.sh".to_owned()));
    let work = Work { kind, default_name: "job.sh".into(), argv: Vec::new(), script, command };
    job_spec::build(typed, submitter(), work).ok().map(|checked| checked.spec)
}

/// The step that `srun --async` would hand over.
fn step_of(typed: &Typed, argv: Vec<OsString>) -> Option<StepSpec> {
    let work = StepWork { argv, program: "true".into(), ..StepWork::default() };
    asked::spec(typed, JobId(1), submitter(), work).ok().map(|checked| checked.spec)
}

fn typed_of(command: Command, script: &[ScriptLine], line: &Parsed) -> Option<Typed> {
    sources::lay_over(command, script, &|_| None, &line.options, NOW).ok()
}

/// The arguments, if they can be taken apart and nothing is refused.
fn taken_apart(table: &'static Table, words: &[OsString]) -> Option<Arguments> {
    arguments::parse(table, words).ok().filter(|arguments| arguments.refused().is_none())
}

/// Takes the arguments of a command apart, as far as that goes without asking anybody. True: they can be used.
pub fn read_words(command: &str, words: &[OsString]) -> bool {
    let texts = || words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let no_variable = |_: &str| None;
    match command {
        "sbatch" | "salloc" | "srun" | "swait" => {
            let command = match command {
                "sbatch" => Command::Sbatch,
                "salloc" => Command::Salloc,
                "srun" => Command::Srun,
                _ => Command::Swait,
            };
            let Ok(line) = sources::command_line(command, words) else { return false };
            let Some(typed) = typed_of(command, &[], &line) else { return false };
            if names_a_file(words) {
                return true;
            }
            match command {
                Command::Sbatch | Command::Salloc => job_of(&typed, None).is_some(),
                Command::Srun => job_of(&typed, None).is_some() && step_of(&typed, line.rest).is_some(),
                Command::Swait => true,
            }
        }
        "squeue" => taken_apart(&squeue::options::TABLE, &squeue::attach_ids(words.to_vec()))
            .is_some_and(|arguments| squeue::options::read(&arguments, no_variable).is_ok()),
        "sinfo" => taken_apart(&sinfo::options::TABLE, words)
            .is_some_and(|arguments| sinfo::options::read(&arguments, no_variable).is_ok()),
        "sprio" => taken_apart(&sprio::options::TABLE, words)
            .is_some_and(|arguments| sprio::options::read(&arguments, no_variable).is_ok()),
        "sdiag" => {
            taken_apart(&sdiag::TABLE, words).is_some_and(|arguments| sdiag::read(&arguments, no_variable).is_ok())
        }
        "sshare" => taken_apart(&sshare::options::TABLE, words)
            .is_some_and(|arguments| sshare::options::read(&arguments, &|| "root".to_owned()).is_ok()),
        "sstat" => {
            taken_apart(&sstat::options::TABLE, words).is_some_and(|arguments| sstat::options::read(&arguments).is_ok())
        }
        "sacct" => taken_apart(&sacct::options::TABLE, words).is_some_and(|arguments| {
            let asker = sacct::options::Asker { uid: 0, now: NOW, zone: TimeZone::UTC };
            sacct::options::read(&arguments, no_variable, &asker)
                .is_ok_and(|request| garrick_render::sacct::fields::columns(&request.format).is_ok())
        }),
        "scancel" => {
            taken_apart(&scancel::TABLE, words).is_some_and(|arguments| scancel::read(&arguments, no_variable).is_ok())
        }
        "sattach" => taken_apart(&attach::TABLE, words).is_some_and(|arguments| attach::read(&arguments).is_ok()),
        "sbcast" => taken_apart(&file_settings::TABLE, words).is_some_and(|arguments| {
            let mut remarks = Vec::new();
            Settings::of_site(None).laid_over(no_variable, &arguments, &mut remarks);
            remarks.is_empty() && arguments.value("jobid").is_none_or(|text| Named::parse(&text).is_ok())
        }),
        "scrontab" => {
            taken_apart(&scrontab::TABLE, words).is_some_and(|arguments| scrontab::action(&arguments, false).is_some())
        }
        "strigger" => taken_apart(&strigger::TABLE, words)
            .is_some_and(|arguments| names_a_file(words) || strigger::read(&arguments).is_ok()),
        "cat" => taken_apart(&cat::TABLE, words).is_some_and(|arguments| cat::request(&arguments).is_ok()),
        "scontrol" => taken_apart(&scontrol::TABLE, words)
            .is_some_and(|arguments| arguments.words().iter().all(|word| stail::prefix(word).is_some())),
        "sacctmgr" => {
            taken_apart(&sacctmgr::TABLE, words).is_some_and(|arguments| sacctmgr::is_readable(&arguments.words()))
        }
        "sreport" => taken_apart(&sreport::TABLE, words).is_some_and(|arguments| {
            let words = arguments.words();
            let mut wrong = Vec::new();
            sreport::conditions::Asked::read(words.get(2..).unwrap_or_default(), NOW, &TimeZone::UTC, &mut wrong);
            wrong.is_empty() && words.len() >= 2 && Report::read(&words[0], Some(&words[1])).is_ok()
        }),
        "update" => scontrol::update::parse(&texts(), NOW, &TimeZone::UTC).is_ok(),
        "reservation" => scontrol::reservations::read(&texts(), NOW, &TimeZone::UTC).is_ok(),
        _ => false,
    }
}

/// Reads the option lines of a script as `sbatch` (or `srun`) does. True: a job would come of it.
pub fn read_script(text: &[u8], of_srun: bool) -> bool {
    let (command, marks) =
        if of_srun { (Command::Srun, script_lines::OF_SRUN) } else { (Command::Sbatch, script_lines::OF_SBATCH) };
    let Ok(head) = script_lines::read(text, marks) else { return false };
    let empty = Parsed { options: Vec::new(), rest: Vec::new() };
    let components = std::iter::once(&head.lines).chain(&head.others);
    components.into_iter().all(|lines| {
        let typed = typed_of(command, lines, &empty);
        typed.is_some_and(|typed| {
            lines.iter().any(|line| names_a_file(&line.words)) || job_of(&typed, Some(text.to_vec())).is_some()
        })
    })
}

/// Reads a list of commands as `srun --from-file` does, line by line. Returns how many steps it would give.
pub fn read_step_list(text: &[u8]) -> usize {
    let options = options_of(Command::Srun);
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .filter(|line| {
            let Ok(Some(line)) = list_line::read(line, &options) else { return false };
            let mut typed = Typed::default();
            if sources::lay_on(&mut typed, &line.options, NOW).is_err() || line.options_text.contains(&b'/') {
                return false;
            }
            let argv = line.argv.iter().map(|word| std::ffi::OsStr::from_bytes(word).to_owned()).collect();
            step_of(&typed, argv).is_some()
        })
        .count()
}

/// Reads a graph of steps as `sbatch --graph` does, and hands it over to nobody. Returns how many descriptions it has. No file is
/// there, and none is read: graphs that name one of values are left alone.
pub fn read_graph(text: &[u8]) -> usize {
    let has = |word: &[u8]| text.windows(word.len()).any(|part| part == word);
    let names_values = [&b"@"[..], b"each-csv", b"\\u", b"\\U", b"\\x"].into_iter().any(has);
    if names_values {
        return 0;
    }
    let Ok(graph) = graph::parse(text, Path::new("/work"), &|_| false) else { return 0 };
    let count = graph.steps.len();
    let mut plan = Plan::new(Arc::new(graph), &[]);
    let options = options_of(Command::Srun);
    // A few lines of each description show how all are made.
    for _ in 0..4 * count {
        if plan.next(&options).is_none() {
            break;
        }
    }
    count
}

/// Reads a file of `srun --multi-prog`. True: it can be used.
pub fn read_multi_prog(text: &str) -> bool {
    multi_prog::parse(text).is_ok_and(|programs| {
        let tasks = multi_prog::task_count(&programs).unwrap_or(1);
        multi_prog::check(&programs, tasks).is_ok()
    })
}

/// Reads a crontab and the options of its entries as `scrontab` does. Returns how many entries it has.
pub fn read_crontab(text: &[u8]) -> usize {
    let entries = scrontab::text::parse(text).unwrap_or_default();
    let reads = |entry: &&scrontab::text::Entry| {
        entry.words.iter().any(|word| word.contains('/')) || scrontab::options::read(&entry.words, NOW).is_ok()
    };
    entries.iter().filter(reads).count()
}

/// Takes a line that was typed at `scontrol`'s prompt apart.
pub fn read_prompt(line: &str) -> Vec<String> {
    scontrol::split_words(line)
}
