//! Which of a node's free CPUs a job gets: from the sockets in turn, or from as few sockets as possible, as the second word of
//! `--distribution` and `CR_CORE_DEFAULT_DIST_BLOCK` say (`sbatch(1)`, `slurm.conf(5)`). The number of CPUs is decided before.

use super::free::whole_units;
use garrick_model::{node_shape::NodeShape, resources::CpuSet, spec::CpuOrder};
use std::ops::Range;

/// Chooses `wanted` of the open CPUs, for tasks of `each`, in whole units of `unit` CPUs; fewer if there are not enough.
pub fn choose(open: &CpuSet, shape: &NodeShape, order: CpuOrder, (unit, each): (u32, u32), wanted: u32) -> CpuSet {
    let unit = unit.max(1);
    let sockets = || shape.sockets_cpus().map(|cpus| Socket { open, unit, rest: cpus, found: Vec::new(), taken: 0 });
    let is_one_unit = shape.sockets_cpus().next().is_none_or(|cpus| cpus.len() <= unit as usize);
    let units = wanted.div_ceil(unit) as usize;
    let mut chosen: CpuSet = match order {
        _ if is_one_unit || shape.sockets_cpus().nth(1).is_none() => {
            return whole_units(open, unit).take(wanted as usize).collect();
        }
        CpuOrder::Block => from_few(sockets().collect(), units),
        CpuOrder::Cyclic => in_turn(sockets().collect(), each.max(1).div_ceil(unit) as usize, units),
        CpuOrder::Fcyclic => in_turn(sockets().collect(), 1, units),
    };
    // Only a part of the last unit is wanted.
    while let Some(last) = chosen.last().filter(|_| chosen.len() > wanted) {
        chosen.remove(last);
    }
    chosen
}

/// A socket with its free units, which are found as they are needed.
struct Socket<'a> {
    open: &'a CpuSet,
    unit: u32,
    rest: Range<u32>,
    /// First CPUs of the units found so far.
    found: Vec<u32>,
    taken: usize,
}

impl Socket<'_> {
    /// Does it have so many units that are not taken?
    fn has(&mut self, units: usize) -> bool {
        while self.found.len() - self.taken < units {
            if self.rest.is_empty() {
                return false;
            }
            let unit = self.rest.start..self.rest.start.saturating_add(self.unit);
            self.rest.start = unit.end.min(self.rest.end);
            if unit.clone().all(|cpu| self.open.contains(cpu)) {
                self.found.push(unit.start);
            }
        }
        true
    }

    /// Takes its first units, up to that number.
    fn take(&mut self, units: usize, chosen: &mut CpuSet) -> usize {
        self.has(units);
        let first = self.taken;
        self.taken = self.found.len().min(first + units);
        let taken = &self.found[first..self.taken];
        taken.iter().for_each(|first| chosen.extend(*first..first + self.unit));
        taken.len()
    }

    fn count(&mut self) -> usize {
        self.has(usize::MAX);
        self.found.len() - self.taken
    }
}

/// Each task's units from one socket, the next task's from the next. A task for which no socket has room gets its units from one
/// socket after the other.
fn in_turn(mut sockets: Vec<Socket<'_>>, each: usize, wanted: usize) -> CpuSet {
    let mut chosen = CpuSet::new();
    let (mut left, mut next) = (wanted, 0);
    // Once no socket has room for a task, none has later.
    let mut whole = true;
    while left > 0 {
        let mut task = each.min(left);
        if let Some(socket) = Some(task).filter(|_| whole || task < each).and_then(|n| turn(&mut sockets, next, n)) {
            left -= sockets[socket].take(task, &mut chosen);
            next = socket + 1;
            continue;
        }
        whole = false;
        while task > 0 {
            let Some(socket) = turn(&mut sockets, next, 1) else { return chosen };
            let taken = sockets[socket].take(1, &mut chosen);
            (task, left, next) = (task - taken, left - taken, socket + 1);
        }
    }
    chosen
}

