//! `sreport`: what was used in a window of time, by accounts, users, WCKeys and clusters. Words, then a question to the service, then
//! sums, then lines; one report per call, or a prompt that reads them.
//!
//! [`conditions`] has what was typed, [`garrick_render::sreport`] what a report comes to.

pub mod conditions;

use super::{
    arguments::{self, Arguments, NO_FEDERATION, Outcome, Table, inert, option, word},
    choices,
    sacct::tell,
};
use crate::{
    control::{sacctmgr::setting, scontrol::split_words},
    options::table::Arg,
    output::{self, Console, Verbosity},
};
use conditions::Asked;
use garrick_accounts::{
    event::{EventQuestion, EventRow},
    reservation::ReservationQuestion,
    usage::{UsageQuestion, UsageRow},
};
use garrick_asking::{
    accounting::{Accounts, AccountsError},
    accounts::User,
};
use garrick_model::{
    entities::Entities,
    time::{Timestamp, system_zone},
};
use garrick_render::{
    field_table::Setting,
    sacctmgr::kind::begins,
    sreport::{
        Facts, Report, USUAL_TRES, Window,
        cluster::{self, Recorded},
        reservation::{self, Reserved},
        sizes,
        units::Units,
        usage,
    },
    words::SLURM_VERSION,
};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{self, BufRead, Write},
};

const REPORTS: &str = "Reports";
const PROMPT: &str = "How reports are shown, and the prompt";

pub(crate) static TABLE: Table = Table {
    program: "sreport",
    purpose: "Show what accounts, users and clusters used. Without a command, commands are read from a prompt.",
    operands: "[command [arguments]]",
    words: &[
        word(REPORTS, "cluster", "REPORT [CONDITION...]", "use of clusters, by account, user or WCKey"),
        word(REPORTS, "job", "REPORT [CONDITION...]", "jobs by their size"),
        word(REPORTS, "user", "TopUsage [CONDITION...]", "users who used most"),
        word(REPORTS, "reservation", "Utilization [CONDITION...]", "use of reservations"),
        word(PROMPT, "time", "FORMAT", "seconds, minutes, hours, percent, secper, minper or hourper"),
        word(PROMPT, "nonparsable", "", "columns again"),
        word(PROMPT, "parsable", "", "a | behind each value"),
        word(PROMPT, "parsable2", "", "a | between values"),
        word(PROMPT, "quiet", "", "print only errors"),
        word(PROMPT, "verbose", "", "print more messages"),
        word(PROMPT, "help", "", "show this help"),
        word(PROMPT, "version", "", "show the version"),
        word(PROMPT, "exit", "", "leave the prompt"),
        word(PROMPT, "quit", "", "leave the prompt"),
        word(PROMPT, "!!", "", "run the last command again"),
    ],
    options: &[
        option("all_clusters", Some('a'), Arg::None, "of all clusters"),
        option("cluster", Some('M'), Arg::Required("names"), "of these clusters"),
        inert("federation", None, Arg::None, "of all clusters of the federation", NO_FEDERATION),
        option("help", Some('h'), Arg::None, "show this help"),
        inert("local", None, Arg::None, "of this cluster", NO_FEDERATION),
        option("noheader", Some('n'), Arg::None, "no heading"),
        option("parsable", Some('p'), Arg::None, "a | behind each value"),
        option("parsable2", Some('P'), Arg::None, "a | between values"),
        option("quiet", Some('Q'), Arg::None, "only errors"),
        option("time", Some('t'), Arg::Required("format"), "units of amounts"),
        option("tres", Some('T'), Arg::Required("names"), "of these TRES, or all"),
        option("verbose", Some('v'), Arg::None, "more messages"),
    ],
    misuse: 1,
};

/// One run: how reports are shown, and the connection.
struct Session {
    console: Console,
    heading: bool,
    setting: Setting,
    units: Units,
    /// Names of TRES.
    tres: Option<String>,
    /// Clusters; `None`: the own one. Empty: all.
    clusters: Option<Vec<String>>,
    service: Option<Accounts>,
}

