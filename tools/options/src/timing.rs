//! Options for time and repetition: limits, begin, dependencies, arrays, priority, requeueing.

use super::{
    table::{
        ALLOC_RUN, Arg,
        Arg::{Optional, Required},
        BATCH, BATCH_ALLOC, JOB, OptionDef,
    },
    typed::OptionError,
    values,
};
use garrick_model::refusal::Refusal;

/// What `-I` without an argument means, in seconds: as long as one pass of the scheduler may take (Slurm's default).
const IMMEDIATE_SECS: u32 = 1;
/// What `--nice` without an argument means.
const NICE: i32 = 100;
/// Largest absolute value of `--nice`.
const NICE_LIMIT: i64 = 2_147_483_645;
/// Largest value of `--priority`: the numbers above it stand for something else.
const PRIORITY_LIMIT: u32 = 4_294_967_293;

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef::new(
        "time",
        Some('t'),
        Required("minutes"),
        JOB,
        "time limit: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S",
        |t, g| {
            t.time_limit = Some(g.checked(values::time_limit(g.text()?))?);
            Ok(())
        },
    )
    .env(&["SBATCH_TIMELIMIT", "SALLOC_TIMELIMIT", "SLURM_TIMELIMIT"]),
    OptionDef::new("time-min", None, Required("minutes"), JOB, "minimum time limit (if distinct)", |t, g| {
        t.time_min = Some(g.checked(values::time_limit(g.text()?))?);
        Ok(())
    }),
    OptionDef::new("begin", Some('b'), Required("time"), JOB, "defer job until HH:MM MM/DD/YY or now+1hour", |t, g| {
        t.begin = Some(values::date(g)?);
        Ok(())
    }),
    OptionDef::new(
        "deadline",
        None,
        Required("time"),
        JOB,
        "remove the job if it cannot end before this time",
        |t, g| {
            t.deadline = Some(values::date(g)?);
            Ok(())
        },
    ),
    OptionDef::new("hold", Some('H'), Arg::None, JOB, "submit job in held state", |t, _| {
        t.hold = true;
        Ok(())
    }),
    OptionDef::new("priority", None, Required("value"), JOB, "set the priority of the job", |t, g| {
        t.priority = Some(match g.text()? {
            top if top.eq_ignore_ascii_case("top") => return Err(g.not_supported()),
            text => match text.trim().parse::<u64>().map(u32::try_from) {
                Ok(Ok(priority)) if priority <= PRIORITY_LIMIT => priority,
                Ok(_) => return Err(OptionError::Text(format!("Priority must be < {}", PRIORITY_LIMIT + 1))),
                Err(_) => return Err(g.no_number()),
            },
        });
        Ok(())
    }),
    OptionDef::new("nice", None, Optional("value"), JOB, "decrease the scheduling priority by value", |t, g| {
        t.nice = match g.text()? {
            "" => NICE,
            text => match text.trim().parse::<i64>() {
                Ok(nice) if (-NICE_LIMIT..=NICE_LIMIT).contains(&nice) => {
                    i32::try_from(nice).map_err(|_| g.invalid())?
                }
                Ok(_) => {
                    let text = format!("Invalid --nice value, out of range (+/- {NICE_LIMIT})");
                    return Err(OptionError::Text(text));
                }
                Err(_) => return Err(g.no_number()),
            },
        };
        Ok(())
    }),
    OptionDef::new(
        "dependency",
        Some('d'),
        Required("type:jobid[:time]"),
        BATCH_ALLOC,
        "defer until conditions on other jobs hold",
        |t, g| {
            let text = g.text()?;
            t.dependencies = match text {
                "" => None,
                _ => Some(values::dependencies(text).ok_or(OptionError::Refused(Refusal::Dependency))?),
            };
            Ok(())
        },
    )
    .env(&["SBATCH_DEPENDENCY", "SALLOC_DEPENDENCY"]),
    OptionDef::new("array", Some('a'), Required("indexes"), BATCH, "job array index values, 0-15%4", |t, g| {
        t.array = Some(values::array(g.text()?).ok_or(OptionError::Refused(Refusal::InvalidArray))?);
        Ok(())
    })
    .env(&["SBATCH_ARRAY_INX"]),
    OptionDef::new(
        "immediate",
        Some('I'),
        Optional("secs"),
        ALLOC_RUN,
        "exit if resources are not available in secs",
        |t, g| {
            t.immediate_secs = Some(if g.value.is_none() { IMMEDIATE_SECS } else { g.number(0)?.max(1) });
            Ok(())
        },
    )
    .env(&["SALLOC_IMMEDIATE", "SLURM_IMMEDIATE"]),
    OptionDef::new("requeue", None, Optional("expedite"), BATCH, "permit the job to be requeued", |t, g| {
        // From `SBATCH_REQUEUE` any other value comes here too.
        (t.requeue, t.expedite) = (Some(true), g.text()? == "expedite");
        Ok(())
    })
    .env(&["SBATCH_REQUEUE"]),
    OptionDef::new("no-requeue", None, Arg::None, BATCH, "do not permit the job to be requeued", |t, _| {
        (t.requeue, t.expedite) = (Some(false), false);
        Ok(())
    })
    .env(&["SBATCH_NO_REQUEUE"]),
    OptionDef::new("no-kill", Some('k'), Optional("off"), JOB, "do not kill job on node failure", |t, g| {
        t.no_kill = !matches!(g.text()?, "off" | "no");
        Ok(())
    })
    .env(&["SBATCH_NO_KILL", "SALLOC_NO_KILL", "SLURM_NO_KILL"]),
    OptionDef::new(
        "kill-on-invalid-dep",
        None,
        Required("yes|no"),
        BATCH,
        "terminate the job if a dependency can never be satisfied",
        |t, g| {
            t.kill_on_invalid_dep = match g.text()? {
                "yes" => Some(true),
                "no" => Some(false),
                _ => return Err(g.invalid()),
            };
            Ok(())
        },
    ),
    OptionDef::new("signal", None, Required("[R|B:]num[@time]"), JOB, "send signal when time limit is near", |t, g| {
        t.signal = Some(g.checked(values::signal_warning(g.text()?))?);
        Ok(())
    })
    .env(&["SBATCH_SIGNAL", "SALLOC_SIGNAL", "SLURM_SIGNAL"]),
];
