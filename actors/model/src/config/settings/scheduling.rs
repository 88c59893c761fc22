//! `SchedulerParameters`: every word that slurm.conf(5) knows up to 26.05, Garrick's own, and what becomes of each. The one
//! table that decides between silence, a warning and an error.

use crate::config::syntax::{
    nearest::nearest,
    report::SettingError,
    values::{Parameters, Value},
};

/// What stands after the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Nothing.
    Flag,
    /// A number from the first to the second.
    Number(u64, u64),
    /// The same, or -1.
    NumberOrOff(u64, u64),
    /// One of these.
    Choice(&'static [&'static str]),
}

/// What Garrick makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It is acted on.
    Acts,
    /// Every plan does what it asks for.
    Always(&'static str),
    /// There is nothing that it could change.
    Nothing(&'static str),
    /// Slurm has it, Garrick does not act on it yet.
    NotYet,
    /// An older Slurm had it here; what to write now.
    Moved(&'static str),
}

use Effect::{Acts, Always, Moved, NotYet, Nothing};
use Form::{Choice, Flag, Number, NumberOrOff};

const NOBODY_WAITS: &str = "no query and no submission waits for a plan, so that it need not pause";
const BURSTS: &str = "submissions that come together are planned together, and none waits for that";

/// More than anybody means, where Slurm documents no maximum.
const ANY: u64 = 1_000_000_000;
const JOBS: u64 = 1_000_000;

const TABLE: &[(&str, Form, Effect)] = &[
    ("allow_zero_lic", Flag, Acts),
    ("assoc_limit_stop", Flag, NotYet),
    ("batch_sched_delay", Number(0, ANY), Nothing(BURSTS)),
    ("bb_array_stage_cnt", Number(0, ANY), NotYet),
    ("bf_algorithm", Choice(&["conservative", "easy"]), Acts),
    ("bf_allow_magnetic_slot", Flag, Acts),
    ("bf_busy_nodes", Flag, Always("room is reserved first on nodes that are in use longest")),
    ("bf_continue", Flag, Nothing(NOBODY_WAITS)),
    ("bf_hetjob_immediate", Flag, Always("a heterogeneous job starts as soon as all of its components can")),
    ("bf_hetjob_prio", Choice(&["min", "avg", "max"]), Acts),
    ("bf_interval", NumberOrOff(1, 10_800), Acts),
    ("bf_job_part_count_reserve", Number(0, 100_000), Acts),
    ("bf_licenses", Flag, Always("licenses are planned with like nodes")),
    ("bf_max_job_array_resv", Number(0, 1000), Acts),
    ("bf_max_job_assoc", Number(0, JOBS), Acts),
    ("bf_max_job_part", Number(0, JOBS), Acts),
    ("bf_max_job_start", Number(0, 10_000), Acts),
    ("bf_max_job_test", Number(1, JOBS), Acts),
    ("bf_max_job_user", Number(0, JOBS), Acts),
    ("bf_max_job_user_part", Number(0, JOBS), Acts),
    ("bf_max_time", Number(1, 3600), Acts),
    ("bf_min_age_reserve", Number(0, 2_592_000), Acts),
    ("bf_min_prio_reserve", Number(0, 1 << 63), Acts),
    (
        "bf_node_space_size",
        Number(2, 2_000_000),
        Nothing("what is planned is kept by kind of node, in no table of a fixed size"),
    ),
    ("bf_one_resv_per_job", Flag, Acts),
    ("bf_order", Choice(&["priority", "shortest"]), Acts),
    ("bf_patience", Number(0, ANY), Acts),
    ("bf_reservations", Number(1, JOBS), Acts),
    ("bf_resolution", Number(1, 3600), Acts),
    ("bf_running_job_reserve", Flag, Always("what running jobs hold counts until their limits")),
    ("bf_topopt_enable", Flag, Nothing("topology_patience is what has jobs wait for a better place")),
    ("bf_topopt_iterations", Number(0, ANY), Nothing("topology_patience is what has jobs wait for a better place")),
    // Slurm ends at 30 days; a plan may look further.
    ("bf_window", Number(1, 525_600), Acts),
    ("bf_window_linear", Number(0, ANY), Nothing("ends are planned with to bf_resolution, however far ahead")),
    ("bf_yield_interval", Number(1, 10_000_000), Nothing(NOBODY_WAITS)),
    ("bf_yield_rpc_cnt", Number(0, 200), Nothing(NOBODY_WAITS)),
    ("bf_yield_sleep", Number(1, 10_000_000), Nothing(NOBODY_WAITS)),
    ("build_queue_timeout", Number(0, ANY), Nothing("the queue is always whole")),
    ("correspond_after_task_cnt", Number(0, ANY), Nothing("every task is told of its counterpart")),
    (
        "default_queue_depth",
        Number(0, ANY),
        Nothing("every plan looks at all jobs that nobody is before, and at bf_max_job_test behind them"),
    ),
    ("defer", Flag, Nothing(BURSTS)),
    ("defer_batch", Flag, Nothing(BURSTS)),
    ("delay_boot", Number(0, ANY), Nothing("no node is booted for the features of a job")),
    ("disable_hetjob_steps", Flag, NotYet),
    ("disable_job_shrink", Flag, Nothing("running jobs do not shrink")),
    ("enable_expedited_requeue", Flag, Acts),
    ("enable_hetjob_steps", Flag, Always("steps span components")),
    ("enable_user_top", Flag, Acts),
    ("extra_constraints", Flag, Acts),
    ("Ignore_NUMA", Flag, Nothing("sockets are those of the node's line")),
    ("ignore_constraint_validation", Flag, Acts),
    ("ignore_prefer_validation", Flag, Acts),
    ("jobs_per_user_per_hour", Number(1, ANY), Acts),
    ("max_array_tasks", Number(0, 4_000_001), Acts),
    ("max_rpc_cnt", Number(0, 1000), Nothing(NOBODY_WAITS)),
    ("max_sched_time", Number(1, ANY), Acts),
    ("max_script_size", Number(1, ANY), Acts),
    ("max_submit_line_size", Number(1, 2 << 20), NotYet),
    ("max_switch_wait", Number(0, ANY), Acts),
    ("no_backup_scheduling", Flag, NotYet),
    ("nohold_on_prolog_fail", Flag, Acts),
    ("pack_serial_at_end", Flag, Acts),
    ("partition_job_depth", Number(0, ANY), Acts),
    ("reduce_completing_frag", Flag, Acts),
    ("requeue_delay", Number(0, ANY), Acts),
    ("requeue_on_resume_failure", Flag, Acts),
    ("salloc_wait_nodes", Flag, Always("a job begins when all its nodes are ready")),
    ("sbatch_wait_nodes", Flag, Always("a job begins when all its nodes are ready")),
    ("sched_interval", NumberOrOff(1, ANY), Acts),
    ("sched_max_job_start", Number(0, JOBS), Acts),
    ("sched_min_interval", Number(0, ANY), Acts),
    ("spec_cores_first", Flag, Acts),
    (
        "step_retry_count",
        Number(0, ANY),
        Nothing("steps wait with their job's step manager, which tries all that could start"),
    ),
    (
        "step_retry_time",
        Number(0, ANY),
        Nothing("steps wait with their job's step manager, which tries all that could start"),
    ),
    ("time_min_as_soft_limit", Flag, Acts),
    ("topology_patience", Number(0, ANY), Acts),
    ("whole_hetjob", Flag, Acts),
    ("whole_pack", Flag, Acts),
    ("kill_invalid_depend", Flag, Moved("DependencyParameters=kill_invalid_depend")),
    ("max_depend_depth", Number(0, ANY), Moved("DependencyParameters=max_depend_depth")),
    ("preempt_reorder_count", Number(0, ANY), Moved("PreemptParameters=reorder_count")),
    ("preempt_strict_order", Flag, Moved("PreemptParameters=strict_order")),
    ("preempt_youngest_first", Flag, Moved("PreemptParameters=youngest_first")),
];

/// What counts only with another word.
const NEEDS: &[(&str, &str, &str)] =
    &[("bf_patience", "bf_order", "shortest"), ("bf_reservations", "bf_algorithm", "easy")];

/// Reads the words; with them what is to be said about those that have no effect.
pub(in crate::config) fn parameters(text: &str) -> Value<(Parameters, Option<SettingError>)> {
    let parameters = Parameters::parse(text);
    let mut notes = Vec::new();
    for word in &parameters.0 {
        notes.extend(check(word)?);
    }
    notes.extend(repeated(&parameters.0));
    for (name, other, value) in NEEDS {
        if parameters.value(name).is_some() && parameters.value(other) != Some(value) {
            notes.push(format!("{name} has no effect: it counts with {other}={value}"));
        }
    }
    let note = (!notes.is_empty()).then(|| SettingError::new(notes.join("; ")));
    Ok((parameters, note))
}

/// Words that come with another value before.
fn repeated(words: &[String]) -> Vec<String> {
    let parts: Vec<(&str, &str)> = words.iter().filter_map(|word| word.split_once('=')).collect();
    let mut notes = Vec::new();
    for (at, (name, value)) in parts.iter().enumerate() {
        let first = parts[..at].iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        if let Some((_, counts)) = first.filter(|(_, counts)| counts != value) {
            notes.push(format!("{name}={value} has no effect: {name}={counts} is before it"));
        }
    }
    notes
}

fn check(word: &str) -> Value<Option<String>> {
    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    let Some((name, form, effect)) = TABLE.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name)) else {
        let words: Vec<&'static str> = TABLE.iter().map(|(known, ..)| *known).collect();
        let wrong = SettingError::new(format!("there is no parameter {name}"));
        return Err(match nearest(name, &words) {
            Some(meant) => wrong.suggest(format!("did you mean {meant}?")),
            None => wrong.suggest("the man page slurm.conf(5) lists them"),
        });
    };
    form.check(name, value)?;
    Ok(match effect {
        Acts => None,
        Always(why) => Some(format!("{name} changes nothing: {why} in any case")),
        Nothing(why) => Some(format!("{name} has no effect: {why}")),
        NotYet => Some(format!("{name} is not supported yet")),
        Moved(instead) => Some(format!("{name} is not read here any more: write {instead}")),
    })
}