/// Runs `sreport`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let mut console = Console::new("sreport");
    let arguments = match arguments::read(&TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    console.set_verbosity(arguments::verbosity(&arguments));
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let mut session = Session {
        console,
        heading: !arguments.has("noheader"),
        setting: setting(&arguments),
        units: arguments.value("time").and_then(|text| units(&text)).unwrap_or_default(),
        tres: arguments.value("tres").or_else(|| variable("SREPORT_TRES")),
        clusters: clusters(&arguments, variable("SREPORT_CLUSTER")),
        service: None,
    };
    let words = arguments.words();
    if words.is_empty() {
        return prompt(&mut session);
    }
    run(&mut session, &words).unwrap_or(0)
}

/// Clusters that are asked for.
fn clusters(arguments: &Arguments, variable: Option<String>) -> Option<Vec<String>> {
    let named = arguments.value("cluster").or(variable);
    let names = named.map(|text| choices::words(&text));
    let all = arguments.has("all_clusters") || names.iter().flatten().any(|name| name == "all");
    if all { Some(Vec::new()) } else { names }
}

/// Units of that name. Slurm ends the line that says there are none with nothing.
fn units(text: &str) -> Option<Units> {
    let units = Units::read(text);
    if units.is_none() {
        output::stderr(format!("unknown time format {text}").as_bytes());
    }
    units
}

/// Commands from standard input, until `quit` or its end.
fn prompt(session: &mut Session) -> i32 {
    let (mut last, mut code): (Vec<String>, i32) = (Vec::new(), 0);
    loop {
        if output::stdout(|out| out.write_all(b"sreport: ")).is_err() {
            return code;
        }
        let mut line = String::new();
        if !matches!(io::stdin().lock().read_line(&mut line), Ok(1..)) {
            let _ = output::print_line("");
            return code;
        }
        let mut words = split_words(&line);
        if words.is_empty() {
            continue;
        }
        if words == ["!!"] && !last.is_empty() {
            words.clone_from(&last);
        }
        last.clone_from(&words);
        match run(session, &words) {
            Some(this) => code = this,
            None => return code,
        }
    }
}

/// Words of the prompt, and how many letters of each are needed: reports come first.
const OF_PROMPT: [(&str, usize); 10] = [
    ("time", 1),
    ("parsable", 1),
    ("parsable2", 9),
    ("nonparsable", 1),
    ("quiet", 4),
    ("quit", 4),
    ("exit", 2),
    ("help", 2),
    ("verbose", 4),
    ("version", 4),
];

/// Runs a command. Returns its exit code; `None`: it was `quit`.
fn run(session: &mut Session, words: &[String]) -> Option<i32> {
    let typed = words[0].as_str();
    let exact = OF_PROMPT.iter().find(|(word, _)| word.eq_ignore_ascii_case(typed));
    let found = exact.or_else(|| OF_PROMPT.iter().find(|(word, letters)| begins(word, typed, *letters)));
    match found.map(|(word, _)| *word) {
        Some("exit" | "quit") => return None,
        Some("time") => {
            let Some(read) = words.get(1).map_or_else(|| units(""), |text| units(text)) else {
                output::stderr(b"\n");
                return Some(0);
            };
            session.units = read;
        }
        Some("parsable") => session.setting = Setting::Parsable("|".to_owned()),
        Some("parsable2") => session.setting = Setting::Parsable2("|".to_owned()),
        Some("nonparsable") => session.setting = Setting::Columns,
        Some("quiet") => session.console.set_verbosity(Verbosity::Quiet),
        Some("verbose") => session.console.set_verbosity(Verbosity::Verbose(1)),
        Some("version") => {
            return Some(output::finish(&session.console, output::print_line(SLURM_VERSION), 0));
        }
        Some("help") => {
            return Some(output::finish(&session.console, output::print_help(&arguments::help(&TABLE)), 0));
        }
        _ => return Some(report(session, words)),
    }
    Some(0)
}

