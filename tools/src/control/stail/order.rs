//! Puts trace records of several processes into causal order: a record never comes before the one that caused it, even if the
//! hosts' clocks differ. Within a trace, records are ordered by time; traces are ordered by their first record.

use garrick_model::messages::command::TraceLine;
use std::collections::{BTreeMap, HashMap};

/// A record with its place in the chain of causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The record.
    pub line: TraceLine,
    /// Causes between it and the first record of its chain that is known.
    pub depth: usize,
    /// Its time, moved behind its cause's where clocks disagree. Microseconds.
    pub ordered_at_us: i64,
}

/// Puts records into causal order; what was placed before can be their cause too.
#[derive(Debug, Default)]
pub struct Order {
    known: HashMap<u64, (usize, i64)>,
    waiting: Vec<TraceLine>,
}

/// Records remembered as causes in a stream; the oldest are forgotten beyond that.
const REMEMBERED: usize = 20_000;

impl Order {
    /// Adds records.
    pub fn add(&mut self, lines: Vec<TraceLine>) {
        self.waiting.extend(lines);
    }

    /// How many records wait to be placed.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True when nothing waits to be placed.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Everything that was added, trace by trace.
    pub fn by_trace(&mut self) -> Vec<Placed> {
        let placed = self.place();
        let mut traces: BTreeMap<(i64, u64), Vec<Placed>> = BTreeMap::new();
        let mut first: HashMap<u64, i64> = HashMap::new();
        for p in placed {
            let start = *first.entry(p.line.trace).or_insert(p.ordered_at_us);
            traces.entry((start, p.line.trace)).or_default().push(p);
        }
        traces.into_values().flatten().collect()
    }

    /// Everything that was added, as it happened: for a stream, once late records had time to arrive.
    pub fn by_time(&mut self) -> Vec<Placed> {
        self.place()
    }

    fn place(&mut self) -> Vec<Placed> {
        let mut lines = std::mem::take(&mut self.waiting);
        lines.sort_by(|a, b| (a.at_us, &a.process, a.seq).cmp(&(b.at_us, &b.process, b.seq)));
        let index: HashMap<u64, usize> = lines.iter().enumerate().map(|(i, l)| (l.id, i)).collect();
        let mut places: Vec<Option<(usize, i64)>> = vec![None; lines.len()];
        for start in 0..lines.len() {
            // Up to a cause that has its place, then back down. A chain that bites its tail ends where it began.
            let mut chain = Vec::new();
            let mut at = Some(start);
            while let Some(i) = at {
                if places[i].is_some() || chain.contains(&i) {
                    break;
                }
                chain.push(i);
                at = index.get(&lines[i].cause).copied().filter(|_| lines[i].cause != 0);
            }
            for &i in chain.iter().rev() {
                let cause = match index.get(&lines[i].cause) {
                    Some(&c) if c != i => places[c],
                    _ => self.known.get(&lines[i].cause).copied(),
                };
                places[i] = Some(match cause {
                    Some((depth, behind)) if lines[i].cause != 0 => (depth + 1, lines[i].at_us.max(behind)),
                    _ => (0, lines[i].at_us),
                });
            }
        }
        let mut placed: Vec<Placed> = lines
            .into_iter()
            .zip(places)
            .map(|(line, place)| {
                let (depth, ordered_at_us) = place.unwrap_or((0, line.at_us));
                Placed { line, depth, ordered_at_us }
            })
            .collect();
        placed.sort_by_key(|p| (p.ordered_at_us, p.depth));
        if self.known.len() > REMEMBERED {
            self.known.clear();
        }
        self.known.extend(placed.iter().map(|p| (p.line.id, (p.depth, p.ordered_at_us))));
        placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(process: &str, at_us: i64, trace: u64, id: u64, cause: u64) -> TraceLine {
        TraceLine {
            process: process.to_owned(),
            seq: id,
            at_us,
            trace,
            id,
            cause,
            actor: "/job/5".to_owned(),
            message: "X".to_owned(),
            queue_us: 0,
            handle_us: 0,
            outcome: "ok".to_owned(),
        }
    }

    fn ids(placed: &[Placed]) -> Vec<(u64, usize)> {
        placed.iter().map(|p| (p.line.id, p.depth)).collect()
    }

    #[test]
    fn an_effect_stands_behind_its_cause_though_its_clock_is_slow() {
        let mut order = Order::default();
        order.add(vec![
            line("node/n1", 900, 1, 2, 1),
            line("controller", 1000, 1, 1, 0),
            line("node/n1", 950, 1, 3, 2),
        ]);
        assert_eq!(ids(&order.by_trace()), [(1, 0), (2, 1), (3, 2)]);
    }

    #[test]
    fn traces_stay_together_in_the_order_of_their_beginnings() {
        let mut order = Order::default();
        order.add(vec![line("c", 1, 7, 1, 0), line("c", 2, 8, 2, 0), line("c", 3, 7, 3, 1), line("c", 4, 8, 4, 2)]);
        assert_eq!(ids(&order.by_trace()), [(1, 0), (3, 1), (2, 0), (4, 1)]);
    }

    #[test]
    fn a_stream_goes_by_time_and_remembers_causes() {
        let mut order = Order::default();
        order.add(vec![line("c", 10, 7, 1, 0), line("c", 12, 8, 2, 0)]);
        assert_eq!(ids(&order.by_time()), [(1, 0), (2, 0)]);
        order.add(vec![line("n", 9, 7, 3, 1), line("c", 11, 7, 4, 99)]);
        assert_eq!(ids(&order.by_time()), [(3, 1), (4, 0)]);
        assert!(order.is_empty());
    }

    #[test]
    fn a_circle_of_causes_is_shown_all_the_same() {
        let mut order = Order::default();
        order.add(vec![line("c", 1, 7, 1, 2), line("c", 2, 7, 2, 1), line("c", 3, 7, 3, 3)]);
        assert_eq!(order.by_time().len(), 3);
    }
}
