//! Submissions of heterogeneous jobs: all components are judged, given consecutive ids, and saved in one write.

use super::{
    core::{FrontendCore, Reply, Turn},
    site_checks::Checked,
};
use crate::{
    job::core::JobCore,
    messages::job::Authority,
    submission::{admission::Identity, core::join},
};
use garrick_events::records::job::JobRecord;
use garrick_model::{
    ids::{RequestId, Sluid},
    messages::command::Caller,
    refusal::Refusal,
    spec::{JobKind, JobSpec},
    time::Timestamp,
    view::JobView,
};
use std::sync::Arc;

/// Most components of a heterogeneous job, as in Slurm's documentation of them.
const MOST_COMPONENTS: usize = 128;

impl FrontendCore {
    /// Says when a heterogeneous job could start.
    pub(super) fn test_het(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        caller: &Caller,
        by: Authority,
        specs: Vec<JobSpec>,
        checked: Checked,
    ) -> Reply {
        let size = u32::try_from(specs.len()).unwrap_or(u32::MAX);
        let mut records = self.judge_het(caller, by, None, specs, turn.now)?;
        let leader = self.sight.next_job();
        for (offset, record) in (0..size).zip(&mut records) {
            join(record, leader, offset, size);
        }
        self.say_when(turn, request, records, checked)
    }

    /// All components, without ids. Without a request id it is only a query.
    pub(super) fn judge_het(
        &mut self,
        caller: &Caller,
        by: Authority,
        request: Option<RequestId>,
        specs: Vec<JobSpec>,
        now: Timestamp,
    ) -> Result<Vec<JobRecord>, Refusal> {
        let count = specs.len();
        if !(2..=MOST_COMPONENTS).contains(&count) {
            return Err(Refusal::NotSupported(format!("a heterogeneous job of {count} components")));
        }
        let mut records = Vec::with_capacity(count);
        for (offset, mut spec) in specs.into_iter().enumerate() {
            if spec.array.is_some() {
                return Err(Refusal::InvalidArray);
            }
            if spec.expedite {
                return Err(Refusal::NotSupported("--requeue=expedite for a heterogeneous job".to_owned()));
            }
            if offset > 0 {
                // Only the leader runs a script.
                spec.kind = JobKind::Allocation;
                spec.script = None;
            }
            let identity = Identity {
                job: self.sight.next_job(),
                sluid: Sluid(0),
                // A repeat is answered with the leader.
                request: request.filter(|_| offset == 0),
                // A query comes after all waiting jobs.
                submissions: if request.is_some() { 0 } else { u64::from(u32::MAX) },
            };
            records.push(self.admit(caller, by, spec, identity, now)?);
        }
        let leader = self.sight.next_job();
        let mut together = records.clone();
        let size = u32::try_from(count).unwrap_or(u32::MAX);
        (0..size).zip(&mut together).for_each(|(offset, record)| join(record, leader, offset, size));
        let views: Vec<JobView> =
            together.into_iter().map(|record| JobCore::new(record, Arc::default()).view(now)).collect();
        // Licenses may be added by a later configuration.
        if !self.sight.config().scheduler_parameters.has("allow_zero_lic") {
            self.feasibility()
                .check_together(&views)
                .map_err(|what| Refusal::NodeConfigUnavailable { detail: what.detail().map(str::to_owned) })?;
        }
        Ok(records)
    }
}
