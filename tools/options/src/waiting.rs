//! Options of `swait`.

use super::{
    table::{Arg, Arg::Required, OptionDef, WAIT},
    values,
};

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef::new(
        "timeout",
        None,
        Required("time"),
        WAIT,
        "give up after this time (0.5, 90, 1:30) with exit code 1",
        |t, g| {
            t.timeout = Some(g.checked(values::duration(g.text()?))?);
            Ok(())
        },
    ),
    OptionDef::new("step", Some('s'), Required("list"), WAIT, "wait for these steps only: 3,7_[1-4],5609.9", |t, g| {
        t.steps = g.string()?;
        Ok(())
    }),
    OptionDef::new("any", None, Arg::None, WAIT, "wait until the first one ends", |t, _| {
        t.any = true;
        Ok(())
    }),
    OptionDef::new("exit-status", None, Arg::None, WAIT, "exit with the worst exit code of the steps", |t, _| {
        t.exit_status = true;
        Ok(())
    }),
    OptionDef::new("quiet", Some('q'), Arg::None, WAIT, "no progress bar on a terminal", |t, _| {
        t.quiet = true;
        Ok(())
    }),
    OptionDef::new("no-progress", Some('Q'), Arg::None, WAIT, "the same as -q", |t, _| {
        t.quiet = true;
        Ok(())
    }),
];
