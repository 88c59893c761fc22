//! The options that were given, as `-v` of `salloc`, `sbatch` and `srun` lists them: `NAME : VALUE`, by name.

use super::{
    sources::GivenOptions,
    table::{Command, options_of},
    typed::Typed,
    values,
};
use garrick_model::{
    date,
    resources::MemoryMib,
    spec::NodeCount,
    time::{TimeLimit, Timestamp, system_zone},
};

const RULE: &str = "-------------------- --------------------";

/// The lines. `now`: what times were relative to.
pub fn lines(command: Command, given: &GivenOptions, typed: &Typed, now: Timestamp) -> Vec<String> {
    // A script for another command may have more.
    let options = options_of(command);
    let known = |long: &str| options.iter().any(|option| option.long == long);
    let mut lines = vec!["defined options".to_owned(), RULE.to_owned()];
    for (long, value) in given.iter().filter(|(long, _)| known(long)) {
        let value = value.as_ref().map(|value| value.to_string_lossy());
        lines.push(format!("{long:<20}: {}", shown(command, long, value.as_deref(), typed, now)));
    }
    lines.extend([RULE.to_owned(), "end of defined options".to_owned()]);
    lines
}

/// A value as Slurm writes it; as it was typed where it writes it so.
pub fn shown(command: Command, long: &str, value: Option<&str>, typed: &Typed, now: Timestamp) -> String {
    let Some(text) = value.filter(|text| !text.is_empty()) else { return without_value(long, typed) };
    let other = match long {
        "verbose" => Some(typed.verbose.to_string()),
        "time" | "time-min" => values::time_limit(text).map(TimeLimit::scontrol_text),
        "begin" | "deadline" => date::parse_date(text, now, &system_zone()).ok().map(|at| at.text(&system_zone())),
        "mem" | "mem-per-cpu" | "mem-per-gpu" | "tmp" => values::memory(text).map(size),
        "nodes" => values::node_count(text).ok().map(|(count, _)| nodes(count)),
        "gres" => Some(text.split(',').map(|one| format!("gres/{one}")).collect::<Vec<_>>().join(",")),
        "open-mode" => text.get(..1).map(str::to_owned),
        "output" | "error" | "input" if command == Command::Sbatch && !text.starts_with('/') => {
            std::env::current_dir().ok().map(|folder| folder.join(text).display().to_string())
        }
        _ => None,
    };
    other.unwrap_or_else(|| text.to_owned())
}

fn without_value(long: &str, typed: &Typed) -> String {
    match long {
        "verbose" => typed.verbose.to_string(),
        "exclusive" | "oversubscribe" | "requeue" | "no-requeue" => long.to_owned(),
        "bell" => "bell-always".to_owned(),
        "no-bell" => "bell-never".to_owned(),
        "kill-on-bad-exit" | "immediate" => "1".to_owned(),
        "nice" => typed.nice.to_string(),
        _ => "set".to_owned(),
    }
}

fn nodes(count: NodeCount) -> String {
    match count.max {
        Some(max) if max != count.min => format!("{}-{max}", count.min),
        _ => count.min.to_string(),
    }
}

fn size(MemoryMib(mib): MemoryMib) -> String {
    match mib {
        0 => mib.to_string(),
        _ if mib.is_multiple_of(1 << 20) => format!("{}T", mib >> 20),
        _ if mib.is_multiple_of(1 << 10) => format!("{}G", mib >> 10),
        _ => mib.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sources::{command_line, given_options, lay_over};

    fn listed(command: Command, env: &[(&str, &str)], words: &str) -> Vec<String> {
        let words: Vec<std::ffi::OsString> = words.split_whitespace().map(Into::into).collect();
        let parsed = command_line(command, &words).unwrap();
        let variable = |name: &str| env.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).into());
        let now = Timestamp::from_secs(1_795_255_260);
        let typed = lay_over(command, &[], &variable, &parsed.options, now).unwrap();
        let given = given_options(command, &[], &variable, &parsed.options, now).unwrap();
        let mut lines = lines(command, &given, &typed, now);
        let body = lines.split_off(2);
        assert_eq!(lines, ["defined options", RULE]);
        let (body, end) = body.split_at(body.len() - 2);
        assert_eq!(end, [RULE, "end of defined options"]);
        body.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    /// As Slurm 26.05.3 printed them.
    #[test]
    fn options_are_listed_as_slurm_lists_them() {
        let srun = "-v -n2 -N1-2 -t5 --mem=100 -K -l --gres=gpu:1 -J nn --nice=3 --time-min=1-2 true";
        let want = [
            "gres : gres/gpu:1",
            "job-name : nn",
            "kill-on-bad-exit : 1",
            "label : set",
            "mem : 100",
            "nice : 3",
            "nodes : 1-2",
            "ntasks : 2",
            "partition : p",
            "time : 00:05:00",
            "time-min : 1-02:00:00",
            "verbose : 1",
        ];
        assert_eq!(listed(Command::Srun, &[("SLURM_PARTITION", "p")], srun), want);
        let sbatch = "-vv --requeue --mem=2048M --open-mode=append -o /x -N2-2 -t 0:240 --exclusive --nice";
        let want = [
            "exclusive : exclusive",
            "mem : 2G",
            "nice : 100",
            "nodes : 2",
            "open-mode : a",
            "output : /x",
            "requeue : requeue",
            "time : 00:04:00",
            "verbose : 2",
        ];
        assert_eq!(listed(Command::Sbatch, &[], sbatch), want);
    }
}
