//! `strigger`: sets, shows and removes triggers: programs that the controller runs when something happens.

use crate::{
    options::table::Arg,
    output::{self, Console},
    query::{
        arguments::{self, Arguments, Outcome, Table, inert, option},
        choices,
    },
    telling::Tell as _,
};
use garrick_asking::contact::{AskError, Contact};
use garrick_model::{
    hostlist,
    ids::JobId,
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
    trigger::{Trigger, TriggerAbout, TriggerEvent, TriggerRequest, TriggerSelector},
};
use std::{collections::BTreeSet, ffi::OsString, fs, path::Path};

pub(crate) static TABLE: Table = Table {
    program: "strigger",
    purpose: "Set, show or remove triggers: programs that the controller runs when something happens.",
    operands: "",
    words: &[],
    options: &[
        option("set", None, Arg::None, "set a trigger; for SlurmUser, and for others where the site allows it"),
        option("get", None, Arg::None, "show triggers"),
        option("clear", None, Arg::None, "remove triggers: needs --id, --jobid or --user"),
        option("primary_slurmctld_failure", Some('a'), Arg::None, "the controller of the primary host failed"),
        option("primary_slurmctld_resumed_operation", Some('A'), Arg::None, "the controller is back after a failure"),
        option(
            "primary_slurmctld_resumed_control",
            Some('b'),
            Arg::None,
            "a controller of the primary host took over again",
        ),
        option("backup_slurmctld_failure", Some('B'), Arg::None, "the controller of a backup host failed"),
        option("backup_slurmctld_resumed_operation", Some('c'), Arg::None, "the controller of a backup host is back"),
        option("backup_slurmctld_assumed_control", Some('C'), Arg::None, "a controller of a backup host took over"),
        inert("burst_buffer", None, Arg::None, "a burst buffer failed", "there are no burst buffers: it never happens"),
        option("down", Some('d'), Arg::None, "a node is DOWN"),
        option("drained", Some('D'), Arg::None, "a node is DRAINED"),
        option("draining", None, Arg::None, "a node is DRAINING"),
        option(
            "primary_slurmctld_acct_buffer_full",
            Some('e'),
            Arg::None,
            "more waits for accounting than may (MaxDBDMsgs)",
        ),
        option("fail", Some('F'), Arg::None, "a node is FAIL or FAILING"),
        option("fini", Some('f'), Arg::None, "the job of --jobid is over"),
        option("flags", None, Arg::Required("list"), "PERM: the trigger stays after the event"),
        option("primary_slurmdbd_failure", Some('g'), Arg::None, "the accounting daemon failed"),
        option("primary_slurmdbd_resumed_operation", Some('G'), Arg::None, "the accounting daemon is back"),
        option("primary_database_failure", Some('h'), Arg::None, "the accounting database failed"),
        option("primary_database_resumed_operation", Some('H'), Arg::None, "the accounting database is back"),
        option("id", Some('i'), Arg::Required("id"), "the trigger with this number"),
        option("idle", Some('I'), Arg::None, "a node stays IDLE for the time of --offset"),
        option("jobid", Some('j'), Arg::Required("id"), "about this job, or about its nodes"),
        option("clusters", Some('M'), Arg::Required("names"), "the cluster, only the own one"),
        option("node", Some('n'), Arg::Optional("hosts"), "about these nodes, or any"),
        option("noheader", Some('N'), Arg::None, "no line of headings"),
        option("offset", Some('o'), Arg::Required("seconds"), "so long after the event, or before it where negative"),
        option("program", Some('p'), Arg::Required("path"), "the program, an absolute path, with arguments behind it"),
        option("quiet", Some('Q'), Arg::None, "no messages about triggers that are gone"),
        option("reconfig", Some('r'), Arg::None, "the configuration was read again"),
        option("resume", Some('R'), Arg::None, "a node was set to RESUME"),
        option("time", Some('t'), Arg::None, "the job of --jobid reaches its time limit"),
        option("up", Some('u'), Arg::None, "a node is back from DOWN"),
        option("user", None, Arg::Required("user"), "triggers that this user set"),
        option("verbose", Some('v'), Arg::None, "more messages"),
    ],
    misuse: 1,
};