impl Form {
    fn check(self, name: &str, value: Option<&str>) -> Value<()> {
        let wrong = |cause: String, instead: String| Err(SettingError::new(cause).suggest(format!("write {instead}")));
        let said = value.map_or_else(|| format!("{name} has no value"), |value| format!("{name}={value}"));
        match (self, value) {
            (Flag, None) => Ok(()),
            (Flag, Some(_)) => wrong(format!("{said}: {name} takes no value"), name.to_owned()),
            (Choice(words), value) => match value {
                Some(value) if words.iter().any(|word| word == &value) => Ok(()),
                _ => wrong(said, format!("{name}={}", words.join(" or "))),
            },
            (Number(least, most) | NumberOrOff(least, most), value) => {
                let off = matches!(self, NumberOrOff(..));
                let number = value.and_then(|text| text.parse::<u64>().ok());
                let fits = number.is_some_and(|n| (least..=most).contains(&n)) || (off && value == Some("-1"));
                let or_off = if off { ", or -1 for off" } else { "" };
                if fits { Ok(()) } else { wrong(said, format!("{name}=N with N from {least} to {most}{or_off}")) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    fn says(text: &str) -> String {
        match parameters(text) {
            Ok((_, note)) => note.map_or_else(String::new, |note| note.to_string()),
            Err(wrong) => format!("error: {wrong}"),
        }
    }

    #[test]
    fn each_parameter_is_listed_once_and_can_be_written() {
        let names: BTreeSet<String> = TABLE.iter().map(|(name, ..)| name.to_ascii_lowercase()).collect();
        assert_eq!(names.len(), TABLE.len());
        for (name, form, effect) in TABLE {
            let word = match form {
                Flag => (*name).to_owned(),
                Number(least, _) | NumberOrOff(least, _) => format!("{name}={least}"),
                Choice(words) => format!("{name}={}", words[0]),
            };
            let needed = NEEDS.iter().find(|(needs, ..)| needs == name);
            let text = needed.map_or_else(|| word.clone(), |(_, other, value)| format!("{word},{other}={value}"));
            let (read, note) = parameters(&text).unwrap();
            assert_eq!((read.0.first(), note.is_none()), (Some(&word), *effect == Acts), "{text}");
        }
    }

    #[test]
    fn what_is_acted_on_is_silent_and_the_rest_says_why() {
        assert_eq!(says("bf_interval=60,bf_max_job_user=10,BF_WINDOW=2880,sched_interval=-1"), "");
        assert_eq!(
            says("bf_continue,bf_window=10,bf_licenses"),
            "bf_continue has no effect: no query and no submission waits for a plan, so that it need not pause; \
             bf_licenses changes nothing: licenses are planned with like nodes in any case"
        );
        assert_eq!(says("nohold_on_prolog_fail,requeue_delay=5"), "");
        assert_eq!(says("no_backup_scheduling"), "no_backup_scheduling is not supported yet");
        assert_eq!(
            says("kill_invalid_depend"),
            "kill_invalid_depend is not read here any more: write DependencyParameters=kill_invalid_depend"
        );
        assert_eq!(says("(null)"), "");
    }

    #[test]
    fn words_that_another_one_makes_idle_are_told() {
        assert_eq!(says("bf_window=10,bf_window=10,bf_algorithm=easy,bf_reservations=2"), "");
        assert_eq!(says("bf_window=10,BF_window=20"), "BF_window=20 has no effect: BF_window=10 is before it");
        assert_eq!(says("bf_reservations=2"), "bf_reservations has no effect: it counts with bf_algorithm=easy");
        assert_eq!(
            says("bf_patience=5,bf_order=priority"),
            "bf_patience has no effect: it counts with bf_order=shortest"
        );
        assert!(says("bf_algorithm=easy,bf_reservations=0").starts_with("error: bf_reservations=0 (write"));
    }

    #[test]
    fn what_is_wrong_is_an_error_that_says_what_to_write() {
        assert_eq!(
            says("bf_max_job_tests=5"),
            "error: there is no parameter bf_max_job_tests (did you mean bf_max_job_test?)"
        );
        assert_eq!(
            says("bf_max_job_test=0"),
            "error: bf_max_job_test=0 (write bf_max_job_test=N with N from 1 to 1000000)"
        );
        assert_eq!(
            says("bf_interval=fast"),
            "error: bf_interval=fast (write bf_interval=N with N from 1 to 10800, or -1 for off)"
        );
        assert_eq!(says("defer=yes"), "error: defer=yes: defer takes no value (write defer)");
        assert_eq!(
            says("bf_hetjob_prio"),
            "error: bf_hetjob_prio has no value (write bf_hetjob_prio=min or avg or max)"
        );
        assert_eq!(says("bf_order=longest"), "error: bf_order=longest (write bf_order=priority or shortest)");
    }
}
