//! Submissions of heterogeneous jobs: all components are judged, given ids in a row, and saved in one write.

use super::{
    admission::Identity,
    env::{deliver, journal_outcome},
    event::ControllerEvent,
    front::ControllerActor,
    messages::ControllerMsg,
    ports::ReplySink,
};
use crate::job::{messages::Authority, record::JobRecord, shell::JobsMsg, state::JobEvent};
use garrick_model::{
    ids::{JobId, RequestId, Sluid},
    messages::command::{Caller, CommandReply},
    refusal::Refusal,
    spec::{JobKind, JobSpec},
    time::Timestamp,
};
use garrick_runtime::Context;
use std::sync::Arc;

/// Most components of a heterogeneous job, as in Slurm's documentation of them.
const MOST_COMPONENTS: usize = 128;

impl ControllerActor {
    pub(super) fn submit_het(
        &mut self,
        cx: &mut Context<Self>,
        caller: &Caller,
        by: Authority,
        request: RequestId,
        specs: Vec<JobSpec>,
        replies: Box<dyn ReplySink>,
    ) {
        let Some(mut replies) = self.not_yet_answered(request, specs.len(), replies) else { return };
        let now = Timestamp::now();
        let (records, warnings) = match self.admit_het(caller, by, request, specs, now) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                replies.send(CommandReply::Refused(refusal));
                return;
            }
        };
        let leader = records[0].id;
        let components = records.len();
        tracing::info!(job_id = leader.0, components, uid = caller.uid, request_id = %request, "job.submitted");
        let jobs: Vec<JobId> = records.iter().map(|record| record.id).collect();
        let mut events = Vec::with_capacity(components);
        for record in records {
            self.env.enter_job(record.clone(), now);
            let job = record.id;
            events.push(ControllerEvent::Job { job, event: Box::new(JobEvent::Submitted(Box::new(record))) });
        }
        // One write: a crash leaves all of them or none.
        let done = self.env.append(events);
        self.saving.insert(request, vec![replies]);
        cx.pipe(done, move |answer| ControllerMsg::Submitted {
            job: leader,
            request,
            warnings,
            result: journal_outcome(answer),
        });
        if let Some(supervisor) = self.env.jobs_supervisor() {
            for job in jobs {
                deliver(cx, &supervisor, JobsMsg::Start { job, first: None });
            }
        }
    }

    /// All components, or why not.
    fn admit_het(
        &mut self,
        caller: &Caller,
        by: Authority,
        request: RequestId,
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
                request: (offset == 0).then_some(request),
                submissions: 0,
            };
            let admitted = self.admit(caller, by, spec, identity, now)?;
            records.push(admitted.record);
            warnings.extend(admitted.warnings);
        }
        let size = u32::try_from(count).unwrap_or(u32::MAX);
        let no_ids = || Refusal::Internal("there are not so many job ids in a row".to_owned());
        let leader = self.env.ids.jobs(size).ok_or_else(no_ids)?;
        for (offset, record) in (0..size).zip(&mut records) {
            record.id = JobId(leader.0 + offset);
            record.sluid = self.env.ids.sluid(now);
            let spec = Arc::make_mut(&mut record.spec);
            spec.het = Some((leader, offset));
            spec.het_size = size;
            self.put_in_order(record);
        }
        Ok((records, warnings))
    }
}