/// Events by the options that stand for them.
const EVENTS: [(&str, TriggerEvent); 22] = [
    ("backup_slurmctld_assumed_control", TriggerEvent::BackupInControl),
    ("backup_slurmctld_failure", TriggerEvent::BackupFailed),
    ("backup_slurmctld_resumed_operation", TriggerEvent::BackupResumed),
    ("burst_buffer", TriggerEvent::BurstBuffer),
    ("down", TriggerEvent::Down),
    ("drained", TriggerEvent::Drained),
    ("draining", TriggerEvent::Draining),
    ("fail", TriggerEvent::Fail),
    ("fini", TriggerEvent::Fini),
    ("idle", TriggerEvent::Idle),
    ("primary_database_failure", TriggerEvent::DatabaseFailed),
    ("primary_database_resumed_operation", TriggerEvent::DatabaseResumed),
    ("primary_slurmctld_acct_buffer_full", TriggerEvent::AccountingFull),
    ("primary_slurmctld_failure", TriggerEvent::PrimaryFailed),
    ("primary_slurmctld_resumed_control", TriggerEvent::PrimaryInControl),
    ("primary_slurmctld_resumed_operation", TriggerEvent::PrimaryResumed),
    ("primary_slurmdbd_failure", TriggerEvent::SlurmdbdFailed),
    ("primary_slurmdbd_resumed_operation", TriggerEvent::SlurmdbdResumed),
    ("reconfig", TriggerEvent::Reconfig),
    ("resume", TriggerEvent::Resume),
    ("time", TriggerEvent::Time),
    ("up", TriggerEvent::Up),
];

/// Longest offset, seconds, as in Slurm.
const LONGEST_OFFSET: i32 = 32_000;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Set(TriggerRequest),
    Get(Shown),
    Clear(TriggerSelector),
}

/// Which triggers are shown, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    which: TriggerSelector,
    events: BTreeSet<TriggerEvent>,
    of_nodes: bool,
    no_header: bool,
}

/// Reads the options. The error is told as one of the command.
pub(crate) fn read(arguments: &Arguments) -> Result<Request, String> {
    let events: BTreeSet<TriggerEvent> =
        EVENTS.iter().filter(|(name, _)| arguments.has(name)).map(|(_, event)| *event).collect();
    let asked = ["set", "get", "clear"].map(|name| arguments.has(name));
    if asked.iter().filter(|asked| **asked).count() != 1 {
        return Err("You must use exactly one of the following options: --set, --get or --clear".to_owned());
    }
    let job = arguments.value("jobid").map(|text| job(&text)).transpose()?;
    let uid = arguments.value("user").map(|name| user(&name)).transpose()?;
    let number = |text: String| text.trim().parse::<i64>().ok().filter(|id| *id != 0);
    let id = arguments.value("id").and_then(number).map(|id| u32::try_from(id).unwrap_or(u32::MAX));
    let which = TriggerSelector { id, job, uid };
    let offset = offset(arguments)?;
    let permanent = permanent(arguments)?;
    if events.iter().any(|event| event.is_of_job()) && job.is_none() {
        return Err("You must specify a --jobid value".to_owned());
    }
    let [set, get, _] = asked;
    if !set && !get {
        if which == TriggerSelector::default() {
            return Err("You must specify a --id, --jobid, or --user to clear".to_owned());
        }
        return Ok(Request::Clear(which));
    }
    if get {
        // Not chosen by, as in Slurm.
        let events = events.into_iter().filter(|event| *event != TriggerEvent::Reconfig).collect();
        let of_nodes = arguments.has("node");
        return Ok(Request::Get(Shown { which, events, of_nodes, no_header: arguments.has("noheader") }));
    }
    if events.is_empty() {
        return Err("You must specify a trigger".to_owned());
    }
    let program = program(arguments)?;
    let of_nodes = events.iter().any(|event| event.is_of_node() || *event == TriggerEvent::Reconfig);
    let about = match job {
        Some(job) => TriggerAbout::Job(job),
        None if of_nodes => TriggerAbout::Nodes(nodes(arguments)?),
        None => TriggerAbout::Controller,
    };
    Ok(Request::Set(TriggerRequest { events, about, offset_secs: offset, program, permanent }))
}

