//! Options that request nodes near each other: switches, segments.

use super::{
    table::{Arg, Arg::Required, JOB, OptionDef},
    typed::{Given, OptionError},
};
use garrick_model::time::parse_duration_secs;

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef::new(
        "switches",
        None,
        Required("max[@time]"),
        JOB,
        "most leaf switches, and how long to wait",
        |t, g| {
            let text = g.text()?;
            let (count, time) = text.split_once('@').map_or((text, None), |(count, time)| (count, Some(time)));
            let most = g.number_in(count, 0, "--switches")?;
            t.topology.switches = Some(most).filter(|most| *most > 0);
            if let Some(time) = time {
                t.topology.switches_wait_secs = wait(time, g)?;
            }
            Ok(())
        },
    )
    .env(&["SBATCH_REQ_SWITCH", "SALLOC_REQ_SWITCH", "SLURM_REQ_SWITCH"]),
    OptionDef::new("switches-wait", None, Required("time"), JOB, "how long to wait for so few switches", |t, g| {
        t.topology.switches_wait_secs = wait(g.text()?, g)?;
        Ok(())
    })
    .env(&["SBATCH_WAIT4SWITCH", "SALLOC_WAIT4SWITCH", "SLURM_WAIT4SWITCH"]),
    OptionDef::new("segment", None, Required("size"), JOB, "nodes of a segment that lie together", |t, g| {
        let size = g.number(0).map_err(|_| g.invalid())?;
        t.topology.segment = Some(size).filter(|size| *size > 0);
        Ok(())
    })
    .env(&["SBATCH_SEGMENT_SIZE", "SALLOC_SEGMENT_SIZE", "SRUN_SEGMENT_SIZE"]),
    OptionDef::new("spread-segments", None, Arg::None, JOB, "no two segments in one base block", |t, _| {
        t.topology.spread_segments = true;
        Ok(())
    }),
    OptionDef::new("consolidate-segments", None, Arg::None, JOB, "all segments in one aggregated block", |t, _| {
        t.topology.consolidate_segments = true;
        Ok(())
    }),
];

/// Seconds; `None`: as long as the site allows.
fn wait(text: &str, given: &Given<'_>) -> Result<Option<u64>, OptionError> {
    given.checked(parse_duration_secs(text).ok())
}
