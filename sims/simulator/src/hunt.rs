//! Tries fresh worlds until the time is up. One that breaks a rule is reduced as long as the same rule breaks, and printed in
//! full.

use crate::{
    show,
    tries::{Sum, threads},
};
use garrick_simulator::{Setup, Trial, attempt, rules::Violation};
use std::{
    error::Error,
    io::Write,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// A world of another size has other events: so many seeds are tried at each.
const SEEDS_AT_A_SIZE: u64 = 12;
/// Longest time that making one smaller may take.
const SHRINKING: Duration = Duration::from_secs(120);
/// The least of each size.
const LEAST: Setup = Setup { seed: 0, jobs: 1, nodes: 2, events: 100 };

/// How many worlds broke a rule.
pub fn hunt(
    out: &mut impl Write,
    secs: u64,
    from: u64,
    counts: bool,
    stop: &AtomicBool,
) -> Result<u32, Box<dyn Error>> {
    let (began, until) = (Instant::now(), Duration::from_secs(secs));
    let threads = threads();
    writeln!(out, "from seed {from}, for {secs} s on {threads} threads")?;
    let over = || stop.load(Ordering::Relaxed) || began.elapsed() >= until;
    let (next, (sender, receiver)) = (AtomicU64::new(from), mpsc::channel());
    let mut sum = Sum::default();
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        for _ in 0..threads {
            let (next, sender, over) = (&next, sender.clone(), &over);
            scope.spawn(move || {
                while !over() {
                    let tried = attempt(Setup::fresh(next.fetch_add(1, Ordering::Relaxed)), None, None);
                    let smallest = tried.result.as_ref().err().map(|found| {
                        let until = Instant::now() + SHRINKING;
                        shrink(tried.setup, found, &|setup| {
                            (Instant::now() < until).then(|| attempt(setup, None, None))
                        })
                    });
                    let _ = sender.send((tried, smallest));
                }
            });
        }
        drop(sender);
        for (tried, smallest) in receiver {
            sum.add(&tried);
            if let (Err(violation), Some((smallest, last))) = (&tried.result, smallest) {
                writeln!(out, "\nbroken at {:.0} s: {}", began.elapsed().as_secs_f64(), tried.setup.command())?;
                if smallest == tried.setup {
                    writeln!(out, "no smaller world was found that breaks the same rule")?;
                }
                show::whole_story(out, smallest, last.as_deref().unwrap_or(violation))?;
                out.flush()?;
            }
        }
        Ok(())
    })?;
    let tried = next.load(Ordering::Relaxed) - from;
    writeln!(out, "seeds {from} to {}", from + tried.saturating_sub(1))?;
    sum.show(out, began.elapsed().as_secs_f64(), threads, counts)?;
    Ok(sum.violations)
}

/// The smallest world found that breaks the same rule, with what it says. `try_it`: `None` when the time is up.
fn shrink(
    found: Setup,
    violation: &Violation,
    try_it: &impl Fn(Setup) -> Option<Trial>,
) -> (Setup, Option<Box<Violation>>) {
    let (mut smallest, mut said) = (found, None);
    'smaller: loop {
        for size in smaller(&smallest) {
            for seed in (0..SEEDS_AT_A_SIZE).map(|n| smallest.seed.wrapping_add(n)) {
                let setup = Setup { seed, ..size };
                let Some(tried) = try_it(setup) else { return (smallest, said) };
                if let Err(again) = tried.result
                    && again.rule == violation.rule
                {
                    (smallest, said) = (setup, Some(again));
                    continue 'smaller;
                }
            }
        }
        return (smallest, said);
    }
}

/// Sizes to try next: all halved first, then one by one by a half, a quarter, an eighth.
fn smaller(of: &Setup) -> Vec<Setup> {
    let less = |size: u64, part: u64, least: u64| (size - size.div_ceil(part)).max(least);
    let jobs = |setup: Setup, part| Setup { jobs: less(setup.jobs.into(), part, LEAST.jobs.into()) as u32, ..setup };
    let nodes =
        |setup: Setup, part| Setup { nodes: less(setup.nodes.into(), part, LEAST.nodes.into()) as u32, ..setup };
    let events = |setup: Setup, part| Setup { events: less(setup.events, part, LEAST.events), ..setup };
    let mut sizes = vec![events(nodes(jobs(*of, 2), 2), 2)];
    for part in [2, 4, 8] {
        sizes.extend([jobs(*of, part), nodes(*of, part), events(*of, part)]);
    }
    sizes.retain(|size| size != of);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_simulator::ledger::Counts;

    const FOUND: Setup = Setup { seed: 7, jobs: 400, nodes: 50, events: 20_000 };

    fn violation() -> Box<Violation> {
        Box::new(Violation { rule: "r", what: String::new(), event: 0, at_secs: 0, story: String::new() })
    }

    fn trial(setup: Setup, breaks: bool) -> Trial {
        let result = if breaks { Err(violation()) } else { Err(Box::new(Violation { rule: "other", ..*violation() })) };
        Trial { setup, events: 1, counts: Counts::default(), result, story: String::new() }
    }

    #[test]
    fn a_world_is_made_smaller_while_the_same_rule_breaks() {
        let breaks = |s: Setup| s.jobs >= 5 && s.nodes >= 3 && s.events >= 700 && s.seed != 7;
        let (smallest, said) = shrink(FOUND, &violation(), &|setup| Some(trial(setup, breaks(setup))));
        assert!(breaks(smallest) && said.is_some(), "{smallest:?}");
        assert!(smallest.jobs <= 6 && smallest.nodes <= 4 && smallest.events <= 800, "{smallest:?}");
    }

    #[test]
    fn without_time_it_stays_as_it_was_found() {
        assert_eq!(shrink(FOUND, &violation(), &|_| None), (FOUND, None));
    }
}
