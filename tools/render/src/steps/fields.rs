//! The columns of `garrick steps`.

use super::Row;
use crate::{
    clock::Clock,
    words::{self, shell_quoted},
};
use garrick_model::{hostlist, time::short_duration};
use std::fmt::Write as _;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `12.7_3`
    Step,
    /// Its line of a list of commands.
    Line,
    /// Name.
    Name,
    /// What it runs.
    Command,
    /// Values of its parameters.
    Values,
    /// Where it ran.
    Nodes,
    /// Its CPUs.
    Cpus,
    /// Its tasks.
    Tasks,
    /// State.
    State,
    /// Exit code and signal.
    Exit,
    /// Why it ended so.
    Reason,
    /// How often it was tried.
    Tries,
    /// When it was accepted.
    Queued,
    /// When it began.
    Start,
    /// When it ended.
    End,
    /// How long it took.
    Elapsed,
    /// CPU time.
    CpuTime,
    /// Most memory in use.
    MaxRss,
    /// Where its output is.
    Output,
    /// The command line that submitted it.
    SubmitLine,
    /// The step that it was run again for.
    AgainOf,
}

/// Every column: its name and its heading.
const ALL: [(Field, &str, &str); 21] = [
    (Field::Step, "step", "STEP"),
    (Field::Line, "line", "LINE"),
    (Field::Name, "name", "NAME"),
    (Field::Command, "command", "COMMAND"),
    (Field::Values, "values", "VALUES"),
    (Field::Nodes, "nodes", "NODES"),
    (Field::Cpus, "cpus", "CPUS"),
    (Field::Tasks, "tasks", "TASKS"),
    (Field::State, "state", "STATE"),
    (Field::Exit, "exit", "EXIT"),
    (Field::Reason, "reason", "REASON"),
    (Field::Tries, "tries", "TRIES"),
    (Field::Queued, "queued", "QUEUED"),
    (Field::Start, "start", "START"),
    (Field::End, "end", "END"),
    (Field::Elapsed, "elapsed", "ELAPSED"),
    (Field::CpuTime, "cputime", "CPU_TIME"),
    (Field::MaxRss, "maxrss", "MAX_RSS"),
    (Field::Output, "output", "OUTPUT"),
    (Field::SubmitLine, "submitline", "SUBMIT_LINE"),
    (Field::AgainOf, "againof", "AGAIN_OF"),
];

/// What is shown when nothing was said.
pub const DEFAULT: &str =
    "step:15 ,state:13 ,exit:5 ,tries:5 ,elapsed:.10  ,cputime:.10  ,maxrss:.8  ,nodes:11 ,reason:24 ,command:0";

/// The column of that name.
pub fn named(name: &str) -> Option<Field> {
    ALL.iter().find(|(_, known, _)| *known == name).map(|(field, ..)| *field)
}

/// All names.
pub fn names() -> String {
    ALL.map(|(_, name, _)| name).join(", ")
}

/// Its heading.
pub fn title(field: Field) -> String {
    ALL.iter().find(|(known, ..)| *known == field).map_or("", |(.., title)| title).to_owned()
}

/// `0.042`, `12.5`, `1:02:03`: shorter times more exactly.
pub fn duration(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{:03}", ms / 1000, ms % 1000),
        10_000..60_000 => format!("{}.{}", ms / 1000, ms % 1000 / 100),
        _ => short_duration(ms / 1000),
    }
}

/// `512K`, `1.5M`, `2.0G`, from KiB.
pub fn memory(kib: u64) -> String {
    match kib {
        0..1024 => format!("{kib}K"),
        1024..1_048_576 => format!("{:.1}M", kib as f64 / 1024.0),
        _ => format!("{:.1}G", kib as f64 / 1_048_576.0),
    }
}

/// The command of a step, as a shell would have to be told.
pub fn command(row: &Row<'_>) -> String {
    let argv = if row.step.argv.is_empty() { &row.origin.argv } else { &row.step.argv };
    if argv.is_empty() {
        return if row.origin.submit_line.is_empty() {
            row.origin.name.clone()
        } else {
            row.origin.submit_line.clone()
        };
    }
    argv.iter().map(|word| shell_quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Its name: its own, or that of all.
pub fn name<'a>(row: &Row<'a>) -> &'a str {
    if row.step.own_name.is_empty() { &row.origin.name } else { &row.step.own_name }
}