fn job(text: &str) -> Result<JobId, String> {
    if text.starts_with('s') && text.len() == 14 {
        return Err("a SLUID of --jobid is not supported yet".to_owned());
    }
    // Slurm reads the number that the text begins with.
    let digits = text.find(|c: char| !c.is_ascii_digit()).map_or(text, |end| &text[..end]);
    match digits.parse() {
        Ok(0) | Err(_) => Err(format!("Invalid jobid {text}")),
        Ok(_) if digits.len() < text.len() => Ok(JobId(u32::MAX)),
        Ok(id) => Ok(JobId(id)),
    }
}

fn user(name: &str) -> Result<u32, String> {
    choices::user(name).map_err(|_| format!("Invalid user {name}"))
}

fn offset(arguments: &Arguments) -> Result<i32, String> {
    let Some(text) = arguments.value("offset") else { return Ok(0) };
    // As in Slurm: what is no number is none.
    let secs = text.trim().parse::<i64>().unwrap_or(0);
    let fits = i32::try_from(secs).ok().filter(|secs| secs.abs() <= LONGEST_OFFSET);
    fits.ok_or_else(|| format!("The --offset parameter must be between +/-{LONGEST_OFFSET}"))
}

fn permanent(arguments: &Arguments) -> Result<bool, String> {
    let Some(text) = arguments.value("flags") else { return Ok(false) };
    match text.split(',').all(|word| word.eq_ignore_ascii_case("perm")) {
        true => Ok(true),
        false => Err(format!("Invalid flags {text}")),
    }
}

/// The program, which has to be there: the controller's host is taken to have the files of this one.
fn program(arguments: &Arguments) -> Result<String, String> {
    let Some(program) = arguments.value("program") else {
        return Err("You must specify a --program value".to_owned());
    };
    if !program.starts_with('/') {
        return Err("The --program value must start with \"/\"".to_owned());
    }
    let path = program.split_ascii_whitespace().next().unwrap_or_default();
    match fs::metadata(Path::new(path)) {
        Err(_) => Err("Invalid --program value, file not found".to_owned()),
        Ok(found) if !found.is_file() => Err("Invalid --program value, not regular file".to_owned()),
        Ok(_) => Ok(program),
    }
}

/// Named nodes; none: any.
fn nodes(arguments: &Arguments) -> Result<Vec<String>, String> {
    let text = arguments.value("node").unwrap_or_default();
    if text == "*" {
        return Ok(Vec::new());
    }
    hostlist::expand(&text).map_err(|_| "Invalid node name specified".to_owned())
}

/// Runs `strigger`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let mut console = Console::new("strigger");
    let arguments = match arguments::read(&TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    console.set_verbosity(arguments::verbosity(&arguments));
    let request = match read(&arguments) {
        Ok(request) => request,
        Err(error) => {
            console.error(error);
            return 1;
        }
    };
    if let Err(code) = choices::own_cluster(&arguments, &console) {
        return code;
    }
    let (call, done) = match request {
        Request::Set(trigger) => ("slurm_set_trigger", set(trigger, &console)),
        Request::Clear(which) => ("slurm_clear_trigger", clear(which, arguments.has("quiet"), &console)),
        Request::Get(shown) => ("slurm_get_triggers", get(&shown, &console)),
    };
    done.unwrap_or_else(|error| error.tell_plainly(call, &console))
}