/// Prints a report. Returns the exit code.
fn report(session: &mut Session, words: &[String]) -> i32 {
    let report = match Report::read(&words[0], words.get(1).map(String::as_str)) {
        Ok(report) => report,
        Err(error) => {
            output::stderr(format!("{error}\n").as_bytes());
            return 1;
        }
    };
    let mut wrong = Vec::new();
    let asked = Asked::read(&words[2..], Timestamp::now(), &system_zone(), &mut wrong);
    let refused = asked.refused(report);
    let is_refused = refused.is_some();
    wrong.extend(refused);
    wrong.iter().for_each(|error| output::stderr(format!("{error}\n").as_bytes()));
    let code = i32::from(wrong.iter().any(|error| error.fails()));
    if is_refused {
        return code;
    }
    match shown(session, report, &asked) {
        Ok(shown) => shown.max(code),
        Err(error) => tell(&error, &session.console),
    }
}

/// What the service says of it.
struct Answer {
    entities: Entities,
    rows: Vec<UsageRow>,
    /// What clusters had, and for reports of clusters nodes out of service.
    events: Vec<EventRow>,
    /// For reports of clusters and reservations.
    reserved: Vec<Reserved>,
    now: Timestamp,
    here: String,
}

fn ask(session: &mut Session, report: Report, asked: &Asked) -> Result<Answer, AccountsError> {
    if session.service.is_none() {
        session.service = Some(Accounts::open(&session.console)?);
    }
    let named = session.clusters.clone();
    let service = session.service.as_mut().expect("set just above");
    let here = service.cluster().name().to_owned();
    let entities = service.entities()?;
    let mut such = asked.such();
    such.clusters = asked.clusters().or(named).unwrap_or_else(|| vec![here.clone()]);
    let by_size = matches!(report, Report::SizesByAccount | Report::SizesByAccountAndWckey | Report::SizesByWckey);
    let Window { start, end } = asked.window;
    let clusters = such.clusters.clone();
    let (rows, now) = match report {
        // Each reservation is asked for by itself.
        Report::Reservation => (Vec::new(), end.min(Timestamp::now())),
        _ => service.usage(&UsageQuestion { start, end, such, by_size, waits: report == Report::Cluster })?,
    };
    let events = match report {
        // They have no percentages of a cluster.
        Report::SizesByAccount | Report::SizesByAccountAndWckey | Report::SizesByWckey => Vec::new(),
        _ => events(service, report, &clusters, asked.window)?,
    };
    let mut reserved = Vec::new();
    if matches!(report, Report::Cluster | Report::Reservation) {
        let of_report = report == Report::Reservation;
        let named = |names: Vec<String>| if of_report { names } else { Vec::new() };
        let (names, nodes) = (named(asked.names()), named(asked.nodes()));
        let window = (start, end);
        let (start, end) = (Some(start), Some(end));
        let question = ReservationQuestion { clusters, names, nodes, start, end, ..ReservationQuestion::default() };
        let told = service.reserved(&question, Some(window))?;
        reserved = told.into_iter().map(|(row, used)| Reserved { row, used }).collect();
    }
    Ok(Answer { entities, rows, events, reserved, now, here })
}

/// What clusters had in the window; with nodes out of service where a report tells those apart.
fn events(
    service: &mut Accounts,
    report: Report,
    clusters: &[String],
    window: Window,
) -> Result<Vec<EventRow>, AccountsError> {
    let with_nodes = report == Report::Cluster;
    let question = EventQuestion {
        clusters: clusters.to_vec(),
        start: Some(window.start),
        end: Some(window.end),
        of_clusters: !with_nodes,
        ..EventQuestion::default()
    };
    match service.events(&question) {
        // With PrivateData=events, percentages are of what clusters have now.
        Err(error) if error.is_denial() && !with_nodes => Ok(Vec::new()),
        told => told,
    }
}

