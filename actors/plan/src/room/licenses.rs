//! Licenses in a plan: what running jobs hold, what planned ones will hold, and when enough are free. [`crate::plan`] enters all
//! that it starts or reserves, so that no license is promised twice at any time.

use super::hres::Room;
use crate::snapshot::{
    licenses::LicenseFacts,
    reservations::{Reservations, Viewer},
};
use garrick_model::{
    ids::JobId,
    spec_text::licenses::{LicenseRequest, Licenses},
    time::Timestamp,
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// The end of a hold without a known end.
const FOR_EVER: Timestamp = Timestamp(i64::MAX);

/// A job that should be over still holds them now.
fn held_until(end: Option<Timestamp>, now: Timestamp) -> Timestamp {
    end.map_or(FOR_EVER, |end| end.max(Timestamp(now.0 + 1)))
}

/// One license over time: how many are in use from each time on.
#[derive(Clone, Debug)]
struct Line {
    total: u64,
    steps: BTreeMap<Timestamp, u64>,
}

impl Line {
    fn used_at(&self, at: Timestamp) -> u64 {
        self.steps.range(..=at).next_back().map_or(0, |(_, used)| *used)
    }

    fn hold(&mut self, count: u32, from: Timestamp, until: Timestamp) {
        if from >= until {
            return;
        }
        for at in [from, until].into_iter().filter(|at| *at < FOR_EVER) {
            let used = self.used_at(at);
            self.steps.entry(at).or_insert(used);
        }
        self.steps.range_mut(from..until).for_each(|(_, used)| *used += u64::from(count));
    }

    /// The first time from `from` on at which so many are free for that long.
    fn earliest(&self, count: u32, from: Timestamp, length: Duration) -> Option<Timestamp> {
        let room = self.total.checked_sub(u64::from(count))?;
        let mut start = from;
        let in_force = self.steps.range(..=from).next_back().map_or(from, |(at, _)| *at);
        let mut steps = self.steps.range(in_force..).peekable();
        while let Some((&at, &used)) = steps.next() {
            if at > start && at >= start.plus(length) {
                break;
            }
            if used > room {
                // The last step holds what never ends.
                start = *steps.peek()?.0;
            }
        }
        Some(start.max(from))
    }
}

/// Licenses of one name that a reservation keeps for its jobs, over time.
#[derive(Clone, Debug)]
struct Kept {
    /// The view of its jobs.
    viewer: Viewer,
    name: String,
    /// How many the reservation keeps.
    kept: Line,
    /// How many its jobs hold.
    used: Line,
}

/// All licenses over time.
#[derive(Clone, Debug)]
pub(crate) struct LicensePlan {
    lines: BTreeMap<String, Line>,
    /// The current view.
    viewer: Viewer,
    /// What reservations keep.
    kept: Vec<Kept>,
    /// Parsed requests by their text; `None`: malformed.
    known: HashMap<String, Option<LicenseRequest>>,
}

impl LicensePlan {
    /// What running jobs hold, from now on.
    pub fn new(facts: &LicenseFacts, now: Timestamp) -> Self {
        let line = |(name, total): (&String, &u32)| {
            (name.clone(), Line { total: u64::from(*total), steps: BTreeMap::from([(now, 0)]) })
        };
        let layers = facts.hres.layers().filter_map(|(_, layer)| Some((layer.name.clone(), layer.available()?)));
        let layers: BTreeMap<String, u32> = layers.collect();
        let lines = facts.totals.iter().chain(&layers).map(line).collect();
        let mut plan = Self { lines, viewer: None, kept: Vec::new(), known: HashMap::new() };
        plan.hold_all(facts, now, &|_| None);
        plan
    }

    /// The same with reservations that keep some for their jobs.
    pub fn among(facts: &LicenseFacts, reservations: &Reservations, now: Timestamp) -> Self {
        let none =
            LicenseFacts { totals: facts.totals.clone(), hres: Arc::clone(&facts.hres), ..LicenseFacts::default() };
        let mut plan = Self::new(&none, now);
        let line = || Line { total: 0, steps: BTreeMap::from([(now, 0)]) };
        for (viewer, licenses, from, until) in reservations.licenses() {
            for license in &licenses.0 {
                let known = plan.kept.iter().position(|k| k.viewer == viewer && k.name == license.name);
                let place = known.unwrap_or(plan.kept.len());
                if known.is_none() {
                    plan.kept.push(Kept { viewer, name: license.name.clone(), kept: line(), used: line() });
                }
                plan.kept[place].kept.hold(license.count, from.max(now), until);
            }
        }
        plan.hold_all(facts, now, &|job| reservations.viewer_of(facts.inside.get(&job)?));
        plan
    }

    fn hold_all(&mut self, facts: &LicenseFacts, now: Timestamp, viewer: &dyn Fn(JobId) -> Viewer) {
        for (job, licenses, end) in &facts.held {
            self.look(viewer(*job));
            self.hold(licenses, now, held_until(*end, now));
        }
        self.look(None);
    }

    /// Sets the view of later calls: jobs of a reservation get what it keeps.
    pub const fn look(&mut self, viewer: Viewer) {
        self.viewer = viewer;
    }

    /// A license in the current view: what other reservations keep, and their jobs do not hold yet, counts as in use.
    fn line(&self, name: &str) -> Option<Cow<'_, Line>> {
        let line = self.lines.get(name)?;
        let others: Vec<&Kept> = self.kept.iter().filter(|k| k.name == name && k.viewer != self.viewer).collect();
        if others.is_empty() {
            return Some(Cow::Borrowed(line));
        }
        let mut seen = line.clone();
        let all = others.iter().flat_map(|k| k.kept.steps.keys().chain(k.used.steps.keys()));
        let times: BTreeSet<Timestamp> = all.chain(line.steps.keys()).copied().collect();
        for at in times {
            let more: u64 = others.iter().map(|k| k.kept.used_at(at).saturating_sub(k.used.used_at(at))).sum();
            seen.steps.insert(at, line.used_at(at) + more);
        }
        Some(Cow::Owned(seen))
    }

    /// Marks them as in use for this time.
    pub fn hold(&mut self, licenses: &Licenses, from: Timestamp, until: Timestamp) {
        for license in &licenses.0 {
            if let Some(line) = self.lines.get_mut(&license.name) {
                line.hold(license.count, from, until);
            }
            let own = self.kept.iter_mut().filter(|k| k.viewer == self.viewer && k.name == license.name);
            own.for_each(|kept| kept.used.hold(license.count, from, until));
        }
    }

    /// A running job returns what it holds now.
    pub fn give_back(&mut self, licenses: &Licenses, end: Option<Timestamp>, now: Timestamp) {
        self.release(licenses, now, held_until(end, now));
    }

    /// A planned use for this time is cancelled.
    pub fn release(&mut self, licenses: &Licenses, from: Timestamp, until: Timestamp) {
        if from >= until {
            return;
        }
        for license in &licenses.0 {
            if let Some(line) = self.lines.get_mut(&license.name) {
                line.steps.range_mut(from..until).for_each(|(_, used)| *used -= u64::from(license.count).min(*used));
            }
        }
    }

    /// When, from `from` on, these licenses are free for the time, together with what these nodes need of hierarchical resources
    /// if no job held any; of several layers that would do, the smallest.
    pub(crate) fn with_layers_of(
        &self,
        room: Option<&Room<'_>>,
        nodes: &[usize],
        mut licenses: Licenses,
        from: Timestamp,
        length: Duration,
    ) -> Option<(Timestamp, Licenses)> {
        if let Some(room) = room {
            licenses.0.extend(room.share(nodes)?.0);
        }
        let counted = licenses.0.iter().filter(|license| self.lines.contains_key(&license.name)).cloned();
        let at = self.all_free(&Licenses(counted.collect()), from, length)?;
        Some((at, licenses))
    }

    fn alternatives(&mut self, request: &str) -> &[Licenses] {
        if !self.known.contains_key(request) {
            self.known.insert(request.to_owned(), request.parse().ok());
        }
        self.known.get(request).and_then(Option::as_ref).map_or(&[], |r| &r.alternatives)
    }

    /// Could the request be satisfied if no job held any?
    pub(crate) fn is_possible(&mut self, request: Option<&str>) -> bool {
        let Some(text) = request else { return true };
        let alternatives = self.alternatives(text).to_vec();
        let there = |name: &str| self.lines.get(name).map_or(0, |line| line.total);
        alternatives.iter().any(|a| a.0.iter().all(|l| u64::from(l.count) <= there(&l.name)))
    }

    /// What a request gets at that time for this long; no licenses if it requests none.
    pub fn at(&mut self, request: Option<&str>, at: Timestamp, length: Duration) -> Option<Licenses> {
        self.earliest(request, at, length).filter(|(first, _)| *first == at).map(|(_, licenses)| licenses)
    }

    /// When, from `from` on, a request gets its licenses for this long, and which: of several alternatives the one that is free
    /// first.
    pub fn earliest(
        &mut self,
        request: Option<&str>,
        from: Timestamp,
        length: Duration,
    ) -> Option<(Timestamp, Licenses)> {
        let Some(text) = request else { return Some((from, Licenses::default())) };
        let alternatives = self.alternatives(text).to_vec();
        let mut best: Option<(Timestamp, Licenses)> = None;
        for licenses in alternatives {
            if let Some(at) = self.all_free(&licenses, from, length)
                && best.as_ref().is_none_or(|(known, _)| at < *known)
            {
                best = Some((at, licenses));
            }
        }
        best
    }

    /// The most that is in use at any time from `from` until `until`; 0 for a name that is not counted.
    pub(crate) fn most_used(&self, name: &str, from: Timestamp, until: Timestamp) -> u64 {
        let Some(line) = self.lines.get(name) else { return 0 };
        line.steps.range(from..until).map(|(_, used)| *used).chain([line.used_at(from)]).max().unwrap_or(0)
    }

    /// Times after `after` at which the number in use changes.
    pub(crate) fn changes(&self, name: &str, after: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
        let steps = self.lines.get(name).map(|line| line.steps.range(Timestamp(after.0.saturating_add(1))..));
        steps.into_iter().flatten().map(|(at, _)| *at)
    }

    /// When, from `from` on, all of these are free for this long.
    fn all_free(&self, licenses: &Licenses, from: Timestamp, length: Duration) -> Option<Timestamp> {
        let mut at = from;
        loop {
            let before = at;
            for license in &licenses.0 {
                at = self.line(&license.name)?.earliest(license.count, at, length)?;
            }
            if at == before {
                return Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn at(secs: u64) -> Timestamp {
        NOW.plus(Duration::from_secs(secs))
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn facts(totals: &[(&str, u32)]) -> LicenseFacts {
        LicenseFacts { totals: totals.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect(), ..LicenseFacts::default() }
    }

    #[test]
    fn a_request_waits_for_the_end_of_those_who_have_them() {
        let mut facts = facts(&[("a", 2), ("b", 1)]);
        facts.held =
            vec![(JobId(1), "a:2".parse().unwrap(), Some(at(100))), (JobId(2), "b".parse().unwrap(), Some(at(50)))];
        let mut plan = LicensePlan::new(&facts, NOW);
        assert_eq!(plan.at(Some("a"), NOW, secs(10)), None);
        assert_eq!(plan.earliest(Some("a,b"), NOW, secs(10)).unwrap().0, at(100));
        let (when, what) = plan.earliest(Some("a|b"), NOW, secs(10)).unwrap();
        assert_eq!((when, what.to_string()), (at(50), "b:1".to_owned()));
        assert_eq!(plan.at(None, NOW, secs(10)), Some(Licenses::default()));
        assert_eq!(plan.earliest(Some("a:3"), NOW, secs(10)), None);
        assert!(plan.is_possible(Some("a:3|b")) && !plan.is_possible(Some("a:3")) && !plan.is_possible(Some("c")));
    }

    #[test]
    fn a_gap_must_be_long_enough() {
        let mut plan = LicensePlan::new(&facts(&[("a", 1)]), NOW);
        plan.hold(&"a".parse().unwrap(), at(10), at(20));
        plan.hold(&"a".parse().unwrap(), at(25), at(40));
        assert_eq!(plan.earliest(Some("a"), NOW, secs(10)).unwrap().0, NOW);
        assert_eq!(plan.earliest(Some("a"), NOW, secs(11)).unwrap().0, at(40));
        assert_eq!(plan.earliest(Some("a"), at(12), secs(5)).unwrap().0, at(20));
        plan.hold(&"a".parse().unwrap(), at(40), FOR_EVER);
        assert_eq!(plan.earliest(Some("a"), NOW, secs(11)), None);
    }

    #[test]
    fn what_is_over_already_is_given_up_without_a_trace() {
        let mut plan = LicensePlan::new(&facts(&[("a", 1)]), NOW);
        plan.hold(&"a".parse().unwrap(), at(10), at(20));
        plan.release(&"a".parse().unwrap(), at(30), at(20));
        assert_eq!(plan.earliest(Some("a"), at(12), secs(5)).unwrap().0, at(20));
        plan.release(&"a".parse().unwrap(), at(10), at(20));
        assert_eq!(plan.earliest(Some("a"), at(12), secs(5)).unwrap().0, at(12));
    }

    #[test]
    fn an_overdue_job_still_has_what_it_has() {
        let mut facts = facts(&[("a", 1)]);
        facts.held = vec![(JobId(1), "a".parse().unwrap(), Some(Timestamp(5)))];
        let mut plan = LicensePlan::new(&facts, NOW);
        assert_eq!(plan.at(Some("a"), NOW, secs(10)), None);
        assert!(plan.earliest(Some("a"), NOW, secs(10)).unwrap().0 > NOW);
    }

    fn any_request() -> impl Strategy<Value = String> {
        prop_oneof![
            (1u32..4).prop_map(|n| format!("a:{n}")),
            (1u32..4, 1u32..3).prop_map(|(n, m)| format!("a:{n},b:{m}")),
            (1u32..4, 1u32..3).prop_map(|(n, m)| format!("a:{n}|b:{m}")),
        ]
    }

    proptest! {
        /// Whatever is placed where the plan says, at no time more are in use than there are; and no earlier time would
        /// have done.
        #[test]
        fn never_overbooked(jobs in prop::collection::vec((any_request(), 0u64..50, 1u64..40), 1..30)) {
            let totals = [("a", 4u64), ("b", 2)];
            let mut plan = LicensePlan::new(&facts(&[("a", 4), ("b", 2)]), NOW);
            let mut held: Vec<(u64, u64, Licenses)> = Vec::new();
            let used = |held: &[(u64, u64, Licenses)], name: &str, t: u64| -> u64 {
                held.iter().filter(|(from, until, _)| (*from..*until).contains(&t)).map(|(_, _, l)| u64::from(l.count(name))).sum()
            };
            for (text, from, length) in jobs {
                let (when, what) = plan.earliest(Some(&text), at(from), secs(length)).unwrap();
                let start = when.since(NOW).as_secs();
                prop_assert!(start >= from);
                plan.hold(&what, when, when.plus(secs(length)));
                let request: LicenseRequest = text.parse().unwrap();
                for earlier in from..start {
                    let fits = request.alternatives.iter().any(|a| (earlier..earlier + length).all(|t| {
                        totals.iter().all(|(name, total)| used(&held, name, t) + u64::from(a.count(name)) <= *total)
                    }));
                    prop_assert!(!fits, "{text} would fit at {earlier}, before {start}");
                }
                held.push((start, start + length, what));
                for t in 0..2000 {
                    for (name, total) in totals {
                        prop_assert!(used(&held, name, t) <= total);
                    }
                }
            }
        }

        /// Of what a reservation keeps others get nothing while it holds, and all together never have more than there is.
        #[test]
        fn what_is_kept_is_for_those_inside(
            (total, kept) in (1u64..6).prop_flat_map(|total| (Just(total), 1..=total)),
            (begin, lasts) in (0u64..60, 1u64..60),
            jobs in prop::collection::vec((1u32..4, 0u64..80, 1u64..40, any::<bool>()), 1..30),
        ) {
            let reservation = garrick_model::reservation::Reservation {
                name: "kept".to_owned(),
                start: at(begin),
                end: at(begin + lasts),
                licenses: format!("a:{kept}").parse().unwrap(),
                ..Default::default()
            };
            let zone = jiff::tz::TimeZone::UTC;
            let reservations = Reservations::new(&[Arc::new(reservation)], &[], vec![], NOW, &zone);
            let facts = facts(&[("a", u32::try_from(total).unwrap())]);
            let mut plan = LicensePlan::among(&facts, &reservations, NOW);
            let mut held: Vec<(u64, u64, u64, bool)> = Vec::new();
            for (count, from, length, inside) in jobs {
                plan.look(inside.then_some(0));
                let text = format!("a:{count}");
                let Some((when, what)) = plan.earliest(Some(&text), at(from), secs(length)) else {
                    prop_assert!(u64::from(count) > total);
                    continue;
                };
                plan.hold(&what, when, when.plus(secs(length)));
                let start = when.since(NOW).as_secs();
                held.push((start, start + length, u64::from(count), inside));
            }
            for t in 0..1000 {
                let used = |inside: bool| -> u64 {
                    let there = held.iter().filter(|(from, until, ..)| (*from..*until).contains(&t));
                    there.filter(|job| job.3 == inside).map(|job| job.2).sum()
                };
                let left = if (begin..begin + lasts).contains(&t) { total - kept } else { total };
                prop_assert!(used(false) <= left && used(false) + used(true) <= total, "at {t}");
            }
        }
    }
}