fn set(trigger: TriggerRequest, console: &Console) -> Result<i32, AskError> {
    let path = trigger.program.split_ascii_whitespace().next().unwrap_or_default();
    if nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_err() {
        return Err(AskError::Refused(Refusal::AccessDenied));
    }
    let mut cluster = Contact::open(console)?;
    match cluster.ask(&CommandRequest::SetTrigger(Box::new(trigger)))? {
        CommandReply::Done => {
            console.verbose("trigger set");
            Ok(0)
        }
        other => Err(cluster.unexpected(&other)),
    }
}

fn clear(which: TriggerSelector, quiet: bool, console: &Console) -> Result<i32, AskError> {
    let mut cluster = Contact::open(console)?;
    match cluster.ask(&CommandRequest::ClearTriggers(which.clone())) {
        Ok(CommandReply::Done) => {
            console.verbose(match which {
                TriggerSelector { job: Some(job), .. } => format!("triggers for job {job} cleared"),
                TriggerSelector { id: Some(id), .. } => format!("trigger {id} cleared"),
                TriggerSelector { uid, .. } => format!("triggers for user {} cleared", uid.unwrap_or_default()),
            });
            Ok(0)
        }
        Ok(other) => Err(cluster.unexpected(&other)),
        Err(AskError::Refused(Refusal::NoTrigger)) if quiet => Ok(0),
        Err(error) => Err(error),
    }
}

fn get(shown: &Shown, console: &Console) -> Result<i32, AskError> {
    let mut cluster = Contact::open(console)?;
    let triggers = match cluster.ask(&CommandRequest::ListTriggers)? {
        CommandReply::Triggers(triggers) => triggers,
        other => return Err(cluster.unexpected(&other)),
    };
    console.verbose(format_args!("Read {} trigger records", triggers.len()));
    let lines = listing(&triggers, shown, &choices::user_name);
    let written = output::stdout(|out| out.write_all(lines.as_bytes()));
    Ok(output::finish(console, written, 0))
}

/// What `--get` prints: nothing where there is no such trigger.
fn listing(triggers: &[Trigger], shown: &Shown, user: &dyn Fn(u32) -> String) -> String {
    let is_of_node = |trigger: &Trigger| resource(trigger).0 == "node";
    let takes = |trigger: &&Trigger| {
        shown.which.takes(trigger)
            && (shown.events.is_empty() || !shown.events.is_disjoint(&trigger.request.events))
            && (!shown.of_nodes || is_of_node(trigger))
    };
    let line = |id: &str, kind: &str, of: &str, event: &str, offset: &str, user: &str, flags: &str, program: &str| {
        format!("{id:>7} {kind:<9} {of:>7} {event:<35} {offset:>6} {user:<8} {flags:<5} {program}\n")
    };
    let mut text = String::new();
    for trigger in triggers.iter().filter(takes) {
        if text.is_empty() && !shown.no_header {
            text = line("TRIG_ID", "RES_TYPE", "RES_ID", "TYPE", "OFFSET", "USER", "FLAGS", "PROGRAM");
        }
        let request = &trigger.request;
        let (kind, of) = resource(trigger);
        let mut events = request.events.iter();
        let event = match (events.next(), events.next()) {
            (Some(only), None) => only.name(),
            _ => "unknown",
        };
        let flags = if request.permanent { "PERM" } else { "" };
        let (id, offset) = (trigger.id.to_string(), request.offset_secs.to_string());
        text += &line(&id, kind, &of, event, &offset, &user(trigger.uid), flags, &request.program);
    }
    text
}

