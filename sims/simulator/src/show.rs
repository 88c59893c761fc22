//! Prints worlds.

use garrick_simulator::{
    Setup, Trial, attempt,
    ledger::Counts,
    meetings::{FAULTS, KINDS, can_meet},
    rules::Violation,
    story::Subjects,
};
use std::{error::Error, io::Write};

/// A fault is to have met each kind of job so often, in a table over many worlds.
const LEAST_MET: u64 = 20;
/// Lines of a long story that are printed, from its beginning and from its end.
const FIRST_LINES: usize = 120;
const LAST_LINES: usize = 280;
/// A violation that names more nodes than that is about none in particular; where it names jobs too, they are what it is about.
const MOST_NODES: usize = 6;
const MOST_NODES_BESIDE_JOBS: usize = 2;

type Done = Result<(), Box<dyn Error>>;

pub fn trial(out: &mut impl Write, trial: &Trial, secs: f64) -> Done {
    let setup = &trial.setup;
    match &trial.result {
        Ok(outcome) => {
            let (n, rate) = (|what| trial.counts.of(what), trial.events as f64 / secs.max(0.001));
            writeln!(
                out,
                "seed {}: {} jobs on {} nodes, {} events, {rate:.0} events/s, {} simulated s, digest {:016x}; \
                 {} starts, {} ends, {} requeues, {} heterogeneous, {} step managers taken over, {} controller restarts",
                setup.seed,
                n("Submitted"),
                setup.nodes,
                trial.events,
                outcome.simulated_secs,
                outcome.digest,
                n("Allocated"),
                n("Ended"),
                n("Requeued"),
                n("heterogeneous job"),
                n("step manager taken over"),
                n("controller restart"),
            )?;
        }
        Err(violation) => writeln!(out, "seed {}: {violation}\nrepeat: {}", setup.seed, setup.command())?,
    }
    Ok(())
}

/// What many worlds held.
pub fn counts(out: &mut impl Write, counts: &Counts) -> Done {
    writeln!(out, "\nhow often each thing happened:")?;
    for (what, count) in counts.iter() {
        writeln!(out, "{count:>12} {what}")?;
    }
    writeln!(out, "\njobs of each kind that each fault met:")?;
    writeln!(out, "{:32}{}", "", KINDS.iter().map(|kind| format!("{kind:>18}")).collect::<String>())?;
    let mut rare = Vec::new();
    for fault in FAULTS {
        let mut line = format!("{fault:32}");
        for kind in KINDS {
            let met = counts.met.get(&(*fault, *kind)).copied().unwrap_or(0);
            line += &format!("{met:>18}");
            if met < LEAST_MET && can_meet(fault, kind) {
                rare.push(format!("{fault} / {kind}"));
            }
        }
        writeln!(out, "{line}")?;
    }
    match rare.len() {
        0 => writeln!(out, "each fault met each kind of job at least {LEAST_MET} times")?,
        _ => writeln!(out, "met fewer than {LEAST_MET} times: {}", rare.join(", "))?,
    }
    Ok(())
}

/// A world, and all that touched these in it.
pub fn story(out: &mut impl Write, setup: Setup, about: &Subjects) -> Result<u32, Box<dyn Error>> {
    let tried = attempt(setup, None, Some(about.clone()));
    for line in tried.story.lines() {
        writeln!(out, "{line}")?;
    }
    match &tried.result {
        Ok(outcome) => writeln!(out, "all rules held through {} events", outcome.events)?,
        Err(violation) => writeln!(out, "rule {}: {}", violation.rule, violation.what)?,
    }
    Ok(u32::from(tried.result.is_err()))
}

/// A broken rule with all that touched those it names, from their beginning.
pub fn whole_story(out: &mut impl Write, setup: Setup, violation: &Violation) -> Done {
    let mut about = Subjects::named_in(&violation.what);
    let most = if about.jobs.is_empty() { MOST_NODES } else { MOST_NODES_BESIDE_JOBS };
    if about.nodes.len() > most {
        about.nodes.clear();
    }
    writeln!(out, "rule {}: {}", violation.rule, violation.what)?;
    if !about.is_empty() {
        let told = attempt(setup, None, Some(about));
        let lines: Vec<&str> = told.story.lines().collect();
        let (first, last) = (FIRST_LINES.min(lines.len()), lines.len().saturating_sub(LAST_LINES).max(FIRST_LINES));
        lines[..first].iter().try_for_each(|line| writeln!(out, "{line}"))?;
        if last > first {
            writeln!(out, "    ... {} lines ...", last - first)?;
        }
        lines.iter().skip(last).try_for_each(|line| writeln!(out, "{line}"))?;
    }
    writeln!(out, "repeat: {}", setup.command())?;
    Ok(())
}