/// The first socket from `next` on, going round, with so many units.
fn turn(sockets: &mut [Socket<'_>], next: usize, units: usize) -> Option<usize> {
    let count = sockets.len();
    (next..next + count).map(|at| at % count).find(|at| sockets[*at].has(units))
}

/// From the socket with the fewest free units that is enough; otherwise from those with the most, until one holds the rest.
fn from_few(mut sockets: Vec<Socket<'_>>, wanted: usize) -> CpuSet {
    let mut chosen = CpuSet::new();
    let mut left = wanted;
    let mut room: Vec<usize> = sockets.iter_mut().map(Socket::count).collect();
    while left > 0 {
        let at = (0..room.len()).filter(|at| room[*at] > 0);
        let enough = at.clone().filter(|at| room[*at] >= left).min_by_key(|at| room[*at]);
        let Some(socket) = enough.or_else(|| at.min_by_key(|at| std::cmp::Reverse(room[*at]))) else { break };
        left -= sockets[socket].take(left, &mut chosen);
        room[socket] = 0;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::spec::CpuOrder::{Block, Cyclic, Fcyclic};
    use proptest::prelude::*;

    fn shape(sockets: u32, cores: u32, threads: u32) -> NodeShape {
        let cpus = sockets * cores * threads;
        NodeShape { cpus, sockets, cores_per_socket: cores, threads_per_core: threads, ..NodeShape::default() }
    }

    /// Of two sockets of four cores of one thread: CPUs 0-3 and 4-7.
    fn of_two(open: &str, order: CpuOrder, each: u32, wanted: u32) -> String {
        let open: CpuSet = open.parse().unwrap_or_default();
        choose(&open, &shape(2, 4, 1), order, (1, each), wanted).to_string()
    }

    #[test]
    fn tasks_go_round_the_sockets() {
        assert_eq!(of_two("0-7", Cyclic, 1, 6), "0-2,4-6");
        assert_eq!(of_two("0-7", Cyclic, 3, 6), "0-2,4-6");
        assert_eq!(of_two("0-7", Cyclic, 2, 4), "0-1,4-5");
        assert_eq!(of_two("0-7", Fcyclic, 3, 3), "0-1,4");
        assert_eq!(of_two("3-7", Cyclic, 2, 4), "4-7", "no socket but the second has room for one");
        assert_eq!(of_two("3-7", Cyclic, 5, 5), "3-7");
        assert_eq!(of_two("2-7", Cyclic, 5, 5), "2-6", "no socket has room: one from each in turn");
        assert_eq!(of_two("0-7", Cyclic, 3, 8), "0-7", "the last task has less");
    }

    #[test]
    fn block_takes_as_few_sockets_as_will_do() {
        assert_eq!(of_two("0-7", Block, 1, 6), "0-5");
        assert_eq!(of_two("3-7", Block, 1, 4), "4-7", "one socket is enough");
        assert_eq!(of_two("0-5", Block, 1, 2), "4-5", "the one with the least room that is enough");
        assert_eq!(of_two("2-7", Block, 1, 5), "2,4-7", "the most of one, the rest of another");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_job_gets_as_many_free_cpus_in_whole_units_as_it_wants(
            (sockets, cores, threads) in (1u32..5, 1u32..7, 1u32..4),
            held in prop::collection::vec(0u32..80, 0..20),
            order in prop::sample::select(vec![Block, Cyclic, Fcyclic]),
            (each, units) in (1u32..9, 0u32..30),
            unit in prop::sample::select(vec![1, 0]),
        ) {
            let shape = shape(sockets, cores, threads);
            let unit = if unit == 0 { threads } else { unit };
            let mut open = shape.all_cpus();
            held.iter().for_each(|cpu| _ = open.remove(*cpu));
            let whole: CpuSet = whole_units(&open, unit).collect();
            let wanted = units * unit;
            let chosen = choose(&open, &shape, order, (unit, each), wanted);
            prop_assert_eq!(chosen.len(), wanted.min(whole.len()));
            prop_assert!(chosen.is_subset(&whole));
            let torn = chosen.iter().filter(|cpu| {
                let first = cpu - cpu % unit;
                !(first..first + unit).all(|cpu| chosen.contains(cpu))
            });
            prop_assert_eq!(torn.count(), 0);
            if order == Block {
                // No choice of fewer sockets has as many.
                let of = |cpus: &CpuSet, socket: Range<u32>| cpus.intersection(&CpuSet::from(socket)).len();
                let used = shape.sockets_cpus().filter(|socket| of(&chosen, socket.clone()) > 0).count();
                let mut room: Vec<u32> = shape.sockets_cpus().map(|socket| of(&whole, socket)).collect();
                room.sort_unstable_by_key(|free| std::cmp::Reverse(*free));
                let most: u32 = room.iter().take(used.saturating_sub(1)).sum();
                prop_assert!(used == 0 || most < chosen.len());
            }
        }
    }
}