/// What a trigger is about: `RES_TYPE` and `RES_ID`.
fn resource(trigger: &Trigger) -> (&'static str, String) {
    match &trigger.request.about {
        TriggerAbout::Job(job) => ("job", job.to_string()),
        TriggerAbout::Nodes(names) if names.is_empty() => ("node", "*".to_owned()),
        TriggerAbout::Nodes(names) => ("node", hostlist::fold(names)),
        TriggerAbout::Controller => {
            let of = trigger.request.events.first().map_or("slurmctld", |event| event.resource());
            (of, if of == "other" { "(null)" } else { "*" }.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read_line(line: &str) -> Result<Request, String> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        read(&arguments::parse(&TABLE, &args).unwrap())
    }

    fn set_by(line: &str) -> TriggerRequest {
        match read_line(line).unwrap() {
            Request::Set(request) => request,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_trigger_is_read() {
        let request = set_by("--set -nn[1-2] --down --drained -o -5 -p /bin/true --flags=perm");
        assert_eq!(request.events, [TriggerEvent::Down, TriggerEvent::Drained].into());
        assert_eq!(request.about, TriggerAbout::Nodes(vec!["n1".into(), "n2".into()]));
        assert!(request.permanent && request.offset_secs == -5 && request.program == "/bin/true");
        assert_eq!(set_by("--set -j 7 -f -p /bin/true").about, TriggerAbout::Job(JobId(7)));
        assert_eq!(set_by("--set -A -p /bin/true").about, TriggerAbout::Controller);
    }

    #[test]
    fn what_is_wrong_is_said_as_slurm_says_it() {
        for (line, text) in [
            ("", "You must use exactly one of the following options: --set, --get or --clear"),
            ("--set --get", "You must use exactly one of the following options: --set, --get or --clear"),
            ("--set -p /bin/true", "You must specify a trigger"),
            ("--set -j x -f -p /bin/true", "Invalid jobid x"),
            ("--set -f -p /bin/true", "You must specify a --jobid value"),
            ("--set -d", "You must specify a --program value"),
            ("--set -d -p relative", "The --program value must start with \"/\""),
            ("--set -d -p /no/such", "Invalid --program value, file not found"),
            ("--set -d -p /tmp", "Invalid --program value, not regular file"),
            ("--set -I -o 32001 -p /bin/true", "The --offset parameter must be between +/-32000"),
            ("--set -d --flags=bogus -p /bin/true", "Invalid flags bogus"),
            ("--clear", "You must specify a --id, --jobid, or --user to clear"),
            ("--clear -i x", "You must specify a --id, --jobid, or --user to clear"),
            ("--get --user=no-such-user", "Invalid user no-such-user"),
        ] {
            assert_eq!(read_line(line).unwrap_err(), text, "{line}");
        }
    }

    #[test]
    fn triggers_are_listed_in_slurms_columns() {
        let trigger = |id, request| Trigger { id, uid: 7, request, due: None };
        let all = [
            trigger(2, set_by("--set --node=n2,n3 -u -p /bin/true --flags=perm")),
            trigger(3, set_by("--set -I -o 60 -p /bin/true")),
            trigger(4, set_by("--set -A -p /bin/true")),
            trigger(5, set_by("--set -j 7 -t -o -60 -p /bin/true")),
            trigger(6, set_by("--set -g -p /bin/true")),
            trigger(7, set_by("--set -H -p /bin/true")),
            trigger(8, set_by("--set -C -p /bin/true")),
            trigger(9, set_by("--set -F -p /bin/true")),
        ];
        let user = |_| "slurm".to_owned();
        let want = "\
TRIG_ID RES_TYPE   RES_ID TYPE                                OFFSET USER     FLAGS PROGRAM
      2 node       n[2-3] up                                       0 slurm    PERM  /bin/true
      3 node            * idle                                    60 slurm          /bin/true
      4 slurmctld       * primary_slurmctld_resumed_operation      0 slurm          /bin/true
      5 job             7 time                                   -60 slurm          /bin/true
      6 slurmdbd        * primary_slurmdbd_failure                 0 slurm          /bin/true
      7 database        * primary_database_resumed_operation       0 slurm          /bin/true
      8 slurmctld       * backup_slurmctld_assumed_control         0 slurm          /bin/true
      9 node            * fail                                     0 slurm          /bin/true
";
        assert_eq!(listing(&all, &Shown::default(), &user), want);
        let some = Shown { of_nodes: true, no_header: true, ..Shown::default() };
        assert_eq!(
            listing(&all[..5], &some, &user),
            want.lines().skip(1).take(2).map(|l| format!("{l}\n")).collect::<String>()
        );
        assert_eq!(listing(&[], &Shown::default(), &user), "");
    }
}
