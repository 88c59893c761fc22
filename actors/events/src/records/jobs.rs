//! Records of jobs by id. Copying the map is cheap: copies share the records that neither has changed since. A copy can be
//! written to disk in the background while the original changes.

use super::job::JobRecord;
use garrick_model::ids::JobId;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Number of ids that are stored together: the first change after a copy copies that many entries.
const SPAN: u32 = 128;

type Span = BTreeMap<JobId, Arc<JobRecord>>;

/// Records of jobs by id.
#[derive(Clone, Default, PartialEq)]
pub struct Records {
    /// By the first id of each span; empty spans are removed.
    spans: BTreeMap<u32, Arc<Span>>,
    len: usize,
}

const fn span_of(job: JobId) -> u32 {
    job.0 / SPAN
}

impl Records {
    /// Number of jobs.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Are there none?
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The record of a job.
    pub fn get(&self, job: &JobId) -> Option<&JobRecord> {
        self.spans.get(&span_of(*job))?.get(job).map(|record| &**record)
    }

    /// Is the job there?
    pub fn contains_key(&self, job: &JobId) -> bool {
        self.get(job).is_some()
    }

    /// A record to be changed. Copies keep the old one.
    pub fn get_mut(&mut self, job: &JobId) -> Option<&mut JobRecord> {
        // A span is only copied if the job is there.
        let span = self.spans.get_mut(&span_of(*job)).filter(|span| span.contains_key(job))?;
        Arc::make_mut(span).get_mut(job).map(Arc::make_mut)
    }

    /// Inserts or replaces a record.
    pub fn insert(&mut self, job: JobId, record: JobRecord) {
        let span = Arc::make_mut(self.spans.entry(span_of(job)).or_default());
        self.len += usize::from(span.insert(job, Arc::new(record)).is_none());
    }

    /// Removes a record.
    pub fn remove(&mut self, job: &JobId) -> Option<JobRecord> {
        let number = span_of(*job);
        let span = self.spans.get_mut(&number).filter(|span| span.contains_key(job))?;
        let span = Arc::make_mut(span);
        let removed = span.remove(job)?;
        if span.is_empty() {
            self.spans.remove(&number);
        }
        self.len -= 1;
        Some(Arc::unwrap_or_clone(removed))
    }

    /// All, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&JobId, &JobRecord)> {
        self.spans.values().flat_map(|span| span.iter()).map(|(job, record)| (job, &**record))
    }

    /// All ids, in order.
    pub fn keys(&self) -> impl Iterator<Item = &JobId> {
        self.iter().map(|(job, _)| job)
    }

    /// All records, by id.
    pub fn values(&self) -> impl Iterator<Item = &JobRecord> {
        self.iter().map(|(_, record)| record)
    }

    /// All records of ids below this one.
    pub fn below(&self, job: JobId) -> impl Iterator<Item = (&JobId, &JobRecord)> {
        let spans = self.spans.range(..=span_of(job)).flat_map(move |(_, span)| span.range(..job));
        spans.map(|(job, record)| (job, &**record))
    }

    /// All records, by id.
    pub fn into_values(self) -> impl Iterator<Item = JobRecord> {
        self.into_shared().map(Arc::unwrap_or_clone)
    }

    /// All records, shared with copies instead of cloned.
    pub fn into_shared(self) -> impl Iterator<Item = Arc<JobRecord>> {
        self.spans.into_values().flat_map(|span| Arc::unwrap_or_clone(span).into_values())
    }
}

impl std::ops::Index<&JobId> for Records {
    type Output = JobRecord;

    fn index(&self, job: &JobId) -> &JobRecord {
        self.get(job).expect("whoever indexes knows that it is there")
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::record;
    use garrick_model::testing::spec;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Change {
        Put(u32),
        Raise(u32),
        Remove(u32),
        Copy,
    }

    fn change() -> impl Strategy<Value = Change> {
        // Few ids, in several spans and at their boundaries.
        let job = prop_oneof![Just(0), Just(127), Just(128), Just(129), Just(256), 0_u32..500];
        prop_oneof![
            3 => job.clone().prop_map(Change::Put),
            3 => job.clone().prop_map(Change::Raise),
            2 => job.prop_map(Change::Remove),
            1 => Just(Change::Copy),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        /// It behaves like a map, and copies do not change.
        #[test]
        fn it_does_what_a_map_does_and_copies_stay_as_they_were(changes in prop::collection::vec(change(), 1..80)) {
            let (mut records, mut map) = (Records::default(), BTreeMap::new());
            let mut copies: Vec<(Records, BTreeMap<JobId, JobRecord>)> = Vec::new();
            for change in changes {
                match change {
                    Change::Put(job) => {
                        records.insert(JobId(job), record(job, spec()));
                        map.insert(JobId(job), record(job, spec()));
                    }
                    Change::Raise(job) => {
                        let raise = |record: &mut JobRecord| record.priority += 1;
                        prop_assert_eq!(
                            records.get_mut(&JobId(job)).map(raise),
                            map.get_mut(&JobId(job)).map(raise)
                        );
                    }
                    Change::Remove(job) => prop_assert_eq!(records.remove(&JobId(job)), map.remove(&JobId(job))),
                    Change::Copy => copies.push((records.clone(), map.clone())),
                }
            }
            copies.push((records, map));
            for (records, map) in copies {
                prop_assert!(records.iter().eq(map.iter()));
                prop_assert_eq!((records.len(), records.is_empty()), (map.len(), map.is_empty()));
                for job in [0, 1, 127, 128, 129, 256, 1000].map(JobId) {
                    prop_assert!(records.below(job).eq(map.range(..job)));
                    prop_assert_eq!(records.get(&job), map.get(&job));
                }
                prop_assert!(records.into_values().eq(map.into_values()));
            }
        }
    }
}