/// The names of TRES that there are.
fn known_tres(entities: &Entities) -> Vec<String> {
    let full = |kind: &str, name: &str| if name.is_empty() { kind.to_owned() } else { format!("{kind}/{name}") };
    let listed = entities.tres.values().map(|tres| full(&tres.kind, &tres.name));
    let mut names: Vec<String> = listed.collect();
    let had: BTreeSet<&String> = entities.clusters.values().flat_map(|cluster| cluster.tres.keys()).collect();
    for name in had.into_iter().map(String::as_str).chain([USUAL_TRES]) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The TRES that are reported; `None`: none of those that are named is there.
fn tres(entities: &Entities, named: Option<&str>) -> Option<Vec<String>> {
    let Some(named) = named else { return Some(vec![USUAL_TRES.to_owned()]) };
    let known = known_tres(entities);
    // Nodes are shared by jobs: counting them says nothing (sreport(1)).
    let wanted = |name: &&String| match named.eq_ignore_ascii_case("all") {
        true => *name != "node",
        false => named.split(',').any(|wanted| wanted.trim().eq_ignore_ascii_case(name)),
    };
    let found: Vec<String> = known.iter().filter(wanted).cloned().collect();
    (!found.is_empty()).then_some(found)
}

fn full_name(user: &str) -> String {
    User::by_name(user).map_or_else(String::new, |user| user.full_name)
}

fn shown(session: &mut Session, report: Report, asked: &Asked) -> Result<i32, AccountsError> {
    let Answer { entities, rows, events, reserved, now, here } = ask(session, report, asked)?;
    let Some(tres) = tres(&entities, session.tres.as_deref()) else {
        session.console.fatal("No valid TRES given");
        return Ok(1);
    };
    let (window, units) = (asked.window, session.units);
    let facts = Facts { entities: &entities, window, now, units, tres: &tres, proper: &full_name, events: &events };
    let several = session.tres.is_some() && tres != [USUAL_TRES];
    let among = asked.clusters().or_else(|| session.clusters.clone()).unwrap_or_else(|| vec![here]);
    let wanted = |cluster: &str| among.is_empty() || among.iter().any(|name| name == cluster);
    let mut text = Vec::new();
    let recorded = Recorded { rows: &rows, reserved: &reserved };
    let code = table(&mut text, session, report, asked, (&facts, recorded, several), &wanted);
    let code = match code {
        Ok(code) => code,
        Err(error) => return Ok(output::finish(&session.console, Err(error), 1)),
    };
    let written = output::stdout(|out| {
        if session.heading {
            head(out, report, asked, units, several)?;
        }
        out.write_all(&text)
    });
    Ok(output::finish(&session.console, written, code))
}

/// The lines above the table.
fn head(out: &mut dyn Write, report: Report, asked: &Asked, units: Units, several: bool) -> io::Result<()> {
    let Window { start, end } = asked.window;
    let zone = system_zone();
    let last = Timestamp::from_secs(end.secs() - 1);
    let secs = if matches!(report, Report::Cluster | Report::Reservation) {
        String::new()
    } else {
        format!(" ({} secs)", asked.window.secs())
    };
    let title = usage::title(report, asked.top());
    writeln!(out, "{}", "-".repeat(80))?;
    writeln!(out, "{title} {} - {}{secs}", start.text(&zone), last.text(&zone))?;
    match report {
        Report::SizesByAccount | Report::SizesByAccountAndWckey | Report::SizesByWckey => match asked.counts() {
            true => writeln!(out, "Units are in number of jobs ran")?,
            false => writeln!(out, "Time reported in {}", units.words(""))?,
        },
        _ => {
            let of = if several || report == Report::Reservation { "TRES " } else { "CPU " };
            writeln!(out, "Usage reported in {}", units.words(of))?;
        }
    }
    writeln!(out, "{}", "-".repeat(80))
}

/// Heading and rows. Returns the exit code.
fn table(
    out: &mut dyn Write,
    session: &Session,
    report: Report,
    asked: &Asked,
    (facts, recorded, several): (&Facts<'_>, Recorded<'_>, bool),
    wanted: &dyn Fn(&str) -> bool,
) -> io::Result<i32> {
    let unknown = |name: String| {
        output::stderr(format!(" Unknown field '{name}'\n").as_bytes());
        1
    };
    let (format, wide) = (asked.format(), facts.units.both());
    let rows = recorded.rows;
    match report {
        Report::SizesByAccount | Report::SizesByAccountAndWckey | Report::SizesByWckey => {
            let made = (facts, &asked.sizes());
            sizes::write(out, (&session.setting, session.heading), report, rows, made)?;
        }
        Report::Cluster => match cluster::columns(format, several, wide) {
            Err(name) => return Ok(unknown(name)),
            Ok(columns) => {
                let lines = cluster::lines(recorded, facts, wanted);
                rows_of(out, session, &columns, &lines, |shown, line| shown(line))?;
            }
        },
        Report::Reservation => match reservation::columns(format) {
            Err(name) => return Ok(unknown(name)),
            Ok(columns) => {
                let lines = reservation::lines(recorded.reserved, facts);
                rows_of(out, session, &columns, &lines, |shown, line| shown(line))?;
            }
        },
        _ => match usage::columns(report, format, (several, wide, asked.tree())) {
            Err(name) => return Ok(unknown(name)),
            Ok(columns) => {
                let lines = usage::lines(report, rows, facts, &asked.usage());
                rows_of(out, session, &columns, &lines, |shown, line| shown(line).to_owned())?;
            }
        },
    }
    Ok(0)
}

fn rows_of<V, L>(
    out: &mut dyn Write,
    session: &Session,
    columns: &[garrick_render::field_table::Column<V>],
    lines: &[L],
    value: impl Fn(&V, &L) -> String,
) -> io::Result<()> {
    if session.heading {
        session.setting.heading(out, columns)?;
    }
    lines.iter().try_for_each(|line| session.setting.row(out, columns, |shown| value(shown, line)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::entities::names::{Cluster, TresRecord};

    #[test]
    fn tres_are_those_that_there_are() {
        let record = |id, kind: &str, name: &str| TresRecord { id, kind: kind.to_owned(), name: name.to_owned() };
        let cluster = Cluster { tres: [("mem".to_owned(), 5)].into(), ..Cluster::default() };
        let entities = Entities {
            tres: [record(1, "cpu", ""), record(4, "node", ""), record(1001, "gres", "gpu")].map(|t| (t.id, t)).into(),
            clusters: [("c".to_owned(), cluster)].into(),
            ..Entities::default()
        };
        assert_eq!(tres(&entities, None).unwrap(), ["cpu"]);
        assert_eq!(tres(&entities, Some("gres/gpu,MEM")).unwrap(), ["gres/gpu", "mem"]);
        assert_eq!(tres(&entities, Some("all")).unwrap(), ["cpu", "gres/gpu", "mem"]);
        assert_eq!(tres(&entities, Some("bogus")), None);
        assert_eq!(tres(&Entities::default(), Some("cpu")).unwrap(), ["cpu"]);
    }

    #[test]
    fn clusters_are_named_or_all() {
        let of = |words: &[&str], variable: Option<&str>| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            clusters(&arguments::parse(&TABLE, &words).unwrap(), variable.map(str::to_owned))
        };
        assert_eq!(of(&["-M", "a,b"], Some("c")), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!((of(&["-a"], None), of(&["-M", "all"], None)), (Some(vec![]), Some(vec![])));
        assert_eq!((of(&[], Some("c")), of(&[], None)), (Some(vec!["c".to_owned()]), None));
    }
}