/// Names of the nodes.
pub fn nodes<'a>(row: &Row<'a>) -> Vec<&'a str> {
    let name = |slot: &u32| row.run.nodes.get(*slot as usize).map(String::as_str);
    row.step.slots.iter().filter_map(name).collect()
}

/// CPU time in milliseconds.
pub const fn cpu_ms(row: &Row<'_>) -> u64 {
    (row.step.usage.user_us + row.step.usage.system_us) / 1000
}

/// Over by itself or otherwise, so that what it used is known.
fn is_over(row: &Row<'_>) -> bool {
    row.step.start.is_some() && row.step.end.is_some()
}

/// `12.7_3`, `9_0.7_3`, `12.[5-9]`.
pub fn step(row: &Row<'_>) -> String {
    let mut text = row.run.array.map_or_else(|| row.run.job.to_string(), |task| task.to_string());
    match &row.step.all_of {
        Some(all) => drop(write!(text, ".{all}")),
        None => drop(write!(text, ".{}", row.step.key)),
    }
    if row.step.again {
        let _ = write!(text, "#{}", row.step.attempt);
    }
    text
}

/// What a row shows there.
pub fn cell(row: &Row<'_>, field: Field, clock: &Clock) -> String {
    let step = row.step;
    match field {
        Field::Step => self::step(row),
        Field::Line => step.line.map(|line| line.to_string()).unwrap_or_default(),
        Field::Name => name(row).to_owned(),
        Field::Command => command(row),
        Field::Values => step.values.clone(),
        Field::Nodes => hostlist::fold(nodes(row)),
        Field::Cpus => step.cpus.to_string(),
        Field::Tasks => row.origin.tasks.to_string(),
        Field::State => words::step_state(step.state).to_owned(),
        Field::Exit => step.end.map(|_| words::exit(step.exit)).unwrap_or_default(),
        Field::Reason => reason(row),
        Field::Tries => {
            let tries = step.attempt + u32::from(step.start.is_some());
            if tries > 0 { tries.to_string() } else { String::new() }
        }
        Field::Queued => clock.at_or(step.queued, ""),
        Field::Start => clock.at_or(step.start, ""),
        Field::End => clock.at_or(step.end, ""),
        Field::Elapsed => step.elapsed_ms(clock.now).map(duration).unwrap_or_default(),
        Field::CpuTime => {
            if is_over(row) {
                duration(cpu_ms(row))
            } else {
                String::new()
            }
        }
        Field::MaxRss => {
            if is_over(row) {
                memory(step.usage.max_rss_kib)
            } else {
                String::new()
            }
        }
        Field::Output => step.output.clone(),
        Field::SubmitLine => row.origin.submit_line.clone(),
        Field::AgainOf => again_of(row).unwrap_or_default(),
    }
}

/// The step that it was run again for.
pub fn again_of(row: &Row<'_>) -> Option<String> {
    let (job, first) = row.origin.again_of?;
    Some(match row.step.key.array {
        Some(task) if row.step.all_of.is_none() => format!("{job}.{first}_{task}"),
        None if row.step.again_number.is_some() => format!("{job}.{}", row.step.again_number.unwrap_or(first)),
        _ => format!("{job}.{first}"),
    })
}

/// Why it ended so; a user instead of his number.
pub fn reason(row: &Row<'_>) -> String {
    match row.step.reason.strip_prefix("cancelled by ").and_then(|uid| uid.parse().ok()) {
        Some(uid) => format!("cancelled by {}", (row.user)(uid)),
        None => row.step.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times_are_exact_and_sizes_have_a_unit() {
        assert_eq!([0, 42, 9_999].map(duration), ["0.000", "0.042", "9.999"]);
        assert_eq!([12_540, 61_000, 3_723_000].map(duration), ["12.5", "1:01", "1:02:03"]);
        assert_eq!([0, 1023, 1536, 2_097_152].map(memory), ["0K", "1023K", "1.5M", "2.0G"]);
    }

    #[test]
    fn every_column_has_one_name_and_the_default_is_made_of_them() {
        for (field, name, heading) in ALL {
            assert_eq!(named(name), Some(field));
            assert_eq!(title(field), heading);
        }
        let default = crate::columns::Layout::long(DEFAULT, named);
        assert_eq!((default.columns.len(), default.unknown.len()), (10, 0));
    }
}
