//! Submissions of heterogeneous jobs: all components are judged, given ids in a row, and saved in one write.

use super::{admission::Identity, front::ControllerActor, ports::ReplySink};
use crate::{
    job::{core::JobCore, messages::Authority, record::JobRecord},
    submission::core::join,
};
use garrick_model::{
    ids::{RequestId, Sluid},
    messages::command::{Caller, CommandReply},
    refusal::Refusal,
    spec::{JobKind, JobSpec},
    time::Timestamp,
    view::JobView,
};
use std::sync::Arc;

/// Most components of a heterogeneous job, as in Slurm's documentation of them.
const MOST_COMPONENTS: usize = 128;

impl ControllerActor {
    /// Says when a heterogeneous job could start.
    pub(super) fn test_het(
        &mut self,
        caller: &Caller,
        by: Authority,
        specs: Vec<JobSpec>,
        mut replies: Box<dyn ReplySink>,
    ) {
        let now = Timestamp::now();
        let size = u32::try_from(specs.len()).unwrap_or(u32::MAX);
        match self.judge_het(caller, by, None, specs, now) {
            Ok((mut records, _)) => {
                let leader = self.env.ids.peek();
                for (offset, record) in (0..size).zip(&mut records) {
                    join(record, leader, offset, size);
                }
                self.say_when(records, now, replies);
            }
            Err(refusal) => {
                replies.send(CommandReply::Refused(refusal));
            }
        }
    }

    /// All components, without ids. Without a request it is a question.
    pub(super) fn judge_het(
        &mut self,
        caller: &Caller,
        by: Authority,
        request: Option<RequestId>,
        specs: Vec<JobSpec>,
        now: Timestamp,
    ) -> Result<(Vec<JobRecord>, Vec<String>), Refusal> {
        let count = specs.len();
        if !(2..=MOST_COMPONENTS).contains(&count) {
            return Err(Refusal::NotSupported(format!("a heterogeneous job of {count} components")));
        }
        let mut records = Vec::with_capacity(count);
        let mut warnings = Vec::new();
        for (offset, mut spec) in specs.into_iter().enumerate() {
            if spec.array.is_some() {
                return Err(Refusal::InvalidArray);
            }
            if spec.expedite {
                return Err(Refusal::NotSupported("--requeue=expedite for a heterogeneous job".to_owned()));
            }
            if offset > 0 {
                // Only the leader runs anything.
                spec.kind = JobKind::Allocation;
                spec.script = None;
            }
            let identity = Identity {
                job: self.env.ids.peek(),
                sluid: Sluid(0),
                // A repeat is answered with the leader.
                request: request.filter(|_| offset == 0),
                // A question stands behind all that wait.
                submissions: if request.is_some() { 0 } else { u64::from(u32::MAX) },
            };
            let admitted = self.admit(caller, by, spec, identity, now)?;
            records.push(admitted.record);
            warnings.extend(admitted.warnings);
        }
        let leader = self.env.ids.peek();
        let mut together = records.clone();
        let size = u32::try_from(count).unwrap_or(u32::MAX);
        (0..size).zip(&mut together).for_each(|(offset, record)| join(record, leader, offset, size));
        let views: Vec<JobView> =
            together.into_iter().map(|record| JobCore::new(record, Arc::default()).view(now)).collect();
        // Licenses may come with the next configuration.
        if !self.env.config().scheduler_parameters.has("allow_zero_lic") {
            self.feasibility()
                .check_together(&views)
                .map_err(|what| Refusal::NodeConfigUnavailable { detail: what.detail().map(str::to_owned) })?;
        }
        Ok((records, warnings))
    }
}
